"""`slicewarden prove --run` on a real node: its probe is in the product's own image, and sees the pretended cards."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.access import allowed
from tests.e2e.control_plane import Cluster, User, eventually
from tests.node.pods import pod
from tests.support import policies
from tests.support.records import SAME
from webhook.proving.running import MANAGED_BY, MANAGER, UNTIL
from webhook.proving.ways import WAYS

TENANT = User("prover", ("system:authenticated",))
PLACE = "proof"
OURS = (f"--namespace={PLACE}", f"--selector={MANAGED_BY}={MANAGER}")

in_the_night = pytest.mark.skipif(SAME, reason="takes minutes; make nightly runs it")


@pytest.fixture(scope="module", autouse=True)
def namespace(labelled: Cluster) -> None:
    """A namespace whose pods may be trusted, and whose tenant may do what the role `edit` allows."""
    labelled.add_namespace(PLACE, {"slicewarden.dev/trust": "trusted"})
    labelled.do(
        "create", "rolebinding", "prover", "--clusterrole=edit", f"--user={TENANT.name}", f"--namespace={PLACE}"
    )
    allowed(labelled, TENANT, "create", "pods", PLACE)
    # The pretended driver counts in a file, which is root's; the user of a container has to open it.
    (labelled.folder / "nvidia-container-runtime" / "cards").chmod(0o666)


def command(policy: Path) -> list[str]:
    words = [sys.executable, "-m", "webhook", "prove", "--policy", str(policy), "--namespace", PLACE]
    return [*words, "--as", TENANT.name, "--run", "--yes", "--format", "json"]


def environment(cluster: Cluster) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(cluster.kubeconfig())}


def left(cluster: Cluster, kind: str = "pods,configmaps") -> list[Any]:
    """What is there of runs."""
    return list(cluster.get(kind, *OURS)["items"])


def proved(cluster: Cluster, policy: Path) -> dict[str, dict[str, Any]]:
    """What a run shows of each way in the pool of the node. It leaves nothing."""
    done = subprocess.run(command(policy), env=environment(cluster), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    (found,) = [each for each in json.loads(done.stdout)["targets"] if each["pool"] == "shared"]
    assert eventually(lambda: left(cluster) == [])
    return {each["way"]: each for each in found["ways"]}


def saw_cards(shown: dict[str, Any]) -> bool:
    return re.match("saw [1-9]", shown["message"]) is not None


KNOWN = {
    *("cuda-version", "variables", "variable", "variable-init", "variable-reference", "variable-source"),
    *("annotation-cdi", "privileged"),
}
"""The ways by which a pod without a request sees cards on this node, as NVIDIA's programs are by default."""


@in_the_night
def test_without_us_the_known_ways_lead_to_cards(labelled: Cluster) -> None:
    policy = labelled.folder / "proved.yaml"
    policy.write_text(policies.sample().replace("\nspec:\n", "\nspec:\n  mode: Enforce\n", 1), "utf-8")
    found = proved(labelled, policy)
    honest = found.pop("honest pod")
    assert honest["outcome"] == "admitted", honest
    assert {each["outcome"] for each in found.values()} == {"open"}
    unasked = {way.name for way in WAYS if not way.gpus}
    seeing = {name for name, each in found.items() if name in unasked and saw_cards(each)}
    # A sidecar that ends is started again, and may be stopped before it says anything.
    assert seeing - {"variable-sidecar"} == KNOWN, found


def known(cluster: Cluster) -> bool:
    """Tell whether the replicas of the webhook have heard of the namespace."""
    item = pod("honest", gpus=1, namespace=PLACE)
    item["metadata"]["annotations"] = {"slicewarden.dev/trust": "trusted"}
    ask = ("create", "--dry-run=server", "--filename=-")
    return all(cluster.kubectl(*ask, stdin=json.dumps(item), user=TENANT).returncode == 0 for _ in range(5))


def test_with_us_every_way_is_shut_by_what_its_pod_saw(enforced: Cluster) -> None:
    assert eventually(lambda: known(enforced))
    found = proved(enforced, enforced.folder / "policy.yaml")
    honest = found.pop("honest pod")
    assert honest["outcome"] == "admitted", honest
    assert saw_cards(honest)
    assert {each["outcome"] for each in found.values()} == {"shut"}, found
    ran = {name for name, each in found.items() if each["seen"]}
    assert ran == {way.name for way in WAYS if way.patched}
    assert all(found[name]["message"].startswith("saw 0 of ") for name in ran)


@in_the_night
def test_after_a_kill_at_any_pod_the_next_run_leaves_nothing(enforced: Cluster) -> None:
    assert eventually(lambda: known(enforced))
    policy = enforced.folder / "policy.yaml"
    for number in range(1, 5):
        with subprocess.Popen(
            command(policy), env=environment(enforced), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:

            def there(number: int = number, process: "subprocess.Popen[bytes]" = process) -> bool:
                names = [each["metadata"]["name"] for each in left(enforced, "pods")]
                return any(name.endswith(f"-{number}") for name in names) or process.poll() is not None

            assert eventually(there, pause=0.02)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        (run,) = left(enforced, "configmaps")
        past = f"{UNTIL}=2026-01-01T00:00:00+00:00"
        enforced.do("annotate", "configmap", run["metadata"]["name"], past, "--overwrite", f"--namespace={PLACE}")
    assert proved(enforced, policy)["honest pod"]["outcome"] == "admitted"
