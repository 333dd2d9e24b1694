"""Who runs on a contended card: scenes, random lives, the study's algorithm to the letter, and mutants."""

import ast
import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.agent import planning
from tests.agent.literal import manage
from webhook.agent.turns import plan

LIVES = 10_000


@pytest.mark.parametrize("scene", planning.SCENES, ids=lambda scene: scene.__name__)
def test_in_this_scene_the_right_ones_run(scene: Callable[[Any], None]) -> None:
    scene(plan)


@pytest.mark.parametrize("rules", planning.RULES)
def test_in_random_lives_somebody_always_runs_and_nobody_is_frozen_who_may_not_be(rules: str) -> None:
    planning.lives(plan, range(10), planning.RULES[rules])


@pytest.mark.thorough
@pytest.mark.parametrize("rules", planning.RULES)
def test_in_ten_thousand_random_lives_as_well(rules: str) -> None:
    planning.lives(plan, range(10, 10 + LIVES // len(planning.RULES)), planning.RULES[rules])


# The study's algorithm to the letter


def test_to_the_letter_all_run_while_the_first_one_reads_its_input() -> None:
    assert manage(0, 0, 0.3, ["c1", "c2", "c3"]) == (3, [])
    planning.an_input_stage(plan)


def test_to_the_letter_the_count_stays_when_those_that_it_counted_have_ended() -> None:
    count, still = manage(2, 100, 0.3, ["c1", "c2", "c3"])
    assert (count, still) == (2, ["c3"])
    assert manage(count, 100, 0.3, ["c3", "c4"]) == (2, [])  # both run at once, on a card that one of them fills
    planning.three_that_arrive_together(plan)


def test_to_the_letter_the_rule_of_memory_freezes_one_that_was_let_run_at_that_moment() -> None:
    assert manage(1, 50, 0.96, ["c1", "c2", "c3"]) == (2, ["c2", "c3"])
    assert manage(2, 50, 0.96, ["c1", "c2", "c3"]) == (3, ["c3"])  # the next time round c2 runs, and memory is as full
    planning.full_memory(plan)


# Mutants: each is a fault that somebody could make, and each must be seen

MUTANTS = {
    "the last come is first": ("    queue = sorted(order,", "    queue = sorted(order, reverse=True,"),
    "nobody is released": ("self._now >= self._frozen[key].until:", "False:"),
    "no rest after a freeze": ("        if seconds > 0:\n", "        if False:\n"),
    "a rest that ends at once": (
        "if until > self._now}\n        self._thaw",
        "if until < self._now}\n        self._thaw",
    ),
    "blind freezes": ("        if len(known) < len(looks):", "        if False and len(known) < len(looks):"),
    "a blind look keeps them frozen": ("                self._release(key, BLIND)", "                pass"),
    "after a blind look nobody was found": ("            self._found.add(key)", "            pass"),
    "newcomers run": ("                self._stop(key, QUEUED)", "                pass"),
    "who rests is frozen": (
        "and key not in self._resting:\n                self._stop",
        "and True:\n                self._stop",
    ),
    "who rests loses its turn": (
        "        if key in self._resting:\n            return False",
        "        if False:\n            return False",
    ),
    "memory freezes the first": ("            last = max(running,", "            last = min(running,"),
    "memory freezes the only one": ("settled and len(running) > 1 and", "settled and len(running) > 0 and"),
    "memory does not settle": ("            return settled and len(running)", "            return len(running)"),
    "memory is never full": ("        if not room:", "        if False:"),
    "full memory is one MiB late": ("100 * look.used <= self._rules.full", "100 * look.used - 99 <= self._rules.full"),
    "the input stage counts as time": ("ready = bool(running) and all(", "ready = bool(running) or all("),
    "nobody's patience ends": ("self._now - self._running[key] >= self._rules.patience", "False"),
    "use is never shown": ("if key in before.shown or here[key].sm}", "if key in before.shown}"),
    "use is forgotten": ("if key in before.shown or here[key].sm}", "if here[key].sm}"),
    "time at once": ("now - max(times.idle, times.changed) >= rules.settle", "True"),
    "time since the act does not count": ("now - max(times.idle, times.changed) >=", "now - times.idle >="),
    "a busy card counts as calm": ("calm = all(busy < self._rules.busy", "calm = all(busy <= self._rules.busy"),
    "the policy's share of busy use counts for nothing": (
        "calm = all(busy < self._rules.busy",
        "calm = all(busy < 100",
    ),
    "one calm card of two is enough": ("calm = all(busy < self._rules.busy", "calm = any(busy < self._rules.busy"),
    "turns without the policy": ("rules.mode == TURNS and waiting", "True and waiting"),
    "a turn never ends": ("now - self._running[oldest] >= rules.turn", "False"),
    "a turn ends at once": ("now - self._running[oldest] >= rules.turn", "True"),
    "the newest turn ends": ("        oldest = min(running,", "        oldest = max(running,"),
    "who had a turn keeps its place": (
        "            self._queue.append(oldest)",
        "            self._queue.insert(0, oldest)",
    ),
    "a lower priority takes the turn": ("due and order[waiting[0]][0] <= order[oldest][0] and", "due and"),
    "priorities are upside down": ("(-each.priority, place[each.key])", "(each.priority, place[each.key])"),
    "priorities do not count": ("(-each.priority, place[each.key])", "(0, place[each.key])"),
    "found ones stop at once": ("now - times.busy < rules.settle or not", "not"),
    "found ones never stop": (
        "        if now - times.busy < rules.settle",
        "        if True or now - times.busy < rules.settle",
    ),
    "the first found one stops too": ("for key in running[1:] if", "for key in running if"),
    "what ran before waits": ("        if before.found is None:", "        if False and before.found is None:"),
    "the queue goes by name": ("(here[key].first, key))", "(key, here[key].first))"),
    "gone ones stay": ("            self._release(key, GONE)", "            pass"),
    "a turn leaves one frozen": (
        "            self._let(waiting[0], TURN)",
        "            self._running[waiting[0]] = self._now",
    ),
    "thawed by another is taken for frozen": ("if key in seen.thawed]", "if key in ()]"),
    "cards that share a container are apart": ("            if group[0] & cards:", "            if group[0] == cards:"),
    "each one's bound is the policy's": (
        "self._now + one.longest, one.rest)",
        "self._now + self._rules.longest, one.rest)",
    ),
    "freezes come first": ("        return state, (*thaw, *freeze)", "        return state, (*freeze, *thaw)"),
    "off freezes": ("    if rules.mode == OFF:", "    if False:"),
    "a release forgets who rests": ("    resting |= {key: now + each.rest", "    resting = {key: now"),
    "a release keeps the queue": (
        "    return TurnState(resting=resting), tuple",
        "    return replace(before, resting=resting), tuple",
    ),
    "a failed freeze is tried at once": ("resting={**state.resting, key: until})", "resting=state.resting)"),
}


def mutated(old: str, new: str) -> ModuleType:
    source = inspect.getsource(plan)
    assert source.count(old) == 1, f"{old!r} stands {source.count(old)} times in the planner: write the mutant anew"
    module = ModuleType("mutant")
    sys.modules["mutant"] = module  # dataclasses looks its module up
    try:
        exec(compile(source.replace(old, new), "mutant.py", "exec"), module.__dict__)  # noqa: S102
    finally:
        del sys.modules["mutant"]
    return module


def survives(planner: ModuleType) -> bool:
    try:
        for scene in planning.SCENES:
            scene(planner)
        for rules in planning.RULES.values():
            planning.lives(planner, range(10), rules)
    except (AssertionError, LookupError, ValueError):
        return False
    return True


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_planner_with_this_fault_is_caught(fault: str) -> None:
    assert not survives(mutated(*MUTANTS[fault]))


# The list of what turns must do


HERE = Path(__file__).parent


@cache
def defined() -> dict[str, ast.FunctionDef]:
    """The functions of these tests, by their names."""
    trees = (ast.parse(file.read_text("utf-8")) for file in HERE.glob("*.py"))
    return {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


JUDGES = {"raises", "until"}
"""Functions that fail a test."""


def checks(name: str, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a function, or one that it calls, asserts."""
    if name not in defined() or name in seen:
        return False
    for node in ast.walk(defined()[name]):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in JUDGES or checks(called, seen | {name}):
                return True
    return False


def test_each_test_of_the_list_is_there_and_asserts_and_is_never_skipped() -> None:
    named = re.findall(r"`([a-z_]+)`", (HERE / "turns.md").read_text("utf-8"))
    assert len(named) > 40
    assert [name for name in named if not checks(name)] == []
    marks = {name: [ast.unparse(mark) for mark in defined()[name].decorator_list] for name in named}
    assert [name for name, own in marks.items() if any("skip" in mark or "xfail" in mark for mark in own)] == []
    assert [name for name in named if re.search(r"\b(skip|xfail)\(", ast.unparse(defined()[name]))] == []
