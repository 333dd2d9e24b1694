"""Who may be frozen and for how long: consent, groups, and what probes bear, with real servers in a frozen cgroup."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.agent.bed import GPU, LABELS, Container, containers, policy, writable
from webhook.agent.turns.freezer import Freezer
from webhook.catalog import gangs
from webhook.cli import inputs
from webhook.cli import main as cli
from webhook.cluster.decoding import decoded
from webhook.facts.snapshot import Facts
from webhook.gpu.pauses import Pause
from webhook.memory import essential
from webhook.memory.admitted import admitted
from webhook.policy.model import Policy

FACTS = Facts.of([{"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "labels": LABELS}}])


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return inputs.load_policy(policy(tmp_path_factory.mktemp("policy")))


def item(own: Any = None, spec: Any = None, metadata: Any = None, pausable: object = "true") -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {GPU: "1"}}, **(own or {})}
    said = {} if pausable is None else {"slicewarden.dev/pausable": pausable}
    given = {"namespace": "team", "name": "job", "annotations": said, **(metadata or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": given, "spec": {"containers": [container], **(spec or {})}}


def pause(given: dict[str, Any], rules: Policy, container: str = "main") -> Pause | None:
    """What is found of a pod, and of the fields of it that the agent decodes."""
    cut = decoded(json.dumps(given).encode(), ("metadata.name", "metadata.namespace", *essential.FIELDS))
    cut["spec"] = essential.essential(cut["spec"])
    found = admitted(given, rules, FACTS, FACTS.nodes[0])[container].pause
    assert admitted(cut, rules, FACTS, FACTS.nodes[0])[container].pause == found
    return found


def test_a_pod_that_says_so_may_be_frozen(turns: Policy) -> None:
    assert pause(item(), turns) == Pause(20)


@pytest.mark.parametrize("said", [None, "false", "True", "yes", "", True])
def test_one_that_does_not_say_exactly_so_is_never_frozen(turns: Policy, said: object) -> None:
    assert pause(item(pausable=said), turns) is None


def test_where_all_may_be_frozen_a_pod_can_say_no(tmp_path: Path) -> None:
    every = inputs.load_policy(policy(tmp_path, who="All"))
    assert pause(item(pausable=None), every) == Pause(20)
    assert pause(item(pausable="false"), every) is None


def test_without_turns_in_the_policy_nobody_is_frozen(tmp_path: Path) -> None:
    assert pause(item(), inputs.load_sample()) is None
    assert pause(item(), inputs.load_policy(policy(tmp_path, mode="Off"))) is None


@pytest.mark.parametrize(
    "given",
    [
        item({"resources": {"limits": {GPU: "2"}}}),
        item({"resources": {"limits": {GPU: "many"}}}),
        item({"resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}),
        item({"resources": {"limits": {"cpu": "1"}}}),
        item(spec={"containers": [{"name": each, "resources": {"limits": {GPU: "1"}}} for each in ("main", "more")]}),
        item(spec={"hostNetwork": True}),
        item({"env": [{"name": "MASTER_ADDR", "value": "x"}]}),
        item({"env": [{"name": "WORLD_SIZE", "value": "4"}]}),
        item(metadata={"deletionTimestamp": "2026-11-22T00:00:00Z"}),
        item(spec={"resourceClaims": [{"name": "gpu"}]}, own={"resources": {"claims": [{"name": "gpu"}]}}),
        *(item(metadata={"labels": {key: "x"}}) for key in sorted(gangs.KEYS)),
        *(item(spec={field: {"name": "x"}}) for field in sorted(gangs.FIELDS)),
    ],
)
def test_one_of_several_gpus_or_of_a_group_is_never_frozen(turns: Policy, given: dict[str, Any]) -> None:
    assert pause(given, turns) is None


def test_a_gang_by_annotation_is_never_frozen(turns: Policy) -> None:
    said = {"slicewarden.dev/pausable": "true", "scheduling.k8s.io/group-name": "g"}
    assert pause(item(metadata={"annotations": said}), turns) is None


def test_an_init_container_and_one_without_a_gpu_are_never_frozen(turns: Policy) -> None:
    first = {"name": "first", "resources": {"limits": {GPU: "1"}}}
    given = item(spec={"initContainers": [first]})
    given["spec"]["containers"].append({"name": "side"})
    assert [pause(given, turns, name) for name in ("first", "side", "main")] == [None, None, Pause(20)]


def test_an_exempt_one_is_never_frozen(tmp_path: Path) -> None:
    file = Path(policy(tmp_path))
    value = yaml.safe_load(file.read_text())
    value["spec"]["exemptions"] = [
        {"name": "team", "reason": "r", "system": True, "namespaces": ["team"], "serviceAccounts": ["default"]}
    ]
    file.write_text(yaml.safe_dump(value))
    assert pause(item(), inputs.load_policy(str(file))) is None


HTTP, EXEC = {"httpGet": {"port": 80}}, {"exec": {"command": ["true"]}}


@pytest.mark.parametrize(
    ("probes", "expected"),
    [
        ({"livenessProbe": HTTP}, Pause(20, 11)),
        ({"livenessProbe": {"grpc": {"port": 1}}}, Pause(20, 11)),
        ({"livenessProbe": {"tcpSocket": {"port": 1}, "failureThreshold": 2}}, Pause(10, 11)),
        ({"livenessProbe": EXEC}, Pause(20)),
        ({"livenessProbe": {**HTTP, "periodSeconds": 5, "timeoutSeconds": 4}}, Pause(10, 9)),
        ({"livenessProbe": {**HTTP, "failureThreshold": 100}}, Pause(20, 11)),
        ({"livenessProbe": {**HTTP, "failureThreshold": 0, "periodSeconds": 0}}, Pause(20, 11)),
        ({"livenessProbe": HTTP, "startupProbe": {**HTTP, "periodSeconds": 3, "timeoutSeconds": 20}}, Pause(6, 23)),
        ({"readinessProbe": {**HTTP, "failureThreshold": 1}}, Pause(20)),
        ({"livenessProbe": {**HTTP, "periodSeconds": 34}}, Pause(20, 35)),
        ({"livenessProbe": {**HTTP, "periodSeconds": 35}}, None),  # it would keep its turn for longer than others
        ({"livenessProbe": {**HTTP, "periodSeconds": 86_400}}, None),
        ({"livenessProbe": {**HTTP, "failureThreshold": 1}}, None),
        ({"livenessProbe": {**HTTP, "periodSeconds": 2}}, None),
        ({"livenessProbe": {**HTTP, "periodSeconds": "10"}}, None),
        ({"livenessProbe": {**HTTP, "failureThreshold": -3}}, None),
        ({"livenessProbe": {**HTTP, "periodSeconds": True}}, None),
        ({"livenessProbe": {}}, None),
        ({"livenessProbe": "always"}, None),
        ({"livenessProbe": {"newKind": {}}}, None),
    ],
)
def test_probes_bound_how_long_one_is_frozen(turns: Policy, probes: Any, expected: Pause | None) -> None:
    assert pause(item(probes), turns) == expected


def test_the_priority_counts_where_the_policy_orders_by_it(turns: Policy, tmp_path: Path) -> None:
    ordered = inputs.load_policy(policy(tmp_path, order="PriorityClass"))
    given = item(spec={"priority": 1000})
    assert pause(given, ordered) == Pause(20, 0, 1000)
    assert pause(given, turns) == Pause(20)
    assert pause(item(spec={"priority": "high"}), ordered) == Pause(20)


# The answers of a frozen server


SERVER = """
import socket, sys
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(int(sys.argv[1])); print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); c.recv(1000); c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok"); c.close()
"""


def served(one: Container, backlog: int) -> "tuple[subprocess.Popen[bytes], int]":
    process = one.run(sys.executable, "-c", SERVER, str(backlog), stdout=subprocess.PIPE)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    process.stdout.close()
    return process, port


def answers(port: int, timeout: float) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.thorough
def test_a_frozen_server_fails_its_threshold_of_http_probes_one_period_after_its_bound_and_not_within_it() -> None:
    """As the kubelet probes: every `period`, and a failure is no answer within `timeout`. `threshold` is 3."""
    period, timeout, threshold = 0.4, 0.2, 3
    freezer, rows, ended = Freezer(writable()), [0], threading.Event()
    with containers(1) as (one,):
        server, port = served(one, 5)
        worst = [0]

        def probe() -> None:
            due = time.monotonic()
            while not ended.is_set():
                rows[0] = 0 if answers(port, timeout) else rows[0] + 1
                worst[0] = max(worst[0], rows[0])
                due += period
                ended.wait(max(0.0, due - time.monotonic()))

        thread = threading.Thread(target=probe)
        thread.start()
        try:
            seen = {}
            for name, seconds in (("bound", (threshold - 1) * period), ("later", threshold * period + timeout)):
                time.sleep(2 * period)
                worst[0] = 0
                freezer.freeze([one.path])
                time.sleep(seconds)
                freezer.thaw(one.path)
                time.sleep(period + timeout)
                seen[name] = worst[0]
        finally:
            ended.set()
            thread.join()
            server.kill()
            server.wait()
    assert seen["bound"] < threshold <= seen["later"]


def test_a_frozen_tcp_server_fails_its_probe_when_its_backlog_is_full() -> None:
    """With a backlog of 5, six connections are taken and the seventh is not; so TCP probes count as HTTP ones do."""
    with containers(1) as (one,):
        server, port = served(one, 5)
        Freezer(writable()).freeze([one.path])
        taken = []
        for _ in range(7):
            try:
                taken.append(socket.create_connection(("127.0.0.1", port), 0.3))
            except TimeoutError:
                break
        assert len(taken) == 6
        for each in taken:
            each.close()
        server.kill()
        server.wait()


def test_the_page_names_the_signs_of_a_group() -> None:
    page = (ROOT / "docs" / "agent.md").read_text("utf-8")
    assert all(name in page for name in (*gangs.VARIABLES, "slicewarden.dev/pausable"))


def test_a_command_tells_who_may_stand_still_for_how_long_and_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [
        item({"livenessProbe": {**HTTP, "periodSeconds": 5}}, metadata={"name": "probed"}),
        item(metadata={"name": "plain"}),
        item(metadata={"name": "whole"}, own={"resources": {"limits": {"nvidia.com/gpu": "2"}}}),
        item({"env": [{"name": "WORLD_SIZE", "value": "4"}]}, metadata={"name": "gang"}),
        item({"resources": {}}, metadata={"name": "none"}),
        item({"livenessProbe": {**HTTP, "periodSeconds": 2}}, metadata={"name": "hasty"}),
        item(metadata={"name": "said"}),
    ]
    pods[1]["metadata"]["annotations"] = {}
    for each in pods[:1] + pods[2:]:
        each["metadata"]["annotations"] = {"slicewarden.dev/pausable": "true"}
    pods[-1]["metadata"]["annotations"] = {"slicewarden.dev/pausable": "yes"}
    file = tmp_path / "pods.yaml"
    file.write_text(yaml.safe_dump_all(pods))
    assert cli.main(["explain", "turns", str(file), "--policy", policy(tmp_path)]) == 0
    written = capsys.readouterr()
    assert written.err.startswith("note: no nodes and no namespaces are known: `slicewarden facts --live")
    lines = [" ".join(line.split()) for line in written.out.splitlines()]
    assert lines == [
        "object container pool may stand still and why, or why not",
        "Pod team/probed main shared 10 s then it runs for 15 s at least",
        "Pod team/plain main shared never its pod has no annotation slicewarden.dev/pausable",
        "Pod team/whole main exclusive never containers of this pool take no turns",
        "Pod team/gang main shared never its pod belongs to a group (WORLD_SIZE)",
        "Pod team/hasty main shared never its probes tolerate 4 s, and the minimum is 5 s; raise failureThreshold or "
        "periodSeconds",
        'Pod team/said main shared never slicewarden.dev/pausable is "yes": only "true" allows it',
    ]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"metadata": None}, "Pod default main"),
        ({"metadata": {"name": "odd"}, "spec": {"containers": 1}}, "Pod odd - - never it cannot be judged: "),
    ],
)
def test_a_manifest_of_a_wrong_shape_is_told_in_a_row(
    part: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(yaml.safe_dump({**item(), **part}))
    assert cli.main(["explain", "turns", str(file), "--policy", policy(tmp_path)]) == 0
    assert why in " ".join(capsys.readouterr().out.split())
