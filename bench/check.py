"""Measures the cost of `slicewarden check`: its start, and ten thousand manifests against one thousand."""

import json
import os
import statistics
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import monorepo, tables
from bench.decision import FACTS, POLICY, ROOT
from bench.generator import Wrong
from bench.processes import Cost, cost
from bench.runs import Figure, Result, figure
from webhook.catalog.workloads import WORKLOADS
from webhook.cli.inputs import load_policy
from webhook.documents import files
from webhook.documents.documents import Skips, read, unskipped
from webhook.model import Problem
from webhook.scan import batches

OPTIONS = ("--policy", str(POLICY), "--facts", str(FACTS))

STARTS, ROUNDS = 20, 3
COUNTS = (1_000, 10_000)

SPEC = """\
spec:
  serviceAccountName: web
  containers:
    - name: server
      image: registry.example.com/vision/server:2.3.1
      args: ["--listen=0.0.0.0:8000", "--log-level=info"]
      ports:
        - containerPort: 8000
          protocol: TCP
      env:
        - name: LOG_LEVEL
          value: info
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
      resources:
        requests:
          cpu: 500m
          memory: 4Gi
        limits:
          memory: 4Gi
          {resource}: {gpus}
      livenessProbe:
        httpGet: {{path: /healthz, port: 8000}}
        periodSeconds: 10
"""
"""The kind of pod to make."""

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-{number}
  namespace: vision
  labels:
    app.kubernetes.io/name: web-{number}
    app.kubernetes.io/part-of: vision
spec:
  replicas: 2
  selector:
    matchLabels:
      app.kubernetes.io/name: web-{number}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: web-{number}
      annotations:
        slicewarden.dev/trust: trusted
""" + textwrap.indent(SPEC, "    ")
"""One in ten requests two GPUs, and has a finding about its trust."""


def run() -> Result:
    """Measure the start, many manifests, and the reading of a mixed folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in COUNTS:
            manifests(folder / str(count), count)
        one = folder / "1000" / "1.yaml"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment |= {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONPATH": str(ROOT)}
        starts = [
            ("python -c pass", ["-c", "pass"]),
            ("slicewarden --help", ["-m", "webhook", "--help"]),
            ("slicewarden check, one file", ["-m", "webhook", "check", str(one), *OPTIONS]),
        ]
        started = {what: _start(command, environment) for what, command in starts}
        rows = [(what, *_start_row(costs)) for what, costs in started.items()]
        checked = {f"{count:,}, a file each": _many(folder / str(count), count, environment) for count in COUNTS}
        for words, file in _together(folder, COUNTS[-1]):
            checked[f"{COUNTS[-1]:,}, {words}"] = _many(file, COUNTS[-1], environment)
        rendered, of_monorepo = monorepo.measure(folder / "monorepo", environment)
        judged = mixed(folder / "mixed")
        reading = batches.ReadOptions(None, frozenset(), frozenset(), WORKLOADS, load_policy(str(POLICY)).gpu_resources)
        glanced, parsed = (_reading(folder / "mixed", skips) for skips in (reading.skips, unskipped))
    many = [_many_row(words, costs) for words, costs in checked.items()]
    figures = [figure(what, "ms", [1000 * each.wall for each in costs]) for what, costs in started.items()]
    for words, costs in checked.items():
        figures += _figures(words, costs)
    text = "\n\n".join(
        (
            tables.markdown(("start", "ms", "CPU ms"), rows),
            tables.markdown(("manifests", "seconds", "CPU seconds", "ms of CPU each", "MiB, largest process"), many),
            f"A folder of {FILES:,} files, {DEFINITIONS} of them CustomResourceDefinitions and {judged} workloads, is "
            f"read in {glanced:.1f} s of CPU, and in {parsed:.1f} s, {parsed / glanced:.1f} times as long, where all "
            "kinds are parsed.",
            rendered,
        )
    )
    figures += of_monorepo
    return Result(text, [*figures, figure("a mixed folder, all parsed to glanced", "×", [parsed / glanced])])


FILES, DEFINITIONS, BYTES, JUDGED = 1_400, 50, 104_000, 0.27
"""The mix of 50 public repositories: 3.5 % of the files are CustomResourceDefinitions, and 77 % of the bytes.

Of 13,093 objects 3,525 were judged, 27 %.
"""

OTHERS = (
    "apiVersion: v1\nkind: Service\nmetadata:\n  name: web-{number}\n  namespace: vision\nspec:\n  selector:\n"
    "    app.kubernetes.io/name: web-{number}\n  ports:\n    - name: http\n      port: 80\n      targetPort: 8000\n",
    "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: web-{number}\nrules:\n"
    + "".join(
        f"  - apiGroups: ['']\n    resources: [{each}]\n    verbs: [get, list, watch, create, update, delete]\n"
        for each in ("pods", "services", "configmaps", "secrets", "events", "nodes")
    ),
    "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: web-{number}\n  namespace: vision\n"
    "spec:\n  parentRefs:\n    - name: gateway\n  hostnames:\n    - web-{number}.example.com\n  rules:\n"
    "    - matches:\n        - path:\n            type: PathPrefix\n            value: /\n      backendRefs:\n"
    "        - name: web-{number}\n          port: 80\n",
)
"""Objects that are not judged: two kinds without pods, and one unknown kind."""


def mixed(folder: Path) -> int:
    """Write a folder of different files in a fixed proportion, and return the number of workloads in it."""
    judged = round(JUDGED * (FILES - DEFINITIONS))
    manifests(folder, judged)
    for number in range(judged, FILES - DEFINITIONS):
        (folder / f"{number}.yaml").write_text(OTHERS[number % len(OTHERS)].replace("{number}", str(number)), "utf-8")
    schema = "".join(f"{' ' * depth}properties:\n{' ' * depth}  a{depth}:\n" for depth in range(10, 30, 4))
    schema += f"{' ' * 32}description: what a field of a pod means, in a sentence or two\n{' ' * 32}type: string\n"
    head = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  versions:\n"
    for number in range(DEFINITIONS):
        (folder / f"crd-{number}.yaml").write_text(head + f"  - schema:\n{schema}" * (BYTES // len(schema)), "utf-8")
    return judged


def _reading(folder: Path, skips: Skips) -> float:
    """Return the CPU seconds of one process reading a folder, including the check of skipped objects."""
    taken = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for file in folder.iterdir():
            for document in files.read(str(file), skips):
                if isinstance(document, Problem):
                    raise Wrong(str(document))
        taken.append(time.process_time() - begun)
    return statistics.median(taken)


def manifests(folder: Path, count: int) -> None:
    """Write this many Deployments, one per file."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.yaml").write_text(_manifest(number), "utf-8")


def _manifest(number: int) -> str:
    return MANIFEST.format(number=number, resource="nvidia.com/gpu", gpus=1 if number % 10 else 2)


def _start(command: Sequence[str], environment: dict[str, str]) -> list[Cost]:
    cost([sys.executable, *command], environment)  # compiles the imported modules first
    return [cost([sys.executable, *command], environment) for _ in range(STARTS)]


def _start_row(costs: Sequence[Cost]) -> tuple[str, str]:
    return tables.spread([1000 * each.wall for each in costs], ".0f"), f"{1000 * min(each.cpu for each in costs):.0f}"


def _together(folder: Path, count: int) -> Iterator[tuple[str, Path]]:
    """Write this many Deployments into one file, in each of the usual forms."""
    texts = [_manifest(number) for number in range(count)]
    (folder / "stream.yaml").write_text("---\n".join(texts), "utf-8")
    yield "one YAML stream", folder / "stream.yaml"
    items = "".join(f"- {textwrap.indent(text, '  ')[2:]}" for text in texts)
    (folder / "list.yaml").write_text(f"apiVersion: v1\nitems:\n{items}kind: List\n", "utf-8")
    yield "one List, YAML", folder / "list.yaml"
    values = [document.value for text in texts for document in read(text, "")[0]]
    (folder / "list.json").write_text(json.dumps({"apiVersion": "v1", "items": values, "kind": "List"}, indent=4))
    yield "one List, JSON", folder / "list.json"


def _many(path: Path, count: int, environment: dict[str, str]) -> list[Cost]:
    output = path.parent / "report.json"
    command = [sys.executable, "-m", "webhook", "check", str(path), *OPTIONS]
    costs = [cost([*command, "--format", "json", "--output", str(output)], environment) for _ in range(ROUNDS)]
    if (judged := json.loads(output.read_text("utf-8"))["summary"]["objects"]) != count:
        raise Wrong(f"{judged} of {count} manifests were judged")
    return costs


def _figures(words: str, costs: Sequence[Cost]) -> list[Figure]:
    return [
        figure(words, "s", [each.wall for each in costs]),
        figure(f"{words}: largest process", "MiB", [each.memory for each in costs]),
    ]


def _many_row(words: str, costs: Sequence[Cost]) -> tuple[str, ...]:
    count = int(words.partition(", ")[0].replace(",", ""))
    cpu = statistics.median(each.cpu for each in costs)
    return (
        words,
        tables.spread([each.wall for each in costs], ".1f"),
        f"{cpu:.1f}",
        f"{1000 * cpu / count:.2f}",
        f"{max(each.memory for each in costs):.0f}",
    )
