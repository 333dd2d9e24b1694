"""Writes one self-contained page for a browser: cards, what enforcing would do, findings, pools, and who shares GPUs.

The page runs only its own script and asks no network for anything: its Content-Security-Policy names the hashes of the
one style and the one script. Without the script it shows the same, but cannot be searched.
"""

import base64
import hashlib
import pkgutil
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from webhook import rules
from webhook.facts.kinds.pod import Holder
from webhook.memory import coverage
from webhook.memory.explain import Landing
from webhook.model import Action, Problem, Result, dotted
from webhook.proving.proof import Outcome
from webhook.reports import audit_report, diff_report
from webhook.reports.audit_report import SourceFinding
from webhook.reports.formats import table
from webhook.reports.proof_rows import CONTEXT, PAGES, UNSHOWN, ProofPlace, ProofRow, counts, software
from webhook.scan.audit import RootOwner
from webhook.scan.diff import Change, Changed, ChangeEffect
from webhook.scan.results import Judged, Report
from webhook.scan.sharing import Division, PoolUse
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import line, listed, several, shown

PURPOSE = "a page for a browser"
PROBLEMS = NOTES = EXEMPTED = REPAIRED = True

SCRIPTS = ("script.js",)
"""The files of the script of a page that searches its findings."""

MOST = 500
"""Maximum rows of a table: nodes of a pool, those with the most namespaces first, and holders, the largest first."""

MOST_HERE, MOST_TOGETHER = 50, 2_000
"""Maximum objects of a namespace, and of all namespaces, that a part of another page shows."""


class Headline(NamedTuple):
    """A number at the head of the page. `style` is empty or that of a verdict. `least` is true if it may be larger."""

    number: int
    words: str
    style: str = ""
    least: bool = False


class Headlines(NamedTuple):
    """Numbers at the head of the page, under a title. `note` says what they leave out."""

    title: str
    counts: tuple[Headline, ...]
    note: str = ""


class FindingMark(NamedTuple):
    """A finding as the page shows it. `style` is `deny`, `warn` or `audit`, `words` the action in words."""

    style: str
    words: str
    rule: str
    path: str
    line: int
    message: str
    note: str = ""


class Entry(NamedTuple):
    """An object with its findings. `lands` are lines about its pods; `diff` is the change that admission makes.

    `command` shows an object that is in a cluster.
    """

    style: str
    words: str
    namespace: str
    title: str
    place: str
    marks: tuple[FindingMark, ...]
    lands: tuple[str, ...] = ()
    diff: str = ""
    command: str = ""


class Group(NamedTuple):
    """The objects of a namespace: those with findings to act on, the worst first, and the rest."""

    namespace: str
    urgent: tuple[Entry, ...]
    rest: tuple[Entry, ...]


class SummaryRow(NamedTuple):
    """The findings of one rule or one namespace, by style, and the names of the other kind with their counts."""

    name: str
    deny: int
    warn: int
    audit: int
    others: str


class Segment(NamedTuple):
    """A part of a memory bar, in thousandths of the GPU."""

    style: str
    start: float
    width: float


class Bar(NamedTuple):
    """The memory of a GPU as a bar: the reserve, and for each slice its context and its cap."""

    division: Division
    segments: tuple[Segment, ...]
    words: str


class PageWords(NamedTuple):
    """The words of a page for an object and for the four styles, and the rules that the page explains."""

    unit: str = "object"
    deny: str = "Deny"
    warn: str = "Warn"
    audit: str = "Audit"
    allow: str = "allowed"
    rules: str = "Rules that found something"


class Page(NamedTuple):
    """The values that the page's template shows."""

    title: str
    about: tuple[tuple[str, str], ...]
    headlines: tuple[Headlines, ...]
    pools: tuple[PoolUse, ...] | None
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    extra: Mapping[str, str] = {}
    """The pages of findings that no rule makes."""
    help: str = ""
    changes: str = "What admission changes"
    words: PageWords = PageWords()


# The four reports


def render(report: Report, _: Look = PLAIN) -> str:
    """Write the report of a check."""
    same = table.by_owner(report)
    folded = {id(pod) for pods in same.values() for pod in pods}
    shown = [judged for judged in report.judged if id(judged) not in folded]
    entries = tuple(
        _judged(judged, same.get(table.key(judged), ()))
        for judged in shown
        if judged.verdict.results or judged.landings
    )
    denied = report.count(allowed=False)
    counts = (
        Headline(len(report.judged), "objects"),
        Headline(denied, "denied", "deny"),
        Headline(report.warned, "with warnings", "warn"),
        *([Headline(report.repaired, "findings would be repaired")] if report.repaired else ()),
        Headline(len(report.judged) - denied, "allowed", "allow"),
        Headline(len(report.problems), "errors", "deny"),
    )
    return _write(
        _page(
            "Slicewarden check",
            report,
            (_effects(shown), Headlines("Objects", counts)),
            entries,
        )
    )


def audit(report: Report, _: Look, count: int) -> str:
    """Write the report of an audit; `count` is the number of judged objects."""
    return _write(_audited(report, count))


def audit_fragment(report: Report, count: int) -> str:
    """Write the worst findings of an audit as a part of another page: at most MOST_HERE objects of a namespace."""
    page = _audited(report, count)
    here, kept = Counter[str](), list[Entry]()
    for entry in sorted(page.entries, key=lambda entry: _ORDER.index(entry.style)):
        here[entry.namespace] += 1
        if here[entry.namespace] <= MOST_HERE and len(kept) < MOST_TOGETHER:
            kept.append(entry)
    return fragment(
        "ui_enforcing.html", more=len(page.entries) - len(kept), **_values(page._replace(entries=tuple(kept)))
    )


def pools_fragment(pools: tuple[PoolUse, ...], holders: Iterable[Holder], problems: Sequence[Problem]) -> str:
    """Write the pools as a part of another page. `holders` are pods with GPUs on nodes that are not known."""
    page = Page("", (), tuple(_gpus(pools)), pools, (), tuple(problems))
    return fragment("ui_pools.html", page=page, holders=[*holders], bar=bar)


def _audited(report: Report, count: int) -> Page:
    entries = tuple(_source(*group) for group in audit_report.grouped(report, exempted=True).items())
    counts = (
        Headline(count, "objects judged"),
        Headline(sum(entry.style == "deny" for entry in entries), "workloads would be denied", "deny"),
        Headline(sum(entry.style == "warn" for entry in entries), "workloads with warnings", "warn"),
        Headline(len(report.problems), "errors", "deny"),
    )
    return _page("Slicewarden audit", report, (Headlines("Objects", counts),), entries)


def diff(change: Change, _: Look = PLAIN) -> str:
    """Write the effects of a change of policy, with the pools of the new policy."""
    effects = ((len(change.having(effect)), effect) for effect in ChangeEffect)
    counts = (
        Headline(len(change.changed) + change.unchanged, "objects"),
        *(
            Headline(number, diff_report.HEADINGS[effect], _EFFECTS.get(effect, ""))
            for number, effect in effects
            if number
        ),
        Headline(change.unchanged, "as before"),
        Headline(len(change.problems), "errors", "deny"),
    )
    about = (
        ("old policy", f"{change.old.name} {change.old.digest}"),
        ("new policy", f"{change.new.name} {change.new.digest}"),
    )
    entries = tuple(map(_changed, change.changed))
    return _write(
        Page(
            title="Slicewarden diff",
            about=about,
            headlines=(*_gpus(change.pools), Headlines("Objects", counts)),
            pools=change.pools,
            entries=entries,
            problems=change.problems,
            notes=(*map(str, change.warnings), *change.notes),
            changes="What changes in the patch",
        )
    )


_PROOF = PageWords("pool", "open", "not shown", "shut", "shut", "The rules that shut the ways")
_METHODS = {
    "dry run": "It is shut if admission refused the pod, or told each of its containers to see no GPU. An honest pod "
    "of each pool has to be admitted. No pod was started. No change of a pod that exists was tried.",
    "pods": "It is shut if admission refused the pod, which then was never started; or if admission told each of its "
    "containers to see no GPU, the pod was started, and it saw none on the node on which the honest pod saw one. A "
    "change of a pod that exists was only sent as a dry run. Where it is shut by RBAC, this user may not make it in "
    "this namespace; others may.",
}
"""When a way is shut, by the method of the report."""

_OUTCOMES = {Outcome.OPEN: "deny", Outcome.UNKNOWN: "warn", Outcome.SHUT: "audit"}


def proof(report: Mapping[str, Any], rows: Iterable[ProofRow]) -> str:
    """Write the report of a proof: a ProofReport, with its rows."""
    rows, policy = [*rows], report["policy"]
    places: dict[ProofPlace, list[ProofRow]] = {}
    for row in rows:
        places.setdefault(row.place, []).append(row)
    numbers = counts(rows)
    about = (
        ("policy", f"{policy['name']} {policy['digest']}"),
        ("installed policy", policy["installed"] or "not known"),
        ("Kubernetes", report["kubernetes"]),
        ("Slicewarden", report["slicewarden"]),
        *((name, report[name]) for name in CONTEXT if report[name]),
        ("method", report["method"]),
        ("time", report["at"]),
        *((part, listed(known, _NAMED) if known else "not known") for part, known in software(report)),
        *((f"nodes of pool {each['pool']}", _software(each)) for each in report["nodes"]),
    )
    ways = Headlines(
        "Ways to a GPU that was not given",
        (
            Headline(numbers[Outcome.OPEN], "open", "deny"),
            Headline(numbers[Outcome.UNKNOWN], "not shown", "warn"),
            Headline(numbers[Outcome.SHUT], "shut", "allow"),
        ),
        f"Each way is a pod that tries to reach a GPU which it was not given. {_METHODS[report['method']]}",
    )
    entries = tuple(_tried(place, found) for place, found in places.items())
    return _write(Page("Slicewarden proof", about, (ways,), None, entries, (), extra=PAGES, words=_PROOF))


def _software(nodes: Mapping[str, Any]) -> str:
    values = (f"{label} {listed([*found], _NAMED)}" for label, found in nodes["labels"].items())
    return "; ".join((several(nodes["nodes"], "node"), *values))


def _tried(place: ProofPlace, rows: Sequence[ProofRow]) -> Entry:
    """Show a pool and a level of trust, with the outcome of each way: first what is open, then what was not shown."""
    marks = sorted(
        (
            FindingMark(
                _OUTCOMES[row.outcome],
                row.outcome,
                row.rule or UNSHOWN,
                row.way,
                0,
                row.message,
                f"by {row.by}" if row.by else "",
            )
            for row in rows
            if row.outcome in _OUTCOMES
        ),
        key=lambda mark: _ORDER.index(mark.style),
    )
    style = next((style for style in ("deny", "warn") if any(mark.style == style for mark in marks)), "allow")
    words = {"deny": "open", "warn": "not shown", "allow": "shut"}[style]
    honest = tuple(
        ": ".join(filter(None, ("the honest pod was admitted", row.message)))
        for row in rows
        if row.outcome is Outcome.ADMITTED
    )
    return Entry(style, words, place.namespace, place.title, "", tuple(marks), honest)


def _page(title: str, report: Report, headlines: tuple[Headlines, ...], entries: tuple[Entry, ...]) -> Page:
    about = (("policy", f"{report.policy.name} {report.policy.digest}"), *_time(report.at))
    return Page(
        title=title,
        about=about,
        headlines=(*_gpus(report.pools), *headlines),
        pools=report.pools,
        entries=entries,
        problems=report.problems,
        notes=(*map(str, report.warnings), *report.notes, *(report.fallback.lines if report.fallback else ())),
        extra=report.pages,
        help=report.help,
    )


def _gpus(pools: tuple[PoolUse, ...] | None) -> Iterator[Headlines]:
    """Count the cards by how they are shared, and the GPUs and slices that pods have."""
    if not pools:
        return
    kinds, uncounted = Counter[str](), Counter[str]()
    for pool in pools:
        kind = "shared" if pool.shared else {"none": "whole", "": "in no pool"}.get(pool.sharing, "split")
        kinds[kind] += pool.gpus
        uncounted[kind] += pool.uncounted
    amounts = [amount for pool in pools for amount in pool.amounts]
    offered, held = (
        (sum(each) for each in zip(*((a.offered, a.held) for a in amounts), strict=True)) if amounts else (0, 0)
    )
    unknown = uncounted.total()
    counts = (
        Headline(kinds.total(), "cards", least=unknown > 0),
        *(Headline(kinds[kind], words, least=uncounted[kind] > 0) for kind, words in _KINDS.items() if kinds[kind]),
        Headline(held, f"of {offered:,} GPUs and slices held"),
        Headline(sum(max(amount.offered - amount.held, 0) for amount in amounts), "idle"),
    )
    yield Headlines("GPUs", counts, f"The cards of {several(unknown, 'node')} are not known." if unknown else "")


_KINDS = {"shared": "shared", "whole": "whole", "split": "split by MIG", "in no pool": "in no pool"}


def _effects(judged: Iterable[Judged]) -> Headlines:
    """Count what enforcing the policy would do to objects, if they were created again.

    `/mutate` patches pods. A workload counts by the pool and the cap of its pods to come.
    """
    refused = steered = capped = waiting = 0
    for each in judged:
        if not each.verdict.allowed:
            refused += 1
            continue
        paths = [str(operation["path"]) for operation in each.verdict.patch]
        to_come = each.kind != "Pod"
        steered += any("/nodeSelector" in path or "/affinity" in path for path in paths) or (
            to_come and any(landing.pool for landing in each.landings)
        )
        capped += (to_come or bool(paths)) and any(landing.cap for landing in each.landings)
        waiting += any(landing.waits for landing in each.landings)
    counts = (
        Headline(refused, "refused", "deny"),
        Headline(waiting, "waiting for a node", "warn"),
        Headline(steered, "steered to a pool"),
        Headline(capped, "with capped memory"),
    )
    return Headlines("If enforced, for objects created from now on", counts)


def _time(at: datetime | None) -> Iterator[tuple[str, str]]:
    if at:
        yield "time", f"{at:%Y-%m-%d %H:%M} UTC"


# Objects and their findings

_STYLES = {Action.DENY: "deny", Action.WARN: "warn", Action.AUDIT: "audit"}
_EFFECTS = {
    ChangeEffect.DENIED: "deny",
    ChangeEffect.FREED: "allow",
    ChangeEffect.WARNED: "warn",
    ChangeEffect.REFUSED_OTHERWISE: "deny",
}


def _mark(result: Result, note: str = "", number: int = 0) -> FindingMark:
    path, message = dotted(result.finding.path), result.finding.message
    return FindingMark(_STYLES[result.action], result.action, result.rule, path, number, message, note)


def _judged(judged: Judged, pods: Sequence[Judged]) -> Entry:
    """Show an object, and how many pods are its own and have no other findings."""
    denied = not judged.verdict.allowed
    style, words = ("deny", "denied") if denied else ("warn", "warning") if judged.warned else ("allow", "allowed")
    marks = tuple(
        _mark(result, result.remark, 0 if judged.live else number)
        if file == judged.file
        else _mark(result, "; ".join(filter(None, (result.remark, f"at {shown(file, quotes=False)}:{number}"))))
        for result, file, number in judged.located
    )
    lands = [part for landing in judged.landings for part in _lands(landing)]
    if pods:
        lands.append(f"{several(len(pods), 'pod')} of it with no other findings")
    command = _command(judged.namespace, judged.api_version, judged.kind, judged.name) if judged.live else ""
    place = "" if judged.live else judged.place
    return Entry(style, words, judged.namespace, judged.title, place, marks, tuple(lands), judged.diff, command)


def _command(namespace: str, api_version: str, kind: str, name: str) -> str:
    """Write the command that shows an object of a cluster."""
    group = api_version.rpartition("/")[0]
    resource = f"{kind}.{group}" if group else kind
    scope = ["--namespace", namespace] if namespace else []
    return shlex.join(["kubectl", *scope, "get", f"{resource.lower()}/{name}", "--output", "yaml"])


def _lands(landing: Landing) -> Iterator[str]:
    yield f"lands: {landing.brief}"
    yield f"memory: {landing.memory}"
    yield from (f"capped: {text}" for text in coverage.lines(landing.capped))


_NAMED = 5
"""Pods that a finding of an audit names."""


def _source(source: RootOwner, findings: list[SourceFinding]) -> Entry:
    marks = tuple(_mark(finding.result, _note(source, finding)) for finding in findings)
    worst = next((style for style in ("deny", "warn") if any(mark.style == style for mark in marks)), "allow")
    words = {"deny": "would be denied", "warn": "warning", "allow": "allowed"}[worst]
    command = _command(source.namespace, source.api_version, source.kind, source.name) if source.name else ""
    return Entry(worst, words, source.namespace, shown(source.text, quotes=False), "", marks, command=command)


def _note(source: RootOwner, finding: SourceFinding) -> str:
    pods = [
        f"{item.kind} {item.name}" for item in finding.objects if (item.kind, item.name) != (source.kind, source.name)
    ]
    parts = (
        f"in {listed(pods, _NAMED)}" if pods else "",
        finding.result.remark,
    )
    return "; ".join(filter(None, parts))


def _changed(changed: Changed) -> Entry:
    judged = changed.after
    marks = tuple(
        _mark(difference.result, number=difference.line)._replace(
            style=_STYLES[difference.after] if difference.after else "allow",
            words=f"{difference.before or 'none'} → {difference.after or 'none'}",
        )
        for difference in changed.differences
    )
    words = ", ".join(diff_report.HEADINGS[effect] for effect in changed.effects)
    before, after = (pool or "no GPU" for pool in changed.pools)
    lands = (f"pool: {before} → {after}",) if ChangeEffect.STEERED in changed.effects else ()
    patch = "\n".join(diff_report.patches(changed)) if ChangeEffect.PATCHED in changed.effects else ""
    style = _EFFECTS.get(changed.effects[0], "audit")
    return Entry(style, words, judged.namespace, judged.title, judged.place, marks, lands, patch)


_ORDER = ("deny", "warn", "audit", "allow")


def _groups(entries: Iterable[Entry]) -> list[Group]:
    """Group entries by namespace, those with the worst findings first; objects of the whole cluster come last."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.namespace, []).append(entry)
    for group in groups.values():
        group.sort(key=lambda entry: _ORDER.index(entry.style))
    order = sorted(groups, key=lambda name: (_ORDER.index(groups[name][0].style), not name, name))
    return [Group(name, *_parted(groups[name])) for name in order]


def _parted(entries: Sequence[Entry]) -> tuple[tuple[Entry, ...], tuple[Entry, ...]]:
    urgent = tuple(entry for entry in entries if entry.style != "allow")
    return urgent, tuple(entry for entry in entries if entry.style == "allow")


def _rows(pairs: Iterable[tuple[str, str, str]]) -> list[SummaryRow]:
    """Count findings, given as name, other name and style, for each name; the most denied come first."""
    styles: dict[str, Counter[str]] = {}
    others: dict[str, Counter[str]] = {}
    for name, other, style in pairs:
        styles.setdefault(name, Counter())[style] += 1
        others.setdefault(name, Counter())[other] += 1
    rows = (
        SummaryRow(name, counted["deny"], counted["warn"], counted["audit"], _listed(others[name]))
        for name, counted in styles.items()
    )
    return sorted(rows, key=lambda row: (-row.deny, -row.warn, -row.audit, row.name))


def _listed(names: Counter[str]) -> str:
    return listed([f"{name or _CLUSTER} {count}" for name, count in names.most_common()], _NAMED)


_CLUSTER = "whole cluster"


# Memory


def bar(division: Division) -> Bar:
    """Divide the memory of a GPU into the segments of a bar, and say the same in words."""
    budget = division.budget
    card, unit = budget.card, 1000 / budget.card.memory
    segments = [Segment("reserve", 0, budget.reserve * unit)]
    start = budget.reserve * unit
    for _ in range(card.replicas):
        for style, size in (("context", budget.context), ("cap", max(budget.budget, 0))):
            segments.append(Segment(style, start, size * unit))
            start += size * unit
    words = (
        f"{card.memory} MiB: {budget.reserve} MiB reserve, and {card.replicas} slices of {budget.context} MiB context "
        f"and {budget.budget} MiB cap ({budget.fraction} of the GPU)"
    )
    return Bar(division, tuple(segments), words)


# The page


def _write(page: Page) -> str:
    return written("template.html", **_values(page))


def _values(page: Page) -> dict[str, Any]:
    marks = [(entry, mark) for entry in page.entries for mark in entry.marks]
    found = {mark.rule for _, mark in marks}
    pages = {**{rule.id: rule.page for rule in rules.walk()}, **page.extra}
    return {
        "page": page,
        "groups": _groups(page.entries),
        "by_rule": _rows((mark.rule, entry.namespace, mark.style) for entry, mark in marks),
        "by_namespace": _rows((entry.namespace, mark.rule, mark.style) for entry, mark in marks),
        "pages": [(rule, _paragraphs(pages[rule])) for rule in sorted(found) if rule in pages],
        "bar": bar,
        "whole": _CLUSTER,
    }


def written(template: str, scripts: Sequence[str] = SCRIPTS, connect: str = "", **values: Any) -> str:
    """Write a page from one of the templates. All pages have the same style; `scripts` are the files of its script.

    `connect` is the source that the script may ask; it may ask none if that is empty.
    """
    return fragment(
        template,
        style=Markup(_own("style.css")),  # noqa: S704 - a file of this package
        script=Markup(_joined(scripts)),  # noqa: S704 - files of this package
        policy=content_policy(scripts, connect),
        **values,
    )


def content_policy(scripts: Sequence[str] = SCRIPTS, connect: str = "") -> str:
    """Return the Content-Security-Policy of a page (`written`)."""
    connects = f"connect-src {connect}; " if connect else ""
    return (
        f"default-src 'none'; style-src {_hash(_own('style.css'))}; script-src {_hash(_joined(scripts))}; "
        f"{connects}img-src data:; base-uri 'none'; form-action 'none'"
    )


def fragment(template: str, **values: Any) -> Markup:
    """Write a part of a page from one of the templates. All values in it are escaped, unless they are parts."""
    text = _environment().get_template(template).render(line=line, several=several, MOST=MOST, **values)
    return Markup(text)  # noqa: S704 - the template escapes its values


def _joined(scripts: Sequence[str]) -> str:
    return "".join(map(_own, scripts))


def _paragraphs(page: str) -> list[str]:
    return [part if "\n- " in f"\n{part}" else " ".join(part.split()) for part in page.strip().split("\n\n")]


def _own(name: str) -> str:
    return (pkgutil.get_data("webhook.reports", f"page/{name}") or b"").decode("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}'"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_own),
        autoescape=True,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )


def _printable(value: Any) -> Any:
    """Escape characters that no reader can see or that turn the text around them. Line breaks stay."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in value)
