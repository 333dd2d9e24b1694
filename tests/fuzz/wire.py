"""Bytes on a connection, put to the server's own protocol: what a reader of HTTP must not be talked into.

h11 reads the same bytes. Where it sees no whole request ours must not answer one, and no answer may be to another
request than the one in its place: a body that is taken for a request would be a way past whoever stands in front.
"""

import asyncio
import json
import re
import zlib
from collections.abc import Callable, Hashable, Sequence
from http import HTTPStatus
from random import Random
from typing import Any, NamedTuple

import h11

from tests.fuzz import changes
from tests.fuzz.fault import Fault
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.http.connection import Connection
from webhook.http.limits import ServerLimits
from webhook.http.listening import Unwatched
from webhook.http.messages import Application
from webhook.http.port import Port
from webhook.serving.app import ReviewApplication

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "U", "kind": {"version": "v1", "kind": "Pod"}, "operation": "DELETE", "oldObject": {"spec": {}}},
}

ANSWERED = {200, 400, 403, 404, 405, 408, 411, 413, 414, 415, 417, 429, 431}
"""Statuses of answers by design: none of 5xx, since facts are there and rules do not break."""

LINES = (
    b"Content-Length: 5",
    b"Content-Length: 0",
    b"Content-Length: +5",
    b"Content-Length: 5, 5",
    b"Content-Length: -1",
    b"Content-Length: 0x5",
    b"Content-Length: 99999999999999999999",
    b"Content-Length : 5",
    b"Content_Length: 5",
    b"Content-Length:",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding: gzip, chunked",
    b" Transfer-Encoding: chunked",
    b"Content-Encoding: gzip",
    b"Content-Type: application/json; charset=utf-8",
    b"Content-Type: text/plain",
    b"Expect: 100-continue",
    b"Expect: 200-ok",
    b"Host: a",
    b"Host: a, b",
    b"Host:",
    b"Connection: close",
    b"Connection: keep-alive, Upgrade",
    b"Connection: content-length",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
    b"X-Empty:",
    b"X: " + b"a" * 9000,
    b"X: " + b"a" * 40_000,
    b"X: \x00",
    b"X: \xff",
    b"X:\ta",
    b": a",
    b"X",
    b"\x0b",
    b"X: a\rY: b",
    b"X: a\n Y: b",
)

STARTS = (
    b"POST /validate HTTP/1.1",
    b"POST /mutate?timeout=3s HTTP/1.1",
    b"POST /mutate?timeout=1e9s&timeout=0s HTTP/1.1",
    b"POST /mutate?timeout=" + b"9" * 400 + b"h HTTP/1.1",
    b"POST /%76alidate HTTP/1.1",
    b"POST //validate HTTP/1.1",
    b"POST /validate/ HTTP/1.1",
    b"POST /validate#a HTTP/1.1",
    b"POST http://a/validate HTTP/1.1",
    b"POST http://a:b@c:99999/validate HTTP/1.1",
    b"POST * HTTP/1.1",
    b"OPTIONS * HTTP/1.1",
    b"CONNECT a:443 HTTP/1.1",
    b"GET /healthz HTTP/1.1",
    b"HEAD /readyz HTTP/1.1",
    b"HEAD /validate HTTP/1.1",
    b"PUT /validate HTTP/1.1",
    b"GET / HTTP/1.1",
    b"GET /%00%ff HTTP/1.1",
    b"GET /../etc/passwd HTTP/1.1",
    b"GET /" + b"a" * 9000 + b" HTTP/1.1",
    b"POST /validate HTTP/1.0",
    b"POST /validate HTTP/0.9",
    b"POST /validate HTTP/2.0",
    b"POST /validate HTTP/1.10",
    b"POST /validate",
    b"POST  /validate HTTP/1.1",
    b"PRI * HTTP/2.0",
    b"\x16\x03\x01\x02\x00\x01\x00",
)


def message(uid: str, *, start: bytes = STARTS[0], lines: tuple[bytes, ...] = (), length: bool = True) -> bytes:
    """A request that posts a review."""
    body = json.dumps({**REVIEW, "request": {**REVIEW["request"], "uid": uid}}).encode()  # type: ignore[dict-item]
    known = [b"Host: slicewarden.svc", b"Content-Type: application/json"]
    if length:
        known.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join((start, *known, *lines, b"", body))


def chunked(uid: str) -> bytes:
    """The same, in chunks."""
    head, body = message(uid, lines=(b"Transfer-Encoding: chunked",), length=False).split(b"\r\n\r\n")
    return b"%s\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (head, len(body), body)


def within(uid: str) -> bytes:
    """A request with a whole request in its body."""
    inner = message("inner")
    head, body = message(uid, length=False).split(b"\r\n\r\n")
    body += b" " + inner
    return b"%s\r\nContent-Length: %d\r\n\r\n%s" % (head, len(body), body)


STEPS = 60
"""Turns of the loop, of which a request takes eight."""


class Answer(NamedTuple):
    """One response as a client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


class Asked(NamedTuple):
    """One request as h11 reads it, and whether another may follow."""

    method: bytes
    body: bytes


_START = re.compile(rb"([A-Z]+) +(\S+) +(HTTP/1\.[01]\r?\n)")


def asked(data: bytes) -> tuple[list[Asked], bytes]:
    """The whole requests of a stream up to the first that is wrong or unfinished, and the method of that one."""
    whole: list[Asked] = []
    more = True
    while more:
        if start := _START.match(data.lstrip(b"\r\n")):  # how many blanks are between its words misleads nobody
            data = b" ".join(start.groups()) + data.lstrip(b"\r\n")[start.end() :]
        reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        reader.receive_data(data)
        method, body = b"", b""
        try:
            while not isinstance(event := reader.next_event(), h11.EndOfMessage):
                if isinstance(event, h11.Request):
                    method = event.method
                elif isinstance(event, h11.Data):
                    body += event.data
                else:
                    return whole, method
        except h11.RemoteProtocolError:
            return whole, method
        whole.append(Asked(method, body))
        more = str(reader.their_state) in ("DONE", "MIGHT_SWITCH_PROTOCOL")
        data = reader.trailing_data[0]
    return whole, b""


_STATUS = re.compile(rb"HTTP/1\.1 ([1-4][0-9]{2}) ([ -~]+)\r\n")
_HEADER = re.compile(rb"([A-Za-z-]+): ([ -~]*)\r\n")


def answers(data: bytes, methods: list[bytes]) -> list[Answer]:
    """Take apart what was answered, as strictly as can be. Raises Fault."""
    found: list[Answer] = []
    at = 0
    while at < len(data):
        first = _STATUS.match(data, at)
        if first is None:
            raise Fault(f"no status line, or one of 5xx: {data[at : at + 60]!r}")
        at, headers = first.end(), {}
        while header := _HEADER.match(data, at):
            name = header[1].decode().lower()
            if name in headers:
                raise Fault(f"answers with {name} twice")
            headers[name], at = header[2].decode(), header.end()
        if data[at : at + 2] != b"\r\n":
            raise Fault(f"no end of the headers: {data[at : at + 60]!r}")
        at += 2
        status = int(first[1])
        if status < 200:
            continue
        if status not in ANSWERED:
            raise Fault(f"answers {status}")
        length = int(headers["content-length"])
        if len(found) < len(methods) and methods[len(found)] == b"HEAD":
            length = 0
        if len(data) - at < length:
            raise Fault(f"answers {status} with less than its Content-Length")
        found.append(Answer(status, headers, data[at : at + length]))
        at += length
        if headers.get("connection") == "close" and at < len(data):
            raise Fault("answers after the last answer")
    return found


def agree(case: bytes, said: bytes) -> tuple[tuple[int, bytes], ...]:
    """Hold what was answered against what h11 reads. Returns the kinds of answers; raises Fault."""
    whole, unfinished = asked(case)
    got = answers(said, [*(each.method for each in whole), unfinished])
    if len(got) > len(whole) + 1:
        raise Fault(f"{len(got)} answers to {len(whole)} requests")
    for number, answer in enumerate(got):
        if answer.headers.get("content-type") != "application/json":
            continue
        if number >= len(whole):
            raise Fault("judges what is no whole request")
        uid = json.loads(answer.body)["response"]["uid"]
        if json.loads(whole[number].body)["request"]["uid"] != uid:
            raise Fault("answers another request than the one in its place")
    return tuple((each.status, each.body[:40]) for each in got[:4])


class Transport(asyncio.Transport):
    """Takes what a connection writes."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.data = b""
        self.ended = False
        self._connection = connection
        self._loop = loop

    def write(self, data: Any) -> None:
        if self.ended:
            raise Fault("writes after it closed")
        self.data += bytes(data)

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        if not self.ended:
            self.ended = True
            self._loop.call_soon(self._connection.connection_lost, None)

    abort = close

    def get_extra_info(self, _: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Wire:
    """Puts bytes to the protocol without a socket, in pieces."""

    name = "wire"

    def __init__(self, engine: Engine, facts: Facts, protocol: Callable[[Port], Connection] = Connection) -> None:
        self.app: Application = ReviewApplication(engine, lambda: facts, lambda _: None)
        self.protocol = protocol
        self.loop = asyncio.new_event_loop()
        good = message("good")
        self.seeds: Sequence[bytes] = [
            good,
            good + message("second"),
            chunked("chunked") + good,
            within("outer"),
            within("outer") + message("last"),
            *(message("start", start=start) + message("next") for start in STARTS),
            *(message("lined", lines=(line,)) + message("next") for line in LINES),
            *(message("lined", lines=(line,), length=False) + message("next") for line in LINES),
            *(b"%s\r\nHost: a\r\n\r\n" % start + good for start in STARTS),
        ]

    def change(self, random: Random, case: bytes, other: bytes) -> bytes:
        """Make another stream of one: other lines, other ends of lines, other bytes."""
        for _ in range(random.choice((1, 1, 2, 3))):
            case = self._changed(random, case, other)[:200_000]
        return case

    def _changed(self, random: Random, case: bytes, other: bytes) -> bytes:
        rows = case.split(b"\r\n")
        at = random.randrange(len(rows))
        match random.randrange(10):
            case 0 | 1 | 2:
                return b"\r\n".join((*rows[:at], random.choice(LINES), *rows[at:]))
            case 3:
                return b"\r\n".join((*rows[:at], random.choice(LINES), *rows[at + 1 :]))
            case 4:
                return b"\r\n".join((random.choice(STARTS), *rows[1:]))
            case 5:
                return b"\r\n".join((*rows[:at], *rows[at + 1 :]))
            case 6:
                end = random.choice((b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\n\n", b" \r\n", b"\0\r\n", b"\x0b"))
                return b"\r\n".join(rows[:at]) + end + b"\r\n".join(rows[at:])
            case 7:
                numbers = list(re.finditer(rb"\d+", case))
                number = random.choice(numbers) if numbers else None
                if number is None:
                    return case + other
                changed = b"%d" % (int(number[0][:30]) + random.choice((-1, 1, -100, 100, 10**6, 10**19)))
                return case[: number.start()] + changed + case[number.end() :]
            case 8:
                return case + other
            case _:
                return changes.encoded(random, case, other)

    def judge(self, case: bytes, *, again: bool) -> Hashable:
        """Put a stream to a connection, in pieces. Returns what kind of outcome it was; raises Fault."""
        said = self.loop.run_until_complete(self._said(case, zlib.crc32(case)))
        kinds = agree(case, said)
        # What is sent ahead may go unanswered, and what cannot be read takes a request along that came with it. Apart
        # from that the first answer is always the same.
        if again:
            first, same = kinds[:1], agree(case, self.loop.run_until_complete(self._said(case, 1)))[:1]
            if first != same and not any(status == HTTPStatus.BAD_REQUEST for status, _ in (*first, *same)):
                raise Fault("the first answer depends on how the bytes are cut")
        return kinds

    async def _said(self, case: bytes, pieces: int) -> bytes:
        random = Random(pieces)  # noqa: S311 - the same pieces again
        port = Port(self.app, ServerLimits(parting=0), Unwatched())
        connection = self.protocol(port)
        port.connections.add(connection)
        transport = Transport(connection, self.loop)
        connection.connection_made(transport)
        at = 0
        while at < len(case) and not transport.ended:
            size = random.choice((1, 9, 100, 1000, 10**6)) if pieces != 1 else len(case)
            connection.data_received(case[at : at + size])
            at += size
            for _ in range(random.choice((0, 0, 2))):
                await asyncio.sleep(0)
        for _ in range(STEPS):  # what aiohttp has to do next has been done
            await asyncio.sleep(0)
        if not transport.ended:
            transport.close()
        for _ in range(STEPS):
            await asyncio.sleep(0)
        if port.queue.large or port.connections or len(port.queue):
            raise Fault("a connection leaves something behind")
        return transport.data

    def close(self) -> None:
        """End the loop."""
        self.loop.close()
