"""Simulates API servers that call the replicas of a webhook. The simulation is event-based, and repeatable by seed.

A pod's creation calls the webhook twice, one call after the other. An API server speaks HTTP/1.1 to a webhook behind a
Service, so each call in flight has a connection to itself; it takes the idle one that it used last, or makes a new one
(kubernetes staging/src/k8s.io/apiserver/pkg/util/webhook/client.go, Go net/http transport.go). It keeps 25 idle ones
(k8s.io/client-go transport/cache.go, idleConnsPerHost). kube-proxy gives each new connection to a replica at random,
and there the worker with the fewest takes it (webhook/serving/worker.py, Share). From Kubernetes 1.37 on, an API server
with --enable-aggregator-routing chooses a replica for each call (feature WebhookRoundTripLoadBalancing).

A worker answers one call after the other. A connection costs it a handshake. The simulation leaves out three things.
The network takes no time. A call never uses a connection that another call returns while its own connection is being
made. And an API server never gives up on a late call.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

CALLS = 2
"""Calls for the creation of a pod: `/mutate` and `/validate`."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas of a webhook and the API servers that call them. `timeout` and `handshake` are in seconds."""

    replicas: int
    workers: int = 2
    api_servers: int = 3
    by_call: bool = False
    """Whether a replica is chosen for each call, not for each connection."""
    in_flight: int = 200
    """Creations that an API server handles at once (kube-apiserver --max-mutating-requests-inflight)."""
    idle: int = 25
    waiting: int = 256
    """Calls that wait at a worker; it answers more with 429 (webhook/http/limits.py)."""
    handshake: float = 0.0
    age: float = math.inf
    """Seconds, a quarter more or less, after which a connection ends with an answer (webhook/http/limits.py)."""
    away: tuple[float, float] | None = None
    """When the first replica is down. Its connections are closed, and it restarts without any."""


@dataclass(slots=True)
class Played:
    """The result of a simulation: seconds of each answered call, refused calls, and answered calls by replica."""

    taken: list[float] = field(default_factory=list)
    refused: int = 0
    answered: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    """Answered calls by replica after the restart."""

    @property
    def busiest(self) -> float:
        """The calls of the busiest replica as a multiple of an equal share."""
        return max(self.answered) * len(self.answered) / max(1, sum(self.answered))

    def late(self, timeout: float) -> int:
        """Return how many calls took longer than an API server waits for an answer."""
        return sum(each > timeout for each in self.taken)


class _Worker:
    """Answers in the order of arrival."""

    def __init__(self, replica: int) -> None:
        self.replica = replica
        self.connections = 0
        self._ends: deque[float] = deque()

    def end(self, now: float, work: float, waiting: int) -> float | None:
        """Return the time at which a call will be answered; None if too many calls wait."""
        while self._ends and self._ends[0] <= now:
            self._ends.popleft()
        if len(self._ends) > waiting:
            return None
        self._ends.append(max(now, self._ends[-1] if self._ends else now) + work)
        return self._ends[-1]


Kept = tuple[_Worker, float]
"""The worker at the other end of an idle connection, and when the connection is too old."""

Event = tuple[float, int, Callable[[float], None]]


class _Play:
    def __init__(self, fleet: Fleet, service: Callable[[Random], float], random: Random, calls: int) -> None:
        self.fleet, self.service, self.random, self.calls = fleet, service, random, calls
        self.ages = Random(calls)  # noqa: S311 - a simulation; its own, so that plays without ages stay the same
        self.played = Played(answered=[0] * fleet.replicas, after=[0] * fleet.replicas)
        self.workers = [[_Worker(each) for _ in range(fleet.workers)] for each in range(fleet.replicas)]
        self.here = list(range(fleet.replicas))
        self.pools: dict[tuple[int, int, int], list[Kept]] = {}
        self.busy = [0] * fleet.api_servers
        self.held: list[deque[float]] = [deque() for _ in range(fleet.api_servers)]
        self.events: list[Event] = []
        self.order = count()

    def at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self.events, (when, next(self.order), act))

    def run(self, arrivals: Iterator[float]) -> Played:
        if self.fleet.away:
            left, back = self.fleet.away
            self.at(left, self.leave)
            self.at(back, self.come)
        self.await_next(arrivals)
        while self.events:
            now, _, act = heapq.heappop(self.events)
            act(now)
        return self.played

    def await_next(self, arrivals: Iterator[float]) -> None:
        def arrived(now: float) -> None:
            self.arrive(now)
            self.await_next(arrivals)

        when = next(arrivals, None)
        if when is not None:
            self.at(when, arrived)

    def arrive(self, now: float) -> None:
        server = self.random.randrange(self.fleet.api_servers)
        if self.busy[server] < self.fleet.in_flight:
            self.busy[server] += 1
            self.call(now, server, 0)
        else:
            self.held[server].append(now)

    def call(self, now: float, server: int, number: int) -> None:
        """Send one of the calls of a creation, and the next one when it is answered."""
        if number == self.calls:
            if self.held[server]:
                self.held[server].popleft()
                self.call(now, server, 0)
            else:
                self.busy[server] -= 1
            return
        chosen = self.random.choice(self.here)
        pool = self.pools.setdefault((server, number, chosen if self.fleet.by_call else 0), [])
        work = self.service(self.random)
        if pool:
            worker, old = pool.pop()
        else:
            worker = min(self.workers[chosen], key=lambda each: each.connections)
            worker.connections += 1
            old = now + self.fleet.age * self.ages.uniform(0.75, 1.25)
            work += self.fleet.handshake
        end = worker.end(now, work, self.fleet.waiting)
        if end is None:
            self.played.refused += 1  # the creation fails
            self.give_back(pool, (worker, old), now)
            self.call(now, server, self.calls)
            return

        def answered(then: float) -> None:
            self.played.taken.append(then - now)
            self.played.answered[worker.replica] += 1
            if self.fleet.away and then > self.fleet.away[1]:
                self.played.after[worker.replica] += 1
            self.give_back(pool, (worker, old), then)
            self.call(then, server, number + 1)

        self.at(end, answered)

    def give_back(self, pool: list[Kept], kept: Kept, now: float) -> None:
        worker, old = kept
        if now <= old and len(pool) < self.fleet.idle and worker.replica in self.here:
            pool.append(kept)
        else:
            worker.connections -= 1

    def leave(self, _: float) -> None:
        self.here.remove(0)
        for pool in self.pools.values():
            for kept in [each for each in pool if each[0].replica == 0]:
                pool.remove(kept)
                kept[0].connections -= 1

    def come(self, _: float) -> None:
        self.here.append(0)


def play(
    fleet: Fleet,
    rate: float,
    seconds: float,
    service: Callable[[Random], float],
    seed: int = 0,
    calls: int = CALLS,
) -> Played:
    """Simulate creations at a mean rate per second (a Poisson process) for a time in seconds.

    Each call takes a service time in seconds.
    """
    random = Random(seed)  # noqa: S311 - a simulation

    def arrivals() -> Iterator[float]:
        now = random.expovariate(rate)
        while now < seconds:
            yield now
            now += random.expovariate(rate)

    return _Play(fleet, service, random, calls).run(arrivals())
