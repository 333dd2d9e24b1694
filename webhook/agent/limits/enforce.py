"""Enforces a decision: evicts a pod, kills processes, or changes the node's taints."""

import os
import signal
from collections.abc import Iterable
from http import HTTPStatus

from webhook.agent.actions import DONE, WAITS
from webhook.agent.observe.look import ContainerUse, ProcessUse
from webhook.agent.observe.processes import Processes
from webhook.agent.observe.view import NodeContainer
from webhook.cluster.client import MERGE, Api, StatusError, Unreachable, ask
from webhook.model import Object


def evict(api: Api, container: NodeContainer) -> str:
    """Request the eviction of a container's pod (policy/v1 Eviction). Returns the outcome.

    The precondition on the uid protects a new pod with the same name. The API server answers 429 while a disruption
    budget forbids the eviction; the outcome is then WAITS.
    """
    name = container.name
    if not container.uid:
        return "the pod's uid is unknown"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": name.namespace, "name": name.pod},
        "deleteOptions": {"preconditions": {"uid": container.uid}},
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
    """Send a merge patch of a node. Returns the outcome: WAITS if the node has changed since it was read (409)."""
    try:
        ask(api, f"/api/v1/nodes/{name}", method="PATCH", body=patch, patch=MERGE)
    except StatusError as error:
        return WAITS if error.status == HTTPStatus.CONFLICT else f"HTTP {error.status}"
    except Unreachable:
        return "API server away"
    return DONE


def victims(use: ContainerUse, allowance: int) -> tuple[ProcessUse, ...]:
    """Return the fewest processes, largest first, whose end brings a container within its allowance (MiB)."""
    left, chosen = use.mib, list[ProcessUse]()
    for each in sorted(use.processes, key=lambda each: (-(each.mib or 0), each.process.start, each.process.pid)):
        if left <= allowance or not each.mib:
            break
        chosen.append(each)
        left -= each.mib
    return tuple(chosen)


def kill(chosen: Iterable[ProcessUse], processes: Processes) -> str:
    """Send SIGKILL to processes. Returns the outcome.

    Each process is opened as a pidfd before its start time is compared, so a new process with the same PID is never
    killed.
    """
    outcome = DONE
    for each in chosen:
        try:
            descriptor = os.pidfd_open(each.process.pid)
        except ProcessLookupError:
            continue
        except OSError as error:
            outcome = error.strerror or "not killed"
            continue
        try:
            if processes.alive(each.process):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except OSError as error:
            outcome = error.strerror or "not killed"
        finally:
            os.close(descriptor)
    return outcome
