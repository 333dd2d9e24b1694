"""Writes the conditions (CEL) under which an API server sends a request.

The conditions read objects that tenants wrote, so every field on a path is optional, and may be null. The conditions
may let more requests through than the rules judge, but never fewer.
"""

from collections.abc import Iterable, Iterator

from webhook.api.pods import CONTAINER_LISTS
from webhook.catalog import device_annotations, device_variables, host_paths, volume_drivers
from webhook.catalog.places import EACH_ITEM, EACH_VALUE, Template, Workload, keys
from webhook.cel.write import array, filled, matching, one_of, text
from webhook.memory.shim.delivery import CODE
from webhook.policy.model import Policy
from webhook.policy.scopes import Requesters


def pods(policy: Policy) -> str:
    """Return the expression that matches each pod a rule may object to, and each update that removes a guarded part."""
    concerned = _concerned("[object]", policy)
    return concerned if concerned == "true" else f"{concerned}|| {_lost(policy)}"


def _lost(policy: Policy) -> str:
    """Return the expression that matches an update of a pod with an annotation or a label that no update may remove."""
    parts = (
        ("annotations", matching("key", (policy.annotation, *device_annotations.PLACEMENT_ANNOTATIONS))),
        ("labels", matching("key", device_annotations.PLACEMENT_LABELS)),
    )
    had = "\n  || ".join(
        f"oldObject.?metadata.?{part}.orValue({{}}).exists(key, {' || '.join(judged)})" for part, judged in parts
    )
    return f"(request.operation == 'UPDATE'\n  && ({had}))\n"


def workloads(kinds: Iterable[Workload], policy: Policy) -> str:
    """Return the expression that matches an object of several kinds that has a pod template which concerns a rule.

    For each API group it looks for the templates of every kind of the group. That may send too many objects, but never
    too few. It never looks for templates of another group. Their fields may have other types, and after an error the
    API server sends nothing.
    """
    kinds = list(kinds)
    always = {f"{workload.resource}.{workload.group}" for workload in kinds if always_asked(workload)}
    by_lists: dict[str, list[str]] = {}
    for group in sorted({workload.group for workload in kinds}):
        of_group = (workload for workload in kinds if workload.group == group and not workload.opaque)
        templates = (template for workload in of_group for template in workload.templates if not _deep(template))
        lists = dict.fromkeys(place for template in templates for place in _pods_at(template))
        if lists:
            by_lists.setdefault(_joined([*lists]), []).append(group)
    if not by_lists:
        return "true"
    expression = _concerned(_by_group(list(by_lists.items())), policy)
    if not always:
        return expression
    return f"request.resource.resource + '.' + request.resource.group in {array(sorted(always))} || {expression}"


def _joined(lists: list[str]) -> str:
    """Return the expression that joins some lists. It halves them again and again, as `_by_group` does."""
    if len(lists) <= 4:
        return "\n  + ".join(lists)
    half = len(lists) // 2
    return f"({_joined(lists[:half])})\n  + ({_joined(lists[half:])})"


def _by_group(choices: list[tuple[str, list[str]]]) -> str:
    """Return the expression that selects, from some values, the one for the request's API group.

    It halves the choices again and again, since a chain of them would be nested too deeply for a parser of CEL.
    """
    if len(choices) == 1:
        return choices[0][0]
    first, second = choices[: len(choices) // 2], choices[len(choices) // 2 :]
    groups = sorted(group for _, groups in first for group in groups)
    return f"{one_of('request.resource.group', groups)}\n  ? ({_by_group(first)})\n  : ({_by_group(second)})"


def always_asked(workload: Workload) -> bool:
    """Return whether every object of a kind must go to the webhook, because no CEL condition can choose among them.

    To choose, CEL would have to flatten lists of lists, parse texts, or find nested objects of any kind.
    """
    return workload.opaque or any(map(_deep, workload.templates))


def _deep(template: Template) -> bool:
    return sum(key in (EACH_ITEM, EACH_VALUE) for key in keys(template.at)) > 1


def _concerned(pods: str, policy: Policy) -> str:
    """Return the expression that is true if a list of pods, itself an expression, has one that concerns a rule."""
    if policy.guard is not None and policy.guard.taint is None:
        return "true"
    clauses = "\n  || ".join(_clauses(policy))
    return f"({pods}).exists(pod,\n  {clauses})\n"


def _clauses(policy: Policy) -> Iterator[str]:
    """Yield an expression for each property that sends a pod to the webhook; `pod` is the pod or a template."""
    annotations = " || ".join(_judged_annotation(policy))
    yield f"{filled('pod.?metadata.?annotations', '{}')}.exists(key, {annotations})"
    labels = " || ".join(_judged_label(policy))
    yield f"{filled('pod.?metadata.?labels', '{}')}.exists(key, {labels})"
    # Every running pod has a node, so without the exception every update of a pod would come here.
    yield "(pod.?spec.?nodeName.orValue('') != '' && (request.operation == 'CREATE' || request.kind.kind != 'Pod'))"
    runtimes = " || ".join(matching("name", policy.forms.runtime_classes))
    yield f"[{filled('pod.?spec.?runtimeClassName', text(''))}].exists(name, {runtimes or 'false'})"
    yield f"size({filled('pod.?spec.?resourceClaims')}) > 0"
    keys_of_taints = ["", *filter(None, [policy.guard.taint if policy.guard else None])]
    key = filled("t.?key", text(""))
    yield f"{filled('pod.?spec.?tolerations')}.exists(t, {key} in {array(keys_of_taints)})"
    if policy.guard is None:  # without a guard any pod may run on a GPU node, so its privileges always matter
        yield from (filled(f"pod.?spec.?{each}", "false") for each in ("hostPID", "hostIPC"))
        drivers = (*volume_drivers.SOURCES, *volume_drivers.IN_TREE)
        some = ("hostPath", "cephfs", *host_paths.NODE_DISKS, *host_paths.CLONES, *drivers)
        sources = " || ".join(f"v.?{each}.hasValue()" for each in some)
        option = f"{filled('v.?nfs.?server', text(''))}.startsWith({text(host_paths.OPTION)})"
        yield f"{filled('pod.?spec.?volumes')}.exists(v, {sources} || {option})"
        yield filled("pod.?spec.?securityContext.?windowsOptions.?hostProcess", "false")
    lists = " + ".join(filled(f"pod.?spec.?{name}") for name in CONTAINER_LISTS)
    clauses = "\n    || ".join(_container_clauses(policy))
    yield f"({lists} + pod.?containers.orValue([])).exists(c,\n    {clauses})"


def _container_clauses(policy: Policy) -> Iterator[str]:
    # ExtendedResourceToleration adds a toleration for a resource that has the name of the guard's taint.
    taint = filter(None, [policy.guard.taint if policy.guard else None])
    asks = " || ".join(matching("name", (*policy.gpu_resources.patterns, *taint)))
    for part in ("limits", "requests"):
        yield f"{filled(f'c.?resources.?{part}', '{}')}.exists(name, {asks})"
    yield f"size({filled('c.?resources.?claims')}) > 0"
    yield f"{filled('c.?env')}.exists(e, e.?name.orValue('') in {array(device_variables.DEVICE_VARIABLES)})"
    folder = text(host_paths.MOUNT_PATHS[0].rpartition("/")[2])
    for mounts, field in (("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")):
        yield f"{filled(f'c.?{mounts}')}.exists(m, {filled(f'm.?{field}', text(''))}.contains({folder}))"
    if policy.guard is None:
        yield filled("c.?securityContext.?privileged", "false")
        yield filled("c.?securityContext.?windowsOptions.?hostProcess", "false")
        yield f"size({filled('c.?securityContext.?capabilities.?add')}) > 0"


def _judged_annotation(policy: Policy) -> Iterator[str]:
    """Yield the expressions for the annotation keys that rules judge; the variable is `key`."""
    yield from matching(
        "key",
        (
            policy.annotation,
            CODE,
            *policy.forms.annotations,
            *device_annotations.PLACEMENT_ANNOTATIONS,
            *device_annotations.RUNTIME_ANNOTATIONS,
        ),
    )
    domains = sorted({pattern.removeprefix("*.") for pattern in device_annotations.DEVICE_ANNOTATIONS})
    yield f"{array(domains)}.exists(domain, key.contains(domain))"


def _by(requesters: Requesters) -> str:
    users = f"request.userInfo.username in {array(sorted(requesters.users))}"
    groups = sorted(requesters.groups)
    return users + (f" || request.userInfo.groups.exists(group, group in {array(groups)})" if groups else "")


def _judged_label(policy: Policy) -> Iterator[str]:
    """Yield the expressions for the label keys that rules judge; the variable is `key`."""
    names = (*device_annotations.PLACEMENT_LABELS, *device_annotations.RUNTIME_ANNOTATIONS)
    yield from matching("key", (*policy.forms.labels, *names))


def others_than(requesters: Requesters) -> str:
    """Return the expression that matches a request that none of these requesters sent."""
    return f"!({_by(requesters)})\n"


def binding(policy: Policy) -> str:
    """Return the expression that matches a binding of a pod if no scheduler sent it, or if it has a judged part.

    Rules judge annotations such as the trust annotation, and those that make a runtime add devices. They judge the
    labels that a runtime reads.
    """
    parts = (
        ("annotations", _judged_annotation(policy)),
        ("labels", matching("key", device_annotations.RUNTIME_ANNOTATIONS)),
    )
    judged = "".join(
        f"|| object.?metadata.?{part}.orValue({{}}).exists(key, {' || '.join(keys_)})\n" for part, keys_ in parts
    )
    return f"!({_by(policy.schedulers)})\n{judged}"


def scheduled_binding(policy: Policy) -> str:
    """Return the expression that matches every other binding: a scheduler sent it, and it has no judged part."""
    return f"!({binding(policy).strip()})\n"


GROUPS = f"""\
object.?spec.?priorityClassName.orValue('') != ''
|| size({filled("object.?spec.?podGroupTemplates")}) > 0
|| size({filled("object.?spec.?compositePodGroupTemplates")}) > 0
"""
"""The expression for a group of pods or a Workload that may name a priority class."""


def status(policy: Policy) -> str:
    """Return the expression that matches a status update that changes an annotation or label which rules judge.

    A status update may write both, but kubelets change none of these.
    """
    parts = (("annotations", _judged_annotation(policy)), ("labels", _judged_label(policy)))
    changed = "\n  || ".join(
        f"pod.?metadata.?{part}.orValue({{}}).exists(key,\n"
        f"  object.?metadata.?{part}[?key] != oldObject.?metadata.?{part}[?key]\n"
        f"  && ({' || '.join(judged)}))"
        for part, judged in parts
    )
    return f"[object, oldObject].exists(pod, {changed})\n"


def changed_labels(labels: Iterable[str]) -> str:
    """Return the expression that matches an object with a new value of one of these labels."""
    return (
        f"{array(sorted(labels))}.exists(key,\n"
        "  object.?metadata.?labels[?key]\n"
        "  != (request.operation == 'CREATE' ? optional.none() : oldObject.?metadata.?labels[?key]))\n"
    )


def node_feature(policy: Policy) -> str:
    """Return the expression that matches a NodeFeature that labels nodes, outside the labellers' namespaces."""
    return (
        f"!(request.namespace in {array(sorted(policy.labelling_namespaces))})\n"
        "&& (size(object.?spec.?labels.orValue({})) > 0\n"
        "  || object.?spec.?features.orValue({}).exists(kind, size(object.spec.features[kind]) > 0))\n"
    )


def config_map(policy: Policy) -> str:
    """Return the expression that matches a ConfigMap that may be a sharing configuration, or was one before an update.

    It matches every ConfigMap in the policy's sharing namespaces. Elsewhere it matches those with `timeSlicing` or
    `sharing` in their text, with a pattern that ignores case as the device plugin does: (?i)s also matches U+017F. Four
    more characters in the pattern would exceed the cost limit of an expression on an edit of twice 1 MiB. Outside the
    sharing namespaces no plugin reads the text, so escaped letters are ignored there: JSON has many. CEL cannot read
    binary data, and reading very many keys would cost too much, so a ConfigMap with either always matches.
    """
    return (
        f"request.namespace in {array(sorted(policy.sharing_namespaces))}\n"
        "|| [object, oldObject].exists(item, item != null && (\n"
        "  item.?binaryData.hasValue()\n"
        "  || size(item.?data.orValue({})) > 1000\n"
        "  || item.?data.orValue({}).exists(key, item.data[key].matches('(?i)eslic|sharin'))))\n"
    )


def named(config_maps: Iterable[tuple[str, str]]) -> str:
    """Return the expression that matches the ConfigMaps with these namespaces and names."""
    by_name = (f"request.namespace == {text(space)} && request.name == {text(name)}" for space, name in config_maps)
    return "\n|| ".join(by_name) + "\n"


CLUSTER_POLICY = """\
object.?spec.?devicePlugin.?config.orValue({})
!= (oldObject == null ? {} : oldObject.?spec.?devicePlugin.?config.orValue({}))
"""
"""The expression for a ClusterPolicy that names another sharing configuration."""


def devices(policy: Policy) -> str:
    """Return the expression that matches GPU claims, classes of pools or resources, and settings of NVIDIA's driver.

    It matches each claim that asks for trust, too, because the annotation is judged whatever the claim is for.
    """
    offered = [name for pool in policy.pools for name in pool.device_classes]
    classes = " || ".join(matching("name", (*policy.forms.device_classes, *offered)))
    of_pools = " || ".join(matching("name", offered))
    own = _CLASS_OF_POOLS.replace("OF_POOLS", of_pools) if offered else ""
    trusted = "\n|| ".join(
        f"{text(policy.annotation)} in {filled(f'object.{place}.?annotations', '{}')}"
        for place in ("?metadata", "?spec.?metadata")
    )
    return f"{trusted}\n|| {_DEVICES.replace('CLASSES', classes or 'false').replace('OWN', own)}"


_CLASS_OF_POOLS = """\
(request.kind.kind == 'DeviceClass' && [object.?metadata.?name.orValue('')].exists(name, OF_POOLS))
  || """

# Before v1 a request had no `exactly`: its fields were in the request itself.
_DEVICES = f"""\
[
  request.kind.kind == 'DeviceClass' ? object.?spec.orValue({{}})
  : request.kind.kind == 'ResourceClaim' ? object.?spec.?devices.orValue({{}})
  : object.?spec.?spec.?devices.orValue({{}})
].exists(devices,
  OWNdevices.?extendedResourceName.orValue('') != ''
  || devices.?config.orValue([]).exists(each, each.?opaque.?driver.orValue('') == 'gpu.nvidia.com')
  || {filled("devices.?requests")}.exists(one,
    ([one, one.?exactly.orValue({{}})] + one.?firstAvailable.orValue([])).exists(asked,
      [asked.?deviceClassName.orValue('')].exists(name,
        name.contains('nvidia') || (name != '' && (CLASSES)))
      || asked.?selectors.orValue([]).exists(each, each.?cel.?expression.orValue('').matches('(?i)nvidia')))))
"""


def _pods_at(template: Template) -> Iterator[str]:
    """Yield expressions for the lists of pods at a template's place.

    A pod is a map with `metadata` and `spec`, and with `containers` for those outside a PodSpec.
    """
    for part, places in (("metadata", template.metadata), ("spec", (template.defaults or "",))):
        for place in places:
            if place.startswith("/"):
                yield f"[dyn({{'{part}': {_at('object', keys(place))}}})]"
    beside = [place for place in template.metadata if not place.startswith("/")]
    for place in beside:
        yield from _lists_at(template._replace(metadata=(place,)))
    if not beside:
        yield from _lists_at(template)


def _lists_at(template: Template) -> Iterator[str]:
    """Yield the expression for the list of pods at a template's place.

    The template has at most one path of metadata.
    """
    at = keys(template.at)
    depth = next((index for index, key in enumerate(at) if key in (EACH_ITEM, EACH_VALUE)), None)
    if depth is None:
        yield f"[dyn({_as_pod(_at('object', at), template)})]"
    elif at[depth] == EACH_ITEM:
        pod = _as_pod(_at("i", at[depth + 1 :]), template)
        yield f"{_filled_at('object', at[:depth], '[]')}.map(i, dyn({pod}))"
    else:
        values = _filled_at("object", at[:depth], "{}")
        pod = _as_pod(_at(f"{values}[k]", at[depth + 1 :]), template)
        yield f"{values}.map(k, dyn({pod}))"


def _as_pod(value: str, template: Template) -> str:
    if template == Template(template.at):
        return value
    parts = {"spec": _at(value, keys(template.spec or ""))}
    for place in template.metadata:
        if not place.startswith("/"):
            parts["metadata"] = _at(value, keys(place))
    if template.containers:
        places = [keys(place) for place in template.containers]
        alone = ", ".join(_at(value, place) for place in places if place[-1] != EACH_ITEM)
        lists = [_filled_at(value, place[:-1], "[]") for place in places if place[-1] == EACH_ITEM]
        joined = " + ".join((f"[{alone}]", *lists))
        parts["containers"] = f"dyn({joined})"
    return "{" + ", ".join(f"'{part}': {expression}" for part, expression in parts.items()) + "}"


def _at(value: str, at: Iterable[str]) -> str:
    """Return the expression for the value at a place, or for an empty map if the path ends early.

    The value may be null, and `.?` finds nothing in null.
    """
    steps = _steps(at)
    return f"{value}{steps}.orValue({{}})" if steps else value


def _filled_at(value: str, at: Iterable[str], default: str) -> str:
    """Return the expression for a list or a map at a place, for expressions that read its entries."""
    steps = _steps(at)
    return filled(f"{value}{steps}", default) if steps else value


def _steps(at: Iterable[str]) -> str:
    return "".join(f".?{key}" if key.isidentifier() else f"[?{text(key)}]" for key in at)
