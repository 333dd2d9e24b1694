"""Limits that others keep: the driver, where the policy says so, and HAMi-core, where a container shows it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from tests.support.strategies import request_for
from webhook.api.jsonpatch import apply
from webhook.engine.engine import Engine
from webhook.memory import annotation
from webhook.memory.annotation import Record
from webhook.model import Action, Unusable
from webhook.policy.model import Policy
from webhook.rules import walk

Item = dict[str, Any]

RULES, CLUSTER = walk(), facts_of(FACTS)
TEXT = POLICY.read_text("utf-8")
OTHERS = "  gpus: {otherDevices: [nvidia.com/gpumem, nvidia.com/gpucores]}\n"
DRIVER = policy_of(TEXT.replace("sharing: time-slicing\n", "sharing: time-slicing\n      memoryLimit: Driver\n", 1))
STRICT = replace(DRIVER, defeats=Action.DENY, shim=True)
HAMI = policy_of(TEXT.replace("  sharing:\n    namespaces", f"{OTHERS}  sharing:\n    namespaces", 1))


def pod(**container: Any) -> Item:
    asks = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train",
            "namespace": "vision",
            "annotations": {"slicewarden.dev/trust": "trusted", "slicewarden.dev/python-path": ""},
        },
        "spec": {"containers": [{"name": "train", "image": "torch:2.4", **asks, **container}]},
    }


def mutated(item: Item, policy: Policy) -> Item:
    return dict(apply(item, Engine(policy, RULES).mutate(request_for(item), CLUSTER).patch))


def record(item: Item) -> Record:
    read = annotation.read(item["metadata"]["annotations"][annotation.KEY])
    assert read is not None
    return read


def test_where_the_driver_limits_variables_are_written_and_nothing_is_uncapped() -> None:
    after = mutated(pod(), STRICT)
    assert record(after).driver == ("train",)
    assert not record(after).uncapped
    assert "PYTORCH_ALLOC_CONF" in {entry["name"] for entry in after["spec"]["containers"][0]["env"]}
    assert "volumes" not in after["spec"]
    assert not Engine(STRICT, RULES).mutate(request_for(after), CLUSTER).patch
    assert Engine(STRICT, RULES).validate(request_for(after), CLUSTER).results == ()


def test_what_takes_a_cap_by_variable_away_harms_nobody_where_the_driver_limits() -> None:
    item = pod(env=[{"name": "PYTORCH_NO_CUDA_MEMORY_CACHING", "value": "1"}])
    assert Engine(STRICT, RULES).validate(request_for(mutated(item, STRICT)), CLUSTER).results == ()
    elsewhere = replace(policy_of(POLICY), defeats=Action.DENY)
    assert not Engine(elsewhere, RULES).validate(request_for(mutated(item, elsewhere)), CLUSTER).allowed


def test_a_value_on_which_a_framework_fails_is_denied_where_the_driver_limits() -> None:
    item = pod(env=[{"name": "PYTORCH_ALLOC_CONF", "value": "a b"}])
    assert not Engine(DRIVER, RULES).validate(request_for(mutated(item, DRIVER)), CLUSTER).allowed


def test_the_message_about_a_missing_variable_does_not_claim_that_more_can_be_taken() -> None:
    results = Engine(DRIVER, RULES).validate(request_for(pod()), CLUSTER).results
    (text,) = [result.text for result in results if result.rule == "uncapped-memory"]
    assert "learns only from the driver's refusal that it has 3200 MiB" in text


@pytest.mark.parametrize("sharing", ["mig", "none"])
def test_the_driver_limits_only_where_gpus_are_time_sliced(sharing: str) -> None:
    with pytest.raises(Unusable, match="Driver is only for time-sliced GPUs"):
        policy_of(TEXT.replace(f"sharing: {sharing}\n", f"sharing: {sharing}\n      memoryLimit: Driver\n", 1))


@pytest.mark.parametrize(
    ("word", "action"), [("", None), ("Correct", None), ("Warn", Action.WARN), ("Deny", Action.DENY)]
)
def test_what_an_image_gets_that_may_set_a_wider_limit_is_for_pools_whose_driver_limits(
    word: str, action: Action | None
) -> None:
    line = f"      imageLimits: {word}\n" if word else ""
    driver = "sharing: time-slicing\n      memoryLimit: Driver\n"
    assert policy_of(TEXT.replace("sharing: time-slicing\n", driver + line, 1)).pools[0].image_limits is action
    if word:
        with pytest.raises(Unusable, match="imageLimits: is for memoryLimit: Driver; set that, or remove it"):
            policy_of(TEXT.replace("sharing: time-slicing\n", f"sharing: time-slicing\n{line}", 1))


LIMIT = {"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "4096m"}
PRELOAD = {"name": "LD_PRELOAD", "value": "/usr/local/vgpu/libvgpu.so"}
BY_VOLUME = [{"name": "v", "mountPath": "/etc/ld.so.preload", "subPath": "ld.so.preload"}]
OFF = {"name": "CUDA_DISABLE_CONTROL", "value": "true"}
SHARE = {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}}


@pytest.mark.parametrize(
    ("container", "sign"),
    [
        ({"resources": SHARE}, "nvidia.com/gpumem"),
        ({"env": [LIMIT, PRELOAD]}, "CUDA_DEVICE_MEMORY_LIMIT"),
        ({"env": [LIMIT], "volumeMounts": BY_VOLUME}, "CUDA_DEVICE_MEMORY_LIMIT"),
        ({"resources": SHARE, "env": [OFF]}, ""),
        ({"env": [LIMIT]}, ""),
        ({"env": [PRELOAD]}, ""),
        ({"env": [{**LIMIT, "value": "0"}, PRELOAD]}, ""),
        ({}, ""),
    ],
)
def test_hami_core_is_recognised_and_our_caps_stay(container: Item, sign: str) -> None:
    after = mutated(pod(**container), HAMI)
    assert record(after).hami == ((f"train: {sign}",) if sign else ())
    assert "PYTORCH_ALLOC_CONF" in {entry["name"] for entry in after["spec"]["containers"][0]["env"]}
    denied = Engine(HAMI, RULES).validate(request_for(after), CLUSTER).having(Action.DENY)
    # A pod may not set the library's variables itself, unless the policy lets it.
    assert {result.rule for result in denied} <= {"lifted-limit"}
