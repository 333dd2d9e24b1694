"""An update that lets a pod see GPUs is held to all that a new pod is, and there is no such update but two."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.evaluator.evaluator import Compared, Comparison, Evaluator, request_for
from tests.support.fixtures import FOLDERS, REFUSED, RULES, files_of, fixture
from tests.support.fixtures import settings as of_folder
from tests.support.later import may_see, updates
from webhook.catalog.device_variables import VISIBLE, VOID
from webhook.cel.clauses import RequestKind
from webhook.policy.model import Policy

Object = dict[str, Any]
Change = Callable[[Object], object]

TAINT = "slicewarden.dev/pool"


def pods(folder: str) -> list[tuple[str, Object]]:
    """The new pods among a rule's fixtures, which wait for a node."""
    found = [
        (file.stem, request_for(fixture(file)[0].value))
        for file in files_of(folder)
        if not REFUSED.search(file.read_text())
    ]
    return [
        (name, request["object"])
        for name, request in found
        if request["kind"]["kind"] == "Pod"
        and request["operation"] == "CREATE"
        and "nodeName" not in request["object"]["spec"]
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_denied_of_a_new_pod_is_denied_of_one_that_sees_gpus_later(evaluator: Evaluator, folder: str) -> None:
    policy, facts = of_folder(folder)
    comparison, created, later = Comparison(evaluator, policy, facts), Compared(), Compared()
    for name, pod in pods(folder):
        for update in updates(pod, policy):
            comparison.add(f"{name} {update.name}", request_for(update.new), created)
            change = {"operation": "UPDATE", "subResource": update.subresource, "oldObject": update.old}
            comparison.add(f"{name} {update.name}", request_for(update.new, **change), later)
    assert (later.wrong, later.differing) == ([], [])
    for rule in held(policy):  # the others are about other parts of an update too
        assert set(later.missed.get(rule, ())) <= set(created.missed.get(rule, ())), rule


def plain() -> Object:
    """A pod that can see no GPU, with a part of each sort that updates might change."""
    container = {
        "image": "i:1",
        "resources": {"limits": {"cpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "visitors", "labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {
            "activeDeadlineSeconds": 600,
            "containers": [{**container, "name": "main", "env": [{"name": "A", "value": "b"}]}],
            "initContainers": [{**container, "name": "init"}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"key": "other", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
        },
    }


def gated(pod: Object) -> Object:
    pod["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
    return pod


def bound(pod: Object) -> Object:
    pod["spec"]["nodeName"] = "node-1"
    return pod


def main(pod: Object) -> Object:
    found: Object = pod["spec"]["containers"][0]
    return found


def init(pod: Object) -> Object:
    found: Object = pod["spec"]["initContainers"][0]
    return found


DEBUG = {"name": "debug", "image": "i"}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "nvidia.com/gpu.present", "operator": "Exists"}]}]}
CHANGES: dict[str, tuple[str, Change]] = {
    "a toleration of the guard": (
        "",
        lambda pod: pod["spec"]["tolerations"].append({"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}),
    ),
    "a toleration of everything": ("", lambda pod: pod["spec"]["tolerations"].append({"operator": "Exists"})),
    "a toleration of another taint": (
        "",
        lambda pod: pod["spec"]["tolerations"].append({"key": "others", "operator": "Exists"}),
    ),
    "seconds of a toleration": ("", lambda pod: pod["spec"]["tolerations"][0].update(tolerationSeconds=9)),
    "a key of a toleration": ("", lambda pod: pod["spec"]["tolerations"][0].update(key=TAINT)),
    "no toleration": ("", lambda pod: pod["spec"]["tolerations"].clear()),
    "an image": ("", lambda pod: main(pod).update(image="nvidia/cuda:12")),
    "an image of an init container": ("", lambda pod: init(pod).update(image="nvidia/cuda:12")),
    "a deadline": ("", lambda pod: pod["spec"].update(activeDeadlineSeconds=60)),
    "a label": ("", lambda pod: pod["metadata"]["labels"].update(a="c")),
    "an annotation": ("", lambda pod: pod["metadata"]["annotations"].update({"slicewarden.dev/trust": "trusted"})),
    "no gate": ("", lambda pod: pod["spec"].pop("schedulingGates", None)),
    "a node selector": ("", lambda pod: pod["spec"].update(nodeSelector={"nvidia.com/gpu.present": "true"})),
    "node affinity": (
        "",
        lambda pod: pod["spec"].update(
            affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}
        ),
    ),
    "a node": ("", lambda pod: pod["spec"].update(nodeName="node-2")),
    "a runtime class": ("", lambda pod: pod["spec"].update(runtimeClassName="nvidia")),
    "a claim": ("", lambda pod: pod["spec"].update(resourceClaims=[{"name": "a", "resourceClaimName": "a"}])),
    "a variable": ("", lambda pod: main(pod)["env"].append({"name": VISIBLE, "value": "all"})),
    "a variable of an init container": ("", lambda pod: init(pod).update(env=[{"name": VISIBLE, "value": "all"}])),
    "a GPU": ("", lambda pod: main(pod)["resources"]["limits"].update({"nvidia.com/gpu": "1"})),
    "a GPU by a resize": ("resize", lambda pod: main(pod)["resources"]["limits"].update({"nvidia.com/gpu": "1"})),
    "a limit by a resize": ("resize", lambda pod: main(pod)["resources"]["limits"].update(cpu="2")),
    "a variable by a resize": ("resize", lambda pod: main(pod)["env"].append({"name": VISIBLE, "value": "all"})),
    "a toleration by a resize": (
        "resize",
        lambda pod: pod["spec"]["tolerations"].append({"key": TAINT, "operator": "Exists"}),
    ),
    "a debug container": ("ephemeralcontainers", lambda pod: pod["spec"].update(ephemeralContainers=[DEBUG])),
    "a debug container with a variable": (
        "ephemeralcontainers",
        lambda pod: pod["spec"].update(ephemeralContainers=[{**DEBUG, "env": [{"name": VISIBLE, "value": VOID}]}]),
    ),
    "a debug container with a GPU": (
        "ephemeralcontainers",
        lambda pod: pod["spec"].update(ephemeralContainers=[{**DEBUG, "resources": {"limits": {"nvidia.com/gpu": 1}}}]),
    ),
    "an annotation by the status": ("status", lambda pod: pod["metadata"]["annotations"].update(a="c")),
}
"""Changes of all that decides whether a pod may see a GPU, and of all else that updates may change."""

OPENS = {"a toleration of the guard", "a toleration of everything", "a debug container with a variable"}
"""Those that bring a pod to GPUs, and that the API server lets through."""

NEVER = {
    "a key of a toleration",
    "no toleration",
    "a node",
    "a runtime class",
    "a claim",
    "a variable",
    "a variable of an init container",
    "a GPU",
    "a GPU by a resize",
    "a variable by a resize",
    "a toleration by a resize",
    "a debug container with a GPU",
}
"""Those that the API server refuses in any case, so that no fallback needs to look at them."""


@pytest.mark.parametrize(
    "before", [plain, lambda: gated(plain()), lambda: bound(plain())], ids=["waits", "gated", "runs"]
)
@pytest.mark.parametrize("name", CHANGES)
def test_a_pod_comes_to_see_gpus_only_by_a_toleration_or_a_debug_container(
    evaluator: Evaluator, name: str, before: Callable[[], Object]
) -> None:
    policy, facts = of_folder("privileged-container")
    subresource, change = CHANGES[name]
    old = before()
    new = deepcopy(old)
    change(new)
    if new == old:
        return
    request = request_for(new, operation="UPDATE", subResource=subresource, oldObject=old)
    refused = evaluator.refusal(request)
    if name in NEVER:
        assert refused
    elif name not in ("a node selector", "node affinity"):
        assert not refused
    if not refused and "nodeName" not in old["spec"]:
        assert not may_see(old, policy, facts)
        assert may_see(new, policy, facts) is (name in OPENS)


def held(policy: Policy) -> set[str]:
    """The rules whose clauses ask whether a new pod may see a GPU."""
    return {
        rule.id
        for rule in RULES.values()
        if rule.fallback is not None
        for clause in rule.fallback(policy)
        if "variables.exposed" in clause.expression and RequestKind.PODS in clause.asked
    }


@pytest.mark.parametrize("rule", sorted(held(of_folder("multiple-slices")[0]) - {"chosen-node"}))
def test_each_rule_of_pods_that_see_gpus_denies_an_update_that_brings_them(evaluator: Evaluator, rule: str) -> None:
    policy, facts = of_folder(rule)
    comparison, later = Comparison(evaluator, policy, facts), Compared()
    for name, pod in pods(rule):
        for update in updates(pod, policy):
            if not may_see(update.old, policy, facts):
                change = {"operation": "UPDATE", "subResource": update.subresource, "oldObject": update.old}
                comparison.add(f"{name} {update.name}", request_for(update.new, **change), later)
    assert later.denied[rule] > len(later.missed.get(rule, ()))
