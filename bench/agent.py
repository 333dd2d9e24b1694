"""Measures the cost of a node's agent: its share of a core at one and at ten looks a second, its memory, and a look.

The card is simulated (tests/support/card): real processes in real cgroups, NVIDIA's own binding, and a library that
answers immediately. So the time of a look does not include a real driver's.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.generator import CannotRun
from bench.processes import cpu, resident, running
from bench.runs import Result, figure
from bench.tables import markdown
from tests.support.card import state
from tests.support.card.library import CannotCompile, library
from webhook.agent.observe.cgroups import mount

LOADS = ((0, 1), (50, 1), (50, 10))
"""Numbers of containers, and looks a second: one, or ten while containers take turns."""
AIMS = {1: 0.5, 10: 4.0}
"""Percent of a core with 50 containers, by looks a second."""
AIM_MEMORY = 80
"""MiB."""
SECONDS = 20.0
LOOKS = 20
"""Number of looks that are timed, after the CPU has been measured."""
WARM = 3.0
"""Seconds between the first look and the first measurement."""

PROGRAM = (
    "import sys; from webhook.agent import actions; actions.PERIOD = 1 / {}; from webhook.cli.main import main; main()"
)


def run() -> Result:
    """Run this part of the benchmarks, and return its result.

    Raises CannotRun without a C compiler or a cgroup v2 that may be written to.
    """
    root = mount()
    if root is None or not os.access(root, os.W_OK):
        raise CannotRun("the agent needs a cgroup v2 that this user may write to")
    try:
        library()
    except CannotCompile as error:
        raise CannotRun(str(error)) from error
    rows, figures = [], []
    for count, rate in LOADS:
        share, memory, looks = _measured(root, count, rate)
        middle, most = median(looks), max(looks)
        aimed = f"{100 * share:.2f} %{f' (aim {AIMS[rate]} %)' if count else ''}"
        kept = f"{memory:.0f} MiB (aim {AIM_MEMORY} MiB)"
        rows.append((str(count), str(rate), aimed, kept, f"{1e3 * middle:.1f} ms", f"{1e3 * most:.1f} ms"))
        name = f"{count} containers, {rate} looks a second"
        figures += [
            figure(f"{name}: of a core", "%", [100 * share]),
            figure(f"{name}: memory", "MiB", [memory]),
            figure(f"{name}: a look", "ms", [1e3 * each for each in looks]),
        ]
    head = ("containers", "looks a second", "of a core", "memory", "a look, median", "longest")
    return Result(markdown(head, rows), figures)


def _measured(root: Path, count: int, rate: int) -> tuple[float, float, list[float]]:
    """Return the share of a core, MiB, and seconds of some looks, for this many containers and looks a second."""
    with tempfile.TemporaryDirectory() as folder, _containers(root, count) as pids, socket.socket() as free:
        card = state.State(Path(folder) / "card")
        for pid in pids:
            card.hold(pid, 100, sm=2)
        free.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()
        os.environ.update(
            LD_LIBRARY_PATH=card.environment["LD_LIBRARY_PATH"], CARD_STATE=card.environment["CARD_STATE"]
        )
        with (
            (Path(folder) / "errors").open("wb") as errors,
            running([sys.executable, "-c", PROGRAM.format(rate), "agent", "--listen", at], Path.cwd(), errors) as one,
        ):
            _begun(at)
            time.sleep(WARM)
            before, begin = cpu([one.pid]), time.monotonic()
            time.sleep(SECONDS)
            share = (cpu([one.pid]) - before) / 1e6 / (time.monotonic() - begin)
            memory = resident([one.pid])
            return share, memory, [_look(at) for _ in range(LOOKS)]


def _begun(at: str) -> None:
    """Wait for the first look, after which all imports are done."""
    for _ in range(600):
        try:
            _look(at)
            return
        except (OSError, ValueError):
            time.sleep(0.1)
    raise CannotRun("the agent has not looked within a minute")


def _look(at: str) -> float:
    """Wait a second, and return the seconds of the newest look."""
    time.sleep(1)
    with urllib.request.urlopen(f"http://{at}/metrics") as answer:
        text = answer.read().decode()
    (seconds,) = re.findall(r"^slicewarden_node_look_seconds (\S+)$", text, re.MULTILINE)
    return float(seconds)


@contextmanager
def _containers(root: Path, count: int) -> Iterator[list[int]]:
    """Make cgroups that are named like containers', each with a process."""
    top = root / "kubepods-slicewarden-bench"
    jobs: list[subprocess.Popen[bytes]] = []
    folders = [top]
    try:
        for number in range(count):
            pod = top / f"pod11111111-2222-3333-4444-{number:012x}"
            folder = pod / f"{number:064x}"
            folder.mkdir(parents=True)
            folders += [pod, folder]
            jobs.append(subprocess.Popen(["sleep", "600"]))
            (folder / "cgroup.procs").write_text(str(jobs[-1].pid))
        yield [job.pid for job in jobs]
    finally:
        for job in jobs:
            job.kill()
            job.wait()
        for folder in reversed(folders):
            if folder.exists():
                folder.rmdir()
