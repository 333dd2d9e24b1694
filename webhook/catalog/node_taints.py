"""Lists the taints that come and go with a node's health, or have nothing to do with GPUs."""

from webhook.catalog.names import Names

TRANSIENT = Names(
    (
        "node.kubernetes.io/*",
        "node.cloudprovider.kubernetes.io/*",
        "node-role.kubernetes.io/*",
        "node.cilium.io/*",
        "ebs.csi.aws.com/*",
        "efs.csi.aws.com/*",
        "karpenter.sh/*",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "cloud.google.com/impending-node-termination",
        "slicewarden.dev/dead-gpu",  # the agent's, of a node with a dead card
    )
)
"""Taints that come and go with a node's health, or belong to no GPU."""
