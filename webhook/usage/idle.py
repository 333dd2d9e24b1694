"""Decides what happens to containers that have a slice of a shared card and do no work. Has no side effects."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.policy.model import EVICT, Idle
from webhook.usage.account import QuietTime


@dataclass(frozen=True)
class IdleState:
    """The state between looks: when each idle container was reported, and each pod evicted last, in seconds.

    `ready` are the uids of the pods that may be evicted now. `rules` are those of which the reports spoke.
    """

    reported: Mapping[str, float] = field(default_factory=dict)
    evicted: Mapping[str, float] = field(default_factory=dict)
    ready: frozenset[str] = frozenset()
    rules: Idle | None = None


class IdleDecision(NamedTuple):
    """The keys of the containers to report, and of one container of each pod to evict."""

    report: tuple[str, ...] = ()
    evict: tuple[str, ...] = ()


def decide(
    before: IdleState,
    now: float,
    quiet: Mapping[str, QuietTime],
    liable: Container[str],
    rules: Idle,
    waiting: Container[str] = (),
) -> tuple[IdleState, IdleDecision]:
    """Return the next state and the decision. `now` is in seconds of a monotonic clock.

    `quiet` says for how long each container has surely not worked, by its key, which begins with its pod's uid. Nothing
    else counts, neither its CPU nor the memory that it holds. Only those in `liable` are reported. A container is
    reported once, and its pod is evicted no earlier than `rules.notice` seconds after that, when all its containers
    that hold slices have been reported for so long, and none that uses a card works. It is evicted again after as long.
    A container in `waiting` does not run now, and holds its slices until it starts again: its report stays. One that
    has ended needs no report: its pod's other containers are reported, and must not work for as long either. If the
    rules change, all are reported again, because nobody was told of the new ones.
    """
    before = before if before.rules == rules else IdleState()
    reported = {
        key: before.reported.get(key, now)
        for key, time in quiet.items()
        if time.holds
        and time.ms >= rules.after * 1000
        and (key in liable or (key in waiting and key in before.reported))
    }
    busy = {_uid(key) for key, time in quiet.items() if not _over(key, time, reported, now, rules)}
    evicted, evict = dict[str, float](), list[str]()
    for key in reported if rules.action == EVICT else ():
        uid = _uid(key)
        if uid in busy or uid in evicted or key not in liable or now - reported[key] < rules.notice:
            continue
        last = before.evicted.get(uid)
        evicted[uid] = now if last is None or now - last >= rules.notice else last
        evict += [key] if evicted[uid] == now else []
    report = tuple(key for key in reported if key not in before.reported)
    return IdleState(reported, evicted, frozenset(evicted), rules), IdleDecision(report, tuple(evict))


def _uid(key: str) -> str:
    return key.partition("/")[0]


def _over(key: str, time: QuietTime, reported: Mapping[str, float], now: float, rules: Idle) -> bool:
    """Whether a container of a pod lets it be evicted."""
    if time.holds and not time.ended:
        return key in reported and now - reported[key] >= rules.notice
    return time.ms >= (rules.after + rules.notice) * 1000
