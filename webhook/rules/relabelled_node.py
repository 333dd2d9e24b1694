"""A user who may not label nodes changes a node's pool or the size of its GPUs.

A node's labels decide which pool it is in and how its GPUs are handed out. A label can bring trusted pods that share
onto a GPU that others have to themselves, or untrusted pods onto a shared GPU. In a shared pool the memory caps follow
from labels too: a GPU that looks larger gives every pod more memory than there is. Only administrators may write these
labels, and the accounts under `nodeLabellers` in the policy, such as those of Node Feature Discovery and of the GPU
Operator.

A kubelet may write any label of its own node that is not one of Kubernetes' own (kubernetes
plugin/pkg/admission/noderestriction/admission.go), and clouds label nodes by `--node-labels`. So a kubelet may
register its node with a pool's labels, unless `nodeLabellers.selfRegistration` is false. It may never change them
later.

Node Feature Discovery merges the NodeFeatures of all namespaces into the labels of the node that they name, unless its
configuration restricts that. Those of other namespaces override its own (node-feature-discovery
pkg/nfd-master/nfd-master.go, getAndMergeNodeFeatures). Operators act on many of these labels: NVIDIA's divides the GPUs
of a node, chooses its driver or removes the device plugin. So if a service account is under `nodeLabellers`, a
NodeFeature with labels, or with features, from which NodeFeatureRules make labels, is refused outside the namespaces of
these accounts and of device plugins (`sharing.namespaces`), unless one of them or an administrator writes it.

Way out: ask an administrator to change the label, or to add the account to `nodeLabellers`.
"""

from collections.abc import Iterable, Iterator

from webhook.api.objects import NODE_NAME, Labelled, NodeFeature
from webhook.api.pods import KUBELETS
from webhook.cel.clauses import Clause, RequestKind
from webhook.cel.policies import include, pool_of, registers
from webhook.cel.write import all_of, any_of, array, one_of, text
from webhook.memory.budget import CARD_LABELS
from webhook.model import Finding, Path, Requester
from webhook.policy.model import Policy, Pool
from webhook.review import Review
from webhook.text.words import shown

SINCE = "0.1"


def check(review: Review[Labelled | NodeFeature]) -> Iterator[Finding]:
    """Flag a change of a node's labels that moves the node to another pool, or changes the cards of a shared pool."""
    item, policy = review.subject, review.policy
    if isinstance(item, NodeFeature):
        yield from _of_feature(item, policy)
    elif item.kind == "Node":
        yield from _of_node(item, policy)


def _of_node(item: Labelled, policy: Policy) -> Iterator[Finding]:
    requester = item.requester
    if requester is None or _may(requester, policy) or _registers(requester, item, policy):
        return
    labels = item.old.labels if item.old else {}
    before, now = policy.pool_of(labels), policy.pool_of(item.labels)
    path: Path = ("metadata", "labels")
    if before is not now:
        changes = [(path, _move(before, now))]
    elif now and now.shared:
        changed = (key for key in CARD_LABELS if item.labels.get(key) != labels.get(key))
        changes = [((*path, key), f"change the memory of the GPUs in pool {now.name}") for key in changed]
    else:
        return
    for place, what in changes:
        yield Finding(
            place,
            f"user {shown(requester.username)} may not {what}; ask an administrator or a node labeller of policy "
            f"{policy.name}",
        )


def _of_feature(item: NodeFeature, policy: Policy) -> Iterator[Finding]:
    requester, old, homes = item.requester, item.old, policy.labelling_namespaces
    if requester is None or not homes or item.namespace in homes or _may(requester, policy):
        return
    if old is not None and (item.node, item.labels, item.features) == (old.node, old.labels, old.features):
        return  # such as an update of its finalizers
    places: list[Path] = [("spec", "labels")] if item.labels else []
    if any(item.features.values()):
        places.append(("spec", "features"))
    for place in places:
        yield Finding(
            place,
            f"Node Feature Discovery labels node {shown(item.node)} by this, and user {shown(requester.username)} may "
            f"not; ask an administrator or a node labeller of policy {policy.name}",
        )


def _may(requester: Requester, policy: Policy) -> bool:
    return policy.administrators.include(requester) or policy.node_labellers.include(requester)


def _registers(requester: Requester, item: Labelled, policy: Policy) -> bool:
    registers = item.old is None and requester.username == f"system:node:{item.name}"
    return registers and policy.self_registration and KUBELETS in requester.groups


def _move(before: Pool | None, now: Pool | None) -> str:
    if before is None or now is None:
        return f"take the node into pool {now.name}" if now else f"take the node out of pool {before and before.name}"
    return f"move the node from pool {before.name} to pool {now.name}"


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    kubelet = all_of((registers(), f"{text(KUBELETS)} in request.userInfo.?groups.orValue([])"))
    may = [include(policy.administrators), include(policy.node_labellers)]
    if policy.self_registration:
        may.append(kubelet)
    shared = one_of("variables.pool", sorted(pool.name for pool in policy.pools if pool.shared))
    cards = f"{array(sorted(CARD_LABELS))}.all(k, variables.now[?k] == variables.before[?k])"
    yield Clause(
        any_of((f"(variables.pool == variables.before_pool && (!({shared}) || {cards}))", *may)),
        f"these labels decide the node's pool, or the memory of its GPUs; ask an administrator or a node labeller of "
        f"policy {policy.name}",
        places="'from pool ' + (variables.before_pool == '' ? 'none' : variables.before_pool)"
        " + ' to pool ' + (variables.pool == '' ? 'none' : variables.pool)",
        asked=(RequestKind.NODES,),
        variables=(
            ("pool", pool_of("variables.now", policy)),
            ("before_pool", pool_of("variables.before", policy)),
        ),
    )
    if policy.labelling_namespaces:
        yield _features(policy, may[:2])


def _features(policy: Policy, may: Iterable[str]) -> Clause:
    same = " && ".join(
        f"object.?{field}.orValue({empty}) == oldObject.?{field}.orValue({empty})"
        for field, empty in (
            (f"metadata.?labels[?{text(NODE_NAME)}]", "''"),
            ("spec.?labels", "{}"),
            ("spec.?features", "{}"),
        )
    )
    labels, features = "object.?spec.?labels.orValue({})", "object.?spec.?features.orValue({})"
    return Clause(
        any_of(
            (
                f"(size({labels}) == 0 && {features}.all(k, size({features}[k]) == 0))",
                f"(request.operation == 'UPDATE' && {same})",
                one_of("request.?namespace.orValue('')", sorted(policy.labelling_namespaces)),
                *may,
            )
        ),
        "Node Feature Discovery labels a node by these labels or features; ask an administrator or a node labeller of "
        f"policy {policy.name}",
        asked=(RequestKind.NODE_FEATURES,),
    )
