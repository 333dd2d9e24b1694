"""Reads ClusterPolicies of the GPU Operator: how they install the device plugin."""

from typing import Any

from webhook.api.lenient import mapping, mappings, string
from webhook.api.resources import Resource
from webhook.facts import parts
from webhook.facts.installations import PLUGIN_VARIABLES, PluginInstallation, of_cluster_policy
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = (Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy"),)
TABLE = Table[tuple[str, str, str], PluginInstallation]("installations")
REACH = Reach.EVERYWHERE
ORDER = 2


def read(item: Object, _: str, name: str) -> Fact:
    """Read the installation; None if its plugin has no ConfigMap."""
    return TABLE.row(("ClusterPolicy", "", name), of_cluster_policy(name, mapping(item.get("spec"))))


def kept(item: Object) -> Part:
    """Keep the settings of the device plugin and of MIG."""
    spec = mapping(item.get("spec"))
    return {"spec": {key: spec.get(key) for key in ("devicePlugin", "mig")}}


def slim(item: Object, _: Policy) -> Part:
    """Keep what `of_cluster_policy` reads, and the operator's namespace."""
    spec = mapping(item.get("spec"))
    plugin, strategy = mapping(spec.get("devicePlugin")), string(mapping(spec.get("mig")).get("strategy"))
    said: dict[str, Any] = {
        "config": parts.filled(mapping(plugin.get("config")), "name", "default"),
        "enabled": plugin.get("enabled"),
        "env": [
            parts.variable(each) for each in mappings(plugin.get("env")) if string(each.get("name")) in PLUGIN_VARIABLES
        ],
    }
    small = {"devicePlugin": {key: value for key, value in said.items() if value not in ({}, [], None)}}
    return {"spec": {**small, **({"mig": {"strategy": strategy}} if strategy else {})}, **parts.home(item)}
