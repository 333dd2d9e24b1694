"""`slicewarden test`: the policies of this repository hold, and what fails is said well."""

import json
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest
import xmlschema

from tests import ROOT
from webhook import rules
from webhook.cli import main as cli
from webhook.cli import outputs
from webhook.policy import schemas
from webhook.policytests.policy_tests import unlike
from webhook.text.terminal import Look

NAMED = ("cloud", "inference", "lab", "university")

POLICY = """\
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: small}
spec:
  trust: {grants: [{namespaceSelector: {matchLabels: {tier: gold}}}]}
  pools:
    - name: whole
      sharing: none
      trust: [trusted, untrusted]
      nodes: {matchLabels: {gpus: whole}}
      resources: [nvidia.com/gpu]
  exemptions:
    - {name: move, reason: the old cluster, until: "2027-03-31", namespaces: [old], rules: [host-namespaces]}
"""
HEAD = """\
apiVersion: slicewarden.dev/v1alpha1
kind: PolicyTest
metadata: {name: small}
spec:
  policy: policy.yaml
  cases:
"""
POD = """\
      object:
        apiVersion: v1
        kind: Pod
        metadata: {name: train, namespace: team}
        spec:
          containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
CASE = f"    - name: one card\n{POD}      expect: {{verdict: allowed, pool: whole}}\n"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)

    def call(cases: str, *options: str) -> tuple[int, str, str]:
        (tmp_path / "test.yaml").write_text(HEAD + cases)
        status = cli.main(["test", "test.yaml", *options])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


# What this repository ships


def test_the_policies_of_the_repository_say_what_their_tests_expect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    status = cli.main(["test", "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in report["results"] if not each["passed"]] == []
    assert status == 0
    by_file: dict[str, list[Any]] = {}
    for each in report["results"]:
        by_file.setdefault(each["file"], []).append(each)
    assert set(by_file) == {"policies/tests/sample.yaml", *(f"policies/{name}/test.yaml" for name in NAMED)}
    assert all(len(cases) >= 10 for cases in by_file.values())


@pytest.mark.parametrize(
    "file", sorted(ROOT.glob("policies/**/test*/*.yaml")) + sorted(ROOT.glob("policies/*/test.yaml"))
)
def test_the_tests_of_each_policy_expect_denials_and_admissions(file: Path) -> None:
    text = file.read_text("utf-8")
    assert text.count("verdict: denied") >= 4
    assert text.count("verdict: allowed") >= 4


@pytest.mark.parametrize("name", [*NAMED, "sample"])
def test_the_policies_lint_clean_with_their_facts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    policy, facts = ROOT / "policies" / name / "policy.yaml", ROOT / "policies" / name / "facts.yaml"
    if name == "sample":
        policy, facts = ROOT / "policies" / "sample.yaml", ROOT / "webhook" / "sample" / "facts.yaml"
    status = cli.main(["policy", "lint", str(policy), "--facts", str(facts), "--format", "json"])
    found = {(problem["lint"], problem["severity"]) for problem in json.loads(capsys.readouterr().out)["problems"]}
    told = {"every-rule-exempted", "unjudged-namespace"} | ({"absent-agent"} if name == "sample" else set())
    assert found == {(lint, "note") for lint in told}, "they exempt NVIDIA's operands; the sample those of clouds too"
    assert status == 0


@pytest.mark.parametrize("name", NAMED)
def test_each_policy_has_a_section_on_the_page(name: str) -> None:
    page = (ROOT / "docs" / "policies.md").read_text("utf-8")
    assert f"\n\n[`policies/{name}`](../policies/{name}/policy.yaml) is for " in page


@pytest.mark.parametrize("kind", schemas.SCHEMAS)
def test_the_schemas_that_editors_read_are_what_the_command_prints(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["schema", "--kind", kind]) == 0
    printed = capsys.readouterr().out
    assert (ROOT / "docs" / "schemas" / f"{kind.lower()}.json").read_text("utf-8") == printed, "run make docs"
    assert json.loads(printed)["$defs"]["rule"]["enum"] == [rule.id for rule in rules.walk()]


def test_the_editors_line_of_every_policy_leads_to_its_schema() -> None:
    for file in sorted((ROOT / "policies").rglob("*.yaml")):
        text = file.read_text("utf-8")
        for kind in schemas.SCHEMAS:
            if f"\nkind: {kind}\n" in text:
                line = text.partition("\n")[0]
                assert line.startswith("# yaml-language-server: $schema="), file
                schema = file.parent / line.partition("=")[2]
                assert schema.resolve() == ROOT / "docs" / "schemas" / f"{kind.lower()}.json"


def test_the_example_in_the_documentation_can_be_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "change-policy.md").read_text("utf-8").partition("## Test a policy")[2]
    text = page.partition("```yaml\n")[2].partition("```")[0]
    for path, there in (("../../webhook/sample/facts", "webhook/sample/facts"), ("../sample", "policies/sample")):
        text = text.replace(f"{path}.yaml", str(ROOT / f"{there}.yaml"))
    (tmp_path / "example.yaml").write_text(text)
    assert cli.main(["test", "example.yaml"]) == 0
    before = "verdict: denied\n        rules: [multiple-slices]\n        message: ask for 1\n"
    assert before in text
    (tmp_path / "example.yaml").write_text(text.replace(before, "verdict: allowed\n"))
    capsys.readouterr()
    assert cli.main(["test", "example.yaml"]) == 1
    shown = page.partition("```\nFAIL")[2].partition("…")[0].replace("policies/tests/sample.yaml", "example.yaml")
    assert capsys.readouterr().out.startswith(f"FAIL{shown}")


# What passes, and what fails


def test_a_case_that_meets_its_expectations_passes(run: Any) -> None:
    status, out, _ = run(CASE)
    assert (status, out) == (0, "1 case in 1 file: 1 passed, 0 failed; 0 errors\n")


def test_a_failure_shows_both_sides_with_their_lines(run: Any) -> None:
    expect = """\
      expect:
        verdict: denied
        rules: [multiple-slices]
        message: not this
        pool: shared
        patch: []
        recorded: [chosen-node]
        result:
          spec:
            nodeSelector:
              gpus: shared
"""
    closed = POD.replace("image: i,", "image: i, env: [{name: NVIDIA_NVSWITCH}, {name: NVIDIA_IMEX_CHANNELS}],")
    status, out, _ = run(f"    - name: one card\n{closed}{expect}")
    assert status == 1
    assert out.splitlines() == [
        "FAIL   test.yaml:7  small: one card",
        "  line 15   verdict: expected denied, got allowed",
        "  line 16   rules: expected multiple-slices, got none",
        "  line 20   recorded: expected chosen-node, got none",
        "  line 17   message: expected not this, got no message",
        "  line 18   pool: expected shared, got whole",
        '  line 19   patch: expected none, got {"op": "add", "path": "/spec/nodeSelector", "value": {"gpus": "whole"}}',
        '  line 24   result spec.nodeSelector.gpus: expected "shared", got "whole"',
        "  found     no finding",
        "",
        "1 case in 1 file: 0 passed, 1 failed; 0 errors",
    ]


def test_rules_that_differ_from_the_expected_ones_are_marked(run: Any) -> None:
    pod = POD.replace("        spec:\n", "        spec:\n          hostPID: true\n          nodeName: node-1\n")
    status, out, _ = run(
        f"    - name: two\n{pod}      expect: {{verdict: denied, rules: [chosen-node, device-path]}}\n"
    )
    assert status == 1
    assert [line.strip() for line in out.splitlines()[1:5]] == [
        "line 16   rules: - expected, + got",
        "chosen-node",
        "- device-path",
        "+ host-namespaces",
    ]
    assert "  found     Deny chosen-node: spec.nodeName: " in out


def test_every_object_of_a_case_counts(run: Any, tmp_path: Path) -> None:
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
    two = {**one, "spec": {"containers": [], "nodeName": "node-1"}}
    service = {"apiVersion": "v1", "kind": "Service"}
    (tmp_path / "pods.yaml").write_text("---\n".join(f"{json.dumps(each)}\n" for each in (one, two, service)))
    status, out, _ = run("    - {name: all, files: [pods.yaml], expect: {verdict: allowed}}\n")
    assert status == 1
    assert "verdict of Pod a: expected allowed, got denied" in out


def test_an_exemption_ends_on_the_day_that_the_case_says(run: Any) -> None:
    pod = POD.replace("team", "old").replace("        spec:\n", "        spec:\n          hostPID: true\n")
    cases = f"""\
    - name: its last day
      today: "2027-03-31"
{pod}      expect: {{verdict: allowed, recorded: [host-namespaces]}}
    - name: the day after
      today: "2027-04-01"
{pod}      expect: {{verdict: denied, rules: [host-namespaces], recorded: []}}
    - name: a day that nobody knows
{pod}      expect: {{verdict: denied}}
"""
    assert run(cases)[0] == 0


def test_facts_of_one_case_do_not_reach_another(run: Any) -> None:
    pod = POD.replace("namespace: team", "namespace: team, annotations: {slicewarden.dev/trust: trusted}")
    gold = "{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {tier: gold}}}"
    cases = f"""\
    - name: of a namespace with the label
      facts: [{gold}]
{pod}      expect: {{verdict: allowed}}
    - name: of one that nobody knows
{pod}      expect: {{verdict: denied, rules: [unearned-trust]}}
"""
    assert run(cases)[0] == 0


def test_an_admission_review_brings_its_own_operation_and_user(run: Any) -> None:
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Node"},
            "operation": "CREATE",
            "userInfo": {"username": "jane", "groups": []},
            "object": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"gpus": "whole"}}},
        },
    }
    case = (
        f"    - {{name: a node, object: {json.dumps(review)}, expect: {{verdict: denied, rules: [relabelled-node]}}}}\n"
    )
    assert run(case)[0] == 0
    assert run(case.replace("jane", "root").replace('"groups": []', '"groups": ["system:masters"]'))[0] == 1


def test_run_takes_cases_by_their_names(run: Any) -> None:
    wrong = CASE.replace("one card", "another").replace("allowed", "denied")
    assert run(CASE + wrong)[0] == 1
    assert run(CASE + wrong, "--run", "card")[0] == 0
    status, _, err = run(CASE, "--run", "nothing")
    assert (status, err) == (2, "error: test.yaml: no case with nothing in its name\n")


def test_the_option_policy_runs_the_tests_with_another_policy(run: Any, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(POLICY.replace("name: whole", "name: all"))
    assert run(CASE)[0] == 0
    assert run(CASE, "--policy", "new.yaml")[0] == 1


# Formats


def test_no_line_of_the_table_is_wider_than_the_terminal(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = CASE.replace("name: one card", f"name: {'one card ' * 12}").replace("whole", "none-such")
    wide = run(CASE + wrong)[1]
    monkeypatch.setattr(outputs, "look", lambda: Look(60))
    narrow = run(CASE + wrong)[1]
    assert max(map(len, wide.splitlines())) > 100 >= 60 >= max(map(len, narrow.splitlines()))
    assert "".join(narrow.split()) == "".join(wide.split())


def junit(text: str) -> Any:
    xmlschema.XMLSchema(str(ROOT / "tests/schemas/JUnit.xsd")).validate(StringIO(text))
    return fromstring(text)  # noqa: S314 - our own text


def test_junit_is_valid_and_has_a_case_each_and_says_what_failed(run: Any) -> None:
    wrong = CASE.replace("name: one card", """name: 'a "<bad>" one'""").replace("whole", "none-such")
    status, out, _ = run(CASE + wrong, "--format", "junit")
    assert status == 1
    (suite,) = junit(out)
    assert {key: suite.get(key) for key in ("name", "tests", "failures", "errors")} == {
        "name": "small",
        "tests": "2",
        "failures": "1",
        "errors": "0",
    }
    good, bad = suite.findall("testcase")
    assert (good.get("name"), len(good)) == ("one card", 0)
    assert (bad.get("name"), bad.get("classname")) == ('a "<bad>" one', "test.yaml")
    assert bad[0].get("message") == "test.yaml:15: pool differs from the expectation"
    assert "expected none-such, got whole" in str(bad[0].text)


def test_junit_is_valid_and_lists_unusable_files(run: Any) -> None:
    status, out, _ = run("    - {name: x}\n", "--format", "junit")
    (suite,) = junit(out)
    assert (status, suite.get("errors")) == (2, "2")
    assert [(each.tag, each[0].tag) for each in suite.findall("testcase")] == [("testcase", "error")] * 2


def test_json_holds_everything(run: Any) -> None:
    status, out, _ = run(CASE.replace("whole", "other"), "--format", "json")
    report = json.loads(out)
    assert (status, report["kind"]) == (1, "PolicyTestReport")
    assert report["summary"] == {"cases": 1, "passed": 0, "failed": 1, "errors": 0}
    assert report["results"][0]["failures"] == [{"line": 14, "what": "pool", "expected": "other", "got": "whole"}]


# Beside the policy


def test_a_folder_of_a_policy_is_read_without_what_is_below_it(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(CASE)
    (tmp_path / "pod.json").write_text('{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}')
    for below in ("tests", ".git", "other"):
        (tmp_path / below).mkdir()
        (tmp_path / below / "policy.yaml").write_text("a: [")
    assert cli.main(["check", "pod.json", "--policy", "."]) == 0  # beside a PolicyTest
    (tmp_path / "second.yaml").write_text(POLICY)
    assert cli.main(["check", "pod.json", "--policy", "."]) == 2
    assert "a second policy" in capsys.readouterr().err


def test_without_paths_the_tests_of_the_folder_policies_are_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies" / "tests").mkdir(parents=True)
    (tmp_path / "policies" / "policy.yaml").write_text(POLICY)
    (tmp_path / "policies" / "tests" / "t.yaml").write_text((HEAD + CASE).replace("policy.yaml", "../policy.yaml"))
    assert cli.main(["test"]) == 0
    assert capsys.readouterr().out.startswith("1 case in 1 file")


# What cannot be used: the cases, then the message

UNUSABLE = {
    "unknown key": (
        f"{CASE}      expects: 1\n",
        "test.yaml:15: spec.cases[0].expects: unknown key, did you mean expect?",
    ),
    "unknown rule": (
        CASE.replace("pool: whole", "rules: [multiple-slice]"),
        'test.yaml:14: spec.cases[0].expect.rules[0]: unknown "multiple-slice", did you mean multiple-slices?',
    ),
    "nothing to judge": (
        "    - {name: x, expect: {verdict: allowed}}\n",
        "test.yaml:7: spec.cases[0]: must have exactly one of object, objects, files",
    ),
    "a name twice": (CASE + CASE, "test.yaml:15: spec.cases[1].name: a second case of this name: one card"),
    "a day that is none": (
        CASE.replace("    - name: one card\n", '    - name: one card\n      today: "2027-02-30"\n'),
        "test.yaml:8: spec.cases[0].today: is not a day of the calendar: 2027-02-30",
    ),
    "an update of nothing": (
        f"{CASE}      request: {{operation: UPDATE}}\n",
        "test.yaml:7: spec.cases[0]: only an UPDATE has an oldObject, and it must have one; write both or neither",
    ),
    "rules of what is allowed": (
        CASE.replace("pool: whole", "rules: [multiple-slices]"),
        "test.yaml:14: spec.cases[0].expect: an object allowed without a warning has no rules and no message; "
        "remove them",
    ),
    "a kind that nobody judges": (
        "    - {name: x, object: {apiVersion: v1, kind: Service}, expect: {verdict: allowed}}\n",
        "test.yaml:7: kind Service is not judged; remove the object, or add its kind to the policy's workloads",
    ),
    "a file that is not there": (
        "    - {name: x, files: [none.yaml], expect: {verdict: allowed}}\n",
        "test.yaml:7: spec.cases[0].files[0]: no such file or folder: none.yaml",
    ),
    "a pattern that nothing fits": (
        "    - {name: x, files: ['no*.yaml'], expect: {verdict: allowed}}\n",
        "no*.yaml: no YAML or JSON file matches",
    ),
    "a file without anything": (
        "    - {name: x, files: [policy.yaml], expect: {verdict: allowed}}\n",
        "test.yaml:7: policy.yaml: it contains no object that is judged",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_test_has_file_and_line_and_status_2(run: Any, name: str) -> None:
    cases, error = UNUSABLE[name]
    status, out, _ = run(cases)
    assert status == 2
    assert f"error  {error}" in out.splitlines()


def test_a_missing_file_is_reported_at_the_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies/tests").mkdir(parents=True)
    (tmp_path / "policies/policy.yaml").write_text(POLICY)
    test = tmp_path / "policies/tests/test.yaml"

    def said(old: str, new: str) -> str:
        test.write_text((HEAD + CASE).replace("policy: policy.yaml", "policy: ../policy.yaml").replace(old, new))
        assert cli.main(["test", "policies/tests"]) == 2
        return capsys.readouterr().out.splitlines()[0]

    place = "error  policies/tests/test.yaml"
    assert said("../policy", "../none") == f"{place}:5: spec.policy: no such file or folder: policies/none.yaml"
    facts = said("  cases:", "  facts: [../policy.yaml, ../../x]\n  cases:")
    assert facts == f"{place}:6: spec.facts[1]: no such file or folder: x"
    (tmp_path / "policies/policy.yaml").write_text("a: [")
    assert said("", "").startswith("error  policies/policy.yaml:2: not YAML")


def test_a_relative_path_in_a_linked_test_starts_at_the_real_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere/tests").mkdir(parents=True)
    (tmp_path / "elsewhere/policy.yaml").write_text(POLICY)
    (tmp_path / "elsewhere/tests/test.yaml").write_text((HEAD + CASE).replace("policy.yaml", "../policy.yaml"))
    (tmp_path / "link").symlink_to("elsewhere/tests")
    assert cli.main(["test", "link/test.yaml"]) == 0


def test_a_broken_file_does_not_stop_the_other_tests(run: Any, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("a: [")
    status, out, _ = run(CASE, "broken.yaml")
    assert status == 2
    assert out.endswith("1 case in 1 file: 1 passed, 0 failed; 1 error\n")


def test_a_test_of_a_policy_that_is_none_is_status_2(run: Any, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("kind: ConfigMap\napiVersion: v1\n")
    status, out, _ = run(CASE)
    assert status == 2
    assert "error  policy.yaml: no GPUSharingPolicy" in out


def test_a_folder_without_tests_is_status_2_and_a_first_test_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policies/tests").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["test"]) == 2
    said, _, sample = capsys.readouterr().err.partition("\n\n")
    assert said == "error: policies: no PolicyTest in it; a first one, such as policies/tests/first.yaml:"
    (tmp_path / "policies/sample.yaml").write_text((ROOT / "policies/sample.yaml").read_text("utf-8"))
    (tmp_path / "policies/tests/first.yaml").write_text(sample)
    assert cli.main(["test"]) == 0, capsys.readouterr().out
    assert capsys.readouterr().out == "1 case in 1 file: 1 passed, 0 failed; 0 errors\n"


# How results are compared


@pytest.mark.parametrize(
    ("expected", "got", "places"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, []),
        ({"a": 1}, {"a": True}, [("a",)]),
        ({"a": "1"}, {"a": 1}, [("a",)]),
        ({"a": None}, {}, []),
        ({"a": None}, {"a": 0}, [("a",)]),
        ({"a": {"b": 1}}, {}, [("a",)]),
        ({"a": {"b": 1}}, {"a": []}, [("a",)]),
        ([{"name": "x", "v": 1}], [{"name": "y"}, {"name": "x", "v": 1}], []),
        ([{"name": "x", "v": 1}], [{"name": "x", "v": 2}], [(0, "v")]),
        ([{"name": "x"}], [], [(0,)]),
        ([1, 2], [1, 2], []),
        ([1], [1, 2], [()]),
        ([], [1], [()]),
    ],
)
def test_only_the_expected_keys_of_a_result_are_compared(expected: Any, got: Any, places: list[Any]) -> None:
    assert [path for path, _, _ in unlike(expected, got)] == places
