"""Finds the fields of deploying objects that a rendering does not follow, so that none is ignored silently."""

from collections.abc import Iterator
from typing import Any

from webhook.api.lenient import mapping
from webhook.catalog.deployer_fields import Known
from webhook.model import Object, Path, dotted
from webhook.text.words import listed


def reason(value: Object, known: Known) -> str:
    """Return why an object is not rendered completely: its set fields that are not followed.

    Returns an empty text if there are none.
    """
    names = list(dict.fromkeys(dotted(path) for path in _unknown(value, known, ())))
    return f"{listed(names, NAMED)} not followed" if names else ""


NAMED = 3
"""Fields of one object that a line names."""


def _unknown(value: Any, known: Known, before: Path) -> Iterator[Path]:
    for each in value if isinstance(value, list) else [value]:
        for key, part in mapping(each).items():
            if not part:
                continue
            if key not in known:
                yield *before, key
            elif known[key] is not None:
                yield from _unknown(part, known[key], (*before, key))
