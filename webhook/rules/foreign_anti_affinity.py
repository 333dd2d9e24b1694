"""A pod keeps pods of other namespaces off the nodes of a pool.

A required `podAntiAffinity` works in both directions: while the pod is on a node, the scheduler puts no pod there that
one of its terms selects (kubernetes pkg/scheduler/framework/plugins/interpodaffinity/filtering.go). With `namespaces`
or `namespaceSelector` a term also selects pods of others. So one pod with one GPU, or with one slice, could keep every
other tenant off its node; with a wider `topologyKey`, off a whole zone.

These terms pass: preferred ones, those about the pod's own namespace, and those without a `labelSelector`, which
select nothing. A `namespaceSelector` is about the own namespace if it names it by `kubernetes.io/metadata.name`.

A pod without a GPU is judged if the guard is a taint that does not keep it off the nodes of the pools. Others, and
those of an exemption with `system: true`, are not judged: with a zone as `topologyKey` they may still keep pods with
GPUs away, which a ResourceQuota of the scope `CrossNamespacePodAffinity` prevents.

JobSet writes such a term into the pods of a JobSet with the annotation `alpha.jobset.sigs.k8s.io/exclusive-topology`
(jobset pkg/webhooks/pod_mutating_webhook.go). So a JobSet with GPUs and this annotation is refused itself.

Way out: leave out `namespaces` and `namespaceSelector`, so that the term is about the pods of your namespace. Or write
the term as a preferred one. Remove JobSet's annotation: then other JobSets may run next to yours. An administrator can
exempt a service by its namespace and service account.
"""

from collections.abc import Iterator
from typing import Any

from webhook.api.fields import entries, section, text, texts
from webhook.api.pods import Pod
from webhook.cel.clauses import ASKING, Clause
from webhook.cel.write import text as written
from webhook.gpu.review import JOB_SET, PodReview
from webhook.model import Finding, Object, Path
from webhook.policy.model import Policy
from webhook.policy.scopes import NAME_LABEL
from webhook.text.words import listed, shown

SINCE = "0.1"

LOOKS_AT = ("spread", "job set")

HOSTNAME = "kubernetes.io/hostname"
"""The topology key under which each node is a domain of its own."""

AT = ("affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


EXCLUSIVE, BY_LABELS = "alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector"
"""The annotation for which JobSet writes anti-affinity, and the one with which it does not."""


def check(review: PodReview) -> Iterator[Finding]:
    """Flag required anti-affinity to pods of other namespaces, in pods that may be on nodes of pools."""
    pod = review.subject
    if pod.kind == JOB_SET and review.placement is not None:
        yield from _of_job_set(review)
    terms = [(path, term) for path, term in _terms(pod) if term.get("labelSelector") is not None]
    if not terms or (review.placement is None and not review.roams):
        return
    where = f" of pool {review.pool_name}" if review.pool_name else ""
    own = f"of {shown(pod.namespace, quotes=False)}" if pod.namespace else "of your namespace"
    for path, term in terms:
        topology = text(term, "topologyKey", path)
        place = f"its node{where}" if topology == HOSTNAME else f"every node{where} with its {shown(topology)}"
        for key, whom in _others(term, path, pod.namespace):
            yield Finding(
                (*path, key),
                f"while this pod runs, the term keeps pods of {whom} off {place}; leave out {key}, so that it is about "
                f"the pods {own} only, or make it a preferred term{_exclusive(pod)}{review.agents_way}",
            )


def _exclusive(pod: Pod) -> str:
    """Return the way out for pods of a JobSet, if JobSet may have written the term; empty for other pods."""
    return f"; JobSet writes such a term for {EXCLUSIVE}, so remove it" if EXCLUSIVE in pod.annotations else ""


def _of_job_set(review: PodReview) -> Iterator[Finding]:
    """Flag the annotation for which JobSet writes anti-affinity into the pods of a Job.

    It may be on the JobSet, on the template of the Job, and on that of the pods.
    """
    pod, where = review.subject, f" of pool {review.pool_name}" if review.pool_name else ""
    for path in ((), pod.spec_path[:-3], pod.metadata_path[:-1]):
        holder: Any = pod.whole
        for key in path:
            holder = holder[key]
        at = (*path, "metadata", "annotations")
        annotations = section(section(holder, "metadata", path), "annotations", at[:-1])
        if EXCLUSIVE in annotations and BY_LABELS not in annotations:
            topology = shown(text(annotations, EXCLUSIVE, at))
            yield Finding(
                (*at, EXCLUSIVE),
                "for this annotation JobSet writes a required podAntiAffinity, which keeps JobSets of all namespaces "
                f"off every node{where} with its {topology}; remove it",
            )


def _terms(pod: Pod) -> Iterator[tuple[Path, Object]]:
    holder, path = pod.spec, pod.at("spec")
    for key in AT[:-1]:
        holder, path = section(holder, key, path), (*path, key)
    for index, term in entries(holder, AT[-1], path):
        yield (*path, AT[-1], index), term


def _others(term: Object, path: Path, own: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a term by which it selects pods of other namespaces, each with these namespaces in words.

    The namespaces of the pods of a cluster-scoped template are not known (`own` is empty); any one may be their own.
    """
    names = sorted({name for _, name in texts(term, "namespaces", path)} - {own})
    if len(names) > (not own):
        yield "namespaces", f"namespace {listed([shown(name, quotes=False) for name in names], 3)}"
    if term.get("namespaceSelector") is not None:
        at = (*path, "namespaceSelector")
        selector = section(term, "namespaceSelector", path)
        if not _names_one(selector, at, own):
            yield "namespaceSelector", "other namespaces" if _selects(selector) else "every namespace"


def _selects(selector: Object) -> bool:
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def _names_one(selector: Object, at: Path, own: str) -> bool:
    """Whether a namespace selector requires the name of the pod's own namespace, and so matches no other.

    If the pod's namespace is not known (`own` is empty), any single name will do.
    """
    named = [{text(section(selector, "matchLabels", at), NAME_LABEL, (*at, "matchLabels"))} - {""}]
    for index, each in entries(selector, "matchExpressions", at):
        place = (*at, "matchExpressions", index)
        if text(each, "key", place) == NAME_LABEL and text(each, "operator", place) == "In":
            named.append({value for _, value in texts(each, "values", place)})
    return any(names and (names == {own} if own else len(names) == 1) for names in named)


def fallback(_: Policy) -> Iterator[Clause]:
    """Weaker: only pods that ask by resources are judged."""
    terms = f"object.spec.?{'.?'.join(AT)}.orValue([])"
    name = written(NAME_LABEL)
    by_label = f"t.namespaceSelector.?matchLabels.orValue({{}})[?{name}].orValue('') == variables.space"
    by_value = (
        f"t.namespaceSelector.?matchExpressions.orValue([]).exists(e, e.key == {name} && e.operator == 'In'"
        " && size(e.?values.orValue([])) > 0 && e.?values.orValue([]).all(v, v == variables.space))"
    )
    yield Clause(
        f"size(variables.asked) == 0 || !{terms}.exists(t, has(t.labelSelector)"
        " && (t.?namespaces.orValue([]).exists(n, n != variables.space)"
        f" || (has(t.namespaceSelector) && !({by_label} || {by_value}))))",
        "a required podAntiAffinity keeps pods of other namespaces off the node of this pod; leave out namespaces and "
        "namespaceSelector, or make it a preferred term",
        f"'spec.{'.'.join(AT)}'",
        only=ASKING,
    )
