"""Good input to begin from: what a real API server sent, the rules' fixtures, configurations, policies."""

import json
from functools import cache
from typing import Any

import yaml

from tests import ROOT
from webhook.api import admission
from webhook.documents import goyaml, marks
from webhook.documents.documents import read

TESTS = ROOT / "tests"
ROOT = TESTS.parent
RULES = ROOT / "webhook" / "rules"


def recorded() -> list[dict[str, Any]]:
    """The requests of `tests/recorded`, without the fields that only say who wrote which field."""
    found = [json.loads(file.read_text("utf-8")) for file in sorted((TESTS / "recorded").glob("*.json"))]
    for each in found:
        for key in ("object", "oldObject"):
            metadata = (each["request"].get(key) or {}).get("metadata") or {}
            metadata.pop("managedFields", None)
    return found


@cache
def objects() -> tuple[dict[str, Any], ...]:
    """Every object of the fixtures, of the workload kinds and of the sample cluster."""
    files = [
        *(file for file in sorted((TESTS / "fixtures").rglob("*.yaml")) if file.stem != "policy"),
        *sorted((TESTS / "kinds").glob("*.yaml")),
        *sorted((ROOT / "webhook" / "sample").rglob("*.yaml")),
    ]
    found: list[dict[str, Any]] = []
    for file in files:
        for document in read(file.read_text("utf-8"), file.name)[0]:
            value = document.value
            found += value["items"] if value.get("kind") == "List" else [value]
    return tuple(each for each in found if "kind" in each)


def wrapped() -> list[dict[str, Any]]:
    """Reviews of all those objects, created, changed and deleted."""
    found = []
    for number, item in enumerate(objects()):
        if item.get("kind") == "AdmissionReview":
            found.append(item)
            continue
        each = json.loads(admission.wrap(item, uid=f"u{number}"))
        request = each["request"]
        request["userInfo"] = {"username": "system:serviceaccount:vision:builder", "groups": ["system:serviceaccounts"]}
        if number % 4 == 1:
            request.update(operation="UPDATE", oldObject=json.loads(json.dumps(item)))
        elif number % 16 == 2:
            request.update(operation="DELETE", oldObject=request["object"], object=None)
        found.append(each)
    return found


def configurations() -> list[str]:
    """Texts of device-plugin configurations, and of a hundred other things in YAML."""
    found = [text for item in objects() if item["kind"] == "ConfigMap" for text in (item.get("data") or {}).values()]
    verdicts = json.loads((TESTS / "conformance" / "verdicts.json").read_text("utf-8"))
    found += [text for group in verdicts.values() for text in group]
    return list(dict.fromkeys(text for text in found if isinstance(text, str) and len(text) < 20_000))


def policies() -> list[str]:
    """The sample policy, and those of the fixtures."""
    files = [*sorted((ROOT / "policies").glob("sample.yaml")), *sorted((TESTS / "fixtures").rglob("policy.yaml"))]
    return list(dict.fromkeys(file.read_text("utf-8") for file in files))


def tree(text: str) -> Any:
    """A YAML text as a JSON value; None if it cannot be read."""
    try:
        return goyaml.parse(text)[0]
    except (marks.Unreadable, yaml.YAMLError):
        return None
