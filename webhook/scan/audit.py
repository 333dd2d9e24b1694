"""Audits a live cluster: judges its objects without patching them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from webhook.api import admission
from webhook.api.fields import MAX_NAME, group_kind
from webhook.api.objects import CONFIG_MAP, judges
from webhook.api.pods import POD
from webhook.deviceplugin.usage import holders
from webhook.documents.files import alone
from webhook.engine.engine import Engine, RuleBroke
from webhook.facts.kinds import kept
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.gpu.review import pods_of
from webhook.model import Action, Finding, Object, Problem, Result, Verdict, immutable
from webhook.scan import live, occupancy
from webhook.scan.judge import Broke
from webhook.scan.results import GroupKind, Judged, PassedOver, Report, count_unjudged

MOST_ALIKE = 20
"""Findings of one rule that are kept of an object. A tenant's object can have thousands, of a kilobyte each."""


@dataclass(frozen=True, slots=True)
class RootOwner:
    """The origin of an object: its outermost known controller, or the object itself if it has none."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def text(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


@immutable
class Audited(Judged):
    """An object of a cluster with its verdict."""

    uid: str = ""
    source: RootOwner = RootOwner("", "", "", "")


def verdict(item: Object, engine: Engine, facts: Facts) -> Verdict:
    """Judge an object as `/validate` does on its creation, without a patch, and mark what a patch would repair.

    Raises RuleBroke, and NotAReview for values that JSON cannot represent.
    """
    request = live.request(item, engine.policy, facts)
    return engine.marked(request, facts, engine.validate(request, facts))


def run(
    engine: Engine,
    facts: Facts,
    objects: Collection[Object],
    reading: Iterable[Object],
    *,
    everything: bool = False,
    system: bool = False,
    namespace: str | None = None,
) -> "Audit":
    """Judge a cluster: the `objects` of its facts, and those that `reading` yields, owners first.

    `everything`, `system` and `namespace` are passed to Audit. Raises Broke.
    """
    audit = Audit(engine, facts, everything=everything, system=system, namespace=namespace)
    sharing = []
    for item in reading:
        if group_kind(item) == CONFIG_MAP:
            sharing.append(item)
        else:
            audit.take(item)
    audit.finish(objects, sharing)
    return audit


class Audit:
    """Judges a cluster's objects, owners before the objects that they own, and keeps the verdicts with findings.

    `everything` keeps objects without findings too. `system` judges also the namespaces that the webhook skips. With a
    `namespace`, only its objects are judged among those of the facts.
    """

    def __init__(
        self,
        engine: Engine,
        facts: Facts,
        *,
        everything: bool = False,
        system: bool = False,
        namespace: str | None = None,
    ) -> None:
        self._engine = engine
        self.facts = facts
        self._everything = everything
        self._system = system
        self._namespace = namespace
        self._owners: dict[str, tuple[RootOwner, str]] = {}
        self._holders: list[Object] = []
        self._tenants: dict[str, list[occupancy.Tenant]] = {}
        self.judged: list[Audited] = []
        self.problems: list[Problem] = []
        self._makers: dict[str, GroupKind] = {}
        self.count = 0
        self.passed_over = 0

    def take(self, item: Object) -> None:
        """Judge an object, unless the webhook skips its namespace or a workload that is judged creates it."""
        policy = self._engine.policy
        if group_kind(item) in policy.workloads:
            self._owners[item["metadata"].get("uid", "")] = _itself(item), live.controller(item).get("uid", "")
        pod = group_kind(item) == POD
        if not self._system and live.passed_over(item, policy):
            self.passed_over += 1
        elif not live.ended(item) and (pod or not live.made(item, policy.workloads)):
            self._judge(item)
            self._note(live.controller(item))
        if pod and (small := kept(item)) is not None:
            self._holders.append(small)

    def finish(self, objects: Iterable[Object], sharing: Iterable[Object]) -> None:
        """Judge the objects of the facts, once all pods are known, and the sharing ConfigMaps."""
        objects = list(objects)
        self.facts = replace(Facts.of((*objects, *self._holders)), today=self.facts.today)
        held = holders(self.facts)
        for item in (*live.among_facts(objects, self._namespace), *sharing):
            if not self._system and live.passed_over(item, self._engine.policy):
                self.passed_over += 1
            else:
                self._judge(item, self._of_node(item, held) if group_kind(item) == live.NODE else ())

    def report(self, problems: Iterable[Problem], at: datetime) -> Report:
        """Make the report of all judged objects, with the problems from reading them."""
        policy = self._engine.policy
        return Report(
            tuple(self.judged),
            tuple(problems),
            pages=occupancy.PAGES,
            policy=policy,
            at=at,
            unjudged=count_unjudged(map(PassedOver, self._makers.values()), policy.workloads),
        )

    def _note(self, owner: Mapping[str, Any]) -> None:
        """Note a controller of a kind that is not judged. The objects that it makes are."""
        kind = GroupKind(*group_kind(owner))
        if owner and not judges(*kind, self._engine.policy.workloads):
            self._makers[owner.get("uid", "")] = kind

    def _of_node(self, item: Object, held: Mapping[str, Iterable[Holder]]) -> Iterator[tuple[str, Finding]]:
        name = item["metadata"]["name"]
        if node := self.facts.named.get(name):
            tenants = self._tenants.get(name, ())
            yield from ((occupancy.MIXED, finding) for finding in occupancy.mixed(node, tenants, self._engine.policy))
            yield from ((occupancy.OVERHELD, finding) for finding in occupancy.overheld(node, held.get(name, ())))

    def _judge(self, item: Object, more: Iterable[tuple[str, Finding]] = ()) -> None:
        self.count += 1
        try:
            judgement = verdict(item, self._engine, self.facts)
        except RuleBroke as error:
            raise Broke(f"{alone(item).source}: {error}") from error.__cause__
        except admission.NotAReview as error:
            self.problems.append(Problem(alone(item).source, 0, str(error)))
            return
        if judgement.malformed is not None:
            self.problems.append(Problem(alone(item).source, 0, str(judgement.malformed)))
            return
        extra = [*more]
        if group_kind(item) == POD:
            extra += self._of_pod(item)
        if extra:
            results = (Result(rule, Action.WARN, finding) for rule, finding in extra)
            judgement = judgement._replace(results=(*judgement.results, *results))
        judgement = judgement._replace(results=few(judgement.results))
        if judgement.results or self._everything:
            itself = _itself(item)
            audited = Audited(
                file="",
                line=0,
                document=0,
                api_version=itself.api_version,
                kind=itself.kind,
                namespace=itself.namespace,
                name=itself.name,
                verdict=judgement,
                lines=(0,) * len(judgement.results),
                uid=item["metadata"].get("uid", ""),
                source=self._source(item),
            )
            self.judged.append(audited)

    def _of_pod(self, item: Object) -> Iterator[tuple[str, Finding]]:
        if not (item.get("spec") or {}).get("nodeName"):
            return
        policy = self._engine.policy
        decoded = admission.decode(admission.wrap(live.bare(item)))
        for review in pods_of(decoded, item, policy, self.facts):
            if tenant := occupancy.tenant(review, item["metadata"]["name"]):
                self._tenants.setdefault(tenant.node, []).append(tenant)
            for finding in occupancy.misplaced(review):
                yield occupancy.MISPLACED, finding

    # The source of an object

    def _source(self, item: Object) -> RootOwner:
        source, owner = _itself(item), live.controller(item)
        uid, seen = owner.get("uid", ""), set[str]()
        if owner and uid not in self._owners:  # deleted, or of a kind that cannot be read
            return _unread(owner, item)
        while uid in self._owners and uid not in seen:
            seen.add(uid)
            source, uid = self._owners[uid]
        return source


def few(results: Iterable[Result]) -> tuple[Result, ...]:
    """Return at most MOST_ALIKE results of each rule with the same effect, and one more that counts the others."""
    alike: dict[tuple[object, ...], list[Result]] = {}
    kept: list[Result] = []
    for result in results:
        same = alike.setdefault((result.rule, result.action, result.exemption, result.repaired), [])
        same.append(result)
        if len(same) <= MOST_ALIKE:
            path = tuple(key[:MAX_NAME] if isinstance(key, str) else key for key in result.finding.path)
            kept.append(result._replace(finding=result.finding._replace(path=path, parts=())))
    for same in alike.values():
        if len(same) > MOST_ALIKE:
            message = f"the object has {len(same) - MOST_ALIKE:,} more such findings"
            kept.append(same[0]._replace(finding=Finding(same[MOST_ALIKE].finding.path, message)))
    return tuple(kept)


def _unread(owner: Mapping[str, Any], item: Object) -> RootOwner:
    """Return an object's controller, which was not read; for a Deployment's ReplicaSet, the Deployment.

    The name of such a ReplicaSet is the Deployment's name with the value of the `pod-template-hash` label (kubernetes
    pkg/controller/deployment/sync.go).
    """
    kind, name = owner.get("kind", ""), owner.get("name", "")
    suffix = f"-{(item['metadata'].get('labels') or {}).get('pod-template-hash', '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return RootOwner(owner.get("apiVersion", ""), kind, item["metadata"].get("namespace") or "", name)


def _itself(item: Object) -> RootOwner:
    metadata = item["metadata"]
    return RootOwner(item["apiVersion"], item["kind"], metadata.get("namespace") or "", metadata["name"])
