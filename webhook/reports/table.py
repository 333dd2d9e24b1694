"""A table for people: a line an object, its findings and its patch below it."""

from collections.abc import Iterator

from webhook.check import Judged, Report
from webhook.model import dotted, shown


def render(report: Report) -> str:
    """Write the report as aligned text."""
    lines = [line for judged in report.judged for line in _object(judged)]
    lines += [f"error    {problem}" for problem in report.problems]
    if lines:
        lines.append("")
    lines.append(
        f"{_several(len(report.judged), 'object')}: {report.count(allowed=True)} allowed, "
        f"{report.count(allowed=False)} denied, {report.warned} with warnings; "
        f"{_several(len(report.problems), 'error')}"
    )
    return "\n".join(lines) + "\n"


def _object(judged: Judged) -> Iterator[str]:
    word = "allowed" if judged.verdict.allowed else "denied "
    name = shown("/".join(filter(None, (judged.namespace, judged.name))), quotes=False)
    yield f"{word}  {judged.file}:{judged.item.line()}  {judged.item.value['kind']} {name}"
    width = max((len(result.rule) for result in judged.verdict.results), default=0)
    for result in judged.verdict.results:
        place = f"line {judged.line(result):<4} {result.rule:<{width}}  {dotted(result.finding.path)}"
        yield f"  {result.action:<6} {place}"
        exempt = f" (exempted by {result.exemption})" if result.exemption else ""
        yield f"         {result.finding.message}{exempt}"
    if judged.explained:
        yield f"  {judged.explained.text}"
    for operation in judged.verdict.patch:
        yield f"  patch  {operation['op']} {operation['path']}"


def _several(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
