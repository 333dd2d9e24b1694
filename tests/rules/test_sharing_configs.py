"""The limits of sharing configurations and device claims, each at its last good and its first bad value."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.policies import policy_of
from webhook.api import admission
from webhook.deviceplugin.decoders import Decoded
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Verdict
from webhook.rules import ignored_sharing_key, walk

RULES = {rule.id: rule for rule in walk()}
POLICY = """\
apiVersion: slicewarden.dev/v1alpha1
kind: GPUSharingPolicy
metadata: {{name: p}}
spec:
  pools:
    - {{name: a, sharing: {sharing}, trust: [trusted], nodes: {{matchLabels: {{a: b}}}}, resources: [nvidia.com/gpu]}}
  sharing: {{maxReplicas: 64, {limits}}}
"""


def judged(rule: str, item: Any, facts: Facts, *, sharing: str = "time-slicing", limits: str = "") -> Verdict:
    engine = Engine(policy_of(POLICY.format(sharing=sharing, limits=limits)), [RULES[rule]])
    return engine.judge(admission.decode(admission.wrap(item)), facts)


def places(verdict: Verdict) -> list[str]:
    """The places in the configuration that the messages begin with."""
    return [result.finding.message.partition(": ")[0] for result in verdict.results]


def config_map(text: str) -> dict[str, Any]:
    metadata = {"name": "c", "namespace": "gpu-operator"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"any": text}}


def shared(section: str, replicas: int = 2, more: str = "") -> str:
    entry = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    return f"sharing: {{{section}: {{failRequestsGreaterThanOne: true, resources: [{entry}]}}}}\n{more}"


def facts(mig: str = "", resources: Mapping[str, str] | None = None, **labels: str) -> Facts:
    """A cluster whose ClusterPolicy names the ConfigMap, with one node that has these labels of its GPUs."""
    named = {f"nvidia.com/gpu.{key.replace('_', '.')}": value for key, value in labels.items()}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "X", **named}},
        "status": {"allocatable": {"nvidia.com/gpu": "1"} if resources is None else resources},
    }
    plugin = {"enabled": True, "config": {"name": "c", "default": "any"}}
    spec = {"devicePlugin": plugin, **({"mig": {"strategy": mig}} if mig else {})}
    cluster_policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"}, "spec": spec}
    return Facts.of([node, cluster_policy])


REPLICAS = "sharing.mps.resources[0].replicas"


@pytest.mark.parametrize(
    ("major", "minor", "replicas", "wrong"),
    [
        ("7", "0", 16, False),
        ("7", "0", 17, True),
        ("7", "0", 48, True),
        ("7", "2", 17, True),
        ("7", "5", 17, False),
        ("8", "0", 48, False),
    ],
)
def test_mps_takes_16_clients_before_turing(major: str, minor: str, replicas: int, wrong: bool) -> None:
    known = facts(compute_major=major, compute_minor=minor)
    verdict = judged("unsafe-sharing-config", config_map(shared("mps", replicas)), known, sharing="mps")
    assert places(verdict) == [REPLICAS] * wrong


@pytest.mark.parametrize(
    ("section", "major", "wrong"), [("timeSlicing", "5", 1), ("timeSlicing", "6", 0), ("mps", "5", 0)]
)
def test_only_time_slicing_needs_pascal(section: str, major: str, wrong: int) -> None:
    kind = "mps" if section == "mps" else "time-slicing"
    known = facts(compute_major=major, compute_minor="0")
    assert len(judged("unsafe-sharing-config", config_map(shared(section)), known, sharing=kind).results) == wrong


@pytest.mark.parametrize(
    ("section", "mig", "wrong"),
    [("mps", "mixed", ["sharing.mps"]), ("mps", "single", []), ("mps", "none", []), ("timeSlicing", "mixed", [])],
)
def test_mps_is_refused_where_the_cluster_sets_the_mixed_mig_strategy(section: str, mig: str, wrong: list[str]) -> None:
    kind = "mps" if section == "mps" else "time-slicing"
    assert places(judged("unsafe-sharing-config", config_map(shared(section)), facts(mig), sharing=kind)) == wrong


@pytest.mark.parametrize(
    ("section", "mig", "replicas", "wrong"),
    [
        ("mps", "single", "0", ["sharing.mps.resources[0]"]),
        ("mps", "single", "1", []),
        ("timeSlicing", "single", "0", []),
        ("timeSlicing", "none", "0", ["sharing.timeSlicing.resources[0]"]),
        ("timeSlicing", "none", "1", []),
    ],
)
def test_whole_cards_in_mig_mode_are_shared_only_where_the_plugin_can(
    section: str, mig: str, replicas: str, wrong: list[str]
) -> None:
    kind = "mps" if section == "mps" else "time-slicing"
    verdict = judged("unsafe-sharing-config", config_map(shared(section)), facts(mig, replicas=replicas), sharing=kind)
    assert places(verdict) == wrong


@pytest.mark.parametrize(
    ("labels", "resources", "reported"),
    [
        ({"nvidia.com/gpu.product": "X"}, {}, 1),
        ({}, {"nvidia.com/gpu": 1}, 1),
        ({}, {}, 0),
    ],
)
def test_an_entry_that_matches_nothing_is_reported_only_for_nodes_with_known_gpus(
    labels: dict[str, str], resources: dict[str, int], reported: int
) -> None:
    known = facts()
    known = replace(known, nodes=tuple(replace(node, labels=labels, resources=resources) for node in known.nodes))
    other = config_map(shared("timeSlicing").replace("nvidia.com/gpu", "nvidia.com/mig-1g.10gb"))
    assert len(judged("ignored-sharing-key", other, known).results) == reported


def test_a_switch_that_the_policy_requires_is_reported_at_its_own_place() -> None:
    item, limits = config_map(shared("timeSlicing")), "renameByDefault: Required"
    verdict = judged("unsafe-sharing-config", item, facts(), limits=limits)
    assert places(verdict) == ["sharing.timeSlicing.renameByDefault"]


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        (True, "true", True),
        (True, "1", True),
        (True, "t", True),
        (True, "TRUE", True),
        (True, "True", True),
        (True, "yes", False),
        (True, "false", False),
        (False, "false", True),
        (False, "0", True),
        (False, "f", True),
        (False, "F", True),
        (False, "true", False),
        (("envvar", "cdi-cri"), "envvar,cdi-cri", True),
        (("envvar", "cdi-cri"), "envvar, cdi-cri", False),
        ("mixed", "mixed", True),
        ("mixed", None, False),
    ],
)
def test_a_flag_equals_a_variable_in_every_spelling_that_the_plugin_reads(
    text: Any, value: str | None, same: bool
) -> None:
    assert ignored_sharing_key._same(Decoded(text, ()), value) is same


# Device claims


def claim(
    parameters: Mapping[str, Any] | None = None, *, device_class: str = "gpu.nvidia.com", everything: bool = False
) -> dict[str, Any]:
    mode = {"allocationMode": "All"} if everything else {"allocationMode": "ExactCount", "count": 1}
    devices: dict[str, Any] = {"requests": [{"name": "g", "exactly": {"deviceClassName": device_class, **mode}}]}
    if parameters is not None:
        whole = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **parameters}
        devices["config"] = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": whole}}]
    metadata = {"name": "c", "namespace": "vision"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }


def mps(**limits: Any) -> dict[str, Any]:
    return {"sharing": {"strategy": "MPS", "mpsConfig": limits}}


PERCENTAGE, PINNED = "defaultActiveThreadPercentage", "defaultPinnedDeviceMemoryLimit"


@pytest.mark.parametrize(
    ("parameters", "wrong"),
    [
        (mps(), 0),
        (mps(**{PERCENTAGE: 0}), 0),
        (mps(**{PERCENTAGE: 100}), 0),
        (mps(**{PERCENTAGE: -1}), 1),
        (mps(**{PERCENTAGE: 101}), 1),
        (mps(**{PINNED: "1Mi"}), 0),
        (mps(**{PINNED: "1048575"}), 1),
        ({"kind": "VfioDeviceConfig"}, 0),
        ({"kind": "OtherConfig"}, 1),
        ({f"key{number}": 1 for number in range(30)}, 20),
    ],
)
def test_values_that_nvidias_driver_takes_and_refuses(parameters: dict[str, Any], wrong: int) -> None:
    assert len(judged("unsafe-device-claim", claim(parameters), Facts()).results) == wrong


def test_a_policy_that_forbids_mps_forbids_it_in_claims() -> None:
    (result,) = judged("unsafe-device-claim", claim(mps()), Facts(), limits="mps: Forbidden").results
    assert result.finding.path[-2:] == ("sharing", "strategy")
    assert "MPS" in result.finding.message


def test_a_claim_is_nvidias_by_its_class_or_by_a_configuration() -> None:
    def wrong(item: dict[str, Any]) -> int:
        return len(judged("unsafe-device-claim", item, Facts()).results)

    assert wrong(claim(everything=True)) == 1
    assert wrong(claim(everything=True, device_class="network")) == 0
    assert wrong(claim({}, everything=True, device_class="fast")) == 1
