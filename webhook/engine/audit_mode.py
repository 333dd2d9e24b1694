"""Audit mode: the engine judges as usual, but allows every request unchanged."""

from webhook.allowance import Late, no_deadline
from webhook.engine.engine import Engine
from webhook.engine.paths import Manner
from webhook.facts.snapshot import Facts
from webhook.model import Action, Mode, Request, Result, Verdict, Would
from webhook.policy.model import Policy


class AuditMode:
    """An engine that only records: it denies nothing, warns of nothing and patches nothing.

    `would` in a verdict is the effect that the policy would have had. An object that cannot be judged is allowed too,
    with the reason under `malformed`. Raises the engine's errors; then there is no verdict.
    """

    mode = Mode.AUDIT

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def policy(self) -> Policy:
        """The policy by which the wrapped engine judges."""
        return self._engine.policy

    def mutate(self, request: Request, facts: Facts, late: Late = no_deadline) -> Verdict:
        """Answer `/mutate` without a patch.

        The patch is computed all the same, because the verdict says what it would have been.
        """
        verdict = self._engine.mutate(request, facts, late)
        return Verdict(malformed=verdict.malformed, would=_would(verdict))

    def validate(self, request: Request, facts: Facts, late: Late = no_deadline) -> Verdict:
        """Answer `/validate`. Every finding is only recorded, and those that `/mutate` would repair are marked.

        In audit mode `/mutate` has not patched the pod. So if a patch would repair the pod, it is patched here and
        judged again to compute `would`.
        """
        verdict = self._engine.validate(request, facts, late)
        would = _would(verdict)
        if would is Would.DENY and any(result.finding.fixes for result in verdict.having(Action.DENY)):
            would = _would(self._engine.judge(request, facts, late))
        marked = self._engine.marked(request, facts, verdict, late)
        return Verdict(tuple(map(_recorded, marked.results)), malformed=verdict.malformed, would=would)


Judge = Engine | AuditMode
"""The engine that answers reviews, in either mode."""


def in_manner(engine: Engine, manner: Manner) -> Judge:
    """Return the judge that answers by an engine's policy in this manner: it enforces, only records, or is lenient."""
    if manner is Manner.AUDIT:
        return AuditMode(engine)
    return engine.lenient() if manner is Manner.LENIENT else engine


def _would(verdict: Verdict) -> Would:
    if not verdict.allowed:
        return Would.DENY
    return Would.PATCH if verdict.patch else Would.ALLOW


def _recorded(result: Result) -> Result:
    return result._replace(action=Action.AUDIT)
