"""The tests here run when they are asked for by path: `pytest tests/faults`."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pytest

from tests.faults import apiserver
from tests.faults.apiserver import ApiServer, sample
from tests.faults.load import Load, load
from tests.faults.replicas import Replica, Secret, replica
from tests.faults.silence import Silence, kept

ROWS = pytest.StashKey[list[tuple[str, ...]]]()
HEAD = (
    *("fault", "reviews", "failed", "asked again"),
    *("p99 before, ms", "p99, ms", "slowest before, ms", "slowest, ms", "failures; remarks"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Have a place for the table."""
    config.stash[ROWS] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what every fault did to the reviews."""
    rows = [HEAD, *config.stash[ROWS]]
    if len(rows) > 1:
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
        for row in rows:
            terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


Under = Callable[..., AbstractContextManager[Load]]
"""Loads replicas while a fault lasts: `under(fault, *replicas, failed=0)`, at most so many reviews of which fail.

A review fails, too, if it is not answered within an API server's longest deadline (`load.DEADLINE`).
"""


@pytest.fixture
def under(secret: Secret, pytestconfig: pytest.Config) -> Under:
    """Load while a fault lasts, note what became of it, and hold it to what is stated."""

    @contextmanager
    def run(fault: str, *replicas: Replica, failed: int = 0, **ways: Any) -> Iterator[Load]:
        with load(secret, *replicas, **ways) as loading:
            yield loading
            loading.go_on()
        kinds = sorted({f"{loading.failures.count(each)} {each}" for each in loading.failures})
        numbers = (len(loading.asked), len(loading.failures), loading.shed)
        if loading.unsent:
            loading.remarks.append(f"{loading.unsent} not sent")
        before, during = loading.before, loading.during
        times = (before.p99, during.p99, before.slowest, during.slowest)
        row = (
            fault,
            *map(str, numbers),
            *(f"{1000 * each:.1f}" for each in times),
            "; ".join(", ".join(each) for each in (kinds, loading.remarks) if each),
        )
        pytestconfig.stash[ROWS].append(row)
        assert len(loading.failures) <= failed, f"{fault}: {', '.join(kinds)}"

    return run


@pytest.fixture(scope="session")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Secret:
    """A serving certificate, mounted."""
    return Secret(tmp_path_factory.mktemp("secret"))


@pytest.fixture(scope="session")
def webhook(secret: Secret) -> Iterator[Replica]:
    """A replica with the facts of the sample, for every fault that it has to survive."""
    with replica(secret) as started:
        yield started


class Live(NamedTuple):
    """A replica that watches an API server of ours."""

    server: ApiServer
    webhook: Replica


@pytest.fixture(scope="session")
def live(secret: Secret, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A replica as it is deployed: with facts that are watched."""
    with apiserver.serving(sample()) as server:
        kubeconfig = server.kubeconfig(tmp_path_factory.mktemp("live"))
        with replica(secret, "--live", "--kubeconfig", kubeconfig, facts=None) as started:
            yield Live(server, started)


@pytest.fixture(scope="session", autouse=True)
def _begins_first(request: pytest.FixtureRequest) -> None:
    """Have a silence begin with the session where it is asked for, so that other tests fill it."""
    if any("silence" in item.fixturenames for item in request.session.items if isinstance(item, pytest.Function)):
        request.getfixturevalue("silence")


@pytest.fixture(scope="session")
def silence(secret: Secret) -> Iterator[Future[Silence]]:
    """A kept connection to a replica of its own, while nothing is asked on it and when something is again."""
    over = threading.Event()
    with replica(secret) as quiet, ThreadPoolExecutor(1) as pool:
        yield pool.submit(kept, quiet.port, secret.authority, over)
        over.set()
