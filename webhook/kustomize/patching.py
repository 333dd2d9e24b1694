"""Changes objects as kustomize does: strategic merge patches, JSON patches, names, namespaces, labels and images."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from webhook.api.lenient import mapping, mappings, string
from webhook.model import Path

_MERGED = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "ports": ("containerPort", "port"),
}
"""The lists that a strategic merge patch merges, with the keys of their entries (k8s.io/api, patchMergeKey)."""

_DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")
"""The beginnings of keys that are no fields (apimachinery strategicpatch). One such as `${name}` is a field."""

STRATEGIC = frozenset(("", "apps", "batch", "policy", "networking.k8s.io", "rbac.authorization.k8s.io"))
"""The groups whose lists are merged. Of other kinds kustomize knows no schema, and replaces their lists."""


class Unfitting(ValueError):
    """A patch does not fit an object. The message is the reason."""


def merge(value: Any, patch: Any, *, strategic: bool) -> Any:
    """Return a value with a strategic merge patch applied; None if the patch deletes it.

    Sources: sigs.k8s.io/kustomize kyaml/yaml/merge2, and apimachinery strategicpatch for `$patch`.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    directive = patch.get("$patch")
    if directive == "delete":
        return None
    own = {key: each for key, each in patch.items() if not key.startswith(_DIRECTIVES)}
    if directive == "replace" or not isinstance(value, dict):
        return {key: merge(None, each, strategic=strategic) for key, each in own.items() if each is not None}
    merged = dict(value)
    for key, each in own.items():
        if each is None:
            merged.pop(key, None)
        elif isinstance(each, list):
            merged[key] = _merged_list(merged.get(key), each, _MERGED.get(key, ()) if strategic else (), strategic)
        else:
            result = merge(merged.get(key), each, strategic=strategic)
            if result is None:
                merged.pop(key, None)
            else:
                merged[key] = result
    return merged


def _merged_list(value: Any, patch: list[Any], keys: tuple[str, ...], strategic: bool) -> list[Any]:
    key = next((key for key in keys if all(isinstance(each, dict) and key in each for each in patch)), None)
    entries = [each for each in patch if not (isinstance(each, dict) and each.get("$patch") == "replace")]
    if key is None or not isinstance(value, list) or len(entries) < len(patch):
        return [merge(None, each, strategic=strategic) for each in entries]
    # What the patch has comes first (kyaml yaml/walk/associative_sequence.go, elementValues).
    left, result = list(value), list[Any]()
    for each in patch:
        at = next((i for i, old in enumerate(left) if isinstance(old, dict) and old.get(key) == each[key]), None)
        made = merge(None if at is None else left.pop(at), each, strategic=strategic)
        result += [] if made is None else [made]
    return [*result, *left]


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


def named(value: Mapping[str, Any], prefix: str, suffix: str) -> Mapping[str, Any]:
    """Return an object with another name."""
    metadata = mapping(value.get("metadata"))
    return {**value, "metadata": {**metadata, "name": f"{prefix}{string(metadata.get('name'))}{suffix}"}}


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
    """Return an object with more labels or annotations. With `templates`, the templates of its pods get them too."""
    metadata = mapping(value.get("metadata"))
    result = {**value, "metadata": {**metadata, field: {**mapping(metadata.get(field)), **entries}}}
    spec = mapping(value.get("spec"))
    for key in ("template", "jobTemplate") if templates else ():
        if isinstance(spec.get(key), dict):
            inner = marked(spec[key], entries, templates=key == "jobTemplate", field=field)
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


def _is_followed(pattern: str) -> bool:
    """Whether a pattern means the same to Go and to Python, and has so few repeats that it does not take for ever."""
    if len(pattern) > _LONGEST or len(re.findall(r"[*+{?]", pattern)) > _REPEATS or _OTHERWISE.search(pattern):
        return False
    try:
        return bool(re.compile(pattern))
    except (re.error, RecursionError, OverflowError):
        return False


_OTHERWISE = re.compile(r"\\[^.dsw-]|\[\[|\(\?(?![:i])|[*+?}]\+")
"""Parts of patterns that Go and Python read differently: most escapes, named classes, most groups with options."""


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


def generated(entry: Mapping[str, Any], texts: Iterator[tuple[str, str]]) -> Mapping[str, Any]:
    """Return the ConfigMap that a generator makes of some texts by their keys."""
    options = mapping(entry.get("options"))
    metadata = {key: mapping(options[key]) for key in ("labels", "annotations") if options.get(key)}
    if entry.get("namespace"):
        metadata["namespace"] = entry["namespace"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": string(entry.get("name")), **metadata},
        "data": dict(texts),
    }


def label_sets(kustomization: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the labels that a kustomization adds, and whether pods' templates get them too."""
    if common := mapping(kustomization.get("commonLabels")):
        yield common, True
    for each in mappings(kustomization.get("labels")):
        yield mapping(each.get("pairs")), bool(each.get("includeSelectors") or each.get("includeTemplates"))
