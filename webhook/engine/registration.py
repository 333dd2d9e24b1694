"""The webhook configurations by which an API server knows what to ask, made from the policy and the rules' own tables.

What the conditions (CEL) leave out never reaches the webhook, and does not depend on it. They may let more through
than is judged, and never less.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from webhook.api.pods import CONTAINER_LISTS
from webhook.catalog import doors
from webhook.catalog.workloads import BUILT_IN, EACH_ITEM, EACH_VALUE, Template, Workload, keys
from webhook.facts.snapshot import CONFIG_LABEL
from webhook.memory.budget import CARD_LABELS
from webhook.policy.model import NAME_LABEL, Policy, Requesters

NAMESPACE = "slicewarden-system"
"""Where the webhook itself runs."""

API_VERSION = "admissionregistration.k8s.io/v1"

Made = dict[str, Any]
"""A configuration, or one webhook of it, as an API server takes it."""

Asked = tuple[str, tuple[str, ...], tuple[str, ...]]
"""An API group, resources in it, and the operations that are asked about."""

BOTH = ("CREATE", "UPDATE")


@dataclass(frozen=True, slots=True)
class Entry:
    """One webhook of a configuration: what it is asked about, and under which condition (a name and an expression).

    `required` tells whether a request fails while it cannot be asked. `versions` are those of the resources that have
    the shapes that are read. `excluded` are namespaces where it is not asked, None for what is in no namespace.
    """

    name: str
    rules: tuple[Asked, ...]
    condition: tuple[str, str]
    excluded: tuple[str, ...] | None
    required: bool = True
    half: str = "validate"
    versions: tuple[str, ...] = ("v1",)


def configurations(policy: Policy) -> tuple[Made, Made]:
    """Make the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration; neither has a caBundle yet."""
    return (
        _configuration("Mutating", [{**_webhook(_mutating(policy)), "reinvocationPolicy": "IfNeeded"}]),
        _configuration("Validating", [*map(_webhook, _validating(policy))]),
    )


def bundles(policy: Policy, ca_bundle: str) -> tuple[Made, Made]:
    """Make of the configurations only what an installation adds: the caBundle of every webhook."""
    mutating, validating = configurations(policy)
    for configuration in (mutating, validating):
        configuration["webhooks"] = [
            {"name": each["name"], "clientConfig": {"caBundle": ca_bundle}} for each in configuration["webhooks"]
        ]
    return mutating, validating


def _configuration(half: str, webhooks: list[Made]) -> Made:
    return {
        "apiVersion": API_VERSION,
        "kind": f"{half}WebhookConfiguration",
        "metadata": {"name": "slicewarden"},
        "webhooks": webhooks,
    }


def _webhook(entry: Entry) -> Made:
    name, expression = entry.condition
    value: Made = {
        "name": f"{entry.name}.slicewarden.dev",
        "clientConfig": {
            "service": {"namespace": NAMESPACE, "name": "slicewarden", "path": f"/{entry.half}", "port": 443}
        },
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail" if entry.required else "Ignore",
        "timeoutSeconds": {"mutate": 3, "validate": 5}[entry.half],
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [*entry.versions],
                "resources": [*resources],
                "operations": [*operations],
            }
            for group, resources, operations in entry.rules
        ],
        "matchConditions": [{"name": name, "expression": expression}],
    }
    if entry.excluded is not None:
        elsewhere = {"key": NAME_LABEL, "operator": "NotIn", "values": [*entry.excluded]}
        value["namespaceSelector"] = {"matchExpressions": [elsewhere]}
    return value


ALONE = ("kube-system", NAMESPACE)
"""Namespaces that have to come up without the webhook."""


def left_alone(policy: Policy) -> tuple[str, ...]:
    """Namespaces whose pods nobody is asked about: those, and where the device plugin runs, without which are no GPUs.

    Exemptions of other components are by service account, which a namespace's selector cannot see.
    """
    return (*ALONE, *policy.limits.namespaces)


def _mutating(policy: Policy) -> Entry:
    rules = ("", ("pods",), ("CREATE",)), ("", ("pods/ephemeralcontainers",), ("UPDATE",))
    pods = _concerned(["[object]"], policy)
    return Entry("mutate", rules, ("concerns-gpus", pods), left_alone(policy), required=False, half="mutate")


def _validating(policy: Policy) -> Iterator[Entry]:
    system = left_alone(policy)
    pods = (("", ("pods", "pods/ephemeralcontainers", "pods/resize"), BOTH),)
    yield Entry("pods", pods, ("concerns-gpus", _concerned(["[object]"], policy)), system)
    yield _workloads("workloads", BUILT_IN.values(), policy)
    # Their pods are judged in any case, so that a webhook that is away stops no operator. But where a grant names its
    # requesters, the pods come from a controller, and who asked for them is only seen here.
    heard_here = any(grant.requesters is not None for grant in policy.grants)
    others = [each for key, each in policy.workloads.items() if key not in BUILT_IN]
    for group, kinds in groupby(sorted(others, key=_group), key=_group):
        yield replace(_workloads(group.replace(".", "-"), [*kinds], policy), required=heard_here, versions=("*",))

    if heard_here:
        revisions = (("apps", ("controllerrevisions",), ("CREATE",)),)  # the API server lets none change its data
        yield Entry("revisions", revisions, ("by-no-controller", f"!({_by(policy.controllers)})\n"), system)

    bindings = (("", ("pods/binding", "bindings"), ("CREATE",)),)
    yield Entry("bindings", bindings, ("no-scheduler-or-annotations", _binding(policy)), system)
    statuses = (("", ("pods/status",), ("UPDATE",)),)
    yield Entry("statuses", statuses, ("annotations-or-labels-that-are-judged", _status(policy)), system)

    namespaces = (("", ("namespaces", "namespaces/status", "namespaces/finalize"), BOTH),)
    yield Entry("namespaces", namespaces, ("labels-that-grant", _changes(policy.namespace_keys)), ALONE)
    nodes = (("", ("nodes", "nodes/status"), BOTH),)
    labels = {r.key for pool in policy.pools for r in pool.nodes.requirements} | {*CARD_LABELS, CONFIG_LABEL}
    yield Entry("nodes", nodes, ("labels-of-pools-and-cards", _changes(labels)), None)

    config_maps = (("", ("configmaps",), (*BOTH, "DELETE")),)
    yield Entry("configmaps", config_maps, ("may-share-gpus", _config_map(policy)), ALONE)
    cluster_policies = (("nvidia.com", ("clusterpolicies",), BOTH),)
    yield Entry("clusterpolicies", cluster_policies, ("names-another-configuration", _CLUSTER_POLICY), None)
    devices = (("resource.k8s.io", ("deviceclasses", "resourceclaims", "resourceclaimtemplates"), BOTH),)
    versions = ("v1", "v1beta2", "v1beta1")
    yield Entry("devices", devices, ("may-be-for-gpus", _devices(policy)), ALONE, versions=versions)


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
        expression = f"request.resource.resource in {_list(deep)} || {expression}"
    rules = tuple((group, plurals, BOTH) for group, plurals in resources.items())
    return Entry(name, rules, ("concerns-gpus", expression), left_alone(policy))


def _deep(template: Template) -> bool:
    return sum(key in (EACH_ITEM, EACH_VALUE) for key in keys(template.at)) > 1


# Expressions in CEL. They read what tenants wrote, so every step of the way is optional.


def _concerned(pods: Iterable[str], policy: Policy) -> str:
    """Ask whether any of these lists of pods has one that a rule could speak of."""
    if policy.guard is not None and policy.guard.taint is None:
        return "true"
    lists, clauses = "\n  + ".join(pods), "\n  || ".join(_clauses(policy))
    return f"({lists}).exists(pod,\n  {clauses})\n"


def _clauses(policy: Policy) -> Iterator[str]:
    """Whatever brings a pod here, one expression each; `pod` is the pod or a template."""
    annotations = " || ".join(_judged_annotation(policy))
    yield f"pod.?metadata.?annotations.orValue({{}}).exists(key, {annotations})"
    labels = " || ".join(_judged_label(policy))
    yield f"pod.?metadata.?labels.orValue({{}}).exists(key, {labels})"
    # A pod that runs has its node, and every update of it would come here.
    yield "(pod.?spec.?nodeName.orValue('') != '' && (request.operation == 'CREATE' || request.kind.kind != 'Pod'))"
    runtimes = " || ".join(_matching("name", policy.forms.runtime_classes))
    yield f"[pod.?spec.?runtimeClassName.orValue('')].exists(name, {runtimes or 'false'})"
    yield "size(pod.?spec.?resourceClaims.orValue([])) > 0"
    keys_of_taints = ["", *filter(None, [policy.guard.taint if policy.guard else None])]
    yield f"pod.?spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') in {_list(keys_of_taints)})"
    if policy.guard is None:  # nothing keeps a pod off, and so what it is matters wherever it runs
        yield "pod.?spec.?hostPID.orValue(false) || pod.?spec.?hostIPC.orValue(false)"
        yield "pod.?spec.?volumes.orValue([]).exists(v, v.?hostPath.hasValue())"
        yield "pod.?spec.?securityContext.?windowsOptions.?hostProcess.orValue(false)"
    lists = " + ".join(f"pod.?spec.?{name}.orValue([])" for name in CONTAINER_LISTS)
    clauses = "\n    || ".join(_container_clauses(policy))
    yield f"({lists} + pod.?containers.orValue([])).exists(c,\n    {clauses})"


def _container_clauses(policy: Policy) -> Iterator[str]:
    # A resource by the name of the guard's taint may be given its toleration, when pods are made of a template.
    taint = filter(None, [policy.guard.taint if policy.guard else None])
    asks = " || ".join(_matching("name", (*policy.gpu_resources.patterns, *taint)))
    for part in ("limits", "requests"):
        yield f"c.?resources.?{part}.orValue({{}}).exists(name, {asks})"
    yield "size(c.?resources.?claims.orValue([])) > 0"
    yield f"c.?env.orValue([]).exists(e, e.?name.orValue('') in {_list(doors.DEVICE_VARIABLES)})"
    folder = _text(doors.MOUNT_PATHS[0].rpartition("/")[2])
    yield f"c.?volumeMounts.orValue([]).exists(m, m.?mountPath.orValue('').contains({folder}))"
    yield f"c.?volumeDevices.orValue([]).exists(m, m.?devicePath.orValue('').contains({folder}))"
    if policy.guard is None:
        yield "c.?securityContext.?privileged.orValue(false)"
        yield "c.?securityContext.?windowsOptions.?hostProcess.orValue(false)"
        yield "size(c.?securityContext.?capabilities.?add.orValue([])) > 0"


def _judged_annotation(policy: Policy) -> Iterator[str]:
    """What a key of an annotation may be for a rule to speak of it; `key` is the key."""
    yield from _matching("key", (policy.annotation, *policy.forms.annotations, *doors.PLACEMENT_ANNOTATIONS))
    domains = sorted({each.removeprefix("*.") for each in doors.DEVICE_ANNOTATIONS})
    yield f"{_list(domains)}.exists(domain, key.contains(domain))"


def _by(requesters: Requesters) -> str:
    users = f"request.userInfo.username in {_list(sorted(requesters.users))}"
    groups = sorted(requesters.groups)
    return users + (f" || request.userInfo.groups.exists(group, group in {_list(groups)})" if groups else "")


def _judged_label(policy: Policy) -> Iterator[str]:
    """The same of a label's key."""
    yield from _matching("key", (*policy.forms.labels, *doors.PLACEMENT_LABELS))


def _binding(policy: Policy) -> str:
    judged = " || ".join(_judged_annotation(policy))
    return f"!({_by(policy.schedulers)})\n|| object.?metadata.?annotations.orValue({{}}).exists(key, {judged})\n"


def _status(policy: Policy) -> str:
    """A pod's status is written with its annotations and labels; kubelets change none that is judged."""
    parts = (("annotations", _judged_annotation(policy)), ("labels", _judged_label(policy)))
    changed = "\n  || ".join(
        f"pod.?metadata.?{part}.orValue({{}}).exists(key,\n"
        f"  object.?metadata.?{part}[?key] != oldObject.?metadata.?{part}[?key]\n"
        f"  && ({' || '.join(judged)}))"
        for part, judged in parts
    )
    return f"[object, oldObject].exists(pod, {changed})\n"


def _changes(labels: Iterable[str]) -> str:
    return (
        f"{_list(sorted(labels))}.exists(key,\n"
        "  object.?metadata.?labels[?key]\n"
        "  != (request.operation == 'CREATE' ? optional.none() : oldObject.?metadata.?labels[?key]))\n"
    )


def _config_map(policy: Policy) -> str:
    """Only what can be a sharing configuration, or was one: by where it is, or by its text.

    Elsewhere no plugin reads it, and a text with its letters escaped is passed over: JSON has many such.
    The text has `timeSlicing` or `sharing` in it. (?i) folds as the device plugin does, where (?i)s is also U+017F;
    four more characters would cost more than an expression may, on an edit of two times 1 MiB. Binary data cannot
    be read here; of very many keys the reading has a limit.
    """
    return (
        f"request.namespace in {_list(sorted(policy.sharing_namespaces))}\n"
        "|| [object, oldObject].exists(item, item != null && (\n"
        "  item.?binaryData.hasValue()\n"
        "  || size(item.?data.orValue({})) > 1000\n"
        "  || item.?data.orValue({}).exists(key, item.data[key].matches('(?i)eslic|sharin'))))\n"
    )


_CLUSTER_POLICY = """\
object.?spec.?devicePlugin.?config.orValue({})
!= (oldObject == null ? {} : oldObject.?spec.?devicePlugin.?config.orValue({}))
"""


def _devices(policy: Policy) -> str:
    """What can be a claim for GPUs, a class that is asked for by name, or a word to NVIDIA's driver."""
    classes = " || ".join(_matching("name", policy.forms.device_classes))
    return _DEVICES.replace("CLASSES", classes or "false")


# In a version before v1 a request is not split in two.
_DEVICES = """\
[
  request.kind.kind == 'DeviceClass' ? object.?spec.orValue({})
  : request.kind.kind == 'ResourceClaim' ? object.?spec.?devices.orValue({})
  : object.?spec.?spec.?devices.orValue({})
].exists(devices,
  devices.?extendedResourceName.orValue('') != ''
  || devices.?config.orValue([]).exists(each, each.?opaque.?driver.orValue('') == 'gpu.nvidia.com')
  || devices.?requests.orValue([]).exists(one,
    ([one, one.?exactly.orValue({})] + one.?firstAvailable.orValue([])).exists(asked,
      [asked.?deviceClassName.orValue('')].exists(name,
        name.contains('nvidia') || (name != '' && (CLASSES)))
      || asked.?selectors.orValue([]).exists(each, each.?cel.?expression.orValue('').matches('(?i)nvidia')))))
"""


def _matching(variable: str, patterns: Iterable[str]) -> Iterator[str]:
    """Compare a variable with names, of which one that ends in `*` stands for all that begin so."""
    patterns = [*dict.fromkeys(patterns)]
    beginnings = tuple(each[:-1] for each in patterns if each.endswith("*"))
    beginnings = tuple(b for b in beginnings if not any(b != other and b.startswith(other) for other in beginnings))
    exact = [each for each in patterns if not each.endswith("*") and not each.startswith(beginnings)]
    if exact:
        yield f"{variable} in {_list(exact)}"
    if beginnings:
        yield f"{_list(beginnings)}.exists(start, {variable}.startsWith(start))"


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


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
