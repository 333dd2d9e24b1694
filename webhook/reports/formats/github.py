"""Writes workflow commands, which GitHub Actions shows as annotations of lines.

The commands and their escapes come from actions/toolkit packages/core/src/command.ts. A step shows ten of each sort.
"""

from collections.abc import Iterator

from webhook.model import Action
from webhook.scan.results import Report
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import one_line

PURPOSE = "annotations in GitHub Actions"
PROBLEMS = EXEMPTED = REPAIRED = True
NOTES = False

_COMMANDS = {Action.DENY: "error", Action.WARN: "warning", Action.AUDIT: "notice"}


def render(report: Report, _: Look = PLAIN) -> str:
    """Write a command for each finding and problem, the worst first, since GitHub shows only the first ones."""
    lines = [
        *(line for action in Action for line in _findings(report, action)),
        *(_command("warning", w.file, w.line, "suspicious input", w.message) for w in report.warnings),
        *(_command("error", p.file, p.line, "unusable input", p.message) for p in report.problems),
    ]
    return "".join(f"{line}\n" for line in lines)


def _findings(report: Report, action: Action) -> Iterator[str]:
    for judged in report.judged:
        for result, file, line in judged.located:
            if result.action is action:
                text = f"{judged.title}: {result.finding.text}"
                remark = f" ({result.remark})" if result.remark else ""
                yield _command(_COMMANDS[action], file, line, result.rule, text + remark)


def _command(command: str, file: str, line: int, title: str, message: str) -> str:
    fields = {"file": file, "line": str(line or ""), "title": title}
    properties = ",".join(f"{key}={_property(value)}" for key, value in fields.items() if value and value != "-")
    return f"::{command} {properties}::{_data(message)}"


def _data(text: str) -> str:
    lines = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return one_line(lines)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
