"""The formats of reports, held to what others published of them, and to what stands in names and messages."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
import xmlschema
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from webhook import reports, rules
from webhook.cli import outputs
from webhook.documents import files, goyaml
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Problem, Result, Verdict, dotted
from webhook.policy.actions import Exemption
from webhook.policy.model import Policy
from webhook.policy.scopes import Scope
from webhook.reports import audit_report, formats
from webhook.reports.formats import markdown
from webhook.scan import batches
from webhook.scan.audit import Audited, RootOwner
from webhook.scan.judge import judge
from webhook.scan.results import GroupKind, Judged, Report, Unjudged
from webhook.text.terminal import Look

SCHEMAS = ROOT / "tests/schemas"
AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: good, namespace: vision, annotations: {slicewarden.dev/trust: trusted}}
spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: vision, annotations: {slicewarden.dev/trust: trusted}}
spec:
  hostPID: true
  containers:
    - {name: c, resources: {limits: {nvidia.com/gpu.shared: 2}}}
---
apiVersion: v1
kind: Pod
metadata: {name: let, namespace: lab}
spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu.shared: 2}}, env: [{name: NVIDIA_NVSWITCH},
  {name: NVIDIA_IMEX_CHANNELS}]}]}
---
apiVersion: v1
kind: Node
metadata: {name: plain}
"""


@pytest.fixture(scope="module")
def report(sample_policy: Policy, sample_facts: Facts) -> Report:
    lab = Exemption("moving", Scope(frozenset({"lab"}), None, frozenset()), frozenset(), None)
    policy = replace(sample_policy, exemptions=(lab,), actions={"host-namespaces": Action.WARN})
    documents, _ = read(PODS, "pods, 100%.yaml")
    items, _ = files.items(documents)
    engine = Engine(policy, rules.walk())
    every = [judge(item, engine, sample_facts, diffs=True) for item in items]
    problem = Problem("broken: 1.yaml", 3, "not YAML: <&> ]]> `|` ::error::")
    found = Report(tuple(each for each in every if isinstance(each, Judged)), (problem,), policy=policy, at=AT)
    actions = {result.action for judged in found.judged for result, _ in judged.findings}
    assert actions == set(Action)
    return found


def judged(*results: Result, file: str = "a.yaml", line: int = 1, name: str = "x", diff: str = "") -> Judged:
    verdict = Verdict(results)
    return Judged(file, line, 0, "v1", "Pod", "vision", name, verdict, (line,) * len(results), (), diff)


def result(message: str = "is wrong", action: Action = Action.DENY) -> Result:
    return Result("multiple-slices", action, Finding(("spec",), message))


# SARIF


@cache
def sarif_schema() -> Any:
    return json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text("utf-8"))


def sarif(report: Report) -> Any:
    value = json.loads(reports.render("sarif", report))
    jsonschema.Draft4Validator(sarif_schema()).validate(value)
    (run,) = value["runs"]
    return run


def test_sarif_is_valid_and_names_rule_file_and_line(report: Report) -> None:
    run = sarif(report)
    found = {(each["ruleId"], each["level"]): each for each in run["results"]}
    assert {level for _, level in found} == {"error", "warning", "note"}
    denied = found["multiple-slices", "error"]["locations"][0]["physicalLocation"]
    assert denied["artifactLocation"]["uri"] == "pods%2C%20100%25.yaml"
    assert denied["region"]["startLine"] == 12
    (note,) = [each for (_, level), each in found.items() if level == "note"]
    assert note["suppressions"][0]["justification"] == "exempted by moving in the policy"
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["locations"][0]["physicalLocation"]["region"]["startLine"] == 3
    assert run["invocations"][0]["executionSuccessful"] is False


def test_sarif_explains_every_rule_by_its_page(report: Report) -> None:
    described = {rule["id"]: rule["help"]["text"] for rule in sarif(report)["tool"]["driver"]["rules"]}
    assert described == {rule.id: rule.page for rule in rules.walk()}
    extra = replace(report, pages={"mixed-trust": "Trusted and not.\n\nWay out: none."})
    assert "mixed-trust" in {rule["id"] for rule in sarif(extra)["tool"]["driver"]["rules"]}


def test_a_finding_keeps_its_fingerprint_when_it_moves_and_twins_have_two() -> None:
    def prints(*each: Judged) -> list[str]:
        return [found["partialFingerprints"]["slicewarden/v1"] for found in sarif(Report(each))["results"]]

    one = judged(result())
    assert prints(one) == prints(judged(result("is wrong in other words"), file="b.yaml", line=7))
    assert prints(one) != prints(judged(result(), name="y"))
    first, second = prints(one, one)
    assert first != second


# JUnit


@cache
def junit_schema() -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(SCHEMAS / "JUnit.xsd"))


def junit(report: Report) -> ET.Element:
    text = reports.render("junit", report)
    junit_schema().validate(StringIO(text))
    return ET.fromstring(text)  # noqa: S314 - our own


def test_junit_is_valid_and_counts_what_failed(report: Report) -> None:
    (suite,) = junit(report)
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "timestamp")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "timestamp": "2026-11-21T09:30:00",
    }
    failure, error = suite.find("testcase/failure"), suite.find("testcase/error")
    assert failure is not None
    assert failure.get("message", "").startswith("pods, 100%.yaml:12: multiple-slices: spec.containers[0]")
    assert error is not None
    assert error.get("message") == report.problems[0].message
    assert "host-namespaces" in (suite.findtext("system-out") or "")


@given(text=st.text(alphabet=st.characters(), min_size=1))
def test_junit_escapes_every_character_of_a_name(text: str) -> None:
    junit(Report((judged(result(f"says {text}"), name=text, file=text),), (Problem(text, 0, text),)))


# Reports for a cluster


@cache
def crd(name: str, version: str) -> Any:
    definition, _ = goyaml.parse((SCHEMAS / f"{name}.yaml").read_text("utf-8"))
    (schema,) = [each["schema"] for each in definition["spec"]["versions"] if each["name"] == version]
    return _closed(schema["openAPIV3Schema"])


def _closed(schema: Any) -> Any:
    """Refuse what an API server would prune: fields that the schema does not know."""
    if isinstance(schema, dict):
        known = {key: _closed(value) for key, value in schema.items()}
        if "properties" in known and "additionalProperties" not in known:
            known["additionalProperties"] = False
        return known
    return [_closed(each) for each in schema] if isinstance(schema, list) else schema


FORMS = {
    "openreports": {"Report": "openreports.io_reports", "ClusterReport": "openreports.io_clusterreports"},
    "policyreport": {
        "PolicyReport": "wgpolicyk8s.io_policyreports",
        "ClusterPolicyReport": "wgpolicyk8s.io_clusterpolicyreports",
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_reports_for_a_cluster_are_valid(name: str, report: Report) -> None:
    items = json.loads(reports.render(name, report))["items"]
    for item in items:
        version = item["apiVersion"].partition("/")[2]
        metadata = item.pop("metadata")
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", metadata["name"])
        jsonschema.Draft202012Validator(crd(FORMS[name][item["kind"]], version)).validate(item)
        assert (metadata.get("namespace") is None) == item["kind"].startswith("Cluster")
    results = [(each["result"], each.get("scored")) for item in items for each in item["results"]]
    assert set(results) == {("pass", True), ("fail", True), ("warn", True), ("skip", False)}
    assert [item["summary"]["fail"] for item in items] == [0, 1, 0, 0]
    assert len(items) == len(report.judged)


# GitHub annotations


def test_annotations_stand_at_their_lines_and_the_worst_come_first(report: Report) -> None:
    lines = reports.render("github", report).splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::warning", "::notice", "::error"]
    assert lines[0].startswith("::error file=pods%2C 100%25.yaml,line=12,title=multiple-slices::Pod vision/bad: spec.")
    assert lines[-1].startswith("::error file=broken%3A 1.yaml,line=3,title=unusable input::not YAML: ")


@given(text=st.text(alphabet=st.characters(), min_size=1))
def test_no_name_writes_a_command_of_its_own(text: str) -> None:
    written = reports.render("github", Report((judged(result(), name=text, file=text),), (Problem(text, 1, text),)))
    lines = written.split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines), "or it moves a terminal's cursor"
    assert all(re.fullmatch(r"::error [^\r]*?::.*", line) for line in lines[:-1])
    assert all(len(re.findall(r"title=[^,:]*::", line)) >= 1 for line in lines[:-1])


# Markdown


def test_markdown_shows_findings_landings_and_changes(report: Report) -> None:
    text = reports.render("markdown", report)
    assert text.startswith("### Slicewarden: 1 of 4 objects denied\n")
    assert "| 🛑 denied | `Pod vision/bad` | `pods, 100%.yaml:12` | `multiple-slices` | 2 slices in one pod" in text
    assert "exempted by moving" in text
    assert "pool shared on t4-shared" in text
    assert "```diff\n@@ " in text
    assert "+  nodeSelector:" in text


def test_a_markdown_comment_stays_within_the_limit_of_its_host() -> None:
    many = [judged(result("is wrong " * 20), name=f"pod-{n}", diff="+ a\n" * 50) for n in range(2000)]
    text = reports.render("markdown", Report(tuple(many)))
    assert len(text) <= markdown.MAX_BODY
    assert "for which a comment has no room" in text
    assert text.count("<details>") == text.count("</details>")


@given(text=st.text(alphabet=st.characters(), min_size=1))
def test_nothing_in_a_name_or_message_is_markdown(text: str) -> None:
    written = reports.render("markdown", Report((judged(result(text), name=text),)))
    (row,) = [line for line in written.split("\n") if line.startswith("| 🛑")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 6
    assert not set("<>@[]") & set(markdown.plain(text))


@pytest.mark.parametrize(
    "text", ["@team", "#12", "a/b#12", "https://example.com/a", "see WWW.example.com", "a@example.com"]
)
def test_no_text_of_strangers_becomes_a_mention_or_a_link(text: str) -> None:
    seen = unescape(markdown.plain(text))
    assert not re.search(r"@\w|#\w|://|www\.", seen, re.IGNORECASE)
    assert seen.replace("\u200b", "") == text


def test_no_number_of_notes_takes_the_place_of_findings() -> None:
    warnings = tuple(Problem("a.yaml", number, "duplicate key @@@@") for number in range(5000))
    text = reports.render("markdown", Report((judged(result("broken")),), warnings=warnings))
    assert len(text) <= markdown.MAX_BODY
    assert "broken" in text
    (more,) = re.findall(r"And (\d+) more notes", text)
    assert text.count("duplicate key") + int(more) == 5000


# The table


def test_the_table_has_colours_where_they_are_shown(report: Report) -> None:
    assert "\033[" not in reports.render("table", report)
    coloured = reports.render("table", report, Look(100, colour=True))
    assert "\033[1;31mdenied \033[0m" in coloured
    assert re.sub(r"\033\[[0-9;]*m", "", coloured) == reports.render("table", report, Look(100))


@pytest.mark.parametrize(
    ("environment", "look"),
    [
        ({}, Look(90, colour=True)),
        ({"NO_COLOR": "0"}, Look(90)),
        ({"NO_COLOR": ""}, Look(90, colour=True)),
        ({"TERM": "dumb"}, Look(90)),
    ],
)
def test_width_and_colour_follow_the_environment(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], look: Look
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "90", **environment}.items():
        monkeypatch.setenv(name, value)
    assert outputs.look() == look


@pytest.mark.parametrize(
    ("environment", "look"),
    [
        ({}, Look(70, colour=True)),
        ({"COLUMNS": "60"}, Look(60, colour=True)),
        ({"NO_COLOR": "1"}, Look(70)),
        ({"NO_COLOR": "1", "COLUMNS": "60"}, Look(60)),
    ],
)
def test_width_and_colour_of_a_real_terminal_are_used(environment: dict[str, str], look: Look) -> None:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    program = (
        "import sys; from webhook.cli import outputs; print(*outputs.look()); outputs.show(str(sys.stdout.isatty()))"
    )
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    subprocess.run([sys.executable, "-c", program], stdout=theirs, env=path | environment, check=True, timeout=60)
    assert os.read(ours, 1000).split() == f"{look.width} {look.colour} False True".encode().split()
    os.close(theirs)
    os.close(ours)


@given(words=st.lists(st.text("abc", min_size=1, max_size=12), min_size=1), width=st.integers(40, 120))
def test_text_is_broken_at_blanks_alone(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = list(Look(width).wrap(text, "    "))
    assert all(len(line) <= width for line in lines)
    assert " ".join(line.removeprefix("    ") for line in lines) == text


def fits(text: str, width: int) -> None:
    """Hold that every line has the width, but for one of a single word, which people copy whole."""
    long = [line for line in text.splitlines() if len(line) > width and " " in line.strip()]
    assert long == []


@pytest.mark.parametrize("explained", [False, True])
def test_no_line_of_the_table_is_wider_than_the_terminal(report: Report, explained: bool) -> None:
    unjudged = tuple(Unjudged(GroupKind("networking.k8s.io", f"{letter}ingress"), 1) for letter in "abcdefg")
    whole = replace(report, judged=report.judged[1:2], explained=explained, unjudged=unjudged)
    whole = replace(whole, judged=(replace(whole.judged[0], diff=""),))
    wide, narrow = reports.render("table", whole), reports.render("table", whole, Look(60))
    assert max(map(len, wide.splitlines())) > 180
    fits(narrow, 60)
    assert "".join(narrow.split()) == "".join(wide.split())
    places = [dotted(each.finding.path) for each, _ in whole.judged[0].findings]
    assert all(place in narrow.split() for place in places)


def test_no_line_of_an_audit_is_wider_than_the_terminal() -> None:
    source = RootOwner("apps/v1", "Deployment", "vision", "inference-of-everything-that-there-is")
    path = ("spec", "containers", 0, "resources", "limits", "nvidia.com/gpu.shared")
    found = Result("multiple-slices", Action.DENY, Finding(path, "is wrong " * 20))
    pods = [
        Audited("", 0, 0, "v1", "Pod", "vision", f"inference-{n}", Verdict((found,)), (0,), source=source)
        for n in range(4)
    ]
    whole = Report(tuple(pods), (Problem("cluster", 0, "deployments.apps may not be listed: " + "said 403 " * 9),))
    wide, narrow = audit_report.table(whole, Look(), 4), audit_report.table(whole, Look(60), 4)
    fits(narrow, 60)
    assert "".join(narrow.split()) == "".join(wide.split())
    assert dotted(path) in narrow.split()


def test_the_table_shows_what_the_patch_writes(report: Report) -> None:
    text = reports.render("table", report)
    assert '  patch  + spec.nodeSelector: {"nvidia.com/gpu.sharing-strategy": "time-slicing"}\n' in text
    explained = reports.render("table", replace(report, explained=True))
    assert "    +  nodeSelector:\n" in explained


# What every format shows, and what it says that it shows

each_format = pytest.mark.parametrize("name", formats.names())


@each_format
def test_findings_without_a_file_or_a_line_are_reported(name: str) -> None:
    live = Report((judged(result(), file="", line=0),), (Problem("gone.yaml", 0, "is not there"),))
    text = reports.render(name, live)
    assert "is wrong" in text
    assert not re.search(r":0(?!\d)|line 0", text)
    if name == "sarif":
        sarif(live)
    if name == "junit":
        junit(live)


@each_format
def test_a_format_shows_the_problems_and_the_notes_that_it_says_it_shows(name: str) -> None:
    problems, warnings = (Problem("gone.yaml", 0, "is not there"),), (Problem("twice.yaml", 2, "has a key twice"),)
    whole = Report((judged(result()),), problems, warnings=warnings, unread=("chart web was not rendered",))
    text, said = reports.render(name, whole), formats.load(name)
    assert ("is not there" in text) is ("has a key twice" in text) is said.problems
    assert ("chart web was not rendered" in text) is said.notes
    others = [*reports.unshown([name], whole)]
    told = [] if said.problems else ["gone.yaml: is not there", "warning: twice.yaml:2: has a key twice"]
    assert others == [*told, *([] if said.notes else ["note: chart web was not rendered"])]
    assert [*reports.unshown([name, formats.DEFAULT], whole)] == []


@each_format
def test_a_format_shows_the_exempted_and_the_repaired_findings_that_it_says_it_shows(name: str) -> None:
    said = formats.load(name)
    let = [result(f"let {n}", Action.AUDIT)._replace(exemption="moving-house") for n in range(3)]
    text = reports.render(name, Report((judged(result(), *let),)))
    assert text.count("moving-house") >= 3 * said.exempted
    assert said.exempted or "moving-house" not in text
    as_found = [result(f"found {n}", Action.WARN) for n in range(3)]
    plain, marked = (
        reports.render(name, Report((judged(*results),))).count("repaired")
        for results in (as_found, [each._replace(repaired=True) for each in as_found])
    )
    assert marked - plain >= 3 * said.repaired
    assert said.repaired or marked == plain


def test_a_format_that_does_not_say_what_it_shows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(markdown, "NOTES")
    formats.load.cache_clear()
    with pytest.raises(TypeError, match=r"format markdown does not say NOTES"):
        formats.load("markdown")


@each_format
def test_a_report_without_objects_is_valid(name: str) -> None:
    text = reports.render(name, Report(()))
    assert text == "" if name == "github" else text.endswith("\n")


# GitLab


def test_code_quality_has_the_fields_of_gitlab_and_a_fingerprint_for_each_finding(report: Report) -> None:
    issues = json.loads(reports.render("gitlab", report))
    assert {each["severity"] for each in issues} == {"critical", "minor", "blocker"}  # what is exempted is not told
    for each in issues:
        assert {*each} == {"description", "check_name", "severity", "fingerprint", "location"}
        assert each["location"]["lines"]["begin"] >= 1
    assert len({each["fingerprint"] for each in issues}) == len(issues)
    (denied,) = [each for each in issues if each["check_name"] == "multiple-slices"]
    assert denied["location"] == {"path": "pods, 100%.yaml", "lines": {"begin": 12}}


@pytest.mark.parametrize("name", ["table", "markdown"])
def test_a_report_with_a_denial_says_where_to_ask_for_help(name: str) -> None:
    denied = Report((judged(result()),), policy=Policy("acme", (), support="GPU team, ask@example.com"))
    assert "For help: GPU team, ask" in reports.render(name, denied)
    warned = replace(denied, judged=(judged(result(action=Action.WARN)),))
    assert "For help" not in reports.render(name, warned)
    assert "For help" not in reports.render(name, replace(denied, policy=Policy("acme", ())))


def test_every_format_marks_what_would_be_repaired(engine: Engine, sample_facts: Facts, tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "red"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    }
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    auditing = Engine(replace(engine.policy, actions={"*": Action.WARN}, overrides=()), engine.rules)
    report = batches.read([str(file)]).judge(auditing, sample_facts, at=datetime.now(UTC))
    assert report.repaired == 2
    for name in formats.names():
        assert ("repaired" in reports.render(name, report)) is formats.load(name).repaired, name
    assert "2 findings would be repaired under Deny" in reports.render("table", report)
