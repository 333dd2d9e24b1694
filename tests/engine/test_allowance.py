"""Bound the cost of one review: both halves refuse what is too large, and what is late is given up wherever it is."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from tests.support.cost import calls
from tests.support.objects import Object, affinity, config_map, expression, pod
from webhook.allowance import FINDING, UNITS, Allowance, TooLarge, TooLate, weight
from webhook.api import admission
from webhook.api.jsonpatch import MAX_OPERATIONS, build
from webhook.api.objects import at_most
from webhook.documents.documents import read
from webhook.engine import ratcheting
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Fix, Request, Result
from webhook.text.spelling import HANDFUL, Guesses, nearest

GPU = {"limits": {"nvidia.com/gpu": 1}}
LOADER = [{"name": "LD_LIBRARY_PATH", "value": "/x"}, {"name": "LD_PRELOAD", "value": "/y"}]
SETTINGS = ",".join(f"a{n}:1" for n in range(500))


def workload(api: str, kind: str, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w", "namespace": "vision"}, "spec": spec}


def deployment(count: int, **more: Any) -> Object:
    made = pod(initContainers=[{"name": f"c{n}", "resources": GPU, "env": LOADER} for n in range(count)], **more)
    return workload("apps/v1", "Deployment", {"template": {"metadata": made["metadata"], "spec": made["spec"]}})


def many(key: str, *entries: Any) -> Object:
    item = pod()
    item["spec"]["containers"][0][key] = [*entries]
    return item


def resources(count: int) -> Object:
    item = pod()
    item["spec"]["containers"][0]["resources"] = {"limits": {f"nvidia.com/gpu-{n}": 1 for n in range(count)}}
    return item


def jobs(count: int) -> Object:
    spec = {"template": {"spec": {"template": {"spec": pod()["spec"]}}}}
    return workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [spec] * count})


BARE: Object = {"template": {"spec": {"template": {}}}}


def workflow(templates: int, shared: int) -> Object:
    spec = {"tolerations": [{"key": "k"}] * shared, "templates": [{"container": {"name": "a"}}] * templates}
    return workload("argoproj.io/v1alpha1", "Workflow", spec)


def claim(count: int) -> Object:
    requests = [{"name": f"r{n}", "deviceClassName": "gpu.nvidia.com", "adminAccess": True} for n in range(count)]
    return workload("resource.k8s.io/v1", "ResourceClaim", {"devices": {"requests": requests}})


def created(item: Object) -> Request:
    return admission.decode(admission.wrap(item))


def updated(item: Object, old: Object) -> Request:
    return replace(created(item), operation="UPDATE", old_object=old)


# Too large

TOO_LARGE = {
    "initContainers": pod(initContainers=[{"name": f"c{n}"} for n in range(20_000)]),
    "limits": resources(40_000),
    "env": many("env", *({"name": "CUDA_VERSION", "value": str(n)} for n in range(50_000))),
    "nodeSelectorTerms": pod(affinity=affinity(*[[expression("Exists")]] * 20_000)),
    "matchExpressions": pod(affinity=affinity([expression("Exists")] * 30_000)),
    "volumes": pod(volumes=[{"hostPath": {"path": f"/dev/x{n}"}} for n in range(20_000)]),
    "nodeSelector": pod(nodeSelector={f"l{n}": "x" for n in range(60_000)}),
    "tolerations": pod(tolerations=[{"operator": "Exists"}] * 80_000),
    "containers": deployment(1, containers=[{"name": "c"}] * 3_000),
    "pod templates": workload("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [BARE] * 2_000}),
    "requests": claim(30_000),
    "data": {**config_map("x"), "data": {f"k{n}": "" for n in range(160_000)}},
}


@pytest.mark.parametrize(("what", "item"), TOO_LARGE.items(), ids=TOO_LARGE)
def test_an_object_that_is_too_large_is_refused_by_both_calls_with_the_reason(
    engine: Engine, sample_facts: Facts, what: str, item: Object
) -> None:
    request = created(item)
    answers = [
        json.loads(admission.encode(request, half(request, sample_facts)))["response"]
        for half in (engine.mutate, engine.validate, engine.judge)
    ]
    assert {(each["allowed"], each["status"]["code"]) for each in answers} == {(False, 422)}
    (message,) = {each["status"]["message"] for each in answers}
    assert f"is too large to be judged: {len_of(what, item):,} entries in {what} come to" in message
    assert f"may come to {UNITS:,}" in message


def len_of(what: str, item: Object) -> int:
    """How many there are of what is too much, as far as they are together."""
    if what == "pod templates":
        return len(item["spec"]["replicatedJobs"])
    found: list[Any] = [item]
    for there in found:
        if isinstance(there, dict) and what in there:
            return len(there[what])
        if isinstance(there, (dict, list)):
            found += there.values() if isinstance(there, dict) else there
    raise AssertionError(what)


def test_an_object_that_is_too_large_costs_little(engine: Engine, sample_facts: Facts) -> None:
    for item in TOO_LARGE.values():
        request = created(item)
        work = calls(lambda request=request: engine.validate(request, sample_facts))  # type: ignore[misc]
        assert work < 6 * UNITS


def test_every_finding_costs_units(engine: Engine, sample_facts: Facts) -> None:
    request = created(pod(tolerations=[{"operator": "Exists"}] * 7_000))
    assert "entries in findings come to" in str(engine.validate(request, sample_facts).malformed)


def test_entries_that_templates_share_count_for_every_template(engine: Engine, sample_facts: Facts) -> None:
    for templates, shared in ((600, 10), (10, 3_000)):
        assert engine.validate(created(workflow(templates, shared)), sample_facts).malformed is None
    verdict = engine.validate(created(workflow(600, 3_000)), sample_facts)
    assert "600 entries in pod templates" in str(verdict.malformed)


def test_a_field_that_no_pod_has_is_not_added_to_every_pod(engine: Engine, sample_facts: Facts) -> None:
    """Kubeflow Pipelines writes a whole pipeline into the arguments of a Workflow."""
    item = workflow(100, 10)
    item["spec"]["arguments"] = {"parameters": [{"name": "components", "value": "x" * 600_000}]}
    verdict = engine.judge(created(item), sample_facts)
    assert verdict.malformed is None
    assert verdict.results == engine.judge(created(workflow(100, 10)), sample_facts).results


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SHORT = {f"{number:x}": 0 for number in range(4_000)}
DENSE = {
    "containers": {"containers": [{}] * 1_000},
    "init containers": {"initContainers": [{}] * 1_000},
    "volumes": {"volumes": [{}] * 1_000},
    "terms": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}] * 1_000}}}},
    "expressions": {"affinity": affinity([{}] * 4_000)},
    "limits": {"containers": [{"resources": {"limits": SHORT, "requests": SHORT}}]},
    "limits of one entry": {"containers": [{"resources": {"limits": {"": 0}, "requests": {"": 0}}}] * 1_000},
    "variables": {"containers": [{"env": [0] * 4_000}]},
    "a node selector": {"nodeSelector": SHORT},
    "tolerations": {"tolerations": [0] * 4_000},
}


@pytest.mark.parametrize("name", DENSE)
def test_no_pod_costs_more_units_than_its_length_allows(name: str) -> None:
    item = {"kind": "Pod", "apiVersion": "v1", "spec": DENSE[name]}
    assert 4_000 < weight(item) <= at_most(item, len(orjson.dumps(item)))


def test_a_pod_that_its_length_bounds_is_counted_once_the_rest_runs_short() -> None:
    entries = {"env": [{"name": "A"}] * 1_000}
    for bound in (None, UNITS, UNITS - 1, 10_000):
        allowance = Allowance()
        allowance.count(lambda: entries, bound)
        allowance.spend("findings", 1, UNITS - weight(entries))
        with pytest.raises(TooLarge, match="1 entries in findings come to"):
            allowance.spend("words")


def test_findings_may_use_what_the_entries_of_a_pod_do_not(engine: Engine, sample_facts: Facts) -> None:
    request = created(pod(tolerations=[{"operator": "Exists"}] * 2_000))
    findings = 2_000 * FINDING
    assert UNITS - findings < at_most(request.object or {}, request.size or 0) < UNITS
    assert engine.validate(request, sample_facts).malformed is None


# Honest and large


def fleet(containers: int, variables: int) -> Object:
    env = [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(variables)]
    others = [
        {"name": f"c{n}", "image": "x", "env": env, "ports": [{"containerPort": n + 1}]} for n in range(containers)
    ]
    item = pod()
    item["spec"]["containers"] += others
    return item


HONEST = {
    "a hundred containers with two hundred variables": fleet(100, 200),
    "fifty jobs": jobs(50),
    "three hundred templates": workflow(300, 20),
    "a ConfigMap of a mebibyte": {**config_map(""), "data": {f"page-{n}": "x" * 1_000 for n in range(1_000)}},
    "a hundred requests": claim(100),
    "a Namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b"}}},
}


@pytest.mark.parametrize("item", HONEST.values(), ids=HONEST)
def test_a_large_honest_object_is_judged(engine: Engine, sample_facts: Facts, item: Object) -> None:
    for half in (engine.mutate, engine.validate):
        assert not isinstance(half(created(item), sample_facts).malformed, TooLarge)
    assert not isinstance(engine.validate(updated(item, item), sample_facts).malformed, TooLarge)


def test_an_object_of_another_kind_may_have_any_size(engine: Engine, sample_facts: Facts) -> None:
    item = {"apiVersion": "example.com/v1", "kind": "Other", "metadata": {}, "spec": {"env": [{}] * 150_000}}
    for half in (engine.mutate, engine.validate):
        assert half(created(item), sample_facts).allowed


# Old and new


def test_a_stored_object_that_is_too_large_may_lose_its_finalizers_and_gain_a_status(
    engine: Engine, sample_facts: Facts
) -> None:
    for item in TOO_LARGE.values():
        stored = {**item, "metadata": {**item["metadata"], "finalizers": ["x"]}}
        assert engine.validate(updated({**item, "status": {"phase": "Running"}}, stored), sample_facts).allowed
        assert engine.validate(replace(updated(item, item), operation="DELETE"), sample_facts).allowed


def nested(size: int) -> Object:
    """An AppWrapper whose components have objects."""
    components = [{"template": deployment(1), "annotations": {"a": "b"}}] * (400 + size)
    return workload("workload.codeflare.dev/v1beta2", "AppWrapper", {"components": components})


def texts(size: int) -> Object:
    """A Workflow whose step creates such an object from a text."""
    inner = nested(size)
    inner["spec"]["components"] = [{"template": deployment(1)}] * (150 + size)
    steps = [{"resource": {"manifest": json.dumps(inner)}}] * 3
    return workload("argoproj.io/v1alpha1", "Workflow", {"templates": steps})


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "every"])
@pytest.mark.parametrize("make", [nested, texts])
def test_objects_within_an_object_are_too_large_as_others_are(
    engine: Engine, sample_facts: Facts, make: Callable[[int], Object], step: int
) -> None:
    """Wherever in it the allowance ends, so that it can always be deleted."""
    for size in range(0, 20, step):
        item = make(size)
        error = engine.validate(created(item), sample_facts).malformed
        assert isinstance(error, TooLarge)
        assert error.path == ()
        stored = {**item, "metadata": {**item["metadata"], "finalizers": ["x"]}}
        assert engine.validate(updated(item, stored), sample_facts).allowed


WRAPPED = {
    "as an object": lambda inner: workload(
        "workload.codeflare.dev/v1beta2", "AppWrapper", {"components": [{"template": inner}]}
    ),
    "as a text": lambda inner: workload(
        "argoproj.io/v1alpha1",
        "Workflow",
        {"templates": [{"name": "a", "resource": {"action": "create", "manifest": json.dumps(inner)}}]},
    ),
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("shared", [{}, {"podMetadata": {"labels": {f"l{n}": "x" for n in range(1_000)}}}])
def test_each_template_of_an_object_within_an_object_is_paid(
    engine: Engine, sample_facts: Facts, wrap: Callable[[Object], Object], shared: Object
) -> None:
    """20,000 templates without a word in them, or 400 that share 40,000 labels, were judged for seconds."""

    def steps(number: int) -> Object:
        return wrap(workload("argoproj.io/v1alpha1", "Workflow", {**shared, "templates": [{"container": {}}] * number}))

    few, many = (engine.validate(created(steps(number)), sample_facts).malformed for number in (3, 1_000))
    assert few is None
    assert isinstance(many, TooLarge)


def test_a_stored_object_that_is_too_large_may_not_change_otherwise(engine: Engine, sample_facts: Facts) -> None:
    stored = TOO_LARGE["initContainers"]
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    reaching = {**stored, "spec": {**stored["spec"], "hostPID": True}}
    for changed in (labelled, reaching):
        assert not engine.validate(updated(changed, stored), sample_facts).allowed


def test_a_stored_object_that_is_too_large_may_shrink(engine: Engine, sample_facts: Facts) -> None:
    stored = workload("apps/v1", "Deployment", {"template": {"spec": TOO_LARGE["initContainers"]["spec"]}})
    smaller = workload("apps/v1", "Deployment", {"template": {"spec": {"containers": [{"name": "a"}]}}})
    assert engine.validate(updated(smaller, stored), sample_facts).allowed
    smaller["spec"]["template"]["spec"]["hostPID"] = True
    smaller["spec"]["template"]["spec"]["containers"][0]["resources"] = GPU
    verdict = engine.validate(updated(smaller, stored), sample_facts)
    assert "host-namespaces" in {each.rule for each in verdict.having(Action.DENY)}


def test_an_object_that_may_be_created_may_be_updated(engine: Engine, sample_facts: Facts) -> None:
    for count in (500, 600, 700):
        item = deployment(count)
        assert engine.validate(created(item), sample_facts).allowed
        changed = {**item, "metadata": {**item["metadata"], "labels": {"a": "b"}}}
        assert engine.validate(updated(changed, item), sample_facts).allowed


# The clock


class Clock:
    """Says that it is late once it has been looked at so many times."""

    def __init__(self, most: int) -> None:
        self.looks = 0
        self.most = most

    def __call__(self) -> bool:
        self.looks += 1
        return self.looks > self.most


def settings(count: int) -> Object:
    env = [{"name": "PYTORCH_ALLOC_CONF", "value": SETTINGS}]
    return pod(initContainers=[{"name": f"c{n}", "resources": GPU, "env": env} for n in range(count)])


WORK: dict[str, Callable[[], Request]] = {
    "a rule": lambda: created(pod(tolerations=[{"operator": "Exists"}] * 3_000)),
    "a rule that finds nothing": lambda: created(pod(initContainers=[{"name": f"c{n}"} for n in range(1_000)])),
    "settings of frameworks": lambda: created(settings(80)),
    "terms": lambda: created(pod(affinity=affinity(*[[expression("Exists")]] * 2_000))),
    "templates": lambda: created(jobs(300)),
    "the ratchet": lambda: updated({**deployment(500), "metadata": {"labels": {"a": "b"}}}, deployment(500)),
}


@pytest.mark.parametrize("request_of", WORK.values(), ids=WORK)
def test_a_late_review_is_given_up_at_any_stage(
    engine: Engine, sample_facts: Facts, request_of: Callable[[], Request]
) -> None:
    request, clock = request_of(), Clock(10**9)
    work: list[int] = []
    total = calls(lambda: engine.validate(request, sample_facts, clock))
    assert clock.looks > 30
    for most in range(0, clock.looks, max(1, clock.looks // 3)):

        def given_up(most: int = most) -> None:
            with pytest.raises(TooLate):
                engine.validate(request, sample_facts, Clock(most))

        work.append(calls(given_up))
    steps = [after - before for before, after in zip([0, *work], [*work, total], strict=False)]
    assert max(steps) < total  # nowhere does all of the work stand between two looks


def test_the_ratchet_looks_at_the_clock() -> None:
    results = [Result("r", Action.WARN, Finding(("a", n), "m")) for n in range(50)]
    clock = Clock(20)
    with pytest.raises(TooLate):
        ratcheting.added(results, {}, results, {}, Allowance(clock))
    assert clock.looks == 21


def test_the_making_of_a_patch_looks_at_the_clock_and_stops_at_the_most() -> None:
    fixes = (Fix(("metadata", "labels"), {f"l{n}": "x"}) for n in range(10**6))
    with pytest.raises(TooLarge, match=f"more than {MAX_OPERATIONS} changes"):
        build({}, fixes)
    assert next(fixes).value == {f"l{MAX_OPERATIONS + 1}": "x"}
    with pytest.raises(TooLate):
        build({}, (Fix(fix.path, {}) for fix in fixes), Allowance(Clock(3)))


# What the rows of the attack did


def test_40000_names_of_resources_cost_a_handful_of_guesses(
    engine: Engine, sample_facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    guessed: list[str] = []

    def guess(word: str, known: Iterable[str], alike: float) -> str:
        guessed.append(word)
        return nearest(word, known, alike)

    monkeypatch.setattr("webhook.text.spelling.nearest", guess)
    for count in (40, 9_000, 40_000):
        guessed.clear()
        request = created(resources(count))
        for half in (engine.mutate, engine.validate):
            half(request, sample_facts)
        assert len(guessed) <= 2 * HANDFUL


def test_a_message_of_9000_resources_names_a_few(engine: Engine, sample_facts: Facts) -> None:
    verdict = engine.validate(created(resources(9_000)), sample_facts)
    (message,) = {each.finding.message for each in verdict.results if each.rule == "unsteered-pod"}
    assert "8,995 more" in message.replace("8995", "8,995")
    assert len(message) < 1_000


def test_a_guess_is_the_same_for_the_same_word() -> None:
    guesses = Guesses(2)
    known = ("alpha", "beta")
    assert [guesses.nearest(word, known) for word in ("alpa", "bet", "alph", "alpa", "bet")] == [
        "alpha",
        "beta",
        "",
        "alpha",
        "beta",
    ]


def test_an_update_of_many_advised_containers_costs_as_much_a_container_as_of_few(
    engine: Engine, sample_facts: Facts
) -> None:
    def cost(count: int) -> int:
        item = deployment(count)
        asked = updated({**item, "metadata": {**item["metadata"], "labels": {"a": "b"}}}, item)
        return calls(lambda: engine.validate(asked, sample_facts))

    few, twice, more = (cost(count) for count in (200, 400, 800))
    assert more - twice < 2.1 * (twice - few)


def test_a_pod_of_too_many_containers_is_refused_before_any_is_looked_at(engine: Engine, sample_facts: Facts) -> None:
    for count, what in ((20_000, "initContainers"), (700, "settings")):
        verdict = engine.validate(created(settings(count)), sample_facts)
        assert f"entries in {what} come to" in str(verdict.malformed)


def test_json_documents_in_a_row_are_read_by_work_that_is_linear() -> None:
    documents, problems = read("{}\n" * 300 + '{"a":\n1}', "many.json")
    assert not problems
    assert [each.line() for each in documents] == [*range(1, 302)]
