"""The checklists: every line is there, and is held by a test that exists or spoken of in SECURITY.md."""

import ast
import re
from collections import Counter
from functools import cache

import pytest

from tests import ROOT

TESTS = ROOT / "tests"
FOLDER = ROOT / "docs" / "evidence"
PAGE = (FOLDER / "checklists.md").read_text("utf-8")
SECURITY = (ROOT / "SECURITY.md").read_text("utf-8")
LISTS = {
    "contract": ("## The contract with the API server", 114),
    "threat": ("## Threats", 106),
    "object": ("## The policy as an object", 34),
}
ROW = re.compile(r"^\| (\d+)(?:-(\d+))? \| (.+) \| (.+) \|$", re.MULTILINE)


def rows(name: str) -> list[tuple[range, str]]:
    """The numbers of each row, and what holds it."""
    section = PAGE.partition(LISTS[name][0])[2].partition("\n## ")[0]
    return [(range(int(first), int(last or first) + 1), held) for first, last, _, held in ROW.findall(section)]


@cache
def names() -> Counter[str]:
    """How many test functions of each name there are, whatever their file."""
    trees = (ast.parse(file.read_text("utf-8")) for file in TESTS.glob("*/test_*.py"))
    return Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("name", LISTS)
def test_every_line_is_there_once(name: str) -> None:
    numbers = [number for numbers, _ in rows(name) for number in numbers]
    assert numbers == list(range(1, LISTS[name][1] + 1))


@pytest.mark.parametrize("name", LISTS)
def test_every_line_has_a_test_or_an_explanation(name: str) -> None:
    for numbers, held in rows(name):
        named = re.findall(r"`([^`]+)`", held)
        if not named:
            assert all(f"({name} {number})" in SECURITY for number in numbers), (name, numbers)
        for holder in named:
            if holder.startswith("test_"):
                assert names()[holder] == 1, holder
            else:
                assert (TESTS / "fixtures" / f"{holder}.yaml").exists(), holder


def test_a_line_that_security_md_explains_has_no_test() -> None:
    spoken = {(name, int(number)) for name, number in re.findall(rf"\(({'|'.join(LISTS)}) (\d+)\)", SECURITY)}
    assert spoken == {
        (name, number) for name in LISTS for numbers, held in rows(name) if "`" not in held for number in numbers
    }


def test_a_line_with_a_difference_has_a_test() -> None:
    differences = PAGE.partition("\n## With a difference\n")[2]
    said = re.findall(rf"^- ({'|'.join(LISTS)}) (\d+): ", differences, re.MULTILINE)
    assert said
    for name, number in said:
        assert any(int(number) in numbers and "`" in held for numbers, held in rows(name)), (name, number)


def test_links_lead_somewhere() -> None:
    for text, folder in ((PAGE, FOLDER), (SECURITY, ROOT)):
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (folder / link).exists(), link
