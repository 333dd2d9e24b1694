"""Judges the objects of files as an API server would send them."""

from collections.abc import Iterable
from dataclasses import dataclass

from webhook import explain, review
from webhook.engine import Engine, RuleBroke
from webhook.explain import Explained
from webhook.facts import Facts, group_kind
from webhook.files import Item
from webhook.model import Action, Problem, Result, Verdict
from webhook.targets import judges


@dataclass(frozen=True, eq=False)
class Judged:
    """An object with its verdict; findings know their lines in the file.

    `explained` says where its pods belong, if that was asked for and they ask for GPUs.
    """

    item: Item
    namespace: str
    name: str
    verdict: Verdict
    explained: Explained | None = None

    @property
    def file(self) -> str:
        """The file it stands in."""
        return self.item.document.file

    def line(self, result: Result) -> int:
        """The line of a finding, or of the nearest place above it that the file has."""
        return self.item.line(result.finding.path, result.finding.text_line)


@dataclass(frozen=True, eq=False)
class Report:
    """Everything one run found."""

    judged: tuple[Judged, ...]
    problems: tuple[Problem, ...]

    def count(self, *, allowed: bool) -> int:
        """How many objects were allowed, or denied."""
        return sum(each.verdict.allowed is allowed for each in self.judged)

    @property
    def warned(self) -> int:
        """How many objects have a warning."""
        return sum(bool(each.verdict.having(Action.WARN)) for each in self.judged)


CLUSTER_SCOPED = frozenset(("ClusterPolicy", "DeviceClass", "Namespace", "Node"))
"""The judged kinds that are in no namespace."""


class Broke(RuntimeError):
    """A rule raised on an object: a fault of ours, which the rest of the run would hide."""

    def __init__(self, item: Item, error: RuleBroke) -> None:
        super().__init__(f"{item.document.file}:{item.line()}: {error}")


def check(items: Iterable[Item], engine: Engine, facts: Facts, *, explained: bool = False) -> Report:
    """Judge every object of a kind that is judged, and explain where its pods belong if that is asked for.

    An object of the wrong shape, which an API server would not have sent, is a problem of its file.
    """
    judged: list[Judged] = []
    problems: list[Problem] = []
    for item in items:
        if not judges(*group_kind(item.value), engine.policy.workloads):
            continue
        try:
            request = review.decode(review.wrap(item.value))
        except review.NotAReview as error:
            problems.append(Problem(item.document.file, item.line(("metadata",)), f"metadata: {error}"))
            continue
        try:
            verdict = engine.judge(request, facts)
        except RuleBroke as error:
            raise Broke(item, error) from error.__cause__
        if verdict.malformed is not None:
            line = item.line(verdict.malformed.path)
            problems.append(Problem(item.document.file, line, str(verdict.malformed)))
        else:
            namespace = "" if request.kind in CLUSTER_SCOPED else request.namespace or "default"
            explanation = explain.of(request, engine.policy, facts) if explained else None
            judged.append(Judged(item, namespace, request.name or _generate_name(item), verdict, explanation))
    return Report(tuple(judged), tuple(problems))


def _generate_name(item: Item) -> str:
    metadata = item.value.get("metadata")
    name = metadata.get("generateName") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
