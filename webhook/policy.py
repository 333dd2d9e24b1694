"""The policy: what an organisation allows, read from GPUSharingPolicy files."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import resources
from typing import Any, cast

import jsonschema

from webhook import quantity
from webhook.documents import Document
from webhook.facts import group_kind
from webhook.model import Action, Object, Path, Problem, Unusable, dotted, shown
from webhook.selectors import Selector, contradiction

API_VERSION = "slicewarden.dev/v1alpha1"
KIND = ("slicewarden.dev", "GPUSharingPolicy")

TRUSTED = "trusted"
UNTRUSTED = "untrusted"

FRAMEWORKS = ("pytorch", "tensorflow", "jax")

_CONTEXT_MIB = {
    "Tesla-T4": 512,
    "NVIDIA-A10": 640,
    "NVIDIA-GeForce-RTX-4090": 640,
    "NVIDIA-A100": 768,
    "NVIDIA-H100": 896,
    "NVIDIA-H200": 896,
    "default": 768,
}
"""MiB one process takes beside its allocator, by the start of the product: generous, for want of a primary source."""


@dataclass(frozen=True, eq=False)
class Grant:
    """Which pods may be trusted: those of the named or selected namespaces, of these accounts if any are named."""

    namespaces: frozenset[str]
    selector: Selector | None
    service_accounts: frozenset[str]

    def covers(self, namespace: str, labels: Mapping[str, str] | None, service_account: str) -> bool:
        """Tell whether the grant covers an account of a namespace; `labels` is None when nothing is known."""
        if self.service_accounts and service_account not in self.service_accounts:
            return False
        if namespace in self.namespaces:
            return True
        return self.selector is not None and labels is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU as a pool hands it out: whole memory in MiB, and into how many slices it is shared."""

    product: str
    memory: int
    replicas: int


class ResourceNames:
    """Names of extended resources; one that ends in `*` stands for all that begin so.

    Only with `shares` does it stand for renamed shares too: `nvidia.com/mig-1g.10gb.shared` is a slice of a MIG
    device, which a pool of whole ones does not offer.
    """

    def __init__(self, patterns: Iterable[str], *, shares: bool) -> None:
        self.patterns = tuple(patterns)
        self._names = frozenset(p for p in self.patterns if not p.endswith("*"))
        self._prefixes = tuple(p[:-1] for p in self.patterns if p.endswith("*"))
        self._shares = shares

    def __contains__(self, resource: str) -> bool:
        if resource in self._names:
            return True
        return resource.startswith(self._prefixes) and (self._shares or not resource.endswith(".shared"))


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes whose GPUs are handed out one way."""

    name: str
    sharing: str
    trust: frozenset[str]
    nodes: Selector
    resources: ResourceNames
    tolerations: tuple[Object, ...] = ()
    max_request: int | None = None
    assume: Card | None = None

    @property
    def shared(self) -> bool:
        """True where several pods share one card without a wall between them."""
        return self.sharing in ("time-slicing", "mps")


@dataclass(frozen=True, eq=False)
class Policy:
    """A GPUSharingPolicy that has been checked."""

    name: str
    pools: tuple[Pool, ...]
    annotation: str = "slicewarden.dev/trust"
    default_trust: str = UNTRUSTED
    grants: tuple[Grant, ...] = ()
    frameworks: tuple[str, ...] = FRAMEWORKS
    context_mib: Mapping[str, int] = field(default_factory=lambda: _CONTEXT_MIB)
    config_maps: frozenset[tuple[str, str]] = frozenset()
    max_replicas: int = 8
    actions: Mapping[str, Action] = field(default_factory=dict)

    def action(self, rule: str) -> Action:
        """What is done about the findings of a rule."""
        return self.actions.get(rule, Action.DENY)

    @cached_property
    def gpu_resources(self) -> ResourceNames:
        """The extended resources that are GPUs or parts of them: NVIDIA's own, and what the pools offer."""
        offered = (name for pool in self.pools for name in pool.resources.patterns)
        return ResourceNames((*NVIDIA_RESOURCES, *offered), shares=True)


NVIDIA_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*")
"""What NVIDIA's device plugin advertises by default, renamed, and per MIG profile (its internal/rm/rm.go)."""


def schema(rules: Iterable[str]) -> dict[str, Any]:
    """The JSON Schema of a policy, with the ids of the rules that it may name."""
    text = resources.files("webhook").joinpath("policy.schema.json").read_text("utf-8")
    value: dict[str, Any] = json.loads(text)
    value["properties"]["spec"]["properties"]["rules"]["propertyNames"] = {"enum": sorted(rules)}
    return value


def load(documents: Iterable[Document], rules: Iterable[str], where: str) -> Policy:
    """Read the one policy among the documents; other kinds are passed over.

    Raises Unusable with every error found, each with its file and line.
    """
    found = [d for d in documents if isinstance(d.value, dict) and group_kind(d.value) == KIND]
    if not found:
        raise Unusable((Problem(where, 1, f"no {KIND[1]} of {API_VERSION} in it"),))
    if len(found) > 1:
        raise Unusable(tuple(Problem(d.file, d.line(), "a second policy: exactly one is used") for d in found[1:]))
    document = found[0]
    errors = list(_schema_errors(document.value, schema(rules))) or list(_meaning_errors(document.value["spec"]))
    if errors:
        problems = [Problem(document.file, document.line(path), f"{dotted(path)}: {text}") for path, text in errors]
        raise Unusable(sorted(problems, key=lambda problem: problem.line))
    return _policy(document.value)


def _schema_errors(value: Any, policy_schema: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    for error in jsonschema.Draft202012Validator(policy_schema).iter_errors(value):
        path: Path = tuple(error.absolute_path)
        found, wanted = cast("Any", error.instance), cast("Any", error.validator_value)
        if error.validator == "additionalProperties":
            known = sorted(error.schema.get("properties", {}))
            for key in sorted(set(found) - set(known)):
                yield (*path, key), f"unknown key{_did_you_mean(key, known)}"
        elif error.validator == "enum" and "propertyNames" in error.absolute_schema_path:
            yield (*path, found), f"unknown rule{_did_you_mean(found, wanted)}"
        else:
            yield path, _reason(str(error.validator), wanted, found) or " ".join(error.message.split())


def _reason(keyword: str, wanted: Any, found: Any) -> str:
    """Say in plain words what a keyword of JSON Schema asks for; nothing for one that speaks well for itself."""
    match keyword:
        case "type":
            words = wanted if isinstance(wanted, str) else " or ".join(wanted)
            return f"must be of type {words}, found {shown(found)}"
        case "enum":
            return f"must be one of {', '.join(map(str, wanted))}, found {shown(found)}"
        case "const":
            return f"must be {shown(wanted)}, found {shown(found)}"
        case "required":
            return f"{', '.join(key for key in wanted if key not in found)} is missing"
        case "anyOf":
            return f"one of {', '.join(key for option in wanted for key in option.get('required', ()))} is needed"
        case "minItems" | "minProperties" | "minLength":
            return "must not be empty"
    return ""


def _did_you_mean(key: str, known: Iterable[str]) -> str:
    known = list(known)
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _meaning_errors(spec: Object) -> Iterator[tuple[Path, str]]:
    """What a schema cannot say: quantities, names that stand twice, pools that overlap."""
    pools = spec["pools"]
    for path, value in _quantities(spec):
        try:
            if _mib(value) <= 0:
                yield path, f"must be more than zero, found {shown(value)}"
        except ValueError:
            yield path, f"must be a quantity of memory such as 512Mi, found {shown(value)}"
    for index, grant in enumerate(spec.get("trust", {}).get("grants", ())):
        if "namespaceSelector" in grant and not Selector.read(grant["namespaceSelector"]).requirements:
            yield (
                ("spec", "trust", "grants", index, "namespaceSelector"),
                "is empty, and would cover every namespace; name labels",
            )
    selectors = [Selector.read(pool["nodes"]) for pool in pools]
    for index, pool in enumerate(pools):
        at, name = ("spec", "pools", index), shown(pool["name"])
        if not selectors[index].requirements:
            yield (*at, "nodes"), "is empty, and would match every node; name labels"
        if key := contradiction(selectors[index].requirements):
            yield (*at, "nodes"), f"no node can match: {key} contradicts itself"
            continue
        for before, other in enumerate(pools[:index]):
            if pool["name"] == other["name"]:
                yield (*at, "name"), f"a second pool named {name}"
            if contradiction(selectors[before].requirements + selectors[index].requirements) is None:
                yield (
                    (*at, "nodes"),
                    f"pool {name} overlaps pool {shown(other['name'])}: a node could match both; give them "
                    "different values of one label, or exclude one's label from the other with NotIn",
                )


def _quantities(spec: Object) -> Iterator[tuple[Path, object]]:
    for product, value in spec.get("memory", {}).get("context", {}).items():
        yield ("spec", "memory", "context", product), value
    for index, pool in enumerate(spec["pools"]):
        if "assume" in pool:
            yield ("spec", "pools", index, "assume", "memory"), pool["assume"]["memory"]


def _mib(value: object) -> int:
    return int(quantity.parse(value) // 2**20)


def _policy(value: Object) -> Policy:
    spec = value["spec"]
    trust, memory, sharing = (spec.get(key, {}) for key in ("trust", "memory", "sharing"))
    context = {product: _mib(each) for product, each in memory.get("context", {}).items()}
    return Policy(
        name=value["metadata"]["name"],
        pools=tuple(map(_pool, spec["pools"])),
        annotation=trust.get("annotation", "slicewarden.dev/trust"),
        default_trust=trust.get("default", UNTRUSTED),
        grants=tuple(map(_grant, trust.get("grants", ()))),
        frameworks=tuple(memory.get("frameworks", FRAMEWORKS)),
        context_mib={**_CONTEXT_MIB, **context},
        config_maps=frozenset((each["namespace"], each["name"]) for each in sharing.get("configMaps", ())),
        max_replicas=sharing.get("maxReplicas", 8),
        actions={rule: Action(action) for rule, action in spec.get("rules", {}).items()},
    )


def _grant(value: Object) -> Grant:
    selector = value.get("namespaceSelector")
    return Grant(
        namespaces=frozenset(value.get("namespaces", ())),
        selector=Selector.read(selector) if selector else None,
        service_accounts=frozenset(value.get("serviceAccounts", ())),
    )


def _pool(value: Object) -> Pool:
    assume = value.get("assume")
    shared = value["sharing"] in ("time-slicing", "mps")
    return Pool(
        name=value["name"],
        sharing=value["sharing"],
        trust=frozenset(value["trust"]),
        nodes=Selector.read(value["nodes"]),
        resources=ResourceNames(value["resources"], shares=shared),
        tolerations=tuple(value.get("tolerations", ())),
        max_request=1 if shared else value.get("maxRequest"),
        assume=assume and Card(assume.get("product", ""), _mib(assume["memory"]), assume["replicas"]),
    )
