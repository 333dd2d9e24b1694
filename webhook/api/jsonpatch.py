"""Turns fixes into a JSON Patch (RFC 6902)."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from webhook.allowance import FEW, Allowance, TooLarge
from webhook.model import Fix, Object, Path

Operation = Mapping[str, Any]


MAX_OPERATIONS = 128
"""Maximum operations of a patch. More could make an answer larger than 64 KiB, which the API server keeps in memory."""


def build(
    document: Object, fixes: Iterable[Fix], allowance: Allowance | None = None
) -> tuple[tuple[Operation, ...], Object]:
    """Return the operations that apply the fixes, and the document after them.

    The given document is not changed; the result shares the parts that no operation touches. Reading of the fixes stops
    as soon as there are too many operations. Raises TooLarge for too many, and TooLate.
    """
    patched, operations, allowance = _Patched(document), list[Operation](), allowance or Allowance()
    for number, (path, value) in enumerate(fixes, start=1):
        if number % FEW == 0:
            allowance.look()
        operations += patched.merge(path, value)
        if len(operations) > MAX_OPERATIONS:
            raise TooLarge(
                (),
                f"needs more than {MAX_OPERATIONS} changes, and no more fit one answer; give it fewer containers, or "
                "write caps and selection into it",
            )
    return tuple(operations), patched.document


def apply(document: Object, operations: Iterable[Operation]) -> Object:
    """Apply a patch of `add` and `replace` operations as an API server does (RFC 6902)."""
    patched = _Patched(document)
    for operation in operations:
        patched.apply(operation)
    return patched.document


class _Patched:
    """A document that is being changed. Only the maps and lists that are written to are copied."""

    def __init__(self, document: Object) -> None:
        self.document = document
        self._copies: dict[int, Any] = {}

    def merge(self, path: Path, value: Any) -> list[Operation]:
        """Merge a value into the document at a path. Returns the operations that have the same effect."""
        holder = there = self._root()
        copies, depth = self._copies, 0
        for key in path:
            holder, listed, depth = there, type(there) is list, depth + 1
            there = there[key] if listed else there.get(key)
            if there is None:
                for below in reversed(path[depth:]):  # add the first missing parent with everything below it
                    value = {below: value}
                holder[key] = value
                return [_operation("replace" if listed else "add", _pointer(path[:depth]), value)]
            if type(there) in _HOLDERS and id(there) not in copies:
                holder[key] = there = self._copy(there)
        at = _pointer(path)
        if type(there) is dict and type(value) is dict:
            changed = {key: entry for key, entry in value.items() if there.get(key) != entry}
            operations = [
                _operation("add" if there.get(key) is None else "replace", f"{at}/{_escaped(key)}", entry)
                for key, entry in changed.items()
            ]
            there.update(changed)
            return operations
        if type(there) is list and type(value) is list:
            there.extend(value)
            end = f"{at}/-"
            return [{"op": "add", "path": end, "value": entry} for entry in value]
        if there == value:
            return []
        holder[path[-1]] = value
        return [_operation("replace", at, value)]

    def apply(self, operation: Operation) -> None:
        """Apply one operation to the document as an API server does."""
        *place, last = map(_unescaped, operation["path"].split("/")[1:])
        there, value = self._own(place), operation["value"]
        if type(there) is dict:
            there[last] = value
        elif last == "-":
            there.append(value)
        elif operation["op"] == "add":
            there.insert(int(last), value)
        else:
            there[int(last)] = value

    def _own(self, place: Iterable[str | int]) -> Any:
        """Return the map or list at a place. It and its parents are copied first, unless they are copies already."""
        there = self._root()
        for key in place:
            at: Any = int(key) if type(there) is list else key
            child = there[at]
            if id(child) not in self._copies:
                there[at] = child = self._copy(child)
            there = child
        return there

    def _root(self) -> Any:
        """Return the document, copied before its first change."""
        if not self._copies:
            self.document = self._copy(self.document)
        return self.document

    def _copy(self, container: Any) -> Any:
        copy = container.copy()
        self._copies[id(copy)] = copy  # keeps the object alive, so that no other object can get its id()
        return copy


_HOLDERS = frozenset((dict, list))


def _operation(operation: str, at: str, value: Any) -> Operation:
    return {"op": operation, "path": at, "value": value}


@lru_cache(maxsize=1024)  # nearly all fixes are at the same few places
def _pointer(path: Path) -> str:
    pointer = "/".join(("", *map(str, path)))
    if "~" in pointer or pointer.count("/") > len(path):  # few paths have a key to escape
        pointer = "/".join(("", *map(_escaped, map(str, path))))
    return pointer


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _unescaped(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
