"""The control plane itself: it starts, it schedules on the GPU nodes, and it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import ROOT
from tests.e2e import binaries, control_plane
from tests.e2e.conftest import spaces
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.objects import pod

HERE = Path(__file__).resolve().parent
NODES = {node["metadata"]["name"]: node for node in yaml.safe_load_all((HERE / "nodes.yaml").read_text("utf-8"))}


def tolerate(pool: str) -> list[dict[str, str]]:
    return [{"key": "slicewarden.dev/pool", "operator": "Equal", "value": pool, "effect": "NoSchedule"}]


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    making = spaces(cluster)
    yield next(making)()
    next(making, None)


@pytest.mark.usefixtures("programs")
def test_the_cluster_runs_the_pinned_release(cluster: Cluster) -> None:
    version = json.loads(cluster.do("version", "--output=json"))
    assert version["serverVersion"]["gitVersion"] == binaries.kubernetes_version()
    assert version["clientVersion"]["gitVersion"] == binaries.kubernetes_version()


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_as_its_manifest_says(cluster: Cluster, name: str) -> None:
    node = cluster.get("node", name)
    assert node["metadata"]["labels"].items() >= NODES[name]["metadata"]["labels"].items()
    assert node["status"]["capacity"] == NODES[name]["status"]["capacity"]
    assert node["status"]["allocatable"] == NODES[name]["status"]["allocatable"]


@pytest.mark.usefixtures("programs")  # another cluster has other nodes besides
def test_a_plain_pod_runs_where_no_gpu_is(cluster: Cluster, namespace: str) -> None:
    assert cluster.apply(pod("plain", namespace, {})).returncode == 0
    assert cluster.node_of("plain", namespace) == "cpu"


@pytest.mark.parametrize(
    ("node", "resource", "pool"),
    [
        ("a100-exclusive", "nvidia.com/gpu", "exclusive"),
        ("t4-shared", "nvidia.com/gpu", "shared"),
        ("t4-shared-renamed", "nvidia.com/gpu.shared", "shared"),
        ("a100-mig", "nvidia.com/mig-1g.10gb", "mig"),
        ("a10-mps", "nvidia.com/gpu", "mps"),
        ("m60-exclusive", "nvidia.com/gpu", "legacy"),
    ],
)
def test_a_gpu_pod_runs_on_the_node_it_selects(
    cluster: Cluster, namespace: str, node: str, resource: str, pool: str
) -> None:
    labels = NODES[node]["metadata"]["labels"]
    chosen = {key: value for key, value in labels.items() if key.startswith("nvidia.com/")}
    manifest = pod(node, namespace, {resource: 1}, nodeSelector=chosen, tolerations=tolerate(pool))
    assert cluster.apply(manifest).returncode == 0
    assert cluster.node_of(node, namespace) == node


def test_the_scheduler_counts_gpus(cluster: Cluster, namespace: str) -> None:
    greedy = pod("greedy", namespace, {"nvidia.com/gpu": 9}, tolerations=tolerate("exclusive"))
    assert cluster.apply(greedy).returncode == 0

    def reason() -> str:
        conditions = cluster.get("pod/greedy", f"--namespace={namespace}")["status"].get("conditions", [])
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

    assert eventually(lambda: "Insufficient nvidia.com/gpu" in reason())


def test_a_deployment_makes_its_pods(cluster: Cluster, namespace: str) -> None:
    cluster.do("create", "deployment", "web", "--image=i", "--replicas=2", f"--namespace={namespace}")
    cluster.do("rollout", "status", "deployment/web", "--timeout=300s", f"--namespace={namespace}")
    pods = cluster.get("pods", "--selector=app=web", f"--namespace={namespace}")["items"]
    assert [each["status"]["phase"] for each in pods] == ["Running", "Running"]


def test_a_job_ends(cluster: Cluster, namespace: str) -> None:
    cluster.do("create", "job", "once", "--image=i", f"--namespace={namespace}")
    cluster.do("wait", "--for=condition=Complete", "--timeout=300s", "job/once", f"--namespace={namespace}")


def test_a_user_may_do_what_rbac_grants_and_no_more(cluster: Cluster, namespace: str) -> None:
    ann = User("ann", ("team-vision",))
    assert cluster.kubectl("get", "pods", f"--namespace={namespace}", user=ann).returncode != 0
    cluster.do("create", "rolebinding", "v", "--clusterrole=view", "--group=team-vision", f"--namespace={namespace}")
    assert eventually(lambda: cluster.kubectl("get", "pods", f"--namespace={namespace}", user=ann).returncode == 0)
    refused = cluster.kubectl("delete", "pods", "--all", f"--namespace={namespace}", user=ann)
    assert refused.returncode != 0
    assert 'User "ann" cannot' in refused.stderr


def test_two_clusters_can_run_side_by_side(cluster: Cluster, programs: Path, tmp_path: Path) -> None:
    with control_plane.running(tmp_path, programs) as second:
        assert second.url != cluster.url
        second.add_namespace("apart")
        assert cluster.kubectl("get", "namespace", "apart").returncode != 0
        groups = [component.process.pid for component in second.components]
        assert len(groups) == 5
    assert all(map(group_is_gone, groups))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_runs_on_after_its_parent_is_killed(programs: Path, tmp_path: Path, how: signal.Signals) -> None:
    script = (
        "import sys, time, pathlib; from tests.e2e import control_plane\n"
        "with control_plane.running(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])) as cluster:\n"
        "    print(*(each.process.pid for each in cluster.components), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path, programs], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        groups = [int(word) for word in parent.stdout.readline().split()]
        parent.send_signal(how)
    assert len(groups) == 5
    assert eventually(lambda: all(map(group_is_gone, groups)))
    left = list(tmp_path.glob("cluster-*/etcd"))
    if how == signal.SIGTERM:
        assert left == []
        return
    # Only an orderly end clears the data away, and what a sudden one leaves is in nobody's way.
    assert len(left) == 1
    with control_plane.running(tmp_path, programs) as after:
        assert after.kubectl("get", "namespace", "default").returncode == 0
    assert list(tmp_path.glob("cluster-*/etcd")) == left


def test_a_component_that_ends_shows_its_last_lines(programs: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(control_plane.Failed, match=r"(?s)kube-apiserver ended with status 1; .*NoSuchPlugin"),
        control_plane.running(tmp_path, programs, admission=["NoSuchPlugin"]),
    ):
        pass
