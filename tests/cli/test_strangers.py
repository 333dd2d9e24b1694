"""No text of a stranger begins a line of what is printed, moves a cursor, or is a command of a build server."""

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from tests import ROOT
from tests.support.strangers import HOSTILE, harmful, places
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.cli.commands import COMMANDS
from webhook.cli.root import root

NAME = "a\n::stop-commands::x\n##[group]\x1b[2K\nFORGED 1 object.yaml"
FACTS = str(ROOT / "webhook/sample/facts.yaml")
POLICY = str(ROOT / "policies/sample.yaml")

OBJECTS = [
    *sorted((ROOT / "tests/fixtures").glob("multiple-slices/*.yaml"))[:4],
    *sorted((ROOT / "tests/fixtures").glob("uncapped-memory/*.yaml"))[:4],
    *sorted((ROOT / "tests/fixtures").glob("invalid-sharing-config/deny-*.yaml"))[:3],
    *sorted((ROOT / "tests/fixtures").glob("invalid-trust/deny-*.yaml"))[:2],
]


def hostile(items: Iterable[tuple[str, Any]]) -> Iterator[Any]:
    """Objects, each with the hostile text at the end of another of its texts, or of one of its keys.

    Each object comes with the name of a group. A place that several of a group have is tried in the first of them.
    """
    tried = set[tuple[str, tuple[Any, ...]]]()
    for group, item in items:
        for number, (_, _, path) in enumerate(places(item)):
            if (group, path) in tried:
                continue
            tried.add((group, path))
            made = deepcopy(item)
            within, key, _ = [*places(made)][number]
            within[key] += HOSTILE if number % 2 else HOSTILE[1:]
            yield made
            if isinstance(key, str):
                again = deepcopy(item)
                within, key, _ = [*places(again)][number]
                within[f"{key}{HOSTILE}"] = within[key]
                yield again


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hostile objects, and with hostile names of files: good, broken, templates, and without objects."""
    made = tmp_path_factory.mktemp("strangers")
    fixtures = ((file.parent.name, yaml.safe_load(file.read_text("utf-8"))) for file in OBJECTS)
    for number, each in enumerate(hostile(fixtures)):
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


CLUSTERS = (*sorted((ROOT / "tests/clusters").glob("*.yaml")), ROOT / "policies/lab/facts.yaml")
POOLS = ROOT / "tests/e2e/karpenter/policy.yaml"


def machine(node_pool: str, number: int) -> dict[str, Any]:
    """A node that Karpenter made, which offers slices."""
    labels = {"karpenter.sh/nodepool": node_pool, "node.kubernetes.io/instance-type": f"g4dn.{number}xlarge"}
    metadata = {"name": f"{node_pool}-{number}", "labels": {**labels, "karpenter.k8s.aws/instance-gpu-count": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": {"nvidia.com/gpu": "4"}},
    }


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Dumps of clusters, in each of which the hostile objects are besides the honest ones."""
    made = []
    for file in CLUSTERS:
        items = [dict(item.value) for item in inputs.load_objects(str(file))]
        items += [machine("slices", number) for number in (1, 2)]
        own = json.loads(json.dumps(items))
        worse = [
            each for each in hostile((item["kind"], item) for item in own) if {"kind", "apiVersion"} <= each.keys()
        ]
        made.append(tmp_path_factory.mktemp("dumps") / f"{file.stem}.json")
        made[-1].write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*items, *worse]}))
    return made


FREE = {"reason", "users", "groups", "resources", "product"}
"""The keys of a policy under which any text may be, besides its name."""


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A policy with the hostile text wherever any text may be, and one with it everywhere, which cannot be used."""
    made = tmp_path_factory.mktemp("policies")
    for name in ("POLICY", "BROKEN"):
        value = yaml.safe_load(Path(POLICY).read_text("utf-8"))
        for within, key, path in [*places(value)]:
            free = path == ("metadata", "name") or (FREE & {*path[-2:]} and "*" not in within[key])
            if free or name == "BROKEN":
                within[key] += HOSTILE
        (made / name).write_text(json.dumps(value))
    inputs.load_policy(str(made / "POLICY"))
    return {each.name: each for each in made.iterdir()}


ARGUMENTS = {
    "check": ("FOLDER", "--policy", POLICY, "--facts", FACTS),
    "diff": (POLICY, POLICY, "FOLDER", "--facts", FACTS),
    "place": ("FOLDER", "--policy", POLICY, "--facts", FACTS),
    "test": ("FOLDER", "--policy", POLICY),
    "facts": ("FOLDER", "--policy", POLICY),
    "policy lint": ("FOLDER",),
}
"""What each command with formats is given, besides the format."""

OF_A_CLUSTER = {"advise", "agent", "audit", "doctor", "idle", "prove", "top", "ui", "usage"}
"""Commands that need more than files of objects: their own tests try them."""


def formats() -> Iterator[tuple[str, str]]:
    """Every command that has formats, with each of them. The others are in UNFORMATTED."""
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


UNFORMATTED: list[tuple[Any, ...]] = [
    (0, "policy init", "--facts", "DUMP"),
    (0, "policy export", "--as", "nodeoverlay", "--policy", str(POOLS), "--facts", "DUMP"),
    (0, "explain caps", "--policy", "POLICY", "--facts", "DUMP"),
    (2, "explain caps", "FOLDER", "--policy", "POLICY", "--facts", FACTS),
    (2, "explain turns", "FOLDER", "--policy", "POLICY", "--facts", FACTS),
    (0, "registration", "--policy", "POLICY"),
    (2, "registration", "--policy", "BROKEN"),
    (2, "registration", "--policy", "POLICY", "--check", "DUMP"),
    (0, "fallback", "--policy", "POLICY", "--mutate", "--facts", "DUMP"),
    (2, "fallback", "--policy", "POLICY", "--check", "DUMP"),
    (2, "certs show", "DUMP"),
    (2, "certs bundle", "DUMP"),
]
"""The exit status of each command without formats, its words, and what it is given."""

OF_OURS = {
    *("controller", "demo", "serve", "thaw"),  # they print logs, whose formatters have tests
    *("certs issue", "certs keep"),
    *("completion", "explain frameworks", "help", "policy lints", "rules", "schema", "version"),
}
"""Commands without formats that read no file of a stranger."""


def test_each_command_is_here() -> None:
    """A new command fails here until it is tried with hostile objects, or is known to read none."""
    every = {
        f"{name} {verb}".strip()
        for name in COMMANDS
        for command in [root.get_command(click.Context(root), name)]
        for verb in (command.commands if isinstance(command, click.Group) else ("",))
    }
    tried = {*ARGUMENTS, *(each[1] for each in UNFORMATTED)}
    assert every == tried | OF_A_CLUSTER | OF_OURS


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


@pytest.mark.usefixtures("parsed_once")
@pytest.mark.parametrize("command", ["check", "diff", "test"])
def test_no_command_of_a_stranger_is_in_a_report_that_is_written_to_a_file(
    command: str, folder: Path, tmp_path: Path
) -> None:
    words = [str(folder) if word == "FOLDER" else word for word in ARGUMENTS[command]]
    forms = [form for name, form in formats() if name == command]
    more = [word for form in forms for word in ("--format", form, "--output", str(tmp_path / form))]
    cli.main([command, *words, *more])
    written = {form: (tmp_path / form).read_text("utf-8") for form in forms}
    assert any("FORGED" in text for text in written.values())
    assert {form: found for form, text in written.items() if (found := harmful(text, form))} == {}


@pytest.mark.usefixtures("parsed_once")
@pytest.mark.parametrize("words", UNFORMATTED, ids=lambda words: "-".join(words[1:3]))
def test_no_command_without_formats_prints_a_command_of_a_stranger(
    words: tuple[Any, ...],
    folder: Path,
    dumps: list[Path],
    policies: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    ended, command, *rest = words
    for dump in dumps if command.startswith("policy") else dumps[:1]:
        given = {"FOLDER": folder, "DUMP": dump, **policies}
        assert cli.main([*command.split(), *(str(given.get(word, word)) for word in rest)]) == ended
        printed = capsys.readouterr()
        assert harmful(printed.out, "") == []
        assert harmful(printed.err, "") == []


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_facts_are_written_without_a_command_of_a_stranger(
    form: str, dumps: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for dump in dumps:
        assert cli.main(["facts", str(dump), "--policy", POLICY, "--format", form]) == 0
        printed = capsys.readouterr()
        assert "FORGED" in printed.out
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
