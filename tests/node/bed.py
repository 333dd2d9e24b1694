"""Run a command where it can be a Kubernetes node: in namespaces and control groups of its own, which end with it.

Three processes: ours; a keeper in a session of its own, which learns by a pipe that ours has ended in whatever way; and
`unshare`, which the kernel kills with the keeper, and all that is in its PID namespace with it. Mounts, interfaces and
packet filters end with their namespaces. Control groups do not: the keeper removes them, and where it was killed, the
next run does.
"""

import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

INSIDE = Path(__file__).resolve().with_name("inside.sh")
HIERARCHIES = Path("/sys/fs/cgroup")
NAME = "slicewarden-node"
PROGRAMS = {
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
}
"""What the bed runs besides its own, and the Debian package of each."""
UNSHARE = ("unshare", "--cgroup", "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
INSIDE_VARIABLE = "SLICEWARDEN_NODE_BED"
"""Set for what runs in the bed."""


def lacking() -> str:
    """Return what this machine lacks for a node, in one line; empty where it lacks nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a node needs root on Linux"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"a node needs {', '.join(missing)} (apt-get install {' '.join({PROGRAMS[name] for name in missing})})"
    if not any(each.name == "memory" for each in _hierarchies()):
        return "a node needs control groups of version 1 under /sys/fs/cgroup"
    tried = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
    return "a node needs CAP_SYS_ADMIN, for namespaces and mounts" if tried.returncode else ""


def run(command: Sequence[str | Path]) -> int:
    """Run a command in a bed, and return its exit status when nothing of it is left."""
    _sweep()
    sys.stdout.flush()
    ended, ours = os.pipe()
    if (keeper := os.fork()) == 0:
        os.close(ours)
        _keep(ended, command)
    os.close(ended)
    try:
        _, status = os.waitpid(keeper, 0)
    except KeyboardInterrupt:
        os.close(ours)
        os.waitpid(keeper, 0)
        raise
    return os.waitstatus_to_exitcode(status)


def groups_of(keeper: int | str = "*") -> Iterator[Path]:
    """The control groups of a bed, or of all, by the process id of its keeper."""
    for hierarchy in _hierarchies():
        yield from hierarchy.glob(f"{NAME}-{keeper}")


def _keep(ended: int, command: Sequence[str | Path]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        status = _watched(ended, command)
    finally:
        _remove(list(groups_of(os.getpid())))
        os._exit(status)


def _watched(ended: int, command: Sequence[str | Path]) -> int:
    groups = [made(hierarchy / f"{NAME}-{os.getpid()}") for hierarchy in _hierarchies()]
    libc = ctypes.CDLL(None)

    def enter() -> None:
        libc.prctl(1, int(signal.SIGKILL))  # PR_SET_PDEATHSIG
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        for group in groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    environment = {**os.environ, INSIDE_VARIABLE: "1"}
    with subprocess.Popen([*UNSHARE, INSIDE, *command], preexec_fn=enter, env=environment) as process:
        done = os.pidfd_open(process.pid)
        readable, _, _ = select.select([ended, done], [], [])
        if done not in readable:
            process.kill()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _hierarchies() -> list[Path]:
    return [
        each for each in sorted(HIERARCHIES.glob("*")) if (each / "cgroup.procs").exists() and not each.is_symlink()
    ]


def made(group: Path) -> Path:
    """Make a control group of version 1 that takes processes."""
    group.mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one, which then takes none
        if (own := group / file).exists() and not own.read_text().strip():
            own.write_text((group.parent / file).read_text())
    return group


def _remove(groups: Sequence[Path]) -> None:
    patience = time.monotonic() + 10
    for group in groups:
        while group.exists():
            for path, _, _ in os.walk(group, topdown=False):
                with suppress(OSError):  # a process that was killed is gone only a moment later
                    Path(path).rmdir()
            if time.monotonic() > patience:
                break
            time.sleep(0.05)


def _sweep() -> None:
    """Remove what a keeper left that was killed."""
    keepers = {match[1] for group in groups_of() if (match := re.fullmatch(rf"{NAME}-(\d+)", group.name))}
    for keeper in keepers:
        if not Path("/proc", keeper).exists():
            _remove(list(groups_of(keeper)))


if __name__ == "__main__":
    if lack := lacking():
        sys.exit(lack)
    sys.exit(run(sys.argv[1:]))
