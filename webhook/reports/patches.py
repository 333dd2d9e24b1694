"""Writes the operations of a patch as lines for people."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from webhook.api.jsonpatch import Operation
from webhook.memory import environment
from webhook.model import dotted
from webhook.text.words import several

_LONGEST = 200
"""Characters of a value that are shown."""


def changes(patch: Sequence[Operation]) -> Iterator[str]:
    """Yield a line for each operation. Variables added to one container share a line, which only counts memory caps."""
    variables: dict[str, list[Any]] = {}
    for operation in patch:
        if added := _added(operation):
            variables.setdefault(_place(operation), []).extend(added)
    for operation in patch:
        place = _place(operation)
        if not _added(operation):
            yield f"{'+' if operation['op'] == 'add' else '~'} {change(operation)}"
        elif place in variables:
            yield f"+ {place}: {_variables(variables.pop(place))}"


def change(operation: Operation) -> str:
    """Write the place of an operation and its value."""
    value = json.dumps(operation["value"])
    return f"{_place(operation)}: {value if len(value) <= _LONGEST else f'{value[: _LONGEST - 3]}...'}"


def _place(operation: Operation) -> str:
    path = operation["path"].removesuffix("/-")  # the end of a list, to which the value is added
    return dotted(tuple(map(_key, path.split("/")[1:])))


def _key(text: str) -> str | int:
    return int(text) if text.isdecimal() else text.replace("~1", "/").replace("~0", "~")


def _added(operation: Operation) -> list[Any]:
    """Return the variables that an operation adds to a container; nothing for any other operation."""
    path, value = operation["path"], operation["value"]
    if operation["op"] != "add" or not path.endswith(("/env", "/env/-")):
        return []
    return value if isinstance(value, list) else [value]


def _variables(added: Sequence[Any]) -> str:
    names = [variable["name"] for variable in added]
    caps = sum(name in environment.KNOWN for name in names)
    others = [
        f"{each['name']}={json.dumps(each.get('value'))}" for each in added if each["name"] not in environment.KNOWN
    ]
    return ", ".join([f"{several(caps, 'memory-cap variable')} (--explain)"] * (caps > 0) + others)
