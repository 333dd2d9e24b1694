"""One object under review, with the policy, the facts and the allowance by which it is judged."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Generic, TypeVar

from webhook.allowance import Allowance
from webhook.api.objects import Labelled, NodeFeature, Subject
from webhook.api.pods import Pod
from webhook.facts.snapshot import Facts
from webhook.model import Action, immutable
from webhook.policy.actions import Exemption
from webhook.policy.model import Policy

V = TypeVar("V")
S_co = TypeVar("S_co", bound=Subject, covariant=True)


class shared(Generic[V]):  # noqa: N801 - a decorator, as `property` is
    """A property of a review that is computed once, when the first rule asks for it.

    It works like `functools.cached_property`, without the lock that Python 3.11 takes on every call. A review needs no
    lock, because a single thread uses it.
    """

    def __init__(self, compute: Callable[[Any], V]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, review: Any, _: type | None = None) -> V:
        value = self._compute(review)
        setattr(review, self._name, value)
        return value


@immutable
class Review(Generic[S_co]):
    """The review of one subject; all rules that judge the subject are given the same one.

    If several rules need the same value of a subject, it is a `shared` property of the subject's review class.
    """

    subject: S_co
    policy: Policy
    facts: Facts
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def traits(self) -> frozenset[str] | None:
        """The traits of the subject, such as that it requests a GPU. None makes every rule run.

        A rule with `LOOKS_AT` runs only if the subject has one of the traits listed there.
        """
        return None

    @property
    def pool_name(self) -> str:
        """The name of the pool that the subject belongs to; empty if it belongs to none."""
        return ""

    def action(self, rule: str) -> tuple[Action, str]:
        """Return the action on a rule's findings, and the name of the exemption if that is the reason.

        A NodeFeature acts on nodes, and so on tenants of other namespaces. An override for its namespace must name the
        rule.
        """
        policy, only_named = self.policy, isinstance(self.subject, NodeFeature)
        for exemption in self.exemptions:
            if exemption.holds(rule, self.facts.today):
                return Action.AUDIT, exemption.name
        for override in policy.overrides:
            action, scope = policy.overriding(override, rule), override.scope
            if action is None or not (scope is None or scope.covers(*self.origin)):
                continue
            if only_named and scope is not None and rule not in override.actions:
                continue
            if not override.pools or self.pool_name in override.pools:
                return action, ""
        return policy.action(rule), ""

    @shared
    def origin(self) -> tuple[str, Mapping[str, str] | None, str]:
        """The values that a scope is compared with.

        They are the namespace, its labels (None if unknown), and the service account or "". Raises Malformed for a
        service account that is no text.
        """
        namespace = self.subject.namespace
        account = self.subject.service_account if isinstance(self.subject, Pod) else ""
        return namespace, self.facts.namespaces.get(namespace), account

    @shared
    def exemptions(self) -> tuple[Exemption, ...]:
        """The policy's exemptions whose scope covers the subject. Their rules and dates must still be checked.

        A Namespace, a Node or a NodeFeature has only those that name rules. Others could grant labels that outlast the
        exemption.
        """
        every = not isinstance(self.subject, Labelled | NodeFeature)
        near = self.policy.exemptions_by_namespace.near(self.subject.namespace)
        return tuple([e for e in near if (every or e.rules) and e.scope.covers(*self.origin)])
