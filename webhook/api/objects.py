"""Makes views of the objects that rules judge: ConfigMaps, claims, labels, and the pods in objects of every kind.

A view reads an object as the API server stores it. It raises Malformed for a value of a wrong type.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, cast

from webhook.allowance import PRICES, Allowance
from webhook.api.devices import DEVICES, DeviceClaim, device_claim
from webhook.api.fields import entries, section, text
from webhook.api.pods import CONTAINER_LISTS, POD, REQUIRED_AFFINITY, Pod, Update, pod_of
from webhook.api.templates import Found, paid, pods, search
from webhook.catalog.places import Workloads
from webhook.catalog.workloads import WORKLOADS
from webhook.model import Object, Path, Request, Requester, immutable

CONFIG_MAP = ("", "ConfigMap")
LABELLED = (("", "Namespace"), ("", "Node"))
BINDING = ("", "Binding")
CLUSTER_POLICY = ("nvidia.com", "ClusterPolicy")
REVISION = ("apps", "ControllerRevision")
NODE_FEATURES = (("nfd.k8s-sigs.io", "NodeFeature"), ("nfd.openshift.io", "NodeFeature"))


@immutable
class ConfigMap:
    """A ConfigMap: the texts of `data` and the base64 of `binaryData`, by key.

    A ConfigMap that is being `deleted` is empty and has an `old`.
    """

    name: str
    namespace: str
    data: Mapping[str, str]
    binary_data: Mapping[str, str]
    deleted: bool = False
    requester: Requester | None = None
    old: "ConfigMap | None" = None


@immutable
class Labelled:
    """A Namespace or a Node (`kind`) with the labels that rules judge.

    `old` is the object before an update; None when it is created.
    """

    kind: str
    name: str
    labels: Mapping[str, str]
    requester: Requester | None = None
    old: "Labelled | None" = None

    @property
    def namespace(self) -> str:
        """The name of the Namespace itself; empty for a Node."""
        return self.name if self.kind == "Namespace" else ""


@immutable
class NodeFeature:
    """A NodeFeature: labels that Node Feature Discovery gives to the node that it names.

    NodeFeatureRules make more labels from its `features` (node-feature-discovery api/nfd/v1alpha1/types.go).
    """

    node: str
    labels: Mapping[str, Any]
    features: Mapping[str, Any]
    namespace: str
    requester: Requester | None = None
    old: "NodeFeature | None" = None


@immutable
class Binding:
    """The binding of a pod to a node.

    The API server merges its annotations and labels into the pod without another review of the pod.
    """

    node: str
    annotations: Mapping[str, Any]
    labels: Mapping[str, Any]
    namespace: str
    requester: Requester | None = None
    old: "Binding | None" = None


@immutable
class ClusterPolicy:
    """The device plugin's configuration in a ClusterPolicy of the GPU Operator.

    `config_map` is the name of a ConfigMap, and `default` the key for nodes that choose none. Both are empty if unset
    (gpu-operator api/nvidia/v1/clusterpolicy_types.go, DevicePluginConfig).
    """

    name: str
    config_map: str
    default: str
    requester: Requester | None = None
    old: "ClusterPolicy | None" = None

    namespace = ""
    base = ("spec", "devicePlugin", "config")


@immutable
class Revision:
    """A ControllerRevision: a former pod template, as a patch that the workload's controller may apply again."""

    data: Any
    namespace: str
    requester: Requester | None = None
    old: "Revision | None" = None


class GroupPriority(NamedTuple):
    """The priority class that a group of pods names, with its path, and the values that the API server wrote for it.

    `value` and `policy` are None if it wrote none. It writes them into PodGroups, and the policy only with the feature
    gate PodGroupPreemptionPolicy (kubernetes plugin/pkg/admission/priority). In a Workload they are its author's text.
    """

    path: Path
    name: str
    value: int | None = None
    policy: str | None = None


@immutable
class PodGroup:
    """A PodGroup, a CompositePodGroup or a Workload: the priority classes of groups of pods.

    A Workload has one for each of its templates of groups (k8s.io/api scheduling/v1beta1 types.go). A CompositePodGroup
    has one for all PodGroups that name it as their parent (scheduling/v1alpha3 types.go).
    """

    kind: str
    namespace: str
    priorities: tuple[GroupPriority, ...]
    requester: Requester | None = None
    old: "PodGroup | None" = None


Subject = Pod | ConfigMap | Labelled | NodeFeature | Binding | ClusterPolicy | DeviceClaim | Revision | PodGroup


class Counted(NamedTuple):
    """An object with its pod templates, which were found when its cost was counted."""

    item: Object
    templates: tuple[Found, ...] = ()


def count(request: Request, item: Object, allowance: Allowance, workloads: Workloads = WORKLOADS) -> Counted:
    """Pay for the entries of an object and for its pod templates, before any rule sees them.

    Kinds that are not judged cost nothing. Raises TooLarge, TooLate, and Malformed for a wrong type on the path to a
    template.
    """
    kind = request.group, request.kind
    if not judges(*kind, workloads):
        return Counted(item)
    bound = at_most(item, request.size) if kind == POD and request.size is not None else None
    allowance.count(partial(judged, request, item, workloads), bound)
    templates = paid(item, workloads[kind].templates, allowance) if kind in workloads else ()
    return Counted(item, tuple(templates))


def judged(request: Request, item: Object, workloads: Workloads) -> Object:
    """Return the part of an object that rules may read.

    Of metadata, that is only labels and annotations. The status is included only in kinds that describe pods there.
    """
    metadata, workload = item.get("metadata"), workloads.get((request.group, request.kind))
    kept = {key: metadata.get(key) for key in ("labels", "annotations")} if isinstance(metadata, dict) else metadata
    unread = () if workload is not None and workload.in_status else ("status",)
    return {**{key: value for key, value in item.items() if key not in unread}, "metadata": kept}


def subjects(
    request: Request, counted: Counted, old: Counted | None, workloads: Workloads, allowance: Allowance
) -> Iterator[Subject]:
    """Yield the views of an object that rules judge, after paying for it. An object of another kind has no views.

    A subresource whose object is a Pod is judged as a Pod, so that a new subresource cannot bypass the rules (Pod
    Security Admission does the same). `old` is the object before the update. A deletion is judged only for ConfigMaps,
    which may be in use. Views with many entries check the clock of the `allowance` as they are read.
    """
    if request.operation == "DELETE" and (request.group, request.kind) != CONFIG_MAP:
        return iter(())
    views = _views(request, counted, workloads, allowance)
    if old is None:
        return views
    return _replacing(_views(request, old, workloads, allowance), views, Update(old.item, counted.item))


def unpaid(
    request: Request, item: Object, old: Object | None = None, workloads: Workloads = WORKLOADS
) -> Iterator[Subject]:
    """Yield the same views as `subjects` without paying units, for objects that are not judged, or were paid before."""
    replaced = None if old is None else _found(request, old, workloads)
    return subjects(request, _found(request, item, workloads), replaced, workloads, Allowance())


def _found(request: Request, item: Object, workloads: Workloads) -> Counted:
    workload = workloads.get((request.group, request.kind))
    return Counted(item, tuple(each for t in workload.templates for each in search(item, t)) if workload else ())


def _replacing(before: Iterable[Subject], after: Iterable[Subject], update: Update) -> Iterator[Subject]:
    """Yield the views of an object, each with the view that it replaces. All have the same kind."""
    olds = {_place(view): view for view in before}
    for subject in after:
        known = olds.get(_place(subject))
        if known is None:
            yield subject
        elif isinstance(subject, Pod):
            yield replace(subject, old=cast("Pod", known), update=update)
        else:
            yield replace(cast("Any", subject), old=known)


def _place(subject: Subject) -> Path:
    return subject.located(subject.spec_path)[0] if isinstance(subject, Pod) else ()


def _views(request: Request, counted: Counted, workloads: Workloads, allowance: Allowance) -> Iterator[Subject]:
    kind, item = (request.group, request.kind), counted.item
    if kind == POD:
        at = ("metadata",), ("spec",)
        yield pod_of(item, request, section(item, "metadata", ()), section(item, "spec", ()), *at, allowance)
    elif kind in workloads:
        yield from pods(request, item, counted.templates, workloads, allowance)
    elif kind == CONFIG_MAP:
        yield _config_map(item, request)
    elif kind in LABELLED:
        yield _labelled(item, request)
    elif kind in NODE_FEATURES:
        yield _node_feature(item, request)
    elif kind == BINDING:
        yield _binding(item, request)
    elif kind == CLUSTER_POLICY:
        yield _cluster_policy(item, request)
    elif kind == REVISION:
        yield _revision(item, request)
    elif kind in DEVICES:
        yield device_claim(item, request)
    elif kind in GROUPS:
        yield _pod_group(item, request)


GROUPS = tuple(("scheduling.k8s.io", kind) for kind in ("CompositePodGroup", "PodGroup", "Workload"))

SINGLE = (POD, CONFIG_MAP, *LABELLED, *NODE_FEATURES, BINDING, CLUSTER_POLICY, REVISION)


PER_BYTE = 3
"""Maximum units per byte of a review: the shortest entry of `limits`, `"a":1,`, costs 15."""

DEAR = (*CONTAINER_LISTS, "volumes")
"""The lists of a PodSpec whose entries cost more than that. The terms of its node affinity do too."""


def at_most(pod: Object, size: int) -> int:
    """Return an upper bound of a pod's cost in units, computed from the length of its review in bytes."""
    bound, spec = size * PER_BYTE, pod.get("spec")
    if type(spec) is not dict:
        return bound
    for name in DEAR:
        listed = spec.get(name)
        if type(listed) is list:
            bound += PRICES[name] * len(listed)
    there: Any = spec
    for key in REQUIRED_AFFINITY[1:]:
        there = there.get(key)
        if type(there) is not dict:
            break
    if type(there) is list:
        bound += PRICES[REQUIRED_AFFINITY[-1]] * len(there)
    return bound


def judges(group: str, kind: str, workloads: Workloads = WORKLOADS) -> bool:
    """Return whether objects of this kind are judged."""
    own = (group, kind)
    return own in SINGLE or own in workloads or own in DEVICES or own in GROUPS


def judged_kinds(workloads: Workloads = WORKLOADS) -> Iterator[tuple[str, str]]:
    """Yield the group and kind of every kind that is judged."""
    return chain(SINGLE, DEVICES, GROUPS, workloads)


def _config_map(item: Object, request: Request) -> ConfigMap:
    metadata = section(item, "metadata", ())
    data, binary = section(item, "data", ()), section(item, "binaryData", ())
    return ConfigMap(
        name=request.name or text(metadata, "name", ("metadata",)),
        namespace=request.namespace or text(metadata, "namespace", ("metadata",)) or "default",
        data={key: text(data, key, ("data",)) for key in data},
        binary_data={key: text(binary, key, ("binaryData",)) for key in binary},
        deleted=request.operation == "DELETE",
        requester=request.requester,
    )


def _labelled(item: Object, request: Request) -> Labelled:
    metadata = section(item, "metadata", ())
    labels = section(metadata, "labels", ("metadata",))
    return Labelled(
        kind=request.kind,
        name=request.name or text(metadata, "name", ("metadata",)),
        labels={key: text(labels, key, ("metadata", "labels")) for key in labels},
        requester=request.requester,
    )


NODE_NAME = "nfd.node.kubernetes.io/node-name"
"""The label of a NodeFeature that names its node (node-feature-discovery api/nfd/v1alpha1/annotations_labels.go)."""


def _node_feature(item: Object, request: Request) -> NodeFeature:
    metadata, spec = section(item, "metadata", ()), section(item, "spec", ())
    return NodeFeature(
        node=text(section(metadata, "labels", ("metadata",)), NODE_NAME, ("metadata", "labels")),
        labels=section(spec, "labels", ("spec",)),
        features=section(spec, "features", ("spec",)),
        namespace=request.namespace or text(metadata, "namespace", ("metadata",)) or "default",
        requester=request.requester,
    )


def _binding(item: Object, request: Request) -> Binding:
    metadata, target = section(item, "metadata", ()), section(item, "target", ())
    return Binding(
        node=text(target, "name", ("target",)),
        annotations=section(metadata, "annotations", ("metadata",)),
        labels=section(metadata, "labels", ("metadata",)),
        namespace=request.namespace or text(metadata, "namespace", ("metadata",)) or "default",
        requester=request.requester,
    )


def _revision(item: Object, request: Request) -> Revision:
    metadata = section(item, "metadata", ())
    return Revision(
        data=item.get("data"),
        namespace=request.namespace or text(metadata, "namespace", ("metadata",)) or "default",
        requester=request.requester,
    )


def _pod_group(item: Object, request: Request) -> PodGroup:
    spec = section(item, "spec", ())
    holders: list[tuple[Path, Object]] = [(("spec",), spec)]
    if request.kind == "Workload":
        holders = [*_group_templates(spec, ("spec",))]
    written = request.kind != "Workload"
    priorities = (_group_priority(path, holder, written) for path, holder in holders)
    return PodGroup(
        kind=request.kind,
        namespace=request.namespace or text(section(item, "metadata", ()), "namespace", ("metadata",)) or "default",
        priorities=tuple(each for each in priorities if each.name),
        requester=request.requester,
    )


def _group_priority(path: Path, holder: Object, written: bool) -> GroupPriority:
    named = GroupPriority((*path, "priorityClassName"), text(holder, "priorityClassName", path))
    if not written:
        return named
    value = holder.get("priority")
    policy = text(holder, "preemptionPolicy", path)
    return named._replace(value=value if type(value) is int else None, policy=policy or None)


def _group_templates(spec: Object, at: Path) -> Iterator[tuple[Path, Object]]:
    """Yield the templates of PodGroups in a Workload, and the composite ones that hold others."""
    left = [(at, spec)]
    while left:
        at, holder = left.pop()
        for part in ("podGroupTemplates", "compositePodGroupTemplates"):
            found = [((*at, part, index), one) for index, one in entries(holder, part, at)]
            yield from found
            left += found if part.startswith("composite") else ()


def _cluster_policy(item: Object, request: Request) -> ClusterPolicy:
    config = item
    for depth, key in enumerate(ClusterPolicy.base):
        config = section(config, key, ClusterPolicy.base[:depth])
    return ClusterPolicy(
        name=request.name or text(section(item, "metadata", ()), "name", ("metadata",)),
        config_map=text(config, "name", ClusterPolicy.base),
        default=text(config, "default", ClusterPolicy.base),
        requester=request.requester,
    )
