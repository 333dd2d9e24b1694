"""The fallback's answer to what a rule denies, where it answers by rule."""

from collections.abc import Mapping
from enum import StrEnum

RECORDED: Mapping[str, str] = {
    "multiple-slices": "it takes a larger part of the cards' time, which ResourceQuota bounds too, and nobody's memory",
    "unearned-priority": "it runs before others; whom it evicts comes back when its class is taken away",
    "unqueued-pod": "it runs before its turn, and on nothing that is not its pool's",
}
"""The rules whose findings the fallback only records where it answers by rule, each with the reason.

While the webhook is away, such an object harms nobody for longer than it is there, and while it answers, the author
needs the field and the value that its message names. The fallback refuses what all other rules deny, and so what a new
rule denies: it reaches GPUs, memory or trust that were not given, or it lasts.
"""


class ValidationActions(StrEnum):
    """The answer to a request that a rule denies, beside an entry in the audit log."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"
    BY_RULE = "ByRule"
    """AUDIT for the rules of RECORDED, and DENY for all others."""

    def to(self, rule: str) -> "ValidationActions":
        """Return the answer to what a rule denies, which is never BY_RULE."""
        if self is not ValidationActions.BY_RULE:
            return self
        return ValidationActions.AUDIT if rule in RECORDED else ValidationActions.DENY


OF_BINDINGS = (ValidationActions.DENY, ValidationActions.WARN, ValidationActions.AUDIT)
"""The answers that a binding may have, the strictest first."""
