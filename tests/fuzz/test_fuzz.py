"""The hunt itself: that it finds what is planted, ends what hangs, and gives the same cases for the same seed."""

import base64
import itertools
import json
import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from random import Random
from typing import Any

import pytest
from aiohttp import web

from tests.fuzz import campaign, changes, found, workers
from tests.fuzz.campaign import Hunt, Target
from tests.fuzz.fault import Fault
from tests.fuzz.reviews import Reviews
from tests.fuzz.texts import Configurations, Policies
from tests.fuzz.wire import Wire, asked, message, within
from webhook.api.pods import Pod
from webhook.deviceplugin import sections
from webhook.documents import goyaml_writer
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.http.connection import Connection
from webhook.http.messages import Application, HttpRequest, Reply
from webhook.model import Finding, Fix
from webhook.policy import load
from webhook.policy.model import Policy
from webhook.rules import Rule


@pytest.fixture(autouse=True)
def _little_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "TRIES", 4)


def faults(target: Target, cases: int = 4000) -> list[str]:
    """Return what a hunt finds from a few seeds. It goes on only until there is something."""
    one_of = len(target.seeds) // 50 | 1  # odd, since creations and updates alternate
    hunt = Hunt(target, "planted", one_of=one_of)
    while not hunt.tally.found and hunt.tally.cases < cases:
        hunt.run(25)
    hunt.close()
    return [each.what for each in hunt.tally.found]


# What was found before


def test_every_stored_case_of_the_fuzzer_passes() -> None:
    cases = list(found.cases())
    targets = {each.name: each for each in workers.targets()} if cases else {}
    for name, case in cases:
        assert campaign.wrong(lambda name=name, case=case: targets[name].judge(case, again=True)) is None, (name, case)  # type: ignore[misc]
    for target in targets.values():
        target.close()


# What is planted in a rule


def broken(review: PodReview) -> Iterator[Finding]:
    for container in review.subject.containers:
        for name, quantity, _where in container.extended_resources:
            yield Finding((name,), "asks for", (), advice=int(str(quantity)) > 10**6)


def restless(review: PodReview) -> Iterator[Finding]:
    path = ("metadata", "annotations")
    yield Finding(path, "grows", (Fix(path, {"a": str(len(json.dumps(review.subject.annotations)))}),))


def greedy(*_: Any) -> Iterator[Finding]:
    path = ("spec", "serviceAccountName")
    yield Finding(path, "is another", (Fix(path, "admin"),))


def forgetful(*_: Any) -> Iterator[Finding]:
    yield Finding((), f"is seen {next(COUNT)} times")


def slow(review: PodReview) -> Iterator[Finding]:
    end = time.process_time() + (0.2 if len(review.subject.containers) > 1 else 0)  # on either path
    while time.process_time() < end:
        pass
    yield from ()


COUNT = itertools.count()


@pytest.mark.parametrize(
    ("check", "what"),
    [
        (broken, "after ValueError"),
        (restless, "is patched again"),
        (greedy, "a patch may not add /spec/serviceAccountName"),
        (forgetful, "in two ways"),
        (slow, "takes"),
    ],
)
def test_a_rule_that_is_wrong_is_found(
    check: Any, what: str, sample_policy: Policy, sample_facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    if check is slow:  # a busy machine makes the others slow too
        monkeypatch.setattr(campaign, "CPU", 0.15)
    engine = Engine(sample_policy, [Rule("planted", Pod, check, "", mends=True)])
    assert any(what in each for each in faults(Reviews(engine, sample_facts)))


# What is planted in the application


@dataclass
class Changed:
    """An application whose answers are changed before they go out."""

    app: Application
    change: Callable[[HttpRequest, Reply], Reply]

    def refusal(self, request: HttpRequest) -> Reply | None:
        return self.app.refusal(request)

    def is_probe(self, request: HttpRequest) -> bool:
        return self.app.is_probe(request)

    def __call__(self, request: HttpRequest) -> Reply:
        reply = self.app(request)
        assert isinstance(reply, Reply)
        return self.change(request, reply)


def answering(change: Callable[[str, dict[str, Any]], object]) -> Callable[[Application], Application]:
    """Have whatever is answered to a review changed before it goes out."""

    def changed(request: HttpRequest, reply: Reply) -> Reply:
        if reply.status != HTTPStatus.OK:
            return reply
        value = json.loads(reply.body)
        change(request.path, value["response"])
        return reply._replace(body=json.dumps(value).encode())

    return lambda app: Changed(app, changed)


def open_to_all(app: Application) -> Application:
    """A broken case is allowed, as by a webhook that catches too much."""
    allowed = Reply(HTTPStatus.OK, b'{"response": {"allowed": true}}', (("Content-Type", "application/json"),))
    return Changed(app, lambda _, reply: allowed if reply.status == HTTPStatus.INTERNAL_SERVER_ERROR else reply)


def patch_of(*operations: dict[str, Any]) -> dict[str, str]:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


NOWHERE = {"op": "add", "path": "/metadata/annotations/no/where", "value": "x"}


def on_mutate(path: str, response: dict[str, Any], value: dict[str, Any]) -> None:
    if path == "/mutate":
        response.update(value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda _, response: response.update(uid=response["uid"][:20]), "another uid"),
        (lambda _, response: response.update(patch_of()), "/validate patches"),
        (lambda path, response: on_mutate(path, response, patch_of(NOWHERE)), "does not apply"),
        (lambda path, response: on_mutate(path, response, patch_of()), "a patch of 0 operations"),
        (lambda path, response: on_mutate(path, response, {"allowed": False}), "whether it allows"),
        (lambda _, response: response.pop("patchType", None), "one of patch and patchType"),
        (lambda _, response: response.pop("status", None), "whether it allows"),
        (lambda _, response: response.update(warnings=["two\nlines"]), "what an API server drops"),
        (lambda _, response: response.update(auditAnnotations={"a/b": "c"}), "does not take"),
        (lambda _, response: response.update(more=1), "unknown fields"),
        (lambda _, response: response.update(warnings=["x" * 70_000]), "70"),
    ],
)
def test_an_answer_that_is_wrong_is_found(change: Any, what: str, engine: Engine, sample_facts: Facts) -> None:
    assert any(what in each for each in faults(Reviews(engine, sample_facts, answering(change))))


def test_an_answer_that_hides_an_exception_is_found(sample_policy: Policy, sample_facts: Facts) -> None:
    engine = Engine(sample_policy, [Rule("planted", Pod, broken, "")])
    assert any("answers 200 after ValueError" in each for each in faults(Reviews(engine, sample_facts, open_to_all)))


# What is planted in the readers


def test_a_reader_that_breaks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "integer", int)
    assert any("Error at sections.py _replicas" in each for each in faults(Configurations()))


def test_a_reader_that_is_wrong_about_a_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goyaml_writer, "write", lambda value: json.dumps(value).lower())
    assert any("is read as something else" in each for each in faults(Configurations()))


def test_a_policy_that_should_not_have_been_taken_is_found(
    sample_facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "schema_errors", lambda *_: iter(()))
    assert faults(Policies(sample_facts))


# What is planted in the protocol


class Talkative(Connection):
    """Answers HEAD as it answers GET."""

    async def write(self, reply: Reply, asked: web.BaseRequest, *, last: bool) -> bool:
        return await super().write(reply, asked.clone(method="GET"), last=last)


def test_an_answer_with_a_body_too_many_is_found(engine: Engine, sample_facts: Facts) -> None:
    assert faults(Wire(engine, sample_facts, Talkative))


def test_an_answer_to_another_request_is_found(engine: Engine, sample_facts: Facts) -> None:
    target = Wire(engine, sample_facts)
    before: list[Reply] = []

    def stale(request: HttpRequest, reply: Reply) -> Reply:
        if request.path == "/validate":
            before.append(reply)
        return before[-2] if len(before) > 1 else reply

    target.app = Changed(target.app, stale)
    assert faults(target)


def test_a_request_inside_a_body_is_not_answered() -> None:
    data = within("outer") + message("last")
    assert [json.loads(each.body.split(b" POST")[0])["request"]["uid"] for each in asked(data)[0]] == ["outer", "last"]


# The hunt


class Numbers:
    """Cases are digits; what is done about 77 is planted."""

    name = "numbers"
    seeds: Sequence[bytes] = [b"%d" % number for number in range(100)]

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.act = act

    def change(self, random: Random, case: bytes, other: bytes) -> bytes:
        return changes.encoded(random, case, other)

    def judge(self, case: bytes, *, again: bool) -> Hashable:  # noqa: ARG002
        if b"77" in case:
            self.act()
        return len(case)

    def close(self) -> None:
        pass


FEW = workers.Share(cases=200, seconds=60)


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda: time.sleep(60), "hangs"),
        (lambda: os._exit(3), "ends the process, which exits with 3"),
        (lambda: os.kill(os.getpid(), 9), "ends the process, which exits with -9"),
        (lambda: bytearray(workers.MAX_MEMORY), "MemoryError"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_case_that_ends_a_process_is_found(act: Callable[[], object], what: str) -> None:
    tallies = workers.run(FEW, "0", 1, lambda: [Numbers(act)], deadline=1.0)
    (found,) = tallies["numbers"].found
    assert what in found.what
    assert found.case == b"77"


def test_processes_share_the_cases() -> None:
    tallies = workers.run(workers.Share(500, 60), "0", 2, lambda: [Numbers()])
    assert 1000 <= tallies["numbers"].cases <= 1100


def test_a_hunt_ends_when_its_time_is_used_up() -> None:
    tallies = workers.run(workers.Share(float("inf"), 0.2), "0", 1, lambda: [Numbers()])
    assert tallies["numbers"].cases


def test_the_same_seed_gives_the_same_cases() -> None:
    runs: list[list[bytes]] = []
    for seed in ("a", "a", "b"):
        cases: list[bytes] = []
        hunt = Hunt(Numbers(), seed, cases.append)
        hunt.run(400)
        runs.append(cases)
    assert runs[0] == runs[1] != runs[2]


def test_making_cases_does_not_change_their_sources() -> None:
    words, before = changes.Words([{"a": {"b": [1]}}]), json.dumps(changes.SCALARS)
    random = Random("a")  # noqa: S311 - the same changes each time
    for _ in range(2000):
        changes.tree(random, {"a": {"b": [1]}}, words)
    assert json.dumps(changes.SCALARS) == before


def test_a_failing_case_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "TRIES", 400)
    target = Numbers(lambda: (_ for _ in ()).throw(Fault("planted")))
    target.seeds = [json.dumps({"a": [1, 2, {"b": "x77y"}], "c": "d" * 1000}).encode()]
    hunt = Hunt(target, "0")
    hunt.run(1)
    (found,) = hunt.tally.found
    assert json.loads(found.case) == {"a": [{"b": "x77y"}]}


def test_memory_that_grows_is_found() -> None:
    steps = range(400)
    assert workers.grown([100.0 + step % 7 for step in steps]) is None
    assert workers.grown([min(100.0 + step, 160.0) for step in steps]) is None, "what it takes to begin with"
    assert "memory grows from 114 to 134 MiB" in str(workers.grown([100.0 + step // 10 for step in steps]))


def test_kept_memory_is_found_and_freed_memory_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "BLOCK", 1)
    monkeypatch.setattr(workers, "LOOK", 1)
    held: list[bytes] = []

    def found(judge: Callable[[], object]) -> list[str]:
        target = Numbers()
        monkeypatch.setattr(target, "judge", lambda _, **__: bool(judge()))
        tallies = workers.hunt(lambda: [target], workers.Share(80, 60), "0", workers.Marked())
        return [each.target for each in tallies["numbers"].found]

    assert found(lambda: held.append(os.urandom(2**19))) == ["memory"]
    held.clear()
    assert found(lambda: os.urandom(2**19)) == []
