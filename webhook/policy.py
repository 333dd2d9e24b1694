"""The policy: what an organisation allows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from webhook.model import Action, Object
from webhook.selectors import Selector

API_VERSION = "slicewarden.dev/v1alpha1"

TRUSTED = "trusted"
UNTRUSTED = "untrusted"

FRAMEWORKS = ("pytorch", "tensorflow", "jax", "cupy", "paddlepaddle", "tgi", "cuda")

CONTEXT_MIB = {
    "Tesla-T4": 512,
    "NVIDIA-A10": 640,
    "NVIDIA-GeForce-RTX-4090": 640,
    "NVIDIA-A100": 768,
    "NVIDIA-H100": 896,
    "NVIDIA-H200": 896,
    "default": 768,
}
"""MiB one process takes beside its allocator, by the start of the product: generous, for want of a primary source."""

UNIFIED = ("NVIDIA-GB10", "NVIDIA-Thor", "NVIDIA-Jetson", "Orin", "Xavier", "Thor")
"""Starts of the products whose GPU has no memory of its own and names the host's as its own."""

SHARED = ("time-slicing", "mps")
"""The kinds of sharing that put no wall between the pods on a card."""


@dataclass(frozen=True, eq=False)
class Grant:
    """Which pods may be trusted: those of the named or selected namespaces, of these accounts if any are named."""

    namespaces: frozenset[str]
    selector: Selector | None
    service_accounts: frozenset[str]

    def covers(self, namespace: str, labels: Mapping[str, str] | None, service_account: str) -> bool:
        """Tell whether the grant covers an account of a namespace; `labels` is None when nothing is known."""
        if self.service_accounts and service_account not in self.service_accounts:
            return False
        if namespace in self.namespaces:
            return True
        return self.selector is not None and labels is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class TorchVersion:
    """Which PyTorch the pods of some namespaces and pools run; without names, those of all."""

    version: tuple[int, int]
    namespaces: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()

    def holds(self, namespace: str, pool: str) -> bool:
        """Tell whether it speaks of the pods of a namespace in a pool."""
        return (not self.namespaces or namespace in self.namespaces) and (not self.pools or pool in self.pools)


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as a pool hands it out: whole memory in MiB, and into how many slices it is shared."""

    product: str
    memory: int
    replicas: int


class ResourceNames:
    """Names of extended resources; one that ends in `*` stands for all that begin so.

    Only with `shares` does it stand for renamed shares too: `nvidia.com/mig-1g.10gb.shared` is a slice of a MIG
    device, which a pool of whole ones does not offer.
    """

    def __init__(self, patterns: Iterable[str], *, shares: bool) -> None:
        self.patterns = tuple(patterns)
        self._names = frozenset(p for p in self.patterns if not p.endswith("*"))
        self._prefixes = tuple(p[:-1] for p in self.patterns if p.endswith("*"))
        self._shares = shares

    def __contains__(self, resource: str) -> bool:
        if resource in self._names:
            return True
        return resource.startswith(self._prefixes) and (self._shares or not resource.endswith(".shared"))


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes whose GPUs are handed out one way."""

    name: str
    sharing: str
    trust: frozenset[str]
    nodes: Selector
    resources: ResourceNames
    tolerations: tuple[Object, ...] = ()
    max_request: int | None = None
    assume: Card | None = None

    @property
    def shared(self) -> bool:
        """True where several pods share one card without a wall between them."""
        return self.sharing in SHARED


@dataclass(frozen=True, eq=False)
class Policy:
    """A GPUSharingPolicy that has been checked."""

    name: str
    pools: tuple[Pool, ...]
    annotation: str = "slicewarden.dev/trust"
    default_trust: str = UNTRUSTED
    grants: tuple[Grant, ...] = ()
    frameworks: tuple[str, ...] = FRAMEWORKS
    context_mib: Mapping[str, int] = field(default_factory=lambda: CONTEXT_MIB)
    reserve_mib: Mapping[str, int] = field(default_factory=dict)
    unified: tuple[str, ...] = UNIFIED
    capped_sharing: frozenset[str] = frozenset({"time-slicing"})
    torch_versions: tuple[TorchVersion, ...] = ()
    older_settings: Mapping[str, str] = field(default_factory=dict)
    defeats: Action = Action.WARN
    append_arguments: bool = False
    config_maps: frozenset[tuple[str, str]] = frozenset()
    max_replicas: int = 8
    actions: Mapping[str, Action] = field(default_factory=dict)

    def action(self, rule: str) -> Action:
        """What is done about the findings of a rule."""
        return self.actions.get(rule, Action.DENY)

    def torch(self, namespace: str, pool: str) -> tuple[int, int] | None:
        """The PyTorch that the pods of a namespace run in a pool, by the first word on it; None when there is none."""
        return next((each.version for each in self.torch_versions if each.holds(namespace, pool)), None)

    @cached_property
    def gpu_resources(self) -> ResourceNames:
        """The extended resources that are GPUs or parts of them: NVIDIA's own, and what the pools offer."""
        offered = (name for pool in self.pools for name in pool.resources.patterns)
        return ResourceNames((*NVIDIA_RESOURCES, *offered), shares=True)


NVIDIA_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*")
"""What NVIDIA's device plugin advertises by default, renamed, and per MIG profile (its internal/rm/rm.go)."""
