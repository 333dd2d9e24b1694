"""From what is seen to what the kernel does: real cgroups, a pretended card, and every way in which it may fail."""

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.bed import Container, containers, writable
from tests.support.waiting import until
from webhook.agent.actions import NodeAction
from webhook.agent.observe.look import CardUse, ContainerUse, ProcessUse
from webhook.agent.observe.nvml import CardReading
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Process
from webhook.agent.observe.view import NodeContainer, Observation, rows
from webhook.agent.turns import freezer as freezers
from webhook.agent.turns import ledger as ledgers
from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import Ledger
from webhook.agent.turns.turns import PAUSE_ENDED, PAUSED, CardTurns
from webhook.cgroups.places import ContainerCgroup
from webhook.gpu.pauses import Pause
from webhook.memory.admitted import Admitted
from webhook.policy.model import FIRST_COME, OFF, Contention, Over

RULES = Contention(FIRST_COME, longest=20, settle=0.1)
CARD = "GPU-0"


class Node:
    """A node whose containers are all on one card, with the time in the test's hands."""

    def __init__(self, folder: Path, here: list[Container]) -> None:
        self.here, self.now, self.logged = here, 100.0, list[Any]()
        self.told: list[tuple[str, str]] = []
        self.done: list[tuple[str, str, str]] = []
        self.rules = RULES
        self.book = Ledger(folder)
        self.freezer: Any = Freezer(writable())
        self.turns = self.fresh()
        self.fields: dict[str, Any] = {}
        self.pauses: dict[str, Pause | None] = {}
        self.step([], busy=0)  # the first look finds nobody

    def fresh(self, **more: Any) -> CardTurns:
        return CardTurns(self.freezer, self.book, self.logged.append, lambda: self.rules, **more)

    def record(self, actions: Iterable[NodeAction]) -> None:
        """Carry actions out, as the loop does: the reports apart from the others."""
        for each in actions:
            pod = each.target.name.pod if each.target else ""
            if each.reason:
                self.told.append((pod, each.reason))
            else:
                self.done.append((each.verb, pod, each.outcome))

    def look(self, cards: list[CardUse], known: dict[str, NodeContainer]) -> None:
        nvml: Any = None
        self.record(self.turns.look(Observation(nvml, tuple(cards), known, rows(cards, known), (), Over()), self.now))

    def close(self) -> None:
        self.record(self.turns.close())

    def use(self, one: Container, **held: Any) -> ContainerUse:
        place = ContainerCgroup(one.uid, one.id, one.path, 2)
        process = Process(one.process.pid, int(one.id, 16), "job", place)
        return ContainerUse(place, (ProcessUse(process, 100, 50, **held),))

    def step(
        self, here: list[Container] | None = None, busy: int | None = 100, after: float = 0.1, rules: Contention = RULES
    ) -> None:
        here = self.here if here is None else here
        self.now += after
        reading = CardReading(
            CARD, "0", "Card", **{"used": 1000, "total": 24576, "busy": busy, "processes": (), **self.fields}
        )
        known = {
            each.id: NodeContainer(
                ContainerName("team", f"job-{int(each.id, 16)}", "main"),
                each.uid,
                Admitted(requests=True, pause=self.pauses.get(each.id, Pause(20))),
            )
            for each in here
        }
        self.rules = rules
        self.look([CardUse(reading, tuple(map(self.use, here)))], known)

    @property
    def frozen(self) -> list[int]:
        """Whom the kernel is asked to freeze: it takes a moment to say that one runs again."""
        return [number for number, each in enumerate(self.here) if Freezer(writable()).requested(each.path)]

    @property
    def written(self) -> set[str]:
        return {*self.book.read().until}


@pytest.fixture
def three() -> Iterator[list[Container]]:
    with containers(3) as made:
        yield made


@pytest.fixture
def node(three: list[Container], tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "run", three)
    yield made
    made.book.leave()


def paths(node: Node, *numbers: int) -> set[str]:
    return {node.here[number].path for number in numbers}


def test_those_that_wait_are_frozen_and_written_down_and_each_end_lets_the_next_one_run(node: Node) -> None:
    node.step(busy=0)
    assert (node.frozen, node.written) == ([1, 2], paths(node, 1, 2))
    assert node.turns.contended
    node.here[0].process.kill()
    node.here[0].process.wait()
    node.step(node.here[1:])
    assert (node.frozen, node.written) == ([2], paths(node, 2))
    node.close()
    assert (node.frozen, node.written) == ([], set())
    assert node.done == [
        ("Freeze", "job-2", "done"),
        ("Freeze", "job-3", "done"),
        ("Thaw", "job-2", "done"),
        ("Thaw", "job-3", "done"),
    ]


def test_a_container_that_ends_while_it_is_frozen_is_forgotten(node: Node) -> None:
    node.step(busy=0)
    node.here[2].process.kill()
    node.here[2].process.wait()
    node.step(node.here[:2])
    assert (node.frozen, node.written) == ([1], paths(node, 1))


def test_the_ledger_names_a_path_before_the_kernel_is_asked(node: Node) -> None:
    class Dies(Freezer):
        def freeze(self, *_: Any) -> Any:
            raise SystemExit(9)

    node.turns.freezer = Dies(writable())
    with pytest.raises(SystemExit):
        node.step(busy=0)
    assert node.written == paths(node, 1, 2)


def test_a_thaw_leaves_the_ledger_only_after_it_is_done(node: Node) -> None:
    node.step(busy=0)

    class Dies(Freezer):
        def thaw(self, *_: Any) -> str:
            raise SystemExit(9)

    node.turns.freezer = Dies(writable())
    with pytest.raises(SystemExit):
        node.record(node.turns.blind(node.now))
    assert node.written == paths(node, 1, 2)


@pytest.mark.parametrize(
    "fields", [{"busy": None}, {"errors": ("nvmlDeviceGetMemoryInfo: GPU is lost",)}, {"used": None}]
)
def test_a_look_that_fails_or_a_lost_card_lets_all_run_until_it_is_back(node: Node, fields: dict[str, Any]) -> None:
    node.step(busy=0)
    node.fields = fields
    node.step()
    assert (node.frozen, node.written) == ([], set())
    node.fields = {}
    for _ in range(4):
        node.step()
    assert node.frozen == [1, 2]


def test_after_a_gap_between_looks_all_run(node: Node) -> None:
    node.step(busy=0)
    node.step(after=3.1)
    assert node.frozen == []


def test_without_turns_in_the_policy_all_run(node: Node) -> None:
    node.step(busy=0)
    node.step(rules=Contention(OFF))
    assert (node.frozen, node.written, node.turns.contended) == ([], set(), False)


def test_who_may_not_be_frozen_any_more_runs(node: Node) -> None:
    node.step(busy=0)
    node.pauses = {node.here[2].id: None}  # its pod ends, or its annotation is gone
    node.step()
    assert node.frozen == [1]


@pytest.mark.parametrize("what", ["mps", "mig", "unreachable", "version 1", "unknown"])
def test_one_that_must_not_be_touched_never_is(node: Node, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = node.use

    def use(one: Container) -> ContainerUse:
        own = plain(one, mps=what == "mps")
        others: dict[str, Any] = {"unreachable": {"path": f"/../..{one.path}"}, "version 1": {"version": 1}}
        return own._replace(place=own.place._replace(**others.get(what, {})))

    monkeypatch.setattr(node, "use", use)
    node.fields = {"mig": True} if what == "mig" else {}
    node.pauses = dict.fromkeys((each.id for each in node.here), None) if what == "unknown" else {}
    for _ in range(5):
        node.step()
    assert (node.frozen, node.written) == ([], set())


def test_one_on_two_cards_is_in_one_queue(node: Node) -> None:
    node.close()
    uses = [node.use(each) for each in node.here]
    known = {
        each.id: NodeContainer(ContainerName("t", each.id[-1], "m"), "u", Admitted(pause=Pause(20)))
        for each in node.here
    }
    first, second = (CardReading(f"GPU-{n}", str(n), "Card", 1000, 24576, 0, ()) for n in (0, 1))
    node.now += 0.1
    node.look([CardUse(first, (uses[0], uses[1])), CardUse(second, (uses[1], uses[2]))], known)
    node.now += 0.2
    busy = [
        CardUse(first._replace(busy=100), (uses[0], uses[1])),
        CardUse(second._replace(busy=100), (uses[1], uses[2])),
    ]
    for _ in range(3):
        node.now += 0.2
        node.look(busy, known)
    assert node.frozen == [1, 2]


def test_what_another_froze_is_left_so_and_counts_as_absent(node: Node) -> None:
    (node.here[1].folder / "cgroup.freeze").write_text("1")
    node.step(busy=0)
    assert node.written == paths(node, 2)
    node.close()
    until(lambda: node.frozen == [1], "the one that another froze still is")
    (line,) = [line for line in node.logged if "another program" in line["message"]]
    assert (line["container_id"], line["why"]) == (node.here[1].id, "it is frozen")


def test_one_below_a_frozen_cgroup_is_told_as_such(node: Node) -> None:
    (node.here[1].folder.parent / "cgroup.freeze").write_text("1")
    until(lambda: node.here[1].frozen, "it stands still")
    node.step(busy=0)
    node.step(busy=0)
    assert [line["why"] for line in node.logged if "another program" in line["message"]] == [
        "a cgroup above it is frozen"
    ]
    (node.here[1].folder.parent / "cgroup.freeze").write_text("0")


def test_what_another_thawed_is_not_frozen_again_before_it_rested(node: Node) -> None:
    node.step(busy=0)
    (node.here[1].folder / "cgroup.freeze").write_text("0")
    for _ in range(3):
        node.step()
        assert node.frozen == [2]
    for _ in range(8):
        node.step(after=2)
    assert 1 in node.frozen


def test_a_freeze_that_fails_is_told_and_not_tried_again_before_a_rest(node: Node) -> None:
    class Slow(Freezer):
        tried = 0

        def freeze(self, paths: Any) -> Any:
            Slow.tried += len(paths)
            return dict.fromkeys(paths, "not frozen in time")

    node.turns.freezer = Slow(writable())
    for _ in range(3):
        node.step()
    assert (Slow.tried, node.frozen, node.written) == (2, [], set())
    for _ in range(6):
        node.step(after=2.9)
    assert Slow.tried == 4
    assert {outcome for verb, _, outcome in node.done if verb == "Freeze"} == {"not frozen in time"}


def test_a_ledger_that_cannot_be_written_lets_all_run(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.step(node.here[:2], busy=0)
    assert node.frozen == [1]
    monkeypatch.setattr(Ledger, "write", lambda *_: "No space left on device")
    node.step()
    assert node.frozen == []
    for _ in range(5):
        node.step()
    assert node.frozen == []
    assert [line for line in node.logged if line["message"] == "no ledger"] == [
        {"message": "no ledger", "error": "No space left on device"}
    ]


def test_a_torn_ledger_is_thawed_and_written_anew_before_anybody_is_frozen(node: Node) -> None:
    node.close()
    one, two, _ = node.here
    assert node.freezer.freeze([one.path, two.path]) == {}
    file = node.book.folder / "frozen"
    file.write_text(f"\0\0{{]\n12.5 {one.path}\nsoon {two.path}\n9 {two.path[:-7]}")
    node.turns = node.fresh()
    node.step(busy=0)
    assert node.frozen == []
    assert file.read_text() == ""
    assert [line for line in node.logged if line["message"] == "thawed the containers in the ledger"] == [
        {"message": "thawed the containers in the ledger", "thawed": 2, "failed": 0, "invalid": 2}
    ]


def test_a_second_agent_thaws_once_and_watches_until_the_first_one_is_gone(node: Node) -> None:
    node.step(busy=0)
    second = Node.__new__(Node)
    second.__dict__.update(node.__dict__)
    second.book, second.logged = Ledger(node.book.folder), []
    second.turns = second.fresh()
    for _ in range(3):
        second.step()
    assert second.logged == [
        {"message": "thawed the containers in the ledger", "thawed": 2, "failed": 0, "invalid": 0},
        {"message": "no turns", "error": "another agent runs on this node"},
    ]
    assert node.frozen == []
    node.step(after=0.1)  # the first one finds that somebody thawed them, lets them rest, and goes on
    for _ in range(8):
        node.step(after=2.5)
        second.step(after=0)
    assert node.frozen == [1, 2]
    node.book.leave()  # as its end does
    second.step()
    assert node.frozen == []  # what the first one left runs
    for _ in range(4):
        second.step()
    assert node.frozen == [1, 2]
    second.close()


def test_without_a_freezer_it_says_so_and_watches(node: Node) -> None:
    node.close()
    node.freezer = None
    node.turns = node.fresh(lacks="the root of cgroup v2 is not mounted")
    node.step()
    assert node.logged[-1] == {"message": "no turns", "error": "the root of cgroup v2 is not mounted"}
    assert node.frozen == []


def test_a_long_pause_and_its_end_are_told_once_and_a_short_one_is_not(node: Node) -> None:
    node.step(busy=0)
    for _ in range(5):
        node.step(after=2)
    assert sorted(node.told) == [("job-2", PAUSED), ("job-3", PAUSED)]
    stands = node.turns.pauses
    assert [(name.pod, each.frozen, each.seconds) for name, each in sorted(stands.items())] == [
        ("job-1", False, 0.0),
        ("job-2", True, pytest.approx(10.0)),
        ("job-3", True, pytest.approx(10.0)),
    ]
    node.step(node.here[1:])
    assert node.told[2:] == [("job-2", PAUSE_ENDED)]


# Faults of the system, at each call


class Broken:
    """The module `os`, whose calls fail from the n-th one on, or at the n-th one alone."""

    def __init__(self, fails: int, number: int, *, once: bool) -> None:
        self.left, self.number, self.once, self.hit = fails, number, once, False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in ("open", "write", "pread", "read", "utime", "fstat"):
            return real

        def call(*arguments: Any, **more: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.left < 0 and not self.once):
                self.hit = True
                raise OSError(self.number, os.strerror(self.number))
            return real(*arguments, **more)

        return call


@pytest.mark.parametrize("number", [errno.ENOENT, errno.ENODEV, errno.EACCES, errno.EBUSY, errno.ENOSPC])
@pytest.mark.parametrize("once", [True, False])
def test_whichever_call_fails_nothing_is_frozen_that_the_ledger_does_not_name(
    three: list[Container], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, once: bool
) -> None:
    calls = 0
    for fails in range(1, 60):
        node = Node(tmp_path / str(fails), three)
        with monkeypatch.context() as patch:
            broken = Broken(fails, number, once=once)
            patch.setattr(freezers, "os", broken)
            patch.setattr(ledgers, "os", broken)
            node.step(busy=0)
            text = (node.book.folder / "frozen").read_text() if node.frozen else ""
            assert all(path in text for path in paths(node, *node.frozen))
            node.step(three[1:])
        assert paths(node, *node.frozen) <= node.written, fails
        node.close()
        node.close()
        assert node.frozen == [], fails
        if not broken.hit:
            break
        calls += 1
    assert calls > 10
