"""Defines the review of a ConfigMap, with values that several rules need."""

from collections.abc import Mapping

from webhook.api.objects import ConfigMap
from webhook.deviceplugin import configmaps, usage
from webhook.deviceplugin.configmaps import Config
from webhook.facts.installations import PluginInstallation
from webhook.facts.kinds.node import Node
from webhook.review import Review, shared


class ConfigMapReview(Review[ConfigMap]):
    """The review of a ConfigMap, which may hold configurations of the device plugin."""

    @shared
    def readers(self) -> tuple[PluginInstallation, ...]:
        """The installations of the device plugin that read the ConfigMap."""
        return usage.readers(self.subject.namespace, self.subject.name, self.policy, self.facts)

    @shared
    def configs(self) -> tuple[Config, ...]:
        """Every key that is a configuration of the device plugin."""
        return configmaps.configs(self.subject, self.policy, self.readers, self.allowance)

    @shared
    def users(self) -> Mapping[str, list[Node]]:
        """The nodes that use each key. The ConfigMap may lack such a key."""
        keys = (*self.subject.data, *self.subject.binary_data)
        return usage.users(self.readers, keys, self.facts)
