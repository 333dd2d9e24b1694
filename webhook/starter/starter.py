"""Makes a policy that fits a cluster.

Also lists the running pods that it would refuse, and the decisions that are left.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from webhook import rules
from webhook.api.fields import group_kind
from webhook.catalog import gpu_requests, node_labels
from webhook.catalog.names import Names
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.kinds import ec2_node_class
from webhook.facts.scaling import UNKNOWN_SHARING
from webhook.facts.snapshot import Facts
from webhook.gpu import device_classes
from webhook.memory import frameworks
from webhook.model import Object, Problem, Unusable
from webhook.policy import load
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy
from webhook.starter import evidence, inventory, scaled
from webhook.starter.agents import Fates, agents_of, fates_of
from webhook.starter.inventory import GPU, GPUNode, NodeGroup
from webhook.starter.plan import ANNOTATION, TRUST_LABEL, StarterPlan, doubts_of, plan_of
from webhook.starter.text import MAX_NAMED, Said, taint_command, text_of
from webhook.text.words import listed, several, shown


@dataclass(frozen=True)
class Starter:
    """A policy, the nodes that it was made for, and what happens to the pods that have GPUs if they are created again.

    `notes` list decisions and steps for the reader.
    """

    text: str
    policy: Policy
    groups: tuple[NodeGroup, ...]
    pools: tuple[str, ...]
    fates: Fates
    notes: tuple[str, ...]


def make(
    objects: Iterable[Object],
    source: str,
    *,
    name: str = "cluster",
    by_product: bool = True,
    no_tenants: Collection[str] = (),
    accelerators: Collection[str] = (),
) -> Starter:
    """Make a policy from the objects of facts; `no_tenants` are namespaces where no tenant may write.

    `accelerators` are those for which GKE may make nodes. Pools without nodes come from NodePools and machine sets.
    Text that tenants may have written is used only in comments and notes. Raises Unusable if no node has NVIDIA GPUs,
    or if one of `no_tenants` does not exist; the message names `source`.
    """
    objects = list(objects)
    firm, doubtful = evidence.sources(objects, no_tenants)
    nodes, facts = inventory.gpu_nodes(firm, no_tenants), Facts.of(objects)
    homes = inventory.homes(firm, no_tenants)
    coming = scaled.to_come(Facts.of(firm), accelerators, nodes, homes, by_product=by_product)
    nodes.extend(coming.nodes)
    missing = sorted({*no_tenants} - facts.namespaces.keys())
    if coming.notes and not nodes:
        raise Unusable(tuple(Problem(source, 0, note) for note in coming.notes))
    if wrong := f"there is no namespace {listed(missing, 3)}" if missing else "" if nodes else _nothing(objects):
        raise Unusable((Problem(source, 0, wrong),))
    plan = plan_of(firm, nodes, name, no_tenants, by_product=by_product)
    engine = Engine(_load(text_of(plan)), rules.walk())
    agents, odd = agents_of(firm, engine, Facts.of(firm))
    seeming, others = agents_of(doubtful, engine, facts)
    said = Said(
        doubts=doubts_of(objects, plan),
        seeming=seeming,
        strangers=(*odd, *others),
        fates=fates_of(objects, engine, facts),
    )
    text = text_of(plan, agents, said)
    policy = _load(text)
    notes = (*coming.notes, *_notes(plan, said), *_unread(plan, facts), *_foreign(objects), *_rivals(objects, nodes))
    return Starter(text, policy, plan.groups, plan.names, said.fates, (*notes, *_offered(policy, facts)))


def _offered(policy: Policy, facts: Facts) -> Iterator[str]:
    if found := [shown(resource, quotes=False) for _, resource in device_classes.unjudged(policy, facts)]:
        yield (
            f"device classes offer GPUs as {listed(found, 3)}, so pods request them unjudged; add the names to "
            "gpus.resources, next to its default, or take extendedResourceName out of the classes"
        )


def _rivals(objects: Sequence[Object], nodes: Sequence[GPUNode]) -> Iterator[str]:
    if found := [shown(name, quotes=False) for name in inventory.rivals(objects, nodes)]:
        yield (
            f"{len(found)} device plugins seem to run on one node, and one undoes what another shares: "
            f"{listed(found, 3)}; keep one"
        )


def _unread(plan: StarterPlan, facts: Facts) -> Iterator[str]:
    classes = facts.table(ec2_node_class.TABLE)
    for group, name in zip(plan.groups, plan.names, strict=True):
        for own in sorted({each.node.labels.get(node_labels.EC2_NODE_CLASS, "") for each in group.nodes}):
            if classes.get(own) == UNKNOWN_SHARING:
                yield (
                    f"EC2NodeClass {own} shares or divides the cards of pool {name} in a way that is not read, such as "
                    "MIG: correct `sharing` in the policy"
                )


def _foreign(objects: Sequence[Object]) -> Iterator[str]:
    if names := _of_other_makers(objects):
        domains = sorted({f"{name.partition('/')[0]}/*" for name in names})
        yield (
            f"nodes also offer {listed(names, 3)}, and no pool does, so pods that request it are refused; to leave "
            f"them to others, list under gpus.resources all of its default but {listed(domains, 3)}"
        )


def _of_other_makers(objects: Sequence[Object]) -> list[str]:
    return [name for name in inventory.others(objects) if name in Names(gpu_requests.RESOURCES)]


def _load(text: str) -> Policy:
    documents, problems = read(text, "policy init")
    if problems:
        raise RuntimeError(f"the policy that was made cannot be read: {problems[0]}")
    return load.load(documents, [rule.id for rule in rules.walk()], "policy init", frameworks=frameworks.names())


def _nothing(objects: Sequence[Object]) -> str:
    count = sum(group_kind(item) == ("", "Node") for item in objects)
    if not count:
        return "no nodes in it: take the facts again with `slicewarden facts --live`"
    if foreign := _of_other_makers(objects):
        return f"no node has GPUs of NVIDIA, but {listed(foreign, 3)}: Slicewarden shares NVIDIA's GPUs alone"
    return (
        f"none of {several(count, 'node')} has GPUs: no {GPU} or {GPU}.product is there; "
        "install NVIDIA's device plugin, then take the facts again; if an autoscaler makes such nodes, add its "
        "NodePools or machine sets to the facts, or --accelerators on GKE (docs/autoscalers.md)"
    )


def _notes(plan: StarterPlan, said: Said) -> Iterator[str]:
    if plan.guard is None and plan.everywhere:
        yield "every node has GPUs, so none is tainted, and the guard is everyPod"
    elif plan.guard is None:
        yield f"no taint is on all nodes with GPUs, so the guard is everyPod; to have a taint: {taint_command(plan)}"
    for group, name in zip(plan.groups, plan.names, strict=True):
        if group.shared and group.card is None:
            yield f"the memory of the cards of pool {name} is not known, so its pods have no cap; say it under `assume`"
    if late := {name: group.late for group, name in zip(plan.groups, plan.names, strict=True) if group.late}:
        labels = listed(sorted({key for keys in late.values() for key in keys}), 3)
        yield (
            f"only {labels} tells {'pool' if len(late) == 1 else 'pools'} {listed([*late], 3)} from others, and no "
            "autoscaler knows that before a node exists, so it may make none for their pods; give each kind of node a "
            "NodePool or a node group of its own"
        )
    if all(group.shared for group in plan.groups):
        yield "all GPUs are shared, so a pod of a namespace that is not granted trust is refused; grant it by label"
    if sharing := said.doubts.sharing:
        yield (
            f"pods of {several(len(sharing), 'namespace')} share cards today, and no label trusts them: "
            f"{listed(sharing, 3)}; to trust one: kubectl label namespace {sharing[0]} {TRUST_LABEL}={TRUSTED}"
        )
    if spaces := said.spaces:
        options = " ".join(f"--no-tenants {name}" for name in spaces[:MAX_NAMED])
        yield (
            f"agents and device plugins of {several(len(spaces), 'namespace')} are only in comments, since tenants "
            f"may have written them: {listed(spaces, 3)}; where no tenant may, run this again with {options}"
        )
    fates = said.fates
    if fates.moved:
        yield (
            f"{several(len(fates.moved), 'pod')} with a whole GPU would get a slice if created again: "
            f"{listed(fates.moved, 3)}; to keep a whole GPU, set the annotation {ANNOTATION}: {UNTRUSTED} in the "
            "template"
        )
    for pods, what in ((fates.refused, "be refused"), (fates.waiting, "wait"), (fates.elsewhere, "go to another pool")):
        if pods:
            yield f"{several(len(pods), 'pod')} with a GPU would {what} if created again: see the head of the policy"
