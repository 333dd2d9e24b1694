"""Bodies that are posted to `/mutate` and `/validate` of the real application, and what must hold of each answer."""

import base64
import copy
import json
import os
import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from http import HTTPStatus
from random import Random
from typing import Any

import jsonpatch
import orjson
from kubernetes.client import ApiClient

from tests.fuzz import changes, corpus
from tests.fuzz.fault import Fault
from webhook.allowance import TooLate, no_deadline
from webhook.api import admission
from webhook.cluster.events import MAX_NOTE, Events, body, denial
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.http.messages import Application, HttpRequest, Reply
from webhook.model import Request, Verdict
from webhook.serving.app import ReviewApplication
from webhook.serving.judges import PATHS
from webhook.telemetry.log import Lines
from webhook.telemetry.metrics import Metrics

MUTATE, VALIDATE = PATHS

MAX_ANSWER = 64 * 1024
"""Bytes of an answer, which the API server holds in memory whole."""

MAX_SERIES = 200
"""Metric series of a process, whatever strangers send."""

BY_DESIGN = {HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
"""What a body can be answered with, whatever is in it."""

WRITTEN = re.compile(
    r"/metadata/(annotations|labels)(/.*)?"
    r"|/spec/activeDeadlineSeconds"
    r"|/spec/(nodeSelector|tolerations|affinity)(/.*)?"
    r"|/spec/(containers|initContainers|ephemeralContainers)/\d+/(env|resources)(/.*)?",
    re.DOTALL,
)
"""Where a patch may write: nowhere that gives a pod rights, volumes, identities or another image."""

NARROWED = re.compile(
    r"/spec/(containers|initContainers|ephemeralContainers)/\d+/volumeMounts/\d+/(readOnly|recursiveReadOnly)"
)
NARROW = (True, "IfPossible")
"""Where a patch may take the right to write from a mount, and the values that do so."""


@cache
def _good() -> tuple[changes.Words, Sequence[bytes]]:
    trees = [*corpus.recorded(), *corpus.wrapped()]
    return changes.Words(trees), tuple(map(orjson.dumps, trees))


class Spied:
    """An engine that notes whether it raised, so that an answer in spite of it is found."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.policy, self.mode = engine.policy, engine.mode
        self.raised: BaseException | None = None

    def mutate(self, request: Request, facts: Facts, late: Callable[[], bool] = no_deadline) -> Verdict:
        return self._noted(self.engine.mutate, request, facts, late)

    def validate(self, request: Request, facts: Facts, late: Callable[[], bool] = no_deadline) -> Verdict:
        return self._noted(self.engine.validate, request, facts, late)

    def _noted(self, half: Callable[..., Verdict], *arguments: Any) -> Verdict:
        try:
            return half(*arguments)
        except BaseException as error:
            self.raised = error
            raise


class Reviews:
    """Puts bodies to the application, in process."""

    name = "reviews"

    def __init__(
        self, engine: Engine, facts: Facts, around: Callable[[Application], Application] = lambda app: app
    ) -> None:
        self.spied = Spied(engine)
        self.metrics = Metrics()
        self.lines = Lines(os.open(os.devnull, os.O_WRONLY))
        self.logged: Mapping[str, Any] = {}
        self.events = Events(ApiClient(), self._log)
        app = ReviewApplication(self.spied, lambda: facts, self._log, self.metrics, (), self._told)  # type: ignore[arg-type]
        self.app = around(app)

    @cached_property
    def seeds(self) -> Sequence[bytes]:
        """Reviews that are as they should be."""
        return _good()[1]

    def _log(self, entry: Mapping[str, Any]) -> None:
        self.logged = entry
        self.lines(entry)

    def _told(self, request: Request, verdict: Verdict, _: str) -> None:
        self.events(request, verdict)
        if (denied := denial(request, verdict)) is None:
            return
        event = body(denied, 1, "2026-01-01T00:00:00.000000Z", "here")
        if len(event["note"].encode()) > MAX_NOTE:
            raise Fault(f"an Event of {len(event['note'].encode())} bytes")

    def change(self, random: Random, case: bytes, other: bytes) -> bytes:
        """Make another body of one."""
        if random.random() < 0.15:
            return changes.encoded(random, case, other)
        try:
            tree = orjson.loads(case)
        except orjson.JSONDecodeError:
            return changes.encoded(random, case, other)
        return changes.tree(random, tree, _good()[0])

    def judge(self, case: bytes, *, again: bool) -> Hashable:
        """Put a body to both paths. Returns what kind of outcome it was; raises Fault."""
        answers = {path: self._answer(path, case) for path in PATHS}
        if again:  # in the other order, after others were judged
            for path in reversed(PATHS):
                if self._answer(path, case)[:2] != answers[path][:2]:
                    raise Fault(f"{path} answers the same bytes in two ways")
        statuses = {status for status, _, _ in answers.values()}
        if len(statuses) > 1:
            raise Fault(f"the two paths answer {sorted(statuses)}")
        if statuses == {HTTPStatus.OK}:
            self._check_patch(case, json.loads(answers[MUTATE][1])["response"])
        return tuple(kind for _, _, kind in answers.values())

    def _answer(self, path: str, sent: bytes) -> tuple[int, bytes, Hashable]:
        self.spied.raised = None
        self.logged = {}
        status, headers, answer = self.post(path, sent)
        raised = self.spied.raised
        if raised is not None and (status == HTTPStatus.OK or not isinstance(raised, TooLate)):
            cause = raised.__cause__ or raised
            raise Fault(f"{path} answers {status} after {type(cause).__name__}") from cause
        if status not in BY_DESIGN:
            raise Fault(f"{path} answers {status}: {answer[:200]!r}")
        if len(answer) > MAX_ANSWER:
            raise Fault(f"{path} answers with {len(answer)} bytes")
        if status != HTTPStatus.OK:
            if not answer.isascii() or answer.count(b"\n") != 1 or len(answer) > 1000:
                raise Fault(f"{path} refuses in other than one line of ASCII: {answer[:200]!r}")
            return status, answer, (status, re.sub(rb"\d+", b"#", answer))
        return status, answer, (status, *self._check(path, sent, headers, answer))

    def post(self, path: str, sent: bytes) -> tuple[int, dict[str, str], bytes]:
        """Post a body as the server would have it after reading it whole."""
        headers = {"Content-Type": "application/json", "Content-Length": str(len(sent))}
        request = HttpRequest("POST", path, "timeout=10s", headers, time.monotonic(), (sent,))
        reply = self.app.refusal(request) or self.app(request)
        assert isinstance(reply, Reply), "the sample policy waits for nothing"
        return reply.status, dict(reply.headers), reply.body

    def _check(self, path: str, sent: bytes, headers: Mapping[str, str], answer: bytes) -> tuple[Hashable, ...]:
        if headers.get("Content-Type") != "application/json":
            raise Fault(f"{path} answers a review as {headers.get('Content-Type')}")
        value = json.loads(answer)
        if value["apiVersion"] != admission.API_VERSION or value["kind"] != "AdmissionReview" or len(value) != 3:
            raise Fault(f"{path} answers with no AdmissionReview")
        response = value["response"]
        if response["uid"] != orjson.loads(sent)["request"]["uid"]:
            raise Fault(f"{path} answers to another uid")
        if not response.keys() <= {"uid", "allowed", "status", "patch", "patchType", "warnings", "auditAnnotations"}:
            raise Fault(f"{path} answers with unknown fields: {sorted(response)}")
        if ("patch" in response) is not (response.get("patchType") == "JSONPatch"):
            raise Fault(f"{path} gives one of patch and patchType")
        allowed = response["allowed"]
        if not isinstance(allowed, bool) or allowed is ("status" in response):
            raise Fault(f"{path} does not say in one way whether it allows")
        if path == VALIDATE and "patch" in response:
            raise Fault(f"{path} patches")
        if path == MUTATE and not allowed and response["status"]["code"] != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise Fault(f"{path} denies")
        if not allowed:
            self._check_status(path, response["status"])
        _check_texts(path, response)
        if self.logged.get("allowed") is not allowed:
            raise Fault(f"{path} logs another outcome: {self.logged}")
        findings = frozenset(self.logged["findings"])
        return findings, response.get("status", {}).get("code"), min(self.logged["operations"], 12)

    def _check_status(self, path: str, status: Mapping[str, Any]) -> None:
        if (status["code"], status["reason"]) not in ((403, "Forbidden"), (422, "Invalid")):
            raise Fault(f"{path} denies with {status['code']} {status['reason']}")
        if (
            len(status) != 3
            or not status["message"]
            or not _plain(status["message"].replace("\n", " "), admission.MAX_MESSAGE + 1100)
        ):
            raise Fault(f"{path} says what kubectl cannot show: {status}")

    def _check_patch(self, case: bytes, response: Mapping[str, Any]) -> None:
        if "patch" not in response:
            return
        value = orjson.loads(case)
        request = value["request"]
        operations = json.loads(base64.b64decode(response["patch"], validate=True))
        if not operations or request["operation"] not in ("CREATE", "UPDATE"):
            raise Fault(f"a patch of {len(operations)} operations for {request['operation']}")
        for operation in operations:
            for path in _leaves(operation["path"], operation["value"]):
                narrows = NARROWED.fullmatch(path) and operation["value"] in NARROW
                if operation["op"] not in ("add", "replace") or not (narrows or WRITTEN.fullmatch(path)):
                    raise Fault(f"a patch may not {operation['op']} {path}")
        try:
            request["object"] = jsonpatch.apply_patch(request["object"], copy.deepcopy(operations))
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            raise Fault(f"the patch does not apply: {type(error).__name__}") from error
        try:
            patched = orjson.dumps(value)
        except TypeError:  # deeper than what writes it goes, though not than what reads it
            return
        status, _, answer = self.post(MUTATE, patched)
        if status != HTTPStatus.OK or "patch" in json.loads(answer)["response"]:
            raise Fault("what was patched is patched again")

    def close(self) -> None:
        """Check what has to hold of all cases together."""
        series = sum(not line.startswith(b"#") for line in self.metrics.text().splitlines())
        if series > MAX_SERIES:
            raise Fault(f"{series} metric series")


def _leaves(path: str, value: Any) -> Iterator[str]:
    """Where a patch writes when it adds a whole map."""
    if isinstance(value, dict) and value and not WRITTEN.fullmatch(path):
        for key, each in value.items():
            yield from _leaves(f"{path}/{key}", each)
    else:
        yield path


def _check_texts(path: str, response: Mapping[str, Any]) -> None:
    warnings = response.get("warnings", [])
    if len(warnings) > admission.MAX_WARNINGS or len(warnings) != len(set(warnings)):
        raise Fault(f"{path} gives {len(warnings)} warnings")
    for text in warnings:
        if not text or not _plain(text, admission.MAX_WARNING):
            raise Fault(f"{path} warns with what an API server drops: {text!r}")
    for key, text in response.get("auditAnnotations", {}).items():
        if not re.fullmatch("[a-z0-9][-a-z0-9]{0,61}[a-z0-9]", key) or not _plain(text, admission.MAX_ANNOTATION):
            raise Fault(f"{path} annotates what an audit log does not take: {key} {text!r}")


def _plain(text: str, limit: int) -> bool:
    return len(text) <= limit and text.isprintable()
