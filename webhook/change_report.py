"""What a change of policy does: a table for people, JSON for programs, Markdown for a pull request."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from webhook import tables
from webhook.change import Change, Changed, Difference, Effect
from webhook.check import passed_over
from webhook.model import dotted, several
from webhook.policy import API_VERSION
from webhook.reports.markdown import MAX_BODY, plain
from webhook.terminal import PLAIN, Look

HEADINGS = {
    Effect.DENIED: "newly denied",
    Effect.FREED: "denied no longer",
    Effect.REFUSED_OTHERWISE: "denied for other reasons",
    Effect.STEERED: "steered elsewhere",
    Effect.WARNED: "newly warned of",
    Effect.UNWARNED: "warned of no longer",
    Effect.PATCHED: "patched otherwise",
    Effect.RECORDED: "recorded otherwise",
}

_STYLES = {Effect.DENIED: "denied", Effect.FREED: "allowed", Effect.WARNED: "warned"}

MOST = 50
"""How many objects one heading of the Markdown lists, where a comment has room for as many."""

_FRAME = 4096
"""Characters of the Markdown that are left for what is no object: headings, counts, and how many are not listed."""


def table(change: Change, look: Look) -> str:
    """Write a line for each object of which something changes, what it is below it, and the count."""
    lines = [line for each in change.changed for line in _object(each, look)]
    lines += [line for each in change.problems for line in look.error(str(each))]
    if lines:
        lines.append("")
    lines += look.wrap(_summary(change), "")
    if change.unjudged:
        lines += look.wrap(passed_over(change.unjudged), "")
    return "\n".join(lines) + "\n"


def _object(changed: Changed, look: Look) -> Iterator[str]:
    words = look.paint(", ".join(changed.effects), _STYLES.get(changed.effects[0], "strong"))
    told = changed.after
    for part in filter(None, (told.place, told.title)):
        *above, words = look.beside(words, part, " " * 9)
        yield from above
    yield words
    for each in changed.differences:
        line = f"line {each.line:<4} " if each.line else ""
        yield from look.beside(
            f"  {_actions(each)}  {line}{each.result.rule}", dotted(each.result.finding.path), " " * 9
        )
        yield from look.wrap(each.result.finding.message, " " * 9)
    if Effect.STEERED in changed.effects:
        yield from look.hang("  pool   ", _pools(changed))
    if Effect.PATCHED in changed.effects:
        for line in _patches(changed):
            yield from look.hang("  patch  ", line)


def _summary(change: Change) -> str:
    counts = [(len(change.having(effect)), HEADINGS[effect]) for effect in Effect]
    said = ", ".join(f"{count} {words}" for count, words in counts if count) or "nothing changes"
    errors = f"; {several(len(change.problems), 'error')}"
    return f"{several(len(change.changed) + change.unchanged, 'object')}: {said}; {change.unchanged} as before{errors}"


def to_json(change: Change, _: Look) -> str:
    """Write everything as one JSON object."""
    value = {
        "apiVersion": API_VERSION,
        "kind": "PolicyDiffReport",
        "old": change.old.name,
        "new": change.new.name,
        "digests": {"old": change.old.digest, "new": change.new.digest},
        "results": [_value(each) for each in change.changed],
        "errors": [{"file": each.file, "line": each.line, "message": each.message} for each in change.problems],
        "unjudged": [each.value for each in change.unjudged],
        "summary": {
            "objects": len(change.changed) + change.unchanged,
            "unchanged": change.unchanged,
            **{_key(effect): len(change.having(effect)) for effect in Effect},
            "errors": len(change.problems),
            "unjudged": sum(each.objects for each in change.unjudged),
        },
    }
    return json.dumps(value, indent=2) + "\n"


def _value(changed: Changed) -> dict[str, Any]:
    told = changed.after
    return {
        "file": told.file,
        "line": told.line,
        "document": told.document,
        "apiVersion": told.api_version,
        "kind": told.kind,
        "namespace": told.namespace,
        "name": told.name,
        "effects": [_key(each) for each in changed.effects],
        "allowed": {"before": changed.before.verdict.allowed, "after": told.verdict.allowed},
        "findings": [
            {
                "rule": each.result.rule,
                "line": each.line,
                "path": dotted(each.result.finding.path),
                "message": each.result.finding.message,
                "before": each.before,
                "after": each.after,
            }
            for each in changed.differences
        ],
        "pool": dict(zip(("before", "after"), (each or None for each in changed.pools), strict=True)),
        "patch": {"before": list(changed.before.verdict.patch), "after": list(told.verdict.patch)},
    }


def _key(effect: Effect) -> str:
    first, *more = effect.split()
    return first + "".join(word.capitalize() for word in more)


def markdown(change: Change, _: Look) -> str:
    """Write a summary for a pull request: how many, and below it each object under what happens to it first."""
    return "\n".join(_markdown(change)) + "\n"


def _markdown(change: Change) -> Iterator[str]:
    yield f"## Policy {_code(change.old.name)} → {_code(change.new.name)}"
    yield ""
    objects = len(change.changed) + change.unchanged
    if not change.changed:
        yield f"Nothing changes for {several(objects, 'object')}."
    else:
        counts = [(HEADINGS[effect], count) for effect in Effect if (count := len(change.having(effect)))]
        words = [(heading, str(count)) for heading, count in (*counts, ("as before", change.unchanged))]
        yield from tables.markdown((f"of {several(objects, 'object')}", "count"), words)
    if change.unjudged:
        yield ""
        yield plain(passed_over(change.unjudged))
    room = MAX_BODY - _FRAME
    for effect in Effect:
        if found := [each for each in change.changed if each.effects[0] is effect]:
            rows = _fitting(map(_row, found), room)
            room -= len("\n".join(rows))
            yield from _section(effect, rows, len(found) - len(rows))
    if change.problems:
        yield ""
        yield f"**{several(len(change.problems), 'error')}**: what could not be read was not compared."
        yield ""
        lines = _fitting((f"- {_code(str(problem))}" for problem in change.problems), room)
        yield from lines
        if left := len(change.problems) - len(lines):
            yield f"- and {left} more"


def _fitting(rows: Iterable[str], room: int) -> list[str]:
    """Take the first rows, as many as there is room for."""
    taken: list[str] = []
    for row in islice(rows, MOST):
        room -= len(row) + 1
        if room < 0:
            break
        taken.append(row)
    return taken


def _section(effect: Effect, rows: list[str], left: int) -> Iterator[str]:
    yield ""
    opened, count = " open" if effect is Effect.DENIED else "", len(rows) + left
    yield f"<details{opened}><summary>{count} {HEADINGS[effect]}</summary>"
    yield ""
    yield from tables.markdown(("object", "where", "change"), ())
    yield from rows
    if left:
        yield tables.row((f"and {left} more", "", ""))
    yield ""
    yield "</details>"


def _row(changed: Changed) -> str:
    return tables.row((_code(changed.after.title), _code(changed.after.place), "<br>".join(_reasons(changed))))


def _reasons(changed: Changed) -> Iterator[str]:
    for each in changed.differences:
        yield f"{_actions(each)} {_code(each.result.rule)}: {plain(each.result.finding.message)}"
    if Effect.STEERED in changed.effects:
        yield f"pool {_code(_pools(changed))}"
    if Effect.PATCHED in changed.effects:
        lines = list(_patches(changed))
        yield from map(_code, lines[:_SHORT])
        if len(lines) > _SHORT:
            yield f"and {len(lines) - _SHORT} more operations"


_SHORT = 6


def _actions(difference: Difference) -> str:
    return f"{difference.before or '-'} → {difference.after or '-'}"


def _pools(changed: Changed) -> str:
    before, after = (each or "no GPU" for each in changed.pools)
    return f"{before} → {after}"


def _patches(changed: Changed) -> Iterator[str]:
    before, after = (list(map(_operation, each.verdict.patch)) for each in (changed.before, changed.after))
    yield from (f"- {each}" for each in before if each not in after)
    yield from (f"+ {each}" for each in after if each not in before)


def _operation(operation: Mapping[str, Any]) -> str:
    return f"{operation['op']} {operation['path']} {json.dumps(operation['value'], sort_keys=True)}"


def _code(text: str) -> str:
    """Show a text as it is: a tenant's words make no Markdown."""
    return f"<code>{plain(text)}</code>" if text else ""


FORMATS: Mapping[str, str] = {"table": "for people", "json": "for programs", "markdown": "for a pull request"}
"""Each format's name and what it is for."""

_RENDER: Mapping[str, Callable[[Change, Look], str]] = {"table": table, "json": to_json, "markdown": markdown}


def render(name: str, change: Change, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    return _RENDER[name](change, look)
