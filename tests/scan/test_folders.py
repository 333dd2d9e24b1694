"""Folders of real repositories: charts, kustomizations, values and other files that are no manifests."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from webhook.documents.documents import read
from webhook.documents.files import Item
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.rendering.model import Output, Rendering
from webhook.scan import batches, folders
from webhook.scan.folders import chart_of, left_out
from webhook.scan.results import Report

Check = Callable[..., Report]

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: vision}
spec:
  containers:
  - name: c
    resources: {requests: {cpu: 150m}}
    resources: {limits: {nvidia.com/gpu: 2}}
"""
TEMPLATE = "{{- if .Values.x }}\n" + POD + "{{- end }}\n"


@pytest.fixture
def check(engine: Engine, sample_facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Judge files that are written into a folder, whole or by their names."""
    monkeypatch.chdir(tmp_path)

    def run(files: dict[str, str | bytes], *names: str, skip_others: bool = False) -> Report:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        read = batches.read(names or ["."], skip_others=skip_others)
        return read.judge(engine, sample_facts, at=datetime.now(UTC))

    return run


def test_a_link_to_a_folder_that_is_not_followed_is_named(check: Check) -> None:
    """kubectl kustomize and helm read what is behind it, if someone names it."""
    files: dict[str, str | bytes] = {"app/pod.yaml": POD, "lib/x/pod.yaml": POD, "lib/y/notes.txt": "x"}
    check({**files, "app/.own/pod.yaml": POD, "app/b/pod.yaml": POD}, "app")
    for name, target in {"to-lib": "../lib", "to-x": "../lib/x", "own": ".own", "b2": "b", "y": "../lib/y"}.items():
        Path("app", name).symlink_to(target)
    (note,) = (each for each in check({}, "app").notes if "followed if named" in each)
    assert note == "3 links to folders are only followed if named: app/own, app/to-lib, app/to-x"
    assert not any("followed if named" in each and "to-" in each for each in check({}, ".").notes)
    assert not any("followed if named" in each for each in check({}, "lib", "app/b").notes)


def test_a_link_to_a_folder_with_links_is_named(check: Check) -> None:
    """A hidden link is one, too, if it leads out of the folder. Links between folders that are judged are not."""
    check({"a/.own/n.txt": "x", "a/pod.yaml": POD, "lib/x/pod.yaml": POD})
    for name, target in {"l": ".own", ".l": "../lib", ".m": ".own", "a/.own/b": "..", "c": "a"}.items():
        Path("a", name.removeprefix("a/")).symlink_to(target)
    (note,) = (each for each in check({}, "a").notes if "followed if named" in each)
    assert note == "1 link to a folder is only followed if named: a/.l"
    Path("a/.own/d").symlink_to("../../lib/x")
    (note,) = (each for each in check({}, "a").notes if "followed if named" in each)
    assert note == "3 links to folders are only followed if named: a/.l, a/l, a/.own/d"


def test_hidden_folders_with_roots_are_named(check: Check) -> None:
    roots = {".a/kustomization.yml": "resources: [p]\n", "b/.c/d/Chart.yaml": "name: d\n", ".e/helmfile.yaml": "x: 1\n"}
    check(
        {"pod.yaml": POD, ".git/Chart.yaml": "name: x\n", ".github/notes.yaml": "x: 1\n", "f/Chart.yaml": "name: f\n"}
    )
    assert not any("hidden" in note for note in check({}).notes)
    (note,) = (each for each in check(roots).notes if "hidden" in each)
    assert note == ("3 hidden folders have a kustomization, chart or helmfile, only rendered if named: .a, .e, b/.c/d")
    (note,) = (each for each in check({}, ".", ".a", ".e").notes if "hidden" in each)
    assert note == "1 hidden folder has a kustomization, chart or helmfile, only rendered if named: b/.c/d"


def test_links_among_the_templates_of_a_chart_are_followed_by_helm() -> None:
    templates = folders._is_of_chart(Path("c/templates/more"), {"c"}), folders._is_of_chart(Path("crds"), {"."})
    assert templates == (True, True)
    assert not folders._is_of_chart(Path("c/deploy"), {"c"})


def test_the_last_of_duplicate_keys_counts_and_a_warning_names_both_lines(check: Check) -> None:
    report = check({"pod.yaml": POD})
    assert ([judged.kind for judged in report.judged], report.problems) == (["Pod"], ())
    (landing,) = report.judged[0].landings
    assert "nvidia.com/gpu" in landing.brief
    (warning,) = report.warnings
    assert str(warning) == (
        'pod.yaml:8: duplicate key "resources", first at line 7; the last counts, as kubectl reads it'
    )


def test_duplicate_keys_of_json_are_told_with_their_lines(check: Check) -> None:
    text = '{"apiVersion": "v1", "kind": "Pod",\n "metadata": {"name": "p"},\n "spec": {}, "spec": {"containers": []}}'
    (warning,) = check({"pod.json": text}).warnings
    assert (warning.line, warning.message.partition(",")[0]) == (3, 'duplicate key "spec"')


def test_a_real_folder_has_no_errors(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    chart = "apiVersion: v2\nname: web\nversion: 0.1.0\n"
    report = check(
        {
            "deploy/chart/Chart.yaml": chart,
            "deploy/chart/values.yaml": "replicas: 1\n",
            "deploy/chart/templates/a.yaml": TEMPLATE,
            "deploy/chart/templates/tests/b.yaml": TEMPLATE,
            "deploy/chart/charts/sub/Chart.yaml": chart,
            "deploy/chart/charts/sub/templates/c.yaml": TEMPLATE,
            "jinja/templates/d.yaml": "{% if x %}\n" + POD,
            "base/kustomization.yaml": "patches:\n- path: patches/e.yaml\npatchesStrategicMerge: [f.yaml]\n",
            "base/patches/e.yaml": "- op: remove\n  path: /spec\n",
            "base/f.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{$patch: delete}]}\n",
            ".github/labels.yaml": "kind: x\n",
            "labels.yaml": "- {name: bug, kind: x}\n",
            "pod.yaml": POD,
        }
    )
    assert (report.problems, [judged.file for judged in report.judged]) == ((), ["pod.yaml"])
    assert [*report.notes] == [
        "chart deploy/chart: 3 templates not rendered; helm template deploy/chart | slicewarden check -",
        "1 file looks like a template, not rendered: jinja/templates/d.yaml",
        "1 patch of kustomize not judged; kustomize build FOLDER | slicewarden check -; base/f.yaml",
        "4 files without a Kubernetes object: deploy/chart/Chart.yaml, deploy/chart/charts/sub/Chart.yaml, "
        "deploy/chart/values.yaml and 1 more",
    ]


def test_braces_in_a_comment_make_no_template(check: Check) -> None:
    report = check({"a/Chart.yaml": "name: a\n", "a/templates/pod.yaml": f"# {{{{ x }}}}\n{POD}"})
    assert [judged.file for judged in report.judged] == ["a/templates/pod.yaml"]
    report = check({"a/templates/pod.yaml": f"# {{{{ x }}}}\n{POD}", "a/templates/b.yaml": "# {{ x }}\nkind: [\n"})
    assert [problem.file for problem in report.problems] == ["a/templates/b.yaml"]


def test_templates_that_make_no_pod_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    twice = f"{TEMPLATE}---\n{POD}"
    texts = {"all": f"# {{{{ x }}}}\n{TEMPLATE}", "none": TEMPLATE, "some": twice, "_part": TEMPLATE, "plain": POD}
    texts["claim"] = "{{ if .Values.x }}\nspec: {devices: {requests: [{exactly: {deviceClassName: gpu}}]}}\n{{ end }}\n"
    for name, text in texts.items():
        (tmp_path / "c" / "templates").mkdir(parents=True, exist_ok=True)
        (tmp_path / "c" / "templates" / f"{name}.yaml").write_text(text)
    (tmp_path / "c" / "templates" / "text.txt").write_text(POD)
    (document,) = read(POD.replace("    resources: {requests: {cpu: 150m}}\n", ""), "c/templates/all.yaml")[0]
    items = [Item(replace(document, file=f"c/templates/{name}.yaml"), (), document.value) for name in ("all", "some")]
    rendering = Rendering(outputs=[Output("c", items)], charts={"c"})
    names = ("claim.yaml", "none.yaml", "some.yaml", "text.txt")
    assert left_out(rendering) == [f"c/templates/{name}" for name in names]


@pytest.mark.parametrize(
    "key",
    [
        "containers",
        '"container\\u0073"',
        '"\\x63ontainers"',
        "? containers\n ",
        "!!binary Y29udGFpbmVycw==",
        "*key ",
    ],
)
@pytest.mark.parametrize("start", ["", "{{ if .Values.x }}\n"])
def test_no_spelling_hides_the_containers_of_a_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, start: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c/templates").mkdir(parents=True)
    text = f"{start}kind: &key containers\nspec:\n  {key}:\n  - {{name: c, image: i, args: ['{{{{ 1 }}}}']}}\n"
    (tmp_path / "c/templates/a.yaml").write_text(text + ("{{ end }}\n" if start else ""))
    assert left_out(Rendering(charts={"c"})) == ["c/templates/a.yaml"]


FLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: f, annotations: {a: "{{ x }}"}}
spec: {templates: [{name: t, container: {image: i}}]}
"""


@pytest.mark.parametrize(
    ("name", "text", "noted"),
    [
        ("_pod.yaml", POD + "    image: '{{ x }}'\n", True),
        ("_flow.json", FLOW, True),
        ("flow.yaml", FLOW, True),
        ("_pod.tpl", POD + "    args: ['{{ x }}']\n", False),
        ("_pod.yaml", "{{ define `pod` }}\n" + POD + "{{ end }}\n", False),
        ("_map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: '{{ x }}'}\n", False),
        ("map.yaml", 'a: "\\u0041"\nb: "x \\\n  y"\nc: {{ toYaml .Values.c }}\nlabels: {{ x }}: y\n', False),
        (".pod.yaml", POD + "    args: ['{{ x }}']\n", False),
        ("NOTES.txt", "containers: {{ x }}\n", False),
    ],
)
def test_what_kubectl_creates_of_a_template_is_named_if_helm_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, noted: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c/templates").mkdir(parents=True)
    (tmp_path / "c/templates" / name).write_text(text)
    assert left_out(Rendering(charts={"c"})) == ([f"c/templates/{name}"] if noted else [])
    if not name.startswith(("_", ".", "NOTES")):
        (document,) = read(FLOW, f"c/templates/{name}")[0]
        made = Rendering(outputs=[Output("c", [Item(document, (), document.value)])], charts={"c"})
        assert left_out(made) == []


def test_a_manifest_is_not_hidden_by_a_chart_beside_it(check: Check) -> None:
    report = check({"a/Chart.yaml": "name: a\n", "a/templates/pod.yaml": POD})
    assert [judged.file for judged in report.judged] == ["a/templates/pod.yaml"]


def test_hidden_files_with_an_object_are_named(check: Check) -> None:
    settings = {f"{folder}.pre-commit.yaml": "repos: []\n" for folder in ("", "a/", ".github/")}
    kept = {f"{folder}/pod.yaml": POD for folder in (".git", "a/.git/x")}
    others = {".b/c/pod.json": "{'kind: [", ".yaml": POD, "b/.svn/pod.yaml": POD}
    report = check({"pod.yaml": POD, "a/.x.yml": POD, **others, **settings, **kept})
    assert [judged.file for judged in report.judged] == ["pod.yaml"]
    (note,) = report.notes
    start = "4 hidden files with objects are only judged if named: "
    assert note == f"{start}.yaml, .b/c/pod.json, a/.x.yml and 1 more"
    assert [judged.file for judged in check({}, "a/*", "a/.x.yml", ".b").judged] == ["a/.x.yml"]


def test_an_object_without_its_type_among_others_is_an_error(check: Check) -> None:
    (problem,) = check({"a.yaml": f"{POD}---\nkind: Deployment\n"}).problems
    assert str(problem) == "a.yaml:10: apiVersion is missing"


BROKEN_MANIFESTS = [
    "kind: Pod\na: [\n",
    "'kind' : Pod\na: [\n",
    '{"kind": "Pod",\n',
    f"{POD}---\na: [\n",
    f"{POD}---\na: [ # {{{{ x }}}}\n",
    "a: {{ x }}\n---\napiVersion: v1\nkind: Pod\n",
    'a: [\n---\napiVersion: v1\n"k\\u0069nd": Pod\n',
    "a: [\n---\napiVersion: v1\n!!binary a2luZA==: Pod\n",
    'a: [\n---\napiVersion: v1\n? "ki\\\n  nd"\n: Pod\n',
    "kind: Café\n".encode("latin-1"),
    "kind: Pod\n".encode("utf-16"),
]


@pytest.mark.parametrize("text", BROKEN_MANIFESTS)
def test_a_broken_manifest_is_an_error(check: Check, text: str | bytes) -> None:
    assert len(check({"a.yaml": text}).problems) == 1


def test_a_template_among_manifests_is_an_error_with_two_ways_out(check: Check) -> None:
    (problem,) = check({"ansible/kubelet.yaml": f"{POD}  image: {{{{ image }}}}\n"}).problems
    assert str(problem).endswith(
        "it looks like a template among manifests, which kubectl refuses too: move it to a folder templates, or give "
        "it a name with .tpl, and check what it renders: helm template CHART | slicewarden check -"
    )
    for name in ("ansible/templates/kubelet.yaml", "ansible/kubelet.tpl.yaml"):
        report = check({name: f"{POD}  image: {{{{ image }}}}\n"})
        assert [each for each in report.problems if each.file == name] == []


HINTS = ("%{ x }", "${x}", "{{ x }}", "{% x %}")


@pytest.mark.parametrize("hint", HINTS)
@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {b: \"it\\'s\", c: 'HINT'}}\n",
        f"[],HINT\n---\n{POD}",
        f"[]\n[],HINT\n---\n{POD}",
        f"- a\n...\nHINT\n---\n{POD}",
    ],
)
@pytest.mark.parametrize("name", ["a.yaml", "a.json", "templates/a.yaml"])
def test_a_file_that_only_kubectl_reads_is_no_template(check: Check, name: str, text: str, hint: str) -> None:
    assert [each.file for each in check({name: text.replace("HINT", hint)}).problems] == [name]


@pytest.mark.parametrize("text", ["%{ if x }\nkind: Pod\n%{ endif }\n", "kind: Pod\n${x}\n", '{"kind": %{ x }}\n'])
def test_what_terraform_fills_in_is_a_template(check: Check, text: str) -> None:
    report = check({"a.yaml": text, "pod.yaml": POD})
    assert (report.problems, [*report.notes]) == ((), ["1 file looks like a template, not rendered: a.yaml"])


def test_what_a_comment_says_makes_no_template(check: Check) -> None:
    assert len(check({"a.yaml": "# %{ x }\nkind: Pod\na: [\n"}).problems) == 1


@pytest.mark.parametrize("text", ["a: [\n", "mankind: [\n", '{"a": \n', "Café\n".encode("latin-1")])
def test_a_broken_file_without_any_kind_is_no_manifest_unless_it_is_named(check: Check, text: str | bytes) -> None:
    report = check({"a.yaml": text, "pod.yaml": POD})
    assert (report.problems, [*report.notes]) == ((), ["1 file without a Kubernetes object: a.yaml"])
    assert len(check({}, "a.yaml").problems) == 1


def test_a_link_to_nothing_is_no_manifest_unless_it_is_named(check: Check, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to("elsewhere.yaml")
    (tmp_path / "b.yaml").symlink_to("b.yaml")
    report = check({"pod.yaml": POD})
    assert (report.problems, [*report.notes]) == ((), ["2 files without a Kubernetes object: a.yaml, b.yaml"])
    for name in ("a.yaml", "b.yaml"):
        assert [problem.file for problem in check({}, name).problems] == [name]


def test_many_charts_share_one_line(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    files = {f"{n}/Chart.yaml": "name: a\n" for n in range(5)} | {f"{n}/templates/a.yaml": TEMPLATE for n in range(5)}
    (note,) = [note for note in check(files).notes if "render" in note]
    assert note == "5 charts, 5 templates not rendered: 0, 1, 2 and 2 more"


@pytest.mark.parametrize("text", ["a: 1\n", "# nothing\n", ""])
def test_a_file_that_is_named_has_to_hold_an_object(check: Check, text: str) -> None:
    (problem,) = check({"a.yaml": text}, "a.yaml").problems
    assert problem.message == "no Kubernetes object in it"
    report = check({"a.yaml": text}, "a.yaml", skip_others=True)
    assert (report.problems, [*report.notes]) == ((), ["1 file without a Kubernetes object: a.yaml"])
    assert check({"a.yaml": "apiVersion: v1\nkind: List\nitems: []\n"}, "a.yaml").problems == ()


def test_a_chart_with_a_link_to_what_is_not_its_own_is_not_rendered(
    check: Check, helm: Callable[[str], None], tmp_path: Path
) -> None:
    helm(f"printf '%s' '{POD}'")
    (tmp_path / ".git").mkdir()
    chart = {"a/Chart.yaml": "name: a\n", "a/templates/pod.yaml": TEMPLATE, "common/note.txt": "x", ".git/config": "x"}
    assert check(chart, "a").problems == ()
    (tmp_path / "a/note").symlink_to("../common/note.txt")
    (tmp_path / "a/charts").symlink_to("../common")
    assert check({}, "a").problems == ()
    for target in ("/etc/hostname", "../.git/config", "../../elsewhere", "/proc/self"):
        (tmp_path / "common/link").symlink_to(target if target[0] == "/" else tmp_path / "a" / target)
        (problem,) = check({}, "a").problems
        assert "the chart is not rendered: " in problem.message
        assert "leads out of the repository, or into a hidden folder" in problem.message
        (tmp_path / "common/link").unlink()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_is_said_with_the_way_out(check: Check, encoding: str) -> None:
    data = POD.encode(encoding)
    (problem,) = check({"a.yaml": data if encoding == "utf-16" else b"\xfe\xff" + data}).problems
    assert problem.message.endswith("in UTF-16, as PowerShell writes it; save it by Out-File -Encoding utf8")


def test_what_is_not_judged_is_counted_without_a_parse(check: Check) -> None:
    """A broken CustomResourceDefinition is kubectl's to refuse."""
    crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n"
    report = check({"crd.yaml": f"{crd}  a: [\n---\n{POD}---\n{crd}"})
    assert (report.problems, len(report.judged)) == ((), 1)
    (unjudged,) = report.unjudged
    assert (unjudged.kind.kind, unjudged.objects) == ("CustomResourceDefinition", 2)


def test_the_outermost_chart_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("charts/a", "charts/a/charts/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "Chart.yaml").write_text("name: x\n")
    assert chart_of("charts/a/charts/b/templates/x.yaml") == "charts/a"
    assert chart_of(str(tmp_path / "charts/a/templates/x.yaml")) == str(tmp_path / "charts/a")
    assert chart_of("charts/a/charts/b/values.yaml") == ""
    assert chart_of("templates/x.yaml") == ""


def test_only_files_below_the_templates_of_the_innermost_chart_are_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Helm reads the others as plain files, and creates those below `crds`."""
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "a/charts/templates", "a/crds/b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "Chart.yaml").write_text("name: x\n")
    others = ("crds/templates/x", "charts/s/crds/templates/x", "charts/templates/crds/x", "crds/b/templates/x")
    assert {chart_of(f"a/{name}.yaml") for name in (*others, "files/templates/x", "charts/templates/x")} == {""}
    templates = ("templates/x", "templates/crds/x", "charts/templates/templates/x", "charts/s/charts/t/templates/x")
    assert {chart_of(f"a/{name}.yaml") for name in templates} == {"a"}


def test_a_pod_below_the_crds_of_a_subchart_is_judged_next_to_rendered_templates(
    check: Check, helm: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    helm(f"printf '# Source: a/templates/pod.yaml\\n%s' '{POD}'")
    door = POD.replace("name: p,", "name: door, annotations: {a: '{{ x }}'},")
    files = {"a/Chart.yaml": "name: a\n", "a/templates/pod.yaml": POD, "a/charts/s/Chart.yaml": "name: s\n"}
    report = check({**files, "a/charts/s/crds/templates/door.yaml": door})
    assert sorted(one.file for one in report.judged) == ["a/charts/s/crds/templates/door.yaml", "a/templates/pod.yaml"]


# Rendered charts


CHART: dict[str, str | bytes] = {
    "my charts/a/Chart.yaml": "apiVersion: v2\nname: a\nversion: 0.1.0\n",
    "my charts/a/values.yaml": "x: 1\n",
    "my charts/a/templates/pod.yaml": TEMPLATE,
    "my charts/a/templates/plain.yaml": POD.replace("name: p,", "name: plain,"),
    "pod.yaml": POD,
}


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Pretend a helm on PATH, by the text of its script."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))

    def write(script: str) -> None:
        program = tmp_path / ".bin" / "helm"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return write


def test_a_rendered_object_stands_in_its_template(check: Check, helm: Callable[[str], None], tmp_path: Path) -> None:
    (tmp_path / "made").write_text(f"---\n# Source: a/templates/pod.yaml\n{POD}---\n{POD}")
    helm(f'echo "$*" "$KUBECONFIG" >{tmp_path}/asked; /bin/cat {tmp_path}/made')
    report = check(CHART)
    assert [(judged.file, judged.line) for judged in report.judged] == [
        ("my charts/a/templates/pod.yaml", 3),
        ("my charts/a", 0),
        ("my charts/a/templates/plain.yaml", 1),
        ("pod.yaml", 1),
    ]
    assert [judged.root for judged in report.judged] == ["my charts/a", "my charts/a", "", ""]
    assert (report.problems, [note for note in report.notes if "chart a" in note]) == ((), [])
    assert (
        tmp_path / "asked"
    ).read_text() == "template --skip-schema-validation --namespace default -- release-name chart /dev/null\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo warning >&2; echo Error: x is required >&2; exit 1", "x is required"),
        ("printf 'Error: at (a.yaml:1:4): \\n\\n  set x\\n' >&2; exit 1", "at (a.yaml:1:4): set x"),
        ("exit 3", "helm failed"),
        ("/bin/head -c 2000 /dev/zero || /usr/bin/head -c 2000 /dev/zero", "it makes more than 0 MiB"),
        ("/bin/sleep 30", "helm took more than 0.2 seconds"),
    ],
)
def test_a_chart_that_cannot_be_rendered_is_an_error_if_it_is_named(
    check: Check, helm: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    monkeypatch.setattr("webhook.repository.programs.MAX_FILE", 1000)
    monkeypatch.setattr("webhook.repository.programs.SECONDS", 0.2 if "sleep" in script else 9)
    helm(script)
    report = check(CHART)
    assert report.problems == ()
    assert next(report.notes) == f"chart my charts/a not rendered: {reason}"
    assert [judged.file for judged in report.judged] == ["my charts/a/templates/plain.yaml", "pod.yaml"]
    (problem,) = check(CHART, "my charts/a").problems
    assert str(problem) == f"my charts/a: the chart is not rendered: {reason}"


def test_a_helm_that_does_not_start_is_an_error(
    check: Check, helm: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.repository.programs._apart", tuple)
    helm("")
    (tmp_path / ".bin" / "helm").write_bytes(b"\0")
    (problem,) = check(CHART, "my charts/a").problems
    assert problem.message == "the chart is not rendered: helm does not start: Exec format error"


def test_without_helm_a_chart_is_no_error(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    report = check(CHART)
    assert report.problems == ()
    assert next(report.notes).startswith("chart my charts/a: 1 template not rendered; helm template ")


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("*.yaml text working-tree-encoding=UTF-7\n", True),
        ("# ident\n[attr]own ident\n", True),
        ("# ident\n*.yaml text eol=lf\nident/*.yaml text\n*.bin filter=lfs -text\n*.md -ident\n", False),
    ],
)
@pytest.mark.parametrize("name", [".gitattributes", "apps/.gitattributes", "../.gitattributes"])
def test_files_that_git_writes_otherwise_than_it_keeps_them_are_noted(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, *, noted: bool
) -> None:
    """Flux reads what Git keeps, and the run what Git has written."""
    for folder in (".git", "apps"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "apps")
    report = check({f"apps/{name}": text, "apps/p.yaml": POD.replace("nvidia.com/gpu: 2", "cpu: 1")})
    assert [note for note in report.notes if "Git checks out" in note] == [
        f"1 file changes what Git checks out, and Flux reads what Git keeps: {name}"
    ] * noted
    assert report.unfollowed == noted


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def test_a_pointer_of_git_lfs_is_noted(check: Check) -> None:
    report = check({"a.yaml": POINTER, "notes.yaml": f"text: |\n  {POINTER.splitlines()[0]}\n"})
    assert "1 file is a pointer of Git LFS, and the content is not here: a.yaml" in report.notes
    assert report.unfollowed == 1


READING = '{{ .Files.Get "files/x.txt" }}'


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({".gitattributes": "*.txt text eol=crlf\n", "my charts/a/templates/x": READING}, "what Git checks out"),
        ({".gitattributes": "*.bat text eol=crlf\n", "my charts/a/templates/x": READING}, ""),
        ({".gitattributes": "* text=auto\n*.txt eol=lf\n", "my charts/a/templates/x": READING}, ""),
        ({".gitattributes": "*.txt text eol=crlf\n"}, ""),
        ({"my charts/a/files/x.txt": POINTER, "my charts/a/templates/x": READING}, "pointer of Git LFS"),
        ({"my charts/a/files/x.txt": POINTER}, ""),
        ({"my charts/a/values.yaml": f"x: {READING!r}\n", "my charts/a/files/x.txt": POINTER}, "pointer of Git LFS"),
    ],
)
def test_files_that_a_chart_may_read_are_noted_too(
    check: Check, helm: Callable[[str], None], files: dict[str, str | bytes], note: str
) -> None:
    helm("exit 0")
    report = check({**CHART, "my charts/a/files/x.txt": "x\n", **files})
    found = [each for each in report.notes if "what Git checks out" in each or "pointer of Git LFS" in each]
    assert (len(found), report.unfollowed) == (bool(note), bool(note))
    assert all(note in each for each in found)


def test_files_that_a_kustomization_names_are_noted_too(check: Check) -> None:
    kustomization = "configMapGenerator: [{name: a, files: [x.txt]}]\n"
    report = check({"a/kustomization.yaml": kustomization, "a/x.txt": POINTER, "a/y.txt": POINTER, "pod.yaml": POD})
    assert "1 file is a pointer of Git LFS, and the content is not here: a/x.txt" in report.notes


def test_files_that_only_helmfile_reads_are_found_by_their_names(tmp_path: Path) -> None:
    made = ["a.yaml.gotmpl", "b.yaaml", ".c.yml", "d.y.toml"]
    others = ["e.yaml", "f.yml", "README.md", "g.yaml.bak", "h.gotmpl"]
    for folder in ("helmfile.d", "other"):
        (tmp_path / folder).mkdir()
        for name in (*made, *others):
            (tmp_path / folder / name).write_text("")
    assert [*folders.helmfiles([str(tmp_path)])] == sorted(str(tmp_path / "helmfile.d" / name) for name in made)
