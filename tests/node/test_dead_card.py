"""A shared card that dies: NVIDIA's device plugin takes one of its slices away and goes on handing out the rest."""

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.node.nodes import Node
from tests.node.nvidia import CARDS, OPERATOR, resources
from tests.node.pods import create, pod

FELL_OFF_THE_BUS = 79
"""An XID after which a card does nothing until its node is restarted (NVIDIA's XID errors)."""


@pytest.fixture
def dead(shared: Cluster, gpu_node: Node) -> Cluster:
    """The cluster, after the second of two cards was reported dead."""
    gpu_node.run("sh", "-c", f"echo 1 {FELL_OFF_THE_BUS} > /run/cards/xid")
    assert eventually(lambda: resources(shared) == {"nvidia.com/gpu": 7}), resources(shared)
    return shared


def given(cluster: Cluster, name: str) -> list[str]:
    """The cards that a running pod has said that it was given; none before it has."""
    log = cluster.kubectl("logs", name).stdout
    return [card for card in CARDS if f"NVIDIA_VISIBLE_DEVICES={card}" in log]


def test_a_dead_card_costs_one_of_its_four_slices_and_the_rest_is_handed_out(dead: Cluster) -> None:
    assert resources(dead, "capacity")["nvidia.com/gpu"] == 8
    names = [f"on-a-dead-card-{index}" for index in range(7)]
    create(dead, *(pod(name, {"command": ["sh", "-c", "env; sleep 600"]}, gpus=1) for name in names))
    # None ends before all have theirs: a slice that is given back is given again.
    assert eventually(lambda: all(given(dead, name) for name in names), 120)
    assert [card for name in names for card in given(dead, name)].count(CARDS[1]) == 3
    assert resources(dead) == {"nvidia.com/gpu": 7}
    dead.do("delete", "pod", *names)
    # Only a new plugin takes the card for well again.
    dead.do("delete", "pods", f"--namespace={OPERATOR}", "--selector=app=nvidia-device-plugin", "--wait")
    assert eventually(lambda: resources(dead) == {"nvidia.com/gpu": 8}, 120)
