"""Tables of the labels and the taint that describe the GPUs of nodes, with their writers, and of the memory of GPUs.

Sources are given as repository and file, or as the page of a vendor's documentation.
"""

import re
from typing import NamedTuple

from webhook.catalog.names import Names

GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"

PRODUCTS = (
    "nvidia.com/gpu.product",  # GPU Feature Discovery: k8s-device-plugin internal/lm/resource.go
    GKE_ACCELERATOR,  # GKE: cloud.google.com/kubernetes-engine/docs/how-to/gpus
    "karpenter.k8s.aws/instance-gpu-name",  # Karpenter: aws/karpenter-provider-aws pkg/apis/v1/labels.go
    "eks.amazonaws.com/instance-gpu-name",  # EKS Auto Mode: docs.aws.amazon.com/eks/latest/userguide/auto-gpu.html
    # People, for the Cluster Autoscaler: kubernetes/autoscaler cluster-autoscaler/cloudprovider/aws/README.md
    "k8s.amazonaws.com/accelerator",
)
"""Labels with the product of a node's cards, the most exact first."""

GKE_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
"""The label of GKE's nodes whose cards are shared (cloud.google.com/kubernetes-engine/docs/concepts/timesharing-gpus).

With the value `mps` the clients of MPS need `hostIPC` (.../docs/how-to/nvidia-mps-gpus).
"""

STRATEGIES = {
    # GPU Feature Discovery: k8s-device-plugin internal/lm/resource.go, its values api/config/v1/sharing.go
    "nvidia.com/gpu.sharing-strategy": {"time-slicing": "time-slicing", "mps": "mps", "none": "none"},
    # GKE: cloud.google.com/kubernetes-engine/docs/concepts/timesharing-gpus, .../docs/how-to/nvidia-mps-gpus
    GKE_STRATEGY: {"time-sharing": "time-slicing", "mps": "mps"},
}
"""Labels that say how cards are shared, and what their values mean."""

REPLICAS = (
    "nvidia.com/gpu.replicas",  # GPU Feature Discovery: k8s-device-plugin internal/lm/resource.go
    # GKE: cloud.google.com/kubernetes-engine/docs/how-to/timesharing-gpus
    "cloud.google.com/gke-max-shared-clients-per-gpu",
)
"""Labels with the number of slices of a card."""

PARTITIONS = (
    "cloud.google.com/gke-gpu-partition-size",  # GKE: cloud.google.com/kubernetes-engine/docs/how-to/gpus-multi
)
"""Labels with the MIG profile of nodes whose MIG devices are called nvidia.com/gpu."""

MEMORIES = (
    "nvidia.com/gpu.memory",  # GPU Feature Discovery: k8s-device-plugin internal/lm/resource.go
    "karpenter.k8s.aws/instance-gpu-memory",  # Karpenter: aws/karpenter-provider-aws pkg/apis/v1/labels.go
    # EKS Auto Mode: docs.aws.amazon.com/eks/latest/userguide/create-node-pool.html
    "eks.amazonaws.com/instance-gpu-memory",
)
"""Labels with the memory of a card in MiB. Only the first is the driver's value; the others are the nominal size."""

COUNTS = (
    "nvidia.com/gpu.count",  # GPU Feature Discovery: k8s-device-plugin internal/lm/resource.go
    "cloud.google.com/gke-accelerator-count",  # GKE: cloud.google.com/kubernetes-engine/docs/how-to/autopilot-gpus
    "karpenter.k8s.aws/instance-gpu-count",  # Karpenter: aws/karpenter-provider-aws pkg/apis/v1/labels.go
    "eks.amazonaws.com/instance-gpu-count",  # EKS Auto Mode: docs.aws.amazon.com/eks/latest/userguide/auto-gpu.html
)
"""Labels with the number of a node's cards."""

INSTANCE_TYPES = (
    "node.kubernetes.io/instance-type",  # kubernetes.io/docs/reference/labels-annotations-taints
)
"""Labels with a cloud's name for the machine, which has one kind of card."""

MANUFACTURERS = (
    "karpenter.k8s.aws/instance-gpu-manufacturer",  # Karpenter: aws/karpenter-provider-aws pkg/apis/v1/labels.go
    # EKS Auto Mode: docs.aws.amazon.com/eks/latest/userguide/create-node-pool.html
    "eks.amazonaws.com/instance-gpu-manufacturer",
)
"""Labels with the maker of a node's cards: `nvidia` for NVIDIA's."""

NAMING = (*PRODUCTS, *INSTANCE_TYPES, "karpenter.k8s.aws/instance-family")
"""Labels whose value names a node's card, or a machine or a family of machines with one kind of card."""

KARPENTER = "karpenter.sh/nodepool"
"""The label of nodes that Karpenter makes (kubernetes-sigs/karpenter pkg/apis/v1/labels.go)."""

EC2_NODE_CLASS = "karpenter.k8s.aws/ec2nodeclass"
"""The label that names a node's EC2NodeClass (aws/karpenter-provider-aws pkg/apis/v1/labels.go)."""

SCALING = (
    # GKE: kubernetes/cloud-provider-gcp cmd/gcp-controller-manager/node_annotator.go
    "cloud.google.com/gke-nodepool",
    # EKS: kubernetes/autoscaler cluster-autoscaler/cloudprovider/aws/aws_wrapper.go
    "eks.amazonaws.com/nodegroup",
    KARPENTER,  # kubernetes-sigs/karpenter pkg/apis/v1/labels.go
    "kubernetes.azure.com/agentpool",  # AKS: learn.microsoft.com/en-us/azure/aks/use-labels
)
"""Labels of the nodes of a group that an autoscaler may make more of (docs/autoscalers.md)."""

GROUPS = (
    "nvidia.com/device-plugin.config",  # chosen by administrators: k8s-device-plugin cmd/config-manager
    *INSTANCE_TYPES,
    *SCALING,
    "kubernetes.io/hostname",  # kubernetes.io/docs/reference/labels-annotations-taints
)
"""Labels that distinguish groups of nodes if no label describes their GPUs; the host name comes last."""

PRESENT = "nvidia.com/gpu.present"
"""The label of nodes with NVIDIA's cards (gpu-operator controllers/state_manager.go)."""


class CardType(NamedTuple):
    """A card: its product as GPU Feature Discovery writes it, and its memory in MiB."""

    product: str
    memory: int


_CARDS = {
    # The memory that nvidia-smi reports; for products with several sizes, the smallest, so that no cap is too large.
    "t4": CardType("Tesla-T4", 15360),
    "l4": CardType("NVIDIA-L4", 23034),
    "l40s": CardType("NVIDIA-L40S", 46068),
    "a10g": CardType("NVIDIA-A10G", 23028),
    "a10": CardType("NVIDIA-A10", 23028),
    "v100": CardType("Tesla-V100-SXM2-16GB", 16160),
    "p100": CardType("Tesla-P100-PCIE-16GB", 16280),
    "p4": CardType("Tesla-P4", 7611),
    "k80": CardType("Tesla-K80", 11441),
    "a100": CardType("NVIDIA-A100-SXM4-40GB", 40960),
    "h100": CardType("NVIDIA-H100-80GB-HBM3", 81559),
    "h200": CardType("NVIDIA-H200", 143771),
    "b200": CardType("NVIDIA-B200", 183359),
    "rtx-pro-6000": CardType("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97887),
}

_FAMILIES = {
    # docs.aws.amazon.com/ec2/latest/instancetypes/ac.html
    "g4dn": "t4",
    "g5": "a10g",
    "g6": "l4",
    "g6e": "l40s",
    "g7e": "rtx-pro-6000",
    "p3": "v100",
    "p4d": "a100",
    "p4de": "a100",
    "p5": "h100",
    "p5e": "h200",
    "p5en": "h200",
}
"""The cards of EC2's families of machines with whole cards."""


def card_type(name: str) -> CardType | None:
    """Return the card that a label's value names, such as `nvidia-tesla-t4`, `A10G` or `g4dn.xlarge`; None if unknown.

    A memory size in the name is used: `nvidia-a100-80gb` has 80 GB.
    """
    known = model(name)
    if known == "a100" and "80gb" in _words(name):
        return CardType("NVIDIA-A100-SXM4-80GB", 81920)
    return _CARDS.get(known)


def model(name: str) -> str:
    """Return the model of the card that a label's value names, such as `t4`, whatever its size; empty if unknown."""
    words = _words(name)
    if {"pro", "6000"} <= {*words}:  # other cards are named 6000 too
        return "rtx-pro-6000"
    return next((known for word in words if (known := _FAMILIES.get(word, word)) in _CARDS), "")


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[-_. ]", name.lower()) if word]


_FILLER = re.compile(r"nvidia|tesla|geforce|quadro|rtx|sxm\d?|pcie|hbm\d\w?|shared|mig")


def short(product: str) -> str:
    """Return a short name for a product, of lower-case letters, digits and dashes; empty if nothing is left."""
    words = [word for word in re.split(r"[^a-z0-9]+", product.lower()) if word and not _FILLER.fullmatch(word)]
    return "-".join(words)[:40].strip("-")


GPU_TAINT = "nvidia.com/gpu"
"""The taint of GPU nodes that GKE sets, and that NVIDIA's components tolerate by default.

(gpu-operator assets/*, k8s-device-plugin deployments/static, GoogleCloudPlatform/container-engine-accelerators)
"""

GPU_NODE_LABELS = Names(
    (
        "nvidia.com/*",  # GPU Feature Discovery, and the GPU Operator's gpu.present and gpu.deploy.*
        GKE_ACCELERATOR,  # GKE: cloud.google.com/kubernetes-engine/docs/how-to/gpus
        "cloud.google.com/gke-gpu*",  # GKE: the pages of STRATEGIES and PARTITIONS
        "feature.node.kubernetes.io/pci-10de.present",  # Node Feature Discovery, by NVIDIA's number as a vendor
        "feature.node.kubernetes.io/pci-0300_10de.present",  # by class: gpu-operator controllers/state_manager.go
        "feature.node.kubernetes.io/pci-0302_10de.present",  # the same: gpu-operator controllers/state_manager.go
        "k8s.amazonaws.com/accelerator",  # people: kubernetes/autoscaler .../cloudprovider/aws/README.md
        "kubernetes.azure.com/accelerator",  # AKS: learn.microsoft.com/en-us/azure/aks/use-labels
    ),
    other_than=(
        "nvidia.com/ofed-driver-upgrade*",  # network cards: NVIDIA/k8s-operator-libs pkg/upgrade/consts.go
    ),
)
"""Labels of nodes with GPUs, with which agents of these nodes select them."""

ABSENT = frozenset(("false", "0"))
"""Values of such a label that say that a node has no GPU: of `nvidia.com/gpu.present`, or of `nvidia.com/gpu.count`."""
