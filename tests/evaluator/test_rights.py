"""Trust by RBAC: engine, fallback and mutations have the answer of Kubernetes' own authorizer."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.evaluator import generated
from tests.evaluator.evaluator import Compared, Comparison, Evaluator, request_for
from tests.evaluator.generated import POLICIES
from tests.support.policies import FACTS, facts_of, policy_of
from tests.support.records import trying
from webhook.facts import rights
from webhook.facts.rights import Account, GrantedRight
from webhook.facts.snapshot import Facts
from webhook.fallback.mutations import mutating
from webhook.fallback.policies import fallback
from webhook.policy.model import Policy
from webhook.policy.scopes import Grant, Scope
from webhook.rules import walk

Object = dict[str, Any]

SPACES, NAMES = ("vision", "visitors", "kube-system", "nowhere"), ("default", "trainer")
ACCOUNTS = [Account(space, name) for space in SPACES for name in (*NAMES, "")]
RIGHTS, PODS = 600, 600
EVERYWHERE = Grant(Scope(frozenset(), None, frozenset(), everywhere=True), rbac=True)


def words(*some: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(some), max_size=2)


@st.composite
def rules(draw: st.DrawFn) -> Object:
    """A rule that gives the right, or lacks a part of it."""
    rule = {"apiGroups": ["slicewarden.dev"], "resources": ["trustlevels"], "verbs": ["use"], "resourceNames": []}
    parts = {
        "apiGroups": words("slicewarden.dev", "*", "", "example.com"),
        "resources": words("trustlevels", "*", "trustlevels/status", "*/trusted", "pods"),
        "verbs": words("use", "*", "get"),
        "resourceNames": words("trusted", "untrusted", "*"),
    }
    for part in draw(st.sets(st.sampled_from(sorted(parts)), max_size=1)):
        rule[part] = draw(parts[part])
    return rule


def subjects() -> st.SearchStrategy[Object]:
    spaces, names = st.sampled_from(SPACES), st.sampled_from(NAMES)
    user = st.builds("system:serviceaccount:{}:{}".format, spaces, names)
    group = st.one_of(
        st.sampled_from(("system:serviceaccounts", "system:authenticated", "system:masters")),
        spaces.map("system:serviceaccounts:{}".format),
    )
    return st.one_of(
        st.fixed_dictionaries({"kind": st.just("ServiceAccount"), "name": names}, optional={"namespace": spaces}),
        st.fixed_dictionaries({"kind": st.just("ServiceAccount"), "name": names, "namespace": spaces}),
        st.fixed_dictionaries({"kind": st.just("User"), "name": user}),
        st.fixed_dictionaries({"kind": st.just("Group"), "name": group}),
    )


@st.composite
def roles_and_bindings(draw: st.DrawFn) -> list[Object]:
    """Roles and bindings of both kinds, some of which lead nowhere."""
    objects: list[Object] = []
    for kind in draw(st.lists(st.sampled_from(rights.ROLES), min_size=1, max_size=4)):
        item = _item(kind, f"r{draw(st.integers(0, 2))}", draw(st.sampled_from(SPACES)))
        objects.append({**item, "rules": draw(st.lists(rules(), min_size=1, max_size=2))})
    roles = [(item["kind"], item["metadata"]["name"], item["metadata"].get("namespace", "vision")) for item in objects]
    for number in range(draw(st.integers(1, 4))):
        role, name, space = draw(st.sampled_from((*roles, *roles, ("ClusterRole", "gone", "vision"))))
        item = _item(draw(st.sampled_from(rights.BINDINGS)), f"b{number}", space)
        to = {"apiGroup": rights.RBAC, "kind": role, "name": name}
        objects.append({**item, "roleRef": to, "subjects": draw(st.lists(subjects(), min_size=1, max_size=3))})
    # Of namesakes the last counts among facts, and there are none in a cluster.
    return list({(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]): o for o in objects}.values())


def _item(kind: str, name: str, namespace: str) -> Object:
    metadata = {"name": name} if kind.startswith("Cluster") else {"name": name, "namespace": namespace}
    return {"apiVersion": f"{rights.RBAC}/v1", "kind": kind, "metadata": metadata}


def test_roles_and_bindings_are_read_as_kubernetes_reads_them(evaluator: Evaluator) -> None:
    seen = {True: 0, False: 0}

    @trying(RIGHTS)
    @given(roles_and_bindings())
    def alike(objects: list[Object]) -> None:
        answers = evaluator.held(objects, ACCOUNTS)
        for known in (GrantedRight(objects), Facts.of(objects).rights, GrantedRight(rights.needed(_reduced(objects)))):
            assert [known.held(account) for account in ACCOUNTS] == answers
        for answer in answers:
            seen[answer] += 1

    alike()
    print(f"\naccounts with the right and without it: {seen}")
    assert min(seen.values()) > RIGHTS / 2


def _reduced(objects: list[Object]) -> list[Object]:
    """What a file of facts keeps of them."""
    parts = [(item, rights.kept(item)) for item in objects]
    return [{**item, "rules": [], **part} for item, part in parts if part is not None]


def by_rbac(policy: Policy) -> Policy:
    """A policy whose namespaces are trusted by RBAC alone, some of them in one pool."""
    pool = frozenset({policy.pools[0].name})
    narrow = Grant(Scope(frozenset({"visitors"}), None, frozenset({"default"})), pool, rbac=True)
    return replace(policy, grants=(EVERYWHERE, narrow))


@pytest.mark.parametrize("name", POLICIES)
def test_no_pod_is_denied_that_the_engine_allows_where_rbac_gives_trust(evaluator: Evaluator, name: str) -> None:
    file = ROOT / "policies" / name
    policy, facts = by_rbac(policy_of(file)), facts_of(file.parent / "facts.yaml" if "/" in name else FACTS)
    into = Compared()

    @trying(PODS)
    @given(generated.pods(policy, facts), st.data())
    def created(pod: Any, data: st.DataObject) -> None:
        objects = data.draw(roles_here(pod["metadata"]["namespace"]))
        known = replace(facts, rights=GrantedRight(objects))
        Comparison(evaluator, policy, known).add("pod", request_for(pod), into)
        assert into.wrong == []

    created()
    missed = into.missed.get("unearned-trust", [])
    print(
        f"\n{into.judged} judged, {into.allowed} allowed; untrusted: {into.denied.get('unearned-trust')}, {len(missed)}"
    )
    assert into.denied["unearned-trust"] > PODS / 50
    assert missed == []
    assert into.judged > PODS / 2


ROLE: Object = {
    "kind": "ClusterRole",
    "metadata": {"name": rights.ROLE},
    "rules": [{"apiGroups": [rights.GROUP], "resources": [rights.RESOURCE], "verbs": [rights.VERB]}],
}


def bound(subject: Object, namespace: str) -> list[Object]:
    """The role, and its binding to a subject."""
    to = {"apiGroup": rights.RBAC, "kind": "ClusterRole", "name": rights.ROLE}
    metadata = {"name": rights.ROLE, "namespace": namespace}
    return [ROLE, {"kind": "RoleBinding", "metadata": metadata, "roleRef": to, "subjects": [subject]}]


def roles_here(namespace: str) -> st.SearchStrategy[list[Object]]:
    """No right in a namespace, or one for all of its accounts or a single one."""
    whom = st.sampled_from(
        (
            {"kind": "Group", "name": f"system:serviceaccounts:{namespace}"},
            {"kind": "ServiceAccount", "name": "trainer", "namespace": namespace},
            {"kind": "ServiceAccount", "name": "default"},
            {"kind": "Group", "name": "system:authenticated"},
        )
    )

    some = whom.map(lambda subject: bound(subject, namespace))
    return st.one_of(some, some, st.just([ROLE]))


def test_the_question_for_a_right_stays_far_below_what_a_policy_may_cost(evaluator: Evaluator) -> None:
    policy = by_rbac(policy_of(ROOT / "policies" / "sample.yaml"))
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "visitors", "annotations": {policy.annotation: "trusted"}},
        "spec": {"containers": [{"name": "a", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    }
    into, without = Compared(), Compared()
    Comparison(evaluator, policy, facts_of(FACTS)).add("asked", request_for(pod), into)
    del pod["metadata"]["annotations"]
    Comparison(evaluator, policy, facts_of(FACTS)).add("not asked", request_for(pod), without)
    print(f"\nunits of a pod that asks for trust: {into.costs}, and of one that does not: {without.costs}")
    assert 350_000 < into.costs[0][0] < 500_000
    assert without.costs[0][0] < 20_000, "a pod that asks for no trust is not asked about"


@pytest.mark.parametrize("held", [True, False])
def test_the_mutating_policy_steers_a_pod_by_the_right_of_its_account(evaluator: Evaluator, held: bool) -> None:
    policy, known = by_rbac(policy_of(ROOT / "policies" / "sample.yaml")), walk()
    objects = bound({"kind": "ServiceAccount", "name": "trainer"}, "vision") if held else []
    facts = replace(facts_of(FACTS), rights=GrantedRight(objects), nodes=())  # the pool has the card that it assumes
    metadata = {"name": "a", "namespace": "vision", "annotations": {policy.annotation: "trusted"}}
    container = {"name": "a", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    request = request_for({**pod, "spec": {"serviceAccountName": "trainer", "containers": [container]}})
    settled = evaluator.settled(request)
    assert settled is not None
    changed = evaluator.changed(evaluator.changing(mutating(policy, known, facts)), settled, facts)
    shared = policy.pools[0].nodes.labels
    assert changed.errors == []
    assert (changed.object["spec"].get("nodeSelector") == shared) is held
    left = evaluator.judge(evaluator.compiled(fallback(policy, known)), {**settled, "object": changed.object}, facts)
    assert left.rules == (set() if held else {"unearned-trust"})
    print(f"\nunits of the dearest mutation: {changed.cost}")
