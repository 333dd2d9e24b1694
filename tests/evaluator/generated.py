"""Pods for a policy: most as honest tenants write them, and some with one way open."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.support import strategies
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy

Object = dict[str, Any]
Way = Callable[[st.DrawFn, Object], None]

POLICIES = ("sample.yaml", "cloud/policy.yaml", "inference/policy.yaml", "lab/policy.yaml", "university/policy.yaml")
"""The policies for which pods are generated."""

PATHS = (
    "/data",
    "/dev",
    "/dev/shm",  # noqa: S108 - a path of pods
    "//dev/./nvidia0",
    "/var/run/nvidia",
    "/run/nvidia-fabricmanager/socket",
    "/etc/ssl/certs",
    "/etc/ssl",
    "/dev/infiniband",
    "/dev/net/./tun",
    "/dev/shm/x",  # noqa: S108 - a path of pods
    "C:\\\\var",
    "//./pipe/docker_engine",
    "//localhost/c$",
    "/run/shm",
    "/run/shm/x",
    "/usr/share/zoneinfo",
    "/sys",
    "/sys/class/drm",
    "/proc/sys",
    "/",
    "/var/lib/kubelet/device-plugins",
    "/var/log",
    "/home/kubernetes/bin/nvidia/lib64",
    "/data1/a",
    "/nvme0",
    "/mnt",
    "/mnt/disks/ssd0",
    "/mnt/kubelet/pods",
    "/tmp/systemd-private-a",  # noqa: S108 - a path on nodes
    "/tmp/./a",  # noqa: S108 - a path on nodes
    "/var/log/journal",
    "/var/lib/extensions",
    "/run/extensions",
    "/opt/datasets",
    "/opt/app",
    "/srv",
)
VARIABLES = (
    *({"name": "NVIDIA_VISIBLE_DEVICES", "value": value} for value in ("all", "void", "none", "", "0", "void ")),
    {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "NVIDIA_GDS", "value": "enabled"},
    {"name": "NVIDIA_NVSWITCH", "value": "enabled"},
    {"name": "NVIDIA_IMEX_CHANNELS", "value": ""},
    {"name": "CUDA_VERSION", "value": "12"},
    {"name": "LD_PRELOAD", "value": "/a.so"},
    {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/a"},
    {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "10"},
    {"name": "NVSHARE_DEBUG", "value": "1"},
)
DRIVEN = (
    {"csi": {"driver": "smb.csi.k8s.io", "volumeAttributes": {"mountOptions": "guest,bind"}}},
    {"csi": {"driver": "secrets-store.csi.k8s.io"}},
    {"csi": {"driver": "csi.example.com"}},
    {"flexVolume": {"driver": "fstab/cifs", "options": {"networkPath": "a/../b"}}},
    {"flexVolume": {"driver": "csi.spiffe.io"}},
    {"azureFile": {"secretName": "a", "shareName": "b"}},
)
"""Volumes that a driver mounts by what the pod says."""
PLACES = (
    "/var/run/nvidia-container-devices/all",
    "/var//run/nvidia-container-devicesall",
    "/etc/ld.so.preload",
    "/etc",
    "/etc/./ld.so.conf.d/a",
    "/mps/nvidia.com/gpu/pipe",
    "/usr//local/vgpu",
    "/usr/local",
    "/data",
    "/nvidia-container/data",
)
ANNOTATIONS = (
    {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"},
    {"nvidia.cdi.k8s.io/pod": "a"},
    {"devices.crio.io": "/dev/fuse,/dev/nvidia0"},
    {"devices.crio.io": "/dev/fuse : /dev/fuse:rw"},
    {"io.kubernetes.cri-o.Devices.a": "/dev/fuse"},
    {"hami.io/vgpu-ids": "a"},
    {"hami.io/gpu-scheduler-policy": "binpack"},
    {"gpu-fraction": "0.5"},
    {"nvidia.com/container.main.gpu-memory.limit": "8Gi"},
    {"nvidia.com/container.main.gpu-memory.limit": "8Gi", "nvidia.com/container.main.gpus.devices": "all"},
    {"example.com/container.main.gpus.devices": "0"},
    {"nvidia.com/containers": "main", "example.com/gpus.devices": "all"},
    {"run.oci.hooks.stderr": "/etc/a"},
    {"run.oci.handler": "wasm"},
    {"dev.gvisor.flag.debug-log": "/etc/a"},
    {"dev.gvisor.flag.qdisc": "tbf"},
    {"io.containers.trace-syscall/main": "of:/etc/a"},
    {"io.kubernetes.cri-o.ShmPath": "/"},
    {"io.kubernetes.cri-o.ShmSize": "8Gi"},
    {"link-logs.crio.io": "logs"},
    {"shm-size.crio.io": "8Gi"},
    {"io.katacontainers.config.hypervisor.path": "/mnt/a"},
    {"io.katacontainers.config.hypervisor.paths": "a"},
    {"kubernetes.io/config.mirror": "a"},
)
LABELS = (
    {"io.kubernetes.cri-o.PrivilegedRuntime": "true"},
    {"io.kubernetes.cri-o.umask": "0022"},
    {"run.oci.hooks.stderr": "a"},
    {"app": "a"},
)


@st.composite
def pods(draw: st.DrawFn, policy: Policy, facts: Facts, often: Way | None = None) -> Object:
    """A pod in a namespace that the facts know, which asks for what some pool offers, or for nothing.

    A way may be open in nearly all pods.
    """
    pod: Object = draw(st.one_of(strategies.gpu_pods(), honest(policy), honest(policy), honest(policy)))
    pod["metadata"] |= {"namespace": draw(st.sampled_from([*sorted(facts.namespaces), "nowhere"]))}
    if draw(st.integers(0, 2)):
        pod["metadata"]["annotations"] = draw(
            st.sampled_from(({}, {policy.annotation: "trusted"}, {policy.annotation: "untrusted"}))
        )
    if draw(st.integers(0, 2)) == 0:
        draw(st.sampled_from(WAYS))(draw, pod)
    if often is not None and draw(st.integers(0, 15)):
        often(draw, pod)
    return pod


@st.composite
def honest(draw: st.DrawFn, policy: Policy) -> Object:
    """A pod that asks for one or two GPUs of a pool, and says little else."""
    names = [name.replace("*", "1g.10gb") for pool in policy.pools for name in pool.resources.patterns]
    amounts = st.sampled_from(("1", "1", "1", "2", "8"))
    sidecar: Object = {"name": "side", "image": "i", "restartPolicy": draw(st.sampled_from(("Always", None)))}
    main: Object = {"name": "main", "image": "i"}
    for container in (main, sidecar):
        if container is main or draw(st.integers(0, 7)) == 0:
            container["resources"] = {"limits": {draw(st.sampled_from(names)): draw(amounts)}}
    spec: Object = {"containers": [main], "serviceAccountName": draw(st.sampled_from(("default", "trainer")))}
    if draw(st.integers(0, 3)) == 0:
        spec["initContainers"] = [sidecar]
    if draw(st.integers(0, 5)) == 0:
        del main["resources"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": spec}


def _container(draw: st.DrawFn, pod: Object) -> Object:
    spec = pod["spec"]
    some: Object = draw(st.sampled_from([*(spec.get("initContainers") or []), *spec["containers"]]))
    return some


def _host_path(draw: st.DrawFn, pod: Object) -> None:
    reads = ({"readOnly": True, "recursiveReadOnly": each} for each in ("Enabled", "IfPossible", "Disabled"))
    mounted = draw(st.sampled_from((None, {}, {"readOnly": True}, *reads)))
    path = draw(st.sampled_from(PATHS))
    pod["spec"]["volumes"] = [{"name": "host", "hostPath": {"path": path}}]
    if mounted is not None:
        container = _container(draw, pod)
        container["volumeMounts"] = [{"name": "host", "mountPath": "/host", **mounted}]
        if draw(st.integers(0, 3)) == 0:
            container["terminationMessagePath"] = draw(st.sampled_from(("/host", "/./host/a", "/hosts", "/a/../host")))
    if draw(st.booleans()):
        _toleration(draw, pod)


def _driven(draw: st.DrawFn, pod: Object) -> None:
    pod["spec"]["volumes"] = [{"name": "own", **draw(st.sampled_from(DRIVEN))}]
    if draw(st.booleans()):
        _toleration(draw, pod)


def _variable(draw: st.DrawFn, pod: Object) -> None:
    container = _container(draw, pod)
    container["env"] = [*(container.get("env") or []), draw(st.sampled_from(VARIABLES))]


def _mount(draw: st.DrawFn, pod: Object) -> None:
    place = draw(st.sampled_from(PLACES))
    mounted = ({"volumeMounts": [{"name": "v", "mountPath": place}]}, {"terminationMessagePath": place})
    _container(draw, pod).update(draw(st.sampled_from(mounted)))


def _annotation(draw: st.DrawFn, pod: Object) -> None:
    before = pod["metadata"].get("annotations") or {}
    pod["metadata"]["annotations"] = {**before, **draw(st.sampled_from(ANNOTATIONS))}
    if draw(st.integers(0, 3)) == 0:
        pod["metadata"]["labels"] = draw(st.sampled_from(LABELS))


def _security(draw: st.DrawFn, pod: Object) -> None:
    names = st.sampled_from(("CAP_SYS_ADMIN", "sys_admin", "SYS_ADM\u0131N", "NET_ADMIN", "ALL", "IPC_LOCK"))
    _container(draw, pod)["securityContext"] = draw(
        st.one_of(st.just({"privileged": True}), st.builds(lambda name: {"capabilities": {"add": [name]}}, names))
    )
    if draw(st.booleans()):
        _toleration(draw, pod)


def _host(draw: st.DrawFn, pod: Object) -> None:
    pod["spec"][draw(st.sampled_from(("hostPID", "hostIPC", "hostNetwork")))] = True


def _toleration(draw: st.DrawFn, pod: Object) -> None:
    tolerations = (
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": "slicewarden.dev/pool", "operator": "Exists"},
        {"key": "slicewarden.dev/pool", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
    )
    pod["spec"]["tolerations"] = [draw(st.sampled_from(tolerations))]


def _field(draw: st.DrawFn, pod: Object) -> None:
    pod["spec"] |= draw(
        st.sampled_from(
            (
                {"nodeName": "node-1"},
                {"runtimeClassName": "nvidia"},
                {"resourceClaims": [{"name": "a", "resourceClaimName": "a"}]},
                {"nodeSelector": {"nvidia.com/gpu.present": "false"}},
            )
        )
    )


def turn(draw: st.DrawFn, pod: Object) -> None:
    """Who schedules the pod, whom it may evict, and in which queue it waits."""
    pod["spec"] |= draw(
        st.sampled_from(
            (*([{}] * 4), *([{"schedulerName": "kai-scheduler"}] * 2), {"priorityClassName": "urgent"}, {"priority": 5})
        )
    )
    queue = draw(st.sampled_from((*(["team-vision"] * 14), "other", "")))
    part = draw(st.sampled_from((*(["labels"] * 15), "annotations")))
    pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), "kueue.x-k8s.io/queue-name": queue}
    if draw(st.integers(0, 11)) == 0:
        pod["spec"]["resourceClaims"] = [{"name": "a", "resourceClaimName": "a"}]


def _from(draw: st.DrawFn, pod: Object) -> None:
    source = {"secretRef": {"name": "a"}, "prefix": draw(st.sampled_from(("", "APP_", "NV", "LD_P", "NVSHARE_X")))}
    _container(draw, pod)["envFrom"] = [source]


WAYS = (_host_path, _driven, _variable, _mount, _annotation, _security, _host, _toleration, _field, _from, turn)


@st.composite
def changes(draw: st.DrawFn, policy: Policy, facts: Facts) -> tuple[str, Object, Object]:
    """A pod and what an update makes of it, with the update's subresource."""
    old = draw(pods(policy, facts))
    new = {**old, "metadata": dict(old["metadata"]), "spec": dict(old["spec"])}
    what = draw(st.sampled_from(("", "status", "ephemeralcontainers", "ephemeralcontainers")))
    if what == "ephemeralcontainers":
        debug: Object = {"spec": {"containers": [{"name": "debug", "image": "i"}]}, "metadata": {}}
        if draw(st.booleans()):
            draw(st.sampled_from((_variable, _security, _mount, _from)))(draw, debug)
            new["spec"]["volumes"] = old["spec"].get("volumes")
        new["spec"]["ephemeralContainers"] = debug["spec"]["containers"]
        return what, old, new
    if draw(st.booleans()):
        _annotation(draw, new)
    else:
        new["metadata"]["annotations"] = draw(st.sampled_from(({}, {policy.annotation: "trusted"}, {"a": "b"})))
    if not what and draw(st.booleans()):
        added: Object = {"spec": {}}
        _toleration(draw, added)
        new["spec"]["tolerations"] = [*(old["spec"].get("tolerations") or []), *added["spec"]["tolerations"]]
    return what, old, new
