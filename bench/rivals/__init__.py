"""Compares other programs that check manifests, on the same pods and each with the rule most similar to one of ours."""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import tables
from bench.check import OPTIONS, SPEC
from bench.decision import ROOT
from bench.generator import Wrong
from bench.processes import Cost, cost
from bench.runs import Result, figure
from tests.support import go_programs

HERE = Path(__file__).parent
PODS = 1_000
RULE = "multiple-slices"

POD = (
    """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: vision
  labels:
    app.kubernetes.io/name: web
    app.kubernetes.io/part-of: vision
  annotations:
    slicewarden.dev/trust: trusted
"""
    + SPEC
)


@dataclass(frozen=True)
class Checker:
    """A program that checks the manifests of a folder.

    `rule` names its rule, `command` runs it, and `found` reads the violating pods from its output.
    """

    name: str
    rule: str
    command: tuple[str, ...]
    found: Callable[[str], Iterator[str]]


def run(rounds: int) -> Result:
    """Run all checkers alternately on the same pods. Raises Wrong if one of them finds other pods."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "pods"
        violating = _write(folder)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": str(Path(name) / "compiled"), "PYTHONPATH": str(ROOT)}
        checkers = [_ours(str(folder)), *_rivals(str(folder))]
        for checker in checkers:
            _prove(checker, violating, environment)
        costs: dict[str, list[Cost]] = {checker.name: [] for checker in checkers}
        for _ in range(rounds):
            for checker in checkers:
                costs[checker.name].append(cost(checker.command, environment))
    ours = [each.wall for each in costs[checkers[0].name]]
    figures = [figure(f"{PODS:,} pods, {checkers[0].name}", "s", ours)]
    for name in [each.name for each in checkers[1:]]:
        walls = [theirs.wall / our for theirs, our in zip(costs[name], ours, strict=True)]
        figures.append(figure(f"{PODS:,} pods, {name.rpartition(' v')[0] or name}: to ours", "×", walls))
    return Result(_table(checkers, costs), figures)


def _write(folder: Path) -> set[str]:
    """Write the pods, one per file. Returns the names of those that request two slices: every second one."""
    folder.mkdir()
    for number in range(PODS):
        text = POD.format(name=f"web-{number}", resource="nvidia.com/gpu.shared", gpus=1 + number % 2)
        (folder / f"{number}.yaml").write_text(text, "utf-8")
    return {f"web-{number}" for number in range(1, PODS, 2)}


def _prove(checker: Checker, violating: set[str], environment: dict[str, str]) -> None:
    done = subprocess.run(checker.command, env=environment, capture_output=True, text=True, check=False)
    found = set(checker.found(done.stdout))
    if found != violating:
        said = (done.stderr.strip().splitlines() or [""])[-1]
        raise Wrong(
            f"{checker.name} finds {len(found)} pods, of which {len(found & violating)} are of the {len(violating)} "
            f"that violate its rule: {said}"
        )


def _table(checkers: Sequence[Checker], costs: dict[str, list[Cost]]) -> str:
    """Write the times as ratios to ours, each between two runs of one round."""
    ours = costs[checkers[0].name]
    rows = []
    for checker in checkers:
        each = costs[checker.name]
        wall = [theirs.wall / our.wall for theirs, our in zip(each, ours, strict=True)]
        cpu = [theirs.cpu / our.cpu for theirs, our in zip(each, ours, strict=True)]
        rows.append(
            (
                checker.name,
                checker.rule,
                tables.spread([one.wall for one in each], ".2f"),
                tables.spread([one.cpu for one in each], ".2f"),
                f"{statistics.median(wall):.2f}",
                f"{statistics.median(cpu):.2f}",
                f"{max(one.memory for one in each):.0f}",
            )
        )
    head = (f"{PODS:,} pods", "rule", "seconds", "CPU seconds", "× ours", "× our CPU", "MiB, largest process")
    return tables.markdown(head, rows)


def _ours(folder: str) -> Checker:
    command = (sys.executable, "-m", "webhook", "check", folder, *OPTIONS, "--format", "json")
    return Checker("slicewarden check", f"all, of which {RULE}", command, _in_ours)


def _rivals(folder: str) -> Iterator[Checker]:
    """Return the available programs, and a line for each that is missing."""
    command: tuple[str, ...]
    package = "github.com/open-policy-agent/gatekeeper/v3"
    if program := built("gatekeeper", "gator", f"{package}/cmd/gator", "seven minutes"):
        command = (program, "test", "-f", folder, "-f", str(HERE / "gatekeeper/policy.yaml"), "-o", "json")
        yield Checker(f"gator test {pinned('gatekeeper', package)}", "a ConstraintTemplate in CEL", command, _in_gators)
    package = "github.com/kyverno/kyverno"
    if program := built("kyverno", "kyverno", f"{package}/cmd/cli/kubectl-kyverno", "twenty minutes"):
        command = (program, "apply", str(HERE / "kyverno/policy.yaml"), "-r", folder)
        yield Checker(f"kyverno apply {pinned('kyverno', package)}", "a ClusterPolicy's pattern", command, _in_kyvernos)
    package = "github.com/open-policy-agent/conftest"
    if program := built("conftest", "conftest", package, "six minutes"):
        policy = str(HERE / "conftest/policy.rego")
        command = (program, "test", folder, "--policy", policy, "--output", "json", "--no-color")
        yield Checker(f"conftest test {pinned('conftest', package)}", "a rule in Rego", command, _in_conftests)
    if program := os.environ.get("KUBE_LINTER") or shutil.which("kube-linter") or "":
        config = str(HERE / "kube-linter/config.yaml")
        command = (program, "lint", folder, "--config", config, "--format", "json")
        yield Checker("kube-linter lint", "a custom check in CEL", command, _in_kube_linters)
    else:
        go_programs.say("kube-linter is left out: it is neither on the PATH nor named by KUBE_LINTER=FILE")


def built(pins: str, name: str, package: str, patience: str) -> str:
    """Build a program of the pins in a folder here if necessary, and return it.

    If it is not available, return the reason.
    """
    try:
        folder = go_programs.built(
            HERE / pins,
            {name: package},
            without_go="it is built with Go 1.26: https://go.dev/dl",
            patience=f"; {patience}",
        )
    except go_programs.Missing as missing:
        go_programs.say(f"{name} is left out: {missing}")
        return ""
    return str(folder / name)


def pinned(name: str, module: str) -> str:
    """Return the version of a module that a folder here pins."""
    found = re.search(rf"^\s+{module} (v\S+)", (HERE / name / "go.mod").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{name}/go.mod pins no {module}")
    return found[1]


def _in_ours(output: str) -> Iterator[str]:
    for each in json.loads(output)["results"]:
        if any(finding["rule"] == RULE for finding in each["findings"]):
            yield each["name"]


def _in_gators(output: str) -> Iterator[str]:
    for each in json.loads(output):
        yield each["violatingObject"]["metadata"]["name"]


def _in_kyvernos(output: str) -> Iterator[str]:
    yield from re.findall(r"resource vision/Pod/(\S+) failed", output)


def _in_conftests(output: str) -> Iterator[str]:
    for each in json.loads(output):
        for failure in each.get("failures", ()):
            yield failure["msg"].partition(":")[0]


def _in_kube_linters(output: str) -> Iterator[str]:
    found: list[Any] = json.loads(output)["Reports"]
    for each in found:
        yield each["Object"]["K8sObject"]["Name"]
