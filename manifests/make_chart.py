"""Writes the parts of the Helm chart that come from the manifests for kustomize, and the RBAC rights of both.

`make chart` runs it. A template is one of our files in which some text is replaced by values of the chart. The chart's
own parts, its values and its notes are written by hand.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from manifests import make_fallback, make_guard, make_rbac
from webhook import rules
from webhook.documents import goyaml_writer
from webhook.memory import frameworks
from webhook.policy import crd, schemas

HERE = Path(__file__).resolve().parent
CHART = HERE / "chart"
DEFINITION = HERE / "crd" / "gpusharingpolicies.yaml"
NOTE = "{{- /* Made from %s by `make chart`. */}}\n"
INSTALL = (
    "# All of manifests/controller in one file, written by `make chart`: kubectl apply -f manifests/install.yaml\n"
)
LABEL = "app.kubernetes.io/part-of: slicewarden"


@dataclass(frozen=True)
class Template:
    """A file of the manifests, the condition under which it is in the chart, and replacements of texts in it.

    Each replaced text occurs once in the file.
    """

    source: str
    only: str = ""
    replaced: dict[str, str] = field(default_factory=dict)


IMAGE = {"image: slicewarden:0.1.0  # a name for kustomize's `images` to replace": "image: {{ .Values.image | quote }}"}


def _pods(indent: str) -> dict[str, str]:
    """List what pods get besides, before their containers."""
    values = {"imagePullSecrets": ".Values.imagePullSecrets", "tolerations": ".Values.tolerations"}
    more = (
        f"{indent}{{{{- with {value} }}}}\n{indent}{key}: {{{{ toJson . }}}}\n{indent}{{{{- end }}}}\n"
        for key, value in values.items()
    )
    return {f"\n{indent}containers:\n": "\n" + "".join(more) + f"{indent}containers:\n"}


def _addresses(direction: str) -> str:
    return (
        "      {{- with .Values.networkPolicy.apiServer }}\n"
        f"      {direction}:\n"
        "        {{- range . }}\n"
        "        - ipBlock: {cidr: {{ . | quote }}}\n"
        "        {{- end }}\n"
        "      {{- end }}\n"
    )


AGENT, PROVE = ".Values.agent.enabled", ".Values.prove.enabled"
TAINTS = "            {{- if .Values.agent.taints }}\n            - --taint\n            {{- end }}\n"
"""The arguments of the agent that components/agent-taints adds."""


USAGE = "{{- if and .Values.agent.acts .Values.agent.usage }}\n"
COUNTS = "            - --usage\n            - --usage-folder\n            - /var/lib/slicewarden\n"
RECORD = "            - {name: usage, mountPath: /var/lib/slicewarden}\n"
FOLDER = "        - name: usage\n          hostPath: {path: /var/lib/slicewarden, type: DirectoryOrCreate}\n"
"""The parts that components/agent-usage adds: arguments, and the folder of the record."""


TURNS = "{{- if and .Values.agent.acts .Values.agent.turns }}\n"
LEDGER = "            - {name: ledger, mountPath: /run/slicewarden}\n"
THAWER = (
    "        - name: thawer\n"
    "          image: {{ .Values.image | quote }}\n"
    "          args: [thaw, --watch]\n"
    "          resources:\n"
    "            requests: {cpu: 5m, memory: 24Mi}\n"
    "            limits: {memory: 64Mi}\n"
    "          securityContext: {privileged: true, readOnlyRootFilesystem: true}\n"
    "          volumeMounts:\n"
    "            - {name: cgroups, mountPath: /sys/fs/cgroup}\n"
)
"""The parts that components/agent-turns adds: a container that thaws for an agent that cannot, and what both share."""


def _turns(text: str, indent: int, only: str = TURNS) -> str:
    """Write a text where containers take turns, or `only` where usage is counted."""
    blank = " " * indent
    return f"{blank}{only}{text}{blank}{{{{- end }}}}\n"


def _acts() -> dict[str, str]:
    """List what components/agent-acts changes in the agent's pods if the values say so, and what pods get besides."""
    watching = (
        "      securityContext:\n        runAsNonRoot: true\n        runAsUser: 65532\n        runAsGroup: 65532\n"
        "        seccompProfile: {type: RuntimeDefault}\n"
    )
    confined = (
        "          securityContext:\n            allowPrivilegeEscalation: false\n"
        "            readOnlyRootFilesystem: true\n            capabilities: {drop: [ALL]}\n"
    )
    mount = "            - {name: tmp, mountPath: /tmp}\n"
    volume = "          emptyDir: {sizeLimit: 1Gi}  # on disk, because large pods are kept there\n"
    argument, containers = "            - --watch-only\n", "\n      containers:\n"
    ports = "          ports:\n"
    secrets = "\n      {{- with .Values.imagePullSecrets }}\n      imagePullSecrets: {{ toJson . }}\n      {{- end }}"
    return {
        watching: _either("      securityContext: {runAsUser: 0, runAsGroup: 0}\n", watching, 6),
        confined: _either(
            "          securityContext: {privileged: true, readOnlyRootFilesystem: true}\n", confined, 10
        ),
        argument: _either("", argument, 12) + TAINTS + _turns(COUNTS, 12, USAGE),
        mount: mount
        + _either("            - {name: cgroups, mountPath: /sys/fs/cgroup}\n", "", 12)
        + _turns(LEDGER, 12)
        + _turns(RECORD, 12, USAGE)
        + _turns(THAWER + LEDGER, 8),
        volume: volume
        + _either("        - name: cgroups\n          hostPath: {path: /sys/fs/cgroup}\n", "", 8)
        + _turns("        - name: ledger\n          hostPath: {path: /run/slicewarden, type: DirectoryOrCreate}\n", 8)
        + _turns(FOLDER, 8, USAGE),
        ports: _turns("          lifecycle: {preStop: {exec: {command: [slicewarden, thaw]}}}\n", 10) + ports,
        containers: secrets + containers,
    }


def _either(acting: str, watching: str, indent: int) -> str:
    """Write one text where the agent acts, and another where it only watches."""
    blank = " " * indent
    if not acting:
        return f"{blank}{{{{- if not .Values.agent.acts }}}}\n{watching}{blank}{{{{- end }}}}\n"
    other = f"{blank}{{{{- else }}}}\n{watching}" if watching else ""
    return f"{blank}{{{{- if .Values.agent.acts }}}}\n{acting}{other}{blank}{{{{- end }}}}\n"


OUT = {"        - {port: 6443}\n": "        - {port: 6443}\n" + _addresses("to")}
MONITORING = {
    "kubernetes.io/metadata.name: monitoring": (
        "kubernetes.io/metadata.name: {{ quote .Values.networkPolicy.monitoringNamespace }}"
    )
}

INJECTED = (
    '  {{- if eq .Values.certificates "cert-manager" }}\n'
    "  annotations: {cert-manager.io/inject-ca-from: slicewarden-system/slicewarden}\n"
    "  {{- end }}\n"
)
"""The annotation by which cert-manager writes its CA into the webhooks that the controller has filled in."""

TEMPLATES = {
    "namespace.yaml": Template("base/namespace.yaml", 'ne .Release.Namespace "slicewarden-system"'),
    "crd.yaml": Template(
        "crd/gpusharingpolicies.yaml",
        replaced={
            "  name: gpusharingpolicies.slicewarden.dev\n": (
                "  name: gpusharingpolicies.slicewarden.dev\n"
                "  annotations: {helm.sh/resource-policy: keep} # with it, all policies would go\n"
            )
        },
    ),
    "deployment.yaml": Template(
        "base/deployment.yaml",
        replaced={
            **IMAGE,
            **_pods(" " * 6),
            "replicas: 3": "replicas: {{ .Values.replicas }}",
            "resources:\n            requests: {cpu: 250m, memory: 192Mi}\n            limits: {memory: 1024Mi}"
            "  # large clusters need more: 1408Mi for 15,000 nodes (docs/evidence/scale.md)\n": (
                "resources: {{ toJson .Values.resources }}\n"
            ),
            "secretName: slicewarden-serving": (
                'secretName: {{ eq .Values.certificates "self" | ternary "slicewarden-serving" "slicewarden-tls" }}'
            ),
        },
    ),
    "rbac.yaml": Template("base/rbac.yaml"),
    "service.yaml": Template("base/service.yaml"),
    "network.yaml": Template(
        "base/network.yaml",
        ".Values.networkPolicy.enabled",
        {
            **OUT,
            **MONITORING,
            "both places (README.md)": "networkPolicy.apiServer",
            "        - {port: webhook}\n": "        - {port: webhook}\n" + _addresses("from"),
        },
    ),
    "quota.yaml": Template(
        "base/quota.yaml", ".Values.quota", {'hard: {pods: "20"}': "hard: {pods: {{ .Values.quota | quote }}}"}
    ),
    "controller.yaml": Template(
        "controller/deployment.yaml",
        replaced={
            **IMAGE,
            **_pods(" " * 6),
            "args: [controller]": (
                'args: [controller{{ if ne .Values.certificates "self" }}, --ca-secret, slicewarden-tls{{ end }}]'
            ),
            "resources:\n            requests: {cpu: 50m, memory: 96Mi}\n            limits: {memory: 512Mi}"
            "  # while a policy waits, another process lists the cluster now and then\n": (
                "resources: {{ toJson .Values.controller.resources }}\n"
            ),
        },
    ),
    "controller-rbac.yaml": Template("controller/rbac.yaml"),
    "controller-network.yaml": Template(
        "controller/network.yaml", ".Values.networkPolicy.enabled", {**OUT, **MONITORING}
    ),
    "registration.yaml": Template(
        "controller/registration.yaml",
        replaced={
            f"kind: {half}WebhookConfiguration\nmetadata:\n  name: slicewarden\n": (
                f"kind: {half}WebhookConfiguration\nmetadata:\n  name: slicewarden\n{INJECTED}"
            )
            for half in ("Mutating", "Validating")
        },
    ),
    "preview.yaml": Template("controller/preview.yaml"),
    "guard.yaml": Template("controller/guard.yaml"),
    "fallback.yaml": Template("controller/fallback.yaml"),
    "agent-namespace.yaml": Template("components/agent/namespace.yaml", AGENT),
    "agent-rbac.yaml": Template("components/agent/rbac.yaml", AGENT),
    "agent-acts.yaml": Template("components/agent-acts/rbac.yaml", f"and {AGENT} .Values.agent.acts"),
    "agent-taints.yaml": Template("components/agent-taints/rbac.yaml", f"and {AGENT} .Values.agent.taints"),
    "agent-policy.yaml": Template("components/agent/policy.yaml", AGENT),
    "agent-network.yaml": Template(
        "components/agent/network.yaml", f"and {AGENT} .Values.networkPolicy.enabled", {**OUT, **MONITORING}
    ),
    "agent.yaml": Template("components/agent/daemonset.yaml", AGENT, {**IMAGE, **_acts()}),
    "prove-rbac.yaml": Template("components/prove/rbac.yaml", PROVE),
    "prove-dry-runs.yaml": Template("components/prove/dry-runs.yaml", PROVE),
    "prove.yaml": Template("components/prove/cronjob.yaml", PROVE, {**IMAGE, **_pods(" " * 10)}),
    "cert-manager.yaml": Template("overlays/cert-manager/certificates.yaml", 'eq .Values.certificates "cert-manager"'),
}


def files() -> Iterator[tuple[Path, str]]:
    """Make every file of the chart that is not written by hand, by its path.

    Raises ValueError if a source has changed.
    """
    made = {
        **dict(make_rbac.files()),
        **dict(make_fallback.files()),
        **dict(make_guard.files()),
        DEFINITION: _definition(),
    }
    yield from made.items()
    for name, template in TEMPLATES.items():
        yield CHART / "templates" / name, NOTE % template.source + _text(template, made)
    yield HERE / "install.yaml", INSTALL + "---\n".join(_text(Template(source), made) for source in _installed())


def _installed() -> Iterator[str]:
    """Name the files that manifests/controller consists of."""
    for folder in ("crd", "base", "controller"):
        kustomization = yaml.safe_load((HERE / folder / "kustomization.yaml").read_text("utf-8"))
        yield from (f"{folder}/{name}" for name in kustomization["resources"] if name.endswith(".yaml"))


def _definition() -> str:
    schema = schemas.schema(rules.releases(), frameworks=frameworks.names())
    return f"# Made by `slicewarden schema --crd`.\n{goyaml_writer.write(crd.definition(schema))}"


def _text(template: Template, made: Mapping[Path, str]) -> str:
    source = HERE / template.source
    text = made[source] if source in made else source.read_text("utf-8")
    for old, new in template.replaced.items():
        if text.count(old) != 1:
            raise ValueError(f"{old!r} stands {text.count(old)} times in {template.source}")
        text = text.replace(old, new)
    if LABEL not in text:  # as the base's kustomization does: every object, and the pods
        text = re.sub(r"^metadata:$", f"metadata:\n  labels: {{{LABEL}}}", text, flags=re.MULTILINE)
        name = r"^( +labels: {app\.kubernetes\.io/name: slicewarden)}"
        text = re.sub(name, rf"\1, {LABEL}}}", text, flags=re.MULTILINE)
    if template.only:
        text = f"{{{{- if {template.only} }}}}\n{text}{{{{- end }}}}\n"
    return text


def main() -> None:
    """Write the files."""
    for file, text in files():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
