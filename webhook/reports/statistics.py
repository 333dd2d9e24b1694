"""Counts findings: by rule, and by rule and namespace."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webhook.model import Result
from webhook.reports import parts
from webhook.reports.audit_report import grouped
from webhook.scan.diff import Change
from webhook.scan.results import Report
from webhook.text import tables
from webhook.text.terminal import Look


class FindingRecord(NamedTuple):
    """A finding for the statistics: its rule, its action, and the namespace and the identity of its object."""

    rule: str
    action: str
    namespace: str
    object: object


class FindingCounts(NamedTuple):
    """The numbers of findings, and of the objects and namespaces that have them."""

    findings: int
    objects: int
    namespaces: int


def of_report(report: Report) -> Iterator[FindingRecord]:
    """Yield the findings of a check."""
    for number, judged in enumerate(report.judged):
        for result in judged.verdict.results:
            yield FindingRecord(result.rule, _action(result), judged.namespace, number)


def of_audit(report: Report) -> Iterator[FindingRecord]:
    """Yield the findings of an audit: each once for a workload, however many of its pods have it."""
    for source, findings in grouped(report, exempted=True).items():
        for finding in findings:
            yield FindingRecord(finding.result.rule, _action(finding.result), source.namespace, source)


def of_change(change: Change) -> Iterator[FindingRecord]:
    """Yield the findings that a change of policy changes, with the action before and after."""
    for number, changed in enumerate(change.changed):
        for difference in changed.differences:
            action = f"{difference.before or 'none'} → {difference.after or 'none'}"
            yield FindingRecord(difference.result.rule, action, changed.after.namespace, number)


def _action(result: Result) -> str:
    return "exempted" if result.exemption else str(result.action)


def _count(found: Iterable[FindingRecord]) -> FindingCounts:
    found = list(found)
    return FindingCounts(len(found), len({each.object for each in found}), len({each.namespace for each in found}))


def _by(found: Iterable[FindingRecord], *keys: str) -> Mapping[tuple[str, ...], FindingCounts]:
    groups: dict[tuple[str, ...], list[FindingRecord]] = {}
    for each in found:
        groups.setdefault(tuple(getattr(each, key) for key in keys), []).append(each)
    return {group: _count(seen) for group, seen in sorted(groups.items())}


def render(name: str, found: Iterable[FindingRecord], summary: Iterable[str], look: Look) -> str:
    """Write the counts as a `table`, with the summary below unless it is quiet, or as `json`."""
    found = list(found)
    rules, places = _by(found, "rule", "action"), _by(found, "rule", "namespace", "action")
    if name == "json":
        return _json(rules, places)
    lines = list[str]()
    if rules:
        rows = [(*group, *map(str, count)) for group, count in rules.items()]
        lines += tables.columns([("rule", "action", "findings", "objects", "namespaces"), *rows], right=(2, 3, 4))
        cells = [(rule, place or "-", action, *map(str, count[:2])) for (rule, place, action), count in places.items()]
        lines += ["", *tables.columns([("rule", "namespace", "action", "findings", "objects"), *cells], right=(3, 4))]
    if not look.quiet:
        lines += [*([""] if lines else ()), *summary]
    return "".join(f"{line}\n" for line in lines)


def _json(rules: Mapping[tuple[str, ...], FindingCounts], places: Mapping[tuple[str, ...], FindingCounts]) -> str:
    value: dict[str, Any] = {
        "rules": [{"rule": rule, "action": action, **count._asdict()} for (rule, action), count in rules.items()],
        "namespaces": [
            {"rule": rule, "namespace": place, "action": action, "findings": count.findings, "objects": count.objects}
            for (rule, place, action), count in places.items()
        ],
    }
    return parts.document("StatisticsReport", value)
