"""Renders the roots (kustomizations, charts) among the files of a run, by kustomize and helm or from the files only."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import PurePath
from threading import Lock
from typing import Any

from webhook.api.fields import group_kind
from webhook.documents import files
from webhook.documents.documents import Document, Source
from webhook.documents.files import Item
from webhook.kustomize import following
from webhook.kustomize.followed import ChartEntry
from webhook.model import Problem
from webhook.rendering import charts, deploying, matching, variables
from webhook.rendering.building import Job, build, reads_origins
from webhook.rendering.charts import Release, Remote, Verbatim
from webhook.rendering.model import (
    Options,
    Output,
    Rendering,
    deployers,
    identity,
    is_helmfile,
    is_root,
)
from webhook.rendering.planning import REORDERED, Installed, Planner
from webhook.rendering.releases import Releases
from webhook.rendering.touched import Touched
from webhook.repository import builders, chart_folders, programs, results_cache
from webhook.repository.builders import Builder
from webhook.repository.gaps import Gaps, several_of
from webhook.repository.tree import Tree, Unseen, root_of
from webhook.text.words import listed, shown


def render(names: Sequence[str], options: Options, *, given: frozenset[str] = frozenset()) -> Rendering:
    """Render the kustomizations, charts, and objects of Flux and Argo CD among some files."""
    result, changed = Rendering(), Touched()
    if options.touched:
        names = [*names, *filter(os.path.islink, given)]  # one that leads to a folder stands for the files there
        changed = Touched(names)
        around = {root_of(os.path.dirname(name) or ".") for name in names if name != "-"}
        names = [name for name in files.find(map(os.path.relpath, sorted(around))) if isinstance(name, str)]
        given = frozenset()
    some = [name for name in names if name != "-" and name not in given]
    if not any(map(is_root, names)) and not deployers(some):
        return result
    trees, roots = defaultdict[str, list[str]](list), dict[str, str]()
    for name in names:
        if name != "-" and (name not in given or PurePath(name).name in files.KUSTOMIZATIONS):
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
        changed: Touched,
    ) -> None:
        self._tree, self._names, self._options, self._result = tree, names, options, result
        self._changed = changed
        self._given = frozenset(map(os.path.normpath, given))
        here = os.path.realpath(".")
        absolute = any(os.path.isabs(name) for name in names)
        self._prefix = tree.root if absolute else os.path.relpath(tree.root, here)
        self._planner = Planner(tree, names, self._prefix)
        self._gaps = Gaps()
        self._releases = Releases(tree, self._prefix, self._gaps)
        self._used = set[str]()
        self._unsure = dict[int, frozenset[str]]()  # of ConfigMaps, by the identity of what was made
        self._archives = charts.Archives()
        self._lock, self._made, self._given_values, self._filled = Lock(), 0, 0, 0
        self._verbatim = set[tuple[str, int, str]]()
        self._makers = set[str]()  # the folders with the templates of objects that charts make
        self._compared = dict[int, bool]()
        self._doubts = dict[tuple[str, Builder], str]()
        self._read = set[str]()  # the names of ConfigMaps and sources that have changed

    def render(self) -> None:
        """Render everything, and note the parts that could not be rendered."""
        planner, folders = self._planner, self._planner.chart_folders
        helmfiles = [name for name in self._names if is_helmfile(name)]
        kustomizations, unread = planner.kustomizations, planner.unread
        self._result.problems.extend(Problem(name, 0, f"not rendered: {reason}") for name, reason in unread.items())
        self._result.files.update(unread)
        if not (kustomizations or folders or planner.deployers or helmfiles):
            return
        plan = planner.plan()
        self._gaps.hidden += plan.hidden
        self._gaps.elsewhere += plan.elsewhere
        self._gaps.components += plan.components
        jobs, releases, touched = plan.jobs, plan.releases, set[str]()
        if self._options.touched:
            self._read = {*planner.changed_maps(jobs, self._changed), *planner.changed_sources(jobs, self._changed)}
            touched = self._roots_touched(
                job for job in jobs if self._is_touched(job) or (job.variables and job.variables.maps & self._read)
            )
            jobs = [job for job in jobs if job.root in touched]
        jobs = self._with_charts(jobs)
        noted = {"", *self._gaps.hidden}
        self._gaps.hidden += [line for job in jobs if (line := self._reordered(job)) not in noted]
        outputs = self._built(jobs)
        releases += self._noted(self._releases.of_flux(outputs, self._unsure, planner, self._result.files))
        releases += (one for name in helmfiles for one in self._noted(self._releases.of_helmfile(name)))
        if self._options.touched:
            touched |= {root for root, names in planner.reads.items() if any(map(self._has_some, names))}
            releases = [(release, item) for release, item in releases if self._is_changed(release, item, touched)]
            folders = [folder for folder in folders if self._changed.has_chart(self._tree, folder)]
        self._installed(releases, folders)
        self._gaps.hidden += planner.unplanned(plan, self._result.outputs)
        self._result.notes.extend(self._gaps.lines())
        self._result.unfollowed.extend(self._gaps.unjudged)

    # Kustomizations

    def _reordered(self, job: Job) -> str:
        """Return the note for changes that have another effect on the objects of charts, if they have; else nothing."""
        if not (job.over and job.of_charts and following.is_reordered(self._tree, job.over, job.of_charts)):
            return ""
        return f"{job.root} ({REORDERED})"

    def _built(self, jobs: list[Job]) -> list[Output]:
        command = programs.kustomize()

        reads = any(job.variables and job.variables.maps for job in jobs)

        def work(job: Job) -> bytes | str | None:
            made = build(job, command, self._tree, self._options)
            return (self._beyond(len(made)) or made) if isinstance(made, bytes) else made

        outputs, remade = list[Output](), set[str]()
        for job, data in zip(jobs, self._each(jobs, work, "kustomize"), strict=True):
            self._result.patches.update(matching.patches_over(job, self._tree))
            self._result.texts.update(job.found.files)
            for reason in job.found.remote:
                self._gaps.remote.setdefault(reason, []).append(job.root)
            self._gaps.absent.update(dict.fromkeys(job.found.absent))
            self._result.problems.extend(Problem(job.place, 0, f"not rendered: {each}") for each in job.found.too_large)
            made = None
            if isinstance(data, bytes):
                made, unreadable = matching.matched(job, data, self._tree, self._prefix)
                items = made.items
                self._result.problems.extend(unreadable)
                remade |= self._planner.remade(job, items) if reads else set()
            else:
                items = [each.rendered(job.root) for each in job.found.objects]
                if job.found.unfollowed:
                    self._gaps.hidden.append(f"{job.root} ({_unfollowed(job)})")
                elif job.spreads and job.built and command:
                    self._gaps.hidden.append(f"{job.root} (a chart in several namespaces, followed by the files)")
                elif job.found.blocked and job.built and command and not data:
                    self._gaps.hidden.append(f"{job.root} (followed by the files{_address(job)})")
                elif reads_origins(job, self._tree):
                    self._gaps.hidden.append(f"{job.root} (buildMetadata not followed)")
                if job.built and (job.found.unfollowed or data):
                    self._gaps.followed.append(job.root)
                seen = not (job.found.remote or job.found.charts or job.found.absent or job.found.unseen)
                if data and seen:
                    self._result.problems.append(Problem(job.place, 0, f"not rendered: {data}"))
                for reason in job.found.unseen or ([data] if data and not seen else []):
                    self._gaps.lacking.setdefault(reason, []).append(job.root)
            self._result.files.update(matching.judged_by(job, self._tree, made))
            self._result.before.extend(matching.before(job, made and made.items))
            if job.found.is_whole and job.built:
                self._gaps.idle.update(dict.fromkeys(job.found.idle))
            if not self._fills(job, items):
                job = job._replace(variables=None)
                self._gaps.hidden.append(f"{job.root} (variables that make more than {MAX_FILLED // 2**20} MiB)")
            if any(matching.is_guessed(each, job) for each in items):
                self._gaps.hidden.append(
                    f"{job.root} (variables that no file shows, functions of them, or YAML in them)"
                )
            output = Output(job.root, [matching.finished(each, job, flux=self._planner.is_of_flux) for each in items])
            self._result.before.extend(matching.unfilled(items, output.items, job))
            self._result.before.extend(matching.unmoved(items, job))
            for each, item in zip(items, output.items, strict=True):
                if keys := matching.unsure_keys(each, job):
                    self._unsure[id(item)] = keys
            outputs.append(output)
            self._result.outputs.append(output)
        for job in jobs:
            if job.variables and not remade.isdisjoint(job.variables.maps):
                self._gaps.hidden.append(f"{job.root} (variables of a ConfigMap that only a program makes)")
        return outputs

    def _fills(self, job: Job, items: Iterable[Item]) -> bool:
        """Count the text that variables make, and return whether it is not too much for all kustomizations together."""
        if job.variables is not None:
            sizes = (job.variables.filled(each.value) for each in items)
            self._filled += sum(size for size in sizes if size <= variables.MAX_FILLED)
        return self._filled <= MAX_FILLED

    # Changes

    def _roots_touched(self, jobs: Iterable[Job]) -> set[str]:
        """Return the roots of some work, those for which a changed file was read, and all that these make."""
        planner = self._planner
        found = {job.root for job in jobs}
        found |= {root for root, names in planner.reads.items() if any(map(self._has_some, names))}
        while more := {root for root, makers in planner.makers.items() if not found.isdisjoint(makers)} - found:
            found |= more
        return found

    def _noted(self, installing: Iterator[Installed]) -> Iterator[Installed]:
        """Yield the charts that are installed, and note the files that are read for each."""
        while True:
            with self._tree.noting() as names:
                one = next(installing, None)
            if one is None:
                return
            self._planner.reads[one[0].root].append(names)
            yield one

    def _has_some(self, names: set[str]) -> bool:
        """Whether one of some files has changed."""
        if id(names) not in self._compared:
            self._compared[id(names)] = self._changed.any(names)
        return self._compared[id(names)]

    def _is_touched(self, job: Job) -> bool:
        """Whether a kustomization uses a file that has changed, or installs a chart with such a file.

        One that no longer exists may have been in use if it was below the folder.
        """
        if self._changed.had(job.folder):
            return True
        own = {*job.found.files, *([job.over.document.file] if job.over else ())}
        for entry in job.found.charts:
            chart = self._releases.chart_of(entry)
            own.update(self._releases.values_of(entry)[1])
            if isinstance(chart, str) and self._changed.has_chart(self._tree, chart):
                return True
        if self._changed.any(own):
            return True
        releases = [each.value for each in job.found.objects if group_kind(each.value) == deploying.RELEASE]
        if any(not self._read.isdisjoint(deploying.reads(each)) for each in releases):
            return True
        charts_named = (place for each in releases for place, _ in deploying.charts_of(each, self._planner.sources))
        return any(
            self._changed.has_chart(self._tree, os.path.join(self._prefix, path))
            for path in charts_named
            if isinstance(path, str)
        )

    def _is_changed(self, release: Release, item: Item | None, roots: set[str]) -> bool:
        if isinstance(release.chart, str) and self._changed.has_chart(self._tree, release.chart):
            return True
        if release.root in roots:
            return True
        if item is None:
            return False
        if group_kind(item.value) == deploying.RELEASE and not self._read.isdisjoint(deploying.reads(item.value)):
            return True
        return bool(item.root) or self._changed.has(item.document.file)

    # Charts

    def _with_charts(self, jobs: list[Job]) -> list[Job]:
        """Return the jobs, with the objects of the charts that their kustomizations include. Each is rendered once."""
        included, found = dict[ChartEntry, Installed](), dict[ChartEntry, list[Item]]()
        for job in jobs:
            for entry in job.found.charts:
                if entry not in included:
                    included[entry] = self._releases.of_entry(entry, job.root)
                    values = self._releases.values_of(entry)[1]
                    self._result.files.update(name for name in values if not matching.holds_objects(name, self._tree))
        entries, printed = {id(release): entry for entry, (release, _) in included.items()}, dict[ChartEntry, bytes]()
        for release, _, items, output in self._rendered(included.values()):
            found[entries[id(release)]], printed[entries[id(release)]] = items, output.printed
        own = [{entry: found[entry] for entry in job.found.charts if entry in found} for job in jobs]
        return [
            job.with_charts(self._tree, some, printed) if job.found.charts else job
            for job, some in zip(jobs, own, strict=True)
        ]

    def _installed(self, releases: list[Installed], folders: list[str]) -> None:
        """Render the charts with the values of their releases, and those without a release with their own."""
        used = self._used | {each.chart for each, _ in releases if isinstance(each.chart, str)}
        alone = self._alone([folder for folder in folders if folder not in used])
        rendered = set[int]()
        for release, _, items, _ in self._rendered([*releases, *alone]):
            rendered.add(id(release))
            self._result.outputs.append(Output(release.root, items))
        chained = [
            (replace(release, built=False), item)
            for release, item in (*releases, *alone)
            if isinstance(release.chart, str) and chart_folders.is_chained(self._tree, release.chart)
        ]
        for release, _, items, _ in self._rendered(chained, quiet=True):
            self._result.outputs.append(Output(release.root, items))
        left = {id(item) for release, item in releases if id(release) not in rendered}
        whole = (item for _, item in releases if item is not None and id(item) not in left)
        self._result.installed.update(map(identity, whole))
        inner = {
            os.path.normpath(os.path.dirname(name)) for name in self._names if os.path.basename(name) == files.CHART
        }
        inner -= {*self._used, *self._planner.chart_folders}
        while some := self._unmade(inner):
            inner -= {*some}
            for release, _, items, _ in self._rendered(self._alone(some)):
                self._result.outputs.append(Output(release.root, items))

    def _alone(self, folders: Iterable[str]) -> list[Installed]:
        """Return charts as somebody may install them by themselves, without those that helm says are libraries."""
        namespace = self._options.namespace
        found = [Release(folder, folder, namespace=namespace) for folder in folders if programs.helm()]
        libraries = [release for release in found if chart_folders.is_library(self._tree, str(release.chart))]
        refused = [*self._each(libraries, self._is_refused, "helm")]
        left_out = {id(release) for release, is_refused in zip(libraries, refused, strict=True) if is_refused}
        return [(release, None) for release in found if id(release) not in left_out]

    def _unmade(self, folders: Iterable[str]) -> list[str]:
        """Return the outermost of the charts that others load, and of which these make no object."""
        outer = {chart for chart in self._result.charts if not self._options.touched or self._has_changed(chart)}
        idle = sorted(
            each for each in folders if each not in self._makers and chart_folders.has_templates(self._tree, each)
        )
        found = [folder for folder in idle if self._is_loaded(folder, outer)]
        everyone = {*found}
        return [folder for folder in found if not self._is_loaded(folder, everyone)]

    def _is_loaded(self, folder: str, charts_around: set[str]) -> bool:
        """Whether Helm loads a chart as a part of one of some others. Only the folders above it are looked at."""
        above = charts_around.intersection(map(str, PurePath(folder).parents))
        return any(chart_folders.loads(self._tree, each, folder) for each in above)

    def _has_changed(self, chart: str) -> bool:
        return self._changed.has_chart(self._tree, chart)

    def _rendered(
        self, releases: Iterable[Installed], *, quiet: bool = False
    ) -> Iterator[tuple[Release, Item | None, list[Item], charts.Manifests]]:
        """Yield releases with what their charts make. Unless it is `quiet`, note those that are not rendered."""
        wanted = list[Installed]()
        for release, item in releases:
            if isinstance(release.chart, Remote) and not self._options.fetch:
                self._gaps.unpulled.setdefault(charts.pull(release.chart), []).append(release.root)
            elif isinstance(release.chart, Remote) and not release.chart.url:
                self._gaps.elsewhere.append(f"{release.root} (its source is elsewhere)")
            else:
                wanted.append((release, item))
        values = defaultdict[str, list[bytes]](list)
        for release, _ in wanted:
            if isinstance(release.chart, str):
                values[release.chart] += release.values
        self._result.texts.update(*(chart_folders.texts(self._tree, chart, own) for chart, own in values.items()))
        self._used |= values.keys()
        for release in () if quiet else (release for release, _ in wanted):
            self._gaps.hidden += [f"{release.root} ({doubt})"] if (doubt := self._doubt(release)) else []
        failures, incomplete = dict[str, list[str]](), list[str]()
        made = self._each(wanted, lambda each: self._template(each[0]), "helm")
        for (release, item), output in zip(wanted, made, strict=True):
            data = output if isinstance(output, str) else self._items(release, output)
            if isinstance(data, str) and quiet:
                continue
            if isinstance(data, str) and release.chart in self._given:
                self._result.problems.append(Problem(str(release.chart), 0, f"the chart is not rendered: {data}"))
                continue
            if isinstance(data, str):
                failures.setdefault(data, []).append(release.root)
                if item is not None and data != _NOT_VENDORED and programs.helm():
                    self._result.unfollowed.append(release.root)
                continue
            incomplete += [] if output.complete else [release.root]
            is_open = "${" in release.namespace or any(b"${" in each for each in release.values)
            if item is not None and is_open and not quiet:
                self._gaps.open.append(release.root)
            chart = release.chart
            if isinstance(chart, str) and (name := chart_folders.unread(self._tree, chart, release.values)):
                self._gaps.hidden.append(f"{release.root} (the hidden file {shown(name, quotes=False)})")
            kustomized = not release.places or (item is not None and group_kind(item.value) == deploying.RELEASE)
            if kustomized and charts.reads_unlike(output):
                self._gaps.hidden.append(f"{release.root} ({_UNLIKE})")
            if output.unsure:
                self._gaps.hidden.append(f"{release.root} ({_SEVERAL})")
            items, wrong = data
            self._result.problems.extend(Problem(release.root, 0, each) for each in wrong)
            if isinstance(release.chart, str):
                self._result.charts.add(release.chart)
                self._result.files.update(charts.covered(self._tree, items, release))
                self._result.before.extend(charts.unlike(items, release))
                made_of = {each.document.file for each in items if not isinstance(each, Verbatim)}
                self._makers.update(str(above) for file in made_of for above in PurePath(file).parents)
            elif item is not None:
                items = [_at_release(each, item) for each in items]
            yield release, item, items, output
        for reason, roots in failures.items():
            self._result.notes.append(f"{_charts(roots)} not rendered: {reason}")
        if incomplete and not quiet:
            self._result.notes.append(f"{_charts(incomplete)} rendered without {_LACKING}")

    def _doubt(self, release: Release) -> str:
        """Return why a release may get other dependencies than those that are rendered; empty if it gets these."""
        key = str(release.chart), release.builder
        if isinstance(release.chart, str) and key not in self._doubts:
            self._doubts[key] = builders.doubt(self._tree, *key)
        return self._doubts.get(key, "")

    def _template(self, release: Release) -> charts.Manifests | str:
        with self._lock:
            self._given_values += sum(map(len, release.values))
            if self._given_values > MAX_MADE:
                return f"the values of all releases have more than {MAX_MADE // 2**20} MiB"
        lacking = chart_folders.missing(self._tree, release.chart) if isinstance(release.chart, str) else set[str]()
        options = self._options
        try:
            made = charts.template(
                self._tree, release, self._archives, version=options.version, cached=options.cached, without=lacking
            )
        except (programs.Failed, Unseen, OSError) as error:
            return _NOT_VENDORED if lacking else str(error)
        return self._beyond(len(made.templates) + len(made.whole)) or made

    def _is_refused(self, release: Release) -> bool:
        """Whether helm says that a chart is a library."""
        options = self._options
        try:
            charts.template(self._tree, release, self._archives, version=options.version, cached=options.cached)
        except programs.Failed as error:
            return str(error) == charts.NO_APPLICATION
        except (Unseen, OSError):
            return False
        return False

    def _items(self, release: Release, made: charts.Manifests) -> tuple[list[Item], list[str]] | str:
        """Return the objects of a release and the problems with its manifests, or the reason why there are none."""
        items, wrong = charts.items(self._tree, made, release)
        try:
            return self._once(items, release), wrong
        except Unseen as error:
            return str(error)

    # The work

    def _beyond(self, size: int) -> str:
        """Count what was made, and return the reason if all of it together is too much."""
        with self._lock:
            self._made += size
            within = self._made <= MAX_MADE
        return "" if within else f"kustomizations and charts make more than {MAX_MADE // 2**20} MiB"

    def _once(self, items: Iterable[Item], release: Release) -> list[Item]:
        """Return the objects of a release without those below `crds` that another one creates in the same way.

        Raises Unseen if there are too many. A kustomization may change those of its charts, which are all returned.
        """
        found = list[Item]()
        for item in items:
            if isinstance(item, Verbatim) and release.places:
                same = identity(item)
                if same in self._verbatim:
                    continue
                self._verbatim.add(same)
                if reason := self._beyond(len(same[-1])):
                    raise Unseen(reason)
            found.append(item)
        return found

    def _each(self, jobs: Sequence[Any], work: Callable[[Any], Any], what: str) -> Iterator[Any]:
        """Run all jobs, with one thread for each core. Each thread waits for a program."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
        if len(jobs) < 2:
            yield from map(work, jobs)
            return
        with ThreadPoolExecutor(min(cores, len(jobs), _WORKERS)) as pool:
            for done, result in enumerate(pool.map(work, jobs), start=1):
                self._options.tell(done, len(jobs), f"{what}: {done} of {len(jobs)}")
                yield result


def _unfollowed(job: Job) -> str:
    """Say which fields of a kustomization only the program follows, and the address that keeps it from running."""
    fields = sorted(job.found.unfollowed)
    return f"{listed(fields, len(fields))} not followed{_address(job)}"


def _address(job: Job) -> str:
    return f", because of an address: {shown(job.found.blocked[0], quotes=False)}" if job.found.blocked else ""


_UNLIKE = "a merge key after keys, which kustomize and kubectl read otherwise"

_SEVERAL = "values of several documents, of which Flux and older releases of helm read the first"

_LACKING = "dependencies that are not vendored; helm dependency build CHART brings them"

_NOT_VENDORED = "a dependency is not vendored; helm dependency build CHART brings it"

MAX_MADE = 512 * 2**20
"""Bytes of all that programs make of one repository, and of the values that helm gets for all releases."""

MAX_FILLED = 32 * 2**20
"""Characters of all that the variables of Flux make."""

_WORKERS = 16
"""Maximum number of programs that run at a time."""


def _charts(roots: Sequence[str]) -> str:
    """Name charts by their folders, or by the objects that install them."""
    if len(roots) == 1 and not os.path.isdir(roots[0]):
        return f"the chart of {shown(roots[0], quotes=False)}"
    return several_of(roots, "chart")


def _at_release(made: Item, item: Item) -> Item:
    """Return an object of a chart from elsewhere in the file of the object that installs the chart."""
    document = Document(item.document.file, item.document.index, None, item.line(), Source("", 0))
    return replace(made, document=document)
