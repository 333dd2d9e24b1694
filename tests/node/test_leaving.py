"""A bed leaves nothing behind: no process, mount, interface, packet filter or control group, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import eventually
from tests.node.bed import HIERARCHIES, groups_of

MARK, FOREVER = "left-behind", "654321"
BUSY = f"""
mount -t tmpfs {MARK} /mnt
ip link add {MARK} type bridge
nft add table ip {MARK}
mkdir /sys/fs/cgroup/memory/{MARK}
sh -c 'echo $$ > /sys/fs/cgroup/memory/{MARK}/cgroup.procs; setsid sleep {FOREVER}' &
echo ready
sleep {FOREVER}
"""


def traces() -> list[str]:
    """Everything of a bed that can be seen from outside."""
    shown = [Path("/proc/mounts").read_text(), *map(_command, Path("/proc").glob("[0-9]*"))]
    shown += [subprocess.run(line, capture_output=True, text=True, check=True).stdout for line in (LINKS, FILTERS)]
    marked = [line for text in shown for line in text.splitlines() if MARK in line or FOREVER in line]
    return marked + [str(each) for each in groups_of()]


LINKS, FILTERS = ["ip", "link"], ["nft", "list", "ruleset"]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A bed with something of each kind in it."""
    command = [sys.executable, "-m", "tests.node.bed", "sh", "-euc", BUSY]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert traces()
        yield process
        process.kill()


def keeper_of(process: subprocess.Popen[str]) -> int:
    (keeper,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(keeper)


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_command_that_started_it_is_ended(
    busy: subprocess.Popen[str], told: signal.Signals
) -> None:
    busy.send_signal(told)
    assert eventually(lambda: not traces()), traces()


def test_only_control_groups_are_left_by_a_killed_keeper_and_the_next_run_removes_them(
    busy: subprocess.Popen[str],
) -> None:
    keeper = keeper_of(busy)
    os.kill(keeper, signal.SIGKILL)
    busy.wait(30)
    left = [str(each) for each in groups_of(keeper)]
    assert len(left) == len([each for each in HIERARCHIES.iterdir() if (each / "cgroup.procs").exists()])
    assert eventually(lambda: traces() == left), traces()
    subprocess.run([sys.executable, "-m", "tests.node.bed", "true"], cwd=ROOT, check=True)
    assert not traces()


def test_the_exit_status_is_that_of_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.node.bed", "sh", "-c", "exit 3"], cwd=ROOT, check=False)
    assert done.returncode == 3
    assert not traces()
