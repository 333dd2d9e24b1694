"""Writes a policy, and tests of it, that fit a cluster: what `slicewarden policy init` prints."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from webhook import rules
from webhook.api import admission
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.pods import POD
from webhook.api.selectors import Requirement
from webhook.catalog import device_variables, gpu_requests, names, node_labels
from webhook.documents import goyaml
from webhook.documents.documents import read
from webhook.documents.goyaml_scalars import plain
from webhook.engine.engine import Engine
from webhook.engine.registration import left_alone
from webhook.facts.snapshot import Facts
from webhook.memory import frameworks
from webhook.memory.budget import budget
from webhook.model import Action, Object, Problem, Unusable
from webhook.policy import load
from webhook.policy.model import Card, Policy
from webhook.scan import inventory
from webhook.scan.inventory import GPU, MIG, MPS, TIME_SLICING, WHOLE, GPUNode, Group, Taint
from webhook.scan.reduced import LABELLER
from webhook.text.words import listed, several

TRUST_LABEL, ANNOTATION = "slicewarden.dev/trust", "slicewarden.dev/trust"

SUGGESTED = Taint(GPU, "present", "NoSchedule")
"""The taint that GKE gives to its nodes with GPUs, and that the GPU Operator's components tolerate."""

MAX_NAMED = 10
"""Objects or namespaces that a comment names."""


class Agent(NamedTuple):
    """What runs as one service account of a namespace, and which rules would refuse it; no rules stand for all."""

    namespace: str
    account: str
    names: tuple[str, ...]
    rules: tuple[str, ...]


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
    plan = _plan(objects, nodes, name, by_product=by_product)
    engine = Engine(_load(_text(plan, (), ())), rules.walk())
    facts = Facts.of(objects)
    agents, strangers = _agents(objects, engine, facts)
    refused = tuple(_refused(objects, engine, facts))
    text = _text(plan, agents, strangers, refused)
    return Starter(
        text,
        _load(text),
        plan.groups,
        plan.names,
        plan.default,
        plan.trusted,
        refused,
        tuple(_notes(plan, refused)),
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
    foreign = [name for name in inventory.others(objects) if name in names.Names(gpu_requests.RESOURCES)]
    if foreign:
        return f"no node has GPUs of NVIDIA, but {listed(foreign, 3)}: Slicewarden shares NVIDIA's GPUs alone"
    return (
        f"none of {several(count, 'node')} has GPUs: no {GPU} or {GPU}.product is there; "
        "install NVIDIA's device plugin, then take the facts again"
    )


# The plan


@dataclass(frozen=True)
class _Plan:
    """What the policy says, before exemptions."""

    name: str
    groups: tuple[Group, ...]
    names: tuple[str, ...]
    guard: Taint | None
    default: str
    trusted: tuple[str, ...]
    labelled: bool
    homes: tuple[str, ...]
    config_maps: tuple[tuple[str, str], ...]
    labellers: tuple[str, ...]
    administrators: tuple[str, ...]


def _plan(objects: Sequence[Object], nodes: Sequence[GPUNode], name: str, *, by_product: bool) -> _Plan:
    guard = _guard(nodes)
    groups = inventory.groups(nodes, guard.key if guard else "", by_product=by_product)
    homes = inventory.homes(objects)
    default, trusted = _trust(objects, groups)
    namespaces = {string(mapping(o.get("metadata")).get("name")): o for o in objects if group_kind(o)[1] == "Namespace"}
    return _Plan(
        name=name,
        groups=tuple(groups),
        names=tuple(_names(groups)),
        guard=guard,
        default=default,
        trusted=tuple(trusted),
        labelled=any(_label(item, TRUST_LABEL) == "trusted" for item in namespaces.values()),
        homes=tuple(homes),
        config_maps=tuple(_config_maps(objects, homes)),
        labellers=tuple(_labellers(objects, namespaces, homes)),
        administrators=("system:masters", *(("system:cluster-admins",) if "openshift-config" in namespaces else ())),
    )


def _guard(nodes: Iterable[GPUNode]) -> Taint | None:
    """Return the taint that all nodes with GPUs have, whatever its value; Slicewarden's own or NVIDIA's first."""
    every = [{taint.key: taint for taint in sorted(each.taints, key=str)} for each in nodes]
    common = set(every[0]).intersection(*every[1:])
    key = min(common, key=lambda key: (key != "slicewarden.dev/pool", key != GPU, key), default=None)
    return every[0][key] if key else None


def _names(groups: Sequence[Group]) -> Iterator[str]:
    """Name the groups by how they share, with the product where there are several, and a number where it takes one."""
    kinds = {TIME_SLICING: "shared", MPS: "mps", MIG: "mig", WHOLE: "whole"}
    shares = Counter(group.sharing for group in groups)
    seen: Counter[str] = Counter()
    for group in groups:
        name, products = kinds[group.sharing], group.products
        if shares[group.sharing] > 1 and len(products) == 1 and (short := node_labels.short(products[0])):
            name = f"{short}-{name}"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}"


def _trust(objects: Sequence[Object], groups: Iterable[Group]) -> tuple[str, list[str]]:
    """Return what a pod without the annotation asks for, and the namespaces whose pods share cards today."""
    shared = {each.node.name for group in groups if group.shared for each in group.nodes}
    here = [holder for holder in Facts.of(objects).holders if holder.node in shared]
    marked = [_metadata(item) for item in objects if group_kind(item) == POD]
    marked = [metadata for metadata in marked if ANNOTATION in mapping(metadata.get("annotations"))]
    asking = {(metadata.get("namespace"), metadata.get("name")) for metadata in marked}
    silent = [holder for holder in here if (holder.namespace, holder.name) not in asking]
    return "trusted" if silent else "untrusted", sorted({holder.namespace for holder in here})


def _config_maps(objects: Iterable[Object], homes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the ConfigMaps that the device plugin's installations name, where they are."""
    facts = Facts.of(objects)
    named = {
        (place, each.config_map)
        for each in facts.installations
        for place in ((each.namespace,) if each.namespace else homes)
    }
    return sorted(place for place in named if place in facts.config_maps)


def _labellers(objects: Iterable[Object], namespaces: Mapping[str, Object], homes: Sequence[str]) -> list[str]:
    """Return the accounts that write labels of nodes: the GPU Operator's, NFD's, and Karpenter's."""
    found = set[str]()
    for item in objects:
        metadata, spec = mapping(item.get("metadata")), mapping(item.get("spec"))
        namespace = string(metadata.get("namespace")) or "default"
        if group_kind(item) == POD and any(
            LABELLER in str(word) for each in mappings(spec.get("containers")) for word in sequence(each.get("command"))
        ):
            found.add(_user(namespace, string(spec.get("serviceAccountName")) or "default"))
        if inventory.is_operand(item):
            found |= {_user(namespace, "gpu-operator"), _user(namespace, "node-feature-discovery")}
        if group_kind(item) == ("", "Node") and _label(item, "karpenter.sh/nodepool"):
            found.add(_user("karpenter" if "karpenter" in namespaces else "kube-system", "karpenter"))
    if not found and "node-feature-discovery" in namespaces:
        found.add(_user("node-feature-discovery", "node-feature-discovery"))
    if not found:
        found |= {_user(place, "node-feature-discovery") for place in homes}
    return sorted(found)


def _user(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def _label(item: Object, key: str) -> str:
    return string(mapping(_metadata(item).get("labels")).get(key))


def _metadata(item: Object) -> Mapping[str, Any]:
    return mapping(item.get("metadata"))


# What runs


def _agents(objects: Iterable[Object], engine: Engine, facts: Facts) -> tuple[tuple[Agent, ...], tuple[Agent, ...]]:
    """Return the agents that rules would refuse, or keep from the GPUs that they look after; and other such pods.

    An agent is a DaemonSet, or a pod without a GPU in a namespace that has such a DaemonSet.
    """
    found: dict[tuple[str, str], Agent] = {}
    strangers: dict[tuple[str, str], Agent] = {}
    systems = set[str]()
    alone = left_alone(engine.policy)
    for item in sorted(objects, key=lambda item: group_kind(item) == POD):
        daemon_set = group_kind(item) == ("apps", "DaemonSet")
        metadata = mapping(item.get("metadata"))
        namespace, name = string(metadata.get("namespace")) or "default", string(metadata.get("name"))
        if not (daemon_set or group_kind(item) == POD) or namespace in alone:
            continue
        spec = _pod_spec(item)
        if _asks(spec):
            continue
        denied = _denied(item, engine, facts)
        gpus = daemon_set and _looks_after_gpus(spec, engine.policy)
        if not denied and not gpus:
            continue
        systems |= {namespace} if daemon_set else set()
        chosen = found if daemon_set or namespace in systems else strangers
        account = string(spec.get("serviceAccountName")) or "default"
        before = chosen.get((namespace, account), Agent(namespace, account, (), ("",)))
        some = () if gpus or not before.rules else tuple(sorted({*denied, *filter(None, before.rules)}))
        chosen[namespace, account] = before._replace(names=(*before.names, name), rules=some)
    return tuple(found[key] for key in sorted(found)), tuple(strangers[key] for key in sorted(strangers))


def _looks_after_gpus(spec: Mapping[str, Any], policy: Policy) -> bool:
    """Tell whether a DaemonSet is made for nodes with GPUs: it selects, tolerates, mounts or names what is theirs.

    Such an agent needs an exemption from all rules: with NVIDIA_VISIBLE_DEVICES=void it would see no GPU.
    """
    paths = [string(mapping(each.get("hostPath")).get("path")) for each in mappings(spec.get("volumes"))]
    selected = json.dumps([spec.get("nodeSelector"), spec.get("affinity"), spec.get("runtimeClassName"), paths])
    tolerated = {string(each.get("key")) for each in mappings(spec.get("tolerations"))}
    named = any(each.get("env") for each in mappings(spec.get("containers")))
    told = any(word in selected for word in ("nvidia", "gke-accelerator", "kubelet/device-plugins"))
    guard = policy.guard.taint if policy.guard else None
    return told or bool(tolerated & {GPU, guard}) or named


def _refused(objects: Iterable[Object], engine: Engine, facts: Facts) -> Iterator[str]:
    """Say which pods that hold a GPU today would be refused, and by which rules."""
    alone = left_alone(engine.policy)
    for item in objects:
        metadata = mapping(item.get("metadata"))
        namespace = string(metadata.get("namespace")) or "default"
        workload = group_kind(item) in (POD, ("apps", "DaemonSet"))
        if workload and namespace not in alone and _asks(_pod_spec(item)) and (denied := _denied(item, engine, facts)):
            yield f"{namespace}/{metadata.get('name')}: {', '.join(denied)}"


def _pod_spec(item: Object) -> Mapping[str, Any]:
    """Return the spec of a pod, or of a DaemonSet's pods."""
    spec = mapping(item.get("spec"))
    return spec if group_kind(item) == POD else mapping(mapping(spec.get("template")).get("spec"))


def _asks(spec: Mapping[str, Any]) -> bool:
    """Tell whether a pod asks for a GPU of NVIDIA."""
    asked = [
        mapping(mapping(each.get("resources")).get(part))
        for each in (*mappings(spec.get("containers")), *mappings(spec.get("initContainers")))
        for part in ("limits", "requests")
    ]
    return any(name.startswith("nvidia.com/") for amounts in asked for name in amounts)


def _denied(item: Object, engine: Engine, facts: Facts) -> list[str]:
    """Return the rules that would refuse an object as it was created, before it had a node."""
    spec = {key: value for key, value in mapping(item.get("spec")).items() if key != "nodeName"}
    verdict = engine.judge(admission.decode(admission.wrap({**item, "spec": spec})), facts)
    return sorted({result.rule for result in verdict.having(Action.DENY)})


# The text


def _text(plan: _Plan, agents: Sequence[Agent], strangers: Sequence[Agent], refused: Sequence[str] = ()) -> str:
    lines = [*_head(plan, refused), *_trust_lines(plan), *_people(plan)]
    for group, name in zip(plan.groups, plan.names, strict=True):
        lines += _pool(group, name, plan)
    lines += [*_guard_lines(plan), *_exemptions(agents, strangers), *_memory(plan), *_sharing(plan), *_rules()]
    return "\n".join(lines) + "\n"


def _head(plan: _Plan, refused: Sequence[str]) -> Iterator[str]:
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


def _trust_lines(plan: _Plan) -> Iterator[str]:
    shares = any(group.shared for group in plan.groups)
    yield "  # A trusted pod that asks for one GPU may share a card with others. All other pods get a GPU of their own."
    yield "  trust:"
    yield f"    annotation: {ANNOTATION}"
    if plan.default == "trusted":
        yield "    # A pod without the annotation asks to be trusted: pods share cards today without saying so."
    else:
        yield "    # A pod without the annotation is untrusted: it gets a GPU of its own."
    yield f"    default: {plan.default}"
    if not shares and not plan.labelled:
        yield "    # No card is shared today. To allow it, let administrators label namespaces, and grant by the label:"
        yield f"    # grants: [{{namespaceSelector: {{matchLabels: {{{TRUST_LABEL}: trusted}}}}}}]"
        return
    yield "    grants:"
    yield "      # Namespaces with this label. Only administrators of this policy may write it:"
    yield f"      #   kubectl label namespace NAME {TRUST_LABEL}=trusted"
    yield f"      - namespaceSelector: {{matchLabels: {{{TRUST_LABEL}: trusted}}}}"
    if plan.trusted:
        yield "      # Namespaces whose pods share cards today. Label them, then remove this entry."
        yield f"      - namespaces: {_flow(plan.trusted)}"


def _people(plan: _Plan) -> Iterator[str]:
    yield ""
    yield "  # Who may change labels that grant trust, labels of nodes, and sharing configurations: add your team."
    yield "  administrators:"
    yield f"    groups: {_flow(plan.administrators)}"
    if plan.labellers:
        yield ""
        yield "  # Who else writes the labels of nodes by which pools are told apart."
        yield "  nodeLabellers:"
        yield "    users:"
        yield from (f"      - {user}" for user in plan.labellers)
    yield ""
    yield "  # A trusted pod that asks for one GPU belongs in a shared pool where there is one, every other pod in the"
    yield f"  # first pool that takes it; annotate {ANNOTATION}: untrusted for a whole GPU."
    yield "  pools:"


def _pool(group: Group, name: str, plan: _Plan) -> Iterator[str]:
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
    own = sorted({t.text for t in group.taints if plan.guard is None or t.key != plan.guard.key})
    if own:
        yield f"    # The nodes also have the taint {listed(own, 3)}: pods that belong there tolerate it themselves."
    yield f"    - name: {name}"
    yield f"      sharing: {group.sharing}"
    yield f"      trust: {'[trusted]' if group.shared else '[trusted, untrusted]'}"
    yield "      nodes:"
    single = [r for r in group.requirements if r.operator == "In" and len(r.values) == 1]
    if single:
        yield "        matchLabels:"
        yield from (f"          {r.key}: {_quoted(next(iter(r.values)))}" for r in single)
    if len(single) < len(group.requirements):
        yield "        matchExpressions:"
        yield from (f"          - {_expression(r)}" for r in group.requirements if r not in single)
    yield f"      resources: {_flow(group.resources or (GPU,))}"
    if plan.guard:
        yield "      tolerations:"
        taints = {t for each in group.nodes for t in each.taints if t.key == plan.guard.key}
        yield from (f"        - {_toleration(taint)}" for taint in sorted(taints, key=str))
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
    return f"{{key: {requirement.key}, operator: {requirement.operator}{values}}}"


def _toleration(taint: Taint) -> str:
    if taint.value:
        return f"{{key: {taint.key}, operator: Equal, value: {_quoted(taint.value)}, effect: {taint.effect}}}"
    return f"{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}"


def _guard_lines(plan: _Plan) -> Iterator[str]:
    if plan.guard:
        yield "  # All nodes with GPUs have this taint. It keeps pods that ask for no GPU from seeing one."
        yield f"  guard: {{taint: {{key: {plan.guard.key}}}}}"
    else:
        yield "  # No taint is on all nodes with GPUs, so every pod is judged, and is told that it sees no GPU."
        yield "  # Cheaper, and better: taint these nodes, tolerate the taint in every pool, and name it here."
        yield f"  #   {taint_command(plan)}"
        yield f"  #   guard: {{taint: {{key: {SUGGESTED.key}}}}}"
        yield "  guard: every-pod"
    yield ""


def taint_command(plan: "_Plan | Starter") -> str:
    """Return the command that gives all nodes with GPUs the suggested taint."""
    nodes = [each.node for group in plan.groups for each in group.nodes]
    if all(node.labels.get(node_labels.PRESENT) == "true" for node in nodes):
        return f"kubectl taint nodes -l {node_labels.PRESENT}=true {SUGGESTED.text}"
    names = [node.name for node in nodes]
    more = " ..." if len(names) > MAX_NAMED else ""
    return f"kubectl taint nodes {' '.join(names[:MAX_NAMED])}{more} {SUGGESTED.text}"


def _exemptions(agents: Sequence[Agent], strangers: Sequence[Agent]) -> Iterator[str]:
    if agents:
        yield "  # Agents that run today, and that the named rules would refuse. Findings on them are only recorded."
        yield "  # Whoever can create pods in such a namespace can use its exemption: let no tenant do so."
        yield "  exemptions:"
        for name, agent in _named(agents):
            yield from _exemption(name, agent, "    ")
    if strangers:
        yield f"  # {several(len(strangers), 'account')} with pods that would be refused, and that are no agents."
        yield f"  # If you trust one, move its entry to {'the list above' if agents else '`exemptions:`'}:"
        for name, agent in _named(strangers[:MAX_NAMED]):
            yield from _exemption(name, agent, "    # ")
    if agents or strangers:
        yield ""


def _named(agents: Iterable[Agent]) -> Iterator[tuple[str, Agent]]:
    """Name exemptions by account and namespace, each once."""
    seen: Counter[str] = Counter()
    for agent in agents:
        account = agent.names[0] if agent.account == "default" else agent.account
        name = f"{agent.namespace}-{account}".replace(".", "-").lower()[:60].strip("-")
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name}-{seen[name]}", agent


def _exemption(name: str, agent: Agent, indent: str) -> Iterator[str]:
    yield f"{indent}- name: {name}"
    yield f"{indent}  reason: {_quoted('runs ' + listed(sorted(set(agent.names)), 3) + '; say why it needs its node')}"
    yield f"{indent}  system: true"
    yield f"{indent}  namespaces: [{agent.namespace}]"
    default = "  # give it an account of its own" if agent.account == "default" else ""
    yield f"{indent}  serviceAccounts: [{agent.account}]{default}"
    if agent.rules:
        yield f"{indent}  rules: {_flow(agent.rules)}"


def _memory(plan: _Plan) -> Iterator[str]:
    thin = [name for group, name in zip(plan.groups, plan.names, strict=True) if _is_thin(group)]
    if thin:
        yield f"  # The slices of pool {listed(thin, 3)} are too small for a memory cap, so time-slicing has none."
        yield "  # To have caps, share the cards into fewer slices and remove this."
        yield "  memory: {sharing: [mps]}"
        yield ""


def _is_thin(group: Group) -> bool:
    card = group.card
    if group.sharing != TIME_SLICING or card is None:
        return False
    return not budget(Card(card.product, card.memory, group.replicas), Policy("", ())).enough


def _sharing(plan: _Plan) -> Iterator[str]:
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
        yield from (f"      - {{namespace: {place}, name: {name}}}" for place, name in plan.config_maps)
    yield ""


def _rules() -> Iterator[str]:
    yield "  # What is done about findings: Deny, Warn or Audit. `slicewarden rules` lists the rules."
    yield "  rules:"
    yield '    "*": Deny'


def _flow(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, values))}]"


def _quoted(text: str) -> str:
    """Write a text as YAML within a flow map, in quotes where it needs them."""
    bare = isinstance(plain(text), str) and text == text.strip() and text[:1].isalnum()
    return text if bare and not set(text) & set("{}[],&#:;'\"\\`|>%@!?") else json.dumps(text)


# Notes


def _notes(plan: _Plan, refused: Sequence[str]) -> Iterator[str]:
    if plan.guard is None:
        yield f"no taint is on all nodes with GPUs, so the guard is every-pod; to have a taint: {taint_command(plan)}"
    for group, name in zip(plan.groups, plan.names, strict=True):
        if group.shared and group.card is None:
            yield f"the memory of the cards of pool {name} is not known, so no cap is written; say it under `assume`"
    if all(group.shared for group in plan.groups):
        yield "all GPUs are shared, so a pod of a namespace that is not granted trust is refused; grant it by label"
    if refused:
        yield f"{several(len(refused), 'pod')} with a GPU would be refused if created again: see the head of the policy"


# Tests


def tests(starter: Starter, policy: str, facts: Iterable[str]) -> str:
    """Write a PolicyTest of a policy that was made; `policy` and `facts` are paths from the test's own folder."""
    cases = [_case(group, name, starter) for group, name in zip(starter.groups, starter.pools, strict=True)]
    cases += _slices(starter)
    cases.append(
        {
            "name": "a pod cannot see GPUs by a variable",
            "object": _a_pod("web", "default", {}, env=[{"name": device_variables.VISIBLE, "value": "all"}]),
            "expect": {"verdict": "denied", "rules": ["visible-devices"]},
        }
    )
    spec = {"policy": policy, "facts": [*facts], "cases": cases}
    if not spec["facts"]:
        del spec["facts"]
    value = {
        "apiVersion": "slicewarden.dev/v1alpha1",
        "kind": "PolicyTest",
        "metadata": {"name": starter.policy.name},
        "spec": spec,
    }
    head = "# Tests of the policy that `slicewarden policy init` made: `slicewarden test` runs them. Add your own.\n"
    return head + goyaml.write(value)


def _case(group: Group, name: str, starter: Starter, count: int = 1) -> Object:
    """Write the case of a pod that selects a pool's nodes, and lands there."""
    resource = next(iter(group.resources), GPU)
    selector = dict(starter.policy.pools[starter.pools.index(name)].nodes.labels)
    many = {r.key: min(r.values) for r in group.requirements if r.operator == "In"}
    trust = {ANNOTATION: "trusted" if group.shared else "untrusted"}
    namespace = _granted(starter) if group.shared else "default"
    pod = _a_pod("train", namespace, {resource: count}, annotations=trust, selector={**many, **selector})
    case: dict[str, Any] = {"name": f"a pod that selects pool {name} lands there", "object": pod}
    labelled = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    if group.shared and namespace not in starter.trusted:
        case["facts"] = [{**labelled, "metadata": {"name": namespace, "labels": {TRUST_LABEL: "trusted"}}}]
    return {**case, "expect": {"verdict": "allowed", "pool": name}}


def _granted(starter: Starter) -> str:
    return starter.trusted[0] if starter.trusted else "trusted-team"


def _slices(starter: Starter) -> Iterator[Object]:
    """Write the case of a pod with two slices, of a pool whose resource no pool of whole GPUs offers."""
    for group, name in zip(starter.groups, starter.pools, strict=True):
        resource = next(iter(group.resources), GPU)
        if group.shared and not any(resource in other.resources for other in starter.groups if not other.shared):
            expect = {"verdict": "denied", "rules": ["multiple-slices"]}
            title = f"two slices of pool {name} are refused"
            yield {**_case(group, name, starter, count=2), "name": title, "expect": expect}
            return


def _a_pod(
    name: str,
    namespace: str,
    limits: Mapping[str, int],
    *,
    annotations: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
    env: Sequence[Object] = (),
) -> Object:
    container: dict[str, Any] = {"name": "main", "image": "example.com/image"}
    if limits:
        container["resources"] = {"limits": dict(limits)}
    if env:
        container["env"] = [*env]
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = dict(annotations)
    spec: dict[str, Any] = {"containers": [container]}
    if selector:
        spec["nodeSelector"] = dict(selector)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
