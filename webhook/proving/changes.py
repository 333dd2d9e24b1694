"""Plans the ways that change an existing pod: the pods to change, the changes, and what the answers show.

The pods belong to a run, and never start: a scheduling gate keeps the scheduler from them. The changes are dry runs.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from webhook.model import Object
from webhook.policy.model import Policy
from webhook.proving import proof
from webhook.proving.probes import PLAIN, SECURITY, ProbeTarget, probe
from webhook.proving.proof import CREATED, DryRun, Shown
from webhook.proving.ways import CHANGES, IMAGE, TAINT, TRUST, ChangeCall, GPUWay

GATE = "slicewarden.dev/prove"
"""The scheduling gate of the pods. Nobody removes it."""

RBAC = "RBAC"
"""What shuts a way whose call the user may not make."""

Send = Callable[[GPUWay], DryRun]
"""Sends a way's change of its pod as a dry run."""

_FORBIDDEN = re.compile(r'pods "[^"]*" is forbidden: User "[^"]*" cannot (?:patch|create) resource "pods')
"""How the API server refuses a call by its authorizers (apiserver pkg/endpoints/handlers/responsewriters/errors.go)."""

_GATED = "has non-empty .spec.schedulingGates"
"""How the API server refuses a binding of a pod with a gate, after admission (kubernetes
pkg/registry/core/pod/storage/storage.go).
"""


def changes(policy: Policy, target: ProbeTarget) -> Iterator[GPUWay]:
    """Yield the ways that apply to a target."""
    for way in CHANGES:
        if way.change is ChangeCall.BIND and not target.node:
            continue
        if TAINT in way.spec.values() and not _past_the_guard(policy, target):
            continue
        yield way


def held(policy: Policy, target: ProbeTarget, *, bare: bool) -> Object:
    """Return a pod that never starts, and requests no GPU.

    It may run on the same nodes as the honest pod, unless it is `bare`: then it has no tolerations and no trust.
    """
    made = probe(policy, target, PLAIN)
    spec: dict[str, Any] = {**made["spec"], "schedulingGates": [{"name": GATE}]}
    metadata: dict[str, Any] = {**made["metadata"]}
    if bare:
        spec["tolerations"], metadata["annotations"] = [], {}
    return {**made, "metadata": metadata, "spec": spec}


def _past_the_guard(policy: Policy, target: ProbeTarget) -> list[Any]:
    """Return the tolerations of a pod that the guard's taint lets pass; none if there is no such taint."""
    if policy.guard is None or not policy.guard.taint:
        return []
    return list(probe(policy, target, None)["spec"]["tolerations"])


def change(policy: Policy, target: ProbeTarget, way: GPUWay, pod: Object) -> Object:
    """Return the body of the way's call for a created pod: a merge patch, or a Binding.

    The body has the pod's uid, so the API server refuses it for any other pod.
    """
    named, uid = pod["metadata"]["name"], {"uid": pod["metadata"]["uid"]}
    if way.change is ChangeCall.BIND:
        metadata = {"name": named, "namespace": target.namespace, **uid}
        node = {"apiVersion": "v1", "kind": "Node", "name": target.node}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": node}
    if way.change is ChangeCall.DEBUG:
        container = {"name": "way", "image": IMAGE, "securityContext": SECURITY, **way.container}
        return {"metadata": uid, "spec": {"ephemeralContainers": [container]}}
    trust = {policy.annotation: target.trust} if TRUST in way.annotations else way.annotations
    patch: dict[str, Any] = {"metadata": {**uid, "annotations": {**trust}, "labels": {**way.labels}}}
    if more := way.spec.get("tolerations"):
        more = _past_the_guard(policy, target) if more == TAINT else more
        patch["spec"] = {"tolerations": [*pod["spec"].get("tolerations", ()), *more]}
    return patch


def gated(pod: Object) -> bool:
    """Return whether a pod still has its scheduling gate. Another webhook may have removed the gate."""
    return {"name": GATE} in (pod["spec"].get("schedulingGates") or ())


def forbidden(answer: DryRun) -> bool:
    """Return whether the API server's authorizers refused a call, before admission."""
    return _FORBIDDEN.match(answer.message) is not None


def shown(ways: Iterable[GPUWay], namespace: str, send: Send, rules: Iterable[str]) -> Iterator[Shown]:
    """Send changes of a pod, one after another, and yield what each answer shows. `rules` are the ids of all rules.

    The debug container that is only patched is the harmless twin of the others. If it was admitted, the refusal of
    another one is because of its way.
    """
    naming, admitted = proof.naming(rules), False
    for way in ways:
        answer = send(way)
        if way.change is ChangeCall.BIND and _GATED in answer.message:
            answer = DryRun(CREATED)
        debugs = way.change is ChangeCall.DEBUG
        admitted |= debugs and way.patched and answer.status == CREATED
        outcome, by = proof.outcome(way, answer, naming, twin=debugs and admitted)
        if forbidden(answer):
            outcome, by = proof.Outcome.SHUT, RBAC
        yield Shown(way, namespace, outcome, by, " ".join(answer.message.split()))
