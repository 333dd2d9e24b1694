"""Small repositories laid out as real ones: what is found without the programs that render them.

`tests/chart/test_layouts_rendered.py` has the same with Helm and kubectl.
"""

from pathlib import Path

import pytest

from tests.support import layouts
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts


@pytest.mark.parametrize("name", layouts.names())
def test_a_layout_is_followed_without_programs(
    name: str, engine: Engine, sample_facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    layout = layouts.load(name)
    report = layouts.judged(layout, tmp_path, engine, sample_facts, monkeypatch)
    assert layouts.found(report) == layout.found_alone
    assert report.problems == ()
    assert [note for note in layout.notes_alone if note not in "\n".join(report.notes)] == []
