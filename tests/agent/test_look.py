"""Join the pretended cards' answers with real processes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.card.library import SOURCES
from tests.support.card.state import LOST, MIB, NO_EVENTS, NO_MPS, NO_SAMPLES, State, start_of
from tests.support.waiting import until
from webhook.agent.observe import look, nvml, processes
from webhook.agent.observe.look import CardUse, join
from webhook.agent.observe.nvml import CardReading, Cards, NvmlProcess
from webhook.agent.observe.processes import AGAIN, Process, Processes
from webhook.cgroups.places import ContainerCgroup

UIDS = [f"0000000{n}-2222-3333-4444-555555555555" for n in range(3)]
IDS = [f"{n:064x}" for n in range(3)]
SECOND = 1_000_000
"""In microseconds, as NVML stamps samples."""


class Proc:
    """A /proc of our own, with the stat files of real processes and cgroup files that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, pid: int, cgroup: str, start: int | None = None, state: str = "S", threads: int = 1) -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True, parents=True)
        begins = start_of(pid) if start is None else start
        fields = " ".join([state, *["0"] * 16, str(threads), "0", str(begins)])
        (self.folder / str(pid) / "stat").write_text(f"{pid} (a (b) name) {fields} 0")
        (self.folder / str(pid) / "cgroup").write_text(cgroup)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    (tmp_path / "proc").mkdir()
    return Proc(tmp_path / "proc")


def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


@pytest.fixture
def two() -> Iterator[list[int]]:
    started = [sleeper(), sleeper()]
    yield [each.pid for each in started]
    for each in started:
        each.kill()
        each.wait()


def cgroup(container: int, pod: int | None = None) -> str:
    return f"0::/kubepods/pod{UIDS[container if pod is None else pod]}/{IDS[container]}\n"


@pytest.fixture
def cards(card: State) -> Iterator[Cards]:
    del card  # it has to be there first
    opened = Cards()
    yield opened
    opened.close()


def test_two_processes_of_a_container_are_summed_and_two_containers_of_a_pod_kept_apart(
    card: State, cards: Cards, proc: Proc, two: list[int]
) -> None:
    mine = os.getpid()
    for pid, container in ((two[0], 0), (two[1], 0), (mine, 1)):
        proc.add(pid, cgroup(container, pod=0))
        card.hold(pid, 1000 + container, sm=20)
    (seen,) = look.look(cards, Processes(proc.folder))
    assert [(use.place.pod, use.place.container, use.mib) for use in seen.uses] == [
        (UIDS[0], IDS[0], 2000),
        (UIDS[0], IDS[1], 1001),
    ]
    assert (seen.reading.used, seen.unattributed) == (3001, 0)


def test_what_a_killed_process_held_is_gone_from_the_next_look(card: State, cards: Cards) -> None:
    job = sleeper()
    card.hold(job.pid, 5000)
    processes = Processes()
    (before,) = look.look(cards, processes)
    job.send_signal(signal.SIGKILL)
    job.wait()
    (after,) = look.look(cards, processes)
    assert (before.reading.used, after.reading.used, after.host) == (5000, 0, ())


def test_a_pid_that_has_a_new_owner_counts_for_the_new_owners_container(proc: Proc) -> None:
    processes = Processes(proc.folder)
    proc.add(7, cgroup(0), start=100)
    first = processes.find([7])[7]
    proc.add(7, cgroup(1), start=200)
    second = processes.find([7])[7]
    assert first.place is not None
    assert second.place is not None
    assert (first.place.container, second.place.container) == (IDS[0], IDS[1])
    assert processes.alive(second)
    assert not processes.alive(first)


def test_a_process_outside_any_container_that_is_moved_into_one_is_seen_there_at_once(proc: Proc) -> None:
    processes = Processes(proc.folder)
    proc.add(7, "0::/user.slice\n", start=100)
    assert processes.find([7])[7].place is None
    proc.add(7, cgroup(0), start=100)
    moved = processes.find([7])[7].place
    assert moved is not None
    assert moved.container == IDS[0]


@given(st.integers(1, 2**22), st.lists(st.sampled_from([0, 1, 2]), max_size=12))
def test_a_process_that_is_moved_from_one_container_to_another_is_seen_there_within_a_few_looks(
    pid: int, moves: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        proc = Proc(Path(folder))
        processes = Processes(proc.folder)
        for container in moves:
            proc.add(pid, cgroup(container), start=100)
            looks = [processes.find([pid])[pid].place for _ in range(AGAIN)]
            assert looks[-1] is not None
            assert looks[-1].container == IDS[container]


def test_a_process_that_holds_nothing_any_more_is_forgotten(proc: Proc) -> None:
    processes = Processes(proc.folder)
    proc.add(7, cgroup(0), start=100)
    first = processes.find([7])[7]
    processes.find([])
    assert processes.find([7])[7] is not first


def test_a_process_that_ends_between_two_questions_counts_as_unattributed(proc: Proc) -> None:
    reading = CardReading("GPU-0", "0", "card", 800, 1000, 10, (NvmlProcess(7, 500, 10),))
    seen = join(reading, Processes(proc.folder).find([7]))
    assert (seen.uses, seen.host, seen.unattributed) == ((), (), 800)


HEADLESS = """
import ctypes, threading
threading.Thread(target=threading.Event().wait).start()
print("ready", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
"""Ends the first thread of its process, and leaves another one."""


def test_a_process_whose_first_thread_has_ended_counts_until_its_last_one_has() -> None:
    """The kernel calls it a zombie then. Its memory on a card would be nobody's."""
    with subprocess.Popen([sys.executable, "-c", HEADLESS], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        until(lambda: ") Z " in Path(f"/proc/{started.pid}/stat").read_text(), "the first thread has ended")
        known = Processes()
        (found,) = known.find([started.pid]).values()
        assert found.start == start_of(started.pid)
        assert known.alive(found)
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie with all its threads
        assert not known.find([started.pid])
        assert not known.alive(found)


def test_the_container_of_a_process_whose_first_thread_has_ended_is_that_of_a_living_one(proc: Proc) -> None:
    """Cgroups of version 1 show the first one at the root."""
    root, threads, looks = "4:freezer:/\n", Proc(proc.folder / "7" / "task"), Processes(proc.folder)
    proc.add(7, root, 5, "Z")
    assert not looks.find([7])
    proc.add(7, root, 5, "Z", threads=2)
    assert looks.find([7])[7].place is None
    threads.add(7, root, 5, "Z", threads=2)
    threads.add(8, cgroup(1), 6, threads=2)
    (found,) = looks.find([7]).values()
    assert (found.pid, found.start, found.place and found.place.container) == (7, 5, IDS[1])


def test_the_ended_threads_of_a_process_that_its_tracer_keeps_cost_no_more_than_some(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tracer may keep a hundred thousand of them. One look read the files of all."""
    monkeypatch.setattr(processes, "THREADS", 10)
    read, once = list[str](), processes.Processes._text

    def text(own: Processes, path: str) -> str | None:
        read.append(path)
        return once(own, path)

    monkeypatch.setattr(Processes, "_text", text)
    for pid, shown, files in ((7, "4:freezer:/\n", 12), (8, cgroup(1), 2)):
        proc.add(pid, shown, 5, "Z", threads=51)
        for number in range(50):
            Proc(proc.folder / str(pid) / "task").add(100 + number, "4:freezer:/\n", 5, "Z", threads=51)
        looks = Processes(proc.folder)
        found, asked = looks.find([pid])[pid], len(read)
        assert (found.place is not None, asked) == (pid == 8, files)
        assert looks.alive(found)
        read.clear()
    # Looks go on with the others, and the container is remembered.
    Proc(proc.folder / "7" / "task").add(999, cgroup(1), 6, threads=52)
    looks, places = Processes(proc.folder), list[ContainerCgroup | None]()
    for _ in range(2 * 6):
        places.append(looks.find([7])[7].place)
        assert len(read) <= 13
        read.clear()
    assert {each and each.container for each in places[6:]} == {IDS[1]}


def test_a_list_that_grows_at_every_question_loses_one_looks_value_and_not_the_look(card: State, cards: Cards) -> None:
    card.hold(os.getpid(), 1000)
    card.set(small=1)
    (reading,) = cards.look()
    assert (reading.used, reading.processes) == (1000, ())
    assert any("grew 3 times" in fault for fault in reading.errors)
    card.set(small=0)
    (reading,) = cards.look()
    assert [each.mib for each in reading.processes] == [1000]
    assert not reading.errors  # and `Not Found` of a card without samples is no fault


def shares(cards: Cards, *pids: int) -> list[int | None]:
    (reading,) = cards.look()
    found = {each.pid: each.sm for each in reading.processes}
    return [found[pid] for pid in pids]


def test_samples_above_100_percent_are_dropped(card: State, cards: Cards) -> None:
    mine = os.getpid()
    slot = card.hold(mine, 100, sm=40, stamp=5 * SECOND)
    card.set(garbage=3)
    assert shares(cards, mine) == [40]
    card.hold(mine, 100, sm=101, stamp=7 * SECOND, slot=slot)
    assert shares(cards, mine) == [0]


@pytest.mark.parametrize(
    ("sample", "work"),
    [
        ({}, False),
        ({"smUtil": 1}, True),
        ({"memUtil": 1}, True),
        ({"encUtil": 1}, True),
        ({"decUtil": 1}, True),
        ({"decUtil": 101}, None),
        ({"smUtil": 101}, None),
        ({"smUtil": 101, "timeStamp": 0}, False),
        ({"smUtil": 101, "pid": 1}, False),
    ],
)
def test_whoever_only_decodes_a_video_works_and_an_impossible_sample_shows_no_idleness(
    card: State, cards: Cards, proc: Proc, monkeypatch: pytest.MonkeyPatch, sample: dict[str, int], work: bool | None
) -> None:
    usual = {"pid": os.getpid(), "timeStamp": SECOND, "smUtil": 0, "memUtil": 0, "encUtil": 0, "decUtil": 0}
    found = [SimpleNamespace(**{**usual, **sample})]
    monkeypatch.setattr("pynvml.nvmlDeviceGetProcessUtilization", lambda *_: found)
    card.hold(os.getpid(), 100)
    proc.add(os.getpid(), cgroup(0))
    (use,) = look.look(cards, Processes(proc.folder))[0].uses
    assert use.work is work


def test_a_possible_sample_of_a_process_that_is_not_on_the_card_changes_nothing(card: State, cards: Cards) -> None:
    mine = os.getpid()
    slot = card.hold(mine, 100, sm=40, stamp=5 * SECOND)
    card.set(garbage=1, garbage_sm=50, garbage_stamp=10**6 * SECOND)
    assert shares(cards, mine) == [40]
    card.set(garbage=0)
    card.hold(mine, 100, sm=60, stamp=6 * SECOND, slot=slot)
    assert shares(cards, mine) == [60]


def test_a_sample_far_ahead_of_the_clock_hides_no_later_one(card: State, cards: Cards, two: list[int]) -> None:
    slots = [card.hold(pid, 100, sm=40, stamp=10**6 * SECOND) for pid in two]
    assert shares(cards, *two) == [40, 40]
    for at, slot in enumerate(slots):
        card.sample(slot, 60 + at, (5 + at) * SECOND)
    assert shares(cards, *two) == [60, 61]


def test_a_process_that_was_sampled_more_than_a_period_before_the_newest_is_idle(
    card: State, cards: Cards, two: list[int]
) -> None:
    slots = [card.hold(pid, 100, sm=40, stamp=5 * SECOND) for pid in two]
    assert shares(cards, *two) == [40, 40]
    card.sample(slots[0], 50, 6 * SECOND + 1)
    assert shares(cards, *two) == [50, 0]


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(1, 10_000 * SECOND),
            st.lists(st.integers(1, 100), min_size=2, max_size=2),
            st.sampled_from([(0,), (1,), (0, 1)]),
            st.tuples(st.integers(0, 2), st.integers(1, 200), st.integers(1, 2**63)),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda step: step[0],
    )
)
def test_no_step_of_the_clock_and_no_garbage_hides_a_new_sample(
    card: State, two: list[int], steps: list[tuple[int, list[int], tuple[int, ...], tuple[int, int, int]]]
) -> None:
    slots = [card.hold(pid, 100) for pid in two]
    cards = Cards()
    try:
        for stamp, percent, sampled, (count, sm, ahead) in steps:
            card.set(garbage=count, garbage_sm=sm, garbage_stamp=ahead)
            for each in sampled:
                card.sample(slots[each], percent[each], stamp)
            seen = shares(cards, *two)
            assert [seen[each] for each in sampled] == [percent[each] for each in sampled]
    finally:
        cards.close()
        for slot in slots:
            card.free(slot)


def test_a_pid_of_garbage_or_with_more_than_the_card_has_is_dropped(card: State, cards: Cards, proc: Proc) -> None:
    card.hold(4294967295 - 1, 10, start=0)
    card.hold(os.getpid(), 30000)
    (seen,) = look.look(cards, Processes(proc.folder))
    assert (seen.uses, seen.host) == ((), ())


def test_under_mig_memory_is_told_by_instance_and_no_utilisation(card: State) -> None:
    mine = os.getpid()
    card.set(instances=2, busy=70)
    card.hold(mine, 700, instance=2, sm=50)
    cards = Cards()
    readings = cards.look()
    cards.close()
    assert [(each.number, each.used, each.busy, each.mig) for each in readings] == [
        ("0:0", 0, None, True),
        ("0:1", 700, None, True),
    ]
    assert readings[1].processes == (NvmlProcess(mine, 700, None),)
    assert not [fault for each in readings for fault in each.errors]


def test_a_client_of_mps_is_known_as_one(card: State, cards: Cards) -> None:
    card.hold(os.getpid(), 300, mps=1)
    (reading,) = cards.look()
    assert reading.processes == (NvmlProcess(os.getpid(), 300, 0, mps=True),)


def test_a_lost_card_says_so_and_raises_nothing(card: State, cards: Cards) -> None:
    card.set(fault=LOST)
    (reading,) = cards.look()
    assert reading.lost
    assert (reading.used, reading.busy, reading.processes) == (None, None, ())
    card.set(fault=0)
    (reading,) = cards.look()
    assert not reading.lost


def test_a_driver_that_is_not_there_is_unavailable(monkeypatch: pytest.MonkeyPatch, card: State) -> None:
    monkeypatch.setenv("CARD_STATE", f"{card.file}-missing")
    with pytest.raises(nvml.Unavailable, match="Driver Not Loaded"):
        Cards()


def test_a_card_that_was_lost_before_the_start_is_read_as_lost(card: State) -> None:
    card.set(fault=LOST)
    cards = Cards()
    (reading,) = cards.look()
    assert (reading.uuid, reading.number, reading.lost, reading.opened) == ("index 0", "0", True, False)
    assert cards.whole == ()
    assert not cards.stale
    card.set(fault=0)
    assert cards.stale
    cards.close()


def test_mig_devices_that_are_made_or_removed_meanwhile_make_a_session_stale(card: State, cards: Cards) -> None:
    assert not cards.stale
    card.set(instances=2)
    assert cards.stale
    later = Cards()
    assert (len(later.look()), later.stale) == (2, False)
    later.close()
    card.set(instances=0)
    assert not cards.stale


@pytest.mark.parametrize(
    ("lacks", "names"),
    [
        (NO_MPS, {"nvmlDeviceGetMPSComputeRunningProcesses_v3"}),
        (NO_EVENTS, {"nvmlEventSetCreate"}),
        (NO_SAMPLES, {"nvmlDeviceGetProcessUtilization"}),
        (NO_MPS | NO_EVENTS | NO_SAMPLES, None),
    ],
)
def test_an_older_driver_costs_what_it_lacks_and_no_more(card: State, lacks: int, names: set[str] | None) -> None:
    mine = os.getpid()
    card.set(missing=lacks, busy=90)
    card.hold(mine, 300, sm=40)
    cards = Cards()
    (reading,) = cards.look()
    assert (reading.used, reading.busy, reading.errors) == (300, 90, ())
    assert reading.processes == (NvmlProcess(mine, 300, None if lacks & NO_SAMPLES else 40),)
    assert cards.events() == ()
    assert len(cards.missing) == 3 if names is None else cards.missing == names
    cards.close()


@pytest.mark.parametrize("name", ["Tesla\nT4", "T4\x1b[2J", "T4\u202e", "T4\udcff"])
def test_the_name_of_a_card_is_one_line_of_printable_ascii(tmp_path: Path, card: State, name: str) -> None:
    del card  # it has found the library, and reads the file that is made again
    State(tmp_path / "card", name=name)
    cards = Cards()
    (reading,) = cards.look()
    cards.close()
    assert reading.name
    assert reading.name.isascii()
    assert reading.name.isprintable()


def test_every_call_of_the_agent_has_an_answer_in_the_pretended_library() -> None:
    names = set(nvml.__dict__["pynvml"].__dict__)
    text = Path(nvml.__file__).read_text("utf-8")
    called = {name for name in names if name.startswith("nvml") and f"pynvml.{name}" in text}
    binding = Path(pynvml.__file__).read_text("utf-8")
    source = (SOURCES / "nvml.c").read_text("utf-8")
    assert len(called) > 15
    for name in called:
        _, _, body = binding.partition(f"def {name}(")
        own = body.partition("\ndef ")[0]
        asked = {each for each in (f"{name}_v3", f"{name}_v2", name) if f'_nvmlGetFunctionPointer("{each}")' in own}
        assert not asked or any(f"int {each}(" in source for each in asked), name


places = st.sampled_from(
    [None, *(ContainerCgroup(uid, container, f"/{container}", 2) for uid in UIDS for container in IDS)]
)


@given(st.lists(st.tuples(places, st.none() | st.integers(0, 5000), st.booleans()), max_size=12), st.integers(0, 9000))
def test_what_is_used_is_what_containers_have_and_the_rest(
    held: list[tuple[ContainerCgroup | None, int | None, bool]], reserved: int
) -> None:
    taken = tuple(NvmlProcess(pid, mib, None) for pid, (_, mib, _) in enumerate(held))
    used = reserved + sum(mib or 0 for _, mib, _ in held)
    found = {pid: Process(pid, 1, "p", place) for pid, (place, _, alive) in enumerate(held) if alive}
    seen: CardUse = join(CardReading("GPU-0", "0", "card", used, 10**6, None, taken), found)
    assert seen.unattributed is not None
    assert used == sum(use.mib for use in seen.uses) + seen.unattributed
    assert len({use.place for use in seen.uses}) == len(seen.uses)
    assert MIB == 2**20
