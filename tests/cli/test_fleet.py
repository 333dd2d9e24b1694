"""`--cluster NAME=FOLDER`: one line for each cluster of a fleet, and the exit status of the worst."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests import ROOT
from tests.support.policies import FACTS, POLICY
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.documents.documents import Document
from webhook.model import Unusable
from webhook.policy.model import Policy


def pod(name: str, amount: int) -> str:
    limits = {"nvidia.com/gpu.shared": amount}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    metadata = {"name": name, "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    value = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    return yaml.safe_dump(value)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clusters with the same facts; in eu-1 two pods request two slices, in us-2 none does."""
    monkeypatch.chdir(tmp_path)
    for name, amounts in {"eu-1": (2, 2, 1), "us-2": (1,)}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "facts.yaml").write_text(FACTS.read_text("utf-8"), "utf-8")
        text = "---\n".join(pod(f"pod-{number}", amount) for number, amount in enumerate(amounts))
        (folder / "pods.yaml").write_text(text, "utf-8")
    value = yaml.safe_load(POLICY.read_text("utf-8"))
    value["spec"].setdefault("rules", {})["multiple-slices"] = "Audit"
    (tmp_path / "old.yaml").write_text(yaml.safe_dump(value), "utf-8")
    value["spec"]["rules"]["multiple-slices"] = "Deny"
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(value), "utf-8")
    return tmp_path


EU, US = ("--cluster", "eu-1=eu-1"), ("--cluster", "us-2=us-2")


@pytest.mark.usefixtures("fleet")
def test_diff_writes_one_line_for_each_cluster_and_fails_by_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "old.yaml", "new.yaml", *US]) == 0
    capsys.readouterr()
    assert cli.main(["diff", "old.yaml", "new.yaml", *EU, *US]) == 1
    head, *rows, blank, summary = capsys.readouterr().out.splitlines()
    assert (head.split("  ")[0], blank, summary) == ("cluster", "", "newly denied: 2 in eu-1, 0 in 1 other")
    cells = {row.split()[0]: row.split()[1] for row in rows}
    assert cells == {"eu-1": "2", "us-2": "0"}
    assert cli.main(["diff", "old.yaml", "new.yaml", *EU, *US, "--fail-on", "never"]) == 0


@pytest.mark.usefixtures("fleet")
def test_a_cluster_counts_as_diff_counts_it_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "old.yaml", "new.yaml", "eu-1", "--facts", "eu-1/facts.yaml", "--format", "json"]) == 1
    alone = json.loads(capsys.readouterr().out)["summary"]
    assert cli.main(["diff", "old.yaml", "new.yaml", *EU, "--format", "json"]) == 1
    (line,) = json.loads(capsys.readouterr().out)["clusters"]
    assert (line["summary"]["newly denied"], line["summary"]["as before"]) == (alone["denied"], alone["unchanged"])


@pytest.mark.usefixtures("fleet")
def test_check_writes_one_line_for_each_cluster_and_fails_by_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--policy", "new.yaml", *US]) == 0
    assert cli.main(["check", "--policy", "new.yaml", *US, *EU, "--format", "markdown"]) == 1
    assert "| eu-1 | 2 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "policies"),
    [
        (["diff", "old.yaml", "new.yaml"], ["old.yaml", "new.yaml"]),
        (["check", "--policy", "new.yaml"], ["new.yaml"]),
        (["policy", "lint", "new.yaml"], ["new.yaml"]),
        (["test", "--policy", "new.yaml"], ["new.yaml"]),
    ],
    ids=["diff", "check", "lint", "test"],
)
def test_a_policy_that_clusters_share_is_read_once(
    command: list[str], policies: list[str], fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("eu-1", "us-2"):
        (fleet / name / "test.yaml").write_text(TEST.replace("VERDICT", "denied"), "utf-8")
    read, load = list[str | None](), inputs.load_policy_with_document

    def noted(path: str | None) -> tuple[Policy, Document]:
        read.append(path)
        return load(path)

    monkeypatch.setattr(inputs, "load_policy_with_document", noted)
    cli.main([*command, *EU, *US])
    assert read == policies


def test_a_cluster_that_cannot_be_read_is_the_worst(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fleet / "us-2" / "pods.yaml").write_text("apiVersion: v1\nkind: Pod\na: [", "utf-8")
    for command in (["diff", "old.yaml", "new.yaml"], ["check", "--policy", "new.yaml"]):
        assert cli.main([*command, *EU, *US]) == 2
        assert "us-2: us-2/pods.yaml:" in capsys.readouterr().out


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--cluster", "eu-1"], "is not NAME=FOLDER"),
        ([*EU, *EU], "cluster 'eu-1' is given twice"),
        ([*EU, "eu-1"], "--cluster excludes PATH"),
        ([*EU, "--facts", "eu-1/facts.yaml"], "--cluster excludes --facts"),
        ([*EU, "--format", "html"], "--cluster has no html format"),
    ],
)
def test_what_does_not_go_together_is_refused(more: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "old.yaml", "new.yaml", *more]) == 2
    assert why in capsys.readouterr().err


KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
STRICTER = """\
patches:
  - patch: |
      apiVersion: slicewarden.dev/v1alpha1
      kind: GPUSharingPolicy
      metadata: {name: sample}
      spec: {rules: {multiple-slices: Deny}}
"""
TEST = """\
apiVersion: slicewarden.dev/v1alpha1
kind: PolicyTest
metadata: {name: slices}
spec:
  policy: ../old.yaml
  facts: [facts.yaml]
  today: "2026-01-01"
  cases:
    - name: two slices
      files: [pods.yaml]
      expect: {verdict: VERDICT}
"""


@pytest.fixture
def overlays(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The old policy as a base, and an overlay for each cluster: that of eu-1 denies two slices. No kustomize here."""
    monkeypatch.setenv("PATH", "/nowhere")
    base = fleet / "policies" / "base"
    base.mkdir(parents=True)
    (base / "policy.yaml").write_text((fleet / "old.yaml").read_text("utf-8"), "utf-8")
    (base / "kustomization.yaml").write_text(f"{KUSTOMIZATION}resources: [policy.yaml]\n", "utf-8")
    for name, patches in {"eu-1": STRICTER, "us-2": ""}.items():
        (fleet / "policies" / name).mkdir()
        text = f"{KUSTOMIZATION}resources: [../base]\n{patches}"
        (fleet / "policies" / name / "kustomization.yaml").write_text(text, "utf-8")
    return fleet


OWN = "policies/{cluster}"


@pytest.mark.usefixtures("overlays")
def test_each_cluster_is_judged_by_its_own_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--policy", OWN, *EU, *US, "--format", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["summary"] == "denied: 2 in eu-1, 0 in 1 other"
    assert [each["summary"]["denied"] for each in answer["clusters"]] == [2, 0]
    assert cli.main(["check", "--policy", OWN, *US]) == 0
    assert cli.main(["diff", "policies/base", OWN, *EU, *US]) == 1
    assert capsys.readouterr().out.endswith("newly denied: 2 in eu-1, 0 in 1 other\n")


def git(folder: Path, *command: str) -> None:
    own = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "PATH": os.defpath}
    named = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *named, *command], cwd=folder, env=own, check=True, capture_output=True)


def test_overlays_are_read_from_a_revision_as_from_files(
    overlays: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = overlays / "policies" / "base"
    with (base / "kustomization.yaml").open("a", encoding="utf-8") as file:
        file.write("configMapGenerator: [{name: note, files: [notes/note.txt]}]\n")
    (base / "notes").mkdir()
    (base / "notes" / "note.txt").write_text("a note", "utf-8")
    git(overlays, "init", "--quiet")
    git(overlays, "add", ".")
    git(overlays, "commit", "--quiet", "--message", "one")
    monkeypatch.setenv("PATH", os.defpath)  # for git; the base is followed or built, and both are the same
    for path in (OWN.replace("{cluster}", name) for name in ("eu-1", "us-2", "base")):
        policy, document = inputs.load_policy_with_document(f"HEAD:{path}")
        here, _ = inputs.load_policy_with_document(path)
        assert policy.digest == here.digest
        assert document.where(("spec", "pools"))[0] == "HEAD:policies/base/policy.yaml"
    (overlays / "policies" / "eu-1" / "kustomization.yaml").write_text(f"{KUSTOMIZATION}resources: [../base]\n")
    assert cli.main(["diff", f"HEAD:{OWN}", OWN, *EU, *US, "--fail-on", "any"]) == 1
    assert capsys.readouterr().out.endswith("newly denied: 0 in 2 clusters\n")
    monkeypatch.chdir(overlays / "policies")
    assert inputs.load_policy("HEAD:./eu-1").digest != inputs.load_policy("eu-1").digest
    monkeypatch.chdir(overlays / "policies" / "us-2")
    _, document = inputs.load_policy_with_document("HEAD:../us-2")
    assert document.where(("spec", "pools"))[0] == "HEAD:policies/base/policy.yaml"


def test_a_folder_of_a_policy_may_be_a_link(overlays: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (overlays / "programs").mkdir()
    program = overlays / "programs" / "kustomize"
    program.write_text('#!/bin/sh\ncd "$2" && exec /bin/cat policy.yaml\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    (overlays / "policies" / "link").symlink_to("base")
    here = inputs.load_policy("policies/base")
    for path in ("policies/link", str(overlays / "policies" / "link")):
        policy, document = inputs.load_policy_with_document(path)
        assert policy.digest == here.digest
        assert document.where(("spec", "pools"))[0].endswith("policies/base/policy.yaml")


def test_a_place_in_an_overlay_is_that_of_its_patch(overlays: Path) -> None:
    file = overlays / "policies" / "eu-1" / "kustomization.yaml"
    file.write_text(file.read_text("utf-8").replace("multiple-slices: Deny", "multiple-slices: Never"), "utf-8")
    with pytest.raises(Unusable) as unusable:
        inputs.load_policy("policies/eu-1")
    (problem,) = unusable.value.problems
    assert (problem.file, problem.line) == ("policies/eu-1/kustomization.yaml", 9)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("openapi: {path: openapi.json}\n", "openapi needs kustomize or kubectl on PATH"),
        ("components: [../absent]\n", "absent"),
    ],
)
def test_a_policy_that_is_seen_in_part_is_none(overlays: Path, more: str, why: str) -> None:
    file = overlays / "policies" / "eu-1" / "kustomization.yaml"
    file.write_text(file.read_text("utf-8") + more, "utf-8")
    with pytest.raises(Unusable, match=why):
        inputs.load_policy("policies/eu-1")


def test_a_cluster_without_a_policy_is_an_error_of_its_own_line(
    overlays: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (overlays / "policies" / "us-2" / "kustomization.yaml").unlink()
    assert cli.main(["check", "--policy", OWN, *EU, *US]) == 2
    out = capsys.readouterr().out
    assert "denied: 2 in eu-1, unknown in 1" in out
    assert "us-2: policies/us-2" in out


@pytest.mark.usefixtures("overlays")
def test_lint_uses_the_facts_and_the_policy_of_each_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["policy", "lint", "policies/eu-1", "--facts", "eu-1/facts.yaml", "--format", "json"]) == 0
    alone = json.loads(capsys.readouterr().out)["summary"]
    assert cli.main(["policy", "lint", OWN, *EU, *US, "--format", "json"]) == 0
    lines = json.loads(capsys.readouterr().out)["clusters"]
    assert lines[0]["summary"] == alone
    assert [line["name"] for line in lines] == ["eu-1", "us-2"]


def test_lint_says_which_clusters_have_no_facts_for_it(overlays: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (overlays / "us-2" / "facts.yaml").unlink()
    assert cli.main(["policy", "lint", OWN, *EU, *US]) == 0
    note = "note: us-2: no nodes or namespaces: lints about nodes and namespaces were skipped\n"
    assert capsys.readouterr().err == note


def test_tests_run_in_each_folder_under_the_policy_of_the_cluster(
    overlays: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("eu-1", "us-2"):
        (overlays / name / "test.yaml").write_text(TEST.replace("VERDICT", "allowed"), "utf-8")
    assert cli.main(["test", *EU, *US]) == 0
    assert cli.main(["test", "--policy", OWN, *US, *EU]) == 1
    assert capsys.readouterr().out.endswith("failed: 1 in eu-1, 0 in 1 other\n")
    (overlays / "us-2" / "test.yaml").unlink()
    assert cli.main(["test", *EU, *US]) == 2
    assert "us-2: us-2: no PolicyTest in it" in capsys.readouterr().out


def test_the_fleet_of_the_examples_needs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """tests/e2e/test_policy_objects.py builds it with kubectl."""
    monkeypatch.setenv("PATH", "/nowhere")
    clusters = ROOT / "manifests" / "examples" / "fleet" / "clusters"
    with pytest.raises(Unusable, match="openapi needs kustomize or kubectl"):
        inputs.load_policy(str(clusters / "eu-1"))
    assert inputs.load_policy(str(clusters / "us-2")).name == "fleet"


def test_the_fleet_of_the_examples_leaves_no_node_unguarded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    policy = str(ROOT / "manifests" / "examples" / "fleet" / "clusters" / "us-2")
    cli.main(["policy", "lint", policy, "--facts", str(FACTS), "--format", "json"])
    assert "unguarded-node" not in capsys.readouterr().out
