"""Reduces a cluster's objects to the parts that are read, as a file for Git.

The parts are those of `Facts.of`, and what decides whether a rule lets a DaemonSet or a running pod through: that is
what an exemption is written from. Everything else is left out: images of pods, variables, most annotations, and
ConfigMaps that share no GPU.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from webhook.allowance import Allowance
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.metadata import labels_of, name_of, namespace_of
from webhook.api.objects import CONFIG_MAP, ConfigMap
from webhook.api.pods import MIRROR, POD
from webhook.catalog import capabilities, device_annotations, device_variables, host_paths, names
from webhook.catalog.scopes import CLUSTER_SCOPED
from webhook.deviceplugin.configmaps import configs
from webhook.deviceplugin.usage import VARIABLES
from webhook.documents import goyaml_writer
from webhook.facts import images, rights
from webhook.facts.installations import PluginInstallation, of_daemon_set
from webhook.facts.snapshot import FILE_KINDS, GPU_CLUSTER, PRIORITY_CLASS, Facts, kept
from webhook.model import Object
from webhook.policy.model import Policy

_ORDER = {
    ("", "Namespace"): 0,
    ("", "Node"): 1,
    ("nvidia.com", "ClusterPolicy"): 2,
    ("apps", "DaemonSet"): 3,
    CONFIG_MAP: 4,
    POD: 5,
    **dict.fromkeys(FILE_KINDS, 6),
}
"""The order of the kinds in the file."""


def in_namespace(item: Object) -> bool:
    """Tell whether an object of facts is in a namespace, and not of the whole cluster."""
    return group_kind(item) not in CLUSTER_SCOPED


_Key = tuple[tuple[int, str], str, str]


def reduced(objects: Iterable[Object], policy: Policy) -> list[Object]:
    """Return the parts of some API objects that are read, sorted by kind, namespace and name.

    `policy` names the ConfigMaps, namespaces and labels that are read in any case. Facts of the result are the facts of
    the objects, but for ConfigMaps that no plugin reads; reducing it again changes nothing.
    """
    latest: dict[_Key, Object] = {}
    for item in objects:
        key = _key(item)
        part = slim(item, policy) if key else None
        if key is None:
            continue
        before = latest.pop(key, None)  # it replaces an earlier namesake, as in Facts.of
        if part is None:
            continue
        if before is not None and part["kind"] == "Namespace" and (labels := {**labels_of(before), **labels_of(part)}):
            part = {**part, "metadata": {**part["metadata"], "labels": labels}}  # they add up, as in Facts.of
        latest[key] = part
    parts = [latest[key] for key in sorted(latest)]
    parts = rights.needed(parts, rights.shipped(parts))
    found = [part for part in parts if group_kind(part) == CONFIG_MAP]
    chosen = _config_maps(found, Facts.of(parts).installations, policy)
    pods = _pods(part for part in parts if group_kind(part) == POD)
    others = [part for part in parts if group_kind(part) not in (CONFIG_MAP, POD)]
    return [*others, *chosen, *pods]


def json_text(objects: Iterable[Object]) -> str:
    """Write objects as a List in JSON, each on a line of its own, so that a diff shows what changed."""
    lines = ",\n".join(json.dumps(item, sort_keys=True, ensure_ascii=False) for item in objects)
    return f'{{"apiVersion": "v1", "kind": "List", "items": [\n{lines}\n]}}\n'


def yaml_text(objects: Iterable[Object]) -> str:
    """Write objects as a List in YAML."""
    items = json.loads(json.dumps([*objects], sort_keys=True))
    return goyaml_writer.write({"apiVersion": "v1", "kind": "List", "items": items})


FORMS: Mapping[str, Callable[[Iterable[Object]], str]] = {"json": json_text, "yaml": yaml_text}
"""The forms of the file; the first is read five times as fast."""


# One object


def slim(item: Object, policy: Policy) -> Object | None:
    """Return the part of one object that may be read, or None."""
    kind, name = group_kind(item), name_of(item)
    if kind not in _ORDER or not name or (kind in rights.KINDS and not policy.asks_rbac):
        return None
    match kind:
        case ("apps", "DaemonSet"):
            template = mapping(mapping(item.get("spec")).get("template"))
            pod = mapping(template.get("spec"))
            plugin = of_daemon_set("", "", pod) is not None
            template = _pod(mapping(template.get("metadata")), pod, policy, plugin=plugin)
            return _named(item, name, {"spec": {"template": template}})
        case ("", "Pod"):
            return _running(item, name, policy)
    part = kept(item)
    if part is None:
        return None
    labels = labels_of(part)
    if kind == ("", "Node"):
        taints = [_filled(taint, "key", "value", "effect") for taint in mappings(part["spec"]["taints"])]
        taints.sort(key=lambda taint: (taint.get("key", ""), taint.get("effect", "")))
        labels = {key: value for key, value in labels.items() if _is_read(key, policy)}
        spec = {"spec": {"taints": taints}} if taints else {}
        status = mapping(item.get("status"))
        offered = {**_extended(status.get("capacity")), **_extended(status.get("allocatable"))}
        offered |= {key: str(amount) for key, amount in part["status"]["allocatable"].items()}
        return _named(item, name, {**spec, **({"status": {"allocatable": offered}} if offered else {})}, labels)
    if kind == ("nvidia.com", "ClusterPolicy"):
        return _named(item, name, {"spec": _cluster_policy(part["spec"]), **_home(item)})
    if kind == CONFIG_MAP:
        return _named(item, name, {"data": dict(part["data"])})
    if kind == PRIORITY_CLASS or kind in rights.KINDS:
        return _named(item, name, {key: part[key] for key in part if key not in ("apiVersion", "kind", "metadata")})
    if kind in FILE_KINDS:
        if kind == GPU_CLUSTER:
            return _named(item, name, {"spec": {}, **_home(item)})
        return _named(item, name, {"spec": _without_config(part["spec"])})
    return _named(item, name, {}, labels)


def _key(item: Object) -> _Key | None:
    """Return what an object is sorted by and replaced by; None for one that is no fact."""
    kind, name = group_kind(item), name_of(item)
    if kind not in _ORDER or not name:
        return None
    return (_ORDER[kind], kind[1]), namespace_of(item) if in_namespace(item) else "", name


def _without_config(spec: Any) -> Any:
    """Leave out the configuration of drivers from a class, a claim or a template: nothing reads it in facts."""
    if isinstance(spec, dict):
        return {key: _without_config(value) for key, value in spec.items() if key != "config"}
    return spec


def _named(item: Object, name: str, parts: Mapping[str, Any], labels: Mapping[str, Any] | None = None) -> Object:
    metadata: dict[str, Any] = {"name": name}
    if in_namespace(item):
        metadata["namespace"] = namespace_of(item)
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": metadata, **parts}


_UNREAD_LABELS = names.Names(("feature.node.kubernetes.io/cpu-cpuid.*", "nvidia.com/gfd.timestamp"))
"""Labels of nodes that are dropped unless the policy selects by them: a hundred flags of a CPU, and a clock."""


def _is_read(label: str, policy: Policy) -> bool:
    if label not in _UNREAD_LABELS:
        return True
    return any(label == requirement.key for pool in policy.pools for requirement in pool.nodes.requirements)


def _extended(amounts: Any) -> dict[str, str]:
    """Return the amounts of extended resources of any vendor, but for those of Kubernetes' own domain."""
    return {key: str(amount) for key, amount in mapping(amounts).items() if "/" in key and "kubernetes.io/" not in key}


def _home(item: Object) -> Object:
    """Keep the namespace in which the GPU Operator says that it runs."""
    said = string(mapping(item.get("status")).get("namespace"))
    return {"status": {"namespace": said}} if said else {}


def _cluster_policy(spec: Mapping[str, Any]) -> Object:
    """Keep what `of_cluster_policy` reads."""
    plugin, mig = mapping(spec.get("devicePlugin")), mapping(spec.get("mig"))
    parts = {
        "config": _filled(mapping(plugin.get("config")), "name", "default"),
        "enabled": plugin.get("enabled"),
        "env": [_variable(each) for each in mappings(plugin.get("env")) if each.get("name") in _PLUGIN_VARIABLES],
    }
    kept_parts = {key: value for key, value in parts.items() if value not in ({}, [], None)}
    strategy = string(mig.get("strategy"))
    return {"devicePlugin": kept_parts, **({"mig": {"strategy": strategy}} if strategy else {})}


# ConfigMaps


def _config_maps(
    parts: Iterable[Object], installations: Iterable[PluginInstallation], policy: Policy
) -> Iterable[Object]:
    """Keep the texts that the device plugin reads, or that look as if they were meant for it.

    In the sharing namespaces lists of images are kept too, and the keys of all others, which tell that a name is taken.
    If nothing is kept, the first ConfigMap is named, which tells that ConfigMaps were listed.
    """
    parts, installations = [*parts], [*installations]
    homes = policy.sharing_namespaces | {each.namespace for each in installations}
    chosen = []
    for part in parts:
        metadata = part["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        readers = tuple(
            each
            for each in installations
            if each.config_map == name and namespace in homes and each.namespace in ("", namespace)
        )
        texts = {key: text for key, text in part["data"].items() if text is not None}
        view = ConfigMap(name, namespace, texts, {})
        read = {config.key for config in configs(view, policy, readers, Allowance())}
        if read or namespace in policy.sharing_namespaces or (namespace, name) in policy.config_maps:
            listed = name == images.LIST and namespace in policy.sharing_namespaces
            data = {key: text if listed or key in read else None for key, text in part["data"].items()}
            chosen.append({**part, "data": data})
    return chosen or [{**part, "data": {}} for part in parts[:1]]


# Pods


def _running(item: Object, name: str, policy: Policy) -> Object | None:
    """Keep a pod that runs, if it holds a GPU or opens a way to one. A mirror pod without a GPU is the kubelet's."""
    metadata, spec = mapping(item.get("metadata")), mapping(item.get("spec"))
    if mapping(item.get("status")).get("phase") in ("Succeeded", "Failed") or not string(spec.get("nodeName")):
        return None
    pod = _pod(metadata, spec, policy, plugin=False)
    if kept(item) is None and (
        MIRROR in mapping(metadata.get("annotations")) or _made_by_daemon_set(metadata) or not _opens(pod)
    ):
        return None
    pod["spec"]["nodeName"] = spec["nodeName"]
    marks = pod.pop("metadata", {})
    part = _named(item, name, pod)
    part["metadata"].update(marks)
    return part


def _made_by_daemon_set(metadata: Mapping[str, Any]) -> bool:
    """Tell whether a DaemonSet makes a pod: its template stands for all of its pods."""
    return any(owner.get("kind") == "DaemonSet" for owner in mappings(metadata.get("ownerReferences")))


_DOORS = frozenset(("hostPID", "hostIPC", "runtimeClassName", "resourceClaims", "volumes", "securityContext"))
_OPENED = frozenset(("securityContext", "env", "volumeMounts", "command"))


def _opens(pod: Object) -> bool:
    """Tell whether a reduced pod has anything that a rule may refuse, be it right or wrong."""
    spec = pod["spec"]
    return (
        bool(_DOORS & spec.keys() or pod.get("metadata"))
        or any(not toleration.get("key") for toleration in spec.get("tolerations", ()))
        or any(_OPENED & container.keys() for container in _containers(spec))
    )


def _pods(parts: Iterable[Object]) -> list[Object]:
    """Keep each pod that holds a GPU, and of the others one of those that are alike."""
    seen: set[str] = set()
    chosen = []
    for part in parts:
        if kept(part) is None:
            spec = {key: value for key, value in part["spec"].items() if key != "nodeName"}
            metadata = {key: value for key, value in part["metadata"].items() if key != "name"}
            alike = json.dumps([metadata, spec], sort_keys=True)
            if alike in seen:
                continue
            seen.add(alike)
        chosen.append(part)
    return chosen


def _pod(metadata: Mapping[str, Any], spec: Mapping[str, Any], policy: Policy, *, plugin: bool) -> dict[str, Any]:
    """Keep the parts of a pod or a template that rules read, and those by which a `plugin` finds its ConfigMap."""
    annotations = {
        key: value
        for key, value in mapping(metadata.get("annotations")).items()
        if key == policy.annotation
        or key.startswith("slicewarden.dev/")
        or key in policy.forms.annotations
        or device_annotations.adds_devices(key)
    }
    labels = {key: value for key, value in mapping(metadata.get("labels")).items() if key in policy.forms.labels}
    marks = {key: value for key, value in (("annotations", annotations), ("labels", labels)) if value}
    volumes = [_volume(volume, plugin=plugin) for volume in mappings(spec.get("volumes"))]
    volumes = [volume for volume in volumes if len(volume) > 1]
    mounted = {volume["name"] for volume in volumes}
    terms = mapping(mapping(mapping(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED))
    security = _filled(mapping(spec.get("securityContext")), "windowsOptions")
    parts: dict[str, Any] = {
        **_filled(spec, "hostPID", "hostIPC", "nodeSelector", "runtimeClassName", "serviceAccountName"),
        "affinity": {"nodeAffinity": {_REQUIRED: terms}} if terms else {},
        "securityContext": security,
        "resourceClaims": sequence(spec.get("resourceClaims")),
        "tolerations": [each for each in mappings(spec.get("tolerations")) if not _is_given(each)],
        "volumes": volumes,
    }
    for part in ("containers", "initContainers"):
        read = [_container(each, mounted, plugin=plugin) for each in mappings(spec.get(part))]
        # Only the order of init containers counts, and their number never does.
        parts[part] = read if plugin or any(each.keys() - {"name"} for each in read) else []
    kept_parts = {key: value for key, value in parts.items() if value not in ({}, [], None)}
    return {**({"metadata": marks} if marks else {}), "spec": kept_parts}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _is_given(toleration: Mapping[str, Any]) -> bool:
    """Tell whether Kubernetes gives a toleration to every pod, or to those of DaemonSets.

    (kubernetes plugin/pkg/admission/defaulttolerationseconds, pkg/controller/daemon/util/daemonset_util.go)
    """
    return string(toleration.get("key")).startswith("node.kubernetes.io/")


def _volume(volume: Mapping[str, Any], *, plugin: bool) -> dict[str, Any]:
    path = _filled(mapping(volume.get("hostPath")), "path")
    source = _filled(mapping(volume.get("configMap")), "name", "items") if plugin else {}
    parts = {"name": string(volume.get("name")), "hostPath": path, "configMap": source}
    return {key: value for key, value in parts.items() if key == "name" or value}


def _container(container: Mapping[str, Any], mounted: set[str], *, plugin: bool) -> dict[str, Any]:
    part: dict[str, Any] = _filled(container, "name")
    resources = {
        key: named
        for key in ("limits", "requests")
        if (named := _extended(mapping(container.get("resources")).get(key)))
    }
    security = mapping(container.get("securityContext"))
    added = [each for each in sequence(mapping(security.get("capabilities")).get("add")) if isinstance(each, str)]
    wanted = [each for each in added if capabilities.capability(each) in capabilities.CAPABILITIES]
    names = device_variables.DEVICE_VARIABLES.keys() | (_PLUGIN_VARIABLES if plugin else set())
    mounts = [
        _filled(mount, "name", "mountPath", "readOnly", "subPath")
        for mount in mappings(container.get("volumeMounts"))
        if string(mount.get("name")) in mounted
        or host_paths.asks_for_device(host_paths.normal(string(mount.get("mountPath"))))
    ]
    image = string(container.get("image"))
    parts = {
        "resources": resources,
        "restartPolicy": container.get("restartPolicy") if resources else None,
        "securityContext": {
            **_filled(security, "privileged", "windowsOptions"),
            **({"capabilities": {"add": wanted}} if wanted else {}),
        },
        "env": [_variable(each) for each in mappings(container.get("env")) if each.get("name") in names],
        "volumeMounts": mounts,
        "image": image if plugin and "k8s-device-plugin" in image else None,
        "command": _command(container, plugin=plugin),
    }
    return {**part, **{key: value for key, value in parts.items() if value not in ({}, [], None, "")}}


LABELLER = "nfd-master"
"""The program by which Node Feature Discovery writes labels of nodes."""

_PROGRAMS = ("nvidia-device-plugin", "gpu-feature-discovery", "mps-control-daemon", "config-manager")
"""The programs in the device plugin's image, which `of_daemon_set` tells apart."""

_CONFIG_FILE = "--config-file"


def _command(container: Mapping[str, Any], *, plugin: bool) -> list[str]:
    """Return the words that tell what a container runs, and the name of the plugin's file."""
    words = [word for key in ("command", "args") for word in sequence(container.get(key)) if isinstance(word, str)]
    told = (*_PROGRAMS, LABELLER) if plugin else (LABELLER,)
    read = []
    for before, word in zip(["", *words], words, strict=False):
        if any(program in word for program in told) or (
            plugin and (word.startswith(_CONFIG_FILE) or before == _CONFIG_FILE)
        ):
            read.append(word)
    return read


_PLUGIN_VARIABLES = frozenset(
    (
        "CONFIG_FILE",
        "CONFIG_FILE_SRCDIR",
        "DEFAULT_CONFIG",
        "FALLBACK_STRATEGIES",
        *(name for names in VARIABLES.values() for name in names),
    )
)
"""The variables of the device plugin that are read: its file, and those that override the file's flags."""


def _variable(variable: Mapping[str, Any]) -> dict[str, Any]:
    """Keep a variable, and of a reference only that it is one."""
    if variable.get("valueFrom"):
        return {"name": variable["name"], "valueFrom": {"fieldRef": {}}}
    return _filled(variable, "name", "value")


def _containers(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*mappings(spec.get("initContainers")), *mappings(spec.get("containers"))]


def _filled(value: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return the entries of some keys that are not empty."""
    return {key: value[key] for key in keys if value.get(key) not in (None, "", False, {}, [])}
