"""The parts of pages that `docs/parts.py` makes of the code."""

from pathlib import Path

import pytest

from docs import parts


@pytest.mark.parametrize("file", [*parts.pages()], ids=lambda file: str(file.name))
def test_a_page_has_what_the_code_makes(file: Path) -> None:
    assert file.read_text("utf-8") == parts.pages()[file], "run `make docs`"


@pytest.mark.parametrize("text", ["", "<!-- a -->\n", "<!-- a -->\n<!-- b -->\n<!-- b -->\n"])
def test_a_page_without_both_marks_once_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="both marks once"):
        parts.filled(text, "<!-- a -->\n", "<!-- b -->\n", "part")
