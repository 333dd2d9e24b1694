"""`python -m bench.gpu truth` and `limits` on the pretended card: nobody can take their figures for measured ones."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pynvml
import pytest

from bench.gpu import limits, nvml, truth
from bench.gpu.containers import Containers
from bench.gpu.tables import DRY, about
from tests import ROOT
from tests.support.card.library import library
from tests.support.card.state import State
from webhook.agent.observe.nvml import Cards


@pytest.fixture
def bench(card: State, made: Containers, monkeypatch: pytest.MonkeyPatch) -> Iterator[nvml.Card]:
    """The card as bench/gpu finds it, where there is a cgroup v2."""
    del made
    monkeypatch.setenv("LD_LIBRARY_PATH", card.environment["LD_LIBRARY_PATH"])
    yield nvml.first()
    pynvml.nvmlInit()  # the binding may end only what it began
    for _ in range(2):  # this one's, and that of bench.gpu
        pynvml.nvmlShutdown()


def body(written: str) -> list[list[str]]:
    _, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in written.splitlines()]
    return rows


def test_the_first_line_and_every_row_of_a_dry_run_say_that_it_is_none(card: State, bench: nvml.Card) -> None:
    assert about(bench).startswith(f"**{DRY}**; Pretended Card, 24,576 MiB, driver 615.10, CUDA 13.2; Linux ")
    assert "Python 3." in about(bench)
    assert "Slicewarden " in about(bench)
    card.set(limits=1)
    modules: list[ModuleType] = [truth, limits]
    for module in modules:
        rows = body(module.run(bench)[0])
        assert rows
        assert {row[0] for row in rows} == {"dry run"}


def test_what_containers_take_is_told_in_its_place_and_gone_with_them(bench: nvml.Card) -> None:
    written, right = truth.run(bench)
    assert right
    assert [(row[2], row[3], row[4], row[6]) for row in body(written)] == [
        ("256 + 512", "768", "0", "told, in its place"),
        ("1024", "1024", "0", "told, in its place"),
        ("128", "128", "0", "told, in its place"),
    ]


def test_memory_that_is_told_in_another_place_is_found_out(bench: nvml.Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.agent.observe.processes.places.place", lambda _: None)
    written, right = truth.run(bench)
    assert (right, [row[6] for row in body(written)]) == (False, ["**wrong**", "**wrong**", "told, in its place"])


def test_a_limit_is_tried_where_the_driver_has_one_and_found_out_where_it_does_not_hold(
    card: State, bench: nvml.Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, right = limits.run(bench)
    assert (right, body(written)[0][6]) == (True, "not tried: Not Supported")
    card.set(limits=1)
    written, right = limits.run(bench)
    assert right
    assert body(written)[0][1:4] == ["2048", "2048", "2048"]
    assert body(written)[0][5:] == ["64 more", "held, and nobody else"]
    assert card.limits() == {}
    monkeypatch.setattr(Cards, "limit", lambda *_: "")
    written, right = limits.run(bench)
    assert (right, body(written)[0][6]) == (False, "**not held**")


def test_without_a_card_it_says_so_in_one_line_and_measures_nothing() -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library().parent), "CARD_STATE": "/missing"}
    command = [sys.executable, "-m", "bench.gpu", "truth"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "nothing measured: there is no NVIDIA GPU here (an NVIDIA driver, but no card)\n"


@pytest.mark.parametrize("which", ["caps", "truth"])
def test_without_a_card_and_without_the_binding_it_says_so_in_one_line(tmp_path: Path, which: str) -> None:
    ran = _without_binding(tmp_path, which, CARD_STATE="/missing")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "nothing measured: there is no NVIDIA GPU here (an NVIDIA driver, but no card)\n"


def test_with_a_card_and_without_the_binding_it_says_how_to_install_it(card: State, tmp_path: Path) -> None:
    ran = _without_binding(tmp_path, "truth", **card.environment)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "nothing measured: nvidia-ml-py is not installed; install it in a clone: pip install '.[agent]'\n"
    )


def _without_binding(tmp_path: Path, which: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the bench where importing pynvml fails as it does without the extra."""
    (tmp_path / "pynvml.py").write_text("raise ModuleNotFoundError(\"No module named 'pynvml'\", name='pynvml')\n")
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    given = {**os.environ, "LD_LIBRARY_PATH": str(library().parent), **environment, "PYTHONPATH": path}
    command = [sys.executable, "-P", "-m", "bench.gpu", which]
    return subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
