"""A policy made for a cluster: it fits what the cluster has, lints, passes its tests, and refuses nothing that runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import ROOT
from tests.support.clusters import large
from tests.support.policies import POLICY, SHARING, policy_of
from tests.support.starting import DUMPS, linted, made, objects, options, settled, spec_of
from webhook import rules
from webhook.api import admission
from webhook.catalog import node_labels
from webhook.cli import main as cli
from webhook.cluster import watch
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.engine.registration import left_alone
from webhook.facts.snapshot import Facts
from webhook.model import Action, Unusable
from webhook.policy.model import Guard
from webhook.scan import reduced

each_cluster = pytest.mark.parametrize("file", DUMPS, ids=lambda file: file.stem)


def words(file: Path) -> list[str]:
    """The arguments of `policy init` for the cluster of a dump."""
    return [word for key, values in options(file).items() for word in (f"--{key}", ",".join(values))]


def refused(policy_of_cluster: Any, items: list[Any]) -> dict[str, list[str]]:
    """Which of a cluster's own workloads would be refused if they were created again, and by which rules."""
    engine, facts = Engine(policy_of_cluster, rules.walk()), Facts.of(items)
    found = {}
    for item in items:
        namespace = item["metadata"].get("namespace", "default")
        if item["kind"] not in ("Pod", "DaemonSet") or namespace in left_alone(policy_of_cluster):
            continue
        spec = {key: value for key, value in item["spec"].items() if key != "nodeName"}
        verdict = engine.judge(admission.decode(admission.wrap({**item, "spec": spec})), facts)
        assert verdict.malformed is None
        if denied := [result.rule for result in verdict.having(Action.DENY)]:
            found[f"{namespace}/{item['metadata']['name']}"] = denied
    return found


# Clusters of each product


@each_cluster
def test_the_made_policy_has_no_lint_error(file: Path) -> None:
    items = objects(file)
    found = linted(made(items, **options(file)).text, Facts.of(items))
    assert [each for each in found if each[1] is Action.DENY] == []
    # No label has the memory, as a note says, so pods have no cap.
    unlabelled = {"unknown-card", "open-way"} if file.stem == "homelab" else set()
    assert {lint for lint, action in found if action is Action.WARN} == unlabelled
    own, labelled = settled(items, **options(file))
    warned = {lint for lint, action in linted(own.text, Facts.of(labelled)) if action is not Action.AUDIT}
    # Microsoft's page gives the device plugin no account of its own.
    assert warned == ({"exempted-default"} if file.stem == "aks" else unlabelled)


@each_cluster
@pytest.mark.parametrize("by", ["product", "sharing"])
def test_the_made_policy_denies_nothing_that_runs(file: Path, by: str) -> None:
    own, items = settled(objects(file), by_product=by == "product", **options(file))
    assert refused(own.policy, items) == {}
    assert own.fates.refused == ()


@pytest.mark.parametrize("name", ["operator-time-slicing", "operator-mig", "operator-mps"])
def test_the_gpu_operator_comes_up_under_the_made_policy_as_it_is_written(name: str) -> None:
    items = objects(ROOT / f"tests/clusters/{name}.yaml")
    own = made(items).policy
    (home,) = own.leave_alone
    operands = [item["metadata"] for item in items if item["kind"] == "DaemonSet"]
    assert any(each["namespace"] == home for each in operands)
    assert not any(denied.startswith(f"{home}/") for denied in refused(own, items))
    assert f"system:serviceaccount:{home}:gpu-operator" in own.node_labellers.users


@each_cluster
def test_every_node_with_gpus_is_in_a_pool_and_no_other_is(file: Path) -> None:
    items = objects(file)
    policy = made(items, **options(file)).policy
    for node in Facts.of(items).nodes:
        assert (policy.pool_of(node.labels) is not None) is any(node.resources.values()), node.name


@each_cluster
def test_the_tests_of_the_made_policy_pass(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    test = tmp_path / "policies/test.yaml"
    test.parent.mkdir()
    assert cli.main(["policy", "init", "--facts", str(file), "--tests", str(test), *words(file)]) == 0
    (test.parent / "policy.yaml").write_text(capsys.readouterr().out)
    assert cli.main(["test", str(test.parent)]) == 0
    out = capsys.readouterr().out
    assert f"{len(spec_of((test.parent / 'policy.yaml').read_text())['pools'])} cases" not in out  # there are more
    assert ", 0 failed; 0 errors" in out


def test_a_policy_is_written_into_the_empty_file_that_the_shell_has_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies/policy.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["facts", str(ROOT / "tests/clusters/gke.yaml")]) == 0
    Path("cluster.json").write_text(capsys.readouterr().out)
    assert cli.main(["policy", "init", "--facts", "cluster.json", "--tests", "policies/test.yaml"]) == 0
    Path("policies/policy.yaml").write_text(capsys.readouterr().out)
    assert cli.main(["test", "policies"]) == 0
    assert cli.main(["facts", "cluster.json", "--policy", "none.yaml"]) == 2


def test_the_tests_of_a_policy_can_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, test = ROOT / "tests/clusters/gke.yaml", tmp_path / "test.yaml"
    assert cli.main(["policy", "init", "--facts", str(file), "--tests", str(test)]) == 0
    text = capsys.readouterr().out.replace("[trusted, untrusted]", "[trusted]")
    (tmp_path / "policy.yaml").write_text(text)
    assert cli.main(["test", str(tmp_path)]) == 1


def pools(name: str) -> list[tuple[Any, ...]]:
    """The pools of a cluster's policy: name, sharing, resources, and largest request or slices."""
    spec = spec_of(made(objects(ROOT / f"tests/clusters/{name}.yaml")).text)
    return [
        (
            pool["name"],
            pool["sharing"],
            pool["resources"],
            pool.get("maxRequest") or {key: pool["assume"][key] for key in ("memory", "replicas")},
        )
        for pool in spec["pools"]
    ]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "operator-time-slicing",
            [
                ("shared", "time-slicing", ["nvidia.com/gpu"], {"memory": "15360Mi", "replicas": 4}),
                ("whole", "none", ["nvidia.com/gpu"], 8),
            ],
        ),
        (
            "operator-mig",
            [
                ("whole", "none", ["nvidia.com/gpu"], 8),
                ("mig", "mig", ["nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"], 56),
            ],
        ),
        (
            "operator-mps",
            [
                (
                    "mps",
                    "mps",
                    ["nvidia.com/gpu", "nvidia.com/gpu.shared"],
                    {"memory": "46068Mi", "replicas": 10},
                )
            ],
        ),
        (
            "standalone",
            [
                ("shared", "time-slicing", ["nvidia.com/gpu"], {"memory": "24564Mi", "replicas": 30}),
                ("whole", "none", ["nvidia.com/gpu"], 2),
            ],
        ),
        (
            "gke",
            [
                # A third of a 3g.20gb device, and not of the card.
                ("a100-shared", "time-slicing", ["nvidia.com/gpu"], {"memory": "18000Mi", "replicas": 3}),
                ("l4-shared", "time-slicing", ["nvidia.com/gpu"], {"memory": "23034Mi", "replicas": 4}),
                ("mps", "mps", ["nvidia.com/gpu"], {"memory": "15360Mi", "replicas": 4}),
                ("whole", "none", ["nvidia.com/gpu"], 2),
                ("mig", "mig", ["nvidia.com/gpu"], 7),
            ],
        ),
        (
            "aks",
            [("whole", "none", ["nvidia.com/gpu"], 4)],
        ),
        (
            "eks",
            [
                ("t4-shared", "time-slicing", ["nvidia.com/gpu.shared"], {"memory": "15360Mi", "replicas": 4}),
                # One card that offers four GPUs: no label and no ConfigMap says that it is shared.
                ("l4-shared", "time-slicing", ["nvidia.com/gpu"], {"memory": "23034Mi", "replicas": 4}),
                ("whole", "none", ["nvidia.com/gpu"], 8),
            ],
        ),
    ],
)
def test_the_made_policy_has_a_pool_for_each_kind_of_node(name: str, wanted: list[tuple[Any, ...]]) -> None:
    assert pools(name) == wanted


def test_a_pool_of_karpenters_nodes_selects_only_labels_that_they_have_from_the_start() -> None:
    """A pod that waits for a label of GPU Feature Discovery would make no node."""
    spec = spec_of(made(objects(ROOT / "tests/clusters/karpenter.yaml")).text)
    nodes = {pool["name"]: pool["nodes"] for pool in spec["pools"]}
    gpu = {"karpenter.k8s.aws/instance-gpu-name": "a10g"}
    assert nodes == {
        "shared": {"matchLabels": {**gpu, "karpenter.sh/nodepool": "sliced"}},
        "a10g-whole": {"matchLabels": {**gpu, "karpenter.sh/nodepool": "whole"}},
        "h100-80gb-whole": {
            "matchLabels": {
                "node.kubernetes.io/instance-type": "p5.48xlarge",  # of a managed node group
            },
            "matchExpressions": [{"key": "karpenter.k8s.aws/instance-gpu-name", "operator": "DoesNotExist"}],
        },
    }


def grown(name: str, machine: str, group: tuple[str, str], gpus: int = 1, **labels: str) -> Any:
    """A node of a cloud's group of machines, with GPU Feature Discovery's labels."""
    own = {f"nvidia.com/gpu.{key}": value for key, value in labels.items()}
    metadata = {"name": name, "labels": {"node.kubernetes.io/instance-type": machine, **dict([group]), **own}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
    }


GROUPS = sorted({*node_labels.SCALING} - {node_labels.KARPENTER})


@pytest.mark.parametrize("key", GROUPS)
def test_a_pool_that_an_autoscaler_may_grow_selects_no_label_that_appears_on_a_running_node(key: str) -> None:
    """A pod that waits for a label of GPU Feature Discovery would make no node. Every autoscaler knows the machine."""
    items = [
        grown("a", "t4x1", (key, "shared"), 4, product="Tesla-T4-SHARED", count="1", replicas="4", present="true"),
        grown("b", "t4x1", (key, "whole"), product="Tesla-T4", count="1", replicas="1", present="true"),
        grown("c", "a100x8", (key, "mig"), 56, product="NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", present="true"),
        grown("d", "h100x8", (key, "bare"), 8, present="true"),
        grown("e", "t4x1", (key, "whole-2"), product="Tesla-T4", count="1", present="true"),
    ]
    own = made(items)
    machine = "node.kubernetes.io/instance-type"
    for pool in spec_of(own.text)["pools"]:
        chosen = {*pool["nodes"].get("matchLabels", ()), *(e["key"] for e in pool["nodes"].get("matchExpressions", ()))}
        assert machine in chosen
        assert chosen <= {machine, key}
    later = {"nvidia.com/gpu.present": "true", machine: "g5.xlarge", key: "new"}
    assert own.policy.pool_of(later) is None, "a machine with another card falls into no pool"


def test_a_pod_may_request_all_that_a_node_has_of_whole_cards_and_mig_devices() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/mig.strategy": "mixed"}
    offered = {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "8"}
    card = {**node("a100"), "metadata": {"name": "a100", "labels": labels}, "status": {"allocatable": offered}}

    def asking(whole: str = "4") -> dict[str, Any]:
        limits = {**offered, "nvidia.com/gpu": whole}
        spec = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
        metadata = {"name": "all", "namespace": "default"}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    own = made([card])
    (pool,) = spec_of(own.text)["pools"]
    assert (pool["resources"], pool["maxRequest"]) == (["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"], 12)
    assert refused(own.policy, [card, asking()]) == {}
    assert refused(own.policy, [card, asking("5")]) == {"default/all": ["unsteered-pod"]}


def test_pools_of_one_kind_are_named_by_their_groups() -> None:
    key = "eks.amazonaws.com/nodegroup"
    taint = {"spec": {"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}}
    items = [
        grown("a", "g6.xlarge", (key, "open"), product="NVIDIA-L4"),
        {**grown("b", "g6.xlarge", (key, "research"), product="NVIDIA-L4"), **taint},
        grown("c", "g5.xlarge", (key, "other"), product="NVIDIA-A10G"),
    ]
    assert {pool["name"] for pool in spec_of(made(items).text)["pools"]} == {
        "l4-whole",
        "a10g-whole",
        "l4-whole-research",
    }


def test_only_nodes_without_the_taint_are_to_get_it_and_karpenters_by_their_nodepool() -> None:
    items = objects(ROOT / "tests/clusters/eks.yaml")
    for item in items:
        if item["kind"] == "Node" and item["metadata"]["name"].endswith(("-2-1.ec2.internal", "-1-1.ec2.internal")):
            item["spec"] = {}
    (note,) = [each for each in made(items).notes if "to have a taint" in each]
    assert note.endswith(
        "kubectl taint nodes ip-10-0-1-1.ec2.internal nvidia.com/gpu=present:NoSchedule; "
        "add nvidia.com/gpu=present:NoSchedule to spec.template.spec.taints of NodePool shared"
    )


def test_two_device_plugins_on_a_node_are_named() -> None:
    """KAITO installs one of its own beside the GPU Operator's."""
    items = objects(ROOT / "tests/clusters/operator-time-slicing.yaml")
    assert not any("device plugins seem" in note for note in made(items).notes)
    second: dict[str, Any] = {
        "containers": [
            {"name": "nvidia-device-plugin-ctr", "image": "mcr.microsoft.com/oss/v2/nvidia/k8s-device-plugin"}
        ]
    }
    kaito = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "kaito-workspace"},
        "spec": {"template": {"spec": second}},
    }
    (note,) = [note for note in made([*items, kaito]).notes if "device plugins seem" in note]
    assert "gpu-operator/nvidia-device-plugin-daemonset, kaito-workspace/nvidia-device-plugin-daemonset" in note
    second["nodeSelector"] = {"accelerator": "nvidia-kaito"}
    assert not any("device plugins seem" in note for note in made([*items, kaito]).notes)


def test_the_only_node_is_not_to_be_tainted() -> None:
    """It is the control plane and everything else: after the next restart nothing would come up."""
    items = objects(ROOT / "tests/clusters/homelab.yaml")
    own = made(items)
    assert "kubectl taint" not in own.text + "".join(own.notes)
    assert own.policy.guard == Guard()
    plain = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "box"}}
    other = made([*items, plain])
    assert "kubectl taint" in other.text
    assert any("kubectl taint" in note for note in other.notes)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("operator-time-slicing", {"taint": {"key": "nvidia.com/gpu"}}),
        ("gke", {"taint": {"key": "nvidia.com/gpu"}}),
        ("standalone", {"everyPod": True}),
    ],
)
def test_the_guard_is_the_taint_that_all_nodes_have(name: str, wanted: Any) -> None:
    own = made(objects(ROOT / f"tests/clusters/{name}.yaml"))
    assert spec_of(own.text)["guard"] == wanted
    command = "kubectl taint nodes ws-1 ws-2 nvidia.com/gpu=present:NoSchedule"
    assert any(command in note for note in own.notes) is ("everyPod" in wanted)
    assert (command in own.text) is ("everyPod" in wanted)


def test_slicewardens_own_taint_is_tolerated_with_the_value_of_each_pool() -> None:
    items = objects(ROOT / "webhook/sample/facts.yaml")
    spec = spec_of(made(items).text)
    assert spec["guard"] == {"taint": {"key": "slicewarden.dev/pool"}}
    assert {pool["tolerations"][0]["value"] for pool in spec["pools"]} == {"shared", "mig", "exclusive"}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("operator-time-slicing", ("gpu-operator", "time-slicing-config")),
        ("operator-mps", ("nvidia-gpu-operator", "mps")),
        ("standalone", ("nvidia-device-plugin", "nvdp-nvidia-device-plugin-configs")),
    ],
)
def test_the_made_policy_names_the_config_map_of_the_device_plugin(name: str, place: tuple[str, str]) -> None:
    own = settled(objects(ROOT / f"tests/clusters/{name}.yaml"))[0].policy
    assert own.config_maps == {place}
    assert own.limits.namespaces == own.leave_alone == (place[0],)


@pytest.mark.parametrize("name", ["null", "no", "123", "1e3", "2026-11-24"])
def test_names_that_yaml_reads_as_other_values_are_texts_in_the_policy(name: str) -> None:
    file = ROOT / "tests/clusters/standalone.yaml"
    items = json.loads(json.dumps(objects(file)).replace('"nvidia-device-plugin"', f'"{name}"'))
    for item in items:
        if item["kind"] == "Node":
            item["spec"] = {"taints": [{"key": name, "value": name, "effect": "NoSchedule"}]}
    own = made(items, name=name, no_tenants=[name])
    spec = spec_of(own.text)
    assert own.policy.name == name
    assert spec["guard"] == {"taint": {"key": name}}
    assert spec["pools"][0]["tolerations"] == [
        {"key": name, "operator": "Equal", "value": name, "effect": "NoSchedule"},
    ]
    assert spec["leaveAlone"] == spec["sharing"]["namespaces"] == [name]
    assert {each["namespace"] for each in spec["sharing"]["configMaps"]} == {name}


def test_agents_are_exempted_by_namespace_account_and_rule() -> None:
    items = objects(ROOT / "tests/clusters/eks.yaml")
    assert made(items).policy.exemptions == ()
    own = settled(items)[0].policy
    exempted = {
        (tuple(each.scope.namespaces), tuple(each.scope.service_accounts)): each.rules for each in own.exemptions
    }
    assert exempted == {
        (("amazon-cloudwatch",), ("cloudwatch-agent",)): {"broad-toleration", "device-path"},
        (("amazon-cloudwatch",), ("dcgm-exporter-service-acct",)): frozenset(),
    }


def test_a_device_plugin_that_the_webhook_is_asked_about_is_exempted_from_all_rules() -> None:
    own = settled(objects(ROOT / "tests/clusters/aks.yaml"))[0]
    exempted = {next(iter(each.scope.namespaces)): each.rules for each in own.policy.exemptions}
    assert exempted["gpu-resources"] == frozenset()
    assert "calico-system" not in exempted  # the network starts before any webhook
    assert own.policy.leave_alone == ("calico-system", "tigera-operator")
    assert "serviceAccounts: [default]  # give it an account of its own" in own.text
    assert own.policy.node_labellers.users == frozenset()
    assert own.policy.guard is not None
    assert own.policy.guard.taint == "sku"


def test_accounts_that_label_nodes_are_named_in_the_policy() -> None:
    own = {file.stem: settled(objects(file), **options(file))[0].policy for file in DUMPS}
    nfd = "system:serviceaccount:nvidia-device-plugin:nvdp-node-feature-discovery"
    assert own["standalone"].node_labellers.users == {nfd}
    assert own["eks"].node_labellers.users == {"system:serviceaccount:kube-system:karpenter"}
    assert "system:serviceaccount:gpu-operator:gpu-operator" in own["operator-mig"].node_labellers.users
    assert own["operator-mps"].administrators.groups == {"system:masters", "system:cluster-admins"}


def test_namespaces_are_trusted_by_their_label_alone() -> None:
    first = made(objects(ROOT / "tests/clusters/operator-time-slicing.yaml"))
    own = first.policy
    assert own.default_trust == "trusted"
    (grant,) = own.grants
    assert not grant.scope.namespaces
    assert grant.scope.selector is not None
    assert "#   notebooks\n" in first.text
    assert first.notes[0] == (
        "pods of 1 namespace share cards today, and no label trusts them: notebooks; to trust one: "
        "kubectl label namespace notebooks slicewarden.dev/trust=trusted"
    )
    assert "notebooks" not in settled(objects(ROOT / "tests/clusters/operator-time-slicing.yaml"))[0].text
    own = made(objects(ROOT / "tests/clusters/operator-mig.yaml")).policy
    assert (own.default_trust, own.grants) == ("untrusted", ())


def test_pods_without_trust_evict_nobody_where_no_class_would_let_them() -> None:
    def classes(**values: int) -> list[dict[str, Any]]:
        return [
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            for name, value in values.items()
        ]

    nodes = [node("a", **{"nvidia.com/gpu": "1"})]
    system = classes(**{"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000})
    patient = {**classes(patient=500)[0], "preemptionPolicy": "Never"}
    assert not made([*nodes, *system, patient, *classes(low=-1)]).policy.untrusted_preempt
    urgent = made([*nodes, *system, *classes(urgent=10)])
    assert urgent.policy.untrusted_preempt
    assert "by the class urgent, unless you say" in urgent.text
    assert made(nodes).policy.untrusted_preempt


def test_thin_slices_have_no_cap_and_the_policy_says_so() -> None:
    own = made(objects(ROOT / "tests/clusters/standalone.yaml"))
    assert own.policy.capped_sharing == {"mps"}
    assert "are too small for a memory cap" in own.text


def test_a_pod_that_would_lose_its_whole_gpu_is_named() -> None:
    items = objects(ROOT / "tests/clusters/operator-time-slicing.yaml")
    (pod,) = [item for item in items if item["metadata"]["name"] == "notebook-1"]
    whole = {**pod, "metadata": {**pod["metadata"], "name": "big"}, "spec": {**pod["spec"], "nodeName": "a100-1"}}
    own = settled([*items, whole])[0]
    assert "this pod would get a slice for a whole GPU: notebooks/big." in own.text
    (note,) = [note for note in own.notes if "get a slice" in note]
    assert note == (
        "1 pod with a whole GPU would get a slice if created again: notebooks/big; to keep a whole GPU, set the "
        "annotation slicewarden.dev/trust: untrusted in the template"
    )
    whole["metadata"]["annotations"] = {"slicewarden.dev/trust": "untrusted"}
    assert [note for note in settled([*items, whole])[0].notes if "slice for" in note] == []


def test_a_pod_that_would_be_refused_is_named() -> None:
    items = objects(ROOT / "tests/clusters/gke.yaml")
    (pod,) = [item for item in items if item["metadata"]["name"] == "two"]
    pod["spec"] = {**pod["spec"], "hostPID": True}
    own = settled(items)[0]
    assert own.fates.refused == ("default/two: host-namespaces; remove it",)
    assert "#   default/two: host-namespaces; remove it\n" in own.text
    assert "1 pod with a GPU would be refused if created again: see the head of the policy" in own.notes


def test_a_pod_that_would_wait_or_go_to_another_pool_is_named() -> None:
    items = objects(ROOT / "tests/clusters/gke.yaml")
    (pod,) = [item for item in items if item["metadata"]["name"] == "shared"]
    for name, selector in (("chosen", {"cloud.google.com/gke-nodepool": "shared"}), ("free", {})):
        items.append(
            {**pod, "metadata": {"name": name, "namespace": "web"}, "spec": pod["spec"] | {"nodeSelector": selector}}
        )
    own = made(items)
    assert own.fates.waiting == ("web/chosen: pool whole",)
    assert own.fates.elsewhere == ("web/free: pool whole instead of l4-shared",)
    for line in (*own.fates.waiting, *own.fates.elsewhere):
        assert f"#   {line}\n" in own.text
    assert "1 pod with a GPU would wait if created again: see the head of the policy" in own.notes
    assert "1 pod with a GPU would go to another pool if created again: see the head of the policy" in own.notes
    assert settled(items)[0].fates.waiting == (), "where the namespace is trusted, it stays"


def test_gpus_of_another_maker_are_named() -> None:
    items = [*objects(ROOT / "tests/clusters/eks.yaml"), node("amd", **{"amd.com_gpu": "1"})]
    (note,) = (each for each in made(items).notes if "amd.com" in each)
    assert note == (
        "nodes also offer amd.com/gpu, and no pool does, so pods that request it are refused; to leave them to others, "
        "list under gpus.resources all of its default but amd.com/*"
    )


def test_a_pod_that_is_no_agent_is_only_offered_an_exemption() -> None:
    items = objects(ROOT / "tests/clusters/gke.yaml")
    spec = {"nodeName": "gke-cpu-1", "tolerations": [{"operator": "Exists"}], "containers": [{"name": "main"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd", "namespace": "web"}, "spec": spec}
    own = made([*items, pod])
    assert "    # - name: web-odd\n" in own.text
    assert "rules: [broad-toleration]" in own.text
    assert len(own.policy.exemptions) == len(made(items).policy.exemptions)


def test_a_large_cluster_has_the_right_pools() -> None:
    own = made(list(large()))
    kinds = [
        (pool.name, pool.sharing, len(group.nodes)) for pool, group in zip(own.policy.pools, own.groups, strict=True)
    ]
    assert kinds == [("shared", "time-slicing", 16), ("whole", "none", 16), ("mig", "mig", 8)]
    assert linted(own.text, Facts.of(large())) == [
        ("waiting-grant", Action.AUDIT),
        ("unjudged-namespace", Action.AUDIT),
    ]


# Clusters without GPUs


def node(name: str, **resources: str) -> dict[str, Any]:
    allocatable = {key.replace("_", "/", 1).replace("_", "."): value for key, value in resources.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "no nodes in it: take the facts again with `slicewarden facts --live`"),
        ([node("a", cpu="1")], "none of 1 node has GPUs: no nvidia.com/gpu or nvidia.com/gpu.product is there"),
        ([node("a"), node("b")], "install NVIDIA's device plugin, then take the facts again"),
        (
            [{**node("a"), "status": {"allocatable": {"amd.com/gpu": "8"}}}],
            "no node has GPUs of NVIDIA, but amd.com/gpu",
        ),
        ([{**node("a"), "status": {"allocatable": {"nvidia.com/hostdev": "8"}}}], "none of 1 node has GPUs"),
    ],
)
def test_a_cluster_without_gpus_gets_a_clear_message(items: list[Any], message: str) -> None:
    with pytest.raises(Unusable) as raised:
        made(items)
    assert str(raised.value).startswith("cluster.json: ")
    assert message in str(raised.value)


def test_policy_init_without_gpus_fails_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, test = tmp_path / "cluster.json", tmp_path / "test.yaml"
    file.write_text(json.dumps(node("a")))
    assert cli.main(["policy", "init", "--facts", str(file), "--tests", str(test)]) == 2
    output = capsys.readouterr()
    assert (output.out, test.exists()) == ("", False)
    assert "none of 1 node has GPUs" in output.err


@pytest.mark.parametrize("words", [(), ("--facts", "x", "--live"), ("--facts", "x", "--name", "A B")])
def test_wrong_usage_is_refused(words: tuple[str, ...]) -> None:
    assert cli.main(["policy", "init", *words]) == 2


# Whatever labels nodes have

LABELS = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/gpu.product": st.sampled_from(("Tesla-T4", "Tesla-T4-SHARED", "NVIDIA-A100-MIG-1g.5gb", "odd_one")),
        "nvidia.com/gpu.sharing-strategy": st.sampled_from(("none", "time-slicing", "mps")),
        "nvidia.com/gpu.replicas": st.sampled_from(("0", "1", "4", "50", "x")),
        "nvidia.com/gpu.memory": st.sampled_from(("15360", "0", "many")),
        "cloud.google.com/gke-accelerator": st.sampled_from(("nvidia-l4", "nvidia-b200")),
        "cloud.google.com/gke-gpu-sharing-strategy": st.sampled_from(("time-sharing", "mps", "new")),
        "cloud.google.com/gke-gpu-partition-size": st.just("1g.5gb"),
        "k8s.amazonaws.com/accelerator": st.sampled_from(("nvidia-tesla-t4", "true")),
        "node.kubernetes.io/instance-type": st.sampled_from(("g5.xlarge", "p4d.24xlarge")),
        node_labels.PRESENT: st.just("true"),
    },
)
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(("nvidia.com/gpu", "team", "node.kubernetes.io/not-ready", "slicewarden.dev/pool")),
            "effect": st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule")),
        },
        optional={"value": st.sampled_from(("present", "true", "1"))},
    ),
    max_size=2,
)
RESOURCES = st.dictionaries(
    st.sampled_from(("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/gpu")),
    st.integers(0, 8).map(str),
    max_size=2,
)


@settings(max_examples=40)
@given(st.lists(st.tuples(LABELS, TAINTS, RESOURCES), min_size=1, max_size=4), st.booleans())
def test_whatever_nodes_say_the_policy_can_be_used(nodes: list[tuple[Any, Any, Any]], by_product: bool) -> None:
    items: list[Any] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{index}", "labels": labels | {"kubernetes.io/hostname": f"node-{index}"}},
            "spec": {"taints": taints},
            "status": {"allocatable": resources},
        }
        for index, (labels, taints, resources) in enumerate(nodes)
    ]
    try:
        own = made(items, by_product=by_product)
    except Unusable:
        assume(False)
    facts = Facts.of(items)
    grouped = {each.node.name: pool for pool, group in zip(own.pools, own.groups, strict=True) for each in group.nodes}
    for each in facts.nodes:
        pool = own.policy.pool_of(each.labels)
        if each.name in grouped:
            assert pool is not None
            assert pool.name == grouped[each.name]
    errors = {lint for lint, action in linted(own.text, facts) if action is Action.DENY}
    known = {"other-sharing", "thin-slice"}  # where labels contradict resources, or say too little
    if any(taints != nodes[0][1] for _, taints, _ in nodes):
        known.add("unguarded-node")  # where one of two nodes that are alike lacks the taint
    assert errors <= known


@pytest.mark.parametrize(
    ("labels", "offered", "sharing"),
    [
        ({"nvidia.com/mig-1g.10gb.count": "7"}, {}, "mig"),  # its plugin is not up yet
        ({"nvidia.com/gpu.replicas": "0"}, {"nvidia.com/gpu": "0"}, "mig"),
        ({}, {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "0"}, "none"),  # it was divided before
        ({}, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}, "mig"),
    ],
)
def test_a_node_is_divided_if_its_labels_or_its_devices_say_so(
    labels: dict[str, str], offered: dict[str, str], sharing: str
) -> None:
    metadata = {"name": "n", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", **labels}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": offered}}
    assert [group.sharing for group in made([node]).groups] == [sharing]


DENIED = {
    "aks": "DaemonSets of the device plugin and of Calico under the account `default`",
    "eks": "agents of CloudWatch, and a pod that asks for a slice in a namespace without trust",
    "gke": "a pod that selects shared GPUs in a namespace without trust",
    "homelab": "pods in namespaces without trust where all GPUs are shared, and the agent of Longhorn",
    "operator-time-slicing": "a pod that selects shared GPUs in a namespace without trust, and an agent",
    "standalone": "the device plugin and an agent, in namespaces where tenants may write",
}
"""Clusters where `check` denies something until an administrator decides, and what; the policy's comments name it."""


def test_a_class_that_offers_gpus_by_a_strange_name_is_noted() -> None:
    def offering(resource: str) -> dict[str, Any]:
        selectors = [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]
        spec = {"selectors": selectors, "extendedResourceName": resource}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "fast"}, "spec": spec}

    items = objects(ROOT / "tests/clusters/gke.yaml")
    (note,) = [note for note in made([*items, offering("example.com/fast")]).notes if "device classes" in note]
    assert "example.com/fast" in note
    assert not any("device classes" in note for note in made([*items, offering("nvidia.com/gpu")]).notes)


@each_cluster
def test_every_command_reads_the_dump(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump, facts, policy = str(file), tmp_path / "facts.json", tmp_path / "policy.yaml"
    assert cli.main(["facts", dump]) == 0
    facts.write_text(capsys.readouterr().out)
    assert cli.main(["policy", "init", "--facts", str(facts), *words(file)]) == 0
    policy.write_text(capsys.readouterr().out)
    given = ["--policy", str(policy), "--facts", str(facts)]
    assert cli.main(["policy", "lint", str(policy), "--facts", str(facts)]) == 0
    assert cli.main(["check", dump, *given, "--facts", dump]) == (file.stem in DENIED)
    capsys.readouterr()
    status = cli.main(["place", dump, *given])
    error = capsys.readouterr().err
    if file.stem == "gke-autopilot":  # nothing runs there yet
        assert (status, error) == (2, f"error: no pod and no template of one in {dump}\n")
    else:  # `place` admits no pod that already runs, and the only denied object of gke is one
        assert status == (file.stem in DENIED.keys() - {"gke"}), error


def test_pods_with_variables_from_elsewhere_are_named_as_check_does() -> None:
    """A dashboard writes `envFrom`, and neither the name of its Secret nor its keys are kept."""
    items = objects(ROOT / "tests/clusters/openshift.yaml")
    (notebook,) = [item for item in items if item["metadata"]["name"] == "explore-0"]
    notebook["spec"]["containers"][0]["envFrom"] = [{"secretRef": {"name": "aws-connection-models"}}]
    small = reduced.reduced(items, policy_of(POLICY))
    assert "aws-connection-models" not in json.dumps(small)
    own = settled(items)[0]
    assert own.fates.refused == ("fraud-detection/explore-0: unread-variables",)
    notebook["spec"]["containers"][0]["envFrom"][0]["prefix"] = "APP_"
    assert settled(items)[0].fates.refused == ()


@each_cluster
def test_the_made_policy_brings_the_right_to_read_what_it_names(file: Path) -> None:
    """It is applied in one command, so it may name no namespace that does not exist."""
    items = objects(file)
    own = made(items, **options(file))
    ((_, *bindings), problems) = read(own.text, "policy.yaml")
    assert problems == []
    assert [each.value["metadata"]["namespace"] for each in bindings] == [*watch.namespaces(own.policy)]
    (sample,) = yaml.safe_load_all(SHARING.read_text("utf-8"))
    existing = {item["metadata"]["name"] for item in items if item["kind"] == "Namespace"}
    existing |= {item["metadata"].get("namespace", "") for item in items}
    for each in bindings:
        home = each.value["metadata"]["namespace"]
        assert each.value == {**sample, "metadata": {"name": "slicewarden-sharing", "namespace": home}}
        assert home in existing


@pytest.mark.parametrize("group", ["eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool"])
def test_kinds_of_sharing_in_one_node_group_are_told_apart_by_no_name_of_a_node(group: str) -> None:
    whole = grown("a", "g4dn.xlarge", (group, "g1"), product="Tesla-T4", count="1", replicas="1")
    shared = grown("b", "g4dn.xlarge", (group, "g1"), 4, product="Tesla-T4-SHARED", count="1", replicas="4")
    for item in (whole, shared):
        item["metadata"]["labels"]["kubernetes.io/hostname"] = item["metadata"]["name"]
    pools = made([whole, shared]).policy.pools
    assert len(pools) == 2
    assert "hostname" not in str([pool.nodes for pool in pools])


def test_one_word_that_mends_a_pod_is_named_and_a_pod_of_a_deployment_by_its_name() -> None:
    container: dict[str, Any] = {"name": "c", "image": "i", "volumeMounts": [{"name": "l", "mountPath": "/x"}]}
    volumes = [{"name": "l", "hostPath": {"path": "/home/kubernetes/bin/nvidia/lib64"}}]

    def running(name: str, **more: Any) -> dict[str, Any]:
        spec = {"nodeName": "a", "containers": [{**container, **more}], "volumes": volumes}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "media"}, "spec": spec}

    items = [
        grown("a", "g6.xlarge", ("eks.amazonaws.com/nodegroup", "l4")),
        running("train", resources={"limits": {"nvidia.com/gpu": 1}}),
        running("jellyfin-7c9d4f6b8-xk2zp", securityContext={"privileged": True}),
    ]
    own = made(items)
    assert own.fates.refused == ("media/train: device-path; set readOnly: true on every mount of it",)
    assert "# - name: media-jellyfin\n" in own.text
    assert "7c9d4f6b8" not in own.text
    items[1]["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] = True
    assert made(items).fates.refused == ()
