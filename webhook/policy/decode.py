"""Makes a policy from the value of a file that fits its schema."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from webhook.api import quantity
from webhook.api.selectors import NOTHING, Requirement, Selector
from webhook.catalog import gpu_requests, host_paths
from webhook.catalog.names import Names
from webhook.catalog.places import Template, Workload, pod_specs, table
from webhook.catalog.workloads import WORKLOADS
from webhook.model import Action, Object
from webhook.policy.actions import Exemption, Override, Release, release
from webhook.policy.model import (
    CONTEXT_MIB,
    KUEUE_LABEL,
    SHARED,
    TAINT,
    AllowedPath,
    Card,
    Contention,
    Forms,
    Guard,
    Idle,
    Over,
    Policy,
    Pool,
    PriorityScope,
    PythonPath,
    Queue,
    SharingLimits,
    Switch,
    TorchVersion,
)
from webhook.policy.resources import ResourceNames
from webhook.policy.scopes import CONTROLLERS, SCHEDULER, Grant, Requesters, Scope
from webhook.text.words import line


def mib(value: object) -> int:
    """Return a quantity of memory in MiB, rounded down. Raises ValueError."""
    return int(quantity.parse(value) // 2**20)


def decode(value: Object, releases: Mapping[str, Release]) -> Policy:
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
        "guard": guard(spec["guard"]) if "guard" in spec else None,
        "mode": Switch(spec["mode"]) if "mode" in spec else None,
        "unified": tuple(memory["unified"]) if "unified" in memory else None,
        "capped_sharing": frozenset(memory["sharing"]) if "sharing" in memory else None,
        "defeats": Action(memory["defeats"]) if "defeats" in memory else None,
        "untrusted_preempt": False if "preempt" in spec.get("untrusted", {}) else None,
        "support": _support(spec["support"]) if "support" in spec else None,
    }
    context, reserve = (
        {product: mib(amount) for product, amount in memory.get(setting, {}).items()}
        for setting in ("context", "reserve")
    )
    torch = memory.get("torch", {})
    return Policy(
        name=value["metadata"]["name"],
        written=written(value),
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
        leave_alone=tuple(spec.get("leaveAlone", ())),
        priorities=tuple(map(_priority, spec.get("priorities", ()))),
        forms=_forms(spec.get("gpus", {})),
        **{key: each for key, each in given.items() if each is not None},
    )


def written(value: Object) -> str:
    """Return the content of a policy as JSON with sorted keys: its name, and its spec without the mode.

    The content leaves out labels, the mode, and fields that an API server adds. So a file and the cluster's object that
    was made from it have the same content.
    """
    spec = {key: each for key, each in value["spec"].items() if key != "mode"}
    kept = {key: value[key] for key in ("apiVersion", "kind")}
    return json.dumps({**kept, "metadata": {"name": value["metadata"]["name"]}, "spec": spec}, sort_keys=True)


def _support(value: Object) -> str:
    """Return the text and the URL for help in one line. A text of several lines is joined."""
    text = " ".join(value["text"].split())
    return line(f"{text.rstrip('.,:;')}, {value['url']}" if "url" in value else text)


def _forms(value: Object) -> Forms:
    names = {
        "annotations": value.get("annotations"),
        "labels": value.get("labels"),
        "runtime_classes": value.get("runtimeClasses"),
        "sandboxes": value.get("sandboxes"),
    }
    given: dict[str, Any] = {key: Names(each) for key, each in names.items() if each is not None}
    if "resources" in value:
        given["resources"] = tuple(value["resources"])
    if "deviceClasses" in value or "otherDeviceClasses" in value:
        known = () if "deviceClasses" in value else gpu_requests.OTHER_CLASSES.patterns
        given["device_classes"] = Names(
            value.get("deviceClasses", ("*",)), other_than=(*known, *value.get("otherDeviceClasses", ()))
        )
    given["classes_named"] = "deviceClasses" in value
    given["imex_channels"] = value.get("imexChannels", False)
    given["other_devices"] = tuple(value.get("otherDevices", ()))
    given["host_paths"] = tuple(
        AllowedPath(path, each.get("writable", False))
        for each in value.get("hostPaths", ())
        for path in host_paths.spellings(host_paths.normal(each["path"]))
    )
    given["volume_drivers"] = tuple(value.get("volumeDrivers", ()))
    return Forms(claims=tuple(map(_scope, value.get("claims", ()))), **given)


def guard(value: Any) -> Guard:
    """Read the guard: a map with a taint or with `everyPod`, or the text `every-pod`, which means `everyPod`."""
    return Guard(value["taint"]["key"] if isinstance(value, dict) and "taint" in value else None)


def _limits(value: Object) -> SharingLimits:
    given: dict[str, Any] = {
        "namespaces": tuple(value["namespaces"]) if "namespaces" in value else None,
        "max_replicas": value.get("maxReplicas"),
        "products": value.get("maxReplicasByProduct"),
        "min_slice": mib(value["minSliceMemory"]) if "minSliceMemory" in value else None,
        "rename_by_default": value.get("renameByDefault"),
        "mps": value.get("mps"),
    }
    return SharingLimits(**{key: each for key, each in given.items() if each is not None})


def _scope(value: Object) -> Scope:
    labels = value.get("namespaceSelector")
    return Scope(
        namespaces=frozenset(value.get("namespaces", ())),
        selector=selector(labels) if labels else None,
        service_accounts=frozenset(value.get("serviceAccounts", ())),
    )


def _grant(value: Object) -> Grant:
    requesters = _requesters(value) if value.keys() & {"users", "groups"} else None
    scope, rbac = _scope(value), value.get("rbac", False)
    if rbac and not value.keys() & {"namespaces", "namespaceSelector"}:
        scope = replace(scope, everywhere=True)
    return Grant(scope, frozenset(value.get("pools", ())), requesters, rbac)


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


DRIVER = "Driver"
"""The value of `memoryLimit` for a pool whose driver limits each pod to its slice."""

CORRECT = "Correct"
"""The value of `imageLimits` for a pool in which only the agent acts on the limit of an image."""

IMAGE_LIMITS = {CORRECT: None, "Warn": Action.WARN, "Deny": Action.DENY}


def _queue(value: Object) -> Queue:
    names = Names(value["names"]) if "names" in value else None
    if value.get("kueue"):
        return Queue(KUEUE_LABEL, kueue=True, names=names)
    return Queue(value.get("label") or value["annotation"], label="label" in value, names=names)


def _priority(value: Object) -> PriorityScope:
    scope = _scope(value) if value.keys() & {"namespaces", "namespaceSelector"} else None
    return PriorityScope(
        Names(value["classes"]), frozenset(value.get("trust", ())), scope, frozenset(value.get("pools", ()))
    )


def _pool(value: Object) -> Pool:
    assume = value.get("assume")
    shared, classes = value["sharing"] in SHARED, value.get("deviceClasses", ())
    resources = (*value.get("resources", ()), *(f"{gpu_requests.IMPLICIT}{name}" for name in classes))
    return Pool(
        name=value["name"],
        sharing=value["sharing"],
        trust=frozenset(value["trust"]),
        nodes=selector(value["nodes"]) if "nodes" in value else NOTHING,
        resources=ResourceNames(resources, shares=shared),
        tolerations=tuple(value.get("tolerations", ())),
        max_request=1 if shared else value.get("maxRequest"),
        max_replicas=value.get("maxReplicas"),
        assume=assume and Card(assume.get("product", ""), mib(assume["memory"]), assume.get("replicas", 1)),
        tenants=_scope(value["tenants"]) if "tenants" in value else None,
        driver_limits=value.get("memoryLimit") == DRIVER,
        image_limits=IMAGE_LIMITS[value.get("imageLimits", CORRECT)],
        device_classes=Names(classes),
        max_memory=mib(value["maxMemory"]) if "maxMemory" in value else None,
        queue=_queue(value["queue"]) if "queue" in value else None,
        scheduler=value.get("scheduler"),
        host_ipc=value.get("hostIPC", False),
        max_active_deadline=value.get("maxActiveDeadlineSeconds"),
        over=_over(value.get("node", {}).get("over", {})),
        idle=_idle(value["node"]["idle"]) if "idle" in value.get("node", {}) else None,
        taint_dead=value.get("node", {}).get("dead", {}).get("action") == TAINT,
        contention=_contention(value.get("node", {}).get("contention", {})),
    )


def _over(value: Object) -> Over:
    usual = Over()
    return Over(
        value.get("action", usual.action),
        value.get("graceSeconds", usual.grace),
        mib(value["slack"]) if "slack" in value else usual.slack,
        value.get("pressurePercent", usual.pressure),
    )


def _idle(value: Object) -> Idle:
    usual = Idle(value["afterMinutes"] * 60)
    notice = value["noticeMinutes"] * 60 if "noticeMinutes" in value else usual.notice
    return usual._replace(action=value.get("action", usual.action), notice=notice)


def _contention(value: Object) -> Contention:
    usual = Contention()
    return Contention(
        value.get("mode", usual.mode),
        value.get("who", usual.who),
        value.get("order", usual.order),
        value.get("turnSeconds", usual.turn),
        value.get("longestSeconds", usual.longest),
        value.get("restSeconds", usual.rest),
        value["settleMilliseconds"] / 1000 if "settleMilliseconds" in value else usual.settle,
        value.get("patienceSeconds", usual.patience),
        value.get("fullPercent", usual.full),
        value.get("busyPercent", usual.busy),
    )


def selector(value: Object) -> Selector:
    """Read a label selector.

    The order of `matchLabels` is dropped, because it means nothing and API servers do not keep it.
    """
    return Selector(
        labels=dict(sorted((value.get("matchLabels") or {}).items())),
        expressions=tuple(
            Requirement(requirement["key"], requirement["operator"], frozenset(requirement.get("values") or ()))
            for requirement in value.get("matchExpressions") or ()
        ),
    )
