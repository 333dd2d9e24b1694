"""The port for metrics and health: it sleeps until somebody asks, and keeps nothing for who does not read."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from email.utils import parsedate_to_datetime

import pytest

from tests.support.waiting import LONG, until
from webhook.controller.health import ControllerMetrics
from webhook.http import listening, scrape
from webhook.http.limits import OPEN
from webhook.http.port import Port


def test_nothing_wakes_a_port_without_connections_and_an_answer_has_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, tick = list[float](), Port.tick

    def counted(one: Port) -> None:
        ticks.append(time.time())
        tick(one)

    monkeypatch.setattr(Port, "tick", counted)
    with listening.listener("127.0.0.1", 0) as free:
        host, port = free.getsockname()[:2]
    with scrape.serving(ControllerMetrics(), host, port, lambda _: None):
        threading.Event().wait(6 * listening.TICK)
        assert len(ticks) == 1  # when the port was made
        with closing(http.client.HTTPConnection(host, port, timeout=LONG)) as connection:
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            answer.read()
            assert parsedate_to_datetime(answer.headers["Date"]).timestamp() >= int(ticks[1])
            seen = len(ticks)
            until(lambda: len(ticks) > seen)
        before = 0

        def rests() -> bool:
            nonlocal before
            before, same = len(ticks), before == len(ticks)
            return same

        until(rests, pause=3 * listening.TICK)


class Large:
    """Metrics of 2 MiB."""

    age = 0.0

    def text(self) -> bytes:
        return b"x" * 2**21


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    with listening.listener("127.0.0.1", 0) as free:
        host, port = free.getsockname()[:2]
    with scrape.serving(Large(), host, port, lambda _: None):
        yield host, port


def slow(peers: ExitStack, address: tuple[str, int], request: bytes = b"") -> socket.socket:
    """Connect with a small buffer, so that a large answer never fits into it."""
    peer = peers.enter_context(socket.socket())
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.settimeout(LONG)
    peer.connect(address)
    peer.sendall(request)
    return peer


SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


def read(peer: socket.socket) -> bytes:
    found = bytearray()
    while part := peer.recv(2**16):
        found += part
    return bytes(found)


def test_who_reads_slowly_gets_the_whole_of_a_large_answer(address: tuple[str, int]) -> None:
    with ExitStack() as peers:
        head, _, body = read(slow(peers, address, SCRAPE)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 2097152" in head
    assert body == Large().text()


def test_what_a_peer_does_not_read_goes_with_its_connection(address: tuple[str, int]) -> None:
    with ExitStack() as peers:
        first = slow(peers, address, SCRAPE)
        assert first.recv(1) == b"H"
        for _ in range(OPEN.connections):
            slow(peers, address)
        with closing(http.client.HTTPConnection(*address, timeout=LONG)) as connection:
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
        with pytest.raises(ConnectionResetError):  # the kernel would keep the rest as long as the peer is there
            read(first)
