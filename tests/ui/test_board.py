"""The parts of the page are read while somebody looks, one apart from the other."""

import threading

from webhook.model import Problem, Unusable
from webhook.ui import board as boards
from webhook.ui.board import Board, LivePart

PATIENCE = 300.0


def started(*parts: LivePart, reports: list[str] | None = None) -> Board:
    made = Board(parts, (reports if reports is not None else []).append)
    made.start()
    return made


def test_nothing_is_read_while_nobody_looks() -> None:
    read = threading.Event()

    def reading() -> str:
        read.set()
        return "x"

    shown = started(LivePart("a", "A", 0.0, reading))
    assert shown.changes({}, 0.1) == []
    assert not read.is_set()
    assert [(part.name, part.version) for part in shown.look()] == [("a", 0)]
    (part,) = shown.changes({}, PATIENCE)
    assert (part.html, part.version > 0) == ("x", True)
    shown.stop()


def test_it_is_not_read_any_more_after_the_last_one_has_left() -> None:
    shown = started(LivePart("a", "A", 0.0, lambda: "x"))
    assert shown.watch()
    assert shown.changes({}, PATIENCE)
    shown.leave()
    before = shown.changes({}, PATIENCE)[0].version
    while shown.changes({"a": before}, 0.2):  # a reading had begun
        before = shown.changes({}, PATIENCE)[0].version
    assert shown.changes({"a": before}, 0.2) == []
    shown.stop()


def test_a_part_that_cannot_be_read_says_why_and_the_others_go_on() -> None:
    reports: list[str] = []

    def forbidden() -> str:
        raise Unusable([Problem("cluster", 0, "pods may not be listed: <b>no</b>")])

    def broken() -> str:
        raise KeyError("a secret")

    parts = (
        LivePart("a", "A", PATIENCE, forbidden),
        LivePart("b", "B", PATIENCE, broken),
        LivePart("c", "C", PATIENCE, lambda: "fine"),
    )
    shown = started(*parts, reports=reports)
    assert shown.watch()
    seen = dict[str, str]()
    while len(seen) < 3:
        seen |= {part.name: part.html for part in shown.changes(dict.fromkeys(seen, 9), PATIENCE)}
    assert "cluster: pods may not be listed: &lt;b&gt;no&lt;/b&gt;" in seen["a"]
    assert "internal error: KeyError" in seen["b"]
    assert "a secret" not in seen["b"]
    assert seen["c"] == "fine"
    assert "KeyError" in reports[0]
    shown.stop()


def test_the_end_wakes_those_who_wait() -> None:
    shown = started(LivePart("a", "A", 0.0, lambda: "x"))
    threading.Timer(0.05, shown.stop).start()
    assert shown.changes({"a": 99}, PATIENCE) == []
    assert shown.stopped


def test_there_is_a_limit_of_watchers() -> None:
    shown = Board([], print)
    assert [shown.watch() for _ in range(boards.MOST_WATCHERS + 1)] == [True] * boards.MOST_WATCHERS + [False]
    shown.leave()
    assert shown.watch()


def test_an_error_that_nobody_can_read_ends_no_reading() -> None:
    """Standard error may be a terminal that was closed while the page stays open."""
    again = threading.Event()

    def report(_: str) -> None:
        if again.is_set():
            return
        again.set()
        raise BrokenPipeError

    def broken() -> str:
        raise KeyError("x")

    shown = Board([LivePart("a", "A", 0.0, broken)], report)
    shown.start()
    shown.look()
    assert again.wait(PATIENCE)
    assert "internal error: KeyError" in shown.changes({}, PATIENCE)[0].html
    shown.stop()
