"""A cluster without any webhook: the API server steers, guards, caps and denies by itself."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import control_plane, offered
from tests.e2e.control_plane import Cluster, eventually
from tests.e2e.objects import TRUSTED, Object, pod
from tests.e2e.with_fallback import CREATE, FACTS_OF, FLAGS, TENANT, prepare
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api import jsonpatch
from webhook.api.admission import decode, wrap
from webhook.cli import main as cli
from webhook.engine.engine import Engine

pytestmark = pytest.mark.needs(offered.MUTATING, offered.FALLBACK)

NEIGHBOUR: list[Object] = [
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "zz-neighbour"},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "mutations": [
                {
                    "patchType": "JSONPatch",
                    "jsonPatch": {
                        "expression": "[JSONPatch{op: 'add', path: '/spec/containers/-',"
                        " value: Object.spec.containers{name: 'late', image: 'i'}}]"
                    },
                }
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "zz-neighbour"},
        "spec": {"policyName": "zz-neighbour"},
    },
]
"""Adds a container to every pod, after ours has run."""


@pytest.fixture(scope="module")
def alone(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with what `slicewarden fallback --mutate` prints for the sample policy, and no webhook."""
    folder = tmp_path_factory.mktemp("alone")
    with control_plane.serving(folder, programs, flags=FLAGS) as cluster:
        prepare(cluster)
        yield cluster


@pytest.fixture(scope="module")
def printed(alone: Cluster) -> str:
    """The printed policies, in force."""
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr("webhook.cli.outputs.show", lambda text, **_: said.append(text))
        assert cli.main(["fallback", "--policy", str(POLICY), "--mutate"]) == 0
    text = "".join(said)
    alone.do("apply", "--filename=-", stdin=text)
    # Each policy and each binding comes into force at its own time, the mutating ones apart from the validating ones.
    assert eventually(lambda: made(alone, gpu_pod("a", **ELSEWHERE))[0] is None)
    assert eventually(lambda: all(parts(made(alone, item)[0]) == wanted(item) for item in changed()))
    return text


ELSEWHERE: Object = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        }
    }
}


SEES_ALL: Object = {"name": "all", "image": "i", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}


def gpu_pod(name: str, **spec: Any) -> Object:
    item = pod(name, "vision", annotations=TRUSTED)
    item["spec"] |= spec
    return item


def made(cluster: Cluster, item: Object) -> tuple[Object | None, str]:
    """Create a pod for show; return it as the API server would store it, or why it refuses it."""
    done = cluster.kubectl(*CREATE, "--output=json", user=TENANT, stdin=json.dumps(item))
    return (json.loads(done.stdout), "") if done.returncode == 0 else (None, done.stderr)


def changed() -> list[Object]:
    """Pods of which every part is written: trusted, without trust, and with an init container."""
    return [gpu_pod("a"), pod("b", "visitors"), gpu_pod("c", initContainers=[{"name": "init", "image": "i"}])]


def wanted(item: Object) -> Object:
    """The parts of a pod as the webhook leaves them."""
    engine, facts = Engine(policy_of(POLICY), rules.walk()), replace(FACTS_OF, nodes=())
    return parts(dict(jsonpatch.apply(item, engine.mutate(decode(wrap(item)), facts).patch)))


def parts(item: Object | None) -> Object:
    """Everything of a pod that the webhook may write; empty if there is no pod."""
    if item is None:
        return {}
    spec = item["spec"]
    # The API server adds two tolerations by itself (DefaultTolerationSeconds).
    own = [each for each in spec.get("tolerations", []) if not each["key"].startswith("node.kubernetes.io/")]
    return {
        "annotations": item["metadata"].get("annotations") or {},
        "nodeSelector": spec.get("nodeSelector"),
        "affinity": spec.get("affinity"),
        "tolerations": own,
        **{kind: [variables(each) for each in spec.get(kind, [])] for kind in ("initContainers", "containers")},
    }


@pytest.mark.usefixtures("printed")
def test_a_pod_is_steered_guarded_and_capped_as_the_webhook_would_do_it(alone: Cluster) -> None:
    assert (
        alone.kubectl("get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name").stdout == ""
    )
    for item in changed():
        found, why = made(alone, item)
        assert found is not None, why
        assert parts(found) == wanted(item)


def variables(container: Object) -> list[tuple[str, str]]:
    return [(each["name"], each.get("value", "")) for each in container.get("env", [])]


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize(
    ("item", "rule"),
    [
        (gpu_pod("a", **ELSEWHERE), "unsteered-pod"),
        (gpu_pod("a", nodeName="node-1"), "chosen-node"),
        (pod("a", "visitors", annotations=TRUSTED), "unearned-trust"),
        (gpu_pod("a", initContainers=[SEES_ALL]), "visible-devices"),
    ],
)
def test_the_rest_is_denied_by_its_rule(alone: Cluster, item: Object, rule: str) -> None:
    found, why = made(alone, item)
    assert found is None
    assert f"{rule}: " in why


@pytest.mark.usefixtures("printed")
def test_nothing_is_written_twice_where_others_change_the_pod_later(alone: Cluster) -> None:
    assert alone.apply(*NEIGHBOUR).returncode == 0

    def late() -> bool:
        found, _ = made(alone, gpu_pod("a"))
        return found is not None and len(found["spec"]["containers"]) == 2

    assert eventually(late)
    found, _ = made(alone, gpu_pod("a"))
    assert found is not None
    first, second = found["spec"]["containers"]
    assert variables(second) == [("NVIDIA_VISIBLE_DEVICES", "void")], "a container that came later is guarded too"
    names = [name for name, _ in variables(first)]
    assert len(names) == len({*names})
    assert len(found["spec"]["tolerations"]) == len({json.dumps(each) for each in found["spec"]["tolerations"]})
    alone.do("delete", "mutatingadmissionpolicy,mutatingadmissionpolicybinding", "zz-neighbour")


def test_comments_say_what_is_missing(printed: str) -> None:
    comments = [line for line in printed.splitlines() if line.startswith("# - ")]
    assert any("required node affinity of their own" in line for line in comments)
    assert any("Tesla-T4, 15360 MiB in 4 slices" in line for line in comments)
