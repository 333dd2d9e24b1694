"""Lists kinds whose objects contain no pod, request no GPU, and are not facts.

Of such an object only the kind is read.
"""

_BY_GROUP = {
    "": "Endpoints Event LimitRange PersistentVolume PersistentVolumeClaim ResourceQuota Secret Service ServiceAccount",
    "admissionregistration.k8s.io": (
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration ValidatingAdmissionPolicy "
        "ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"
    ),
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "autoscaling": "HorizontalPodAutoscaler",
    "cert-manager.io": "Certificate ClusterIssuer Issuer",
    "coordination.k8s.io": "Lease",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "karpenter.sh": "NodeClaim",
    "kueue.x-k8s.io": "Cohort",
    "monitoring.coreos.com": "PodMonitor PrometheusRule ServiceMonitor",
    "networking.k8s.io": "Ingress IngressClass NetworkPolicy",
    "policy": "PodDisruptionBudget",
    "scheduling.run.ai": "PodGroup Queue",
    "scheduling.sigs.k8s.io": "ElasticQuota PodGroup",
    "scheduling.volcano.sh": "PodGroup Queue",
    "scheduling.x-k8s.io": "ElasticQuota PodGroup",
    "storage.k8s.io": "CSIDriver CSINode StorageClass VolumeAttachment",
}

KINDS = frozenset((group, kind) for group, kinds in _BY_GROUP.items() for kind in kinds.split())
"""The groups and kinds."""
