"""The pods that Helm and kustomize make of a repository are found, or a note names them: the programs are asked."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.chart import helm
from tests.oracles.charts import Repositories, Repository
from tests.oracles.deployments import Deployments
from tests.oracles.programs import Oracle
from tests.oracles.rendered import NOTING, Comparison, compared, runner
from tests.support.go_programs import Missing
from tests.support.records import SAME
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.rendering import argo, deploying
from webhook.rendering.building import Job
from webhook.repository import chart_folders, results_cache

REPOSITORIES = int(os.environ.get("EXAMPLES", "150"))
DEPLOYMENTS = int(os.environ.get("EXAMPLES", "25"))

UNFOLLOWED = frozenset(("disabled",))
"""What `check` says it does not follow, as tests/oracles/deployments.py names it: nobody asks for it here.

A subchart of which the chart around it makes something is not rendered by itself.
"""

Compare = Callable[[Repository, Oracle | None], Comparison]
Cases = Callable[[str], Iterator[tuple[int, Repository, Comparison]]]


@pytest.fixture(scope="session")
def programs(with_kubectl: Path) -> dict[str, Path]:
    """Helm and kubectl; the run ends in one line when they cannot be had."""
    try:
        return {"helm": helm.find(), "kubectl": with_kubectl / "kubectl"}
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)


@pytest.fixture
def compare(
    programs: dict[str, Path], engine: Engine, sample_facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Compare:
    """Compare a repository. All share a cache of what is rendered."""
    run = runner(programs, tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", ":".join([*(str(path.parent) for path in programs.values()), "/usr/bin:/bin"]))
    for module in NOTING:
        monkeypatch.setattr(module, "listed", lambda names, _: ", ".join(names))

    def compare(repository: Repository, oracle: Oracle | None) -> Comparison:
        with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as within:
            within.chdir(folder)
            return compared(repository, Path(folder), run, engine, sample_facts, oracle)

    return compare


@pytest.fixture
def cases(compare: Compare) -> Cases:
    """Compare repositories, one after the other."""

    def cases(seed: str) -> Iterator[tuple[int, Repository, Comparison]]:
        repositories = Repositories(Random(seed))  # noqa: S311 - no secret
        for number in range(REPOSITORIES):
            repository = repositories.one()
            yield number, repository, compare(repository, None)

    return cases


def test_what_helm_and_kustomize_make_is_found_or_noted(cases: Cases) -> None:
    seed = "first" if SAME else os.urandom(4).hex()
    outcomes = Counter[str]()
    for number, repository, case in cases(seed):
        assert not case.lost, (seed, number, case, repository)
        outcomes["made"] += len(case.made)
        outcomes["found"] += len(case.made & case.found)
    # Neither is rare: pods with a finding, and pods of which only a note speaks.
    assert outcomes["made"] > REPOSITORIES
    assert outcomes["made"] // 2 < outcomes["found"] < outcomes["made"]


def _losses(
    flux: Oracle, compare: Compare, seed: str, outcomes: Counter[str], most: int = DEPLOYMENTS
) -> Iterator[object]:
    """Yield the repositories of several deployers of which a pod is lost, and count the pods of all."""
    deployments = Deployments(Random(seed))  # noqa: S311 - no secret
    for number in range(most):
        made = deployments.one()
        repository = made._replace(asked=[each for each in made.asked if each.why not in UNFOLLOWED])
        case = compare(repository, flux)
        outcomes["made"] += len(case.made)
        outcomes["found"] += len(case.made & case.found)
        if case.lost:
            yield seed, number, case, repository


def test_what_several_deployers_make_is_found_or_noted(flux: Oracle, compare: Compare) -> None:
    seed, outcomes = "first" if SAME else os.urandom(4).hex(), Counter[str]()
    assert not next(_losses(flux, compare, seed, outcomes), None)
    assert outcomes["made"] > DEPLOYMENTS // 2
    assert outcomes["found"] > outcomes["made"] // 2


@pytest.mark.parametrize(
    ("place", "name", "broken"),
    [(argo, "changes", lambda _: {"namespace": ""}), (deploying, "over_flux", lambda _: {"namespace": ""})],
    ids=["changes of Argo CD", "changes of Flux"],
)
def test_a_change_that_is_not_followed_is_seen(
    flux: Oracle, compare: Compare, monkeypatch: pytest.MonkeyPatch, place: object, name: str, broken: object
) -> None:
    monkeypatch.setattr(place, name, broken)
    assert any(_losses(flux, compare, "first", Counter(), most=300))


def _without_charts(job: Job, *_: Any) -> Job:
    return job


@pytest.mark.parametrize(
    ("place", "name", "broken"),
    [
        (Job, "with_charts", _without_charts),
        (chart_folders, "_hidden", lambda *_: ({}, "")),
        (results_cache, "key", lambda *_: "same"),
    ],
    ids=["charts of kustomizations", "hidden files", "keys of the cache"],
)
def test_a_pod_that_is_not_rendered_is_seen(
    cases: Cases, monkeypatch: pytest.MonkeyPatch, place: object, name: str, broken: object
) -> None:
    monkeypatch.setattr(place, name, broken)
    assert any(case.lost for _, _, case in cases("first"))
