"""Models a contended card with the agent's own planner, after the study on which the turns are based.

SIMULATION, fitted to Table 1 of the study (RTX 3090, one product of two matrices of 13,312² in each container). Nothing
here was measured on a card. The planner is the agent's own; its looks, NVML's sample period and freezes are simulated.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.agent.literal import manage
from webhook.agent.actions import FREEZE
from webhook.agent.turns import plan
from webhook.policy.model import FIRST_COME, Contention

TABLE_1 = {1: 11.30, 2: 23.84, 3: 35.46, 5: 58.97, 10: 117.09}
"""The study's result: seconds until the last of this many containers has ended, all running at once."""

SIDE = 13312
"""The side of the matrices of Table 1."""


@dataclass
class Job:
    """The work that a container still has to do, in seconds of each stage, and whether it is frozen.

    The stages are on the host, the copy engine, the card, and the host again. The defaults are for Table 1.
    """

    start: float = 0.083
    copy: float = 0.106
    kernel: float = 10.7946
    end: float = 0.3185
    frozen: bool = False
    ended: float | None = None


def sized(side: int) -> Job:
    """Return the work for matrices of another size.

    Kernel time grows with the cube of the side, copy time with its square.
    """
    part, job = side / SIDE, Job()
    return Job(job.start, job.copy * part**2, job.kernel * part**3, job.end * part**2)


SWITCH = 0.0735
"""Part of the card's time that is lost while kernels of several containers take turns by time-slicing."""

STEP, LOOK, SAMPLE = 0.01, 0.1, 1 / 6
"""Seconds of a step of the model, between two looks of the agent, and of NVML's sample period."""

RULES = Contention(FIRST_COME, longest=10**6)


class Ends(NamedTuple):
    """The seconds until the last container ended, and the mean over all containers."""

    last: float
    mean: float


Manager = Callable[[float, int, dict[str, Job], dict[str, int]], None]
"""Freezes and thaws containers, given the time, the card's use, and the remaining containers with their use."""


def together(count: int, work: Job | None = None) -> Ends:
    """Simulate running all containers at once."""
    return _run(count, lambda *_: None, work)


def one_after_the_other(count: int) -> Ends:
    """Simulate starting each container when the one before it has ended."""
    alone = together(1).last
    return Ends(count * alone, alone * (count + 1) / 2)


def managed(count: int, rules: Contention = RULES, work: Job | None = None) -> Ends:
    """Simulate containers that the agent's planner freezes. Their probes tolerate the policy's `longestSeconds`."""
    state = plan.TurnState(found=frozenset())

    def look(now: float, busy: int, left: dict[str, Job], shares: dict[str, int]) -> None:
        nonlocal state
        here = tuple(
            plan.Candidate(key, frozenset("A"), int(key), shares.get(key, 0), rules.longest) for key in sorted(left)
        )
        state, actions = plan.plan(state, plan.PlanInput(now, {"A": plan.CardLoad(busy, 0, 1)}, here), rules)
        for act in actions:
            if act.container in left:
                left[act.container].frozen = act.verb == FREEZE

    return _run(count, look, work)


def to_the_letter(count: int) -> Ends:
    """Simulate the study's algorithm as published (literal.py). Its inner loop reads the card's use once."""
    running = 0

    def look(_now: float, busy: int, left: dict[str, Job], _shares: dict[str, int]) -> None:
        nonlocal running
        tasks = sorted(left)
        running, still = manage(running, busy, 0.0, tasks)
        for key in tasks:
            left[key].frozen = key in still

    return _run(count, look)


def _run(count: int, manager: Manager, work: Job | None = None) -> Ends:
    """Simulate this many containers that start together, and the manager that observes them."""
    jobs = {f"{number:03d}": replace(work or Job()) for number in range(count)}
    now, worked, since = 0.0, dict[str, float](), 0.0
    busy, shares, looked = 0, dict[str, int](), -1.0
    while left := {key: job for key, job in jobs.items() if job.ended is None}:
        if now - looked >= LOOK - STEP / 2:
            looked = now
            manager(now, busy, left, shares)
        kernels = [key for key, job in left.items() if job.start <= 0 and job.copy <= 0 and job.kernel > 0]
        copies = [job for job in left.values() if job.start <= 0 < job.copy and not job.frozen]
        for job in left.values():
            if not job.frozen and job.start > 0:
                job.start -= STEP
            elif not job.frozen and job.copy <= 0 and job.kernel <= 0:
                job.end -= STEP
                job.ended = now + STEP if job.end <= 0 else None
        for job in copies:
            job.copy -= STEP / len(copies)
        for key in kernels:  # a queued kernel runs to its end, even while its process is frozen
            part = STEP / len(kernels)
            jobs[key].kernel -= part / (1 + SWITCH if len(kernels) > 1 else 1)
            worked[key] = worked.get(key, 0.0) + part
        now += STEP
        if now - since >= SAMPLE:
            shares = {key: round(100 * part / (now - since)) for key, part in worked.items()}
            busy, worked, since = min(100, round(100 * sum(worked.values()) / (now - since))), {}, now
    ends = [job.ended or 0.0 for job in jobs.values()]
    return Ends(max(ends), sum(ends) / count)
