"""The loop of a controller survives whatever ends a look."""

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from webhook.cluster import client
from webhook.controller import lease, run
from webhook.controller.controller import Controller, Round
from webhook.controller.health import ControllerMetrics

ERRORS = [
    RecursionError("deep"),
    KeyError("metadata"),
    TypeError("none"),
    AttributeError("get"),
    client.StatusError(409, "modified"),
    client.StatusError(422, "too large"),
    client.Unreachable("away"),
    ValueError("x" * 5000),
]


class Failing:
    """A controller whose looks fail in each way, and then succeed."""

    standing, replicas = None, ()

    def __init__(self, ended: threading.Event) -> None:
        self.errors, self.ended = [*ERRORS], ended
        self.begun = 0

    def begin(self) -> None:
        self.begun += 1

    def look(self) -> Round:
        if self.errors:
            raise self.errors.pop(0)
        self.ended.set()
        return Round()


def test_a_look_that_fails_in_any_way_is_logged_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "WAITING", 0.0)
    ended, log, metrics = threading.Event(), list[Mapping[str, Any]](), ControllerMetrics()
    one = cast("Controller", Failing(ended))
    run.run(one, lambda: True, threading.Event(), ended, metrics, log.append)
    assert [line["message"] for line in log] == ["tries again"] * len(ERRORS)
    assert all(len(line["error"]) <= run.LONGEST for line in log)
    said = metrics.text().decode()
    counted = {"conflict": 1, "refused": 1, "unreachable": 1, "other": len(ERRORS) - 3}
    for kind, count in counted.items():
        assert f'slicewarden_controller_errors_total{{kind="{kind}"}} {count}.0' in said


def test_the_pauses_after_failures_grow_and_have_an_end() -> None:
    class Ended(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.waits: list[float] = []

        def wait(self, timeout: float | None = None) -> bool:
            self.waits.append(timeout or 0.0)
            if len(self.waits) == 8:
                self.set()
            return True

    def fails() -> bool:
        raise RuntimeError

    ended = Ended()
    one = cast("Controller", Failing(ended))
    run.run(one, fails, threading.Event(), ended, ControllerMetrics(), lambda _: None)
    assert ended.waits == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, 5.0]


def test_a_controller_that_does_not_lead_waits_whatever_has_changed() -> None:
    """A change that stays set would end each wait: the lease was read without a pause."""

    class Changed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append((self.is_set(), timeout))
            ended.set()
            return True

    waits: list[tuple[bool, float | None]] = []
    ended, changed = threading.Event(), Changed()
    changed.set()
    one = cast("Controller", Failing(ended))
    run.run(one, lambda: False, changed, ended, ControllerMetrics(), lambda _: None)
    assert waits == [(False, lease.RENEW)]


def test_a_controller_begins_whenever_it_leads_again() -> None:
    class Changed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return timeout is not None

    class Idle(Failing):
        def look(self) -> Round:
            return Round()

    def leads() -> bool:
        ours = turns.pop(0)
        if not turns:
            ended.set()
        return ours

    turns, ended = [True, True, False, True], threading.Event()
    one = Idle(ended)
    run.run(cast("Controller", one), leads, Changed(), ended, ControllerMetrics(), lambda _: None)
    assert one.begun == 2


def test_after_more_writes_than_a_change_needs_each_is_followed_by_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that reports another release each time calls for a write in each look."""

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append((one.looks, timeout))
            now[0] += timeout or 0.0
            if len(waits) == 3:
                self.set()
            return True

    class Busy(Failing):
        looks = 0

        def look(self) -> Round:
            self.looks += 1
            return Round("releases")

    now = [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    waits, ended = list[tuple[int, float | None]](), Ended()
    one = Busy(ended)
    run.run(cast("Controller", one), lambda: True, threading.Event(), ended, ControllerMetrics(), lambda _: None)
    assert waits == [(run.PATIENT + number, run.WAITING) for number in (1, 2, 3)]
