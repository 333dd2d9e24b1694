"""A table for people: a line an object, its findings and its patch below it."""

from collections.abc import Iterator

from webhook.check import Judged, Report
from webhook.model import dotted, shown
from webhook.terminal import PLAIN, Look


def render(report: Report, look: Look = PLAIN) -> str:
    """Write the report as aligned text."""
    lines = [line for judged in report.judged for line in _object(judged, look, explained=report.explained)]
    lines += [f"error    {problem}" for problem in report.problems]
    if lines:
        lines.append("")
    lines.append(
        f"{_several(len(report.judged), 'object')}: {report.count(allowed=True)} allowed, "
        f"{report.count(allowed=False)} denied, {report.warned} with warnings; "
        f"{_several(len(report.problems), 'error')}"
    )
    return "\n".join(lines) + "\n"


def _object(judged: Judged, look: Look, *, explained: bool) -> Iterator[str]:
    word = "allowed" if judged.verdict.allowed else "denied"
    name = shown("/".join(filter(None, (judged.namespace, judged.name))), quotes=False)
    place = f"{judged.place}  " if judged.place else ""
    yield f"{look.paint(f'{word:<7}', word)}  {place}{judged.kind} {name}"
    width = max((len(result.rule) for result in judged.verdict.results), default=0)
    for result, line in judged.findings:
        where = f"line {line:<4} " if line else ""
        yield f"  {result.action:<6} {where}{result.rule:<{width}}  {dotted(result.finding.path)}"
        exempt = f" (exempted by {result.exemption})" if result.exemption else ""
        yield from look.wrap(f"{result.finding.message}{exempt}", " " * 9)
    if explained:
        for landing in judged.landings:
            yield from look.wrap(landing.text, "  ")
    for operation in judged.verdict.patch:
        yield f"  patch  {operation['op']} {operation['path']}"


def _several(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
