"""Small repositories laid out as real ones (tests/repositories): what is found with kubectl and Helm."""

from pathlib import Path

import pytest

from tests.support import layouts
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.repository import programs as renderers


@pytest.mark.parametrize("name", layouts.names())
def test_a_layout_is_rendered(
    name: str,
    engine: Engine,
    sample_facts: Facts,
    tmp_path: Path,
    programs: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", ":".join(str(path.parent) for path in programs.values()))
    assert renderers.kustomize()
    assert renderers.helm()
    layout = layouts.load(name)
    report = layouts.judged(layout, tmp_path, engine, sample_facts, monkeypatch)
    assert layouts.found(report) == layout.found
    assert report.problems == ()
    assert [note for note in layout.notes if note not in "\n".join(report.notes)] == []
    assert not Path("/tmp/slicewarden-was-run").exists()  # noqa: S108 - a program of a hostile layout would make it
