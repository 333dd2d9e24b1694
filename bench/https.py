"""Measures HTTPS on loopback as clients see it: Slicewarden, a minimal webhook in Go, and common webhooks."""

import base64
import http.client
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from bench import generator, payloads, peers, processes, tables
from bench.decision import FACTS, POLICY, ROOT
from bench.generator import WARM_UP, CannotRun, Report, Wrong
from bench.payloads import Payload
from bench.runs import Figure, Result, figure
from certs import issue_ca, issue_serving
from webhook.api import jsonpatch

OURS, YARDSTICK = "Slicewarden", "Go net/http"
OPEN_RATE, OPEN_CONNECTIONS = 200, 8
"""Reviews a second of the open loop, and how many may be under way at once."""
SERVE = [sys.executable, "-m", "webhook", "serve", "--policy", str(POLICY), "--facts", str(FACTS)]


@dataclass(frozen=True, slots=True)
class Server:
    """A server to measure: its port, its processes, and for each payload its patch in base64, as the server writes it.

    A patch of None is written differently each time, because Go's maps have no order.
    """

    name: str
    port: int
    process: subprocess.Popen[bytes]
    patches: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Load:
    """Reviews over several connections: one after the other on each, or at a fixed total rate per second."""

    payload: Payload
    connections: int
    rate: int = 0

    @property
    def words(self) -> str:
        """The load in words, for tables."""
        return f"{self.connections} at {self.rate}/s" if self.rate else str(self.connections)


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one measured round of one server."""

    rps: float
    p50: float
    p99: float
    cpu: float
    resident: float
    charged: float


@dataclass(frozen=True, slots=True)
class Bench:
    """The load generator and its files, which every round needs."""

    folder: Path
    rounds: int
    seconds: float

    def load(self, server: Server, load: Load, seconds: float) -> Report:
        """Load a server. Raises Wrong if any reply was not as expected."""
        slug = load.payload.name.replace(" ", "-")
        body, expect = self.folder / f"{slug}.json", self.folder / f"{slug}.{server.port}.patch"
        patch = server.patches[load.payload.name]
        body.write_bytes(load.payload.body)
        expect.write_text(patch or "")
        return generator.load(
            self.folder / "load",
            f"{server.name}, {load.payload.name}, connections: {load.words}",
            *("-url", f"https://127.0.0.1:{server.port}/mutate?timeout=10s"),
            *("-ca", str(self.folder / "ca.crt")),
            *("-body", str(body)),
            *(("-expect", str(expect)) if patch != "" else ()),
            *("-conns", str(load.connections)),
            *("-rate", str(load.rate)),
            *("-duration", f"{seconds}s"),
        )

    def round(self, server: Server, load: Load) -> Round:
        """Warm up, then measure once; at a fixed rate for twice as long, since fewer requests make a p99."""
        self.load(server, load, WARM_UP)
        pids = processes.tree(server.process.pid)
        before = processes.cpu(pids)
        report = self.load(server, load, self.seconds * (2 if load.rate else 1))
        used = processes.cpu(pids) - before
        return Round(
            rps=report.rps,
            p50=report.p50,
            p99=report.p99,
            cpu=used / report.requests,
            resident=processes.resident(pids),
            charged=processes.charged(pids),
        )


def run(rounds: int, seconds: float, given: Mapping[str, Path]) -> Result:
    """Measure every load. Raises CannotRun or Wrong.

    `given` are programs of peers by their folder; the others are built, or left out where they cannot be.
    """
    if not (processes.PROC / "self" / "stat").exists():
        raise CannotRun("the HTTPS benchmark reads /proc and so runs on Linux only")
    found, missing = peers.find(given)
    for line in missing:
        print(line, file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="slicewarden-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        for program in ("yardstick", "load"):
            generator.build(program, folder)
        certificates(folder)
        asked = (payloads.small(), payloads.large(), payloads.plain())
        ours, yardstick = (
            stack.enter_context(serving(name, command, folder, asked))
            for name, command in ((OURS, SERVE), (YARDSTICK, [str(folder / "yardstick")]))
        )
        for payload in asked:
            _agree(payload, ours.patches[payload.name] or "", yardstick.patches[payload.name] or "")
        servers = [ours, yardstick]
        for peer, path in found.items():
            servers.append(stack.enter_context(serving(peer, [str(path)], folder, asked)))
        bench = Bench(folder, rounds, seconds)
        loads = [Load(payload, connections) for payload in asked for connections in (1, 8, 32)]
        measured = {}
        for load in (*loads, Load(asked[0], OPEN_CONNECTIONS, OPEN_RATE)):
            print(f"{load.payload.name}, connections: {load.words}", file=sys.stderr)
            measured[load] = measure(bench, servers, load)
    ratios = [_ratios(measured, server.name) for server in servers[1:]]
    figures = [each for load, by_round in measured.items() for each in _kept(load, by_round)]
    return Result("\n\n".join([_figures(measured), *ratios, *missing]), figures)


def certificates(folder: Path) -> None:
    """Write a CA certificate (ca.crt), and a certificate of that CA for loopback (tls.crt, tls.key)."""
    now = datetime.now(UTC)
    ca = issue_ca("slicewarden-bench", now)
    pair = issue_serving(ca, ["localhost"], ["127.0.0.1"], now)
    (folder / "ca.crt").write_bytes(ca.certificate_pem)
    (folder / "tls.crt").write_bytes(pair.certificate_pem)
    (folder / "tls.key").touch(mode=0o600)
    (folder / "tls.key").write_bytes(pair.key_pem)


@contextmanager
def serving(name: str, command: list[str], folder: Path, asked: tuple[Payload, ...]) -> Iterator[Server]:
    """Start a server with the certificates of `folder`, wait until it answers, and ask it for every patch once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    tls = ["--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")]
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    errors = folder / f"{port}.stderr"
    with (
        errors.open("wb") as stderr,
        processes.running([*command, *tls, "--listen", f"127.0.0.1:{port}"], ROOT, stderr) as process,
    ):
        end = time.monotonic() + 30
        while True:
            try:
                patches = {payload.name: _asked(port, trust, payload) for payload in asked}
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > end:
                    said = errors.read_text("utf-8", "replace").strip()
                    raise Wrong(f"{name} does not serve: {said or error}") from error
                time.sleep(0.1)
        yield Server(name, port, process, patches)


def _asked(port: int, trust: ssl.SSLContext, payload: Payload) -> str | None:
    """Return the patch that a server writes for a payload; None if it varies."""
    first, *others = (_ask(port, trust, payload) for _ in range(5))
    return first if set(others) == {first} else None


def _ask(port: int, trust: ssl.SSLContext, payload: Payload) -> str:
    """Send one review and return the patch as it was written, in base64; empty for none."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trust)
    try:
        connection.request("POST", "/mutate", payload.body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        body = reply.read()
    finally:
        connection.close()
    if reply.status != http.HTTPStatus.OK:
        raise Wrong(f"status {reply.status} for {payload.name}: {body[:200]!r}")
    response: dict[str, Any] = orjson.loads(body)["response"]
    if response["uid"] != orjson.loads(payload.body)["request"]["uid"] or response["allowed"] is not True:
        raise Wrong(f"{payload.name}: {response}")
    written: str = response.get("patch", "")
    return written


def patched(pod: dict[str, Any], written: str) -> Any:
    """Return the pod after a patch in base64 has been applied. Without a patch it is unchanged."""
    return jsonpatch.apply(pod, orjson.loads(base64.b64decode(written)) if written else ())


def _agree(payload: Payload, ours: str, yardstick: str) -> None:
    """Both servers must do the same work: their patches lead to the same pod."""
    pod = orjson.loads(payload.body)["request"]["object"]
    results = [patched(pod, written) for written in (ours, yardstick)]
    if results[0] != results[1] or payload.gpu != bool(ours) or bool(ours) != bool(yardstick):
        decoded = [base64.b64decode(written).decode() for written in (ours, yardstick)]
        raise Wrong(f"{payload.name}: the patches differ\n{OURS}: {decoded[0]}\n{YARDSTICK}: {decoded[1]}")


Measured = dict[Load, list[dict[str, Round]]]


def measure(bench: Bench, servers: Sequence[Server], load: Load) -> list[dict[str, Round]]:
    """Measure all servers alternately. Another server is the first in each round."""
    rounds = []
    for number in range(bench.rounds):
        first = number % len(servers)
        rounds.append({each.name: bench.round(each, load) for each in (*servers[first:], *servers[:first])})
    return rounds


RATIOS = {"reviews a second": "rps", "p99": "p99", "CPU a request": "cpu"}


def _kept(load: Load, by_round: list[dict[str, Round]]) -> Iterator[Figure]:
    """Return our own figures, and their ratios to each other server's."""
    name = f"{load.payload.name}, {load.words} connections" if not load.rate else f"{load.payload.name}, {load.rate}/s"
    ours = [each[OURS] for each in by_round]
    yield figure(f"{name}: reviews a second", "1/s", [each.rps for each in ours])
    yield figure(f"{name}: p99", "ms", [each.p99 for each in ours])
    yield figure(f"{name}: CPU a request", "µs", [each.cpu for each in ours])
    yield figure(f"{name}: memory", "MiB", [each.charged for each in ours])
    for other in by_round[0]:
        if other != OURS:
            for words, field in RATIOS.items():
                values = [getattr(each[OURS], field) / getattr(each[other], field) for each in by_round]
                yield figure(f"{name}: {words}, to {other}", "×", values)


def _figures(measured: Measured) -> str:
    head = ("review", "connections", "server", "rps (min-max)", "p50 ms", "p99 ms (min-max)")
    rows = []
    for load, by_round in measured.items():
        for name in (OURS, *(each for each in by_round[0] if each != OURS)):
            rounds = [each[name] for each in by_round]
            rows.append(
                (
                    load.payload.name,
                    load.words,
                    name,
                    tables.spread([r.rps for r in rounds], ",.0f"),
                    f"{statistics.median(r.p50 for r in rounds):.2f}",
                    tables.spread([r.p99 for r in rounds], ".2f"),
                    f"{statistics.median(r.cpu for r in rounds):.0f}",
                    f"{statistics.median(r.resident for r in rounds):.0f}",
                    f"{statistics.median(r.charged for r in rounds):.0f}",
                )
            )
    return tables.markdown((*head, "CPU µs a request", "RSS MiB", "PSS MiB"), rows)


def _ratios(measured: Measured, other: str) -> str:
    """Return the ratios of ours to another server's in each round, in which they were measured in direct sequence."""
    names = ("rps", "p50", "p99", "cpu", "charged")
    rows = []
    for load, by_round in measured.items():
        pairs = [(each[OURS], each[other]) for each in by_round]
        ratios = ([getattr(a, name) / getattr(b, name) for a, b in pairs] for name in names)
        rows.append((load.payload.name, load.words, *(tables.spread(each, ".2f") for each in ratios)))
    head = ("review", "connections", "rps", "p50", "p99", "CPU a request", "PSS")
    return f"{OURS} to {other}, ratio round by round, median (min-max):\n\n{tables.markdown(head, rows)}"
