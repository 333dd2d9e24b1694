"""The annotations of kai-gpu-fractioning: whatever its plugin would act on is refused from whoever is no scheduler.

Its module cannot be had from Go's proxy, so its own parser is no oracle here. `acted_on` is written after its source:
fractioning-manager/fractiond/internal/annotations/annotations.go and plugin.go (buildAdjustment), and CASES after
annotations_test.go and plugin_test.go, as they were in September 2026.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from tests.support import conditions
from tests.support.objects import Object
from tests.support.strategies import request_for, workload
from webhook.api import quantity
from webhook.api.admission import decode
from webhook.engine.engine import Engine
from webhook.engine.registration import configurations
from webhook.facts.snapshot import Facts
from webhook.model import Action, Verdict
from webhook.policy.model import Policy
from webhook.policy.scopes import SCHEDULER, Requesters
from webhook.rules import walk

PREFIX = "nvidia.com/container."
Annotations = dict[str, str]
Given = tuple[str, str, str] | str | None
"""The request and the limit in MiB with the devices, why the container is not created, or None for no change."""


def acted_on(annotations: Mapping[str, str], container: str, prefix: str = PREFIX) -> Given:
    """Tell what fractiond makes of a container."""
    sizes = []
    for end in ("request", "limit"):
        value = annotations.get(f"{prefix}{container}.gpu-memory.{end}")
        try:
            sizes.append(None if value is None else mib(value))
        except ValueError:
            return "memory"
    if sizes == [None, None]:
        return None
    mode = annotations.get(f"{prefix}{container}.gpu-compute.mode")
    if mode is not None and mode.strip() not in ("time-slicing", "sm-sharing"):
        return "mode"
    request, limit = (str(size or other) for size, other in (sizes, sizes[::-1]))
    return request, limit, annotations.get(f"{prefix}{container}.gpus.devices", "").strip()


def mib(value: str) -> int:
    """Read a quantity, which is rounded up to MiB. Raises ValueError for none, and for less than a MiB."""
    size = -(-quantity.parse(value) // 1)
    if size < 2**20 or value != value.strip():
        raise ValueError
    return int(-(-size // 2**20))


CASES: list[tuple[Annotations, Given]] = [
    ({"gpu-memory.request": "2048Mi", "gpu-memory.limit": "4Gi"}, ("2048", "4096", "")),
    ({"gpu-memory.limit": "4Gi"}, ("4096", "4096", "")),
    ({"gpu-memory.limit": "1024M"}, ("977", "977", "")),
    ({"gpu-memory.request": "1Gi"}, ("1024", "1024", "")),
    ({"gpu-memory.limit": "4294967296"}, ("4096", "4096", "")),
    ({"gpu-memory.limit": "1024Ki"}, ("1", "1", "")),
    ({"gpu-memory.limit": "500Ki"}, "memory"),
    ({"gpu-memory.limit": "4096"}, "memory"),
    ({"gpu-memory.limit": "0"}, "memory"),
    ({"gpu-memory.limit": ""}, "memory"),
    ({"gpu-memory.limit": "  2048Mi  "}, "memory"),
    ({"gpu-memory.limit": "not-a-number"}, "memory"),
    ({"gpu-memory.limit": "4Gi", "gpus.devices": "GPU-a,GPU-b"}, ("4096", "4096", "GPU-a,GPU-b")),
    ({"gpu-memory.limit": "4Gi", "gpus.devices": "  all  "}, ("4096", "4096", "all")),
    ({"gpu-memory.limit": "4Gi", "gpus.devices": "   "}, ("4096", "4096", "")),
    ({"gpus.devices": "all"}, None),
    ({"gpu-compute.mode": "sm-sharing"}, None),
    ({"gpu-memory.limit": "4Gi", "gpu-compute.mode": "  sm-sharing  "}, ("4096", "4096", "")),
    ({"gpu-memory.limit": "4Gi", "gpu-compute.mode": "mig"}, "mode"),
    ({"gpu-memory.limit": "4Gi", "gpu-compute.mode": "SM-Sharing"}, "mode"),
]


@pytest.mark.parametrize(("ends", "expected"), CASES)
def test_the_plugin_is_played_as_its_own_tests_have_it(ends: Annotations, expected: Given) -> None:
    annotations = {f"{PREFIX}main.{end}": value for end, value in ends.items()}
    assert acted_on(annotations, "main") == expected
    assert acted_on(annotations, "mai") is acted_on(annotations, "Main") is None
    own = {key.replace(PREFIX, "example.com/c."): value for key, value in annotations.items()}
    assert acted_on(own, "main", "example.com/c.") == expected
    assert acted_on(own, "main") is None


# Everything that it acts on is refused

PREFIXES = (PREFIX, "kai.scheduler/container.", "example.com/container.", "", "nvidia.com/Container.", "nvidia.com/")
CONTAINERS = ("main", "fetch", "cache", "debugger", "Main", "a.b")
ENDS = (
    *("gpu-memory.request", "gpu-memory.limit", "gpus.devices", "gpu-compute.mode", "gpu-compute.portion"),
    *("gpu-compute.request", "gpu-memory.portion.limit", "gpus.device", "gpu-memory", "GPUS.devices", "note"),
)
VALUES = (
    *("8Gi", "80Gi", "1", "", " 8Gi", "all", " all ", "0", "0,1", "GPU-1", "sm-sharing", "time-slicing", "mig", "0.5"),
    "k8s.device-plugin.nvidia.com/gpu=all",
)


@st.composite
def annotations(draw: st.DrawFn) -> Annotations:
    """Annotations that are read as memory and devices of a container often enough, and near misses of them."""
    prefixes, names = draw(st.sampled_from(((PREFIX,), PREFIXES))), draw(st.sampled_from((("main",), CONTAINERS)))
    keys = st.builds("{}{}.{}".format, st.sampled_from(prefixes), st.sampled_from(names), st.sampled_from(ENDS))
    return draw(st.dictionaries(keys, st.sampled_from(VALUES), max_size=4))


def pod(marks: Annotations) -> Object:
    spec = {
        "initContainers": [{"name": "fetch", "image": "i"}, {"name": "cache", "image": "i", "restartPolicy": "Always"}],
        "containers": [{"name": "main", "image": "i"}],
    }
    metadata = {"name": "x", "namespace": "visitors", "annotations": marks}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def review(operation: str, after: Object, before: Object | None, sub: str = "", user: str = "dana") -> Object:
    kind = {"group": "", "version": "v1", "kind": after["kind"]}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": kind,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            **({"subResource": sub} if sub else {}),
            "name": "x",
            "namespace": "visitors",
            "operation": operation,
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": after,
            "oldObject": before,
        },
    }


def asked_with(marks: Annotations, user: str = "dana") -> list[Object]:
    """Every way by which an account can give a pod annotations: its creation, its updates, a binding."""
    metadata = {"name": "x", "namespace": "visitors", "annotations": marks}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"kind": "Node", "name": "cpu"}}
    return [
        review("CREATE", pod(marks), None, user=user),
        review("UPDATE", pod(marks), pod({}), user=user),
        review("UPDATE", pod(marks), pod(dict.fromkeys(marks, "before")), user=user),
        review("UPDATE", {**pod(marks), "status": {}}, pod({}), "status", user),
        review("CREATE", binding, None, "binding", user),
    ]


def reads(marks: Annotations) -> bool:
    """Tell whether fractiond would do anything with some container, under any prefix that it may be set to."""
    return any(acted_on(marks, name, prefix) is not None for name in CONTAINERS for prefix in PREFIXES)


def refused(verdict: Verdict) -> bool:
    """Tell whether annotations are denied, whatever else is: a binding is, for its node is not known."""
    return any("annotations" in result.finding.path for result in verdict.having(Action.DENY))


OURS = re.compile(
    r"^(nvidia\.com|kai\.scheduler)/container\.|\.(gpus\.devices|gpu-compute\.portion|gpu-memory\.(request|limit))$"
)


@example(marks={f"{PREFIX}main.gpu-memory.limit": "8Gi", f"{PREFIX}main.gpus.devices": "all"})
@example(marks={f"{PREFIX}debugger.gpu-memory.limit": "8Gi", f"{PREFIX}debugger.gpus.devices": "all"})
@given(marks=annotations())
def test_what_the_plugin_acts_on_is_refused_from_a_tenant(
    sample_policy: Policy, sample_facts: Facts, marks: Annotations
) -> None:
    engine = Engine(sample_policy, walk())
    requests = [decode(json.dumps(each).encode()) for each in asked_with(marks)]
    requests.append(request_for(workload("Deployment", pod(marks))))
    ours = any(map(OURS.search, marks))
    event(f"it acts: {reads(marks)}, refused: {ours}")
    assert ours or not reads(marks)
    assert [refused(engine.judge(each, sample_facts)) for each in requests] == [ours] * len(requests)


@given(marks=annotations())
def test_what_is_refused_is_sent(sample_policy: Policy, marks: Annotations) -> None:
    hooks = [hook for each in configurations(sample_policy) for hook in each["webhooks"]]
    for each in asked_with(marks):
        received = conditions.receivers(hooks, conditions.request_of(each))
        assert any(map(OURS.search, marks)) <= any("mutate" not in name for name in received)


@given(marks=annotations())
def test_the_schedulers_of_the_policy_write_what_the_plugin_reads(
    sample_policy: Policy, sample_facts: Facts, marks: Annotations
) -> None:
    binder = "system:serviceaccount:kai-scheduler:binder"
    engine = Engine(replace(sample_policy, schedulers=Requesters(users=frozenset((SCHEDULER, binder)))), walk())
    for each in asked_with(marks, binder):
        denied = engine.judge(decode(json.dumps(each).encode()), sample_facts).having(Action.DENY)
        assert not {result.rule for result in denied} & {"unsteered-pod", "forged-placement", "foreign-binding"}


@given(marks=annotations(), more=annotations())
def test_what_a_scheduler_wrote_stands_in_no_tenants_way(
    sample_policy: Policy, sample_facts: Facts, marks: Annotations, more: Annotations
) -> None:
    """A tenant's update is judged by what it changes of these annotations, and by what it removes."""
    engine = Engine(sample_policy, walk())
    after = {**marks, **more}
    update = review("UPDATE", pod(after), pod(marks))
    changes: dict[str, Any] = {key: value for key, value in more.items() if marks.get(key) != value}
    verdict = engine.judge(decode(json.dumps(update).encode()), sample_facts)
    assert refused(verdict) is any(map(OURS.search, changes))


def test_only_a_scheduler_removes_a_device_or_a_share_of_compute(sample_policy: Policy, sample_facts: Facts) -> None:
    engine = Engine(sample_policy, walk())
    devices, share = f"{PREFIX}main.gpus.devices", f"{PREFIX}main.gpu-compute.portion"
    before = pod({devices: "GPU-1", share: "0.25"})
    for after, user, allowed in (
        ({devices: "GPU-1"}, "dana", False),
        ({devices: "GPU-1"}, SCHEDULER, True),
        ({share: "0.25"}, "dana", False),
        ({share: "0.25"}, SCHEDULER, True),
        ({devices: "GPU-1", share: "0.25", "team": "vision"}, "dana", True),
        ({}, "dana", False),
        ({}, SCHEDULER, True),
        ({"team": "vision"}, "dana", False),
    ):
        update = decode(json.dumps(review("UPDATE", pod(after), before, user=user)).encode())
        assert engine.judge(update, sample_facts).allowed is allowed, after
