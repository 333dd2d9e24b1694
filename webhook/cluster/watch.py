"""Follows the facts of a live cluster: lists them once, then watches them. Reviews read the newest snapshot."""

import json
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from kubernetes import client

from webhook.api.resources import Resource
from webhook.cluster.client import FORBIDDEN, GONE, NOT_FOUND, PAGE, send, server
from webhook.cluster.decoding import decoded
from webhook.cluster.page_size import PageSize
from webhook.facts import kinds
from webhook.facts.kind import WHOLE, Fact, Fields, Reach
from webhook.facts.kinds import read
from webhook.facts.rights import UNREAD, Rights
from webhook.facts.snapshot import Facts, gathered, joined
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.telemetry.log import Log

if TYPE_CHECKING:
    from webhook.telemetry.metrics import Metrics

WATCH_SECONDS = 300
"""The timeout of a watch, in seconds. A dead connection is noticed soon after that."""

SETTLE_SECONDS = 0.1
"""Seconds in which changes are gathered before they become a snapshot."""

HOLDERS_SECONDS = 30.0
"""Seconds that changes of pods may wait for a snapshot.

Otherwise results cached per snapshot would be short-lived, and each change of a node would gather a hundred thousand
pods again.
"""

FIRST_PAUSE, LAST_PAUSE = 1.0, 30.0
"""Seconds before the first retry of a broken watch, and the maximum before later ones."""

ABSENT_PAUSE = 60.0
"""Seconds before the next try for a kind that is not installed."""

MAX_REASON = 300
"""Characters of an API server's message in a log line."""

SMALL_PAGE = 25
"""The most objects per page of a list of all namespaces. Tenants create these objects, and each can have megabytes."""

READ = kinds.usual(Reach.EVERYWHERE)
"""The resources that are read in the whole cluster for every policy. `make chart` writes the ClusterRole for them."""

READ_IF_NEEDED = tuple(resource for resource in kinds.resources(Reach.EVERYWHERE) if resource not in READ)
"""The resources that are read as well for some policies, in the same ClusterRole."""

READ_WITHIN = kinds.resources(Reach.WITHIN)
"""The resources that are read in the namespaces of sharing configurations, by a RoleBinding in each."""


_NAMES: Fields = ("metadata.namespace", "metadata.name", "metadata.resourceVersion")

_STATUS: Fields = ("object.code", "object.reason")
"""The fields of an error in a watch (apimachinery pkg/apis/meta/v1 types.go, Status)."""

Keep = Callable[[Object], Object | None]
"""Returns the part of an object that is kept next to its fact, or None."""


class CachedObject(NamedTuple):
    """The cached form of one object: its fact, which was read once, and the part of the object that is kept.

    `version` is the resourceVersion that was read, which no other state of an object of this kind has.
    """

    version: str
    fact: Fact | None
    part: Object | None

    @property
    def said(self) -> tuple[Fact | None, Object | None]:
        """The fact and the kept part, without the version.

        Unchanged parts are the same Python object, so comparing is cheap.
        """
        return self.fact, self.part


_LARGE = 64 * 1024
"""Bytes of JSON above which a thread waits for its turn to decode it."""

_TURN = threading.Lock()


def _turn(data: bytes) -> AbstractContextManager[Any]:
    """Return the turn to decode data, of all threads that decode large data.

    An object of 2 MB may take 60 MB when it is decoded, and a tenant can have each kind of object change at once.
    """
    return _TURN if len(data) > _LARGE else nullcontext()


Name = tuple[str, str]
"""The namespace (empty if cluster-scoped) and name of an object."""


def resources(policy: Policy) -> tuple[Resource, ...]:
    """Return the resources that are read in the whole cluster for a policy."""
    return kinds.needed(policy, Reach.EVERYWHERE)


def namespaces(policy: Policy) -> tuple[str, ...]:
    """Return the namespaces where sharing configurations may be."""
    return tuple(sorted({*policy.limits.namespaces, *(namespace for namespace, _ in policy.config_maps)}))


def inside(spaces: Iterable[str]) -> tuple[Resource, ...]:
    """Return the resources that are read only in these namespaces, not in the whole cluster."""
    return tuple(replace(resource, namespace=namespace) for namespace in spaces for resource in READ_WITHIN)


def _no_part(_: Object) -> Object | None:
    return None


class Cluster:
    """Follows a cluster, with a thread for each resource.

    An object is read once per version, so a change of one object costs the same however many there are. `facts` returns
    the newest snapshot, or None until every resource has been listed once. A broken watch resumes from its last
    resourceVersion; if that is too old, it starts with a new list. The last snapshot stays in force meanwhile. A kind
    or a namespace that does not exist counts as empty.
    """

    def __init__(
        self,
        api: client.ApiClient,
        log: Log,
        within: Iterable[str] = (),
        metrics: "Metrics | None" = None,
        *,
        read: Iterable[Resource] = READ,
        keep: Keep = _no_part,
        fields: Callable[[Resource], Fields] = kinds.fields,
        rights: Rights = UNREAD,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Read these resources everywhere, and those of READ_WITHIN in some namespaces.

        `keep` returns the part of each object that `objects` returns later; by default none is kept. `fields` returns
        the fields of a resource's objects that `keep` and facts read. Nothing else is decoded. `rights` are added
        to each snapshot; they are asked for, not watched. `changed` is called after each change, in a thread.
        """
        self._api = api
        self._read, self._keep, self._rights = (*read, *inside(within)), keep, rights
        self._fields = fields
        self._more: dict[Resource, object] = {}
        self._after = changed
        self._log = log
        self._host = urlsplit(server(api)).netloc.rpartition("@")[2]
        self._metrics = metrics
        self._heard: dict[Resource, float] = {}
        self._known: dict[Resource, dict[Name, CachedObject]] = {}
        self._random = random.Random()  # noqa: S311 - spreads the workers' retries, hides nothing
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._stale: set[Resource] = set()
        self._forbidden: set[Resource] = set()
        self._parts: dict[Resource, Facts] = {}
        self._holders_due = 0.0
        self._facts: Facts | None = None

    def facts(self) -> Facts | None:
        """Return the newest snapshot. Never waits."""
        return self._facts

    def objects(self, kind: str) -> tuple[Object, ...]:
        """Return the kept parts of all known objects of a kind. Never waits for the network.

        They may be newer than the snapshot that `facts` returns.
        """
        with self._lock:
            known = [one for each, some in self._known.items() if each.kind == kind for one in some.values()]
        return tuple(one.part for one in known if one.part is not None)

    def age(self) -> float:
        """Return the seconds since the last message of the API server, for the resource with the oldest message.

        A message arrives at least every WATCH_SECONDS, even when nothing has changed. The age is infinite until every
        resource has been listed once. Never waits.
        """
        heard = dict(self._heard)
        if not all(resource in heard for resource in self._read):
            return math.inf
        return time.monotonic() - min(heard.values())

    def start(self) -> None:
        """Start the threads."""
        for resource in self._read:
            threading.Thread(target=self._follow, args=(resource,), daemon=True, name=resource.plural).start()
        threading.Thread(target=self._publish, daemon=True, name="facts").start()

    def follow(self, resources: Iterable[Resource]) -> None:
        """Read these resources too, and stop reading any others that were added earlier. Never waits.

        Snapshots are made without their facts until they have been listed.
        """
        wanted = [resource for resource in dict.fromkeys(resources) if resource not in self._read]
        with self._lock:
            for resource in self._more.keys() - set(wanted):
                del self._more[resource]
                self._forget(resource)
            fresh = {resource: object() for resource in wanted if resource not in self._more}
            self._more |= fresh
        for resource, turn in fresh.items():
            threading.Thread(target=self._follow, args=(resource, turn), daemon=True, name=resource.plural).start()

    def lacks(self, resources: Iterable[Resource]) -> list[Resource]:
        """Return those resources whose facts are in no snapshot yet."""
        parts = self._parts
        return [resource for resource in dict.fromkeys(resources) if resource not in parts]

    def forbidden(self, resources: Iterable[Resource]) -> list[Resource]:
        """Return those resources of `lacks` that the API server refused the last time, because a right is missing."""
        return [resource for resource in self.lacks(resources) if resource in self._forbidden]

    def _forget(self, resource: Resource) -> None:
        self._forbidden.discard(resource)
        self._known.pop(resource, None)
        self._heard.pop(resource, None)
        self._stale.discard(resource)
        self._parts = {other: facts for other, facts in self._parts.items() if other != resource}

    def _wanted(self, resource: Resource) -> bool:
        return resource in self._read or resource in self._more

    def stop(self) -> None:
        """Stop the threads: each ends at its next event, or at the end of its watch."""
        self._stopped.set()
        self._changed.set()

    def _publish(self) -> None:
        while not self._stopped.is_set():
            if self._changed.wait(HOLDERS_SECONDS):
                time.sleep(SETTLE_SECONDS)
                self._changed.clear()
            elif not self._stale:
                continue
            with self._lock:
                due = {resource for resource in self._stale if self._due(resource)}
                stale = {resource: tuple(self._known[resource].values()) for resource in due}
                self._stale -= due
                complete = all(resource in self._known for resource in self._read)
            made = {
                resource: gathered(one.fact for one in known if one.fact is not None)
                for resource, known in stale.items()
            }
            with self._lock:
                now = self._parts | {resource: facts for resource, facts in made.items() if self._wanted(resource)}
                order = [resource for resource in (*self._read, *self._more) if resource in now]
            if complete:
                self._facts = replace(joined(now[resource] for resource in order), rights=self._rights)
                if self._metrics is not None:
                    self._metrics.loaded(whether=True)
            self._parts = now  # after the snapshot, so that every resource that is not lacking is in it
            self._after()

    def _due(self, resource: Resource) -> bool:
        """Whether this snapshot rebuilds the facts of a resource: pods change constantly, so every HOLDERS_SECONDS."""
        if resource.kind != "Pod":
            return True
        now = time.monotonic()
        if resource in self._parts and now < self._holders_due:
            return False
        self._holders_due = now + HOLDERS_SECONDS
        return True

    def _follow(self, resource: Resource, turn: object = None) -> None:
        pause, version = FIRST_PAUSE, ""
        while not self._stopped.is_set() and self._more.get(resource) is turn:
            try:
                version = version or self._list(resource)
                for version_seen in self._watch(resource, version):
                    version, pause = version_seen, FIRST_PAUSE
                    self._hear(resource)
                self._hear(resource)  # the watch ended after its timeout
                self._stopped.wait(SETTLE_SECONDS)  # a proxy that ends watches at once must not make a busy loop
            except client.ApiException as error:
                version = ""  # too old or invalid: start with a list
                exists = self._exists(resource.namespace)
                if error.status == NOT_FOUND or (error.status == FORBIDDEN and exists is False):
                    # The kind or the namespace does not exist yet. In an absent namespace there is no Role either, so
                    # the API server answers 403.
                    self._replace(resource, {})
                    self._hear(resource)
                    self._stopped.wait(ABSENT_PAUSE)
                elif error.status != GONE:
                    self._refuse(resource, whether=error.status == FORBIDDEN and exists is True)
                    pause = self._wait(resource, error, pause)
            except Exception as error:  # after any failure the last snapshot stays, and the watch is tried again
                self._refuse(resource, whether=False)
                pause = self._wait(resource, error, pause)

    def _exists(self, namespace: str) -> bool | None:
        """Whether a namespace exists; None before the namespaces are listed. The whole cluster, "", always exists."""
        with self._lock:
            known = next((some for resource, some in self._known.items() if resource.kind == "Namespace"), None)
        if not namespace:
            return True
        return None if known is None else ("", namespace) in known

    def _refuse(self, resource: Resource, *, whether: bool) -> None:
        """Record whether the last try failed because a right is missing."""
        with self._lock:
            if whether and self._wanted(resource):
                self._forbidden.add(resource)
            else:
                self._forbidden.discard(resource)

    def _hear(self, resource: Resource) -> None:
        """Record the time of a message about a resource."""
        if not self._wanted(resource):
            return
        self._heard[resource] = time.monotonic()
        if self._metrics is not None:
            same = [at for other, at in tuple(self._heard.items()) if other.kind == resource.kind]
            self._metrics.heard(resource.kind, min(same))

    def _wait(self, resource: Resource, error: Exception, pause: float) -> float:
        """Log the error and wait. Returns the seconds to wait the next time."""
        if self._metrics is not None:
            self._metrics.broke(resource.kind)
        details = {"kind": resource.kind, "host": self._host, "error": _what(error), "reason": _reason(error)}
        self._log({"message": "watch broke", **details, "seconds": pause})
        self._stopped.wait(pause * self._random.uniform(0.5, 1.0))
        return min(pause * 2, LAST_PAUSE)

    def _list(self, resource: Resource) -> str:
        """List a resource in pages. Returns the resourceVersion from which to watch."""
        known: dict[Name, CachedObject] = {}
        size = PageSize(SMALL_PAGE if resource.namespaced and not resource.namespace else PAGE)
        metadata = self._read_page(resource, "", size, known)
        while token := metadata.get("continue"):
            metadata = self._read_page(resource, token, size, known)
        self._replace(resource, known)
        self._hear(resource)
        version: str = metadata["resourceVersion"]
        return version

    def _read_page(
        self, resource: Resource, token: str, size: PageSize, known: dict[Name, CachedObject]
    ) -> Mapping[str, Any]:
        """Add the objects of a page. Returns the list's metadata; nothing else of the page stays in memory."""
        data = None
        while data is None:
            with self._get(resource, **{"limit": size.now, "continue": token}) as response:
                data = size.read(response.read)
        with _turn(data):
            page = decoded(data, _within("items[].", self._fields(resource), ("metadata",)))
            for item in page["items"]:
                if one := self._of(resource, item):
                    known[_name(item)] = one
            metadata: Mapping[str, Any] = page["metadata"]
            del page
        return metadata

    def _replace(self, resource: Resource, known: dict[Name, CachedObject]) -> None:
        with self._lock:
            if not self._wanted(resource):
                return  # it was dropped while it was listed
            before = self._known.get(resource)
            changed = before is None or _said(before) != _said(known)
            self._known[resource] = known
            if changed:
                self._stale.add(resource)
        if changed:
            self._changed.set()

    def _watch(self, resource: Resource, version: str) -> Iterator[str]:
        """Apply the events of a watch until it ends. Yields the resourceVersion after each."""
        options = {"allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS, "resourceVersion": version}
        fields = _within("object.", self._fields(resource), ("type", *_STATUS))
        with self._get(resource, watch="true", **options) as response:
            for line in response:
                with _turn(line):
                    event = decoded(line, fields)
                    item = event["object"]
                    if event["type"] == "ERROR":
                        raise client.ApiException(status=item.get("code"), reason=item.get("reason"))
                    if event["type"] != "BOOKMARK":
                        self._take_in(resource, event["type"], item)
                    version = item["metadata"]["resourceVersion"]
                    del event, item
                yield version

    def _take_in(self, resource: Resource, kind: str, item: Object) -> None:
        name, after = _name(item), None if kind == "DELETED" else self._of(resource, item)
        with self._lock:
            known = self._known.get(resource)
            if known is None:
                return  # it was dropped while it was watched
            before = known.get(name)
            if after is not None:
                known[name] = after
            elif before is not None:
                known.pop(name)
            if (before and before.said) == (after and after.said):
                return  # most updates of a node are heartbeats, which change nothing in the facts
            self._stale.add(resource)
            if resource.kind == "Pod":
                return
        self._changed.set()

    def _of(self, resource: Resource, item: Object) -> CachedObject | None:
        """Read one object, unless this version of it was read; None if it has no fact and none of it is kept."""
        version = item["metadata"].get("resourceVersion", "")
        before = self._known.get(resource, {}).get(_name(item))
        if before is not None and version and before.version == version:
            return before
        item = {**item, "apiVersion": resource.api_version, "kind": resource.kind}  # the items of a list lack both
        fact = read(item)
        now = CachedObject(version, fact if fact and fact.value is not None else None, self._keep(item))
        if before is not None and before.said == now.said:
            return before._replace(version=version)
        return now if any(now.said) else None

    @contextmanager
    def _get(self, resource: Resource, **options: Any) -> Iterator[Any]:
        """Request a resource and yield the unread response. Raises ApiException unless the status is 200."""
        query = {**options, "fieldSelector": resource.fields, "labelSelector": resource.labels}
        response = send(self._api, "GET", resource.path, query, silence=WATCH_SECONDS + 30, preload_content=False)
        try:
            if response.status != 200:
                raise client.ApiException(http_resp=response)
            yield response
        finally:
            response.close()
            response.release_conn()


def _within(place: str, fields: Fields, others: Fields) -> Fields:
    """Return the fields of an object at a place, and others next to it; of a whole object all."""
    return (*others, *(f"{place}{field}" for field in (*_NAMES, *fields))) if fields else WHOLE


def _name(item: Object) -> Name:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _said(known: Mapping[Name, CachedObject]) -> Mapping[Name, object]:
    return {name: one.said for name, one in known.items()}


def _what(error: Exception) -> str:
    if isinstance(error, client.ApiException):
        return f"{error.status} {error.reason}"
    return type(error).__name__


def _reason(error: BaseException) -> str:
    """Return the reason why a watch failed. It never includes a URL, which may hold credentials."""
    if isinstance(error, client.ApiException):
        try:
            message = json.loads(error.body or "")["message"]
        except (KeyError, TypeError, ValueError):  # no Status, perhaps from a proxy
            return ""
        return str(message)[:MAX_REASON]
    while error.__cause__ is not None:
        error = error.__cause__
    message = getattr(error, "verify_message", None) or (error.strerror if isinstance(error, OSError) else None)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
