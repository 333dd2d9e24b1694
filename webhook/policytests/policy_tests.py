"""Reads PolicyTest files, and compares the verdicts of their objects with the expected ones."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from webhook.api import admission, jsonpatch
from webhook.api.fields import group_kind
from webhook.api.objects import judges
from webhook.documents.documents import Document
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.gpu.review import placements_for
from webhook.model import (
    Action,
    Malformed,
    Object,
    Path,
    Problem,
    Request,
    Requester,
    Result,
    Unusable,
    Verdict,
    dotted,
    immutable,
)
from webhook.policy.load import problems
from webhook.policy.schemas import schema, schema_errors

KIND = "PolicyTest"

ALLOWED, WARNED, DENIED = "allowed", "warned", "denied"


@immutable
class Case:
    """A case of a PolicyTest: objects and the verdicts expected for them. `path` is its place in the document."""

    document: Document
    path: Path
    value: Object
    today: date | None

    @property
    def name(self) -> str:
        """The case's name."""
        return str(self.value["name"])

    def line(self, *keys: str | int) -> int:
        """Return the line of a place in the case."""
        return self.document.line((*self.path, *keys))


@immutable
class Suite:
    """A valid PolicyTest. The paths are relative to its file."""

    document: Document
    name: str
    policy: str
    facts: tuple[str, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """An expectation that was not met: the expected value, the actual value, and the line of the expectation."""

    line: int
    what: str
    expected: str
    got: str


@immutable
class CaseResult:
    """The result of a case. `found` are the findings about its objects, which help to correct the case."""

    suite: Suite
    case: Case
    failures: tuple[Failure, ...]
    found: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all expectations were met."""
        return not self.failures


@immutable
class SuiteRun:
    """The results of all cases, the problems in the files, and the time that the run took."""

    outcomes: tuple[CaseResult, ...]
    problems: tuple[Problem, ...]
    at: datetime | None = None

    @property
    def failed(self) -> int:
        """The number of cases that failed."""
        return sum(not outcome.passed for outcome in self.outcomes)


def load(document: Document, rules: Iterable[str]) -> Suite:
    """Read a PolicyTest. Raises Unusable with every error, each with its line."""
    value = document.value
    wrong = problems(document, schema_errors(value, schema(rules, KIND)))
    if wrong := wrong or problems(document, _meaning_errors(value["spec"])):
        raise Unusable(wrong)
    spec = value["spec"]
    cases = (
        Case(document, ("spec", "cases", index), case, _day(case.get("today", spec.get("today"))))
        for index, case in enumerate(spec["cases"])
    )
    return Suite(document, value["metadata"]["name"], spec["policy"], tuple(spec.get("facts", ())), tuple(cases))


def _meaning_errors(spec: Object) -> Iterator[tuple[Path, str]]:
    names: set[str] = set()
    days: list[tuple[Path, str | None]] = [(("spec", "today"), spec.get("today"))]
    for index, case in enumerate(spec["cases"]):
        at: Path = ("spec", "cases", index)
        if case["name"] in names:
            yield (*at, "name"), f"a second case of this name: {case['name']}"
        names.add(case["name"])
        days.append(((*at, "today"), case.get("today")))
        operation, expect = case.get("request", {}).get("operation", "CREATE"), case["expect"]
        if (operation == "UPDATE") != ("oldObject" in case):
            yield at, "only an UPDATE has an oldObject, and it must have one; write both or neither"
        if "oldObject" in case and "object" not in case:
            yield (*at, "oldObject"), "replaces one object; write it as `object`"
        if case.get("object", {}).get("kind") == "AdmissionReview" and case.keys() & {"request", "oldObject"}:
            yield (*at, "object"), "an AdmissionReview already contains its request; remove request and oldObject"
        if expect["verdict"] == ALLOWED and (expect.get("rules") or expect.get("message")):
            yield (*at, "expect"), "an object allowed without a warning has no rules and no message; remove them"
    for path, day in days:
        try:
            _day(day)
        except ValueError:
            yield path, f"is not a day of the calendar: {day}"


def _day(text: str | None) -> date | None:
    return None if text is None else date.fromisoformat(text)


# Requests


def requests(case: Case, objects: Sequence[Object]) -> list[Request]:
    """Make the requests of a case as an API server would send them. Raises Unusable."""
    made = []
    for item in objects:
        try:
            made.append(_request(case, item))
        except admission.NotAReview as error:
            raise Unusable((Problem(case.document.file, case.line(), str(error)),)) from error
    return made


def _request(case: Case, item: Object) -> Request:
    if item["kind"] == "AdmissionReview":
        return admission.decode(admission.encoded(item))
    request = case.value.get("request", {})
    sent = admission.decode(admission.wrap(item))
    operation = request.get("operation", "CREATE")
    old = sent.object if operation == "DELETE" else None
    if "oldObject" in case.value:
        old = admission.decode(admission.wrap(case.value["oldObject"])).object
    known = request.keys() & {"user", "groups"}
    who = Requester(request.get("user", ""), frozenset(request.get("groups", ()))) if known else None
    return replace(
        sent,
        operation=operation,
        subresource=request.get("subresource", ""),
        object=None if operation == "DELETE" else sent.object,
        old_object=old,
        requester=who,
    )


# Verdicts


def judge(suite: Suite, case: Case, objects: Sequence[Object], engine: Engine, facts: Facts) -> CaseResult:
    """Judge the objects of a case, and compare the verdicts. Raises Unusable if there is nothing to judge."""
    failures: list[Failure] = []
    findings: list[str] = []
    for request in requests(case, objects):
        if not judges(request.group, request.kind, engine.policy.workloads):
            text = f"kind {request.kind} is not judged; remove the object, or add its kind to the policy's workloads"
            raise Unusable((Problem(case.document.file, case.line(), text),))
        verdict = engine.judge(request, facts)
        whose = f" of {request.kind} {request.name}" if len(objects) > 1 else ""
        differing = _differences(case, request, verdict, engine, facts)
        failures += (replace(failure, what=failure.what + whose) for failure in differing)
        findings += _said(verdict)
    return CaseResult(suite, case, tuple(failures), tuple(findings))


def verdict_of(verdict: Verdict) -> str:
    """Summarise a verdict in one word."""
    if not verdict.allowed:
        return DENIED
    return WARNED if verdict.having(Action.WARN) else ALLOWED


def _said(verdict: Verdict) -> Iterator[str]:
    if verdict.malformed is not None:
        yield f"malformed: {verdict.malformed}"
    for result in verdict.results:
        yield f"{result.action} {result.text}"


def _differences(case: Case, request: Request, verdict: Verdict, engine: Engine, facts: Facts) -> Iterator[Failure]:
    expect = case.value["expect"]

    def differs(key: str, expected: str, got: str) -> Failure:
        return Failure(case.line("expect", key), key, expected, got)

    came = verdict_of(verdict)
    if came != expect["verdict"]:
        yield differs("verdict", expect["verdict"], came)
    spoken = verdict.having(Action.WARN if came == WARNED else Action.DENY)
    for key, results in (("rules", spoken), ("recorded", verdict.having(Action.AUDIT))):
        rules = sorted({result.rule for result in results})
        if key in expect and sorted(expect[key]) != rules:
            yield differs(key, _listed(sorted(expect[key])), _listed(rules))
    texts = _texts(verdict, spoken)
    for text in _each(expect.get("message", ())):
        if not any(text in line for line in texts):
            yield differs("message", text, "\n".join(texts) or "no message")
    if "pool" in expect:
        pools = _pools(request, engine, facts) or ["none"]
        if pools != [expect["pool"] or "none"]:
            yield differs("pool", expect["pool"] or "none", ", ".join(pools))
    if "patch" in expect and expect["patch"] != list(verdict.patch):
        yield differs("patch", _lines(expect["patch"]), _lines(verdict.patch))
    if "result" in expect:
        result = jsonpatch.apply(request.object, verdict.patch) if request.object is not None else {}
        for path, wanted, held in unlike(expect["result"], result):
            yield Failure(case.line("expect", "result", *path), f"result {dotted(path)}", wanted, held)


def _texts(verdict: Verdict, spoken: Iterable[Result]) -> list[str]:
    return [str(verdict.malformed)] if verdict.malformed is not None else [result.text for result in spoken]


def _pools(request: Request, engine: Engine, facts: Facts) -> list[str]:
    """Return the names of the pools of a request's pods; `none` for pods without one."""
    try:
        return sorted(
            {each.pool.name if each.pool else "none" for each in placements_for(request, engine.policy, facts)}
        )
    except Malformed:
        return []


def unlike(expected: Any, got: Any, path: Path = ()) -> Iterator[tuple[Path, str, str]]:
    """Yield the differences between a value and the expected one: the path, the expected text and the actual text.

    Only the expected keys of a map are compared; an expected null means an absent key. If all expected items of a list
    have names, they are compared by name; any other list is compared as a whole.
    """
    if isinstance(expected, dict) and isinstance(got, dict):
        for key, value in expected.items():
            if value is None:
                if got.get(key) is not None:
                    yield (*path, key), "nothing", _written(got[key])
            elif key not in got:
                yield (*path, key), _written(value), "nothing"
            else:
                yield from unlike(value, got[key], (*path, key))
    elif _named(expected) and isinstance(got, list):
        for index, wanted in enumerate(expected):
            there = [item for item in got if isinstance(item, dict) and item.get("name") == wanted["name"]]
            if there:
                yield from unlike(wanted, there[-1], (*path, index))
            else:
                yield (*path, index), _written(wanted), f"none named {wanted['name']}"
    elif _written(expected) != _written(got):  # compared as JSON, since True equals 1 in Python
        yield path, _written(expected), _written(got)


def _named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) and "name" in item for item in value)


def _each(value: str | list[str]) -> Sequence[str]:
    return (value,) if isinstance(value, str) else value


def _listed(words: Sequence[str]) -> str:
    return "\n".join(words) or "none"


def _lines(operations: Iterable[Any]) -> str:
    return "\n".join(map(_written, operations)) or "none"


def _written(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def holds(document: Document) -> bool:
    """Whether a document is a PolicyTest."""
    return isinstance(document.value, dict) and group_kind(document.value)[1] == KIND
