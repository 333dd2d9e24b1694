"""A pod mounts a place of its node that leads to GPUs.

Device files and what the kernel tells of them (/dev, /proc, /sys), the device plugin's and MPS's sockets, CDI's
descriptions of devices, and the files of the kubelet and of the container runtime: whoever has one of these takes
a GPU, or has one given. A folder above such a place is the place. Judged are pods that ask for a GPU, and those that
nothing keeps off the nodes with GPUs (the policy's guard).

Way out: mount something else, or leave out the toleration that lets the pod onto nodes with GPUs. A part of the system
is exempted in the policy, by namespace and service account.
"""

from collections.abc import Iterator

from webhook.facts import Facts
from webhook.guard import exposed
from webhook.model import Finding, shown
from webhook.openings import openings
from webhook.pods import Pod
from webhook.policy import Policy


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag hostPath volumes that lead to GPUs."""
    found = openings(pod).host_paths
    if not found or not exposed(pod, policy, facts):
        return
    for path, _, value, _ in found:
        yield Finding(path, f"{shown(value)} of a node leads to its GPUs; remove the volume")
