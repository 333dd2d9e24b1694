"""Objects of the size that an API server lets through, made to cost as much as they can.

What each costs is counted in calls of Python functions, not in seconds: the count is the same on every machine.
"""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.support.cost import calls, peak
from tests.support.objects import affinity, config_map, expression, pod
from webhook.api import admission
from webhook.api.jsonpatch import MAX_OPERATIONS
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Unusable
from webhook.policy.load import MOST, load

CALLS_PER_BYTE = 8
"""Far above what an honest object of the size costs, and far below anything that is not linear."""


BOUNDS = [expression("Gt", n) for n in range(500)] + [expression("Lt", 10**9)]
HOSTILE = {
    "bounds and exclusions": pod(affinity=affinity([expression("NotIn", *range(3000)), *BOUNDS])),
    "sets to intersect": pod(
        affinity=affinity(
            [expression("In", *range(9000)), expression("NotIn", *range(9000)), *[expression("Exists")] * 900]
        )
    ),
    "values excluded one by one": pod(
        affinity=affinity([expression("In", *range(2000)), *(expression("NotIn", n) for n in range(2000))])
    ),
    "terms times selector": pod(
        nodeSelector={f"l{n}": "x" for n in range(4000)}, affinity=affinity(*[[expression("Exists")]] * 4000)
    ),
    "containers that all need caps": pod(
        initContainers=[{"name": f"c{n}", "resources": {"limits": {"nvidia.com/gpu": 1}}} for n in range(500)]
    ),
    "variables that all open a way": pod(
        initContainers=[{"name": "b", "env": [{"name": "CUDA_VERSION"}] * 10_000 + [{"name": "LD_AUDIT"}] * 10_000}]
    ),
    "a text that looks like a configuration": config_map("# sharing mps\n" + "a: [" + "x," * 30_000 + "]"),
    "a larger one": config_map("# sharing mps\n" + "- a\n" * 300_000),
    "findings without end": config_map(
        "sharing:\n  timeSlicing:\n    resources:\n" + "".join(f"    - {{replicas: {n}}}\n" for n in range(2500, 5000))
    ),
}


@pytest.mark.parametrize("item", HOSTILE.values(), ids=HOSTILE)
def test_work_is_linear_in_the_size_of_an_object(engine: Engine, sample_facts: Facts, item: dict[str, Any]) -> None:
    body = admission.wrap(item)
    request = admission.decode(body)
    work = calls(lambda: (engine.mutate(request, sample_facts), engine.validate(request, sample_facts)))
    assert work < CALLS_PER_BYTE * len(body)


def text_of(**metadata: Any) -> dict[str, Any]:
    item = pod(tolerations=[{"key": "slicewarden.dev/pool", "operator": "Exists"}])
    item["metadata"] |= metadata
    return item


LENGTH = 300_000
LONG_TEXTS = {
    "devices that are harmless": text_of(annotations={"devices.crio.io": "/x," * LENGTH}),
    "devices of the older name": text_of(annotations={"io.kubernetes.cri-o.Devices/a": "/dev/fuse," * LENGTH}),
    "steps of a path": pod(volumes=[{"name": "v", "hostPath": {"path": "/data" + "/a" * LENGTH}}]),
    "steps there and back": pod(volumes=[{"name": "v", "hostPath": {"path": "/etc/" + "a/../" * LENGTH}}]),
    "the name of a driver": pod(volumes=[{"name": "v", "csi": {"driver": "a." * LENGTH}}]),
    "steps of a mount": pod(
        initContainers=[{"name": "b", "volumeMounts": [{"name": "v", "mountPath": "/a/../" * LENGTH}]}]
    ),
}


@pytest.mark.parametrize("item", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_the_content_of_a_text_adds_no_calls(engine: Engine, sample_facts: Facts, item: dict[str, Any]) -> None:
    request = admission.decode(admission.wrap(item))
    changed = replace(request, operation="UPDATE", old_object={**item, "kind": "Pod"})
    for half in (engine.mutate, engine.validate):
        for each in (request, changed):
            assert calls(partial(half, each, sample_facts)) < LENGTH / 10


def test_a_patch_too_large_for_an_answer_is_not_made(engine: Engine, sample_facts: Facts) -> None:
    request = admission.decode(admission.wrap(HOSTILE["containers that all need caps"]))
    assert engine.mutate(request, sample_facts).patch == ()
    for verdict in (half(request, sample_facts) for half in (engine.mutate, engine.validate, engine.judge)):
        assert f"more than {MAX_OPERATIONS} changes, and no more fit one answer" in str(verdict.malformed)


def test_without_its_patch_a_pod_is_denied_by_what_is_missing(engine: Engine, sample_facts: Facts) -> None:
    few = HOSTILE["containers that all need caps"]["spec"]["initContainers"][:2]
    request = admission.decode(admission.wrap(pod(initContainers=few)))
    assert engine.mutate(request, sample_facts).patch
    verdict = engine.validate(request, sample_facts)
    assert verdict.malformed is None
    assert "mutating webhook did not run" in " ".join(each.text for each in verdict.having(Action.DENY))


# What may be a hundred times as large in another cluster


def decided(engine: Engine, facts: Facts, **spec: Any) -> int:
    """Count what both calls for a pod cost once its snapshot has been reckoned with."""
    request = admission.decode(admission.wrap(pod(**spec)))

    def both() -> tuple[object, ...]:
        return engine.mutate(request, facts), engine.validate(request, facts)

    both()
    return calls(both)


def test_nodes_and_namespaces_cost_a_pod_nothing(engine: Engine, sample_facts: Facts) -> None:
    known = sample_facts.nodes
    nodes = tuple(replace(known[index % len(known)], name=f"n{index}") for index in range(2_000))
    namespaces = {**sample_facts.namespaces, **{f"n{index}": {"a": "b"} for index in range(2_000)}}
    large = replace(sample_facts, nodes=nodes, namespaces=namespaces)
    assert decided(engine, large) == decided(engine, sample_facts)


def test_cost_grows_linearly_with_containers_and_rules(engine: Engine, sample_facts: Facts) -> None:
    containers = [{"name": f"c{index}", "env": [{"name": "A", "value": "b"}]} for index in range(60)]
    first, second, third = (decided(engine, sample_facts, initContainers=containers[:n]) for n in (20, 40, 60))
    assert third - second <= second - first + 5
    first, second, third = (decided(Engine(engine.policy, engine.rules * n), sample_facts) for n in (1, 2, 3))
    assert third - second <= second - first + 5


# Texts of a ConfigMap that the policy names, up to the size of one: all of it is looked into

MEBIBYTE = 1_000_000
CALLS = 150_000
MEMORY = 12 * MEBIBYTE


def named(*texts: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "time-slicing-config", "namespace": "gpu-operator"},
        "data": {f"k{number}": text for number, text in enumerate(texts)},
    }


def entry(name: str = "gpu", **more: str) -> str:
    rows = ", ".join(f"{key}: {value}" for key, value in {"name": name, "replicas": "4", **more}.items())
    return f"sharing: {{timeSlicing: {{failRequestsGreaterThanOne: true, resources: [{{{rows}}}]}}}}"


def bomb(levels: int, width: int, more: str = "") -> str:
    rows = ["a0: &a0 {x: 1}"]
    rows += [f"a{n}: &a{n} {{k{n}: [{', '.join([f'*a{n - 1}'] * width)}]{more % (n - 1)}}}" for n in range(1, levels)]
    return "\n".join(rows)


def long(before: str, piece: str, after: str = "") -> str:
    return before + piece * (MEBIBYTE // len(piece)) + after


UNREAD = "Slicewarden cannot judge this text"
REFUSED = "the device plugin would not start: "
EITHER = ": "

TEXTS = {
    "a bomb of aliases": (bomb(9, 9, "%.0s"), "nearly nothing but aliases"),
    "a bomb of merges": (bomb(9, 9, ", <<: *a%d"), "nearly nothing but aliases"),
    "a bomb that go-yaml would take": ("a: &a [" + "x, " * 100 + "]\nb: [" + "*a, " * 60 + "]", UNREAD),
    "a wide map merged often": (
        "a: &a {" + "".join(f"k{n}: 1, " for n in range(1000)) + "}\nb:\n" + "  <<: *a\n" * 1000,
        UNREAD,
    ),
    "a cycle": ("a: &a [*a]", "inside what it refers to"),
    "a longer cycle": ("a: &a {b: {c: [*a]}}", "inside what it refers to"),
    "open brackets": (long("", "["), UNREAD),
    "open braces": ("{" * 900, "key"),
    "very many open braces": (long("", "{"), EITHER),  # libyaml refuses the depth from 0.2.6 on, and the key before
    "dashes": (long("", "- "), UNREAD),
    "question marks": (long("", "? "), "key"),
    "a staircase": ("".join(" " * n + "a:\n" for n in range(1400)), UNREAD),
    "many keys": ("".join(f"k{n}: 1\n" for n in range(90_000)), UNREAD),
    "one key again and again": (long("", "a: 1\n"), UNREAD),
    "many anchors": ("".join(f"- &a{n} x\n" for n in range(80_000)), UNREAD),
    "many tags": (long("", "- !x y\n"), UNREAD),
    "many lists": (long("[", "[],", "]"), UNREAD),
    "a long anchor": (long("- &", "a", " ! x"), "not a map"),
    "blanks behind an anchor": (long("- &a ", " ", "! x"), "not a map"),
    "comments behind an anchor": (long("- &a ", "# c\n  ", "! x"), "not a map"),
    "a long tag": (long("- !", "x", " y"), "not a map"),
    "a long odd tag": (long("- !", "x", ", y"), UNREAD),
    "a long base64": (long("a: !!binary ", "QUJD"), ""),
    "a broken base64": (long("a: !!binary ", "QUJD", "*"), "base64"),
    "a long timestamp": (long("a: !!timestamp 2001-01-01 ", "1:"), "tag"),
    "digits": (long("a: ", "9"), ""),
    "digits and then none": (long("a: ", "9", "x"), ""),
    "a long hexadecimal": (long("a: 0x", "f", "g"), ""),
    "low lines": (long("a: 1", "_", "x"), ""),
    "a long duration": (long("flags: {gfd: {sleepInterval: ", "1s", "}}"), "longer than any duration"),
    "a long name": (entry(long("", "g")), "63 characters"),
    "a long UUID": (entry(devices=long("['GPU-", "a", "']")), "UUID"),
    "a long index": (entry(devices=long("['", "0", "']")), ""),
    "a long version": (long("version: ", "v"), "must be v1"),
    "comments": (long("", "# c\n"), ""),
    "documents": (long("a: 1\n", "---\n"), ""),
    "control characters": (long("", "\x07"), "control"),
    "control characters far behind": (long("a: 1\n---\n", "x", "\x07"), ""),
    "entries that are none": ("sharing:\n  mps:\n    resources:\n" + "    - x\n" * 2900, "2880 more places"),
    "devices that are none": (entry(devices="[" + "x," * 2900 + "]"), "2880 more places"),
    "all spellings of a key": (
        "{" + "".join(f"{spelling}: {{mps: 4}}, " for spelling in ("sharing", "SHARING", "Sharing", "sHaring")) + "}",
        "must be a map",
    ),
}


@pytest.mark.parametrize(("text", "words"), TEXTS.values(), ids=TEXTS)
def test_a_hostile_text_is_judged_in_bounds(engine: Engine, sample_facts: Facts, text: str, words: str) -> None:
    request = admission.decode(admission.wrap(named(text)))
    tracemalloc.start()
    verdict = engine.validate(request, sample_facts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    messages = [each.finding.message for each in verdict.results if each.rule == "invalid-sharing-config"]
    assert bool(words) == bool(messages)
    assert any(words in message for message in messages) or not words
    assert all(UNREAD in message or REFUSED in message for message in messages)
    assert all(len(message) <= 1000 and message.isprintable() for message in messages)
    assert len(messages) <= 21
    assert peak < MEMORY
    # The same text in another key: what is remembered of the first must not do the work of the second.
    again = admission.decode(admission.wrap(named(text + " ")))
    assert calls(lambda: engine.validate(again, sample_facts)) < CALLS


def test_all_keys_share_a_bound(engine: Engine, sample_facts: Facts) -> None:
    texts = ["[" + "a," * 2000 + f"] # {n}" for n in range(200)] + ["[" + "a," * 2000 + f"{n}" for n in range(200)]
    request = admission.decode(admission.wrap(named(*texts)))
    assert calls(lambda: engine.validate(request, sample_facts)) < 2 * CALLS


def test_honest_keys_do_not_reach_the_bound(engine: Engine, sample_facts: Facts) -> None:
    request = admission.decode(admission.wrap(named(*[entry(devices="[0, 1, 2, 3]")] * 100)))
    results = engine.validate(request, sample_facts).results
    assert {result.rule for result in results} == {"ignored-sharing-key"}  # of some GPUs nothing can be shared alone


def dashboard(**more: Any) -> str:
    panel = {"type": "timeseries", "timestamps": True, "targets": [{"expr": 'a{b!=""}', "legendFormat": "GPU"}]}
    return json.dumps({"title": "GPU sharing by MPS", "panels": [panel] * 2000, **more})


def test_a_large_dashboard_where_the_plugin_runs_is_no_configuration(engine: Engine, sample_facts: Facts) -> None:
    shared = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 99}]}}
    texts = (dashboard(), dashboard(sharing=shared), dashboard(b={"<<": {"sharing": shared}}))
    requests = [admission.decode(admission.wrap(config_map(text))) for text in texts]
    honest, *others = [
        replace(each, namespace="gpu-operator", object={**each.object, "metadata": {"name": "c"}})
        for each in requests
        if each.object
    ]
    assert engine.validate(honest, sample_facts).results == ()
    assert not any(engine.validate(each, sample_facts).allowed for each in others)


# Policies: nobody's but an administrator's counts, but whoever proposes one has it read


def pool(number: int, **labels: str) -> dict[str, Any]:
    named = {"name": f"p{number}", "sharing": "none", "trust": ["trusted"], "resources": ["nvidia.com/gpu"]}
    return {**named, "nodes": {"matchLabels": labels}}


WARN = {"rules": {"multiple-slices": "Warn"}}
POLICIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "maps where words stand once": lambda n: {"memory": {"frameworks": [{"a": each} for each in range(n)]}},
    "a word twice": lambda n: {"memory": {"unified": [str(each) for each in range(n)] + [str(n - 1)]}},
    "unknown keys": lambda n: {f"pool{each}": [] for each in range(n)},
    "unknown keys of many maps": lambda n: {"overrides": [{"rulse": {}}] * n},
    "pools that nobody has": lambda n: {"overrides": [{"pools": [f"x{each}"], **WARN} for each in range(n)]},
}


def refused(spec: dict[str, Any]) -> int:
    """Read a policy that is none, and say how many errors are named."""
    value = {"apiVersion": "slicewarden.dev/v1alpha1", "kind": "GPUSharingPolicy", "metadata": {"name": "p"}}
    documents, _ = read(json.dumps({**value, "spec": {"pools": [pool(0, a="b")], **spec}}), "policy.json")
    with pytest.raises(Unusable) as raised:
        load(documents, ["multiple-slices"], "policy.json")
    return len(raised.value.problems)


@pytest.mark.parametrize("spec", POLICIES.values(), ids=POLICIES)
def test_a_policy_is_refused_by_work_that_is_linear_in_its_size(spec: Callable[[int], dict[str, Any]]) -> None:
    assert 1 <= refused(spec(125)) <= MOST + 1
    once, twice = (calls(lambda size=size: refused(spec(size))) for size in (125, 250))  # type: ignore[misc]
    assert twice < 2.5 * once


def test_findings_keep_no_copies_of_a_long_text(engine: Engine, sample_facts: Facts) -> None:
    """Each template of a Workflow has its selector. A part of a finding names the whole value."""

    def needed(templates: int) -> int:
        step = {"container": {"image": "i", "resources": {"limits": {"nvidia.com/mig-1g.10gb": 1}}}}
        spec = {"nodeSelector": {"nvidia.com/gpu.replicas": "a" * LONG}, "templates": [step] * templates}
        metadata = {"name": "w", "namespace": "vision"}
        item = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}
        request = admission.decode(admission.wrap(item))
        results = engine.validate(request, sample_facts).results
        assert sum(each.rule == "unsteered-pod" for each in results) == templates
        return peak(lambda: engine.validate(request, sample_facts))

    assert needed(60) - needed(10) < LONG


LONG = 300_000
