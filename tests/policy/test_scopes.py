"""Scopes: an index of them by namespace leaves none out that has a pod."""

from hypothesis import given
from hypothesis import strategies as st

from webhook.api.selectors import Requirement, Selector
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
