"""Three replicas under a stream of pods while something happens to them: what is bad never gets in."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.node.conftest import Sh, only_new_pods
from tests.node.nodes import Node
from tests.node.pods import pod

SYSTEM, OURS = "--namespace=slicewarden-system", "--selector=app.kubernetes.io/name=slicewarden"
GOOD = pod("good", gpus=1)
BAD = pod("bad", {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
CREATE = ("create", "--dry-run=server", "--filename=-")


class Stream:
    """Pods created for show, one good and one bad in turn, and what was answered wrongly."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.count, self.refused, self.admitted = cluster, 0, list[str](), list[str]()
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            good = self.cluster.kubectl(*CREATE, stdin=json.dumps(GOOD))
            bad = self.cluster.kubectl(*CREATE, stdin=json.dumps(BAD))
            self.count += 2
            if good.returncode:
                self.refused.append(good.stderr)
            if not bad.returncode:
                self.admitted.append(bad.stdout)

    def end(self) -> None:
        self._end.set()


@contextmanager
def stream(cluster: Cluster, refused: int = 0) -> Iterator[Stream]:
    """Create pods until the block ends, which fails where one was judged wrongly; so many good ones may be refused."""
    made = Stream(cluster)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.end()
        thread.join()
    assert made.count > 10
    assert not made.admitted
    assert len(made.refused) <= refused, f"{len(made.refused)} of {made.count}: {made.refused}"


def replicas(cluster: Cluster) -> list[str]:
    """The ids of their containers."""
    found = cluster.get("pods", SYSTEM, OURS)["items"]
    return [status["containerID"] for each in found for status in each["status"]["containerStatuses"]]


def all_ready(cluster: Cluster) -> bool:
    return cluster.get("deployment", "slicewarden", SYSTEM)["status"].get("readyReplicas") == 3 and only_new_pods(
        cluster
    )


def test_a_rollout_and_its_way_back(enforced: Cluster, sh: Sh) -> None:
    with stream(enforced):
        sh("kubectl rollout restart deployment/slicewarden --namespace slicewarden-system")
        sh("kubectl rollout status deployment/slicewarden --namespace slicewarden-system")
        sh("kubectl rollout undo deployment/slicewarden --namespace slicewarden-system")
        sh("kubectl rollout status deployment/slicewarden --namespace slicewarden-system")
        assert eventually(lambda: all_ready(enforced), 60)


def test_certificates_of_a_new_authority(enforced: Cluster, sh: Sh) -> None:
    with stream(enforced):
        sh("kubectl create job certificates-now --from=cronjob/slicewarden-certificates --namespace slicewarden-system")
        sh("kubectl wait job/certificates-now --for=condition=complete --namespace slicewarden-system --timeout=90s")


@pytest.fixture
def victim(enforced: Cluster, bed: dict[str, Node]) -> Iterator[Node]:
    """The node of the replicas, and all of them ready after what is done to one."""
    assert eventually(lambda: all_ready(enforced), 60)
    yield bed["worker"]
    assert eventually(lambda: all_ready(enforced), 120)


def test_a_replica_that_freezes_refuses_what_was_on_its_way_and_lets_nothing_in(
    enforced: Cluster, victim: Node
) -> None:
    """A call that waits for it runs into its timeout; until its kubelet has noticed, that can be a few pods."""
    state = victim.freezer_of(replicas(enforced)[0])
    with stream(enforced, refused=4):
        state.write_text("FROZEN")
        time.sleep(25)
        if state.exists():  # else its kubelet has killed it
            state.write_text("THAWED")


def test_a_replica_that_is_killed_refuses_what_was_on_its_way_at_most(enforced: Cluster, victim: Node) -> None:
    processes = victim.freezer_of(replicas(enforced)[0]).with_name("cgroup.procs").read_text().split()
    with stream(enforced, refused=1):
        for process in processes:
            os.kill(int(process), signal.SIGKILL)
        time.sleep(5)
