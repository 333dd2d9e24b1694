"""Defaults for the policy and the facts: the command line, then the environment, then a file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.command_lines import read
from webhook.cli import main as cli
from webhook.cli import settings
from webhook.model import Unusable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a policy and facts, from a folder below its root."""
    for name in ("SLICEWARDEN_POLICY", "SLICEWARDEN_FACTS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    (tmp_path / "rules").mkdir()
    (tmp_path / "deploy").mkdir()
    shutil.copy(ROOT / "policies/sample.yaml", tmp_path / "rules")
    for name in ("a.yaml", "b.yaml"):
        shutil.copy(ROOT / "webhook/sample/facts.yaml", tmp_path / name)
    monkeypatch.chdir(tmp_path / "deploy")
    return tmp_path


FILE = 'policy = "rules"\nfacts = ["a.yaml", "b.yaml"]\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("slicewarden.toml", FILE),
        ("pyproject.toml", f"[project]\nname = 'x'\n[tool.slicewarden]\n{FILE}"),
    ],
)
def test_a_file_above_gives_policy_and_facts_by_paths_of_its_own(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    for words in (("check",), ("explain", "caps"), ("policy", "lint")):
        given = read(*words)
        assert (given["policy"], given["facts"]) == ("../rules", ("../a.yaml", "../b.yaml"))
    assert read("diff", "x", "y")["facts"] == ("../a.yaml", "../b.yaml")
    assert read("registration")["policy"] == "../rules"


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "slicewarden.toml").write_text(FILE)
    monkeypatch.setenv("SLICEWARDEN_POLICY", "../rules/sample.yaml")
    monkeypatch.setenv("SLICEWARDEN_FACTS", "../b.yaml:../a.yaml")
    given = read("check")
    assert (given["policy"], given["facts"]) == ("../rules/sample.yaml", ("../b.yaml", "../a.yaml"))
    given = read("check", "--policy", "x", "--facts", "y")
    assert (given["policy"], given["facts"]) == ("x", ("y",))
    given = read("check", "--live")
    assert (given["facts"], given["live"]) == ((), True)
    monkeypatch.setenv("SLICEWARDEN_POLICY", "HEAD:rules")
    assert read("policy", "lint")["policy"] == "HEAD:rules"
    monkeypatch.setenv("SLICEWARDEN_POLICY", "")
    assert read("policy", "lint")["policy"] == "../rules"


def test_a_server_takes_the_environment_and_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "slicewarden.toml").write_text(FILE)
    tls = ("--tls-cert", "a", "--tls-key", "b")
    assert read("serve", "--live", *tls)["policy"] is None
    monkeypatch.setenv("SLICEWARDEN_POLICY", "../rules")
    monkeypatch.setenv("SLICEWARDEN_FACTS", "../a.yaml")
    given = read("serve", *tls)
    assert (given["policy"], given["facts"]) == ("../rules", ("../a.yaml",))


def test_the_policy_that_a_test_names_has_no_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "slicewarden.toml").write_text(FILE)
    monkeypatch.setenv("SLICEWARDEN_POLICY", "../rules")
    assert read("test")["policy"] is None


def test_the_search_ends_at_the_root_of_the_repository(folder: Path) -> None:
    (folder / "slicewarden.toml").write_text(FILE)
    (folder / "deploy/.git").touch()  # as a worktree has it
    assert (settings.policy(), settings.facts()) == (None, ())


def test_a_pyproject_without_our_table_is_not_read(folder: Path) -> None:
    (folder / "deploy/pyproject.toml").write_text("[tool.other\n")
    (folder / "slicewarden.toml").write_text(FILE)
    assert settings.policy() == "../rules"


@pytest.mark.parametrize(
    ("text", "read_", "said"),
    [
        ("policy = [", settings.policy, "../slicewarden.toml: not TOML: "),
        ('polcy = "rules"', settings.policy, "../slicewarden.toml: unknown key 'polcy', did you mean policy?"),
        ('policy = "gone"', settings.policy, "../slicewarden.toml: policy: no such file or folder: gone"),
        ("policy = 1", settings.policy, "../slicewarden.toml: policy must be the name of a file or folder"),
        ('facts = ["a.yaml", "c.yaml"]', settings.facts, "../slicewarden.toml: facts: no such file or folder: c.yaml"),
        ("facts = [1]", settings.facts, "../slicewarden.toml: facts must be the name of a file, or a list of names"),
    ],
)
def test_an_error_names_the_file(folder: Path, text: str, read_: Callable[[], object], said: str) -> None:
    (folder / "slicewarden.toml").write_text(text)
    with pytest.raises(Unusable) as raised:
        read_()
    assert str(raised.value).startswith(said)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("variable", ["SLICEWARDEN_POLICY", "SLICEWARDEN_FACTS"])
def test_an_error_names_the_variable(
    variable: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "gone")
    assert cli.main(["policy", "lint"]) == 2
    assert capsys.readouterr().err == f"error: {variable}: no such file or folder: gone\n"


@pytest.mark.parametrize(
    ("settled", "words", "warned"),
    [
        ('facts = "f.txt"', ["--policy", "../rules"], True),
        ('facts = "f.txt"', ["SLICEWARDEN_POLICY"], True),
        ('facts = "f.txt"\npolicy = "rules"', ["--policy", "../rules"], True),
        ('facts = "f.txt"\npolicy = "rules"', [], False),
        ('facts = "f.txt"', ["--policy", "../rules", "--facts", "../f.txt"], False),
        ('facts = "a.yaml"', ["--policy", "../rules"], False),
    ],
)
def test_trust_by_facts_of_the_repository_is_a_warning_if_its_policy_is_elsewhere(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    settled: str,
    words: list[str],
    warned: bool,
) -> None:
    if words == ["SLICEWARDEN_POLICY"]:
        monkeypatch.setenv(words[0], "../rules")
        words = []
    (folder / "slicewarden.toml").write_text(settled)
    (folder / "f.txt").write_text(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: fresh, labels: {slicewarden.dev/trust: trusted}}\n"
    )
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: fresh}\nspec: {containers: [{name: c}]}\n"
    (folder / "deploy/pod.yaml").write_text(pod)
    assert cli.main(["check", "pod.yaml", *words]) == 0
    assert ("grants trust there" in capsys.readouterr().out) == warned


RUNNING = """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: fresh
  uid: 5f1c4f0e-1111-4222-8333-444455556666
  managedFields: [{manager: kube-scheduler, operation: Update, fieldsV1: {"f:spec": {"f:nodeName": {}}}}]
spec: {nodeName: gone, containers: [{name: c}]}
status: {phase: Running}
"""


@pytest.mark.parametrize(
    ("settled", "words", "live"),
    [
        ('facts = "deploy/pod.yaml"', ["--policy", "../rules"], False),
        ('facts = "deploy/pod.yaml"', ["--policy", "../rules", "--facts", "pod.yaml"], True),
        ('facts = "deploy/pod.yaml"\npolicy = "rules"', [], True),
    ],
)
def test_facts_of_the_repository_are_no_objects_of_a_cluster_if_its_policy_is_elsewhere(
    folder: Path, capsys: pytest.CaptureFixture[str], settled: str, words: list[str], *, live: bool
) -> None:
    (folder / "slicewarden.toml").write_text(settled)
    (folder / "deploy/pod.yaml").write_text(RUNNING)
    assert cli.main(["check", "pod.yaml", *words]) == 1
    assert ("comes from a cluster and is judged as created" in capsys.readouterr().out) == live
