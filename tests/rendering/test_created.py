"""What kubectl would create of a file, and what only patches another object."""

import pytest

from webhook.documents.documents import read
from webhook.rendering.created import creates

HOLDS = "containers: [{name: c, image: i}]"
PATCHES = "containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]"


def template(contents: str) -> str:
    return f"template: {{spec: {{{contents}}}}}"


def typed(version: str, kind: str, spec: str) -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{{spec}}}\n"


DEPLOYMENT = f"selector: {{matchLabels: {{a: b}}}}, {template(HOLDS)}"


@pytest.mark.parametrize(
    "text",
    [
        typed("v1", "Pod", HOLDS),
        typed("apps/v1", "Deployment", DEPLOYMENT),
        typed("batch/v1", "Job", template(HOLDS)),
        typed("batch/v1", "CronJob", f"jobTemplate: {{spec: {{{template(HOLDS)}}}}}"),
        typed("argoproj.io/v1alpha1", "Workflow", "templates: [{name: a, container: {image: i}}]"),
        typed("argoproj.io/v1alpha1", "CronWorkflow", "workflowSpec: {templates: [{name: a, script: {image: i}}]}"),
        typed("serving.kserve.io/v1beta1", "InferenceService", "predictor: {model: {modelFormat: {name: x}}}"),
        typed("ray.io/v1", "RayCluster", f"headGroupSpec: {{{template(HOLDS)}}}"),
        typed("resource.k8s.io/v1", "ResourceClaim", "devices: {requests: [{name: a}]}"),
        typed("example.com/v1", "Door", f"deep: [{{{HOLDS}}}]"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: 'sharing: {}'}\n",
        f"apiVersion: apps/v1\nkind: PodList\nitems: [{{metadata: {{name: a}}, spec: {{{HOLDS}}}}}]\n".replace(
            "items: [{", "items: [{apiVersion: v1, kind: Pod, "
        ),
        f"apiVersion: v1\nkind: PodList\nitems: [{{metadata: {{name: a}}, spec: {{{HOLDS}}}}}]\n",
        f"kind: A\nitems: [{{apiVersion: v1, kind: Pod, spec: {{{HOLDS}}}}}]\n",
        f"a: 1\n---\n{typed('v1', 'Pod', HOLDS)}",
    ],
)
def test_an_object_is_created(text: str) -> None:
    assert creates(read(text, "a.yaml")[0])


@pytest.mark.parametrize(
    "text",
    [
        typed("v1", "Pod", PATCHES),
        typed("v1", "Pod", "containers: [{name: c, $patch: delete}]"),
        typed("v1", "Pod", "nodeName: x"),
        typed("v1", "Pod", f"{HOLDS}, init{PATCHES.replace('c', 'C', 1)}"),
        typed("apps/v1", "Deployment", template(HOLDS)),
        typed("apps/v1", "Deployment", DEPLOYMENT.replace(HOLDS, PATCHES)),
        typed("apps/v1", "Deployment", "replicas: 2"),
        typed("batch/v1", "CronJob", f"jobTemplate: {{spec: {{{template(PATCHES)}}}}}"),
        typed("argoproj.io/v1alpha1", "Workflow", "arguments: {parameters: []}"),
        typed("ray.io/v1", "RayCluster", f"headGroupSpec: {{{template(PATCHES)}}}"),
        typed("ray.io/v1", "RayCluster", "workerGroupSpecs: [{replicas: 2}]"),
        typed("serving.kserve.io/v1beta1", "InferenceService", "predictor: {minReplicas: 1}"),
        typed("serving.kserve.io/v1beta1", "InferenceService", f"predictor: {{{PATCHES}}}"),
        typed("resource.k8s.io/v1", "ResourceClaim", "devices: {config: []}"),
        typed("example.com/v1", "Door", f"deep: [{{{PATCHES}}}]"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\n",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {a: b}}\n",
        "- {op: add, path: /spec/containers/0/image, value: i}\n",
        f"a: {{{HOLDS}}}\n",
        "apiVersion: v1\nkind: PodList\nitems: []\n",
    ],
)
def test_a_patch_is_no_object(text: str) -> None:
    assert not creates(read(text, "a.yaml")[0])
