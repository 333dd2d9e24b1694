"""`--watch`: a command runs again whenever one of its files changes."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import ROOT
from webhook.cli import main as cli
from webhook.cli.watch import watch
from webhook.model import Problem, Unusable

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: NAME, namespace: lab}\nspec: {containers: [{name: c}]}\n"


def steps(*changes: Callable[[], object]) -> Callable[[float], None]:
    """A sleep that makes one change after the other, and then is interrupted."""
    left: Iterator[Callable[[], object]] = iter(changes)

    def sleep(_: float) -> None:
        change = next(left, None)
        if change is None:
            raise KeyboardInterrupt
        change()

    return sleep


def write(file: Path, text: str) -> Callable[[], object]:
    def change() -> None:
        file.write_text(text)
        os.utime(file, ns=(file.stat().st_mtime_ns, file.stat().st_mtime_ns + 1_000_000))

    return change


def nothing() -> None:
    """Change no file."""


def test_watch_runs_once_and_after_every_change(tmp_path: Path) -> None:
    file, runs = tmp_path / "a.yaml", list[int]()
    file.write_text("a")
    sleep = steps(nothing, write(file, "b"), nothing, write(tmp_path / "b.yaml", "new"), file.unlink)
    assert watch(lambda: map(str, tmp_path.iterdir()), lambda: runs.append(1), sleep=sleep) == 0
    assert len(runs) == 4


def test_watch_prints_unusable_input_and_waits_for_a_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a"

    def run() -> None:
        raise Unusable([Problem("a", 2, "is wrong")])

    assert watch(lambda: [str(file)], run, sleep=steps(write(file, "b"))) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0::2] == ["error: a:2: is wrong"] * 2
    assert lines[1].endswith(", 1 file watched; Ctrl-C ends")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "policies").mkdir()
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/pod.yaml").write_text(POD)
    shutil.copy(ROOT / "policies/sample.yaml", tmp_path / "policies/p.yaml")
    shutil.copy(ROOT / "webhook/sample/facts.yaml", tmp_path / "facts.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_sees_its_manifests_its_policy_and_its_facts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, policy = folder / "facts.yaml", folder / "policies/p.yaml"
    more = write(folder / "deploy/more.yaml", POD.replace("NAME", "more"))
    broken, mended = write(policy, "a: ["), write(policy, policy.read_text())
    changes = (more, nothing, write(facts, facts.read_text()), broken, mended)
    monkeypatch.setattr("time.sleep", steps(*changes))
    assert cli.main(["check", "deploy", "--facts", "facts.yaml", "--watch"]) == 0
    captured = capsys.readouterr()
    counts = [line.partition(":")[0] for line in captured.out.splitlines() if "allowed, " in line]
    assert counts == ["1 object", "2 objects", "2 objects", "2 objects"]
    assert captured.err.count("error: policies/p.yaml:") == 1


def test_a_test_sees_the_files_that_it_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "tests").mkdir()
    (folder / "tests/t.yaml").write_text(
        "apiVersion: slicewarden.dev/v1alpha1\nkind: PolicyTest\nmetadata: {name: a}\nspec:\n"
        "  policy: ../policies\n  facts: [../facts.yaml]\n"
        f"  cases: [{{name: a, object: {{{POD.replace(chr(10), ', ')}}}, expect: {{verdict: allowed}}}}]\n"
    )
    policy, facts = folder / "policies/p.yaml", folder / "facts.yaml"
    changes = (write(policy, policy.read_text()), nothing, write(facts, facts.read_text()))
    monkeypatch.setattr("time.sleep", steps(*changes))
    assert cli.main(["test", "tests", "--watch"]) == 0
    assert capsys.readouterr().out == "1 case in 1 file: 1 passed, 0 failed; 0 errors\n" * 3


@pytest.mark.parametrize("words", [("-",), ("deploy", "--patched", "out")])
def test_watching_standard_input_is_wrong_usage(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", *words, "--watch"]) == 2
    assert capsys.readouterr().err.startswith("error: --watch needs files, and excludes - and --patched\n")
