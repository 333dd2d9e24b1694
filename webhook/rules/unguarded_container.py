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

from webhook.catalog.doors import CLOSED, DEVICE_VARIABLES, IMEX, NONE, VISIBLE, VOID
from webhook.gpu.review import PodReview
from webhook.model import Finding, Fix

MENDS = True

MENDED = "create it where Slicewarden's mutating webhook is in force, and undo none of its changes"


def check(review: PodReview) -> Iterator[Finding]:
    """Flag containers that say nothing of a variable by which their image may take what they did not ask for."""
    if not review.exposed:
        return
    variables = [each for each in review.exposure.variables if each.container]
    said = {(each.container.path, each.name) for each in variables if each.container}
    driven = {
        each.container.path for each in variables if each.container and (each.name, each.value) == (VISIBLE, NONE)
    }
    for container in review.subject.containers:
        path, asks = (*container.path, "env"), container.path in review.gpu_containers
        if asks or container.path in driven:
            handed_out = asks and review.policy.forms.imex_channels
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
