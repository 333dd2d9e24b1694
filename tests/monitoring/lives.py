"""Random lives of a node, which are counted in a usage record and scraped for a Prometheus."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from webhook.agent.metrics import AgentMetrics, LastLook
from webhook.agent.recorder import UsageRecorder
from webhook.usage.account import UNSEEN, CardShare, HolderLook, NodeLook
from webhook.usage.held import NodeSlices
from webhook.usage.record import SlicedCard
from webhook.usage.store import UsageStore

TICK, SCRAPE = 5, 30
"""Seconds between two looks, and between two scrapes."""


LOOKBACK = 300
"""Seconds for which Prometheus shows a series that has ended, unless it was marked as stale, as a scrape does."""


class Program(NamedTuple):
    """A container's life, in seconds from the begin of the trace."""

    namespace: str
    pod: str
    begin: int
    end: int
    slices: int
    card: str
    burst: int

    def look(self, age: int) -> HolderLook:
        """Return what the agent sees of it."""
        mib = min(500 + age, 4000 + 10 * self.burst)
        working = age // 60 % self.burst == 0
        share = CardShare(self.card, self.slices, None if age % 977 == 0 else working, mib, 4200, mib > 4200, working)
        key = f"{self.pod}-{self.begin}"
        return HolderLook(key, self.namespace, f"Job/{self.pod}", self.pod, "main", (share,))


class AtOnce(Executor):
    """Saves in the thread of the look."""

    def submit(self, call: Any, /, *given: Any, **_: Any) -> Future[Any]:
        """Call at once."""
        done = Future[Any]()
        done.set_result(call(*given))
        return done


class NodeLife:
    """A node until `now` (whole seconds from 1970), `length` seconds long: its cards, programs, and faults.

    `kills` are the times when the agent dies without saving, and `rolls` those when another one replaces it. `blind` is
    the part of its looks that see nothing, and `blinks` the part of the scrapes that fail.
    """

    def __init__(self, seed: int, now: int, length: int, folder: Path, *, faults: bool) -> None:
        random = Random(seed)  # noqa: S311 - a schedule, not a secret
        self.node, self.now, self.length, self.folder = f"node-{seed}", now, length, folder / f"node-{seed}"
        self.cards = tuple(SlicedCard(f"GPU-{seed}-{number}", 4, f"pool-{seed}", "A10") for number in range(2))
        self.programs = tuple(self._programs(random))
        moments = range(TICK, length, TICK)
        self.kills = {random.choice(moments) for _ in range(2)} if faults else set()
        self.rolls = {random.choice(moments[: -2 * LOOKBACK // TICK]) for _ in range(2)} if faults else set()
        self.blind = random.random() * 0.01 if faults else 0.0
        self.blinks = random.random() * 0.1 if faults else 0.0
        self.random, self.phase = random, random.randrange(0, SCRAPE, TICK)
        self.generation = 0

    def _programs(self, random: Random) -> Iterator[Program]:
        for card in self.cards:
            for slot in range(3):
                at = random.randrange(0, self.length, TICK) // 4
                for number in range(9):
                    time = random.choice((20, 60, 300, 3600, 7200)) // TICK * TICK
                    name = f"p{number if random.random() < 0.8 else 0}-{slot}"
                    yield Program(
                        f"team-{random.randrange(3)}", name, at, at + time, 1, card.uuid, random.randrange(1, 5)
                    )
                    at += time + random.randrange(0, 1200, TICK)

    def _recorder(self, wall: list[int]) -> UsageRecorder:
        self.generation += 1
        return UsageRecorder(
            self.node,
            NodeSlices,
            UsageStore(self.folder),
            lambda _: None,
            boot="boot",
            wall=lambda: float(wall[0]),
            clock=lambda: float(wall[0] - self.now + 10_000_000),
            saver=AtOnce(),
        )

    def run(self) -> tuple[list[str], UsageRecorder]:
        """Return the samples that Prometheus gets, and the recorder at the end."""
        wall = [self.now - self.length]
        agent, target, lines = self._recorder(wall), 0, list[str]()
        for second in range(0, self.length + 1, TICK):
            wall[0] = self.now - self.length + second
            if second in self.kills:
                agent = self._recorder(wall)
            if second in self.rolls:
                agent.close()
                agent, target = self._recorder(wall), target + 1
            here = tuple(each.look(second - each.begin) for each in self.programs if each.begin <= second < each.end)
            seen = self.random.random() >= self.blind
            look = NodeLook(self.cards, here) if seen else UNSEEN._replace(cards=self.cards)
            agent._advance(look, float(wall[0] - self.now + 10_000_000))
            last = second == self.length
            if last or (second % SCRAPE == self.phase and self.random.random() >= self.blinks):
                lines += samples(agent, wall[0], f'instance="{self.node}-{target}:8080",job="agents"')
        return lines, agent


def samples(agent: UsageRecorder, at: int, target: str) -> Iterator[str]:
    """Yield what a scrape reads, with the labels of its target."""
    metrics = AgentMetrics(usage=lambda: agent.totals)
    metrics.saw(LastLook())
    for line in metrics.text().decode().split("\n"):
        if line.startswith("slicewarden_node_") and "{" in line:
            name, brace, rest = line.partition("{")
            yield f"{name}{brace}{target},{rest} {at}"
