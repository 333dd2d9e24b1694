"""What `--help` says, what a shell completes, and what kubectl finds: for every command there is."""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from webhook import cli, manual, rules
from webhook.commands import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]


def whole() -> argparse.ArgumentParser:
    return cast("argparse.ArgumentParser", cli.parser().get_default("whole")())


def pages(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from pages(each)


PAGES = {page.prog: page for page in pages(whole())}


def test_every_command_is_there() -> None:
    assert {f"slicewarden {name}" for name in COMMANDS} <= set(PAGES)
    assert {"slicewarden policy lint", "slicewarden explain caps", "slicewarden certs keep"} <= set(PAGES)


@pytest.mark.parametrize("prog", PAGES)
def test_a_page_describes_shows_and_fits_the_terminal(prog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    text = PAGES[prog].format_help()
    assert len(PAGES[prog].description or "") > 60
    assert "\nexamples:\n  $ " in text
    assert "\nexit status:\n  0 " in text
    shown = [line for line in text.splitlines() if not line.startswith(("  $ ", "usage:"))]
    assert max(map(len, shown)) <= 72
    if "--policy" in text:
        assert "\nfiles:\n  ./policies  " in text
    if "--kubeconfig" in text:
        assert "\nenvironment:\n  KUBECONFIG  " in text


@pytest.mark.parametrize("prog", PAGES)
def test_the_examples_of_a_page_can_be_typed(prog: str) -> None:
    for line in (PAGES[prog].epilog or "").splitlines():
        if line.startswith("  $ "):
            (words,) = [part for part in _commands(line[4:]) if part[0] == "slicewarden"][:1]
            if words[-1] not in ("--help", "check"):
                whole().parse_args(words[1:])


def _commands(line: str) -> Iterator[list[str]]:
    line = line.replace('eval "$(', "").replace(')"', "").replace('"$(slicewarden certs bundle tls/ca.crt', "QUJD")
    for part in line.partition(" > ")[0].split(" | "):
        yield shlex.split(part)


def test_only_the_options_of_the_command_that_is_asked_for_are_loaded() -> None:
    code = "import sys; from webhook import cli; cli.parser('rules'); print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"shtab", "kubernetes", "webhook.commands.check", "certs"}.isdisjoint(loaded.split())


def test_prose_is_wrapped_and_hung_and_examples_are_not() -> None:
    text = manual.epilog(("slicewarden " + "x" * 90,), {"0": "word " * 30, "10": "short"}, more="prose " * 30)
    parser = manual.Parser(prog="p", epilog=text)
    lines = parser.format_help().splitlines()
    assert f"  $ slicewarden {'x' * 90}" in lines
    start = next(i for i, line in enumerate(lines) if line.startswith("  0   word"))
    assert lines[start + 1].startswith("      word")
    assert "  10  short" in lines


# What is typed


def read(*words: str) -> argparse.Namespace:
    return whole().parse_args(words)


def test_paths_may_stand_anywhere_among_options() -> None:
    for words in (
        ("old", "new", "--facts", "x", "a", "b"),
        ("--facts", "x", "old", "new", "a", "b"),
        ("old", "--facts", "x", "new", "a", "--fail-on", "any", "b"),
    ):
        chosen = read("diff", *words)
        assert (chosen.old, chosen.new, chosen.paths) == ("old", "new", ["a", "b"])
    assert read("check", "a", "--live", "b").paths == ["a", "b"]
    assert read("check", "--explain").paths == ["."]
    assert read("check", "--explain", "--", "-a", "-").paths == ["-a", "-"]
    assert read("check", "-", "--explain").paths == ["-"]
    assert read("test", "--run", "x").paths == []


@pytest.mark.parametrize(
    ("line", "prog", "said"),
    [
        ("check --polcy x deploy", "slicewarden check", "unrecognized arguments: --polcy, did you mean --policy?"),
        ("check --polcy=x deploy", "slicewarden check", "unrecognized arguments: --polcy=x, did you mean --policy?"),
        ("check --zzz", "slicewarden check", "unrecognized arguments: --zzz"),
        ("rules --markdwon", "slicewarden rules", "unrecognized arguments: --markdwon, did you mean --markdown?"),
        ("policy lint --sooon 3", "slicewarden policy lint", "unrecognized arguments: --sooon, did you mean --soon?"),
        ("completion bash zsh", "slicewarden completion", "unrecognized arguments: zsh"),
        ("--verzion", "slicewarden", "unrecognized arguments: --verzion, did you mean --version?"),
        ("chekc deploy", "slicewarden", "argument COMMAND: unknown 'chekc', did you mean check?"),
        ("check --format tabel", "slicewarden check", "argument --format: unknown 'tabel', did you mean table?"),
        ("certs isue", "slicewarden certs", "argument COMMAND: unknown 'isue', did you mean issue?"),
        ("certs issue --ot x", "slicewarden certs issue", "unrecognized arguments: --ot x, did you mean --out?"),
        ("certs show", "slicewarden certs show", "the following arguments are required: FILE"),
        ("diff old", "slicewarden diff", "the following arguments are required: NEW"),
    ],
)
def test_what_is_misspelt_is_told_of_with_the_usage_of_its_own_command(
    line: str, prog: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        read(*line.split())
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: {prog} [-h]")
    assert told.endswith(f"{prog}: error: {said}\n")


def test_nothing_at_all_is_answered_with_the_list_of_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        read()
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert all(f"\n    {name}" in told for name in COMMANDS)
    with pytest.raises(SystemExit) as exit_:
        read("-V")
    assert (exit_.value.code, capsys.readouterr().out[:12]) == (0, "slicewarden ")


# Completion


def complete(words: list[str], folder: Path) -> list[str]:
    """What bash offers for the last word, when it has sourced the script."""
    script = folder / "completion.bash"
    if not script.exists():
        made = subprocess.run(
            [sys.executable, "-m", "webhook", "completion", "bash"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        script.write_text(made.stdout)
    last, before = shlex.quote(words[-1]), shlex.quote(words[-2])
    code = f"""
        source {script}; cd {ROOT}
        COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(" ".join(words))}
        [[ $(complete -p slicewarden) =~ -F\\ ([^ ]+) ]] && "${{BASH_REMATCH[1]}}" slicewarden {last} {before}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_options_values_rules_and_files(tmp_path: Path) -> None:
    def offered(*words: str) -> list[str]:
        return complete(["slicewarden", *words], tmp_path)

    assert set(offered("")) >= set(COMMANDS)
    assert offered("ch") == ["check"]
    assert offered("rules", "multiple") == ["multiple-slices"]
    assert set(offered("rules", "")) >= {rule.id for rule in rules.walk()}
    assert "--fail-on" in offered("check", "--fa")
    assert offered("check", "--format", "sar") == ["sarif"]
    assert offered("check", "--policy", "polic") == ["policies"]
    assert offered("policy", "li") == ["lint", "lints"]
    assert {"issue", "keep"} <= set(offered("certs", ""))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([found, "-n", tmp_path / "script"], check=True)


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


def test_the_plugin_calls_itself_as_kubectl_does(plugin: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{plugin}:{os.environ['PATH']}"}
    kubectl = next(Path("~/.cache/slicewarden").expanduser().glob("*/kubectl"), shutil.which("kubectl"))
    command = [str(kubectl), "slicewarden"] if kubectl else ["kubectl-slicewarden"]
    done = subprocess.run([*command, "rules", "multiple-slices"], env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("multiple-slices\n"), done.stderr
    done = subprocess.run([*command, "check", "--help"], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: kubectl slicewarden check")


# What is generated


@pytest.mark.parametrize(
    ("page", "command"), [("rules", ["rules", "--markdown"]), ("policy", ["schema", "--markdown"])]
)
def test_a_generated_page_is_as_the_command_writes_it(
    page: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
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
