"""Where each kind keeps what is judged, and views of it.

A view reads an object as the API would have stored it, and raises Malformed where the shape is another.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from webhook.model import Malformed, Object, Path, Request, Requester
from webhook.selectors import Requirement
from webhook.workloads import EACH_ITEM, EACH_VALUE, WORKLOADS, Template, Workloads, keys

POD = ("", "Pod")
CONFIG_MAP = ("", "ConfigMap")
LABELLED = (("", "Namespace"), ("", "Node"))
BINDING = ("", "Binding")

MIRROR = "kubernetes.io/config.mirror"
"""On the pod that a kubelet makes to show one of its files (k8s.io/api core/v1 annotation_key_constants.go)."""
KUBELETS = "system:nodes"
"""The group of all kubelets (apiserver pkg/authentication/user/user.go, NodesGroup)."""
CLUSTER_POLICY = ("nvidia.com", "ClusterPolicy")
DEVICES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("resource.k8s.io", "DeviceClass"): ("spec",),
    ("resource.k8s.io", "ResourceClaim"): ("spec", "devices"),
    ("resource.k8s.io", "ResourceClaimTemplate"): ("spec", "spec", "devices"),
}
"""The kinds of dynamic resource allocation, and where each keeps its requests and configurations (resource/v1)."""

# In the API's order, which is also the order in which init containers and sidecars start.
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


class EnvVar(NamedTuple):
    """One entry of a container's `env`. `value` is None when it comes from elsewhere (`valueFrom`)."""

    path: Path
    value: str | None


class Container(NamedTuple):
    """A container of any list, with its path."""

    spec: Object
    path: Path
    list_name: str

    @property
    def sidecar(self) -> bool:
        """A native sidecar: an init container that keeps running beside the containers (KEP-753)."""
        return self.list_name == "initContainers" and self.spec.get("restartPolicy") == "Always"

    @property
    def extended_resources(self) -> Iterator[tuple[str, object, str]]:
        """Name and quantity of each resource asked for, in `limits` or `requests`; a limit hides its equal request.

        Kubernetes' own, as cpu and memory, have no slash in their names and are left out.
        """
        resources = _map(self.spec, "resources", self.path)
        path = (*self.path, "resources")
        limits, requests = _map(resources, "limits", path), _map(resources, "requests", path)
        for name, quantity in limits.items():
            if "/" in name:
                yield name, quantity, "limits"
        for name, quantity in requests.items():
            if "/" in name and (isinstance(quantity, (dict, list)) or limits.get(name) != quantity):
                yield name, quantity, "requests"

    def variables(self, names: Collection[str]) -> Mapping[str, EnvVar]:
        """Its variables of these names; of two with one name the last counts, as it does for the kubelet."""
        found, path = {}, (*self.path, "env")
        for index, entry in entries(self.spec, "env", self.path):
            name = _text(entry, "name", path)
            if name in names:
                at = (*path, index)
                found[name] = EnvVar(at, None if entry.get("valueFrom") else _text(entry, "value", at))
        return found

    @property
    def env_from(self) -> Iterator[str]:
        """The prefix of each source that variables are taken from without being named; empty where it has none."""
        path = (*self.path, "envFrom")
        for index, entry in entries(self.spec, "envFrom", self.path):
            yield _text(entry, "prefix", (*path, index))

    @property
    def words(self) -> list[str]:
        """What it starts as far as the pod says: `command`, then `args`."""
        words = [*_list(self.spec, "command", self.path), *_list(self.spec, "args", self.path)]
        if not all(isinstance(word, str) for word in words):
            raise Malformed(self.path, "command and args must be lists of strings")
        return words

    @property
    def name(self) -> str:
        """Its name within the pod."""
        return _text(self.spec, "name", self.path)

    @property
    def image(self) -> str:
        """The last part of its image's name, without registry, tag and digest; empty where the pod names none."""
        name = _text(self.spec, "image", self.path).rpartition("/")[2]
        return name.partition("@")[0].partition(":")[0]


class Term(NamedTuple):
    """A required node selector term: any one may match, and within it every expression has to.

    `expressions` is None for an empty term, which matches no node (component-helpers
    scheduling/corev1/nodeaffinity). Of `matchFields` nothing is read.
    """

    path: Path
    expressions: tuple[Requirement, ...] | None


@dataclass(frozen=True, eq=False)
class Pod:
    """A pod, or a pod template of a workload (`template`), with the paths of its metadata and spec in the object.

    `node_terms` are the terms of its required node affinity, None without one. `old` is what an update
    replaces, and `requester` who sent it: for most pods a controller.
    """

    spec: Object
    annotations: Mapping[str, Any]
    containers: tuple[Container, ...]
    node_selector: Mapping[str, str]
    node_terms: tuple[Term, ...] | None
    metadata_path: Path
    spec_path: Path
    namespace: str
    template: bool
    requester: Requester | None = None
    old: "Pod | None" = None

    @property
    def service_account(self) -> str:
        """The account it runs as; `default` when it names none. `serviceAccount` is the field's old name."""
        spec, at = self.spec, self.spec_path
        return _text(spec, "serviceAccountName", at) or _text(spec, "serviceAccount", at) or "default"

    @property
    def mirror(self) -> bool:
        """Whether it only shows what a kubelet runs from a file, and will run whatever is said of it here."""
        return MIRROR in self.annotations

    @property
    def kubelets_own(self) -> bool:
        """Whether it is a mirror pod on a kubelet's word: anyone can write the annotation."""
        return self.mirror and self.requester is not None and KUBELETS in self.requester.groups

    @property
    def tolerations(self) -> list[Object]:
        """The taints it tolerates."""
        return [each for _, each in entries(self.spec, "tolerations", self.at("spec"))]

    def at(self, part: str, *keys: str | int) -> Path:
        """The path of a place in the pod's `metadata` or `spec`, counted from the object that holds it."""
        return (*(self.spec_path if part == "spec" else self.metadata_path), *keys)


REQUIRED_AFFINITY: tuple[str, ...] = (
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)


@dataclass(frozen=True, eq=False)
class ConfigMap:
    """A ConfigMap: each key of `data` with its text, each key of `binaryData` with its base64.

    One that is being `deleted` is empty, and has an `old` self.
    """

    name: str
    namespace: str
    data: Mapping[str, str]
    binary_data: Mapping[str, str]
    deleted: bool = False
    requester: Requester | None = None
    old: "ConfigMap | None" = None


@dataclass(frozen=True, eq=False)
class Labelled:
    """A Namespace or a Node (`kind`), of which the labels are judged. `old` is None when it is created."""

    kind: str
    name: str
    labels: Mapping[str, str]
    requester: Requester | None = None
    old: "Labelled | None" = None

    @property
    def namespace(self) -> str:
        """Its own name for a Namespace, and none for a Node."""
        return self.name if self.kind == "Namespace" else ""


@dataclass(frozen=True, eq=False)
class Binding:
    """A pod being put on a node. The annotations are merged into the pod, which nobody judges again for it."""

    node: str
    annotations: Mapping[str, Any]
    namespace: str
    requester: Requester | None = None
    old: "Binding | None" = None


@dataclass(frozen=True, eq=False)
class ClusterPolicy:
    """What the GPU Operator is told of the device plugin: a ConfigMap by name, and the key of nodes that choose none.

    Both are empty where nothing is said (gpu-operator api/nvidia/v1/clusterpolicy_types.go, DevicePluginConfig).
    """

    name: str
    config_map: str
    default: str
    requester: Requester | None = None
    old: "ClusterPolicy | None" = None

    namespace = ""
    base = ("spec", "devicePlugin", "config")


class DeviceRequest(NamedTuple):
    """A request for devices, or one alternative of one (`firstAvailable`)."""

    path: Path
    device_class: str
    everything: bool
    admin: bool
    selectors: tuple[str, ...]


class DeviceConfig(NamedTuple):
    """What a driver is told of the devices: `parameters` mean something to that driver alone."""

    path: Path
    driver: str
    parameters: Any


@dataclass(frozen=True, eq=False)
class DeviceClaim:
    """A ResourceClaim, a ResourceClaimTemplate or a DeviceClass (`kind`), which has no requests.

    `resource` is what a class's devices are asked for by as an extended resource, empty where they are not (KEP-5004).
    """

    kind: str
    name: str
    namespace: str
    requests: tuple[DeviceRequest, ...]
    configs: tuple[DeviceConfig, ...]
    resource: str = ""
    requester: Requester | None = None
    old: "DeviceClaim | None" = None


Subject = Pod | ConfigMap | Labelled | Binding | ClusterPolicy | DeviceClaim


def subjects(
    request: Request, item: Object, old: Object | None = None, workloads: Workloads = WORKLOADS
) -> Iterator[Subject]:
    """Yield what is to be judged in the request's object, or in its old one; nothing for other kinds.

    A subresource whose object is a Pod is judged as the Pod it is, so that a new one cannot be a way around
    (Pod Security Admission does the same). `old` is what the object replaces. Of what is deleted only ConfigMaps
    are judged, which may be in use.
    """
    if request.operation == "DELETE" and (request.group, request.kind) != CONFIG_MAP:
        return
    before = {_place(view): view for view in _views(request, old, workloads)} if old is not None else {}
    for subject in _views(request, item, workloads):
        known = before.get(_place(subject))
        # Both are of one kind: they come from one request.
        yield replace(cast("Any", subject), old=known) if known is not None else subject


def _place(subject: Subject) -> Path:
    return subject.spec_path if isinstance(subject, Pod) else ()


def _views(request: Request, item: Object, workloads: Workloads) -> Iterator[Subject]:
    kind = (request.group, request.kind)
    if kind == POD:
        at = ("metadata",), ("spec",)
        yield _pod(item, request, _map(item, "metadata", ()), _map(item, "spec", ()), *at)
    elif kind in workloads:
        for template in workloads[kind].templates:
            for path, value in _found(item, (), template.at):
                yield _template(item, request, template, path, value)
    elif kind == CONFIG_MAP:
        yield _config_map(item, request)
    elif kind in LABELLED:
        yield _labelled(item, request)
    elif kind == BINDING:
        yield _binding(item, request)
    elif kind == CLUSTER_POLICY:
        yield _cluster_policy(item, request)
    elif kind in DEVICES:
        yield _device_claim(item, DEVICES[kind], request)


def judges(group: str, kind: str, workloads: Workloads = WORKLOADS) -> bool:
    """Tell whether objects of this kind are judged at all."""
    single = (POD, CONFIG_MAP, *LABELLED, BINDING, CLUSTER_POLICY)
    return (group, kind) in single or (group, kind) in workloads or (group, kind) in DEVICES


def _found(value: Any, path: Path, place: str) -> Iterator[tuple[Path, Any]]:
    """Find what stands at a place (webhook.workloads) below a value; nothing where the way ends before it."""
    found: list[tuple[Path, Any]] = [(path, value)]
    for key in keys(place):
        following: list[tuple[Path, Any]] = []
        for at, each in found:
            if key == EACH_ITEM:
                following += (((*at, index), item) for index, item in enumerate(_as(list, each, at)))
            elif key == EACH_VALUE:
                following += (((*at, name), item) for name, item in _as_map(each, at).items())
            elif (item := _as_map(each, at).get(key)) is not None:
                following.append(((*at, key), item))
        found = following
    yield from found


def _template(item: Object, request: Request, template: Template, path: Path, value: Any) -> Pod:
    def find(place: str) -> Iterator[tuple[Path, Any]]:
        return _found(item, (), place) if place.startswith("/") else _found(value, path, place)

    annotations: dict[str, Any] = {}
    metadata_path = (*path, "metadata")
    for place in template.metadata:
        for metadata_path, each in find(place):
            annotations |= _map(_as_map(each, metadata_path), "annotations", metadata_path)
    spec: dict[str, Any] = {}
    spec_path = (*path, *keys(template.spec))
    for place in (template.spec,) if template.defaults is None else (template.defaults, template.spec):
        for at, each in find(place):
            spec |= _as_map(each, at)
    alone = tuple(
        Container(_as_map(each, at), at, "containers") for place in template.containers for at, each in find(place)
    )
    pod = _pod(item, request, {"annotations": annotations}, spec, metadata_path, spec_path, template=True)
    return replace(pod, containers=(*pod.containers, *alone)) if alone else pod


def _pod(
    item: Object,
    request: Request,
    metadata: Object,
    spec: Object,
    metadata_path: Path,
    spec_path: Path,
    *,
    template: bool = False,
) -> Pod:
    selector = _map(spec, "nodeSelector", spec_path)
    for key in selector:
        _text(selector, key, (*spec_path, "nodeSelector"))
    # A template's pods are made in the namespace of what holds it.
    own = _map(item, "metadata", ())
    return Pod(
        spec=spec,
        annotations=_map(metadata, "annotations", metadata_path),
        containers=tuple(_containers(spec, spec_path)),
        node_selector=selector,
        node_terms=_node_terms(spec, spec_path),
        metadata_path=metadata_path,
        spec_path=spec_path,
        namespace=request.namespace or _text(own, "namespace", ("metadata",)) or "default",
        template=template,
        requester=request.requester,
    )


def _node_terms(spec: Object, at: Path) -> tuple[Term, ...] | None:
    required = spec
    for depth, key in enumerate(REQUIRED_AFFINITY[1:-1]):
        if required.get(key) is None:
            return None
        required = _map(required, key, (*at, *REQUIRED_AFFINITY[1 : depth + 1]))
    path = (*at, *REQUIRED_AFFINITY[1:])
    return tuple(
        _term(_as_map(each, (*path, index)), (*path, index))
        for index, each in enumerate(_list(required, REQUIRED_AFFINITY[-1], path[:-1]))
    )


def _term(term: Object, path: Path) -> Term:
    expressions = tuple(_requirements(term, path))
    return Term(path, expressions if expressions or term.get("matchFields") else None)


def _containers(spec: Object, at: Path) -> Iterator[Container]:
    for name in CONTAINER_LISTS:
        for index, each in enumerate(_list(spec, name, at)):
            path = (*at, name, index)
            yield Container(_as_map(each, path), path, name)


def _config_map(item: Object, request: Request) -> ConfigMap:
    metadata = _map(item, "metadata", ())
    data, binary = _map(item, "data", ()), _map(item, "binaryData", ())
    return ConfigMap(
        name=request.name or _text(metadata, "name", ("metadata",)),
        namespace=request.namespace or _text(metadata, "namespace", ("metadata",)) or "default",
        data={key: _text(data, key, ("data",)) for key in data},
        binary_data={key: _text(binary, key, ("binaryData",)) for key in binary},
        deleted=request.operation == "DELETE",
        requester=request.requester,
    )


def _labelled(item: Object, request: Request) -> Labelled:
    metadata = _map(item, "metadata", ())
    labels = _map(metadata, "labels", ("metadata",))
    return Labelled(
        kind=request.kind,
        name=request.name or _text(metadata, "name", ("metadata",)),
        labels={key: _text(labels, key, ("metadata", "labels")) for key in labels},
        requester=request.requester,
    )


def _binding(item: Object, request: Request) -> Binding:
    metadata, target = _map(item, "metadata", ()), _map(item, "target", ())
    return Binding(
        node=_text(target, "name", ("target",)),
        annotations=_map(metadata, "annotations", ("metadata",)),
        namespace=request.namespace or _text(metadata, "namespace", ("metadata",)) or "default",
        requester=request.requester,
    )


def _cluster_policy(item: Object, request: Request) -> ClusterPolicy:
    found = item
    for depth, key in enumerate(ClusterPolicy.base):
        found = _map(found, key, ClusterPolicy.base[:depth])
    return ClusterPolicy(
        name=request.name or _text(_map(item, "metadata", ()), "name", ("metadata",)),
        config_map=_text(found, "name", ClusterPolicy.base),
        default=_text(found, "default", ClusterPolicy.base),
        requester=request.requester,
    )


def _device_claim(item: Object, base: Path, request: Request) -> DeviceClaim:
    metadata, devices = _map(item, "metadata", ()), item
    for depth, key in enumerate(base):
        devices = _map(devices, str(key), base[:depth])
    namespaced = request.kind != "DeviceClass"
    namespace = request.namespace or _text(metadata, "namespace", ("metadata",)) or "default"
    return DeviceClaim(
        kind=request.kind,
        name=request.name or _text(metadata, "name", ("metadata",)),
        namespace=namespace if namespaced else "",
        requests=tuple(_device_requests(devices, base)) if namespaced else (),
        configs=tuple(_device_configs(devices, base)),
        resource="" if namespaced else _text(devices, "extendedResourceName", base),
        requester=request.requester,
    )


def _device_requests(devices: Object, base: Path) -> Iterator[DeviceRequest]:
    for index, each in enumerate(_list(devices, "requests", base)):
        path = (*base, "requests", index)
        asked = _as_map(each, path)
        # Up to v1beta1 what is now under `exactly` stood in the request itself.
        yield _device_request(asked, path)
        yield _device_request(_map(asked, "exactly", path), (*path, "exactly"))
        for number, alternative in enumerate(_list(asked, "firstAvailable", path)):
            at = (*path, "firstAvailable", number)
            yield _device_request(_as_map(alternative, at), at)


def _device_request(asked: Object, path: Path) -> DeviceRequest:
    selectors = [
        _text(_map(_as_map(each, at), "cel", at), "expression", (*at, "cel"))
        for index, each in enumerate(_list(asked, "selectors", path))
        for at in [(*path, "selectors", index)]
    ]
    return DeviceRequest(
        path=path,
        device_class=_text(asked, "deviceClassName", path),
        everything=_text(asked, "allocationMode", path) == "All",
        admin=_as(bool, asked.get("adminAccess"), (*path, "adminAccess")),
        selectors=tuple(selectors),
    )


def _device_configs(devices: Object, base: Path) -> Iterator[DeviceConfig]:
    for index, each in enumerate(_list(devices, "config", base)):
        path = (*base, "config", index)
        opaque = _map(_as_map(each, path), "opaque", path)
        if opaque:
            at = (*path, "opaque")
            yield DeviceConfig((*at, "parameters"), _text(opaque, "driver", at), opaque.get("parameters"))


def _requirements(term: Object, path: Path) -> Iterator[Requirement]:
    path = (*path, "matchExpressions")
    for index, each in enumerate(_list(term, "matchExpressions", path[:-1])):
        at = (*path, index)
        expression = _as_map(each, at)
        values = _list(expression, "values", at)
        if not all(isinstance(value, str) for value in values):
            raise Malformed((*at, "values"), "must be a list of strings")
        yield Requirement(_text(expression, "key", at), _text(expression, "operator", at), frozenset(values))


_WORDS = {dict: "a map", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}


def _as(kind: type, value: Any, path: Path) -> Any:
    """Return a value of this type, an empty one for null. Raises Malformed for another type."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise Malformed(path, f"must be {_WORDS[kind]}, not {_WORDS[type(value)]}")
    return value


def _as_map(value: Any, path: Path) -> Object:
    return value if type(value) is dict else cast("Object", _as(dict, value, path))


# The path is only put together where it is needed: these are called for every place of every object.


def _map(container: Object, key: str, path: Path) -> Object:
    value = container.get(key)
    return value if type(value) is dict else cast("Object", _as(dict, value, (*path, key)))


def _list(container: Object, key: str, path: Path) -> list[Any]:
    value = container.get(key)
    return value if type(value) is list else cast("list[Any]", _as(list, value, (*path, key)))


def _text(container: Object, key: str, path: Path) -> str:
    value = container.get(key)
    return value if type(value) is str else cast("str", _as(str, value, (*path, key)))


# What rules read of an object beyond its views, with the same refusals


def entries(holder: Object, key: str, at: Path) -> Iterable[tuple[int, Object]]:
    """Each map of the list at a key, with its index; `at` is the holder's path. Raises Malformed for another shape."""
    items = _list(holder, key, at)
    if _MAPS.issuperset(map(type, items)):  # nearly always, and without a step in Python for every one
        return enumerate(items)
    return ((index, _as_map(each, (*at, key, index))) for index, each in enumerate(items))


_MAPS = frozenset((dict,))


def texts(holder: Object, key: str, at: Path) -> Iterator[tuple[int, str]]:
    """Each text of the list at a key, with its index. Raises Malformed for another shape."""
    for index, each in enumerate(_list(holder, key, at)):
        yield index, each if type(each) is str else _as(str, each, (*at, key, index))


def section(holder: Object, key: str, at: Path) -> Object:
    """The map at a key, empty for null. Raises Malformed for another shape."""
    return _map(holder, key, at)


def text(holder: Object, key: str, at: Path) -> str:
    """The text at a key, empty for null. Raises Malformed for another shape."""
    return _text(holder, key, at)


def flag(holder: Object, key: str, at: Path) -> bool:
    """The truth at a key, false for null. Raises Malformed for another shape."""
    return bool(_as(bool, holder.get(key), (*at, key)))
