"""Makes views of pods for rules: containers, variables, node selection.

A view reads an object as the API server stores it. It raises Malformed for a value of a wrong type.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from webhook.allowance import Allowance, alike, watched
from webhook.api.fields import as_map, entries, items, maps, section, text
from webhook.api.lenient import string
from webhook.api.selectors import NOWHERE, NodeSelectorTerm, Requirement, Values, by_key, equals
from webhook.model import Malformed, Object, Path, Request, Requester, dotted, immutable

POD = ("", "Pod")
"""The group and the kind of a pod."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod, which shows a static pod (k8s.io/api core/v1 annotation_key_constants.go)."""
KUBELETS = "system:nodes"
"""The group of all kubelets (apiserver pkg/authentication/user/user.go, NodesGroup)."""

# In the API's order, which is also the order in which init containers and sidecars start.
CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


MESSAGE = "terminationMessagePath"
"""The field of a container that names the file of its last message."""

DEFAULT_MESSAGE = "/dev/termination-log"
"""The path of a container's termination message if the container names none (kubernetes pkg/apis/core/v1 defaults)."""

_TEXTS = frozenset((str,))


class EnvVar(NamedTuple):
    """One entry of a container's `env`. `value` is None if it comes from `valueFrom`."""

    path: Path
    value: str | None


class Container(NamedTuple):
    """A container of any list, with its path."""

    spec: Object
    path: Path
    list_name: str

    @property
    def sidecar(self) -> bool:
        """Whether the container is a sidecar: an init container that keeps running (KEP-753)."""
        return self.list_name == "initContainers" and self.spec.get("restartPolicy") == "Always"

    @property
    def completes(self) -> bool:
        """Whether the container must end before the next one starts: it is an init container, but not a sidecar."""
        return self.list_name == "initContainers" and self.spec.get("restartPolicy") != "Always"

    @property
    def extended_resources(self) -> list[tuple[str, object, str]]:
        """The extended resources of the container, each with its name, its quantity, and its list.

        The list is `limits` or `requests`. A request that equals its limit is left out. So are Kubernetes' own
        resources, such as cpu, whose names have no slash.
        """
        resources = section(self.spec, "resources", self.path)
        path = (*self.path, "resources")
        limits, requests = section(resources, "limits", path), section(resources, "requests", path)
        named: list[tuple[str, object, str]] = [(name, limits[name], "limits") for name in limits if "/" in name]
        for name, quantity in requests.items():
            if "/" in name and (isinstance(quantity, (dict, list)) or limits.get(name) != quantity):
                named.append((name, quantity, "requests"))
        return named

    def variables(self, names: Collection[str]) -> Mapping[str, EnvVar]:
        """Return the container's variables with these names.

        The last of two with one name counts, as for the kubelet.
        """
        result, path = {}, (*self.path, "env")
        for index, entry in entries(self.spec, "env", self.path):
            name = entry.get("name")
            if type(name) is not str:  # this runs for every variable, so `text` is called only for unusual ones
                name = text(entry, "name", path)
            if name in names:
                at, value = (*path, index), entry.get("value")
                if entry.get("valueFrom"):
                    value = None
                elif type(value) is not str:
                    value = text(entry, "value", at)
                result[name] = EnvVar(at, value)
        return result

    @property
    def env_from(self) -> Iterator[str]:
        """Yield the prefix of each `envFrom` source; empty if it has none."""
        path = (*self.path, "envFrom")
        for index, entry in entries(self.spec, "envFrom", self.path):
            yield text(entry, "prefix", (*path, index))

    @property
    def places(self) -> Iterator[tuple[Path, str]]:
        """Yield the path in the container of each mount and each device, and of the file for its termination message.

        The kubelet mounts a file of its own for the message, after all other mounts, at the path that the pod names
        (kubernetes pkg/kubelet/kuberuntime kuberuntime_container.go, makeMounts).
        """
        for part, key in (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")):
            if self.spec.get(part) is None:
                continue
            for index, mount in entries(self.spec, part, self.path):
                place = mount.get(key)
                if not isinstance(place, str):
                    raise Malformed((*self.path, part, index, key), "must be a string")
                yield (*self.path, part, index, key), place
        if self.spec.get(MESSAGE) is not None:
            yield (*self.path, MESSAGE), text(self.spec, MESSAGE, self.path)

    @property
    def words(self) -> list[str]:
        """The words of the command line that the pod states: `command`, then `args`."""
        words = [*items(self.spec, "command", self.path), *items(self.spec, "args", self.path)]
        if not _TEXTS.issuperset(map(type, words)):
            raise Malformed(self.path, "command and args must be lists of strings")
        return words

    @property
    def name(self) -> str:
        """The container's name."""
        return text(self.spec, "name", self.path)

    @property
    def reference(self) -> str:
        """The image's reference as the pod writes it; empty if the pod names none."""
        return text(self.spec, "image", self.path)

    @property
    def image(self) -> str:
        """The last part of the image's name, without registry, tag and digest; empty if the pod names none."""
        name = self.reference.rpartition("/")[2]
        return name.partition("@")[0].partition(":")[0]


class NodeAffinityTerm(NamedTuple):
    """One term of a pod's required node affinity. A node matches if it matches all parts of any term.

    `expressions` are conditions on labels, and `fields` on the node's name. `expressions` is None for an empty term,
    which matches no node (component-helpers scheduling/corev1/nodeaffinity).
    """

    path: Path
    expressions: tuple[Requirement, ...] | None
    fields: tuple[Requirement, ...] = ()

    @property
    def written(self) -> int:
        """The size of the term: 1, plus the number of its conditions on labels and of their values."""
        return 1 + sum(1 + len(each.values) for each in self.expressions or ())


class PossibleTerm(NamedTuple):
    """A term of a pod's node affinity that some node could match, with the values it still allows for each label.

    The conditions of the pod's node selector are added to those of the term.
    """

    term: NodeAffinityTerm
    values: Mapping[str, Values]


class Elsewhere(NamedTuple):
    """The real place in the object of a part that a view shows at another path.

    If the part is a `text`, all places below it are inside that text.
    """

    path: Path
    text: bool = False


class Update:
    """An object `before` and `after` an update.

    All pods of the object share one, so that the object is compared only once.
    """

    def __init__(self, before: Object, after: Object) -> None:
        self._before, self._after = before, after

    @cached_property
    def counts_only(self) -> bool:
        """Whether the update changes only metadata, the number of pods, and when they run.

        A change of the status is taken into account. The API server takes the status out of an update where a kind has
        a status subresource (apiextensions pkg/registry/customresource/strategy.go). In other kinds every author of an
        update writes it, and the status of a Workflow decides what runs.
        """
        left: list[tuple[Any, Any]] = [(_described(self._before), _described(self._after))]
        while left:
            before, after = left.pop()
            if isinstance(before, dict) and isinstance(after, dict):
                pairs = ((key, before.get(key), after.get(key)) for key in before.keys() | after.keys())
                left += [(one, other) for key, one, other in pairs if not _count(key, one, other)]
            elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
                left += zip(before, after, strict=True)
            elif before != after:
                return False
        return True


COUNTS = frozenset(("maxReplicas", "minReplicas", "parallelism", "paused", "replicas", "suspend"))
"""The fields that say how many pods a workload has, or whether it has any now. A map under such a name is no count."""


def _described(item: Object) -> Object:
    return {key: value for key, value in item.items() if key != "metadata"}


def _count(key: str, *values: object) -> bool:
    return key in COUNTS and all(value is None or isinstance(value, int) for value in values)


@immutable
class Pod:
    """A pod, or a pod template of a workload (`template`), with the paths of its metadata and spec in the object.

    `node_terms` are the terms of its required node affinity; None if it has none. `old` is the pod before an update.
    `requester` is the user who sent it: for most pods a controller.
    """

    spec: Object
    annotations: Mapping[str, Any]
    labels: Mapping[str, Any]
    containers: tuple[Container, ...]
    node_selector: Mapping[str, str]
    node_terms: tuple[NodeAffinityTerm, ...] | None
    metadata_path: Path
    spec_path: Path
    namespace: str
    template: bool
    daemon: bool = False
    """Whether it is the template of a DaemonSet."""
    requester: Requester | None = None
    old: "Pod | None" = None
    partial: bool = False
    """Whether another object, or the namespace that uses it, defines the rest of the pod, including its trust."""
    metadata_only: bool = False
    """Whether the object says only the metadata of its pods, and another object has their template."""
    unread: str = ""
    """Why a text that changes the pod cannot be read. Empty if it can be read, or if there is no such text."""
    whole: Object = field(default_factory=dict)
    """The object itself: the pod, or the object that contains its template."""
    kind: str = "Pod"
    """The kind of that object."""
    elsewhere: Mapping[Path, Elsewhere] = field(default_factory=dict)
    """Where parts of the view are in the object, if they are not at their own paths."""
    update: Update | None = None
    """The update of the whole object; None for a new object."""

    @cached_property
    def chosen_keys(self) -> frozenset[str]:
        """The keys of all labels that the node selector and the terms of the node affinity name."""
        terms = (term.expressions or () for term in self.node_terms or ())
        return frozenset(chain(self.node_selector, (each.key for expressions in terms for each in expressions)))

    @cached_property
    def tolerated_keys(self) -> frozenset[str]:
        """The keys of the taints that the pod tolerates; an empty key stands for every taint."""
        return frozenset(string(each.get("key")) for each in self.tolerations)

    @cached_property
    def possible_terms(self) -> tuple[PossibleTerm, ...]:
        """The terms of the node affinity that some node could match, given the pod's node selector."""
        found = []
        for term in self.node_terms or ():
            if term.expressions is not None:
                groups = by_key(term.expressions)
                for own in equals({key: self.node_selector[key] for key in groups if key in self.node_selector}):
                    groups[own.key].append(own)
                values = {key: Values.of(group) for key, group in groups.items()}
                if all(each.possible for each in values.values()):
                    found.append(PossibleTerm(term, values))
        return alike(self.node_terms or (), found)

    @cached_property
    def read_terms(self) -> tuple[NodeSelectorTerm, ...]:
        """The terms of the node affinity as the scheduler reads them. A term that it cannot read matches no node."""
        terms = (each for each in self.node_terms or () if each.expressions is not None)
        read = (NodeSelectorTerm(each.expressions or (), each.fields) for each in terms)
        return tuple(term if term.readable else NOWHERE for term in read)

    def located(self, path: Path) -> tuple[Path, Path]:
        """Return the real place in the object of a path of the view.

        If the place is inside a text, return the path of the text, and the path inside it.
        """
        for length in range(len(path), -1, -1) if self.elsewhere else ():
            at = self.elsewhere.get(path[:length])
            if at is not None:
                return (at.path, path[length:]) if at.text else ((*at.path, *path[length:]), ())
        return path, ()

    def malformed(self, error: Malformed) -> Malformed:
        """Return an error about a path of this view, as an error about the path in the object."""
        path, within = self.located(error.path)
        return Malformed(path, f"{dotted(within)}: {error.message}" if within else error.message)

    @property
    def service_account(self) -> str:
        """The pod's service account; `default` if unset.

        The field `serviceAccount` is the old name of `serviceAccountName`.
        """
        spec, at = self.spec, self.spec_path
        return text(spec, "serviceAccountName", at) or text(spec, "serviceAccount", at) or "default"

    @property
    def parameter_name(self) -> str:
        """The name of an annotation with a template parameter in it, which may become any name; empty if there is none.

        Argo fills parameters into the text of a template, names included (argo-workflows workflow/common/util.go,
        SubstituteParams). In a pod itself no name has braces.
        """
        return next((name for name in self.annotations if "{{" in name), "") if self.template else ""

    @property
    def mirror(self) -> bool:
        """Whether the pod is annotated as the mirror of a static pod. The kubelet runs the static pod in any case."""
        return MIRROR in self.annotations

    @property
    def kubelets_own(self) -> bool:
        """Whether a kubelet sent this mirror pod.

        The annotation by itself proves nothing, because anyone can write it.
        """
        return self.mirror and self.requester is not None and KUBELETS in self.requester.groups

    @property
    def exchanged(self) -> bool:
        """Whether an update changed the pod's images or added containers.

        The API server allows no other change of its code.
        """
        return self.old is not None and [*map(_runs, self.containers)] != [*map(_runs, self.old.containers)]

    @property
    def tolerations(self) -> list[Object]:
        """The pod's tolerations."""
        return maps(self.spec, "tolerations", self.spec_path)

    def at(self, part: str, *keys: str | int) -> Path:
        """Return the path from the root of the object to a place in the pod's `metadata` or `spec`."""
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
    """Return the view of a pod, or of a pod `template`, from its metadata and spec and their paths in `item`.

    `more` are containers of the pod that are in no list of a PodSpec.
    """
    selector = section(spec, "nodeSelector", spec_path)
    if not _TEXTS.issuperset(map(type, selector.values())):
        # An API server reads a null label as an empty one; a kind without a schema keeps the null.
        selector = {key: text(selector, key, (*spec_path, "nodeSelector")) for key in selector}
    # A controller creates a template's pods in its own namespace.
    own = section(item, "metadata", ())
    return Pod(
        spec=spec,
        annotations=section(metadata, "annotations", metadata_path),
        labels=section(metadata, "labels", metadata_path),
        containers=watched([*_containers(spec, spec_path), *more], allowance),
        node_selector=selector,
        node_terms=_node_terms(spec, spec_path, allowance),
        metadata_path=metadata_path,
        spec_path=spec_path,
        namespace=request.namespace or text(own, "namespace", ("metadata",)) or "default",
        template=template,
        daemon=template and request.kind == "DaemonSet",
        requester=request.requester,
        whole=item,
        kind=request.kind,
    )


def _node_terms(spec: Object, at: Path, allowance: Allowance) -> tuple[NodeAffinityTerm, ...] | None:
    if spec.get(REQUIRED_AFFINITY[1]) is None:  # most pods
        return None
    required = spec
    for depth, key in enumerate(REQUIRED_AFFINITY[1:-1]):
        if required.get(key) is None:
            return None
        required = section(required, key, (*at, *REQUIRED_AFFINITY[1 : depth + 1]))
    path = (*at, *REQUIRED_AFFINITY[1:])
    terms = [
        _term(as_map(term, (*path, index)), (*path, index))
        for index, term in enumerate(items(required, REQUIRED_AFFINITY[-1], path[:-1]))
    ]
    return watched(terms, allowance, cost=sum(term.written for term in terms))


def _term(term: Object, path: Path) -> NodeAffinityTerm:
    expressions, fields = (tuple(_requirements(term, part, path)) for part in ("matchExpressions", "matchFields"))
    return NodeAffinityTerm(path, expressions if expressions or fields else None, fields)


def _runs(container: Container) -> tuple[str, str, object]:
    return container.list_name, container.name, container.spec.get("image")


def _containers(spec: Object, at: Path) -> list[Container]:
    return [
        Container(as_map(container, path := (*at, name, index)), path, name)
        for name in CONTAINER_LISTS
        if spec.get(name) is not None
        for index, container in enumerate(items(spec, name, at))
    ]


def _requirements(term: Object, part: str, path: Path) -> Iterator[Requirement]:
    path = (*path, part)
    for index, item in enumerate(items(term, part, path[:-1])):
        at = (*path, index)
        expression = as_map(item, at)
        values = items(expression, "values", at)
        if not all(isinstance(value, str) for value in values):
            raise Malformed((*at, "values"), "must be a list of strings")
        yield Requirement(text(expression, "key", at), text(expression, "operator", at), frozenset(values))
