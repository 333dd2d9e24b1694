"""The manifests as they stand in Git; tests/e2e has them judged by an API server."""

import re
import runpy
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from manifests import make_guard
from tests import ROOT
from tests.support.command_lines import read as read_command
from tests.support.manifests import BASE, COMPONENTS, OVERLAYS, REGISTRATION, powers, read
from tests.support.objects import Object
from tests.support.policies import policy_of
from tests.support.registration_contract import WHOLE_REQUEST
from webhook import rules
from webhook.api.devices import DEVICES
from webhook.api.resources import Resource
from webhook.catalog import workloads
from webhook.cli import inputs
from webhook.cluster import registered, watch
from webhook.controller import fallback as filled
from webhook.doctor.installation import REVIEWS
from webhook.engine import registration
from webhook.facts import kinds, rights
from webhook.facts.kind import BIND, Reach
from webhook.fallback import current
from webhook.fallback.answers import ValidationActions
from webhook.fallback.policies import fallback
from webhook.policy.model import ALONE, Policy
from webhook.serving import fallback_watch

CONTROLLER = ROOT / "manifests" / "controller"

PLURALS = {
    ("", "PodTemplate"): "podtemplates",
    ("", "ReplicationController"): "replicationcontrollers",
    ("apps", "DaemonSet"): "daemonsets",
    ("apps", "Deployment"): "deployments",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("batch", "CronJob"): "cronjobs",
    ("batch", "Job"): "jobs",
}
PODS = {("", "pods"), ("", "pods/ephemeralcontainers"), ("", "pods/resize")}
BINDINGS = {("", "pods/binding"), ("", "bindings")}
NAMESPACES = {("", "namespaces"), ("", "namespaces/status"), ("", "namespaces/finalize")}
NODES = {("", "nodes"), ("", "nodes/status")}
WORKLOADS = {(group, plural) for (group, _), plural in PLURALS.items()}


FILES = [*(file for file in sorted(BASE.glob("*.yaml")) if file.stem != "kustomization"), REGISTRATION]
OBJECTS = [each for file in FILES for each in read(file)]


SHARING = "slicewarden-sharing"


def one(kind: str) -> Object:
    bound = [each for each in OBJECTS if each["metadata"]["name"] not in (rights.ROLE, SHARING)]
    (found,) = [each for each in bound if each["kind"] == kind]
    return found


def hooks(kind: str) -> dict[str, Object]:
    return {each["name"]: each for each in one(f"{kind}WebhookConfiguration")["webhooks"]}


MUTATING, VALIDATING = hooks("Mutating"), hooks("Validating")
CONTAINERS: list[Object] = one("Deployment")["spec"]["template"]["spec"]["containers"]


def expression(hook: Object) -> str:
    condition, *_ = hook["matchConditions"]
    return str(condition["expression"])


def judged(hook: Object) -> dict[tuple[str, str], set[str]]:
    """The operations that a webhook is called for, by group and resource."""
    for rule in hook["rules"]:
        # A cluster that does not serve v1 yet converts nothing to it.
        older = ["v1beta2", "v1beta1"] if rule["apiGroups"] == ["resource.k8s.io"] else []
        assert rule["apiVersions"] == ["v1", *older]
    return {
        (group, resource): set(rule["operations"])
        for rule in hook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


# The whole


def test_every_file_of_the_base_is_used() -> None:
    (kustomization,) = read(BASE / "kustomization.yaml")
    files = {file.name for file in BASE.iterdir()} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files


def test_everything_lives_in_the_namespace_or_in_none() -> None:
    homes = {each["kind"]: each["metadata"].get("namespace") for each in OBJECTS}
    inside = {kind for kind, namespace in homes.items() if namespace == "slicewarden-system"}
    assert inside == {
        *("ServiceAccount", "Deployment", "PodDisruptionBudget", "Service"),
        *("NetworkPolicy", "ResourceQuota"),
    }
    assert {homes[kind] for kind in homes.keys() - inside} == {None}


def test_the_policy_of_the_overlay_without_the_controller_is_where_the_command_looks_for_it() -> None:
    inputs.load_policy(str(REGISTRATION.parent))  # a folder with a kustomization in it can still be used
    (kustomization,) = read(REGISTRATION.parent / "kustomization.yaml")
    (generator,) = kustomization["configMapGenerator"]
    (key,) = [file.partition("=")[0] for file in generator["files"]]
    spec = patched(OVERLAYS / "file", one("Deployment"))["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (volume,) = [each["name"] for each in spec["volumes"] if each.get("configMap") == {"name": generator["name"]}]
    (mount,) = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == volume]
    given = read_command(*container["args"])
    assert (given["policy"], given["revisions"], given["live"]) == (f"{mount}/{key}", None, True)
    (mounted,) = [each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each]
    assert mounted == "slicewarden-tls", "as `slicewarden certs issue --secret` names it"


def patched(folder: Path, item: Object) -> Object:
    """An object as the only patch of a folder changes it (RFC 6902, by a second implementation)."""
    import jsonpatch

    (kustomization,) = read(folder / "kustomization.yaml")
    (patch,) = kustomization["patches"]
    return dict(jsonpatch.apply_patch(item, yaml.safe_load(patch["patch"])))


# What keeps it there


LABELS = {"app.kubernetes.io/name": "slicewarden"}


def test_every_selector_of_the_base_selects_the_same_pods() -> None:
    deployment = one("Deployment")["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"] == LABELS
    assert one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == LABELS
    assert one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == LABELS
    assert one("Service")["spec"]["selector"] == LABELS
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert [each["labelSelector"]["matchLabels"] for each in spread] == [LABELS, LABELS]
    assert [each["topologyKey"] for each in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_one_pod_goes_at_a_time() -> None:
    deployment, budget = one("Deployment")["spec"], one("PodDisruptionBudget")["spec"]
    assert deployment["replicas"] >= 3
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_reviews_in_flight_are_answered_before_the_pod_is_killed() -> None:
    """No longer an endpoint, it waits until that is known everywhere; then it drains for as long as a request lives."""
    spec = one("Deployment")["spec"]["template"]["spec"]
    pause = CONTAINERS[0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > pause + WHOLE_REQUEST


def test_the_quota_allows_the_priority_of_the_pods() -> None:
    quota, deployment = one("ResourceQuota")["spec"], one("Deployment")["spec"]
    (scope,) = quota["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
    assert scope["values"] == [deployment["template"]["spec"]["priorityClassName"]]
    assert int(quota["hard"]["pods"]) >= deployment["replicas"] + deployment["strategy"]["rollingUpdate"]["maxSurge"]


def test_the_network_lets_in_reviews_and_prometheus_and_out_to_the_api_server() -> None:
    spec = one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    reviews, metrics, asked = spec["ingress"]
    assert reviews == {"ports": [{"port": "webhook"}]}
    assert metrics["ports"] == [{"port": "health"}]
    (source,) = metrics["from"]
    assert source == {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    (controller,) = [each["spec"] for each in read(CONTROLLER / "deployment.yaml")]
    assert asked == {"from": [{"podSelector": controller["selector"]}], "ports": [{"port": "health"}]}
    assert spec["egress"] == [{"ports": [{"port": 443}, {"port": 6443}]}]
    assert {"webhook", "health"} == {each["name"] for each in CONTAINERS[0]["ports"]}


# The chart


def test_the_chart_and_the_one_file_are_made_from_the_base() -> None:
    """`make chart` has nothing to write."""
    made = runpy.run_path(str(ROOT / "manifests" / "make_chart.py"))
    for file, text in made["files"]():
        assert file.read_text("utf-8") == text, file.name


def test_the_chart_is_of_this_release() -> None:
    (chart,) = read(ROOT / "manifests" / "chart" / "Chart.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    assert chart["description"] == project["description"]
    (values,) = read(ROOT / "manifests" / "chart" / "values.yaml")
    assert values["image"] == CONTAINERS[0]["image"] == f"slicewarden:{project['version']}"


# What it may do


READING = {"get", "list", "watch"}


def granted(role: Object) -> dict[tuple[str, str], set[str]]:
    assert all(rule.keys() == {"apiGroups", "resources", "verbs"} for rule in role["rules"])
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def reading(read: Iterable[Resource]) -> dict[tuple[str, str], set[str]]:
    return {(each.group, each.plural): READING for each in read}


def test_the_roles_read_what_facts_are_made_of_and_nothing_else() -> None:
    read = reading((*watch.READ, *watch.READ_IF_NEEDED))
    assert granted(one("ClusterRole")) == {**read, (REVIEWS.group, REVIEWS.plural): {"create"}}
    account = {"kind": "ServiceAccount", "name": "slicewarden", "namespace": "slicewarden-system"}
    binding = one("ClusterRoleBinding")
    assert binding["subjects"] == [account]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", "slicewarden")


def test_sharing_configurations_are_read_where_a_policy_brings_a_binding_and_nowhere_else(
    sample_policy: Policy,
) -> None:
    """An installation makes nothing in a namespace that may not exist."""
    (role,) = [each for each in OBJECTS if each["metadata"]["name"] == SHARING]
    assert (role["kind"], granted(role)) == ("ClusterRole", reading(watch.READ_WITHIN))
    for each in filter(None, read(ROOT / "manifests" / "install.yaml")):
        assert each["metadata"].get("namespace") in (None, "slicewarden-system", "default")
        assert each.get("roleRef", {}).get("name") != SHARING
    bindings = read(ROOT / "policies" / "sharing.yaml")
    assert [each["metadata"]["namespace"] for each in bindings] == [*watch.namespaces(sample_policy)]
    home = one("Deployment")["metadata"]["namespace"]
    for each in bindings:
        assert each["roleRef"] == {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role["kind"],
            "name": role["metadata"]["name"],
        }
        assert [subject["name"] for subject in each["subjects"]] == [f"system:serviceaccounts:{home}"]
        name, role_of, group, space = BIND.rpartition("kubectl create rolebinding ")[2].split()
        assert (name, role_of) == (each["metadata"]["name"], f"--clusterrole={SHARING}")
        assert (group, space) == (f"--group=system:serviceaccounts:{home}", "--namespace=NAMESPACE")


def templated(file: Path) -> Iterable[Object]:
    """The roles and bindings in a file. A template of the chart decides only whether they are there."""
    for text in file.read_text("utf-8").split("\n---\n"):
        if re.search(r"^kind: (Cluster)?Role(Binding)?$", text, re.MULTILINE):
            yield yaml.safe_load(re.sub(r"^{{.*}}\n", "", text, flags=re.MULTILINE))


def rules_of_the_controller(found: Iterable[Object]) -> dict[str, list[Object]]:
    """The rules that are bound to its account, by the namespace in which it has them; empty for the whole cluster."""
    own = {"kind": "ServiceAccount", "name": "slicewarden-controller", "namespace": "slicewarden-system"}
    objects = [*found]
    roles = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace", "")): each["rules"]
        for each in objects
        if "rules" in each
    }
    rules: dict[str, list[Object]] = {}
    for each in objects:
        if "roleRef" not in each:
            continue
        assert {subject["kind"] for subject in each["subjects"]} == {"ServiceAccount"}, "a group may have its account"
        if own in each["subjects"]:
            of, space = each["roleRef"], each["metadata"].get("namespace", "")
            assert (each["kind"] == "ClusterRoleBinding") is (space == "")
            at = "" if of["kind"] == "ClusterRole" else space
            rules.setdefault(space, []).extend(roles[of["kind"], of["name"], at])
    return rules


@pytest.mark.parametrize("where", ["controller/*.yaml", "chart/templates/*.yaml", "install.yaml"])
def test_the_controller_creates_and_deletes_nothing_of_the_cluster_and_has_no_right_by_a_wildcard(where: str) -> None:
    rules = rules_of_the_controller(each for file in (ROOT / "manifests").glob(where) for each in templated(file))
    assert rules.keys() - {"slicewarden-node"} == {"", "slicewarden-system", "default"}, (
        "the agents' policy is optional"
    )
    for space, some in rules.items():
        for rule in some:
            assert rule.keys() <= {"apiGroups", "resources", "resourceNames", "verbs"}
            assert not [each for values in rule.values() for each in values if "*" in each]
            verbs = {*rule["verbs"]}
            assert verbs <= READING | {"patch"} | ({"create", "delete"} if space else set()), rule
            if not space and "patch" in verbs:
                assert rule.get("resourceNames") or rule["resources"] == ["gpusharingpolicies/status"], rule
    within = {(space, *power) for space in rules if space for power in powers({"rules": rules[space]})}
    assert {each for each in within if each[-1] in ("create", "delete")} == {
        ("slicewarden-system", "", "configmaps", "create"),
        ("slicewarden-system", "", "configmaps", "delete"),
        ("default", "events.k8s.io", "events", "create"),
    }


def test_the_controller_may_fill_each_policy_of_the_fallback_that_is_installed() -> None:
    roles = [each for each in read(ROOT / "manifests" / "controller" / "rbac.yaml") if each["kind"] == "ClusterRole"]
    rules = [rule for each in roles for rule in each["rules"] if rule["resources"] == ["validatingadmissionpolicies"]]
    assert [sorted(rule["resourceNames"]) for rule in rules if "patch" in rule["verbs"]] == [sorted(filled.NAMES)]


def test_the_role_for_trusted_accounts_gives_that_right_alone_and_nobody_has_it() -> None:
    (role,) = [each for each in OBJECTS if each["metadata"]["name"] == rights.ROLE]
    assert (role["kind"], len(role["rules"])) == ("ClusterRole", 1)
    (rule,) = role["rules"]
    assert rights.giving(role) == [rule]
    assert rule["resourceNames"] == [rights.NAME]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {rights.VERB}
    assert all(each["roleRef"]["name"] != rights.ROLE for each in OBJECTS if each["kind"].endswith("Binding"))


def test_the_token_is_given_to_the_webhook_alone() -> None:
    assert one("ServiceAccount")["automountServiceAccountToken"] is False
    spec = one("Deployment")["spec"]["template"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("slicewarden", True)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container["name"])
def test_containers_are_restricted(container: Object) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} == container["resources"].keys()


def test_the_pod_is_restricted() -> None:
    spec = one("Deployment")["spec"]["template"]["spec"]
    assert spec.keys().isdisjoint({"initContainers", "hostNetwork", "hostPID", "hostIPC"})
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (secret,) = [each["secret"] for each in spec["volumes"] if "secret" in each]
    assert (secret["secretName"], secret["defaultMode"]) == ("slicewarden-serving", 0o444)
    files = [f"/etc/slicewarden/tls/{each['path']}" for each in secret["items"]]
    options = read_command(*CONTAINERS[0]["args"])
    assert files == [str(options["tls_cert"]), str(options["tls_key"])]
    assert all(each["key"] == each["path"] for each in secret["items"])


def test_the_arguments_are_those_of_the_command() -> None:
    (container,) = CONTAINERS
    options = read_command(*container["args"])
    assert (options["live"], options["revisions"]) == (True, one("Deployment")["metadata"]["namespace"])
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"webhook": options["listen"][1], "health": options["health_listen"][1]}


# What it is asked


def test_the_registration_in_git_is_the_sample_policys(sample_policy: Policy) -> None:
    assert read(REGISTRATION) == [*registration.configurations(sample_policy)], "`make chart` writes it again"


def test_an_installation_has_no_policy_and_no_registration_made_from_one() -> None:
    """The controller makes the registration from the policy in force, so no two of them can be combined."""
    texts = [file.read_text("utf-8") for file in (ROOT / "manifests" / "chart" / "templates").glob("*.yaml")]
    empty = 0
    for text in (*texts, *(file.read_text("utf-8") for file in CONTROLLER.glob("*.yaml"))):
        assert "\nkind: GPUSharingPolicy\n" not in text
        for each in text.split("\n---\n"):
            if "WebhookConfiguration\n" in each and "name: slicewarden-policies" not in each:
                assert "\nwebhooks:" not in each
                empty += 1
    assert empty == 2 * 2, "in both, one that mutates and one that validates"


def test_the_fallback_in_git_is_the_sample_policys_by_rule(sample_policy: Policy) -> None:
    made = fallback(sample_policy, rules.walk(), ValidationActions.BY_RULE)
    assert read(ROOT / "policies" / "fallback" / "fallback.yaml") == made, "`make chart` writes it again"


def test_the_webhook_may_read_the_fallback_that_its_component_has_it_watch() -> None:
    (kustomization,) = read(COMPONENTS / "fallback-watch" / "kustomization.yaml")
    ((operation,),) = [yaml.safe_load(each["patch"]) for each in kustomization["patches"]]
    (container,) = patched(OVERLAYS / "file", one("Deployment"))["spec"]["template"]["spec"]["containers"]
    assert read_command(*container["args"], operation["value"])["fallback"] == ValidationActions.BY_RULE
    role, binding = read(COMPONENTS / "fallback-watch" / "rbac.yaml")
    assert granted(role) == {(each.group, each.plural): READING for each in fallback_watch.READ}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == one("ClusterRoleBinding")["subjects"]


def test_an_installed_binding_asks_about_nothing_more_than_its_policy() -> None:
    """The controller may change the policies, so the bindings say the limit: nobody's token can deny other objects.

    Nor can it deny anything to the namespaces that have to start without the webhook. Nodes have no namespace.
    """
    alone = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [*ALONE]}
    found = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in read(CONTROLLER / "fallback.yaml")}
    for (kind, name), spec in found.items():
        if kind.endswith("Binding"):
            asked = found["ValidatingAdmissionPolicy", name]["matchConstraints"]["resourceRules"]
            limit = {} if name == "slicewarden-nodes" else {"namespaceSelector": {"matchExpressions": [alone]}}
            assert spec["matchResources"] == {"resourceRules": asked, **limit}
    assert len(found) == 18


def test_the_command_for_an_emergency_leaves_the_guard_of_the_controller() -> None:
    guard, fallback = (read(CONTROLLER / f"{name}.yaml") for name in ("guard", "fallback"))
    assert current.ours(guard) == []
    assert current.ours(fallback) == fallback
    assert "-l app.kubernetes.io/part-of=slicewarden\n" in (ROOT / "docs" / "operator.md").read_text("utf-8")


def test_the_guard_knows_every_kind_that_a_policy_registers_but_those_that_it_adds() -> None:
    known = {*re.findall(r"'([^']*/[^']*)'", make_guard.variables()["asked"])}
    policies = [policy_of(path) for path in sorted((ROOT / "tests" / "fixtures").glob("*/policy.yaml"))]
    assert len(policies) > 10
    for policy in [*policies, policy_of(ROOT / "policies" / "sample.yaml")]:
        hooks = [registration.mutating(policy), *registration.webhooks(policy)]
        asked = {f"{group}/{each}" for hook in hooks for group, some, _ in hook.rules for each in some}
        added = {
            f"{each.group}/{each.resource}" for key, each in policy.workloads.items() if key not in workloads.WORKLOADS
        }
        assert asked - added <= known


def test_the_registration_goes_to_the_service() -> None:
    (port,) = one("Service")["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, CONTAINERS[0]["ports"][0]["name"])


# The audit, which is a component of its own


def test_the_token_of_a_replica_writes_nothing() -> None:
    """So a compromised replica cannot write what others are led by, such as EndpointSlices, Leases and ConfigMaps."""
    installed = [each for each in read(ROOT / "manifests" / "install.yaml") if each]
    roles = {(each["kind"], each["metadata"]["name"]): each for each in installed if each["kind"].endswith("Role")}
    account = {"kind": "ServiceAccount", "name": "slicewarden", "namespace": "slicewarden-system"}
    bound = [each["roleRef"] for each in installed if account in each.get("subjects", ())]
    assert {each["name"] for each in bound} == {"slicewarden", "slicewarden-registration", "slicewarden-revisions"}
    granted_rules = [rule for each in bound for rule in roles[each["kind"], each["name"]]["rules"]]
    writes = [rule for rule in granted_rules if not {"get", "list", "watch"} >= {*rule["verbs"]}]
    asks = {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
    assert writes == [asks]  # a question, which stores nothing
    assert not {"secrets", "*"} & {resource for rule in granted_rules for resource in rule["resources"]}
    deployments = {each["metadata"]["name"]: each for each in installed if each["kind"] == "Deployment"}
    volumes = deployments["slicewarden"]["spec"]["template"]["spec"]["volumes"]
    assert {each["secret"]["secretName"] for each in volumes if "secret" in each} == {"slicewarden-serving"}


def test_the_audit_may_list_every_kind_that_the_policy_judges_and_nothing_else(sample_policy: Policy) -> None:
    (role,) = [each for each in read(COMPONENTS / "audit" / "rbac.yaml") if each["kind"] == "ClusterRole"]
    allowed = powers(role)
    devices = {("resource.k8s.io", f"{kind.lower()}{'es' if kind.endswith('s') else 's'}") for _, kind in DEVICES}
    workloads = {(each.group, each.resource) for each in sample_policy.workloads.values()}
    facts = {(each.group, each.plural) for each in (*watch.READ, *watch.READ_IF_NEEDED, *kinds.resources(Reach.LISTED))}
    held = {("admissionregistration.k8s.io", plural) for plural in registered.POLICIES}
    assert {(each.group, each.plural) for each in fallback_watch.READ} < held
    assert allowed == {(*each, "list") for each in devices | workloads | facts | held}


def test_the_audit_runs_with_arguments_that_the_command_takes() -> None:
    (job,) = read(COMPONENTS / "audit" / "cronjob.yaml")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    chosen = read_command(*container["args"])
    assert (chosen["fail_on"], chosen["write_reports"]) == ("never", None)
    (_, _, path, *_) = container["args"]
    assert Path(path).parent in {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    assert chosen["page_size"] == watch.SMALL_PAGE


# The proof, another component


def test_the_proof_may_list_facts_and_create_pods_that_a_policy_keeps_to_dry_runs() -> None:
    roles = [each for each in read(COMPONENTS / "prove" / "rbac.yaml") if each["kind"] == "ClusterRole"]
    lists, probes = map(powers, roles)
    facts = {(each.group, each.plural) for each in (*watch.READ, *watch.READ_IF_NEEDED, *kinds.resources(Reach.LISTED))}
    assert lists == {(*each, "list") for each in facts - {("", "pods")}}
    halves = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    assert probes == {("", "pods", "create"), *(("admissionregistration.k8s.io", each, "get") for each in halves)}
    (policy, binding) = read(COMPONENTS / "prove" / "dry-runs.yaml")
    (account,) = [each for each in read(COMPONENTS / "prove" / "rbac.yaml") if each["kind"] == "ServiceAccount"]
    name = f"system:serviceaccount:{account['metadata']['namespace']}:{account['metadata']['name']}"
    assert f'"{name}"' in policy["spec"]["matchConditions"][0]["expression"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == (
        policy["metadata"]["name"],
        ["Deny"],
    )


def test_the_proof_runs_with_arguments_that_the_command_takes() -> None:
    (job,) = read(COMPONENTS / "prove" / "cronjob.yaml")
    spec = job["spec"]["jobTemplate"]["spec"]
    assert spec["backoffLimit"] == 0, "a second run would hide the first"
    (container,) = spec["template"]["spec"]["containers"]
    chosen = read_command(*container["args"])
    assert chosen["verify"] is None
    assert Path(container["args"][2]).parent in {Path(mount["mountPath"]) for mount in container["volumeMounts"]}
