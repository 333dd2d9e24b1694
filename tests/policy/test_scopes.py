"""Scopes and pools: an index of them leaves none out that has a pod, or a class."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.policies import POLICY, policy_of
from webhook.api.selectors import Requirement, Selector
from webhook.catalog.names import Names
from webhook.policy.scopes import ByNamespace, Scope

NAMES = st.sampled_from(("", "red", "green", "blue"))
LABELS = st.none() | st.dictionaries(st.just("team"), NAMES)
SELECTORS = st.none() | st.builds(
    Selector,
    st.dictionaries(st.just("team"), NAMES),
    st.just(()) | st.just((Requirement("team", "DoesNotExist"),)),
)
ACCOUNTS = st.frozensets(st.sampled_from(("default", "ci")))
SCOPES = st.none() | st.builds(Scope, st.frozensets(NAMES), SELECTORS, ACCOUNTS, st.booleans())


@given(st.lists(SCOPES), NAMES, LABELS)
def test_the_scopes_near_a_namespace_are_all_that_have_it_in_their_order(
    scopes: list[Scope | None], namespace: str, labels: dict[str, str] | None
) -> None:
    numbered = list(enumerate(scopes))
    near = ByNamespace(numbered, lambda one: one[1]).near(namespace)
    having = [one for one in numbered if one[1] is None or one[1].reaches(namespace, labels)]
    assert [one for one in near if one in having] == having


@given(st.lists(SCOPES), NAMES)
def test_scopes_that_only_name_other_namespaces_are_not_near_one(scopes: list[Scope | None], namespace: str) -> None:
    for scope in ByNamespace(scopes, lambda one: one).near(namespace):
        if scope is not None and scope.namespaces and scope.selector is None and not scope.everywhere:
            assert namespace in scope.namespaces


SAMPLE = policy_of(POLICY)
PIECES = st.text("ab.", max_size=3)
PATTERNS = st.lists(st.builds(str.__add__, PIECES, st.sampled_from(("", "*"))).filter(bool), max_size=4)


@given(st.lists(PATTERNS, max_size=5), PIECES)
def test_the_pools_of_a_class_are_those_whose_patterns_match(patterns: list[list[str]], name: str) -> None:
    pools = [replace(SAMPLE.pools[0], device_classes=Names(each)) for each in patterns]
    policy = replace(SAMPLE, pools=tuple(pools))
    assert policy.pools_of_class(name) == tuple(pool for pool in pools if name in pool.device_classes)


def test_no_pool_is_looked_at_for_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 requests took a second in a policy of 200 pools."""
    policy = replace(SAMPLE, pools=(replace(SAMPLE.pools[0], device_classes=Names(("a*",))),) * 200)
    monkeypatch.delattr(Names, "__contains__")
    assert (len(policy.pools_of_class("ab")), policy.pools_of_class("b")) == (200, ())
