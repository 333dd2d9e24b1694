"""A container that asks for no GPU may see one.

On a node whose default runtime is NVIDIA's, and everywhere with one of its runtime classes, a container is given what
its environment names, and an image of old (one with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA) all of the node's
GPUs (nvidia-container-toolkit internal/config/image). An entry in `env` counts over the image and over `envFrom`, so
`NVIDIA_VISIBLE_DEVICES=void` is written into every container that asks for none: in pods of which another container
asks, in pods that name a door, and in those that nothing keeps off the nodes with GPUs, which is for the policy's
guard to say. Never into a container that asks: there it would hide what the device plugin gives.

Way out: leave it to Slicewarden, or set NVIDIA_VISIBLE_DEVICES to void.
"""

from collections.abc import Iterator

from webhook.doors import VISIBLE, VOID
from webhook.facts import Facts
from webhook.gpus import asking
from webhook.guard import exposed
from webhook.model import Finding, Fix
from webhook.openings import openings
from webhook.pods import Pod
from webhook.policy import Policy

MENDS = True


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag containers that neither ask for a GPU nor say that they see none, where one may be seen."""
    if not exposed(pod, policy, facts):
        return
    asks_for_one = asking(pod, policy)
    said = {each.container.path for each in openings(pod).variables if each.name == VISIBLE and each.container}
    for container in pod.containers:
        if container.path not in asks_for_one and container.path not in said:
            path = (*container.path, "env")
            yield Finding(
                path,
                f"no {VISIBLE}, and the container asks for no GPU, so its image may take what it likes; create it "
                "where Slicewarden's mutating webhook is in force, and undo none of its changes",
                (Fix(path, [{"name": VISIBLE, "value": VOID}]),),
                parts=(VISIBLE,),
            )
