"""Dead cards: XIDs and lost cards, by NVML's events and readings."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.card.state import LOST, NO_MPS, State
from webhook.agent.agent import AGAIN, NodeAgent, build
from webhook.agent.limits import dead
from webhook.agent.limits.dead import DeadCards
from webhook.agent.observe.nvml import CardReading, Cards, NvmlEvent
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Process
from webhook.agent.observe.view import NodeContainer
from webhook.cgroups.places import ContainerCgroup
from webhook.cluster.events import EventNote, body
from webhook.memory.admitted import Admitted
from webhook.policy.model import Over

CARD = "GPU-00000000-0000-0000-0000-000000000000"


def reading(uuid: str = CARD, parent: str = "", *, lost: bool = False) -> CardReading:
    faults = ("nvmlDeviceGetMemoryInfo: GPU is lost",) if lost else ()
    return CardReading(uuid, "0", "A10", None, None, None, (), errors=faults, parent=parent)


def test_a_critical_xid_is_fatal_and_an_applications_error_is_not(card: State) -> None:
    cards = Cards()
    for xid, fatal in ((79, True), (48, True), (13, False), (31, False), (109, False)):
        card.set(xid=xid)
        assert cards.events() == (NvmlEvent(CARD, f"XID {xid}", fatal),)
    assert cards.events() == ()
    cards.close()


def test_a_card_dies_once_by_its_first_event_and_stays_dead_though_it_answers() -> None:
    first = dead.update(
        dead.NONE, [reading()], [NvmlEvent(CARD, "XID 48", fatal=True), NvmlEvent(CARD, "XID 79", fatal=True)]
    )
    assert first == DeadCards({CARD: "XID 48"}, (CARD,))
    assert dead.update(first, [reading()], []) == DeadCards({CARD: "XID 48"})


def test_a_lost_card_is_dead_until_it_answers_again() -> None:
    first = dead.update(dead.NONE, [reading(lost=True)], [])
    away = dead.update(first, [], [])
    back = dead.update(away, [reading()], [])
    assert (first, away, back) == (DeadCards({CARD: dead.LOST}, (CARD,)), DeadCards({CARD: dead.LOST}), DeadCards({}))


def test_an_applications_error_kills_no_card() -> None:
    assert dead.update(dead.NONE, [reading()], [NvmlEvent(CARD, "XID 31", fatal=False)]) == dead.NONE


def test_a_card_whose_mig_devices_are_lost_dies_once() -> None:
    both = [reading("MIG-1", CARD, lost=True), reading("MIG-2", CARD, lost=True)]
    assert dead.update(dead.NONE, both, []).new == (CARD,)


class Written:
    """List what would be written as Events."""

    def __init__(self) -> None:
        self.all: list[EventNote] = []

    def add(self, denied: EventNote) -> None:
        self.all.append(denied)


@pytest.fixture
def watched(card: State, monkeypatch: pytest.MonkeyPatch) -> tuple[NodeAgent, Written, Callable[[], str]]:
    """An agent that knows the container of every process on the card."""
    assert card.file.exists()
    place = ContainerCgroup("u-1", "ab" * 32, "/kubepods/x", 2)
    known = NodeContainer(ContainerName("team", "job", "main"), "u-1", Admitted(requests=True, allowance=9000))
    written = Written()
    one = build(lambda: {place.container: known}, Over, lambda _: None, write_event=written.add, node="node-1")
    monkeypatch.setattr(one._processes, "find", lambda pids: {pid: Process(pid, 1, "p", place) for pid in pids})
    return one, written, lambda: one.metrics.text().decode()


def test_a_dead_card_is_told_once_at_the_node_and_at_the_pods_on_it(
    card: State, watched: tuple[NodeAgent, Written, Callable[[], str]]
) -> None:
    one, written, text = watched
    card.hold(1, 100)
    card.set(xid=79)
    one.round()
    one.round()
    assert [(each.owner.kind, each.owner.name, each.reason) for each in written.all] == [
        ("Node", "node-1", "GPUDead"),
        ("Pod", "job", "GPUDead"),
    ]
    assert "XID 79; cordon the node" in written.all[0].note
    assert f'slicewarden_node_card_errors_total{{error="XID 79",gpu="{CARD}"}} 1.0' in text()
    assert f'slicewarden_node_card_dead{{gpu="{CARD}",index="0",model="Pretended Card"}} 1.0' in text()
    one.close()


@pytest.fixture
def now(watched: tuple[NodeAgent, Written, Callable[[], str]]) -> list[float]:
    """The agent's time, which only a test moves."""
    one, *_ = watched
    time = [0.0]
    one.clock = one.metrics.clock = lambda: time[0]
    return time


def test_a_lost_card_is_dead_while_nvml_has_it_not_and_alive_when_it_is_back(
    card: State, watched: tuple[NodeAgent, Written, Callable[[], str]], now: list[float]
) -> None:
    one, written, text = watched
    one.round()
    card.set(fault=LOST)
    now[0] = AGAIN
    one.round()
    one.round()  # a fresh start of NVML, which cannot open the lost card
    assert f'slicewarden_node_card_dead{{gpu="{CARD}",index="",model=""}} 1.0' in text()
    card.set(fault=0)
    one.round()
    now[0] = 2 * AGAIN
    one.round()
    one.round()
    assert f'slicewarden_node_card_dead{{gpu="{CARD}",index="0",model="Pretended Card"}} 0.0' in text()
    assert [each.owner.kind for each in written.all] == ["Node"]
    one.close()


def test_a_card_that_was_lost_before_the_start_is_dead_and_comes_back(
    card: State, watched: tuple[NodeAgent, Written, Callable[[], str]], now: list[float]
) -> None:
    one, written, text = watched
    card.set(fault=LOST)
    one.round()
    assert 'slicewarden_node_card_dead{gpu="index 0",index="",model=""} 1.0' in text()
    assert [each.note.partition(";")[0] for each in written.all] == ["GPU index 0 is dead: it has fallen off its bus"]
    card.set(fault=0)
    now[0] = AGAIN
    one.round()
    one.round()
    assert f'slicewarden_node_card_dead{{gpu="{CARD}",index="0",model="Pretended Card"}} 0.0' in text()
    assert "index 0" not in text()
    one.close()


def test_mig_devices_that_are_made_under_a_running_agent_are_seen(
    card: State, watched: tuple[NodeAgent, Written, Callable[[], str]], now: list[float]
) -> None:
    one, _, text = watched
    one.round()
    card.set(instances=2)
    now[0] = AGAIN
    one.round()
    one.round()
    assert 'slicewarden_node_card_used_bytes{gpu="MIG-' in text()
    assert f'slicewarden_node_card_used_bytes{{gpu="{CARD}"' not in text()
    one.close()


def test_an_older_driver_is_named_in_the_log_once(card: State) -> None:
    card.set(missing=NO_MPS)
    lines: list[dict[str, object]] = []
    one = build(dict, Over, lambda line: lines.append(dict(line)))
    one.round()
    one.round()
    one.close()
    assert lines == [
        {"message": "an old driver", "error": "driver 615.10 has no nvmlDeviceGetMPSComputeRunningProcesses_v3"}
    ]


readings_of_a_look = st.lists(
    st.tuples(st.sampled_from(["here", "lost", "unopened"]), st.booleans()), min_size=3, max_size=3
)


@given(st.lists(readings_of_a_look, max_size=6))
def test_as_many_cards_are_dead_as_are_lost_or_failed_whether_nvml_can_open_them_or_not(
    looks: list[list[tuple[str, bool]]],
) -> None:
    state, fatal = dead.NONE, set[int]()
    for look in looks:
        seen, events = list[CardReading](), list[NvmlEvent]()
        for number, (how, fails) in enumerate(look):
            uuid = f"GPU-{number}"
            if how == "unopened":
                seen.append(reading(f"index {number}", lost=True)._replace(opened=False))
                continue
            seen.append(reading(uuid, lost=how == "lost"))
            if fails:
                fatal.add(number)
                events.append(NvmlEvent(uuid, "XID 79", fatal=True))
        state = dead.update(state, seen, events)
        lost = {number for number, (how, _) in enumerate(look) if how != "here"}
        assert {*state.cards} >= {f"GPU-{number}" for number in fatal}
        assert len(state.cards) >= len(lost)
        if not lost:
            assert {*state.cards} == {f"GPU-{number}" for number in fatal}


def test_an_event_of_a_node_lies_in_the_namespace_default_and_names_no_namespace(
    card: State, watched: tuple[NodeAgent, Written, Callable[[], str]]
) -> None:
    one, written, _ = watched
    card.set(xid=48)
    one.round()
    one.close()
    event = body(written.all[0], 1, "2026-11-22T00:00:00.000000Z", "i")
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}
    assert len(event["note"].encode()) <= 1024
