"""Makes pods that may reach MPS in the IPC namespace of a node: by `hostIPC`, or by a hostPath of its shared memory."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests import ROOT
from tests.support.objects import Object
from webhook.cli import inputs
from webhook.facts.snapshot import Facts
from webhook.policy.model import Policy
from webhook.starter import starter

CARD = "cloud.google.com/gke-accelerator"
GPU_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
MPS = {GPU_SHARING: "mps"}
TIME_SHARING = {GPU_SHARING: "time-sharing"}
TOLERANT = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
NAMESPACE: Object = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "team", "labels": {"slicewarden.dev/trust": "trusted"}},
}


@cache
def gke() -> tuple[Policy, Facts]:
    """Return the policy that `policy init` writes for a GKE cluster with a pool for MPS, and the cluster's facts."""
    items = [*(item.value for item in inputs.load_objects(str(ROOT / "tests/clusters/gke.yaml"))), NAMESPACE]
    return starter.make(items, "gke.yaml").policy, Facts.of(items)


def pod(selector: dict[str, str], gpus: int = 1, **more: Any) -> Object:
    """Return a pod of the namespace team, which may be trusted, with a node selector."""
    metadata = {"name": "x", "namespace": "team", "annotations": {"slicewarden.dev/trust": "trusted"}}
    limits = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    spec = {"containers": [{"name": "c", "image": "x", "resources": limits}], "nodeSelector": selector, **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def mounting(path: str, selector: dict[str, str], gpus: int = 1, **more: Any) -> Object:
    """Return a pod with one volume, a path of its node."""
    return pod(selector, gpus, volumes=[{"name": "v", "hostPath": {"path": path}}], **more)


MEMORY = "/dev/shm"  # noqa: S108 - a path of nodes
STEPS = ("", ".", "dev", "shm", "run", "var", "data", "shmem", "cuda.shm.0.1.1")
PLACES = ("", "/dev", MEMORY, "/dev//./shm", "/run/shm", "/var/run/shm", "/var/./run//shm", f"{MEMORY}-data")
PATHS = st.builds(
    lambda place, steps: "/".join((place, *steps)) or "/",
    st.sampled_from(PLACES),
    st.lists(st.sampled_from(STEPS), max_size=3),
)
"""Paths of a node. An API server refuses those with `..`."""


def a_node(folder: Path) -> Path:
    """Make the folders of a node, with the links that Debian has among them."""
    root = folder / "node"
    for each in ("dev/shm", "run", "var"):
        (root / each).mkdir(parents=True)
    (root / "run/shm").symlink_to("../dev/shm")
    (root / "var/run").symlink_to("../run")
    return root


def in_memory(root: Path, path: str) -> bool:
    """Return whether the kernel finds a path of such a node in its shared memory."""
    return _real(root, path).is_relative_to(_real(root, MEMORY))


def above_memory(root: Path, path: str) -> bool:
    """Return whether the kernel finds the shared memory of such a node below a path."""
    return _real(root, MEMORY).is_relative_to(_real(root, path))


def _real(root: Path, path: str) -> Path:
    return Path(os.path.realpath(f"{root}/{path}"))


def _selections() -> st.SearchStrategy[Object]:
    values = st.lists(st.sampled_from(("mps", "time-sharing", "none")), min_size=1, max_size=3, unique=True)
    conditions = st.one_of(
        st.builds(lambda some: {"key": GPU_SHARING, "operator": "In", "values": some}, values),
        st.builds(lambda some: {"key": GPU_SHARING, "operator": "NotIn", "values": some}, values),
        st.just({"key": GPU_SHARING, "operator": "DoesNotExist"}),
        st.just({"key": CARD, "operator": "In", "values": ["nvidia-l4"]}),
    )
    terms = st.lists(
        st.builds(lambda some: {"matchExpressions": some}, st.lists(conditions, min_size=1, max_size=2)), max_size=2
    )
    return st.builds(
        lambda some: (
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": some}}}
            if some
            else {}
        ),
        terms,
    )


LABELS = st.sampled_from(
    ({}, MPS, TIME_SHARING, {CARD: "nvidia-l4"}, {**MPS, CARD: "nvidia-tesla-t4"}, {**TIME_SHARING, CARD: "nvidia-l4"})
)


def pods(paths: st.SearchStrategy[str]) -> st.SearchStrategy[Object]:
    """Return pods with a path of their node, with and without a GPU, which select nodes in several ways."""
    return st.builds(
        lambda path, selector, gpus, ipc, tolerant, affinity: mounting(
            path,
            selector,
            gpus,
            **({"hostIPC": True} if ipc else {}),
            **({"tolerations": TOLERANT} if tolerant else {}),
            **({"affinity": affinity} if affinity else {}),
        ),
        paths,
        LABELS,
        st.sampled_from((0, 0, 1, 2)),
        st.sampled_from((False, False, True)),
        st.booleans(),
        _selections(),
    )
