"""Reads a signed statement: the bundle that cosign wrote of it, and the proof in it."""

import base64
import binascii
import json
import pkgutil
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from webhook.model import dotted
from webhook.policy import schemas
from webhook.reports import proof_rows
from webhook.reports.proof_rows import ProofRow
from webhook.text.words import line

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://slicewarden.dev/attestation/gpu-isolation/v1"
"""The type of an in-toto statement (in-toto/attestation spec/v1/statement.md), and that of our predicate."""

PAYLOAD = "application/vnd.in-toto+json"
"""The type of a statement in an envelope (in-toto/attestation spec/v1/envelope.md)."""

POLICY, REGISTRATION = "GPUSharingPolicy/", "registration"
"""How the name of the policy begins among the subjects, and the name of the registration."""

_KEYS = frozenset(("mediaType", "verificationMaterial", "dsseEnvelope"))
"""All keys of a Sigstore bundle with an envelope (sigstore/protobuf-specs protos/sigstore_bundle.proto, Bundle)."""

MAX_BUNDLE = 16 * 2**20
"""Maximum bytes of a bundle."""

_NAMED = 3
"""The most errors of a predicate that a message has."""


class Unread(Exception):
    """A bundle has no readable proof. The message is the reason, in one line."""


class ProofStatement(NamedTuple):
    """A statement as it was signed: the SHA-256 of the policy, the predicate, and its rows."""

    digest: str
    report: Mapping[str, Any]
    rows: tuple[ProofRow, ...]


def read(bundle: bytes) -> ProofStatement:
    """Read the statement in a Sigstore bundle. Nothing in it counts before its signature was verified. Raises Unread.

    cosign has to verify the envelope that is read here. It may read a key that stands twice in another way than Python
    does. If it does not know a key, it takes the file for a bundle of its older format, whose `base64Signature` has an
    envelope of its own. So a bundle with either is refused.
    """
    if len(bundle) > MAX_BUNDLE:
        raise Unread(f"is larger than {MAX_BUNDLE // 2**20} MiB")
    outer = _json(bundle, "the bundle")
    envelope = _map(outer.get("dsseEnvelope"))
    if not outer.keys() <= _KEYS or envelope.get("payloadType") != PAYLOAD:
        raise Unread("is no Sigstore bundle with an in-toto statement; `cosign attest-blob --bundle` writes one")
    try:
        payload = base64.b64decode(str(envelope.get("payload")), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unread("has a payload that is no base64") from error
    return _statement(_json(payload, "the statement"))


def _statement(value: Mapping[str, Any]) -> ProofStatement:
    if (value.get("_type"), value.get("predicateType")) != (STATEMENT, PREDICATE):
        raise Unread(f"has no statement with the predicate {PREDICATE}")
    report = _map(value.get("predicate"))
    schema = json.loads(pkgutil.get_data("webhook.reports", "proofreport.schema.json") or b"")
    if wrong := [*islice(schemas.schema_errors(report, schema), _NAMED)]:
        raise Unread(f"has a predicate that is no ProofReport: {'; '.join(f'{dotted(p)}: {why}' for p, why in wrong)}")
    rows = tuple(proof_rows.read(report))
    if report["summary"] != {outcome.value: count for outcome, count in proof_rows.counts(rows).items()}:
        raise Unread("has a summary that is not the sum of its ways")
    return ProofStatement(_policy(value.get("subject"), report["policy"]["digest"]), report, rows)


def _policy(subjects: object, digest: str) -> str:
    """Return the SHA-256 of the policy among the subjects."""
    for each in subjects if isinstance(subjects, list) else ():
        found = _map(_map(each).get("digest")).get("sha256")
        if str(_map(each).get("name")).startswith(POLICY) and isinstance(found, str) and re.fullmatch(_SHA256, found):
            if not found.startswith(digest):
                raise Unread("is on another policy than its predicate")
            return found
    raise Unread("has no policy among its subjects")


_SHA256 = "[0-9a-f]{64}"


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _json(data: bytes, what: str) -> Mapping[str, Any]:
    try:
        return _map(json.loads(data.decode("utf-8"), object_pairs_hook=_once))
    except (ValueError, RecursionError) as error:
        raise Unread(f"cannot be read: {what} is no JSON: {line(str(error))}") from error


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found = [*pairs]
    value = dict(found)
    if len(value) != len(found):
        raise ValueError("a key stands twice")
    return value
