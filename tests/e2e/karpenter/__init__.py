"""Karpenter beside the cluster: built from its module with its kwok provider, whose machines are in a file of ours."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.access import served
from tests.e2e.control_plane import Cluster, eventually
from tests.support.go_programs import Missing, built

HERE = Path(__file__).resolve().parent
MODULE, GROUP = "sigs.k8s.io/karpenter", "karpenter.sh"
DEFINITIONS = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh")
CLASSES = "kwoknodeclasses.karpenter.kwok.sh"
NODE_POOL, MACHINE = "karpenter.sh/nodepool", "node.kubernetes.io/instance-type"
GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"

Object = dict[str, Any]

MACHINES = {"m-plain": 0, "m-1x-t4": 1, "m-8x-a100": 8, "m-1x-h100": 1}
"""The types of machines, each with its cards."""

POOLS = {"slices": "m-1x-t4", "whole": "m-8x-a100", "parts": "m-1x-h100", "plain": "m-plain"}
"""The NodePools, each with its machine."""

OFFERS = {"slices": {GPU: 4}, "whole": {GPU: 8}, "parts": {GPU: 0, MIG: 7}, "plain": {}}
"""What the device plugin offers on a node of a NodePool."""


def version() -> str:
    """The release that go.mod is written for, as `v1.2.3`."""
    match = re.search(r"Karpenter (v[0-9.]+),", (HERE / "go.mod").read_text("utf-8"))
    if match is None:
        raise ValueError("go.mod does not name Karpenter's release")
    return match[1]


def source() -> Path:
    """The folder of Karpenter's module. Raises Missing where it cannot be had.

    The command fails where Go is older than the module asks for, and unpacks the module anyway.
    """
    try:
        command = ["go", "mod", "download", "-json", f"{MODULE}@{version()}"]
        said = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
        asked = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise Missing("the tests of autoscaling need Go 1.26 (https://go.dev/dl)") from None
    folder = Path(asked.stdout.strip()) / f"{MODULE}@{version()}"
    if not folder.is_dir():
        raise Missing(f"Karpenter's module cannot be had: {said.stdout} {said.stderr}")
    return folder


def program() -> Path:
    """Karpenter's program, from the cache or built; raise Missing, in one line, where it cannot be had."""
    folder = built(
        HERE,
        {"karpenter": "./kwok"},
        without_go="the tests of autoscaling need Go 1.26 (https://go.dev/dl)",
        patience="; six minutes of one core the first time",
        module=source,
    )
    return folder / "karpenter"


class Karpenter:
    """Karpenter in a cluster: its kinds, its NodePools, and its process. At first no NodePool has a node."""

    def __init__(self, cluster: Cluster) -> None:
        """Install its kinds, start it, and make the NodePools."""
        self.cluster = cluster
        module = source()
        folders = (module / "pkg/apis/crds", module / "kwok/apis/crds")
        files = [f"--filename={file}" for folder in folders for file in sorted(folder.glob("*.yaml"))]
        cluster.do("apply", "--server-side", *files)
        served(cluster, *DEFINITIONS, CLASSES)
        types = cluster.folder / "machines.json"
        types.write_text(json.dumps([_machine(name, cards) for name, cards in MACHINES.items()]), "utf-8")
        self._objects = [_node_class(), *(_node_pool(name, machine) for name, machine in POOLS.items())]
        applied = cluster.apply(*self._objects)
        assert applied.returncode == 0, applied.stderr
        cluster.start(
            "karpenter",
            "/usr/bin/env",
            f"KUBECONFIG={cluster.kubeconfig()}",
            "SYSTEM_NAMESPACE=kube-system",
            program(),
            f"--instance-types-file-path={types}",
            "--disable-leader-election",
            "--metrics-port=0",
            "--health-probe-port=0",
            "--batch-idle-duration=1s",
            "--feature-gates=NodeOverlay=true",
        )
        cluster.wait_until("Karpenter's NodePools are ready", self._ready)

    def _ready(self) -> bool:
        pools = self.cluster.get("nodepools.karpenter.sh")["items"]
        return all(_holds(each, "Ready") for each in pools)

    def nodes(self, node_pool: str) -> list[str]:
        """The nodes of a NodePool."""
        found = self.cluster.get("nodes", f"--selector={NODE_POOL}={node_pool}")["items"]
        return sorted(each["metadata"]["name"] for each in found)

    def claims(self, node_pool: str) -> list[str]:
        """The nodes that were ordered for a NodePool, there or not."""
        found = self.cluster.get("nodeclaims.karpenter.sh", f"--selector={NODE_POOL}={node_pool}")["items"]
        return sorted(each["metadata"]["name"] for each in found)

    def plug(self, node_pool: str) -> list[str]:
        """Have the device plugin offer what it offers on all nodes of a NodePool; return them."""
        status = json.dumps({"status": dict.fromkeys(("capacity", "allocatable"), amounts(OFFERS[node_pool]))})
        nodes = self.nodes(node_pool)
        for name in nodes:
            self.cluster.do("patch", "node", name, "--subresource=status", "--type=merge", f"--patch={status}")
        return nodes

    def overlay(self, *objects: Object) -> None:
        """Store NodeOverlays in place of all others, and wait until Karpenter has read them."""
        self.cluster.do("delete", "nodeoverlays.karpenter.sh", "--all")
        if objects:
            applied = self.cluster.apply(*objects)
            assert applied.returncode == 0, applied.stderr
        assert eventually(lambda: all(_holds(each, "ValidationSucceeded") for each in self.overlays()))

    def overlays(self) -> list[Object]:
        """The NodeOverlays."""
        return list(self.cluster.get("nodeoverlays.karpenter.sh")["items"])

    def scale_down(self) -> None:
        """Take all its nodes away, whose pods have to be gone."""
        self.cluster.do("delete", "nodeclaims.karpenter.sh", "--all", "--timeout=300s")
        assert eventually(lambda: not any(self.nodes(each) for each in POOLS))

    def leave(self) -> None:
        """End it, and take its objects away."""
        self.overlay()
        self.scale_down()
        self.cluster.do("delete", "nodepools.karpenter.sh", "--all", "--timeout=300s")
        self.cluster.stop("karpenter")
        self.cluster.do("delete", CLASSES, "--all", "--wait=false")


def amounts(offered: Mapping[str, int]) -> dict[str, str]:
    """Amounts as a node's status has them."""
    return {name: str(count) for name, count in offered.items()}


def _holds(item: Object, condition: str) -> bool:
    conditions = item.get("status", {}).get("conditions", ())
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _machine(name: str, cards: int) -> Object:
    sold = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "test-zone-a"}
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "32", "memory": "256Gi", **({GPU: str(cards)} if cards else {})},
        "offerings": [
            {
                "Price": 1.0 + cards,
                "Available": True,
                "Requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in sold.items()],
            }
        ],
    }


def _node_class() -> Object:
    spec: Object = {}
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def _node_pool(name: str, machine: str) -> Object:
    template = {
        "requirements": [{"key": MACHINE, "operator": "In", "values": [machine]}],
        "nodeClassRef": {"name": "default", "kind": "KWOKNodeClass", "group": "karpenter.kwok.sh"},
    }
    still = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
    # A limit, so that a mistake here makes no nodes without end.
    spec = {"template": {"spec": template}, "disruption": still, "limits": {"cpu": "320"}}
    return {"apiVersion": f"{GROUP}/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
