"""Pools for nodes that do not exist yet: by what an autoscaler knows of them, and never by a guess at their sharing."""

import json
from collections.abc import Set
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.kinds import examples
from tests.support.starting import SAMPLE, linted, made, objects, spec_of
from webhook.api import admission
from webhook.catalog.node_labels import card_type
from webhook.cli import main as cli
from webhook.engine.engine import Engine
from webhook.facts.kinds import ec2_node_class
from webhook.facts.scaling import of_node_pool
from webhook.facts.snapshot import Facts
from webhook.gpu.review import placements_for
from webhook.model import Action, Object, Unusable, Verdict
from webhook.rules import walk
from webhook.scan import reduced

NODE_POOL, ACCELERATOR = "karpenter.sh/nodepool", "cloud.google.com/gke-accelerator"
ZERO = ROOT / "tests/clusters/karpenter-zero.yaml"
AUTOPILOT = ROOT / "tests/clusters/scaled/gke-autopilot.yaml"


def pools(items: list[Any], **more: Any) -> dict[str, Any]:
    return {pool["name"]: pool for pool in spec_of(made(items, **more).text)["pools"]}


def without(items: list[Any], kind: str) -> list[Any]:
    return [item for item in items if item["kind"] != kind]


def test_karpenters_pools_at_zero_select_what_karpenter_knows_and_are_shared_as_their_nodes_will_be() -> None:
    found = pools(objects(ZERO))
    assert {pool["nodes"]["matchLabels"][NODE_POOL]: pool["sharing"] for pool in found.values()} == {
        "bottlerocket-shared": "time-slicing",
        "sliced": "time-slicing",
        "whole": "none",
    }
    assert all(pool["nodes"] == {"matchLabels": pool["nodes"]["matchLabels"]} for pool in found.values())
    assert all([*pool["nodes"]["matchLabels"]] == [NODE_POOL] for pool in found.values())
    assert {name: pool["assume"] for name, pool in found.items()} == {
        "t4-shared": {"product": "Tesla-T4", "memory": "15360Mi", "replicas": 4},
        "a10g-shared": {"product": "NVIDIA-A10G", "memory": "23028Mi", "replicas": 4},
        "whole": {"memory": "23028Mi"},  # the smallest of three cards
    }


def test_bottlerocket_renames_slices_unless_it_is_told_not_to() -> None:
    items = objects(ZERO)
    for item in items:
        if item["kind"] == "EC2NodeClass" and "userData" in item["spec"]:
            item["spec"]["userData"] = item["spec"]["userData"].replace("rename-by-default = false\n", "")
    assert pools(items)["t4-shared"]["resources"] == ["nvidia.com/gpu.shared"]


def with_user_data(text: str) -> list[Any]:
    items = objects(ZERO)
    (own,) = (item for item in items if "userData" in item.get("spec", {}))
    own["spec"]["userData"] = text
    return items


SETTINGS = "[settings.kubelet-device-plugins.nvidia]\n"
SLICED = f'{SETTINGS}device-sharing-strategy = "time-slicing"\n'


@pytest.mark.parametrize(
    "text",
    [
        f'{SETTINGS}device-sharing-strategy = "mps"',
        f"{SETTINGS}device-sharing-strategy = 1",
        f'{SETTINGS}device-partitioning-strategy = "mig"',
        f'{SLICED}device-partitioning-strategy = "mig"',
        f'{SLICED}time-slicing.replicas = "4"',
        f"{SLICED}time-slicing.replicas = 1",
        f"{SLICED}time-slicing.replicas = 99999999999",
        f"{SLICED}replicas =",
        f'{SETTINGS}device-sharing-strategy = "time-slicing"\n' * 2,
    ],
)
def test_sharing_that_is_not_read_makes_no_pool_and_a_note(text: str) -> None:
    items = with_user_data(text)
    found = made(items)
    assert [pool.name for pool in found.policy.pools] == ["shared", "whole"]
    assert any(note.startswith("no pool is written for NodePool bottlerocket-shared:") for note in found.notes)
    assert Facts.of(reduced.reduced(items, SAMPLE)).table(ec2_node_class.TABLE) == Facts.of(items).table(
        ec2_node_class.TABLE
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#!/bin/bash\necho a = b",
        "MIME-Version: 1.0\n--//\n",
        f'{SETTINGS}device-sharing-strategy = "none"\ndevice-partitioning-strategy = "none"',
        f"{SETTINGS}pass-device-specs = true",
    ],
)
def test_user_data_that_shares_nothing_makes_a_pool_of_whole_cards(text: str) -> None:
    assert [pool["sharing"] for pool in pools(with_user_data(text)).values()] == ["none", "time-slicing", "none"]


def test_a_nodepool_whose_class_is_not_among_the_facts_makes_no_pool_and_a_note() -> None:
    """Its Bottlerocket may share the cards, which whole cards would not say."""
    items = [item for item in objects(ZERO) if "userData" not in item.get("spec", {})]
    found = made(items)
    assert [pool.name for pool in found.policy.pools] == ["shared", "whole"]
    (note,) = (each for each in found.notes if each.startswith("no pool is written"))
    assert note.startswith("no pool is written for NodePool bottlerocket-shared: its EC2NodeClass")
    for item in items:
        if item["metadata"]["name"] == "bottlerocket-shared":
            item["spec"]["template"]["spec"]["nodeClassRef"]["kind"] = "NodeClass"  # EKS Auto Mode
    assert [pool["sharing"] for pool in pools(items).values()] == ["none", "time-slicing", "none"]


def test_nodes_whose_configuration_is_not_known_get_no_pool_and_a_note() -> None:
    own = made(without(objects(ZERO), "ConfigMap"))
    assert [pool.name for pool in own.policy.pools] == ["shared"]
    assert (
        "no pool is written for NodePool sliced, NodePool whole: the device plugin's configuration sliced, whole is "
        "not read; add its ConfigMap to the facts, and its namespace to --no-tenants"
    ) in own.notes
    mig = examples("node_pool")["karpenter.sh", "NodePool"]
    labels = {"nvidia.com/mig.config": "all-1g.10gb"}
    template = {**mig["spec"]["template"], "metadata": {"labels": labels}}
    with pytest.raises(Unusable, match="only a node says how its cards are divided"):
        made([{**mig, "spec": {"template": template}}, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}])


def test_a_card_that_no_node_has_is_accepted_in_a_pool_that_may_get_it() -> None:
    """The NodePool may make machines of three families, so a pod may choose each of their cards."""
    items = objects(ZERO)
    own = made(items).policy
    facts, chosen = Facts.of(items), {NODE_POOL: "whole", "karpenter.k8s.aws/instance-gpu-name": "h100"}
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"containers": [container], "nodeSelector": chosen},
    }
    verdict = Engine(own, walk()).judge(admission.decode(admission.wrap(pod)), facts)
    assert [*verdict.having(Action.DENY)] == []


@pytest.mark.parametrize("key", ["karpenter.k8s.aws/instance-gpu-name", "node.kubernetes.io/instance-type"])
@pytest.mark.parametrize(
    ("card", "machine", "wanted", "warned"),
    [
        ("t4", "g4dn.xlarge", "t4-shared", False),
        ("a10g", "g5.xlarge", "a10g-shared", False),
        ("h100", "p5.48xlarge", "t4-shared", True),
        ("new", "x1.large", "t4-shared", False),  # a card of which nothing is known
    ],
)
def test_a_pool_at_zero_whose_card_the_pod_selects_comes_first_and_another_warns(
    key: str, card: str, machine: str, wanted: str, *, warned: bool
) -> None:
    items, value = objects(ZERO), card if key.endswith("gpu-name") else machine
    verdict, pool = judged(items, {key: value}, "trusted")
    assert (pool, verdict.allowed) == (wanted, True)
    messages = [each.finding.message for each in verdict.results if "another card" in each.finding.message]
    assert len(messages) == warned
    if warned:
        (message,) = messages
        assert message == (
            "no node of pool t4-shared is known, and the pod's node selection names another card than the pool assumes "
            "(Tesla-T4), so it waits until one with that card is added; correct it, or annotate the pod with "
            "slicewarden.dev/trust: untrusted"
        )
        mended, pool = judged(items, {key: value}, "untrusted")
        assert (pool, mended.allowed) == ("whole", True)
        assert not any("wait" in each.finding.message for each in mended.results)


AWS = "karpenter.k8s.aws/instance-"


def requirement(key: str, operator: str, *values: str) -> Object:
    return {"key": AWS + key, "operator": operator, "values": [*values]}


GPUS = (
    requirement("family", "In", "g5"),
    requirement("category", "In", "p", "g"),
    {"key": "karpenter.azure.com/sku-family", "operator": "In", "values": ["N"]},
    requirement("gpu-count", "Exists"),
    requirement("gpu-count", "Gt", "0"),
    requirement("gpu-count", "Lt", "5"),
    requirement("gpu-count", "Lte", "4"),
    requirement("gpu-memory", "Lt", "30000"),
    requirement("gpu-manufacturer", "In", "amd", "nvidia"),
    requirement("gpu-manufacturer", "Exists"),
)
NO_GPUS = (
    requirement("gpu-count", "DoesNotExist"),
    requirement("gpu-name", "DoesNotExist"),
    requirement("gpu-count", "Lt", "1"),
    requirement("gpu-count", "Lte", "0"),
    requirement("gpu-manufacturer", "In", "amd"),
    requirement("gpu-manufacturer", "NotIn", "nvidia"),
    requirement("gpu-manufacturer", "DoesNotExist"),
)
NEITHER = (
    requirement("gpu-name", "NotIn", "t4"),
    requirement("gpu-manufacturer", "NotIn", "amd"),
    requirement("cpu", "Gt", "4"),
    requirement("family", "NotIn", "g5"),
    requirement("category", "In", "c", "m", "g"),
    requirement("category", "NotIn", "g", "p"),
)


def template(*requirements: Object) -> Object:
    return {"spec": {"requirements": [*requirements]}}


@pytest.mark.parametrize("own", GPUS, ids=str)
def test_each_requirement_that_only_machines_with_gpus_meet_makes_a_pool(own: Object) -> None:
    assert of_node_pool("a", template(*NEITHER[:3], own)) is not None


@pytest.mark.parametrize("own", NO_GPUS, ids=str)
def test_a_nodepool_of_other_machines_changes_nothing(own: Object) -> None:
    items = objects(ZERO)
    (plain,) = (item for item in items if item["metadata"]["name"] == "plain")
    before = made(items)
    plain["spec"]["template"]["spec"]["requirements"].append(own)
    assert made(items).text == before.text


@given(st.lists(st.sampled_from((*GPUS, *NEITHER))), st.sampled_from(NO_GPUS), st.lists(st.sampled_from(GPUS)))
def test_one_requirement_that_leaves_no_gpu_outweighs_all_others(
    before: list[Object], own: Object, after: list[Object]
) -> None:
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    spec = {"requirements": [*before, own, *after], "taints": [taint]}
    assert of_node_pool("a", {"metadata": {"labels": {"nvidia.com/a": "b"}}, "spec": spec}) is None


@given(st.lists(st.sampled_from(NEITHER)))
def test_requirements_that_machines_without_gpus_meet_make_no_pool(own: list[Object]) -> None:
    assert of_node_pool("a", template(*own)) is None


def test_requirements_on_one_key_are_met_together() -> None:
    families = requirement("family", "In", "g5", "g6", "p5"), requirement("family", "In", "g6", "g5", "c5")
    for order in (families, families[::-1]):
        found = of_node_pool("a", template(requirement("family", "NotIn", "g5"), *order))
        assert found is not None
        assert (found.products, found.labels[AWS + "family"]) == (("g6",), "g6")


def test_karpenter_may_make_a_larger_node_than_there_is() -> None:
    """A pod of eight GPUs was refused, because the only node of the NodePool had four."""

    def largest(items: list[Object]) -> tuple[int, list[str]]:
        text = made(items).text
        whole = [pool["maxRequest"] for pool in spec_of(text)["pools"] if pool["sharing"] == "none"]
        eight = text.replace(f"maxRequest: {min(whole)}", "maxRequest: 8")
        return min(whole), [name for name, _ in linted(eight, facts)]

    items = objects(ROOT / "tests/clusters/karpenter.yaml")
    facts = Facts.of(items)
    assert facts.nodes
    most, found = largest(items)
    assert most == 8
    assert "unreachable-request" not in found
    items = [item for item in items if item["kind"] not in ("NodePool", "EC2NodeClass")]
    for item in items:
        if item["kind"] == "Node":
            labels = item["metadata"]["labels"]
            item["metadata"]["labels"] = {key: value for key, value in labels.items() if key != NODE_POOL}
    facts = Facts.of(items)
    most, found = largest(items)
    assert most < 8
    assert "unreachable-request" in found


def test_a_nodepool_that_has_a_node_gets_no_second_pool_and_keeps_other_nodes_out_of_the_first() -> None:
    items = objects(ROOT / "tests/clusters/karpenter.yaml")
    before = pools(items)
    nodes: Object = {"requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g6"]}]}
    new = [
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodePool",
            "metadata": {"name": name},
            "spec": {"template": {"spec": nodes}},
        }
        for name in ("sliced", "later")
    ]
    after = pools([*items, *new])
    (added,) = after.keys() - before.keys()
    assert after[added]["nodes"] == {"matchLabels": {NODE_POOL: "later"}}
    own = made([*items, *new]).policy
    for node in Facts.of(items).nodes:
        pool = own.pool_of(node.labels)
        assert (pool and pool.name) in (None, *before)
    assert [
        each for each in linted(made([*items, *new]).text, Facts.of([*items, *new])) if each[1] is Action.DENY
    ] == []


WHOLE, GPU_NAME = {"nvidia.com/device-plugin.config": "whole"}, AWS + "gpu-name"


def with_node_pool(*requirements: Object, name: str = "whole", labels: Object | None = None) -> list[Any]:
    """The cluster whose NodePool `whole` has a node with an A10G, and a NodePool of this name."""
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
    own = {"metadata": {"labels": labels or {}}, "spec": {"requirements": [*requirements], "taints": [taint]}}
    pool: Object = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
    return [*objects(ROOT / "tests/clusters/karpenter.yaml"), {**pool, "spec": {"template": own}}]


def landing(items: list[Any], chosen: Object, trust: str = "untrusted") -> tuple[str | None, list[str]]:
    """The pool of a pod that selects these labels, and what denies it."""
    verdict, pool = judged(items, chosen, trust)
    return pool, [each.rule for each in verdict.having(Action.DENY)]


def judged(items: list[Any], chosen: Object, trust: str) -> tuple[Verdict, str | None]:
    """The verdict on a pod that selects these labels, and its pool."""
    policy, facts = made(items).policy, Facts.of([*items, TEAM])
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    metadata = {"name": "p", "namespace": "team", "annotations": {"slicewarden.dev/trust": trust}}
    spec = {"containers": [container], "nodeSelector": chosen}
    request = admission.decode(admission.wrap({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    (placement,) = placements_for(request, policy, facts)
    return Engine(policy, walk()).judge(request, facts), placement.pool.name if placement.pool else None


TEAM: Object = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team", "labels": {"slicewarden.dev/trust": "trusted"}},
}


@pytest.mark.parametrize("labels", [{}, WHOLE], ids=["plain", "configured"])
def test_a_card_that_a_nodepool_may_make_next_to_those_it_made_has_a_pool(labels: Object) -> None:
    items = with_node_pool(requirement("family", "In", "g5", "g6", "p5"), labels=labels)
    found = pools(items)
    assert found["a10g-whole"]["nodes"] == {"matchLabels": {NODE_POOL: "whole", GPU_NAME: "a10g"}}
    assert found["whole"]["nodes"] == {
        "matchLabels": {NODE_POOL: "whole"},
        "matchExpressions": [{"key": GPU_NAME, "operator": "NotIn", "values": ["a10g"]}],
    }
    assert found["whole"]["assume"] == {"memory": "23034Mi"}, "the smaller of an L4 and an H100"
    for chosen, wanted in (
        ({NODE_POOL: "whole", GPU_NAME: "l4"}, "whole"),
        ({NODE_POOL: "whole", GPU_NAME: "a10g"}, "a10g-whole"),
        ({NODE_POOL: "whole"}, "a10g-whole"),
    ):
        assert landing(items, chosen) == (wanted, []), "a pool with a node comes first"
    assert landing(items, {NODE_POOL: "sliced", GPU_NAME: "l4"}, "trusted")[1] == ["unsteered-pod"]
    assert {action for _, action in linted(made(items).text, Facts.of(items))} <= {Action.AUDIT}


def test_the_tests_of_a_policy_with_a_pool_of_other_cards_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, test = tmp_path / "facts.json", tmp_path / "policies/test.yaml"
    items = with_node_pool(requirement("family", "In", "g5", "g6", "p5"))
    facts.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    test.parent.mkdir()
    assert cli.main(["policy", "init", "--facts", str(facts), "--tests", str(test)]) == 0
    (test.parent / "policy.yaml").write_text(capsys.readouterr().out)
    assert cli.main(["test", str(test.parent)]) == 0
    assert "a pod that selects pool whole lands there" in test.read_text()


@pytest.mark.parametrize(
    "own",
    [
        [requirement("family", "In", "g5")],
        [requirement("family", "In", "g5", "g6"), requirement("gpu-name", "In", "a10g")],
        [requirement("family", "In", "g5", "p3dn"), requirement("gpu-name", "In", "a10g")],
    ],
)
def test_a_nodepool_that_makes_one_card_has_one_pool(own: list[Object]) -> None:
    assert pools(with_node_pool(*own)) == pools(objects(ROOT / "tests/clusters/karpenter.yaml"))


@pytest.mark.parametrize(
    "own", [requirement("category", "In", "g", "p"), requirement("family", "In", "g5", "p3dn")], ids=["any", "unknown"]
)
def test_a_nodepool_that_may_make_a_card_that_is_not_known_has_a_pool_for_it(own: Object) -> None:
    items = with_node_pool(own)
    assert landing(items, {NODE_POOL: "whole", GPU_NAME: "v100"}) == ("whole", [])
    assert "assume" not in pools(items)["whole"]


def test_a_nodepool_whose_pool_selects_no_card_needs_no_other() -> None:
    items = with_node_pool(requirement("family", "In", "g5", "g6"))
    own = spec_of(made(items, by_product=False).text)["pools"]
    assert own == spec_of(made(items[:-1], by_product=False).text)["pools"]


def test_other_cards_of_a_nodepool_get_no_pool_if_only_its_nodes_say_that_they_are_shared() -> None:
    """Nothing that is read shares the cards of this NodePool, but its node does: other cards may be no whole ones."""
    for labels in ({}, {"nvidia.com/device-plugin.config": "sliced"}):
        items = with_node_pool(requirement("family", "In", "g5", "g6"), name="sliced", labels=labels)
        found = made(items)
        assert spec_of(found.text)["pools"] == spec_of(made(items[:-1]).text)["pools"]
        assert any(note.startswith("no pool is written for other cards of NodePool sliced: ") for note in found.notes)


def shared_next_to(name: str, **labels: str) -> list[Any]:
    """The cluster of Karpenter, and one more node like that of this NodePool, whose cards are shared."""
    items = objects(ROOT / "tests/clusters/karpenter.yaml")
    (like,) = (item for item in items if item["metadata"].get("labels", {}).get(NODE_POOL) == name)
    node = deepcopy(like)
    node["metadata"]["name"] = "another"
    own = {"gpu.product": "NVIDIA-A10G-SHARED", "gpu.sharing-strategy": "time-slicing", "gpu.replicas": "4"}
    own = {"kubernetes.io/hostname": "another", **{f"nvidia.com/{key}": value for key, value in own.items()}}
    node["metadata"]["labels"] |= own | labels
    node["status"] = {"allocatable": {"nvidia.com/gpu": "16"}}
    return [*items, node]


def test_pools_of_one_nodepool_that_only_running_nodes_tell_apart_are_named() -> None:
    found = made(shared_next_to("whole"))
    (note,) = (note for note in found.notes if "autoscaler" in note)
    assert note == (
        "only nvidia.com/gpu.product tells pools shared, a10g-whole from others, and no autoscaler knows that before a "
        "node exists, so it may make none for their pods; give each kind of node a NodePool or a node group of its own"
    )
    comment = "# No autoscaler knows nvidia.com/gpu.product before a node exists, so it may make none for this pool."
    assert found.text.count(comment) == 2
    for items in (shared_next_to("whole", **{NODE_POOL: "third"}), objects(ROOT / "tests/clusters/karpenter.yaml")):
        other = made(items)
        assert "autoscaler" not in f"{other.text} {other.notes}"


@pytest.mark.parametrize("name", ["aks", "eks", "gke", "karpenter-zero", "operator-mig", "standalone"])
def test_no_pool_of_a_common_cluster_depends_on_labels_that_come_late(name: str) -> None:
    found = made(objects(ROOT / f"tests/clusters/{name}.yaml"))
    assert not any(group.late for group in found.groups)


def test_machine_sets_get_pools_where_no_tenant_writes_them() -> None:
    given = [*examples("machine_set").values()]
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {}}}
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("capi", "openshift-machine-api")
    ]
    found = pools([*given, node, *spaces], no_tenants=("capi", "openshift-machine-api"))
    assert sorted(str(pool["nodes"]["matchLabels"]) for pool in found.values()) == [
        "{'node-role.kubernetes.io/gpu': ''}",
        "{'node.cluster.x-k8s.io/pool': 'a100'}",
        "{'node.cluster.x-k8s.io/pool': 't4'}",
    ]
    with pytest.raises(Unusable, match="none of 1 node has GPUs"):
        made([*(item for item in given if item["metadata"]["namespace"] == "capi"), node])


def test_the_taint_of_nodes_to_come_belongs_in_what_makes_them_and_kubectl_taints_those_that_exist() -> None:
    items = objects(ZERO)
    for item in items:
        if item["kind"] == "NodePool":
            item["spec"]["template"]["spec"].pop("taints", None)
    nodes = "spec.template.spec.taints of NodePool bottlerocket-shared, NodePool sliced, NodePool whole"
    command = f"add nvidia.com/gpu=present:NoSchedule to {nodes}"
    assert any(note.endswith(f"to have a taint: {command}") for note in made(items).notes)
    labels = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "Tesla-T4"}
    there: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": labels}}
    by_label = "kubectl taint nodes -l nvidia.com/gpu.present=true nvidia.com/gpu=present:NoSchedule"
    assert any(note.endswith(f"to have a taint: {by_label}; {command}") for note in made([*items, there]).notes)


@pytest.mark.parametrize("name", ["bad name!", "a" * 64])
def test_a_maker_whose_labels_no_node_can_have_gets_a_note_and_no_pool(name: str) -> None:
    items = objects(ZERO)
    (whole,) = (item for item in items if item["metadata"]["name"] == "whole")
    whole["metadata"]["name"] = name
    found = made(items)
    assert [pool.name for pool in found.policy.pools] == ["t4-shared", "a10g-shared"]
    note = f"no pool is written for NodePool {name}: no node can have its labels; correct its name and its labels"
    assert note in found.notes


def test_a_machine_set_whose_labels_no_node_can_have_is_named() -> None:
    own = deepcopy(examples("machine_set")["cluster.x-k8s.io", "MachineDeployment"])
    own["metadata"]["annotations"]["capacity.cluster-autoscaler.kubernetes.io/labels"] = "a b=c d"
    spaces: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capi"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}},
    ]
    with pytest.raises(Unusable, match="no pool is written for MachineDeployment t4: no node can have its labels"):
        made([own, *spaces], no_tenants=("capi",))


KARPENTER = "system:serviceaccount:kube-system:karpenter"
MACHINE_API = "system:serviceaccount:openshift-machine-api:machine-api-controllers"
NFD = "system:serviceaccount:kube-system:node-feature-discovery"


def labellers(items: list[Any], **more: Any) -> Set[str]:
    return {*made(items, **more).policy.node_labellers.users}


def test_whoever_labels_the_nodes_to_come_is_a_labeller_before_one_exists() -> None:
    assert labellers(objects(ZERO)) == {KARPENTER, NFD}
    assert labellers(without(objects(ZERO), "NodePool"), accelerators=("nvidia-l4",)) == {NFD}


def test_openshifts_controllers_are_labellers_by_a_machine_set_in_their_own_namespace_and_by_no_tenants() -> None:
    own = examples("machine_set")["machine.openshift.io", "MachineSet"]
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("openshift-machine-api", "ml")
    ]
    openshift: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {OPENSHIFT: "rhcos"}}}
    assert labellers([own, openshift, *spaces]) == {MACHINE_API}
    elsewhere = {**own, "metadata": {**own["metadata"], "namespace": "ml"}}
    assert MACHINE_API not in labellers([elsewhere, openshift, *spaces, *objects(ZERO)], no_tenants=("ml",))
    assert MACHINE_API not in labellers([own, *spaces, *objects(ZERO)]), (
        "on another platform it is a tenant's namespace"
    )


OPENSHIFT = "node.openshift.io/os_id"


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu", "", "amd.com/gpu"]
)
def test_a_machine_set_of_another_resource_than_whole_cards_gets_no_pool(resource: str) -> None:
    own = deepcopy(examples("machine_set")["cluster.x-k8s.io", "MachineDeployment"])
    capacity = "capacity.cluster-autoscaler.kubernetes.io/"
    own["metadata"]["annotations"] |= {f"{capacity}gpu-count": "7", f"{capacity}gpu-type": resource}
    items = [own, *objects(ZERO), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "capi"}}]
    found = made(items, no_tenants=("capi",))
    assert ("node.cluster.x-k8s.io/pool" in found.text) == (resource in ("nvidia.com/gpu", ""))
    noted = [note for note in found.notes if note.startswith("no pool is written for MachineDeployment t4:")]
    assert len(noted) == (resource in ("nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"))


def test_accelerators_of_autopilot_are_named_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unusable, match="--accelerators on GKE"):
        made(objects(AUTOPILOT))
    assert cli.main(["policy", "init", "--facts", str(AUTOPILOT), "--accelerators", "nvidia-l4,nvidia-b200"]) == 0
    spec = spec_of(capsys.readouterr().out)
    assert [pool["nodes"] for pool in spec["pools"]] == [
        {"matchLabels": {ACCELERATOR: name}} for name in ("nvidia-l4", "nvidia-b200")
    ]
    assert spec["guard"] == {"taint": {"key": "nvidia.com/gpu"}}
    assert cli.main(["policy", "init", "--facts", str(AUTOPILOT), "--accelerators", "NVIDIA L4"]) == 2


def test_an_accelerator_that_a_node_has_gets_no_second_pool_and_a_note_says_so() -> None:
    items = objects(ROOT / "tests/clusters/gke.yaml")
    own = made(items, accelerators=("nvidia-l4", "nvidia-b200"))
    (note,) = [note for note in own.notes if "accelerator" in note]
    assert note.startswith("no pool is written for accelerator nvidia-l4: there is a node with that label")
    assert {ACCELERATOR: "nvidia-b200"} in [pool["nodes"]["matchLabels"] for pool in spec_of(own.text)["pools"]]


def test_pools_of_gkes_newest_accelerators_say_their_card_and_have_no_lint_warning() -> None:
    items = objects(AUTOPILOT)
    names = ("nvidia-b200", "nvidia-h200-141gb", "nvidia-rtx-pro-6000")
    own = made(items, accelerators=names)
    assert {pool["assume"]["product"] for pool in spec_of(own.text)["pools"]} == {
        "NVIDIA-B200",
        "NVIDIA-H200",
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    }
    assert [each for each in linted(own.text, Facts.of(items)) if each[1] is not Action.AUDIT] == []


@pytest.mark.parametrize(
    ("name", "memory"),
    [("g7e.2xlarge", 97887), ("p6-b200.48xlarge", 183359), ("Quadro-RTX-6000", None), ("nvidia-rtx-6000-ada", None)],
)
def test_a_machine_or_a_card_is_known_by_its_name(name: str, memory: int | None) -> None:
    found = card_type(name)
    assert (found and found.memory) == memory


def test_a_class_that_divides_the_cards_of_a_pools_nodes_is_named() -> None:
    """Nothing on such a node says that its devices are MIG devices: it offers more GPUs than it has cards."""
    items = with_user_data(f'{SETTINGS}device-partitioning-strategy = "mig"')
    labels = {
        "karpenter.k8s.aws/ec2nodeclass": "bottlerocket-shared",
        NODE_POOL: "parts",
        "node.kubernetes.io/instance-type": "p4d.24xlarge",
        "karpenter.k8s.aws/instance-gpu-name": "a100",
        "karpenter.k8s.aws/instance-gpu-count": "8",
    }
    status = {"allocatable": {"nvidia.com/gpu": "56"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "parts", "labels": labels}, "status": status}
    found = made([*items, node])
    (note,) = (each for each in found.notes if each.startswith("EC2NodeClass"))
    assert note == (
        "EC2NodeClass bottlerocket-shared shares or divides the cards of pool a100-shared in a way that is not read, "
        "such as MIG: correct `sharing` in the policy"
    )
    assert not any(each.startswith("EC2NodeClass") for each in made([*with_user_data(""), node]).notes)
