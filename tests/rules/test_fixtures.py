"""Every rule against its fixtures: the verb in a file's name is the claim, `verdicts.txt` the detail."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import jsonpatch
import pytest

from tests.support.fixtures import (
    FIXTURES,
    FOLDERS,
    RULES,
    SETTINGS,
    engine_of,
    files_of,
    fixture,
    judged,
    settings,
    verb,
)
from webhook.api import admission
from webhook.api import jsonpatch as patch
from webhook.api.objects import unpaid
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Malformed, Verdict, dotted
from webhook.rules import review_of

VERBS = ("allow", "deny", "warn", "patch")

each_rule = pytest.mark.parametrize("rule", FOLDERS)


@pytest.mark.parametrize("rule", RULES)
def test_rule_has_fixtures(rule: str) -> None:
    verbs = {verb(file) for file in files_of(rule)}
    assert "allow" in verbs
    assert verbs & {"deny", "patch", "warn"}


def test_folders_are_rules() -> None:
    assert set(FOLDERS) == set(RULES)


def test_names_begin_with_a_verb() -> None:
    wrong = [file.name for file in FIXTURES.glob("*/*") if file.name not in (*SETTINGS, "verdicts.txt")]
    wrong = [name for name in wrong if name.partition("-")[0] not in VERBS or not name.endswith(".yaml")]
    assert not wrong


@each_rule
def test_verb(rule: str) -> None:
    assert {file.stem: judged(file) for file in files_of(rule) if not is_as_named(verb(file), judged(file))} == {}


def is_as_named(said: str, verdict: Verdict) -> bool:
    denied, warned = verdict.having(Action.DENY), verdict.having(Action.WARN)
    match said:
        case "allow":
            return verdict == Verdict()
        case "deny":
            return not verdict.allowed and bool(denied or verdict.malformed)
        case "warn":
            return verdict.allowed and bool(warned)
        case _:
            return verdict.allowed and bool(verdict.patch) and not verdict.results


@each_rule
def test_judging_twice_gives_the_same(rule: str) -> None:
    for file in files_of(rule):
        request = fixture(file)[2]
        assert admission.encode(request, judged(file)) == admission.encode(request, judged(file)), file.stem


@each_rule
def test_a_rule_says_whether_its_findings_have_fixes(rule: str) -> None:
    found = [finding for file in files_of(rule) for finding in unapplied(file)]
    assert found
    assert RULES[rule].mends is any(finding.fixes for finding in found)


def unapplied(file: Path) -> Iterator[Finding]:
    """Return what the rule says of its fixture as it stands, which no engine has asked for."""
    rule = RULES[file.parent.name]
    policy, facts = settings(rule.id)
    request = fixture(file)[2]
    with suppress(Malformed):
        for subject in unpaid(request, request.object or {}, request.old_object, policy.workloads):
            if isinstance(subject, rule.subject):
                yield from rule.check(review_of(subject, policy, facts))


@each_rule
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "all"])
def test_mutating_twice_changes_nothing(rule: str, alone: bool) -> None:
    for file in files_of(rule):
        is_mended_at_once(file, *engine_of(rule, alone=alone))


def is_mended_at_once(file: Path, engine: Engine, facts: Facts) -> None:
    request = fixture(file)[2]
    before = json.dumps(request.object)
    operations = engine.mutate(request, facts).patch
    if not operations:
        return
    assert request.object is not None
    mutated = patch.apply(request.object, operations)
    assert json.dumps(request.object) == before
    assert mutated == jsonpatch.apply_patch(request.object, operations)
    assert not engine.mutate(replace(request, object=mutated), facts).patch


@each_rule
def test_page(rule: str) -> None:
    page = "\n".join(entry(file) for file in files_of(rule))
    golden = FIXTURES / rule / "verdicts.txt"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(page, "utf-8")
    assert golden.exists(), "no golden page: run make fixtures, and read what it writes"
    assert page == golden.read_text("utf-8"), "if the change is wanted: make fixtures, and read the diff"


def entry(file: Path) -> str:
    verdict = judged(file)
    lines = [f"{file.stem}: {'allowed' if verdict.allowed else 'denied'}"]
    lines += findings(file, verdict)
    lines += [json.dumps(operation, separators=(",", ":")) for operation in verdict.patch]
    return "\n  ".join(lines) + "\n"


def findings(file: Path, verdict: Verdict) -> Iterator[str]:
    document, base, _ = fixture(file)
    if broken := verdict.malformed:
        yield f"malformed, line {document.line((*base, *broken.path))}: {broken}"
    for result in verdict.results:
        finding = result.finding
        line = document.line((*base, *finding.path), finding.text_line)
        yield f"{result.action} {result.rule}, line {line}: {dotted(finding.path)}: {finding.message}"


@each_rule
def test_a_user_namespace_changes_no_verdict(rule: str) -> None:
    """SECURITY.md says so: the device files of GPUs are open to every user."""
    engine, facts = engine_of(rule, alone=False)
    for file in files_of(rule):
        request = fixture(file)[2]
        item = request.object
        if (request.kind, request.operation) != ("Pod", "CREATE") or not isinstance((item or {}).get("spec"), dict):
            continue
        assert isinstance(item, dict)
        own = replace(request, object={**item, "spec": {**item["spec"], "hostUsers": False}}, size=None)
        assert engine.judge(own, facts).results == engine.judge(replace(request, size=None), facts).results, file.stem
