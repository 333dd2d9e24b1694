"""Sharing configurations by NVIDIA's running device plugin: it exits where ours refuses, shares as ours says."""

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from tests.conformance.record import recorded
from tests.conformance.rule import UNREAD, engine, findings
from tests.e2e.control_plane import Cluster, eventually
from tests.node.conftest import Sh
from tests.node.images import nvml
from tests.node.labels import label
from tests.node.nodes import Node
from tests.node.nvidia import CARDS, OPERATOR, choose, configurations, resources
from tests.node.pods import cards, create, ended, pod, said
from tests.support.policies import facts_of
from webhook.deviceplugin.configmaps import held
from webhook.deviceplugin.usage import GPU, SHARED, after, renamed, shares
from webhook.facts.kinds.node import Node as FactsNode
from webhook.policy.model import Policy
from webhook.scan.sharing import overview

AT_ONCE = 8
"""Plugins that are started beside each other: most of a start is waiting."""
ALONE = """
mount -t tmpfs plugins /var/lib/kubelet/device-plugins
exec {program} --config-file={config}
"""
PATIENCE = 20
"""Seconds that the plugin may take until it runs or exits."""


def read(text: str) -> tuple[dict[str, int], dict[str, str]]:
    """Our reading of a configuration on a node with two cards: resources with their counts, and labels."""
    plugin, node = held(text), FactsNode("any", {f"{GPU}.product": "NVIDIA-A100-SXM4-40GB", f"{GPU}.count": "2"})
    (replicas,) = [each.replicas for each in shares(plugin, node)] or [1]
    name = GPU + SHARED if renamed(plugin.section) and replicas > 1 else GPU
    return {name.partition("/")[2]: len(CARDS) * replicas}, dict(after(node, plugin))


@pytest.mark.parametrize("config", ["renamed", "twice", "one-card", "partitions", "whole", "shared-8", "shared-4"])
def test_the_node_advertises_what_our_reader_makes_of_the_configuration_that_its_label_chooses(
    shared: Cluster, config: str
) -> None:
    advertised, _ = read(configurations()[config])
    choose(shared, config, **advertised)


@pytest.mark.parametrize("config", ["renamed", "whole", "shared-4"])
def test_labels_facts_caps_and_pools_say_what_the_node_advertises(
    shared: Cluster, gpu_node: Node, sh: Sh, sample_policy: Policy, config: str
) -> None:
    advertised, labels = read(configurations()[config])
    choose(shared, config, **advertised)
    label(shared, gpu_node, config)
    found = shared.get("node", gpu_node.name)["metadata"]["labels"]
    told = ("sharing-strategy", "replicas", "product", "count")
    assert {key: found[f"{GPU}.{key}"] for key in told} == {key: labels[f"{GPU}.{key}"] for key in told}

    file = shared.folder / f"{config}.json"
    sh(f"slicewarden facts --live > {file}")
    facts = facts_of(file)
    (node,) = (each for each in facts.nodes if each.name == gpu_node.name)
    assert {name.partition("/")[2]: amount for name, amount in node.resources.items() if amount} == advertised
    (pool,) = (pool for pool in overview(sample_policy, facts) if [each.name for each in pool.nodes] == [node.name])
    assert {each.resource.partition("/")[2]: each.offered for each in pool.amounts if each.offered} == advertised

    ((_, amount),) = advertised.items()
    assert pool.shared == (amount > len(CARDS))
    caps = sh(f"slicewarden explain caps --policy policies/sample.yaml --facts {file}").splitlines()
    rows = [line.split()[1:5] for line in caps if labels[f"{GPU}.product"] in line.split()]
    replicas = labels[f"{GPU}.replicas"]
    assert rows == ([[labels[f"{GPU}.product"], "1", "40960", replicas]] if pool.shared else [])


def test_a_request_for_two_slices_of_one_fails_on_the_node(shared: Cluster) -> None:
    create(shared, pod("two", gpus=2))
    status = ended(shared, "two")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "maximum request size for shared resources is 1; found 2" in status["message"]
    shared.do("delete", "pod", "two")


@pytest.fixture
def lenient(shared: Cluster) -> Iterator[Cluster]:
    """A node whose configuration says nothing of requests for more than one slice."""
    choose(shared, "twice", gpu=6)
    yield shared
    choose(shared, "shared-4", gpu=8)


def test_two_slices_are_handed_out_where_the_configuration_does_not_fail_such_requests(lenient: Cluster) -> None:
    create(lenient, pod("two", gpus=2))
    assert len(cards(said(lenient, "two"))) in (1, 2)
    lenient.do("delete", "pod", "two")


BROKEN = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}\n"


def write(cluster: Cluster, name: str, text: str) -> None:
    """Give the ConfigMap of the plugin's configurations another text under a key."""
    patch = json.dumps({"data": {name: text}})
    cluster.do(
        "patch", "configmap", "time-slicing-config", f"--namespace={OPERATOR}", "--type=merge", f"--patch={patch}"
    )


@pytest.fixture
def broken(shared: Cluster) -> Iterator[Cluster]:
    """A node that chooses a configuration on which the plugin exits."""
    write(shared, "broken", BROKEN)
    # The ConfigMap is mounted: what is new in it reaches the plugin's pod by its kubelet's next synchronization.
    shared.do("delete", "pods", f"--namespace={OPERATOR}", "--selector=app=nvidia-device-plugin", "--wait")
    assert eventually(lambda: resources(shared) == {"nvidia.com/gpu": 8})
    shared.do("label", "node", "gpu-node", "nvidia.com/device-plugin.config=broken", "--overwrite")
    yield shared
    choose(shared, "shared-4", gpu=8)


def test_a_configuration_that_is_refused_leaves_the_node_without_a_gpu_until_it_is_mended(
    broken: Cluster,
) -> None:
    assert eventually(lambda: resources(broken) == {})
    assert resources(broken, "capacity")["nvidia.com/gpu"] == 8
    log = ("logs", "daemonset/nvidia-device-plugin", f"--namespace={OPERATOR}", "--container=nvidia-device-plugin")
    assert eventually(lambda: "number of replicas must be >= 2" in broken.kubectl(*log).stdout)
    write(broken, "broken", BROKEN.replace("replicas: 1", "replicas: 5"))
    assert eventually(lambda: resources(broken) == {GPU: 10}, 120)


@pytest.fixture(scope="module")
def plugin(gpu_node: Node, tmp_path_factory: pytest.TempPathFactory) -> tuple[Node, Path]:
    """A node, and a folder with the pretended NVML for programs that are started there by hand."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "libnvidia-ml.so.1").symlink_to(nvml())
    return gpu_node, folder


RUNS = ("Starting to serve", "Failed to start one or more plugins. Retrying", "failed to locate libcuda.so")
"""What the plugin logs of a configuration that it takes.

The second where there is no daemon of MPS yet; the third where it would write files for CDI, and misses the driver's.
"""
MOST = 10_000_000
"""Replicas of which it can make a list. More of them it takes too, and then all memory before it serves anything."""


def runs(node: Node, folder: Path, number: int, text: str) -> tuple[bool, str]:
    """Start the plugin with a configuration, away from any kubelet: whether it takes it, and its log."""
    config, log = folder / f"{number}.yaml", folder / f"{number}.log"
    config.write_bytes(text.encode("utf-8", "surrogatepass"))
    script = ALONE.format(program=shlex.quote(str(node.programs["nvidia-device-plugin"])), config=config)
    variables = (f"LD_LIBRARY_PATH={folder}", "MPS_ROOT=/run/nvidia/mps")
    command = [*node.inside, *variables, "unshare", "--mount", "sh", "-euc", script]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        deadline = time.monotonic() + PATIENCE
        while True:
            # In this order: what the plugin writes before it exits is in the log.
            over = process.poll() is not None or time.monotonic() > deadline
            logged = log.read_text()
            taken = any(line in logged for line in RUNS)
            if taken or over:
                process.kill()
                return taken, logged
            time.sleep(0.02)


def served(log: str) -> set[str]:
    """The resources that it began to serve."""
    return set(re.findall(r"Starting to serve '([^']+)'", log))


def test_the_running_plugin_exits_on_what_our_reader_refuses_and_runs_on_what_it_takes(
    plugin: tuple[Node, Path], sample_policy: Policy
) -> None:
    judge = engine(sample_policy)
    judged = [(text, findings(judge, text)) for texts in recorded().values() for text in texts]
    read_by_us = [
        (text, ours)
        for text, ours in judged
        if not any(UNREAD in message for message in ours) and (ours or max(read(text)[0].values()) <= MOST)
    ]
    start = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        started = list(pool.map(partial(runs, *plugin), count(), (text for text, _ in read_by_us)))
    print(f"{len(started)} configurations in {time.monotonic() - start:.0f} s")
    wrong = []
    for (text, ours), (on, log) in zip(read_by_us, started, strict=True):
        expected = set() if ours else {f"nvidia.com/{name}" for name in read(text)[0]}
        if on == bool(ours) or not served(log) <= expected:
            wrong.append((text, ours, log[-600:]))
    assert not wrong, f"{len(wrong)} of {len(started)}:\n" + "\n\n".join(map(str, wrong[:9]))
    assert len(started) > 900
