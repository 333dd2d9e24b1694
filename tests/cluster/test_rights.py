"""Who holds the right of trust, asked of an API server of our own that answers to order."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client

from tests.support.listening import Asked, listening
from webhook.cluster import rights
from webhook.cluster.rights import AskedRights
from webhook.facts.rights import Account

TRAINER, EVE = Account("vision", "trainer"), Account("visitors", "eve")


class Server:
    """Says yes to the accounts of `held`, unless it has a `fault`: a status, or an answer of its own."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.fault: int | dict[str, Any] | None = None
        self.asked: list[dict[str, Any]] = []
        self.now = 0.0
        self.log: list[dict[str, Any]] = []
        self.breaks = 0

    def respond(self, asked: Asked) -> None:
        assert (asked.command, asked.path) == ("POST", rights.PATH)
        review = json.loads(asked.body)
        self.asked.append(review)
        if isinstance(self.fault, int):
            asked.give(self.fault, json.dumps({"kind": "Status", "message": "is forbidden"}).encode())
            return
        status = self.fault or {"allowed": review["spec"].get("user") in self.held}
        asked.give(201, json.dumps({**review, "status": status}).encode(), Content_Type="application/json")

    def broke(self, kind: str) -> None:
        assert kind == "SubjectAccessReview"
        self.breaks += 1

    @property
    def users(self) -> list[str]:
        return [each["spec"].get("user", "") for each in self.asked]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def asked(server: Server) -> Iterator[AskedRights]:
    with listening(server.respond) as url:
        api = client.ApiClient(client.Configuration(host=url))
        metrics: Any = server
        yield AskedRights(api, lambda line: server.log.append(dict(line)), metrics, lambda: server.now)


def look(known: AskedRights, account: Account) -> bool | None:
    """What a review makes of an account: looked up, asked for if that is needed, and looked up again."""
    noted = known.noting()
    first = known.held(account)
    if not noted:
        return first
    known.ask(noted)
    return known.held(account)


def test_the_question_is_that_of_the_fallback(server: Server, asked: AskedRights) -> None:
    assert look(asked, TRAINER) is False
    (review,) = server.asked
    assert (review["apiVersion"], review["kind"]) == ("authorization.k8s.io/v1", "SubjectAccessReview")
    assert review["spec"] == {
        "user": "system:serviceaccount:vision:trainer",
        "groups": ["system:serviceaccounts", "system:serviceaccounts:vision"],
        "resourceAttributes": {
            "verb": "use",
            "group": "slicewarden.dev",
            "version": "*",
            "resource": "trustlevels",
            "name": "trusted",
            "namespace": "vision",
        },
    }


def test_all_accounts_of_a_namespace_are_asked_about_by_their_groups(server: Server, asked: AskedRights) -> None:
    look(asked, Account("vision", ""))
    assert "user" not in server.asked[0]["spec"]


def test_an_answer_is_asked_for_once_and_used_for_seconds(server: Server, asked: AskedRights) -> None:
    server.held.add(TRAINER.user)
    assert [look(asked, TRAINER), look(asked, TRAINER), look(asked, EVE), look(asked, EVE)] == [
        True,
        True,
        False,
        False,
    ]
    assert server.users == [TRAINER.user, EVE.user]


def test_a_right_that_is_given_counts_two_seconds_after_a_denial(server: Server, asked: AskedRights) -> None:
    assert look(asked, TRAINER) is False
    server.held.add(TRAINER.user)
    server.now = 1.9
    assert look(asked, TRAINER) is False
    server.now = 2.1
    assert look(asked, TRAINER) is True


def test_a_right_that_is_taken_away_counts_ten_seconds_at_most(server: Server, asked: AskedRights) -> None:
    server.held.add(TRAINER.user)
    assert look(asked, TRAINER) is True
    server.held.clear()
    server.now = 9.9
    assert look(asked, TRAINER) is True
    server.now = 10.1
    assert look(asked, TRAINER) is False


def test_a_busy_account_is_asked_about_again_beside_its_reviews(server: Server, asked: AskedRights) -> None:
    server.held.add(TRAINER.user)
    assert look(asked, TRAINER) is True
    server.now = 6.0
    asked.renew(TRAINER)
    assert len(server.asked) == 2
    asked.renew(TRAINER)
    assert len(server.asked) == 2, "the answer is fresh"
    server.now = 15.0
    noted = asked.noting()
    assert asked.held(TRAINER) is True
    assert noted == [], "no review waits"
    server.fault = 500
    asked.renew(TRAINER)
    assert asked.held(TRAINER) is True, "a failure leaves the answer until its time"
    server.now = 16.1
    assert look(asked, TRAINER) is None


def test_a_renewal_that_says_no_counts_at_once(server: Server, asked: AskedRights) -> None:
    server.held.add(TRAINER.user)
    look(asked, TRAINER)
    server.held.clear()
    server.now = 6.0
    asked.renew(TRAINER)
    assert asked.held(TRAINER) is False


@pytest.mark.parametrize(
    "fault",
    [403, 500, {"allowed": False, "evaluationError": "webhook authorizer: no route"}],
    ids=["forbidden", "failing", "an authorizer failed"],
)
def test_no_answer_is_no_right_and_is_told(server: Server, asked: AskedRights, fault: Any) -> None:
    server.held.add(TRAINER.user)
    server.fault = fault
    assert [look(asked, TRAINER) for _ in range(5)] == [None] * 5
    assert len(server.asked) == server.breaks == 1, "it is not asked for in every review"
    server.now = 2.1
    look(asked, TRAINER)
    (line,) = server.log
    assert (line["message"], line["kind"]) == ("right not asked", "SubjectAccessReview")
    assert len(server.asked) == server.breaks == 2, "the log has one line in ten seconds, the metric has all"
    server.fault, server.now = None, 4.3
    assert look(asked, TRAINER) is True


def test_an_api_server_that_is_away_is_no_right() -> None:
    log: list[Any] = []
    asked = AskedRights(client.ApiClient(client.Configuration(host="http://127.0.0.1:9")), log.append)
    assert look(asked, TRAINER) is None
    assert "does not answer" in log[0]["error"]


def test_an_allowed_review_counts_though_an_authorizer_beside_it_failed(server: Server, asked: AskedRights) -> None:
    server.fault = {"allowed": True, "evaluationError": "another failed"}
    assert look(asked, TRAINER) is True


def test_a_review_asks_about_sixteen_accounts_at_most(server: Server, asked: AskedRights) -> None:
    noted = asked.noting()
    for number in range(40):
        assert asked.held(Account("vision", f"a{number}")) is None
    asked.held(Account("vision", "a0"))
    assert len(noted) == rights.AT_ONCE
    asked.ask(noted)
    assert len(server.asked) == rights.AT_ONCE
    assert asked.held(Account("vision", "a20")) is None


def test_time_for_one_review_is_bounded(server: Server, asked: AskedRights) -> None:
    noted = asked.noting()
    for number in range(10):
        asked.held(Account("vision", f"a{number}"))
    answer = asked._asked

    def slow(account: Account) -> bool | None:
        server.now += 0.9
        return answer(account)

    asked._asked = slow  # type: ignore[method-assign]
    asked.ask(noted)
    assert len(server.asked) == 3


def test_only_so_many_answers_are_remembered(
    server: Server, asked: AskedRights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rights, "MOST", 2)
    for name in "abc":
        look(asked, Account("vision", name))
    look(asked, Account("vision", "b"))
    assert len(server.asked) == 3
    look(asked, Account("vision", "a"))
    assert len(server.asked) == 4


@given(
    st.lists(st.sampled_from(["vision", "n" * 254, "n" * 5_000, "A", "a b", "a:b", "a/b", "-a", ""]), min_size=1),
    st.lists(st.sampled_from(["trainer", "t" * 254, "t" * 5_000, "T", "t\n", "t:u", "a" * 253]), min_size=1),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_accounts_that_can_exist_are_asked_about_and_kept(
    server: Server, asked: AskedRights, namespaces: list[str], names: list[str]
) -> None:
    server.asked.clear()
    asked._known.clear()
    for account in map(Account, *zip(*product(namespaces, names), strict=True)):
        known = look(asked, account)
        assert known is False
        asked.ask([account])
        asked.renew(account)
    assert {(kept.namespace, kept.name) for kept in asked._known} <= {("vision", "trainer"), ("vision", "a" * 253)}
    assert len(server.asked) == len(asked._known)


def test_expired_answers_go_when_others_are_asked_about(server: Server, asked: AskedRights) -> None:
    for number in range(100):
        look(asked, Account("vision", f"a{number}"))
    assert len(asked._known) == 100
    server.now = 2.1
    look(asked, TRAINER)
    assert [*asked._known] == [TRAINER]
