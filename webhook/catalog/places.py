"""The types of the table of workloads: the places in an object where the parts of its pods are written."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

EACH_ITEM, EACH_VALUE = "[]", "{}"
"""Wildcards in a place: every item of a list, every value of a map."""


class Part(NamedTuple):
    """A value that counts as a field of a pod or a container, but is written in another place of the object.

    `place` is where the value is written, and `into` the keys of the field. `name` is the place of a text that,
    followed by `suffix`, is one more key. If there is no such text, the key is `unnamed`; if that is empty, the value
    does not count. A `[]` in `into` adds an entry to a list, and `{}` an entry with `name` and `value` for each value
    of a map. Lists of several parts are joined, and maps are merged.
    """

    place: str
    into: tuple[str, ...]
    name: str = ""
    suffix: str = ""
    unnamed: str = ""


def same(*fields: str) -> tuple[Part, ...]:
    """Return parts for fields that have the same name in the object as in a pod.

    Each field is also the place of its value.
    """
    return tuple(Part(field, (field.rpartition(".")[2],)) for field in fields)


class Template(NamedTuple):
    """The places of a pod template's parts in an object.

    A place is a path of keys joined by dots; a dot within a key has a backslash before it. `at` starts at the object
    and may match several templates. All other places start at the template, or at the object if they begin with a
    slash; an empty one is the template itself. Later maps of `metadata` override earlier ones, and `spec` overrides
    `defaults`; None if there is no PodSpec. `others` are fields of `defaults` that no PodSpec has. `annotations` are
    places of annotations outside such metadata. `containers` are places of containers outside the lists of a PodSpec,
    `parts` are fields of the PodSpec, and `own` are fields of one more container. A `partial` template does not include
    its pods' trust, which is written elsewhere. One that is `metadata_only` has nothing but metadata, and the rest of
    the pod is written elsewhere.
    """

    at: str
    metadata: tuple[str, ...] = ("metadata",)
    spec: str | None = "spec"
    defaults: str | None = None
    others: frozenset[str] = frozenset()
    containers: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    own: tuple[Part, ...] = ()
    partial: bool = False
    annotations: tuple[str, ...] = ()

    @property
    def metadata_only(self) -> bool:
        """Whether the template has only metadata; its PodSpec is written in another place."""
        return self.spec is None and not (self.containers or self.parts or self.own or self.annotations)


class Workload(NamedTuple):
    """A kind of object that creates pods. `resource` is its plural name in API paths.

    `objects` are places of whole objects that are created, of any kind; `manifests` are places of texts of such.
    `patches` are places of texts that change a PodSpec, and `files` are places of names of files that cannot be read
    here. Pods of a `cluster_scoped` object have the trust of the namespace that uses them, which is not known.
    `parameters` is the place of a list of names and values that are filled into its objects.
    """

    group: str
    kind: str
    resource: str
    templates: tuple[Template, ...]
    objects: tuple[str, ...] = ()
    manifests: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    cluster_scoped: bool = False
    parameters: str = ""

    @property
    def opaque(self) -> bool:
        """Whether no condition of an API server can read the pods of this kind."""
        texts = self.objects or self.manifests or self.patches or self.files
        return bool(texts or any(t.parts or t.own or t.annotations for t in self.templates))

    @property
    def in_status(self) -> bool:
        """Whether a pod template of this kind is in the object's status."""
        return any(template.at.startswith("status.") for template in self.templates)


Workloads = Mapping[tuple[str, str], Workload]
"""Workloads by group and kind."""


def table(workloads: Sequence[Workload]) -> Workloads:
    """Return a map of workloads by group and kind. A later entry replaces an earlier one of the same kind."""
    return {(workload.group, workload.kind): workload for workload in workloads}


def pod_templates(group: str, kind: str, resource: str, *places: str) -> Workload:
    """Return a kind that holds a PodTemplateSpec at each of these places."""
    return Workload(group, kind, resource, tuple(map(Template, places)))


def pod_metadata(*places: str) -> tuple[Template, ...]:
    """Return a metadata-only template for each of these places. The PodSpecs are at other places."""
    return tuple(Template(place, ("",), None, partial=True) for place in places)


def pod_specs(*places: str, annotations: str = "", containers: tuple[str, ...] = ()) -> tuple[Template, ...]:
    """Return templates at the places of PodSpecs without metadata; `annotations` is the place of their annotations."""
    return tuple(Template(place, (annotations,), "", containers=containers) for place in places)


@cache
def keys(place: str) -> tuple[str, ...]:
    """Split a place, such as `spec.template`, into its keys."""
    parts = _DOT.split(place.removeprefix("/")) if place.strip("/") else ()
    return tuple(part.replace("\\.", ".") for part in parts)


_DOT = re.compile(r"(?<!\\)\.")
