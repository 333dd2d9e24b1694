"""How the cost of a decision grows: with the containers of a pod, the rules, the nodes and the namespaces."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns

import orjson

from bench import payloads, tables
from bench.decision import FACTS, POLICY, ROOT, mutated
from webhook.api import admission
from webhook.cli.inputs import load_engine
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts, Node
from webhook.model import Request
from webhook.serving.processes import settle

SIZES = {
    "containers of a pod": (1, 3, 10, 30, 100),
    "rules": (5, 10, 25, 50),
    "nodes in the facts": (10, 100, 1_000, 10_000),
    "namespaces in the facts": (10, 100, 1_000, 10_000),
}

FLAT, LINEAR = 0.1, 1.1
"""The exponents up to which a cost is called flat, and linear: ten times as much costs 1.3 and 13 times as much."""

PAGE = ROOT / "docs" / "cost.md"

FIVE = ("chosen-node", "lifted-limit", "uncapped-memory", "unguarded-container", "unsteered-pod")
"""Rules for pods, among them the three that mend something, which cost the most."""

ROUNDS, TIMES = 200, 3


@dataclass(frozen=True, slots=True)
class Point:
    """What is decided, with how many of what grows."""

    size: int
    engine: Engine
    facts: Facts
    request: Request

    def cost(self) -> float:
        """Microseconds of both halves: the least of many short rounds, once all that is remembered is known."""

        def decide() -> None:
            for half in (self.engine.mutate, self.engine.validate):
                admission.encode(self.request, half(self.request, self.facts))

        decide()
        rounds = []
        for _ in range(ROUNDS):
            start = perf_counter_ns()
            for _ in range(TIMES):
                decide()
            rounds.append((perf_counter_ns() - start) / TIMES / 1000)
        return min(rounds)


def run() -> str:
    """Measure every size and return the table."""
    engine, facts = load_engine(str(POLICY), str(FACTS))
    body = payloads.small().body
    request, settled = admission.decode(body), admission.decode(mutated(engine, facts, body))
    points: dict[str, Callable[[int], Point]] = {
        "containers of a pod": lambda size: Point(size, engine, facts, containers(size)),
        "rules": lambda size: Point(size, repeated(engine, size), facts, settled),
        "nodes in the facts": lambda size: Point(size, engine, with_nodes(facts, size), request),
        "namespaces in the facts": lambda size: Point(size, engine, with_namespaces(facts, size), request),
    }
    settle()
    rows = []
    for what, sizes in SIZES.items():
        costs = [points[what](size).cost() for size in sizes]
        measured = ", ".join(f"{size:,}: {cost:,.0f}" for size, cost in zip(sizes, costs, strict=True))
        power = exponent(sizes[-2:], costs[-2:])
        rows.append((what, measured, f"{power:.2f}", shape(power)))
    return tables.markdown(("what grows", "µs of both calls together, by size", "exponent", "shape"), rows)


def page(table: str) -> str:
    """Write the page on cost."""
    return f"""# How the cost of a decision grows

With this page you can estimate what a decision costs in a larger cluster or for a larger pod. `python -m bench growth`
writes it.

The figures are microseconds in one process, of `/mutate` and `/validate` together, for the 4 KB pod of
[bench](../bench/README.md) that requests a GPU. The exponent says how the cost grows from the last size but one to the
last: about 0 is flat, 1 is linear. What is computed once for each snapshot of the facts (the GPUs of a pool's nodes) is
not measured.

{table}

One of the containers requests a GPU, and all have the same variables, mounts and probes. The rules are five of those
for pods, each repeated as often as needed, for a pod that was mutated:
{", ".join(FIVE)}.
The nodes are those of the sample facts under other names. `tests/engine/test_hostile.py` also counts calls, so that no
cost grows faster.
"""


def containers(count: int) -> Request:
    """A GPU pod of so many containers, of which one asks for a GPU."""
    request = admission.decode(payloads.small().body)
    pod = orjson.loads(orjson.dumps(request.object))
    (first,) = pod["spec"]["containers"]
    others = [{**first, "name": f"sidecar-{index}", "resources": {}} for index in range(1, count)]
    pod["spec"]["containers"] = [first, *others]
    return replace(request, object=pod)


def repeated(engine: Engine, count: int) -> Engine:
    """An engine of so many rules: five, each as often as it takes."""
    rules = [rule for rule in engine.rules if rule.id in FIVE]
    return Engine(engine.policy, [rules[index % len(rules)] for index in range(count)])


def with_nodes(facts: Facts, count: int) -> Facts:
    """The facts with so many nodes: those that there are, under other names."""
    nodes: Sequence[Node] = facts.nodes
    return replace(
        facts, nodes=tuple(replace(nodes[index % len(nodes)], name=f"node-{index}") for index in range(count))
    )


def with_namespaces(facts: Facts, count: int) -> Facts:
    """The facts with so many namespaces more than there are."""
    more = {f"namespace-{index}": {"team": f"team-{index % 50}"} for index in range(count)}
    return replace(facts, namespaces={**more, **facts.namespaces})


def exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The power of the size by which the cost grows from one size to another."""
    return math.log(costs[1] / costs[0]) / math.log(sizes[1] / sizes[0])


def shape(power: float) -> str:
    """Say what an exponent means."""
    if power <= FLAT:
        return "flat"
    return "linear or less" if power <= LINEAR else "worse than linear"
