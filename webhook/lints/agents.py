"""Lints about the settings for the agent in a pool (`memoryLimit`, `node`)."""

from collections.abc import Iterator

from webhook.api.lenient import mapping, sequence
from webhook.deviceplugin.usage import some
from webhook.facts import images
from webhook.facts.kinds.node import Node
from webhook.lints.base import Linted, LintFinding, Table, at
from webhook.memory.driver.nodes import LABEL, SELECTED, STEERING, hindrances, selected
from webhook.model import Action
from webhook.policy.model import FIRST_COME, OFF, TURNS
from webhook.policy.scopes import NAME_LABEL

NAMESPACE = "slicewarden-node"
"""Where components/agent runs."""

USUAL_BOUND = 20
"""Seconds of freeze that a liveness probe with default settings tolerates: it may fail twice, 10 s apart."""


def agent_without_effect(of: Linted) -> Iterator[LintFinding]:
    """A pool has settings for the agent of its nodes, but another part of the policy makes them ineffective.

    If no exemption covers the namespace `slicewarden-node`, the policy refuses the agent's pods, because they have the
    node's PIDs and all of its GPUs. Without the agent there are no driver limits, evictions or turns. Settings of turns
    have no effect while the mode is Off, and `turnSeconds` has an effect only with the mode Turns.

    Way out: copy the exemption from the sample policy, and remove the settings that have no effect.
    """
    labels = {NAME_LABEL: NAMESPACE}
    exempt = any(each.scope.reaches(NAMESPACE, labels) for each in of.policy.exemptions if each.until is None)
    specs = [mapping(each) for each in sequence(of.spec.get("pools"))]
    for (path, pool), spec in zip(at("pools", of.policy.pools), specs, strict=True):
        node = mapping(spec.get("node"))
        if (node or pool.driver_limits) and not exempt:
            yield LintFinding(
                (*path, "node") if node else (*path, "memoryLimit"),
                f"needs the agent, and no exemption covers namespace {NAMESPACE}, so the agent's own pods are refused; "
                "add the exemption of the sample policy",
            )
        words, mode = mapping(node.get("contention")), pool.contention.mode
        if mode == OFF and len(words) > 1:
            yield LintFinding(
                (*path, "node", "contention"), "has mode Off, so its other settings have no effect; remove them"
            )
        if mode == FIRST_COME and "turnSeconds" in words:
            where = (*path, "node", "contention", "turnSeconds")
            yield LintFinding(where, "has no effect with mode FirstCome; remove it, or set mode: Turns")


def late_driver_limit(of: Linted) -> Iterator[LintFinding]:
    """Only the agent sets the driver's limits of a pool, after its containers have started.

    From the start of a container until then its processes may take the whole GPU. Variables of the container set the
    limit before its start, through a hook of NVIDIA's container toolkit from 1.20.1 on. Where the hook cannot set it,
    the container does not start. So the variables are written only if the pool selects its nodes by the label
    `slicewarden.dev/memory-limits: "true"`, which you give to nodes with driver R615 or newer and cgroup v2, and if no
    known node of the pool contradicts it: by the driver's version in GPU Feature Discovery's labels, or by MIG devices.
    Pods that the rule unsteered-pod does not keep on the pool's nodes get none either.

    Way out: label the nodes that can set limits, and select the pool's nodes by that label. Move other nodes to a pool
    without it. Let `unsteered-pod` deny.
    """
    for path, pool, found in of.pools:
        if not pool.driver_limits:
            continue
        if not selected(pool):
            there = [node for node in found if not SELECTED.matches(node.labels)]
            lacking = f"; {some(there)} lacks it" if there else ""
            yield LintFinding(
                (*path, "memoryLimit"),
                f"is set by the agent after a container's start, because pool {pool.name} does not select its nodes by "
                f"{SELECTED}{lacking}",
            )
            continue
        if (action := of.policy.action(STEERING)) is not Action.DENY:
            yield LintFinding(
                (*path, "memoryLimit"),
                f"is set by the agent after a container's start, because the action of {STEERING} is {action.value}, "
                "and pods may run on other nodes; set it to Deny",
            )
        groups: dict[str, list[Node]] = {}
        for each in hindrances(pool, of.facts):
            groups.setdefault(each.why, []).append(each.node)
        for why, whom in sorted(groups.items()):
            yield LintFinding(
                (*path, "nodes"),
                f"selects {some(whom)}, which {why}, so the agent sets the driver's limits after a container's start; "
                f"remove {LABEL} there",
            )


def unlisted_images(of: Linted) -> Iterator[LintFinding]:
    """A pool warns about or refuses images that are in no list, and no list exists.

    Only an image whose digest is in a list of images is known to set no wider limit of the driver. Without a list,
    `imageLimits` warns about each pod of the pool, or refuses it.

    Way out: write a list with `slicewarden facts --images`, and apply it in a namespace of `sharing.namespaces`. Until
    then leave `imageLimits` out.
    """
    namespaces = sorted(of.policy.sharing_namespaces)
    for path, pool, _ in of.pools:
        if pool.image_limits is not None and not images.record_limits(of.facts, namespaces):
            does = "refuses" if pool.image_limits is Action.DENY else "warns of"
            yield LintFinding(
                (*path, "imageLimits"),
                f"{does} every pod of pool {pool.name}, because no list of images says which limits of the driver they "
                "set; write one with slicewarden facts --images",
            )


def turn_longer_than_probes(of: Linted) -> Iterator[LintFinding]:
    """A turn is longer than other containers may be frozen.

    A frozen container is thawed when its time is over, even in the middle of another container's turn; then both use
    the GPU at once. Its time is `longestSeconds`, or less if its liveness and startup probes tolerate less: 20 s by
    Kubernetes' defaults.

    Way out: set `turnSeconds` to less than `longestSeconds`, and to at most 20 unless the pods' probes tolerate more.
    """
    for path, pool in at("pools", of.policy.pools):
        rules = pool.contention
        if rules.mode != TURNS:
            continue
        where = (*path, "node", "contention")
        if rules.turn >= rules.longest:
            yield LintFinding(
                where,
                f"a turn has {rules.turn} s, and a pod may be frozen for at most {rules.longest} s; set turnSeconds to "
                "less than longestSeconds",
            )
        elif rules.turn > USUAL_BOUND:
            yield LintFinding(
                where,
                f"a turn has {rules.turn} s, and a pod with a usual liveness probe may be frozen for at most "
                f"{USUAL_BOUND} s; set turnSeconds to at most {USUAL_BOUND}",
            )


LINTS: Table = {
    agent_without_effect: Action.WARN,
    late_driver_limit: Action.WARN,
    unlisted_images: Action.WARN,
    turn_longer_than_probes: Action.WARN,
}
