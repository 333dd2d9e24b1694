"""Pools with one scheduler, queues and priorities: bindings, what is sent, and what a policy may say."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.conditions import receivers, request_of
from tests.support.fixtures import settings
from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from webhook.api.admission import decode, wrap
from webhook.engine.engine import Engine
from webhook.engine.registration import configurations
from webhook.facts.snapshot import Facts
from webhook.model import Action, Request, Requester, Unusable
from webhook.policy.model import Policy
from webhook.rules import walk

KUBE, KAI = "system:kube-scheduler", "system:serviceaccount:kai-scheduler:binder"

SCHEDULED = """
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: schedulers}
spec:
  schedulers: {users: ["system:serviceaccount:kai-scheduler:binder"]}
  guard: every-pod
  pools:
  - name: kai
    sharing: none
    trust: [trusted, untrusted]
    nodes: {matchLabels: {pool: kai}}
    resources: [nvidia.com/gpu]
    scheduler: kai-scheduler
  - name: plain
    sharing: none
    trust: [trusted, untrusted]
    nodes: {matchLabels: {pool: plain}}
    resources: [amd.com/gpu]
    scheduler: default-scheduler
  - name: any
    sharing: none
    trust: [trusted, untrusted]
    nodes: {matchLabels: {pool: any}}
    resources: [gpu.intel.com/i915]
"""


@pytest.fixture(scope="module")
def scheduled() -> Policy:
    return policy_of(SCHEDULED)


def binding(node: str) -> Object:
    target = {"kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "namespace": "vision"}, "target": target}


def by(user: str, item: Object) -> Request:
    return replace(decode(wrap(item)), requester=Requester(user, frozenset()))


@pytest.mark.parametrize(
    ("node", "user", "fine"),
    [
        ("kai", KAI, True),
        ("kai", KUBE, False),
        ("plain", KUBE, True),
        ("plain", KAI, False),
        ("any", KUBE, True),
        ("any", KAI, True),
        ("bare", KUBE, True),
        ("unknown", KUBE, True),
        ("kai", "mallory", False),
    ],
)
def test_only_the_scheduler_of_a_pool_binds_to_its_nodes(scheduled: Policy, node: str, user: str, fine: bool) -> None:
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"pool": name}}}
        for name in ("kai", "plain", "any", "bare")
    ]
    verdict = Engine(scheduled, walk()).validate(by(user, binding(node)), Facts.of(nodes))
    assert [result.rule for result in verdict.having(Action.DENY)] == ([] if fine else ["foreign-binding"])


def hooks(policy: Policy) -> list[Any]:
    return list(configurations(policy)[1]["webhooks"])


def test_bindings_of_schedulers_are_sent_only_where_a_pool_names_its_own(scheduled: Policy) -> None:
    asked = {**request_of(binding("kai")), "userInfo": {"username": KUBE, "groups": []}}
    assert receivers(hooks(policy_of(POLICY)), asked) == []
    assert receivers(hooks(scheduled), asked) == ["scheduled-bindings.slicewarden.dev"]
    stranger = {**asked, "userInfo": {"username": "mallory", "groups": []}}
    assert receivers(hooks(scheduled), stranger) == ["bindings.slicewarden.dev"]


def test_a_webhook_that_is_away_stops_no_scheduler(scheduled: Policy) -> None:
    (hook,) = [each for each in hooks(scheduled) if each["name"].startswith("scheduled-bindings")]
    assert hook["failurePolicy"] == "Ignore"


def test_groups_of_pods_are_registered_only_where_the_policy_speaks_of_priorities() -> None:
    def groups(policy: Policy) -> bool:
        return any(rule["apiGroups"] == ["scheduling.k8s.io"] for hook in hooks(policy) for rule in hook["rules"])

    assert not groups(policy_of(POLICY))
    assert groups(settings("unearned-priority")[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("queue: {kueue: true, label: a}", "names a queue in two ways"),
        ("queue: {names: [a]}", "one of kueue, label, annotation is needed"),
        ("queue: {kueue: false}", "must be true"),
        ("queue: {lable: a}", "did you mean label"),
        ("scheduler: KAI", "must be a name of lower-case letters"),
    ],
)
def test_a_pool_with_a_wrong_queue_or_scheduler_is_refused(words: str, message: str) -> None:
    with pytest.raises(Unusable, match=message):
        policy_of(SCHEDULED.replace("scheduler: kai-scheduler", words))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{classes: [a]}", "one of trust, namespaces, namespaceSelector, pools is needed"),
        ("{classes: [a], pools: [kay]}", "unknown pool"),
        ("{classes: [], trust: [trusted]}", "must not be empty"),
    ],
)
def test_a_wrong_entry_of_priorities_is_refused(entry: str, message: str) -> None:
    with pytest.raises(Unusable, match=message):
        policy_of(SCHEDULED.replace("  guard:", f"  priorities: [{entry}]\n  guard:"))


EVICTS: Object = {"priorityClassName": "high", "priority": 100, "preemptionPolicy": "PreemptLowerPriority"}
GENTLE: Object = {**EVICTS, "preemptionPolicy": "Never"}
KEYED: Object = {"tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]}
OTHER: Object = {"tolerations": [{"key": "example.com/cpu", "operator": "Exists"}]}
NEVER = "  untrusted: {preempt: Never}\n"
ENTRIES = "  priorities: [{classes: [high], trust: [trusted]}]\n"
OF_AGENTS = "    - {name: agents, reason: of nodes, system: true, namespaces: [visitors], serviceAccounts: [agent]}\n"


@pytest.mark.parametrize("words", [NEVER, ENTRIES])
@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({**EVICTS, **KEYED}, (NEVER, ENTRIES)),
        ({**EVICTS, "nodeName": "t4-shared"}, (NEVER, ENTRIES)),
        ({**GENTLE, **KEYED}, (ENTRIES,)),
        ({**EVICTS, **OTHER}, ()),
        (EVICTS, ()),
        (KEYED, ()),
        ({**EVICTS, **KEYED, "serviceAccountName": "agent"}, ()),
    ],
)
def test_a_pod_without_a_gpu_evicts_no_pods_with_gpus(
    words: str, template: bool, spec: Object, refused: tuple[str, ...], sample_facts: Facts
) -> None:
    exempting = POLICY.read_text("utf-8").replace("  exemptions:\n", f"  exemptions:\n{OF_AGENTS}", 1)
    policy = policy_of(exempting.replace("  rules:\n", f"{words}  rules:\n", 1))
    pod = {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "8"}}}], **spec}}
    metadata = {"name": "a", "namespace": "visitors"}
    item = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata}
    if template:
        item = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"template": pod}}
    verdict = Engine(policy, walk()).judge(decode(wrap(item)), sample_facts)
    found = [result.rule for result in verdict.having(Action.DENY)]
    assert ("unearned-priority" in found) is (words in refused), verdict
    assert words not in refused or receivers(hooks(policy), request_of(item))


def test_without_a_taint_a_pod_without_a_gpu_may_use_every_class(sample_facts: Facts) -> None:
    policy = replace(policy_of(POLICY.read_text("utf-8").replace("  rules:\n", f"{NEVER}  rules:\n", 1)), guard=None)
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "visitors"}}
    item["spec"] = {"containers": [{"name": "a"}], **EVICTS, **KEYED}
    verdict = Engine(policy, walk()).judge(decode(wrap(item)), sample_facts)
    assert "unearned-priority" not in [result.rule for result in verdict.having(Action.DENY)]
