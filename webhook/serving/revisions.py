"""Follows the revisions that a controller writes, and answers by the policies that a path names.

A policy is held once it is loaded and the facts that it needs are read. A path that names one which is not held gets
503: no answer is ever that of another policy. A replica begins to serve once its release is admitted, and it holds
every policy that was there when it first looked. After that nothing of a controller's takes it out of service.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from webhook.api.resources import Resource
from webhook.engine.audit_mode import AuditMode, Judge
from webhook.engine.engine import Engine
from webhook.engine.paths import DIGEST, MUTATE, Manner, Name, Path
from webhook.http.messages import Reply
from webhook.model import Action, Object, Unusable
from webhook.policy import revisions
from webhook.policy.model import Policy
from webhook.serving.held import MOST, Held
from webhook.serving.judges import PATHS, Answering, Judges
from webhook.telemetry.log import Log

if TYPE_CHECKING:
    from webhook.telemetry.metrics import Metrics

CACHED = 64
"""Paths whose policies are kept together; a change names three or four."""

SECONDS = 5.0
"""Seconds after which it looks even if nothing was heard, as for facts that a namespace without a Role withholds."""

LONGEST = 300
"""The most characters of an error in the log."""

_BEGINNINGS = tuple(f"{path}/" for path in PATHS)


def resource(namespace: str) -> Resource:
    """Return the ConfigMaps that are watched for revisions."""
    return Resource("", "v1", "configmaps", "ConfigMap", namespace=namespace, namespaced=True, labels=revisions.LABEL)


def kept(item: Object) -> Object | None:
    """Keep a ConfigMap with the label, without what changes by itself."""
    if not (label := revisions.label_of(item)):
        return None
    return {
        "metadata": {"name": item["metadata"]["name"], "labels": {revisions.LABEL: label}},
        "data": item.get("data"),
    }


class Needs(Protocol):
    """Reads of a cluster what policies need."""

    def follow(self, wanted: Sequence[Policy]) -> None:
        """Read what these policies need, and no longer what only others needed. Never waits."""

    def lacks(self, policy: Policy) -> str:
        """Return what of a policy's facts is not read yet; empty if all is."""


class Revisions(Judges):
    """The policies that a worker holds, by their digests."""

    def __init__(
        self,
        release: str,
        shared: tuple[Held, int],
        needs: Needs,
        read: Callable[[Object], Policy],
        making: Callable[[Policy], Engine],
        log: Log,
        metrics: "Metrics | None" = None,
    ) -> None:
        """`shared` is the memory of all workers and the number of this one. `read` makes the policy of a ConfigMap."""
        self.release = release
        self._held, self._place = shared
        self._needs, self._log, self._metrics = needs, log, metrics
        self._read, self._making = read, making
        self._loaded: dict[str, Policy] = {}
        self._engines: dict[str, Engine] = {}
        self._refused: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._answering: dict[str, Answering] = {}
        self._first: frozenset[str] | None = None
        self._admitted = False
        self.complete = False
        """Whether this worker holds every policy that was there when it first looked."""
        self._held.write(self._place, frozenset())

    # What it holds

    def look(self, items: Sequence[Object]) -> None:
        """Hold the policies of these ConfigMaps, and forget all others."""
        found = revisions.by_label(items)
        listed = found.pop(revisions.RELEASES, None)
        wanted = {digest: item for digest, item in found.items() if DIGEST.fullmatch(digest)}
        for digest in self._loaded.keys() - wanted.keys():
            del self._loaded[digest]
        self._refused = {digest: why for digest, why in self._refused.items() if digest in wanted}
        for digest in sorted(wanted.keys() - self._loaded.keys() - self._refused.keys()):
            self._load(digest, wanted[digest])
        self._needs.follow([*self._loaded.values()])
        self._waiting = {
            digest: lacks for digest, policy in self._loaded.items() if (lacks := self._needs.lacks(policy))
        }
        # One that was held is held on: a watch that breaks later must not take a policy out of service.
        engines = {
            digest: self._engines.get(digest) or self._making(policy)
            for digest, policy in self._loaded.items()
            if digest in self._engines or digest not in self._waiting
        }
        if engines.keys() != self._engines.keys():
            self._hold(engines)
        self._begin(frozenset(wanted), listed)

    def _load(self, digest: str, item: Object) -> None:
        if len(self._loaded) >= MOST:
            self._refuse(digest, f"{MOST} policies are held already, and there may be no more")
            return
        try:
            self._loaded[digest] = self._read(item)
        except Unusable as error:
            self._refuse(digest, error.problems[0].message)
        except Exception as error:  # whatever it is, the other policies must be held
            self._refuse(digest, f"cannot be read ({type(error).__name__})")

    def _refuse(self, digest: str, why: str) -> None:
        self._refused[digest] = why
        self._log({"message": "policy refused", "policy": digest, "problem": why})

    def _hold(self, engines: dict[str, Engine]) -> None:
        self._engines, self._answering = engines, {}  # in this order: what is kept together is of the engines
        self._held.write(self._place, frozenset(engines))
        if self._metrics is not None:
            self._metrics.holding(engines)
        self._log({"message": "policies held", "policies": sorted(engines)})

    def _begin(self, wanted: frozenset[str], listed: Object | None) -> None:
        self._first = wanted if self._first is None else self._first & wanted
        self.complete = self.complete or self._first <= self._engines.keys()
        self._admitted = listed is not None and self.release in revisions.admitted(listed)
        if self.complete and self._admitted:
            self._held.begin()

    def condition(self) -> tuple[bool, str]:
        """Return whether the replica may serve, and a line about what it waits for."""
        if self._held.may_serve:
            return True, ""
        if not self._admitted:
            return False, f"release {self.release} is not admitted yet"
        lacking = sorted((self._first or frozenset()) - self._engines.keys())
        says = (
            f"{digest} ({self._refused.get(digest) or self._waiting.get(digest) or 'loading'})" for digest in lacking
        )
        return False, f"policies are not held yet: {', '.join(says) or 'the revisions are not listed'}"

    def report(self) -> dict[str, Any]:
        """Return what a controller asks for on the health port."""
        return {
            "release": self.release,
            "workers": self._held.workers,
            "held": self._held.everywhere(),
            "refused": self._refused,
            "waiting": {digest: why for digest, why in self._waiting.items() if digest not in self._engines},
            "ready": self._held.may_serve,
        }

    # Who answers

    def review_path(self, path: str) -> bool:
        """Whether a path begins as those for reviews do."""
        return path in self._answering or path.startswith(_BEGINNINGS)

    def at(self, path: str) -> Answering | Reply:
        """Return the policies that a path names: 404 for a path that names none, 503 if one is not held."""
        if (known := self._answering.get(path)) is not None:
            return known
        if (named := Path.read(path)) is None:
            return Reply(HTTPStatus.NOT_FOUND, b"this path names no policy\n", (("Content-Type", "text/plain"),))
        cached, engines = self._answering, self._engines
        if lacking := [name.digest for name in named.names if name.digest not in engines]:
            text = f"policy {', '.join(lacking)} is not held here\n"
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, text.encode(), (("Content-Type", "text/plain"),))
        judges = [_judge(engines[name.digest], name) for name in named.names]
        halves = ((judge.mutate if named.half == MUTATE else judge.validate, judge.policy) for judge in judges)
        asks_rbac = any(judge.policy.asks_rbac for judge in judges)
        made = Answering(f"/{named.half}", tuple(halves), named, asks_rbac)
        if len(cached) < CACHED:
            cached[path] = made
        return made


def _judge(engine: Engine, name: Name) -> Judge:
    if name.manner is Manner.AUDIT:
        return AuditMode(engine)
    if name.manner is Manner.LENIENT:
        return Engine(replace(engine.policy, unpatched=Action.WARN), engine.rules)
    return engine


def follow(
    changed: threading.Event,
    items: Callable[[], Sequence[Object] | None],
    looks: Callable[[Sequence[Object]], None],
    log: Log,
) -> None:
    """Call `looks` with the newest ConfigMaps after each change, in a thread that ends with the process.

    `items` returns them, or None until they were listed. A look that fails is logged, and the next one comes anyway.
    """

    def run() -> None:
        while True:
            changed.wait(SECONDS)
            changed.clear()
            try:
                if (found := items()) is not None:
                    looks(found)
            except Exception as error:  # without this thread the replica would never take in a change again
                log({"message": "looks again", "error": f"{type(error).__name__}: {error}"[:LONGEST]})

    threading.Thread(target=run, daemon=True, name="revisions").start()
