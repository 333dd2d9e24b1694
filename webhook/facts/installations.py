"""Reads how NVIDIA's device plugin is installed, from a ClusterPolicy or a DaemonSet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.model import Path


@dataclass(frozen=True, slots=True)
class PluginInstallation:
    """An installation of the device plugin with a ConfigMap, by a ClusterPolicy or a DaemonSet (`kind`).

    `namespace` is empty for a ClusterPolicy, whose ConfigMap and DaemonSet are in the GPU Operator's namespace. If
    `chosen`, a node's label names its key; a node without the label uses `key`, or the `fallbacks` if that is empty.
    Otherwise all nodes use `key`. `env` overrides flags; None is an unknown value.
    """

    kind: str
    namespace: str
    name: str
    config_map: str
    chosen: bool
    key: str = ""
    fallbacks: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(default_factory=dict)
    selector: Mapping[str, str] = field(default_factory=dict)


Texts = Mapping[str, str | None]
"""The texts of a ConfigMap by key; None for data that is no text, or too large to keep."""


OPERATORS_ENV: Mapping[str, str | None] = {
    "PASS_DEVICE_SPECS": "true",
    "FAIL_ON_INIT_ERROR": "true",
    "DEVICE_LIST_STRATEGY": None,
    "DEVICE_ID_STRATEGY": "uuid",
    "MPS_ROOT": "/run/nvidia/mps",
}
"""Variables that the GPU Operator always sets (gpu-operator assets/state-device-plugin/0500_daemonset.yaml).

The device list strategy is unknown, since the operator changes it for CDI.
"""


VARIABLES: Mapping[Path, tuple[str, ...]] = {
    ("flags", "migStrategy"): ("MIG_STRATEGY",),
    ("flags", "failOnInitError"): ("FAIL_ON_INIT_ERROR",),
    ("flags", "mpsRoot"): ("MPS_ROOT",),
    ("flags", "nvidiaDriverRoot"): ("NVIDIA_DRIVER_ROOT",),
    ("flags", "nvidiaDevRoot"): ("NVIDIA_DEV_ROOT",),
    ("flags", "gdrcopyEnabled"): ("GDRCOPY_ENABLED",),
    ("flags", "gdsEnabled"): ("GDS_ENABLED",),
    ("flags", "mofedEnabled"): ("MOFED_ENABLED",),
    ("flags", "deviceDiscoveryStrategy"): ("DEVICE_DISCOVERY_STRATEGY",),
    ("flags", "plugin", "passDeviceSpecs"): ("PASS_DEVICE_SPECS",),
    ("flags", "plugin", "deviceListStrategy"): ("DEVICE_LIST_STRATEGY",),
    ("flags", "plugin", "deviceIDStrategy"): ("DEVICE_ID_STRATEGY",),
    ("flags", "plugin", "cdiAnnotationPrefix"): ("CDI_ANNOTATION_PREFIX",),
    ("flags", "plugin", "nvidiaCTKPath"): ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
    ("flags", "plugin", "containerDriverRoot"): ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    ("flags", "plugin", "sharedDevicesAllocationPolicy"): ("SHARED_DEVICES_ALLOCATION_POLICY",),
}
"""The environment variables that override a flag of the text, even if empty (cmd/nvidia-device-plugin/main.go)."""


PLUGIN_VARIABLES = frozenset(
    (
        "CONFIG_FILE",
        "CONFIG_FILE_SRCDIR",
        "DEFAULT_CONFIG",
        "FALLBACK_STRATEGIES",
        *(name for names in VARIABLES.values() for name in names),
    )
)
"""The variables of the device plugin that are read: its file, and those that override the file's flags."""


def of_cluster_policy(name: str, spec: Mapping[str, Any]) -> PluginInstallation | None:
    """Read the installation in a ClusterPolicy of the GPU Operator; None if its plugin has no ConfigMap."""
    plugin = mapping(spec.get("devicePlugin"))
    config = mapping(plugin.get("config"))
    config_map = string(config.get("name"))
    if not config_map or plugin.get("enabled") is False:
        return None
    mig = string(mapping(spec.get("mig")).get("strategy"))
    env = {**OPERATORS_ENV, **({"MIG_STRATEGY": mig} if mig else {}), **_env(plugin)}
    key = string(config.get("default"))
    # By default the operator shares nothing (gpu-operator controllers/object_controls.go).
    return PluginInstallation(
        "ClusterPolicy", "", name, config_map, chosen=True, key=key, fallbacks=("empty",), env=env
    )


_SIBLINGS = ("gpu-feature-discovery", "mps-control-daemon", "config-manager")
"""Other programs in the device plugin's image."""


_PROGRAM = "nvidia-device-plugin"


def of_daemon_set(namespace: str, name: str, pod: Mapping[str, Any]) -> PluginInstallation | None:
    """Read the installation in a DaemonSet, as the Helm chart and the GPU Operator write one, or return None.

    With a config-manager the nodes choose their key. Without one the plugin reads one file (k8s-device-plugin
    deployments/helm/nvidia-device-plugin/templates/daemonset-device-plugin.yml).
    """
    containers = mappings(pod.get("containers"))
    plugin = next(filter(is_the_plugin, containers), None)
    if plugin is None:
        return None
    env, selector = _env(plugin), {k: v for k, v in mapping(pod.get("nodeSelector")).items() if isinstance(v, str)}
    for container in containers:
        if any("config-manager" in word for word in _words(container)):
            manager_env = _env(container)
            folder = manager_env.get("CONFIG_FILE_SRCDIR") or "/available-configs"
            config_map = next((source for at, source, _ in _mounts(pod, container) if at == PurePosixPath(folder)), "")
            fallbacks = tuple(filter(None, (manager_env.get("FALLBACK_STRATEGIES") or "").split(",")))
            key = manager_env.get("DEFAULT_CONFIG") or ""
            break
    else:
        config_map, key = _file(pod, plugin, env)
        fallbacks = ()
        manager_env = None
    if not config_map:
        return None
    return PluginInstallation(
        "DaemonSet", namespace, name, config_map, manager_env is not None, key, fallbacks, env=env, selector=selector
    )


def is_the_plugin(container: Mapping[str, Any]) -> bool:
    """Whether a container runs NVIDIA's device plugin, by its image, its command or its name."""
    words = _words(container)
    if any(sibling in word for word in words for sibling in _SIBLINGS):
        return False
    return "k8s-device-plugin" in string(container.get("image")) or any(_PROGRAM in word for word in words)


def runs_the_plugin(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs NVIDIA's device plugin, by the image, the command or the name of a container."""
    return any(map(is_the_plugin, mappings(pod.get("containers"))))


def _words(container: Mapping[str, Any]) -> list[str]:
    words = [container.get("name"), *sequence(container.get("command")), *sequence(container.get("args"))]
    return [word for word in words if isinstance(word, str)]


def _file(pod: Mapping[str, Any], plugin: Mapping[str, Any], env: Mapping[str, str | None]) -> tuple[str, str]:
    """Return the ConfigMap and the key of the file that the plugin reads; both empty if unknown."""
    words = _words(plugin)
    paths = [word.partition("=")[2] for word in words if word.startswith("--config-file=")]
    paths += [following for word, following in pairwise(words) if word == "--config-file"]
    path = PurePosixPath((paths[0] if paths else env.get("CONFIG_FILE")) or "/")
    for at, source, keys in _mounts(pod, plugin):
        if at == path and len(keys) == 1:  # a subPath
            return source, next(iter(keys.values()))
        if at == path.parent:
            return source, keys.get(path.name, "" if keys else path.name)
    return "", ""


def _mounts(
    pod: Mapping[str, Any], container: Mapping[str, Any]
) -> Iterator[tuple[PurePosixPath, str, Mapping[str, str]]]:
    """Yield a container's mounts of ConfigMaps: the path, the ConfigMap, and its keys by file name if listed."""
    volumes = {string(volume.get("name")): mapping(volume.get("configMap")) for volume in mappings(pod.get("volumes"))}
    for mount in mappings(container.get("volumeMounts")):
        volume = volumes.get(string(mount.get("name")), {})
        if source := string(volume.get("name")):
            items = {string(volume.get("path")): string(volume.get("key")) for volume in mappings(volume.get("items"))}
            if file := string(mount.get("subPath")):
                items = {file: items.get(file, file)}
            yield PurePosixPath(string(mount.get("mountPath"))), source, items


def _env(container: Mapping[str, Any]) -> dict[str, str | None]:
    return {
        string(variable.get("name")): None if variable.get("valueFrom") else string(variable.get("value"))
        for variable in mappings(container.get("env"))
    }
