"""The cards of a node, as its labels and amounts show them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.catalog import mig_profiles, node_labels
from webhook.deviceplugin import cards
from webhook.facts.kinds.node import Node

GPU = "nvidia.com/gpu"
KARPENTER = {"karpenter.k8s.aws/instance-gpu-count": "1"}


@pytest.mark.parametrize(
    ("labels", "resources", "slices"),
    [
        (KARPENTER, {GPU: 4}, 4),
        ({"eks.amazonaws.com/instance-gpu-count": "2"}, {GPU: 8}, 4),
        ({"cloud.google.com/gke-accelerator-count": "1"}, {GPU: 2}, 2),
        ({"nvidia.com/gpu.count": "2", "nvidia.com/gpu.sharing-strategy": "none"}, {GPU: 3}, 2),
        (KARPENTER, {"nvidia.com/gpu.shared": 4, GPU: 0}, 4),
        (KARPENTER, {GPU: 1}, 1),
        ({"nvidia.com/gpu.count": "8"}, {GPU: 7}, 1),
        ({}, {GPU: 4}, 1),
        ({"nvidia.com/gpu.count": "many"}, {GPU: 4}, 1),
        ({**KARPENTER, "cloud.google.com/gke-gpu-partition-size": "1g.5gb"}, {GPU: 7}, 1),
        ({**KARPENTER, "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, {GPU: 7}, 1),
        (KARPENTER, {GPU: 4, "nvidia.com/mig-1g.5gb": 3}, 1),
    ],
)
def test_more_gpus_than_cards_are_slices(labels: dict[str, str], resources: dict[str, int], slices: int) -> None:
    assert cards.slices(Node("a", labels, resources)) == slices


@given(st.sampled_from(node_labels.COUNTS), st.integers(1, 16), st.integers(1, 64))
def test_each_label_of_a_count_is_read_and_every_gpu_is_on_a_card(label: str, count: int, offered: int) -> None:
    node = Node("a", {label: str(count)}, {GPU: offered})
    slices = cards.slices(node)
    assert cards.count(node) == count
    assert slices * count >= offered
    assert (slices > 1) is (offered > count)


@given(st.sampled_from(node_labels.COUNTS[:-1]), st.integers(33))
def test_a_label_with_more_cards_than_a_machine_can_have_is_not_believed(label: str, count: int) -> None:
    assert cards.count(Node("a", {label: str(count)})) is None
    assert cards.count(Node("a", {label: str(count), node_labels.COUNTS[-1]: "32"})) == 32


@pytest.mark.parametrize(("profile", "least"), [("3g.20gb", 18000), ("1g.5gb+me", 4500), ("1c.3g.40gb", 36000)])
def test_a_mig_profile_says_the_memory_of_its_devices(profile: str, least: int) -> None:
    assert mig_profiles.memory(profile) == least


@pytest.mark.parametrize("text", ["", "3g", "20gb", "3g.gb", "3g.20GB", "٣g.20gb", "3g.20gbs"])
def test_another_text_says_no_memory(text: str) -> None:
    assert mig_profiles.memory(text) is None
