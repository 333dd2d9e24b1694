"""Slicewarden's Events are listed by namespace, as far as the user may read them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.kubeconfigs import kubeconfig
from tests.support.listening import Asked, listening
from webhook.cluster import client, event_list
from webhook.cluster.event_list import MOST_KEPT, REPORTERS
from webhook.cluster.events import EventNote, Owner, body
from webhook.ui import parts


def event(name: str, namespace: str = "team", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "involvedObject": {"kind": "ReplicaSet", "name": name},
        "reason": "GPUPolicyDenied",
        "message": f"multiple-slices: {name}",
        "type": "Warning",
        "eventTime": "2026-11-27T10:00:00.000000Z",
        "reportingComponent": REPORTERS[0],
        **more,
    }


def read(folder: Path, items: list[dict[str, Any]], namespace: str | None = None, status: int = 200) -> Any:
    """List these Events from an API server that selects by the reporter. Also returns the paths that were asked."""
    asked: list[str] = []

    def answer(request: Asked) -> None:
        url = urlsplit(request.path)
        asked.append(url.path)
        reporter = parse_qs(url.query)["fieldSelector"][0].removeprefix("reportingComponent=")
        chosen = [each for each in items if each.get("reportingComponent") == reporter]
        value = {"metadata": {}, "items": chosen} if status == 200 else {"message": "events is forbidden: User x"}
        request.give(status, json.dumps(value).encode(), Content_Type="application/json")

    with listening(answer) as url:
        api = client.connect(str(kubeconfig(folder, url)))
        return *event_list.read(api, namespace), asked


def test_events_are_listed_by_namespace_the_latest_first(tmp_path: Path) -> None:
    late = event("late", series={"count": 7, "lastObservedTime": "2026-11-27T12:00:00.5Z"})
    agents = event("idle", "other", reason="GPUIdle", type="Normal", reportingComponent=REPORTERS[1], eventTime=None)
    agents["lastTimestamp"] = "2026-11-27T09:00:00Z"
    found, problems, asked = read(tmp_path, [event("early"), late, agents])
    assert problems == []
    assert asked == ["/api/v1/events"] * len(REPORTERS)
    assert {name: [(each.name, each.times) for each in some] for name, some in found.items()} == {
        "other": [("idle", 1)],
        "team": [("late", 7), ("early", 1)],
    }
    assert found["team"][0].at == datetime(2026, 11, 27, 12, 0, 0, 500_000, UTC)
    assert (found["other"][0].warning, found["team"][0].warning) == (False, True)
    text = parts.events(found, problems)
    assert text.index("Namespace <bdi>team") < text.index("Namespace <bdi>other")
    assert "7 times" in text


def test_a_user_of_one_namespace_asks_for_no_other(tmp_path: Path) -> None:
    _, _, asked = read(tmp_path, [], "team")
    assert asked == ["/api/v1/namespaces/team/events"] * len(REPORTERS)


def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    found, problems, asked = read(tmp_path, [], "team", 403)
    assert (found, len(asked)) == ({}, 1)
    assert str(problems[0]) == "cluster: events in namespace team may not be listed: events is forbidden: User x"
    assert "events in namespace team may not be listed" in parts.events(found, problems)


def test_a_flood_of_events_hides_none_of_another_namespace(tmp_path: Path) -> None:
    flood = [event(f"e{number}", "a", eventTime=f"2026-11-27T10:{number % 60:02}:00Z") for number in range(500)]
    found, _, _ = read(tmp_path, [*flood, event("one", "b")])
    assert (len(found["a"]), len(found["b"])) == (MOST_KEPT, 1)
    assert min(each.at.minute for each in found["a"]) > 50, "the latest are kept"


@pytest.mark.parametrize("value", [None, 7, "x", [], {"count": "x"}])
def test_an_event_that_says_little_is_listed(tmp_path: Path, value: Any) -> None:
    odd = event("odd", series=value, eventTime=value, message=value, involvedObject=value)
    found, problems, _ = read(tmp_path, [odd])
    assert (problems, found["team"][0].at) == ([], event_list.BEGINNING)
    assert "Namespace <bdi>team" in parts.events(found, problems)


def test_it_reads_what_the_webhook_writes() -> None:
    """The API server shows an Event of events.k8s.io/v1 as one of core/v1 under other names."""
    note = EventNote(Owner("apps/v1", "ReplicaSet", "team", "r", "u"), "why")
    assert body(note, 1, "2026-11-27T10:00:00.000000Z", "host")["reportingController"] in REPORTERS
