"""Starts the pods of a run, one at a time, reads what they saw, and leaves nothing behind.

Each pod tries one way to a GPU (`ways.py`). The honest pod tries none: it requests a GPU, and shows what
a pod with a GPU sees.
Each pod ends by itself (`activeDeadlineSeconds`), and belongs to the run's object. After a sudden end of a run, the
next one deletes what it left.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Protocol

from webhook.api.lenient import mapping, string
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.proving import capacity, changes, running
from webhook.proving.capacity import MemoryCap
from webhook.proving.probes import ProbeTarget
from webhook.proving.proof import CREATED, DryRun, Outcome, Shown, Tried, blind
from webhook.proving.running import Ending, ProbeRun
from webhook.proving.sighting import Sighting, sighting
from webhook.proving.ways import GPUWay
from webhook.text.words import line, several

PAUSE = 1.0
"""Seconds between two readings of a pod, except the first ones."""

PODS, CONFIG_MAPS = "pods", "configmaps"


class CallFailed(Exception):
    """The API server did not answer, or refused."""


class RunInProgress(Exception):
    """Another run is in progress in the namespace. The text names its object."""


class ProbeApi(Protocol):
    """The calls of a run to the API server. All but `create` and `changed` raise CallFailed."""

    def create(self, plural: str, item: Object) -> DryRun:
        """Create an object."""

    def read(self, plural: str, namespace: str, name: str) -> Object | None:
        """Return an object; None if it does not exist."""

    def listed(self, plural: str, namespace: str) -> list[Object]:
        """Return the objects of a namespace with the label of runs."""

    def annotate(self, plural: str, namespace: str, name: str, annotations: dict[str, str]) -> None:
        """Set annotations of an object."""

    def delete(self, plural: str, namespace: str, name: str, uid: str = "") -> None:
        """Delete an object and the objects that it owns, but only if it has the given uid.

        It is no failure if the object does not exist.
        """

    def changed(self, way: GPUWay, namespace: str, name: str, body: Object) -> DryRun:
        """Send a way's change of a pod as a dry run. Raises nothing."""

    def facts(self) -> Facts:
        """Return the nodes, and the pods that are allocated GPUs, as they are now."""


def _now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def opened(api: ProbeApi, run: ProbeRun, now: Callable[[], datetime] = _now) -> Iterator[ProbeRun]:
    """Create the object of a run, delete objects that earlier runs left, and delete the object when the block ends.

    Yields the run with the uid of its object. Raises RunInProgress and CallFailed.
    """
    _refuse_another(api, run, now())
    try:
        made = api.create(CONFIG_MAPS, running.run_object(run, now()))
        if made.status != CREATED or made.pod is None:
            raise CallFailed(f"the object of the run was not created: {made.message}")
        _refuse_another(api, run, now())  # two may have looked at the same time
        swept(api, run)
        yield run._replace(uid=str(made.pod["metadata"]["uid"]))
    finally:
        _deleted(api, CONFIG_MAPS, run, run.name)


def _refuse_another(api: ProbeApi, run: ProbeRun, now: datetime) -> None:
    for item in api.listed(CONFIG_MAPS, run.namespace):
        name = item["metadata"]["name"]
        if running.is_of_a_run(item) and name != run.name and running.in_progress(item, now):
            until = item["metadata"]["annotations"][running.UNTIL]
            raise RunInProgress(
                f"another run is in progress in namespace {run.namespace}: wait until {until}, or end it by "
                f"kubectl delete configmap {name} -n {run.namespace}"
            )


def swept(api: ProbeApi, run: ProbeRun) -> int:
    """Delete the objects that other runs left in the namespace, pods first. Returns the number of objects.

    Only an object with the label and the name of a run is deleted. Raises CallFailed.
    """
    count = 0
    for plural in (PODS, CONFIG_MAPS):
        for item in api.listed(plural, run.namespace):
            metadata = item["metadata"]
            if running.is_of_a_run(item) and (metadata.get("labels") or {}).get(running.INSTANCE) != run.id:
                api.delete(plural, run.namespace, metadata["name"], metadata.get("uid", ""))
                count += 1
    return count


def _deleted(api: ProbeApi, plural: str, run: ProbeRun, name: str, uid: str = "") -> None:
    """Delete an object. If nobody answers, the next run does."""
    with suppress(CallFailed):
        api.delete(plural, run.namespace, name, uid)


class ProbeRunner:
    """Starts the pods of targets. The pods of a run are numbered across all targets."""

    def __init__(
        self,
        api: ProbeApi,
        policy: Policy,
        run: ProbeRun,
        rules: Iterable[str],
        now: Callable[[], datetime] = _now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._api, self._policy, self._run, self._now, self._sleep = api, policy, run, now, sleep
        self._rules = (*rules,)
        self._number = 0

    def run(self, tried: Tried) -> Tried:
        """Start the pods of a target that admission let in, and return the outcomes with what the pods saw.

        Then try the ways that change an existing pod.
        """
        return Tried(tried.target, (*self._ran(tried).shown, *self._changes(tried)))

    def _ran(self, tried: Tried) -> Tried:
        """Start the honest pod, and then one for each way that admission let in.

        A patched way is shut only if its pod saw no card on the node on which the honest pod saw one. A way that
        admission let in unchanged stays open, whatever its pod saw.
        """
        target, honest = tried.target, tried.shown[0]
        if honest.outcome is not Outcome.ADMITTED:
            return _lost(tried, "the honest pod was not admitted")
        try:
            node = running.roomy(self._policy, target, self._api.facts())
        except CallFailed as error:
            return _lost(tried, f"it is not known which nodes have a free {target.resource}: {error}")
        if node is None:
            return _lost(tried, f"no node of the pool has a free {target.resource}")
        _, found = self._probe(target, None, node)
        if isinstance(found, str):
            return _lost(tried, f"the honest pod showed no card: {found}")
        if not found.sees:
            return _lost(tried, f"the honest pod {_said(found, found)}, so a probe that sees none shows nothing")
        twin = honest._replace(message=f"saw {_amount(found)} on node {node.name}", seen=found)
        if self._run.memory:
            twin = self._measured(twin, found, target, node)
        given = {way.name for way in running.let_in(tried)}
        shown = [
            self._way(tried, each, node, found) if each.way and each.way.name in given else _unrun(each)
            for each in tried.shown[1:]
        ]
        return Tried(target, (twin, *shown))

    def _way(self, tried: Tried, shown: Shown, node: Node, twin: Sighting) -> Shown:
        pod, found = self._probe(tried.target, shown.way, node)
        if shown.outcome is Outcome.OPEN:
            return shown._replace(message=found) if isinstance(found, str) else _with(shown, found, twin)
        if isinstance(found, str):
            return shown._replace(outcome=Outcome.UNKNOWN, by="", message=found)
        seen = _with(shown, found, twin)
        if found.sees or pod is None or not blind(pod):
            return seen._replace(outcome=Outcome.OPEN, by="")
        return seen if found.blind else seen._replace(outcome=Outcome.UNKNOWN, by="")

    def _measured(self, twin: Shown, found: Sighting, target: ProbeTarget, node: Node) -> Shown:
        """Have another honest pod measure its cap. It says what it got, and decides nothing."""
        cap = capacity.cap(self._policy, target.pool, node)
        if cap is None or cap.asked > self._run.memory:
            return twin._replace(message=f"{twin.message}; no cap of memory is known there")
        taken: Sighting | str = "no card that it saw has so much"
        if cap.asked <= capacity.smallest(found):
            _, taken = self._probe(target, None, node, cap)
        if not isinstance(taken, str):  # its card may be another one of the node
            found = replace(found, nvml=taken.nvml, memory=taken.memory, frameworks=taken.frameworks)
        return twin._replace(message=f"{twin.message}; {capacity.measured(cap, taken)}", seen=found)

    def _probe(
        self, target: ProbeTarget, way: GPUWay | None, node: Node, cap: MemoryCap | None = None
    ) -> tuple[Object | None, Sighting | str]:
        """Start a pod, and return it as it was created, with what it saw; or why that is not known."""
        try:
            asks = way is None or way.gpus > 0
            if asks and running.roomy(self._policy, target, self._api.facts(), node.name) is None:
                return None, f"node {node.name} has no free {target.resource} any more"
            number = self._renewed()
        except CallFailed as error:
            return None, str(error)
        with self._created(running.started(self._policy, target, way, self._run, node, number, cap)) as made:
            if made.status != CREATED or made.pod is None:
                return None, f"its pod was not created, though the dry run was admitted: {made.message}"
            return made.pod, _seen(self._ending(made.pod), node)

    def _changes(self, tried: Tried) -> Iterator[Shown]:
        """Try the ways that change an existing pod, on pods of the run that never start."""
        target, policy = tried.target, self._policy
        ways = [*changes.changes(policy, target)]
        if tried.shown[0].outcome is not Outcome.ADMITTED:
            yield from _unchanged(ways, target, "the honest pod was not admitted")
            return
        for bare in (False, True):
            mine = [way for way in ways if way.bare is bare]
            try:
                number = self._renewed()
            except CallFailed as error:
                yield from _unchanged(mine, target, str(error))
                continue
            with self._created(running.owned(changes.held(policy, target, bare=bare), self._run, number)) as made:
                if made.status != CREATED or made.pod is None:
                    yield from _unchanged(mine, target, f"the pod to change was not created: {made.message}")
                elif not changes.gated(made.pod):
                    yield from _unchanged(mine, target, "the pod to change was created without its scheduling gate")
                else:
                    send = partial(self._change, target, made.pod)
                    yield from changes.shown(mine, target.namespace, send, self._rules)

    def _change(self, target: ProbeTarget, pod: Object, way: GPUWay) -> DryRun:
        body = changes.change(self._policy, target, way, pod)
        return self._api.changed(way, self._run.namespace, pod["metadata"]["name"], body)

    def _renewed(self) -> int:
        """Say that the run goes on, and return the number of its next pod. Raises CallFailed."""
        run = self._run
        self._api.annotate(CONFIG_MAPS, run.namespace, run.name, {running.UNTIL: run.until(self._now())})
        self._number += 1
        return self._number

    @contextmanager
    def _created(self, item: Object) -> Iterator[DryRun]:
        """Create a pod, and delete it when the block ends."""
        made = DryRun(0)
        try:
            made = self._api.create(PODS, item)
            yield made
        finally:
            if not 400 <= made.status < 500:  # a pod that was refused may have the name of another one
                self._gone(item["metadata"]["name"], _uid(made.pod))

    def _ending(self, made: Object) -> Ending:
        found, name = None, made["metadata"]["name"]
        why = "the API server did not answer"
        end = self._now() + timedelta(seconds=self._run.patience)
        for pause in _pauses(self._run.patience):
            try:
                found = self._api.read(PODS, self._run.namespace, name)
            except CallFailed as error:
                why = str(error)
            else:
                if found is None:
                    return Ending("", (), "somebody deleted its pod")
                if meddled := running.meddled(made, found):
                    return Ending("", (), meddled)
                if running.ended(found):
                    break
            if self._now() > end:  # each look may take long, too
                break
            self._sleep(pause)
        return Ending("", (), why) if found is None else running.ending(found)

    def _gone(self, name: str, uid: str) -> None:
        """Delete a pod, and wait until its slice is free again. An empty uid is not known."""
        _deleted(self._api, PODS, self._run, name, uid)
        with suppress(CallFailed):
            for pause in _pauses(running.SLACK):
                found = self._api.read(PODS, self._run.namespace, name)
                if found is None or (uid and _uid(found) != uid):
                    return
                self._sleep(pause)


def _uid(item: Object | None) -> str:
    return string(mapping((item or {}).get("metadata")).get("uid"))


def _pauses(seconds: int) -> Iterator[float]:
    """Yield the pauses between readings of a pod for this many seconds: some short ones, and then a second each."""
    yield from (0.1, 0.2, 0.3, 0.4)
    yield from repeat(PAUSE, seconds - 1)


def _lost(tried: Tried, why: str) -> Tried:
    """Return the outcomes of a target whose pods could not be started: only a denial still shuts a way."""
    shown = []
    for each in tried.shown:
        if each.outcome is Outcome.ADMITTED or (each.outcome is Outcome.SHUT and running.admitted(each)):
            shown.append(each._replace(outcome=Outcome.UNKNOWN, by="", message=why))
        else:
            shown.append(_unstarted(each, why) if each.outcome is Outcome.OPEN else each)
    return Tried(tried.target, tuple(shown))


def _unchanged(ways: Iterable[GPUWay], target: ProbeTarget, why: str) -> Iterator[Shown]:
    yield from (Shown(way, target.namespace, Outcome.UNKNOWN, "", why) for way in ways)


def _unrun(shown: Shown) -> Shown:
    """Return the outcome of a way to a GPU. If it is open, the message says why its pod is never started."""
    return _unstarted(shown, running.unrun(shown.way)) if shown.way and shown.outcome is Outcome.OPEN else shown


def _unstarted(shown: Shown, why: str) -> Shown:
    return shown._replace(message=f"its pod was not started: {why}")


def _seen(ending: Ending, node: Node) -> Sighting | str:
    """Return what a pod's containers saw: what one saw that sees a card, else of one that could not look."""
    found = [sighting(text) for text in ending.texts]
    read = [each for each in found if each is not None]
    sees = next((each for each in read if each.sees), None)
    if sees is None and ending.lacking:
        return line(ending.lacking)
    if sees is None and len(read) < len(found):
        return "its report cannot be read"
    if ending.node != node.name:
        return f"its pod was on another node than {node.name}"
    return sees or next((each for each in read if not each.blind), read[0])


def _with(shown: Shown, found: Sighting, twin: Sighting) -> Shown:
    return shown._replace(message=_said(found, twin), seen=found)


def _said(found: Sighting, twin: Sighting) -> str:
    """Say what a pod saw, next to what the honest one did."""
    count, of = _cards(found), max(_cards(twin), 1)
    if found.blind or 0 < count <= of:
        return f"saw {count} of {of} cards"
    if found.sees:
        return f"saw {_amount(found)}; the honest pod saw {_amount(twin)}"
    looks = (found.files, found.nvml, found.cuda)
    return f"could not look: {next((each for each in looks if isinstance(each, str)), 'files cannot be opened')}"


def _amount(found: Sighting) -> str:
    count = _cards(found)
    if not count and not isinstance(found.files, str):
        return several(found.files.usable, "device file")
    return several(count, "card")


def _cards(found: Sighting) -> int:
    """Return how many cards or MIG devices NVML or CUDA names."""
    return max((each.count for each in (found.nvml, found.cuda) if not isinstance(each, str)), default=0)
