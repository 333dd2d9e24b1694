"""Turns fixes into a JSON Patch (RFC 6902)."""

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.allowance import FEW, Allowance, TooLarge
from webhook.model import Fix, Object, Path

Operation = Mapping[str, Any]


MAX_OPERATIONS = 128
"""Operations of a patch. More could make an answer of over 64 KiB, which the API server holds in memory."""


def build(
    document: Object, fixes: Iterable[Fix], allowance: Allowance | None = None
) -> tuple[tuple[Operation, ...], Object]:
    """Return the operations that make the fixes, and the document that they make of the given one.

    The given document is not changed; the result shares the parts that no operation touches. The fixes are read only
    until there are too many operations. Raises TooLarge for too many, and TooLate.
    """
    patched, operations, allowance = _Patched(document), list[Operation](), allowance or Allowance()
    for number, (path, value) in enumerate(fixes, start=1):
        if number % FEW == 0:
            allowance.look()
        merging = _merging(patched.document, path, value)
        patched.apply(merging)
        operations += merging
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
    patched.apply(operations)
    return patched.document


class _Patched:
    """A document to which operations are applied. Only the maps and lists that are written to are copied."""

    def __init__(self, document: Object) -> None:
        self.document = document
        self._copies: dict[int, Any] = {}

    def apply(self, operations: Iterable[Operation]) -> None:
        """Apply operations as an API server does."""
        before: str | None = None
        there: Any = None
        last = ""
        for operation in operations:
            path = operation["path"]
            if path != before:  # runs of operations share a path, such as those that lengthen a container's `env`
                before = path
                place, _, last = path.rpartition("/")
                there = self._own(place)
            if type(there) is dict:
                there[_unescaped(last)] = operation["value"]
            elif last == "-":
                there.append(operation["value"])
            elif operation["op"] == "add":
                there.insert(int(last), operation["value"])
            else:
                there[int(last)] = operation["value"]

    def _own(self, place: str) -> Any:
        """Return the map or list at a place, after copying it and all that it is in, unless they are copies."""
        self.document = there = self._copy(self.document)
        for part in place.split("/")[1:]:
            key: Any = int(part) if type(there) is list else _unescaped(part)
            child = there[key]
            if id(child) not in self._copies:
                there[key] = child = self._copy(child)
            there = child
        return there

    def _copy(self, container: Any) -> Any:
        if id(container) in self._copies:
            return container
        copy = container.copy()
        self._copies[id(copy)] = copy  # keeps the object alive, so that no other object can get its id()
        return copy


def _merging(document: Object, path: Path, value: Any) -> list[Operation]:
    """Return the operations that merge a value into a document at a path."""
    there: Any = document
    for depth, key in enumerate(path):
        listed = isinstance(there, list)
        child = there[key] if listed else there.get(key)
        if child is None:
            for below in reversed(path[depth + 1 :]):  # add the first missing parent with everything below it
                value = {below: value}
            return [_operation("replace" if listed else "add", _pointer(path[: depth + 1]), value)]
        there = child
    at = _pointer(path)
    if isinstance(there, dict) and isinstance(value, dict):
        changed = {key: there.get(key) for key, entry in value.items() if there.get(key) != entry}
        return [
            _operation("add" if before is None else "replace", f"{at}/{_escaped(key)}", value[key])
            for key, before in changed.items()
        ]
    if isinstance(there, list) and isinstance(value, list):
        return [_operation("add", f"{at}/-", entry) for entry in value]
    return [_operation("replace", at, value)] if there != value else []


def _operation(operation: str, at: str, value: Any) -> Operation:
    return {"op": operation, "path": at, "value": value}


def _pointer(path: Path) -> str:
    return "".join([f"/{_escaped(key)}" for key in path])


def _escaped(key: str | int) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")


def _unescaped(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~")
