"""Configurations of NVIDIA's device plugin, as they stand in ConfigMaps."""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webhook.dialect import Mark, Unreadable, parse
from webhook.facts import Facts
from webhook.model import Path
from webhook.policy import Policy
from webhook.targets import ConfigMap


@dataclass(frozen=True, eq=False)
class Config:
    """One key of a ConfigMap, read as the plugin reads it; `error` says why it cannot be read.

    `named` tells whether anything names the ConfigMap, or the text only looks like a configuration. Lines count
    within the text, from 1; they are 0 for `binaryData`.
    """

    path: Path
    value: Any
    mark: Mark
    named: bool
    error: Unreadable | None = None

    def line(self, inner: Path = ()) -> int:
        """The line of a place in the configuration."""
        if self.path[0] == "binaryData":
            return 0
        return self.error.line if self.error else self.mark.at(inner).line


def configs(config_map: ConfigMap, policy: Policy, facts: Facts) -> Iterator[Config]:
    """Read every key that is a device-plugin configuration.

    All keys are where the policy or a ClusterPolicy names the ConfigMap; elsewhere those that look like one,
    for a misspelt name must not be a way out. Each regular file of the mounted volume can be selected, so
    `binaryData` counts too (k8s-device-plugin cmd/config-manager/main.go).
    """
    named = (config_map.namespace, config_map.name) in policy.config_maps or config_map.name in facts.plugin_configs
    for key, text in config_map.data.items():
        yield from _judged(("data", key), text, named)
    for key, encoded in config_map.binary_data.items():
        try:
            text = base64.b64decode(encoded, validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            if named:
                yield Config(("binaryData", key), None, Mark(1), named, Unreadable(1, "not text in UTF-8"))
            continue
        yield from _judged(("binaryData", key), text, named)


def _judged(path: Path, text: str, named: bool) -> Iterator[Config]:
    folded = text.casefold()
    if named or ("sharing" in folded and ("timeslicing" in folded or "mps" in folded)):
        config = _read(path, text, named)
        if named or config.error or any(True for name in SECTIONS for _ in sections(config, name)):
            yield config


def _read(path: Path, text: str, named: bool) -> Config:
    try:
        value, mark = parse(text, last_key_wins=True)
    except Unreadable as error:
        return Config(path, None, Mark(1), named, error)
    return Config(path, value, mark, named)


SECTIONS = ("timeSlicing", "mps")


def sections(config: Config, name: str) -> Iterator[tuple[Path, Any]]:
    """Find every `sharing.<name>`: its path as written and its value."""
    for sharing, value in members(config.value, "sharing"):
        for key, section in members(value, name):
            yield (sharing, key), section


def members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Find a struct's key in every spelling: the plugin's keys match in any case, and each is read (encoding/json)."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key.casefold() == name.casefold():
                yield key, value[key]
