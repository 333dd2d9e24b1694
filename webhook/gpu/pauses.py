"""Decides whether a container may be frozen, and for how long.

The kubelet restarts a container whose liveness or startup probe fails `failureThreshold` times in a row. A frozen
container fails each HTTP and gRPC probe, and a TCP probe once the backlog of its socket is full. The runtime refuses an
exec probe of a frozen container, which the kubelet does not count as a failure (kubernetes
pkg/kubelet/prober/worker.go).
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from webhook.api.lenient import mapping
from webhook.api.pods import Container
from webhook.catalog import gangs
from webhook.gpu import requests
from webhook.gpu.review import PodReview
from webhook.policy.model import ALL, OFF, PAUSABLE, PRIORITY_CLASS, Pool
from webhook.text.words import shown

SHORTEST = 5
"""Seconds: a container that tolerates only a shorter freeze is never frozen."""

TIME_SLICING = "time-slicing"

_PROBES = ("livenessProbe", "startupProbe")
_ANSWERED = ("httpGet", "grpc", "tcpSocket")
_PERIOD, _THRESHOLD, _TIMEOUT = 10, 3, 1
"""Kubernetes' defaults for a probe, in seconds and failures (k8s.io/api core/v1 types.go, Probe)."""


FIELDS = ("hostNetwork", "priority", *sorted(gangs.FIELDS))
"""The fields of a spec that are read here, next to those of containers."""

CONTAINER_FIELDS = _PROBES
"""The fields of a container that are read here, next to its requests and its variables."""


class Pause(NamedTuple):
    """How long a container may be frozen and must run afterwards for its probes (seconds), and its pod's priority."""

    longest: int
    rest: int = 0
    priority: int = 0


def pause(review: PodReview, container: Container, pool: Pool) -> Pause | str:
    """Return how a container of a pod may be frozen in a pool, or why it must not be."""
    rules, pod = pool.contention, review.subject
    if rules.mode == OFF or pool.sharing != TIME_SLICING:
        return "containers of this pool take no turns"
    said = pod.annotations.get(PAUSABLE)
    if rules.who != ALL and said != "true":
        return (
            f"its pod has no annotation {PAUSABLE}"
            if said is None
            else f'{PAUSABLE} is {shown(said)}: only "true" allows it'
        )
    if rules.who == ALL and said == "false":
        return f'its pod has the annotation {PAUSABLE}: "false"'
    own = [request for request in review.requests if request.container.path == container.path]
    if not own or container.list_name != "containers":
        return "it is not a main container with a GPU request"
    if any("mig-" in each.resource or not each.whole for each in review.requests):
        return "its pod requests a MIG device, or an invalid number of GPUs"
    if sum(requests.totals(review.requests).values()) > 1:
        return "its pod requests several GPUs"
    if sign := _gang(review):
        return f"its pod belongs to a group ({sign})"
    bounds = [*_bounds(container)]
    if None in bounds:
        return "one of its probes is invalid"
    known = [each for each in bounds if each is not None]
    longest = min([rules.longest, *(tolerated for tolerated, _ in known)])
    if longest < SHORTEST:
        return (
            f"its probes tolerate {longest} s, and the minimum is {SHORTEST} s; raise failureThreshold or periodSeconds"
        )
    rest, most = max([0, *(needs for _, needs in known)]), rules.longest + rules.rest
    if rest > most:  # it would keep its turn, and the others would be frozen meanwhile
        return f"its probes need {rest} s after a freeze, and the most is {most} s; lower periodSeconds"
    priority = pod.spec.get("priority") if rules.order == PRIORITY_CLASS else 0
    return Pause(longest, rest, priority if type(priority) is int else 0)


def _gang(review: PodReview) -> str:
    """Return the field or label that shows that a pod belongs to a group, or an empty text."""
    pod = review.subject
    if pod.spec.get("hostNetwork"):
        return "hostNetwork"
    for found in (*pod.labels, *pod.annotations):
        if found in gangs.KEYS:
            return found
    for field in gangs.FIELDS:
        if pod.spec.get(field):
            return field
    for container in pod.containers:
        for name in container.variables(gangs.VARIABLES):
            return name
    return ""


def _bounds(container: Container) -> Iterator[tuple[int, int] | None]:
    """Yield for each probe how long it tolerates a freeze and how long it needs to succeed again; None if invalid."""
    for name in _PROBES:
        probe = container.spec.get(name)
        if probe is None:
            continue
        if not isinstance(probe, dict):
            yield None
            continue
        period, threshold, timeout = (
            _number(probe, key, usual)
            for key, usual in (
                ("periodSeconds", _PERIOD),
                ("failureThreshold", _THRESHOLD),
                ("timeoutSeconds", _TIMEOUT),
            )
        )
        if period is None or threshold is None or timeout is None:
            yield None
        elif any(key in probe for key in _ANSWERED):
            yield (threshold - 1) * period, period + timeout
        elif not mapping(probe.get("exec")):
            yield None


def _number(probe: Mapping[str, Any], key: str, usual: int) -> int | None:
    """Read a number of a probe. Kubernetes treats 0 as unset."""
    value = probe.get(key) or usual
    return value if type(value) is int and value > 0 else None
