"""Where each kind keeps what is judged, and views of it.

A view reads an object as the API would have stored it, and raises Malformed where the shape is another.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from webhook.model import Malformed, Object, Path, Request
from webhook.selectors import Requirement

POD_TEMPLATES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "Job"): ("spec", "template"),
}
"""Group and kind of every built-in workload, and where its pod template stands (k8s.io/api)."""

POD = ("", "Pod")
CONFIG_MAP = ("", "ConfigMap")

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
    def resources(self) -> Iterator[tuple[str, object, Path]]:
        """Name, quantity and path of each resource asked for; a limit hides the request it is equal to."""
        resources = _map(self.spec, "resources", self.path)
        path = (*self.path, "resources")
        limits, requests = _map(resources, "limits", path), _map(resources, "requests", path)
        for name, quantity in limits.items():
            yield name, quantity, (*path, "limits", name)
        for name, quantity in requests.items():
            if isinstance(quantity, (dict, list)) or limits.get(name) != quantity:
                yield name, quantity, (*path, "requests", name)

    @property
    def env(self) -> Mapping[str, EnvVar]:
        """Variables by name; of two with one name the last counts, as it does for the kubelet."""
        path = (*self.path, "env")
        variables = {}
        for index, entry in enumerate(_list(self.spec, "env", self.path)):
            at = (*path, index)
            entry = _as_map(entry, at)
            value = None if entry.get("valueFrom") else _text(entry, "value", at)
            variables[_text(entry, "name", at)] = EnvVar(at, value)
        return variables

    @property
    def env_from(self) -> Iterator[str]:
        """The prefix of each source that variables are taken from without being named; empty where it has none."""
        path = (*self.path, "envFrom")
        for index, entry in enumerate(_list(self.spec, "envFrom", self.path)):
            at = (*path, index)
            yield _text(_as_map(entry, at), "prefix", at)

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
    """A pod, or a pod template of a workload (`template`), at `base` within its object.

    `node_terms` are the terms of its required node affinity, None without one.
    """

    spec: Object
    annotations: Mapping[str, Any]
    containers: tuple[Container, ...]
    node_selector: Mapping[str, str]
    node_terms: tuple[Term, ...] | None
    base: Path
    namespace: str
    template: bool

    @property
    def service_account(self) -> str:
        """The account it runs as; `default` when it names none. `serviceAccount` is the field's old name."""
        names = (_text(self.spec, key, self.at("spec")) for key in ("serviceAccountName", "serviceAccount"))
        return next(filter(None, names), "default")

    @property
    def tolerations(self) -> list[Object]:
        """The taints it tolerates."""
        path = self.at("spec", "tolerations")
        return [
            _as_map(each, (*path, index)) for index, each in enumerate(_list(self.spec, "tolerations", self.at("spec")))
        ]

    def at(self, *keys: str | int) -> Path:
        """The path of a place in the pod, counted from the object that holds it."""
        return (*self.base, *keys)


REQUIRED_AFFINITY: tuple[str, ...] = (
    "spec",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
)


@dataclass(frozen=True, eq=False)
class ConfigMap:
    """A ConfigMap: each key of `data` with its text, each key of `binaryData` with its base64."""

    name: str
    namespace: str
    data: Mapping[str, str]
    binary_data: Mapping[str, str]


Subject = Pod | ConfigMap


def subjects(request: Request, item: Object) -> Iterator[Subject]:
    """Yield what is to be judged in the request's object, or in its old one; nothing for other kinds.

    A subresource whose object is a Pod is judged as the Pod it is, so that a new one cannot be a way around
    (Pod Security Admission does the same).
    """
    kind = (request.group, request.kind)
    if kind == POD:
        yield _pod(item, (), request.namespace, template=False)
    elif kind in POD_TEMPLATES:
        path = POD_TEMPLATES[kind]
        template: Object = item
        for depth, key in enumerate(path):
            template = _map(template, key, path[:depth])
        yield _pod(template, path, request.namespace, template=True)
    elif kind == CONFIG_MAP:
        yield _config_map(item, request)


def judges(group: str, kind: str) -> bool:
    """Tell whether objects of this kind are judged at all."""
    return (group, kind) in (POD, CONFIG_MAP) or (group, kind) in POD_TEMPLATES


def _pod(item: Object, base: Path, namespace: str, *, template: bool) -> Pod:
    metadata, spec = _map(item, "metadata", base), _map(item, "spec", base)
    at = (*base, "spec")
    selector = _map(spec, "nodeSelector", at)
    for key in selector:
        _text(selector, key, (*at, "nodeSelector"))
    return Pod(
        spec=spec,
        annotations=_map(metadata, "annotations", (*base, "metadata")),
        containers=tuple(_containers(spec, at)),
        node_selector=selector,
        node_terms=_node_terms(spec, at),
        base=base,
        namespace=namespace or _text(metadata, "namespace", (*base, "metadata")) or "default",
        template=template,
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
    )


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
