"""What a policy that waits would deny: asked in the background, one at a time, and again after a while."""

import threading
from dataclasses import replace
from queue import Queue

import pytest

from tests.support.policies import POLICY, policy_of
from webhook.controller import preview
from webhook.controller.preview import AGAIN_SECONDS, UNKNOWN, Fields, Preview


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
