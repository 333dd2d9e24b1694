"""The policy: what an organisation allows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from webhook import doors
from webhook.doors import Names
from webhook.model import Action, Object, Requester
from webhook.selectors import Selector
from webhook.workloads import WORKLOADS, Workloads

API_VERSION = "slicewarden.dev/v1alpha1"

TRUSTED = "trusted"
UNTRUSTED = "untrusted"

FRAMEWORKS = ("pytorch", "tensorflow", "jax")

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


SHARED = ("time-slicing", "mps")
"""The kinds of sharing that put no wall between the pods on a card."""


@dataclass(frozen=True, eq=False)
class Scope:
    """Some of a cluster's pods: those of the named or selected namespaces, of these accounts if any are named."""

    namespaces: frozenset[str]
    selector: Selector | None
    service_accounts: frozenset[str]

    def covers(self, namespace: str, labels: Mapping[str, str] | None, service_account: str) -> bool:
        """Tell whether it covers an account of a namespace; `labels` is None when nothing is known."""
        if self.service_accounts and service_account not in self.service_accounts:
            return False
        if namespace in self.namespaces:
            return True
        return self.selector is not None and labels is not None and self.selector.matches(labels)


@dataclass(frozen=True, eq=False)
class Override:
    """Other actions for what is in a scope (None: everywhere), in these pools if any are named."""

    scope: Scope | None
    pools: frozenset[str]
    actions: Mapping[str, Action]


@dataclass(frozen=True, eq=False)
class Exemption:
    """Whose findings are only recorded, by these rules or by all if none are named.

    `until` is its last day, None for a component of the system, which has no end.
    """

    name: str
    scope: Scope
    rules: frozenset[str]
    until: date | None

    def holds(self, rule: str, today: date | None) -> bool:
        """Tell whether it is in force for a rule; one with an end is not where the day is not known."""
        if self.rules and rule not in self.rules:
            return False
        return self.until is None or (today is not None and today <= self.until)


@dataclass(frozen=True, slots=True)
class Administrators:
    """Who may change what tenants must not: by user name or group."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset(("system:masters",))

    def include(self, requester: Requester) -> bool:
        """Tell whether a requester is one of them."""
        return requester.username in self.users or not self.groups.isdisjoint(requester.groups)


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
class Forms:
    """By which names GPUs are asked for, besides NVIDIA's own and those that the pools offer.

    `claims` are the pods that may claim devices by name: what a claim holds is not seen from the pod.
    """

    resources: tuple[str, ...] = doors.RESOURCES
    annotations: Names = doors.ANNOTATIONS
    runtime_classes: Names = doors.RUNTIME_CLASSES
    device_classes: Names = doors.DEVICE_CLASSES
    claims: tuple[Scope, ...] = ()


@dataclass(frozen=True, slots=True)
class Guard:
    """What keeps pods that ask for no GPU from seeing one: a taint of the GPUs' nodes, by its key.

    Without a key every pod is mutated.
    """

    taint: str | None = None


@dataclass(frozen=True, eq=False)
class Policy:
    """A GPUSharingPolicy that has been checked."""

    name: str
    pools: tuple[Pool, ...]
    annotation: str = "slicewarden.dev/trust"
    default_trust: str = UNTRUSTED
    grants: tuple[Scope, ...] = ()
    administrators: Administrators = Administrators()
    frameworks: tuple[str, ...] = FRAMEWORKS
    context_mib: Mapping[str, int] = field(default_factory=lambda: CONTEXT_MIB)
    config_maps: frozenset[tuple[str, str]] = frozenset()
    max_replicas: int = 8
    actions: Mapping[str, Action] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    workloads: Workloads = field(default_factory=lambda: WORKLOADS)
    exemptions: tuple[Exemption, ...] = ()
    forms: Forms = Forms()
    guard: Guard | None = None

    def action(self, rule: str) -> Action:
        """What is done about the findings of a rule where no override says otherwise."""
        return self.actions.get(rule, Action.DENY)

    @cached_property
    def gpu_resources(self) -> ResourceNames:
        """The extended resources that are GPUs or parts of them: NVIDIA's own, what the pools offer, and the rest."""
        offered = (name for pool in self.pools for name in pool.resources.patterns)
        implicit = (f"{doors.IMPLICIT}{name}" for name in self.forms.device_classes)
        return ResourceNames((*NVIDIA_RESOURCES, *offered, *self.forms.resources, *implicit), shares=True)


NVIDIA_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*")
"""What NVIDIA's device plugin advertises by default, renamed, and per MIG profile (its internal/rm/rm.go)."""
