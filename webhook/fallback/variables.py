"""Writes the variables that clauses share. The API server computes each one once for a request, when it is first read.

A pod's pool is not chosen here as the engine chooses it (webhook/gpu/placement.py). Instead, the variables list the
pools that would take the pod, and the pools whose nodes the pod is restricted to. If the engine allows a pod, the pool
that it chose is in these lists, so the pod is allowed here too.
"""

from collections.abc import Callable, Iterator
from functools import partial

from webhook.catalog.device_variables import DEVICE_VARIABLES
from webhook.cel.clauses import RequestKind
from webhook.cel.policies import (
    ASKS,
    SELECTION,
    asks_of,
    claims,
    covers,
    include,
    is_gpu,
    offered,
    restricted,
    tolerated,
)
from webhook.cel.write import NO_TEXTS, all_of, any_of, array, filled, named, negated, one_of, text
from webhook.facts import rights
from webhook.fallback import params
from webhook.gpu.guard import given
from webhook.model import Object
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, Pool
from webhook.policy.scopes import Grant

Variable = tuple[str, str]
"""A name and an expression. An expression may read earlier variables."""


def of(asked: RequestKind, policy: Policy, *, reads: bool = False) -> tuple[Variable, ...]:
    """Return the variables for one kind of requests. With `reads`, variables for new pods read a ConfigMap (params)."""
    return (("space", namespace(asked)), *_of(asked, policy, reads))


def _of(asked: RequestKind, policy: Policy, reads: bool) -> tuple[Variable, ...]:
    match asked:
        case RequestKind.PODS:
            return (*_pod(policy), *_new_pod(policy), *_placed(policy, reads))
        case RequestKind.UPDATES | RequestKind.STATUSES:
            return (*_pod(policy), *_changed_pod(policy))
        case RequestKind.NAMESPACES | RequestKind.NODES:
            return tuple(_labels(asked))
        case RequestKind.DEVICES:
            return (*_namespace(), *_devices())
    return tuple(_namespace())


def namespace(asked: RequestKind) -> str:
    """Return the expression for the request's namespace. A Namespace's own name counts; other objects may have none."""
    if asked is RequestKind.NAMESPACES:
        return "object.metadata.name"
    return "request.?namespace.orValue('')"


def _namespace() -> Iterator[Variable]:
    yield "labels", "namespaceObject.?metadata.?labels.orValue({})"
    yield "account", "''"


def _pod(policy: Policy) -> Iterator[Variable]:
    yield "labels", "namespaceObject.?metadata.?labels.orValue({})"
    yield "account", "[object.spec.?serviceAccountName.orValue('')].map(a, a == '' ? 'default' : a)[0]"
    yield "init", "object.spec.?initContainers.orValue([])"
    yield "main", "object.spec.containers"
    yield "everyone", "variables.init + variables.main + object.spec.?ephemeralContainers.orValue([])"
    if policy.has_device_pools:
        yield "claims", claims(policy)


def _new_pod(policy: Policy) -> Iterator[Variable]:
    yield "whole", "true"
    yield "added", "variables.everyone"
    yield "kept", "variables.everyone.filter(c, false)"
    yield "containers", "variables.everyone"
    yield "annotations", "object.metadata.?annotations.orValue({})"
    yield "podlabels", "object.metadata.?labels.orValue({})"
    yield "tolerations", "object.spec.?tolerations.orValue([])"
    yield from _read(policy)
    yield "asked", "variables.asks.flatten().distinct()"
    yield "exposed", _exposed(policy)


def _changed_pod(policy: Policy) -> Iterator[Variable]:
    """Return the variables for an update: the parts that it adds, and those that count as new.

    If the pod may see a GPU now and could not before, the whole pod counts as new. An update can add tolerations and
    debug containers, and can change images (tests/evaluator/test_updates.py asks Kubernetes' own validation). A pod
    that has a node stays there, whatever it tolerates afterwards.
    """
    yield "old_debug", "oldObject.spec.?ephemeralContainers.orValue([]).map(c, c.name)"
    yield "added", "object.spec.?ephemeralContainers.orValue([]).filter(c, !(c.name in variables.old_debug))"
    yield "kept", "variables.init + variables.main + oldObject.spec.?ephemeralContainers.orValue([])"
    for variable, part in (("annotations", "annotations"), ("podlabels", "labels")):
        changed = f"oldObject.metadata.?{part}[?k] != optional.of(v)"
        yield variable, f"object.metadata.?{part}.orValue({{}}).transformMap(k, v, {changed}, v)"
    yield (
        "tolerations",
        "object.spec.?tolerations.orValue([]).filter(t, !(t in oldObject.spec.?tolerations.orValue([])))",
    )
    yield "asked", f"variables.everyone.map(c, {_asks(policy)}).flatten().distinct()"
    yield "exposed", _exposed(policy)
    before = _exposed(policy, "oldObject", "variables.kept")
    yield "whole", all_of((_waits("object"), "variables.exposed", negated(before)))
    yield "containers", "variables.whole ? variables.everyone : variables.added"
    yield from _read(policy)


def _read(policy: Policy) -> Iterator[Variable]:
    """The requests of each container in `containers`, and the names of its variables."""
    yield "asks", f"variables.containers.map(c, {_asks(policy)})"
    yield "names", "variables.containers.map(c, c.?env.orValue([]).map(e, e.name))"


def _asks(policy: Policy) -> str:
    """Return the GPUs that container `c` requests.

    After the API server's own validation a limit is a whole number and its request the same (kubernetes
    pkg/apis/core/validation/validation.go, validateResourceRequirements), so nothing else has to be read.
    """
    return (
        "c.?resources.?limits.orValue({}).filter(n,"
        f" n.contains('/') && {is_gpu('n', policy.gpu_resources)}"
        " && sign(quantity(c.resources.limits[n])) != 0)"
    )


def _exposed(policy: Policy, pod: str = "object", containers: str = "variables.everyone") -> str:
    """Whether a pod may see a GPU: PodReview.exposed without other objects. No update changes `asked`."""
    runtime = named("name", policy.forms.runtime_classes)
    return any_of(
        (
            ASKS,
            f"[{pod}.spec.?runtimeClassName.orValue('')].exists(name, {runtime})",
            f"{containers}.exists(c, c.?env.orValue([]).exists(e, e.name in {array(DEVICE_VARIABLES)}))",
            all_of((_waits(pod), _unguarded(policy, pod))),
        )
    )


def _waits(pod: str) -> str:
    return f"{pod}.spec.?nodeName.orValue('') == ''"


def _unguarded(policy: Policy, pod: str) -> str:
    """Whether nothing keeps a pod without a node name off the nodes with GPUs, as guard.kept_off does."""
    taint = policy.guard.taint if policy.guard else None
    if taint is None:
        return "true"
    keyed = one_of("t.?key.orValue('')", ("", taint))
    tolerates = f"{pod}.spec.?tolerations.orValue([]).exists(t, {keyed} && {tolerated('t', policy, taint)})"
    by_name = f"variables.everyone.exists(c, {text(taint)} in c.?resources.?limits.orValue({{}}))"
    effect = text(given(taint)["effect"])
    matches = tolerated(f"[{{'effect': {effect}}}][0]", policy, taint)
    return any_of((tolerates, all_of((by_name, matches))))


def _placed(policy: Policy, reads: bool) -> Iterator[Variable]:
    # Containers and sidecars together, or the largest init container plus the sidecars before it.
    amount = "int(quantity({0}.?resources.?limits[?n].orValue('0')).asInteger())"
    sidecar = "{0}.?restartPolicy.orValue('') == 'Always'"
    sidecars = f"map(s, {sidecar.format('s')} ? {amount.format('s')} : 0).sum()"
    yield (
        "count",
        f"variables.asked.map(n, ([variables.main.map(m, {amount.format('m')}).sum() + variables.init.{sidecars}]"
        f" + variables.init.transformList(i, c, {sidecar.format('c')} ? 0 : {amount.format('c')}"
        f" + variables.init.slice(0, i).{sidecars})).max()).sum()",
    )
    if policy.asks_rbac:
        yield "right_held", RIGHT_HELD
    key = text(policy.annotation)
    yield "wanted", f"variables.annotations[?{key}].orValue({text(policy.default_trust)})"
    yield (
        "granted",
        " + ".join(
            (
                NO_TEXTS,
                *(
                    f"({all_of((covers(grant.scope), _heard(grant, policy), _held_by_account(grant)))}"
                    f" ? {array(sorted(grant.pools or policy.pool_names))} : [])"
                    for grant in (params.others(policy) if reads else policy.grants)
                ),
                *([params.granted()] if reads else []),
            )
        ),
    )
    yield "trusted", f"variables.wanted == '{TRUSTED}' && size(variables.granted) > 0"
    yield "willing", _those(policy, partial(_willing, policy))
    yield "shared", " + ".join((NO_TEXTS, array(pool.name for pool in policy.pools if pool.shared)))
    small = [f"(p == {text(p.name)} && variables.count > {p.max_request})" for p in policy.pools if p.max_request]
    fitting = f"variables.willing.filter(p, !{any_of(small)})" if small else "variables.willing"
    of_config_map = f"variables.willing.filter(p, p in variables.shared ? variables.count <= 1 : {params.fits()})"
    yield "fitting", of_config_map if reads else fitting
    right = "variables.fitting.filter(p, (p in variables.shared) == (variables.trusted && variables.count == 1))"
    right = f"[{right}].map(some, size(some) > 0 ? some : variables.fitting)[0]"
    # A pod's claims may be for more GPUs. They are not known here, so any pool may be the right one.
    yield "right", f"variables.claims ? variables.willing : {right}" if policy.has_device_pools else right
    yield from SELECTION
    yield "held", _those(policy, _held)
    right = "(size(variables.right) > 0 ? variables.right : variables.willing)"
    right += ".filter(p, p in variables.held && (p in variables.shared || p in variables.fitting))"
    # A pod that is held to another shared pool runs there, if its only fault is a number of slices that is recorded.
    other = "variables.willing.filter(p, p in variables.held && p in variables.shared)"
    yield "pools", f"[{right}].map(some, size(some) > 0 ? some : {other})[0]"


def _those(policy: Policy, which: Callable[[Pool], str]) -> str:
    return " + ".join((NO_TEXTS, *(f"({which(pool)} ? [{text(pool.name)}] : [])" for pool in policy.pools)))


def _heard(grant: Grant, policy: Policy) -> str:
    """Whether a grant applies to the sender of a new pod, as placement._applies does."""
    if grant.requesters is None:
        return "true"
    asks = f"{text(policy.annotation)} in variables.annotations"
    return all_of((asks, any_of((include(policy.controllers), include(grant.requesters)))))


RIGHT_HELD = (
    "authorizer.serviceAccount(variables.space, variables.account)"
    f".group({text(rights.GROUP)}).resource({text(rights.RESOURCE)}).name({text(rights.NAME)})"
    f".namespace(variables.space).check({text(rights.VERB)}).allowed()"
)
"""Whether the pod's service account has the right of trust. Asking uses a third of the cost limit of an expression."""


def _held_by_account(grant: Grant) -> str:
    """Whether the pod's account has the right that a grant requires. It is evaluated last, because it costs most."""
    return "variables.right_held" if grant.rbac else "true"


def _willing(policy: Policy, pool: Pool) -> str:
    """Whether a pool takes the pod, regardless of the number of GPUs, as in placement._refusal.

    No pool takes a pod that asks for nothing. A pool takes a pod with only claims if they may be for its devices.
    """
    trusted = f"(variables.trusted && {text(pool.name)} in variables.granted)"
    levels = {TRUSTED: trusted, UNTRUSTED: f"!{trusted}"}
    level = any_of(levels[each] for each in pool.trust) if len(pool.trust) == 1 else "true"
    offers = f"variables.asked.all(n, {offered('n', pool.resources)})"
    return all_of((asks_of([pool], policy), offers, covers(pool.tenants) if pool.tenants else "true", level))


def _held(pool: Pool) -> str:
    """Whether the pod already has what unsteered-pod would add to bring it into a pool (unsteered_pod._steering)."""
    tolerations = (f"object.spec.?tolerations.orValue([]).exists(t, {tolerates(each)})" for each in pool.tolerations)
    return all_of((*restricted(pool), *tolerations))


def tolerates(wanted: Object) -> str:
    """Return the CEL expression that is true if toleration `t` tolerates every taint that toleration `wanted` does."""
    key, seconds = text(wanted["key"]), wanted.get("tolerationSeconds")
    effect = one_of("t.?effect.orValue('')", ("", wanted.get("effect") or ""))
    lasts = "!has(t.tolerationSeconds)" if seconds is None else f"t.?tolerationSeconds.orValue({seconds}) == {seconds}"
    exists = f"(t.?operator.orValue('') == 'Exists' && t.?key.orValue('') in ['', {key}])"
    equal = (
        f"(t.?operator.orValue('') in ['', 'Equal'] && t.?key.orValue('') == {key}"
        f" && t.?value.orValue('') == {text(wanted.get('value') or '')})"
    )
    return all_of((effect, lasts, exists if wanted.get("operator") == "Exists" else any_of((exists, equal))))


def _labels(asked: RequestKind) -> Iterator[Variable]:
    yield "now", "object.metadata.?labels.orValue({})"
    yield "before", "request.operation == 'CREATE' ? {} : oldObject.metadata.?labels.orValue({})"
    # A scope uses the labels that a namespace had before the request: new labels prove nothing.
    yield "labels", "variables.before" if asked is RequestKind.NAMESPACES else "{}"
    yield "account", "''"


def _devices() -> Iterator[Variable]:
    spec = "request.kind.kind == 'DeviceClass' ? {0}.spec : request.kind.kind == 'ResourceClaim' ? {0}.spec.?devices"
    spec += ".orValue({{}}) : {0}.spec.spec.?devices.orValue({{}})"
    yield "devices", spec.format("object")
    yield "old_configs", f"request.operation == 'CREATE' ? [] : ({spec.format('oldObject')}).?config.orValue([])"
    yield "configs", "variables.devices.?config.orValue([]).filter(c, !(c in variables.old_configs))"
    yield (
        "requested",
        f"request.kind.kind == 'DeviceClass' ? [] : {filled('variables.devices.?requests')}"
        ".map(r, [r.?exactly.orValue({})] + r.?firstAvailable.orValue([])).flatten()",
    )
