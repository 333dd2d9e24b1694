"""Writes one line for each of several clusters: what a policy, or a change of policy, would do there."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.model import Problem
from webhook.reports import parts
from webhook.text import tables
from webhook.text.terminal import Look
from webhook.text.words import several

ERRORS = "unreadable"
"""The heading of the last column."""


class Line(NamedTuple):
    """The line of one cluster: its counts by heading, in the order of the columns, and the problems of its input."""

    cluster: str
    counts: Mapping[str, int]
    problems: tuple[Problem, ...] = ()


def render(name: str, kind: str, lines: Sequence[Line], look: Look) -> str:
    """Write the lines as a table, as json or as markdown. `kind` is that of the JSON document."""
    if name == "json":
        return parts.document(kind, {"summary": summary(lines), "clusters": [_value(line) for line in lines]})
    head, *rows = _rows(lines)
    if name == "markdown":
        escaped = [[tables.escaped(cell) for cell in row] for row in rows]
        return "".join(f"{line}\n" for line in (summary(lines), "", *tables.markdown(head, escaped)))
    shown = [*tables.columns((head, *rows), range(1, len(head))), "", summary(lines)]
    problems = (f"{line.cluster}: {problem}" for line in lines for problem in line.problems)
    return "".join(f"{line}\n" for line in (*shown, *(line for each in problems for line in look.error(each))))


def summary(lines: Sequence[Line]) -> str:
    """Say where the first count is not 0, the largest first: `newly denied: 3 in eu-1, 0 in 4 others`."""
    heading = next((heading for line in lines for heading in line.counts), "")
    known = [line for line in lines if line.counts]
    some = sorted((line for line in known if line.counts[heading]), key=lambda line: -line.counts[heading])
    named = [f"{line.counts[heading]:,} in {line.cluster}" for line in some]
    if none := len(known) - len(some):
        others = f"{none} others" if none > 1 else "1 other"
        named.append(f"0 in {others if some else several(none, 'cluster')}")
    if unread := len(lines) - len(known):
        named.append(f"unknown in {unread}")
    return f"{heading or 'result'}: {', '.join(named)}"


def _rows(lines: Sequence[Line]) -> Iterator[list[str]]:
    """Yield the head, and a row for each cluster. A column in which all have 0 is left out, except for the first."""
    headings = [*dict.fromkeys(heading for line in lines for heading in line.counts)]
    some = [each for each in headings if each in headings[:1] or any(line.counts.get(each) for line in lines)]
    yield ["cluster", *some, ERRORS]
    for line in lines:
        yield [line.cluster, *(str(line.counts.get(each, 0)) for each in some), str(len(line.problems))]


def _value(line: Line) -> dict[str, object]:
    return {"name": line.cluster, "summary": dict(line.counts), "errors": parts.problems(line.problems)}
