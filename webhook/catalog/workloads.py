"""A table of the pod templates in each kind of workload. A policy may extend it."""

from collections.abc import Iterator

from webhook.catalog.places import (
    EACH_ITEM,
    EACH_VALUE,
    Part,
    Template,
    Workload,
    Workloads,
    pod_metadata,
    pod_specs,
    pod_templates,
    same,
    table,
)

BUILT_IN = table(
    (
        pod_templates("", "PodTemplate", "podtemplates", "template"),
        pod_templates("", "ReplicationController", "replicationcontrollers", "spec.template"),
        pod_templates("apps", "DaemonSet", "daemonsets", "spec.template"),
        pod_templates("apps", "Deployment", "deployments", "spec.template"),
        pod_templates("apps", "ReplicaSet", "replicasets", "spec.template"),
        pod_templates("apps", "StatefulSet", "statefulsets", "spec.template"),
        pod_templates("batch", "CronJob", "cronjobs", "spec.jobTemplate.spec.template"),
        pod_templates("batch", "Job", "jobs", "spec.template"),
    )
)
"""Kubernetes' own workloads (k8s.io/api)."""

_JOB_SET = "spec.replicatedJobs.[].template.spec.template"

# Fields of an Argo template that hold containers, in addition to `initContainers`, which a PodSpec has too.
_ARGO = ("container", "script", "containerSet.containers.[]", "sidecars.[]")

# Fields of a WorkflowSpec that are none of its pods' PodSpec (workflow_types.go), and lists that only a PodSpec has.
_ARGO_OTHERS = frozenset(
    (
        *("archiveLogs", "arguments", "artifactGC", "artifactRepositoryRef", "entrypoint", "executor", "hooks"),
        *("metrics", "onExit", "parallelism", "podDisruptionBudget", "podGC", "podMetadata", "podSpecPatch"),
        *("retryStrategy", "shutdown", "suspend", "synchronization", "templateDefaults", "templates", "ttlStrategy"),
        *("volumeClaimGC", "volumeClaimTemplates", "workflowMetadata", "workflowTemplateRef"),
        *("containers", "ephemeralContainers", "initContainers"),
    )
)

# Fields of a KServe predictor that hold one container each: `model`, and the older name of each framework.
_KSERVE = (
    *("model", "sklearn", "xgboost", "tensorflow", "pytorch", "triton", "onnx"),
    *("huggingface", "pmml", "lightgbm", "paddle"),
)


def _leader_and_worker(template: str) -> tuple[str, ...]:
    return f"{template}.leaderTemplate", f"{template}.workerTemplate"


def _training_job(kind: str, replicas: str) -> Workload:
    return pod_templates("kubeflow.org", kind, f"{kind.lower()}s", f"spec.{replicas}.{{}}.template")


def _argo_workflow(kind: str, spec: str, *, stored: str = "", cluster_scoped: bool = False) -> Workload:
    """A template is one of a list, the defaults of all, or written in a step or a task (workflow_types.go, Template).

    Volumes of the workflow are added to those of a template; for other fields, the template's value counts
    (workflow/controller/workflowpod.go). `podSpecPatch` and `resource.manifest` are texts. Pods that delete artifacts
    have metadata of their own (artifact_gc.go). A Workflow's status has a copy of the WorkflowTemplate, and that copy
    runs (operator.go, setStoredWfSpec); its kind has no status subresource. Only the annotations of that copy are
    judged here, because the pods show the rest.
    """
    places = _argo_templates(spec)
    templates = tuple(
        Template(
            place,
            (f"/{spec}.podMetadata", "metadata"),
            "",
            defaults=f"/{spec}",
            others=_ARGO_OTHERS,
            containers=_ARGO,
            parts=(Part("volumes", ("volumes",)),),
        )
        for place in places
    )
    metadata = list(_argo_artifacts(spec, places))
    if stored:
        copies = (
            *_argo_templates(f"{stored}.storedWorkflowTemplateSpec"),
            *_argo_inline(f"{stored}.storedTemplates.{{}}"),
        )
        metadata += [
            f"{stored}.storedWorkflowTemplateSpec.podMetadata",
            *(f"{place}.metadata" for place in copies),
            *_argo_artifacts(f"{stored}.storedWorkflowTemplateSpec", copies),
        ]
    return Workload(
        *("argoproj.io", kind, f"{kind.lower()}s", (*templates, *pod_metadata(*metadata))),
        manifests=tuple(f"{place}.resource.manifest" for place in places),
        patches=(
            *(f"{spec}.podSpecPatch", f"{spec}.artifactGC.podSpecPatch"),
            *(f"{place}.podSpecPatch" for place in places),
        ),
        cluster_scoped=cluster_scoped,
    )


def _argo_templates(spec: str) -> tuple[str, ...]:
    return *_argo_inline(f"{spec}.templates.[]"), *_argo_inline(f"{spec}.templateDefaults")


def _argo_inline(template: str) -> tuple[str, ...]:
    return template, f"{template}.dag.tasks.[].inline", f"{template}.steps.[].[].inline"


def _argo_artifacts(spec: str, templates: tuple[str, ...]) -> Iterator[str]:
    yield f"{spec}.artifactGC.podMetadata"
    yield from (f"{template}.outputs.artifacts.[].artifactGC.podMetadata" for template in templates)


def _inference_service(group: str) -> Workload:
    templates = (
        Template("spec.predictor", ("/metadata", ""), "", containers=_KSERVE),
        Template("spec.transformer", ("/metadata", ""), ""),
        Template("spec.explainer", ("/metadata", ""), ""),
        *pod_specs("spec.predictor.workerSpec", annotations="/metadata"),
    )
    return Workload(group, "InferenceService", "inferenceservices", templates)


def _kserve(kind: str, *templates: Template, cluster_scoped: bool = False) -> Workload:
    return Workload("serving.kserve.io", kind, f"{kind.lower()}s", templates, cluster_scoped=cluster_scoped)


def _ray_groups(cluster: str) -> tuple[str, ...]:
    return f"{cluster}.headGroupSpec.template", f"{cluster}.workerGroupSpecs.[].template"


def _ray(kind: str, cluster: str, *more: str) -> Workload:
    return pod_templates("ray.io", kind, f"{kind.lower()}s", *_ray_groups(cluster), *more)


def _spark(kind: str, spec: str) -> Workload:
    """Fields of the driver and the executor count over their templates' (spark-operator submission.go).

    All are older than the templates (api/v1beta2, SparkPodSpec; internal/webhook/sparkpod_defaulter.go).
    """
    parts = (
        *same("affinity", "hostNetwork", "initContainers", "nodeSelector", "schedulerName", "serviceAccount"),
        *same("shareProcessNamespace", "tolerations"),
        Part("podSecurityContext", ("securityContext",)),
        Part("sidecars", ("containers",)),
        Part(f"/{spec}.nodeSelector", ("nodeSelector",)),
        Part(f"/{spec}.volumes", ("volumes",)),
    )
    own = (
        *same("env", "envFrom", "image", "securityContext", "volumeMounts"),
        Part("envVars", ("env", EACH_VALUE)),
        Part("gpu.quantity", ("resources", "limits"), name="gpu.name"),
    )
    conf = f"/{spec}.sparkConf."
    templates = tuple(
        Template(
            f"{spec}.{each}",
            ("template.metadata", ""),
            "template.spec",
            parts=parts,
            own=(*own, *_spark_resources(conf, each)),
        )
        for each in ("driver", "executor")
    )
    return Workload("sparkoperator.k8s.io", kind, f"{kind.lower()}s", templates, files=_spark_templates(conf))


def _spark_resources(conf: str, role: str) -> tuple[Part, ...]:
    """The GPUs in Spark's own configuration (apache/spark KubernetesUtils.scala, buildResourcesQuantities)."""
    key = rf"{conf}spark\.{role}\.resource\.gpu"
    return (Part(rf"{key}\.amount", ("resources", "limits"), name=rf"{key}\.vendor", suffix="/gpu"),)


def _spark_templates(conf: str) -> tuple[str, ...]:
    """The keys of Spark's configuration that name a file with a pod template (Config.scala)."""
    return tuple(rf"{conf}spark\.kubernetes\.{role}\.podTemplateFile" for role in ("driver", "executor"))


def _spark_of_apache() -> Workload:
    """Its configuration has the requests of its pods (apache/spark-kubernetes-operator, ApplicationSpec.java)."""
    conf = "/spec.sparkConf."
    templates = (
        *(Template(f"spec.{role}Spec.podTemplateSpec") for role in ("driver", "executor")),
        *(
            Template("spec", (), None, own=_spark_resources(conf, role), partial=True)
            for role in ("driver", "executor")
        ),
    )
    return Workload(
        "spark.apache.org", "SparkApplication", "sparkapplications", templates, files=_spark_templates(conf)
    )


def _train_job() -> Workload:
    """A TrainJob contains only changes to its pods. The runtime that it names has the rest (trainjob_types.go)."""
    own = (*same("args", "command", "env", "image"), Part("resourcesPerNode", ("resources",)))
    patches = f"spec.runtimePatches.[].trainingRuntimeSpec.template.{_JOB_SET}"
    trainers = (
        ("spec.trainer", own),
        ("spec.initializer.dataset", same("env")),
        ("spec.initializer.model", same("env")),
    )
    return Workload(
        "trainer.kubeflow.org",
        "TrainJob",
        "trainjobs",
        (
            *(Template(place, partial=True) for place in ("spec.podTemplateOverrides.[]", patches)),
            *(Template(place, (), None, own=fields, partial=True) for place, fields in trainers),
        ),
    )


def _ome(kind: str, resource: str, *places: str, cluster_scoped: bool = False) -> Workload:
    """A PodSpec with the main container next to it, as `runner` or `model` (ome pkg/apis/ome/v1beta1)."""
    templates = tuple(Template(place, ("",), "", containers=("runner", "model")) for place in places)
    return Workload("ome.io", kind, resource, templates, cluster_scoped=cluster_scoped)


_OME_RUNTIME = (
    *("spec", "spec.workers", "spec.routerConfig"),
    *(f"spec.{part}Config{each}" for part in ("engine", "decoder") for each in ("", ".leader", ".worker")),
)
_OME_SERVICE = (
    *("spec.predictor", "spec.predictor.workerSpec", "spec.router"),
    *(f"spec.{part}{each}" for part in ("engine", "decoder") for each in ("", ".leader", ".worker")),
)


_HOST_PATH = ("volumes", EACH_ITEM, "hostPath", "path")


def _nim(kind: str, spec: str, *more: Part) -> Workload:
    """Each field is the operator's own (k8s-nim-operator api/apps/v1alpha1)."""
    parts = (
        *same("affinity", "nodeSelector", "runtimeClassName", "schedulerName", "tolerations"),
        Part("draResources", ("resourceClaims",)),
        Part("storage.hostPath", _HOST_PATH),
    )
    own = (*same("args", "command", "env", "resources"), *more)
    containers = ("initContainers.[]", "sidecarContainers.[]")
    template = Template(spec, ("",), None, containers=containers, parts=parts, own=own)
    return Workload("apps.nvidia.com", kind, f"{kind.lower()}s", (template,))


def _dynamo_resources(place: str, which: str) -> tuple[Part, ...]:
    """The number of GPUs, by the resource that `gpuType` names (common.go, ResourceItem), and other resources."""
    into = "resources", which
    gpus = Part(f"{place}.gpu", into, name=f"{place}.gpuType", unnamed="nvidia.com/gpu")
    return gpus, Part(f"{place}.custom", into)


def _dynamo(kind: str, *places: str, shared: str = "") -> Workload:
    """A service has a PodSpec, its main container, and resources by names of Dynamo's own.

    ai-dynamo/dynamo deploy/operator/api/v1alpha1/dynamocomponentdeployment_types.go, common.go; in v1beta1 a component
    has a pod template.
    """
    own = (
        *((Part(f"/{shared}.envs", ("env",)),) if shared else ()),
        Part("envs", ("env",)),
        Part("resources.claims", ("resources", "claims")),
        *(part for which in ("limits", "requests") for part in _dynamo_resources(f"resources.{which}", which)),
    )
    metadata = (*((f"/{shared}",) if shared else ()), "", "extraPodMetadata")
    services = tuple(
        Template(place, metadata, "extraPodSpec", containers=("extraPodSpec.mainContainer",), own=own)
        for place in places
    )
    templates = Template("spec.components.[].podTemplate"), Template("spec.podTemplate")
    return Workload("nvidia.com", kind, f"{kind.lower()}s", (*services, *templates))


def _aibrix(kind: str, *places: str) -> Workload:
    return pod_templates("orchestration.aibrix.ai", kind, f"{kind.lower()}s", *places)


def _seldon(kind: str, template: Template) -> Workload:
    return Workload("mlops.seldon.io", kind, f"{kind.lower()}s", (template,))


def _grove(kind: str, template: Template) -> Workload:
    """A clique's annotations go to its pods (operator/internal/controller/podclique/components/pod/pod.go)."""
    return Workload("grove.io", kind, f"{kind.lower()}s", (template,))


def _soperator_node_set() -> Workload:
    """Each field of a worker is the operator's own; its resources are limits (api/v1alpha1/nodeset_types.go)."""
    volumes = ("spool", "jail", "jailSubMounts.[].volumeSource", "customVolumeMounts.[].volumeSource")
    parts = (
        *same("affinity", "nodeSelector", "tolerations"),
        Part("customInitContainers", ("initContainers",)),
        Part("priorityClass", ("priorityClassName",)),
        *(Part(f"slurmd.volumes.{each}.hostPath.path", _HOST_PATH) for each in volumes),
    )
    own = Part("slurmd.customEnv", ("env",)), Part("slurmd.resources", ("resources", "limits"))
    template = Template("spec", (), None, parts=parts, own=own, annotations=("workerAnnotations",))
    return Workload("slurm.nebius.ai", "NodeSet", "nodesets", (template,))


_KV_CACHE = tuple(
    Template(f"spec.{place}", ("template.metadata",), "template.spec", own=same("env", "image", "resources"))
    for place in ("cache", "watcher", "metadata.redis.runtime", "metadata.etcd.runtime")
)

_LLM_SERVICE = pod_specs(
    *("spec.template", "spec.worker", "spec.prefill.template", "spec.prefill.worker", "spec.router.scheduler.template"),
    annotations="/metadata",
)

_BACKEND = Part("envs", ("env",))

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
        Workload("kubeflow.org", "Experiment", "experiments", (), objects=("spec.trialTemplate.trialSpec",)),
        Workload("kubeflow.org", "Trial", "trials", (), objects=("spec.runSpec",)),
        pod_templates("trainer.kubeflow.org", "TrainingRuntime", "trainingruntimes", f"spec.template.{_JOB_SET}"),
        pod_templates(
            *("trainer.kubeflow.org", "ClusterTrainingRuntime", "clustertrainingruntimes"),
            f"spec.template.{_JOB_SET}",
        )._replace(cluster_scoped=True),
        _train_job(),
        pod_templates("jobset.x-k8s.io", "JobSet", "jobsets", _JOB_SET),
        pod_templates(
            "leaderworkerset.x-k8s.io",
            "LeaderWorkerSet",
            "leaderworkersets",
            *_leader_and_worker("spec.leaderWorkerTemplate"),
        ),
        pod_templates(
            "disaggregatedset.x-k8s.io",
            "DisaggregatedSet",
            "disaggregatedsets",
            *_leader_and_worker("spec.roles.[].spec.leaderWorkerTemplate"),
        ),
        _inference_service("serving.kserve.io"),
        _inference_service("serving.kubeflow.org"),
        _kserve("ServingRuntime", *pod_specs("spec", "spec.workerSpec")),
        _kserve("ClusterServingRuntime", *pod_specs("spec", "spec.workerSpec"), cluster_scoped=True),
        _kserve("LLMInferenceService", *_LLM_SERVICE),
        _kserve("LLMInferenceServiceConfig", *_LLM_SERVICE),
        _ome("ServingRuntime", "servingruntimes", *_OME_RUNTIME),
        _ome("ClusterServingRuntime", "clusterservingruntimes", *_OME_RUNTIME, cluster_scoped=True),
        _ome("InferenceService", "inferenceservices", *_OME_SERVICE),
        Workload(
            "ome.io",
            "BenchmarkJob",
            "benchmarkjobs",
            (
                Template(
                    *("spec.podOverride", (), None),
                    parts=same("affinity", "nodeSelector", "tolerations", "volumes"),
                    own=same("env", "envFrom", "image", "resources", "volumeMounts"),
                    partial=True,
                ),
            ),
        ),
        _nim("NIMService", "spec"),
        _nim("NIMPipeline", "spec.services.[].spec"),
        _nim("NIMCache", "spec"),
        _nim("NIMBuild", "spec"),
        _dynamo("DynamoGraphDeployment", "spec.services.{}", shared="spec"),
        _dynamo("DynamoComponentDeployment", "spec"),
        _aibrix("StormService", "spec.template.spec.roles.[].template"),
        _aibrix("RoleSet", "spec.roles.[].template"),
        _aibrix("PodSet", "spec.template"),
        _aibrix("RayClusterFleet", *_ray_groups("spec.template.spec")),
        _aibrix("RayClusterReplicaSet", *_ray_groups("spec.template.spec")),
        Workload("orchestration.aibrix.ai", "KVCache", "kvcaches", _KV_CACHE),
        Workload(
            "llmaz.io",
            "OpenModel",
            "openmodels",
            (
                Template(
                    *("spec.inferenceConfig.flavors.[]", (), None),
                    parts=same("nodeSelector"),
                    own=(Part("limits", ("resources", "limits")),),
                ),
            ),
            cluster_scoped=True,
        ),
        Workload(
            "inference.llmaz.io",
            "Playground",
            "playgrounds",
            (
                Template(
                    "spec.backendRuntimeConfig", (), None, own=(*same("args", "resources"), _BACKEND), partial=True
                ),
            ),
        ),
        Workload(
            "inference.llmaz.io",
            "BackendRuntime",
            "backendruntimes",
            (
                Template("spec", (), None, own=(*same("command", "image"), _BACKEND)),
                Template("spec.recommendedConfigs.[]", (), None, own=same("args", "resources")),
            ),
            cluster_scoped=True,
        ),
        pod_templates("inference.llmaz.io", "Service", "services", *_leader_and_worker("spec.workloadTemplate")),
        *(
            pod_templates("serving.knative.dev", kind, f"{kind.lower()}s", "spec.template")
            for kind in ("Service", "Configuration")
        ),
        Workload("serving.knative.dev", "Revision", "revisions", pod_specs("spec", annotations="/metadata")),
        _ray("RayCluster", "spec"),
        _ray("RayJob", "spec.rayClusterSpec", "spec.submitterPodTemplate"),
        _ray("RayCronJob", "spec.jobTemplate.rayClusterSpec", "spec.jobTemplate.submitterPodTemplate"),
        _ray("RayService", "spec.rayClusterConfig"),
        _argo_workflow("Workflow", "spec", stored="status"),
        _argo_workflow("WorkflowTemplate", "spec"),
        _argo_workflow("ClusterWorkflowTemplate", "spec", cluster_scoped=True),
        _argo_workflow("CronWorkflow", "spec.workflowSpec"),
        pod_templates("argoproj.io", "Rollout", "rollouts", "spec.template"),
        pod_templates("batch.volcano.sh", "Job", "jobs", "spec.tasks.[].template"),
        pod_templates("batch.volcano.sh", "CronJob", "cronjobs", "spec.jobTemplate.spec.tasks.[].template"),
        pod_templates("flow.volcano.sh", "JobTemplate", "jobtemplates", "spec.tasks.[].template"),
        _spark("SparkApplication", "spec"),
        _spark("ScheduledSparkApplication", "spec.template"),
        pod_templates(
            "sparkoperator.k8s.io", "SparkConnect", "sparkconnects", "spec.server.template", "spec.executor.template"
        ),
        _spark_of_apache(),
        Workload("workload.codeflare.dev", "AppWrapper", "appwrappers", (), objects=("spec.components.[].template",)),
        # A server's pods get its annotations and those of its ServerConfig (statefulset_reconciler.go), and a
        # component's those of the SeldonConfig (seldonruntime_reconciler.go). Its own PodSpec has none (podspec.go).
        _seldon("Server", Template("spec.podSpec", ("/metadata",), "")),
        _seldon("ServerConfig", Template("spec.podSpec", ("/metadata",), "", partial=True)),
        _seldon("SeldonRuntime", Template("spec.overrides.[].podSpec", (), "", partial=True)),
        _seldon("SeldonConfig", Template("spec.components.[]", ("/metadata", ""), "podSpec")),
        Workload(
            *("machinelearning.seldon.io", "SeldonDeployment", "seldondeployments"),
            (
                Template("spec.predictors.[].componentSpecs.[]"),
                Template("spec.predictors.[].explainer", (), None, containers=("containerSpec",), partial=True),
            ),
        ),
        _grove("PodCliqueSet", Template("spec.template.cliques.[]", ("",), "spec.podSpec")),
        _grove("PodClique", Template("spec", ("/metadata",), "podSpec")),
        *(
            pod_templates(group, "ElasticJob", "elasticjobs", "spec.replicaSpecs.{}.template")
            for group in ("elastic.pytorch.org", "elastic.iml.github.io")
        ),
        Workload(
            *("slinky.slurm.net", "NodeSet", "nodesets"),
            (Template("spec", ("/metadata", "template.metadata"), "template.spec", containers=("slurmd", "logfile")),),
        ),
        _soperator_node_set(),
        pod_templates("apps.openshift.io", "DeploymentConfig", "deploymentconfigs", "spec.template"),
        Workload(
            *("template.openshift.io", "Template", "templates", ()), objects=("objects.[]",), parameters="parameters"
        ),
        *(
            pod_templates("apps.kruise.io", kind, f"{kind.lower()}s", "spec.template")
            for kind in ("CloneSet", "DaemonSet", "StatefulSet")
        ),
        pod_templates(
            *("actions.github.com", "AutoscalingRunnerSet", "autoscalingrunnersets"),
            *("spec.template", "spec.listenerTemplate"),
        ),
        pod_templates("kaito.sh", "Workspace", "workspaces", "inference.template"),
        pod_templates("kaito.sh", "InferenceSet", "inferencesets", "spec.template.inference.template"),
        pod_templates(
            "sagemaker.amazonaws.com", "HyperPodPyTorchJob", "hyperpodpytorchjobs", "spec.replicaSpecs.[].template"
        ),
        pod_templates("agents.x-k8s.io", "Sandbox", "sandboxes", "spec.podTemplate"),
        pod_templates("extensions.agents.x-k8s.io", "SandboxTemplate", "sandboxtemplates", "spec.podTemplate"),
        Workload(
            "extensions.agents.x-k8s.io",
            "SandboxClaim",
            "sandboxclaims",
            (Template("spec", ("additionalPodMetadata",), None, own=same("env"), partial=True),),
        ),
        pod_templates("keda.sh", "ScaledJob", "scaledjobs", "spec.jobTargetRef.template"),
    )
)
"""The workloads of machine-learning operators, with the fields of their CustomResourceDefinitions.

kubeflow.org: kubeflow/trainer (release-1.9), kubeflow/mpi-operator, kubeflow/kubeflow (Notebook), kubeflow/katib
pkg/apis/controller (Experiment, Trial); trainer.kubeflow.org: kubeflow/trainer; serving.kserve.io: kserve/kserve
pkg/apis/serving, and serving.kubeflow.org until its release 0.7; ome.io: sgl-project/ome; apps.nvidia.com:
NVIDIA/k8s-nim-operator; nvidia.com: ai-dynamo/dynamo; orchestration.aibrix.ai: vllm-project/aibrix api/orchestration;
llmaz.io: InftyAI/llmaz api; serving.knative.dev: knative/serving pkg/apis/serving/v1; ray.io: ray-project/kuberay;
jobset, leaderworkerset and disaggregatedset: kubernetes-sigs/jobset, lws; agents: kubernetes-sigs/agent-sandbox;
argoproj.io: argoproj/argo-workflows, argoproj/argo-rollouts; batch.volcano.sh and flow.volcano.sh: volcano-sh/apis;
sparkoperator.k8s.io: kubeflow/spark-operator; spark.apache.org: apache/spark-kubernetes-operator;
workload.codeflare.dev: project-codeflare/appwrapper api/v1beta2; mlops.seldon.io: SeldonIO/seldon-core
operator/apis/mlops, and machinelearning.seldon.io: its release 1, operator/apis/machinelearning.seldon.io/v1;
grove.io: ai-dynamo/grove operator/api/core/v1alpha1; elastic.pytorch.org: pytorch/elastic kubernetes/api/v1alpha1;
elastic.iml.github.io: intelligent-machine-learning/dlrover go/operator/api/v1alpha1; slinky.slurm.net:
SlinkyProject/slurm-operator api/v1beta1; slurm.nebius.ai: nebius/soperator; apps.openshift.io and
template.openshift.io: openshift/api; apps.kruise.io: openkruise/kruise-api apps; actions.github.com:
actions/actions-runner-controller apis/actions.github.com/v1alpha1; kaito.sh: kaito-project/kaito api/v1beta1;
sagemaker.amazonaws.com: aws/sagemaker-hyperpod-cli (hyperpod-pytorch-job-template); keda.sh: kedacore/keda
apis/keda/v1alpha1.
"""

WORKLOADS: Workloads = {**BUILT_IN, **CUSTOM}
"""The workloads that are judged under every policy."""
