"""Where each kind of workload keeps its pods' templates, as a table that a policy may extend."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

EACH_ITEM, EACH_VALUE = "[]", "{}"
"""In a place: every item of a list, every value of a map."""


class Template(NamedTuple):
    """Where one pod's parts stand in an object.

    Places are keys between dots. `at` counts from the object and may lead to several templates; all others count
    from there, or from the object where they begin with a slash, and an empty one is the place itself. Of the maps at
    `metadata` the later one's annotations win, as do the fields of `spec` over those of `defaults`. `containers`
    stand outside of the lists that a PodSpec has.
    """

    at: str
    metadata: tuple[str, ...] = ("metadata",)
    spec: str = "spec"
    defaults: str | None = None
    containers: tuple[str, ...] = ()


class Workload(NamedTuple):
    """A kind of object that pods are made from; `resource` is its plural, as the API's paths have it."""

    group: str
    kind: str
    resource: str
    templates: tuple[Template, ...]


Workloads = Mapping[tuple[str, str], Workload]
"""Workloads by group and kind."""


def table(workloads: Sequence[Workload]) -> Workloads:
    """Order workloads by group and kind; of two for one kind the later counts."""
    return {(each.group, each.kind): each for each in workloads}


def _pod_templates(group: str, kind: str, resource: str, *places: str) -> Workload:
    """A kind that holds a PodTemplateSpec at each of these places."""
    return Workload(group, kind, resource, tuple(map(Template, places)))


def pod_specs(*places: str, annotations: str = "", containers: tuple[str, ...] = ()) -> tuple[Template, ...]:
    """Places of a PodSpec without metadata of its own, whose annotations stand in the map at `annotations`."""
    return tuple(Template(place, (annotations,), "", containers=containers) for place in places)


BUILT_IN = table(
    (
        _pod_templates("", "PodTemplate", "podtemplates", "template"),
        _pod_templates("", "ReplicationController", "replicationcontrollers", "spec.template"),
        _pod_templates("apps", "DaemonSet", "daemonsets", "spec.template"),
        _pod_templates("apps", "Deployment", "deployments", "spec.template"),
        _pod_templates("apps", "ReplicaSet", "replicasets", "spec.template"),
        _pod_templates("apps", "StatefulSet", "statefulsets", "spec.template"),
        _pod_templates("batch", "CronJob", "cronjobs", "spec.jobTemplate.spec.template"),
        _pod_templates("batch", "Job", "jobs", "spec.template"),
    )
)
"""Kubernetes' own (k8s.io/api)."""

_JOB_SET = "spec.replicatedJobs.[].template.spec.template"

# Fields of an Argo template that are containers, beside `initContainers`, which a PodSpec has too.
_ARGO = ("container", "script", "containerSet.containers.[]", "sidecars.[]")

# Fields of a KServe predictor that hold one container each: `model`, and the older name of each framework.
_KSERVE = (
    *("model", "sklearn", "xgboost", "tensorflow", "pytorch", "triton", "onnx"),
    *("huggingface", "pmml", "lightgbm", "paddle"),
)


def _training_job(kind: str, replicas: str) -> Workload:
    return _pod_templates("kubeflow.org", kind, f"{kind.lower()}s", f"spec.{replicas}.{{}}.template")


def _argo_workflow(kind: str, spec: str) -> Workload:
    template = Template(
        f"{spec}.templates.[]",
        (f"/{spec}.podMetadata", "metadata"),
        "",
        defaults=f"/{spec}",
        containers=_ARGO,
    )
    return Workload("argoproj.io", kind, f"{kind.lower()}s", (template,))


def _kserve(kind: str, *templates: Template) -> Workload:
    return Workload("serving.kserve.io", kind, f"{kind.lower()}s", templates)


def _ray(kind: str, cluster: str, *more: str) -> Workload:
    groups = f"{cluster}.headGroupSpec.template", f"{cluster}.workerGroupSpecs.[].template"
    return _pod_templates("ray.io", kind, f"{kind.lower()}s", *groups, *more)


def _spark(kind: str, spec: str) -> Workload:
    """Annotations of the driver and the executor count over their templates' (spark-operator submission.go)."""
    pods = (f"{spec}.{each}" for each in ("driver", "executor"))
    templates = tuple(Template(each, ("template.metadata", ""), "template.spec") for each in pods)
    return Workload("sparkoperator.k8s.io", kind, f"{kind.lower()}s", templates)


CUSTOM = table(
    (
        _training_job("PyTorchJob", "pytorchReplicaSpecs"),
        _training_job("TFJob", "tfReplicaSpecs"),
        _training_job("MPIJob", "mpiReplicaSpecs"),
        _training_job("XGBoostJob", "xgbReplicaSpecs"),
        _training_job("PaddleJob", "paddleReplicaSpecs"),
        _training_job("JAXJob", "jaxReplicaSpecs"),
        # Its controller gives a notebook's own annotations to the pod (kubeflow#7076).
        Workload("kubeflow.org", "Notebook", "notebooks", (Template("spec.template", ("metadata", "/metadata")),)),
        _pod_templates("trainer.kubeflow.org", "TrainingRuntime", "trainingruntimes", f"spec.template.{_JOB_SET}"),
        # What a TrainJob itself says of its pods; what they ask for is in the JobSet that it becomes.
        _pod_templates(
            "trainer.kubeflow.org",
            "TrainJob",
            "trainjobs",
            "spec.podTemplateOverrides.[]",
            f"spec.runtimePatches.[].trainingRuntimeSpec.template.{_JOB_SET}",
        ),
        _pod_templates("jobset.x-k8s.io", "JobSet", "jobsets", _JOB_SET),
        _pod_templates(
            "leaderworkerset.x-k8s.io",
            "LeaderWorkerSet",
            "leaderworkersets",
            "spec.leaderWorkerTemplate.leaderTemplate",
            "spec.leaderWorkerTemplate.workerTemplate",
        ),
        _kserve(
            "InferenceService",
            Template("spec.predictor", ("/metadata", ""), "", containers=_KSERVE),
            Template("spec.transformer", ("/metadata", ""), ""),
            Template("spec.explainer", ("/metadata", ""), ""),
            *pod_specs("spec.predictor.workerSpec", annotations="/metadata"),
        ),
        _kserve("ServingRuntime", *pod_specs("spec", "spec.workerSpec")),
        _kserve(
            "LLMInferenceService",
            *pod_specs(
                *("spec.template", "spec.worker", "spec.prefill.template", "spec.prefill.worker"),
                annotations="/metadata",
            ),
        ),
        _ray("RayCluster", "spec"),
        _ray("RayJob", "spec.rayClusterSpec", "spec.submitterPodTemplate"),
        _ray("RayService", "spec.rayClusterConfig"),
        _argo_workflow("Workflow", "spec"),
        _argo_workflow("WorkflowTemplate", "spec"),
        _argo_workflow("CronWorkflow", "spec.workflowSpec"),
        _pod_templates("argoproj.io", "Rollout", "rollouts", "spec.template"),
        _pod_templates("batch.volcano.sh", "Job", "jobs", "spec.tasks.[].template"),
        _spark("SparkApplication", "spec"),
        _spark("ScheduledSparkApplication", "spec.template"),
        _pod_templates(
            "spark.apache.org",
            "SparkApplication",
            "sparkapplications",
            "spec.driverSpec.podTemplateSpec",
            "spec.executorSpec.podTemplateSpec",
        ),
    )
)
"""Those of machine learning's own operators, in the shapes of their definitions.

Kinds without a namespace (ClusterTrainingRuntime and the like) are left out: which trust their pods may have
is known where they are used.

kubeflow.org: kubeflow/trainer (release-1.9), kubeflow/mpi-operator, kubeflow/kubeflow (Notebook); trainer.kubeflow.org:
kubeflow/trainer; serving.kserve.io: kserve/kserve; ray.io: ray-project/kuberay; jobset and leaderworkerset:
kubernetes-sigs; argoproj.io: argoproj/argo-workflows, argoproj/argo-rollouts; batch.volcano.sh: volcano-sh/apis;
sparkoperator.k8s.io: kubeflow/spark-operator; spark.apache.org: apache/spark-kubernetes-operator.
"""

WORKLOADS: Workloads = {**BUILT_IN, **CUSTOM}
"""Every kind that is judged without a word in the policy."""


@cache
def keys(place: str) -> tuple[str, ...]:
    """Take a place apart."""
    return tuple(place.removeprefix("/").split(".")) if place.strip("/") else ()
