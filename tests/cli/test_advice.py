"""The ten messages of the survey that helped least (87 public repositories), each as people read it now."""

from pathlib import Path

import pytest

from tests.support.fixtures import FIXTURES
from tests.support.policies import OPTIONS
from webhook.cli import main as cli

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: vision, annotations: {slicewarden.dev/trust: trusted}}
spec:
"""


def pod(container: str) -> str:
    return f"{POD}  containers: [{{name: c, image: i, {container}}}]\n"


RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: plex, namespace: media}
spec:
  values:
    controllers:
      plex:
        containers:
          app:
            resources:
              requests:
                nvidia.com/gpu: 1
"""

OPERATOR = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: gpu-cluster-policy}
spec: {devicePlugin: {config: {name: sharing, default: any}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: sharing, namespace: nvidia-gpu-operator}
data:
  any: |
    version: v1
"""

WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: train-, namespace: vision}
spec:
  entrypoint: train
  arguments: {parameters: [{name: patch}, {name: gpus}]}
  templates:
  - name: train
    podSpecPatch: '{{inputs.parameters.patch}}'
    inputs: {parameters: [{name: patch}]}
    container: {image: i, resources: {limits: {nvidia.com/gpu: "GPUS"}}}
"""

SHARING = (FIXTURES / "invalid-sharing-config/deny-placeholder-of-flux.yaml").read_text("utf-8")

FLUX = """\
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: flux-system}
spec: {path: ./app, sourceRef: {kind: GitRepository, name: flux-system}}
"""

CLAIMING = """\
  resourceClaims: [{name: g, resourceClaimTemplateName: g}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: g, namespace: media}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.intel.com}}]}}}
"""

PATHS = ("/", "/run/containerd", "/sys/fs/bpf")

AGENT = f"""\
  tolerations: [{{operator: Exists}}]
  volumes: [{", ".join(f"{{name: v{i}, hostPath: {{path: {path}}}}}" for i, path in enumerate(PATHS))}]
"""

MOUNTS = f"volumeMounts: [{', '.join(f'{{name: v{i}, mountPath: /m{i}}}' for i in range(len(PATHS)))}]"

SCRIPT = "command: [bash, -c], args: ['vllm serve m'], resources: {limits: {nvidia.com/gpu: 1}}"

CHART = {"a/Chart.yaml": "apiVersion: v2\nname: web\nversion: 0.1.0\n", "a/templates/p.yaml": "{{ x }}\n"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param(
            {"a.yaml": RELEASE},
            "a.yaml:12: HelmRelease.helm.toolkit.fluxcd.io media/plex requests nvidia.com/gpu at "
            "spec.values.controllers.plex.containers.app.resources.requests[nvidia.com/gpu]; not judged: render its "
            "chart: helm template CHART -f VALUES | slicewarden check -",
            id="1",
        ),
        pytest.param(
            {"a.yaml": OPERATOR},
            'ConfigMap "sharing" is in namespace nvidia-gpu-operator, not in gpu-operator; the operator reads its own '
            "namespace: if that is there, list it under sharing.namespaces",
            id="2",
        ),
        pytest.param(
            {"a.yaml": pod("resources: {limits: {amd.com/gpu: 1}}")},
            "policy sample has no pool of AMD GPUs (amd.com/gpu); ask an administrator for one, or to leave amd.com/* "
            "out of gpus.resources",
            id="3",
        ),
        pytest.param(
            {"a.yaml": pod("resources: {claims: [{name: g}]}") + CLAIMING},
            'pods in namespace "media" may not claim gpu.intel.com, and policy sample has no pool of Intel GPUs; ask '
            "an administrator to list the namespace under gpus.claims",
            id="4",
        ),
        pytest.param(
            {"a.yaml": WORKFLOW.replace("GPUS", "1")},
            "1 workflow patches its pods by a parameter; the pods are judged when they are created",
            id="5",
        ),
        pytest.param(
            {"a.yaml": WORKFLOW.replace("GPUS", "{{workflow.parameters.gpus}}")},
            '"{{workflow.parameters.gpus}}" is a parameter, known when a pod is created; the pod is judged then',
            id="6",
        ),
        pytest.param(
            {"a.yaml": SHARING},
            'replicas must be a whole number, not "${count:=4}"; if Flux fills this in, check the folder together with '
            "Flux's Kustomization",
            id="7",
        ),
        pytest.param(
            {"a.yaml": pod(SCRIPT).replace("image: i", "image: vllm/vllm-openai:v0.10")},
            "vLLM plans with 0.9 of the card, so with torch 2.10 or newer it fails at its start under the cap of its "
            "slice, and with an older torch it may take that much; add --gpu-memory-utilization=0.211 to the vllm "
            "command in the script",
            id="8",
        ),
        pytest.param(
            {"a.yaml": pod(MOUNTS) + AGENT},
            "hostPath / gives control of the node, its GPUs included (/dev is below /); remove the volume. 2 more are "
            "refused (/run/containerd, /sys/fs/bpf)",
            id="9",
        ),
        pytest.param(CHART, "nothing but 1 chart that helm has not rendered", id="10"),
    ],
)
def test_a_message_says_what_to_do(
    files: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    cli.main(["check", ".", *OPTIONS])
    assert said in capsys.readouterr().out


def test_a_default_of_flux_is_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seventh, in a folder with the object that fills it in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app/sharing.yaml").write_text(SHARING)
    (tmp_path / "flux.yaml").write_text(FLUX.replace("path:", "postBuild: {substitute: {other: one}}, path:"))
    assert cli.main(["check", ".", *OPTIONS]) == 0, capsys.readouterr().out
