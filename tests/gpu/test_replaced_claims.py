"""Where a claim for a GPU may take the place of another, no claim under gVisor passes."""

from typing import Any

import pytest

from tests.support.objects import Object
from tests.support.policies import policy_of
from webhook.api.admission import decode, wrap
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.rules import walk

POLICY = """
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {name: claims}
spec:
  trust: {grants: [GRANT]}
  pools:
  - name: cards
    sharing: none
    trust: [TRUST]
    deviceClasses: [card.example.com]
    tenants: {namespaces: [vision, lab]}
"""


def of(kind: str, version: str, name: str, spec: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "vision"}, "spec": spec}


NETWORK = of(
    "ResourceClaim",
    "resource.k8s.io/v1",
    "nic",
    {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "netdev.google.com"}}]}},
)


@pytest.mark.parametrize(
    ("namespace", "trust", "grant", "refused"),
    [
        ("vision", "untrusted", "{namespaces: [elsewhere]}", True),
        ("vision", "trusted", "{namespaces: [vision]}", True),
        ("vision", "trusted", "{namespaces: [vision], serviceAccounts: [trainer]}", True),
        ("vision", "trusted", "{namespaces: [vision], users: [ada]}", True),
        ("vision", "trusted", "{rbac: true}", True),
        ("vision", "trusted", "{namespaces: [elsewhere]}", False),
        ("elsewhere", "trusted, untrusted", "{namespaces: [elsewhere]}", False),
    ],
)
@pytest.mark.parametrize("runtime", ["gvisor", "kata"])
def test_a_claim_under_gvisor_passes_only_where_no_claim_is_for_a_gpu(
    namespace: str, trust: str, grant: str, refused: bool, runtime: str
) -> None:
    policy = policy_of(POLICY.replace("GRANT", grant).replace("TRUST", trust))
    spec = {
        "runtimeClassName": runtime,
        "resourceClaims": [{"name": "nic", "resourceClaimName": "nic"}],
        "containers": [{"name": "a", "image": "i", "resources": {"claims": [{"name": "nic"}]}}],
    }
    pod, claim = of("Pod", "v1", "p", spec), {**NETWORK}
    for each in (pod, claim):
        each["metadata"] = {**each["metadata"], "namespace": namespace}
    verdict = Engine(policy, walk()).judge(decode(wrap(pod)), Facts.of([claim]))
    found = {result.rule for result in verdict.having(Action.DENY)}
    assert ("sandboxed-claim" in found) is (refused and runtime == "gvisor")
