"""What Flux would apply of a repository is judged or noted: its own code is asked."""

import os
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.oracles.programs import Oracle
from tests.oracles.repositories import Repositories, compared
from tests.support.records import SAME

REPOSITORIES = 200


@pytest.mark.parametrize("built", [False, True], ids=["followed", "built"])
def test_what_flux_would_apply_is_judged_or_noted(
    flux: Oracle, with_kubectl: Path, monkeypatch: pytest.MonkeyPatch, built: bool
) -> None:
    seed = "first" if SAME else os.urandom(4).hex()
    repositories, outcomes = Repositories(Random(seed)), Counter[tuple[bool, bool]]()  # noqa: S311 - no secret
    monkeypatch.setenv("PATH", str(with_kubectl) if built else "")
    for number in range(REPOSITORIES):
        files = repositories.one()
        with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as within:
            within.chdir(folder)
            case = compared(flux, files, Path(folder))
        assert case.is_noted or case.lost == [], (seed, number, files)
        outcomes[case.is_noted, bool(case.applied)] += 1
    # Neither is rare: repositories that are judged as a whole, and others.
    assert outcomes[False, True] > REPOSITORIES // 20
    assert outcomes[True, True] > REPOSITORIES // 20
