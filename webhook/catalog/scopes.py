"""The kinds of objects that belong to the whole cluster, among those that are judged or that facts come from."""

from webhook.catalog.workloads import WORKLOADS

_BY_GROUP = {
    "": "Namespace Node",
    "kueue.x-k8s.io": "ClusterQueue ResourceFlavor",
    "nvidia.com": "ClusterPolicy GPUCluster",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding",
    "resource.k8s.io": "DeviceClass ResourceSlice",
    "scheduling.k8s.io": "PriorityClass",
}

CLUSTER_SCOPED = frozenset(
    (
        *((group, kind) for group, kinds in _BY_GROUP.items() for kind in kinds.split()),
        *(kind for kind, workload in WORKLOADS.items() if workload.cluster_scoped),
    )
)
"""The groups and kinds. Objects of all others are in a namespace."""
