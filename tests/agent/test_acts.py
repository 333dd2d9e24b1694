"""Let the agent act: evictions, kills of real processes, and limits that the driver holds."""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.gpu.containers import Containers, container_id, pod_uid
from tests.support.card.state import State
from tests.support.listening import Asked, listening
from tests.support.waiting import LONG, until
from webhook.agent.agent import NodeAgent, build
from webhook.agent.limits import enforce, limits, over
from webhook.agent.limits.limits import DriverLimits
from webhook.agent.limits.watchdog import Watchdog
from webhook.agent.observe.cgroups import CgroupFolders, mount
from webhook.agent.observe.limited import LimitFault, WantedLimit
from webhook.agent.observe.look import ContainerUse, ProcessUse
from webhook.agent.observe.nvml import UNLIMITED, Cards
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Process, Processes
from webhook.agent.observe.view import NodeContainer
from webhook.cgroups.places import ContainerCgroup, place
from webhook.cli import inputs
from webhook.cluster.client import Api, connect
from webhook.cluster.events import EventNote
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.memory.admitted import UNKNOWN, Admitted, admitted
from webhook.memory.driver import start
from webhook.policy.model import EVICT, KILL, Over

UID, ID, OTHER = "11111111-2222-3333-4444-555555555555", "ab" * 32, "cd" * 32
NAME = ContainerName("team", "job", "main")
PLACE = ContainerCgroup(UID, ID, f"/kubepods/pod{UID}/{ID}", 2)
CARD = "GPU-00000000-0000-0000-0000-000000000000"


def known(allowance: int | None = 4000, **standing: Any) -> NodeContainer:
    return NodeContainer(NAME, UID, Admitted(**{"requests": True, "allowance": allowance, **standing}))


# Evictions


@pytest.fixture
def asked() -> list[tuple[str, Any]]:
    return []


def serving(statuses: list[int], asked: list[tuple[str, Any]]) -> Callable[[Asked], None]:
    def answer(request: Asked) -> None:
        asked.append((request.path, json.loads(request.body)))
        status = statuses.pop(0)
        request.give(status, json.dumps({"kind": "Status", "message": "no"}).encode(), Content_Type="application/json")

    return answer


def api(url: str, folder: Path) -> Api:
    context = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    config = {"clusters": [{"name": "c", "cluster": {"server": url}}], "contexts": context, "kind": "Config"}
    file = folder / "kubeconfig"
    file.write_text(json.dumps({**config, "users": [{"name": "u", "user": {}}], "current-context": "c"}))
    return connect(str(file))


@pytest.mark.parametrize(
    ("status", "outcome"), [(201, "done"), (404, "done"), (429, "waits"), (403, "HTTP 403"), (500, "HTTP 500")]
)
def test_an_eviction_names_the_pods_uid_and_has_an_outcome(
    status: int, outcome: str, asked: list[tuple[str, Any]], tmp_path: Path
) -> None:
    with listening(serving([status], asked)) as url:
        assert enforce.evict(api(url, tmp_path), known()) == outcome
    ((path, body),) = asked
    assert path == "/api/v1/namespaces/team/pods/job/eviction"
    assert body["deleteOptions"] == {"preconditions": {"uid": UID}}
    assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")


def test_an_eviction_without_an_api_server_is_an_outcome(tmp_path: Path) -> None:
    with listening(lambda _: None) as url:
        pass
    assert enforce.evict(api(url, tmp_path), known()) == "API server away"


def test_an_eviction_that_a_budget_forbids_is_asked_again_after_the_grace_and_nobody_is_killed(
    card: State, asked: list[tuple[str, Any]], tmp_path: Path, container: "Container"
) -> None:
    card.hold(container.run(), 9000)
    now = [0.0]
    with listening(serving([429, 429, 201], asked)) as url:
        one = acting(Over(EVICT, grace=5, pressure=0), container, api=api(url, tmp_path), clock=lambda: now[0])
        for second in range(19):
            now[0] = float(second)
            one.round()
            until(lambda: not watchdog(one).calls.pending, "the eviction was answered")
        one.close()
    assert len(asked) == 3
    assert container.alive()
    text = one.metrics.text().decode()
    assert 'slicewarden_node_actions_total{action="Evict",outcome="waits"} 2.0' in text
    assert 'slicewarden_node_actions_total{action="Evict",outcome="done"} 1.0' in text


# Kills


def held(mib: int | None, pid: int = 1, start: int = 1) -> ProcessUse:
    return ProcessUse(Process(pid, start, "p", PLACE), mib, None)


def test_victims_are_the_largest_and_no_more_than_bring_it_within() -> None:
    use = ContainerUse(PLACE, (held(100, 1), held(3000, 2), held(2000, 3), held(None, 4)))
    assert [each.process.pid for each in enforce.victims(use, 4000)] == [2]
    assert [each.process.pid for each in enforce.victims(use, 2000)] == [2, 3]
    assert [each.process.pid for each in enforce.victims(use, 5100)] == []


def test_victims_always_bring_it_within_and_one_less_never_does() -> None:
    rng = random.Random(3)  # noqa: S311 - the same cases each time
    for _ in range(2000):
        use = ContainerUse(PLACE, tuple(held(rng.randrange(5000), pid) for pid in range(rng.randrange(1, 9))))
        allowance = rng.randrange(12000)
        chosen = enforce.victims(use, allowance)
        assert use.mib - sum(each.mib or 0 for each in chosen) <= max(allowance, 0)
        assert not chosen or use.mib - sum(each.mib or 0 for each in chosen[:-1]) > allowance


def test_a_process_whose_start_differs_is_not_killed() -> None:
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (real,) = Processes().find([job.pid]).values()
        another = ProcessUse(real._replace(start=real.start + 1), 9000, None)
        assert enforce.kill([another], Processes()) == "done"
        time.sleep(0.1)
        assert job.poll() is None
        assert enforce.kill([ProcessUse(real, 9000, None)], Processes()) == "done"
        assert job.wait(LONG) == -9
        assert enforce.kill([ProcessUse(real, 9000, None)], Processes()) == "done"  # it is gone, and nobody else is hit
    finally:
        job.kill()
        job.wait()


# A container of real processes


class Container:
    """A cgroup that is named as a container's, and the processes in it."""

    def __init__(self, root: Path) -> None:
        self.root = root / f"kubepods-slicewarden-acts-{os.getpid()}"
        self.folder = self.root / f"pod{UID}" / ID
        self.folder.mkdir(parents=True)
        self._jobs: list[subprocess.Popen[bytes]] = []

    def run(self) -> int:
        job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (self.folder / "cgroup.procs").write_text(str(job.pid))
        self._jobs.append(job)
        return job.pid

    def alive(self) -> list[int]:
        return [job.pid for job in self._jobs if job.poll() is None]

    def end(self) -> None:
        for job in self._jobs:
            job.kill()
            job.wait()
        for folder in (self.folder, self.folder.parent, self.root):
            until(lambda folder=folder: _removed(folder), f"{folder} is removed")  # type: ignore[misc]


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


@pytest.fixture
def container() -> Iterator[Container]:
    root = mount()
    try:
        made = Container(root) if root else None
    except OSError:
        made = None
    if made is None:
        pytest.skip("no cgroup v2 that this user may write to")
    yield made
    made.end()


def watchdog(one: NodeAgent) -> Watchdog:
    (found,) = [each for each in one.watchers if isinstance(each, Watchdog)]
    return found


def acting(rules: Over, container: Container, own: NodeContainer | None = None, **more: Any) -> NodeAgent:
    one = own or known()
    folders = CgroupFolders(container.root)
    words = {"folders": folders, "watch_only": False, **more}
    return build(lambda: {ID: one}, lambda: rules, words.pop("log", lambda _: None), **words)


def test_a_kill_ends_the_largest_process_after_the_grace_and_a_neighbour_finds_memory(
    card: State, container: Container
) -> None:
    large, small = container.run(), container.run()
    card.hold(large, 20000)
    card.hold(small, 1000)
    now = [0.0]
    one = acting(Over(KILL, grace=5, pressure=80), container, clock=lambda: now[0])
    for second in range(5):
        now[0] = float(second)
        one.round()
    assert container.alive() == [large, small]
    now[0] = 5.0
    one.round()
    until(lambda: container.alive() == [small], "the largest process is killed")
    cards = Cards()
    (reading,) = cards.look()
    cards.close()
    one.close()
    assert (reading.used, reading.total) == (1000, 24576)


def test_a_kill_that_failed_is_tried_again_after_another_grace(
    card: State, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    card.hold(container.run(), 9000)
    now, refused = [0.0], list[float]()

    def refuse(_: int) -> int:
        refused.append(now[0])
        raise PermissionError(1, "Operation not permitted")

    one = acting(Over(KILL, grace=5, pressure=0), container, clock=lambda: now[0])
    with monkeypatch.context() as patched:
        patched.setattr("os.pidfd_open", refuse)
        for second in range(10):
            now[0] = float(second)
            one.round()
    assert refused == [5.0]
    assert container.alive()
    assert 'slicewarden_node_actions_total{action="Kill",outcome="failed"} 1.0' in one.metrics.text().decode()
    now[0] = 10.0
    one.round()
    until(lambda: not container.alive(), "it was killed")
    one.close()


def test_a_neighbour_whose_allocation_failed_gets_its_memory_after_the_kill(made: Containers) -> None:
    """Real processes of CUDA on the pretended card; the seconds are those of the wall, with a grace of one."""
    hog, neighbour = made.run(made.make()), made.run(made.make())
    assert made.root is not None
    assert hog.take(20000)
    assert not neighbour.take(6000)
    folders = CgroupFolders(made.root)
    rules = Over(KILL, grace=1, pressure=80)
    greedy = {container_id(0): known()._replace(uid=pod_uid(0))}
    one = build(lambda: greedy, lambda: rules, lambda _: None, folders=folders, watch_only=False)
    begin = time.monotonic()

    def has_its_memory() -> bool:
        one.round()
        return neighbour.take(6000)

    until(has_its_memory, "the neighbour has its memory", pause=0.05)
    print(f"a neighbour had its memory {time.monotonic() - begin:.2f} s after the hog was seen, at a grace of 1 s")
    one.close()
    assert (hog.process.wait(LONG), neighbour.alive) == (-9, True)


def test_an_exemption_of_the_policy_keeps_a_component_from_every_act(card: State, container: Container) -> None:
    """From the policy's words to the processes: the same pod is killed without the exemption."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu.shared": "1"}}}]}
    spec["serviceAccountName"] = "nvidia-dcgm-exporter"
    item = {"metadata": {"namespace": "gpu-operator", "name": "job"}, "spec": spec}
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A10-SHARED",
        "nvidia.com/gpu.memory": "23028",
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }
    policy = inputs.load_sample()
    card.set(limits=1)
    for exemptions in (policy.exemptions, ()):
        own = replace(policy, exemptions=exemptions, leave_alone=())
        found = NodeContainer(NAME, UID, admitted(item, own, Facts(), Node("n", labels))["main"])
        assert found.admitted.allowance is not None
        card.hold(container.run(), 20000)
        now = [0.0]
        driven = found._replace(admitted=found.admitted._replace(driver=True))
        one = acting(Over(KILL, grace=5, pressure=0), container, driven, clock=lambda now=now: now[0])
        for second in range(0, 20, 2):
            now[0] = float(second)
            one.round()
        assert bool(card.limits()) is not bool(exemptions)
        if not exemptions:
            until(lambda: not container.alive(), "both processes are killed")
        one.close()
        assert bool(container.alive()) is bool(exemptions)


@pytest.mark.parametrize("more", [{"ending": True}, {"init": True}, {"exempt": "x"}, {"allowance": None}])
def test_who_starts_ends_is_exempt_or_has_no_allowance_is_never_killed(
    card: State, container: Container, more: dict[str, Any]
) -> None:
    card.hold(container.run(), 24000)
    now = [0.0]
    own = known(**more)
    one = acting(Over(KILL, grace=5, pressure=0), container, own, clock=lambda: now[0])
    for second in range(0, 40, 2):
        now[0] = float(second)
        one.round()
    one.close()
    assert container.alive()


def test_an_agent_that_only_watches_kills_nobody_and_sets_no_limit(card: State, container: Container) -> None:
    card.set(limits=1)
    card.hold(container.run(), 24000)
    now = [0.0]
    one = acting(Over(KILL, grace=5, pressure=0), container, known(driver=True), watch_only=True, clock=lambda: now[0])
    for second in range(0, 20, 2):
        now[0] = float(second)
        one.round()
    assert (container.alive() != [], card.limits()) == (True, {})
    one.close()


# The driver's limits


def test_the_driver_holds_a_container_before_its_first_process_takes_memory(card: State, container: Container) -> None:
    card.set(limits=1)
    one = acting(Over(), container, known(5500, driver=True))
    one.round()
    assert card.limits() == {str(container.folder): 5500}
    assert 'slicewarden_node_limits{state="set"} 1.0' in one.metrics.text().decode()
    one.round()
    one.close()
    assert card.limits() == {}  # taken away at the end


def test_a_limit_that_the_hook_has_set_outlives_the_agent(card: State, container: Container) -> None:
    card.set(limits=1)
    one = acting(Over(), container, known(5500, driver=True, stated=5500))
    one.round()
    one.close()
    assert card.limits() == {str(container.folder): 5500}


def faults(one: NodeAgent) -> dict[str, int]:
    """The differences that the agent counts, without those of which there are none."""
    counted = re.findall(r'slicewarden_node_limit_faults{fault="(.*)"} (.*)', one.metrics.text().decode())
    assert {fault for fault, _ in counted} == {*LimitFault}
    return {fault: int(float(count)) for fault, count in counted if float(count)}


def told(logged: list[Any]) -> list[str]:
    return [each["why"] for each in logged if each.get("action") == "Report"]


@pytest.mark.parametrize(
    ("before", "fault", "why"),
    [
        (None, "no hook", "had no limit from NVIDIA's hook"),
        (9000, "wider", "had a limit of 9000 MiB from NVIDIA's hook, which is more than its 5500 MiB"),
        (5565, "wider", "had a limit of 5565 MiB from NVIDIA's hook, which is more than its 5500 MiB"),
        (5564, "", ""),
        (5500, "", ""),
        (2000, "", ""),
    ],
)
def test_a_limit_that_the_hook_did_not_set_or_set_wider_is_corrected_and_told(
    card: State, container: Container, before: int | None, fault: str, why: str
) -> None:
    card.set(limits=1)
    cards, written, logged = Cards(), list[EventNote](), list[Any]()
    assert cards.limit(cards.whole[0], str(container.folder), before) == ""
    one = acting(
        Over(), container, known(5500, driver=True, stated=5500), log=logged.append, write_event=written.append
    )
    for _ in range(3):
        one.round()
    assert card.limits() == {str(container.folder): 5500}
    assert [each["why"] for each in logged if each["action"] == "Limit"] == [
        f"limited to 5500 MiB of GPU {cards.whole[0]} by the driver"
    ]
    assert told(logged) == [why] * bool(fault)
    assert faults(one) == {fault: 1} if fault else not faults(one)
    assert [(each.reason, each.note) for each in written] == [("GPULimitDiffers", f"container main {why}")] * bool(
        fault
    )
    cards.close()
    one.close()


def test_more_replicas_later_make_no_limit_of_the_hook_wider(card: State, container: Container) -> None:
    card.set(limits=1)
    cards, logged = Cards(), list[Any]()
    cards.limit(cards.whole[0], str(container.folder), 5500)
    one = acting(Over(), container, known(2700, driver=True, stated=5500), log=logged.append)
    one.round()
    assert (card.limits(), told(logged), faults(one)) == ({str(container.folder): 2700}, [], {})
    cards.close()
    one.close()


@pytest.mark.parametrize("stated", [None, 5500], ids=["the agent's", "the hook's"])
@pytest.mark.parametrize(
    ("then", "fault", "what"), [(9000, "wider", "a limit of 9000 MiB"), (None, "missing", "no limit")]
)
def test_a_limit_that_somebody_lifts_later_is_set_again_at_the_next_look_and_told_once(
    card: State, container: Container, stated: int | None, then: int | None, fault: str, what: str
) -> None:
    card.set(limits=1)
    now, cards, logged = [0.0], Cards(), list[Any]()
    cards.limit(cards.whole[0], str(container.folder), stated)
    own = known(5500, driver=True, stated=stated)
    one = acting(Over(), container, own, log=logged.append, clock=lambda: now[0])
    for second in range(4):
        now[0] = float(second)
        one.round()
        assert card.limits() == {str(container.folder): 5500}
        cards.limit(cards.whole[0], str(container.folder), then)
    assert told(logged) == [f"was found with {what} after the agent had limited it"]
    assert (len([each for each in logged if each["action"] == "Limit"]), faults(one)) == (4, {fault: 1})
    cards.close()
    one.close()


def test_a_smaller_limit_of_somebody_else_stays(card: State, container: Container) -> None:
    card.set(limits=1)
    now, cards = [0.0], Cards()
    one = acting(Over(), container, known(5500, driver=True), clock=lambda: now[0])
    one.round()
    cards.limit(cards.whole[0], str(container.folder), 100)
    now[0] = 1.0
    one.round()
    assert (card.limits(), faults(one)) == ({str(container.folder): 100}, {})
    cards.close()
    one.close()


def test_a_limit_that_the_hook_has_set_on_another_card_than_the_used_one_is_told(
    card: State, container: Container
) -> None:
    State(card.file, 2)
    for each in range(2):
        card.set(each, limits=1)
    now, cards, logged = [0.0], Cards(), list[Any]()
    cards.limit(cards.whole[0], str(container.folder), 5500)
    own = known(5500, driver=True, stated=5500)
    one = acting(Over(), container, own, log=logged.append, clock=lambda: now[0])
    one.round()
    assert told(logged) == []  # it uses no card yet
    card.hold(container.run(), 100, card=1)
    for second in (1.0, 2.0):
        now[0] = second
        one.round()
    assert told(logged) == ["uses a GPU on which NVIDIA's hook had set no limit, and has a limit on another GPU"]
    assert faults(one) == {"other card": 1}
    cards.close()
    one.close()


def test_differences_end_with_the_container(card: State, container: Container) -> None:
    card.set(limits=1)
    here = {ID: known(5500, driver=True, stated=5500)}
    one = acting(Over(), container)
    one.containers = lambda: here
    one.round()
    assert faults(one) == {"no hook": 1}
    container.end()
    here = {}
    one.round()
    assert faults(one) == {}
    one.close()


@pytest.mark.parametrize(
    ("before", "fault", "why"),
    [
        (None, "missing", "has no limit by the driver, and should have 5500 MiB"),
        (9000, "wider", "has a wider limit by the driver than its 5500 MiB"),
        (5500, "", ""),
    ],
)
def test_an_agent_that_only_watches_reports_a_limit_that_differs_and_sets_none(
    card: State, container: Container, before: int | None, fault: str, why: str
) -> None:
    card.set(limits=1)
    cards, logged = Cards(), list[Any]()
    cards.limit(cards.whole[0], str(container.folder), before)
    one = acting(Over(), container, known(5500, driver=True), watch_only=True, log=logged.append)
    for _ in range(3):
        one.round()
    assert card.limits() == ({str(container.folder): before} if before else {})
    assert (told(logged), faults(one)) == ([why] * bool(fault), {fault: 1} if fault else {})
    cards.limit(cards.whole[0], str(container.folder), 5500)
    one.round()
    assert faults(one) == {}
    cards.close()
    one.close()
    assert card.limits() == {str(container.folder): 5500}


def test_a_driver_that_does_not_keep_what_was_set_is_a_failure(
    card: State, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    card.set(limits=1)
    logged: list[Any] = []
    monkeypatch.setattr(Cards, "limit_of", lambda *_: UNLIMITED)
    one = acting(Over(), container, known(5500, driver=True), log=logged.append)
    one.round()
    assert logged == [
        {"message": "no limit by the driver", "error": "the driver reports no limit after a limit was set"}
    ]
    assert 'slicewarden_node_limits{state="set"} 0.0' in one.metrics.text().decode()
    one.close()


def test_a_limit_follows_the_allowance_and_goes_with_the_container(card: State, container: Container) -> None:
    card.set(limits=1)
    now = {ID: known(5500, driver=True)}
    one = acting(Over(), container)
    one.containers = lambda: now
    one.round()
    now = {ID: known(4000, driver=True)}
    one.round()
    assert card.limits() == {str(container.folder): 4000}
    now = {ID: known(4000, driver=False)}
    one.round()
    assert card.limits() == {}
    one.close()


@pytest.mark.parametrize("then", [{}, {ID: known()._replace(admitted=UNKNOWN)}], ids=["gone", "unreadable"])
def test_a_container_whose_pod_was_deleted_by_force_keeps_its_limit_while_it_runs(
    card: State, container: Container, then: dict[str, NodeContainer]
) -> None:
    card.set(limits=1)
    now = {ID: known(5500, driver=True)}
    one = acting(Over(), container)
    one.containers = lambda: now
    one.round()
    now = then
    one.round()
    assert card.limits() == {str(container.folder): 5500}
    one.close()
    assert card.limits() == {}


@pytest.mark.parametrize("then", [{}, {ID: known(5500, driver=False, stated=5500)}], ids=["gone", "another policy"])
def test_a_limit_that_the_hook_has_set_stays_when_the_agent_wants_none(
    card: State, container: Container, then: dict[str, NodeContainer]
) -> None:
    card.set(limits=1)
    now = {ID: known(5500, driver=True, stated=5500)}
    one = acting(Over(), container)
    one.containers = lambda: now
    one.round()
    now = then
    one.round()
    one.close()
    assert card.limits() == {str(container.folder): 5500}


@pytest.mark.parametrize(
    "own",
    [known(driver=False), known(None, driver=True), known(exempt="x", driver=True)],
    ids=["another pool", "no allowance", "exempt"],
)
def test_nobody_else_is_limited(card: State, container: Container, own: NodeContainer) -> None:
    card.set(limits=1)
    one = acting(Over(), container, own)
    one.round()
    assert card.limits() == {}
    one.close()


@pytest.mark.parametrize(("mode", "why"), [(0, "Not Supported"), (2, "Insufficient Permissions")])
def test_a_driver_without_limits_or_rights_is_told_once_and_tried_again_by_and_by(
    card: State, container: Container, mode: int, why: str
) -> None:
    card.set(limits=mode)
    logged: list[Any] = []
    now = [0.0]
    one = acting(Over(), container, known(driver=True), log=logged.append, clock=lambda: now[0])
    for second in range(10):
        now[0] = float(second)
        one.round()
    assert logged == [{"message": "no limit by the driver", "error": why}]
    assert 'slicewarden_node_limits{state="failed"} 1.0' in one.metrics.text().decode()
    card.set(limits=1)
    now[0] = 10.0 + limits.AGAIN
    one.round()
    assert card.limits() == {str(container.folder): 4000}
    one.close()


@pytest.mark.parametrize(
    ("mode", "more", "driver"),
    [(1, {}, True), (0, {}, False), (1, {"instances": 2}, None)],
    ids=["limits", "an old driver", "MIG"],
)
@pytest.mark.parametrize("unified", [True, False])
def test_what_nvidias_hook_lacks_is_logged_once_and_counted_where_the_policy_has_it_set_limits(
    card: State, container: Container, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    mode: int, more: dict[str, int], driver: bool | None, unified: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(start, "CGROUPS", tmp_path)
    if unified:
        (tmp_path / "cgroup.controllers").touch()
    card.set(limits=mode, **more)
    logged, hooked = list[Any](), [False]
    one = acting(Over(), container, log=logged.append, by_hook=lambda: hooked[0])
    one.round()
    assert "slicewarden_node_limit_needs{" not in one.metrics.text().decode()
    assert logged == []
    hooked[0] = True
    one.round()
    one.round()
    text = one.metrics.text().decode()
    met = {need: f'slicewarden_node_limit_needs{{need="{need}"}} ' for need in start.StartNeed}
    for need, value in (("driver", driver), ("cgroup v2", unified), ("whole GPUs", not more)):
        line = met[start.StartNeed(need)]
        assert (line in text) is (value is not None)
        assert value is None or f"{line}{float(value)}" in text
    causes = [start.UNMET[need] for need, value in zip(met, (driver, unified, not more), strict=True) if value is False]
    wanted = [{"message": "no limit before the start", "error": "; ".join(causes)}] if causes else []
    assert [each for each in logged if each["message"] == "no limit before the start"] == wanted
    one.close()


def test_a_driver_that_may_not_be_asked_is_no_driver_without_limits(
    card: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pynvml

    cards = Cards()
    for answer, known in (
        (pynvml.NVML_ERROR_NO_PERMISSION, None),
        (pynvml.NVML_ERROR_GPU_IS_LOST, None),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, False),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, False),
    ):

        def refuse(*_: Any, answer: int = answer) -> None:
            raise pynvml.NVMLError(answer)

        with monkeypatch.context() as patched:
            patched.setattr(pynvml, "nvmlDeviceGetMemoryLimits_v1", refuse)
            assert cards.has_limits is known
    with monkeypatch.context() as patched:
        patched.delattr(pynvml, "nvmlDeviceGetMemoryLimits_v1")
        assert cards.has_limits is None
    card.set(limits=1)
    assert cards.has_limits is True
    cards.close()


def pods(mib: int | None, stated: int | None = None) -> dict[str, NodeContainer]:
    """The container's pod, known to the API with this limit for any of its containers."""
    limit = Admitted(allowance=mib, driver=True, stated=stated)
    return {UID: NodeContainer(ContainerName("team", "job", "(unknown)"), UID, limit)}


@pytest.mark.parametrize("stated", [None, 5500], ids=["no variables", "variables"])
@pytest.mark.parametrize(
    ("before", "limit"), [(20_000, 5500), (None, 5500), (2000, 2000)], ids=["by its image", "no limit", "its own"]
)
def test_a_container_of_which_only_the_pod_is_known_gets_the_pods_limit_and_nothing_else_happens_to_it(
    card: State, container: Container, before: int | None, limit: int, stated: int | None
) -> None:
    card.set(limits=1)
    now, cards, logged, written = [0.0], Cards(), list[Any](), list[EventNote]()
    cards.limit(cards.whole[0], str(container.folder), before)
    card.hold(container.run(), 24_000)
    rules, here = Over(KILL, grace=1, pressure=0), dict[str, NodeContainer]()
    one = acting(rules, container, log=logged.append, write_event=written.append, clock=lambda: now[0])
    one.containers, one.pods = lambda: here, lambda: pods(5500, stated)
    for second in range(4):
        one.round()
        assert card.limits().get(str(container.folder)) == (before if second < 2 else limit)
        now[0] += 1
    for _ in range(20):
        one.round()
        now[0] += 1
    assert container.alive()
    assert [each["container"] for each in logged] == ["(unknown)"] * (before == 20_000)
    assert (told(logged), faults(one), written) == ([], {}, [])
    assert 'slicewarden_node_limits{state="set"} 0.0' in one.metrics.text().decode()
    here = {ID: known(1500, driver=True, stated=stated and 1500)}
    one.round()
    assert card.limits() == {str(container.folder): 1500}
    why = f"had a limit of {before} MiB from NVIDIA's hook, which is more than its 1500 MiB"
    assert [each for each in told(logged) if "hook" in each] == [why] * (stated is not None and before is not None)
    one.close()
    cards.close()


def test_a_container_that_turns_out_to_need_no_limit_gets_back_what_it_had(card: State, container: Container) -> None:
    card.set(limits=1)
    for before in (20_000, None):
        now, cards, here = [0.0], Cards(), dict[str, NodeContainer]()
        cards.limit(cards.whole[0], str(container.folder), before)
        one = acting(Over(), container, clock=lambda now=now: now[0])
        one.containers, one.pods = here.copy, lambda: pods(5500, 5500)
        for _ in range(4):
            one.round()
            now[0] += 1
        assert card.limits() == {str(container.folder): 5500}
        here[ID] = known(None, requests=False)
        one.round()
        assert card.limits() == ({str(container.folder): before} if before else {})
        one.close()
        cards.close()


def test_a_limit_of_its_own_never_becomes_that_of_its_pod(card: State, container: Container) -> None:
    card.set(limits=1)
    now, here = [0.0], {ID: known(1500, driver=True)}
    one = acting(Over(), container, clock=lambda: now[0])
    one.containers, one.pods = lambda: here, lambda: pods(5500)
    for second in range(8):
        if second == 4:
            here = {}
        one.round()
        assert card.limits() == {str(container.folder): 1500}
        assert 'slicewarden_node_limits{state="set"} 1.0' in one.metrics.text().decode()
        now[0] += 1
    one.close()


@pytest.mark.parametrize("pods_", [{}, {"99999999" + UID[8:]: pods(100)[UID]}], ids=["no pod", "another pod"])
def test_a_container_whose_pod_is_not_known_is_left_as_it_is(
    card: State, container: Container, pods_: dict[str, NodeContainer]
) -> None:
    card.set(limits=1)
    now, cards = [0.0], Cards()
    cards.limit(cards.whole[0], str(container.folder), 20_000)
    one = acting(Over(), container, clock=lambda: now[0])
    one.containers, one.pods = dict, lambda: pods_
    for _ in range(8):
        one.round()
        now[0] += 1
    assert card.limits() == {str(container.folder): 20_000}
    one.close()
    cards.close()


def test_a_limit_of_a_pod_that_cannot_be_set_is_no_failure_of_a_container(card: State, container: Container) -> None:
    card.set(limits=2)
    now, logged = [0.0], list[Any]()
    one = acting(Over(), container, log=logged.append, clock=lambda: now[0])
    one.containers, one.pods = dict, lambda: pods(5500)
    for _ in range(8):
        one.round()
        now[0] += 1
    assert logged == []
    assert 'slicewarden_node_limits{state="failed"} 0.0' in one.metrics.text().decode()
    card.set(limits=1)
    now[0] += limits.AGAIN
    one.round()
    assert card.limits() == {str(container.folder): 5500}
    one.close()


@pytest.mark.parametrize("mounted", [True, False])
def test_a_container_of_a_pod_without_any_cgroup_is_reported_and_counts_as_a_failure(
    card: State, tmp_path: Path, mounted: bool
) -> None:
    card.set(limits=1)
    now, logged, own = [0.0], list[Any](), known(5500, driver=True)
    folders = CgroupFolders(tmp_path) if mounted else None
    one = build(
        lambda: {ID: own}, lambda: Over(), logged.append, folders=folders, watch_only=False, clock=lambda: now[0]
    )
    one.pods = lambda: pods(5500)
    for _ in range(40):
        one.round()
        now[0] += 1
    assert 'slicewarden_node_limits{state="failed"} 1.0' in one.metrics.text().decode()
    why = "no cgroup was found of team/job/main" if mounted else "the root of cgroup v2 is not mounted"
    assert logged == [{"message": "no limit by the driver", "error": why}]
    sandbox = tmp_path / f"pod{UID}" / OTHER  # its container has ended, as between two crashes
    sandbox.mkdir(parents=True)
    for _ in range(3 if mounted else 0):
        one.round()
        now[0] += 1
    failed = f'slicewarden_node_limits{{state="failed"}} {0.0 if mounted else 1.0}'
    assert failed in one.metrics.text().decode()
    one.close()


def test_limits_agree_with_what_is_wanted_after_every_step(tmp_path: Path) -> None:
    """2,000 random steps: containers come, change and go, limits are lifted, and the driver refuses now and then."""
    rng, held_, keep = random.Random(7), dict[tuple[str, str], int](), DriverLimits()  # noqa: S311 - the same each time
    refusing = [False]

    class Driver(Cards):
        whole = ("a", "b")

        def __init__(self) -> None:
            pass

        def limit(self, uuid: str, cgroup: str, mib: int | None) -> str:
            if refusing[0]:
                return "no"
            if mib is None:
                held_.pop((uuid, cgroup), None)
            else:
                held_[uuid, cgroup] = mib
            return ""

        def limit_of(self, uuid: str, cgroup: str) -> int | None:
            return held_.get((uuid, cgroup), UNLIMITED)

    folders = {f"{n}": tmp_path / f"{n}" for n in range(6)}
    for step in range(2000):
        refusing[0] = rng.random() < 0.1
        wanted = {name: rng.choice((100, 200)) for name in folders if rng.random() < 0.5}
        for name, folder in folders.items():
            if name in wanted:
                folder.mkdir(exist_ok=True)
            elif folder.exists() and rng.random() < 0.3:
                folder.rmdir()
                held_ = {key: mib for key, mib in held_.items() if key[1] != str(folder)}
        for key in [key for key in held_ if rng.random() < 0.1]:
            held_[key] = rng.choice((300, UNLIMITED))  # somebody lifts it
        limited = {name: WantedLimit(mib) for name, mib in wanted.items()}
        keep.keep(step * limits.AGAIN, limited, folders, Driver())
        want = {(card, str(folders[name])): mib for name, mib in wanted.items() for card in ("a", "b")}
        if not refusing[0]:
            assert held_ == want
            assert not keep.failed


# Folders


def test_folders_are_found_by_id_and_a_tenants_own_below_them_never(tmp_path: Path) -> None:
    own = tmp_path / "kubepods.slice" / f"kubepods-pod{UID.replace('-', '_')}.slice" / f"cri-containerd-{ID}.scope"
    (own / "kubepods" / f"pod{UID}" / OTHER).mkdir(parents=True)
    folders = CgroupFolders(tmp_path)
    assert folders.find({ID: UID, OTHER: UID}) == {ID: own}
    (own / "kubepods" / f"pod{UID}" / OTHER).rmdir()
    (own / "kubepods" / f"pod{UID}").rmdir()
    (own / "kubepods").rmdir()
    own.rmdir()
    assert folders.find({ID: UID}) == {}


@pytest.mark.parametrize("form", ["kubepods.slice/kubepods-pod{}.slice/cri-containerd-{}.scope", "kubepods/pod{}/{}"])
def test_the_containers_of_a_pod_are_found_and_the_outermost_pod_of_a_path_counts(tmp_path: Path, form: str) -> None:
    """A tenant makes cgroups below its own, with the names of another pod, its own pod and its own container."""
    another, mark = "99999999" + UID[8:], "_" if "slice" in form else "-"
    own = tmp_path / form.format(UID.replace("-", mark), ID)
    for uid, each in ((another, OTHER), (UID, OTHER), (another, ID)):
        (own / form.format(uid.replace("-", mark), each)).mkdir(parents=True)
    folders = CgroupFolders(tmp_path)
    assert folders.of_pods([UID, another]) == {ID: (UID, own)}
    assert folders.of_pods([another]) == {}
    sandbox, theirs = "ef" * 32, tmp_path / form.format(another.replace("-", mark), OTHER)
    for folder in (own.with_name(own.name.replace(ID, sandbox)), theirs):
        folder.mkdir(parents=True)
    found = folders.of_pods([UID, another])
    assert {each: uid for each, (uid, _) in found.items()} == {ID: UID, sandbox: UID, OTHER: another}
    assert found[OTHER] == (another, theirs)
    assert {*folders.of_pods([UID])} == {ID, sandbox}


def test_a_static_pods_container_is_found_though_the_api_has_another_uid(tmp_path: Path) -> None:
    static = tmp_path / "kubepods.slice" / f"kubepods-pod{'0f' * 16}.slice" / f"cri-containerd-{ID}.scope"
    foreign = tmp_path / "kubepods.slice" / f"kubepods-pod{'9' * 8}{UID[8:].replace('-', '_')}.slice" / OTHER
    for folder in (static, foreign):
        folder.mkdir(parents=True)
    assert CgroupFolders(tmp_path).find({ID: UID, OTHER: UID}) == {ID: static}


def test_containers_next_to_their_pods_folder_are_found_whenever_they_start(tmp_path: Path) -> None:
    """The kubelet has the cgroup driver `systemd`, and the runtime has not: no folder of the container is its pod's."""
    pod = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    (tmp_path / "kubepods.slice" / "kubepods-burstable.slice" / pod).mkdir(parents=True)
    folders, late = CgroupFolders(tmp_path), "ef" * 32
    assert folders.find({ID: UID}) == {}
    assert folders.of_pods([UID]) == {}
    first, second, foreign = (
        tmp_path / "system.slice" / f"{of}:cri-containerd:{each}"
        for of, each in ((pod, ID), (pod, late), (pod.replace("11111111", "9" * 8), OTHER))
    )
    for folder in (first, foreign):
        folder.mkdir(parents=True)
    (first / "kubepods" / f"pod{UID}" / OTHER).mkdir(parents=True)
    assert folders.find({ID: UID, OTHER: UID}) == {ID: first}
    second.mkdir()
    assert folders.find({ID: UID, late: UID}) == {ID: first, late: second}
    assert folders.of_pods([UID]) == {ID: (UID, first), late: (UID, second)}
    second.rmdir()
    assert folders.find({ID: UID, late: UID}) == {ID: first}


NAMES = st.tuples(st.sampled_from((UID, f"{'9' * 8}{UID[8:]}", "0f" * 16)), st.sampled_from((ID, OTHER, "ef" * 32)))
FORMS = (
    "{above}/kubepods/burstable/pod{uid}/{id}",
    "{above}/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid_}.slice/crio-{id}.scope",
    "{above}/kubepods/pod{uid}/more/docker-{id}.scope",
    "{above}/system.slice/kubepods-burstable-pod{uid_}.slice:cri-containerd:{id}",
    "{above}/system.slice/of-a-service",
)
PATHS = st.builds(
    lambda form, names, above: form.format(
        uid=names[0], uid_=names[0].replace("-", "_"), id=names[1], above=above
    ).lstrip("/"),
    st.sampled_from(FORMS),
    NAMES,
    st.sampled_from(("", "/gpu-node")),
)


@given(st.lists(PATHS, max_size=6), st.booleans())
def test_containers_are_found_as_in_a_walk_of_every_folder(paths: list[str], nested: bool) -> None:
    """Whether a tenant makes the same names again below its container or not."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for path in paths:
            (root / path / (path if nested else "")).mkdir(parents=True, exist_ok=True)
        real = {place(f"0::/{each.relative_to(root)}") for each in root.rglob("*")} - {None}
        for uid in (UID, f"{'9' * 8}{UID[8:]}"):
            found = CgroupFolders(root)
            listed = found.of_pods([uid])
            own = [each for each in real if each and each.pod == uid]
            assert {each: pod for each, (pod, _) in listed.items()} == {each.container: uid for each in own}
            assert {root / each.path.lstrip("/") for each in own} >= {at for _, at in listed.values()}
            theirs = [each for each in real if each and (each.pod == uid or each.pod == "0f" * 16)]
            assert {*found.find(dict.fromkeys((ID, OTHER), uid))} == {each.container for each in theirs} & {ID, OTHER}


def test_a_search_reads_no_folder_of_another_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 pods with 1,500 containers, and 100 services; another pod has no cgroup yet, as while its image is pulled."""
    read, scandir = list[Path](), os.scandir

    def reading(path: Path) -> Any:
        read.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", reading)
    services = [f"system.slice/{number}.service" for number in range(100)]
    outside = {"", "system.slice", "kubepods", "kubepods/burstable", *services}
    uids = [f"{number:08}{UID[8:]}" for number in range(500)]
    containers = [f"kubepods/burstable/pod{uid}/{number}{uid[:8]:>063}" for uid in uids for number in range(3)]
    for each in (*services, *containers):
        (tmp_path / each).mkdir(parents=True)
    folders, late = CgroupFolders(tmp_path), f"{'9' * 8}{UID[8:]}"
    assert folders.of_pods([late]) == {}
    assert sorted(read) == sorted(tmp_path / each for each in outside)
    read.clear()
    assert folders.find({ID: late}) == {}
    assert sorted(read) == sorted(tmp_path / each for each in outside)
    assert len(folders.of_pods(uids)) == 1500
    read.clear()
    assert folders.find({ID: uids[7]}) == {}  # its container has ended, as between two crashes
    assert read == [tmp_path / f"kubepods/burstable/pod{uids[7]}"]


def test_the_last_mount_of_the_whole_hierarchy_counts(tmp_path: Path) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(
        "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
        "2 0 0:1 /kubepods/x /other rw - cgroup2 cgroup rw\n"
        "3 0 0:1 / /host/cgroup rw - cgroup2 cgroup rw\n"
        "4 0 0:2 / /v1 rw - cgroup cgroup rw,freezer\n"
        "5\n"
    )
    assert mount(file) == Path("/host/cgroup")
    assert mount(tmp_path / "none") is None


def test_an_act_keeps_its_line_so_that_events_of_it_become_one() -> None:
    row_uses = [ContainerUse(PLACE, (held(mib),)) for mib in (9000, 9500)]
    from webhook.agent.observe.nvml import CardReading
    from webhook.agent.observe.view import ContainerRow

    reading = CardReading(CARD, "0", "A10", 9000, 10000, 1, ())
    lines = set()
    for use in row_uses:
        since, _ = over.decide(over.OverState(), 0.0, [ContainerRow(reading, use, known())], Over(grace=5))
        _, acts = over.decide(since, 5.0, [ContainerRow(reading, use, known())], Over(grace=5))
        lines |= {act.why for act in acts}
    assert len(lines) == 1
