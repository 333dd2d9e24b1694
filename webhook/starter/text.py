"""Writes a policy as YAML, with comments."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from webhook import rules
from webhook.api.selectors import Requirement
from webhook.api.taints import Taint
from webhook.catalog import node_labels
from webhook.documents.goyaml_scalars import plain
from webhook.engine.registration import ALONE
from webhook.memory.budget import budget
from webhook.policy.model import UNTRUSTED, Card, Policy
from webhook.starter.agents import NodeAgent
from webhook.starter.inventory import GPU, MIG, MPS, TIME_SLICING, WHOLE, NodeGroup
from webhook.starter.plan import ANNOTATION, TRUST_LABEL, Doubts, StarterPlan
from webhook.text.words import listed, several

SUGGESTED = Taint(GPU, "present", "NoSchedule")
"""The taint that GKE gives to its nodes with GPUs, and that the GPU Operator's components tolerate."""

MAX_NAMED = 10
"""Objects or namespaces that a comment names."""


class Said(NamedTuple):
    """What the policy says in comments alone.

    `seeming` have DaemonSets that tenants may have written, `strangers` are no agents; both would be refused. `refused`
    and `moved` name pods with GPUs.
    """

    doubts: Doubts = Doubts()
    seeming: tuple[NodeAgent, ...] = ()
    strangers: tuple[NodeAgent, ...] = ()
    refused: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()

    @property
    def spaces(self) -> list[str]:
        """The namespaces with agents, device plugins or labellers that tenants may have written."""
        labellers = (user.split(":")[2] for user in self.doubts.labellers)
        return sorted({*(each.namespace for each in self.seeming), *self.doubts.homes, *labellers})


def text_of(plan: StarterPlan, agents: Sequence[NodeAgent] = (), said: Said = Said()) -> str:  # noqa: B008 - it is immutable
    """Write the policy of a plan, with exemptions for agents, and comments on all else that was found."""
    lines = [*_head(plan, said.refused), *_trust_lines(plan, said), *_people(plan, said.doubts)]
    for group, name in zip(plan.groups, plan.names, strict=True):
        lines += _pool(group, name, plan)
    lines += [*_guard_lines(plan), *_exemptions(agents, (*said.seeming, *said.strangers)), *_memory(plan)]
    lines += [*_left_alone(plan, said.doubts), *_sharing(plan), *_rules()]
    return "\n".join(lines) + "\n"


def _head(plan: StarterPlan, refused: Sequence[str]) -> Iterator[str]:
    yield "# A policy for this cluster, made from its facts by `slicewarden policy init`. It is yours: edit it."
    yield "# Every key is explained in docs/policy.md. `slicewarden policy lint` finds mistakes in it."
    if refused:
        yield "#"
        yield f"# {several(len(refused), 'pod')} with a GPU would be refused if created again:"
        for line in refused[:MAX_NAMED]:
            yield f"#   {line}"
        if len(refused) > MAX_NAMED:
            yield f"#   and {len(refused) - MAX_NAMED} more: `slicewarden audit` lists them"
    yield "apiVersion: slicewarden.dev/v1alpha1"
    yield "kind: GPUSharingPolicy"
    yield f"metadata: {{name: {_quoted(plan.name)}}}"
    yield "spec:"
    major, minor = max(rule.since for rule in rules.walk())
    yield "  # The rules of later releases only record, until you name them under `rules` or raise this."
    yield f'  rulesAsOf: "{major}.{minor}"'
    yield ""


def _trust_lines(plan: StarterPlan, said: Said) -> Iterator[str]:
    shares = any(group.shared for group in plan.groups)
    yield "  # A trusted pod that asks for one GPU may share a card with others. All other pods get a GPU of their own."
    yield "  trust:"
    yield f"    annotation: {ANNOTATION}"
    if plan.default == "trusted":
        yield "    # A pod without the annotation asks to be trusted, so that it may share a card without saying so."
    else:
        yield "    # A pod without the annotation is untrusted: it gets a GPU of its own."
    yield f"    default: {plan.default}"
    if not shares and not plan.labelled:
        yield "    # No card is shared today. To allow it, let administrators label namespaces, and grant by the label:"
        yield f"    # grants: [{{namespaceSelector: {{matchLabels: {{{TRUST_LABEL}: trusted}}}}}}]"
        yield "    # Or by RBAC, for accounts with the ClusterRole slicewarden-trusted: grants: [{rbac: true}]"
        return
    yield "    grants:"
    yield "      # Namespaces with this label. Only administrators of this policy may write it:"
    yield f"      #   kubectl label namespace NAME {TRUST_LABEL}=trusted"
    yield f"      - namespaceSelector: {{matchLabels: {{{TRUST_LABEL}: trusted}}}}"
    if sharing := said.doubts.sharing:
        yield "      # Pods of these namespaces share cards today. Tenants may have made them; label those you trust."
        yield f"      #   {listed([_quoted(name) for name in sharing], MAX_NAMED)}"
        yield "      # A pod of theirs that asks for one GPU then gets a slice, also where it has a whole GPU today."
        yield f"      # To keep that, it needs the annotation {ANNOTATION}: {UNTRUSTED}."
    if moved := said.moved:
        words = "this pod" if len(moved) == 1 else f"these {len(moved):,} pods"
        yield f"      # If created again, {words} would get a slice for a whole GPU: {listed(moved, MAX_NAMED)}."


def _people(plan: StarterPlan, doubts: Doubts) -> Iterator[str]:
    yield ""
    yield "  # Who may change labels that grant trust, labels of nodes, and sharing configurations: add your team."
    yield "  administrators:"
    yield f"    groups: {_flow(plan.administrators)}"
    if plan.labellers:
        yield ""
        yield "  # Who else writes the labels of nodes by which pools are told apart."
        yield "  nodeLabellers:"
        yield "    users:"
        yield from (f"      - {_quoted(user)}" for user in plan.labellers)
    if doubts.labellers:
        yield ""
        yield "  # These accounts seem to run what labels nodes, and tenants may have written that. Name those that do:"
        yield "  # nodeLabellers:"
        yield "  #   users:"
        yield from (f"  #     - {_quoted(user)}" for user in doubts.labellers[:MAX_NAMED])
    yield ""
    yield "  # A trusted pod that asks for one GPU belongs in a shared pool where there is one, every other pod in the"
    yield f"  # first pool that takes it; annotate {ANNOTATION}: untrusted for a whole GPU."
    yield "  pools:"


def _pool(group: NodeGroup, name: str, plan: StarterPlan) -> Iterator[str]:
    nodes = [each.node.name for each in group.nodes]
    words = {
        TIME_SLICING: f"cards shared in {group.replicas} slices by time-slicing",
        MPS: f"cards shared in {group.replicas} slices through MPS",
        MIG: "parts of cards by MIG",
        WHOLE: "whole cards",
    }
    products = listed(group.products, 3) if group.products else "cards of an unknown product"
    yield f"    # {several(len(nodes), 'node')} ({listed(nodes, 3)}) with {products}: {words[group.sharing]}."
    if any(requirement.key == "kubernetes.io/hostname" for requirement in group.requirements):
        yield "    # No label tells these nodes from the others: give them one, and select by it."
    own = sorted({str(t) for t in group.taints if plan.guard is None or t.key != plan.guard.key})
    if own:
        yield f"    # The nodes also have the taint {listed(own, 3)}: pods that belong there tolerate it themselves."
    yield f"    - name: {_quoted(name)}"
    yield f"      sharing: {group.sharing}"
    yield f"      trust: {'[trusted]' if group.shared else '[trusted, untrusted]'}"
    yield "      nodes:"
    single = [r for r in group.requirements if r.operator == "In" and len(r.values) == 1]
    if single:
        yield "        matchLabels:"
        yield from (f"          {_quoted(r.key)}: {_quoted(next(iter(r.values)))}" for r in single)
    if len(single) < len(group.requirements):
        yield "        matchExpressions:"
        yield from (f"          - {_expression(r)}" for r in group.requirements if r not in single)
    yield f"      resources: {_flow(group.resources or (GPU,))}"
    if plan.guard:
        yield "      tolerations:"
        taints = {t for each in group.nodes for t in each.taints if t.key == plan.guard.key}
        yield from (f"        - {_toleration(taint)}" for taint in sorted(taints))
    if not group.shared:
        yield "      # The most that a node of the pool has."
        yield f"      maxRequest: {group.largest}"
    elif card := group.card:
        yield "      # The smallest card, for as long as no label of a node says what it has."
        product = f"product: {_quoted(card.product)}, " if card.product else ""
        yield f"      assume: {{{product}memory: {card.memory}Mi, replicas: {group.replicas}}}"
    else:
        yield "      # The memory of the card is not known, so no cap can be written. Say it here:"
        yield f"      # assume: {{memory: 16Gi, replicas: {group.replicas}}}"
    yield ""


def _expression(requirement: Requirement) -> str:
    values = f", values: {_flow(sorted(requirement.values))}" if requirement.values else ""
    return f"{{key: {_quoted(requirement.key)}, operator: {requirement.operator}{values}}}"


def _toleration(taint: Taint) -> str:
    if taint.value:
        return f"{{key: {_quoted(taint.key)}, operator: Equal, value: {_quoted(taint.value)}, effect: {taint.effect}}}"
    return f"{{key: {_quoted(taint.key)}, operator: Exists, effect: {taint.effect}}}"


def _guard_lines(plan: StarterPlan) -> Iterator[str]:
    if plan.guard:
        yield "  # All nodes with GPUs have this taint. It keeps pods that ask for no GPU from seeing one."
        yield f"  guard: {{taint: {{key: {_quoted(plan.guard.key)}}}}}"
    else:
        yield "  # No taint is on all nodes with GPUs, so every pod is judged, and is told that it sees no GPU."
        yield "  # Cheaper, and better: taint these nodes, tolerate the taint in every pool, and name it here."
        yield f"  #   {taint_command(plan)}"
        yield f"  #   guard: {{taint: {{key: {SUGGESTED.key}}}}}"
        yield "  guard: every-pod"
    yield ""


def taint_command(plan: StarterPlan) -> str:
    """Return the command that gives all nodes with GPUs the suggested taint."""
    nodes = [each.node for group in plan.groups for each in group.nodes]
    if all(node.labels.get(node_labels.PRESENT) == "true" for node in nodes):
        return f"kubectl taint nodes -l {node_labels.PRESENT}=true {SUGGESTED}"
    names = [node.name for node in nodes]
    more = " ..." if len(names) > MAX_NAMED else ""
    return f"kubectl taint nodes {' '.join(names[:MAX_NAMED])}{more} {SUGGESTED}"


def _exemptions(agents: Sequence[NodeAgent], strangers: Sequence[NodeAgent]) -> Iterator[str]:
    if agents:
        yield "  # Agents that run today, and that the named rules would refuse. Findings on them are only recorded."
        yield "  # Users who can create pods in such a namespace can use its exemption: let no tenant do so."
        yield "  exemptions:"
        for name, agent in _named(agents):
            yield from _exemption(name, agent, "    ")
    if strangers:
        yield f"  # {several(len(strangers), 'account')} with pods that would be refused, which tenants may have made."
        yield f"  # If you trust one, move its entry to {'the list above' if agents else '`exemptions:`'}:"
        for name, agent in _named(strangers[:MAX_NAMED]):
            yield from _exemption(name, agent, "    # ")
    if agents or strangers:
        yield ""


def _named(agents: Iterable[NodeAgent]) -> Iterator[tuple[str, NodeAgent]]:
    """Name exemptions by account and namespace, each once."""
    seen: Counter[str] = Counter()
    for agent in agents:
        account = agent.names[0] if agent.account == "default" else agent.account
        name = re.sub("[^a-z0-9]+", "-", f"{agent.namespace}-{account}".lower())[:60].strip("-")
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}", agent


def _exemption(name: str, agent: NodeAgent, indent: str) -> Iterator[str]:
    yield f"{indent}- name: {_quoted(name)}"
    yield f"{indent}  reason: {_quoted('runs ' + listed(sorted(set(agent.names)), 3) + '; say why it needs its node')}"
    yield f"{indent}  system: true"
    yield f"{indent}  namespaces: {_flow([agent.namespace])}"
    default = "  # give it an account of its own" if agent.account == "default" else ""
    yield f"{indent}  serviceAccounts: {_flow([agent.account])}{default}"
    if agent.rules:
        yield f"{indent}  rules: {_flow(agent.rules)}"


def _memory(plan: StarterPlan) -> Iterator[str]:
    thin = [name for group, name in zip(plan.groups, plan.names, strict=True) if _is_thin(group)]
    if thin:
        yield f"  # The slices of pool {listed(thin, 3)} are too small for a memory cap, so time-slicing has none."
        yield "  # To have caps, share the cards into fewer slices and remove this."
        yield "  memory: {sharing: [mps]}"
        yield ""


def _is_thin(group: NodeGroup) -> bool:
    card = group.card
    if group.sharing != TIME_SLICING or card is None:
        return False
    return not budget(Card(card.product, card.memory, group.replicas), Policy("", ())).enough


def _left_alone(plan: StarterPlan, doubts: Doubts) -> Iterator[str]:
    homes = [name for name in plan.homes if name not in ALONE]
    if homes:
        yield "  # No pod here is ever judged, so that GPUs come up without the webhook. Let no tenant create one."
        yield f"  leaveAlone: {_flow(homes)}"
    if doubts.homes:
        yield "  # These seem to have a device plugin, and tenants may have written that. Where none may, name them"
        yield "  # under `leaveAlone`, and under `sharing.namespaces`, where configurations are read:"
        yield f"  #   {listed([_quoted(name) for name in doubts.homes], MAX_NAMED)}"
    if homes or doubts.homes:
        yield ""


def _sharing(plan: StarterPlan) -> Iterator[str]:
    most = max((group.replicas for group in plan.groups if group.shared), default=0)
    if not plan.homes and most <= 8:
        return
    yield "  # Where NVIDIA's device plugin runs, and what its sharing configurations may say."
    yield "  sharing:"
    if plan.homes:
        yield f"    namespaces: {_flow(plan.homes)}"
    if most:
        yield "    # The most slices of a card today, or more."
        yield f"    maxReplicas: {max(most, 2)}"
    if plan.config_maps:
        yield "    configMaps:"
        yield from (
            f"      - {{namespace: {_quoted(place)}, name: {_quoted(name)}}}" for place, name in plan.config_maps
        )
    yield ""


def _rules() -> Iterator[str]:
    yield "  # The action on findings: Deny, Warn or Audit. `slicewarden rules` lists the rules."
    yield "  rules:"
    yield '    "*": Deny'


def _flow(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, values))}]"


def _quoted(text: str) -> str:
    """Write a text as YAML within a flow map, in quotes where it needs them.

    YAML has no surrogates: what JSON writes as two of them is one escape there.
    """
    bare = text != "" and isinstance(plain(text), str) and text == text.strip() and text[:1].isalnum()
    if bare and text.isascii() and text.isprintable() and not set(text) & set("{}[],&#:;'\"\\`|>%@!?"):
        return text
    return _PAIR.sub(lambda pair: "\\U" + format(ord(json.loads('"' + pair[0] + '"')), "08x"), json.dumps(text))


_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
"""Two surrogates as JSON writes them."""
