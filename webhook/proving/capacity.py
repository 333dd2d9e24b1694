"""Computes how much memory `slicewarden prove --run --memory` requests, and what the result shows about a cap.

A container requests a little more than its slice of a card. If it gets more than its slice, the cap is not enforced. A
refusal alone does not show a limit: the neighbours may have taken the memory. So it counts only if the card had more
free memory at that moment.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.memory.budget import PRODUCT, budget, card_of
from webhook.model import Object
from webhook.policy.model import Policy, Pool
from webhook.proving.probes import ProbeTarget
from webhook.proving.sighting import Sighting, TakenMemory

STEP = 256
"""MiB that are asked for beyond a cap, and that have to be free on the card for a refusal to show a limit."""

LIMITS: Object = {"cpu": "1", "memory": "4Gi"}
"""Those of the container: frameworks are imported."""


class MemoryCap(NamedTuple):
    """The MiB of a card that all processes of a container with one slice may use, and what limits them.

    The contexts of the processes are included.
    """

    mib: int
    by: str

    @property
    def asked(self) -> int:
        """The MiB that a probe requests."""
        return self.mib + STEP


def cap(policy: Policy, pool: Pool, node: Node) -> MemoryCap | None:
    """Return the cap of a container with one slice on a node; None if the card is not known, or has no cap."""
    card = card_of(node)
    if card is None or "-MIG-" in node.labels.get(PRODUCT, ""):  # a part of a card that is shared once more
        return None
    if pool.sharing == "mps":  # as the device plugin sets it (k8s-device-plugin cmd/mps-control-daemon/mps/daemon.go)
        part = card.memory // card.replicas
        return MemoryCap(part, "MPS") if part > 0 else None
    if pool.sharing not in policy.capped_sharing:
        return None
    found = budget(card, policy, driver=pool.driver_limits)
    if found.unified or found.slice <= 0:
        return None
    return MemoryCap(found.slice, "the driver" if pool.driver_limits else "variables of frameworks")


def most(policy: Policy, target: ProbeTarget, facts: Facts) -> int:
    """Return the largest number of MiB that a probe of a target requests; 0 if no node has a cap."""
    nodes = (node for node in facts.nodes if target.pool.has_nodes and target.pool.nodes.matches(node.labels))
    return max((found.asked for node in nodes if (found := cap(policy, target.pool, node))), default=0)


def options(cap: MemoryCap, seconds: int) -> tuple[str, ...]:
    """Return the options of the probe that measures a cap, in a pod that may run for this number of seconds.

    Half of the seconds are left for pulling the image and starting the container.
    """
    return ("--memory", str(cap.asked), "--framework", "all", "--seconds", str(seconds // 2))


def measured(cap: MemoryCap, seen: Sighting | str) -> str:
    """Return a sentence on how much memory a pod got, or on why this was not measured.

    If `seen` is a text, it is the reason.
    """
    if isinstance(seen, str):
        return f"cap of {cap.mib} MiB: not measured: {seen}"
    if seen.memory is None or seen.memory.asked != cap.asked:
        return f"cap of {cap.mib} MiB: not measured: its report is not of the {cap.asked} MiB that it had to ask for"
    if smallest(seen) < cap.asked:
        return f"cap of {cap.mib} MiB: not measured: no card that it saw has so much"
    return f"cap of {cap.mib} MiB by {cap.by}: {', '.join(_parts(cap, seen.memory, seen.frameworks))}"


def smallest(seen: Sighting) -> int:
    """Return the MiB of the smallest card that NVML names; 0 if it names none. Labels of nodes may say more."""
    return 0 if isinstance(seen.nvml, str) else min((each.mib for each in seen.nvml.devices), default=0)


def _parts(cap: MemoryCap, memory: TakenMemory, frameworks: Mapping[str, TakenMemory]) -> Iterator[str]:
    yield f"cuMemAlloc got {_got(cap, memory)}"
    for name, taken in frameworks.items():
        yield f"{name} {taken.version} got {_got(cap, taken)}"


def _got(cap: MemoryCap, taken: TakenMemory) -> str:
    if taken.got > cap.mib:
        return f"{taken.got} MiB, more than the cap"
    if taken.got and taken.free is not None and taken.free >= STEP:
        return f"{taken.got} MiB and no more, with {taken.free} MiB free on the card"
    return f"{taken.got} MiB, then: {taken.stopped or 'it ended'}"
