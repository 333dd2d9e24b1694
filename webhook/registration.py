"""The webhook configurations by which an API server knows what to ask, made from the policy and the rules' own tables.

What the conditions (CEL) leave out never reaches the webhook, and does not depend on it. They may let more through
than is judged, and never less.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from webhook import doors
from webhook.policy import Policy
from webhook.targets import CONTAINER_LISTS
from webhook.workloads import BUILT_IN, EACH_ITEM, EACH_VALUE, Template, Workload, keys

NAMESPACE = "slicewarden-system"
"""Where the webhook itself runs."""

API_VERSION = "admissionregistration.k8s.io/v1"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One webhook of a configuration: which resources (by group) it is asked about, and under which condition.

    `required` tells whether a request fails while it cannot be asked; `versions` are those of the resources that have
    the shapes that are read.
    """

    name: str
    resources: Mapping[str, tuple[str, ...]]
    operations: tuple[str, ...]
    condition: tuple[str, str]
    required: bool = True
    half: str = "validate"
    versions: tuple[str, ...] = ("v1",)


def configurations(policy: Policy) -> tuple[Object, Object]:
    """Write the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration; neither has a caBundle yet."""
    excluded = ["kube-system", NAMESPACE, *_system_namespaces(policy)]
    mutating, validating = _configuration("Mutating"), _configuration("Validating")
    mutating["webhooks"] = [
        {**_webhook(entry, excluded), "reinvocationPolicy": "IfNeeded"} for entry in _mutating(policy)
    ]
    validating["webhooks"] = [_webhook(entry, excluded) for entry in _validating(policy)]
    return mutating, validating


def _configuration(half: str) -> Object:
    return {"apiVersion": API_VERSION, "kind": f"{half}WebhookConfiguration", "metadata": {"name": "slicewarden"}}


def _webhook(entry: Entry, excluded: Iterable[str]) -> Object:
    service = {"namespace": NAMESPACE, "name": "slicewarden", "path": f"/{entry.half}", "port": 443}
    name, expression = entry.condition
    return {
        "name": f"{entry.name}.slicewarden.dev",
        "clientConfig": {"service": service},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail" if entry.required else "Ignore",
        "timeoutSeconds": {"mutate": 3, "validate": 5}[entry.half],
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*excluded]},
            ]
        },
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [*entry.versions],
                "resources": [*resources],
                "operations": [*entry.operations],
            }
            for group, resources in entry.resources.items()
        ],
        "matchConditions": [{"name": name, "expression": expression}],
    }


def _system_namespaces(policy: Policy) -> list[str]:
    """Namespaces whose pods no rule holds for, and which have to come up without the webhook."""
    return sorted(
        namespace
        for exemption in policy.exemptions
        if exemption.until is None and not exemption.rules
        for namespace in exemption.scope.namespaces
    )


BOTH = ("CREATE", "UPDATE")


def _mutating(policy: Policy) -> Iterator[Entry]:
    condition = ("concerns-gpus", _concerned(["[object]"], policy))
    yield Entry("mutate", {"": ("pods",)}, ("CREATE",), condition, False, "mutate")
    yield Entry("mutate-debug", {"": ("pods/ephemeralcontainers",)}, ("UPDATE",), condition, False, "mutate")


def _validating(policy: Policy) -> Iterator[Entry]:
    pods = {"": ("pods", "pods/ephemeralcontainers", "pods/resize")}
    yield Entry("pods", pods, BOTH, ("concerns-gpus", _concerned(["[object]"], policy)))
    yield _workloads("workloads", BUILT_IN.values(), policy)
    # Their pods are judged in any case, so that a webhook that is away stops no operator.
    others = [each for key, each in policy.workloads.items() if key not in BUILT_IN]
    for group, kinds in groupby(sorted(others, key=_group), key=_group):
        yield replace(_workloads(group.replace(".", "-"), [*kinds], policy), required=False, versions=("*",))


def _group(workload: Workload) -> str:
    return workload.group


def _workloads(name: str, kinds: Collection[Workload], policy: Policy) -> Entry:
    """Ask about kinds together: where one has no template, another may, and nothing is lost by looking."""
    resources: dict[str, tuple[str, ...]] = {}
    for each in kinds:
        resources[each.group] = (*resources.get(each.group, ()), each.resource)
    templates = [template for each in kinds for template in each.templates]
    pods = dict.fromkeys(place for template in templates if not _deep(template) for place in _pods(template))
    expression = _concerned(pods, policy)
    deep = sorted({each.resource for each in kinds if any(map(_deep, each.templates))})
    if deep:  # lists of lists are not to be had; such kinds are always asked about
        expression = f"request.resource.resource in [{', '.join(map(_text, deep))}] || {expression}"
    return Entry(name, resources, BOTH, ("concerns-gpus", expression))


def _deep(template: Template) -> bool:
    return sum(key in (EACH_ITEM, EACH_VALUE) for key in keys(template.at)) > 1


# Expressions in CEL. They read what tenants wrote, so every step of the way is optional.


def _concerned(pods: Iterable[str], policy: Policy) -> str:
    """Ask whether any of these lists of pods has one that a rule could speak of."""
    lists, clauses = "\n  + ".join(pods), "\n  || ".join(_clauses(policy))
    return f"({lists}).exists(pod,\n  {clauses})\n"


def _clauses(policy: Policy) -> Iterator[str]:
    """Whatever brings a pod here, one expression each; `pod` is the pod or a template."""
    if policy.guard is not None and policy.guard.taint is None:
        yield "true"
        return
    yield f"{_text(policy.annotation)} in pod.?metadata.?annotations.orValue({{}})"
    keys = (*policy.forms.annotations, *doors.PLACEMENT_ANNOTATIONS)
    named = " || ".join((*_matching("key", keys), *_domains("key")))
    yield f"pod.?metadata.?annotations.orValue({{}}).exists(key, {named})"
    lists = " + ".join(f"pod.?spec.?{name}.orValue([])" for name in CONTAINER_LISTS)
    asks = " || ".join(_matching("name", policy.gpu_resources.patterns))
    quantities = "\n    || ".join(
        f"c.?resources.?{part}.orValue({{}}).exists(name, {asks})" for part in ("limits", "requests")
    )
    variables = f"e.?name.orValue('') in [{', '.join(map(_text, doors.DEVICE_VARIABLES))}]"
    mounts = " || ".join(f"m.?mountPath.orValue('').contains({_text(place)})" for place in _last(doors.MOUNT_PATHS))
    places = [
        f"c.?env.orValue([]).exists(e, {variables})",
        f"c.?volumeMounts.orValue([]).exists(m, {mounts})",
        f"c.?volumeDevices.orValue([]).exists(m, {mounts.replace('mountPath', 'devicePath')})",
        "c.?resources.?claims.orValue([]).size() > 0",
        *(_privileges("c") if policy.guard is None else ()),
    ]
    inside = "\n    || ".join((quantities, *places))
    yield f"({lists} + pod.?containers.orValue([])).exists(c,\n    {inside})"
    runtimes = " || ".join(_matching("name", policy.forms.runtime_classes))
    if runtimes:
        yield f"[pod.?spec.?runtimeClassName.orValue('')].exists(name, {runtimes})"
    yield "pod.?spec.?resourceClaims.orValue([]).size() > 0"
    # A pod that runs has its node, and every update of it would come here.
    yield "(pod.?spec.?nodeName.orValue('') != '' && (request.operation == 'CREATE' || request.kind.kind != 'Pod'))"
    taints = ["", *([policy.guard.taint] if policy.guard and policy.guard.taint else [])]
    yield f"pod.?spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') in [{', '.join(map(_text, taints))}])"
    if policy.guard is None:  # with one, what is kept off GPUs may do what it likes
        yield "pod.?spec.?hostPID.orValue(false) || pod.?spec.?hostIPC.orValue(false)"
        yield "pod.?spec.?volumes.orValue([]).exists(v, v.?hostPath.hasValue())"
        yield "pod.?spec.?securityContext.?windowsOptions.?hostProcess.orValue(false)"


def _privileges(container: str) -> Iterator[str]:
    security = f"{container}.?securityContext"
    yield f"{security}.?privileged.orValue(false)"
    yield f"{security}.?windowsOptions.?hostProcess.orValue(false)"
    yield f"{security}.?capabilities.?add.orValue([]).size() > 0"


def _domains(key: str) -> Iterator[str]:
    """Compare an annotation's key with those by which runtimes add devices; more is let through than is meant."""
    for domain in doors.DEVICE_ANNOTATIONS:
        yield (
            f"{key}.contains({_text(domain[1:])})" if domain.startswith("*.") else f"{key}.startsWith({_text(domain)})"
        )


def _last(paths: Iterable[str]) -> Iterator[str]:
    return (path.rpartition("/")[2] for path in paths)


def _matching(variable: str, patterns: Iterable[str]) -> Iterator[str]:
    """Compare a variable with names, of which one that ends in `*` stands for all that begin so."""
    patterns = [*dict.fromkeys(patterns)]
    beginnings = tuple(each[:-1] for each in patterns if each.endswith("*"))
    yield from (f"{variable}.startsWith({_text(each)})" for each in beginnings)
    exact = [each for each in patterns if not each.endswith("*") and not each.startswith(beginnings)]
    if exact:
        yield f"{variable} in [{', '.join(map(_text, exact))}]"


def _pods(template: Template) -> Iterator[str]:
    """Lists of what a template's place leads to: maps with a pod's `metadata` and `spec`, and more `containers`."""
    for part, places in (("metadata", template.metadata), ("spec", (template.defaults or "",))):
        for place in places:
            if place.startswith("/"):
                yield f"[dyn({{'{part}': {_at('object', keys(place))}}})]"
    at = keys(template.at)
    depth = next((index for index, key in enumerate(at) if key in (EACH_ITEM, EACH_VALUE)), None)
    if depth is None:
        yield f"[dyn({_as_pod(_at('object', at), template)})]"
    elif at[depth] == EACH_ITEM:
        each = _as_pod(_at("i", at[depth + 1 :]), template)
        yield f"{_at('object', at[:depth], '[]')}.map(i, dyn({each}))"
    else:
        values = _at("object", at[:depth])
        each = _as_pod(_at(f"{values}[k]", at[depth + 1 :]), template)
        yield f"{values}.map(k, dyn({each}))"


def _as_pod(value: str, template: Template) -> str:
    if template == Template(template.at):
        return value
    parts = {"spec": _at(value, keys(template.spec))}
    for place in template.metadata:
        if not place.startswith("/"):
            parts["metadata"] = _at(value, keys(place))
    if template.containers:
        places = [keys(place) for place in template.containers]
        alone = ", ".join(_at(value, place) for place in places if place[-1] != EACH_ITEM)
        lists = [_at(value, place[:-1], "[]") for place in places if place[-1] == EACH_ITEM]
        joined = " + ".join((f"[{alone}]", *lists))
        parts["containers"] = f"dyn({joined})"
    return "{" + ", ".join(f"'{part}': {each}" for part, each in parts.items()) + "}"


def _at(value: str, at: Iterable[str], default: str = "{}") -> str:
    """Read what stands at a place, or the default where the way there ends."""
    steps = "".join(f".?{key}" if key.isidentifier() else f"[?{_text(key)}]" for key in at)
    return f"{value}{steps}.orValue({default})" if steps else value


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
