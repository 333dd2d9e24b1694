"""Fixes in, JSON Patch (RFC 6902) out."""

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.model import Fix, Object, Path

Operation = Mapping[str, Any]


def build(document: Object, fixes: Iterable[Fix]) -> tuple[tuple[Operation, ...], Object]:
    """Return the operations that make the fixes, and the document they lead to.

    An operation is written where its change is made, on what the ones before it left, so a patch that would
    not apply cannot be returned: an API server refuses the whole request for such a patch, even under
    `failurePolicy: Ignore`. The given document is not changed; what no fix touches is shared with the result.
    """
    operations: list[Operation] = []
    for fix in fixes:
        document = _merged(document, fix.path, fix.value, "", operations)
    return tuple(operations), document


def _merged(there: Any, path: Path, value: Any, at: str, operations: list[Operation]) -> Any:
    """Merge a value into what stands at a path below `there`; `at` is the JSON Pointer of `there` itself."""
    if path:
        key, *rest = path
        child = there[int(key)] if isinstance(there, list) else there.get(key)
        if child is not None:
            merged = _merged(child, tuple(rest), value, f"{at}/{_escaped(key)}", operations)
            return there if merged is child else _with(there, key, merged)
        for below in reversed(rest):  # the first missing parent is added with all that hangs below it
            value = {below: value}
        operation = "replace" if isinstance(there, list) else "add"  # to add at an index is to insert
        operations.append({"op": operation, "path": f"{at}/{_escaped(key)}", "value": value})
        return _with(there, key, value)
    if isinstance(there, dict) and isinstance(value, dict):
        changes = {key: each for key, each in value.items() if there.get(key) != each}
        for key, each in changes.items():
            operation = "add" if there.get(key) is None else "replace"
            operations.append({"op": operation, "path": f"{at}/{_escaped(key)}", "value": each})
        return {**there, **changes} if changes else there
    if isinstance(there, list) and isinstance(value, list):
        operations.extend({"op": "add", "path": f"{at}/-", "value": each} for each in value)
        return [*there, *value] if value else there
    if there == value:
        return there
    operations.append({"op": "replace", "path": at, "value": value})
    return value


def _with(container: Any, key: str | int, value: Any) -> Any:
    """Copy a map or a list with one value exchanged."""
    if isinstance(container, list):
        index = int(key)
        return [*container[:index], value, *container[index + 1 :]]
    return {**container, key: value}


def apply(document: Object, operations: Iterable[Operation]) -> Object:
    """Apply a patch of `add` and `replace` operations, as an API server does with ours."""
    for operation in operations:
        path = [key.replace("~1", "/").replace("~0", "~") for key in operation["path"].split("/")[1:]]
        document = _put(document, path, operation["value"], insert=operation["op"] == "add")
    return document


def _put(container: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    key, *rest = path
    if isinstance(container, list) and insert and not rest:
        index = len(container) if key == "-" else int(key)
        return [*container[:index], value, *container[index:]]
    child = container[int(key)] if isinstance(container, list) else container.get(key)
    return _with(container, key, _put(child, rest, value, insert=insert) if rest else value)


def pointer(path: Path) -> str:
    """Write a path as a JSON Pointer (RFC 6901)."""
    return "".join([f"/{_escaped(key)}" for key in path])


def _escaped(key: str | int) -> str:
    return key.replace("~", "~0").replace("/", "~1") if isinstance(key, str) else str(key)
