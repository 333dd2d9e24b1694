"""Tries every write of a change as a dry run first. If an API server refuses one, nothing is changed."""

import json
import time
from collections.abc import Callable, Iterable

from webhook.cluster import client
from webhook.engine.paths import Name
from webhook.model import Object

AGAIN_SECONDS, LATER_SECONDS = 30.0, 600.0
"""Seconds until refused writes are tried again: after a refused dry run, and after a refused real write."""

MOST_BYTES = 1 << 20
"""Bytes that a written object may have. etcd takes 1.5 MiB (--max-request-bytes), with what the API server adds, and a
dry run does not ask it."""

REFUSALS = frozenset({400, 403, 413, 422})
"""The HTTP statuses that the same write would get again: invalid, forbidden, or too large."""

Wanted = tuple[str, Object]
"""The path of an object, and what is applied to it."""


class Trial:
    """Tries the writes of the change to one target as dry runs, and remembers those that were refused."""

    def __init__(self, apply: Callable[[str, Object], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`apply` applies an object for show."""
        self._apply, self._clock = apply, clock
        self._target: Name | None = None
        self._why, self._until = "", 0.0

    def refusal(self, target: Name, writes: Callable[[], Iterable[Wanted]]) -> str:
        """Return the message with which an API server refuses a write to a target; empty if it accepts all of them.

        The API server is asked once for each target. After a refusal it is asked again every few seconds. Raises
        Unreachable, and StatusError for an error that is no refusal.
        """
        if self._target != target or (self._why and self._clock() >= self._until):
            self.forget()
            why = next(filter(None, (self._tried(*each) for each in writes())), "")
            self._remember(target, why, AGAIN_SECONDS)
        return self._why

    def forget(self) -> None:
        """Forget the refused writes. If the same target is chosen again, its writes are tried again."""
        self._target, self._why = None, ""

    def refused(self, target: Name, error: client.StatusError) -> None:
        """Remember that a real write was refused although its dry run was accepted."""
        self._remember(target, str(error), LATER_SECONDS)

    def _remember(self, target: Name, why: str, seconds: float) -> None:
        self._target, self._why, self._until = target, why, self._clock() + seconds

    def _tried(self, path: str, body: Object) -> str:
        if (size := len(json.dumps(body))) > MOST_BYTES:
            kind, name = body["kind"], body["metadata"]["name"]
            return f"{kind} {name} would have {size} bytes, and may have {MOST_BYTES}: make the policy smaller"
        try:
            self._apply(path, body)
        except client.StatusError as error:
            if error.status not in REFUSALS:
                raise
            return str(error)
        return ""
