"""The Helm chart, rendered by Helm: it is what kustomize installs, and its values do what they say."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.conftest import MANIFESTS, Run
from tests.support.objects import Object
from webhook.fallback import current
from webhook.scan import batches

Kustomized = Callable[[str], list[Object]]
CHART = MANIFESTS / "chart"
HOME = "slicewarden-system"


def template(run: Run, *values: str, namespace: str = HOME) -> list[Object]:
    """Return what the chart renders to."""
    made = run("helm", "template", "slicewarden", CHART, f"--namespace={namespace}", *values)
    assert made.returncode == 0, made.stderr
    return [each for each in yaml.safe_load_all(made.stdout) if each]


def refusal(run: Run, *values: str) -> str:
    """Why the chart does not render."""
    made = run("helm", "template", "slicewarden", CHART, f"--namespace={HOME}", *values)
    assert made.returncode != 0
    return made.stderr


def by_name(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    named = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in objects}
    assert len(named) == len(objects)
    return named


def one(objects: list[Object], kind: str) -> Object:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def test_helm_lint_finds_no_fault(run: Run) -> None:
    linted = run("helm", "lint", "--strict", CHART)
    assert linted.returncode == 0, linted.stdout


def released(run: Run, *values: str) -> dict[tuple[str, str, str], Object]:
    """The chart's objects by their names, without the word to Helm to leave the kind, and so all policies."""
    made = by_name(template(run, *values))
    definition = made["CustomResourceDefinition", "", "gpusharingpolicies.slicewarden.dev"]
    assert definition["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    return made


def elsewhere(overlay: list[Object]) -> dict[tuple[str, str, str], Object]:
    """The objects of an overlay without the namespace, which is there before Helm installs into it."""
    made = by_name(overlay)
    del made["Namespace", "", HOME]
    return made


@pytest.mark.parametrize(("folder", "who"), [("controller", "self"), ("overlays/cert-manager", "cert-manager")])
def test_the_chart_renders_the_same_objects_as_kustomize(
    run: Run, kustomized: Kustomized, folder: str, who: str
) -> None:
    assert released(run, f"--set=certificates={who}") == elsewhere(kustomized(folder))


def test_provided_certificates_are_those_of_cert_manager_without_it(run: Run) -> None:
    by = {who: released(run, f"--set=certificates={who}") for who in ("cert-manager", "provided")}
    assert {kind for kind, _, _ in by["cert-manager"].keys() - by["provided"].keys()} == {"Issuer", "Certificate"}
    changed = {key for key, each in by["provided"].items() if each != by["cert-manager"][key]}
    assert {kind for kind, _, _ in changed} == {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
    for key in changed:
        del by["cert-manager"][key]["metadata"]["annotations"]
        assert by["provided"][key] == by["cert-manager"][key]


def test_nothing_is_judged_by_what_is_installed(run: Run) -> None:
    """The registration is empty until the controller fills it, and the chart has no policy."""
    made = template(run)
    assert not any(each.get("webhooks") for each in made)
    assert {each["kind"] for each in made}.isdisjoint({"ConfigMap", "GPUSharingPolicy", "CronJob"})
    assert current.ours(made)
    assert not any(each["spec"].get("validations") for each in current.ours(made))


@pytest.mark.parametrize("version", ["1.30.0", "1.35.1-gke.100"])
def test_every_version_gets_the_same_objects(run: Run, version: str) -> None:
    """The controller asks the API server what it has; a version says less."""
    assert template(run, f"--kube-version={version}") == template(run)


@pytest.mark.parametrize("namespace", ["default", "elsewhere"])
def test_a_release_of_another_namespace_makes_ours(run: Run, kustomized: Kustomized, namespace: str) -> None:
    made = by_name(template(run, namespace=namespace))
    ours = made.pop(("Namespace", "", HOME))
    assert ours == by_name(kustomized("controller"))["Namespace", "", HOME]
    assert made == by_name(template(run))


@pytest.mark.parametrize(
    "parts", [[], ["acts"], ["acts", "turns"], ["acts", "usage"], ["acts", "turns", "usage"]], ids="-".join
)
def test_the_agent_is_its_components(run: Run, tmp_path: Path, parts: list[str]) -> None:
    more = [f"agent-{part}" for part in parts]
    values = (f"--set=agent.{part}=true" for part in ("enabled", *parts))
    assert released(run, *values) == elsewhere(composed(run, tmp_path, "agent", *more))


def test_the_nightly_proof_is_its_component(run: Run, tmp_path: Path) -> None:
    assert released(run, "--set=prove.enabled=true") == elsewhere(composed(run, tmp_path, "prove"))


def test_the_notes_say_where_the_nightly_proof_reads_the_policy(run: Run) -> None:
    (job,) = [each for each in template(run, "--set=prove.enabled=true") if each["kind"] == "CronJob"]
    volumes = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["volumes"]
    (name,) = [each["configMap"]["name"] for each in volumes if "configMap" in each]
    command = f"kubectl create configmap {name} -n {HOME} --from-file=policy.yaml"
    assert command in notes(run, "--set=prove.enabled=true")
    assert command not in notes(run)


@pytest.mark.parametrize(
    "order",
    [
        ["agent-acts", "agent"],
        ["agent-taints", "agent"],
        ["agent-turns", "agent"],
        ["agent", "agent-turns"],
        ["agent", "agent-usage"],
    ],
)
def test_components_of_the_agent_in_another_order_do_not_render(run: Run, tmp_path: Path, order: list[str]) -> None:
    with pytest.raises(AssertionError, match=r"nothing selected by DaemonSet|test failed"):
        composed(run, tmp_path, *order)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["acts"], "agent.acts needs agent.enabled=true"),
        (["taints"], "agent.taints needs agent.enabled=true"),
        (["acts", "turns"], "agent.acts needs agent.enabled=true"),
        (["turns"], "agent.turns needs agent.enabled=true"),
        (["usage"], "agent.usage needs agent.enabled=true"),
        (["enabled", "turns"], "agent.turns needs agent.acts=true"),
        (["enabled", "usage"], "agent.usage needs agent.acts=true"),
    ],
)
def test_the_chart_refuses_values_of_the_agent_that_would_do_nothing(run: Run, values: list[str], why: str) -> None:
    assert why in refusal(run, *(f"--set=agent.{each}=true" for each in values))


def images(line: str, run: Run, folder: Path, overlay: str, *components: str) -> set[str]:
    """The images of an overlay that has components and a line of its own."""
    objects = composed(run, folder, *components, overlay=overlay, **yaml.safe_load(line or "{}"))
    return set(re.findall(r'"image": "([^"]*)"', json.dumps(objects)))


@pytest.mark.parametrize("overlay", ["controller", "overlays/cert-manager"])
def test_an_overlay_with_the_pages_line_names_the_image_in_the_pods_of_its_components_too(
    run: Run, tmp_path: Path, overlay: str
) -> None:
    page = (MANIFESTS / "README.md").read_text("utf-8")
    line = next(each for each in page.splitlines() if each.startswith("images: "))
    with_pods = ("agent", "agent-acts", "agent-turns", "audit", "prove")
    assert images("", run, tmp_path, overlay, *with_pods) == {"slicewarden:0.1.0"}
    assert images(line, run, tmp_path, overlay, *with_pods) == {"registry.example.com/slicewarden@sha256:..."}


def composed(run: Run, folder: Path, *components: str, overlay: str = "controller", **more: Any) -> list[Object]:
    """An overlay with components and more keys."""
    relative = os.path.relpath(MANIFESTS, folder)
    made_of = {
        "resources": [f"{relative}/{overlay}"],
        "components": [f"{relative}/components/{name}" for name in components],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made_of))
    made = run("kubectl", "kustomize", folder)
    assert made.returncode == 0, made.stderr
    return [*yaml.safe_load_all(made.stdout)]


# Values


def test_the_network_policy_allows_only_the_api_server(run: Run) -> None:
    values = ["networkPolicy.apiServer={203.0.113.7/32,2001:db8::7/128}", "agent.enabled=true"]
    objects = template(run, *(f"--set={each}" for each in (*values, "networkPolicy.monitoringNamespace=watch")))
    specs = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "NetworkPolicy"}
    spec, keeper = specs["slicewarden"], specs["slicewarden-controller"]
    blocks = [{"ipBlock": {"cidr": "203.0.113.7/32"}}, {"ipBlock": {"cidr": "2001:db8::7/128"}}]
    assert spec["ingress"][0] == {"ports": [{"port": "webhook"}], "from": blocks}
    agent = specs["slicewarden-node"]
    assert keeper["egress"].pop()["to"] == [{"podSelector": spec["podSelector"]}]
    for each in (spec, keeper, agent):
        assert each["egress"] == [{"ports": [{"port": 443}, {"port": 6443}], "to": blocks}]
    for rule in (spec["ingress"][1], *agent["ingress"], *keeper["ingress"]):
        (source,) = rule["from"]
        assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "watch"}


def test_the_network_policy_and_the_quota_can_be_left_out(run: Run) -> None:
    kinds = {each["kind"] for each in template(run)}
    left = {each["kind"] for each in template(run, "--set=networkPolicy.enabled=false", "--set=quota=0")}
    assert kinds - left == {"NetworkPolicy", "ResourceQuota"}


def test_values_of_the_chart_reach_its_pods(run: Run) -> None:
    values = ["image=registry.example.com/slicewarden@sha256:00", "replicas=5", "imagePullSecrets[0].name=registry"]
    values += ["tolerations[0].key=infra", "tolerations[0].operator=Exists", "resources.requests.cpu=2"]
    values += ["controller.resources.limits.memory=1Gi", "prove.enabled=true"]
    objects = by_name(template(run, *(f"--set={each}" for each in values)))
    webhook, keeper = (objects["Deployment", HOME, name]["spec"] for name in ("slicewarden", "slicewarden-controller"))
    assert (webhook["replicas"], keeper["replicas"]) == (5, 2)
    pods = [each["template"]["spec"] for each in (webhook, keeper)]
    pods.append(objects["CronJob", HOME, "slicewarden-prove"]["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    for pod in pods:
        assert pod["containers"][0]["image"] == values[0].partition("=")[2]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert pod["tolerations"] == [{"key": "infra", "operator": "Exists"}]
    asked, limited = (each["containers"][0]["resources"] for each in pods[:2])
    assert asked["requests"] == {"cpu": 2, "memory": "192Mi"}
    assert limited == {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "1Gi"}}


@pytest.mark.parametrize(("who", "says"), [("self", False), ("cert-manager", False), ("provided", True)])
def test_the_notes_have_the_next_command_and_what_is_still_to_provide(run: Run, who: str, says: bool) -> None:
    said = notes(run, f"--set=certificates={who}")
    assert "kubectl apply -f policy.yaml" in said
    assert ("slicewarden-tls has to have" in said) is says


def notes(run: Run, *values: str) -> str:
    """What an installation says at its end."""
    made = run("helm", "install", "slicewarden", CHART, f"--namespace={HOME}", "--dry-run=client", *values)
    assert made.returncode == 0, made.stderr
    return made.stdout.partition("NOTES:")[2]


@pytest.mark.parametrize(
    "value",
    ["certificates=none", "policy=x", "repicas=2", "replicas=0", "networkPolicy.apiServer={203.0.113.7}", "image="],
)
def test_the_chart_refuses_values_outside_its_schema(run: Run, value: str) -> None:
    assert "values don't meet the specifications of the schema" in refusal(run, f"--set={value}")


def test_slicewarden_check_renders_the_chart(programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs["helm"].parent))
    monkeypatch.chdir(CHART.parent)
    read = batches.read([CHART.name], "slicewarden-system")
    assert [*read.problems] == []
    kinds = {item.value["kind"]: item for item in read.each(lambda item: item)}
    assert kinds["Deployment"].source.startswith("chart/templates/")
    assert kinds["Deployment"].value["metadata"]["namespace"] == "slicewarden-system"
