"""Finds which layer uses the CPU of a review: compares servers that each do one more thing, on the same reviews."""

import asyncio
import functools
import importlib
import os
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import uvloop

from bench import payloads, processes, tables
from bench.decision import FACTS, POLICY, ROOT
from bench.generator import CannotRun
from bench.https import certificates
from bench.runs import Result, figure
from webhook.api import admission
from webhook.cli.inputs import load_engine
from webhook.engine.audit_mode import Judge
from webhook.facts.snapshot import Facts
from webhook.http.messages import Application, HttpRequest, Reply
from webhook.serving import tls
from webhook.serving.processes import settle
from webhook.telemetry.log import Lines, Log

if TYPE_CHECKING:
    from webhook.http.port import Port

LAYERS = {
    "socket": "wakes, reads and writes",
    "TLS": "decrypts and encrypts",
    "HTTP": "reads the head and the body, refuses what is no review, keeps limits and turns",
    "parse": "reads the AdmissionReview",
    "decision": "judges, and makes the patch",
    "answer": "keeps the deadline, and writes the AdmissionReview",
    "log": "writes a line",
    "metrics": "counts the outcome and the time",
}
"""What each server does in addition to the one before. The last is the whole worker, except its timers."""

CONNECTIONS = 8
WARM_UP = 4
"""Requests on each connection before anything is counted."""
ASKED = 10
"""Requests on each connection that are counted."""
ROUNDS = 25
OPENED = 20
"""Connections that are opened to measure the cost of one."""
PATIENCE = 600.0
"""Seconds that every step may take: under valgrind one is fifty times as slow."""
_HEAD = b"POST /mutate?timeout=10s HTTP/1.1\r\nHost: slicewarden\r\nUser-Agent: kube-apiserver-admission\r\n"
_ACCEPT = b"Accept: application/json, */*\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n"

Figures = dict[tuple[str, str], float]
"""By review and layer: the cost of a request with all layers up to this one. Layer "" is the cost of a connection."""


def run() -> Result:
    """Measure, and return the tables; instructions are left out without valgrind. Raises CannotRun without Linux."""
    if not (processes.PROC / "self" / "schedstat").exists():
        raise CannotRun("the profile reads /proc/PID/schedstat and so runs on Linux only")
    with tempfile.TemporaryDirectory(prefix="slicewarden-bench-") as name:
        folder = Path(name)
        certificates(folder)
        times = _figures(_program(folder, [sys.executable], "times"))
        counts = _counts(folder) if shutil.which("valgrind") else {}
    names = dict.fromkeys(payload for payload, _ in times)
    text = "\n\n".join(_table(payload, times, counts) for payload in names)
    figures = [
        figure(f"{payload}: {layer or 'a connection'}, with all before it", "µs", [cost])
        for (payload, layer), cost in times.items()
    ]
    return Result(text, figures)


def _program(folder: Path, python: list[str], mode: str) -> str:
    multiprocess = folder / mode
    multiprocess.mkdir()
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": str(ROOT),
        "PROMETHEUS_MULTIPROC_DIR": str(multiprocess),
    }
    command = [*python, "-m", "bench.layers", mode, str(folder)]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def _figures(written: str) -> Figures:
    rows = (line.split("\t") for line in written.splitlines())
    return {(payload, layer): float(figure) for payload, layer, figure in rows}


def _counts(folder: Path) -> Figures:
    """Return machine instructions.

    Half of the servers got fewer requests, so the difference is the cost of requests.
    """
    tool = ["valgrind", "--quiet", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/%p"]
    figures: Figures = {}
    for line in _program(folder, [*tool, sys.executable], "counts").splitlines():
        payload, layer, *pids, times = line.split("\t")
        before_more, more, before_fewer, fewer = (_total(folder / each) for each in pids)
        figures[payload, layer] = ((more - before_more) - (fewer - before_fewer)) / int(times)
    return figures


def _total(file: Path) -> int:
    return int(file.read_text("ascii").rpartition("summary:")[2].split()[0])


def _table(payload: str, times: Figures, counts: Figures) -> str:
    rows: list[tuple[str, ...]] = []
    for number, (layer, words) in enumerate(LAYERS.items()):
        before = list(LAYERS)[number - 1] if number else None
        rows.append(
            (f"{layer}: {words}", *_cells(payload, layer, before, times), *_cells(payload, layer, before, counts))
        )
    whole = list(LAYERS)[-1]
    rows.append(("a request", *_cells(payload, whole, None, times), *_cells(payload, whole, None, counts)))
    opened = (f"{each[payload, '']:,.0f}" if each else "" for each in (times, counts))
    rows.append(("a connection: accept and handshake", *(cell for figure in opened for cell in (figure, ""))))
    head = (payload, "CPU µs", "share", "instructions", "share")
    return tables.markdown(head, rows)


def _cells(payload: str, layer: str, before: str | None, figures: Figures) -> tuple[str, str]:
    if not figures:
        return "", ""
    own = figures[payload, layer] - (figures[payload, before] if before else 0)
    return f"{own:,.0f}", f"{own / figures[payload, list(LAYERS)[-1]]:.0%}"


# Runs in a separate process. The servers are forks of it, as workers are forks of `serve`.


@dataclass(frozen=True, slots=True)
class Scene:
    """The parts that all servers share. `log` is the descriptor of a pipe that is emptied."""

    engine: Judge
    facts: Facts
    context: ssl.SSLContext
    trust: ssl.SSLContext
    log: int


def main(mode: str, name: str) -> None:
    """Write a line for each review and layer: microseconds, or the processes in which instructions were counted."""
    folder = Path(name)
    importlib.import_module("webhook.serving.worker")  # imported only here, because its metrics need their folder first
    engine, facts = load_engine(str(POLICY), str(FACTS))
    context = tls.Certificates(tls.Files(folder / "tls.crt", folder / "tls.key"), _nothing).context
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    read, log = os.pipe()
    with subprocess.Popen(["cat"], stdin=read, stdout=subprocess.DEVNULL), os.fdopen(log, "wb"):
        os.close(read)
        scene = Scene(engine, facts, context, trust, log)
        settle()
        for payload in (payloads.small(), payloads.large(), payloads.plain()):
            for line in (_timed if mode == "times" else _counted)(scene, payload):
                print(payload.name, *line, sep="\t", flush=True)


def _timed(scene: Scene, payload: payloads.Payload) -> Iterator[tuple[object, ...]]:
    with ExitStack() as stack:
        servers = {layer: stack.enter_context(_serving(scene, layer, payload)) for layer in LAYERS}
        clients = {
            layer: stack.enter_context(_clients(scene, layer, payload, port)) for layer, (_, port) in servers.items()
        }
        spent: dict[str, list[float]] = {layer: [] for layer in LAYERS}
        for client in clients.values():
            client(WARM_UP)
        for _ in range(ROUNDS):
            for layer, (pid, _) in servers.items():
                before = _cpu(pid)
                clients[layer](ASKED)
                spent[layer].append((_cpu(pid) - before) / (ASKED * CONNECTIONS))
        yield from ((layer, statistics.median(each)) for layer, each in spent.items())
        whole = list(LAYERS)[-1]
        pid, port = servers[whole]
        opened = []
        for _ in range(ROUNDS):
            before = _cpu(pid)
            with _clients(scene, whole, payload, port, OPENED) as ask:
                ask(1)
                opened.append((_cpu(pid) - before) / OPENED - statistics.median(spent[whole]))
        yield "", statistics.median(opened)


def _counted(scene: Scene, payload: payloads.Payload) -> Iterator[tuple[object, ...]]:
    for layer in LAYERS:
        asked = ASKED * CONNECTIONS
        yield layer, *_once(scene, layer, payload, WARM_UP + ASKED), *_once(scene, layer, payload, WARM_UP), asked
    whole = list(LAYERS)[-1]
    yield "", *_once(scene, whole, payload, 0, OPENED), *_once(scene, whole, payload, 0, 0), OPENED


def _once(
    scene: Scene, layer: str, payload: payloads.Payload, times: int, connections: int = CONNECTIONS
) -> tuple[int, int]:
    """Send requests to a new server.

    Returns an idle process and the server's: the counts of both include their parent's work.
    """
    idle = os.fork()
    if idle == 0:
        os._exit(0)
    os.waitpid(idle, 0)
    with _serving(scene, layer, payload) as (pid, port), _clients(scene, layer, payload, port, connections) as ask:
        ask(times)
    return idle, pid


@contextmanager
def _serving(scene: Scene, layer: str, payload: payloads.Payload) -> Iterator[tuple[int, int]]:
    """Fork a server of one layer while the block runs; yields its process and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port: int = listener.getsockname()[1]
        pid = os.fork()
        if pid == 0:
            try:
                uvloop.run(_served(scene, layer, payload, listener))
                os._exit(0)
            except BaseException:  # the child must never return into its parent's code
                traceback.print_exc()
            finally:
                os._exit(1)
    try:
        yield pid, port
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


async def _served(scene: Scene, layer: str, payload: payloads.Payload, listener: socket.socket) -> None:
    from webhook.http import listening

    loop, end = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, end.set)
    answer = admission.encode(
        request := admission.decode(payload.body), scene.engine.mutate(request, scene.facts), scene.engine.policy.digest
    )
    if layer in ("socket", "TLS"):
        size, reply = len(_request(payload)), b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)
        more: dict[str, Any] = {"ssl": scene.context} if layer == "TLS" else {}
        await loop.create_server(functools.partial(_Bare, size, reply), sock=listener, **more)
        await end.wait()
        return
    accepting = loop.create_task(listening.accept(listener, _port(scene, layer, answer), lambda: scene.context))
    await end.wait()
    accepting.cancel()


def _port(scene: Scene, layer: str, answer: bytes) -> "Port":
    """Return the port of a worker whose application does what the layer says."""
    from webhook.http import limits, listening, port
    from webhook.serving import app
    from webhook.telemetry.metrics import Metrics

    def application(log: Log, metrics: Metrics | None = None) -> app.ReviewApplication:
        return app.ReviewApplication(scene.engine, lambda: scene.facts, log, metrics)

    def parse(body: bytes) -> None:
        admission.decode(body)

    def decide(body: bytes) -> None:
        scene.engine.mutate(admission.decode(body), scene.facts)

    silent = application(_nothing)
    patient = limits.ServerLimits(handshake=PATIENCE, head=PATIENCE, body=PATIENCE)
    acts: dict[str, Callable[[bytes], None]] = {"HTTP": _nothing, "parse": parse, "decision": decide}
    if layer in acts:
        return port.Port(_Fixed(silent, acts[layer], answer), patient, listening.Unwatched())
    if layer == "answer":
        return port.Port(silent, patient, listening.Unwatched())
    if layer == "log":
        return port.Port(application(Lines(scene.log)), patient, listening.Unwatched())
    metrics = Metrics()
    return port.Port(application(Lines(scene.log), metrics), patient, metrics)


def _nothing(_: object) -> None:
    """Do nothing."""


class _Fixed:
    """An application that processes the body in one way, and always gives the same answer."""

    def __init__(self, whole: Application, act: Callable[[bytes], None], answer: bytes) -> None:
        self.refusal, self.is_probe = whole.refusal, whole.is_probe
        self._act = act
        self._reply = Reply(HTTPStatus.OK, answer, (("Content-Type", "application/json"),))

    def __call__(self, request: HttpRequest) -> Reply:
        self._act(b"".join(request.body))
        return self._reply


class _Bare(asyncio.Protocol):
    """Answers whenever it has received as many bytes as a request has."""

    def __init__(self, size: int, reply: bytes) -> None:
        self._size, self._reply, self._left = size, reply, size

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left <= 0:
            self._left += self._size
            self._transport.write(self._reply)


@contextmanager
def _clients(
    scene: Scene, layer: str, payload: payloads.Payload, port: int, connections: int = CONNECTIONS
) -> Iterator[Callable[[int], None]]:
    """Connect while the block runs. Yields a function that sends a number of requests on all connections at once."""
    request = _request(payload)
    with ExitStack() as stack:
        opened: list[socket.socket] = []
        for _ in range(connections):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            secure = layer != "socket"
            opened.append(scene.trust.wrap_socket(plain, server_hostname="localhost") if secure else plain)

        def ask(times: int) -> None:
            for _ in range(times):
                for each in opened:
                    each.sendall(request)
                for each in opened:
                    _receive(each)

        yield ask


def _receive(connection: socket.socket) -> None:
    """Read one answer. Raises AssertionError unless it is an AdmissionReview that allows."""
    got = connection.recv(65536)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    while len(body) < length:
        body += connection.recv(65536)
    if not (head.startswith(b"HTTP/1.1 200") and b'"allowed":true' in body):
        raise AssertionError(got)


def _request(payload: payloads.Payload) -> bytes:
    """Return a request as an API server writes it."""
    return b"%b%bContent-Length: %d\r\n\r\n%b" % (_HEAD, _ACCEPT, len(payload.body), payload.body)


def _cpu(pid: int) -> float:
    """Return the microseconds of CPU, in user and system mode, that a process of one thread has used."""
    return int((processes.PROC / str(pid) / "schedstat").read_text("ascii").split()[0]) / 1000


if __name__ == "__main__":
    main(*sys.argv[1:])
