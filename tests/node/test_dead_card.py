"""A shared card that dies: NVIDIA's device plugin takes one of its slices away and goes on handing out the rest."""

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.node.nodes import Node
from tests.node.nvidia import CARDS, OPERATOR, resources
from tests.node.pods import create, pod, said

FELL_OFF_THE_BUS = 79
"""An XID after which a card does nothing until its node is restarted (NVIDIA's XID errors)."""


@pytest.fixture
def dead(shared: Cluster, gpu_node: Node) -> Cluster:
    """The cluster, after the second of two cards was reported dead."""
    gpu_node.run("sh", "-c", f"echo 1 {FELL_OFF_THE_BUS} > /run/cards/xid")
    assert eventually(lambda: resources(shared) != {"nvidia.com/gpu": 8}, 60)
    return shared


def test_a_dead_card_costs_one_of_its_four_slices_and_the_rest_is_handed_out(dead: Cluster) -> None:
    assert resources(dead) == {"nvidia.com/gpu": 7}
    assert resources(dead, "capacity")["nvidia.com/gpu"] == 8
    names = [f"on-a-dead-card-{index}" for index in range(7)]
    create(dead, *(pod(name, {"command": ["sh", "-c", "env; sleep 5"]}, gpus=1) for name in names))
    given = [card for name in names for card in CARDS if f"NVIDIA_VISIBLE_DEVICES={card}" in said(dead, name)]
    assert given.count(CARDS[1]) == 3
    # Only a new plugin takes the card for well again.
    dead.do("delete", "pods", f"--namespace={OPERATOR}", "--selector=app=nvidia-device-plugin", "--wait")
    assert eventually(lambda: resources(dead) == {"nvidia.com/gpu": 8}, 60)
    dead.do("delete", "pod", *names)
