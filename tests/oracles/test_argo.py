"""What Argo CD would make of a repository is judged or noted: its own code is asked."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.chart import helm
from tests.oracles.applications import Applications, Comparison, compared
from tests.oracles.programs import Oracle
from tests.support.records import SAME
from webhook.rendering import argo as reading

pytestmark = pytest.mark.thorough
"""Argo CD takes six minutes to build, so `make nightly` asks it."""

REPOSITORIES = int(os.environ.get("EXAMPLES", "60"))


@pytest.fixture(autouse=True)
def _with_programs(with_kubectl: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{helm.find().parent}:{with_kubectl}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def _cases(
    argo: Oracle, monkeypatch: pytest.MonkeyPatch, *, sets: bool, most: int = REPOSITORIES
) -> Iterator[tuple[object, Comparison]]:
    """Compare repositories, one after the other."""
    seed = "first" if SAME else os.urandom(4).hex()
    repositories = Applications(Random(seed), sets=sets)  # noqa: S311 - no secret
    for number in range(most):
        files = repositories.one()
        with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as within:
            within.chdir(folder)
            yield (seed, number, files), compared(argo, files, Path(folder), globbing=number % 2 == 0)


@pytest.mark.parametrize("sets", [False, True], ids=["applications", "sets"])
def test_what_argo_cd_would_make_is_judged_or_noted(argo: Oracle, monkeypatch: pytest.MonkeyPatch, sets: bool) -> None:
    outcomes = Counter[tuple[bool, bool]]()
    for where, case in _cases(argo, monkeypatch, sets=sets):
        assert case.is_noted or case.lost == [], (where, case)
        outcomes[case.is_noted, bool(case.applied)] += 1
    # Neither is rare: repositories that are judged as a whole, and others.
    assert outcomes[False, True] > REPOSITORIES // 10
    assert outcomes[True, True] > REPOSITORIES // 20


@pytest.mark.parametrize(
    ("name", "broken", "sets"),
    [
        ("changes", lambda _: {"namespace": ""}, False),
        ("settings", lambda _: ((), False), False),
        ("wanted", lambda _: lambda path: path == "p.yaml", False),
        ("_is_selected", lambda parameters, *_, **__: parameters.get("ns") == "vision", True),
        ("_of_path", lambda *_, **__: {"path": "infra/web", "path.path": "infra/web"}, True),
    ],
    ids=["changes", "parameters of helm", "patterns of a folder", "selectors", "parameters of a path"],
)
def test_what_is_read_otherwise_is_seen(
    argo: Oracle, monkeypatch: pytest.MonkeyPatch, name: str, broken: object, sets: bool
) -> None:
    monkeypatch.setattr(reading, name, broken)
    cases = _cases(argo, monkeypatch, sets=sets, most=300)
    assert any(case.lost and not case.is_noted for _, case in cases)
