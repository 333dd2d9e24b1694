"""Look at what `--help` says, what a shell completes, and what kubectl finds, for every command."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests import ROOT
from tests.support.command_lines import pages, read
from tests.support.waiting import LONG
from webhook import rules
from webhook.cli import main as cli
from webhook.cli import man, outputs, parser
from webhook.cli.commands import COMMANDS
from webhook.cli.options import INTERRUPTED, UNREAD

SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]

PAGES = {page.command_path: page for page in pages()}


def test_every_command_is_there() -> None:
    assert {f"slicewarden {name}" for name in COMMANDS} <= set(PAGES)
    assert {"slicewarden policy lint", "slicewarden explain caps", "slicewarden certs keep"} <= set(PAGES)


def test_the_page_of_the_command_line_has_the_help_of_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert cli.main(["help", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert page == (ROOT / "docs" / "command-line.md").read_text("utf-8"), "run make docs"
    for prog in PAGES:
        assert f"\n## {prog}\n\n```text\nUsage: {prog} [OPTIONS]" in page


@pytest.mark.parametrize("prog", PAGES)
def test_a_page_describes_shows_and_fits_the_terminal(prog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    text = PAGES[prog].get_help()
    assert text.startswith(f"Usage: {prog} [OPTIONS]")
    assert len(PAGES[prog].command.help or "") > 50
    assert "\nExamples:\n  $ " in text
    assert "\nExit status:\n  0 " in text
    shown = [line for line in text.splitlines() if not line.startswith("  $ ")]
    assert max(map(len, shown)) <= 72
    if "--policy" in text:
        assert "\nFiles:\n  ./policies  " in text or "\nFiles:\n  slicewarden.toml  " in text
    if "--kubeconfig" in text:
        assert "\n  KUBECONFIG  " in text.partition("\nEnvironment:")[2]


@pytest.mark.parametrize("prog", PAGES)
def test_a_page_lists_the_exit_statuses_in_their_order_with_those_of_every_command(prog: str) -> None:
    listed = re.findall(r"(?m)^  (\d+) ", PAGES[prog].get_help().partition("\nExit status:\n")[2])
    assert listed == sorted(listed, key=int)
    assert {"0", "2", "3", str(INTERRUPTED), str(UNREAD)} <= {*listed}


def test_an_interrupted_command_and_one_that_nobody_reads_end_with_the_listed_statuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(outputs, "show", interrupted)
    assert cli.main(["rules"]) == INTERRUPTED
    program = [sys.executable, "-m", "webhook", "rules", "--markdown"]
    reader, writer = os.pipe()
    os.close(reader)
    unread = subprocess.run(program, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, timeout=LONG, check=False)
    os.close(writer)
    assert (unread.returncode, unread.stderr) == (UNREAD, b"")


def test_each_man_page_lists_the_exit_statuses_of_every_command() -> None:
    for file, text in man.pages(PAGES["slicewarden"], "1"):
        listed = re.findall(r"(?m)^\.B (\d+)$", text.partition(".SH EXIT STATUS\n")[2].partition(".SH ")[0])
        assert listed == sorted(listed, key=int), file
        assert {"0", str(INTERRUPTED), str(UNREAD)} <= {*listed}, file


@pytest.mark.parametrize("prog", PAGES)
def test_every_argument_and_option_of_a_page_is_explained(prog: str) -> None:
    for parameter in PAGES[prog].command.get_params(PAGES[prog]):
        assert isinstance(parameter, (click.Argument, click.Option))
        assert parameter.help, parameter.name


@pytest.mark.parametrize("prog", PAGES)
def test_the_examples_of_a_page_can_be_typed(prog: str) -> None:
    page = PAGES[prog].command
    assert isinstance(page, (parser.Command, parser.CommandGroup))
    for line in page.page.examples:
        (words,) = [part for part in _commands(line) if part[0] == "slicewarden"][:1]
        if words[-1] != "--help":
            read(*words[1:])


def _commands(line: str) -> Iterator[list[str]]:
    line = line.replace('eval "$(', "").replace(')"', "").replace('"$(slicewarden certs bundle tls/ca.crt', "QUJD")
    for part in line.partition(" > ")[0].split(" | "):
        yield shlex.split(part)


def loaded(*words: str) -> set[str]:
    """The modules that a command line loads."""
    code = f"import sys; from webhook.cli.main import main; main({[*words]!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {*done.stderr.split()}


def test_only_the_command_that_is_asked_for_is_loaded() -> None:
    foreign = {"argparse", "kubernetes", "jsonschema", "cryptography", "webhook.cli.commands.check", "certs"}
    assert foreign.isdisjoint(loaded("rules"))
    assert not {name for name in loaded("--help") if name.startswith("webhook.cli.commands.")}


def test_prose_is_wrapped_and_hung_and_examples_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    page = parser.HelpEpilog((f"slicewarden {'x' * 90}",), {"10": "short", "0": "word " * 30}, more="prose " * 30)
    command = parser.Command("p", page=page)
    lines = command.get_help(click.Context(command)).splitlines()
    assert f"  $ slicewarden {'x' * 90}" in lines
    start = next(i for i, line in enumerate(lines) if line.startswith("  0    word"))
    assert lines[start + 1].startswith("       word")
    assert "  10   short" in lines


# What is typed


def test_paths_may_stand_anywhere_among_options() -> None:
    for words in (
        ("old", "new", "--facts", "x", "a", "b"),
        ("--facts", "x", "old", "new", "a", "b"),
        ("old", "--facts", "x", "new", "a", "--fail-on", "any", "b"),
    ):
        given = read("diff", *words)
        assert (given["old"], given["new"], given["paths"]) == ("old", "new", ("a", "b"))
    assert read("check", "a", "--explain", "b")["paths"] == ("a", "b")
    assert read("check", "--explain")["paths"] == ()
    assert read("check", "--explain", "--", "-a", "-")["paths"] == ("-a", "-")
    assert read("check", "-", "--explain")["paths"] == ("-",)
    assert read("test", "--run", "x")["paths"] == ()


@pytest.mark.parametrize(
    ("line", "prog", "text"),
    [
        ("check --polcy x deploy", "slicewarden check", "No such option '--polcy'. Did you mean '--policy'?"),
        ("check --polcy=x deploy", "slicewarden check", "No such option '--polcy'. Did you mean '--policy'?"),
        ("check --zzz", "slicewarden check", "No such option '--zzz'."),
        ("rules --markdwon", "slicewarden rules", "No such option '--markdwon'. Did you mean '--markdown'?"),
        ("policy lint --sooon 3", "slicewarden policy lint", "No such option '--sooon'. Did you mean '--soon'?"),
        ("completion bash zsh", "slicewarden completion", "Got unexpected extra argument (zsh)"),
        ("--verzion", "slicewarden", "No such option '--verzion'. Did you mean '--version'?"),
        ("chekc deploy", "slicewarden", "No such command 'chekc'. Did you mean 'check'?"),
        ("policy lynt", "slicewarden policy", "No such command 'lynt'. (Did you mean one of: 'lint', 'lints'?)"),
        (
            "check --format tabel",
            "slicewarden check",
            "Invalid value for '--format' / '-o': unknown 'tabel', did you mean table?",
        ),
        ("certs isue", "slicewarden certs", "No such command 'isue'. Did you mean 'issue'?"),
        ("certs issue --ot x", "slicewarden certs issue", "No such option '--ot'. Did you mean '--out'?"),
        ("certs show", "slicewarden certs show", "Missing argument 'FILE...'."),
        ("diff old", "slicewarden diff", "Missing argument 'NEW'."),
        ("check --facts a --live", "slicewarden check", "--facts and --live exclude each other"),
        ("serve --tls-cert a --tls-key a", "slicewarden serve", "one of --facts and --live is needed"),
        (
            "rules multiple-slices --markdown",
            "slicewarden rules",
            "--markdown shows all pages: leave out RULE or --markdown",
        ),
        (
            "policy lints x --markdown",
            "slicewarden policy lints",
            "--markdown shows all pages: leave out LINT or --markdown",
        ),
        (
            "check --policy a --policy b",
            "slicewarden check",
            "Invalid value for '--policy': given twice; give it once; `slicewarden diff` compares two policies",
        ),
        (
            "check --facts=",
            "slicewarden check",
            "Invalid value for '--facts': is empty, and names nothing; is a variable not set?",
        ),
        (
            "check -n Vision",
            "slicewarden check",
            "Invalid value for '--namespace' / '-n': 'Vision' is not a namespace name: "
            "use up to 63 of a-z, 0-9 and -, and no - at either end",
        ),
        (
            "audit --page-size 0",
            "slicewarden audit",
            "Invalid value for '--page-size': '0' is not a number from 1 to 10000",
        ),
        (
            "policy lint --today 2026-13-01",
            "slicewarden policy lint",
            "Invalid value for '--today': '2026-13-01' does not match the format '%Y-%m-%d'.",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_the_command_that_helps(
    line: str, prog: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(line.split()) == 2
    said = f"{text[0].lower()}{text[1:]}".rstrip(".")
    assert capsys.readouterr().err == f"error: {said}\ntry '{prog} --help'\n"


def test_help_and_version_are_commands_as_well_as_options(capsys: pytest.CaptureFixture[str]) -> None:
    def said(line: str) -> str:
        assert cli.main(line.split()) == 0
        return capsys.readouterr().out

    for words in ("", "check", "policy", "policy lint", "help"):
        assert said(f"help {words}") == said(f"{words} --help")
    assert said("version") == said("--version")
    for line, error, prog in (
        ("help chekc", "no such command 'chekc'. Did you mean 'check'?", "slicewarden"),
        ("help check x", "slicewarden check has no command 'x'", "slicewarden check"),
        ("lint", "no such command 'lint'. Did you mean 'policy lint'?", "slicewarden"),
        (
            "check -o report.json",
            "invalid value for '--format' / '-o': unknown 'report.json'; --output takes a file",
            "slicewarden check",
        ),
    ):
        assert cli.main(line.split()) == 2
        assert capsys.readouterr().err == f"error: {error}\ntry '{prog} --help'\n"


def test_without_arguments_the_list_of_commands_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["policy"], ["explain"], ["certs"]):
        assert cli.main(words) == 2
        answer = capsys.readouterr().err
        assert "\nCommands:\n  " in answer
        assert all(f"\n  {name} " in answer for name in (() if words else COMMANDS))
    assert cli.main(["-V"]) == 0
    assert capsys.readouterr().out.startswith("slicewarden 0.")
    assert (cli.main(["-h"]), capsys.readouterr().out[:6]) == (0, "Usage:")


# Completion


def asked(shell: str, *words: str) -> dict[str, str]:
    """The environment in which a shell's script asks for completions of the last word."""
    return {
        "_SLICEWARDEN_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": shlex.join(("slicewarden", *(words if shell != "fish" else words[:-1]))),
        "COMP_CWORD": str(len(words)) if shell != "fish" else words[-1],
    }


def offered(shell: str, *words: str) -> list[str]:
    """Return what the command offers a shell for the last word."""
    command, environment = [sys.executable, "-m", "webhook"], os.environ | asked(shell, *words)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "offers"),
    [
        (["ch"], ["plain,check"]),
        (["rules", "multiple"], ["plain,multiple-slices"]),
        (["policy", "lints", "empty-p"], ["plain,empty-pool"]),
        (["help", "policy", "li"], ["plain,lint", "plain,lints"]),
        (["check", "--fa"], ["plain,--facts", "plain,--fail-on"]),
        (["check", "--format", "sar"], ["plain,sarif"]),
        (["check", "--policy", "polic"], ["file,polic"]),
        (["check", "polic"], ["file,polic"]),
        (["check", "--facts", "a", "--live", "--form"], ["plain,--format"]),
        (["policy", "li"], ["plain,lint", "plain,lints"]),
    ],
)
def test_commands_options_values_rules_and_files_are_completed(
    words: list[str], offers: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in asked("bash", *words).items():
        monkeypatch.setenv(name, value)
    assert cli.main([]) == 0
    assert capsys.readouterr().out.splitlines() == offers


def test_all_commands_and_rules_are_completed() -> None:
    assert {*offered("bash", "")} >= {f"plain,{name}" for name in COMMANDS}
    assert {*offered("bash", "rules", "")} >= {f"plain,{rule.id}" for rule in rules.walk()}
    assert {*offered("bash", "certs", "")} >= {"plain,issue", "plain,keep"}


def test_completion_in_fish_and_zsh_shows_what_each_command_does() -> None:
    assert offered("zsh", "ch") == ["plain", "check", COMMANDS["check"]]
    assert offered("fish", "ch") == [f"plain,check\t{COMMANDS['check']}"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_accepts_its_completion_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert f"_SLICEWARDEN_COMPLETE={shell}_complete" in text
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([found, "-n", tmp_path / "script"], check=True)


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_by_the_script_it_has_sourced(plugin: Path) -> None:
    code = """
        eval "$(slicewarden completion bash)"
        COMP_WORDS=(slicewarden ch); COMP_CWORD=1
        [[ $(complete -p slicewarden) =~ -F\\ ([^ ]+) ]] && "${BASH_REMATCH[1]}" slicewarden ch slicewarden
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{plugin}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "check\n"


# kubectl


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """A folder with the scripts that an installation makes."""
    for name, entry in SCRIPTS.items():
        module, _, function = entry.partition(":")
        script = tmp_path / name
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
        script.chmod(0o755)
    return tmp_path


def test_the_kubectl_plugin_shows_kubectl_slicewarden_in_its_usage(plugin: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{plugin}:{os.environ['PATH']}"}
    kubectl = next(Path("~/.cache/slicewarden").expanduser().glob("*/kubectl"), shutil.which("kubectl"))
    command = [str(kubectl), "slicewarden"] if kubectl else ["kubectl-slicewarden"]
    done = subprocess.run([*command, "rules", "multiple-slices"], env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("multiple-slices\n"), done.stderr
    done = subprocess.run([*command, "check", "--help"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl slicewarden check")


# What is generated


@pytest.mark.parametrize(
    ("page", "command"), [("rules", ["rules", "--markdown"]), ("policy", ["schema", "--markdown"])]
)
def test_generated_pages_are_up_to_date(page: str, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / f"{page}.md").read_text("utf-8"), "write it again: make docs"


def test_the_schema_says_what_every_key_means(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("GPUSharingPolicy", "PolicyTest"):
        assert cli.main(["schema", "--kind", kind, "--markdown"]) == 0
        rows = [row for row in capsys.readouterr().out.splitlines() if row.startswith("| `")]
        assert len(rows) > 20
        assert [row for row in rows if row.endswith("|  |")] == []


def test_the_smallest_policy_of_the_page_can_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "policy.md").read_text("utf-8")
    file = tmp_path / "policy.yaml"
    file.write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert cli.main(["policy", "lint", str(file), "--fail-on", "warn"]) == 0, capsys.readouterr().out
