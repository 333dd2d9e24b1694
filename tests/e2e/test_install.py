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
from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.guard import MANIFESTS
from tests.e2e.objects import Object, pod
from tests.support import policies
from tests.support.go_programs import Missing
from tests.support.manifests import commands
from tests.support.policies import policy_of
from webhook.engine import filled
from webhook.engine.paths import Name
from webhook.engine.paths import Path as EnginePath

ROOT = MANIFESTS.parent
BLOCKS = commands()
SYSTEM = "--namespace=slicewarden-system"
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:slicewarden-system")
CONTROLLER = User("system:serviceaccount:slicewarden-system:slicewarden-controller", GROUPS)


@pytest.fixture(scope="module")
def cluster(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with control_plane.running(tmp_path_factory.mktemp("install"), programs) as started:
        started.add_nodes()
        yield started


@pytest.fixture(scope="module", autouse=True)
def others(cluster: Cluster) -> frozenset[str]:
    """The objects of the cluster before anything is installed."""
    return frozenset(objects(cluster))


PASSING = {
    "events",
    "events.events.k8s.io",
    "leases.coordination.k8s.io",
    "nodes.metrics.k8s.io",
    "pods.metrics.k8s.io",
}
"""Kinds whose objects come and go by themselves, or are measurements."""


def objects(cluster: Cluster) -> set[str]:
    """The kind, namespace and name of each object of each kind that can be listed and deleted."""
    kinds = set(cluster.do("api-resources", "--verbs=list,delete", "--output=name").split()) - PASSING
    line = '{range .items[*]}{.kind}{" "}{.metadata.namespace}{" "}{.metadata.name}{"\\n"}{end}'
    listed = cluster.do("get", ",".join(sorted(kinds)), "--all-namespaces", f"--output=jsonpath={line}")
    return set(listed.splitlines())


Sh = Callable[[str], str]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the commands read and write, with the reader's own `policy.yaml` in its top folder.

    It is the sample, with the right to read what it names.
    """
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "policy.yaml").write_text(policies.sample(), "utf-8")
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
        "# Install it": 3,
        "Two commands": 2,
        "With Helm": 3,
        "In an emergency": 1,
        "Remove it": 2,
        "Replicas and rights": 1,
        "Who may do what": 1,
    }


def reads(cluster: Cluster, namespace: str) -> set[str]:
    """Which of our accounts may list the ConfigMaps of a namespace."""
    found = set()
    for name in ("slicewarden", "slicewarden-controller"):
        user = User(f"system:serviceaccount:slicewarden-system:{name}", GROUPS)
        made = cluster.kubectl("auth", "can-i", "list", "configmaps", f"--namespace={namespace}", user=user)
        found |= {name} if made.stdout.strip() == "yes" else set()
    return found


def test_two_commands_install_it_where_there_is_no_operator(cluster: Cluster, sh: Sh) -> None:
    """Nothing is created in a namespace that does not exist."""
    install, policy = BLOCKS["Two commands"]
    apply, _ = policy.splitlines()
    sh(install)
    served(cluster, "gpusharingpolicies.slicewarden.dev")
    sh("slicewarden facts --live > own.json; slicewarden policy init --facts own.json > own.yaml")
    sh(apply.replace("policy.yaml", "own.yaml"))
    sh("kubectl delete -f own.yaml")


def test_two_commands_install_it_and_nothing_is_judged_before_the_controller_works(cluster: Cluster, sh: Sh) -> None:
    """No container runs here; test_controller has one that does, on what install.yaml is compared with."""
    install, policy = BLOCKS["Two commands"]
    sh("kubectl create namespace gpu-operator")
    sh(install)
    apply, wait = policy.splitlines()
    assert reads(cluster, "gpu-operator") == set()
    assert wait.startswith("kubectl wait ")
    sh(apply)
    assert eventually(lambda: reads(cluster, "gpu-operator") == {"slicewarden", "slicewarden-controller"})
    assert reads(cluster, "default") == set()
    sh("kubectl delete -f policies/sharing.yaml")
    assert eventually(lambda: reads(cluster, "gpu-operator") == set())
    sh(BLOCKS["Who may do what"][0])
    assert eventually(lambda: reads(cluster, "gpu-operator") == {"slicewarden", "slicewarden-controller"})
    assert [each["metadata"]["name"] for each in cluster.get("gpusharingpolicies")["items"]] == ["sample"]
    assert hooks(cluster) == []
    assert not refused(cluster)
    assert "--revisions" in arguments(cluster)


def test_pod_security_admits_the_pods(cluster: Cluster) -> None:
    """The namespace enforces `restricted`; a pod that is less than that is refused in it."""
    labels = cluster.get("namespace", "slicewarden-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert deployment(cluster)["spec"]["replicas"] == 3
    assert eventually(lambda: len(pods(cluster)) == 5)
    breaches: list[Object] = [{"hostNetwork": True}, {"securityContext": {}}, {}]
    for breach in breaches:
        spec = {**deployment(cluster)["spec"]["template"]["spec"], **breach}
        metadata = {"name": "tried", "namespace": "slicewarden-system"}
        tried = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        made = cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=tried)
        assert ('violates PodSecurity "restricted:' in made.stderr) == bool(breach)
        assert (made.returncode == 0) != bool(breach)


def test_a_pod_runs_where_gpus_are_only_if_no_other_node_takes_it(cluster: Cluster) -> None:
    gpus = {
        each["metadata"]["name"]
        for each in cluster.get("nodes")["items"]
        if each["metadata"]["labels"].get("nvidia.com/gpu.present") == "true"
    }
    assert gpus
    assert gpus.isdisjoint(each["spec"]["nodeName"] for each in pods(cluster))
    # A cluster whose only node has GPUs runs it there.
    bare = {"metadata": {"name": "tried", "namespace": "slicewarden-system"}, "apiVersion": "v1", "kind": "Pod"}
    spec = deployment(cluster)["spec"]["template"]["spec"]
    only = {**spec, "tolerations": [{"operator": "Exists"}], "nodeSelector": {"nvidia.com/gpu.present": "true"}}
    assert cluster.apply({**bare, "spec": only}).returncode == 0
    assert cluster.node_of("tried", "slicewarden-system") in gpus
    cluster.do("delete", "pod", "tried", SYSTEM, "--wait=false")


def test_a_drain_takes_one_at_a_time(cluster: Cluster) -> None:
    def allowed() -> bool:
        budget = cluster.get("poddisruptionbudget", "slicewarden", SYSTEM)
        return bool(budget.get("status", {}).get("disruptionsAllowed") == 1)

    assert eventually(allowed)


def test_the_quota_counts_the_webhooks_pods(cluster: Cluster) -> None:
    def used() -> bool:
        status = cluster.get("resourcequota", "slicewarden", SYSTEM).get("status", {})
        return bool(status.get("used") == {"pods": "5"})

    assert eventually(used)


def test_one_command_removes_the_registration_and_others_the_rest(
    cluster: Cluster, sh: Sh, others: frozenset[str]
) -> None:
    sh(BLOCKS["In an emergency"][0])
    ours = ("mutatingwebhookconfigurations,validatingwebhookconfigurations", "-l=app.kubernetes.io/part-of=slicewarden")
    assert cluster.get(*ours)["items"] == []
    sh(BLOCKS["Remove it"][0])
    assert eventually(lambda: not left(cluster, others)), left(cluster, others)


WITHOUT = commands("docs/without-controller.md")


def test_without_the_controller_the_policy_is_a_file_and_the_registration_is_written_by_hand(
    cluster: Cluster, sh: Sh, checkout: Path, others: frozenset[str]
) -> None:
    """With another taint; the webhook of the overlay is asked in test_manifests."""
    policy = checkout / "policy.yaml"
    policy.write_text(policy.read_text("utf-8").replace("slicewarden.dev/pool", "nvidia.com/gpu"), "utf-8")
    sh(WITHOUT["Install it"][0])
    assert "--policy" in arguments(cluster)
    assert all(hook["clientConfig"]["caBundle"] for hook in hooks(cluster))
    assert eventually(lambda: refused(cluster))
    assert "slicewarden.dev/pool" not in json.dumps(hooks(cluster))
    mounted = "--output=jsonpath={.spec.template.spec.volumes[*].configMap.name}"
    before = cluster.do("get", "deployment", "slicewarden", SYSTEM, mounted)

    grant = "      - {namespaces: [team], users: [alice]}\n"
    policy.write_text(policy.read_text("utf-8").replace("    grants:\n", f"    grants:\n{grant}"), "utf-8")
    stale = sh("slicewarden registration --policy policy.yaml --check --live 2>&1 || test $? = 1")
    assert "registration is stale" in stale
    sh(WITHOUT["Change the policy, or the release"][0])
    assert "revisions.slicewarden.dev" in {hook["name"] for hook in hooks(cluster)}
    assert len({hook["clientConfig"]["caBundle"] for hook in hooks(cluster)}) == 1
    assert cluster.do("get", "deployment", "slicewarden", SYSTEM, mounted) != before
    sh(WITHOUT["Renew the certificate"][0])
    sh(BLOCKS["In an emergency"][0])  # no replica answers here, and the webhook would be asked about the agent's policy
    sh("kubectl create namespace slicewarden-node")
    sh(WITHOUT["The fallback and the agent"][0])
    sh("kubectl delete namespace slicewarden-node")
    sh("kubectl delete --ignore-not-found -k manifests/overlays/file")
    assert eventually(lambda: not left(cluster, others)), left(cluster, others)


def left(cluster: Cluster, others: frozenset[str]) -> set[str]:
    """The objects that were not there before, but for those that these tests have made themselves."""
    return {each for each in objects(cluster) - others if not OWN.search(each)}


OWN = re.compile(r" (team|slicewarden-node|gpu-operator)( |$)")


def fill(cluster: Cluster) -> None:
    """Register what the controller registers, as its account, and then no controller is there any more."""
    policy = policy_of(ROOT / "policies" / "sample.yaml")
    for half, kind in (("mutate", "MutatingWebhookConfiguration"), ("validate", "ValidatingWebhookConfiguration")):
        path = EnginePath(half, (Name(policy.digest),))
        value: Object = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind}
        value["metadata"] = {"name": "slicewarden"}
        value["webhooks"] = filled.webhooks(path, {policy.digest: policy}, "")
        apply = ("apply", "--server-side", "--field-manager=slicewarden-controller", "--filename=-")
        cluster.do(*apply, stdin=json.dumps(value), user=CONTROLLER)


KEPT_BY_HELM = {
    "APIService  v1alpha1.slicewarden.dev",
    "CustomResourceDefinition  gpusharingpolicies.slicewarden.dev",
    "GPUSharingPolicy  sample",
}
"""Helm deletes no kind of a chart's crds/, so the policies stay; the README says how to delete them."""


def test_helm_installs_it_as_well_and_removes_all_where_the_controller_is_dead(
    cluster: Cluster, sh: Sh, others: frozenset[str]
) -> None:
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
    fill(cluster)
    assert eventually(lambda: refused(cluster))
    sh(BLOCKS["Remove it"][1])
    assert hooks(cluster) == []
    assert eventually(lambda: not refused(cluster))
    assert eventually(lambda: left(cluster, others) == KEPT_BY_HELM), left(cluster, others)
