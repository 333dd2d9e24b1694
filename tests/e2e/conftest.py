"""The tests here run when they are asked for by path: `pytest tests/e2e`, after `python -m tests.e2e.binaries`."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from tests.e2e import binaries, control_plane, offered
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import Guard
from tests.e2e.objects import TRUSTED, pod

LONGEST = (
    *("test_certificates", "test_place", "test_audit", "test_kueue", "test_karpenter"),
    *("test_outage", "test_manifests"),
)
"""Modules that take minutes. They come first, so that two processes side by side end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the longest modules first; within a module the order stays."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what the API server does not serve, before its fixtures ask for it."""
    needed = (str(each) for mark in item.iter_markers("needs") for each in mark.args)
    if why := next(offered.reasons(needed), ""):
        pytest.skip(why)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the tests use a cluster that somebody has."""
    group = parser.getgroup("cluster")
    group.addoption("--kubeconfig", type=Path, help="of an administrator of a cluster to use instead of our own")
    group.addoption("--webhook-host", default="localhost", help="where that cluster's API server reaches this machine")


def find(*names: str) -> Path:
    """The folder of the programs; the run ends in one line when they cannot be had."""
    try:
        return binaries.find(names or tuple(binaries.PACKAGES))
    except binaries.Missing as missing:
        pytest.exit(str(missing), returncode=2)


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Path:
    """The folder of the programs, for tests that start a control plane or need to know everything of it."""
    if pytestconfig.getoption("kubeconfig"):
        pytest.skip("needs a control plane of our own, not that of --kubeconfig")
    return find()


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with the GPU nodes, for all tests of a process."""
    folder, kubeconfig = tmp_path_factory.mktemp("control-plane"), pytestconfig.getoption("kubeconfig")
    if kubeconfig:
        run = control_plane.given(folder, find("kubectl", "kwok"), kubeconfig)
    else:
        run = control_plane.running(folder, find())
    with run as started:
        started.add_nodes()
        yield started


@pytest.fixture(scope="session")
def guard(cluster: Cluster, pytestconfig: pytest.Config) -> Iterator[Guard]:
    """The webhook beside that cluster, running, and not registered."""
    started = Guard(cluster, pytestconfig.getoption("webhook_host"))
    started.start()
    yield started
    started.leave()


@pytest.fixture(scope="module")
def guarded(guard: Guard) -> Iterator[Guard]:
    """The webhook, registered by the manifests for the tests of a module."""
    if not guard.alive:  # a test that stopped it failed
        guard.start()
    guard.register()
    yield guard
    guard.unregister()


Space = Callable[..., str]
"""Makes a namespace with the labels it is given, and tells its name."""


@pytest.fixture
def space(cluster: Cluster) -> Iterator[Space]:
    """Namespaces of a test's own, which it leaves with everything in them."""
    yield from spaces(cluster)


def spaces(cluster: Cluster) -> Iterator[Space]:
    """Make namespaces, and delete them in the end."""
    made = []

    def make(labels: dict[str, str] | None = None) -> str:
        name = f"space-{token_hex(3)}"
        cluster.add_namespace(name, labels)
        made.append(name)
        return name

    yield make
    if made:
        cluster.do("delete", "namespace", *made, "--wait=false")


@pytest.fixture
def strangers(guarded: Guard, space: Space) -> str:
    """A namespace that was granted no trust."""
    del guarded
    return space()


@pytest.fixture
def team(guarded: Guard, space: Space) -> str:
    """A namespace whose pods may be trusted, as the webhook knows already."""
    return granted(guarded, space(TRUSTED))


def granted(guard: Guard, namespace: str) -> str:
    """Wait until the webhook has seen that a namespace was granted trust."""
    asks = json.dumps(pod("probe", namespace, annotations=TRUSTED))

    def known() -> bool:
        made = guard.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=asks)
        return made.returncode == 0

    assert eventually(known)
    return namespace
