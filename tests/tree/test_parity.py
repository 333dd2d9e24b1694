"""The webhook, the command line and an audit say the same of every fixture and of every request that was recorded.

What an audit cannot see: an object that is deleted, or that no cluster keeps, as a Binding or what comes under a
subresource; what an update replaced; who asked. So it is held against what the webhook would say of the object as it
stands, were it created by nobody in particular, before mutation and after.
"""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.asking import ask
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.api.objects import BINDING, judges
from webhook.documents import goyaml
from webhook.documents.files import items, load
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object, Problem, Request, Verdict
from webhook.policy.load import load as load_policy
from webhook.scan import batches, occupancy
from webhook.scan.audit import Audit
from webhook.serving.app import ReviewApplication
from webhook.text.words import unquoted

FIXTURES, RECORDED = ROOT / "tests/fixtures", ROOT / "tests/recorded"
SETTINGS = ("policy.yaml", "facts.yaml")
FILES = {
    RECORDED: sorted(RECORDED.glob("*.json")),
    **{
        folder: [file for file in sorted(folder.glob("*.yaml")) if file.name not in SETTINGS]
        for folder in sorted(FIXTURES.iterdir())
    },
}
WRITTEN = ("patch", "patchType")


@cache
def settings(folder: Path) -> tuple[Engine, Facts, Any]:
    """An engine of all rules with a folder's own policy, its facts, and a webhook over both."""
    own = (folder / name for name in SETTINGS)
    samples = (ROOT / "policies/sample.yaml", ROOT / "webhook/sample/facts.yaml")
    policy, known = (str(mine if mine.exists() else sample) for mine, sample in zip(own, samples, strict=True))
    engine = Engine(load_policy(load([policy])[0], [rule.id for rule in rules.walk()], policy), rules.walk())
    facts = Facts.of(item.value for item in items(load([known])[0])[0])
    return engine, facts, ReviewApplication(engine, lambda: facts, lambda _: None)


@cache
def read(file: Path) -> tuple[Any, Request]:
    """The review of a file: its own, or the one by which its object would be created."""
    value = goyaml.parse(file.read_text("utf-8"))[0]
    body = value if value["kind"] == "AdmissionReview" else json.loads(admission.wrap(value))
    return body, admission.decode(json.dumps(body).encode())


# Three ways to ask; each gives the answer that the webhook would have sent


def asked(client: Any, half: str, body: Any) -> Any:
    """Ask as an API server does, with the keys in their order, which messages keep."""
    return json.loads(ask(client, half, json.dumps(body).encode()).body)["response"]


def commanded(file: Path, engine: Engine, facts: Facts) -> Verdict | Problem | None:
    """Return what the command line says of a file; None of a kind that is not judged."""
    report = batches.read([str(file)]).judge(engine, facts, at=datetime.now(UTC))
    assert len(report.judged) + len(report.problems) <= 1
    for each in report.judged:
        return each.verdict
    return next(iter(report.problems), None)


def audited(item: Object, engine: Engine, facts: Facts) -> Verdict | Problem | None:
    """Return what an audit says of an object by the rules; None of what has ended, or is reported by its owner."""
    audit = Audit(engine, facts, everything=True, system=True)
    audit.take(item)
    assert len(audit.judged) + len(audit.problems) == audit.count <= 1
    for each in audit.judged:
        results = tuple(result for result in each.verdict.results if result.rule not in occupancy.PAGES)
        return each.verdict._replace(results=results)
    return next(iter(audit.problems), None)


def same(said: Verdict | Problem | None, answer: Any, request: Request, engine: Engine) -> None:
    """See that what was said is the answer, but for the patch, which is the other half's."""
    if said is None:  # nothing is said of it, and the webhook lets it pass
        assert (answer["uid"], answer["allowed"]) == (request.uid, True)
    elif isinstance(said, Problem):
        message = answer["status"]["message"]
        assert answer["status"]["code"] == 422
        assert said.message in {message + unquoted(value) for value in (True, 1, "")}  # a file has quotes, or none
    else:
        told = admission.encode(request, said._replace(patch=()), engine.policy.digest)
        assert json.loads(told)["response"] == answer


def standing(request: Request) -> Object | None:
    """A request's object as a list of them shows it: the API server has named it, and told its kind and namespace."""
    item = request.object
    kind = request.group, request.kind
    if item is None or request.subresource or kind == BINDING or not judges(*kind):
        return None
    version = f"{request.group}/{request.version}" if request.group else request.version
    metadata = {"name": "n", "uid": "u", **(item.get("metadata") or {})}
    if request.namespace:
        metadata["namespace"] = request.namespace
    return {**item, "apiVersion": version, "kind": request.kind, "metadata": metadata}


def created(item: Object) -> Any:
    """The review by which an object would have come, before a scheduler chose its node."""
    if item["kind"] == "Pod" and "managedFields" in item["metadata"]:
        item = {**item, "spec": {key: value for key, value in item["spec"].items() if key != "nodeName"}}
    return json.loads(admission.wrap(item))


@pytest.mark.parametrize("folder", FILES, ids=lambda folder: folder.name)
def test_the_command_and_an_audit_say_what_the_webhook_says(folder: Path) -> None:
    assert FILES[folder]
    for file in FILES[folder]:
        is_said_by_all(file, *settings(folder))


def is_said_by_all(file: Path, engine: Engine, facts: Facts, client: Any) -> None:
    body, request = read(file)
    mutated, made = asked(client, "/mutate", body), request.object
    if "patch" in mutated:
        made = jsonpatch.apply(body["request"]["object"], json.loads(base64.b64decode(mutated["patch"])))
    said = commanded(file, engine, facts)
    same(said, asked(client, "/validate", {**body, "request": {**body["request"], "object": made}}), request, engine)
    if isinstance(said, Verdict):
        told = json.loads(admission.encode(request, said))["response"]
        assert {key: told.get(key) for key in WRITTEN} == {key: mutated.get(key) for key in WRITTEN}

    for each in (request.object, made):
        if (item := standing(replace(request, object=each))) and (found := audited(item, engine, facts)):
            once = created(item)
            same(found, asked(client, "/validate", once), admission.decode(json.dumps(once).encode()), engine)


def test_an_audit_says_something_of_what_stands_in_a_cluster() -> None:
    said, unsaid = list[Verdict | Problem](), set[str]()
    for file in chain(*FILES.values()):
        engine, facts, _ = settings(file.parent)
        if item := standing(read(file)[1]):
            if found := audited(item, engine, facts):
                said.append(found)
            else:
                unsaid.add(file.stem)
    assert sum(isinstance(each, Problem) or bool(each.results) for each in said) > 600
    assert unsaid == {
        *("create-replicaset-deployment", "update-replicaset-deployment", "deny-replica-set-of-a-stranger"),
        *("update-job", "update-pod-job"),  # which have ended
    }
