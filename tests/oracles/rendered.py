"""What Helm and kustomize make of a repository, next to what `slicewarden check` finds and notes there."""

import gzip
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.oracles.charts import Asked, Repository
from tests.oracles.programs import Oracle
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.rendering import rendering
from webhook.rendering.model import Options
from webhook.repository import gaps
from webhook.scan import batches, folders
from webhook.scan.results import Report
from webhook.text.words import shown

Run = Callable[..., subprocess.CompletedProcess[str]]


class Comparison(NamedTuple):
    """The refused pods that programs make, those of them that `check` finds, and those about which it says nothing."""

    made: frozenset[str]
    found: frozenset[str]
    lost: frozenset[str]
    lines: Sequence[str]


NOTING = (batches, folders, gaps, rendering)
"""The modules whose notes name only a few of many files."""


def compared(
    repository: Repository, folder: Path, run: Run, engine: Engine, facts: Facts, oracle: Oracle | None = None
) -> Comparison:
    """Write a repository below an empty folder, and have both read it. The working folder becomes the repository."""
    here, copy = folder / "repository", folder / "copy"
    repository.write(here)
    repository.write(copy)
    os.chdir(here)
    made = dict[str, set[str]]()
    for asked, text in _printed(repository, copy, run, oracle):
        (folder / "printed.yaml").write_text(text, "utf-8")
        read = batches.read([str(folder / "printed.yaml")], rendering=None)
        for name in _denied(read.judge(engine, facts, at=datetime.now(UTC))):
            made.setdefault(name, set()).update(_spelled(asked.place, *asked.roots))
    report = batches.read(repository.paths, gpus=engine.policy.gpu_resources, rendering=Options(cached=True)).judge(
        engine, facts, at=datetime.now(UTC)
    )
    found = frozenset(_denied(report))
    lines = [line for line in [*map(str, report.problems), *report.notes] if _EMPTY not in line]
    left = made.keys() - found
    places = _places(left) if left else {}
    lost = frozenset(name for name in left if not _is_noted({*places[name], *made[name]}, lines))
    return Comparison(frozenset(made), found, lost, lines)


def runner(programs: Mapping[str, Path], home: Path) -> Run:
    """Return how to run the programs, with an empty home."""
    path = ":".join([*(str(each.parent) for each in programs.values()), "/usr/bin:/bin"])

    def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command, environment = [programs[program], *arguments], {"HOME": str(home), "PATH": path}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    return run


_EMPTY = "without a Kubernetes object"
"""The words of a note that says nothing of pods."""

_HIDDEN = re.compile(r"[^,:]* \((the hidden file [^)]*)\)")
"""A part of a note that is about hidden files, of which it names one."""

_FOLLOWED = "followed if named: "
"""The words of a note before its links."""

_POD = re.compile(r"pod-\d+x")


def _denied(report: Report) -> Iterator[str]:
    """Yield the pods with a finding, by the names that they have before a kustomization changes them."""
    for each in report.judged:
        if not each.verdict.allowed and (name := _POD.search(each.name)):
            yield name[0]


def _printed(repository: Repository, copy: Path, run: Run, oracle: Oracle | None) -> Iterator[tuple[Asked, str]]:
    """Yield what the programs print, in a copy with all dependencies of its charts."""
    for chart in repository.unbuilt:
        if run("helm", "template", copy / chart).returncode:  # else Helm takes what is there
            run("helm", "dependency", "update", "--skip-refresh", copy / chart)
    for asked in repository.asked:
        texts = list[str]()
        if asked.program == "files":
            texts += _files(copy / asked.place)
        elif asked.program == "flux":
            texts.append(_of_flux(repository, asked, oracle))
        elif (done := _run(asked, copy, run)).returncode == 0:
            texts.append(done.stdout)
        for text in texts:
            yield asked, text
            for release in _releases(text, asked) if asked.deploys else ():
                if (done := _run(release, copy, run)).returncode == 0:
                    yield release, done.stdout


def _releases(text: str, asked: Asked) -> Iterator[Asked]:
    """Yield what the HelmReleases and Applications in some manifests install: charts, with simple options."""
    for value in yaml.safe_load_all(text):
        kind, metadata, spec = value["kind"], value["metadata"], value.get("spec")
        roots = (*asked.roots, f"{kind} {metadata.get('namespace')}/{metadata['name']}")
        if kind == "HelmRelease":
            target = spec.get("targetNamespace", "")
            name = spec.get("releaseName") or "-".join(filter(None, (target, metadata["name"])))
            texts, place = (json.dumps(spec.get("values", {})),), spec["chart"]["spec"]["chart"]
            space = target or metadata["namespace"]
            yield Asked("helm", place, roots, texts, release=name, namespace=space, packed=True)
        if kind == "Application":
            helm, arguments = spec["source"]["helm"], list[str]()
            for each in helm.get("parameters", ()):
                arguments.append(f"--set={each['name']}={each['value']}")
            texts = (json.dumps(helm.get("valuesObject", {})),)
            name, space = helm.get("releaseName") or metadata["name"], spec["destination"]["namespace"]
            yield Asked("helm", spec["source"]["path"], roots, texts, True, name, space, tuple(arguments))


def _run(asked: Asked, copy: Path, run: Run) -> subprocess.CompletedProcess[str]:
    if asked.program == "helm":
        files = list[str]()
        for number, text in enumerate(asked.values):
            (copy.parent / f"values-{number}.yaml").write_text(text, "utf-8")
            files.append(f"--values={copy.parent}/values-{number}.yaml")
        options = [f"--namespace={asked.namespace}", *(["--include-crds"] if asked.crds else []), *files]
        chart = copy / asked.place
        if asked.packed:
            with tempfile.TemporaryDirectory() as folder:
                if (done := run("helm", "package", "--destination", folder, "--", chart)).returncode:
                    return done
                (packed,) = Path(folder).iterdir()
                return run("helm", "template", *options, *asked.arguments, "--", asked.release, packed)
        return run("helm", "template", *options, *asked.arguments, "--", asked.release, chart)
    with _changed(copy / asked.place, asked.over or {}):
        return run("kubectl", "kustomize", *_HELM, copy / asked.place)


@contextmanager
def _changed(folder: Path, over: Mapping[str, Any]) -> Iterator[None]:
    """Write fields into the kustomization of a folder, as Argo CD does by `kustomize edit`, and take them out again."""
    name = folder / "kustomization.yaml"
    if not over or not name.is_file():
        yield
        return
    before = name.read_bytes()
    value = json.loads(before)
    lists = {key: [*value.get(key, ()), *each] for key, each in over.items() if isinstance(each, list)}
    if "images" in over:
        names = {each["name"] for each in over["images"]}
        lists["images"] = [*(each for each in value.get("images", ()) if each["name"] not in names), *over["images"]]
    name.write_text(json.dumps({**value, **over, **lists}), "utf-8")
    yield
    name.write_bytes(before)


def _files(folder: Path) -> Iterator[str]:
    """Yield the texts of the files that `kubectl apply -R -f` reads."""
    for name in sorted(folder.rglob("*")):
        if name.suffix in (".yaml", ".yml", ".json") and name.is_file():
            yield name.read_text("utf-8")


def _of_flux(repository: Repository, asked: Asked, oracle: Oracle | None) -> str:
    """Return the objects that Flux applies of a repository."""
    assert oracle is not None
    files = {name: data.decode() for name, data in repository.files.items() if not name.endswith(".tgz")}
    kustomizations = [each for each in asked.objects if each["kind"] == "Kustomization"]
    maps = [each for each in asked.objects if each["kind"] == "ConfigMap"]
    answer = oracle.ask({"files": files, "kustomizations": kustomizations, "maps": maps, "ignore": None})
    objects = (each for objects in answer["objects"].values() for each in objects or ())
    return "\n---\n".join(map(json.dumps, objects))


_HELM = ("--enable-helm", "--load-restrictor=LoadRestrictionsNone")


def _spelled(*names: str) -> Iterator[str]:
    """Yield names of the repository, and those of the files and folders to which links lead."""
    for name in names:
        yield from (name, os.path.relpath(os.path.realpath(name)))


def _places(names: Iterable[str]) -> Mapping[str, set[str]]:
    """Return the paths of the files with the name of each pod, and of their charts and kustomizations."""
    found = {name: set[str]() for name in names}
    for at, inner, files in os.walk(".", followlinks=True):
        inner[:] = [each for each in inner if each != ".git" and os.path.relpath(at).count("/") < _DEEPEST]
        for file in files:
            path = Path(os.path.normpath(f"{at}/{file}"))
            if not path.is_file():
                continue
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".tgz" else path.read_bytes()
            for name in found:
                if name.encode() in data:
                    charts = (above for above in path.parents if (above / "Chart.yaml").is_file())
                    found[name] |= {*_spelled(str(path), *map(str, charts))}
    return found


_DEEPEST = 12


def _is_noted(places: Iterable[str], lines: Sequence[str]) -> bool:
    """Whether a line names one of some places, or a link above one that is not followed.

    Hidden files are not the reason for a pod in another file.
    """
    links = {name for line in lines for name in line.partition(_FOLLOWED)[2].split(", ") if name}
    if any(place.startswith(f"{link}/") for link in links for place in places):
        return True
    if not any(f"/{each}".count("/.") for each in places):
        lines = [_HIDDEN.sub(r"\1", line) for line in lines]
    words = {each for place in places if place for each in (place, shown(place), shown(place, quotes=False))}
    pattern = re.compile(rf"(?<![\w/.-])(?:\./)?(?:{'|'.join(map(re.escape, sorted(words)))})(?![\w/-]|\.\w)")
    return any(pattern.search(line) for line in lines)
