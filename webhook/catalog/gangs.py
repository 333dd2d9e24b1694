"""Tables of the signs that a pod belongs to a group whose members wait for each other: pausing one stalls them all.

Sources: kubernetes-sigs/jobset api/jobset/v1alpha2 (jobset-name), kubernetes-sigs/lws api/leaderworkerset/v1,
kubeflow/trainer pkg/apis (job-name) and kubeflow/mpi-operator pkg/apis/kubeflow/v2beta1, ray-project/kuberay
ray-operator/controllers/ray/utils/constant.go, volcano-sh/apis pkg/apis/scheduling/v1beta1 (group-name) and batch
(job-name), kubernetes-sigs/scheduler-plugins apis/scheduling (pod-group), kubernetes-sigs/kueue
pkg/controller/constants (pod-group-name), NVIDIA/KAI-Scheduler pkg/common/constants, k8s.io/api core/v1 types.go
(schedulingGroup, workloadRef), pytorch torch/distributed/run.py (environment).
"""

KEYS = frozenset(
    (
        "jobset.sigs.k8s.io/jobset-name",
        "kai.scheduler/subgroup-name",
        "kueue.x-k8s.io/pod-group-name",
        "leaderworkerset.sigs.k8s.io/name",
        "pod-group-name",
        "pod-group.scheduling.sigs.k8s.io",
        "ray.io/cluster",
        "scheduling.k8s.io/group-name",
        "scheduling.x-k8s.io/pod-group",
        "trainer.kubeflow.org/trainjob-name",
        "training.kubeflow.org/job-name",
        "volcano.sh/job-name",
    )
)
"""Labels and annotations."""

FIELDS = frozenset(("schedulingGroup", "workloadRef"))
"""Fields of a pod's spec."""

VARIABLES = frozenset(("MASTER_ADDR", "OMPI_COMM_WORLD_SIZE", "PET_NNODES", "PET_RDZV_ENDPOINT", "WORLD_SIZE"))
"""Environment variables with which a process finds its group."""
