"""Fills in the variables of Flux, in the objects that one of its Kustomizations makes.

Source: fluxcd/pkg kustomize/kustomize_varsub.go and envsubst. Flux writes each object as YAML, replaces placeholders in
that text, and reads it again.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string, strings
from webhook.api.objects import CONFIG_MAP
from webhook.catalog import host_paths
from webhook.documents.documents import read
from webhook.model import Object

MAX_FILLED = 3 * 2**19
"""Maximum characters that variables add to one object: an API server stores none of 1.5 MiB (of etcd)."""


class Variables(NamedTuple):
    """The variables of a Kustomization of Flux: those that files show, and what is known of the others.

    If it is `strict`, all variables are known. If some are `hidden`, they may change all others than those that are
    `shown`. ConfigMaps that may be of different clusters disagree about those that are `unsure`. `maps` are the
    names of the ConfigMaps. If there is no variable, it is not `active`: Flux then fills in no default, and no `$` in
    place of `$$`. It may be `idle` then if no file shows whether there is one.
    """

    known: Mapping[str, str]
    strict: bool = False
    hidden: bool = False
    shown: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    maps: frozenset[str] = frozenset()
    active: bool = True
    idle: bool = False

    def guesses(self, value: Any) -> bool:
        """Whether Flux may fill in a placeholder of a value otherwise than `substituted` does.

        It does so if a variable that no file shows takes the place of a default, or is in a key or name that decides
        what a pod gets; by a function, such as `${a#b}`; or if the text of a variable is syntax of YAML or has a line
        break. A key that it fills in may be the sign `<<` for the fields of its value, or another key of the same map.
        """
        if not self.active:
            return False
        if self.filled(value) > MAX_FILLED:
            return True
        if self.merges(value):
            return True
        if self.hidden and any(self._is_open(found) for text in _deciding(value) for found in _VARIABLE.finditer(text)):
            return True
        for text in _texts(value):
            if "$$" in text and self.idle:
                return True
            followed = [*_VARIABLE.finditer(text)]
            if any(self._is_guessed(found) for found in followed):
                return True
            starts = {found.start() for found in followed}
            if any(found.start() not in starts for found in _START.finditer(text) if found[0] != "$$"):
                return True
            if not _filled(text, self.known, strict=self.strict).sure:
                return True
        return False

    def merges(self, value: Any) -> bool:
        """Whether two keys of a map in a value become one, or one becomes syntax of YAML."""
        return any(self._is_unlike(each) for each in _maps(value))

    def filled(self, value: Any) -> int:
        """Return how many characters the variables add to a value, at most."""
        found = (each for text in _texts(value) for each in _VARIABLE.finditer(text))
        return sum(len(self.known.get(each[1], "")) for each in found)

    def opens(self, value: Any) -> bool:
        """Whether a placeholder stays as it is, because no file shows its variable, anywhere in a value."""
        found = (each for text in _texts(value) for each in _VARIABLE.finditer(text))
        return self.active and self.hidden and any(map(self._is_open, found))

    def _is_unlike(self, value: Mapping[Any, Any]) -> bool:
        """Whether Flux may read the keys of a map otherwise than they are filled in, or finds one twice."""
        filled = {key: _filled(key, self.known, strict=self.strict).value for key in value if _has_sign(key)}
        if not all(isinstance(key, str) and _KEY.fullmatch(key) for key in filled.values()):
            return True
        return len({filled.get(key, key) for key in value}) < len(value)

    def _is_guessed(self, found: re.Match[str]) -> bool:
        name, filled = found[1], bool(found[2]) or found[1] in self.known
        if found[0] == "$$":
            return False
        return name in self.unsure or (filled and self.hidden and name not in self.shown)

    def _is_open(self, found: re.Match[str]) -> bool:
        """Whether a placeholder stays as it is, because it has no default and no file shows its variable."""
        return not (found[0] == "$$" or found[2] or found[1] in self.known)


def _maps(value: Any) -> Iterator[Mapping[Any, Any]]:
    """Yield the maps in a value."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield each
            left += each.values()
        elif isinstance(each, list):
            left += each


def _has_sign(value: Any) -> bool:
    """Whether Flux may change a text: whether it has a placeholder, or a dollar sign that is written twice."""
    return isinstance(value, str) and ("${" in value or "$$" in value)


def _texts(value: Any) -> Iterator[str]:
    """Yield the keys and texts in a value that may have placeholders."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += (*each, *each.values())
        elif isinstance(each, list):
            left += each
        elif _has_sign(each):
            yield each


def _deciding(value: Any) -> Iterator[str]:
    """Yield the keys in a value, and the texts of fields that decide what a pod gets."""
    left: list[tuple[Any, Any]] = [("", value)]
    while left:
        above, each = left.pop()
        if isinstance(each, list):
            left += ((above, one) for one in each)
        elif isinstance(each, dict):
            yield from (key for key in each if isinstance(key, str))
            deciding = {*_DECIDING, *_BELOW.get(above, ()), *(("name",) if not _SETS.isdisjoint(each) else ())}
            for key, one in each.items():
                if key in deciding or above in _WHOLE:
                    yield from (text for text in (one if isinstance(one, list) else [one]) if isinstance(text, str))
            left += each.items()


_DECIDING = frozenset(
    (
        *("apiVersion", "kind", "runtimeClassName", "priorityClassName", "schedulerName", "nodeName"),
        *("resourceClaimName", "resourceClaimTemplateName", "deviceClassName", "devicePath", "restartPolicy"),
        *("mountPath", "terminationMessagePath", "allocationMode", "gpuType", "podSpecPatch", "manifest"),
        "extendedResourceName",
    )
)
"""Fields whose texts decide what a pod gets; those of an image, of values and of arguments do not."""

_BELOW: Mapping[Any, Set[str]] = {
    "hostPath": {"path", "type"},
    "volumes": {"name"},
    "volumeMounts": {"name"},
    "envFrom": {"prefix"},
    "capabilities": {"add"},
    "tolerations": {"key", "operator", "effect"},
    "matchExpressions": {"key", "operator", "values"},
    "opaque": {"driver"},
    "cel": {"expression"},
    "gpu": {"name"},
    "config": {"name", "default"},
    **{source: {*names} for source, names in host_paths.SERVERS.items()},
}
"""Such fields by the one above them."""

_WHOLE = frozenset(("nodeSelector", "sparkConf"))
"""Fields below which each text decides."""

_SETS = frozenset(("value", "valueFrom"))
"""Fields of an entry of `env`, whose name counts too."""


class MergedMap(NamedTuple):
    """The data of some ConfigMaps, of which the last one counts.

    They disagree about the keys that are `unsure`, or Flux fills in a placeholder in their texts before it reads them.
    If `hidden`, some of the data are not known.
    """

    data: Mapping[str, str]
    unsure: frozenset[str] = frozenset()
    hidden: bool = False

    def merged(self, other: "MergedMap") -> "MergedMap":
        """Return the data of both, of which the other's count."""
        unlike = {key for key, _ in self.data.items() ^ other.data.items()}
        return MergedMap({**self.data, **other.data}, self.unsure | other.unsure | unlike, self.hidden or other.hidden)


class MapObject(NamedTuple):
    """An object that may be a ConfigMap, with whether its data are known, and the keys whose texts are only guesses."""

    value: Object
    known: bool = True
    unsure: frozenset[str] = frozenset()


class Maps:
    """The ConfigMaps among some objects. Those of `others` count for a name that none of them has."""

    def __init__(self, objects: Iterable[MapObject] = (), others: "Maps | None" = None) -> None:
        self._others = others
        self._own = defaultdict[str, dict[str, _Gathered]](dict)
        self._read = dict[tuple[str, str], MergedMap | None]()
        for value, known, unsure in objects:
            if group_kind(value) == CONFIG_MAP:
                metadata = mapping(value.get("metadata"))
                texts = strings(value.get("data"))
                data = texts if known and not _is_kept(metadata) and _BOOLEANS.isdisjoint(texts) else None
                for namespace in {string(metadata.get("namespace")), _ANY}:
                    found = self._own[string(metadata.get("name"))].setdefault(namespace, _Gathered())
                    found.add(data, unsure)

    def named(self, name: str, namespace: str, *, others: bool = True) -> MergedMap | None:
        """Return the ConfigMaps of a name that an object in a namespace may read, as far as files say; None if none.

        They are those of its own namespace, and those whose namespace no file says. Those of `others` may be left out.
        """
        key = name, namespace
        if key not in self._read:
            groups = self._own.get(name, {})
            chosen = [groups[each] for each in (("", namespace) if namespace else (_ANY,)) if each in groups]
            first, second = [each.merged() for each in chosen] if len(chosen) == 2 else (None, None)
            self._read[key] = first.merged(second) if first and second else chosen[0].merged() if chosen else None
        found = self._read[key]
        return self._others.named(name, namespace) if found is None and others and self._others else found


_BOOLEANS = frozenset(("true", "false"))
"""How kubectl reads keys such as `N` and `on`, which kustomize leaves as they are."""


def _is_kept(metadata: Mapping[str, Any]) -> bool:
    """Whether Flux leaves an object as it is in the cluster, or does not create it there.

    Source: kustomize-controller internal/controller/kustomization_controller.go (apply), fluxcd/pkg ssa.
    """
    places = [mapping(metadata.get(key)) for key in ("annotations", "labels")]
    return any(string(each.get(key)).lower() in texts for each in places for key, texts in _KEEPS.items())


_KEEPS: Mapping[str, Set[str]] = {
    "kustomize.toolkit.fluxcd.io/reconcile": {"disabled"},
    "kustomize.toolkit.fluxcd.io/ssa": {"ignore", "ifnotpresent"},
}
"""Annotations and labels by which Flux does not change an object, in small letters."""


_ANY = "*"
"""Stands for all namespaces; no namespace has this name."""


class _Gathered:
    """ConfigMaps of a name and a namespace, gathered one by one: work by their sizes, however many they are."""

    def __init__(self) -> None:
        self._data, self._unsure, self._count = dict[str, str](), set[str](), Counter[str]()
        self._number, self._hidden = 0, False
        self._merged: MergedMap | None = None

    def add(self, data: Mapping[str, str] | None, unsure: Set[str]) -> None:
        """Add the data of one more, of which some keys are only guesses; None if they are not known."""
        if data is None:
            self._hidden = True
            return
        self._number += 1
        self._count.update(data.keys())
        self._unsure |= unsure
        self._unsure |= {key for key, text in data.items() if "${" in text or self._data.get(key, text) != text}
        self._data |= data

    def merged(self) -> MergedMap:
        """Return the data of all."""
        if self._merged is None:
            lacking = {key for key, count in self._count.items() if count < self._number}
            self._merged = MergedMap(self._data, frozenset(self._unsure | lacking), self._hidden)
        return self._merged


def variables(value: Object, maps: Maps) -> Variables:
    """Return the variables of a Kustomization of Flux, without their line feeds, which Flux removes."""
    spec, own = mapping(value.get("spec")), string(mapping(value.get("metadata")).get("namespace"))
    build = mapping(spec.get("postBuild"))
    found, hidden, shown, unsure = dict[str, str](), False, set[str](), set[str]()
    for kind, name in reversed(dict.fromkeys(reversed(_references(build)))):  # of the same object, the last one counts
        some = maps.named(name, own) if kind == "ConfigMap" else None
        found |= some.data if some else {}
        if some is None or some.hidden:
            hidden = True
            shown.clear()
            continue
        unsure = (unsure - some.data.keys()) | some.unsure
        shown = (shown | some.data.keys()) - unsure
    texts = {key: str(each) for key, each in mapping(build.get("substitute")).items() if not isinstance(each, dict)}
    given = {key: each for key, each in texts.items() if "${" not in each}
    hidden = hidden or len(given) < len(texts)  # a Kustomization above fills in their placeholders
    values = {key: each.replace("\n", "") for key, each in (found | given).items()}
    hidden = hidden or not _BOOLEANS.isdisjoint(given)
    strict, active = not hidden, hidden or bool(values) or build.get("substituteStrategy") == "Always"
    read = frozenset(name for kind, name in _references(build) if kind == "ConfigMap")
    known = frozenset(shown | given.keys())
    exists = bool(values) or not all(each.get("optional") for each in mappings(build.get("substituteFrom")))
    return Variables(
        values, strict, hidden, known, frozenset(unsure - given.keys()), read, active, idle=hidden and not exists
    )


def is_open(spec: Any) -> bool:
    """Whether an object of Flux has a placeholder where it says what it deploys: no file shows the variable."""
    left = [spec]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if any("${" in json.dumps(one) for key, one in each.items() if key in _NAMING):
                return True
            if any(_changes(one) for key, one in each.items() if key == "patch"):
                return True
            left += (one for key, one in each.items() if key not in _GIVEN)
        elif isinstance(each, list):
            left += each
    return False


def _changes(patch: Any) -> bool:
    """Whether a patch writes a placeholder that no file fills in where it decides what a pod gets."""
    documents, problems = read(patch, "") if isinstance(patch, str) and "${" in patch else ([], [])
    values = [patch if isinstance(patch, list | dict) else None, *(each.value for each in documents)]
    steps = [each for value in values for each in mappings(value)]
    written = [_placed(string(each.get("path")), each.get("value")) for each in steps]
    named = any("${" in string(each.get("path")) for each in steps)
    return bool(problems) or named or _HIDDEN.guesses([*values, *written])


def _placed(path: str, value: Any) -> Object:
    """Return a value below the last two keys of the path at which an operation writes it."""
    above, _, last = path.rpartition("/")
    return {above.rpartition("/")[2]: {last: value}}


_HIDDEN = Variables({}, hidden=True)

OPEN = "a variable that no file shows, in what it names or patches"

_NAMING = frozenset(
    ("path", "chart", "components", "name", "valuesFiles", "valueFiles", "valuesKey", "target", "generators")
)
"""Fields of objects of Flux and Argo CD that say what is deployed, and what a patch changes."""

_GIVEN = frozenset(
    (
        *("values", "valuesObject", "postBuild", "commonMetadata", "images", "parameters"),
        *("dependsOn", "healthChecks", "decryption", "kubeConfig", "driftDetection"),
    )
)
"""Fields of which no text decides which files are read."""


def _references(build: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(string(each.get("kind")), string(each.get("name"))) for each in mappings(build.get("substituteFrom"))]


def reads_maps(value: Object) -> bool:
    """Whether a Kustomization of Flux reads variables of ConfigMaps."""
    build = mapping(mapping(value.get("spec")).get("postBuild"))
    return any(kind == "ConfigMap" for kind, _ in _references(build))


_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[=-])([^{}]*))?\}")
_START = re.compile(r"\$\$|\$\{")
"""A placeholder, and the start of one. Flux reads two dollar signs as one that starts none (envsubst parse/scan.go)."""


def substituted(value: Any, known: Mapping[str, str], *, strict: bool = False) -> Any:
    """Return a value with its placeholders filled in, by known variables or by their defaults.

    A placeholder without either stays as it is. If `strict` is true, all variables are known, and such a placeholder
    becomes an empty string. A string takes the value that Flux reads in its place: another type, or a text without a
    comment, quotes and spaces around it.
    """
    if isinstance(value, dict):
        keys = (str(substituted(key, known, strict=strict)) for key in value)
        return {key: substituted(each, known, strict=strict) for key, each in zip(keys, value.values(), strict=True)}
    if isinstance(value, list):
        return [substituted(each, known, strict=strict) for each in value]
    if not _has_sign(value):
        return value
    return _filled(value, known, strict=strict).value


class _Filled(NamedTuple):
    """The value that Flux reads in place of a text with placeholders, and whether it is sure to be that."""

    value: Any
    sure: bool = True


def _filled(text: str, known: Mapping[str, str], *, strict: bool) -> _Filled:
    given = list[str]()

    def fill(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        each = known.get(found[1])
        if not each:  # a default takes the place of an empty text too, also after = without a colon
            each = found[3] if found[2] else "" if strict or each == "" else None
        if each is None:
            return found[0]
        given.append(each)
        return each

    made = _VARIABLE.sub(fill, text)
    if made == text or not given:
        return _Filled(made)
    if any(_BREAKS.search(each) for each in given):
        return _Filled(made, sure=False)
    if _VARIABLE.fullmatch(text):
        return _Filled(typed(made)) if _PLAIN.fullmatch(made) else _read(made)
    quotes = any(_QUOTES.search(each) for each in given)
    if _read(text) != (text, True):  # Flux writes it in quotes, or as a block
        return _Filled(made, not quotes)
    found = _Filled(typed(made)) if _PLAIN.fullmatch(made) else _read(made)
    return found._replace(sure=found.sure and not quotes)


_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_/.@%+=~,-]*")
"""Texts that need no quotes in YAML, whatever type they have."""

_KEY = re.compile(r"[A-Za-z0-9_/.-][A-Za-z0-9_/.@%+=~,-]*")
"""Keys that are what they look like. Others may be syntax, such as `<<`, or `---`, which ends an object."""

_QUOTES = re.compile(r"[\"'\\]")
"""Characters that may end or change a text in quotes."""

_BREAKS = re.compile("[\r\x85\u2028\u2029]")
"""Line breaks of YAML 1.1 that Flux keeps in a variable: what follows one may be another field, or end a block."""


def _read(text: str) -> _Filled:
    """Return the value that a text is if it stands behind a key in YAML; the text if it is no single scalar.

    Null is an empty text, as it is in an object.
    """
    documents, problems = read(f"k: {text}", "")
    value = mapping(documents[0].value) if len(documents) == 1 else {}
    if problems or list(value) != ["k"] or isinstance(value["k"], (dict, list)):
        return _Filled(text, sure=False)
    return _Filled("" if value["k"] is None else value["k"])


def typed(text: str) -> Any:
    """Return the scalar that YAML reads in a text; the text if it is none."""
    documents, problems = read(text, "")
    if problems or len(documents) != 1 or isinstance(documents[0].value, (dict, list)):
        return text
    return documents[0].value
