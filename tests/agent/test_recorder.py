"""The usage record of a node: what a look shows of its slices, and what an agent that starts again counts on from."""

import json
import signal
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.agent.bed import api_server, get, running
from tests.support.card.state import State
from tests.support.waiting import LONG, until
from webhook.agent.metrics import AgentMetrics, LastLook
from webhook.agent.observe.look import CardUse, ContainerUse, ProcessUse
from webhook.agent.observe.nvml import CardReading, NvmlProcess
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Process
from webhook.agent.observe.sight import sight
from webhook.agent.observe.view import NodeContainer, Observation, rows
from webhook.agent.recorder import BUSY, UsageRecorder
from webhook.cgroups.places import ContainerCgroup
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.facts.snapshot import Facts
from webhook.http.messages import HttpRequest, Reply
from webhook.http.scrape import Pages
from webhook.memory.admitted import Admitted
from webhook.policy.model import Over
from webhook.usage import document
from webhook.usage.account import AccountState, CardShare, HolderLook, NodeLook, advance
from webhook.usage.held import HeldSlices, NodeSlices, held_by, workload
from webhook.usage.record import HOUR, SlicedCard
from webhook.usage.store import FILE, SHARED, DamagedRecord, UsageStore
from webhook.usage.totals import LINGER, MOST_ENDED, UsageTotals

UID = "11111111-2222-3333-4444-555555555555"
IDS = {"a": "aa" * 32, "b": "bb" * 32}


def card(uuid: str = "GPU-0", uses: dict[str, tuple[int | None, int | None]] | None = None, **more: Any) -> CardUse:
    """A card, with the MiB and percent of each container on it."""
    listed, found = [], []
    for number, (name, (mib, sm)) in enumerate((uses or {}).items()):
        place = ContainerCgroup(UID + name, IDS.get(name, "ff" * 32), f"/kubepods/{name}", 2)
        found.append(ContainerUse(place, (ProcessUse(Process(number, 1, "python", place), mib, sm),)))
        listed.append(NvmlProcess(number, mib, sm))
    busy = max((sm or 0 for _, sm in (uses or {}).values()), default=0)
    given = {"busy": busy, "processes": tuple(listed), **more}
    return CardUse(CardReading(uuid, uuid[-1], "A10", 100, 24_000, **given), tuple(found))


def observed(*cards: CardUse) -> Observation:
    containers = {
        each: NodeContainer(ContainerName("team", f"pod-{name}", "main"), UID + name, Admitted(True, 5000))
        for name, each in IDS.items()
    }
    return Observation(None, cards, containers, rows(cards, containers), (), Over())  # type: ignore[arg-type]


def node(**slices: int) -> NodeSlices:
    held = tuple(
        HeldSlices(UID + name, "team", f"Job/{name}", f"pod-{name}", "main", count) for name, count in slices.items()
    )
    return NodeSlices(4, "shared", "NVIDIA-A10", held, True)


def shares(seen: Observation, known: NodeSlices, **more: Any) -> dict[str, tuple[CardShare, ...]]:
    look, _ = sight(seen, known, more.pop("before", {}), **more)
    return {each.pod.removeprefix("pod-"): each.shares for each in look.holders}


@pytest.mark.parametrize(
    ("mib", "even"), [((3000,), 0), ((1500, 1500), 3000), ((2000, 1000), 4000), ((1, 0, 2), 6), ((2000, None), 0)]
)
def test_unequal_processes_are_seen(mib: tuple[int | None, ...], even: int) -> None:
    found = card(uses={"a": (1, 1)})
    (use,) = found.uses
    processes = tuple(use.processes[0]._replace(mib=each) for each in mib)
    (share,) = shares(observed(found._replace(uses=(use._replace(processes=processes),))), node(a=1))["a"]
    assert share.even == even


def test_a_container_is_on_the_card_where_its_processes_were_seen() -> None:
    seen = observed(card("GPU-0", {"a": (3000, 40)}), card("GPU-1"))
    look, places = sight(seen, node(a=1, b=1), {})
    assert [each.slices for each in look.cards] == [4, 4]
    found = {each.pod: each.shares for each in look.holders}
    assert found["pod-a"] == (CardShare("GPU-0", 1, True, 3000, 5000),)
    assert found["pod-b"] == (CardShare("", 1, False, 0, 5000),)
    later = shares(observed(card("GPU-0"), card("GPU-1")), node(a=1, b=1), before=places)
    assert later["a"] == (CardShare("GPU-0", 1, False, 0, 5000),)


def test_the_only_card_of_a_node_is_every_containers() -> None:
    assert shares(observed(card()), node(a=2)) == {"a": (CardShare("GPU-0", 2, False, 0, 5000),)}


def test_other_slices_of_a_container_may_be_of_any_card() -> None:
    seen = observed(card("GPU-0", {"a": (3000, 40)}), card("GPU-1"))
    assert shares(seen, node(a=3))["a"] == (CardShare("GPU-0", 1, True, 3000, 5000, elsewhere=2),)


def test_a_pod_that_requests_more_than_the_node_has_holds_no_more() -> None:
    """A tenant may bind such a pod itself; the kubelet refuses it, but not before it can be seen."""
    seen = observed(card("GPU-0"), card("GPU-1", opened=False))
    assert [share.slices for share in shares(seen, node(a=2**63 - 1))["a"]] == [8]


def test_a_container_may_work_on_a_card_that_cannot_be_opened() -> None:
    seen = observed(card("GPU-0", {"a": (3000, 0)}), card("GPU-1", opened=False))
    found = shares(seen, node(a=1, b=1))
    assert {name: [share.work for share in each] for name, each in found.items()} == {"a": [False], "b": [None]}
    assert [share.work for share in shares(seen, node(a=2))["a"]] == [None]


def test_a_container_that_requests_nothing_is_counted_without_a_slice() -> None:
    assert shares(observed(card(uses={"a": (3000, 40)})), node())["a"] == (CardShare("GPU-0", 0, True, 3000, 5000),)


def test_two_that_work_at_once_contend() -> None:
    found = shares(observed(card(uses={"a": (3000, 40), "b": (9000, 60)})), node(a=1, b=1))
    assert [(share.contended, share.over) for each in found.values() for share in each] == [(True, False), (True, True)]


@pytest.mark.parametrize(
    "seen",
    [
        card(errors=("nvmlX: no",)),
        card(busy=None),
        card(busy=30),
        card(processes=(NvmlProcess(99, 10, 0),)),
        card(uses={"a": (3000, None)}),
        card(uses={"a": (3000, 0), "b": (3000, 99)}),
        card(uses={"a": (3000, 0)}, processes=(NvmlProcess(0, 3000, 0), NvmlProcess(1, 3000, 0, other=True))),
        card(uses={"stranger": (3000, 0)}),
        card(processes=(NvmlProcess(0, 3000, 0, mps=True),)),
    ],
    ids=[
        "errors",
        "unknown",
        "unattributed work",
        "unknown process",
        "no report",
        "next to work",
        "next to copies",
        "unknown container",
        "MPS",
    ],
)
def test_a_container_that_may_have_worked_is_not_called_idle(seen: CardUse) -> None:
    assert [share.work for share in shares(observed(seen), node(a=1))["a"]] == [None]


def test_a_container_without_a_process_is_idle_next_to_one_that_works() -> None:
    found = shares(observed(card(uses={"b": (3000, 99)})), node(a=1, b=1))
    assert {name: [share.work for share in each] for name, each in found.items()} == {"a": [False], "b": [True]}


def test_a_container_that_the_agent_has_frozen_is_not_called_idle() -> None:
    name = ContainerName("team", "pod-a", "main")
    assert [share.work for share in shares(observed(card(uses={"a": (1, 0)})), node(a=1), frozen={name})["a"]] == [None]


def test_mig_devices_and_a_node_without_slices_are_not_counted() -> None:
    assert not sight(observed(card(mig=True)), node(a=1), {})[0].seen
    assert not sight(observed(card()), NodeSlices(), {})[0].seen


# What a pod holds


def pod(*requests: int, init: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    def own(name: str, count: int) -> dict[str, Any]:
        return {"name": name, "image": "i", "resources": {"limits": {"nvidia.com/gpu.shared": str(count)}}}

    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "team", "name": "p", "uid": "u"},
        "spec": {
            "containers": [own(f"c{number}", count) for number, count in enumerate(requests)],
            "initContainers": [own(f"i{number}", count) for number, count in enumerate(init)],
            **more.pop("spec", {}),
        },
        **more,
    }


@pytest.mark.parametrize(
    ("item", "held", "complete"),
    [
        (pod(1), {"c0": 1}, True),
        (pod(1, 2), {"c0": 1, "c1": 2}, True),
        (pod(1, init=(1, 1)), {"c0": 1}, True),
        (pod(1, init=(3, 2)), {"c0": 1, "i0": 2}, True),
        (pod(1, status={"phase": "Succeeded"}), {}, True),
        (pod(1, status={"phase": "Pending"}), {"c0": 1}, True),
        (pod(1, spec={"resourceClaims": [{"name": "x"}]}), {"c0": 1}, False),
        (pod(1, spec={"containers": "none"}), {}, False),
    ],
)
def test_a_pod_holds_what_its_containers_request_until_it_ends(item: Any, held: dict[str, int], complete: bool) -> None:
    found = held_by(item, inputs.load_sample(), Facts())
    assert ({each.container: each.slices for each in found.held}, found.complete) == (held, complete)


def test_a_container_that_has_ended_still_holds_its_slices() -> None:
    states = [{"terminated": {"exitCode": 0}}, {"running": {}}, {"waiting": {"reason": "CrashLoopBackOff"}}]
    statuses = [{"name": f"c{number}", "state": state} for number, state in enumerate(states)]
    status = {"phase": "Running", "containerStatuses": [*statuses, "none", {"name": "c1", "state": "none"}]}
    item = pod(1, 1, 1, 1, init=(5,), status={**status, "initContainerStatuses": [{"name": "i0", "state": states[0]}]})
    found = held_by(item, inputs.load_sample(), Facts())
    assert {each.container: (each.slices, each.ended) for each in found.held} == {
        "c0": (1, True),
        "c1": (1, False),
        "c2": (1, False),
        "c3": (1, False),
        "i0": (1, True),
    }


@pytest.mark.parametrize(
    ("owner", "found"),
    [
        ({"kind": "Job", "name": "train", "controller": True}, "Job/train"),
        ({"kind": "ReplicaSet", "name": "web-5d", "controller": True}, "Deployment/web"),
        ({"kind": "ReplicaSet", "name": "web-77", "controller": True}, "ReplicaSet/web-77"),
        ({"kind": "Job", "name": "train"}, ""),
        ({"kind": "x" * 9000, "name": "y" * 9000, "controller": True}, "(unnamed)"),
        ({"kind": "Job", "name": "a\ud800\x1b[2J", "controller": True}, "(unnamed)"),
        ({"kind": 5, "name": [], "controller": True}, "(unnamed)"),
        ("text", ""),
    ],
)
def test_a_workload_is_what_controls_the_pod(owner: Any, found: str) -> None:
    assert workload({"ownerReferences": [owner], "labels": {"pod-template-hash": "5d"}}) == found


# The recorder


class Clock:
    """Both clocks of a node, in seconds."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 100.0, 490_000 * 3600.0

    def pass_by(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds


class AtOnce(Executor):
    """Saves in the thread of the look, so that a test knows when."""

    def submit(self, call: Any, /, *given: Any, **_: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(call(*given))
        return done


def recorder(clock: Clock, folder: Path | None, log: list[Any] | None = None, boot: str = "boot") -> UsageRecorder:
    return UsageRecorder(
        "node-1",
        lambda: node(a=1),
        UsageStore(folder) if folder else None,
        (log if log is not None else []).append,
        boot=boot,
        wall=lambda: clock.wall,
        clock=lambda: clock.monotonic,
        saver=AtOnce(),
    )


def looks(one: UsageRecorder, clock: Clock, seconds: int) -> None:
    for _ in range(seconds):
        one.look(observed(card(uses={"a": (3000, 40)})), clock.monotonic)
        clock.pass_by(1)
    one.look(observed(card(uses={"a": (3000, 40)})), clock.monotonic)


def sums(one: UsageRecorder) -> tuple[int, int, int, int]:
    (amounts,) = one.usage(840).book.cards.values()
    assert amounts.held + amounts.free + amounts.unseen == amounts.capacity
    return amounts.capacity // 1000, amounts.held // 1000, amounts.free // 1000, amounts.unseen // 1000


def test_what_was_saved_and_what_was_not_yet_are_answered_together(tmp_path: Path) -> None:
    clock, folder = Clock(), tmp_path / "usage"
    one = recorder(clock, folder)
    looks(one, clock, 130)
    assert sums(one) == (520, 130, 390, 0)
    assert UsageStore(folder).read(0, 10)[0].cards, "it has saved"
    (used,) = one.usage(840).book.holders.values()
    assert (used.held, used.working, used.idle, used.peak, used.cap) == (130_000, 130_000, 0, 3000, 5000)


@pytest.mark.parametrize(("boot", "step", "unseen"), [("boot", -7200.0, 40), ("boot", 0.0, 40), ("other", 0.0, 40)])
def test_the_time_of_a_killed_agent_is_unseen(tmp_path: Path, boot: str, step: float, unseen: int) -> None:
    """The agent dies 10 s after a save; the next one starts 30 s later. In one boot, a wrong clock changes nothing."""
    clock, folder = Clock(), tmp_path / "usage"
    looks(recorder(clock, folder), clock, 70)
    clock.pass_by(30)
    clock.wall += step
    two = recorder(clock, folder, boot=boot)
    looks(two, clock, 20)
    assert sums(two) == (4 * (60 + unseen + 20), 80, 240, 4 * unseen)


@pytest.mark.parametrize("slices", [2**62 // 1000 + 1, 2**63 - 1])
def test_a_pod_that_requests_any_number_leaves_the_record_whole(tmp_path: Path, slices: int) -> None:
    clock, folder, log = Clock(), tmp_path / "usage", list[Any]()
    one = recorder(clock, folder, log)
    looks(one, clock, 65)
    one._slices = lambda: node(a=1, b=slices)
    looks(one, clock, 2)
    one._slices = lambda: node(a=1)
    looks(one, clock, 130)
    assert (log, [file.name for file in folder.iterdir()]) == ([], [FILE])
    assert document.read(one.text(1)).book.cards == one.usage(1).book.cards
    assert sums(one)[0] == 4 * 197


def test_an_agent_that_ends_saves(tmp_path: Path) -> None:
    clock, folder = Clock(), tmp_path / "usage"
    one = recorder(clock, folder)
    looks(one, clock, 5)
    one.close()
    assert sums(recorder(clock, folder)) == (20, 5, 15, 0)


def test_while_nvml_fails_all_slices_are_unseen(tmp_path: Path) -> None:
    clock = Clock()
    one = recorder(clock, tmp_path / "usage")
    looks(one, clock, 5)
    for _ in range(3):
        one.blind(clock.monotonic)
        clock.pass_by(10)
    looks(one, clock, 5)
    assert sums(one) == (160, 10, 30, 120)


def test_without_a_usable_file_it_counts_in_memory_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    clock, log = Clock(), list[Any]()
    one = recorder(clock, tmp_path / "file" / "usage", log)
    looks(one, clock, 200)
    assert sums(one) == (800, 200, 600, 0)
    assert log == [{"message": "usage is counted in memory", "error": f"{FILE}: Not a directory"}]
    assert one.usage(1).trouble == f"{FILE}: Not a directory"
    (tmp_path / "file").unlink()
    looks(one, clock, 60)
    assert sums(one)[1] == 260
    assert log[1:] == [{"message": "usage is counted in memory", "over": True}]


def test_memory_is_bounded_while_nothing_can_be_saved(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    clock = Clock()
    one = recorder(clock, tmp_path / "file" / "usage")
    for _ in range(100):
        looks(one, clock, 2)
        clock.pass_by(3598)
    assert len({key.hour for key in one._given.cards} | {key.hour for key in one._state.book.cards}) <= 49


def test_without_a_folder_a_look_adds_to_a_small_book() -> None:
    clock = Clock()
    one = recorder(clock, None)
    for _ in range(5):
        looks(one, clock, 65)
        clock.pass_by(3600)
    assert len(one._state.book.cards) <= 2
    assert sums(one)[0] == 4 * (5 * 65 + 4 * 3600)


def test_no_look_waits_for_the_disk(tmp_path: Path) -> None:
    """A save hangs for a day. Looks go on, and what they count is saved afterwards, once."""
    clock, folder, disk = Clock(), tmp_path / "usage", threading.Event()
    one = recorder(clock, folder)
    assert one._store is not None
    save = one._store.save
    one._store.save = lambda *given: save(*given) if disk.wait(LONG) else ""  # type: ignore[method-assign]
    one._saver = ThreadPoolExecutor(1)
    looks(one, clock, 130)
    assert not UsageStore(folder).read(0, 10)[0].cards
    assert sums(one) == (520, 130, 390, 0), "what is being saved is answered"
    assert one.usage(1).trouble == BUSY
    disk.set()
    one.close()
    assert not one.usage(1).trouble
    assert sums(one) == (520, 130, 390, 0)
    (card,) = UsageStore(folder).read(0, 10)[0].cards.values()
    assert card.held == 130_000


def test_two_agents_count_no_time_twice(tmp_path: Path) -> None:
    """As when a deleted pod's agent still runs. The one that goes on is counted, whichever it is."""
    clock, folder, log = Clock(), tmp_path / "usage", list[Any]()
    one = recorder(clock, folder)
    looks(one, clock, 70)
    two = recorder(clock, folder, log)
    for _ in range(300):
        looks(one, clock, 1)
        two.look(observed(card(uses={"a": (3000, 40)})), clock.monotonic)
    assert sums(one)[0] <= 4 * 370
    assert log == [{"message": "usage is counted in memory", "error": SHARED}]
    looks(two, clock, 130)
    assert log[1:] == [{"message": "usage is counted in memory", "over": True}]
    assert 4 * (370 - 60) <= sums(two)[0] <= 4 * 500


def test_a_node_that_was_off_for_days_was_not_seen(tmp_path: Path) -> None:
    clock, folder = Clock(), tmp_path / "usage"
    looks(recorder(clock, folder), clock, 70)
    clock.pass_by(200 * 3600)
    two = recorder(clock, folder, boot="other")
    looks(two, clock, 70)
    assert sums(two)[3] >= 4 * 200 * 3600


def test_an_agent_that_starts_again_counts_on_from_its_file(card_state: State, tmp_path: Path) -> None:
    """The whole way, on the pretended card and with a pretended API server."""
    job = pod(1, status={"phase": "Running"}, spec={"nodeName": "n"})
    job["metadata"]["resourceVersion"] = "7"
    card_state.set(busy=0)
    folder = tmp_path / "usage"
    with api_server(tmp_path, [job]) as kubeconfig:
        words = ["--node", "n", "--watch-only", "--kubeconfig", kubeconfig, "--policy", "policies/sample.yaml"]
        words += ["--usage", "--usage-folder", str(folder)]
        with running(card_state.environment, *words) as (process, port):
            until(lambda: held(port) >= 2000, "it has counted the slice of a pod without a process")
            process.send_signal(signal.SIGTERM)
            process.wait(LONG)
        before = UsageStore(folder).read(0, 10)[0]
        assert sum(each.held for each in before.cards.values()) >= 2000
        with running(card_state.environment, *words) as (process, port):
            until(lambda: held(port) >= 1000, "it goes on")
            (status, text) = get(port, "/usage")
            assert status == HTTPStatus.OK
            found = document.read(text)
            ((names, amounts),) = found.book.holders.items()
            (counted,) = found.book.cards.values()
            assert (names.namespace, names.pod, names.container) == ("team", "p", "c0")
            assert amounts.working == 0
            assert 0 < counted.unseen == counted.capacity - 4 * counted.held
            assert [(each.pod, each.slices, each.shared) for each in found.now] == [("p", 1, True)]


def held(port: int) -> int:
    """The slice-milliseconds that the metrics name as held; 0 while there are none."""
    try:
        text = get(port, "/metrics")[1]
    except OSError:
        return 0
    return sum(round(float(line.split()[-1]) * 1000) for line in text.splitlines() if 'state="held"' in line)


@pytest.fixture
def card_state(card: State) -> State:
    """The pretended card, under a name that no function here has."""
    return card


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--usage"], "--usage: needs --node"),
        (["--node", "n", "--usage", "--once"], "--usage: counts over time"),
        (["--node", "n", "--usage-folder", "x"], "--usage-folder: needs --usage"),
    ],
)
def test_usage_is_not_counted_at_once_or_without_a_node(
    words: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NODE_NAME", raising=False)
    assert cli.main(["agent", *words]) == 2
    assert why in capsys.readouterr().err


# Reading it


def asked(pages: Pages, query: str) -> Reply:
    request = HttpRequest("GET", "/usage", query, {}, 0.0)
    assert pages.refusal(request) is None
    return pages(request)


def test_usage_is_answered_as_json_within_limits() -> None:
    clock = Clock()
    one = recorder(clock, None)
    looks(one, clock, 10)
    pages = Pages(AgentMetrics(), one)
    for query in ("hours=0", "hours=841", "hours=1&hours=2", "hours=1e2", "hours=²", "since=1", "hours", "hours=-1"):
        assert asked(pages, query).status == HTTPStatus.BAD_REQUEST
    reply = asked(pages, "hours=2")
    found = document.read(reply.body)
    assert found == one.usage(2)
    assert (found.node, found.since, found.at) == ("node-1", (490_000 - 1) * HOUR, 490_000 * HOUR + 10_000)
    ((pod, idle, held, shared),) = [(each.pod, each.idle, each.held, each.shared) for each in found.now]
    assert (pod, idle, held, shared) == ("pod-a", 0, 10_000, True)
    statuses = [asked(pages, "hours=1").status for _ in range(8)]
    assert statuses[-1] == HTTPStatus.TOO_MANY_REQUESTS


def test_one_peer_leaves_the_others_the_usage_of_a_day_and_of_all_hours() -> None:
    clock = Clock()
    one = recorder(clock, None)
    looks(one, clock, 10)
    now, made = 0.0, list[int]()

    class Counted:
        def text(self, hours: int) -> bytes:
            made.append(hours)
            return one.text(hours)

    pages = Pages(AgentMetrics(), Counted(), lambda: now)
    for _ in range(40):
        asked(pages, "hours=1")
        for query in ("", "hours=24", "hours=840"):
            reply = asked(pages, query)
            assert document.read(reply.body) == one.usage(840 if query == "hours=840" else 24)
    assert asked(pages, "hours=1").status == HTTPStatus.TOO_MANY_REQUESTS
    assert sorted(made) == [1, 1, 1, 1, 24, 840]
    now = 5.0
    assert [asked(pages, query).status for query in ("hours=1", "hours=24")] == [HTTPStatus.OK] * 2
    assert made[-2:] == [1, 24]


def test_without_a_recorder_there_is_no_such_page() -> None:
    assert asked(Pages(AgentMetrics()), "").status == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize(
    ("name", "value"),
    [("cards", [{"held": 1}]), ("cards", None), ("containers", [5]), ("node", 5), ("kind", "List"), ("at", -1)],
)
def test_a_document_that_no_agent_writes_is_refused(name: str, value: Any) -> None:
    clock = Clock()
    one = recorder(clock, None)
    looks(one, clock, 10)
    good = json.loads(document.write(one.usage(1)))
    assert document.read(json.dumps(good)) == one.usage(1)
    with pytest.raises(DamagedRecord):
        document.read(json.dumps({**good, name: value}))
    good["cards"][0]["free"] += 1
    with pytest.raises(DamagedRecord):
        document.read(json.dumps(good))


def test_the_metrics_have_the_same_numbers() -> None:
    clock = Clock()
    one = recorder(clock, None)
    metrics = AgentMetrics(usage=lambda: one.totals)
    looks(one, clock, 10)
    metrics.saw(LastLook())
    card_names = 'gpu="GPU-0",node="node-1",pool="shared",product="NVIDIA-A10"'
    names = (
        'container="main",gpu="GPU-0",namespace="team",node="node-1",pod="pod-a",pool="shared",product="NVIDIA-A10"'
        ',workload="Job/a"'
    )
    worked = names.replace(",workload", ',work="working",workload')
    now = names.replace(',product="NVIDIA-A10"', ',shared="yes"')
    lines = metrics.text().decode().splitlines()
    found = {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name[:1] != "#"}
    expected = {
        f"slice_seconds_total{{{names}}}": 10,
        f"work_seconds_total{{{worked}}}": 10,
        f"memory_byte_seconds_total{{{names}}}": 10 * 3000 * 2**20,
        f"measured_seconds_total{{{names}}}": 10,
        f"peak_bytes{{{names}}}": 3000 * 2**20,
        f"even_bytes{{{names}}}": 0,
        f"cap_bytes{{{names}}}": 5000 * 2**20,
        f"slices{{{now}}}": 1,
        f"held_seconds{{{now}}}": 10,
        f"idle_seconds{{{now}}}": 0,
        f'card_slice_seconds_total{{{card_names},state="free"}}': 30,
        f"card_counted_seconds_total{{{card_names}}}": 10,
        'usage_start_time_seconds{node="node-1"}': 490_000 * 3600,
        'usage_unsaved{node="node-1"}': 0,
    }
    assert {name: found.get(f"slicewarden_node_{name}") for name in expected} == expected


def counts(one: UsageRecorder) -> dict[str, tuple[int, int]]:
    """The seconds and the peak of each pod in the metrics."""
    return {key.pod: (each.held // 1000, each.peak) for key, each in one.totals.containers.items()}


def test_a_container_s_counters_stay_until_prometheus_has_read_them() -> None:
    clock = Clock()
    one = recorder(clock, None)
    looks(one, clock, 10)
    one._slices = node
    one.look(observed(card()), clock.monotonic)
    clock.pass_by(LINGER / 1000 - 1)
    one.blind(clock.monotonic)
    assert counts(one) == {"pod-a": (10, 3000)}, "what it did until it ended is there"
    one._slices = lambda: node(a=1)
    looks(one, clock, 5)
    assert counts(one)["pod-a"][0] == 15, "one of the same name goes on"
    one._slices = node
    one.look(observed(card()), clock.monotonic)
    clock.pass_by(LINGER / 1000)
    one.look(observed(card()), clock.monotonic)
    assert counts(one) == {}


def test_a_peak_is_of_the_last_minutes() -> None:
    clock = Clock()
    one = recorder(clock, None)
    looks(one, clock, 3)
    for number in range(2 * LINGER // 1000):
        one.look(observed(card(uses={"a": (1000, 40)})), clock.monotonic)
        assert number >= LINGER / 1000 or counts(one)["pod-a"][1] == 3000
        clock.pass_by(1)
    one.look(observed(card(uses={"a": (1000, 40)})), clock.monotonic)
    assert counts(one)["pod-a"][1] == 1000


def test_what_equal_processes_would_use_is_of_the_last_minutes() -> None:
    totals, state = UsageTotals(), AccountState(0, 0)
    for second in range(1, 2 * LINGER // 1000 + 2):
        share = CardShare("GPU-0", 1, True, 3000, even=5000 if second <= 2 else 4000)
        look = NodeLook((SlicedCard("GPU-0", 4),), (HolderLook("k", "team", "", "p", "main", (share,)),))
        after = advance(state, look, 1000 * second, 0)
        totals.add(after.book, after.last, after.at)
        state = AccountState(after.at, after.wall, after.last)
        if 2 < second < LINGER // 1000:
            assert [each.even for each in totals.containers.values()] == [5000]
    assert [each.even for each in totals.containers.values()] == [4000]


def test_any_number_of_pods_has_a_bounded_number_of_counters() -> None:
    clock = Clock()
    one = recorder(clock, None)
    for number in range(MOST_ENDED // 5 + 100):
        one._slices = lambda number=number: node(**{f"x{number}-{each}": 1 for each in range(10)})  # type: ignore[misc]
        one.look(observed(card()), clock.monotonic)
        clock.pass_by(0.1)
    assert MOST_ENDED <= len(one.totals.containers) <= MOST_ENDED + 60


def test_containers_of_many_cards_have_no_more_counters_than_others() -> None:
    cards = tuple(SlicedCard(f"GPU-{each}", 4) for each in range(8))
    shares = tuple(CardShare(each.uuid, 1) for each in cards)
    totals, state = UsageTotals(), AccountState(0, 0)
    for number in range(MOST_ENDED // 8 + 50):
        look = NodeLook(cards, (HolderLook(str(number), "team", "", str(number), "main", shares),))
        after = advance(state, look, 1000 * (number + 1), 0)
        totals.add(after.book, after.last, after.at)
        state = AccountState(after.at, after.wall, after.last)
    pods = [int(key.pod) for key in totals.containers]
    assert MOST_ENDED <= len(pods) <= MOST_ENDED + 16
    assert {*pods} == {*range(min(pods), max(pods) + 1)}
