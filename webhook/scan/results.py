"""The results of judging: objects with verdicts, kinds that were not judged, and the report of a run."""

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
    """The verdict of an object, without the object itself, so that ten thousand fit and can be pickled.

    `file` is empty and `line` is 0 for an object from a cluster. `lines` belong to the verdict's results. `landings`
    are the pools of its pods, one for each pod that requests GPUs. `diff` shows the patch as a diff of the YAML, if it
    was requested. `operation` is CREATE unless the object is an AdmissionReview.
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
        """The results with their lines: of the finding, or of the nearest parent in the file."""
        return zip(self.verdict.results, self.lines, strict=True)

    @property
    def warned(self) -> bool:
        """Whether it has a warning."""
        return bool(self.verdict.having(Action.WARN))

    @property
    def title(self) -> str:
        """The kind, namespace and name, in one line."""
        return f"{self.kind} {shown('/'.join(filter(None, (self.namespace, self.name))), quotes=False)}"

    @property
    def place(self) -> str:
        """The file and line; empty for an object from a cluster."""
        return f"{self.file}:{self.line}" if self.line else self.file


class Kind(NamedTuple):
    """A kind of object, with its API group."""

    group: str
    kind: str

    @property
    def text(self) -> str:
        """The name that kubectl uses, `KIND.GROUP`."""
        return shown(".".join(filter(None, (self.kind, self.group))), quotes=False)


class Unjudged(NamedTuple):
    """A kind that is not judged, with the number of its objects. If it looks misspelt, `meant` is the likely kind."""

    kind: Kind
    objects: int
    meant: str = ""

    @property
    def text(self) -> str:
        """The kind, and the likely one if it looks misspelt."""
        return f"{self.kind.text} (did you mean {self.meant}?)" if self.meant else self.kind.text

    @property
    def value(self) -> Object:
        """The kind and the number of its objects, as JSON."""
        meant = {"meant": self.meant} if self.meant else {}
        return {**self.kind._asdict(), "objects": self.objects, **meant}


@dataclass(frozen=True, eq=False)
class Report:
    """The results of one run.

    `explained` tells whether reports show the reasoning behind each landing. `pages` describe findings that no rule in
    `rules/` makes. `unjudged` are the kinds that were not judged, the likely misspelt ones first. `policy` is the
    policy's name, `digest` its hash, and `at` the time of the run, if reports should show it.
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
        """Return the number of objects that were allowed, or denied."""
        return sum(judged.verdict.allowed is allowed for judged in self.judged)

    @property
    def warned(self) -> int:
        """The number of objects with a warning."""
        return sum(judged.warned for judged in self.judged)


_NAMED = 5
"""Kinds that a line names."""


def passed_over(unjudged: Sequence[Unjudged]) -> str:
    """Return one line on the objects that were not judged because of their kinds; empty if all were."""
    if not unjudged:
        return ""
    count = sum(kind.objects for kind in unjudged)
    words = "is of a kind that is" if count == 1 else "are of kinds that are"
    return f"{several(count, 'object')} {words} not judged: {listed([kind.text for kind in unjudged], _NAMED)}"


def count_unjudged(kinds: Iterable[Kind], workloads: Workloads) -> tuple[Unjudged, ...]:
    """Count the kinds that were not judged (one item per object), and guess which are misspelt."""
    guesses = Guesses(_GUESSED)
    counted = [Unjudged(kind, count, _meant(kind, workloads, guesses)) for kind, count in Counter(kinds).items()]
    return tuple(sorted(counted, key=lambda kind: (not kind.meant, -kind.objects, kind.text)))


def _meant(kind: Kind, workloads: Workloads, guesses: Guesses) -> str:
    """Guess the judged kind that was meant, among those of the same group. All groups without a dot count as one.

    A kind of another group may rightly have a similar name.
    """
    known = map(Kind._make, judged_kinds(workloads))
    own = {one.kind: one for one in known if one.group == kind.group or "." not in one.group + kind.group}
    near = guesses.nearest(kind.kind, own, _ALIKE)
    return own[near].text if near == kind.kind else near


_GUESSED = 100
"""Kinds for which a guess is made: more than a cluster has, and few for a file with thousands."""


_ALIKE = 0.85
"""The least similarity of a misspelt kind: Pods and Pod have 0.86, ClusterTrainingRuntime and TrainingRuntime 0.81."""


def kind_of(item: Item) -> Kind:
    """Return the kind of an object; for an AdmissionReview, which must be valid, the kind of its request."""
    if group_kind(item.value) != REVIEW:
        return Kind(*group_kind(item.value))
    request = admission.decode(admission.encoded(item.value))
    return Kind(request.group, request.kind)


def fingerprint(judged: Judged, result: Result, seen: Counter[str]) -> str:
    """Return an id of a finding that survives moves of its file and lines. Equal findings are numbered."""
    what = (judged.api_version, judged.kind, judged.namespace, judged.name, result.rule, dotted(result.finding.path))
    name = hashlib.sha256("\0".join(what).encode("utf-8", "backslashreplace")).hexdigest()[:32]
    seen[name] += 1
    return f"{name}:{seen[name]}"


REVIEW = ("admission.k8s.io", "AdmissionReview")
