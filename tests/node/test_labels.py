"""Labels of nodes by GPU Feature Discovery and NFD, while our webhook for nodes is asked about each change."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import Cluster, User, eventually
from tests.node import charts
from tests.node.conftest import Sh
from tests.node.labels import discovered
from tests.node.nodes import GPU_NODE, Node
from tests.node.nvidia import OPERATOR
from tests.node.replicas import OURS, SYSTEM
from tests.support.objects import Object
from webhook.api.selectors import Requirement
from webhook.cli.inputs import load_policy

NFD = f"system:serviceaccount:{OPERATOR}:node-feature-discovery"
PRESENT = "nvidia.com/gpu.present"
JUDGED = "nvidia.com/gpu.sharing-strategy"
SAMPLES = {
    "sample.yaml": {"shared"},
    "inference/policy.yaml": {"playground"},
    "lab/policy.yaml": {"shared"},
    "cloud/policy.yaml": set[str](),  # its nodes are labelled by the cloud
    "university/policy.yaml": set[str](),  # its nodes are told apart by their cards
}
"""The pools of the sample policies that the node is in."""


def labels(cluster: Cluster) -> dict[str, str]:
    """NVIDIA's labels of the node with cards."""
    found: Mapping[str, str] = cluster.get("node", GPU_NODE)["metadata"]["labels"]
    return {key: value for key, value in found.items() if key.startswith("nvidia.com/gpu.")}


@pytest.fixture(scope="module")
def written(enforced: Cluster, gpu_node: Node, sh: Sh) -> dict[str, str]:
    """The labels that GPU Feature Discovery wrote into its file, after NFD has brought all to a node that had none."""
    found = {key: it for key, it in discovered(enforced, gpu_node).items() if key.startswith("nvidia.com/gpu.")}
    assert found[JUDGED] == "time-slicing"
    enforced.do("label", "node", GPU_NODE, *(f"{key}-" for key in labels(enforced)))
    charts.install(sh, "nfd", OPERATOR)
    assert eventually(lambda: labels(enforced) == found), (labels(enforced), found)
    return found


def reviews(cluster: Cluster) -> list[Object]:
    """The lines that the replicas logged on reviews of nodes by NFD."""
    lines = cluster.do("logs", SYSTEM, OURS, "--tail=-1").splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [each for each in found if each.get("kind") == "Node" and each.get("user") == NFD]


def test_they_reach_the_node_through_the_webhook_and_none_is_refused(
    enforced: Cluster, written: dict[str, str]
) -> None:
    assert written
    assert eventually(lambda: bool(reviews(enforced)))
    assert [each for each in reviews(enforced) if not each["allowed"]] == []


def test_another_account_with_the_same_rights_may_not_write_them(enforced: Cluster, written: dict[str, str]) -> None:
    enforced.do("create", "serviceaccount", "stranger", f"--namespace={OPERATOR}")
    enforced.do(
        "create", "clusterrolebinding", "stranger", "--clusterrole=node-feature-discovery",
        f"--serviceaccount={OPERATOR}:stranger",
    )  # fmt: skip
    stranger = User(f"system:serviceaccount:{OPERATOR}:stranger")
    ask = ("label", "node", GPU_NODE, f"{JUDGED}=none", "--overwrite")
    # Until the API server has seen its new rights, it is refused for want of them.
    assert eventually(lambda: "relabelled-node:" in enforced.kubectl(*ask, user=stranger).stderr)
    assert labels(enforced) == written


@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_policy_knows_the_node_with_and_without_the_operator(
    written: dict[str, str], name: str, operator: bool
) -> None:
    policy = load_policy(str(Path(ROOT, "policies", name)))
    labelled = written | ({PRESENT: "true"} if operator else {})
    assert {pool.name for pool in policy.pools if pool.nodes.matches(labelled)} == SAMPLES[name]


def test_the_webhook_s_affinity_knows_nodes_with_gpus(enforced: Cluster, written: dict[str, str]) -> None:
    """By GPU Feature Discovery's labels alone, and by the Operator's alone."""
    affinity = enforced.get("deployment", "slicewarden", SYSTEM)["spec"]["template"]["spec"]["affinity"]
    (preferred,) = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    conditions = [
        Requirement(each["key"], each["operator"], frozenset(each.get("values", ())))
        for each in preferred["preference"]["matchExpressions"]
    ]
    assert not all(each.matches(written) for each in conditions)
    assert not all(each.matches({PRESENT: "true"}) for each in conditions)
    assert all(each.matches({}) for each in conditions)
