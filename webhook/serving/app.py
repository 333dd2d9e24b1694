"""Answers the webhook's requests over HTTP: `/mutate` and `/validate`, `/policy`, `/healthz` and `/readyz`.

Flask answers requests that anyone may send: metrics, policies, and unknown paths. Reviews and probes are answered here,
without Flask.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from webhook.allowance import TooLate
from webhook.api import admission, duration
from webhook.engine import probe
from webhook.engine.audit_mode import Judge
from webhook.engine.engine import RuleBroke
from webhook.engine.filled import POLICY_PATH
from webhook.facts.rights import Account
from webhook.facts.snapshot import Facts
from webhook.facts.sources import Dated, Source
from webhook.http.kept import Kept
from webhook.http.messages import HttpRequest, Later, Reply
from webhook.model import Mode, Object, Request, Verdict
from webhook.serving import wsgi
from webhook.serving.judges import Answering, Judges, OnePolicy
from webhook.telemetry.log import Log

if TYPE_CHECKING:
    from webhook.telemetry.metrics import Metrics

MAX_LOGGED = 253
"""Maximum characters of a name in a log line: the longest name in Kubernetes."""

PATIENCE = 10.0
"""Seconds that an API server waits if the registration sets no timeout (admissionregistration/v1 types.go)."""

LONGEST_PATIENCE = 30.0
"""Maximum seconds that an API server waits (admissionregistration/v1 types.go). No other caller may set more."""

MOST_POLICY = 512 << 10
"""Maximum bytes of a policy's review. The controller checks every policy, also one that skips this check."""

NO_FACTS = "facts are not loaded yet, or too old"

MARGIN = 0.05
"""The share of the deadline that is reserved for sending the answer."""

PROBES = ("/healthz", "/readyz")
"""The paths that kubelets ask for."""

_TEXT = ("Content-Type", "text/plain")

VerdictReceiver = Callable[[Request, Verdict, str], None]
"""Receives every verdict, with the policy's text on where to ask for help. It must not wait."""

Condition = Callable[[], tuple[bool, str]]
"""Returns whether a condition for readiness is met, and one line about it, which may be empty."""

Checks = Callable[[Object], Sequence[str]]
"""Returns the errors of a policy that is being applied, one line each."""

Report = Callable[[], Mapping[str, Any]]
"""Returns the state of a replica's policies, which the health port serves."""


class WorkerParts(NamedTuple):
    """The parts that each worker has for itself, such as the source of facts, the receiver of verdicts, its judge."""

    facts: Source
    receiver: VerdictReceiver | None
    judges: Judge | Judges
    conditions: tuple[Condition, ...] = ()
    report: Report | None = None
    checks: Checks | None = None
    release: str = ""


class Health:
    """The application without the review paths, for a port that anyone may reach.

    The process is ready if there are facts (`loaded`) and all conditions are met.
    """

    def __init__(
        self,
        loaded: Callable[[], bool],
        metrics: "Metrics | None" = None,
        conditions: Sequence[Condition] = (),
        report: Report | None = None,
    ) -> None:
        self._loaded, self._conditions = loaded, conditions
        self._flask = _pages(metrics, report)

    def refusal(self, request: HttpRequest) -> Reply | None:
        """Refuse a request with a body, which no path here takes, and a probe that is no GET or HEAD."""
        if request.length:
            return Reply(HTTPStatus.NOT_FOUND)
        if self.is_probe(request) and request.method not in ("GET", "HEAD"):
            return Reply(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "GET, HEAD"),))
        return None

    def is_probe(self, request: HttpRequest) -> bool:
        """Return whether a request is a kubelet's liveness or readiness probe."""
        return request.path in PROBES

    def __call__(self, request: HttpRequest) -> Reply:
        """Answer one request."""
        if not self.is_probe(request):
            return wsgi.called(self._flask, request)
        if request.path == "/healthz":
            return Reply(HTTPStatus.OK, b"ok\n", (_TEXT,))
        states = [condition() for condition in self._conditions]
        missing = [*([] if self._loaded() else [NO_FACTS]), *(text for ready, text in states if not ready)]
        lines = missing or ["ok", *(text for _, text in states if text)]
        status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
        return Reply(status, "".join(f"{line}\n" for line in lines).encode(), (_TEXT,))


def _pages(metrics: "Metrics | None", report: Report | None) -> Flask:
    app = Flask("slicewarden", static_folder=None)

    if report is not None:

        @app.get("/policies")
        def policies() -> Response:
            return Response(admission.encoded(dict(report())), mimetype="application/json")

    if metrics is not None:
        text = Kept(metrics.text)

        @app.get("/metrics")
        def counters() -> Response:
            return Response(text(), content_type=metrics.content_type)

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:  # an empty body, from which a prober learns nothing
        allow = {"Allow": ", ".join(sorted(error.valid_methods or ()))} if hasattr(error, "valid_methods") else {}
        return Response(status=error.code or 500, headers=allow)

    return app


class ReviewApplication:
    """The complete application, with the review paths. It counts decisions if it has `metrics`."""

    def __init__(
        self,
        judges: Judge | Judges,
        facts: Source,
        log: Log,
        metrics: "Metrics | None" = None,
        conditions: Sequence[Condition] = (),
        receiver: VerdictReceiver | None = None,
        loaded: Callable[[], bool] | None = None,
        checks: Checks | None = None,
        release: str = "",
    ) -> None:
        """`judges` is the one policy of a file, or finds the policies that answer at a path."""
        self.health = Health(loaded or (lambda: facts() is not None), conditions=conditions)
        self.receiver = receiver
        self.metrics = metrics
        self.facts = Dated(facts, _today)
        self.log = log
        self.judges = judges if isinstance(judges, Judges) else OnePolicy(judges)
        self.checks, self.release = checks, release
        if metrics is not None and not isinstance(judges, Judges):
            metrics.judging_by(judges.policy.digest, judges.mode)

    def refusal(self, request: HttpRequest) -> Reply | None:
        """Refuse a request that is not a review, before its body is read."""
        if request.path == POLICY_PATH and self.checks is not None:
            return _refusal(request, MOST_POLICY)
        if self.judges.review_path(request.path):
            return _refusal(request, admission.MAX_BODY)
        return self.health.refusal(request)

    def is_probe(self, request: HttpRequest) -> bool:
        """Return whether a request is a kubelet's liveness or readiness probe."""
        return self.health.is_probe(request)

    def __call__(self, request: HttpRequest) -> Reply | Later:
        """Answer one request that was not refused."""
        if request.path == POLICY_PATH and self.checks is not None:
            return self._checked(request, self.checks)
        if not self.judges.review_path(request.path):
            return self.health(request)
        answering = self.judges.at(request.path)
        answer = answering if isinstance(answering, Reply) else self._answer(request, answering)
        if isinstance(answer, Later):
            return answer
        status, body, headers = answer
        kind = "application/json" if status is HTTPStatus.OK else "text/plain"
        return Reply(status, body, (("Content-Type", kind), *headers))

    def _answer(self, request: HttpRequest, answering: Answering) -> Reply | Later:
        path = answering.endpoint
        try:
            end = request.arrived + _patience(request.query)
        except ValueError as error:
            return Reply(HTTPStatus.BAD_REQUEST, f"timeout: {error}\n".encode())
        if monotonic() > end:  # the caller has given up
            return self._late(path, {"endpoint": path})
        try:
            asked = admission.decode(b"".join(request.body))
        except admission.NotAReview as error:
            return Reply(HTTPStatus.BAD_REQUEST, f"{error}\n".encode("ascii", "backslashreplace"))
        facts = self.facts()
        if facts is None:
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, f"{NO_FACTS}\n".encode())
        if answering.path is not None and asked.kind == probe.KIND and asked.group == probe.GROUP:
            return Reply(HTTPStatus.OK, admission.answer(asked, warnings=[probe.warning(answering.path, self.release)]))
        if not answering.asks_rbac or request.final:
            return self._judged(answering, asked, facts, lambda: monotonic() > end)
        noted = facts.rights.noting()
        return self._judged(answering, asked, facts, lambda: monotonic() > end, noted)

    def _judged(
        self,
        answering: Answering,
        request: Request,
        facts: Facts,
        late: Callable[[], bool],
        noted: Sequence[Account] = (),
    ) -> Reply | Later:
        """Judge a request. If rights are `noted` as missing from the cache, they must be requested first."""
        path = answering.endpoint
        try:
            verdict, policy = answering.verdict(request, facts, late)
            answer = admission.encode(request, verdict, policy.digest, policy.support)
        except TooLate:
            return self._late(path, _line(path, request))
        except Exception as error:  # after any error, failurePolicy has to decide
            rule = error.rule if isinstance(error, RuleBroke) else None
            self.log({**_line(path, request), "error": rule or type(error).__name__, "trace": _trace(error)})
            if self.metrics is not None:
                self.metrics.failed(path)
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")
        if noted:
            return Later(partial(facts.rights.ask, tuple(noted)))
        named = {} if answering.path is None else {"path": str(answering.path), "policy": policy.digest}
        self.log({**_line(path, request), **named, **_outcome(verdict)})
        if self.metrics is not None:
            self.metrics.count(path, request, verdict)
        if self.receiver is not None:
            self.receiver(request, verdict, policy.support)
        return Reply(HTTPStatus.OK, answer)

    def _checked(self, request: HttpRequest, checks: Checks) -> Reply:
        """Answer a review of a policy that is being applied. A faulty one is refused with all of its errors.

        If the caller's deadline has passed, the answer is 504 and nothing is read.
        """
        try:
            if monotonic() > request.arrived + _patience(request.query):
                return self._late(POLICY_PATH, {"endpoint": POLICY_PATH})
            asked = admission.decode(b"".join(request.body))
        except (ValueError, admission.NotAReview) as error:
            return Reply(HTTPStatus.BAD_REQUEST, f"{error}\n".encode("ascii", "backslashreplace"), (_TEXT,))
        wrong = [] if asked.object is None else checks(asked.object)
        return Reply(HTTPStatus.OK, admission.answer(asked, wrong), (("Content-Type", "application/json"),))

    def _late(self, path: str, line: Mapping[str, Any]) -> Reply:
        self.log({**line, "error": "too late"})
        if self.metrics is not None:
            self.metrics.failed(path)
        return Reply(HTTPStatus.GATEWAY_TIMEOUT, b"not judged in time\n")


def _refusal(request: HttpRequest, most: int) -> Reply | None:
    headers = request.headers
    if request.method != "POST":
        return Reply(HTTPStatus.METHOD_NOT_ALLOWED, b"POST an AdmissionReview\n", (("Allow", "POST"), _TEXT))
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        return Reply(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, b"Content-Type must be application/json\n", (_TEXT,))
    if headers.get("Content-Encoding", "identity").lower() != "identity":
        return Reply(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, b"encoded bodies are not accepted\n", (_TEXT,))
    if "Content-Length" not in headers:
        return Reply(HTTPStatus.LENGTH_REQUIRED, b"Content-Length is required\n", (_TEXT,))
    if request.length > most:
        return Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most} bytes\n".encode(), (_TEXT,))
    return None


@lru_cache(64)
def _patience(query: str) -> float:
    """Return the seconds from a request's arrival to its deadline, by `?timeout=`. Raises ValueError."""
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key == "timeout":
            return min(duration.seconds(value), LONGEST_PATIENCE) * (1 - MARGIN)
    return PATIENCE * (1 - MARGIN)


def _today() -> date:
    return datetime.now(UTC).date()


def _trace(error: BaseException) -> list[str]:
    """Return the places in the code that an exception passed, without its message, which may hold a tenant's values."""
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    return [type(cause).__name__, *(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)]


def _line(path: str, request: Request) -> dict[str, Any]:
    """Return the log entry of a request, without anything from the object, its variables or the user's extra fields."""
    return {
        "endpoint": path,
        "uid": request.uid,
        "operation": request.operation[:MAX_LOGGED],
        "kind": request.kind[:MAX_LOGGED],
        "subresource": request.subresource[:MAX_LOGGED],
        "namespace": request.namespace[:MAX_LOGGED],
        "name": request.name[:MAX_LOGGED],
        "user": request.requester.username[:MAX_LOGGED] if request.requester else "",
        "dryRun": request.dry_run,
    }


def _outcome(verdict: Verdict) -> dict[str, Any]:
    findings = [
        f"{result.rule}={result.exemption or ('repaired' if result.repaired else result.action)}"
        for result in verdict.results
    ]
    if verdict.malformed is not None:
        findings.append("malformed")
    outcome = {"allowed": verdict.allowed, "findings": findings, "operations": len(verdict.patch)}
    return outcome if verdict.would is None else {**outcome, "mode": Mode.AUDIT, "would": verdict.would}
