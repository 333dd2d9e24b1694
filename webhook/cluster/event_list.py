"""Lists the Events that Slicewarden has written, as far as the user may read them.

Whoever may write Events in a namespace can write some that look like these. So they are grouped by the namespace in
which they are, and their texts are untrusted.
"""

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from webhook.api.lenient import mapping, string
from webhook.api.resources import Resource
from webhook.cluster import client, listing
from webhook.cluster.client import Api
from webhook.model import Object, Problem

REPORTERS = ("slicewarden.dev/webhook", "slicewarden.dev/agent", "slicewarden.dev/controller")
"""The reporting controllers of Slicewarden's Events."""

MOST_PAGES = 40
"""Maximum pages that are read of one reporter: 20,000 Events, of which an API server keeps those of an hour."""

MOST_KEPT = 50
"""Maximum Events of one namespace that are kept, the latest ones."""

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class ListedEvent(NamedTuple):
    """An Event. `at` is when it was last observed, and `times` how often."""

    at: datetime
    namespace: str
    kind: str
    name: str
    reason: str
    text: str
    times: int
    warning: bool
    reporter: str


def read(api: Api, namespace: str | None = None) -> tuple[dict[str, list[ListedEvent]], list[Problem]]:
    """Return the latest Events by namespace, the latest first, and the problems of those that cannot be read."""
    kept = dict[str, list[ListedEvent]]()
    problems = list[Problem]()
    for reporter in REPORTERS:
        # core/v1, because the ClusterRole `view` allows these and not those of events.k8s.io
        events = Resource(
            "", "v1", "events", "Event", fields=f"reportingComponent={reporter}", namespace=namespace or ""
        )
        try:
            for number, page in enumerate(listing.pages(api, events)):
                if number == MOST_PAGES:
                    problems.append(Problem("cluster", 0, f"{reporter} has too many Events; not all were read"))
                    break
                for event in map(_read, page):
                    _keep(kept.setdefault(event.namespace, []), event)
        except (client.StatusError, client.Unreachable) as error:
            return _sorted(kept), [*problems, listing.unread(events, error)]
    return _sorted(kept), problems


def _keep(some: list[ListedEvent], event: ListedEvent) -> None:
    if len(some) < MOST_KEPT:
        heapq.heappush(some, event)
    else:
        heapq.heappushpop(some, event)


def _sorted(kept: dict[str, list[ListedEvent]]) -> dict[str, list[ListedEvent]]:
    return {namespace: sorted(kept[namespace], reverse=True) for namespace in sorted(kept)}


def _read(item: Object) -> ListedEvent:
    metadata, about, series = (mapping(item.get(key)) for key in ("metadata", "involvedObject", "series"))
    count = series.get("count", 1)
    return ListedEvent(
        next(_times(item), BEGINNING),
        string(metadata.get("namespace")),
        string(about.get("kind")),
        string(about.get("name")),
        string(item.get("reason")),
        string(item.get("message")),
        count if isinstance(count, int) else 1,
        item.get("type") == "Warning",
        string(item.get("reportingComponent")),
    )


def _times(item: Object) -> Iterator[datetime]:
    """Yield the times of an Event that can be read, first that of its last observation."""
    for text in (
        mapping(item.get("series")).get("lastObservedTime"),
        item.get("lastTimestamp"),
        item.get("eventTime"),
        mapping(item.get("metadata")).get("creationTimestamp"),
    ):
        try:
            yield datetime.fromisoformat(string(text)).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
