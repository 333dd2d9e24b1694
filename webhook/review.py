"""One object under review, with the policy, the facts and the allowance by which it is judged."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from webhook.allowance import Allowance
from webhook.api.objects import Subject
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy

S_co = TypeVar("S_co", bound=Subject, covariant=True)


@dataclass(frozen=True, eq=False)
class Review(Generic[S_co]):
    """The review of one subject; all rules that judge the subject are given the same one.

    What rules share about a subject is a cached property of a review of its own class: it is computed when the first
    rule asks for it, and it goes with the review.
    """

    subject: S_co
    policy: Policy
    facts: Facts
    allowance: Allowance = field(default_factory=Allowance)
