"""Finds and reads the configurations of NVIDIA's device plugin in ConfigMaps."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from webhook.allowance import CONFIGURATION, Allowance
from webhook.api.lenient import from_base64
from webhook.api.objects import ConfigMap
from webhook.deviceplugin.config import Plugin, decode, members
from webhook.deviceplugin.decoders import Fault
from webhook.documents.goyaml import is_clean, parse
from webhook.documents.marks import Mark, Unreadable, UnsupportedText
from webhook.facts.installations import PluginInstallation
from webhook.model import Finding, Path, dotted, immutable
from webhook.policy.model import Policy
from webhook.text.words import sha256


@immutable
class Config:
    """One key of a ConfigMap, read as the plugin reads it. If it cannot be read, `error` is the reason.

    `certain` is true if the key is known to be a configuration: the policy or an installation names the ConfigMap, or a
    sharing section of the text has `resources` or `replicas`. Lines count within the text, from 1; they are 0 for
    `binaryData`.
    """

    path: Path
    text: str
    value: Any
    mark: Mark
    certain: bool
    error: Unreadable | None = None
    plugin: Plugin = field(default_factory=Plugin)
    """The text as the plugin decodes it."""
    refused: tuple[Fault, ...] = ()
    """The faults that would keep the plugin from starting, other than `error`."""

    @property
    def key(self) -> str:
        """The name of the key in the ConfigMap."""
        return str(self.path[-1])

    def finding(self, inner: Path, message: str, *, advice: bool = False) -> Finding:
        """Make a finding about a place in the configuration.

        `parts` has a digest of the whole text, so that any edit makes the finding new. So an old configuration with a
        fault may stay, but an edited one must be correct.
        """
        where = f"{dotted(inner)}: " if inner else ""
        if not self.certain:
            message += f"{'' if message.endswith('?') else ';'} ignore this if the text is not for the device plugin"
        return Finding(
            self.path,
            where + message,
            advice=advice or not self.certain,
            text_line=self._line(inner),
            parts=(where + message + self._digest,),
        )

    def at_line(self, line: int, message: str) -> Finding:
        """Make a finding about a line of the text."""
        return self.finding((), message)._replace(text_line=line if self.path[0] == "data" else 0)

    def written(self, inner: Path) -> str:
        """Return a plain scalar as it is written after its key; empty if it is on another line than the key."""
        rows = self._rows[self.mark.at(inner).line - 1 :][:1]
        _, key, rest = "".join(rows).partition(str(inner[-1]))
        return rest.lstrip("\"': ").partition("#")[0].strip(" ,]}\t") if key else ""

    @cached_property
    def _rows(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def _digest(self) -> str:
        return sha256(self.text)

    def _line(self, inner: Path) -> int:
        if self.path[0] == "binaryData":
            return 0
        return self.error.line if self.error else self.mark.at(inner).line


MAX_VALUES = 3_000
"""Maximum values in the configurations of one ConfigMap: far more than anyone needs, and still cheap to read."""

MAX_REFUSED = 20
"""Maximum faults of a configuration that are named. One more finding counts the others."""

MAX_UNNAMED = 64 * 1024
"""Maximum characters of a ConfigMap that is read although nothing names it and no plugin runs in its namespace."""


def configs(
    config_map: ConfigMap, policy: Policy, readers: tuple[PluginInstallation, ...], allowance: Allowance
) -> tuple[Config, ...]:
    """Read every key that is a device-plugin configuration.

    If the policy, a ClusterPolicy or a DaemonSet names a ConfigMap, all of its keys are read. If a DaemonSet reads a
    single file, only that key is read. In other ConfigMaps, keys that look like a configuration are read, so that a
    misspelt name does not avoid the check. In the namespaces of the plugin this includes texts that escape or encode
    their keys. A node may select any regular file of the mounted volume, so `binaryData` is read too (k8s-device-plugin
    cmd/config-manager/main.go).
    """
    named = _named(config_map, policy, readers)
    near = config_map.namespace in (*policy.sharing_namespaces, "kube-system")
    size = sum(map(len, (*config_map.data.values(), *config_map.binary_data.values())))
    if not (near or any(map(named, (*config_map.data, *config_map.binary_data)))) and size > MAX_UNNAMED:
        return ()
    results, left = [], MAX_VALUES
    for path, text, error in _texts(config_map):
        if error is not None:
            config, spent = Config(path, text, None, Mark(1), True, error) if named(path[-1]) else None, 0
        else:
            config, spent = _read(path, text, named(path[-1]), near, left, allowance)
        if config is not None:
            results.append(config)
            if not left and config.certain and isinstance(config.error, UnsupportedText):
                break  # this configuration reports the exhausted limit; the keys after it could not be read
        left = max(left - spent, 0)
    if near and any(config.certain for config in results):
        results += _siblings(config_map, {config.path for config in results}, left, allowance)
    return tuple(results)


def _siblings(config_map: ConfigMap, read: Collection[Path], left: int, allowance: Allowance) -> Iterator[Config]:
    """Read the other keys of a ConfigMap.

    A node may choose any of them, and a key with other text stops its device plugin.
    """
    for path, text, error in _texts(config_map):
        if path not in read and error is None:
            config, spent = _read(path, text, True, True, left, allowance)
            left = max(left - spent, 0)
            if config is not None:
                yield config


def _texts(config_map: ConfigMap) -> Iterator[tuple[tuple[str, str], str, Unreadable | None]]:
    """Yield each key's path with its text; or with the encoded text and the reason why it cannot be decoded."""
    for key, text in config_map.data.items():
        yield ("data", key), text, None
    for key, encoded in config_map.binary_data.items():
        try:
            yield ("binaryData", key), _decoded(from_base64(encoded)), None
        except UnsupportedText as error:
            yield ("binaryData", key), encoded, error
        except ValueError:  # from binascii, or for text that is not ASCII
            yield ("binaryData", key), encoded, Unreadable(1, "not base64")


_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def _decoded(raw: bytes) -> str:
    """Decode bytes as go-yaml does (readerc.go): as UTF-16 after its byte order mark, else as UTF-8.

    Bytes that are not UTF-8 become surrogates, which valid text never holds. Raises Unread for faulty UTF-16.
    """
    encoding = _MARKS.get(raw[:2])
    if encoding is None:
        return raw.decode("utf-8", "surrogateescape")
    try:
        text = raw[2:].decode(encoding)
    except UnicodeDecodeError as error:
        raise UnsupportedText(1, "not whole UTF-16") from error
    if "\ufeff" in text or not is_clean(text):
        raise UnsupportedText(1, "UTF-16 with control characters or a further mark")
    return text


def _named(config_map: ConfigMap, policy: Policy, readers: tuple[PluginInstallation, ...]) -> Callable[[str], bool]:
    """Return a function that tests whether the plugin reads a key. Such a key is certain to be a configuration."""
    if (config_map.namespace, config_map.name) in policy.config_maps:
        return lambda _: True
    return lambda key: any(reader.chosen or reader.key == key for reader in readers)


def changed(config_map: ConfigMap) -> Iterator[tuple[Path, str]]:
    """Yield the path and the new text of every key that an update changes; empty for data that is not text."""
    old = config_map.old
    if old is None or config_map.deleted:
        return
    for key, text in config_map.data.items():
        if key in old.data and old.data[key] != text:
            yield ("data", key), text
    for key, encoded in config_map.binary_data.items():
        if key in old.binary_data and old.binary_data[key] != encoded:
            try:
                yield ("binaryData", key), _decoded(from_base64(encoded))
            except ValueError:
                yield ("binaryData", key), ""


def held(text: str) -> Plugin:
    """Decode a text as the plugin does. Returns an empty configuration if the text cannot be read."""
    config, _ = _read((), text, True, False, MAX_VALUES, Allowance())
    return config.plugin if config else Plugin()


def _read(
    path: Path, text: str, named: bool, near: bool, max_values: int, allowance: Allowance
) -> tuple[Config | None, int]:
    """Read a text that is a configuration or looks like one. Returns it, and the number of values read.

    `near` is whether the plugin runs in its namespace. If so, a text that may hide its keys is read too.
    """
    words = _unescaped(text).casefold().translate(_DASHES)
    shares = "sharing" in words and ("timeslicing" in words or "mps" in words)
    if not (named or shares or "timeslic" in words or (near and _HIDING.search(text))):
        return None, 0
    if not named and _other_json(text):
        return None, 0
    allowance.spend("configurations", 1, CONFIGURATION)
    try:
        if not max_values:
            raise UnsupportedText(1, "the keys before it hold more values than are read")
        if "\ufeff" in text[1:]:
            raise UnsupportedText(1, "a byte order mark stands within the text")
        value, mark = parse(text, last_key_wins=True, max_values=max_values)
    except Unreadable as error:
        # The parser does not report the number of values before an error; this is the most that there can be.
        spent = text.count("\n") + text.count(",") + 1
        certain = named or (near and isinstance(error, UnsupportedText))
        return Config(path, text, None, Mark(1), certain, error) if named or shares else None, spent
    plugin, faults = decode(value)
    if len(faults) > MAX_REFUSED:
        faults[MAX_REFUSED:] = [Fault((), f"{len(faults) - MAX_REFUSED} more places are wrong")]
    config = Config(path, text, value, mark, named, plugin=plugin, refused=tuple(faults))
    values = [section for name in SECTIONS for _, section in sections(config, name)]
    if any(isinstance(section, dict) and {"resources", "replicas"} & section.keys() for section in values):
        return replace(config, certain=True), mark.size
    return config if named or values or _misplaced(value, 3) else None, mark.size


def _other_json(text: str) -> bool:
    """Whether a text is JSON without a configuration, such as a dashboard. This is fast even for a long text."""
    if not text.lstrip().startswith("{") or "<<" in text:  # `<<` merges maps in YAML
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    shared = (members(sharing, name) for _, sharing in members(value, "sharing") for name in SECTIONS)
    return not any(any(each) for each in shared) and not _misplaced(value, 3)


_HIDING = re.compile(r"[\\!]")
"""YAML can hide the letters of a key only by escapes and by tags."""

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U(000[0-9A-Fa-f]{5}|0010[0-9A-Fa-f]{4})|\r?\n[ \t]*)")


def _unescaped(text: str) -> str:
    """Return the text with those escapes of double-quoted strings decoded that may be letters."""
    return _ESCAPE.sub(lambda escape: chr(int(escape[escape.lastindex], 16)) if escape.lastindex else "", text)


MAX_READ_TWICE = 4 * 1024
"""Characters of the longest configuration that is checked for repeated keys, which takes a second parse."""


def repeated(config: Config) -> tuple[int, str] | None:
    """Return the line and the message of the first repeated key in a map, or None."""
    if len(config.text) > MAX_READ_TWICE:
        return None
    try:
        parse(config.text, max_values=MAX_VALUES)
    except Unreadable as error:
        return error.line, str(error)
    return None


def later(config: Config) -> int:
    """Return the first line of a second, non-empty document in a text; 0 if there is none."""
    if not _MARKER.search(config.text):
        return 0
    try:
        parse(config.text, last_key_wins=True, alone=True, max_values=MAX_VALUES)
    except Unreadable as error:
        *_, rest = config.text.split("\n", error.line - 1)
        return error.line if _CONTENT.search(rest) else 0
    return 0


_MARKER = re.compile(r"[\r\n](?:---|\.\.\.)")
_CONTENT = re.compile(r"^(?!---[ \t\r]*$|\.\.\.[ \t\r]*$|[ \t\r]*(?:#|$))", re.MULTILINE)
"""The start of a line that is neither a document marker, nor a comment, nor blank."""

_DASHES = {ord("-"): None, ord("_"): None}


def _misplaced(value: Any, depth: int) -> bool:
    """Whether a section is in a wrong place or misnamed, at most `depth` maps deep."""
    if not isinstance(value, dict):
        return False
    for key, inner in value.items():
        if isinstance(inner, dict):
            sliced = key.casefold().translate(_DASHES).startswith("timeslic")
            if (sliced and {"resources", "replicas"} & inner.keys()) or (depth and _misplaced(inner, depth - 1)):
                return True
    return False


SECTIONS = ("timeSlicing", "mps")


def sections(config: Config, name: str) -> Iterator[tuple[Path, Any]]:
    """Yield the path, as written, and the value of every `sharing.<name>`."""
    for sharing, value in members(config.value, "sharing"):
        for key, section in members(value, name):
            yield (sharing, key), section
