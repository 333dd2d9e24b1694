"""The README of the manifests, command by command, in a cluster of its own; KWOK pretends that its pods run."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chart import helm
from tests.e2e import control_plane
from tests.e2e.access import served
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.guard import MANIFESTS
from tests.e2e.objects import Object, pod
from tests.support.go_programs import Missing
from tests.support.manifests import commands

ROOT = MANIFESTS.parent
BLOCKS = commands()
SYSTEM = "--namespace=slicewarden-system"


@pytest.fixture(scope="module")
def cluster(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with control_plane.running(tmp_path_factory.mktemp("install"), programs) as started:
        started.add_nodes()
        started.add_namespace("gpu-operator")
        yield started


Sh = Callable[[str], str]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the commands read and write, with the reader's own `policy.yaml` in its top folder."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copyfile(ROOT / "policies" / "sample.yaml", folder / "policy.yaml")
    return folder


@pytest.fixture(scope="module")
def sh(cluster: Cluster, checkout: Path) -> Sh:
    """Run commands as a reader would, with this repository's `slicewarden`."""
    try:
        programs = f"{Path(sys.executable).parent}:{cluster.binaries}:{helm.find().parent}"
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.kubeconfig()),
        "PYTHONPATH": str(ROOT),
        "HOME": str(checkout),
    }

    def sh(commands: str) -> str:
        # No container runs here: what the Job would do is done in its place.
        commands = re.sub(
            r"^kubectl create job .*\nkubectl wait job/.*$", "slicewarden certs keep", commands, flags=re.M
        )
        script = f'slicewarden() {{ python -m webhook "$@"; }}\n{commands}'
        command = ["bash", "-euo", "pipefail", "-c", script]
        made = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        return made.stdout

    return sh


def deployment(cluster: Cluster) -> Object:
    found: Object = cluster.get("deployment", "slicewarden", SYSTEM)
    return found


def arguments(cluster: Cluster) -> list[str]:
    (container,) = deployment(cluster)["spec"]["template"]["spec"]["containers"]
    return list(container["args"])


def policy_name(cluster: Cluster) -> str:
    (name,) = (
        each["configMap"]["name"]
        for each in deployment(cluster)["spec"]["template"]["spec"]["volumes"]
        if each["name"] == "policy"
    )
    return str(name)


def pods(cluster: Cluster) -> list[Object]:
    return [each for each in cluster.get("pods", SYSTEM)["items"] if "deletionTimestamp" not in each["metadata"]]


def hooks(cluster: Cluster) -> list[Object]:
    found = cluster.get("mutatingwebhookconfigurations,validatingwebhookconfigurations")["items"]
    return [hook for each in found for hook in each.get("webhooks", ())]


def refused(cluster: Cluster) -> bool:
    """Whether a GPU pod waits for a webhook, of which there is none here."""
    made = cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(pod("probe", "default")))
    return "failed calling webhook" in made.stderr


def test_the_readme_has_these_commands() -> None:
    assert {heading: len(blocks) for heading, blocks in BLOCKS.items() if blocks} == {
        "# Install it": 2,
        "Put your policy in": 1,
        "In this order": 2,
        "With Helm": 3,
        "Upgrade it, or change the policy": 1,
        "In an emergency": 1,
        "Remove it": 2,
        "Replicas and rights": 1,
    }


def test_installing_starts_with_ones_own_policy(sh: Sh, checkout: Path) -> None:
    """It is the sample with another taint, and the registration is made from it."""
    policy, registration = checkout / "policy.yaml", checkout / "policies" / "registration.yaml"
    policy.write_text(policy.read_text("utf-8").replace("slicewarden.dev/pool", "nvidia.com/gpu"), "utf-8")
    sh(BLOCKS["Put your policy in"][0])
    assert "slicewarden.dev/pool" not in registration.read_text("utf-8")


def test_the_first_installation_only_records(cluster: Cluster, sh: Sh) -> None:
    sh(BLOCKS["In this order"][0])
    sh("slicewarden registration --policy policies --check --live")
    assert "--audit-only" in arguments(cluster)
    assert "key: nvidia.com/gpu" in cluster.get("configmap", policy_name(cluster), SYSTEM)["data"]["policy.yaml"]
    assert {hook["failurePolicy"] for hook in hooks(cluster)} == {"Ignore"}
    assert all(hook["clientConfig"]["caBundle"] for hook in hooks(cluster))
    assert not refused(cluster)


def test_pod_security_admits_the_pods(cluster: Cluster) -> None:
    """The namespace enforces `restricted`; a pod that is less than that is refused in it."""
    labels = cluster.get("namespace", "slicewarden-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert len(pods(cluster)) == deployment(cluster)["spec"]["replicas"] == 3
    breaches: list[Object] = [{"hostNetwork": True}, {"securityContext": {}}, {}]
    for breach in breaches:
        spec = {**deployment(cluster)["spec"]["template"]["spec"], **breach}
        metadata = {"name": "tried", "namespace": "slicewarden-system"}
        tried = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        made = cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=tried)
        assert ('violates PodSecurity "restricted:' in made.stderr) == bool(breach)
        assert (made.returncode == 0) != bool(breach)


def test_no_pod_runs_where_gpus_are(cluster: Cluster) -> None:
    gpus = {
        each["metadata"]["name"]
        for each in cluster.get("nodes")["items"]
        if each["metadata"]["labels"].get("nvidia.com/gpu.present") == "true"
    }
    assert gpus
    assert gpus.isdisjoint(each["spec"]["nodeName"] for each in pods(cluster))
    # Where nothing is tainted either.
    bare = {"metadata": {"name": "tried", "namespace": "slicewarden-system"}, "apiVersion": "v1", "kind": "Pod"}
    spec = deployment(cluster)["spec"]["template"]["spec"]
    everywhere = {**spec, "tolerations": [{"operator": "Exists"}], "nodeSelector": {"nvidia.com/gpu.present": "true"}}
    assert cluster.apply({**bare, "spec": everywhere}).returncode == 0

    def unschedulable() -> bool:
        conditions = cluster.get("pod", "tried", SYSTEM).get("status", {}).get("conditions", [])
        return "Unschedulable" in [each.get("reason") for each in conditions]

    assert eventually(unschedulable)
    cluster.do("delete", "pod", "tried", SYSTEM, "--wait=false")


def test_a_drain_takes_one_at_a_time(cluster: Cluster) -> None:
    def allowed() -> bool:
        budget = cluster.get("poddisruptionbudget", "slicewarden", SYSTEM)
        return bool(budget.get("status", {}).get("disruptionsAllowed") == 1)

    assert eventually(allowed)


def test_the_quota_counts_the_webhooks_pods(cluster: Cluster) -> None:
    def used() -> bool:
        status = cluster.get("resourcequota", "slicewarden", SYSTEM).get("status", {})
        return bool(status.get("used") == {"pods": "3"})

    assert eventually(used)


def test_the_next_step_enforces_the_policy(cluster: Cluster, sh: Sh) -> None:
    before = policy_name(cluster)
    sh(BLOCKS["In this order"][1])
    assert policy_name(cluster) == before
    assert "--audit-only" not in arguments(cluster)
    assert {hook["failurePolicy"] for hook in hooks(cluster)} == {"Fail", "Ignore"}
    assert all(hook["clientConfig"]["caBundle"] for hook in hooks(cluster))
    assert eventually(lambda: refused(cluster))


def change() -> str:
    """The page's commands for a changed policy, but for the judgement of the reader's own manifests."""
    (block,) = BLOCKS["Upgrade it, or change the policy"]
    check, *commands = block.splitlines()
    assert check.startswith("slicewarden check ")
    # What there is to see is told by a status of 1.
    return "\n".join(f"{each} || test $? = 1" if "diff" in each else each for each in commands)


def test_a_change_of_policy_is_a_rollout_and_can_be_undone(cluster: Cluster, sh: Sh, checkout: Path) -> None:
    before, revision = policy_name(cluster), deployment(cluster)["metadata"]["annotations"]
    policy = checkout / "policy.yaml"
    policy.write_text(policy.read_text("utf-8").replace("maxReplicas: 8", "maxReplicas: 4"), "utf-8")
    assert "registration is stale" in sh(
        "slicewarden registration --policy policy.yaml --check --live 2>&1 || test $? = 1"
    )
    sh(change())
    after = policy_name(cluster)
    assert after != before
    assert "maxReplicas: 4" in cluster.get("configmap", after, SYSTEM)["data"]["policy.yaml"]
    assert deployment(cluster)["metadata"]["annotations"] != revision
    (undo,) = re.findall(r"`(kubectl rollout undo [^`]*)`", (MANIFESTS / "README.md").read_text("utf-8"))
    sh(f"{undo}\nkubectl rollout status deployment/slicewarden {SYSTEM}")
    assert policy_name(cluster) == before


def test_a_webhook_that_a_change_of_policy_adds_is_trusted_as_the_others_are(
    cluster: Cluster, sh: Sh, checkout: Path
) -> None:
    before = {hook["name"]: hook["clientConfig"]["caBundle"] for hook in hooks(cluster)}
    policy, grant = checkout / "policy.yaml", "      - {namespaces: [team], users: [alice]}\n"
    policy.write_text(policy.read_text("utf-8").replace("    grants:\n", f"    grants:\n{grant}"), "utf-8")
    sh(change())
    after = {hook["name"]: hook["clientConfig"].get("caBundle") for hook in hooks(cluster)}
    assert after.keys() - before.keys() == {"revisions.slicewarden.dev"}
    assert {*after.values()} == {*before.values()}


def test_one_command_disables_the_webhook_and_another_removes_it(cluster: Cluster, sh: Sh) -> None:
    sh(BLOCKS["In an emergency"][0])
    assert hooks(cluster) == []
    assert eventually(lambda: not refused(cluster))
    sh(BLOCKS["Remove it"][0])
    assert gone(cluster)


def gone(cluster: Cluster) -> bool:
    """Whether nothing with our label is left, and not the namespace."""
    kinds = "clusterroles,clusterrolebindings,roles,rolebindings"
    left = cluster.get(kinds, "--all-namespaces", "-l=app.kubernetes.io/part-of=slicewarden")["items"]
    return not left and eventually(lambda: cluster.kubectl("get", "namespace", "slicewarden-system").returncode != 0)


def test_helm_installs_it_as_well(cluster: Cluster, sh: Sh) -> None:
    """Without a policy nothing is judged; tests/chart compares what it installs with what test_controller applies."""
    install, *policy = BLOCKS["With Helm"][0].splitlines()
    sh(install)
    assert hooks(cluster) == []
    assert eventually(lambda: len(pods(cluster)) == 5)
    served(cluster, "gpusharingpolicies.slicewarden.dev")
    sh(policy[0])
    upgrade, back = BLOCKS["With Helm"][1:]
    sh(upgrade.strip() + " --set replicas=4")
    assert deployment(cluster)["spec"]["replicas"] == 4
    sh(back)
    assert deployment(cluster)["spec"]["replicas"] == 3
    sh(BLOCKS["Remove it"][1])
    assert gone(cluster)
    assert [each["metadata"]["name"] for each in cluster.get("gpusharingpolicies")["items"]] == ["sample"]
