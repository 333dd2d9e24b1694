"""Reports a proof: a table for people, JSON for programs, JUnit for CI, and evidence to sign and hand over."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from webhook.model import Action, Finding, Result, Verdict
from webhook.policy.model import API_VERSION, Policy
from webhook.proving.changes import RBAC
from webhook.proving.proof import PATCH, Outcome, ProofRun
from webhook.proving.ways import CHANGES
from webhook.reports import parts, report_objects
from webhook.reports.formats import junit, sarif
from webhook.reports.proof_rows import (
    HONEST,
    METHODS,
    PAGES,
    UNSHOWN,
    ProofPlace,
    ProofRow,
    counts,
    rows,
    software,
    value,
)
from webhook.reports.statement import POLICY, PREDICATE, REGISTRATION, STATEMENT
from webhook.scan.results import Judged, Report
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import line, listed, several, sha256, shown

_STYLES = {Outcome.ADMITTED: "allowed", Outcome.SHUT: "allowed", Outcome.OPEN: "denied", Outcome.UNKNOWN: "warned"}
_WIDTH = len(Outcome.UNKNOWN) + 2


def table(proof: ProofRun, look: Look) -> str:
    """Write each pool and level of trust with its counts, and each way that is not shut, with the reason."""
    title = f"policy {proof.policy.name}, Kubernetes {shown(proof.kubernetes, quotes=False)}"
    return tabled([*rows(proof)], value(proof), title, look)


def tabled(found: Iterable[ProofRow], report: Mapping[str, Any], title: str, look: Look) -> str:
    """Write the table of a ProofReport and its rows. The `title` stands before the counts."""
    found = [*found]
    lines: list[str] = []
    for place, group in groupby(found, lambda row: row.place):
        here = [*group]
        counted = ", ".join(f"{count} {outcome}" for outcome, count in counts(here).items() if count)
        lines += look.wrap(f"{place.title}: {counted}" if place.namespace else place.title, "")
        lines += look.wrap(_started(here), "  ") if any(row.seen for row in here) else ()
        if barred := sum(row.by == RBAC for row in here):
            lines += look.wrap(f"{several(barred, 'way')} shut by RBAC, for this user in this namespace only", "  ")
        for row in here:
            if row.seen or row.outcome in (Outcome.OPEN, Outcome.UNKNOWN):
                head = f"  {look.paint(f'{row.outcome:<{_WIDTH}}', _STYLES[row.outcome])}"
                lines += look.hang(head, f"{row.way}: {row.message}")
    total = ", ".join(f"{count} {outcome}" for outcome, count in counts(found).items())
    left = look.wrap(_LEFT, "") if report["method"] == METHODS[False] else ()
    parts = ", ".join(f"{part} {listed(known, _NAMED) if known else 'not known'}" for part, known in software(report))
    last = look.wrap(f"{title}: {total}", "")
    return "".join(f"{each}\n" for each in [*lines, "", *left, *look.wrap(f"NVIDIA's software: {parts}", ""), *last])


_NAMED = 3
"""The most versions or images of a part that a table names."""


_LEFT = f"not tried: {several(len(CHANGES), 'way')} that change a pod which exists; --run tries them"


def _started(here: Iterable[ProofRow]) -> str:
    """Count the ways of a place at which pods were started, by whether theirs was."""
    ways = [row for row in here if row.way != HONEST]
    shut = [row for row in ways if row.outcome is Outcome.SHUT]
    patched = sum(row.by == PATCH for row in shut if not row.seen)
    return (
        f"{sum(row.by != PATCH for row in shut)} were refused and never started; "
        f"{sum(row.seen is not None for row in ways)} were started, of which "
        f"{sum(row.seen is not None for row in shut)} saw 0 cards and are shut"
        + (f"; {several(patched, 'debug container')} only in a dry run" if patched else "")
    )


def to_json(proof: ProofRun, _: Look) -> str:
    """Write everything as one JSON object."""
    return parts.written(value(proof))


def to_junit(proof: ProofRun, _: Look) -> str:
    """Write JUnit XML: a suite for each pool and level of trust, and a test case for each way.

    The output of a suite is what the honest pod and the pods of shut ways saw.
    """
    return junit.write(
        (_suite(place, [*group]) for place, group in groupby(rows(proof), lambda row: row.place)), proof.at
    )


def _suite(place: ProofPlace, found: Sequence[ProofRow]) -> junit.JUnitSuite:
    saw = "\n".join(
        f"{row.way}: {row.outcome}: {row.message}" for row in found if row.seen and row.outcome not in _ACTIONS
    )
    return junit.JUnitSuite(f"{place.pool}, {place.trust}", [*map(_case, found)], saw)


def _case(row: ProofRow) -> junit.JUnitCase:
    failure = row.message if row.outcome is Outcome.OPEN else ""
    error = row.message if row.outcome is Outcome.UNKNOWN else ""
    return junit.JUnitCase(row.place.pool, row.way, failure, error)


# The formats of a check

_ACTIONS = {Outcome.OPEN: Action.DENY, Outcome.UNKNOWN: Action.WARN}


def to_sarif(proof: ProofRun, look: Look) -> str:
    """Write SARIF: an error for each way that is open, and a warning for each that was not shown."""
    judged = [_judged(place, group, proof.policy) for place, group in groupby(rows(proof), lambda row: row.place)]
    return sarif.render(Report(tuple(judged), policy=proof.policy, at=proof.at, pages=PAGES), look)


def _judged(place: ProofPlace, found: Iterable[ProofRow], policy: Policy) -> Judged:
    """Return the findings at a place as those on its namespace, or on the policy where nothing was sent."""
    results = tuple(
        Result(
            row.rule or UNSHOWN,
            _ACTIONS[row.outcome],
            Finding((place.pool, place.trust, row.way), row.message or f"is {row.outcome}"),
        )
        for row in found
        if row.outcome in _ACTIONS
    )
    scope = _scope(place, policy)
    api_version, kind, name = scope["apiVersion"], scope["kind"], scope["name"]
    return Judged("", 0, 0, api_version, kind, "", name, Verdict(results), (0,) * len(results), live=True)


def _scope(place: ProofPlace, policy: Policy) -> dict[str, str]:
    if place.namespace:
        return {"apiVersion": "v1", "kind": "Namespace", "name": place.namespace}
    return {"apiVersion": API_VERSION, "kind": "GPUSharingPolicy", "name": policy.name}


_RESULTS = {Outcome.SHUT: "pass", Outcome.ADMITTED: "pass", Outcome.OPEN: "fail", Outcome.UNKNOWN: "error"}


def to_openreports(proof: ProofRun, _: Look) -> str:
    """Write a List of OpenReports' ClusterReports, one for each pool and level of trust, with each way's result."""
    stamp = {"seconds": int(proof.at.timestamp()), "nanos": 0}
    items = []
    for place, group in groupby(rows(proof), lambda row: row.place):
        results = [{**_result(row, proof.policy.name), "timestamp": stamp} for row in group]
        name = f"{report_objects.SOURCE}-proof-{sha256(chr(0).join(place))[:16]}"
        items.append(report_objects.made(name, _scope(place, proof.policy), results))
    return report_objects.listed(items)


def _result(row: ProofRow, policy: str) -> dict[str, Any]:
    properties = {"pool": row.place.pool, "trust": row.place.trust, "way": row.way, "outcome": row.outcome.value}
    return {
        "source": report_objects.SOURCE,
        "policy": policy,
        "rule": row.rule or UNSHOWN,
        "severity": "info" if row.outcome is Outcome.ADMITTED else "high",
        "result": _RESULTS[row.outcome],
        "scored": row.outcome is not Outcome.ADMITTED,
        "message": row.message or f"{row.way} is {row.outcome}",
        "properties": {**properties, **({"by": row.by} if row.by else {})},
    }


def to_html(proof: ProofRun, _: Look) -> str:
    """Write a page for a browser."""
    from webhook.reports.formats import html  # Jinja, which only a page needs

    return html.proof(value(proof), rows(proof))


# A statement to sign


def to_in_toto(proof: ProofRun, _: Look) -> str:
    """Write an in-toto statement on the policy and its registration; its predicate is the ProofReport."""
    subject = [{"name": f"{POLICY}{line(proof.policy.name)}", "digest": {"sha256": sha256(proof.policy.written)}}]
    if proof.registration:
        subject.append({"name": REGISTRATION, "digest": {"sha256": proof.registration}})
    statement = {"_type": STATEMENT, "subject": subject, "predicateType": PREDICATE, "predicate": value(proof)}
    return parts.written(statement)


FORMATS: Mapping[str, str] = {
    "table": "what is not shut, for people",
    "json": "for programs",
    "junit": "for CI",
    "html": "a page for a browser",
    "in-toto": "a statement to sign",
    "openreports": "ClusterReports of openreports.io/v1alpha1",
    "sarif": "for code scanning, SARIF 2.1.0",
}
"""The name and purpose of each format."""

_RENDER: Mapping[str, Callable[[ProofRun, Look], str]] = {
    "table": table,
    "json": to_json,
    "junit": to_junit,
    "html": to_html,
    "in-toto": to_in_toto,
    "openreports": to_openreports,
    "sarif": to_sarif,
}


def render(name: str, proof: ProofRun, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    return _RENDER[name](proof, look)
