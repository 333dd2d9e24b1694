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
    """Other actions for the pods of a scope, and only in certain pools if any are named.

    A scope of None means all pods.
    """

    scope: Scope | None
    pools: frozenset[str]
    actions: Mapping[str, Action]

    def action(self, rule: str) -> Action | None:
        """Return the override's action on the findings of a rule; None if it does not mention the rule."""
        return self.actions.get(rule, self.actions.get(EVERY_RULE))


@immutable
class Exemption:
    """An exemption: findings about certain pods are only recorded, for the named rules or, without names, for all.

    `until` is its last day. It is None for a component of the system, which stays exempt.
    """

    name: str
    scope: Scope
    rules: frozenset[str]
    until: date | None

    def holds(self, rule: str, today: date | None) -> bool:
        """Return whether the exemption applies to a rule on this day.

        An exemption with a last day does not apply while the date is unknown.
        """
        if self.rules and rule not in self.rules:
            return False
        return self.until is None or (today is not None and today <= self.until)
