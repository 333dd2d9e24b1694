"""Defines how the fallback answers a request that breaks a rule: it denies, warns or only records."""

from collections.abc import Mapping
from enum import StrEnum

RECORDED: Mapping[str, str] = {
    "multiple-slices": "it takes more of the cards' time, which ResourceQuota limits too, but no memory of others",
    "unearned-priority": "it runs before others; evicted pods return when its class is removed",
    "unqueued-pod": "it runs before its turn, but only on nodes of its pool",
}
"""The rules whose findings the fallback only records under ByRule, each with the reason.

Such an object does no more harm after it is deleted, so its denial can wait until the webhook is back. The webhook's
message also names the field and the value to change. The fallback refuses requests that any other rule denies, new
rules included: they reach GPUs, memory or trust that were not granted, or their effect lasts.
"""


class ValidationActions(StrEnum):
    """The answer of the fallback to a request that breaks a rule. Each answer is also written to the audit log."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"
    BY_RULE = "ByRule"
    """AUDIT for the rules of RECORDED, and DENY for all others."""

    def to(self, rule: str) -> "ValidationActions":
        """Return the answer to a request that breaks this rule: Deny, Warn or Audit, never ByRule."""
        if self is not ValidationActions.BY_RULE:
            return self
        return ValidationActions.AUDIT if rule in RECORDED else ValidationActions.DENY


OF_BINDINGS = (ValidationActions.DENY, ValidationActions.WARN, ValidationActions.AUDIT)
"""The answers that a binding may have, the strictest first."""
