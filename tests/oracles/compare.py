"""The cases of `cases.py` put to an oracle: what it and this project differ on, by the case's name."""

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.oracles import choices
from tests.oracles.cases import MANIFESTS, NUMBERS, PODS, QUANTITIES, SELECTIONS
from tests.oracles.containers import engine
from tests.oracles.manifests import compared
from tests.oracles.needless import let_through, needless
from tests.oracles.programs import Oracle
from tests.support.policies import POLICY, policy_of
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy

Differences = dict[str, Any]


@cache
def sample_policy() -> Policy:
    """The policy that the project ships as an example."""
    return policy_of(POLICY)


def of_pods(oracle: Oracle) -> Differences:
    """Pods that get what they did not ask for, or are refused for nothing."""
    judge, facts = engine(sample_policy()), Facts()
    found = {
        name: (let_through(oracle, judge, pod, facts), needless(oracle, judge, pod, facts))
        for name, pod in PODS.items()
    }
    return {name: each for name, each in found.items() if any(each)}


def of_choices(oracle: Oracle) -> Differences:
    """Selections, numbers and quantities that are read another way."""
    policy = sample_policy()
    found: Differences = {
        name: differing
        for name, case in SELECTIONS.items()
        if (differing := choices.differing_nodes(oracle, policy, case))
    }
    for text in NUMBERS:
        theirs = oracle.ask({"number": text})
        if theirs != choices.number(text):
            found[f"number {text}"] = theirs
    for text in QUANTITIES:
        theirs = choices.kubernetes_amount(oracle.ask({"quantity": text}))
        here = choices.amount(text)
        if theirs != here and not (here is None and choices.not_read(text)):
            found[f"quantity {text}"] = theirs
    return found


def of_manifests(oracle: Oracle) -> Differences:
    """Files of which kubectl creates something that is neither judged nor an error, or of which more is judged."""
    gpus, found = sample_policy().gpu_resources, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in MANIFESTS.items():
            (case,) = compared(oracle, [text.encode("utf-8")], Path(folder), gpus)
            found[name] = (case.lost, case.invented)
    return {name: each for name, each in found.items() if any(each)}


CASES: dict[str, Callable[[Oracle], Differences]] = {
    "toolkit": of_pods,
    "kubernetes": of_choices,
    "files": of_manifests,
}
"""What is asked of each oracle."""
