"""Finds the policies that answer a review: the one policy of a file, or the policies that the request's path names."""

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
"""The review paths for the one policy of a file. Other review paths add a slash and the names of policies."""

_Half = Callable[[Request, Facts, Late], Verdict]


class Answering(NamedTuple):
    """The policies that answer at a path, in the order of its names. A request is allowed if any of them allows it.

    If none of them allows it, the denial is that of the last policy. `endpoint` is one of PATHS. `path` is None if the
    policy comes from a file.
    """

    endpoint: str
    halves: tuple[tuple[_Half, Policy], ...]
    path: paths.Path | None = None
    asks_rbac: bool = False
    """Whether a policy asks for the right of trust."""

    def verdict(self, request: Request, facts: Facts, late: Late) -> tuple[Verdict, Policy]:
        """Judge a request. Returns the verdict, and the policy that gave it. Raises the errors of an engine."""
        *others, (last, policy) = self.halves
        for half, other in others:
            verdict = half(request, facts, late)
            if verdict.allowed:
                return verdict, other
        return last(request, facts, late), policy


class Judges(ABC):
    """The interface of a part that finds the policies that answer at a path."""

    @abstractmethod
    def review_path(self, path: str) -> bool:
        """Whether a path is for reviews, even if no policy answers there."""

    @abstractmethod
    def at(self, path: str) -> Answering | Reply:
        """Return the policies that answer at a review path, or a refusal. Never waits."""


class OnePolicy(Judges):
    """The policy from a file. It answers at the paths without names, for as long as the process runs."""

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
        """Return the policy as the judge for the call (mutate or validate) that the path names."""
        return self._answering.get(path) or Reply(HTTPStatus.NOT_FOUND)
