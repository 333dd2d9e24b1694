"""The tables of other Pythons: each ratio is to the running one, of the same round."""

import sys
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import payloads, pythons
from bench.generator import CannotRun, Wrong
from bench.https import Load, Measured, Round
from bench.pythons import COMPILED, RUNNING, Asked

LOAD = Load(payloads.small(), 32)


def _round(rps: float) -> Round:
    return Round(rps=rps, p50=1, p99=2, cpu=1000, resident=80, charged=75)


def _asked(ours: float, compiled: int = 0) -> Asked:
    return Asked("3.13.1", "3.13.0", compiled, {"4 KB, mutate": (ours, 20)})


MEASURED: Measured = {
    LOAD: [{"new": _round(300), RUNNING: _round(100)}, {RUNNING: _round(200), "new": _round(220)}],
}
ASKED = [{"new": _asked(50), RUNNING: _asked(100)}, {RUNNING: _asked(80), "new": _asked(60)}]


def test_a_ratio_is_to_the_running_python_of_the_same_round() -> None:
    written = pythons.text(MEASURED, ASKED)
    assert "| 4 KB | 32 | new | 260 | 2.00 | 1000 | 75 | 2.05 (1.10-3.00) | 1.00 (1.00-1.00) |" in written
    assert "| 4 KB, mutate | new | 55.0 | 2.75 (2.50-3.00) | 0.62 (0.50-0.75) |" in written
    assert written.index(f"| {RUNNING} |") < written.index("| new |")


def test_the_text_says_which_builds_were_not_measured() -> None:
    assert pythons.NOT_MEASURED in pythons.text(MEASURED, ASKED)
    assert f"{COMPILED} was not measured" in pythons.text(MEASURED, ASKED)
    compiled = [{**each, COMPILED: _asked(70, compiled=60)} for each in ASKED]
    measured: Measured = {LOAD: [{**each, COMPILED: _round(110)} for each in MEASURED[LOAD]]}
    assert f"{COMPILED} was not measured" not in pythons.text(measured, compiled)


def test_without_another_python_nothing_is_measured() -> None:
    with pytest.raises(CannotRun, match="--python NAME=PROGRAM"):
        pythons.run(1, 1, {})


def test_a_python_that_does_not_run_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no orjson >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(Wrong, match=r"new: .*python does not run: no orjson"):
        pythons.ask("new", broken)


@pytest.mark.parametrize("given", ["new=/nowhere/python", "new", f"{RUNNING}={sys.executable}", f"={sys.executable}"])
def test_a_python_without_a_name_or_a_program_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "pythons", "--python", given])
    with pytest.raises(SystemExit):
        command.main()
    assert "is not a name" in capsys.readouterr().err
