"""What clients see over HTTPS: Slicewarden beside a minimal webhook in Go, on loopback."""

import base64
import http.client
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from bench import generator, payloads, processes, tables
from bench.decision import FACTS, POLICY, ROOT
from bench.generator import WARM_UP, CannotRun, Report, Wrong
from bench.payloads import Payload
from certs import issue_ca, issue_serving
from webhook import patch

OURS, YARDSTICK = "Slicewarden", "Go net/http"
SERVE = [sys.executable, "-m", "webhook", "serve", "--policy", str(POLICY), "--facts", str(FACTS)]


@dataclass(frozen=True, slots=True)
class Server:
    """A server under test: its URL, its processes, and the patch of each payload as it writes it, in base64."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    patches: dict[str, str]


@dataclass(frozen=True, slots=True)
class Round:
    """One measured round of one server."""

    rps: float
    p50: float
    p99: float
    cpu: float
    resident: float
    charged: float


@dataclass(frozen=True, slots=True)
class Bench:
    """What every round needs: the load generator and where its files are."""

    folder: Path
    rounds: int
    seconds: float

    def load(self, server: Server, payload: Payload, connections: int, seconds: float) -> Report:
        """Load a server; raises Wrong if a single reply was not as expected."""
        slug = payload.name.replace(" ", "-")
        body, expect = self.folder / f"{slug}.json", self.folder / f"{slug}.{server.port}.patch"
        body.write_bytes(payload.body)
        expect.write_text(server.patches[payload.name])
        return generator.load(
            self.folder / "load",
            f"{server.name}, {payload.name}, {connections} connections",
            *("-url", f"https://127.0.0.1:{server.port}/mutate?timeout=10s"),
            *("-ca", str(self.folder / "ca.crt")),
            *("-body", str(body)),
            *(("-expect", str(expect)) if server.patches[payload.name] else ()),
            *("-conns", str(connections)),
            *("-duration", f"{seconds}s"),
        )

    def round(self, server: Server, payload: Payload, connections: int) -> Round:
        """Warm up, then measure once."""
        self.load(server, payload, connections, WARM_UP)
        pids = processes.tree(server.process.pid)
        before = processes.cpu(pids)
        report = self.load(server, payload, connections, self.seconds)
        used = processes.cpu(pids) - before
        return Round(
            rps=report.rps,
            p50=report.p50,
            p99=report.p99,
            cpu=used / report.requests,
            resident=processes.resident(pids),
            charged=processes.charged(pids),
        )


def run(rounds: int, seconds: float) -> str:
    """Measure every load and return the tables. Raises CannotRun or Wrong."""
    if not (processes.PROC / "self" / "stat").exists():
        raise CannotRun("the HTTPS benchmark reads /proc and so runs on Linux only")
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
            _agree(payload, ours.patches[payload.name], yardstick.patches[payload.name])
        bench = Bench(folder, rounds, seconds)
        small, large, plain = asked
        loads = [(payload, connections) for payload in (small, large) for connections in (1, 8, 32)]
        measured = {}
        for load in (*loads, (plain, 8)):
            print(f"{load[0].name}, {load[1]} connections", file=sys.stderr)
            measured[load] = _measure(bench, (ours, yardstick), *load)
    return _figures(measured) + "\n\n" + _ratios(measured)


def certificates(folder: Path) -> None:
    """Write an authority (ca.crt), and a certificate of it for loopback (tls.crt, tls.key)."""
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
                patches = {payload.name: _ask(port, trust, payload) for payload in asked}
                break
            except OSError as error:
                if process.poll() is not None or time.monotonic() > end:
                    said = errors.read_text("utf-8", "replace").strip()
                    raise Wrong(f"{name} does not serve: {said or error}") from error
                time.sleep(0.1)
        yield Server(name, port, process, patches)


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
    """The pod as a patch in base64 leaves it; without one as it is."""
    return patch.apply(pod, orjson.loads(base64.b64decode(written)) if written else ())


def _agree(payload: Payload, ours: str, yardstick: str) -> None:
    """Both servers must do the same work: their patches lead to the same pod."""
    pod = orjson.loads(payload.body)["request"]["object"]
    results = [patched(pod, written) for written in (ours, yardstick)]
    if results[0] != results[1] or payload.gpu != bool(ours) or bool(ours) != bool(yardstick):
        decoded = [base64.b64decode(written).decode() for written in (ours, yardstick)]
        raise Wrong(f"{payload.name}: the patches differ\n{OURS}: {decoded[0]}\n{YARDSTICK}: {decoded[1]}")


def _measure(
    bench: Bench, servers: tuple[Server, Server], payload: Payload, connections: int
) -> list[tuple[Round, Round]]:
    """Measure both servers in turns; who goes first changes from round to round."""
    pairs = []
    for number in range(bench.rounds):
        if number % 2 == 0:
            ours, yardstick = (bench.round(server, payload, connections) for server in servers)
        else:
            yardstick, ours = (bench.round(server, payload, connections) for server in reversed(servers))
        pairs.append((ours, yardstick))
    return pairs


Measured = dict[tuple[Payload, int], list[tuple[Round, Round]]]


def _figures(measured: Measured) -> str:
    head = ("review", "connections", "server", "rps (min-max)", "p50 ms", "p99 ms (min-max)")
    rows = []
    for (payload, connections), pairs in measured.items():
        for index, name in enumerate((OURS, YARDSTICK)):
            rounds = [pair[index] for pair in pairs]
            rows.append(
                (
                    payload.name,
                    str(connections),
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


def _ratios(measured: Measured) -> str:
    """Ours to the yardstick's, pair by pair: the two of a pair were measured one right after the other."""
    names = ("rps", "p50", "p99", "cpu")
    rows = [
        (
            payload.name,
            str(connections),
            *(tables.spread([getattr(a, name) / getattr(b, name) for a, b in pairs], ".2f") for name in names),
        )
        for (payload, connections), pairs in measured.items()
    ]
    head = ("review", "connections", "rps", "p50", "p99", "CPU a request")
    return f"{OURS} to {YARDSTICK}, ratio pair by pair, median (min-max):\n\n{tables.markdown(head, rows)}"
