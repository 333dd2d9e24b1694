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
    FILES,
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


@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.parent.name}/{f.stem}")
def test_verb(file: Path) -> None:
    verdict = judged(file)
    denied, warned = verdict.having(Action.DENY), verdict.having(Action.WARN)
    match verb(file):
        case "allow":
            assert verdict == Verdict()
        case "deny":
            assert not verdict.allowed
            assert denied or verdict.malformed
        case "warn":
            assert verdict.allowed
            assert warned
        case _:
            assert verdict.allowed
            assert verdict.patch
            assert not verdict.results


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


OF_PODS = [file for file in FILES if fixture(file)[2].kind == "Pod" and fixture(file)[2].operation == "CREATE"]


@pytest.mark.parametrize("file", OF_PODS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_user_namespace_changes_no_verdict(file: Path) -> None:
    """SECURITY.md says so: the device files of GPUs are open to every user."""
    _, _, request = fixture(file)
    engine, facts = engine_of(file.parent.name, alone=False)
    item = request.object
    assert isinstance(item, dict)
    if not isinstance(item.get("spec"), dict):
        return
    own = replace(request, object={**item, "spec": {**item["spec"], "hostUsers": False}}, size=None)
    assert engine.judge(own, facts).results == engine.judge(replace(request, size=None), facts).results
