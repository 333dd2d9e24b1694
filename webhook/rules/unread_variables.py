"""A container with a GPU takes variables from a Secret or ConfigMap that Slicewarden does not read.

`envFrom` takes every key of a ConfigMap or a Secret, and both can change until the container starts. If one of the
keys is `NVIDIA_VISIBLE_DEVICES`, it overrides the device plugin, as one in `env` would, and gives the container every
GPU of its node. Slicewarden cannot override it, because it does not know the plugin's value. A
container without a GPU may use `envFrom`: there Slicewarden writes `void` into `env`, which takes precedence. For a GPU
by a claim it does the same, but a variable such as `LD_PRELOAD` or `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` could still lift
the limits of the slice.

Way out: list the variables one by one under `env`. Or add a `prefix` with which no such variable begins, such as
`APP_`, if the program reads its variables by those names.
"""

from collections.abc import Iterator

from webhook.catalog.device_variables import LIMIT_VARIABLES, SINGLE_NAMES, VISIBLE
from webhook.cel.clauses import Clause
from webhook.cel.write import any_of, array
from webhook.gpu.review import PodReview
from webhook.model import Finding, Object
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("variables_from",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag entries of `envFrom` that may override the device plugin's variables."""
    for path, prefix, _, container in review.exposure.variables_from:
        if container is not None and container.path in review.sharing_containers:
            source = _source(container.spec["envFrom"][path[-1]] or {})  # the API server reads null as {}
            variable = _variable(prefix, overrides=container.path in review.gpu_containers)
            yield Finding(
                path,
                f"{source} may set {variable}; list the variables one by one under env, or add a prefix such as APP_ "
                "to their names",
            )


def _variable(prefix: str, *, overrides: bool) -> str:
    """Say which variable an entry of `envFrom` with this prefix may set, and what that leads to.

    The device plugin's variable can be overridden only where there is one: not for a GPU by a claim.
    """
    if not prefix and not overrides:
        return "variables by which limits are lifted"
    if overrides and VISIBLE.startswith(prefix):
        return f"{VISIBLE}, which overrides the device plugin"
    return f"a variable that begins with {shown(prefix, quotes=False)}, by which devices are opened or limits lifted"


def _source(entry: Object) -> str:
    """Name the Secret or ConfigMap of an entry of `envFrom`."""
    for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
        reference = entry.get(key)
        if isinstance(reference, dict) and reference.get("name"):
            return f"{kind} {shown(reference['name'])}"
    return "a Secret or ConfigMap"


def fallback(_: Policy) -> Iterator[Clause]:
    """Weaker: the fallback lets a container pass if a claim gives it its GPU."""
    names = array(SINGLE_NAMES)
    starts = array(LIMIT_VARIABLES.prefixes)
    may = any_of(
        (
            f"{names}.exists(n, n.startsWith(p))",
            f"{starts}.exists(n, n.startsWith(p) || p.startsWith(n))",
        )
    )
    opens = f"c.?envFrom.orValue([]).exists(from, [from.?prefix.orValue('')].exists(p, {may}))"
    yield Clause(
        f"!variables.containers.exists(i, c, size(variables.asks[i]) > 0 && {opens})",
        "envFrom may set NVIDIA_VISIBLE_DEVICES, which overrides the device plugin; list the variables one by one "
        "under env, or add a prefix such as APP_ to their names",
        places=f"'container ' + variables.containers.filter(c, {opens}).map(c, c.name).join(', ')",
    )
