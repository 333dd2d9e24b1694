"""Makes updates by which a pod may see GPUs that it could not see before."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from webhook.allowance import Allowance
from webhook.api import admission
from webhook.api.objects import unpaid
from webhook.api.pods import Pod
from webhook.catalog.device_variables import VISIBLE, VOID
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.policy.model import Policy

Object = dict[str, Any]


class Later(NamedTuple):
    """A pod before and after an update, and the update's subresource."""

    name: str
    subresource: str
    old: Object
    new: Object

    @property
    def review(self) -> Object:
        """The AdmissionReview of the update."""
        document: Object = json.loads(admission.wrap(self.new))
        return {
            **document,
            "kind": "AdmissionReview",
            "request": {
                **document["request"],
                "operation": "UPDATE",
                "subResource": self.subresource,
                "oldObject": self.old,
                "userInfo": {"username": "dana"},
            },
        }


def updates(pod: Object, policy: Policy) -> Iterator[Later]:
    """Yield each update that may open a way to GPUs for a waiting pod, which tolerates no guard before the update.

    There are no others: tests/evaluator/test_updates.py asks Kubernetes' own validation for them.
    """
    old = deepcopy(pod)
    taint = policy.guard.taint if policy.guard else None
    own = [each for each in old["spec"].get("tolerations") or [] if each.get("key") not in (None, "", taint)]
    old["spec"]["tolerations"] = own
    if taint:
        new = deepcopy(old)
        new["spec"]["tolerations"] = [*own, {"key": taint, "operator": "Exists"}]
        yield Later("toleration", "", old, new)
    new = deepcopy(old)
    debug = {"name": "later", "image": "i", "env": [{"name": VISIBLE, "value": VOID}]}
    new["spec"]["ephemeralContainers"] = [*(old["spec"].get("ephemeralContainers") or []), debug]
    yield Later("debug container", "ephemeralcontainers", old, new)


def may_see(pod: Object, policy: Policy, facts: Facts) -> bool:
    """Return whether the engine assumes that a pod may see a GPU."""
    request = admission.decode(admission.wrap(pod))
    assert request.object is not None
    (subject,) = unpaid(request, request.object)
    assert isinstance(subject, Pod)
    return PodReview(subject, policy, facts, Allowance()).exposed
