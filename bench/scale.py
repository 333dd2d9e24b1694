"""Measures the cost of a large cluster's facts for one worker, and simulates how many replicas a restart needs.

An API server of our own lists and watches nodes and pods, made from those that a real one sent (tests/recorded). A
worker in a process of its own follows it as `serve --live` does. `bench/fleet.py` simulates the calls.
"""

import itertools
import json
import math
import queue
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson
import yaml
from kubernetes import client

from bench import decision, generator, https, payloads, processes, tables
from bench.decision import FACTS, POLICY, ROOT
from bench.fleet import CALLS, Fleet, Played, play
from bench.generator import Wrong
from bench.runs import Figure, Result, figure
from tests.support.listening import Asked, listening
from webhook import rules
from webhook.api import admission
from webhook.cli.inputs import load_engine, load_policy
from webhook.cluster.watch import Cluster
from webhook.engine.engine import Engine
from webhook.facts.kind import Fact
from webhook.facts.snapshot import Facts, gathered, joined
from webhook.model import Object
from webhook.serving.processes import settle
from webhook.serving.worker import SWITCH

SIZES = (1_500, 15_000)
"""Nodes. Kubernetes supports 5,000 nodes and 150,000 pods (kubernetes.io, Considerations for large clusters)."""

HOSTILE = 700
"""MiB of a replica's limit that tenants' objects and peers may take (tests/faults/test_peers.py prints the most)."""

PODS = 10
"""Pods on each node: 150,000 on 15,000 nodes."""

IMAGES = 50
"""Images in the status of each node: as many as a kubelet reports (KubeletConfiguration, nodeStatusMaxImages)."""

VALUES = ROOT / "manifests" / "chart" / "values.yaml"
RECORDED = ROOT / "tests" / "recorded"
HEARTBEATS, CHANGES, BUILDS = 2_000, 5, 5
SAMPLES, HANDSHAKES, SERVED = 1_000, 200, 2.0
RATE, RATES, PLAYED = 1_000, (50, 200, 500, 1_000), 12.0
"""Pods a second, and seconds of each simulation."""
MOST, AWAY, WORKERS = 32, 4, 2
CORES = {2.0: (1, 2, 3, 6), 0.25: (3, 6, 9, 12)}
"""Cores of a replica, with their description: as many as it can use, or as many as the manifests request."""
WAYS = {False: "by connection", True: "by call"}
GOOD, TIMEOUT = 20, 5.0
"""Milliseconds of a good p99, and the timeout in our registration in seconds."""
CHURN = 3.0
"""Seconds of reviews with changes, and without."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a cluster for one worker: seconds, MiB, milliseconds, and microseconds for a heartbeat."""

    listing: float
    cpu: float
    memory: float
    peak: float
    build: list[float]
    first: list[float]
    later: list[float]
    heartbeat: float
    seen: list[float]
    quiet: list[float]
    churn: list[float]


def run() -> Result:
    """Measure each size, and simulate the load of a restart on the replicas."""
    measured = {}
    for size in SIZES:
        print(f"{size:,} nodes", file=sys.stderr, flush=True)
        measured[size] = _measured(size)
    call = _call()
    played = {
        (cores, replicas, by_call): _play(call, RATE, cores, Fleet(replicas, WORKERS, by_call=by_call))
        for cores, counts in CORES.items()
        for replicas in counts
        for by_call in WAYS
    }
    figures = [each for size, cost in measured.items() for each in _figures(size, cost)]
    figures += [
        figure("a call: CPU", "ms", [1000 * each for each in call.seconds]),
        figure("a handshake: CPU", "ms", [1000 * call.handshake]),
    ]
    for (cores, replicas, by_call), each in played.items():
        name = f"{RATE:,} pods/s, {replicas} replicas of {cores:g} cores, {WAYS[by_call]}"
        figures.append(figure(f"{name}: p99", "ms", [_p99(each)]))
    return Result(
        "\n\n".join((_followed(measured), _memory(call, measured), _loads(call, played), _least(call), _returns(call))),
        figures,
    )


def _followed(measured: dict[int, Cost]) -> str:
    head = (
        *(
            "nodes",
            "pods",
            "facts after s",
            "of CPU s",
            "MiB of facts",
            "most MiB",
            "snapshot ms",
            "first review after it ms",
        ),
        *(
            "later ones ms",
            "CPU µs a heartbeat",
            "a change is seen after ms",
            "p99 of a review, quiet ms",
            "changing ms",
        ),
    )
    rows = [_row(size, each) for size, each in measured.items()]
    return f"One worker that follows a cluster:\n\n{tables.markdown(head, rows)}"


def _row(size: int, cost: Cost) -> tuple[str, ...]:
    return (
        *(f"{size:,}", f"{PODS * size:,}", f"{cost.listing:.1f}", f"{cost.cpu:.1f}"),
        *(f"{cost.memory:.0f}", f"{cost.peak:.0f}"),
        *(tables.spread(each, ".1f") for each in (cost.build, cost.first)),
        f"{median(cost.later):.2f}",
        f"{cost.heartbeat:.0f}",
        tables.spread(cost.seen, ".0f"),
        *(f"{tables.percentile(each, 99):.1f}" for each in (cost.quiet, cost.churn)),
    )


def _figures(size: int, cost: Cost) -> Iterator[Figure]:
    name = f"{size:,} nodes"
    yield figure(f"{name}: CPU until there are facts", "s", [cost.cpu])
    yield figure(f"{name}: memory of the facts in a worker", "MiB", [cost.memory])
    yield figure(f"{name}: most memory of the facts", "MiB", [cost.peak])
    yield figure(f"{name}: a snapshot", "ms", cost.build)
    yield figure(f"{name}: the first review after a snapshot", "ms", cost.first)
    yield figure(f"{name}: CPU of a heartbeat", "µs", [cost.heartbeat])
    yield figure(f"{name}: until a change is seen", "ms", cost.seen)
    yield figure(f"{name}: p99 of a review while nodes change", "ms", [tables.percentile(cost.churn, 99)])


def _measured(size: int) -> Cost:
    with _process("serve", str(size)) as server, _process("follow", server.readline().strip()) as worker:
        said = worker.readline()
    if not said:
        raise Wrong(f"the worker with {size:,} nodes failed")
    return Cost(**json.loads(said))


@contextmanager
def _process(*words: str) -> Iterator[Any]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench.scale", *words], cwd=ROOT, stdout=-1, stdin=-1, text=True
    ) as one:
        try:
            yield one.stdout
        finally:
            one.terminate()


# The replicas


@dataclass(frozen=True, slots=True)
class Call:
    """The CPU seconds of a worker for a call (the mean of many), and for a new connection."""

    seconds: list[float]
    handshake: float
    memory: float
    """MiB of a replica that follows no cluster."""


Plays = dict[tuple[float, int, bool], Played]
"""Simulations by cores per replica, number of replicas, and whether each call chooses a replica."""


def _call() -> Call:
    """Measure the CPU of a call: the decisions of both halves separately, and the server's work in addition."""
    engine, facts = load_engine(str(POLICY), str(FACTS))
    cases = [each for each in decision.cases(engine, facts) if each.payload == payloads.small().name]
    taken = {case.half: [_used(case) for _ in range(SAMPLES)] for case in cases}
    with tempfile.TemporaryDirectory(prefix="slicewarden-bench-") as name:
        folder = Path(name)
        generator.build("load", folder)
        https.certificates(folder)
        asked = payloads.small()
        with https.serving(https.OURS, https.SERVE, folder, (asked,)) as server:
            whole = https.Bench(folder, 1, SERVED).round(server, https.Load(asked, 8))
            shaken = _handshake(server, folder)
    beside = max(0.0, whole.cpu / 1e6 - fmean(taken["mutate"]))
    return Call([each + beside for half in taken.values() for each in half], shaken, whole.charged)


def _used(case: decision.Case) -> float:
    start = time.thread_time_ns()
    case.call(case.body)
    return (time.thread_time_ns() - start) / 1e9


def _handshake(server: https.Server, folder: Path) -> float:
    """Return a server's CPU seconds for a connection without requests."""
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    pids = processes.tree(server.process.pid)
    before = processes.cpu(pids)
    for _ in range(HANDSHAKES):
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            trust.wrap_socket(one, server_hostname="localhost").close()
    return (processes.cpu(pids) - before) / 1e6 / HANDSHAKES


def _play(call: Call, rate: int, cores: float, fleet: Fleet) -> Played:
    """Simulate replicas with this many cores each, which their workers share."""
    slower = fleet.workers / cores
    fleet = replace(fleet, handshake=slower * call.handshake)
    return play(fleet, rate, PLAYED, lambda random: slower * random.choice(call.seconds))


def _p99(played: Played) -> float:
    return 1000 * tables.percentile(played.taken, 99)


def _memory(call: Call, measured: dict[int, Cost]) -> str:
    """Write the memory that a replica needs, and whether the limit of the manifests allows it."""
    limit = int(yaml.safe_load(VALUES.read_text("utf-8"))["resources"]["limits"]["memory"].removesuffix("Mi"))
    rows = []
    for size, cost in measured.items():
        needed = call.memory + WORKERS * cost.peak
        advised = 128 * math.ceil((1.25 * needed + HOSTILE) / 128)
        rows.append((f"{size:,}", f"{PODS * size:,}", f"{needed:.0f} MiB", f"{max(limit, advised)}Mi"))
    head = ("nodes", "pods that hold GPUs", f"a replica of {WORKERS} workers", "limit to set")
    left = f"{HOSTILE} MiB of each limit are for tenants and peers that want to take a replica's memory"
    return f"The limit of the manifests is {limit}Mi. {left}:\n\n{tables.markdown(head, rows)}"


def _loads(call: Call, played: Plays) -> str:
    rows = [
        (
            f"{cores:g}",
            str(replicas),
            WAYS[by_call],
            f"{100 * CALLS * RATE * fmean(call.seconds) / (replicas * cores):.0f} %",
            f"{1000 * tables.percentile(each.taken, 50):,.1f}",
            f"{_p99(each):,.1f}",
            f"{each.refused:,}",
            f"{each.late(TIMEOUT):,}",
            f"{each.busiest:.2f}",
        )
        for (cores, replicas, by_call), each in played.items()
    ]
    head = ("cores a replica", "replicas", "spread", "busy", "p50 ms", "p99 ms", "refused", "later than 5 s", "busiest")
    words = (
        f"{RATE:,} pods with GPUs a second for {PLAYED:.0f} s, from 3 API servers to replicas of {WORKERS} workers; a "
        f"call takes {1000 * fmean(call.seconds):.2f} ms of CPU, and a new connection {1000 * call.handshake:.2f} ms. "
        "*Busiest* is the replica with the most calls, in an equal share:"
    )
    return f"{words}\n\n{tables.markdown(head, rows)}"


def _least(call: Call) -> str:
    """Find the smallest number of replicas whose p99 stays within the bound, by rate."""
    columns = [(cores, by_call) for cores in CORES for by_call in WAYS]
    rows = []
    for rate in RATES:
        cells = []
        for cores, by_call in columns:
            enough = (
                str(replicas)
                for replicas in range(1, MOST + 1)
                if CALLS * rate * fmean(call.seconds) < replicas * cores
                and not (each := _play(call, rate, cores, Fleet(replicas, WORKERS, by_call=by_call))).refused
                and _p99(each) <= GOOD
            )
            cells.append(next(enough, f"more than {MOST}"))
        rows.append((f"{rate:,}", *cells))
    head = ("pods with GPUs a second", *(f"{cores:g} cores each, {WAYS[by_call]}" for cores, by_call in columns))
    words = f"The fewest replicas with a p99 of a call of at most {GOOD} ms and no refusal:"
    return f"{words}\n\n{tables.markdown(head, rows)}"


def _returns(call: Call) -> str:
    """Simulate a replica that is down for a while."""
    rows = []
    for by_call in WAYS:
        away = PLAYED / 3, PLAYED / 2
        each = _play(call, RATE, WORKERS, Fleet(AWAY, WORKERS, by_call=by_call, away=away))
        share = each.after[0] * AWAY / max(1, sum(each.after))
        rows.append((WAYS[by_call], f"{_p99(each):.1f}", f"{each.refused:,}", f"{share:.2f}"))
    table = tables.markdown(("spread", "p99 ms", "refused", "calls of the one that is back, in its share"), rows)
    return (
        f"{AWAY} replicas with {WORKERS} cores each under {RATE:,} pods a second, of which one is away for "
        f"{PLAYED / 6:.0f} s and comes back:\n\n{table}"
    )


# The API server


def recorded(name: str) -> Object:
    """Return the object of a review that a real API server sent."""
    item: Object = json.loads((RECORDED / f"{name}.json").read_text("utf-8"))["request"]["object"]
    return item


def node() -> Object:
    """Return a node with a shared GPU, with the images that a kubelet reports."""
    item = dict(recorded("update-node"))
    images = [
        {
            "names": [
                f"registry.example.com/team/image-{n}@sha256:{n:064x}",
                f"registry.example.com/team/image-{n}:1.{n}",
            ]
        }
        for n in range(IMAGES)
    ]
    item["status"] = {**item["status"], "images": [{**each, "sizeBytes": 123456789} for each in images]}
    return item


def pod() -> Object:
    """Return a running pod on a node, with a GPU."""
    item = dict(recorded("create-pod-replicaset"))
    item["spec"] = {**item["spec"], "nodeName": "NODE"}
    item["status"] = {"phase": "Running"}
    return item


class Listed:
    """Many objects that differ only in their names, to be sent as pages of a list and as watch events."""

    def __init__(self, item: Object, count: int, within: int = 1) -> None:
        name = item["metadata"]["name"]
        self.text = json.dumps(item).replace(f'"{name}"', '"NAME"')
        self.count, self.within = count, within
        self.events: queue.Queue[bytes] = queue.Queue()
        self.versions = itertools.count(1_000_000_000)

    def one(self, number: int, labels: dict[str, str] | None = None) -> str:
        """Return the JSON of one object."""
        text = self.text.replace('"NAME"', f'"object-{number}"').replace('"NODE"', f'"object-{number // self.within}"')
        if labels is None:
            return text
        item = json.loads(text)
        item["metadata"]["labels"] |= labels
        return json.dumps(item)

    def page(self, limit: int, start: int) -> bytes:
        """Return a page of the list."""
        end = min(start + limit, self.count)
        metadata = {"resourceVersion": "1", **({"continue": str(end)} if end < self.count else {})}
        items = ",".join(self.one(number) for number in range(start, end))
        return f'{{"metadata":{json.dumps(metadata)},"items":[{items}]}}'.encode()

    def change(self, number: int, labels: dict[str, str] | None = None) -> None:
        """Send the change of an object through the watch. Without labels it is a heartbeat."""
        item = json.loads(self.one(number, labels))
        item["metadata"]["resourceVersion"] = str(next(self.versions))  # a worker reads each version once
        self.events.put(json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n")


def serve(size: int) -> None:
    """Serve nodes and pods until standard input ends."""
    nodes, pods = Listed(node(), size), Listed(pod(), PODS * size, PODS)
    namespaces = Listed(recorded("create-namespace"), size // 10)
    paths = {"/api/v1/nodes": nodes, "/api/v1/pods": pods, "/api/v1/namespaces": namespaces}

    def respond(asked: Asked) -> None:
        url = urlsplit(asked.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path == "/heartbeats":
            for number in range(int(query["count"])):
                nodes.change(number % size)
            asked.give(200, b"")
        elif url.path == "/change":
            nodes.change(0, {"changed": str(time.monotonic_ns())})
            asked.give(200, b"")
        elif (listed := paths.get(url.path)) is None:
            asked.give(404, b"{}")
        elif "watch" not in query:
            asked.give(200, listed.page(int(query["limit"]), int(query.get("continue", 0))))
        else:
            asked.begin(200, Content_Type="application/json", Transfer_Encoding="chunked")
            while True:
                event = listed.events.get()
                asked.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
                asked.wfile.flush()

    with listening(respond) as url:
        print(url, flush=True)
        sys.stdin.read()


# The worker


def follow(url: str) -> Cost:
    """Follow a cluster as a worker does, and measure the cost."""
    sys.setswitchinterval(SWITCH)
    engine = Engine(load_policy(str(POLICY)), rules.walk())
    heard = 0

    def keep(item: Object) -> Object | None:
        nonlocal heard
        heard += item["kind"] == "Node"
        return None

    cluster = Cluster(client.ApiClient(client.Configuration(host=url)), lambda _: None, keep=keep)
    settle()
    base, start, used = processes.charged([_pid()]), time.monotonic(), time.process_time()
    cluster.start()
    while cluster.facts() is None:
        time.sleep(0.01)
    listing, cpu = time.monotonic() - start, time.process_time() - used
    time.sleep(1)
    memory, peak = processes.charged([_pid()]) - base, _peak() - base
    facts = cluster.facts()
    assert facts is not None  # noqa: S101 - it was waited for
    known = [Fact("nodes", node.name, node) for node in facts.nodes]
    others = replace(facts, nodes=())
    build, first, later = [], [], []
    for _ in range(BUILDS):
        used = time.process_time()
        facts = joined((others, gathered(known)))  # as after a change of nodes
        build.append(1000 * (time.process_time() - used))
        first.append(_review(engine, facts))
        later.append(_review(engine, facts))
    del known, others, facts
    before, used = heard, time.process_time()
    _ask(f"{url}/heartbeats?count={HEARTBEATS}")
    while heard < before + HEARTBEATS:
        time.sleep(0.001)
    heartbeat = 1e6 * (time.process_time() - used) / HEARTBEATS
    seen = [_seen(cluster, url) for _ in range(CHANGES)]
    quiet = _reviews(engine, cluster, url, changing=False)
    churn = _reviews(engine, cluster, url, changing=True)
    return Cost(listing, cpu, memory, peak, build, first, later, heartbeat, seen, quiet, churn)


def _review(engine: Engine, facts: Facts) -> float:
    """Milliseconds of both halves."""
    body = payloads.small().body
    start = time.perf_counter()
    for half in (engine.mutate, engine.validate):
        request = admission.decode(body)
        admission.encode(request, half(request, facts))
    return 1000 * (time.perf_counter() - start)


def _reviews(engine: Engine, cluster: Cluster, url: str, *, changing: bool) -> list[float]:
    """Review for a while, five milliseconds apart; milliseconds of each."""
    stop = threading.Event()

    def change() -> None:
        while not stop.wait(0.1):
            _ask(f"{url}/change")

    thread = threading.Thread(target=change)
    if changing:
        thread.start()
    taken = []
    end = time.monotonic() + CHURN
    while time.monotonic() < end:
        facts = cluster.facts()
        assert facts is not None  # noqa: S101 - it was waited for
        taken.append(_review(engine, facts))
        time.sleep(0.005)
    stop.set()
    if changing:
        thread.join()
    return taken


def _seen(cluster: Cluster, url: str) -> float:
    """Milliseconds from a change to the snapshot that has it."""
    before = cluster.facts()
    _ask(f"{url}/change")
    while (facts := cluster.facts()) is before or facts is None:
        time.sleep(0.001)
    now = time.monotonic_ns()
    (at,) = (each.labels["changed"] for each in facts.nodes if each.name == "object-0")
    return (now - int(at)) / 1e6


def _ask(url: str) -> None:
    urllib.request.urlopen(url).close()


def _pid() -> int:
    return int(Path("/proc/self").resolve().name)


def _peak() -> float:
    """Return the peak memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        print(orjson.dumps(asdict(follow(sys.argv[2]))).decode(), flush=True)
