"""A clause: what a rule lets pass, as an expression that the API server evaluates by itself."""

from enum import StrEnum
from typing import NamedTuple


class RequestKind(StrEnum):
    """The requests that a clause is about. Each has variables of its own (webhook/fallback/variables.py)."""

    PODS = "pods"
    """Pods that are created."""
    UPDATES = "pod-updates"
    """Updates of pods, with their debug containers."""
    STATUSES = "pod-statuses"
    """Updates of a pod's status, which may write annotations and labels too."""
    BINDINGS = "bindings"
    NAMESPACES = "namespaces"
    NODES = "nodes"
    DEVICES = "devices"
    """ResourceClaims, their templates, and DeviceClasses."""


class Clause(NamedTuple):
    """An expression that is true for everything that a rule lets pass. It may be true for more, but never for less.

    `message` is one line for whoever is refused: what is wrong, and the way out. `places` is an expression for a text
    of the places that are wrong, which is said before the message; empty without one. The API server evaluates it for
    each request, also where the expression holds, and computes the variables that it reads once more (apiserver
    pkg/admission/plugin/policy/validating/validator.go, Validate). So it reads only variables that cost little.
    `variables` are those of this clause alone, by name, in the order in which they read each other. `only` is an
    expression without variables that is true of all that the clause denies; empty if the clause has none. It costs
    little, so a policy all of whose clauses have the same is asked about nothing else.
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
"""Whether a new pod requests an extended resource, as each pod does that requests a GPU by resources."""


CHANGES = (RequestKind.UPDATES, RequestKind.STATUSES)
"""Updates of pods."""

ANY_POD = (RequestKind.PODS, *CHANGES)
"""For clauses that read only what counts as new: of a new pod it is all.

For an update, `variables.annotations`, `podlabels` and `tolerations` are what it changes, and `added` the debug
containers that it adds. So an old fault stays, as the engine has it (webhook/engine/ratcheting.py). A fault of pods
that may see a GPU (`exposed`) is none before a pod may. So `whole` tells whether all of the pod counts as new because
it could see none before; then `containers` are all of them, and otherwise those of `added`. `kept` are the others.
"""
