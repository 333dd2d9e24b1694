"""A container may see GPUs that it did not request, because its image may ask for them.

Where the node's default runtime is NVIDIA's, or the pod names one of NVIDIA's runtime classes, a container gets the
GPUs that its environment names. An old image (with CUDA_VERSION and without NVIDIA_REQUIRE_CUDA) gets all GPUs of the
node (nvidia-container-toolkit internal/config/image). A variable in `env` takes precedence over the image and over
`envFrom`. So Slicewarden writes `NVIDIA_VISIBLE_DEVICES=void` into every container without a GPU request: in pods
where another container requests a GPU, in pods with another way to a GPU, and in pods that nothing keeps
off GPU nodes (the policy's guard). It never writes the variable into a container with a request, where it would hide
the GPU that the device plugin gives.

In a container with a GPU, and where the variable is `none` (the driver without a GPU), the image may still take the
switches between GPUs and the memory of other nodes' GPUs (NVIDIA_NVSWITCH and NVIDIA_IMEX_CHANNELS,
nvidia-container-toolkit internal/modifier/cdi.go). Slicewarden sets both to an empty value. It leaves the second one
alone in a container with a GPU if the policy says that the device plugin hands out channels (`gpus.imexChannels`).
Where the variable is `none`, the image may also take the node's devices of InfiniBand and GPUDirect (NVIDIA_MOFED,
NVIDIA_GDS and NVIDIA_GDRCOPY), so these get an empty value there.

Way out: leave the variables to Slicewarden. Or set NVIDIA_VISIBLE_DEVICES to void, and the first two of the others to
an empty value in a container with a GPU.
"""

from collections.abc import Iterator

from webhook.catalog.device_variables import (
    CLOSED,
    CLOSED_WITHOUT_GPU,
    DEVICE_VARIABLES,
    IMEX,
    NONE,
    VISIBLE,
    VOID,
)
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.write import all_of, any_of, text
from webhook.gpu.review import PodReview
from webhook.model import Finding, Fix
from webhook.policy.model import Policy

SINCE = "0.1"

LOOKS_AT = ("exposed",)

MENDS = True


def check(review: PodReview) -> Iterator[Finding]:
    """Flag containers without the variables that keep their image from devices that they did not request."""
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
                for name, value in (CLOSED if asks else CLOSED_WITHOUT_GPU).items()
                if (container.path, name) not in said and not (name == IMEX and handed_out)
            }
            if missing:
                opened = " and ".join(DEVICE_VARIABLES[name].opens for name in missing)
                yield Finding(
                    path,
                    f"the container does not set {' and '.join(missing)}, so its image may take {opened}",
                    (Fix(path, [{"name": name, "value": value} for name, value in missing.items()]),),
                    parts=tuple(missing),
                    left_out=True,
                )
        elif (container.path, VISIBLE) not in said:
            yield Finding(
                path,
                f"the container requests no GPU and does not set {VISIBLE}, so its image may take every GPU",
                (Fix(path, [{"name": VISIBLE, "value": VOID}]),),
                parts=(VISIBLE,),
                left_out=True,
            )


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact for pods that certainly may see a GPU."""
    asks = "size(variables.asks[i]) > 0"
    none = f"e.name == {text(VISIBLE)} && !has(e.valueFrom) && e.?value.orValue('') == {text(NONE)}"
    drives = f"c.?env.orValue([]).exists(e, {none})"
    closed = all_of(
        any_of(("true" if name == IMEX and policy.forms.imex_channels else "false", _says(name))) for name in CLOSED
    )
    off = all_of(map(_says, CLOSED_WITHOUT_GPU))
    others = f"{drives} ? {off} : {_says(VISIBLE)}"
    yield Clause(
        f"!variables.exposed || variables.containers.all(i, c, {asks} ? {closed} : {others})",
        f"a container sets neither {VISIBLE}, nor {' and '.join(CLOSED)} beside a GPU, so its image may take what it "
        "was not given; Slicewarden's mutating webhook writes them into what is created: it did not run, or the pod "
        "could see no GPU then, and has to be created again",
        asked=ANY_POD,
    )


def _says(name: str) -> str:
    return f"{text(name)} in variables.names[i]"
