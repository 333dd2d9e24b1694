"""The door itself: real sockets and real TLS, with limits small enough to be met in a moment."""

import asyncio
import contextlib
import gc
import http.client
import os
import socket
import ssl
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

import certs
from tests.support.asking import ask
from tests.support.callers import caller, write
from tests.support.waiting import LONG, until
from webhook.api import duration
from webhook.http import listening, queue
from webhook.http.connection import Connection
from webhook.http.limits import OPEN, ServerLimits
from webhook.http.messages import HttpRequest, Later, Reply
from webhook.http.port import Port
from webhook.http.turns import ORDINARY
from webhook.serving import app as serving
from webhook.serving import tls, worker


@dataclass
class Seen:
    """Counts what goes through."""

    answers: list[tuple[str, int]] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    sheds: int = 0
    unverified: list[frozenset[str]] = field(default_factory=list)

    def answered(self, path: str, status: int, seconds: float) -> None:
        assert 0 <= seconds < LONG
        self.answers.append((path, int(status)))

    def refused(self, status: int) -> None:
        self.refusals.append(int(status))

    def shed(self) -> None:
        self.sheds += 1


def echo(request: HttpRequest) -> Reply:
    return Reply(HTTPStatus.OK, f"{request.path} {len(b''.join(request.body))}".encode())


@dataclass
class App:
    """Refuses nothing, and answers so."""

    answer: Callable[[HttpRequest], Reply | Later] = echo

    def refusal(self, _: HttpRequest) -> Reply | None:
        return None

    def is_probe(self, request: HttpRequest) -> bool:
        return request.path == "/healthz"

    def __call__(self, request: HttpRequest) -> Reply | Later:
        return self.answer(request)


@dataclass
class Open:
    """A port that is being served in a thread."""

    address: tuple[str, int]
    port: Port
    seen: Seen
    certificates: tls.Certificates | None
    folder: Path

    def connect(self, name: str | None = None, **settings: Any) -> socket.socket:
        """A connection, over TLS if that is what is served; `name` is that of a client certificate's files."""
        raw = socket.create_connection(self.address, LONG)
        if self.certificates is None:
            return raw
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        if name:
            context.load_cert_chain(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        for key, value in settings.items():
            setattr(context, key, value)
        try:
            return context.wrap_socket(raw, server_hostname="localhost")
        except BaseException:
            raw.close()
            raise


@contextlib.contextmanager
def opened(
    limits: ServerLimits | None = None,
    app: Callable[[HttpRequest], Reply | Later] = echo,
    folder: Path | None = None,
    files: tls.Files | None = None,
    names: frozenset[str] = frozenset(),
) -> Iterator[Open]:
    """Serve a port until the block ends: over TLS where there are files, else in plain."""
    limits = limits or ServerLimits()
    seen = Seen()
    certificates = tls.Certificates(files, lambda _: None) if files else None
    started: list[Port] = []
    ready = threading.Event()
    problems: list[Any] = []

    async def serve(listener: socket.socket) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        port = Port(App(app), limits, seen, names, refused_caller=seen.unverified.append)
        started.append(port)
        tasks = [
            asyncio.create_task(
                listening.accept(listener, port, lambda: certificates.context if certificates else None)
            ),
            asyncio.create_task(listening.every(0.02, port.tick)),
        ]
        ready.set()
        await stop.wait()
        for task in tasks:
            task.cancel()
        for connection in list(port.connections):
            connection.abort()
        await asyncio.sleep(0.02)

    stop = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main(listener: socket.socket) -> None:
        loops.append(asyncio.get_running_loop())
        await serve(listener)

    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        listener.setblocking(False)
        thread = threading.Thread(target=lambda: uvloop.run(main(listener)))
        thread.start()
        assert ready.wait(LONG)
        try:
            yield Open(listener.getsockname(), started[0], seen, certificates, folder or Path())
        finally:
            loops[0].call_soon_threadsafe(stop.set)
            thread.join(LONG)
    assert not problems


def received(peer: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
        while chunk := peer.recv(65536):
            data += chunk
    return data


def answer(peer: socket.socket) -> http.client.HTTPResponse:
    """The next answer."""
    response = http.client.HTTPResponse(peer)
    response.begin()
    return response


def talk(door: Open, text: bytes) -> tuple[int, bytes]:
    """Send bytes; return the status of the first answer and all that came until the connection was closed."""
    with door.connect() as peer:
        peer.sendall(text)
        data = received(peer)
    return int(data.split()[1]), data


GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: a\r\n"
SOON = ServerLimits(parting=0.1)


# What is understood in one way only


@pytest.fixture(scope="module")
def plain() -> Iterator[Open]:
    with opened(SOON) as door:
        yield door


@pytest.mark.parametrize(
    ("text", "status"),
    {
        "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
        "different lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        "length and chunks": (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        "chunks and length": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", 400),
        "chunked, identity": (POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 400),
        "identity": (POST + b"Transfer-Encoding: identity\r\n\r\n", 400),
        "chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        "list of lengths": (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
        "signed length": (POST + b"Content-Length: +2\r\n\r\n{}", 400),
        "huge length": (POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}", 400),
        "folded header": (POST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n", 400),
        "bare LF": (b"POST /x HTTP/1.1\nHost: a\nContent-Length: 0\n\n", 400),
        "one bare LF": (POST + b"X: a\nContent-Length: 0\r\n\r\n", 400),
        "bare CR": (POST + b"X: a\rb\r\n\r\n", 400),
        "space before the colon": (POST + b"Content-Length : 0\r\n\r\n", 400),
        "NUL": (POST + b"X: a\x00b\r\n\r\n", 400),
        "no Host": (b"GET /x HTTP/1.1\r\n\r\n", 400),
        "two Hosts": (b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        "HTTP/0.9": (b"GET /x\r\n\r\n", 400),
        "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        "HTTP/3.7": (b"GET /x HTTP/3.7\r\nHost: a\r\n\r\n", 400),
        "an upgrade": (b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 400),
        "CONNECT": (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        "another expectation": (POST + b"Expect: more\r\nContent-Length: 2\r\n\r\n{}", 417),
        "a long request line": (b"GET /" + b"x" * 8192 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        "65 headers": (b"GET /x HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 64 + b"\r\n", 400),
        "long headers": (GET[:-2] + b"X: " + b"y" * 33_000 + b"\r\n\r\n", 400),
        "7 MiB and a byte": (POST + b"Content-Length: 7340033\r\n\r\n", 413),
    }.values(),
)
def test_ambiguous_http_is_refused_and_the_connection_closed(plain: Open, text: bytes, status: int) -> None:
    # A second request follows, as a smuggler would have it: it must not be answered.
    got, data = talk(plain, text + b"\r\n" + GET)
    assert got == status
    assert data.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in data
    assert data.endswith(b"\r\n\r\n"), "a refusal has nothing to say"


@pytest.mark.parametrize("begun", [b"GET /", GET[:-2] + b"X: ", GET[:-2], b"GET /x HTTP/1.1\r\n"])
def test_an_endless_request_is_not_read_to_its_end(plain: Open, begun: bytes) -> None:
    got, _ = talk(plain, begun + b"x" * 50_000)
    assert got in (400, 431)  # by its first line, or by all of it, whichever comes in first


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (GET, b"/x 0"),
        (b"\r\n" + GET, b"/x 0"),
        (b"GET http://elsewhere/y?z HTTP/1.1\r\nHost: a\r\n\r\n", b"/y 0"),
        (b"GET /%2e%00%ff HTTP/1.1\r\nHost: a\r\n\r\n", b"/.\x00\xc3\xbf 0"),
        (b"GET /" + b"x" * 8000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"/" + b"x" * 8000 + b" 0"),
        (GET[:-2] + b"X: y\r\n" * 63 + b"\r\n", b"/x 0"),
        (POST + b"content-LENGTH: 2\r\n\r\n{}", b"/x 2"),
        (POST + b"Content-Length: " + b"0" * 5_000 + b"2\r\n\r\n{}", b"/x 2"),
        (POST + b"Content_Length: 9\r\nContent-Length: 2\r\n\r\n{}", b"/x 2"),
    ],
)
def test_a_request_within_the_limits_is_answered(plain: Open, text: bytes, body: bytes) -> None:
    with plain.connect() as peer:
        for _ in range(2):  # and the connection stays
            peer.sendall(text)
            response = answer(peer)
            assert (response.status, response.read()) == (200, body)
            assert response.getheader("Connection") is None
            assert response.getheader("Server") is None


def test_a_head_is_limited_as_a_whole(plain: Open) -> None:
    with plain.connect() as peer:
        peer.sendall(GET[:-2])
        for _ in range(6):
            peer.sendall(b"X: " + b"y" * 7000 + b"\r\n")
            time.sleep(0.05)
        assert received(peer).startswith(b"HTTP/1.1 431 ")


def test_blank_lines_before_a_request_do_not_count_as_its_head() -> None:
    with opened(ServerLimits(head=0.1, parting=0.1)) as door, door.connect() as peer:
        peer.sendall(b"\r\n\r\n" + GET[:7])
        assert received(peer).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("first", [b"", GET])
def test_a_peer_that_sends_only_blank_lines_is_closed(first: bytes) -> None:
    with opened(ServerLimits(parting=0.1)) as door, door.connect() as peer:
        if first:
            peer.sendall(first)
            assert answer(peer).read() == b"/x 0"
        for _ in range(2):  # one line each is nothing
            peer.sendall(b"\r\n" + GET)
            assert answer(peer).read() == b"/x 0"
        peer.sendall(b"\r\n" * 100)
        assert received(peer).startswith(b"HTTP/1.1 400 ")
        until(lambda: not door.port.connections)
        assert door.seen.refusals == [400]


def test_a_connection_ends_after_a_large_body_since_tls_keeps_its_buffers() -> None:
    with opened() as door, contextlib.closing(http.client.HTTPConnection(*door.address, LONG)) as client:
        for size, closes in ((64 * 1024, False), (64 * 1024 + 1, True)):
            client.request("POST", "/x", b"x" * size)
            reply = client.getresponse()
            assert (reply.read(), reply.will_close) == (f"/x {size}".encode(), closes)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, 1, ORDINARY, ORDINARY + 1, 50_000, 65_536, 65_537]))))
@settings(max_examples=20)
def test_buffers_of_idle_peers_share_a_limit_of_memory(asked: list[tuple[int, int]]) -> None:
    """Of the bodies that open connections had, the largest of each fit. Who has no room is answered and closed."""
    limits = replace(ServerLimits(), buffered_bytes=100_000)
    with opened(limits=limits) as door, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(contextlib.closing(http.client.HTTPConnection(*door.address, LONG))) for _ in range(4)
        ]
        largest = dict.fromkeys(range(4), 0)
        for number, size in asked:
            clients[number].request("POST", "/x", b"x" * size)
            reply = clients[number].getresponse()
            if size > ORDINARY:
                largest[number] = max(largest[number], size)
            closes = size > 65_536 or (size > ORDINARY and sum(largest.values()) > limits.buffered_bytes)
            assert (reply.read(), reply.will_close) == (f"/x {size}".encode(), closes)
            if closes:
                largest[number] = 0
                clients[number].close()
            until(lambda: door.port.buffered == sum(largest.values()))


def test_a_request_may_come_byte_by_byte(plain: Open) -> None:
    with plain.connect() as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in POST + b"Content-Length: 2\r\n\r\n{}":
            peer.send(bytes((byte,)))
        assert answer(peer).read() == b"/x 2"


def test_a_client_that_expects_100_continue_gets_it(plain: Open) -> None:
    with plain.connect() as peer:
        peer.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert peer.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"{}")
        assert answer(peer).read() == b"/x 2"
        peer.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 7340033\r\n\r\n")
        assert answer(peer).status == 413


def test_an_answer_to_head_has_no_body_that_would_pass_for_the_next_answer(plain: Open) -> None:
    with plain.connect() as peer:
        peer.sendall(b"HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.recv(1000)
        assert b"\r\nContent-Length: 4\r\n" in head
        peer.sendall(GET)
        assert answer(peer).read() == b"/x 0"


@pytest.mark.parametrize("text", [b"GET /x HTTP/1.0\r\n\r\n", GET[:-2] + b"Connection: close\r\n\r\n"])
def test_a_connection_close_request_is_answered_and_closed(plain: Open, text: bytes) -> None:
    status, data = talk(plain, text)
    assert status == 200
    assert b"\r\nConnection: close\r\n" in data


@pytest.mark.parametrize(
    "text",
    [GET, POST + b"Content-Length: 2\r\n\r\n{}", POST + b"Content-Length: 60000\r\n\r\n" + b" " * 60_000],
    ids=["head", "small", "large"],
)
@pytest.mark.parametrize("more", [b"x", GET[:5], GET, GET * 2000], ids=["byte", "part", "one", "many"])
@pytest.mark.parametrize("cut", [5, -1, 0, 1])
def test_what_follows_a_request_is_dropped_and_its_answer_is_the_last(text: bytes, more: bytes, cut: int) -> None:
    """aiohttp reads the request and no more, also where it and what follows it share a packet."""
    came, read, whole = bytearray(), bytearray(), text + more
    place = cut if cut > 1 else len(text) + cut
    take, feed = Connection.data_received, web.RequestHandler.data_received

    def packets(self: Connection, data: bytes) -> None:
        came.extend(data)
        if not data:
            take(self, data)
        elif len(came) == len(whole):
            for packet in (whole[:place], whole[place:]):
                take(self, packet)

    def seen(self: web.RequestHandler, data: bytes) -> None:
        read.extend(data)
        feed(self, data)

    with opened(ServerLimits(parting=0.1)) as door, door.connect() as peer, pytest.MonkeyPatch.context() as patched:
        patched.setattr(Connection, "data_received", packets)
        patched.setattr(web.RequestHandler, "data_received", seen)
        peer.sendall(whole)
        data = received(peer)
    assert data.count(b"HTTP/1.1 ") == 1
    assert b" 200 OK" in data
    assert b"\r\nConnection: close\r\n" in data
    assert read == text


def test_bytes_that_come_while_a_request_waits_leave_the_next_ones_to_the_client() -> None:
    """RFC 9112, 9.3.2: a client that pipelines sends again what was not answered when the connection ends."""
    app = Held()
    with opened(ServerLimits(small_bytes=10, parting=0.1), app) as door, door.connect() as peer:
        peer.sendall(large("1"))
        until(lambda: app.begun == ["/1"])
        peer.sendall(GET)
        until(lambda: all(connection._ahead for connection in door.port.connections))
        app.go.release()
        data = received(peer)
    assert data.count(b"HTTP/1.1 ") == 1
    assert b"\r\nConnection: close\r\n" in data


def test_a_body_that_is_too_large_may_be_sent_to_the_end_and_is_not_kept(plain: Open) -> None:
    with plain.connect() as peer:
        peer.sendall(POST + b"Content-Length: 9000000\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            peer.sendall(b"x" * 9_000_000)
        assert received(peer).startswith(b"HTTP/1.1 413 ")
    assert plain.port.queue.large == 0


def test_an_exception_in_the_application_is_an_empty_500() -> None:
    def broken(_: HttpRequest) -> Reply:
        raise RuntimeError("boom")

    with opened(SOON, broken) as door, door.connect() as peer:
        peer.sendall(GET)
        response = answer(peer)
        assert (response.status, response.read()) == (500, b"")
    assert door.seen.answers == [("/x", 500)]


# Slow, silent and many


@pytest.mark.parametrize(
    ("sent", "limits"),
    {
        "a head without end": (GET[:-2], ServerLimits(head=0.1, parting=0.1)),
        "half a body": (POST + b"Content-Length: 4\r\n\r\n{}", ServerLimits(body=0.1, parting=0.1)),
    }.values(),
)
def test_a_slow_request_is_cut_off(sent: bytes, limits: ServerLimits) -> None:
    with opened(limits) as door:
        status, data = talk(door, sent)
    assert status == 408
    assert door.seen.refusals == [408]
    assert b"Connection: close" in data


def test_bytes_that_trickle_do_not_prolong_a_request() -> None:
    with opened(ServerLimits(head=0.2, parting=0.1)) as door, door.connect() as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with pytest.raises(OSError, match=r"reset|pipe"):  # noqa: PT012 - it takes many
            for byte in GET[:-2] + b"X: " + b"y" * 10_000:
                peer.send(bytes((byte,)))
                time.sleep(0.005)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of a port so many seconds ahead."""
    ahead = [0.0]
    for module in ("port", "connection"):
        monkeypatch.setattr(f"webhook.http.{module}.monotonic", lambda: time.monotonic() + ahead[0])

    def set_ahead(seconds: float) -> None:
        ahead[0] = seconds

    return set_ahead


def test_time_for_a_head_counts_from_its_first_byte_and_not_while_idle() -> None:
    with opened(ServerLimits(head=0.1, idle=LONG)) as door, door.connect() as peer:
        for _ in range(2):
            time.sleep(0.3)
            peer.sendall(GET)
            assert answer(peer).read() == b"/x 0"


def test_a_connection_outlives_the_time_for_its_handshake_and_for_a_head(
    folder: Path, files: tls.Files, later: Callable[[float], None]
) -> None:
    limits = ServerLimits(handshake=LONG, head=LONG, idle=10 * LONG, age=10 * LONG)
    with opened(limits, folder=folder, files=files) as door, door.connect() as peer:
        for turn in (1, 2):
            later(2 * turn * LONG)
            time.sleep(0.1)  # a port looks at its connections every 0.02 s here
            peer.sendall(GET)
            assert answer(peer).read() == b"/x 0"


def test_the_api_servers_idle_connections_outlive_its_own_patience() -> None:
    limits = ServerLimits()
    assert limits.idle >= 100, "client-go keeps them for 90 s"
    assert (limits.handshake, limits.head, limits.body) == (5, 5, 10)


def test_an_idle_connection_is_closed_in_the_end() -> None:
    with opened(ServerLimits(idle=0.5, parting=0.1)) as door:
        with door.connect() as silent:
            assert received(silent) == b""
        with door.connect() as asked:
            asked.sendall(GET)
            assert received(asked).startswith(b"HTTP/1.1 200 ")
        until(lambda: not door.port.connections)


def test_a_peer_that_does_not_read_its_answer_is_not_read_from() -> None:
    def much(_: HttpRequest) -> Reply:
        return Reply(HTTPStatus.OK, b"x" * 1_000_000)

    with opened(ServerLimits(idle=0.3, parting=0.1), much) as door, door.connect() as peer:
        peer.settimeout(0.5)
        with contextlib.suppress(OSError):
            while True:
                peer.sendall(GET * 1000)
        until(lambda: not door.port.connections)
        assert len(door.seen.answers) < 50


def test_peers_that_read_slowly_keep_few_answers_and_no_other_peer_out() -> None:
    """Each connection keeps its whole answer. With 9 MiB of metrics, 24 peers took the memory of the agent."""
    size, same = 2 * 2**20, b"s" * 2 * 2**20
    numbers = count()

    def large(request: HttpRequest) -> Reply:
        return Reply(HTTPStatus.OK, same if request.path == "/same" else b"%d " % next(numbers) + bytes(size))

    def slow(peers: contextlib.ExitStack, path: bytes) -> socket.socket:
        peer = peers.enter_context(socket.socket())
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(LONG)
        peer.connect(door.address)
        peer.sendall(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
        assert peer.recv(1) == b"H"
        return peer

    limits = replace(OPEN, idle=float(LONG), answer_bytes=3 * size)
    with opened(limits, large) as door, contextlib.ExitStack() as peers:
        several = [slow(peers, b"/new") for _ in range(20)]
        kept = [*door.port.writing.values()]
        assert (len(kept), sum(map(len, kept)) <= limits.answer_bytes + size + 64) == (3, True)
        assert len(talk(door, b"GET /new HTTP/1.1\r\nHost: a\r\n\r\n")[1]) > size  # who reads is not kept waiting
        assert all(len(received(peer)) < size for peer in several[:-3])
        assert len(received(several[-1])) > size
    with opened(limits, large) as door, contextlib.ExitStack() as peers:
        alike = [slow(peers, b"/same") for _ in range(20)]
        assert len(door.port.writing) == len(alike)
        assert all(len(received(peer)) > size for peer in alike)
        until(lambda: not door.port.writing)


def test_slow_and_silent_peers_delay_no_other_peer(folder: Path, files: tls.Files) -> None:
    with opened(ServerLimits(), folder=folder, files=files) as door, contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(door.address, LONG))
        for _ in range(20):
            stack.enter_context(door.connect()).sendall(GET[:7])
        with door.connect() as peer:
            for _ in range(20):
                peer.sendall(GET)
                assert answer(peer).read() == b"/x 0"
        assert door.seen.answers == [("/x", 200)] * 20


def test_a_handshake_that_never_comes_is_given_up(folder: Path, files: tls.Files) -> None:
    with opened(ServerLimits(handshake=0.1), folder=folder, files=files) as door:
        with socket.create_connection(door.address, LONG) as silent:
            assert received(silent) == b""
        until(lambda: not door.port.connections and not door.port.unverified)


def test_a_full_queue_answers_429_at_once() -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(request: HttpRequest) -> Reply:
        begun.set()
        assert go.wait(LONG)
        return echo(request)

    with opened(ServerLimits(waiting=0), slow) as door, contextlib.ExitStack() as stack:
        first, *others = (stack.enter_context(door.connect()) for _ in range(6))
        until(lambda: len(door.port.connections) == 6)
        first.sendall(GET)
        assert begun.wait(LONG)
        for peer in others:
            peer.sendall(GET)
        go.set()
        assert answer(first).status == 200
        answers = [answer(peer) for peer in others]
        assert sorted(each.status for each in answers) == [200, 429, 429, 429, 429]
        assert {each.getheader("Retry-After") for each in answers if each.status == 429} == {"1"}
        assert {each.getheader("Retry-After") for each in answers if each.status == 200} == {None}
        for peer, each in zip(others, answers, strict=True):  # and every connection stays
            each.read()
            peer.sendall(GET)
            assert answer(peer).status == 200
    assert (door.seen.sheds, door.seen.refusals) == (4, [])


def posted(length: int) -> bytes:
    return POST + b"Content-Length: %d\r\n\r\n" % length


def test_large_bodies_share_a_limit_of_memory() -> None:
    """The one that began last is answered 429 when the bytes that came are too many; those before it get whole."""
    limits = ServerLimits(small_bytes=10, large_bytes=10_000, parting=0.1)
    with opened(limits) as door, door.connect() as first, door.connect() as small, door.connect() as late:
        first.sendall(posted(8000) + b"x" * 6000)
        until(lambda: door.port.queue.large == 6000)
        late.sendall(posted(8000) + b"x" * 1000)
        until(lambda: door.port.queue.large == 7000)
        assert len(door.port.bodies) == 2
        late.sendall(b"x" * 5000)
        refused = answer(late)
        assert (refused.status, refused.getheader("Retry-After")) == (429, "1")
        small.sendall(posted(10) + b"x" * 10)
        assert answer(small).read() == b"/x 10"
        first.sendall(b"x" * 2000)
        assert answer(first).read() == b"/x 8000"
        until(lambda: door.port.queue.large == 0)
        first.sendall(posted(10_000) + b"x" * 4000)
        until(lambda: door.port.queue.large >= 4000)
        first.close()
        until(lambda: door.port.queue.large == 0)
        assert not door.port.bodies
    assert door.seen.sheds == 1


def test_bodies_that_are_only_announced_take_no_room_from_others() -> None:
    """Nor do those of which little comes: bytes count when they arrive."""
    with opened() as door, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(door.connect()) for _ in range(40)]
        for peer in idle:
            peer.sendall(posted(7 * 2**20) + b"x")
        until(lambda: len(door.port.bodies) == len(idle))
        honest = stack.enter_context(door.connect())
        honest.sendall(posted(2**20) + b"x" * 2**20)
        assert answer(honest).status == 200
    assert door.seen.sheds == 0


@pytest.mark.parametrize("count", [5, 20])
def test_of_many_large_bodies_at_once_the_first_get_whole_and_memory_stays_bounded(count: int) -> None:
    size, limit, step = 70_000, 190_000, 10_000  # of three, the last is refused before it is whole
    most = [0]
    with opened(ServerLimits(small_bytes=10, large_bytes=limit)) as door, contextlib.ExitStack() as stack:
        grow = door.port._grow

        def measured(connection: Any, more: int) -> None:
            grow(connection, more)
            most[0] = max(most[0], door.port.queue.large)

        door.port._grow = measured  # type: ignore[method-assign,assignment]
        peers = [stack.enter_context(door.connect()) for _ in range(count)]
        for begun, peer in enumerate(peers, 1):
            peer.sendall(posted(size) + b"x")
            until(lambda begun=begun: len(door.port.bodies) == begun)  # type: ignore[misc]
        connections = list(door.port.bodies)
        for sent in range(1, size, step):  # each part is read before the next is sent, so that they arrive in turn
            part = b"x" * min(step, size - sent)
            for peer, connection in zip(peers, connections, strict=True):
                with contextlib.suppress(OSError):  # it was answered 429, and closed
                    peer.sendall(part)
                arrived = sent + len(part)
                until(lambda c=connection, n=arrived: c not in door.port.bodies or c.large == n)  # type: ignore[misc]
        assert [answer(peer).status for peer in peers[:2]] == [200, 200]
        until(lambda: door.port.queue.large == door.port.receiving == 0)  # all that came to the refused ones is read
        assert not door.port.bodies
    assert door.seen.sheds == count - 2
    assert most[0] <= limit


async def ended(*tasks: asyncio.Task[None], ports: Iterable[Port]) -> None:
    """Have all connections end once they are made."""
    for task in tasks:
        task.cancel()
    for connection in [each for port in ports for each in port.connections]:
        while connection.arriving is not None:
            await asyncio.sleep(0.001)
        connection.abort()
    await asyncio.sleep(0.02)


def test_connections_that_come_at_once_are_shared_evenly() -> None:
    numbers = memoryview(bytearray(4 * 3)).cast("I")
    numbers[2] = 1_000  # of a worker that has plenty

    async def shared(listener: socket.socket, other: socket.socket) -> list[int]:
        shares = [worker.ConnectionShare(numbers, place) for place in range(2)]
        ports = [Port(App(), ServerLimits(), Seen(), count=share.count) for share in shares]
        tasks = [
            asyncio.create_task(listening.accept(door, port, lambda: None, share.of))
            for door, port, share in zip((listener, other), ports, shares, strict=True)
        ]
        async with asyncio.timeout(LONG):
            while sum(len(port.connections) for port in ports) < 16:
                await asyncio.sleep(0.001)
        counts = [len(port.connections) for port in ports]
        assert counts == list(numbers[:2])
        await ended(*tasks, ports=ports)
        assert list(numbers) == [0, 0, 1_000]
        return counts

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, contextlib.ExitStack() as stack:
        listener.setblocking(False)
        for _ in range(16):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        assert uvloop.run(shared(listener, stack.enter_context(listener.dup()))) == [8, 8]


@pytest.mark.parametrize(
    ("numbers", "waiting", "shares"),
    [
        ([0, 0], 1, [1, 1]),
        ([0, 0], 7, [4, 4]),
        ([3, 0], 1, [0, 1]),
        ([3, 0], 3, [0, 3]),
        ([3, 0], 4, [1, 4]),
        ([3, 0], 9, [3, 6]),
        ([900, 4, 0], 10, [0, 3, 7]),
        ([5], 6, [6]),
    ],
)
def test_new_connections_go_to_the_workers_with_the_fewest(numbers: list[int], waiting: int, shares: list[int]) -> None:
    known = memoryview(bytearray(4 * len(numbers))).cast("I")
    found = [worker.ConnectionShare(known, place) for place in range(len(numbers))]
    for share, number in zip(found, numbers, strict=True):
        share.count(number)
    assert [share.of(waiting) for share in found] == shares


class Followers:
    """Workers of one replica that wait for facts: what each has, and which of them take connections."""

    def __init__(self, number: int) -> None:
        self.states = memoryview(bytearray(number))
        self.facts: list[Any] = [None] * number
        self.taking: set[int] = set()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, place: int, patience: float) -> worker.Loaded:
        async def take() -> None:
            self.taking.add(place)

        loaded = worker.Loaded(self.states, place)
        ready = worker.when_ready(lambda: self.facts[place], loaded, take(), patience)
        self.tasks.append(asyncio.create_task(ready))
        return loaded

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG):
            while not condition():
                await asyncio.sleep(0.005)

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TICK", 0.01)


@pytest.mark.usefixtures("_often")
def test_a_worker_without_facts_leaves_callers_to_one_that_has_them_however_long_it_takes() -> None:
    async def followed() -> None:
        workers = Followers(2)
        first = workers.start(0, patience=LONG)
        assert not first()
        workers.facts[0] = object()
        await workers.until(lambda: workers.taking == {0})
        second = workers.start(1, patience=0)
        await asyncio.sleep(0.1)
        assert (workers.taking, first(), second()) == ({0}, True, True)
        workers.facts[1] = object()
        await workers.until(lambda: workers.taking == {0, 1})
        assert first()
        workers.end()

    asyncio.run(followed())


@pytest.mark.usefixtures("_often")
def test_a_replica_is_not_ready_while_a_worker_takes_callers_without_facts() -> None:
    async def followed() -> None:
        workers = Followers(2)
        loaded = [workers.start(place, patience=0) for place in range(2)]
        await workers.until(lambda: workers.taking == {0, 1})
        workers.facts[0] = object()
        await workers.until(lambda: workers.states[0] == worker.HAS)
        assert [each() for each in loaded] == [False, False]
        workers.facts[1] = object()
        await workers.until(loaded[0])
        workers.facts[0] = None  # they became too old
        await workers.until(lambda: not loaded[1]())
        workers.end()

    asyncio.run(followed())


def test_a_worker_in_a_dead_ones_place_begins_without_its_state() -> None:
    states = memoryview(bytearray([worker.HAS, worker.LACKS, worker.LEAVES]))
    second = worker.Loaded(states, 1)
    assert second()
    assert not worker.Loaded(states, 0)()
    assert bytes(states) == bytes([worker.LEAVES] * 3)


def test_connections_that_wait_are_taken_in_together() -> None:
    async def asked(listener: socket.socket) -> list[int]:
        seen: list[int] = []

        def share(waiting: int) -> int:
            seen.append(waiting)
            return waiting

        port = Port(App(), ServerLimits(), Seen())
        task = asyncio.create_task(listening.accept(listener, port, lambda: None, share))
        async with asyncio.timeout(LONG):
            while len(port.connections) < 40:
                await asyncio.sleep(0.001)
        await ended(task, ports=[port])
        return seen

    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener, contextlib.ExitStack() as stack:
        listener.setblocking(False)
        for _ in range(40):
            stack.enter_context(socket.create_connection(listener.getsockname()))
        assert uvloop.run(asked(listener)) == [40, 40 - listening.AT_ONCE, 40 - 2 * listening.AT_ONCE]


def test_the_busiest_worker_takes_a_connection_that_no_other_takes() -> None:
    async def taken(listener: socket.socket) -> bool:
        port = Port(App(), ServerLimits(), Seen())
        task = asyncio.create_task(listening.accept(listener, port, lambda: None, lambda _: 0))
        async with asyncio.timeout(LONG):
            while not port.connections:
                await asyncio.sleep(0.001)
        await ended(task, ports=[port])
        return port.unverified == {}

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with socket.create_connection(listener.getsockname()):
            assert uvloop.run(taken(listener))


@dataclass
class Held:
    """An application that begins with what is large, and goes on when it may."""

    begun: list[str] = field(default_factory=list)
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __call__(self, request: HttpRequest) -> Reply:
        if request.length > 10:
            self.begun.append(request.path)
            assert self.go.acquire(timeout=LONG)
        return echo(request)


def large(name: str) -> bytes:
    return f"POST /{name} HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n".encode() + b"x" * 20


def test_others_are_answered_while_one_large_review_is_judged_and_the_next_waits() -> None:
    app = Held()
    with opened(ServerLimits(small_bytes=10), app) as door, contextlib.ExitStack() as stack:
        first, second, small = (stack.enter_context(door.connect()) for _ in range(3))
        first.sendall(large("1"))
        until(lambda: app.begun == ["/1"])
        second.sendall(large("2"))
        until(lambda: len(door.port.queue) == 1)
        for _ in range(20):
            small.sendall(GET)
            assert answer(small).read() == b"/x 0"
        assert app.begun == ["/1"]
        assert door.port.queue.large == 40
        app.go.release(2)
        assert (answer(first).read(), answer(second).read()) == (b"/1 20", b"/2 20")
        until(lambda: door.port.queue.large == 0)
        assert sorted(door.seen.answers[-2:]) == [("/1", 200), ("/2", 200)]


def test_a_large_review_whose_caller_is_gone_is_not_judged_and_keeps_no_memory() -> None:
    app = Held()
    with opened(ServerLimits(small_bytes=10, large_bytes=60), app) as door, contextlib.ExitStack() as stack:
        first, gone, third = (stack.enter_context(door.connect()) for _ in range(3))
        first.sendall(large("1"))
        until(lambda: app.begun == ["/1"])
        gone.sendall(large("2"))
        third.sendall(large("3"))
        until(lambda: len(door.port.queue) == 2)
        gone.close()
        until(lambda: door.port.queue.large == 40)
        first.close()  # what is being judged is in memory until its end
        until(lambda: len(door.port.connections) == 1)
        assert door.port.queue.large == 40
        app.go.release(2)
        assert answer(third).read() == b"/3 20"
        assert app.begun == ["/1", "/3"]
        until(lambda: door.port.queue.large == 0)


def test_the_queue_of_large_reviews_is_limited_and_then_answers_429() -> None:
    app = Held()
    with opened(ServerLimits(small_bytes=10, large_waiting=1), app) as door, contextlib.ExitStack() as stack:
        first, second, third, small = (stack.enter_context(door.connect()) for _ in range(4))
        first.sendall(large("1"))
        until(lambda: app.begun == ["/1"])
        second.sendall(large("2"))
        until(lambda: len(door.port.queue) == 1)
        third.sendall(large("3"))
        refused = answer(third)
        assert (refused.status, refused.getheader("Retry-After")) == (429, "1")
        small.sendall(GET)
        assert answer(small).status == 200
        app.go.release(2)
        assert (answer(first).status, answer(second).status) == (200, 200)
    assert door.seen.sheds == 1


def test_a_port_that_drains_answers_the_large_review_that_is_being_judged() -> None:
    app = Held()
    with opened(ServerLimits(small_bytes=10, parting=0.1), app) as door, door.connect() as peer:
        peer.sendall(large("1"))
        until(lambda: app.begun == ["/1"])
        door.port.drain()
        time.sleep(0.3)
        app.go.release()
        assert received(peer).endswith(b"/1 20")
        until(lambda: not door.port.connections)


def test_at_the_limit_the_oldest_that_never_asked_makes_room() -> None:
    with opened(ServerLimits(connections=2)) as door, contextlib.ExitStack() as stack:
        known = stack.enter_context(door.connect())
        known.sendall(GET)
        assert answer(known).read() == b"/x 0"
        for _ in range(5):
            silent = stack.enter_context(door.connect())
            fresh = stack.enter_context(door.connect())
            assert received(silent) == b""
            fresh.sendall(GET[:5])
        fresh.sendall(GET[5:])
        assert answer(fresh).read() == b"/x 0"
        known.sendall(GET)
        assert answer(known).read() == b"/x 0"
        assert len(door.port.connections) == 2


def test_peers_that_asked_and_stay_keep_nobody_out() -> None:
    """The longest idle one makes room, and before it the one that sends its request for the longest time."""
    with opened(ServerLimits(connections=2)) as door, contextlib.ExitStack() as stack:
        peers = []
        for _ in range(8):
            peers.append(stack.enter_context(door.connect()))
            peers[-1].sendall(GET)
            assert answer(peers[-1]).read() == b"/x 0"
            until(lambda: len(door.port.idle) == len(door.port.connections), "the connection is idle")
        assert [received(peer) for peer in peers[:-2]] == [b""] * 6
        begun = peers[-2]
        begun.sendall(GET[:5])
        until(lambda: len(door.port.idle) == 1)
        with door.connect() as fresh:
            fresh.sendall(GET)
            assert answer(fresh).read() == b"/x 0"
            assert received(begun) == b""
            peers[-1].sendall(GET)
            assert answer(peers[-1]).read() == b"/x 0"


PROBE = GET.replace(b"/x", b"/healthz")


def test_whole_requests_that_wait_make_room_for_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is answered in each turn, while more come. All probes among them are answered; the oldest others close."""
    monkeypatch.setattr(queue, "MOMENT", -1.0)
    begun, go = threading.Event(), threading.Event()

    def answered(request: HttpRequest) -> Reply:
        begun.set()
        go.wait()
        return echo(request)

    with opened(OPEN, answered) as door, contextlib.ExitStack() as stack:
        first = stack.enter_context(door.connect())
        first.sendall(GET)
        begun.wait()
        line = [(stack.enter_context(door.connect()), number % 8 == 7) for number in range(3 * OPEN.connections)]
        for peer, probe in line:
            peer.sendall(PROBE if probe else GET)
        go.set()
        assert answer(first).read() == b"/x 0"
        found = [received(peer) for peer, _ in line]
    assert all(data.endswith(b"/healthz 0") for data, (_, probe) in zip(found, line, strict=True) if probe)
    others = [data for data, (_, probe) in zip(found, line, strict=True) if not probe]
    assert b"" in others
    assert all(data.endswith(b"\r\n\r\n/x 0") for data in others if data), "an answer is whole or missing"
    assert others[-1].endswith(b"/x 0"), "the newest stays"


def test_a_probe_is_answered_before_all_that_wait() -> None:
    async def main() -> None:
        waiting = queue.RequestQueue(App(), OPEN, asyncio.get_running_loop(), contextlib.nullcontext())

        def exchange(path: str) -> queue.Exchange:
            request = HttpRequest("GET", path, "", {}, 0.0)
            return queue.Exchange(request, 0, 0, asyncio.get_running_loop().create_future(), lambda: None)

        assert waiting.at_once(exchange("/x")) is not None
        others = [exchange("/x") for _ in range(OPEN.waiting)]
        assert [waiting.at_once(each) for each in others] == [None] * OPEN.waiting
        assert all(waiting.add(each) for each in others)
        reply = waiting.at_once(exchange("/healthz"))
        assert isinstance(reply, Reply)
        assert reply.body == b"/healthz 0"
        assert not any(each.reply.done() for each in others)
        await asyncio.gather(*(each.reply for each in others))

    asyncio.run(main())


def test_the_request_that_has_waited_longest_gives_way() -> None:
    async def main() -> list[str]:
        closed: list[str] = []
        waiting = queue.RequestQueue(App(), OPEN, asyncio.get_running_loop(), contextlib.nullcontext())
        for name in "abc":
            future = asyncio.get_running_loop().create_future()
            request = HttpRequest("GET", f"/{name}", "", {}, 0.0)
            assert waiting.add(queue.Exchange(request, 0, 0, future, partial(closed.append, name)))
        assert [waiting.give_way() for _ in range(4)] == [True, True, True, False]
        return closed

    assert asyncio.run(main()) == ["a", "b", "c"]


PIECES = (
    GET[:3],
    b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\nx",
    b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\n\r\nx",
    b"POST /x HTTP/1.1\r\nHost: a\r\nUpgrade: a\r\nContent-Length: 40\r\n\r\nx",
)
"""Requests that are not whole: in the head, in a small body, in a large one, and in one that is refused."""


@given(peers=st.lists(st.tuples(st.booleans(), st.sampled_from(PIECES)), min_size=2, max_size=2))
@example(peers=[(True, PIECES[0]), (True, PIECES[1])])
@example(peers=[(True, PIECES[2]), (True, PIECES[3])])
@settings(max_examples=20)
def test_who_sends_part_of_a_request_keeps_nobody_out(peers: list[tuple[bool, bytes]]) -> None:
    """Whatever a peer did before, only a request that was received whole keeps its connection."""
    with opened(ServerLimits(connections=2, small_bytes=64)) as door, contextlib.ExitStack() as stack:
        for asks, piece in peers:
            peer = stack.enter_context(door.connect())
            if asks:
                peer.sendall(GET)
                assert answer(peer).read() == b"/x 0"
            peer.sendall(piece)
        until(lambda: not door.port.idle)
        for _ in range(3):
            fresh = stack.enter_context(door.connect())
            fresh.sendall(GET)
            assert answer(fresh).read() == b"/x 0"


def test_requests_that_are_not_whole_share_a_limit_of_memory() -> None:
    with opened(ServerLimits(receiving_bytes=2000)) as door, contextlib.ExitStack() as stack:
        part = POST + b"Content-Length: 901\r\n\r\n" + b"x" * 900
        peers = []
        for count in range(1, 9):
            peers.append(stack.enter_context(door.connect()))
            peers[-1].sendall(part)
            if count > 2:
                assert received(peers[-3]) == b""
            until(lambda: door.port.receiving == len(part) * min(len(peers), 2))
        for peer in peers[-2:]:
            peer.sendall(b"x")
            assert answer(peer).read() == b"/x 901"
        until(lambda: door.port.receiving == 0)


def test_a_whole_request_is_answered_whatever_comes_in_the_same_turn() -> None:
    part = POST + b"Content-Length: 901\r\n\r\n" + b"x" * 900
    with opened(ServerLimits(receiving_bytes=2000)) as door, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(door.connect()) for _ in range(5)]
        until(lambda: len(door.port.connections) == 5)
        open_ones = [(each, each.transport) for each in door.port.connections]
        ports = {wire.get_extra_info("peername")[1]: each for each, wire in open_ones if wire is not None}
        first, *others = (ports[peer.getsockname()[1]] for peer in peers)

        def turn() -> None:
            first.data_received(part + b"x")
            for each in others:
                each.data_received(part)

        door.port.loop.call_soon_threadsafe(turn)
        assert answer(peers[0]).read() == b"/x 901"
        until(lambda: len(door.port.connections) == 3)


def test_what_is_dropped_after_a_refusal_earns_few_records() -> None:
    with opened(ServerLimits(body_bytes=1000)) as door, door.connect() as peer:
        until(lambda: len(door.port.connections) == 1)
        (connection,) = door.port.connections
        head = POST + b"Content-Length: 1000000\r\n\r\n"
        peer.sendall(head)
        assert answer(peer).status == 413
        for _ in range(50):
            door.port.loop.call_soon_threadsafe(connection.data_received, b"x" * 5000)
        door.port.loop.call_soon_threadsafe(connection.abort)
        until(lambda: not door.port.connections)
        earned = ServerLimits().answer_records * ServerLimits().record_bytes
        assert connection.came <= len(head) + earned + 1000


@pytest.mark.parametrize("piece", PIECES)
def test_a_connection_that_made_room_leaves_nothing_behind(piece: bytes) -> None:
    """Its body must not wait for a garbage collection: that is rare in a worker."""
    seen: weakref.WeakSet[Connection] = weakref.WeakSet()
    gc.collect()
    gc.disable()
    try:
        with opened(ServerLimits(connections=4, small_bytes=64)) as door, contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(door.connect()).sendall(piece)
                until(lambda: all(each.received for each in door.port.connections))
                seen.update(door.port.connections)
            until(lambda: len(seen) <= 4)
    finally:
        gc.enable()


def test_the_rest_of_a_refused_body_takes_nobodys_place() -> None:
    with opened(ServerLimits(receiving_bytes=2000, body_bytes=1000)) as door, contextlib.ExitStack() as stack:
        slow = stack.enter_context(door.connect())
        slow.sendall(POST + b"Content-Length: 901\r\n\r\n" + b"x" * 900)
        until(lambda: door.port.receiving > 900)
        refused = stack.enter_context(door.connect())
        refused.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        assert answer(refused).status == 413
        with contextlib.suppress(ConnectionError):  # after a while the port reads no more of it
            refused.sendall(b"x" * 100_000)
        assert received(refused) == b""
        slow.sendall(b"x")
        assert answer(slow).read() == b"/x 901"


def test_a_port_without_bodies_parses_one_head_of_a_packet() -> None:
    parsed = []
    with opened(ServerLimits(body_bytes=0)) as door, door.connect() as peer:
        begin = Connection.begin

        def counted(self: Connection, asked: Any) -> Any:
            parsed.append(asked)
            return begin(self, asked)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Connection, "begin", counted)
            peer.sendall(GET * 500)
            reply = answer(peer)
            assert (reply.read(), reply.getheader("Connection")) == (b"/x 0", "close")
            assert len(parsed) == 1
            with contextlib.suppress(ConnectionError):
                assert received(peer) == b""


def test_a_head_that_ends_in_the_packet_in_which_it_is_too_long_is_refused() -> None:
    head = GET[:-2] + b"".join(b"a%d: %s\r\n" % (n, b"x" * 500) for n in range(20)) + b"\r\n"
    with opened(ServerLimits(head_bytes=4 * 1024)) as door, door.connect() as peer:
        peer.sendall(head)
        assert answer(peer).status == 431


def test_a_silent_peer_makes_room_in_its_handshake(folder: Path, files: tls.Files) -> None:
    with opened(ServerLimits(connections=3), folder=folder, files=files) as door, contextlib.ExitStack() as stack:
        for _ in range(10):
            stack.enter_context(socket.create_connection(door.address, LONG))
        with door.connect() as peer:
            peer.sendall(GET)
            assert answer(peer).read() == b"/x 0"
        until(lambda: len(door.port.connections) <= 3)


def test_an_old_connection_ends_with_a_whole_answer_and_the_next_one_is_new(later: Callable[[float], None]) -> None:
    with opened() as door, contextlib.closing(http.client.HTTPConnection(*door.address, LONG)) as client:

        def asked(number: int) -> tuple[int, bool]:
            """The port that a request comes from, and whether the connection ends with its answer."""
            client.request("POST", f"/{number}", b"x" * 1000)
            here = client.sock.getsockname()[1]
            reply = client.getresponse()
            assert (reply.status, reply.read()) == (HTTPStatus.OK, f"/{number} 1000".encode())
            return here, reply.will_close

        here, _ = asked(0)
        later(200)
        assert asked(1) == (here, False)
        later(400)
        assert asked(2) == (here, True)
        fresh, ends = asked(3)
        assert (fresh != here, ends) == (True, False)
        assert len(door.seen.answers) == 4


def test_connections_of_one_moment_do_not_end_in_one_moment(later: Callable[[float], None]) -> None:
    with opened() as door, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(door.connect()) for _ in range(32)]
        until(lambda: len(door.port.connections) == 32)
        later(300)
        for peer in peers:
            peer.sendall(GET)
        assert len({answer(peer).will_close for peer in peers}) == 2


def test_a_port_that_drains_ends_each_connection_with_its_next_answer() -> None:
    with opened(ServerLimits(parting=0.3)) as door, door.connect() as busy, door.connect() as idle:
        for peer in (busy, idle):
            peer.sendall(GET)
            assert answer(peer).read() == b"/x 0"
        door.port.drain()
        busy.sendall(GET)
        data = received(busy)
        assert data.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nConnection: close\r\n" in data
        assert received(idle) == b""
        until(lambda: not door.port.connections)


# TLS and who may call


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority (ca), what it serves with (tls), and callers: api, agent by a DNS name, rogue of another CA."""
    folder = tmp_path_factory.mktemp("door")
    now = datetime.now(UTC)
    ca, other = certs.issue_ca("ca", now, days=30), certs.issue_ca("ca", now, days=30)
    write(folder, "ca", ca)
    write(folder, "tls", certs.issue_serving(ca, ["localhost"], ["127.0.0.1"], now, days=30))
    write(folder, "api", caller(ca, "kube-apiserver"))
    write(folder, "agent", caller(ca, "someone", "agent.example"))
    write(folder, "rogue", caller(other, "kube-apiserver"))
    return folder


@pytest.fixture(scope="module")
def files(folder: Path) -> tls.Files:
    return tls.Files(folder / "tls.crt", folder / "tls.key")


@pytest.mark.parametrize(
    ("name", "names", "status"),
    [
        ("api", set(), 200),
        ("api", {"kube-apiserver", "other"}, 200),
        ("agent", {"agent.example"}, 200),
        ("agent", {"someone"}, 200),
        ("agent", {"example", "*.example", "Someone", "agent.example.org"}, 403),
        ("api", {"agent.example"}, 403),
        (None, {"kube-apiserver"}, None),
        (None, set(), None),
        ("rogue", {"kube-apiserver"}, None),
    ],
)
def test_a_caller_needs_a_certificate_of_the_authority_and_an_allowed_name(
    folder: Path, files: tls.Files, name: str | None, names: set[str], status: int | None
) -> None:
    asked = replace(files, client_ca=folder / "ca.crt")
    with opened(SOON, folder=folder, files=asked, names=frozenset(names)) as door:
        if status is None:
            with contextlib.suppress(ssl.SSLError, ConnectionError), door.connect(name) as peer:
                peer.sendall(GET)
                assert received(peer) == b""
            until(lambda: not door.port.connections)
            assert door.seen.answers == []
            return
        with door.connect(name) as peer:
            for _ in range(2):
                peer.sendall(GET)
                response = answer(peer)
                assert response.status == status
                assert response.read() == (b"/x 0" if status == 200 else b"")
            if status == 403:  # and no body is taken from it
                peer.sendall(POST + b"Content-Length: 1000\r\n\r\n")
                assert received(peer).startswith(b"HTTP/1.1 403 ")
        assert door.seen.refusals == ([] if status == 200 else [403] * 3)
        assert len(door.seen.answers) == (2 if status == 200 else 0)
        borne = {"api": {"kube-apiserver"}, "agent": {"someone", "agent.example"}}[name or ""]
        assert door.seen.unverified == ([] if status == 200 else [borne] * 3)


def test_refused_callers_are_logged_by_name_at_a_limited_rate() -> None:
    lines: list[Any] = []
    clock = [0.0]
    told = worker.RefusedCallers(lines.append, lambda: clock[0])
    told(frozenset())
    told(frozenset(f"{number:02}" + "x" * 300 for number in range(100)))
    assert [line["message"] for line in lines] == ["caller refused"] * 2
    assert [len(line["names"]) for line in lines] == [0, worker.NAMES]
    assert max(map(len, lines[1]["names"])) == serving.MAX_LOGGED
    for _ in range(1000):
        told(frozenset({"flood"}))
    assert len(lines) == 5
    clock[0] += 10.5
    for _ in range(1000):
        told(frozenset({"flood"}))
    assert len(lines) == 6
    assert lines[-1] == {"message": "caller refused", "worker": os.getpid(), "names": ["flood"], "requests": 998}


class Below:
    """A client whose records the test sends itself, over a socket of its own."""

    def __init__(self, door: Open, peer: socket.socket, secrets: Path | None = None, **settings: Any) -> None:
        self.peer = peer
        context = ssl.create_default_context(cafile=door.folder / "ca.crt")
        for key, value in settings.items():
            setattr(context, key, value)
        if secrets is not None:
            context.keylog_filename = str(secrets)
        self._read, self._made = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._read, self._made, server_hostname="localhost")

    def shake(self, size: int = 1 << 16) -> None:
        """Make the handshake, in segments of this size."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.send(self._made.read(), size)
                self._read.write(self.peer.recv(1 << 16))
                continue
            self.send(self._made.read(), size)
            return

    def hello(self) -> bytes:
        """The first message."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._made.read()

    def send(self, data: bytes, size: int) -> None:
        for at in range(0, len(data), size):
            self.peer.sendall(data[at : at + size])

    def records(self, contents: Iterable[bytes]) -> bytes:
        """Each of these in a record."""
        for content in contents:
            self.tls.write(content)
        return self._made.read()

    def answer(self) -> bytes:
        """The first bytes of the answer, and whatever comes with them."""
        while True:
            try:
                return self.tls.read()
            except ssl.SSLWantReadError:
                self._read.write(self.peer.recv(1 << 16))


@contextlib.contextmanager
def below(door: Open, secrets: Path | None = None, **settings: Any) -> Iterator[Below]:
    with socket.create_connection(door.address, LONG) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield Below(door, peer, secrets, **settings)


def expanded(secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label of TLS 1.3, without a context (RFC 8446, 7.1)."""
    name = b"tls13 " + label.encode()
    info = size.to_bytes(2) + bytes([len(name)]) + name + b"\0"
    return HKDFExpand(SHA384(), size, info).derive(secret)


def updates(log: Path, number: int, request: bytes) -> bytes:
    """So many records with a KeyUpdate that asks for one in return, and a request after them."""
    (secret,) = [
        bytes.fromhex(line.split()[2])
        for line in log.read_text("ascii").splitlines()
        if line.startswith("CLIENT_TRAFFIC_SECRET_0 ")
    ]
    made = []
    for content in [b"\x18\0\0\1\1\x16"] * number + [request + b"\x17"]:
        head = b"\x17\3\3" + (len(content) + 16).to_bytes(2)
        made.append(head + AESGCM(expanded(secret, "key", 32)).encrypt(expanded(secret, "iv", 12), content, head))
        secret = expanded(secret, "traffic upd", 48)
    return b"".join(made)


PATIENT = replace(ServerLimits(), handshake=10 * LONG, head=10 * LONG, idle=10 * LONG)
"""Limits of time that no test reaches."""


@pytest.mark.parametrize(("number", "cut"), [(5, False), (2400, True)])
def test_new_keys_are_made_a_limited_number_of_times(
    folder: Path, files: tls.Files, tmp_path: Path, number: int, *, cut: bool
) -> None:
    log = tmp_path / "secrets"
    with opened(PATIENT, folder=folder, files=files) as door, below(door, log) as client:
        client.shake()
        with contextlib.suppress(ConnectionError):
            client.peer.sendall(updates(log, number, GET))
        if cut:
            received(client.peer)
            until(lambda: not door.port.connections)
        else:
            assert client.answer().startswith(b"HTTP/1.1 200 ")
        assert len(door.seen.answers) == (not cut)


@pytest.mark.parametrize(
    "contents", [[b"x"] * 2400, [GET, *[b"y"] * 2400], [b"\r"] * 2400], ids=["head", "after one", "blank"]
)
def test_records_of_a_byte_are_read_a_limited_number_of_times(
    folder: Path, files: tls.Files, contents: list[bytes]
) -> None:
    with opened(PATIENT, folder=folder, files=files) as door, below(door) as client:
        client.shake()
        until(lambda: len(door.port.connections) == 1)
        (connection,) = door.port.connections
        with contextlib.suppress(ConnectionError):
            client.peer.sendall(client.records(contents))
        received(client.peer)
        until(lambda: not door.port.connections)
        assert connection.came <= door.port.limits.records + 4 * door.port.limits.record_bytes + len(GET)


def kept() -> list[Any]:
    """What TLS keeps for connections of this process."""
    return [each for each in gc.get_objects() if type(each).__name__ == "SSLProtocol"]


@pytest.mark.parametrize("sent", [b"", b"\x16\3\1", b"GET", None, b"\x16\3\1\x40\0\1\2\3\4", b"\0\3\3\0\0" * 200])
@pytest.mark.parametrize("reset", [True, False])
def test_a_handshake_that_failed_keeps_no_memory(
    folder: Path, files: tls.Files, sent: bytes | None, *, reset: bool
) -> None:
    """Nothing waits for a garbage collection. None stands for a whole ClientHello."""
    gc.disable()
    try:
        before = len(kept())
        with opened(PATIENT, folder=folder, files=files) as door:
            for _ in range(3):
                with below(door) as client:
                    client.peer.sendall(client.hello() if sent is None else sent)
                    if reset:
                        client.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            until(lambda: not door.port.connections and len(kept()) <= before)
    finally:
        gc.enable()


@pytest.mark.parametrize("announced", [131_396, ServerLimits().handshake_bytes + 1])
def test_a_hello_that_announces_much_is_cut_off_at_once(folder: Path, files: tls.Files, announced: int) -> None:
    with opened(PATIENT, folder=folder, files=files) as door, socket.create_connection(door.address, LONG) as peer:
        peer.sendall(b"\x16\3\1\x40\0\1" + announced.to_bytes(3))
        assert received(peer) == b""
        until(lambda: not door.port.connections)


def test_a_handshake_that_does_not_end_is_read_up_to_a_limit(folder: Path, files: tls.Files) -> None:
    """All but the last byte of the largest message come."""
    most = ServerLimits().handshake_bytes
    whole = b"\1" + most.to_bytes(3) + bytes(most)
    sent = b"".join(b"\x16\3\1" + len(part).to_bytes(2) + part for part in (whole[: most // 2], whole[most // 2 : -1]))
    with opened(PATIENT, folder=folder, files=files) as door, socket.create_connection(door.address, LONG) as peer:
        with contextlib.suppress(ConnectionError):
            peer.sendall(sent)
        assert received(peer) == b""
        until(lambda: not door.port.connections)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_handshake_may_come_byte_by_byte(folder: Path, files: tls.Files, version: ssl.TLSVersion) -> None:
    asked = replace(files, oldest=version)
    with opened(folder=folder, files=asked) as door, below(door, maximum_version=version) as client:
        client.shake(1)
        client.peer.sendall(client.records([GET]))
        assert client.answer().startswith(b"HTTP/1.1 200 ")


def test_a_long_chain_of_certificates_is_read(folder: Path, files: tls.Files) -> None:
    """A client's own certificate and seven of authorities."""
    chain = folder / "chain.crt"
    chain.write_text((folder / "api.crt").read_text() + 7 * (folder / "ca.crt").read_text())
    (folder / "chain.key").write_bytes((folder / "api.key").read_bytes())
    asked = replace(files, client_ca=folder / "ca.crt")
    with opened(folder=folder, files=asked) as door, door.connect("chain") as peer:
        peer.sendall(GET)
        assert answer(peer).status == 200


def test_a_large_body_may_come_in_small_records(folder: Path, files: tls.Files) -> None:
    """Go's client begins with records of 1.2 kB."""
    size = ServerLimits().body_bytes
    with opened(folder=folder, files=files) as door, door.connect() as peer:
        peer.sendall(POST + b"Content-Length: %d\r\n\r\n" % size)
        for at in range(0, size, 1200):
            peer.sendall(b"x" * min(1200, size - at))
        assert answer(peer).status == 200


@pytest.mark.parametrize("request_records", [[GET], [POST, b"Content-Length: 1\r\n\r\n", b"x"]], ids=["GET", "POST"])
def test_a_connection_serves_any_number_of_small_requests(
    folder: Path, files: tls.Files, request_records: list[bytes]
) -> None:
    with opened(folder=folder, files=files) as door, door.connect() as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(300):
            for each in request_records:
                peer.sendall(each)
            response = answer(peer)
            assert response.status == 200
            response.read()


def test_tls_1_2_is_spoken_if_asked_for_and_only_with_forward_secrecy(folder: Path, files: tls.Files) -> None:
    v2 = ssl.TLSVersion.TLSv1_2
    with opened(folder=folder, files=files) as door, pytest.raises(ssl.SSLError):
        door.connect(maximum_version=v2)
    with opened(folder=folder, files=replace(files, oldest=v2)) as door:
        with door.connect(maximum_version=v2) as peer:
            assert isinstance(peer, ssl.SSLSocket)
            assert peer.version() == "TLSv1.2"
            name, _, _ = peer.cipher() or ("", "", 0)
            assert name.startswith("ECDHE-")
            assert "GCM" in name or "POLY1305" in name
            assert peer.compression() is None
        with door.connect() as peer:
            assert isinstance(peer, ssl.SSLSocket)
            assert peer.version() == "TLSv1.3"
        context = ssl.create_default_context(cafile=folder / "ca.crt")
        context.maximum_version = v2
        context.set_ciphers("ECDHE+AES:RSA+AES:!AESGCM:!AESCCM:@SECLEVEL=0")  # CBC, and keys without secrecy
        with socket.create_connection(door.address, LONG) as raw, pytest.raises(ssl.SSLError):
            context.wrap_socket(raw, server_hostname="localhost")


# Certificates that are replaced


@dataclass
class Mounted:
    """A Secret as the kubelet mounts it: files that are links through `..data`, which is swapped."""

    folder: Path
    logged: list[Any] = field(default_factory=list)

    def put(self, certificate: bytes, key: bytes) -> None:
        version = self.folder / f"..{len(list(self.folder.iterdir()))}"
        version.mkdir()
        (version / "tls.crt").write_bytes(certificate)
        (version / "tls.key").write_bytes(key)
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")

    def load(self) -> tls.Certificates:
        return tls.Certificates(tls.Files(self.folder / "tls.crt", self.folder / "tls.key"), self.logged.append)


def issued(days: float = 30, before: float = 0) -> certs.Pair:
    ca = certs.issue_ca("ca", datetime.now(UTC) - timedelta(days=before), days=60)
    return certs.issue_serving(ca, ["localhost"], [], datetime.now(UTC) - timedelta(days=before), days=int(days))


def not_after(pair: certs.Pair) -> datetime:
    return x509.load_pem_x509_certificate(pair.certificate_pem).not_valid_after_utc


def served(context: ssl.SSLContext) -> bytes:
    """The certificate of a context, as a client gets to see it."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    a, b = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, peer = trusting.wrap_bio(a, b), context.wrap_bio(b, a, server_side=True)
    for each in (client, peer, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            each.do_handshake()
    return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True) or b"").encode()


def pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey, encryption: KeySerializationEncryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


def test_a_new_pair_is_served_once_it_is_there(mounted: Mounted) -> None:
    first, second = issued(days=20), issued(days=25)
    mounted.put(first.certificate_pem, first.key_pem)
    certificates = mounted.load()
    certificates.reload_if_changed()
    assert served(certificates.context) == first.certificate_pem
    assert certificates.not_after == not_after(first)
    mounted.put(second.certificate_pem, second.key_pem)
    certificates.reload_if_changed()
    assert served(certificates.context) == second.certificate_pem
    assert certificates.not_after == not_after(second)
    assert [line["message"] for line in mounted.logged] == ["certificate replaced"]


GOOD, OTHER, EXPIRED, LATER = issued(), issued(), issued(days=1, before=3), issued(before=-3)
EDWARDS = pem(ed25519.Ed25519PrivateKey.generate(), NoEncryption())
ANOTHERS = "tls.crt, {}/tls.key: the key belongs to another certificate"
CALLERS = caller(certs.issue_ca("ca", datetime.now(UTC)), "someone")
LOCKED = pem(ec.generate_private_key(ec.SECP256R1()), BestAvailableEncryption(b"secret"))


@pytest.mark.parametrize(
    ("certificate", "key", "problem"),
    {
        "another's key": (
            OTHER.certificate_pem,
            GOOD.key_pem,
            "tls.crt, {}/tls.key: the key belongs to another certificate",
        ),
        "another kind of key": (OTHER.certificate_pem, EDWARDS, ANOTHERS),
        "encrypted": (OTHER.certificate_pem, LOCKED, "tls.key: the key is encrypted"),
        "expired": (EXPIRED.certificate_pem, EXPIRED.key_pem, "not valid now"),
        "not valid yet": (LATER.certificate_pem, LATER.key_pem, "not valid now"),
        "a caller's": (
            CALLERS.certificate_pem,
            CALLERS.key_pem,
            "certificate purpose",  # before it, OpenSSL says unsuitable or unsupported
        ),
        "half": (OTHER.certificate_pem[:200], OTHER.key_pem, "tls.crt: no certificate in PEM in it"),
        "empty": (b"", b"", "tls.crt: no certificate in PEM in it"),
        "no key": (OTHER.certificate_pem, b"", "tls.key: no key in PEM in it"),
        "the one for the other": (OTHER.key_pem, OTHER.certificate_pem, "tls.crt: no certificate in PEM in it"),
    }.values(),
)
def test_a_pair_that_cannot_be_used_keeps_the_old_and_is_logged_once(
    mounted: Mounted, certificate: bytes, key: bytes, problem: str
) -> None:
    mounted.put(GOOD.certificate_pem, GOOD.key_pem)
    certificates = mounted.load()
    mounted.put(certificate, key)
    for _ in range(3):
        certificates.reload_if_changed()
    assert served(certificates.context) == GOOD.certificate_pem
    assert certificates.not_after == not_after(GOOD)
    (line,) = mounted.logged
    assert line["message"] == "certificate not replaced"
    assert line["worker"] == os.getpid()
    assert line["problem"].endswith(problem.format(mounted.folder))
    assert "PRIVATE" not in str(line)
    mounted.put(OTHER.certificate_pem, OTHER.key_pem)
    certificates.reload_if_changed()
    assert served(certificates.context) == OTHER.certificate_pem


def test_files_that_are_gone_keep_the_old_pair(mounted: Mounted) -> None:
    mounted.put(GOOD.certificate_pem, GOOD.key_pem)
    certificates = mounted.load()
    (mounted.folder / "tls.crt").unlink()
    certificates.reload_if_changed()
    certificates.reload_if_changed()
    assert served(certificates.context) == GOOD.certificate_pem
    assert len(mounted.logged) == 1


def test_a_connection_outlives_ten_rotations_and_each_is_seen_by_the_next(mounted: Mounted) -> None:
    pair = issued()
    mounted.put(pair.certificate_pem, pair.key_pem)
    files = tls.Files(mounted.folder / "tls.crt", mounted.folder / "tls.key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        opened(folder=mounted.folder, files=files) as door,
        context.wrap_socket(socket.create_connection(door.address, LONG)) as kept,
    ):
        assert door.certificates is not None
        for _ in range(10):
            pair = issued()
            mounted.put(pair.certificate_pem, pair.key_pem)
            door.certificates.reload_if_changed()
            with context.wrap_socket(socket.create_connection(door.address, LONG)) as fresh:
                seen = ssl.DER_cert_to_PEM_cert(fresh.getpeercert(binary_form=True) or b"").encode()
                assert seen == pair.certificate_pem
                fresh.sendall(GET)
                assert answer(fresh).status == 200
            kept.sendall(GET)
            assert answer(kept).read() == b"/x 0"


@pytest.mark.parametrize("oldest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_end_of_a_certificate_is_known_also_with_its_chain_and_where_callers_need_one(
    mounted: Mounted, oldest: ssl.TLSVersion
) -> None:
    ca = certs.issue_ca("ca", datetime.now(UTC), days=60)
    pair = certs.issue_serving(ca, ["localhost"], [], datetime.now(UTC), days=30)
    mounted.put(b"# the leaf, and its \xc3\xbc\n" + pair.certificate_pem + ca.certificate_pem, pair.key_pem)
    (mounted.folder / "ca.crt").write_bytes(ca.certificate_pem)
    certificate, key, callers = (mounted.folder / name for name in ("tls.crt", "tls.key", "ca.crt"))
    files = tls.Files(certificate, key, callers, oldest)
    assert tls.Certificates(files, mounted.logged.append).not_after == not_after(pair)


def test_readiness_warns_of_the_certificates_end_and_ends_with_it(mounted: Mounted) -> None:
    def ready(days: float, before: float = 0) -> tuple[int, str]:
        pair = issued(days, before)
        mounted.put(pair.certificate_pem, pair.key_pem)
        app = serving.Health(lambda: facts, conditions=[mounted.load().condition])
        answered = ask(app, "/readyz", method="GET")
        return answered.status, answered.body.decode()

    facts = True
    assert ready(30) == (200, "ok\n")
    status, text = ready(13)
    assert status == 200
    assert text.startswith("ok\nthe serving certificate ends at 20")
    status, text = ready(1, before=3)
    assert status == 503
    assert text.startswith("the serving certificate ended at 20")
    facts = False
    assert ready(30) == (503, "facts are not loaded yet, or too old\n")


# Deadlines


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("10s", 10), ("1m30s", 90), ("1.5s", 1.5), ("300ms", 0.3), ("1h", 3600), (".5s", 0.5), ("0", 0)),
        *(("2us", 2e-6), ("2µs", 2e-6), ("7ns", 7e-9), ("1h0m0.5s", 3600.5)),
    ],
)
def test_a_duration_is_read_as_go_writes_it(text: str, value: float) -> None:
    assert duration.seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-1s", "1 s", "1s ", "1d", "1e3s", "٣s", "1s2", "s1", "." * 99, "1s" * 199]
)
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        duration.seconds(text)


# Many at once


def test_reviews_of_many_connections_are_all_answered(folder: Path, files: tls.Files) -> None:
    def one(door: Open) -> int:
        with door.connect() as peer:
            for number in range(10):
                peer.sendall(POST + f"Content-Length: {number}\r\n\r\n".encode() + b"x" * number)
                assert answer(peer).read() == f"/x {number}".encode()
        return 10

    with opened(folder=folder, files=files) as door, ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(one, [door] * 16)) == 160
    assert len(door.seen.answers) == 160


def test_a_periodic_task_goes_on_after_a_failure() -> None:
    times = iter((1, 0, 1))
    done: list[int] = []

    async def main() -> None:
        task = asyncio.create_task(listening.every(0.001, lambda: done.append(1 // next(times))))
        while len(done) < 2:
            await asyncio.sleep(0.001)
        task.cancel()

    uvloop.run(main())
    assert done == [1, 1]


# What an answer has to wait for


class Waiting:
    """Answers what has to wait only when it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[tuple[str, bool]] = []

    def __call__(self, request: HttpRequest) -> Reply | Later:
        self.asked.append((request.path, request.final))
        if request.path == "/late" and not request.final:
            return Later(self._wait)
        return echo(request)

    def _wait(self) -> None:
        assert self.go.wait(LONG)


@pytest.mark.parametrize("size", [2, 200_000], ids=["small", "large"])
def test_a_request_that_waits_holds_up_no_other_and_is_answered_then(size: int) -> None:
    app = Waiting()
    with opened(replace(SOON, small_bytes=1000), app) as door:
        with door.connect() as late:
            late.sendall(b"POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
            until(lambda: bool(app.asked))
            with door.connect() as other:
                other.sendall(b"POST /soon HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + b"y" * 2000)
                assert answer(other).read() == b"/soon 2000"
            app.go.set()
            assert answer(late).read() == f"/late {size}".encode()
        assert door.port.queue.large == 0
        assert door.seen.answers == [("/soon", 200), ("/late", 200)]
    assert app.asked == [("/late", False), ("/soon", False), ("/late", True)]


def test_too_many_requests_that_wait_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.http.port.LATER", 1)
    app = Waiting()
    late = b"POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    with opened(SOON, app) as door:
        with door.connect() as first, door.connect() as second:
            first.sendall(late)
            until(lambda: bool(app.asked))
            second.sendall(late)
            assert answer(second).status == HTTPStatus.TOO_MANY_REQUESTS
            app.go.set()
            assert answer(first).status == HTTPStatus.OK
        assert door.seen.sheds == 1


def test_a_caller_that_leaves_while_its_request_waits_leaves_nothing_behind() -> None:
    app = Waiting()
    with opened(replace(SOON, small_bytes=1000), app) as door:
        with door.connect() as gone:
            gone.sendall(b"POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000)
            until(lambda: bool(app.asked))
        until(lambda: not door.port.connections)
        app.go.set()
        until(lambda: door.port.queue.large == 0)
        assert talk(door, b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")[0] == HTTPStatus.OK
        until(lambda: door.port.queue.large == 0 and len(door.port.queue) == 0)


def test_a_request_that_would_wait_twice_is_an_error() -> None:
    with opened(SOON, lambda _: Later(lambda: None)) as door:
        assert talk(door, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))[0] == 500
