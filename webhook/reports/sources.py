"""What an audit found, by what it comes from: a finding once for a workload, however many pods have it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from webhook.audit import Audited, Source
from webhook.check import Report
from webhook.model import Action, Result, dotted, listed, several, shown
from webhook.policy import API_VERSION
from webhook.terminal import Look


@dataclass(slots=True)
class Found:
    """A finding of a source's objects, with the first of them that has it, and how many there are."""

    result: Result
    first: Audited
    objects: list[Audited] = field(default_factory=list)


Findings = dict[Source, list[Found]]


def grouped(report: Report, *, exempted: bool) -> Findings:
    """Order findings by source, the worst first; what is only recorded for an exemption's sake if `exempted`."""
    found: dict[Source, dict[tuple[str, str, str], Found]] = {}
    for judged in report.judged:
        if not isinstance(judged, Audited):
            raise TypeError("an audit's report holds what was audited")
        results = [each for each in judged.verdict.results if exempted or not each.exemption]
        if results or not judged.verdict.results:
            here = found.setdefault(judged.source, {})
        for result in results:
            key = result.rule, result.action.value, result.finding.message
            known = here.setdefault(key, Found(result, judged))
            if not known.objects or known.objects[-1] is not judged:
                known.objects.append(judged)
    return {source: sorted(each.values(), key=_rank) for source, each in sorted(found.items(), key=_place)}


_RANKS = [*Action]


def _rank(found: Found) -> int:
    return _RANKS.index(found.result.action)


def _place(entry: tuple[Source, Any]) -> tuple[str, str, str, str]:
    source = entry[0]
    return source.namespace, source.kind, source.name, source.api_version


def table(report: Report, look: Look, count: int) -> str:
    """Write it for people; `count` is how many objects were judged."""
    groups = grouped(report, exempted=False)
    lines = [line for source, found in groups.items() for line in _source(source, found, look)]
    lines += [line for each in report.problems for line in look.error(str(each))]
    denied = sum(any(each.result.action is Action.DENY for each in found) for found in groups.values())
    warned = sum(any(each.result.action is Action.WARN for each in found) for found in groups.values())
    if lines:
        lines.append("")
    said = (
        f"{several(count, 'object')} judged: {denied} would be denied, {warned} with warnings; "
        f"{several(len(report.problems), 'error')}"
    )
    lines += look.wrap(said, "")
    return "\n".join(lines) + "\n"


def _source(source: Source, findings: list[Found], look: Look) -> Iterator[str]:
    denied = any(each.result.action is Action.DENY for each in findings)
    word = "denied" if denied else "warned" if findings else "allowed"
    yield from look.beside(look.paint(f"{word:<7}", word), shown(source.text, quotes=False), " " * 9)
    width = max((len(each.result.rule) for each in findings), default=0)
    for each in findings:
        result = each.result
        place, of = _where(source, each)
        head, whole = f"  {result.action:<6} {result.rule:<{width}}", f"{place} {of}".rstrip()
        if look.width is None or len(head) + 2 + len(whole) <= look.width:
            yield f"{head}  {whole}"
        else:
            yield from look.beside(head, place, " " * 9)
            yield from look.wrap(of, " " * 9) if of else ()
        yield from look.wrap(result.finding.message, " " * 9)


def _where(source: Source, found: Found) -> tuple[str, str]:
    """Say where a finding is, and in which of a source's objects: nothing for in itself, else in its pods."""
    place = dotted(found.result.finding.path)
    others = [each for each in found.objects if (each.kind, each.name) != (source.kind, source.name)]
    if not others:
        return place, ""
    return place, f"of {listed([f'{each.kind} {shown(each.name, quotes=False)}' for each in others], _NAMED)}"


_NAMED = 2
"""How many objects of a source a line names."""


def write(report: Report, _: Look, count: int) -> str:
    """Write it as JSON, for programs: an AuditReport, with every object that has a finding; as `table` does."""
    groups = grouped(report, exempted=True)
    value = {
        "apiVersion": API_VERSION,
        "kind": "AuditReport",
        "policy": {"name": report.policy, "digest": report.digest},
        "sources": [
            {
                "apiVersion": source.api_version,
                "kind": source.kind,
                "namespace": source.namespace,
                "name": source.name,
                "findings": [*map(_finding, found)],
            }
            for source, found in groups.items()
        ],
        "errors": [{"about": each.file, "message": each.message} for each in report.problems],
        "summary": {
            "objects": count,
            "denied": report.count(allowed=False),
            "warned": report.warned,
            "errors": len(report.problems),
        },
    }
    return json.dumps(value, indent=2) + "\n"


def _finding(found: Found) -> dict[str, Any]:
    result = found.result
    return {
        "rule": result.rule,
        "action": result.action.value,
        "path": dotted(result.finding.path),
        "message": result.finding.message,
        **({"exemption": result.exemption} if result.exemption else {}),
        "objects": [{"kind": each.kind, "name": each.name, "uid": each.uid} for each in found.objects],
    }
