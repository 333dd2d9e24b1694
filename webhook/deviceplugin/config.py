"""Decodes a configuration as NVIDIA's device plugin does, with the faults on which the plugin would not start.

The plugin decodes YAML through JSON into Go structs (k8s-device-plugin v0.20.0 api/config/v1, sigs.k8s.io/yaml,
encoding/json). Go matches a struct's key in any case. It reads every spelling of a key, in byte order, and each one
updates the value that the previous one left. The keys within a section match only as written. Then flags get their
defaults and are validated (cmd/nvidia-device-plugin/main.go).

The node is assumed to be as the Helm chart and the GPU Operator set it up: it has a GPU, and MPS_ROOT is set. Other
environment variables that override the text are ignored.
"""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from webhook.api.duration import MAX_LENGTH, nanoseconds
from webhook.model import Path
from webhook.text.words import shown


class Fault(NamedTuple):
    """A place in a configuration on which the plugin would not start, and the reason."""

    path: Path
    message: str


class Given(NamedTuple):
    """A value as the plugin decodes it, and its path in the text."""

    value: Any
    path: Path


class ReplicatedResource(NamedTuple):
    """An entry of `resources` (api/config/v1/replicas.go). A field is None if it is absent or unreadable.

    `name` and `rename` have the plugin's prefix. The plugin ignores `rename` and `devices`
    (DisableResourceNamingInConfig). `replicas` is a number of any sign.
    """

    path: Path
    name: Given | None = None
    replicas: Given | None = None
    rename: Given | None = None
    devices: Given | None = None


@dataclass(slots=True)
class Section:
    """The map `sharing.timeSlicing` or `sharing.mps`. `path` is the path of the spelling that was read last."""

    path: Path
    rename_by_default: Given | None = None
    fail_requests: Given | None = None
    """`failRequestsGreaterThanOne`. By default MPS refuses such requests, and time-slicing does not."""
    entries: tuple[ReplicatedResource, ...] = ()
    capacity: tuple[ReplicatedResource, ...] = ()
    """The Go slice behind `entries` up to its capacity. A later spelling's list is decoded over it (encoding/json)."""

    @property
    def replicated(self) -> bool:
        """Whether any resource has more than one replica."""
        return any(entry.replicas and entry.replicas.value > 1 for entry in self.entries)


@dataclass(slots=True)
class Plugin:
    """The configuration as the plugin decodes it, without defaults.

    `given` are the values outside the sections, by the path of their names as the plugin spells them:
    `("flags", "plugin", "deviceListStrategy")`. A null value is absent.
    """

    given: dict[Path, Given] = field(default_factory=dict)
    time_slicing: Section | None = None
    mps: Section | None = None

    @property
    def strategy(self) -> str:
        """The strategy: `mps`, `time-slicing` or `none`. MPS takes precedence (api/config/v1/sharing.go)."""
        if self.mps and self.mps.replicated:
            return "mps"
        return "time-slicing" if self.time_slicing and self.time_slicing.replicated else "none"

    @property
    def section(self) -> Section | None:
        """The section in force; None if nothing is shared."""
        return {"mps": self.mps, "time-slicing": self.time_slicing}.get(self.strategy)

    @property
    def mig_strategy(self) -> Given:
        """The flag `migStrategy`, by default `none`."""
        return self.flag("migStrategy", "none")

    def flag(self, name: str, default: Any) -> Given:
        """Return a flag's value and place: `migStrategy`, `plugin.deviceListStrategy`."""
        path = ("flags", *name.split("."))
        return self.given.get(path, Given(default, path))


Decoding = Generator[Fault, None, Given | None]
"""Yields the faults, and returns the decoded value."""

Read = Callable[[Any, Path, Given | None], Decoding]
"""Takes the value, its path as written, and the value that an earlier spelling left."""


def decode(value: Any) -> tuple[Plugin, list[Fault]]:
    """Decode a configuration as the plugin does. Returns its values, and the faults on which it would not start."""
    plugin = Plugin()
    plugin.given.update(_emptied(value))
    faults = list(_struct(value, (), (), SCHEMA, plugin))
    faults += _validated(plugin)
    return plugin, faults


def folded(key: str) -> str:
    """Fold a key as Go does to find a struct's field (foldName). Two letters outside ASCII fold to ASCII."""
    return key.replace("\u017f", "s").replace("\u212a", "k").translate(_LOWER)


_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _struct(value: Any, path: Path, names: Path, schema: "Schema", plugin: Plugin) -> Iterator[Fault]:
    if value is None:
        if names in POINTERS:
            for flag in [flag for flag in plugin.given if flag[: len(names)] == names]:
                del plugin.given[flag]
        return
    if not isinstance(value, dict):
        yield Fault(path, _must(path, value, "a map") if path else "the text is not a map")
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
            plugin.mps = yield from _section(value[key], at, plugin.mps, pointer=True)
        elif inner is None:
            plugin.time_slicing = yield from _section(value[key], at, plugin.time_slicing, pointer=False)
        else:
            decoded = yield from inner(value[key], at, plugin.given.get(canonical))
            if decoded is None:
                plugin.given.pop(canonical, None)
            else:
                plugin.given[canonical] = decoded


def _emptied(value: Any) -> Iterator[tuple[Path, Given]]:
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


def _emptied_in(value: Any, path: Path, names: Path, schema: "Schema") -> Iterator[tuple[Path, Given]]:
    for name, kind in schema.items():
        if kind is text:
            for key, _ in members(value, name):
                yield (*names, name), Given("", (*path, key))


def members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield every spelling of a struct's key with its value, in decoding order."""
    if isinstance(value, dict):
        for key in sorted(value):
            if folded(key) == name.lower():
                yield key, value[key]


# The types of values


def _key(path: Path) -> str:
    """Name a value in a message: by its key, or as an item of a list."""
    return "each item" if isinstance(path[-1], int) else shown(path[-1], quotes=False)


def _must(path: Path, value: Any, what: str) -> str:
    """Say what a value must be, and what it is."""
    digits = isinstance(value, str) and value.isdecimal() and "number" in what
    return f"{_key(path)} must be {what}, not {shown(value)}{'; remove the quotes' if digits else ''}"


def text(value: Any, path: Path, _: Given | None) -> Decoding:
    """Decode a `*string`. A number or a boolean is a fault."""
    if value is not None and not isinstance(value, str):
        yield Fault(path, _must(path, value, "text"))
        return None
    return None if value is None else Given(value, path)


def truth(value: Any, path: Path, _: Given | None) -> Decoding:
    """Decode a `*bool`."""
    if value is not None and not isinstance(value, bool):
        yield Fault(path, _must(path, value, "true or false"))
        return None
    return None if value is None else Given(value, path)


def version(value: Any, path: Path, previous: Given | None) -> Decoding:
    """Decode the version. sigs.k8s.io/yaml turns a number or a boolean into text, and null changes nothing."""
    if isinstance(value, (dict, list)):
        yield Fault(path, _must(path, value, "text"))
        return previous
    return previous if value is None else Given(value, path)


def required(value: Any, path: Path, previous: Given | None) -> Decoding:
    """Decode a `bool`, which null does not change."""
    boolean = yield from truth(value, path, None)
    return boolean or previous


def strategies(value: Any, path: Path, _: Given | None) -> Decoding:
    """Decode a string or a list of strings (api/config/v1/flags.go). A null item is an empty string."""
    if value is None:
        return None
    if isinstance(value, str):
        return Given((value,), path)
    if not isinstance(value, list) or not all(item is None or isinstance(item, str) for item in value):
        yield Fault(path, _must(path, value, "text or a list of texts"))
        return None
    return Given(tuple(item or "" for item in value), path)


def channels(value: Any, path: Path, previous: Given | None) -> Decoding:
    """Decode a list of integers. A null item keeps the number of an earlier spelling."""
    if value is None:
        return None
    if not isinstance(value, list):
        yield Fault(path, _must(path, value, "a list of numbers"))
        return previous
    capacity = list(previous.value.capacity) if previous and value else []
    for index, item in enumerate(value):
        number = _integer(item)
        if index >= len(capacity):
            capacity.append(0)
        if number is not None:
            capacity[index] = number
        elif item is not None:
            yield Fault((*path, index), _must((*path, index), item, "a whole number"))
    return Given(Channels(tuple(capacity[: len(value)]), tuple(capacity)), path)


class Channels(NamedTuple):
    """A Go slice of numbers. A later spelling may expose the numbers up to its `capacity` again (encoding/json)."""

    numbers: tuple[int, ...]
    capacity: tuple[int, ...]


def duration(value: Any, path: Path, previous: Given | None) -> Decoding:
    """Decode a duration: a number of nanoseconds, or text such as `60s` or `infinite` (api/config/v1/duration.go)."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Given(value, path)
    if isinstance(value, str) and len(value) > MAX_LENGTH:
        yield Fault(path, f"{_key(path)} is longer than any duration; shorten it")
        return previous
    try:
        if value != "infinite":
            nanoseconds(value if isinstance(value, str) else "")
    except ValueError:
        yield Fault(path, _must(path, value, "a duration such as 60s"))
        return previous
    return Given(value, path)


def resources(value: Any, path: Path, _: Given | None) -> Decoding:
    """Decode a list of patterns and names, which the plugin then ignores (api/config/v1/resources.go)."""
    if value is None:
        return None
    if not isinstance(value, list):
        yield Fault(path, _must(path, value, "a list"))
        return None
    for index, item in enumerate(value):
        at = (*path, index)
        if item is not None and not isinstance(item, dict):
            yield Fault(at, _must(at, item, "a map"))
            continue
        entry = item or {}
        if missing := [key for key in ("pattern", "name") if key not in entry]:
            yield Fault(at, f"the entry has no {' and no '.join(missing)}; add what is missing")
        if not isinstance(entry.get("pattern", ""), str | None):
            yield Fault((*at, "pattern"), _must((*at, "pattern"), entry["pattern"], "text"))
        if "name" in entry:
            yield from _name(entry["name"], (*at, "name"))
    return Given(value, path)


# Sections


def _section(
    value: Any, path: Path, previous: Section | None, *, pointer: bool
) -> Generator[Fault, None, Section | None]:
    if value is None and pointer:  # null sets the pointer to nil
        return None
    if value is not None and not isinstance(value, dict):
        yield Fault(path, _must(path, value, "a map"))
        return previous
    fields = value or {}
    section = Section(path, capacity=previous.capacity if previous else ())
    if "renameByDefault" in fields:
        rename_by_default = yield from truth(fields["renameByDefault"], (*path, "renameByDefault"), None)
        section.rename_by_default = rename_by_default or (previous.rename_by_default if previous else None)
    if "failRequestsGreaterThanOne" in fields:
        at = (*path, "failRequestsGreaterThanOne")
        section.fail_requests = yield from truth(fields[at[-1]], at, None)
    elif previous:
        section.fail_requests = previous.fail_requests
    listed = fields.get("resources")
    if not isinstance(listed, list) or not listed:
        at = (*path, "resources") if listed else path
        yield Fault(at, "the section needs a list `resources` of entries with `name` and `replicas`")
        return section
    capacity = list(section.capacity)
    for index, item in enumerate(listed):
        at = (*path, "resources", index)
        if index == len(capacity):
            capacity.append(ReplicatedResource(at))
        capacity[index] = yield from _entry(item, at, capacity[index])
    section.entries, section.capacity = tuple(capacity[: len(listed)]), tuple(capacity)
    return section


def _entry(value: Any, path: Path, previous: ReplicatedResource) -> Generator[Fault, None, ReplicatedResource]:
    if value is not None and not isinstance(value, dict):
        yield Fault(path, _must(path, value, "a map"))
        return previous
    fields = value or {}
    entry = previous._replace(path=path)
    if "name" not in fields:
        yield Fault(path, "the entry has no name; add one such as nvidia.com/gpu")
    else:
        entry = entry._replace(name=(yield from _name(fields["name"], (*path, "name"))))
    if "devices" in fields:
        entry = entry._replace(devices=(yield from _devices(fields["devices"], (*path, "devices"))))
    if "replicas" not in fields:
        yield Fault((*path, "replicas"), "the entry has no number of replicas; add at least 2")
    else:
        entry = entry._replace(
            replicas=(yield from _replicas(fields["replicas"], (*path, "replicas"), previous.replicas))
        )
    if "rename" in fields:
        entry = entry._replace(rename=(yield from _name(fields["rename"], (*path, "rename"))))
    return entry


def _replicas(value: Any, path: Path, previous: Given | None) -> Decoding:
    number = _integer(value)
    if value is None and previous:
        return previous
    if value is None:
        yield Fault(path, "the entry has no number of replicas; add at least 2")
    elif number is None:
        yield Fault(
            path,
            _must(path, value, "a whole number" if not isinstance(value, int | float) else "a whole number of 64 bits"),
        )
    elif number < 2:
        yield Fault(path, f"{_key(path)} must be at least 2, not {number}")
    return None if number is None else Given(number, path)


PREFIX = "nvidia.com/"

MAX_NAME = 63
"""Bytes of a resource name, including the prefix (api/config/v1/consts.go)."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _name(value: Any, path: Path) -> Decoding:
    if value is not None and not isinstance(value, str):
        yield Fault(path, _must(path, value, "text"))
        return None
    name = qualified(value or "")
    if len(name.encode()) > MAX_NAME:
        yield Fault(
            path, f"{_key(path)} may have {MAX_NAME} characters at most, and {shown(name)} has more; shorten it"
        )
        return None
    if not _SUBDOMAIN.fullmatch(name.removeprefix(PREFIX)):
        yield Fault(
            path,
            _must(path, value, f"a name of lower-case letters, digits, - and . within {PREFIX}"),
        )
        return None
    return Given(name, path)


def qualified(name: str) -> str:
    """Return a name with the plugin's prefix."""
    return name if name.startswith(PREFIX) else PREFIX + name


def _devices(value: Any, path: Path) -> Decoding:
    """Decode `all`, a count, or a list of indices and UUIDs. A null item is an empty string, not 0 (replicas.go)."""
    if isinstance(value, list):
        for index, device in enumerate(value):
            if not _is_device(device):
                yield Fault((*path, index), _must((*path, index), device, "a GPU's index or UUID"))
        return Given(value, path)
    count = _integer(value)
    if value == "all" or (count is not None and count > 0):
        return Given(value, path)
    yield Fault(path, _must(path, value, "all, a count above 0, or a list of indices and UUIDs"))
    return None


# Numbers and UUIDs


def _integer(value: Any) -> int | None:
    """Return a 64-bit int, or None. A whole float counts, since JSON writes both alike."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        return 0 if value == 0 else None  # goyaml reads every other whole float as an int
    return value if -(2**63) <= value < 2**63 else None


_UINT = re.compile(r"[0-9]+", re.ASCII)


def _is_uint(value: str) -> bool:
    digits = value.lstrip("0")
    return bool(_UINT.fullmatch(value)) and len(digits) <= 20 and int(digits or "0") < 2**64


def _is_device(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, str):
        first, colon, second = value.partition(":")
        if _is_uint(first) and (not colon or _is_uint(second)):
            return True
        return _is_gpu(value) or _is_mig(value)
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64


def _is_gpu(value: str) -> bool:
    return value.startswith("GPU-") and _is_uuid(value[4:])


def _is_mig(value: str) -> bool:
    if not value.startswith("MIG-"):
        return False
    gpu, *instances = value[4:].split("/", 2)
    return _is_uuid(value[4:]) or (_is_gpu(gpu) and len(instances) == 2 and all(map(_is_uint, instances)))


_DASHED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_PLAIN = re.compile(r"[0-9a-f]{32}", re.ASCII | re.IGNORECASE)


def _is_uuid(value: str) -> bool:
    """Tell whether github.com/google/uuid parses the value. It accepts any two characters in place of braces."""
    raw = value.encode()
    match len(raw):
        case 36:
            dashed = raw
        case 38:
            dashed = raw[1:-1]
        case 45 if raw[:9].lower() == b"urn:uuid:":
            dashed = raw[9:]
        case 32:
            return bool(_PLAIN.fullmatch(value))
        case _:
            return False
    return bool(_DASHED.fullmatch(dashed.decode("latin-1")))


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

SECTION_KEYS = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
ENTRY_KEYS = ("name", "rename", "devices", "replicas")
"""The keys of a section and of its entries. Their case matters (replicas.go)."""

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
                yield Fault(flag.path, _must(flag.path, value, f"one of {', '.join(choices)}"))
    if plugin.strategy == "mps" and plugin.mig_strategy.value == "mixed":
        yield Fault(
            plugin.mig_strategy.path, "migStrategy mixed cannot be used with MPS; use single or none, or timeSlicing"
        )
    ids = plugin.given.get(("imex", "channelIDs"))
    if ids and ids.value.numbers not in ((), (0,)):
        yield Fault(ids.path, "channelIDs must be [] or [0]")
