"""The command line and the webhook say the same of every fixture and of every request that was recorded."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from webhook import batches, dialect, patch, review, rules, server
from webhook.check import Judged
from webhook.engine import Engine
from webhook.facts import Facts
from webhook.files import items, load
from webhook.model import Problem
from webhook.policy_file import load as load_policy

ROOT = Path(__file__).parent.parent
FIXTURES, RECORDED = ROOT / "tests/fixtures", ROOT / "tests/recorded"
SETTINGS = ("policy.yaml", "facts.yaml")
FILES = {
    RECORDED: sorted(RECORDED.glob("*.json")),
    **{
        folder: [file for file in sorted(folder.glob("*.yaml")) if file.name not in SETTINGS]
        for folder in sorted(FIXTURES.iterdir())
    },
}


@cache
def settings(folder: Path) -> tuple[Engine, Facts, Any]:
    """An engine of all rules with a folder's own policy, its facts, and a webhook over both."""
    own = (folder / name for name in SETTINGS)
    samples = (ROOT / "policies/sample.yaml", ROOT / "webhook/sample/facts.yaml")
    policy, known = (str(mine if mine.exists() else sample) for mine, sample in zip(own, samples, strict=True))
    engine = Engine(load_policy(load([policy])[0], [rule.id for rule in rules.walk()], policy), rules.walk())
    facts = Facts.of(item.value for item in items(load([known])[0])[0])
    return engine, facts, server.application(engine, lambda: facts, lambda _: None).test_client()


def answers(client: Any, body: Any) -> Iterator[Any]:
    """Ask both halves, as an API server does: the second about what the first made of the object."""

    def ask(half: str) -> Any:  # keys in their order, which messages keep
        return client.post(half, data=json.dumps(body), content_type="application/json").get_json()["response"]

    mutated = ask("/mutate")
    yield mutated
    if "patch" in mutated:
        made = patch.apply(body["request"]["object"], json.loads(base64.b64decode(mutated["patch"])))
        body = {**body, "request": {**body["request"], "object": made}}
    yield ask("/validate")


@pytest.mark.parametrize("folder", FILES, ids=lambda folder: folder.name)
def test_the_command_says_what_the_webhook_says(folder: Path) -> None:
    assert FILES[folder]
    for file in FILES[folder]:
        is_said_by_both(file, *settings(folder), datetime.now(UTC))


def is_said_by_both(file: Path, engine: Engine, facts: Facts, client: Any, now: datetime) -> None:
    value = dialect.parse(file.read_text("utf-8"))[0]
    body = value if value["kind"] == "AdmissionReview" else json.loads(review.wrap(value))
    request = review.decode(json.dumps(body).encode())
    mutated, validated = answers(client, body)
    report = batches.read([str(file)]).judge(engine, facts, at=now)
    found: list[Judged | Problem] = [*report.judged, *report.problems]
    if not found:  # of a kind that is not judged, of which the webhook says nothing
        assert (validated["uid"], validated["allowed"]) == (request.uid, True)
        return
    (said,) = found
    if isinstance(said, Problem):
        assert (validated["status"]["code"], validated["status"]["message"]) == (422, said.message)
        return
    told = json.loads(review.encode(request, said.verdict, engine.policy.digest))["response"]
    assert {key: told.pop(key, None) for key in ("patch", "patchType")} == {
        key: mutated.get(key) for key in ("patch", "patchType")
    }
    assert told == validated
