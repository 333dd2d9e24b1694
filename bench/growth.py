"""Measures how the cost of a decision grows with the sizes of the pod, the policy and the facts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import thread_time_ns

import orjson

from bench import payloads, tables
from bench.decision import FACTS, POLICY, mutated
from bench.runs import Result, figure
from webhook.api import admission
from webhook.api.selectors import Selector
from webhook.cli.inputs import load_engine
from webhook.engine.engine import Engine
from webhook.facts.kinds.node import Node
from webhook.facts.snapshot import Facts
from webhook.model import Request
from webhook.policy.actions import Exemption
from webhook.policy.model import Policy
from webhook.policy.scopes import Grant, Scope
from webhook.serving.processes import settle

CONTAINERS, RULES, NODES, NAMESPACES = "containers of a pod", "rules", "nodes in the facts", "namespaces in the facts"
GRANTS, POOLS, EXEMPTIONS = "grants of the policy", "pools of the policy", "exemptions of the policy"

SIZES = {
    CONTAINERS: (1, 3, 10, 30, 100),
    RULES: (5, 10, 25, 50),
    NODES: (10, 100, 1_000, 10_000),
    NAMESPACES: (10, 100, 1_000, 10_000),
    GRANTS: (1, 10, 100, 1_000),
    POOLS: (1, 10, 100),
    EXEMPTIONS: (1, 10, 100, 1_000),
}

FLAT, LINEAR = 0.1, 1.1
"""The exponents up to which a cost is called flat, and linear: ten times as much costs 1.3 and 13 times as much."""

FIVE = ("chosen-node", "lifted-limit", "uncapped-memory", "unguarded-container", "unsteered-pod")
"""Rules for pods, among them the three that mend something, which cost the most."""

ROUNDS, TIMES, PARTS = 200, 3, 5


@dataclass(frozen=True, slots=True)
class Point:
    """A decision to measure at one size."""

    engine: Engine
    facts: Facts
    request: Request

    def decide(self) -> None:
        """Judge a pod by `/mutate` and `/validate`."""
        for half in (self.engine.mutate, self.engine.validate):
            admission.encode(self.request, half(self.request, self.facts))

    def cost(self) -> float:
        """Return CPU microseconds of both halves, after the snapshot's caches have been filled."""
        self.decide()
        start = thread_time_ns()
        for _ in range(TIMES):
            self.decide()
        return (thread_time_ns() - start) / TIMES / 1000


def run() -> Result:
    """Measure every size."""
    engine, facts = load_engine(str(POLICY), str(FACTS))
    body = payloads.small().body
    request, settled = admission.decode(body), admission.decode(mutated(engine, facts, body))
    points: dict[str, Callable[[int], Point]] = {
        CONTAINERS: lambda size: Point(engine, facts, containers(size)),
        RULES: lambda size: Point(repeated(engine, size), facts, settled),
        NODES: lambda size: Point(engine, with_nodes(facts, size), request),
        NAMESPACES: lambda size: Point(engine, with_namespaces(facts, size), request),
        GRANTS: lambda size: Point(with_grants(engine, size), facts, request),
        POOLS: lambda size: Point(with_pools(engine, size), facts, request),
        EXEMPTIONS: lambda size: Point(with_exemptions(engine, size), facts, request),
    }
    settle()
    rows, figures = [], []
    for what, sizes in SIZES.items():
        costs = measured([points[what](size) for size in sizes])
        least = [min(each) for each in costs]
        words = ", ".join(f"{size:,}: {cost:,.0f}" for size, cost in zip(sizes, least, strict=True))
        power = exponent(sizes[-2:], least[-2:])
        rows.append((what, words, f"{power:.2f}", shape(power)))
        powers = [exponent(sizes[-2:], pair) for pair in zip(*costs[-2:], strict=True)]
        figures.append(figure(f"{what}: exponent", "", powers))
    table = tables.markdown(("what grows", "µs of CPU of both calls together, by size", "exponent", "shape"), rows)
    return Result(f"{WORDS}\n\n{table}\n\n{HOW}", figures)


def measured(points: Sequence[Point]) -> list[tuple[float, ...]]:
    """Return the minimum cost of each point in each part of the run.

    Points alternate, so all see the same conditions.
    """
    parts = []
    for _ in range(PARTS):
        rounds = [[point.cost() for point in points] for _ in range(ROUNDS // PARTS)]
        parts.append([min(costs) for costs in zip(*rounds, strict=True)])
    return [*zip(*parts, strict=True)]


WORDS = """\
Microseconds of CPU in one process, of `/mutate` and `/validate` together, for the 4 KB pod that asks for a GPU. The
exponent says how the cost grows from the last size but one to the last: about 0 is flat, 1 is linear. The work that is
done once for each snapshot of the facts (the GPUs of a pool's nodes) is not measured."""

HOW = f"""\
One of the containers asks for a GPU, and all have the same variables, mounts and probes. The rules are five of those
for pods, each repeated as often as needed, for a pod that was mutated: {", ".join(FIVE)}.
The nodes are those of the sample facts under other names. Grants, exemptions and pools come before those of the sample
policy, each for a namespace of its own; the pools offer the resource that the pod asks for."""


def containers(count: int) -> Request:
    """Return a GPU pod with this many containers, of which one requests a GPU."""
    request = admission.decode(payloads.small().body)
    pod = orjson.loads(orjson.dumps(request.object))
    (first,) = pod["spec"]["containers"]
    others = [{**first, "name": f"sidecar-{index}", "resources": {}} for index in range(1, count)]
    pod["spec"]["containers"] = [first, *others]
    return replace(request, object=pod)


def repeated(engine: Engine, count: int) -> Engine:
    """Return an engine with this many rules: five rules, repeated."""
    rules = [rule for rule in engine.rules if rule.id in FIVE]
    return Engine(engine.policy, [rules[index % len(rules)] for index in range(count)])


def with_nodes(facts: Facts, count: int) -> Facts:
    """Return facts with this many nodes: copies of the given ones with other names."""
    nodes: Sequence[Node] = facts.nodes
    return replace(
        facts, nodes=tuple(replace(nodes[index % len(nodes)], name=f"node-{index}") for index in range(count))
    )


def with_namespaces(facts: Facts, count: int) -> Facts:
    """Return the facts with this many more namespaces."""
    more = {f"namespace-{index}": {"team": f"team-{index % 50}"} for index in range(count)}
    return replace(facts, namespaces={**more, **facts.namespaces})


def with_grants(engine: Engine, count: int) -> Engine:
    """Return the engine with this many grants before the existing ones."""
    more = tuple(Grant(_scope(index)) for index in range(count))
    return _with(engine, replace(engine.policy, grants=(*more, *engine.policy.grants)))


def with_pools(engine: Engine, count: int) -> Engine:
    """Return the engine with this many pools before the existing ones, each with its own nodes and tenants."""
    (first, *_) = engine.policy.pools
    more = tuple(
        replace(first, name=f"pool-{index}", tenants=_scope(index), nodes=Selector({"pool": str(index)}))
        for index in range(count)
    )
    return _with(engine, replace(engine.policy, pools=(*more, *engine.policy.pools)))


def with_exemptions(engine: Engine, count: int) -> Engine:
    """Return the engine with this many exemptions before the existing ones."""
    more = tuple(Exemption(f"exemption-{index}", _scope(index), frozenset(), None) for index in range(count))
    return _with(engine, replace(engine.policy, exemptions=(*more, *engine.policy.exemptions)))


def _with(engine: Engine, policy: Policy) -> Engine:
    return Engine(policy, engine.rules)


def _scope(index: int) -> Scope:
    """A namespace that the pod is not in."""
    return Scope(frozenset({f"team-{index}"}), None, frozenset())


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the exponent with which the cost grows between two sizes."""
    return math.log(costs[1] / costs[0]) / math.log(sizes[1] / sizes[0])


def shape(power: float) -> str:
    """Describe an exponent in words."""
    if power <= FLAT:
        return "flat"
    return "linear or less" if power <= LINEAR else "worse than linear"
