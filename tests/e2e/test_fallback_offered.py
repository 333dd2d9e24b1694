"""An API server gets a whole fallback or none, whatever it knows: `fallback --live`, and the way by kubectl."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import control_plane
from tests.e2e.control_plane import Cluster
from tests.e2e.guard import MANIFESTS
from tests.support.policies import POLICY
from webhook.cli import main as cli
from webhook.controller import fallback
from webhook.fallback.needs import calling

ROOT = MANIFESTS.parent
POLICIES, BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def alone(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with the installation, and nobody who fills it."""
    with control_plane.serving(tmp_path_factory.mktemp("offered"), programs) as cluster:
        cluster.do("apply", "--filename=-", stdin=cluster.do("kustomize", str(MANIFESTS / "controller")))
        yield cluster


def taken(cluster: Cluster, *, policies: str) -> bool:
    """Whether the API server accepts all policies of a fallback in a dry run of kubectl."""
    return cluster.kubectl("apply", "--dry-run=server", "--filename=-", stdin=policies).returncode == 0


def test_the_installed_fallback_is_empty_and_applied_again_without_a_change(alone: Cluster) -> None:
    found = {each["metadata"]["name"]: each for each in alone.get(POLICIES)["items"]}
    assert set(fallback.NAMES) < found.keys()
    assert not any(found[name]["spec"].get("validations") for name in fallback.NAMES)
    assert set(fallback.NAMES) < {each["metadata"]["name"] for each in alone.get(BINDINGS)["items"]}


@pytest.mark.parametrize(
    "file", [POLICY, *sorted((ROOT / "policies").glob("*/policy.yaml"))], ids=lambda file: file.parent.name
)
def test_it_prints_all_or_nothing_as_kubectl_would_say(
    alone: Cluster, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fallback", "--policy", str(file), "--actions", "ByRule"]
    assert cli.main(command) == 0
    printed = capsys.readouterr().out
    before = alone.get(POLICIES)["items"]
    status = cli.main([*command, "--live", "--kubeconfig", str(alone.kubeconfig())])
    said = capsys.readouterr()
    if taken(alone, policies=printed):
        assert (status, said.out) == (0, printed)
    else:
        assert (status, said.out) == (2, "")
        assert "so nothing is printed; it lacks CEL functions that Kubernetes 1.35 has: " in said.err
    assert alone.get(POLICIES)["items"] == before


def test_the_question_of_the_controller_has_the_answer_of_the_whole_fallback(
    alone: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked as the controller asks, of each policy that is installed."""
    assert cli.main(["fallback", "--policy", str(POLICY), "--actions", "ByRule"]) == 0
    accepted = taken(alone, policies=capsys.readouterr().out)
    for name in fallback.NAMES:
        asked = calling({"kind": fallback.KIND, "metadata": {"name": name}})
        apply = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--filename=-")
        made = alone.kubectl(*apply, "--field-manager=slicewarden-controller", stdin=json.dumps(asked))
        assert (made.returncode == 0) is accepted, made.stderr


def test_a_mutating_fallback_is_printed_where_the_api_server_mutates(
    alone: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    served = json.loads(alone.do("get", "--raw=/apis/admissionregistration.k8s.io/v1"))["resources"]
    command = ["fallback", "--policy", str(POLICY), "--mutate", "--live", "--kubeconfig", str(alone.kubeconfig())]
    status = cli.main(command)
    said = capsys.readouterr()
    if "mutatingadmissionpolicies" in {each["name"] for each in served}:
        assert (status, "kind: MutatingAdmissionPolicy\n" in said.out) == (0, True)
    else:
        assert (status, said.out) == (2, "")
