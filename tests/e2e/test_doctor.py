"""`slicewarden doctor` asks a real API server, with the webhook beside the cluster and its registration in force."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import MUTATE, Guard, rendered
from tests.e2e.objects import pod


@pytest.fixture(scope="module")
def installed(guarded: Guard) -> Iterator[Cluster]:
    """The Deployment with its policy; its pods are pretended, and the webhook answers from beside the cluster."""
    kinds = ("ConfigMap", "Deployment", "Service", "Secret")
    parts = [each for each in rendered(guarded.cluster) if each["kind"] in kinds]
    guarded.install(*parts)
    yield guarded.cluster
    listed = {"apiVersion": "v1", "kind": "List", "items": parts}
    guarded.cluster.do("delete", "--wait=false", "--filename=-", stdin=json.dumps(listed))


def ask(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """The state and the message of each check; one that speaks several times counts once, by its last word."""
    command = [sys.executable, "-m", "webhook", "doctor", "--kubeconfig", str(cluster.kubeconfig()), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    checks: list[Any] = json.loads(done.stdout)["checks"]
    return {each["check"]: (each["state"], each["message"]) for each in checks}


def test_doctor_says_what_works_and_what_does_not(installed: Cluster) -> None:
    assert eventually(lambda: "run on node cpu" in ask(installed)["replicas"][1])  # the only one without GPUs
    found = ask(installed)
    assert found["policy"][0] == found["permissions"][0] == found["mode"][0] == found["calls"][0] == "ok", found
    # The registration names the address beside the cluster, where a Service belongs.
    assert found["registration"] == ("error", found["registration"][1])
    assert found["registration"][1].endswith("clientConfig differs")
    assert found["certificate"][0] == "error"  # nothing keeps it here
    assert found["facts"][0] == "not known"  # a pod that is pretended has no metrics
    assert installed.kubectl("get", "pod", "slicewarden-doctor", "--namespace=default").returncode != 0


def test_a_registration_without_a_webhook_is_found(guarded: Guard, installed: Cluster) -> None:
    try:
        guarded.without("pods.slicewarden.dev", lambda: guarded.reached_by(pod("probe", "default")) == [MUTATE])
        found = ask(installed)
        assert found["calls"][0] == found["registration"][0] == "error"
        assert "was allowed" in found["calls"][1]
    finally:
        guarded.register()
