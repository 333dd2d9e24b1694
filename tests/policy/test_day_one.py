"""The first day: the sample policies let NVIDIA's operands and clouds' agents run, and nobody else in their place."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.policies import FACTS, POLICY, facts_of, policy_of
from webhook import rules
from webhook.api import admission
from webhook.catalog.names import Names
from webhook.engine.engine import Engine
from webhook.model import Action, Unusable
from webhook.policy.model import TRUSTED, Policy, PriorityScope

POLICIES = [POLICY, *sorted((ROOT / "policies").glob("*/policy.yaml"))]

OPERANDS = (
    "nvidia-cc-manager",
    "nvidia-container-toolkit",
    "nvidia-dcgm-exporter",
    "nvidia-device-plugin",
    "nvidia-driver",
    "nvidia-gpu-driver-ubuntu22.04",
    "nvidia-gpu-driver-openshift",
    "nvidia-gpu-feature-discovery",
    "nvidia-kata-sandbox-device-plugin",
    "nvidia-mig-manager",
    "nvidia-operator-validator",
    "nvidia-sandbox-device-plugin",
    "nvidia-vfio-manager",
    "nvidia-vgpu-manager",
    "nvidia-dra-driver-kubeletplugin",
    "nvidia-dra-validator",
)
"""Accounts of the GPU Operator's operands (gpu-operator assets/*/0100_service_account.yaml, internal/state)."""

AGENTS = (
    ("nvidia-gpu-operator", "nvidia-driver"),
    ("nvidia-dra-driver-gpu", "nvidia-dra-driver-gpu-service-account-kubeletplugin"),
    ("dra-driver-nvidia-gpu", "dra-driver-nvidia-gpu-service-account-kubeletplugin"),
    ("gmp-system", "collector"),
    ("amazon-cloudwatch", "cloudwatch-agent"),
    ("amazon-cloudwatch", "dcgm-exporter-service-acct"),
    ("amazon-guardduty", "aws-guardduty-agent"),
    ("calico-system", "calico-node"),
)


def agent(namespace: str, account: str) -> dict[str, Any]:
    """A DaemonSet that does what agents do: it tolerates every taint, and is privileged on its node."""
    spec = {
        "serviceAccountName": account,
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "agent", "securityContext": {"privileged": True}}],
        "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}],
    }
    metadata = {"name": "agent", "namespace": namespace}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": {"template": template}}


def denied(policy: Path | Policy, item: dict[str, Any]) -> set[str]:
    engine = Engine(policy_of(policy) if isinstance(policy, Path) else policy, rules.walk())
    verdict = engine.judge(admission.decode(admission.wrap(item)), facts_of(FACTS))
    assert verdict.results
    return {result.rule for result in verdict.having(Action.DENY)}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.parent.name)
def test_the_operands_of_the_gpu_operator_are_let_through(policy: Path) -> None:
    for account in OPERANDS:
        assert denied(policy, agent("gpu-operator", account)) == set(), account
    assert "privileged-container" in denied(policy, agent("gpu-operator", "default"))
    assert "privileged-container" in denied(policy, agent("team", "nvidia-driver"))


@pytest.mark.parametrize(("namespace", "account"), AGENTS)
def test_the_sample_lets_the_agents_of_clouds_through(namespace: str, account: str) -> None:
    assert denied(POLICY, agent(namespace, account)) == set()
    assert "privileged-container" in denied(POLICY, agent(namespace, "default"))


@pytest.mark.parametrize(("namespace", "account"), AGENTS)
def test_the_agents_of_clouds_may_evict_where_untrusted_pods_may_not(namespace: str, account: str) -> None:
    policy = policy_of(POLICY)
    entry = PriorityScope(classes=Names(("system-*",)), trust=frozenset((TRUSTED,)), scope=None, pools=frozenset())
    for stricter in (replace(policy, untrusted_preempt=False), replace(policy, priorities=(entry,))):
        for holder, refused in ((account, False), ("default", True)):
            item = agent(namespace, holder)
            item["spec"]["template"]["spec"]["priorityClassName"] = "system-node-critical"
            assert ("unearned-priority" in denied(stricter, item)) is refused, holder


def test_each_exemption_of_the_sample_has_its_source() -> None:
    lines = POLICY.read_text("utf-8").splitlines()
    start = lines.index("  exemptions:")
    end = lines.index("    # Agents of your own: exempt those that you run, before the rules refuse them.")
    sources = 0
    for line in lines[start:end]:
        sources += "assets/" in line or ".yaml" in line or "charts/" in line or ".com/" in line or "helm," in line
        assert not line.startswith("    - name: ") or sources
    assert sources >= 5


# Accounts that begin alike

EXEMPT = """\
  exemptions:
    - name: drivers
      reason: drivers of nodes
      system: true
      namespaces: [gpu-operator]
      serviceAccounts: [{account}]
"""


def written(account: str) -> str:
    text = POLICY.read_text("utf-8")
    start, end = text.index("  # Parts of the system, by namespace"), text.index("  memory:\n")
    return text[:start] + EXEMPT.format(account=account) + "\n" + text[end:]


def test_an_account_of_an_exemption_may_end_in_a_star() -> None:
    (exemption,) = policy_of(written("nvidia-gpu-driver-*")).exemptions
    for account in ("nvidia-gpu-driver-ubuntu22.04", "nvidia-gpu-driver-"):
        assert exemption.scope.covers("gpu-operator", {}, account)
    for account in ("nvidia-gpu-drive", "nvidia-gpu-driver", "default", "x-nvidia-gpu-driver-a"):
        assert not exemption.scope.covers("gpu-operator", {}, account)


@pytest.mark.parametrize("account", ['"*"', '"a*"', '"driver*"', '"-*"', '"a-*-b"', '"a-**"'])
def test_a_star_stands_only_at_the_end_and_after_a_dash_or_a_dot(account: str) -> None:
    with pytest.raises(Unusable, match="which may end in"):
        policy_of(written(account))


def test_a_grant_has_no_star() -> None:
    text = POLICY.read_text("utf-8").replace(
        "          matchLabels: {slicewarden.dev/trust: trusted}\n",
        '          matchLabels: {slicewarden.dev/trust: trusted}\n        serviceAccounts: ["trainer-*"]\n',
    )
    with pytest.raises(Unusable, match="serviceAccounts"):
        policy_of(text)
