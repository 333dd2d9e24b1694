"""Three replicas under a stream of pods while something happens to one, or to its node: what is bad never gets in."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.node import images, product
from tests.node.conftest import Sh
from tests.node.nodes import WORKER, Bed, Node
from tests.node.replicas import SYSTEM, Replica, all_ready, replicas, stream
from tests.support.manifests import commands

FROZEN, KILLED, STARVED = range(3)
"""A replica for each misfortune: a kubelet waits longer before it starts one again that has ended before."""


@pytest.fixture
def three(enforced: Cluster, bed: Bed) -> Iterator[list[tuple[Replica, Node]]]:
    """The replicas with their nodes; all are ready again after what is done to one."""
    assert eventually(partial(all_ready, enforced), 120)
    yield [(each, bed[each.node]) for each in sorted(replicas(enforced))]
    assert eventually(partial(all_ready, enforced), 120)


Three = list[tuple[Replica, Node]]


def test_a_replica_that_freezes_refuses_what_was_on_its_way_and_lets_nothing_in(
    enforced: Cluster, three: Three
) -> None:
    """A call that waits for it runs into its timeout; until its kubelet has noticed, that can be a few pods."""
    replica, node = three[FROZEN]
    state = node.group_of(replica.container, "freezer") / "freezer.state"
    with stream(enforced, refused=None) as pods:
        state.write_text("FROZEN")
        try:
            assert eventually(partial(left_out, enforced, replica), 120)
            assert pods.refuses_nothing_more(), pods.refused
        finally:
            with suppress(OSError):  # where it is gone, its kubelet has killed it
                state.write_text("THAWED")
        assert eventually(partial(all_ready, enforced), 120)
        assert pods.refuses_nothing_more(), pods.refused


def test_a_replica_that_is_killed_refuses_what_was_on_its_way_at_most(enforced: Cluster, three: Three) -> None:
    replica, node = three[KILLED]
    processes = (node.group_of(replica.container, "freezer") / "cgroup.procs").read_text().split()
    with stream(enforced, refused=None) as pods:
        for process in processes:
            os.kill(int(process), signal.SIGKILL)
        # Until its kubelet has seen that it ended, it seems ready, and gets its share of the pods.
        assert eventually(partial(started_again, enforced, replica))
        assert eventually(partial(all_ready, enforced), 120)
        assert pods.refuses_nothing_more(), pods.refused


def test_a_replica_out_of_memory_refuses_what_was_on_its_way_at_most(enforced: Cluster, three: Three) -> None:
    replica, node = three[STARVED]
    with stream(enforced, refused=None) as pods:
        assert eventually(partial(starved, node.group_of(replica.container, "memory")))
        assert eventually(partial(ended_for_memory, enforced, replica))
        assert eventually(partial(all_ready, enforced), 120)
        assert pods.refuses_nothing_more(), pods.refused


def starved(group: Path) -> bool:
    """Let a container have no more memory than it uses; tell whether that has ended it."""
    with suppress(OSError):  # gone; or it has just given some back
        (group / "memory.limit_in_bytes").write_text((group / "memory.usage_in_bytes").read_text())
    return not group.exists()


def left_out(cluster: Cluster, replica: Replica) -> bool:
    """Tell whether it is not ready any more, or its kubelet has started another container in its place."""
    status = cluster.get("pod", replica.pod, SYSTEM)["status"]
    ready = {each["type"]: each["status"] for each in status["conditions"]}["Ready"]
    return bool(ready != "True" or status["containerStatuses"][0]["containerID"] != replica.container)


def started_again(cluster: Cluster, replica: Replica) -> bool:
    """Tell whether another container runs in its place."""
    (status,) = cluster.get("pod", replica.pod, SYSTEM)["status"]["containerStatuses"]
    return "running" in status["state"] and status["containerID"] != replica.container


def ended_for_memory(cluster: Cluster, replica: Replica) -> bool:
    (status,) = cluster.get("pod", replica.pod, SYSTEM)["status"]["containerStatuses"]
    return bool(status["lastState"].get("terminated", {}).get("reason") == "OOMKilled")


@pytest.fixture
def refuge(enforced: Cluster, bed: Bed) -> Iterator[str]:
    """Another node without cards, to which replicas can go; and everything is as before after that."""
    node = bed.add("refuge", [images.pause(), product.image()])
    yield node.name
    enforced.do("uncordon", WORKER)
    bed.remove(node.name)
    assert eventually(partial(all_ready, enforced), 120)


def test_a_drained_node_hands_its_replicas_over_one_by_one(enforced: Cluster, sh: Sh, refuge: str) -> None:
    (drain,) = (block for block in commands()["Replicas and rights"] if "kubectl drain" in block)
    with stream(enforced):
        sh(drain.replace("NODE", WORKER))
        assert eventually(partial(all_ready, enforced), 120)
    assert {each.node for each in replicas(enforced)} == {refuge}
