"""Measures how long an audit of a whole cluster takes: a real API server with five thousand pods, start to exit."""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from bench import tables
from bench.decision import POLICY, ROOT
from bench.generator import CannotRun, Wrong
from bench.processes import Cost, cost
from bench.runs import Result, figure
from tests.e2e import binaries, control_plane
from tests.e2e.control_plane import Cluster
from tests.e2e.objects import ONE, pod
from webhook.api import admission, jsonpatch
from webhook.cli.inputs import load_policy
from webhook.cluster import client as live
from webhook.cluster import listing
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.rules import walk

NAMESPACE = "vision"
THREADS = 8
KINDS = 4
"""Every four pods: two request no GPU, one was steered to its pool, and one was not."""


def run(pods: int, rounds: int) -> Result:
    """Fill a cluster with pods, audit it, and return the result."""
    try:
        programs = binaries.find(("etcd", "kube-apiserver", "kubectl"))
    except binaries.Missing as missing:
        raise CannotRun(str(missing)) from missing
    with tempfile.TemporaryDirectory() as folder, control_plane.serving(Path(folder), programs) as cluster:
        _fill(cluster, pods)
        costs = [_audit(cluster, pods) for _ in range(rounds)]
    times = [each.wall for each in costs]
    figures = [
        figure(f"{pods:,} pods", "s", times),
        figure(f"{pods:,} pods: memory", "MiB", [each.memory for each in costs]),
    ]
    table = tables.markdown(
        ("pods", "seconds", "pods a second", "peak RSS"),
        [
            (
                f"{pods:,}",
                f"{statistics.median(times):.1f}",
                f"{pods / statistics.median(times):,.0f}",
                f"{max(each.memory for each in costs):.0f} MiB",
            )
        ],
    )
    return Result(table, figures)


def _fill(cluster: Cluster, pods: int) -> None:
    nodes = [*yaml.safe_load_all((ROOT / "tests" / "e2e" / "nodes.yaml").read_text("utf-8"))]
    if cluster.apply(*nodes).returncode:
        raise Wrong("the nodes cannot be made")
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {}}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    made = cluster.apply(space, account)
    if made.returncode:
        raise Wrong(made.stderr)
    api = listing.connect(str(cluster.kubeconfig()))

    def create(item: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{item['metadata']['name']}"
        live.ask(api, path, {"fieldManager": "bench"}, method="PATCH", body=item)

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in threads.map(create, _pods(pods, api)):
            pass


def _pods(count: int, api: live.Api) -> Iterator[dict[str, Any]]:
    policy = load_policy(str(POLICY))
    objects, _ = listing.facts(api, [policy])
    engine, facts = Engine(policy, walk()), Facts.of(objects)
    for number in range(count):
        item = pod(f"pod-{number}", NAMESPACE, ONE if number % KINDS < KINDS // 2 else {})
        if number % KINDS == 0:
            operations = engine.mutate(admission.decode(admission.wrap(item)), facts).patch
            item = dict(jsonpatch.apply(item, operations))
        yield item


def _audit(cluster: Cluster, pods: int) -> Cost:
    where = ("--kubeconfig", str(cluster.kubeconfig()), "--policy", str(POLICY))
    command = [sys.executable, "-m", "webhook", "audit", *where, "--format", "json"]
    with tempfile.NamedTemporaryFile() as out:
        spent = cost(command, {**os.environ, "PYTHONPATH": str(ROOT)}, output=out.name)
        report = json.load(out)
    denied = report["summary"]["denied"]
    if report["errors"] or denied != pods // KINDS:
        raise Wrong(f"{denied} of {pods} pods would be denied, and {len(report['errors'])} errors")
    return spent
