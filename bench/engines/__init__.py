"""Measures the cost of a pod's creation at a real API server with common policy engines, with ours, and with none."""

import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from bench import apiserver, generator, payloads, processes, tables
from bench.engines import answers
from bench.engines.programs import (
    GATEKEEPER,
    KYVERNO,
    NAMESPACES,
    OURS,
    TRUST,
    Engine,
    Site,
    find,
    gatekeeper,
    kyverno,
    ours,
)
from bench.generator import WARM_UP, CannotRun, Wrong
from bench.https import certificates
from bench.payloads import Payload
from bench.runs import Figure, Result, figure
from tests.e2e import binaries, control_plane
from tests.e2e.control_plane import Cluster
from tests.support.policies import FACTS

NONE = "none"
STEERED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
"""The fields that every engine must write into the GPU pod."""


@dataclass(frozen=True, slots=True)
class Load:
    """Pods of one kind, created over a number of connections at once."""

    payload: Payload
    connections: int

    @property
    def words(self) -> str:
        """The load in words, for tables."""
        return f"{self.payload.name}, {self.connections}"


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round: latencies in ms, CPU time in µs per pod, memory in MiB (PSS), webhook calls per pod."""

    rps: float
    p50: float
    p99: float
    api_server: float
    cpu: float
    memory: float
    calls: float


Measured = dict[Load, list[dict[str, Round]]]
"""For each load its repeats, each with a round of every engine by name."""


def run(rounds: int, seconds: float) -> Result:
    """Check that every engine enforces its rules, measure, and compare the answers. Raises CannotRun or Wrong."""
    if not (processes.PROC / "self" / "stat").exists():
        raise CannotRun("the engines' benchmark reads /proc and so runs on Linux only")
    try:
        programs = binaries.find()
    except binaries.Missing as missing:
        raise CannotRun(str(missing)) from missing
    pods = (payloads.small(), payloads.plain())
    loads = [Load(payload, connections) for payload in pods for connections in (1, 8, 32)]
    measured: Measured = {load: [] for load in loads}
    try:
        with _bench(programs, seconds) as bench:
            answered = answers.ask(bench.engines)
            for number in range(rounds):
                for load in loads:
                    print(f"round {number + 1}: {load.words} connections", file=sys.stderr)
                    order = bench.order(number)
                    measured[load].append({name: bench.round(load, name) for name in order})
            versions = {each.name: each.version for each in bench.engines if each.version}
    except control_plane.Failed as failed:
        raise Wrong(str(failed)) from failed
    text = "\n\n".join((_figures(measured), _added(measured), answers.table(answered), answers.misses(answered)))
    return Result(text, figures(measured, answered), versions)


@dataclass(frozen=True, slots=True)
class Bench:
    """An API server, the engines that are registered for their own namespaces, and the load generator."""

    folder: Path
    cluster: Cluster
    trusted: list[str]
    engines: list[Engine]
    seconds: float

    def order(self, number: int) -> list[str]:
        """Return the names of the engines and "none", starting with a different one in each repeat."""
        names = [NONE, *(each.name for each in self.engines)]
        first = number % len(names)
        return [*names[first:], *names[:first]]

    def round(self, load: Load, name: str) -> Round:
        """Create pods in an engine's namespace: warm up, measure once, delete them."""
        engine = next((each for each in self.engines if each.name == name), None)
        calls, _ = self.called(engine)
        pods = self.create(load, name, WARM_UP).requests
        api_server = [each.process.pid for each in self.cluster.components if each.name == "kube-apiserver"]
        theirs = processes.tree(engine.process.pid) if engine else []
        before = [processes.cpu(pids) for pids in (api_server, theirs)]
        report = self.create(load, name, self.seconds)
        used = [processes.cpu(pids) - start for pids, start in zip((api_server, theirs), before, strict=True)]
        pods += report.requests
        calls = self.called(engine)[0] - calls
        if calls != (2 * pods if engine and load.payload.gpu else 0):
            raise Wrong(f"{name}, {load.payload.name}: {calls:.0f} calls of its webhooks for {pods} pods")
        self.cluster.do("delete", f"--raw={_pods(name)}")
        return Round(
            rps=report.rps,
            p50=report.p50,
            p99=report.p99,
            api_server=used[0] / report.requests,
            cpu=used[1] / report.requests,
            memory=processes.charged(theirs),
            calls=calls / pods,
        )

    def create(self, load: Load, name: str, seconds: float) -> generator.Report:
        """Create pods. Raises Wrong if any pod comes back different from the expected one."""
        steered = load.payload.gpu and name != NONE
        body, expect = self.folder / "pod.json", self.folder / "selector.json"
        body.write_bytes(orjson.dumps(_pod(load.payload)))
        expect.write_bytes(orjson.dumps(STEERED))
        return generator.load(
            self.folder / "load",
            f"{name}, {load.words} connections",
            *("-url", self.cluster.url + _pods(name)),
            *self.trusted,
            *("-body", str(body)),
            *(("-expect", str(expect)) if steered else ()),
            *("-conns", str(load.connections), "-duration", f"{seconds}s"),
        )

    def called(self, engine: Engine | None) -> tuple[float, float]:
        """Return how often the API server has called an engine's webhooks, and how many seconds the calls took."""
        names = {hook["name"] for hook in engine.hooks} if engine else set()
        return apiserver.called(self.cluster, names.__contains__)

    def prove(self, engine: Engine) -> None:
        """Check that an engine denies two slices, steers a GPU pod, and allows a plain pod. Raises Wrong."""
        two = _pod(payloads.small())
        two["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu.shared": "2"}}
        gpu, plain = _pod(payloads.small()), _pod(payloads.plain())
        self.cluster.wait_until(f"{engine.name} denies two slices", lambda: "slice" in self._tried(engine.name, two)[1])
        self.cluster.wait_until(
            f"{engine.name} steers", lambda: self._tried(engine.name, gpu)[0].get("nodeSelector") == STEERED
        )
        if self._tried(NONE, two)[0].get("nodeSelector") is not None or self._tried(NONE, two)[1]:
            raise Wrong(f"{engine.name} is asked about pods of all namespaces")
        made, said = self._tried(engine.name, plain)
        if said or "nodeSelector" in made:
            raise Wrong(f"{engine.name} does not let a plain pod through: {said or made['nodeSelector']}")

    def _tried(self, name: str, pod: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Return the spec of a pod that is created as a dry run, or the denial."""
        arguments = ("create", "--dry-run=server", "--output=json", "--filename=-", f"--namespace={NAMESPACES[name]}")
        done = self.cluster.kubectl(*arguments, stdin=orjson.dumps(pod).decode())
        return (orjson.loads(done.stdout)["spec"] if done.stdout else {}), done.stderr.strip()


def _pod(payload: Payload) -> dict[str, Any]:
    pod = apiserver.sent(payload)
    del pod["metadata"]["namespace"]
    return pod


def _pods(name: str) -> str:
    return f"/api/v1/namespaces/{NAMESPACES[name]}/pods"


@contextmanager
def _bench(programs: Path, seconds: float) -> Iterator[Bench]:
    found = find()
    if not found:
        raise CannotRun("neither Gatekeeper nor Kyverno can be had, and there is nothing to compare with")
    with tempfile.TemporaryDirectory(prefix="slicewarden-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        generator.build("load", folder)
        certificates(folder)
        cluster = stack.enter_context(control_plane.serving(folder, programs))
        namespaces = [_namespace(each, TRUST) for each in NAMESPACES.values()]
        known = next(yaml.safe_load_all(FACTS.read_text("utf-8")))
        facts = folder / "facts.yaml"
        facts.write_text(yaml.safe_dump({**known, "items": [*known["items"], *namespaces]}), "utf-8")
        cluster.apply(*namespaces, *(each for each in known["items"] if each["kind"] == "Namespace"))
        for namespace in NAMESPACES.values():
            cluster.do("create", "serviceaccount", "default", f"--namespace={namespace}")
        site = Site(folder, cluster, facts)
        engines = [stack.enter_context(ours(site))]
        if GATEKEEPER in found:
            engines.append(gatekeeper(site, found[GATEKEEPER]))
        if KYVERNO in found:
            engines.append(kyverno(site, found[KYVERNO]))
        bench = Bench(folder, cluster, apiserver.client(cluster, folder), engines, seconds)
        for engine in engines:
            bench.prove(engine)
        yield bench


def _namespace(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _figures(measured: Measured) -> str:
    head = ("pod", "connections", "engine", "pods a second (min-max)", "p50 ms", "p99 ms (min-max)")
    rows = []
    for load, repeats in measured.items():
        for name in sorted(repeats[0], key=list(NAMESPACES).index):
            rounds = [repeat[name] for repeat in repeats]
            rows.append(
                (
                    load.payload.name,
                    str(load.connections),
                    name,
                    tables.spread([r.rps for r in rounds], ",.0f"),
                    f"{statistics.median(r.p50 for r in rounds):.2f}",
                    tables.spread([r.p99 for r in rounds], ".2f"),
                    f"{statistics.median(r.api_server for r in rounds):,.0f}",
                    f"{statistics.median(r.cpu for r in rounds):,.0f}",
                    f"{statistics.median(r.memory for r in rounds):.0f}",
                )
            )
    return tables.markdown((*head, "CPU µs a pod: API server", "engine", "PSS MiB"), rows)


def _added(measured: Measured) -> str:
    """Write how much each engine adds to the latency (ms), and the rate of pods as a share of that without engines."""
    rows = []
    for load, repeats in measured.items():
        for name in _names(measured):
            more = [[added(each, name, what) for each in repeats] for what in ("p50", "p99")]
            rows.append(
                (
                    load.payload.name,
                    str(load.connections),
                    name,
                    *(tables.spread(each, "+.2f") for each in more),
                    tables.spread([each[name].rps / each[NONE].rps for each in repeats], ".2f"),
                )
            )
    head = ("pod", "connections", "engine", "p50 ms", "p99 ms", "pods a second, ratio")
    return f"Beside none, repeat by repeat, median (min-max):\n\n{tables.markdown(head, rows)}"


def added(repeat: dict[str, Round], name: str, what: str) -> float:
    """Return how much longer a creation took with an engine than without one, within one repeat."""
    return float(getattr(repeat[name], what) - getattr(repeat[NONE], what))


def _names(measured: Measured) -> list[str]:
    first = next(iter(measured.values()))[0]
    return [name for name in NAMESPACES if name != NONE and name in first]


def figures(measured: Measured, answered: Sequence[answers.Answer]) -> list[Figure]:
    """Return the figures of a run."""
    return [*_each(measured), *_to_the_better(measured), *answers.figures(answered)]


def _each(measured: Measured) -> Iterator[Figure]:
    """Yield what each engine costs by load."""
    for load, repeats in measured.items():
        for name in _names(measured):
            what = f"{load.words} connections, {name}"
            for key in ("p50", "p99"):
                yield figure(f"{what}: {key} added", "ms", [added(each, name, key) for each in repeats])
            yield figure(f"{what}: pods a second, to none", "×", [each[name].rps / each[NONE].rps for each in repeats])
            if load.payload.gpu:
                yield figure(f"{what}: CPU a pod", "µs", [each[name].cpu for each in repeats])
    for name in _names(measured):
        held = [repeat[name].memory for repeats in measured.values() for repeat in repeats]
        yield figure(f"{name}: memory", "MiB", held)


def _to_the_better(measured: Measured) -> Iterator[Figure]:
    """Yield our cost as a ratio to the better of the other engines, within each repeat."""
    others = [name for name in _names(measured) if name != OURS]
    if not others:
        return
    for load, repeats in measured.items():
        if load.payload.gpu:
            for key in ("p50", "p99"):
                better = [min(added(each, name, key) for name in others) for each in repeats]
                ratios = [added(each, OURS, key) / least for each, least in zip(repeats, better, strict=True)]
                yield figure(f"{load.words} connections: {key} added, to the better other", "×", ratios)
    all_repeats = [repeat for repeats in measured.values() for repeat in repeats]
    memory = [each[OURS].memory / min(each[name].memory for name in others) for each in all_repeats]
    yield figure("memory, to the better other", "×", memory)
