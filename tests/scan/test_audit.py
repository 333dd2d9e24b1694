"""Look at what an audit says of pods that run, and where it says it; test_parity.py holds its rules to the webhook."""

import gc
import json
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
import yaml

from tests import ROOT
from webhook import reports
from webhook.api.fields import MAX_NAME
from webhook.api.pods import Pod
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Object, Problem, Result
from webhook.reports import audit_report, formats, publish
from webhook.scan import audit, occupancy
from webhook.scan.audit import Audit
from webhook.scan.judge import Broke
from webhook.scan.results import Report
from webhook.text.terminal import PLAIN

# Pods that run

FACTS = {
    "shared": Node("shared", {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.present": "true"}),
    "plain": Node("plain", {}),
}


def entry(fields: dict[str, Any], **more: str) -> dict[str, Any]:
    return {"manager": "m", "operation": "Update", "fieldsV1": fields, **more}


def running_pod(
    node: str, *, env: dict[str, str] | None = None, author: Any = None, annotations: Any = None, **spec: Any
) -> Object:
    """A pod that its author left to the scheduler, unless `author` says which fields were theirs besides."""
    container = {"name": "c", "image": "i", "env": [{"name": k, "value": v} for k, v in (env or {}).items()]}
    fields = {"f:spec": {"f:containers": {}}, "f:metadata": {"f:annotations": {}}, **(author or {})}
    metadata = {
        "name": "p",
        "namespace": "vision",
        "uid": "1",
        "annotations": annotations or {},
        "managedFields": [entry(fields), entry({"f:status": {}}, subresource="status")],
    }
    spec = {"nodeName": node, "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def rules_of(item: Object, engine: Engine, facts: Facts) -> set[str]:
    return {each.rule for each in audit.verdict(item, engine, facts).results}


@pytest.fixture
def facts(sample_facts: Facts) -> Facts:
    return replace(sample_facts, nodes=tuple(FACTS.values()))


def test_a_node_that_the_scheduler_chose_is_no_finding(engine: Engine, facts: Facts) -> None:
    assert rules_of(running_pod("plain"), engine, facts) == set()


def test_a_node_that_the_author_chose_is_a_finding(engine: Engine, facts: Facts) -> None:
    chosen: dict[str, Any] = {"f:spec": {"f:containers": {}, "f:nodeName": {}}}
    assert "chosen-node" in rules_of(running_pod("shared", author=chosen), engine, facts)
    assert rules_of(running_pod("plain", author=chosen), engine, facts) == set()  # where there is no GPU


def test_a_node_without_a_recorded_author_is_a_finding(engine: Engine, facts: Facts) -> None:
    item = running_pod("shared")
    unsaid = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
    assert "chosen-node" in rules_of({**item, "metadata": unsaid}, engine, facts)


def test_a_pod_beside_gpus_that_asked_for_none_may_see_one(engine: Engine, facts: Facts) -> None:
    assert rules_of(running_pod("shared"), engine, facts) == {"unguarded-container"}
    assert rules_of(running_pod("shared", env={"NVIDIA_VISIBLE_DEVICES": "void"}), engine, facts) == set()
    volumes = [{"name": "v", "hostPath": {"path": "/dev"}}]
    void = {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert rules_of(running_pod("shared", env=void, volumes=volumes), engine, facts) == {"device-path"}
    assert rules_of(running_pod("plain", volumes=volumes), engine, facts) == set()


def test_annotations_of_another_scheduler_are_no_finding(engine: Engine, facts: Facts) -> None:
    annotations = {"hami.io/vgpu-node": "shared"}
    assert "forged-placement" not in rules_of(running_pod("plain", annotations=annotations), engine, facts)
    own: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:hami.io/vgpu-node": {}}}}
    item = running_pod("plain", annotations=annotations, author=own)
    assert rules_of(item, engine, facts) == {"forged-placement"}


def test_labels_of_another_scheduler_are_no_finding(engine: Engine, facts: Facts) -> None:
    item = running_pod("plain")
    item["metadata"]["labels"] = {"runai-gpu-group": "g", "app": "detector"}
    assert "forged-placement" not in rules_of(item, engine, facts)
    assert item["metadata"]["labels"] == {"runai-gpu-group": "g", "app": "detector"}
    own: dict[str, Any] = {"f:metadata": {"f:labels": {"f:runai-gpu-group": {}, "f:app": {}}}}
    item = running_pod("plain", author=own)
    item["metadata"]["labels"] = {"runai-gpu-group": "g", "app": "detector"}
    assert rules_of(item, engine, facts) == {"forged-placement"}


def test_the_node_of_a_mirror_pod_is_no_finding(engine: Engine, facts: Facts) -> None:
    everything = [{"operator": "Exists"}]
    chosen: dict[str, Any] = {"f:spec": {"f:containers": {}, "f:nodeName": {}}}
    annotations = {"kubernetes.io/config.mirror": "hash"}
    item = running_pod("shared", author=chosen, annotations=annotations, tolerations=everything)
    assert {"broad-toleration", "chosen-node"} <= rules_of(item, engine, facts)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "shared", "uid": "2", "controller": True}
    mirror = {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}
    assert not {"broad-toleration", "chosen-node"} & rules_of(mirror, engine, facts)


# A whole cluster


def owned(item: Object, kind: str, name: str, uid: str) -> Object:
    version = "v1" if kind == "Node" else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [owner]}}


def workload(kind: str, name: str, uid: str, **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    metadata = {"name": name, "namespace": "vision", "uid": uid}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": template}}


def asking(name: str, node: str, **more: Any) -> Object:
    item = running_pod(node, **more)
    item["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    return {**item, "metadata": {**item["metadata"], "name": name, "uid": name}}


def report_of(found: Audit) -> Report:
    return Report(tuple(found.judged), tuple(found.problems))


def by_source(found: Audit) -> dict[str, dict[str, int]]:
    """How many objects of each source have each finding."""
    groups = audit_report.grouped(report_of(found), exempted=False)
    return {source.text: {each.result.rule: len(each.objects) for each in found} for source, found in groups.items()}


def test_findings_of_pods_are_grouped_under_their_workload(engine: Engine, facts: Facts) -> None:
    found = Audit(engine, facts)
    privileged = {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}
    found.take(workload("Deployment", "web", "d", **privileged, tolerations=[{"operator": "Exists"}]))
    found.take(
        owned(workload("ReplicaSet", "web-1", "r", tolerations=[{"operator": "Exists"}]), "Deployment", "web", "d")
    )
    for name in ("web-1-a", "web-1-b"):
        item = running_pod("shared", tolerations=[{"operator": "Exists"}])
        named_ = {**item, "metadata": {**item["metadata"], "name": name, "uid": name}}
        found.take(owned(named_, "ReplicaSet", "web-1", "r"))
    found.take(owned(asking("stray", "shared"), "LostSet", "gone", "x"))
    assert by_source(found) == {
        "Deployment vision/web": {"broad-toleration": 3, "privileged-container": 1, "unguarded-container": 2},
        "LostSet vision/gone": {"unguarded-container": 1, "unsteered-pod": 1, "misplaced-pod": 1},
    }
    assert found.count == 4
    table = audit_report.table(report_of(found), PLAIN, found.count)
    assert "denied   Deployment vision/web\n" in table
    assert "denied   LostSet vision/gone\n" in table
    assert table.count(" (would be repaired)\n") == 3
    counts = "2 would be denied, 1 with warnings, 4 findings would be repaired under Deny"
    assert table.endswith(f"\n4 objects judged: {counts}; 0 errors\n")


def test_pods_are_grouped_under_their_deployment_even_if_replica_sets_cannot_be_read(
    engine: Engine, facts: Facts
) -> None:
    found = Audit(engine, facts)
    item = owned(asking("web-7b-x", "shared"), "ReplicaSet", "web-7b", "r")
    found.take({**item, "metadata": {**item["metadata"], "labels": {"pod-template-hash": "7b"}}})
    assert [*by_source(found)] == ["Deployment vision/web"]


def test_neighbours_of_another_trust_are_named_at_their_node(engine: Engine, facts: Facts) -> None:
    found = Audit(engine, facts)
    found.take(asking("mate", "shared", annotations={"slicewarden.dev/trust": "trusted"}))
    found.take(asking("stranger", "shared"))
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "shared", "uid": "n", "labels": dict(FACTS["shared"].labels)},
        "status": {"allocatable": {"nvidia.com/gpu": 1}},
    }
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
        for name, labels in facts.namespaces.items()
    ]
    found.finish([node, *namespaces], [])
    at_node = by_source(found)["Node shared"]
    assert at_node == {"mixed-trust": 1, "overheld-node": 1}
    (said,) = [
        result.finding.message
        for each in found.judged
        for result in each.verdict.results
        if result.rule == occupancy.MIXED
    ]
    assert said.startswith("untrusted vision/stranger may be on the cards of vision/mate, ")


def test_a_rule_that_breaks_names_the_object(engine: Engine, facts: Facts) -> None:
    def check(*_: object) -> Any:
        raise ZeroDivisionError

    broken = Engine(engine.policy, [replace(engine.rules[0], id="broken", subject=Pod, check=check)])
    with pytest.raises(Broke, match=r"^Pod vision/p: rule broken broke$"):
        Audit(broken, facts).take(running_pod("shared"))


def test_pods_that_have_ended_are_left_out(engine: Engine, facts: Facts) -> None:
    found = Audit(engine, facts, everything=True)
    found.take({**running_pod("shared"), "status": {"phase": "Succeeded"}})
    job = {**workload("Job", "j", "j", nodeName="shared"), "apiVersion": "batch/v1"}
    found.take({**job, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    assert (found.count, found.judged) == (0, [])
    found.take(job)
    assert found.count == 1


def test_namespaces_that_the_webhook_leaves_alone_are_passed_over(engine: Engine, facts: Facts) -> None:
    item = running_pod("shared")
    of_system = {**item, "metadata": {**item["metadata"], "namespace": "kube-system"}}
    found = Audit(engine, facts)
    found.take(of_system)
    assert (found.judged, found.passed_over) == ([], 1)
    found = Audit(engine, facts, system=True)
    found.take(of_system)
    assert [each.name for each in found.judged] == ["p"]


def test_exempted_findings_are_left_out_of_an_audit(engine: Engine, facts: Facts) -> None:
    item = running_pod("shared", serviceAccountName="nvidia-dcgm")
    of_operator = {**item, "metadata": {**item["metadata"], "namespace": "gpu-operator"}}
    found = Audit(engine, facts, system=True)
    found.take(of_operator)
    assert [each.verdict.results[0].exemption for each in found.judged] == ["gpu-operator"]
    assert by_source(found) == {}
    assert json.loads(audit_report.write(report_of(found), PLAIN, found.count))["summary"]["denied"] == 0


def test_a_controller_of_a_kind_that_is_not_judged_is_named(engine: Engine, facts: Facts) -> None:
    found = Audit(engine, facts)
    found.take(owned(asking("a", "shared"), "LostSet", "gone", "x"))
    found.take(owned(asking("b", "shared"), "LostSet", "gone", "x"))
    found.take(owned(workload("Deployment", "web", "d"), "Website", "web", "w"))
    found.take(owned(asking("static", "shared"), "Node", "shared", "n"))
    of_system = owned(asking("c", "shared"), "Other", "o", "o")
    found.take({**of_system, "metadata": {**of_system["metadata"], "namespace": "kube-system"}})
    report = found.report((), datetime.now(UTC))
    (line,) = [line for line in audit_report.table(report, PLAIN, found.count).splitlines() if "not judged" in line]
    kinds = "LostSet.apps, Website.apps"
    assert line == f"2 objects are of kinds that are not judged: {kinds}; what they make is judged"
    value = json.loads(audit_report.write(report, PLAIN, found.count))
    assert [each["kind"] for each in value["unjudged"]] == ["LostSet", "Website"]


@pytest.mark.parametrize("name", formats.names())
def test_every_format_can_show_an_audit(name: str, engine: Engine, facts: Facts) -> None:
    found = Audit(engine, facts)
    found.take(asking("stranger", "shared"))
    text = reports.render(name, replace(report_of(found), pages=occupancy.PAGES))
    assert "misplaced-pod" in text
    assert "stranger" in text


# Reports for the cluster


def schema_of(kind: str) -> Any:
    for file in (ROOT / "tests" / "schemas").glob("*.yaml"):
        definition = yaml.safe_load(file.read_text("utf-8"))
        if definition["spec"]["names"]["kind"] == kind:
            versions = {each["name"]: each for each in definition["spec"]["versions"]}
            return versions["v1alpha1" if "openreports" in file.name else "v1alpha2"]["schema"]["openAPIV3Schema"]
    raise AssertionError(kind)


@pytest.mark.parametrize("form", publish.FORMS.values(), ids=publish.FORMS)
def test_reports_have_the_published_shape_and_belong_to_their_object(
    form: publish.ReportForm, engine: Engine, facts: Facts
) -> None:
    found = Audit(engine, facts)
    found.take(asking("stranger", "shared"))
    (audited,) = found.judged
    made = publish.report(audited, "sample", form)
    jsonschema.validate(made, schema_of(made["kind"]))
    assert made["metadata"]["name"] == "slicewarden-stranger"
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "stranger", "uid": "stranger"}
    ]
    assert (made["summary"]["fail"], made["summary"]["warn"]) == (2, 1)
    assert made == publish.report(audited, "sample", form)


def test_an_audit_judges_everything_it_reads_and_names_its_policy(engine: Engine, facts: Facts) -> None:
    broad = workload("Deployment", "web", "d", tolerations=[{"operator": "Exists"}])
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision", "uid": "n"}}
    result = audit.run(engine, facts, [namespace], [broad], everything=True)
    at = datetime(2026, 3, 1, tzinfo=UTC)
    report = result.report([Problem("cluster", 0, "pods may not be listed")], at)
    assert [judged.kind for judged in report.judged] == ["Deployment", "Namespace"]
    assert (report.policy, report.at) == (engine.policy, at)
    assert [problem.message for problem in report.problems] == ["pods may not be listed"]
    elsewhere = audit.run(engine, facts, [namespace], [broad], namespace="lab")
    assert (elsewhere.count, result.count) == (1, 2)


def test_a_claim_is_judged_whatever_owner_it_names(engine: Engine, facts: Facts) -> None:
    """Its author writes who owns it, and no workload shows what it requests."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
    metadata = {"name": "c", "namespace": "vision", "uid": "7"}
    spec = {"devices": {"requests": requests}}
    item = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
    plain, hidden = (
        audit.run(engine, facts, [], [each]).judged for each in (item, owned(item, "Deployment", "web", "1"))
    )
    assert [result.rule for result in plain[0].verdict.results] == ["claimed-gpu"]
    assert hidden[0].verdict == plain[0].verdict
    pod = workload("ReplicaSet", "web-1", "2")
    assert audit.run(engine, facts, [], [owned(pod, "Deployment", "web", "1")]).count == 0


# Objects with many findings


@pytest.mark.parametrize(("count", "more"), [(audit.MOST_ALIKE, None), (audit.MOST_ALIKE + 1, "1"), (6_000, "5,980")])
def test_few_findings_of_a_rule_are_kept_of_an_object_and_the_others_are_counted(
    count: int, more: str | None, engine: Engine, facts: Facts
) -> None:
    """A Deployment without replicas had 6,000 findings, and 150 of them took the memory of the audit."""
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    container = {"name": "c", "image": "i", "env": [variable] * count, "securityContext": {"privileged": True}}
    item = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "vision", "uid": "u"},
        "spec": {"replicas": 0, "template": {"spec": {"containers": [container], "nodeName": "shared"}}},
    }
    found = Audit(engine, facts)
    found.take(item)
    (judged,) = found.judged
    own = [each.finding.message for each in judged.verdict.results if each.rule == "visible-devices"]
    assert own[audit.MOST_ALIKE :] == ([] if more is None else [f"the object has {more} more such findings"])
    assert not judged.verdict.allowed
    assert len({each.rule for each in judged.verdict.results}) > 1  # each rule has its own number
    assert len(judged.lines) == len(judged.verdict.results)


LONG = "\N{GRINNING FACE}" + 500_000 * "k"
"""Python keeps four bytes for each letter of a text with this character."""


def job(name: str, role: str, **more: Any) -> Object:
    container = {"name": "a", "image": "a", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    roles = {role: {"replicas": 0, "template": {"spec": {"containers": [container]}}}}
    metadata = {"name": name, "namespace": "vision", "uid": name, **more}
    spec = {"pytorchReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize("place", ["apiVersion", "kind", "name", "uid", "key"])
def test_texts_that_no_api_server_bounds_do_not_stay_in_memory(place: str, engine: Engine, facts: Facts) -> None:
    """100 Deployments without GPUs, each with an owner's uid of 1.3 MB, took 650 MiB of an audit."""
    owner = {"apiVersion": "x.y/v1", "kind": "Foo", "name": "a", "uid": "u", "controller": True}
    found = Audit(engine, facts)

    def take(name: str) -> None:
        if place == "key":
            found.take(job(name, LONG + name))
        else:
            found.take(job(name, "Worker", ownerReferences=[{**owner, place: LONG + name}]))

    take("first")
    tracemalloc.start()
    try:
        for number in range(5):
            take(f"job-{number}")
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(found.judged) == 6
    assert kept < 1_000_000
    assert len(report_of(found).problems) == 0


def test_no_value_of_a_finding_is_kept() -> None:
    finding = Finding(("spec", LONG, 0), "is wrong", parts=(LONG,))
    (kept,) = audit.few([Result("device-path", Action.DENY, finding)])
    assert kept.finding == Finding(("spec", LONG[:MAX_NAME], 0), "is wrong")
