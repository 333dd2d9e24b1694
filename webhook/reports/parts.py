"""Writes the parts that the JSON reports of several commands have in common."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from webhook.model import Problem, Result, dotted
from webhook.policy.model import API_VERSION
from webhook.scan.results import Judged, Report


def document(kind: str, fields: Mapping[str, Any]) -> str:
    """Write a report of a kind of ours as one JSON object, indented."""
    return written({"apiVersion": API_VERSION, "kind": kind, **fields})


def written(value: Mapping[str, Any]) -> str:
    """Write a JSON object, indented."""
    return json.dumps(value, indent=2) + "\n"


def policy(report: Report) -> dict[str, str]:
    """Name the policy of a report."""
    return {"name": report.policy.name, "digest": report.policy.digest}


def judged(judged: Judged) -> dict[str, Any]:
    """Name an object, with its place in the input."""
    return {
        "file": judged.file,
        "line": judged.line,
        "document": judged.document,
        "apiVersion": judged.api_version,
        "kind": judged.kind,
        "namespace": judged.namespace,
        "name": judged.name,
    }


def result(result: Result) -> dict[str, str]:
    """Write a finding's place and its message."""
    return {"path": dotted(result.finding.path), "message": result.finding.message}


def remarks(result: Result) -> dict[str, Any]:
    """Return the fields that name the exemption of a finding, or say that the finding would be repaired."""
    return {
        **({"exemption": result.exemption} if result.exemption else {}),
        **({"repaired": True} if result.repaired else {}),
    }


def problems(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """List problems with their places."""
    return [{"file": problem.file, "line": problem.line, "message": problem.message} for problem in problems]
