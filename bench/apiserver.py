"""Measures the cost of a pod's creation at a real API server: without a webhook, with ours, or with a minimal one.

The minimal webhook is written in Go.
"""

import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

import certs
from bench import generator, payloads, processes, tables
from bench.decision import ROOT
from bench.generator import WARM_UP, CannotRun, Wrong
from bench.https import OURS, SERVE, YARDSTICK, Server, certificates, patched, serving
from bench.payloads import Payload
from bench.runs import Figure, Result, figure
from tests.e2e import binaries, control_plane, pki
from tests.e2e.control_plane import Cluster

NONE = "none"
OVERLAY = ROOT / "manifests" / "overlays" / "file"
REGISTRATION = ("mutatingwebhookconfigurations/slicewarden", "validatingwebhookconfigurations/slicewarden")
NAMESPACE = "vision"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CALLS = re.compile(
    r'^apiserver_admission_webhook_admission_duration_seconds_(count|sum)\{name="([^"]+)",.*\} (\S+)$',
    re.MULTILINE,
)
"""The API server's metric with the number and the seconds of calls of each webhook.

kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/admission/metrics/metrics.go
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Pods of one kind, created over a number of connections at once."""

    payload: Payload
    connections: int

    @property
    def webhooks(self) -> tuple[str, ...]:
        """The webhooks to measure with.

        A pod without a GPU causes no call, so it is not measured with the minimal webhook.
        """
        return (NONE, OURS, YARDSTICK) if self.payload.gpu else (NONE, OURS)


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one measured round.

    Latencies are in milliseconds; `calls` is the API server's time in webhooks per pod, also in ms.

    CPU time of the API server and of the webhook is in microseconds per pod.
    """

    rps: float
    p50: float
    p99: float
    calls: float
    api_server: float
    webhook: float


@dataclass(frozen=True, slots=True)
class Bench:
    """The programs and settings that every round needs."""

    folder: Path
    cluster: Cluster
    trusted: list[str]
    servers: dict[str, Server]
    registrations: dict[str, list[dict[str, Any]]]
    seconds: float

    def round(self, load: Load, webhook: str) -> Round:
        """Measure once with one webhook or none: register it, warm up, create pods, delete them."""
        self.register(webhook)
        calls, took = self.calls()
        pods = self.create(load, webhook, WARM_UP).requests
        server = self.servers.get(webhook)
        ours = processes.tree(server.process.pid) if server else []
        api_server = [each.process.pid for each in self.cluster.components if each.name == "kube-apiserver"]
        before = [processes.cpu(pids) for pids in (api_server, ours)]
        report = self.create(load, webhook, self.seconds)
        used = [processes.cpu(pids) - start for pids, start in zip((api_server, ours), before, strict=True)]
        pods += report.requests
        calls, took = (now - start for now, start in zip(self.calls(), (calls, took), strict=True))
        if calls != (2 * pods if server and load.payload.gpu else 0):
            raise Wrong(f"{webhook}, {load.payload.name}: {calls:.0f} calls to the webhook for {pods} pods")
        self.cluster.do("delete", f"--raw={PODS}")
        return Round(
            rps=report.rps,
            p50=report.p50,
            p99=report.p99,
            calls=1000 * took / pods,
            api_server=used[0] / report.requests,
            webhook=used[1] / report.requests,
        )

    def create(self, load: Load, webhook: str, seconds: float) -> generator.Report:
        """Create pods. Raises Wrong if any pod comes back different from the expected one."""
        slug = load.payload.name.replace(" ", "-")
        body, expect = self.folder / f"{slug}.pod", self.folder / f"{slug}.{webhook}.selector".replace("/", "-")
        pod = sent(load.payload)
        body.write_bytes(orjson.dumps(pod))
        server = self.servers.get(webhook)
        steered = patched(pod, server.patches[load.payload.name] or "")["spec"].get("nodeSelector") if server else None
        expect.write_bytes(orjson.dumps(steered, option=orjson.OPT_SORT_KEYS))
        return generator.load(
            self.folder / "load",
            f"{webhook}, {load.payload.name}, {load.connections} connections",
            *("-url", self.cluster.url + PODS),
            *self.trusted,
            *("-body", str(body)),
            *(("-expect", str(expect)) if steered else ()),
            *("-conns", str(load.connections)),
            *("-duration", f"{seconds}s"),
        )

    def register(self, webhook: str) -> None:
        """Register a webhook in place of any other, and wait until the API server uses it."""
        self.cluster.do("delete", "--ignore-not-found", *REGISTRATION)
        self.cluster.wait_until("no webhook is called", lambda: self.probe() == 0)
        if webhook in self.registrations:
            applied = self.cluster.apply(*self.registrations[webhook])
            if applied.returncode:
                raise Wrong(applied.stderr.strip())
            self.cluster.wait_until("both webhooks are called", lambda: self.probe() == 2)

    def probe(self) -> float:
        """Return how many webhooks are called for a dry run of a GPU pod."""
        before, _ = self.calls()
        pod = orjson.dumps(sent(payloads.small())).decode()
        self.cluster.do("create", "--dry-run=server", "--filename=-", stdin=pod)
        after, _ = self.calls()
        return after - before

    def calls(self) -> tuple[float, float]:
        """Return how many webhooks the API server has called so far, and how many seconds the calls took."""
        return called(self.cluster, lambda name: name.endswith(".slicewarden.dev"))


def called(cluster: Cluster, chosen: Callable[[str], bool]) -> tuple[float, float]:
    """Return how often the API server has called webhooks with these names, and how many seconds the calls took."""
    found = CALLS.findall(cluster.do("get", "--raw=/metrics"))
    count, total = (
        sum(float(value) for what, name, value in found if what == each and chosen(name)) for each in ("count", "sum")
    )
    return count, total


def run(rounds: int, seconds: float) -> Result:
    """Measure every load. Raises CannotRun or Wrong."""
    if not (processes.PROC / "self" / "stat").exists():
        raise CannotRun("the API server's benchmark reads /proc and so runs on Linux only")
    try:
        programs = binaries.find()
    except binaries.Missing as missing:
        raise CannotRun(str(missing)) from missing
    plain, gpu = payloads.plain(), payloads.small()
    loads = [Load(payload, connections) for payload in (gpu, plain) for connections in (1, 8)]
    measured: Measured = {load: [] for load in loads}
    try:
        with _bench(programs, seconds) as bench:
            for load in loads:
                print(f"{load.payload.name}, {load.connections} connections", file=sys.stderr)
                for number in range(rounds):
                    order = load.webhooks if number % 2 == 0 else load.webhooks[::-1]
                    measured[load].append({webhook: bench.round(load, webhook) for webhook in order})
    except control_plane.Failed as failed:
        raise Wrong(str(failed)) from failed
    return Result(f"{_figures(measured)}\n\n{_ratios(measured)}", [*_kept(measured)])


def sent(payload: Payload) -> dict[str, Any]:
    """Return a payload's pod as a ReplicaSet's controller sends it, without fields that the API server writes."""
    pod: dict[str, Any] = orjson.loads(payload.body)["request"]["object"]
    del pod["metadata"]["managedFields"]
    return pod


def client(cluster: Cluster, folder: Path) -> list[str]:
    """Write an administrator's certificate for the load generator, and return its flags."""
    assert cluster.authority is not None  # noqa: S101 - one of our own has it
    pair = pki.client_pair(cluster.authority, "bench", ("system:masters",))
    for file, pem in {"client.crt": pair.certificate_pem, "client.key": pair.key_pem}.items():
        (folder / file).touch(mode=0o600)
        (folder / file).write_bytes(pem)
    files = {"-ca": cluster.folder / "ca.crt", "-cert": folder / "client.crt", "-key": folder / "client.key"}
    return [part for flag, file in files.items() for part in (flag, str(file))]


@contextmanager
def _bench(programs: Path, seconds: float) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="slicewarden-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        for program in ("yardstick", "load"):
            generator.build(program, folder)
        certificates(folder)
        cluster = stack.enter_context(control_plane.serving(folder, programs))
        trusted = client(cluster, folder)
        cluster.do("create", "namespace", NAMESPACE)
        cluster.do("create", "serviceaccount", "default", f"--namespace={NAMESPACE}")
        commands = {OURS: SERVE, YARDSTICK: [str(folder / "yardstick")]}
        asked = (payloads.small(), payloads.plain())
        servers = {each: stack.enter_context(serving(each, commands[each], folder, asked)) for each in commands}
        bundle = certs.ca_bundle((folder / "ca.crt").read_bytes())
        built = cluster.do("kustomize", str(OVERLAY))
        registrations = {each: _registration(built, server.port, bundle) for each, server in servers.items()}
        yield Bench(folder, cluster, trusted, servers, registrations, seconds)


def _registration(built: str, port: int, bundle: str) -> list[dict[str, Any]]:
    """Return the project's own registration, for a webhook on loopback instead of one behind a Service."""
    found = [each for each in yaml.safe_load_all(built) if each["kind"].endswith("WebhookConfiguration")]
    for hook in (hook for each in found for hook in each["webhooks"]):
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return found


Measured = dict[Load, list[dict[str, Round]]]


def _kept(measured: Measured) -> Iterator[Figure]:
    """Return the figures as ratios with and without each webhook, within each repeat."""
    for load, repeats in measured.items():
        for webhook in load.webhooks:
            name = f"{load.payload.name}, {load.connections} connections, {webhook}"
            yield figure(f"{name}: p99", "ms", [each[webhook].p99 for each in repeats])
            if webhook != NONE:
                for each in ("p50", "p99"):
                    values = [getattr(repeat[webhook], each) / getattr(repeat[NONE], each) for repeat in repeats]
                    yield figure(f"{name}: {each}, to none", "×", values)


def _figures(measured: Measured) -> str:
    head = ("pod", "connections", "webhook", "pods a second (min-max)", "p50 ms", "p99 ms (min-max)")
    rows = []
    for load, repeats in measured.items():
        for webhook in load.webhooks:
            rounds = [repeat[webhook] for repeat in repeats]
            rows.append(
                (
                    load.payload.name,
                    str(load.connections),
                    webhook,
                    tables.spread([r.rps for r in rounds], ",.0f"),
                    f"{statistics.median(r.p50 for r in rounds):.2f}",
                    tables.spread([r.p99 for r in rounds], ".2f"),
                    f"{statistics.median(r.calls for r in rounds):.2f}",
                    f"{statistics.median(r.api_server for r in rounds):.0f}",
                    f"{statistics.median(r.webhook for r in rounds):.0f}",
                )
            )
    return tables.markdown((*head, "in calls ms", "CPU µs a pod: API server", "webhook"), rows)


def _ratios(measured: Measured) -> str:
    """Return the ratios with and without a webhook, within each repeat, whose rounds follow each other directly."""
    names = ("rps", "p50", "p99", "api_server")
    rows = [
        (
            load.payload.name,
            str(load.connections),
            webhook,
            *(
                tables.spread([getattr(each[webhook], name) / getattr(each[NONE], name) for each in repeats], ".2f")
                for name in names
            ),
        )
        for load, repeats in measured.items()
        for webhook in load.webhooks
        if webhook != NONE
    ]
    head = ("pod", "connections", "webhook", "pods a second", "p50", "p99", "CPU of the API server")
    return f"With a webhook to without, ratio repeat by repeat, median (min-max):\n\n{tables.markdown(head, rows)}"
