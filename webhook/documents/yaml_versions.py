"""Finds YAML that go-yaml v3 reads otherwise than v2: kustomize and Helmfile have v3, kubectl and helm have v2.

v3 has only true and false as booleans, and has dates (resolve.go). Keys of a map win over its merge key there, also if
they stand before it (decode.go, mapping).
"""

from collections.abc import Iterator

import yaml

from webhook.documents.goyaml import MOST_DIRECTIVES
from webhook.documents.goyaml_scalars import is_timestamp, plain

_MERGE, _TEXT = "tag:yaml.org,2002:merge", "tag:yaml.org,2002:str"


def is_unlike(text: str) -> bool:
    """Whether a plain scalar has another value in v3: a date, a number that begins with 0o, or a word such as on."""
    if is_timestamp(text) or text.lstrip("-+").startswith("0o"):
        return True
    return isinstance(plain(text), bool) and text.lower() not in ("true", "false")


def unlike(text: str, *, scalars: bool) -> bool:
    """Whether v3 may read the documents of a text otherwise: their merge keys, and their scalars if these count."""
    if not (scalars or "<<" in text or ("!" in text and "\\" in text)):  # a tag makes a merge key of an escaped text
        return False
    if text.count("%TAG") > MOST_DIRECTIVES:
        return True
    try:
        nodes = list(yaml.compose_all(text.removeprefix("\ufeff"), Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, RecursionError):
        return True
    reader = _Reader(scalars=scalars)
    try:
        return any(map(reader.is_unlike, _below(nodes)))
    except _TooManyKeys:
        return True


def _below(nodes: list[yaml.Node]) -> Iterator[yaml.Node]:
    """Yield some nodes and those in them, each once."""
    left, seen = [*nodes], set[int]()
    while left:
        node = left.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            if isinstance(node, yaml.MappingNode):
                left += (part for entry in node.value for part in entry)
            elif isinstance(node, yaml.SequenceNode):
                left += node.value


MOST_KEYS = 100_000
"""Maximum keys of merged maps that are compared in a text. For a chain of merge keys they grow as its square."""


class _TooManyKeys(Exception):
    pass


class _Reader:
    """Compares the nodes of one text."""

    def __init__(self, *, scalars: bool) -> None:
        self._scalars, self._left = scalars, MOST_KEYS

    def is_unlike(self, node: yaml.Node) -> bool:
        """Whether v3 may read a node otherwise. Raises _TooManyKeys."""
        if isinstance(node, yaml.ScalarNode):
            return self._scalars and (not node.style or node.tag != _TEXT) and is_unlike(str(node.value))
        if not isinstance(node, yaml.MappingNode):
            return False
        places = [at for at, (key, _) in enumerate(node.value) if key.tag == _MERGE]
        if not places:
            return False
        merged = node.value[places[0]][1]
        parts = merged.value if isinstance(merged, yaml.SequenceNode) else [merged]
        keys = [key for part in parts for key in self._keys(part)]
        before = {str(key.value) for key, _ in node.value[: places[0]]}
        return len(places) > 1 or (len(parts) > 1 and len({*keys}) < len(keys)) or not before.isdisjoint(keys)

    def _keys(self, node: yaml.Node) -> set[str]:
        """Return the keys of a map, with those that its merge keys add."""
        left, seen, found = [node], set[int](), set[str]()
        while left:
            each = left.pop()
            self._left -= 1 + len(each.value)
            if self._left < 0:
                raise _TooManyKeys
            if isinstance(each, yaml.SequenceNode):
                left += each.value
            elif isinstance(each, yaml.MappingNode) and id(each) not in seen:
                seen.add(id(each))
                left += (value for key, value in each.value if key.tag == _MERGE)
                found |= {str(key.value) for key, _ in each.value if key.tag != _MERGE}
        return found
