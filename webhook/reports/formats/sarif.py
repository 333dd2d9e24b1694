"""Writes SARIF 2.1.0 for code scanning: https://docs.oasis-open.org/sarif/sarif/v2.1.0/.

`help` is a rule's page. There is no `helpUri`, since the project has no permanent address. A result has no `fixes`:
the webhook makes them when the pod is created, which leaves no result. They also depend on the cards and pools of a
cluster, to which a manifest should not be bound.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from webhook import rules
from webhook.model import Action, Problem, Result, dotted
from webhook.scan.results import Judged, Report, fingerprint
from webhook.text.terminal import PLAIN, Look

PURPOSE = "for code scanning, SARIF 2.1.0"
PROBLEMS = EXEMPTED = REPAIRED = True
NOTES = False

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_LEVELS = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report as one run."""
    pages = {**{rule.id: rule.page for rule in rules.walk()}, **report.pages}
    seen = Counter[str]()
    run = {
        "tool": {"driver": {"name": "Slicewarden", "rules": [_rule(*page) for page in sorted(pages.items())]}},
        "columnKind": "utf16CodeUnits",
        "invocations": [
            {
                "executionSuccessful": not report.problems,
                "toolExecutionNotifications": [
                    *(_notification(problem, "error") for problem in report.problems),
                    *(_notification(warning, "warning") for warning in report.warnings),
                ],
            }
        ],
        "results": [_result(judged, *finding, seen) for judged in report.judged for finding in judged.located],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(rule: str, page: str) -> dict[str, Any]:
    first, _, rest = page.partition("\n")
    return {
        "id": rule,
        "name": "".join(word.capitalize() for word in rule.split("-")),
        "shortDescription": {"text": first},
        "fullDescription": {"text": " ".join((rest.strip().partition("\n\n")[0] or first).split())},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["kubernetes", "gpu"]},
    }


def _result(judged: Judged, result: Result, file: str, line: int, seen: Counter[str]) -> dict[str, Any]:
    suppressed = {"kind": "external", "justification": f"exempted by {result.exemption} in the policy"}
    place = f"{judged.title}: {dotted(result.finding.path)}"
    return {
        "ruleId": result.rule,
        "level": _LEVELS[result.action],
        "message": {
            "text": f"{judged.title}: {result.finding.text}{' (would be repaired)' if result.repaired else ''}"
        },
        "locations": [
            {
                **_physical(file, line),
                "logicalLocations": [{"fullyQualifiedName": place, "kind": "object"}],
            }
        ],
        "partialFingerprints": {"slicewarden/v1": fingerprint(judged, result, seen)},
        **({"properties": {"repaired": True}} if result.repaired else {}),
        **({"suppressions": [suppressed]} if result.exemption else {}),
    }


def _notification(problem: Problem, level: str) -> dict[str, Any]:
    where = _physical(problem.file, problem.line)
    return {"level": level, "message": {"text": problem.message}, **({"locations": [where]} if where else {})}


def _physical(file: str, line: int) -> dict[str, Any]:
    if not file:
        return {}
    return {"physicalLocation": dict(_place(file, line))}


def _place(file: str, line: int) -> Iterator[tuple[str, Any]]:
    path = PurePath(file)
    name = quote(path.as_posix().encode("utf-8", "surrogateescape"))
    yield "artifactLocation", {"uri": f"file://{name}" if path.is_absolute() else name}
    if line:
        yield "region", {"startLine": line}
