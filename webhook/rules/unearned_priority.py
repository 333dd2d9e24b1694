"""A pod with a GPU names a priority class that is not for it.

Any pod of any namespace may name any PriorityClass (kubernetes plugin/pkg/admission/priority). On a shared pool a pod
of higher priority evicts its neighbours: a tenant without trust could drive out those who have it. So the policy says
under `priorities` who may name which classes with a GPU: by trust, by namespace, by pool. A class in no entry may be
used by all. A PodGroup, a CompositePodGroup or a Workload (scheduling.k8s.io) has a class of its own, by which its
whole gang evicts. It is judged by its namespace, since its pods are not known yet.

A pod without a GPU may use every class where the guard's taint keeps it off the nodes of the pools. If it tolerates the
taint, or names such a node, it could evict pods with GPUs for their processors and memory. So it counts as a pod
without trust and of no pool. Where the guard is no taint, such pods are not judged. Nor are those of an exemption with
`system: true`, whatever its rules: networks and collectors of nodes need high classes.

With `untrusted: {preempt: Never}` a pod without trust evicts nobody: its class has to have `preemptionPolicy: Never`,
unless its value is 0 or less. The API server writes both into pods. For a template the class has to be among the facts;
otherwise the rule only warns. The same goes for a group of pods in a namespace to which no grant reaches, unless the
API server writes both into it (feature gate PodGroupPreemptionPolicy). Without this gate a group evicts nobody if one
of its pods may not (kubernetes pkg/scheduler/framework/preemption/types.go).

Way out: name a class that the message does not refuse, or none. A pod without a GPU may also drop its toleration of the
guard's taint. Or ask an administrator to add your namespace to an entry of `priorities`, or to exempt an agent of the
nodes with `system: true`, by its namespace and service account.
"""

from collections.abc import Iterator, Mapping

from webhook.api.fields import text
from webhook.api.objects import PodGroup
from webhook.cel.clauses import ASKING, Clause
from webhook.cel.policies import reaches
from webhook.cel.write import all_of, any_of, named, one_of
from webhook.facts.kinds.priority_class import SYSTEM_CLASS, TABLE, PriorityClass
from webhook.gpu.review import PodReview
from webhook.model import Finding, Path
from webhook.policy.model import TRUSTED, UNTRUSTED, Policy, PriorityScope
from webhook.review import Review
from webhook.text.words import listed, shown

SINCE = "0.1"


def applies(policy: Policy) -> bool:
    """Return whether the policy gives priority classes to some pods only, or lets only trusted pods evict others."""
    return bool(policy.priorities) or not policy.untrusted_preempt


def check(review: PodReview | Review[PodGroup]) -> Iterator[Finding]:
    """Flag priority classes of pods with GPUs, and of groups of pods, that no entry of the policy gives to them."""
    if isinstance(review, PodReview):
        if review.policy.priorities:
            yield from _of_pod(review)
        if not review.policy.untrusted_preempt:
            yield from _evicting(review)
    else:
        yield from _of_group(review)


def _of_pod(review: PodReview) -> Iterator[Finding]:
    pod, standing = review.subject, _standing(review)
    name = text(pod.spec, "priorityClassName", pod.at("spec"))
    entries = [entry for entry in review.policy.priorities if name in entry.classes] if name else []
    if not entries or standing is None:
        return
    level, pool = standing
    labels = review.facts.namespaces.get(pod.namespace)
    for entry in entries:
        trusted = not entry.trust or level in entry.trust
        reached = entry.scope is None or not pod.namespace or entry.scope.reaches(pod.namespace, labels)
        if trusted and reached and (not entry.pools or pool in entry.pools):
            return
    if review.placement is None:
        fault = f"class {shown(name)} on nodes with GPUs is for {_whom(entries)}, and this pod requests no GPU"
    else:
        fault = (
            f"class {shown(name)} with a GPU is for {_whom(entries)}, and this pod is {level}, in namespace "
            f"{shown(pod.namespace)} and {f'pool {pool}' if pool else 'no pool'}"
        )
    yield Finding(pod.at("spec", "priorityClassName"), f"{fault}; name another class, or none{_off(review)}")


def _standing(review: PodReview) -> tuple[str, str] | None:
    """Return the trust and the pool with which a pod is judged; None if it cannot evict pods with GPUs by its class.

    Without a taint as guard, any pod may run on nodes with GPUs, so those that request none are not judged.
    """
    if (placement := review.placement) is not None:
        return placement.level, placement.pool.name if placement.pool else ""
    return (UNTRUSTED, "") if review.roams else None


def _off(review: PodReview) -> str:
    """Return the ways out for a pod without a GPU that may run on the nodes of the pools; empty for others."""
    if review.placement is not None:
        return ""
    return f", or do not tolerate the taint of nodes with GPUs{review.agents_way}"


def _evicting(review: PodReview) -> Iterator[Finding]:
    """Flag a pod without trust that would evict others."""
    pod, standing, classes = review.subject, _standing(review), review.facts.table(TABLE)
    if standing is None or standing[0] != UNTRUSTED:
        return
    path = pod.at("spec", "priorityClassName")
    name = text(pod.spec, "priorityClassName", pod.at("spec"))
    value, default = pod.spec.get("priority"), (each for each in classes.values() if each.default)
    if type(value) is int:
        own: PriorityClass | None = PriorityClass(value, pod.spec.get("preemptionPolicy") != "Never")
    elif name:
        own = _known(name, classes)
    else:
        own = next(default, PriorityClass(0))
    yield from _of_class(path, name, own, _off(review))


def _known(name: str, classes: Mapping[str, PriorityClass]) -> PriorityClass | None:
    return classes.get(name, SYSTEM_CLASS if name.startswith("system-") else None)


def _of_class(path: Path, name: str, own: PriorityClass | None, more: str = "") -> Iterator[Finding]:
    """Flag a class by which pods without trust would evict others; None is a class that the facts lack.

    `more` are further ways out, for the end of the message.
    """
    if own is None:
        yield Finding(
            path,
            f"class {shown(name)} is not among the facts: if its value is above 0 and its preemptionPolicy is not "
            f"Never, its pods are refused, since {UNTRUSTED} pods evict nobody",
            advice=True,
        )
    elif own.preempts and own.value > 0:
        by = f"class {shown(name)}" if name else "the class of pods that name none"
        yield Finding(
            path,
            f"{by} has priority {own.value} and evicts pods of a lower one, which {UNTRUSTED} pods may not; name a "
            f"class with preemptionPolicy: Never{more}",
        )


def _of_group(review: Review[PodGroup]) -> Iterator[Finding]:
    group, policy = review.subject, review.policy
    labels = review.facts.namespaces.get(group.namespace)
    levels = {UNTRUSTED, TRUSTED} if policy.grants_reaching(group.namespace, labels) else {UNTRUSTED}
    may_evict = policy.untrusted_preempt or TRUSTED in levels
    for path, name, value, preemption in group.priorities:
        if not may_evict and value is not None and preemption is not None:
            yield from _of_class(path, name, PriorityClass(value, preemption != "Never"))
        elif not may_evict:
            yield from _of_class(path, name, _known(name, review.facts.table(TABLE)))
        entries = [entry for entry in policy.priorities if name in entry.classes]
        fits = (
            (not entry.trust or entry.trust & levels)
            and (entry.scope is None or entry.scope.reaches(group.namespace, labels))
            for entry in entries
        )
        if entries and not any(fits):
            yield Finding(
                path,
                f"class {shown(name)} is for {_whom(entries)}, and no pod of namespace {shown(group.namespace)} is one "
                "of them; name another class, or none",
            )


def _whom(entries: list[PriorityScope]) -> str:
    return " or for ".join(map(_one, entries[:3]))


def _one(entry: PriorityScope) -> str:
    words = [f"{' and '.join(sorted(entry.trust))} pods" if entry.trust else "pods"]
    if entry.scope is not None:
        names = sorted(entry.scope.namespaces)
        selected = [] if entry.scope.selector is None else [str(r) for r in entry.scope.selector.requirements]
        words.append(f"of namespaces {listed([*names, *selected], 5)}")
    if entry.pools:
        words.append(f"in pool {listed(sorted(entry.pools), 3)}")
    return " ".join(words)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact for pods that request GPUs by resources, if the policy also denies unsteered-pod.

    Pods that have only claims, pods without GPUs on the nodes of pools, and groups of pods, pass.
    """
    unplaced = "size(variables.asked) == 0 || size(variables.pools) == 0"
    if not policy.untrusted_preempt:  # the API server writes the value and the preemptionPolicy of the class into pods
        yield Clause(
            f"{unplaced} || variables.pools.exists(p, {_TRUSTED})"
            " || object.spec.?priority.orValue(0) <= 0 || object.spec.?preemptionPolicy.orValue('') == 'Never'",
            f"the class evicts other pods, which {UNTRUSTED} pods may not; name a class with preemptionPolicy: Never",
            places="'class ' + object.spec.?priorityClassName.orValue('')",
            only=ASKING,
        )
    if not policy.priorities:
        return
    listed_ = any_of(named("name", entry.classes) for entry in policy.priorities)
    fits = any_of(_fits(entry) for entry in policy.priorities)
    yield Clause(
        f"{unplaced} || [object.spec.?priorityClassName.orValue('')]"
        f".all(name, !({listed_}) || variables.pools.exists(p, {fits}))",
        "the policy gives this class to other pods with GPUs; name another class, or none",
        places="'class ' + object.spec.?priorityClassName.orValue('')",
        only=ASKING,
    )


_TRUSTED = "(variables.trusted && p in variables.granted)"
"""Whether the pod is trusted in pool `p`."""


def _fits(entry: PriorityScope) -> str:
    """Whether an entry lets a pod of pool `p` name class `name`."""
    level = {TRUSTED: _TRUSTED, UNTRUSTED: f"!{_TRUSTED}"}
    return all_of(
        (
            named("name", entry.classes),
            any_of(level[each] for each in sorted(entry.trust)) if len(entry.trust) == 1 else "true",
            reaches(entry.scope) if entry.scope is not None else "true",
            one_of("p", sorted(entry.pools)) if entry.pools else "true",
        )
    )
