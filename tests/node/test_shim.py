"""The memory shim's volume on a real kubelet: its file is the annotation, and a running container keeps the file."""

import json

from tests.e2e.control_plane import Cluster, eventually
from tests.node.images import TOOLS
from webhook.memory.shim import delivery
from webhook.memory.shim.delivery import CODE, FILE, FOLDER, code

POD = "shimmed"


def test_a_container_keeps_the_file_that_it_started_with_until_it_restarts(cluster: Cluster) -> None:
    script = f"cat {FOLDER}/{FILE}; trap 'exit 1' TERM; sleep 600 & wait"
    container = {
        "name": "c",
        "image": TOOLS,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "volumeMounts": [*delivery.mounts(), {"name": delivery.VOLUME, "mountPath": "/whole"}],
        "securityContext": {"runAsUser": 65534, "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
    }
    metadata = {"name": POD, "namespace": "default", "annotations": {CODE: code()}}
    spec = {"containers": [container], "volumes": [delivery.volume()]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.do("create", "--filename=-", stdin=json.dumps(pod))
    cluster.do("wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=300s")
    assert eventually(lambda: cluster.do("logs", POD) == code())

    cluster.do("annotate", "pod", POD, f"{CODE}=# another text\n", "--overwrite")

    def read(place: str) -> str:
        return cluster.do("exec", POD, "--", "cat", place)

    # The folder of the whole volume shows when the kubelet has written it again.
    assert eventually(lambda: read(f"/whole/{FILE}") == "# another text\n", 150)
    assert [read(f"{FOLDER}/{name}") for name in delivery.NAMES] == [code(), code()]

    cluster.kubectl("exec", POD, "--", "kill", "1")  # its own process ends with the container

    def restarted() -> bool:
        status = cluster.get("pod", POD)["status"]["containerStatuses"][0]
        return bool(status["restartCount"] == 1 and status["ready"])

    assert eventually(restarted, 90)
    # A restarted container gets the annotation as it is now, which is why `changed-shim` keeps it as it was.
    assert eventually(lambda: cluster.do("logs", POD) == "# another text\n"), cluster.do("logs", POD)
    cluster.do("delete", "pod", POD, "--timeout=300s", "--grace-period=1")
