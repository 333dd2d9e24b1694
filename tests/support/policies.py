"""Reads the sample policy and its facts, and others."""

from pathlib import Path

from tests import ROOT
from webhook.documents.documents import read
from webhook.facts.snapshot import Facts
from webhook.policy.load import load
from webhook.policy.model import Policy
from webhook.rules import walk

POLICY, FACTS = ROOT / "policies/sample.yaml", ROOT / "webhook/sample/facts.yaml"
SHARING = ROOT / "policies/sharing.yaml"
"""The right to read the sharing configurations that the sample policy names."""
OPTIONS = ("--policy", str(POLICY), "--facts", str(FACTS))
RULES = [rule.id for rule in walk()]


def sample() -> str:
    """Return the sample policy with the right to read the objects it names, as `policy init` writes them together."""
    return POLICY.read_text("utf-8") + "---\n" + SHARING.read_text("utf-8")


def policy_of(source: str | Path, name: str = "p.yaml") -> Policy:
    """Return the policy in a text or a file. Raises webhook.model.Unusable if it has errors."""
    text, name = (source, name) if isinstance(source, str) else (source.read_text("utf-8"), source.name)
    documents, problems = read(text, name)
    assert problems == []
    return load(documents, RULES, name)


def facts_of(source: str | Path) -> Facts:
    """Return the facts in a text or a file: its objects, and the items of its lists."""
    documents, problems = read(source if isinstance(source, str) else source.read_text("utf-8"), "facts.yaml")
    assert problems == []
    values = (document.value for document in documents)
    return Facts.of(item for value in values for item in (value["items"] if value["kind"] == "List" else [value]))
