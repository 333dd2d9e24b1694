"""Finds objects of charts that Flux reads, and that files have otherwise: the files say what is rendered."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.api.objects import CONFIG_MAP
from webhook.kustomize.followed import name_of
from webhook.kustomize.origins import ItemLayer, Rendered
from webhook.model import Object
from webhook.rendering import deploying
from webhook.rendering.charts import Templated
from webhook.rendering.flux_sources import SOURCES
from webhook.rendering.model import Output

_CHART = (SOURCES, "HelmChart")

READERS = (deploying.FLUX, deploying.RELEASE, _CHART)
"""The kinds that read others: ConfigMaps and sources."""


class Named(NamedTuple):
    """The kind and the name of an object that Flux reads."""

    kind: str
    name: str


def references(value: Object) -> Iterator[tuple[Named, str]]:
    """Yield the ConfigMaps and sources that an object of Flux reads, with their namespaces; empty if none is said."""
    spec, own = mapping(value.get("spec")), name_of(value)[1]
    chart = mapping(mapping(mapping(spec.get("chart")).get("spec")).get("sourceRef"))
    sources = (mapping(spec.get("sourceRef")), mapping(spec.get("chartRef")), chart)
    texts = (*mappings(spec.get("valuesFrom")), *mappings(mapping(spec.get("postBuild")).get("substituteFrom")))
    for each in filter(None, (*sources, *texts)):
        yield Named(string(each.get("kind")), string(each.get("name"))), string(each.get("namespace")) or own


def unlike(readers: Iterable[Object], known: Iterable[Object], outputs: Iterable[Output]) -> Iterator[str]:
    """Yield the objects of Flux that read an object of a chart, if files have another one of its name.

    So are those that read a HelmChart which no file has, and which may be a chart of this repository.
    """
    reading = [(reader, named, namespace) for reader in readers for named, namespace in references(reader)]
    names, written = {named for _, named, _ in reading}, defaultdict[tuple[Named, str], set[str]](set)
    for value in known:
        if (named := _named(value)) in names:
            for where in {name_of(value)[1], _ANY}:
                written[named, where].add(_contents(value))
    roots = dict[tuple[Named, str], str]()
    for output in outputs:
        for value in (item.value for item in output.items if _is_of_chart(item)):
            if (named := _named(value)) in names:
                near = [written[named, where] for where in _meeting(name_of(value)[1]) if (named, where) in written]
                if not any(_contents(value) in texts for texts in near) and (near or _is_here(value)):
                    roots |= {(named, where): output.root for where in (name_of(value)[1], _ANY)}
    for reader, named, namespace in reading:
        if root := next((roots[named, where] for where in _meeting(namespace) if (named, where) in roots), ""):
            yield f"{deploying.title(reader)} ({named.kind} {named.name} as {root} makes it)"


_ANY = "*"
"""Stands for all namespaces; no namespace has this name."""


def _meeting(namespace: str) -> tuple[str, ...]:
    """Return the keys of the namespaces that may be the same as one: an empty one may be any."""
    return (namespace, "") if namespace else (_ANY,)


def _is_of_chart(item: object) -> bool:
    return isinstance(item, Templated) or (isinstance(item, Rendered) and isinstance(item.layers[0], ItemLayer))


def _named(value: Object) -> Named:
    is_read = group_kind(value) == CONFIG_MAP or group_kind(value)[0] == SOURCES
    return Named(group_kind(value)[1], name_of(value)[0]) if is_read else Named("", "")


def _contents(value: Object) -> str:
    return json.dumps([value.get("data"), value.get("spec")], sort_keys=True)


def _is_here(value: Object) -> bool:
    """Whether an object is a HelmChart whose chart may be a folder of this repository."""
    kind = mapping(mapping(value.get("spec")).get("sourceRef")).get("kind")
    return group_kind(value) == _CHART and kind in ("GitRepository", "Bucket")
