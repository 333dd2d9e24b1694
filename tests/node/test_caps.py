"""A program in each container sees what the webhook wrote into its pod, after a restart too."""

import json
from typing import Any

import pytest

from tests.e2e.control_plane import Cluster, eventually
from tests.node.pods import HAS_SAID, SAY, ended, pod
from tests.support.objects import Object

TEAM, TRUST = "capped", {"slicewarden.dev/trust": "trusted"}
ONCE = "test -e /again/env || { env > /again/env; exit 1; }; env; sed 's/^/first /' /again/env"
"""Fails the first time, so that its kubelet starts it again, and then also tells what it was given the first time."""


def container(name: str, command: str, **more: Any) -> Object:
    made: Object = pod("any")["spec"]["containers"][0]
    return made | {"name": name, "command": ["sh", "-c", command], **more}


@pytest.fixture(scope="module")
def capped(enforced: Cluster) -> Object:
    """A pod with an init container, a sidecar and a container with a slice that is started twice, when it has ended."""
    enforced.add_namespace(TEAM, TRUST)
    slice_of = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    again = {"volumeMounts": [{"name": "again", "mountPath": "/again"}]}
    item = pod("train", namespace=TEAM)
    item["metadata"]["annotations"] = TRUST
    del item["spec"]["nodeSelector"], item["spec"]["tolerations"]
    item["spec"] |= {
        "restartPolicy": "OnFailure",
        "volumes": [{"name": "again", "emptyDir": {}}],
        "initContainers": [
            container("fetch", "env; ls /dev"),
            container(
                "log", f"{SAY}; touch /said; trap 'exit 0' TERM; sleep 600 & wait", restartPolicy="Always", **HAS_SAID
            ),
        ],
        "containers": [container("main", ONCE, **slice_of, **again)],
    }

    def taken() -> bool:
        made = enforced.kubectl("create", "--filename=-", stdin=json.dumps(item))
        return made.returncode == 0

    assert eventually(taken)  # once the webhook has heard of the namespace's label
    return ended(enforced, "train", TEAM)


def given(cluster: Cluster, name: str) -> dict[str, str]:
    """The variables that a program saw."""
    log = cluster.do("logs", "train", f"--namespace={TEAM}", f"--container={name}")
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


def promised(item: Object, name: str) -> dict[str, str]:
    """The variables of a container in the object that was admitted."""
    containers = [*item["spec"]["initContainers"], *item["spec"]["containers"]]
    (found,) = [each for each in containers if each["name"] == name]
    return {each["name"]: each.get("value", "") for each in found.get("env", [])}


@pytest.mark.parametrize("name", ["fetch", "log", "main"])
def test_a_program_sees_every_variable_that_was_written_for_it(enforced: Cluster, capped: Object, name: str) -> None:
    written = promised(capped, name)
    assert written
    assert written.items() <= given(enforced, name).items()


def test_the_container_with_the_slice_is_capped_by_what_the_facts_say_of_its_card(
    enforced: Cluster, capped: Object
) -> None:
    caps = json.loads(capped["metadata"]["annotations"]["slicewarden.dev/memory-caps"])
    seen = given(enforced, "main")
    assert 0 < caps["mib"] < 40960 / 4
    assert f"per_process_memory_fraction:{caps['fraction']}" in seen["PYTORCH_ALLOC_CONF"]
    assert seen["XLA_PYTHON_CLIENT_MEM_FRACTION"] == caps["fraction"]


def test_it_holds_after_a_restart(enforced: Cluster, capped: Object) -> None:
    (status,) = capped["status"]["containerStatuses"]
    assert status["restartCount"] == 1
    seen = given(enforced, "main")
    for name, value in promised(capped, "main").items():
        assert seen[name] == seen[f"first {name}"] == value


@pytest.mark.parametrize("name", ["fetch", "log"])
def test_a_container_without_the_slice_sees_no_card(enforced: Cluster, capped: Object, name: str) -> None:
    del capped
    log = enforced.do("logs", "train", f"--namespace={TEAM}", f"--container={name}")
    assert "nvidia0" not in log
    assert "nvidia1" not in log
