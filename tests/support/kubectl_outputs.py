"""Finds the output of kubectl that a page shows."""

import re
from pathlib import Path

KUBECTLS = re.compile(
    r"Error from server|^Warning: |^NAME +\S|^Events:$|^\S+/\S+ (created|configured|labeled)$", re.MULTILINE
)
"""By which lines its output is known."""


def shown(page: Path) -> list[str]:
    """Return the blocks of a page that show output of kubectl."""
    blocks = re.findall(r"^```(?:console|text)?\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if KUBECTLS.search(block)]
