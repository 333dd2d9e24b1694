"""Who answers at which path: the one policy of a file, or the policies that a path names."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from webhook.allowance import Late
from webhook.engine import paths
from webhook.engine.audit_mode import Judge
from webhook.facts.snapshot import Facts
from webhook.http.messages import Reply
from webhook.model import Request, Verdict
from webhook.policy.model import Policy

PATHS = (f"/{paths.MUTATE}", f"/{paths.VALIDATE}")
"""The paths for reviews by the one policy of a file; those with names go on after a slash."""

_Half = Callable[[Request, Facts, Late], Verdict]


class Answering(NamedTuple):
    """The policies that answer at a path, in the order of its names; a request is let in if any of them lets it in.

    If none does, the last one says why. `endpoint` is one of PATHS. `path` is None for the one policy of a file.
    """

    endpoint: str
    halves: tuple[tuple[_Half, Policy], ...]
    path: paths.Path | None = None
    asks_rbac: bool = False
    """Whether a policy asks for the right of trust."""

    def verdict(self, request: Request, facts: Facts, late: Late) -> tuple[Verdict, Policy]:
        """Judge a request; return the verdict with the policy whose it is. Raises what an engine raises."""
        *others, (last, policy) = self.halves
        for half, other in others:
            verdict = half(request, facts, late)
            if verdict.allowed:
                return verdict, other
        return last(request, facts, late), policy


class Judges(ABC):
    """Finds who answers. Its subclasses say how."""

    @abstractmethod
    def review_path(self, path: str) -> bool:
        """Whether a path is one for reviews, whoever answers there."""

    @abstractmethod
    def at(self, path: str) -> Answering | Reply:
        """Return who answers at a path for reviews, or a refusal. Never waits."""


class OnePolicy(Judges):
    """The policy of a file: it answers at the paths without a name, for as long as the process lives."""

    def __init__(self, judge: Judge) -> None:
        mutate, validate = PATHS
        self._answering = {
            mutate: Answering(mutate, ((judge.mutate, judge.policy),), None, judge.policy.asks_rbac),
            validate: Answering(validate, ((judge.validate, judge.policy),), None, judge.policy.asks_rbac),
        }

    def review_path(self, path: str) -> bool:
        """Whether a path is one of PATHS."""
        return path in self._answering

    def at(self, path: str) -> Answering | Reply:
        """Return the policy's half."""
        return self._answering.get(path) or Reply(HTTPStatus.NOT_FOUND)
