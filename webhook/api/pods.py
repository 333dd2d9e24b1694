"""A pod as rules see it: containers, variables, node selection.

A view reads an object as the API would have stored it, and raises Malformed where the shape is another.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook.allowance import Allowance, watched
from webhook.api.fields import as_map, entries, items, section, text
from webhook.api.selectors import Requirement
from webhook.model import Malformed, Object, Path, Request, Requester

MIRROR = "kubernetes.io/config.mirror"
"""On the pod that a kubelet makes to show one of its files (k8s.io/api core/v1 annotation_key_constants.go)."""
KUBELETS = "system:nodes"
"""The group of all kubelets (apiserver pkg/authentication/user/user.go, NodesGroup)."""

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
        resources = section(self.spec, "resources", self.path)
        path = (*self.path, "resources")
        limits, requests = section(resources, "limits", path), section(resources, "requests", path)
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
            name = text(entry, "name", path)
            if name in names:
                at = (*path, index)
                found[name] = EnvVar(at, None if entry.get("valueFrom") else text(entry, "value", at))
        return found

    @property
    def env_from(self) -> Iterator[str]:
        """The prefix of each source that variables are taken from without being named; empty where it has none."""
        path = (*self.path, "envFrom")
        for index, entry in entries(self.spec, "envFrom", self.path):
            yield text(entry, "prefix", (*path, index))

    @property
    def words(self) -> list[str]:
        """What it starts as far as the pod says: `command`, then `args`."""
        words = [*items(self.spec, "command", self.path), *items(self.spec, "args", self.path)]
        if not all(isinstance(word, str) for word in words):
            raise Malformed(self.path, "command and args must be lists of strings")
        return words

    @property
    def name(self) -> str:
        """Its name within the pod."""
        return text(self.spec, "name", self.path)

    @property
    def image(self) -> str:
        """The last part of its image's name, without registry, tag and digest; empty where the pod names none."""
        name = text(self.spec, "image", self.path).rpartition("/")[2]
        return name.partition("@")[0].partition(":")[0]


class Term(NamedTuple):
    """A required node selector term: any one may match, and within it every expression has to.

    `expressions` are on labels, None for an empty term, which matches no node (component-helpers
    scheduling/corev1/nodeaffinity), and `fields` on the node's name.
    """

    path: Path
    expressions: tuple[Requirement, ...] | None
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, eq=False)
class Pod:
    """A pod, or a pod template of a workload (`template`), with the paths of its metadata and spec in the object.

    `node_terms` are the terms of its required node affinity, None without one. `old` is what an update
    replaces, and `requester` who sent it: for most pods a controller.
    """

    spec: Object
    annotations: Mapping[str, Any]
    labels: Mapping[str, Any]
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
        return text(spec, "serviceAccountName", at) or text(spec, "serviceAccount", at) or "default"

    @property
    def mirror(self) -> bool:
        """Whether it only shows what a kubelet runs from a file, and will run whatever is said of it here."""
        return MIRROR in self.annotations

    @property
    def kubelets_own(self) -> bool:
        """Whether it is a mirror pod on a kubelet's word: anyone can write the annotation."""
        return self.mirror and self.requester is not None and KUBELETS in self.requester.groups

    @property
    def exchanged(self) -> bool:
        """Whether it runs other images or more containers than it did; nothing else that a pod runs can change."""
        return self.old is not None and [*map(_runs, self.containers)] != [*map(_runs, self.old.containers)]

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


def pod_of(
    item: Object,
    request: Request,
    metadata: Object,
    spec: Object,
    metadata_path: Path,
    spec_path: Path,
    allowance: Allowance,
    *,
    template: bool = False,
    more: Iterable[Container] = (),
) -> Pod:
    """View a pod, or a `template` of one, whose metadata and spec stand at these paths of the item.

    `more` are its containers that stand outside of the lists that a PodSpec has.
    """
    selector = section(spec, "nodeSelector", spec_path)
    for key in selector:
        text(selector, key, (*spec_path, "nodeSelector"))
    # A template's pods are made in the namespace of what holds it.
    own = section(item, "metadata", ())
    return Pod(
        spec=spec,
        annotations=section(metadata, "annotations", metadata_path),
        labels=section(metadata, "labels", metadata_path),
        containers=watched((*_containers(spec, spec_path), *more), allowance),
        node_selector=selector,
        node_terms=_node_terms(spec, spec_path, allowance),
        metadata_path=metadata_path,
        spec_path=spec_path,
        namespace=request.namespace or text(own, "namespace", ("metadata",)) or "default",
        template=template,
        requester=request.requester,
    )


def _node_terms(spec: Object, at: Path, allowance: Allowance) -> tuple[Term, ...] | None:
    required = spec
    for depth, key in enumerate(REQUIRED_AFFINITY[1:-1]):
        if required.get(key) is None:
            return None
        required = section(required, key, (*at, *REQUIRED_AFFINITY[1 : depth + 1]))
    path = (*at, *REQUIRED_AFFINITY[1:])
    terms = (
        _term(as_map(each, (*path, index)), (*path, index))
        for index, each in enumerate(items(required, REQUIRED_AFFINITY[-1], path[:-1]))
    )
    return watched(terms, allowance)


def _term(term: Object, path: Path) -> Term:
    expressions, fields = (tuple(_requirements(term, part, path)) for part in ("matchExpressions", "matchFields"))
    return Term(path, expressions if expressions or fields else None, fields)


def _runs(container: Container) -> tuple[str, str, object]:
    return container.list_name, container.name, container.spec.get("image")


def _containers(spec: Object, at: Path) -> Iterator[Container]:
    for name in CONTAINER_LISTS:
        for index, each in enumerate(items(spec, name, at)):
            path = (*at, name, index)
            yield Container(as_map(each, path), path, name)


def _requirements(term: Object, part: str, path: Path) -> Iterator[Requirement]:
    path = (*path, part)
    for index, each in enumerate(items(term, part, path[:-1])):
        at = (*path, index)
        expression = as_map(each, at)
        values = items(expression, "values", at)
        if not all(isinstance(value, str) for value in values):
            raise Malformed((*at, "values"), "must be a list of strings")
        yield Requirement(text(expression, "key", at), text(expression, "operator", at), frozenset(values))
