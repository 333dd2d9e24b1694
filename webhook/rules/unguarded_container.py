"""A container may see GPUs, or what lies between them, that it did not ask for.

On a node whose default runtime is NVIDIA's, and everywhere with one of its runtime classes, a container is given what
its environment names, and an image of old (one with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA) all of the node's
GPUs (nvidia-container-toolkit internal/config/image). An entry in `env` counts over the image and over `envFrom`, so
`NVIDIA_VISIBLE_DEVICES=void` is written into every container that asks for none: in pods of which another container
asks, in pods that name a door, and in those that nothing keeps off the nodes with GPUs, which is for the policy's
guard to say. Never into a container that asks: there it would hide what the device plugin gives.

There, and where the variable is `none`, which gives the driver without a GPU, the image may still take the switches
between GPUs and the memory of other nodes' (NVIDIA_NVSWITCH and NVIDIA_IMEX_CHANNELS, nvidia-container-toolkit
internal/modifier/cdi.go), for which the device plugin has no word. Both are written with no value; the second is not
beside a GPU where the policy says that the device plugin hands out channels (`gpus.imexChannels`).

Way out: leave it to Slicewarden, or set NVIDIA_VISIBLE_DEVICES to void, and the two others to nothing beside a GPU.
"""

from collections.abc import Iterator

from webhook.api.pods import Pod
from webhook.catalog.doors import CLOSED, DEVICE_VARIABLES, IMEX, NONE, VISIBLE, VOID
from webhook.facts.snapshot import Facts
from webhook.gpu.exposure import openings
from webhook.gpu.guard import exposed
from webhook.gpu.requests import asking
from webhook.model import Finding, Fix
from webhook.policy.model import Policy

MENDS = True

MENDED = "create it where Slicewarden's mutating webhook is in force, and undo none of its changes"


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag containers that say nothing of a variable by which their image may take what they did not ask for."""
    if not exposed(pod, policy, facts):
        return
    asks_for_one = asking(pod, policy)
    variables = [each for each in openings(pod).variables if each.container]
    said = {(each.container.path, each.name) for each in variables if each.container}
    driven = {
        each.container.path for each in variables if each.container and (each.name, each.value) == (VISIBLE, NONE)
    }
    for container in pod.containers:
        path, asks = (*container.path, "env"), container.path in asks_for_one
        if asks or container.path in driven:
            handed_out = asks and policy.forms.imex_channels
            missing = {
                name: value
                for name, value in CLOSED.items()
                if (container.path, name) not in said and not (name == IMEX and handed_out)
            }
            if missing:
                opened = " and ".join(DEVICE_VARIABLES[name].opens for name in missing)
                beside = "its GPU" if asks else f"the driver, which {NONE} leaves to it"
                yield Finding(
                    path,
                    f"no {' and '.join(missing)}, so the image may take {opened} beside {beside}; {MENDED}",
                    (Fix(path, [{"name": name, "value": value} for name, value in missing.items()]),),
                    parts=tuple(missing),
                )
        elif (container.path, VISIBLE) not in said:
            yield Finding(
                path,
                f"no {VISIBLE}, and the container asks for no GPU, so its image may take what it likes; {MENDED}",
                (Fix(path, [{"name": VISIBLE, "value": VOID}]),),
                parts=(VISIBLE,),
            )
