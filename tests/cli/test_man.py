"""The man pages: one for each command, from what `--help` is made of."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command_lines import pages
from webhook.cli import main as cli
from webhook.cli.commands import COMMANDS


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man") / "man1"
    assert cli.main(["help", "--man", str(folder)]) == 0
    return folder


def test_every_command_has_a_page_with_all_of_its_help(written: Path) -> None:
    names = {context.command_path.replace(" ", "-"): context for context in pages()}
    assert {file.stem for file in written.iterdir()} == set(names)
    assert set(names) >= {f"slicewarden-{name}" for name in COMMANDS}
    for name, context in names.items():
        text = (written / f"{name}.1").read_text("utf-8")
        assert text.startswith(f'.TH "{name.upper()}" 1 ')
        for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS"):
            assert text.count(f"\n.SH {heading}\n") == 1, f"{name}: {heading}"
        for parameter in context.command.get_params(context):
            record = parameter.get_help_record(context)
            assert record is not None
            assert f".B {record[0]}".replace("-", "\\-") in text


def test_man_pages_refer_to_each_other(written: Path) -> None:
    for file in written.iterdir():
        named = re.findall(r"^\.BR (\S+) \(1\)", file.read_text("utf-8"), re.MULTILINE)
        assert named
        assert all((written / f"{name}.1".replace("\\", "")).exists() for name in named)


def test_no_text_in_a_man_page_is_read_as_a_roff_request(written: Path) -> None:
    requests = (".TH", ".SH", ".TP", ".B ", ".BR ", ".PP", ".nf", ".fi")
    for file in written.iterdir():
        lines = file.read_text("utf-8").splitlines()
        assert [line for line in lines if line.startswith((".", "'")) and not line.startswith(requests)] == []
        assert "" not in lines


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_groff_takes_the_pages_without_a_warning(written: Path) -> None:
    files = sorted(map(str, written.iterdir()))
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", *files], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "Run the PolicyTests of a policy" in " ".join(done.stdout.split())


@pytest.mark.skipif(not shutil.which("mandoc"), reason="needs mandoc")
def test_mandoc_finds_no_error(written: Path) -> None:
    files = sorted(map(str, written.iterdir()))
    done = subprocess.run(["mandoc", "-Tlint", "-Werror", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_help_man_writes_all_pages_and_help_shows_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "check", "--man", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("error: --man writes all pages: leave out COMMAND or --man\n")
    (tmp_path / "file").touch()
    assert cli.main(["help", "--man", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}/file: File exists\n"
