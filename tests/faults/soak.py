"""`python -m tests.faults.soak`: half of what saturates the webhook, for a long time, in a cluster that never rests."""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench import generator, payloads, processes
from tests.faults import apiserver
from tests.faults.replicas import Replica, Secret, replica
from tests.support.objects import Object

NUMBER = "#" * 12
"""What the load generator replaces by a request's number, so that no two requests are the same."""

NODES = 200
"""Nodes beside those of the sample, of which one changes every second; as many namespaces."""

GROWTH = 0.02
"""The part by which memory may grow once it is warm."""

SAMPLE = 5.0
"""Seconds between samples of memory."""


class Mixed(NamedTuple):
    """A kind of review: the path it is sent to, and its share of the connections."""

    payload: payloads.Payload
    path: str
    connections: int


MIX = (
    Mixed(payloads.small(), "/mutate", 16),
    Mixed(payloads.plain(), "/validate", 12),
    Mixed(payloads.large(), "/mutate", 4),
)


@dataclass
class Soak:
    """A run: the webhook, the generator, and its files."""

    folder: Path
    program: Path
    webhook: Replica
    secret: Secret

    def load(self, seconds: float, rates: tuple[float, ...]) -> list[dict[str, Any]]:
        """Send each kind of review at its rate, 0 for as fast as they come; what the generator says of each."""
        running = [
            subprocess.Popen(self._command(mixed, seconds, rate), stdout=subprocess.PIPE)
            for mixed, rate in zip(MIX, rates, strict=True)
        ]
        try:
            return [json.loads(each.communicate(timeout=seconds + 60)[0]) for each in running]
        finally:
            for each in running:
                each.kill()
                each.wait()

    def _command(self, mixed: Mixed, seconds: float, rate: float) -> list[str]:
        slug = mixed.payload.name.replace(" ", "-")
        body, expect = self.folder / f"{slug}.json", self.folder / f"{slug}.patch"
        text = mixed.payload.body.decode("utf-8")
        text = text.replace("6f1f1c0f7a11", NUMBER).replace("6d5f7c9b8d", NUMBER).replace(":2.3.1", f":2.3.1-{NUMBER}")
        body.write_text(text, "utf-8")
        if mixed.payload.gpu and not expect.exists():
            answer = self.webhook.review(self.secret, mixed.path, text.replace(NUMBER, "0" * 12).encode())
            expect.write_text(answer["response"]["patch"], "utf-8")
        return [
            *(str(self.program), "-url", f"https://127.0.0.1:{self.webhook.port}{mixed.path}?timeout=10s"),
            *("-ca", str(self.secret.authority), "-body", str(body), "-number", NUMBER),
            *(("-expect", str(expect)) if mixed.payload.gpu else ()),
            *("-conns", str(mixed.connections), "-duration", f"{seconds}s", "-rate", str(rate)),
        ]


def main() -> int:
    """Soak it. Exit status: 0, 1 a review failed or memory grew, 2 something is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("minutes", type=float, help="how long to load it, once saturation is known")
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="slicewarden-soak-") as name:
        folder = Path(name)
        try:
            program = generator.build("load", folder)
        except generator.CannotRun as error:
            print(error, file=sys.stderr)
            return 2
        secret = Secret(folder / "tls")
        with apiserver.serving(cluster()) as server:
            live = ("--live", "--kubeconfig", server.kubeconfig(folder))
            with replica(secret, *live, facts=None) as webhook:
                return run(Soak(folder, program, webhook, secret), server, minutes * 60)


def run(soak: Soak, server: apiserver.ApiServer, seconds: float) -> int:
    """Find saturation, load half of it, and say what became of it."""
    full = [report["rps"] for report in max((soak.load(5, (0.0,) * len(MIX)) for _ in range(3)), key=_total)]
    rates = tuple(rps / 2 for rps in full)
    print(f"saturation: {sum(full):,.0f} reviews/s; {sum(rates):,.0f}/s for {seconds / 60:.0f} min", flush=True)
    with restless(server), callers(soak) as others, sampled(soak.webhook) as samples:
        reports = soak.load(seconds, rates)
    for mixed, report in zip(MIX, reports, strict=True):
        kind = f"{mixed.payload.name}, {mixed.path}"
        print(
            f"{kind}: {report['requests']:,} reviews, {report['failures']} failed {report.get('failure', '')}; "
            f"p50 {report['p50_ms']:.1f} ms, p99 {report['p99_ms']:.1f} ms, slowest {report['max_ms']:.0f} ms"
        )
    print(f"fresh connections: {others['asked']:,}, {others['failed']} failed; {others['rotated']} certificates")
    warm = samples[len(samples) // 5 :]  # caches fill, and what forks shared is written to
    tenth = max(1, len(warm) // 10)
    before, after = (statistics.median(part) for part in (warm[:tenth], warm[-tenth:]))
    growth = after / before - 1
    shown = ", ".join(f"{samples[len(samples) * part // 10]:.1f}" for part in range(10))
    print(f"memory: {before:.1f} MiB once warm, {after:.1f} MiB in the end: {growth:+.2%}; by tenths: {shown}")
    print(f"charged to a container: {soak.webhook.memory():.0f} MiB")
    failed = sum(report["failures"] for report in reports) + others["failed"]
    return 1 if failed or growth > GROWTH else 0


def _total(reports: list[dict[str, Any]]) -> float:
    return sum(float(report["rps"]) for report in reports)


def cluster() -> list[Object]:
    """The sample's objects, and many more nodes and namespaces."""
    return [
        *apiserver.sample(),
        *(_node(number, 0) for number in range(NODES)),
        *(_namespace(number) for number in range(NODES)),
    ]


def _node(number: int, turn: int) -> Object:
    labels = {"kubernetes.io/hostname": f"node-{number}", "example.com/turn": str(turn)}
    metadata = {"name": f"node-{number}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": {}}


def _namespace(number: int) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number}", "labels": {}}}


@contextmanager
def restless(server: apiserver.ApiServer) -> Iterator[None]:
    """Change a node every second, replace a namespace every ten, and drop all watches once a minute."""

    def change(turn: int) -> None:
        server.put(_node(turn % NODES, turn))
        if turn % 10 == 9:
            server.remove("Namespace", f"team-{turn // 10}")
            server.put(_namespace(turn // 10 + NODES))
        if turn % 60 == 59:
            server.drop()

    with _every(1.0, change):
        yield


@contextmanager
def callers(soak: Soak) -> Iterator[dict[str, int]]:
    """Connect anew every second, ask for health and metrics every five, and rotate the certificate every minute."""
    counts = {"asked": 0, "failed": 0, "rotated": 0}
    body = payloads.plain().body

    def call(turn: int) -> None:
        counts["asked"] += 1
        try:
            assert soak.webhook.review(soak.secret, "/validate", body)["response"]["allowed"] is True
            if turn % 5 == 0:
                assert soak.webhook.asked("/readyz")[0] == soak.webhook.asked("/metrics")[0] == 200
        except (OSError, AssertionError, KeyError) as error:
            print(f"a fresh connection: {error!r}", file=sys.stderr, flush=True)
            counts["failed"] += 1
        if turn % 60 == 59:
            soak.secret.rotate()
            counts["rotated"] += 1

    with _every(1.0, call):
        yield counts


@contextmanager
def sampled(webhook: Replica) -> Iterator[list[float]]:
    """MiB of memory of its own, now and then: what files have in it, others of this machine share and change."""
    found: list[float] = []
    pids = processes.tree(webhook.process.pid)

    def sample(_: int) -> None:
        with suppress(OSError):
            found.append(sum(_anonymous(pid) for pid in pids))

    with _every(SAMPLE, sample):
        yield found


def _anonymous(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:")) / 1024


@contextmanager
def _every(seconds: float, act: Callable[[int], None]) -> Iterator[None]:
    end = threading.Event()

    def work() -> None:
        start = time.monotonic()
        for turn in itertools.count():
            act(turn)
            if end.wait(max(0.0, start + (turn + 1) * seconds - time.monotonic())):
                return

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
