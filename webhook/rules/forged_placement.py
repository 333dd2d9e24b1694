"""A pod comes with an annotation by which another scheduler says which GPU it chose.

HAMi, gpushare, vgpu-manager and others write their choice into the pod, and their agents on the nodes hand out
what they read there, whoever wrote it (HAMi#3041): a pod that brings its own is given another's card, past
every count. No pod has a reason to come with one. What a scheduler wrote may be kept or removed by anyone, and is
changed by schedulers alone; of an agent that notes there how far it is the account has to be named too.

Way out: remove the annotation. The scheduler's own updates, and its agents', pass where the policy names their accounts
under `schedulers`.
"""

from collections.abc import Iterator

from webhook.facts import Facts
from webhook.model import Finding
from webhook.openings import openings
from webhook.pods import Pod
from webhook.policy import Policy


def check(pod: Pod, policy: Policy, facts: Facts) -> Iterator[Finding]:
    """Flag annotations that only a scheduler writes, from anyone but one that the policy names, or an administrator."""
    found = openings(pod).placement_annotations
    writers = (policy.schedulers, policy.administrators)
    if not found or (pod.requester is not None and any(each.include(pod.requester) for each in writers)):
        return
    before = pod.old.annotations if pod.old else {}
    for path, key, value, _ in found:
        done = "and none has seen this pod; remove it"
        if before.get(key, value) != value:
            done = "and no scheduler changes it here; leave it as it was, or remove it"
        yield Finding(path, f"says which GPU a scheduler chose, {done}")
