"""Finds sharing configurations in the values of NVIDIA's charts: in a values file, or in an object that installs one.

Sources: templates/configmap.yaml of the chart nvidia-device-plugin (`config.map`), and templates/plugin_config.yaml of
the chart gpu-operator (`devicePlugin.config.data`). Each writes a ConfigMap whose keys are those of the map.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, string
from webhook.documents.documents import Document, read
from webhook.documents.files import Item
from webhook.kustomize.origins import Layer, Rendered
from webhook.model import Object, Path

PLUGIN, OPERATOR = "nvidia-device-plugin", "gpu-operator"
"""The charts, which are also the namespaces in which their documentation installs them."""

CHARTS: Mapping[str, tuple[Path, Path]] = {
    PLUGIN: (("config", "map"), ("config", "name")),
    OPERATOR: (("devicePlugin", "config", "data"), ("devicePlugin", "config", "name")),
}
"""The places of a chart's configurations, and of the name of their ConfigMap."""


RENDER: Mapping[tuple[str, str], str] = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): "render its chart: helm template CHART -f VALUES | slicewarden check -",
    ("helm.cattle.io", "HelmChart"): "render its chart: helm template CHART -f VALUES | slicewarden check -",
    ("helm.cattle.io", "HelmChartConfig"): "render the chart: helm template CHART -f VALUES | slicewarden check -",
    ("fluxcd.controlplane.io", "ResourceSet"): (
        "render it: flux-operator build resourceset -f FILE | slicewarden check -"
    ),
    ("argoproj.io", "Application"): "render it: argocd app manifests NAME | slicewarden check -",
    ("argoproj.io", "ApplicationSet"): "render it: argocd app manifests NAME | slicewarden check -",
    ("kustomize.config.k8s.io", "Kustomization"): (
        "render it: kustomize build --enable-helm FOLDER | slicewarden check -"
    ),
}
"""The kinds of objects that have values of charts, and the way to have what they make judged."""

KINDS = RENDER.keys()

MAKES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("helm.cattle.io", "HelmChart"): ("chart", "chartContent", "valuesContent"),
    ("helm.cattle.io", "HelmChartConfig"): ("valuesContent",),
    ("fluxcd.controlplane.io", "ResourceSet"): ("resources", "resourcesTemplate"),
}
"""The kinds whose objects make others that are never rendered here, and the fields of their spec that say which.

Sources: k3s-io/helm-controller pkg/apis/helm.cattle.io/v1/types.go, flux-operator api/v1/resourceset_types.go.
"""


def config_maps(document: Document) -> Iterator[Item]:
    """Yield the ConfigMaps that charts would make of the values in a document; their places are in the values."""
    value = mapping(document.value)
    match group_kind(value):
        case ("", ""):
            yield from _of(document, (), "")
            yield from _of_kustomization(document)
            yield from _of_plugin(document)
        case ("kustomize.config.k8s.io", "Kustomization"):
            yield from _of_kustomization(document)
        case ("helm.toolkit.fluxcd.io", "HelmRelease"):
            spec = mapping(value.get("spec"))
            namespace = string(spec.get("targetNamespace")) or _namespace(value)
            yield from _of(document, ("spec", "values"), namespace)
        case ("helm.cattle.io", "HelmChart"):
            namespace = string(mapping(value.get("spec")).get("targetNamespace")) or _namespace(value)
            yield from _in_text(document, ("spec", "valuesContent"), namespace)
        case ("argoproj.io", "Application"):
            yield from _of_application(document, ("spec",))
        case ("argoproj.io", "ApplicationSet"):
            yield from _of_application(document, ("spec", "template", "spec"))


def config_maps_of(item: Item) -> Iterator[Item]:
    """Yield the ConfigMaps that a rendered object's values make; their places are in the object's file."""
    if group_kind(item.value) in KINDS:
        for each in config_maps(replace(item.document, value=item.value)):
            yield replace(each, root=item.root)


def _of_kustomization(document: Document) -> Iterator[Item]:
    """Yield the contents of its charts' values (kustomize api/types/helmchartargs.go)."""
    namespace = string(mapping(document.value).get("namespace"))
    for index, chart in enumerate(mappings(mapping(document.value).get("helmCharts"))):
        path = ("helmCharts", index, "valuesInline")
        yield from _of(document, path, string(chart.get("namespace")) or namespace)


def _of_plugin(document: Document) -> Iterator[Item]:
    """Yield the ConfigMap of a document that is a configuration of the plugin, without any object around it."""
    value = mapping(document.value)
    if value.get("version") == "v1" and not value.keys().isdisjoint(("sharing", "flags")):
        text = document.source.text
        made: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": PurePath(document.file).stem, "namespace": PLUGIN},
            "data": {"config": text},
        }
        place = replace(document, first_line=document.source.start)
        yield Rendered(document, (), made, layers=(Layer(place, (), ("data", "config"), text, text=True),))


def _of_application(document: Document, base: Path) -> Iterator[Item]:
    spec = mapping(_at(document.value, base))
    namespace = string(mapping(spec.get("destination")).get("namespace"))
    places: list[Path] = [(*base, "source")]
    places += ((*base, "sources", index) for index, _ in enumerate(mappings(spec.get("sources"))))
    for place in places:
        yield from _of(document, (*place, "helm", "valuesObject"), namespace)
        yield from _in_text(document, (*place, "helm", "values"), namespace)


def _in_text(document: Document, path: Path, namespace: str) -> Iterator[Item]:
    """Yield the contents of values written as a text: a YAML document with the line numbers of the file."""
    text = _at(document.value, path)
    if isinstance(text, str) and text:
        first = document.line(path, 1)
        for inner in read("\n" * (first - 1) + text, document.file)[0]:
            yield from _of(inner, (), namespace)


def _of(document: Document, base: Path, namespace: str) -> Iterator[Item]:
    """Yield the ConfigMaps of values; also of those that a chart passes on to a dependency, under its name."""
    values = _at(document.value, base)
    for inner in ((), *((chart,) for chart in CHARTS)):
        for chart, (texts, name) in CHARTS.items():
            data = mapping(_at(values, (*inner, *texts)))
            if data and all(isinstance(text, str) for text in data.values()):
                named = string(_at(values, (*inner, *name))) or f"{chart}-configs"
                value: Object = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": named, "namespace": namespace or chart},
                    "data": data,
                }
                yield Item(document, (*base, *inner, *texts), value, under=("data",))


def _namespace(value: Object) -> str:
    return string(mapping(value.get("metadata")).get("namespace"))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value
