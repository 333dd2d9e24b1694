"""Large policies, made to cost as much as they can: whoever reaches the webhook's port may send one.

What each costs is counted in calls of Python functions, not in seconds: the count is the same on every machine.
"""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import calls
from tests.support.policies import POLICY, RULES
from webhook.api.selectors import contradiction
from webhook.memory import frameworks
from webhook.model import Unusable
from webhook.policy.consistency import inconsistencies
from webhook.policy.decode import selector
from webhook.policy.load import of_object

CALLS_PER_BYTE = 25
"""Above the cost of naming an error with the library for JSON Schema. A comparison of each two pools takes 80."""

CALLS = 4_000_000
"""Of any policy: 0.4 s. The library for JSON Schema makes 13 million in one of 500 KB."""

POOLS = 250
SAMPLE: dict[str, Any] = yaml.safe_load(POLICY.read_text("utf-8"))
NAMES = [f"{'abcdefghij' * 5}"[n % 10 :] + str(n) for n in range(POOLS)]


def on(key: str, operator: str, *values: object) -> dict[str, Any]:
    values_of = {"values": [*map(str, values)]} if values else {}
    return {"key": key, "operator": operator, **values_of}


def pool(number: int, *expressions: dict[str, Any], **more: Any) -> dict[str, Any]:
    first = SAMPLE["spec"]["pools"][0]
    kept = {key: first[key] for key in ("sharing", "trust", "tolerations") if key in first}
    resources = {"resources": ["nvidia.com/gpu"], "nodes": {"matchExpressions": [*expressions]}}
    return {"name": f"p{number}", **kept, **resources, **more}


def policy(*pools: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {**SAMPLE, "spec": {"pools": [*pools], "guard": SAMPLE["spec"]["guard"], **spec}}


def mixed(name: str) -> str:
    """Return the letters of a name in another order: a guess compares such names to the end."""
    return "a" + name[1::3] + name[::3] + name[2::3]


EXISTING = [on(f"k{n}", "Exists") for n in range(40)]
LARGE = {
    "labels before the one that differs": policy(*(pool(n, *EXISTING, on("z", "In", n)) for n in range(POOLS))),
    "labels of which each two differ": policy(
        *(pool(n, *EXISTING, *(on(f"b{bit}", "In", n >> bit & 1) for bit in range(8))) for n in range(POOLS))
    ),
    "labels that exist or not": policy(
        *(
            pool(n, *EXISTING, *(on(f"b{bit}", "Exists" if n >> bit & 1 else "DoesNotExist") for bit in range(8)))
            for n in range(POOLS)
        )
    ),
    "excluded values": policy(
        *(pool(n, *(on(f"k{key}", "NotIn", n) for key in range(36)), on("z", "In", n)) for n in range(POOLS))
    ),
    "listed values": policy(*(pool(n, on("z", "In", *range(n * 200, n * 200 + 200))) for n in range(POOLS))),
    "the same values": policy(*(pool(n, on("y", "In", *range(200)), on("z", "In", n)) for n in range(POOLS))),
    "pools that all overlap": policy(*(pool(n, *EXISTING) for n in range(POOLS))),
    "an error at the end": policy(
        *(pool(n, *EXISTING, on("z", "In", n)) for n in range(POOLS - 1)), pool(POOLS, sharing="x")
    ),
    "pools of similar names that are unknown": policy(
        *(pool(n, on("z", "In", n), name=NAMES[n]) for n in range(POOLS)),
        overrides=[
            {"pools": [mixed(NAMES[(n + place) % POOLS]) for place in range(20)], "rules": {"device-path": "Warn"}}
            for n in range(200)
        ],
    ),
    "pools named again and again": policy(
        *(pool(n, on("z", "In", n), name=NAMES[n]) for n in range(POOLS)),
        overrides=[{"pools": [NAMES[-1]] * 32, "rules": {"device-path": "Warn"}}] * 200,
    ),
    "rules of similar names that are unknown": policy(
        pool(0, on("z", "In", 0)),
        exemptions=[
            {
                "name": f"e{n}",
                "reason": "a",
                "until": "2027-01-01",
                "namespaces": ["a"],
                "rules": [mixed(f"device-path-{n}-{place}") for place in range(60)],
            }
            for n in range(200)
        ],
    ),
    "more entries than there may be": policy(
        pool(0, on("z", "In", 0)),
        priorities=[
            {"classes": ["a"], "namespaceSelector": {"matchLabels": {f"{n:x}": "" for n in range(64)}}}
            for _ in range(800)
        ],
    ),
    "more labels than there may be": policy(
        {**pool(0), "nodes": {"matchLabels": {f"{n:x}": "" for n in range(50_000)}}}
    ),
    "more grants than there may be": policy(pool(0, on("z", "In", 0)), trust={"grants": [{"rbac": True}] * 30_000}),
    "unknown keys": policy(pool(0, on("z", "In", 0), **{mixed(f"maxActiveDeadline{n}"): 1 for n in range(10_000)})),
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_work_is_linear_in_the_size_of_a_policy(value: dict[str, Any]) -> None:
    def read() -> None:
        try:
            of_object(value, RULES, frameworks=frameworks.names())
        except Unusable as error:
            assert error.problems  # noqa: PT017 - both outcomes are among the policies above

    read()  # imports and caches are not part of the cost
    assert calls(read) < min(CALLS_PER_BYTE * len(json.dumps(value)), CALLS)


LABELS, VALUES = st.sampled_from(["a", "b"]), st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, unique=True)
CONDITIONS = st.one_of(
    st.builds(
        lambda key, operator, values: on(key, operator, *values), LABELS, st.sampled_from(["In", "NotIn"]), VALUES
    ),
    st.builds(on, LABELS, st.sampled_from(["Exists", "DoesNotExist"])),
)
SELECTORS = st.builds(lambda each: {"matchExpressions": each}, st.lists(CONDITIONS, max_size=4))


@given(st.lists(st.none() | SELECTORS, min_size=2, max_size=6))
def test_overlapping_pools_are_those_whose_conditions_one_node_can_meet(nodes: list[dict[str, Any] | None]) -> None:
    pools = [
        {"name": str(place), "sharing": "none", **({} if each is None else {"nodes": each})}
        for place, each in enumerate(nodes)
    ]
    found = [(path[2], text) for path, text in inconsistencies({"pools": pools}) if " overlaps pool " in text]
    read = [None if each is None else selector(each).requirements for each in nodes]
    assert [(place, text.split(":")[0]) for place, text in found] == [
        (place, f'pool "{place}" overlaps pool "{before}"')
        for place, mine in enumerate(read)
        for before, other in enumerate(read[:place])
        if mine is not None and other is not None and contradiction(mine + other) is None
    ]
