"""Reads and checks GPUSharingPolicy files."""

import hashlib
import json
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from itertools import islice
from typing import Any, cast

from webhook.api import quantity
from webhook.api.fields import group_kind
from webhook.api.selectors import Requirement, Selector, contradiction
from webhook.catalog import doors
from webhook.catalog.doors import Names
from webhook.catalog.workloads import WORKLOADS, Template, Workload, pod_specs, table
from webhook.documents.documents import Document
from webhook.model import Action, Object, Path, Problem, Unusable, dotted
from webhook.policy import fast_schema
from webhook.policy.model import (
    API_VERSION,
    CONTEXT_MIB,
    CONTROLLERS,
    EVERY_RULE,
    SCHEDULER,
    SHARED,
    AllowedPath,
    Card,
    Exemption,
    Forms,
    Grant,
    Guard,
    Limits,
    Override,
    Policy,
    Pool,
    PythonPath,
    Release,
    Requesters,
    ResourceNames,
    Scope,
    TorchVersion,
    release,
)
from webhook.text.spelling import Guesses, hint
from webhook.text.words import line, shown

GROUP = "slicewarden.dev"
KIND = (GROUP, "GPUSharingPolicy")
TEST = (GROUP, "PolicyTest")

SCHEMAS = {KIND[1]: "policy.schema.json", TEST[1]: "policy-test.schema.json"}
"""The kinds of files that users write, each with its schema's file in this package."""


def schema(rules: Iterable[str], kind: str = KIND[1], *, frameworks: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON Schema of a policy, or of another kind of file, with the rules and frameworks that it may name.

    Without `frameworks` it may name any framework.
    """
    value: dict[str, Any] = json.loads(pkgutil.get_data("webhook.policy", SCHEMAS[kind]) or b"")
    value["$defs"]["rule"]["enum"] = sorted(rules)
    if kind == KIND[1]:
        value["$defs"]["actions"]["propertyNames"]["enum"] = [EVERY_RULE, *value["$defs"]["rule"]["enum"]]
        if names := list(frameworks):
            value["$defs"]["memory"]["properties"]["frameworks"]["items"] = {"enum": names}
    return value


def load(documents: Iterable[Document], rules: Iterable[str], where: str, *, frameworks: Iterable[str] = ()) -> Policy:
    """Read the one policy among the documents. Other kinds are ignored, but not a misspelt kind of ours.

    Raises Unusable with every error, each with its file and line.
    """
    return load_with_document(documents, rules, where, frameworks=frameworks)[0]


def load_with_document(
    documents: Iterable[Document], rules: Iterable[str], where: str, *, frameworks: Iterable[str] = ()
) -> tuple[Policy, Document]:
    """Read the one policy among the documents as `load` does, and return its document too.

    `rules` may map each rule to the release that brought it; without it no rule is newer than the policy's `rulesAsOf`.
    """
    releases = rules if isinstance(rules, Mapping) else {}
    documents = list(documents)
    if misspelt := misspellings(documents):
        raise Unusable(misspelt)
    policies = [d for d in documents if isinstance(d.value, dict) and group_kind(d.value) == KIND]
    if not policies:
        raise Unusable((Problem(where, 0, f"no {KIND[1]} of {API_VERSION} in it"),))
    if len(policies) > 1:
        raise Unusable(tuple(Problem(d.file, d.line(), "a second policy: exactly one is used") for d in policies[1:]))
    document = policies[0]
    wanted = schema(rules, frameworks=frameworks)
    fits = fast_schema.fits(document.value, wanted)
    wrong = [] if fits else problems(document, schema_errors(document.value, wanted))
    if wrong := wrong or problems(document, _meaning_errors(document.value["spec"])):
        raise Unusable(wrong)
    return _policy(document.value, releases), document


def misspellings(documents: Iterable[Document]) -> list[Problem]:
    """Find documents with a kind that is nearly ours. They would have no effect, and their author would not notice."""
    misspelt, guesses = [], Guesses()
    for document in documents:
        if not isinstance(document.value, dict):
            continue
        group, kind = group_kind(document.value)
        if group == GROUP and (group, kind) not in (KIND, TEST):
            known = (KIND[1], TEST[1])
            path, text = "kind", f"unknown kind {shown(kind)}{hint(kind, known, guesses)}"
        elif group != GROUP and kind in (KIND[1], TEST[1]):
            path, text = "apiVersion", f"must be {shown(API_VERSION)}, found {shown(document.value.get('apiVersion'))}"
        else:
            continue
        misspelt.append(Problem(document.file, document.line((path,)), f"{path}: {text}"))
    return misspelt


MOST = 100
"""The number of errors that are named for a file.

A file with more is likely no policy at all, and every hint takes time.
"""


def problems(document: Document, errors: Iterable[tuple[Path, str]]) -> list[Problem]:
    """Return the errors with their places in the file, sorted by line. The search ends after MOST errors."""
    errors = iter(errors)
    named = [
        Problem(document.file, document.line(path), f"{dotted(path)}: {text}") for path, text in islice(errors, MOST)
    ]
    more = [Problem(document.file, 0, f"more is wrong than these {MOST}: correct them first")] if any(errors) else []
    return sorted(named, key=lambda problem: problem.line) + more


def schema_errors(value: Any, wanted_schema: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the reason, in plain words, of everything in a value that a JSON Schema does not allow."""
    import jsonschema  # imported here: it takes longer than the rest of a check

    own = {"uniqueItems": _unique}  # the library's own compares every pair of items
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, own)  # type: ignore[no-untyped-call]
    for error in validator(wanted_schema).iter_errors(value):
        path: Path = tuple(error.absolute_path)
        value, wanted = cast("Any", error.instance), cast("Any", error.validator_value)
        if error.validator == "additionalProperties":
            known = sorted(error.schema.get("properties", {}))
            for key in sorted(set(value) - set(known)):
                yield (*path, key), f"unknown key{hint(key, known)}"
        elif "propertyNames" in error.absolute_schema_path:
            known = error.validator == "enum"
            yield (*path, value), f"unknown rule{hint(value, wanted)}" if known else f"must be {_title(error)}"
        elif error.validator == "pattern":
            yield path, f"must be {_title(error)}, found {shown(value)}"
        else:
            yield path, _reason(str(error.validator), wanted, value) or line(error.message)


def _title(error: Any) -> str:
    return str(error.schema["title"])


def _reason(keyword: str, wanted: Any, value: Any) -> str:
    """Say in plain words what a keyword of JSON Schema demands; empty if the library's message is plain enough."""
    match keyword:
        case "type":
            wanted = (wanted,) if isinstance(wanted, str) else wanted
            text = f"must be {' or '.join(_WORDS[kind] for kind in wanted)}, found {shown(value)}"
            return f"{text}{_unquoted(value)}" if wanted == ("string",) else text
        case "enum" if len(wanted) > 10:
            return f"unknown {shown(value)}{hint(str(value), wanted)}"
        case "enum":
            return f"must be one of {', '.join(map(str, wanted))}, found {shown(value)}"
        case "const":
            return f"must be {shown(wanted)}, found {shown(value)}"
        case "required":
            return f"{', '.join(key for key in wanted if key not in value)} is missing"
        case "anyOf":
            return f"one of {', '.join(key for option in wanted for key in option.get('required', ()))} is needed"
        case "oneOf":
            return f"must have exactly one of {', '.join(key for option in wanted for key in option['required'])}"
        case "minItems" | "minProperties" | "minLength":
            return "must not be empty"
        case "uniqueItems":
            return f"names {shown(next(_repeated(value)))} twice"
        case "maxItems":
            return f"must not have more than {wanted} items, found {len(value)}"
    return ""


_WORDS = {
    "object": "a map",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "null": "null",
}
"""The words of YAML's users for the types of JSON Schema."""


def _unquoted(value: Any) -> str:
    """Say how to keep YAML from reading text as another type."""
    if isinstance(value, bool):
        return "; put it in quotes: without them YAML takes yes, no, on, off, y and n for true or false"
    return "; put it in quotes" if isinstance(value, (int, float)) else ""


def _unique(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[Any]:
    from jsonschema import ValidationError

    if wanted and isinstance(value, list) and any(True for _ in _repeated(value)):
        yield ValidationError("names something twice")


def _repeated(values: Iterable[Any]) -> Iterator[Any]:
    """Yield every item that the list already had."""
    seen: set[str] = set()
    for value in values:
        text = json.dumps(value, sort_keys=True)
        if text in seen:
            yield value
        seen.add(text)


def _meaning_errors(spec: Object) -> Iterator[tuple[Path, str]]:
    """Find errors that a schema cannot express: quantities, names that occur twice, pools that overlap."""
    pools = spec["pools"]
    for path, value in _quantities(spec):
        try:
            if _mib(value) <= 0:
                yield path, f"must be at least 1Mi, found {shown(value)}, a quantity in bytes"
        except ValueError:
            yield path, f"must be a quantity of memory such as 512Mi, found {shown(value)}"
    for path, scope in _scopes(spec):
        if "namespaceSelector" in scope and not _selector(scope["namespaceSelector"]).requirements:
            yield (*path, "namespaceSelector"), "is empty, and would cover every namespace; name labels"
    names = [pool["name"] for pool in pools]
    for path, scope in _scopes(spec):
        for place, name in enumerate(scope.get("pools", ())):
            if name not in names:
                yield (*path, "pools", place), f"unknown pool{hint(name, names)}"
    for index, exemption in enumerate(spec.get("exemptions", ())):
        try:
            date.fromisoformat(exemption.get("until", "2000-01-01"))
        except ValueError:
            yield ("spec", "exemptions", index, "until"), f"is no day of the calendar: {shown(exemption['until'])}"
    yield from _untolerated(spec)
    for path, name in _pools_named(spec):
        if name not in names:
            yield path, f"no pool named {shown(name)}"
    selectors = [_selector(pool["nodes"]) for pool in pools]
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


def _untolerated(spec: Object) -> Iterator[tuple[Path, str]]:
    taint = _guard(spec["guard"]).taint if "guard" in spec else None
    for index, pool in enumerate(spec["pools"] if taint else ()):
        if not any(toleration["key"] == taint for toleration in pool.get("tolerations", ())):
            yield (
                ("spec", "pools", index),
                f"pool {shown(pool['name'])} does not tolerate {taint}, the taint of the guard, so its nodes would "
                "take no pod; give it the toleration",
            )


def _scopes(spec: Object) -> Iterator[tuple[Path, Object]]:
    for index, grant in enumerate(spec.get("trust", {}).get("grants", ())):
        yield ("spec", "trust", "grants", index), grant
    for index, pool in enumerate(spec["pools"]):
        if "circle" in pool:
            yield ("spec", "pools", index, "circle"), pool["circle"]
    for index, claims in enumerate(spec.get("gpus", {}).get("claims", ())):
        yield ("spec", "gpus", "claims", index), claims
    for key in ("overrides", "exemptions"):
        for index, entry in enumerate(spec.get(key, ())):
            yield ("spec", key, index), entry


def _quantities(spec: Object) -> Iterator[tuple[Path, object]]:
    for setting in ("context", "reserve"):
        for product, value in spec.get("memory", {}).get(setting, {}).items():
            yield ("spec", "memory", setting, product), value
    if "minSliceMemory" in spec.get("sharing", {}):
        yield ("spec", "sharing", "minSliceMemory"), spec["sharing"]["minSliceMemory"]
    for index, pool in enumerate(spec["pools"]):
        if "assume" in pool:
            yield ("spec", "pools", index, "assume", "memory"), pool["assume"]["memory"]


def _pools_named(spec: Object) -> Iterator[tuple[Path, str]]:
    memory = spec.get("memory", {})
    lists = (
        (("torch", "versions"), memory.get("torch", {}).get("versions", ())),
        (("pythonPath",), memory.get("pythonPath", ())),
    )
    for keys, entries in lists:
        for index, entry in enumerate(entries):
            for place, name in enumerate(entry.get("pools", ())):
                yield ("spec", "memory", *keys, index, "pools", place), name


def _mib(value: object) -> int:
    return int(quantity.parse(value) // 2**20)


def _policy(value: Object, releases: Mapping[str, Release]) -> Policy:
    """Make the policy. Keys that the file leaves out take the defaults of the model."""
    spec = value["spec"]
    trust, memory, sharing = (spec.get(key, {}) for key in ("trust", "memory", "sharing"))
    schedulers, controllers, labellers = (spec.get(key, {}) for key in ("schedulers", "controllers", "nodeLabellers"))
    given = {
        "annotation": trust.get("annotation"),
        "default_trust": trust.get("default"),
        "frameworks": tuple(memory["frameworks"]) if "frameworks" in memory else None,
        "limits": _limits(sharing),
        "administrators": _requesters(spec["administrators"]) if "administrators" in spec else None,
        "self_registration": labellers.get("selfRegistration"),
        "guard": _guard(spec["guard"]) if "guard" in spec else None,
        "unified": tuple(memory["unified"]) if "unified" in memory else None,
        "capped_sharing": frozenset(memory["sharing"]) if "sharing" in memory else None,
        "defeats": Action(memory["defeats"]) if "defeats" in memory else None,
        "support": _support(spec["support"]) if "support" in spec else None,
    }
    context, reserve = (
        {product: _mib(amount) for product, amount in memory.get(setting, {}).items()}
        for setting in ("context", "reserve")
    )
    torch = memory.get("torch", {})
    return Policy(
        name=value["metadata"]["name"],
        digest=hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16],
        pools=tuple(map(_pool, spec["pools"])),
        grants=tuple(map(_grant, trust.get("grants", ()))),
        schedulers=_requesters(schedulers, SCHEDULER),
        controllers=_requesters(controllers, *CONTROLLERS),
        node_labellers=_requesters(labellers),
        context_mib={**CONTEXT_MIB, **context},
        reserve_mib=reserve,
        append_arguments=memory.get("arguments") == "Append",
        torch_versions=tuple(map(_torch_version, torch.get("versions", ()))),
        shim=memory.get("shim") == "Inject",
        python_paths=tuple(map(_python_path, memory.get("pythonPath", ()))),
        older_settings={key: str(words) for key, words in torch.get("older", {}).items()},
        config_maps=frozenset((place["namespace"], place["name"]) for place in sharing.get("configMaps", ())),
        actions=_actions(spec),
        newer=_newer(spec, releases),
        workloads={**WORKLOADS, **table(tuple(map(_workload, spec.get("workloads", ()))))},
        overrides=tuple(map(_override, spec.get("overrides", ()))),
        exemptions=tuple(map(_exemption, spec.get("exemptions", ()))),
        forms=_forms(spec.get("gpus", {})),
        **{key: each for key, each in given.items() if each is not None},
    )


def _support(value: Object) -> str:
    """Return the text and the URL for help in one line. A text of several lines is joined."""
    text = " ".join(value["text"].split())
    return line(f"{text.rstrip('.,:;')}, {value['url']}" if "url" in value else text)


def _forms(value: Object) -> Forms:
    names = {
        "annotations": value.get("annotations"),
        "labels": value.get("labels"),
        "runtime_classes": value.get("runtimeClasses"),
    }
    given: dict[str, Any] = {key: Names(each) for key, each in names.items() if each is not None}
    if "resources" in value:
        given["resources"] = tuple(value["resources"])
    if "deviceClasses" in value or "otherDeviceClasses" in value:
        known = () if "deviceClasses" in value else doors.OTHER_CLASSES.patterns
        given["device_classes"] = Names(
            value.get("deviceClasses", ("*",)), other_than=(*known, *value.get("otherDeviceClasses", ()))
        )
    given["classes_named"] = "deviceClasses" in value
    given["imex_channels"] = value.get("imexChannels", False)
    given["other_devices"] = tuple(value.get("otherDevices", ()))
    given["host_paths"] = tuple(
        AllowedPath(doors.normal(each["path"]), each.get("writable", False)) for each in value.get("hostPaths", ())
    )
    return Forms(claims=tuple(map(_scope, value.get("claims", ()))), **given)


def _guard(value: Any) -> Guard:
    return Guard(value["taint"]["key"] if isinstance(value, dict) else None)


def _limits(value: Object) -> Limits:
    given: dict[str, Any] = {
        "namespaces": tuple(value["namespaces"]) if "namespaces" in value else None,
        "max_replicas": value.get("maxReplicas"),
        "products": value.get("maxReplicasByProduct"),
        "min_slice": _mib(value["minSliceMemory"]) if "minSliceMemory" in value else None,
        "rename_by_default": value.get("renameByDefault"),
        "mps": value.get("mps"),
    }
    return Limits(**{key: each for key, each in given.items() if each is not None})


def _scope(value: Object) -> Scope:
    selector = value.get("namespaceSelector")
    return Scope(
        namespaces=frozenset(value.get("namespaces", ())),
        selector=_selector(selector) if selector else None,
        service_accounts=frozenset(value.get("serviceAccounts", ())),
    )


def _grant(value: Object) -> Grant:
    requesters = _requesters(value) if value.keys() & {"users", "groups"} else None
    return Grant(_scope(value), frozenset(value.get("pools", ())), requesters)


def _actions(value: Object) -> dict[str, Action]:
    return {rule: Action(action) for rule, action in value.get("rules", {}).items()}


def _newer(value: Object, releases: Mapping[str, Release]) -> dict[str, Release]:
    if "rulesAsOf" not in value:
        return {}
    known = release(value["rulesAsOf"])
    return {rule: since for rule, since in releases.items() if since > known}


def _workload(value: Object) -> Workload:
    templates = (
        *map(Template, value.get("templates", ())),
        *pod_specs(*value.get("podSpecs", ()), annotations="/metadata"),
    )
    return Workload(value["group"], value["kind"], value["resource"], templates)


def _override(value: Object) -> Override:
    scope = _scope(value) if value.keys() & {"namespaces", "namespaceSelector"} else None
    return Override(scope, frozenset(value.get("pools", ())), _actions(value))


def _exemption(value: Object) -> Exemption:
    until = date.fromisoformat(value["until"]) if "until" in value else None
    return Exemption(value["name"], _scope(value), frozenset(value.get("rules", ())), until)


def _requesters(value: Object, *users: str) -> Requesters:
    """Read requesters, and add the users that always belong to them."""
    return Requesters(frozenset((*users, *value.get("users", ()))), frozenset(value.get("groups", ())))


def _torch_version(value: Object) -> TorchVersion:
    major, minor, *_ = value["version"].split(".")
    return TorchVersion(
        (int(major), int(minor)), frozenset(value.get("namespaces", ())), frozenset(value.get("pools", ()))
    )


def _python_path(value: Object) -> PythonPath:
    return PythonPath(
        value["path"],
        frozenset(value.get("namespaces", ())),
        frozenset(value.get("pools", ())),
        tuple(value.get("images", ())),
    )


def _pool(value: Object) -> Pool:
    assume = value.get("assume")
    shared = value["sharing"] in SHARED
    return Pool(
        name=value["name"],
        sharing=value["sharing"],
        trust=frozenset(value["trust"]),
        nodes=_selector(value["nodes"]),
        resources=ResourceNames(value["resources"], shares=shared),
        tolerations=tuple(value.get("tolerations", ())),
        max_request=1 if shared else value.get("maxRequest"),
        max_replicas=value.get("maxReplicas"),
        assume=assume and Card(assume.get("product", ""), _mib(assume["memory"]), assume["replicas"]),
        circle=_scope(value["circle"]) if "circle" in value else None,
    )


def _selector(value: Object) -> Selector:
    return Selector(
        labels=dict(value.get("matchLabels") or {}),
        expressions=tuple(
            Requirement(requirement["key"], requirement["operator"], frozenset(requirement.get("values") or ()))
            for requirement in value.get("matchExpressions") or ()
        ),
    )
