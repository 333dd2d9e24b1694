"""A pod mounts a path of its node that leads to GPUs.

Such paths are device files and the kernel's files about them (/dev, /proc, /sys), the sockets of the device plugin, of
MPS and of NVIDIA's daemons, CDI's descriptions of devices, the files of the kubelet and of the container runtime, and
files with which a writer becomes root on the node or gets its keys (/etc, /usr, /root, /home and others). With one of
these a container takes a GPU. A folder above such a path is the same. Some are harmless if no container can write them,
such as /etc/ssl/certs, /lib/modules and GKE's /home/kubernetes/bin/nvidia. `/sys` and `/proc/sys` have other file
systems below them, so they are harmless only with `recursiveReadOnly: Enabled`. A path of Windows is refused in any
mount.

Slicewarden makes some mounts harmless when a pod is created. Folders of other devices (/dev/infiniband, /dev/net and
/dev/bus/usb) and /usr/share/zoneinfo get `readOnly: true`: devices stay usable in a read-only mount. Whoever could
write there, and has CAP_MKNOD, could put a GPU in place of a device that a plugin gives out later. Read-only mounts of
/var/log get `recursiveReadOnly: IfPossible`, because a folder below may be a mount of its own. A mount with
a `mountPropagation` cannot have it, and is refused. Kubernetes 1.30 removes the field again, unless its feature gate
`RecursiveReadOnlyMounts` is on. So there such mounts are refused until an administrator lists /var/log under
`gpus.hostPaths`.

Containers may write only to folders of data: those below /mnt, /media, /srv and /tmp, folders at the root such as
/data, /scratch, /models and /nvme0, and a few others. Nodes start programs and read settings from all over /opt, /run
and /var/lib: systemd merges /var/lib/extensions into /usr (systemd-sysext(8)). A read-only mount of such a path passes,
unless its type is FileOrCreate or DirectoryOrCreate: the kubelet would make the file or folder that is not there.
/run/datadog with the type DirectoryOrCreate, which Datadog's webhook mounts, passes too.
The rule judges pods that request a GPU, and pods that nothing keeps off GPU nodes (the policy's guard).

A volume of a cloud's disk, `fc` or `iscsi` in a pod names a disk, which may be one of the node's own. With it a
container writes the node's files, so it is refused. So is `rbd`, whose file system the pod chooses: a kubelet of
Kubernetes 1.30 mounts it, and the type `fuse.sh` runs the disk's contents on the node. The same disk in a
PersistentVolume passes: an administrator makes it.

A read-only mount is refused if the container's `terminationMessagePath` is its path or below it: Kata Containers, where
it shares no file system, writes the container's message into the file of the node that is mounted there.

For a `gitRepo` volume the kubelet runs git as root on the node. Before Kubernetes 1.30.3 a pod's repository brings
hooks that git runs there (CVE-2024-10220), and in every release that mounts one it may be that of another pod
(CVE-2025-1767). So it is refused. An init container can clone into an `emptyDir`.

A server of `nfs` or `cephfs` is refused if it begins with a dash: no name does, and a program reads an option there. A
monitor of `cephfs` with a slash is refused too: it may be a path of the node. Write it as HOST:PORT.

The driver of a `csi` or `flexVolume` volume in a pod, and that of `azureFile`, mounts as root by what the pod says.
With the mount option `bind`, csi-driver-smb mounts a folder of the node, and the option may stand in a Secret that no
webhook sees. So such a volume is refused, unless its driver is known to mount only what it makes itself, as
secrets-store.csi.k8s.io and csi.cert-manager.io do. A PersistentVolume of the same driver passes: an administrator
writes it.

Way out: mount the volume read-only where the message says so, mount something else, or leave out the toleration that
lets the pod onto nodes with GPUs. For paths that your workloads need, such as a folder of data with another name
(`writable: true`) or those of GPUDirect-TCPX, an administrator lists them under `gpus.hostPaths` in the policy. An
administrator may list a driver under `gpus.volumeDrivers` if its installed release lets no tenant reach the node:
gcsfuse.csi.storage.gke.io from 1.24 on, k8s.csi.datadoghq.com from 1.3 on. System components can be exempted, by
namespace and service account.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from webhook.api.fields import entries
from webhook.api.fields import text as text_of
from webhook.api.jsonpatch import MAX_OPERATIONS
from webhook.api.pods import DEFAULT_MESSAGE, MESSAGE, Pod
from webhook.catalog import host_paths, volume_drivers
from webhook.catalog.host_paths import Access
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.paths import IF_POSSIBLE, NESTED, READABLE, leads_to_gpu, letters, steps, table
from webhook.cel.write import any_of, array, text
from webhook.gpu.exposure import HostPath, access_of
from webhook.gpu.review import PodReview
from webhook.model import Finding, Fix, Object
from webhook.policy.model import Policy
from webhook.text.words import listed, shown

SINCE = "0.1"

LOOKS_AT = ("host_paths", "created_paths", "message_paths", "node_disks", "clones", "mount_options", "volume_drivers")

MENDS = True


def check(review: PodReview) -> Iterator[Finding]:
    """Flag hostPath volumes that lead to GPUs: one finding for each that `/mutate` makes harmless, one for the rest."""
    volumes = review.exposure.host_paths
    if not review.exposed:
        return
    for disk in review.exposure.node_disks:
        yield Finding(
            disk.path,
            f"{disk.name} names a disk, by which the pod may control the node and its GPUs; claim the disk by a "
            f"PersistentVolumeClaim{review.agents_way}",
        )
    for path, name, _, _ in review.exposure.clones:
        yield Finding(
            path,
            f"for {name} the node runs git as root on what the pod names, by which the pod may control the node and "
            f"its GPUs; clone in an init container, into an emptyDir{review.agents_way}",
        )
    for path, name, value, _ in review.exposure.mount_options:
        dash = str(value).startswith(host_paths.OPTION)
        fault = (
            f"begins with a dash, as no {name}'s name does" if dash else "has a slash, so it may be a path of its node"
        )
        yield Finding(path, f"{name} {shown(value)} {fault}; name the {name}")
    for path, name, value, _ in review.exposure.volume_drivers:
        if value not in review.policy.forms.volume_drivers:
            yield Finding(
                path,
                f"{name} names the driver {shown(value)}, which may mount a folder of the node by what a "
                "pod says, with control of the node and its GPUs; claim the volume by a PersistentVolumeClaim, or have "
                f"an administrator list the driver under gpus.volumeDrivers{review.agents_way}",
                parts=(str(value),),
            )
    for made in review.exposure.created_paths:
        if not review.policy.forms.let_mount(made.name, made.access):
            yield Finding(
                made.path,
                f"hostPath {shown(made.name, quotes=False)} is no known folder of data, and its type makes a file or "
                "folder of root there if there is none, on which the node may act; use type File or Directory, or have "
                "an administrator list it under gpus.hostPaths",
                parts=(made.name,),
            )
    for path, name, value, _ in review.exposure.message_paths:
        if not review.policy.forms.let_mount(name, Access.WRITE):
            yield Finding(
                path,
                f"the container's terminationMessagePath is in {shown(value)}, where hostPath "
                f"{shown(name, quotes=False)} is mounted, so a runtime may write the message into the node's file; "
                f"name another terminationMessagePath{review.agents_way}",
                parts=(name,),
            )
    if not volumes:
        return
    found = [each for each in volumes if not review.policy.forms.let_mount(each.name, each.access)]
    mended = _mended(review.subject, found)
    for each, fixes in mended.items():
        parts = (f"{each.name} {each.access.name}",)
        yield Finding(each.path, f"{_harm([each])}; {_way_out([each])}", tuple(fixes), parts=parts)
    found = [each for each in found if each not in mended]
    if not found:
        return
    # The path that decides is named first: one above all others, then those that no mode of a mount makes harmless.
    found.sort(key=lambda each: (not _is_root(each), _harmless_read(each)))
    first, rest = (found[:1], found[1:]) if _is_root(found[0]) else (found, [])
    message = f"{_harm(first)}; {_way_out(first)}"
    if rest:
        names = listed([shown(each.name, quotes=False) for each in rest], _NAMED)
        message += f". {len(rest)} more {'is' if len(rest) == 1 else 'are'} refused ({names}): {_way_out(rest)}"
    yield Finding(
        review.subject.at("spec", "volumes"),  # and not the first of them, so that an update may remove it
        f"{message}{review.agents_way}",
        parts=tuple(f"{each.name} {each.access.name}" for each in found),
    )


def _mended(pod: Pod, found: list[HostPath]) -> Mapping[HostPath, Sequence[Fix]]:
    """Return the volumes that `/mutate` can make harmless, with the fixes of all their mounts."""
    named = {each.volume: each for each in found if _may_be_mended(each)}
    if not named or pod.mirror:
        return {}
    fixes: dict[HostPath, list[Fix]] = {each: [] for each in named.values()}
    less = dict[tuple[HostPath, Access, bool], Object | None]()  # a path is long, and has many mounts
    number = Counter[str]()  # of each list of containers: a patch with more fixes is refused
    for container in pod.containers:
        for index, mount in entries(container.spec, "volumeMounts", container.path):
            at = (*container.path, "volumeMounts", index)
            volume = named.get(text_of(mount, "name", at))
            if volume not in fixes:
                continue
            key = volume, access_of(mount), mount.get("mountPropagation") not in (None, "None")
            if key not in less:
                less[key] = _less(*key)
            value = less[key]
            if value is None:
                del fixes[volume]
            elif value and (not fixes[volume] or number[container.list_name] <= MAX_OPERATIONS):
                fixes[volume].append(Fix(at, value))
                number[container.list_name] += 1
    return fixes


def _may_be_mended(found: HostPath) -> bool:
    if found.access is Access.WRITE:
        return host_paths.only_opened(found.name)
    return found.access is Access.READ and not host_paths.leads_to_gpu(found.name, Access.READ_IF_POSSIBLE)


def _less(found: HostPath, access: Access, propagates: bool) -> Object | None:
    """Return what makes a mount harmless, without a change of what the container may do; None if nothing does.

    It is empty for a mount that is harmless.
    """
    if not host_paths.leads_to_gpu(found.name, access):
        return {}
    if host_paths.only_opened(found.name):
        return {"readOnly": True}
    if not propagates:
        return {"recursiveReadOnly": "IfPossible"}
    return None  # the API server allows it only without propagation: kubernetes pkg/apis/core/validation


def _is_root(found: HostPath) -> bool:
    return host_paths.normal(found.name).strip("/") == ""


def _harmless_read(found: HostPath) -> bool:
    """Whether the path harms nothing in a mount that nobody can write."""
    return not host_paths.leads_to_gpu(found.name, Access.READ_ALL)


def _harm(found: list[HostPath]) -> str:
    """Name paths, and say what they give to a pod."""
    names = [shown(each.name, quotes=False) for each in found]
    one = len(found) == 1
    if all(host_paths.unknown(each.name) for each in found):
        harm = f"{'is no known folder' if one else 'are no known folders'} of data, so a writer may control the node"
    elif all(host_paths.names_devices(each.name) for each in found):
        harm = f"{'exposes' if one else 'expose'} the node's devices"
    else:
        harm = f"{'gives' if one else 'give'} control of the node, its GPUs included"
    below = next(
        (f" ({below} is below {name})" for name, below in zip(names, map(_below, found), strict=True) if below), ""
    )
    return f"hostPath {'' if one else 'volumes '}{listed(names, _NAMED)} {harm}{below}"


_SETTINGS = (
    (Access.READ, "readOnly: true"),
    (Access.READ_IF_POSSIBLE, "readOnly: true and recursiveReadOnly: IfPossible, without mountPropagation,"),
    (Access.READ_ALL, "readOnly: true and recursiveReadOnly: Enabled"),
)
"""The settings of a mount that give each access at most."""

_NAMED = 5
"""Paths that a message names."""


def _below(found: HostPath) -> str:
    return host_paths.below(found.name)


def _way_out(found: list[HostPath]) -> str:
    ways, left = [], found
    for access, settings in _SETTINGS:
        some = [each for each in left if not host_paths.leads_to_gpu(each.name, access)]
        if some:
            ways.append(f"set {settings} on {_mounts(some, found)}")
            left = [each for each in left if host_paths.leads_to_gpu(each.name, access)]
    if left:
        ways.append("remove " + ("the others" if ways else "the volume" if len(found) == 1 else "the volumes"))
    if all(host_paths.unknown(each.name) for each in found):
        which = "it" if len(found) == 1 else "them"
        ways.append(f"or have an administrator list {which} under gpus.hostPaths with writable: true")
    return ", ".join(ways)


def _mounts(some: list[HostPath], found: list[HostPath]) -> str:
    if len(some) == len(found):
        return "every mount of it" if len(some) == 1 else "every mount of them"
    return f"every mount of {listed([shown(each.name, quotes=False) for each in some], 3)}"


def fallback(policy: Policy) -> Iterator[Clause]:
    """Weaker: a volume that no container mounts passes if a read-only mount of its path could be harmless.

    A read-only mount passes, too, if the kubelet would create its path, or if it has the container's message in it and
    one of the two paths has `..` in it.
    """
    below = "m.?recursiveReadOnly.orValue('')"
    reads = (
        f"m.?readOnly.orValue(false) && (letters.contains('{READABLE}')"
        f" || ({below} == 'Enabled' && letters.contains('{NESTED}'))"
        f" || ({below} in ['Enabled', 'IfPossible'] && letters.contains('{IF_POSSIBLE}')))"
    )
    access = (
        "({0}.?readOnly.orValue(false)"
        " ? {{'Enabled': 3, 'IfPossible': 2}}[?{0}.?recursiveReadOnly.orValue('')].orValue(1) : 0)"
    )
    at_least = f"{access.format('o')} <= {access.format('m')}"
    as_before = f"variables.kept.exists(k, k.?volumeMounts.orValue([]).exists(o, o.name == m.name && {at_least}))"
    yield Clause(
        "!variables.exposed || !(variables.whole && variables.host_paths.exists(name,"
        " [variables.host_paths[name]].exists(letters,"
        f" ![{', '.join(map(text, (READABLE, NESTED, IF_POSSIBLE)))}].exists(each, letters.contains(each))))"
        " || variables.containers.exists(c, c.?volumeMounts.orValue([]).exists(m, m.name in variables.host_paths"
        f" && [variables.host_paths[m.name]].exists(letters, !({reads})) && (variables.whole || !{as_before}))))",
        "a hostPath exposes the node's devices, gives control of the node, its GPUs included, or is no known folder of "
        "data; remove the volume, or mount it read-only where its page allows that",
        places="'volume ' + variables.host_paths.map(name, name).join(', ')",
        asked=ANY_POD,
        variables=(
            ("host_table", table(policy)),
            (
                "host_steps",
                "object.spec.?volumes.orValue([]).filter(v, has(v.hostPath))"
                f".transformMapEntry(i, v, {{v.name: v.hostPath.path.matches({text(host_paths.WINDOWS)}) ? []"  # as `/`
                f" : {steps('v.hostPath.path')}}})",
            ),
            (
                "host_letters",
                f"variables.host_steps.transformMap(name, steps, {letters('steps', 'variables.host_table', policy)})",
            ),
            (
                "host_paths",
                f"variables.host_letters.transformMap(name, letters, {leads_to_gpu('letters')}, letters)",
            ),
        ),
    )
    message, place = steps(f"c.?{MESSAGE}.orValue({text(DEFAULT_MESSAGE)})"), steps("m.mountPath")
    plain = f"!c.?{MESSAGE}.orValue('').contains('..') && !m.mountPath.contains('..')"
    yield Clause(
        "!variables.exposed || !variables.containers.exists(c, c.?volumeMounts.orValue([]).exists(m,"
        f" m.name in variables.host_paths && m.?readOnly.orValue(false) && {plain} && [{message}].exists(message,"
        f" [{place}].exists(place, size(place) <= size(message) && message.slice(0, size(place)) == place))))",
        "a container's terminationMessagePath is in a mount of a hostPath, so a runtime may write the message into the "
        "node's file; name another terminationMessagePath",
        asked=ANY_POD,
    )
    yield _refused(
        host_paths.NODE_DISKS,
        f"a volume of {' or '.join(host_paths.NODE_DISKS)} names a disk, by which the pod may control the node and its "
        "GPUs; claim the disk by a PersistentVolumeClaim",
    )
    yield _refused(
        host_paths.CLONES,
        f"for a volume of {' or '.join(host_paths.CLONES)} the node runs git as root on what the pod names; clone in "
        "an init container, into an emptyDir",
    )
    option = f"startsWith({text(host_paths.OPTION)})"
    single = [
        f"v.?{source}.?{name}.orValue('')"
        for source, names in host_paths.SERVERS.items()
        for name in names
        if name != host_paths.MONITORS
    ]
    monitors = f"v.?cephfs.?{host_paths.MONITORS}.orValue([])"
    yield Clause(
        "!variables.exposed || !variables.whole || !object.spec.?volumes.orValue([]).exists(v,"
        f" [{', '.join(single)}].exists(name, name.{option})"
        f" || {monitors}.exists(server, server.{option} || server.contains('/')))",
        "the server of a volume begins with a dash, or a monitor has a slash, as no name does; name it",
        asked=ANY_POD,
    )
    driven = f"object.spec.?volumes.orValue([]).filter(v, {_driven(policy)})"
    yield Clause(
        f"!variables.exposed || !variables.whole || size({driven}) == 0",
        "the driver of a volume may mount a folder of the node by what a pod says; claim the volume by a "
        "PersistentVolumeClaim, or have an administrator list the driver under gpus.volumeDrivers",
        places=f"'volume ' + {driven}.map(v, v.name).join(', ')",
        asked=ANY_POD,
    )


def _driven(policy: Policy) -> str:
    """Return whether volume `v` has a driver that may mount a folder of the node, and that the policy does not list."""
    listed = policy.forms.volume_drivers
    known = {source: array((*drivers, *listed)) for source, drivers in volume_drivers.SOURCES.items()}
    named = (f"v.?{source}.hasValue() && !(v.{source}.driver in {names})" for source, names in known.items())
    others = (f"v.?{source}.hasValue()" for source, name in volume_drivers.IN_TREE.items() if name not in listed)
    return any_of((*named, *others))


def _refused(sources: Iterable[str], message: str) -> Clause:
    """Make the clause that refuses volumes of some sources, whatever they say."""
    some = f"object.spec.?volumes.orValue([]).filter(v, {any_of(f'has(v.{source})' for source in sources)})"
    return Clause(
        f"!variables.exposed || !variables.whole || size({some}) == 0",
        message,
        places=f"'volume ' + {some}.map(v, v.name).join(', ')",
        asked=ANY_POD,
    )
