"""Makes policies of clusters with `policy init`, and runs the lints on them."""

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from tests import ROOT
from tests.support.policies import POLICY, policy_of
from webhook import lints, rules
from webhook.cli import inputs
from webhook.documents.documents import read
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.policy.load import load_with_document
from webhook.scan import reduced
from webhook.starter import starter

SAMPLE = policy_of(POLICY)

DUMPS = sorted((ROOT / "tests/clusters").glob("**/*.yaml"))


def options(file: Path) -> dict[str, Any]:
    """Return the options that an administrator has to give to `policy init` for the cluster of a dump."""
    return {"accelerators": ("nvidia-l4", "nvidia-tesla-t4")} if file.stem == "gke-autopilot" else {}


def objects(file: Path) -> list[Any]:
    """Return the objects of a dump."""
    return [item.value for item in inputs.load_objects(str(file))]


def made(items: list[Any], **more: Any) -> starter.Starter:
    """Return the policy that `policy init` makes from objects."""
    return starter.make(reduced.reduced(items, SAMPLE), "cluster.json", **more)


def settled(items: list[Any], **more: Any) -> tuple[starter.Starter, list[Any]]:
    """Return a cluster's policy after its administrators followed the notes, and the cluster with their labels."""
    notes = "\n".join(made(items, **more).notes)
    sharing = [name for names in re.findall("no label trusts them: ([^;]+);", notes) for name in names.split(", ")]
    labels = {"slicewarden.dev/trust": "trusted"}
    known = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n, "labels": labels}} for n in sharing]
    items = [*items, *known]
    return made(items, no_tenants=re.findall(r"--no-tenants ([-\w]+)", notes), **more), items


def linted(text: str, facts: Facts) -> list[tuple[str, Action]]:
    """Return the findings of the lints about a policy, by lint and severity."""
    documents, problems = read(text, "policy.yaml")
    assert not problems
    policy, document = load_with_document(documents, [rule.id for rule in rules.walk()], "policy.yaml")
    (judged,) = lints.lint(policy, document, facts, date(2026, 1, 1), timedelta(30)).judged
    return [(result.rule, result.action) for result in judged.verdict.results]


def spec_of(text: str) -> Any:
    """Return the spec of a policy as it is written in its file."""
    ((document, *bindings), _) = read(text, "policy.yaml")
    assert {each.value["kind"] for each in bindings} <= {"RoleBinding"}
    return document.value["spec"]
