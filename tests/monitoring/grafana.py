"""Grafana's own schema of dashboards, as the types that Grafana generates from it (grafana-foundation-sdk)."""

import importlib
import json
from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# Not by `import`: the types come without hints for mypy.
_cog, _models = (importlib.import_module(f"grafana_foundation_sdk.{name}") for name in ("cog", "models.dashboard"))
for _name in ("plugins", "encoder"):
    importlib.import_module(f"grafana_foundation_sdk.cog.{_name}")
_cog.plugins.register_default_plugins()  # the options of each kind of panel, and Prometheus' queries


def faults(dashboard: dict[str, Any]) -> Iterator[str]:
    """Say what the schema does not know of a dashboard: its keys, the types of its values, and its choices."""
    try:
        read = _models.Dashboard.from_json(dashboard)
    except ValueError as error:  # a value that is none of a choice
        yield str(error)
        return
    wrong = list(_wrong(read, _models.Dashboard, ""))
    yield from wrong
    if not wrong:
        yield from _lost(dashboard, json.loads(_cog.encoder.JSONEncoder().encode(read)), "")


def _lost(given: Any, kept: Any, place: str) -> Iterator[str]:
    """The parts that were not read, since they are not written again."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            if key in kept:
                yield from _lost(value, kept[key], f"{place}/{key}")
            else:
                yield f"{place}/{key}: unknown"
    elif isinstance(given, list) and isinstance(kept, list):
        for index, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(value, other, f"{place}/{index}")
    elif given != kept:
        yield f"{place}: {given!r} was read as {kept!r}"


def _wrong(value: Any, hint: Any, place: str) -> Iterator[str]:
    """Where a value is of another type than the schema's."""
    kind, arguments = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        tried = [list(_wrong(value, each, place)) for each in arguments if not (each is NoneType and value is not None)]
        yield from min(tried, key=len)
    elif kind is list and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _wrong(each, arguments[0], f"{place}/{index}")
    elif kind is dict and isinstance(value, dict):
        for key, each in value.items():
            yield from _wrong(each, arguments[1], f"{place}/{key}")
    elif kind is Literal:
        if value not in arguments:
            yield f"{place}: {value!r} is none of {arguments}"
    elif isinstance(hint, type) and issubclass(hint, Enum):
        choices = [member.value for member in hint]
        if value not in choices:
            yield f"{place}: {value!r} is none of {choices}"
    elif hint in (Any, object):
        return
    elif not isinstance(value, (int, float) if hint is float else (kind or hint)) or (
        isinstance(value, bool) and hint is not bool
    ):
        yield f"{place}: {value!r} is no {getattr(hint, '__name__', hint)}"
    else:
        for name, each in get_type_hints(type(value)).items():
            yield from _wrong(getattr(value, name), each, f"{place}/{name}")
