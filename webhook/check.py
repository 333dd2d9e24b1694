"""Judges the objects of files as an API server would send them."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from webhook import dialect, patch, review
from webhook.engine import Engine, RuleBroke
from webhook.facts import Facts, group_kind
from webhook.files import Item
from webhook.memory import explain
from webhook.memory.explain import Landing
from webhook.model import Action, Object, Path, Problem, Request, Result, Verdict, dotted, listed, several, shown
from webhook.spelling import Guesses
from webhook.targets import judged_kinds, judges
from webhook.workloads import Workloads


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


class Kind(NamedTuple):
    """A kind of objects by its group."""

    group: str
    kind: str

    @property
    def text(self) -> str:
        """As kubectl names it."""
        return shown(".".join(filter(None, (self.kind, self.group))), quotes=False)


class Unjudged(NamedTuple):
    """A kind of the run that is not judged, with how many objects it has, and what it was likely `meant` to be."""

    kind: Kind
    objects: int
    meant: str = ""

    @property
    def text(self) -> str:
        """The kind, and what was meant."""
        return f"{self.kind.text} (did you mean {self.meant}?)" if self.meant else self.kind.text

    @property
    def value(self) -> Object:
        """The same as JSON."""
        meant = {"meant": self.meant} if self.meant else {}
        return {**self.kind._asdict(), "objects": self.objects, **meant}


@dataclass(frozen=True, eq=False)
class Report:
    """The results of one run.

    `explained` asks for the reasoning behind each landing. `pages` are of findings that no rule in `rules/` makes.
    `unjudged` are the kinds that were passed over, those that are likely misspelt first. `policy` is the name of the
    one that was used, `digest` its hash, and `at` when: a report without says nothing of the time.
    """

    judged: tuple[Judged, ...]
    problems: tuple[Problem, ...] = ()
    explained: bool = False
    pages: Mapping[str, str] = field(default_factory=dict)
    policy: str = "slicewarden"
    digest: str = ""
    at: datetime | None = None
    unjudged: tuple[Unjudged, ...] = ()

    def count(self, *, allowed: bool) -> int:
        """How many objects were allowed, or denied."""
        return sum(judged.verdict.allowed is allowed for judged in self.judged)

    @property
    def warned(self) -> int:
        """How many objects have a warning."""
        return sum(judged.warned for judged in self.judged)


_NAMED = 5
"""How many kinds a line names."""


def passed_over(unjudged: Sequence[Unjudged]) -> str:
    """Return one line on the objects that were not judged because of their kinds; empty if all were."""
    if not unjudged:
        return ""
    count = sum(kind.objects for kind in unjudged)
    words = "is of a kind that is" if count == 1 else "are of kinds that are"
    return f"{several(count, 'object')} {words} not judged: {listed([kind.text for kind in unjudged], _NAMED)}"


def count_unjudged(kinds: Iterable[Kind], workloads: Workloads) -> tuple[Unjudged, ...]:
    """Count the kinds that were not judged, given once for every object, and guess which are misspelt."""
    guesses = Guesses(_GUESSED)
    counted = [Unjudged(kind, count, _meant(kind, workloads, guesses)) for kind, count in Counter(kinds).items()]
    return tuple(sorted(counted, key=lambda kind: (not kind.meant, -kind.objects, kind.text)))


def _meant(kind: Kind, workloads: Workloads, guesses: Guesses) -> str:
    """Guess the judged kind that was meant, among those of its group; Kubernetes' own groups without a dot are one.

    A kind of another group may well have a name that is like one of ours.
    """
    known = map(Kind._make, judged_kinds(workloads))
    own = {one.kind: one for one in known if one.group == kind.group or "." not in one.group + kind.group}
    near = guesses.nearest(kind.kind, own, _ALIKE)
    return own[near].text if near == kind.kind else near


_GUESSED = 100
"""Kinds for which it is guessed what was meant: more than a cluster has, and few for a file that has thousands."""
_ALIKE = 0.85
"""A ClusterTrainingRuntime is at 0.81 no misspelt TrainingRuntime, and Pods are Pod at 0.86."""


def kind_of(item: Item) -> Kind:
    """The kind of an object, or of that of the request which an AdmissionReview is, and which `judge` has read."""
    if group_kind(item.value) != REVIEW:
        return Kind(*group_kind(item.value))
    request = review.decode(review.encoded(item.value))
    return Kind(request.group, request.kind)


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

    before, after = (dialect.write(text).splitlines() for text in (value, patch.apply(value, verdict.patch)))
    return "\n".join(list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:])


def _generate_name(value: Object) -> str:
    metadata = value.get("metadata")
    name = metadata.get("generateName") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""
