"""Measures how long a decision takes in one process, from the bytes of a review to the bytes of its answer."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import orjson

from bench import payloads, tables
from bench.runs import Figure, Result, figure
from webhook.api import admission, jsonpatch
from webhook.api.pods import Pod
from webhook.cli.inputs import load_engine
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.review import pods_of
from webhook.serving.processes import settle

ROOT = Path(__file__).parent.parent
POLICY = ROOT / "policies" / "sample.yaml"
FACTS = ROOT / "webhook" / "sample" / "facts.yaml"

WARM_UP = 500
ROUNDS = 4000
PARTS = 10

Call = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table: the function to call, and the bytes to give it."""

    payload: str
    half: str
    call: Call
    body: bytes


def mutated(engine: Engine, facts: Facts, body: bytes) -> bytes:
    """Return the review that the API server sends to `/validate` after `/mutate` has answered the given one."""
    whole = orjson.loads(body)
    verdict = engine.mutate(admission.decode(body), facts)
    whole["request"]["object"] = jsonpatch.apply(whole["request"]["object"], verdict.patch)
    return orjson.dumps(whole)


def run() -> Result:
    """Measure every case."""
    engine, facts = load_engine(str(POLICY), str(FACTS))
    measured = cases(engine, facts)
    settle()  # as every worker of `serve` does
    timed = [timed_both(case) for case in measured]
    rows = [_row(case, *times) for case, times in zip(measured, timed, strict=True)]
    head = ("review", "call", "median µs", "p99 µs", "parse only: median µs", "p99 µs", "ratio of medians")
    figures = [each for case, times in zip(measured, timed, strict=True) for each in _figures(case, *times)]
    return Result(f"{tables.markdown(head, rows)}\n\n{_by_rule(engine, facts)}", figures)


def cases(engine: Engine, facts: Facts) -> list[Case]:
    """Return the cases to measure. Raises AssertionError if a decision is not the expected one."""

    def mutate(body: bytes) -> bytes:
        request = admission.decode(body)
        return admission.encode(request, engine.mutate(request, facts))

    def validate(body: bytes) -> bytes:
        request = admission.decode(body)
        return admission.encode(request, engine.validate(request, facts))

    made = []
    for payload in (payloads.small(), payloads.large(), payloads.plain()):
        after = mutated(engine, facts, payload.body)
        _check(engine, facts, payload, after)
        made += [
            Case(payload.name, "mutate", mutate, payload.body),
            Case(payload.name, "validate", validate, after),
        ]
    return made


def _by_rule(engine: Engine, facts: Facts) -> str:
    """Time each pod rule on a pod without a GPU and on one with no way to a GPU: µs, the minimum of many runs."""
    columns = []
    for payload in (payloads.plain(), payloads.small()):
        request = admission.decode(mutated(engine, facts, payload.body))
        (review,) = pods_of(request, request.object or {}, engine.policy, facts)
        rules = [rule for rule in engine.rules if issubclass(Pod, rule.subject)]
        for rule in rules:
            list(rule.check(review))  # shared values exist already, so a rule pays only for itself
        columns.append([min(_timed(list, rule.check(review)) for _ in range(ROUNDS)) for rule in rules])
    rows = [(rule.id, *(f"{cost:.2f}" for cost in costs)) for rule, *costs in zip(rules, *columns, strict=True)]
    rows.append(("all", *(f"{sum(column):.1f}" for column in columns)))
    return tables.markdown(("rule", "no GPU: least µs", "a GPU, no way: least µs"), rows)


def _check(engine: Engine, facts: Facts, payload: payloads.Payload, after: bytes) -> None:
    """Check that the measured decision is the expected one."""
    request = admission.decode(payload.body)
    operations = engine.mutate(request, facts).patch
    if bool(operations) != payload.gpu:
        raise AssertionError(f"payload {payload.name}: {len(operations)} operations")
    changed = admission.decode(after)
    verdict = engine.validate(changed, facts)
    if not verdict.allowed or verdict.results or engine.mutate(changed, facts).patch:
        raise AssertionError(f"payload {payload.name} is not settled after its patch: {verdict}")
    if payload.gpu and engine.validate(request, facts).allowed:
        raise AssertionError(f"payload {payload.name} is allowed without its patch")


def parse_only(body: bytes) -> bytes:
    """Decode and encode a review without a decision, as the baseline."""
    return orjson.dumps(orjson.loads(body))


def timed_both(case: Case) -> tuple[list[float], list[float]]:
    """Time the case and the parse-only baseline alternately, so that both see the same conditions. Returns µs."""
    for _ in range(WARM_UP):
        case.call(case.body)
        parse_only(case.body)
    ours, baseline = [], []
    for _ in range(ROUNDS):
        ours.append(_timed(case.call, case.body))
        baseline.append(_timed(parse_only, case.body))
    return ours, baseline


def _figures(case: Case, ours: list[float], baseline: list[float]) -> list[Figure]:
    """Return the ratio of medians for the whole run and for each tenth of it, and the same for the p99."""
    parts = [(ours[at::PARTS], baseline[at::PARTS]) for at in range(PARTS)]
    name = f"{case.payload}, {case.half}"
    ratios = [statistics.median(one) / statistics.median(other) for one, other in parts]
    slowest = [tables.percentile(one, 99) / 1000 for one, _ in parts]
    return [figure(f"{name}: to parsing", "×", ratios), figure(f"{name}: p99", "ms", slowest)]


def _row(case: Case, ours: list[float], baseline: list[float]) -> tuple[str, ...]:
    median, parse = statistics.median(ours), statistics.median(baseline)
    return (
        case.payload,
        case.half,
        f"{median:.1f}",
        f"{tables.percentile(ours, 99):.1f}",
        f"{parse:.1f}",
        f"{tables.percentile(baseline, 99):.1f}",
        f"{median / parse:.2f}",
    )


def _timed(call: Callable[[Any], object], given: Any) -> float:
    start = perf_counter_ns()
    call(given)
    return (perf_counter_ns() - start) / 1000
