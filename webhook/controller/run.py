"""Runs a controller until it is stopped. The leader looks after every change, and otherwise twice a minute."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from webhook.cluster import client
from webhook.controller import lease
from webhook.controller.controller import Controller, Round
from webhook.controller.health import ControllerMetrics
from webhook.telemetry.log import Log

WAITING, IDLE = 0.5, 30.0
"""Seconds between two looks while something is waited for, and while nothing is."""

LONGEST = 300
"""The most characters of an error in the log."""

PATIENT = 30
"""After this many looks that wait for the same condition, the time between two looks doubles.

After this many that wrote, each is followed by a pause: a change needs fewer writes, and a replica that reports another
release each time would have us write without end.
"""


def run(
    controller: Controller,
    leads: Callable[[], bool],
    changed: threading.Event,
    ended: threading.Event,
    metrics: ControllerMetrics,
    log: Log,
) -> None:
    """Run looks until `ended` is set. `changed` is set when a watched object changes.

    A look that fails is logged, whatever the error is. It is repeated soon at first, and later after longer pauses.
    """
    said, due, again, wrote, failures, led = "", 0.0, 0, 0, 0, False
    while not ended.is_set():
        pause = WAITING
        try:
            ours = leads()
            if ours and not led:
                controller.begin()
            led = ours
            if ours and (changed.is_set() or time.monotonic() >= due):
                changed.clear()
                look = controller.look()
                metrics.saw(controller.standing, controller.replicas, wrote=bool(look.wrote))
                again = again + 1 if look.waits and look.waits == said else 0
                wrote = wrote + 1 if look.wrote else 0
                pause = _pause(look, max(again, wrote))
                due = time.monotonic() + (pause if look.wrote or look.waits else IDLE)
                if look.waits and look.waits != said:
                    log({"message": "waits", "for": look.waits})
                said = look.waits
            elif not ours:
                changed.clear()  # only the leader waits for it; if it stayed set, every wait would end at once
                due, pause = 0.0, lease.RENEW
            else:
                pause = min(lease.RENEW, max(due - time.monotonic(), 0.0))
            metrics.looked(leads=ours)
        except Exception as error:  # after any error the controller must go on
            metrics.failed(_kind(error))
            log({"message": "tries again", "error": f"{type(error).__name__}: {error}"[:LONGEST]})
            ended.wait(min(WAITING * 2**failures, lease.RENEW))
            due, failures = 0.0, min(failures + 1, PATIENT)
            continue
        failures = 0
        if pause:
            _wait(changed, ended, pause)


def _kind(error: Exception) -> str:
    """Return the word of the metrics for an error."""
    if isinstance(error, client.StatusError):
        return "conflict" if error.status == client.CONFLICT else "refused"
    return "unreachable" if isinstance(error, client.Unreachable) else "other"


def _pause(look: Round, again: int) -> float:
    """Return the seconds until the next look, which grow while a look ends in the same way again and again."""
    if look.wrote:
        return WAITING if again > PATIENT else 0.0
    return min(WAITING * 2 ** (again // PATIENT), lease.RENEW) if look.waits else lease.RENEW


def _wait(changed: threading.Event, ended: threading.Event, seconds: float) -> None:
    """Wait for a change, for at most `seconds`. A change does not shorten a wait of half a second or less."""
    if seconds <= WAITING:
        ended.wait(seconds)
    else:
        changed.wait(seconds)


def leader(api: client.Api, leases: str, identity: str) -> Callable[[], bool]:
    """Return a function that says whether this controller leads. It renews the lease after a third of its duration."""
    last = [-lease.RENEW, False]
    own = lease.Lease(api, f"{leases}/slicewarden-controller", identity)

    def leads() -> bool:
        if time.monotonic() - last[0] >= lease.RENEW or not last[1]:
            last[0] = time.monotonic()
            last[1] = own.leads(datetime.now(UTC))
        return bool(last[1])

    return leads
