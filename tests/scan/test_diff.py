"""`slicewarden diff`: what a change of policy does, from files and from Git."""

import json
import os
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests import ROOT
from tests.support import layouts
from tests.support.strategies import pods
from webhook import rules
from webhook.cli import main as cli
from webhook.cli.inputs import load_policy
from webhook.documents import files
from webhook.documents.documents import read
from webhook.documents.files import alone
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.fallback.status import changes
from webhook.model import Action, Problem, Verdict
from webhook.policy.model import Policy
from webhook.reports import diff_report
from webhook.scan import batches, diff, trust
from webhook.scan.diff import Change, Changed, ChangeEffect, compare
from webhook.scan.results import Judged
from webhook.text.terminal import PLAIN, Look

SAMPLE = (ROOT / "policies" / "sample.yaml").read_text("utf-8")
FACTS = str(ROOT / "webhook" / "sample" / "facts.yaml")


def pod(name: str, namespace: str, gpus: str, trust: str = "", extra: str = "") -> str:
    annotations = f", annotations: {{slicewarden.dev/trust: {trust}}}" if trust else ""
    return f"""\
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}{annotations}}}
spec:
  {extra}
  containers: [{{name: main, image: i, resources: {{limits: {{{gpus}}}}}}}]
"""


PODS = (
    pod("shares", "vision", "nvidia.com/gpu: 1", "trusted")
    + pod("alone", "visitors", "nvidia.com/gpu: 1")
    + pod("greedy", "vision", "nvidia.com/gpu.shared: 2", "trusted")
    + pod("many", "visitors", "nvidia.com/gpu: 8")
    + pod("web", "visitors", "cpu: 1")
)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.yaml").write_text(SAMPLE)
    (tmp_path / "pods.yaml").write_text(PODS)

    def call(*edits: tuple[str, str], options: tuple[str, ...] = (), old: str = "old.yaml") -> tuple[int, str, str]:
        text = SAMPLE
        for before, after in edits:
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (tmp_path / "new.yaml").write_text(text)
        status = cli.main(["diff", old, "new.yaml", "pods.yaml", "--facts", FACTS, *options])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def effects(out: str) -> dict[str, list[str]]:
    return {each["name"]: each["effects"] for each in json.loads(out)["results"]}


JSON = ("--format", "json")
LESS = ("      maxRequest: 8\n", "      maxRequest: 4\n")
EVERY_RULE = '    "*": Deny\n'
WARN = (EVERY_RULE, f"{EVERY_RULE}    multiple-slices: Warn\n")
UNTRUSTED = ("    default: untrusted\n", "    default: trusted\n")


def test_the_same_policy_changes_nothing(run: Any) -> None:
    status, out, _ = run()
    assert (status, out) == (0, "5 objects: nothing changes; 5 as before; 0 errors\n")
    assert "Nothing changes for 5 objects." in run(options=("--format", "markdown"))[1]


def test_all_lists_what_does_not_change_too(run: Any) -> None:
    status, out, _ = run(LESS, options=("--all", *JSON))
    unchanged: dict[str, list[str]] = {name: [] for name in ("shares", "alone", "greedy", "web")}
    assert (status, effects(out)) == (1, {"many": ["denied", "patchedOtherwise"], **unchanged})
    assert json.loads(out)["summary"]["unchanged"] == 4
    _, out, _ = run(options=("--all",))
    assert out.count("as before  pods.yaml:") == 5
    assert out.endswith("5 objects: nothing changes; 5 as before; 0 errors\n")


def test_an_object_that_is_newly_denied_fails_the_run(run: Any) -> None:
    status, out, _ = run(LESS, options=JSON)
    assert (status, effects(out)) == (1, {"many": ["denied", "patchedOtherwise"]})
    (result,) = json.loads(out)["results"]
    assert json.loads(out)["digests"] == {name: load_policy(f"{name}.yaml").digest for name in ("old", "new")}
    (finding,) = result["findings"]
    assert (finding["rule"], finding["before"], finding["after"]) == ("unsteered-pod", None, "Deny")
    assert result["allowed"] == {"before": True, "after": False}
    assert run(LESS, options=("--fail-on", "never"))[0] == 0


def test_an_object_can_be_allowed_again_with_a_warning(run: Any) -> None:
    status, out, _ = run(WARN, options=JSON)
    assert (status, effects(out)) == (0, {"greedy": ["freed", "warned"]})
    assert [run(WARN, options=("--fail-on", each))[0] for each in ("warn", "any", "deny", "never")] == [4, 1, 0, 0]


def test_undoing_a_change_gives_the_opposite_effects(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    there = json.loads(run(LESS, WARN, options=JSON)[1])
    cli.main(["diff", "new.yaml", "old.yaml", "pods.yaml", "--facts", FACTS, *JSON])
    back = json.loads(capsys.readouterr().out)
    summary, undone = there["summary"], back["summary"]
    assert (summary["denied"], summary["freed"], summary["warned"]) == (1, 1, 1)
    assert (undone["denied"], undone["freed"], undone["noLongerWarned"]) == (1, 1, 1)
    assert [each["name"] for each in there["results"]] == [each["name"] for each in back["results"]]


def test_a_change_of_pools_shows_new_pools_and_new_patches(run: Any) -> None:
    tenants = "      sharing: time-slicing\n", "      sharing: time-slicing\n      tenants: {namespaces: [visitors]}\n"
    status, out, _ = run(tenants, options=JSON)
    assert status == 0
    assert effects(out)["greedy"][0] == "refusedOtherwise"
    assert effects(out)["shares"] == ["steeredElsewhere", "patchedOtherwise"]
    shares = next(each for each in json.loads(out)["results"] if each["name"] == "shares")
    assert shares["pool"] == {"before": "shared", "after": "exclusive"}
    assert shares["patch"]["before"] != shares["patch"]["after"]
    table = run(tenants)[1]
    assert "  pool   shared → exclusive\n" in table
    assert '{"key": "nvidia.com/gpu.product", "operator": "Exists"}' in table


def test_one_entry_of_every_rule_is_compared_by_what_it_does(run: Any) -> None:
    """Without it every rule is on Deny; on Audit it frees and patches nobody."""
    assert run((EVERY_RULE, "    multiple-slices: Deny\n"))[1].startswith("5 objects: nothing changes")
    status, out, _ = run((EVERY_RULE, '    "*": Audit\n'), options=JSON)
    recorded = ["patchedOtherwise", "recordedOtherwise"]
    assert status == 0
    assert effects(out)["greedy"] == ["freed", *recorded]
    assert effects(out)["alone"] == recorded


def test_an_object_denied_for_another_reason_is_listed(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(
        pod("both", "vision", "nvidia.com/gpu: 1", "", "hostPID: true\n  nodeName: node-1")
    )
    status, out, _ = run((EVERY_RULE, f"{EVERY_RULE}    chosen-node: Audit\n"), options=JSON)
    assert effects(out) == {"both": ["refusedOtherwise", "recordedOtherwise"]}
    assert status == 0


def test_findings_are_compared_by_rule_and_place_not_by_words(run: Any) -> None:
    assert run(("  name: sample\n", "  name: renamed\n"))[1] == "5 objects: nothing changes; 5 as before; 0 errors\n"


def test_a_kind_that_only_the_new_policy_judges(run: Any, tmp_path: Path) -> None:
    kind = "{group: example.com, kind: Fleet, resource: fleets, templates: [spec.template]}"
    template = "{spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 9}}}]}}"
    fleet = f"apiVersion: example.com/v1\nkind: Fleet\nmetadata: {{name: f}}\nspec: {{template: {template}}}\n"
    (tmp_path / "pods.yaml").write_text(fleet)
    status, out, _ = run(("\n  rules:\n", f"\n  workloads: [{kind}]\n  rules:\n"), options=JSON)
    assert (status, effects(out)) == (1, {"f": ["denied", "steeredElsewhere"]})


def test_markdown_is_for_a_pull_request(run: Any) -> None:
    status, out, _ = run(LESS, WARN, options=("--format", "markdown"))
    assert status == 1
    lines = out.splitlines()
    assert lines[0] == "## Policy <code>sample</code> → <code>sample</code>"
    assert "| newly denied | 1 |" in lines
    assert "| as before | 3 |" in lines
    assert "<details open><summary>1 newly denied</summary>" in lines
    assert any(line.startswith("| <code>Pod visitors/many</code> | <code>pods.yaml:") for line in lines)


def test_a_tenants_name_makes_no_markdown(run: Any, tmp_path: Path) -> None:
    name = '"<b>|@everyone`*x*"'
    (tmp_path / "pods.yaml").write_text(pod(name, "visitors", "nvidia.com/gpu: 8"))
    out = run(LESS, options=("--format", "markdown"))[1]
    (row,) = [line for line in out.splitlines() if "everyone" in line]
    assert not set("@`*") & set(row)
    assert "<b>" not in row
    assert row.count("|") == 4


def test_the_markdown_names_the_first_of_many_objects(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text("".join(pod(f"p{each}", "visitors", "nvidia.com/gpu: 8") for each in range(70)))
    out = run(LESS, options=("--format", "markdown"))[1]
    assert "| and 20 more |  |  |" in out
    assert len(out) < 65_536


def test_a_comment_has_room_for_the_markdown_however_much_changes(sample_policy: Policy) -> None:
    judged = Judged("_" * 100, 1, 0, "v1", "Pod", "vision", "p", Verdict())
    changed = [Changed(judged, judged, (effect,), ()) for effect in ChangeEffect for _ in range(60)]
    problems = [Problem("_" * 100, 1, "not YAML")] * 60
    out = diff_report.render("markdown", Change(sample_policy, sample_policy, tuple(changed), 0, tuple(problems)))
    assert 50_000 < len(out) < 65_536
    assert out.count("<details") == out.count("</details>") == len(ChangeEffect)
    assert "<details open><summary>60 newly denied</summary>" in out
    assert out.count("| and 60 more |  |  |\n") > 1  # of the headings for which there was no room left
    assert out.endswith("- and 60 more\n")


def test_kinds_that_neither_policy_judges_are_counted_in_one_line(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(f"{PODS}---\napiVersion: apps/v1\nkind: Deploymnet\nmetadata: {{name: a}}\n")
    said = "1 object is of a kind that is not judged: Deploymnet.apps (did you mean Deployment?)"
    counted = "5 objects: nothing changes; 5 as before; 0 errors"
    assert run()[1] == f"{counted}\n{said}\n"
    assert "Deploymnet.apps (did you mean Deployment?)" in run(options=("--format", "markdown"))[1]
    report = json.loads(run(options=JSON)[1])
    assert report["unjudged"] == [{"group": "apps", "kind": "Deploymnet", "objects": 1, "meant": "Deployment"}]
    assert (report["summary"]["objects"], report["summary"]["unjudged"]) == (5, 1)


def test_no_line_of_the_table_is_wider_than_the_terminal(sample_policy: Policy, sample_facts: Facts) -> None:
    old = Engine(replace(sample_policy, actions={"multiple-slices": Action.WARN}), rules.walk())
    new = Engine(sample_policy, rules.walk())
    steered = Engine(replace(sample_policy, pools=sample_policy.pools[1:]), rules.walk())
    items = files.items(read(PODS, "apps/of/a/team/in/a/folder/pods.yaml")[0])[0]
    for one, other in ((old, new), (new, steered), (steered, old)):
        change = Change.of(one, other, [compare(item, one, other, sample_facts) for item in items])
        wide = diff_report.table(change, PLAIN)
        narrow = diff_report.table(change, Look(60))
        assert [each for each in narrow.splitlines() if len(each) > 60 and " " in each.strip()] == []
        assert "".join(narrow.split()) == "".join(wide.split())
        assert max(map(len, wide.splitlines())) > 100


def test_unreadable_input_is_status_2_and_the_rest_is_compared(run: Any, tmp_path: Path) -> None:
    (tmp_path / "pods.yaml").write_text(f"{PODS}---\na: [\n---\napiVersion: v1\nkind: Pod\nspec: {{containers: 1}}\n")
    status, out, _ = run(LESS, options=("--fail-on", "any"))
    assert status == 2
    assert "denied, patched otherwise  pods.yaml:" in out
    assert "; 2 errors\n" in out


def test_a_change_of_the_fallback_is_told_by_its_rules(run: Any) -> None:
    line = " in another way"
    assert line not in run(("  name: sample\n", "  name: renamed\n"))[1]
    out = run(WARN, options=JSON)[1]
    assert json.loads(out)["fallback"] == {"added": [], "removed": ["multiple-slices"], "changed": [], "written": []}
    said = " ".join(run(WARN)[1].split())
    assert "a cluster's fallback, if it has one, no longer enforces multiple-slices; the controller renews it" in said
    assert line in run(LESS)[1]


GRANTS = "    grants:\n"


@pytest.mark.parametrize(
    ("grant", "line"),
    [
        ("{namespaces: [later]}", "namespace later {} trusted"),
        ("{namespaces: [b, a], pools: [mig]}", "namespace a, namespace b {} trusted in pool mig"),
        ("{namespaceSelector: {matchLabels: {tier: gold}}}", "namespaces with tier=gold {} trusted"),
        ("{rbac: true}", "every namespace {} trusted, if its service account has the right of trust"),
        (
            "{namespaces: [later], serviceAccounts: [trainer], groups: [leads], users: [eve], pools: [shared, mig]}",
            "namespace later {} trusted in pools mig, shared, if its service account is trainer and it is sent by eve, "
            "leads",
        ),
    ],
)
def test_a_grant_is_shown_though_no_object_of_the_namespace_is_there(run: Any, grant: str, line: str) -> None:
    added = (GRANTS, f"{GRANTS}      - {grant}\n")
    one = f"grants: pods of {line.format('may now be')}"
    status, out, _ = run(added, options=JSON)
    assert status == 0
    assert [note for note in json.loads(out)["notes"] if note.startswith("grants: ")] == [one]
    assert one in " ".join(run(added)[1].split())
    _, out, _ = run(options=JSON, old="new.yaml")
    assert not [note for note in json.loads(out)["notes"] if note.startswith("grants: ")]


def test_a_grant_that_goes_is_shown(sample_policy: Policy) -> None:
    fewer = replace(sample_policy, grants=())
    assert [*trust.changes(sample_policy, fewer)] == [
        "grants: pods of namespaces with slicewarden.dev/trust=trusted may no longer be trusted"
    ]
    assert [*trust.changes(sample_policy, replace(sample_policy, name="renamed"))] == []


def test_rules_are_chosen_and_changes_are_counted(run: Any) -> None:
    rows = [line.split() for line in run(WARN, options=("--statistics",))[1].splitlines()]
    assert ["multiple-slices", "Deny", "→", "Warn", "1", "1", "1"] in rows
    assert json.loads(run(WARN, options=JSON)[1])["results"] != []
    assert json.loads(run(WARN, options=(*JSON, "--rule", "multiple-slices"))[1])["results"] != []
    assert json.loads(run(WARN, options=(*JSON, "--skip-rule", "multiple-slices"))[1])["results"] == []


def test_options_of_a_cluster_without_live_are_wrong_usage(run: Any) -> None:
    assert run(options=("--kubeconfig", "x")) == (2, "", "error: --kubeconfig: needs --live\n")


@pytest.fixture
def other(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine with a laxer policy. Two fallbacks are compared once: that takes far longer than a pod."""
    policy = replace(engine.policy, pools=engine.policy.pools[1:], actions={"visible-devices": Action.WARN})
    policies = {id(each): each for each in (engine.policy, policy)}
    once = cache(lambda old, new: changes(policies[old], policies[new], rules.walk()))
    monkeypatch.setattr(diff, "changes", lambda old, new, _: once(id(old), id(new)))
    return Engine(policy, engine.rules)


@given(manifest=pods())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_a_policy_never_differs_from_itself_and_every_change_can_be_undone(
    manifest: dict[str, Any], engine: Engine, other: Engine, sample_facts: Facts
) -> None:
    def change(old: Engine, new: Engine) -> Change:
        return Change.of(old, new, [compare(alone(manifest), old, new, sample_facts)])

    assert not change(engine, engine).changed
    there, back = change(engine, other), change(other, engine)
    assert len(there.changed) == len(back.changed)
    for effect, undone in ((ChangeEffect.DENIED, ChangeEffect.FREED), (ChangeEffect.WARNED, ChangeEffect.UNWARNED)):
        assert len(there.having(effect)) == len(back.having(undone))


def test_several_processes_compare_the_same_as_one(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (
        pod(f"p{each}", "visitors", f"nvidia.com/gpu: {8 if each % 3 else 1}") for each in range(3 * batches.FILES)
    )
    (tmp_path / "pods.yaml").write_text("".join(texts) + "---\na: [\n")
    one = run(LESS, options=JSON)
    monkeypatch.setattr(batches, "_cores", lambda: 2)
    assert run(LESS, options=JSON) == one
    assert (one[0], json.loads(one[1])["summary"]["denied"]) == (2, 2 * batches.FILES)


# From Git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for key in [key for key in os.environ if key.startswith("GIT_")]:  # as of a hook that runs the tests
        monkeypatch.delenv(key)
    folder = tmp_path / "policies"
    folder.mkdir()
    (folder / "p.yaml").write_text(SAMPLE)
    (folder / "notes.md").write_text("a: [")
    (folder / "tests").mkdir()
    (folder / "tests" / "t.yaml").write_text("a: [")
    for command in (["init", "-q"], ["add", "policies"], ["commit", "-q", "-m", "a policy"]):
        user = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *user, *command], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize("old", ["HEAD:policies", "HEAD:policies/", "HEAD:policies/p.yaml", "HEAD:./policies/p.yaml"])
def test_a_policy_is_read_out_of_a_revision(run: Any, repository: Path, old: str) -> None:
    (repository / "policies" / "p.yaml").write_text("broken: [")
    status, out, _ = run(LESS, options=JSON, old=old)
    assert (status, effects(out)) == (1, {"many": ["denied", "patchedOtherwise"]})


@pytest.mark.usefixtures("repository")
def test_an_error_in_a_revision_names_it(run: Any) -> None:
    for old in ("HEAD:none", "none:policies", "HEAD:policies/tests", "HEAD:policies/notes.md"):
        status, out, err = run(old=old)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"error: {old}")


def test_a_revision_that_looks_like_an_option_is_not_passed_to_git_as_one(run: Any, repository: Path) -> None:
    (repository / "sub").mkdir()
    status, _, err = run(old="x:--output=stolen")
    assert status == 2
    assert "x:--output=stolen" in err
    assert not (repository / "stolen").exists()


def test_rendered_objects_are_compared_at_the_lines_that_people_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.yaml").write_text(SAMPLE)
    (tmp_path / "new.yaml").write_text(SAMPLE.replace('"*": Deny\n', '"*": Deny\n    host-namespaces: Warn\n'))
    app = tmp_path / "app"
    app.mkdir()
    (app / "kustomization.yaml").write_text("namespace: lab\nresources: [pod.yaml]\npatches: [{path: patch.yaml}]\n")
    (app / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
        "  - {name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}\n"
    )
    (app / "patch.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {hostPID: true}\n")
    status = cli.main(["diff", "old.yaml", "new.yaml", "app", "--facts", FACTS, "--format", "json"])
    (changed,) = json.loads(capsys.readouterr().out)["results"]
    assert (status, changed["namespace"], changed["file"]) == (0, "lab", "app/pod.yaml")
    places = [(each["rule"], each["file"], each["line"]) for each in changed["findings"]]
    assert places == [("host-namespaces", "app/patch.yaml", 4)]


LENIENT = SAMPLE.replace(EVERY_RULE, f"{EVERY_RULE}    privileged-container: Warn\n    device-path: Warn\n")


def test_rendered_objects_are_compared_with_the_policy_of_a_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The door is in the patch of an overlay; the base without it is not judged."""
    layouts.load("overlay-patch").write(tmp_path)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/policy.yaml").write_text(LENIENT)
    monkeypatch.chdir(tmp_path)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], check=True)
    (tmp_path / "policies/policy.yaml").write_text(SAMPLE)
    command = ["diff", "main:policies", "policies", "base", "overlays", "--facts", FACTS, *JSON]
    assert cli.main(command) == 1
    report = json.loads(capsys.readouterr().out)
    (result,) = report["results"]
    assert (result["namespace"], result["name"], result["effects"][0]) == ("media", "plex", "denied")
    assert result["root"] == "overlays/gpu"
    assert {(each["rule"], each["before"], each["after"]) for each in result["findings"]} == {
        ("privileged-container", "Warn", "Deny"),
        ("device-path", "Warn", "Deny"),
    }
    assert report["summary"]["unchanged"] == 0
