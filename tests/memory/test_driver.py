"""A tenant's own limit for the driver: after it was judged, NVIDIA's hook sets no more than the slice."""

import re

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from webhook.catalog.device_variables import MEMORY_LIMIT, MEMORY_LIMITS, MEMORY_REQUEST, MEMORY_REQUESTS
from webhook.memory import driver, environment
from webhook.memory.budget import budget
from webhook.memory.steps import WRITES, Cap, Environment, StepKind, describe
from webhook.policy.model import Card, Policy

CAP = budget(Card("Tesla-T4", 15360, 4), Policy("p", ()))
MOST = 2**64 - 1

Limits = tuple[int, int] | str | None
"""The soft and the hard limit in MiB, why the container is not created, or None for none."""


def hooked(env: Environment) -> Limits:
    """Tell what `apply-cuda-memory-limits` does (nvidia-container-toolkit v1.20.1, and runs of it by containerd)."""
    return _set(env.get(MEMORY_REQUEST), env.get(MEMORY_LIMIT))


def hooked_later(env: Environment) -> Limits:
    """Tell what newer sources of it do: each name in the plural goes first, and without both nothing is set."""
    request, limit = env.get(MEMORY_REQUESTS, env.get(MEMORY_REQUEST)), env.get(MEMORY_LIMITS, env.get(MEMORY_LIMIT))
    return None if request is None or limit is None else _set(request, limit)


def _set(request: str | None, limit: str | None) -> Limits:
    if request is None and limit is None:
        return None
    if any(each is not None and not re.fullmatch(r"[0-9]+", each, re.ASCII) for each in (request, limit)):
        return "no number"
    soft, hard = (None if each is None else int(each) for each in (request, limit))
    if any(each is not None and each * 2**20 > MOST for each in (soft, hard)):
        return "too large"
    if soft is not None and hard is not None and soft > hard:
        return "above"
    return (soft if soft is not None else hard or 0, MOST if hard is None else hard)


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


NUMBERS = st.one_of(st.integers(0, 2 * CAP.slice), st.sampled_from((0, 1, CAP.slice, CAP.slice + 1, 2**44, 2**64)))
TEXTS = st.one_of(
    NUMBERS.map(str),
    st.sampled_from(("", " 1", "1 ", "8Gi", "+1", "1_0", "1.5", "1e3", "-1", "007", "\u0661", "$(N)")),
    st.text(max_size=3),
)


@given(env=st.dictionaries(st.sampled_from(driver.NAMES), st.one_of(TEXTS, TEXTS, TEXTS, st.none())))
def test_what_passes_starts_with_a_hard_limit_within_the_slice(env: Environment) -> None:
    after = environment.applied(env, driver.merge(env, CAP))
    left = list(driver.merge(after, CAP))
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
    assert not list(driver.merge(env, CAP))


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
    assert not list(driver.merge(env, CAP))


@given(env=st.dictionaries(st.sampled_from(driver.NAMES), TEXTS, min_size=1))
def test_whoever_does_what_a_denial_says_is_let_in(env: Environment) -> None:
    for step in driver.merge(env, CAP):
        said = describe(step, CAP)
        assert step.name in said
        assert ("remove it" in said) is (step.kind is StepKind.REFUSE)
    for _ in range(3):
        refused = [step.name for step in driver.merge(env, CAP) if step.kind is StepKind.REFUSE]
        env = {name: value for name, value in env.items() if name not in refused}
    assert not any(step.kind is StepKind.REFUSE for step in driver.merge(env, CAP))


def test_no_policy_leaves_it_out_and_nothing_is_added() -> None:
    for frameworks in (None, (), ("pytorch",)):
        cap = Cap(CAP, Policy("p", (), frameworks=frameworks))
        assert not any(step.name in driver.NAMES for step in environment.merge({}, cap))
        (step,) = (step for step in environment.merge({MEMORY_LIMIT: "40000"}, cap) if step.name == MEMORY_LIMIT)
        assert (step.kind, step.value) == (StepKind.LOWER, str(CAP.slice))
