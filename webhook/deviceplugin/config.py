"""Decodes a configuration as NVIDIA's device plugin does, and finds the faults that keep the plugin from starting.

The plugin decodes YAML through JSON into Go structs (k8s-device-plugin v0.20.0 api/config/v1, sigs.k8s.io/yaml,
encoding/json). Go ignores the case of a struct's key. It reads every spelling of a key, in byte order, and each
spelling updates the value of the previous one. The keys within a section match only as written. Then flags get their
defaults and are validated (cmd/nvidia-device-plugin/main.go).

The node is assumed to be as the Helm chart and the GPU Operator set it up: it has a GPU, and MPS_ROOT is set. Other
environment variables that override the text are ignored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.api.fields import folded
from webhook.deviceplugin.decoders import (
    Decoded,
    Fault,
    Read,
    channels,
    duration,
    must,
    required,
    resources,
    strategies,
    text,
    truth,
    version,
)
from webhook.deviceplugin.sections import Section, decode_section
from webhook.model import Path
from webhook.text.words import shown


@dataclass(slots=True)
class Plugin:
    """A sharing configuration as the plugin decodes it, without defaults.

    `given` has the values outside the sections, by the path of their names as the plugin spells them: `("flags",
    "plugin", "deviceListStrategy")`. A null value is absent.
    """

    given: dict[Path, Decoded] = field(default_factory=dict)
    time_slicing: Section | None = None
    mps: Section | None = None

    @property
    def strategy(self) -> str:
        """The sharing strategy: `mps`, `time-slicing` or `none`. MPS takes precedence (api/config/v1/sharing.go)."""
        if self.mps and self.mps.replicated:
            return "mps"
        return "time-slicing" if self.time_slicing and self.time_slicing.replicated else "none"

    @property
    def section(self) -> Section | None:
        """The section `timeSlicing` or `mps` that is in force; None if nothing is shared."""
        return {"mps": self.mps, "time-slicing": self.time_slicing}.get(self.strategy)

    @property
    def mig_strategy(self) -> Decoded:
        """The value of the flag `migStrategy`; `none` by default."""
        return self.flag("migStrategy", "none")

    def flag(self, name: str, default: Any) -> Decoded:
        """Return the value and the place of a flag, such as `migStrategy` or `plugin.deviceListStrategy`."""
        path = ("flags", *name.split("."))
        return self.given.get(path, Decoded(default, path))


def decode(value: Any) -> tuple[Plugin, list[Fault]]:
    """Decode a configuration as the plugin does.

    Returns its values, and the faults for which the plugin would not start.
    """
    plugin = Plugin()
    plugin.given.update(_emptied(value))
    faults = list(_struct(value, (), (), SCHEMA, plugin))
    faults += _validated(plugin)
    return plugin, faults


def _struct(value: Any, path: Path, names: Path, schema: "Schema", plugin: Plugin) -> Iterator[Fault]:
    if value is None:
        if names in POINTERS:
            for flag in [flag for flag in plugin.given if flag[: len(names)] == names]:
                del plugin.given[flag]
        return
    if not isinstance(value, dict):
        yield Fault(path, must(path, value, "a map") if path else "the text is not a map")
        return
    spelled = {folded(name): name for name in schema}
    for key in sorted(value):
        name = spelled.get(folded(key))
        if name is None:
            continue
        inner, at, canonical = schema[name], (*path, key), (*names, name)
        if isinstance(inner, Mapping):
            yield from _struct(value[key], at, canonical, inner, plugin)
        elif inner is None and name == "mps":
            plugin.mps = yield from decode_section(value[key], at, plugin.mps, pointer=True)
        elif inner is None:
            plugin.time_slicing = yield from decode_section(value[key], at, plugin.time_slicing, pointer=False)
        else:
            decoded = yield from inner(value[key], at, plugin.given.get(canonical))
            if decoded is None:
                plugin.given.pop(canonical, None)
            else:
                plugin.given[canonical] = decoded


def _emptied(value: Any) -> Iterator[tuple[Path, Decoded]]:
    """Yield the flags that sigs.k8s.io/yaml sets to an empty value before decoding.

    It looks up the keys within `flags.plugin` and `flags.gfd` among the fields of `flags`, whose first field embeds
    all others, and allocates a value for each match (yaml.go convertToJSONableObject, fields.go indirect).
    """
    for flags_key, flags in members(value, "flags"):
        for name in ("plugin", "gfd"):
            for key, inner in members(flags, name):
                path = (flags_key, key)
                yield from _emptied_in(inner, path, ("flags",), FLAGS)
                for inner_key, deeper in members(inner, "plugin"):
                    yield from _emptied_in(deeper, (*path, inner_key), ("flags", "plugin"), PLUGIN_FLAGS)


def _emptied_in(value: Any, path: Path, names: Path, schema: "Schema") -> Iterator[tuple[Path, Decoded]]:
    for name, kind in schema.items():
        if kind is text:
            for key, _ in members(value, name):
                yield (*names, name), Decoded("", (*path, key))


def members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every spelling of a struct's key with its value, in the order in which Go decodes them."""
    if isinstance(value, dict):
        for key in sorted(value):
            if folded(key) == name.lower():
                yield key, value[key]


# The keys and the values of flags

Schema = Mapping[str, "Schema | Read | None"]
"""A struct's keys. Each maps to an inner struct, to the decoder of its value, or to None for a section."""

PLUGIN_FLAGS: Schema = {
    "passDeviceSpecs": truth,
    "deviceListStrategy": strategies,
    "deviceIDStrategy": text,
    "cdiAnnotationPrefix": text,
    "nvidiaCTKPath": text,
    "containerDriverRoot": text,
    "sharedDevicesAllocationPolicy": text,
}

FLAGS: Schema = {
    "migStrategy": text,
    "failOnInitError": truth,
    "mpsRoot": text,
    "nvidiaDriverRoot": text,
    "nvidiaDevRoot": text,
    "gdrcopyEnabled": truth,
    "gdsEnabled": truth,
    "mofedEnabled": truth,
    "useNodeFeatureAPI": truth,
    "deviceDiscoveryStrategy": text,
    "plugin": PLUGIN_FLAGS,
    "gfd": {
        "oneshot": truth,
        "noTimestamp": truth,
        "sleepInterval": duration,
        "outputFile": text,
        "machineTypeFile": text,
    },
}

SCHEMA: Schema = {
    "version": version,
    "flags": FLAGS,
    "resources": {"gpus": resources, "mig": resources},
    "sharing": {"timeSlicing": None, "mps": None},
    "imex": {"channelIDs": channels, "required": required},
}
"""The keys that the plugin knows, with their decoders (api/config/v1/config.go, flags.go, sharing.go, imex.go)."""

POINTERS = {("flags", "plugin"), ("flags", "gfd")}
"""The structs behind pointers: null empties them. In all others null changes nothing."""

CHOICES = {
    "migStrategy": ("none", "single", "mixed"),
    "deviceDiscoveryStrategy": ("auto", "nvml", "tegra"),
    "plugin.deviceIDStrategy": ("uuid", "index"),
    "plugin.sharedDevicesAllocationPolicy": ("distributed", "packed"),
    "plugin.deviceListStrategy": ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),
}
"""The allowed values of some flags (cmd/nvidia-device-plugin/main.go validateFlags)."""


def _validated(plugin: Plugin) -> Iterator[Fault]:
    version = plugin.given.get(("version",))
    if version and version.value not in ("", "v1"):
        yield Fault(version.path, f"version must be v1, not {shown(version.value)}")
    for name, choices in CHOICES.items():
        flag = plugin.flag(name, choices[0])
        for value in flag.value if isinstance(flag.value, tuple) else (flag.value,):
            if value in choices:
                continue
            if value == "" and len(flag.path) > len(name.split(".")) + 1:
                yield Fault(flag.path, f"this key is too deep, and makes the flag {name} empty; move it up")
            else:
                yield Fault(flag.path, must(flag.path, value, f"one of {', '.join(choices)}"))
    if plugin.strategy == "mps" and plugin.mig_strategy.value == "mixed":
        yield Fault(
            plugin.mig_strategy.path, "migStrategy mixed cannot be used with MPS; use single or none, or timeSlicing"
        )
    ids = plugin.given.get(("imex", "channelIDs"))
    if ids and ids.value.numbers not in ((), (0,)):
        yield Fault(ids.path, "channelIDs must be [] or [0]")
