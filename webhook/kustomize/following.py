"""Computes the objects of kustomizations without running kustomize: resources, patches, generators, names, namespaces.

Sources: sigs.k8s.io/kustomize api/types/kustomization.go for the fields, api/internal/target/kusttarget.go and
kusttarget_configplugin.go for their order.
"""

import copy
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.documents import files, yaml_versions
from webhook.documents.documents import Document, Source, read
from webhook.facts.kinds import CLUSTER_SCOPED
from webhook.kustomize import patching
from webhook.kustomize.followed import (
    Built,
    ChartEntry,
    ChartObjects,
    Followed,
    Kustomization,
    Patch,
    Renamed,
    id_of,
    is_list,
    opened,
)
from webhook.kustomize.origins import ItemLayer, Layer
from webhook.model import Object, Path
from webhook.repository.tree import Tree, Unseen

MAX_OBJECTS = 20_000
"""Maximum number of objects of one kustomization."""

MAX_ALL_OBJECTS = 100_000
"""Maximum objects and files of all kustomizations of a repository, because each could include all others."""

MAX_LOOKS = 10_000_000
"""Maximum number of comparisons of patches with objects in one kustomization: each patch looks at every object."""

FOLLOWED = frozenset(
    (
        *("apiVersion", "kind", "metadata", "buildMetadata", "sortOptions"),
        *("resources", "bases", "components", "helmCharts", "helmGlobals"),
        *("configMapGenerator", "secretGenerator", "generatorOptions"),
        *("patches", "patchesStrategicMerge", "patchesJson6902", "images", "replicas"),
        *("namespace", "namePrefix", "nameSuffix", "labels", "commonLabels", "commonAnnotations"),
    )
)
"""The fields that are followed, or change nothing that is judged.

Only the program follows any others: `replacements`, and those of later releases.
"""

TARGETS = "targets of patches"
"""Stands among the fields that only the program follows for targets that it may read otherwise."""

DIRECTIVES = "parts of merge patches"
"""Stands among these fields for merge patches that kustomize may apply otherwise."""

UNFITTED = "merge patches that fit no object"
"""Stands among these fields for merge patches without a target whose object was not found."""

LISTS = "objects with items"
"""Stands among these fields for lists that kustomize opens otherwise than kubectl."""

LINKS = "links to folders"
"""Stands among these fields for kustomizations behind a link, whose paths begin where the link leads."""

INTERNAL = "kustomize's own annotations"
"""Stands among these fields for annotations with which objects reach kustomize, such as their names before."""

MERGES = "merge keys after other keys"
"""Stands among these fields for merge keys that kustomize reads otherwise than kubectl."""

_PATCH = frozenset(("path", "patch", "target"))

_SOURCES = frozenset(("name", "namespace", "behavior", "literals", "files", "envs", "env", "options", "type"))

_ENTRIES = {
    "patches": _PATCH,
    "patchesJson6902": _PATCH,
    "images": frozenset(("name", "newName", "newTag", "digest")),
    "labels": frozenset(("pairs", "includeSelectors", "includeTemplates")),
    "configMapGenerator": _SOURCES,
    "secretGenerator": _SOURCES,
}
"""The fields that are followed in the entries of a field. Only the program follows others."""

WITHOUT_FILES = frozenset(
    ("configurations", "crds", "labels.fields", "patches.options", "patchesJson6902.options", "images.tagSuffix")
) | {TARGETS, DIRECTIVES, UNFITTED, LISTS, LINKS, INTERNAL, MERGES}
"""The other fields that let the program read no files but those that are named there.

They say in which fields of an object it writes labels, names and the like: in the data of a ConfigMap, too.
"""

_CLUSTER = CLUSTER_SCOPED | {
    ("", "PersistentVolume"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("nvidia.com", "ClusterPolicy"),
}
"""The most common cluster-scoped kinds in repositories."""


def follow(tree: Tree, folder: str, of_charts: ChartObjects = MappingProxyType({})) -> Followed:
    """Compute the objects of the kustomization in a folder.

    Objects of its charts count as resources, as for kustomize.
    """
    found = Followed()
    try:
        follower = _Follower(tree, found, of_charts)
        found.objects.extend(follower.referring(follower.folder(os.path.normpath(folder), [])))
    except Unseen as error:
        found.unseen.append(str(error))
    except _TooLarge as error:
        found.too_large.append(str(error))
    return found


def follow_over(
    tree: Tree, names: Iterable[str], over: Kustomization, of_charts: ChartObjects = MappingProxyType({})
) -> Followed:
    """Compute the objects of files and folders after a kustomization in another object has changed them."""
    found, over = Followed(), replace(over, namespace=_namespace_over(tree, over))
    follower = _Follower(tree, found, of_charts, over)
    try:
        built = [each for name in names for each in follower.under(name, over)]
        made, whole = follower.followed(over, built)
        found.before.extend(_changed(built, made, whole=whole))
        found.objects.extend(follower.referring(made))
    except Unseen as error:
        found.unseen.append(str(error))
    except _TooLarge as error:
        found.too_large.append(str(error))
    return found


def _namespace_over(tree: Tree, over: Kustomization) -> str:
    """Return the namespace of a folder's kustomization after another object has written its own in its place."""
    name = tree.kustomization(over.folder)
    try:
        own = mapping(tree.first(name).value) if name else {}
    except Unseen:
        own = {}
    return string(over.value.get("namespace")) or string(own.get("namespace"))


def replaced(value: Mapping[str, Any], over: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a folder's kustomization without what another object writes in its place, and not over it.

    Sources: fluxcd/pkg kustomize/kustomize_generator.go, GenerateManifest; argo-cd util/kustomize/kustomize.go, Build.
    """
    return {key: each for key, each in value.items() if key not in ("namePrefix", "nameSuffix") or not over.get(key)}


def is_reordered(tree: Tree, over: Kustomization, of_charts: ChartObjects = MappingProxyType({})) -> bool:
    """Whether changes of Flux or Argo CD have another effect in the kustomization of a folder than over it.

    Both write their fields into the folder's own kustomization, whose fields apply in the order of kustomize: first the
    components, then patches, then the namespace and the like (fluxcd/pkg kustomize/kustomize_generator.go, WriteFile;
    argo-cd util/kustomize/kustomize.go, Build).
    """
    name, changes = tree.kustomization(over.folder), {key: over.value[key] for key in _ADDED if over.value.get(key)}
    images = {string(each.get("name")) for each in mappings(over.value.get("images"))}
    namespace, named = string(over.value.get("namespace")), any(map(over.value.get, ("namePrefix", "nameSuffix")))
    try:
        own = mapping(tree.first(name).value) if name and any(map(over.value.get, _WRITTEN)) else {}
    except Unseen:
        return False
    fields = {str(key).lower(): each for key, each in own.items()}  # kustomize ignores case
    if fields.get("configurations") or fields.get("crds"):
        return True  # they say in which fields names and the like are written
    if (namespace or named or images) and fields.get("transformers"):
        return True  # they apply last
    copied = [_copied(each) for each in mappings(fields.get("replacements"))]
    if any((images and "image" in each) or ((namespace or named) and "name" in each) for each in copied):
        return True  # they copy the new value
    if any(not images.isdisjoint((each.get("name"), each.get("newName"))) for each in mappings(own.get("images"))):
        return True  # one of the same name takes its place, and does not see the new one
    if not changes:
        return False
    own = {key: each for key, each in own.items() if each and key != "images"}
    if own.keys() <= _UNORDERED:
        return False
    if not own.keys() <= FOLLOWED or ("helmCharts" in own and "components" in changes):
        return True
    counted = tree.followed
    inside = {**own, **{key: [*sequence(own.get(key)), *sequence(each)] for key, each in changes.items()}}
    inside["namespace"] = namespace or string(own.get("namespace"))
    results = list[list[str]]()
    try:
        for layers in ([inside], [own, {**changes, "namespace": namespace}]):
            follower, above = _Follower(tree, Followed(), of_charts, over), [os.path.normpath(over.folder)]
            built, around = list[Built](), _namespace_over(tree, over)
            for value in layers:
                one = Kustomization(over.folder, value, Document(name, 0, value, 1, Source("", 1)), namespace=around)
                paths = [*sequence(value.get("resources")), *sequence(value.get("bases"))]
                built += (
                    each for path in paths if isinstance(path, str) for each in follower.resource(path, one, above)
                )
                built = follower.transformed(one, built, above)
            results.append(sorted(json.dumps(each.value, sort_keys=True) for each in built))
    except (Unseen, _TooLarge):
        return True
    finally:
        tree.followed = counted
    return results[0] != results[1]


def _copied(replacement: Object) -> frozenset[str]:
    """Return whether a replacement may copy a `name` or a namespace, or an `image` (kustomize api/types, Source)."""
    source = mapping(replacement.get("source"))
    field = string(source.get("fieldPath")) or "metadata.name"
    if replacement.get("path") or field == "metadata" or not re.fullmatch(r"[\w.]+", field):
        return frozenset(("name", "image"))
    if field.startswith("metadata."):
        return frozenset(("name",) if field.startswith("metadata.name") else ())
    return frozenset(("image",))


_ADDED = ("components", "patchesStrategicMerge", "patches", "patchesJson6902")
"""Fields of Flux and Argo CD whose effect depends on the other fields of a kustomization."""

_WRITTEN = (*_ADDED, "namespace", "namePrefix", "nameSuffix", "images")
"""Fields that Flux and Argo CD write into the folder's kustomization."""

_UNORDERED = frozenset(("apiVersion", "kind", "metadata", "buildMetadata", "sortOptions", "resources", "bases"))
"""Fields that apply before all others, in any case."""


def is_namespaced(value: Object) -> bool:
    """Whether an object is in a namespace, as far as its kind is known."""
    return group_kind(value) not in _CLUSTER | {("", "Namespace")}


def is_remote(path: str, folder: str) -> bool:
    """Whether a reference of a kustomization leads to something other than a file, or a folder, next to it.

    kustomize asks a server for http and https. It reads any other file that exists, and takes some references for
    addresses even if a folder has that name (kustomize api/internal/target/kusttarget.go, accumulateResources;
    api/internal/git/repospec.go; api/internal/loader/fileloader.go).
    """
    name = os.path.normpath(os.path.join(folder, path))
    if _SERVED.match(path):
        return True
    if os.path.isfile(name):
        return False
    return bool(_ADDRESS.search(path)) or (bool(_REMOTE.search(path)) and not os.path.lexists(name))


_SERVED = re.compile(r"https?:", re.I)

_ADDRESS = re.compile(
    r"^(?:git::)?(?:(?:https?|ssh|git|file)://|(?:[\w.-]+@)?(?:www\.)?github\.com[:/]|git@"
    r"|[a-z][a-z0-9-]*@[^/:]+[/:][\s\S]*(?:/|\.git))|^gh:",
    re.I,
)

_REMOTE = re.compile(r"://|\?ref=|^git@|^(?:git::|gh:)|^[\w-]+(?:\.[\w-]+)*\.(?:com|org|io|net|dev)/|\.git(?:$|/|\?)")


class _TooLarge(Exception):
    """The work has no bound, as when each of many kustomizations includes the next one twice."""


class _Follower:
    def __init__(self, tree: Tree, found: Followed, of_charts: ChartObjects, over: Kustomization | None = None) -> None:
        self._tree, self._found, self._of_charts, self._over = tree, found, of_charts, over
        self._count, self._looked = 0, 0
        self._apart = False  # it begins with a component, whose patches name objects of what includes it

    def folder(
        self, folder: str, above: list[str], built: list[Built] | None = None, namespace: str = ""
    ) -> list[Built]:
        """Return the objects of a folder's kustomization; a component changes those that are `built`.

        Its charts get the given namespace if it has none (kustomize api/internal/target/kusttarget.go,
        accumulateDirectory).
        """
        if folder in above or len(above) > _DEEPEST:
            self._found.unseen.append(f"{folder} includes itself")
            return built or []
        file = self._tree.kustomization(folder)
        try:
            if not file:
                raise Unseen(f"{folder} has no kustomization.yaml")
            document = self._tree.first(file)
            if not isinstance(document.value, dict):
                raise Unseen(f"{file} is no kustomization")
        except Unseen as error:
            self._found.unseen.append(str(error))
            return built or []
        self._found.folders.add(folder)
        self._found.files.add(file)
        is_linked = os.path.realpath(folder) != os.path.normpath(os.path.join(os.path.realpath("."), folder))
        if is_linked and self._over is None:
            self._found.unfollowed.add(LINKS)
        value = mapping(document.value)
        self._apart = self._apart or (not above and value.get("kind") == "Component")
        namespace = string(value.get("namespace")) or namespace
        if self._over is not None and not above and folder == os.path.normpath(self._over.folder):
            value, namespace = replaced(value, self._over.value), self._over.namespace
        one = Kustomization(folder, value, document, namespace=namespace)
        made = list(built or [])
        for key in ("resources", "bases"):
            for each in sequence(one.value.get(key)):
                if isinstance(each, str):
                    made += self.resource(each, one, [*above, folder])
        self._bounded(made)
        changed, whole = self.followed(one, made, [*above, folder])
        # A component and an overlay change what their repository wants to be changed.
        own = (each for each in made[len(built or ()) :] if folder_of(each) not in self._found.folders)
        self._found.before.extend(_changed(own, changed, whole=whole))
        return changed

    def resource(self, path: str, one: Kustomization, above: list[str]) -> list[Built]:
        """Return the objects of a file, or of a folder with a kustomization."""
        try:
            name = self._path(path, one.folder)
            if self._tree.is_folder(name):
                return self.folder(name, above, namespace=one.namespace)
            return [*self._of_file(name)]
        except Unseen as error:
            self._lacks(error, one, resource=True)
            return []

    def under(self, path: str, over: Kustomization) -> list[Built]:
        """Return the objects of a file or folder that another object deploys, and count the objects of a file."""
        self._counted(1)
        built = self.resource(path, over, [])
        if not self._tree.is_folder(os.path.join(over.folder, path)):
            self._counted(len(built))
        return built

    def _path(self, path: str, folder: str) -> str:
        name = os.path.normpath(os.path.join(folder, path))
        if is_remote(path, folder):
            raise Unseen(path, remote=True)
        if os.path.isabs(path):
            raise Unseen(f"{path} is an absolute path", outside=True)
        self._tree.checked(name)
        return name

    def _lacks(self, error: Unseen, one: Kustomization, *, resource: bool = False) -> None:
        if error.remote:
            self._found.remote.append(str(error))
            is_here = os.path.lexists(os.path.join(one.folder, str(error)))
            if is_here:  # some releases of kustomize read the folder, and others ask for the address
                self._found.unseen.append(f"{error}, which {one.document.file} names, is an address, and a path here")
            if is_here or not resource:
                self._found.blocked.append(str(error))
        elif error.absent:
            self._found.absent.append(f"{str(error).removesuffix(' does not exist')} ({one.document.file})")
        else:
            self._found.unseen.append(f"{error}, which {one.document.file} names")
            if error.outside:
                self._found.outside.append(str(error))

    def _of_file(self, name: str) -> Iterator[Built]:
        documents = self._tree.documents(name)
        self._found.files.add(name)
        items, problems = files.items(documents)
        if problems:
            raise Unseen(f"{problems[0].file}:{problems[0].line}: {problems[0].message}")
        if is_unlike(self._tree.data(name)):
            self._found.unfollowed.add(MERGES)
        if any(_has_items(each.value) and not is_list(each.value) for each in documents):
            self._found.unfollowed.add(LISTS)
        for item in items:
            self._found.written.append(one := _begin(item.value, Layer(item.document, item.base, (), item.value)))
            yield one

    def _bounded(self, built: list[Built]) -> None:
        self._count += len(built) + 1
        if self._count > MAX_OBJECTS:
            raise _TooLarge(f"it makes more than {MAX_OBJECTS:,} objects")
        self._counted(len(built) + 1)

    def _counted(self, number: int) -> None:
        self._tree.followed += number
        if self._tree.followed > MAX_ALL_OBJECTS:
            raise _TooLarge(f"the kustomizations include more than {MAX_ALL_OBJECTS:,} objects; name fewer of them")

    def followed(
        self, one: Kustomization, built: list[Built], above: list[str] | None = None
    ) -> tuple[list[Built], bool]:
        """Return the objects with all that a kustomization changes, and whether all of that was followed."""
        others = {*self._found.unfollowed}
        self._found.unfollowed.clear()
        made = self.transformed(one, built, above)
        whole = not self._found.unfollowed
        self._found.unfollowed.update(others)
        return made, whole

    def transformed(self, one: Kustomization, built: list[Built], above: list[str] | None = None) -> list[Built]:
        """Return the objects with all that a kustomization changes, and those that it generates."""
        value = one.value
        built = [*built, *self._generated(one), *self._inflated(one)]
        for path in sequence(value.get("components")):
            if isinstance(path, str):
                try:
                    built = self.folder(self._path(path, one.folder), above or [], built, one.namespace)
                except Unseen as error:
                    self._lacks(error, one, resource=True)
        built = self._patched(built, one, ("patchesStrategicMerge", "patches"))
        if namespace := string(value.get("namespace")):
            built = [_in(each, namespace) for each in built]
        prefix, suffix = string(value.get("namePrefix")), string(value.get("nameSuffix"))
        if prefix:
            built = [_named(each, prefix=prefix) for each in built]
        if suffix:
            built = [_named(each, suffix=suffix) for each in built]
        for labels, templates in patching.label_sets(value):
            built = [each.become(patching.marked(each.value, labels, templates=templates)) for each in built]
        if own := mapping(value.get("commonAnnotations")):
            built = [
                each.become(patching.marked(each.value, own, templates=True, field="annotations")) for each in built
            ]
        built = self._patched(built, one, ("patchesJson6902",))
        if images := mappings(value.get("images")):
            built = [each.become(patching.with_images(each.value, images)) for each in built]
        self._found.unfollowed.update(key for key, each in value.items() if each and key not in FOLLOWED)
        for key, known in _ENTRIES.items():
            fields = (field for entry in mappings(value.get(key)) for field, each in entry.items() if each)
            self._found.unfollowed.update(f"{key}.{field}" for field in fields if field not in known)
        for key in ("generators", "transformers", "validators", "configurations", "crds"):
            for path in sequence(value.get(key)):
                if isinstance(path, str) and "\n" not in path:
                    self._kept(path, one, loads=key not in ("configurations", "crds"))
        for each in mappings(value.get("replacements")):
            if path := string(each.get("path")):
                self._kept(path, one)
        if path := string(mapping(value.get("openapi")).get("path")):
            self._kept(path, one)
        return built

    def referring(self, built: list[Built]) -> list[Built]:
        """Return the objects, which refer to others by their last names."""
        for each in built:
            annotations = mapping(mapping(each.value.get("metadata")).get("annotations"))
            if any(str(key).startswith(_INTERNAL) for key in annotations):
                self._found.unfollowed.add(INTERNAL)
            if _has_items(each.value):
                self._found.unfollowed.add(LISTS)
        made, renamed = list[Built](), Renamed(built)
        for each in built if renamed else ():
            value = patching.referring(each.value, each.first.kind, partial(renamed.find, each))
            made.append(each if value is each.value else each.become(value))
            if self._looked + renamed.looked > MAX_LOOKS:
                raise _TooLarge(f"its references look at more than {MAX_LOOKS:,} objects")
        return made or built

    def _kept(self, path: str, one: Kustomization, *, loads: bool = False) -> None:
        """Read a file, or the files of a folder, that only the program understands.

        If it `loads` what an address in the file names, a file with an address is `blocked`.
        """
        try:
            name = self._path(path, one.folder)
            for each in self._tree.manifests(name) if self._tree.is_folder(name) else (name,):
                self._counted(1)
                if not self._tree.is_folder(each):
                    if b"://" in self._tree.data(each) and loads:
                        self._found.blocked.append(each)
                    self._found.files.add(each)
            if self._tree.is_folder(name) and (file := self._tree.kustomization(name)):
                document = self._tree.first(file)
                self._found.files.add(file)
                inner = Kustomization(name, mapping(document.value), document)
                for each in sequence(inner.value.get("resources")):  # of any ending
                    if isinstance(each, str) and os.path.isfile(os.path.join(name, each)):
                        self._kept(each, inner, loads=loads)
        except Unseen as error:
            self._lacks(error, one)

    # Generators

    def _inflated(self, one: Kustomization) -> list[Built]:
        made = list[Built]()
        charts, versioned = mappings(one.value.get("helmCharts")), self._over is not None and self._over.versioned
        self._counted(len(charts))
        for number, chart in enumerate(charts):
            namespace = string(chart.get("namespace")) or one.namespace
            entry = ChartEntry(one.document.file, number, namespace, versioned)
            if entry not in self._of_charts:
                self._found.charts.append(entry)
            for item in self._of_charts.get(entry, ()):
                layer = ItemLayer(item.document, (), (), item.value, item=item)
                made.append(_begin(item.value, layer))
        self._bounded(made)
        return made

    def _generated(self, one: Kustomization) -> Iterator[Built]:
        options = mapping(one.value.get("generatorOptions"))
        for index, entry in enumerate(mappings(one.value.get("configMapGenerator"))):
            base: Path = (*one.base, "configMapGenerator", index)
            layers = [Layer(one.document, base, ("metadata",), {"name": entry.get("name")})]
            texts = list[tuple[str, str, str]]()
            for field, key, text, layer in self._texts(one, entry, base):
                texts.append((field, key, text))
                layers.append(layer)
            value = patching.generated({"options": options, **entry}, texts)
            yield _begin(value, *layers)
        for entry in mappings(one.value.get("secretGenerator")):
            for path in (*sequence(entry.get("files")), *sequence(entry.get("envs")), entry.get("env")):
                if isinstance(path, str) and path:
                    self._kept(path.partition("=")[2] or path, one)

    def _texts(self, one: Kustomization, entry: Mapping[str, Any], base: Path) -> Iterator[tuple[str, str, str, Layer]]:
        """Yield the fields, keys and texts of a ConfigMap with their places."""
        for index, each in enumerate(sequence(entry.get("literals"))):
            if isinstance(each, str):
                key, _, text = each.partition("=")
                if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
                    text = text[1:-1]
                yield "data", key, text, Layer(one.document, (*base, "literals", index), ("data", key), text)
        for each in sequence(entry.get("files")):
            if not isinstance(each, str):
                continue
            key, equals, path = each.partition("=")
            key, path = (key, path) if equals else (os.path.basename(each), each)
            try:
                name = self._path(path, one.folder)
                data = self._tree.data(name)
                self._found.files.add(name)
                field, text = "data", data.decode("utf-8")
            except UnicodeDecodeError:
                field, text = "binaryData", patching.encoded(data)
            except Unseen as error:
                self._lacks(error, one)
                continue
            yield field, key, text, Layer(_of_text(name), (), (field, key), text, text=True)
        for each in (*sequence(entry.get("envs")), entry.get("env")):
            if isinstance(each, str) and each:
                yield from self._env(one, each)

    def _env(self, one: Kustomization, path: str) -> Iterator[tuple[str, str, str, Layer]]:
        try:
            name = self._path(path, one.folder)
            text = self._tree.data(name).decode("utf-8", "replace")
        except Unseen as error:
            self._lacks(error, one)
            return
        self._found.files.add(name)
        for row in text.removeprefix("\ufeff").split("\n"):  # as kustomize api/kv/kv.go, keyValuesFromLines
            key, equals, value = row.removesuffix("\r").lstrip().partition("=")
            if equals and not key.startswith("#"):
                yield "data", key, value, Layer(_of_text(name), (), ("data", key), value, text=True)

    # Patches

    def _patched(self, built: list[Built], one: Kustomization, keys: tuple[str, ...]) -> list[Built]:
        """Apply the patches in some fields."""
        for key in keys:
            for index, each in enumerate(sequence(one.value.get(key))):
                base: Path = (*one.base, key, index)
                place = f"{one.document.file}:{one.document.line(base)}"
                built = self._all_patched(built, place, [*self._of_entry(one, base, each)])
        return built

    def _of_entry(self, one: Kustomization, base: Path, each: Any) -> Iterator[Patch]:
        if isinstance(each, str):
            yield from opened(self._texts_of(one, each, base, inline=None))
            return
        entry = mapping(each)
        target = mapping(entry["target"]) if isinstance(entry.get("target"), dict) else None  # an empty one selects all
        if not patching.reads(mapping(target)):
            self._found.unfollowed.add(TARGETS)
        inline = entry.get("patch")
        if isinstance(inline, list):  # Flux has operations, and merges, as values
            yield Patch(one.document, (*base, "patch"), target)
        elif isinstance(inline, str) and inline:
            yield from opened(self._texts_of(one, "", (*base, "patch"), inline=inline), target)
        elif path := string(entry.get("path")):
            yield from opened(self._texts_of(one, path, (), inline=None), target)

    def _texts_of(self, one: Kustomization, path: str, base: Path, *, inline: str | None) -> list[Document]:
        """Return the documents of a patch's file, or of one written in the kustomization, with its lines."""
        if inline is None and ("\n" in path or _is_map(path)):
            inline = path
        if inline is not None:
            if is_unlike(inline.encode("utf-8", "replace")):
                self._found.unfollowed.add(MERGES)
            found, problems = read(inline, one.document.file, max(one.document.line(base, 1), 1))
            if problems:
                self._found.unseen.append(f"{one.document.file}:{problems[0].line}: {problems[0].message}")
            return found
        try:
            name = self._path(path, one.folder)
            documents = self._tree.documents(name)
        except Unseen as error:
            self._lacks(error, one)
            return []
        self._found.files.add(name)
        if is_unlike(self._tree.data(name)):
            self._found.unfollowed.add(MERGES)
        return documents

    def _all_patched(self, built: list[Built], place: str, patches: list[Patch]) -> list[Built]:
        """Apply the patches of an entry. One with a target that selects nothing is idle; kustomize refuses others."""
        fitted = 0
        for patch in patches:
            self._looked += len(built)
            if self._looked > MAX_LOOKS:
                raise _TooLarge(f"its patches look at more than {MAX_LOOKS:,} objects")
            result, before = list[Built](), fitted
            for each in built:
                if patch.target is not None and not patching.is_sure(patch.target, each.value):
                    self._found.unfollowed.add(TARGETS)
                if patch.selects(each):
                    fitted += 1
                    self._looked += len(each.layers)  # it has a layer for each patch before
                    result += self._with_patch(each, patch)
                else:
                    result.append(each)
            built = result
            if built and fitted == before and patch.target is None and patch.value and self._sees(patch.value):
                self._found.unfollowed.add(UNFITTED)
        if patches and not fitted and any(patch.target is not None for patch in patches):
            self._found.idle.append(place)
        return built

    def _sees(self, patch: Any) -> bool:
        """Whether all objects that a patch may name are known. Secrets are not generated here."""
        found = self._found
        missing = self._apart or found.unseen or found.absent or found.remote or found.charts
        return not missing and group_kind(mapping(patch)) != ("", "Secret")

    def _with_patch(self, each: Built, patch: Patch) -> list[Built]:
        if isinstance(patch.value, list):
            return [self._operated(each, patch.document, patch.base, patch.value)]
        if not isinstance(patch.value, dict):
            place = f"{patch.document.file}:{patch.document.line(patch.base)}"
            self._found.unseen.append(f"{place}: the patch does not fit: it is no map and no list")
            return [each]
        return self._merged(each, patch.document, patch.base, patch.value)

    def _operated(self, each: Built, document: Document, base: Path, patch: list[Any]) -> Built:
        value, layers = copy.deepcopy(each.value), list[Layer]()
        for index, operation in enumerate(mappings(patch)):
            try:
                path = patching.operate(value, operation)
            except patching.Unfitting as error:
                line = document.line((*base, index))
                self._found.unseen.append(f"{document.file}:{line}: the patch does not fit: {error}")
                continue
            layers.append(Layer(document, (*base, index, "value"), path, operation.get("value")))
        if not (string(value.get("apiVersion")) and string(value.get("kind")) and mapping(value.get("metadata"))):
            place = f"{document.file}:{document.line(base)}"
            self._found.unseen.append(f"{place}: the patch does not fit: it leaves no apiVersion, kind or metadata")
            return each
        return each.moved(value, *layers)

    def _merged(self, each: Built, document: Document, base: Path, patch: Any) -> list[Built]:
        strategic = group_kind(each.value)[0] in patching.STRATEGIC
        if not patching.merges_object(each.value, patch, strategic=strategic):
            self._found.unfollowed.add(DIRECTIVES)
        value = patching.merge(each.value, patch, strategic=strategic)
        if value is None:
            self._found.deleted.update(
                layer.document.file for layer in (*each.layers, Layer(document, base, (), patch))
            )
            return []
        return [each.become(patching.identified(value, each.value), Layer(document, base, (), patch))]


def is_unlike(data: bytes) -> bool:
    """Whether kustomize may read a merge key in a file otherwise than kubectl does."""
    return (b"<<" in data or b"!" in data) and _is_unlike(data)


def _is_map(text: str) -> bool:
    """Whether a text on one line is a map, such as a patch, and no path."""
    return "{" in text and any(isinstance(each.value, dict) for each in read(text, "")[0])


@lru_cache(64)
def _is_unlike(data: bytes) -> bool:
    return yaml_versions.unlike(data.decode("utf-8", "replace"), scalars=False)


def folder_of(each: Built) -> str:
    """Return the folder of the file that an object is from."""
    return os.path.normpath(os.path.dirname(each.layers[0].document.file))


def _changed(built: Iterable[Built], made: Iterable[Built], *, whole: bool) -> list[Built]:
    """Return the objects that a kustomization changes or deletes; all if it was not followed as a whole."""
    if not whole:
        return [*built]
    found = {id(each.layers[0]): each.value for each in made}
    return [each for each in built if not _is_same(each.value, found.get(id(each.layers[0]), {}))]


def _is_same(before: Object, after: Object) -> bool:
    """Whether an object is the same after a change; one without a namespace may be created in any."""
    return before == (after if mapping(before.get("metadata")).get("namespace") else patching.unplaced(after))


_DEEPEST = 40
"""Maximum length of a chain of kustomizations in which each includes the next."""

_UNNAMED = frozenset(
    (("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition"), ("apiregistration.k8s.io", "APIService"))
)
"""Kinds that keep their names (kustomize api/internal/builtins/PrefixTransformer.go)."""


_INTERNAL = "internal.config.kubernetes.io/"


def _has_items(value: Any) -> bool:
    """Whether kubectl opens an object as a list."""
    return isinstance(mapping(value).get("items"), list)


def _begin(value: Object, *layers: Layer) -> Built:
    return Built(value, id_of(value), layers)


def _named(each: Built, **parts: str) -> Built:
    """Return an object with a prefix or a suffix."""
    key = group_kind(each.value)
    return each if key in _UNNAMED else each.moved(patching.named(each.value, **parts), **parts)


def _in(each: Built, namespace: str) -> Built:
    key = group_kind(each.value)
    if key == ("", "Namespace"):
        metadata = mapping(each.value.get("metadata"))
        return each.moved({**each.value, "metadata": {**metadata, "name": namespace}})
    return each.moved(each.value if key in _CLUSTER else patching.placed(each.value, namespace))


def _of_text(name: str) -> Document:
    return Document(name, 0, None, 1, Source("", 1))
