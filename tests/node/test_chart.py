"""The chart by a real Helm on a real cluster, by the commands of its page: from the installation to the end of it."""

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node.conftest import Sh
from tests.node.replicas import BAD, CREATE, OURS, SYSTEM, all_ready, stream
from tests.support.manifests import commands

IMAGE = "registry.example.com/slicewarden@sha256:..."
"""The image's name on the page."""


KINDS = (
    "clusterroles", "clusterrolebindings", "roles", "rolebindings", "configmaps",
    "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
)  # fmt: skip
"""The kinds of objects that an uninstallation might leave behind."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the manifests and a policy of its reader's, which is the sample."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "manifests").symlink_to(ROOT / "manifests")
    shutil.copy(ROOT / "policies" / "sample.yaml", folder / "policy.yaml")
    return folder


@pytest.fixture(scope="module")
def page(sh: Sh, clone: Path) -> Callable[[str], str]:
    """Run some of the page's commands, with the image that is there."""

    def page(text: str) -> str:
        return sh(text.replace(IMAGE, "slicewarden:0.1.0"), clone)

    return page


INSTALL, UPGRADE = commands()["With Helm"][0].split("helm upgrade")
ROLLBACK = commands()["With Helm"][1]


@pytest.fixture(scope="module")
def installed(labelled: Cluster, page: Callable[[str], str]) -> Iterator[Cluster]:
    """The cluster with the chart in audit mode, until the tests here are done."""
    page(INSTALL)
    yield labelled
    page(commands()["In an emergency"][0])
    page(commands()["Remove it"][1])
    ours = (",".join(KINDS), "--all-namespaces", "--selector=app.kubernetes.io/part-of=slicewarden")
    assert eventually(lambda: labelled.get(*ours)["items"] == []), labelled.get(*ours)["items"]


def admits(cluster: Cluster) -> bool:
    return cluster.kubectl(*CREATE, stdin=json.dumps(BAD)).returncode == 0


def policies(cluster: Cluster) -> set[str]:
    """The names of the ConfigMaps of policies that are there."""
    found = cluster.get("configmaps", SYSTEM)["items"]
    return {each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith("slicewarden-policy")}


def mounted(cluster: Cluster) -> str:
    """The name of the one that new pods get."""
    volumes = cluster.get("deployment", "slicewarden", SYSTEM)["spec"]["template"]["spec"]["volumes"]
    (name,) = (each["configMap"]["name"] for each in volumes if "configMap" in each)
    return str(name)


def nodes_behind_the_service(cluster: Cluster) -> list[str]:
    """The nodes of the endpoints that get calls."""
    slices = cluster.get("endpointslices", SYSTEM, "--selector=kubernetes.io/service-name=slicewarden")["items"]
    endpoints = [each for found in slices for each in found["endpoints"] or ()]
    return [each["nodeName"] for each in endpoints if each["conditions"]["ready"]]


def test_three_replicas_are_behind_the_service_and_audit_mode_lets_everything_in(installed: Cluster) -> None:
    # Pods are ready before the slices say so, and the proxy leads there later still: until then nobody is asked.
    assert eventually(lambda: nodes_behind_the_service(installed) == ["worker"] * 3), nodes_behind_the_service(
        installed
    )
    assert len(installed.get("pods", SYSTEM, OURS)["items"]) == 3

    def judged() -> bool:
        assert admits(installed)
        return '"would":"deny"' in installed.do("logs", SYSTEM, OURS, "--tail=-1").replace(" ", "")

    assert eventually(judged)


def test_from_audit_to_enforce_to_another_policy_and_back_none_is_judged_wrongly(
    installed: Cluster, page: Callable[[str], str], clone: Path
) -> None:
    page(f"helm upgrade{UPGRADE}")
    page("kubectl rollout status deployment/slicewarden --namespace slicewarden-system")
    assert eventually(partial(all_ready, installed), 120)
    assert not admits(installed)

    first = mounted(installed)
    policy = clone / "policy.yaml"
    policy.write_text(policy.read_text("utf-8").replace("maxReplicas: 8", "maxReplicas: 4"), "utf-8")
    with stream(installed):
        page(f"slicewarden registration --policy policy.yaml > registration.yaml\nhelm upgrade{UPGRADE}")
        second = mounted(installed)
        assert second != first
        assert policies(installed) == {first, second}  # a pod that still judges by the first may have to start again
        page("kubectl rollout status deployment/slicewarden --namespace slicewarden-system")
        assert eventually(partial(all_ready, installed), 120)
        page(ROLLBACK)
        assert mounted(installed) == first
        assert eventually(partial(all_ready, installed), 120)
    assert page("slicewarden registration --policy manifests/chart/files/policy.yaml --check --live")
