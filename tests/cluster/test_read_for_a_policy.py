"""What a rule reads of the cluster, the webhook reads too, under every policy: `check` and a live webhook agree."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from tests.support import fixtures
from tests.support.objects import Object
from tests.support.policies import FACTS
from webhook.catalog.names import Names
from webhook.cluster import watch
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy.model import Forms, Policy

FROM_FILES = {"tables"}
"""The facts of other tables, such as queues and classes of priority, which only files give.

A live webhook says so where a rule misses them (unearned-priority, unqueued-pod).
"""

ASKED = {"rights", "today"}
"""What an API server is asked when it is needed, and what the clock says."""

MADE = {"only_nodes"}
"""How a snapshot was made, which is no fact."""

DEVICE_KINDS = {each.kind for each in (*watch.READ, *watch.READ_IF_NEEDED) if each.group == "resource.k8s.io"}


@cache
def items(file: Path) -> tuple[Object, ...]:
    documents, problems = read(file.read_text("utf-8"), file.name)
    assert problems == []
    values = (document.value for document in documents)
    return tuple(item for value in values for item in (value["items"] if value["kind"] == "List" else [value]))


@cache
def devices() -> tuple[Object, ...]:
    """All classes, claims, templates and slices of the fixtures' facts, and a class for a resource of the plugin."""
    files = (FACTS, *sorted(fixtures.FIXTURES.glob("*/facts.yaml")))
    found = {(each["kind"], each["metadata"]["name"]): each for file in files for each in items(file)}
    known = [each for (kind, _), each in found.items() if kind in DEVICE_KINDS]
    stands: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "stands-for-the-plugins"},
        "spec": {"extendedResourceName": "nvidia.com/gpu"},
    }
    # A class with the name of another vendor's, by which its claims would pass, and the driver of GPUs.
    poses: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "netdev.google.com"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]},
    }
    return (*known, stands, poses)


def world(rule: str, namespace: str) -> tuple[Object, ...]:
    """The facts of a rule's fixtures, and all device objects of others, in the namespace of the fixture too."""
    own = fixtures.FIXTURES / rule / "facts.yaml"
    there = items(own if own.exists() else FACTS)
    more = []
    for each in devices():
        if each["metadata"].get("namespace"):
            each = deepcopy(each)
            each["metadata"]["namespace"] = namespace
        more.append(each)
    return (*more, *there)


def variations(policy: Policy) -> Iterator[Policy]:
    """The policy, and others in which each part that may ask for a fact stands alone."""
    bare = replace(policy, pools=tuple(replace(pool, device_classes=Names(())) for pool in policy.pools))
    yield policy
    yield bare
    yield replace(bare, pools=(), forms=Forms())
    yield replace(
        bare, guard=None, forms=replace(bare.forms, device_classes=Names(("gpu.nvidia.com",)), classes_named=True)
    )


LIVE = frozenset(each.kind for each in (*watch.READ, *watch.READ_IF_NEEDED, *watch.READ_WITHIN))


@cache
def of_kinds(rule: str, namespace: str, kinds: frozenset[str]) -> Facts:
    return Facts.of(each for each in world(rule, namespace) if each["kind"] in kinds)


@pytest.mark.parametrize("rule", fixtures.FOLDERS)
def test_no_verdict_depends_on_a_device_that_the_webhook_does_not_read(rule: str) -> None:
    policy, _ = fixtures.settings(rule)
    for each in variations(policy):
        kinds = frozenset(one.kind for one in (*watch.resources(each), *watch.READ_WITHIN))
        if kinds == LIVE:
            continue  # all that a live webhook ever reads
        engine = Engine(each, [*fixtures.RULES.values()])
        for file in fixtures.files_of(rule):
            request = fixtures.fixture(file)[2]
            namespace = request.namespace or "default"
            whole, read_ = (engine.judge(request, of_kinds(rule, namespace, some)) for some in (LIVE, kinds))
            assert (whole.results, whole.patch) == (read_.results, read_.patch), file.stem


def test_every_fact_is_watched_asked_for_or_comes_from_files() -> None:
    """A new field of `Facts` has to say how a live webhook learns of it. Other kinds of facts say it in their file."""
    tables = {each.name for each in fields(Facts)}
    kinds = {each.kind for each in (*watch.READ, *watch.READ_IF_NEEDED, *watch.READ_WITHIN)}
    sources = {
        "namespaces": {"Namespace"},
        "nodes": {"Node"},
        "config_maps": {"ConfigMap"},
        "installations": {"DaemonSet", "ClusterPolicy"},
        "holders": {"Pod"},
        "device_classes": {"DeviceClass"},
        "claimed": {"ResourceClaim", "ResourceClaimTemplate"},
        "devices": {"ResourceSlice"},
    }
    assert tables == set(sources) | FROM_FILES | ASKED | MADE
    read = set().union(*sources.values())
    assert read <= kinds
    within = {each.kind for each in watch.READ_WITHIN}
    assert {each.kind for each in watch.READ} & read == read - {"ResourceSlice"} - within
