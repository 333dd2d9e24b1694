"""Fixes in, JSON Patch (RFC 6902) out."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from webhook.model import Fix, Object, Path

Operation = Mapping[str, Any]


def build(document: Object, fixes: Iterable[Fix]) -> tuple[tuple[Operation, ...], Object]:
    """Return the operations that make the fixes, and the document they lead to.

    The given document is not changed; what no fix touches is shared with the result.
    """
    build_ = _Build()
    for fix in fixes:
        document = build_.merged(document, fix.path, fix.value)
    return tuple(build_.operations), document


class _Build:
    """The operations so far, and the containers that are copies of our own and may be changed in place."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._ours: dict[int, Any] = {}

    def merged(self, there: Any, path: Path, value: Any, depth: int = 0) -> Any:
        """Merge a value into what stands at a path of the document, of which `there` is this many keys down."""
        if depth < len(path):
            key = path[depth]
            child = there[int(key)] if isinstance(there, list) else there.get(key)
            if child is not None:
                merged = self.merged(child, path, value, depth + 1)
                return there if merged is child else self._with(there, key, merged)
            for below in reversed(path[depth + 1 :]):  # the first missing parent is added with all that hangs below it
                value = {below: value}
            self._write("replace" if isinstance(there, list) else "add", _pointer(path[: depth + 1]), value)
            return self._with(there, key, value)
        at = _pointer(path)
        if isinstance(there, dict) and isinstance(value, dict):
            for key, each in value.items():
                before = there.get(key)
                if before != each:
                    self._write("add" if before is None else "replace", f"{at}/{_escaped(key)}", each)
                    there = self._with(there, key, each)
            return there
        if isinstance(there, list) and isinstance(value, list):
            for each in value:
                self._write("add", f"{at}/-", each)
            return [*there, *value] if value else there
        if there != value:
            self._write("replace", at, value)
        return value

    def _write(self, operation: str, at: str, value: Any) -> None:
        self.operations.append({"op": operation, "path": at, "value": value})

    def _with(self, container: Any, key: str | int, value: Any) -> Any:
        """Exchange one value of a map or a list, in a copy unless it is one already."""
        if id(container) not in self._ours:
            container = container.copy()
            self._ours[id(container)] = container  # kept, so that its id stays its own
        container[int(key) if isinstance(container, list) else key] = value
        return container


def apply(document: Object, operations: Iterable[Operation]) -> Object:
    """Apply a patch of `add` and `replace` operations, as an API server does with ours (RFC 6902)."""
    ours: dict[int, Any] = {}

    def own(container: Any) -> Any:
        if id(container) not in ours:
            container = container.copy()
            ours[id(container)] = container
        return container

    def reach(pointer: str) -> Any:
        there: Any = document
        for key in pointer.split("/")[1:]:
            place = int(key) if isinstance(there, list) else _unescaped(key)
            there[place] = there = own(there[place])
        return there

    document = own(document)
    before, there = "", cast("Any", document)
    for operation in operations:
        parent, _, last = operation["path"].rpartition("/")
        if parent != before:  # many write into one place after each other, as do all new variables of a container
            before, there = parent, reach(parent)
        last = _unescaped(last)
        if isinstance(there, dict):
            there[last] = operation["value"]
        elif operation["op"] == "add":
            there.insert(len(there) if last == "-" else int(last), operation["value"])
        else:
            there[int(last)] = operation["value"]
    return document


def _pointer(path: Path) -> str:
    return "".join([f"/{_escaped(key)}" for key in path])


def _escaped(key: str | int) -> str:
    return key.replace("~", "~0").replace("/", "~1") if isinstance(key, str) else str(key)


def _unescaped(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~") if "~" in key else key
