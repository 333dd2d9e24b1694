"""The allowance of a container: the webhook's own sums, which a tenant can lower and never raise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from webhook.cli import inputs
from webhook.facts.snapshot import Facts
from webhook.memory import explain
from webhook.memory.admitted import admitted
from webhook.memory.budget import budget, card_of

POLICIES = sorted(
    file for file in (ROOT / "policies").rglob("*.yaml") if "kind: GPUSharingPolicy" in file.read_text("utf-8")
)
SAMPLE = inputs.load_sample()
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A10-SHARED",
    "nvidia.com/gpu.memory": "23028",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
}


def facts(labels: dict[str, str] | None = None, **namespaces: dict[str, str]) -> Facts:
    node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": labels or LABELS}}
    spaces = [
        {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name, "labels": own}}
        for name, own in namespaces.items()
    ]
    return Facts.of([node, *spaces])


def pod(requested: object = "1", resource: str = "nvidia.com/gpu.shared", **annotations: str) -> dict[str, Any]:
    own = {f"slicewarden.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "main", "resources": {"limits": {resource: requested}}}
    plain = {"name": "side"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "team", "name": "job", "uid": "u", "annotations": own},
        "spec": {"containers": [container, plain], "initContainers": [{**container, "name": "first"}]},
    }


def allowed(item: dict[str, Any], container: str = "main", known: Facts | None = None) -> int | None:
    known = known or facts()
    return admitted(item, SAMPLE, known, known.nodes[0])[container].allowance


@pytest.mark.parametrize("file", POLICIES, ids=lambda file: file.parent.name + "/" + file.stem)
def test_the_allowance_is_the_cap_and_the_context_that_explain_caps_prints_unless_mps_has_its_own(file: Path) -> None:
    policy = inputs.load_policy(str(file))
    cards = 0
    for pool in policy.pools:
        labels = {**LABELS, **pool.nodes.labels}
        for requirement in pool.nodes.requirements:
            if requirement.operator == "In":
                labels[requirement.key] = sorted(requirement.values)[0]
        known = facts(labels)
        if not pool.shared or policy.pool_of(labels) is not pool or card_of(known.nodes[0]) is None:
            continue
        printed = explain.caps(policy, known, [pool]).splitlines()[1].split()
        if not printed[-1].startswith("0."):
            continue
        context, cap = map(int, printed[-3:-1])
        item = pod(resource=next(name for name in pool.resources.patterns if not name.endswith("*")))
        allowance = 23028 // 4 if pool.sharing == "mps" else context + cap
        assert admitted(item, policy, known, known.nodes[0])["main"].allowance == allowance
        cards += 1
    assert cards or not any(pool.sharing in policy.capped_sharing for pool in policy.pools)


def test_a_slice_is_a_part_of_the_card_less_its_reserve() -> None:
    card = card_of(facts().nodes[0])
    assert card is not None
    reserve = budget(card, SAMPLE).reserve
    assert allowed(pod()) == (23028 - reserve) // 4


@given(memory=st.integers(1024, 200_000), replicas=st.integers(2, 48))
def test_a_client_of_mps_may_use_what_nvidias_plugin_allows_it_and_no_more(memory: int, replicas: int) -> None:
    shared = {"nvidia.com/gpu.memory": str(memory), "nvidia.com/gpu.replicas": str(replicas)}
    known = facts({**LABELS, **shared, "nvidia.com/gpu.sharing-strategy": "mps"})
    pools = tuple(replace(pool, sharing="mps") if pool.shared else pool for pool in SAMPLE.pools)
    policy = replace(SAMPLE, pools=pools)
    node = replace(known.nodes[0], labels={**known.nodes[0].labels, **next(p for p in pools if p.shared).nodes.labels})
    card = card_of(node)
    assert card is not None
    limit = memory // replicas
    assert admitted(pod(), policy, known, node)["main"].allowance == limit
    assert limit >= budget(card, policy).slice
    small = admitted(pod(gpu_memory="64Mi"), policy, known, node)["main"].allowance
    assert small == min(limit, 64 + budget(card, policy).context)


def test_gpu_memory_lowers_it_by_what_the_frameworks_may_take_and_their_contexts_come_on_top() -> None:
    assert allowed(pod(gpu_memory="2Gi")) == 2048 + 640
    assert allowed(pod(gpu_memory="2Gi", gpu_processes="2")) == 2048 + 2 * 640


@pytest.mark.parametrize("annotations", [
    {"gpu_memory": "999Gi"},
    {"gpu_memory": "much"},
    {"gpu_memory": "-1"},
    {"gpu_processes": "9999"},
    {"memory_caps": '{"pool":"shared","fraction":"0.9","mib":99999}'},
    {"memory_caps": '{"pool":"shared","fraction":"0.001","mib":1}'},
    {"memory_caps": "{"},
])  # fmt: skip
def test_no_annotation_raises_it_and_a_broken_one_counts_as_none(annotations: dict[str, str]) -> None:
    assert allowed(pod(**annotations)) == allowed(pod())


def test_who_asks_for_no_gpu_has_none_and_who_asks_by_a_claim_is_not_known() -> None:
    known = facts()
    assert admitted(pod(), SAMPLE, known, known.nodes[0])["side"].requests is False
    claimed = pod()
    claimed["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    assert admitted(claimed, SAMPLE, known, known.nodes[0])["side"].requests is None


@pytest.mark.parametrize(
    ("namespace", "alone"), [("team", False), ("kube-system", True), ("slicewarden-system", True), ("operator", True)]
)
def test_a_pod_of_a_namespace_that_is_left_alone_is_known_as_such(namespace: str, alone: bool) -> None:
    known, item = facts(), pod()
    item["metadata"]["namespace"] = namespace
    rules = replace(SAMPLE, leave_alone=("operator",))
    assert admitted(item, rules, known, known.nodes[0])["main"].alone is alone


def test_an_init_container_and_a_pod_that_ends_are_known_as_such() -> None:
    known = facts()
    item = pod()
    assert admitted(item, SAMPLE, known, known.nodes[0])["first"].init
    item["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z"
    assert admitted(item, SAMPLE, known, known.nodes[0])["main"].ending


def test_a_component_of_the_system_is_exempt() -> None:
    known = facts()
    item = pod()
    item["metadata"]["namespace"] = "gpu-operator"
    item["spec"]["serviceAccountName"] = "nvidia-dcgm-exporter"
    found = admitted(item, SAMPLE, known, known.nodes[0])["side"]
    assert (found.requests, found.exempt) == (False, "gpu-operator")


def test_there_is_no_allowance_on_whole_cards_mig_slices_and_cards_without_labels() -> None:
    assert allowed(pod(), known=facts({**LABELS, "nvidia.com/gpu.replicas": "1"})) is None
    assert allowed(pod(), known=facts({**LABELS, "nvidia.com/gpu.memory": "?"})) is None
    assert allowed(pod(resource="nvidia.com/mig-1g.10gb.shared")) is None
    assert allowed(pod("0.5")) is None


@pytest.mark.parametrize("item", [{}, {"spec": 1}, {"spec": {"containers": 7}}, {"metadata": [], "spec": {}}])
def test_a_pod_of_a_wrong_shape_is_unknown(item: dict[str, Any]) -> None:
    known = facts()
    assert admitted(item, SAMPLE, known, known.nodes[0]) == {}


def test_a_container_that_the_spec_does_not_name_is_unknown() -> None:
    known = facts()
    assert "other" not in admitted(pod(), SAMPLE, known, known.nodes[0])
