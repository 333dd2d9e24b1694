"""Defines the results of judging: objects with verdicts, kinds that were not judged, and the report of a run."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from webhook.api import admission
from webhook.api.fields import group_kind
from webhook.api.objects import judged_kinds
from webhook.catalog.places import Workloads
from webhook.documents.files import Item
from webhook.memory.explain import Landing
from webhook.model import Action, Object, Problem, Result, Verdict, dotted, immutable
from webhook.policy.model import Policy
from webhook.scan import values
from webhook.scan.unjudged import UnjudgedPlace
from webhook.text.spelling import Guesses
from webhook.text.words import listed, one_line, several, sha256, shown

if TYPE_CHECKING:
    from webhook.fallback.status import FallbackStatus
    from webhook.scan.sharing import PoolUse


@immutable
class Judged:
    """The verdict of an object, without the object itself, so that ten thousand fit and can be pickled.

    `file` is empty and `line` is 0 for an object from a cluster. `lines` belong to the verdict's results. `landings`
    are the pools of its pods, one for each pod that requests GPUs. `diff` shows the patch as a diff of the YAML, if it
    was requested. `operation` is CREATE unless the object is an AdmissionReview. A `live` object comes from an API
    server, and an `unproven` one looks so in a file that anybody may have written; `assumed` is true if nothing proves
    that the scheduler chose its node. `parameters` counts the texts with
    changes to its pods that consist of one parameter; `agent` is the service account of a DaemonSet that was denied.
    `owner` has the kind and the name of the workload that made a pod. A rendered object has the `root` that it comes
    from. If a result is in another file, such as a patch, `files` has the file of each result.
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
    live: bool = False
    unproven: bool = False
    assumed: bool = False
    parameters: int = 0
    agent: str = ""
    root: str = ""
    files: tuple[str, ...] = ()
    owner: tuple[str, str] = ("", "")

    @property
    def findings(self) -> Iterator[tuple[Result, int]]:
        """The results with their lines: of the finding, or of the nearest parent in the file."""
        return zip(self.verdict.results, self.lines, strict=True)

    @property
    def located(self) -> Iterator[tuple[Result, str, int]]:
        """The results with their files and lines."""
        return zip(self.verdict.results, self.files or (self.file,) * len(self.lines), self.lines, strict=True)

    @property
    def warned(self) -> bool:
        """Whether the object has a warning."""
        return bool(self.verdict.having(Action.WARN))

    @property
    def exempted(self) -> bool:
        """Whether the object has findings, all of which are exempted."""
        return bool(self.verdict.results) and all(result.exemption for result in self.verdict.results)

    @property
    def title(self) -> str:
        """The kind, namespace and name, in one line."""
        return f"{self.kind} {shown('/'.join(filter(None, (self.namespace, self.name))), quotes=False)}"

    @property
    def through(self) -> str:
        """The root from which the object was rendered, in words; empty for an object that was not rendered."""
        return f"through {shown(self.root, quotes=False)}" if self.root else ""

    @property
    def place(self) -> str:
        """The file and line, in one line; empty for an object from a cluster."""
        return one_line(f"{self.file}:{self.line}" if self.line else self.file)


class GroupKind(NamedTuple):
    """A kind of object, with its API group."""

    group: str
    kind: str

    @property
    def text(self) -> str:
        """The name that kubectl uses, `KIND.GROUP`."""
        return shown(".".join(filter(None, (self.kind, self.group))), quotes=False)


class InText(NamedTuple):
    """A place where a ConfigMap contains an object as a text, if that object uses a GPU."""

    place: UnjudgedPlace


class Encrypted(NamedTuple):
    """An object with values that SOPS has encrypted, by its title and its place. Its readable parts are not denied."""

    title: str
    place: str


class LeftAlone(NamedTuple):
    """The namespace of an object that is never sent to the webhook."""

    namespace: str


class PassedOver(NamedTuple):
    """An object of a kind that is not judged, and the places where it has containers or names GPUs."""

    kind: GroupKind
    places: tuple[UnjudgedPlace, ...] = ()


class Unjudged(NamedTuple):
    """A kind that is not judged, with the number of its objects. If it looks misspelt, `meant` is the likely kind.

    `places` has an entry for each object that has containers or GPUs, or makes other objects: the places where it does.
    """

    kind: GroupKind
    objects: int
    meant: str = ""
    places: tuple[tuple[UnjudgedPlace, ...], ...] = ()

    @property
    def text(self) -> str:
        """The kind, and the likely one if it looks misspelt."""
        return f"{self.kind.text} (did you mean {self.meant}?)" if self.meant else self.kind.text

    @property
    def value(self) -> Object:
        """The kind and the number of its objects, as JSON; with the GPUs and places if it has any."""
        value = {**self.kind._asdict(), "objects": self.objects}
        if self.meant:
            value["meant"] = self.meant
        if places := [place for each in self.places for place in each]:
            value["gpus"] = sorted({place.resource for place in places if place.resource})
            value["places"] = [place.value for place in places]
        return value

    def notes(self, *, gpus: bool) -> Iterator[str]:
        """Lines about its objects that use GPUs or have containers, with the way to have them judged."""
        some = [places for places in self.places if bool(places[0].use) is gpus]
        if not some:
            return
        (first, *more), *others = some
        line = f"{first.place}: {self._title(first.name)} {first.text}"
        if more:
            line += f" and {several(len(more), 'more place')}"
        if others:
            names = listed([shown(places[0].name, quotes=False) for places in others], _ALSO)
            does = ("uses a GPU", "use GPUs") if gpus else ("holds containers", "hold containers")
            does = ("makes objects", "make objects") if self.kind in values.MAKES else does
            line += f"; {several(len(others), 'more object')} of its kind {does[len(others) > 1]} too ({names})"
        yield f"{line}; not judged: {self._way(some)}"

    def _title(self, name: str) -> str:
        return f"{self.kind.text} {shown(name, quotes=False)}".rstrip()

    def _way(self, some: Sequence[tuple[UnjudgedPlace, ...]]) -> str:
        if self.meant:
            return f"did you mean {self.meant}?"
        if self.kind in values.RENDER:
            return values.RENDER[self.kind]
        if any(not place.use for places in some for place in places):
            return "add the kind under workloads in the policy"
        return "its pods are judged when they are created"


_ALSO = 3
"""Further objects of a kind that a line names."""


@immutable
class Report:
    """The results of one run.

    `explained` says whether reports show the reasoning behind each landing, and `everything` whether tables list also
    the objects without findings and patches. `pages` describe findings that no rule in `rules/` makes. `unjudged` are
    the kinds that were not judged, the likely misspelt ones first. `at` is the time of the run, if reports should show
    it. `pools` show who shares which GPUs, if a report shows them. `left_alone` counts objects that are never sent to
    the webhook, by namespace. `warnings` are places in files that were read as kubectl reads them, but probably not as
    meant. `unread` are lines on files that were not judged. `unfollowed` is the number of objects that deploy other
    objects than those that were rendered. `fallback` is that of the cluster, if it was read. `texts` are the places
    where ConfigMaps have objects that use GPUs, as texts.
    """

    judged: tuple[Judged, ...]
    problems: tuple[Problem, ...] = ()
    explained: bool = False
    pages: Mapping[str, str] = field(default_factory=dict)
    policy: Policy = Policy("slicewarden", ())
    at: datetime | None = None
    unjudged: tuple[Unjudged, ...] = ()
    pools: "tuple[PoolUse, ...] | None" = None
    left_alone: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    unread: tuple[str, ...] = ()
    unfollowed: int = 0
    everything: bool = False
    texts: tuple[UnjudgedPlace, ...] = ()
    fallback: "FallbackStatus | None" = None
    encrypted: tuple[Encrypted, ...] = ()

    @property
    def help(self) -> str:
        """The line that says where to ask for help; empty if nothing is denied."""
        return f"{admission.HELP}{self.policy.support}" if self.policy.support and self.count(allowed=False) else ""

    @property
    def objects(self) -> int:
        """The number of all objects, judged or not."""
        others = sum(kind.objects for kind in self.unjudged) + sum(self.left_alone.values())
        return len(self.judged) + others + len(self.encrypted)

    def count(self, *, allowed: bool) -> int:
        """Return the number of objects that were allowed, or denied."""
        return sum(judged.verdict.allowed is allowed for judged in self.judged)

    @property
    def unjudged_pods(self) -> int:
        """The number of objects that were not judged, but have containers, name GPUs or are encrypted."""
        return sum(len(kind.places) for kind in self.unjudged) + len(self.encrypted)

    @property
    def warned(self) -> int:
        """The number of objects with a warning."""
        return sum(judged.warned for judged in self.judged)

    @property
    def repaired(self) -> int:
        """The number of findings that `/mutate` would repair under Deny."""
        return sum(result.repaired for judged in self.judged for result in judged.verdict.results)

    @property
    def notes(self) -> Iterator[str]:
        """Lines about objects that were not judged, or not as new objects."""
        if self.unjudged:
            yield passed_over(self.unjudged)
        named = [note for gpus in (True, False) for kind in self.unjudged for note in kind.notes(gpus=gpus)]
        yield from named[:_KINDS]
        if more := named[_KINDS:]:
            count = several(len(more), "more kind")
            yield f"not judged, but with containers, GPUs or objects that they make: {count}; --format json names them"
        if self.encrypted:
            words = "object is" if len(self.encrypted) == 1 else "objects are"
            names = [f"{shown(one.place, quotes=False)} ({shown(one.title, quotes=False)})" for one in self.encrypted]
            yield f"{len(self.encrypted):,} {words} encrypted by SOPS, and not judged: {listed(names, _NAMED)}"
        if self.texts:
            first, *others = self.texts
            line = f"{first.place}: ConfigMap {shown(first.name, quotes=False)} {first.text}"
            again = f"; {several(len(others), 'more such text')}" if others else ""
            yield f"{line}{again}; not judged: its pods are judged when they are created"
        if patched := sum(judged.parameters > 0 for judged in self.judged):
            words = "workflow patches its pods" if patched == 1 else "workflows patch their pods"
            yield f"{patched:,} {words} by a parameter; the pods are judged when they are created"
        yield from self._agents()
        yield from self.unread
        yield from (f"{line}; --system judges them" for line in left_alone(self.left_alone))
        ways = [landing.whole_gpu_way for judged in self.judged for landing in judged.landings if landing.whole_gpu_way]
        if ways:
            words = "pod asks for a GPU and gets" if len(ways) == 1 else "pods ask for a GPU and get"
            yield f"{len(ways):,} {words} a slice by the policy's default trust; for a whole GPU, {ways[0]}"
        if live := sum(judged.live for judged in self.judged):
            words = "comes from a cluster and is" if live == 1 else "come from a cluster and are"
            yield f"{several(live, 'object')} {words} judged as created; `slicewarden audit` judges what runs as it is"
        if unproven := sum(judged.unproven for judged in self.judged):
            words = "object has" if unproven == 1 else "objects have"
            yield (
                f"{unproven:,} {words} a uid or a status, which anybody can write, so they prove nothing; if the file "
                "comes from a cluster, name it by --facts too, or give it on standard input"
            )
        if assumed := sum(judged.assumed for judged in self.judged):
            words = "pod shows" if assumed == 1 else "pods show"
            yield (
                f"{assumed:,} {words} no managedFields: the scheduler is assumed to have chosen the node; "
                "kubectl get --show-managed-fields tells who did"
            )

    def _agents(self) -> Iterator[str]:
        """Lines on DaemonSets that were denied, with the exemptions that they need if they are agents of the nodes."""
        agents = {(judged.namespace, judged.agent): judged for judged in reversed(self.judged) if judged.agent}
        some = [*reversed(agents.values())]
        for agent in some[:_AGENTS]:
            yield f"{agent.title}: if it is an agent of your nodes, the policy's exemptions need {_exemption(agent)}"
        if more := some[_AGENTS:]:
            yield f"{several(len(more), 'more account')} of DaemonSets may need such an exemption"


def _exemption(agent: Judged) -> str:
    """Write the exemption of a DaemonSet's account, as an entry of the policy's `exemptions`."""
    rules = ", ".join(sorted({result.rule for result in agent.verdict.having(Action.DENY)}))
    return (
        f"- {{name: {agent.name}, reason: an agent of the nodes, system: true, namespaces: [{agent.namespace}], "
        f"serviceAccounts: [{agent.agent}], rules: [{rules}]}}"
    )


def left_alone(namespaces: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each namespace that the webhook is never asked about."""
    for namespace, count in sorted(namespaces.items()):
        where = shown(namespace, quotes=False)
        yield f"{several(count, 'object')} in {where} left alone: the webhook is never asked about this namespace"


AnyJudged = TypeVar("AnyJudged", bound=Judged)


def only(judged: AnyJudged, rules: Container[str], *, patched: bool = True) -> AnyJudged:
    """Return an object with only the findings of some rules. It keeps its patch only if `patched` is true."""
    kept = [each for each in judged.located if each[0].rule in rules]
    verdict = judged.verdict._replace(results=tuple(result for result, _, _ in kept))
    lines = tuple(line for _, _, line in kept)
    files = tuple(file for _, file, _ in kept) if judged.files else ()
    if patched:
        return replace(judged, verdict=verdict, lines=lines, files=files)
    return replace(judged, verdict=verdict._replace(patch=()), lines=lines, files=files, diff="")


_NAMED = 5
"""Maximum number of kinds named on one line."""

_AGENTS = 3
"""Accounts of DaemonSets whose exemptions are written out."""

_KINDS = 20
"""Lines on kinds that are not judged, and whose objects have containers or use GPUs."""


def passed_over(unjudged: Sequence[Unjudged]) -> str:
    """Return one line on the objects that were not judged because of their kinds; empty if all were."""
    if not unjudged:
        return ""
    count = sum(kind.objects for kind in unjudged)
    words = "is of a kind that is" if count == 1 else "are of kinds that are"
    return f"{several(count, 'object')} {words} not judged: {listed([kind.text for kind in unjudged], _NAMED)}"


def count_unjudged(objects: Iterable[PassedOver], workloads: Workloads) -> tuple[Unjudged, ...]:
    """Gather the objects that were not judged by their kinds, and guess which kinds are misspelt."""
    guesses = Guesses(_GUESSED)
    counts, places = Counter[GroupKind](), defaultdict[GroupKind, list[tuple[UnjudgedPlace, ...]]](list)
    for each in objects:
        counts[each.kind] += 1
        if each.places:
            places[each.kind].append(each.places)
    counted = [
        Unjudged(kind, count, _meant(kind, workloads, guesses), tuple(places.get(kind, ())))
        for kind, count in counts.items()
    ]
    return tuple(sorted(counted, key=lambda kind: (not kind.meant, -kind.objects, kind.text)))


def _meant(kind: GroupKind, workloads: Workloads, guesses: Guesses) -> str:
    """Guess the judged kind that was meant, among those of the same group. All groups without a dot count as one.

    A kind of another group may rightly have a similar name.
    """
    known = map(GroupKind._make, judged_kinds(workloads))
    own = {one.kind: one for one in known if one.group == kind.group or "." not in one.group + kind.group}
    near = guesses.nearest(kind.kind, own, _ALIKE)
    return own[near].text if near in own and near == kind.kind else near


_GUESSED = 100
"""Kinds for which a guess is made: more than a cluster has, and few for a file with thousands."""


_ALIKE = 0.85
"""The least similarity of a misspelt kind: Pods and Pod have 0.86, ClusterTrainingRuntime and TrainingRuntime 0.81."""


def kind_of(item: Item) -> GroupKind:
    """Return the kind of an object; for an AdmissionReview, which must be valid, the kind of its request."""
    if group_kind(item.value) != REVIEW:
        return GroupKind(*group_kind(item.value))
    request = admission.decode(admission.encoded(item.value))
    return GroupKind(request.group, request.kind)


def fingerprint(judged: Judged, result: Result, seen: Counter[str]) -> str:
    """Return an id of a finding that survives moves of its file and lines. Equal findings are numbered."""
    what = (judged.api_version, judged.kind, judged.namespace, judged.name, result.rule, dotted(result.finding.path))
    name = sha256("\0".join(what))[:32]
    seen[name] += 1
    return f"{name}:{seen[name]}"


REVIEW = ("admission.k8s.io", "AdmissionReview")
