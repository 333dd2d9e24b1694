"""Changes objects as kustomize does: strategic merge patches, JSON patches, names, namespaces, labels and images."""

import copy
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.model import Path

_MERGED = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "ports": ("containerPort", "port"),
}
"""The lists that a strategic merge patch merges, with the keys of their entries (k8s.io/api, patchMergeKey)."""

_PAIRED = frozenset(("ports", "topologySpreadConstraints"))
"""The lists whose entries have a second key, so that the first may occur twice."""

_UNSURE = frozenset(("resourceClaims",))
"""The lists that the API merges, and kustomize 5.8 replaces: its schema is that of Kubernetes 1.21."""

_PATCH = "$patch"

_REPLACE = {_PATCH: "replace"}
"""The entry by which a patch replaces a whole list."""

_DIRECTIVES = (_PATCH, "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")
"""The beginnings of keys that are no fields (apimachinery strategicpatch). One such as `${name}` is a field."""

STRATEGIC = frozenset(("", "apps", "batch", "policy", "networking.k8s.io", "rbac.authorization.k8s.io"))
"""The groups whose lists are merged. Of other kinds kustomize knows no schema, and replaces their lists."""


class Unfitting(ValueError):
    """A patch does not fit an object. The message is the reason."""


def merge(value: Any, patch: Any, *, strategic: bool) -> Any:
    """Return a value with a strategic merge patch applied; None if the patch deletes it.

    Sources: sigs.k8s.io/kustomize kyaml/yaml/merge2 and walk.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    directive = patch.get(_PATCH)
    if directive == "delete":
        return None
    merged = dict(value) if isinstance(value, dict) and directive != "replace" else {}
    for key, each in patch.items():
        if key.startswith(_DIRECTIVES):
            continue
        keys = _MERGED.get(key, ()) if strategic and isinstance(each, list) else ()
        old = merged.get(key)
        result = _merged_list(old, each, keys) if keys else merge(old, each, strategic=strategic)
        if result is None:
            merged.pop(key, None)
        else:
            merged[key] = result
    return merged


def _merged_list(value: Any, patch: list[Any], keys: tuple[str, ...]) -> list[Any]:
    entries = [each for each in patch if each != _REPLACE]
    key = _key_of(entries, keys)
    if key is None:
        return copy.deepcopy(entries)
    # What the patch has comes first (kyaml yaml/walk/associative_sequence.go, elementValues).
    left, result = list(value) if isinstance(value, list) and len(entries) == len(patch) else [], list[Any]()
    for each in entries:
        at = next((i for i, old in enumerate(left) if isinstance(old, dict) and old.get(key) == each[key]), None)
        made = merge(None if at is None else left.pop(at), each, strategic=True)
        result += [] if made is None else [made]
    return [*result, *left]


def _key_of(entries: list[Any], keys: tuple[str, ...]) -> str | None:
    """Return the first key that all entries have."""
    return next((key for key in keys if all(isinstance(each, dict) and key in each for each in entries)), None)


def merges_object(value: Any, patch: Any, *, strategic: bool) -> bool:
    """Whether kustomize surely makes of an object and a strategic merge patch what `merge` makes of them.

    It replaces no object as a whole, and removes no label or annotation by a null.
    """
    patch = mapping(patch)
    metadata = mapping(patch.get("metadata"))
    own = [metadata[key] for key in ("labels", "annotations") if key in metadata]
    nulls = any(each is None or None in mapping(each).values() for each in own)
    return not nulls and patch.get(_PATCH) != "replace" and merges(value, patch, strategic=strategic)


def merges(value: Any, patch: Any, *, strategic: bool) -> bool:
    """Whether kustomize surely makes of a part of an object and a patch what `merge` makes of them.

    It ignores some directives, keeps others as fields, and drops entries without the key of their list. Lists that no
    schema of kustomize's has are replaced, and may be merged by a later release.
    """
    if not isinstance(patch, dict):
        return True
    directive = patch.get(_PATCH)
    if directive not in (None, "delete", "merge", "replace") or any(_is_odd(key) for key in patch):
        return False
    have = mapping(value) if directive != "replace" else {}
    for key, each in patch.items():
        old = have.get(key)
        if strategic and isinstance(each, list) and not _merges_list(key, old, each):
            return False
        if not merges(old, each, strategic=strategic):
            return False
    return True


def _is_odd(key: str) -> bool:
    return key != _PATCH and key.startswith(_DIRECTIVES)


def _merges_list(field: str, value: Any, patch: list[Any]) -> bool:
    if field in _UNSURE and isinstance(value, list):
        return False
    keys = _MERGED.get(field)
    if keys is None:
        return True
    entries = [each for each in patch if each != _REPLACE]
    replaces = len(patch) - len(entries)
    key = _key_of(entries, keys)
    if key is None or replaces > isinstance(value, list):
        return False
    directives = [each.get(_PATCH) for each in entries]
    if replaces and any(directives):
        return False
    old = {str(each.get(key)): each for each in mappings(value)} if not replaces else {}
    names = [str(each[key]) for each in entries]
    if field not in _PAIRED and (len({*names}) < len(names) or (old and len(old) < len(value))):
        return False  # an entry occurs twice, or has no key
    # A whole entry that is there already is not replaced: the old one takes its place again.
    if any(name in old and directive == "replace" for name, directive in zip(names, directives, strict=True)):
        return False
    return all(merges(old.get(name), each, strategic=True) for name, each in zip(names, entries, strict=True))


def operate(value: Any, operation: Mapping[str, Any]) -> Path:
    """Apply one operation of a JSON patch (RFC 6902) to a value, in place. Returns the path written.

    Raises Unfitting, and then changes nothing.
    """
    pointer, kind = string(operation.get("path")), operation.get("op")
    steps = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    if not steps:
        raise Unfitting("a patch of the whole object")
    holder, path = value, list[str | int]()
    for step in steps[:-1]:
        key = _key(holder, step, pointer)
        if isinstance(holder, dict) and key not in holder:
            raise Unfitting(f"{pointer} is not there")
        holder = holder[key]
        path.append(key)
    if isinstance(holder, list) and steps[-1] == "-" and kind == "add":
        holder.append(copy.deepcopy(operation.get("value")))
        return (*path, len(holder) - 1)
    key = _key(holder, steps[-1], pointer, end=kind == "add")
    if kind == "remove":
        if isinstance(holder, dict) and key not in holder:
            raise Unfitting(f"{pointer} is not there")
        del holder[key]
    elif kind == "add" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(operation.get("value")))
    elif kind in ("add", "replace"):  # of a map both do the same (evanphx/json-patch v4, partialDoc)
        holder[key] = copy.deepcopy(operation.get("value"))
    elif kind != "test":
        raise Unfitting(f"{kind} is not followed")
    return (*path, key)


def _key(holder: Any, step: str, pointer: str, *, end: bool = False) -> Any:
    if isinstance(holder, dict):
        return step
    if isinstance(holder, list) and step.isascii() and step.isdigit() and int(step) < len(holder) + end:
        return int(step)
    raise Unfitting(f"{pointer} is not there")


def identified(value: Mapping[str, Any], old: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object with the identity that it had before a patch (kustomize api/resource, ApplySmPatch)."""
    own = {key: each for key, each in mapping(value.get("metadata")).items() if key not in _NAMES}
    had = {key: each for key, each in mapping(old.get("metadata")).items() if key in _NAMES}
    return {**value, "apiVersion": old.get("apiVersion"), "kind": old.get("kind"), "metadata": {**own, **had}}


_NAMES = ("name", "namespace")


def named(value: Mapping[str, Any], prefix: str = "", suffix: str = "") -> Mapping[str, Any]:
    """Return an object with another name."""
    metadata = mapping(value.get("metadata"))
    return {**value, "metadata": {**metadata, "name": f"{prefix}{string(metadata.get('name'))}{suffix}"}}


def referring(value: Mapping[str, Any], own: str, find: Callable[[str, str, str | None], Any]) -> Mapping[str, Any]:
    """Return an object that refers to others by their new names: `find` finds one by its kind, name and namespace.

    The object's `own` kind is its first one. Sources: kustomize
    api/internal/konfig/builtinpluginconsts/namereference.go, api/internal/accumulator/namereferencetransformer.go.
    """

    def renamed(kind: str, name: Any) -> Any:
        found = find(kind, name, None) if isinstance(name, str) else None
        return found["metadata"]["name"] if found else name

    def subject(each: Any) -> Any:
        one = mapping(each)
        found = find("ServiceAccount", string(one.get("name")), one.get("namespace"))
        return {**one, **{key: found["metadata"][key] for key in _NAMES if key in found["metadata"]}} if found else each

    group, _, version = string(value.get("apiVersion")).rpartition("/")
    for kind, path in _REFERENCES if own in _PODS else ():
        if own not in _UNREWRITTEN[kind] and not (own == "Pod" and kind == "ConfigMap" and version != "v1"):
            value = _rewritten(value, (*_PODS[own], *path), partial(renamed, kind))
    if own in ("RoleBinding", "ClusterRoleBinding") and group == _RBAC:
        role = string(mapping(value.get("roleRef")).get("kind"))
        value = _rewritten(value, ("roleRef", "name"), partial(renamed, role))
        value = _rewritten(value, ("subjects",), subject)
    return value


def spaces(value: Mapping[str, Any]) -> list[Any]:
    """Return the namespaces of the accounts that a RoleBinding names."""
    subjects = mappings(value.get("subjects")) if value.get("kind") == "RoleBinding" else []
    return [each["namespace"] for each in subjects if each.get("kind") == "ServiceAccount" and "namespace" in each]


def _rewritten(value: Any, path: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        made = [_rewritten(each, path, change) for each in value]
        return value if made == value else made
    if not path:
        return change(value)
    old = value.get(path[0]) if isinstance(value, dict) else None
    new = old if old is None else _rewritten(old, path[1:], change)
    return value if new == old else {**value, path[0]: new}


_PODS = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(
        ("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"),
        ("spec", "template", "spec"),
    ),
}
"""Where the kinds whose references are rewritten have the spec of their pods."""

_REFERENCES = (
    ("ServiceAccount", ("serviceAccountName",)),
    ("PriorityClass", ("priorityClassName",)),
    ("PersistentVolumeClaim", ("volumes", "persistentVolumeClaim", "claimName")),
    ("ConfigMap", ("volumes", "configMap", "name")),
    ("ConfigMap", ("volumes", "projected", "sources", "configMap", "name")),
    *(
        ("ConfigMap", (containers, *path, "name"))
        for containers in ("containers", "initContainers")
        for path in (("env", "valueFrom", "configMapKeyRef"), ("envFrom", "configMapRef"))
    ),
)
"""The kinds that pods refer to, and where. Secrets have no part here, because they are not judged."""

_UNREWRITTEN = {
    **dict.fromkeys(("ServiceAccount", "PriorityClass", "PersistentVolumeClaim"), ("PodTemplate", "ReplicaSet")),
    "ConfigMap": ("ReplicationController",),
}
"""The kinds with pods of which kustomize leaves the references to a kind as they are."""

_RBAC = "rbac.authorization.k8s.io"

_GROUPS = {"PriorityClass": "scheduling.k8s.io", "Role": _RBAC, "ClusterRole": _RBAC}
"""The groups of the kinds that are referred to; others may have any."""


def is_referred_to(value: Mapping[str, Any]) -> bool:
    """Whether pods and bindings may refer to an object by a name that kustomize rewrites."""
    group, _, version = string(value.get("apiVersion")).rpartition("/")
    kind = string(value.get("kind"))
    own = _GROUPS.get(kind, group)
    return own == group and (kind in ("Role", "ClusterRole") or (kind in _UNREWRITTEN and version == "v1"))


def placed(value: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """Return an object moved to another namespace."""
    return {**value, "metadata": {**mapping(value.get("metadata")), "namespace": namespace}}


def unplaced(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object without its namespace."""
    metadata = mapping(value.get("metadata"))
    if "namespace" not in metadata:
        return value
    return {**value, "metadata": {key: each for key, each in metadata.items() if key != "namespace"}}


def marked(
    value: Mapping[str, Any], entries: Mapping[str, Any], *, templates: bool, field: str = "labels"
) -> Mapping[str, Any]:
    """Return an object with more labels or annotations. With `templates`, the templates of its pods get them too.

    Only those of some kinds do (kustomize api/internal/konfig/builtinpluginconsts/commonannotations.go).
    """
    group, kind = group_kind(value)
    templates = templates and kind in _TEMPLATED and _TEMPLATED[kind] in (None, group)
    return _marked(value, entries, templates=templates, field=field)


_TEMPLATED = {
    **dict.fromkeys(("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet")),
    "ReplicationController": "",
    "Job": "batch",
    "CronJob": "batch",
}
"""The kinds whose templates of pods get labels and annotations, with their groups; None for any."""


def _marked(value: Mapping[str, Any], entries: Mapping[str, Any], *, templates: bool, field: str) -> Mapping[str, Any]:
    metadata = mapping(value.get("metadata"))
    result = {**value, "metadata": {**metadata, field: {**mapping(metadata.get(field)), **entries}}}
    spec = mapping(value.get("spec"))
    for key in ("template", "jobTemplate") if templates else ():
        if isinstance(spec.get(key), dict):
            inner = _marked(spec[key], entries, templates=key == "jobTemplate", field=field)
            result["spec"] = {**spec, key: inner}
    return result


def with_images(value: Any, images: list[Mapping[str, Any]]) -> Any:
    """Return a value whose containers have the images that a kustomization writes (api/filters/imagetag)."""
    if isinstance(value, list):
        return [with_images(each, images) for each in value]
    if not isinstance(value, dict):
        return value
    result = {key: with_images(each, images) if isinstance(each, (dict, list)) else each for key, each in value.items()}
    for key in ("containers", "initContainers"):
        if isinstance(result.get(key), list):
            result[key] = [_with_image(each, images) for each in result[key]]
    return result


def _with_image(container: Any, images: list[Mapping[str, Any]]) -> Any:
    image = container.get("image") if isinstance(container, dict) else None
    if not isinstance(image, str):
        return container
    for each in images:
        name, tag = _split(image)
        if name == each.get("name"):
            name = string(each.get("newName")) or name
            if digest := string(each.get("digest")):
                tag = f"@{digest}"
            elif "newTag" in each:
                tag = f":{each['newTag']}"
            image = name + tag
    return {**container, "image": image}


def _split(image: str) -> tuple[str, str]:
    found = re.fullmatch(r"(.*?)((?::[\w.-]*)?(?:@[^@]*)?)", image.rpartition("/")[2])
    before = image[: len(image) - len(image.rpartition("/")[2])]
    return (before + found[1], found[2]) if found else (image, "")


def selects(
    target: Mapping[str, Any], value: Mapping[str, Any], names: frozenset[str], namespaces: Iterable[str] = ()
) -> bool:
    """Whether a patch's target selects an object that has or had some names, and had some namespaces.

    Source: kustomize api/resmap/reswrangler.go (Select), kyaml/resid (EffectiveNamespace).
    """
    metadata = mapping(value.get("metadata"))
    group, _, version = string(value.get("apiVersion")).rpartition("/")
    pairs = (
        (target.get("group"), [group]),
        (target.get("version"), [version]),
        (target.get("kind"), [string(value.get("kind"))]),
        (target.get("name"), [*names]),
        (target.get("namespace"), [each or "default" for each in (string(metadata.get("namespace")), *namespaces)]),
    )
    if not all(not isinstance(want, str) or not want or _any(want, have) for want, have in pairs):
        return False
    return _has(target.get("labelSelector"), metadata.get("labels")) and _has(
        target.get("annotationSelector"), metadata.get("annotations")
    )


def _any(pattern: str, texts: list[str]) -> bool:
    """Whether a pattern fits a text as a whole. One that is not followed is a plain text."""
    return any(re.fullmatch(pattern, text) for text in texts) if _is_followed(pattern) else pattern in texts


def reads(target: Mapping[str, Any]) -> bool:
    """Whether each field of a patch's target is followed."""
    patterns, selectors = ({key: string(target.get(key)) for key in keys} for keys in (_PATTERNS, _SELECTORS))
    known = {*patterns, *selectors}.issuperset(key for key, each in target.items() if each)
    return known and all(map(_is_followed, patterns.values())) and all(map(_SELECTOR.fullmatch, selectors.values()))


_PATTERNS, _SELECTORS = ("group", "version", "kind", "name", "namespace"), ("labelSelector", "annotationSelector")


_BOOLEANS = ("true", "false")
"""How keys such as `on` and `n` are read, which kustomize keeps as texts."""


def is_sure(target: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Whether an object shows what a target's selectors read: kustomize keeps words such as `yes` as texts."""
    metadata = mapping(value.get("metadata"))
    pairs = zip(_SELECTORS, (metadata.get("labels"), metadata.get("annotations")), strict=True)
    return all(
        isinstance(each, str) and word not in _BOOLEANS
        for key, have in pairs
        if target.get(key)
        for word, each in mapping(have).items()
    )


def _is_followed(pattern: str) -> bool:
    """Whether a pattern means the same to Go and to Python, and has so few repeats that it does not take for ever."""
    if len(pattern) > _LONGEST or len(re.findall(r"[*+{?]", pattern)) > _REPEATS or _OTHERWISE.search(pattern):
        return False
    try:
        return bool(re.compile(pattern))
    except (re.error, RecursionError, OverflowError):
        return False


_OTHERWISE = re.compile(
    r"\\[^.dsw-]|\[\[|\(\?(?![:i])|[*+?}]\+|&&|--|~~|\|\|"
    r"|\{(?!(?:0|[1-9][0-9]{0,2})(?:,(?:0|[1-9][0-9]{0,2})?)?\})"
)
"""Parts of patterns that Go and Python read differently: most escapes, named classes, most groups with options.

So are repeats such as `{,9}`, which are plain text to Go, and signs that may join sets in later releases of Python.
"""


_LONGEST = 200
"""Characters of the longest pattern of a target."""

_REPEATS = 2
"""Repeats in a pattern. The work grows with the length of a name to this power, and one more."""


_REQUIREMENT = re.compile(
    r"\s*(?:!\s*(?P<without>[^\s,!=()<>]+)|(?P<key>[^\s,!=()<>]+)"
    r"(?:\s*(?P<equal>==|=|!=)\s*(?P<one>[^\s,!=()<>]*)|\s+(?P<among>in|notin)\s*\((?P<some>[^()]*)\))?)\s*(?:,|$)"
)
"""One requirement of a selector of labels (k8s.io/apimachinery pkg/labels/selector.go), but not one with < or >."""

_SELECTOR = re.compile(rf"(?:{_REQUIREMENT.pattern})*\s*")
"""A selector that is followed."""


def _has(selector: Any, labels: Any) -> bool:
    if not isinstance(selector, str) or not selector.strip():
        return True
    have, at = mapping(labels), 0
    while at < len(selector):
        found = _REQUIREMENT.match(selector, at)
        if found is None:  # only kustomize follows it
            return False
        if not _is_met(found, have):
            return False
        at = found.end()
    return True


def _is_met(found: re.Match[str], have: Mapping[str, Any]) -> bool:
    if found["without"]:
        return found["without"] not in have
    value, wanted = have.get(found["key"]), [each.strip() for each in (found["some"] or found["one"] or "").split(",")]
    if found["equal"] == "!=" or found["among"] == "notin":
        return value not in wanted
    return value in wanted if found["equal"] or found["among"] else found["key"] in have


def encoded(data: bytes) -> str:
    """Return the base64 that kustomize writes, with its lines (kyaml/yaml/datamap.go, encodeBase64)."""
    text = b64encode(data).decode()
    lines = [f"{text[at : at + _WIDTH]}\n" for at in range(0, len(text), _WIDTH)]
    return text if len(text) < _WIDTH else "".join(lines)


_WIDTH = 70
"""Characters of a line of base64."""


def generated(entry: Mapping[str, Any], texts: Iterable[tuple[str, str, str]]) -> Mapping[str, Any]:
    """Return the ConfigMap that a generator makes of some texts by their fields and keys."""
    options = mapping(entry.get("options"))
    metadata = {key: mapping(options[key]) for key in ("labels", "annotations") if options.get(key)}
    if entry.get("namespace"):
        metadata["namespace"] = entry["namespace"]
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": string(entry.get("name")), **metadata}}
    fields: dict[str, dict[str, str]] = {"data": {}}
    for field, key, text in texts:
        fields.setdefault(field, {})[key] = text
    return {**made, **fields}


def label_sets(kustomization: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the labels that a kustomization adds, and whether pods' templates get them too."""
    if common := mapping(kustomization.get("commonLabels")):
        yield common, True
    for each in mappings(kustomization.get("labels")):
        yield mapping(each.get("pairs")), bool(each.get("includeSelectors") or each.get("includeTemplates"))
