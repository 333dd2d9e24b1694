"""The agent on a real node names what pods take there, which a kubelet started, and does what the policy says."""

import json
import re
import shutil
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from bench.gpu.containers import PROGRAM
from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node import scrapes
from tests.node.conftest import Sh
from tests.node.nodes import GPU_NODE
from tests.node.nvidia import CARDS, MIB_OF_CARD, STATE
from tests.node.pods import create, pod
from tests.node.scrapes import silent
from tests.support.card.state import State
from tests.support.objects import Object
from webhook.agent.limits import dead, over, taint
from webhook.agent.observe.node import DEAD_CARDS

AGENT = "--namespace=slicewarden-node"
IMAGE = "slicewarden:0.1.0"
TEAM = "agents"
RUNTIME_CLASS = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
WORDS = """
      node:
        over: {action: Evict, graceSeconds: 5, pressurePercent: 0}
        dead: {action: Taint}"""
UNKNOWN = 999
"""NVML_ERROR_UNKNOWN."""
EXEMPTED = 6
"""Lines of the sample policy's exemption of the agent."""


def taking(name: str, mib: int, gpus: int = 0, env: Mapping[str, str] | None = None) -> Object:
    """A pod whose program takes memory of a card, and keeps it."""
    given = {"PROGRAM": PROGRAM.read_text("utf-8"), **(env or {})}
    container = {
        "image": IMAGE,
        "command": ["sh", "-c", f'(echo take {mib}; exec sleep 600) | exec python -c "$PROGRAM"'],
        "env": [{"name": key, "value": value} for key, value in given.items()],
    }
    return pod(name, container, gpus, TEAM)


def tree(cluster: Cluster) -> Path:
    """A clone whose policy exempts the agent and tells it what to do, and an overlay with all that it may do."""
    home = cluster.folder / "with-agent"
    for name in ("manifests", "policies"):
        shutil.copytree(ROOT / name, home / name)
    file = home / "policies" / "sample.yaml"
    lines = file.read_text("utf-8").splitlines()
    start = lines.index("    # - name: slicewarden-node")
    for number in range(start, start + EXEMPTED):
        lines[number] = lines[number].replace("# ", "", 1)
    pool = lines.index("    - name: shared")
    lines[pool] += WORDS
    file.write_text("\n".join(lines) + "\n")
    overlay = home / "manifests" / "overlays" / "agent"
    overlay.mkdir()
    components = [f"../../components/{name}" for name in ("agent", "agent-acts", "agent-taints")]
    (overlay / "kustomization.yaml").write_text(
        json.dumps({"resources": ["../../controller"], "components": components})
    )
    return home


@pytest.fixture(scope="module")
def watched(audited: Cluster, sh: Sh) -> Iterator[Cluster]:
    """The cluster with the agent on the node with cards, a Prometheus, and a namespace whose pods use them."""
    home = tree(audited)
    audited.do("apply", "--filename=-", stdin=json.dumps({**RUNTIME_CLASS, "handler": "runc"}))
    sh(f"kubectl apply -f {home}/policies/sample.yaml\nkubectl apply -k {home}/manifests/overlays/agent")
    sh(f"kubectl rollout status daemonset/slicewarden-node {AGENT} --timeout=300s")
    audited.add_namespace(TEAM, {})
    with scrapes.running(audited, {"slicewarden": 3, "slicewarden-node": 1}):
        yield audited
    audited.do("delete", "namespace", TEAM, "slicewarden-node", "--timeout=300s")


def agent(cluster: Cluster) -> Object:
    """The agent's pod."""
    (found,) = cluster.get("pods", AGENT)["items"]
    assert found["spec"]["nodeName"] == GPU_NODE
    return dict(found)


def table(cluster: Cluster) -> dict[str, list[str]]:
    """The output of --once, by the pods' names: the words of each line."""
    # The runtime gives the variables of a card to a container, and not to what is run in it later.
    once = ("slicewarden", "agent", "--once", "--policy", "/etc/slicewarden/policy/policy.yaml")
    command = ("env", f"CARD_STATE={STATE}", *once)
    shown = cluster.do("exec", agent(cluster)["metadata"]["name"], AGENT, "--", *command)
    lines = (re.split(r"  +", line.strip()) for line in shown.splitlines())
    return {line[1].partition("/")[2]: line for line in lines if len(line) == 7 and "/" in line[1]}


def metrics(cluster: Cluster) -> str:
    """The metrics of the agent."""
    with urllib.request.urlopen(f"http://{agent(cluster)['status']['podIP']}:8080/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def told(cluster: Cluster, reason: str, name: str, namespace: str = TEAM) -> bool:
    """Tell whether there is an Event with this reason at an object of this name."""
    items = cluster.get("events.events.k8s.io", f"--namespace={namespace}")["items"]
    return (reason, name) in {(each["reason"], each["regarding"].get("name")) for each in items}


def test_a_pod_that_a_kubelet_started_has_its_name_its_memory_and_its_allowance(watched: Cluster) -> None:
    create(watched, taking("honest", 700, gpus=1))
    # Its process is on the card before it has its memory.
    assert eventually(lambda: table(watched).get("honest", [""] * 4)[3] == "700"), table(watched)
    card, name, container, mib, allowance, _, state = table(watched)["honest"]
    assert (card in "01", name, container, mib, state) == (True, f"{TEAM}/honest", "main", "700", "within")
    assert 0.9 * MIB_OF_CARD / 4 < int(allowance) < MIB_OF_CARD / 4
    line = rf'slicewarden_node_use_bytes{{container="main",gpu="GPU-51ce.*",namespace="{TEAM}",pod="honest"}} (\S+)'
    # They are those of the agent's last look, which may be of before the one above.
    assert eventually(lambda: [float(used) for used in re.findall(line, metrics(watched))] == [700 * 2**20])
    assert eventually(lambda: not silent("used")), silent("used")


def test_a_process_of_a_pod_that_asked_for_no_gpu_is_named_as_a_stranger(watched: Cluster) -> None:
    create(watched, taking("stranger", 300, env={"NVIDIA_VISIBLE_DEVICES": "all"}))
    assert eventually(partial(told, watched, over.UNREQUESTED, "stranger"))
    shown = ["300", "-", "0", "not requested"]  # it is told as soon as it is on the card, before it has its memory
    assert eventually(lambda: table(watched).get("stranger", [])[3:] == shown), table(watched)
    assert eventually(lambda: not silent("strange", "> 0")), silent("strange", "> 0")
    assert eventually(lambda: not silent("audited", "> 0")), silent("audited", "> 0")  # it would have been denied
    watched.do("delete", "pod", "stranger", f"--namespace={TEAM}")
    assert eventually(lambda: 'pod="stranger"' not in metrics(watched))


def test_a_pod_above_its_slice_is_told_and_then_evicted_and_its_neighbour_goes_on(watched: Cluster) -> None:
    create(watched, taking("greedy", MIB_OF_CARD // 2, gpus=1))
    assert eventually(partial(told, watched, over.ABOVE, "greedy"))
    assert eventually(lambda: watched.kubectl("get", "pod", "greedy", f"--namespace={TEAM}").returncode != 0)
    assert eventually(lambda: 'action="Evict",outcome="done"} 1.0' in metrics(watched))
    assert eventually(lambda: not silent("acted")), silent("acted")
    assert table(watched)["honest"][3] == "700"


def test_what_nvml_does_not_answer_is_counted_as_a_fault(watched: Cluster) -> None:
    cards = State.opened(watched.folder / "nvidia-container-runtime" / "cards")
    cards.set(card=1, fault=UNKNOWN)
    assert eventually(lambda: not silent("faulty")), silent("faulty")
    cards.set(card=1, fault=0)


def test_a_dead_card_is_told_at_the_node_which_is_tainted(watched: Cluster) -> None:
    cards = State.opened(watched.folder / "nvidia-container-runtime" / "cards")
    cards.set(card=1, xid=79)
    assert eventually(partial(told, watched, dead.REASON, GPU_NODE, "default"))
    line = rf'slicewarden_node_card_dead{{gpu="{CARDS[1]}",.*}} 1.0'
    assert eventually(lambda: re.search(line, metrics(watched)) is not None)
    assert eventually(lambda: not silent("dead")), silent("dead")
    node = partial(watched.get, "node", GPU_NODE)
    assert eventually(lambda: taint.KEY in {each["key"] for each in node()["spec"]["taints"]})
    note = json.loads(node()["metadata"]["annotations"][DEAD_CARDS])
    assert note["cards"] == {CARDS[1]: "XID 79"}
    # A person who has looked after the card takes the taint away, and the agent the note.
    watched.do("taint", "node", GPU_NODE, f"{taint.KEY}:NoSchedule-")
    assert eventually(lambda: DEAD_CARDS not in node()["metadata"]["annotations"])
    assert "slicewarden.dev/pool" in {each["key"] for each in node()["spec"]["taints"]}
