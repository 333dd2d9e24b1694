"""A pod has an annotation that makes a container runtime add devices.

Container runtimes add the CDI devices that `cdi.k8s.io/` annotations name. NVIDIA's NRI plugin adds those of
`nvidia.cdi.k8s.io/`, in every namespace (nvidia-container-toolkit
cmd/nvidia-ctk-installer/container/runtime/nri/plugin.go). The device injectors of NRI, GKE and CRI-O read
`devices.nri.io`, `devices.gke.io`, and `devices.crio.io` with its older name. None of these devices is requested or
counted, and `NVIDIA_VISIBLE_DEVICES=void` does not stop them.

Container runtimes run as root and read annotations too, some of them only where CRI-O or containerd passes them on.
Whoever writes these becomes root on the node:

- Kata Containers takes files, programs and folders of its node from `io.katacontainers.`, and GPUs of a cloud's machine
  that nobody requested from `default_gpus`. Before 4.0 it reads its configuration, with the programs to start, from the
  file of the node that `config_path` names, and puts the folders that `sandbox_bind_mounts` names into the virtual
  machine. Before 3.31 it also takes `virtio_fs_extra_args` by default, with which a pod gets the node's root
  (CVE-2026-44210).
- crun appends the output of hooks to the file of the node that `run.oci.hooks.stderr` names.
- `org.systemd.property.` sets properties of the container's unit, such as its slice.
- gVisor takes its flags from `dev.gvisor.flag.` if it has `--allow-flag-override`, and the root of a container, or
  the cgroup of a pod, from `dev.gvisor.spec.` and `dev.gvisor.tar.`. It writes a container's memory or files into any
  folder of the node that `dev.gvisor.internal.checkpoint.path` or `….fscheckpoint.path` names.
- Kata Containers gives a pod the GPUs of the pod that `io.kubernetes.cri.sandbox-name` and `….sandbox-namespace` name.
  These are containerd's own notes. CRI-O passes on those of a pod.
- The hook that traces system calls writes the file of the node that `io.containers.trace-syscall` names.
- CRI-O keeps its notes about a pod under `io.kubernetes.cri-o.`, and the pod's own annotations replace them. After a
  restart it mounts the folders of the node that `ShmPath` and `ResolvPath` name (cri-o server/sandbox_run_linux.go).
- CRI-O mounts the pod's folder of /var/log/pods, writable, into the emptyDir that `link-logs.crio.io` names, or
  `io.kubernetes.cri-o.LinkLogs`. OpenShift's nodes allow it. A symbolic link there leads to any file of the node.

They are refused in pods that request a GPU, and in pods that nothing keeps off GPU nodes (the policy's guard). CRI-O
reads labels as it reads annotations, so labels with these names are refused too. `run.oci.handler` passes, and so do
the size of Kata's virtual machine, gVisor's `dev.gvisor.spec.mount.` and `dev.gvisor.internal.nvproxy`, and what
CRI-O's guide lets users write, such as `io.kubernetes.cri-o.userns-mode`.

Way out: remove the annotation, and request GPUs in `resources.limits`. CRI-O's annotation may name devices that lead
to no GPU, such as /dev/fuse.
"""

from collections.abc import Iterator

from webhook.catalog import device_annotations
from webhook.catalog.device_annotations import HARMLESS_DEVICES
from webhook.catalog.host_paths import DEVICE_FOLDERS
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.paths import joined, steps, within
from webhook.cel.policies import device_domain
from webhook.cel.write import any_of, array, begins, named, one_of
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy

SINCE = "0.1"

LOOKS_AT = ("device_annotations", "runtime_annotations")


def check(review: PodReview) -> Iterator[Finding]:
    """Flag annotations and labels that have a container runtime add devices, or act on the node as root."""
    for path, _, _, _ in review.exposure.device_annotations:
        yield Finding(
            path,
            f"this annotation makes the container runtime add devices; remove it, and {review.request_way}",
        )
    for path, _, _, _ in review.exposure.runtime_annotations if review.exposed else ():
        part = "label" if path[-2] == "labels" else "annotation"
        yield Finding(
            path,
            f"the container runtime reads this {part} as root, which gives control of the node and its GPUs; remove it"
            f"{review.agents_way}",
        )


def fallback(_: Policy) -> Iterator[Clause]:
    """Weaker: the fallback lets a device in CRI-O's lists pass if its path has `..` in it."""
    device = "x.split(':')[0].trim()"
    harmful = (
        f"[variables.annotations[k].split(',')].exists(list, size(list) > {device_annotations.MAX_DEVICES}"
        f" || list.exists(x, !x.contains('..') && [{steps(device)}].exists(steps, [{joined('steps')}].exists(path,"
        f" !({one_of('path', sorted(HARMLESS_DEVICES))} || {within('path', DEVICE_FOLDERS)})))))"
    )
    lists = any_of((f"d in {array(sorted(device_annotations.DEVICE_LISTS))}", begins("d", device_annotations.DOTTED)))
    adds = device_domain("d")
    yield Clause(
        f"!variables.annotations.exists(k, [k.split('/')[0]].exists(d, {adds} && (!{lists} || {harmful})))",
        "this annotation makes the container runtime add devices; remove it, and request GPUs in resources.limits",
        places=f"variables.annotations.filter(k, [k.split('/')[0]].exists(d, {adds})).join(', ')",
        asked=ANY_POD,
    )
    of_runtime = named("k", device_annotations.RUNTIME_ANNOTATIONS)
    for part, variable in (("annotation", "annotations"), ("label", "podlabels")):
        at_all = f"(variables.whole ? object.metadata.?{part}s.orValue({{}}) : variables.{variable})"
        yield Clause(
            f"!variables.exposed || !{at_all}.exists(k, {of_runtime})",
            f"the container runtime reads this {part} as root, which gives control of the node and its GPUs; remove it",
            places=f"{at_all}.filter(k, {of_runtime}).join(', ')",
            asked=ANY_POD,
        )
