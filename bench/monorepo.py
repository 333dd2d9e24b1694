"""Measures `slicewarden check` on 300 kustomizations and 100 charts, next to kustomize and kubeconform."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import tables
from bench.decision import FACTS, POLICY
from bench.processes import cost
from bench.runs import Figure, figure
from webhook.repository import programs

BASES, OVERLAYS, CHARTS = 100, 2, 100

AIM = 30
"""Seconds that the whole may take on two cores, with an empty cache."""

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
    """Measure with an empty cache, with a full one, and only the programs that are installed.

    Returns a table and figures.
    """
    write(folder)
    environment = {**environment, "XDG_CACHE_HOME": str(folder.parent / "monorepo-cache")}
    command = [sys.executable, "-m", "webhook", "check", str(folder), "--policy", str(POLICY), "--facts", str(FACTS)]
    rows, figures = list[tuple[str, ...]](), list[Figure]()
    for words in ("slicewarden check, empty cache", "slicewarden check, full cache"):
        spent = cost(command, environment)
        rows.append((words, f"{spent.wall:.1f}", f"{spent.cpu:.1f}"))
        figures.append(figure(f"monorepo: {words}", "s", [spent.wall]))
    for words, commands in _others(folder):
        costs = [cost(each, environment) for each in commands]
        rows.append((words, f"{sum(each.wall for each in costs):.1f}", f"{sum(each.cpu for each in costs):.1f}"))
    found = [name for name in ("kustomize", "kubectl", "helm", "kubeconform") if shutil.which(name)]
    text = (
        f"A repository of {BASES * (1 + OVERLAYS)} kustomizations and {CHARTS} charts, with "
        f"{', '.join(found) or 'no program'} on PATH. `check` runs as many programs at a time as there are cores, "
        f"{len(os.sched_getaffinity(0))} here; the others run one after the other. The aim is {AIM} s on two cores:\n\n"
    )
    return text + tables.markdown(("program", "seconds", "CPU seconds"), rows), figures


def _others(folder: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the commands of other programs that are installed, each list with the name of its row in the table.

    kustomize renders the overlays, with and without kubeconform behind it, and helm renders the charts.
    """
    kustomize, helm, conform = programs.kustomize(), programs.helm(), shutil.which("kubeconform")
    overlays = [str(path) for path in sorted(folder.glob("apps/*/overlays/*"))]
    if kustomize:
        words = " ".join([Path(kustomize[0]).name, *kustomize[1:]])
        yield f"{words} of the {len(overlays)} overlays", [[*kustomize, each] for each in overlays]
        if conform:
            script = shlex.join([*kustomize, "PATH"]).replace("PATH", '"$0"')
            pipe = f"{script} | {shlex.join([conform, *_WITHOUT_SCHEMAS, '-'])}"
            yield f"{words} \\| kubeconform, without schemas", [["/bin/sh", "-c", pipe, each] for each in overlays]
    if helm:
        charts = [str(path) for path in sorted(folder.glob("charts/*"))]
        yield f"helm template of the {len(charts)} charts", [[helm, "template", "made", each] for each in charts]


_WITHOUT_SCHEMAS = ("-ignore-missing-schemas", "-schema-location", "none/{{.ResourceKind}}.json")
"""The options by which kubeconform downloads nothing: it parses the objects and finds no schema for them."""
