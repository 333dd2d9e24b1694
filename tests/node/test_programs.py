"""Programs in patched pods, started by a real kubelet: their files arrive, and frameworks stop at their slice.

The frameworks are real wheels that `make frameworks` has installed, on a pretended card as large as the node's.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import greedy
from tests.e2e.control_plane import Cluster, eventually
from tests.frameworks import environments
from tests.frameworks.card import PRETEND, compiled
from tests.node.conftest import Sh
from tests.node.nodes import Node
from tests.node.nvidia import CARDS, MIB_OF_CARD
from tests.node.pods import HAS_SAID, ended, pod
from tests.support.card.state import MIB, State
from tests.support.go_programs import cache
from tests.support.objects import Object
from tests.support.policies import POLICY, facts_of, policy_of
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.engine.engine import Engine
from webhook.memory.shim import delivery

TEAM, TRUST = "programs", {"slicewarden.dev/trust": "trusted"}
BY_VARIABLE, BY_SHIM = "torch-2.15.0", "torch-2.9.1"
LIBRARIES = ("/lib/x86_64-linux-gnu", "/lib64")
GREEDY = Path(greedy.__file__)
SUMS = f"sha256sum {delivery.FOLDER}/*"
KNOWN = {"env": [{"name": "PYTHONPATH", "value": "/opt"}]}
"""The shim is given where it is known which PYTHONPATH a container has."""
ONE = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def requires(name: str) -> pytest.MarkDecorator:
    """Skip where an environment was not made, since the bed reaches no index of wheels."""
    there = (cache() / "frameworks" / name / ".whole").exists()
    return pytest.mark.skipif(not there, reason=f"{name} is not installed; make frameworks does it")


@pytest.fixture(scope="session")
def team(labelled: Cluster) -> str:
    """A namespace whose pods may be trusted."""
    labelled.add_namespace(TEAM, TRUST)
    return TEAM


@pytest.fixture(scope="session")
def cards(labelled: Cluster) -> State:
    """The node's cards, which count what a framework takes."""
    return State.opened(labelled.folder / "nvidia-container-runtime" / "cards")


def places(name: str) -> dict[str, str]:
    """The folders of a program on the card: by their names under the node's /srv, where it finds them."""
    folders = (sys.base_prefix, environments.python(name).parents[1], compiled().parent, PRETEND, GREEDY.parent)
    prefix = name.replace(".", "-")
    return {f"{prefix}-{index}": str(folder) for index, folder in enumerate((*LIBRARIES, *folders))}


def framework(node: Node, name: str, before: str = "true") -> tuple[Object, list[Object]]:
    """A container in which a framework takes memory until it gets no more, and its pod's volumes."""
    given = places(name)
    for volume, folder in given.items():
        done = node.run("sh", "-euc", 'mkdir -p "/srv/$0"; mount --bind "$1" "/srv/$0"', volume, folder)
        assert done.returncode == 0, done.stderr
    variables = {
        "LD_LIBRARY_PATH": str(compiled().parent),
        "PYTHONPATH": str(PRETEND),
        "HOME": "/",
        "USER": "root",
    }
    container: Object = pod("any")["spec"]["containers"][0] | ONE
    container |= {
        "command": ["sh", "-euc", f"{before}; {environments.python(name)} {GREEDY} pytorch"],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        "volumeMounts": [{"name": volume, "mountPath": folder, "readOnly": True} for volume, folder in given.items()],
    }
    return container, [{"name": volume, "hostPath": {"path": f"/srv/{volume}"}} for volume in given]


def trusted(name: str, **spec: Any) -> Object:
    """A pod that may be trusted with a slice; its container is to be given."""
    made = pod(name, namespace=TEAM, **spec)
    made["metadata"]["annotations"] = dict(TRUST)
    del made["spec"]["nodeSelector"], made["spec"]["tolerations"]
    return made


def forget(cards: State) -> None:
    """Let the cards count anew."""
    for index in range(len(CARDS)):
        cards.set(index, peak=0, refused=0)


def stopped_at(cluster: Cluster, name: str, cards: State) -> tuple[float, float]:
    """The most MiB that a pod's framework took until it stopped itself, and its cap."""
    done = ended(cluster, name, TEAM, 180)
    log = cluster.do("logs", name, f"--namespace={TEAM}")
    assert done["status"]["phase"] == "Succeeded", log
    assert json.loads(log.splitlines()[-1])["stopped"]
    assert not any(cards.get("refused", index) for index in range(len(CARDS)))
    cap = json.loads(done["metadata"]["annotations"]["slicewarden.dev/memory-caps"])["mib"]
    return max(cards.get("peak", index) for index in range(len(CARDS))) / MIB, cap


# Under the shim, which the sample policy leaves out: by the engine, before the webhook is there


@pytest.fixture(scope="module")
def shimmed(labelled: Cluster, sh: Sh, team: str) -> Any:
    """Create a pod as the webhook would make it where the policy lets it inject the shim."""
    del team
    text = POLICY.read_text("utf-8")
    policy = policy_of(text.replace("    # shim: Inject", "    shim: Inject"))
    assert policy != policy_of(text)
    file = labelled.folder / "facts.json"
    sh(f"slicewarden facts --live > {file}")
    judge, facts = Engine(policy, rules.walk()), facts_of(file)

    def create(item: Object) -> Object:
        verdict = judge.judge(admission.decode(admission.wrap(item)), facts)
        assert verdict.allowed, verdict.results
        patched: Object = dict(jsonpatch.apply(item, verdict.patch))
        labelled.do("create", "--filename=-", stdin=json.dumps(patched))
        return patched

    return create


def promised(item: Mapping[str, Any], name: str) -> set[str]:
    """The files that a patched pod's container is to find, as `sha256sum` prints them."""
    containers = [*item["spec"].get("initContainers", []), *item["spec"]["containers"]]
    (mounts,) = [each.get("volumeMounts", []) for each in containers if each["name"] == name]
    text = item["metadata"]["annotations"][delivery.CODE]
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {f"{digest}  {mount['mountPath']}" for mount in mounts if mount["name"] == delivery.VOLUME}


def found(cluster: Cluster, pod_name: str, container: str) -> set[str]:
    log = cluster.do("logs", pod_name, f"--namespace={TEAM}", f"--container={container}")
    return {line.strip() for line in log.splitlines() if "".join(line.split()[-1:]).startswith(delivery.FOLDER)}


@requires(BY_SHIM)
def test_files_arrive_in_init_containers_and_after_a_restart_and_cap_an_older_torch(
    labelled: Cluster, shimmed: Any, gpu_node: Node, cards: State
) -> None:
    fail = "{ touch /again/once; exit 1; }"
    again = f"{SUMS} >> /again/sums; test -e /again/once || {fail}; sort /again/sums | uniq -c"
    container, volumes = framework(gpu_node, BY_SHIM, again)
    container["volumeMounts"].append({"name": "again", "mountPath": "/again"})
    first = pod("any")["spec"]["containers"][0] | ONE | KNOWN | {"name": "first", "command": ["sh", "-c", SUMS]}
    item = trusted("older", restartPolicy="OnFailure", initContainers=[first], containers=[container])
    forget(cards)
    item["spec"]["volumes"] = [*volumes, {"name": "again", "emptyDir": {}}]
    patched = shimmed(item)
    most, cap = stopped_at(labelled, "older", cards)
    assert len(promised(patched, "first")) == len(promised(patched, "main")) == len(delivery.NAMES)
    assert found(labelled, "older", "first") == promised(patched, "first")
    assert found(labelled, "older", "main") == {f"2 {line}" for line in promised(patched, "main")}
    assert 0.9 * cap < most <= cap


def test_files_arrive_in_a_sidecar(labelled: Cluster, shimmed: Any) -> None:
    waits = f"{SUMS}; touch /said; trap 'exit 0' TERM; sleep 600 & wait"
    base = pod("any")["spec"]["containers"][0]
    sidecar = (
        base | ONE | KNOWN | HAS_SAID | {"name": "side", "restartPolicy": "Always", "command": ["sh", "-c", waits]}
    )
    patched = shimmed(trusted("beside", initContainers=[sidecar]))
    assert ended(labelled, "beside", TEAM)["status"]["phase"] == "Succeeded"
    assert found(labelled, "beside", "side") == promised(patched, "side") != set()
    assert promised(patched, "main") == set()


# By the webhook


@requires(BY_VARIABLE)
def test_torch_from_its_wheel_stops_at_the_slice(enforced: Cluster, team: str, gpu_node: Node, cards: State) -> None:
    del team
    forget(cards)
    container, volumes = framework(gpu_node, BY_VARIABLE)
    item = trusted("newer", containers=[container], volumes=volumes)
    assert eventually(lambda: enforced.kubectl("create", "--filename=-", stdin=json.dumps(item)).returncode == 0)
    most, cap = stopped_at(enforced, "newer", cards)
    assert 0.8 * cap < most <= cap < MIB_OF_CARD / 4
