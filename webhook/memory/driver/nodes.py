"""Decides which nodes can set a limit by variables, so that a container with these variables starts there.

NVIDIA's hook reads the variables. On a driver without its call, and on cgroup v1, the hook fails, and the container
does not start. No label of NVIDIA's gives the version of cgroup or of the toolkit. So an administrator vouches for a
node with a label, and the pool must select its nodes by that label: steering then keeps the pod off every node that
does not have it yet. A pod that is not steered gets no variables.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from webhook.api.selectors import Requirement, integer
from webhook.deviceplugin.cards import divided
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.gpu.selection import known_nodes, restricted
from webhook.model import Action
from webhook.policy.model import Pool
from webhook.text.words import shown

LABEL, READY = "slicewarden.dev/memory-limits", "true"
"""The label of a node that bears the variables: driver R615 or newer, cgroup v2, and GPUs that are not divided."""

SELECTED = Requirement(LABEL, "In", frozenset({READY}))

STEERING = "unsteered-pod"
"""The rule that keeps pods on the nodes of their pool."""

DRIVERS = ("nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major")
"""The labels with the driver's branch, the present one first (k8s-device-plugin internal/lm/nvml.go)."""

BRANCH = 615
"""The first branch of the driver with nvmlDeviceSetMemoryLimits_v1 (nvml.h 13.5)."""


class Hindrance(NamedTuple):
    """A node of a pool on which a container with the variables would not start, or would not be limited, and why."""

    node: Node
    why: str


def in_the_way(review: PodReview, pool: Pool) -> str:
    """Return why no variables may set the driver's limits of a pod in a pool, naming one node; empty if they may."""
    if not selected(pool):
        return f"pool {pool.name} does not select its nodes by {SELECTED}"
    if review.action(STEERING)[0] is not Action.DENY and not restricted(review.subject, pool):
        return f"the policy lets the pod run outside pool {pool.name} ({STEERING})"
    hindering = hindrances(pool, review.facts)
    return next((f"node {shown(each.node.name, quotes=False)} {each.why}" for each in hindering), "")


def selected(pool: Pool) -> bool:
    """Return whether a pool selects only nodes with the label, so that its pods cannot land on other nodes."""
    return SELECTED in pool.nodes.requirements


def hindrances(pool: Pool, facts: Facts) -> tuple[Hindrance, ...]:
    """Return everything that contradicts the label on the known nodes of a pool, in the order of the nodes."""
    return _judged(facts.of_nodes)(pool)


@lru_cache(maxsize=2)  # as for the budgets: a snapshot is dropped as a whole
def _judged(facts: Facts) -> Callable[[Pool], tuple[Hindrance, ...]]:
    return lru_cache(maxsize=16)(partial(_hindrances, facts))


def _hindrances(facts: Facts, pool: Pool) -> tuple[Hindrance, ...]:
    return tuple(Hindrance(node, why) for node in known_nodes(pool, facts) for why in _reasons(node))


def _reasons(node: Node) -> Iterator[str]:
    said = next((node.labels[key] for key in DRIVERS if key in node.labels), None)
    branch = None if said is None else integer(said)
    if said is not None and (branch is None or branch < BRANCH):
        yield f"has driver {shown(said, quotes=False)}, not {BRANCH} or newer"
    elif divided(node):
        yield "has MIG devices, which the driver does not limit"
