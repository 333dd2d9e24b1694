"""The labels of the node with cards, by NVIDIA's GPU Feature Discovery itself."""

import json

from tests.e2e.control_plane import Cluster
from tests.node.images import NVIDIA
from tests.node.nodes import GPU_NODE, Node
from tests.node.nvidia import OPERATOR
from tests.node.pods import ended
from tests.support.objects import Object

FEATURES = "/etc/kubernetes/node-feature-discovery/features.d"
"""Where Node Feature Discovery's worker reads files of features."""
OUTPUT = f"{FEATURES}/gfd"


def discovered(cluster: Cluster, node: Node, config: str = "shared-4") -> dict[str, str]:
    """Return the labels that GPU Feature Discovery finds with one of the device plugin's configurations."""
    command = [
        "gpu-feature-discovery",
        "--oneshot",
        "--use-node-feature-api=false",
        "--machine-type-file=/etc/hostname",
    ]
    container = {
        "name": "gfd",
        "image": NVIDIA,
        "imagePullPolicy": "Never",
        "command": [*command, f"--config-file=/config/{config}", f"--output-file={OUTPUT}"],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "volumeMounts": [{"name": "out", "mountPath": FEATURES}, {"name": "configs", "mountPath": "/config"}],
    }
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": GPU_NODE},
        "tolerations": [{"operator": "Exists"}],
        "serviceAccountName": "nvidia-device-plugin",
        "containers": [container],
        "volumes": [
            {"name": "out", "hostPath": {"path": FEATURES, "type": "DirectoryOrCreate"}},
            {"name": "configs", "configMap": {"name": "time-slicing-config"}},
        ],
    }
    pod: Object = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gfd", "namespace": OPERATOR}, "spec": spec}
    cluster.do("create", "--filename=-", stdin=json.dumps(pod))
    status = ended(cluster, "gfd", OPERATOR)["status"]
    assert status["phase"] == "Succeeded", cluster.do("logs", "gfd", f"--namespace={OPERATOR}")
    cluster.do("delete", "pod", "gfd", f"--namespace={OPERATOR}")
    lines = node.run("cat", OUTPUT).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)


def label(cluster: Cluster, node: Node, config: str = "shared-4") -> None:
    """Give the node these labels, as NFD does."""
    found = discovered(cluster, node, config)
    cluster.do("label", "node", node.name, "--overwrite", *(f"{key}={it}" for key, it in found.items()))
