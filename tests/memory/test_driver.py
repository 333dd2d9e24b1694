"""A tenant's own limit for the driver: after it was judged, NVIDIA's hook sets no more than the slice."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.limit_hook import MOST, TEXTS, Limits, hooked, hooked_later
from webhook.catalog.device_variables import MEMORY_LIMIT, MEMORY_LIMITS, MEMORY_REQUEST, MEMORY_REQUESTS
from webhook.memory import environment
from webhook.memory.budget import budget
from webhook.memory.driver import variables
from webhook.memory.steps import WRITES, Cap, Environment, StepKind, describe
from webhook.policy.model import Card, Policy

CAP = budget(Card("Tesla-T4", 15360, 4), Policy("p", ()))


@pytest.mark.parametrize(
    ("request_", "limit", "expected"),
    [
        ("4096", "8192", (4096, 8192)),
        (None, "8192", (8192, 8192)),
        ("4096", None, (4096, MOST)),
        ("8192", "4096", "above"),
        (None, None, None),
        (None, "0", (0, 0)),
        (None, "8Gi", "no number"),
        (None, "", "no number"),
        (None, " 8192", "no number"),
        (None, "-1", "no number"),
        (None, "99999999999999999999", "too large"),
    ],
)
def test_the_hook_is_played_as_it_was_seen(request_: str | None, limit: str | None, expected: Limits) -> None:
    env = {MEMORY_REQUEST: request_, MEMORY_LIMIT: limit}
    assert hooked({name: value for name, value in env.items() if value is not None}) == expected


@given(env=st.dictionaries(st.sampled_from(variables.NAMES), st.one_of(TEXTS, TEXTS, TEXTS, st.none())))
def test_what_passes_starts_with_a_hard_limit_within_the_slice(env: Environment) -> None:
    after = environment.applied(env, variables.merge(env, CAP))
    left = list(variables.merge(after, CAP))
    assert not any(step.kind in WRITES for step in left)
    assert after.keys() == env.keys()
    if any(step.kind is StepKind.REFUSE for step in left):
        event("refused")
        return
    assert not any(value is None or "$(" in value for value in after.values())
    for hook in (hooked, hooked_later):
        limits = hook(after)
        event(f"{hook.__name__}: {'limited' if limits else 'without'}")
        assert not isinstance(limits, str)
        if limits is not None:
            assert limits[0] <= limits[1] <= CAP.slice
            assert limits[1] > 0
            was = hook(env)
            assert isinstance(was, str) or was is None or was[1] in (0, limits[1]) or was[1] > CAP.slice


@given(limit=st.integers(1, CAP.slice), share=st.one_of(st.none(), st.fractions(0, 1)))
def test_a_limit_within_the_slice_stays_as_it_is(limit: int, share: float | None) -> None:
    env = {MEMORY_LIMIT: str(limit)}
    if share is not None:
        env[MEMORY_REQUEST] = str(int(limit * share))
    assert not list(variables.merge(env, CAP))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({MEMORY_REQUESTS: "1", MEMORY_LIMITS: "2"}, (1, 2)),
        ({MEMORY_REQUEST: "1", MEMORY_LIMIT: "2"}, (1, 2)),
        ({MEMORY_REQUESTS: "1", MEMORY_LIMITS: "9", MEMORY_REQUEST: "1", MEMORY_LIMIT: "2"}, (1, 9)),
        ({MEMORY_REQUEST: "1", MEMORY_LIMITS: "9", MEMORY_LIMIT: "2"}, (1, 9)),
        ({MEMORY_LIMITS: "9"}, None),
        ({MEMORY_LIMIT: "9"}, None),
        ({MEMORY_REQUESTS: "9"}, None),
    ],
)
def test_the_later_hook_is_played_as_its_source_says(env: Environment, expected: Limits) -> None:
    assert hooked_later(env) == expected


@given(limit=st.integers(1, CAP.slice), share=st.fractions(0, 1))
def test_both_spellings_of_one_limit_stay_as_they_are(limit: int, share: float) -> None:
    request = str(int(limit * share))
    env = {MEMORY_LIMIT: str(limit), MEMORY_LIMITS: str(limit), MEMORY_REQUEST: request, MEMORY_REQUESTS: request}
    assert not list(variables.merge(env, CAP))


@given(env=st.dictionaries(st.sampled_from(variables.NAMES), TEXTS, min_size=1))
def test_whoever_does_what_a_denial_says_is_let_in(env: Environment) -> None:
    for step in variables.merge(env, CAP):
        said = describe(step, CAP)
        assert step.name in said
        assert ("remove it" in said) is (step.kind is StepKind.REFUSE)
    for _ in range(3):
        refused = [step.name for step in variables.merge(env, CAP) if step.kind is StepKind.REFUSE]
        env = {name: value for name, value in env.items() if name not in refused}
    assert not any(step.kind is StepKind.REFUSE for step in variables.merge(env, CAP))


def test_no_policy_leaves_it_out_and_nothing_is_added() -> None:
    for frameworks in (None, (), ("pytorch",)):
        cap = Cap(CAP, Policy("p", (), frameworks=frameworks))
        assert not any(step.name in variables.NAMES for step in environment.merge({}, cap))
        (step,) = (step for step in environment.merge({MEMORY_LIMIT: "40000"}, cap) if step.name == MEMORY_LIMIT)
        assert (step.kind, step.value) == (StepKind.LOWER, str(CAP.slice))
