"""Finds which charts are installed with which values: by kustomizations, by helmfiles and by HelmReleases of Flux."""

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import chain
from typing import Any

from webhook.api.encryption import holds, is_encrypted
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.objects import CONFIG_MAP
from webhook.catalog import deployer_fields
from webhook.documents import merged_values, yaml_versions
from webhook.documents.documents import Document
from webhook.documents.files import Item
from webhook.kustomize.followed import ChartEntry, name_of
from webhook.rendering import charts, deploying, unfollowed
from webhook.rendering.charts import Release, Remote
from webhook.rendering.flux_sources import ENCRYPTED, GIT, MISSING, FluxSources
from webhook.rendering.model import Output, lists_releases
from webhook.rendering.planning import Installed, Planner
from webhook.rendering.variables import OPEN, MapObject, Maps, is_open
from webhook.repository import addresses, chart_folders
from webhook.repository.builders import Builder
from webhook.repository.gaps import Gaps
from webhook.repository.tree import Tree, Unseen
from webhook.text.words import shown


class Releases:
    """Finds the charts that a repository installs.

    `prefix` is its path from the working folder; `gaps` gets the rest.
    """

    def __init__(self, tree: Tree, prefix: str, gaps: Gaps) -> None:
        self._tree, self._prefix, self._gaps = tree, prefix, gaps

    # Kustomizations

    def of_entry(self, entry: ChartEntry, root: str) -> Installed:
        """Return the release of a chart that a kustomization includes, and its entry there."""
        document, chart = self._entry(entry)
        self._note(entry.file, unfollowed.reason(mapping(document.value.get("helmGlobals")), deployer_fields.GLOBALS))
        self._note(entry.file, unfollowed.reason(chart, deployer_fields.ENTRY))
        name, (values, _, doubt) = string(chart.get("releaseName")) or charts.RELEASE, self.values_of(entry)
        self._note(entry.file, doubt)
        crds = chart.get("includeCRDs") is True
        where, given = self.chart_of(entry), tuple(values)
        release = Release(where, root, name, entry.namespace, given, places=False, versioned=entry.versioned, crds=crds)
        return release, Item(document, ("helmCharts", entry.number), chart)

    def chart_of(self, entry: ChartEntry) -> str | Remote:
        """Return the chart that a kustomization includes: its folder, or its place outside the repository.

        With an address and a version, kustomize has it only in a folder of both names (HelmChartInflationGenerator.go).
        """
        document, chart = self._entry(entry)
        name, home = string(chart.get("name")), string(mapping(document.value.get("helmGlobals")).get("chartHome"))
        remote = Remote(name, string(chart.get("repo")), string(chart.get("version")))
        folder = f"{name}-{remote.version}/{name}" if remote.url and remote.version else name
        place = os.path.normpath(os.path.join(os.path.dirname(entry.file), home or "charts", folder))
        return place if chart_folders.is_chart(place) else remote

    def values_of(self, entry: ChartEntry) -> tuple[list[bytes], list[str], str]:
        """Return the values that a kustomization gives to a chart, the files that contain them, and a reason for doubt.

        kustomize gives helm the chart's own values too, with those of the kustomization merged into them. Additional
        files count after these (kustomize api/types/helmchartargs.go, AsHelmArgs).
        """
        _, chart = self._entry(entry)
        values, names, doubt = list[bytes](), list[str](), ""
        inline, folder = mapping(chart.get("valuesInline")), self.chart_of(entry)
        first, *more = (
            os.path.normpath(os.path.join(os.path.dirname(entry.file), path)) if isinstance(path, str) and path else ""
            for path in (chart.get("valuesFile"), *sequence(chart.get("additionalValuesFiles")))
        )
        own = "" if first or isinstance(folder, Remote) else os.path.join(folder, "values.yaml")
        for name in filter(None, (first, *more)):
            try:
                values.append(self._tree.data(name))
                names.append(name)
            except Unseen as error:
                roots = self._gaps.lacking.setdefault(str(error), [])
                roots += [] if entry.file in roots else [entry.file]
        under = first if first in names else own
        try:
            text, read = (self._tree.data(under), self._tree.first(under).value) if under else (b"", {})
        except Unseen:  # kustomize refuses it, if it is not empty
            text, read = b"", {}
        if not inline:
            return [*([text] if own and text else ()), *values], names, ""
        whole, doubt = merged_values.merged(text, mapping(read), inline, string(chart.get("valuesMerge")))
        if isinstance(folder, Remote) and not under and chart.get("valuesMerge") == "merge":
            doubt = "the values of a chart from elsewhere count first"
        return [*whole, *values[first in names :]], names, doubt

    def _entry(self, entry: ChartEntry) -> tuple[Document, Mapping[str, Any]]:
        document = self._tree.first(entry.file)
        return document, mappings(document.value.get("helmCharts"))[entry.number]

    # Flux

    def of_flux(
        self, outputs: list[Output], unsure: Mapping[int, frozenset[str]], planner: Planner, files: set[str]
    ) -> Iterator[Installed]:
        """Yield the charts that HelmReleases install: rendered HelmReleases, and those in other files than `files`.

        `unsure` are the keys of rendered ConfigMaps that are only guesses, by the identity of the item.
        """
        made, roots = [item for output in outputs for item in output.items], Counter(each.root for each in outputs)
        built = {(item.document.file, item.line()) for item in made}
        plain = [item for item in planner.deployers if os.path.normpath(item.document.file) not in files or not built]
        values = (item.value for item in (*made, *planner.deployers))
        sources = FluxSources(values, planner.own[deploying.FLUX], planner.places[deploying.FLUX])
        installing = [item for item in (*made, *plain) if group_kind(item.value) == deploying.RELEASE]
        reads = any("valuesFrom" in mapping(item.value.get("spec")) for item in installing)
        shown = (
            (item for item in planner.plain_maps if os.path.normpath(item.document.file) not in files) if reads else ()
        )
        here = (item for item in made if item.root not in planner.away) if reads else ()
        disputed = _disputed(here, planner.makers, roots)
        maps = _maps(made, unsure, disputed, planner.away, shown) if reads else {}
        for item in installing:
            value = item.value
            spec, metadata = mapping(value.get("spec")), mapping(value.get("metadata"))
            if not (spec.get("chart") or spec.get("chartRef")):
                continue
            own, hidden = deploying.release_values(value, maps.get(item.root) or maps.get("") or Maps())
            root = deploying.title(value)
            self._note(root, "values from objects that no file shows" if hidden else "")
            found = deploying.charts_of(value, sources)
            self._note(root, OPEN if is_open(spec) or any(is_open(chart) for _, chart in found) else "")
            self._note(root, ENCRYPTED if is_encrypted(value) or any(holds(chart) for _, chart in found) else "")
            namespace = string(spec.get("targetNamespace")) or string(metadata.get("namespace"))
            whole = "-".join(filter(None, (string(spec.get("targetNamespace")), string(metadata.get("name")))))
            name = deploying.shortened(string(spec.get("releaseName")) or whole)
            words = f"its chart is written in more than {deploying.MOST_CHARTS} ways"
            self._note(root, words if len(found) > deploying.MOST_CHARTS else "")
            reasons = (unfollowed.reason(chart, deployer_fields.CHART) for _, chart in found)
            self._note(root, unfollowed.reason(spec, deployer_fields.RELEASE) or next(filter(None, reasons), ""))
            kind = string(mapping(spec.get("chartRef")).get("kind"))
            self._note(root, _of_kind(kind) if kind not in ("", "HelmChart", "OCIRepository") else "")
            for place, chart in found[: deploying.MOST_CHARTS]:
                if where := self._chart_of_flux(root, place, chart, deploying.chart_namespace(value), sources, own):
                    defaults, hidden = b"", bool(chart.get("valuesFiles"))
                    if hidden and not isinstance(place, Remote):
                        defaults, hidden = deploying.default_values(chart, self._tree, self._prefix)
                    self._note(root, "values files in place of the chart's own" if hidden else "")
                    builder = Builder.SOMEBODY if isinstance(place, Remote) else Builder.FLUX
                    given, revised = (root, name or charts.RELEASE, namespace), deploying.is_revised(spec, chart)
                    release = Release(where, *given, tuple(own), defaults=defaults, packed=True, revised=revised)
                    yield replace(release, builder=builder), item

    def _chart_of_flux(
        self,
        root: str,
        place: str | Remote | None,
        chart: Mapping[str, Any],
        namespace: str,
        sources: FluxSources,
        values: Collection[bytes],
    ) -> str | Remote:
        """Return the chart of a HelmRelease in a namespace; empty, with a note, if no folder here is it."""
        if isinstance(place, Remote):
            return self._vendored(place) or place
        where = deploying.flux_joined(self._prefix, string(chart.get("chart")) if place is None else place)
        if os.path.isfile(where) or (place and os.path.lexists(where) and not chart_folders.is_chart(where)):
            self._note(root, _NO_FOLDER)
            return ""
        reference = mapping(chart.get("sourceRef"))
        if place is None or not chart_folders.is_chart(where):
            if place and addresses.is_same(sources.url(reference, namespace), addresses.origin(self._tree.root)):
                self._note(root, MISSING)
            else:
                self._gaps.elsewhere.append(f"{root} (its source is elsewhere)")
            return ""
        paths = (deploying.flux_joined(self._prefix, string(each)) for each in sequence(chart.get("valuesFiles")))
        names = [*chart_folders.needed(self._tree, where, values), *filter(os.path.isfile, paths)]
        if (kind := string(reference.get("kind"))) != GIT[1]:
            self._note(root, _of_kind(kind))
        self._note(root, sources.unlike(reference, namespace, self._tree, names))
        return where

    # Helmfile

    def of_helmfile(self, name: str) -> Iterator[Installed]:
        """Yield the releases of a helmfile. A note names one with templates: they may stand in comments too."""
        folder, text = os.path.dirname(name), ""
        try:
            text = self._tree.data(name).decode("utf-8", "replace")
            written, templated = self._tree.documents(name), "{{" in text
        except Unseen:
            written, templated = [], True
        if not lists_releases(name, text):
            return
        if templated:
            self._gaps.hidden.append(f"{name} (a template)")
        self._note(name, _UNLIKE if written and yaml_versions.unlike(text, scalars=True) else "")
        documents = [mapping(document.value) for document in written]
        for settings in documents:
            self._note(name, unfollowed.reason(settings, deployer_fields.HELMFILE))
        defaults = [mapping(one.get("helmDefaults")).get("skipDeps") for one in documents]
        skipped = True in defaults and all(each in (True, None) for each in defaults)
        urls, ocis = dict[str, str](), dict[str, bool]()
        for each in (one for document in documents for one in mappings(document.get("repositories"))):
            url = string(each.get("url"))
            ocis.setdefault(string(each.get("name")), bool(each.get("oci")))  # Helmfile takes the first of a name
            urls[string(each.get("name"))] = f"oci://{url}" if each.get("oci") and "://" not in url else url
        for document, number, each in _entries(written, "releases"):
            chart, release = string(each.get("chart")), string(each.get("name"))
            values, hidden = list[bytes](), False
            for one in sequence(each.get("values")):
                try:
                    if isinstance(one, str):
                        hidden = hidden or bool(_PATTERN.search(one))
                        values.append(self._tree.data(os.path.normpath(os.path.join(folder, one))))
                        hidden = hidden or (one.endswith(".gotmpl") and b"{{" in values[-1])
                    else:
                        values += charts.written(mapping(one))
                except Unseen:
                    hidden = True
            root = f"release {release} of {name}"
            if hidden or any(b"ref+" in text for text in values):  # Helmfile reads what such a reference names
                self._gaps.hidden.append(f"{root} (values elsewhere)")
            self._note(root, unfollowed.reason(each, deployer_fields.HELMFILE_RELEASE))
            where, *others = self._charts_of_helmfile(folder, chart)
            before, slash, own = chart.partition("/")
            if not chart_folders.is_chart(where) and (os.path.lexists(where) or chart.startswith(".")):
                self._note(root, _NO_FOLDER if os.path.lexists(where) else MISSING)
                continue
            self._note(root, _SEVERAL if others else "")
            place: str | Remote = where
            builder = Builder.SOMEBODY if each.get("skipDeps", skipped) is True else Builder.HELMFILE
            if "://" in chart or (slash and ocis.get(before)):
                self._note(root, _OF_REGISTRY if chart_folders.is_chart(where) else "")
            if is_lost := self._lost(where):
                self._note(root, _HIDDEN if chart_folders.is_chart(where) else "")
            if is_lost or not chart_folders.is_chart(where):
                address = urls.get(before, "") if slash else ""
                remote = Remote(own if address else chart, address, string(each.get("version")))
                place, builder = self._vendored(remote) or remote, Builder.SOMEBODY
            namespace, item = string(each.get("namespace")), Item(document, ("releases", number), each)
            yield Release(place, root, release or charts.RELEASE, namespace, tuple(values), builder=builder), item

    def _charts_of_helmfile(self, folder: str, chart: str) -> list[str]:
        """Return the folders of charts that a release may mean; one that may be no chart if there are none.

        A path such as `charts/web` may begin in the folder in which Helmfile runs, if there are several files in
        helmfile.d (helmfile pkg/state/state.go, normalizeChart). Others begin in the folder of the helmfile.
        """
        tops = [folder]
        if os.path.basename(folder) == "helmfile.d" and _OF_WORKING_FOLDER.fullmatch(chart):
            tops += [os.path.dirname(folder), self._prefix]
        found = dict.fromkeys(os.path.normpath(os.path.join(top, chart)) for top in tops)
        return [each for each in found if chart_folders.is_chart(each)] or [next(iter(found))]

    def _note(self, root: str, reason: str) -> None:
        if reason:
            self._gaps.hidden.append(f"{root} ({reason})")

    def _vendored(self, remote: Remote) -> str:
        """Return the folder of a remote chart in the repository, if a folder `charts/NAME` at its top may be it."""
        for name in filter(None, (remote.name, remote.url.rstrip("/").rpartition("/")[2])):
            local = os.path.normpath(os.path.join(self._prefix, "charts", name))
            here = chart_folders.is_chart(local) and not self._lost(local)
            if here and chart_folders.has_version(self._tree, local, remote.version):
                return local
        return ""

    def _lost(self, folder: str) -> bool:
        try:
            self._tree.checked(folder)
        except Unseen:
            return True
        return False


MOST_PAIRS = 200_000
"""Maximum pairs of a ConfigMap and a root that makes its own root. Each may be there for thousands of the other."""

_NO_FOLDER = "its chart is packed, or no chart"

_HIDDEN = "its chart is in a hidden folder, or outside of the repository"

_OF_REGISTRY = "its chart is judged by the folder of that path here, and is in a registry"

_SEVERAL = "its chart is in several folders"

_OF_WORKING_FOLDER = re.compile(r"(?!\.{0,2}/)[^/]*(?:/[^/]*){1,2}")
"""A chart that Helmfile takes for one of a repository, if the folder in which it runs does not have it.

Such a path has two or three parts, and the last one may be empty (helmfile pkg/state/util.go, isLocalChart).
"""

_UNLIKE = "YAML that Helmfile and helm read otherwise"

_PATTERN = re.compile(r"[*?\[]")
"""A sign by which the path of a values file of Helmfile stands for several (path/filepath, Glob)."""


def _of_kind(kind: str) -> str:
    return f"judged by the folder here, though its source is of the kind {shown(kind, quotes=False)}"


def _disputed(made: Iterable[Item], makers: Mapping[str, Set[str]], roots: Mapping[str, int]) -> set[int]:
    """Return the identities of ConfigMaps that roots of one cluster make with other data: the last to apply it counts.

    Roots whose Kustomizations one root or one file makes (`makers`) are of one cluster. Several clusters may have a
    root of one name: `roots` says how many. A ConfigMap that some of them lack counts too. Beyond MOST_PAIRS of
    ConfigMaps and makers, all count.
    """
    written = defaultdict[tuple[str, ...], dict[str, list[int]]](lambda: defaultdict(list))
    of_root, pairs = defaultdict[tuple[str, ...], list[int]](list), 0
    for item in made:
        if group_kind(item.value) == CONFIG_MAP and (name := name_of(item.value))[1]:
            data = json.dumps(item.value.get("data"), sort_keys=True)
            of_root[item.root, *name].append(id(item))
            own = {item.root, *makers.get(item.root, ())}
            pairs += len(own)
            for maker in own if pairs <= MOST_PAIRS else ():
                written[maker, *name][data].append(id(item))
    if pairs > MOST_PAIRS:
        return {*chain(*of_root.values())}
    unlike = {each for data in written.values() if len(data) > 1 for each in chain(*data.values())}
    return unlike.union(*(found for (root, *_), found in of_root.items() if len(found) < roots.get(root, 1)))


def _maps(
    made: Iterable[Item],
    unsure: Mapping[int, frozenset[str]],
    disputed: Set[int],
    away: Set[str],
    free: Iterable[Item],
) -> Mapping[str, Maps]:
    """Return the ConfigMaps that each root makes, which count before those of others; and those of all, for no root.

    A generated one has its name with the program's hash: by another name Flux does not find it. Those that are
    `disputed` are not known, and for others, those of roots that are `away`. Those that files of no root have are
    `free`.
    """
    found = defaultdict[str, list[MapObject]](list)
    for item in made:
        known = id(item) not in disputed
        found[item.root].append(MapObject(item.value, known, unsure.get(id(item), frozenset())))
    others = (
        each._replace(known=each.known and root not in away) for root, objects in found.items() for each in objects
    )
    every = Maps(chain(others, (MapObject(item.value) for item in free)))
    return {"": every, **{root: Maps(objects, every) for root, objects in found.items()}}


def _entries(documents: Iterable[Document], key: str) -> Iterator[tuple[Document, int, Mapping[str, Any]]]:
    """Yield the maps of a list in some documents, with their places."""
    for document in documents:
        for number, each in enumerate(sequence(mapping(document.value).get(key))):
            if isinstance(each, dict):
                yield document, number, each
