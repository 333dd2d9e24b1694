"""Our NetworkPolicy as kube-network-policies enforces it: who reaches a replica, and whom a replica reaches."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest
import yaml

from tests import ROOT
from tests.e2e.control_plane import Cluster, eventually
from tests.node.images import TOOLS
from tests.node.nodes import ADDRESS
from tests.node.programs import find
from tests.node.replicas import OURS, SYSTEM, stream

QUEUE = 98
REVIEWS, METRICS = 8443, 8080
API_SERVER = ADDRESS
"""The address of the API server's calls where policies are enforced, which is before it is masqueraded."""
LISTEN = "for port in 80 443; do httpd -p $port; done; sleep 3600 & wait"

# Its own rules for nftables need CONFIG_NFT_QUEUE, which a kernel may lack. These do the same, but for one: its own let
# pass whatever root sends from the node, the API server's calls among it, and these the probes of kubelets alone.
LABELS = """
add table inet bed
add chain inet bed labels { type filter hook postrouting priority -151; }
add rule inet bed labels ct label set 100
"""
RULES = (
    ("-p", "tcp", "--dport", str(METRICS), "-m", "owner", "--uid-owner", "0", "-j", "ACCEPT"),
    (
        "-p",
        "tcp",
        "-d",
        "10.244.0.0/16",
        "-m",
        "conntrack",
        "--ctstate",
        "NEW",
        "-j",
        "NFQUEUE",
        "--queue-num",
        str(QUEUE),
    ),
)


def probe(namespace: str) -> str:
    """A pod on the replicas' node that answers and asks."""
    container = {"name": "main", "image": TOOLS, "imagePullPolicy": "Never", "command": ["sh", "-c", LISTEN]}
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": "worker"},
        "terminationGracePeriodSeconds": 0,
    }
    metadata = {"name": "probe", "namespace": namespace}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def reaches(cluster: Cluster, namespace: str, port: int) -> bool:
    """Tell whether a namespace's pod gets a connection to a replica."""
    ask = f"nc -w 2 {replica(cluster)[1]} {port} < /dev/null"
    return cluster.kubectl("exec", "probe", f"--namespace={namespace}", "--", "sh", "-c", ask).returncode == 0


def replica(cluster: Cluster) -> tuple[str, str]:
    """The name and the address of one."""
    first = cluster.get("pods", SYSTEM, OURS)["items"][0]
    return first["metadata"]["name"], first["status"]["podIP"]


def connects(cluster: Cluster, address: str, port: int) -> bool:
    """Tell whether a replica gets a connection."""
    script = f"import socket; socket.create_connection(({address!r}, {port}), 2)"
    return cluster.kubectl("exec", replica(cluster)[0], SYSTEM, "--", "python3", "-c", script).returncode == 0


@pytest.fixture(scope="module")
def guarded(enforced: Cluster) -> Iterator[Cluster]:
    """The cluster with its NetworkPolicies enforced, and a pod each of a tenant's and of monitoring."""
    enforced.do("create", "namespace", "monitoring")
    enforced.do("wait", "--for=create", "serviceaccount/default", "--namespace=monitoring", "--timeout=300s")
    for namespace in ("default", "monitoring"):
        enforced.do("create", "--filename=-", stdin=probe(namespace))
        enforced.do("wait", "--for=condition=Ready", "pod/probe", f"--namespace={namespace}", "--timeout=300s")
        assert eventually(partial(reaches, enforced, namespace, METRICS))  # nothing forbids it yet
    program = find(["kube-network-policies"])["kube-network-policies"]
    enforced.start(
        "kube-network-policies", program, f"--kubeconfig={enforced.kubeconfig()}", "--hostname-override=worker",
        f"--nfqueue-id={QUEUE}", "--disable-nri", "--strict-mode=false", "--fail-open=false",
        "--metrics-bind-address=127.0.0.1:9080", "--v=2",
    )  # fmt: skip
    subprocess.run(["nft", LABELS], check=True)
    for rule in RULES:
        subprocess.run(["iptables", "--table", "mangle", "--append", "POSTROUTING", *rule], check=True)
    # While nobody takes packets from the queue, none arrives: it is at work when some do.
    assert eventually(lambda: reaches(enforced, "monitoring", METRICS))
    assert eventually(lambda: not reaches(enforced, "default", METRICS))
    yield enforced
    subprocess.run(["iptables", "--table", "mangle", "--flush", "POSTROUTING"], check=True)
    subprocess.run(["nft", "delete table inet bed"], check=True)
    enforced.stop("kube-network-policies")
    enforced.do("delete", "pod", "probe", "--namespace=default", "--now")
    enforced.do("delete", "namespace", "monitoring")


def test_metrics_are_for_monitoring_alone(guarded: Cluster) -> None:
    assert eventually(lambda: reaches(guarded, "monitoring", METRICS))
    assert not reaches(guarded, "default", METRICS)


def test_a_replica_reaches_api_servers_ports_and_no_other(guarded: Cluster) -> None:
    address = guarded.get("pod", "probe")["status"]["podIP"]
    assert eventually(lambda: connects(guarded, address, 443))
    assert not connects(guarded, address, 80)


def test_whoever_reaches_the_port_may_ask_where_no_address_is_named(guarded: Cluster) -> None:
    assert eventually(lambda: reaches(guarded, "default", REVIEWS))


@pytest.fixture
def named(guarded: Cluster) -> Iterator[Cluster]:
    """The same, with the page's patch for the address of the API server."""
    page = (ROOT / "manifests" / "README.md").read_text("utf-8")
    (block,) = re.findall(r"^```yaml\n(patches:\n.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ((patch,),) = ([each["patch"] for each in made["patches"]] for made in [yaml.safe_load(block)])
    operations = yaml.safe_load(patch.replace("203.0.113.7", API_SERVER))
    before = guarded.get("networkpolicy", "slicewarden", SYSTEM)
    guarded.do("patch", "networkpolicy", "slicewarden", SYSTEM, "--type=json", f"--patch={json.dumps(operations)}")
    assert eventually(lambda: not reaches(guarded, "default", REVIEWS))
    yield guarded
    restored = json.dumps([{"op": "replace", "path": "/spec", "value": before["spec"]}])
    guarded.do("patch", "networkpolicy", "slicewarden", SYSTEM, "--type=json", f"--patch={restored}")


def test_with_an_address_the_api_server_calls_and_no_pod_does(named: Cluster) -> None:
    assert not reaches(named, "monitoring", REVIEWS)
    # One of its own: a connection that it has kept from before is judged no more.
    socket.create_connection((replica(named)[1], REVIEWS), 5, (API_SERVER, 0)).close()
    with stream(named) as judged:
        assert eventually(lambda: judged.count > 10)
