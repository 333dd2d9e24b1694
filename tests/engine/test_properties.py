"""Hold properties for every pod, whatever its author wrote."""

import copy
import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
import yaml
from hypothesis import assume, event, given
from hypothesis import strategies as st
from jsonpointer import JsonPointerException

from tests.support.policies import POLICY, RULES
from tests.support.strategies import (
    LABELS,
    MEMORY,
    PRODUCT,
    REPLICAS,
    SHARING,
    TRUST,
    ZONE,
    gpu_pods,
    pods,
    request_for,
    workload,
)
from webhook.api.pods import Pod
from webhook.api.quantity import parse
from webhook.engine.engine import Engine, RuleBroke
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.model import Action, Finding, Fix, Verdict
from webhook.policy.model import Policy
from webhook.rules import Rule, walk

Labels = Mapping[str, str]

RECORD = "slicewarden.dev/memory-caps"
FRACTION = "per_process_memory_fraction"

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

POOLS = yaml.safe_load(POLICY.read_text("utf-8"))["spec"]["pools"]


def mutated(engine: Engine, pod: dict[str, Any], facts: Facts) -> tuple[dict[str, Any], Verdict]:
    """The pod as an API server would have it after /mutate, which patches with another implementation."""
    before = copy.deepcopy(pod)
    verdict = engine.mutate(request_for(pod), facts)
    assert pod == before
    return jsonpatch.apply_patch(pod, copy.deepcopy(list(verdict.patch))), verdict


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list) and value:
        for index, each in enumerate(value):
            yield from leaves(each, (*path, index))
    else:
        yield path, value


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


# Node selection, written out a second time from the API's documentation


def holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not re.fullmatch("[+-]?[0-9]+", value, re.ASCII):
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    raise AssertionError(expression)


def term_matches(term: Mapping[str, Any], labels: Labels, name: str) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(holds(each, labels) for each in expressions) and all(
        holds(each, {"metadata.name": name}) for each in fields
    )


def selects(pod: Mapping[str, Any], labels: Labels, name: str = "node-1") -> bool:
    """Tell whether a pod may run on a node, as far as node selector and required affinity go."""
    spec = pod["spec"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    return required is None or any(term_matches(term, labels, name) for term in required["nodeSelectorTerms"])


NODES: list[dict[str, str]] = [
    {
        key: value
        for key, value in zip((SHARING, PRODUCT, REPLICAS, MEMORY, ZONE), values, strict=True)
        if value is not None
    }
    for values in itertools.product(*((None, *LABELS[key]) for key in (SHARING, PRODUCT, REPLICAS, MEMORY, ZONE)))
]
"""Every node that has some of the labels that pods and pools select by."""


def pool_has(pool: Mapping[str, Any], labels: Labels) -> bool:
    nodes = pool["nodes"]
    return all(labels.get(key) == value for key, value in nodes.get("matchLabels", {}).items()) and all(
        holds(each, labels) for each in nodes.get("matchExpressions", [])
    )


SHARED_NODES = [labels for labels in NODES if any(pool_has(p, labels) for p in POOLS if p["sharing"] == "time-slicing")]
NODES_OF = {pool["name"]: [labels for labels in NODES if pool_has(pool, labels)] for pool in POOLS}


def containers_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(pod["spec"].get("initContainers") or []), *(pod["spec"].get("containers") or [])]


def asks_for_gpu(pod: Mapping[str, Any]) -> bool:
    names = (
        (name, quantity)
        for container in containers_of(pod)
        for kind in ("limits", "requests")
        for name, quantity in ((container.get("resources") or {}).get(kind) or {}).items()
    )
    return any(name.startswith("nvidia.com/") and not is_zero(quantity) for name, quantity in names)


def is_zero(quantity: Any) -> bool:
    try:
        return parse(quantity) == 0
    except ValueError:
        return False


def is_trusted(pod: Mapping[str, Any]) -> bool:
    metadata = pod["metadata"]
    return metadata["namespace"] == "vision" and (metadata.get("annotations") or {}).get(TRUST) == "trusted"


def is_steered(verdict: Verdict) -> bool:
    return any(op["path"].startswith(("/spec/nodeSelector", "/spec/affinity")) for op in verdict.patch)


# The properties


@given(pod=pods())
def test_a_second_mutation_changes_nothing(engine: Engine, sample_facts: Facts, pod: dict[str, Any]) -> None:
    after, verdict = mutated(engine, pod, sample_facts)
    event(f"operations: {min(len(verdict.patch), 4)}")
    assert verdict.allowed
    again, second = mutated(engine, after, sample_facts)
    assert second.patch == ()
    assert again == after


TOUCHED = re.compile(
    r"/spec/(nodeSelector|tolerations|affinity|affinity/nodeAffinity)(/|$)"
    r"|/spec/(initContainers|containers)/[0-9]+/env(/|$)"
    r"|/metadata/annotations(/slicewarden.dev~1memory-caps)?$"
)


def assert_stricter(name: str, before: str, after: str) -> None:
    """A value of the author's is only exchanged for one that allows less, and settings beside a cap are kept."""
    if name.startswith("PYTORCH"):
        others, now = ([s for s in text.rstrip(", ").split(",") if FRACTION not in s] for text in (before, after))
        assert [each for each in others if each] == now
        assert after.count(FRACTION) == 1
    elif name.startswith("TF_"):
        assert (before != "true", after) == (True, "true")
    elif before.replace(".", "").isdigit() and float(before) > 0:
        assert float(after) < float(before)


@given(pod=pods())
def test_a_patch_applies_and_keeps_all_that_the_author_wrote(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    after, verdict = mutated(engine, pod, sample_facts)
    replaced: set[tuple[Any, ...]] = set()
    for operation in verdict.patch:
        path = operation["path"]
        assert TOUCHED.match(path), path
        if path.startswith("/spec/affinity") and not path.startswith("/spec/affinity/nodeAffinity"):
            assert path == "/spec/affinity"
            assert set(operation["value"]) == {"nodeAffinity"}
        if path == f"/metadata/annotations/{RECORD.replace('/', '~1')}":
            replaced.add(("metadata", "annotations", RECORD))
        elif operation["op"] == "replace":
            entry = re.fullmatch(r"/spec/(initContainers|containers)/([0-9]+)/env/([0-9]+)/value", path)
            assert entry, path
            place = ("spec", entry[1], int(entry[2]), "env", int(entry[3]))
            assert_stricter(at(pod, place)["name"], at(pod, place)["value"], operation["value"])
            replaced.add((*place, "value"))
        else:
            assert operation["op"] == "add"
    for path, leaf in leaves(pod):
        if path not in replaced and leaf not in (None, {}, []):
            assert at(after, path) == leaf
    for path, leaf in leaves(pod):
        if leaf in ({}, []) and path:
            assert type(at(after, path)) is type(leaf)


@given(pod=pods())
def test_judging_is_mutating_then_validating(engine: Engine, sample_facts: Facts, pod: dict[str, Any]) -> None:
    after, mutation = mutated(engine, pod, sample_facts)
    validation = engine.validate(request_for(after), sample_facts)
    judged = engine.judge(request_for(pod), sample_facts)
    assert validation.patch == ()
    assert judged.patch == mutation.patch
    assert [result.text for result in judged.results] == [result.text for result in validation.results]
    assert judged.allowed == validation.allowed
    event(f"allowed: {judged.allowed}, patched: {bool(judged.patch)}")


@given(pod=pods())
def test_validation_finds_nothing_that_mutation_fixed(engine: Engine, sample_facts: Facts, pod: dict[str, Any]) -> None:
    after, _ = mutated(engine, pod, sample_facts)
    for result in engine.validate(request_for(after), sample_facts).results:
        assert result.finding.fixes == ()


@given(pod=gpu_pods())
def test_a_pod_that_skipped_its_steering_is_denied(engine: Engine, sample_facts: Facts, pod: dict[str, Any]) -> None:
    _, verdict = mutated(engine, pod, sample_facts)
    assume(verdict.patch)
    assert not engine.validate(request_for(pod), sample_facts).allowed


@given(pod=gpu_pods())
def test_a_pod_that_lacks_any_part_of_its_patch_is_denied(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    """A later webhook may undo some of it, and must not get away with that. The record decides nothing."""
    _, verdict = mutated(engine, pod, sample_facts)
    for left_out, left in enumerate(verdict.patch):
        if left["path"].startswith("/metadata/annotations"):
            continue
        kept = [operation for index, operation in enumerate(verdict.patch) if index != left_out]
        try:
            partly = jsonpatch.apply_patch(pod, copy.deepcopy(kept))
        except JsonPointerException:  # what comes after it stands in it, and went with it
            continue
        assert not engine.validate(request_for(partly), sample_facts).allowed


@given(pod=gpu_pods(), name=st.sampled_from(["node-1", "node-2"]))
def test_mutation_never_widens_the_choice_of_nodes(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any], name: str
) -> None:
    after, verdict = mutated(engine, pod, sample_facts)
    event(f"steered: {is_steered(verdict)}")
    for labels in NODES:
        assert selects(pod, labels, name) or not selects(after, labels, name), labels


@given(pod=gpu_pods())
def test_an_allowed_gpu_pod_selects_nodes_of_one_pool_only(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    after, _ = mutated(engine, pod, sample_facts)
    assume(asks_for_gpu(after) and engine.validate(request_for(after), sample_facts).allowed)
    chosen = [labels for labels in NODES if selects(after, labels)]
    assert any(all(labels in nodes for labels in chosen) for nodes in NODES_OF.values())


@given(pod=gpu_pods())
def test_an_untrusted_gpu_pod_is_never_allowed_onto_a_shared_node(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    assume(asks_for_gpu(pod) and not is_trusted(pod))
    for candidate in (pod, mutated(engine, pod, sample_facts)[0]):
        if engine.validate(request_for(candidate), sample_facts).allowed:
            assert not any(selects(candidate, labels) for labels in SHARED_NODES)


@given(pod=gpu_pods())
def test_an_allowed_pod_on_a_shared_node_asks_for_one_slice(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    after, _ = mutated(engine, pod, sample_facts)
    if engine.validate(request_for(after), sample_facts).allowed and any(selects(after, n) for n in SHARED_NODES):
        assert is_trusted(after)
        for container in after["spec"]["containers"]:
            limits = (container.get("resources") or {}).get("limits") or {}
            assert sum(parse(limits.get(gpu, 0)) for gpu in ("nvidia.com/gpu", "nvidia.com/gpu.shared")) <= 1


@given(pod=pods(), operation=st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", ""]), old=st.none() | pods())
def test_the_engine_never_raises(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any], operation: str, old: dict[str, Any] | None
) -> None:
    for item in (pod, workload("Deployment", pod), workload("CronJob", pod)):
        request = request_for(item, operation=operation, old=old)
        try:
            verdicts = [each(request, sample_facts) for each in (engine.mutate, engine.validate, engine.judge)]
        except RuleBroke as error:
            pytest.fail(f"{error}: {error.__cause__!r}")
        assert all(isinstance(verdict, Verdict) for verdict in verdicts)
        if operation != "CREATE" or item is not pod:
            assert not any(verdict.patch for verdict in verdicts)


@given(pod=pods(), kind=st.sampled_from(["Pod", "Deployment", "Job", "CronJob"]))
def test_an_update_that_changes_nothing_is_allowed(
    engine: Engine, sample_facts: Facts, pod: dict[str, Any], kind: str
) -> None:
    item = pod if kind == "Pod" else workload(kind, pod)
    request = request_for(item, operation="UPDATE", old=copy.deepcopy(item))
    assert engine.validate(request, sample_facts).allowed
    assert engine.judge(request, sample_facts).allowed
    assert engine.mutate(request, sample_facts).patch == ()


@given(pod=pods(), action=st.sampled_from([Action.WARN, Action.AUDIT]))
def test_rules_that_do_not_deny_neither_patch_nor_deny(
    sample_policy: Policy, sample_facts: Facts, pod: dict[str, Any], action: Action
) -> None:
    lenient = Engine(replace(sample_policy, actions={rule.id: action for rule in walk()}), walk())
    verdict = lenient.judge(request_for(pod), sample_facts)
    assert verdict.allowed
    assert verdict.patch == ()
    assert lenient.mutate(request_for(pod), sample_facts).patch == ()
    assert {result.action for result in verdict.results} <= {action}


def always(review: PodReview) -> Iterator[Finding]:
    """Find fault with every pod, and know how to mend it."""
    pod = review.subject
    yield Finding(pod.at("spec"), "a fault", (Fix(pod.at("metadata", "labels"), {"mended": "yes"}),))


def always_found(review: PodReview) -> Iterator[Finding]:
    """Find fault with every pod, and know how to mend those that may see a GPU."""
    for finding in always(review):
        yield finding if review.exposed else finding._replace(fixes=())


@given(pod=pods(), action=st.sampled_from([Action.WARN, Action.AUDIT]))
def test_one_more_rule_that_does_not_deny_changes_no_decision(
    sample_policy: Policy, sample_facts: Facts, pod: dict[str, Any], action: Action
) -> None:
    policy = replace(sample_policy, actions={**sample_policy.actions, "always": action})
    without = Engine(sample_policy, walk()).judge(request_for(pod), sample_facts)
    more = (*walk(), Rule("always", Pod, always_found, "", mends=True))
    verdict = Engine(policy, more).judge(request_for(pod), sample_facts)
    assert (verdict.allowed, verdict.patch) == (without.allowed, without.patch)
    assert [result.rule for result in verdict.having(action)].count("always") == 1


def test_a_rule_that_has_a_fix_and_does_not_say_so_breaks(sample_policy: Policy, sample_facts: Facts) -> None:
    """Its fix would never be made, and would still excuse the template that needs it."""
    silent = Engine(sample_policy, [Rule("always", Pod, always, "")])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    for item in (pod, workload("Deployment", pod)):
        with pytest.raises(RuleBroke, match="always"):
            silent.judge(request_for(item), sample_facts)


def test_a_rule_that_mends_a_pod_which_can_see_no_gpu_breaks(sample_policy: Policy, sample_facts: Facts) -> None:
    """`/mutate` asks no rule about such a pod, so the fix would never be made."""
    spec: dict[str, Any] = {"containers": [{"name": "c"}]}
    plain: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    engine = Engine(sample_policy, [Rule("always", Pod, always, "", mends=True)])
    assert engine.mutate(request_for(plain), sample_facts).patch == ()
    with pytest.raises(RuleBroke, match="always"):
        engine.validate(request_for(plain), sample_facts)
    asking = {**plain, "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
    assert engine.mutate(request_for(asking), sample_facts).patch
    assert not engine.validate(request_for(asking), sample_facts).allowed


@given(pod=gpu_pods(), action=st.sampled_from([Action.WARN, Action.AUDIT]), rule=st.sampled_from(RULES))
def test_a_laxer_rule_never_turns_an_allowed_pod_into_a_denied_one(
    engine: Engine, sample_policy: Policy, sample_facts: Facts, pod: dict[str, Any], action: Action, rule: str
) -> None:
    assume(engine.judge(request_for(pod), sample_facts).allowed)
    laxer = Engine(replace(sample_policy, actions={**sample_policy.actions, rule: action}), walk())
    assert laxer.judge(request_for(pod), sample_facts).allowed


@given(pod=pods())
def test_a_verdict_depends_on_nothing_but_the_request(
    engine: Engine, sample_policy: Policy, sample_facts: Facts, pod: dict[str, Any]
) -> None:
    fresh = Engine(dataclasses.replace(sample_policy), walk())
    request = request_for(copy.deepcopy(pod))
    first, second = engine.judge(request_for(pod), sample_facts), fresh.judge(request, sample_facts)
    assert [result.text for result in first.results] == [result.text for result in second.results]
    assert first.patch == second.patch


EMPTY_AFFINITIES: list[dict[str, Any]] = [
    {"nodeSelectorTerms": []},
    {"nodeSelectorTerms": None},
    {},
    {"nodeSelectorTerms": [{}]},
    {"nodeSelectorTerms": [{"matchExpressions": []}, None]},
]


@pytest.mark.parametrize("required", EMPTY_AFFINITIES)
def test_an_affinity_that_matches_no_node_is_not_made_to_match_one(
    engine: Engine, sample_facts: Facts, required: dict[str, Any]
) -> None:
    """The API server refuses most of these; a patch must not talk it out of that."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "vision"},
        "spec": {
            "affinity": {"nodeAffinity": {REQUIRED: required}},
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        },
    }
    after, _ = mutated(engine, pod, sample_facts)
    assert after["spec"]["affinity"] == pod["spec"]["affinity"]
