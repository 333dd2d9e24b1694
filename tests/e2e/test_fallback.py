"""The fallback on a real API server: no webhook answers, and what it would have denied is denied all the same."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.e2e import control_plane
from tests.e2e.access import refusal
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.objects import TRUSTED, Object, pod
from tests.e2e.with_fallback import CREATE, FACTS_OF, FLAGS, TENANT, prepare
from tests.evaluator.evaluator import request_for
from tests.support.fixtures import FILES, FIXTURES, fixture
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api import jsonpatch
from webhook.api.admission import decode, wrap
from webhook.cli import main as cli
from webhook.documents import goyaml_writer
from webhook.engine.engine import Engine
from webhook.engine.registration import NAME, configurations
from webhook.fallback.answers import ValidationActions
from webhook.fallback.policies import fallback, static

PASSED = json.loads((ROOT / "tests" / "evaluator" / "missed.json").read_text("utf-8"))["let pass"]
POLICIES = "validatingadmissionpolicies"


@pytest.fixture(scope="module")
def with_fallback(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with the fallback of the sample policy, and the registration of a webhook that is not there."""
    with control_plane.serving(tmp_path_factory.mktemp("fallback"), programs, flags=FLAGS) as cluster:
        prepare(cluster)
        assert cluster.apply(*fallback(policy_of(POLICY), rules.walk(), ValidationActions.DENY)).returncode == 0
        assert eventually(partial(holds, cluster))
        yield cluster


def holds(cluster: Cluster) -> bool:
    """Tell whether the fallback denies a pod that the webhook did not steer."""
    return (
        "ValidatingAdmissionPolicy 'slicewarden-pods"
        in cluster.kubectl(*CREATE, user=TENANT, stdin=json.dumps(pod("a", "visitors"))).stderr
    )


def of_rules() -> Iterator[tuple[str, Any, bool]]:
    """The pods of the fixtures that the sample policy judges, as /mutate leaves them, and whether all rules allow."""
    engine = Engine(policy_of(POLICY), rules.walk())
    for file in FILES:
        item = fixture(file)[0].value
        if (FIXTURES / file.parent.name / "policy.yaml").exists() or item["kind"] != "Pod":
            continue
        name = f"{file.parent.name}/{file.stem}"
        item = request_for(item)["object"]
        item["metadata"].pop("generateName", None)
        item["metadata"]["name"] = f"p-{abs(hash(name)):x}"
        verdict = engine.judge(decode(wrap(item)), FACTS_OF)
        yield name, jsonpatch.apply(item, verdict.patch), verdict.allowed


def created(cluster: Cluster, pods: list[Object]) -> tuple[set[str], set[str]]:
    """Create pods for show; return the names of those that were created, and of those that the fallback denied."""
    items = {"apiVersion": "v1", "kind": "List", "items": pods}
    done = cluster.kubectl(*CREATE, "--validate=false", "--output=name", user=TENANT, stdin=json.dumps(items))
    made = {line.removeprefix("pod/") for line in done.stdout.splitlines()}
    by_fallback = re.findall(r"pods \"(.*?)\" is forbidden: ValidatingAdmissionPolicy 'slicewarden-pods'", done.stderr)
    return made, set(by_fallback)


def test_what_the_webhook_allows_is_created_and_the_rest_is_not(with_fallback: Cluster) -> None:
    pods = list(of_rules())
    made, by_fallback = set[str](), set[str]()

    def in_force() -> bool:  # the policies of one fallback come into force one after the other
        nonlocal made, by_fallback
        made, by_fallback = created(with_fallback, [item for _, item, _ in pods])
        return {name for name, item, allowed in pods if not allowed and item["metadata"]["name"] in made} <= {*PASSED}

    assert eventually(in_force), made
    print(f"{len(pods)} pods, {len(made)} created, {len(by_fallback)} denied by the fallback")
    assert not {name for name, item, allowed in pods if allowed and item["metadata"]["name"] in by_fallback}
    assert len(made) > 150
    assert len(by_fallback) > 150


def changed(**changes: Any) -> Object:
    """A pod that is allowed, with changes of its first container (`container`) and of itself."""
    item = next(item for name, item, fine in of_rules() if fine and name == "unsteered-pod/patch-trusted")
    container, *others = item["spec"]["containers"]
    container = {**container, "name": "main", "env": [*container.get("env", ()), *changes.pop("env", ())]}
    container["volumeMounts"] = changes.pop("volumeMounts", [])
    return {**item, "spec": {**item["spec"], "containers": [container, *others], **changes}}


def test_a_message_names_the_rule_the_field_and_the_way_out(with_fallback: Cluster) -> None:
    device: Object = {"name": "d", "mountPath": "/var/run/nvidia-container-devices/all"}
    tried: dict[str, Object] = {
        "broad-toleration: spec.tolerations: a toleration without a key": changed(tolerations=[{"operator": "Exists"}]),
        "host-namespaces: spec.hostPID: hostPID or hostIPC lets": changed(hostPID=True),
        "device-mount: container main: a mount requests GPUs": changed(
            volumeMounts=[device], volumes=[{"name": "d", "emptyDir": {}}]
        ),
        "visible-devices: container main: env NVIDIA_VISIBLE_DEVICES: a variable such as": changed(
            env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        ),
    }
    for says, item in tried.items():
        said = with_fallback.kubectl(*CREATE, user=TENANT, stdin=json.dumps(item)).stderr
        assert says in said
        assert "; remove it" in said or "; name the keys" in said


def test_it_holds_when_an_administrator_deletes_the_registration(with_fallback: Cluster) -> None:
    for each in configurations(policy_of(POLICY)):
        for hook in each["webhooks"]:
            hook["clientConfig"] = {"url": f"https://127.0.0.1:9{hook['clientConfig']['service']['path']}"}
        assert with_fallback.apply(each).returncode == 0
    webhooks = "failed calling webhook"
    steered = next(item for name, item, fine in of_rules() if fine and name == "unsteered-pod/patch-trusted")
    asks = ("create", "--dry-run=server", "--filename=-")
    assert eventually(lambda: webhooks in with_fallback.kubectl(*asks, user=TENANT, stdin=json.dumps(steered)).stderr)
    for half in ("mutating", "validating"):
        with_fallback.do("delete", f"{half}webhookconfiguration", NAME)
    assert eventually(lambda: with_fallback.kubectl(*asks, user=TENANT, stdin=json.dumps(steered)).returncode == 0)
    assert holds(with_fallback)


def test_the_command_says_whether_the_fallback_is_current(
    with_fallback: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    asks = ["fallback", "--policy", str(POLICY), "--check", "--live", "--kubeconfig", str(with_fallback.kubeconfig())]
    assert cli.main(asks) == 0, capsys.readouterr().out
    with_fallback.do("delete", f"{POLICIES}.admissionregistration.k8s.io", "slicewarden-bindings")
    assert cli.main(asks) == 1
    assert "the cluster: slicewarden-bindings: is missing\n" in capsys.readouterr().out
    assert with_fallback.apply(*fallback(policy_of(POLICY), rules.walk())).returncode == 0


def test_labels_bindings_and_updates_are_held_too(with_fallback: Cluster) -> None:
    cluster = with_fallback

    def said(*words: str) -> str:
        return cluster.kubectl(*words, user=TENANT).stderr

    label = ("label", "namespace", "visitors", "slicewarden.dev/trust=trusted", "--dry-run=server")
    # Each policy of a fallback comes into force at its own time.
    assert eventually(lambda: "self-granted-trust: " in said(*label))
    cluster.do(*label)
    node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {}}}
    assert cluster.apply(node).returncode == 0
    moves = ("label", "node", "n", "nvidia.com/gpu.sharing-strategy=time-slicing", "--dry-run=server")
    assert eventually(lambda: "relabelled-node: from pool none to pool shared: " in said(*moves))
    cluster.do("label", "node", "n", "zone=a", "--dry-run=server", user=TENANT)
    assert cluster.apply(pod("plain", "visitors", limits={})).returncode == 0
    at = ("pod", "plain", "--namespace=visitors", "--dry-run=server")
    assert eventually(lambda: "changed-trust: " in said("annotate", *at, "slicewarden.dev/trust=trusted"))
    cluster.do("annotate", *at, "a=b", user=TENANT)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "plain", "namespace": "visitors", "annotations": TRUSTED},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }
    raw = ("create", "--raw=/api/v1/namespaces/visitors/pods/plain/binding?dryRun=All", "--filename=-")

    def refused() -> bool:
        return "foreign-binding: " in cluster.kubectl(*raw, user=TENANT, stdin=json.dumps(binding)).stderr

    assert eventually(refused)


def test_files_hold_that_nobody_deletes_by_the_api(programs: Path, tmp_path: Path) -> None:
    folder, policy = tmp_path / "policies", policy_of(POLICY)
    folder.mkdir()
    made = static(fallback(policy, rules.walk()), policy)
    (folder / "fallback.yaml").write_text("---\n".join(map(goyaml_writer.write, made)), "utf-8")
    plugin = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyConfiguration",
        "staticManifestsDir": str(folder),
    }
    named: list[Any] = [{"name": "ValidatingAdmissionPolicy", "configuration": plugin}]
    configuration = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": named}
    file = tmp_path / "admission.yaml"
    file.write_text(yaml.safe_dump(configuration), "utf-8")
    flags = (*FLAGS, f"--admission-control-config-file={file}")
    with control_plane.serving(tmp_path / "cluster", programs, flags=flags) as cluster:
        prepare(cluster)
        assert eventually(partial(holds, cluster))
        assert "(NotFound)" in refusal(cluster, None, "delete", POLICIES, "slicewarden-pods.static.k8s.io")
        webhooks = configurations(policy)[1]
        registers = "may change what registers Slicewarden"
        assert eventually(lambda: registers in cluster.kubectl(*CREATE, user=TENANT, stdin=json.dumps(webhooks)).stderr)
        assert cluster.apply(webhooks).returncode == 0
        removes = ("delete", "validatingwebhookconfiguration", NAME, "--dry-run=server")
        assert "may change what registers Slicewarden" in refusal(cluster, TENANT, *removes)
