"""The benchmark of policy engines: what it says about others must fit the fixtures, and its figures the aims."""

import fnmatch
import json
from typing import Any

import pytest
import yaml

from bench import aims, apiserver, engines, payloads
from bench.engines import Load, Measured, Round, answers
from bench.engines.answers import REASONS, RULES, Answer
from bench.engines.programs import GATEKEEPER, HERE, KYVERNO, OURS
from tests.support import conditions
from tests.support.fixtures import files_of

ENTRIES: list[dict[str, Any]] = yaml.safe_load(REASONS.read_text("utf-8"))
NAMES = [f"{rule}/{file.stem}" for rule in RULES for file in files_of(rule)]
WRITTEN = {
    name: list(yaml.safe_load_all((HERE / f"{name}.yaml").read_text("utf-8"))) for name in ("gatekeeper", "kyverno")
}

ASKED = {"4 KB": payloads.small(), "4 KB, no GPU": payloads.plain()}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["reason"])
def test_a_reason_for_misses_fits_fixtures_that_are_there(entry: dict[str, Any]) -> None:
    assert entry.get("engine", KYVERNO) in (GATEKEEPER, KYVERNO)
    for pattern in entry["fixtures"]:
        assert fnmatch.filter(NAMES, pattern), pattern


def hooks(engine: str) -> list[dict[str, Any]]:
    """The webhooks that an engine's user writes or, of Kyverno, the policies by which it makes them."""
    if engine == "gatekeeper":
        return [hook for each in WRITTEN[engine] for hook in each.get("webhooks", ())]
    return [
        {
            "name": each["metadata"]["name"],
            "failurePolicy": each["spec"]["failurePolicy"],
            "rules": each["spec"]["matchConstraints"]["resourceRules"],
            "matchConditions": each["spec"]["matchConditions"],
        }
        for each in WRITTEN[engine]
    ]


@pytest.mark.parametrize("engine", ["gatekeeper", "kyverno"])
@pytest.mark.parametrize("name", ASKED)
def test_other_engines_are_asked_twice_about_a_gpu_pod_and_never_about_a_plain_one(engine: str, name: str) -> None:
    request = conditions.request_of(json.loads(json.dumps(apiserver.sent(ASKED[name]))))
    assert len(conditions.receivers(hooks(engine), request)) == (2 if ASKED[name].gpu else 0)


@pytest.mark.parametrize("engine", ["gatekeeper", "kyverno"])
def test_other_engines_have_our_failure_policies(engine: str) -> None:
    policies = [hook["failurePolicy"] for hook in hooks(engine)]
    assert sorted(set(policies)) == ["Fail", "Ignore"]
    assert policies.count("Ignore") == 1  # the mutating one


def test_the_figures_are_those_of_the_aims() -> None:
    cost = {"none": 1.0, OURS: 2.0, GATEKEEPER: 4.0, KYVERNO: 5.0}
    rounds = {name: Round(100 / each, each, 2 * each, 1, 10 * each, 30 * each, 2) for name, each in cost.items()}
    measured: Measured = {Load(each, number): [rounds] for each in ASKED.values() for number in (1, 8, 32)}
    answered = [Answer(name, rule, "allow-one", True, "") for name in (GATEKEEPER, KYVERNO) for rule in RULES]
    figures = {each.name: each for each in engines.figures(measured, answered)}
    for aim in aims.AIMS:
        assert aim.part != "engines" or aim.figure in figures, aim
    assert figures["4 KB, 8 connections: p99 added, to the better other"].median == pytest.approx(1 / 3, abs=1e-3)
    assert figures["memory, to the better other"].median == 0.5
    assert figures["4 KB, no GPU, 1 connections, Kyverno: p50 added"].median == 4


def test_a_miss_without_a_reason_is_told() -> None:
    answered = [
        Answer(GATEKEEPER, RULES[0], "deny-two", True, "no"),
        Answer(KYVERNO, RULES[0], "deny-two", False, "", "not explained"),
    ]
    assert f"| {RULES[0]} | deny | 1 | 1 | 0 |" in answers.table(answered)
    assert f"| {RULES[0]} | not explained | 0 | 1 |" in answers.misses(answered)
