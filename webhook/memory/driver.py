"""NVIDIA's own limit, by variables: judges a tenant's values. Nothing here sets one.

A hook of NVIDIA's container toolkit gives them to the driver before a container starts: the limit is hard, the request
soft. The container is not created if one is no whole number of MiB, or if the request is above the limit
(nvidia-container-toolkit v1.20.1, cmd/nvidia-cdi-hook, apply-cuda-memory-limits; seen with the hook itself). The driver
counts all of a container's processes with their contexts, so the slice is the bound and not a framework's share of it.
"""

from collections.abc import Iterator, Mapping

from webhook.catalog.device_variables import MEMORY_LIMIT, MEMORY_REQUEST
from webhook.memory.budget import Budget
from webhook.memory.steps import Environment, Step, StepKind, Words, natural, unknown

NAMES = (MEMORY_LIMIT, MEMORY_REQUEST)

NOT_KNOWN = Words(
    "{name} is not known before the pod runs, and may be more than the slice; write its value down, or remove it"
)
NO_NUMBER = Words(
    "{name} is {old}, not a whole number of MiB, so the container does not start; use {slice} or less, or remove it"
)
SOFT = Words(f"{{name}} without {MEMORY_LIMIT} is no hard limit; set both to {{slice}}, or remove it")
ABOVE = Words(
    f"{{name}} is {{old}}, more than {MEMORY_LIMIT}, so the container does not start; use no more, or remove it"
)
LARGER = Words("{name} is {old}, more than the slice or no limit; use {slice} or less")


def merge(env: Environment, budget: Budget) -> Iterator[Step]:
    """Keep a limit within the slice, lower a larger one, and refuse what is no hard limit or stops the container."""
    own = {name: env[name] or "" for name in NAMES if name in env}
    unread = [(name, NOT_KNOWN) for name in own if unknown(env[name])]
    unread += [(name, NO_NUMBER) for name, value in own.items() if not unknown(env[name]) and not natural(value)]
    details = (("slice", str(budget.slice)),)
    for name, words in unread or _unfit(own):
        yield Step(StepKind.REFUSE, name, words, old=own[name], details=details)
    for name, value in own.items() if not unread else ():
        if int(value) > budget.slice or (name == MEMORY_LIMIT and not int(value)):
            yield Step(StepKind.LOWER, name, LARGER, str(budget.slice), value, details)


def _unfit(own: Mapping[str, str]) -> Iterator[tuple[str, Words]]:
    """Yield the request if it has no limit, or a smaller one."""
    if MEMORY_REQUEST in own and MEMORY_LIMIT not in own:
        yield MEMORY_REQUEST, SOFT
    elif MEMORY_REQUEST in own and int(own[MEMORY_REQUEST]) > int(own[MEMORY_LIMIT]):
        yield MEMORY_REQUEST, ABOVE
