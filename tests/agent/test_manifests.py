"""The agent's manifests: its rights are what it asks for, the policy exempts it, and its options are the command's."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.command_lines import read as read_command
from tests.support.manifests import BASE, COMPONENTS, read
from webhook import rules
from webhook.agent import agent
from webhook.agent.observe import node
from webhook.agent.turns import ledger
from webhook.agent.turns.turns import PAUSE_ENDED, PAUSED
from webhook.catalog import host_paths
from webhook.cli import inputs
from webhook.cli.commands import thaw
from webhook.controller import agents
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Request
from webhook.usage import store

AGENT, ACTS, TAINTS = COMPONENTS / "agent", COMPONENTS / "agent-acts", COMPONENTS / "agent-taints"
TURNS, USAGE = COMPONENTS / "agent-turns", COMPONENTS / "agent-usage"
FILES = ("namespace", "rbac", "policy", "network", "daemonset")
OBJECTS = [each for name in FILES for each in read(AGENT / f"{name}.yaml")]
SAMPLE = ROOT / "policies" / "sample.yaml"


def one(kind: str, objects: list[Any] = OBJECTS) -> Any:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def acting() -> Any:
    """The DaemonSet as components/agent-acts patches it."""
    return patched(ACTS, one("DaemonSet"))


def patched(component: Path, item: Any) -> Any:
    """An object as a component patches it (RFC 6902, by a second implementation)."""
    import jsonpatch

    (kustomization,) = read(component / "kustomization.yaml")
    ((patch,),) = [[yaml.safe_load(each["patch"]) for each in kustomization["patches"]]]
    return jsonpatch.apply_patch(item, patch)


def test_every_file_of_the_component_is_used() -> None:
    for folder in (AGENT, ACTS, TAINTS, TURNS, USAGE):
        (kustomization,) = read(folder / "kustomization.yaml")
        files = {file.name for file in folder.iterdir()} - {"kustomization.yaml"}
        assert set(kustomization.get("resources", ())) == files


def test_the_controller_may_write_the_policy_that_it_gives_to_the_agents_and_nothing_else_there() -> None:
    assert "data" not in one("ConfigMap"), "an apply would take the policy away"
    name, namespace = (one("ConfigMap")["metadata"][key] for key in ("name", "namespace"))
    assert f"/api/v1/namespaces/{namespace}/configmaps/{name}" == agents.AGENTS
    (rule,) = one("Role")["rules"]
    assert rule == {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["get", "patch"]}
    account = one("ServiceAccount", read(ROOT / "manifests" / "controller" / "rbac.yaml"))["metadata"]
    (subject,) = one("RoleBinding")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}
    assert one("RoleBinding")["roleRef"]["name"] == one("Role")["metadata"]["name"]


def test_its_rights_are_what_it_reads_and_the_events_that_it_writes() -> None:
    granted = {
        (group, resource): set(rule["verbs"])
        for rule in one("ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    reads = {(each.group, each.plural): {"list", "watch"} for each in node.read("n")}
    assert granted == {**reads, ("events.k8s.io", "events"): {"create", "patch"}}
    (role,) = [each for each in read(ACTS / "rbac.yaml") if each["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]
    (role,) = [each for each in read(TAINTS / "rbac.yaml") if each["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]}]


def test_its_folder_for_temporary_files_is_on_disk() -> None:
    """A folder in memory would count against the limit. The most is 500 pods of 1.5 MB, as etcd stores objects."""
    spec = one("DaemonSet")["spec"]["template"]["spec"]
    (mounted,) = {each["mountPath"] for each in spec["containers"][0]["volumeMounts"] if each["name"] == "tmp"}
    (folder,) = [each["emptyDir"] for each in spec["volumes"] if each["name"] == "tmp"]
    assert Path(mounted) == Path("/", "tmp")  # the first that Python's tempfile tries
    assert folder == {"sizeLimit": "1Gi"}


@pytest.mark.parametrize("order", [(ACTS, TAINTS), (TAINTS, ACTS), (TAINTS,)])
def test_the_component_for_taints_goes_with_the_other_one_in_either_order(order: tuple[Path, ...]) -> None:
    item = one("DaemonSet")
    for component in order:
        item = patched(component, item)
    given = read_command(*item["spec"]["template"]["spec"]["containers"][0]["args"])
    assert (given["taint"], given["watch_only"]) == (True, ACTS not in order)


@pytest.mark.parametrize("acts", [False, True])
def test_its_options_are_those_of_the_command(acts: bool) -> None:
    spec = (acting() if acts else one("DaemonSet"))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    given = read_command(*container["args"])
    assert (given["watch_only"], given["events"], given["listen"][1]) == (not acts, True, 8080)
    (mount,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "policy"]
    (source,) = [each["configMap"] for each in spec["volumes"] if each["name"] == "policy"]
    ((key, path),) = [each.values() for each in source["items"]]
    assert (given["policy"], source["name"]) == (f"{mount}/{path}", one("ConfigMap")["metadata"]["name"])
    assert key == "policy.yaml"  # as the controller writes it (tests/controller)
    assert "NODE_NAME" in {each["name"] for each in container["env"]}
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_network_lets_prometheus_in_and_the_agent_out_to_the_api_server_as_the_webhooks_does() -> None:
    (base,) = read(BASE / "network.yaml")
    spec, pods = one("NetworkPolicy")["spec"], one("DaemonSet")["spec"]["template"]
    assert spec["podSelector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
    assert "hostNetwork" not in pods["spec"], "no NetworkPolicy holds for the host's network"
    _, metrics, _ = base["spec"]["ingress"]
    assert (spec["ingress"], spec["egress"]) == ([metrics], base["spec"]["egress"])
    assert spec["policyTypes"] == base["spec"]["policyTypes"]
    assert {each["name"] for each in pods["spec"]["containers"][0]["ports"]} == {metrics["ports"][0]["port"]}


def test_only_the_one_that_acts_is_privileged_and_has_the_cgroups() -> None:
    for spec, acts in ((one("DaemonSet"), False), (acting(), True)):
        pod = spec["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        paths = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
        assert container["securityContext"].get("privileged", False) is acts
        assert paths == {str(node.LOGS), *(["/sys/fs/cgroup"] if acts else [])}
        assert pod["securityContext"].get("runAsNonRoot", False) is not acts


def test_the_thawer_shares_the_ledger_and_the_cgroups_with_the_agent_and_nothing_else() -> None:
    pod = patched(TURNS, acting())["spec"]["template"]["spec"]
    agents, thawer = pod["containers"]
    mounts = {each["mountPath"] for each in agents["volumeMounts"]} & {
        each["mountPath"] for each in thawer["volumeMounts"]
    }
    assert mounts == {str(ledger.FOLDER), "/sys/fs/cgroup"} == {each["mountPath"] for each in thawer["volumeMounts"]}
    assert thawer["image"] == agents["image"]
    assert read_command(*thawer["args"]) == {"watch": True, "folder": str(ledger.FOLDER), "silence": ledger.SILENCE}
    command, *by_hand = agents["lifecycle"]["preStop"]["exec"]["command"]
    assert (command, read_command(*by_hand)["watch"]) == ("slicewarden", False)
    assert read_command(*agents["args"])["ledger"] == str(ledger.FOLDER)
    assert pod["terminationGracePeriodSeconds"] > thaw.LEAVE_SECONDS


def test_the_component_for_turns_goes_with_the_others_in_either_order() -> None:
    item = patched(TAINTS, patched(TURNS, acting()))
    assert [each["name"] for each in item["spec"]["template"]["spec"]["containers"]] == ["agent", "thawer"]


def test_the_component_for_usage_gives_the_agent_its_folder_and_goes_with_the_others_in_any_order() -> None:
    for order in ((USAGE, TURNS, TAINTS), (TAINTS, TURNS, USAGE)):
        item = acting()
        for component in order:
            item = patched(component, item)
        pod = item["spec"]["template"]["spec"]
        agents = pod["containers"][0]
        given = read_command(*agents["args"])
        assert (given["usage"], given["usage_folder"], given["taint"]) == (True, str(store.FOLDER), True)
        assert str(store.FOLDER) in {each["mountPath"] for each in agents["volumeMounts"]}
        (volume,) = [each["hostPath"] for each in pod["volumes"] if each["name"] == "usage"]
        assert volume == {"path": str(store.FOLDER), "type": "DirectoryOrCreate"}


def policy(tmp_path: Path, *, exempting: bool) -> Any:
    """The sample policy, with its lines for the agent as they are after the comment signs are gone."""
    lines = SAMPLE.read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line == "    # - name: slicewarden-node")
    if exempting:
        for number in range(start, start + 6):
            lines[number] = lines[number].replace("# ", "", 1)
    file = tmp_path / "policy.yaml"
    file.write_text("\n".join(lines))
    return inputs.load_policy(str(file))


def denied(tmp_path: Path, item: Any, *, exempting: bool) -> set[str]:
    request = Request("u", "CREATE", "apps", "v1", "DaemonSet", "", "slicewarden-node", "", None, False, item, None)
    verdict = Engine(policy(tmp_path, exempting=exempting), rules.walk()).judge(request, Facts())
    assert verdict.allowed is exempting
    return {result.rule for result in verdict.results}


@pytest.mark.parametrize(("acts", "turns"), [(False, False), (True, False), (True, True)])
def test_the_sample_policy_admits_it_with_its_exemption_and_names_each_rule_without(
    tmp_path: Path, acts: bool, turns: bool
) -> None:
    item = acting() if acts else one("DaemonSet")
    item = patched(TURNS, item) if turns else item
    expected = {"host-namespaces", "visible-devices", *(["device-path", "privileged-container"] if acts else [])}
    assert denied(tmp_path, item, exempting=False) == expected
    assert denied(tmp_path, item, exempting=True) == expected  # they are recorded


def test_every_path_of_a_node_that_our_manifests_mount_is_refused_to_others() -> None:
    """Whoever may write there may write what our own privileged containers read."""
    texts = [file.read_text("utf-8") for file in (ROOT / "manifests").rglob("*") if file.suffix in (".yaml", ".tpl")]
    paths = {path for text in texts for path in re.findall(r"hostPath:\s*\{?\s*path:\s*([^\s,}]+)", text)}
    assert paths >= {str(node.LOGS), str(ledger.FOLDER), str(store.FOLDER), "/sys/fs/cgroup"}
    assert sum(text.count("hostPath:") for text in texts) == sum(
        len(re.findall(r"hostPath:\s*\{?\s*path:", text)) for text in texts
    )
    assert {path for path in paths if not host_paths.leads_to_gpu(path)} == set()
    harmless = {path for path in paths if not host_paths.leads_to_gpu(path, host_paths.Access.READ)}
    assert harmless == {str(node.LOGS)}, "what the nodes' logs say, and the agent's mount of it is read-only too"


def test_the_names_in_events_and_the_manifests_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "agent.md").read_text("utf-8")
    words = ("GPUNotRequested", "GPUMemoryOver", PAUSED, PAUSE_ENDED, "slicewarden-node", str(ledger.FOLDER))
    for word in (*words, "components/agent-acts", "components/agent-turns"):
        assert word in page
    assert agent.REPORTER == "slicewarden.dev/agent"
