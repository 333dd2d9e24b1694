"""Reads the report of a probe that has run in a container (probe.py). Nothing in the report is trusted."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.text.words import shown

VERSION = 1

LONGEST = 4096
"""The most bytes of a termination message (kubernetes pkg/kubelet/container/runtime.go, the constant of this name)."""

MOST = 64
"""The most items of a list: more than probe.py writes."""

LARGEST = 2**40
"""The largest number that is believed: more files, devices and MiB than any machine has."""


@dataclass(frozen=True, slots=True)
class SeenFiles:
    """The device files of GPUs that a probe saw. It could open the `usable` ones.

    Another user might open the `unclear` ones.
    """

    count: int
    usable: int
    unclear: int
    names: tuple[str, ...]


class SeenDevice(NamedTuple):
    """A card or MIG device as NVML names it. `mib` is its memory; 0 if NVML does not report it."""

    uuid: str
    name: str
    mib: int


@dataclass(frozen=True, slots=True)
class SeenCards:
    """The cards and MIG devices that NVML named; `mig` is the number of MIG devices.

    If there are none, `why` is the reason.
    """

    count: int
    mig: int
    devices: tuple[SeenDevice, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SeenCuda:
    """The devices that CUDA named, by UUIDs without a prefix.

    `context` is the result of making a context: `made`, an error, or empty if none was requested.
    """

    count: int
    uuids: tuple[str, ...]
    context: str
    why: str


class TakenMemory(NamedTuple):
    """The MiB that a process got, and those that it requested. If it got fewer, `stopped` is the reason.

    `version` is that of the framework that requested the memory, and empty for the driver. `free` is the free memory of
    the card at that moment in MiB, according to NVML; None if NVML did not report it.
    """

    asked: int
    got: int
    stopped: str
    version: str = ""
    free: int | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """Everything that a probe saw. A text in place of a result is the reason why there is none."""

    files: SeenFiles | str
    nvml: SeenCards | str
    cuda: SeenCuda | str
    memory: TakenMemory | None
    frameworks: Mapping[str, TakenMemory]
    cut: bool

    @property
    def sees(self) -> bool:
        """Whether the container can use a GPU: it can open a device file, or NVML or CUDA names a device."""
        found = not isinstance(self.files, str) and self.files.usable > 0
        return found or any(not isinstance(each, str) and each.count > 0 for each in (self.nvml, self.cuda))

    @property
    def blind(self) -> bool:
        """Whether every look was made, and each shows that the container sees no GPU."""
        looked = not isinstance(self.files, str) and self.files.unclear == 0
        return looked and not self.sees and not isinstance(self.nvml, str) and not isinstance(self.cuda, str)


class _Malformed(Exception):
    """The report is not one that probe.py writes."""


def sighting(text: str) -> Sighting | None:
    """Read a report. Returns None for a text that is malformed, of another version, or too long."""
    if len(text) > LONGEST or len(text.encode("utf-8", "surrogatepass")) > LONGEST:
        return None
    try:
        report = _object(json.loads(text, object_pairs_hook=_distinct, parse_constant=_refused, parse_float=_refused))
        if _number(report, "probe") != VERSION:
            return None
        memory = report["memory"]
        asked = 0 if memory is None else _number(_object(memory), "asked")
        frameworks = _object(report["frameworks"])
        return Sighting(
            _files(_object(report["files"])),
            _cards(_object(report["nvml"])),
            _cuda(_object(report["cuda"])),
            None if memory is None else _taken(_object(memory), asked),
            {_name(name): _taken(_object(frameworks[name]), asked) for name in _bounded([*frameworks])},
            _flag(report, "cut"),
        )
    except (_Malformed, KeyError, ValueError, RecursionError):
        return None


def _files(part: Mapping[str, Any]) -> SeenFiles | str:
    if "error" in part:
        return _text(part["error"])
    names = tuple(map(_text, _bounded(part["names"])))
    seen = SeenFiles(_number(part, "count"), _number(part, "usable"), _number(part, "unclear"), names)
    _check(seen.usable + seen.unclear <= seen.count and len(names) <= seen.count)
    return seen


def _cards(part: Mapping[str, Any]) -> SeenCards | str:
    if "error" in part:
        return _text(part["error"])
    found = [_object(each) for each in _bounded(part["devices"])]
    devices = tuple(SeenDevice(_text(each["uuid"]), _text(each["name"]), _number(each, "mib")) for each in found)
    seen = SeenCards(_number(part, "count"), _number(part, "mig"), devices, _text(part["why"]))
    _check(seen.mig <= seen.count and len(devices) <= seen.count)
    return seen


def _cuda(part: Mapping[str, Any]) -> SeenCuda | str:
    if "error" in part:
        return _text(part["error"])
    uuids, context = tuple(map(_text, _bounded(part["uuids"]))), part["context"]
    seen = SeenCuda(_number(part, "count"), uuids, "" if context is None else _text(context), _text(part["why"]))
    _check(len(uuids) <= seen.count)
    return seen


def _taken(part: Mapping[str, Any], asked: int) -> TakenMemory:
    version = _text(part["version"]) if "version" in part else ""
    free = _number(part, "free") if part.get("free") is not None else None
    taken = TakenMemory(asked, _number(part, "got"), _text(part["stopped"]), version, free)
    _check(taken.got <= asked)
    return taken


def _check(consistent: bool) -> None:
    if not consistent:
        raise _Malformed


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _Malformed
    return value


def _bounded(value: object) -> list[Any]:
    if not isinstance(value, list) or len(value) > MOST:
        raise _Malformed
    return value


def _number(part: Mapping[str, Any], name: str) -> int:
    value = part[name]
    if type(value) is not int or not 0 <= value <= LARGEST:  # a boolean is no number
        raise _Malformed
    return value


def _flag(part: Mapping[str, Any], name: str) -> bool:
    value = part[name]
    if not isinstance(value, bool):
        raise _Malformed
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Malformed
    return shown(value, quotes=False)


_NAMES = re.compile(r"[a-z]{1,32}")


def _name(value: str) -> str:
    _check(_NAMES.fullmatch(value) is not None)
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    _check(len(made) == len(pairs))
    return made


def _refused(_: str) -> None:
    raise _Malformed
