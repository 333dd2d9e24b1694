"""Every field of a pod has been looked at: a new one in a newer Kubernetes fails here until it was."""

import copy
import json
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.pod_fields import POD_SPEC, RECORDED, Fields, fields_of
from webhook.api.pods import CONTAINER_LISTS, Container
from webhook.rules import walk

RULES = {rule.id for rule in walk()}
SPEC = POD_SPEC.removeprefix("io.k8s.")
FIELDS: Fields = json.loads(RECORDED.read_text("utf-8"))
REVIEWED: dict[str, Any] = yaml.safe_load((ROOT / "tests/openapi/reviewed.yaml").read_text("utf-8"))


def unreviewed(fields: Fields) -> set[tuple[str, str]]:
    """Fields that nobody has looked at."""
    known = {(name, field) for name, of in REVIEWED.items() for field in (*of.get("way", ()), *of.get("harmless", ()))}
    return {(name, field) for name, of in fields.items() for field in of} - known


def container_lists(fields: Fields) -> set[str]:
    """The lists of a pod whose items have an image, or ask for resources."""
    lists = {field: kind.removeprefix("list of io.k8s.") for field, kind in fields[SPEC].items()}
    return {field for field, kind in lists.items() if {"image", "resources"} & fields.get(kind, {}).keys()} - {
        "volumes"
    }


def test_every_field_was_reviewed() -> None:
    assert not unreviewed(FIELDS)


def test_every_reviewed_field_exists() -> None:
    reviewed = {(name, field) for name, of in REVIEWED.items() for each in of.values() for field in each}
    assert not {(name, field) for name, field in reviewed if field not in FIELDS[name]}


def test_no_field_is_both_a_door_and_harmless() -> None:
    assert not [name for name, of in REVIEWED.items() if set(of.get("way", ())) & set(of.get("harmless", ()))]


def test_every_list_of_containers_is_judged() -> None:
    assert container_lists(FIELDS) == set(CONTAINER_LISTS)
    everything = {field for field, rules in REVIEWED[SPEC]["way"].items() if rules == ["*"]}
    assert everything == set(CONTAINER_LISTS)


def test_every_door_has_its_rules() -> None:
    named = {rule for of in REVIEWED.values() for rules in of.get("way", {}).values() for rule in rules} - {"*"}
    assert named <= RULES


def test_every_path_in_a_container_is_one_of_its_places() -> None:
    """A field that names a path in a container is read wherever mounts are; a new one fails here."""
    container = FIELDS["api.core.v1.Container"]
    lists = {field: kind.removeprefix("list of io.k8s.") for field, kind in container.items() if "list of" in kind}
    made = dict.fromkeys(_paths(container), "/etc/own") | {
        field: [dict.fromkeys(paths, "/etc/own")]
        for field, kind in lists.items()
        if (paths := _paths(FIELDS.get(kind, {})))
    }
    assert set(made) == {"terminationMessagePath", "volumeDevices", "volumeMounts"}
    places = [*Container({"name": "c", **made}, ("spec", "containers", 0), "containers").places]
    assert sorted(str(path[3]) for path, place in places if place == "/etc/own") == sorted(made)


def _paths(fields: dict[str, str]) -> list[str]:
    """The fields that name a path in a container: subPath names one in the volume."""
    named = {field for field, kind in fields.items() if kind == "string" and field.endswith("Path")}
    return sorted(named - {"subPath"})


@pytest.mark.parametrize(
    ("name", "field", "kind"),
    [
        (SPEC, "standbyContainers", "list of io.k8s.api.core.v1.Container"),
        ("api.core.v1.Container", "devices", "list of string"),
        ("api.core.v1.Volume", "hostDevice", "io.k8s.api.core.v1.HostPathVolumeSource"),
    ],
)
def test_a_new_field_is_noticed(name: str, field: str, kind: str) -> None:
    newer = copy.deepcopy(FIELDS)
    newer[name][field] = kind
    assert unreviewed(newer) == {(name, field)}
    assert (field in container_lists(newer)) is (name == SPEC)


def test_every_schema_that_a_document_refers_to_is_listed() -> None:
    reference = {"$ref": "#/components/schemas/io.k8s.api.core.v1.Inner"}
    schemas = {
        POD_SPEC: {"properties": {"a": {"type": "array", "items": {"allOf": [reference]}}, "b": {"type": "string"}}},
        "io.k8s.api.core.v1.Inner": {"properties": {"again": {"additionalProperties": reference}}},
        "io.k8s.api.core.v1.Elsewhere": {"properties": {"c": {}}},
    }
    assert fields_of({"components": {"schemas": schemas}}) == {
        "api.core.v1.Inner": {"again": "map of io.k8s.api.core.v1.Inner"},
        "api.core.v1.PodSpec": {"a": "list of io.k8s.api.core.v1.Inner", "b": "string"},
    }
