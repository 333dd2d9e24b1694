"""Writes Kubernetes Events for denied pods of controllers, because no user sees the denials that a controller gets.

The Event is about the controller, so that its owner finds it with `kubectl get events`. A thread writes the Events: a
review only queues a denial, and never waits.
"""

import hashlib
import json
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from webhook.api import admission
from webhook.api.fields import MAX_NAME
from webhook.cluster import client
from webhook.model import Object, Request, Verdict
from webhook.telemetry.log import Log
from webhook.telemetry.rate_limit import Bucket

if TYPE_CHECKING:
    from webhook.telemetry.metrics import Metrics

CREATE = "CREATE"

REASON, ACTION, REPORTER = "GPUPolicyDenied", "Deny", "slicewarden.dev/webhook"

MAX_NOTE = 1024
"""Bytes of an Event's text (kubernetes pkg/apis/core/validation/events.go)."""

MAX_PENDING, MAX_KNOWN = 256, 1024
"""Maximum number of different denials that wait to be written, and of owners whose rate limit is remembered."""

CONNECT_SECONDS, READ_SECONDS = 5, 10
"""Seconds to connect to the API server, and seconds that it may be silent."""


class Owner(NamedTuple):
    """The controller that tried to create a denied object."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class EventNote(NamedTuple):
    """The content of an Event, with the object that it is about: a denial, or an observation by a node's agent.

    The text is the same on every retry, so that all retries make one Event. `kind` is `Warning` or `Normal`.
    """

    owner: Owner
    note: str
    reason: str = REASON
    action: str = ACTION
    reporter: str = REPORTER
    kind: str = "Warning"

    @property
    def event(self) -> str:
        """The name of the Event in the API, which is the same in every replica."""
        words = self[:2] if self.reason == REASON else self  # an older replica gives a denial the same name
        hashed = hashlib.sha256(json.dumps(words).encode()).hexdigest()
        return f"{self.owner.name[:200]}.{hashed[:16]}"


def denial(request: Request, verdict: Verdict, support: str = "") -> EventNote | None:
    """Return the note about the denial of a controller's object; None if nothing was denied, and for a dry run.

    The note is one line, and ends with the text on where to ask for help (`support`).
    """
    if verdict.allowed or request.dry_run or request.operation != CREATE or not request.namespace:
        return None
    owner = _controller(request.object or {}, request.namespace)
    return owner and EventNote(owner, _note(admission.reasons(verdict), support))


def _controller(item: Object, namespace: str) -> Owner | None:
    metadata = item.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller") is True:
            words: list[Any] = [reference.get(key) for key in ("apiVersion", "kind", "name", "uid")]
            if all(isinstance(word, str) and 0 < len(word) <= MAX_NAME for word in (namespace, *words)):
                version, kind, name, uid = words
                return Owner(version, kind, namespace, name, uid)
    return None


def _note(reasons: list[str], support: str) -> str:
    numbered = reasons if len(reasons) == 1 else [f"({number}) {text}" for number, text in enumerate(reasons, start=1)]
    end = f" {admission.HELP}{support}" if support else ""
    return _cut(" ".join(numbered), MAX_NOTE - len(end.encode())) + end


def _cut(text: str, limit: int) -> str:
    whole = text.encode()
    return text if len(whole) <= limit else whole[: limit - 3].decode(errors="ignore") + "..."


class Backlog:
    """A queue of denials for which Events must be written.

    Equal denials are counted, and each owner has a rate limit.
    """

    def __init__(self, now: float) -> None:
        self._counts: OrderedDict[EventNote, int] = OrderedDict()
        self._all = Bucket(burst=25, rate=1, now=now)
        self._each: OrderedDict[Owner, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, denied: EventNote) -> bool:
        """Queue a denial. Returns False if too many different ones wait."""
        if denied not in self._counts and len(self._counts) >= MAX_PENDING:
            return False
        self._counts[denied] = self._counts.get(denied, 0) + 1
        return True

    def due(self, now: float) -> Iterator[tuple[EventNote, int]]:
        """Remove and yield the denials that may be written now, the oldest first, with their counts."""
        for denied in tuple(self._counts):
            if not self._all.ready(now):
                return
            bucket = self._bucket(denied.owner, now)
            if bucket.ready(now):
                bucket.take()
                self._all.take()
                yield denied, self._counts.pop(denied)

    def _bucket(self, owner: Owner, now: float) -> Bucket:
        if owner not in self._each:
            if len(self._each) >= MAX_KNOWN:
                self._each.popitem(last=False)
            self._each[owner] = Bucket(burst=3, rate=1 / 60, now=now)
        self._each.move_to_end(owner)
        return self._each[owner]


class Events:
    """Writes Events in a thread. It is called with every verdict."""

    def __init__(self, api: client.Api, log: Log, metrics: "Metrics | None" = None) -> None:
        self._api = api
        self._log = log
        self._metrics = metrics
        self._lock = threading.Lock()
        self._more = threading.Event()
        self._stopped = threading.Event()
        self._backlog = Backlog(time.monotonic())
        self._instance = socket.gethostname()[:128]
        self._last_error = ""

    def __call__(self, request: Request, verdict: Verdict, support: str = "") -> None:
        """Queue the denial of a verdict, if there is one, with the text on where to ask for help. Never waits."""
        denied = denial(request, verdict, support)
        if denied is not None:
            self.add(denied)

    def add(self, denied: EventNote) -> None:
        """Queue an Event. Never waits for the API server."""
        with self._lock:
            noted = self._backlog.add(denied)
        if noted:
            self._more.set()
        else:
            self._count("dropped")

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name="events").start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopped.set()
        self._more.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._more.wait()
            self._more.clear()
            while not self._stopped.is_set() and len(self._backlog):
                with self._lock:
                    due = list(self._backlog.due(time.monotonic()))
                for denied, times in due:
                    self._tell(denied, times)
                self._stopped.wait(1)

    def _tell(self, denied: EventNote, times: int) -> None:
        try:
            self._write(denied, times)
        except Exception as error:  # an Event that cannot be written costs a log line and nothing else
            self._count("failed", times)
            what = f"HTTP {error.status}" if isinstance(error, client.StatusError) else type(error).__name__
            if what != self._last_error:
                self._last_error = what
                self._log({"message": "event not written", "error": what, "namespace": denied.owner.namespace})
            return
        self._count("written", times)

    def _write(self, denied: EventNote, times: int) -> None:
        """Create an Event, or update the count of the one that any replica has created.

        Raises StatusError and Unreachable.
        """
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        path = f"/apis/events.k8s.io/v1/namespaces/{quote(_home(denied.owner))}/events"
        try:
            self._ask("POST", path, body(denied, times, now, self._instance))
        except client.StatusError as error:
            if error.status != client.CONFLICT:
                raise
            # With only the rights to create and patch, an empty patch is the only way to read.
            one = f"{path}/{quote(denied.event)}"
            known = self._ask("PATCH", one, {})
            count = (known.get("series") or {"count": 1})["count"] + times
            self._ask("PATCH", one, {"series": {"count": count, "lastObservedTime": now}})

    def _ask(self, method: str, path: str, sent: Object) -> Any:
        return client.ask(
            self._api,
            path,
            method=method,
            body=sent,
            patch=client.MERGE,
            connect=CONNECT_SECONDS,
            silence=READ_SECONDS,
        )

    def _count(self, outcome: str, times: int = 1) -> None:
        if self._metrics is not None:
            self._metrics.event(outcome, times)


def _home(owner: Owner) -> str:
    """The namespace of an Event: `default` if its object has none (kubernetes pkg/apis/core/validation/events.go)."""
    return owner.namespace or "default"


def body(denied: EventNote, times: int, now: str, instance: str) -> dict[str, Any]:
    """Make the Event of a denial (k8s.io/api events/v1 types.go). Repeated ones are a series."""
    owner = denied.owner
    regarding = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": denied.event, "namespace": _home(owner)},
        "eventTime": now,
        "type": denied.kind,
        "reason": denied.reason,
        "action": denied.action,
        "note": denied.note,
        "regarding": {**regarding, "namespace": owner.namespace} if owner.namespace else regarding,
        "reportingController": denied.reporter,
        "reportingInstance": instance,
        **({"series": {"count": times, "lastObservedTime": now}} if times > 1 else {}),
    }
