"""Makes the CustomResourceDefinition of policies from their JSON Schema.

A structural schema has no `$ref`, `const`, `uniqueItems`, `propertyNames`, `if` and no `additionalProperties: false`
beside properties (apiextensions-apiserver pkg/apiserver/schema/structural.go). References are inlined. Other keywords
become those that an API server has, or rules in CEL with an error message. Defaults are left out: an API server would
write them into the object, whose digest would no longer be that of its file. Neither a schema nor CEL detects other
errors, such as overlapping pools. The webhook for policies and the controller report them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from webhook.policy.bounds import KEYS
from webhook.policy.model import API_VERSION
from webhook.policy.schemas import GROUP, KIND

PLURAL, SINGULAR, SHORT = "gpusharingpolicies", "gpusharingpolicy", "gsp"
NAME = f"{PLURAL}.{GROUP}"
VERSION = API_VERSION.rpartition("/")[2]

CONDITIONS = ("Ready", "Reconciling", "Stalled")
"""The types of the conditions in a status: those of kstatus."""

Schema = dict[str, Any]
Check = dict[str, str]

_KEPT = (
    *("description", "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "minProperties"),
    *("maxProperties", "pattern"),
)
"""Keywords that mean the same in both."""

_QUANTITY: Schema = {
    "x-kubernetes-int-or-string": True,
    "minimum": 2**20,
    "maxLength": 32,
    "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i|[kMGTPE]|[eE][0-9]+)?$",
}
"""A quantity of memory. In bytes it is at least 1Mi, as everywhere in a policy."""


def definition(schema: Schema) -> Schema:
    """Make the CustomResourceDefinition. `schema` is that of policies, with the rules and frameworks they may name."""
    spec = _Maker(schema).at("spec", schema["properties"]["spec"])
    spec["properties"]["mode"]["description"] = _MODE
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": _whole(spec)},
        "additionalPrinterColumns": [*_columns()],
    }
    names = {
        "plural": PLURAL,
        "singular": SINGULAR,
        "kind": KIND[1],
        "listKind": f"{KIND[1]}List",
        "shortNames": [SHORT],
        "categories": ["gpu"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "slicewarden"}},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


_MODE = (
    "Audit records what the policy would do, and lets everything through unchanged; Enforce acts on it; Off (in "
    "quotes) asks about nothing. Audit when left out."
)


def _whole(spec: Schema) -> Schema:
    about = "The rules of an organisation for shared GPUs. The oldest policy of a cluster is in force; others wait."
    properties = {"spec": spec, "status": _status()}
    return {"description": about, "type": "object", "required": ["spec"], "properties": properties}


def _status() -> Schema:
    def text(description: str) -> Schema:
        return {"description": description, "type": "string"}

    def number(description: str) -> Schema:
        return {"description": description, "type": "integer", "format": "int64"}

    def texts(description: str) -> Schema:
        return {"description": description, "type": "array", "items": {"type": "string"}}

    condition = {
        "type": "object",
        "required": ["type", "status", "reason", "message", "lastTransitionTime"],
        "properties": {
            "type": {"type": "string"},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string"},
            "message": {"type": "string"},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    }
    properties = {
        "observedGeneration": number("The generation of the spec that the rest speaks of."),
        "conditions": {
            "description": f"{', '.join(CONDITIONS)}, as kstatus reads them.",
            "type": "array",
            "items": condition,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "digest": text("The hash of the policy: of its name, and of its spec without the mode."),
        "mode": text("The mode that the controller goes by."),
        "phase": text("Where a change is: what it does next, or waits for."),
        "replicas": text("How many replicas hold the policy, and of how many."),
        "problems": texts("Why the policy cannot be used: path, reason and way out of each."),
        "lints": number("How many likely mistakes it has."),
        "lintMessages": texts("Some of these, one line each."),
        "wouldDeny": number("How many objects of the cluster a policy that waits would newly deny."),
        "wouldDenySample": texts("Some of these, one line each."),
    }
    return {"description": "Written by the controller.", "type": "object", "properties": properties}


def _columns() -> Iterator[Schema]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    columns = (
        ("Mode", "string", ".status.mode"),
        ("Ready", "string", f"{ready}.status"),
        ("Reason", "string", f"{ready}.reason"),
        ("Digest", "string", ".status.digest"),
        ("Replicas", "string", ".status.replicas"),
        ("Would-Deny", "integer", ".status.wouldDeny"),
        ("Lints", "integer", ".status.lints"),
        ("Age", "date", ".metadata.creationTimestamp"),
    )
    for name, kind, path in columns:
        yield {"name": name, "type": kind, "jsonPath": path, "priority": int(name == "Lints")}


class _Maker:
    """Makes structural schemas from the parts of one JSON Schema."""

    def __init__(self, root: Schema) -> None:
        self._parts: Schema = root["$defs"]

    def at(self, at: str, node: Schema) -> Schema:
        """Return the structural form of a node; `at` is its path, such as `spec.pools[].nodes`."""
        if node.get("$ref") == "#/$defs/quantity":
            return {"description": node.get("description", self._parts["quantity"]["description"]), **_QUANTITY}
        node = self._whole(node)
        out: Schema = {key: node[key] for key in _KEPT if key in node}
        if at == "spec.guard":  # a file may use text or a map; a structural schema allows only one
            node = {**node["then"], "type": "object"}
        if "const" in node or "enum" in node:
            out["enum"] = [*node.get("enum", (node.get("const"),))]
        out["type"] = node.get("type") or ("boolean" if out["enum"] == [True] else "string")
        if at.endswith(".until"):
            out["format"] = "date"
        if out["type"] == "array":
            out["items"] = self.at(f"{at}[]", node["items"])
            out |= {"x-kubernetes-list-type": "set"} if node.get("uniqueItems") else {}
            out |= _BY_NAME if at in _MAPS else {}
        rules = list(_choices(node))
        if "properties" in node:
            out["properties"] = {key: self.at(f"{at}.{key}", each) for key, each in node["properties"].items()}
            out |= {"required": [*node["required"]]} if "required" in node else {}
        elif out["type"] == "object":
            out["additionalProperties"] = self.at(f"{at}{{}}", node["additionalProperties"])
            out.setdefault("maxProperties", KEYS)
            rules += _keys(self._whole(node.get("propertyNames", {})))
        rules += _RULES.get(at, ())
        if at.endswith(("amespaceSelector", ".nodes")):
            rules.append(_NOT_EMPTY)
        if at.endswith(".matchExpressions[]"):
            rules.append(_VALUES)
        return {**out, "x-kubernetes-validations": rules} if rules else out

    def _whole(self, node: Schema) -> Schema:
        """Inline a reference. Keywords next to it take precedence."""
        if "$ref" not in node:
            return node
        rest = {key: value for key, value in node.items() if key != "$ref"}
        return {**self._whole(self._parts[node["$ref"].removeprefix("#/$defs/")]), **rest}


def _check(rule: str, message: str) -> Check:
    return {"rule": rule, "message": message}


def _choices(node: Schema) -> Iterator[Check]:
    """Yield a rule for each `anyOf`. All of them require one of some keys."""
    for part in (node, *node.get("allOf", ())):
        if keys := [key for option in part.get("anyOf", ()) for key in option["required"]]:
            yield _check(" || ".join(f"has(self.{key})" for key in keys), f"one of {', '.join(keys)} is needed")


def _keys(names: Schema) -> Iterator[Check]:
    """Yield a rule for the keys of a map."""
    if "enum" in names:
        known = json.dumps(names["enum"])
        yield _check(f"self.all(key, key in {known})", "names an unknown rule; `slicewarden rules` lists all")
    elif "pattern" in names:
        yield _check(f"self.all(key, key.matches({json.dumps(names['pattern'])}))", f"a key must be {names['title']}")
    elif names:
        yield _check("self.all(key, key.size() > 0)", f"a key must be {names['title']}")


_MAPS = frozenset({"spec.pools"})
"""The lists whose items have names of their own: apply merges them by name."""

_BY_NAME: Schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}

_NOT_EMPTY = _check(
    "(has(self.matchLabels) && self.matchLabels.size() > 0)"
    " || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
    "is empty, and would match everything; name labels",
)
_VALUES = _check(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && self.values.size() > 0"
    " : !has(self.values) || self.values.size() == 0",
    "In and NotIn need values; Exists and DoesNotExist take none",
)

_KNOWN_POOLS = (
    "!has(self.{0}) || [self.pools.map(pool, pool.name)].all(names, "
    "self.{0}.all(entry, !has(entry.pools) || entry.pools.all(pool, pool in names)))"
)
"""Every pool that the entries of a list name must exist.

The names are listed only once, to stay within the cost budget.
"""

_RULES: Mapping[str, tuple[Check, ...]] = {
    "spec": (
        *(
            _check(_KNOWN_POOLS.format(key), f"{key} names a pool that is not in pools; correct the name")
            for key in ("overrides", "priorities")
        ),
        _check(
            f"!has(self.trust) || {_KNOWN_POOLS.format('trust.grants')}",
            "a grant names a pool that is not in pools; correct the name",
        ),
    ),
    "spec.guard": (_check("!(has(self.taint) && has(self.everyPod))", "has a taint and everyPod; keep one of them"),),
    "spec.pools[]": (
        _check(
            "has(self.deviceClasses) || (has(self.nodes) && has(self.resources))",
            "nodes and resources are needed, or deviceClasses",
        ),
        _check(
            "!has(self.resources) || has(self.nodes)",
            "nodes is missing: pods that ask for resources are restricted to them by labels",
        ),
        _check("!has(self.maxMemory) || has(self.deviceClasses)", "maxMemory is for claims; add deviceClasses"),
        _check(
            "!(self.sharing in ['time-slicing', 'mps']) || !has(self.maxRequest) || self.maxRequest == 1",
            "maxRequest must be 1 where GPUs are shared",
        ),
        _check(
            "!has(self.memoryLimit) || self.memoryLimit != 'Driver' || self.sharing == 'time-slicing'",
            "memoryLimit: Driver is only for time-sliced GPUs; remove it from this pool",
        ),
        _check(
            "!has(self.imageLimits) || (has(self.memoryLimit) && self.memoryLimit == 'Driver')",
            "imageLimits is for memoryLimit: Driver; set that, or remove it from this pool",
        ),
        _check(
            "!has(self.node) || self.sharing in ['time-slicing', 'mps']"
            " || !(has(self.node.over) || has(self.node.idle) || has(self.node.dead))",
            "node.over, node.idle and node.dead are for GPUs that pods share; remove them from this pool",
        ),
        _check(
            "!has(self.node) || !has(self.node.contention) || self.sharing == 'time-slicing'",
            "node.contention is only for time-sliced GPUs; remove it from this pool",
        ),
        _check(
            "!has(self.resources) || !has(self.assume) || has(self.assume.replicas)"
            " || !(self.sharing in ['time-slicing', 'mps'])",
            "assume needs replicas: the slices of a card that pods request as a resource",
        ),
    ),
    "spec.pools[].queue": (
        _check(
            "[has(self.kueue), has(self.label), has(self.annotation)].filter(each, each).size() <= 1",
            "names a queue in two ways; keep one of kueue, label and annotation",
        ),
    ),
    "spec.pools[].tolerations[]": (
        _check(
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "operator Exists takes no value",
        ),
        _check(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds needs effect: NoExecute",
        ),
    ),
    "spec.exemptions[]": (
        _check(
            "!has(self.system) || (has(self.namespaces) && has(self.serviceAccounts))",
            "system needs namespaces and serviceAccounts",
        ),
    ),
}
"""Rules that a structural schema cannot express. For files, `if` and `webhook.policy.consistency` check the same."""
