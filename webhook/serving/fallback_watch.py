"""Watches the fallback of a live cluster, and reports by metrics whether it is as the policy needs it."""

import threading
from collections.abc import Callable, Sequence

from webhook.api.resources import Resource
from webhook.engine.comparison import Comparison
from webhook.fallback import current
from webhook.fallback.answers import ValidationActions
from webhook.fallback.current import ObjectState
from webhook.model import Object
from webhook.telemetry.log import Log
from webhook.telemetry.metrics import Metrics

READ = tuple(
    Resource("admissionregistration.k8s.io", "v1", plural, kind)
    for plural, kind in zip(
        ("validatingadmissionpolicies", "validatingadmissionpolicybindings"), current.KINDS, strict=True
    )
)
"""The watched resources. The ClusterRole in manifests/components/fallback-watch allows exactly these."""

CAUTION = (
    "the fallback denies, though the webhook runs with --audit-only; "
    "list components/fallback before components/audit-mode"
)
"""The log message about a fallback that denies in audit mode."""

SECONDS = 2.0
"""Seconds between two checks for changes that the watch has received."""

Compares = Callable[[Sequence[Object]], Comparison]
"""Compares a fallback with the one that is needed."""

Heard = Callable[[], Sequence[Object] | None]
"""Returns the cluster's policies and bindings as the watch last received them; None while they are unknown."""


def kept(item: Object) -> Object | None:
    """Return the needed part of one of Slicewarden's own admission policies and bindings; None for any other object."""
    if not current.ours([item]):
        return None
    metadata = {key: item["metadata"].get(key) for key in ("name", "labels", "annotations")}
    return {"kind": item["kind"], "metadata": metadata, "spec": item.get("spec")}


class FallbackWatch:
    """Compares the watched fallback with the one that a policy needs, whenever it changes.

    The ConfigMap that a fallback reads is not compared. Each change is logged once: either the differences, or that
    there are none. In `audit` mode the fallback must only record, and a warning is logged if it denies.
    """

    def __init__(self, heard: Heard, compares: Compares, log: Log, metrics: Metrics, *, audit: bool = False) -> None:
        self._heard, self._compares = heard, compares
        self._log, self._metrics, self._audit = log, metrics, audit
        self._last: Sequence[Object] | None = None
        self._told: Sequence[str] | None = None

    def start(self) -> None:
        """Start the thread, which ends with the process."""
        self._metrics.fallback(dict.fromkeys(ObjectState, 0).items(), unread=True)
        threading.Thread(target=self._follow, daemon=True, name="fallback").start()

    def look(self) -> None:
        """Compare once, if anything changed since the last look."""
        found = self._heard()
        if found is None:
            self._metrics.fallback((), unread=True)
        elif found != self._last:
            compared = self._compares(found)
            self._metrics.fallback(current.states(compared.wanted, found).items(), unread=False)
            denies = self._audit and ValidationActions.DENY in current.answers(found)
            self._tell(compared.differences, CAUTION if denies else "")
        self._last = found

    def _tell(self, differences: Sequence[str], caution: str) -> None:
        if differences != self._told:
            self._told = differences
            message = {"message": "fallback differs", "differences": differences}
            message |= {"caution": caution} if caution else {}
            self._log(message if differences else {"message": "fallback is current"})

    def _follow(self) -> None:
        pause = threading.Event()
        while True:
            self.look()
            pause.wait(SECONDS)
