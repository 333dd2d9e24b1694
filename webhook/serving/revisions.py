"""Follows the policy revisions that a controller writes, and answers reviews by the policies that their path names.

A policy is `held` once it has been loaded and the facts that it needs have been read. A request whose path names any
other policy gets 503, because no policy may answer in place of another. A replica keeps at most MOST policies: first
those that the registration names, then the newest. It begins to serve when its release is admitted and it holds two
sets of policies: those that the registration names, and those that it found and had room for at its first look. After
that, no change by a controller takes it out of service.
"""

import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Protocol

from webhook.api.resources import Resource
from webhook.engine import filled
from webhook.engine.audit_mode import in_manner
from webhook.engine.engine import Engine
from webhook.engine.paths import DIGEST, MUTATE, Path
from webhook.engine.registration import NAME
from webhook.http.messages import Reply
from webhook.model import Object, Unusable
from webhook.policy import revisions
from webhook.policy.model import Policy
from webhook.serving.judges import PATHS, Answering, Judges
from webhook.serving.replica_state import MOST, ReplicaState
from webhook.telemetry.log import Log

if TYPE_CHECKING:
    from webhook.telemetry.metrics import Metrics

CACHED = 64
"""The maximum number of cached paths. A change of policy uses three or four."""

SECONDS = 5.0
"""Seconds between two looks without an event. Facts may arrive without one, as when a namespace gets its Role."""

LONGEST = 300
"""The maximum number of characters of an error in the log."""

_BEGINNINGS = tuple(f"{path}/" for path in PATHS)


REGISTRATION = tuple(
    Resource("admissionregistration.k8s.io", "v1", f"{kind.lower()}s", kind, fields=f"metadata.name={NAME}")
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
)
"""The two webhook configurations. They are watched for the policies that they name."""


def resources(namespace: str) -> tuple[Resource, ...]:
    """Return the watched resources: the ConfigMaps of revisions, and the registration."""
    maps = Resource("", "v1", "configmaps", "ConfigMap", namespace=namespace, namespaced=True, labels=revisions.LABEL)
    return (maps, *REGISTRATION)


def kept(item: Object) -> Object | None:
    """Return the needed part of an object: the content of a labelled ConfigMap, or a configuration's digests."""
    metadata = item["metadata"]
    if any(item.get("kind") == each.kind for each in REGISTRATION):
        try:
            return {"names": sorted({name.digest for name in filled.named(item)})}
        except ValueError:  # a registration that a person wrote names none
            return None
    if not (label := revisions.label_of(item)):
        return None
    kept_of = {key: metadata[key] for key in ("name", "uid", "creationTimestamp") if key in metadata}
    return {"metadata": {**kept_of, "labels": {revisions.LABEL: label}}, "data": item.get("data")}


def named(configurations: Iterable[Object]) -> frozenset[str]:
    """Return the digests of the policies that webhook configurations name. They come from `kept`."""
    return frozenset(digest for each in configurations for digest in each["names"])


def by_need(found: Mapping[str, Object], names: Container[str]) -> list[str]:
    """Return the digests of revisions in the order in which a replica loads them.

    The digests that the registration names come first, then the others, newest first. An API server writes all times in
    the same format, so they are sorted as text.
    """
    digests = sorted(digest for digest in found if DIGEST.fullmatch(digest))
    digests.sort(key=lambda digest: found[digest]["metadata"].get("creationTimestamp") or "", reverse=True)
    return sorted(digests, key=lambda digest: digest not in names)


class Needs(Protocol):
    """The interface of a part that reads the facts that policies need from a cluster."""

    def follow(self, wanted: Sequence[Policy]) -> None:
        """Read the facts that these policies need, and stop reading all others. Never waits."""

    def lacks(self, policy: Policy) -> str:
        """Name the facts of a policy that have not been read yet; empty if none is missing."""

    def forbidden(self, policy: Policy) -> str:
        """Name the missing facts of a policy that the API server refuses to give; empty if none is refused."""


class Revisions(Judges):
    """The policies that a worker has loaded, by their digests."""

    def __init__(
        self,
        release: str,
        shared: tuple[ReplicaState, int],
        needs: Needs,
        read: Callable[[Object], Policy],
        making: Callable[[Policy], Engine],
        log: Log,
        metrics: "Metrics | None" = None,
    ) -> None:
        """`shared` is the workers' memory and this worker's number. `read` decodes the policy in a ConfigMap."""
        self.release = release
        self._state, self._place = shared
        self._needs, self._log, self._metrics = needs, log, metrics
        self._read, self._making = read, making
        self._loaded: dict[str, Policy] = {}
        self._engines: dict[str, Engine] = {}
        self._refused: dict[str, tuple[object, str]] = {}
        self._waiting: dict[str, str] = {}
        self._forbidden: dict[str, str] = {}
        self._answering: dict[str, Answering] = {}
        self._needed: frozenset[str] | None = None
        self._admitted = False
        self.complete = False
        """Whether this worker holds every policy that it needs before it may serve."""
        self._state.write(self._place, frozenset())

    # Policies

    def look(self, items: Sequence[Object], names: frozenset[str] = frozenset()) -> None:
        """Load the policies of these ConfigMaps, at most MOST, and forget all others.

        `names` are the digests that the registration names.
        """
        found = revisions.by_label(items)
        listed = found.pop(revisions.RELEASES, None)
        uids = {digest: item["metadata"].get("uid") for digest, item in found.items()}
        self._refused = {
            digest: refused for digest, refused in self._refused.items() if (digest, refused[0]) in uids.items()
        }
        # A policy that the registration names is kept even if its ConfigMap was deleted, because requests still name
        # it.
        loaded = {digest: policy for digest, policy in self._loaded.items() if digest in names - found.keys()}
        for digest in by_need(found, names):
            if len(loaded) == MOST:
                break
            policy = self._loaded.get(digest)
            if policy is None and digest not in self._refused:
                policy = self._load(digest, found[digest])
            if policy is not None:
                loaded[digest] = policy
        self._loaded = loaded
        self._needs.follow([*self._loaded.values()])
        self._waiting = {
            digest: lacks for digest, policy in self._loaded.items() if (lacks := self._needs.lacks(policy))
        }
        self._forbidden = {
            digest: what for digest in self._waiting if (what := self._needs.forbidden(self._loaded[digest]))
        }
        # A held policy stays held: a watch that breaks later must not take it out of service.
        engines = {
            digest: self._engines.get(digest) or self._making(policy)
            for digest, policy in self._loaded.items()
            if digest in self._engines or digest not in self._waiting
        }
        if engines.keys() != self._engines.keys():
            self._hold(engines)
        self._begin(names, listed)

    def _load(self, digest: str, item: Object) -> Policy | None:
        try:
            return self._read(item)
        except Unusable as error:
            why = error.problems[0].message
        except Exception as error:  # after any error, the other policies must still be loaded
            why = f"cannot be read ({type(error).__name__})"
        self._refused[digest] = item["metadata"].get("uid"), why
        self._log({"message": "policy refused", "policy": digest, "problem": why})
        return None

    def _hold(self, engines: dict[str, Engine]) -> None:
        self._engines, self._answering = engines, {}  # in this order: `at` reads the cache before the engines
        self._state.write(self._place, frozenset(engines))
        if self._metrics is not None:
            self._metrics.holding(engines)
        self._log({"message": "policies held", "policies": sorted(engines)})

    def _begin(self, names: frozenset[str], listed: Object | None) -> None:
        there = frozenset((*self._loaded, *self._refused))
        self._needed = names | (there if self._needed is None else self._needed & there)
        self.complete = self.complete or self._needed <= self._engines.keys()
        self._admitted = listed is not None and self.release in revisions.admitted(listed)
        if self.complete and self._admitted:
            self._state.begin()

    def condition(self) -> tuple[bool, str]:
        """Return whether the replica may serve, and one line that names the missing parts."""
        if self._state.may_serve:
            return True, ""
        if not self._admitted:
            return False, f"release {self.release} is not admitted yet"
        lacking = sorted((self._needed or frozenset()) - self._engines.keys())
        whys = self._waiting | {digest: why for digest, (_, why) in self._refused.items()}
        says = (f"{digest} ({whys.get(digest, 'loading')})" for digest in lacking)
        return False, f"policies are not loaded yet: {', '.join(says) or 'the revisions are not listed'}"

    def report(self) -> dict[str, Any]:
        """Return the report for the controller, which reads it on the health port."""
        return {
            "release": self.release,
            "workers": self._state.workers,
            "held": self._state.everywhere(),
            "refused": {digest: why for digest, (_, why) in self._refused.items()},
            "waiting": {digest: why for digest, why in self._waiting.items() if digest not in self._engines},
            "forbidden": {digest: what for digest, what in self._forbidden.items() if digest not in self._engines},
            "ready": self._state.may_serve,
        }

    # Paths

    def review_path(self, path: str) -> bool:
        """Whether a path begins like a review path."""
        return path in self._answering or path.startswith(_BEGINNINGS)

    def at(self, path: str) -> Answering | Reply:
        """Return the policies that a path names.

        Refuses a path that names none with 404, and one not loaded with 503.
        """
        if (known := self._answering.get(path)) is not None:
            return known
        if (named := Path.read(path)) is None:
            return Reply(HTTPStatus.NOT_FOUND, b"this path names no policy\n", (("Content-Type", "text/plain"),))
        cached, engines = self._answering, self._engines
        if lacking := [name.digest for name in named.names if name.digest not in engines]:
            text = f"policy {', '.join(lacking)} is not loaded here\n"
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, text.encode(), (("Content-Type", "text/plain"),))
        judges = [in_manner(engines[name.digest], name.manner) for name in named.names]
        halves = ((judge.mutate if named.half == MUTATE else judge.validate, judge.policy) for judge in judges)
        asks_rbac = any(judge.policy.asks_rbac for judge in judges)
        made = Answering(f"/{named.half}", tuple(halves), named, asks_rbac)
        if len(cached) < CACHED:
            cached[path] = made
        return made


Found = tuple[Sequence[Object], frozenset[str]]
"""The kept ConfigMaps, and the digests that the registration names."""


def follow(
    changed: threading.Event,
    found: Callable[[], Found | None],
    looks: Callable[[Sequence[Object], frozenset[str]], None],
    log: Log,
) -> None:
    """Call `looks` with the newest ConfigMaps and names after each change, in a thread that ends with the process.

    `found` returns them, or None until they have been listed. A failed look is logged, and the next one follows.
    """

    def run() -> None:
        while True:
            changed.wait(SECONDS)
            changed.clear()
            try:
                if (now := found()) is not None:
                    looks(*now)
            except Exception as error:  # if this thread ended, the replica would miss all later changes
                log({"message": "looks again", "error": f"{type(error).__name__}: {error}"[:LONGEST]})

    threading.Thread(target=run, daemon=True, name="revisions").start()
