"""Volumes that a driver mounts by what a pod says: only drivers of files of their own, and those of the policy."""

from dataclasses import replace
from typing import Any

import pytest

from webhook import rules
from webhook.api.admission import decode, wrap
from webhook.catalog import volume_drivers
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action
from webhook.policy.model import Policy

SMB = {"csi": {"driver": "smb.csi.k8s.io", "volumeAttributes": {"source": "//nas/images"}}}
FILE = {"azureFile": {"secretName": "a", "shareName": "b"}}
CIFS = {"flexVolume": {"driver": "fstab/cifs"}}


def denied(policy: Policy, facts: Facts, volume: dict[str, Any], gpus: int = 1) -> set[str]:
    spec = {
        "volumes": [{"name": "v", **volume}],
        "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus} if gpus else {}}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "visitors"}, "spec": spec}
    verdict = Engine(policy, rules.walk()).judge(decode(wrap(pod)), facts)
    return {result.rule for result in verdict.having(Action.DENY)}


@pytest.mark.parametrize("driver", [*volume_drivers.HARMLESS])
def test_a_driver_of_files_of_its_own_passes(sample_policy: Policy, sample_facts: Facts, driver: str) -> None:
    assert denied(sample_policy, sample_facts, {"csi": {"driver": driver}}) == set()


@pytest.mark.parametrize(
    ("volume", "driver"), [(SMB, "smb.csi.k8s.io"), (FILE, "file.csi.azure.com"), (CIFS, "fstab/cifs")]
)
def test_another_driver_passes_if_the_policy_lists_it(
    sample_policy: Policy, sample_facts: Facts, volume: dict[str, Any], driver: str
) -> None:
    assert denied(sample_policy, sample_facts, volume) == {"device-path"}
    assert denied(sample_policy, sample_facts, volume, gpus=0) == set()
    for listed, rule in ((driver, set[str]()), (f"{driver}.example", {"device-path"})):
        policy = replace(sample_policy, forms=replace(sample_policy.forms, volume_drivers=(listed,)))
        assert denied(policy, sample_facts, volume) == rule


@pytest.mark.parametrize(
    "driver", ["Secrets-Store.csi.k8s.io", "secrets-store.csi.k8s.io.", "", "csi.cert-manager.io/x"]
)
def test_a_name_that_only_looks_like_one_does_not_pass(sample_policy: Policy, sample_facts: Facts, driver: str) -> None:
    assert denied(sample_policy, sample_facts, {"csi": {"driver": driver}}) == {"device-path"}


def test_a_driver_of_csi_is_none_of_flex_volumes(sample_policy: Policy, sample_facts: Facts) -> None:
    assert denied(sample_policy, sample_facts, {"flexVolume": {"driver": "csi.spiffe.io"}}) == {"device-path"}
