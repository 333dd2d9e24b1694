"""Sends the calls of `slicewarden prove` to a live API server."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from webhook.api.lenient import mapping, mappings, string
from webhook.api.resources import Resource
from webhook.cluster import client, listing, watch
from webhook.cluster.client import CONFLICT, MERGE, NOT_FOUND, PAGE, Api, StatusError
from webhook.facts.kinds import cluster_policy, daemon_set, node, pod
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.proving import changes
from webhook.proving.proof import CREATED, DryRun
from webhook.proving.runner import CONFIG_MAPS, PODS, CallFailed
from webhook.proving.running import MANAGED_BY, MANAGER
from webhook.proving.ways import ChangeCall, GPUWay

KINDS = {PODS: "Pod", CONFIG_MAPS: "ConfigMap"}

SYSTEM = "kube-system"

SILENCE = 15.0
"""Seconds that the API server may be silent while a pod runs."""


def created(api: Api, item: Object, plural: str = PODS, *, dry: bool = False) -> DryRun:
    """Create an object. In a dry run, only ask the API server whether it would create the object."""
    path = f"/api/v1/namespaces/{item['metadata']['namespace']}/{plural}"
    try:
        made = client.ask(api, path, {"dryRun": "All"} if dry else {}, method="POST", body=item)
    except StatusError as error:
        return DryRun(error.status, str(error))
    except client.Unreachable as error:
        return DryRun(0, str(error))
    kind = KINDS[plural]
    return DryRun(CREATED, "", made) if made.get("kind") == kind else DryRun(0, f"the answer is no {kind}")


def changed(api: Api, way: GPUWay, namespace: str, name: str, body: Object) -> DryRun:
    """Ask the API server by a dry run whether it would change a pod. A yes has the status of a creation."""
    path, method = f"/api/v1/namespaces/{namespace}/pods/{name}", "PATCH"
    if way.change is not ChangeCall.UPDATE:
        path += f"/{way.change}".removeprefix("/pods")
    if way.change is ChangeCall.BIND:
        method = "POST"
    try:
        made = client.ask(api, path, {"dryRun": "All"}, method=method, body=body, patch=MERGE, silence=SILENCE)
    except StatusError as error:
        return DryRun(error.status, str(error))
    except client.Unreachable as error:
        return DryRun(0, str(error))
    if way.change is not ChangeCall.BIND and made.get("kind") != KINDS[PODS]:
        return DryRun(0, f"the answer is no {KINDS[PODS]}")
    return DryRun(CREATED, "", made)


_INSTEAD = {
    ChangeCall.UPDATE: (("update", "pods"), ("patch", "pods/status"), ("update", "pods/status")),
    ChangeCall.DEBUG: (("update", "pods/ephemeralcontainers"),),
    ChangeCall.BIND: (("create", "bindings"),),
}
"""The verbs and the resources of the other calls that make the same change, or a part of it. RBAC may allow only those.

A call to `pods/status` changes annotations and labels (kubernetes pkg/registry/core/pod/strategy.go). A binding has two
resources (pkg/registry/core/rest/storage_core.go).
"""


def _by_another_call(api: Api, call: ChangeCall | None, namespace: str) -> str:
    """Return why a user may make a change though RBAC refuses its call; empty if RBAC refuses the others, too."""
    for verb, resource in _INSTEAD[call or ChangeCall.UPDATE]:
        allowed = _allowed(api, verb, resource, namespace)
        if allowed is not False:
            return f"the user {'may' if allowed else 'perhaps may'} {verb} {resource}, which makes such a change, too"
    return ""


def _allowed(api: Api, verb: str, named: str, namespace: str) -> bool | None:
    """Return whether authorizers let a user make a call in a namespace; None if that is not known."""
    resource, _, subresource = named.partition("/")
    asked = {"namespace": namespace, "verb": verb, "resource": resource, "subresource": subresource}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": _REVIEW, "spec": {"resourceAttributes": asked}}
    try:
        answer = client.ask(api, _REVIEWS, method="POST", body=review, silence=SILENCE)
    except (StatusError, client.Unreachable):
        return None
    allowed = mapping(answer.get("status")).get("allowed")
    return allowed if isinstance(allowed, bool) else None


_REVIEW, _REVIEWS = "SelfSubjectAccessReview", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def cluster(api: Api) -> str:
    """Return the UID of the namespace kube-system, which identifies its cluster; empty if it may not be read."""
    try:
        page = client.ask(api, "/api/v1/namespaces", {"fieldSelector": f"metadata.name={SYSTEM}"})
    except (StatusError, client.Unreachable):
        return ""
    found = (mapping(each.get("metadata")) for each in mappings(mapping(page).get("items")))
    return next((string(each.get("uid")) for each in found if each.get("name") == SYSTEM), "")


def software(api: Api, policy: Policy) -> Iterator[Object]:
    """Yield the ClusterPolicies, and the DaemonSets in the sharing namespaces, as far as they may be listed."""
    within = watch.inside(watch.namespaces(policy))
    for of in (*cluster_policy.RESOURCES, *(each for each in within if each.of == daemon_set.RESOURCES[0].of)):
        with suppress(StatusError, client.Unreachable):
            for page in listing.pages(api, of):
                yield from page


class ProbeCalls:
    """The calls of a run to the API server.

    `sender` creates the pods, maybe in the name of a tenant; `api` does the rest.
    """

    def __init__(self, api: Api, sender: Api) -> None:
        self._api, self._sender = api, sender

    def create(self, plural: str, item: Object) -> DryRun:
        """Create an object."""
        return created(self._sender if plural == PODS else self._api, item, plural)

    def read(self, plural: str, namespace: str, name: str) -> Object | None:
        """Return an object; None if it does not exist. Raises CallFailed."""
        with _answered():
            try:
                found: Object = self._ask(plural, namespace, name)
            except StatusError as error:
                if error.status == NOT_FOUND:
                    return None
                raise
            return found

    def listed(self, plural: str, namespace: str) -> list[Object]:
        """Return the objects of a namespace with the label of runs. Raises CallFailed."""
        of = Resource("", "v1", plural, KINDS[plural], namespace=namespace, namespaced=True)
        with _answered():
            return [item for page in listing.pages(self._api, of, labels=f"{MANAGED_BY}={MANAGER}") for item in page]

    def annotate(self, plural: str, namespace: str, name: str, annotations: dict[str, str]) -> None:
        """Set annotations of an object. Raises CallFailed."""
        with _answered():
            self._ask(plural, namespace, name, "PATCH", {"metadata": {"annotations": annotations}})

    def delete(self, plural: str, namespace: str, name: str, uid: str = "") -> None:
        """Delete an object and the objects that it owns, but only if it has this uid. Raises CallFailed.

        The kubelet gets a second to end a pod. Without that second, its slice would count as free while the pod still
        runs.
        """
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        only = {"preconditions": {"uid": uid}} if uid else {}
        with _answered():
            try:
                self._ask(plural, namespace, name, "DELETE", {**options, **only, **_GRACE.get(plural, {})})
            except StatusError as error:
                if error.status not in (NOT_FOUND, CONFLICT):
                    raise

    def changed(self, way: GPUWay, namespace: str, name: str, body: Object) -> DryRun:
        """Ask the API server by a dry run whether it would change a pod.

        A refusal by RBAC shows something only for a tenant. For any other account it becomes an explained failure.
        """
        answer = changed(self._sender, way, namespace, name, body)
        if not changes.forbidden(answer):
            return answer
        why = "--as names no tenant, and your own account lacks a right that --rights writes"
        if self._sender is not self._api:
            why = _by_another_call(self._sender, way.change, namespace)
        return answer._replace(message=f"{why}: {answer.message}") if why else answer

    def facts(self) -> Facts:
        """Return the nodes, and the pods that are allocated GPUs, as they are now. Raises CallFailed."""
        with _answered():
            sizes = {**dict.fromkeys(node.RESOURCES, PAGE), **dict.fromkeys(pod.RESOURCES, watch.SMALL_PAGE)}
            pages = (page for of, size in sizes.items() for page in listing.pages(self._api, of, size))
            return Facts.of(small for page in pages for item in page if (small := listing.trimmed(item)) is not None)

    def _ask(self, plural: str, namespace: str, name: str, method: str = "GET", body: Any = None) -> Any:
        path = f"/api/v1/namespaces/{namespace}/{plural}/{name}"
        return client.ask(self._api, path, method=method, body=body, patch=MERGE, silence=SILENCE)


_GRACE = {PODS: {"gracePeriodSeconds": 1}}


@contextmanager
def _answered() -> Iterator[None]:
    try:
        yield
    except (StatusError, client.Unreachable) as error:
        raise CallFailed(str(error)) from error
