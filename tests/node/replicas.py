"""The webhook's replicas, and a stream of pods while something happens to them: what is bad never gets in."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.e2e.control_plane import Cluster, eventually
from tests.node.pods import pod
from tests.support.manifests import read
from tests.support.objects import Object

SYSTEM, OURS = "--namespace=slicewarden-system", "--selector=app.kubernetes.io/name=slicewarden"
GOOD = pod("good", gpus=1)
BAD = pod("bad", {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
FEWEST = 10
"""More pods than that a stream has to create, however slow it is."""
CREATE = ("create", "--dry-run=server", "--filename=-")


class Replica(NamedTuple):
    """A pod of the webhook: its name, node and address, and the id of its container."""

    pod: str
    node: str
    address: str
    container: str


def pods_of_ours(cluster: Cluster) -> list[Object]:
    """The webhook's pods, those that end among them."""
    found: list[Object] = cluster.get("pods", SYSTEM, OURS)["items"]
    return found


def replicas(cluster: Cluster) -> list[Replica]:
    """The webhook's replicas, each of which runs."""
    return [
        Replica(each["metadata"]["name"], each["spec"]["nodeName"], each["status"]["podIP"], status["containerID"])
        for each in pods_of_ours(cluster)
        for status in each["status"]["containerStatuses"]
    ]


def all_ready(cluster: Cluster) -> bool:
    """Whether three replicas are ready and no other is left; `rollout status` does not wait for those that end.

    The Deployment tells whether they are as it is now, and each pod whether it is ready: a count may be of before.
    """
    deployment, found = cluster.get("deployment", "slicewarden", SYSTEM), pods_of_ours(cluster)
    seen = deployment["status"].get("observedGeneration") == deployment["metadata"]["generation"]
    counts = {deployment["status"].get(name) for name in ("replicas", "updatedReplicas", "readyReplicas")}
    return seen and counts == {3} and len(found) == 3 and all(map(_is_ready, found))


def _is_ready(item: Object) -> bool:
    conditions = {each["type"]: each["status"] for each in item["status"].get("conditions", ())}
    return "deletionTimestamp" not in item["metadata"] and conditions.get("Ready") == "True"


class Stream:
    """Pods created for show, one good and one bad in turn, and what was answered wrongly."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.count, self.refused, self.admitted = cluster, 0, list[str](), list[str]()
        self._end = threading.Event()

    def run(self) -> None:
        """Create pods until it is to end."""
        while not self._end.is_set():
            good = self.cluster.kubectl(*CREATE, stdin=json.dumps(GOOD))
            bad = self.cluster.kubectl(*CREATE, stdin=json.dumps(BAD))
            self.count += 2
            if good.returncode:
                self.refused.append(good.stderr)
            if not bad.returncode:
                self.admitted.append(bad.stdout)

    def end(self) -> None:
        """Say that it is to end."""
        self._end.set()

    def refuses_nothing_more(self) -> bool:
        """Return whether no good pod is refused from now on, but for one that is on its way."""
        count, refused = self.count + 2, len(self.refused) + 1
        return bool(eventually(lambda: self.count > count + FEWEST, 120)) and len(self.refused) <= refused


@contextmanager
def stream(cluster: Cluster, refused: int | None = 0) -> Iterator[Stream]:
    """Create pods until the block ends, which fails where one was judged wrongly.

    So many good ones may be refused; with None, the block says when none may be any more.
    """
    made = Stream(cluster)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
        eventually(lambda: made.count > FEWEST, 60)
    finally:
        made.end()
        thread.join()
    print(f"{made.count} pods, {len(made.refused)} refused that were good")
    assert made.count > FEWEST
    assert not made.admitted
    assert refused is None or len(made.refused) <= refused, f"{len(made.refused)} of {made.count}: {made.refused}"


def change(
    cluster: Cluster, put_in: Callable[[], object], ready: Callable[[], object], image: str, release: Path
) -> None:
    """Put a release in under a stream of pods, none of which may be judged wrongly, until only its replicas are left.

    `ready` waits for the policy. The Deployment has to name the image, and the kind of policies has to have the fields
    of the release, whose files are in a folder.
    """
    with stream(cluster):
        put_in()
        assert eventually(partial(all_ready, cluster), 120)
        ready()
    path = "--output=jsonpath={.spec.template.spec.containers[*].image}"
    assert cluster.do("get", "deployment", "slicewarden", SYSTEM, path) == image
    (own,) = read(release / "manifests/crd/gpusharingpolicies.yaml")
    assert _policy_fields(cluster.get("crd", own["metadata"]["name"])) == _policy_fields(own)


def _policy_fields(definition: Object) -> list[str]:
    """The names of all fields that a CustomResourceDefinition has, sorted; each as often as it is there."""
    waiting, names = [definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]], list[str]()
    while waiting:
        schema = waiting.pop()
        names += schema.get("properties", {})
        waiting += schema.get("properties", {}).values()
        waiting += [each for name in ("items", "additionalProperties") if isinstance(each := schema.get(name), dict)]
    return sorted(names)
