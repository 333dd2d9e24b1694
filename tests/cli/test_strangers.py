"""No text of a stranger begins a line of what is printed, moves a cursor, or is a command of a build server."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests import ROOT
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.cli.commands import COMMANDS
from webhook.cli.root import root

HOSTILE = "a\n::error::forged\n##[add-mask]x ##vso[task.x] \x1b[2K\r\u2028::x\x85FORGED 1 object: 1 allowed"
NAME = "a\n::stop-commands::x\n##[group]\x1b[2K\nFORGED 1 object.yaml"
FACTS = str(ROOT / "webhook/sample/facts.yaml")
POLICY = str(ROOT / "policies/sample.yaml")

OBJECTS = [
    *sorted((ROOT / "tests/fixtures").glob("multiple-slices/*.yaml"))[:4],
    *sorted((ROOT / "tests/fixtures").glob("uncapped-memory/*.yaml"))[:4],
    *sorted((ROOT / "tests/fixtures").glob("invalid-sharing-config/deny-*.yaml"))[:3],
    *sorted((ROOT / "tests/fixtures").glob("invalid-trust/deny-*.yaml"))[:2],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any, tuple[Any, ...]]]:
    """Every map or list of an object with a key under which there is a text, and the path of that key."""
    for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(each, str):
            yield value, key, (*path, key)
        elif isinstance(each, (dict, list)):
            yield from places(each, (*path, key))


def hostile() -> Iterator[Any]:
    """Objects, each with the hostile text at the end of another of its texts, or of one of its keys.

    A place that several fixtures of one rule have is tried in the first of them.
    """
    tried = set[tuple[str, tuple[Any, ...]]]()
    for file in OBJECTS:
        text = file.read_text("utf-8")
        for number, (_, _, path) in enumerate(places(yaml.safe_load(text))):
            if (file.parent.name, path) in tried:
                continue
            tried.add((file.parent.name, path))
            made = yaml.safe_load(text)
            within, key, _ = [*places(made)][number]
            within[key] += HOSTILE if number % 2 else HOSTILE[1:]
            yield made
            if isinstance(key, str):
                again = yaml.safe_load(text)
                within, key, _ = [*places(again)][number]
                within[f"{key}{HOSTILE}"] = within[key]
                yield again


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hostile objects, and with hostile names of files: good, broken, templates, and without objects."""
    made = tmp_path_factory.mktemp("strangers")
    for number, each in enumerate(hostile()):
        (made / f"{number}{NAME}").write_text(json.dumps(each))
    (made / f"broken{NAME}").write_text(f"kind: Pod\n{json.dumps(HOSTILE)}: [")
    (made / f"other{NAME}").write_text("a: 1\n")
    key = json.dumps(HOSTILE)
    (made / f"twice{NAME}").write_text(f"kind: Pod\napiVersion: v1\n{key}: 1\n{key}: 2\n")
    (made / "templates").mkdir()
    (made / "templates" / NAME).write_text("{{ x }}\nkind: [")
    (made / f"chart{NAME}" / "templates").mkdir(parents=True)
    (made / f"chart{NAME}" / "Chart.yaml").write_text("name: x\n")
    (made / f"chart{NAME}" / "templates" / "a.yaml").write_text("{{ x }}\n")
    return made


ARGUMENTS = {
    "check": ("FOLDER", "--policy", POLICY, "--facts", FACTS),
    "diff": (POLICY, POLICY, "FOLDER", "--facts", FACTS),
    "place": ("FOLDER", "--policy", POLICY, "--facts", FACTS),
    "test": ("FOLDER", "--policy", POLICY),
    "facts": ("FOLDER",),
    "policy lint": ("FOLDER",),
}
"""What each command with formats is given, besides the format."""

OF_A_CLUSTER = {"agent", "audit", "doctor", "idle", "prove", "usage"}
"""Commands that need more than files of objects. Their reports are made of the same parts."""


def formats() -> Iterator[tuple[str, str]]:
    """Every command that has formats, with each of them."""
    for name in COMMANDS:
        command = root.get_command(click.Context(root), name)
        assert command is not None
        below = command.commands if isinstance(command, click.Group) else {"": command}
        for verb, each in below.items():
            for option in each.params:
                if "--format" in option.opts and name not in OF_A_CLUSTER:
                    yield from ((f"{name} {verb}".strip(), form) for form in _choices(option))


def _choices(option: click.Parameter) -> Iterator[str]:
    if isinstance(option.type, click.Choice):
        yield from option.type.choices
    else:
        yield from getattr(option.type, "known", ("json", "yaml"))


COMMANDS_OF_OURS = re.compile(r"::(error|warning|notice) (file=[^:]*,)?(line=\d+,)?title=[^:]*::")


def harmful(text: str, form: str) -> list[str]:
    """The lines that a stranger began, or in which a build server or a terminal would find a command."""
    text = COMMANDS_OF_OURS.sub("", text) if form == "github" else text
    return [
        line
        for line in re.split(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text)
        if re.match(r"\s*::|FORGED", line) or re.search(r"##\w*\[|[\x00-\x08\x0e-\x1f\x7f]", line)
    ]


MORE = [
    *((command, form, ()) for command, form in formats()),
    *(("check", form, (option,)) for form in ("table", "markdown") for option in ("--explain", "--everything")),
]


@pytest.fixture
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the policy and the facts once for all formats."""
    monkeypatch.setattr(inputs, "load_policy_with_document", READ_POLICY)
    monkeypatch.setattr(inputs, "load_objects", READ_OBJECTS)


READ_POLICY, READ_OBJECTS = cache(inputs.load_policy_with_document), cache(inputs.load_objects)


@pytest.mark.usefixtures("parsed_once")
@pytest.mark.parametrize(("command", "form", "more"), MORE)
def test_no_format_prints_a_command_of_a_stranger(
    command: str, form: str, more: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(folder) if word == "FOLDER" else word for word in ARGUMENTS[command]]
    status = cli.main([*command.split(), *words, "--format", form, *more])
    printed = capsys.readouterr()
    assert printed.out or status, printed.err
    assert harmful(printed.out, form) == []
    assert harmful(printed.err, "") == []


def test_an_error_of_ours_shows_no_command_of_a_stranger(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError(HOSTILE)

    monkeypatch.setattr("webhook.cli.inputs.load_policy", broken)
    assert cli.main(["check", FACTS]) == 3
    printed = capsys.readouterr()
    assert "internal error: a" in printed.err
    assert harmful(printed.out + printed.err, "") == []


@pytest.mark.parametrize(
    "words", [["check", NAME], ["check", "--format", HOSTILE], [HOSTILE], ["check", "policies", HOSTILE]]
)
def test_an_argument_begins_no_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    printed = capsys.readouterr()
    assert harmful(printed.out + printed.err, "") == []
