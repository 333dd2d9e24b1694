"""What a controller makes of a replica's answer, whatever it is."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from webhook.controller import reach
from webhook.controller.reach import Replica
from webhook.engine import probe
from webhook.engine.paths import MUTATE, VALIDATE

DIGEST = "0123456789abcdef"
REPORT = {"release": "0.1.0", "held": [DIGEST], "refused": {}, "waiting": {}, "forbidden": {}}


@contextmanager
def answering(send: Callable[[socket.socket], Any]) -> Iterator[str]:
    """Serve one connection on loopback, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    send(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        host, port = listener.getsockname()
        yield f"{host}:{port}"
    thread.join(10)


def asked(data: bytes) -> Replica:
    with answering(lambda connection: connection.sendall(data)) as address:
        (found,) = reach.replicas([address])
    return found


def http(body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def report(**more: Any) -> bytes:
    return http(json.dumps({**REPORT, **more}).encode())


def test_a_report_is_read() -> None:
    unread, denied = "nodes, configmaps of team-x", "configmaps of team-x"
    found = asked(report(refused={"f" * 16: "no"}, waiting={"a" * 16: unread}, forbidden={"a" * 16: denied}))
    assert (found.why, found.release, {*found.held}) == ("", "0.1.0", {DIGEST})
    assert found.refused == ("f" * 16,)
    assert (found.waiting, found.forbidden) == ({"a" * 16: unread}, {"a" * 16: denied})
    assert found.lacks({"a" * 16}) == f"may not read {denied}"


def test_a_replica_of_a_release_that_does_not_say_why_it_waits_may_still_read() -> None:
    found = asked(http(json.dumps({"release": "0.0.1", "held": [], "waiting": {DIGEST: "nodes"}}).encode()))
    assert (found.why, found.forbidden) == ("", {})
    assert found.lacks({DIGEST}) == "has not read nodes yet"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\n" + b"A" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200,
        http(b"[" * 50_000),
        http(b"[]"),
        http(b"{}"),
        http(b"null"),
        http(b"\xff"),
        report(release=7),
        report(release="a b"),
        report(held="abc"),
        report(held=[DIGEST, 5]),
        report(held=["../../etc"]),
        report(held=None),
        report(refused=[DIGEST]),
        report(refused={"x": "y"}),
        report(waiting={"x": "y"}),
        report(forbidden={"x": "y"}),
    ],
)
def test_an_answer_that_is_no_report_is_no_answer(data: bytes) -> None:
    found = asked(data)
    assert found.why.startswith("does not answer (")
    assert (found.release, found.held) == ("", frozenset())


def test_an_answer_without_end_is_cut_off_after_64_kib() -> None:
    sent = 0

    def send(connection: socket.socket) -> None:
        nonlocal sent
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < 200 << 20:
            connection.sendall(b" " * 65_536)
            sent += 65_536

    with answering(send) as address:
        (found,) = reach.replicas([address])
    assert found.why == "does not answer (ValueError)"
    assert sent < 50 << 20


def test_a_replica_that_sends_slowly_is_cut_off_at_the_end_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "REPLICA_SECONDS", 0.5)
    gone = threading.Event()

    def send(connection: socket.socket) -> None:
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
            while True:  # each byte comes long before a time limit for one read
                connection.sendall(b" ")
                threading.Event().wait(0.05)
        except OSError:
            gone.set()

    with answering(send) as address:
        (found,) = reach.replicas([address])
    assert found.why == "does not answer (TimeoutError)"
    assert gone.is_set()


def test_a_redirect_is_not_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        head = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n"
        assert asked(head % elsewhere.getsockname()[1]).why == "answers 302"
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


def test_what_a_replica_waits_for_is_one_short_line() -> None:
    found = asked(report(waiting={DIGEST: "a\n" * 500}))
    assert len(found.waiting[DIGEST]) <= 80
    assert "\n" not in found.waiting[DIGEST]


@given(some.text(max_size=300))
def test_whatever_a_replica_waits_for_the_status_shows_one_short_line_without_controls(text: str) -> None:
    said = {"release": "1", "held": [], "refused": {"e" * 16: text}, "waiting": {"f" * 16: text}}
    said["forbidden"] = {"d" * 16: text}
    replica = reach._read("127.0.0.1:1", json.loads(json.dumps(said)))
    for wanted in ({"d" * 16}, {"e" * 16}, {"f" * 16}):
        shown = replica.lacks(wanted)
        assert len(shown) <= 100
        assert shown.isprintable()


@given(some.recursive(some.none() | some.booleans() | some.integers() | some.text(), some.lists) | some.text())
def test_a_report_of_other_types_is_no_report(value: Any) -> None:
    for key in ("release", "held", "refused", "waiting", "forbidden"):
        said = {"release": "1", "held": [], "refused": {}, "waiting": {}, "forbidden": {}, key: value}
        try:
            replica = reach._read("127.0.0.1:1", said)
        except (KeyError, TypeError, ValueError):
            continue
        assert replica.release == said["release"]
        assert (replica.held, replica.refused) == (frozenset(), ())
        assert (replica.waiting, replica.forbidden) == ({}, {})


WORDS = ("slicewarden probe ", "/validate/", "/mutate/", "0" * 16, "-audit", ".", " release ", "1", "\n", '"', "/etc")


@given(some.lists(some.lists(some.sampled_from(WORDS) | some.text(max_size=5)).map("".join)))
def test_a_forged_answer_to_the_probe_is_a_path_of_ours_or_nothing(headers: list[str]) -> None:
    for proof in probe.heard(headers):
        assert proof.path.half in (VALIDATE, MUTATE)
        assert 1 <= len(proof.path.names) <= 2
        assert str(proof.path).isascii()
        assert str(proof.path).isprintable()
