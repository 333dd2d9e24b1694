"""Keeps the parts of pods and their templates that rules read, for a file in Git."""

from collections.abc import Mapping
from typing import Any

from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.pods import DEFAULT_MESSAGE, MESSAGE
from webhook.catalog import capabilities, device_annotations, device_variables, host_paths, volume_drivers
from webhook.facts.installations import PLUGIN_VARIABLES
from webhook.facts.parts import extended, filled, variable
from webhook.policy.model import Policy


def slim(metadata: Mapping[str, Any], spec: Mapping[str, Any], policy: Policy, *, plugin: bool) -> dict[str, Any]:
    """Keep the parts of a pod or a template that rules read.

    For a device `plugin`, also keep its image, its programs, and the names of its ConfigMap and configuration file.
    """
    annotations = {
        key: value
        for key, value in mapping(metadata.get("annotations")).items()
        if key == policy.annotation
        or key.startswith("slicewarden.dev/")
        or key in policy.forms.annotations
        or device_annotations.adds_devices(key)
    }
    annotations |= dict.fromkeys(device_annotations.RUNTIME_ANNOTATIONS.among(mapping(metadata.get("annotations"))), "")
    labels = {key: value for key, value in mapping(metadata.get("labels")).items() if key in policy.forms.labels}
    labels |= dict.fromkeys(device_annotations.RUNTIME_ANNOTATIONS.among(mapping(metadata.get("labels"))), "")
    marks = {key: value for key, value in (("annotations", annotations), ("labels", labels)) if value}
    volumes = [_volume(volume, plugin=plugin) for volume in mappings(spec.get("volumes"))]
    volumes = [volume for volume in volumes if len(volume) > 1]
    mounted = {volume["name"] for volume in volumes}
    terms = mapping(mapping(mapping(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED))
    security = filled(mapping(spec.get("securityContext")), "windowsOptions")
    parts: dict[str, Any] = {
        **filled(
            spec, "hostPID", "hostIPC", "nodeSelector", "priorityClassName", "runtimeClassName", "serviceAccountName"
        ),
        "affinity": {"nodeAffinity": {_REQUIRED: terms}} if terms else {},
        "securityContext": security,
        "resourceClaims": sequence(spec.get("resourceClaims")),
        "tolerations": [each for each in mappings(spec.get("tolerations")) if not _is_given(each)],
        "volumes": volumes,
    }
    for part in ("containers", "initContainers"):
        read = [_container(each, mounted, plugin=plugin) for each in mappings(spec.get(part))]
        # only the order of init containers matters, never their number
        parts[part] = read if plugin or any(each.keys() - {"name"} for each in read) else []
    kept_parts = {key: value for key, value in parts.items() if value not in ({}, [], None)}
    return {**({"metadata": marks} if marks else {}), "spec": kept_parts}


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _is_given(toleration: Mapping[str, Any]) -> bool:
    """Whether Kubernetes gives a toleration to every pod, or to those of DaemonSets.

    (kubernetes plugin/pkg/admission/defaulttolerationseconds, pkg/controller/daemon/util/daemonset_util.go)
    """
    return string(toleration.get("key")).startswith("node.kubernetes.io/")


def _volume(volume: Mapping[str, Any], *, plugin: bool) -> dict[str, Any]:
    parts = {
        "name": string(volume.get("name")),
        "hostPath": filled(mapping(volume.get("hostPath")), "path", "type"),
        "configMap": filled(mapping(volume.get("configMap")), "name", "items") if plugin else {},
        **{each: mapping(volume.get(each)) for each in host_paths.NODE_DISKS},
        **{each: filled(mapping(volume.get(each)), *names) for each, names in host_paths.SERVERS.items()},
        **{each: filled(mapping(volume.get(each)), "driver") for each in volume_drivers.SOURCES},
        # rules ask only whether there is one: its address may hold a password
        **{each: {key: ""} for each, key in _PRESENT.items() if volume.get(each) is not None},
    }
    return {key: value for key, value in parts.items() if key == "name" or value}


_PRESENT = {"azureFile": "shareName", "gitRepo": "repository"}
"""Sources of volumes that are refused whatever they say, each with a field that it must have."""


_OF_MOUNTS = ("name", "mountPath", "readOnly", "recursiveReadOnly", "mountPropagation", "subPath")


def _container(container: Mapping[str, Any], mounted: set[str], *, plugin: bool) -> dict[str, Any]:
    part: dict[str, Any] = filled(container, "name")
    resources = {
        key: named
        for key in ("limits", "requests")
        if (named := extended(mapping(container.get("resources")).get(key)))
    }
    security = mapping(container.get("securityContext"))
    added = [each for each in sequence(mapping(security.get("capabilities")).get("add")) if isinstance(each, str)]
    wanted = [each for each in added if capabilities.capability(each) in capabilities.CAPABILITIES]
    names = device_variables.DEVICE_VARIABLES.keys() | (PLUGIN_VARIABLES if plugin else set())
    mounts = [
        filled(mount, *_OF_MOUNTS)
        for mount in mappings(container.get("volumeMounts"))
        if string(mount.get("name")) in mounted
        or host_paths.asks_for_device(host_paths.normal(string(mount.get("mountPath"))))
    ]
    image, message = string(container.get("image")), string(container.get(MESSAGE))
    parts = {
        "resources": resources,
        "restartPolicy": container.get("restartPolicy") if resources else None,
        "securityContext": {
            **filled(security, "privileged", "windowsOptions"),
            **({"capabilities": {"add": wanted}} if wanted else {}),
        },
        "env": [variable(each) for each in mappings(container.get("env")) if string(each.get("name")) in names],
        # Of variables that come from elsewhere only the prefix is read, and only beside a GPU.
        "envFrom": [filled(each, "prefix") for each in mappings(container.get("envFrom"))] if resources else [],
        "volumeMounts": mounts,
        MESSAGE: message
        if message != DEFAULT_MESSAGE and any(each.get("name") in mounted for each in mounts)
        else None,
        "image": image if plugin and "k8s-device-plugin" in image else None,
        "command": _command(container, plugin=plugin),
    }
    return {**part, **{key: value for key, value in parts.items() if value not in ({}, [], None, "")}}


LABELLER = "nfd-master"
"""The program with which Node Feature Discovery writes labels of nodes."""

_PROGRAMS = ("nvidia-device-plugin", "gpu-feature-discovery", "mps-control-daemon", "config-manager")
"""The programs in the device plugin's image, which `of_daemon_set` distinguishes."""

_CONFIG_FILE = "--config-file"


def _command(container: Mapping[str, Any], *, plugin: bool) -> list[str]:
    """Return the words that show what a container runs, and the name of the device plugin's configuration file."""
    words = [word for key in ("command", "args") for word in sequence(container.get(key)) if isinstance(word, str)]
    told = (*_PROGRAMS, LABELLER) if plugin else (LABELLER,)
    read = []
    for before, word in zip(["", *words], words, strict=False):
        if any(program in word for program in told) or (
            plugin and (word.startswith(_CONFIG_FILE) or before == _CONFIG_FILE)
        ):
            read.append(word)
    return read
