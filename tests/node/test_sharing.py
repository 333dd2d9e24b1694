"""Sharing configurations by NVIDIA's running device plugin: it exits where our reader refuses, shares as it says."""

import shlex
import subprocess
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.conformance.record import recorded
from tests.conformance.rule import UNREAD, engine, findings
from tests.e2e.control_plane import Cluster, eventually
from tests.node.images import nvml
from tests.node.nodes import Node
from tests.node.nvidia import OPERATOR, choose, resources
from tests.node.pods import create, ended, pod
from webhook.policy.model import Policy

EACH = 3
"""Texts of each group of the conformance tests that are refused, and as many that are not."""
ALONE = """
mount -t tmpfs plugins /var/lib/kubelet/device-plugins
exec {program} --config-file={config}
"""
PATIENCE = 20
"""Seconds that the plugin may take until it runs or exits."""


@pytest.mark.parametrize(
    ("config", "advertised"),
    [("shared-8", {"gpu": 16}), ("renamed", {"gpu.shared": 8}), ("whole", {"gpu": 2}), ("shared-4", {"gpu": 8})],
)
def test_a_node_advertises_what_its_label_chooses(shared: Cluster, config: str, advertised: dict[str, int]) -> None:
    choose(shared, config, **advertised)


def test_a_request_for_two_slices_of_one_fails_on_the_node(shared: Cluster) -> None:
    create(shared, pod("two", gpus=2))
    status = ended(shared, "two")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "maximum request size for shared resources is 1; found 2" in status["message"]
    shared.do("delete", "pod", "two")


@pytest.fixture
def broken(shared: Cluster) -> Iterator[Cluster]:
    """A node that chooses a configuration on which the plugin exits."""
    text = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}"
    entry = f'--patch={{"data": {{"broken": "version: v1\\n{text}\\n"}}}}'
    shared.do(
        "patch",
        "configmap",
        "time-slicing-config",
        f"--namespace={OPERATOR}",
        "--type=merge",
        entry.replace("\n", "\\n"),
    )
    # The ConfigMap is mounted: what is new in it reaches the plugin's pod by its kubelet's next synchronization.
    shared.do("delete", "pods", f"--namespace={OPERATOR}", "--selector=app=nvidia-device-plugin", "--wait")
    assert eventually(lambda: resources(shared) == {"nvidia.com/gpu": 8}, 60)
    shared.do("label", "node", "gpu-node", "nvidia.com/device-plugin.config=broken", "--overwrite")
    yield shared
    choose(shared, "shared-4", gpu=8)


def test_a_configuration_that_is_refused_leaves_the_node_without_a_gpu_until_another_is_chosen(broken: Cluster) -> None:
    assert eventually(lambda: resources(broken) == {}, 60)
    assert resources(broken, "capacity")["nvidia.com/gpu"] == 8
    log = ("logs", "daemonset/nvidia-device-plugin", f"--namespace={OPERATOR}", "--container=nvidia-device-plugin")
    assert eventually(lambda: "number of replicas must be >= 2" in broken.kubectl(*log).stdout, 60)


def chosen() -> list[tuple[str, str]]:
    """Texts of every group, with what the plugin's own parser said of each."""
    found = []
    for texts in recorded().values():
        for refused in (True, False):
            found += list(islice(((text, it) for text, it in texts.items() if bool(it) == refused), EACH))
    return found


@pytest.fixture(scope="module")
def plugin(gpu_node: Node, tmp_path_factory: pytest.TempPathFactory) -> tuple[Node, Path]:
    """A node, and a folder with the pretended NVML for programs that are started there by hand."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "libnvidia-ml.so.1").symlink_to(nvml())
    return gpu_node, folder


RUNS = ("Starting to serve", "Failed to start one or more plugins. Retrying")
"""What the plugin logs of a configuration that it takes; the second where there is no daemon of MPS yet."""


def runs(node: Node, folder: Path, text: str) -> tuple[bool, str]:
    """Start the plugin with a configuration, away from any kubelet: whether it runs on, and its log."""
    config, log = folder / "config.yaml", folder / "log"
    config.write_bytes(text.encode("utf-8", "surrogatepass"))
    script = ALONE.format(program=shlex.quote(str(node.programs["nvidia-device-plugin"])), config=config)
    command = [
        *node.inside,
        f"LD_LIBRARY_PATH={folder}",
        "MPS_ROOT=/run/nvidia/mps",
        "unshare",
        "--mount",
        "sh",
        "-euc",
        script,
    ]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            if any(line in log.read_text() for line in RUNS):
                process.kill()
                return True, log.read_text()
            time.sleep(0.02)
        process.kill()
    return False, log.read_text()


def test_the_running_plugin_exits_on_what_our_reader_refuses_and_runs_on_what_it_takes(
    plugin: tuple[Node, Path], sample_policy: Policy
) -> None:
    judge, wrong, count = engine(sample_policy), [], 0
    for text, recorded_refusal in chosen():
        said = findings(judge, text)
        if any(UNREAD in message for message in said):
            continue
        count += 1
        started, log = runs(*plugin, text)
        if started == bool(said):
            wrong.append((text, said, recorded_refusal, log[-600:]))
    assert not wrong, "\n\n".join(map(str, wrong))
    assert count > 60
