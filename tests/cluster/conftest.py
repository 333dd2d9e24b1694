"""The tests here run when they are asked for by path: `pytest tests/cluster`, after `python -m cluster.binaries`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import binaries, control_plane

HERE = Path(__file__).resolve().parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Leave this folder out of a run of all tests."""
    asked = ((config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(HERE) for path in asked) else True


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs; the run ends in one line when they cannot be had."""
    try:
        return binaries.find()
    except binaries.Missing as missing:
        pytest.exit(str(missing), returncode=2)


@pytest.fixture(scope="session")
def cluster(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[control_plane.Cluster]:
    """A cluster with the GPU nodes, for all tests."""
    with control_plane.running(tmp_path_factory.mktemp("control-plane"), programs) as started:
        started.add_nodes()
        yield started
