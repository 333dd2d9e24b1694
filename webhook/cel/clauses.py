"""Defines clauses: CEL expressions for the requests that a rule allows, which the API server itself evaluates."""

from enum import StrEnum
from typing import NamedTuple


class RequestKind(StrEnum):
    """The kind of requests to which a clause applies.

    Each kind has its own variables (webhook/fallback/variables.py).
    """

    PODS = "pods"
    """Pods that are created."""
    UPDATES = "pod-updates"
    """Updates of pods, with their debug containers."""
    STATUSES = "pod-statuses"
    """Updates of a pod's status, which may write annotations and labels too."""
    BINDINGS = "bindings"
    NAMESPACES = "namespaces"
    NODES = "nodes"
    NODE_FEATURES = "node-features"
    DEVICES = "devices"
    """ResourceClaims, their templates, and DeviceClasses."""


class Clause(NamedTuple):
    """An expression that is true for every request that a rule allows. It may be true for more, but never for fewer.

    `message` is one line for the user: the fault, and the way out. `places` is an expression for a text that names the
    faulty places and is put before the message; it may be empty. The API server evaluates it for each request, even
    when the clause is true, and computes the variables that it reads again (apiserver
    pkg/admission/plugin/policy/validating/validator.go, Validate). So it reads only variables that cost little.
    `variables` are used only by this clause: by name, in an order in which each reads only earlier ones. `only` is an
    expression without variables that is true for every request that the clause denies, or empty. It costs little. If
    all clauses of a policy have the same `only`, the API server uses it as the policy's condition.
    """

    expression: str
    message: str
    places: str = ""
    asked: tuple[RequestKind, ...] = (RequestKind.PODS,)
    variables: tuple[tuple[str, str], ...] = ()
    only: str = ""


ASKING = (
    "(object.spec.?initContainers.orValue([]) + object.spec.?containers.orValue([])"
    " + object.spec.?ephemeralContainers.orValue([]))"
    ".exists(c, c.?resources.?limits.orValue({}).exists(n, n.contains('/')))"
)
"""Whether a new pod requests an extended resource. Every pod that requests a GPU as a resource does."""


CHANGES = (RequestKind.UPDATES, RequestKind.STATUSES)
"""Updates of pods."""

ANY_POD = (RequestKind.PODS, *CHANGES)
"""For clauses that read only the parts that count as new. For a new pod, that is the whole pod.

For an update, `variables.annotations`, `podlabels` and `tolerations` have the changes, and `added` has the debug
containers that it adds. So an old fault is tolerated, as in the engine (webhook/engine/ratcheting.py). Some faults
matter only in a pod that may see a GPU (`exposed`). So `whole` is true if the update makes the pod exposed: then the
whole pod counts as new, and `containers` are all containers. Otherwise they are those of `added`. `kept` are the
others.
"""
