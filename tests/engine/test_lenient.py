"""A pod that a replica of another release has patched, before an engine that lets in what it left out."""

import copy

import pytest

from tests.support.objects import untrusted_pod
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Object, Verdict

DENIES = Engine(policy_of(POLICY), rules.walk())
WARNS = DENIES.lenient()


def validated(pod: Object, facts: Facts, *, warns: bool) -> Verdict:
    """What /validate says of a pod as it is."""
    request = admission.decode(admission.wrap(copy.deepcopy(pod)))
    return (WARNS if warns else DENIES).validate(request, facts)


@pytest.fixture
def patched(sample_facts: Facts) -> Object:
    """A pod with one card and a container without, as /mutate leaves it."""
    pod = untrusted_pod()
    pod["spec"]["containers"].append({"name": "beside", "image": "any"})
    request = admission.decode(admission.wrap(pod))
    patch = WARNS.mutate(request, sample_facts).patch
    assert patch == DENIES.mutate(request, sample_facts).patch
    made: Object = dict(jsonpatch.apply(pod, patch))
    assert validated(made, sample_facts, warns=False).results == ()
    return made


def test_what_an_older_patch_left_out_is_a_warning(sample_facts: Facts, patched: Object) -> None:
    for container in patched["spec"]["containers"]:
        container["env"] = [each for each in container["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
    strict = validated(patched, sample_facts, warns=False)
    assert {result.rule for result in strict.having(Action.DENY)} == {"unguarded-container"}
    verdict = validated(patched, sample_facts, warns=True)
    assert verdict.allowed
    assert {(result.rule, result.action) for result in verdict.results} == {("unguarded-container", Action.WARN)}


def test_what_audit_mode_did_not_steer_is_a_warning(sample_facts: Facts) -> None:
    pod = untrusted_pod()
    assert not validated(pod, sample_facts, warns=False).allowed
    assert validated(pod, sample_facts, warns=True).allowed


def test_what_the_author_wrote_is_denied_all_the_same(sample_facts: Facts, patched: Object) -> None:
    patched["spec"]["containers"][0]["env"].insert(0, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    patched["spec"]["containers"][1]["securityContext"] = {"privileged": True}
    patched["spec"]["tolerations"] = [{"operator": "Exists"}]
    strict, verdict = (validated(patched, sample_facts, warns=warns) for warns in (False, True))
    denied = {
        (result.rule, result.finding.path) for result in strict.having(Action.DENY) if not result.finding.left_out
    }
    assert {rule for rule, _ in denied} >= {"visible-devices", "privileged-container", "broad-toleration"}
    assert {(result.rule, result.finding.path) for result in verdict.having(Action.DENY)} == denied


def test_a_template_without_the_patch_is_no_fault(sample_facts: Facts) -> None:
    pod = untrusted_pod()
    item = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a", "namespace": pod["metadata"].get("namespace", "default")},
        "spec": {"template": {"spec": pod["spec"]}},
    }
    assert validated(item, sample_facts, warns=True) == validated(item, sample_facts, warns=False)


def test_an_easier_action_of_the_rule_stays(sample_facts: Facts) -> None:
    text = POLICY.read_text("utf-8").rstrip().replace("\n  rules:\n", "\n  rules:\n    unsteered-pod: Audit\n")
    request = admission.decode(admission.wrap(untrusted_pod()))
    found = Engine(policy_of(text), rules.walk()).lenient().validate(request, sample_facts).results
    assert Action.AUDIT in {result.action for result in found if result.rule == "unsteered-pod"}
