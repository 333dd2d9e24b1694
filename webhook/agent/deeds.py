"""Acts on a container above its allowance: has its pod evicted, or kills processes."""

import os
import signal
from collections.abc import Iterable
from http import HTTPStatus

from webhook.agent.look import Held, Use
from webhook.agent.processes import Processes
from webhook.agent.view import Known
from webhook.cluster.client import MERGE, Api, StatusError, Unreachable, ask
from webhook.model import Object

DONE, WAITS = "done", "waits"
"""Outcomes of a deed; any other one is the reason why it failed."""


def evict(api: Api, known: Known) -> str:
    """Ask for the eviction of a pod, and of no other one that has its name (policy/v1 Eviction). Returns the outcome.

    The API server answers 429 while a disruption budget forbids it; then it waits, and nothing else is done instead.
    """
    name = known.name
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": name.namespace, "name": name.pod},
        "deleteOptions": {"preconditions": {"uid": known.uid}},
    }
    try:
        ask(api, f"/api/v1/namespaces/{name.namespace}/pods/{name.pod}/eviction", method="POST", body=body)
    except StatusError as error:
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            return WAITS
        return DONE if error.status == HTTPStatus.NOT_FOUND else f"HTTP {error.status}"
    except Unreachable:
        return "API server away"
    return DONE


def patch_node(api: Api, name: str, patch: Object) -> str:
    """Send a merge patch of a node. Returns the outcome: it waits if the node has changed since it was read (409)."""
    try:
        ask(api, f"/api/v1/nodes/{name}", method="PATCH", body=patch, patch=MERGE)
    except StatusError as error:
        return WAITS if error.status == HTTPStatus.CONFLICT else f"HTTP {error.status}"
    except Unreachable:
        return "API server away"
    return DONE


def victims(use: Use, allowance: int) -> tuple[Held, ...]:
    """Return the processes whose end brings a container within its allowance: the largest first, and no more."""
    left, chosen = use.mib, list[Held]()
    for held in sorted(use.held, key=lambda each: (-(each.mib or 0), each.process.start, each.process.pid)):
        if left <= allowance or not held.mib:
            break
        chosen.append(held)
        left -= held.mib
    return tuple(chosen)


def kill(chosen: Iterable[Held], processes: Processes) -> str:
    """Send SIGKILL to processes. Returns the outcome.

    Each is held by a descriptor first, and then compared with the one that was seen: a PID's next owner is never hit.
    """
    outcome = DONE
    for held in chosen:
        try:
            descriptor = os.pidfd_open(held.process.pid)
        except ProcessLookupError:
            continue
        except OSError as error:
            outcome = error.strerror or "not killed"
            continue
        try:
            if processes.still(held.process):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except OSError as error:
            outcome = error.strerror or "not killed"
        finally:
            os.close(descriptor)
    return outcome
