"""Reports an audit by source: a finding of a workload appears once, however many of its pods have it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from webhook.model import Action, Result, dotted
from webhook.reports import parts
from webhook.reports.formats.table import repaired
from webhook.scan.audit import Audited, RootOwner
from webhook.scan.results import Report, passed_over
from webhook.text.terminal import Look
from webhook.text.words import listed, several, shown


@dataclass(slots=True)
class SourceFinding:
    """A finding of a source, such as a workload, with the first object that has it, and all of them."""

    result: Result
    first: Audited
    objects: list[Audited] = field(default_factory=list)


Findings = dict[RootOwner, list[SourceFinding]]


def grouped(report: Report, *, exempted: bool) -> Findings:
    """Group findings by source, the worst first. `exempted` includes those that an exemption lets through."""
    by_source: dict[RootOwner, dict[tuple[str, str, str, bool], SourceFinding]] = {}
    for judged in report.judged:
        if not isinstance(judged, Audited):
            raise TypeError("an audit's report holds what was audited")
        results = [result for result in judged.verdict.results if exempted or not result.exemption]
        if results or not judged.verdict.results:
            here = by_source.setdefault(judged.source, {})
        for result in results:
            key = result.rule, result.action.value, result.finding.message, result.repaired
            known = here.setdefault(key, SourceFinding(result, judged))
            if not known.objects or known.objects[-1] is not judged:
                known.objects.append(judged)
    return {source: sorted(findings.values(), key=_rank) for source, findings in sorted(by_source.items(), key=_place)}


_RANKS = [*Action]


def _rank(finding: SourceFinding) -> int:
    return _RANKS.index(finding.result.action)


def _place(entry: tuple[RootOwner, Any]) -> tuple[str, str, str, str]:
    source = entry[0]
    return source.namespace, source.kind, source.name, source.api_version


def table(report: Report, look: Look, count: int) -> str:
    """Write a table for people; `count` is the number of judged objects."""
    groups = grouped(report, exempted=False)
    lines = [line for source, findings in groups.items() for line in _source(source, findings, look)]
    lines += [line for problem in report.problems for line in look.error(str(problem))]
    if not look.quiet:
        lines += [*([""] if lines else ()), *summary(report, look, count)]
    return "".join(f"{line}\n" for line in lines)


def summary(report: Report, look: Look, count: int) -> Iterator[str]:
    """Yield the count of all objects, and of the sources that would be denied."""
    groups = grouped(report, exempted=False).values()
    denied, warned = (
        sum(any(finding.result.action is action for finding in findings) for findings in groups)
        for action in (Action.DENY, Action.WARN)
    )
    text = (
        f"{several(count, 'object')} judged: {denied} would be denied, {warned} with warnings{repaired(report)}; "
        f"{several(len(report.problems), 'error')}"
    )
    yield from look.wrap(text, "")
    if report.unjudged:
        yield from look.wrap(f"{passed_over(report.unjudged)}; what they make is judged", "")
    if report.fallback:
        for line in report.fallback.lines:
            yield from look.wrap(line, "")
    if report.help:
        yield from look.wrap(report.help, "")


def _source(source: RootOwner, findings: list[SourceFinding], look: Look) -> Iterator[str]:
    denied = any(finding.result.action is Action.DENY for finding in findings)
    word = "denied" if denied else "warned" if findings else "allowed"
    yield from look.beside(look.paint(f"{word:<7}", word), shown(source.text, quotes=False), " " * 9)
    width = max((len(finding.result.rule) for finding in findings), default=0)
    for finding in findings:
        result = finding.result
        place, of = _where(source, finding)
        head, whole = f"  {result.action:<6} {result.rule:<{width}}", f"{place} {of}".rstrip()
        if look.width is None or len(head) + 2 + len(whole) <= look.width:
            yield f"{head}  {whole}"
        else:
            yield from look.beside(head, place, " " * 9)
            yield from look.wrap(of, " " * 9) if of else ()
        remark = f" ({result.remark})" if result.remark else ""
        yield from look.wrap(f"{result.finding.message}{remark}", " " * 9)


def _where(source: RootOwner, finding: SourceFinding) -> tuple[str, str]:
    """Return the place of a finding, and the objects that have it unless it is the source itself."""
    place = dotted(finding.result.finding.path)
    others = [item for item in finding.objects if (item.kind, item.name) != (source.kind, source.name)]
    if not others:
        return place, ""
    return place, f"of {listed([f'{item.kind} {shown(item.name, quotes=False)}' for item in others], _NAMED)}"


_NAMED = 2
"""Maximum number of objects named on one line."""


def write(report: Report, _: Look, count: int) -> str:
    """Write an AuditReport in JSON, with every object that has a finding; `count` as for `table`."""
    groups = grouped(report, exempted=True)
    value = {
        "policy": parts.policy(report),
        "sources": [
            {
                "apiVersion": source.api_version,
                "kind": source.kind,
                "namespace": source.namespace,
                "name": source.name,
                "findings": [*map(_finding, findings)],
            }
            for source, findings in groups.items()
        ],
        "unjudged": [kind.value for kind in report.unjudged],
        **({"fallback": report.fallback.value} if report.fallback else {}),
        "errors": [{"about": problem.file, "message": problem.message} for problem in report.problems],
        "summary": {
            "objects": count,
            "denied": report.count(allowed=False),
            "warned": report.warned,
            "repaired": report.repaired,
            "errors": len(report.problems),
        },
    }
    return parts.document("AuditReport", value)


def _finding(finding: SourceFinding) -> dict[str, Any]:
    result = finding.result
    return {
        "rule": result.rule,
        "action": result.action.value,
        **parts.result(result),
        **parts.remarks(result),
        "objects": [{"kind": item.kind, "name": item.name, "uid": item.uid} for item in finding.objects],
    }
