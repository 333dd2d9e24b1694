"""The webhook over HTTP: `/mutate` and `/validate`, `/healthz` and `/readyz`.

Flask is the application: routes, errors, health. The two review paths are answered by a WSGI middleware in
front of it, the documented place for what must not pay for Flask's request handling.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from webhook import duration, review
from webhook.allowance import TooLate
from webhook.engine import Engine, RuleBroke
from webhook.facts import Dated, Facts, Source
from webhook.log import Log
from webhook.model import Request, Verdict
from webhook.wsgi import ARRIVED, Reply

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from webhook.metrics import Metrics
    from webhook.wsgi import App

MAX_LOGGED = 253
"""Characters of a name in a log line, the most that Kubernetes' names have."""

PATHS = ("/mutate", "/validate")
"""Where reviews are posted."""

PATIENCE = 10.0
"""Seconds an API server waits unless a registration says otherwise (admissionregistration/v1 types.go)."""

NO_FACTS = "facts are not loaded yet, or too old"

MARGIN = 0.05
"""The part of its time that is kept for the answer's way back."""

Told = Callable[[Request, Verdict], None]
"""Is told of every verdict. It must not wait for anything."""

Followed = tuple[Source, Told | None]
"""What a worker has of its own: where facts come from, and who is told of its verdicts."""

Condition = Callable[[], tuple[bool, str]]
"""Says whether something allows to be ready, and a line about it, empty if there is nothing to say."""


def application(
    engine: Engine,
    facts: Source,
    log: Log,
    metrics: "Metrics | None" = None,
    conditions: Sequence[Condition] = (),
    told: Told | None = None,
) -> Flask:
    """Make the whole application, reviews included; what they decide is counted where there are metrics."""
    app = health(facts, conditions=conditions)
    app.wsgi_app = Reviews(app.wsgi_app, engine, facts, log, metrics, told)  # type: ignore[method-assign]
    return app


def health(facts: Source, metrics: "Metrics | None" = None, conditions: Sequence[Condition] = ()) -> Flask:
    """Make the application without the review paths, for a port that anyone may reach.

    It is ready when there are facts and all the conditions hold.
    """
    app = Flask("slicewarden", static_folder=None)

    if metrics is not None:

        @app.get("/metrics")
        def counters() -> Response:
            return Response(metrics.text(), content_type=metrics.content_type)

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        states = [(facts() is not None, "" if facts() is not None else NO_FACTS)]
        states += [condition() for condition in conditions]
        missing = [text for ready, text in states if not ready]
        lines = missing or ["ok", *(text for _, text in states if text)]
        return Response("".join(f"{line}\n" for line in lines), status=503 if missing else 200, mimetype="text/plain")

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:  # nothing for whoever probes to learn from
        allow = {"Allow": ", ".join(sorted(error.valid_methods or ()))} if hasattr(error, "valid_methods") else {}
        return Response(status=error.code or 500, headers=allow)

    return app


class Reviews:
    """WSGI middleware that answers the review paths and hands everything else on."""

    def __init__(
        self,
        app: "App",
        engine: Engine,
        facts: Source,
        log: Log,
        metrics: "Metrics | None" = None,
        told: Told | None = None,
    ) -> None:
        self.app = app
        self.told = told
        self.metrics = metrics
        self.facts = Dated(facts, _today)
        self.log = log
        self.halves = dict(zip(PATHS, (engine.mutate, engine.validate), strict=True))
        self.policy = engine.policy.digest
        if metrics is not None:
            metrics.judging_by(self.policy)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one HTTP request."""
        path = environ["PATH_INFO"]
        if path not in self.halves:
            return self.app(environ, start_response)
        status, body, headers = _refusal(environ) or self._answer(path, environ)
        kind = "application/json" if status is HTTPStatus.OK else "text/plain"
        start_response(
            _phrase(status),
            [("Content-Type", kind), ("Content-Length", str(len(body))), *headers],
        )
        return [body]

    def _answer(self, path: str, environ: "WSGIEnvironment") -> Reply:
        try:
            end = environ.get(ARRIVED, monotonic()) + _patience(environ.get("QUERY_STRING", ""))
        except ValueError as error:
            return Reply(HTTPStatus.BAD_REQUEST, f"timeout: {error}\n".encode())
        if monotonic() > end:  # it waited too long; nobody waits for the answer any more
            return self._late(path, {"endpoint": path})
        length = int(environ["CONTENT_LENGTH"])
        body = environ["wsgi.input"].read(length)
        if len(body) != length:
            return Reply(HTTPStatus.BAD_REQUEST, b"the body is shorter than its Content-Length\n")
        try:
            request = review.decode(body)
        except review.NotAReview as error:
            return Reply(HTTPStatus.BAD_REQUEST, f"{error}\n".encode("ascii", "backslashreplace"))
        facts = self.facts()
        if facts is None:
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, f"{NO_FACTS}\n".encode())
        return self._judged(path, request, facts, lambda: monotonic() > end)

    def _judged(self, path: str, request: Request, facts: Facts, late: Callable[[], bool]) -> Reply:
        try:
            verdict = self.halves[path](request, facts, late)
            answer = review.encode(request, verdict, self.policy)
        except TooLate:
            return self._late(path, _line(path, request))
        except Exception as error:  # whatever it is, failurePolicy has to decide
            rule = error.rule if isinstance(error, RuleBroke) else None
            self.log({**_line(path, request), "error": rule or type(error).__name__, "trace": _trace(error)})
            if self.metrics is not None:
                self.metrics.failed(path)
            return Reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n")
        self.log({**_line(path, request), **_outcome(verdict)})
        if self.metrics is not None:
            self.metrics.count(path, request, verdict)
        if self.told is not None:
            self.told(request, verdict)
        return Reply(HTTPStatus.OK, answer)

    def _late(self, path: str, line: Mapping[str, Any]) -> Reply:
        self.log({**line, "error": "too late"})
        if self.metrics is not None:
            self.metrics.failed(path)
        return Reply(HTTPStatus.GATEWAY_TIMEOUT, b"not judged in time\n")


def refusal(environ: "WSGIEnvironment") -> Reply | None:
    """What can be refused before its body is read: no review, or a body where there are none."""
    if environ["PATH_INFO"] in PATHS:
        return _refusal(environ)
    return bodiless(environ)


def bodiless(environ: "WSGIEnvironment") -> Reply | None:
    """What takes no body refuses a request that has one."""
    return Reply(HTTPStatus.NOT_FOUND) if environ.get("CONTENT_LENGTH", "0") != "0" else None


def _refusal(environ: "WSGIEnvironment") -> Reply | None:
    if environ["REQUEST_METHOD"] != "POST":
        return Reply(HTTPStatus.METHOD_NOT_ALLOWED, b"POST an AdmissionReview\n", (("Allow", "POST"),))
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
        return Reply(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, b"Content-Type must be application/json\n")
    if environ.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        return Reply(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, b"encoded bodies are not accepted\n")
    length = environ.get("CONTENT_LENGTH") or ""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return Reply(HTTPStatus.BAD_REQUEST, b"chunked bodies are not accepted\n")
    if not (length.isascii() and length.isdigit()):
        return Reply(HTTPStatus.LENGTH_REQUIRED, b"Content-Length is required\n")
    if int(length) > review.MAX_BODY:
        return Reply(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {review.MAX_BODY} bytes\n".encode())
    return None


@lru_cache(64)
def _phrase(status: HTTPStatus) -> str:
    return f"{status.value} {status.phrase}"


@lru_cache(64)
def _patience(query: str) -> float:
    """Seconds from a request's arrival until it must be judged, by `?timeout=`. Raises ValueError."""
    for part in query.split("&"):
        key, _, value = part.partition("=")
        if key == "timeout":
            return duration.seconds(value) * (1 - MARGIN)
    return PATIENCE * (1 - MARGIN)


def _today() -> date:
    return datetime.now(UTC).date()


def _trace(error: BaseException) -> list[str]:
    """Say where an exception comes from, but not its text, which may hold a tenant's values."""
    cause = error.__cause__ or error
    frames = traceback.extract_tb(cause.__traceback__)
    return [type(cause).__name__, *(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)]


def _line(path: str, request: Request) -> dict[str, Any]:
    """Say what was asked, without any body: no object, no environment, no user's extras."""
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
    findings = [f"{result.rule}={result.exemption or result.action}" for result in verdict.results]
    if verdict.malformed is not None:
        findings.append("malformed")
    return {"allowed": verdict.allowed, "findings": findings, "operations": len(verdict.patch)}
