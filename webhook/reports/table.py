"""Writes a table for people: a line for each object, with its findings and its patch below."""

import json
from collections.abc import Iterator

from webhook.api.jsonpatch import Operation
from webhook.model import Action, dotted
from webhook.scan.results import Judged, Report, passed_over
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import several


def render(report: Report, look: Look = PLAIN) -> str:
    """Write the report as aligned text."""
    lines = [line for judged in report.judged for line in _object(judged, look, explained=report.explained)]
    lines += [line for problem in report.problems for line in look.error(str(problem))]
    if lines:
        lines.append("")
    summary = (
        f"{several(len(report.judged), 'object')}: {report.count(allowed=True)} allowed, "
        f"{report.count(allowed=False)} denied, {report.warned} with warnings; "
        f"{several(len(report.problems), 'error')}"
    )
    lines += look.wrap(summary, "")
    if report.unjudged:
        lines += look.wrap(passed_over(report.unjudged), "")
    return "\n".join(lines) + "\n"


def _object(judged: Judged, look: Look, *, explained: bool) -> Iterator[str]:
    word = "allowed" if judged.verdict.allowed else "denied"
    style = "warned" if judged.verdict.allowed and judged.warned else word
    head = look.paint(f"{word:<7}", style)
    operation = judged.operation if judged.operation != "CREATE" else ""
    for part, shade in ((judged.place, ""), (judged.title, "strong"), (operation, "")):
        if part:
            *above, head = look.beside(head, part, " " * 9, shade)
            yield from above
    yield head
    width = max((len(result.rule) for result in judged.verdict.results), default=0)
    for result, line in judged.findings:
        where = f"line {line:<4} " if line else ""
        action = look.paint(f"{result.action:<6}", _STYLES[result.action])
        yield from look.beside(f"  {action} {where}{result.rule:<{width}}", dotted(result.finding.path), " " * 9)
        exempt = f" (exempted by {result.exemption})" if result.exemption else ""
        yield from look.wrap(f"{result.finding.message}{exempt}", " " * 9)
    for landing in judged.landings:
        where = f"{dotted(landing.path)}: " if len(judged.landings) > 1 else ""
        yield from look.hang("  lands  ", where + landing.brief)
        if explained:
            yield from look.hang("  memory ", landing.memory)
    if judged.diff and explained:
        for row in judged.diff.splitlines():
            yield f"    {look.paint(row, _ROWS.get(row[:1], ''))}"
    else:
        for operation_ in judged.verdict.patch:
            yield from _change(operation_, look)


_STYLES = {Action.DENY: "denied", Action.WARN: "warned", Action.AUDIT: "faint"}
_ROWS = {"+": "added", "-": "removed", "@": "faint"}
_LONGEST = 200
"""Characters of a value that are shown. `--explain` shows all of them."""


def _change(operation: Operation, look: Look) -> Iterator[str]:
    sign = "+" if operation["op"] == "add" else "~"
    value = json.dumps(operation["value"])
    value = value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."
    path = dotted(tuple(map(_key, operation["path"].split("/")[1:])))
    yield from look.hang("  patch  ", f"{sign} {path}: {value}", "added")


def _key(text: str) -> str | int:
    return int(text) if text.isdecimal() else text.replace("~1", "/").replace("~0", "~")
