"""Names the kinds of objects that deploy others, and reads those of Flux.

Sources: kustomize-controller api/v1/kustomization_types.go, helm-controller api/v2/helmrelease_types.go and
source-controller api/v1 of Flux, and flux-operator api/v1/fluxinstance_types.go.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.documents.goyaml_writer import as_json
from webhook.model import Object
from webhook.rendering import charts
from webhook.rendering.charts import Remote
from webhook.rendering.flux_sources import SOURCES, FluxSources
from webhook.rendering.variables import Maps
from webhook.repository.tree import Tree, Unseen

FLUX, RELEASE = ("kustomize.toolkit.fluxcd.io", "Kustomization"), ("helm.toolkit.fluxcd.io", "HelmRelease")
INSTANCE = ("fluxcd.controlplane.io", "FluxInstance")
APPLICATION, SET = ("argoproj.io", "Application"), ("argoproj.io", "ApplicationSet")

ORIGINS = "originAnnotations"
"""The option by which kustomize writes the origins of objects into annotations."""

_OVER = ("namePrefix", "nameSuffix", "patches", "patchesStrategicMerge", "patchesJson6902", "images", "components")


def title(value: Object, *, namespace: str = "") -> str:
    """Return the kind, namespace and name of an object as text."""
    metadata = mapping(value.get("metadata"))
    where = namespace or string(metadata.get("namespace"))
    return f"{value.get('kind')} {'/'.join(filter(None, (where, string(metadata.get('name')))))}"


def synced(value: Object) -> Iterator[Object]:
    """Yield the source and the Kustomization that a FluxInstance makes by its `sync`."""
    metadata, sync = mapping(value.get("metadata")), mapping(mapping(value.get("spec")).get("sync"))
    if sync:
        namespace, kind = string(metadata.get("namespace")), string(sync.get("kind"))
        named = {"name": string(sync.get("name")) or namespace, "namespace": namespace}
        source = {"url": sync.get("url"), "ref": {"name": sync.get("ref")}}
        yield {"apiVersion": f"{SOURCES}/v1", "kind": kind, "metadata": named, "spec": source}
        spec = {"path": sync.get("path"), "prune": True, "sourceRef": {"kind": kind, "name": named["name"]}}
        yield {"apiVersion": f"{FLUX[0]}/v1", "kind": FLUX[1], "metadata": named, "spec": spec}


def changes_sync(value: Object) -> bool:
    """Whether patches of a FluxInstance may change more than the programs of Flux: what it makes by its `sync`."""
    patches = mappings(mapping(mapping(value.get("spec")).get("kustomize")).get("patches"))
    return any(mapping(each.get("target")).get("kind") not in ("Deployment", "ServiceAccount") for each in patches)


def over_flux(value: Object) -> Mapping[str, Any]:
    """Return the changes that a Flux Kustomization makes to its objects, as fields of a kustomization."""
    spec = mapping(value.get("spec"))
    fields = {key: spec[key] for key in _OVER if spec.get(key)}
    if labels := mapping(mapping(spec.get("commonMetadata")).get("labels")):
        fields["labels"] = [{"pairs": labels}]
    return {"namespace": string(spec.get("targetNamespace")), **fields}


def build_metadata(spec: Mapping[str, Any], own: Mapping[str, Any] | None) -> list[Any]:
    """Return what Flux asks kustomize to record in the objects of a folder, in place of what the folder asks for.

    `own` is the folder's kustomization: if it names no resources, Flux asks for origins (fluxcd/pkg
    kustomize/kustomize_generator.go, GenerateManifest). It reads the name of that field in any case.
    """
    named = own is None or any(each for key, each in own.items() if str(key).casefold() == "resources")
    return sequence(spec.get("buildMetadata")) or ([] if named else [ORIGINS])


MOST_CHARTS = 10
"""Maximum charts of one release that are rendered: files may be of several clusters, and patches change them."""


def charts_of(value: Object, sources: FluxSources) -> list[tuple[str | Remote | None, Mapping[str, Any]]]:
    """Return the charts that a HelmRelease may install: their paths from the top of this repository, or registries.

    It is None if it is in another Git repository. The address of the registry is empty if no file has it. Each comes
    with the spec of its HelmChart, which is empty if an OCIRepository has the chart.
    """
    spec, own = mapping(value.get("spec")), chart_namespace(value)
    if not (reference := mapping(spec.get("chartRef"))):
        specs = [mapping(mapping(spec.get("chart")).get("spec"))]
    else:
        specs = sources.specs(reference, own)[: MOST_CHARTS + 1] or [{}]
    if reference and reference.get("kind") != "HelmChart":
        return [(_of_registry(string(reference.get("name")), each), {}) for each in specs]
    return [(_chart(each, own, sources), each) for each in specs]


def chart_namespace(value: Object) -> str:
    """Return the namespace of a HelmRelease's HelmChart, which names its source from there."""
    reference = mapping(mapping(value.get("spec")).get("chartRef"))
    return string(reference.get("namespace")) or string(mapping(value.get("metadata")).get("namespace"))


def is_revised(release: Mapping[str, Any], chart: Mapping[str, Any]) -> bool:
    """Whether Flux adds the revision of the source to the version of a chart, as it always does without a HelmChart.

    See helm-controller internal/controller/helmrelease_controller.go, mutateChartWithSourceRevision.
    """
    kind = mapping(release.get("chartRef")).get("kind") or "HelmChart"
    return kind != "HelmChart" or chart.get("reconcileStrategy") == "Revision"


def _of_registry(name: str, spec: Mapping[str, Any]) -> Remote:
    wanted, url = mapping(spec.get("ref")), string(spec.get("url"))
    if url and (digest := string(wanted.get("digest"))):  # counts before the others (source-controller)
        return Remote("", f"{url}@{digest}", "")
    version = string(wanted.get("semver")) or string(wanted.get("tag"))
    return Remote("" if url else name, url, version)


def flux_joined(root: str, path: str) -> str:
    """Return the normal path that Flux makes of the root of a source and a path in an object of Flux.

    The path never leads out of the source: a `..` at its root has no effect, and an absolute path begins there. A `..`
    after the name of a link leads to the folder with the link, because Flux fetches no links. Sources:
    cyphar/filepath-securejoin join.go (SecureJoinVFS), as called by kustomize-controller
    internal/controller/kustomization_controller.go (reconcile) and source-controller
    internal/helm/chart/builder_local.go; fluxcd/pkg artifact/storage/archive.go.
    """
    return os.path.normpath(os.path.join(root, os.path.normpath(f"/{path}").lstrip("/")))


def _chart(spec: Mapping[str, Any], own: str, sources: FluxSources) -> str | Remote | None:
    reference, name = mapping(spec.get("sourceRef")), string(spec.get("chart"))
    if reference.get("kind") in ("GitRepository", "Bucket"):
        return None if sources.is_elsewhere(reference, own) else flux_joined("", name)
    return Remote(name, sources.url(reference, own), string(spec.get("version")))


def reads(value: Object) -> set[str]:
    """Return the names of the objects that a HelmRelease reads: those with its values, and its chart."""
    spec = mapping(value.get("spec"))
    named = (*mappings(spec.get("valuesFrom")), mapping(spec.get("chartRef")))
    return {string(each.get("name")) for each in named if each}


def default_values(spec: Mapping[str, Any], tree: Tree, prefix: str) -> tuple[bytes, bool]:
    """Return the values in the files of a HelmChart in this repository, and whether it has others that no file shows.

    Paths are relative to the source. Flux reads the first document of each file, merges them, and writes them in place
    of the chart's own values (source-controller internal/helm/chart/builder_local.go, mergeFileValues).
    """
    merged, hidden = dict[str, Any](), False
    for each in sequence(spec.get("valuesFiles")):
        name = flux_joined(prefix, string(each))
        try:
            text, documents = tree.data(name).decode("utf-8", "replace"), tree.documents(name)
            hidden = hidden or charts.has_more(text)
        except Unseen as error:
            hidden = hidden or not (error.absent and spec.get("ignoreMissingValuesFiles"))
            continue
        merged = _merged(merged, mapping(documents[0].value) if documents else {})
    return as_json(merged), hidden


def _merged(values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return some values with others over them; null counts as any value (fluxcd/pkg apis/meta, MergeMaps)."""
    result = dict(values)
    for key, each in others.items():
        below = result.get(key)
        result[key] = _merged(below, each) if isinstance(below, dict) and isinstance(each, dict) else each
    return result


def release_values(value: Object, maps: Maps) -> tuple[list[bytes], bool]:
    """Return the values of a HelmRelease, and whether it has others: no file shows them, or files disagree."""
    spec, found, hidden = mapping(value.get("spec")), list[bytes](), False
    own = string(mapping(value.get("metadata")).get("namespace"))
    for each in mappings(spec.get("valuesFrom")):
        name = string(each.get("name"))
        some = maps.named(name, own) if each.get("kind") == "ConfigMap" else None
        hidden = hidden or bool(each.get("optional") and some and maps.named(name, own, others=False) is None)
        key = string(each.get("valuesKey")) or "values.yaml"
        text = some.data.get(key) if some else None
        hidden = hidden or some is None or some.hidden or key in some.unsure or bool(each.get("targetPath"))
        if text is None or each.get("targetPath"):
            hidden = hidden or not each.get("optional")
            continue
        found.append(_encoded(text))
    return [*found, *charts.written(mapping(spec.get("values")))], hidden


@lru_cache(64)
def _encoded(text: str) -> bytes:
    """Return a text as bytes: the same ones each time that a release names the text."""
    return text.encode("utf-8", "replace")


def shortened(name: str) -> str:
    """Return the name of a release as Flux gives it to Helm (helm-controller internal/release/name.go, ShortenName)."""
    data = name.encode("utf-8", "surrogatepass")
    return name if len(data) <= _LONGEST else f"{name[: _LONGEST - 13]}-{hashlib.sha256(data).hexdigest()[:12]}"


_LONGEST = 53
"""Maximum bytes of a release's name."""
