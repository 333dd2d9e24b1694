"""Judges the variables by which a tenant sets NVIDIA's own memory limit, and adds ours where NVIDIA's hook may be used.

A hook of NVIDIA's container toolkit passes the variables to the driver before a container starts: the limit is hard,
the request soft. The container is not created if one of them is not a whole number of MiB, or if the request exceeds
the limit (nvidia-container-toolkit v1.20.1, cmd/nvidia-cdi-hook, apply-cuda-memory-limits; seen with the hook itself).
Newer sources of the hook read other names first, in the plural, and set nothing unless there is a limit and a request.
We do not know which hook a node has, so values must be valid for both, and ours take all four names: no ConfigMap that
`envFrom` names can then set one of them. The driver counts all processes of a container with their contexts. So the
bound is the whole slice, not a framework's share of it.
"""

from collections.abc import Iterator, Mapping

from webhook.catalog.device_variables import (
    DRIVER_LIMITS,
    MEMORY_LIMIT,
    MEMORY_LIMITS,
    MEMORY_REQUEST,
    MEMORY_REQUESTS,
)
from webhook.memory.budget import Budget
from webhook.memory.steps import Environment, Step, StepKind, Words, natural, unknown

NAMES = DRIVER_LIMITS

HARD = frozenset({MEMORY_LIMIT, MEMORY_LIMITS})

READ = (((MEMORY_REQUEST,), (MEMORY_LIMIT,)), ((MEMORY_REQUESTS, MEMORY_REQUEST), (MEMORY_LIMITS, MEMORY_LIMIT)))
"""For each hook, the names of the request and of the limit; the first name that is set counts."""

NOT_KNOWN = Words(
    "{name} is not known before the pod runs, and may be more than the slice; write its value down, or remove it"
)
NO_NUMBER = Words(
    "{name} is {old}, not a whole number of MiB, so the container does not start; use {slice} or less, or remove it"
)
SOFT = Words("{name} without {limit} is no hard limit; set both to {slice}, or remove it")
ABOVE = Words("{name} is {old}, more than {limit}, so the container does not start; use no more, or remove it")
LARGER = Words("{name} is {old}, more than the slice or no limit; use {slice} or less")


def merge(env: Environment, budget: Budget, limit: int = 0) -> Iterator[Step]:
    """Keep a limit within the slice, lower a larger one, and refuse values that stop the container or limit nothing.

    `limit` (MiB), if given, is the upper bound, and every missing variable is added: with the tenant's smallest hard
    limit, or else with the bound. The request is then the same value, which the hook uses too if there is no request.
    """
    most = limit or budget.slice
    own = {name: env[name] or "" for name in NAMES if name in env}
    details = (("slice", str(most)),)
    unread = [(name, NOT_KNOWN) for name in own if unknown(env[name])]
    unread += [(name, NO_NUMBER) for name, value in own.items() if not unknown(env[name]) and not natural(value)]
    if unread:
        yield from [Step(StepKind.REFUSE, name, words, old=own[name], details=details) for name, words in unread]
        return
    low = {name: str(most) for name, value in own.items() if int(value) > most or _lifts(name, value)}
    added = dict.fromkeys(NAMES, _least({**own, **low}, most)) if limit else {}
    for name, words, of in _unfit({**added, **own, **low} if limit else own):
        yield Step(StepKind.REFUSE, name, words, old=own[name], details=(*details, ("limit", of)))
    yield from [Step(StepKind.LOWER, name, LARGER, value, own[name], details) for name, value in low.items()]
    yield from [Step(StepKind.ADD, name, value=value) for name, value in added.items() if name not in own]


def _lifts(name: str, value: str) -> bool:
    return name in HARD and not int(value)


def _least(values: Mapping[str, str], most: int) -> str:
    return min([value for name, value in values.items() if name in HARD] or [str(most)], key=int)


def _unfit(own: Mapping[str, str]) -> Iterator[tuple[str, Words, str]]:
    """Yield each request for which one of the hooks reads no limit, or a smaller one, with the limit's name."""
    refused: set[str] = set()
    for requests, limits in READ:
        request, limit = (next((name for name in names if name in own), "") for names in (requests, limits))
        if not request or request in refused:
            continue
        if not limit:
            refused.add(request)
            yield request, SOFT, limits[0]
        elif int(own[request]) > int(own[limit]):
            refused.add(request)
            yield request, ABOVE, limit
