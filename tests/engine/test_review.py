"""The contract of an admission webhook, from the bytes of a request to those of the answer.

Numbers in the names of tests are lines of the admission contract that the project keeps to.
"""

import base64
import copy
import json
import re
from dataclasses import replace
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.strategies import CONFIG_MAP, TRUST, broken_reviews, json_values, review_of, workload
from webhook.api.admission import (
    MAX_ANNOTATION,
    MAX_PARTS,
    MAX_WARNING,
    MAX_WARNINGS,
    NotAReview,
    decode,
    encode,
    message_of,
    wrap,
)
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Malformed, Result, Verdict
from webhook.policy.model import Policy
from webhook.rules import walk

GPU = "nvidia.com/gpu"
HOSTILE = "\n\r\t\x00\x1b[31m\u2028\u202e"


def pod_of(amount: Any = 1, *, resource: str = GPU, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train", "namespace": "vision", "annotations": {TRUST: "trusted"}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": {resource: amount}}}], **spec},
    }


def many_bad(count: int, resource: str = GPU) -> dict[str, Any]:
    containers = [{"name": f"c{n}", "resources": {"limits": {resource: f"bad {n}"}}} for n in range(count)]
    return pod_of(containers=containers)


class Webhook:
    """Both halves of the webhook, bytes to decoded answer."""

    def __init__(self, engine: Engine, facts: Facts) -> None:
        self.engine = engine
        self.facts = facts

    def answer(self, review: Any, half: str) -> dict[str, Any]:
        request = decode(orjson.dumps(review))
        body = encode(request, getattr(self.engine, half)(request, self.facts))
        answer: dict[str, Any] = json.loads(body)
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        assert set(answer) == {"apiVersion", "kind", "response"}
        response: dict[str, Any] = answer["response"]
        return response

    def mutate(self, item: Any, **fields: Any) -> dict[str, Any]:
        return self.answer(review_of(item, **fields), "mutate")

    def validate(self, item: Any, **fields: Any) -> dict[str, Any]:
        return self.answer(review_of(item, **fields), "validate")

    def validate_at_home(self, item: dict[str, Any]) -> dict[str, Any]:
        """Validate an object in the namespace that it names."""
        namespace = item.get("metadata", {}).get("namespace", "vision")
        return self.validate({"apiVersion": "v1", "kind": "Pod", **item}, namespace=namespace)

    def under(self, action: Action) -> "Webhook":
        """The same rules under a policy with this action for all of them."""
        policy = replace(self.engine.policy, actions={rule.id: action for rule in walk()})
        return Webhook(Engine(policy, walk()), self.facts)


@pytest.fixture(scope="session")
def webhook(engine: Engine, sample_facts: Facts) -> Webhook:
    return Webhook(engine, sample_facts)


def patch_of(response: dict[str, Any]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = json.loads(base64.b64decode(response["patch"], validate=True))
    return operations


# B. Request


@pytest.mark.parametrize("version", ["admission.k8s.io/v1beta1", "admission.k8s.io/v2", "v1", "", None, 1])
def test_18_only_v1_is_answered(version: Any) -> None:
    review = {**review_of(pod_of()), "apiVersion": version}
    with pytest.raises(NotAReview, match=r"admission\.k8s\.io/v1"):
        decode(orjson.dumps(review))


@pytest.mark.parametrize("kind", ["Pod", "AdmissionRequest", "admissionreview", "", None, {}])
def test_18_only_an_admission_review_is_one(kind: Any) -> None:
    with pytest.raises(NotAReview):
        decode(orjson.dumps({**review_of(pod_of()), "kind": kind}))


@pytest.mark.parametrize("uid", ["", None, 1, {}])
def test_19_a_request_without_a_uid_cannot_be_answered(uid: Any) -> None:
    with pytest.raises(NotAReview, match="uid"):
        decode(orjson.dumps(review_of(pod_of(), uid=uid)))


def test_19_the_uid_decides_nothing(webhook: Webhook) -> None:
    first, second = (webhook.validate(pod_of(2), uid=uid) for uid in ("a", "b"))
    assert {**first, "uid": ""} == {**second, "uid": ""}


@pytest.mark.parametrize("half", ["mutate", "validate", "judge"])
@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_20_a_null_object_is_allowed_where_there_is_none(webhook: Webhook, half: str, operation: str) -> None:
    review = review_of(pod_of(), object=None, oldObject=pod_of("bad"), operation=operation)
    assert webhook.answer(review, half) == {"uid": review["request"]["uid"], "allowed": True}


@pytest.mark.parametrize(("operation", "changes"), [("CONNECT", {}), ("DELETE", {"object": None, "oldObject": None})])
def test_20_a_connection_and_a_deletion_of_nothing_are_allowed(
    webhook: Webhook, operation: str, changes: dict[str, Any]
) -> None:
    assert webhook.validate(pod_of("bad"), operation=operation, **changes)["allowed"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "", "PATCH"])
def test_20_a_null_object_where_there_must_be_one_is_no_review(operation: str) -> None:
    with pytest.raises(NotAReview):
        decode(json.dumps(review_of(None, operation=operation)).encode())


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_20_a_null_old_object_hides_nothing(webhook: Webhook, operation: str) -> None:
    assert not webhook.validate(pod_of("bad"), oldObject=None, operation=operation)["allowed"]
    review = review_of(pod_of("bad"), operation=operation)
    del review["request"]["oldObject"]
    assert not webhook.answer(review, "validate")["allowed"]


def test_21_a_pod_that_has_no_name_yet_is_judged(webhook: Webhook) -> None:
    pod = pod_of("bad")
    pod["metadata"] = {"generateName": "train-", "annotations": {TRUST: "trusted"}}
    response = webhook.validate(pod, name="", namespace="vision")
    assert response["status"]["code"] == 403
    review = review_of(pod_of(), namespace="vision")
    review["request"].pop("name", None)
    assert patch_of(webhook.answer(review, "mutate"))


def test_21_the_namespace_is_the_request_s_and_not_what_the_pod_claims(webhook: Webhook) -> None:
    pod = pod_of()
    assert webhook.validate(pod, namespace="visitors")["status"]["message"].startswith(
        "3 findings:\n- unearned-trust: "
    )


def test_22_kind_decides_and_not_what_the_user_sent(webhook: Webhook) -> None:
    other = {"group": "example.com", "version": "v9", "kind": "Other"}
    assert not webhook.validate(pod_of("bad"), requestKind=other, requestResource=other)["allowed"]
    core = {"group": "", "version": "v1", "kind": "Pod"}
    assert webhook.validate(pod_of("bad"), kind=other, requestKind=core)["allowed"]


@pytest.mark.parametrize("group", ["example.com", "v1", "core"])
def test_22_a_kind_of_the_same_name_in_another_group_is_another(webhook: Webhook, group: str) -> None:
    assert webhook.validate(pod_of("bad"), kind={"group": group, "version": "v1", "kind": "Pod"})["allowed"]


POD_SUBRESOURCES = ["ephemeralcontainers", "resize", "status", "futuresubresource"]


@pytest.mark.parametrize("subresource", POD_SUBRESOURCES)
def test_23_a_pod_under_any_subresource_is_judged_and_never_patched(webhook: Webhook, subresource: str) -> None:
    old, new = pod_of(1), pod_of("bad")
    for operation in ("CREATE", "UPDATE"):
        fields = {"subResource": subresource, "operation": operation, "oldObject": old}
        assert not webhook.validate(new, **fields)["allowed"]
        assert "patch" not in webhook.mutate(old, **fields)


@pytest.mark.parametrize("subresource", POD_SUBRESOURCES)
def test_23_a_subresource_may_be_written_on_a_pod_that_broke_a_rule_before(webhook: Webhook, subresource: str) -> None:
    new = {**pod_of("bad"), "status": {"phase": "Running"}}
    response = webhook.validate(new, subResource=subresource, operation="UPDATE", oldObject=pod_of("bad"))
    assert response["allowed"]


def test_23_an_ephemeral_container_that_asks_for_a_gpu_is_found(webhook: Webhook) -> None:
    old: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a"}]},
    }
    new = copy.deepcopy(old)
    new["spec"]["ephemeralContainers"] = [{"name": "debug", "resources": {"limits": {GPU: 1}}}]
    response = webhook.validate(new, subResource="ephemeralcontainers", operation="UPDATE", oldObject=old)
    assert response["allowed"] is False
    assert response["status"]["code"] == 403


OTHER_SUBRESOURCES = [
    ("eviction", "CREATE", ("policy", "v1", "Eviction"), {"deleteOptions": {}}),
    ("exec", "CONNECT", ("", "v1", "PodExecOptions"), {"command": ["sh"], "container": "main"}),
    ("attach", "CONNECT", ("", "v1", "PodAttachOptions"), {"stdin": True}),
    ("portforward", "CONNECT", ("", "v1", "PodPortForwardOptions"), {"ports": [80]}),
    ("scale", "UPDATE", ("autoscaling", "v1", "Scale"), {"spec": {"replicas": 3}}),
    ("status", "UPDATE", ("apps", "v1", "Deployment"), {"metadata": {"name": "d"}, "status": {"replicas": 1}}),
]


@pytest.mark.parametrize(("subresource", "operation", "kind", "body"), OTHER_SUBRESOURCES, ids=lambda v: str(v)[:20])
def test_23_subresources_that_carry_no_pod_are_allowed(
    webhook: Webhook, subresource: str, operation: str, kind: tuple[str, str, str], body: dict[str, Any]
) -> None:
    names = dict(zip(("group", "version", "kind"), kind, strict=True))
    item = {"metadata": {"name": "train"}, **body, "kind": kind[2], "apiVersion": "/".join(filter(None, kind[:2]))}
    for half in (webhook.mutate, webhook.validate):
        response = half(item, kind=names, subResource=subresource, operation=operation)
        assert response["allowed"]
        assert "patch" not in response


@pytest.mark.parametrize(("username", "allowed"), [("system:kube-scheduler", True), ("dana", False)])
def test_23_a_binding_is_judged_by_who_makes_it(webhook: Webhook, username: str, allowed: bool) -> None:
    item = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "train"}, "target": {"name": "t4-shared"}}
    names = {"group": "", "version": "v1", "kind": "Binding"}
    fields: dict[str, Any] = {"kind": names, "subResource": "binding", "userInfo": {"username": username}}
    assert webhook.mutate(item, **fields)["allowed"]
    assert webhook.validate(item, **fields)["allowed"] is allowed


def test_24_a_patch_by_a_user_is_judged_as_an_update(webhook: Webhook) -> None:
    fields = {"operation": "UPDATE", "options": {"kind": "PatchOptions", "fieldManager": "kubectl", "force": True}}
    assert not webhook.validate(pod_of("bad"), oldObject=pod_of(1), **fields)["allowed"]
    assert "patch" not in webhook.mutate(pod_of(), oldObject=pod_of(), **fields)


def test_24_an_applied_object_is_judged_as_a_created_one(webhook: Webhook) -> None:
    options = {"kind": "PatchOptions", "fieldManager": "kubectl", "force": True}
    assert webhook.mutate(pod_of(), options=options) == webhook.mutate(pod_of())


@pytest.mark.parametrize("amount", [1, 2, "bad"])
def test_25_a_dry_run_gets_the_same_answer(webhook: Webhook, amount: Any) -> None:
    for half in (webhook.mutate, webhook.validate):
        assert half(pod_of(amount), dryRun=True) == half(pod_of(amount), dryRun=False)
    assert decode(orjson.dumps(review_of(pod_of(), dryRun=True))).dry_run
    assert not decode(orjson.dumps(review_of(pod_of(), dryRun=None))).dry_run


USERS: list[Any] = [
    None,
    {},
    {"username": "jane"},
    {"username": "jane", "extra": {"scopes": ["canary"]}},
    {"username": "system:admin", "groups": ["system:masters"], "uid": "canary"},
    {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": None},
]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("amount", [1, "bad"])
def test_26_who_asks_changes_nothing_and_is_not_repeated(webhook: Webhook, user: Any, amount: Any) -> None:
    for half in (webhook.mutate, webhook.validate):
        response = half(pod_of(amount), userInfo=user)
        assert response == half(pod_of(amount))
        assert "canary" not in json.dumps(response)


def test_27_trust_needs_nothing_but_facts_about_the_namespace(webhook: Webhook) -> None:
    pod = pod_of()
    pod["metadata"]["labels"] = {TRUST: "trusted"}
    unknown = webhook.validate(pod, namespace="nowhere")
    assert "unearned-trust" in unknown["status"]["message"]
    assert "unearned-trust" not in webhook.validate(pod, namespace="vision")["status"]["message"]


def test_28_unknown_fields_are_ignored(webhook: Webhook) -> None:
    review = review_of(pod_of(), future={"a": [1]}, requestSubResource="", fieldValidation="Strict")
    review["future"] = True
    review["request"]["kind"]["future"] = 1
    review["request"]["object"]["spec"]["future"] = {"deep": [None]}
    review["request"]["object"]["spec"]["containers"][0]["resources"]["future"] = 1
    assert patch_of(webhook.answer(review, "mutate")) == patch_of(webhook.mutate(pod_of()))


# C. Response


@pytest.mark.parametrize("half", ["mutate", "validate", "judge"])
@pytest.mark.parametrize("uid", ["705ab4f5-6393-11e8-b7cc-42010a800002", "x" * 128, 'é"\\\n'])
def test_29_the_uid_is_echoed(webhook: Webhook, half: str, uid: str) -> None:
    items: list[Any] = [pod_of(), pod_of("bad"), {"spec": []}]
    for item in items:
        response = webhook.answer(review_of(item, uid=uid), half)
        assert response["uid"] == uid
        assert isinstance(response["allowed"], bool)


def test_30_a_patch_comes_with_its_type_and_an_empty_one_with_none(webhook: Webhook) -> None:
    response = webhook.mutate(pod_of())
    assert response["patchType"] == "JSONPatch"
    operations = patch_of(response)
    assert operations
    outcome = jsonpatch.apply_patch(pod_of(), operations)
    again = webhook.mutate(outcome)
    assert set(again) == {"uid", "allowed"}


@pytest.mark.parametrize("amount", [1, 2, "bad"])
def test_31_validation_never_patches(webhook: Webhook, amount: Any) -> None:
    response = webhook.validate(pod_of(amount))
    assert not response["allowed"]
    assert not {"patch", "patchType"} & set(response)


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", "UPDATE"])
def test_32_nothing_but_a_creation_is_patched(webhook: Webhook, operation: str) -> None:
    response = webhook.mutate(pod_of(), operation=operation, oldObject=pod_of())
    assert set(response) == {"uid", "allowed"}


BARE: list[dict[str, Any]] = [
    {},
    {"nodeSelector": None, "tolerations": None, "affinity": None},
    {"nodeSelector": {}, "tolerations": [], "affinity": {}},
    {"affinity": {"nodeAffinity": None}},
    {"affinity": {"nodeAffinity": {}}},
    {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": None}}},
    {"affinity": {"podAntiAffinity": {}}},
    {"nodeSelector": {"zone/a~b": "c"}, "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}]},
]


@pytest.mark.parametrize("spec", BARE)
@pytest.mark.parametrize("namespace", ["vision", "visitors"])
def test_33_34_a_patch_applies_whatever_parents_are_missing(
    webhook: Webhook, spec: dict[str, Any], namespace: str
) -> None:
    pod = pod_of(**spec)
    pod["metadata"] = {"name": "train", "annotations": {TRUST: "trusted"} if namespace == "vision" else None}
    outcome = jsonpatch.apply_patch(pod, patch_of(webhook.mutate(pod, namespace=namespace)))
    assert webhook.validate(outcome, namespace=namespace)["allowed"]


def test_34_slashes_in_keys_are_escaped_and_lists_grow_at_their_end(webhook: Webhook) -> None:
    pod = pod_of(nodeSelector={"zone": "a"}, tolerations=[{"key": "own"}])
    paths = {operation["path"]: operation["op"] for operation in patch_of(webhook.mutate(pod))}
    assert paths["/spec/nodeSelector/nvidia.com~1gpu.sharing-strategy"] == "add"
    assert paths["/spec/tolerations/-"] == "add"


def test_35_a_patch_holds_no_more_than_is_missing(webhook: Webhook) -> None:
    pod = pod_of()
    whole = jsonpatch.apply_patch(pod, patch_of(webhook.mutate(pod)))
    del whole["spec"]["nodeSelector"]["nvidia.com/gpu.sharing-strategy"]
    (operation,) = patch_of(webhook.mutate(whole))
    assert operation["path"] == "/spec/nodeSelector/nvidia.com~1gpu.sharing-strategy"


def test_36_a_breach_of_the_policy_is_forbidden(webhook: Webhook) -> None:
    response = webhook.validate(pod_of(2))
    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert "spec.containers[0].resources.limits[nvidia.com/gpu]" in webhook.validate(pod_of("x"))["status"]["message"]


@pytest.mark.parametrize(
    ("item", "place"),
    [
        ({"spec": []}, "spec"),
        ({"spec": {"containers": {}}}, "spec.containers"),
        ({"spec": {"containers": [1]}}, "spec.containers[0]"),
        ({"metadata": 1, "spec": {}}, "metadata"),
        ({"spec": {"containers": [{"resources": {"limits": []}}]}}, "spec.containers[0].resources.limits"),
    ],
)
def test_36_an_object_of_the_wrong_shape_is_invalid(webhook: Webhook, item: dict[str, Any], place: str) -> None:
    response = webhook.validate(item)
    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(f"{place}: must be ")
    assert webhook.mutate(item) == {"uid": response["uid"], "allowed": True}


def test_37_a_denial_asks_for_no_retry(webhook: Webhook) -> None:
    items: list[Any] = [pod_of(2), pod_of("bad"), {"spec": []}]
    for item in items:
        assert set(webhook.validate(item)["status"]) == {"code", "reason", "message"}


def test_38_an_answer_that_allows_has_no_status(webhook: Webhook) -> None:
    warned = webhook.under(Action.WARN).validate(pod_of(2))
    assert warned["allowed"] is True
    assert "status" not in warned


HOSTILE_OBJECTS = [
    pod_of(HOSTILE),
    pod_of(1, resource=f"nvidia.com/mig-{HOSTILE}"),
    pod_of(2, resource=f"nvidia.com/mig-{HOSTILE}"),
    pod_of(1, nodeSelector={"nvidia.com/gpu.sharing-strategy": HOSTILE}),
    pod_of(1, serviceAccountName=HOSTILE),
    {**pod_of(), "metadata": {"annotations": {TRUST: HOSTILE}}},
    {**pod_of(), "metadata": {"namespace": HOSTILE, "annotations": {TRUST: "trusted"}}},
    pod_of(
        containers=[
            {
                "resources": {"limits": {GPU: 1}},
                "env": [
                    {"name": "PYTORCH_ALLOC_CONF", "value": HOSTILE},
                    {"name": "TF_FORCE_GPU_ALLOW_GROWTH", "value": HOSTILE},
                    {"name": "XLA_PYTHON_CLIENT_MEM_FRACTION", "value": HOSTILE},
                ],
            }
        ]
    ),
    pod_of(containers=[{"resources": {HOSTILE: 1, "limits": {HOSTILE: {}, f"nvidia.com/mig-{HOSTILE}": []}}}]),
    {"spec": {"nodeSelector": {HOSTILE: 1}}, **{k: v for k, v in pod_of().items() if k != "spec"}},
    {
        **CONFIG_MAP,
        "data": {HOSTILE: "a: [\x1b", "b": "a: &\x1b", "c": f"timeSlicing: {json.dumps({HOSTILE: HOSTILE})}"},
        "binaryData": {HOSTILE: "bm90IGEgbWFw"},
    },
    {
        **CONFIG_MAP,
        "data": {"a": json.dumps({"version": HOSTILE, "sharing": {"mps": {"resources": [{"replicas": HOSTILE}]}}})},
    },
]


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("index", range(len(HOSTILE_OBJECTS)))
def test_39_no_text_of_a_tenant_puts_a_control_character_into_an_answer(
    webhook: Webhook, index: int, action: Action
) -> None:
    response = webhook.under(action).validate_at_home(HOSTILE_OBJECTS[index])
    texts = [
        *response.get("warnings", []),
        *response.get("auditAnnotations", {}).values(),
        *(response["status"]["message"].splitlines() if "status" in response else []),
    ]
    assert texts
    for text in texts:
        assert text.isprintable(), repr(text)
        assert text.isascii()


def test_39_40_warnings_are_few_short_and_different(webhook: Webhook) -> None:
    lenient = webhook.under(Action.WARN)
    for item in (many_bad(500), many_bad(9), pod_of("bad"), pod_of("x" * 10_000), pod_of(2)):
        warnings = lenient.validate(item)["warnings"]
        assert 1 <= len(warnings) <= 8
        assert len(set(warnings)) == len(warnings)
        assert all(0 < len(text) <= 256 for text in warnings)


def test_39_equal_warnings_are_given_once() -> None:
    request = decode(orjson.dumps(review_of(pod_of())))
    long = [Finding(("spec",), "x" * 300 + end) for end in ("a", "b")]
    verdict = Verdict(tuple(Result("r", Action.WARN, finding) for finding in (*long, *long)))
    (warning,) = json.loads(encode(request, verdict))["response"]["warnings"]
    assert len(warning) == MAX_WARNING


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), max_size=20))
def test_40_warnings_keep_their_order_and_bounds(messages: list[str]) -> None:
    request = decode(orjson.dumps(review_of(pod_of())))
    results = tuple(Result("r", Action.WARN, Finding(("spec",), text)) for text in messages)
    warnings = json.loads(encode(request, Verdict(results)))["response"].get("warnings", [])
    assert warnings == list(dict.fromkeys(_short(result.text) for result in results))[:MAX_WARNINGS]


def _short(text: str) -> str:
    return text if len(text) <= MAX_WARNING else text[: MAX_WARNING - 3] + "..."


def test_40_a_denial_still_warns_of_the_rest(sample_policy: Policy, sample_facts: Facts) -> None:
    actions = {**sample_policy.actions, "unsteered-pod": Action.WARN}
    mixed = Webhook(Engine(replace(sample_policy, actions=actions), walk()), sample_facts)
    response = mixed.validate(pod_of("bad"))
    assert response["status"]["message"].startswith("3 findings:\n- multiple-slices: ")
    assert [text.split(":")[0] for text in response["warnings"]] == ["unsteered-pod"]


def test_41_42_audit_annotations_have_stable_keys_and_short_values(webhook: Webhook) -> None:
    audit = webhook.under(Action.AUDIT)
    for item in (many_bad(500), pod_of("x" * 10_000), pod_of(2)):
        response = audit.validate(item)
        assert response["allowed"]
        assert "warnings" not in response
        annotations = response["auditAnnotations"]
        assert annotations
        assert set(annotations) <= {rule.id for rule in walk()}
        for key, value in annotations.items():
            assert len(key) <= 63
            assert key.replace("-", "").isalnum()
            assert 0 < len(value.encode()) <= MAX_ANNOTATION == 1024


def test_41_a_second_round_audits_the_same(webhook: Webhook) -> None:
    audit = webhook.under(Action.AUDIT)
    first = audit.validate(many_bad(3))
    assert audit.validate(many_bad(3), uid="another")["auditAnnotations"] == first["auditAnnotations"]


@pytest.mark.parametrize("item", [pod_of(), pod_of("bad")], ids=["fine", "malformed"])
@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("half", ["mutate", "validate"])
def test_41_every_answer_says_by_which_policy(webhook: Webhook, item: Any, action: Action, half: str) -> None:
    judging = webhook.under(action)
    request = decode(orjson.dumps(review_of(item)))
    answer = encode(request, getattr(judging.engine, half)(request, judging.facts), "0123456789abcdef")
    annotations = json.loads(answer)["response"]["auditAnnotations"]
    assert annotations["policy"] == "0123456789abcdef"
    assert "policy" not in {rule.id for rule in walk()}


def test_42_43_no_environment_value_is_repeated(webhook: Webhook) -> None:
    pod = pod_of()
    pod["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "canary"}]
    pod["metadata"]["annotations"]["note"] = "canary"
    operations = patch_of(webhook.mutate(pod))
    assert operations
    assert "canary" not in json.dumps(operations)
    for action in Action:
        assert "canary" not in json.dumps(webhook.under(action).validate(pod))


def test_94_a_denial_reads_the_same_at_every_retry(webhook: Webhook) -> None:
    messages = {webhook.validate(many_bad(20), uid=str(n))["status"]["message"] for n in range(3)}
    assert len(messages) == 1


LARGE = [
    many_bad(500),
    many_bad(500, "nvidia.com/mig-1g.10gb"),
    many_bad(2, "nvidia.com/mig-" + "x" * 200_000),
    pod_of("9" * 200_000),
    pod_of(1, resource="nvidia.com/mig-" + "é" * 200_000),
    pod_of("1e999"),
    pod_of(1, serviceAccountName="x" * 200_000),
    pod_of(1, nodeSelector={"nvidia.com/gpu.sharing-strategy": "x" * 200_000}),
    {**pod_of(), "metadata": {"annotations": {TRUST: "x" * 200_000}}},
    pod_of(containers=[{"resources": {"limits": {f"nvidia.com/mig-{n}": 1 for n in range(5000)}}}]),
    {"spec": {"nodeSelector": {"x" * 200_000: 1}}},
    {**CONFIG_MAP, "data": {"x" * 200_000: "a: ["}},
    {**CONFIG_MAP, "data": {"a": "b: *" + "x" * 200_000}},
    {**CONFIG_MAP, "data": {"a": json.dumps({"sharing": {"mps": {"x" * 200_000: 1, "resources": [1] * 50_000}}})}},
    {**CONFIG_MAP, "data": {f"k{n}": "sharing: 1" for n in range(5000)}},
]


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("index", range(len(LARGE)))
def test_14_an_answer_is_small_however_much_is_wrong(webhook: Webhook, index: int, action: Action) -> None:
    response = webhook.under(action).validate_at_home(LARGE[index])
    assert {"status", "warnings", "auditAnnotations"} & set(response)
    assert len(json.dumps(response).encode()) < 64 * 1024


def test_14_a_denial_says_how_much_it_left_out(webhook: Webhook) -> None:
    message = webhook.validate(many_bad(100))["status"]["message"]
    shown = message.count("is not a whole number")
    assert 1 < shown < 100
    left_out = re.search("\nand ([0-9]+) more$", message)
    assert left_out
    assert message.startswith("201 findings:\n- multiple-slices: ")
    assert message.count("\n") == shown + 1
    assert shown + int(left_out[1]) == 201  # two for each container, and one for the steering that is missing
    assert len(message) < 8192


def test_several_findings_are_a_list_and_one_is_a_line() -> None:
    one, two = (Result("r", Action.DENY, Finding(("spec",), text)) for text in ("is wrong", "is bad"))
    assert message_of(Verdict((one, one))) == "r: spec: is wrong"
    assert message_of(Verdict((one, two))) == "2 findings:\n- r: spec: is wrong\n- r: spec: is bad"


@pytest.mark.parametrize("item", [pod_of(2), {"spec": []}], ids=["denied", "malformed"])
def test_every_denial_ends_in_where_to_ask_for_help_and_nothing_else_does(webhook: Webhook, item: Any) -> None:
    request = decode(orjson.dumps(review_of(item)))
    verdict = webhook.engine.validate(request, webhook.facts)
    plain, helped = (json.loads(encode(request, verdict, "", text))["response"] for text in ("", "#gpu-help"))
    assert helped["status"]["message"] == plain["status"]["message"] + "\nFor help: #gpu-help"
    allowed = encode(request, webhook.under(Action.WARN).engine.mutate(request, webhook.facts), "", "#gpu-help")
    assert b"gpu-help" not in allowed


# Hostile bytes

BYTES = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b"1",
    b'"AdmissionReview"',
    b"{",
    b'{"kind": "AdmissionReview"}',
    b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
    b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": null}',
    b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": []}',
    b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "a"}}',
    b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "a", "kind": "Pod"}}',
    json.dumps(review_of(pod_of())).encode("utf-16"),
    json.dumps(review_of(pod_of())).encode("utf-32"),
    b"\xef\xbb\xbf" + json.dumps(review_of(pod_of())).encode(),
    json.dumps(review_of(pod_of())).encode() + b"{}",
    json.dumps(review_of(pod_of())).encode()[:-1],
    json.dumps(review_of(pod_of("\ud800"))).encode(),
    json.dumps(review_of(pod_of("caf\u00e9")), ensure_ascii=False).encode("latin-1"),
    json.dumps(review_of(pod_of(float("nan")))).encode(),
    json.dumps(review_of(pod_of(float("inf")))).encode(),
    json.dumps(review_of(pod_of())).replace("'", '"').replace('"CREATE"', "'CREATE'").encode(),
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"\x00" * 100,
    b"\xff\xfe",
]


@pytest.mark.parametrize("body", BYTES, ids=[repr(body[:24]) for body in BYTES])
def test_bytes_that_are_no_admission_review_are_refused(body: bytes) -> None:
    with pytest.raises(NotAReview) as raised:
        decode(body)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize("key", ["operation", "subResource", "namespace", "name"])
@pytest.mark.parametrize("value", [1, True, [], {}])
def test_a_request_field_of_the_wrong_type_is_refused(key: str, value: Any) -> None:
    with pytest.raises(NotAReview, match=key):
        decode(orjson.dumps(review_of(pod_of(), **{key: value})))


@pytest.mark.parametrize("key", ["object", "oldObject"])
@pytest.mark.parametrize("value", [1, "text", [], True])
def test_an_object_of_another_json_type_is_refused(key: str, value: Any) -> None:
    with pytest.raises(NotAReview, match=key):
        decode(orjson.dumps(review_of(pod_of(), **{key: value})))


def nested(depth: int, inner: Any = 1) -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


DEEP = [
    lambda deep: pod_of(deep),
    lambda deep: {**pod_of(), "metadata": {"annotations": {TRUST: deep}}},
    lambda deep: pod_of(containers=[{"resources": {"limits": {GPU: deep}, "requests": {GPU: copy.copy(deep)}}}]),
    lambda deep: pod_of(containers=[{"resources": {"limits": {GPU: 1}}, "env": [{"name": deep, "value": deep}]}]),
    lambda deep: pod_of(nodeSelector={"a": deep}),
    lambda deep: pod_of(tolerations=[{"key": deep, "operator": deep, "value": deep}]),
    lambda deep: pod_of(affinity={"nodeAffinity": deep}),
    lambda deep: pod_of(future=deep),
]


def deep_review(index: int, depth: int) -> bytes:
    return json.dumps(review_of(DEEP[index]("DEEP"))).replace('"DEEP"', "[" * depth + "]" * depth).encode()


@pytest.mark.parametrize("index", range(len(DEEP)))
def test_a_review_that_is_nested_too_deeply_is_refused(index: int) -> None:
    with pytest.raises(NotAReview, match="not JSON: "):
        decode(deep_review(index, 1100))


@pytest.mark.parametrize("depth", [50, 500, 900, 950, 980, 1000])
@pytest.mark.parametrize("index", range(len(DEEP)))
def test_a_review_at_the_limit_of_depth_is_answered(webhook: Webhook, index: int, depth: int) -> None:
    request = decode(deep_review(index, depth))
    for half in ("mutate", "validate", "judge"):
        verdict = getattr(webhook.engine, half)(request, webhook.facts)
        assert json.loads(encode(request, verdict))["response"]["uid"] == request.uid


def test_of_two_equal_keys_the_last_counts() -> None:
    body = json.dumps(review_of(pod_of())).replace('"limits": {', '"limits": {"nvidia.com/gpu": "bad", ').encode()
    assert len(body) > len(json.dumps(review_of(pod_of())))
    assert decode(body).object == pod_of()  # the last counts, as for the API server


FALSY: list[Any] = ["", 0, False, [], {}, 0.0]


@pytest.mark.parametrize("value", FALSY, ids=repr)
@pytest.mark.parametrize(
    "key", ["affinity", "nodeSelector", "tolerations", "containers", "initContainers", "serviceAccountName"]
)
def test_an_empty_value_of_the_wrong_type_is_no_way_around(webhook: Webhook, key: str, value: Any) -> None:
    pod = pod_of(**{key: value})
    right = {"containers": list, "initContainers": list, "tolerations": list, "serviceAccountName": str}.get(key, dict)
    response = webhook.validate(pod)
    assert webhook.mutate(pod)["allowed"]
    assert (response.get("status", {}).get("code") == 422) is not isinstance(value, right)


@settings(max_examples=2 * settings().max_examples)
@given(review=broken_reviews())
@example(review=review_of(pod_of(affinity="")))
@example(review=review_of(pod_of(affinity=[])))
@example(review=review_of(pod_of(containers=[{**pod_of()["spec"]["containers"][0], "envFrom": [None]}])))
@example(review=review_of(pod_of(containers=[None, {"env": [None], "resources": {"limits": {GPU: 1}}}])))
def test_a_review_with_wrong_types_anywhere_is_answered_or_refused(
    engine: Engine, sample_facts: Facts, review: Any
) -> None:
    try:
        body = orjson.dumps(review)
        request = decode(body)
    except NotAReview:
        return
    for half in (engine.mutate, engine.validate, engine.judge):
        verdict = half(request, sample_facts)
        response = json.loads(encode(request, verdict))["response"]
        assert response["uid"] == request.uid
        assert response["allowed"] is verdict.allowed
        if not response["allowed"]:
            assert response["status"]["code"] in (403, 422)
            assert response["status"]["message"].replace("\n- ", "").isprintable()
        if verdict.patch:
            jsonpatch.apply_patch(copy.deepcopy(request.object), list(verdict.patch))


@given(body=st.one_of(st.binary(max_size=60), json_values().map(lambda value: json.dumps(value).encode())))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    with pytest.raises(NotAReview):
        decode(body)


# wrap, by which files come the same way


def test_a_wrapped_object_is_read_as_its_creation() -> None:
    request = decode(wrap(workload("CronJob", pod_of())))
    assert (request.operation, request.group, request.version, request.kind) == ("CREATE", "batch", "v1", "CronJob")
    assert (request.name, request.namespace, request.subresource) == ("w", "vision", "")
    assert request.object == workload("CronJob", pod_of())
    assert request.old_object is None


@pytest.mark.parametrize("value", ["\ud800", 2**64, -(2**63) - 1, nested(2000)], ids=["text", "big", "small", "deep"])
def test_a_value_that_json_cannot_carry_is_no_review(value: Any) -> None:
    with pytest.raises(NotAReview):
        wrap(pod_of(value))


@given(json_values())
def test_any_json_value_survives_being_wrapped(value: Any) -> None:
    assert decode(wrap({**pod_of(), "future": value})).object == {**pod_of(), "future": value}


def test_a_malformed_object_is_refused_in_one_line() -> None:
    request = decode(orjson.dumps(review_of(pod_of())))
    error = Malformed(("spec", HOSTILE, 0), "must be a map")
    status = json.loads(encode(request, Verdict(malformed=error)))["response"]["status"]
    assert status["message"].replace("\n- ", "").isprintable()
    assert status["code"] == 422


@pytest.mark.parametrize(("part", "marks"), [({}, 2), ([], 2), (0, 1), ("x", 1), ({"a": 1, "b": [2]}, 4)])
def test_more_values_than_there_is_memory_and_time_for_are_refused_unread(part: Any, marks: int) -> None:
    item: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"many": []}}
    around = sum(wrap(item).count(mark) for mark in (b"{", b"[", b",")) - 1  # the last part has no comma
    most = (MAX_PARTS - around) // marks
    item["spec"] = {"many": [part] * most}
    decode(wrap(item))
    item["spec"] = {"many": [part] * (most + 1)}
    with pytest.raises(NotAReview, match=f"more than {MAX_PARTS} values"):
        decode(wrap(item))


@pytest.mark.parametrize("text", ['a"{[,"\\', "\\\\", '"', '\\"{', "{[,"])
def test_braces_and_commas_in_strings_are_not_counted_as_values(text: str) -> None:
    item = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"text": text * 300_000, "n": "{,"}}
    assert decode(wrap(item)).object == item
