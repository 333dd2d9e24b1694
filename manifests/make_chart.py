"""Writes what the Helm chart has in common with the kustomize base: `make chart`.

A template is a file of the base with some of its text replaced by what a value says; the policies and the
registration are copied. What is the chart's alone (values, the policy's ConfigMap, notes) is written by hand.
"""

import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE / "chart"
COPIES = {
    "registration.yaml": HERE / "base" / "webhooks.yaml",
    "policies/audit.yaml": HERE / "overlays" / "audit" / "policy.yaml",
    "policies/enforce.yaml": HERE.parent / "policies" / "sample.yaml",
}
NOTE = "{{- /* Made from base/%s by `make chart`. */}}\n"

Replacements = dict[str, str]
"""What stands exactly once in a file, and what takes its place."""

TEMPLATES: dict[str, Replacements] = {
    "deployment.yaml": {
        "replicas: 3": "replicas: {{ .Values.replicas }}",
        "image: slicewarden:0.1.0  # a name for kustomize's `images` to replace": "image: {{ .Values.image | quote }}",
        "      containers:\n": "      {{- with .Values.imagePullSecrets }}\n"
        "      imagePullSecrets: {{ toJson . }}\n"
        "      {{- end }}\n"
        "      {{- with .Values.tolerations }}\n"
        "      tolerations: {{ toJson . }}\n"
        "      {{- end }}\n"
        "      containers:\n",
        "resources:\n            requests: {cpu: 250m, memory: 192Mi}\n            limits: {memory: 512Mi}\n": (
            "resources: {{ toJson .Values.resources }}\n"
        ),
        "configMap: {name: slicewarden-policy}": 'configMap: {name: {{ include "slicewarden.policyName" . }}}',
    },
    "rbac.yaml": {
        "---\n# Where the device plugin runs; one pair for each of the policy's sharing namespaces.\n": (
            "{{- range .Values.sharingNamespaces }}\n---\n# Where the device plugin runs.\n"
        ),
        "kind: Role\nmetadata:\n  name: slicewarden\n  namespace: gpu-operator\n": (
            "kind: Role\nmetadata:\n  name: slicewarden\n  namespace: {{ quote . }}\n"
        ),
        "kind: RoleBinding\nmetadata:\n  name: slicewarden\n  namespace: gpu-operator\n": (
            "kind: RoleBinding\nmetadata:\n  name: slicewarden\n  namespace: {{ quote . }}\n"
        ),
    },
    "service.yaml": {},
    "network.yaml": {
        "# An API server": "{{- if .Values.networkPolicy.enabled }}\n# An API server",
        "both places (README.md)": "networkPolicy.apiServer",
        "    - ports:\n        - {port: webhook}\n": "    - ports:\n        - {port: webhook}\n"
        "      {{- with .Values.networkPolicy.apiServer }}\n"
        "      from:\n"
        "        {{- range . }}\n"
        "        - ipBlock: {cidr: {{ . | quote }}}\n"
        "        {{- end }}\n"
        "      {{- end }}\n",
        "kubernetes.io/metadata.name: monitoring": (
            "kubernetes.io/metadata.name: {{ quote .Values.networkPolicy.monitoringNamespace }}"
        ),
        "        - {port: 6443}\n": "        - {port: 6443}\n"
        "      {{- with .Values.networkPolicy.apiServer }}\n"
        "      to:\n"
        "        {{- range . }}\n"
        "        - ipBlock: {cidr: {{ . | quote }}}\n"
        "        {{- end }}\n"
        "      {{- end }}\n"
        "{{- end }}\n",
    },
    "quota.yaml": {
        "# Some providers": "{{- if .Values.quota }}\n# Some providers",
        'hard: {pods: "20"}': "hard: {pods: {{ .Values.quota | quote }}}",
        "values: [system-cluster-critical]}\n": "values: [system-cluster-critical]}\n{{- end }}\n",
    },
}
ENDS = {"rbac.yaml": "{{- end }}\n"}
LABEL = "app.kubernetes.io/part-of: slicewarden"


def files() -> Iterator[tuple[Path, str]]:
    """Make every file that is not written by hand: where it lies, and its text. ValueError where the base differs."""
    for name, source in COPIES.items():
        yield CHART / "files" / name, source.read_text("utf-8")
    for name, replacements in TEMPLATES.items():
        text = (HERE / "base" / name).read_text("utf-8")
        yield CHART / "templates" / name, NOTE % name + _template(text, replacements) + ENDS.get(name, "")


def _template(text: str, replacements: Replacements) -> str:
    for old, new in replacements.items():
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in it")
        text = text.replace(old, new)
    # As the base's kustomization does: every object, and the pods.
    text = re.sub(r"^metadata:$", f"metadata:\n  labels: {{{LABEL}}}", text, flags=re.MULTILINE)
    return re.sub(r"^( +labels: {app\.kubernetes\.io/name: slicewarden)}", rf"\1, {LABEL}}}", text, flags=re.MULTILINE)


def main() -> None:
    """Write them."""
    for file, text in files():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
