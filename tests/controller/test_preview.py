"""What a policy that waits would deny: asked in the background, one at a time, and again after a while."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from queue import Queue
from typing import Any

import pytest

from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api.resources import Resource
from webhook.catalog.device_variables import VISIBLE
from webhook.cluster import client, listing
from webhook.controller import preview
from webhook.controller.preview import AGAIN_SECONDS, UNKNOWN, Fields, Preview
from webhook.documents.files import alone
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Problem
from webhook.scan.diff import Change, compare


class World:
    """A clock that is set, and comparisons that answer what is put into the queue."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: Queue[tuple[str, str]] = Queue()
        self.answers: Queue[Fields] = Queue()
        self.found = threading.Semaphore(0)
        self.preview = Preview(self._ask, self.found.release, lambda: self.now)

    def _ask(self, old: str, new: str) -> Fields:
        self.asked.put((old, new))
        return self.answers.get()

    def answer(self, count: int) -> None:
        self.answers.put({"wouldDeny": count, "wouldDenySample": []})
        self.found.acquire()


@pytest.fixture
def world() -> World:
    return World()


OLD = policy_of(POLICY)


def test_nothing_is_known_before_the_answer_and_it_is_kept_for_a_while(world: World) -> None:
    assert world.preview.of(OLD, OLD) == UNKNOWN
    world.answer(3)
    assert world.preview.of(OLD, OLD)["wouldDeny"] == 3
    assert world.asked.qsize() == 1
    world.now = AGAIN_SECONDS + 1
    assert world.preview.of(OLD, OLD)["wouldDeny"] == 3
    world.answer(4)
    assert world.preview.of(OLD, OLD)["wouldDeny"] == 4
    assert world.asked.qsize() == 2


def test_one_is_compared_at_a_time(world: World) -> None:
    for _ in range(3):
        assert world.preview.of(OLD, OLD) == UNKNOWN
    world.answer(0)
    assert world.asked.qsize() == 1
    assert world.asked.get() == (OLD.written, OLD.written)


def test_few_comparisons_are_remembered_however_many_policies_wait(world: World) -> None:
    waiting = [replace(OLD, written=f"{OLD.written} {number}") for number in range(preview.KEPT + 5)]
    for number, policy in enumerate(waiting):
        assert world.preview.of(OLD, policy) == UNKNOWN
        world.answer(number)
        world.preview._thread.join()  # type: ignore[union-attr]
    assert len(world.preview._known) == preview.KEPT
    assert world.preview.of(OLD, waiting[-1])["wouldDeny"] == len(waiting) - 1


def test_a_cluster_that_cannot_be_reached_is_said(tmp_path: object) -> None:
    ask = preview.asking(f"{tmp_path}/missing", None)
    found = ask(OLD.written, OLD.written)
    assert found == {"wouldDeny": None, "wouldDenySample": ["not known: No such file or directory"]}


RULE = "visible-devices"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "vision", "uid": "1"}}
LARGE = {**POD, "spec": {"containers": [{"name": "c", "image": "i", "args": [""] * 500_000}]}}
DENIED = {
    **POD,
    "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": VISIBLE, "value": "all"}] * 100}]},
}


def changed(*items: Any, unread: Sequence[Problem] = ()) -> Change:
    actions = ({**OLD.actions, RULE: action} for action in (Action.WARN, Action.DENY))
    lax, strict = (Engine(replace(OLD, actions=each), rules.walk()) for each in actions)
    return Change.of(lax, strict, [compare(alone(item), lax, strict, Facts()).brief for item in items], unread)


def test_an_object_that_cannot_be_compared_is_named_and_hides_no_other() -> None:
    """Any tenant may have a pod without a GPU that is too large to be judged."""
    found = preview.answer(changed(LARGE, DENIED))
    denied, not_compared = found["wouldDenySample"]
    assert (found["wouldDeny"], denied) == (1, f"Pod vision/p: {RULE}")
    assert not_compared.startswith("not compared: Pod vision/p: ")
    assert preview.answer(changed(DENIED)) == {"wouldDeny": 1, "wouldDenySample": [denied]}
    many = preview.answer(changed(*[LARGE] * 10))
    assert (many["wouldDeny"], len(many["wouldDenySample"])) == (0, preview.NOT_COMPARED)


def test_nothing_is_known_if_a_part_of_the_cluster_cannot_be_read() -> None:
    pods = Resource("", "v1", "pods", "Pod")
    missing = listing.unread(pods, client.StatusError(403, "no right"))
    assert preview.answer(changed(DENIED, unread=[missing])) == preview.unknown("pods may not be listed: no right")


def test_a_comparison_keeps_no_more_of_an_object_than_the_status_shows() -> None:
    (one,) = changed(DENIED).changed
    assert (len(one.differences), one.before.verdict.results, one.after.verdict.results) == (1, (), ())
