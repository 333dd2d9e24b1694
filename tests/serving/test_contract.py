"""Lines of the contract with the API server, and of the threats, that no other test holds the webhook to."""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.asking import ask
from webhook.api import admission
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.http.messages import Reply
from webhook.http.port import SHED
from webhook.policy.schemas import schema
from webhook.serving import app as serving
from webhook.serving import processes
from webhook.serving.processes import Listen

REVIEW = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", "kind": {"version": "v1", "kind": "Pod"}, "operation": "DELETE", "name": "@"},
    }
)


class Broken(Engine):
    def mutate(self, *_: Any) -> Any:
        raise RuntimeError


@pytest.mark.parametrize(
    ("change", "facts", "status"),
    [
        ({}, True, 200),
        ({"body": b"{}"}, True, 400),
        ({"method": "GET"}, True, 405),
        ({"Content_Length": ""}, True, 411),
        ({"Content_Length": "7340033"}, True, 413),
        ({"Content_Type": "text/plain"}, True, 415),
        ({"target": "/mutate"}, True, 500),
        ({}, False, 503),
        ({"target": "/validate?timeout=0s"}, True, 504),
    ],
)
def test_retry_after_is_said_only_when_load_is_shed(
    engine: Engine, sample_facts: Facts, change: dict[str, Any], facts: bool, status: int
) -> None:
    """An API server that is told to retry does so up to ten times: contract 8."""
    broken = Broken(engine.policy, engine.rules)
    app = serving.ReviewApplication(broken, lambda: sample_facts if facts else None, lambda _: None)
    reply = ask(app, **{"target": "/validate", "body": REVIEW.encode(), **change})
    assert reply.status == status
    assert "retry-after" not in {name.lower() for name, _ in reply.headers}


def test_what_is_shed_may_come_again() -> None:
    assert Reply(HTTPStatus.TOO_MANY_REQUESTS, headers=(("Retry-After", "1"),)) == SHED


def test_the_proxy_of_an_api_server_is_told_of() -> None:
    """Contract 16."""
    text = (ROOT / "manifests" / "README.md").read_text("utf-8")
    assert "`NO_PROXY` must name `.svc`" in " ".join(text.split())


def test_it_says_at_start_that_anyone_may_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threat 1."""
    lines: list[Any] = []
    monkeypatch.setattr(processes, "log_line", lines.append)
    authority, nobody = Path("ca.crt"), Path("none")
    for ca, names in ((None, ()), (authority, ()), (authority, ("kube-apiserver",))):
        processes._say(Listen("::", 443, nobody, nobody, ca, 2, None, frozenset(names)), {})
    assert ["anyone" in line.get("caution", "") for line in lines] == [True, True, False]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1" * 5000, "1e999", "-1" + "0" * 400])
def test_numbers_that_json_or_python_cannot_hold_are_no_review(number: str) -> None:
    """Threats 19 and 20."""
    with pytest.raises(admission.NotAReview, match="not JSON: "):
        admission.decode(REVIEW.replace('"@"', f'"p", "object": {{"n": {number}}}').encode())


def test_a_number_that_is_only_too_long_for_an_integer_is_read_as_the_nearest_fraction() -> None:
    request = admission.decode(REVIEW.replace('"@"', f'"p", "object": {{"n": {"1" * 300}}}').encode())
    assert request.object == {"n": pytest.approx(1.1111111111111112e299)}


@pytest.mark.parametrize(
    "body",
    [
        REVIEW.encode("utf-16"),
        REVIEW.encode("utf-32"),
        REVIEW.encode("utf-8-sig"),
        REVIEW.replace("@", r"\ud800").encode(),
        REVIEW.encode().replace(b"@", b"\xed\xa0\x80"),
        REVIEW.encode().replace(b"@", b"\xff"),
        REVIEW.encode().replace(b"@", b"\xc0\xaf"),
    ],
)
def test_text_that_is_not_utf_8_is_no_review(body: bytes) -> None:
    """Threat 22."""
    assert admission.decode(REVIEW.encode()).name == "@"
    with pytest.raises(admission.NotAReview):
        admission.decode(body)


def test_the_schema_refers_to_nothing_outside_itself() -> None:
    """Threat 35."""

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [each for inner in value.values() for each in references(inner)]
        return [each for inner in value for each in references(inner)] if isinstance(value, list) else []

    found = references(schema(["a-rule"]))
    assert found
    assert all(each.startswith("#/$defs/") for each in found)


def test_the_page_says_who_must_not_hold_which_power() -> None:
    """Threat 57."""
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    section = page.partition("## Who must not have which power")[2].partition("\n## ")[0]
    for power in (
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
        "services",
        "endpointslices",
        "pods/binding",
        "pods/ephemeralcontainers",
        "deviceclasses",
        "labels of `nodes`",
        "taints of `nodes`",
        "namespaces",
    ):
        assert power in section, power
