"""How roots are rendered: by which programs, within which limits, and how often."""

import copy
import fnmatch
import hashlib
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cost import calls
from tests.support.trees import Write
from webhook.cli import main as cli
from webhook.documents import documents, files, gitignore
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.kustomize import followed, following
from webhook.kustomize.followed import name_of
from webhook.model import Object
from webhook.rendering import argo, charts, deploying, flux_sources, releases, rendering, variables
from webhook.rendering.charts import Remote, pull
from webhook.rendering.model import Options
from webhook.repository import addresses, chart_folders, programs, results_cache, tree
from webhook.scan import batches
from webhook.scan.results import Report

Check = Callable[..., Report]
Program = Callable[..., Path]

SKIPPING = "--skip-schema-validation"
TEMPLATING = f"template {SKIPPING}"

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: made, namespace: lab}\nspec: {containers: [{name: c, image: i}]}\n"


@pytest.fixture
def check(
    engine: Engine,
    sample_facts: Facts,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Check:
    """Judge some paths of a layout in the working folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))

    def run(files: dict[str, str], *names: str, options: Options | None = None) -> Report:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        read = batches.read(names or ["."], rendering=options or Options(), skip_others=True)
        return read.judge(engine, sample_facts, at=datetime.now(UTC))

    return run


PACKING = """\
if [ $1 = package ]; then
  echo "$*" >>FOLDER/packed
  : >chart.tgz
  [ -e chart/values.yaml ] || exit 0
  while read -r line || [ -n "$line" ]; do echo "$line"; done <chart/values.yaml >chart.tgz
  exit
fi
"""


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Pretend a program by the text of its script; it writes a line to `asked` whenever it runs.

    As helm, it packs a chart by copying its values, and writes the line to `packed`.
    """
    folder = tmp_path_factory.mktemp("programs")

    def write(script: str, name: str = "kustomize") -> Path:
        packing = PACKING.replace("FOLDER", str(folder)) if name == "helm" else ""
        (folder / name).write_text(f'#!/bin/sh\n{packing}echo "$*" >>{folder}/asked\n{script}\n')
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return folder / "asked"

    return write


TWO = {
    "a/kustomization.yaml": "namespace: one\nresources: [pod.yaml]\n",
    "a/pod.yaml": POD,
    "b/kustomization.yaml": "namespace: two\nresources: [pod.yaml]\n",
    "b/pod.yaml": POD,
    "c/pod.yaml": POD,
}


def judged(report: Report) -> list[str]:
    return sorted(f"{one.file} {one.namespace} {one.root}".strip() for one in report.judged)


def test_only_the_roots_that_a_change_touches_are_judged(check: Check, program: Program) -> None:
    check(TWO)
    asked = program(f"printf '%s' '{POD}'")
    report = check({}, "b/pod.yaml", "c/pod.yaml", options=Options(touched=True, cached=False))
    assert judged(report) == ["b/pod.yaml lab b", "c/pod.yaml lab"]
    assert asked.read_text() == "build ./b\n"


def test_files_that_are_named_are_judged_as_they_are(check: Check) -> None:
    assert judged(check(TWO, "b/pod.yaml")) == ["b/pod.yaml lab"]
    assert judged(check(TWO, "b/kustomization.yaml")) == ["b/pod.yaml two b"]
    assert judged(check(TWO)) == ["a/pod.yaml one a", "b/pod.yaml two b", "c/pod.yaml lab"]


def test_an_unchanged_root_is_not_rendered_again(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'")
    check(TWO)
    check(TWO)
    assert sorted(asked.read_text().splitlines()) == ["build ./a", "build ./b"]
    check({**TWO, "b/pod.yaml": POD.replace("image: i", "image: j")})
    assert sorted(asked.read_text().splitlines()) == ["build ./a", "build ./b", "build ./b"]
    check(TWO, options=Options(cached=False))
    assert len(asked.read_text().splitlines()) == 5
    program(f"printf '%s' '{POD}' # another")
    check(TWO)
    assert len(asked.read_text().splitlines()) == 7


def test_the_cache_is_bounded_and_survives_rubbish(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = program(f"printf '%s' '{POD}'")
    check(TWO)
    entries = sorted(results_cache.folder().iterdir())
    assert len(entries) == 2
    entries[0].write_bytes(b"rubbish")
    check(TWO)
    assert len(asked.read_text().splitlines()) == 3
    monkeypatch.setattr(results_cache, "LARGEST", entries[0].stat().st_size)
    os.utime(entries[1], (1, 1))
    results_cache.trim()
    assert sorted(results_cache.folder().iterdir()) == [entries[0]]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Error: no such field' >&2; exit 1", "no such field"),
        ('echo \'E1124 12:00 7 run.go:72] "command failed" err="no such field"\' >&2; exit 1', "no such field"),
        ("exit 4", "kustomize failed"),
        ("while :; do :; done", "kustomize took more than 0.3 seconds"),
        ("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", "it makes more than 0 MiB"),
    ],
)
def test_a_failure_of_the_program_is_an_error_and_loses_nothing(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    monkeypatch.setattr(programs, "SECONDS", 0.3 if ":; done" in script else 30)
    monkeypatch.setattr(programs, "MAX_FILE", 1000)
    program(script)
    report = check({name: text for name, text in TWO.items() if name[0] == "a"})
    assert [str(each) for each in report.problems] == [f"a: not rendered: {reason}"]
    assert judged(report) == ["a/pod.yaml one a"]


def test_a_program_gets_no_secrets_and_no_settings(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    monkeypatch.setenv("TOKEN", "secret")
    asked = program("")
    asked = program(f"export >>{asked}; printf '%s' '{POD}'")
    check(TWO)
    text = asked.read_text()
    assert "secret" not in text
    assert "/somewhere" not in text
    assert "KUBECONFIG='/dev/null'" in text


def test_what_may_need_a_network_is_not_given_to_the_program(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'")
    report = check(
        {
            "a/kustomization.yaml": "resources: [pod.yaml]\npatches:\n- path: http://localhost:1/patch.yaml\n",
            "a/pod.yaml": POD,
            "b/kustomization.yaml": "resources: [pod.yaml]\ntransformers: [t.yaml]\n",
            "b/t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: t}\npath: http://localhost:1/x\n",
            "b/pod.yaml": POD.replace("made", "other"),
        }
    )
    assert not asked.exists()
    assert judged(report) == ["a/pod.yaml lab a", "b/pod.yaml lab b"]
    assert any("remote resource http://localhost:1/patch.yaml" in note for note in report.notes)


ADDRESS = "# https://example.com\n"


@pytest.mark.parametrize(
    ("fields", "files", "runs"),
    [
        ("transformers: [t.yaml]", {"a/t.yaml": "kind: PatchTransformer\n"}, True),
        ("transformers: [t.yaml]", {"a/t.yaml": f"{ADDRESS}kind: PatchTransformer\n"}, False),
        ("generators: [t]", {"a/t/t.yaml": f"{ADDRESS}kind: HelmChartInflationGenerator\n"}, False),
        ("openapi: {path: t.json}\nsecretGenerator: [{name: s, envs: [.e]}]", {"a/t.json": "{}", "a/.e": ""}, False),
        ("replacements: [{path: t.yaml}]", {"a/t.yaml": ADDRESS}, True),
        ("openapi: {path: t.json}", {"a/t.json": '{"a": "https://example.com"}'}, True),
        (
            "labels: [{pairs: {a: b}, fields: [{path: data}]}]\nsecretGenerator: [{name: s, envs: [.e]}]",
            {"a/.e": ""},
            False,
        ),
        ("configurations: [t.yaml]\nsecretGenerator: [{name: s, envs: [.e]}]", {"a/t.yaml": "{}", "a/.e": ""}, False),
        ("crds: [t.json]\nsecretGenerator: [{name: s, files: [s]}]", {"a/t.json": ADDRESS, "a/s": ADDRESS}, True),
    ],
)
def test_a_field_that_only_a_program_follows_is_noted_if_none_runs(
    check: Check, program: Program, fields: str, files: dict[str, str], runs: bool
) -> None:
    asked = program(f"printf '%s' '{POD}'")
    report = check({"a/pod.yaml": POD, "a/kustomization.yaml": f"resources: [pod.yaml]\n{fields}\n", **files})
    assert asked.exists() == runs
    assert (report.unfollowed > 0) != runs
    named = fields.partition(":")[0].replace("labels", "labels.fields")
    assert any(f"a ({named} not followed" in note for note in report.notes) != runs


@pytest.mark.parametrize("name", ["x.yaml", "x.json", "x.txt", "x"])
@pytest.mark.parametrize(("text", "runs"), [("{kind: PatchTransformer}", True), ("path: http://localhost:1/x", False)])
def test_a_program_gets_the_resources_of_a_folder_of_transformers(
    check: Check, program: Program, name: str, text: str, runs: bool
) -> None:
    asked = program(f"[ -e a/t/{name} ] && printf '%s' '{POD}'")
    fields = "resources: [pod.yaml]\ntransformers: [t]\n"
    files = {"a/kustomization.yaml": fields, "a/t/kustomization.yaml": f"resources: [{name}]\n", f"a/t/{name}": text}
    report = check({**files, "a/pod.yaml": POD})
    lines = asked.read_text().splitlines() if asked.exists() else []
    assert any(line.endswith("./a") for line in lines) is runs
    assert any("a (transformers not followed" in note for note in report.notes) is not runs
    assert not [each for each in report.problems if each.file == "a"]


@pytest.mark.parametrize(
    ("path", "file", "remote"),
    [
        ("github.com/own/base", "github.com/own/base/kustomization.yaml", True),
        ("https://git.example/pod.yaml", "https:/git.example/pod.yaml", True),
        ("git@git.example:own/base", "git@git.example:own/base/kustomization.yaml", True),
        ("apps.example.dev/base", "apps.example.dev/base/kustomization.yaml", False),
        ("web.io/base", "web.io/base/kustomization.yaml", False),
        ("http:pod.yaml", "http:pod.yaml", True),
        ("github.com/own/pod", "github.com/own/pod", False),
        ("GitHub.com/own/pod.git", "GitHub.com/own/pod.git", False),
        ("git@git.example:own/pod", "git@git.example:own/pod", False),
        ("file://own/pod", "file:/own/pod", False),
        ("me@git.example/own/base", "me@git.example/own/base/kustomization.yaml", True),
        ("git::me@git.example:own.git", "git::me@git.example:own.git/kustomization.yaml", True),
        ("me@git.example/base", "me@git.example/base/kustomization.yaml", False),
        ("www.github.com/own/base", "www.github.com/own/base/kustomization.yaml", True),
        ("gh:base", "gh:base/kustomization.yaml", True),
        ("git@own/base", "git@own/base/kustomization.yaml", True),
    ],
)
def test_an_address_is_no_folder_of_its_name(check: Check, path: str, file: str, remote: bool) -> None:
    """kustomize asks a server first for some references, and git for some that lead to no file."""
    text = "namePrefix: base-\n" if file.endswith("kustomization.yaml") else POD
    report = check({"a/kustomization.yaml": f"resources: ['{path}']\n", f"a/{file}": text, "pod.yaml": POD})
    assert any(f"remote resource {path}" in note for note in report.notes) == remote
    assert any("an address, and a path here" in note for note in report.notes) == remote
    assert (report.unfollowed > 0) == remote


@pytest.mark.parametrize("field", ["resources", "components"])
@pytest.mark.parametrize(("path", "runs"), [("gh:base", False), ("gh:other", True), ("github.com/own/base", True)])
def test_no_program_builds_without_a_folder_that_looks_like_an_address(
    check: Check, program: Program, field: str, path: str, runs: bool
) -> None:
    """The copy that it builds would lack the folder, which some releases of kustomize read."""
    asked = program(f"printf '%s' '{POD}'")
    own = json.dumps({"resources": ["pod.yaml"], field: ["pod.yaml", path] if field == "resources" else [path]})
    report = check({"a/kustomization.yaml": own, "a/pod.yaml": POD, "a/gh:base/kustomization.yaml": ""})
    assert asked.exists() == runs
    assert (report.unfollowed > 0) != runs


def test_kustomizations_that_include_each_other_end(check: Check) -> None:
    report = check(
        {
            "a/kustomization.yaml": "resources: [../b, pod.yaml]\n",
            "b/kustomization.yaml": "resources: [../a]\n",
            "c/kustomization.yaml": "resources: [../a]\n",
            "a/pod.yaml": POD,
        }
    )
    assert judged(report) == ["a/pod.yaml lab c"]
    assert any("includes itself" in note for note in report.notes)


def test_many_paths_to_the_same_kustomization_end(check: Check) -> None:
    """Forty levels of two references each would be a million million objects."""
    files = {"k40/kustomization.yaml": "resources: [pod.yaml]\n", "k40/pod.yaml": POD}
    for number in range(40):
        files[f"k{number}/kustomization.yaml"] = f"resources: [../k{number + 1}, ../k{number + 1}/.]\n"
    report = check(files)
    assert [str(each) for each in report.problems] == ["k0: not rendered: it makes more than 20,000 objects"]


RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: app, namespace: lab}
spec:
  chart: {spec: {chart: web, version: 1.2.3, sourceRef: {kind: HelmRepository, name: ours}}}
  values: {gpus: 1}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: ours, namespace: lab}
spec: {url: "https://charts.example"}
"""


PULLING = f"""\
if [ $1 = pull ]; then : >web-1.2.3.tgz; exit; fi
read -r values <values-0.yaml
echo "$values" >>"$0.values"
printf '%s' '{POD.replace(", namespace: lab", "")}'"""
"""A helm that brings an empty archive, and makes a pod of it."""


def test_a_chart_of_another_place_is_rendered_only_with_fetch(check: Check, program: Program) -> None:
    asked = program(PULLING, "helm")
    (note,) = [note for note in check({"release.yaml": RELEASE}).notes if "--fetch" in note]
    assert "helm pull --untar -d charts --repo=https://charts.example --version=1.2.3 web" in note
    assert not asked.exists()
    report = check({}, options=Options(fetch=True, version="v1.34.1"))
    assert judged(report) == ["release.yaml lab HelmRelease lab/app"]
    assert [one.line for one in report.judged] == [1]
    assert asked.read_text().splitlines() == [
        "pull --repo=https://charts.example --version=1.2.3 -- web",
        f"{TEMPLATING} --namespace lab --kube-version v1.34.1 --include-crds --values values-0.yaml -- app chart.tgz",
    ]
    assert (asked.parent / "helm.values").read_text() == '{"gpus": 1}\n'


@pytest.mark.parametrize(
    ("chart", "words"),
    [
        (Remote("web", "https://x;reboot", "1.2"), ["--repo=https://x;reboot", "--version=1.2", "web"]),
        (Remote("$(reboot)", "https://x", ""), ["--repo=https://x", "$(reboot)"]),
        (Remote("--help", "https://x", "1 2"), ["--repo=https://x", "--version=1 2", "--", "--help"]),
        (Remote("web", "oci://x/`reboot`", ""), ["oci://x/`reboot`/web"]),
    ],
)
def test_the_command_that_brings_a_chart_can_be_pasted(chart: Remote, words: list[str]) -> None:
    assert shlex.split(pull(chart)) == ["helm", "pull", "--untar", "-d", "charts", *words]


def test_a_chart_of_many_releases_is_downloaded_once(check: Check, program: Program) -> None:
    asked = program(PULLING, "helm")
    release, source = RELEASE.split("---\n")
    releases = [
        release.replace("name: app", f"name: app-{each}").replace("gpus: 1", f"gpus: {each}") for each in range(30)
    ]
    report = check({"r.yaml": "---\n".join([*releases, source])}, options=Options(fetch=True, cached=False))
    assert len(report.judged) == 30
    calls = [line.split()[0] for line in asked.read_text().splitlines()]
    assert (calls.count("pull"), calls.count("template")) == (1, 30)


def test_a_download_that_fails_is_told_once_for_all_its_releases(check: Check, program: Program) -> None:
    asked = program("echo 'Error: no such host' >&2; exit 1", "helm")
    release, source = RELEASE.split("---\n")
    releases = [release.replace("name: app", f"name: app-{each}") for each in range(3)]
    report = check({"r.yaml": "---\n".join([*releases, source])}, options=Options(fetch=True))
    assert len(asked.read_text().splitlines()) == 1
    assert [note for note in report.notes if "no such host" in note] == [
        "3 charts (HelmRelease lab/app-0, HelmRelease lab/app-1, HelmRelease lab/app-2) not rendered: no such host"
    ]


@pytest.mark.parametrize(
    "name", ["/etc", "../..", "..", "-x", "--post-renderer=/bin/sh", "a/../../etc", "a b", "a\\0b"]
)
def test_a_chart_is_no_path_of_this_machine_and_no_option(check: Check, program: Program, name: str) -> None:
    asked = program(PULLING, "helm")
    report = check({"r.yaml": RELEASE.replace("chart: web", f'chart: "{name}"')}, options=Options(fetch=True))
    assert report.judged == ()
    assert not asked.exists() or f"-- {name}" in asked.read_text()
    assert any("is no name of a chart" in note for note in report.notes)


@pytest.mark.parametrize(
    ("wanted", "own", "fits"),
    [
        ("1.2.3", "1.2.3", True),
        ("v1.2.3", "1.2.3", True),
        ("1.2.3", "v1.2.3+build", True),
        ("= 1.2.3", "1.2.3", True),
        ("1.2.3_build", "1.2.3+build", True),
        ("1.2.3-rc.1", "1.2.3-rc.1", True),
        ("9.9.9", "1.2.3", False),
        ("1.2.4", "1.2.3", False),
        ("1.2.3", "1.2.3-rc.1", False),
        ("1.2.3-rc.1", "1.2.3", False),
        ("1.2.3", "", False),
        ("^1.1", "1.2.3", True),
        ("~1.2.0", "1.2.3", True),
        ("1.x", "1.2.3", True),
        ("1.*", "1.2.3", True),
        ("1", "1.2.3", True),
        ("^9.0.0", "1.2.3", False),
        ("~> 9.1", "1.2.3", False),
        ("9.x", "1.2.3", False),
        ("1", "11.2.3", False),
        ("", "1.2.3", True),
        ("*", "1.2.3", True),
        (">=1.0.0 <2.0.0", "1.2.3", True),
        (">0", "1.2.3", True),
        ("^9 || ^1", "1.2.3", True),
        ("latest", "1.2.3", True),
    ],
)
@pytest.mark.parametrize("kind", ["HelmRelease", "helmfile"])
def test_a_chart_stands_for_a_remote_one_only_if_its_version_fits(
    check: Check, program: Program, kind: str, wanted: str, own: str, fits: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    release = RELEASE.replace("version: 1.2.3", f'version: "{wanted}"')
    one = {"name": "app", "namespace": "lab", "chart": "ours/web", "version": wanted}
    repository = {"name": "ours", "url": "https://charts.example"}
    helmfile = {"helmfile.yaml": json.dumps({"repositories": [repository], "releases": [one]})}
    chart = {"charts/web/Chart.yaml": f"name: web\nversion: '{own}'\n", "charts/web/templates/pod.yaml": "# {{ 1 }}\n"}
    report = check({**chart, **({"release.yaml": release} if kind == "HelmRelease" else helmfile)})
    assert any("charts that are not in the repository" in note for note in report.notes) != fits
    assert any("app" in str(each.root) for each in report.judged) == fits


@pytest.mark.parametrize("text", ["--plain-http", "1 -- /etc", "$(touch x)", ">=0", "../..", "\\n", "\\uD800", "\\0"])
@pytest.mark.parametrize("field", ["version: 1.2.3", 'url: "https://charts.example"', "{name: app,"])
def test_no_text_of_a_release_becomes_an_option(check: Check, program: Program, field: str, text: str) -> None:
    asked = program(f'printf \'%s\\036\' "$@" >>"$0.words"; printf \'\\035\' >>"$0.words"\n{PULLING}', "helm")
    release = RELEASE.replace(field, f'{field.partition(":")[0]}: "{text}"{"," if field[-1] == "," else ""}')
    assert release != RELEASE
    check({"r.yaml": release}, options=Options(fetch=True))
    words = asked.parent / "helm.words"
    assert words.exists() or text in ("\\uD800", "\\0")
    for call in words.read_text().split("\35")[:-1] if words.exists() else ():
        verb, *rest = call.split("\36")[:-1]
        before = rest[: rest.index("--")]
        options = {each.partition("=")[0] for each in before if each.startswith("-")}
        assert (
            options
            <= {
                "pull": {"--repo", "--version"},
                "template": {"--skip-schema-validation", "--namespace", "--values", "--include-crds"},
            }[verb]
        )
        assert len(rest[rest.index("--") + 1 :]) == {"pull": 1, "template": 2}[verb]


DOOR = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: door, namespace: lab}\n"
    "spec: {containers: [{name: c, image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}\n"
)


DOORS = (
    DOOR,
    f"a: 1\n---\n{DOOR}",
    f"kind: List\nitems:\n- {DOOR.strip().replace(chr(10), chr(10) + '  ')}\n",
    f"a: 1\n---\nitems:\n- {DOOR.strip().replace(chr(10), chr(10) + '  ')}\nkind: Doors\n",
)
"""Texts of which kubectl creates the pod."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "fields",
    [
        "configMapGenerator: [{name: t, files: [deploy/door.yaml]}]\n",
        "secretGenerator: [{name: t, files: [deploy/door.yaml]}]\n",
        "crds: [deploy/door.yaml]\n",
        "openapi: {path: deploy/door.yaml}\n",
        "helmCharts: [{name: web, repo: https://charts.example, valuesFile: deploy/door.yaml}]\n",
        "helmCharts: [{name: web, repo: https://charts.example, additionalValuesFiles: [deploy/door.yaml]}]\n",
    ],
)
def test_a_kustomization_hides_no_object_that_it_does_not_make(check: Check, fields: str, door: str) -> None:
    report = check({"kustomization.yaml": fields, "deploy/door.yaml": door})
    assert [one.verdict.allowed for one in report.judged if one.name == "door"] == [False]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("between", ["", "a: 1\n---\n"])
def test_an_object_below_a_kustomization_is_judged(check: Check, door: str, between: str) -> None:
    files = {"pod.yaml": POD, "kustomization.yaml": f"resources: [pod.yaml]\n---\n{between}{door}"}
    report = check(files)
    assert [one.verdict.allowed for one in report.judged if one.name == "door"] == [False]


@pytest.mark.parametrize("kind", ["v1beta1\nkind: Kustomization", "v1alpha1\nkind: Component"])
def test_items_of_a_kustomization_are_judged(check: Check, kind: str) -> None:
    """kubectl takes the file for a List."""
    items = f"items:\n- {DOOR.strip().replace(chr(10), chr(10) + '  ')}\n"
    report = check({"k/kustomization.yaml": f"apiVersion: kustomize.config.k8s.io/{kind}\n{items}"})
    assert [(one.file, one.verdict.allowed) for one in report.judged] == [("k/kustomization.yaml", False)]


def test_values_with_a_list_of_items_are_no_objects(check: Check) -> None:
    fields = "helmCharts: [{name: web, repo: https://charts.example, valuesFile: deploy/some.yaml}]\n"
    report = check({"kustomization.yaml": fields, "deploy/some.yaml": "items: [{name: a}]\n"})
    assert ([*report.judged], [*report.problems]) == ([], [])


def test_a_folder_is_no_option_of_the_program(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'")
    check(
        {"--load-restrictor=none/kustomization.yaml": "resources: [pod.yaml]\n", "--load-restrictor=none/pod.yaml": POD}
    )
    assert asked.read_text() == "build ./--load-restrictor=none\n"


@pytest.mark.parametrize("path", ["/etc", "../../../../../../../../../etc/x", ".hidden/pod.yaml"])
def test_a_program_does_not_run_where_paths_lead_out_of_the_repository(
    check: Check, program: Program, path: str
) -> None:
    asked = program(f"printf '%s' '{POD}'")
    report = check({"a/kustomization.yaml": f"resources: [pod.yaml, {path}]\n", "a/pod.yaml": POD})
    assert not asked.exists()
    assert judged(report) == ["a/pod.yaml lab a"]
    assert any("out of the repository" in note or "absolute path" in note for note in report.notes)


def test_kustomizations_that_only_include_each_other_are_judged(check: Check) -> None:
    report = check(
        {"a/kustomization.yaml": "namespace: one\nresources: [../b, door.yaml]\n", "a/door.yaml": DOOR}
        | {"b/kustomization.yaml": "resources: [../a]\n"}
    )
    assert [(one.namespace, one.root, one.verdict.allowed) for one in report.judged] == [("one", "a", False)]


def test_patterns_follow_no_links(check: Check, tmp_path: Path) -> None:
    """Three links to their own folder make more paths than anybody can list."""
    for name in ("a", "b", "c"):
        (tmp_path / name).symlink_to(".")
    generator = "{git: {directories: [{path: '**'}, {path: 'a*/**/**/**/**/**/x'}]}}"
    text = "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: s}\n"
    text += f"spec: {{generators: [{generator}]}}\n"
    assert [one.name for one in check({"apps.yaml": text, "d/pod.yaml": POD}).judged] == ["made"]


SET = """\
apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: s}
spec:
  generators: [{git: {directories: [{path: "d*"}, {path: "*"}]}}]
  template: {metadata: {name: a}, spec: {source: {path: "{{path}}", helm: {values: "VALUES"}}}}
"""


ASIDE = "[{op: add, path: /spec/runtimeClassName, value: aside}]"


COPYING = "replacements: [{{source: {}, targets: [{{select: {{kind: Pod}}, fieldPaths: [metadata.labels.b]}}]}}]"
IMAGES = ["a=b:1"]


@pytest.mark.parametrize(
    ("own", "field", "changes", "noted"),
    [
        ("namespace: lab", "patches", [{"target": {"kind": "Pod", "namespace": "lab"}, "patch": ASIDE}], True),
        ("namePrefix: a-", "patches", [{"target": {"kind": "Pod", "name": "a-made"}, "patch": ASIDE}], True),
        ("labels: [{pairs: {a: b}}]", "patches", [{"target": {"labelSelector": "a=b"}, "patch": ASIDE}], True),
        (f"patchesJson6902: [{{target: {{kind: Pod}}, patch: '{ASIDE}'}}]", "patches", [{"patch": "OTHER"}], True),
        (f"patches: [{{target: {{kind: Pod}}, patch: '{ASIDE}'}}]", "components", ["../more"], True),
        ("replacements: [{path: r.yaml}]", "patches", [{"target": {"kind": "Pod"}, "patch": ASIDE}], True),
        ("helmCharts: [{name: web}]", "components", ["../more"], True),
        (COPYING.format("{kind: Pod}"), "namePrefix", "a-", True),
        (COPYING.format("{kind: Pod}").replace("repl", "Repl"), "namePrefix", "a-", True),
        (COPYING.format("{kind: Pod, fieldPath: metadata}"), "namePrefix", "a-", True),
        (COPYING.format("{kind: Pod, fieldPath: 'spec.containers.0.image'}"), "images", IMAGES, True),
        ("transformers: [turned.yaml]", "nameSuffix", "-a", True),
        ("configurations: [fields.yaml]", "namePrefix", "a-", True),
        (COPYING.format("{kind: Pod, fieldPath: metadata.labels.a}"), "namePrefix", "a-", False),
        (COPYING.format("{kind: Pod, fieldPath: spec.serviceAccountName}"), "namePrefix", "a-", False),
        (COPYING.format("{kind: Pod}"), "images", IMAGES, False),
        ("", "patches", [{"target": {"kind": "Pod", "namespace": "lab"}, "patch": ASIDE}], False),
        ("namespace: lab", "patches", [{"target": {"kind": "Pod", "name": "made"}, "patch": ASIDE}], False),
        ("namePrefix: a-", "patches", [{"target": {"kind": "Pod", "name": "made"}, "patch": ASIDE}], False),
        (f"patches: [{{target: {{kind: Pod}}, patch: '{ASIDE}'}}]", "patches", [{"patch": "OTHER"}], False),
        ("namespace: lab\ncomponents: [../more]", "components", ["../more"], False),
    ],
)
@pytest.mark.parametrize("kind", ["flux", "argo"])
def test_changes_that_apply_before_those_of_their_folder_are_noted(
    check: Check, own: str, field: str, changes: Any, noted: bool, kind: str
) -> None:
    """Flux and Argo CD write them into its kustomization, which applies its fields in an order of its own."""
    folder, other = "app" if kind == "flux" else "web", ASIDE.replace("aside", "other")
    if isinstance(changes, list):
        changes = [
            {"target": {"kind": "Pod"}, "patch": other} if each == {"patch": "OTHER"} else each for each in changes
        ]
    if field == "images" and kind == "flux":
        changes = [{"name": "a", "newName": "b", "newTag": "1"}]
    one = deploying_by(kind, field if kind == "flux" else f"source.kustomize.{field}", changes)
    more = f"kind: Component\npatches: [{{target: {{kind: Pod}}, patch: '{other}'}}]\n"
    report = check(
        {
            f"{folder}/kustomization.yaml": f"resources: [pod.yaml]\n{own}\n",
            f"{folder}/pod.yaml": POD.replace(", namespace: lab", ""),
            "more/kustomization.yaml": more,
            "r.yaml": "",
            "one.yaml": one,
        }
    )
    assert any("its changes apply before others" in note for note in report.notes) == noted
    assert report.unfollowed >= noted


@pytest.mark.parametrize(("selected", "noted"), [("a=b", True), ("c=d", False)])
@pytest.mark.parametrize("own", ["helmCharts: [{name: web}]", "resources: [../base]"], ids=["own", "of a base"])
@pytest.mark.parametrize("kind", ["flux", "argo"])
def test_changes_that_apply_to_charts_before_those_of_their_folder_are_noted(
    check: Check, program: Program, own: str, kind: str, selected: str, noted: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    folder, field = ("app", "patches") if kind == "flux" else ("web", "source.kustomize.patches")
    patch = {"target": {"kind": "Pod", "labelSelector": selected}, "patch": ASIDE}
    files = {"one.yaml": deploying_by(kind, field, [patch]), "base/kustomization.yaml": "helmCharts: [{name: web}]\n"}
    files[f"{folder}/kustomization.yaml"] = f"namespace: lab\n{own}\nlabels: [{{pairs: {{a: b}}}}]\n"
    files |= in_folders(f"{folder}/charts/web", "base/charts/web")
    report = check(files, options=Options(cached=False))
    assert any("its changes apply before others" in note for note in report.notes) == noted
    assert report.unfollowed == noted


@pytest.mark.parametrize(("name", "noted"), [("i", 1), ("j", 1), ("k", 0)])
@pytest.mark.parametrize("kind", ["flux", "argo"])
def test_an_image_that_the_folder_renames_too_is_noted(check: Check, kind: str, name: str, noted: int) -> None:
    """Flux and Argo CD write theirs in place of the one of the folder, and kustomize applies each once."""
    folder = "app" if kind == "flux" else "web"
    field, image = (
        ("images", {"name": name, "newTag": "2"}) if kind == "flux" else ("source.kustomize.images", f"{name}:2")
    )
    own = "resources: [pod.yaml]\nimages: [{name: i, newName: j}]\n"
    files = {f"{folder}/kustomization.yaml": own, f"{folder}/pod.yaml": POD}
    assert check({**files, "one.yaml": deploying_by(kind, field, [image])}).unfollowed == noted


@pytest.mark.parametrize(("image", "noted"), [("i=x:$ARGOCD_APP_NAME", 1), ("i=x:1", 0)])
def test_a_variable_in_an_image_is_noted(check: Check, image: str, noted: int) -> None:
    files = {"web/kustomization.yaml": "resources: [pod.yaml]\n", "web/pod.yaml": POD}
    assert check({**files, "one.yaml": deploying_by("argo", "source.kustomize.images", [image])}).unfollowed == noted


@pytest.mark.parametrize(
    ("images", "read"),
    [
        (["i=r:5000/o:2"], [{"name": "i", "newName": "r:5000/o", "newTag": "2"}]),
        (["r:5000/i:2"], [{"name": "r:5000/i", "newName": "r:5000/i", "newTag": "2"}]),
        (["i@sha256:0a"], [{"name": "i", "newName": "i", "digest": "sha256:0a"}]),
        (["i=o@sha256:0a"], [{"name": "i", "newName": "o", "digest": "sha256:0a"}]),
        (
            ["i=o", "j:1", "i:2"],
            [{"name": "i", "newName": "i", "newTag": "2"}, {"name": "j", "newName": "j", "newTag": "1"}],
        ),
    ],
)
def test_images_are_read_as_kustomize_edits_them(images: list[str], read: Any) -> None:
    assert argo.changes({"kustomize": {"images": images}})["images"] == read


@pytest.mark.parametrize(
    ("generator", "made", "noted"),
    [
        ("directories: [{path: 'd/*'}, {path: 'd*', exclude: true}]", True, False),
        ("directories: [{path: 'd/*'}, {path: 'd/*', exclude: true}]", False, False),
        ("directories: [{path: 'd/[^x]*'}]", False, True),
        ("directories: [{path: 'd/*'}, {path: '.github', exclude: true}]", True, False),
        ("directories: [{path: 'd/**'}]", True, False),
        ("directories: [{path: '**/**/**'}]", False, False),
        ("directories: [{path: './d/*'}]", False, False),
        ("directories: [{path: 'd/*'}, {path: 'd/[]o]*', exclude: true}]", False, True),
        ("directories: [{path: 'd/*'}, {path: 'd/[a-z]*', exclude: true}]", False, False),
        ("files: [{path: '*/config.yaml'}]", True, False),
        ("files: [{path: 'd/.x/config.yaml'}]", False, True),
        ("files: [{path: '**/*.yml'}]", True, True),
        ("files: [{path: e}]", True, False),
        ("files: [{path: e/}]", True, False),
        ("files: [{path: d/one}]", True, True),
        ("files: [{path: ./d/one/c*}]", True, False),
        ("files: [{path: s/../d/one/c*}]", True, False),
        ("files: [{path: 'd/[m-p]ne/c*'}]", True, False),
        ("files: [{path: 'd/[[:lower:]]*/c*'}]", False, True),
        ("files: [{path: ':(icase)D/ONE/C*'}]", False, True),
        ("files: [{path: '*/h.yaml'}]", False, True),
        ("files: [{path: '.git*'}]", False, True),
        ("files: [{path: 'g*/*'}]", False, False),
        ("files: [{path: d/one/config.yaml}, {path: 'd/*/c*', exclude: true}]", False, False),
        ("files: [{path: d/one/config.yaml}, {path: 'd/*', exclude: true}]", True, False),
        ("files: [{path: d/one/config.yaml, exclude: true}]", False, False),
        ("files: [{path: d/one/config.yaml}], directories: [{path: 'x*'}]", False, False),
    ],
)
def test_generators_read_patterns_as_argo_does(check: Check, generator: str, made: bool, noted: bool) -> None:
    text = SET.replace('directories: [{path: "d*"}, {path: "*"}]', generator)
    files = {f"d/one/{name}": "a: b" for name in ("config.yaml", "a.yml", ".x.yml", ".h/h.yaml")}
    report = check({"s.yaml": text, "d/one/pod.yaml": POD, "e/pod.yaml": POD, **files})
    assert any(one.root == "Application a" for one in report.judged) == made
    assert (report.unfollowed > 0) == noted


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("web", "web"),
        (12, "12"),
        (1.0, "1"),
        (-0.0, "-0"),
        (0.5, "0.5"),
        (True, "true"),
        (1, "1"),
        (0, "0"),
        (10**6, None),
        (0.00001, None),
        ([1], None),
    ],
)
def test_a_parameter_is_written_as_argo_cd_writes_it(check: Check, value: Any, written: str | None) -> None:
    one = json.loads(deploying_by("set", "goTemplate", True))
    one["spec"]["generators"] = [{"git": {"files": [{"path": "p.json"}]}}]
    one["spec"]["template"]["spec"]["source"]["path"] = "of-{{.who}}"
    layout = {f"of-{written or value}/pod.yaml": POD, "p.json": json.dumps({"who": value}), "one.yaml": json.dumps(one)}
    report = check(layout)
    assert any(each.root.startswith("Application") for each in report.judged) == (written is not None)
    assert report.unfollowed == (written is None)


@pytest.mark.parametrize(
    ("of_go", "key", "kept"),
    [
        (True, "path", True),
        (True, "path.path", False),
        (True, "path.segments.1", False),
        (True, "path[1]", True),
        (True, "values.own", True),  # unknown before Argo CD 3.4
        (False, "values.own", False),
        (False, "path", False),
        (False, "path.path", True),
        (False, "path[1]", False),
        (False, "path.segments.1", True),
    ],
)
def test_a_selector_knows_the_names_that_templates_of_a_kind_have(
    check: Check, of_go: bool, key: str, kept: bool
) -> None:
    """An absent key is in no list, so Argo CD keeps what it should have left out (applicationset/utils/selector.go)."""
    selector = {"matchExpressions": [{"key": key, "operator": "NotIn", "values": ["apps/gpu", "gpu"]}]}
    generator = {"git": {"directories": [{"path": "apps/*"}], "values": {"own": "gpu"}}, "selector": selector}
    check({"apps/gpu/pod.yaml": POD})
    spec = {"generators": [generator], "template": {"metadata": {"name": "x"}}, "goTemplate": of_go}
    assert len(argo.applications({"spec": spec}, tree.Tree(str(Path.cwd())), "")[0]) == kept


@pytest.mark.parametrize(
    ("of_go", "values", "written", "filled"),
    [
        (True, {"a": "b"}, "{{.values.gpu}}", "{{.values.gpu}}"),
        (True, {}, "{{.values.gpu}}", "off"),
        (True, {"gpu": "on"}, "{{.values.gpu}}", "on"),
        (True, {"a": "b"}, "{{.path.own}}", "{{.path.own}}"),
        (False, {"a": "b"}, "{{values.gpu}}", "off"),
    ],
)
def test_a_generator_replaces_the_maps_of_a_file_for_templates_of_go(
    check: Check, of_go: bool, values: Mapping[str, str], written: str, filled: str
) -> None:
    check({"apps/a.json": '{"values": {"gpu": "off"}, "path": {"own": "off"}}'})
    generator = {"git": {"files": [{"path": "apps/*.json"}], "values": values}}
    spec = {"generators": [generator], "template": {"spec": {"project": written}}, "goTemplate": of_go}
    (made,) = argo.applications({"spec": spec}, tree.Tree(str(Path.cwd())), "")[0]
    assert made["spec"] == {"project": filled}


@pytest.mark.parametrize(
    ("generator", "of_go", "written", "filled"),
    [
        ({"list": {"elements": [{"path": "apps"}]}}, True, "{{.path}}", "apps"),
        ({"git": {"directories": [{"path": "apps"}]}}, True, "{{.path}}", "{{.path}}"),
        ({"git": {"files": [{"path": "apps/A_b.json"}]}}, True, "{{.path.filename}}", "A_b.json"),
        ({"git": {"files": [{"path": "apps/A_b.json"}]}}, False, "{{path.filenameNormalized}}", "a-b.json"),
        ({"git": {"directories": [{"path": "apps"}]}}, False, "{{path.filename}}", "{{path.filename}}"),
        ({"git": {"directories": [{"path": "apps"}], "pathParamPrefix": "p"}}, True, "{{.p.path.path}}", "apps"),
        ({"git": {"directories": [{"path": "apps"}], "pathParamPrefix": "p"}}, False, "{{p.path[0]}}", "apps"),
        ({"git": {"directories": [{"path": "apps"}], "pathParamPrefix": "p"}}, False, "{{path}}", "{{path}}"),
        ({"git": {"directories": [{"path": "apps"}], "values": {"a": "{{path}}-x"}}}, False, "{{values.a}}", "apps-x"),
        ({"git": {"files": [{"path": "apps/*"}], "values": {"a": "{{.who}}"}}}, True, "{{.values.a}}", "one"),
        ({"git": {"files": [{"path": "apps/*"}], "values": {"a": "{{.b}}"}}}, True, "{{.values.a}}", "{{.b}}"),
    ],
)
def test_parameters_have_the_names_of_argo_cd(
    check: Check, generator: Mapping[str, Any], of_go: bool, written: str, filled: str
) -> None:
    check({"apps/A_b.json": '{"who": "one", "p": {"path": "other"}}'})
    spec = {"generators": [generator], "template": {"spec": {"project": written}}, "goTemplate": of_go}
    (made,) = argo.applications({"spec": spec}, tree.Tree(str(Path.cwd())), "")[0]
    assert made["spec"] == {"project": filled}


@pytest.mark.parametrize(
    ("selector", "made"),
    [
        ({}, True),
        ({"matchLabels": {"who": "one"}}, True),
        ({"matchLabels": {"who": "two"}}, False),
        ({"matchLabels": {"other": "x"}}, True),
        ({"matchExpressions": [{"key": "who", "operator": "In", "values": ["one", "two"]}]}, True),
        ({"matchExpressions": [{"key": "who", "operator": "In", "values": ["two"]}]}, False),
        ({"matchExpressions": [{"key": "who", "operator": "NotIn", "values": ["one"]}]}, False),
        ({"matchExpressions": [{"key": "who", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "who", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"values.a": "x"}}, True),
    ],
)
def test_a_selector_leaves_out_what_surely_does_not_fit(check: Check, selector: Mapping[str, Any], made: bool) -> None:
    generator = {"list": {"elements": [{"who": "one", "values": {"a": "{{who}}"}}]}, "selector": selector}
    report = check({"web/pod.yaml": POD, "one.yaml": deploying_by("set", "generators", [generator])})
    assert any(each.root for each in report.judged) == made
    assert report.unfollowed == 0


@pytest.mark.parametrize(
    ("parameters", "noted"), [({"a": {"b": "web"}}, 0), ({"a.b": "web"}, 0), ({"a": {"b": "evil"}, "a.b": "web"}, 1)]
)
def test_two_parameters_of_one_path_are_noted(check: Check, parameters: Any, noted: int) -> None:
    one = json.loads(deploying_by("set", "template.spec.source.path", "{{a.b}}"))
    one["spec"]["generators"] = [{"git": {"files": [{"path": "p.json"}]}}]
    layout = {"web/pod.yaml": POD, "p.json": json.dumps(parameters), "one.yaml": json.dumps(one)}
    assert check(layout).unfollowed == noted


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("who: web\n", 1),
        ("", 1),
        ("# nothing\n", 1),
        ("---\n# nothing\n", 1),
        ("[]", 0),
        ("- who: a\n- who: b\n", 2),
        ("who: a\n---\nwho: b\n", 1),
        ("who: a\n---\n: [\n", 1),
    ],
)
def test_a_file_makes_as_many_applications_as_for_argo_cd(check: Check, text: str, made: int) -> None:
    one = json.loads(deploying_by("set", "template.metadata.name", "x"))
    one["spec"]["generators"] = [{"git": {"files": [{"path": "p.yaml"}]}}]
    check({"web/pod.yaml": POD, "p.yaml": text, "one.yaml": json.dumps(one)})
    assert len(argo.applications(one, tree.Tree(str(Path.cwd())), ".")[0]) == made


@pytest.mark.parametrize(
    ("key", "placeholder", "noted"),
    [({"a": {"b": "web"}}, ".a.b", 0), ({"a.b": "web"}, ".a.b", 1), ({"a-b": "web"}, ".a-b", 1)],
)
def test_a_template_of_go_reads_a_key_with_a_dot_as_two(check: Check, key: Any, placeholder: str, noted: int) -> None:
    one = json.loads(deploying_by("set", "template.spec.source.path", f"{{{{ {placeholder} }}}}"))
    one["spec"] |= {"goTemplate": True, "generators": [{"list": {"elements": [key]}}]}
    assert check({"web/pod.yaml": POD, "one.yaml": json.dumps(one)}).unfollowed == noted


def test_a_file_that_argo_cd_skips_is_judged_by_itself(check: Check) -> None:
    files = {"web/skip.yaml": f"# +argocd:skip-file-rendering\n{POD}", "web/pod.yaml": POD}
    report = check({**files, "one.yaml": deploying_by("argo", "destination.namespace", "kube-system")})
    assert judged(report) == ["web/pod.yaml lab Application team", "web/skip.yaml lab"]


@pytest.mark.parametrize(("namespace", "noted"), [("{{ who }}", 0), ("{{ who | lower }}", 1), ("lab", 0)])
def test_a_namespace_that_is_not_filled_in_is_noted(check: Check, namespace: str, noted: int) -> None:
    one = deploying_by("set", "template.spec.destination.namespace", namespace)
    assert check({"web/pod.yaml": POD, "one.yaml": one}).unfollowed == noted


def test_hidden_files_that_are_deployed_are_noted(check: Check) -> None:
    pods = {"app/pod.yaml": POD, "app/.x.yaml": POD, "web/pod.yaml": POD, "web/.x.yaml": POD}
    for kind in ("flux", "argo"):
        report = check({**pods, "one.yaml": deploying_by(kind, "interval" if kind == "flux" else "project", "")})
        assert report.unfollowed == 1
        assert any("the hidden file" in note for note in report.notes)
    assert check({"one.yaml": deploying_by("flux", "path", ".")}).unfollowed == 1
    own = {"app/kustomization.yaml": "resources: [pod.yaml]"}
    assert check({**own, "one.yaml": deploying_by("flux", "interval", "")}).unfollowed == 0


@pytest.mark.parametrize(
    ("folder", "noted"),
    [("app/.x", True), ("app/a/.x/b", True), (".app", False), ("app/b/.x", False), ("app/a/x", False)],
)
def test_a_kustomization_in_a_hidden_folder_is_noted(check: Check, folder: str, noted: bool) -> None:
    """Its resources may have any name."""
    files = {f"{folder}/kustomization.yaml": "resources: [pod.txt]\n", f"{folder}/pod.txt": POD}
    more = {"app/b/kustomization.yaml": "resources: [pod.yaml]\n", "app/b/pod.yaml": POD, "app/pod.yaml": POD}
    report = check({**files, **more, "one.yaml": deploying_by("flux", "interval", "1m")})
    assert any(f"(the hidden file {folder}/kustomization.yaml)" in note for note in report.notes) == noted


@pytest.mark.parametrize(
    ("path", "value", "noted"),
    [
        ("source.path", "app", True),
        ("source.path", "web", False),
        ("source", {"path": "web", "directory": {"recurse": True}}, True),
        ("source.path", "chart", True),
        ("source.path", "chart/charts/sub", True),
    ],
)
def test_a_submodule_that_is_not_there_is_noted(
    check: Check, tmp_path: Path, path: str, value: Any, noted: bool
) -> None:
    """Argo CD fetches submodules. Git keeps no other folder that is empty."""
    for folder in ("app", "web/sub", "chart/charts/sub"):
        (tmp_path / folder).mkdir(parents=True)
    files = {"web/pod.yaml": POD, "chart/Chart.yaml": named("c"), "one.yaml": deploying_by("argo", path, value)}
    modules = '[submodule "app"]\n\tpath = app\n\turl = https://example.com/app.git\n'
    assert not any("submodule" in note for note in check(files).notes)
    assert any("(the submodule " in note for note in check({".gitmodules": modules}).notes) == noted
    for folder in ("app", "web/sub", "chart/charts/sub"):
        (tmp_path / folder / "pod.yaml").write_text(POD)
    assert not any("submodule" in note for note in check({}).notes)


NUL = "a\0b"
ENTRY = {"name": "web", "releaseName": "r"}


@pytest.mark.parametrize(
    "text",
    [
        *(json.dumps({key: [NUL]}) for key in ("resources", "components", "patchesStrategicMerge", "transformers")),
        json.dumps({"patches": [{"path": NUL, "target": {"kind": "Pod"}}]}),
        json.dumps({"replacements": [{"path": NUL}]}),
        json.dumps({"configMapGenerator": [{"name": "a", "files": [NUL], "envs": [NUL]}]}),
        json.dumps({"helmCharts": [{**ENTRY, "valuesFile": NUL}]}),
        json.dumps({"helmCharts": [ENTRY], "helmGlobals": {"chartHome": NUL}}),
    ],
)
@pytest.mark.parametrize("touched", [False, True])
def test_a_null_byte_in_a_path_of_a_kustomization_is_noted(check: Check, text: str, touched: bool) -> None:
    names = ["kustomization.yaml"] if touched else []
    report = check({"kustomization.yaml": text}, *names, options=Options(touched=touched))
    assert [*report.notes, *report.problems]


@pytest.mark.parametrize("touched", [False, True])
@pytest.mark.parametrize(
    "files",
    [
        {"web/Chart.yaml": json.dumps({"name": "web", "dependencies": [{"name": "l", "repository": f"file://{NUL}"}]})},
        {"web/Chart.yaml": json.dumps({"name": "web", "dependencies": [{"name": NUL, "repository": "file://../lib"}]})},
        {"helmfile.yaml": json.dumps({"releases": [{"name": "r", "chart": "./web", "values": [NUL]}]})},
    ],
)
def test_a_null_byte_in_a_path_of_a_chart_is_noted(
    check: Check, program: Program, files: dict[str, str], touched: bool
) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    chart = {"web/Chart.yaml": named("web"), "web/templates/pod.yaml": POD, "lib/Chart.yaml": named("lib")}
    names = [*files, *chart] if touched else []
    assert [*check({**chart, **files}, *names, options=Options(touched=touched)).notes]


def test_helm_gets_hidden_files_that_a_template_may_read(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is left out is noted: a link, or one of too many."""
    program(f"printf '%s' '{POD}'", "helm")
    reading = {"web/templates/a.yaml": '{{ .Files.Get ".x/pod.txt" }}', "web/.gitignore": "x", "web/.x/pod.txt": "x"}
    report = check({**WEB, **reading, "one.yaml": deploying_by("release", "interval", "1m")})
    assert report.unfollowed == 0
    assert not any("hidden" in note for note in report.notes)
    assert {".gitignore", ".x/pod.txt"} <= {*chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files}
    link = Path("web/.x/link")
    link.symlink_to("pod.txt")
    report = check({}, options=Options(cached=False))
    assert any("(the hidden file web/.x/link)" in note for note in report.notes)
    link.unlink()
    for name, most in (("MOST_HIDDEN", 1), ("MOST_HIDDEN_BYTES", 1)):
        monkeypatch.setattr(chart_folders, name, most)
        report = check({}, options=Options(cached=False))
        assert any("(the hidden file web/.x/pod.txt)" in note for note in report.notes)


def test_a_template_is_read_once_for_all_the_objects_that_it_makes(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = "\n---\n".join(f"# Source: web/templates/a.yaml\n{POD.replace('made', f'made-{n}')}" for n in range(50))
    program(f"printf '%s' '{made}'", "helm")
    read, own = Counter[str](), files.contents
    monkeypatch.setattr(files, "contents", lambda name: (read.update([os.path.normpath(name)]), own(name))[1])
    report = check({**WEB, "web/templates/a.yaml": f"# {{{{ x }}}}\n\n{POD}"}, options=Options(cached=False))
    assert [one.line for one in report.judged if one.root] == [4] * 50
    assert read["web/templates/a.yaml"] < 20


def test_a_dependency_at_two_addresses_is_not_rendered(check: Check) -> None:
    """Flux adds both under their other names, and Helm finds the first one for both."""
    both = LOCAL.replace("[{", "[{alias: a, name: lib, repository: 'file://../other'}, {alias: b, ")
    check({**{f"{name}/Chart.yaml": "name: lib\n" for name in ("lib", "other")}, "web/Chart.yaml": both})
    with pytest.raises(tree.Unseen, match="web has the dependency lib at several addresses"):
        chart_folders.staged(tree.Tree(str(Path.cwd())), "web")
    Path("web/Chart.yaml").write_text(both.replace("other", "lib"))
    assert "charts/lib/Chart.yaml" in chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files


def test_a_chart_of_a_chain_is_rendered_as_if_its_dependency_were_built_and_as_if_not(
    check: Check, program: Program
) -> None:
    asked = program("exit 1", "helm")
    lib, more = named("lib", LOCAL.partition("\n")[2].replace("lib", "more")), {"more/Chart.yaml": named("more")}
    deploys = {"one.yaml": deploying_by("release", "interval", "1m"), "web/Chart.yaml": named("web", LOCAL[10:])}
    report = check({**deploys, "lib/Chart.yaml": lib, **more}, options=Options(cached=False))
    assert len(asked.read_text().splitlines()) == 4  # twice for `web`
    assert any("3 charts (HelmRelease team, lib, more) not rendered" in note for note in report.notes)
    asked.unlink()
    check({"lib/Chart.yaml": named("lib")}, options=Options(cached=False))
    assert len(asked.read_text().splitlines()) == 3


def test_charts_of_one_name_of_which_helm_takes_any_are_not_rendered(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    two = {f"web/charts/{name}/Chart.yaml": named("sub", f"description: {name}\n") for name in "ab"}
    report = check({"web/Chart.yaml": named("web"), **two})
    assert any("it has several charts named sub, and Helm takes any of them" in note for note in report.notes)
    assert not asked.exists()
    assert judged(check({"web/charts/b/Chart.yaml": named("other")})) == ["web lab web"]


LOCAL = "name: web\ndependencies: [{name: lib, repository: 'file://../lib'}]\n"


@pytest.mark.parametrize(
    ("patterns", "left_out"),
    [
        ("templates/_*.tpl", {"templates/_a.tpl"}),
        ("_?.tpl", {"templates/_a.tpl", "templates/x/_b.tpl"}),
        ("/templates/", {"templates/_a.tpl", "templates/x/_b.tpl"}),
        ("x/", {"templates/x/_b.tpl"}),
        ("templates/*.tpl\n/values.*", {"templates/_a.tpl", "values.yaml"}),
        ("/_a.tpl\n_a.tpl/\n*/_b.tpl", set()),
        ("nothing\u2028templates/_a.tpl\vvalues.yaml", set()),
        ("nothing\r\nvalues.yaml\r\n", {"values.yaml"}),
        ("templates/_a.tpl\x1c\nvalues.yaml\x85", {"values.yaml"}),
        ("# .gitignore\n.git/\n*.swp\n.idea/\n*.tmproj\n*~\n", set()),
        ("", set()),
    ],
)
def test_a_dependency_is_read_with_its_own_patterns(check: Check, patterns: str, left_out: set[str]) -> None:
    """As by `helm dependency build`, and by Flux."""
    names = {"templates/_a.tpl", "templates/x/_b.tpl", "values.yaml"}
    lib = {f"lib/{name}": "x" for name in names} | {"lib/Chart.yaml": "name: lib\n", "lib/.helmignore": patterns}
    check({**lib, "web/Chart.yaml": LOCAL, "web/.helmignore": "templates/"})
    staged = chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files
    assert {name for name in names if f"charts/lib/{name}" not in staged} == left_out


def test_a_dependency_is_added_without_hidden_templates(check: Check) -> None:
    names = {"templates/.a.tpl", "templates/.x/b.tpl", "templates/x/.c.tpl", ".d"}
    lib = {f"lib/{name}": "x" for name in names} | {"lib/Chart.yaml": "name: lib\n"}
    check({**lib, "web/Chart.yaml": LOCAL})
    staged = chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files
    assert {name for name in names if f"charts/lib/{name}" in staged} == {"templates/x/.c.tpl", ".d"}


@pytest.mark.parametrize("kind", ["", "release", "argo"])
def test_a_chart_is_rendered_without_dependencies_that_are_elsewhere(check: Check, program: Program, kind: str) -> None:
    far = "dependencies: [{name: far, version: 1.0.0, repository: 'https://a.example'}]\n"
    made = f"printf '# Source: web/templates/pod.yaml\\n%s' '{TAKING}'"
    program(f"find . -name '*.tgz' -exec tar xzf {{}} \\;\ngrep -rq far . && exit 1\n{made}", "helm")
    files = {"web/Chart.yaml": named("web") + far, "web/templates/pod.yaml": TAKING}
    report = check({**files, **({"deploy/one.yaml": deploying_by(kind, "suspend", None)} if kind else {})})
    assert (report.count(allowed=False), report.unfollowed) == (1, 0)
    assert any("rendered without dependencies that are not vendored" in note for note in report.notes)
    program("echo 'Error: no template far.name' >&2; exit 1", "helm")
    report = check(files)
    assert any("not rendered: a dependency is not vendored" in note for note in report.notes)


@pytest.mark.parametrize(("text", "staged"), [(LOCAL, True), (f"name: web\n---\n{LOCAL}", False)])
def test_a_chart_has_the_dependencies_of_the_first_document(check: Check, text: str, staged: bool) -> None:
    check({"lib/Chart.yaml": "name: lib\n", "web/Chart.yaml": text})
    assert ("charts/lib/Chart.yaml" in chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files) == staged


@pytest.mark.parametrize(
    ("requirements", "staged"),
    [
        ("dependencies: [{repository: 'file://../other'}]\n", "other"),
        ("dependencies: [{name: lib, repository: 'file://../other'}]\n---\ndependencies: []\n", "other"),
        ("dependencies: []\n", ""),
        ("dependencies: [{version: 1.0.0}]\n", "lib"),
        ("# nothing\n", "lib"),
        ("name: web\n", "lib"),
    ],
)
def test_a_chart_has_the_dependencies_of_its_requirements(check: Check, requirements: str, staged: str) -> None:
    charts_of = {f"{name}/Chart.yaml": f"name: lib\ndescription: {name}\n" for name in ("lib", "other")}
    check({**charts_of, "web/Chart.yaml": LOCAL, "web/requirements.yaml": requirements})
    found = chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files.get("charts/lib/Chart.yaml", b"").decode()
    assert found.rpartition(": ")[2].strip() == staged


def test_a_chart_is_no_library_if_its_requirements_say_so(check: Check) -> None:
    check({"web/Chart.yaml": "type: library\n", "web/requirements.yaml": "type: application\n"})
    assert not chart_folders.is_library(tree.Tree(str(Path.cwd())), "web")


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (f"printf '%s' '{POD}'", (["web  lab"], [])),
        (f"echo 'Error: {charts.NO_APPLICATION}' >&2; exit 1", ([], [])),
        ("echo 'Error: x: library charts are not installable' >&2; exit 1", ([], ["chart web not rendered"])),
    ],
)
def test_helm_decides_whether_a_chart_is_a_library(
    check: Check, program: Program, script: str, found: tuple[list[str], list[str]]
) -> None:
    program(script, "helm")
    report = check({"web/Chart.yaml": "name: web\ntype: library\n"}, options=Options(cached=False))
    notes = [note.partition(":")[0] for note in report.notes if "not rendered" in note]
    assert ([f"{one.file}  {one.namespace}" for one in report.judged], notes) == found


@pytest.mark.parametrize("more", ["namespace: lab", "Namespace: lab", "name\u017fpace: lab", ""])
def test_kustomize_ignores_the_case_of_keys(check: Check, program: Program, more: str) -> None:
    """They may say in which namespace a chart is rendered, or which chart."""
    program(f"printf '%s' '{POD}'")
    asked = program(f"printf '%s' '{POD}'", "helm")
    chart = {"more/web/Chart.yaml": named("web"), "more/web/templates/a.yaml": "{{ .Values }}\n"}
    own = f"HelmCharts: [{{Name: web}}]\nhelmGlobals: {{ChartHome: more}}\n{more}\n"
    report = check({**chart, "kustomization.yaml": own}, options=Options(cached=False))
    assert ("--namespace lab" in asked.read_text(), report.unfollowed, report.problems) == (bool(more), 0, ())


PREFIXED = "namePrefix: built-\nresources: [pod.yaml]\n"


@pytest.mark.parametrize(
    "text",
    [
        f"%YAML 1.1\n---\n{PREFIXED}",
        f"%YAML 1.1\n---\n{PREFIXED}commonAnnotations: {{a: '{{{{ x }}}}'}}\n",
        f"commonAnnotations:\n  a: 'a {{{{ x }}}}\n---# b\n    c'\n{PREFIXED}",
        f"--- # a\n{PREFIXED}--- a\n",
        f"apiversion: kustomize.config.k8s.io/v1beta1\n{PREFIXED}",
        '{"namePrefix": "built-", "resources": ["pod.yaml"], "commonAnnotations": {"a": "b\u2028 c"}}',
    ],
)
def test_a_kustomization_is_read_as_kustomize_reads_it(check: Check, text: str) -> None:
    """It reads the first document of the whole text by go-yaml, and not the parts that kubectl reads."""
    report = check({"kustomization.yaml": text, "pod.yaml": POD})
    assert ([each.name for each in report.judged], report.problems) == (["built-made"], ())
    value = tree.Tree(".").first("kustomization.yaml").value
    assert value.get("commonAnnotations", {}).get("a") in (None, "{{ x }}", "a {{ x }} ---# b c", "b\u2028c")


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("", "apiVersion: v1\napiversion: kustomize.config.k8s.io/v1beta1\n", "another spelling of"),
        ("", "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n", ""),
        ("", "resources: [pod.yaml]\nre\u017fources: []\n", "another spelling of"),
        ("", "patches: [{path: p.yaml, Path: pod.yaml}]\n", "another spelling of"),
        ("", "commonLabels: {a: b, A: c}\n", ""),
        ("", "namespace: {{ .x }}\n", "it looks like a template"),
        ("templates/", "namespace: {{ .x }}\n", ""),
        ("templates/", "resources: [\n", "not YAML"),
    ],
)
def test_a_kustomization_that_may_be_read_otherwise_is_an_error(check: Check, name: str, text: str, error: str) -> None:
    report = check({f"{name}kustomization.yaml": text, "pod.yaml": POD, "p.yaml": ""})
    problems = [f"{each.file} {each.message}" for each in report.problems]
    assert (error in "".join(problems), len(problems)) == (True, bool(error))


@pytest.mark.parametrize(("text", "library"), [("type: library\n", True), ("name: a\n---\ntype: library\n", False)])
def test_a_chart_is_a_library_by_the_first_document(check: Check, text: str, library: bool) -> None:
    check({"web/Chart.yaml": text})
    assert chart_folders.is_library(tree.Tree(str(Path.cwd())), "web") == library


@pytest.mark.parametrize(("wide", "refused"), [(2, False), (20, True)])
def test_a_chart_counts_each_dependency_as_often_as_it_is_named(check: Check, wide: int, refused: bool) -> None:
    """A chart of five charts, each of which names the next one some times, has many files."""
    named = ", ".join(f"{{name: d{each}, repository: 'file://../cNEXT'}}" for each in range(wide))
    chain = {f"c{each}/Chart.yaml": f"dependencies: [{named.replace('NEXT', str(each + 1))}]\n" for each in range(5)}
    check({**chain, "c5/Chart.yaml": "description: last\n"})
    here = tree.Tree(str(Path.cwd()))
    if refused:
        with pytest.raises(tree.Unseen, match=r"has more than 10,000 files or 64 MiB"):
            chart_folders.staged(here, "c0")
    else:
        assert len(chart_folders.staged(here, "c0").files) == 2**6 - 1


@pytest.mark.parametrize("patterns", ["!*.yaml", "[^a]*", "a\\*", "x\n" * 101])
def test_a_dependency_with_an_odd_pattern_is_not_rendered(check: Check, patterns: str) -> None:
    check({"lib/Chart.yaml": "name: lib\n", "lib/.helmignore": patterns, "web/Chart.yaml": LOCAL})
    with pytest.raises(tree.Unseen, match=r"lib/\.helmignore has more than 100 patterns, or one that"):
        chart_folders.staged(tree.Tree(str(Path.cwd())), "web")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("web/templates/more/.pod.yaml", True),
        ("web/templates/more/.gitkeep", True),
        ("web/templates/more/.x/_helpers.tpl", True),
        ("web/templates/.pod.yaml", True),  # Helm leaves it out
        ("web/templates/.x/pod.yaml", True),
        ("web/charts/lib/templates/.pod.yaml", True),
        ("web/charts/.lib/templates/pod.yaml", True),  # Helm leaves it out
        ("web/crds/.pod.yaml", True),
        ("web/crds/.git/pod.yaml", False),
        ("web/.github/pod.yaml", True),
    ],
)
def test_helm_gets_the_hidden_files_that_it_reads_itself(
    check: Check, program: Program, name: str, given: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    files = {**WEB, name: "{{ .Values }}\n", "one.yaml": deploying_by("release", "interval", "1m")}
    report = check(files, options=Options(cached=False))
    assert report.unfollowed == 0
    assert not any("hidden" in note for note in report.notes)
    assert (name.removeprefix("web/") in chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files) == given


def test_a_hidden_file_of_a_chart_is_no_way_to_another_one(check: Check) -> None:
    check({"web/Chart.yaml": "name: web\n", "web/templates/more/a.yaml": "", ".secret": "x", "seen": "x"})
    link = Path("web/templates/more/.link.yaml")
    link.symlink_to("../../../seen")
    assert "templates/more/.link.yaml" in chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files
    link.unlink()
    link.symlink_to("../../../.secret")
    with pytest.raises(tree.Unseen, match="leads out of the repository, or into a hidden folder"):
        chart_folders.staged(tree.Tree(str(Path.cwd())), "web")


def test_a_folder_of_a_chart_counts_under_each_of_its_names(check: Check) -> None:
    check({"web/Chart.yaml": "name: web\n", "web/templates/a.yaml": "", "web/files/.pod.tpl": POD, "web/files/b": "x"})
    for name in ("templates/sub", "crds", "0", "z"):
        Path("web", name).symlink_to("../files" if "/" in name else "files")
    folders = ("files", "templates/sub", "crds", "0", "z")
    seen = {f"{folder}/{name}" for folder in folders for name in ("b", ".pod.tpl")}
    own = {"Chart.yaml", "templates/a.yaml"}
    assert {*chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files} == own | seen


@pytest.mark.parametrize(
    ("link", "target"), [("web/sub", "."), ("web/templates/sub", ".."), ("web/a/b", "../templates")]
)
def test_a_chart_with_a_link_to_a_folder_around_it_is_not_rendered(check: Check, link: str, target: str) -> None:
    """Helm would never end."""
    check({"web/Chart.yaml": "name: web\n", "web/templates/pod.yaml": POD, "web/a/x": ""})
    Path("web/templates/back").symlink_to("../a")
    assert "templates/back/x" in chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files
    Path(link).symlink_to(target)
    with pytest.raises(tree.Unseen, match="leads to a folder around it"):
        chart_folders.staged(tree.Tree(str(Path.cwd())), "web")


@pytest.mark.parametrize(("deep", "refused"), [(3, False), (16, True)])
def test_links_of_a_chart_lead_to_so_many_files_at_most(check: Check, deep: int, refused: bool) -> None:
    """Each folder has two links to the next one. Linux may refuse a path with more than 20."""
    check({"web/Chart.yaml": "name: web\n", **{f"web/d{each}/x": "" for each in range(deep + 1)}})
    for each in range(deep):
        for name in ("a", "b"):
            Path(f"web/d{each}/{name}").symlink_to(f"../d{each + 1}")
    here = tree.Tree(str(Path.cwd()))
    if refused:
        with pytest.raises(tree.Unseen, match="links lead to more than 10,000 files below web"):
            chart_folders.staged(here, "web")
    else:
        assert len(chart_folders.staged(here, "web").files) == 1 + sum(2 ** (each + 1) - 1 for each in range(deep + 1))


def test_links_of_a_chart_lead_to_so_many_bytes_at_most(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_folders, "MOST_BYTES", 250)
    check({"web/Chart.yaml": "name: web\n", "web/files/a": "x" * 100, "web/b": "x" * 500})
    for name in ("c", "d"):
        Path("web", name).symlink_to("files")
    assert "d/a" in chart_folders.staged(tree.Tree(str(Path.cwd())), "web").files
    Path("web/e").symlink_to("files")
    with pytest.raises(tree.Unseen, match="links lead to more than 0 MiB below web"):
        chart_folders.staged(tree.Tree(str(Path.cwd())), "web")


def test_a_dependency_is_what_its_chart_is_called(check: Check) -> None:
    check({"lib/Chart.yaml": "name: lib\n", "web/Chart.yaml": LOCAL, "web/charts/other/Chart.yaml": "name: lib\n"})
    here = str(Path.cwd())
    assert "charts/lib/Chart.yaml" not in chart_folders.staged(tree.Tree(here), "web").files
    assert not chart_folders.missing(tree.Tree(here), "web")
    Path("web/charts/other/Chart.yaml").write_text("name: other\n")
    with pytest.raises(tree.Unseen, match="web/charts has other charts, so Flux adds no lib"):
        chart_folders.staged(tree.Tree(here), "web")


def test_a_packed_dependency_counts_before_its_folder(check: Check) -> None:
    both = LOCAL.replace("dependencies: [", "dependencies: [{name: lib-more}, ")
    check({"lib/Chart.yaml": "name: lib\n", "web/Chart.yaml": both, "web/charts/lib-more-1.0.0.tgz": "x"})
    here = str(Path.cwd())
    assert "charts/lib/Chart.yaml" in chart_folders.staged(tree.Tree(here), "web").files
    Path("web/charts/lib-1.0.0.tgz").write_text("x")
    assert "charts/lib/Chart.yaml" not in chart_folders.staged(tree.Tree(here), "web").files


def test_generators_that_look_at_too_many_paths_end(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MAX_LOOKS", 4)
    report = check({"s.yaml": SET, "d/pod.yaml": POD})
    assert judged(report) == ["d/pod.yaml lab"]
    assert any("ApplicationSet s (the patterns are compared more than 4 times)" in note for note in report.notes)


@pytest.mark.parametrize(
    "paths",
    [f"{{path: '{'*/' * 200}x'}}", ", ".join(["{path: d}"] * 200), "{path: d}" + ", {path: x, exclude: true}" * 200],
    ids=["parts of a pattern", "the same pattern again", "excluded patterns"],
)
def test_each_comparison_of_a_pattern_counts(check: Check, monkeypatch: pytest.MonkeyPatch, paths: str) -> None:
    monkeypatch.setattr(tree, "MAX_LOOKS", 100)
    report = check({"s.yaml": SET.replace('{path: "d*"}, {path: "*"}', paths), "d/pod.yaml": POD})
    assert judged(report) == ["d/pod.yaml lab"]
    assert any("ApplicationSet s (the patterns are compared more than 100 times)" in note for note in report.notes)


@given(
    st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "b", "*", "**", "[!a]"]), min_size=1, max_size=5).map("/".join),
    st.booleans(),
)
def test_a_pattern_finds_what_it_matches_within_the_steps_that_it_counts(
    paths: list[str], pattern: str, across: bool
) -> None:
    """The other reading is a regular expression for the whole path, which may need exponentially many steps."""
    one = {"a": "a", "b": "b", "*": "[^/]*", "[!a]": "[^a/]", "**": "[^/]*"}
    text = "".join("(?:[^/]+/)*" if across and each == "**" else f"{one[each]}/" for each in pattern.split("/"))
    here, asked = tree.Tree("/nowhere"), list[str]()
    here.__dict__["_paths"] = here.__dict__["_files"] = sorted({*paths})

    def counted(part: str) -> gitignore.Matcher:
        def fits(name: str) -> object:
            asked.append(name)
            return fnmatch.fnmatchcase(name, part) or None

        return fits

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tree, "matcher", counted)
        found = here.matching(pattern, across=across)
    assert found == [
        path
        for path in here._paths
        if re.fullmatch(text, f"{path}/")
        or (across and (fnmatch.fnmatchcase(path, pattern) or path.startswith(f"{pattern}/")))
    ]
    assert len(asked) <= here._looked


def test_generators_end_at_the_first_application_too_many(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_ALL_OBJECTS", 2)
    paths, of_path = list[str](), argo._of_path

    def noted(path: str, file: str, start: str, *, of_go: bool) -> Mapping[str, str]:
        paths.append(path)
        return of_path(path, file, start, of_go=of_go)

    monkeypatch.setattr(argo, "_of_path", noted)
    report = check({"s.yaml": SET, **{f"d{each}/pod.yaml": POD for each in range(9)}})
    assert any("ApplicationSet s (too many)" in note for note in report.notes)
    assert paths == ["d0", "d1", "d2"]


@pytest.mark.parametrize(("text", "most"), [("", 2), ("x" * 2 * 4096, 8)])
def test_generators_make_a_bounded_amount_of_applications(
    check: Check, monkeypatch: pytest.MonkeyPatch, text: str, most: int
) -> None:
    monkeypatch.setattr(following, "MAX_ALL_OBJECTS", most)
    report = check({"s.yaml": SET.replace("VALUES", text), **{f"d{each}/pod.yaml": POD for each in range(3)}})
    assert {one.root for one in report.judged} == {""}
    assert any("ApplicationSet s (too many)" in note for note in report.notes)


def test_what_programs_make_is_bounded(check: Check, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    program(f"printf '%s' '{POD}'")
    monkeypatch.setattr(rendering, "MAX_MADE", 2 * len(POD))
    assert check(TWO).problems == ()
    monkeypatch.setattr(rendering, "MAX_MADE", len(POD) - 1)
    report = check(TWO)
    assert judged(report) == ["a/pod.yaml one a", "b/pod.yaml two b", "c/pod.yaml lab"]
    assert [each.message for each in report.problems] == [
        "not rendered: kustomizations and charts make more than 0 MiB"
    ] * 2


def test_a_cache_that_others_can_write_to_is_not_read(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'")
    check(TWO)
    results_cache.folder().chmod(0o777)
    check(TWO)
    assert len(asked.read_text().splitlines()) == 4


def test_a_program_in_a_relative_folder_does_not_run(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = program("exit 1")
    (tmp_path / "bin").symlink_to(asked.parent)
    monkeypatch.setenv("PATH", "bin:")
    check(TWO)
    assert not asked.exists()


@pytest.mark.parametrize("path", [".", "./", "/", ""])
@pytest.mark.parametrize("files", [{"kustomization.yaml": "resources: [app/pod.yaml]\n"}, {}])
def test_flux_deploys_the_top_of_a_repository(check: Check, program: Program, path: str, files: dict[str, str]) -> None:
    """kustomize refuses a resource around the kustomization that names it."""
    origin = 'annotations: {config.kubernetes.io/origin: "path: ../repository/app/pod.yaml"}'
    made = POD.replace("name: made", f"name: other, {origin}")
    one = deploying_by("flux", "path", path)
    program(f"case $PWD/$2/ in $PWD/../*) exit 1;; esac; cd $2; printf '%s' '{made}---\n{one}'")
    report = check({**files, "app/pod.yaml": POD, ".hidden.yaml": "", "x/one.yaml": one}, options=Options(cached=False))
    assert judged(report) == ["app/pod.yaml lab Kustomization team"]


COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
BY_ORIGIN = "{target: {annotationSelector: '!config.kubernetes.io/origin'}, patch: '{}'}"
"""A patch for which it matters whether a build writes the origins of objects into annotations."""


@pytest.mark.parametrize(
    ("changes", "builds"),
    [
        (f"patches: [{BY_ORIGIN}]", 2),
        ("patches: [{target: {annotation\u017felector: a}, patch: '{}'}]", 2),
        ('patches: [{target: {"annotation\\x53elector": a}, patch: "{}"}]', 2),
        ("patches: [{path: p.yaml}]", 2),
        ("transformers: [t.yaml]", 2),
        ("replacements: [{source: {kind: Pod, fieldPath: metadata.annotations}}]", 2),
        ('patches: [{target: {kind: Pod, labelSelector: a}, patch: \'{"metadata": {"name": "x"}}\'}]', 1),
        ("namespace: lab", 1),
    ],
)
def test_a_build_that_may_read_annotations_is_judged_without_origins(
    check: Check, program: Program, changes: str, builds: int
) -> None:
    named = "case $own in *originAnnotations*) name=added;; *) name=plain;; esac"
    made = POD.replace("name: made", "name: '$name'")
    asked = program(f"for at; do :; done; read -r own <$at/kustomization.yaml; {named}; printf '%s' '{made}'")
    files = {"app/p.yaml": '[{"op": "\\x6dove"}]', "app/t.yaml": "a: 1\n", "app/pod.yaml": POD}
    report = check(
        {"app/kustomization.yaml": f"resources: [pod.yaml]\n{changes}\n", **files}, options=Options(cached=False)
    )
    assert [one.name for one in report.judged if one.root] == ["plain" if builds == 2 else "added"]
    assert len(asked.read_text().splitlines()) == builds


@pytest.mark.parametrize("own", ["", "buildMetadata: [managedByLabel]\n", "buildMetadata: [originAnnotations]\n"])
def test_changes_by_annotations_over_a_folder_see_only_the_origins_that_the_folder_asks_for(
    check: Check, program: Program, own: str
) -> None:
    named = "case $own in *originAnnotations*) name=added;; *) name=plain;; esac"
    made = POD.replace("name: made", "name: '$name'")
    program(f"for at; do :; done; read -r own <$at/kustomization.yaml; {named}; printf '%s' '{made}'")
    one = deploying_by("flux", "patches", [{"target": {"annotationSelector": "!a"}, "patch": "{}"}])
    files = {"app/kustomization.yaml": f"{own}resources: [pod.yaml]\n", "app/pod.yaml": POD, "one.yaml": one}
    report = check(files, options=Options(cached=False))
    assert {one.name for one in report.judged} == {"added" if "origin" in own else "plain"}


ORIGINS_BY_FLUX = [
    ({"buildMetadata": ["originAnnotations"]}, {"resources": ["pod.yaml"]}, "added"),
    ({"buildMetadata": ["transformerAnnotations"]}, {"resources": ["pod.yaml"]}, "plain"),
    (
        {"buildMetadata": ["managedByLabel"]},
        {"resources": ["pod.yaml"], "buildMetadata": ["originAnnotations"]},
        "plain",
    ),
    ({"buildMetadata": []}, {"resources": ["pod.yaml"], "buildMetadata": ["originAnnotations"]}, "added"),
    ({}, {"components": ["c"], "buildMetadata": ["managedByLabel"]}, "added"),
    ({}, {"components": ["c"], "resources": []}, "added"),
    ({}, {"components": ["c"], "Re\u017fources": ["pod.yaml"]}, "plain"),
    ({}, {"components": ["c"], "resources": ["pod.yaml"]}, "plain"),
]


@pytest.mark.parametrize(("spec", "own", "name"), ORIGINS_BY_FLUX)
def test_a_build_records_what_flux_asks_for(
    check: Check, program: Program, spec: dict[str, Any], own: dict[str, Any], name: str
) -> None:
    """Flux asks for origins by itself for a folder without resources, and a patch may select by them."""
    named = "case $own in *originAnnotations*) name=added;; *) name=plain;; esac"
    made = POD.replace("name: made", "name: '$name'")
    program(f"for at; do :; done; read -r own <$at/kustomization.yaml; {named}; printf '%s' '{made}'")
    one = json.loads(deploying_by("flux", "patches", [{"target": {"annotationSelector": "!a"}, "patch": "{}"}]))
    one["spec"] |= spec
    files = {"app/c/kustomization.yaml": f"{COMPONENT}resources: [pod.yaml]\n", "app/c/pod.yaml": POD}
    files |= {"app/kustomization.yaml": json.dumps(own), "app/pod.yaml": POD, "one.yaml": json.dumps(one)}
    report = check(files, options=Options(cached=False))
    assert {each.name for each in report.judged if each.root == "Kustomization team"} == {name}


@pytest.mark.parametrize(
    ("patches", "unfollowed"), [(f"patches: [{BY_ORIGIN}]", 1), ("namePrefix: a-", 0)], ids=["by origins", "by none"]
)
@pytest.mark.parametrize("own", ["resources: [pod.yaml]\nbuildMetadata: [originAnnotations]", "components: [c]"])
def test_a_patch_by_origins_is_noted_without_kustomize(check: Check, own: str, patches: str, unfollowed: int) -> None:
    files = {"app/c/kustomization.yaml": f"{COMPONENT}resources: [pod.yaml]\n", "app/c/pod.yaml": POD}
    files |= {"app/kustomization.yaml": f"{own}\n{patches}\n", "app/pod.yaml": POD}
    report = check({**files, "one.yaml": deploying_by("flux", "prune", True)})
    assert ("Kustomization team (buildMetadata not followed)" in "".join(report.notes)) is bool(unfollowed)
    assert report.unfollowed == unfollowed


def test_origins_give_the_places_of_objects_if_they_change_nothing_else(check: Check, program: Program) -> None:
    made = POD.replace("name: made", "name: other'\"$added\"'")
    origin = ', annotations: {config.kubernetes.io/origin: "path: pod.yaml"}'
    named = f"case $own in *originAnnotations*) added='{origin}';; esac"
    program(f"for at; do :; done; read -r own <$at/kustomization.yaml; {named}; printf '%s' '{made}'")
    own = f"resources: [pod.yaml]\npatches: [{BY_ORIGIN}]\n"
    report = check({"app/kustomization.yaml": own, "app/pod.yaml": POD}, options=Options(cached=False))
    assert [one.file for one in report.judged if one.name == "other"] == ["app/pod.yaml"]


@pytest.mark.parametrize("kind", ["flux", "argo"])
def test_a_prefix_takes_the_place_of_that_of_the_folder(check: Check, kind: str) -> None:
    path = {"flux": "namePrefix", "argo": "source.kustomize.namePrefix"}[kind]
    one = json.loads(deploying_by(kind, path, "two-"))
    if kind == "argo":
        one["spec"]["source"]["path"] = "app"
    own = "namePrefix: one-\nnameSuffix: -three\nresources: [pod.yaml, more]\n"
    more = {"app/more/kustomization.yaml": "namePrefix: four-\nresources: [pod.yaml]\n", "app/more/pod.yaml": POD}
    files = {"app/kustomization.yaml": own, "app/pod.yaml": POD, **more, "one.yaml": json.dumps(one)}
    assert sorted(one.name for one in check(files).judged) == ["two-four-made-three", "two-made-three"]


def test_flux_reads_files_above_a_kustomization(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'")
    flux = (
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n"
        "metadata: {name: app, namespace: flux-system}\n"
        "spec: {path: ./app, sourceRef: {kind: GitRepository, name: own}}\n"
    )
    files = {"flux.yaml": flux, "app/kustomization.yaml": "resources: [../pod.yaml]\n", "pod.yaml": POD}
    report = check(files)
    assert asked.read_text().startswith("build --load-restrictor=LoadRestrictionsNone ./")
    assert judged(report) == ["pod.yaml lab Kustomization flux-system/app"]
    check({"app/kustomization.yaml": "resources: [../pod.yaml]\ntransformers: [../t.yaml]\n", "t.yaml": "kind: x\n"})
    assert "restrictor" not in asked.read_text().splitlines()[-1]


CHART = {
    "chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n",
    "chart/.helmignore": ".git/\n*.md\n",
    "chart/templates/pod.yaml": POD,
}


def test_a_chart_hides_no_object_that_it_leaves_out(check: Check, program: Program) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    chart = {"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", ".helmignore": "door.yaml\n"}
    templates = {"templates/door.yaml": DOOR, "templates/pod.yaml": POD, "templates/other.yaml": "{{ .Values.x }}\n"}
    report = check(chart | templates)
    assert judged(report) == ["templates/door.yaml lab", "templates/pod.yaml lab ."]


def named(name: str, more: str = "", version: str = "1.0.0") -> str:
    return f"apiVersion: v2\nname: {name}\nversion: {version}\n{more}"


AS_B = "dependencies: [{name: a, version: 1.0.0, alias: b}]\n"
LEFT_OUT = {"charts/b/Chart.yaml": named("b"), "charts/b/templates/pod.yaml": DOOR}


@pytest.mark.parametrize(
    "chart",
    [
        {"Chart.yaml": named("web"), "charts/a/Chart.yaml": named("b"), "charts/a/templates/pod.yaml": POD},
        {"Chart.yaml": named("web", AS_B), "charts/a/Chart.yaml": named("a"), "charts/a/templates/pod.yaml": POD},
        {"Chart.yaml": named("web"), "charts/a-1.0.0.tgz": "packed with the name b\n"},
    ],
    ids=["name", "alias", "archive"],
)
def test_a_name_in_the_output_of_helm_hides_no_other_file(
    check: Check, program: Program, chart: dict[str, str]
) -> None:
    """Helm names a subchart by its name or alias, which may be the name of a folder that it leaves out."""
    program(f"printf '# Source: web/charts/b/templates/pod.yaml\n%s' '{POD}'", "helm")
    report = check({**chart, **LEFT_OUT, ".helmignore": "charts/b\n"})
    assert "charts/b/templates/pod.yaml lab" in judged(report)
    assert [one.name for one in report.judged if one.root == "."] == ["made"]
    report = check({"charts/b/templates/pod.yaml": f"{POD}---\n{DOOR}"})
    assert "charts/b/templates/pod.yaml lab" in judged(report), "another object of the file was made"


@pytest.mark.parametrize(
    ("file", "more"),
    [
        ("web/charts/b/templates/pod.yaml", {"web/charts/b/Chart.yaml": named("b")}),
        ("web/charts/other/templates/pod.yaml", {"web/charts/other/Chart.yaml": named("b")}),
        (
            "web/charts/a/templates/pod.yaml",
            {"web/Chart.yaml": named("web", AS_B), "web/charts/a/Chart.yaml": named("a")},
        ),
        (
            "web/charts/b/templates/pod.yaml",
            {
                "web/Chart.yaml": named(
                    "web", "dependencies: [{name: b, version: 1.0.0, repository: 'file://../b'}]\n"
                ),
                "web/charts/b/Chart.yaml": named("b"),
                "b/Chart.yaml": named("b", "type: library\n"),
            },
        ),
    ],
    ids=["folder", "other folder", "alias", "vendored"],
)
@pytest.mark.parametrize("namespace", ["", ", namespace: lab"])
def test_a_manifest_of_a_subchart_is_judged_once(
    check: Check, program: Program, file: str, more: dict[str, str], namespace: str
) -> None:
    pod = POD.replace(", namespace: lab", namespace)
    refuse = f"case $line in *library) echo 'Error: {charts.NO_APPLICATION}' >&2; exit 1;; esac"
    refusing = f"while read -r line; do {refuse}; done <chart/Chart.yaml"
    program(f"{refusing}\nprintf '# Source: web/charts/b/templates/pod.yaml\n%s' '{pod}'", "helm")
    files = {"web/Chart.yaml": named("web"), **more, file: f"# a comment\n{pod}"}
    assert judged(check(files)) == [f"{file} {'lab' if namespace else 'default'} web"]
    release = {"destination": {"namespace": "lab"}, "source": {"path": "web"}}
    application = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "x"}}
    report = check({"app.yaml": json.dumps({**application, "spec": release})})
    assert judged(report) == [f"{file} lab Application x"]


def test_a_chart_with_a_line_break_in_a_path_is_not_rendered(check: Check, program: Program) -> None:
    """Helm writes the path on a line of its output, which could name another file."""
    asked = program(f"printf '# Source: web/templates/pod.yaml\n#.yaml\n%s' '{POD}'", "helm")
    report = check({**CHART, "chart/templates/pod.yaml\n#.yaml": POD, "chart/templates/pod.yaml": DOOR})
    assert judged(report) == ["chart/templates/pod.yaml\n#.yaml lab", "chart/templates/pod.yaml lab"]
    assert any("a line break in its name" in note for note in report.notes)
    assert not asked.exists()


ARCHIVE = {
    "chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n",
    "chart/charts/sub-1.0.0.tgz": "packed\n",
    "chart/templates/pod.yaml": POD,
}


def printing(source: str) -> str:
    """A program that prints a pod, and one below `crds` of an archive if it is asked for those, as helm does."""
    crds = f"case \"$*\" in *--include-crds*) printf '# Source: {source}\n%s---\n' '{DOOR}';; esac"
    return f"{crds}\nprintf '# Source: web/templates/pod.yaml\n%s' '{POD}'"


def test_a_pod_below_crds_of_an_archive_is_judged(check: Check, program: Program) -> None:
    """Helm creates whatever is there when it installs a chart, and prints it only if asked."""
    asked = program(printing("web/charts/sub/crds/door.yaml"), "helm")
    assert judged(check(ARCHIVE)) == ["chart lab chart", "chart/templates/pod.yaml lab chart"]
    own = {"kustomization.yaml": "helmCharts: [{name: chart, includeCRDs: CRDS}]\nhelmGlobals: {chartHome: .}\n"}
    for word, count in (("true", 2), ("false", 1)):
        report = check({**ARCHIVE, **{name: text.replace("CRDS", word) for name, text in own.items()}})
        assert len(report.judged) == count, "kustomize creates them only if asked"
    plain = {name: text for name, text in ARCHIVE.items() if not name.endswith(".tgz")}
    assert judged(check(plain | {"chart/crds/door.yaml": DOOR})) != [], "as they are"
    assert "--include-crds" in asked.read_text()


@pytest.mark.parametrize(
    "path", ["../door.yaml", "templates/../../door.yaml", "files/door.yaml", "charts/../../door.yaml"]
)
def test_no_comment_below_crds_hides_a_file(check: Check, program: Program, path: str) -> None:
    """Helm prints these files as they are, with all that they say of where they come from."""
    program(printing(f"web/{path}"), "helm")
    report = check({**ARCHIVE, "door.yaml": DOOR, "chart/files/door.yaml": DOOR})
    files = [each.partition(" ")[0] for each in judged(report)]
    assert {"door.yaml", "chart/files/door.yaml"} <= {*files}


@pytest.mark.parametrize(("path", "root"), [("templates/other.yaml", ""), ("crds/other.yaml", " chart")])
def test_no_comment_below_crds_stands_for_another_file(check: Check, program: Program, path: str, root: str) -> None:
    """Helm leaves this file out, and a file below `crds` says that it is from there."""
    program(printing(f"web/{path}"), "helm")
    report = check({**ARCHIVE, f"chart/{path}": DOOR.replace("door", "other")})
    assert judged(report) == ["chart lab chart", f"chart/{path} lab{root}", "chart/templates/pod.yaml lab chart"]


def test_no_comment_below_crds_completes_a_template(check: Check, program: Program) -> None:
    program(printing("web/templates/other.yaml"), "helm")
    report = check({**ARCHIVE, "chart/templates/other.yaml": f"{{{{ if .Values.x }}}}\n{DOOR}{{{{ end }}}}\n"})
    assert any(note.startswith("1 template makes no pod or claim") for note in report.notes)


def test_a_file_below_crds_next_to_an_archive_is_judged_once(check: Check, program: Program) -> None:
    indented = "\n" + "".join(f"  {line}\n" for line in DOOR.splitlines())
    program(printing("web/crds/door.yaml").replace(DOOR, indented), "helm")
    report = check({**ARCHIVE, "chart/crds/door.yaml": indented})
    places = judged(report)
    assert report.problems == ()
    assert places == ["chart/crds/door.yaml lab chart", "chart/templates/pod.yaml lab chart"]


def test_a_template_that_makes_another_text_each_time_is_judged(check: Check, program: Program) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n# %s\n%s' $$ '{POD}'", "helm")
    assert "chart/templates/pod.yaml lab chart" in judged(check(ARCHIVE))


@pytest.mark.parametrize("path", ["chart/crds/door.yaml", "chart/crds/in/door.YML", "chart/crds/.door.json"])
def test_a_file_below_crds_is_judged_in_the_namespace_of_its_release(check: Check, program: Program, path: str) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    releases = "releases: [{name: r, namespace: one, chart: ../chart}, {name: s, namespace: two, chart: ../chart}]\n"
    placeless = DOOR.replace(", namespace: lab", "")
    files = {**CHART, path: f"# Source: web/x\n\n{placeless}---\n{DOOR}", "apps/helmfile.yaml": releases}
    for names in ((), ("apps",)):
        report = check(files, *names)
        doors = [(one.namespace, one.line) for one in report.judged if one.file == path]
        assert sorted(doors) == [("lab", 8), ("one", 3), ("two", 3)]
        assert all(one.root for one in report.judged)
        assert report.problems == ()


@pytest.mark.parametrize(("namespaces", "all_judged"), [(1, True), (3, False)])
def test_a_file_below_crds_counts_once_for_each_namespace(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch, namespaces: int, all_judged: bool
) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    monkeypatch.setattr(rendering, "MAX_MADE", 9 * 150 + 1500)
    each = ", ".join(f"{{name: r{number}, namespace: n{number % namespaces}, chart: ../chart}}" for number in range(9))
    door = DOOR.replace(", namespace: lab", "").replace("image: i", "image: " + "i" * 400)
    report = check({**CHART, "chart/crds/door.yaml": door, "apps/helmfile.yaml": f"releases: [{each}]\n"}, "apps")
    assert (report.unfollowed == 0) == all_judged
    assert any("charts make more than" in note for note in report.notes) != all_judged
    assert "n0" in {one.namespace for one in report.judged if one.file == "chart/crds/door.yaml"}


@pytest.mark.parametrize(
    "path", ["chart/crds/door.txt", "chart/charts/.s/crds/door.yaml", "chart/files/crds/door.yaml"]
)
def test_helm_creates_no_other_file_next_to_its_templates(check: Check, program: Program, path: str) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    report = check({**CHART, path: DOOR, "apps/helmfile.yaml": "releases: [{name: r, chart: ../chart}]\n"}, "apps")
    assert judged(report) == ["chart/templates/pod.yaml lab release r of apps/helmfile.yaml"]


@pytest.mark.parametrize(
    ("text", "count"), [("kind: [\n", 1), ("kind: Pod\n", 0), ("resources: [a.yaml]\n", 0), ("", 0)]
)
def test_a_file_below_crds_that_cannot_be_read_is_a_problem(
    check: Check, program: Program, text: str, count: int
) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    files = {**CHART, "chart/crds/door.yaml": text, "apps/helmfile.yaml": "releases: [{name: r, chart: ../chart}]\n"}
    problems = check(files, "apps").problems
    assert len(problems) == count
    assert all("chart/crds/door.yaml:" in each.message for each in problems)


def test_of_a_definition_below_crds_only_the_kind_is_read(check: Check, program: Program) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    check({**CHART, "chart/crds/a.yaml": f"{DEFINITION}spec: {{names: {{kind: A}}}}\n"})
    here = tree.Tree(str(Path.cwd()))
    for places, read in ((True, {"apiVersion", "kind"}), (False, {"apiVersion", "kind", "metadata", "spec"})):
        one = charts.Release("chart", "chart", places=places)
        made = charts.template(here, one, charts.Archives(), version="", cached=False)
        (item,) = [each for each in charts.items(here, made, one)[0] if isinstance(each, charts.Verbatim)]
        assert item.value.keys() == read, "kustomize may change it"


DEFINITION = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.example.com}\n"


def test_an_object_of_flux_below_crds_outside_of_the_paths_is_noted(check: Check, program: Program) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    one = {"chart/crds/one.yaml": deploying_by("flux", "prune", True)}
    report = check({**CHART, **one, "apps/helmfile.yaml": "releases: [{name: r, chart: ../chart}]\n"}, "apps")
    assert report.unfollowed == 1


def test_no_value_of_a_release_stands_for_a_file_of_another_chart(check: Check, program: Program) -> None:
    """What helm made of one is not taken for what it makes of the other."""
    program(f"[ ! -e values-0.yaml ] || printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    own = {name.removeprefix("chart/"): text for name, text in CHART.items() if "ignore" not in name}
    files = {f"{folder}/{name}": text for folder in ("app/c", "k/charts/c") for name, text in own.items()}
    files |= {"k/charts/c/A: true": "", "k/kustomization.yaml": "helmCharts: [{name: c, releaseName: r}]\n"}
    files |= {"app/a": "", "app/b": "chart/A: true"}
    files["app/helmfile.yaml"] = "releases: [{name: r, chart: ./c, values: [a, b]}]\n"
    assert "app/c/templates/pod.yaml lab release r of app/helmfile.yaml" in judged(check(files, options=Options()))


_PARTS = st.lists(st.sampled_from([b"", b"a", b"\0" * 8]), max_size=3)
_GROUPS = st.lists(_PARTS, max_size=3)


@given(_GROUPS, _GROUPS)
def test_only_the_same_parts_in_the_same_groups_have_the_same_key(
    one: list[list[bytes]], other: list[list[bytes]]
) -> None:
    assert (results_cache.key(*one) == results_cache.key(*other)) == (one == other)


def test_helm_gets_what_a_chart_leaves_out(check: Check, program: Program) -> None:
    program(f"[ -e chart/.helmignore ] && printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    assert judged(check(CHART)) == ["chart/templates/pod.yaml lab chart"]


@pytest.mark.parametrize("target", ["/etc/hostname", ".git/config", "../.secret"])
def test_what_a_chart_leaves_out_is_no_way_to_a_hidden_file(
    check: Check, program: Program, tmp_path: Path, target: str
) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    (tmp_path / "chart").mkdir()
    (tmp_path / ".git/config").write_text("secret")
    (tmp_path / ".secret").write_text("secret")
    (tmp_path / "chart/.helmignore").symlink_to(tmp_path / target if target[0] == "." and "/" in target else target)
    report = check({name: text for name, text in CHART.items() if "helmignore" not in name})
    assert not asked.exists()
    assert any("leads out of the repository" in note for note in report.notes)


@pytest.mark.parametrize(
    ("config", "urls", "name"),
    [
        ("", [], ""),
        ("", ["https://git.example/a/one", "https://git.example/b/two.git", "git@git.example:c/Two"], "two"),
        ("", ["", "", "https://git.example/a/one"], ""),
        ("", ["", "https://git.example/a/one", "https://git.example/a/one"], "one"),
        (
            '[remote "origin"]\n\turl = git@git.example:me/one.git\n',
            ["https://x/two", "https://x/two", "https://x/one"],
            "one",
        ),
        ('[remote "origin"]\n\tfetch = a\n\turl = https://x/renamed\n', ["https://x/two"], "two"),
        (
            '[remote "origin"]\n[remote "fork"]\n\turl = https://x/one\n',
            ["https://x/two", "https://x/two", "https://x/one"],
            "two",
        ),
    ],
)
def test_a_repository_is_known_by_its_origin_or_by_what_deploys_from_it(
    tmp_path: Path, config: str, urls: list[str], name: str
) -> None:
    (tmp_path / ".git").mkdir()
    if config:
        (tmp_path / ".git/config").write_text(config)
    assert addresses.known(str(tmp_path), urls) == name


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://git.example/a/own", "https://git.example/b/own", False),
        ("https://git.example/a/own", "ssh://git@git.example:22/a/own.git", True),
        ("https://git.example/a/own/", "git@other.example:A/own.git", False),
        ("https://git.example/a/own/", "git@git.example:A/own.git", True),
        ("https://user:x@git.example:8443/a/b/own", "https://git.example/b/own", False),
        ("https://dev.azure.com/a/p/_git/own", "git@ssh.dev.azure.com:v3/a/p/own", True),
        ("https://a@dev.azure.com/a/own/_git/own", "https://a.visualstudio.com/DefaultCollection/_git/own", True),
        ("https://dev.azure.com/a/p/_git/own", "https://b.visualstudio.com/p/_git/own", False),
        ("https://git.example/scm/a/own.git", "ssh://git@git.example:7999/a/own.git", True),
        ("https://github.com/scm/a/own.git", "https://github.com/a/own.git", False),
        ("https://github.com/a/own", "ssh://git@ssh.github.com:443/a/own.git", True),
        ("https://git.example/a/own", "https://proxy.example/https://git.example/a/own", False),
        ("https://git.example/a/own", "https://mirror.example/x@git.example/a/own", False),
        ("https://git.example/a/own", "https://git.example/42/a/own", False),
        ("https://git.example/a/own", "git.example/a/own", True),
    ],
)
def test_a_repository_of_another_owner_or_host_has_another_place(one: str, other: str, same: bool) -> None:
    assert (addresses.place_of(one) == addresses.place_of(other)) == same


@pytest.mark.parametrize(
    ("url", "is_namesake"),
    [
        ("https://git.example/b/own", True),
        ("https://${token}@git.example/b/own", True),
        ("https://${token}@git.example/a/own", False),
        ("https://git.example/${owner}/own", False),
        ("https://git.example/a/own", False),
        ("https://other.example/a/own", True),
        ("https://${host}/a/own", False),
        ("https://${host}/b/own", True),
        ("https://other.example/${owner}/own", True),
    ],
)
def test_only_a_variable_in_a_part_of_an_address_hides_it(url: str, is_namesake: bool) -> None:
    assert addresses.is_namesake(url, "own", addresses.RepositoryPlace("git.example", "a/own")) == is_namesake


@pytest.mark.parametrize(("url", "noted"), [("https://git.example/a/own", 0), ("https://git.example/b/own", 1)])
@pytest.mark.parametrize("kind", ["values", "generator"])
def test_what_argo_cd_reads_next_to_a_folder_is_noted_if_another_owner_has_it(
    check: Check, program: Program, kind: str, url: str, noted: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    Path(".git/config").write_text('[remote "origin"]\n\turl = https://git.example/a/own\n')
    own, spec = "https://git.example/a/own", {"destination": {"namespace": "lab"}}
    if kind == "values":
        source = {"repoURL": own, "path": "web", "helm": {"valueFiles": ["$v/v.yaml"]}}
        sources = [source, {"repoURL": url, "ref": "v"}]
        one = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "spec": {**spec, "sources": sources}}
    else:
        generator = {"git": {"repoURL": url, "files": [{"path": "v.yaml"}]}}
        template = {"metadata": {"name": "x"}, "spec": {**spec, "source": {"repoURL": own, "path": "app"}}}
        one = {"apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet"}
        one["spec"] = {"generators": [generator], "template": template}
    one["metadata"] = {"name": "x"}
    files = {"v.yaml": "a: b\n", "x.yaml": json.dumps(one), "app/pod.yaml": POD, **WEB}
    report = check(files, options=Options(cached=False))
    assert report.unfollowed == noted
    assert any("https://git.example/b/own" in note for note in report.notes) == bool(noted)


@pytest.mark.parametrize("origin", ["https://git.example/a/own", "git@git.example:fork/own.git", ""])
def test_a_source_of_another_owner_is_noted(check: Check, program: Program, origin: str) -> None:
    """A fork has no address of its own."""
    program(f"printf '%s' '{POD}'", "helm")
    if origin:
        Path(".git/config").write_text(f'[remote "origin"]\n\turl = {origin}\n')
    sources = {"a.yaml": "name: own", "b.yaml": "name: own-again", "c.yaml": "name: other"}
    files = {name: FETCHED.replace("name: own", own).replace("MORE", "") for name, own in sources.items()}
    files = {name: text.replace("example/own", "example/a/own") for name, text in files.items()} | WEB
    for number, kind in enumerate(("flux", "release", "argo")):
        one = json.loads(deploying_by(kind, "interval" if kind != "argo" else "project", "1m"))
        reference = {"kind": "GitRepository", "name": "other"}
        if kind == "flux":
            one["spec"]["sourceRef"] = reference
        elif kind == "release":
            one["spec"]["chart"]["spec"]["sourceRef"] = reference
        else:
            one["spec"]["source"]["repoURL"] = "https://git.example/a/own"
        one["metadata"]["namespace"] = "lab"
        files[f"{number}.yaml"] = json.dumps(one)
    more = {"z.yaml": files["2.yaml"].replace("team", "same")}
    more["x.yaml"] = files["c.yaml"].replace("example/a/own", "example/${owner}/own")
    assert check({**files, **more}, options=Options(cached=False)).unfollowed == 0
    files["c.yaml"] = files["c.yaml"].replace("example/a/own", "example/b/own")
    files["2.yaml"] = files["2.yaml"].replace("example/a/own", "example/b/own")
    report = check({**files, "y.yaml": more["z.yaml"].replace("same", "equal")}, options=Options(cached=False))
    assert report.unfollowed == 3
    assert any("though its source is https://git.example/b/own" in note for note in report.notes)


IDLE = {
    "a/kustomization.yaml": "resources: [pod.yaml]\npatches:\n- target: {kind: Pod, name: made}\n  path: p.yaml\n"
    "- target: {kind: Deployment}\n  path: p.yaml\n",
    "a/p.yaml": "- {op: add, path: /metadata/labels, value: {a: b}}\n",
    "a/pod.yaml": POD,
}


def test_a_patch_that_selects_nothing_is_told_with_its_line(check: Check) -> None:
    assert "1 patch selects no object: a/kustomization.yaml:5" in check(IDLE).notes


@pytest.mark.parametrize("more", ["helmCharts: [{name: x}]\n", "vars: [{name: x}]\n"])
def test_a_patch_may_select_what_is_not_seen(check: Check, more: str) -> None:
    report = check({**IDLE, "a/kustomization.yaml": IDLE["a/kustomization.yaml"] + more})
    assert not [note for note in report.notes if "selects no object" in note]


def test_a_patch_with_an_empty_target_changes_every_object(check: Check) -> None:
    env = "{op: add, path: /spec/containers/0/env, value: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}"
    files = {
        "app/pod.yaml": POD,
        "app/kustomization.yaml": f"resources: [pod.yaml]\npatches: [{{target: {{}}, patch: '[{env}]'}}]\n",
    }
    assert [result.rule for result in check(files).judged[0].verdict.results] == ["visible-devices"]


@pytest.mark.parametrize(("key", "namespace"), [("patchesJson6902", "other"), ("patches", "vision")])
def test_operations_in_their_own_field_apply_after_the_namespace(check: Check, key: str, namespace: str) -> None:
    moved = "{target: {version: v1, kind: Pod}, patch: '[{op: replace, path: /metadata/namespace, value: other}]'}"
    text = f"resources: [pod.yaml]\nnamespace: vision\n{key}: [{moved}]\n"
    (one,) = check({"app/pod.yaml": POD, "app/kustomization.yaml": text}).judged
    assert one.namespace == namespace


DENIED = {"app/pod.yaml": POD.replace("image: i", "image: i, resources: {limits: {nvidia.com/gpu.shared: 2}}")}


@pytest.mark.parametrize(
    "operation",
    [
        *(f"{{op: remove, path: /{key}}}" for key in ("kind", "apiVersion", "metadata")),
        *(f"{{op: replace, path: /kind, value: {value}}}" for value in ("3", '""', "[]")),
    ],
)
def test_an_object_that_a_patch_leaves_without_its_kind_is_judged_as_it_was(check: Check, operation: str) -> None:
    patch = f"resources: [pod.yaml]\npatches: [{{target: {{}}, patch: '[{operation}]'}}]\n"
    report = check({**DENIED, "app/kustomization.yaml": patch})
    assert [each.verdict.allowed for each in report.judged] == [False]
    assert any("the patch does not fit: it leaves no apiVersion, kind or metadata" in each for each in report.notes)


@pytest.mark.parametrize("key", ["patches", "patchesStrategicMerge"])
@pytest.mark.parametrize(
    ("directive", "noted"), [("$patch: replace, ", True), ("$patch: merge, ", False), ("", False)], ids=str
)
def test_a_merge_patch_leaves_the_identity_of_an_object(check: Check, key: str, directive: str, noted: bool) -> None:
    """A patch may stand on one line, as JSON does."""
    spec = "{containers: [{name: c, image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]}"
    text = f"{{{directive}apiVersion: v1, kind: Pod, metadata: {{name: made, namespace: lab}}, spec: {spec}}}"
    entry = {"patches": f"{{patch: '{text}'}}", "patchesStrategicMerge": f"'{text}'"}[key]
    report = check({"app/pod.yaml": POD, "app/kustomization.yaml": f"resources: [pod.yaml]\n{key}: [{entry}]\n"})
    (one,) = report.judged
    assert (one.api_version, one.kind, one.namespace, one.name) == ("v1", "Pod", "lab", "made")
    assert [result.rule for result in one.verdict.results] == ["visible-devices"]
    notes = list(report.notes)
    assert any("app (parts of merge patches not followed)" in each for each in notes) is noted
    assert noted or not notes


PATCH_ON = "env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]"

SPEC_ON = f"{{containers: [{{name: c, {PATCH_ON}}}]}}"


@pytest.mark.parametrize("key", ["patches", "patchesStrategicMerge"])
@pytest.mark.parametrize(
    ("own", "named", "applied"),
    [
        ("", "default", True),
        ("default", "", True),
        ("default", "default", True),
        ("", "", True),
        ("lab", "lab", True),
        ("lab", "", False),
        ("lab", "default", False),
        ("", "lab", False),
    ],
)
def test_a_merge_patch_finds_its_object_by_the_namespace_that_counts(
    check: Check, key: str, own: str, named: str, applied: bool
) -> None:
    """No namespace counts as `default`. kustomize refuses a patch that finds no object."""

    def pod(namespace: str, rest: str) -> str:
        metadata = f"{{name: made{namespace and f', namespace: {namespace}'}}}"
        return f"{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {{containers: [{{name: c, {rest}}}]}}}}"

    entry = {"patches": "{path: p.yaml}", "patchesStrategicMerge": "p.yaml"}[key]
    files = {
        "app/pod.yaml": pod(own, "image: i"),
        "app/p.yaml": pod(named, PATCH_ON),
        "app/kustomization.yaml": f"resources: [pod.yaml]\n{key}: [{entry}]\n",
    }
    report = check(files)
    pods = [each for each in report.judged if each.file == "app/pod.yaml"]
    assert [each.verdict.allowed for each in pods] == [not applied]
    assert any("merge patches that fit no object not followed" in note for note in report.notes) is not applied
    assert report.unfollowed == (not applied)


@pytest.mark.parametrize("linked", [True, False])
def test_a_kustomization_behind_a_link_is_noted_without_kustomize(check: Check, linked: bool) -> None:
    Path("lab").mkdir()
    Path("lab/apps").symlink_to("../shared" if linked else "../gone")
    files = {"shared/kustomization.yaml": "resources: [../base/pod.yaml]\n", "base/pod.yaml": POD}
    files["lab/kustomization.yaml"] = f"resources: [{'apps' if linked else '../shared'}]\n"
    files["all/kustomization.yaml"] = "resources: [../shared]\n"
    report = check({**files, "lab/base/pod.yaml": POD.replace("made", "other")})
    assert any("lab (links to folders not followed)" in note for note in report.notes) == linked


def labelled(key: str, value: str) -> str:
    """Write a pod with a label, as it is written."""
    return POD.replace("name: made,", f"name: made, labels: {{{key}: {value}}},")


def annotated(key: str, value: str) -> str:
    """Write a pod with an annotation, as it is written."""
    return POD.replace("name: made,", f"name: made, annotations: {{{key}: {value}}},")


FIXED = "patch: '{spec: {hostNetwork: true}}'"
PODS = "apiVersion: v1\nkind: Pods\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: []}}]\n"
KEPT = "kustomize's own annotations not followed"


@pytest.mark.parametrize(
    ("pod", "patch", "note"),
    [
        (POD, f"target: {{name: 'm.{{3}}'}}, {FIXED}", ""),
        (POD, f"target: {{name: 'm.{{,9}}'}}, {FIXED}", "targets of patches not followed"),
        (POD, f"target: {{name: 'm[a--d]de'}}, {FIXED}", "targets of patches not followed"),
        (labelled("a", "'yes'"), f"target: {{labelSelector: a=yes}}, {FIXED}", ""),
        (labelled("a", "yes"), f"target: {{labelSelector: a=yes}}, {FIXED}", "targets of patches not followed"),
        (labelled("on", "yes"), f"target: {{labelSelector: on=yes}}, {FIXED}", "targets of patches not followed"),
        (labelled("on", "'yes'"), f"target: {{labelSelector: on=yes}}, {FIXED}", "targets of patches not followed"),
        (labelled("'on'", "'yes'"), f"target: {{labelSelector: on=yes}}, {FIXED}", ""),
        (labelled("a", "yes"), f"target: {{annotationSelector: a=yes}}, {FIXED}", ""),
        (PODS, f"target: {{kind: Pod}}, {FIXED}", "objects with items not followed"),
        (PODS.replace("Pods", "PodList"), f"target: {{kind: Pod}}, {FIXED}", ""),
        (POD, "target: {kind: Pod}, patch: '{items: []}'", "objects with items not followed"),
        (POD, "target: {kind: Pod}, patch: text", "it is no map and no list"),
        (annotated("internal.config.kubernetes.io/previousNames", "b"), f"target: {{name: b}}, {FIXED}", KEPT),
        (annotated("config.kubernetes.io/index", "b"), f"target: {{kind: Pod}}, {FIXED}", ""),
    ],
)
def test_what_kustomize_reads_otherwise_is_noted_without_it(check: Check, pod: str, patch: str, note: str) -> None:
    files = {"app/pod.yaml": pod, "app/kustomization.yaml": f"resources: [pod.yaml]\npatches: [{{{patch}}}]\n"}
    report = check(files)
    assert bool(report.unfollowed) == bool(note), [*report.notes]
    assert note in "\n".join(report.notes)


LAYERS = {
    "a/pod.yaml": POD,
    "a/kustomization.yaml": "resources: [pod.yaml]\nnamePrefix: a-\n",
    "b/kustomization.yaml": "resources: [../a]\nnamePrefix: b-\nnamespace: vision\n",
}


@pytest.mark.parametrize(("name", "applied"), [("made", True), ("a-made", False), ("b-a-made", True)])
def test_a_target_knows_the_first_name_and_the_last_one(check: Check, name: str, applied: bool) -> None:
    env = "[{op: add, path: /spec/containers/0/env, value: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]}]"
    text = f"resources: [../b]\npatches: [{{target: {{name: {name}}}, patch: '{env}'}}]\n"
    report = check({**LAYERS, "c/kustomization.yaml": text})
    assert [each.verdict.allowed for each in report.judged if each.root == "c"] == [not applied]


@pytest.mark.parametrize("name", ["made", "a-made", "b-a-made"])
@pytest.mark.parametrize("namespace", ["lab", "vision"])
def test_a_merge_patch_knows_each_name_with_the_namespace_of_its_time(check: Check, name: str, namespace: str) -> None:
    """kustomize sets the namespace before the name."""
    applied = (name, namespace) not in {("made", "vision"), ("b-a-made", "lab")}
    metadata = f"{{name: {name}, namespace: {namespace}}}"
    patch = f"{{apiVersion: v1, kind: Pod, metadata: {metadata}, spec: {SPEC_ON}}}"
    report = check({**LAYERS, "c/kustomization.yaml": f"resources: [../b]\npatches: [{{patch: '{patch}'}}]\n"})
    assert [each.verdict.allowed for each in report.judged if each.root == "c"] == [not applied]
    assert any("merge patches that fit no object not followed" in note for note in report.notes) is not applied


@pytest.mark.parametrize(
    "files",
    [
        {"a/kustomization.yaml": "resources: [https://example.com/x.yaml]\npatches: [{path: p.yaml}]\n"},
        {"a/kustomization.yaml": "helmCharts: [{name: x}]\npatches: [{path: p.yaml}]\n"},
        {"a/kustomization.yaml": "patches: [{path: p.yaml}]\n"},
        {
            "a/kustomization.yaml": "kind: Component\nresources: [c.yaml]\npatches: [{path: p.yaml}]\n",
            "a/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
        },
        {
            "a/kustomization.yaml": "resources: [c.yaml]\nsecretGenerator: [{name: s}]\npatches: [{path: p.yaml}]\n",
            "a/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
            "a/p.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nimmutable: true\n",
        },
    ],
)
def test_a_merge_patch_may_fit_an_object_that_is_not_seen(check: Check, files: dict[str, str]) -> None:
    report = check({"a/p.yaml": POD, **files})
    assert not any("merge patches that fit no object" in note for note in report.notes)


LISTED = f"{{apiVersion: v1, kind: Pod, metadata: {{name: made, namespace: lab}}, spec: {SPEC_ON}}}"


@pytest.mark.parametrize("key", ["patches", "inline", "patchesStrategicMerge"])
@pytest.mark.parametrize(
    ("patch", "applied"),
    [
        ("{apiVersion: v1, kind: List, items: [POD]}", True),
        ("{apiVersion: v1, kind: PodList, items: [POD]}", True),
        ("{kind: ResourceList, items: [POD]}", True),
        ("{kind: List, items: [{kind: List, items: [POD]}]}", True),
        ("{kind: List, items: []}\n---\nPOD", True),
        ("{apiVersion: v1, kind: Pods, metadata: {name: made, namespace: lab}, items: [POD]}", False),
    ],
)
def test_a_list_of_merge_patches_is_opened(check: Check, key: str, patch: str, applied: bool) -> None:
    text = patch.replace("POD", LISTED) + "\n"
    entry = {"patches": "{path: p.yaml}", "inline": f"{{patch: {json.dumps(text)}}}"}.get(key, "p.yaml")
    field = "patches" if key == "inline" else key
    files = {"app/kustomization.yaml": f"resources: [pod.yaml]\n{field}: [{entry}]\n", "app/pod.yaml": POD}
    report = check({**files, "app/p.yaml": text})
    assert [each.verdict.allowed for each in report.judged if each.file == "app/pod.yaml"] == [not applied]
    assert any("merge patches that fit no object not followed" in note for note in report.notes) is not applied


def test_a_list_of_one_merge_patch_may_have_a_target(check: Check) -> None:
    text = f"kind: List\nitems:\n- {LISTED}\n"
    fields = "resources: [pod.yaml]\npatches: [{path: p.yaml, target: {kind: Pod}}]\n"
    (one,) = check({"app/pod.yaml": POD, "app/kustomization.yaml": fields, "app/p.yaml": text}).judged
    assert [result.rule for result in one.verdict.results] == ["visible-devices"]


AGENT = {
    "app/sa.yaml": """\
apiVersion: v1
kind: ServiceAccount
metadata: {name: cloudwatch-agent, namespace: amazon-cloudwatch}
""",
    "app/pod.yaml": """\
apiVersion: v1
kind: Pod
metadata: {name: made, namespace: amazon-cloudwatch}
spec:
  serviceAccountName: cloudwatch-agent
  tolerations: [{operator: Exists}]
  containers: [{name: c, image: i, securityContext: {privileged: true}}]
""",
}


@pytest.mark.parametrize(
    ("fields", "exempt"),
    [
        ("resources: [pod.yaml, sa.yaml]\nnameSuffix: -v2\n", False),
        ("resources: [pod.yaml, sa.yaml]\nnamePrefix: my-\n", False),
        ("resources: [pod.yaml, sa.yaml]\n", True),
        ("resources: [pod.yaml]\nnameSuffix: -v2\n", True),
    ],
)
def test_a_pod_is_exempt_by_the_name_that_its_account_gets(check: Check, fields: str, exempt: bool) -> None:
    report = check({**AGENT, "app/kustomization.yaml": fields})
    (one,) = (each for each in report.judged if each.kind == "Pod")
    assert one.verdict.allowed is exempt
    assert not report.unfollowed


ACCOUNT = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa}\n"
USER = "{apiVersion: v1, kind: Pod, metadata: {name: pod}, spec: {serviceAccountName: sa, containers: []}}"
BOUND = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: role}
subjects: [{kind: ServiceAccount, name: sa}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role}
"""


@pytest.mark.parametrize(
    ("top", "accounts", "noted"),
    [
        ("resources: [a, b]", {"a-pod": "a-sa", "b-pod": "b-sa"}, False),
        ("resources: [a, b]\nnamePrefix: x-", {"x-a-pod": "x-a-sa", "x-b-pod": "x-b-sa"}, False),
        ("resources: [a, pod.yaml]", {"a-pod": "a-sa", "pod": "a-sa"}, False),
        ("resources: [a, b, pod.yaml]", {"a-pod": "a-sa", "b-pod": "b-sa", "pod": "sa"}, False),
        ("resources: [base]\nnamespace: lab", {"pod": "sa"}, False),
    ],
)
def test_a_pod_refers_to_the_account_of_its_own_kustomization(
    write: Write, top: str, accounts: dict[str, str], noted: bool
) -> None:
    tree = write(
        {
            "kustomization.yaml": top,
            "pod.yaml": USER,
            "base/kustomization.yaml": "resources: [pod.yaml, sa.yaml, bound.yaml]",
            "base/pod.yaml": USER,
            "base/sa.yaml": ACCOUNT,
            "base/bound.yaml": BOUND,
            "a/kustomization.yaml": "resources: [../base]\nnamePrefix: a-\n",
            "b/kustomization.yaml": "resources: [../base]\nnamePrefix: b-\n",
        }
    )
    found = following.follow(tree, ".")
    pods = {name_of(each.value)[0]: each.value["spec"] for each in found.objects if each.value["kind"] == "Pod"}
    assert {name: spec["serviceAccountName"] for name, spec in pods.items()} == accounts
    assert bool(found.unfollowed) is noted
    for each in found.objects:
        if each.value["kind"] == "RoleBinding":
            prefix = name_of(each.value)[0].removesuffix("binding")
            assert each.value["subjects"][0]["name"] == f"{prefix}sa"
            assert each.value["roleRef"]["name"] == f"{prefix}role"


@pytest.mark.parametrize(("encoding", "field"), [("utf-8", "data"), ("utf-16", "binaryData")])
def test_a_generator_writes_a_file_in_any_encoding(check: Check, encoding: str, field: str) -> None:
    Path("any.conf").write_bytes(
        "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1000}]}}\n".encode(encoding)
    )
    fields = "namespace: gpu-operator\nconfigMapGenerator: [{name: nvidia-plugin-configs, files: [any=any.conf]}]\n"
    (one,) = check({"kustomization.yaml": fields}).judged
    denied = [each for each in one.verdict.results if each.rule == "unsafe-sharing-config"]
    assert not one.verdict.allowed
    assert {each.finding.path[:2] for each in denied} == {(field, "any")}


def test_patches_of_many_objects_end(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_LOOKS", 1)
    assert [str(each) for each in check(IDLE).problems] == ["a: not rendered: its patches look at more than 1 objects"]


@pytest.mark.parametrize("fields", ["resources: [../base]\n", "resources: [c.yaml]\ngenerators: [../base]\n"])
def test_many_roots_of_the_same_base_end(check: Check, monkeypatch: pytest.MonkeyPatch, fields: str) -> None:
    monkeypatch.setattr(following, "MAX_ALL_OBJECTS", 50)
    base = {f"base/{each}.yaml": POD.replace("made", f"made-{each}") for each in range(9)}
    names = ", ".join(f"{each}.yaml" for each in range(9))
    roots = {f"r{each}/kustomization.yaml": fields for each in range(9)}
    more = {f"r{each}/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n" for each in range(9)}
    report = check({"base/kustomization.yaml": f"resources: [{names}]\n", **base, **roots, **more})
    told = {each.message for each in report.problems}
    assert told == {"not rendered: the kustomizations include more than 50 objects; name fewer of them"}


def test_many_files_that_are_nowhere_are_one_note(check: Check) -> None:
    names = "".join(f"- {number}.yaml\n" for number in range(30))
    report = check({"a/kustomization.yaml": f"resources:\n- pod.yaml\n{names}", "a/pod.yaml": POD})
    (note,) = [note for note in report.notes if "not there" in note]
    assert note == (
        "30 files that kustomizations name are not there; the rest is judged: a/0.yaml (a/kustomization.yaml), "
        "a/1.yaml (a/kustomization.yaml), a/2.yaml (a/kustomization.yaml) and 27 more"
    )


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ("resources: [pod.yaml, gone.yaml, ../gone]", '"resources": ["pod.yaml"]'),
        ("resources: [pod.yaml]\nbases: [../gone]", '"bases": []'),
        ("resources: [pod.yaml]\nsecretGenerator: [{name: s, envs: [gone.env, pod.yaml]}]", '"envs": ["pod.yaml"]'),
        ("resources: [pod.yaml]\nsecretGenerator: [{name: s, files: [gone, k=gone, a=pod.yaml]}]", '["a=pod.yaml"]'),
        ("resources: [pod.yaml]\nconfigMapGenerator: [{name: s, env: gone.env, literals: [a=b]}]", '["a=b"]'),
        ("resources: [pod.yaml]\nconfigMapGenerator: [{name: s, files: [k=gone], envs: [gone]}]", '"name": "s"'),
    ],
)
def test_a_program_builds_the_rest_if_a_file_is_not_there(
    check: Check, program: Program, fields: str, left: str
) -> None:
    made = POD.replace("name: made", "name: other")
    program(f"read -r own <$2/kustomization.yaml; case $own in *gone*) ;; *'{left}'*) printf '%s' '{made}';; esac")
    report = check({"a/pod.yaml": POD, "a/kustomization.yaml": f"{fields}\n"})
    assert [one.name for one in report.judged if one.root] == ["other"]
    assert sum("not there; the rest is judged: " in note for note in report.notes) == 1
    assert report.unfollowed == 0


@pytest.mark.parametrize("fields", ["patches: [{path: gone.yaml}]", "secretGenerator: [{name: s, envs: [gone.env]}]"])
def test_a_program_that_fails_where_a_file_is_not_there_is_noted(check: Check, program: Program, fields: str) -> None:
    program("echo 'Error: no matches for Id' >&2; exit 1")
    report = check({"a/pod.yaml": POD, "a/kustomization.yaml": f"resources: [pod.yaml]\n{fields}\n"})
    assert "root a: no matches for Id; the rest of it is judged" in report.notes
    assert report.unfollowed == 1


@pytest.mark.parametrize(
    ("fields", "unfollowed"),
    [
        ("resources: [pod.yaml]\nsecretGenerator: [{name: s, envs: ['https://example.com/env']}]", 1),
        ("resources: [pod.yaml]\npatches: [{path: 'https://example.com/p.yaml'}]", 1),
        ("resources: [pod.yaml, 'https://example.com/p.yaml']", 0),
    ],
)
def test_an_address_that_keeps_the_program_from_running_is_noted(
    check: Check, program: Program, fields: str, unfollowed: int
) -> None:
    asked = program(f"printf '%s' '{POD}'")
    report = check({"a/pod.yaml": POD, "a/kustomization.yaml": f"{fields}\n"})
    assert report.unfollowed == unfollowed
    assert asked.exists() != bool(unfollowed)
    why = "a (followed by the files, because of an address: https://example.com/"
    assert any(why in note for note in report.notes) == bool(unfollowed)


def originating(name: str, path: str, kind: str = "Pod") -> str:
    origin = f"annotations: {{config.kubernetes.io/origin: 'path: {path}'}}"
    made = POD.replace("namespace: lab", f"namespace: lab, {origin}").replace("kind: Pod", f"kind: {kind}")
    return made.replace("name: made", f"name: {name}")


MARKS_LOCAL = "annotations: {config.kubernetes.io/local-config: x}"


@pytest.mark.parametrize(
    ("transformer", "made", "by_themselves"),
    [
        (MARKS_LOCAL, [], True),
        (MARKS_LOCAL, [originating("one", "one.yaml")], True),
        (MARKS_LOCAL, [originating("one", "two.yaml"), originating("map", "one.yaml", "ConfigMap")], True),
        (MARKS_LOCAL, [originating("one", "one.yaml"), originating("two", "two.yaml")], False),
        (MARKS_LOCAL, [originating("x-one", "one.yaml"), originating("x-two", "two.yaml")], False),
        ("$patch: delete", [], False),
        ("$patch: delete", [originating("one", "one.yaml")], False),
    ],
)
def test_a_file_is_judged_by_itself_if_a_transformer_may_mark_its_object_as_a_local_one(
    check: Check, program: Program, transformer: str, made: list[str], by_themselves: bool
) -> None:
    """A transformer may also write the origin of one object to another of its kind: all of these are judged."""
    output = "---\n".join(made)
    program(f"printf '%s' {shlex.quote(output)}")
    root = {"a/kustomization.yaml": "resources: [one.yaml, two.yaml]\ntransformers: [t.yaml]\n"}
    pods = {f"a/{name}.yaml": POD.replace("name: made", f"name: {name}") for name in ("one", "two")}
    report = check({**root, **pods, "a/t.yaml": f"{transformer}\n"})
    assert {one.file for one in report.judged if not one.root} == ({*pods} if by_themselves else set())


def test_a_chart_that_is_not_here_is_no_fault_of_its_kustomization(check: Check, program: Program) -> None:
    program("echo 'Error: no matches for Id' >&2; exit 1")
    report = check(
        {**IDLE, "a/kustomization.yaml": "resources: [pod.yaml]\nhelmCharts: [{name: x, repo: 'https://x'}]\n"}
    )
    assert report.problems == ()
    assert "root a: no matches for Id; the rest of it is judged" in report.notes


FLUX = """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: NAME, namespace: flux-system}
spec: {path: ./PATH, targetNamespace: WHERE, sourceRef: {kind: GitRepository, name: flux-system}}
"""


def flux(name: str, path: str, where: str) -> str:
    return FLUX.replace("NAME", name).replace("PATH", path).replace("WHERE", where)


def test_no_kustomization_of_another_folder_hides_what_flux_deploys(check: Check) -> None:
    patch = "[{target: {kind: Kustomization}, patch: '[{op: replace, path: /spec/targetNamespace, value: NEW}]'}]"
    files = {"deploy/ks.yaml": flux("app", "app", "one"), "app/pod.yaml": DOOR.replace(", namespace: lab", "")}
    other = {"evil/kustomization.yaml": f"resources: [../deploy/ks.yaml]\npatches: {patch.replace('NEW', 'two')}\n"}
    own = {"deploy/kustomization.yaml": f"resources: [ks.yaml]\npatches: {patch.replace('NEW', 'three')}\n"}
    assert {one.namespace for one in check({**files, **other}).judged} == {"one", "two"}
    assert {one.namespace for one in check({**files, **other, **own}).judged} == {"two", "three"}


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("../app", "app"),
        ("../../x/../app", "app"),
        ("../REPOSITORY/app", "REPOSITORY/app"),
        ("app/../../REPOSITORY/app", "REPOSITORY/app"),
        ("link/../app", "app"),
        ("app/..", "."),
    ],
)
def test_no_path_of_flux_leads_out_of_its_source(check: Check, tmp_path: Path, path: str, folder: str) -> None:
    """The folder of the repository has a name here, and another one or none where Flux unpacks it."""
    own = tmp_path.name
    (tmp_path / "link").symlink_to(f"{own}/app")
    pods = {"app/pod.yaml": POD, f"{own}/app/pod.yaml": POD.replace("made", "inner"), "pod.yaml": POD}
    made = {name.replace("pod.yaml", "kustomization.yaml"): "resources: [pod.yaml]\n" for name in pods}
    report = check({**pods, **made, "clusters/ks.yaml": flux("team", path.replace("REPOSITORY", own), "one")})
    where = os.path.normpath(f"{folder.replace('REPOSITORY', own)}/pod.yaml")
    assert [one.file for one in report.judged if one.root.startswith("Kustomization")] == [where]
    assert report.unfollowed == 0


@given(st.lists(st.sampled_from(["..", ".", "", "a", "a..", "...", "b"]), max_size=8).map("/".join))
def test_a_path_that_flux_joins_is_below_the_root(path: str) -> None:
    joined = deploying.flux_joined("root", path)
    assert joined == "root" or joined.startswith("root/")
    if ".." not in path.split("/"):
        assert joined == os.path.normpath(f"root/{path}")


@pytest.mark.parametrize("chart", ["../REPOSITORY/web", "/REPOSITORY/web", "web/../../REPOSITORY/web"])
def test_no_chart_of_flux_is_outside_its_source(check: Check, program: Program, tmp_path: Path, chart: str) -> None:
    program(f"printf '%s' '---\n# Source: web/templates/pod.yaml\n{POD}'", "helm")
    own = tmp_path.name
    inner = {f"{own}/{name}": text for name, text in {**WEB, "web/templates/pod.yaml": POD}.items()}
    one = deploying_by("release", "chart.spec.chart", chart.replace("REPOSITORY", own))
    report = check({**WEB, "web/templates/pod.yaml": POD, **inner, "deploy/one.yaml": one})
    made = {one.file for one in report.judged if one.root == "HelmRelease team"}
    assert made == {f"{own}/web/templates/pod.yaml"}


@pytest.mark.parametrize("path", ["/app", "../REPOSITORY/app", "../app", "app/../../REPOSITORY/app"])
def test_a_path_that_argo_cd_refuses_hides_nothing(check: Check, tmp_path: Path, path: str) -> None:
    undo = {"patches": [{"target": {"kind": "Pod"}, "patch": "[{op: remove, path: /spec/containers/0/env}]"}]}
    one = json.loads(deploying_by("argo", "source.kustomize", undo))
    one["spec"]["source"]["path"] = path.replace("REPOSITORY", tmp_path.name)
    app = {"app/kustomization.yaml": "resources: [pod.yaml]\n", "app/pod.yaml": DOOR}
    report = check({**app, "deploy/one.yaml": json.dumps(one)})
    assert [(each.root, each.verdict.allowed) for each in report.judged] == [("app", False)]
    assert any("Argo CD refuses its path" in note for note in report.notes)
    one["spec"]["source"]["path"] = "deploy/../app"
    report = check({**app, "deploy/one.yaml": json.dumps(one)})
    assert [(each.root, each.verdict.allowed) for each in report.judged] == [("Application team", True)]


@pytest.mark.parametrize(
    ("name", "noted"),
    [
        ("../values.yaml", 0),
        ("/values.yaml", 0),
        ("../../REPOSITORY/values.yaml", 1),
        ("/../REPOSITORY/values.yaml", 1),
    ],
)
def test_values_files_that_argo_cd_refuses_are_noted(
    check: Check, program: Program, tmp_path: Path, name: str, noted: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one = deploying_by("argo", "source.helm.valueFiles", [name.replace("REPOSITORY", tmp_path.name)])
    assert check({**WEB, "values.yaml": "a: 1\n", "one.yaml": one}).unfollowed == noted


def test_transformers_of_a_folder_apply_after_the_namespace_of_flux(check: Check) -> None:
    """Flux writes its namespace into the folder's kustomization, and transformers come last there."""
    turned = """\
apiVersion: builtin
kind: NamespaceTransformer
metadata: {name: turned, namespace: lab}
fieldSpecs: [{path: metadata/namespace, create: true}]
"""
    files = {
        "deploy/ks.yaml": flux("app", "app", "one"),
        "app/pod.yaml": DOOR.replace(", namespace: lab", ""),
        "app/kustomization.yaml": "resources: [pod.yaml]\ntransformers: [turned.yaml]\n",
        "app/turned.yaml": turned,
    }
    report = check(files)
    assert any("its changes apply before others" in note for note in report.notes)
    own = {"app/kustomization.yaml": "resources: [pod.yaml]\n"}
    assert {one.namespace for one in check({**files, **own}).judged} == {"one"}


SPECS = {
    "flux": (
        "kustomize.toolkit.fluxcd.io/v1",
        "Kustomization",
        {"path": "./app", "sourceRef": {"kind": "GitRepository"}},
    ),
    "release": (
        "helm.toolkit.fluxcd.io/v2",
        "HelmRelease",
        {"chart": {"spec": {"chart": "web", "sourceRef": {"kind": "GitRepository", "name": "own"}}}},
    ),
    "argo": ("argoproj.io/v1alpha1", "Application", {"source": {"path": "web", "repoURL": "https://git.example/own"}}),
    "set": (
        "argoproj.io/v1alpha1",
        "ApplicationSet",
        {
            "generators": [{"list": {"elements": [{"who": "one"}]}}],
            "template": {"metadata": {"name": "{{who}}"}, "spec": {"source": {"path": "web"}}},
        },
    ),
}
"""Objects that deploy a folder `app` or a chart `web` of the repository, by their versions, kinds and specs."""


def deploying_by(kind: str, path: str, value: Any) -> str:
    """Write an object with a field at a path of its spec, whose numbers are places in lists."""
    version, name, spec = SPECS[kind]
    value_of: Any = copy.deepcopy(spec)
    at: Any = value_of
    *parents, last = path.split(".")
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, {})
    at[last] = value
    return json.dumps({"apiVersion": version, "kind": name, "metadata": {"name": "team"}, "spec": value_of})


def in_folders(*folders: str) -> dict[str, str]:
    """Write charts named web."""
    return {f"{folder}/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n" for folder in folders}


REGISTRY = "repositories: [{name: c, url: r.example/acme, oci: true}]\n"

WEB = {
    "web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n",
    "app/pod.yaml": POD,
    "web/values.yaml": "a: 1\n",
}


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("flux", "commonMetadata.annotations", {"a": "b"}),
        ("flux", "newField", True),
        ("release", "postRenderers", [{"kustomize": {"patches": []}}]),
        ("release", "commonMetadata.labels", {"a": "b"}),
        ("release", "upgrade.preserveValues", True),
        ("release", "chart.spec.valuesFile", "bad.yaml"),
        ("argo", "sourceHydrator.drySource.path", "web"),
        ("argo", "syncPolicy.managedNamespaceMetadata.labels", {"a": "b"}),
        ("argo", "source.plugin.name", "x"),
        ("argo", "source.plugin", {}),
        ("argo", "source.helm.fileParameters", [{"name": "priv", "path": "flag.txt"}]),
        ("argo", "source.helm.kubeVersion", "1.99.0"),
        ("argo", "source.helm.apiVersions", ["evil/v1"]),
        ("argo", "source.helm.namespace", "evil"),
        ("argo", "source.kustomize.commonAnnotations", {"a": "b"}),
        ("argo", "source.directory.jsonnet", {"tlas": [{"name": "a"}]}),
        ("set", "templatePatch", "spec: {}"),
        ("set", "generators.0.list.elementsYaml", "[{who: two}]"),
        ("set", "generators.0.list.template", {"spec": {"project": "x"}}),
        ("set", "generators.0.merge.mergeKeys", ["who"]),
        ("set", "template.spec.source.helm.fileParameters", [{"name": "priv", "path": "flag.txt"}]),
    ],
)
def test_no_field_by_which_something_else_is_deployed_is_ignored(
    check: Check, kind: str, path: str, value: Any
) -> None:
    report = check({**WEB, "deploy/one.yaml": deploying_by(kind, path, value)})
    (named,) = [found[1] for note in report.notes if (found := re.search(r"team \((\S+) not followed\)", note))]
    assert path.replace("generators.0.", "generators.").startswith(named)
    assert report.unfollowed == 1
    assert cli.main(["check", ".", "--fail-on", "unjudged"]) == 1
    assert cli.main(["check", "."]) == 0


@pytest.mark.parametrize(
    "version",
    [
        "!!binary YXJnb3Byb2ouaW8vdjFhbHBoYTE=",
        "!!bin%61ry YXJnb3Byb2ouaW8vdjFhbHBoYTE=",
        "!<tag:yaml.org,2002:binary> YXJnb3Byb2ouaW8vdjFhbHBoYTE=",
        '&a "argoproj.io/\\\n    v1alpha1"',
        '!!str "argo\\\r\n    proj.io/v1alpha1"',
        '"argoproj.io\\x2fv1alpha1"',
        '&a "argoproj.io\\/v1alpha1"',
    ],
)
def test_an_object_that_deploys_is_found_in_each_spelling(check: Check, version: str) -> None:
    one = json.loads(deploying_by("argo", "source.plugin.name", "x"))
    text = f"apiVersion: {version}\nkind: Application\nmetadata: {{name: team}}\nspec: {json.dumps(one['spec'])}\n"
    assert check({"web/pod.yaml": POD, "one.yaml": text}).unfollowed == 1


BUILT = {"web/kustomization.yaml": "namePrefix: built-\nresources: [pod.yaml]\n"}
JSONNET = {"web/x.jsonnet": "{}"}


@pytest.mark.parametrize(
    ("files", "source", "name", "noted"),
    [
        (BUILT, {}, "built-made", ""),
        (BUILT, {"directory": {"recurse": True}}, "made", ""),
        (BUILT, {"directory": {"recurse": True}, "kustomize": {"labelWithoutSelector": True}}, "made", ""),
        (BUILT, {"directory": {"recurse": True}, "kustomize": {"nameSuffix": "-x"}}, "built-made-x", ""),
        ({}, {"kustomize": {"forceCommonLabels": True}}, "made", ""),
        ({**BUILT, **JSONNET}, {}, "built-made", ""),
        ({**BUILT, **JSONNET}, {"directory": {"recurse": True}}, "made", "web/x.jsonnet not followed"),
        (JSONNET, {}, "made", "web/x.jsonnet not followed"),
        (
            {"web/a/.x.yaml": POD, "web/a/kustomization.yaml": ""},
            {"directory": {"recurse": True}},
            "made",
            "hidden file",
        ),
        ({"web/.argocd-source.yaml": ""}, {}, "made", "source.yaml not followed"),
        ({"web/.argocd-source-team.yaml": ""}, {}, "made", "source-team.yaml not followed"),
        ({"web/.argocd-source-lab_team.yaml": ""}, {}, "made", "source-lab_team.yaml not followed"),
        ({"web/.argocd-source-other.yaml": ""}, {}, "made", ""),
        ({"web/.argocd-source-lab_other.yaml": ""}, {}, "made", ""),
        ({}, {"repoURL": "oci://registry.example/own"}, "made", "its source is an OCI image"),
    ],
)
def test_argo_cd_applies_a_folder_by_the_options_that_count(
    check: Check, files: dict[str, str], source: Mapping[str, Any], name: str, noted: str
) -> None:
    own = {"path": "web", "repoURL": "https://git.example/own", **source}
    report = check({"web/pod.yaml": POD, "one.yaml": deploying_by("argo", "source", own), **files})
    assert [one.name for one in report.judged if one.root == "Application team"] == [name]
    assert [note for note in report.notes if "team (" in note and (not noted or noted not in note)] == []
    assert report.unfollowed == bool(noted)


@pytest.mark.parametrize(
    ("options", "applied", "noted"),
    [
        ({}, {"a.yaml", "b.yaml"}, 0),
        ({"recurse": True}, {"a.yaml", "b.yaml", "c/d.yaml"}, 0),
        ({"include": "a.yaml"}, {"a.yaml"}, 0),
        ({"exclude": "a*"}, {"b.yaml"}, 0),
        ({"recurse": True, "include": "{a,c/*}.yaml"}, {"a.yaml", "c/d.yaml"}, 0),
        ({"recurse": True, "include": "*.yaml", "exclude": "{b.yaml,*d*}"}, {"a.yaml"}, 0),
        ({"recurse": True, "include": "**/?.yaml"}, {"c/d.yaml"}, 0),
        ({"include": "[ab].yaml"}, {"a.yaml", "b.yaml"}, 1),
        ({"include": "{a,{b}}.yaml"}, {"a.yaml", "b.yaml"}, 1),
        ({"exclude": "\\\\a.yaml"}, {"a.yaml", "b.yaml"}, 1),
        ({"exclude": "{a,b}" * 8}, {"a.yaml", "b.yaml"}, 1),
    ],
)
def test_a_file_that_argo_cd_leaves_out_is_judged_by_itself(
    check: Check, options: Mapping[str, Any], applied: set[str], noted: int
) -> None:
    pods = {f"web/{name}.yaml": POD.replace(", namespace: lab", "") for name in ("a", "b", "c/d")}
    one = json.loads(deploying_by("argo", "source.directory", options))
    one["spec"]["destination"] = {"namespace": "team"}
    report = check({**pods, "one.yaml": json.dumps(one)})
    assert {each.file.removeprefix("web/") for each in report.judged if each.root} == applied
    assert {each.file for each in report.judged if not each.root} == {
        name for name in pods if name.removeprefix("web/") not in applied
    }
    assert {each.namespace for each in report.judged if each.root} == {"team"}
    assert report.unfollowed == noted


@pytest.mark.parametrize(("sources", "namespace"), [([], "team"), ([{"path": "app"}], "default")])
def test_a_source_next_to_sources_deploys_nothing(check: Check, sources: list[Any], namespace: str) -> None:
    one = json.loads(deploying_by("argo", "destination.namespace", "team"))
    one["spec"]["sources"] = [{"repoURL": "https://git.example/own", **each} for each in sources]
    own = POD.replace(", namespace: lab", "")
    report = check({"web/pod.yaml": own, "app/pod.yaml": own, "one.yaml": json.dumps(one)})
    assert [each.namespace or "default" for each in report.judged if each.file == "web/pod.yaml"] == [namespace]


PATCHING = "kind: Component\npatches: [{{target: {{kind: Pod}}, patch: '{}'}}]\n"


@pytest.mark.parametrize(
    ("kind", "components", "ignored", "noted"),
    [
        ("argo", ["../gone"], True, False),
        ("argo", ["../gone", "../one"], True, False),
        ("argo", ["../one", "../two"], True, True),
        ("argo", ["../one", "../two"], False, False),
        ("argo", ["../gone"], False, True),
        ("flux", ["../gone", "../one", "../two"], True, False),
        ("flux", ["../gone"], False, True),
    ],
)
def test_components_that_are_missing_are_left_out_if_they_are_ignored(
    check: Check, kind: str, components: list[str], ignored: bool, noted: bool
) -> None:
    folder, path = ("web", "source.kustomize") if kind == "argo" else ("app", "")
    spec = json.loads(deploying_by(kind, f"{path}.components".lstrip("."), components))
    at = spec["spec"]["source"]["kustomize"] if kind == "argo" else spec["spec"]
    at["ignoreMissingComponents"] = ignored
    files = {f"{name}/kustomization.yaml": PATCHING.format(ASIDE) for name in ("one", "two")}
    own = {f"{folder}/pod.yaml": POD, f"{folder}/kustomization.yaml": "resources: [pod.yaml]\n"}
    assert (check({**files, **own, "one.yaml": json.dumps(spec)}).unfollowed > 0) == noted


def test_a_patch_of_an_application_may_be_a_file_of_its_folder(check: Check, program: Program) -> None:
    file = "kustomization-of-another-object/kustomization.yaml"
    asked = program(f"read -r line <{file}; printf '%s\\n' \"$line\" >>${{0%/*}}/asked; printf '%s' '{POD}'")
    one = deploying_by("argo", "source.kustomize.patches", [{"target": {"kind": "Pod"}, "path": "p.yaml"}])
    patch = "- {op: add, path: /spec/nodeName, value: x}\n"
    files = {"web/kustomization.yaml": "resources: [pod.yaml]\n", "web/pod.yaml": POD, "web/p.yaml": patch}
    assert not check({**files, "one.yaml": one}).problems
    (given,) = [line for line in asked.read_text().splitlines() if line.startswith("{")]
    assert json.loads(given)["patches"] == [{"target": {"kind": "Pod"}, "patch": patch}]


@pytest.mark.parametrize(
    ("operation", "noted"),
    [
        ({"initiatedBy": {"username": "x"}, "sync": {"syncStrategy": {"hook": {}}, "revision": "HEAD"}}, ""),
        ({"sync": {"manifests": ["{}"]}}, "operation.sync.manifests"),
        ({"sync": {"source": {"path": "other"}}}, "operation.sync.source"),
    ],
)
def test_an_operation_that_syncs_other_objects_is_noted(check: Check, operation: Any, noted: str) -> None:
    one = {**json.loads(deploying_by("argo", "project", "x")), "operation": operation}
    report = check({"web/pod.yaml": POD, "one.yaml": json.dumps(one)})
    assert report.unfollowed == bool(noted)
    assert any(f"team ({noted} not followed)" in note for note in report.notes) == bool(noted)


@pytest.mark.parametrize(
    ("fields", "skips", "noted"),
    [
        ("", "", True),
        ("helmDefaults: {wait: true}", "", True),
        ("helmDefaults: {skipDeps: true}", "", False),
        ("helmDefaults: {skipDeps: []}", "", True),
        ("helmDefaults: {skipDeps: true}\n---\n", "", False),
        ("helmDefaults: {skipDeps: true}\n---\nhelmDefaults: {skipDeps: false}", "", True),
        ("helmDefaults: {skipDeps: true}", ", skipDeps: false", True),
        ("", ", skipDeps: true", False),
    ],
)
def test_a_dependency_that_helmfile_builds_next_to_another_is_noted(
    check: Check, program: Program, fields: str, skips: str, noted: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    files = {
        "web/Chart.yaml": named("web", "dependencies: [{name: sub, repository: 'https://charts.example'}]\n"),
        "web/charts/sub/Chart.yaml": named("sub"),
        "helmfile.yaml": f"{fields}\nreleases: [{{name: app, chart: ./web{skips}}}]\n",
    }
    report = check(files)
    assert any('adds its dependency "sub"' in note for note in report.notes) == noted
    assert report.unfollowed == noted


@pytest.mark.parametrize(
    ("files", "address", "root"),
    [
        ({"a.yaml": deploying_by("release", "interval", "1m")}, "file://../lib?x", "HelmRelease team"),
        ({"a.yaml": deploying_by("argo", "project", "a")}, "file://../lib", "Application team"),
        ({"helmfile.yaml": "releases: [{name: app, chart: ./web}]\n"}, "file://../lib", "release app of helmfile.yaml"),
        ({}, "file://../lib", "web"),
    ],
)
@pytest.mark.parametrize("noted", [False, True])
def test_what_a_builder_may_add_otherwise_fails_a_run(
    check: Check, program: Program, files: dict[str, str], address: str, root: str, noted: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    of_flux = "?" in address
    one = json.dumps([{"name": "lib", "version": "1.x", "repository": address if noted else "file://../lib"}])
    lock = f"dependencies: [{{name: lib, version: 1.0.0, repository: 'file://../{'more' if noted else 'lib'}'}}]\n"
    web = {"web/Chart.yaml": named("web", f"dependencies: {one}\n"), **({} if of_flux else {"web/Chart.lock": lock})}
    report = check({**web, "lib/Chart.yaml": named("lib"), "more/Chart.yaml": named("lib"), **files})
    words = "Flux may read the address" if of_flux else "its Chart.lock names other"
    assert any(f"{root} ({words}" in note for note in report.notes) == noted
    assert report.unfollowed == noted


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("flux", "interval", "1m"),
        ("flux", "postBuild", {"substitute": {"a": "b"}}),
        ("flux", "healthChecks", [{"kind": "Deployment", "name": "x"}]),
        ("flux", "newField", {}),
        ("release", "install", {"remediation": {"retries": 3}, "crds": "CreateReplace"}),
        ("release", "upgrade", {"remediation": {"retries": 3}, "cleanupOnFail": True}),
        ("release", "chart.spec.valuesFiles", ["web/values.yaml", "web/prod.yaml"]),
        ("argo", "syncPolicy", {"automated": {"prune": True}, "syncOptions": ["CreateNamespace=true"]}),
        ("argo", "ignoreDifferences", [{"kind": "Deployment", "jsonPointers": ["/spec/replicas"]}]),
        ("argo", "source.helm.valueFiles", ["values.yaml", "/web/prod.yaml"]),
        ("set", "goTemplateOptions", ["missingkey=error"]),
        ("set", "template.spec.source.helm.values", "a: {{who}}"),
        ("argo", "source.helm", {"valueFiles": ["gone.yaml"], "ignoreMissingValueFiles": True}),
    ],
)
def test_a_field_that_is_followed_or_harmless_brings_no_note(check: Check, kind: str, path: str, value: Any) -> None:
    report = check({**WEB, "web/prod.yaml": "b: 1\n", "deploy/one.yaml": deploying_by(kind, path, value)})
    assert [note for note in report.notes if "not followed" in note or "not with all values" in note] == []
    assert report.unfollowed == 0


@pytest.mark.parametrize(
    "files",
    [
        {"deploy/one.yaml": deploying_by("argo", "project", "x"), "web/.argocd-source.yaml": "helm: {}\n"},
        {"deploy/one.yaml": deploying_by("argo", "project", "x"), "web/.argocd-source-team.yaml": "helm: {}\n"},
        {"deploy/one.yaml": deploying_by("argo", "source.path", "app"), "app/pod.jsonnet": "{}"},
        {"deploy/one.yaml": deploying_by("argo", "source.path", ".hidden"), ".hidden/pod.yaml": DOOR},
        {"deploy/one.yaml": deploying_by("flux", "path", "./.hidden"), ".hidden/pod.yaml": DOOR},
        {
            "deploy/one.yaml": deploying_by("release", "chart.spec.valuesFiles", ["web/two.yaml"]),
            "web/two.yaml": "a: 1\n---\na: 2\n",
        },
        {"deploy/one.yaml": deploying_by("release", "chart.spec.valuesFiles", ["web/values.yaml", "web/gone.yaml"])},
        {
            "deploy/one.yaml": deploying_by(
                "argo", "source.helm.parameters", [{"name": "a", "value": "x$ARGOCD_APP_NAME"}]
            )
        },
        *(
            {
                "deploy/one.yaml": deploying_by(
                    "argo", "source.helm", {"valueFiles": [path], "ignoreMissingValueFiles": True}
                )
            }
            for path in (
                "https://x.example/prod.yaml",
                "prod$X.yaml",
                "$x/prod.yaml",
                "prod*.yaml",
                ".hidden/prod.yaml",
            )
        ),
        *(
            {"deploy/one.yaml": deploying_by("argo", "source.helm.parameters", [{"name": "a", "value": ""}, parameter])}
            for parameter in (
                {"name": "b=1,c", "value": "2"},
                {"name": "s\\lices", "value": "2"},
                {"name": "b", "value": "{1},c=2,d={1}"},
                {"name": "a.b", "value": "2"},
                {"name": "a[0]", "value": "2"},
                {"name": "b[00]", "value": "2"},
                {"name": "b", "value": "1\\\\,a=2"},
                {"name": "b", "value": "2$X"},
            )
        ),
        {"deploy/one.yaml": deploying_by("set", "template.spec.source.helm.values", "a: '{{ who | upper }}'")},
        {"deploy/one.yaml": deploying_by("set", "template.spec.source.helm.values", "a: '{{ .who }}'")},
        {"deploy/one.yaml": deploying_by("set", "template.spec.source.helm.values", "a: '{{- who -}}'")},
        {"helmfile.yaml": 'releases:\n- name: x\n  chart: ./web\n  # {{ "\\n  values: [{priv: true}]" }}\n'},
        {"helmfile.yaml.gotmpl": "releases: [{name: x, chart: ./web, values: [{priv: true}]}]\n"},
        {"helmfile.d/a.yaml.gotmpl": "releases: [{name: x, chart: ../web, values: [{priv: true}]}]\n"},
        {"helmfile.d/a.yaaml": "releases: [{name: x, chart: ../web, values: [{priv: true}]}]\n"},
        {"helmfile.d/.a.yaml": "releases: [{name: x, chart: ../web, values: [{priv: true}]}]\n"},
        {
            "helmfile.yaml": "releases: [{name: x, chart: ./web, values: [v.yaml.gotmpl]}]\n",
            "v.yaml.gotmpl": '# {{ "\\npriv: true" }}\n',
        },
        {"helmfile.yaml": "bases: [other.yaml]\nreleases: [{name: x, chart: ./web}]\n"},
        {"helmfile.yaml": "helmfiles: [sub/one.yaml]\n"},
        {"helmfile.yaml": "releases: [{name: x, chart: ./web, set: [{name: priv, value: true}]}]\n"},
        {"helmfile.yaml": "releases: [{name: x, chart: ./web, jsonPatches: [{target: {kind: Pod}}]}]\n"},
        {"helmfile.d/a.yaml": "releases: [{name: x, chart: ../web, inherit: [{template: t}]}]\n"},
        {"helmfile.yaml": "releases: [{name: x, chart: ./web, enableDNS: true}]\n"},
        {"helmfile.d/a.yaml": "releases: [{name: x, chart: c/web}]\n", **in_folders("c/web", "helmfile.d/c/web")},
        {"a/helmfile.d/a.yaml": "releases: [{name: x, chart: c/web}]\n", **in_folders("c/web", "a/c/web")},
        {"helmfile.yaml": f"{REGISTRY}releases: [{{name: x, chart: c/web}}]\n", **in_folders("c/web")},
        {"helmfile.yaml": f"{REGISTRY.replace('c,', '., ')}releases: [{{name: x, chart: ./web}}]\n"},
        {"helmfile.yaml": "releases: [{name: x, chart: oci://a.example/web}]\n", **in_folders("oci:/a.example/web")},
        {"helmfile.yaml": "releases: [{name: x, chart: ./web, values: [{priv: ref+echo://true}]}]\n"},
        {"helmfile.yaml": "releases: [{name: x, chart: ./web, values: [v.yaml]}]\n", "v.yaml": "a: ref+echo://b\n"},
        {"kustomization.yaml": "helmCharts: [{name: web, apiVersions: [evil/v1]}]\nhelmGlobals: {chartHome: .}\n"},
        {"kustomization.yaml": "helmCharts: [{name: web, kubeVersion: '1.30'}]\nhelmGlobals: {chartHome: .}\n"},
    ],
)
def test_what_else_deploys_other_objects_is_noted(check: Check, files: dict[str, str]) -> None:
    assert check({**WEB, "web/prod.yaml": "b: 1\n", **files}).unfollowed == 1


OWN = {"path": "web", "repoURL": "https://git.example/own"}


@pytest.mark.parametrize(
    ("names", "unfollowed"),
    [
        (["prod.yaml", "dev.yaml", "prod.yaml"], 1),
        (["prod.yaml", "dev.yaml", "../web/./prod.yaml"], 1),
        (["prod.yaml", "dev.yaml", "/web/prod.yaml"], 1),
        (["prod.yaml", "dev.yaml", "$own/web/prod.yaml"], 1),
        (["prod.yaml", "prod.yaml", "dev.yaml", "dev.yaml"], 0),
        (["prod.yaml", "gone.yaml", "dev.yaml"], 0),
    ],
)
def test_a_values_file_that_argo_cd_moves_is_noted(
    check: Check, program: Program, names: list[str], unfollowed: int
) -> None:
    """Argo CD passes each file once since 3.4, where it stands first; helm lets the last one count."""
    program(f"printf '%s' '{POD}'", "helm")
    source = {**OWN, "helm": {"valueFiles": names, "ignoreMissingValueFiles": True}}
    one = deploying_by("argo", "sources", [source, {"repoURL": OWN["repoURL"], "ref": "own"}])
    files = {**WEB, "web/prod.yaml": "a: 1\n", "web/dev.yaml": "a: 2\n", "deploy/one.yaml": one}
    report = check(files, options=Options(cached=False))
    assert report.unfollowed == unfollowed
    assert ("a values file that it names twice" in "".join(report.notes)) is bool(unfollowed)


def test_a_values_file_that_argo_cd_moves_is_noted_if_it_is_named_through_a_link(
    check: Check, program: Program
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    names = ["prod.yaml", "dev.yaml", "link.yaml"]
    one = deploying_by("argo", "sources", [{**OWN, "helm": {"valueFiles": names}}])
    check({**WEB, "web/prod.yaml": "a: 1\n", "web/dev.yaml": "a: 2\n", "deploy/one.yaml": one})
    Path("web/link.yaml").symlink_to("more.yaml")
    Path("web/more.yaml").symlink_to("../web/prod.yaml")
    assert check({}, options=Options(cached=False)).unfollowed == 1


@pytest.mark.parametrize(("text", "unfollowed"), [("a: 1\n---\na: 2\n", 1), ("# a\n---\na: 1\n---\n# b\n", 0)])
@pytest.mark.parametrize(
    "files",
    [
        {"one.yaml": deploying_by("argo", "source.helm.valueFiles", ["prod.yaml"]), "web/prod.yaml": "TEXT"},
        {"one.yaml": deploying_by("argo", "source.helm.values", "TEXT")},
        {"helmfile.yaml": "releases: [{name: x, chart: ./web, values: [web/prod.yaml]}]\n", "web/prod.yaml": "TEXT"},
        {
            "kustomization.yaml": "helmCharts: [{name: web, valuesFile: web/p.yaml}]\nhelmGlobals: {chartHome: .}\n",
            "web/p.yaml": "TEXT",
        },
        {"web/values.yaml": "TEXT"},
        {"web/charts/sub/values.yaml": "TEXT", "web/charts/sub/Chart.yaml": "name: sub\n"},
    ],
    ids=["file", "values", "helmfile", "kustomization", "own", "subchart"],
)
def test_values_of_several_documents_are_noted(
    check: Check, program: Program, files: dict[str, str], text: str, unfollowed: int
) -> None:
    """Helm merges them since 3.18, and read only the first one before."""
    program(f"printf '%s' '{POD}'", "helm")
    own = {
        name: each.replace("TEXT", text.replace("\n", "\\n") if each[0] == "{" else text)
        for name, each in files.items()
    }
    report = check({**WEB, **own}, options=Options(cached=False))
    assert report.unfollowed == unfollowed
    assert ("values of several documents" in "".join(report.notes)) is bool(unfollowed)


VALUES = {"helm": {"values": "a: 2"}}
BOTH = {"web/kustomization.yaml": "resources: [pod.yaml]\n", "web/pod.yaml": POD}


@pytest.mark.parametrize(
    "options",
    [
        {"directory": {"recurse": False}},
        {"directory": {"recurse": False}, **VALUES},
        {"directory": {"jsonnet": {"libs": []}}, **VALUES},
        {"directory": {"include": "*.yaml"}, **VALUES},
        {"kustomize": {"images": []}},
        {"kustomize": {"namePrefix": "x-"}, **VALUES},
    ],
)
def test_argo_cd_installs_a_chart_next_to_options_without_an_effect(
    check: Check, program: Program, options: Mapping[str, Any]
) -> None:
    program(f"printf '%s' '{DOOR}'", "helm")
    one = deploying_by("argo", "source", {**OWN, **options})
    report = check({**WEB, "deploy/one.yaml": one}, options=Options(cached=False))
    assert [one.root for one in report.judged if not one.verdict.allowed] == ["Application team"]


@pytest.mark.parametrize(
    ("source", "more", "installs"),
    [
        ({}, "", False),
        ({}, "aChart.yaml", False),
        ({}, "folder-Chart.yaml/x", False),
        ({}, "webChart.yaml/x", False),
        ({}, "webChart.yml", False),
        ({}, "webChart.yaml", True),
        ({"kustomize": {"namePrefix": "a-"}}, "webChart.yaml", False),
        ({"helm": {"valuesObject": {}}}, "", True),
        ({"helm": {"valuesObject": {}, "values": ""}}, "", True),
        ({"helm": {"valuesObject": None}}, "", False),
        ({"helm": {"values": "", "parameters": [], "valueFiles": []}}, "", False),
        ({"helm": {"values": "{}"}}, "", True),
    ],
)
def test_argo_cd_installs_a_chart_or_builds_the_kustomization_in_its_folder(
    check: Check, program: Program, source: Mapping[str, Any], more: str, installs: bool
) -> None:
    program(f"printf '%s' '{POD.replace('made', 'installed')}'", "helm")
    one = {"path": "web", "repoURL": "https://git.example/own", **source}
    built = {"web/kustomization.yaml": "resources: [pod.yaml]\n", "web/pod.yaml": POD}
    extra = {f"web/{more}": "name: web\n"} if more else {}
    report = check({**WEB, **built, **extra, "one.yaml": deploying_by("argo", "source", one)})
    names = [each.name for each in report.judged if each.root == "Application team"]
    prefix = source.get("kustomize", {}).get("namePrefix", "")
    assert names == ["installed" if installs else f"{prefix}made"]


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"values": "a: 2\na: 3\n"}, ["a: 2", "a: 3"]),
        ({"values": "a: 2\n---\na: 3\n"}, ["a: 2", "---", "a: 3"]),
        ({"values": "a: 2\n", "valuesObject": {"b": 1}}, ['{"b": 1}']),
        ({"values": "a: 2\n", "valuesObject": {}}, []),
        ({"valueFiles": ["prod.yaml"]}, ["a: 1", "a: 2"]),
    ],
)
def test_helm_gets_the_values_of_an_application_as_they_are_written(
    check: Check, program: Program, options: Mapping[str, Any], values: list[str]
) -> None:
    asked = program(f"[ ! -f values-0.yaml ] || {LINES.format('values-0.yaml')}; printf '%s' '{POD}'", "helm")
    files = {**WEB, "web/prod.yaml": "a: 1\na: 2\n", "one.yaml": deploying_by("argo", "source.helm", options)}
    assert check(files, options=Options(cached=False)).unfollowed == values.count("---")
    assert asked.read_text().splitlines()[1:] == values


def test_helm_gets_the_parameters_of_an_application_as_argo_cd_gives_them(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    parameters = [
        {"name": "limits.nvidia\\.com/gpu", "value": "2"},
        {"name": "a[0].b", "value": "x,y\\,z", "forceString": True},
        {"name": "c", "value": "{1,2}"},
        {"name": "d", "value": "1"},
        {"name": "e[10]", "value": "C:\\\\x\\,y"},
        {"name": "d"},
    ]
    one = deploying_by("argo", "source", {**OWN, "helm": {"parameters": parameters}})
    assert check({**WEB, "one.yaml": one}, options=Options(cached=False)).unfollowed == 0
    assert (
        "--set limits.nvidia\\.com/gpu=2 --set-string a[0].b=x\\,y\\,z --set c={1,2} --set d= "
        "--set e[10]=C:\\x\\,y -- team chart\n" in asked.read_text()  # echo writes two backslashes as one
    )


@pytest.mark.parametrize("options", [{}, {"kustomize": {"namePrefix": "x-"}}, {"helm": {"values": ""}}])
def test_argo_cd_prefers_a_kustomization_to_a_chart(check: Check, options: Mapping[str, Any]) -> None:
    report = check({**WEB, **BOTH, "deploy/one.yaml": deploying_by("argo", "source", {**OWN, **options})})
    assert "Application team" in {one.root for one in report.judged}


@pytest.mark.parametrize(("fails", "unfollowed"), [(True, 1), (False, 0)])
def test_a_release_whose_chart_is_refused_is_not_judged(
    check: Check, program: Program, fails: bool, unfollowed: int
) -> None:
    program("echo 'Error: need it' >&2; exit 1" if fails else f"printf '%s' '{POD}'", "helm")
    one = deploying_by("release", "interval", "5m")
    assert check({**WEB, "deploy/one.yaml": one}, options=Options(cached=False)).unfollowed == unfollowed


def test_the_folder_of_many_applications_is_walked_once(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    walked, own = Counter[str](), os.walk
    monkeypatch.setattr(os, "walk", lambda top, **more: (walked.update([os.path.normpath(top)]), own(top, **more))[1])
    counts = list[int]()
    for number in (1, 20):
        one = deploying_by("argo", "source.directory", {"recurse": True})
        many = {f"{n}.yaml": one.replace("team", f"team-{n}") for n in range(number)}
        check({"web/a/pod.yaml": POD, **many}, options=Options(cached=False))
        counts.append(walked["web"])
        walked.clear()
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("files", [{"web.tgz": "x"}, {"web.tgz/kustomization.yaml": "namePrefix: a-\n"}])
def test_what_is_no_chart_of_a_helmfile_is_noted(check: Check, files: dict[str, str]) -> None:
    report = check({**files, "helmfile.yaml": "releases: [{name: one, chart: ./web.tgz}]\n", "pod.yaml": POD})
    assert report.unfollowed == 1
    assert any("release one of helmfile.yaml (its chart is packed" in note for note in report.notes)


@pytest.mark.parametrize("url", ["https://git.example/own", "https://git.example/other"])
@pytest.mark.parametrize(("chart", "words"), [("./ch/web.tgz", "its chart is packed"), ("./gone", "elsewhere")])
def test_a_packed_chart_of_a_release_is_noted(check: Check, url: str, chart: str, words: str) -> None:
    source = {
        "apiVersion": f"{GIT_VERSION}",
        "kind": "GitRepository",
        "metadata": {"name": "own"},
        "spec": {"url": url},
    }
    one = deploying_by("release", "chart.spec.chart", chart)
    report = check({"one.yaml": one, "source.yaml": json.dumps(source), "ch/web.tgz": "x", "pod.yaml": POD})
    assert report.unfollowed == (words != "elsewhere")
    assert any("HelmRelease" in note and words in note for note in report.notes)


@pytest.mark.parametrize(("url", "rendered"), [("own", True), ("other", False)])
def test_a_chart_folder_of_a_release_is_no_packed_one(
    check: Check, program: Program, url: str, *, rendered: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    (Path(".git") / "config").write_text('[remote "origin"]\n\turl = https://git.example/own\n')
    spec = {"url": f"https://git.example/{url}"}
    source = {"apiVersion": GIT_VERSION, "kind": "GitRepository", "metadata": {"name": "own"}, "spec": spec}
    report = check({**WEB, "one.yaml": deploying_by("release", "interval", "1m"), "source.yaml": json.dumps(source)})
    assert report.unfollowed == 0
    assert any("its source is elsewhere" in note for note in report.notes) != rendered


GIT_VERSION = "source.toolkit.fluxcd.io/v1"


@pytest.mark.parametrize("script", ["exit 1", f"printf '%s' '{POD}'"])
@pytest.mark.parametrize("over", ["", "argo"])
def test_the_name_of_a_folder_may_be_any_bytes(check: Check, program: Program, script: str, over: str) -> None:
    program(script)
    folder = os.fsdecode(b"web/\xff")
    files = {f"{folder}/kustomization.yaml": "resources: [pod.yaml]\n", f"{folder}/pod.yaml": POD}
    one = {"one.yaml": deploying_by("argo", "source.directory", {"recurse": True})} if over else {}
    report = check({**files, **one}, options=Options(cached=False))
    assert report.judged or report.problems


def test_files_that_many_applications_apply_are_counted(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MAX_ALL_OBJECTS", 50)
    one = deploying_by("argo", "source", {**OWN, "path": "many"})
    text = "\n---\n".join(one.replace('"team"', f'"team-{number}"') for number in range(9))
    pods = {f"many/{number}.yaml": POD.replace("made", f"made-{number}") for number in range(9)}
    told = {each.message for each in check({"deploy/all.yaml": text, **pods}).problems}
    assert told == {"not rendered: the kustomizations include more than 50 objects; name fewer of them"}


@pytest.mark.parametrize(("values", "unfollowed"), [("values/*.yaml", 1), ("values/a.yaml", 0)])
def test_a_pattern_of_values_files_of_a_helmfile_is_noted(
    check: Check, program: Program, values: str, unfollowed: int
) -> None:
    """A pattern stands for several files, also where one has the pattern as its name."""
    program(f"printf '%s' '{POD}'", "helm")
    text = f"releases: [{{name: x, chart: web, values: ['{values}']}}]\n"
    files = {**WEB, "values/a.yaml": "a: b\n", "values/*.yaml": "a: b\n", "helmfile.yaml": text}
    assert check(files, options=Options(cached=False)).unfollowed == unfollowed


def test_plain_helmfiles_and_charts_bring_no_note(check: Check) -> None:
    files = {
        "helmfile.d/a.yaml": "helmDefaults: {wait: true}\nreleases: [{name: x, chart: ../web, values: [{a: 2}]}]\n",
        "kustomization.yaml": "helmCharts: [{name: web, valuesMerge: override}]\nhelmGlobals: {chartHome: .}\n",
    }
    assert check({**WEB, **files}).unfollowed == 0


@pytest.mark.parametrize(
    ("helmfile", "text", "folder"),
    [
        ("helmfile.d/a.yaml", "releases: [{name: x, chart: c/web, enableDNS: false}]\n", "c/web"),
        ("a/helmfile.d/a.yaml", "releases: [{name: x, chart: c/web}]\n", "a/c/web"),
        ("a/helmfile.d/a.yaml", "releases: [{name: x, chart: c/web}]\n", "c/web"),
        ("helmfile.d/a.yaml", "releases: [{name: x, chart: ../c/web}]\n", "c/web"),
        ("helmfile.d/a.yaml", "releases: [{name: x, chart: c/web/}]\n", "c/web"),
        ("helmfile.d/a.yaml", "releases: [{name: x, chart: b/c/web}]\n", "b/c/web"),
        ("helmfile.yaml", f"{REGISTRY.replace(', oci: true', '')}releases: [{{name: x, chart: c/web}}]\n", "c/web"),
        ("helmfile.yaml", f"{REGISTRY.replace('c,', 'web,')}releases: [{{name: x, chart: web}}]\n", "web"),
    ],
)
def test_a_chart_of_helmfile_is_in_one_folder(
    check: Check, program: Program, helmfile: str, text: str, folder: str
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    report = check({helmfile: text, **in_folders(folder)}, options=Options(cached=False))
    assert judged(report) == [f"{folder} lab release x of {helmfile}"]
    assert report.unfollowed == 0


BASE = "templates: {base: &base {chart: ./web, values: [{a: 1}]}}\n"


@pytest.mark.parametrize(
    ("text", "unfollowed"),
    [
        (BASE + "releases: [{name: x, values: [{a: 2}], <<: *base}]\n", 1),
        (BASE + "releases: [{<<: *base, name: x, values: [{a: 2}]}]\n", 0),
        ("releases: [{name: x, chart: ./web, values: [{a: off}]}]\n", 1),
        ("releases: [{name: x, chart: ./web, values: [{on: a}]}]\n", 1),
        ("releases: [{name: x, chart: ./web, values: [{a: 'off'}]}]\n", 0),
        ("releases: [{name: x, chart: ./web, values: [{a: false}]}]\n", 0),
    ],
)
def test_what_helmfile_reads_otherwise_than_helm_is_noted(check: Check, text: str, unfollowed: int) -> None:
    report = check({**WEB, "helmfile.yaml": text})
    assert report.unfollowed == unfollowed
    assert ("YAML that Helmfile and helm read otherwise" in "".join(report.notes)) is bool(unfollowed)


KUSTOMIZED = {"kustomization.yaml": "helmCharts: [{name: web}]\nhelmGlobals: {chartHome: .}\n"}
MERGED = f"{POD}data: {{a: &a {{x: 1}}, b: ENTRY}}\n"


@pytest.mark.parametrize(
    ("files", "entry", "unfollowed"),
    [
        (KUSTOMIZED, "{x: 2, <<: *a}", 1),
        (KUSTOMIZED, "{<<: *a, x: 2}", 0),
        ({"one.yaml": deploying_by("release", "interval", "1h")}, "{x: 2, <<: *a}", 1),
        ({"one.yaml": deploying_by("release", "interval", "1h")}, "{y: 2, <<: *a}", 0),
        ({"one.yaml": deploying_by("argo", "source", OWN)}, "{x: 2, <<: *a}", 0),
        ({"helmfile.yaml": "releases: [{name: x, chart: ./web}]\n"}, "{x: 2, <<: *a}", 0),
    ],
)
def test_a_merge_key_in_the_output_of_a_kustomized_chart_is_noted(
    check: Check, program: Program, files: dict[str, str], entry: str, unfollowed: int
) -> None:
    """kustomize, and Flux with it, let keys before a merge key win. Argo CD and Helmfile read as kubectl does."""
    program(f"printf '%s' '{MERGED.replace('ENTRY', entry)}'", "helm")
    report = check({**WEB, **files}, options=Options(cached=False))
    assert report.unfollowed == unfollowed
    assert ("a merge key after keys" in "".join(report.notes)) is bool(unfollowed)


@pytest.mark.parametrize(("word", "name"), [("off", "as-printed"), ("'off'", "otherwise")])
def test_kustomize_reads_the_text_that_helm_prints(check: Check, program: Program, word: str, name: str) -> None:
    """A selector sees the word `off`, which helm and kubectl read as false."""
    made = POD.replace("{name: made", f"{{name: made, annotations: {{a: {word}}}")
    program(f"printf '%s' \"{made}\"", "helm")
    read = 'text=; while read -r line; do text="$text $line"; done <./.objects-of-charts.yaml'
    named = 'case $text in *"annotations: {a: off}"*) name=as-printed;; *) name=otherwise;; esac'
    made = POD.replace("name: made", "name: '$name'")
    program(f"{read}; {named}; printf '%s' '{made}'")
    report = check({**WEB, **KUSTOMIZED}, options=Options(cached=False))
    assert [one.name for one in report.judged if one.root == "."] == [name]


def test_kustomize_gets_the_files_below_crds_before_the_templates() -> None:
    crds = {"crds/a.yaml": b"\xef\xbb\xbfa: 1", "crds/b.yaml": b"b: 2\n"}
    assert charts.Manifests(b"---\nc: 3\n", verbatim=crds).printed == b"---\na: 1\n---\nb: 2\n\n---\nc: 3\n"
    assert charts.Manifests(b"c: 3\n", b"c: 3\na: 1\n", crds).printed == b"c: 3\na: 1\n", "helm has printed them"


def with_gpus(count: str, more: str = "") -> str:
    """Write a pod that requests this number of GPUs."""
    limits = f"image: i, resources: {{limits: {{nvidia.com/gpu: '{count}'}}}}"
    return POD.replace("image: i", limits).replace("namespace: lab", f"namespace: lab{more}")


def vars_of(count: str, namespace: str = "") -> str:
    """Write a ConfigMap with a variable."""
    metadata = f"{{name: vars, namespace: '{namespace}'}}"
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\ndata: {{g: '{count}'}}\n"


SETTING = "image: i, env: [{{name: {0}, value: all}}]"
HOST_PATH = "spec: {volumes: [{name: v, hostPath: {path: '${n}'}}], "
GENERATED = (
    "configMapGenerator: [{{name: vars, namespace: lab, literals: [g=0]}}]\n"
    "generatorOptions: {{disableNameSuffixHash: {}}}\n"
)


SHOWN, SECRET = {"kind": "ConfigMap", "name": "vars"}, {"kind": "Secret", "name": "hidden"}
DISABLED = ", annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}"


@pytest.mark.parametrize(
    ("build", "files", "unfollowed"),
    [
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": with_gpus("${g:=0}")}, 1),
        ({"substituteFrom": [{**SECRET, "optional": True}]}, {"app/pod.yaml": with_gpus("${g:-0}")}, 1),
        ({"substituteFrom": [SHOWN]}, {"app/pod.yaml": with_gpus("${g:=0}")}, 1),
        ({"substituteFrom": [SHOWN, SECRET]}, {"app/pod.yaml": with_gpus("${g}"), "vars.yaml": vars_of("0")}, 1),
        (
            {"substituteFrom": [SHOWN]},
            {"app/pod.yaml": with_gpus("${g}"), "a.yaml": vars_of("0"), "b.yaml": vars_of("4")},
            1,
        ),
        ({"substitute": {"g": "x0"}}, {"app/pod.yaml": with_gpus("${g#x}")}, 1),
        ({"substitute": {"g": "0"}}, {"app/pod.yaml": with_gpus("${h:=${g}}")}, 1),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("v1\nkind: Pod", "e.x/v1\nkind: ${k:=Job}")}, 1),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("kind: Pod", "kind: ${k:=Service}")}, 1),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("image: i", "image: i, '${k:=a}': true")}, 1),
        ({"substituteFrom": [SECRET]}, {"app/a.yaml": deploying_by("release", "values", {"gpus": "${g:=0}"})}, 1),
        ({"substituteFrom": [SECRET, SHOWN]}, {"app/pod.yaml": with_gpus("${g:=4}"), "vars.yaml": vars_of("0")}, 0),
        ({"substituteFrom": [SECRET], "substitute": {"g": 0}}, {"app/pod.yaml": with_gpus("${g:=4}")}, 0),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("image: i", "image: '$${i:=a}'")}, 0),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("image: i", "image: '${i}'")}, 0),
        (
            {"substituteFrom": [SECRET]},
            {"app/pod.yaml": with_gpus("1", DISABLED).replace("name: c", "name: '${c:=c}'")},
            0,
        ),
        ({"substituteFrom": [SECRET]}, {"app/a.yaml": vars_of("${g:=0}")}, 0),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD}, 0),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("image: i", SETTING.format("'${n}'"))}, 1),
        (
            {"substituteFrom": [SECRET]},
            {"app/pod.yaml": POD.replace("image: i", SETTING.format("N, valueFrom: '${n}'"))},
            0,
        ),
        (
            {"substituteFrom": [SECRET]},
            {"app/pod.yaml": POD.replace("spec: {", "spec: {runtimeClassName: '${n}', ")},
            1,
        ),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("spec: {", "spec: {'${n}': true, ")}, 1),
        ({"substituteFrom": [SECRET]}, {"app/pod.yaml": POD.replace("spec: {", HOST_PATH)}, 1),
        ({"substitute": {"n": '"'}}, {"app/pod.yaml": POD.replace("image: i", SETTING.format("'A${n}'"))}, 1),
        ({"substitute": {"n": "{a: b}"}}, {"app/pod.yaml": POD.replace("spec: {", "spec: {nodeSelector: '${n}', ")}, 1),
        ({"substituteFrom": [SHOWN]}, {"app/pod.yaml": with_gpus("${g:=0}"), "vars.yaml": vars_of("${g}")}, 1),
        ({"substituteFrom": [SHOWN]}, {"app/pod.yaml": with_gpus("${g:=0}"), "vars.yaml": vars_of("0", "lab")}, 0),
        (
            {"substituteFrom": [{**SECRET, "optional": True}]},
            {"app/pod.yaml": POD.replace("image: i", "image: i, command: [$$]")},
            1,
        ),
        (
            {"substituteFrom": [{**SECRET, "optional": True}], "substitute": {"a": "b"}},
            {"app/pod.yaml": POD.replace("image: i", "image: i, command: [$$]")},
            0,
        ),
        (
            {"substituteFrom": [SHOWN]},
            {"app/pod.yaml": with_gpus("${N:=0}"), "vars.yaml": vars_of("0").replace("g:", "N:")},
            1,
        ),
        ({"substituteFrom": [SHOWN]}, {"app/pod.yaml": with_gpus("${g:=0}"), "vars.yaml": vars_of("0", "other")}, 1),
        (
            {"substituteFrom": [SHOWN]},
            {
                "app/pod.yaml": with_gpus("${g:=0}"),
                "vars/one.yaml": vars_of("0", "lab"),
                "vars/kustomization.yaml": "resources: [one.yaml]\nreplacements: [{path: a.yaml}]\n",
            },
            1,
        ),
        (
            {"substituteFrom": [SHOWN]},
            {"app/pod.yaml": with_gpus("${g:=0}"), "vars/kustomization.yaml": GENERATED.format("true")},
            0,
        ),
        (
            {"substituteFrom": [SHOWN]},
            {"app/pod.yaml": with_gpus("${g:=0}"), "vars/kustomization.yaml": GENERATED.format("false")},
            1,
        ),
    ],
)
def test_a_default_in_place_of_a_variable_that_no_file_shows_is_noted(
    check: Check, build: Mapping[str, Any], files: dict[str, str], unfollowed: int
) -> None:
    one = json.loads(deploying_by("flux", "postBuild", build))
    one["metadata"]["namespace"] = "lab"
    report = check({**files, "deploy/one.yaml": json.dumps(one)})
    assert bool(report.unfollowed) == bool(unfollowed)
    assert sum("Kustomization lab/team (variables that no file shows" in note for note in report.notes) == unfollowed


@pytest.mark.parametrize(
    ("files", "unfollowed"),
    [
        ({"app/kustomization.yaml": "resources: [.pod.yaml]\n", "app/.pod.yaml": POD}, 1),
        (
            {"app/kustomization.yaml": "resources: [pod.yaml]\ntransformers: [t.yaml]\n", "app/t.yaml": "a: 'b://c'\n"},
            1,
        ),
        ({"app/kustomization.yaml": "resources: [pod.yaml]\nnamePrefix: a-\n"}, 0),
    ],
)
def test_a_kustomization_that_is_only_followed_in_part_counts_as_not_judged(
    check: Check, program: Program, files: dict[str, str], unfollowed: int
) -> None:
    program("exit 1" if unfollowed else f"printf '%s' '{POD}'")
    assert check({"app/pod.yaml": POD, **files}).unfollowed == unfollowed


MAKERS = [
    ("helm.cattle.io/v1", "HelmChart", {"chart": "web", "valuesContent": "a: 1"}, "chart"),
    ("helm.cattle.io/v1", "HelmChart", {"chartContent": "H4sI"}, "chartContent"),
    ("helm.cattle.io/v1", "HelmChartConfig", {"valuesContent": "hostPID: true"}, "valuesContent"),
    ("fluxcd.controlplane.io/v1", "ResourceSet", {"resources": [{"kind": "Pod"}]}, "resources"),
    ("fluxcd.controlplane.io/v1", "ResourceSet", {"resourcesTemplate": "kind: Pod"}, "resourcesTemplate"),
]
"""Objects that make others, with the field that says which."""


@pytest.mark.parametrize(("version", "kind", "spec", "field"), MAKERS)
@pytest.mark.parametrize("files", [{}, {"app/kustomization.yaml": "resources: [one.yaml]\n"}])
def test_what_is_never_rendered_counts_as_not_judged(
    check: Check, version: str, kind: str, spec: Mapping[str, Any], field: str, files: dict[str, str]
) -> None:
    one = {"apiVersion": version, "kind": kind, "metadata": {"name": "team"}, "spec": spec}
    report = check({"app/one.yaml": json.dumps(one), "pod.yaml": POD, **files})
    assert report.unjudged_pods == 1
    assert any(
        note.startswith("app/one.yaml:1: ") and f"makes objects at spec.{field}; " in note for note in report.notes
    )
    assert cli.main(["check", ".", "--fail-on", "unjudged"]) == 1
    assert cli.main(["check", "."]) == 0


def test_more_objects_that_make_others_are_one_note(check: Check) -> None:
    version, kind, spec, _ = MAKERS[0]
    one = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "team"}, "spec": spec})
    empty = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": "none"}, "spec": {}})
    report = check({"one.yaml": one, "two.yaml": one.replace("team", "other"), "three.yaml": empty})
    assert report.unjudged_pods == 2
    assert (
        sum("; 1 more object of its kind makes objects too (other); not judged: " in note for note in report.notes) == 1
    )


ENV_FILE = "configMapGenerator: [{name: vars, envs: [one.env]}]\ngeneratorOptions: {disableNameSuffixHash: true}\n"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("g=FOO\n", True),
        ("g=NVIDIA_VISIBLE_DEVICES\r\n", False),
        ("a=1\n \tg=NVIDIA_VISIBLE_DEVICES\n", False),
        ("\ufeffg=NVIDIA_VISIBLE_DEVICES\n", False),
        ("a=1\x0bg=FOO\n", False),
        ("a=1\n #g=FOO\n", False),
    ],
)
def test_a_file_of_variables_is_read_as_kustomize_reads_it(check: Check, text: str, allowed: bool) -> None:
    pod = POD.replace("image: i", SETTING.format("'${g:=NVIDIA_VISIBLE_DEVICES}'"))
    one = deploying_by("flux", "postBuild", {"substituteFrom": [SHOWN]})
    files = {"deploy/one.yaml": one, "app/pod.yaml": pod, "vars/kustomization.yaml": ENV_FILE, "vars/one.env": text}
    report = check(files)
    assert all(one.verdict.allowed for one in report.judged) == allowed
    assert report.unfollowed == 0


@pytest.mark.parametrize(("made", "noted"), [("FOO", False), ("BAR", True)])
def test_variables_of_a_map_that_a_program_makes_otherwise_are_noted(
    check: Check, program: Program, made: str, noted: bool
) -> None:
    program(f"case $* in *vars) printf '%s' '{vars_of(made)}';; *) printf '%s' '{POD}';; esac")
    one = deploying_by("flux", "postBuild", {"substituteFrom": [SHOWN]})
    files = {"deploy/one.yaml": one, "app/pod.yaml": POD, "vars/one.yaml": vars_of("FOO")}
    report = check({**files, "vars/kustomization.yaml": "resources: [one.yaml]\n"})
    assert any("variables of a ConfigMap that only a program makes" in note for note in report.notes) == noted


def test_variables_are_those_of_the_config_map_as_a_kustomization_patches_it(check: Check) -> None:
    one = deploying_by("flux", "postBuild", {"substituteFrom": [SHOWN]})
    pod = POD.replace("image: i", SETTING.format("'${g}'"))
    patch = "patches: [{target: {kind: ConfigMap}, patch: '[{op: add, path: /data/g, value: NVIDIA_VISIBLE_DEVICES}]'}]"
    files = {"deploy/one.yaml": one, "app/pod.yaml": pod, "vars/one.yaml": vars_of("FOO")}
    assert check(files).judged[-1].verdict.allowed
    report = check({**files, "vars/kustomization.yaml": f"resources: [one.yaml]\n{patch}\n"})
    assert [one.name for one in report.judged if not one.verdict.allowed] == ["made"]


@pytest.mark.parametrize("end", ["\r", "\x85", "\u2028", "\u2029"])
@pytest.mark.parametrize("text", ["one\n${b}", "${b}", "a ${b}"])
def test_a_variable_with_a_line_break_that_flux_keeps_is_noted(check: Check, text: str, end: str) -> None:
    """What follows it may be an entry of its own, or a field of the container: YAML 1.1 ends a line there."""
    one = deploying_by("flux", "postBuild", {"substitute": {"b": f"two{end}    - three"}})
    pod = POD.replace("image: i", f"image: i, args: [{json.dumps(text)}]")
    assert check({"deploy/one.yaml": one, "app/pod.yaml": pod}).unfollowed == 1
    plain = one.replace(json.dumps(end)[1:-1], " ")
    assert check({"deploy/one.yaml": plain, "app/pod.yaml": pod}).unfollowed == 0


def test_variables_that_make_too_much_text_are_not_filled_in(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    one = deploying_by("flux", "postBuild", {"substitute": {"g": "1"}})
    files = {"deploy/one.yaml": one, "app/pod.yaml": with_gpus("${g}"), "app/two.yaml": with_gpus("${g}0")}
    assert check(files).unfollowed == 0
    monkeypatch.setattr(rendering, "MAX_FILLED", 1)
    report = check(files)
    assert report.unfollowed == 1
    assert any("variables that make more than" in note for note in report.notes)
    monkeypatch.undo()


def test_one_object_with_too_much_text_of_variables_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    some, value = (
        variables.Variables({"g": "12345"}, strict=True),
        {"data": {"a": "${g}${g}", "b": "$${g}${h:=1234567}"}},
    )
    assert (some.filled(value), some.guesses(value)) == (10, False)
    monkeypatch.setattr(variables, "MAX_FILLED", 9)
    assert some.guesses(value)


def test_the_values_of_all_releases_are_bounded(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    monkeypatch.setattr(rendering, "MAX_MADE", 1_000)
    one = json.loads(deploying_by("release", "valuesFrom", [{"kind": "ConfigMap", "name": "vals"}] * 200))
    one["metadata"]["namespace"] = "lab"
    files = {"deploy/one.yaml": json.dumps(one), "deploy/map.yaml": MAP.format("lab", "12345")}
    report = check({**WEB, **files, "deploy/kustomization.yaml": "resources: [one.yaml, map.yaml]\n"})
    assert not asked.exists()
    assert any("the values of all releases have more than" in note for note in report.notes)


def test_flux_removes_the_line_breaks_of_a_variable(check: Check) -> None:
    one = deploying_by("flux", "postBuild", {"substituteFrom": [SHOWN]})
    pod = POD.replace("image: i", SETTING.format("'${g}'"))
    lines = vars_of("FOO").replace("'FOO'", '"NVIDIA_\\nVISIBLE_DEVICES\\n"')
    report = check({"deploy/one.yaml": one, "app/pod.yaml": pod, "vars/one.yaml": lines})
    assert [one.name for one in report.judged if not one.verdict.allowed] == ["made"]
    assert report.unfollowed == 0


@pytest.mark.parametrize(
    ("build", "filled"),
    [
        (None, False),
        ({}, False),
        ({"substitute": {}}, False),
        ({"substitute": {"other": "one"}}, True),
        ({"substituteStrategy": "Always"}, True),
    ],
)
def test_flux_fills_in_a_default_only_if_it_has_a_variable(
    check: Check, build: Mapping[str, Any] | None, filled: bool
) -> None:
    one = deploying_by("flux", "postBuild", build) if build is not None else deploying_by("flux", "prune", True)
    pod = POD.replace("image: i", "image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: '${g:=void}'}]")
    report = check({"deploy/one.yaml": one, "app/pod.yaml": pod})
    assert [one.verdict.allowed for one in report.judged] == [filled]


@pytest.mark.parametrize("variable", [" ", " #", " # all"])
def test_a_name_is_what_flux_reads_of_a_variable(check: Check, variable: str) -> None:
    one = deploying_by("flux", "postBuild", {"substitute": {"end": variable}})
    pod = POD.replace("image: i", SETTING.format("'NVIDIA_VISIBLE_DEVICES${end}'"))
    report = check({"deploy/one.yaml": one, "app/pod.yaml": pod})
    assert [result.rule for result in report.judged[0].verdict.results] == ["visible-devices"]


ORIGIN = '[remote "origin"]\n\turl = https://git.example/own\n'
FETCHED = """\
apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: own, namespace: lab}
spec: {url: https://git.example/own, MORE}
"""


@pytest.mark.parametrize(
    ("files", "more", "noted"),
    [
        ({".sourceignore": "kustomization.yaml"}, "", True),
        ({".sourceignore": "# all\n\n/app/*.yaml\n"}, "", True),
        ({".sourceignore": "app/"}, "", True),
        ({".sourceignore": "**/k[^x]st*.yaml  "}, "", True),
        ({"app/.sourceignore": "/kustomization.yaml"}, "", True),
        ({".sourceignore": "*\n!kustomization.yaml\nkustomization.y*l"}, "", True),
        ({".sourceignore": "kustomization.yaml\n!/**"}, "", True),
        ({".sourceignore": "kustomization.yaml\n!/app/kustom**.yaml"}, "", True),
        ({".sourceignore": "[!x]*ization.yaml"}, "", True),
        ({".sourceignore": "kustomization.yaml\n!/app/[!x]*ization.yaml"}, "", True),
        ({".sourceignore": "kustomization.yaml\n!/app/kustomization\\*"}, "", True),
        ({".sourceignore": "kustomization.yaml\n!**/x/kustomization.yaml"}, "", True),
        ({".sourceignore": f"kustomization.yaml\n{'a' * 70_000}\n!kustomization.yaml"}, "", True),
        ({".sourceignore": "[" * 20_000}, "", True),
        ({"app/.git": "gitdir: ../.git/modules/app"}, "", True),
        ({}, "recurseSubmodules: true", True),
        ({}, "sparseCheckout: [other]", True),
        ({}, "ignore: 'app/**'", True),
        ({}, "include: [{repository: {name: other}, toPath: app}]", True),
        ({}, "newField: true", True),
        ({".sourceignore": "kustomization.yaml/\n/kustomization.yaml\nother/\n"}, "", False),
        ({"other/.sourceignore": "*"}, "", False),
        ({".sourceignore": "/*\n!/app"}, "", False),
        ({".sourceignore": "/*\n!/app/"}, "", False),
        ({".sourceignore": "/*\n!/app/**\n"}, "", False),
        ({".sourceignore": "# no texts\r\n*.md\r\ndocs/\r\n**/*.py[cod]\r\n\r\n", "app/README.md": "x"}, "", False),
        ({".sourceignore": "*\n!**/kustomization.yaml\n!Chart.yaml\n"}, "", False),
        ({}, "recurseSubmodules: false", False),
        ({}, "ignore: '/*\n\n  !/app\n\n  '", False),
        ({}, "interval: 1m, ref: {branch: main}", False),
    ],
)
@pytest.mark.parametrize("kind", ["flux", "release"])
def test_a_source_that_leaves_out_what_makes_objects_harmless_is_noted(
    check: Check, program: Program, files: dict[str, str], more: str, noted: bool, kind: str
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one = json.loads(deploying_by(kind, "interval", "1m"))
    one["metadata"]["namespace"] = "lab"
    named = {"kind": "GitRepository", "name": "own"}
    if kind == "flux":
        one["spec"]["sourceRef"] = named
        own = {"app/kustomization.yaml": "resources: [pod.yaml]\n", "app/pod.yaml": POD}
    else:
        one["spec"]["chart"]["spec"] = {"chart": "./app", "sourceRef": named}
        own = {"app/Chart.yaml": WEB["web/Chart.yaml"], "app/values.yaml": "a: 1\n"}
        for name, text in files.items():
            files = {
                **files,
                name: text.replace("kustom", "va").replace("ization", "lues").replace("k[^x]st", "v[^x]l"),
            }
    source = {"source.yaml": FETCHED.replace("MORE", more), ".git/config": ORIGIN}
    report = check({**own, **source, "one.yaml": json.dumps(one), **files}, options=Options(cached=False))
    assert report.unfollowed == noted


INSTANCE = """\
apiVersion: fluxcd.controlplane.io/v1
kind: FluxInstance
metadata: {name: flux, namespace: lab}
spec: {sync: {kind: GitRepository, url: https://git.example/own, path: base}, KUSTOMIZE}
"""


def test_a_flux_instance_deploys_its_path(check: Check) -> None:
    undo = "patches: [{target: {kind: Pod}, patch: '[{op: remove, path: /spec/containers/0/env}]'}]\n"
    files = {"base/pod.yaml": DOOR, "base/kustomization.yaml": "resources: [pod.yaml]\n", "one.yaml": INSTANCE}
    report = check({**files, "over/kustomization.yaml": f"resources: [../base]\n{undo}"})
    assert [one.root for one in report.judged if not one.verdict.allowed] == ["Kustomization lab/lab"]
    assert report.unfollowed == 0


def test_a_flux_instance_of_another_repository_deploys_nothing_here(check: Check) -> None:
    others = {f"{name}.yaml": deploying_by("flux", "path", "base") for name in ("a", "b")}
    source = FETCHED.replace("MORE", "").replace(", namespace: lab", "")
    others = {name: text.replace('"GitRepository"', '"GitRepository", "name": "own"') for name, text in others.items()}
    other = {"one.yaml": INSTANCE.replace("example/own", "example/other"), "own.yaml": source}
    report = check({"base/pod.yaml": DOOR, **other, **others})
    assert {one.root for one in report.judged} == {"Kustomization team"}
    assert any("Kustomization lab/lab (its source is elsewhere)" in note for note in report.notes)


@pytest.mark.parametrize(
    ("patches", "noted"),
    [
        ("[{target: {kind: Deployment}, patch: x}]", False),
        ("[{target: {kind: Kustomization}, patch: x}]", True),
        ("[{patch: x}]", True),
    ],
)
def test_patches_of_a_flux_instance_are_noted(check: Check, patches: str, noted: bool) -> None:
    files = {"base/pod.yaml": POD, "one.yaml": INSTANCE.replace("KUSTOMIZE", f"kustomize: {{patches: {patches}}}")}
    assert check(files).unfollowed == noted


def test_a_flux_instance_that_a_kustomization_changes_is_noted(check: Check, program: Program) -> None:
    program(f"printf '%s' '{INSTANCE}'")
    files = {"base/pod.yaml": POD, "flux/one.yaml": INSTANCE, "flux/kustomization.yaml": "resources: [one.yaml]\n"}
    assert check(files, options=Options(cached=False)).unfollowed == 0
    program(f"printf '%s' '{INSTANCE.replace('path: base', 'path: other')}'")
    report = check({}, options=Options(cached=False))
    assert any("FluxInstance lab/flux (as " in note for note in report.notes)


@pytest.mark.parametrize(("limit", "lines"), [(5_000, 2_000), (tree.MAX_LOOKS, 20_000)])
def test_many_patterns_of_a_source_end(check: Check, monkeypatch: pytest.MonkeyPatch, limit: int, lines: int) -> None:
    monkeypatch.setattr(tree, "MAX_LOOKS", limit)
    many = {".sourceignore": "a/b\n" * lines}
    files = {"app/kustomization.yaml": "resources: [pod.yaml]\n", "app/pod.yaml": POD, **many}
    assert check({**files, "one.yaml": deploying_by("flux", "interval", "1m")}).unfollowed == 1


@pytest.mark.parametrize(("kind", "noted"), [("GitRepository", False), ("Bucket", True), ("ExternalArtifact", True)])
def test_a_source_of_another_kind_is_named(check: Check, kind: str, noted: bool) -> None:
    report = check({"app/pod.yaml": POD, "one.yaml": deploying_by("flux", "sourceRef", {"kind": kind, "name": "x"})})
    told = f"Kustomization team (judged by the folder here, though its source is of the kind {kind})"
    assert any(told in note for note in report.notes) == noted
    assert report.unfollowed == noted


@pytest.mark.parametrize(("kind", "noted"), [("OCIRepository", False), ("ExternalArtifact", True), ("New", True)])
def test_a_release_whose_chart_is_of_another_kind_is_named(
    check: Check, program: Program, kind: str, noted: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    release = json.loads(deploying_by("release", "chartRef", {"kind": kind, "name": "web"}))
    del release["spec"]["chart"]
    report = check({**in_folders("charts/web"), "one.yaml": json.dumps(release)})
    assert any(f"its source is of the kind {kind}" in note for note in report.notes) == noted
    assert report.unfollowed == noted


def test_a_release_whose_chart_is_in_a_bucket_is_named(check: Check, program: Program) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one = deploying_by("release", "chart.spec.sourceRef.kind", "Bucket")
    told = "HelmRelease team (judged by the folder here, though its source is of the kind Bucket)"
    assert any(told in note for note in check({**WEB, "one.yaml": one}).notes)


def fetching(more: str = "", patch: str = "", **build: Any) -> dict[str, str]:
    """Write a Kustomization of Flux for `app`, and one for `deploy`, where its source is, with changes of that."""
    fields = {"path": "./deploy", "sourceRef": {"kind": "GitRepository", "name": "own"}, "postBuild": build}
    root = {"apiVersion": SPECS["flux"][0], "kind": "Kustomization", "metadata": {"name": "root", "namespace": "lab"}}
    team = json.loads(deploying_by("flux", "sourceRef", fields["sourceRef"]))
    team["metadata"]["namespace"] = "lab"
    patches = [{"target": {"kind": "GitRepository"}, "patch": patch}] if patch else []
    return {
        "app/kustomization.yaml": "resources: [pod.yaml]\n",
        "app/pod.yaml": POD,
        "deploy/source.yaml": FETCHED.replace("MORE", more),
        "deploy/kustomization.yaml": json.dumps({"resources": ["source.yaml", "team.yaml"], "patches": patches}),
        "deploy/team.yaml": json.dumps(team),
        "root.yaml": json.dumps({**root, "spec": fields}),
        ".git/config": ORIGIN,
    }


@pytest.mark.parametrize("field", ["ignore: kustomization.yaml", "sparseCheckout: [x]", "include: [{toPath: app}]"])
def test_a_source_counts_as_a_kustomization_patches_it(check: Check, field: str) -> None:
    patch = FETCHED.replace("url: https://git.example/own, MORE", field)
    assert check(fetching()).unfollowed == 0
    assert any("Kustomization lab/team (" in note for note in check(fetching(patch=patch)).notes)


@pytest.mark.parametrize(
    ("ignore", "build", "noted"),
    [
        ("${a}", {"substitute": {"a": "/app/kustomization.yaml"}}, 1),
        ("${a:=none}", {"substitute": {"a": "/app/kustomization.yaml"}}, 1),
        ("${a:=none}", {"substitute": {"a": "docs"}}, 0),
        ("${a:=none}", {"substituteFrom": [{"kind": "Secret", "name": "s"}]}, 1),
        ("${a#x}", {"substitute": {"a": "/app/kustomization.yaml"}}, 1),
    ],
)
def test_a_source_counts_with_its_variables(check: Check, ignore: str, build: dict[str, Any], noted: int) -> None:
    assert check(fetching(f"ignore: '{ignore}'", **build)).unfollowed == noted


def test_each_source_of_one_name_counts(check: Check) -> None:
    """Those of several clusters stand in one repository."""
    files, place = fetching(), {"name": "own", "namespace": "lab"}
    for number, (metadata, more, noted) in enumerate(
        (
            (place, "ignore: '*.md'", 0),
            ({**place, "namespace": "other"}, "ignore: kustomization.yaml", 0),
            ({**place, "name": "other"}, "ignore: kustomization.yaml", 0),
            (place, "ignore: kustomization.yaml", 1),
        )
    ):
        text = FETCHED.replace("{name: own, namespace: lab}", json.dumps(metadata)).replace("MORE", more)
        files[f"cluster-{number}.yaml"] = text
        assert bool(check(files).unfollowed) == noted


def test_no_second_source_makes_flux_deploy_another_repository(check: Check) -> None:
    other = FETCHED.replace("https://git.example/own, MORE", "https://git.example/other")
    files = fetching() | {"source.yaml": FETCHED.replace("name: own", "name: root").replace("MORE", "")}
    files["root.yaml"] = files["root.yaml"].replace('"own"', '"root"')
    for name in ("a.yaml", "z.yaml"):
        assert {one.root for one in check({**files, name: other}).judged} == {"Kustomization lab/team"}


def test_a_source_in_too_many_ways_is_noted(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flux_sources, "MOST_SPECS", 2)
    files = fetching()
    for number, noted in enumerate((False, True)):
        files[f"{number}.yaml"] = FETCHED.replace("MORE", f"interval: {number}m")
        assert bool(check(files).unfollowed) == noted


def test_a_source_that_only_a_program_changes_is_noted(check: Check, program: Program) -> None:
    files = fetching() | {"deploy/kustomization.yaml": "resources: [source.yaml, team.yaml]\nreplacements: [{}]\n"}
    changed = FETCHED.replace("MORE", "ignore: kustomization.yaml")
    program(f"test -e repository/deploy && printf '%s' '{changed}' || printf '%s' '{POD}'")
    assert any("GitRepository lab/own (as " in note for note in check(files).notes)


def test_flux_leaves_out_files_by_patterns_of_its_own(check: Check) -> None:
    spec = {"components": ["../fix.zip"], "ignoreMissingComponents": True}
    files = {**fetching(), "fix.zip/kustomization.yaml": "kind: Component\nnamespace: two\n"}
    team = json.loads(files["deploy/team.yaml"])
    team["spec"] |= spec
    assert check({**files, "deploy/team.yaml": json.dumps(team)}).unfollowed == 1
    team["spec"]["components"] = ["../fix"]
    files = {**files, "fix/kustomization.yaml": files["fix.zip/kustomization.yaml"]}
    assert check({**files, "deploy/team.yaml": json.dumps(team)}).unfollowed == 0


@pytest.mark.parametrize("link", ["app", "app/kustomization.yaml"])
def test_flux_leaves_out_links(check: Check, tmp_path: Path, link: str) -> None:
    files = fetching()
    text = files.pop("app/kustomization.yaml")
    files["app.d/kustomization.yaml"] = text
    if link == "app":
        files["app.d/pod.yaml"] = files.pop("app/pod.yaml")
        (tmp_path / link).symlink_to("app.d")
    else:
        (tmp_path / "app").mkdir()
        (tmp_path / link).symlink_to("../app.d/kustomization.yaml")
    assert check(files).unfollowed == 1


@pytest.mark.parametrize(
    ("ignore", "files", "noted"),
    [
        ("*.tpl", {"web/templates/_names.tpl": "x"}, True),
        ("*.tpl", {"web/charts/sub/templates/_names.tpl": "x", "web/charts/sub/Chart.yaml": "name: sub"}, True),
        ("*.md", {"web/README.md": "x", "web/tests/t.md": "x"}, False),
        ("*.md", {"web/README.md": "x", "web/templates/_a.tpl": "{{ .Files.Get `README.md` }}"}, True),
        ("*.md", {"web/README.md": "x", "web/charts/sub-1.0.0.tgz": "packed"}, True),
        ("x", {"web/picture.png": "x", "web/cloudbuild.yaml": "x"}, False),
        ("x", {"web/templates/cloudbuild.yaml": "x"}, True),
        ("lib", {"web/Chart.yaml": LOCAL, "lib/Chart.yaml": "name: lib", "lib/templates/_a.tpl": "x"}, True),
        ("x", {"web/Chart.yaml": LOCAL, "lib/Chart.yaml": "name: lib", "lib/templates/_a.tpl": "x"}, False),
    ],
)
def test_each_file_counts_without_which_a_chart_makes_other_objects(
    check: Check, program: Program, ignore: str, files: dict[str, str], noted: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one = json.loads(deploying_by("release", "interval", "1m"))
    one["metadata"]["namespace"] = "lab"
    own = {"source.yaml": FETCHED.replace("MORE", f"ignore: '{ignore}'"), ".git/config": ORIGIN}
    report = check({**WEB, **own, "one.yaml": json.dumps(one), **files}, options=Options(cached=False))
    assert report.unfollowed == noted


def test_a_pattern_of_a_generator_has_the_length_of_a_path(check: Check) -> None:
    for paths in ("{path: 'LONG'}", "{path: d}, {path: 'LONG', exclude: true}"):
        long = paths.replace("LONG", "x" * (tree.LONGEST_PATTERN + 1))
        report = check({"s.yaml": SET.replace('{path: "d*"}, {path: "*"}', long), "d/pod.yaml": POD})
        assert any("ApplicationSet s (a pattern has more than 4,096 characters)" in note for note in report.notes)


@pytest.mark.parametrize("kind", ["flux", "argo", "set"])
def test_an_object_that_only_a_program_changes_is_noted(check: Check, program: Program, kind: str) -> None:
    path = {"flux": "targetNamespace", "argo": "destination.namespace", "set": "template.spec.destination.namespace"}
    one, other = (deploying_by(kind, path[kind], name) for name in ("lab", "other"))
    files = {**WEB, "deploy/one.yaml": one, "deploy/kustomization.yaml": "resources: [one.yaml]\nreplacements: [{}]\n"}
    for made, unfollowed in ((one, 0), (other, 1)):
        program(f"test -e deploy && printf '%s' '{made}'")
        report = check(files, options=Options(cached=False))
        assert report.unfollowed == unfollowed
        assert sum("team (as deploy makes it)" in note for note in report.notes) == unfollowed


@pytest.mark.parametrize("kind", ["flux", "argo", "set", "release"])
def test_an_object_that_a_chart_makes_is_noted(check: Check, program: Program, kind: str) -> None:
    program(f"printf '%s' '{deploying_by(kind, 'x', '')}'", "helm")
    report = check(WEB, options=Options(cached=False))
    assert report.unfollowed == 1
    assert any("team (as web makes it)" in note for note in report.notes)


VALS: Object = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "vals", "namespace": "lab"},
    "data": {"a": "b"},
}

MADE_MAPS = [
    (VALS, 1),
    ({**VALS, "data": {"a": "c"}}, 0),
    ({**VALS, "metadata": {"name": "vals", "namespace": "other"}}, 0),
    ({**VALS, "metadata": {"name": "more", "namespace": "lab"}}, 0),
]

MADE_CHART: Object = {
    "apiVersion": "source.toolkit.fluxcd.io/v1",
    "kind": "HelmChart",
    "metadata": {"name": "vals", "namespace": "lab"},
    "spec": {"chart": "./web", "sourceRef": {"kind": "GitRepository", "name": "own"}},
}


@pytest.mark.parametrize(
    ("kind", "field", "written", "made", "noted"),
    [
        *(("flux", "postBuild.substituteFrom", {**VALS, "data": {"a": "c"}}, *each) for each in MADE_MAPS),
        *(("release", "valuesFrom", {**VALS, "data": {"a": "c"}}, *each) for each in MADE_MAPS),
        ("release", "chartRef", {**MADE_CHART, "spec": {**MADE_CHART["spec"], "chart": "./app"}}, MADE_CHART, 1),
        ("release", "chartRef", MADE_CHART, MADE_CHART, 0),
        ("release", "chartRef", {"kind": "None"}, MADE_CHART, 1),
        ("release", "chartRef", {"kind": "None"}, {**MADE_CHART, "spec": {"sourceRef": {"kind": "HelmRepository"}}}, 0),
    ],
)
@pytest.mark.parametrize("within", ["conf", "more"])
def test_an_object_that_reads_one_which_a_chart_makes_otherwise_is_noted(
    check: Check,
    program: Program,
    kind: str,
    field: str,
    written: Object,
    made: Object,
    noted: int,
    within: str,
) -> None:
    program(f"test ! -e chart/templates/map.yaml || printf '%s' '{json.dumps(made)}'", "helm")
    reference = {"kind": made["kind"], "name": "vals"}
    one = json.loads(deploying_by(kind, field, [reference] if field.endswith("From") else reference))
    one["metadata"]["namespace"] = "lab"
    one["spec"].pop("chart" if field == "chartRef" else "", None)
    files = {**WEB, "one.yaml": json.dumps(one), "written.yaml": json.dumps(written)}
    files |= {"conf/Chart.yaml": "apiVersion: v2\nname: conf\nversion: 1.2.3\n", "conf/templates/map.yaml": "{{ 1 }}"}
    if within == "more":
        files |= {"more/kustomization.yaml": "helmCharts: [{name: conf}]\nhelmGlobals: {chartHome: ..}\n"}
    notes = "".join(check(files, options=Options(cached=False)).notes)
    assert (f"{made['kind']} vals as {within} makes it" in notes) == noted


ENCRYPTED, SOPS = "ENC[AES256_GCM,data:x,type:str]", {"sops": {"mac": "x"}}


@pytest.mark.parametrize(
    ("one", "more", "unfollowed"),
    [
        (deploying_by("flux", "postBuild", {"substitute": {"a": ENCRYPTED}}), SOPS, 1),
        (deploying_by("flux", "postBuild", {"substitute": {"a": "b"}}), SOPS, 0),
        (deploying_by("flux", "postBuild", {"substitute": {"a": ENCRYPTED}}), {}, 0),
        (deploying_by("release", "values", {"a": ENCRYPTED}), SOPS, 1),
        (deploying_by("release", "values", {"a": "b"}), SOPS, 0),
    ],
)
def test_an_object_of_flux_with_encrypted_texts_is_noted(
    check: Check, program: Program, one: str, more: Object, unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    files = {
        "deploy/one.yaml": json.dumps({**json.loads(one), **more}),
        "deploy/kustomization.yaml": "resources: [one.yaml]\n",
    }
    report = check({**WEB, **files}, options=Options(cached=False))
    assert report.unfollowed == unfollowed
    assert any("team (texts that SOPS has encrypted)" in note for note in report.notes) == bool(unfollowed)


def test_a_patch_with_encrypted_texts_is_noted(check: Check, program: Program) -> None:
    """Flux decrypts patches (kustomize-controller internal/decryptor/decryptor.go, DecryptSources)."""
    program(f"printf '%s' '{POD}'", "helm")
    one = deploying_by("release", "values", {"a": "b"})
    patch = json.dumps({**json.loads(deploying_by("release", "values", {"a": ENCRYPTED})), **SOPS})
    kustomization = "resources: [one.yaml]\npatches: [{path: patch.yaml}]\n"
    files = {"deploy/one.yaml": one, "deploy/patch.yaml": patch, "deploy/kustomization.yaml": kustomization}
    assert check({**WEB, **files}, options=Options(cached=False)).unfollowed == 1


@pytest.mark.parametrize("empty", [{"clusters": {}}, {"clusters": {}, "selector": {}}])
def test_a_generator_next_to_a_list_is_noted(check: Check, empty: Mapping[str, Any]) -> None:
    one = deploying_by("set", "generators", [{"list": {"elements": [{"name": "a"}]}, **empty}])
    assert any("team (generator clusters)" in note for note in check({**WEB, "one.yaml": one}).notes)


MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: vals, namespace: {0}}}\ndata: {{values.yaml: 'a: {1}'}}\n"


@pytest.mark.parametrize(
    ("reference", "maps", "unfollowed"),
    [
        ({"kind": "Secret"}, [], 1),
        ({"kind": "Secret", "optional": True}, [], 1),
        ({"kind": "ConfigMap", "optional": True}, [], 1),
        ({"kind": "ConfigMap"}, [("lab", "1")], 0),
        ({"kind": "ConfigMap", "valuesKey": "gone", "optional": True}, [("lab", "1")], 0),
        ({"kind": "ConfigMap", "valuesKey": "gone"}, [("lab", "1")], 1),
        ({"kind": "ConfigMap"}, [("other", "1")], 1),
        ({"kind": "ConfigMap"}, [("lab", "1"), ("other", "2")], 0),
    ],
)
def test_values_of_a_release_that_no_file_shows_are_noted(
    check: Check, program: Program, reference: Object, maps: list[tuple[str, str]], unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one = json.loads(deploying_by("release", "valuesFrom", [{"name": "vals", **reference}]))
    one["metadata"]["namespace"] = "lab"
    files = {f"deploy/map-{place}.yaml": MAP.format(place, text) for place, text in maps}
    names = ", ".join(name.removeprefix("deploy/") for name in files)
    own = {"deploy/one.yaml": json.dumps(one), "deploy/kustomization.yaml": f"resources: [one.yaml, {names}]\n"}
    assert check({**WEB, **files, **own}, options=Options(cached=False)).unfollowed == unfollowed


@pytest.mark.parametrize(("changed", "judged"), [("vars/one.yaml", {"made"}), ("other/one.yaml", set())])
@pytest.mark.parametrize("files", [{}, {"vars/kustomization.yaml": "resources: [one.yaml]\n"}])
def test_a_map_with_variables_touches_what_reads_it(
    check: Check, files: dict[str, str], changed: str, judged: set[str]
) -> None:
    one = deploying_by("flux", "postBuild", {"substituteFrom": [SHOWN]})
    other = {"other/one.yaml": vars_of("0").replace("name: vars", "name: other"), "vars/one.yaml": vars_of("1")}
    layout = {"deploy/one.yaml": one, "app/pod.yaml": with_gpus("${g}"), **other, **files}
    report = check(layout, changed, options=Options(touched=True))
    assert {each.name for each in report.judged if each.kind == "Pod"} == judged


def reading_values(kind: str, path: str) -> str:
    return deploying_by(kind, path, ["../env/values.yaml" if kind == "argo" else "env/values.yaml"])


CHART_OF_FLUX = json.dumps(
    {
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": "HelmChart",
        "metadata": {"name": "of-flux", "namespace": "lab"},
        "spec": {"chart": "web", "sourceRef": {"kind": "GitRepository", "name": "own"}},
    }
)
RELEASED = {
    "apps/kustomization.yaml": "resources: [one.yaml]\nnamespace: lab\n",
    "apps/one.yaml": "\n---\n".join(
        (
            deploying_by("release", "valuesFrom", [{"name": "vals", "kind": "ConfigMap"}]),
            deploying_by("release", "chartRef", {"kind": "HelmChart", "name": "of-flux"}).replace("team", "other"),
        )
    ),
}
SET_OF_FILES = deploying_by("set", "generators", [{"git": {"files": [{"path": "env/*.json"}]}}])
MAKING = {"apps/kustomization.yaml": "resources: [one.yaml]\npatches: [{path: p.yaml}]\n"}
RENAMING = "kind: Application\nmetadata: {name: team}\nspec: {source: {kustomize: {namePrefix: x-}}}\n"


@pytest.mark.parametrize(
    ("files", "changed"),
    [
        ({**WEB, "one.yaml": reading_values("argo", "source.helm.valueFiles")}, "env/values.yaml"),
        ({**WEB, "one.yaml": reading_values("release", "chart.spec.valuesFiles")}, "env/values.yaml"),
        ({**WEB, "helmfile.yaml": "releases: [{name: r, chart: ./web, values: [env/values.yaml]}]"}, "env/values.yaml"),
        *(
            ({**WEB, "web/Chart.yaml": LOCAL, "lib/Chart.yaml": "name: lib\ntype: library\n", **files}, "lib/_a.tpl")
            for files in (
                {"one.yaml": deploying_by("argo", "project", "x")},
                {"helmfile.yaml": "releases: [{name: r, chart: ./web}]"},
                {"kustomization.yaml": "helmCharts: [{name: web}]\nhelmGlobals: {chartHome: .}\n"},
                {},
            )
        ),
        *(
            ({**WEB, **RELEASED, "maps/map.yaml": MAP.format("lab", "x"), **files}, "maps/map.yaml")
            for files in ({"maps/kustomization.yaml": "resources: [map.yaml]\n"}, {})
        ),
        ({**WEB, **RELEASED, "chart.yaml": CHART_OF_FLUX}, "chart.yaml"),
        ({"web/pod.yaml": POD, "one.yaml": SET_OF_FILES, "env/prod.json": '{"who": "one"}'}, "env/prod.json"),
        ({"web/pod.yaml": POD, "one.yaml": deploying_by("argo", "project", "x")}, "web/kustomization.yaml"),
        ({"web/pod.yaml": POD, "apps/one.yaml": deploying_by("argo", "project", "x"), **MAKING}, "apps/p.yaml"),
        ({"web/pod.yaml": POD, "apps/one.yaml": deploying_by("argo", "project", "x"), **MAKING}, "apps/p.yaml gone"),
    ],
)
def test_each_file_that_decides_what_is_deployed_touches_it(
    check: Check, program: Program, files: dict[str, str], changed: str
) -> None:
    refusing = "while read -r line; do case $line in *library*) echo Error: LIBRARY >&2; exit 1;; esac; done"
    program(f"{refusing.replace('LIBRARY', charts.NO_APPLICATION)} <chart/Chart.yaml; printf '%s' '{POD}'", "helm")
    files = {**files, "env/values.yaml": "a: b", "env/other.yaml": "a: b"}
    if changed == "apps/p.yaml":
        files["apps/p.yaml"] = f"apiVersion: argoproj.io/v1alpha1\n{RENAMING}"
    assert judged(check(files, "env/other.yaml", options=Options(touched=True, cached=False))) == []
    report = check({}, changed.removesuffix(" gone"), options=Options(touched=True, cached=False))
    assert [one.kind for one in report.judged if one.kind != "ConfigMap"] == ["Pod"]


def test_the_values_of_a_release_are_those_of_its_own_root(check: Check, program: Program) -> None:
    asked = program(f"read -r line <values-0.yaml; echo \"$line\" >>${{0%/*}}/asked; printf '%s' '{POD}'", "helm")
    one = json.loads(deploying_by("release", "valuesFrom", [{"name": "vals", "kind": "ConfigMap"}]))
    one["metadata"]["namespace"] = "lab"
    files = dict(WEB)
    for cluster in ("a", "b"):
        files |= {f"{cluster}/one.yaml": json.dumps(one), f"{cluster}/map.yaml": MAP.format("lab", f"of-{cluster}")}
        files[f"{cluster}/kustomization.yaml"] = "resources: [one.yaml, map.yaml]\n"
    assert check(files, options=Options(cached=False)).unfollowed == 0
    assert all(f"a: of-{cluster}" in asked.read_text() for cluster in ("a", "b"))


def test_the_maps_that_are_compared_are_bounded(
    check: Check, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound no ConfigMap is known."""
    program(f"printf '%s' '{POD}'", "helm")
    files = {**WEB, **cluster_of("a", "apps"), "a.yaml": kustomization_of("a")}
    assert check(files, options=Options(cached=False)).unfollowed == 0
    monkeypatch.setattr(releases, "MOST_PAIRS", 1)
    assert check(files, options=Options(cached=False)).unfollowed == 1


@pytest.mark.parametrize(
    ("field", "unfollowed"), [({}, 0), ({"suspend": True}, 1), ({"kubeConfig": {"secretRef": {"name": "other"}}}, 1)]
)
def test_a_map_that_flux_does_not_apply_here_shows_no_values(
    check: Check, program: Program, field: Mapping[str, Any], unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one = json.loads(deploying_by("flux", "path", "maps"))
    one["spec"] |= field
    files = {"maps/map.yaml": MAP.format("lab", "x"), "maps.yaml": json.dumps(one), "one.yaml": RELEASE_OF_MAP}
    assert check({**WEB, **files}, options=Options(cached=False)).unfollowed == unfollowed


@pytest.mark.parametrize(
    ("maps", "unfollowed"),
    [([("lab", "1")], 0), ([("other", "1")], 1), ([("lab", "1"), ("lab", "2")], 1), ([("", "1")], 0)],
)
def test_a_map_of_a_file_counts_as_applied(
    check: Check, program: Program, maps: list[tuple[str, str]], unfollowed: int
) -> None:
    asked = program(f"cat values-0.yaml >&2; printf '%s' '{POD}'", "helm")
    files = {f"map-{number}.yaml": MAP.format(place, text) for number, (place, text) in enumerate(maps)}
    report = check({**WEB, **files, "one.yaml": RELEASE_OF_MAP}, options=Options(cached=False))
    assert report.unfollowed == unfollowed
    assert ("--values values-0.yaml" in asked.read_text()) == (maps[0][0] != "other")


def test_each_release_of_a_file_counts_by_itself(check: Check, program: Program) -> None:
    """Two objects may stand on one line, and two roots may change one object."""
    program(f"printf '%s' '{POD}'", "helm")
    here = json.loads(deploying_by("release", "interval", "1m"))
    other = copy.deepcopy(here)
    other["metadata"]["name"] = "other"
    other["spec"]["values"] = {"limits": {"nvidia.com/gpu": 1}}
    other["spec"]["chart"]["spec"] |= {"chart": "gone", "sourceRef": {"kind": "HelmRepository", "name": "r"}}
    both = {"apiVersion": "v1", "kind": "List", "items": [here, other]}
    assert check({**WEB, "one.yaml": json.dumps({**both, "items": [here]})}).unjudged_pods == 0
    assert check({"one.yaml": json.dumps(both)}, options=Options(cached=False)).unjudged_pods == 1


RELEASE_OF_MAP = json.dumps(
    {
        **json.loads(deploying_by("release", "valuesFrom", [{"name": "vals", "kind": "ConfigMap", "optional": True}])),
        "metadata": {"name": "team", "namespace": "lab"},
    }
)
"""A HelmRelease that reads a ConfigMap, and installs the chart without it too."""


MOUNTED = "spec: {containers: [{name: c, volumeMounts: [{name: v, mountPath: '${c}'}]}]}"

OF_CLUSTER = {"kind": "ConfigMap", "name": "vals", "valuesKey": "${c}.yaml", "optional": True}
"""Values that a release may read, by a variable that only the cluster has."""


@pytest.mark.parametrize("above", [True, False])
@pytest.mark.parametrize(
    ("kind", "path", "value", "unfollowed"),
    [
        ("release", "chart.spec.valuesFiles", ["web/values-${c}.yaml"], True),
        ("release", "chart.spec.chart", "charts/${c}", True),
        ("release", "chart.spec.sourceRef.name", "${c}", True),
        ("release", "valuesFrom", [OF_CLUSTER], True),
        ("release", "values", {"a": "${c}"}, False),
        ("release", "dependsOn", [{"name": "${c}"}], False),
        ("flux", "components", ["../parts/${c}"], True),
        ("flux", "path", "app-${c}", True),
        ("flux", "patches", [{"target": {"kind": "Pod", "name": "${c}"}, "patch": "spec: {hostNetwork: true}"}], True),
        ("flux", "patches", [{"target": {"namespace": "${c}"}, "patch": "spec: {hostNetwork: true}"}], True),
        ("flux", "patches", [{"target": {"kind": "Pod"}, "patch": MOUNTED}], True),
        (
            "flux",
            "patches",
            [{"target": {"kind": "Pod"}, "patch": "- {op: add, path: /spec/runtimeClassName, value: '${c}'}"}],
            True,
        ),
        (
            "flux",
            "patches",
            [{"target": {"kind": "Pod"}, "patch": "- {op: add, path: /spec/hostname, value: '${c}'}"}],
            False,
        ),
        ("flux", "patches", [{"target": {"kind": "Pod"}, "patch": "spec: {hostname: '${c}'}"}], False),
        ("flux", "postBuild", {"substitute": {"a": "${c}"}}, False),
        ("flux", "healthChecks", [{"name": "${c}"}], False),
    ],
)
def test_a_variable_that_only_the_cluster_has_is_noted_where_it_names_something(
    check: Check, program: Program, kind: str, path: str, value: Any, unfollowed: bool, above: bool
) -> None:
    """The object may be made by a Kustomization that another repository has, or by one that is here (`above`)."""
    program(f"printf '%s' '{POD}'", "helm")
    one = json.loads(deploying_by(kind, path, value))
    one["metadata"]["namespace"] = "lab"
    one["spec"] |= {"ignoreMissingComponents": True} if kind == "flux" else {}
    if kind == "release":
        one["spec"]["chart"]["spec"]["ignoreMissingValuesFiles"] = True
    files = {**WEB, "team/one.yaml": json.dumps(one), "team/map.yaml": MAP.format("lab", "1")}
    if above:
        parent = json.loads(deploying_by("flux", "postBuild", {"substituteFrom": [SECRET]}))
        parent["spec"]["path"] = "team"
        files["parent.yaml"] = json.dumps({**parent, "metadata": {"name": "parent", "namespace": "lab"}})
    elif kind == "release":
        files["other.yaml"] = deploying_by("flux", "path", "app")
    report = check(files, options=Options(cached=False))
    assert bool(report.unfollowed) == unfollowed, report.notes
    assert any("(a variable that no file shows" in note for note in report.notes) == unfollowed
    placed = any(note.startswith("rendered with placeholders") for note in report.notes)
    assert placed == (kind == "release" and path == "values")


@pytest.mark.parametrize(("place", "unfollowed"), [("${c}", 1), ("x", 0), ("$${c}", 1)])
def test_a_variable_that_another_one_gives_on_is_not_known(check: Check, place: str, unfollowed: int) -> None:
    one = json.loads(deploying_by("flux", "postBuild", {"substitute": {"class": place}}))
    pod = POD.replace("spec: {", "spec: {runtimeClassName: '${class}', ")
    report = check({"app/pod.yaml": pod, "one.yaml": json.dumps(one)}, options=Options(cached=False))
    assert report.unfollowed == unfollowed


@pytest.mark.parametrize(("origin", "unfollowed"), [("own", 1), ("fork", 0), (None, 0)])
@pytest.mark.parametrize(("kind", "path"), [("flux", "path"), ("argo", "source.path"), ("release", "chart.spec.chart")])
def test_a_path_that_is_not_in_its_own_repository_is_noted(
    check: Check, kind: str, path: str, origin: str | None, unfollowed: int
) -> None:
    if origin:
        Path(".git/config").write_text(ORIGIN.replace("/own", f"/{origin}"))
    one = json.loads(deploying_by(kind, path, "gone"))
    if kind == "flux":
        one["spec"]["sourceRef"]["name"] = "own"
    source = {"metadata": {"name": "own"}, "spec": {"url": "https://git.example/own"}}
    files = {
        "one.yaml": json.dumps(one),
        "own.yaml": json.dumps({"apiVersion": GIT_VERSION, "kind": "GitRepository", **source}),
    }
    report = check({**WEB, **files}, options=Options(cached=False))
    assert report.unfollowed == unfollowed, report.notes
    assert any("is not in the repository" in note for note in report.notes) == bool(unfollowed)


@pytest.mark.parametrize(
    ("name", "text", "installed"),
    [
        ("helmfile-prod.yaml", "releases: [{name: a, chart: ./web}]\n", True),
        ("env/helmfile.prod.yml", "releases: [{name: a, chart: ../web}]\n", True),
        ("helmfile-values.yaml", "limits: {{ 1 }}\nbases: [a]\n", False),
        ("gpu.helmfile.yaml", "releases: [{name: a, chart: ./web}]\n", True),
        ("helmfile/apps.yaml", '{"releases": [{name: a, chart: ../web}]}\n', True),
        ("helmfile/values.yaml", "limits: {{ 1 }}\nmyreleases: [{name: a, chart: ../web}]\n", False),
        ("apps.yaml", "releases: [{name: a, chart: ./web}]\n", False),
    ],
)
def test_a_helmfile_may_have_a_longer_name(
    check: Check, program: Program, name: str, text: str, installed: bool
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    report = check({**WEB, name: text}, options=Options(cached=False))
    assert report.unfollowed == 0, report.notes
    assert any(each.root.startswith("release a of ") for each in report.judged) == installed


@pytest.mark.parametrize(
    ("chart", "note"),
    [
        ("./web", ""),
        ("web", ""),
        ("packed.tgz", "packed, or no chart"),
        ("a/b/packed.tgz", "packed, or no chart"),
        ("app", "packed, or no chart"),
        ("./gone", "not in the repository"),
        ("stable/gone", ""),
        ("./.hidden", "in a hidden folder"),
    ],
)
def test_a_path_of_a_helmfile_that_is_no_chart_is_noted(check: Check, program: Program, chart: str, note: str) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    files = {"packed.tgz": "", "a/b/packed.tgz": "", ".hidden/Chart.yaml": WEB["web/Chart.yaml"]}
    text = f"releases: [{{name: a, chart: {chart}}}]\n"
    report = check({**WEB, **files, "helmfile.yaml": text}, options=Options(cached=False))
    assert bool(report.unfollowed) == bool(note), [*report.notes]
    assert note in "\n".join(report.notes)


def kustomization_of(folder: str) -> str:
    one = json.loads(deploying_by("flux", "path", folder))
    return json.dumps({**one, "metadata": {"name": folder.replace("/", "-"), "namespace": "lab"}})


def two_sources(field: str, value: str) -> dict[str, str]:
    """Write two GitRepositories of one name, of which one has another text in a field."""
    made = {"apiVersion": GIT_VERSION, "kind": "GitRepository", "metadata": {"name": "own", "namespace": "lab"}}
    specs = {"url": "https://git.example/own"}, {"url": "https://git.example/own", field: value}
    return {f"source-{number}.yaml": json.dumps({**made, "spec": spec}) for number, spec in enumerate(specs)}


@pytest.mark.parametrize(
    ("field", "value", "unfollowed"),
    [
        ("url", "https://git.example/own.git", 0),
        ("url", "https://${token}@git.example/own", 0),
        ("url", "https://git.example/other", 1),
        ("url", "https://proxy.example/https://git.example/own", 1),
        ("url", "https://git.example/${owner}/own", 1),
        ("ignore", "map.yaml", 1),
        ("ignore", "other.yaml", 0),
    ],
)
def test_a_source_that_is_another_repository_in_one_file_is_noted(
    check: Check, field: str, value: str, unfollowed: int
) -> None:
    Path(".git/config").write_text(ORIGIN)
    one = json.loads(deploying_by("flux", "sourceRef.name", "own"))
    one["metadata"]["namespace"] = "lab"
    files = {"one.yaml": json.dumps(one), "app/map.yaml": MAP.format("lab", "1"), "app/pod.yaml": POD}
    report = check({**two_sources(field, value), **files}, options=Options(cached=False))
    assert report.unfollowed == unfollowed, report.notes


@pytest.mark.parametrize(("namespace", "unfollowed"), [("flux", 1), ("lab", 0)])
def test_a_chart_names_its_source_from_its_own_namespace(
    check: Check, program: Program, namespace: str, unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    Path(".git/config").write_text(ORIGIN)
    reference = {"kind": "HelmChart", "name": "of-flux", "namespace": namespace}
    one = json.loads(deploying_by("release", "chartRef", reference))
    del one["spec"]["chart"]
    chart = json.loads(CHART_OF_FLUX)
    made = [{**one, "metadata": {"name": "team", "namespace": "lab"}}]
    made.append({**chart, "metadata": {"name": "of-flux", "namespace": namespace}})
    for where, owner in (("lab", ""), ("flux", "mallory/")):
        spec = {"url": f"https://git.example/{owner}own"}
        made.append({"apiVersion": GIT_VERSION, "kind": "GitRepository", "spec": spec})
        made[-1]["metadata"] = {"name": "own", "namespace": where}
    own = json.loads(deploying_by("flux", "sourceRef.name", "own"))
    made.append({**own, "metadata": {"name": "own", "namespace": "lab"}})
    files = {f"{number}.yaml": json.dumps(each) for number, each in enumerate(made)}
    report = check({**WEB, **files}, options=Options(cached=False))
    assert report.unfollowed == unfollowed, report.notes


@pytest.mark.parametrize(("optional", "unfollowed"), [(True, 1), (False, 0)])
def test_optional_values_of_another_root_may_be_missing(
    check: Check, program: Program, optional: bool, unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one = json.loads(RELEASE_OF_MAP)
    one["spec"]["valuesFrom"][0]["optional"] = optional
    files = {"a/one.yaml": json.dumps(one), "b/map.yaml": MAP.format("lab", "1")}
    files |= {f"{each}.yaml": kustomization_of(each) for each in "ab"}
    report = check({**WEB, **files}, options=Options(cached=False))
    assert report.unfollowed == unfollowed, report.notes


@pytest.mark.parametrize(("clusters", "unfollowed"), [("ab", 0), ("a", 1)])
def test_values_that_one_of_two_clusters_lacks_are_noted(
    check: Check, program: Program, clusters: str, unfollowed: int
) -> None:
    """Both clusters have a Kustomization of the same name, and one may make no ConfigMap."""
    program(f"printf '%s' '{POD}'", "helm")
    files = {"base/one.yaml": RELEASE_OF_MAP, "base/kustomization.yaml": "resources: [one.yaml]\n"}
    for each in "ab":
        own = json.loads(kustomization_of(f"apps-{each}"))
        own["metadata"]["name"] = "apps"
        names = "../base, map.yaml" if each in clusters else "../base"
        files |= {f"{each}.yaml": json.dumps(own), f"apps-{each}/kustomization.yaml": f"resources: [{names}]\n"}
        files |= {f"apps-{each}/map.yaml": MAP.format("lab", "1")} if each in clusters else {}
    report = check({**WEB, **files}, options=Options(cached=False))
    assert bool(report.unfollowed) == bool(unfollowed), report.notes


@pytest.mark.parametrize(("origin", "named"), [("own", False), ("other", True), ("fork/own", False)])
def test_sources_with_another_name_than_the_origin_are_named(check: Check, origin: str, named: bool) -> None:
    Path(".git/config").write_text(ORIGIN.replace("/own", f"/{origin}"))
    one = json.loads(deploying_by("flux", "sourceRef.name", "own"))
    one["metadata"]["namespace"] = "lab"
    files = {"one.yaml": json.dumps(one), "app/pod.yaml": POD, **two_sources("interval", "1m")}
    report = check(files, options=Options(cached=False))
    assert any("though the origin is" in note for note in report.notes) == named
    assert [each.name for each in report.judged if each.kind == "Pod"] == ["made"]


def cluster_of(folder: str, *parts: str) -> dict[str, str]:
    """Write a folder with a Kustomization for each part, of which each has a ConfigMap, and the first a HelmRelease."""
    files = {f"{folder}/{part}.yaml": kustomization_of(f"{folder}-{part}") for part in parts}
    files |= {f"{folder}-{part}/map.yaml": MAP.format("lab", part) for part in parts}
    return {**files, f"{folder}-{parts[0]}/one.yaml": RELEASE_OF_MAP}


@pytest.mark.parametrize(
    ("files", "unfollowed"),
    [
        (cluster_of("a", "apps", "infra"), 1),
        ({**cluster_of("a", "apps"), "a/map.yaml": MAP.format("lab", "x")}, 1),
        ({**cluster_of("a", "apps"), **cluster_of("b", "infra")}, 0),
        ({**cluster_of("a", "apps", "infra"), "a-infra/map.yaml": MAP.format("lab", "apps")}, 0),
        ({**cluster_of("a", "apps", "infra"), "a-infra/map.yaml": MAP.format("other", "infra")}, 0),
    ],
)
def test_a_map_of_which_a_cluster_has_two_shows_no_values(
    check: Check, program: Program, files: dict[str, str], unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    clusters = {f"{each}.yaml": kustomization_of(each) for each in "ab" if f"{each}/apps.yaml" in files}
    report = check({**WEB, **clusters, **files}, options=Options(cached=False))
    assert report.unfollowed == unfollowed, report.notes


@pytest.mark.parametrize(
    ("text", "build", "unfollowed"),
    [
        ("${X:=1}", {"substituteFrom": [SECRET]}, 1),
        ("1", {"substituteFrom": [SECRET]}, 0),
        ("${X:=1}", {"substitute": {"X": "2"}}, 0),
        ("${X#1}", {"substitute": {"X": "2"}}, 1),
    ],
)
def test_values_with_a_variable_that_no_file_shows_are_noted(
    check: Check, program: Program, text: str, build: Mapping[str, Any], unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    one, of_flux = json.loads(RELEASE_OF_MAP), json.loads(deploying_by("flux", "postBuild", build))
    of_flux["metadata"]["namespace"] = "lab"
    files = {"deploy/one.yaml": json.dumps(of_flux), "app/one.yaml": json.dumps(one)}
    report = check({**WEB, **files, "app/map.yaml": MAP.format("lab", text)}, options=Options(cached=False))
    assert report.unfollowed == unfollowed
    assert any("HelmRelease lab/team (values from" in note for note in report.notes) == bool(unfollowed)


@pytest.mark.parametrize(
    ("metadata", "unfollowed"),
    [
        ({"annotations": {"kustomize.toolkit.fluxcd.io/reconcile": "disabled"}}, 1),
        ({"labels": {"kustomize.toolkit.fluxcd.io/reconcile": "Disabled"}}, 1),
        ({"annotations": {"kustomize.toolkit.fluxcd.io/ssa": "Ignore"}}, 1),
        ({"annotations": {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}}, 1),
        ({"annotations": {"kustomize.toolkit.fluxcd.io/prune": "disabled"}}, 0),
        ({"annotations": {"kustomize.toolkit.fluxcd.io/ssa": "Merge"}}, 0),
    ],
)
def test_a_map_that_flux_does_not_change_shows_no_values(
    check: Check, program: Program, metadata: Object, unfollowed: int
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    map_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vals", "namespace": "lab", **metadata}}
    files = {
        "deploy/map.yaml": json.dumps({**map_, "data": {"values.yaml": "a: 2"}}),
        "deploy/one.yaml": RELEASE_OF_MAP,
    }
    files |= {"deploy/kustomization.yaml": "resources: [one.yaml, map.yaml]\n", "app/pod.yaml": with_gpus("${g:=0}")}
    assert check({**WEB, **files}, options=Options(cached=False)).unfollowed == unfollowed
    of_flux = json.loads(deploying_by("flux", "postBuild", {"substituteFrom": [{**SHOWN, "name": "vals"}]}))
    of_flux["metadata"]["namespace"] = "lab"
    both = check({**files, "flux/one.yaml": json.dumps(of_flux)}, options=Options(cached=False))
    assert both.unfollowed == 2 * unfollowed


@pytest.mark.parametrize(("name", "unfollowed"), [("vals", 1), ("vals-hash", 0)])
def test_a_generated_map_has_its_hash_where_flux_looks_for_it(
    check: Check, program: Program, name: str, unfollowed: int
) -> None:
    """kustomize writes the hash into no HelmRelease, unless its configuration says so."""
    program(f"printf '%s' '{POD}'", "helm")
    made = "\n---\n".join((RELEASE_OF_MAP.replace("vals", name), MAP.format("lab", "1").replace("vals", "vals-hash")))
    program(f"printf '%s' '{made}'")
    generator = "configMapGenerator: [{name: vals, namespace: lab, literals: ['values.yaml=a: 1']}]\n"
    files = {"deploy/one.yaml": RELEASE_OF_MAP, "deploy/kustomization.yaml": f"resources: [one.yaml]\n{generator}"}
    assert check({**WEB, **files}, options=Options(cached=False)).unfollowed == unfollowed


def test_many_maps_and_readers_are_merged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    merged = Counter[str]()
    own = variables.MergedMap.merged
    monkeypatch.setattr(variables.MergedMap, "merged", lambda self, other: (merged.update(["x"]), own(self, other))[1])
    many = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vars", **where}, "data": {"g": str(number)}}
        for number in range(50)
        for where in ({}, {"namespace": "lab"})
    ]
    maps = variables.Maps(map(variables.MapObject, many))
    reader = {"metadata": {"namespace": "lab"}, "spec": {"postBuild": {"substituteFrom": [SHOWN]}}}
    assert [variables.variables(reader, maps).unsure for _ in range(20)] == [{"g"}] * 20
    assert merged.total() == 1


def test_labels_that_flux_sets_later_stop_no_substitution(check: Check) -> None:
    one = json.loads(deploying_by("flux", "postBuild", {"substituteFrom": [SECRET]}))
    one["spec"]["commonMetadata"] = {"labels": {"kustomize.toolkit.fluxcd.io/substitute": "disabled"}}
    assert check({"app/pod.yaml": with_gpus("${g:=0}"), "deploy/one.yaml": json.dumps(one)}).unfollowed == 1


def test_a_variable_of_flux_fills_in_a_key(check: Check) -> None:
    pod = POD.replace("spec: {", "spec: {'${field}': t4-shared, ")
    one = deploying_by("flux", "postBuild", {"substitute": {"field": "nodeName"}})
    report = check({"deploy/one.yaml": one, "app/pod.yaml": pod})
    assert [result.rule for result in report.judged[0].verdict.results] == ["chosen-node"]


@pytest.mark.parametrize(
    ("names", "defaults"),
    [
        (["web/values.yaml", "web/prod.yaml"], {"a": None, "b": {"c": 1, "d": 2}}),
        (["web/prod.yaml", "web/values.yaml"], {"a": 1, "b": {"c": 1, "d": 3}}),
        (["web/prod.yaml"], {"a": None, "b": {"d": 2}}),
        (["gone.yaml"], {}),
        (["../web/prod.yaml", "/../gone/../../web/values.yaml"], {"a": 1, "b": {"c": 1, "d": 3}}),
    ],
)
def test_the_values_files_of_a_release_take_the_place_of_the_charts_own(
    check: Check, program: Program, names: list[str], defaults: Object
) -> None:
    """A null there does not remove what a subchart has, as it does among the values of a release."""
    asked = program(f"{LINES.format('chart.tgz')}; printf '%s' '{POD}'", "helm")
    files = {"web/values.yaml": "a: 1\nb: {c: 1, d: 3}\n", "web/prod.yaml": "---\na: null\nb: {d: 2}\n---\n# no more\n"}
    fields = {"chart": "web", "sourceRef": {"kind": "GitRepository", "name": "own"}, "ignoreMissingValuesFiles": True}
    one = deploying_by("release", "chart.spec", {**fields, "valuesFiles": names})
    assert check({**WEB, **files, "deploy/one.yaml": one}, options=Options(cached=False)).unfollowed == 0
    assert json.loads(asked.read_text().splitlines()[1]) == defaults


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("a: 1\n---\na: 2", True),
        ("---\n---\na: 2", True),
        ("# one\n---\na: 1\n--- # two\na: 2", True),
        ("%YAML 1.1\n---\na: 1\n---\n# no more\n", False),
        ("\n---\na: |\n  ---\n", False),
        ("a: 1\n----\n", False),
    ],
)
def test_values_with_a_second_document_are_noted(check: Check, program: Program, text: str, noted: bool) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    map_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vals", "namespace": "lab"}}
    files = {"deploy/map.yaml": json.dumps({**map_, "data": {"values.yaml": text}}), "deploy/one.yaml": RELEASE_OF_MAP}
    files |= {"deploy/kustomization.yaml": "resources: [one.yaml, map.yaml]\n"}
    assert check({**WEB, **files}, options=Options(cached=False)).unfollowed == noted


TWINS = {
    "web/Chart.yaml": named(
        "web", "dependencies: [{name: worker, alias: a, version: 1.0.0}, {name: worker, alias: b, version: 2.0.0}]\n"
    ),
    "web/charts/a/Chart.yaml": named("worker", version="1.0.0"),
    "web/charts/b/Chart.yaml": named("worker", version="2.0.0"),
}

REVISION = "[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "package"),
        ({"version": "9.9.9", "reconcileStrategy": "ChartVersion", "valuesFiles": []}, "package"),
        ({"reconcileStrategy": "Revision"}, rf"package --version=1\.2\.3\+{REVISION}"),
        ({"valuesFiles": ["web/values.yaml"]}, r"package --version=1\.2\.3\+1"),
        (
            {"reconcileStrategy": "Revision", "valuesFiles": ["web/values.yaml"]},
            rf"package --version=1\.2\.3\+{REVISION}\.1",
        ),
    ],
)
def test_a_chart_is_packed_once_with_the_version_that_flux_writes(
    check: Check, program: Program, fields: Mapping[str, Any], words: str
) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    spec = {"chart": "web", "sourceRef": {"kind": "GitRepository", "name": "own"}, **fields}
    both = {f"{name}.yaml": deploying_by("release", "chart.spec", spec).replace("team", name) for name in ("a", "b")}
    assert check({**WEB, **both}, options=Options(cached=False)).unfollowed == 0
    (line,) = (asked.parent / "packed").read_text().splitlines()
    assert re.fullmatch(rf"{words} -- chart", line)
    assert [line.rsplit(" ", 2)[1:] for line in sorted(asked.read_text().splitlines())] == [
        ["a", "chart.tgz"],
        ["b", "chart.tgz"],
    ]


def test_the_version_of_a_chart_from_an_oci_repository_names_its_digest(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    source = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository", "metadata": {"name": "web"}}
    release = json.loads(deploying_by("release", "chartRef", {"kind": "OCIRepository", "name": "web"}))
    del release["spec"]["chart"]
    files = {f"charts/{name}": text for name, text in WEB.items()}
    files |= {"source.yaml": json.dumps({**source, "spec": {"url": "oci://registry.example/web"}})}
    check({**files, "one.yaml": json.dumps(release)})
    assert re.fullmatch(rf"package --version=1\.2\.3\+{REVISION} -- chart\n", (asked.parent / "packed").read_text())


@pytest.mark.parametrize(
    ("files", "fields", "reason"),
    [
        ({"web/notes\\templates\\pod.txt": POD}, {}, r"it is packed, and Helm reads .* as a file in a folder"),
        (TWINS, {}, "it has several charts named worker, and Flux packs them as one"),
        ({"web/Chart.yaml": named("web", version="x")}, {"reconcileStrategy": "Revision"}, 'version, and "x" is none'),
        ({"web/Chart.yaml": named("web", version="x")}, {}, ""),
        (WEB, {"reconcileStrategy": "Revision"}, ""),
    ],
)
def test_a_chart_that_flux_packs_otherwise_is_not_rendered(
    check: Check, program: Program, files: dict[str, str], fields: Mapping[str, Any], reason: str
) -> None:
    """Argo CD does not pack it."""
    program(f"printf '%s' '{POD}'", "helm")
    spec = {"chart": "web", "sourceRef": {"kind": "GitRepository", "name": "own"}, **fields}
    report = check({**WEB, **files, "one.yaml": deploying_by("release", "chart.spec", spec)})
    assert report.unfollowed == bool(reason)
    assert any(re.search(f"HelmRelease team not rendered: .*{reason}", note) for note in report.notes) == bool(reason)
    assert check({"one.yaml": deploying_by("argo", "project", "x")}).unfollowed == 0


HELM_CHART = """\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {{name: web, namespace: lab}}
spec: {{chart: {0}, version: '{1}', sourceRef: {{kind: GitRepository, name: own}}}}
"""


def test_each_chart_of_one_name_is_rendered(check: Check, program: Program) -> None:
    """Files may be of several clusters."""
    program(f"printf '%s' '{POD}'", "helm")
    one = json.loads(deploying_by("release", "chartRef", {"kind": "HelmChart", "name": "web"}))
    one["metadata"]["namespace"] = "lab"
    del one["spec"]["chart"]
    files = {"deploy/one.yaml": json.dumps(one), "other/Chart.yaml": WEB["web/Chart.yaml"], **WEB}
    files |= {f"{chart}.yaml": HELM_CHART.format(chart, "1") for chart in ("web", "other")}
    report = check(files, options=Options(cached=False))
    assert [one.file for one in report.judged if one.root == "HelmRelease lab/team"] == ["other", "web"]
    files |= {f"{number}.yaml": HELM_CHART.format("web", number) for number in range(2, deploying.MOST_CHARTS + 1)}
    assert check(files, options=Options(cached=False)).unfollowed == 1


def test_objects_of_flux_that_change_each_other_end(check: Check) -> None:
    patch = "patches: [{target: {kind: Kustomization}, patch: '[{op: add, path: /metadata/labels, value: {a: b}}]'}]"
    first = flux("first", "deploy", "one").replace("spec: {", f"spec: {{namePrefix: x-, {patch}, ")
    report = check({"deploy/ks.yaml": f"{first}---\n{flux('second', 'app', 'two')}", "app/pod.yaml": DOOR})
    assert [one.namespace for one in report.judged] == ["two"]


WITH_CHART = {
    "base/kustomization.yaml": "helmCharts: [{name: web, releaseName: made, valuesFile: values.yaml}]\n",
    "base/values.yaml": "devices: void\n",
    "base/charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n",
    "base/charts/web/templates/pod.yaml": "{{ .Values.pod }}\n",
    **{f"{each}/kustomization.yaml": f"namespace: {each}\nresources: [../base]\n" for each in ("one", "two")},
    "other/kustomization.yaml": "resources: [pod.yaml]\n",
    "other/pod.yaml": POD,
}


def test_a_chart_of_a_base_is_rendered_once_for_all_overlays_with_its_namespace(check: Check, program: Program) -> None:
    asked = program(f"printf '%s' '{POD.replace(', namespace: lab', '')}'", "helm")
    files = {**WITH_CHART, "base/kustomization.yaml": f"namespace: own\n{WITH_CHART['base/kustomization.yaml']}"}
    report = check(files, options=Options(cached=False, version="v1.34.1"))  # kustomize gives helm no version
    own = "base/charts/web"
    assert judged(report) == [f"{own} one one", f"{own} two two", "other/pod.yaml lab other"]
    assert asked.read_text() == f"{TEMPLATING} --namespace own --values values-0.yaml -- made chart\n"


OF_ARGO = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a, namespace: argocd}\n"
    "spec: {source: {repoURL: 'https://git.example/x', path: PATH, kustomize: {namespace: one}}}\n"
)


@pytest.mark.parametrize(
    ("files", "namespaces"),
    [
        ({"o/kustomization.yaml": "namespace: one\nresources: [../base]\n"}, ["one"]),
        (
            {
                "o/kustomization.yaml": "namespace: one\nresources: [../mid]\n",
                "mid/kustomization.yaml": "resources: [../base]\n",
            },
            ["one"],
        ),
        (
            {
                "o/kustomization.yaml": "namespace: one\nresources: [../mid]\n",
                "mid/kustomization.yaml": "namespace: mid\nresources: [../base]\n",
            },
            ["mid"],
        ),
        (
            {
                "o/kustomization.yaml": "resources: [../a, ../b]\n",
                "a/kustomization.yaml": "namespace: one\nresources: [../base]\n",
                "b/kustomization.yaml": "namespace: two\nresources: [../base]\n",
            },
            ["one", "two"],
        ),
        (
            {
                "o/kustomization.yaml": "namespace: one\nresources: [pod.yaml]\ncomponents: [../mid]\n",
                "o/pod.yaml": POD,
                "mid/kustomization.yaml": f"{COMPONENT}resources: [../base]\n",
            },
            ["one"],
        ),
        (
            {
                "o/kustomization.yaml": "resources: [../base]\ncomponents: [../mid]\n",
                "mid/kustomization.yaml": f"{COMPONENT}namespace: one\n",
            },
            ["default"],
        ),
        ({"app.yaml": OF_ARGO.replace("PATH", "base")}, ["one"]),
        (
            {
                "app.yaml": OF_ARGO.replace("PATH", "mid"),
                "mid/kustomization.yaml": "namespace: mid\nresources: [../base]\n",
            },
            ["one"],
        ),
    ],
)
def test_helm_gets_the_namespace_of_the_nearest_kustomization_around_a_chart(
    check: Check, program: Program, files: dict[str, str], namespaces: list[str]
) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    base = {name: text for name, text in WITH_CHART.items() if name.startswith("base/")}
    check({**base, **files}, options=Options(cached=False))
    assert sorted(re.findall("--namespace ([a-z]+)", asked.read_text())) == namespaces


@pytest.mark.parametrize(
    ("fleet", "versions"),
    [
        (OF_ARGO.replace("PATH", "one"), {"one": "v1.34.1", "two": ""}),
        (flux("app", "one", "one"), {"one": "", "two": ""}),
        ("", {"one": "", "two": ""}),
    ],
)
def test_argo_cd_gives_the_version_of_the_cluster_to_charts_of_a_kustomization(
    check: Check, program: Program, fleet: str, versions: dict[str, str]
) -> None:
    asked = program(f"printf '%s' '{POD}'", "helm")
    check({**WITH_CHART, "fleet.yaml": fleet}, options=Options(cached=False, version="v1.34.1"))
    given = re.findall("--namespace ([a-z]+) (?:--kube-version ([^ ]+))?", asked.read_text())
    assert dict(given) == versions


def test_a_chart_in_several_namespaces_of_one_root_is_judged_in_each(check: Check, program: Program) -> None:
    program("exit 1")
    program(
        'printf "%s\\n" "apiVersion: v1" "kind: Pod" "metadata: {name: $4}" "spec: {containers: [{name: c}]}"', "helm"
    )
    both = {"o/kustomization.yaml": "resources: [../one, ../two]\n"}
    report = check({**WITH_CHART, **both}, options=Options(cached=False))
    assert sorted((one.namespace, one.name) for one in report.judged if one.root == "o") == [
        ("one", "one"),
        ("two", "two"),
    ]
    assert [each.file for each in report.problems] == ["other"]  # one copy of the base has its objects once
    assert "o (a chart in several namespaces, followed by the files)" in "".join(report.notes)
    assert report.unfollowed == 1


def test_a_component_changes_what_a_chart_makes(check: Check, program: Program) -> None:
    """kustomize applies components after its generators (api/internal/target/kusttarget.go, accumulateTarget)."""
    program(f"printf '%s' '{POD}'", "helm")
    base = {**WITH_CHART, "base/kustomization.yaml": "helmCharts: [{name: web}]\ncomponents: [../more]\n"}
    more = f"{COMPONENT}namePrefix: more-\n"
    report = check({**base, "more/kustomization.yaml": more}, options=Options(cached=False))
    assert {one.name for one in report.judged if one.root == "one"} == {"more-made"}


@pytest.mark.parametrize(
    ("pattern", "noted"), [("w.*r.*-.*", True), (r"\pL+", True), ("[[:alpha:]]+", True), ("m.*e|[a-z]", False)]
)
def test_a_pattern_that_only_the_program_reads_is_noted_without_it(check: Check, pattern: str, noted: bool) -> None:
    patch = f"patches: [{{target: {{kind: Pod, name: '{pattern}'}}, patch: '{ASIDE}'}}]\n"
    report = check({"kustomization.yaml": f"resources: [pod.yaml]\n{patch}", "pod.yaml": POD})
    assert (report.unfollowed, "(targets of patches not followed)" in "".join(report.notes)) == (noted, noted)


@pytest.mark.parametrize("above", ["namespace: one\nresources: [../base]\n", "Namespace: one\nReſourceſ: [../base]\n"])
def test_a_key_in_another_case_counts_around_a_chart(check: Check, program: Program, above: str) -> None:
    program(f"printf '%s' '{POD}'")
    asked = program(f"printf '%s' '{POD}'", "helm")
    base = {name: text for name, text in WITH_CHART.items() if name.startswith("base/")}
    report = check({**base, "o/kustomization.yaml": above}, options=Options(cached=False))
    assert (asked.read_text().count("--namespace one"), report.unfollowed) == (1, 0)


LINES = 'while read -r line || [ -n "$line" ]; do echo "$line"; done <{} >>"${{0%/*}}/asked"'
"""A command by which a pretended helm shows a file."""


def test_more_values_files_of_a_kustomization_count_after_its_own_values(check: Check, program: Program) -> None:
    asked = program(f"for each in values-*; do {LINES.format('$each')}; done; printf '%s' '{POD}'", "helm")
    chart = "{name: web, valuesFile: a.yaml, additionalValuesFiles: [b.yaml], valuesInline: {a: inline}}"
    files = {"kustomization.yaml": f"helmCharts: [{chart}]\nhelmGlobals: {{chartHome: .}}\n"}
    check({**WEB, **files, "a.yaml": "a: first\n", "b.yaml": "a: last\n"}, options=Options(cached=False))
    assert asked.read_text().splitlines()[1:] == ['{"a": "inline"}', "a: last"]


@pytest.mark.parametrize(
    ("entry", "chosen"),
    [
        ("name: web", "charts/web"),
        ("name: web, version: 1.2.3", "charts/web"),
        ("name: web, version: 1.2.3, repo: 'https://charts.example'", "charts/web-1.2.3/web"),
        ("name: web, version: 1.2.4, repo: 'https://charts.example'", ""),
    ],
)
def test_a_chart_with_an_address_is_where_kustomize_has_it(
    check: Check, program: Program, entry: str, chosen: str
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    folders = ("charts/web", "charts/web-1.2.3/web")
    files = {f"{folder}/{name}": text for folder in folders for name, text in (("Chart.yaml", WEB["web/Chart.yaml"]),)}
    report = check({**files, "kustomization.yaml": f"helmCharts: [{{{entry}}}]\n"}, options=Options(cached=False))
    assert [one.file for one in report.judged if one.root == "."] == ([chosen] if chosen else [])
    assert any("--version=1.2.4" in note for note in report.notes) != bool(chosen)


@pytest.mark.parametrize(
    ("entry", "given"),
    [
        ("name: web", ["a: {b: null}"]),
        ("name: web, valuesFile: v.yaml", ["c: 1"]),
        ("name: web, valuesInline: {d: 1}", ['{"a": {"b": null}, "d": 1}']),
    ],
)
def test_the_own_values_of_a_chart_are_given_as_kustomize_does(
    check: Check, program: Program, entry: str, given: list[str]
) -> None:
    asked = program(f"for each in values-*; do {LINES.format('$each')}; done; printf '%s' '{POD}'", "helm")
    own = {"kustomization.yaml": f"helmCharts: [{{{entry}}}]\nhelmGlobals: {{chartHome: .}}\n", "v.yaml": "c: 1\n"}
    check({**WEB, **own, "web/values.yaml": "a: {b: null}\n"}, options=Options(cached=False))
    assert asked.read_text().splitlines()[1:] == given


@pytest.mark.parametrize(("changed", "roots"), [("web/templates", {"web"}), ("other", set())])
def test_a_link_to_a_folder_that_has_changed_touches_a_chart(
    check: Check, program: Program, changed: str, roots: set[str]
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    check({"tt/p.txt": "", "web/Chart.yaml": "name: web\n"}, "tt/p.txt")
    Path("web/templates").symlink_to("../tt")
    Path("other").symlink_to("tt")
    report = check({}, changed, options=Options(touched=True, cached=False))
    assert {one.root for one in report.judged} == roots


@pytest.mark.parametrize("name", ["base/values.yaml", "base/charts/web/templates/pod.yaml"])
def test_a_change_of_a_chart_touches_the_kustomizations_that_include_it(
    check: Check, program: Program, name: str
) -> None:
    program(f"printf '%s' '{POD}'", "helm")
    check(WITH_CHART)
    report = check({}, name, options=Options(touched=True, cached=False))
    assert {one.root for one in report.judged} == {"one", "two"}


def test_a_chart_that_fails_leaves_the_rest_of_its_kustomization(check: Check, program: Program) -> None:
    program("echo 'Error: a value is required' >&2; exit 1", "helm")
    report = check({**WITH_CHART, "one/kustomization.yaml": "resources: [../base, ../other/pod.yaml]\n"})
    assert (judged(report), report.problems) == (["other/pod.yaml lab one"], ())
    assert "2 charts (one, two) not rendered: a value is required" in report.notes


def test_a_failure_names_no_folder_of_the_machine(check: Check, program: Program) -> None:
    program('echo "Error: $PWD/a/x: no such field" >&2; exit 1')
    assert [str(each) for each in check(IDLE).problems] == ["a: not rendered: a/x: no such field"]


class Counted(dict[str, Any]):
    """A map that counts how often it is asked."""

    asked = 0

    def get(self, key: str, default: Any = None) -> Any:
        Counted.asked += 1
        return super().get(key, default)


def test_rendered_objects_are_found_by_an_index() -> None:
    def asked(number: int) -> int:
        names = [f"made-{each}" for each in range(number)]
        maps = [Counted(apiVersion="v1", kind="ConfigMap", metadata=Counted(name=name)) for name in names]
        Counted.asked = 0
        index = followed.BuiltIndex(followed.Built(each, followed.id_of(each), ()) for each in maps)
        for name, value in zip(names, maps, strict=True):
            made = Counted(apiVersion="v1", kind="ConfigMap", metadata=Counted(name=f"{name}-7h4k2m", namespace="lab"))
            assert index.find(made) is not None
            assert index.find(made).value is value  # type: ignore[union-attr]
        return Counted.asked

    assert asked(400) == 4 * asked(100)


def test_a_rendered_object_is_found_by_its_namespace_first() -> None:
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": each}} for each in ("one", "two")
    ]
    objects = [followed.Built(each, followed.id_of(each), ()) for each in pods]
    index = followed.BuiltIndex(objects)
    assert index.find(objects[1].value) is objects[1]
    assert index.find({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}) is objects[0]
    assert index.find({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b-a"}}) is None


@pytest.mark.parametrize(
    "evil",
    [
        "patches: [{path: ../deploy/door.yaml, target: {kind: Secret}}]\n",
        "resources: [c.yaml]\npatches: [{path: ../deploy/door.yaml, target: {kind: ConfigMap}}]\n",
        "resources: [c.yaml]\npatchesStrategicMerge: [../deploy/door.yaml]\n",
        "resources: [door.yaml]\npatches: [{path: ../deploy/door.yaml}]\n",
        "resources: [../deploy/door.yaml]\npatches: [{target: {kind: Pod}, patch: '{$patch: delete}'}]\n",
        "resources: [../deploy/door.yaml]\npatches: [{target: {kind: Pod}, patch: '[{op: remove, path: /spec}]'}]\n",
    ],
)
@pytest.mark.parametrize("more", ["", "$patch: delete\n"])
def test_no_kustomization_of_another_folder_hides_a_whole_object(check: Check, evil: str, more: str) -> None:
    report = check(
        {
            "deploy/door.yaml": DOOR + more,
            "evil/kustomization.yaml": evil,
            "evil/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: lab}\n",
            "evil/door.yaml": POD.replace("made", "door"),
        }
    )
    assert [one.verdict.allowed for one in report.judged if (one.file, one.root) == ("deploy/door.yaml", "")] == [False]


@pytest.mark.parametrize("folder", [".", "a"])
def test_no_kustomization_above_hides_a_whole_object_as_its_patch(check: Check, folder: str) -> None:
    evil = "resources: []\npatches: [{path: b/door.yaml, target: {name: nothing}}]\n"
    report = check({"a/b/door.yaml": DOOR, "a/kustomization.yaml": evil}, folder)
    assert [(one.file, one.verdict.allowed) for one in report.judged] == [("a/b/door.yaml", False)]
    assert any("name them as patches: a/b/door.yaml" in note for note in report.notes)


NO_SPEC = "patches: [{target: {kind: Pod}, patch: '[{op: replace, path: /spec, value: {containers: []}}]'}]\n"
GONE = (
    "patches: [{target: {kind: Pod}, patch: '{$patch: delete, apiVersion: v1, kind: Pod, metadata: {name: door}}'}]\n"
)


@pytest.mark.parametrize("change", [NO_SPEC, GONE], ids=["replaced", "deleted"])
@pytest.mark.parametrize("folder", ["", "top/"])
def test_a_kustomization_above_that_undoes_a_denial_is_noted(check: Check, change: str, folder: str) -> None:
    files = {f"{folder}apps/door.yaml": DOOR, f"{folder}kustomization.yaml": "resources: [apps/door.yaml]\n" + change}
    report = check(files)
    assert report.count(allowed=False) == 0
    assert [f"{folder}apps/door.yaml" in note for note in report.notes if "as they are written" in note] == [True]


TRUSTED = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: NS, annotations: {slicewarden.dev/trust: trusted}}\n"
    "spec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu.shared: 1}}}]}\n"
)

MOVING = {
    "flux": {"fleet.yaml": flux("app", "app", "vision")},
    "argo": {"fleet.yaml": OF_ARGO.replace("PATH", "app").replace("one", "vision")},
    "above": {"kustomization.yaml": "namespace: vision\nresources: [app/pod.yaml]\n"},
}


@pytest.mark.parametrize(
    ("own", "noted"), [("namespace: visitors, ", True), ("namespace: vision, ", False), ("", False)]
)
@pytest.mark.parametrize("by", MOVING)
def test_an_object_that_is_moved_to_a_trusted_namespace_is_noted(
    check: Check, by: str, own: str, *, noted: bool
) -> None:
    """One without a namespace is created wherever somebody says."""
    own_folder = {} if by == "above" else {"app/kustomization.yaml": "resources: [pod.yaml]\n"}
    report = check({**MOVING[by], **own_folder, "app/pod.yaml": TRUSTED.replace("namespace: NS, ", own)})
    assert [(one.namespace, one.verdict.allowed) for one in report.judged] == [("vision", True)]
    assert ["app/pod.yaml" in note for note in report.notes if "as they are written" in note] == [True] * noted


WORKFLOW = (
    "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w, namespace: lab}\n"
    "spec: {templates: [{name: a, container: {image: i, resources: {limits: {nvidia.com/gpu.shared: 2}}MORE}}]}\n"
)


@pytest.mark.parametrize("by", ["nothing", "argo"])
@pytest.mark.parametrize(
    ("text", "denied", "noted"),
    [
        (WORKFLOW.replace("MORE", ", 'resources${A:=}': {}"), {"nothing": True, "argo": True}, set()),
        (DOOR.replace("all", "'${A:=void}'"), {"nothing": False, "argo": True}, {"nothing"}),
        (DOOR.replace("all", "'${A:=all}'"), {"nothing": True, "argo": True}, set()),
        (POD.replace("image: i", "image: '${A:=i}'"), {"nothing": False, "argo": False}, set()),
    ],
)
def test_placeholders_of_a_folder_that_flux_does_not_deploy_hide_nothing(
    check: Check, by: str, text: str, denied: dict[str, bool], noted: set[str]
) -> None:
    """kubectl and Argo CD create objects with their placeholders."""
    files = {"fleet.yaml": flux("other", "other", "lab"), "other/pod.yaml": POD.replace("made", "other")}
    files |= {"app/kustomization.yaml": "resources: [pod.yaml]\n", "app/pod.yaml": text}
    if by == "argo":
        files["app.yaml"] = OF_ARGO.replace("PATH", "app").replace(", kustomize: {namespace: one}", "")
    report = check(files)
    assert [one.verdict.allowed for one in report.judged if one.file == "app/pod.yaml"] == [not denied[by]]
    assert any("as they are written" in note for note in report.notes) == (by in noted)


@pytest.mark.parametrize(
    ("own", "noted"), [("namespace: visitors, ", True), ("namespace: vision, ", False), ("", True)]
)
@pytest.mark.parametrize("base", [False, True])
def test_an_object_of_a_chart_in_a_namespace_of_its_own_is_noted(
    check: Check, program: Program, own: str, base: bool, *, noted: bool
) -> None:
    """Older releases of kustomize move it, and newer ones do not."""
    program(f"printf '%s' '{TRUSTED.replace('namespace: NS, ', own)}'", "helm")
    chart = "helmCharts: [{name: web}]\nhelmGlobals: {chartHome: ..}\n"
    files = {"k/kustomization.yaml": f"namespace: vision\n{'resources: [../base]' if base else chart}\n"}
    files |= {"base/kustomization.yaml": chart} if base else {}
    report = check({"web/Chart.yaml": WEB["web/Chart.yaml"], "web/templates/p.yaml": "{{ 1 }}", **files})
    assert [(one.namespace, one.verdict.allowed) for one in report.judged] == [("vision", True)]
    assert ["web" in note for note in report.notes if "as they are written" in note] == [True] * noted


def test_a_folder_above_is_no_other_folder(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    own = "resources: [pod.yaml]\npatches: [{path: door.yaml}]\n"
    check({"a/door.yaml": DOOR, "a/kustomization.yaml": own, "a/pod.yaml": POD.replace("made", "door")})
    monkeypatch.chdir(tmp_path / "here")
    report = check({}, "../a")
    assert not any("name them as patches" in note for note in report.notes)


@pytest.mark.parametrize(("resources", "noted"), [("[cm.yaml]", True), ("[cm.yaml, door.yaml]", False)])
def test_a_whole_object_that_only_patches_for_argo_cd_is_noted(check: Check, resources: str, *, noted: bool) -> None:
    """Its folder is the one that the Application deploys, so the file would belong to that."""
    patches = [{"path": "door.yaml", "target": {"kind": "ConfigMap"}}]
    files = {
        "one.yaml": deploying_by("argo", "source.kustomize", {"patches": patches}),
        "web/kustomization.yaml": f"resources: {resources}\n",
        "web/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: lab}\n",
        "web/door.yaml": DOOR,
    }
    report = check(files)
    assert any("as they are written" in note and "web/door.yaml" in note for note in report.notes) == noted
    assert (report.count(allowed=False) == 1) != noted


@pytest.mark.parametrize(
    "files",
    [
        {"door.yaml": DOOR, "kustomization.yaml": "resources: [door.yaml]\n" + NO_SPEC},
        {"app/door.yaml": DOOR, "kustomization.yaml": "resources: [app/door.yaml]\nnamePrefix: x-\n"},
        {"app/pod.yaml": POD, "kustomization.yaml": "resources: [app/pod.yaml]\n" + NO_SPEC},
        {
            "base/door.yaml": DOOR,
            "base/kustomization.yaml": "resources: [door.yaml]\n",
            "prod/kustomization.yaml": "resources: [../base]\n" + NO_SPEC,
        },
    ],
    ids=["own-folder", "unpatched", "harmless", "overlay"],
)
def test_a_patch_of_an_own_base_is_not_noted(check: Check, files: dict[str, str]) -> None:
    assert not any("as they are written" in note for note in check(files).notes)


AS_JSON = [
    '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "made", "namespace": "lab"}, '
    '"spec": {"containers": [{"name": "c", "image": "i"}]}}',
    '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "door", "namespace": "lab"}, "spec": {"containers": '
    '[{"name": "c", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]}}',
]

LATE = DOOR.replace("value: all", "value: void, <<: {value: all}")


@pytest.mark.parametrize(
    ("text", "by_itself"),
    [
        ("\n".join(AS_JSON), True),
        (" ".join(AS_JSON), True),
        (f'{{"kind": "List", "apiVersion": "v1", "items": [{AS_JSON[0]}]}}\n{AS_JSON[1]}', True),
        (LATE, True),
        (f"---\n---\n{AS_JSON[0]}\n---\n# a\n---\n{AS_JSON[1]}\n", False),
        (f'{{"kind": "List", "apiVersion": "v1", "items": [{", ".join(AS_JSON)}]}}', False),
        (DOOR.replace("value: all", "<<: {value: void}, value: all"), False),
    ],
)
@pytest.mark.parametrize("folder", ["", "deploy/"])
def test_what_kustomize_does_not_read_of_a_file_is_judged_as_it_is(
    check: Check, folder: str, text: str, *, by_itself: bool
) -> None:
    """kubectl apply creates each JSON value of a file."""
    report = check({f"{folder}pods.json": text, "kustomization.yaml": f"resources: [{folder}pods.json]\n"})
    own = [one.verdict.allowed for one in report.judged if (one.name, one.root) == ("door", "")]
    assert own == ([False] if by_itself else [])


@pytest.mark.parametrize(
    ("more", "output", "by_itself"),
    [("", POD, True), ("", f"{POD}---\n{DOOR}", False), ("validators: [v.yaml]\n", POD, False)],
)
def test_a_file_of_which_the_program_makes_no_object_is_judged_as_it_is(
    check: Check, program: Program, more: str, output: str, *, by_itself: bool
) -> None:
    """If only the program follows a field, it may delete the object for that reason."""
    program(f"printf '%s' '{output}'")
    own = f"resources: [pod.yaml, door.yaml]\n{more}"
    report = check({"pod.yaml": POD, "door.yaml": DOOR, "v.yaml": "a: 1\n", "kustomization.yaml": own})
    assert [one.verdict.allowed for one in report.judged if one.root == ""] == [False] * by_itself


@pytest.mark.parametrize(
    ("output", "noted"), [(DOOR.replace("all", "void"), True), (POD, True), ("", True), (DOOR, False)]
)
@pytest.mark.parametrize(
    "change",
    ["", "patches: [{target: {name: 'd.*o.*r.*'}, patch: '[]'}]\n", "patches: [{options: {a: true}, patch: a}]\n"],
)
@pytest.mark.parametrize("by", ["root", "component"])
def test_an_object_of_another_folder_that_the_program_makes_otherwise_is_noted(
    check: Check, program: Program, by: str, change: str, output: str, *, noted: bool
) -> None:
    program(f"printf '%s' '{POD.replace('made', 'web')}---\n{output}'")
    files = {"sub/door.yaml": DOOR, "web.yaml": POD.replace("made", "web")}
    files["kustomization.yaml"] = "resources: [web.yaml, sub/door.yaml]\n" + change
    if by == "component":
        files["kustomization.yaml"] = "resources: [web.yaml]\ncomponents: [c]\n"
        files["c/sub/door.yaml"] = files.pop("sub/door.yaml")
        files["c/kustomization.yaml"] = f"{COMPONENT}resources: [sub/door.yaml]\n{change}"
    report = check(files)
    if noted and report.count(allowed=False) == 0:
        assert ["door.yaml" in note for note in report.notes if "as they are written" in note] == [True]
    else:
        assert report.count(allowed=False) == 1
        assert not any("as they are written" in note for note in report.notes)


def test_a_component_that_changes_its_own_resource_of_another_folder_is_noted(check: Check) -> None:
    files = {"c/sub/door.yaml": DOOR, "c/kustomization.yaml": f"{COMPONENT}resources: [sub/door.yaml]\n{NO_SPEC}"}
    report = check({"kustomization.yaml": "resources: [web.yaml]\ncomponents: [c]\n", "web.yaml": POD, **files})
    assert report.count(allowed=False) == 0
    assert ["c/sub/door.yaml" in note for note in report.notes if "as they are written" in note] == [True]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            f"patches: [{{target: {{kind: Pod}}, options: {{allowKindChange: true}}, patch: '{ASIDE}'}}]",
            "patches.options",
        ),
        (f"patches: [{{target: {{labelSelector: tier>2}}, patch: '{ASIDE}'}}]", "targets of patches"),
        (f"patches: [{{target: {{annotationSelector: 'a,b < 2'}}, patch: '{ASIDE}'}}]", "targets of patches"),
        ("patches: [{target: {kind: Pod}, patch: 'spec: {a: 1, <<: {a: 2}}'}]", "merge keys after other keys"),
        ("patches: [{path: p.yaml, target: {kind: Pod}}]", "merge keys after other keys"),
        (f"patches: [{{Target: {{Kind: Pod}}, patch: '{ASIDE}'}}]", ""),
        ("images: [{Name: i, newTag: v2}]", ""),
        (f"patches: [{{target: {{labelSelector: 'a=b, !c,d in (e, f), g'}}, patch: '{ASIDE}'}}]", ""),
        ("patches: [{target: {kind: Pod}, patch: 'spec: {<<: {a: 2}, a: 1}'}]", ""),
        ("images: [{name: i, newName: j, newTag: v2}]", ""),
        ("labels: [{pairs: {a: b}, includeSelectors: true}]", ""),
    ],
)
def test_a_field_of_an_entry_that_only_the_program_follows_is_noted_without_it(
    check: Check, fields: str, named: str
) -> None:
    files = {"pod.yaml": POD, "p.yaml": "spec: {a: 1, <<: {a: 2}}\n"}
    report = check({"kustomization.yaml": f"resources: [pod.yaml]\n{fields}\n", **files})
    assert (report.unfollowed, f"({named} not followed)" in "".join(report.notes)) == (bool(named), bool(named))


def test_a_patch_of_another_folder_is_no_object(check: Check) -> None:
    patch = DOOR.replace("image: i, ", "").replace("name: door", "name: made")
    report = check(
        {"a/kustomization.yaml": "resources: [pod.yaml]\npatches: [{path: ../shared/p.yaml}]\n", "a/pod.yaml": POD}
        | {"shared/p.yaml": patch}
    )
    assert judged(report) == ["a/pod.yaml lab a"]
    assert [one.verdict.allowed for one in report.judged] == [False]


def test_the_texts_of_patches_are_read_as_they_stand(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines before them are counted and not read again, which would take quadratic time."""
    lengths = list[int]()

    def read(text: str, *more: Any) -> Any:
        lengths.append(len(text))
        return documents.read(text, *more)

    monkeypatch.setattr("webhook.kustomize.following.read", read)
    text = "[{op: add, path: /metadata/labels, value: {a: b}}]"
    entry = f"- target: {{kind: Pod}}\n  patch: '{text}'\n"
    check({"a/kustomization.yaml": f"resources: [pod.yaml]\npatches:\n{entry * 50}", "a/pod.yaml": POD})
    assert lengths == [len(text)] * 50


def test_a_patch_without_a_name_that_is_a_text_changes_nothing(check: Check) -> None:
    patch = POD.replace("name: made", "name: [made]")
    report = check(
        {
            "a/kustomization.yaml": "resources: [pod.yaml]\npatches: [{path: p.yaml}]\n",
            "a/pod.yaml": POD,
            "a/p.yaml": patch,
        }
    )
    assert judged(report) == ["a/pod.yaml lab a"]


@pytest.mark.parametrize("name", ["base/broken.yaml", "base/pod.yaml", "base/kustomization.yaml"])
def test_more_roots_of_a_base_read_it_no_more_often(check: Check, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    read, contents = Counter[str](), files.contents

    def counted(name: str) -> bytes:
        read[name] += 1
        return contents(name)

    monkeypatch.setattr(files, "contents", counted)
    base = {"base/kustomization.yaml": "resources: [broken.yaml, pod.yaml]\n", "base/pod.yaml": POD}
    times = list[int]()
    for roots in (2, 20):
        read.clear()
        more = {f"r{each}/kustomization.yaml": "resources: [../base]\n" for each in range(roots)}
        report = check({**more, **base, "base/broken.yaml": "kind: [\n"})
        assert any("base/broken.yaml:" in note for note in report.notes)
        times.append(read[name])
    assert times[0] == times[1] > 0


def test_each_file_below_crds_costs_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull request may add thousands of them next to a packed chart."""
    monkeypatch.chdir(tmp_path)

    def cost(number: int) -> int:
        folder = Path(f"web-{number}")
        (folder / "crds").mkdir(parents=True)
        (folder / "Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 1.0.0\n", "utf-8")
        texts = [f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a{each}}}\n" for each in range(number)]
        verbatim = {f"crds/{index}.yaml": text.encode() for index, text in enumerate(texts)}
        for path, data in verbatim.items():
            (folder / path).write_bytes(data)
        release, here = charts.Release(str(folder), "root"), tree.Tree(str(tmp_path))
        made = charts.Manifests(b"", "---\n".join(["", *texts]).encode(), verbatim)
        charts._read.cache_clear()
        assert len(charts.items(here, made, release)[0]) == number
        charts._read.cache_clear()
        return calls(lambda: charts.items(here, made, release))

    few, some, many = map(cost, (100, 200, 400))
    assert many - some < 2.2 * (some - few)


TAKING = POD.replace("image: i", "image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}]")

ACTION = POD.replace("image: i", 'image: "{{ .Values.image }}"')


@pytest.mark.parametrize(
    ("written", "noted"),
    [
        (TAKING.replace("image: i", 'image: "i{{/*"').replace("}]}]}", '}], workingDir: "/*/}}"}]}'), True),
        (f"{ACTION}---\n{TAKING.replace('made', 'other')}", True),
        (ACTION, False),
        (POD.replace("image: i", 'image: "{{ .Values.image }}", workingDir: "{{ .Values.at }}"'), False),
        (TAKING.replace("image: i", "image: {{ .Values.image }}"), False),
    ],
)
def test_a_template_is_noted_if_kubectl_would_create_what_is_denied(
    check: Check, program: Program, written: str, noted: bool
) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    report = check({"web/Chart.yaml": named("web"), "web/templates/pod.yaml": written})
    notes = [note for note in report.notes if "denied as they are written" in note]
    assert [("web/templates/pod.yaml" in note) for note in notes] == [True] * noted
    assert [one.name for one in report.judged] == ["made"]


def test_a_template_is_not_noted_if_what_helm_makes_is_denied_too(check: Check, program: Program) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{TAKING}'", "helm")
    report = check({"web/Chart.yaml": named("web"), "web/templates/pod.yaml": f"{TAKING}# {{{{ .Values }}}}\n"})
    assert not any("denied as they are written" in note for note in report.notes)


YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab {}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
)


@given(YAML_VALUES, st.text("ab {}"))
def test_a_value_may_become_itself_and_a_text_any_with_its_parts(value: Any, made: str) -> None:
    assert charts._may_become(value, json.loads(json.dumps(value)))
    assert charts._may_become([value, "x {{ y }} z{{- '}}"], [value, f"x {made}z"])
    assert not charts._may_become([value, "x {{ y }} z"], [value, f"x {made}"])


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ([1], []),
        (1, True),
        (1, "1"),
        ("a", "b"),
        ({"{{ x }}": 1}, {"a": 1}),
        ("{{ x }}", 1),
        ("b {{ x }} a", "a b"),
    ],
)
def test_a_value_does_not_become_another_one(written: Any, made: Any) -> None:
    assert not charts._may_become(written, made)


DEEP = "web/charts/sub/charts/x"


@pytest.mark.parametrize(
    ("made", "more", "apart"),
    [
        ("web/charts/sub/templates/pod.yaml", {}, False),
        ("web/templates/pod.yaml", {}, True),
        ("web/templates/pod.yaml", {"web/charts/sub/crds/pod.yaml": POD}, True),
        ("web/templates/pod.yaml", {f"{DEEP}/Chart.yaml": named("x"), f"{DEEP}/templates/a.yaml": "{{ x }}"}, True),
    ],
)
def test_a_chart_of_which_the_one_around_it_makes_nothing_is_rendered_by_itself(
    check: Check, program: Program, made: str, more: dict[str, str], apart: bool
) -> None:
    own = f"printf '# Source: sub/templates/pod.yaml\n%s' '{POD}'"
    program(f"test -e chart/charts/sub && printf '# Source: {made}\n%s' '{POD}' && exit\n{own}", "helm")
    charts_of = {"web/Chart.yaml": named("web"), "web/charts/sub/Chart.yaml": named("sub")}
    templates = {f"web/{name}/pod.yaml": "# {{ x }}\n" for name in ("templates", "charts/sub/templates")}
    report = check({**charts_of, **templates, **more}, options=Options(cached=False))
    roots = ["web", *["web/charts/sub"] * apart, *[DEEP] * (f"{DEEP}/Chart.yaml" in more)]
    assert sorted({one.root for one in report.judged}) == roots


def test_a_chart_of_which_nothing_is_made_is_rendered_if_the_one_around_it_changes(
    check: Check, program: Program
) -> None:
    program(f"printf '# Source: web/templates/pod.yaml\n%s' '{POD}'", "helm")
    files = {f"{each}/Chart.yaml": named("c") for each in ("web", "web/charts/sub", "other", "other/charts/sub")}
    files |= {f"{name}/charts/sub/templates/a.yaml": "{{ x }}" for name in ("web", "other")}
    report = check(files, "web/Chart.yaml", options=Options(touched=True, cached=False))
    assert sorted({one.root for one in report.judged}) == ["web", "web/charts/sub"]


def test_a_library_below_a_chart_is_not_rendered_by_itself(check: Check, program: Program) -> None:
    refused = f"test -e chart/charts && printf '%s' '{POD}' && exit\necho 'Error: {charts.NO_APPLICATION}' >&2\nexit 1"
    program(refused, "helm")
    files = {
        "web/Chart.yaml": named("web"),
        "web/charts/sub/Chart.yaml": named("sub", "type: library\n"),
        "web/charts/sub/templates/a.tpl": "",
    }
    report = check(files, options=Options(cached=False))
    assert [one.root for one in report.judged] == ["web"]
    assert not any("not rendered" in note for note in report.notes)


@pytest.mark.parametrize(
    ("name", "short"),
    [("x" * 53, "x" * 53), ("x" * 54, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-HASH"), ("", "")],
)
def test_flux_shortens_the_name_of_a_release(name: str, short: str) -> None:
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    assert deploying.shortened(name) == short.replace("HASH", digest)


def test_the_top_folder_of_a_repository_is_rendered_from_above(check: Check, program: Program) -> None:
    """As that of a submodule: its own folder is the top of its repository."""
    program(f"printf '%s' {shlex.quote(originating('made', 'pod.yaml'))}")
    report = check({"sub/kustomization.yaml": "resources: [pod.yaml]\n", "sub/pod.yaml": POD, "sub/.git": ""})
    assert [one.name for one in report.judged] == ["made"]
