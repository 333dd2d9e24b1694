"""The pictures of the pages: what `make docs` draws, and nothing that a page may not load."""

import runpy
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import runs
from tests import ROOT

DRAW = runpy.run_path(str(ROOT / "docs" / "draw.py"))
PICTURES = ROOT / "docs" / "img"


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    pictures: dict[str, str] = DRAW["pictures"]()
    return pictures


def test_the_pictures_are_what_is_drawn_from_real_runs(drawn: dict[str, str]) -> None:
    kept = {file.name: file.read_text("utf-8") for file in PICTURES.iterdir()}
    assert kept == drawn, "run `make docs`"


@pytest.mark.parametrize("file", sorted(PICTURES.glob("*.svg")), ids=lambda file: str(file.name))
def test_a_picture_is_readable_and_loads_nothing(file: Path) -> None:
    root = ET.fromstring(file.read_text("utf-8"))  # noqa: S314 - our own
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names <= {"svg", "title", "style", "text", "rect", "path"}
    assert root.get("aria-label")
    style = root.find("{http://www.w3.org/2000/svg}style")
    assert style is not None
    assert "prefers-color-scheme: dark" in str(style.text)
    assert "url(" not in str(style.text)
    width = float(root.get("width", "0"))
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        start, words = float(text.get("x", "0")), text.text or ""
        if text.get("text-anchor") == "start":
            assert start + 6.5 * len(words) <= width, words


def test_the_chart_shows_each_server_that_was_measured() -> None:
    figures = runs.read()["https"].figures
    rates = DRAW["ratios"](figures, "40 KB, 32 connections", "reviews a second, to ")
    assert rates["Slicewarden"] == 1
    assert rates["Go net/http"] == 1 / figures["40 KB, 32 connections: reviews a second, to Go net/http"].median
    assert DRAW["ratios"](figures, "no such load", "p99, to ") == {"Slicewarden": 1}
