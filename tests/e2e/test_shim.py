"""The shim on a real API server: a pod of PyTorch 2.4 is admitted, and its program stops at its slice.

The program starts as the stored pod says: with its environment, and with the files that the kubelet writes from its
annotation. Wheel and card are those of tests/frameworks.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from bench.gpu import greedy
from tests.e2e.conftest import Space, granted
from tests.e2e.control_plane import eventually
from tests.e2e.guard import OPERATORS, Guard, policy_of
from tests.e2e.objects import TRUSTED, Object, pod
from tests.frameworks.cache import Missing
from tests.frameworks.card import PRETEND
from tests.frameworks.running import mounted, run
from tests.support import policies
from webhook.engine.registration import configurations
from webhook.facts.images import ImageVariables, config_map, reference
from webhook.memory.annotation import KEY
from webhook.memory.shim.delivery import CODE, FOLDER

IMAGE = "pytorch/pytorch:2.4.1-cuda12.1-cudnn9-runtime"
WHEEL = "torch-2.4.1"
SLICE = 3251
"""MiB that four slices of a T4 leave to each."""


@pytest.fixture(scope="module")
def injecting(guard: Guard) -> Iterator[Guard]:
    """The webhook under a policy with the shim, which reads a list of images in the operator's namespace."""
    value = yaml.safe_load(policy_of(guard.cluster))
    value["spec"]["memory"]["shim"] = "Inject"
    text = yaml.safe_dump(value)
    guard.judge_by(text)
    guard.registered_for = [*configurations(policies.policy_of(text))]
    guard.register()
    yield guard
    guard.unregister()
    guard.registered_for = []
    guard.judge_by()


@pytest.fixture
def team(injecting: Guard, space: Space) -> str:
    """A namespace whose pods may be trusted, as the webhook knows already."""
    return granted(injecting, space(TRUSTED))


def of_torch(name: str, namespace: str) -> Object:
    made = pod(name, namespace, annotations=TRUSTED)
    made["spec"]["containers"][0] |= {"image": IMAGE, "command": ["python", greedy.__file__, "pytorch"]}
    return made


def test_a_pod_of_an_older_torch_stops_at_its_slice(injecting: Guard, team: str, tmp_path: Path) -> None:
    cluster, item = injecting.cluster, of_torch("train", team)

    def patched() -> Object:
        shown: Object = json.loads(
            cluster.do("create", "--dry-run=server", "--output=json", "--filename=-", stdin=json.dumps(item))
        )
        return shown

    assert CODE not in patched()["metadata"]["annotations"]
    assert "its image's PYTHONPATH is not known" in patched()["metadata"]["annotations"][KEY]
    injecting.install(dict(config_map([(reference(IMAGE), ImageVariables(str(PRETEND)))], OPERATORS)))
    assert eventually(lambda: CODE in patched()["metadata"]["annotations"])

    assert cluster.apply(item).returncode == 0
    stored = cluster.get("pod", "train", f"--namespace={team}")
    (container,) = stored["spec"]["containers"]
    assert json.loads(stored["metadata"]["annotations"][KEY])["shim"]
    env = mounted(stored, tmp_path)
    assert env["PYTHONPATH"] == f"{tmp_path}{FOLDER}:{PRETEND}"
    try:
        ran = run(WHEEL, tmp_path, env, *container["command"][1:])
    except Missing as missing:
        pytest.skip(str(missing))
    assert ran.stopped
    assert not ran.card.refused
    assert 0.9 * SLICE < ran.card.peak <= SLICE


@pytest.mark.parametrize("subresource", ["", "status"])
def test_the_text_of_a_pod_that_lives_is_changed_by_no_subresource(
    injecting: Guard, team: str, subresource: str
) -> None:
    cluster, item = injecting.cluster, of_torch("lives", team)
    item["metadata"]["annotations"] = {**TRUSTED, "slicewarden.dev/python-path": ""}
    assert cluster.apply(item).returncode == 0
    patch = json.dumps({"metadata": {"annotations": {CODE: "import os"}}})
    words = ["patch", "pod", "lives", f"--namespace={team}", "--patch", patch]
    refused = cluster.kubectl(*words, *([f"--subresource={subresource}"] if subresource else []))
    assert refused.returncode
    assert "changed-shim" in refused.stderr
    harmless = cluster.kubectl("label", "pod", "lives", f"--namespace={team}", "a=b")
    assert harmless.returncode == 0, harmless.stderr
