"""NVIDIA's device plugin as a reader: what it makes of a configuration, and why it would not start on it.

The plugin reads YAML through JSON into Go structs (k8s-device-plugin v0.20.0 api/config/v1, sigs.k8s.io/yaml,
encoding/json), and that way has its own manners. A struct's key matches in any case and is read in every spelling,
in the order of bytes, each upon what the one before left; the keys within a section match as written. Then flags get
their defaults and are checked (cmd/nvidia-device-plugin/main.go).

A node is taken to be as the Helm chart and the GPU Operator make it: it has a GPU, and MPS_ROOT is set. Other
variables that override the text are not looked at.
"""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from webhook.api.duration import MAX_LENGTH, nanoseconds
from webhook.model import Path
from webhook.text.words import shown


class Refused(NamedTuple):
    """A place on which the plugin would not start, and what is wrong there."""

    path: Path
    message: str


class Given(NamedTuple):
    """A value as the plugin holds it, and the path in the text where it was given."""

    value: Any
    path: Path


class Entry(NamedTuple):
    """An entry of `resources`. Each part is None where the text gives none, or none that can be read.

    `name` and `rename` are fully qualified. `rename` and `devices` are as written: of neither does the plugin make
    any use (DisableResourceNamingInConfig). `replicas` is a number, of any sign.
    """

    path: Path
    name: Given | None = None
    replicas: Given | None = None
    rename: Given | None = None
    devices: Given | None = None


@dataclass(slots=True)
class Section:
    """`sharing.timeSlicing` or `sharing.mps`: a map that says what is shared.

    `path` is that of the spelling that was read last.
    """

    path: Path
    rename_by_default: Given | None = None
    fail_requests: Given | None = None
    """`failRequestsGreaterThanOne`; without it MPS fails such requests and time-slicing does not."""
    entries: tuple[Entry, ...] = ()
    room: tuple[Entry, ...] = ()
    """What is behind the entries: a longer list of a later spelling is read upon it (encoding/json)."""

    @property
    def replicated(self) -> bool:
        """Whether any resource has more than one replica."""
        return any(entry.replicas and entry.replicas.value > 1 for entry in self.entries)


@dataclass(slots=True)
class Plugin:
    """The configuration as the plugin holds it, before defaults.

    `given` are the other values, by the path of their names as the plugin spells them:
    `("flags", "plugin", "deviceListStrategy")`. Null gives nothing.
    """

    given: dict[Path, Given] = field(default_factory=dict)
    time_slicing: Section | None = None
    mps: Section | None = None

    @property
    def strategy(self) -> str:
        """`mps`, `time-slicing` or `none`; MPS goes first (api/config/v1/sharing.go)."""
        if self.mps and self.mps.replicated:
            return "mps"
        return "time-slicing" if self.time_slicing and self.time_slicing.replicated else "none"

    @property
    def section(self) -> Section | None:
        """The section in force; None when nothing is shared."""
        return {"mps": self.mps, "time-slicing": self.time_slicing}.get(self.strategy)

    @property
    def mig_strategy(self) -> Given:
        """`flags.migStrategy`, by default `none`."""
        return self.flag("migStrategy", "none")

    def flag(self, name: str, default: Any) -> Given:
        """Return a flag's value and place: `migStrategy`, `plugin.deviceListStrategy`."""
        path = ("flags", *name.split("."))
        return self.given.get(path, Given(default, path))


Decoding = Generator[Refused, None, Given | None]
"""Yields what is refused, and returns what is then held."""

Read = Callable[[Any, Path, Given | None], Decoding]
"""Takes the value, its path as written, and what is held there so far."""


def decode(value: Any) -> tuple[Plugin, list[Refused]]:
    """Read a configuration as the plugin does: what it holds then, and everything on which it would not start."""
    plugin = Plugin()
    plugin.given.update(_emptied(value))
    refused = list(_struct(value, (), (), SCHEMA, plugin))
    refused += _validated(plugin)
    return plugin, refused


def folded(key: str) -> str:
    """Fold a key as Go does to find a struct's field; beyond ASCII two letters have such a fold (foldName)."""
    return key.replace("\u017f", "s").replace("\u212a", "k").translate(_LOWER)


_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


def _struct(value: Any, path: Path, names: Path, schema: "Schema", plugin: Plugin) -> Iterator[Refused]:
    if value is None:
        if names in POINTERS:
            for each in [each for each in plugin.given if each[: len(names)] == names]:
                del plugin.given[each]
        return
    if not isinstance(value, dict):
        yield Refused(path, f"is {shown(value)}, and must be a map" if path else "not a map")
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
            held = yield from inner(value[key], at, plugin.given.get(canonical))
            if held is None:
                plugin.given.pop(canonical, None)
            else:
                plugin.given[canonical] = held


def _emptied(value: Any) -> Iterator[tuple[Path, Given]]:
    """Find the flags that sigs.k8s.io/yaml makes empty before anything is read.

    For the keys within `flags.plugin` and `flags.gfd` it looks among the fields of `flags`, whose first field embeds
    all others, and gives each that it meets room for a value (yaml.go convertToJSONableObject, fields.go indirect).
    """
    for flags_key, flags in members(value, "flags"):
        for name in ("plugin", "gfd"):
            for key, inner in members(flags, name):
                path = (flags_key, key)
                yield from _emptied_in(inner, path, ("flags",), FLAGS)
                for again, deeper in members(inner, "plugin"):
                    yield from _emptied_in(deeper, (*path, again), ("flags", "plugin"), PLUGIN_FLAGS)


def _emptied_in(value: Any, path: Path, names: Path, schema: "Schema") -> Iterator[tuple[Path, Given]]:
    for name, kind in schema.items():
        if kind is text:
            for key, _ in members(value, name):
                yield (*names, name), Given("", (*path, key))


def members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Find a struct's key in every spelling, in the order in which they are read."""
    if isinstance(value, dict):
        for key in sorted(value):
            if folded(key) == name.lower():
                yield key, value[key]


# The types of values


def text(value: Any, path: Path, _: Given | None) -> Decoding:
    """Read a pointer to a string; numbers and booleans are none."""
    if value is not None and not isinstance(value, str):
        yield Refused(path, f"is {shown(value)}, and must be text")
        return None
    return None if value is None else Given(value, path)


def truth(value: Any, path: Path, _: Given | None) -> Decoding:
    """Read a pointer to a boolean."""
    if value is not None and not isinstance(value, bool):
        yield Refused(path, f"is {shown(value)}, and must be true or false")
        return None
    return None if value is None else Given(value, path)


def version(value: Any, path: Path, held: Given | None) -> Decoding:
    """Read the version; a number or a boolean becomes text first (sigs.k8s.io/yaml), and null changes nothing."""
    if isinstance(value, (dict, list)):
        yield Refused(path, f"is {shown(value)}, and must be text")
        return held
    return held if value is None else Given(value, path)


def required(value: Any, path: Path, held: Given | None) -> Decoding:
    """Read a boolean that is no pointer, so that null changes nothing."""
    found = yield from truth(value, path, None)
    return found or held


def strategies(value: Any, path: Path, _: Given | None) -> Decoding:
    """Read one text or a list of texts (api/config/v1/flags.go); null among them is an empty text."""
    if value is None:
        return None
    if isinstance(value, str):
        return Given((value,), path)
    if not isinstance(value, list) or not all(each is None or isinstance(each, str) for each in value):
        yield Refused(path, f"is {shown(value)}, and must be text or a list of texts")
        return None
    return Given(tuple(each or "" for each in value), path)


def channels(value: Any, path: Path, held: Given | None) -> Decoding:
    """Read a list of numbers; null in one place leaves what an earlier spelling put there."""
    if value is None:
        return None
    if not isinstance(value, list):
        yield Refused(path, f"is {shown(value)}, and must be a list of numbers")
        return held
    room = list(held.value.room) if held and value else []
    for index, each in enumerate(value):
        number = _integer(each)
        if index >= len(room):
            room.append(0)
        if number is not None:
            room[index] = number
        elif each is not None:
            yield Refused((*path, index), f"is {shown(each)}, and must be a whole number")
    return Given(Channels(tuple(room[: len(value)]), tuple(room)), path)


class Channels(NamedTuple):
    """A slice of numbers, and the room behind it that a later spelling may show again (encoding/json)."""

    numbers: tuple[int, ...]
    room: tuple[int, ...]


def duration(value: Any, path: Path, held: Given | None) -> Decoding:
    """Read a duration: nanoseconds as a number, or a text such as `60s` or `infinite` (api/config/v1/duration.go)."""
    if value is None:
        return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Given(value, path)
    if isinstance(value, str) and len(value) > MAX_LENGTH:
        yield Refused(path, f"is {shown(value)}, and longer than a duration is read")
        return held
    try:
        if value != "infinite":
            nanoseconds(value if isinstance(value, str) else "")
    except ValueError:
        yield Refused(path, f"is {shown(value)}, and must be a duration such as 60s")
        return held
    return Given(value, path)


def resources(value: Any, path: Path, _: Given | None) -> Decoding:
    """Read a list of patterns and names, of which the plugin then makes no use (api/config/v1/resources.go)."""
    if value is None:
        return None
    if not isinstance(value, list):
        yield Refused(path, f"is {shown(value)}, and must be a list")
        return None
    for index, each in enumerate(value):
        at = (*path, index)
        if each is not None and not isinstance(each, dict):
            yield Refused(at, f"is {shown(each)}, and must be a map")
            continue
        entry = each or {}
        if missing := [key for key in ("pattern", "name") if key not in entry]:
            yield Refused(at, f"has no `{'` and no `'.join(missing)}`")
        if not isinstance(entry.get("pattern", ""), str | None):
            yield Refused((*at, "pattern"), f"is {shown(entry['pattern'])}, and must be text")
        if "name" in entry:
            yield from _name(entry["name"], (*at, "name"))
    return Given(value, path)


# Sections


def _section(
    value: Any, path: Path, held: Section | None, *, pointer: bool
) -> Generator[Refused, None, Section | None]:
    if value is None and pointer:  # null makes a nil pointer of it
        return None
    if value is not None and not isinstance(value, dict):
        yield Refused(path, f"is {shown(value)}, and must be a map")
        return held
    given = value or {}
    section = Section(path, room=held.room if held else ())
    if "renameByDefault" in given:
        truth_given = yield from truth(given["renameByDefault"], (*path, "renameByDefault"), None)
        section.rename_by_default = truth_given or (held.rename_by_default if held else None)
    if "failRequestsGreaterThanOne" in given:
        at = (*path, "failRequestsGreaterThanOne")
        section.fail_requests = yield from truth(given[at[-1]], at, None)
    elif held:
        section.fail_requests = held.fail_requests
    listed = given.get("resources")
    if not isinstance(listed, list) or not listed:
        at = (*path, "resources") if listed else path
        yield Refused(at, "no resources: it needs a list `resources` of entries with `name` and `replicas`")
        return section
    room = list(section.room)
    for index, each in enumerate(listed):
        at = (*path, "resources", index)
        if index == len(room):
            room.append(Entry(at))
        room[index] = yield from _entry(each, at, room[index])
    section.entries, section.room = tuple(room[: len(listed)]), tuple(room)
    return section


def _entry(value: Any, path: Path, held: Entry) -> Generator[Refused, None, Entry]:
    if value is not None and not isinstance(value, dict):
        yield Refused(path, "is not a map")
        return held
    given = value or {}
    entry = held._replace(path=path)
    if "name" not in given:
        yield Refused(path, "no resource name")
    else:
        entry = entry._replace(name=(yield from _name(given["name"], (*path, "name"))))
    if "devices" in given:
        entry = entry._replace(devices=(yield from _devices(given["devices"], (*path, "devices"))))
    if "replicas" not in given:
        yield Refused((*path, "replicas"), "no number of replicas")
    else:
        entry = entry._replace(replicas=(yield from _replicas(given["replicas"], (*path, "replicas"), held.replicas)))
    if "rename" in given:
        entry = entry._replace(rename=(yield from _name(given["rename"], (*path, "rename"))))
    return entry


def _replicas(value: Any, path: Path, held: Given | None) -> Decoding:
    number = _integer(value)
    if value is None and held:
        return held
    if value is None:
        yield Refused(path, "no number of replicas")
    elif number is None:
        yield Refused(path, f"{shown(value)} is no whole number of 64 bits")
    elif number < 2:
        yield Refused(path, f"is {number}, and must be at least 2")
    return None if number is None else Given(number, path)


PREFIX = "nvidia.com/"

MAX_NAME = 63
"""Bytes of a resource's name with its prefix (api/config/v1/consts.go)."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def _name(value: Any, path: Path) -> Decoding:
    if value is not None and not isinstance(value, str):
        yield Refused(path, f"is {shown(value)}, and must be text")
        return None
    name = qualified(value or "")
    if len(name.encode()) > MAX_NAME:
        yield Refused(path, f"is {shown(name)}, and may have {MAX_NAME} characters at most")
        return None
    if not _SUBDOMAIN.fullmatch(name.removeprefix(PREFIX)):
        yield Refused(
            path,
            f"is {shown(value)}, and must be a name of lower-case letters, digits, - and . within {PREFIX}",
        )
        return None
    return Given(name, path)


def qualified(name: str) -> str:
    """Put the plugin's prefix before a name that lacks it."""
    return name if name.startswith(PREFIX) else PREFIX + name


def _devices(value: Any, path: Path) -> Decoding:
    """Read `all`, a count, or a list of indices and UUIDs; null is an empty text, and no device 0 (replicas.go)."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            if not _is_device(each):
                yield Refused((*path, index), f"is {shown(each)}, and must be a GPU's index or UUID")
        return Given(value, path)
    count = _integer(value)
    if value == "all" or (count is not None and count > 0):
        return Given(value, path)
    yield Refused(path, f"is {shown(value)}, and must be all, a count above 0, or a list of indices and UUIDs")
    return None


# Numbers and UUIDs


def _integer(value: Any) -> int | None:
    """Return an int of 64 bits; a float that is whole is one, as JSON writes both alike."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        return 0 if value == 0 else None  # the dialect makes an int of any other that is whole
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
    """Tell whether github.com/google/uuid takes it: any two characters may stand for the braces."""
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


# What the flags may say

Schema = Mapping[str, "Schema | Read | None"]
"""A struct's keys, each with a struct within, with how a value is read, or None for a section."""

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
"""The keys that the plugin knows, and how each is read (api/config/v1/config.go, flags.go, sharing.go, imex.go)."""

SECTION_KEYS = ("renameByDefault", "failRequestsGreaterThanOne", "resources")
ENTRY_KEYS = ("name", "rename", "devices", "replicas")
"""The keys within a section and within its entries: from there on their case counts (replicas.go)."""

POINTERS = {("flags", "plugin"), ("flags", "gfd")}
"""The structs of which null makes nothing at all; in any other it changes nothing."""

CHOICES = {
    "migStrategy": ("none", "single", "mixed"),
    "deviceDiscoveryStrategy": ("auto", "nvml", "tegra"),
    "plugin.deviceIDStrategy": ("uuid", "index"),
    "plugin.sharedDevicesAllocationPolicy": ("distributed", "packed"),
    "plugin.deviceListStrategy": ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),
}
"""What some flags may be (cmd/nvidia-device-plugin/main.go validateFlags)."""


def _validated(plugin: Plugin) -> Iterator[Refused]:
    said = plugin.given.get(("version",))
    if said and said.value not in ("", "v1"):
        yield Refused(said.path, f"is {shown(said.value)}, and only v1 is known")
    for name, choices in CHOICES.items():
        flag = plugin.flag(name, choices[0])
        for value in flag.value if isinstance(flag.value, tuple) else (flag.value,):
            if value in choices:
                continue
            if value == "" and len(flag.path) > len(name.split(".")) + 1:
                yield Refused(flag.path, f"stands too deep, where it makes the flag {name} empty")
            else:
                yield Refused(flag.path, f"is {shown(value)}, and must be one of {', '.join(choices)}")
    if plugin.strategy == "mps" and plugin.mig_strategy.value == "mixed":
        yield Refused(plugin.mig_strategy.path, "is mixed, which cannot be with MPS")
    ids = plugin.given.get(("imex", "channelIDs"))
    if ids and ids.value.numbers not in ((), (0,)):
        yield Refused(ids.path, "must be [] or [0]")
