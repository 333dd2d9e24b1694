"""Reads the fields of a pod's specification from the OpenAPI document of a Kubernetes API server."""

import json
import sys
from typing import Any

from tests import ROOT

POD_SPEC = "io.k8s.api.core.v1.PodSpec"
RECORDED = ROOT / "tests/openapi/pod-spec.json"

Fields = dict[str, dict[str, str]]
"""The fields, with their types, of each type that a PodSpec refers to."""


def fields_of(document: dict[str, Any]) -> Fields:
    """Walk an OpenAPI v3 document of core/v1 from PodSpec on."""
    schemas = document["components"]["schemas"]
    found: Fields = {}
    waiting = [POD_SPEC]
    while waiting:
        name = waiting.pop()
        if name in found or name not in schemas:
            continue
        found[name] = {field: _type(value) for field, value in schemas[name].get("properties", {}).items()}
        waiting += [each.removeprefix("list of ").removeprefix("map of ") for each in found[name].values()]
    return {name.removeprefix("io.k8s."): dict(sorted(of.items())) for name, of in sorted(found.items()) if of}


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    if "allOf" in value:
        return _type(value["allOf"][0])
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}"
    if "additionalProperties" in value:
        return f"map of {_type(value['additionalProperties'])}"
    return str(value.get("type", "any"))


def main() -> None:
    """Record the fields out of a document: `python -m tests.support.pod_fields < api__v1_openapi.json`."""
    RECORDED.write_text(json.dumps(fields_of(json.load(sys.stdin)), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
