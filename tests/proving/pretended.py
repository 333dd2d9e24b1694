"""An API server that judges by an engine, for probes, and the proof of what it judges."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.support.policies import FACTS, POLICY, RULES, facts_of, policy_of
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.proving.probes import ProbeTarget, targets
from webhook.proving.proof import CREATED, DryRun, ProofRun, prove
from webhook.proving.running import HOSTNAME
from webhook.proving.ways import ChangeCall, GPUWay


def admitting(engine: Engine, facts: Facts) -> Any:
    """Return what creates pods as an API server that asks this engine."""

    def ask(pod: Object) -> DryRun:
        verdict = engine.judge(admission.decode(admission.wrap(pod)), facts)
        if not verdict.allowed:
            text = admission.message_of(verdict)
            return DryRun(403, f'admission webhook "pods.slicewarden.dev" denied the request: {text}')
        patched = jsonpatch.apply(pod, verdict.patch)
        assert isinstance(patched, dict)
        return DryRun(CREATED, "", patched)

    return ask


def changing(engine: Engine, facts: Facts) -> Any:
    """Return what changes pods as an API server that asks this engine. Only debug containers are patched."""

    def ask(way: GPUWay, pod: Object, body: Object) -> DryRun:
        assert way.change is not None
        _, _, subresource = way.change.partition("/")
        request: dict[str, Any] = {"subResource": subresource}
        item = body
        if way.change is ChangeCall.BIND:
            request["userInfo"] = {"username": "ada"}
        else:
            if body["metadata"].get("uid") != pod["metadata"]["uid"]:
                return DryRun(409, "Precondition failed")
            item = merged(pod, body)
            request |= {"operation": "UPDATE", "oldObject": pod}
        review = json.loads(admission.wrap(item))
        review["request"] |= {"name": pod["metadata"]["name"], **request}
        verdict = engine.judge(admission.decode(json.dumps(review).encode()), facts)
        if not verdict.allowed or (verdict.patch and way.change is not ChangeCall.DEBUG):
            text = " ".join(admission.message_of(verdict).split())
            return DryRun(403, f'admission webhook "pods.slicewarden.dev" denied the request: {text}')
        if way.change is ChangeCall.BIND:
            return DryRun(500, f"pod {pod['metadata']['name']} has non-empty .spec.schedulingGates")
        patched = jsonpatch.apply(item, verdict.patch)
        assert isinstance(patched, dict)
        return DryRun(CREATED, "", patched)

    return ask


def merged(item: Any, patch: Any) -> Any:
    """Return an object with a merge patch (RFC 7396)."""
    if not isinstance(item, dict) or not isinstance(patch, dict):
        return patch
    return {**item, **{key: merged(item.get(key), value) for key, value in patch.items()}}


def proven(*, without: str = "") -> ProofRun:
    """A proof of the sample policy, with all rules but one."""
    policy, facts = policy_of(POLICY), facts_of(FACTS)
    engine = Engine(policy, [rule for rule in rules.walk() if rule.id != without])
    found = [each for each in targets(engine, facts) if isinstance(each, ProbeTarget)]
    tried = tuple(prove(policy, each, admitting(engine, facts), RULES) for each in found)
    return ProofRun(policy, policy.digest, "v1.37.1", datetime(2026, 1, 1, tzinfo=UTC), tried, ())


def with_hostnames(facts: Facts) -> Facts:
    """Facts whose nodes have the label of their name, as a kubelet sets it, and no pods on them."""
    nodes = [replace(node, labels={HOSTNAME: node.name, **node.labels}) for node in facts.nodes]
    return replace(facts, nodes=tuple(nodes), holders=())
