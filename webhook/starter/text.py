"""Writes a policy as YAML, with comments, by the template `policy.yaml.j2`."""

import pkgutil
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import jinja2

from webhook import rules
from webhook.api.selectors import Requirement
from webhook.api.taints import Taint
from webhook.catalog import node_labels
from webhook.documents.goyaml_writer import flow
from webhook.facts.kinds.node import Node
from webhook.memory.budget import budget
from webhook.policy.model import ALONE, Card, Policy
from webhook.starter.agents import AgentWorkload, Fates
from webhook.starter.inventory import GPU, MIG, MPS, TIME_SLICING, WHOLE, GPUNode, NodeGroup
from webhook.starter.plan import Doubts, StarterPlan
from webhook.text.words import listed, one_line, several

SUGGESTED = Taint(GPU, "present", "NoSchedule")
"""The taint that GKE gives to its nodes with GPUs, and that the GPU Operator's components tolerate."""

MAX_NAMED = 10
"""Maximum objects or namespaces named in a comment."""


class Said(NamedTuple):
    """The texts that the policy has only in its comments.

    `seeming` are agents whose DaemonSets tenants may have written, and `strangers` are all other refused pods. The
    policy would refuse both. `fates` are of pods with GPUs.
    """

    doubts: Doubts = Doubts()
    seeming: tuple[AgentWorkload, ...] = ()
    strangers: tuple[AgentWorkload, ...] = ()
    fates: Fates = Fates()

    @property
    def spaces(self) -> list[str]:
        """The namespaces with agents, device plugins or labellers that tenants may have written."""
        labellers = (user.split(":")[2] for user in self.doubts.labellers)
        return sorted({*(each.namespace for each in self.seeming), *self.doubts.homes, *labellers})


class _Pool(NamedTuple):
    """A pool of the policy. `labels` and `expressions` select its nodes; `guards` are its taints with the guard's key.

    `cards` says how the nodes hand out their cards. `more_taints` are the other taints that all of them have.
    `host_ipc` is whether clients of its MPS need the IPC namespace of the node.
    """

    name: str
    group: NodeGroup
    nodes: list[str]
    products: str
    cards: str
    by_host: bool
    more_taints: list[str]
    labels: list[tuple[str, str]]
    expressions: list[Requirement]
    resources: tuple[str, ...]
    guards: list[Taint]
    host_ipc: bool


def text_of(plan: StarterPlan, agents: Sequence[AgentWorkload] = (), said: Said = Said()) -> str:  # noqa: B008 - it is immutable
    """Write the policy of a plan, with exemptions for agents, and with comments on everything else that was found."""
    pools = [_pool(group, name, plan) for group, name in zip(plan.groups, plan.names, strict=True)]
    strangers = (*said.seeming, *said.strangers)
    major, minor = max(rule.since for rule in rules.walk())
    return _template().render(
        plan=plan,
        said=said,
        release=f"{major}.{minor}",
        slices=max((group.replicas for group in plan.groups if group.shared), default=0),
        pools=pools,
        command=taint_command(plan),
        exempted=list(_named(agents)),
        strangers=strangers,
        offered=list(_named(strangers[:MAX_NAMED])),
        unsized=[pool.name for pool in pools if pool.group.uncapped],
        thin=[pool.name for pool in pools if _is_thin(pool.group)],
        alone=sorted({*plan.homes, *plan.systems} - {*ALONE}),
        read=sorted({*plan.homes, *(namespace for namespace, _ in plan.config_maps)}),
        most=MAX_NAMED,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=False,  # noqa: S701 - it writes YAML, whose values the filter `yaml` quotes
        finalize=lambda value: one_line(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "yaml": flow,
        "several": several,
        "listed": lambda names, most: listed([*names], most),
        "sorted": lambda names: sorted({*names}),  # Jinja's own ignores case
    }
    return environment.from_string((pkgutil.get_data("webhook.starter", "policy.yaml.j2") or b"").decode("utf-8"))


def _pool(group: NodeGroup, name: str, plan: StarterPlan) -> _Pool:
    words = {
        TIME_SLICING: f"cards shared in {group.replicas} slices by time-slicing",
        MPS: f"cards shared in {group.replicas} slices through MPS",
        MIG: "parts of cards by MIG",
        WHOLE: "whole cards",
    }
    guard = plan.guard.key if plan.guard else None
    single = [each for each in group.requirements if each.operator == "In" and len(each.values) == 1]
    return _Pool(
        name=name,
        group=group,
        nodes=[each.node.name for each in group.nodes],
        products=listed(group.products, 3) if group.products else "cards of an unknown product",
        cards=words[group.sharing],
        by_host=any(each.key == "kubernetes.io/hostname" for each in group.requirements),
        more_taints=sorted({str(taint) for taint in group.taints if taint.key != guard}),
        labels=[(each.key, min(each.values)) for each in single],
        expressions=[each for each in group.requirements if each not in single],
        resources=tuple(group.resources) or (GPU,),
        guards=sorted({taint for each in group.nodes for taint in each.taints if taint.key == guard}, key=str),
        host_ipc=all(each.node.labels.get(node_labels.GKE_STRATEGY) == MPS for each in group.nodes),
    )


def taint_command(plan: StarterPlan) -> str:
    """Return the command or the edit that taints the GPU nodes which lack the suggested taint.

    The nodes of an autoscaler may be gone tomorrow, so their taint belongs in the object that makes them. `kubectl
    taint` refuses a node that has another value under the key.
    """
    every = [each for group in plan.groups for each in group.nodes]
    bare = [each for each in every if not any(taint.key == SUGGESTED.key for taint in each.taints)]
    makers = {maker for each in bare if (maker := _maker(each))}
    nodes = [each.node for each in bare if not _maker(each)]
    parts = []
    if len(nodes) == sum(not each.maker for each in every) and _present(nodes):
        parts.append(f"kubectl taint nodes -l {node_labels.PRESENT}=true {SUGGESTED}")
    elif nodes:
        more = f", and {several(len(nodes) - MAX_NAMED, 'more node')}" if len(nodes) > MAX_NAMED else ""
        names = " ".join(node.name for node in nodes[:MAX_NAMED])
        parts.append(f"kubectl taint nodes {names} {SUGGESTED}{more}")
    if makers:
        parts.append(f"add {SUGGESTED} to spec.template.spec.taints of {listed(sorted(makers), 3)}")
    return "; ".join(parts)


def _maker(each: GPUNode) -> str:
    """Return the object that makes a node; empty if it is not known, as of one that exists and is not Karpenter's."""
    node_pool = each.node.labels.get(node_labels.KARPENTER)
    return each.maker or (f"NodePool {node_pool}" if node_pool else "")


def _present(nodes: Sequence[Node]) -> bool:
    """Whether there are nodes, and all of them have the GPU Operator's label of nodes with GPUs."""
    return bool(nodes) and all(node.labels.get(node_labels.PRESENT) == "true" for node in nodes)


def _named(agents: Iterable[AgentWorkload]) -> Iterator[tuple[str, AgentWorkload]]:
    """Name exemptions by account and namespace, each once."""
    seen: Counter[str] = Counter()
    for agent in agents:
        account = agent.names[0] if agent.account == "default" else agent.account
        name = re.sub("[^a-z0-9]+", "-", f"{agent.namespace}-{account}".lower())[:60].strip("-")
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}", agent


def _is_thin(group: NodeGroup) -> bool:
    card = group.card
    if group.sharing != TIME_SLICING or card is None:
        return False
    return not budget(Card(card.product, card.memory, group.replicas), Policy("", ())).enough
