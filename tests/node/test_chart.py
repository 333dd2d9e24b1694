"""The chart by a real Helm on a real cluster, by the commands of its page: from the installation to the end of it."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node.conftest import Sh
from tests.node.replicas import BAD, CREATE, OURS, SYSTEM, all_ready, change, stream
from tests.support import policies
from tests.support.manifests import NAMED, commands

KINDS = (
    "clusterroles", "clusterrolebindings", "roles", "rolebindings", "configmaps", "secrets",
    "mutatingwebhookconfigurations", "validatingwebhookconfigurations",
    "validatingadmissionpolicies", "validatingadmissionpolicybindings",
)  # fmt: skip
"""The kinds of objects that an uninstallation might leave behind."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the manifests and a policy of its reader's, which is the sample."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "manifests").symlink_to(ROOT / "manifests")
    (folder / "policy.yaml").write_text(policies.sample(), "utf-8")
    return folder


@pytest.fixture(scope="module")
def page(sh: Sh, clone: Path) -> Callable[[str], str]:
    """Run some of the page's commands, with the image that is there."""

    def page(text: str) -> str:
        return sh(text.replace(NAMED, "slicewarden:0.1.0"), clone)

    return page


INSTALL, UPGRADE, ROLLBACK = commands()["With Helm"]
READY = INSTALL.splitlines()[-1]


@pytest.fixture(scope="module")
def installed(labelled: Cluster, page: Callable[[str], str]) -> Iterator[Cluster]:
    """The cluster with the chart and a policy that only records, until the tests here are done."""
    page(INSTALL)
    yield labelled
    page(commands()["Remove it"][1])
    labelled.do("delete", "crd", "gpusharingpolicies.slicewarden.dev")
    ours = (",".join(KINDS), "--all-namespaces", "--selector=app.kubernetes.io/part-of=slicewarden")
    assert eventually(lambda: labelled.get(*ours)["items"] == []), labelled.get(*ours)["items"]


def admits(cluster: Cluster) -> bool:
    return cluster.kubectl(*CREATE, stdin=json.dumps(BAD)).returncode == 0


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


ENFORCE = ("\nspec:\n  trust:", "\nspec:\n  mode: Enforce\n  trust:")


def put_in(page: Callable[[str], str], clone: Path, old: str, new: str) -> None:
    """Change the policy of the page's reader; where it was changed before, it stays as it is."""
    policy = clone / "policy.yaml"
    policy.write_text(policy.read_text("utf-8").replace(old, new, 1), "utf-8")
    page(f"kubectl apply -f policy.yaml\n{READY}")


def test_from_audit_to_enforce_to_another_policy_and_another_release_none_is_judged_wrongly(
    installed: Cluster, page: Callable[[str], str], clone: Path
) -> None:
    put_in(page, clone, *ENFORCE)
    assert not admits(installed)
    with stream(installed):
        put_in(page, clone, "maxReplicas: 8", "maxReplicas: 4")
    with stream(installed):
        page(f"{UPGRADE.strip()} --set resources.requests.cpu=200m")
        assert eventually(partial(all_ready, installed), 120)
        page(ROLLBACK)
        assert eventually(partial(all_ready, installed), 120)
        page(READY)


def test_an_upgrade_from_the_release_before_and_a_rollback_judge_no_pod_wrongly(
    installed: Cluster, page: Callable[[str], str], sh: Sh, clone: Path, older: Path
) -> None:
    put_in(page, clone, *ENFORCE)
    releases = (
        (partial(sh, UPGRADE.replace(NAMED, "slicewarden:before"), older), "slicewarden:before", older),
        (partial(page, UPGRADE), "slicewarden:0.1.0", ROOT),
        (partial(page, ROLLBACK), "slicewarden:before", older),
    )
    for put, image, release in releases:
        change(installed, put, partial(page, READY), image, release)
