"""`--cluster NAME=FOLDER`: one line for each cluster of a fleet, and the exit status of the worst."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.policies import FACTS, POLICY
from webhook.cli import main as cli


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
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split("  ")[0] == "cluster"
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
