"""Sharing configurations in the values of NVIDIA's charts, wherever they are written."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.scan import batches

BROKEN = """\
version: v1
sharing:
  timeSlicing:
    replicas: 4
"""


def indented(text: str, depth: int) -> str:
    return "".join(f"{' ' * depth}{line}\n" for line in text.splitlines())


PLUGIN = "config:\n  name: mine\n  map:\n    default: |-\n" + indented(BROKEN, 6)
OPERATOR = "devicePlugin:\n  config:\n    name: slices\n    data:\n      any: |-\n" + indented(BROKEN, 8)
RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: nvidia, namespace: nvidia}
spec:
  values:
"""
APPLICATION = """\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: gpu, namespace: argocd}
spec:
  destination: {namespace: gpus}
"""
HELM_CHART = """\
apiVersion: helm.cattle.io/v1
kind: HelmChart
metadata: {name: gpu, namespace: k3s}
spec:
  valuesContent: |-
"""
KUSTOMIZATION = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: gpus\n"
CASES = {
    "values of the plugin": (PLUGIN, 7, "nvidia-device-plugin/mine", "config.map.default"),
    "values of the operator": (OPERATOR, 8, "gpu-operator/slices", "devicePlugin.config.data.any"),
    "values of a parent": (
        "gpu-operator:\n" + indented(OPERATOR, 2),
        9,
        "gpu-operator/slices",
        "gpu-operator.devicePlugin.config.data.any",
    ),
    "a HelmRelease": (RELEASE + indented(PLUGIN, 4), 12, "nvidia/mine", "spec.values.config.map.default"),
    "a chart of a kustomization": (
        "helmCharts:\n- name: gpu-operator\n  namespace: gpus\n  valuesInline:\n" + indented(OPERATOR, 4),
        12,
        "gpus/slices",
        "helmCharts.0.valuesInline.devicePlugin.config.data.any",
    ),
    "a chart of a typed kustomization": (
        KUSTOMIZATION + "helmCharts:\n- name: x\n- valuesInline:\n" + indented(PLUGIN, 4),
        13,
        "gpus/mine",
        "helmCharts.1.valuesInline.config.map.default",
    ),
    "an Application": (
        APPLICATION + "  source:\n    helm:\n      valuesObject:\n" + indented(OPERATOR, 8),
        16,
        "gpus/slices",
        "spec.source.helm.valuesObject.devicePlugin.config.data.any",
    ),
    "an Application's text": (
        APPLICATION + "  sources:\n  - helm:\n      values: |\n" + indented(OPERATOR, 8),
        16,
        "gpus/slices",
        "devicePlugin.config.data.any",
    ),
    "a HelmChart of k3s": (HELM_CHART + indented(PLUGIN, 4), 12, "k3s/mine", "config.map.default"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_configuration_in_values_is_judged_at_its_place(
    case: str, engine: Engine, sample_facts: Facts, tmp_path: Path
) -> None:
    text, line, name, path = CASES[case]
    file = tmp_path / "values.yaml"
    file.write_text(text)
    report = batches.read([str(file)]).judge(engine, sample_facts, at=datetime.now(UTC))
    assert report.problems == ()
    (judged,) = report.judged
    assert (f"{judged.namespace}/{judged.name}", judged.verdict.allowed) == (name, False)
    places = {(found.rule, ".".join(map(str, found.finding.path)), at) for found, at in judged.findings}
    assert ("invalid-sharing-config", path, line) in places


def test_values_without_a_configuration_are_not_judged(engine: Engine, sample_facts: Facts, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("config: {map: {a: 1}, name: 2}\ndevicePlugin: x\nreplicas: 1\n")
    (tmp_path / "b.yaml").write_text("apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {sources: [1, {}]}\n")
    report = batches.read([str(tmp_path)]).judge(engine, sample_facts, at=datetime.now(UTC))
    assert (report.judged, report.problems) == ((), ())
