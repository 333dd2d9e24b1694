"""Defines the parts of a kustomization that was followed: objects with their documents, patches, and missing parts."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, string
from webhook.documents.documents import Document
from webhook.documents.files import Item
from webhook.kustomize import patching
from webhook.kustomize.origins import Layer, Rendered
from webhook.model import Object, Path, immutable


class Id(NamedTuple):
    """The kind, the name and the namespace by which a patch finds an object. No namespace is the same as `default`.

    Source: kustomize kyaml/resid/resid.go, EffectiveNamespace.
    """

    kind: str
    name: str
    namespace: str


@immutable
class Built:
    """An object that a kustomization makes, its `first` id and all that it had before, and its source documents.

    `prefixes` and `suffixes` are those that its name got, from the inside out. If a change left the id as it was, that
    id is among the `past` ones, too.
    """

    value: Object
    first: Id
    layers: tuple[Layer, ...]
    past: frozenset[Id] = frozenset()
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    @property
    def last(self) -> Id:
        """The id that it has now."""
        return id_of(self.value)

    def become(self, value: Object, *layers: Layer) -> "Built":
        """Return the object with a new value, and with the documents that changed it."""
        return replace(self, value=value, layers=(*self.layers, *layers))

    def moved(self, value: Object, *layers: Layer, prefix: str = "", suffix: str = "") -> "Built":
        """Return the object with a new value that may have another id, and with a new part of its name."""
        prefixes = (*self.prefixes, prefix) if prefix else self.prefixes
        suffixes = (*self.suffixes, suffix) if suffix else self.suffixes
        past = self.past | {self.last}
        return replace(self.become(value, *layers), past=past, prefixes=prefixes, suffixes=suffixes)

    def fits(self, other: "Built", *, empty: bool) -> bool:
        """Whether two names got the same parts, as far as both got some; with `empty`, one may have got none.

        Source: kustomize api/resource/resource.go, PrefixesSuffixesEquals.
        """
        pairs = (self.prefixes, other.prefixes), (self.suffixes, other.suffixes)
        return all((empty and not (one and two)) or _ends_alike(one, two) for one, two in pairs)

    def rendered(self, root: str) -> Rendered:
        """Return the object as an item of its resource's document."""
        return Rendered(self.layers[0].document, (), self.value, root=root, layers=self.layers)


@immutable
class Kustomization:
    """A kustomization: its value, the folder to which its paths are relative, and the place of its fields.

    A Kustomization of Flux, and the kustomize options of an Application, have this form too. `namespace` is the one
    that helm gets for its charts, if they name none: its own, or that of the nearest kustomization around it. If it is
    `versioned`, helm gets the version of the cluster too, as from Argo CD.
    """

    folder: str
    value: Mapping[str, Any]
    document: Document
    base: Path = ()
    namespace: str = ""
    versioned: bool = False


class ChartEntry(NamedTuple):
    """A chart that a kustomization includes: its file, the entry of its `helmCharts`, and what helm gets for it.

    That is a namespace, of which an entry without one has as many as the kustomizations around it give, and whether it
    gets the version of the cluster.
    """

    file: str
    number: int
    namespace: str = ""
    versioned: bool = False


ChartObjects = Mapping[ChartEntry, Sequence[Item]]
"""The objects that helm made of the charts of kustomizations."""


@immutable
class Followed:
    """All that was followed of a root: its objects, the folders and files in it, and the reasons for what is missing.

    `remote` are references to other places. `unfollowed` are fields that only the program follows. `blocked` are files
    and references by which the program might read from a network, or never end: with them it does not run. Nor does it
    with references that lead `outside` of the repository, which it would follow from its copy of the files. `absent`
    are files that are nowhere, `charts` are those whose objects were not given, `deleted` are files with objects that
    a patch deletes, `idle` are the places of patches that select nothing, and `too_large` says why it was not followed
    to its end. `before` are objects of other folders as they were before a kustomization, or an object of Flux or Argo
    CD, changed or deleted them. `written` are all objects of files as they are written.
    """

    objects: list[Built] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    unseen: list[str] = field(default_factory=list)
    remote: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    charts: list[ChartEntry] = field(default_factory=list)
    unfollowed: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    absent: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)
    before: list[Built] = field(default_factory=list)
    written: list[Built] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether all objects were found, as far as the files show."""
        return not (self.unseen or self.absent or self.remote or self.charts or self.unfollowed)


class Patch(NamedTuple):
    """A patch in a document, or at a path of it.

    It applies to the objects that its target selects, else to those it names.
    """

    document: Document
    base: Path = ()
    target: Mapping[str, Any] | None = None

    @property
    def value(self) -> Any:
        """The patch: a map to merge, or a list of operations."""
        value: Any = self.document.value
        for key in self.base:
            value = value[key]
        return value

    def selects(self, each: Built) -> bool:
        """Whether the patch changes an object."""
        if self.target is not None:
            ends = (each.first, each.last)
            names, namespaces = frozenset(one.name for one in ends), [one.namespace for one in ends]
            return patching.selects(self.target, each.value, names, namespaces)
        patch = mapping(self.value)
        if patch.get("apiVersion") != each.value.get("apiVersion"):
            return False
        named = id_of(patch)
        return named in each.past or named == each.last


def is_list(value: Any) -> bool:
    """Whether kustomize opens an object, of any kind that ends in List (api/resource/factory.go)."""
    one = mapping(value)
    return string(one.get("kind")).endswith("List") and isinstance(one.get("items"), list)


def opened(documents: Iterable[Document], target: Mapping[str, Any] | None = None) -> Iterator[Patch]:
    """Yield the patches in some documents. Those in a List come after the others."""
    left = deque(Patch(document, (), target) for document in documents)
    while left:
        patch = left.popleft()
        value = mapping(patch.value)
        if is_list(value):
            left += (patch._replace(base=(*patch.base, "items", index)) for index in range(len(value["items"])))
        else:
            yield patch


class BuiltIndex:
    """Finds the followed object that corresponds to a rendered one, by kind, name and namespace, at a bounded cost.

    The program may have added a hash to the name (kustomize api/hasher).
    """

    def __init__(self, objects: Iterable[Built]) -> None:
        self._exact, self._named = dict[tuple[str, ...], Built](), dict[tuple[str, ...], Built]()
        for each in objects:
            kind, name, namespace = group_kind(each.value), *name_of(each.value)
            self._exact.setdefault((*kind, name, namespace), each)
            self._named.setdefault((*kind, name), each)

    def find(self, value: Object) -> Built | None:
        """Return the followed object that corresponds to a rendered one."""
        kind, (name, namespace) = group_kind(value), name_of(value)
        found = self._exact.get((*kind, name, namespace))
        for _ in range(_ENDINGS):
            found = found or self._named.get((*kind, name))
            name = name.rpartition("-")[0]
        return found


_ENDINGS = 4
"""How many ends of a name are tried, each after a hyphen: none, a hash, and two of a suffix that was not followed."""


def name_of(value: Object) -> tuple[str, str]:
    """Return the name and namespace of an object."""
    metadata = mapping(value.get("metadata"))
    return string(metadata.get("name")), string(metadata.get("namespace"))


def id_of(value: Object) -> Id:
    """Return the id of an object, or of the object that a patch names."""
    name, namespace = name_of(value)
    return Id(string(value.get("kind")), name, namespace or "default")


def _ends_alike(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    shorter = min(len(one), len(two))
    return one[len(one) - shorter :] == two[len(two) - shorter :] if shorter else one == two


class Renamed:
    """Finds the objects that others refer to by a name that these had before, as kustomize does at its end.

    `looked` counts the comparisons. Sources: kustomize api/filters/nameref/nameref.go; api/resmap/reswrangler.go,
    SubsetThatCouldBeReferencedByResource.
    """

    def __init__(self, objects: Iterable[Built]) -> None:
        self._had = dict[tuple[str, str], list[Built]]()
        self.looked = 0
        for each in objects:
            if patching.is_referred_to(each.value):
                for kind, name in {(past.kind, past.name) for past in each.past}:
                    self._had.setdefault((kind, name), []).append(each)

    def __bool__(self) -> bool:
        return bool(self._had)

    def find(self, of: Built, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return the object that another one means by a kind and a name, and maybe a namespace."""
        found = self._had.get((kind, name), [])
        self.looked += len(found)
        if namespace is not None:
            found = [each for each in found if each.first.namespace == namespace] or [
                each for each in found if each.last.namespace == namespace
            ]
        if kind not in _EVERYWHERE and of.first.kind != "ClusterRoleBinding":
            spaces = patching.spaces(of.value) if kind == "ServiceAccount" else ()
            found = [
                each for each in found if each.last.namespace == of.last.namespace or name_of(each.value)[1] in spaces
            ]
        for empty in (True, False):
            if len(found) > 1:
                found = [each for each in found if each.fits(of, empty=empty)]
        return found[0].value if len({name_of(each.value)[0] for each in found}) == 1 else None


_EVERYWHERE = ("PriorityClass", "ClusterRole")
"""The kinds to which the objects of all namespaces refer."""
