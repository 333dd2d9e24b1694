"""The device plugin ignores a part of a sharing configuration, or reads it differently from how it looks.

The plugin does not read strictly. A key that it does not know, a misspelt key and a key in the wrong place are no
errors: the GPU is handed out whole, the limit has no effect, or all GPUs are shared instead of some
(k8s-device-plugin#1433, #1786). The plugin also ignores names that no node has, parts that it drops (`rename`,
`devices`), the second of two documents, and flags that the DaemonSet's environment overrides (k8s-device-plugin
v0.20.0 api/config/v1, cmd/nvidia-device-plugin/main.go).

Way out: write the key as the message says, or remove it.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from webhook.api.fields import folded
from webhook.api.selectors import is_label_value
from webhook.deviceplugin.config import SCHEMA, Plugin, Schema
from webhook.deviceplugin.configmaps import SECTIONS, Config, later, repeated, sections
from webhook.deviceplugin.decoders import MAX_NAME, Decoded
from webhook.deviceplugin.review import ConfigMapReview
from webhook.deviceplugin.sections import ENTRY_KEYS, SECTION_KEYS, Section
from webhook.deviceplugin.usage import GPU, MIG, MPS, SHARED, has_resource, renamed, some
from webhook.facts.installations import VARIABLES, PluginInstallation
from webhook.facts.kinds.node import CONFIG_LABEL, Node
from webhook.model import Finding, Path
from webhook.text.spelling import Guesses
from webhook.text.words import shown

SINCE = "0.1"

Said = tuple[Path, str]
"""A place in the configuration, and the message about it."""

_MAX_UNKNOWN = 20
"""Maximum unknown keys of a text that are named."""

_IGNORES = "the device plugin ignores it"


def check(review: ConfigMapReview) -> Iterator[Finding]:
    """Flag settings that the plugin accepts and then ignores, overrides, or reads differently."""
    guesses = review.allowance.guesses
    for config in review.configs:
        yield from _unselectable(config, review.readers)
        if config.error is None and (config.certain or not _placed(config)):
            yield from _lines(config)
            for inner, message in (
                *islice(_unknown(config.value, guesses), _MAX_UNKNOWN),
                *_dropped(config.plugin),
                *_misnamed(config.plugin, guesses),
            ):
                yield config.finding(inner, message)
            yield from _absent(config, review.users.get(config.key, ()))
            for inner, message in (*_numbers(config), *_overridden(config.plugin, review.readers)):
                yield config.finding(inner, message, advice=True)


def _placed(config: Config) -> bool:
    """Whether there is a section where it belongs."""
    return any(True for name in SECTIONS for _ in sections(config, name))


def _unselectable(config: Config, reading: Iterable[PluginInstallation]) -> Iterator[Finding]:
    if not is_label_value(config.key) and any(each.chosen and each.key != config.key for each in reading):
        yield config.finding(
            (), f"this key is not a valid label value, so no node can choose it by {CONFIG_LABEL}; rename it"
        )


def _lines(config: Config) -> Iterator[Finding]:
    if line := later(config):
        yield config.at_line(
            line, "the device plugin ignores the second document, which begins here; keep one document"
        )
    if twice := repeated(config):
        yield config.at_line(twice[0], f"{twice[1]}, and only the last counts; keep one")


# Keys


def _unknown(value: Any, guesses: Guesses) -> Iterator[Said]:
    """Find keys that the plugin does not know at their places, and keys in two spellings."""
    yield from _unknown_in(value, (), SCHEMA, guesses)


def _unknown_in(value: Any, path: Path, schema: Schema, guesses: Guesses) -> Iterator[Said]:
    if not isinstance(value, dict):
        return
    spelled = {folded(name): name for name in schema}
    seen: dict[str, str] = {}
    for key in sorted(value):
        name = spelled.get(folded(key))
        if name is None:
            yield (*path, key), f"{_IGNORES} here; {_hint(key, value[key], tuple(schema), path, guesses)}"
            continue
        if name in seen:
            yield (
                (*path, key),
                f"this key is another spelling of {shown(seen[name])}, and the device plugin merges both; keep one",
            )
        seen[name] = key
        inner = schema[name]
        if inner is None:
            yield from _unknown_in_section(value[key], (*path, key), guesses)
        elif isinstance(inner, Mapping):
            yield from _unknown_in(value[key], (*path, key), inner, guesses)


def _unknown_in_section(value: Any, path: Path, guesses: Guesses) -> Iterator[Said]:
    yield from _unknown_of(value, path, SECTION_KEYS, guesses)
    listed = value.get("resources") if isinstance(value, dict) else None
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        yield from _unknown_of(entry, (*path, "resources", index), ENTRY_KEYS, guesses)


def _unknown_of(value: Any, path: Path, known: tuple[str, ...], guesses: Guesses) -> Iterator[Said]:
    for key in sorted(value) if isinstance(value, dict) else ():
        if key not in known:
            yield (*path, key), f"{_IGNORES} here; {_hint(key, value[key], known, path, guesses)}"


def _hint(key: str, value: Any, known: tuple[str, ...], path: Path, guesses: Guesses) -> str:
    """Suggest what was meant: a key of this place, a key of another place, or the place itself."""
    if not path and key in ("apiVersion", "kind", "metadata", "data"):
        return "a whole manifest stands here, and only the text of one of its keys belongs here"
    if not path and isinstance(value, dict) and {"version", "sharing", "flags"} & set(map(folded, value)):
        return f"move what is under {shown(key)} one level up"
    elsewhere = {place.rpartition(".")[2]: place for place in _PLACES}
    for cutoff in (1.0, 0.8):
        if near := _near(key, known, cutoff, guesses):
            return f"did you mean {near}?"
        if near := _near(key, tuple(elsewhere), cutoff, guesses):
            return f"did you mean {elsewhere[near]}?"
    return f"known are {', '.join(known)}"


def _near(key: str, names: tuple[str, ...], cutoff: float, guesses: Guesses) -> str:
    return guesses.nearest(key.replace("-", "").replace("_", ""), names, cutoff)


_PLACES = (
    "version",
    "flags.migStrategy",
    "flags.plugin.deviceListStrategy",
    "flags.plugin.passDeviceSpecs",
    "flags.plugin.deviceIDStrategy",
    "sharing",
    "sharing.timeSlicing",
    "sharing.mps",
    "sharing.timeSlicing.renameByDefault",
    "sharing.timeSlicing.failRequestsGreaterThanOne",
    "sharing.timeSlicing.resources",
    "sharing.timeSlicing.resources[].replicas",
)
"""Where keys belong that are often found elsewhere."""


# Dropped keys


def _dropped(plugin: Plugin) -> Iterator[Said]:
    for section in filter(None, (plugin.time_slicing, plugin.mps)):
        yield from _dropped_of(section)
    if plugin.strategy == MPS and plugin.time_slicing and plugin.time_slicing.replicated:
        yield plugin.time_slicing.path, "the device plugin ignores timeSlicing if mps is set; keep one of them"
    for name in ("gpus", "mig"):
        if (given := plugin.given.get(("resources", name))) and given.value:
            yield given.path, f"{_IGNORES}: resources cannot be renamed here; remove it"
    strategies = plugin.given.get(("flags", "plugin", "deviceListStrategy"))
    if strategies and strategies.value == ():
        yield strategies.path, "an empty list gives containers no GPU at all; name a strategy, or remove the list"


def _dropped_of(section: Section) -> Iterator[Said]:
    for entry in section.entries:
        if entry.devices and entry.devices.value != "all":
            yield (
                entry.devices.path,
                "the device plugin ignores devices and shares every GPU; remove it, and keep GPUs whole by node",
            )
        if not entry.name:
            continue
        default = entry.name.value + SHARED
        if entry.rename and not renamed(section):
            yield entry.rename.path, f"{_IGNORES}; set renameByDefault: true to get {default}, or remove it"
        elif entry.rename and entry.rename.value != default:
            yield (
                entry.rename.path,
                f"the device plugin ignores this name and calls the resource {default}; write that, or remove it",
            )
        if renamed(section) and len(default) > MAX_NAME:
            yield (
                entry.name.path,
                f"the renamed resource has more than {MAX_NAME} characters, which Kubernetes refuses; shorten the name",
            )


# Names


def _misnamed(plugin: Plugin, guesses: Guesses) -> Iterator[Said]:
    for section in filter(None, (plugin.time_slicing, plugin.mps)):
        first: dict[str, int] = {}
        for entry in section.entries:
            if not entry.name or not entry.replicas:
                continue
            name, path = entry.name.value, entry.name.path
            if name in first:
                yield (
                    path,
                    f"{name} has another entry with {first[name]} replicas: the larger number takes effect, and the "
                    "node's labels show the first; keep one entry",
                )
            first.setdefault(name, entry.replicas.value)
            if name != GPU and not name.startswith(MIG):
                yield (
                    path,
                    f"no device is called {name}, so the device plugin ignores this entry; {_meant(name, guesses)}",
                )


def _meant(name: str, guesses: Guesses) -> str:
    bare = name.removesuffix(SHARED)
    if bare == GPU or bare.startswith(MIG):
        return f"write {bare}, which is called {name} once it is shared"
    return f"did you mean {GPU}?" if guesses.nearest(name, (GPU,), 0.7) else f"use {GPU}, or {MIG} and a profile"


def _absent(config: Config, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Find entries that match nothing on the nodes that use the key."""
    section = config.plugin.section
    known = [entry.name for entry in section.entries if entry.name] if section else []
    nodes = [node for node in nodes if node.resources or f"{GPU}.product" in node.labels]
    for name in known if nodes else ():
        possible = name.value == GPU or name.value.startswith(MIG)
        if possible and not any(has_resource(node, name.value) for node in nodes):
            message = f"no node that uses this key has {name.value}, so the entry shares nothing on {some(nodes)}"
            yield config.finding(name.path, f"{message}; remove it, or correct the name", advice=True)
    idle = [node for node in nodes if not any(has_resource(node, name.value) for name in known)]
    if config.plugin.strategy == MPS and idle and section:
        yield config.finding(
            section.path,
            f"no entry names a resource of {some(idle)}, so the device plugin would wait for MPS there and offer no "
            f"GPU; "
            "give them a key of their own",
        )


# Values


def _numbers(config: Config) -> Iterator[Said]:
    for section in filter(None, (config.plugin.time_slicing, config.plugin.mps)):
        for entry in section.entries:
            if entry.replicas:
                text = config.written(entry.replicas.path)
                if text[:1].isdigit() and text.replace("_", "").isalnum() and text != str(entry.replicas.value):
                    yield (
                        entry.replicas.path,
                        f"{shown(text)} is read as {entry.replicas.value}; write {entry.replicas.value}",
                    )


def _overridden(plugin: Plugin, reading: Iterable[PluginInstallation]) -> Iterator[Said]:
    for path, variables in VARIABLES.items():
        given = plugin.given.get(path)
        for each in reading:
            for variable in variables:
                if given and variable in each.env and not _same(given, each.env[variable]):
                    value = each.env[variable]
                    by = f"{variable}={shown(value, quotes=False)}" if value is not None else variable
                    yield (
                        given.path,
                        f"{_IGNORES}: {each.kind} {each.name} sets {by}, which takes precedence; set it there, or "
                        f"remove it",
                    )


def _same(given: Decoded, value: str | None) -> bool:
    said = given.value
    if isinstance(said, bool):
        return value in (
            ("true", "1", "t", "T", "TRUE", "True") if said else ("false", "0", "f", "F", "FALSE", "False")
        )
    return value == (",".join(said) if isinstance(said, tuple) else said)
