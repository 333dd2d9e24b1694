"""Writes a GitLab code quality report, which a merge request shows next to the changed lines.

The format is https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format: paths from the root of the
repository, and a line for everything.
"""

import json
from collections import Counter
from typing import Any

from webhook.model import Action, Problem
from webhook.scan.results import Judged, Report, fingerprint
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import sha256

PURPOSE = "code quality of GitLab"
PROBLEMS = REPAIRED = True
NOTES = EXEMPTED = False

_SEVERITIES = {Action.DENY: "critical", Action.WARN: "minor", Action.AUDIT: "info"}


def render(report: Report, _: Look = PLAIN) -> str:
    """Write every finding without an exemption, every problem and every warning."""
    seen = Counter[str]()
    findings = [finding for judged in report.judged for finding in _findings(judged, seen)]
    problems = [_problem(problem, "unusable-input", "blocker") for problem in report.problems]
    warnings = [_problem(warning, "suspicious-input", "minor") for warning in report.warnings]
    return json.dumps([*findings, *problems, *warnings], indent=1) + "\n"


def _findings(judged: Judged, seen: Counter[str]) -> list[dict[str, Any]]:
    return [
        _issue(
            f"{judged.title}: {result.finding.text}{' (would be repaired)' if result.repaired else ''}",
            result.rule,
            _SEVERITIES[result.action],
            fingerprint(judged, result, seen),
            file or judged.title,
            line,
        )
        for result, file, line in judged.located
        if not result.exemption
    ]


def _problem(problem: Problem, rule: str, severity: str) -> dict[str, Any]:
    name = sha256(str(problem))[:32]
    return _issue(problem.message, rule, severity, name, problem.file, problem.line)


def _issue(text: str, rule: str, severity: str, name: str, file: str, line: int) -> dict[str, Any]:
    return {
        "description": text,
        "check_name": rule,
        "severity": severity,
        "fingerprint": name,
        "location": {"path": file, "lines": {"begin": line or 1}},
    }
