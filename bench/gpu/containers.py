"""Makes containers without a container runtime: real processes in cgroups v2 with the names that a kubelet gives."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.gpu.tables import Unmeasurable
from webhook.agent.observe.cgroups import mount

PROGRAM = Path(__file__).with_name("program.py")

PATIENCE = 10.0
"""Seconds until a cgroup has to be gone."""


class Unwritable(Unmeasurable):
    """No cgroup or program can be made. The text is the reason, in one line."""


class Program:
    """A process of program.py in a container."""

    def __init__(self, folder: Path | None, environment: Mapping[str, str] | None) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, str(PROGRAM)]
        self.process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        if folder is not None:
            (folder / "cgroup.procs").write_text(str(self.process.pid))
        if (said := self._answer()) != "ready":
            raise Unwritable(f"the program on the card ended: {said or self.process.wait()}")

    @property
    def pid(self) -> int:
        """The PID of the process."""
        return self.process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def take(self, mib: int) -> bool:
        """Have the process allocate memory on the card. Returns whether that succeeded."""
        return self.ask(f"take {mib}") == 0

    def ask(self, line: str) -> int:
        """Send the process a command, and return CUDA's error."""
        if self.process.stdin is not None:
            self.process.stdin.write(f"{line}\n")
            self.process.stdin.flush()
        return int(self._answer())

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # of a command that nobody read any more
                    stream.close()

    def _answer(self) -> str:
        return self.process.stdout.readline().strip() if self.process.stdout else ""


class Containers:
    """Makes containers in its own folder, each in its own pod. Programs get `environment`, by default ours.

    Without a `root` there is no cgroup to write to, so its programs are in no container.
    """

    def __init__(self, root: Path | None, environment: Mapping[str, str] | None) -> None:
        self.root, self.environment = root, environment
        self.folders: list[Path] = []
        self.programs: list[Program] = []

    def make(self) -> Path | None:
        """Make the cgroup folder of a container; None if there is no cgroup to write to."""
        if self.root is None:
            return None
        number = len(self.folders)
        folder = self.root / f"pod{pod_uid(number)}" / container_id(number)
        folder.mkdir(parents=True)
        self.folders.append(folder)
        return folder

    def run(self, folder: Path | None) -> Program:
        """Start a program in a container, or in none."""
        self.programs.append(Program(folder, self.environment))
        return self.programs[-1]


def pod_uid(number: int) -> str:
    """The uid of the pod of a container."""
    return f"11111111-2222-3333-4444-{number:012x}"


def container_id(number: int) -> str:
    """The id of a container."""
    return f"{number:064x}"


@contextmanager
def containers(
    environment: Mapping[str, str] | None = None, name: str = "kubepods-slicewarden", *, needed: bool = True
) -> Iterator[Containers]:
    """Make containers until the block ends, and leave nothing.

    Without a cgroup v2 that may be written to it raises Unwritable, or makes none if they are not `needed`.
    """
    try:
        root = _root(name)
    except Unwritable:
        if needed:
            raise
        root = None
    made = Containers(root, environment)
    try:
        yield made
    finally:
        for program in made.programs:
            program.end()
        for folder in (*reversed(made.folders), *{each.parent for each in made.folders}, *filter(None, [root])):
            _remove(folder)


def _root(name: str) -> Path:
    """Make the folder of all containers. Raises Unwritable."""
    at = mount()
    if at is None or not os.access(at, os.W_OK):
        raise Unwritable("no cgroup v2 that this user may write to")
    try:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=at))
    except OSError as error:
        raise Unwritable(f"no cgroup v2 that this user may write to: {error.strerror}") from error


def _remove(folder: Path) -> None:
    """Remove a cgroup; the kernel may count a process in it for a moment after its end."""
    end = time.monotonic() + PATIENCE
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.01)
