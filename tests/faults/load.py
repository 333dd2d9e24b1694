"""A steady load of reviews, as an API server sends them, of which every reply is compared with what it has to be."""

import asyncio
import itertools
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bench import payloads, tables
from tests.faults.replicas import Replica, Secret, until

DEADLINE = 30.0
"""Seconds after which a caller has given up: the longest timeout of a registration (admissionregistration/v1)."""

WAITING = 32
"""Reviews that may wait for an answer. One that is due then is not sent, as on a machine that is too busy for them."""

QUIET = 1.5
"""Seconds of load before a fault, against which it is measured."""

RATE, CONNECTIONS = 100.0, 8
"""Reviews a second, and connections that are kept: each of several API servers keeps a few."""

UID = payloads.small().body.partition(b'"uid":"')[2].partition(b'"')[0]
RETRY_AFTER = b"retry-after: "


class Kind(NamedTuple):
    """A review: where it is sent, and its bytes."""

    path: str
    body: bytes


REVIEWS = (
    Kind("/mutate", payloads.small().body),
    Kind("/validate", payloads.small().body),  # not patched, so it is denied
    Kind("/validate", payloads.plain().body),
)


class Asked(NamedTuple):
    """One review: when it was due, how many seconds its answer took, and why it failed, if it did."""

    due: float
    took: float
    failure: str


class Times(NamedTuple):
    """How many seconds 99 of 100 reviews took at most, and how many the slowest."""

    p99: float
    slowest: float


@dataclass(eq=False)
class _Kept:
    """A connection, and the replica at its other end."""

    replica: Replica
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def gone(self) -> bool:
        return self.reader.at_eof() or self.writer.is_closing()


@dataclass
class Load:
    """Reviews at a fixed rate, as long as not too many wait for an answer; each counts from when it was due.

    New connections go to the replicas in `endpoints`, in turn, as a Service's do; old ones stay where they are. With
    `fresh`, each review has a connection of its own. As the API server does, it asks again after a 429, and does not
    send a review again whose connection broke.
    """

    secret: Secret
    endpoints: list[Replica]
    rate: float = RATE
    fresh: bool = False
    connections: int = CONNECTIONS
    asked: list[Asked] = field(default_factory=list)
    shed: int = 0
    unsent: int = 0
    handshakes: int = 0
    remarks: list[str] = field(default_factory=list)
    """What else there is to say of the fault."""
    quiet: int = 0
    """How many reviews were answered before the fault."""
    begun: int = 0
    """How many were when the fault was there in full."""
    answers: dict[int, list[Any]] = field(default_factory=dict)
    """What each replica has to answer to each kind of review, by its port."""
    _idle: list[_Kept] = field(default_factory=list)
    _opened: int = 0
    _end: threading.Event = field(default_factory=threading.Event)

    # For the test

    @property
    def failures(self) -> list[str]:
        """Why reviews failed."""
        return [each.failure for each in tuple(self.asked) if each.failure]

    @property
    def before(self) -> Times:
        """Latencies of reviews while nothing disturbed them."""
        return _times(self.asked[: self.quiet])

    @property
    def during(self) -> Times:
        """Latencies from the fault on."""
        return _times(self.asked[self.begun :])

    def learn(self, replica: Replica) -> None:
        """Take as right what a replica answers while nothing disturbs it."""
        answers = [replica.review(self.secret, kind.path, kind.body) for kind in REVIEWS]
        said = [each["response"]["allowed"] for each in answers]
        assert said == [True, False, True], answers
        assert "patch" in answers[0]["response"]
        self.answers[replica.port] = answers

    def move(self, *replicas: Replica) -> None:
        """Send new connections to these from now on."""
        for each in replicas:
            if each.port not in self.answers:
                self.learn(each)
        self.endpoints = list(replicas)

    def go_on(self, seconds: float = 1.0) -> None:
        """Wait while reviews go on, and until those of before are answered."""
        time.sleep(seconds)
        started = time.monotonic()
        until(lambda: bool(self.asked) and self.asked[-1].due > started, "reviews go on")

    def connected(self) -> None:
        """Reckon the fault from here on, where peers are there: what it takes to connect them has the same cores."""
        self.remarks.append(f"p99 {1000 * self.during.p99:.1f} ms while they connected")
        self.begun = len(self.asked)

    def end(self) -> None:
        """Send no more."""
        self._end.set()

    def run(self) -> None:
        """Send reviews until told to end."""
        asyncio.run(self._run())

    # In its thread

    async def _run(self) -> None:
        self._free = asyncio.Semaphore(self.connections)
        start = time.monotonic()
        tasks: set[asyncio.Task[None]] = set()
        for number in itertools.count():
            due = start + number / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if self._end.is_set():
                break
            if len(tasks) >= WAITING:
                self.unsent += 1
                continue
            task = asyncio.create_task(self._ask(number, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        for each in self._idle:
            each.writer.transport.abort()

    async def _ask(self, number: int, due: float) -> None:
        failure = ""
        try:
            async with asyncio.timeout(DEADLINE), self._free:
                failure = await self._tried(number)
        except TimeoutError:
            failure = "timed out"
        except (OSError, ssl.SSLError, asyncio.IncompleteReadError) as error:
            failure = type(error).__name__
        self.asked.append(Asked(due, time.monotonic() - due, failure))

    async def _tried(self, number: int) -> str:
        kind = number % len(REVIEWS)
        path, body = REVIEWS[kind]
        uid = b"%08d" % number + UID[8:]
        body = body.replace(UID, uid)
        head = f"POST {path}?timeout={DEADLINE:.0f}s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\nConnection: {'close' if self.fresh else 'keep-alive'}\r\n\r\n"
        while True:
            connection = await self._connection()
            try:
                connection.writer.write(head.encode() + body)
                await connection.writer.drain()
                top = await connection.reader.readuntil(b"\r\n\r\n")
                lower = top.lower()
                length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                said = await connection.reader.readexactly(length)
            except BaseException:
                connection.writer.transport.abort()
                raise
            if self.fresh or b"connection: close" in lower:
                connection.writer.close()
            else:
                self._idle.append(connection)
            status = int(top.split(b" ", 2)[1])
            if status == 429 and RETRY_AFTER in lower:
                self.shed += 1
                await asyncio.sleep(float(lower.partition(RETRY_AFTER)[2].partition(b"\r\n")[0]))
                continue
            if status != 200:
                return f"{status}"
            expected = self.answers[connection.replica.port][kind]
            wanted = {**expected, "response": {**expected["response"], "uid": uid.decode("ascii")}}
            return "" if json.loads(said) == wanted else "a wrong answer"

    async def _connection(self) -> _Kept:
        while self._idle:
            kept = self._idle.pop(0)
            if not kept.gone:
                return kept
            kept.writer.transport.abort()
        replica = self.endpoints[self._opened % len(self.endpoints)]
        self._opened += 1
        context = ssl.create_default_context(cafile=self.secret.authority)
        reader, writer = await asyncio.open_connection("127.0.0.1", replica.port, ssl=context, limit=1 << 20)
        self.handshakes += 1
        return _Kept(replica, reader, writer)


def _times(asked: list[Asked]) -> Times:
    took = [each.took for each in asked] or [0.0]
    return Times(tables.percentile(took, 99), max(took))


@contextmanager
def load(secret: Secret, *replicas: Replica, **ways: Any) -> Iterator[Load]:
    """Load replicas until the block ends; it begins once it is known how slow an undisturbed review is."""
    loading = Load(secret, [], **ways)
    loading.move(*replicas)
    thread = threading.Thread(target=loading.run)
    thread.start()
    try:
        until(lambda: len(loading.asked) > loading.rate / 4, "reviews are answered")
        loading.asked.clear()  # with the handshakes of all connections at once
        loading.go_on(QUIET)
        loading.quiet = loading.begun = len(loading.asked)
        yield loading
    finally:
        loading.end()
        thread.join()
