"""Turns fixes into a JSON Patch (RFC 6902)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from webhook.allowance import FEW, Allowance, TooLarge
from webhook.model import Fix, Object, Path

Operation = Mapping[str, Any]


MAX_OPERATIONS = 128
"""Operations of a patch. More could make an answer of over 64 KiB, which the API server holds in memory."""


def build(
    document: Object, fixes: Iterable[Fix], allowance: Allowance | None = None
) -> tuple[tuple[Operation, ...], Object]:
    """Return the operations that make the fixes, and the patched document.

    The given document is not changed; the result shares the parts that no fix touches. The fixes are read only until
    there are too many operations. Raises TooLarge for too many, and TooLate.
    """
    copy, operations, allowance = _Copy(document), list[Operation](), allowance or Allowance()
    for number, (path, value) in enumerate(fixes, start=1):
        if number % FEW == 0:
            allowance.look()
        operations += _merged(copy, path, value)
        if len(operations) > MAX_OPERATIONS:
            raise TooLarge(
                (),
                f"needs more than {MAX_OPERATIONS} changes, and no more fit one answer; give it fewer containers, or "
                "write caps and selection into it",
            )
    return tuple(operations), copy.document if operations else document


class _Copy:
    """A copy of a document that copies only the maps and lists that are written to."""

    def __init__(self, document: Object) -> None:
        self._ours: dict[int, Any] = {}
        self.document = self._own(document)

    def child(self, container: Any, key: str | int) -> Any:
        """Return the child at a key, ready to be written to. The container itself must be ready."""
        child = container[key]
        if type(child) in (dict, list):
            container[key] = child = self._own(child)
        return child

    def _own(self, container: Any) -> Any:
        if id(container) in self._ours:
            return container
        copy = container.copy()
        self._ours[id(copy)] = copy  # kept alive, so that no other object gets its id
        return copy


def _merged(copy: _Copy, path: Path, value: Any) -> Iterator[Operation]:
    """Merge a value into the copy at a path, and yield the same change as operations."""
    there: Any = copy.document
    for depth, key in enumerate(path):
        parent, listed = there, isinstance(there, list)
        if (there[key] if listed else there.get(key)) is None:
            for below in reversed(path[depth + 1 :]):  # add the first missing parent with everything below it
                value = {below: value}
            yield _operation("replace" if listed else "add", _pointer(path[: depth + 1]), value)
            parent[key] = value
            return
        there = copy.child(parent, key)
    at = _pointer(path)
    if isinstance(there, dict) and isinstance(value, dict):
        for key, entry in value.items():
            before = there.get(key)
            if before != entry:
                yield _operation("add" if before is None else "replace", f"{at}/{_escaped(key)}", entry)
                there[key] = entry
    elif isinstance(there, list) and isinstance(value, list):
        for entry in value:
            yield _operation("add", f"{at}/-", entry)
        there += value
    elif there != value:
        yield _operation("replace", at, value)
        parent[path[-1]] = value


def _operation(operation: str, at: str, value: Any) -> Operation:
    return {"op": operation, "path": at, "value": value}


def apply(document: Object, operations: Iterable[Operation]) -> Object:
    """Apply a patch of `add` and `replace` operations as an API server does (RFC 6902)."""
    copy = _Copy(document)
    before, there = "", cast("Any", copy.document)
    for operation in operations:
        parent, _, last = operation["path"].rpartition("/")
        if parent != before:  # runs of operations share a parent, such as the new variables of a container
            before, there = parent, copy.document
            for key in parent.split("/")[1:]:
                there = copy.child(there, int(key) if isinstance(there, list) else _unescaped(key))
        last = _unescaped(last)
        if isinstance(there, dict):
            there[last] = operation["value"]
        elif operation["op"] == "add":
            there.insert(len(there) if last == "-" else int(last), operation["value"])
        else:
            there[int(last)] = operation["value"]
    return cast("Object", copy.document)


def _pointer(path: Path) -> str:
    return "".join([f"/{_escaped(key)}" for key in path])


def _escaped(key: str | int) -> str:
    if isinstance(key, int):
        return str(key)
    return key.replace("~", "~0").replace("/", "~1") if "/" in key or "~" in key else key


def _unescaped(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~") if "~" in key else key
