"""Renders the roots among the files of a run: by the programs that own the formats, or by the files alone."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.documents import files
from webhook.documents.documents import Document, Source, read
from webhook.documents.files import Item
from webhook.model import Object, Problem
from webhook.rendering import charts, deploying, kustomize, patching, programs, repositories, results_cache
from webhook.rendering.building import OVER, Job, build
from webhook.rendering.charts import Release, Remote
from webhook.rendering.gaps import Gaps, several_of
from webhook.rendering.kustomize import BuiltIndex, ChartEntry, Kustomization
from webhook.rendering.model import (
    CHART,
    HELMFILES,
    KUSTOMIZATIONS,
    Options,
    Output,
    Rendering,
    deployers,
    is_root,
    is_whole,
)
from webhook.rendering.origins import Rendered
from webhook.rendering.repositories import FluxSources
from webhook.rendering.tree import Tree, Unseen, root_of
from webhook.text.words import shown


def render(names: Sequence[str], options: Options, *, given: frozenset[str] = frozenset()) -> Rendering:
    """Render the kustomizations, charts, and objects of Flux and Argo CD among some files."""
    result, changed = Rendering(), frozenset[str]()
    if options.touched:
        changed = frozenset(os.path.realpath(name) for name in names)
        around = {root_of(os.path.dirname(name) or ".") for name in names if name != "-"}
        names = [name for name in files.find(map(os.path.relpath, sorted(around))) if isinstance(name, str)]
        given = frozenset()
    some = [name for name in names if name != "-" and name not in given]
    if not any(map(is_root, names)) and not deployers(some):
        return result
    trees, roots = defaultdict[str, list[str]](list), dict[str, str]()
    for name in names:
        if name != "-" and (name not in given or PurePath(name).name in KUSTOMIZATIONS):
            folder = os.path.dirname(name) or "."
            if folder not in roots:
                roots[folder] = root_of(folder)
            trees[roots[folder]].append(os.path.normpath(name))
    work = [_Run(Tree(root), own, options, result, given, changed) for root, own in trees.items()]
    for each in work:
        each.render()
    if options.cached:
        results_cache.trim()
    return result


class _Run:
    """The rendering of one repository."""

    def __init__(
        self,
        tree: Tree,
        names: list[str],
        options: Options,
        result: Rendering,
        given: frozenset[str],
        changed: frozenset[str],
    ) -> None:
        self._tree, self._names, self._options, self._result = tree, names, options, result
        self._changed = changed
        self._given = frozenset(map(os.path.normpath, given))
        here = os.path.realpath(".")
        absolute = any(os.path.isabs(name) for name in names)
        self._prefix = tree.root if absolute else os.path.relpath(tree.root, here)
        self._gaps = Gaps()
        self._used = set[str]()
        self._downloads = charts.Downloads()
        self._flux = False

    # Discovery

    @cached_property
    def _deployers(self) -> list[Item]:
        """The objects of Flux and Argo CD in the files."""
        found = list[Item]()
        for name in deployers(self._names):
            documents = [each for each in files.read(name) if isinstance(each, Document)]
            found += (item for item in files.items(documents)[0] if group_kind(item.value)[0].endswith(_DEPLOYS))
        return found

    @cached_property
    def _own(self) -> Mapping[tuple[str, str], str]:
        """The name of this repository in the addresses of Flux, and in those of Argo CD."""
        values = [item.value for item in self._deployers]
        sources, urls = FluxSources(values), defaultdict[tuple[str, str], list[str]](list)
        for value in values:
            kind, namespace = group_kind(value), string(mapping(value.get("metadata")).get("namespace"))
            if kind == deploying.FLUX:
                urls[kind].append(sources.url(mapping(mapping(value.get("spec")).get("sourceRef")), namespace))
            elif kind in (deploying.APPLICATION, deploying.SET):
                named = (string(each.get("repoURL")) for each in deploying.sources_of(value) if "chart" not in each)
                urls[deploying.APPLICATION] += (url for url in named if "{{" not in url)
        return {
            kind: repositories.known(self._tree.root, urls[kind]) for kind in (deploying.FLUX, deploying.APPLICATION)
        }

    @cached_property
    def _sources(self) -> FluxSources:
        return FluxSources((item.value for item in self._deployers), self._own[deploying.FLUX])

    def _kustomizations(self) -> dict[str, Document]:
        found = dict[str, Document]()
        for name in self._names:
            if PurePath(name).name in KUSTOMIZATIONS:
                try:
                    (document,) = self._tree.documents(name)
                except (Unseen, ValueError):
                    continue
                version = string(mapping(document.value).get("apiVersion"))
                if isinstance(document.value, dict) and version.partition("/")[0] in ("", "kustomize.config.k8s.io"):
                    found[os.path.normpath(os.path.dirname(name))] = document
        return found

    def render(self) -> None:
        """Render everything, and note what could not be."""
        found = self._kustomizations()
        chart_folders = self._chart_folders()
        helmfiles = [name for name in self._names if PurePath(name).name in HELMFILES]
        if not (found or chart_folders or self._deployers or helmfiles):
            return
        self._flux = any(group_kind(item.value) == deploying.FLUX for item in self._deployers)
        included = set[str]()
        for folder, document in found.items():
            for key in ("resources", "bases", "components"):
                for path in sequence(document.value.get(key)):
                    if isinstance(path, str):
                        included.add(os.path.normpath(os.path.join(folder, path)))
        jobs, releases = list[Job](), list[tuple[Release, Item | None]]()
        texts = deploying.data_of(item.value for item in self._plain_maps())
        for item in self._deployers:
            kind = group_kind(item.value)
            if kind == deploying.FLUX:
                jobs += self._of_flux(item, texts, included)
            elif kind == deploying.APPLICATION:
                self._of_argo(item, item.value, jobs, releases, included)
            elif kind == deploying.SET:
                made, other = deploying.applications(item.value, self._tree, self._prefix)
                for each in made:
                    self._of_argo(item, each, jobs, releases, included)
                if other:
                    self._gaps.hidden.append(f"{deploying.title(item.value)} (generator {other})")
        own = [folder for folder, document in found.items() if document.value.get("kind") != "Component"]
        jobs += (self._of_folder(folder) for folder in own if folder not in included)
        reached = {folder for job in jobs for folder in job.found.folders}
        for folder in own:  # those that include each other, or that only an unused component includes
            if folder not in reached:
                jobs.append(self._of_folder(folder))
                reached |= jobs[-1].found.folders
        if self._options.touched:
            jobs = [job for job in jobs if self._is_touched(job)]
        jobs = self._with_charts(jobs)
        outputs = self._built(jobs)
        releases += self._releases(outputs, jobs)
        releases += ((release, None) for name in helmfiles for release in self._of_helmfile(name))
        if self._options.touched:
            roots = {job.root for job in jobs}
            releases = [(release, item) for release, item in releases if self._is_changed(release, item, roots)]
            chart_folders = [folder for folder in chart_folders if self._has_changed(folder)]
        self._installed(releases, chart_folders)
        self._result.notes.extend(self._gaps.lines())

    def _plain_maps(self) -> Iterator[Item]:
        """Yield ConfigMaps that may hold variables or values: those next to objects of Flux."""
        if not self._deployers:
            return
        for name in self._names:
            try:
                if b"ConfigMap" in files.contents(name):
                    documents = [each for each in files.read(name) if isinstance(each, Document)]
                    yield from files.items(documents)[0]
            except (OSError, files.Unfit):
                continue

    # Flux and Argo CD

    def _of_flux(self, item: Item, texts: Mapping[str, Mapping[str, str]], included: set[str]) -> Iterator[Job]:
        spec, own = mapping(item.value.get("spec")), string(mapping(item.value.get("metadata")).get("namespace"))
        source = mapping(spec.get("sourceRef"))
        path = os.path.normpath(os.path.join(self._prefix, string(spec.get("path")).lstrip("/") or "."))
        try:
            self._tree.checked(path)
            if (
                not os.path.isdir(path)
                or source.get("kind") == "OCIRepository"
                or self._sources.is_elsewhere(source, own)
            ):
                raise Unseen(path)
        except Unseen:
            self._gaps.hidden.append(f"{deploying.title(item.value)} (its source is elsewhere)")
            return
        root = deploying.title(item.value)
        over = Kustomization(path, deploying.over_flux(item.value), item.document, (*item.base, "spec"))
        known, hidden = deploying.variables(item.value, texts)
        yield self._over(root, path, over, included)._replace(
            variables=known, strict="postBuild" in spec and not hidden
        )

    def _over(self, root: str, path: str, over: Kustomization, included: set[str], *, recurse: bool = True) -> Job:
        """Return the work for a folder whose objects another object changes."""
        included.add(path)
        if self._tree.kustomization(path):
            names = [path]
        else:
            names = [*self._tree.manifests(path, recurse=recurse)]
            included.update(names)
        relative = [os.path.relpath(name, path) for name in names]
        found = kustomize.follow_over(self._tree, relative, over)
        return Job(root, path, found, over, () if names == [path] else tuple(names))

    def _of_argo(
        self,
        item: Item,
        value: Object,
        jobs: list[Job],
        releases: list[tuple[Release, Item | None]],
        included: set[str],
    ) -> None:
        spec = mapping(value.get("spec"))
        namespace = string(mapping(spec.get("destination")).get("namespace"))
        name, root = string(mapping(value.get("metadata")).get("name")), deploying.title(value)
        sources, others = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
        for source in deploying.sources_of(value):
            elsewhere = repositories.is_elsewhere(string(source.get("repoURL")), self._own[deploying.APPLICATION])
            (others if elsewhere and "chart" not in source else sources).append(source)
        if any("path" in source for source in others):
            self._gaps.hidden.append(f"{root} (its source is elsewhere)")
        for source in sources:
            options = mapping(source.get("helm"))
            if chart := string(source.get("chart")):
                where: str | Remote = Remote(
                    chart, _address(string(source.get("repoURL"))), string(source.get("targetRevision"))
                )
            elif "path" in source:
                where = os.path.normpath(os.path.join(self._prefix, string(source.get("path")).lstrip("/") or "."))
                try:
                    self._tree.checked(where)
                    if not os.path.isdir(where) or "{{" in where:
                        raise Unseen(where)
                except Unseen:
                    self._gaps.hidden.append(f"{root} (its source is elsewhere)")
                    continue
            else:
                continue
            if isinstance(where, Remote) or charts.is_chart(where):
                values, hidden = deploying.argo_values(source, sources, self._tree, self._prefix)
                if hidden:
                    self._gaps.hidden.append(f"{root} (values files elsewhere)")
                release = string(options.get("releaseName")) or name
                releases.append((Release(where, root, release, namespace, tuple(values)), item))
                continue
            over = Kustomization(where, deploying.over_argo(source), item.document, item.base)
            recurse = bool(mapping(source.get("directory")).get("recurse"))
            jobs.append(self._over(root, where, over, included, recurse=recurse)._replace(default=namespace))

    # Kustomizations

    def _of_folder(self, folder: str) -> Job:
        return Job(folder, folder, kustomize.follow(self._tree, folder))

    def _built(self, jobs: list[Job]) -> list[Output]:
        command = programs.kustomize()

        def work(job: Job) -> bytes | str | None:
            return build(job, command, self._tree, self._options)

        outputs = list[Output]()
        for job, data in zip(jobs, self._each(jobs, work, "kustomize"), strict=True):
            self._result.files.update(_judged_by(job, self._tree))
            for reason in job.found.remote:
                self._gaps.remote.setdefault(reason, []).append(job.root)
            self._result.problems.extend(Problem(job.place, 0, f"not rendered: {each}") for each in job.found.too_large)
            if isinstance(data, bytes):
                items = self._matched(job, data)
            else:
                items = [each.rendered(job.root) for each in job.found.objects]
                self._gaps.unfollowed |= job.found.unfollowed
                if job.found.unfollowed or data:
                    self._gaps.followed.append(job.root)
                seen = not (job.found.remote or job.found.charts or job.found.absent or job.found.unseen)
                if data and seen:
                    self._result.problems.append(Problem(job.place, 0, f"not rendered: {data}"))
                self._gaps.absent.update(dict.fromkeys(job.found.absent))
                for reason in job.found.unseen or ([data] if data and not (seen or job.found.absent) else []):
                    self._gaps.lacking.setdefault(reason, []).append(job.root)
            if job.found.is_whole:
                self._gaps.idle.update(dict.fromkeys(job.found.idle))
            output = Output(job.root, [self._finished(each, job) for each in items])
            outputs.append(output)
            self._result.outputs.append(output)
        return outputs

    def _matched(self, job: Job, data: bytes) -> list[Item]:
        """Return the objects in the output of the program, each with the places that it was made of."""
        documents, problems = read(data.decode("utf-8", "replace"), job.place)
        items, unusable = files.items(documents)
        self._result.problems.extend(each._replace(line=0) for each in (*problems, *unusable))
        index = BuiltIndex(job.found.objects)
        return [self._with_origin(job, item.value, index) for item in items]

    def _with_origin(self, job: Job, value: Object, index: BuiltIndex) -> Item:
        value, origin = _without_origin(value)
        if each := index.find(value):
            return Rendered(each.layers[0].document, (), value, root=job.root, layers=each.layers)
        folder = OVER if job.over else self._tree.checked(job.folder)
        file = os.path.normpath(os.path.join(self._prefix, folder, origin)) if origin else job.place
        return Item(
            Document(file if os.path.isfile(file) else job.place, 0, None, 0, Source("", 0)), (), value, root=job.root
        )

    def _finished(self, item: Item, job: Job) -> Item:
        """Return an object with its placeholders filled in, and in the namespace that is the default."""
        value = item.value
        if self._flux or job.variables is not None:
            value = deploying.substituted(value, job.variables or {}, strict=job.strict)
        if job.default and kustomize.is_namespaced(value) and not mapping(value.get("metadata")).get("namespace"):
            value = patching.placed(value, job.default)
        return item if value is item.value else replace(item, value=value)

    # Changes

    def _is_touched(self, job: Job) -> bool:
        """Whether a kustomization is made of a file that has changed, or installs a chart with one."""
        own = {*job.found.files, *([job.over.document.file] if job.over else ())}
        for entry in job.found.charts:
            chart = self._included(entry)
            own.update(self._values_of(entry)[1])
            if isinstance(chart, str) and self._has_changed(chart):
                return True
        if any(os.path.realpath(name) in self._changed for name in own):
            return True
        charts_named = (
            deploying.chart_of(each.value, self._sources)
            for each in job.found.objects
            if group_kind(each.value) == deploying.RELEASE
        )
        return any(
            self._has_changed(os.path.join(self._prefix, path)) for path in charts_named if isinstance(path, str)
        )

    def _is_changed(self, release: Release, item: Item | None, roots: set[str]) -> bool:
        if isinstance(release.chart, str) and self._has_changed(release.chart):
            return True
        if release.root in roots:
            return True
        return item is not None and (bool(item.root) or os.path.realpath(item.document.file) in self._changed)

    def _has_changed(self, folder: str) -> bool:
        """Whether a file below a folder has changed."""
        below = os.path.realpath(folder) + "/"
        return any(name.startswith(below) for name in self._changed)

    # Charts

    def _chart_folders(self) -> list[str]:
        folders = sorted(
            os.path.normpath(os.path.dirname(name)) for name in self._names if PurePath(name).name == CHART
        )
        found = list[str]()
        for folder in folders:
            within = any(os.path.join(each, "charts", "").rstrip("/") + "/" in folder + "/" for each in found)
            if not (within or charts.is_library(self._tree, folder)):
                found.append(folder)
        return found

    def _releases(self, outputs: list[Output], jobs: list[Job]) -> Iterator[tuple[Release, Item | None]]:
        """Yield the charts that HelmReleases install."""
        made = [item for output in outputs for item in output.items]
        built = {(item.document.file, item.line()) for item in made}
        plain = [
            item
            for item in self._deployers
            if os.path.normpath(item.document.file) not in self._result.files or not built
        ]
        values = [item.value for item in (*made, *self._deployers)]
        sources = FluxSources(values, self._own[deploying.FLUX])
        texts = {**deploying.data_of(values), **self._generated_texts(jobs)}
        for item in (*made, *plain):
            if group_kind(item.value) != deploying.RELEASE:
                continue
            value = item.value
            spec, metadata = mapping(value.get("spec")), mapping(value.get("metadata"))
            place = deploying.chart_of(value, sources)
            own, hidden = deploying.release_values(value, texts)
            root = deploying.title(value)
            if hidden:
                self._gaps.hidden.append(f"{root} (values from objects that no file shows)")
            namespace = string(spec.get("targetNamespace")) or string(metadata.get("namespace"))
            name = string(spec.get("releaseName")) or "-".join(
                filter(None, (string(spec.get("targetNamespace")), string(metadata.get("name"))))
            )
            where: str | Remote
            if isinstance(place, Remote):
                where = self._vendored(place) or place
            else:
                where = os.path.normpath(os.path.join(self._prefix, (place or "").lstrip("/")))
                if place is None or not charts.is_chart(where):
                    self._gaps.hidden.append(f"{root} (its source is elsewhere)")
                    continue
            yield Release(where, root, name or charts.RELEASE, namespace, tuple(own)), item

    def _generated_texts(self, jobs: list[Job]) -> dict[str, Mapping[str, str]]:
        """The data of generated ConfigMaps by the names that people write, without the program's hash."""
        return deploying.data_of(each.value for job in jobs for each in job.found.objects)

    def _with_charts(self, jobs: list[Job]) -> list[Job]:
        """Return the work with the objects of the charts that its kustomizations include; each is rendered once."""
        included, found = dict[ChartEntry, tuple[Release, Item]](), dict[ChartEntry, list[Item]]()
        for job in jobs:
            for entry in job.found.charts:
                if entry not in included:
                    values, files_of_values = self._values_of(entry)
                    self._result.files.update(files_of_values)
                    included[entry] = self._release_of(entry, job.root, values)
        entries = {release: entry for entry, (release, _) in included.items()}
        for release, _, items in self._rendered(included.values()):
            found[entries[release]] = items
        return [job.with_charts(self._tree, found) if job.found.charts else job for job in jobs]

    def _release_of(self, entry: ChartEntry, root: str, values: Sequence[Mapping[str, Any]]) -> tuple[Release, Item]:
        """Return a chart that a kustomization includes, and its entry there."""
        (document,) = self._tree.documents(entry.file)
        chart = mappings(document.value.get("helmCharts"))[entry.number]
        namespace = string(chart.get("namespace")) or string(document.value.get("namespace"))
        name = string(chart.get("releaseName")) or charts.RELEASE
        item = Item(document, ("helmCharts", entry.number), chart)
        return Release(self._included(entry), root, name, namespace, tuple(values), places=False), item

    def _included(self, entry: ChartEntry) -> str | Remote:
        (document,) = self._tree.documents(entry.file)
        chart = mappings(document.value.get("helmCharts"))[entry.number]
        name, home = string(chart.get("name")), string(mapping(document.value.get("helmGlobals")).get("chartHome"))
        local = os.path.normpath(os.path.join(os.path.dirname(entry.file), home or "charts", name))
        return (
            local if charts.is_chart(local) else Remote(name, string(chart.get("repo")), string(chart.get("version")))
        )

    def _values_of(self, entry: ChartEntry) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Return the values that a kustomization gives to a chart, and the files in which they stand."""
        (document,) = self._tree.documents(entry.file)
        chart = mappings(document.value.get("helmCharts"))[entry.number]
        values, names = list[Mapping[str, Any]](), list[str]()
        for path in (chart.get("valuesFile"), *sequence(chart.get("additionalValuesFiles"))):
            if isinstance(path, str) and path:
                name = os.path.normpath(os.path.join(os.path.dirname(entry.file), path))
                try:
                    values += (mapping(each.value) for each in self._tree.documents(name))
                    names.append(name)
                except Unseen as error:
                    self._gaps.lacking.setdefault(str(error), []).append(entry.file)
        return [each for each in (*values, mapping(chart.get("valuesInline"))) if each], names

    def _of_helmfile(self, name: str) -> Iterator[Release]:
        """Yield the releases of a helmfile: those that are written without templates."""
        try:
            documents = [mapping(document.value) for document in self._tree.documents(name)]
        except Unseen:
            self._gaps.hidden.append(f"{name} (a template)")
            return
        folder, urls = os.path.dirname(name), dict[str, str]()
        for each in (one for document in documents for one in mappings(document.get("repositories"))):
            url = string(each.get("url"))
            urls[string(each.get("name"))] = f"oci://{url}" if each.get("oci") and "://" not in url else url
        for each in (one for document in documents for one in mappings(document.get("releases"))):
            chart, release = string(each.get("chart")), string(each.get("name"))
            values, hidden = list[Mapping[str, Any]](), False
            for one in sequence(each.get("values")):
                try:
                    if isinstance(one, str):
                        found = self._tree.documents(os.path.normpath(os.path.join(folder, one)))
                        values += (mapping(document.value) for document in found)
                    else:
                        values.append(mapping(one))
                except Unseen:
                    hidden = True
            root = f"release {release} of {name}"
            if hidden:
                self._gaps.hidden.append(f"{root} (values elsewhere)")
            where: str | Remote = os.path.normpath(os.path.join(folder, chart))
            if not charts.is_chart(str(where)) or self._lost(str(where)):
                before, _, own = chart.partition("/")
                address = urls.get(before, "")
                remote = Remote(own if address else chart, address, string(each.get("version")))
                where = self._vendored(remote) or remote
            yield Release(where, root, release or charts.RELEASE, string(each.get("namespace")), tuple(values))

    def _vendored(self, remote: Remote) -> str:
        """Return the folder of a remote chart in the repository, if a folder `charts/NAME` at its top has it."""
        for name in filter(None, (remote.name, remote.url.rstrip("/").rpartition("/")[2])):
            local = os.path.normpath(os.path.join(self._prefix, "charts", name))
            if charts.is_chart(local) and not self._lost(local):
                return local
        return ""

    def _lost(self, folder: str) -> bool:
        try:
            self._tree.checked(folder)
        except Unseen:
            return True
        return False

    def _installed(self, releases: list[tuple[Release, Item | None]], folders: list[str]) -> None:
        """Render the charts with the values of their releases, and those without a release with their own."""
        used = self._used | {each.chart for each, _ in releases if isinstance(each.chart, str)}
        own = [folder for folder in folders if folder not in used and programs.helm()]
        alone = [(Release(folder, folder, namespace=self._options.namespace), None) for folder in own]
        for release, item, items in self._rendered([*releases, *alone]):
            if item is not None:
                self._result.installed.add((item.document.file, item.line()))
            self._result.outputs.append(Output(release.root, items))

    def _rendered(
        self, releases: Iterable[tuple[Release, Item | None]]
    ) -> Iterator[tuple[Release, Item | None, list[Item]]]:
        """Yield releases with the objects of their charts, and note those that are not rendered."""
        wanted = list[tuple[Release, Item | None]]()
        for release, item in releases:
            if isinstance(release.chart, Remote) and not self._options.fetch:
                self._gaps.unpulled.setdefault(charts.pull(release.chart), []).append(release.root)
            elif isinstance(release.chart, Remote) and not release.chart.url:
                self._gaps.hidden.append(f"{release.root} (its source is elsewhere)")
            else:
                wanted.append((release, item))
        self._used |= {release.chart for release, _ in wanted if isinstance(release.chart, str)}
        failures = dict[str, list[str]]()
        for (release, item), data in zip(
            wanted, self._each(wanted, lambda each: self._template(each[0]), "helm"), strict=True
        ):
            if isinstance(data, str) and release.chart in self._given:
                self._result.problems.append(Problem(str(release.chart), 0, f"the chart is not rendered: {data}"))
                continue
            if isinstance(data, str):
                failures.setdefault(data, []).append(release.root)
                continue
            items, wrong = charts.items(self._tree, data, release)
            self._result.problems.extend(Problem(release.root, 0, each) for each in wrong)
            if isinstance(release.chart, str):
                self._result.charts.add(release.chart)
            elif item is not None:
                items = [_at_release(each, item) for each in items]
            yield release, item, items
        for reason, roots in failures.items():
            self._result.notes.append(f"{_charts(roots)} not rendered: {reason}")

    def _template(self, release: Release) -> bytes | str:
        try:
            if isinstance(release.chart, str) and charts.missing(self._tree, release.chart):
                return "a dependency is not vendored; helm dependency build CHART brings it"
            return charts.template(
                self._tree, release, self._downloads, version=self._options.version, cached=self._options.cached
            )
        except (programs.Failed, Unseen, OSError) as error:
            return str(error)

    # The work

    def _each(self, jobs: Sequence[Any], work: Callable[[Any], Any], what: str) -> Iterator[Any]:
        """Do the work of all jobs with as many threads as there are cores: each waits for a program."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
        if len(jobs) < 2:
            yield from map(work, jobs)
            return
        with ThreadPoolExecutor(min(cores, len(jobs), _WORKERS)) as pool:
            for done, result in enumerate(pool.map(work, jobs), start=1):
                self._options.tell(done, len(jobs), f"{what}: {done} of {len(jobs)}")
                yield result


_WORKERS = 16
"""The most programs that run at a time."""

_DEPLOYS = ("toolkit.fluxcd.io", "argoproj.io")
"""The ends of the groups of Flux and Argo CD."""


def _charts(roots: Sequence[str]) -> str:
    """Name charts by their folders, or by the objects that install them."""
    if len(roots) == 1 and not os.path.isdir(roots[0]):
        return f"the chart of {shown(roots[0], quotes=False)}"
    return several_of(roots, "chart")


def _at_release(made: Item, item: Item) -> Item:
    """Return an object of a chart from elsewhere in the file of the object that installs the chart."""
    document = Document(item.document.file, item.document.index, None, item.line(), Source("", 0))
    return replace(made, document=document)


def _judged_by(job: Job, tree: Tree) -> Iterator[str]:
    """Yield the files that are judged by what a root makes, and need not be judged by themselves.

    A file that a generator reads, or only the program, may hold an object which somebody applies: then it is not one.
    Nor is a whole object outside of the root's folders, unless Flux or Argo CD lets the root read it.
    """
    found = job.found
    own = {tree.kustomization(folder) for folder in found.folders}
    own |= {each.layers[0].document.file for each in found.objects} if job.over else set()
    made = found.deleted | {layer.document.file for each in found.objects for layer in each.layers if not layer.text}
    for name in found.files:
        if name in own or (name in made and _belongs(name, found.folders, tree)) or not _holds_objects(name, tree):
            yield os.path.normpath(name)


def _belongs(name: str, folders: set[str], tree: Tree) -> bool:
    """Whether a file lies below one of some folders, or is no whole object."""
    parents = map(str, PurePath(name).parents)
    return not folders.isdisjoint(parents) or not any(is_whole(each.value) for each in tree.documents(name))


def _holds_objects(name: str, tree: Tree) -> bool:
    try:
        return files.may_hold_objects(name) and any(files.is_typed(each.value) for each in tree.documents(name))
    except Unseen:
        return True


def _address(url: str) -> str:
    """Return the address of a repository of charts; Argo CD leaves out the scheme of a registry."""
    return url if "://" in url or not url else f"oci://{url}"


_ORIGIN = "config.kubernetes.io/origin"


def _without_origin(value: Object) -> tuple[Object, str]:
    """Return an object without the annotation of its origin, and the path in it."""
    metadata = mapping(value.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    text = annotations.get(_ORIGIN)
    if not isinstance(text, str):
        return value, ""
    rest = {key: each for key, each in annotations.items() if key != _ORIGIN}
    left = {key: each for key, each in metadata.items() if key != "annotations"}
    documents, _ = read(text, "")
    origin = mapping(documents[0].value) if documents else {}
    path = string(origin.get("path")) or string(origin.get("configuredIn"))
    return {**value, "metadata": {**left, "annotations": rest} if rest else left}, path
