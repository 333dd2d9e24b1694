"""Every kind of facts, by its example: what is kept of an object says as much as the object."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.support.kinds import EXAMPLES, examples
from tests.support.objects import Object
from tests.support.policies import POLICY, policy_of
from webhook.api.fields import group_kind
from webhook.catalog.names import Names
from webhook.cluster.decoding import decoded
from webhook.facts import kinds, rights
from webhook.facts.kind import WHOLE, Kind, Reach
from webhook.facts.rights import GrantedRight
from webhook.facts.snapshot import Facts, gathered, joined
from webhook.policy.model import Policy
from webhook.scan.reduced import reduced

each_kind = pytest.mark.parametrize("kind", kinds.walk(), ids=lambda kind: kind.name)
each_example = pytest.mark.parametrize("item", examples().values(), ids=lambda item: item["kind"])

SAMPLE = policy_of(POLICY)
BY_RBAC = replace(SAMPLE, grants=(replace(SAMPLE.grants[0], rbac=True), *SAMPLE.grants[1:]))


def said(facts: Facts) -> dict[str, Any]:
    """What facts say, as values that compare."""
    found = {each.name: getattr(facts, each.name) for each in fields(facts)}
    found["only_nodes"] = None  # how a snapshot was made
    found["installations"] = [vars_of(each) for each in facts.installations]
    found["rights"] = [*map(rights.kept, facts.rights.objects)] if isinstance(facts.rights, GrantedRight) else None
    return found


def vars_of(value: object) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}  # type: ignore[attr-defined]


NOTHING = said(Facts())


@each_kind
def test_each_resource_of_a_kind_has_an_example_that_says_something(kind: Kind) -> None:
    assert [*examples(kind.name)] == [resource.of for resource in kind.resources]
    for resource, item in zip(kind.resources, examples(kind.name).values(), strict=True):
        assert item["apiVersion"] == resource.api_version
        assert ("namespace" in item["metadata"]) == resource.namespaced
        assert said(Facts.of([item])) != NOTHING


def test_each_example_is_of_a_kind() -> None:
    assert {file.stem for file in EXAMPLES.iterdir()} == {kind.name for kind in kinds.walk()}


@each_example
def test_what_is_kept_of_an_object_says_the_same(item: Object) -> None:
    whole = json.loads(json.dumps(item))
    annotations = {**whole["metadata"].get("annotations", {}), "a": "b"}
    whole["metadata"] |= {"uid": "u", "resourceVersion": "1", "annotations": annotations}
    whole["status"] = {**whole.get("status", {}), "conditions": []}
    part = kinds.kept(whole)
    assert part is not None
    assert said(Facts.of([part])) == said(Facts.of([whole])) == said(Facts.of([item]))
    assert kinds.kept(part) == part
    assert not {"uid", "resourceVersion"} & part["metadata"].keys()
    assert "a" not in part["metadata"].get("annotations", {})


@each_example
def test_the_fields_of_a_kind_say_the_same(item: Object) -> None:
    """The rest of an object, which a tenant may make large, is not even decoded."""
    fields = kinds.fields(kinds.RESOURCES[group_kind(item)])
    all_read = ("apiVersion", "kind", "metadata.name", "metadata.namespace", *fields) if fields else fields
    for data in (item, {**item, "spec": {**item.get("spec", {}), "more": [{}] * 9}, "status": item.get("status")}):
        read = decoded(json.dumps(data).encode(), all_read)
        assert said(Facts.of([read])) == said(Facts.of([data]))
        assert not fields or "more" not in read.get("spec", {})


@each_kind
def test_what_tenants_write_is_not_read_whole(kind: Kind) -> None:
    for resource in kind.resources:
        if kind.reach is Reach.EVERYWHERE and resource.namespaced:
            assert kinds.fields(resource) != WHOLE


@each_example
def test_what_a_file_in_git_has_of_an_object_says_the_same(item: Object) -> None:
    part = kinds.slim(item, BY_RBAC)
    assert part is not None
    assert said(Facts.of([part])) == said(Facts.of([item]))
    assert kinds.slim(part, BY_RBAC) == part
    assert "TimeSlicing" not in json.dumps(part), "the configuration of a driver"


JUNK: tuple[Any, ...] = (None, True, 7, 1e400, "", "\ud800", [], [0], [[]], {}, {"a": 0}, {"key": [0], "name": {}})


def spoilt(value: Any) -> Iterator[Any]:
    """A value with each of its parts, and itself, replaced by each piece of junk; and with junk beside its items."""
    yield from JUNK
    if isinstance(value, dict):
        for key, part in value.items():
            yield from ({**value, key: each} for each in spoilt(part))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from ([*value[:index], each, *value[index + 1 :]] for each in spoilt(part))
        odd = ({**part, key: each} for part in value if isinstance(part, dict) for key in part for each in JUNK)
        for each in (*JUNK, *odd):
            yield [*value, each]


@each_example
def test_an_object_of_any_shape_is_read_kept_and_slimmed_without_an_error(item: Object) -> None:
    for each in spoilt({key: part for key, part in item.items() if key not in ("apiVersion", "kind")}):
        if isinstance(each, dict):
            odd = {"apiVersion": item["apiVersion"], "kind": item["kind"], **each}
            kinds.read(odd)
            kinds.kept(odd)
            kinds.slim(odd, BY_RBAC)


def test_a_file_in_git_has_every_kind() -> None:
    assert {*map(group_kind, reduced(examples().values(), BY_RBAC))} == examples().keys()


def test_facts_of_watched_objects_join() -> None:
    """A watch gathers what each object of a resource says, and joins it with what the others say."""
    items = [item for of, item in examples().items() if kinds.KINDS[of].reach in (Reach.WITHIN, Reach.EVERYWHERE)]
    parts = [gathered(fact for fact in [kinds.read(item)] if fact) for item in items]
    assert said(joined(parts)) == said(Facts.of(items))


@each_kind
def test_the_need_of_a_kind_is_in_words_for_the_manifests(kind: Kind) -> None:
    if kind.needed is not kinds.always:
        assert kind.reach is not Reach.FILES
        assert (kind.needed.__doc__ or "").startswith("For ")
        assert isinstance(kind.needed(SAMPLE), bool)


def test_what_a_policy_needs() -> None:
    by_pool = replace(SAMPLE, pools=(replace(SAMPLE.pools[0], device_classes=Names(("gpu.nvidia.com",))),))
    devices = {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"}
    by_rights = {*rights.ROLES, *rights.BINDINGS}

    def needed(policy: Policy) -> set[str]:
        return {each.kind for each in kinds.needed(policy, *Reach)} & (devices | by_rights)

    assert needed(SAMPLE) == devices - {"ResourceSlice"}, "every policy asks for which devices a claim is"
    assert needed(by_pool) == devices
    assert needed(BY_RBAC) == devices - {"ResourceSlice"} | by_rights
