"""The page of the ways to a GPU: it names fixtures and rules that exist, and has every rule that closes a way."""

import re

import pytest

from tests import ROOT
from tests.support.fixtures import WAYS
from webhook.catalog.device_variables import DEVICE_VARIABLES
from webhook.rules import walk

FOLDER = ROOT / "docs" / "evidence"
PAGE = (FOLDER / "ways-to-a-gpu.md").read_text("utf-8")
WAYS_OF_PODS = PAGE.partition("## Which pods are judged")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in WAYS_OF_PODS.splitlines()
    if re.match(r"\| [^-f]", line)
]
ROWS = [row for row in ROWS if row[0] not in ("form", "way")]
FIXTURE = re.compile(r"`([a-z-]+/(?:allow|deny|patch|warn)-[a-z0-9-]+)`")


def test_the_tables_were_found() -> None:
    assert len(ROWS) > 30
    assert all(len(row) == 5 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_fixtures_that_are_there(row: list[str]) -> None:
    if row[0] == "`schedulerName`":
        return
    way, rule, closed, allowed, _ = row
    for cell, verbs in ((closed, ("deny", "patch")), (allowed, ("allow",))):
        names = FIXTURE.findall(cell)
        assert names, way
        for name in names:
            assert (ROOT / "tests" / "fixtures" / f"{name}.yaml").exists(), name
            assert name.partition("/")[2].startswith(verbs), name
    named = re.findall(r"`([a-z-]+)`", rule)
    assert set(named) <= {each.id for each in walk()}
    assert not named or any(name.startswith(f"{named[0]}/") for name in FIXTURE.findall(closed))


def test_every_rule_that_closes_a_way_is_on_the_page() -> None:
    assert {*WAYS, "lifted-limit"} <= set(re.findall(r"\| `([a-z-]+)` \|", PAGE))


def test_the_page_says_of_each_variable_what_an_image_opens_with_it() -> None:
    table = PAGE.partition("## Variables of an image")[2].partition("## ")[0]
    assert all(f"`{name}`" in table for name in DEVICE_VARIABLES)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (FOLDER / link.partition("#")[0]).exists(), link
