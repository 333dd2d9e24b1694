"""Charts below others that make nothing of them."""

import pytest

from tests.rendering.test_rendering import POD, Check, Program, check, named, program
from webhook.rendering import charts
from webhook.rendering.model import Options

__all__ = ["check", "program"]

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
