"""Judges the objects of files as an API server would send them."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from webhook import dialect, explain, patch, review
from webhook.engine import Engine, RuleBroke
from webhook.explain import Landing
from webhook.facts import Facts, group_kind
from webhook.files import Item
from webhook.model import Action, Object, Path, Problem, Request, Result, Verdict, dotted, shown
from webhook.targets import judges


@dataclass(frozen=True, slots=True)
class Judged:
    """An object with its verdict, and nothing of the object itself, so that ten thousand fit and can be sent on.

    `file` is empty and `line` 0 for one that stands in no file. `lines` are those of the verdict's results.
    `landings` say where its pods belong, one for each that asks for GPUs. `diff` is what the patch changes in its YAML,
    where that was asked for. `operation` is that of the request, which is CREATE for what is no AdmissionReview.
    """

    file: str
    line: int
    document: int
    api_version: str
    kind: str
    namespace: str
    name: str
    verdict: Verdict
    lines: tuple[int, ...] = ()
    landings: tuple[Landing, ...] = ()
    diff: str = ""
    operation: str = "CREATE"

    @property
    def findings(self) -> Iterator[tuple[Result, int]]:
        """Each result with its line: of the finding, or of the nearest place above it that the file has."""
        return zip(self.verdict.results, self.lines, strict=True)

    @property
    def warned(self) -> bool:
        """Whether it has a warning."""
        return bool(self.verdict.having(Action.WARN))

    @property
    def title(self) -> str:
        """Kind, namespace and name, in one line."""
        return f"{self.kind} {shown('/'.join(filter(None, (self.namespace, self.name))), quotes=False)}"

    @property
    def place(self) -> str:
        """File and line; empty for what stands in no file."""
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, eq=False)
class Report:
    """Everything one run found.

    `explained` asks for the reasoning behind each landing. `pages` are of findings that no rule in `rules/` makes.
    `policy` is the name of the one that was used, and `at` when: a report without says nothing of the time.
    """

    judged: tuple[Judged, ...]
    problems: tuple[Problem, ...] = ()
    explained: bool = False
    pages: Mapping[str, str] = field(default_factory=dict)
    policy: str = "slicewarden"
    at: datetime | None = None

    def count(self, *, allowed: bool) -> int:
        """How many objects were allowed, or denied."""
        return sum(each.verdict.allowed is allowed for each in self.judged)

    @property
    def warned(self) -> int:
        """How many objects have a warning."""
        return sum(each.warned for each in self.judged)


def fingerprint(judged: Judged, result: Result, seen: Counter[str]) -> str:
    """Name a finding so that it is known again when its file is moved or its lines shift; twins are numbered."""
    what = (judged.api_version, judged.kind, judged.namespace, judged.name, result.rule, dotted(result.finding.path))
    name = hashlib.sha256("\0".join(what).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    seen[name] += 1
    return f"{name}:{seen[name]}"


CLUSTER_SCOPED = frozenset(("ClusterPolicy", "DeviceClass", "Namespace", "Node"))
"""The judged kinds that are in no namespace."""


class Broke(RuntimeError):
    """A rule raised on an object: a fault of ours, which the rest of the run would hide."""


def judge(item: Item, engine: Engine, facts: Facts, *, diffs: bool = False) -> Judged | Problem | None:
    """Judge one object as if it were created, or an AdmissionReview as the request it is.

    None for an object of a kind that is not judged, and a problem of its file for one of the wrong shape, which an API
    server would not have sent. Raises Broke.
    """
    value = item.value
    reviewed = group_kind(value) == REVIEW
    if not (reviewed or judges(*group_kind(value), engine.policy.workloads)):
        return None
    try:
        request = review.decode(review.encoded(value) if reviewed else review.wrap(value))
    except review.NotAReview as error:
        line = item.line(() if reviewed else ("metadata",))
        return Problem(item.document.file, line, f"{'' if reviewed else 'metadata: '}{error}")
    if reviewed and not judges(request.group, request.kind, engine.policy.workloads):
        return None
    base: Path = ("request", "oldObject" if request.object is None else "object") if reviewed else ()
    return answer(request, item, engine, facts, base=base, diffs=diffs)


def answer(
    request: Request, item: Item, engine: Engine, facts: Facts, *, base: Path = (), diffs: bool = False
) -> Judged | Problem:
    """Judge the request by which an object comes, which stands at `base` of the item. Raises Broke."""
    try:
        verdict = engine.judge(request, facts)
    except RuleBroke as error:
        raise Broke(str(Problem(item.source, item.line(), str(error)))) from error.__cause__
    if verdict.malformed is not None:
        return Problem(item.source, item.line((*base, *verdict.malformed.path)), str(verdict.malformed))
    judged = request.object or request.old_object or {}
    return Judged(
        file=item.document.file,
        line=item.line(base),
        document=item.document.index,
        api_version=f"{request.group}/{request.version}" if request.group else request.version,
        kind=request.kind,
        namespace="" if request.kind in CLUSTER_SCOPED else request.namespace or "default",
        name=request.name or _generate_name(judged),
        verdict=verdict,
        lines=tuple(item.line((*base, *r.finding.path), r.finding.text_line) for r in verdict.results),
        landings=tuple(explain.landings(request, engine.policy, facts)),
        diff=_diff(judged, verdict) if diffs and verdict.patch else "",
        operation=request.operation,
    )


REVIEW = ("admission.k8s.io", "AdmissionReview")


def _diff(value: Object, verdict: Verdict) -> str:
    import difflib  # for the reports that show what a patch changes

    before, after = (dialect.write(each).splitlines() for each in (value, patch.apply(value, verdict.patch)))
    return "\n".join(list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:])


def _generate_name(value: Object) -> str:
    metadata = value.get("metadata")
    name = metadata.get("generateName") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
