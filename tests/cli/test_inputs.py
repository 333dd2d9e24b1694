"""Try files, patterns, streams and reviews as people have them, and broken ones: one line each, and the rest judged."""

import html
import io
import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.policies import OPTIONS
from webhook.cli import main as cli
from webhook.documents import documents, files, goyaml
from webhook.reports import formats
from webhook.scan import batches

RECORDED = ROOT / "tests/recorded"

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: vision, annotations: {{slicewarden.dev/trust: trusted}}}}
spec: {{containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu.shared: {count}}}}}}}]}}
"""
GOOD, BAD = POD.format(name="good", count=1), POD.format(name="bad", count=2)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        status = cli.main(["check", *arguments, "--format", "json", *OPTIONS])
        return status, json.loads(capsys.readouterr().out)

    return call


def names(report: Any) -> list[tuple[str, str]]:
    return [(each["file"], each["name"]) for each in report["results"]]


# What people have


def test_quoted_patterns_are_expanded(check: Any, tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for file in ("a/one.yaml", "a/b/two.yml", "a/b/three.json.txt"):
        (tmp_path / file).write_text(GOOD)
    assert names(check("a/**/*.y*ml")[1]) == [("a/b/two.yml", "good"), ("a/one.yaml", "good")]
    assert names(check("a/*")[1]) == [("a/b/two.yml", "good"), ("a/one.yaml", "good")]
    assert names(check("a", "a/one.yaml", "a/**")[1]) == [("a/b/two.yml", "good"), ("a/one.yaml", "good")]
    status, report = check("b/*.yaml", "a")
    assert (status, len(report["results"])) == (2, 2)
    assert report["errors"] == [{"file": "b/*.yaml", "line": 0, "message": "no YAML or JSON file matches"}]


def test_a_file_whose_name_is_a_pattern_is_itself(check: Any, tmp_path: Path) -> None:
    (tmp_path / "a[1].yaml").write_text(GOOD)
    assert names(check("a[1].yaml")[1]) == [("a[1].yaml", "good")]


RENDERED = f"""\
# rendered by something
---
# Source: chart/templates/empty.yaml
---
# Source: chart/templates/pod.yaml
{GOOD}
---
---
{BAD}...
"""


@pytest.mark.parametrize("text", [RENDERED, RENDERED.replace("\n", "\r\n"), f"\ufeff{RENDERED}"])
def test_the_output_of_rendering_tools_is_read(check: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "rendered.yaml").write_text(text, newline="")
    status, report = check("rendered.yaml")
    assert (status, report["errors"]) == (1, [])
    assert [(each["name"], each["line"]) for each in report["results"]] == [("good", 6), ("bad", 13)]


def test_process_substitution_of_the_shell_is_read() -> None:
    command = f"{sys.executable} -m webhook check <(printf '%s' '{GOOD}') --format json {' '.join(OPTIONS)}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert [each["name"] for each in json.loads(done.stdout)["results"]] == ["good"], done.stderr


def test_objects_without_a_namespace_are_in_the_one_that_is_named(check: Any, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD.replace("namespace: vision, ", ""))
    (tmp_path / "node.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: plain}\n")
    found = [check("."), check(".", "--namespace", "vision")]
    assert [status for status, _ in found] == [1, 0]
    assert [[each["namespace"] for each in report["results"]] for _, report in found] == [
        ["", "default"],
        ["", "vision"],
    ]


def test_a_saved_admission_review_is_judged_as_the_request_in_it(check: Any, tmp_path: Path) -> None:
    namespace = (
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: research, labels: {slicewarden.dev/trust: trusted}}\n"
    )
    (tmp_path / "namespace.yaml").write_text(namespace)
    status, report = check(str(RECORDED / "update-deployment-two-slices.json"), "namespace.yaml")
    result, _ = report["results"]
    assert (status, result["operation"], result["kind"], result["name"]) == (1, "UPDATE", "Deployment", "web")
    (finding,) = result["findings"]
    assert finding["rule"] == "multiple-slices"
    lines = (RECORDED / "update-deployment-two-slices.json").read_text().splitlines()
    assert '"nvidia.com/gpu' in lines[finding["line"] - 1]


def test_a_malformed_admission_review_is_an_error_of_its_file(check: Any, tmp_path: Path) -> None:
    (tmp_path / "review.yaml").write_text("apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest: {uid: a}\n")
    status, report = check("review.yaml")
    assert (status, report["errors"][0]["message"]) == (2, "request.kind is missing")


def test_files_of_a_chart_are_passed_over_and_its_templates_reported_with_the_way_out(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    (tmp_path / "chart/templates").mkdir(parents=True)
    (tmp_path / "chart/Chart.yaml").write_text("apiVersion: v2\nname: web\nversion: 0.1.0\n")
    (tmp_path / "chart/values.yaml").write_text("kind: Deployment\nreplicas: 1\n")
    (tmp_path / "chart/values-prod.yaml").write_text("apiVersion: apps/v1\n")
    (tmp_path / "chart/templates/pod.yaml").write_text("{{- if .Values.pod }}\n" + GOOD + "{{- end }}\n")
    (tmp_path / "chart/templates/plain.yaml").write_text(GOOD)
    status, report = check("chart")
    assert (status, names(report), report["errors"]) == (0, [("chart/templates/plain.yaml", "good")], [])
    assert report["notes"] == [
        "chart chart: 1 template not rendered; helm template chart | slicewarden check -",
        "3 files without a Kubernetes object: chart/Chart.yaml, chart/values-prod.yaml, chart/values.yaml",
    ]
    status, report = check("chart/templates/pod.yaml")
    (error,) = report["errors"]
    assert (status, error["file"]) == (2, "chart/templates/pod.yaml")
    assert error["message"].endswith("; it looks like a template: helm template CHART | slicewarden check -")


EMPTY = "no Kubernetes object in it; --allow-empty accepts that"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("Chart.yaml", "apiVersion: v1\nmetadata: {name: a}\n", "kind is missing"),
        ("chart.yml", "apiVersion: v2\nname: web\nversion: 0.1.0\n", "kind is missing"),
        ("pod.yaml", "kind: Pod\nspec: {}\n", "apiVersion is missing"),
        ("values.yaml", BAD, None),
        ("eigenvalues.yaml", "kind: Pod\n", "apiVersion is missing"),
    ],
)
def test_files_that_belong_to_no_chart_are_judged_or_reported(
    name: str, text: str, said: str | None, check: Any, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    status, report = check(name)
    assert [each["message"] for each in report["errors"]] == ([said] if said else [])
    assert status == (2 if said else 1)
    assert check(".", "--allow-empty")[0] == (0 if said else 1)
    status, report = check(".")
    assert [each["message"] for each in report["errors"]] == ([EMPTY] if said else [])
    assert status == (2 if said else 1)


# What is broken


def loop(folder: Path) -> None:
    (folder / "x.yaml").symlink_to("x.yaml")


def fifo(folder: Path) -> None:
    os.mkfifo(folder / "x.yaml")


def large(folder: Path) -> None:
    with (folder / "x.yaml").open("wb") as file:
        file.truncate(200 * 2**20)


BROKEN: dict[str, tuple[Any, str]] = {
    "half a document": ("kind: Pod\nmetadata: {name: a\nspec:\n  containers: [", r"x\.yaml:\d: not YAML: "),
    "a binary": (b"\x7fELF\x02\x01\x01\0\0", r"x\.yaml:1: not YAML: control characters are not allowed"),
    "another encoding": ("kind: Pod\n".encode("utf-16"), r"x\.yaml:1: not text in UTF-8"),
    "a cyclic anchor": ("a: 1\nb: &x\n  c: *x\n", r'x\.yaml:3: the alias "x" stands inside what it refers to'),
    "a bomb": (
        "a: &a ["
        + "x, " * 99
        + "x]\n"
        + "".join(f"{c}: &{c} [{', '.join([f'*{p}'] * 99)}]\n" for p, c in ("ab", "bc", "cd")),
        r"x\.yaml:\d: (more values than are read|not YAML: nearly nothing but aliases)",
    ),
    "a depth": ("[" * 5000, r"x\.yaml:1: nested more than 100 deep"),
    "a file of 200 MB": (large, r"x\.yaml: larger than 64 MiB, the maximum size of a file; split it"),
    "a loop": (loop, r"x\.yaml: Too many levels of symbolic links"),
    "a pipe": (fifo, r"x\.yaml: neither a file nor a folder"),
}


def break_(folder: Path, what: str) -> str:
    """Make x.yaml what is broken, beside bad.yaml; what is said of it."""
    content, said = BROKEN[what]
    if callable(content):
        content(folder)
    else:
        (folder / "x.yaml").write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "bad.yaml").write_text(BAD)
    return said


NO_MANIFEST = ("a binary", "a cyclic anchor", "a bomb", "a depth", "a loop")
"""Broken files without any kind: a folder may hold such files, and only a file that is named has to be a manifest."""


@pytest.mark.parametrize("what", NO_MANIFEST)
def test_a_broken_file_without_any_kind_is_no_error_of_its_folder(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_(tmp_path, what)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", ".", *OPTIONS]) == 1
    captured = capsys.readouterr()
    assert "denied   bad.yaml:1" in captured.out
    assert "error  " not in captured.out


@pytest.mark.parametrize(
    ("what", "path"),
    [*((what, "x.yaml") for what in BROKEN), *((what, ".") for what in BROKEN if what not in NO_MANIFEST)],
)
def test_a_broken_file_gives_one_line_and_the_rest_is_judged(
    what: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = break_(tmp_path, what)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", path, "bad.yaml", *OPTIONS]) == 2
    captured = capsys.readouterr()
    errors = [line for line in captured.out.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert re.match(rf"error    {said}", errors[0])
    assert "denied   bad.yaml:1" in captured.out
    assert "Traceback" not in captured.out + captured.err


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_reported_in_every_format(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = break_(tmp_path, what)
    _, _, message = said.partition(": ")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").mkdir()

    def run(names: Iterable[str]) -> int:
        options = [word for name in names for word in ("--format", name, "--output", f"reports/{name}")]
        return cli.main(["check", "x.yaml", "bad.yaml", *options, *OPTIONS])

    assert run(formats.names()) == 2
    assert capsys.readouterr() == ("", "")
    for name in formats.names():
        text = (tmp_path / "reports" / name).read_text("utf-8")
        assert "multiple-slices" in text
        told = re.search(message, html.unescape(text.replace("\\", "")))
        assert bool(told) is formats.load(name).problems, name
    assert run(name for name in formats.names() if not formats.load(name).problems) == 2
    assert re.fullmatch(rf"{said}.*\n", capsys.readouterr().err)


def test_an_error_that_a_report_shows_is_not_repeated_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_(tmp_path, "a loop")
    monkeypatch.chdir(tmp_path)
    both = ["--format", "openreports", "--output", "r.json"]
    assert cli.main(["check", "x.yaml", *both, *OPTIONS, "--format", "table"]) == 2
    captured = capsys.readouterr()
    assert (captured.out.count("Too many levels"), captured.err) == (1, "")
    assert cli.main(["check", "x.yaml", *both, *OPTIONS]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)


def test_a_file_without_read_permission_gives_one_line(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.yaml").write_text(GOOD)
    (tmp_path / "y.yaml").write_text(BAD)
    opened = Path.open

    def refuse(path: Path, *arguments: Any) -> Any:  # chmod keeps no administrator out
        if path.name == "x.yaml":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    status, report = check(".")
    assert (status, names(report)) == (2, [("y.yaml", "bad")])
    assert report["errors"] == [{"file": "x.yaml", "line": 0, "message": "Permission denied"}]


def test_a_folder_without_read_permission_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    (tmp_path / "closed").mkdir()
    (tmp_path / "x.yaml").write_text(GOOD)
    monkeypatch.setattr(os, "scandir", refuse)
    file, problem = files.find([str(tmp_path)])
    assert file == str(tmp_path / "x.yaml")
    assert str(problem) == f"{tmp_path}/closed: Permission denied"


def test_a_device_file_is_refused_and_not_read() -> None:
    (problem,) = files.read("/dev/zero")
    assert str(problem).startswith("/dev/zero: neither a file nor a folder")
    assert stat.S_ISCHR(Path("/dev/zero").stat().st_mode)


# A cluster


LAB = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "lab", "labels": {"slicewarden.dev/trust": "trusted"}},
}
LIST = {"apiVersion": "v1", "kind": "List"}
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "lab"}}
WIDGETS = {
    "itself": {**WIDGET, "items": [LAB]},
    "in a List": {**LIST, "items": [{**WIDGET, "items": [LAB]}]},
    "in a typed list": {"apiVersion": "example.com/v1", "kind": "WidgetList", "items": [{**WIDGET, "items": [LAB]}]},
    "with a List": {**LIST, "items": [{**WIDGET, "items": [{**LIST, "items": [LAB]}]}]},
    "of a kind List": {**LIST, "items": [{**WIDGET, "kind": "List", "items": [LAB]}]},
}
LISTS = {
    "a List": {**LIST, "items": [LAB]},
    "as kubectl prints it": {**LIST, "metadata": {"resourceVersion": ""}, "items": [LAB]},
    "a List with a name": {**LIST, "metadata": {"name": "mine"}, "items": [LAB]},
    "a typed list": {"apiVersion": "v1", "kind": "NamespaceList", "metadata": {"resourceVersion": "7"}, "items": [LAB]},
    "a List of Lists": {**LIST, "items": [{**LIST, "items": [LAB]}]},
    "next to odd items": {**LIST, "items": [LAB, {**WIDGET, "items": ["x"]}, {**WIDGET, "items": {}}]},
}


@pytest.mark.parametrize(
    ("value", "status"),
    [*((value, 1) for value in WIDGETS.values()), *((value, 0) for value in LISTS.values())],
    ids=[*WIDGETS, *LISTS],
)
def test_items_of_a_custom_object_are_no_facts(value: Any, status: int, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD.replace("namespace: vision", "namespace: lab"))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "plain"}}
    (tmp_path / "dump.json").write_text("\n".join(json.dumps({**LIST, "items": [each]}) for each in (node, value)))
    (tmp_path / "dump.yaml").write_text("\n---\n".join(map(json.dumps, (node, value))))
    command = ["check", str(tmp_path / "pod.yaml"), *OPTIONS]
    assert cli.main([*command, "--facts", str(tmp_path / "dump.yaml")]) == status
    assert cli.main([*command, "--facts", str(tmp_path / "dump.json")]) == status


@pytest.mark.parametrize("value", WIDGETS.values(), ids=WIDGETS)
def test_items_of_a_custom_object_are_judged_but_are_no_facts_for_others(
    value: Any, check: Any, tmp_path: Path
) -> None:
    nested = json.loads(
        json.dumps(value).replace(json.dumps(LAB), f"{json.dumps(LAB)}, {json.dumps(yaml.safe_load(GOOD))}")
    )
    (tmp_path / "dump.json").write_text(json.dumps(nested))
    (tmp_path / "pod.yaml").write_text(POD.format(name="other", count=1).replace("namespace: vision", "namespace: lab"))
    _, report = check("dump.json", "pod.yaml")
    allowed = {each["name"]: each["allowed"] for each in report["results"]}
    assert allowed.keys() == {"lab", "good", "other"}
    assert allowed["good"]
    assert not allowed["other"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        ("not: a kubeconfig", "Invalid kube-config file"),
        (
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: [{name: u, user: {}}]\n",
            "refused",
        ),
    ],
)
def test_a_kubeconfig_without_a_cluster_gives_one_line(
    content: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    config = tmp_path / "config"
    if content is not None:
        config.write_text(content)
    status = cli.main(["check", str(tmp_path / "pod.yaml"), *OPTIONS[:2], "--live", "--kubeconfig", str(config)])
    captured = capsys.readouterr()
    assert status == 2
    assert said.lower() in captured.err.lower()
    assert captured.err.count("\n") == 1


def test_a_missing_kubeconfig_gives_an_error_that_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    tls = ("--tls-cert", "none", "--tls-key", "none")
    for command in (("audit",), ("check", str(tmp_path / "pod.yaml"), "--live"), ("serve", "--live", *tls)):
        assert cli.main([*command, *OPTIONS[:2]]) == 2
        said = "no cluster is configured; name a kubeconfig with --kubeconfig, or in KUBECONFIG"
        assert capsys.readouterr().err == f"error: kubeconfig: {said}\n"


def test_facts_are_repeatable_and_other_options_refuse_a_second_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD.replace("namespace: vision", "namespace: lab"))
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: lab, labels: {slicewarden.dev/trust: trusted}}\n"
    (tmp_path / "lab.yaml").write_text(namespace)
    command = ["check", str(tmp_path / "pod.yaml"), *OPTIONS]
    assert cli.main(command) == 1
    assert cli.main([*command, "--facts", str(tmp_path / "lab.yaml")]) == 0
    capsys.readouterr()
    assert cli.main([*command, "--facts", str(tmp_path / "pod.yaml")]) == 1  # a pod is a fact
    assert cli.main([*command, "--facts", str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/none.yaml: No such file or directory\n"
    for option, value in (("--policy", OPTIONS[1]), ("--namespace", "a"), ("--kubeconfig", "x"), ("--context", "x")):
        assert cli.main([*command[:2], option, value, option, value]) == 2
        error = capsys.readouterr().err.splitlines()[0]
        assert error.startswith(f"error: invalid value for '{option}'")
        assert ": given twice; give it once" in error


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("",), "'[PATH]...': is empty, and names nothing; is a variable not set?"),
        (("--facts", ""), "'--facts': is empty, and names nothing; is a variable not set?"),
        (("--policy", ""), "'--policy': is empty, and names nothing; is a variable not set?"),
        (("--output", ""), "'--output': is empty, and names nothing; is a variable not set?"),
        (("-n", "Bad NS"), "'Bad NS' is not a namespace name: use up to 63 of a-z, 0-9 and -, and no - at either end"),
        (("-n", "a" * 64), "is not a namespace name"),
        (("-n", "lab-"), "is not a namespace name"),
        (("-n", "lab\n"), "is not a namespace name"),
        (("-n", ""), "is not a namespace name"),
    ],
)
def test_an_empty_or_invalid_name_is_wrong_usage(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", *options]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [("--kubeconfig", "x"), ("--context", "x"), ("--facts", "x", "--live"), ("--facts", "x", "--kubeconfig", "y")],
)
def test_options_of_a_cluster_without_live_are_wrong_usage(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    status = cli.main(["check", str(tmp_path / "pod.yaml"), *options])
    assert status == 2
    assert "--live" in capsys.readouterr().err


# Many


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for number in range(3 * batches.FILES):
        text = POD.format(name=f"pod-{number}", count=1 + number % 2)
        (folder / f"{number:03}.yaml").write_text("kind: Pod\na: [" if number % 50 == 7 else text)
    return folder


def test_several_processes_report_the_same_as_one(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert threading.active_count() >= 1

    def reports() -> Iterator[str]:
        for processes in (1, 2):
            monkeypatch.setattr(batches, "_cores", lambda n=processes: n)
            monkeypatch.setattr(batches, "ALONE", 0)
            output = many.parent / f"{processes}.json"
            assert cli.main(["check", str(many), "--format", "json", "--output", str(output), *OPTIONS]) == 2
            yield output.read_text()

    one, two = reports()
    assert one == two
    assert json.loads(one)["summary"] == {
        "objects": 188,
        "allowed": 96,
        "denied": 92,
        "warned": 0,
        "repaired": 0,
        "errors": 4,
        "unjudged": 0,
    }


def test_small_runs_use_one_process_and_large_runs_use_several(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def each(work: Any, given: Any, processes: int) -> Any:
        asked.append(processes)
        return map(work, given)

    def processes(paths: list[str]) -> list[int]:
        """How many were to read, and to judge."""
        asked.clear()
        list(batches.read(paths).each(id))
        return [*asked]

    cores = min(len(os.sched_getaffinity(0)), 8) if sys.platform == "linux" else 1
    monkeypatch.setattr(batches, "_each", each)
    monkeypatch.setattr(batches, "FEW", 2)
    some = sorted(map(str, many.iterdir()))[: 2 * batches.FILES]
    assert processes(some) == [1, 1]
    assert processes([str(many)]) == [1, cores]
    monkeypatch.setattr(batches, "ALONE", 1000)
    assert processes(some) == [cores, 1]
    text = "".join(f"---\n{each.read_text()}" for each in many.iterdir())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert processes(["-"]) == [1, cores]


def test_one_file_is_neither_packed_nor_parsed_a_second_time_for_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts: list[str] = []

    def parse(text: str, **options: Any) -> Any:
        texts.append(text)
        return goyaml.parse(text, **options)

    def packed(_: object) -> bytes:
        raise AssertionError("there is no second process to send it to")

    monkeypatch.setattr(documents, "parse", parse)
    monkeypatch.setattr(batches, "_packed", packed)
    (tmp_path / "pod.yaml").write_text(GOOD.replace("namespace: vision", "namespace: lab"))
    assert cli.main(["check", str(tmp_path / "pod.yaml"), *OPTIONS, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["results"][0]["findings"][0]["line"] > 1
    assert sum("name: good" in text for text in texts) == 1


# What is not imported


def test_a_check_imports_nothing_that_only_others_need(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(GOOD)
    program = (
        "import sys\nfrom webhook.cli import main as cli\n"
        f"status = cli.main(['check', {str(tmp_path / 'pod.yaml')!r}, *{OPTIONS!r}])\n"
        "print(status, *sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:])))"
    )
    heavy = (
        "kubernetes",
        "flask",
        "werkzeug",
        "granian",
        "cryptography",
        "jsonschema",
        "prometheus_client",
        "rich",
        "urllib3",
    )
    command = [sys.executable, "-c", program, *heavy, "multiprocessing", "asyncio"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "0"
