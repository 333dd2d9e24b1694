"""A pod comes with an annotation or a label by which another scheduler says which GPU it chose.

HAMi, gpushare, vgpu-manager and others write their choice into the pod, and their agents on the nodes hand out
what they read there, whoever wrote it (HAMi#3041). A pod that brings its own is given another's card, past
every count. KAI writes labels (`runai-gpu-group`), so labels count too. No pod has a reason to come with one.
A tenant may keep or remove what a scheduler wrote; only schedulers change it. An agent that notes its progress
there needs its account named too. Annotations that users are told to write, such as `hami.io/gpu-scheduler-policy`,
are no choice of a GPU and pass.

Way out: remove the annotation or the label. Updates by a scheduler, and by its agents, pass where the policy names
their accounts under `schedulers`.
"""

from collections.abc import Iterator

from webhook.catalog.device_annotations import PLACEMENT_ANNOTATIONS, PLACEMENT_LABELS
from webhook.cel.clauses import ANY_POD, Clause
from webhook.cel.policies import include
from webhook.cel.write import any_of, named
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("placements",)


def check(review: PodReview) -> Iterator[Finding]:
    """Flag what only a scheduler writes, from anyone but one that the policy names, or an administrator."""
    pod, placements = review.subject, review.exposure.placements
    writers = (review.policy.schedulers, review.policy.administrators)
    if not placements or (pod.requester is not None and any(group.include(pod.requester) for group in writers)):
        return
    for path, key, value, _ in placements:
        part = "label" if path[-2] == "labels" else "annotation"
        named = f"{part} {shown(key, quotes=False)} records a scheduler's choice of a GPU"
        before = {} if pod.old is None else pod.old.labels if part == "label" else pod.old.annotations
        if before.get(key, value) != value:
            yield Finding(path, f"{named}, which only a scheduler may change; leave it as it was, or remove it")
        else:
            yield Finding(path, f"{named} and must not be set by hand; remove it")


def floor(policy: Policy) -> Iterator[Clause]:
    """Exact."""
    annotation, label = named("k", PLACEMENT_ANNOTATIONS), named("k", PLACEMENT_LABELS)
    yield Clause(
        f"(!variables.annotations.exists(k, {annotation}) && !variables.podlabels.exists(k, {label}))"
        f" || {any_of((include(policy.schedulers), include(policy.administrators)))}",
        "it records a scheduler's choice of a GPU, which only a scheduler may write; leave it as it was, or remove it",
        places=f"(variables.annotations.filter(k, {annotation}) + variables.podlabels.filter(k, {label})).join(', ')",
        asked=ANY_POD,
    )
