"""AdmissionReview v1: bytes to Request, Verdict to bytes (k8s.io/api admission/v1 types.go)."""

import base64
from typing import Any

import orjson

from webhook.model import Action, Object, Request, Requester, Result, Verdict

API_VERSION = "admission.k8s.io/v1"

MAX_BODY = 7 * 1024 * 1024
"""Bytes: an object and its old self of 3 MiB each, the API server's own limit, and 1 MiB around them."""

MAX_PARTS = 400_000
"""Values in a body, by its opening brackets and commas outside strings; a pod has hundreds.

As Python's objects they take thirty times the bytes of the shortest JSON: 7 MiB of them could fill the memory, and
take half a second in which nothing else is answered.
"""

_SLICE = 64 * 1024
"""Bytes that are counted in one go: other threads wait for its end."""

MAX_UID = 128
"""Characters of a request's uid, which is a UUID of 36."""

MAX_MESSAGE = 4096
"""Characters of a denial; the API server reads a whole response into memory, so ours stays small."""

MAX_WARNINGS = 8
MAX_WARNING = 256
"""Characters of a warning, so that a command fits: over these an API server may cut once all together pass 4,096.

It advises 120 (admission/v1 types.go, apiserver pkg/endpoints/filters/warning.go).
"""

MAX_ANNOTATION = 1024
"""Characters of an audit annotation's value."""


POLICY = "policy"
"""The audit annotation that says by which policy was judged; a rule may not be called so."""


class NotAReview(ValueError):
    """The bytes are not an AdmissionReview that can be judged."""


def decode(body: bytes) -> Request:
    """Read an AdmissionReview. Fields of newer API versions are ignored. Raises NotAReview."""
    # Nearly every body has fewer bytes than it may have parts, and is not counted.
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
    """Count the values of a JSON text, whose strings may have brackets and commas too."""
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


def _requester(user: Any) -> Requester | None:
    """Read who asks; an API server always says, and only what is wrapped here has nobody."""
    if user is None:
        return None
    if not isinstance(user, dict):
        raise NotAReview("userInfo must be an object")
    groups = user.get("groups") or []
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise NotAReview("groups must be a list of strings")
    return Requester(_text(user, "username"), frozenset(groups))


def _object(request: dict[str, Any], key: str) -> Object | None:
    value = request.get(key)
    if value is not None and not isinstance(value, dict):
        raise NotAReview(f"{key} must be an object or null")
    return value


def wrap(item: Object, *, uid: str = "offline") -> bytes:
    """Make the AdmissionReview that an API server would send if this object were created.

    Raises NotAReview for values that JSON cannot carry: lone surrogates, integers over 64 bits.
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
    """Write an object as JSON. Raises NotAReview for values that JSON cannot carry."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise NotAReview(f"not JSON: {error}") from error


def encode(request: Request, verdict: Verdict, policy: str = "") -> bytes:
    """Write the AdmissionReview that answers the request; its audit annotation `policy` has that policy's digest."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = _status(verdict)
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(verdict.patch)).decode("ascii")
    if warnings := warnings_of(verdict):
        response["warnings"] = warnings
    annotations = _annotations(verdict.having(Action.AUDIT))
    if policy:
        annotations[POLICY] = policy
    if annotations:
        response["auditAnnotations"] = annotations
    return orjson.dumps({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _status(verdict: Verdict) -> dict[str, Any]:
    if verdict.malformed is not None:
        return {"code": 422, "reason": "Invalid", "message": str(verdict.malformed)}
    return {"code": 403, "reason": "Forbidden", "message": message_of(verdict)}


def message_of(verdict: Verdict) -> str:
    """Say in one line why a verdict denies: every finding while there is room, then how many more."""
    texts = list(dict.fromkeys(result.text for result in verdict.having(Action.DENY)))
    if len(texts) <= 1:
        return "".join(texts)
    message = ""
    for number, text in enumerate(texts, start=1):
        if message and len(message) + len(text) > MAX_MESSAGE:
            return f"{message}and {len(texts) - number + 1} more"
        message += f"({number}) {text} "
    return message.rstrip()


def warnings_of(verdict: Verdict) -> list[str]:
    """Write the warnings as kubectl can show them: short, in one line each, every text once."""
    texts = dict.fromkeys(_cut(result.text, MAX_WARNING) for result in verdict.having(Action.WARN))
    return list(texts)[:MAX_WARNINGS]


def _annotations(audited: list[Result]) -> dict[str, str]:
    """Say under each audited rule's id what it would have refused."""
    texts: dict[str, list[str]] = {}
    for result in audited:
        exempt = f"exempted by {result.exemption}: " if result.exemption else ""
        texts.setdefault(result.rule, []).append(exempt + result.text.removeprefix(f"{result.rule}: "))
    return {rule: _cut("; ".join(dict.fromkeys(each)), MAX_ANNOTATION) for rule, each in texts.items()}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
