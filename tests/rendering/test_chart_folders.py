"""Which charts are rendered by themselves, and which charts a change touches."""

import json
from pathlib import Path

import pytest

from webhook.documents.documents import Document, Source
from webhook.documents.files import Item
from webhook.rendering import charts
from webhook.rendering.charts import Release
from webhook.rendering.planning import Planner
from webhook.rendering.touched import Touched
from webhook.repository import chart_folders
from webhook.repository.tree import Tree

CHART = "apiVersion: v2\nname: c\nversion: 0.1.0\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The top of a repository, which is the working folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: dict[str, str]) -> Tree:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    return Tree(str(Path.cwd()))


@pytest.mark.parametrize(
    ("outer", "inner", "patterns", "apart"),
    [
        ("a", "a/charts/sub", "", False),
        (".", "charts/sub", "", False),
        ("a", "a/charts/sub", "*.tmp\n.git/\n# sub\n\n", False),
        ("a", "ba/charts/sub", "", True),
        ("a", "a/charts/_sub", "", True),
        ("a", "a/charts/sub/files/x", "", True),
        ("a", "a/charts/sub/charts/x", "", True),  # `sub` is no chart
        ("a", "a/files/charts/sub", "", True),
        ("a", "a/charts/sub", "charts/sub\n", True),
        ("a", "a/charts/sub", "sub/\n", True),
        ("a", "a/charts/sub", "charts\n", True),
        ("a", "a/charts/sub", "*.txt\n", True),
        ("a", "a/charts/sub", "!x\n", True),
    ],
)
def test_a_chart_below_another_one_is_rendered_apart_unless_helm_loads_it(
    outer: str, inner: str, patterns: str, apart: bool
) -> None:
    files = {f"{each}/Chart.yaml": CHART for each in (outer, inner)}
    tree = write({**files, f"{outer}/.helmignore": patterns, f"{inner}/templates/p.txt": ""})
    assert (inner in Planner(tree, sorted(files), ".").chart_folders) == apart


def test_a_chart_in_a_chart_that_helm_loads_is_loaded_too() -> None:
    files = {f"{each}/Chart.yaml": CHART for each in ("a", "a/charts/b", "a/charts/b/charts/c")}
    assert Planner(write(files), sorted(files), ".").chart_folders == ["a"]


def test_a_chart_below_a_library_is_rendered_apart() -> None:
    files = {"a/Chart.yaml": f"{CHART}type: library\n", "a/charts/b/Chart.yaml": CHART}
    assert Planner(write(files), sorted(files), ".").chart_folders == ["a", "a/charts/b"]


@pytest.mark.parametrize(
    ("links", "changed", "touched"),
    [
        ({"web/templates": "../tt"}, "web/templates", True),
        ({"web/templates": "../tt"}, "tt/p.txt", True),
        ({"web/templates": "../tt"}, "tt/gone.txt", True),
        ({"web/templates": "../tt"}, "other/p.txt", False),
        ({"web/templates": "../one", "one": "tt"}, "one", True),
        ({"web/templates": "../tt", "tt/sub": "../other"}, "tt/sub", True),
        ({"web/templates": "../tt", "tt/sub": "../other"}, "other/p.txt", True),
        ({"web/templates": "../gone"}, "gone/p.txt", True),
        ({"web/p": "../other/p.txt"}, "web/p", True),
        ({"web/p": "../other/p.txt"}, "other/p.txt", True),
        ({"x": "other"}, "x", False),
        ({}, "web/gone.yaml", True),
        ({}, "webs/p.yaml", False),
    ],
)
def test_a_link_of_a_chart_touches_it(links: dict[str, str], changed: str, touched: bool) -> None:
    tree = write({"web/Chart.yaml": CHART, "tt/p.txt": "", "other/p.txt": ""})
    for name, target in links.items():
        Path(name).symlink_to(target)
    assert Touched([changed]).has_chart(tree, "web") == touched


@pytest.mark.parametrize(("changed", "touched"), [("k/base", True), ("b/pod.yaml", True), ("k/other", False)])
def test_a_link_on_the_way_to_a_file_changes_it(changed: str, touched: bool) -> None:
    write({"b/pod.yaml": "", "k/a.yaml": ""})
    Path("k/base").symlink_to("../b")
    Path("k/other").symlink_to("../b")
    assert Touched([changed]).has("k/base/pod.yaml") == touched


def test_links_without_an_end_are_no_error() -> None:
    tree = write({"web/Chart.yaml": CHART})
    Path("web/a").symlink_to("b")
    Path("web/b").symlink_to("a")
    assert not Touched(["x.yaml"]).has("web/a")
    assert chart_folders.is_chart("web")
    assert Touched(["web/a"]).has_chart(tree, "web")


@pytest.mark.parametrize(("number", "differ"), [(100, 0), (101, 101)])
def test_many_objects_of_one_template_are_not_compared_each_with_each(tmp_path: Path, number: int, differ: int) -> None:
    def pod(name: str) -> dict[str, object]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "vision"}}

    file = tmp_path / "p.yaml"
    file.write_text("\n---\n".join(json.dumps(pod(f"p{each}-{{{{ 1 }}}}")) for each in range(number)), "utf-8")
    place = Document(str(file), 0, None, 0, Source("", 0))
    made = [Item(place, (), pod(f"p{each}-1")) for each in reversed(range(number))]
    assert len([*charts.unlike(made, Release("web", "web", namespace="vision"))]) == differ


READS = (
    '{{ .Files.Get "x.zip" }}',
    '{{ range omit . "Values" }}{{ .Get "x.zip" }}{{ end }}',
    '{{ range $key, $each := . }}{{ $each.Lines "x.zip" }}{{ end }}',
    '{{ (index . (print "Fil" "es")).GetBytes "x.zip" }}',
    '{{ len (index . "\\x46iles") }}{{ len (index . "F\\u0069les") }}',
    '{{ len (index . "\\106iles") }}',
    "!!binary e3sgLkZpbGVzIH19",
    "{{ range $key, $each := $ }}{{ len $each }}{{ end }}",
    "{{ toJson $ | len }}",
    '{{ index $ (print "Fi" "les") }}',
    '{{ omit . "Values" | toJson | len }}',
    "{{ values . | len }}",
)

READS_NONE = (
    '{{ include "x" . }}{{ include "x" $ }}{{ tpl .Values.x $ }}',
    "{{ with .Values.x }}{{ toYaml . }}{{ range $key, $each := . }}{{ get . $key }}{{ index . 0 }}{{ end }}{{ end }}",
    '{{ omit .Values.x "y" | toYaml }}{{ index $.Values "x" }}{{ range $each := $.Values.y }}{{ end }}',
    '{{ $_ := set $ "x" 1 }}{{ include "x" (dict "context" $ "values" .Values) }}',
    "run: del=$'\\001'; cp /config.toml ${TARGET}; get $HOME \"\\d+\\.x\" $(index)",
)


@pytest.mark.parametrize(
    ("text", "reads"), [*((text, True) for text in READS), *((text, False) for text in READS_NONE)]
)
@pytest.mark.parametrize("place", ["template", "value", "subchart", "release"])
def test_a_file_is_needed_if_a_template_may_read_it(text: str, place: str, *, reads: bool) -> None:
    """The template may be a value, which another one fills in."""
    files = {"web/Chart.yaml": CHART, "web/x.zip": "x", "web/README.md": READS[0], "web/templates/a.yaml": "a: 1\n"}
    name = {"template": "web/templates/a.yaml", "value": "web/values.yaml", "subchart": "web/charts/b/templates/b.txt"}
    tree = write({**files, **({name[place]: text} if place in name else {})})
    values = () if place in name else (text.encode(),)
    assert ("web/x.zip" in chart_folders.needed(tree, "web", values)) == reads
    assert ("web/x.zip" in chart_folders.texts(tree, "web", values)) == reads
    assert "web/templates/a.yaml" in chart_folders.texts(tree, "web", values)
