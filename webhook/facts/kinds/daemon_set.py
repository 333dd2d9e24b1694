"""Reads DaemonSets of the device plugin: how it is installed, with or without the GPU Operator.

A file in Git has every DaemonSet, reduced to the parts that rules judge, because exemptions are written from them.
"""

from collections.abc import Mapping
from typing import Any

from webhook.api.lenient import mapping
from webhook.api.resources import Resource
from webhook.facts import templates
from webhook.facts.installations import PluginInstallation, of_daemon_set, runs_the_plugin
from webhook.facts.kind import Fact, Part, Reach, Table
from webhook.model import Object
from webhook.policy.model import Policy

RESOURCES = (Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True),)
TABLE = Table[tuple[str, str, str], PluginInstallation]("installations")
REACH = Reach.WITHIN
ORDER = 3


def read(item: Object, namespace: str, name: str) -> Fact:
    """Read the installation; None if the DaemonSet is no device plugin, or uses no ConfigMap."""
    found = of_daemon_set(namespace, name, _pod(item))
    return TABLE.row(("DaemonSet", namespace, name), found)


def kept(item: Object) -> Part | None:
    """Keep the parts of the pod template that say how the plugin is installed; nothing of other DaemonSets."""
    pod = _pod(item)
    if of_daemon_set("", "", pod) is None:
        return None
    return {"spec": {"template": {"spec": {key: pod.get(key) for key in ("nodeSelector", "containers", "volumes")}}}}


def slim(item: Object, policy: Policy) -> Part:
    """Keep the parts of any DaemonSet's pods that rules judge, and those that show how the plugin is installed."""
    pod, metadata = _pod(item), mapping(mapping(mapping(item.get("spec")).get("template")).get("metadata"))
    return {"spec": {"template": templates.slim(metadata, pod, policy, plugin=runs_the_plugin(pod))}}


def _pod(item: Object) -> Mapping[str, Any]:
    return mapping(mapping(mapping(item.get("spec")).get("template")).get("spec"))
