"""What came of judging: objects, kinds that are not judged, and the report of a run."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from webhook.api import admission
from webhook.api.fields import group_kind
from webhook.api.objects import judged_kinds
from webhook.catalog.workloads import Workloads
from webhook.documents.files import Item
from webhook.memory.explain import Landing
from webhook.model import Action, Object, Problem, Result, Verdict, dotted
from webhook.text.spelling import Guesses
from webhook.text.words import listed, several, shown


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
    request = admission.decode(admission.encoded(item.value))
    return Kind(request.group, request.kind)


def fingerprint(judged: Judged, result: Result, seen: Counter[str]) -> str:
    """Name a finding so that it is known again when its file is moved or its lines shift; twins are numbered."""
    what = (judged.api_version, judged.kind, judged.namespace, judged.name, result.rule, dotted(result.finding.path))
    name = hashlib.sha256("\0".join(what).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    seen[name] += 1
    return f"{name}:{seen[name]}"


REVIEW = ("admission.k8s.io", "AdmissionReview")
