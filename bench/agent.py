"""What the agent of a node costs: its share of a core at a look a second, its memory, and the time of a look.

The card is pretended (tests/support/card): real processes in real cgroups, NVIDIA's own binding, and a library that
answers at once. So the time of a look has none of a real driver's.
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

from bench.generator import CannotRun
from bench.processes import cpu, resident, running
from bench.tables import markdown
from tests.support.card import state
from tests.support.card.library import CannotCompile, library
from webhook.agent.cgroups import mount

CONTAINERS = (0, 50)
SECONDS = 30.0
WARM = 3.0
"""Seconds that pass before anything is measured."""

COMMAND = (sys.executable, "-c", "import sys; from webhook.cli.main import main; sys.exit(main())", "agent")


def run() -> str:
    """Measure, and write the table. Raises CannotRun without a C compiler or a cgroup v2 that may be written to."""
    root = mount()
    if root is None or not os.access(root, os.W_OK):
        raise CannotRun("the agent needs a cgroup v2 that this user may write to")
    try:
        library()
    except CannotCompile as error:
        raise CannotRun(str(error)) from error
    rows = []
    for count in CONTAINERS:
        share, memory, look = _measured(root, count)
        rows.append((str(count), f"{100 * share:.2f} %", f"{memory:.0f} MiB", f"{1e3 * look:.1f} ms"))
    return markdown(("containers", "of a core, at a look a second", "memory", "the newest look"), rows)


def _measured(root: Path, count: int) -> tuple[float, float, float]:
    """Return the part of a core, MiB, and seconds of the newest look, with so many containers on the card."""
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
            running([*COMMAND, "--listen", at], Path.cwd(), errors) as one,
        ):
            time.sleep(WARM)
            before, begin = cpu([one.pid]), time.monotonic()
            time.sleep(SECONDS)
            share = (cpu([one.pid]) - before) / 1e6 / (time.monotonic() - begin)
            with urllib.request.urlopen(f"http://{at}/metrics") as answer:
                text = answer.read().decode()
            (look,) = re.findall(r"^slicewarden_node_look_seconds (\S+)$", text, re.MULTILINE)
            return share, resident([one.pid]), float(look)


@contextmanager
def _containers(root: Path, count: int) -> Iterator[list[int]]:
    """Make cgroups named as containers', each with a process."""
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
