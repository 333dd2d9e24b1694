"""No work grows faster than what causes it: each list and each map of an object, made longer, through every rule.

Work is counted in calls, in lines of Python and in characters of messages, which are the same on every machine. Rules
are tried on their own fixtures, so that a new one is with no word here: each list and map of what it flags grows eight
times. `GROWTH=all` takes every fixture, and not one for each place.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.support.fixtures import FOLDERS, engine_of, files_of, fixture, verb
from tests.support.growth import ALL, FIRST, KINDS, Grow, growths, pods, shape
from tests.support.objects import pod
from webhook import allowance
from webhook.api import admission
from webhook.api.pods import CONTAINER_LISTS
from webhook.catalog import host_paths
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Finding, Request, dotted
from webhook.model import Path as Place
from webhook.rules import Rule

MORE = (4, 8, 16, 32)
SIZES = (2, 4, 8, 16)
FEWER = (1, 2, 4, 8)
"""How many times as long a list or map is made: fewer where one is many things, as a workload's templates are."""

COUNTED = 20
"""Calls and lines that an entry costs which is counted and no more, three times over: of that there is no doubt."""

STEEPER = 1.015
"""How much more an entry may cost when there are twice as many: with the square it would be up to twice as much."""


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the clock from the first entry on, so that none costs more than those before it."""
    monkeypatch.setattr(allowance, "FEW", 1)


class Work:
    """Counts the calls and the lines of what is run within it, and whatever is added.

    A garbage collection that falls into it counts for nothing: it may end what other tests have left.
    """

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Work":
        gc.disable()
        sys.setprofile(self._called)
        sys.settrace(self._entered)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        sys.setprofile(None)
        gc.enable()

    def _called(self, _frame: FrameType, event: str, _: object) -> None:
        if event == "c_call":
            self.count += 1

    def _entered(self, frame: FrameType, _event: str, _: object) -> "Callable[[FrameType, str, object], Any] | None":
        self.count += 1
        return None if frame.f_code.co_filename.endswith("difflib.py") else self._line  # for so many lines in one guess

    def _line(self, _frame: FrameType, event: str, _: object) -> "Callable[[FrameType, str, object], Any]":
        if event == "line":
            self.count += 1
        return self._line


def measured(engine: Engine, work: Work) -> Engine:
    """The engine with rules of which the length of every message counts as work, before it is cut."""

    def heard(rule: Rule) -> Rule:
        def check(review: Any) -> Iterator[Finding]:
            for finding in rule.check(review):
                work.count += len(finding.message) + sum(map(len, finding.parts))
                yield finding

        return replace(rule, check=check)

    return Engine(engine.policy, [heard(rule) for rule in engine.rules])


def cost(engine: Engine, facts: Facts, request: Request, item: dict[str, Any]) -> int:
    """Count what it costs to create an object, to update it, and to update one that has as much of other names."""
    work = Work()
    engine = measured(engine, work)
    created = replace(request, operation="CREATE", object=item, old_object=None, size=None)
    changed = {**item, "metadata": {**(item.get("metadata") or {}), "labels": {"changed": "x"}}}
    asked = replace(created, operation="UPDATE", object=changed, old_object=item)
    with work:
        engine.mutate(created, facts)
        engine.validate(created, facts)
        engine.validate(asked, facts)
        engine.validate(replace(asked, operation="DELETE"), facts)
    return work.count


def steepness(engine: Engine, facts: Facts, request: Request, grow: Grow, sizes: Sequence[int]) -> float:
    """How many times as much the last entries cost as those before: about 1 where work is linear."""
    few, most = (cost(engine, facts, request, grow(size)) for size in (sizes[0], sizes[-1]))
    if most - few < COUNTED * (sizes[-1] - sizes[0]):
        return 1.0
    costs = [few, *(cost(engine, facts, request, grow(size)) for size in sizes[1:-1]), most]
    *_, before, last = (
        (more - less) / (size - smaller)
        for (less, more), (smaller, size) in zip(pairwise(costs), pairwise(sizes), strict=True)
    )
    return last / before


# Rules, on what they flag


@pytest.mark.parametrize("fixtures", [1, pytest.param(None, marks=pytest.mark.thorough)], ids=["first", "every"])
@pytest.mark.parametrize("rule", FOLDERS)
def test_a_rule_costs_each_entry_the_same(rule: str, fixtures: int | None) -> None:
    seen: set[str] = set()
    wrong = {}
    engine, facts = engine_of(rule)
    for file in [each for each in files_of(rule) if ALL or verb(each) != "allow"][:fixtures]:
        request = fixture(file)[2]
        item = dict(request.object or {})
        cost(engine, facts, request, item)  # what is done once in a process, and remembered
        for path, grow in growths(item):
            if shape(path) in seen and not ALL:
                continue
            seen.add(shape(path))
            steep = steepness(engine, facts, request, grow, FEWER if path[0] == "text" else SIZES)
            if steep > STEEPER:
                wrong[f"{file.stem}: {dotted(path)}"] = round(steep, 2)
    assert not wrong


# All rules, on every place of a pod, and of each kind that holds pods or claims


@pytest.mark.parametrize("step", [6, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "every"])
def test_each_place_of_a_pod_costs_each_entry_the_same(engine: Engine, sample_facts: Facts, step: int) -> None:
    """`make test` tries every sixth field, and those in which tenants write most."""
    found, seen = {}, set[Place]()
    for number, (field, item) in enumerate(pods()):
        if number % step and field[-1] not in ("env", "volumes", "tolerations", "metadata"):
            continue
        request = admission.decode(admission.wrap(item))
        cost(engine, sample_facts, request, item)
        for path, grow in growths(item):
            alike = path if ALL else tuple(key for key in path if isinstance(key, str))[-3:]
            if path[: len(field)] == field and alike not in seen:
                seen.add(alike)
                found[dotted(path)] = steepness(engine, sample_facts, request, grow, MORE)
    assert {"spec.containers[0].env", "spec.volumes", "spec.tolerations", "metadata.annotations"} <= found.keys()
    assert not {place: round(steep, 2) for place, steep in found.items() if steep > STEEPER}


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=() if file.stem in FIRST else pytest.mark.thorough, id=file.stem) for file in KINDS],
)
def test_each_place_of_a_workload_costs_each_entry_the_same(engine: Engine, sample_facts: Facts, file: Path) -> None:
    (document,), _ = read(file.read_text("utf-8"), file.name)
    request = admission.decode(admission.wrap(document.value))
    cost(engine, sample_facts, request, document.value)
    outside = [(path, grow) for path, grow in growths(document.value) if ALL or not {*CONTAINER_LISTS} & {*path[:-1]}]
    found = {dotted(path): steepness(engine, sample_facts, request, grow, FEWER) for path, grow in outside}
    assert not {place: round(steep, 2) for place, steep in found.items() if steep > STEEPER}


def test_two_lists_of_a_pod_cost_no_product(engine: Engine, sample_facts: Facts) -> None:
    """Each finding about a variable says how to request a GPU, which depends on where the pod may run."""

    def both(times: int) -> dict[str, Any]:
        env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}] * times
        conditions = [{"key": f"k{number}", "operator": "Exists"} for number in range(times)]
        required = {"nodeSelectorTerms": [{"matchExpressions": conditions}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        spec = {"containers": [{"name": "a", "env": env}], "affinity": affinity}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "vision"}, "spec": spec}

    request = admission.decode(admission.wrap(both(1)))
    cost(engine, sample_facts, request, both(1))
    assert steepness(engine, sample_facts, request, both, SIZES) <= STEEPER


def test_the_path_of_a_volume_is_not_read_again_for_each_mount(
    engine: Engine, sample_facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, normal = list[str](), host_paths.normal

    def reading(path: str) -> str:
        read.append(path)
        return normal(path)

    monkeypatch.setattr(host_paths, "normal", reading)

    def reads(mounts: int) -> int:
        container = {"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}] * mounts}
        spec = {"containers": [container], "volumes": [{"name": "v", "hostPath": {"path": "/usr/share/zoneinfo/x"}}]}
        tolerations = [{"key": "slicewarden.dev/pool", "operator": "Exists"}]
        made = pod(**spec, tolerations=tolerations)
        request = admission.decode(admission.wrap(made))
        read.clear()
        verdicts = engine.mutate(request, sample_facts), engine.validate(request, sample_facts)
        assert any(each.patch or each.malformed for each in verdicts)
        return sum(path.endswith("/x") for path in read)

    assert 0 < reads(2_000) == reads(2)


def test_a_debug_container_is_mended_in_a_pod_with_more_mounts_than_a_patch_has_changes(
    engine: Engine, sample_facts: Facts
) -> None:
    mounts = [{"name": "v", "mountPath": f"/{number}", "readOnly": True} for number in range(200)]
    volumes = [{"name": "v", "hostPath": {"path": "/var/log"}}]
    tolerations = [{"key": "slicewarden.dev/pool", "operator": "Exists"}]
    old = pod(containers=[{"name": "a", "volumeMounts": mounts}], volumes=volumes, tolerations=tolerations)
    new = {**old, "spec": {**old["spec"], "ephemeralContainers": [{"name": "b", "volumeMounts": mounts[:1]}]}}
    created = admission.decode(admission.wrap(new))
    request = replace(created, operation="UPDATE", subresource="ephemeralcontainers", old_object=old)
    (operation,) = [each for each in engine.mutate(request, sample_facts).patch if "volumeMounts" in each["path"]]
    assert operation["path"].startswith("/spec/ephemeralContainers/0/volumeMounts/0")
