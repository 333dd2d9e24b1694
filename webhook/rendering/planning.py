"""Finds what a repository deploys: its kustomizations, charts, and objects of Flux and Argo CD.

An object of Flux or Argo CD may itself be made by a kustomization, which patches it. Then the patched object counts.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from webhook.api.encryption import is_encrypted
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.objects import CONFIG_MAP
from webhook.catalog import deployer_fields
from webhook.documents import files
from webhook.documents.documents import Document, Source
from webhook.documents.files import Item
from webhook.kustomize import following
from webhook.kustomize.followed import Built, Kustomization, name_of
from webhook.kustomize.origins import Rendered
from webhook.model import Object, Path
from webhook.rendering import argo, deploying, flux_sources, matching, read_by_flux, unfollowed
from webhook.rendering.building import Job
from webhook.rendering.charts import Release, Remote, Templated
from webhook.rendering.flux_sources import GIT, SOURCES, FluxSources
from webhook.rendering.model import Output, deployers
from webhook.rendering.touched import Touched
from webhook.rendering.variables import OPEN, MapObject, Maps, is_open, reads_maps, variables
from webhook.repository import addresses, chart_folders
from webhook.repository.builders import Builder
from webhook.repository.tree import Tree, Unseen
from webhook.text.words import shown

Installed = tuple[Release, Item | None]
"""A chart with its values, and the object that installs it, if there is one."""

_DEPLOYS = ("toolkit.fluxcd.io", "argoproj.io")
"""The ends of the groups of Flux and Argo CD."""

_PLANNED = (deploying.FLUX, deploying.APPLICATION, deploying.SET)

_KNOWN = {
    deploying.FLUX: deployer_fields.FLUX,
    deploying.APPLICATION: deployer_fields.APPLICATION,
    deploying.SET: deployer_fields.SET,
}
"""The fields of their specs that are followed, or change no object."""

_AWAY = ("suspend", "kubeConfig")
"""Fields of a Kustomization of Flux that is not applied, or is applied in another cluster."""

_ROUNDS = 5
"""The most objects of Flux or Argo CD of which each makes the next, and changes it."""


@dataclass
class Plan:
    """The parts of a repository to render. `included` are the folders and files that other parts use.

    `components` are those that no part uses, and `objects` are the objects of Flux and Argo CD that are planned.
    """

    jobs: list[Job] = field(default_factory=list)
    objects: list[Item] = field(default_factory=list)
    releases: list[Installed] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    included: set[str] = field(default_factory=set)
    components: list[str] = field(default_factory=list)


class Planner:
    """Plans the rendering of one repository. `prefix` is its path from the working folder."""

    def __init__(self, tree: Tree, names: Sequence[str], prefix: str) -> None:
        self._tree, self._names, self._prefix = tree, names, prefix
        self._followed = dict[tuple[str, ...], Job]()
        self._sets = dict[str, tuple[list[Object], str, set[str]]]()
        self._fetched, self._reordered = list[Object](), dict[tuple[str, str], bool]()
        self.sources = FluxSources(())
        """The sources of Flux in the files, and as the work makes them, once it is planned."""
        self.unread = dict[str, str]()
        """The kustomizations that are not read, with the reasons, once `kustomizations` are known."""
        self.reads = defaultdict[str, list[set[str]]](list)
        """The files that were read for the roots that objects of Flux and Argo CD make, once the work is planned."""
        self.makers = defaultdict[str, set[str]](set)
        """The roots that make these objects, by the roots that the objects make, once the work is planned.

        They include the files in which the objects are written.
        """
        self.away = set[str]()
        """The roots of Kustomizations that Flux does not apply in its own cluster, once the work is planned."""
        self._titles = defaultdict[_Place, list[str]](list)

    @cached_property
    def _origin(self) -> str:
        return addresses.origin(self._tree.root)

    @cached_property
    def deployers(self) -> list[Item]:
        """The objects of Flux and Argo CD in the files."""
        found = list[Item]()
        for name in deployers(self._names):
            documents = [each for each in files.read(name) if isinstance(each, Document)]
            for item in files.items(documents)[0]:
                if (kind := group_kind(item.value)) == deploying.INSTANCE:
                    found += (item, *(replace(item, value=each) for each in deploying.synced(item.value)))
                elif kind[0].endswith(_DEPLOYS):
                    found.append(item)
        return found

    @cached_property
    def own(self) -> Mapping[tuple[str, str], str]:
        """The names of this repository in the addresses that Flux uses, and in those of Argo CD."""
        values = [item.value for item in self.deployers]
        sources, urls = FluxSources(values), defaultdict[tuple[str, str], list[str]](list)
        for value in values:
            kind, namespace = group_kind(value), string(mapping(value.get("metadata")).get("namespace"))
            if kind == deploying.FLUX:
                specs = sources.specs(mapping(mapping(value.get("spec")).get("sourceRef")), namespace) or [{}]
                urls[kind] += (string(spec.get("url")) for spec in specs[: flux_sources.MOST_SPECS])
            elif kind in (deploying.APPLICATION, deploying.SET):
                urls[deploying.APPLICATION] += argo.addresses(value)
        return {kind: addresses.known(self._tree.root, urls[kind]) for kind in (deploying.FLUX, deploying.APPLICATION)}

    @cached_property
    def places(self) -> Mapping[tuple[str, str], addresses.RepositoryPlace]:
        """The places of this repository by the addresses of Flux's sources, and by those of Argo CD."""
        urls, kinds = defaultdict[tuple[str, str], list[str]](list), (deploying.APPLICATION, deploying.SET)
        for value in (item.value for item in self.deployers):
            if (kind := group_kind(value)) == GIT:
                urls[deploying.FLUX].append(string(mapping(value.get("spec")).get("url")))
            elif kind in kinds:
                urls[deploying.APPLICATION] += argo.addresses(value)
        return {kind: addresses.home(self._tree.root, urls[kind], own) for kind, own in self.own.items()}

    @cached_property
    def is_of_flux(self) -> bool:
        """Whether Flux deploys the repository."""
        return any(group_kind(item.value) == deploying.FLUX for item in self.deployers)

    @cached_property
    def kustomizations(self) -> Mapping[str, Document]:
        """The kustomizations by their folders."""
        found = dict[str, Document]()
        for name in self._names:
            if os.path.basename(name) in files.KUSTOMIZATIONS:
                try:
                    document = self._tree.first(name)
                except Unseen as error:
                    reason = str(error)
                    if not (error.absent or (reason.endswith(files.TEMPLATE) and "templates" in name.split("/")[:-1])):
                        self.unread[name] = reason.replace(files.TEMPLATE, files.MISPLACED)
                    continue
                if not isinstance(document.value, dict):
                    continue
                folder, version = os.path.normpath(os.path.dirname(name)), string(document.value.get("apiVersion"))
                if folder in found:
                    self.unread[name] = "its folder has another kustomization, and kustomize refuses both"
                elif version.partition("/")[0] in ("", "kustomize.config.k8s.io"):
                    found[folder] = document
        return found

    @cached_property
    def chart_folders(self) -> list[str]:
        """The folders of charts, without those that Helm loads as a part of another one. Some may be libraries."""
        folders = sorted(
            os.path.normpath(os.path.dirname(name)) for name in self._names if os.path.basename(name) == files.CHART
        )
        found, installable = list[str](), list[str]()
        for folder in folders:
            if not any(chart_folders.loads(self._tree, each, folder) for each in installable):
                found.append(folder)
                installable += [] if chart_folders.is_library(self._tree, folder) else [folder]
        return found

    def plan(self) -> Plan:
        """Return the plan that the objects of Flux and Argo CD describe.

        Kustomizations may patch or create these objects, and so may other such objects. So the plan is made again until
        they no longer change, at most _ROUNDS times.
        """
        raw = [item for item in self.deployers if group_kind(item.value) in _PLANNED and _is_whole(item.value)]
        planned, plan = raw, self._planned(raw)
        for _ in range(_ROUNDS):
            made, fetched = self._made(raw, plan.jobs), self._made_sources(plan.jobs)
            if fetched == self._fetched and [each.value for each in made] == [each.value for each in planned]:
                break
            self._fetched = fetched
            planned, plan = made, self._planned(made)
        origin = addresses.name_of(self._origin)
        plan.elsewhere += (
            f"sources named {shown(own)} (judged by the files here, though the origin is {shown(origin)})"
            for own in dict.fromkeys(self.own.values())
            if origin and own not in ("", origin)
        )
        for (file, *_), titles in self._titles.items():
            for title in titles:
                self.makers[title].add(file)
        for job in plan.jobs:
            for each in job.found.objects:
                first = each.layers[0]
                for title in self._titles.get(_place(first.document, first.base), ()):
                    self.makers[title].add(job.root)
        return plan

    def unplanned(self, plan: Plan, outputs: Iterable[Output]) -> Iterator[str]:
        """Yield why some objects of Flux and Argo CD that were made are not rendered: the plan has others, or none.

        They are objects of charts, and those of a kustomization with fields that only the program follows. So are
        objects that read a ConfigMap or a source which a chart makes otherwise than files have it.
        """
        outputs = [*outputs]
        values = chain((item.value for item in (*plan.objects, *self.deployers)), self._fetched)
        known, own = {*map(_deployed, values)}, self.own[deploying.FLUX]
        for output in outputs:
            for item in output.items:
                value = item.value
                whole = group_kind(value) in _PLANNED and _is_whole(value)
                if isinstance(item, Templated):
                    whole = whole or group_kind(value) == deploying.RELEASE
                if group_kind(value) == deploying.INSTANCE:
                    whole = any(deploying.synced(value)) or deploying.changes_sync(value)
                if group_kind(value) == GIT:
                    whole = not addresses.is_elsewhere(string(mapping(value.get("spec")).get("url")), own)
                if whole and (key := _deployed(value)) not in known:
                    known.add(key)
                    yield f"{deploying.title(value)} (as {output.root} makes it)"
        items = (item for output in outputs for item in output.items)
        of_flux = (item.value for item in (*self.deployers, *items) if group_kind(item.value) in read_by_flux.READERS)
        readers = [*{_deployed(value): value for value in of_flux}.values()]
        maps = any(named.kind == CONFIG_MAP[1] for value in readers for named, _ in read_by_flux.references(value))
        written = (item.value for item in (*self.deployers, *(self.plain_maps if maps else ())))
        found = (each.value for job in plan.jobs for each in job.found.objects)
        yield from dict.fromkeys(read_by_flux.unlike(readers, (*self._fetched, *written, *found), outputs))

    def _made(self, raw: list[Item], jobs: Iterable[Job]) -> list[Item]:
        """Return objects as the work makes them, and those of files that it does not make."""
        found, kept = defaultdict[_Place, dict[str, Item]](dict), {_place(item.document, item.base) for item in raw}
        for job in jobs:
            for each in job.found.objects:
                if group_kind(each.value) in _PLANNED and _is_whole(each.value):
                    first = each.layers[0]
                    item = matching.finished(each.rendered(job.root), job, flux=self.is_of_flux)
                    place = _place(first.document, first.base)
                    found[place].setdefault(json.dumps(item.value, sort_keys=True), item)
                    if job.over or matching.is_below(first.document.file, job.found.folders):
                        kept.discard(place)
        written = {_place(item.document, item.base): item for item in raw}
        result = list[Item]()
        for place in (*written, *(place for place in found if place not in written)):
            made, own = dict(found[place]), written.get(place)
            if own is not None:
                same = made.pop(json.dumps(own.value, sort_keys=True), None)
                result += [own] if same is not None or place in kept else []
            result += made.values()
        return result

    def _made_sources(self, jobs: Iterable[Job]) -> list[Object]:
        """Return the sources of Flux as the work makes them."""
        return [
            matching.finished(each.rendered(job.root), job, flux=self.is_of_flux).value
            for job in jobs
            for each in job.found.objects
            if group_kind(each.value)[0] == SOURCES
        ]

    def _planned(self, objects: Iterable[Item]) -> Plan:
        values = (*self._fetched, *(item.value for item in self.deployers))
        self.sources = FluxSources(values, self.own[deploying.FLUX], self.places[deploying.FLUX])
        plan, of_flux = Plan(), dict[int, Item]()
        self.reads.clear()
        self.away.clear()
        self._titles.clear()
        for folder, document in self.kustomizations.items():
            for key in ("resources", "bases", "components"):
                paths = (path for path in sequence(document.value.get(key)) if isinstance(path, str))
                plan.included.update(os.path.normpath(os.path.join(folder, path)) for path in paths)
        for item in objects:
            plan.objects.append(item)
            kind = group_kind(item.value)
            if reason := unfollowed.reason(mapping(item.value.get("spec")), _KNOWN[kind]):
                plan.hidden.append(f"{deploying.title(item.value)} ({reason})")
            operation = {"operation": item.value.get("operation") if kind == deploying.APPLICATION else None}
            if reason := unfollowed.reason(operation, {"operation": deployer_fields.OPERATION}):
                plan.hidden.append(f"{deploying.title(item.value)} ({reason})")
            if self.is_of_flux and is_open(item.value.get("spec")):
                plan.hidden.append(f"{deploying.title(item.value)} ({OPEN})")
            if is_encrypted(item.value):
                plan.hidden.append(f"{deploying.title(item.value)} ({flux_sources.ENCRYPTED})")
            if kind == deploying.FLUX:
                self._titles[_place_of(item)].append(title := deploying.title(item.value))
                self.away |= {title} if any(mapping(item.value.get("spec")).get(key) for key in _AWAY) else set()
                if job := self._of_flux(item, plan):
                    of_flux[len(plan.jobs)] = item
                    plan.jobs.append(job)
            elif kind == deploying.APPLICATION:
                self._of_argo(item, item.value, plan)
            else:
                made, reason, names = self._applications(item.value)
                reason = reason or self._left(item.value, made)
                for each in made:
                    self._of_argo(item, each, plan)
                    self.reads[deploying.title(each)].append(names)
                if reason:
                    plan.hidden.append(f"{deploying.title(item.value)} ({reason})")
        instances = (item.value for item in self.deployers if group_kind(item.value) == deploying.INSTANCE)
        plan.hidden += (
            f"{deploying.title(each)} (kustomize not followed)" for each in instances if deploying.changes_sync(each)
        )
        own = [folder for folder, each in self.kustomizations.items() if each.value.get("kind") != "Component"]
        plan.jobs += (self._of_folder(folder) for folder in own if folder not in plan.included)
        reached = {folder for job in plan.jobs for folder in job.found.folders}
        others = [folder for folder in self.kustomizations if folder not in own]
        for folder in (*own, *others):  # those that include each other, and components that nothing includes
            if folder not in reached:
                plan.jobs.append(self._of_folder(folder)._replace(built=folder in own))
                reached |= plan.jobs[-1].found.folders
                plan.components += [] if folder in own else [folder]
        reads = any(reads_maps(item.value) for item in of_flux.values())
        maps = Maps(self._maps(plan.jobs) if reads else ())
        for number, item in of_flux.items():
            found = variables(item.value, maps)
            plan.jobs[number] = plan.jobs[number]._replace(variables=found)
        return plan

    def _applications(self, value: Object) -> tuple[list[Object], str, set[str]]:
        """Return the Applications that a set makes, why some are not made, and the files that were read for them."""
        key = json.dumps(value, sort_keys=True)
        if key not in self._sets:
            with self._tree.noting() as names:
                made, reason = argo.applications(value, self._tree, self._prefix)
            self._sets[key] = made, reason, names
        return self._sets[key]

    def _left(self, value: Object, made: Iterable[Object]) -> str:
        """Return why the Applications of an ApplicationSet may differ from those that were made, if they may."""
        for generator in mappings(mapping(value.get("spec")).get("generators")):
            url = string(mapping(generator.get("git")).get("repoURL"))
            if addresses.is_elsewhere(url, self.own[deploying.APPLICATION]):
                return "a generator of another repository"
            if self._is_namesake(url):
                return f"a generator of {shown(url, quotes=False)}"
        parts = [
            (argo.sources_of(each), mapping(mapping(each.get("spec")).get("destination")).get("namespace"))
            for each in made
        ]
        return "a template that is not filled in" if "{{" in json.dumps(parts) else ""

    def _is_namesake(self, url: str) -> bool:
        """Whether an address that Argo CD uses belongs to another repository of the same name."""
        kind = deploying.APPLICATION
        return addresses.is_namesake(url, self.own[kind], self.places[kind])

    def _of_folder(self, folder: str) -> Job:
        if (folder,) not in self._followed:
            self._followed[folder,] = Job(folder, folder, following.follow(self._tree, folder))
        return self._followed[folder,]

    def _maps(self, jobs: Iterable[Job]) -> Iterator[MapObject]:
        """Yield the ConfigMaps that may have variables.

        Those of files count as the kustomizations change them. Their data are not known if only the program follows all
        fields of the kustomization.
        """
        made = set[str]()
        for job in jobs:
            made |= job.found.files
            known = not job.found.unfollowed and job.root not in self.away
            for each in job.found.objects:
                if not _is_hashed(each):
                    yield MapObject(each.value, known)
        others = (item for item in self.plain_maps if os.path.normpath(item.document.file) not in made)
        yield from (MapObject(item.value) for item in others)

    def remade(self, job: Job, made: Iterable[Item]) -> set[str]:
        """Return the names of the ConfigMaps that a program makes otherwise than they were followed."""
        followed = (each.value for each in job.found.objects if not _is_hashed(each))
        return {name for name, *_ in _maps_among(followed) ^ _maps_among(each.value for each in made)}

    def changed_maps(self, jobs: Iterable[Job], changed: Touched) -> Iterator[str]:
        """Yield the names of the ConfigMaps that are made of a file that has changed."""
        for job in jobs:
            if changed.any(job.found.files):
                yield from (
                    name_of(each.value)[0] for each in job.found.objects if group_kind(each.value) == CONFIG_MAP
                )
        for item in self.plain_maps:
            if group_kind(item.value) == CONFIG_MAP and changed.has(item.document.file):
                yield name_of(item.value)[0]

    def changed_sources(self, jobs: Iterable[Job], changed: Touched) -> Iterator[str]:
        """Yield the names of Flux's sources that are made of a file that has changed."""
        for job in jobs:
            if changed.any(job.found.files):
                yield from (
                    name_of(each.value)[0] for each in job.found.objects if group_kind(each.value)[0] == SOURCES
                )
        for item in self.deployers:
            if group_kind(item.value)[0] == SOURCES and changed.has(item.document.file):
                yield name_of(item.value)[0]

    @cached_property
    def plain_maps(self) -> list[Item]:
        """The objects of all files with ConfigMaps."""
        found = list[Item]()
        for name in self._names:
            try:
                if b"ConfigMap" in files.contents(name):
                    documents = [each for each in files.read(name) if isinstance(each, Document)]
                    found += files.items(documents)[0]
            except (OSError, files.Unfit):
                continue
        return found

    def _of_flux(self, item: Item, plan: Plan) -> Job | None:
        spec, own = mapping(item.value.get("spec")), string(mapping(item.value.get("metadata")).get("namespace"))
        source, root = mapping(spec.get("sourceRef")), deploying.title(item.value)
        where = deploying.flux_joined(self._prefix, string(spec.get("path")))
        path = self._folder(where)
        if source.get("kind") == "OCIRepository" or self.sources.is_elsewhere(source, own):
            plan.elsewhere.append(f"{root} (its source is elsewhere)")
            return None
        if not path:
            specs = self.sources.specs(source, own)[: flux_sources.MOST_SPECS]
            self._without(where, root, plan, [string(spec.get("url")) for spec in specs])
            return None
        if (kind := string(source.get("kind")) or GIT[1]) != GIT[1]:
            plan.hidden.append(f"{root} (judged by the folder here, though its source is of the kind {kind})")
        changes = self._present(deploying.over_flux(item.value), spec, path)
        if recorded := deploying.build_metadata(spec, self._own(path)):
            changes = {**changes, "buildMetadata": recorded}
        over = Kustomization(path, changes, *_of_changes(item))
        job = self._over(root, path, over, plan)
        names = sorted(filter(None, map(self._tree.kustomization, job.found.folders)))
        maps = (each for each in job.found.objects if group_kind(each.value) == CONFIG_MAP)
        names += sorted({each.layers[0].document.file for each in maps} - {*names})
        if reason := self.sources.unlike(source, own, self._tree, names):
            plan.hidden.append(f"{root} ({reason})")
        if self._is_reordered(over):
            plan.hidden.append(f"{root} ({REORDERED})")
        if not self._tree.kustomization(path) and (name := self._tree.hidden(path)):
            plan.hidden.append(f"{root} (the hidden file {shown(name, quotes=False)})")
        return job

    def _own(self, folder: str) -> Mapping[str, Any] | None:
        """Return the kustomization of a folder; None without one that can be read."""
        try:
            return mapping(self._tree.first(name).value) if (name := self._tree.kustomization(folder)) else None
        except Unseen:
            return None

    def _present(self, changes: Mapping[str, Any], options: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
        """Return changes without components that do not exist, if Flux or Argo CD ignores these."""
        if not options.get("ignoreMissingComponents"):
            return changes
        named = (each for each in sequence(changes.get("components")) if isinstance(each, str))
        return {**changes, "components": [each for each in named if os.path.isdir(os.path.join(folder, each))]}

    def _is_reordered(self, over: Kustomization) -> bool:
        key = over.folder, json.dumps(over.value, sort_keys=True)
        if key not in self._reordered:
            self._reordered[key] = following.is_reordered(self._tree, over)
        return self._reordered[key]

    def _folder(self, folder: str) -> str:
        """Return a folder of the repository; empty if it is none, or has a placeholder."""
        try:
            self._tree.checked(folder)
        except Unseen:
            return ""
        return folder if os.path.isdir(folder) and "{{" not in folder else ""

    def _without(self, folder: str, root: str, plan: Plan, urls: Iterable[str]) -> None:
        """Note an object whose folder is not read: it is in another repository, or hidden or missing in this one."""
        if "\0" not in folder and os.path.isdir(folder):
            plan.hidden.append(f"{root} (its path leads into a hidden folder, or out of the repository)")
        elif any(addresses.is_same(url, self._origin) for url in urls):
            plan.hidden.append(f"{root} ({flux_sources.MISSING})")
        else:
            plan.elsewhere.append(f"{root} (its source is elsewhere)")

    def _over(self, root: str, path: str, over: Kustomization, plan: Plan, plain: Iterable[str] | None = None) -> Job:
        """Return the work for a folder whose objects another object changes, or for its files as they are, if given."""
        if plain is None:
            plan.included.add(path)
            names = [path] if self._tree.kustomization(path) else [*self._tree.manifests(path)]
            plan.included.update(names)
        else:
            names = [*plain]
        place = str(over.document.file), str(over.document.first_line)
        key = (root, path, *place, json.dumps(over.value, sort_keys=True), *(names if plain is not None else ()))
        if key not in self._followed:
            relative = [os.path.relpath(name, path) for name in names]
            found = following.follow_over(self._tree, relative, over)
            some = () if names == [path] else tuple(names)
            self._followed[key] = Job(root, path, found, over, some, built=plain is None)
        return self._followed[key]

    def _of_argo(self, item: Item, value: Object, plan: Plan) -> None:
        spec, root = mapping(value.get("spec")), deploying.title(value)
        self._titles[_place_of(item)].append(root)
        namespace = string(mapping(spec.get("destination")).get("namespace"))
        sources, others = list[Mapping[str, Any]](), list[Mapping[str, Any]]()
        for source in argo.sources_of(value):
            elsewhere = addresses.is_elsewhere(string(source.get("repoURL")), self.own[deploying.APPLICATION])
            (others if elsewhere and "chart" not in source else sources).append(source)
        if any("path" in source for source in others):
            plan.elsewhere.append(f"{root} (its source is elsewhere)")
        for source in sources:
            where: str | Remote
            url, path = string(source.get("repoURL")), string(source.get("path"))
            if source.get("ref") and self._is_namesake(url):
                plan.hidden.append(f"{root} ({addresses.instead_of(url)})")
            if chart := string(source.get("chart")):
                where = Remote(chart, _address(url), string(source.get("targetRevision")))
            elif "path" not in source:
                continue
            elif argo.leads_out(path) or path.startswith("/"):
                plan.hidden.append(f"{root} (Argo CD refuses its path {shown(path)})")
                continue
            elif not (where := self._folder(folder := os.path.normpath(os.path.join(self._prefix, path)))):
                self._without(folder, root, plan, [url])
                continue
            if isinstance(where, str) and not source.get("ref") and self._is_namesake(url):
                plan.hidden.append(f"{root} ({addresses.instead_of(url)})")
            directory = argo.directory(source)
            installs = isinstance(where, str) and argo.installs(where, source) and not directory
            plain = bool(directory) or not (installs or argo.is_given(source, "kustomize"))
            if isinstance(where, str):
                recurse = installs or bool(directory.get("recurse"))
                if name := self._tree.submodule(where, recurse=recurse):
                    plan.elsewhere.append(f"{root} (the submodule {shown(name, quotes=False)} is not there)")
                plain = plain and bool(directory or not self._tree.kustomization(where))
                if read := argo.overridden(self._tree, where, source, value, plain=plain):
                    plan.hidden.append(f"{root} ({read} not followed)")
                if url.startswith("oci://"):
                    plan.hidden.append(f"{root} (judged by the folder here, though its source is an OCI image)")
            if isinstance(where, Remote) or installs:
                with self._tree.noting() as read_files:
                    values, reason = argo.values(source, sources, self._tree, self._prefix)
                self.reads[root].append(read_files)
                settings, unsure = argo.settings(source)
                if reason := reason or (argo.ELSEWHERE if unsure else ""):
                    plan.hidden.append(f"{root} ({reason})")
                name = string(mapping(source.get("helm")).get("releaseName"))
                name = name or string(mapping(value.get("metadata")).get("name"))
                release = Release(where, root, name, namespace, tuple(values), settings, builder=Builder.ARGO)
                plan.releases.append((release, item))
                continue
            options = mapping(source.get("kustomize"))
            changes = self._present(argo.changes(source), options, where)
            if options.get("ignoreMissingComponents") and len(sequence(changes.get("components"))) > 1:
                plan.hidden.append(f"{root} ({_FIRST})")
            if "$" in json.dumps(options.get("images")):
                plan.hidden.append(f"{root} (a variable in its images)")
            over = Kustomization(where, changes, item.document, item.base, versioned=True)
            if not directory and self._is_reordered(over):
                plan.hidden.append(f"{root} ({REORDERED})")
            names = None
            if plain:
                wanted = argo.wanted(directory)
                if wanted is None:
                    plan.hidden.append(f"{root} (a pattern of its directory)")
                applied = self._tree.plain(where, recurse=bool(directory.get("recurse")))
                names = [each for each in applied if wanted is None or wanted(os.path.relpath(each, where))]
                name = self._tree.hidden(where, built=True)
                if name and (directory.get("recurse") or os.path.dirname(name) == where):
                    plan.hidden.append(f"{root} (the hidden file {shown(name, quotes=False)})")
            plan.jobs.append(self._over(root, where, over, plan, names)._replace(default=namespace))


REORDERED = "its changes apply before others of the folder's kustomization, and are judged after these"

_FIRST = "Argo CD 3.6 applies only the first of its components"
"""Its loop ends at the first one that exists (argo-cd v3.6.1 util/kustomize/kustomize.go, Build)."""

_Place = tuple[str, int, Path]


def _place(document: Document, base: Path) -> _Place:
    return os.path.normpath(document.file), document.index, base


def _place_of(item: Item) -> _Place:
    """Return the place of the object in its own file, also of one that a kustomization has changed."""
    first = item.layers[0] if isinstance(item, Rendered) else item
    return _place(first.document, first.base)


def _deployed(value: Object) -> str:
    """Return the parts of an object of Flux or Argo CD that say what it deploys, as text."""
    metadata = mapping(value.get("metadata"))
    named = [*group_kind(value), *(string(metadata.get(key)) for key in ("namespace", "name"))]
    return json.dumps([named, value.get("spec")], sort_keys=True)


def _is_whole(value: Object) -> bool:
    """Whether an object of Flux or Argo CD is no patch of one: whether it says what it deploys, or from where."""
    spec = mapping(value.get("spec"))
    return any(spec.get(key) for key in ("path", "sourceRef", "source", "sources", "sourceHydrator", "generators"))


def _of_changes(item: Item) -> tuple[Document, Path]:
    """Return the document in which the changes of a Kustomization of Flux stand, and where in it.

    If another object has changed them, they stand in none, and begin where the object does.
    """
    base = item.layers[0].base if isinstance(item, Rendered) else item.base
    own: Any = item.document.value
    for key in base:
        own = own[key]
    if deploying.over_flux(own) == deploying.over_flux(item.value):
        return item.document, (*base, "spec")
    line = item.line()
    value = mapping(item.value.get("spec"))
    return replace(item.document, value=value, first_line=line, source=Source("", line), base=()), ()


def _maps_among(values: Iterable[Object]) -> set[tuple[str, ...]]:
    """Return the names, namespaces and data of the ConfigMaps among some objects."""
    maps = (value for value in values if group_kind(value) == CONFIG_MAP)
    return {(*name_of(each), json.dumps(each.get("data"), sort_keys=True)) for each in maps}


def _is_hashed(each: Built) -> bool:
    """Whether kustomize adds a hash to the name of an object: to that of a generated one, if no option forbids it.

    One that merges into another has the name of the other (kustomize api/types/generatoroptions.go).
    """
    layer = each.layers[0]
    if len(layer.base) < 2 or layer.base[-2] != "configMapGenerator":
        return False
    value: Any = layer.document.value
    for key in layer.base[:-2]:
        value = value[key]
    entry = mapping(value["configMapGenerator"][layer.base[-1]])
    options = (mapping(entry.get("options")), mapping(mapping(value).get("generatorOptions")))
    return "behavior" not in entry and not any(each.get("disableNameSuffixHash") for each in options)


def _address(url: str) -> str:
    """Return the address of a repository of charts; Argo CD leaves out the scheme of a registry."""
    return url if "://" in url or not url else f"oci://{url}"
