"""Who may be trusted: in which pools, at whose asking, and with whom a pool is shared."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.support.policies import policy_of
from webhook.api import admission
from webhook.api.objects import unpaid
from webhook.api.pods import COUNTS, Pod
from webhook.catalog.gpu_requests import ADMIN_ACCESS
from webhook.catalog.places import EACH_ITEM, EACH_VALUE, keys
from webhook.catalog.workloads import BUILT_IN, CUSTOM
from webhook.documents import documents
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.placement import HARMLESS
from webhook.model import Action, Request, Requester, Unusable
from webhook.policy.scopes import CONTROLLERS, Requesters
from webhook.rules import walk

TRUST = "slicewarden.dev/trust"

POLICY = """\
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: grants}
spec:
  trust:
    grants:
      - {namespaces: [vision], pools: [inner]}
      - {namespaces: [audio], pools: [inner, outer]}
      - {namespaces: [speech]}
      - {namespaces: [studio], users: [mia], groups: [artists]}
      - {namespaces: [studio], serviceAccounts: [nightly]}
  controllers: {users: ["system:serviceaccount:kubeflow:training-operator"]}
  pools:
    - name: inner
      sharing: time-slicing
      trust: [trusted]
      tenants: {namespaces: [vision, audio]}
      nodes: {matchLabels: {gpus: inner}}
      resources: [nvidia.com/gpu]
      assume: {memory: 15360Mi, replicas: 4}
    - name: outer
      sharing: time-slicing
      trust: [trusted]
      nodes: {matchLabels: {gpus: outer}}
      resources: [nvidia.com/gpu]
      assume: {memory: 15360Mi, replicas: 4}
    - name: lab
      sharing: none
      trust: [trusted, untrusted]
      tenants: {namespaceSelector: {matchLabels: {lab: "yes"}}}
      nodes: {matchLabels: {gpus: lab}}
      resources: [nvidia.com/gpu]
    - name: whole
      sharing: none
      trust: [untrusted]
      nodes: {matchLabels: {gpus: whole}}
      resources: [nvidia.com/gpu]
"""
LABELS = {"robotics": {"lab": "yes"}, "vision": {}, "audio": {}, "speech": {}, "studio": {}, "visitors": {}}
FACTS = Facts(namespaces=LABELS)


ENGINE = Engine(policy_of(POLICY), walk())


def pod(namespace: str, trust: str = "trusted", gpus: int = 1, account: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace, "annotations": {TRUST: trust}},
        "spec": {
            "serviceAccountName": account,
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}],
            **spec,
        },
    }


def sent(item: dict[str, Any], requester: Requester | None = None) -> Request:
    """The request that creates an object; by nobody if nobody is named."""
    return replace(admission.decode(admission.wrap(item)), requester=requester)


def placed(namespace: str, trust: str = "trusted", gpus: int = 1, **spec: Any) -> str | set[str]:
    """The pool a pod is steered to, or what is said against it."""
    verdict = ENGINE.judge(sent(pod(namespace, trust, gpus, **spec)), FACTS)
    if not verdict.allowed:
        return {result.rule for result in verdict.having(Action.DENY)}
    (selector,) = [op["value"] for op in verdict.patch if op["path"].startswith("/spec/nodeSelector")]
    return str(selector["gpus"] if isinstance(selector, dict) else selector)


# Pools


@pytest.mark.parametrize(
    ("namespace", "trust", "pool"),
    [
        ("vision", "trusted", "inner"),
        ("audio", "trusted", "inner"),
        ("speech", "trusted", "outer"),  # it is not of the tenants
        ("vision", "untrusted", "whole"),
        ("robotics", "untrusted", "lab"),  # the first that takes it
        ("visitors", "untrusted", "whole"),
    ],
)
def test_the_first_pool_that_the_namespace_may_share_is_used(namespace: str, trust: str, pool: str) -> None:
    assert placed(namespace, trust) == pool


def test_of_two_pools_a_pod_may_choose_where_both_are_granted() -> None:
    verdict = ENGINE.judge(sent(pod("audio", nodeSelector={"gpus": "outer"})), FACTS)
    assert verdict.allowed
    assert not any(op["path"].startswith("/spec/nodeSelector") for op in verdict.patch)


@pytest.mark.parametrize(
    ("namespace", "chosen"), [("vision", "outer"), ("speech", "inner"), ("visitors", "inner"), ("visitors", "lab")]
)
def test_no_pod_chooses_itself_into_a_pool(namespace: str, chosen: str) -> None:
    trust = "trusted" if namespace != "visitors" else "untrusted"
    assert placed(namespace, trust, nodeSelector={"gpus": chosen}) == {"unsteered-pod"}


def test_where_trust_was_not_granted_a_pod_is_untrusted() -> None:
    """Two GPUs are no slice: the pod goes to a pool of whole ones, where vision has no trust."""
    assert placed("vision", gpus=2) == "whole"


def test_the_refusals_of_all_pools_are_in_the_message() -> None:
    item = pod("vision")
    item["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu.shared": 1}
    text = POLICY.replace("resources: [nvidia.com/gpu]", "resources: [nvidia.com/gpu.shared]", 3)
    text = text.replace("tenants: {namespaces: [vision, audio]}", "tenants: {namespaces: [audio]}")
    (denied,) = Engine(policy_of(text), walk()).judge(sent(item), FACTS).having(Action.DENY)
    assert (
        "no pool takes a trusted pod with 1 of nvidia.com/gpu.shared: pool inner is shared among other namespaces, "
        "pool outer is not one where the pod may be trusted, pool lab is shared among other namespaces, "
        "pool whole does not offer nvidia.com/gpu.shared;"
    ) in denied.finding.message


def test_tenants_by_labels_need_the_labels_known() -> None:
    verdict = ENGINE.judge(sent(pod("robotics", "untrusted", nodeSelector={"gpus": "lab"})), Facts())
    assert not verdict.allowed


# Requesters

MIA, ARTIST = Requester("mia", frozenset()), Requester("theo", frozenset({"artists"}))
OPERATOR = Requester("system:serviceaccount:kubeflow:training-operator", frozenset({"system:serviceaccounts"}))
DANA = Requester("dana", frozenset({"system:authenticated"}))


def denied(item: dict[str, Any], requester: Requester | None) -> set[str]:
    verdict = ENGINE.judge(sent(item, requester), FACTS)
    return {result.rule for result in verdict.having(Action.DENY)}


def deployment(item: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "d", "namespace": item["metadata"]["namespace"]}
    template = {"metadata": {"annotations": item["metadata"]["annotations"]}, "spec": item["spec"]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template}}


@pytest.mark.parametrize("kind", [dict, deployment], ids=["pod", "deployment"])
@pytest.mark.parametrize("requester", [MIA, ARTIST, OPERATOR, None], ids=["user", "group", "controller", "nobody"])
def test_a_grant_applies_to_the_requesters_that_it_names(kind: Any, requester: Requester | None) -> None:
    assert denied(kind(pod("studio")), requester) == set()


@pytest.mark.parametrize("kind", [dict, deployment], ids=["pod", "deployment"])
@pytest.mark.parametrize("name", ["dana", "system:serviceaccount:studio:default", "system:node:n", ""])
def test_a_grant_does_not_apply_to_other_requesters(kind: Any, name: str) -> None:
    assert "unearned-trust" in denied(kind(pod("studio")), Requester(name, frozenset({"system:authenticated"})))


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_a_grant_applies_to_kubernetes_own_controllers(name: str) -> None:
    assert denied(pod("studio"), Requester(name, frozenset())) == set()


def test_a_grant_without_requesters_applies_to_everyone() -> None:
    assert denied(pod("studio", account="nightly"), DANA) == set()
    assert denied(pod("speech"), DANA) == set()


def test_a_requester_alone_gives_no_trust() -> None:
    """Requesters only narrow a grant: mia's pods elsewhere are no more trusted than anyone's."""
    assert denied(pod("visitors"), MIA) >= {"unearned-trust"}


def test_a_stranger_may_ask_for_less() -> None:
    assert denied(pod("studio", "untrusted"), DANA) == set()


@given(
    namespace=st.sampled_from(sorted(LABELS)),
    trust=st.sampled_from(["trusted", "untrusted"]),
    name=st.sampled_from(["mia", "dana", "theo", *sorted(CONTROLLERS)]),
    groups=st.frozensets(st.sampled_from(["artists", "system:masters", "system:authenticated"])),
)
def test_knowing_the_requester_never_allows_more(namespace: str, trust: str, name: str, groups: frozenset[str]) -> None:
    """Knowing who asks only ever takes something away."""
    item = pod(namespace, trust)
    if denied(item, None):
        assert denied(item, Requester(name, groups))


# Updates by a requester that the grant does not name


def trusted_kind(text: str) -> Any:
    item = documents.read(text.replace("gpu.shared: 2", "gpu: 1"), "kind.yaml")[0][0].value
    return {**item, "metadata": {**item["metadata"], "namespace": "studio"}}


TRUSTED_KINDS = {
    file.stem: trusted_kind(text)
    for file in sorted((ROOT / "tests" / "kinds").glob("*.yaml"))
    if f"{TRUST}: trusted" in (text := file.read_text("utf-8"))
    and "namespace: vision" in text
    and file.stem not in ("pod", "openshift-template")
}
"""An object of every kind whose pods may be trusted, in a namespace where mia may ask for trust."""


each_kind = pytest.mark.parametrize("kind", TRUSTED_KINDS)


def update(new: dict[str, Any], old: dict[str, Any], requester: Requester = DANA) -> set[str]:
    """The rules that deny an update."""
    asked = replace(sent(new, requester), operation="UPDATE", old_object=old)
    return {result.rule for result in ENGINE.judge(asked, FACTS).having(Action.DENY)}


def changes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value with one place of it changed, and the path of that place: another scalar, or one more key."""
    if isinstance(value, dict):
        yield (*path, "image"), {**value, "image": {"repository": "example.com/mine", "tag": "1"}}
        for key, each in value.items():
            yield from ((at, {**value, key: one}) for at, one in changes(each, (*path, key)))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from ((at, [*value[:index], one, *value[index + 1 :]]) for at, one in changes(each, (*path, index)))
    elif isinstance(value, str):
        yield path, f"{value}x"
    elif isinstance(value, bool):
        yield path, not value
    elif isinstance(value, int):
        yield path, value + 1


@each_kind
def test_a_stranger_changes_nothing_that_a_trusted_workload_runs(kind: str) -> None:
    """Whatever the place is, in the table of kinds or not. Kubernetes' own kinds say all in the template."""
    old = TRUSTED_KINDS[kind]
    own = (old["apiVersion"].rpartition("/")[0], old["kind"]) in BUILT_IN
    assert update(old, old, MIA) == update(old, old) == set()
    described = {key: value for key, value in old.items() if key not in ("apiVersion", "kind", "metadata")}
    tried = 0
    for path, new in changes(described):
        if "metadata" in path or "kind" in path or "apiVersion" in path or path[-1] in COUNTS:
            continue
        if own and "containers" not in path:
            continue
        tried += 1
        assert update({**old, **new}, old) >= {"unearned-trust"} - update({**old, **new}, old, MIA), path
    assert tried > 2


@each_kind
def test_a_stranger_scales_and_labels_a_trusted_workload(kind: str) -> None:
    """So do autoscalers, queues and people who may edit it."""
    old = TRUSTED_KINDS[kind]
    if "spec" not in old:
        assert kind in ("kaito-workspace", "pod-template")  # these have no counts
        return
    counts = {"replicas": 3, "suspend": True, "minReplicas": 0, "parallelism": None}
    metadata = {**old["metadata"], "labels": {"team": "b"}, "finalizers": ["example.com/mine"]}
    new = {**old, "metadata": metadata, "spec": {**old["spec"], **counts}}
    assert update(new, old) == set()


@each_kind
def test_only_a_requester_or_a_controller_writes_the_status_of_a_trusted_workload(kind: str) -> None:
    """It may say what runs. Where it is a subresource, an API server keeps the old one (test_trust.py of tests/e2e)."""
    old = TRUSTED_KINDS[kind]
    own = (old["apiVersion"].rpartition("/")[0], old["kind"]) in BUILT_IN
    running, done = ({**old, "status": {"phase": phase}} for phase in ("Running", "Succeeded"))
    for before, after in ((old, running), (running, done), (done, old)):
        assert update(after, before, MIA) == update(after, before, OPERATOR) == set()
        assert own or "unearned-trust" in update(after, before)


def annotated(value: Any, **more: str) -> Any:
    """The same object with more annotations wherever it asks for trust."""
    if isinstance(value, list):
        return [annotated(each, **more) for each in value]
    if not isinstance(value, dict):
        return value
    return {**{key: annotated(each, **more) for key, each in value.items()}, **(more if TRUST in value else {})}


def renamed(value: Any, name: str) -> Any:
    """The same object with another name in place of the trust annotation's."""
    if isinstance(value, list):
        return [renamed(each, name) for each in value]
    if not isinstance(value, dict):
        return value
    return {name if key == TRUST else key: renamed(each, name) for key, each in value.items()}


@each_kind
@pytest.mark.parametrize("name", ["{{inputs.parameters.name}}", "slicewarden.dev/{{ workflow.parameters.a }}"])
def test_no_stranger_has_the_name_of_the_annotation_filled_in(kind: str, name: str) -> None:
    """Argo fills parameters into names too."""
    item = renamed(TRUSTED_KINDS[kind], name)
    assert "unearned-trust" in denied(item, DANA)
    assert "unearned-trust" in update(item, renamed(item, "example.com/a"))
    for requester in (MIA, OPERATOR, None):
        assert "unearned-trust" not in denied(item, requester)
    assert "unearned-trust" not in denied(renamed(TRUSTED_KINDS[kind], "example.com/a"), DANA)


INJECTED = ("slicewarden.dev/python-path", "slicewarden.dev/memory-shim", "dapr.io/sidecar-image", "example.com/any")


@each_kind
def test_a_stranger_changes_no_annotation_that_reaches_trusted_pods(kind: str) -> None:
    """Injectors, of this project and of others, run what these say."""
    old = TRUSTED_KINDS[kind]
    for name in INJECTED:
        assert "unearned-trust" in update(annotated(old, **{name: "off"}), old), name


@each_kind
def test_a_stranger_restarts_a_trusted_workload(kind: str) -> None:
    old = TRUSTED_KINDS[kind]
    template_of_operator = (old["apiVersion"].rpartition("/")[0], old["kind"]) not in BUILT_IN
    if template_of_operator and TRUST not in old["metadata"].get("annotations", {}):
        return  # only metadata of the object itself may change there
    for name in sorted(HARMLESS):
        assert update(annotated(old, **{name: "2026-01-01T00:00:00Z"}), old) == set(), name


def test_a_map_under_the_name_of_a_count_is_no_count() -> None:
    old = TRUSTED_KINDS["nim-service"]
    new = {**old, "spec": {**old["spec"], "replicas": {"image": "example.com/mine"}}}
    assert "unearned-trust" in update(new, old)


def test_an_update_is_compared_once_for_all_its_templates() -> None:
    """Else one object with a thousand templates would be compared a thousand times."""
    old = TRUSTED_KINDS["nim-pipeline"]
    new = {**old, "spec": {"services": old["spec"]["services"] * 3}}
    pods = [one for one in unpaid(sent(new), new, new) if isinstance(one, Pod)]
    (shared,) = {one.update for one in pods}
    assert len(pods) == 3
    assert shared is not None
    assert "counts_only" not in vars(shared)
    assert shared.counts_only
    assert "counts_only" in vars(shared)


# Trust that is asked for where the object has no template

OUTSIDE = sorted(
    {
        (one.group, one.kind, place)
        for one in CUSTOM.values()
        if not one.cluster_scoped
        for template in one.templates
        for place in template.metadata
        if place[:1] == "/"
    }
)


def outside(group: str, kind: str, place: str, trust: str = "trusted") -> dict[str, Any]:
    """An object that asks for trust at a place outside its templates, and names another object for them."""
    metadata: dict[str, Any] = {"name": "x", "namespace": "studio"}
    item: dict[str, Any] = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": {"ref": "a"}}
    holder = item
    for key in keys(place):
        holder = holder.setdefault(key, {})
    holder["annotations"] = {TRUST: trust}
    return item


@pytest.mark.parametrize(("group", "kind", "place"), OUTSIDE)
def test_trust_is_judged_where_another_object_has_the_template(group: str, kind: str, place: str) -> None:
    item = outside(group, kind, place)
    assert "unearned-trust" in denied(item, DANA)
    assert (
        denied(item, MIA) == denied(item, OPERATOR) == denied(outside(group, kind, place, "untrusted"), DANA) == set()
    )
    changed, scaled = ({**item, "spec": {**item["spec"], **new}} for new in ({"ref": "b"}, {"suspend": True}))
    assert "unearned-trust" in update(changed, item)
    assert update(scaled, item) == update(changed, item, MIA) == set()


METADATA = sorted(
    (one.group, one.kind, template.at)
    for one in CUSTOM.values()
    for template in one.templates
    if template.metadata_only and not one.cluster_scoped
)


def with_metadata(group: str, kind: str, place: str, annotations: dict[str, str]) -> dict[str, Any]:
    """An object with annotations at a place where nothing else of a pod is."""
    value: Any = {"annotations": annotations}
    for key in reversed(keys(place)):
        value = [value] if key == EACH_ITEM else {"x" if key == EACH_VALUE else key: value}
    metadata = {"name": "x", "namespace": "studio"}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "spec": {}, **value}


@pytest.mark.parametrize(("group", "kind", "place"), METADATA)
def test_trust_is_judged_where_nothing_but_metadata_is(group: str, kind: str, place: str) -> None:
    """Such as in a Workflow's status, which its author may write, and for the pods that delete its artifacts."""
    asking, plain = (with_metadata(group, kind, place, each) for each in ({TRUST: "trusted"}, {"example.com/a": "b"}))
    assert "unearned-trust" in denied(asking, DANA)
    assert "unearned-trust" in update(asking, plain)
    assert denied(plain, DANA) == update(plain, asking) == set()
    assert denied(asking, MIA) == denied(asking, OPERATOR) == update(asking, plain, OPERATOR) == set()


def test_a_workflow_has_such_metadata_in_its_status_and_for_its_artifacts() -> None:
    places = {place for _, kind, place in METADATA if kind == "Workflow"}
    assert {"spec.artifactGC.podMetadata", "status.storedWorkflowTemplateSpec.podMetadata"} <= places
    assert "status.storedTemplates.{}.metadata" in places


def test_the_account_that_a_workflow_names_is_covered_as_a_pods_is() -> None:
    item = outside("argoproj.io", "Workflow", "/spec.podMetadata")
    item["spec"]["serviceAccountName"] = "nightly"
    assert denied(item, DANA) == set()


# What is wrong with a policy


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pools: [inner]}", "pools: [iner]}", "spec.trust.grants[0].pools[0]: unknown pool, did you mean inner?"),
        ("namespaces: [studio], users: [mia]", "users: [mia]", "spec.trust.grants[3]: one of namespaces"),
        ("users: [mia]", "users: []", "spec.trust.grants[3].users: must not be empty"),
        (
            'matchLabels: {lab: "yes"}',
            "matchLabels: {}",
            "spec.pools[2].tenants.namespaceSelector: is empty, and would cover every namespace",
        ),
        ("tenants: {namespaces: [vision, audio]}", "tenants: {}", "spec.pools[0].tenants: must not be empty"),
        ("controllers: {users:", "controllers: {user:", "spec.controllers.user: unknown key, did you mean users?"),
    ],
)
def test_errors(old: str, new: str, message: str) -> None:
    assert POLICY.count(old) == 1
    with pytest.raises(Unusable) as raised:
        policy_of(POLICY.replace(old, new))
    assert message in str(raised.value)


def test_the_requesters_of_a_policy_are_read() -> None:
    more = """\
  schedulers: {users: [volcano], groups: [schedulers]}
  nodeLabellers: {users: [karpenter], selfRegistration: false}
"""
    policy = policy_of(POLICY.replace("  pools:\n", f"{more}  pools:\n", 1))
    assert policy.schedulers.users == {"system:kube-scheduler", "volcano"}
    assert policy.schedulers.groups == {"schedulers"}
    assert policy.node_labellers.users == {"karpenter"}
    assert policy.self_registration is False
    assert policy.controllers.users == CONTROLLERS | {OPERATOR.username}
    assert policy.namespace_keys == {"lab", ADMIN_ACCESS}
    assert policy_of(POLICY).self_registration is True


@pytest.mark.parametrize("allowed", [True, False])
def test_a_kubelet_may_be_kept_from_registering_in_a_pool(allowed: bool) -> None:
    engine = Engine(replace(ENGINE.policy, self_registration=allowed), walk())
    item = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"gpus": "inner"}}}
    kubelet = Requester("system:node:n", frozenset({"system:nodes"}))
    assert engine.judge(sent(item, kubelet), FACTS).allowed is allowed


def test_schedulers_of_the_policy_bind() -> None:
    policy = replace(ENGINE.policy, schedulers=Requesters(groups=frozenset({"schedulers"})))
    item = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}}
    for requester, allowed in ((DANA, False), (Requester("volcano", frozenset({"schedulers"})), True)):
        assert Engine(policy, walk()).judge(sent(item, requester), FACTS).allowed is allowed


@pytest.mark.parametrize("requester", [MIA, DANA, *(Requester(name, frozenset()) for name in sorted(CONTROLLERS))])
def test_a_grant_with_requesters_does_not_apply_to_the_default_trust(requester: Requester) -> None:
    """Else anyone's workload that says nothing would be let through, and its pods be trusted by default."""
    engine = Engine(policy_of(POLICY.replace("    grants:", "    default: trusted\n    grants:", 1)), walk())
    item = pod("studio")
    del item["metadata"]["annotations"]
    verdict = engine.judge(sent(item, requester), FACTS)
    assert verdict.allowed
    assert {"whole"} == {op["value"]["gpus"] for op in verdict.patch if op["path"] == "/spec/nodeSelector"}
