"""The Helm chart, rendered by Helm: it is the overlays, and its values do what they say."""

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
from tests.support.policies import POLICY
from tests.support.registration_contract import broken
from webhook.cli.inputs import load_policy
from webhook.documents.goyaml_writer import write
from webhook.engine.registered import differences
from webhook.engine.registration import configurations
from webhook.fallback import current
from webhook.fallback.answers import ValidationActions
from webhook.fallback.policies import fallback
from webhook.rules import walk
from webhook.scan import batches

Kustomized = Callable[[str], list[Object]]
CHART = MANIFESTS / "chart"
FALLBACK, KUBERNETES = "--set=fallback.enabled=true", "--kube-version=1.35.0"
OVERLAYS = sorted(f"overlays/{each.name}" for each in (MANIFESTS / "overlays").iterdir())


def template(run: Run, *values: str) -> list[Object]:
    """Return what the chart renders to."""
    made = run("helm", "template", "slicewarden", CHART, "--namespace=slicewarden-system", *values)
    assert made.returncode == 0, made.stderr
    return [each for each in yaml.safe_load_all(made.stdout) if each]


def without_helms(objects: list[Object]) -> list[Object]:
    """The objects without what is said to Helm alone: it leaves the policy of before, as an apply does."""
    for each in objects:
        if each["kind"] == "ConfigMap" and each["metadata"]["namespace"] == "slicewarden-system":
            assert each["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    return objects


def refusal(run: Run, *values: str) -> str:
    """Why the chart does not render."""
    made = run("helm", "template", "slicewarden", CHART, "--namespace=slicewarden-system", *values)
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


SHIPPED = {
    "overlays/audit": ("audit", "self"),
    "overlays/enforce": ("enforce", "self"),
    "overlays/cert-manager": ("enforce", "cert-manager"),
}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_chart_renders_the_same_objects_as_the_overlay(run: Run, kustomized: Kustomized, folder: str) -> None:
    """But for the namespace, which is there before."""
    overlay = by_name(kustomized(folder))
    del overlay["Namespace", "", "slicewarden-system"]
    mode, certificates = SHIPPED[folder]
    made = template(run, f"--set=mode={mode}", f"--set=certificates={certificates}")
    assert by_name(without_helms(made)) == overlay


def test_provided_certificates_need_no_keeper(run: Run, kustomized: Kustomized) -> None:
    """It is the base with a policy."""
    objects = by_name([*kustomized("base"), *kustomized("../policies")])
    del objects["Namespace", "", "slicewarden-system"]
    made = by_name(without_helms(template(run, "--set=mode=enforce", "--set=certificates=provided")))
    assert made.keys() == objects.keys()
    (name,) = (name for kind, _, name in made if kind == "ConfigMap")
    deployment = made.pop(("Deployment", "slicewarden-system", "slicewarden"))
    (policy,) = (each for each in deployment["spec"]["template"]["spec"]["volumes"] if each["name"] == "policy")
    assert policy["configMap"].pop("name") == name
    policy["configMap"]["name"] = "slicewarden-policy"
    assert deployment == objects.pop(("Deployment", "slicewarden-system", "slicewarden"))
    assert made == objects


@pytest.mark.parametrize(("acts", "turns"), [(False, False), (True, False), (True, True)])
def test_the_agent_is_its_components_on_an_overlay(run: Run, tmp_path: Path, acts: bool, turns: bool) -> None:
    """They take the overlay's policy, so they are rendered with one."""
    more = [*(["agent-acts"] if acts else []), *(["agent-turns"] if turns else [])]
    objects = by_name(composed(run, tmp_path, "agent", *more))
    del objects["Namespace", "", "slicewarden-system"]
    said = {"agent.enabled": True, "agent.acts": acts, "agent.turns": turns}
    values = ("--set=mode=enforce", *(f"--set={key}={str(value).lower()}" for key, value in said.items()))
    assert by_name(without_helms(template(run, *values))) == objects
    assert (
        objects["ConfigMap", "slicewarden-node", "slicewarden-node-policy"]["data"]["policy.yaml"] == POLICY.read_text()
    )


@pytest.mark.parametrize(
    "order",
    [["agent-acts", "agent"], ["agent-taints", "agent"], ["agent-turns", "agent"], ["agent", "agent-turns"]],
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
        (["enabled", "turns"], "agent.turns needs agent.acts=true"),
    ],
)
def test_the_chart_refuses_values_of_the_agent_that_would_do_nothing(run: Run, values: list[str], why: str) -> None:
    assert why in refusal(run, *(f"--set=agent.{each}=true" for each in values))


def test_the_chart_refuses_the_fallback_on_a_kubernetes_that_has_none(run: Run) -> None:
    assert "fallback.enabled needs Kubernetes 1.35" in refusal(
        run, "--set=fallback.enabled=true", "--kube-version=1.34.9"
    )
    for version in ("1.35.0", "1.35.1-gke.100", "1.36.0"):
        template(run, "--set=fallback.enabled=true", f"--kube-version={version}")


@pytest.mark.parametrize("mode", ["enforce", "audit"])
def test_the_fallback_is_its_component_on_an_overlay(run: Run, tmp_path: Path, mode: str) -> None:
    components = ["fallback", *(["audit-mode"] if mode == "audit" else [])]
    objects = by_name(composed(run, tmp_path, *components))
    del objects["Namespace", "", "slicewarden-system"]
    made = template(run, f"--set=mode={mode}", FALLBACK, KUBERNETES)
    assert by_name(without_helms(made)) == objects
    found = current.ours(made)
    assert len(found) > 10
    wanted = fallback(load_policy(str(POLICY)), walk(), ValidationActions.BY_RULE)
    asked = current.recording(wanted) if mode == "audit" else wanted
    assert current.differences(asked, found, actions=True) == []
    arguments = one(made, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--fallback=ByRule" in arguments
    assert not current.ours(template(run, f"--set=mode={mode}"))


def test_the_fallback_only_records_beside_audit_mode_if_it_is_listed_first(run: Run, tmp_path: Path) -> None:
    """The pages say so. In the other order audit mode's patch does not meet the bindings."""
    assert current.only_records(composed(run, tmp_path, "fallback", "audit-mode"))
    assert ValidationActions.DENY in current.answers(composed(run, tmp_path, "audit-mode", "fallback"))


def images(line: str, run: Run, folder: Path, overlay: str, *components: str) -> set[str]:
    """The images of an overlay that has components and a line of its own."""
    objects = composed(run, folder, *components, overlay=overlay, **yaml.safe_load(line or "{}"))
    return set(re.findall(r'"image": "([^"]*)"', json.dumps(objects)))


@pytest.mark.parametrize("overlay", ["audit", "enforce", "cert-manager"])
def test_an_overlay_with_the_pages_line_names_the_image_in_the_pods_of_its_components_too(
    run: Run, tmp_path: Path, overlay: str
) -> None:
    page = (MANIFESTS / "README.md").read_text("utf-8")
    line = next(each for each in page.splitlines() if each.startswith("images: "))
    with_pods = ("agent", "agent-acts", "agent-turns", "audit")
    assert images("", run, tmp_path, overlay, *with_pods) == {"slicewarden:0.1.0"}
    assert images(line, run, tmp_path, overlay, *with_pods) == {"registry.example.com/slicewarden@sha256:..."}


def composed(run: Run, folder: Path, *components: str, overlay: str = "enforce", **more: Any) -> list[Object]:
    """An overlay with components and more keys."""
    relative = os.path.relpath(MANIFESTS, folder)
    made_of = {
        "resources": [f"{relative}/overlays/{overlay}"],
        "components": [f"{relative}/components/{name}" for name in components],
        **more,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(made_of))
    made = run("kubectl", "kustomize", folder)
    assert made.returncode == 0, made.stderr
    return [*yaml.safe_load_all(made.stdout)]


def test_an_overlay_of_ones_own_needs_nothing_but_the_base_and_components(kustomized: Kustomized) -> None:
    """With another guard: no id stands twice, and nothing of the sample is left."""
    objects = kustomized("examples/gitops")
    by_name(objects)
    policy = load_policy(str(MANIFESTS / "examples" / "gitops" / "policy.yaml"))
    assert differences(policy, objects) == []
    assert "slicewarden.dev/pool" not in json.dumps(objects)
    assert {hook["failurePolicy"] for each in objects for hook in each.get("webhooks", ())} == {"Ignore"}
    ((name, data),) = [(each["metadata"]["name"], each["data"]) for each in objects if each["kind"] == "ConfigMap"]
    assert yaml.safe_load(data["policy.yaml"])["metadata"]["name"] == "acme"
    pods = [
        one(objects, "Deployment")["spec"]["template"],
        one(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"],
    ]
    mounted = [each["configMap"]["name"] for pod in pods for each in pod["spec"]["volumes"] if "configMap" in each]
    assert mounted == [name, name]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_the_registration_of_every_overlay_is_the_policys(kustomized: Kustomized, folder: str) -> None:
    assert differences(load_policy(str(POLICY)), kustomized(folder)) == []


def test_audit_mode_is_the_same_policy_and_registration(kustomized: Kustomized) -> None:
    audit, enforce = by_name(kustomized("overlays/audit")), by_name(kustomized("overlays/enforce"))
    assert audit.keys() == enforce.keys()  # the ConfigMap's name has the hash of the policy
    changed = [key for key in audit if audit[key] != enforce[key]]
    assert sorted(kind for kind, _, _ in changed) == ["Deployment", "ValidatingWebhookConfiguration"]
    arguments = audit["Deployment", "slicewarden-system", "slicewarden"]["spec"]["template"]["spec"]["containers"][0]
    assert arguments["args"][-1] == "--audit-only"


def test_the_default_mode_of_the_chart_is_audit(run: Run) -> None:
    assert template(run) == template(run, "--set=mode=audit", "--set=certificates=self")


@pytest.mark.parametrize("folder", ["examples/gitops", *OVERLAYS])
def test_the_registration_of_every_overlay_keeps_the_contract(kustomized: Kustomized, folder: str) -> None:
    assert broken(kustomized(folder)) == []


@pytest.mark.parametrize("mode", ["audit", "enforce"])
def test_the_registration_of_the_chart_keeps_the_contract(run: Run, mode: str) -> None:
    assert broken(template(run, f"--set=mode={mode}", "--set=caBundle=Y2E=")) == []


# Values


def test_a_bundle_goes_to_every_webhook(run: Run) -> None:
    hooks = [hook for each in template(run, "--set=caBundle=Y2E=") for hook in each.get("webhooks", ())]
    assert {hook["clientConfig"]["caBundle"] for hook in hooks} == {"Y2E="}


def test_the_network_policy_allows_only_the_api_server(run: Run) -> None:
    values = ["networkPolicy.apiServer={203.0.113.7/32,2001:db8::7/128}", "agent.enabled=true"]
    objects = template(run, *(f"--set={each}" for each in (*values, "networkPolicy.monitoringNamespace=watch")))
    specs = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "NetworkPolicy"}
    spec, keeper = specs["slicewarden"], specs["slicewarden-certificates"]
    blocks = [{"ipBlock": {"cidr": "203.0.113.7/32"}}, {"ipBlock": {"cidr": "2001:db8::7/128"}}]
    assert spec["ingress"][0] == {"ports": [{"port": "webhook"}], "from": blocks}
    agent = specs["slicewarden-node"]
    for each in (spec, keeper, agent):
        assert each["egress"] == [{"ports": [{"port": 443}, {"port": 6443}], "to": blocks}]
    for rule in (spec["ingress"][1], *agent["ingress"]):
        (source,) = rule["from"]
        assert source["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "watch"}


def test_the_network_policy_and_the_quota_can_be_left_out(run: Run) -> None:
    kinds = {each["kind"] for each in template(run)}
    left = {each["kind"] for each in template(run, "--set=networkPolicy.enabled=false", "--set=quota=0")}
    assert kinds - left == {"NetworkPolicy", "ResourceQuota"}


def test_values_of_the_chart_reach_its_pods(run: Run) -> None:
    values = ["image=registry.example.com/slicewarden@sha256:00", "replicas=5", "imagePullSecrets[0].name=registry"]
    values += ["tolerations[0].key=infra", "tolerations[0].operator=Exists", "resources.requests.cpu=2"]
    objects = template(run, *(f"--set={each}" for each in values))
    spec = one(objects, "Deployment")["spec"]
    pod = spec["template"]["spec"]
    job = one(objects, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert job["containers"][0]["image"] == pod["containers"][0]["image"]
    assert (job["imagePullSecrets"], job["tolerations"]) == (pod["imagePullSecrets"], pod["tolerations"])
    assert (spec["replicas"], pod["containers"][0]["image"]) == (5, values[0].partition("=")[2])
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["tolerations"] == [{"key": "infra", "operator": "Exists"}]
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": 2, "memory": "192Mi"}


def test_the_chart_makes_roles_in_the_sharing_namespaces(run: Run) -> None:
    objects = template(run, "--set=sharingNamespaces={gpu-operator,nvidia}")
    for kind in ("Role", "RoleBinding"):
        found = [each["metadata"] for each in objects if each["kind"] == kind]
        homes = [each["namespace"] for each in found if each["name"] == "slicewarden"]
        assert homes == ["gpu-operator", "nvidia"]


def test_a_policy_of_ones_own_comes_with_its_registration(run: Run, tmp_path: Path) -> None:
    policy, registration = tmp_path / "policy.yaml", tmp_path / "registration.yaml"
    sample = POLICY.read_text("utf-8")
    policy.write_text(sample.replace("annotation: slicewarden.dev/trust", "annotation: example.com/trust"), "utf-8")
    made = configurations(load_policy(str(policy)))
    registration.write_text("".join("---\n" + write(each) for each in made), "utf-8")
    own = [f"--set-file=policy={policy}", f"--set-file=registration={registration}"]
    modes = {mode: template(run, f"--set=mode={mode}", *own) for mode in ("audit", "enforce")}
    for mode, made_of_it in modes.items():
        (container,) = one(made_of_it, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert ("--audit-only" in container["args"]) is (mode == "audit")
        assert one(made_of_it, "ConfigMap")["data"]["policy.yaml"] == policy.read_text("utf-8")
        assert differences(load_policy(str(policy)), made_of_it) == []
    objects = modes["enforce"]
    found = {each["kind"]: each["webhooks"] for each in objects if "webhooks" in each}
    assert found == {each["kind"]: each["webhooks"] for each in made}
    for alone in own:
        assert "policy and registration are set together" in refusal(run, alone)


def test_a_policy_of_ones_own_comes_with_its_fallback_too(run: Run, tmp_path: Path) -> None:
    sample = POLICY.read_text("utf-8").replace("annotation: slicewarden.dev/trust", "annotation: example.com/trust")
    files = {name: tmp_path / f"{name}.yaml" for name in ("policy", "registration", "fallback")}
    files["policy"].write_text(sample, "utf-8")
    policy = load_policy(str(files["policy"]))
    wanted = fallback(policy, walk(), ValidationActions.DENY)
    for name, made in (("registration", configurations(policy)), ("fallback", wanted)):
        files[name].write_text("".join("---\n" + write(each) for each in made), "utf-8")
    own = [f"--set-file={name}={files[name]}" for name in ("policy", "registration")]
    its = [FALLBACK, f"--set-file=fallback.manifests={files['fallback']}"]
    assert current.differences(wanted, template(run, "--set=mode=enforce", *own, *its, KUBERNETES), actions=True) == []
    for values in ([*own, its[0], KUBERNETES], [*its, KUBERNETES]):
        assert "policy and fallback.manifests are set together" in refusal(run, *values)
    assert "fallback.manifests needs fallback.enabled=true" in refusal(run, *own, its[1])
    files["fallback"].write_text(write(wanted[0]), "utf-8")
    assert "fallback.manifests: needs policies and their bindings" in refusal(run, *own, *its, KUBERNETES)


@pytest.mark.parametrize("text", ["kind: Pod\nmetadata: {}\n", "# nothing\n", "- 1\n", "{"])
def test_the_chart_refuses_a_file_that_is_no_registration(run: Run, tmp_path: Path, text: str) -> None:
    registration = tmp_path / "registration.yaml"
    registration.write_text(text, "utf-8")
    assert "registration: " in refusal(run, "--set=policy=x", f"--set-file=registration={registration}")


def test_a_change_of_policy_is_another_name_and_a_change_of_mode_is_not(run: Run, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.read_text("utf-8").replace("maxReplicas: 8", "maxReplicas: 4"), "utf-8")
    registration = CHART / "files" / "registration.yaml"
    own = [f"--set-file=policy={policy}", f"--set-file=registration={registration}"]
    names = [
        one(template(run, f"--set=mode={mode}", *more), "ConfigMap")["metadata"]["name"]
        for mode in ("audit", "enforce")
        for more in ([], own)
    ]
    assert names[:2] == names[2:]
    assert len({*names}) == 2


@pytest.mark.parametrize(("mode", "says"), [("audit", "in audit mode"), ("enforce", "enforces its policy")])
def test_the_notes_name_the_mode_that_is_in_force(run: Run, mode: str, says: str) -> None:
    made = run(
        "helm",
        "install",
        "slicewarden",
        CHART,
        "--namespace=slicewarden-system",
        "--dry-run=client",
        f"--set=mode={mode}",
    )
    assert made.returncode == 0, made.stderr
    _, _, notes = made.stdout.partition("NOTES:")
    assert says in notes
    assert "--set-file" not in notes


def test_the_chart_refuses_another_namespace(run: Run) -> None:
    made = run("helm", "template", "slicewarden", CHART, "--namespace=elsewhere")
    assert "--namespace slicewarden-system" in made.stderr
    assert made.returncode != 0


@pytest.mark.parametrize(
    "value", ["mode=warn", "repicas=2", "replicas=0", "caBundle=%%", "networkPolicy.apiServer={203.0.113.7}", "image="]
)
def test_the_chart_refuses_values_outside_its_schema(run: Run, value: str) -> None:
    assert "values don't meet the specifications of the schema" in refusal(run, f"--set={value}")


def test_slicewarden_check_renders_the_chart(programs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(programs["helm"].parent))
    monkeypatch.chdir(CHART.parent)
    (refused,) = batches.read([CHART.name], "elsewhere").problems
    assert "install it with --namespace slicewarden-system" in refused.message
    read = batches.read([CHART.name], "slicewarden-system")
    assert [*read.problems] == []
    kinds = {item.value["kind"]: item for item in read.each(lambda item: item)}
    assert kinds["Deployment"].source.startswith("chart/templates/")
    assert kinds["Deployment"].value["metadata"]["namespace"] == "slicewarden-system"
