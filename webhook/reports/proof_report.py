"""Reports a proof: a table for people, JSON for programs, JUnit for CI."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from webhook.model import Action
from webhook.policy.model import Policy
from webhook.proving.proof import Outcome, ProofRun, Shown, Tried
from webhook.proving.ways import GPUWay
from webhook.reports import parts
from webhook.reports.formats import junit
from webhook.text.terminal import PLAIN, Look
from webhook.text.words import line

_COUNTED = (Outcome.SHUT, Outcome.OPEN, Outcome.UNKNOWN)
_STYLES = {Outcome.SHUT: "allowed", Outcome.OPEN: "denied", Outcome.UNKNOWN: "warned"}
_WIDTH = len(Outcome.UNKNOWN) + 2

HONEST = "honest pod"
"""The name of the probe that must be admitted."""


def table(proof: ProofRun, look: Look) -> str:
    """Write each pool and level of trust with its counts, and each way that is not shut, with the reason."""
    lines: list[str] = []
    for tried in proof.tried:
        target, counts = tried.target, Counter(each.outcome for each in tried.shown if each.way)
        counted = ", ".join(f"{counts[outcome]} {outcome}" for outcome in _COUNTED if counts[outcome])
        head = f"pool {target.pool.name}, {target.trust}, namespace {target.namespace}: {counted}"
        lines += look.wrap(head, "")
        for each in tried.shown:
            if each.outcome in (Outcome.OPEN, Outcome.UNKNOWN):
                lines += _row(each.outcome, _name(each.way), _why(each, proof.policy), look)
    for lacking in proof.untried:
        lines += look.wrap(f"pool {lacking.pool.name}, {lacking.trust}", "")
        lines += _row(Outcome.UNKNOWN, "all ways", lacking.why, look)
    return "".join(f"{each}\n" for each in [*lines, "", *look.wrap(_summary(proof), "")])


def _row(outcome: Outcome, name: str, why: str, look: Look) -> Iterator[str]:
    yield from look.hang(f"  {look.paint(f'{outcome:<{_WIDTH}}', _STYLES[outcome])}", f"{name}: {why}")


def _name(way: GPUWay | None) -> str:
    return HONEST if way is None else way.name


def _why(shown: Shown, policy: Policy) -> str:
    way = shown.way
    if shown.outcome is not Outcome.OPEN or way is None:
        return line(shown.message) or "there was no answer"
    admitted = f"a pod with {way.says} was admitted, "
    if (action := policy.action(way.rule)) is not Action.DENY:
        return f"{admitted}because the action of rule {way.rule} is {action} (`actions`)"
    return (
        f"{admitted}though rule {way.rule} denies it: look for an override or an exemption of the namespace, "
        "and run `slicewarden doctor`"
    )


def _summary(proof: ProofRun) -> str:
    counts = ", ".join(f"{proof.count(outcome)} {outcome}" for outcome in _COUNTED)
    return f"policy {proof.policy.name}, Kubernetes {proof.kubernetes}: {counts}"


def to_json(proof: ProofRun, _: Look) -> str:
    """Write everything as one JSON object."""
    fields = {
        "policy": {"name": proof.policy.name, "digest": proof.policy.digest, "installed": proof.installed},
        "kubernetes": proof.kubernetes,
        "at": proof.at.isoformat(timespec="seconds"),
        "method": "dry run",
        "targets": [_target(each) for each in proof.tried],
        "untried": [{"pool": each.pool.name, "trust": each.trust, "why": each.why} for each in proof.untried],
        "summary": {outcome.value: proof.count(outcome) for outcome in _COUNTED},
    }
    return parts.document("ProofReport", fields)


def _target(tried: Tried) -> Mapping[str, object]:
    target = tried.target
    return {
        "pool": target.pool.name,
        "trust": target.trust,
        "namespace": target.namespace,
        "resource": target.resource,
        "ways": [
            {
                "way": _name(each.way),
                "rule": each.way.rule if each.way else "",
                "namespace": each.namespace,
                "outcome": each.outcome,
                "by": each.by,
                "message": each.message,
            }
            for each in tried.shown
        ],
    }


def to_junit(proof: ProofRun, _: Look) -> str:
    """Write JUnit XML: a suite for each pool and level of trust, and a test case for each way."""
    suites = [
        junit.JUnitSuite(
            f"{each.target.pool.name}, {each.target.trust}", [_case(each, shown, proof.policy) for shown in each.shown]
        )
        for each in proof.tried
    ]
    for lacking in proof.untried:
        case = junit.JUnitCase(lacking.pool.name, "all ways", error=lacking.why)
        suites.append(junit.JUnitSuite(f"{lacking.pool.name}, {lacking.trust}", [case]))
    return junit.write(suites, proof.at)


def _case(tried: Tried, shown: Shown, policy: Policy) -> junit.JUnitCase:
    failure = _why(shown, policy) if shown.outcome is Outcome.OPEN else ""
    error = _why(shown, policy) if shown.outcome is Outcome.UNKNOWN else ""
    return junit.JUnitCase(tried.target.pool.name, _name(shown.way), failure, error)


FORMATS: Mapping[str, str] = {"table": "what is not shut, for people", "json": "for programs", "junit": "for CI"}
"""The name and purpose of each format."""

_RENDER: Mapping[str, Callable[[ProofRun, Look], str]] = {"table": table, "json": to_json, "junit": to_junit}


def render(name: str, proof: ProofRun, look: Look = PLAIN) -> str:
    """Write the report in a format."""
    return _RENDER[name](proof, look)
