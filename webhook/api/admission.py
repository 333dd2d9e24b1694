"""Decodes and encodes AdmissionReview v1: bytes to Request, Verdict to bytes (k8s.io/api admission/v1 types.go)."""

import base64
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import orjson

from webhook.model import Action, Mode, Object, Request, Requester, Result, Verdict
from webhook.text.words import line

API_VERSION = "admission.k8s.io/v1"

MAX_BODY = 7 * 1024 * 1024
"""Bytes of a body: an object and its old object of 3 MiB each (the API server's limit), and 1 MiB for the rest."""

MAX_PARTS = 400_000
"""Maximum number of values in a body, counted by the opening brackets and commas outside strings. A pod has hundreds.

Python objects take thirty times the bytes of the shortest JSON. Without the limit 7 MiB of values could fill the
memory, and would block all other answers for half a second.
"""

_SLICE = 64 * 1024
"""Bytes that are counted at a time: other threads wait meanwhile."""

MAX_UID = 128
"""Characters of a request's uid. A UUID has 36."""

MAX_MESSAGE = 4096
"""Characters of a denial. The API server reads the whole response into memory, so ours stays small."""

MAX_WARNINGS = 8
MAX_WARNING = 256
"""Characters of a warning: enough for a command to paste.

An API server may cut longer ones once all warnings together exceed 4,096 characters. It recommends 120
(admission/v1 types.go, apiserver pkg/endpoints/filters/warning.go).
"""

MAX_ANNOTATION = 1024
"""Characters of an audit annotation's value."""


HELP = "For help: "
"""The start of the line in a denial that says where to ask for help."""

POLICY, MODE, WOULD, UNJUDGED = "policy", "mode", "would", "unjudged"
"""The audit annotations that belong to no rule. No rule may have one of these ids.

POLICY is the digest of the policy. The others are written in audit mode: the mode, what the policy would have done, and
why an object could not be judged.
"""


class NotAReview(ValueError):
    """The bytes of a request are not an AdmissionReview that can be judged."""


def decode(body: bytes) -> Request:
    """Read an AdmissionReview. Unknown fields are ignored. Raises NotAReview."""
    # Nearly every body has fewer bytes than MAX_PARTS, and need not be counted.
    if len(body) > MAX_PARTS and _marks(body) > MAX_PARTS and _parts(body) > MAX_PARTS:
        raise NotAReview(f"more than {MAX_PARTS} values")
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotAReview(f"not JSON: {error}") from error
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise NotAReview("not an AdmissionReview")
    if review.get("apiVersion") != API_VERSION:
        raise NotAReview(f"apiVersion must be {API_VERSION}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise NotAReview("request is missing")
    # `kind` is the version we registered for; `requestKind` is what the user sent (matchPolicy: Equivalent).
    kind = request.get("kind")
    if not isinstance(kind, dict) or not kind.get("kind"):
        raise NotAReview("request.kind is missing")
    uid = _text(request, "uid")
    if not uid or len(uid) > MAX_UID:
        raise NotAReview("request.uid is missing or too long")
    item = _object(request, "object")
    operation = _text(request, "operation")
    if item is None and operation not in ("DELETE", "CONNECT"):
        raise NotAReview("request.object is missing")
    return Request(
        uid=uid,
        operation=operation,
        group=_text(kind, "group"),
        version=_text(kind, "version"),
        kind=_text(kind, "kind"),
        subresource=_text(request, "subResource"),
        namespace=_text(request, "namespace"),
        name=_text(request, "name"),
        requester=_requester(request.get("userInfo")),
        dry_run=request.get("dryRun") is True,
        object=item,
        old_object=_object(request, "oldObject"),
        size=len(body),
    )


def _parts(body: bytes) -> int:
    """Count the values of a JSON text. Brackets and commas within strings do not count."""
    quoted = body.replace(rb"\\", b"").replace(rb"\"", b"")
    parts = inside = 0
    for start in range(0, len(quoted), _SLICE):
        pieces = quoted[start : start + _SLICE].split(b'"')
        parts += _marks(b"".join(pieces[inside::2]))
        inside ^= len(pieces) % 2 == 0  # an odd number of quotes
    return parts


def _marks(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[") + text.count(b",")


def _text(container: dict[str, Any], key: str) -> str:
    value = container.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise NotAReview(f"{key} must be a string")
    return value


_TEXTS = frozenset((str,))


def _requester(user: Any) -> Requester | None:
    """Read the user of a request; None only for a review made by `wrap`, since an API server always names one."""
    if user is None:
        return None
    if not isinstance(user, dict):
        raise NotAReview("userInfo must be an object")
    groups = user.get("groups") or []
    if not isinstance(groups, list) or not _TEXTS.issuperset(map(type, groups)):
        raise NotAReview("groups must be a list of strings")
    return Requester(_text(user, "username"), frozenset(groups))


def _object(request: dict[str, Any], key: str) -> Object | None:
    value = request.get(key)
    if value is not None and not isinstance(value, dict):
        raise NotAReview(f"{key} must be an object or null")
    return value


def wrap(item: Object, *, uid: str = "offline") -> bytes:
    """Make the AdmissionReview that an API server would send when this object is created.

    Raises NotAReview for values that JSON cannot hold: lone surrogates, integers over 64 bits.
    """
    group, _, version = str(item.get("apiVersion", "")).rpartition("/")
    metadata = item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    request = {
        "uid": uid,
        "kind": {"group": group, "version": version, "kind": item.get("kind")},
        "operation": "CREATE",
        "name": metadata.get("name"),
        "namespace": metadata.get("namespace"),
        "object": item,
    }
    return encoded({"apiVersion": API_VERSION, "kind": "AdmissionReview", "request": request})


def encoded(value: Object) -> bytes:
    """Write an object as JSON. Raises NotAReview for values that JSON cannot hold."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise NotAReview(f"not JSON: {error}") from error


def encode(request: Request, verdict: Verdict, policy: str = "", support: str = "") -> bytes:
    """Write the AdmissionReview that answers the request with a verdict.

    `policy` is the policy's digest, for the audit annotation. `support` is a line that ends every denial.
    """
    allowed = verdict.allowed
    response: dict[str, Any] = {"uid": request.uid, "allowed": allowed}
    if not allowed:
        response["status"] = _status(verdict, support)
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(verdict.patch)).decode("ascii")
    annotations: dict[str, str] = {}
    if verdict.results:
        if warnings := warnings_of(verdict):
            response["warnings"] = warnings
        annotations = _annotations(verdict.having(Action.AUDIT))
    if policy:
        annotations[POLICY] = policy
    if verdict.would is not None:
        annotations |= {MODE: Mode.AUDIT, WOULD: verdict.would}
        if verdict.malformed is not None:
            annotations[UNJUDGED] = _cut(line(str(verdict.malformed)), MAX_ANNOTATION)
    if annotations:
        response["auditAnnotations"] = annotations
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def answer(request: Request, wrong: Sequence[str] = (), warnings: Sequence[str] = ()) -> bytes:
    """Write the AdmissionReview that answers a request for which there is no verdict.

    The request is denied if there are errors, which are written one per line.
    """
    response: dict[str, Any] = {"uid": request.uid, "allowed": not wrong}
    if wrong:
        response["status"] = {"code": 422, "reason": "Invalid", "message": "\n".join(_listed(wrong, "errors"))}
    if warnings:
        response["warnings"] = [_cut(each, MAX_WARNING) for each in warnings]
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _status(verdict: Verdict, support: str) -> dict[str, Any]:
    code, reason = (403, "Forbidden") if verdict.malformed is None else (422, "Invalid")
    return {"code": code, "reason": reason, "message": message_of(verdict, support)}


def message_of(verdict: Verdict, support: str = "") -> str:
    """Write the message of a denial: one finding as a line, several as a list, then where to ask for help.

    The list has as many findings as fit, then the number of the others. kubectl shows every line.
    """
    lines = _listed(reasons(verdict), "findings")
    return "\n".join([*lines, f"{HELP}{support}"] if support else lines)


def _listed(texts: Sequence[str], what: str) -> Sequence[str]:
    """Write texts as a list, with as many as fit, then the number of the others; one text as it is."""
    if len(texts) <= 1:
        return texts
    items = [f"- {text}" for text in texts]
    fitting = sum(length <= MAX_MESSAGE for length in accumulate(len(item) + 1 for item in items)) or 1
    more = [f"and {len(items) - fitting} more"] if len(items) > fitting else []
    return [f"{len(texts)} {what}:", *items[:fitting], *more]


def reasons(verdict: Verdict) -> list[str]:
    """Return why an object is denied, one line each: that it is malformed, or the denying findings without repeats.

    Findings about fields that `/mutate` left out come last, because no author can correct them. Each reason is given
    only once.
    """
    if verdict.malformed is not None:
        return [str(verdict.malformed)]
    denied = sorted(verdict.having(Action.DENY), key=lambda result: bool(result.finding.left_out))
    texts = [*dict.fromkeys((result.text, result.finding.why) for result in denied)]
    first = {why: number for number, (_, why) in reversed([*enumerate(texts)])}
    return [
        text.removesuffix(f"; {why}") if why and number > first[why] else text
        for number, (text, why) in enumerate(texts)
    ]


def warnings_of(verdict: Verdict) -> list[str]:
    """Write the warnings as kubectl shows them: short, one line each, without repeats."""
    texts = dict.fromkeys(_cut(result.text, MAX_WARNING) for result in verdict.having(Action.WARN))
    return list(texts)[:MAX_WARNINGS]


def _annotations(audited: list[Result]) -> dict[str, str]:
    """Write the audit annotations: the findings under the id of each audited rule."""
    texts: dict[str, list[str]] = {}
    for result in audited:
        remark = f"{result.remark}: " if result.remark else ""
        texts.setdefault(result.rule, []).append(remark + result.text.removeprefix(f"{result.rule}: "))
    return {rule: _cut("; ".join(dict.fromkeys(findings)), MAX_ANNOTATION) for rule, findings in texts.items()}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
