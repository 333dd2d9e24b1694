"""Fills in the variables of Flux, in the objects that one of its Kustomizations makes.

Source: fluxcd/pkg kustomize/kustomize_varsub.go and envsubst. Flux writes each object as YAML, replaces placeholders in
that text, and reads it again.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string, strings
from webhook.api.objects import CONFIG_MAP
from webhook.documents.documents import read
from webhook.model import Object


class Variables(NamedTuple):
    """The variables of a Kustomization of Flux: those that files show, and what is known of the others.

    If it is `strict`, all variables are known. If some are `hidden`, they may change all others than those that are
    `shown`. ConfigMaps that may be of different clusters disagree about those that are `unsure`.
    """

    known: Mapping[str, str]
    strict: bool = False
    hidden: bool = False
    shown: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()

    def guesses(self, value: Any) -> bool:
        """Whether Flux may fill in a placeholder of a value otherwise than `substituted` does.

        It does so if a variable that no file shows takes the place of a default, or is in a key or name that decides
        what a pod gets; by a function, such as `${a#b}`; or if the text of a variable is syntax of YAML.
        """
        if not (self.strict or self.hidden):
            return False
        if self.hidden and any(self._is_open(found) for text in _deciding(value) for found in _VARIABLE.finditer(text)):
            return True
        for text in _texts(value):
            followed = [*_VARIABLE.finditer(text)]
            if any(self._is_guessed(found) for found in followed):
                return True
            starts = {found.start() for found in followed}
            if any(found.start() not in starts for found in _START.finditer(text) if not found[0].startswith("$$")):
                return True
            if not _filled(text, self.known, strict=self.strict).sure:
                return True
        return False

    def _is_guessed(self, found: re.Match[str]) -> bool:
        name, filled = found[1], bool(found[2]) or found[1] in self.known
        if found[0].startswith("$$"):
            return False
        return name in self.unsure or (filled and self.hidden and name not in self.shown)

    def _is_open(self, found: re.Match[str]) -> bool:
        """Whether a placeholder stays as it is, because it has no default and no file shows its variable."""
        return not (found[0].startswith("$$") or found[2] or found[1] in self.known)


def _texts(value: Any) -> Iterator[str]:
    """Yield the keys and texts in a value that may have placeholders."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            left += (*each, *each.values())
        elif isinstance(each, list):
            left += each
        elif isinstance(each, str) and "${" in each:
            yield each


def _deciding(value: Any) -> Iterator[str]:
    """Yield the keys in a value, the names of variables, and the names of devices, classes and the like."""
    left: list[tuple[Any, Any]] = [("", value)]
    while left:
        above, each = left.pop()
        if isinstance(each, list):
            left += ((above, one) for one in each)
        elif isinstance(each, dict):
            yield from (key for key in each if isinstance(key, str))
            deciding = {*_DECIDING, *(("name",) if not _SETS.isdisjoint(each) else ())}
            deciding |= {"path"} if above == "hostPath" else set()
            yield from (one for key, one in each.items() if key in deciding and isinstance(one, str))
            left += each.items()


_DECIDING = frozenset(
    (
        *("apiVersion", "kind", "runtimeClassName", "priorityClassName", "schedulerName", "nodeName"),
        *("resourceClaimName", "resourceClaimTemplateName", "deviceClassName", "devicePath"),
    )
)
"""Fields whose texts decide what a pod gets; those of an image, of values and of arguments do not."""

_SETS = frozenset(("value", "valueFrom"))
"""Fields of an entry of `env`, whose name counts too."""


class VariableMap(NamedTuple):
    """A ConfigMap that may have variables: its namespace, which may be empty, and its data; None if it is not known."""

    namespace: str
    data: Mapping[str, str] | None


Maps = Mapping[str, list[VariableMap]]
"""ConfigMaps by their names."""


def maps_of(objects: Iterable[tuple[Object, bool]]) -> dict[str, list[VariableMap]]:
    """Return the ConfigMaps among some objects, each with whether its data are known."""
    found = defaultdict[str, list[VariableMap]](list)
    for value, known in objects:
        if group_kind(value) == CONFIG_MAP:
            metadata = mapping(value.get("metadata"))
            one = VariableMap(string(metadata.get("namespace")), strings(value.get("data")) if known else None)
            found[string(metadata.get("name"))].append(one)
    return found


def named(maps: Maps, name: str, namespace: str) -> list[VariableMap]:
    """Return the ConfigMaps of a name that an object in a namespace may read: those of its own, as far as files say."""
    return [each for each in maps.get(name, ()) if not (namespace and each.namespace) or each.namespace == namespace]


def variables(value: Object, maps: Maps) -> Variables:
    """Return the variables of a Kustomization of Flux."""
    spec, own = mapping(value.get("spec")), string(mapping(value.get("metadata")).get("namespace"))
    build = mapping(spec.get("postBuild"))
    found, hidden, shown, unsure = dict[str, str](), False, set[str](), set[str]()
    for kind, name in reversed(dict.fromkeys(reversed(_references(build)))):  # of the same object, the last one counts
        some = named(maps, name, own) if kind == "ConfigMap" else []
        known = [each.data for each in some if each.data is not None]
        for data in known:
            found |= data
        if not known or len(known) < len(some):
            hidden = True
            shown.clear()
            continue
        keys = set[str]().union(*known)
        unlike = {key for key in keys if _is_unsure([data.get(key) for data in known])}
        unsure = (unsure - keys) | unlike
        shown = (shown | keys) - unsure
    given = {key: str(each) for key, each in mapping(build.get("substitute")).items() if not isinstance(each, dict)}
    strict = "postBuild" in spec and not hidden
    return Variables(found | given, strict, hidden, frozenset(shown | given.keys()), frozenset(unsure - given.keys()))


def _references(build: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(string(each.get("kind")), string(each.get("name"))) for each in mappings(build.get("substituteFrom"))]


def reads_maps(value: Object) -> bool:
    """Whether a Kustomization of Flux reads variables of ConfigMaps."""
    build = mapping(mapping(value.get("spec")).get("postBuild"))
    return any(kind == "ConfigMap" for kind, _ in _references(build))


def _is_unsure(texts: list[str | None]) -> bool:
    """Whether ConfigMaps disagree about a variable, or have a placeholder that Flux fills in before it reads them."""
    return len({*texts}) > 1 or any(each is not None and "${" in each for each in texts)


_VARIABLE = re.compile(r"\$\$?\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[=-])([^{}]*))?\}")
_START = re.compile(r"\$\$?\{")
"""A placeholder, and the start of one."""


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
    if not isinstance(value, str) or "${" not in value:
        return value
    return _filled(value, known, strict=strict).value


class _Filled(NamedTuple):
    """The value that Flux reads in place of a text with placeholders, and whether it is sure to be that."""

    value: Any
    sure: bool = True


def _filled(text: str, known: Mapping[str, str], *, strict: bool) -> _Filled:
    given = list[str]()

    def fill(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        each = known.get(found[1])
        if not (each or (each is not None and not (found[2] or "").startswith(":"))):
            each = found[3] if found[2] else "" if strict or each == "" else None
        if each is None:
            return found[0]
        given.append(each)
        return each

    made = _VARIABLE.sub(fill, text)
    if made == text or not given or _PLAIN.fullmatch(made):
        return _Filled(typed(made) if made != text and _VARIABLE.fullmatch(text) else made)
    if _VARIABLE.fullmatch(text):
        return _read(made)
    quotes = any(_QUOTES.search(each) for each in given)
    if _read(text).value != text:  # Flux writes it in quotes, or as a block
        return _Filled(made, not quotes)
    found = _read(made)
    return _Filled(found.value if isinstance(found.value, str) else made, found.sure and not quotes)


_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_/.@%+=~,-]*")
"""Texts that need no quotes in YAML, whatever type they have."""

_QUOTES = re.compile(r"[\"'\\]")
"""Characters that may end or change a text in quotes."""


def _read(text: str) -> _Filled:
    """Return the value that a text is if it stands behind a key in YAML; the text if it is no single scalar."""
    documents, problems = read(f"k: {text}", "")
    value = mapping(documents[0].value) if len(documents) == 1 else {}
    if problems or list(value) != ["k"] or isinstance(value["k"], (dict, list)):
        return _Filled(text, sure=False)
    return _Filled(text if value["k"] is None else value["k"])


def typed(text: str) -> Any:
    """Return the scalar that YAML reads in a text; the text if it is none."""
    documents, problems = read(text, "")
    if problems or len(documents) != 1 or isinstance(documents[0].value, (dict, list)):
        return text
    return documents[0].value
