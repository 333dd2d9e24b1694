"""Events for what is denied under a controller: about whom, how often, and that no review ever waits for one."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client

from tests.support.listening import Asked, listening
from tests.support.waiting import LONG, until
from webhook.cluster import events
from webhook.cluster.events import Backlog, EventNote, Events, Owner, denial
from webhook.model import Action, Finding, Malformed, Request, Result, Verdict
from webhook.telemetry.metrics import Metrics

REFERENCE = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d", "uid": "u-1", "controller": True}
OWNER = Owner("apps/v1", "ReplicaSet", "vision", "web-5d", "u-1")
DENIED = Verdict((Result("multiple-slices", Action.DENY, Finding(("spec",), "2 slices; ask for 1")),))
TEXT = "multiple-slices: spec: 2 slices; ask for 1"


def request(*references: Any, **metadata: Any) -> Request:
    item = {"metadata": {"ownerReferences": list(references or [REFERENCE]), **metadata}}
    return Request("u", "CREATE", "", "v1", "Pod", "", "vision", "", None, False, item, None)


def another(**words: Any) -> dict[str, Any]:
    return {**REFERENCE, **words}


# What is told, and of whom


def test_a_denial_is_told_of_the_controller_in_its_namespace() -> None:
    other = another(name="other", controller=False)
    assert denial(request(other, REFERENCE), DENIED) == EventNote(OWNER, TEXT)


def test_a_malformed_pod_is_told_of_too() -> None:
    told = denial(request(), Verdict(malformed=Malformed(("spec",), "is missing")))
    assert told == EventNote(OWNER, "spec: is missing")


def test_a_note_is_one_line_that_numbers_its_findings_and_ends_in_where_to_ask() -> None:
    two = Verdict(tuple(Result("r", Action.DENY, Finding(("spec",), text)) for text in ("is wrong", "is bad")))
    told = denial(request(), two, "#gpu-help")
    assert told == EventNote(OWNER, "(1) r: spec: is wrong (2) r: spec: is bad For help: #gpu-help")


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        (request(), Verdict()),
        (request(), Verdict((Result("r", Action.WARN, Finding((), "m")),))),
        (replace(request(), dry_run=True), DENIED),
        (replace(request(), operation="UPDATE"), DENIED),
        (replace(request(), operation="DELETE", object=None), DENIED),
        (replace(request(), namespace=""), DENIED),
        (replace(request(), namespace="n" * 254), DENIED),
        (replace(request(), object={"metadata": None}), DENIED),
        (replace(request(), object={"metadata": {"ownerReferences": {"controller": True}}}), DENIED),
        (request(another(controller=False)), DENIED),
        (request(another(controller="true")), DENIED),
        (request(another(name="")), DENIED),
        (request(another(name="n" * 254)), DENIED),
        (request(another(uid=None)), DENIED),
        *((request(another(**{key: "x" * 254})), DENIED) for key in ("apiVersion", "kind", "uid")),
        (request("ReplicaSet", None, 7), DENIED),
    ],
)
def test_no_other_decision_becomes_an_event(asked: Request, verdict: Verdict) -> None:
    assert denial(asked, verdict) is None


def test_retries_are_one_event_whoever_answers_them() -> None:
    names = {EventNote(OWNER, TEXT).event for _ in range(3)}
    assert len(names) == 1
    others = {EventNote(OWNER._replace(uid="u-2"), TEXT).event, EventNote(OWNER, "else").event}
    assert len(names | others) == 3
    assert all(name.startswith("web-5d.") for name in names | others)
    assert len(EventNote(OWNER._replace(name="n" * 253), TEXT).event) <= 253


@pytest.mark.parametrize("character", ["x", "ü", "\U0001f600"])
def test_a_note_is_as_long_as_an_event_takes(character: str) -> None:
    long = Verdict((Result("r", Action.DENY, Finding((), character * 3000)),))
    told = denial(request(), long)
    assert told is not None
    assert events.MAX_NOTE - 6 < len(told.note.encode()) <= events.MAX_NOTE
    assert told.note.endswith("...")
    helped = denial(request(), long, "#gpu-help")
    assert helped is not None
    assert events.MAX_NOTE - 6 < len(helped.note.encode()) <= events.MAX_NOTE
    assert helped.note.endswith("... For help: #gpu-help")


# How often

STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.floats(0, 90)), max_size=60)


@given(steps=STEPS)
def test_no_event_is_lost_and_no_owner_exceeds_its_limit(steps: list[tuple[int, int, float]]) -> None:
    backlog, now, noted = Backlog(0.0), 0.0, 0
    written: list[tuple[EventNote, int]] = []
    for owner, note, pause in steps:
        noted += backlog.add(EventNote(OWNER._replace(name=str(owner)), str(note)))
        now += pause
        written += backlog.due(now)
        for name in {denied.owner.name for denied, _ in written}:
            assert sum(denied.owner.name == name for denied, _ in written) <= 3 + now / 60 + 1e-6
        assert len(written) <= 25 + now + 1e-6
    now += 60 * 60
    for _ in range(100):
        now += 60
        written += backlog.due(now)
    assert len(backlog) == 0
    assert sum(times for _, times in written) == noted == len(steps)


def test_a_flood_is_bounded() -> None:
    backlog = Backlog(0.0)
    taken = [backlog.add(EventNote(OWNER._replace(name=str(n)), TEXT)) for n in range(10_000)]
    assert sum(taken) == len(backlog) == events.MAX_PENDING
    assert backlog.add(EventNote(OWNER._replace(name="0"), TEXT)), "what is known already is counted with it"
    assert len(list(backlog.due(0.0))) == 25
    for at in range(1, 3000):
        backlog.add(EventNote(OWNER._replace(name=f"late-{at}"), TEXT))
        assert len(list(backlog.due(float(at)))) <= 1
    assert len(backlog._each) <= events.MAX_KNOWN


# What is written


class Server:
    """An API server's Events; `answers` are statuses that it gives instead of what is right."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.answers: list[int] = []
        self.open = threading.Event()
        self.open.set()
        self.url = ""

    def answer(self, method: str, path: str, item: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.open.wait(LONG)
        self.asked.append((method, path, item))
        if self.answers:
            return self.answers.pop(0), {}
        if method == "POST":
            name = item["metadata"]["name"]
            if name in self.stored:
                return 409, {}
            self.stored[name] = item
            return 201, item
        name = path.rpartition("/")[2]
        if name not in self.stored:
            return 404, {}
        self.stored[name] |= {key: value for key, value in item.items() if key != "metadata"}
        return 200, self.stored[name]


@pytest.fixture
def server() -> Iterator[Server]:
    known = Server()

    def respond(asked: Asked) -> None:
        status, body = known.answer(asked.command, asked.path, json.loads(asked.body))
        asked.give(status, json.dumps(body).encode(), Content_Type="application/json")

    with listening(respond) as known.url:
        yield known
        known.open.set()


@pytest.fixture
def logged() -> list[Any]:
    return []


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def told(server: Server, logged: list[Any], metrics: Metrics) -> Iterator[Callable[[], Events]]:
    started: list[Events] = []

    def start() -> Events:
        settings = client.Configuration()
        settings.host = server.url
        made = Events(client.ApiClient(settings), logged.append, metrics)
        made.start()
        started.append(made)
        return made

    yield start
    for each in started:
        each.stop()


def counted(metrics: Metrics, outcome: str) -> float:
    start = f'slicewarden_events_total{{outcome="{outcome}"}} '
    (line,) = [line for line in metrics.text().decode().splitlines() if line.startswith(start)]
    return float(line.removeprefix(start))


def test_one_event_grows_into_a_series(server: Server, told: Callable[[], Events], metrics: Metrics) -> None:
    first, second = told(), told()
    first(request(), DENIED)
    until(lambda: counted(metrics, "written") == 1)
    (event,) = server.stored.values()
    assert event["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "namespace": "vision",
        "name": "web-5d",
        "uid": "u-1",
    }
    assert (event["reason"], event["type"], event["note"]) == ("GPUPolicyDenied", "Warning", TEXT)
    assert "series" not in event
    assert server.asked[0][1] == "/apis/events.k8s.io/v1/namespaces/vision/events"
    second(request(), DENIED)  # as another replica: it finds the Event there
    until(lambda: counted(metrics, "written") == 2)
    first(request(), DENIED)
    until(lambda: counted(metrics, "written") == 3)
    assert len(server.stored) == 1
    assert event["series"]["count"] == 3


def test_an_event_that_the_api_server_dropped_is_created_again(
    server: Server, told: Callable[[], Events], metrics: Metrics
) -> None:
    writer = told()
    writer(request(), DENIED)
    until(lambda: counted(metrics, "written") == 1)
    server.stored.clear()
    writer(request(), DENIED)
    until(lambda: counted(metrics, "written") == 2)
    (event,) = server.stored.values()
    assert "series" not in event


def test_an_event_that_cannot_be_written_is_counted_and_logged_once(
    server: Server, told: Callable[[], Events], metrics: Metrics, logged: list[Any]
) -> None:
    server.answers = [403, 403]
    writer = told()
    for note in ("a", "b", "c"):
        writer(request(), Verdict((Result("r", Action.DENY, Finding((), note)),)))
    until(lambda: (counted(metrics, "failed"), counted(metrics, "written")) == (2, 1))
    (line,) = logged
    assert (line["message"], line["error"]) == ("event not written", "HTTP 403")


def test_a_review_does_not_wait_for_an_api_server_that_is_silent(
    server: Server, told: Callable[[], Events], metrics: Metrics
) -> None:
    server.open.clear()
    writer = told()
    for number in range(1000):  # which would not end if it waited: nobody opens the server meanwhile
        writer(request(another(uid=str(number))), DENIED)
    writer(replace(request(), dry_run=True), DENIED)
    assert 0 < 1000 - counted(metrics, "dropped") <= events.MAX_PENDING + 25
    assert counted(metrics, "written") == 0
    server.open.set()
    until(lambda: counted(metrics, "written") >= 20)
