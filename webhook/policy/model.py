"""The types of a policy: what an organisation allows on its GPUs."""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from webhook.api.selectors import Selector
from webhook.catalog import gpu_requests
from webhook.catalog.host_paths import Access, normal, of_windows, within
from webhook.catalog.names import Names
from webhook.catalog.places import Workloads
from webhook.catalog.workloads import WORKLOADS
from webhook.model import Action, Object, immutable
from webhook.policy.actions import EVERY_RULE, Exemption, Override, Release
from webhook.policy.resources import GPUResources, ResourceNames, ResourcePrefixes
from webhook.policy.scopes import CONTROLLERS, NAME_LABEL, SCHEDULER, ByNamespace, Grant, Requesters, Scope
from webhook.text.words import sha256

API_VERSION = "slicewarden.dev/v1alpha1"

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
"""MiB that one process takes outside its allocator, by product prefix: generous, since no primary source states them.
"""

UNIFIED = ("NVIDIA-GB10", "NVIDIA-Thor", "NVIDIA-Jetson", "Orin", "Xavier", "Thor")
"""Prefixes of the products whose GPU has no memory of its own, and reports the host's memory instead."""


SHARED = ("time-slicing", "mps")
"""The kinds of sharing that do not isolate the pods on a card from each other."""


class TorchVersion(NamedTuple):
    """The release of PyTorch that pods run in certain namespaces and pools, or in all if none are named."""

    version: tuple[int, int]
    namespaces: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()

    def holds(self, namespace: str, pool: str) -> bool:
        """Return whether the entry applies to the pods of a namespace in a pool."""
        return (not self.namespaces or namespace in self.namespaces) and (not self.pools or pool in self.pools)


class PythonPath(NamedTuple):
    """The PYTHONPATH that certain images set. An entry without names applies to all namespaces, pools and images.

    `images` are the starts of image references.
    """

    path: str
    namespaces: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    images: tuple[str, ...] = ()

    def holds(self, namespace: str, pool: str, image: str) -> bool:
        """Return whether the entry applies to an image in the pods of a namespace in a pool."""
        return (
            (not self.namespaces or namespace in self.namespaces)
            and (not self.pools or pool in self.pools)
            and (not self.images or image.startswith(self.images))
        )


class Card(NamedTuple):
    """A card as a pool offers it: its whole memory in MiB, and the number of slices."""

    product: str
    memory: int
    replicas: int


NO_NAMES = Names(())

TAINT = "Taint"
"""The agent's action on a dead card, in addition to a report."""

REPORT, EVICT, KILL = "Report", "Evict", "Kill"
"""The agent's action on a container above its allowance."""


class Over(NamedTuple):
    """When and how a node's agent acts on a container that uses more of a card than its allowance.

    The agent acts after `grace` seconds in which the use exceeds the allowance by more than `slack` MiB. EVICT and KILL
    also require that `pressure` percent of the card's memory is in use.
    """

    action: str = REPORT
    grace: int = 30
    slack: int = 64
    pressure: int = 90


ONLY_REPORTED = Over()
"""The default of a policy."""


class Idle(NamedTuple):
    """When and how a node's agent acts on a container that has a slice of a shared card and does no work.

    The agent reports the container after `after` seconds without work. EVICT also evicts its pod, if it does not work
    for `notice` more seconds.
    """

    after: int
    action: str = REPORT
    notice: int = 3600


NAMESPACE = "slicewarden-system"
"""The namespace of the webhook and its controller."""

ALONE = ("kube-system", NAMESPACE)
"""Namespaces that must be able to start without the webhook."""

OFF, FIRST_COME, TURNS = "Off", "FirstCome", "Turns"
"""How containers take turns on a contended card: not at all, each until it ends, or each for a while."""

OPT_IN, ALL = "OptIn", "All"
"""Which pods may be paused: those that opt in, or all that tolerate it."""

PAUSABLE = "slicewarden.dev/pausable"
"""The annotation with which a pod says whether it may be paused: `true` or `false`."""

ARRIVAL, PRIORITY_CLASS = "Arrival", "PriorityClass"
"""The order of a card's queue: by arrival, or by priority and then by arrival."""


class Contention(NamedTuple):
    """How a node's agent makes containers take turns on a contended card. Times are in seconds.

    With TURNS, a running container keeps the card for `turn`. One that has been paused for `longest` runs for at least
    `rest`. Another container is started when the card has been idle for `settle`, and each running one has used the
    card or has been given `patience` to do so. A card is idle below `busy` percent of use: NVML reports 97 to 99 for a
    program that waits for each step (docs/evidence/gpu.md). Above `full` percent of the card's memory, the last started
    one is paused.
    """

    mode: str = OFF
    who: str = OPT_IN
    order: str = ARRIVAL
    turn: int = 10
    longest: int = 20
    rest: int = 15
    settle: float = 2.5
    patience: int = 5
    full: int = 95
    busy: int = 95


NO_TURNS = Contention()
"""The default: all containers run."""

DEFAULT_SCHEDULER = "default-scheduler"
"""The name of Kubernetes' own scheduler, for pods that name none (k8s.io/api core/v1 types.go)."""

DEFAULT_GRACE = 30
"""Seconds that a pod gets to end if it does not say (k8s.io/api core/v1 types.go)."""

KUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""The label by which an object names its queue (kubernetes-sigs/kueue pkg/controller/constants)."""


class Queue(NamedTuple):
    """How pods and workloads that request a pool's GPUs name their queue: in a `label` or annotation with this `key`.

    `kueue` is whether it is Kueue's label, which Kueue reads on the workload and not on its pods. `names` are the
    queues that may be named; None for any.
    """

    key: str
    label: bool = True
    kueue: bool = False
    names: Names | None = None


@immutable
class PriorityScope:
    """Lets certain pods with GPUs name some priority classes.

    Trust, scope and pools limit it to some pods, if given.
    """

    classes: Names
    trust: frozenset[str] = frozenset()
    scope: Scope | None = None
    pools: frozenset[str] = frozenset()


@immutable
class Pool:
    """A pool: GPUs that are offered in the same way. With `tenants`, only pods of its namespaces may use them.

    Pods ask for its GPUs by `resources`, and by claims for `device_classes`, whose implicit names are resources too. A
    pool with only device classes may have no `nodes`, because the claim decides where a pod runs. `max_memory` is how
    many MiB one claim may take of a shared device.
    """

    name: str
    sharing: str
    trust: frozenset[str]
    nodes: Selector
    resources: ResourceNames
    tolerations: tuple[Object, ...] = ()
    max_request: int | None = None
    max_replicas: int | None = None
    assume: Card | None = None
    tenants: Scope | None = None
    driver_limits: bool = False
    """Whether the driver limits each pod to its slice (nvmlDeviceSetMemoryLimits_v1, from R615 on)."""
    image_limits: Action | None = None
    """The action on a container whose image may set a wider limit of the driver; None: the agent only corrects it."""
    device_classes: Names = NO_NAMES
    max_memory: int | None = None
    over: Over = ONLY_REPORTED
    idle: Idle | None = None
    """What the agent does about containers that do not work; None: nothing."""
    taint_dead: bool = False
    """Whether the agent taints a node of the pool while a card of it is dead."""
    contention: Contention = NO_TURNS
    queue: Queue | None = None
    scheduler: str | None = None
    """The name of the one scheduler that counts the pool's GPUs; None for any."""
    host_ipc: bool = False
    """Whether pods of the pool may share the IPC namespace of their node."""
    max_active_deadline: int | None = None
    """Maximum of `activeDeadlineSeconds` of the pool's pods; None: they may stay for ever."""

    @property
    def has_nodes(self) -> bool:
        """Whether the pool selects its nodes by labels."""
        return bool(self.nodes.requirements)

    @property
    def offers_classes(self) -> bool:
        """Whether the pool offers the implicit name of some device class, so that a claim may bring a pod into it."""
        return any(each.startswith(gpu_requests.IMPLICIT) for each in self.resources.patterns)

    @property
    def shared(self) -> bool:
        """Whether several pods share one card without isolation from each other."""
        return self.sharing in SHARED


REQUIRED, FORBIDDEN, ALLOWED = "Required", "Forbidden", "Allowed"
"""The values that a policy may require of an option."""


NO_LIMITS: Mapping[str, int] = MappingProxyType({})


class SharingLimits(NamedTuple):
    """The limits for sharing configurations.

    `namespaces` are those where sharing configurations are read. `max_replicas` is for cards and pools without a limit
    of their own; `products` are limits by product prefix. `min_slice` is in MiB; 0 means none.
    """

    namespaces: tuple[str, ...] = ("gpu-operator",)
    max_replicas: int = 8
    products: Mapping[str, int] = NO_LIMITS
    min_slice: int = 0
    rename_by_default: str = ALLOWED
    mps: str = ALLOWED

    def of_product(self, product: str) -> int | None:
        """Return the limit for a product, by the longest matching prefix; None if no prefix matches."""
        return self.products.get(max(filter(product.startswith, self.products), key=len, default=""))


class AllowedPath(NamedTuple):
    """A path on nodes that pods with GPUs may mount: read-only, or for writing too if it is `writable`."""

    path: str
    writable: bool = False


@immutable
class Forms:
    """The names by which pods request GPUs, in addition to NVIDIA's own and those that pools offer.

    `other_devices` are names in NVIDIA's domain that are no GPUs, in addition to those known here. `claims` are the
    pods that may use a claim for any device, because a pod does not show which devices its claim has. Claims for GPUs
    may only be written in the namespaces of `claims`.
    """

    resources: tuple[str, ...] = gpu_requests.RESOURCES
    other_devices: tuple[str, ...] = ()
    annotations: Names = gpu_requests.ANNOTATIONS
    labels: Names = gpu_requests.LABELS
    runtime_classes: Names = gpu_requests.RUNTIME_CLASSES
    sandboxes: Names = gpu_requests.SANDBOXES
    device_classes: Names = gpu_requests.DEVICE_CLASSES
    classes_named: bool = False
    """Whether the policy itself names the classes of GPUs, so that none is unknown."""
    claims: tuple[Scope, ...] = ()
    host_paths: tuple[AllowedPath, ...] = ()
    volume_drivers: tuple[str, ...] = ()
    imex_channels: bool = False
    """Whether the device plugin hands out IMEX channels and names them in a variable."""

    @cached_property
    def daemon_classes(self) -> Names:
        """The device classes for the daemons of drivers, without those listed under `otherDeviceClasses`."""
        others = self.device_classes.other_than or ()
        return Names(name for name in gpu_requests.DAEMON_CLASSES if name not in others)

    def let_mount(self, path: str, access: Access) -> bool:
        """Return whether pods with GPUs may mount a path of a node, because the policy lists it under `hostPaths`."""
        if of_windows(path):
            return False
        plain, writes = normal(path), access is Access.WRITE
        return any(within(plain, (each.path,)) and (each.writable or not writes) for each in self.host_paths)


class Guard(NamedTuple):
    """The protection of GPUs from pods that request none: the key of a taint on all nodes with GPUs.

    Without a key, every pod is patched instead, so that its containers see no GPU.
    """

    taint: str | None = None


class Switch(StrEnum):
    """How an installation applies a policy: record, enforce, or judge nothing. The names are those of `spec.mode`."""

    AUDIT = "Audit"
    ENFORCE = "Enforce"
    OFF = "Off"


@immutable
class Policy:
    """A GPUSharingPolicy that has been checked.

    `written` is its content as JSON with sorted keys, without labels and mode: the same for all files that differ only
    in these, in comments and in order.
    """

    name: str
    pools: tuple[Pool, ...]
    written: str = '{"spec": {}}'
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
    """The frameworks that are capped; None means all."""
    context_mib: Mapping[str, int] = field(default_factory=lambda: CONTEXT_MIB)
    reserve_mib: Mapping[str, int] = field(default_factory=dict)
    unified: tuple[str, ...] = UNIFIED
    capped_sharing: frozenset[str] = frozenset({"time-slicing"})
    torch_versions: tuple[TorchVersion, ...] = ()
    older_settings: Mapping[str, str] = field(default_factory=dict)
    shim: bool = False
    """Whether containers whose PYTHONPATH is known are given the shim."""
    python_paths: tuple[PythonPath, ...] = ()
    defeats: Action = Action.WARN
    append_arguments: bool = False
    config_maps: frozenset[tuple[str, str]] = frozenset()
    limits: SharingLimits = SharingLimits()
    actions: Mapping[str, Action] = field(default_factory=dict)
    newer: Mapping[str, Release] = field(default_factory=dict)
    """The rules that came after the release of `rulesAsOf`, with the release that brought each. They only record."""
    overrides: tuple[Override, ...] = ()
    workloads: Workloads = field(default_factory=lambda: WORKLOADS)
    exemptions: tuple[Exemption, ...] = ()
    leave_alone: tuple[str, ...] = ()
    """The namespaces whose pods are never judged, in addition to ALONE."""
    priorities: tuple[PriorityScope, ...] = ()
    untrusted_preempt: bool = True
    """Whether pods without trust may evict pods of a lower priority."""
    forms: Forms = Forms()
    guard: Guard | None = None
    mode: Switch | None = None
    """The mode that the policy states, if any: record, enforce, or judge nothing."""
    support: str = ""
    """Where a denied user can ask for help: one line at the end of every denial, or empty."""

    @cached_property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the policy's content."""
        return sha256(self.written)[:16]

    @cached_property
    def asks_rbac(self) -> bool:
        """Whether any grant of trust depends on a right in RBAC."""
        return any(grant.rbac for grant in self.grants)

    @cached_property
    def has_device_pools(self) -> bool:
        """Whether any pool has device classes."""
        return any(pool.device_classes.patterns for pool in self.pools)

    @property
    def only_records(self) -> bool:
        """Whether the policy's mode is Audit or Off, so that nothing is denied."""
        return self.mode in (Switch.AUDIT, Switch.OFF)

    def action(self, rule: str) -> Action:
        """Return the action on the findings of a rule if no override applies."""
        if rule in self.newer:
            return self.actions.get(rule, Action.AUDIT)
        return self.actions.get(rule, self.actions.get(EVERY_RULE, Action.DENY))

    def overriding(self, override: Override, rule: str) -> Action | None:
        """Return the action of an override on the findings of a rule.

        An entry `"*"` does not apply to a rule that is newer than the policy's `rulesAsOf`.
        """
        return override.actions.get(rule) if rule in self.newer else override.action(rule)

    def pool_of(self, labels: Mapping[str, str]) -> Pool | None:
        """Return the pool of a node with these labels. At most one pool fits a node."""
        return next((pool for pool in self.pools if pool.nodes.matches(labels)), None)

    def pools_of_class(self, name: str) -> tuple[Pool, ...]:
        """Return the pools to which claims for a device class belong.

        Stored claims of a tenant may name thousands of classes, and a policy has up to 250 pools.
        """
        names, starts, lengths = self._places_by_class
        found = {*names.get(name, ())}.union(*(starts.get(name[:length], ()) for length in lengths))
        return tuple(self.pools[place] for place in sorted(found))

    @cached_property
    def _places_by_class(self) -> tuple[Mapping[str, list[int]], Mapping[str, list[int]], frozenset[int]]:
        """The places of the pools by names and by prefixes of their device classes, and the lengths of the prefixes."""
        names: dict[str, list[int]] = {}
        starts: dict[str, list[int]] = {}
        for place, pool in enumerate(self.pools):
            for known, own in ((names, pool.device_classes.names), (starts, pool.device_classes.prefixes)):
                for each in own:
                    known.setdefault(each, []).append(place)
        return names, starts, frozenset(map(len, starts))

    @cached_property
    def grants_by_namespace(self) -> ByNamespace[Grant]:
        """An index of the grants by the namespaces that they name."""
        return ByNamespace(self.grants, lambda grant: grant.scope)

    def grants_reaching(self, namespace: str, labels: Mapping[str, str] | None) -> tuple[Grant, ...]:
        """Return the grants that cover some account of a namespace with these labels (None if unknown)."""
        return tuple([g for g in self.grants_by_namespace.near(namespace) if g.scope.reaches(namespace, labels)])

    @cached_property
    def exemptions_by_namespace(self) -> ByNamespace[Exemption]:
        """An index of the exemptions by the namespaces that they name."""
        return ByNamespace(self.exemptions, lambda exemption: exemption.scope)

    @cached_property
    def pools_by_namespace(self) -> ByNamespace[Pool]:
        """An index of the pools by the namespaces that their tenants name."""
        return ByNamespace(self.pools, lambda pool: pool.tenants)

    @cached_property
    def pool_names(self) -> frozenset[str]:
        """The names of all pools."""
        return frozenset(pool.name for pool in self.pools)

    @cached_property
    def pool_keys(self) -> frozenset[str]:
        """The keys of nodes' labels by which pools select their nodes."""
        return frozenset(each.key for pool in self.pools for each in pool.nodes.requirements)

    @cached_property
    def labelling_namespaces(self) -> frozenset[str]:
        """The namespaces where anyone may write NodeFeatures: those of node labellers, and of device plugins.

        Empty without a service account among the labellers: no NodeFeature is judged then.
        """
        own = self.node_labellers.namespaces
        return own.union(self.limits.namespaces) if own else own

    @cached_property
    def sharing_namespaces(self) -> frozenset[str]:
        """The namespaces where sharing configurations are read."""
        return frozenset((*self.limits.namespaces, *(namespace for namespace, _ in self.config_maps)))

    @cached_property
    def namespace_keys(self) -> frozenset[str]:
        """The keys of namespace labels by which the policy decides what a namespace may have.

        The label with the namespace's name, which the API server sets, is left out. The label that allows claims to
        take devices in use (`adminAccess`) is always included.
        """
        scopes = (
            *(grant.scope for grant in self.grants),
            *(override.scope for override in self.overrides),
            *(exemption.scope for exemption in self.exemptions),
            *(pool.tenants for pool in self.pools),
            *(each.scope for each in self.priorities),
            *self.forms.claims,
        )
        selectors = (scope.selector for scope in scopes if scope and scope.selector)
        selected = {r.key for selector in selectors for r in selector.requirements}
        return frozenset({*selected, gpu_requests.ADMIN_ACCESS} - {NAME_LABEL})

    def caps(self, framework: str) -> bool:
        """Return whether the policy caps a framework."""
        return self.frameworks is None or framework in self.frameworks

    @property
    def strict(self) -> bool:
        """Whether the policy refuses a setting that takes a cap away."""
        return self.defeats is Action.DENY

    def torch(self, namespace: str, pool: str) -> tuple[int, int] | None:
        """Return the release of PyTorch that pods of a namespace run in a pool; None if the policy does not say.

        The first entry that applies decides.
        """
        return next((each.version for each in self.torch_versions if each.holds(namespace, pool)), None)

    def python_path(self, namespace: str, pool: str, image: str) -> str | None:
        """Return the PYTHONPATH that an image sets, by the first entry that applies to it, or None."""
        return next((one.path for one in self.python_paths if one.holds(namespace, pool, image)), None)

    @cached_property
    def wide(self) -> frozenset[ResourcePrefixes]:
        """The sets of resources that pools offer with a name that ends in `*`."""
        return frozenset(pool.resources.wide for pool in self.pools if pool.resources.wide.prefixes)

    @cached_property
    def exact(self) -> frozenset[str]:
        """The exact names of resources that pools offer."""
        return frozenset().union(*(pool.resources.exact for pool in self.pools))

    @cached_property
    def gpu_resources(self) -> GPUResources:
        """The extended resources that are GPUs or parts of them: NVIDIA's, those of pools, and those listed here."""
        offered = (name for pool in self.pools for name in pool.resources.patterns)
        classes = (*self.forms.device_classes, *(gpu_requests.DAEMON_CLASSES if self.forms.classes_named else ()))
        implicit = (f"{gpu_requests.IMPLICIT}{name}" for name in classes)
        not_gpus = self.forms.device_classes.other_than or ()
        others = Names(
            (
                *gpu_requests.OTHER_RESOURCES,
                *self.forms.other_devices,
                *(f"{gpu_requests.IMPLICIT}{name}" for name in not_gpus if not self.pools_of_class(name)),
            )
        )
        return GPUResources((*offered, *self.forms.resources, *implicit), others)
