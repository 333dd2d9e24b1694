"""The policy: what an organisation allows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import NamedTuple

from webhook.api.selectors import Selector
from webhook.catalog import doors
from webhook.catalog.doors import Names
from webhook.catalog.workloads import WORKLOADS, Workloads
from webhook.model import Action, Object, Requester

API_VERSION = "slicewarden.dev/v1alpha1"

NAME_LABEL = "kubernetes.io/metadata.name"
"""The label by which the API server tells a namespace's name, whatever anyone writes (KEP-2161)."""

TRUSTED = "trusted"
UNTRUSTED = "untrusted"

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

EVERY_RULE = "*"
"""Stands among a policy's rules for all that are not named beside it."""

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
        return self.reaches(namespace, labels)

    def reaches(self, namespace: str, labels: Mapping[str, str] | None) -> bool:
        """Tell whether it covers any account of a namespace, for what runs as none."""
        if namespace in self.namespaces:
            return True
        return self.selector is not None and labels is not None and self.selector.matches(labels)


@dataclass(frozen=True, eq=False)
class Override:
    """Other actions for what is in a scope (None: everywhere), in these pools if any are named."""

    scope: Scope | None
    pools: frozenset[str]
    actions: Mapping[str, Action]

    def action(self, rule: str) -> Action | None:
        """What it does about the findings of a rule; None for a rule that it leaves alone."""
        return self.actions.get(rule, self.actions.get(EVERY_RULE))


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
class Requesters:
    """Some of those who send requests: by user name or group."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def include(self, requester: Requester) -> bool:
        """Tell whether a requester is one of them."""
        return requester.username in self.users or not self.groups.isdisjoint(requester.groups)


SCHEDULER = "system:kube-scheduler"
"""Kubernetes' own scheduler (kubernetes staging/src/k8s.io/apiserver/pkg/authentication/user/user.go)."""

CONTROLLERS = frozenset(
    (
        "system:kube-controller-manager",
        *(
            f"system:serviceaccount:kube-system:{name}"
            for name in (
                "cronjob-controller",
                "daemon-set-controller",
                "deployment-controller",
                "job-controller",
                "replicaset-controller",
                "replication-controller",
                "statefulset-controller",
            )
        ),
    )
)
"""Who makes pods and workloads out of the templates of Kubernetes' own kinds (kubernetes
plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go)."""


@dataclass(frozen=True, eq=False)
class Grant:
    """Pods that may be trusted: those in a scope, in these pools if any are named.

    With `requesters` only what one of them asked for, or a controller made of what was judged.
    """

    scope: Scope
    pools: frozenset[str] = frozenset()
    requesters: Requesters | None = None


class TorchVersion(NamedTuple):
    """Which PyTorch the pods of some namespaces and pools run; without names, those of all."""

    version: tuple[int, int]
    namespaces: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()

    def holds(self, namespace: str, pool: str) -> bool:
        """Tell whether it speaks of the pods of a namespace in a pool."""
        return (not self.namespaces or namespace in self.namespaces) and (not self.pools or pool in self.pools)


class Card(NamedTuple):
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


class GPUResources:
    """Names of extended resources that are GPUs or parts of them.

    All of NVIDIA's domain are but the `others`, and these are where a pool offers them or the policy says so.
    """

    def __init__(self, named: Iterable[str], others: Names) -> None:
        self._named, self._others = ResourceNames(named, shares=True), others
        self.patterns = (doors.NVIDIA_RESOURCES, *self._named.patterns)

    def __contains__(self, resource: str) -> bool:
        if resource in self._named:
            return True
        return resource in _NVIDIAS and resource not in self._others


_NVIDIAS = Names((doors.NVIDIA_RESOURCES,))


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes whose GPUs are handed out one way; with a circle, to the pods of its namespaces alone."""

    name: str
    sharing: str
    trust: frozenset[str]
    nodes: Selector
    resources: ResourceNames
    tolerations: tuple[Object, ...] = ()
    max_request: int | None = None
    max_replicas: int | None = None
    assume: Card | None = None
    circle: Scope | None = None

    @property
    def shared(self) -> bool:
        """True where several pods share one card without a wall between them."""
        return self.sharing in SHARED


REQUIRED, FORBIDDEN, ALLOWED = "Required", "Forbidden", "Allowed"
"""What a policy may say of an option."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sharing configuration may say.

    `namespaces` are those where the device plugin runs. `max_replicas` is for cards and pools that have no limit of
    their own; `products` gives one by the start of the product's name. `min_slice` is in MiB, 0 for none.
    """

    namespaces: tuple[str, ...] = ("gpu-operator",)
    max_replicas: int = 8
    products: Mapping[str, int] = field(default_factory=dict)
    min_slice: int = 0
    rename_by_default: str = ALLOWED
    mps: str = ALLOWED

    def of_product(self, product: str) -> int | None:
        """Return the limit of a card's own, by the longest start of its name; None for no such limit."""
        return self.products.get(max(filter(product.startswith, self.products), key=len, default=""))


@dataclass(frozen=True, eq=False)
class Forms:
    """By which names GPUs are asked for, besides NVIDIA's own and those that the pools offer.

    `other_devices` are names of NVIDIA's that are no GPUs, besides those known here. `claims` are the pods that may
    claim devices by name, what a claim holds being not seen from the pod; claims for GPUs are written in their
    namespaces alone.
    """

    resources: tuple[str, ...] = doors.RESOURCES
    other_devices: tuple[str, ...] = ()
    annotations: Names = doors.ANNOTATIONS
    labels: Names = doors.LABELS
    runtime_classes: Names = doors.RUNTIME_CLASSES
    device_classes: Names = doors.DEVICE_CLASSES
    claims: tuple[Scope, ...] = ()
    imex_channels: bool = False
    """Whether the device plugin hands out IMEX channels, and says in a variable which."""


class Guard(NamedTuple):
    """What keeps pods that ask for no GPU from seeing one: a taint of the GPUs' nodes, by its key.

    Without a key every pod is mutated.
    """

    taint: str | None = None


@dataclass(frozen=True, eq=False)
class Policy:
    """A GPUSharingPolicy that has been checked.

    `digest` is the same for files that say the same, whatever their comments and order: 16 hexadecimal digits of
    SHA-256.
    """

    name: str
    pools: tuple[Pool, ...]
    digest: str = ""
    annotation: str = "slicewarden.dev/trust"
    default_trust: str = UNTRUSTED
    grants: tuple[Grant, ...] = ()
    administrators: Requesters = Requesters(groups=frozenset(("system:masters",)))
    schedulers: Requesters = Requesters(users=frozenset((SCHEDULER,)))
    controllers: Requesters = Requesters(users=CONTROLLERS)
    node_labellers: Requesters = Requesters()
    self_registration: bool = True
    """Whether a kubelet may register its node with the labels of a pool."""
    frameworks: tuple[str, ...] | None = None
    """The frameworks that are capped: all of them when it is None."""
    context_mib: Mapping[str, int] = field(default_factory=lambda: CONTEXT_MIB)
    reserve_mib: Mapping[str, int] = field(default_factory=dict)
    unified: tuple[str, ...] = UNIFIED
    capped_sharing: frozenset[str] = frozenset({"time-slicing"})
    torch_versions: tuple[TorchVersion, ...] = ()
    older_settings: Mapping[str, str] = field(default_factory=dict)
    defeats: Action = Action.WARN
    append_arguments: bool = False
    config_maps: frozenset[tuple[str, str]] = frozenset()
    limits: Limits = Limits()
    actions: Mapping[str, Action] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    workloads: Workloads = field(default_factory=lambda: WORKLOADS)
    exemptions: tuple[Exemption, ...] = ()
    forms: Forms = Forms()
    guard: Guard | None = None

    def action(self, rule: str) -> Action:
        """What is done about the findings of a rule where no override says otherwise."""
        return self.actions.get(rule, self.actions.get(EVERY_RULE, Action.DENY))

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """The pool that a node with these labels is in; no node fits two."""
        return next((pool for pool in self.pools if pool.nodes.matches(labels)), None)

    @cached_property
    def pool_names(self) -> frozenset[str]:
        """The names of all pools."""
        return frozenset(pool.name for pool in self.pools)

    @cached_property
    def sharing_namespaces(self) -> frozenset[str]:
        """The namespaces where sharing configurations are read."""
        return frozenset((*self.limits.namespaces, *(namespace for namespace, _ in self.config_maps)))

    @cached_property
    def namespace_keys(self) -> frozenset[str]:
        """The labels of namespaces that decide what a namespace may have, but for the API server's own.

        One does so by itself, whatever the policy selects by: that under which claims take what others hold.
        """
        scopes = (
            *(grant.scope for grant in self.grants),
            *(override.scope for override in self.overrides),
            *(exemption.scope for exemption in self.exemptions),
            *(pool.circle for pool in self.pools),
            *self.forms.claims,
        )
        selectors = (scope.selector for scope in scopes if scope and scope.selector)
        selected = {r.key for selector in selectors for r in selector.requirements}
        return frozenset({*selected, doors.ADMIN_ACCESS} - {NAME_LABEL})

    def caps(self, framework: str) -> bool:
        """Tell whether a framework is capped."""
        return self.frameworks is None or framework in self.frameworks

    @property
    def strict(self) -> bool:
        """Whether what takes a cap away is refused."""
        return self.defeats is Action.DENY

    def torch(self, namespace: str, pool: str) -> tuple[int, int] | None:
        """The PyTorch that the pods of a namespace run in a pool, by the first word on it; None when there is none."""
        return next((each.version for each in self.torch_versions if each.holds(namespace, pool)), None)

    @cached_property
    def gpu_resources(self) -> GPUResources:
        """The extended resources that are GPUs or parts of them: NVIDIA's own, what the pools offer, and the rest."""
        offered = (name for pool in self.pools for name in pool.resources.patterns)
        implicit = (f"{doors.IMPLICIT}{name}" for name in self.forms.device_classes)
        others = Names((*doors.OTHER_RESOURCES, *self.forms.other_devices))
        return GPUResources((*offered, *self.forms.resources, *implicit), others)
