"""A rule is one file and one folder: one is added to a copy of the tree, and nothing else is written by hand."""

import re
import shutil
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.copies import copy_tree, run_python

OLD, NEW = "host-namespaces", "borrowed-namespaces"
"""A rule of ours, and the name under which it is added a second time."""

HELD_BY = (
    "tree/test_architecture.py",
    "engine/test_conditions.py",
    "tree/test_docs.py::test_the_page_denied_quotes_real_messages_and_links_to_the_rules",
    "rules/test_fixtures.py",
    "cli/test_help.py::test_generated_pages_are_up_to_date",
    "rules/test_rules.py::test_the_readme_leads_to_a_table_of_every_rule_with_the_first_line_of_its_page",
)
"""The tests that walk all rules, or hold what is generated from them."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy with one more rule and its fixtures, and with what `make docs` writes."""
    copy_tree(tmp_path)
    rules, fixtures = tmp_path / "webhook" / "rules", tmp_path / "tests" / "fixtures"
    shutil.copy(rules / f"{OLD.replace('-', '_')}.py", rules / f"{NEW.replace('-', '_')}.py")
    shutil.copytree(fixtures / OLD, fixtures / NEW)
    golden = fixtures / NEW / "verdicts.txt"
    golden.write_text(golden.read_text("utf-8").replace(OLD, NEW), "utf-8")
    written = re.findall(r"^\t\$\(BIN\)/slicewarden (.+) > (docs/.+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert len(written) > 5
    for words, page in written:
        (tmp_path / page).write_text(run_python(tmp_path, "-m", "webhook", *words.split()), "utf-8")
    return tmp_path


@pytest.mark.thorough
def test_a_rule_is_one_file_and_one_folder(tree: Path) -> None:
    """Every test of it alone, by its name, and those of what is written about all rules."""
    assert f"\n## {NEW}\n" in (tree / "docs" / "rules.md").read_text("utf-8")
    tests = [str(tree / "tests" / name) for name in HELD_BY]
    chosen = f"{NEW} or {NEW.replace('-', '_')} or page or audit or readme or folders or upwards or at_home or outlives"
    whole = "lists_the_folders_of_the_tree"  # the copy is a part of the tree
    run_python(tree, "-m", "pytest", "-x", "-k", f"({chosen}) and not {whole}", *tests)
