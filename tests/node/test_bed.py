"""The bed itself: real nodes, on which a pod is started, reached and ended."""

import json
import urllib.request

from tests.e2e.control_plane import Cluster, eventually
from tests.node.images import TOOLS
from tests.node.nodes import Bed
from tests.node.programs import release


def test_two_nodes_are_ready_and_run_real_programs(bed: Bed) -> None:
    for node in bed.cluster.get("nodes")["items"]:
        about = node["status"]["nodeInfo"]
        assert about["kubeletVersion"] == release("kubernetes", "k8s.io/kubernetes")
        containerd = release("runtime", "github.com/containerd/containerd/v2")
        assert about["containerRuntimeVersion"] == f"containerd://{containerd.removeprefix('v')}"


def test_a_pod_is_reached_by_its_service_from_the_host_and_told_to_end(cluster: Cluster) -> None:
    script = "trap 'exit 0' TERM; mkdir /www; echo up > /www/index.html; httpd -p 8080 -h /www; sleep 600 & wait"
    container = {"name": "web", "image": TOOLS, "imagePullPolicy": "Never", "command": ["sh", "-c", script]}
    metadata = {"name": "web", "namespace": "default", "labels": {"app": "web"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    cluster.do("create", "--filename=-", stdin=json.dumps(pod))
    cluster.do("expose", "pod", "web", "--port=80", "--target-port=8080")
    cluster.do("wait", "--for=condition=Ready", "pod/web", "--timeout=300s")
    address = cluster.get("service", "web")["spec"]["clusterIP"]

    def answered() -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/", timeout=5) as answer:
                return bool(answer.read() == b"up\n")
        except OSError:
            return False

    assert eventually(answered)
    cluster.do("delete", "service,pod", "web", "--timeout=300s")
