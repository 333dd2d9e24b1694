"""The policies of the release before give the verdicts that it gave, unless the CHANGELOG names the rule that changed.

Both releases judge the same objects, by their own command line: the fixtures of the rules and each kind of workload, as
the release before had them. The policies are those that it shipped, those of its fixtures, and those that its `policy
init` writes for recorded clusters.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import ROOT

RUN = """
import contextlib, json, sys
from webhook.cli.main import main
for arguments, output in json.load(sys.stdin):
    sys.argv[1:] = arguments
    with open(output, "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        try:
            status = main()
        except SystemExit as end:
            status = end.code
    print("status", status or 0, file=sys.stderr)
"""
"""Runs command lines, each with a file for its output, in one process. Prints their exit statuses to standard error."""
WORKLOADS = ("tests/kinds", "webhook/sample/tour")
"""Folders with an object of each kind. The fixtures are many more, and judged by the shipped policies only."""

Report = Mapping[str, Any]


class Case(NamedTuple):
    """A policy of the release before, with the facts and the objects by which it is tried."""

    policy: Path
    facts: Path
    objects: tuple[Path, ...]


def run(tree: Path, commands: Iterable[tuple[list[str], Path]], folder: Path) -> list[int]:
    """Run the command lines of a release in a folder, and return their exit statuses."""
    given = [(arguments, str(output)) for arguments, output in commands]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(
        command, cwd=folder, env=environment, input=json.dumps(given), capture_output=True, text=True, check=True
    )
    found = [int(status) for status in re.findall(r"^status (\d+)$", done.stderr, re.MULTILINE)]
    assert len(found) == len(given), done.stderr
    return found


def cases(tree: Path, written: Path) -> Iterator[Case]:
    """Each policy of the release before, and those that it wrote."""
    workloads, sample = tuple(tree / name for name in WORKLOADS), tree / "webhook/sample/facts.yaml"
    objects = (tree / "tests/fixtures", *workloads)
    yield Case(tree / "policies/sample.yaml", sample, objects)
    for policy in sorted(tree.glob("policies/*/policy.yaml")):
        yield Case(policy, policy.with_name("facts.yaml"), objects)
    for folder in sorted({file.parent for file in tree.glob("tests/fixtures/*/policy.yaml")}):
        facts = folder / "facts.yaml"
        yield Case(folder / "policy.yaml", facts if facts.exists() else sample, (folder,))
    for policy in sorted(written.glob("*.yaml")):
        yield Case(policy, tree / "tests/clusters" / policy.name, workloads)


def check(case: Case) -> list[str]:
    """The command line that judges a case."""
    options = ("--policy", str(case.policy), "--facts", str(case.facts), "--format=json")
    return ["check", *map(str, case.objects), *options]


@pytest.fixture(scope="module")
def written(release_before: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the policies that the release before writes for recorded clusters."""
    folder = tmp_path_factory.mktemp("written")
    clusters = sorted(release_before.glob("tests/clusters/*.yaml"))
    commands = [(["policy", "init", "--facts", str(each)], folder / each.name) for each in clusters]
    assert {*run(release_before, commands, release_before)} == {0}
    return folder


@pytest.fixture(scope="module")
def judged(
    release_before: Path, written: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[Path, tuple[Report, Report]]:
    """What the release before and this one report, by the policy."""
    tried, folder = [*cases(release_before, written)], tmp_path_factory.mktemp("judged")
    reports: list[list[Path]] = []
    for tree in (release_before, ROOT):
        outputs = [folder / f"{index}-{len(reports)}.json" for index in range(len(tried))]
        run(tree, zip([check(each) for each in tried], outputs, strict=True), release_before)
        reports.append(outputs)
    unread = [
        f"{each.policy}: {'this release' if before.stat().st_size else 'the release before'} does not read it"
        for each, before, now in zip(tried, *reports, strict=True)
        if not before.stat().st_size or not now.stat().st_size
    ]
    assert not unread
    return {
        each.policy: (json.loads(before.read_text("utf-8")), json.loads(now.read_text("utf-8")))
        for each, before, now in zip(tried, *reports, strict=True)
    }


def named(before: Path, now: Path = ROOT) -> set[str]:
    """The rules that the CHANGELOG of this release names in lines that that of the release before does not have."""
    old, new = ((tree / "CHANGELOG.md").read_text("utf-8").splitlines() for tree in (before, now))
    return set(re.findall(r"`([a-z-]+)`", "\n".join(line for line in new if line not in {*old})))


def by_object(report: Report) -> dict[tuple[str, int, int], Report]:
    """The results of a report, by the place of each object."""
    return {(each["file"], each["line"], each["document"]): each for each in report["results"]}


def decided(result: Report) -> set[tuple[str, str]]:
    """The rules that deny or warn, each with its action."""
    return {(each["rule"], each["action"]) for each in result["findings"] if each["action"] in ("Deny", "Warn")}


def differences(before: Report, now: Report, changed: set[str]) -> Iterator[str]:
    """Say which objects get another verdict, or patch, by a rule that is not among those that changed."""
    old, new = by_object(before), by_object(now)
    assert old.keys() == new.keys()
    for place, was in old.items():
        found = new[place]
        rules = {rule for rule, _ in decided(was) ^ decided(found)}
        if not rules and was["patch"] != found["patch"]:
            rules = {
                Path(was["file"]).parent.name
            }  # a patch does not say which rule made it; the folder of a fixture does
        if rules - changed or (was["allowed"] is not found["allowed"] and not rules):
            yield f"{place}: allowed {was['allowed']} before, {found['allowed']} now, by {sorted(rules)}"


def test_each_object_gets_the_same_verdict_unless_the_changelog_names_the_rule(
    release_before: Path, judged: Mapping[Path, tuple[Report, Report]]
) -> None:
    changed = named(release_before)
    wrong = {str(policy): lines for policy, reports in judged.items() if (lines := [*differences(*reports, changed)])}
    assert not wrong
    assert sum(report["summary"]["denied"] for report, _ in judged.values()) > len(judged)


def test_the_same_inputs_have_errors(judged: Mapping[Path, tuple[Report, Report]]) -> None:
    for policy, reports in judged.items():
        before, now = ({(each["file"], each["line"]) for each in report["errors"]} for report in reports)
        assert before == now, policy


def test_the_tests_of_its_policies_pass(release_before: Path, tmp_path: Path) -> None:
    commands = [(["test", "policies"], tmp_path / "tests.txt")]
    assert run(ROOT, commands, release_before) == [0], (tmp_path / "tests.txt").read_text("utf-8")


def test_a_verdict_that_changes_without_a_word_is_found() -> None:
    """The comparison fails for a denial that is gone, one that is new, one by another rule, and another patch."""

    def report(allowed: bool, patch: Sequence[str] = (), **findings: str) -> Report:
        made = [{"rule": rule.replace("_", "-"), "action": action} for rule, action in findings.items()]
        one = {"file": "fixtures/device-path/a.yaml", "line": 1, "document": 0, "allowed": allowed, "findings": made}
        return {"results": [{**one, "patch": [*patch]}]}

    denied = report(False, device_path="Deny")
    assert [*differences(denied, denied, set())] == []
    others = (report(True), report(False, chosen_node="Deny"), report(True, device_path="Warn"))
    for other in (*others, report(False, ["added"], device_path="Deny")):
        assert [*differences(denied, other, {"chosen-node"})], other
        assert [*differences(other, denied, {"chosen-node"})], other
        assert not [*differences(denied, other, {"chosen-node", "device-path"})]
