"""An API server that judges by an engine, for probes, and the proof of what it judges."""

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
