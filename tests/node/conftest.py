"""The tests here run in a bed (`make node`): `python -m tests.node` builds what they need, and starts them there."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e import binaries
from tests.e2e.control_plane import Cluster
from tests.node import images, nodes, nvidia, product, programs
from tests.node.bed import INSIDE_VARIABLE
from tests.node.nodes import GPU_NODE, WORKER, Bed, Node


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip where this machine is no bed."""
    if INSIDE_VARIABLE not in os.environ:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip("run `make node`, which makes this machine a node for a while"))


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Two real nodes: one with two cards, whose containers NVIDIA's runtime starts, and one without."""
    places = programs.find()
    common = [images.pause(), images.tools()]
    given = {GPU_NODE: [*common, images.nvidia(places)], WORKER: [*common, product.image()]}
    runtimes = {GPU_NODE: partial(nvidia.runtime, programs=places)}
    with nodes.running(tmp_path_factory.mktemp("node"), binaries.find(), places, given, runtimes) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(bed: Bed) -> Cluster:
    """Their cluster."""
    return bed.cluster


@pytest.fixture(scope="session")
def gpu_node(bed: Bed) -> Node:
    """The node with cards."""
    return bed[GPU_NODE]


@pytest.fixture(scope="session")
def shared(cluster: Cluster) -> Cluster:
    """The cluster with NVIDIA's device plugin, which shares each of the two cards by four."""
    nvidia.install(cluster)
    nvidia.choose(cluster, "shared-4", gpu=8)
    return cluster
