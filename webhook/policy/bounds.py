"""Adds bounds to lists, maps and texts without one, so that files and clusters accept the same policies.

An API server estimates the cost of a CustomResourceDefinition's rules by the largest object that its schema allows, and
refuses a definition without bounds. No policy of an organisation comes near these.
"""

from typing import Any

ITEMS, POOLS, KEYS, TEXT = 256, 32, 64, 317
"""Maximum numbers: items of a list, pools that one entry names, keys of a map, and characters of a text."""


def bounded(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of policies, in which each list, map and text of a spec has a bound."""
    properties = {**schema["properties"], "spec": _bounded("spec", schema["properties"]["spec"])}
    return {**schema, "properties": properties, "$defs": _within(schema["$defs"])}


def _within(named: dict[str, Any]) -> dict[str, Any]:
    return {name: _bounded(name, node) for name, node in named.items()}


def _bounded(name: str, node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    out = dict(node)
    if "properties" in node:
        out["properties"] = _within(node["properties"])
    for key in ("then", "else"):
        if isinstance(node.get(key), dict) and "properties" in node[key]:
            out[key] = {**node[key], "properties": _within(node[key]["properties"])}
    kind = node.get("type")
    if kind == "array":
        out["items"] = _bounded("", node["items"])
        out.setdefault("maxItems", POOLS if name == "pools" else ITEMS)
    elif kind == "object" and isinstance(node.get("additionalProperties"), dict):
        out["additionalProperties"] = _bounded("", node["additionalProperties"])
        out.setdefault("maxProperties", KEYS)
    elif kind == "string" and "enum" not in node:
        out.setdefault("maxLength", TEXT)
    return out
