"""The figures of the pages: each is one that a run in bench/runs gave."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from bench import aims, page, runs
from bench.aims import Aim
from bench.gpu import page as gpu
from bench.peers import PEERS
from bench.runs import Figure, Machine, Result, Run
from tests import ROOT

KEPT = runs.read()
MACHINE = Machine(cpu="a CPU", cores=2, memory_gib=4, load=0.5)

MEASURED = re.compile(r"\b\d[\d.,]* ?(?:ms|µs|seconds|MiB|GiB|times|×|%|(?:reviews|pods|requests) a second)(?![\w-])")
"""Numbers of the kinds that a run gives."""


@pytest.mark.parametrize(
    "file", [page.PAGE, page.TABLES, page.README, page.SCALE, gpu.PAGE], ids=lambda file: str(file.name)
)
def test_a_page_says_the_figures_of_the_runs(file: Path) -> None:
    assert file.read_text("utf-8") == page.pages(KEPT)[file], "run `make docs`"


def test_no_run_on_a_pretended_card_comes_onto_the_page(tmp_path: Path) -> None:
    for run in gpu.RUNS.glob("*.json"):
        (tmp_path / run.name).write_text(run.read_text("utf-8").replace('"pretended": false', '"pretended": true'))
    with pytest.raises(ValueError, match="no measurement"):
        gpu.page(tmp_path)


def test_a_later_run_of_a_part_on_the_same_card_is_in_the_same_section(tmp_path: Path) -> None:
    (first, *_) = sorted(gpu.RUNS.glob("*.json"))
    run = json.loads(first.read_text("utf-8"))
    measured = {"part": "idle", "head": ["program"], "rows": [["waits"]], "notes": ["not tried: video"]}
    (tmp_path / "a.json").write_text(json.dumps(run))
    (tmp_path / "b.json").write_text(json.dumps({**run, "day": "2030-01-02", "parts": [measured]}))
    written = gpu.page(tmp_path)
    assert written.count(f"## {run['about'].partition(', ')[0]}\n") == 1
    assert f"Measured on {run['day']} and 2030-01-02." in written
    headings = [line for line in written.splitlines() if line.startswith("### ")]
    assert headings == [f"### {title}" for title in gpu.TITLES.values()]
    assert "| waits |\n\nNot tried: video.\n" in written


@pytest.mark.parametrize("name", ["README.md", "bench/README.md", "docs/evidence/scale.md"])
def test_no_figure_stands_where_no_run_gave_it(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    if page.BEGIN in text:
        text = page.filled(text, "")
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert MEASURED.findall(text) == [], "let bench/page.py write it from a run"


def test_a_figure_in_a_page_is_seen() -> None:
    for text in ("takes 3.8 ms", "0.2 % of a core", "1.3 times", "85 MiB", "10,000 pods a second", "1.15×"):
        assert MEASURED.search(text), text
    for text in ("a 4 KB review", "2026", "Python 3.11", "4 slices", "two cores"):
        assert not MEASURED.search(text), text


def test_each_aim_is_of_a_figure_that_its_run_has_and_says_a_reason() -> None:
    for aim in aims.AIMS:
        assert aim.reason
        run = KEPT.get(aim.part)
        other = next((other for other in PEERS.values() if aim.figure.endswith(other)), None)
        left_out = run is not None and other is not None and f"{other} was not measured" in run.text
        assert run is None or left_out or aim.figure in run.figures, aim


def _run(**figures: float) -> Run:
    each = {name: Figure(name, "×", value, value, value) for name, value in figures.items()}
    return Run("part", "A part", "abc", "2026-01-01", 1, MACHINE, {"CPython": "3.11"}, each, "the table")


def test_a_missed_aim_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        aims,
        "AIMS",
        (Aim("part", "rate", 2, "TLS takes it", least=True), Aim("part", "size", 2, "-"), Aim("part", "gone", 1, "-")),
    )
    kept = {"part": _run(rate=1.5, size=1.5)}
    assert aims.missed(kept) == [
        "part: rate: 1.5 ×, aim at least 2: TLS takes it",
        "part: no figure 'gone'",
    ]
    written = page.page(kept)
    assert "| A part | rate | ≥ 2 × | 1.5 × |  | missed: TLS takes it |" in written
    assert "| A part | size | ≤ 2 × | 1.5 × |  | met |" in written
    assert "| A part | gone | ≤ 1 | not measured |  |  |" in written


def test_a_page_says_which_machine_and_tree_a_part_was_measured_on() -> None:
    written = page.figures({"part": _run()})
    assert "at `abc` in 1 s on 2 cores of a CPU, 4 GiB; CPython 3.11." in written
    busy = replace(_run(), machine=replace(MACHINE, load=7.0))
    assert "4 GiB, beside other work (load 7); CPython" in page.figures({"part": busy})


def test_a_sentence_without_its_figure_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        page, "SENTENCES", ("It takes {part/rate} times.", "It takes {part/none} times.", "It {other/x}.")
    )
    run = _run(rate=1.2345)
    assert page.readme({"part": run}) == "It takes 1.2 times.\n"
    assert "beside other work" in page.readme({"part": replace(run, machine=replace(MACHINE, load=7.0))})


def test_a_run_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    rate = runs.figure("rate", "×", [3.0, 1.00001, 2.0])
    runs.write("part", "A part", Result("one\ntwo", [rate], {"Go": "1.26"}), MACHINE, 61.4)
    (read,) = runs.read().values()
    assert (read.part, read.title, read.seconds, read.text) == ("part", "A part", 61, "one\ntwo")
    assert read.figures == {"rate": Figure("rate", "×", 2.0, 1.0, 3.0)}
    assert read.versions["Go"] == "1.26"
    assert re.fullmatch(r"[0-9a-f]{9,}\+?|unknown", read.commit)
    with pytest.raises(ValueError, match="two figures have one name"):
        runs.write("part", "A part", Result("", [rate, rate]), MACHINE, 1)


def test_a_run_says_nothing_that_names_a_machine() -> None:
    for file in runs.RUNS.glob("*.json"):
        kept = json.loads(file.read_text("utf-8"))
        assert kept["machine"].keys() == {"cpu", "cores", "memory_gib", "load"}
        assert not re.search(r"/(home|root|tmp|work)/", file.read_text("utf-8")), file
