"""A pod is created with an annotation or a label in which another scheduler writes the GPU that it chose.

HAMi, gpushare, vgpu-manager and others write their choice into the pod, and their agents on the nodes hand out
what they read there, whoever wrote it (HAMi#3041). A pod that brings its own annotation gets another pod's card, and is
not counted. kai-gpu-fractioning turns `nvidia.com/container.NAME.gpus.devices` into the `NVIDIA_VISIBLE_DEVICES` of a
container, `all` too, in any pod and in place of `void` (fractioning-manager/fractiond/internal/plugin.go). KAI writes
labels (`runai-gpu-group`), so labels count too. No pod has a reason to be created with one.

Device plugins of other makers find the cards of a pod in the same way, such as MetaX's in
`metax-tech.com/gpu-devices-allocated` and Kunlunxin's in `BAIDU_COM_DEVICE_IDX`. Most of them are closed. So in the
domains of these makers, every annotation counts that users are not told to write.

A tenant may keep what a scheduler wrote; only schedulers change or remove it. Without it, a scheduler counts the card
as free at once and gives it to another pod, while the first still runs there. A share of compute
(`nvidia.com/container.NAME.gpu-compute.portion`) is a limit. The account of an agent that writes its progress there
must be listed too. Annotations that users are told to write, such as `hami.io/gpu-scheduler-policy`,
`hygon.com/use-gpuuuid` and `metax-tech.com/sgpu-qos-policy`, are no choice of a GPU and pass.

Way out: remove the annotation or the label from a new pod, and leave those of a pod that exists. Updates by a
scheduler, and by its agents, pass where the policy names their accounts under `schedulers`.
"""

from collections.abc import Iterator

from webhook.api.pods import Pod
from webhook.catalog.device_annotations import PLACEMENT_ANNOTATIONS, PLACEMENT_LABELS
from webhook.cel.clauses import ANY_POD, CHANGES, Clause
from webhook.cel.policies import include
from webhook.cel.write import any_of, named
from webhook.gpu.review import PodReview
from webhook.model import Finding
from webhook.policy.model import Policy
from webhook.text.words import shown

SINCE = "0.1"

LOOKS_AT = ("placements", "old")


def check(review: PodReview) -> Iterator[Finding]:
    """Flag a scheduler's annotations and labels, unless a listed scheduler or an administrator writes them."""
    pod, placements = review.subject, review.exposure.placements
    writers = (review.policy.schedulers, review.policy.administrators)
    lost = [] if pod.old is None or pod.template else [*_lost(pod.old, pod)]
    if not (placements or lost):
        return
    if pod.requester is not None and any(group.include(pod.requester) for group in writers):
        return
    for path, key, value, _ in placements:
        part = "label" if path[-2] == "labels" else "annotation"
        named = f"{part} {shown(key, quotes=False)} records a scheduler's choice of a GPU"
        before = {} if pod.old is None else pod.old.labels if part == "label" else pod.old.annotations
        if before.get(key, value) != value:
            yield Finding(path, f"{named}, which only a scheduler may change; leave it as it was")
        else:
            yield Finding(path, f"{named} and must not be set by hand; remove it")
    for part, key in lost:
        message = f"{part} {shown(key, quotes=False)} records a scheduler's choice of a GPU, which only a scheduler may"
        yield Finding(pod.at("metadata", f"{part}s"), f"{message} remove; put it back", parts=(key,))


def _lost(old: Pod, new: Pod) -> Iterator[tuple[str, str]]:
    """Yield the annotations and labels of schedulers that an update removes."""
    for part, names, before, after in (
        ("annotation", PLACEMENT_ANNOTATIONS, old.annotations, new.annotations),
        ("label", PLACEMENT_LABELS, old.labels, new.labels),
    ):
        yield from ((part, key) for key in names.among(before) if key not in after)


def fallback(policy: Policy) -> Iterator[Clause]:
    """Exact: the fallback gives the same verdict as the webhook."""
    annotation, label = named("k", PLACEMENT_ANNOTATIONS), named("k", PLACEMENT_LABELS)
    writer = any_of((include(policy.schedulers), include(policy.administrators)))
    yield Clause(
        f"(!variables.annotations.exists(k, {annotation}) && !variables.podlabels.exists(k, {label})) || {writer}",
        "it records a scheduler's choice of a GPU, which only a scheduler may write; leave it as it was, or remove it "
        "from a new pod",
        places=f"(variables.annotations.filter(k, {annotation}) + variables.podlabels.filter(k, {label})).join(', ')",
        asked=ANY_POD,
    )
    lost = any_of(
        f"oldObject.metadata.?{part}.orValue({{}}).exists(k, {key} && !(k in object.metadata.?{part}.orValue({{}})))"
        for part, key in (("annotations", annotation), ("labels", label))
    )
    yield Clause(
        f"!({lost}) || {writer}",
        "a scheduler's choice of a GPU is gone, which only a scheduler may remove; put it back",
        asked=CHANGES,
    )
