"""Reports the lints of a policy: a table for people, JSON for programs. The other formats are those of a check."""

from collections import Counter
from collections.abc import Iterator

from webhook.model import Action, Result, dotted
from webhook.reports import parts
from webhook.scan.results import Report
from webhook.text.terminal import Look
from webhook.text.words import several

SEVERITIES = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "note"}
"""How severe a lint is, by the action of its finding."""

_STYLES = {Action.DENY: "denied", Action.WARN: "warned", Action.AUDIT: "faint"}


def table(report: Report, look: Look) -> str:
    """Write each problem with its place, and the count."""
    lines = [row for judged in report.judged for found in judged.located for row in _problem(*found, look)]
    if not look.quiet:
        lines += [*([""] if lines else ()), *look.wrap(_summary(report), "")]
    return "".join(f"{line}\n" for line in lines)


def _problem(result: Result, file: str, line: int, look: Look) -> Iterator[str]:
    word = look.paint(f"{SEVERITIES[result.action]:<7}", _STYLES[result.action])
    *above, head = look.beside(word, f"{file}:{line}" if line else file, " " * 9)
    yield from above
    *above, head = look.beside(head, result.rule, " " * 9, "strong")
    yield from above
    yield from look.beside(head, dotted(result.finding.path), " " * 9)
    yield from look.wrap(result.finding.message, " " * 9)


def _summary(report: Report) -> str:
    counts = Counter(result.action for judged in report.judged for result in judged.verdict.results)
    found = [several(counts[action], word) for action, word in SEVERITIES.items() if counts[action]]
    policies = "policy" if len(report.judged) == 1 else "policies"
    return f"{', '.join(found)} in {len(report.judged)} {policies}" if found else "No problems found."


def write(report: Report, _: Look) -> str:
    """Write a LintReport in JSON."""
    value = {
        "policy": parts.policy(report),
        "problems": [
            {
                "file": file,
                "line": line,
                "lint": result.rule,
                "severity": SEVERITIES[result.action],
                **parts.result(result),
            }
            for judged in report.judged
            for result, file, line in judged.located
        ],
        "summary": counts(report),
    }
    return parts.document("LintReport", value)


def counts(report: Report) -> dict[str, int]:
    """Count the problems by how severe they are."""
    return {
        f"{word}s": sum(len(judged.verdict.having(action)) for judged in report.judged)
        for action, word in SEVERITIES.items()
    }
