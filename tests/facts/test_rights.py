"""The right of trust as Roles and bindings among facts give it. `tests/evaluator` asks Kubernetes' own code."""

from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.policies import POLICY, policy_of
from webhook.facts import rights
from webhook.facts.kinds import kept
from webhook.facts.rights import Account
from webhook.facts.snapshot import Facts
from webhook.scan import reduced

Object = dict[str, Any]

BY_RBAC = policy_of(POLICY.read_text("utf-8").replace("    grants:\n", "    grants:\n      - rbac: true\n"))
NAMED: Object = {"kind": "ClusterRole", "metadata": {"name": rights.ROLE}}

ROLE: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": rights.ROLE},
    "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        {
            "apiGroups": ["slicewarden.dev"],
            "resources": ["trustlevels"],
            "resourceNames": ["trusted"],
            "verbs": ["use"],
        },
    ],
}


def binding(*subjects: Object, namespace: str = "vision", role: str = rights.ROLE) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": namespace},
        "roleRef": {"apiGroup": rights.RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [*subjects],
    }


TRAINER: Object = {"kind": "ServiceAccount", "name": "trainer"}


def test_facts_without_roles_know_of_nobody() -> None:
    facts = Facts.of([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}])
    assert facts.trusts("vision", "trainer") is None
    assert "add them to the facts" in facts.rights.unknown


def test_a_binding_gives_the_right_in_its_namespace_to_its_accounts() -> None:
    facts = Facts.of([ROLE, binding(TRAINER)])
    assert facts.trusts("vision", "trainer") is True
    assert facts.trusts("vision", "default") is False
    assert facts.trusts("visitors", "trainer") is False
    assert facts.trusts("vision") is False, "not all accounts of the namespace hold it"


def test_the_role_of_the_manifests_is_known_by_itself() -> None:
    objects = [yaml.safe_load(text) for text in (ROOT / "manifests/base/rbac.yaml").read_text("utf-8").split("\n---\n")]
    (role,) = (each for each in objects if each["metadata"]["name"] == rights.ROLE)
    assert role["rules"] == rights.SHIPPED["rules"]
    facts = Facts.of([binding(TRAINER)])
    assert facts.trusts("vision", "trainer") is True
    assert facts.trusts("vision", "default") is False
    assert Facts.of([binding(TRAINER, role="other")]).trusts("vision", "trainer") is False


def test_the_role_of_the_manifests_is_not_known_where_the_objects_say_otherwise() -> None:
    admin = {
        **ROLE,
        "metadata": {"name": "cluster-admin"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    }
    for said in ({**ROLE, "rules": []}, {"apiVersion": ROLE["apiVersion"], **NAMED}, admin):
        objects = [said, binding(TRAINER)]
        assert Facts.of(objects).trusts("vision", "trainer") is False
        assert Facts.of(reduced.reduced(objects, BY_RBAC)).trusts("vision", "trainer") is False
    assert rights.needed([binding(TRAINER)]) == [], "a live cluster has listed its roles"


def test_a_later_binding_replaces_its_namesake() -> None:
    assert Facts.of([ROLE, binding(TRAINER), binding()]).trusts("vision", "trainer") is False


@pytest.mark.parametrize(
    "item",
    [
        {"kind": "ClusterRole", "metadata": None, "rules": "x"},
        {"kind": "ClusterRole", "metadata": {"name": "x"}, "rules": [None, {"verbs": "use"}, {"apiGroups": 1}]},
        {"kind": "RoleBinding", "metadata": {"name": 1}, "roleRef": [], "subjects": {"kind": "User"}},
        {"kind": "RoleBinding", "metadata": {"name": "x"}, "roleRef": {"name": []}, "subjects": [None, {"name": {}}]},
    ],
)
def test_a_malformed_role_or_binding_gives_nothing(item: Object) -> None:
    item = {"apiVersion": "rbac.authorization.k8s.io/v1", **item}
    facts = Facts.of([item, ROLE, binding(TRAINER)])
    assert facts.trusts("vision", "trainer") is True
    assert facts.trusts("vision", "x") is False
    kept(item)


def test_a_file_of_facts_has_what_gives_the_right_and_nothing_else() -> None:
    other = {**ROLE, "metadata": {"name": "other"}, "rules": ROLE["rules"][:1]}
    objects = [ROLE, other, binding(TRAINER), binding(TRAINER, role="other"), binding(TRAINER, role="nowhere")]
    parts = reduced.reduced(objects, BY_RBAC)
    assert [(part["kind"], part["metadata"]["name"]) for part in parts] == [
        ("ClusterRole", rights.ROLE),
        ("RoleBinding", rights.ROLE),
    ]
    assert parts[0]["rules"] == ROLE["rules"][1:]
    assert reduced.reduced(parts, BY_RBAC) == parts
    assert reduced.reduced(parts[1:], BY_RBAC) == parts[1:], "the role of the manifests is known by itself"
    assert Facts.of(parts).trusts("vision", "trainer") is True
    assert reduced.reduced(objects, policy_of(POLICY)) == [], "a policy that does not ask for the right"


def test_some_account_of_a_namespace_is_known_to_hold_it() -> None:
    given = Facts.of([ROLE, binding(TRAINER)]).rights
    assert isinstance(given, rights.GrantedRight)
    assert given.holders("vision")
    assert not given.holders("visitors")


def test_the_command_leaves_names_open_that_a_shell_would_read() -> None:
    assert rights.command(Account("vision", "")).endswith("--group=system:serviceaccounts:vision --namespace=vision")
    for name in ("$(reboot)", "a b", "-x", "A"):
        assert rights.command(Account("vision", name)) == rights.command(rights.ANYONE)
