"""Pods that Helm and kustomize create from parts of a chart other than plain templates: by the real programs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.rendering.model import Options
from webhook.scan import batches
from webhook.scan.results import Report

CHART = {
    "c/Chart.yaml": "apiVersion: v2\nname: c\nversion: 0.1.0\n",
    "c/templates/map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map}\n",
}

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: pod}\nspec: {containers: [{name: c, image: i}]}\n"

DOOR = POD.replace("image: i", "image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]")

HELMFILE = "releases: [{name: r, namespace: lab, chart: ../c}]\n"

PATCHED = f"""\
helmGlobals: {{chartHome: .}}
helmCharts: [{{name: c, releaseName: r, includeCRDs: CRDS}}]
patches:
- target: {{kind: Pod}}
  patch: "[{{op: replace, path: /spec, value: {DOOR.rpartition("spec: ")[2].strip()}}}]"
"""


def check(engine: Engine, facts: Facts, files: Mapping[str, str], links: Mapping[str, str], *paths: str) -> Report:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    for name, target in links.items():
        Path(name).symlink_to(target)
    read = batches.read(paths or ["."], rendering=Options(cached=False))
    return read.judge(engine, facts, at=datetime.now(UTC))


def denied(report: Report) -> set[str]:
    assert report.problems == ()
    assert report.unfollowed == 0
    return {one.file for one in report.judged if not one.verdict.allowed}


LIBRARY = {
    "c/Chart.yaml": CHART["c/Chart.yaml"] + "dependencies: [{name: s, version: 0.1.0, repository: 'file://../s'}]\n",
    "s/Chart.yaml": "apiVersion: v2\nname: s\nversion: 0.1.0\n",
    "s/templates/map.yaml": CHART["c/templates/map.yaml"].replace("name: map", "name: other"),
    "s/crds/pod.yaml": DOOR,
}

TEMPLATE = DOOR.replace("{name: pod}", "{name: pod, annotations: {a: '{{/*'}}") + "# */}}'}}\n"
"""A pod that uses a GPU, and as a template one without containers."""


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("files", "links", "path", "found"),
    [
        ({"c/crds/pod.yaml": DOOR}, {}, "c", {"c/crds/pod.yaml"}),
        ({"c/crds/pod.yaml": DOOR, "apps/helmfile.yaml": HELMFILE}, {}, "apps", {"c/crds/pod.yaml"}),
        ({"c/crds/pod.txt": DOOR, "apps/helmfile.yaml": HELMFILE}, {}, "apps", set()),
        (LIBRARY, {}, "c", {"s/crds/pod.yaml"}),
        ({"c/templates/x/pod.yaml": TEMPLATE}, {"c/crds": "templates/x"}, ".", {"c/crds/pod.yaml"}),
        ({"c/templates/x/pod.yaml": TEMPLATE}, {}, ".", set()),
        ({"c/files/.pod.tpl": DOOR}, {"c/templates/sub": "../files"}, ".", {"c/templates/sub/.pod.tpl"}),
        ({"c/templates/sub/.pod.tpl": DOOR}, {}, ".", {"c/templates/sub/.pod.tpl"}),
        ({"c/templates/.pod.tpl": DOOR}, {}, ".", set()),
        (
            {"c/files/pod.tpl": DOOR},
            {"c/templates/sub": "../files", **{f"c/d{each}": "files" for each in range(20)}},
            ".",
            {"c/templates/sub/pod.tpl"},
        ),
        ({"c/files/pod.tpl": DOOR}, {f"c/d{each}": "files" for each in range(20)}, ".", set()),
        ({"c/crds/pod.yaml": POD}, {}, ".", set()),
    ],
)
def test_what_helm_creates_is_judged(
    files: Mapping[str, str],
    links: Mapping[str, str],
    path: str,
    found: set[str],
    engine: Engine,
    sample_facts: Facts,
) -> None:
    assert denied(check(engine, sample_facts, {**CHART, **files}, links, path)) == found


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(("crds", "found"), [("true", {"c/crds/pod.yaml"}), ("false", set())])
def test_what_kustomize_makes_of_an_object_below_crds_is_judged(
    crds: str, found: set[str], engine: Engine, sample_facts: Facts
) -> None:
    files = {**CHART, "c/crds/pod.yaml": POD, "kustomization.yaml": PATCHED.replace("CRDS", crds)}
    report = check(engine, sample_facts, files, {})
    assert {one.file for one in report.judged if not one.verdict.allowed} == found
    assert [one.file for one in report.judged if one.name == "pod"] == ["c/crds/pod.yaml"]


@pytest.mark.usefixtures("repository")
def test_a_link_that_leads_to_no_end_is_noted(engine: Engine, sample_facts: Facts) -> None:
    files = {**CHART, "apps/helmfile.yaml": HELMFILE}
    report = check(engine, sample_facts, files, {"c/templates/sub": ".."}, "apps")
    assert report.unfollowed == 1
    assert any("c/templates/sub leads to a folder around it" in note for note in report.notes)


def test_a_kustomization_that_is_a_link_is_built(
    engine: Engine, sample_facts: Facts, programs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ":".join(str(path.parent) for path in programs.values()))
    monkeypatch.chdir(tmp_path)
    files = {"lib/x/kustomization.yaml": "resources: [pod.yaml]\n", "lib/x/pod.yaml": DOOR, "app/a.yaml": ""}
    report = check(engine, sample_facts, files, {"app/k": "../lib/x"}, "app/k")
    assert denied(report) == {"app/k/pod.yaml"}
    assert [one.root for one in report.judged] == ["app/k"]
