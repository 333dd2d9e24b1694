"""The kernel's freezer, with real processes in real cgroups."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agent.bed import containers, writable
from tests.support.waiting import LONG, until
from webhook.agent.turns.freezer import NOT_DONE, Freezer, own

ID, UID = "ab" * 32, "11111111-2222-3333-4444-555555555555"
PATH = f"/kubepods/pod{UID}/{ID}"

THREADS = """
import threading, time
for _ in range(500): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True); time.sleep(600)
"""
FORKS = ("sh", "-c", "while :; do /bin/true & wait; done")
VFORK = "import subprocess; subprocess.run(['sleep', '600'])"


def test_a_frozen_container_stands_still_and_goes_on_where_it_was(tmp_path: Path) -> None:
    count = tmp_path / "count"
    code = f"import time\nwhile True:\n    open({str(count)!r}, 'a').write('.'); time.sleep(0.001)"
    freezer = Freezer(writable())
    with containers(1, (sys.executable, "-c", code)) as (one,):
        until(lambda: count.exists() and count.stat().st_size > 3, "it works")
        assert not freezer.frozen(one.path)
        assert freezer.freeze([one.path]) == {}
        before = count.stat().st_size
        time.sleep(0.05)
        assert count.stat().st_size == before
        assert (freezer.frozen(one.path), freezer.requested(one.path)) == (True, True)
        assert freezer.thaw(one.path) == ""
        until(lambda: count.stat().st_size > before, "it works again")
        assert freezer.requested(one.path) is False


def test_five_hundred_threads_freeze_in_time() -> None:
    with containers(1) as (one,):
        many = one.run(sys.executable, "-c", THREADS, stdout=subprocess.PIPE)
        assert many.stdout is not None
        many.stdout.readline()
        assert Freezer(writable()).freeze([one.path]) == {}
        assert one.frozen
        many.stdout.close()
        many.kill()
        many.wait()


def test_a_storm_of_forks_freezes_in_time_again_and_again() -> None:
    freezer = Freezer(writable())
    with containers(1, FORKS) as (one,):
        for _ in range(20):
            assert freezer.freeze([one.path]) == {}
            assert freezer.thaw(one.path) == ""


def test_one_that_is_stopped_or_waits_for_its_child_counts_as_frozen() -> None:
    freezer = Freezer(writable())
    with containers(2) as (stopped, waiting):
        stopped.process.send_signal(signal.SIGSTOP)
        child = waiting.run(sys.executable, "-c", VFORK)
        until(lambda: "sleep" in children(child.pid), "it waits")
        assert freezer.freeze([stopped.path, waiting.path]) == {}
        assert (stopped.frozen, waiting.frozen) == (True, True)
        freezer.thaw(stopped.path)
        freezer.thaw(waiting.path)
        stopped.process.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()


def children(pid: int) -> str:
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return "".join(Path(f"/proc/{each}/comm").read_text() for each in below)
    except OSError:
        return ""


def test_a_kill_ends_a_frozen_one_at_once() -> None:
    freezer = Freezer(writable())
    with containers(1) as (one,):
        freezer.freeze([one.path])
        one.process.kill()
        assert one.process.wait(LONG) == -signal.SIGKILL


def test_a_container_that_is_gone_is_thawed_and_cannot_be_frozen() -> None:
    freezer = Freezer(writable())
    assert freezer.thaw(PATH) == ""
    assert freezer.freeze([PATH]) == {PATH: "gone"}
    assert (freezer.frozen(PATH), freezer.requested(PATH)) == (None, None)


def test_a_freeze_that_is_not_done_in_time_is_undone(tmp_path: Path) -> None:
    """Files stand for a kernel whose process waits for a driver: it takes the order, and does not get it done."""
    folder = tmp_path / PATH[1:]
    folder.mkdir(parents=True)
    (folder / "cgroup.freeze").write_text("0\n")
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    begin = time.monotonic()
    assert Freezer(tmp_path, patience=0.1).freeze([PATH]) == {PATH: NOT_DONE}
    assert time.monotonic() - begin >= 0.1
    assert (folder / "cgroup.freeze").read_text().startswith("0")


def test_a_child_below_a_frozen_cgroup_stands_still_though_nobody_asked_for_it() -> None:
    freezer = Freezer(writable())
    with containers(1) as (one,):
        above = one.folder.parent / "cgroup.freeze"
        above.write_text("1")
        until(lambda: one.frozen, "it stands still")
        assert (freezer.frozen(one.path), freezer.requested(one.path)) == (True, False)
        above.write_text("0")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/kubepods",
        f"/kubepods/pod{UID}",
        f"/kubepods/pod{UID}/../{ID}",
        f"/../kubepods/pod{UID}/{ID}",
        f"/kubepods/./pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}/below",
        f"kubepods/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID} (deleted)",
        f"/kubepods//pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}\0",
    ],
)
def test_nothing_but_a_containers_own_cgroup_is_written_to(path: str) -> None:
    assert not own(path)
    freezer = Freezer(writable())
    assert freezer.thaw(path)
    assert freezer.freeze([path])
    assert (freezer.frozen(path), freezer.requested(path)) == (None, None)


def test_a_mount_that_cannot_be_written_to_says_so(tmp_path: Path) -> None:
    folder = tmp_path / PATH[1:]
    (folder / "cgroup.freeze").mkdir(parents=True)
    why = os.strerror(21)
    assert Freezer(tmp_path).freeze([PATH]) == {PATH: why}
