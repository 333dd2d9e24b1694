"""A CheckReport: one JSON object, for programs."""

import json
from typing import Any

from webhook.check import Judged, Report
from webhook.model import Result, dotted
from webhook.policy import API_VERSION


def render(report: Report) -> str:
    """Write the report as JSON."""
    results = [_result(each) for each in report.judged]
    value = {
        "apiVersion": API_VERSION,
        "kind": "CheckReport",
        "results": results,
        "errors": [{"file": p.file, "line": p.line, "message": p.message} for p in report.problems],
        "summary": {
            "objects": len(results),
            "allowed": report.count(allowed=True),
            "denied": report.count(allowed=False),
            "warned": report.warned,
            "errors": len(report.problems),
        },
    }
    return json.dumps(value, indent=2) + "\n"


def _result(judged: Judged) -> dict[str, Any]:
    value = judged.item.value
    return {
        "file": judged.file,
        "line": judged.item.line(),
        "document": judged.item.document.index,
        "apiVersion": value["apiVersion"],
        "kind": value["kind"],
        "namespace": judged.namespace,
        "name": judged.name,
        "allowed": judged.verdict.allowed,
        "findings": [_finding(judged, result) for result in judged.verdict.results],
        "patch": list(judged.verdict.patch),
        **({"explain": judged.explained.value} if judged.explained else {}),
    }


def _finding(judged: Judged, result: Result) -> dict[str, Any]:
    return {
        "rule": result.rule,
        "action": result.action.value,
        "line": judged.line(result),
        "path": dotted(result.finding.path),
        "message": result.finding.message,
    }
