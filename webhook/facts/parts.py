"""Reads the parts that several kinds share: labels, amounts of resources, and the parts for a file in Git."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from webhook.api import quantity
from webhook.api.lenient import mapping, string

VENDOR = "nvidia.com/"
"""The prefix of the resources of NVIDIA's device plugin, and of the labels of GPU Feature Discovery."""


def labels(item: Mapping[str, Any]) -> Mapping[str, str]:
    """Return those labels of an object whose values are strings."""
    found = mapping(mapping(item.get("metadata")).get("labels"))
    if all(isinstance(value, str) for value in found.values()):
        return found  # shared between the snapshots
    return {key: value for key, value in found.items() if isinstance(value, str)}


def amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    """Return the amounts of NVIDIA's resources that a node reports."""
    return {name: count(amount) for name, amount in resources.items() if name.startswith(VENDOR)}


def count(amount: Any) -> int:
    """Read a quantity as a whole number, rounded up as Kubernetes does; 0 for a value that is no quantity."""
    return ceil(quantity.amount(amount))


# The parts of a file in Git


def extended(amounts: Any) -> dict[str, str]:
    """Return the amounts of extended resources of any vendor, except those in Kubernetes' own domain."""
    return {key: str(amount) for key, amount in mapping(amounts).items() if "/" in key and "kubernetes.io/" not in key}


def home(item: Mapping[str, Any]) -> dict[str, Any]:
    """Keep only the namespace in which the GPU Operator's status says that it runs."""
    said = string(mapping(item.get("status")).get("namespace"))
    return {"status": {"namespace": said}} if said else {}


def variable(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Keep a variable of a container. If its value comes from another object, keep only the fact that it does."""
    if entry.get("valueFrom"):
        return {"name": entry["name"], "valueFrom": {"fieldRef": {}}}
    return filled(entry, "name", "value")


def filled(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the entries of a map with these keys, without the empty ones."""
    return {key: value[key] for key in keys if value.get(key) not in (None, "", False, {}, [])}


def without_config(value: Any) -> Any:
    """Return a spec without the configuration of drivers, which no fact needs."""
    if isinstance(value, dict):
        return {key: without_config(inner) for key, inner in value.items() if key != "config"}
    return value
