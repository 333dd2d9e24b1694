"""The actions of a policy on findings, which may differ by rule, pod and release."""

from collections.abc import Mapping
from datetime import date

from webhook.model import Action, immutable
from webhook.policy.scopes import Scope

EVERY_RULE = "*"
"""The key in a policy's `rules` that stands for every rule not named there."""

Release = tuple[int, int]
"""A release of Slicewarden by its first two numbers: 0.1 is (0, 1)."""


def release(text: str) -> Release:
    """Read a release such as `0.1`. Raises ValueError."""
    major, minor = map(int, text.split("."))
    return major, minor


@immutable
class Override:
    """Other actions for certain pods: those in a scope (None: everywhere), and in certain pools if any are named."""

    scope: Scope | None
    pools: frozenset[str]
    actions: Mapping[str, Action]

    def action(self, rule: str) -> Action | None:
        """Return its action on the findings of a rule; None if it does not mention the rule."""
        return self.actions.get(rule, self.actions.get(EVERY_RULE))


@immutable
class Exemption:
    """Pods whose findings are only recorded, for certain rules or for all if none are named.

    `until` is its last day. It is None for a component of the system, which stays exempt.
    """

    name: str
    scope: Scope
    rules: frozenset[str]
    until: date | None

    def holds(self, rule: str, today: date | None) -> bool:
        """Return whether it applies to a rule now. If it has an end, it does not apply while the date is unknown."""
        if self.rules and rule not in self.rules:
            return False
        return self.until is None or (today is not None and today <= self.until)
