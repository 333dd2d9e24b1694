"""The pods that `slicewarden prove --run` starts: which ones, on which node, and with which bounds."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.proving.pretended import admitting, with_hostnames
from tests.support.policies import RULES
from webhook import rules
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.policy.model import Policy
from webhook.proving import running
from webhook.proving.probes import ProbeTarget, targets
from webhook.proving.proof import CREATED, Outcome, Tried, prove
from webhook.proving.running import HOSTNAME, ProbeRun, roomy, run_object, started
from webhook.proving.ways import WAYS

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = ProbeRun("0a1b", "vision", "example.com/slicewarden@sha256:00", 60, "uid")
WAY = {way.name: way for way in WAYS}


@pytest.fixture
def facts(sample_facts: Facts) -> Facts:
    return with_hostnames(sample_facts)


@pytest.fixture
def found(sample_policy: Policy, facts: Facts) -> list[ProbeTarget]:
    """Where the sample's ways are tried."""
    engine = Engine(sample_policy, rules.walk())
    return [each for each in targets(engine, facts, "vision") if isinstance(each, ProbeTarget)]


def tried(policy: Policy, facts: Facts, target: ProbeTarget) -> Tried:
    return prove(policy, target, admitting(Engine(policy, rules.walk()), facts), RULES)


def test_only_the_honest_pod_and_patched_ways_are_started_where_all_is_shut(
    sample_policy: Policy, facts: Facts, found: list[ProbeTarget]
) -> None:
    assert len(found) == 5
    proof = [tried(sample_policy, facts, each) for each in found]
    patched = [way for way in WAYS if way.patched]
    assert [[*running.let_in(each)] for each in proof] == [patched] * 5
    assert running.most(proof) == 5 * (1 + len(patched))


def test_without_an_honest_pod_nothing_is_started(
    sample_policy: Policy, facts: Facts, found: list[ProbeTarget]
) -> None:
    honest, *ways = tried(sample_policy, facts, found[0]).shown
    lost = Tried(found[0], (honest._replace(outcome=Outcome.UNKNOWN), *ways))
    assert [*running.let_in(lost)] == []
    assert running.most([lost]) == 0


def test_of_the_ways_that_are_open_no_pod_takes_more_than_a_slice_or_has_the_node_s_files(
    sample_policy: Policy, facts: Facts, found: list[ProbeTarget]
) -> None:
    eased = replace(sample_policy, actions={"*": Action.AUDIT})
    given = [*running.let_in(tried(eased, facts, found[0]))]
    assert {way.name for way in given} > {"variable", "mount", "annotation-cdi", "privileged", "processes"}
    for way in given:
        pod = started(eased, found[0], way, RUN, facts.nodes[0], 1)
        assert "nodeName" not in pod["spec"]
        assert not pod["spec"].get("resourceClaims")
        assert all("hostPath" not in volume for volume in pod["spec"].get("volumes", ()))
        for each in containers(pod):
            asked = {key: amount for key, amount in each["resources"]["limits"].items() if "/" in key}
            assert asked in ({}, {found[0].resource: 1})
    left = {way.name for way in WAYS} - {way.name for way in given}
    assert {"path-root", "node", "claim", "slices", "placement-hami", "resource", "trust"} <= left


def containers(pod: Any) -> list[Any]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def test_every_pod_is_bounded_labelled_and_owned(sample_policy: Policy, facts: Facts, found: list[ProbeTarget]) -> None:
    for target in found:
        for way in (None, *WAYS):
            pod = started(sample_policy, target, way, RUN, facts.nodes[0], 7)
            metadata, spec = pod["metadata"], pod["spec"]
            assert (metadata["name"], metadata["namespace"]) == ("slicewarden-probe-0a1b-7", "vision")
            assert running.is_of_a_run(pod)
            assert metadata["labels"]["app.kubernetes.io/instance"] == "0a1b"
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "slicewarden-probe-0a1b", "uid": "uid"}
            assert metadata["ownerReferences"] == [owner]
            assert (spec["activeDeadlineSeconds"], spec["restartPolicy"]) == (60, "Never")
            assert spec["terminationGracePeriodSeconds"] == 0
            assert spec["automountServiceAccountToken"] is False
            assert spec["nodeSelector"] == {HOSTNAME: facts.nodes[0].labels[HOSTNAME]}
            for each in containers(pod):
                assert each["image"] == RUN.image
                assert each["command"][0] == "python3"
                assert {"cpu", "memory"} <= each["resources"]["limits"].keys()
                assert {"cpu", "memory"} <= each["resources"]["requests"].keys()
                if way is None or "securityContext" not in way.container:
                    assert each["securityContext"]["allowPrivilegeEscalation"] is False


def test_the_pod_that_is_started_is_admitted_and_patched_as_the_dry_run_was(
    sample_policy: Policy, facts: Facts, found: list[ProbeTarget]
) -> None:
    ask = admitting(Engine(sample_policy, rules.walk()), facts)
    for target in found:
        node = roomy(sample_policy, target, facts)
        assert node is not None
        for way in (None, *(way for way in WAYS if way.patched)):
            answer = ask(started(sample_policy, target, way, RUN, node, 1))
            assert answer.status == CREATED, (target.pool.name, way, answer.message)


def test_the_variables_of_a_config_map_are_those_of_the_run(
    sample_policy: Policy, facts: Facts, found: list[ProbeTarget]
) -> None:
    data = run_object(RUN, NOW)["data"]
    (container,) = containers(started(sample_policy, found[0], WAY["variables"], RUN, facts.nodes[0], 1))
    assert container["envFrom"] == [{"configMapRef": {"name": RUN.name}}]
    assert data["NVIDIA_VISIBLE_DEVICES"] == "all"
    (container,) = containers(started(sample_policy, found[0], WAY["variable-source"], RUN, facts.nodes[0], 1))
    (variable,) = container["env"]
    reference = variable["valueFrom"]["configMapKeyRef"]
    assert (reference["name"], data[reference["key"]]) == (RUN.name, "all")
    assert WAY["variables"].container == {"envFrom": [{"configMapRef": {"name": "probe"}}]}


# The node


def offering(target: ProbeTarget, facts: Facts, **amounts: int) -> Facts:
    """Facts with nodes of a target's pool that offer so many of its resource."""
    (like,) = [node for node in facts.nodes if node.name == target.node]
    nodes = [
        replace(like, name=n, labels={**like.labels, HOSTNAME: n}, resources={target.resource: amount})
        for n, amount in amounts.items()
    ]
    return replace(facts, nodes=tuple(nodes), holders=())


def test_the_node_with_most_slices_free_is_taken(sample_policy: Policy, facts: Facts, found: list[ProbeTarget]) -> None:
    target = found[0]
    busy = Holder("a", "b", "many", {target.resource: 3, "nvidia.com/other": 9})
    here = replace(offering(target, facts, many=4, few=2), holders=(busy,))
    node = roomy(sample_policy, target, here)
    assert node is not None
    assert node.name == "few"
    assert roomy(sample_policy, target, here, "many") is not None
    assert roomy(sample_policy, target, here, "other") is None


def test_no_node_is_taken_whose_slices_are_all_in_use(
    sample_policy: Policy, facts: Facts, found: list[ProbeTarget]
) -> None:
    target = found[0]
    held = tuple(Holder("a", name, "one", {target.resource: 1}) for name in "ab")
    assert roomy(sample_policy, target, replace(offering(target, facts, one=2), holders=held)) is None
    assert roomy(sample_policy, target, replace(offering(target, facts, one=3), holders=held)) is not None
    assert roomy(sample_policy, target._replace(gpus=2), replace(offering(target, facts, one=3), holders=held)) is None


@pytest.mark.parametrize("lacking", ["label", "pool", "taint"])
def test_a_node_that_takes_no_pod_of_the_pool_is_passed_over(
    sample_policy: Policy, facts: Facts, found: list[ProbeTarget], lacking: str
) -> None:
    target = found[0]
    (node,) = offering(target, facts, one=2).nodes
    changed: dict[str, Node] = {
        "label": replace(node, labels={key: it for key, it in node.labels.items() if key != HOSTNAME}),
        "pool": replace(node, labels={HOSTNAME: "one"}),
        "taint": replace(node, taints={"node.kubernetes.io/unschedulable": frozenset({"NoSchedule"})}),
    }
    assert roomy(sample_policy, target, replace(facts, nodes=(node,), holders=())) == node
    assert roomy(sample_policy, target, replace(facts, nodes=(changed[lacking],), holders=())) is None


# Runs


def test_a_run_is_in_progress_until_the_time_that_it_renews() -> None:
    item = run_object(RUN, NOW)
    last = RUN.patience + running.MARGIN
    assert running.is_of_a_run(item)
    assert running.in_progress(item, NOW)
    assert running.in_progress(item, NOW + timedelta(seconds=last - 1))
    assert not running.in_progress(item, NOW + timedelta(seconds=last))


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01T12:01:00", "9999-12-31T23:59:59+00:00", 5])
def test_a_time_that_nobody_wrote_like_this_stops_no_run(text: object) -> None:
    item = run_object(RUN, NOW)
    item["metadata"]["annotations"] = {running.UNTIL: text}
    assert not running.in_progress(item, NOW)
    item["metadata"]["annotations"] = None
    assert not running.in_progress(item, NOW)


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": "slicewarden-probe-1"},
        {"name": "slicewarden-probe-1", "labels": {running.MANAGED_BY: "helm"}},
        {"name": "of-a-tenant", "labels": {running.MANAGED_BY: running.MANAGER}},
        {},
    ],
)
def test_what_is_not_of_a_run_by_name_and_label_is_not(metadata: Any) -> None:
    assert not running.is_of_a_run({"metadata": metadata})


# The end of a pod


def status(**containers: Any) -> Any:
    return {"containerStatuses": [{"name": name, "state": state} for name, state in containers.items()]}


def ran(status: Any, *names: str) -> Any:
    spec = {"nodeName": "n", "containers": [{"name": name} for name in names or ("probe",)]}
    return {"spec": spec, "status": status}


DONE = {"terminated": {"reason": "Completed", "message": "{}"}}


def test_a_pod_has_ended_when_the_probe_has_whatever_others_are_in_it() -> None:
    pod = ran(status(probe=DONE, istio={"running": {}}), "probe", "istio")
    assert running.ended(pod)
    assert running.ending(pod) == ("n", ("{}",), "")
    assert not running.ended(ran(status(probe={"running": {}})))
    assert not running.ended(ran({}))
    assert running.ended(ran({"phase": "Failed"}))


def test_every_container_of_the_probe_has_to_report() -> None:
    pod = ran(status(probe=DONE))
    pod["spec"]["initContainers"] = [{"name": "before", "restartPolicy": "Always"}]
    assert not running.ended(pod)
    assert running.ending(pod).lacking
    again = {"name": "before", "state": {"waiting": {}}, "lastState": {"terminated": {"message": "[]"}}}
    pod["status"]["initContainerStatuses"] = [again]
    assert running.ended(pod)
    assert running.ending(pod) == ("n", ("[]", "{}"), "")


def test_only_a_sidecar_reports_before_it_starts_again() -> None:
    """Elsewhere an earlier end is that of another image, which somebody put in its place for a while."""
    pod = ran({"containerStatuses": [{"name": "probe", "state": {"running": {}}, "lastState": DONE}]})
    assert not running.ended(pod)
    assert running.ending(pod).texts == ()


@pytest.mark.parametrize("state", [{"running": {}}, DONE])
def test_a_container_that_was_started_again_has_been_meddled_with(state: Any) -> None:
    pod = ran({"containerStatuses": [{"name": "probe", "state": state, "restartCount": 1}]}, "probe", "istio")
    pod["metadata"] = {"uid": "u"}
    assert running.meddled(pod, pod) == "a container of its pod was started again"
    others = [{"name": "istio", "restartCount": 3}, {"name": "before", "restartCount": 2}]
    pod["spec"]["initContainers"] = [{"name": "before", "restartPolicy": "Always"}]
    pod["status"] = {"containerStatuses": others}
    assert running.meddled(pod, pod) == ""


WHY: dict[str, tuple[Any, str]] = {
    "deadline": ({"phase": "Failed", "reason": "DeadlineExceeded", "message": "late"}, "DeadlineExceeded: late"),
    "image": (status(probe={"waiting": {"reason": "ErrImagePull"}}), "ErrImagePull"),
    "no text": (status(probe={"terminated": {"reason": "Error", "exitCode": 1}}), "Error"),
    "scheduler": (
        {"conditions": [{"status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}]},
        "Unschedulable: 0/1 nodes",
    ),
    "nothing": ({"phase": "Pending"}, "it is Pending"),
    "garbage": ({"containerStatuses": [3, {"state": []}], "conditions": {}}, "it is unknown"),
}


@pytest.mark.parametrize("name", WHY)
def test_a_pod_that_did_not_report_says_why(name: str) -> None:
    given, why = WHY[name]
    assert running.ending(ran(given)) == ("n", (), f"its pod did not report: {why}")
