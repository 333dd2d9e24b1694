"""Every port that the product opens, as a process of its own, under slow, endless and many peers at once."""

import ast
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT
from tests.support.manifests import BASE, COMPONENTS, read
from tests.support.waiting import LONG, until
from tests.support.webhooks import running
from webhook.http.limits import OPEN, ServerLimits

ENDLESS, LINES, LINE = 40, 99, b"X: " + b"y" * 60_000 + b"\r\n"
"""Peers of 6 MB of headers each, and no end: a server that keeps them grows by 230 MiB."""

GROWTH, EACH = 16 * 1024, 128
"""KiB by which a process may grow meanwhile, and for each connection: a handshake takes half of those."""

PIPELINING, MUCH = 24, 6 * 1024 * 1024
"""Peers that send requests without waiting for answers, and how many bytes each: a server that keeps them grows."""


class Open(NamedTuple):
    """An open port: its process, where it is, and what trusts it if it speaks TLS."""

    pid: int
    address: tuple[str, int]
    trust: ssl.SSLContext | None = None

    def connect(self) -> socket.socket:
        """Connect, with a handshake where there is one."""
        raw = socket.create_connection(self.address, LONG)
        return raw if self.trust is None else self.trust.wrap_socket(raw, server_hostname="localhost")


class Door(NamedTuple):
    """A port of the product: who calls for its socket, its name in the manifests, its limits, and how to open it."""

    opener: str
    named: tuple[str, str]
    path: str
    limits: ServerLimits
    open: Callable[[Path], contextlib.AbstractContextManager[Open]]


@contextmanager
def reviews(folder: Path) -> Iterator[Open]:
    with (folder / "log").open("wb") as log, running(folder, "--workers", "1", output=log) as webhook:
        trust = ssl.create_default_context(cafile=folder / "ca.crt")
        yield Open(webhook.process.pid, ("127.0.0.1", webhook.port), trust)


@contextmanager
def health(folder: Path) -> Iterator[Open]:
    with (folder / "log").open("wb") as log, running(folder, "--workers", "1", output=log) as webhook:
        yield Open(webhook.process.pid, ("127.0.0.1", webhook.health))


@contextmanager
def agent(folder: Path) -> Iterator[Open]:
    """Without a card it serves as well."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    command = [sys.executable, "-m", "webhook", "agent", "--listen", f"127.0.0.1:{address[1]}"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until(lambda: asked(Open(process.pid, address), "/healthz") == 200, "it is healthy", LONG)
            yield Open(process.pid, address)
        finally:
            process.terminate()
            assert process.wait(LONG) == 0


DOORS = {
    "reviews": Door("webhook.serving.processes", ("slicewarden", "webhook"), "/healthz", ServerLimits(), reviews),
    "health": Door("webhook.serving.processes", ("slicewarden", "health"), "/metrics", OPEN, health),
    "agent": Door("webhook.http.scrape", ("slicewarden-node", "health"), "/metrics", OPEN, agent),
}


OF_A_USER = "webhook.ui.server"
"""Opens a port on loopback of a user's own machine; tests/ui tries it."""


# Which ports there are

LISTEN = {
    *("bind", "listen", "create_server", "create_unix_server", "start_server", "start_unix_server", "run_simple"),
    *("HTTPServer", "ThreadingHTTPServer", "TCPServer", "ThreadingTCPServer", "UDPServer", "make_server", "TCPSite"),
    *("serve_forever", "create_datagram_endpoint", "start_http_server", "start_wsgi_server", "run_app", "UnixSite"),
}
SERVERS = {"http.server", "socketserver", "wsgiref", "xmlrpc", "asyncore", "multiprocessing.managers"}


def listens(tree: ast.AST) -> Iterator[str]:
    """Whatever in a module opens a port, or would."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in LISTEN:
                yield name
            case ast.Import(names=names):
                yield from (each.name for each in names if _serves(each.name))
            case ast.ImportFrom(module=str(module)) if _serves(module):
                yield module


def _calls_the_one(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="listener") | ast.Attribute(attr="listener")):
            return True
    return False


def _serves(module: str) -> bool:
    return any(module == server or module.startswith(f"{server}.") for server in SERVERS)


def modules() -> dict[str, ast.Module]:
    """The modules that have one of the words above anywhere: a tenth of them."""
    words = (*LISTEN, *SERVERS, "listener")
    files = [file for package in ("webhook", "certs") for file in (ROOT / package).rglob("*.py")]
    texts = {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text("utf-8") for file in files}
    return {name: ast.parse(text) for name, text in texts.items() if any(word in text for word in words)}


def test_one_function_opens_ports_and_those_who_call_it_have_a_door_here() -> None:
    """A new port fails here until it is a door above, and then has to withstand what the others do."""
    trees = modules()
    opening = {name: found for name, tree in trees.items() if (found := [*listens(tree)])}
    assert opening == {
        "webhook.http.listening": ["create_server"],
        "webhook.cli.commands.ui": ["serve_forever"],  # on the socket that webhook.ui.server opens
        "webhook.cli.demo": ["create_server"],  # to find a free port, which `slicewarden serve` then opens
    }
    called = Counter(name for name, tree in trees.items() for node in ast.walk(tree) if _calls_the_one(node))
    assert called == Counter([*(door.opener for door in DOORS.values()), OF_A_USER])


@pytest.mark.parametrize(
    "source",
    [
        "import http.server",
        "from socketserver import TCPServer",
        "from wsgiref.simple_server import make_server",
        "socket.socket().bind(('', 1))",
        "peer.listen()",
        "await asyncio.start_server(answer, '', 1)",
        "await loop.create_server(Protocol)",
        "prometheus_client.start_http_server(1)",
    ],
)
def test_a_port_that_is_opened_is_found(source: str) -> None:
    assert [*listens(ast.parse(source))]


def test_every_port_of_the_manifests_is_a_door() -> None:
    named = {
        (item["metadata"]["name"], port["name"])
        for file in sorted(path for folder in (BASE, COMPONENTS) for path in folder.rglob("*.yaml"))
        for item in read(file)
        for container in item.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
        for port in container.get("ports", ())
    }
    assert named == {door.named for door in DOORS.values()}


# What each withstands


def asked(door: Open, path: str) -> int:
    """The status of an answer to an honest peer; 0 if there is none."""
    try:
        with door.connect() as peer:
            peer.sendall(b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path.encode())
            words = _until_closed(peer).split()
    except OSError:
        return 0
    return int(words[1]) if words else 0


def _until_closed(peer: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLError):
        while chunk := peer.recv(65536):
            data += chunk
    return data


def trickle(door: Open) -> None:
    """Send a header byte by byte until the other side ends the connection; an endless time where it never does."""
    with door.connect() as peer, contextlib.suppress(OSError):
        peer.settimeout(0.2)
        peer.sendall(b"GET / HTTP/1.1\r\nX: ")
        while True:
            peer.sendall(b"y")
            with contextlib.suppress(TimeoutError):
                if not peer.recv(1000):
                    return


def endless(door: Open) -> None:
    """Send headers without end, and let go only when that is refused or all of it is sent."""
    with contextlib.suppress(OSError), door.connect() as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(LINES):
            peer.sendall(LINE)
        _until_closed(peer)


def family(pid: int) -> list[int]:
    """A process and those below it."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in below for each in family(int(child)))]


def status(pid: int, key: str) -> int:
    """A number of the status of a process and of those below it: KiB of memory, or threads."""
    lines = (line for each in family(pid) for line in Path(f"/proc/{each}/status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def descriptors(pid: int) -> int:
    return sum(len([*Path(f"/proc/{each}/fd").iterdir()]) for each in family(pid))


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_slow_endless_and_many_peers_take_bounded_memory_and_keep_nobody_out(tmp_path: Path, door: Door) -> None:
    with door.open(tmp_path) as port, ExitStack() as peers:
        assert asked(port, door.path) == 200
        memory, threads, files = status(port.pid, "VmHWM"), status(port.pid, "Threads"), descriptors(port.pid)
        slow = threading.Thread(target=trickle, args=(port,), daemon=True)
        hostile = [threading.Thread(target=endless, args=(port,), daemon=True) for _ in range(ENDLESS)]
        for thread in (slow, *hostile):
            thread.start()
        for thread in hostile:
            thread.join(LONG)
            assert not thread.is_alive(), "a head without end is read to its end"
        assert asked(port, door.path) == 200
        slow.join(LONG)
        assert not slow.is_alive(), "a head that comes byte by byte is waited for"
        for _ in range(door.limits.connections + 40):  # silent ones
            peers.enter_context(socket.create_connection(port.address, LONG))
        assert asked(port, door.path) == 200
        if door.limits is OPEN:
            for _ in range(2 * door.limits.connections):  # such as have their answer, and neither read nor leave
                peer = peers.enter_context(port.connect())
                with contextlib.suppress(OSError):
                    peer.sendall(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % door.path.encode())
                    peer.recv(1)
            assert asked(port, door.path) == 200
        assert descriptors(port.pid) <= files + door.limits.connections
        assert status(port.pid, "Threads") <= threads + 4
        assert status(port.pid, "VmHWM") < memory + GROWTH + EACH * door.limits.connections
    for line in (tmp_path / "log").read_bytes().splitlines():
        assert json.loads(line)["message"]


def pipeline(door: Open, request: bytes, *, reading: bool) -> None:
    """Send MUCH of one request after another, until the other side ends the connection. Read answers, or none."""
    block = request * (65536 // len(request))
    with contextlib.suppress(OSError), door.connect() as peer:
        for _ in range(MUCH // len(block)):
            peer.sendall(block)
            if reading:
                peer.settimeout(0)
                with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                    if not peer.recv(65536):
                        return
                peer.settimeout(LONG)


def review_of(size: int) -> bytes:
    """A review with a blank body of so many bytes."""
    fields = b"Host: a\r\nContent-Type: application/json\r\nContent-Length: %d" % size
    return b"POST /validate HTTP/1.1\r\n%b\r\n\r\n%b" % (fields, b" " * size)


def head_of(size: int) -> bytes:
    """A request without a body whose headers have so many bytes."""
    lines = (b"X: %b\r\n" % (b"y" * min(2000, size - start)) for start in range(0, size, 2000))
    return b"GET /a HTTP/1.1\r\nHost: a\r\n%b\r\n" % b"".join(lines)


@pytest.mark.parametrize("reading", [True, False], ids=["reading", "silent"])
@pytest.mark.parametrize("size", [60, 1_000, 16_000])
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_requests_back_to_back_take_bounded_memory(tmp_path: Path, door: Door, size: int, *, reading: bool) -> None:
    """Each peer sends many requests and waits for no answer. Their memory must not grow with what they send."""
    with door.open(tmp_path) as port:
        assert asked(port, door.path) == 200
        memory = status(port.pid, "VmHWM")
        requests = [review_of(size), head_of(size)] * (PIPELINING // 2)
        peers = [
            threading.Thread(target=pipeline, args=(port, request), kwargs={"reading": reading}, daemon=True)
            for request in requests
        ]
        for peer in peers:
            peer.start()
        for peer in peers:
            peer.join(LONG)
            assert not peer.is_alive(), "a peer that sends on is neither read nor ended"
        assert asked(port, door.path) == 200
        assert status(port.pid, "VmHWM") < memory + GROWTH + EACH * PIPELINING


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process and those below it for a while. The kernel still takes what peers send to it."""
    each = family(pid)
    for one in each:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in each:
            os.kill(one, signal.SIGCONT)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_whole_requests_keep_no_probe_out(tmp_path: Path, door: Door) -> None:
    """Twice as many as an open port has connections have come before the probe, and as many after it."""
    scrape, probe = (b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"/metrics", b"/healthz"))
    flood = [scrape] * (2 * OPEN.connections)
    with door.open(tmp_path) as port, ExitStack() as peers:

        def connected() -> list[socket.socket]:
            return [peers.enter_context(port.connect()) for _ in range(2 * len(flood) + 1)]

        early = connected() if port.trust else []  # a handshake needs the process
        with stopped(port.pid):
            line = early or connected()
            for peer, request in zip(line, [*flood, probe, *flood], strict=True):
                peer.sendall(request)
        assert line[len(flood)].recv(12) == b"HTTP/1.1 200"
        assert asked(port, door.path) == 200


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [b"application/json", b"text/plain"], ids=["read", "refused"])
def test_bodies_that_are_never_whole_take_bounded_memory(tmp_path: Path, kind: bytes) -> None:
    """Each peer sends as much of a small request as a port takes, but for one byte; the next ones take their places."""
    head = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 600) for number in range(50))
    door = DOORS["reviews"]
    size = door.limits.small_bytes
    fields = b"Host: a\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b" % (kind, size, head)
    part = b"POST /validate HTTP/1.1\r\n%b\r\n" % fields
    with door.open(tmp_path) as port:
        assert asked(port, door.path) == 200
        memory = status(port.pid, "VmHWM")
        peers: deque[socket.socket] = deque()
        for _ in range(3 * door.limits.connections):
            peers.append(port.connect())
            with contextlib.suppress(OSError):
                peers[-1].sendall(part + b" " * (size - 1))
            if len(peers) > door.limits.connections:
                peers.popleft().close()  # the port has closed it long before
        assert asked(port, door.path) == 200
        assert status(port.pid, "VmHWM") < memory + GROWTH + EACH * door.limits.connections
        for peer in peers:
            peer.close()


@pytest.mark.thorough
def test_idle_peers_that_sent_a_body_each_take_bounded_memory(tmp_path: Path) -> None:
    """TLS keeps buffers of the size of a body while a connection is idle, so most of these have to end."""
    door = DOORS["reviews"]
    body = b" " * 60_000
    head = b"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with door.open(tmp_path) as port, ExitStack() as peers:
        assert asked(port, door.path) == 200
        memory, kept = status(port.pid, "VmHWM"), 0
        for _ in range(door.limits.connections):
            peer = peers.enter_context(port.connect())
            peer.sendall(head % len(body) + body)
            kept += b"\r\nConnection: close\r\n" not in peer.recv(65536)
        assert 0 < kept < door.limits.connections
        assert asked(port, door.path) == 200
        # A body that is kept has buffers of some times its size; all would take twice of this.
        assert status(port.pid, "VmHWM") < memory + GROWTH + 6 * door.limits.buffered_bytes // 1024
