"""The tests here run in a bed (`make node`): `python -m tests.node` builds what they need, and starts them there."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from tests import ROOT
from tests.chart import helm
from tests.e2e import binaries
from tests.e2e.control_plane import Cluster, eventually
from tests.node import nodes, nvidia, product, programs
from tests.node.bed import INSIDE_VARIABLE
from tests.node.carried import carried
from tests.node.labels import label
from tests.node.nodes import GPU_NODE, WORKER, Bed, Node
from tests.node.replicas import all_ready
from tests.support import policies
from tests.support.manifests import commands

STAGES = ("audited", "enforced", "issued")
"""Fixtures by which the cluster is no more what it was before."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip where this machine is no bed; try what needs the webhook after what needs that there is none."""
    items.sort(key=lambda item: [each for each in STAGES if each in getattr(item, "fixturenames", ())])
    if INSIDE_VARIABLE not in os.environ:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip("run `make node`, which makes this machine a node for a while"))


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Two real nodes: one with two cards, whose containers NVIDIA's runtime starts, and one without."""
    places = programs.find()
    given = carried(places)
    runtimes = {GPU_NODE: partial(nvidia.runtimes, programs=places)}
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


class Sh(Protocol):
    """Runs commands in a folder, which is the top folder of the clone, and returns what they print."""

    def __call__(self, text: str, folder: Path = ROOT) -> str: ...


@pytest.fixture(scope="session")
def sh(cluster: Cluster) -> Sh:
    """Run commands as a reader of the pages would."""
    places = (Path(sys.executable).parent, cluster.binaries, helm.find().parent)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, places), os.environ["PATH"]]),
        "KUBECONFIG": str(cluster.kubeconfig()),
        "HOME": str(cluster.folder),
    }

    def sh(text: str, folder: Path = ROOT) -> str:
        command = ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return sh


@pytest.fixture(scope="session")
def labelled(shared: Cluster, gpu_node: Node) -> Cluster:
    """The same, with the labels that GPU Feature Discovery writes for it, and the taint of the sample policy."""
    label(shared, gpu_node)
    shared.do("taint", "node", GPU_NODE, "slicewarden.dev/pool=shared:NoSchedule")
    return shared


@pytest.fixture(scope="session")
def audited(labelled: Cluster, sh: Sh) -> Cluster:
    """The same with the product's own image and a policy that only records, installed by the README's commands."""
    policy = labelled.folder / "policy.yaml"
    policy.write_text(policies.sample(), "utf-8")
    install, apply = commands()["Two commands"]
    sh(install)
    sh(apply, policy.parent)
    return labelled


@pytest.fixture(scope="session")
def enforced(audited: Cluster, sh: Sh) -> Cluster:
    """The same, enforced."""
    policy = audited.folder / "policy.yaml"
    policy.write_text(policy.read_text("utf-8").replace("\nspec:\n", "\nspec:\n  mode: Enforce\n", 1), "utf-8")
    sh(commands()["Two commands"][1], policy.parent)
    assert eventually(partial(all_ready, audited), 120)
    return audited


@pytest.fixture(scope="session")
def older(bed: Bed, release_before: Path) -> Path:
    """The folder of the release before; the nodes where the webhook runs have its image, `slicewarden:before`."""
    image = product.before()
    assert image is not None
    bed[WORKER].import_images([image])
    return release_before
