"""A replica that holds several policies: it answers by those that a path names, or not at all."""

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from time import monotonic
from types import FrameType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects import untrusted_pod
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api import admission
from webhook.engine import filled, probe
from webhook.engine.engine import Engine
from webhook.engine.paths import VALIDATE, Name, Path
from webhook.facts.snapshot import Facts
from webhook.http.messages import HttpRequest, Reply
from webhook.memory import frameworks
from webhook.model import Object, Unusable
from webhook.policy import load, revisions
from webhook.policy.model import Policy
from webhook.serving import app, replica_state
from webhook.serving import revisions as following
from webhook.serving.revisions import CACHED, Revisions

RELEASE = "0.1.0"
SPACE = "slicewarden-system"
STRICT = policy_of(POLICY)


def spelled(name: str, **spec: Any) -> Policy:
    value = json.loads(STRICT.written)
    return load.of_object(
        {**value, "metadata": {"name": name}, "spec": {**value["spec"], **spec}},
        rules.releases(),
        frameworks=frameworks.names(),
    )


OLD, NEW = spelled("old"), spelled("new", rules={"*": "Warn"})


class NothingNeeded:
    """A cluster whose facts are there, but for the policies that lack some."""

    def __init__(self) -> None:
        self.lacking: dict[str, str] = {}
        self.denied: dict[str, str] = {}
        self.wanted: set[str] = set()

    def follow(self, wanted: Sequence[Policy]) -> None:
        self.wanted = {policy.digest for policy in wanted}

    def lacks(self, policy: Policy) -> str:
        return self.lacking.get(policy.digest, "")

    def forbidden(self, policy: Policy) -> str:
        return self.denied.get(policy.digest, "")


class Replica:
    """A replica of some workers, each with the application that it runs."""

    def __init__(self, facts: Facts, workers: int = 1) -> None:
        self.shared, self.needs, self.log = (
            replica_state.ReplicaState(workers),
            NothingNeeded(),
            list[Mapping[str, Any]](),
        )
        read = partial(revisions.read, rules=rules.releases(), frameworks=frameworks.names())
        making = partial(Engine, rules=rules.walk())
        self.workers = [
            Revisions(RELEASE, (self.shared, place), self.needs, read, making, self.log.append)
            for place in range(workers)
        ]
        self.app = app.ReviewApplication(self.workers[0], lambda: facts, self.log.append, checks=wrong, release=RELEASE)

    def look(self, *policies: Policy, releases: Sequence[str] = (RELEASE,), more: Sequence[Object] = ()) -> None:
        items = [revisions.revision(policy, SPACE) for policy in policies]
        for worker in self.workers:
            worker.look([*items, revisions.releases(releases, SPACE), *more])

    def post(self, path: str, body: bytes) -> Reply:
        head = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        request = HttpRequest("POST", path, "", head, monotonic(), (body,))
        refused = self.app.refusal(request)
        answer = refused if refused is not None else self.app(request)
        assert isinstance(answer, Reply)
        return answer

    def review(self, path: str, body: bytes = admission.wrap(untrusted_pod())) -> dict[str, Any]:
        answer = self.post(path, body)
        assert answer.status is HTTPStatus.OK, answer.body
        response: dict[str, Any] = json.loads(answer.body)["response"]
        return response


def wrong(item: Object) -> list[str]:
    try:
        load.of_object(item, rules.releases(), frameworks=frameworks.names())
    except Unusable as error:
        return [problem.message for problem in error.problems]
    return []


@pytest.fixture
def replica(sample_facts: Facts) -> Replica:
    return Replica(sample_facts)


def validate(*names: str) -> str:
    return f"/validate/{'.'.join(names)}"


def by(response: dict[str, Any]) -> Any:
    return response["auditAnnotations"]["policy"]


def test_each_path_is_answered_by_the_policy_that_it_names(replica: Replica) -> None:
    replica.look(OLD, NEW)
    denied, warned = replica.review(validate(OLD.digest)), replica.review(validate(NEW.digest))
    assert (denied["allowed"], by(denied)) == (False, OLD.digest)
    assert (warned["allowed"], by(warned)) == (True, NEW.digest)
    assert warned["warnings"]
    assert "patch" in replica.review(f"/mutate/{OLD.digest}")
    assert "patch" not in replica.review(f"/mutate/{NEW.digest}")


def test_of_two_policies_either_lets_in_and_the_last_one_refuses(replica: Replica) -> None:
    other = spelled("other")
    replica.look(OLD, NEW, other)
    for names in ((OLD.digest, NEW.digest), (NEW.digest, OLD.digest)):
        answer = replica.review(validate(*names))
        assert (answer["allowed"], by(answer)) == (True, NEW.digest)
    refused = replica.review(validate(OLD.digest, other.digest))
    assert (refused["allowed"], by(refused)) == (False, other.digest)


def test_audit_lets_everything_in_and_says_what_it_would_have_done(replica: Replica) -> None:
    replica.look(OLD)
    answer = replica.review(validate(f"{OLD.digest}-audit"))
    assert (answer["allowed"], answer["auditAnnotations"]["would"], by(answer)) == (True, "patch", OLD.digest)
    assert "patch" not in replica.review(f"/mutate/{OLD.digest}-audit")


def test_lenient_warns_of_what_another_release_did_not_patch_and_patches_as_ever(replica: Replica) -> None:
    replica.look(OLD)
    strict, lenient = replica.review(validate(OLD.digest)), replica.review(validate(f"{OLD.digest}-lenient"))
    assert (strict["allowed"], lenient["allowed"]) == (False, True)
    assert lenient["warnings"]
    assert replica.review(f"/mutate/{OLD.digest}-lenient")["patch"] == replica.review(f"/mutate/{OLD.digest}")["patch"]


class NotRead:
    """The body of a request that is answered without it."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("the body was read")


WAITS = frozenset({"acquire", "poll", "recv", "recv_into", "select", "sleep"})
"""Functions in C that wait; those of the standard library in Python end in one of these."""


@contextmanager
def called() -> Iterator[set[str]]:
    """The names of the functions in C that this thread calls in the block."""
    names: set[str] = set()

    def note(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            names.add(function.__name__)

    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)


def test_a_policy_that_is_not_held_gets_503_at_once_whatever_else_is(replica: Replica) -> None:
    """It waits for nothing: neither for the body or the facts, nor for another thread, nor for a time."""
    replica.look(OLD)
    replica.app.facts = cast("Any", pytest.fail)
    with called() as names:
        threading.Event().wait(0)
    assert names & WAITS
    for path in (validate(NEW.digest), validate(OLD.digest, NEW.digest), f"/mutate/{NEW.digest}"):
        head = {"Content-Type": "application/json", "Content-Length": "100"}
        request = HttpRequest("POST", path, "", head, monotonic(), cast("Any", NotRead()))
        with called() as names:
            answer = replica.app(request)
        assert not names & WAITS
        assert isinstance(answer, Reply), "no answer that comes later"
        assert answer.status is HTTPStatus.SERVICE_UNAVAILABLE
        assert NEW.digest in answer.body.decode()


def test_a_policy_that_was_forgotten_answers_no_more(replica: Replica) -> None:
    replica.look(OLD, NEW)
    assert replica.review(validate(OLD.digest, NEW.digest))["allowed"]
    replica.look(NEW)
    for path in (validate(OLD.digest), validate(OLD.digest, NEW.digest)):
        assert replica.post(path, b"{}").status is HTTPStatus.SERVICE_UNAVAILABLE
    assert replica.needs.wanted == {NEW.digest}


@pytest.mark.parametrize("path", ["/validate", "/mutate", "/validate/", "/validate/x", "/validate/0", "/"])
def test_a_path_that_names_no_policy_is_not_found(replica: Replica, path: str) -> None:
    replica.look(OLD)
    assert replica.post(path, b"{}").status is HTTPStatus.NOT_FOUND


def test_the_paths_that_are_kept_together_are_few_however_many_are_asked(replica: Replica) -> None:
    replica.look(OLD, NEW)
    manners = ("", "-audit", "-lenient")
    asked = [
        validate(f"{one.digest}{a}", f"{two.digest}{b}")
        for one in (OLD, NEW)
        for two in (OLD, NEW)
        for a in manners
        for b in manners
    ]
    for path in [*asked, *(validate(f"{each.digest}{manner}") for each in (OLD, NEW) for manner in manners)]:
        assert replica.post(path, admission.wrap(untrusted_pod())).status is HTTPStatus.OK
    assert len(replica.workers[0]._answering) <= CACHED


# What is held


def test_a_policy_is_held_once_every_worker_has_loaded_it_and_read_its_facts(sample_facts: Facts) -> None:
    replica = Replica(sample_facts, workers=2)
    items = [revisions.revision(OLD, SPACE), revisions.releases([RELEASE], SPACE)]
    replica.workers[0].look(items)
    assert replica.workers[0].report()["held"] == []
    replica.workers[1].look(items)
    assert replica.workers[0].report()["held"] == [OLD.digest]
    replica.needs.lacking[NEW.digest] = "configmaps of team-x"
    replica.look(OLD, NEW)
    report = replica.workers[1].report()
    assert (report["held"], report["waiting"]) == ([OLD.digest], {NEW.digest: "configmaps of team-x"})
    assert report["forbidden"] == {}
    replica.needs.denied[NEW.digest] = "configmaps of team-x"
    replica.look(OLD, NEW)
    assert replica.workers[1].report()["forbidden"] == {NEW.digest: "configmaps of team-x"}
    replica.needs.lacking.clear()
    replica.look(OLD, NEW)
    assert replica.workers[1].report()["held"] == sorted([OLD.digest, NEW.digest])
    assert replica.workers[1].report()["forbidden"] == {}
    replica.needs.lacking[NEW.digest] = "configmaps of team-x"  # a watch that breaks takes nothing out of service
    replica.look(OLD, NEW)
    assert NEW.digest in replica.workers[1].report()["held"]


def test_a_worker_that_starts_again_holds_nothing_at_first(sample_facts: Facts) -> None:
    replica = Replica(sample_facts, workers=2)
    replica.look(OLD)
    assert replica.shared.everywhere() == [OLD.digest]
    read = partial(revisions.read, rules=rules.releases())
    Revisions(RELEASE, (replica.shared, 1), replica.needs, read, partial(Engine, rules=()), replica.log.append)
    assert replica.shared.everywhere() == []
    assert replica.shared.may_serve


def test_a_revision_that_cannot_be_used_is_refused_with_the_reason_and_once(replica: Replica) -> None:
    broken = {**revisions.revision(NEW, SPACE), "data": revisions.revision(OLD, SPACE)["data"]}
    for _ in range(3):
        replica.look(OLD, more=[broken])
    report = replica.workers[0].report()
    assert report["held"] == [OLD.digest]
    assert f"its content is policy {OLD.digest}" in report["refused"][NEW.digest]
    assert [line["message"] for line in replica.log].count("policy refused") == 1


def test_a_revision_that_is_nested_without_limit_is_refused_and_others_are_held(replica: Replica) -> None:
    broken = {**revisions.revision(NEW, SPACE), "data": {revisions.KEY: "[" * 200_000}}
    replica.look(OLD, more=[broken])
    report = replica.workers[0].report()
    assert (report["held"], report["refused"]) == ([OLD.digest], {NEW.digest: "is nested too deeply"})


def test_a_look_that_fails_is_followed_by_another() -> None:
    changed, looked, log = threading.Event(), threading.Event(), list[Mapping[str, Any]]()
    found: list[list[Object]] = []

    def look(items: Sequence[Object], _: frozenset[str]) -> None:
        found.append([*items])
        if len(found) == 1:
            changed.set()
            raise RecursionError("deep")
        looked.set()

    changed.set()
    following.follow(changed, lambda: ([], frozenset()), look, log.append)
    assert looked.wait(60)
    assert log[0]["error"] == "RecursionError: deep"


def test_a_config_map_of_another_label_is_no_policy(replica: Replica) -> None:
    other = revisions.revision(OLD, SPACE)
    other["metadata"]["labels"][revisions.LABEL] = "../../etc"
    replica.look(more=[other])
    report = replica.workers[0].report()
    assert (report["held"], report["refused"], report["ready"]) == ([], {}, True)


@pytest.mark.parametrize("first", [True, False])
def test_a_second_config_map_of_one_label_takes_the_place_of_no_revision(replica: Replica, first: bool) -> None:
    twin = {**revisions.revision(OLD, SPACE), "data": {}}
    twin["metadata"] = {**twin["metadata"], "name": "twin"}
    items = [twin, revisions.revision(OLD, SPACE)]
    replica.look(more=items if first else items[::-1])
    report = replica.workers[0].report()
    assert (report["held"], report["refused"]) == ([OLD.digest], {})


MANY = [spelled(f"policy-{number}") for number in range(replica_state.MOST + 4)]


def created(policy: Policy, second: int) -> Object:
    item = revisions.revision(policy, SPACE)
    stamp = f"2026-01-01T00:00:{second:02}Z"
    return {**item, "metadata": {**item["metadata"], "uid": policy.digest, "creationTimestamp": stamp}}


@given(
    looks=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from(MANY), st.integers(0, 59), max_size=len(MANY)),
            st.sets(st.sampled_from(MANY), max_size=4),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_what_the_registration_names_is_held_and_then_the_newest(
    looks: list[tuple[dict[Policy, int], set[Policy]]],
) -> None:
    replica = Replica(Facts())
    (worker,) = replica.workers
    for times, named in looks:
        worker.look([created(policy, second) for policy, second in times.items()], frozenset(p.digest for p in named))
        report = worker.report()
        assert report["refused"] == {}
        kept = {policy for policy in times if policy.digest in report["held"]}
        assert len(report["held"]) <= replica_state.MOST
        assert len(kept) >= min(len(times), replica_state.MOST - 4)
        assert named & times.keys() <= kept
        for left in times.keys() - kept:
            assert all(policy in named or times[policy] >= times[left] for policy in kept)


def test_a_policy_that_is_named_is_held_on_though_its_revision_was_deleted(replica: Replica) -> None:
    (worker,) = replica.workers
    worker.look([created(OLD, 1), created(NEW, 2)], frozenset([OLD.digest]))
    worker.look([], frozenset([OLD.digest]))
    assert worker.report()["held"] == [OLD.digest]
    assert replica.review(validate(OLD.digest))["allowed"] is False
    worker.look([], frozenset([NEW.digest]))
    assert worker.report()["held"] == []


def test_a_revision_that_had_no_room_is_held_as_soon_as_there_is_some(replica: Replica) -> None:
    items = [created(policy, number) for number, policy in enumerate(MANY)]
    (worker,) = replica.workers
    worker.look(items)
    assert MANY[0].digest not in worker.report()["held"]
    worker.look(items[:1])
    assert worker.report()["held"] == [MANY[0].digest]


def test_a_revision_that_was_made_again_is_read_again(replica: Replica) -> None:
    broken = {**created(OLD, 1), "data": {}}
    replica.look(more=[broken])
    assert OLD.digest in replica.workers[0].report()["refused"]
    right = created(OLD, 2)
    right["metadata"]["uid"] = "another"
    replica.look(more=[right])
    report = replica.workers[0].report()
    assert (report["held"], report["refused"]) == ([OLD.digest], {})


def test_what_is_watched_is_kept_with_what_the_choice_needs() -> None:
    item = following.kept({**created(OLD, 1), "kind": "ConfigMap"})
    assert item == {
        "metadata": {
            "name": revisions.name_of(OLD.digest),
            "uid": OLD.digest,
            "creationTimestamp": "2026-01-01T00:00:01Z",
            "labels": {revisions.LABEL: OLD.digest},
        },
        "data": {revisions.KEY: OLD.written},
    }
    path = Path(VALIDATE, (Name(OLD.digest), Name(NEW.digest)))
    hooks = filled.webhooks(path, {OLD.digest: OLD, NEW.digest: NEW}, "")
    configuration = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "slicewarden"}, "webhooks": hooks}
    kept = following.kept(configuration)
    assert kept is not None
    assert following.named([kept]) == {OLD.digest, NEW.digest}
    assert (
        following.kept({**configuration, "webhooks": [*hooks, {"clientConfig": {"url": "https://x/validate"}}]}) is None
    )


# When it may serve


def test_it_is_not_ready_before_it_holds_all_that_was_there_when_it_began(replica: Replica) -> None:
    assert not replica.workers[0].condition()[0]
    replica.needs.lacking[NEW.digest] = "configmaps of team-x"
    replica.look(OLD, NEW)
    ready, says = replica.workers[0].condition()
    assert not ready
    assert f"{NEW.digest} (configmaps of team-x)" in says
    assert not replica.workers[0].complete
    replica.needs.lacking.clear()
    replica.look(OLD, NEW)
    assert replica.workers[0].condition() == (True, "")


def test_it_is_not_ready_before_it_holds_all_that_the_registration_names(replica: Replica) -> None:
    items = [created(policy, number) for number, policy in enumerate(MANY)]
    items.append(revisions.releases([RELEASE], SPACE))
    (worker,) = replica.workers
    worker.look(items, frozenset([OLD.digest]))
    assert worker.condition() == (False, f"policies are not loaded yet: {OLD.digest} (loading)")
    worker.look([created(OLD, 0), *items], frozenset([OLD.digest]))
    assert worker.condition() == (True, "")
    assert replica.review(validate(OLD.digest))["allowed"] is False


def test_it_is_not_ready_before_its_release_is_admitted_and_stays_ready_when_it_is_withdrawn(replica: Replica) -> None:
    replica.look(OLD, releases=["0.0.9"])
    assert replica.workers[0].condition() == (False, f"release {RELEASE} is not admitted yet")
    replica.look(OLD)
    assert replica.workers[0].condition()[0]
    replica.look(OLD, releases=["0.2.0"])
    assert replica.workers[0].condition()[0]


def test_a_policy_that_comes_later_and_cannot_be_used_makes_nobody_unready(replica: Replica) -> None:
    replica.look(OLD)
    broken = {**revisions.revision(NEW, SPACE), "data": {}}
    replica.look(OLD, more=[broken])
    assert replica.workers[0].condition()[0]
    assert replica.review(validate(OLD.digest))["allowed"] is False


def test_one_that_begins_with_a_policy_it_cannot_use_is_not_ready_until_that_is_gone(replica: Replica) -> None:
    broken = {**revisions.revision(NEW, SPACE), "data": {}}
    replica.look(OLD, more=[broken])
    assert f"{NEW.digest} (has no policy" in replica.workers[0].condition()[1]
    replica.look(OLD)
    assert replica.workers[0].condition()[0]


def test_without_any_policy_it_is_ready_and_judges_nothing(replica: Replica) -> None:
    replica.look()
    assert replica.workers[0].condition() == (True, "")
    assert replica.post(validate(OLD.digest), b"{}").status is HTTPStatus.SERVICE_UNAVAILABLE


# The probe, and the webhook for policies


def lease(**more: Any) -> bytes:
    item = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": probe.LEASE}, **more}
    return admission.wrap(item)


def test_the_probe_is_answered_with_the_path_and_the_release(replica: Replica) -> None:
    replica.look(OLD, NEW)
    path = validate(OLD.digest, f"{NEW.digest}-audit")
    answer = replica.review(path, lease())
    proof = probe.heard([f'299 - "{each}"' for each in answer["warnings"]])
    assert proof == [probe.Proof(Path(VALIDATE, (Name(OLD.digest), Name.read(f"{NEW.digest}-audit"))), RELEASE)]
    assert answer["allowed"]
    assert "auditAnnotations" not in answer


def test_a_probe_of_a_policy_that_is_not_held_proves_nothing(replica: Replica) -> None:
    replica.look(OLD)
    assert replica.post(validate(NEW.digest), lease()).status is HTTPStatus.SERVICE_UNAVAILABLE


def policy_review(replica: Replica, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    value = json.loads(STRICT.written)
    change(value["spec"])
    return replica.review("/policy", admission.wrap(value))


def test_a_policy_that_can_be_used_is_let_in(replica: Replica) -> None:
    assert policy_review(replica, lambda spec: spec.update(mode="Audit")) == {"uid": "offline", "allowed": True}


def test_a_policy_that_cannot_be_used_is_refused_with_path_and_way_out_as_check_prints_them(replica: Replica) -> None:
    answer = policy_review(replica, lambda spec: spec.update(rules={"multiple-slice": "Deny"}))
    assert answer["allowed"] is False
    assert answer["status"]["code"] == 422
    assert answer["status"]["message"] == "spec.rules.multiple-slice: unknown rule, did you mean multiple-slices?"


def test_every_error_of_a_policy_is_in_the_message(replica: Replica) -> None:
    def change(spec: dict[str, Any]) -> None:
        spec["pools"].append({**spec["pools"][0], "name": "twin"})
        spec["overrides"] = [{"pools": ["nowhere"], "rules": {"*": "Warn"}}]

    message = policy_review(replica, change)["status"]["message"]
    assert message.startswith("2 errors:\n- spec.")
    assert "unknown pool" in message
    assert "overlaps pool" in message


def test_a_review_of_a_policy_may_have_so_many_bytes(replica: Replica) -> None:
    review = admission.wrap(json.loads(STRICT.written))
    most = review + b" " * (app.MOST_POLICY - len(review))
    assert replica.review("/policy", most)["allowed"]
    answer = replica.post("/policy", most + b" ")
    assert (answer.status, answer.body) == (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"at most 524288 bytes\n")


@pytest.mark.parametrize(
    ("query", "age", "status"),
    [
        ("timeout=600s", 4, HTTPStatus.OK),
        ("timeout=30s", 11, HTTPStatus.OK),
        ("timeout=1000h", 30, HTTPStatus.GATEWAY_TIMEOUT),
        ("timeout=5s", 6, HTTPStatus.GATEWAY_TIMEOUT),
        ("", 11, HTTPStatus.GATEWAY_TIMEOUT),
        ("timeout=x", 0, HTTPStatus.BAD_REQUEST),
    ],
)
def test_whoever_no_longer_waits_for_a_check_gets_none(
    replica: Replica, query: str, age: float, status: HTTPStatus
) -> None:
    body = admission.wrap(json.loads(STRICT.written))
    head = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    checked: list[Object] = []

    def check(item: Object) -> list[str]:
        checked.append(item)
        return []

    replica.app.checks = check
    answer = replica.app(HttpRequest("POST", "/policy", query, head, monotonic() - age, (body,)))
    assert isinstance(answer, Reply)
    assert answer.status is status
    assert len(checked) == (status is HTTPStatus.OK)


def test_a_review_of_no_policy_is_a_bad_request(replica: Replica) -> None:
    assert replica.post("/policy", b"{}").status is HTTPStatus.BAD_REQUEST


def test_a_replica_of_a_file_has_no_webhook_for_policies(sample_facts: Facts) -> None:
    plain = app.ReviewApplication(Engine(STRICT, rules.walk()), lambda: sample_facts, lambda _: None)
    request = HttpRequest("POST", "/policy", "", {"Content-Type": "application/json"}, monotonic(), (b"{}",))
    answer = plain.refusal(request) or plain(request)
    assert isinstance(answer, Reply)
    assert answer.status is HTTPStatus.NOT_FOUND


def test_a_log_line_names_the_path_and_the_policy_that_answered(replica: Replica) -> None:
    replica.look(OLD, NEW)
    replica.review(validate(OLD.digest, NEW.digest))
    line = replica.log[-1]
    assert (line["endpoint"], line["path"], line["policy"]) == (
        "/validate",
        validate(OLD.digest, NEW.digest),
        NEW.digest,
    )
