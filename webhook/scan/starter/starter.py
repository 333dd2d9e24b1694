"""Makes a policy that fits a cluster, with what it would refuse of what runs, and what its reader has to decide."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from webhook import rules
from webhook.api.fields import group_kind
from webhook.catalog import gpu_requests
from webhook.catalog.names import Names
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.memory import frameworks
from webhook.model import Object, Problem, Unusable
from webhook.policy import load
from webhook.policy.model import UNTRUSTED, Policy
from webhook.scan import inventory
from webhook.scan.inventory import GPU, Group
from webhook.scan.starter.agents import agents_of, moved_of, refused_of
from webhook.scan.starter.plan import ANNOTATION, Plan, plan_of
from webhook.scan.starter.text import taint_command, text_of
from webhook.text.words import listed, several


@dataclass(frozen=True)
class Starter:
    """A policy, what it was made from, and what it would refuse of what runs.

    `refused` are lines about pods that hold GPUs. `notes` say what a reader has to decide or do.
    """

    text: str
    policy: Policy
    groups: tuple[Group, ...]
    pools: tuple[str, ...]
    default: str
    trusted: tuple[str, ...]
    refused: tuple[str, ...]
    notes: tuple[str, ...]


def make(objects: Iterable[Object], source: str, *, name: str = "cluster", by_product: bool = True) -> Starter:
    """Make a policy from the objects of facts. Raises Unusable where no node has GPUs of NVIDIA; `source` is named."""
    objects = list(objects)
    nodes = inventory.gpu_nodes(objects)
    if not nodes:
        raise Unusable((Problem(source, 0, _nothing(objects)),))
    plan = plan_of(objects, nodes, name, by_product=by_product)
    engine = Engine(_load(text_of(plan, (), ())), rules.walk())
    facts = Facts.of(objects)
    agents, strangers = agents_of(objects, engine, facts)
    refused = tuple(refused_of(objects, engine, facts))
    moved = tuple(moved_of(objects, engine, facts))
    text = text_of(plan, agents, strangers, refused, moved)
    return Starter(
        text,
        _load(text),
        plan.groups,
        plan.names,
        plan.default,
        plan.trusted,
        refused,
        tuple(_notes(plan, refused, moved)),
    )


def _load(text: str) -> Policy:
    documents, problems = read(text, "policy init")
    if problems:
        raise RuntimeError(f"the policy that was made cannot be read: {problems[0]}")
    return load.load(documents, [rule.id for rule in rules.walk()], "policy init", frameworks=frameworks.names())


def _nothing(objects: Sequence[Object]) -> str:
    count = sum(group_kind(item) == ("", "Node") for item in objects)
    if not count:
        return "no nodes in it: take the facts again with `slicewarden facts --live`"
    foreign = [name for name in inventory.others(objects) if name in Names(gpu_requests.RESOURCES)]
    if foreign:
        return f"no node has GPUs of NVIDIA, but {listed(foreign, 3)}: Slicewarden shares NVIDIA's GPUs alone"
    return (
        f"none of {several(count, 'node')} has GPUs: no {GPU} or {GPU}.product is there; "
        "install NVIDIA's device plugin, then take the facts again"
    )


def _notes(plan: Plan, refused: Sequence[str], moved: Sequence[str]) -> Iterator[str]:
    if plan.guard is None:
        yield f"no taint is on all nodes with GPUs, so the guard is every-pod; to have a taint: {taint_command(plan)}"
    for group, name in zip(plan.groups, plan.names, strict=True):
        if group.shared and group.card is None:
            yield f"the memory of the cards of pool {name} is not known, so no cap is written; say it under `assume`"
    if all(group.shared for group in plan.groups):
        yield "all GPUs are shared, so a pod of a namespace that is not granted trust is refused; grant it by label"
    if moved:
        yield (
            f"{several(len(moved), 'pod')} with a whole GPU would get a slice if created again: {listed(moved, 3)}; "
            f"to keep a whole GPU, set the annotation {ANNOTATION}: {UNTRUSTED} in the template"
        )
    if refused:
        yield f"{several(len(refused), 'pod')} with a GPU would be refused if created again: see the head of the policy"
