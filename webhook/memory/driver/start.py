"""Judges, on a node itself, whether containers with NVIDIA's variables can start there.

The hook fails, and its container with it, on a driver without limits, and if its file system for cgroups is not cgroup
v2; it leaves MIG devices out (nvidia-container-toolkit v1.20.1, cmd/nvidia-cdi-hook, apply-cuda-memory-limits). Whether
NVIDIA's runtime calls the hook depends on its release, its mode and the CDI files. No file shows all three: only the
limit of a container shows that the hook was called.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
"""Where the hook looks for cgroup v2. A container runtime mounts the node's version there."""

NO_HOOK = "no hook"
"""The agent's word for a container that had no limit when it was first seen, although its variables state one."""


class StartNeed(StrEnum):
    """A property of a node without which containers with NVIDIA's variables do not start there."""

    DRIVER = "driver"
    CGROUP = "cgroup v2"
    WHOLE = "whole GPUs"


UNMET: Mapping[StartNeed, str] = {
    StartNeed.DRIVER: "the driver has no memory limits, so containers with NVIDIA's variables do not start",
    StartNeed.CGROUP: "there is no cgroup v2, so containers with NVIDIA's variables do not start",
    StartNeed.WHOLE: "there are MIG devices, which the driver does not limit",
}
"""The words for each need that a node does not meet."""


def needs(limits: bool | None, *, mig: bool) -> Mapping[StartNeed, bool]:
    """Return whether the node meets each need. Needs of which this is unknown are left out.

    `limits` is whether the driver has memory limits, None if unknown, and `mig` whether a GPU has MIG devices.
    """
    known = {} if limits is None else {StartNeed.DRIVER: limits}
    return {**known, StartNeed.CGROUP: (CGROUPS / "cgroup.controllers").exists(), StartNeed.WHOLE: not mig}


def lines(known: Mapping[StartNeed, bool]) -> list[str]:
    """Return what an administrator should know before labelling this node, one line for each need that is not met."""
    unmet = [f"no limit before the start: {UNMET[need]}" for need, met in known.items() if not met]
    unknown = [f"limit before the start: {need} is not known" for need in StartNeed if need not in known]
    return unmet + unknown or [FIT]


FIT = (
    "note: limit before the start: driver, cgroup v2 and GPUs are fit for it; NVIDIA's toolkit cannot be seen until a "
    "container has started"
)
