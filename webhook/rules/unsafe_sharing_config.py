"""A sharing configuration that the device plugin takes and the policy does not.

`failRequestsGreaterThanOne` must be true: without it a pod is given several slices, pays for them in
neighbours' turns and gains nothing. Under time-slicing its default is false, and NVIDIA's published example sets it
so (k8s-device-plugin README.md). The number of replicas is limited: every process keeps a context on the card,
and with too many nothing is left to work with.

Way out: set `failRequestsGreaterThanOne: true` in the section itself, and replicas within the policy's limit.
"""

from collections.abc import Iterator

from webhook.facts import Facts
from webhook.model import Finding, Object, Path, shown
from webhook.plugin_config import Config, configs, sections
from webhook.policy import Policy
from webhook.targets import ConfigMap


def check(config_map: ConfigMap, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag sections that let requests above 1 through, and more replicas than the policy allows."""
    for config in configs(config_map, policy, facts):
        for inner, message in _unsafe(config, policy):
            yield config.finding(inner, message)


def _unsafe(config: Config, policy: Policy) -> Iterator[tuple[Path, str]]:
    for name, default in (("timeSlicing", False), ("mps", True)):
        for path, section in sections(config, name):
            if isinstance(section, dict):
                yield from _unsafe_section(path, section, policy, default)


def _unsafe_section(path: Path, section: Object, policy: Policy, default: bool) -> Iterator[tuple[Path, str]]:
    fails = section.get("failRequestsGreaterThanOne")
    if (default if fails is None else fails) is not True:
        said = "is missing" if fails is None else f"is {shown(fails)}"
        yield (
            (*path, "failRequestsGreaterThanOne"),
            f"{said}, so a pod may take several slices and gain nothing; set it to true",
        )
    entries = section.get("resources")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        replicas = entry.get("replicas") if isinstance(entry, dict) else None
        if isinstance(replicas, int) and replicas > policy.limits.max_replicas:
            yield (
                (*path, "resources", index, "replicas"),
                f"is {replicas}, and policy {policy.name} allows {policy.limits.max_replicas} at most; lower it",
            )
