"""A pod mounts a place of its node that leads to GPUs.

Device files and what the kernel tells of them (/dev, /proc, /sys), the sockets of the device plugin, of MPS and of
NVIDIA's daemons, CDI's descriptions of devices, the files of the kubelet and of the container runtime, and all that
makes its writer root on the node or holds its keys (/etc, /usr, /root, /home and their like): with one of these a
container takes a GPU, or has one given. A folder above such a place is the place. Some of them harm nothing while no
container can write them, such as /etc/ssl/certs and /lib/modules. Judged are pods that ask for a GPU, and those that
nothing keeps off the nodes with GPUs (the policy's guard).

Way out: mount the volume read-only where the message says so, mount something else, or leave out the toleration that
lets the pod onto nodes with GPUs. A part of the system is exempted in the policy, by namespace and service account.
"""

from collections.abc import Iterator

from webhook.catalog import doors
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.text.words import shown


def check(review: PodReview) -> Iterator[Finding]:
    """Flag hostPath volumes that lead to GPUs."""
    host_paths = review.exposure.host_paths
    if not host_paths or not review.exposed:
        return
    for path, name, value, _ in host_paths:
        if doors.harmless_unwritten(name):
            yield Finding(
                path,
                f"{shown(value)} of a node leads to its GPUs where it can be written; mount it read-only in every "
                "container, or remove the volume",
            )
        else:
            yield Finding(path, f"{shown(value)} of a node leads to its GPUs; remove the volume")
