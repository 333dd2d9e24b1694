"""A pod has a spread or affinity constraint on a label that no node of its pool has.

The scheduler keeps such a pod waiting: a node without the `topologyKey` of a constraint with `DoNotSchedule`, or of a
required pod affinity, takes no pod (kubernetes pkg/scheduler/framework/plugins/podtopologyspread, interpodaffinity).
Before steering, other nodes may have had the label. With `minDomains` above the number of domains in the pool, the
scheduler places no more than `maxSkew` pods in each of them, and the others of a workload wait. The rule needs known
nodes of the pool, and only warns: a node with the label may be added.

Way out: use a label that the pool's nodes have, such as `kubernetes.io/hostname`. Or set `whenUnsatisfiable:
ScheduleAnyway`.
"""

from collections.abc import Iterator
from itertools import islice

from webhook.api.fields import entries, section, text
from webhook.api.lenient import mapping
from webhook.api.pods import Pod
from webhook.facts.kinds.node import Node
from webhook.gpu.review import PodReview
from webhook.memory.budget import nodes
from webhook.model import Finding, Object, Path
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("spread",)

MOST = 8
"""How many constraints of a pod are compared with the nodes: more than any pod needs."""


def check(review: PodReview) -> Iterator[Finding]:
    """Warn of required constraints that the known nodes of the pod's pool cannot meet."""
    pod, placement = review.subject, review.placement
    if placement is None or placement.pool is None or not placement.pool.has_nodes:
        return
    constraints = list(islice(_required(pod), MOST))
    known = [node for node, _ in nodes(placement.pool, review.facts)] if constraints else []
    for path, key, constraint in constraints if known else ():
        if not any(key in node.labels for node in known):
            yield Finding(
                path,
                f"no known node of pool {placement.pool.name} has the label {shown(key)}, so the pod waits for ever; "
                "use a label that they have, such as kubernetes.io/hostname",
                advice=True,
            )
        elif message := _too_few(constraint, {node.labels[key] for node in known if key in node.labels}, known, pod):
            yield Finding(path, f"pool {placement.pool.name} has {message}", advice=True)


def _required(pod: Pod) -> Iterator[tuple[Path, str, Object]]:
    """Yield the path, the key and the constraint of every topology that the scheduler may not pass over."""
    at = pod.at("spec")
    for index, one in entries(pod.spec, "topologySpreadConstraints", at):
        path = (*at, "topologySpreadConstraints", index)
        key = text(one, "topologyKey", path)
        if key and text(one, "whenUnsatisfiable", path) == "DoNotSchedule":
            yield (*path, "topologyKey"), key, one
    affinity = section(section(pod.spec, "affinity", at), "podAffinity", (*at, "affinity"))
    place, name = (*at, "affinity", "podAffinity"), "requiredDuringSchedulingIgnoredDuringExecution"
    for index, one in entries(affinity, name, place):
        path = (*place, name, index)
        if key := text(one, "topologyKey", path):
            yield (*path, "topologyKey"), key, {}


def _too_few(constraint: Object, domains: set[str], known: list[Node], pod: Pod) -> str:
    """Say that a workload has more pods than `minDomains` lets the scheduler place; empty if it does not."""
    least, skew, spec = constraint.get("minDomains"), constraint.get("maxSkew"), mapping(pod.whole.get("spec"))
    wanted = spec.get("replicas", spec.get("parallelism"))
    if not (isinstance(least, int) and isinstance(skew, int) and isinstance(wanted, int)):
        return ""
    room = len(domains) * skew
    if least <= len(domains) or wanted <= room:
        return ""
    return (
        f"{len(domains)} domains on {len(known)} nodes, fewer than minDomains {least}, so {room} of {wanted} pods "
        "run and the others wait; lower minDomains, or raise maxSkew"
    )
