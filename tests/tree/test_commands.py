"""Each command has a test: a test function that runs it and asserts something.

To be named in a file is not enough: the function has to call `cli.main` with a list whose first word is the command,
and without an option that only shows its help.
"""

import ast
from collections.abc import Iterator

import pytest

from tests import ROOT, SUITES
from webhook.cli.commands import COMMANDS

FILES = [file for file in sorted((ROOT / "tests").glob("*/test_*.py")) if file.parent.name not in SUITES]
"""The files that `make test` runs."""


def run(tree: ast.Module) -> Iterator[str]:
    """Yield the first words of the command lines that the test functions of a module run."""
    for test in ast.walk(tree):
        if not (isinstance(test, ast.FunctionDef) and test.name.startswith("test_")):
            continue
        if not any(isinstance(node, ast.Assert) for node in ast.walk(test)):
            continue
        for node in ast.walk(test):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="cli"), attr="main"),
                    args=[ast.List(elts=[ast.Constant(value=str(command)), *words])],
                ):
                    given = {word.value for word in words if isinstance(word, ast.Constant)}
                    if not given & {"-h", "--help"}:
                        yield command


def test_each_command_is_a_file_that_a_test_runs() -> None:
    commands = {file.stem for file in (ROOT / "webhook/cli/commands").glob("*.py")} - {"__init__"}
    assert commands == set(COMMANDS)
    texts = (file.read_text("utf-8") for file in FILES)
    tested = {command for text in texts if "cli.main(" in text for command in run(ast.parse(text))}
    assert commands - tested == set()


@pytest.mark.parametrize(
    "source",
    [
        "def test_it():\n    assert cli.main(['thaw', '--ledger', folder]) == 0",
        "def test_it(capsys):\n    cli.main(['thaw', *options])\n    assert not capsys.readouterr().err",
    ],
)
def test_a_command_that_is_run_is_found(source: str) -> None:
    assert [*run(ast.parse(source))] == ["thaw"]


@pytest.mark.parametrize(
    "source",
    [
        "def test_it():\n    assert True  # cli.main(['thaw'])",
        "def test_it():\n    assert 'thaw' in PAGES",
        "def test_it():\n    assert cli.main(['thaw', '--help']) == 0",
        "def test_it():\n    assert cli.main(['help', 'thaw']) == 0",
        "def test_it():\n    cli.main(['thaw'])",
        "def run():\n    assert cli.main(['thaw']) == 0",
        "WORDS = ['thaw']",
    ],
)
def test_a_mere_mention_of_a_command_is_no_test(source: str) -> None:
    assert "thaw" not in run(ast.parse(source))
