"""`pools[].node` of a policy: what the agent does there."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from webhook.cli import inputs
from webhook.model import Unusable
from webhook.policy.model import EVICT, NO_TURNS, ONLY_REPORTED, Contention, Idle, Over, Policy


def policy(tmp_path: Path, words: Any, place: int = 0) -> Policy:
    value = yaml.safe_load((ROOT / "policies" / "sample.yaml").read_text("utf-8"))
    value["spec"]["pools"][place]["node"] = words
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(value))
    return inputs.load_policy(str(file))


def test_a_policy_that_says_nothing_tells() -> None:
    assert {pool.over for pool in inputs.load_sample().pools} == {ONLY_REPORTED}
    assert ONLY_REPORTED.action == "Report"
    assert {pool.contention for pool in inputs.load_sample().pools} == {NO_TURNS}
    assert NO_TURNS.mode == "Off"


def test_what_a_pool_says_is_read_and_the_rest_is_usual(tmp_path: Path) -> None:
    words = {"over": {"action": "Evict", "graceSeconds": 60, "slack": "1Gi", "pressurePercent": 0}}
    assert policy(tmp_path, words).pools[0].over == Over(EVICT, 60, 1024, 0)
    assert policy(tmp_path, {"over": {"action": "Evict"}}).pools[0].over == Over(EVICT)


def test_a_dead_card_taints_a_node_only_where_its_pool_says_so(tmp_path: Path) -> None:
    assert not any(pool.taint_dead for pool in inputs.load_sample().pools)
    assert policy(tmp_path, {"dead": {"action": "Taint"}}).pools[0].taint_dead
    assert not policy(tmp_path, {"dead": {"action": "Report"}}).pools[0].taint_dead
    with pytest.raises(Unusable, match="action"):
        policy(tmp_path, {"dead": {"action": "Cordon"}})
    with pytest.raises(Unusable, match="is for GPUs that pods share; remove it from this pool: of a GPU that nobody"):
        policy(tmp_path, {"dead": {"action": "Taint"}}, place=1)


def test_an_idle_container_is_reported_only_where_its_pool_says_so(tmp_path: Path) -> None:
    assert {pool.idle for pool in inputs.load_sample().pools} == {None}
    assert policy(tmp_path, {"idle": {"afterMinutes": 30}}).pools[0].idle == Idle(1800, "Report", 3600)
    words = {"afterMinutes": 30, "action": "Evict", "noticeMinutes": 15}
    assert policy(tmp_path, {"idle": words}).pools[0].idle == Idle(1800, EVICT, 900)
    for wrong in ({}, {"action": "Evict"}, {"afterMinutes": 4}, {"afterMinutes": 5, "action": "Kill"}):
        with pytest.raises(Unusable, match=r"afterMinutes|action"):
            policy(tmp_path, {"idle": wrong})
    with pytest.raises(Unusable, match="is for GPUs that pods share; remove it from this pool"):
        policy(tmp_path, {"idle": words}, place=1)


def inner(value: Any) -> Iterator[Any]:
    """All mappings in a document."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inner(each)


def test_what_a_pool_says_of_turns_is_read_and_the_rest_is_as_the_schema_says(tmp_path: Path) -> None:
    words = {
        "mode": "Turns",
        "who": "All",
        "order": "PriorityClass",
        "turnSeconds": 5,
        "longestSeconds": 30,
        "restSeconds": 7,
        "settleMilliseconds": 500,
        "patienceSeconds": 8,
        "fullPercent": 90,
        "busyPercent": 95,
    }
    read = policy(tmp_path, {"contention": words}).pools[0].contention
    assert read == Contention("Turns", "All", "PriorityClass", 5, 30, 7, 0.5, 8, 90, 95)
    assert policy(tmp_path, {"contention": {"mode": "FirstCome"}}).pools[0].contention == Contention("FirstCome")
    text = (ROOT / "webhook" / "policy" / "policy.schema.json").read_text("utf-8")
    (schema,) = [found for found in inner(json.loads(text)) if {"mode", "turnSeconds"} <= found.keys()]
    usual = {key: value["default"] for key, value in schema.items() if key != "mode"}
    assert policy(tmp_path, {"contention": {**usual, "mode": "Off"}}).pools[0].contention == NO_TURNS


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "mode"),
        ({"mode": "Sometimes"}, "mode"),
        ({"mode": "Turns", "longestSeconds": 4}, "longestSeconds"),
        ({"mode": "Turns", "turn": "10s"}, "turn"),
        ({"mode": "Turns", "busyPercent": 0}, "busyPercent"),
        ({"mode": False}, "mode"),
    ],
)
def test_a_word_of_turns_that_means_nothing_is_named(tmp_path: Path, words: Any, says: str) -> None:
    with pytest.raises(Unusable, match=says):
        policy(tmp_path, {"contention": words})


def test_turns_are_for_time_sliced_pools_alone(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="is only for time-sliced GPUs; remove it from this pool"):
        policy(tmp_path, {"contention": {"mode": "Turns"}}, place=1)


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"action": "Stop"}, "action"),
        ({"graceSeconds": 1}, "graceSeconds"),
        ({"pressurePercent": 101}, "pressurePercent"),
        ({"slack": "much"}, "slack"),
        ({"grace": 30}, "grace"),
        ({}, "over"),
    ],
)
def test_a_value_that_means_nothing_is_named(tmp_path: Path, over: Any, says: str) -> None:
    with pytest.raises(Unusable, match=says):
        policy(tmp_path, {"over": over})


def test_a_pool_that_shares_nothing_has_nobody_to_act_on(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="is for GPUs that pods share; remove it from this pool"):
        policy(tmp_path, {"over": {"action": "Evict"}}, place=1)
