"""Writes Markdown for a comment on a pull request."""

import re
from collections.abc import Iterable, Iterator, Sequence

from webhook.model import Action, Result
from webhook.reports.formats.table import repaired
from webhook.scan.results import Judged, Report
from webhook.text import tables
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import line, several

PURPOSE = "a comment on a pull request"
PROBLEMS = NOTES = EXEMPTED = REPAIRED = True

MAX_BODY = 65_536
"""Characters of the longest comment on GitHub (https://github.com/orgs/community/discussions/41331)."""

_SIGNS = {Action.DENY: "🛑 denied", Action.WARN: "⚠️ warning", Action.AUDIT: "recorded"}


def render(report: Report, _: Look = PLAIN) -> str:
    """Write tables of the findings, of the pods' pools and of the patches, cut between two rows if too long."""
    denied, objects = report.count(allowed=False), len(report.judged)
    head = [
        f"### Slicewarden: {denied} of {several(objects, 'object')} denied",
        "",
        f"{report.count(allowed=True)} allowed, {denied} denied, {report.warned} with warnings{repaired(report)}, "
        f"{several(len(report.problems), 'error')}",
        *_noted([*map(str, report.warnings), *report.notes]),
        *(("", plain(report.help, links=True)) if report.help else ()),
    ]
    return "\n".join(_bounded(head, [_problems(report), _findings(report), _landings(report), _changes(report)])) + "\n"


def code(text: str) -> str:
    """Write a text as code that is safe in a table."""
    return f"`{line(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`" if text else ""


def plain(text: str, *, links: bool = False) -> str:
    """Write a text such that nothing in it becomes Markdown, HTML or a mention; nor a link, unless `links` may.

    Hosts look for mentions and addresses in the text that a reader sees. A space without width parts these.
    """
    written = "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in line(text))
    return written if links else _LINKED.sub(r"\g<0>&#8203;", written)


_SPECIAL = frozenset("\\`*_{}[]<>&|@#~!")
_LINKED = re.compile(r"&#(?:35|64);|:(?=//)|www(?=\.)", re.IGNORECASE)


def _noted(notes: Sequence[str]) -> Iterator[str]:
    """Yield the first notes, as many as leave room for the findings, and a line with the number of the others."""
    room = MAX_BODY // 4
    for number, note in enumerate(notes):
        written = plain(note)
        room -= len(written) + 2
        if room < 0:
            yield from ("", f"And {len(notes) - number} more notes: run `slicewarden check`.")
            return
        yield from ("", written)


def _bounded(head: list[str], sections: Iterable[Iterator[str]]) -> Iterator[str]:
    """Yield the rows that fit, and a line with the number of the others."""
    room = MAX_BODY - len("\n".join(head)) - 200
    yield from head
    left = 0
    for section in sections:
        for row in section:
            room -= len(row) + 1
            if room > 0 and not left:
                yield row
            else:
                left += 1
    if left:
        yield ""
        yield f"And {left} more rows, for which a comment has no room: run `slicewarden check`."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield ""
        yield from tables.markdown(head, rows)


def _problems(report: Report) -> Iterator[str]:
    places = (f"{problem.file}:{problem.line}" if problem.line else problem.file for problem in report.problems)
    reasons = (plain(problem.message) for problem in report.problems)
    return _table(("not readable", "why"), [*zip(map(code, places), reasons, strict=True)])


def _findings(report: Report) -> Iterator[str]:
    findings = [(judged, *finding) for judged in report.judged for finding in judged.located]
    findings.sort(key=lambda finding: list(Action).index(finding[1].action))
    return _table(("action", "object", "where", "rule", "finding"), [_finding(*finding) for finding in findings])


def _finding(judged: Judged, result: Result, file: str, number: int) -> tuple[str, ...]:
    action = plain(result.remark) or _SIGNS[result.action]
    where = code(f"{file}:{number}" if number else file)
    return action, code(judged.title), where, code(result.rule), plain(result.finding.message)


def _landings(report: Report) -> Iterator[str]:
    rows = [(code(judged.title), plain(landing.brief)) for judged in report.judged for landing in judged.landings]
    return _table(("object", "where its pods would land"), rows)


def _changes(report: Report) -> Iterator[str]:
    for judged in report.judged:
        if judged.diff:
            fence = "`" * (3 + max((len(run) for run in judged.diff.split() if set(run) == {"`"}), default=0))
            yield (
                f"\n<details><summary>What admission changes in {plain(judged.title)}</summary>\n\n"
                f"{fence}diff\n{judged.diff.rstrip()}\n{fence}\n\n</details>"
            )
