"""Reports on a change of policy: a table for people, JSON for programs, Markdown for a pull request."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from webhook.model import dotted
from webhook.reports import parts
from webhook.reports.formats.markdown import MAX_BODY, plain
from webhook.reports.patches import change as patched
from webhook.scan.diff import Change, Changed, ChangeEffect, FindingChange
from webhook.text import tables
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import several, shown

HEADINGS = {
    ChangeEffect.DENIED: "newly denied",
    ChangeEffect.FREED: "denied no longer",
    ChangeEffect.REFUSED_OTHERWISE: "denied for other reasons",
    ChangeEffect.STEERED: "steered elsewhere",
    ChangeEffect.WARNED: "newly warned of",
    ChangeEffect.UNWARNED: "warned of no longer",
    ChangeEffect.PATCHED: "patched otherwise",
    ChangeEffect.RECORDED: "recorded otherwise",
}

_STYLES = {ChangeEffect.DENIED: "denied", ChangeEffect.FREED: "allowed", ChangeEffect.WARNED: "warned"}

MOST = 50
"""Maximum number of objects below one heading of the Markdown."""

_FRAME = 4096
"""Characters of the Markdown that are kept for headings and counts."""


def table(change: Change, look: Look) -> str:
    """Write a line for each object that changes, with its changes below, and the count."""
    lines = [line for changed in (*change.changed, *change.same) for line in _object(changed, look)]
    lines += [line for problem in change.problems for line in look.error(str(problem))]
    lines += [line for warning in change.warnings for line in look.warning(str(warning))]
    if not look.quiet:
        lines += [*([""] if lines else ()), *summary(change, look)]
    return "".join(f"{line}\n" for line in lines)


def summary(change: Change, look: Look) -> Iterator[str]:
    """Yield the counts of all objects by effect, and the notes."""
    for line in (_summary(change), *change.notes):
        yield from look.wrap(line, "")


def _object(changed: Changed, look: Look) -> Iterator[str]:
    effects = changed.effects
    words = look.paint(", ".join(effects), _STYLES.get(effects[0], "strong")) if effects else "as before"
    judged = changed.after
    for part in filter(None, (judged.place, judged.title, judged.through)):
        *above, words = look.beside(words, part, " " * 9)
        yield from above
    yield words
    for difference in changed.differences:
        line = f"line {difference.line:<4} " if difference.line else ""
        if line and difference.file != judged.file:
            line = f"{shown(difference.file, quotes=False)}:{difference.line} "
        yield from look.beside(
            f"  {_actions(difference)}  {line}{difference.result.rule}", dotted(difference.result.finding.path), " " * 9
        )
        remark = f" ({difference.result.remark})" if difference.result.remark else ""
        yield from look.wrap(f"{difference.result.finding.message}{remark}", " " * 9)
    if ChangeEffect.STEERED in changed.effects:
        yield from look.hang("  pool   ", _pools(changed))
    if ChangeEffect.PATCHED in changed.effects:
        for line in patches(changed):
            yield from look.hang("  patch  ", line)


def _summary(change: Change) -> str:
    counts = [(len(change.having(effect)), HEADINGS[effect]) for effect in ChangeEffect]
    effects = ", ".join(f"{count} {words}" for count, words in counts if count) or "nothing changes"
    errors = f"; {several(len(change.problems), 'error')}"
    return (
        f"{several(len(change.changed) + change.unchanged, 'object')}: {effects}; {change.unchanged} as before{errors}"
    )


def to_json(change: Change, _: Look) -> str:
    """Write everything as one JSON object."""
    value = {
        "old": change.old.name,
        "new": change.new.name,
        "digests": {"old": change.old.digest, "new": change.new.digest},
        "results": [_value(changed) for changed in (*change.changed, *change.same)],
        "errors": parts.problems(change.problems),
        "unjudged": [kind.value for kind in change.unjudged],
        "warnings": parts.problems(change.warnings),
        "notes": [*change.notes],
        "fallback": change.fallback.value,
        "summary": {
            "objects": len(change.changed) + change.unchanged,
            "unchanged": change.unchanged,
            **{_key(effect): len(change.having(effect)) for effect in ChangeEffect},
            "errors": len(change.problems),
            "unjudged": sum(kind.objects for kind in change.unjudged),
        },
    }
    return parts.document("PolicyDiffReport", value)


def _value(changed: Changed) -> dict[str, Any]:
    judged = changed.after
    return {
        **parts.judged(judged),
        **({"root": judged.root} if judged.root else {}),
        "effects": [_key(effect) for effect in changed.effects],
        "allowed": {"before": changed.before.verdict.allowed, "after": judged.verdict.allowed},
        "findings": [
            {
                "rule": difference.result.rule,
                **({"file": difference.file} if difference.file != changed.after.file else {}),
                "line": difference.line,
                **parts.result(difference.result),
                **({"repaired": True} if difference.result.repaired else {}),
                "before": difference.before,
                "after": difference.after,
            }
            for difference in changed.differences
        ],
        "pool": dict(zip(("before", "after"), (pool or None for pool in changed.pools), strict=True)),
        "patch": {"before": list(changed.before.verdict.patch), "after": list(judged.verdict.patch)},
    }


def _key(effect: ChangeEffect) -> str:
    first, *more = effect.split()
    return first + "".join(word.capitalize() for word in more)


def markdown(change: Change, _: Look) -> str:
    """Write counts for a pull request, then each object below the worst of its changes."""
    return "\n".join(_markdown(change)) + "\n"


def _markdown(change: Change) -> Iterator[str]:
    yield f"## Policy {_code(change.old.name)} → {_code(change.new.name)}"
    yield ""
    objects = len(change.changed) + change.unchanged
    if not change.changed:
        yield f"Nothing changes for {several(objects, 'object')}."
    else:
        counts = [(HEADINGS[effect], count) for effect in ChangeEffect if (count := len(change.having(effect)))]
        words = [(heading, str(count)) for heading, count in (*counts, ("as before", change.unchanged))]
        yield from tables.markdown((f"of {several(objects, 'object')}", "count"), words)
    for note in change.notes:
        yield ""
        yield plain(note)
    room = MAX_BODY - _FRAME
    for effect in ChangeEffect:
        if changes := [changed for changed in change.changed if changed.effects[0] is effect]:
            rows = _fitting(map(_row, changes), room)
            room -= len("\n".join(rows))
            yield from _section(effect, rows, len(changes) - len(rows))
    if change.problems:
        yield ""
        yield f"**{several(len(change.problems), 'error')}**: what could not be read was not compared."
        yield ""
        lines = _fitting((f"- {_code(str(problem))}" for problem in change.problems), room)
        yield from lines
        if left := len(change.problems) - len(lines):
            yield f"- and {left} more"


def _fitting(rows: Iterable[str], room: int) -> list[str]:
    """Return the first rows, as many as fit into `room` characters."""
    taken: list[str] = []
    for row in islice(rows, MOST):
        room -= len(row) + 1
        if room < 0:
            break
        taken.append(row)
    return taken


def _section(effect: ChangeEffect, rows: list[str], left: int) -> Iterator[str]:
    yield ""
    opened, count = " open" if effect is ChangeEffect.DENIED else "", len(rows) + left
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
    for difference in changed.differences:
        yield f"{_actions(difference)} {_code(difference.result.rule)}: {plain(difference.result.finding.message)}"
    if ChangeEffect.STEERED in changed.effects:
        yield f"pool {_code(_pools(changed))}"
    if ChangeEffect.PATCHED in changed.effects:
        lines = list(patches(changed))
        yield from map(_code, lines[:_SHORT])
        if len(lines) > _SHORT:
            yield f"and {len(lines) - _SHORT} more operations"


_SHORT = 6


def _actions(difference: FindingChange) -> str:
    return f"{difference.before or '-'} → {difference.after or '-'}"


def _pools(changed: Changed) -> str:
    before, after = (pool or "no GPU" for pool in changed.pools)
    return f"{before} → {after}"


def patches(changed: Changed) -> Iterator[str]:
    """Yield the operations that only one of the two patches has: `-` before those of the old, `+` of the new."""
    before, after = (list(map(patched, judged.verdict.patch)) for judged in (changed.before, changed.after))
    yield from (f"- {operation}" for operation in before if operation not in after)
    yield from (f"+ {operation}" for operation in after if operation not in before)


def _code(text: str) -> str:
    """Show a text as code, so that no tenant's text becomes Markdown."""
    return f"<code>{plain(text)}</code>" if text else ""


FORMATS: Mapping[str, str] = {"table": "for people", "json": "for programs", "markdown": "for a pull request"}
"""The name and purpose of each format."""

_RENDER: Mapping[str, Callable[[Change, Look], str]] = {"table": table, "json": to_json, "markdown": markdown}


def render(name: str, change: Change, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    return _RENDER[name](change, look)
