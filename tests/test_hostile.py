"""Objects of the size that an API server lets through, made to cost as much as they can.

What each costs is counted in calls of Python functions, not in seconds: the count is the same on every machine.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from webhook import review
from webhook.engine import MAX_OPERATIONS, Engine
from webhook.facts import Facts

CALLS_PER_BYTE = 6
"""Far above what an honest object of the size costs, and far below anything that is not linear."""


def calls(work: Callable[[], object]) -> int:
    count = 0

    def counted(_: Any, event: str, __: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def pod(**spec: Any) -> dict[str, Any]:
    gpu = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "p", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [gpu], **spec}}


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def expression(operator: str, *values: object, key: str = "k") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": [str(value) for value in values]}


def config_map(text: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "visitors"},
        "data": {"a": text},
    }


BOUNDS = [expression("Gt", n) for n in range(500)] + [expression("Lt", 10**9)]
HOSTILE = {
    "bounds and exclusions": pod(affinity=affinity([expression("NotIn", *range(3000)), *BOUNDS])),
    "sets to intersect": pod(
        affinity=affinity(
            [expression("In", *range(9000)), expression("NotIn", *range(9000)), *[expression("Exists")] * 900]
        )
    ),
    "terms times selector": pod(
        nodeSelector={f"l{n}": "x" for n in range(4000)}, affinity=affinity(*[[expression("Exists")]] * 4000)
    ),
    "containers that all need caps": pod(
        initContainers=[{"name": f"c{n}", "resources": {"limits": {"nvidia.com/gpu": 1}}} for n in range(3000)]
    ),
    "a text that looks like a configuration": config_map("# sharing mps\n" + "a: [" + "x," * 30_000 + "]"),
    "a larger one": config_map("# sharing mps\n" + "- a\n" * 300_000),
    "findings without end": config_map(
        "sharing:\n  timeSlicing:\n    resources:\n" + "".join(f"    - {{replicas: {n}}}\n" for n in range(2500, 5000))
    ),
}


@pytest.mark.parametrize("item", HOSTILE.values(), ids=HOSTILE)
def test_work_is_linear_in_the_size_of_an_object(engine: Engine, sample_facts: Facts, item: dict[str, Any]) -> None:
    body = review.wrap(item)
    request = review.decode(body)
    work = calls(lambda: (engine.mutate(request, sample_facts), engine.validate(request, sample_facts)))
    assert work < CALLS_PER_BYTE * len(body)


def test_a_patch_too_large_for_an_answer_is_not_made(engine: Engine, sample_facts: Facts) -> None:
    request = review.decode(review.wrap(HOSTILE["containers that all need caps"]))
    assert engine.mutate(request, sample_facts).patch == ()
    assert not engine.validate(request, sample_facts).allowed
    verdict = engine.judge(request, sample_facts)
    assert verdict.malformed is not None
    assert str(MAX_OPERATIONS) in str(verdict.malformed)
