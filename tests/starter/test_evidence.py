"""A made policy is built on nothing that a tenant may write: whatever the role `edit` creates stays in comments."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import ROOT
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api import admission
from webhook.catalog.platforms import NETWORK_PLUGINS, NetworkPlugin
from webhook.cli import inputs
from webhook.documents import files
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.engine.registration import left_alone
from webhook.facts.snapshot import Facts
from webhook.model import Unusable
from webhook.policy.model import Policy
from webhook.scan import reduced
from webhook.starter import evidence, starter

Object = dict[str, Any]

SAMPLE = policy_of(POLICY)
CLUSTERS = {
    file.stem: file for file in (*sorted((ROOT / "tests/clusters").glob("*.yaml")), ROOT / "policies/lab/facts.yaml")
}
PLUGINS = {plugin.namespace: plugin for plugin in NETWORK_PLUGINS}
SPACES = (
    *("evil", "gpu-operator-team", "kube-system-team", "nvidia-device-plugins", "openshift-gpus"),
    *("karpenter", "node-feature-discovery", "gpu-operator", "nvidia-gpu-operator"),
    *PLUGINS,
)
RESERVED = {("openshift", "openshift-gpus"), ("aks", "calico-system")}
"""What is no tenant's: OpenShift refuses users a project whose name begins so, and AKS makes its own namespace for
Calico (see catalog/platforms.py)."""
LABEL_OF_TRUST = "slicewarden.dev/trust"
LEVEL = "pod-security.kubernetes.io/enforce"
"""The label of a namespace that lets its pods do more (k8s.io/pod-security-admission api)."""
PRESENT = {"nvidia.com/gpu.present": "true", "no": "such-node"}


@cache
def cluster(name: str) -> list[Object]:
    return [dict(item.value) for item in inputs.load_objects(str(CLUSTERS[name]))]


def made(name: str, space: str, *more: Object, **options: Any) -> starter.Starter:
    """The policy of a cluster in which a namespace and some objects are there besides."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": {LEVEL: "privileged"}}}
    return starter.make(reduced.reduced([*cluster(name), *dumped([namespace, *more])], SAMPLE), "dump.json", **options)


@cache
def without(name: str) -> Policy:
    """The policy of a cluster in which the tenant has no namespace."""
    return starter.make(reduced.reduced(cluster(name), SAMPLE), "dump.json").policy


def dumped(items: list[Object]) -> list[Object]:
    """Objects as the commands read them from a dump by kubectl."""
    documents, problems = read(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "dump.json")
    found, unusable = files.items(documents, files.is_list_of_cluster)
    assert not problems
    assert not unusable
    return [dict(item.value) for item in found]


# Objects of a tenant

HOSTILE = (
    "gpu-operator",
    "node-feature-discovery",
    "nvidia-device-plugin",
    "nvidia-device-plugin-daemonset",
    "nvidia-operator-validator",
    "slicewarden-images",
    "time-slicing-config",
    "default",
    "x\n  leaveAlone: [evil]\n",
    "x\r  nodeLabellers: {users: [evil]}",
    "x\u2028  exemptions: []",
    "x\x85  rules: {'*': Audit}",
    '"}], exemptions: [{',
    "# ",
)
words = st.sampled_from(HOSTILE) | st.text(max_size=12)
labels = st.dictionaries(
    st.sampled_from((LEVEL, "slicewarden.dev/trust", "nvidia.com/gpu.present", "app")),
    st.sampled_from(("privileged", "trusted", "true")),
    max_size=3,
)


def metadata(space: str) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries(
        {"name": words, "namespace": st.just(space)},
        optional={"labels": labels, "annotations": labels},
    )


containers = st.fixed_dictionaries(
    {"name": words},
    optional={
        "image": st.sampled_from(("nvcr.io/nvidia/k8s-device-plugin:v0.19.3", "example.com/x")),
        "command": st.lists(
            st.sampled_from(("nfd-master", "nvidia-device-plugin", "config-manager")) | words, max_size=2
        ),
        "env": st.just(
            [{"name": "CONFIG_FILE_SRCDIR", "value": "/c"}, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        ),
        "resources": st.just({"limits": {"nvidia.com/gpu": 1}}),
        "securityContext": st.just({"privileged": True}),
        "volumeMounts": st.just([{"name": "c", "mountPath": "/c"}]),
    },
)


def pods(name: str) -> st.SearchStrategy[Object]:
    nodes = [item["metadata"]["name"] for item in cluster(name) if item["kind"] == "Node"]
    return st.fixed_dictionaries(
        {"containers": st.lists(containers, min_size=1, max_size=2)},
        optional={
            "serviceAccountName": words,
            "nodeName": st.sampled_from(nodes),
            "nodeSelector": st.just(PRESENT) | st.just({}),
            "tolerations": st.just([{"operator": "Exists"}]),
            "hostPID": st.just(True),
            "priorityClassName": st.just("system-node-critical"),
            "volumes": st.builds(
                lambda source: [
                    {"name": "c", "configMap": {"name": source}},
                    {"name": "h", "hostPath": {"path": "/dev"}},
                ],
                words,
            ),
        },
    )


SHARING = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 64}]}}\n"


TEMPLATED = {
    **dict.fromkeys(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    "ReplicationController": "v1",
}
"""The kinds with a template of pods that the role `edit` may create, and their versions."""

CLAIMS = ("ResourceClaim", "ResourceClaimTemplate")
OTHERS = (
    *("Pod", "ConfigMap", "ServiceAccount", "Service", "Role", "PersistentVolumeClaim", "Secret", "Endpoints"),
    *("ClusterPolicy", "Node", "Namespace"),
)


def of_the_cluster(name: str, space: str) -> tuple[Object, ...]:
    """Objects that no tenant may create, but that a tenant may write into one of its own."""
    return (
        operator(namespace=space),
        operator("GPUCluster", namespace=space),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space, "labels": {LABEL_OF_TRUST: "trusted"}}},
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "any"}, "spec": {}},
        workload("Pod", "m", "kube-system", containers=[{"name": "m", "command": ["nfd-master"]}]),
        *(item for item in cluster(name) if item["kind"] == "Node"),
    )


@st.composite
def custom(draw: st.DrawFn, name: str, space: str) -> Object:
    """A custom object with items at its root, which may be anything: objects of the cluster, or none at all."""
    hostile = st.sampled_from(of_the_cluster(name, space))
    nested = hostile.map(lambda item: {"apiVersion": "v1", "kind": "List", "items": [item]})
    wrapped = hostile.map(lambda item: {"apiVersion": "v1", "kind": "List", "metadata": {"name": "x"}, "items": [item]})
    kind = draw(st.sampled_from(("Widget", "WidgetList", "List", "PodList")))
    items: Any = draw(st.lists(hostile | nested | wrapped, max_size=3) | st.just({}) | st.just(["x", {"kind": 1}]))
    made_by = {"name": draw(st.sampled_from(("w", "list"))), "namespace": space}
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": made_by, "items": items}


@st.composite
def tenants_object(draw: st.DrawFn, name: str, space: str) -> Object:
    """Any object that the role `edit` may create in a namespace, or a custom one with the kind of a cluster's."""
    kind = draw(
        st.sampled_from((*TEMPLATED, *CLAIMS, *OTHERS, "Pod", "ConfigMap", "ClusterPolicy", "Node", "Namespace"))
    )
    item: Object = {"apiVersion": "v1", "kind": kind, "metadata": draw(metadata(space))}
    match kind:
        case each if each in TEMPLATED:
            template = {"metadata": {"annotations": draw(labels)}, "spec": draw(pods(name))}
            if kind == "CronJob":
                template = {"spec": {"template": template}}
            key = "jobTemplate" if kind == "CronJob" else "template"
            return {**item, "apiVersion": TEMPLATED[kind], "spec": {key: template}}
        case each if each in CLAIMS:
            spec: Object = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": draw(words)}}]}}
            if kind == "ResourceClaimTemplate":
                spec = {"metadata": {"annotations": draw(labels)}, "spec": spec}
            status = {"allocation": {"devices": {"results": [{"driver": "gpu.nvidia.com", "device": draw(words)}]}}}
            return {**item, "apiVersion": "resource.k8s.io/v1", "spec": spec, "status": status}
        case "Pod":
            ready = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
            return {**item, "spec": draw(pods(name)), "status": ready}
        case "ConfigMap":
            return {**item, "data": draw(st.dictionaries(words, st.just(SHARING), min_size=1, max_size=2))}
        case "ClusterPolicy" | "Node" | "Namespace":
            return {**item, "apiVersion": "example.com/v1", "spec": {}, "status": {"namespace": space}}
    return item


def workload(kind: str, name: str, space: str, **spec: Any) -> Object:
    item = {
        "apiVersion": "v1" if kind == "Pod" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": space},
    }
    spec = {"containers": [{"name": "main", "image": "example.com/x"}], **spec}
    if kind == "Pod":
        return {**item, "spec": {"nodeName": "cpu-1", **spec}, "status": {"phase": "Running"}}
    return {**item, "spec": {"template": {"spec": spec}}}


PLUGIN = {
    "containers": [
        {
            "name": "nvidia-device-plugin",
            "image": "nvcr.io/nvidia/k8s-device-plugin:v0.19.3",
            "env": [{"name": "CONFIG_FILE_SRCDIR", "value": "/c"}],
            "volumeMounts": [{"name": "c", "mountPath": "/c"}],
        },
        {
            "name": "config-manager",
            "command": ["config-manager"],
            "env": [{"name": "CONFIG_FILE_SRCDIR", "value": "/c"}],
            "volumeMounts": [{"name": "c", "mountPath": "/c"}],
        },
    ],
    "volumes": [{"name": "c", "configMap": {"name": "mine"}}],
}
TRIED = {
    "a device plugin with its ConfigMap": workload("DaemonSet", "nvidia-device-plugin-daemonset", "evil", **PLUGIN),
    "an agent of nodes with GPUs": workload("DaemonSet", "agent", "evil", nodeSelector=PRESENT),
    "a validator": workload(
        "DaemonSet",
        "nvidia-operator-validator",
        "evil",
        serviceAccountName="nvidia-operator-validator",
        nodeSelector=PRESENT,
    ),
    "a labeller of nodes": workload("Pod", "m", "evil", containers=[{"name": "m", "command": ["nfd-master"]}]),
}


def network_plugin(name: str, space: str) -> Object:
    """A DaemonSet with the name of a network plugin's, on every node and with all its powers."""
    container = {"name": "main", "image": "example.com/x", "securityContext": {"privileged": True}}
    return workload(
        "DaemonSet", name, space, tolerations=[{"operator": "Exists"}], hostNetwork=True, containers=[container]
    )


@st.composite
def attacks(draw: st.DrawFn) -> tuple[str, str, list[Object]]:
    """A cluster, a tenant's namespace in it, and objects there. No tenant has a namespace that a platform reserves."""
    name = draw(st.sampled_from(sorted(CLUSTERS)))
    own = {item["metadata"]["name"] for item in cluster(name) if item["kind"] == "Namespace"}
    space = draw(st.sampled_from([each for each in SPACES if (name, each) not in RESERVED and each not in own]))
    plugins = [network_plugin(PLUGINS[space].daemon_set, space)] if space in PLUGINS else []
    tried = st.sampled_from([*TRIED.values(), *plugins]).map(
        lambda item: {**item, "metadata": {**item["metadata"], "namespace": space}}
    )
    return name, space, draw(st.lists(tried | custom(name, space) | tenants_object(name, space), max_size=6))


def forbidden(space: str, account: str) -> Object:
    """A pod that takes all cards of a node."""
    container = {
        "name": "main",
        "image": "example.com/x",
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        "securityContext": {"privileged": True},
    }
    spec = {"tolerations": [{"operator": "Exists"}], "serviceAccountName": account, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": space}, "spec": spec}


def accounts(items: list[Object]) -> set[str]:
    """The accounts of all pods and templates among some objects."""
    specs = [item.get("spec", {}) for item in items]
    for key in ("jobTemplate", "template"):
        specs += [spec.get(key, {}).get("spec", {}) for spec in specs]
    return {"default", *(spec["serviceAccountName"] for spec in specs if "serviceAccountName" in spec)}


@given(attacks())
@settings(max_examples=3 * settings().max_examples, deadline=None)
def test_nothing_that_a_tenant_may_create_is_in_the_made_policy(attack: tuple[str, str, list[Object]]) -> None:
    name, space, items = attack
    policy = made(name, space, *items).policy
    assert policy.written == without(name).written
    assert space not in left_alone(policy)
    facts = Facts.of([*cluster(name), *items])
    for account in accounts(items):
        request = admission.decode(admission.wrap(forbidden(space, account)))
        assert not Engine(policy, rules.walk()).judge(request, facts).allowed


# What was tried, by name


@pytest.mark.parametrize("item", TRIED.values(), ids=TRIED)
def test_the_same_objects_count_where_no_tenant_may_write(item: Object) -> None:
    name = "operator-time-slicing"
    doubted, believed = made(name, "evil", item), made(name, "evil", item, no_tenants=["evil"])
    assert doubted.policy.written == without(name).written != believed.policy.written
    assert any("--no-tenants evil" in note for note in doubted.notes)
    assert not any("--no-tenants evil" in note for note in believed.notes)
    assert "evil" in doubted.text


def test_a_pod_on_a_shared_card_earns_its_namespace_no_trust() -> None:
    pod = workload("Pod", "p", "evil", nodeName="t4-1", containers=[{"resources": {"limits": {"nvidia.com/gpu": 1}}}])
    own = made("operator-time-slicing", "evil", pod)
    assert own.policy.written == without("operator-time-slicing").written
    assert any("no label trusts them: evil, notebooks;" in note for note in own.notes)


@pytest.mark.parametrize("plugin", [each for each in NETWORK_PLUGINS if each.reason], ids=lambda each: each.namespace)
def test_a_tenants_network_plugin_is_none_where_kube_system_has_it(plugin: NetworkPlugin) -> None:
    """Nodes name the plugin in both cases: one that runs in kube-system, and one in a namespace of its own."""
    own = network_plugin(plugin.daemon_set, plugin.namespace)
    status = {"conditions": [{"type": "NetworkUnavailable", "status": "False", "reason": plugin.reason}]}
    marked = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cpu-7"}, "status": status}
    alone = left_alone(made("eks", plugin.namespace, marked, own).policy)
    assert plugin.namespace in alone, "the honest one needs no option"
    for word in plugin.words:
        kept = network_plugin(f"rke2-{word}-node", "kube-system")
        found = made("eks", plugin.namespace, marked, own, kept)
        assert plugin.namespace not in left_alone(found.policy)
        assert any(f"--no-tenants {plugin.namespace}" in note for note in found.notes)


# What counts as evidence


def space(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def operator(kind: str = "ClusterPolicy", **status: str) -> Object:
    return {"apiVersion": "nvidia.com/v1", "kind": kind, "metadata": {"name": "any"}, "spec": {}, "status": status}


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        ([space("gpu-operator"), space("nvidia-gpu-operator")], set()),  # a name alone is no evidence
        ([space("gpu-operator"), operator(namespace="gpus"), space("gpus")], {"gpus"}),
        ([operator("GPUCluster", namespace="gpus")], {"gpus"}),
        ([space("nvidia-gpu-operator"), operator()], set()),  # the operator has not said where it runs
        ([space("a", **{LEVEL: "privileged"}), space("b", **{LEVEL: "baseline"})], set()),
    ],
)
def test_namespaces_without_tenants_are_known_by_objects_of_the_cluster(items: list[Object], wanted: set[str]) -> None:
    kept = reduced.reduced(items, SAMPLE)
    assert {*evidence.administered(kept)} == {"kube-system", *wanted}
    assert {*evidence.administered(reduced.reduced(kept, SAMPLE))} == {"kube-system", *wanted}


def test_an_option_names_only_namespaces_that_exist() -> None:
    with pytest.raises(Unusable, match="there is no namespace montoring"):
        made("operator-time-slicing", "evil", no_tenants=["montoring"])


def without_status(name: str) -> list[Object]:
    """The objects of a cluster whose GPU Operator has not said where it runs."""
    return [
        {key: value for key, value in item.items() if key != "status" or item["kind"] == "Node"}
        for item in cluster(name)
    ]


LABELLED = "system:serviceaccount:{0}:{0}"


@pytest.mark.parametrize(
    ("name", "usual", "accounts"),
    [
        ("aks", "node-feature-discovery", {LABELLED.format("node-feature-discovery")}),
        ("homelab", "node-feature-discovery", {LABELLED.format("node-feature-discovery")}),
        ("karpenter", "karpenter", {LABELLED.format("karpenter")}),
        ("operator-mig", "nvidia-gpu-operator", {"system:serviceaccount:nvidia-gpu-operator:gpu-operator"}),
    ],
)
def test_the_name_of_a_namespace_counts_only_where_no_tenant_may_write(
    name: str, usual: str, accounts: set[str]
) -> None:
    base = [*without_status(name)]
    plain, doubted, believed = (
        starter.make(reduced.reduced([*base, *more], SAMPLE), "dump.json", no_tenants=no_tenants)
        for more, no_tenants in (((), ()), ((space(usual),), ()), ((space(usual),), (usual,)))
    )
    assert doubted.policy.written == plain.policy.written
    assert any(f"--no-tenants {usual}" in note for note in doubted.notes)
    assert all(account in doubted.text and account not in plain.text for account in accounts)
    assert accounts <= believed.policy.node_labellers.users
    assert not any(f"--no-tenants {usual}" in note for note in believed.notes)


def test_karpenters_own_namespace_replaces_kube_system_only_where_no_tenant_may_write() -> None:
    kept = "system:serviceaccount:kube-system:karpenter"
    assert kept in made("karpenter", "karpenter").policy.node_labellers.users
    assert kept not in made("karpenter", "karpenter", no_tenants=["karpenter"]).policy.node_labellers.users


# Names that YAML takes for something else

LABEL = st.sampled_from(
    ("null", "123", "true", "1e3", "0x1f", "0o17", "0b1", "no", "y", "off", "nan", "inf", "007")
) | (st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True))
"""A DNS label, as the API takes it for namespaces and accounts, and for ConfigMaps among others."""

QUALIFIED = st.sampled_from(
    ("NULL", "True", "1.5", "1_000", "0x_1F", "1.e", "NaN", "null", "12", "2001-01-01", "Y")
) | (st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,10}[A-Za-z0-9])?", fullmatch=True))
"""The name of a label or a taint without its domain, and a value of one."""


def renamed(value: Any, names: dict[str, str]) -> Any:
    """An object with other names, wherever they stand by themselves."""
    if isinstance(value, dict):
        return {renamed(key, names): renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    return names.get(value, value) if isinstance(value, str) else value


@given(
    name=st.sampled_from(("operator-time-slicing", "operator-mig", "eks")),
    home=LABEL,
    config=LABEL,
    key=QUALIFIED,
    value=QUALIFIED,
    pool=QUALIFIED,
)
@settings(max_examples=25, deadline=None)
def test_a_made_policy_has_each_name_that_the_api_accepts_as_it_is(
    name: str, home: str, config: str, key: str, value: str, pool: str
) -> None:
    marks = {"key": key, "value": value, "effect": "NoSchedule"}
    objects: list[Object] = renamed(cluster(name), {"gpu-operator": home, "time-slicing-config": config})
    for each in objects:
        if each["kind"] == "Node" and each.get("spec", {}).get("taints"):
            each["spec"] = {**each["spec"], "taints": [marks]}
        if each["kind"] == "Node":
            each["metadata"] = {**each["metadata"], "labels": {**each["metadata"]["labels"], pool: value}}
    found = starter.make(reduced.reduced(objects, SAMPLE), "dump.json", name=home).policy
    assert found.name == home
    tolerated = {(one["key"], one.get("value")) for each in found.pools for one in each.tolerations}
    assert tolerated in (set(), {(key, value)})
    assert found.guard is not None
    assert found.guard.taint in (None, key)
    if name == "operator-time-slicing":
        assert home in found.sharing_namespaces
        assert (home, config) in found.config_maps
