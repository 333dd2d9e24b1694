"""Folders of charts in a repository that a test writes."""

from pathlib import Path

import pytest

from tests.support.trees import Write
from webhook.repository.tree import Tree


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files below the top of a repository, which is the working folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> Tree:
        for name, text in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        return Tree(str(tmp_path))

    return write
