"""Writes a table for people: a line for each object, with its findings and its patch below."""

import re
from collections.abc import Iterator

from webhook.memory import coverage
from webhook.model import Action, dotted
from webhook.reports import patches
from webhook.scan.results import Judged, Report
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import one_line, several, shown

PURPOSE = "for people"
PROBLEMS = NOTES = EXEMPTED = REPAIRED = True


def render(report: Report, look: Look = PLAIN) -> str:
    """Write the report as aligned text: the objects that matter, the problems, and the count of all.

    The denied ones come first, and then those with warnings. Unless everything is listed, pods are left out whose
    workload is judged as well and has the same findings, and so are objects whose findings are all exempted.
    """
    same = by_owner(report)
    folded = {id(pod) for pods in same.values() for pod in pods}
    listed = [
        judged
        for judged in report.judged
        if report.everything
        or (
            id(judged) not in folded
            and any(_matters(each, report, look) for each in (judged, *same.get(key(judged), ())))
        )
    ]
    listed.sort(key=lambda judged: (judged.verdict.allowed, not judged.warned))
    lines: list[str] = []
    for judged in listed:
        lines += _object(judged, look, explained=report.explained)
        if pods := same.get(key(judged)):
            lines += look.hang("  pods   ", f"{several(len(pods), 'pod')} of it with no other findings")
    lines += [line for problem in report.problems for line in look.error(str(problem))]
    lines += [line for warning in report.warnings for line in look.warning(str(warning))]
    if not look.quiet:
        lines += ["", *summary(report, look)] if lines else summary(report, look)
    return "".join(f"{line}\n" for line in lines)


def key(judged: Judged) -> tuple[str, str, str]:
    """Return the namespace, kind and name of an object."""
    return judged.namespace, judged.kind, judged.name


def by_owner(report: Report) -> dict[tuple[str, str, str], list[Judged]]:
    """Return the pods of each judged workload that have only findings which the workload has too.

    Empty if everything is listed.
    Whoever creates a pod names its owner. So a pod is left out only if the lines of the workload show all of its
    findings. A pod never owns another pod.
    """
    if report.everything:
        return {}
    owners = {key(judged): set(_shown(judged)) for judged in report.judged if judged.kind != "Pod"}
    found: dict[tuple[str, str, str], list[Judged]] = {}
    for pod in report.judged:
        owner = (pod.namespace, *pod.owner)
        if pod.owner[1] and owner in owners and owners[owner].issuperset(_findings(pod)):
            found.setdefault(owner, []).append(pod)
    return found


def _findings(judged: Judged) -> Iterator[tuple[str, Action, str, str]]:
    """Yield an object's findings without what differs between pods of one workload: places, and pools in use now."""
    for each in judged.verdict.results:
        yield each.rule, each.action, each.remark, _IN_USE.sub("", each.finding.message)


_IN_USE = re.compile(r" \((?:all [0-9]+|the only) [a-zA-Z ]+ of pool [a-z0-9.-]+ (?:is|are) in use now\)")
"""What a message says of the pool where the pod would go (webhook/gpu/selection.py, `taken`)."""


def _shown(judged: Judged) -> Iterator[tuple[str, Action, str, str]]:
    """Yield the text of an object's lines: its findings, and each finding without its last ways out.

    The message of a DaemonSet has one more way out than that of its pods.
    """
    for rule, action, remark, message in _findings(judged):
        parts = message.split("; ")
        yield from ((rule, action, remark, "; ".join(parts[:number])) for number in range(1, len(parts) + 1))


def _matters(judged: Judged, report: Report, look: Look) -> bool:
    """Whether an object is listed by default: it has findings or, unless the table is quiet, a patch."""
    changed = judged.verdict.patch or (report.explained and judged.landings)
    return bool((judged.verdict.results and not judged.exempted) or (changed and not look.quiet))


def summary(report: Report, look: Look) -> Iterator[str]:
    """Yield the count of all objects, and the notes."""
    count = (
        f"{several(len(report.judged), 'object')}: {report.count(allowed=True)} allowed, "
        f"{report.count(allowed=False)} denied, {report.warned} with warnings{repaired(report)}; "
        f"{several(len(report.problems), 'error')}"
    )
    yield from look.wrap(count, "")
    exempted = sum(judged.exempted for judged in report.judged)
    if exempted and not report.everything:
        yield from look.wrap(f"{several(exempted, 'object')} with exempted findings only; --all lists them", "")
    for note in (*report.notes, report.help):
        if note:
            yield from look.wrap(note, "")


def repaired(report: Report) -> str:
    """Write the number of findings that would be repaired, if there are any."""
    return f", {several(report.repaired, 'finding')} would be repaired under Deny" if report.repaired else ""


def _object(judged: Judged, look: Look, *, explained: bool) -> Iterator[str]:
    word = "allowed" if judged.verdict.allowed else "denied"
    style = "warned" if judged.verdict.allowed and judged.warned else word
    head = look.paint(f"{word:<7}", style)
    operation = judged.operation if judged.operation != "CREATE" else ""
    for part, shade in ((judged.place, ""), (judged.title, "strong"), (operation, ""), (judged.through, "faint")):
        if part:
            *above, head = look.beside(head, part, " " * 9, shade)
            yield from above
    yield head
    width = max((len(result.rule) for result in judged.verdict.results), default=0)
    for result, file, line in judged.located:
        where = f"line {line:<4} " if line else ""
        if line and file != judged.file:
            where = f"{shown(file, quotes=False)}:{line} "
        action = look.paint(f"{result.action:<6}", _STYLES[result.action])
        yield from look.beside(f"  {action} {where}{result.rule:<{width}}", dotted(result.finding.path), " " * 9)
        remark = f" ({result.remark})" if result.remark else ""
        yield from look.wrap(f"{result.finding.message}{remark}", " " * 9)
    if look.quiet:
        return
    for landing in judged.landings:
        where = f"{dotted(landing.path)}: " if len(judged.landings) > 1 else ""
        yield from look.hang("  lands  ", where + landing.brief)
        if explained:
            yield from look.hang("  memory ", landing.memory)
            for text in coverage.lines(landing.capped):
                yield from look.hang("  capped ", text)
    if judged.diff and explained:
        for row in judged.diff.splitlines():
            yield f"    {look.paint(one_line(row), _ROWS.get(row[:1], ''))}"
    else:
        for change in patches.changes(judged.verdict.patch):
            yield from look.hang("  patch  ", change, "added")


_STYLES = {Action.DENY: "denied", Action.WARN: "warned", Action.AUDIT: "faint"}
_ROWS = {"+": "added", "-": "removed", "@": "faint"}
