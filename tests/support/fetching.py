"""Makes a chart that `--fetch` downloads, and the objects that install it."""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.rendering.model import Options
from webhook.scan import batches
from webhook.scan.results import Report

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n",
    "values.yaml": "devices: void\n",
    "templates/pod.yaml": """\
apiVersion: v1
kind: Pod
metadata: {name: "{{ .Release.Name }}"}
spec:
  containers:
  - {name: c, image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: {{ .Values.devices | quote }}}]}
""",
}

RELEASE = """\
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: NAME, namespace: lab}
spec:
  chart: {spec: {chart: "CHART", version: "VERSION", sourceRef: {kind: HelmRepository, name: ours}}}
  values: {devices: DEVICES}
---
"""

SOURCE = """\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: ours, namespace: lab}
spec: {url: "URL"}
"""


def package(helm: Path, folder: Path, to: Path) -> Path:
    """Write the chart into a folder, and return its archive, which is in another folder."""
    for name, text in CHART.items():
        path = folder / "web" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run([helm, "package", "web", "-d", to], cwd=folder, check=True)
    return to / "web-1.2.3.tgz"


def check(engine: Engine, facts: Facts, *, fetch: bool = True) -> Report:
    """Run `slicewarden check` on the working folder."""
    read = batches.read(["."], rendering=Options(fetch=fetch, cached=False))
    return read.judge(engine, facts, at=datetime.now(UTC))


def releases(*of: tuple[str, str, str, str], url: str) -> str:
    """Return releases of some names, charts, versions and values."""
    texts = [
        RELEASE.replace("NAME", name).replace("CHART", chart).replace("VERSION", version).replace("DEVICES", devices)
        for name, chart, version, devices in of
    ]
    return "".join([*texts, SOURCE.replace("URL", url)])
