"""No long text is read or copied once for each entry of a list outside it.

Calls do not show it: a copy of 3 MB is one call. Texts that count their characters stand in what each rule flags, and
each list and map there grows. A text that is read more often then is made long, and may not be read as a whole again.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.fixtures import FOLDERS, engine_of, files_of, fixture, verb
from tests.support.growth import ALL, FIRST, KINDS, growths, pods, shape
from tests.support.texts import Meter as Characters
from tests.support.texts import Text
from webhook.allowance import Allowance
from webhook.api import admission
from webhook.documents import documents
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Path as Place
from webhook.model import Request, Requester, dotted

FREE = {"labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests", "overhead", "data"}
"""Maps of which the author of an object chooses the keys."""

SENDER = ("user", "group")
"""The names of a user and a group: an API server sends no long ones, but a stranger may."""

FEW, MORE = 2, 6
"""How many times as long a list is."""

LONG = 1_000_000
"""Characters of a long text: more than any bound of ours."""

PER_UNIT = 10_000
"""Characters that may be read for each unit that is paid (webhook/allowance.py): they take about as long."""


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the parser plain texts, since it is written in C and takes no others."""
    monkeypatch.setattr(yaml, "CSafeLoader", lambda stream, loader=yaml.CSafeLoader: loader("".join([stream])))


class Meter(Characters):
    """Counts the units that are paid, too."""

    def __init__(self) -> None:
        super().__init__()
        once, self.paid = Allowance.spend, 0

        def spend(allowance: Allowance, what: str, count: int = 1, price: int = 1) -> None:
            self.paid += count * price
            once(allowance, what, count, price)

        self.spend = spend


def texts(value: Any, path: Place = ()) -> Iterator[tuple[Place, str]]:
    """Return the texts of an object, and the keys that its author chooses. A key's place ends with an empty name."""
    if isinstance(value, dict):
        for key, each in value.items():
            if path and path[-1] in FREE:
                yield (*path, key, ""), key
            yield from texts(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from texts(each, (*path, number))
    elif isinstance(value, str):
        yield path, value


def counting(value: Any, meter: Meter, outside: Place, long: Place | None, path: Place = ()) -> Any:
    """Return an object with texts that count, but for those in the list at a place. The text at `long` is made long."""
    if path == outside:
        return value
    if isinstance(value, dict):
        free = path and path[-1] in FREE
        return {
            (_counting(key, meter, long, (*path, key, "")) if free else key): counting(
                each, meter, outside, long, (*path, key)
            )
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [counting(each, meter, outside, long, (*path, number)) for number, each in enumerate(value)]
    return _counting(value, meter, long, path) if isinstance(value, str) else value


def _counting(value: str, meter: Meter, long: Place | None, path: Place) -> str:
    return Text(value + "x" * LONG if path == long else value, meter, dotted(path))


def read(engine: Engine, facts: Facts, request: Request, item: Any, outside: Place, long: Place | None) -> Meter:
    """Count the characters that are read of the texts outside a list, where an object is created and changed."""
    meter = Meter()
    item = counting(item, meter, outside, long)
    changed = {**item, "metadata": {**(item.get("metadata") or {}), "labels": {"changed": "x"}}}
    user, group = (_counting(each, meter, long, (each,)) for each in SENDER)
    sender = Requester(user, frozenset((group,)))
    created = replace(request, operation="CREATE", object=item, old_object=None, size=None, requester=sender)
    asked = replace(created, operation="UPDATE", object=changed, old_object=item)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Allowance, "spend", meter.spend)
        engine.mutate(created, facts)
        engine.validate(created, facts)
        engine.validate(asked, facts)
    return meter


def products(engine: Engine, facts: Facts, request: Request, item: Any, seen: set[Any]) -> dict[str, int]:
    """Return how often a long text is read as a whole more with a longer list, by text and list, if it is not paid."""
    found = {}
    named = {dotted(path): path for path in (*(path for path, _ in texts(item)), *((each,) for each in SENDER))}
    for place, grow in growths(item):
        if place[0] == "text" or (shape(place) in seen and not ALL):
            continue
        seen.add(shape(place))
        few, more = grow(FEW), grow(MORE)
        before, after = (read(engine, facts, request, each, place, None).by for each in (few, more))
        for name in [name for name, count in after.items() if count > before.get(name, 0) and name in named]:
            meters = [read(engine, facts, request, each, place, named[name]) for each in (few, more)]
            further = meters[1].by.get(name, 0) - meters[0].by.get(name, 0)
            if further >= max(LONG, PER_UNIT * (meters[1].paid - meters[0].paid)):
                found[f"{name} for each of {dotted(place)}"] = further // LONG
    return found


def forms(request: Request, item: dict[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield an object as it is, and a pod as other kinds too.

    Messages about a DaemonSet name its service account. Each template of a Workflow gets its spec's fields.
    """
    yield (request.group, request.kind), item
    if item.get("kind") == "Pod":
        name, spec = {"name": "a", "namespace": request.namespace}, item.get("spec") or {}
        template = {**item, "spec": {"serviceAccountName": "agent", **spec}}
        yield ("apps", "DaemonSet"), {"kind": "DaemonSet", "metadata": name, "spec": {"template": template}}
        spec = {**spec, "podMetadata": item.get("metadata") or {}, "templates": [{"container": {}}]}
        yield ("argoproj.io", "Workflow"), {"kind": "Workflow", "metadata": name, "spec": spec}


@pytest.mark.parametrize("fixtures", [1, pytest.param(None, marks=pytest.mark.thorough)], ids=["first", "every"])
@pytest.mark.parametrize("rule", FOLDERS)
def test_a_rule_reads_no_text_for_each_entry(rule: str, fixtures: int | None) -> None:
    engine, facts = engine_of(rule)
    seen: set[Any] = set()
    found = {}
    for file in [each for each in files_of(rule) if ALL or verb(each) != "allow"][:fixtures]:
        request = fixture(file)[2]
        for kind, item in forms(request, dict(request.object or {})):
            asked = replace(request, group=kind[0], kind=kind[1])
            for what, times in products(engine, facts, asked, item, seen).items():
                found[f"{file.stem}: {what}"] = times
    assert not found


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "every"])
def test_no_field_of_a_pod_is_read_for_each_entry(engine: Engine, sample_facts: Facts, step: int) -> None:
    found, seen = dict[str, int](), set[Any]()
    for number, (_, item) in enumerate(pods()):
        if number % step == 0:
            found |= products(engine, sample_facts, admission.decode(admission.wrap(item)), item, seen)
    assert not found


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=() if file.stem in FIRST else pytest.mark.thorough, id=file.stem) for file in KINDS],
)
def test_no_text_of_a_workload_is_read_for_each_entry(engine: Engine, sample_facts: Facts, file: Path) -> None:
    (document,), _ = documents.read(file.read_text("utf-8"), file.name)
    request = admission.decode(admission.wrap(document.value))
    assert not products(engine, sample_facts, request, document.value, set())
