"""Rows, states, the table, metrics and what is told, from looks that are written by hand."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.agent.limits import over
from webhook.agent.limits.over import OverState
from webhook.agent.limits.unnamed import LATE, UnnamedContainers
from webhook.agent.metrics import AgentMetrics, LastLook
from webhook.agent.observe.cgroups import CgroupFolders
from webhook.agent.observe.look import CardUse, ContainerUse, ProcessUse
from webhook.agent.observe.nvml import CardReading
from webhook.agent.observe.pods import ContainerName, by_logs, by_status, unreported
from webhook.agent.observe.processes import Process
from webhook.agent.observe.view import ContainerRow, NodeContainer, Observation, UseState, rows
from webhook.cgroups.places import ContainerCgroup
from webhook.memory.admitted import Admitted
from webhook.policy.model import EVICT, KILL, REPORT, Over
from webhook.reports import use_report

ID, UID = "ab" * 32, "11111111-2222-3333-4444-555555555555"


def use(mib: int | None, sm: int | None = 10, container: str = ID) -> ContainerUse:
    place = ContainerCgroup(UID, container, f"/kubepods/x/{container}", 2)
    return ContainerUse(place, (ProcessUse(Process(7, 100, "python", place), mib, sm),))


def row(mib: int = 100, used: int = 1000, uid: str = "u", container: str = ID, **standing: Any) -> ContainerRow:
    reading = CardReading("GPU-0", "0", "NVIDIA-A10", used, 10000, 50, ())
    known = NodeContainer(
        ContainerName("team", "job-1", "main"), uid, Admitted(**{"requests": True, "allowance": 4000, **standing})
    )
    return ContainerRow(reading, use(mib, container=container), known)


# States


@pytest.mark.parametrize(
    ("standing", "mib", "state"),
    [
        ({}, 4000, UseState.WITHIN),
        ({}, 4064, UseState.WITHIN),
        ({}, 4065, UseState.OVER),
        ({"allowance": None}, 9000, UseState.UNBOUNDED),
        ({"requests": False}, 1, UseState.UNREQUESTED),
        ({"requests": None}, 9000, UseState.UNKNOWN),
        ({"requests": False, "exempt": "dcgm"}, 1, UseState.EXEMPT),
        ({"exempt": "dcgm"}, 9000, UseState.EXEMPT),
    ],
)
def test_the_state_says_how_use_stands_to_what_was_admitted(standing: Any, mib: int, state: UseState) -> None:
    assert row(mib, **standing).state(slack=64) is state


def test_a_container_of_which_nothing_is_known_is_unknown_and_never_over() -> None:
    one = row()._replace(container=None)
    assert one.state() is UseState.UNKNOWN
    assert not one.over(0)


@pytest.mark.parametrize(
    ("pod", "uid", "known"),
    [
        (UID, UID, True),
        (UID, "", True),
        (UID, "99999999-2222-3333-4444-555555555555", False),
        ("0" * 32, "99999999-2222-3333-4444-555555555555", True),
    ],
    ids=["its own", "by the name of its log", "another pod's", "a static pod's"],
)
def test_no_container_passes_for_one_of_another_pod(pod: str, uid: str, known: bool) -> None:
    """A changed link in /var/log/containers would have the other pod evicted for what this one uses."""
    one, place = row().container, ContainerCgroup(pod, ID, f"/kubepods/x/{ID}", 2)
    assert one is not None
    found = NodeContainer(one.name, uid, one.admitted)
    card = CardUse(row().reading, (ContainerUse(place, use(9000).processes),))
    (seen,) = rows([card], {ID: found})
    assert seen.container == (found if known else None)
    assert seen.over(0) is known


def test_a_container_that_passes_for_one_of_another_pod_is_limited_as_its_own_pod(tmp_path: Path) -> None:
    own, other = UID, "99999999-2222-3333-4444-555555555555"
    folder = tmp_path / "kubepods" / f"pod{own}" / ID
    folder.mkdir(parents=True)
    limit, name = Admitted(requests=True, allowance=4000, driver=True), ContainerName("team", "job-1", "main")
    for uid, late in ((other, {ID: (own, folder)}), (own, {})):
        pods, known = {own: NodeContainer(name, own, limit)}, {ID: NodeContainer(name, uid, limit)}
        seen = Observation(None, (), known, (), (), Over(), pods)  # type: ignore[arg-type]
        unnamed = UnnamedContainers(CgroupFolders(tmp_path))
        unnamed.look(seen, 0.0, ())
        assert unnamed.look(seen, LATE, ()) == late


# Names


def test_log_files_name_containers_and_a_name_that_was_cut_names_none() -> None:
    pod, container = "p" * 120, "c" * 63
    whole = f"{pod}_team_{container}-{ID}.log"
    cut = f"{'p' * 130}_team_{container}-{ID}"[:251] + ".log"
    assert len(cut) == 255
    assert by_logs([whole, cut, "garbage", f"_x_y-{ID}.log"]) == {ID: ContainerName("team", pod, container)}


def test_status_names_containers_whatever_its_shape() -> None:
    pod = {
        "metadata": {"namespace": "team", "name": "job", "uid": "u"},
        "status": {
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{ID}"}, {"name": "waits"}, 7],
            "initContainerStatuses": [{"name": "first", "containerID": "cri-o://ff"}],
            "ephemeralContainerStatuses": "none",
        },
    }
    found = by_status([pod, {}, {"status": []}])
    assert {container: name for container, (name, _) in found.items()} == {
        ID: ContainerName("team", "job", "main"),
        "ff": ContainerName("team", "job", "first"),
    }


MAIN, BEFORE, OTHER = ContainerName("team", "job", "main"), "cd" * 32, "ef" * 32
LINK = "/var/log/pods/team_job_u/main/10.log"
NAMED = {"name": "main", "containerID": f"containerd://{ID}"}
ANSWERS: dict[str, tuple[Any, bool]] = {
    "nothing yet": ({}, True),
    "the one before": ({"containerStatuses": [{**NAMED, "containerID": f"containerd://{BEFORE}"}]}, True),
    "it runs": ({"containerStatuses": [NAMED]}, False),
    "it has ended": ({"containerStatuses": [{**NAMED, "state": {"terminated": {}}}]}, False),
    "the pod has ended": ({"phase": "Failed"}, False),
    "another shape": ({"containerStatuses": 7}, True),
}


def started(link: str, status: Any) -> set[str]:
    pod = {"metadata": {"namespace": "team", "name": "job", "uid": "u"}, "status": status}
    links = {BEFORE: LINK.replace("10", "9"), ID: link, OTHER: LINK.replace("_u/main/10", "_v/main/11")}
    found = unreported([pod], dict.fromkeys(links, MAIN), links)
    assert all(each == (MAIN, pod) for each in found.values())
    return {*found}


@pytest.mark.parametrize("answer", ANSWERS)
def test_the_newest_container_of_a_pod_is_known_by_its_log_until_the_status_has_it(answer: str) -> None:
    status, known = ANSWERS[answer]
    assert started(LINK, status) == ({ID} if known else set())


@pytest.mark.parametrize(
    ("link", "known"),
    [
        ("/srv/logs/team_job_u/main/10.log", {ID}),
        ("/var/log/pods/team_job_u/main/now.log", {BEFORE}),
        (f"/var/log/pods/team_job_u/main/{'9' * 5000}.log", {BEFORE}),
        ("/var/log/pods/team_job/main/10.log", {BEFORE}),
        ("", {BEFORE}),
    ],
)
def test_a_link_without_the_pods_uid_or_a_number_names_no_log(link: str, known: set[str]) -> None:
    assert started(link, {}) == known


# The table, and JSON


def test_the_table_has_a_line_for_each_card_container_and_process_of_the_host() -> None:
    reading = CardReading("GPU-0", "0", "NVIDIA-A10", 9100, 24576, 80, (), errors=("nvmlX: Unknown Error",))
    other = use(50, None, "cd" * 32)
    host = ProcessUse(Process(11, 1, "Xorg", None), None, None)
    text = use_report.table(
        [CardUse(reading, (use(9000, 75), other), (host,))],
        {ID: NodeContainer(ContainerName("team", "job-1", "main"), UID, Admitted(requests=True, allowance=5800))},
    )
    assert text == (
        "0 NVIDIA-A10 GPU-0: 9100 of 24576 MiB in use, 50 of them outside any container, busy 80 %\n"
        "  nvmlX: Unknown Error\n"
        "\n"
        "card  pod                                       container      MiB  allowance  SM %  state\n"
        "0     (no pod)                                  Xorg 11          -          -     -  host\n"
        "0     team/job-1                                main          9000       5800    75  over\n"
        "0     uid 11111111-2222-3333-4444-555555555555  cdcdcdcdcdcd    50          -     -  unknown\n"
    )


@given(st.text(max_size=20))
def test_no_name_of_a_process_adds_a_line_or_a_control_character_to_the_table(name: str) -> None:
    reading = CardReading("GPU-0", "0", "NVIDIA-A10", 9100, 24576, 80, ())
    text = use_report.table([CardUse(reading, (), (ProcessUse(Process(11, 1, name, None), 5, None),))], {})
    assert text.count("\n") == 4
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    json.loads(use_report.write([CardUse(reading, (), (ProcessUse(Process(11, 1, name, None), 5, None),))], {}))


def test_a_card_that_cannot_be_opened_is_a_line_with_its_index_and_the_error() -> None:
    error = "nvmlDeviceGetHandleByIndex: GPU is lost"
    reading = CardReading("index 1", "1", "", None, None, None, (), errors=(error,), opened=False)
    assert use_report.table([CardUse(reading, ())], {}) == f"1 index 1: memory unknown\n  {error}\n"


def test_the_json_has_what_the_table_has_and_is_as_its_published_schema_says() -> None:
    reading = CardReading("GPU-0", "0", "NVIDIA-A10", 9100, 24576, None, (), errors=("nvmlX: Unknown Error",))
    other = use(None, None, "cd" * 32)
    host = ProcessUse(Process(11, 1, "Xorg", None), None, None)
    known = {ID: NodeContainer(ContainerName("team", "job-1", "main"), UID, Admitted(requests=True, allowance=5800))}
    value = json.loads(use_report.write([CardUse(reading, (use(9000, 75), other), (host,))], known))
    schema = json.loads((Path(__file__).parents[2] / "docs/schemas/gpuuse.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(value, schema)
    assert set(schema["$defs"]["container"]["properties"]["state"]["enum"]) == {*UseState}
    (card,) = value["cards"]
    assert (card["usedMiB"], card["noContainerMiB"], card["busyPercent"]) == (9100, 100, None)
    over, unknown = card["containers"]
    assert over == {
        "namespace": "team",
        "pod": "job-1",
        "container": "main",
        "podUid": UID,
        "containerId": ID,
        "pids": [7],
        "usedMiB": 9000,
        "smPercent": 75,
        "allowanceMiB": 5800,
        "state": "over",
    }
    assert (unknown["pod"], unknown["podUid"], unknown["usedMiB"]) == ("", "11111111-2222-3333-4444-555555555555", None)
    assert card["host"] == [{"pid": 11, "name": "Xorg", "usedMiB": None, "smPercent": None}]


def test_a_card_that_says_nothing_is_a_line_without_numbers() -> None:
    text = use_report.table([CardUse(CardReading("GPU-0", "0", "A10", None, None, None, ()), ())], {})
    assert text == "0 A10 GPU-0: memory unknown\n"


# Metrics


def text_of(seen: LastLook) -> str:
    metrics = AgentMetrics(clock=lambda: 12.0)
    metrics.saw(seen)
    return metrics.text().decode()


def test_metrics_are_bytes_and_ratios_by_container_and_card() -> None:
    one = row(5000)
    card = CardUse(one.reading, (one.use,))
    text = text_of(LastLook((card,), (one,), 10.0, 0.25, 64))
    labels = 'container="main",gpu="GPU-0",namespace="team",pod="job-1"'
    assert f"slicewarden_node_use_bytes{{{labels}}} {5000 * 2**20:.10g}"[:70] in text
    assert f"slicewarden_node_sm_ratio{{{labels}}} 0.1\n" in text
    assert 'slicewarden_node_state{container="main",gpu="GPU-0",namespace="team",pod="job-1",state="over"} 1.0' in text
    assert "slicewarden_node_look_seconds 0.25\n" in text
    assert "slicewarden_node_look_age_seconds 2.0\n" in text
    assert 'slicewarden_node_card_unrequested_containers{gpu="GPU-0",index="0",model="NVIDIA-A10"} 0.0\n' in text


def test_what_is_not_known_has_no_series() -> None:
    one = row(allowance=None)
    quiet = one._replace(use=use(None, None), reading=one.reading._replace(busy=None, used=None))
    text = text_of(LastLook((CardUse(quiet.reading, (quiet.use,)),), (quiet,), 1.0, 0.1))
    for name in ("use_bytes", "allowance_bytes", "sm_ratio", "card_busy_ratio", "card_used_bytes"):
        assert f"slicewarden_node_{name}{{" not in text


def test_five_hundred_pods_that_came_and_went_leave_no_series_and_nothing_remembered() -> None:
    metrics, since = AgentMetrics(), OverState()
    for number in range(500):
        one = row(9000, container=f"{number:064x}", requests=number % 2 == 0)
        since, _ = over.decide(since, float(number * 40), [one], Over(grace=0))
        metrics.saw(LastLook((CardUse(one.reading, (one.use,)),), (one,), float(number), 0.1))
    since, acts = over.decide(since, 1e6, [], Over())
    metrics.saw(LastLook((), (), 1e6, 0.1))
    assert (since, acts) == (OverState(), ())
    assert "job-1" not in metrics.text().decode()
    assert "slicewarden_node_nvml_errors_total{" not in metrics.text().decode()


def test_faults_are_counted_by_call_and_not_by_their_text() -> None:
    metrics = AgentMetrics()
    reading = CardReading("GPU-0", "0", "A10", None, None, None, (), errors=("nvmlX: a", "nvmlX: b", "nvmlY: c"))
    metrics.saw(LastLook((CardUse(reading, ()),), (), 1.0, 0.1))
    text = metrics.text().decode()
    assert 'slicewarden_node_nvml_errors_total{call="nvmlX"} 2.0' in text
    assert 'slicewarden_node_nvml_errors_total{call="nvmlY"} 1.0' in text


# What is done about it


def acts(since: OverState, now: float, one: ContainerRow, rules: Over) -> tuple[OverState, list[tuple[str, str]]]:
    since, found = over.decide(since, now, [one], rules)
    return since, [(act.verb, act.reason) for act in found]


def test_a_stranger_is_told_once() -> None:
    one, since = row(requests=False), OverState()
    since, first = acts(since, 0.0, one, Over())
    since, again = acts(since, 1.0, one, Over())
    assert (first, again) == ([(REPORT, "GPUNotRequested")], [])


def test_over_is_told_after_the_grace_and_not_before_and_once_a_crossing() -> None:
    rules, since = Over(grace=30, slack=64), OverState()
    since, at_the_line = acts(since, 0.0, row(4064), rules)
    since, first = acts(since, 1.0, row(4065), rules)
    since, early = acts(since, 30.9, row(4065), rules)
    assert (at_the_line, first, early) == ([], [], [])
    since, due = acts(since, 31.0, row(9000), rules)
    since, after = acts(since, 32.0, row(9000), rules)
    assert (due, after) == ([(REPORT, "GPUMemoryOver")], [])
    since, _ = acts(since, 33.0, row(4064), rules)
    assert (since.over, since.acted, since.reported) == ({}, {}, {})
    since, anew = acts(since, 34.0, row(4065), rules)
    assert anew == []


@pytest.mark.parametrize(("above", "within", "acted"), [(29, 1, True), (16, 14, True), (29, 31, False), (5, 25, False)])
def test_a_use_that_drops_before_each_end_of_the_grace_is_over_if_it_is_above_for_longer_than_within(
    above: int, within: int, acted: bool
) -> None:
    rules, since, found = Over(EVICT, grace=30, pressure=0), OverState(), set[str]()
    for now in range(3600):
        since, more = acts(since, float(now), row(9000 if now % (above + within) < above else 100), rules)
        found |= {verb for verb, _ in more}
    assert found == ({REPORT, EVICT} if acted else set())


def test_time_within_the_allowance_takes_back_no_more_than_one_grace() -> None:
    """So who was over for an hour has a whole grace again after one within."""
    rules, since = Over(EVICT, grace=30, pressure=0), OverState()
    for now, mib in ((0.0, 9000), (3600.0, 9000), (3601.0, 100), (3632.0, 100)):
        since, _ = acts(since, now, row(mib), rules)
    assert (since.over, since.clear) == ({}, {})


def test_use_that_swings_across_the_line_a_hundred_times_is_told_twice() -> None:
    rules, since, told = Over(grace=5), OverState(), list[float]()
    for swing in range(100):
        for second, mib in ((0.0, 9000), (5.0, 9000), (6.0, 100)):
            one, now = row(mib), swing * 7 + second
            since, found = over.decide(since, now, [one], rules, [one.use.place.container])
            told += [now for act in found if act.verb == REPORT]
    assert told == [5.0, 614.0]  # the first crossing that begins ten minutes after the one that was told


def test_a_stranger_whose_processes_come_and_go_is_told_once_until_its_container_ends() -> None:
    one, since, told = row(requests=False), OverState(), 0
    for now in range(0, 7200, 100):
        since, found = over.decide(since, float(now), [one] * (now // 100 % 2), Over(), [one.use.place.container])
        told += len(found)
    assert told == 1
    since, _ = over.decide(since, 8000.0, [], Over(), [])
    assert since == OverState()


def test_a_deed_comes_with_the_grace_and_again_after_another() -> None:
    rules, since, done = Over(KILL, grace=5, pressure=0), OverState(), []
    for now in count(0):
        since, found = acts(since, float(now), row(9000), rules)
        done += [(now, do) for do, _ in found]
        if now == 16:
            break
    assert done == [(5, REPORT), (5, KILL), (10, KILL), (15, KILL)]


@pytest.mark.parametrize("standing", [{"ending": True}, {"init": True}, {"alone": True}])
def test_one_that_ends_or_starts_is_told_of_and_left_alone(standing: Any) -> None:
    since, _ = acts(OverState(), 0.0, row(9000, **standing), Over(EVICT, grace=1))
    _, found = acts(since, 2.0, row(9000, **standing), Over(EVICT, grace=1))
    assert found == [(REPORT, "GPUMemoryOver")]


def test_below_the_pressure_it_is_only_told() -> None:
    rules = Over(KILL, grace=1, pressure=90)
    since, _ = acts(OverState(), 0.0, row(9000, used=8999), rules)
    since, calm = acts(since, 1.0, row(9000, used=8999), rules)
    _, full = acts(since, 2.0, row(9000, used=9000), rules)
    assert (calm, full) == ([(REPORT, "GPUMemoryOver")], [(KILL, "GPUMemoryOver")])


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 6000)), max_size=60), st.sampled_from([REPORT, EVICT, KILL]))
def test_nobody_within_the_allowance_is_ever_acted_on(steps: list[tuple[float, int]], action: str) -> None:
    rules, since, now = Over(action, grace=3, pressure=0), OverState(), 0.0
    for pause, mib in steps:
        now += pause
        one = row(mib)
        since, found = over.decide(since, now, [one], rules, [one.use.place.container])
        assert mib > 4064 or not found
        assert set(since.acted) <= set(since.over)
