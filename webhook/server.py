"""The webhook over HTTP: `/mutate` and `/validate`, `/healthz` and `/readyz`.

Flask is the application: routes, errors, health. The two review paths are answered by a WSGI middleware in
front of it, the documented place for what must not pay for Flask's request handling.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flask import Flask, Response
from werkzeug.exceptions import HTTPException

from webhook import review
from webhook.engine import Engine, RuleBroke
from webhook.facts import Dated, Facts, Source
from webhook.model import Request, Verdict

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from webhook.metrics import Metrics

    App = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]

MAX_LOGGED = 253
"""Characters of a name in a log line, the most that Kubernetes' names have."""

Log = Callable[[Mapping[str, Any]], None]


def application(engine: Engine, facts: Source, log: Log, metrics: "Metrics | None" = None) -> Flask:
    """Make the whole application, reviews included; what they decide is counted where there are metrics."""
    app = health(facts)
    app.wsgi_app = Reviews(app.wsgi_app, engine, facts, log, metrics)  # type: ignore[method-assign]
    return app


def health(facts: Source, metrics: "Metrics | None" = None) -> Flask:
    """Make the application without the review paths, for a port that anyone may reach."""
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
        if facts() is None:
            return Response("facts are not loaded yet\n", status=503, mimetype="text/plain")
        return Response("ok\n", mimetype="text/plain")

    @app.errorhandler(HTTPException)
    def refuse(error: HTTPException) -> Response:  # nothing for whoever probes to learn from
        allow = {"Allow": ", ".join(sorted(error.valid_methods or ()))} if hasattr(error, "valid_methods") else {}
        return Response(status=error.code or 500, headers=allow)

    return app


class Reviews:
    """WSGI middleware that answers the review paths and hands everything else on."""

    def __init__(self, app: "App", engine: Engine, facts: Source, log: Log, metrics: "Metrics | None" = None) -> None:
        self.app = app
        self.metrics = metrics
        self.facts = Dated(facts, _today)
        self.log = log
        self.halves = {"/mutate": engine.mutate, "/validate": engine.validate}

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """Answer one HTTP request."""
        path = environ["PATH_INFO"]
        if path not in self.halves:
            return self.app(environ, start_response)
        status, body = self._answer(path, environ)
        start_response(
            f"{status.value} {status.phrase}",
            [
                ("Content-Type", "application/json" if status is HTTPStatus.OK else "text/plain"),
                ("Content-Length", str(len(body))),
                *((("Allow", "POST"),) if status is HTTPStatus.METHOD_NOT_ALLOWED else ()),
            ],
        )
        return [body]

    def _answer(self, path: str, environ: "WSGIEnvironment") -> tuple[HTTPStatus, bytes]:
        refusal = _refusal(environ)
        if refusal is not None:
            return refusal
        length = int(environ["CONTENT_LENGTH"])
        body = environ["wsgi.input"].read(length)
        if len(body) != length:
            return HTTPStatus.BAD_REQUEST, b"the body is shorter than its Content-Length\n"
        try:
            request = review.decode(body)
        except review.NotAReview as error:
            return HTTPStatus.BAD_REQUEST, f"{error}\n".encode("ascii", "backslashreplace")
        facts = self.facts()
        if facts is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, b"facts are not loaded yet\n"
        return self._judged(path, request, facts)

    def _judged(self, path: str, request: Request, facts: Facts) -> tuple[HTTPStatus, bytes]:
        try:
            verdict = self.halves[path](request, facts)
            answer = review.encode(request, verdict)
        except Exception as error:  # whatever it is, failurePolicy has to decide
            rule = error.rule if isinstance(error, RuleBroke) else None
            self.log({**_line(path, request), "error": rule or type(error).__name__, "trace": _trace(error)})
            if self.metrics is not None:
                self.metrics.failed(path)
            return HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error\n"
        self.log({**_line(path, request), **_outcome(verdict)})
        if self.metrics is not None:
            self.metrics.count(path, request, verdict)
        return HTTPStatus.OK, answer


def _refusal(environ: "WSGIEnvironment") -> tuple[HTTPStatus, bytes] | None:
    """Refuse an HTTP request that cannot carry a review, before its body is read."""
    if environ["REQUEST_METHOD"] != "POST":
        return HTTPStatus.METHOD_NOT_ALLOWED, b"POST an AdmissionReview\n"
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, b"Content-Type must be application/json\n"
    if environ.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, b"encoded bodies are not accepted\n"
    length = environ.get("CONTENT_LENGTH") or ""
    if "HTTP_TRANSFER_ENCODING" in environ:
        return HTTPStatus.BAD_REQUEST, b"chunked bodies are not accepted\n"
    if not (length.isascii() and length.isdigit()):
        return HTTPStatus.LENGTH_REQUIRED, b"Content-Length is required\n"
    if int(length) > review.MAX_BODY:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {review.MAX_BODY} bytes\n".encode()
    return None


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


def log_line(entry: Mapping[str, Any]) -> None:
    """Write one JSON line to standard output, all of it ASCII, so that no tenant's text can forge another."""
    stamped = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **entry}
    os.write(sys.stdout.fileno(), json.dumps(stamped).encode("ascii") + b"\n")
