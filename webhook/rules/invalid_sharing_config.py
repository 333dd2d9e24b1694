"""A sharing configuration on which NVIDIA's device plugin refuses to start.

Kubernetes stores any text in a ConfigMap. The plugin reads it when it next starts, which may be weeks later,
and exits: the node then offers no GPU at all. `timeSlicing.replicas` without `resources`, which many
tutorials show, is such a text; so is `replicas: 1` (k8s-device-plugin api/config/v1). Read are the parts that say
what is shared: version, sections, resources, replicas and the two switches.

Way out: correct the place that the message names. To share nothing, leave `sharing` out.
"""

from collections.abc import Iterator
from typing import Any

from webhook.facts import Facts
from webhook.model import Finding, Path, shown
from webhook.plugin_config import SECTIONS, Config, configs, members, sections
from webhook.policy import Policy
from webhook.targets import ConfigMap

_REFUSES = "the device plugin would not start on it"


def check(config_map: ConfigMap, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag texts that the plugin cannot read, and values that it refuses."""
    for config in configs(config_map, policy, facts):
        if config.error is not None:
            yield config.finding((), f"{config.error}; {_REFUSES}")
        for inner, message in _refused(config):
            yield config.finding(inner, f"{message}; {_REFUSES}")


def _refused(config: Config) -> Iterator[tuple[Path, str]]:
    value = config.value
    if value is None:
        return
    if not isinstance(value, dict):
        yield (), "not a map"
        return
    for key, version in members(value, "version"):
        if version not in (None, "", "v1"):
            yield (key,), f"is {shown(version)}, and only v1 is known"
    for key, sharing in members(value, "sharing"):
        if sharing is not None and not isinstance(sharing, dict):
            yield (key,), "is not a map"
    for name in SECTIONS:
        for path, section in sections(config, name):
            # An absent MPS section is a nil pointer, and null makes one too (api/config/v1/sharing.go).
            if not (name == "mps" and section is None):
                yield from _refused_section(path, section)


def _refused_section(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    if not isinstance(value, dict) or not isinstance(value.get("resources"), list) or not value["resources"]:
        yield path, "no resources: it needs a list `resources` of entries with `name` and `replicas`"
        return
    for key in ("renameByDefault", "failRequestsGreaterThanOne"):
        if value.get(key) is not None and not isinstance(value[key], bool):
            yield (*path, key), f"is {shown(value[key])}, and must be true or false"
    for index, entry in enumerate(value["resources"]):
        at = (*path, "resources", index)
        if not isinstance(entry, dict):
            yield at, "is not a map"
            continue
        if not isinstance(entry.get("name"), str) or not entry["name"]:
            yield at, "no resource name"
        replicas = entry.get("replicas")
        if isinstance(replicas, bool) or not isinstance(replicas, int):
            yield (
                (*at, "replicas"),
                "no number of replicas" if replicas is None else f"{shown(replicas)} is no number",
            )
        elif replicas < 2:
            yield (*at, "replicas"), f"is {replicas}, and must be at least 2"
