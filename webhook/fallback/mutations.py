"""Makes a MutatingAdmissionPolicy with which the API server itself steers, guards and caps pods as `/mutate` does.

It writes only changes that CEL can compute exactly; `unwritten` lists the others. If an expression fails for a pod, the
pod is left unchanged. That is safe, because the fallback denies pods that lack the other changes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from webhook.api.pods import MIRROR
from webhook.api.selectors import Requirement
from webhook.catalog.device_variables import CLOSED, CLOSED_WITHOUT_GPU, IMEX, NONE, VISIBLE, VOID
from webhook.cel.clauses import RequestKind
from webhook.cel.policies import ASKS, CLAIMS, holds
from webhook.cel.write import all_of, any_of, array, negated, one_of, strings, text
from webhook.engine.registration import LABELS, MADE_FROM, NAME, webhooks
from webhook.facts.snapshot import Facts
from webhook.fallback import variables
from webhook.fallback.policies import SOURCES, Made, eased, matching
from webhook.memory import annotation, environment
from webhook.memory.budget import MEMORY, PROCESSES, budget, nodes, smallest
from webhook.memory.frameworks.pytorch import TORCH_VERSION
from webhook.memory.steps import Cap, StepKind
from webhook.model import Action, Object
from webhook.policy.model import DEFAULT_GRACE, Card, Policy, Pool
from webhook.rules import Rule

API_VERSION = "admissionregistration.k8s.io/v1"
"""Served from Kubernetes 1.36 on (k8s.io/api admissionregistration/v1 types.go)."""

POLICY, BINDING = "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"

CARDS = "slicewarden.dev/cards"
"""The annotation with the card that the caps of each pool are computed for: JSON, `{pool: [product, MiB, slices]}`."""

STEERING, GUARDING, CAPPING = "unsteered-pod", "unguarded-container", "uncapped-memory"
ENDING = "long-stay"
"""The rules whose fixes are written."""

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

DONE = "[JSONPatch{op: 'test', path: '', value: ''}].filter(o, false)"
"""No operations. `[]` alone is a list of anything."""


class Caps(NamedTuple):
    """The variables that cap certain pods of a pool, by name, and the record of such a pod.

    `when` is a CEL condition for these pods: those for which the policy names the same release of PyTorch. Where the
    driver limits memory, records name containers, so `record` is empty here.
    """

    when: str
    variables: Mapping[str, str]
    record: str


class Capping(NamedTuple):
    """The caps of a pool's pods, and the card for which they are computed."""

    caps: tuple[Caps, ...]
    card: Card

    @property
    def words(self) -> str:
        """The card in words: product, memory and slices."""
        return f"{self.card.product}, {self.card.memory} MiB in {self.card.replicas} slices"


def mutating(policy: Policy, rules: Iterable[Rule], facts: Facts) -> list[Made]:
    """Make the policy and its binding; nothing if the policy denies none of the rules whose fixes it writes."""
    known = {rule.id for rule in rules}
    easing = {rule: _eased(rule, policy) for rule in (STEERING, GUARDING, CAPPING, ENDING) if rule in known}
    capped = cappings(policy, facts)
    writes = []
    variables_of = [_variables(container, easing, capped, policy) for container in ("init", "main")]
    if any(variables_of):
        writes.append(" + ".join((*_records(easing, capped), *filter(None, variables_of))))
    if easing.get(ENDING, "true") != "true" and (ending := "".join(map(_deadline, policy.pools))):
        writes.append(f"{easing[ENDING]} ? {DONE} : {ending}{DONE}")
    if easing.get(STEERING, "true") != "true":  # last: no pool is chosen for a pod that has node affinity
        chosen = "".join(f"variables.chosen == {text(p.name)} ? ({_steering(p)}) : " for p in policy.pools)
        writes.append(f"{easing[STEERING]} ? {DONE} : {chosen}{DONE}")
    if not writes:
        return []
    hook = next(each for each in webhooks(policy) if each.name == SOURCES[RequestKind.PODS].webhook)
    name = f"{NAME}-{RequestKind.PODS}"
    cards = json.dumps({name: capping.card for name, capping in capped.items()}, sort_keys=True)
    metadata = {"name": name, "labels": LABELS, "annotations": {MADE_FROM: policy.digest, CARDS: cards}}
    made = matching(RequestKind.PODS, hook)
    made["matchConstraints"]["resourceRules"] = [
        {**rule, "resources": ["pods"]} for rule in made["matchConstraints"]["resourceRules"]
    ]
    made["matchConditions"].append(
        {"name": "no-mirror-pod", "expression": f"!({text(MIRROR)} in object.metadata.?annotations.orValue({{}}))"}
    )
    of_pods = [*variables.of(RequestKind.PODS, policy), ("chosen", _chosen(policy))]
    spec = {
        "failurePolicy": "Ignore",  # the fallback denies what then is missing, and says so
        "reinvocationPolicy": "IfNeeded",
        **made,
        "variables": [{"name": each, "expression": value} for each, value in of_pods],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": each}} for each in writes],
    }
    return [
        {"apiVersion": API_VERSION, "kind": POLICY, "metadata": metadata, "spec": spec},
        {"apiVersion": API_VERSION, "kind": BINDING, "metadata": metadata, "spec": {"policyName": name}},
    ]


def again(policy: Policy, rules: Iterable[Rule], facts: Facts | None, found: Iterable[Object]) -> list[Made]:
    """Make the mutations that an installed fallback should have now; nothing if it has no mutations.

    Their caps are computed from the cards among the facts. If no node is known, the cards recorded in the fallback are
    used.
    """
    there = [item for item in found if item.get("kind") in (POLICY, BINDING)]
    if not there:
        return []
    if facts is not None and facts.nodes:
        return mutating(policy, rules, facts)
    said = next((cards for item in there if (cards := recorded(item)) is not None), None)
    return mutating(policy if said is None else _assuming(policy, said), rules, Facts())


def recorded(made: Object) -> dict[str, Card] | None:
    """Read the card of each pool that a policy or binding was made for; None if its annotation has no valid card."""
    metadata = made.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    try:
        said = json.loads((annotations or {})[CARDS])
        cards = {str(pool): Card(str(name), int(memory), int(parts)) for pool, (name, memory, parts) in said.items()}
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        return None
    return cards if all(card.memory > 0 and card.replicas > 0 for card in cards.values()) else None


def _assuming(policy: Policy, cards: Mapping[str, Card]) -> Policy:
    return replace(policy, pools=tuple(replace(pool, assume=cards.get(pool.name)) for pool in policy.pools))


def cappings(policy: Policy, facts: Facts) -> dict[str, Capping]:
    """Return the caps of each pool whose known cards all give the same caps, even if the cards have different names.

    The card that the pool assumes may be used instead. A pod that selects only some of the nodes has the same caps.
    """
    found = {}
    for pool in policy.pools:
        if pool.sharing not in policy.capped_sharing:
            continue
        cards = {card for _, card in nodes(pool, facts) if card}
        least = smallest(pool, policy, facts)
        if least is None or least.unified or not least.enough:
            continue
        caps = _by_release(pool, Cap(least, policy, driver=pool.driver_limits))
        others = (
            _by_release(pool, Cap(budget(card, policy, driver=pool.driver_limits), policy, driver=pool.driver_limits))
            for card in cards
        )
        if all(other == caps for other in others):
            found[pool.name] = Capping(caps, least.card)
    return found


def _by_release(pool: Pool, cap: Cap) -> tuple[Caps, ...]:
    """Return the caps by the release of PyTorch that the policy names for a pod, as Policy.torch does."""
    earlier: list[str] = []
    found = []
    for each in (*cap.policy.torch_versions, None):
        if each is not None and each.pools and pool.name not in each.pools:
            continue
        here = one_of("variables.space", sorted(each.namespaces)) if each and each.namespaces else "true"
        of_it = cap._replace(torch=each.version if each else None)
        steps = environment.merge({}, of_it)
        record = "" if cap.driver else annotation.plain(pool, of_it).text
        when = all_of((*map(negated, earlier), here))
        found.append(Caps(when, {step.name: step.value for step in steps if step.kind is StepKind.ADD}, record))
        earlier.append(here)
    return tuple(found)


def _eased(rule: str, policy: Policy) -> str:
    return eased(rule, RequestKind.PODS, policy, "[variables.chosen]")


def _chosen(policy: Policy) -> str:
    """Return the pool as placement.place chooses it, for pods without claims and required node affinity; or none."""
    clashes = {
        pool.name: any_of(
            f"({text(r.key)} in variables.selector && {negated(holds('variables.selector', r))})"
            for r in pool.nodes.requirements
        )
        for pool in policy.pools
    }
    clash = any_of(all_of((f"p == {text(name)}", each)) for name, each in clashes.items())
    open_ = f"variables.right.filter(p, {negated(clash)})"
    plain = f"{ASKS} && !({CLAIMS}) && !object.spec.?affinity.?nodeAffinity.?{REQUIRED}.hasValue()"
    return f"{plain} ? [{open_}].map(some, size(some) > 0 ? some[0] : '')[0] : ''"


# Steering


def _steering(pool: Pool) -> str:
    """Write the operations that restrict a pod to the nodes of a pool, as unsteered_pod does."""
    return " + ".join([*_labels(pool), *_affinity(pool), *_tolerations(pool)]) or DONE


def _labels(pool: Pool) -> Iterator[str]:
    if labels := pool.nodes.labels:
        each = "JSONPatch{op: 'add', path: '/spec/nodeSelector/' + jsonpatch.escapeKey(k), value: v}"
        missing = f"{strings(labels)}.transformList(k, v, !(k in variables.selector), {each})"
        whole = f"JSONPatch{{op: 'add', path: '/spec/nodeSelector', value: {strings(labels)}}}"
        yield f"(has(object.spec.nodeSelector) ? {missing} : [{whole}])"


def _affinity(pool: Pool) -> Iterator[str]:
    def open_(requirement: Requirement) -> str:
        key = requirement.key
        if key in pool.nodes.labels:
            return "false" if requirement.matches(pool.nodes.labels) else "true"
        return negated(all_of((f"{text(key)} in variables.selector", holds("variables.selector", requirement))))

    required = f"Object.spec.affinity.nodeAffinity.{REQUIRED}"
    expressions = f"{required}.nodeSelectorTerms.matchExpressions"
    missing = [
        f"[{literal(expressions, _written(r))}].filter(o, {open_(r)})"
        for r in pool.nodes.expressions
        if open_(r) != "false"
    ]
    if not missing:
        return
    terms = f"[{required}.nodeSelectorTerms{{matchExpressions: some}}]"
    value = f"{required}{{nodeSelectorTerms: {terms}}}"
    inner = f"Object.spec.affinity.nodeAffinity{{{REQUIRED}: {value}}}"
    there = ("object.spec.?affinity.hasValue()", "object.spec.?affinity.?nodeAffinity.hasValue()")
    for path, what, when in (
        ("/spec/affinity", f"Object.spec.affinity{{nodeAffinity: {inner}}}", f"!{there[0]}"),
        ("/spec/affinity/nodeAffinity", inner, f"{there[0]} && !{there[1]}"),
        (f"/spec/affinity/nodeAffinity/{REQUIRED}", value, there[1]),
    ):
        operation = f"JSONPatch{{op: 'add', path: '{path}', value: {what}}}"
        yield f"[{' + '.join(missing)}].filter(some, size(some) > 0 && {when}).map(some, {operation})"


def _tolerations(pool: Pool) -> Iterator[str]:
    missing = [
        f"[{literal('Object.spec.tolerations', each)}]"
        f".filter(o, !object.spec.?tolerations.orValue([]).exists(t, {variables.tolerates(each)}))"
        for each in pool.tolerations
    ]
    if missing:
        yield _added("'/spec/tolerations'", "has(object.spec.tolerations)", missing)


def _deadline(pool: Pool) -> str:
    """Write the choice of the operation that ends a pod of a pool in time, as long_stay does; empty without a limit."""
    if pool.max_active_deadline is None:
        return ""
    most = f"{pool.max_active_deadline} - (grace > {DEFAULT_GRACE} ? grace - {DEFAULT_GRACE} : 0)"
    grace = f"[object.spec.?terminationGracePeriodSeconds.orValue({DEFAULT_GRACE})]"
    missing = f"{grace}.map(grace, {most}).filter(most, most > 0 && !has(object.spec.activeDeadlineSeconds))"
    operation = "JSONPatch{op: 'add', path: '/spec/activeDeadlineSeconds', value: most}"
    return f"variables.chosen == {text(pool.name)} ? {missing}.map(most, {operation}) : "


def _written(requirement: Requirement) -> Object:
    written: Object = {"key": requirement.key, "operator": requirement.operator}
    return {**written, "values": sorted(requirement.values)} if requirement.values else written


# Variables of containers


def _variables(part: str, easing: Mapping[str, str], capped: Mapping[str, Capping], policy: Policy) -> str:
    """Write the operations that add variables to the containers of a part of the pod: `init` or `main`."""
    names = {"init": "initContainers", "main": "containers"}
    asks = "size(variables.asks[i]) > 0" if part == "init" else "size(variables.asks[i + size(variables.init)]) > 0"
    missing = [*_caps(asks, easing, capped), *_guards(asks, easing, policy)]
    if not missing:
        return ""
    added = _added(f"'/spec/{names[part]}/' + string(i) + '/env'", "has(c.env)", missing)
    return f"variables.{part}.transformList(i, c, {added}).flatten()"


def _records(easing: Mapping[str, str], capped: Mapping[str, Capping]) -> Iterator[str]:
    """Record the cap of a pod whose containers with GPUs are all capped here."""
    if easing.get(CAPPING, "true") == "true":
        return
    all_ = "variables.containers.all(i, c, size(variables.asks[i]) == 0 || " + _silent() + ")"
    for name, caps in _each(capped):
        if caps.record:
            when = all_of((_capped_in(name, caps, easing), f"!({text(annotation.KEY)} in variables.annotations)", all_))
            path = f"'/metadata/annotations/' + jsonpatch.escapeKey({text(annotation.KEY)})"
            one = f"JSONPatch{{op: 'add', path: {path}, value: {text(caps.record)}}}"
            whole = strings({annotation.KEY: caps.record})
            whole = f"JSONPatch{{op: 'add', path: '/metadata/annotations', value: {whole}}}"
            yield f"(!({when}) ? {DONE} : has(object.metadata.annotations) ? [{one}] : [{whole}])"


def _each(capped: Mapping[str, Capping]) -> Iterator[tuple[str, Caps]]:
    for name, capping in capped.items():
        yield from ((name, caps) for caps in capping.caps if caps.when != "false")


def _capped_in(pool: str, caps: Caps, easing: Mapping[str, str]) -> str:
    """Whether the pod belongs to a pool, and has no annotation about its memory."""
    unsaid = f"!{array((MEMORY, PROCESSES, TORCH_VERSION))}.exists(k, k in variables.annotations)"
    return all_of((negated(easing[CAPPING]), f"variables.chosen == {text(pool)}", caps.when, unsaid))


def _silent() -> str:
    """Whether container `c` sets nothing that decides on caps."""
    return f"(!c.?env.orValue([]).exists(e, e.name in {array(sorted(environment.KNOWN))}) && !has(c.envFrom))"


def _caps(asks: str, easing: Mapping[str, str], capped: Mapping[str, Capping]) -> Iterator[str]:
    """Cap a container that requests a GPU."""
    if easing.get(CAPPING, "true") == "true":
        return
    for name, caps in _each(capped):
        mine = all_of((_capped_in(name, caps, easing), asks, _silent()))
        entries = ", ".join(_entry(*one) for one in caps.variables.items())
        yield f"[{entries}].filter(o, {mine})"


def _guards(asks: str, easing: Mapping[str, str], policy: Policy) -> Iterator[str]:
    """Keep a container from devices that it did not request, as unguarded_container does."""
    if easing.get(GUARDING, "true") == "true":
        return
    guarded = all_of((negated(easing[GUARDING]), "variables.exposed"))
    none = (
        f"c.?env.orValue([]).exists(e, e.name == '{VISIBLE}' && !has(e.valueFrom) && e.?value.orValue('') == '{NONE}')"
    )
    for name, value in CLOSED_WITHOUT_GPU.items():
        closed = name in CLOSED and not (name == IMEX and policy.forms.imex_channels)
        when = all_of((guarded, any_of((asks, none)) if closed else all_of((negated(asks), none)), f"!{_says(name)}"))
        yield f"[{_entry(name, value)}].filter(o, {when})"
    yield f"[{_entry(VISIBLE, VOID)}].filter(o, {all_of((guarded, negated(asks), f'!{_says(VISIBLE)}'))})"


def _says(name: str) -> str:
    return f"c.?env.orValue([]).exists(e, e.name == {text(name)})"


def _entry(name: str, value: str) -> str:
    return literal("Object.spec.containers.env", {"name": name, "value": value})


# Literals


def _added(path: str, there: str, missing: Iterable[str]) -> str:
    """Write the operations that add what is missing to a list, which may not be there. Its path is an expression."""
    each = f"JSONPatch{{op: 'add', path: {path} + '/-', value: o}}"
    whole = f"JSONPatch{{op: 'add', path: {path}, value: some}}"
    return f"[{' + '.join(missing)}].map(some, {there} || size(some) == 0 ? some.map(o, {each}) : [{whole}])[0]"


def literal(path: str, value: Any) -> str:
    """Write a value of JSON in CEL. The type of an object is its path in the pod (apiserver pkg/cel/mutation)."""
    if isinstance(value, dict):
        fields = (f"{key}: {literal(f'{path}.{key}', each)}" for key, each in value.items())
        return f"{path}{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return f"[{', '.join(literal(path, each) for each in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return text(value) if isinstance(value, str) else str(value)


# The parts that are left out


def unwritten(policy: Policy, rules: Iterable[Rule], capped: Mapping[str, Capping]) -> Iterator[str]:
    """Yield a sentence for each thing that is missing in a cluster with only the fallback and these mutations."""
    deadline = " and their end" if any(pool.max_active_deadline is not None for pool in policy.pools) else ""
    yield (
        "pods with required node affinity of their own, or with claims, are not steered: they have to name their pool"
        f"{deadline}"
    )
    yield "debug containers get no variables: they have to set them"
    asked = [pool for pool in policy.pools if pool.resources.patterns]  # pods with claims are named above
    others = [p.name for p in asked if p.sharing in policy.capped_sharing and p.name not in capped]
    if others:
        yield f"pools of several sizes of cards, or of none known, have no caps: {', '.join(others)}"
    for name in (pool.name for pool in asked if pool.name in capped):
        yield f"caps of pool {name} are those of one card ({capped[name].words}): make them again when its nodes change"
    if capped:
        yield (
            f"containers that set one of the variables of memory have to set all; {MEMORY} and {PROCESSES} are not "
            "read; images, commands and arguments are not read either"
        )
    if policy.shim:
        yield "the shim is given to no container"
    denied = [rule for rule in rules if policy.action(rule.id) is Action.DENY]
    weaker = [rule.id for rule in denied if rule.fallback and not (rule.fallback.__doc__ or "").startswith("Exact")]
    if weaker:
        yield f"rules that deny less than the webhook: {', '.join(weaker)}"
    if unasked := [rule.id for rule in denied if rule.fallback is None]:
        yield f"rules that are not asked: {', '.join(unasked)}"
    yield "workloads are not judged, only their pods; nothing warns, and nothing is counted or reported as an Event"
    if any(grant.requesters is not None for grant in policy.grants):
        yield "grants that name users trust the pods of every workload in their namespaces, whoever wrote it"
    ending = [each.name for each in policy.exemptions if each.until]
    if ending:
        yield f"exemptions that end stay in force until the fallback is made again: {', '.join(ending)}"
