"""Finds the pod templates in an object: at places that the catalog lists, in nested objects, and in texts."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from webhook.allowance import READ, TEMPLATE, Allowance, TooLarge, characters, weight
from webhook.api.fields import as_kind, as_map, group_kind, section
from webhook.api.lenient import mapping, string
from webhook.api.pods import POD, Container, Elsewhere, Pod, pod_of
from webhook.catalog.places import EACH_ITEM, EACH_VALUE, Part, Template, Workload, Workloads, keys
from webhook.documents.goyaml import parse
from webhook.documents.goyaml_composer import MAX_VALUES
from webhook.documents.goyaml_scalars import plain
from webhook.documents.marks import Unreadable
from webhook.model import Malformed, Object, Path, Request
from webhook.text.words import shown

MAX_NESTED = 100
"""How deep the values of an object may be nested for parameters to be filled in."""

MAX_DEPTH = 4
"""How deep objects may be nested: an AppWrapper with a workflow that creates a job has a depth of 2."""

Find = Callable[[str], Iterator[tuple[Path, Any]]]
"""Yields the values at a place with their paths."""

Found = tuple[Template, Path, Any]
"""A pod template in an object: its row of the table, its path, and its value."""


def found(value: Any, path: Path, place: str) -> Iterator[tuple[Path, Any]]:
    """Yield the values at a place (webhook.catalog.workloads) below a value, with their paths.

    Yields nothing if the path to the place ends early.
    """
    reached: list[tuple[Path, Any]] = [(path, value)]
    for key in keys(place):
        following: list[tuple[Path, Any]] = []
        for at, parent in reached:
            if key == EACH_ITEM:
                following += (((*at, index), item) for index, item in enumerate(as_kind(list, parent, at)))
            elif key == EACH_VALUE:
                following += (((*at, name), item) for name, item in as_map(parent, at).items())
            elif (item := as_map(parent, at).get(key)) is not None:
                following.append(((*at, key), item))
        reached = following
    yield from reached


def shared_cost(item: Object, template: Template) -> int:
    """Return the cost, in units, of the parts outside a template that are added to every pod of the template."""
    at = keys(template.at)
    places = (*template.metadata, template.defaults or "", *(part.place for part in (*template.parts, *template.own)))
    outside = [(keys(place), place) for place in places if place[:1] == "/"]
    total = 0
    for path, place in outside:
        for _, value in found(item, (), place):
            if isinstance(value, dict):
                own = {at[len(path)]} if at[: len(path)] == path else set[str]()
                own |= template.others if place == template.defaults else frozenset()
                value = {key: part for key, part in value.items() if key not in own}
            if isinstance(value, (dict, list)):
                total += weight(value) + characters(value) // READ
            elif isinstance(value, str):
                total += len(value) // READ
    return total


def search(item: Object, template: Template) -> list[Found]:
    """Find the pod templates at one place of an object."""
    return [(template, path, value) for path, value in found(item, (), template.at)]


def paid(item: Object, rows: Iterable[Template], allowance: Allowance) -> list[Found]:
    """Find the pod templates of one object, and pay for each. Raises TooLarge and TooLate."""
    templates: list[Found] = []
    for row in rows:
        there = search(item, row)
        allowance.spend("pod templates", len(there), TEMPLATE + (shared_cost(item, row) if there else 0))
        templates += there
    return templates


def pods(
    request: Request,
    item: Object,
    templates: Iterable[Found],
    workloads: Workloads,
    allowance: Allowance,
    depth: int = MAX_DEPTH,
) -> Iterator[Pod]:
    """Yield the views of all pods that an object of a kind in the table describes, with the `templates` found in it."""
    for pod in _each_pod(request, item, templates, workloads, allowance, depth):
        if workloads[request.group, request.kind].cluster_scoped:
            yield replace(pod, namespace="", partial=True)
        else:
            yield pod


def _each_pod(
    request: Request,
    item: Object,
    templates: Iterable[Found],
    workloads: Workloads,
    allowance: Allowance,
    depth: int,
) -> Iterator[Pod]:
    workload = workloads[request.group, request.kind]
    seen: list[tuple[Template, Pod]] = []
    for template, path, value in templates:
        allowance.look()
        pod = _template(item, request, template, path, value, allowance)
        seen.append((template, pod))
        yield pod
    yield from _without_template(request, item, workload, seen, allowance)
    defaults = _defaults(item, workload)
    for place in workload.objects:
        for path, value in found(item, (), place):
            whole = _filled(value, defaults, allowance) if workload.parameters else value
            yield from _moved(_object(request, item, as_map(whole, path), workloads, allowance, depth, path), path)
    for place in workload.files:
        for path, name in found(item, (), place):
            yield _unread(request, item, path, f"{FILE}, {shown(name)}", allowance)
    for place in (*workload.manifests, *workload.patches):
        for path, value in found(item, (), place):
            yield from _of_text(request, item, workload, place, path, value, workloads, allowance, depth)


def _without_template(
    request: Request, item: Object, workload: Workload, seen: Collection[tuple[Template, Pod]], allowance: Allowance
) -> Iterator[Pod]:
    """Yield a pod for each place outside templates whose annotations no template of the object shows in full.

    Another object, which this one names, has the template, and its pods get these annotations too: those of an Argo
    Workflow with a `workflowTemplateRef`, for example.
    """
    rows: dict[str, Template] = {}
    for template in workload.templates:
        rows |= {place: template for place in template.metadata if place[:1] == "/" and place not in rows}
    for place, template in rows.items():
        for path, value in found(item, (), place):
            metadata = as_map(value, path)
            annotations = section(metadata, "annotations", path)
            if not annotations:
                continue
            defaults = {} if template.defaults is None else dict(_last(found(item, (), template.defaults)))
            spec: Object = {key: defaults[key] for key in ("serviceAccountName", "serviceAccount") if key in defaults}
            allowance.spend("pod templates", 1, TEMPLATE)
            pod = pod_of(item, request, metadata, spec, path, path, allowance, template=True)
            if not any(
                place in row.metadata
                and annotations.items() <= each.annotations.items()
                and (row.defaults is None or each.service_account == pod.service_account)
                for row, each in seen
            ):
                yield replace(pod, partial=True, metadata_only=True)


def _last(values: Iterable[tuple[Path, Any]]) -> Object:
    last: Object = {}
    for path, value in values:
        last = as_map(value, path)
    return last


def _object(
    request: Request, item: Object, inner: Object, workloads: Workloads, allowance: Allowance, depth: int, path: Path
) -> Iterator[Pod]:
    """Yield the pods of an object within an object. A controller creates it, in the same namespace."""
    if not depth:
        raise Malformed(path, f"has objects nested more than {MAX_DEPTH} deep; create them separately")
    group, kind = group_kind(inner)
    namespace = request.namespace or section(item, "metadata", ()).get("namespace") or "default"
    asked = replace(request, group=group, kind=kind, namespace=namespace)
    if (group, kind) == POD:
        allowance.spend("pod templates", 1, TEMPLATE)
        metadata, spec = section(inner, "metadata", ()), section(inner, "spec", ())
        pod = pod_of(inner, asked, metadata, spec, ("metadata",), ("spec",), allowance, template=True)
        yield replace(pod, whole=item, kind=request.kind)
    elif (group, kind) in workloads:
        allowance.spend("pod templates", 1, TEMPLATE)
        templates = paid(inner, workloads[group, kind].templates, allowance)
        for pod in pods(asked, inner, templates, workloads, allowance, depth - 1):
            yield replace(pod, whole=item, kind=request.kind)


def _defaults(item: Object, workload: Workload) -> Mapping[str, str]:
    """Return the values of an object's parameters, by name. A parameter without a value is left as it is."""
    if not workload.parameters:
        return {}
    listed = (mapping(each) for _, each in found(item, (), f"{workload.parameters}.[]"))
    return {string(each.get("name")): value for each in listed if (value := string(each.get("value")))}


def _filled(value: Any, defaults: Mapping[str, str], allowance: Allowance, depth: int = MAX_NESTED) -> Any:
    """Fill in parameters: `${{NAME}}` is a value, and `${NAME}` part of a text (openshift template.go).

    The paths of the values stay as they are. A text is measured and paid for before it is made: a few names can make it
    ten thousand times as long. Raises TooLarge and TooLate.
    """
    if isinstance(value, dict) and depth:
        return {key: _filled(each, defaults, allowance, depth - 1) for key, each in value.items()}
    if isinstance(value, list) and depth:
        return [_filled(each, defaults, allowance, depth - 1) for each in value]
    if not isinstance(value, str) or "${" not in value:
        return value
    if whole := _WHOLE.fullmatch(value):
        text = defaults.get(whole[1])
        if text is None:
            return None
        _pay_for_filled(len(text), allowance)
        return plain(text)
    named = (part for part in _PART.finditer(value) if part[1] in defaults)
    length = len(value) + sum(len(defaults[part[1]]) - len(part[0]) for part in named)
    if length >= _LONGEST:
        return value
    _pay_for_filled(length, allowance)
    return _PART.sub(lambda part: defaults.get(part[1], part[0]), value)


def _pay_for_filled(length: int, allowance: Allowance) -> None:
    allowance.spend("texts with parameters", 1, length // _CHARACTERS)


_WHOLE = re.compile(r"\$\{\{([A-Za-z0-9_]+)\}\}")
_PART = re.compile(r"\$\{([A-Za-z0-9_]+)\}")

_LONGEST = 4096
"""Letters of a text that parameters are filled into."""

_CHARACTERS = 20
"""Characters per unit of a text that parameters are filled into, or that has an object."""


def _of_text(
    request: Request,
    item: Object,
    workload: Workload,
    place: str,
    path: Path,
    text: Any,
    workloads: Workloads,
    allowance: Allowance,
    depth: int,
) -> Iterator[Pod]:
    """Yield the pods in a text of YAML or JSON, which has a whole object or changes to a PodSpec."""
    at = Elsewhere(path, text=True)
    blank: Object = {}
    if not isinstance(text, str):
        raise Malformed(path, "must be a string")
    if not text.strip():
        return
    allowance.spend("pod templates", 1, TEMPLATE + len(text) // _CHARACTERS)
    if _PARAMETER.fullmatch(text.strip()):
        yield _unread(request, item, path, PARAMETER, allowance)
        return
    try:
        value, _ = parse(text, last_key_wins=True, max_values=MAX_VALUES)
        if not isinstance(value, dict):
            raise Unreadable(1, "not a map")
        if place in workload.manifests:
            inner = [*_object(request, item, value, workloads, allowance, depth, ())]
        else:
            pod = pod_of(item, request, blank, value, ("metadata",), (), allowance, template=True)
            inner = [replace(pod, partial=True)]
    except TooLarge:
        raise
    except (Unreadable, Malformed) as error:
        if isinstance(error, Unreadable) or "{{" in text:
            yield _unread(request, item, path, str(error), allowance)
            return
        raise Malformed(path, str(error)) from error
    for pod in inner:
        yield replace(pod, elsewhere={(): at})


def _unread(request: Request, item: Object, path: Path, reason: str, allowance: Allowance) -> Pod:
    """Return a pod for a text that cannot be read: only the reason is known."""
    blank: Object = {}
    pod = pod_of(item, request, blank, blank, ("metadata",), ("spec",), allowance, template=True)
    return replace(pod, partial=True, elsewhere={(): Elsewhere(path, text=True)}, unread=reason)


PARAMETER = "it is a parameter"
"""The reason why a text is not read if only its file name is known."""

_PARAMETER = re.compile(r"\{\{[^{}]*\}\}")

FILE = "it is in a file"
"""The start of the message that a pod template is not read because the text names only its file."""


def _moved(inner: Iterable[Pod], base: Path) -> Iterator[Pod]:
    """Return the pods of a nested object with their paths in the outer object."""
    try:
        for pod in inner:
            moved = {key: each._replace(path=(*base, *each.path)) for key, each in pod.elsewhere.items()}
            yield replace(pod, elsewhere={(): Elsewhere(base), **moved})
    except TooLarge:
        raise
    except Malformed as error:
        raise Malformed((*base, *error.path), error.message) from error


def _template(item: Object, request: Request, template: Template, path: Path, value: Any, allowance: Allowance) -> Pod:
    def find(place: str) -> Iterator[tuple[Path, Any]]:
        return found(item, (), place) if place.startswith("/") else found(value, path, place)

    metadata: dict[str, dict[str, Any]] = {"annotations": {}, "labels": {}}
    metadata_path = (*path, "metadata")
    for place in template.metadata:
        for at, part in find(place):
            for name, merged in metadata.items():
                if values := section(as_map(part, at), name, at):
                    merged |= values
                    metadata_path = at
    for place in template.annotations:
        for at, part in find(place):
            metadata["annotations"] |= as_map(part, at)
            metadata_path = at[:-1]
    joined = _Joined()
    spec_path = (*path, *keys(template.spec or ""))
    if template.defaults is not None:
        joined.fill(spec_path, template.defaults, find, template.others)
    if template.spec is not None:
        both = {field.into[0] for field in template.parts} if template.defaults is not None else frozenset[str]()
        joined.fill(spec_path, template.spec, find, both)
    for field in template.parts:
        joined.add(spec_path, field, find)
    containers = [Container(_with_image(as_map(each, at)), at, "containers") for at, each in _each(template, find)]
    own = _Joined()
    for field in template.own:
        own.add(path, field, find)
    if own.value:
        containers.append(Container(own.value, path, "containers"))
    pod = pod_of(
        item, request, metadata, joined.value, metadata_path, spec_path, allowance, template=True, more=containers
    )
    return replace(
        pod,
        partial=template.partial,
        metadata_only=template.metadata_only,
        elsewhere={**joined.elsewhere, **own.elsewhere},
    )


def _each(template: Template, find: Find) -> Iterator[tuple[Path, Any]]:
    return (pair for place in template.containers for pair in find(place))


def _with_image(container: Object) -> Object:
    """Leave out an image that is a map of repository and tag, as NVIDIA's NIM operator writes it."""
    if isinstance(container.get("image"), dict):
        return {key: value for key, value in container.items() if key != "image"}
    return container


class _Joined:
    """A map joined from parts in several places, with the place of each part. Lists are joined, and maps are merged."""

    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.elsewhere: dict[Path, Elsewhere] = {}

    def fill(self, base: Path, place: str, find: Find, without: Collection[str]) -> None:
        """Put all fields of the map at a place into the joined map. A later map overrides an earlier one."""
        for at, value in find(place):
            for key, field in as_map(value, at).items():
                if key not in without:
                    self.elsewhere.pop((*base, key), None)
                    self.value.pop(key, None)
                    self._set(self.value, key, (*base, key), (*at, key), field)

    def add(self, base: Path, part: Part, find: Find) -> None:
        """Copy the values at `part.place` to the keys `part.into`. `base` is the path of the joined map."""
        for at, value in find(part.place):
            into: tuple[str, ...] = part.into
            if part.name:
                names = [f"{name}{part.suffix}" for _, name in find(part.name) if isinstance(name, str) and name]
                into = (*into, *(names or filter(None, (part.unnamed,))))[: len(into) + 1]
            if value is None or (part.name and len(into) == len(part.into)):
                continue
            self._put(self.value, base, into, at, value)

    def _put(self, holder: dict[str, Any], base: Path, into: tuple[str, ...], at: Path, value: Any) -> None:
        key, *rest = into
        here = (*base, key)
        if rest == [EACH_VALUE]:
            before, variables = holder.get(key, ()), as_map(value, at)
            holder[key] = [*before, *({"name": name, "value": text} for name, text in variables.items())]
            for index, name in enumerate(variables, len(before)):
                self.elsewhere[(*here, index)] = Elsewhere((*at, name))
        elif rest[:1] == [EACH_ITEM]:  # the value belongs to one more entry of the list
            entry: dict[str, Any] = {}
            holder[key] = [*holder.get(key, ()), entry]
            self._put(entry, (*here, len(holder[key]) - 1), tuple(rest[1:]), at, value)
        elif rest:
            inner = holder.get(key)
            holder[key] = dict(inner) if isinstance(inner, dict) else {}
            self._put(holder[key], here, tuple(rest), at, value)
        else:
            self._set(holder, key, here, at, value)

    def _set(self, holder: dict[str, Any], key: str, here: Path, at: Path, value: Any) -> None:
        before = holder.get(key)
        if isinstance(before, list) and isinstance(value, list):
            holder[key] = [*before, *value]
            for index in range(len(value)):
                self.elsewhere[(*here, len(before) + index)] = Elsewhere((*at, index))
        elif isinstance(before, dict) and isinstance(value, dict):
            holder[key] = {**before, **value}
            for name in value:
                self.elsewhere[(*here, name)] = Elsewhere((*at, name))
        else:
            holder[key] = value
            if here != at:
                self.elsewhere[here] = Elsewhere(at)
