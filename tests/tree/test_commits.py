"""The check of commit messages that `make lint` runs."""

import subprocess
from pathlib import Path

import pytest

from tests.support.commits import main, problems

GOOD = "fallback: read parameters once\n\nEach read is a request to the API server.\n"


@pytest.mark.parametrize("subject", ["fallback: pass parameters on", "facts/kinds: embed a table", "ci: run e2e twice"])
def test_a_message_that_keeps_the_rules_has_no_problem(subject: str) -> None:
    assert [*problems(f"{subject}\n\nWhy.\n")] == []


@pytest.mark.parametrize(
    "subject",
    [
        "Read parameters once",
        "fallback: Read parameters once",
        "fallback: reads parameters once",
        "fallback: reading parameters once",
        "fallback: removed a parameter",
        "fallback: read",
        "fallback: read parameters once.",
        "fallback:read parameters once",
        "the fallback: read parameters once",
    ],
)
def test_a_subject_is_area_verb_object(subject: str) -> None:
    (problem,) = problems(f"{subject}\n\nWhy.\n")
    assert "`area: verb object`" in problem


def test_a_subject_has_at_most_72_characters() -> None:
    assert [*problems(f"fallback: read {'x' * 57}\n\nWhy.\n")] == []
    (problem,) = problems(f"fallback: read {'x' * 58}\n\nWhy.\n")
    assert "73 characters" in problem


@pytest.mark.parametrize("body", ["", "\n", "\n\n", "\n\nSigned-off-by: a <a@example.com>\n"])
def test_a_body_is_there(body: str) -> None:
    assert [*problems(f"fallback: read parameters once{body}")] == ["no body says why"]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def commit(folder: Path, message: str) -> str:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def test_commits_since_the_base_are_checked_but_for_merges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    base = commit(tmp_path, "Before the rules")
    commit(tmp_path, GOOD)
    git(tmp_path, "checkout", "--quiet", "-b", "side", base)
    commit(tmp_path, GOOD)
    git(tmp_path, "merge", "--quiet", "--no-edit", "main")
    assert (main(tmp_path, base), *capsys.readouterr()) == (0, "", "")
    commit(tmp_path, "Add things")
    assert main(tmp_path, base) == 1
    assert [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "the subject is not `area: verb object`, as in `fallback: read parameters once`: Add things",
        "no body says why: Add things",
    ]


def test_without_the_history_it_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "clone").mkdir()
    assert main(tmp_path / "clone", "abc") == 0
    git(tmp_path / "clone", "init", "--quiet")
    commit(tmp_path / "clone", "Add things")
    assert main(tmp_path / "clone", "abc") == 0
    assert capsys.readouterr().out == "commit messages are not checked: there is no history back to abc here\n" * 2
