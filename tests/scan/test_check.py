"""Look at what `check` says of objects that the webhook never sees, and of those that run already."""

import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from webhook.cli import main as cli
from webhook.documents.files import Item, alone
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.rules import walk
from webhook.scan import batches, diff, judge
from webhook.scan.results import Judged, LeftAlone, Report

Check = Callable[..., Report]


@pytest.fixture
def check(engine: Engine, sample_facts: Facts, tmp_path: Path) -> Check:
    """Judge objects of one file, which comes from a cluster unless it is `written` by an author."""

    def run(*objects: Object, written: bool = False, **options: bool) -> Report:
        file = tmp_path / "objects.json"
        file.write_text("\n".join(map(json.dumps, objects)))
        dumps = () if written else (os.path.realpath(file),)
        return batches.read([str(file)]).judge(engine, sample_facts, at=datetime.now(UTC), dumps=dumps, **options)

    return run


def agent(namespace: str, kind: str = "DaemonSet") -> Object:
    spec = {"hostPID": True, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    metadata = {"name": "agent", "namespace": namespace}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {"template": template}}


# Objects about which the webhook is never asked


def test_namespaces_that_the_registration_excludes_are_skipped_with_one_note(
    check: Check, sample_policy: Policy
) -> None:
    namespaces = ("kube-system", "slicewarden-system", *sample_policy.leave_alone)
    report = check(*(agent(each, kind) for each in (*namespaces, "vision") for kind in ("DaemonSet", "Pod")))
    assert {judged.namespace for judged in report.judged} == {"vision"}
    assert report.count(allowed=False) == 2
    assert report.left_alone == dict.fromkeys(namespaces, 2)
    (line,) = [note for note in report.notes if "kube-system" in note]
    assert line == (
        "2 objects in kube-system left alone: the webhook is never asked about this namespace; --system judges them"
    )


def test_the_option_system_judges_excluded_namespaces(check: Check) -> None:
    report = check(agent("kube-system"), system=True)
    assert report.count(allowed=False) == 1
    assert not report.left_alone


def test_a_sharing_configuration_is_judged_where_pods_are_left_alone(check: Check) -> None:
    text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 0}]}}"
    metadata = {"name": "time-slicing-config", "namespace": "gpu-operator"}
    report = check({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"any": text}})
    assert report.count(allowed=False) == 1


def test_a_saved_admission_review_is_judged_even_in_an_excluded_namespace(check: Check) -> None:
    request = {
        "uid": "1",
        "operation": "CREATE",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "kube-system",
        "userInfo": {"username": "jane"},
        "object": agent("kube-system", "Pod"),
    }
    report = check({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    assert (len(report.judged), report.left_alone) == (1, {})


# Objects that run


def running(pod: Object, node: str, **metadata: Any) -> Object:
    """A pod as `kubectl get -o json` prints it, which hides managedFields."""
    status = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    known = {**pod["metadata"], "uid": "7f0c", "resourceVersion": "12", **metadata}
    return {**pod, "metadata": known, "spec": {**pod["spec"], "nodeName": node}, "status": status}


PLAIN: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "vision"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


def fields(*more: str) -> list[Object]:
    chosen: Object = {"f:spec": {"f:containers": {}, **{key: {} for key in more}}}
    return [{"manager": "m", "operation": "Update", "fieldsV1": chosen}]


@pytest.mark.parametrize("node", ["cpu", "a100-exclusive"])
def test_no_pod_is_denied_for_the_node_that_the_scheduler_gave_it(check: Check, node: str) -> None:
    assert check({**PLAIN, "spec": {**PLAIN["spec"], "nodeName": node}}).count(allowed=False) == 1
    hidden, shown = check(running(PLAIN, node)), check(running(PLAIN, node, managedFields=fields()))
    assert [result.rule for report in (hidden, shown) for result in report.judged[0].verdict.results] == []
    assert [note.partition(" ")[0] for note in hidden.notes] == ["1", "1"]
    assert ["managedFields" in note for note in hidden.notes] == [False, True]
    assert ["managedFields" in note for note in shown.notes] == [False]


@pytest.mark.parametrize("fields", ["hidden", "shown"])
def test_pods_of_a_cluster_are_judged_as_created(check: Check, fields: str) -> None:
    """A real cluster without the webhook ran them; `kubectl get` printed them, once with --show-managed-fields."""
    report = check(json.loads((Path(__file__).parent / f"kubectl_get_{fields}.json").read_text("utf-8")))
    assert (len(report.judged), report.count(allowed=False)) == (3, 0)
    assert {judged.assumed for judged in report.judged} == {fields == "hidden"}


def test_a_node_chosen_by_the_author_is_denied_in_a_dump(check: Check) -> None:
    (judged,) = check(running(PLAIN, "a100-exclusive", managedFields=fields("f:nodeName"))).judged
    assert [result.rule for result in judged.verdict.results] == ["chosen-node"]
    waiting = {**running(PLAIN, "a100-exclusive"), "status": {"phase": "Pending"}}
    assert check(waiting).count(allowed=False) == 1  # no scheduler has seen it


@pytest.mark.parametrize("metadata", [{}, {"managedFields": fields()}], ids=["hidden", "shown"])
@pytest.mark.parametrize("form", ["pod", "list"])
def test_nobody_proves_a_scheduler_by_what_he_writes(check: Check, metadata: Any, form: str) -> None:
    """kubectl creates such a pod, and an API server drops its uid and status."""
    annotations = {"hami.io/vgpu-devices-allocated": "GPU-1"}
    pod = running({**PLAIN, "metadata": {**PLAIN["metadata"], "annotations": annotations}}, "t4-shared", **metadata)
    item = pod if form == "pod" else {"apiVersion": "v1", "kind": "List", "items": [pod], "metadata": {}}
    report = check(item, written=True)
    rules = {result.rule for judged in report.judged for result in judged.verdict.results}
    assert {"chosen-node", "forged-placement"} <= rules
    assert (report.count(allowed=False), [judged.live for judged in report.judged]) == (1, [False])
    (note,) = report.notes
    assert "uid or a status" in note
    assert "--facts" in note


def test_a_file_that_is_also_facts_comes_from_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dump, text = tmp_path / "dump.json", json.dumps(running(PLAIN, "a100-exclusive"))
    dump.write_text(text)
    facts = ["--facts", str(ROOT / "webhook/sample/facts.yaml")]
    assert cli.main(["check", str(dump), *facts]) == 1
    assert cli.main(["check", str(tmp_path), *facts, "--facts", str(dump)]) == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert cli.main(["check", "-", *facts]) == 0
    assert "judged as created" in capsys.readouterr().out


def test_annotations_of_a_scheduler_in_a_dump_are_no_finding(check: Check) -> None:
    pod = {**PLAIN, "metadata": {**PLAIN["metadata"], "annotations": {"hami.io/vgpu-node": "cpu"}}}
    assert check(pod).count(allowed=False) == 1
    assert check(running(pod, "cpu")).count(allowed=True) == 1


@pytest.mark.parametrize(
    ("status", "live"),
    [
        ({"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}, True),
        ({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}, False),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, False),
        ({"phase": "Running"}, False),
        ({}, False),
    ],
)
def test_a_dump_without_uids_is_recognised_by_its_status(
    engine: Engine, sample_facts: Facts, status: Any, live: bool
) -> None:
    """Without a uid, a status with a phase and a node that was found says that the pod runs."""
    pod = {**running(PLAIN, "a100-exclusive"), "status": status}
    del pod["metadata"]["uid"]
    judged = judge.judge(alone(pod), engine, sample_facts)
    assert isinstance(judged, Judged)
    assert (judged.live, judged.verdict.allowed) == (live, live)


@pytest.mark.parametrize("metadata", [{"uid": "1", "managedFields": "x"}, {"uid": "1", "managedFields": [1]}])
def test_odd_fields_of_an_object_that_runs_break_nothing(check: Check, metadata: Any) -> None:
    pod = running({**PLAIN, "metadata": {"name": "p", **metadata, "ownerReferences": [1]}}, "cpu")
    assert len(check({**pod, "status": {"conditions": ["x"]}}).judged) == 1


def test_policies_that_leave_other_namespaces_alone_are_compared(engine: Engine, sample_facts: Facts) -> None:
    other = Engine(replace(engine.policy, leave_alone=("elsewhere",)), engine.rules)
    item = alone(agent("gpu-operator"))
    assert judge.judge(item, engine, sample_facts) == LeftAlone("gpu-operator")
    assert isinstance(judge.judge(item, other, sample_facts), Judged)
    (changed,) = [diff.compare(item, *engines, sample_facts).changed for engines in [(engine, other)]]
    assert changed
    assert changed.effects == (diff.ChangeEffect.DENIED,)
    change = diff.Change.of(engine, engine, [diff.compare(item, engine, engine, sample_facts)])
    assert (change.unchanged, [*change.notes]) == (0, [note.partition("; ")[0] for note in _notes(item, engine)])


def _notes(item: Item, engine: Engine) -> Iterator[str]:
    run = batches.ReadRun((batches.Read(packs=[[item]]),))
    yield from run.judge(engine, Facts(), at=datetime.now(UTC)).notes


def test_pods_that_get_a_slice_by_default_trust_are_noted_once(
    sample_policy: Policy, sample_facts: Facts, tmp_path: Path
) -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: vision, annotations: {{{annotation}}}}}\n"
    text += "spec: {{containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}\n"
    asks = {"a": "", "b": "", "c": "slicewarden.dev/trust: trusted", "d": "slicewarden.dev/trust: untrusted"}
    for name, annotation in asks.items():
        (tmp_path / f"{name}.yaml").write_text(text.format(name=name, annotation=annotation))
    policy = replace(sample_policy, default_trust="trusted")
    report = batches.read([str(tmp_path)]).judge(Engine(policy, walk()), sample_facts, at=datetime.now(UTC))
    assert [*report.notes] == [
        "2 pods ask for a GPU and get a slice by the policy's default trust; "
        "for a whole GPU, set the annotation slicewarden.dev/trust: untrusted"
    ]


# Names that YAML takes for booleans


NAMED = """\
apiVersion: {group}
kind: {kind}
metadata: {{name: {name}, namespace: {namespace}}}
spec: {spec}
"""
QUOTES = "not a boolean; put it in quotes: without them YAML takes yes, no, on, off, y and n for true or false"


@pytest.mark.parametrize("resources", ["{}", "{limits: {nvidia.com/gpu: 1}}"])
@pytest.mark.parametrize(
    ("name", "namespace", "container", "path"),
    [
        ("n", "vision", "main", "metadata.name"),
        ("web", "on", "main", "metadata.namespace"),
        ("web", "vision", "y", "{spec}.containers[0].name"),
    ],
)
@pytest.mark.parametrize(("group", "kind"), [("v1", "Pod"), ("apps/v1", "Deployment")])
def test_a_name_that_yaml_takes_for_a_boolean_is_an_error_with_or_without_a_gpu(
    engine: Engine,
    sample_facts: Facts,
    tmp_path: Path,
    group: str,
    kind: str,
    name: str,
    namespace: str,
    container: str,
    path: str,
    resources: str,
) -> None:
    spec = f"{{containers: [{{name: {container}, image: a, resources: {resources}}}]}}"
    wrapped = spec if kind == "Pod" else f"{{template: {{spec: {spec}}}}}"
    file = tmp_path / "named.yaml"
    file.write_text(NAMED.format(group=group, kind=kind, name=name, namespace=namespace, spec=wrapped))
    report = batches.read([str(file)]).judge(engine, sample_facts, at=datetime.now(UTC))
    place = path.format(spec="spec" if kind == "Pod" else "spec.template.spec")
    assert not report.judged
    (problem,) = report.problems
    assert problem.message == f"{place}: must be a string, {QUOTES}"
    assert problem.line == (4 if "spec" in place else 3)


def test_a_quoted_name_is_no_boolean(engine: Engine, sample_facts: Facts, tmp_path: Path) -> None:
    file = tmp_path / "named.yaml"
    spec = '{containers: [{name: "n", image: a}]}'
    file.write_text(NAMED.format(group="v1", kind="Pod", name='"n"', namespace='"on"', spec=spec))
    report = batches.read([str(file)]).judge(engine, sample_facts, at=datetime.now(UTC))
    assert not report.problems
    assert [(judged.namespace, judged.name) for judged in report.judged] == [("on", "n")]
