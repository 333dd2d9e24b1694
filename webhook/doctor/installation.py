"""Reads an installation of Slicewarden from a live cluster: its objects, and the answers of its pods.

Nothing is written: the only create request is a dry run.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from webhook.api.resources import Resource
from webhook.cluster import client
from webhook.cluster.client import NOT_FOUND, Api, StatusError, Unreachable
from webhook.cluster.listing import pages
from webhook.cluster.registered import POLICIES
from webhook.cluster.watch import READ_WITHIN, namespaces, resources
from webhook.engine.registration import left_alone
from webhook.facts.kinds.pod import RESOURCES as RUNNING_PODS
from webhook.facts.snapshot import Facts
from webhook.gpu import guard
from webhook.model import Object
from webhook.policy.model import NAMESPACE, Policy

NAME = "slicewarden"
METRICS_PORT = 8080

OK = 200

CONFIGURATIONS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PART = f"app.kubernetes.io/part-of={NAME}"
BY_FALLBACK = re.compile(rf"ValidatingAdmissionPolicy '{NAME}-[^']*'")
"""The start of the API server's denials by the fallback (apiserver pkg/admission/plugin/policy/validating)."""
VERBS = ("get", "list", "watch")
REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview")
"""The resource that the webhook creates to ask whether an account has the right of trust."""


class ReadFailure(NamedTuple):
    """A failure to read an object: the HTTP status (0 without one), and the reason in one line."""

    status: int
    why: str

    @property
    def absent(self) -> bool:
        """Whether the object could not be read because it does not exist."""
        return self.status == NOT_FOUND


Answer = Object | ReadFailure


CONTROLLER, GUARD = f"{NAME}-controller", f"{NAME}-guard"
"""The Deployment and the lease of the controller; the admission policy that guards what it may register."""

GUARDS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
OBJECTS = "/apis/slicewarden.dev/v1alpha1/gpusharingpolicies"


@dataclass(frozen=True)
class ByObject:
    """The objects that exist only where the policy is a GPUSharingPolicy: the policies, and those of the controller.

    `guard` has the ValidatingAdmissionPolicy that limits what the controller may register, and its binding.
    """

    policies: Answer
    controller: Answer
    lease: Answer
    guard: tuple[Answer, ...]

    @property
    def items(self) -> list[Object]:
        """The policies. The first one is in force, or will be next."""
        found: list[Object] = [] if isinstance(self.policies, ReadFailure) else self.policies.get("items") or []
        return sorted(found, key=lambda each: (each["metadata"].get("creationTimestamp"), each["metadata"]["name"]))


@dataclass(frozen=True)
class Installation:
    """The objects of an installation. The Deployment names the ConfigMap (`policy`) and the Secret (`serving`).

    `fallback` has the lists of admission policies and of their bindings, in the order of `registered.POLICIES`.
    `by_object` is None if the policy is a file.
    """

    configurations: tuple[Answer, ...]
    fallback: tuple[Answer, ...]
    deployment: Answer
    pods: Answer
    endpoints: Answer
    policy: Answer
    serving: Answer
    by_object: ByObject | None = None


@dataclass(frozen=True)
class PolicyAnswers:
    """The cluster's answers to the questions that `doctor` can only ask once it has read the policy.

    `permissions` says for each right whether the service account has it. `metrics` has the series of each ready pod,
    before and after the probe. `probe` is the answer to the dry run of a pod that the policy denies, or None. The
    fallback answers before the webhook. If it denied the pod, `fallback` is its answer, and `probe` is the answer to a
    Deployment of such pods, which the fallback leaves to the webhook. `older` are the pods that are older than the
    guard's taint on their node.
    """

    permissions: Mapping[str, bool | ReadFailure] = field(default_factory=dict)
    before: Mapping[str, Mapping[str, float] | ReadFailure] = field(default_factory=dict)
    metrics: Mapping[str, Mapping[str, float] | ReadFailure] = field(default_factory=dict)
    probe: Answer | None = None
    fallback: str = ""
    older: tuple[str, ...] | ReadFailure = ()


def read(api: Api) -> Installation:
    """Read the objects of an installation."""
    inside = f"/api/v1/namespaces/{NAMESPACE}"
    deployment = _get(api, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}")
    return Installation(
        configurations=tuple(_get(api, f"{ADMISSION}/{each}/{NAME}") for each in CONFIGURATIONS),
        fallback=tuple(_get(api, f"{ADMISSION}/{each}", {"labelSelector": PART}) for each in POLICIES),
        deployment=deployment,
        pods=_get(api, f"{inside}/pods", {"labelSelector": f"app.kubernetes.io/name={NAME}"}),
        endpoints=_get(
            api,
            f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
            {"labelSelector": f"kubernetes.io/service-name={NAME}"},
        ),
        policy=_named(api, f"{inside}/configmaps", deployment, "policy", ("configMap", "name")),
        serving=_named(api, f"{inside}/secrets", deployment, "tls", ("secret", "secretName")),
        by_object=_by_object(api) if "--revisions" in arguments(deployment) else None,
    )


def _by_object(api: Api) -> ByObject:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    return ByObject(
        policies=_get(api, OBJECTS),
        controller=_get(api, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{CONTROLLER}"),
        lease=_get(api, f"{leases}/{CONTROLLER}"),
        guard=tuple(_get(api, f"{ADMISSION}/{each}/{GUARD}") for each in GUARDS),
    )


def arguments(deployment: Answer) -> list[str]:
    """Return the arguments of a Deployment's containers; none if it could not be read."""
    if isinstance(deployment, ReadFailure):
        return []
    spec: Any = deployment.get("spec") or {}
    containers = spec.get("template", {}).get("spec", {}).get("containers") or ()
    return [str(argument) for each in containers for argument in each.get("args") or ()]


def ask(api: Api, policy: Policy, ready: list[str], probe: Object | None) -> PolicyAnswers:
    """Ask for the service account's rights, the metrics of the ready pods, and the answer to a dry-run pod."""
    before = {name: metrics(api, name) for name in ready}
    answer = None if probe is None else _dry_run(api, "/api/v1", "pods", probe)
    fallback = answer.why if isinstance(answer, ReadFailure) and BY_FALLBACK.search(answer.why) else ""
    if fallback and probe is not None:
        answer = _dry_run(api, "/apis/apps/v1", "deployments", _deployment(probe))
    after = {name: metrics(api, name) for name in ready} if answer is not None else before
    return PolicyAnswers(permissions(api, policy), before, after, answer, fallback)


def older_pods(api: Api, policy: Policy, facts: Facts) -> tuple[str, ...] | ReadFailure:
    """Read which pods are older than the guard's taint on their node (`guard.older`), each with its namespace."""
    spared, found = left_alone(policy), list[str]()
    if not policy.guard or not any(policy.guard.taint in node.taints for node in facts.nodes):
        return ()
    try:
        for page in pages(api, RUNNING_PODS[0]):
            for pod in page:
                metadata = pod["metadata"]
                if metadata["namespace"] not in spared and guard.older(pod, policy, facts):
                    found.append(f"{metadata['namespace']}/{metadata['name']}")
    except StatusError as error:
        return ReadFailure(error.status, str(error))
    except Unreachable as error:
        return ReadFailure(0, str(error))
    return tuple(sorted(found))


def permissions(api: Api, policy: Policy) -> dict[str, bool | ReadFailure]:
    """Ask whether the webhook's service account may read the objects of facts and ask about others' rights."""
    within = (replace(each, namespace=place) for place in namespaces(policy) for each in READ_WITHIN)
    wanted = [(each, verb) for each in (*resources(policy), *within) for verb in VERBS]
    if policy.asks_rbac:
        wanted.append((REVIEWS, "create"))
    return {_power(each, verb): _may(api, each, verb) for each, verb in wanted}


def metrics(api: Api, pod: str) -> Mapping[str, float] | ReadFailure:
    """Read the metrics of a pod through the API server: the value of each series by its name and labels, as written."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{METRICS_PORT}/proxy/metrics"
    try:
        status, text = client.text(api, path)
    except Unreachable as error:
        return ReadFailure(0, str(error))
    if status != OK:
        return ReadFailure(status, f"the API server answers {status} for the metrics of pod {pod}")
    series: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and not name.startswith("#"):
            try:
                series[name] = float(value)
            except ValueError:
                return ReadFailure(0, f"pod {pod} does not answer with metrics")
    return series


def volume(deployment: Answer, name: str, path: tuple[str, str]) -> str:
    """Return the name of the object that a volume of the Deployment mounts, or an empty string."""
    if isinstance(deployment, ReadFailure):
        return ""
    spec: Any = deployment.get("spec", {}).get("template", {}).get("spec", {})
    for each in spec.get("volumes") or ():
        if each.get("name") == name:
            return str((each.get(path[0]) or {}).get(path[1]) or "")
    return ""


def _named(api: Api, root: str, deployment: Answer, name: str, path: tuple[str, str]) -> Answer:
    if isinstance(deployment, ReadFailure):
        return deployment
    found = volume(deployment, name, path)
    return _get(api, f"{root}/{found}") if found else ReadFailure(NOT_FOUND, f"the Deployment has no volume {name}")


def _get(api: Api, path: str, query: Mapping[str, Any] | None = None) -> Answer:
    try:
        answer: Object = client.ask(api, path, query)
    except StatusError as error:
        return ReadFailure(error.status, str(error))
    except Unreachable as error:
        return ReadFailure(0, str(error))
    return answer


def _post(api: Api, path: str, body: Object, query: Mapping[str, Any] | None = None) -> Answer:
    try:
        answer: Object = client.ask(api, path, query, method="POST", body=body)
    except StatusError as error:
        return ReadFailure(error.status, str(error))
    except Unreachable as error:
        return ReadFailure(0, str(error))
    return answer


def _dry_run(api: Api, root: str, plural: str, item: Object) -> Answer:
    return _post(api, f"{root}/namespaces/{item['metadata']['namespace']}/{plural}", item, {"dryRun": "All"})


def _deployment(pod: Object) -> Object:
    labels = {"app": NAME}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": pod["metadata"], "spec": spec}


def _power(resource: Resource, verb: str) -> str:
    what = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    return f"{verb} {what}{f' in {resource.namespace}' if resource.namespace else ''}"


def _may(api: Api, resource: Resource, verb: str) -> bool | ReadFailure:
    attributes = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": resource.namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{NAME}",
            "groups": ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"],
            "resourceAttributes": {key: value for key, value in attributes.items() if value},
        },
    }
    answer = _post(api, "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return answer if isinstance(answer, ReadFailure) else bool((answer.get("status") or {}).get("allowed"))
