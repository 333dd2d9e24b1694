"""An API server that judges by an engine, for probes."""

from typing import Any

from webhook.api import admission, jsonpatch
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.proving.proof import CREATED, DryRun


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
