"""Configurations of NVIDIA's device plugin, as they stand in ConfigMaps."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from webhook.allowance import CONFIGURATION, Allowance
from webhook.api.objects import ConfigMap
from webhook.deviceplugin.config import Plugin, Refused, decode, members
from webhook.documents.goyaml import Mark, Unread, Unreadable, is_clean, parse
from webhook.facts.installations import Installation
from webhook.model import Finding, Path, dotted
from webhook.policy.model import Policy


@dataclass(frozen=True, eq=False)
class Config:
    """One key of a ConfigMap, read as the plugin reads it; `error` says why it cannot be read.

    `certain` tells whether it is a configuration beyond doubt: the ConfigMap is named, or the text says what to
    share. Lines count within the text, from 1; they are 0 for `binaryData`.
    """

    path: Path
    text: str
    value: Any
    mark: Mark
    certain: bool
    error: Unreadable | None = None
    plugin: Plugin = field(default_factory=Plugin)
    """What the plugin holds when it has read the text."""
    refused: tuple[Refused, ...] = ()
    """Why it would not start, beside what makes the text unreadable."""

    @property
    def key(self) -> str:
        """The key of the ConfigMap that holds it."""
        return str(self.path[-1])

    def finding(self, inner: Path, message: str, *, advice: bool = False) -> Finding:
        """Make a finding about a place in the configuration.

        Its part is the whole text: an edited configuration has to be right, an old one may stand.
        """
        where = f"{dotted(inner)}: " if inner else ""
        if not self.certain:
            message += f"{'' if message.endswith('?') else ','} if this is meant for it"
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
        """Return a plain scalar as its line has it after its key; empty where it stands otherwise."""
        rows = self._rows[self.mark.at(inner).line - 1 :][:1]
        _, key, rest = "".join(rows).partition(str(inner[-1]))
        return rest.lstrip("\"': ").partition("#")[0].strip(" ,]}\t") if key else ""

    @cached_property
    def _rows(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def _digest(self) -> str:
        return sha256(self.text.encode("utf-8", "surrogateescape")).hexdigest()

    def _line(self, inner: Path) -> int:
        if self.path[0] == "binaryData":
            return 0
        return self.error.line if self.error else self.mark.at(inner).line


MAX_VALUES = 3_000
"""How many values the configurations of a ConfigMap may hold: many times what any needs, and little to read."""

MAX_REFUSED = 20
"""How many places of a configuration are named; one more tells of the rest."""

MAX_UNNAMED = 64 * 1024
"""Characters of a ConfigMap that nothing names, above which it is not looked into where no plugin runs."""


def configs(
    config_map: ConfigMap, policy: Policy, readers: tuple[Installation, ...], allowance: Allowance
) -> tuple[Config, ...]:
    """Read every key that is a device-plugin configuration.

    All keys are where the policy, a ClusterPolicy or a DaemonSet names the ConfigMap, but for a DaemonSet that
    reads one file of it; elsewhere those that look like one, for a misspelt name must not be a way out. In the
    namespaces where the plugin runs those count too that have their keys escaped or encoded. Each regular file of the
    mounted volume can be selected, so `binaryData` counts too (k8s-device-plugin cmd/config-manager/main.go).
    """
    named = _named(config_map, policy, readers)
    near = config_map.namespace in policy.sharing_namespaces
    size = sum(map(len, (*config_map.data.values(), *config_map.binary_data.values())))
    if not (near or any(map(named, (*config_map.data, *config_map.binary_data)))) and size > MAX_UNNAMED:
        return ()
    found, left = [], MAX_VALUES
    for path, text, error in _texts(config_map):
        if error is not None:
            config, spent = Config(path, text, None, Mark(1), True, error) if named(path[-1]) else None, 0
        else:
            config, spent = _read(path, text, named(path[-1]), near, left, allowance)
        if config is not None:
            found.append(config)
            if not left and config.certain and isinstance(config.error, Unread):
                break  # which says so; of what comes after no more could be said
        left = max(left - spent, 0)
    return tuple(found)


def _texts(config_map: ConfigMap) -> Iterator[tuple[tuple[str, str], str, Unreadable | None]]:
    """Yield each key with its text, or with what cannot be made text and why."""
    for key, text in config_map.data.items():
        yield ("data", key), text, None
    for key, encoded in config_map.binary_data.items():
        try:
            yield ("binaryData", key), _decoded(base64.b64decode(encoded, validate=True)), None
        except Unread as error:
            yield ("binaryData", key), encoded, error
        except ValueError:  # binascii's, or that of a text which is not ASCII
            yield ("binaryData", key), encoded, Unreadable(1, "not base64")


_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def _decoded(raw: bytes) -> str:
    """Decode bytes as go-yaml does (readerc.go): UTF-16 where a mark says so, else UTF-8.

    What is no UTF-8 is left as surrogates, which no text has otherwise. Raises Unread for UTF-16 with anything wrong.
    """
    encoding = _MARKS.get(raw[:2])
    if encoding is None:
        return raw.decode("utf-8", "surrogateescape")
    try:
        text = raw[2:].decode(encoding)
    except UnicodeDecodeError as error:
        raise Unread(1, "not whole UTF-16") from error
    if "\ufeff" in text or not is_clean(text):
        raise Unread(1, "UTF-16 with control characters or a further mark")
    return text


def _named(config_map: ConfigMap, policy: Policy, readers: tuple[Installation, ...]) -> Callable[[str], bool]:
    """Return what tells whether a key is a configuration beyond doubt, since somebody reads it as one."""
    if (config_map.namespace, config_map.name) in policy.config_maps:
        return lambda _: True
    return lambda key: any(reader.chosen or reader.key == key for reader in readers)


def changed(config_map: ConfigMap) -> Iterator[tuple[Path, str]]:
    """Yield the keys of an update that had another text before, with the new one; empty for what is no text."""
    old = config_map.old
    if old is None or config_map.deleted:
        return
    for key, text in config_map.data.items():
        if key in old.data and old.data[key] != text:
            yield ("data", key), text
    for key, encoded in config_map.binary_data.items():
        if key in old.binary_data and old.binary_data[key] != encoded:
            try:
                yield ("binaryData", key), _decoded(base64.b64decode(encoded, validate=True))
            except ValueError:
                yield ("binaryData", key), ""


def held(text: str) -> Plugin:
    """What the plugin holds when it has read a text; nothing where it could not read it."""
    config, _ = _read((), text, True, False, MAX_VALUES, Allowance())
    return config.plugin if config else Plugin()


def _read(
    path: Path, text: str, named: bool, near: bool, max_values: int, allowance: Allowance
) -> tuple[Config | None, int]:
    """Read a text that is a configuration or looks like one, and say how many values that took.

    `near` tells whether it lies where the plugin runs: then what may hide its keys is read whatever it looks like.
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
            raise Unread(1, "the keys before it hold more values than are read")
        if "\ufeff" in text[1:]:
            raise Unread(1, "a byte order mark stands within the text")
        value, mark = parse(text, last_key_wins=True, max_values=max_values)
    except Unreadable as error:
        # How much was read of a text that is broken nobody knows, but so much it can have been.
        spent = text.count("\n") + text.count(",") + 1
        certain = named or (near and isinstance(error, Unread))
        return Config(path, text, None, Mark(1), certain, error) if named or shares else None, spent
    plugin, refused = decode(value)
    if len(refused) > MAX_REFUSED:
        refused[MAX_REFUSED:] = [Refused((), f"{len(refused) - MAX_REFUSED} more places are wrong")]
    config = Config(path, text, value, mark, named, plugin=plugin, refused=tuple(refused))
    found = [section for name in SECTIONS for _, section in sections(config, name)]
    if any(isinstance(section, dict) and {"resources", "replicas"} & section.keys() for section in found):
        return replace(config, certain=True), mark.size
    return config if named or found or _misplaced(value, 3) else None, mark.size


def _other_json(text: str) -> bool:
    """Tell whether a text is JSON without a configuration, as a dashboard is: however long, it is read at once."""
    if not text.lstrip().startswith("{") or "<<" in text:  # which merges maps in YAML
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    shared = (members(sharing, name) for _, sharing in members(value, "sharing") for name in SECTIONS)
    return not any(any(each) for each in shared) and not _misplaced(value, 3)


_HIDING = re.compile(r"[\\!]")
"""By escapes and by tags alone can YAML write a key without its letters."""

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U(000[0-9A-Fa-f]{5}|0010[0-9A-Fa-f]{4})|\r?\n[ \t]*)")


def _unescaped(text: str) -> str:
    """The text with what double quotes escape put plainly, as far as it may be letters."""
    return _ESCAPE.sub(lambda each: chr(int(each[each.lastindex], 16)) if each.lastindex else "", text)


MAX_READ_TWICE = 4 * 1024
"""Characters of a configuration above which keys that stand twice are not looked for: it would cost as much again."""


def repeated(config: Config) -> tuple[int, str] | None:
    """Find the first key that stands twice in one map: its line, and what is said of it."""
    if len(config.text) > MAX_READ_TWICE:
        return None
    try:
        parse(config.text, max_values=MAX_VALUES)
    except Unreadable as error:
        return error.line, str(error)
    return None


def later(config: Config) -> int:
    """Return the line at which a further document with anything in it begins; 0 for none."""
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
"""Where a line begins that is no marker, no comment and not blank."""

_DASHES = {ord("-"): None, ord("_"): None}


def _misplaced(value: Any, depth: int) -> bool:
    """Tell whether there is a section in a wrong place, or by a wrong name, at most so deep."""
    if not isinstance(value, dict):
        return False
    for key, each in value.items():
        if isinstance(each, dict):
            sliced = key.casefold().translate(_DASHES).startswith("timeslic")
            if (sliced and {"resources", "replicas"} & each.keys()) or (depth and _misplaced(each, depth - 1)):
                return True
    return False


SECTIONS = ("timeSlicing", "mps")


def sections(config: Config, name: str) -> Iterator[tuple[Path, Any]]:
    """Find every `sharing.<name>`: its path as written and its value."""
    for sharing, value in members(config.value, "sharing"):
        for key, section in members(value, name):
            yield (sharing, key), section
