"""Finds and judges the fixtures of the rules."""

import json
import re
from functools import cache
from pathlib import Path

from tests import ROOT
from tests.support import policies
from webhook import rules
from webhook.api import admission
from webhook.documents import documents
from webhook.documents.documents import Document
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Path as Place
from webhook.model import Request, Verdict
from webhook.policy.model import Policy

FIXTURES = ROOT / "tests" / "fixtures"
RULES = {rule.id: rule for rule in rules.walk()}
FOLDERS = sorted(folder.name for folder in FIXTURES.iterdir() if folder.is_dir())
REFUSED = re.compile(r"^# refused: .+\n\Z", re.MULTILINE)
"""The last line of a fixture that an API server does not send to the webhook, with the reason."""
SETTINGS = ("policy.yaml", "facts.yaml")
FILES = sorted(file for file in FIXTURES.glob("*/*.yaml") if file.name not in SETTINGS)

WAYS = frozenset(
    {
        "broad-toleration",
        "chosen-node",
        "device-annotation",
        "device-mount",
        "device-path",
        "forged-placement",
        "host-namespaces",
        "privileged-container",
        "unguarded-container",
        "unlisted-claim",
        "unread-variables",
        "visible-devices",
    }
)
"""Rules that judge a place by itself; lifted-limit asks as well which pool a pod belongs to."""


@cache
def settings(rule: str) -> tuple[Policy, Facts]:
    """Return the policy and facts of a rule's folder, or the sample's if the folder has none."""
    policy, facts = (FIXTURES / rule / name for name in SETTINGS)
    return (
        policies.policy_of(policy if policy.exists() else policies.POLICY),
        policies.facts_of(facts if facts.exists() else policies.FACTS),
    )


@cache
def fixture(file: Path) -> tuple[Document, Place, Request]:
    """Return the one document of a fixture, the path of the judged object in it, and the request that it makes."""
    (document,), problems = documents.read(file.read_text("utf-8"), file.name)
    assert problems == []
    if document.value["kind"] == "AdmissionReview":
        return document, ("request", "object"), admission.decode(json.dumps(document.value).encode())
    return document, (), admission.decode(admission.wrap(document.value))


@cache
def engine_of(rule: str, *, alone: bool = True) -> tuple[Engine, Facts]:
    """Return the engine for a rule's fixtures: with only that rule, or with all rules."""
    chosen, facts = settings(rule)
    return Engine(chosen, [RULES[rule]] if alone else [*RULES.values()]), facts


@cache
def files_of(rule: str) -> tuple[Path, ...]:
    """Return the fixtures of a rule."""
    return tuple(file for file in FILES if file.parent.name == rule)


def judged(file: Path) -> Verdict:
    """Return the verdict of only the fixture's rule."""
    engine, facts = engine_of(file.parent.name)
    return engine.judge(fixture(file)[2], facts)


def verb(file: Path) -> str:
    """Return the claim in a fixture's name: allow, deny, warn or patch."""
    return file.name.partition("-")[0]
