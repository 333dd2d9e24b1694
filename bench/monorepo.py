"""Measure `slicewarden check` on 300 kustomizations and 100 charts, next to kustomize and kubeconform."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import tables
from bench.decision import FACTS, POLICY
from bench.processes import cost
from bench.runs import Figure, figure

BASES, OVERLAYS, CHARTS = 100, 2, 100

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{number}
spec:
  selector:
    matchLabels: {{app: app-{number}}}
  template:
    metadata:
      labels: {{app: app-{number}}}
    spec:
      containers:
      - name: app
        image: registry.example.com/app:{number}
        resources:
          limits: {{memory: 1Gi}}
"""

PATCH = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{number}
spec:
  template:
    spec:
      containers:
      - name: app
        resources:
          limits: {{nvidia.com/gpu: 1}}
"""


def write(folder: Path) -> None:
    """Write the repository: bases with two overlays each, and charts."""
    (folder / ".git").mkdir(parents=True)
    for number in range(BASES):
        base = folder / f"apps/{number}/base"
        base.mkdir(parents=True)
        (base / "kustomization.yaml").write_text("resources: [app.yaml]\n")
        (base / "app.yaml").write_text(DEPLOYMENT.format(number=number))
        for overlay in range(OVERLAYS):
            at = folder / f"apps/{number}/overlays/{overlay}"
            at.mkdir(parents=True)
            (at / "kustomization.yaml").write_text(
                f"namespace: space-{overlay}\nresources: [../../base]\npatches:\n- path: gpu.yaml\n"
            )
            (at / "gpu.yaml").write_text(PATCH.format(number=number))
    for number in range(CHARTS):
        chart = folder / f"charts/{number}"
        (chart / "templates").mkdir(parents=True)
        (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: chart-{number}\nversion: 0.1.0\n")
        (chart / "values.yaml").write_text("gpus: 1\n")
        text = DEPLOYMENT.format(number=f"{number}-of-chart").replace(
            "{memory: 1Gi}", "{nvidia.com/gpu: {{ .Values.gpus }}}"
        )
        (chart / "templates" / "app.yaml").write_text(text)


def measure(folder: Path, environment: dict[str, str]) -> tuple[str, list[Figure]]:
    """Return a table and the figures: with an empty cache, a full one, and by the other programs that are there."""
    write(folder)
    environment = {**environment, "XDG_CACHE_HOME": str(folder.parent / "monorepo-cache")}
    command = [sys.executable, "-m", "webhook", "check", str(folder), "--policy", str(POLICY), "--facts", str(FACTS)]
    rows, figures = list[tuple[str, ...]](), list[Figure]()
    for words in ("slicewarden check, empty cache", "slicewarden check, full cache"):
        spent = cost(command, environment)
        rows.append((words, f"{spent.wall:.1f}", f"{spent.cpu:.1f}"))
        figures.append(figure(f"monorepo: {words}", "s", [spent.wall]))
    for words, seconds in _others(folder):
        rows.append((words, seconds, ""))
    programs = [name for name in ("kustomize", "kubectl", "helm") if shutil.which(name)]
    text = (
        f"A repository of {BASES * (1 + OVERLAYS)} kustomizations and {CHARTS} charts, with "
        f"{', '.join(programs) or 'no program'} on PATH:\n\n"
    )
    return text + tables.markdown(("program", "seconds", "CPU seconds"), rows), figures


def _others(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the time of building all overlays one after the other, into kubeconform if it is there."""
    kustomize, conform = shutil.which("kustomize"), shutil.which("kubeconform")
    if kustomize is None:
        yield "kustomize build \\| kubeconform", "kustomize is not on PATH"
        return
    words = "kustomize build" + (" \\| kubeconform" if conform else "")
    overlays, start = sorted(folder.glob("apps/*/overlays/*")), time.monotonic()
    for overlay in overlays:
        built = subprocess.run([kustomize, "build", overlay], stdout=subprocess.PIPE, check=True)
        if conform:
            subprocess.run([conform, *_WITHOUT_SCHEMAS, "-"], input=built.stdout, check=True)
    remark = " (without schemas)" if conform else "; kubeconform is not on PATH"
    yield words, f"{time.monotonic() - start:.1f}{remark}"


_WITHOUT_SCHEMAS = ("-ignore-missing-schemas", "-schema-location", "none/{{.ResourceKind}}.json")
"""The options by which kubeconform downloads nothing: it parses the objects and finds no schema for them."""
