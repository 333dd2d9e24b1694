"""A container sets a variable that makes a container toolkit give it devices.

`NVIDIA_VISIBLE_DEVICES=all` gives a container every GPU of its node, with or without a request: the variables in `env`
come after those of the device plugin, and the last of two takes effect (kubernetes pkg/kubelet kubelet_pods.go,
nvidia-container-toolkit internal/config/image). Related variables give the MIG configuration of GPUs, the memory of
other nodes' GPUs, and the switches between GPUs. The toolkits of AMD, Ascend and Moore Threads have a variable of their
own. Values that give nothing pass: an empty value, `void` for NVIDIA's and Ascend's toolkit, and `none` for NVIDIA's
and AMD's. NVIDIA_DRIVER_CAPABILITIES and CUDA_VISIBLE_DEVICES only narrow what was given.

Way out: remove the variable, and request GPUs in `resources.limits`.
"""

from collections.abc import Iterator

from webhook.catalog.device_variables import DEVICE_VARIABLES, VISIBLE
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.write import any_of, array, text
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("variables",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag values that give a container devices, and values that are unknown before the pod runs."""
    for path, name, value, container in review.exposure.variables:
        variable = DEVICE_VARIABLES[name]
        asks_here = container is not None and container.path in review.gpu_containers
        if variable.harmless is None or value in variable.harmless or (variable.asking and asks_here):
            continue
        opens = f"{name}={shown(value, quotes=False)} gives the container {variable.opens}"
        if value is None:
            opens = f"{name} (its value is not known before the pod runs) may give the container {variable.opens}"
        way = "and overrides the device plugin; remove it"
        if not asks_here:
            way = f"which it does not request; remove it, and {review.request_way}"
        yield Finding(path, f"{opens}, {way}{review.agents_way}")


def fallback(_: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    opens = []
    for each in DEVICE_VARIABLES.values():
        if each.harmless is not None:
            harmless = f"(!has(e.valueFrom) && e.?value.orValue('') in {array(sorted(each.harmless))})"
            asking = " || size(variables.asks[i]) > 0" if each.asking else ""
            opens.append(f"(e.name == {text(each.name)} && !({harmless}{asking}))")
    one = f"e.name in {array(DEVICE_VARIABLES)} && {any_of(opens)}"  # most variables have no name of the table
    opened = f"c.?env.orValue([]).exists(e, {one})"
    yield Clause(
        f"!variables.containers.exists(i, c, {opened})",
        f"a variable such as {VISIBLE} gives a container devices past the device plugin; remove it, and request GPUs "
        "in resources.limits",
        f"'container ' + variables.containers.transformList(i, c, {opened}, "
        f"c.name + ': env ' + c.env.filter(e, {one}).map(e, e.name).join(', ')).join('; ')",
        asked=ANY_POD,
    )
