"""An audit of a cluster in which pods were made while nobody looked."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.e2e import control_plane
from tests.e2e.access import allowed, served
from tests.e2e.control_plane import ADMIN, KUBECTL_TIMEOUT, Cluster, User, eventually
from tests.e2e.guard import IDENTITY, MANIFESTS
from tests.e2e.objects import ONE, TRUSTED, Object, pod, template, workload
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api import admission, jsonpatch
from webhook.cluster import listing
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts

PAGE = ROOT / "docs" / "check.md"
ACCOUNT = "slicewarden-system:slicewarden-audit"
SCHEMAS = ROOT / "tests" / "schemas"
TENANT = User("jane", ("tenants",))
TOLERANT = [{"key": "slicewarden.dev/pool", "operator": "Exists"}]
SHARED = {"kubernetes.io/hostname": "t4-shared"}


@dataclass(frozen=True)
class Run:
    """The outcome of a command."""

    status: int
    out: str
    err: str

    @property
    def effects(self) -> dict[str, list[str]]:
        """Return what a change of policy would do, to each object by its kind and name."""
        return {f"{each['kind']}/{each['name']}": each["effects"] for each in json.loads(self.out)["results"]}

    @property
    def sources(self) -> dict[str, dict[str, Any]]:
        """The findings by rule, of each source by its kind and name."""
        return {
            f"{each['kind']}/{each['name']}": {found["rule"]: found for found in each["findings"]}
            for each in json.loads(self.out)["sources"]
        }


def audit(cluster: Cluster, *options: str | Path, user: User = ADMIN) -> Run:
    return audit_with(cluster.kubeconfig(user), *options)


def audit_with(kubeconfig: Path, *options: str | Path) -> Run:
    return slicewarden("audit", "--kubeconfig", kubeconfig, "--policy", POLICY, *options)


def slicewarden(*words: str | Path, stdin: str | None = None) -> Run:
    done = subprocess.run(
        [sys.executable, "-m", "webhook", *words],
        input=stdin,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=KUBECTL_TIMEOUT,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr)


def steered(cluster: Cluster, item: Object) -> Object:
    """A pod as the mutating webhook would have made it."""
    policy = policy_of(POLICY)
    objects, problems = listing.facts(listing.connect(str(cluster.kubeconfig())), [policy])
    assert not problems
    operations = Engine(policy, rules.walk()).mutate(admission.decode(admission.wrap(item)), Facts.of(objects)).patch
    assert operations
    return dict(jsonpatch.apply(item, operations))


def link(folder: Path, name: str) -> str:
    """A way from a folder to one of the manifests, as a kustomization has to write it."""
    return os.path.relpath(MANIFESTS / name, folder.resolve())


@pytest.fixture(scope="module")
def unguarded(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without the webhook, with pods that it would have changed, refused, and let be."""
    with control_plane.running(tmp_path_factory.mktemp("audit"), programs) as cluster:
        cluster.add_nodes()
        cluster.add_namespace("vision", TRUSTED)
        cluster.add_namespace("red")
        spying = pod("spying", "red", {}, tolerations=TOLERANT, nodeSelector=SHARED)
        spying["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        made = [
            workload(
                "Deployment", "train", "red", template(ONE, tolerations=TOLERANT, nodeSelector=SHARED), replicas=2
            ),
            pod("plain", "red", {}),
            spying,
            pod("chosen", "red", {}, nodeName="t4-shared"),
            steered(cluster, pod("mate", "vision", annotations=TRUSTED)),
            workload("Job", "done", "red", template({}, app="done", nodeName="t4-shared")),
        ]
        assert cluster.apply(*made).returncode == 0
        for name, namespace in (("plain", "red"), ("spying", "red"), ("mate", "vision")):
            cluster.node_of(name, namespace)
        cluster.do("wait", "--for=condition=Available", "deployment/train", "--namespace=red", "--timeout=300s")
        cluster.do("wait", "--for=condition=Complete", "job/done", "--namespace=red", "--timeout=300s")
        yield cluster


def test_an_audit_finds_objects_that_the_webhook_never_saw(unguarded: Cluster) -> None:
    """Pods by their workloads, clean ones not at all, and what the scheduler chose held against nobody."""
    done = audit(unguarded, "--format", "json", "--page-size", "2")
    assert (done.status, [line for line in done.err.splitlines() if not line.startswith("note: ")]) == (1, [])
    found = done.sources
    assert {name: [*rules] for name, rules in found.items()} == {
        "Node/t4-shared": ["mixed-trust"],
        "Deployment/train": ["unguarded-container", "unsteered-pod", "misplaced-pod"],
        "Pod/chosen": ["chosen-node", "unguarded-container"],
        "Pod/spying": ["visible-devices"],
    }
    assert len(found["Deployment/train"]["unsteered-pod"]["objects"]) == 2
    assert "vision/mate" in found["Node/t4-shared"]["mixed-trust"]["message"]


def test_the_table_of_an_audit_names_the_same_objects_as_the_json(unguarded: Cluster) -> None:
    done = audit(unguarded)
    assert "denied   Deployment red/train\n" in done.out
    assert "3 would be denied, 2 with warnings, " in done.out
    *_, total, fallback = done.out.splitlines()
    assert total.endswith("findings would be repaired under Deny; 0 errors")
    assert fallback.startswith("fallback: none that the API shows; ")
    assert "plain" not in done.out


def test_an_audit_with_rights_in_one_namespace_says_what_it_could_not_read(unguarded: Cluster) -> None:
    unguarded.do("create", "role", "reader", "--verb=list", "--resource=pods,deployments.apps", "--namespace=red")
    unguarded.do("create", "rolebinding", "reader", "--role=reader", f"--user={TENANT.name}", "--namespace=red")
    allowed(unguarded, TENANT, "list", "deployments.apps", "red")
    done = audit(unguarded, "--namespace", "red", "--format", "json", user=TENANT)
    assert done.status == 2
    assert {"Deployment/train", "Pod/chosen", "Pod/spying"} <= done.sources.keys()
    errors = [each["message"] for each in json.loads(done.out)["errors"]]
    assert any(each.startswith("nodes may not be listed: ") for each in errors)
    assert any(each.startswith("jobs.batch in namespace red may not be listed: ") for each in errors)
    assert not any(each.partition(" ")[0] in ("pods", "deployments.apps") for each in errors)


def test_diff_live_compares_policies_on_the_objects_of_the_cluster(unguarded: Cluster, tmp_path: Path) -> None:
    """The finding speaks of the Deployment's template, and no pod is blamed for the scheduler's choice."""
    text = POLICY.read_text("utf-8")
    for before, after in (
        ('"*": Deny', '"*": Deny\n    chosen-node: Audit\n    unsteered-pod: Warn'),
        ("      sharing: time-slicing\n", "      sharing: time-slicing\n      tenants: {namespaces: [red]}\n"),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    new = tmp_path / "new.yaml"
    new.write_text(text)
    where = ("--live", "--kubeconfig", unguarded.kubeconfig(), "--format", "json")
    there, back = slicewarden("diff", POLICY, new, *where), slicewarden("diff", new, POLICY, *where)
    assert (there.status, there.err, json.loads(there.out)["errors"]) == (0, "", [])
    assert there.effects == {
        "Deployment/train": ["warned"],
        "Pod/chosen": ["freed", "recordedOtherwise"],
        "Pod/mate": ["steeredElsewhere", "warned"],
    }
    assert (back.status, back.effects["Pod/chosen"]) == (1, ["denied", "recordedOtherwise"])
    of_red = slicewarden("diff", POLICY, new, *where, "--namespace", "red")
    assert of_red.status == 0
    assert of_red.effects.keys() == there.effects.keys() - {"Pod/mate"}


def test_the_output_of_kubectl_get_is_checked_as_created(unguarded: Cluster) -> None:
    """No pod is denied for the node that its scheduler gave it, whether or not kubectl shows who wrote what."""
    where = ("get", "pods,deployments,jobs,nodes,namespaces", "--all-namespaces", "--output=json")
    denied = {}
    for shown in ("", "--show-managed-fields"):
        printed = unguarded.do(*where, *filter(None, [shown]))
        done = slicewarden("check", "-", "--policy", POLICY, "--format", "json", stdin=printed)
        report = json.loads(done.out)
        assert report["errors"] == []
        denied[shown] = {
            each["name"]: {found["rule"] for found in each["findings"]}
            for each in report["results"]
            if not each["allowed"] and not each["name"].startswith("done-")
        }
        assert any("as created" in note for note in report["notes"])
        assert any("scheduler is assumed" in note for note in report["notes"]) is (not shown)
    assert denied[""] == denied["--show-managed-fields"]
    assert denied[""].keys() == {"chosen", "done", "spying"}


@pytest.fixture(scope="module")
def auditor(unguarded: Cluster) -> Path:
    """A kubeconfig with the powers that the component gives, and those that its page gives for reports."""
    folder = unguarded.folder / "with-audit"
    folder.mkdir()
    content = {"resources": [link(folder, "overlays/file")], "components": [link(folder, "components/audit")]}
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    rendered = [*yaml.safe_load_all(unguarded.do("kustomize", "--load-restrictor=LoadRestrictionsNone", folder))]
    parts = [each for each in rendered if each["kind"] in (*IDENTITY, "ConfigMap", "CronJob")]
    parts.sort(key=lambda each: bool(each["kind"] != "Namespace"))
    unguarded.add_namespace("gpu-operator")
    made = unguarded.apply(*parts)
    assert made.returncode == 0, made.stderr
    (role,) = re.findall(r"^```yaml\n(apiVersion.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    unguarded.do("apply", "--filename=-", stdin=role)
    bound = "--clusterrole=slicewarden-audit-reports", f"--serviceaccount={ACCOUNT}"
    unguarded.do("create", "clusterrolebinding", "slicewarden-audit-reports", *bound)
    namespace, _, name = ACCOUNT.partition(":")
    account = User(f"system:serviceaccount:{ACCOUNT}")
    for resource in ("nodes", "reports.openreports.io"):  # one of each role
        allowed(unguarded, account, "list", resource)
    return unguarded.kubeconfig_of_account(name, namespace)


def test_the_audit_component_grants_the_rights_that_an_audit_needs(unguarded: Cluster, auditor: Path) -> None:
    done = audit_with(auditor, "--format", "json")
    assert done.status == 1, done.out + done.err
    assert json.loads(done.out)["errors"] == []
    account = User(f"system:serviceaccount:{ACCOUNT}")
    for verb, resource in (("list", "secrets"), ("create", "pods"), ("watch", "pods"), ("delete", "nodes")):
        asked = unguarded.kubectl("auth", "can-i", verb, resource, "--all-namespaces", user=account)
        assert asked.stdout.strip() == "no", (verb, resource)


@pytest.mark.parametrize("form", ["openreports", "policyreport"])
def test_reports_in_the_cluster_appear_and_disappear_with_findings(
    unguarded: Cluster, auditor: Path, form: str
) -> None:
    of_form = {"openreports": ("openreports.io", "reports"), "policyreport": ("wgpolicyk8s.io", "policyreports")}
    group, plural = of_form[form]
    refused = audit_with(auditor, "--write-reports", form)
    assert refused.status == 2
    assert "install the definitions from https://github.com/" in refused.err
    assert len(refused.err.splitlines()) == 1
    for file in sorted(SCHEMAS.glob(f"{group}_*.yaml")):
        unguarded.do("apply", "--server-side", "--filename", file)
        served(unguarded, yaml.safe_load(file.read_text("utf-8"))["metadata"]["name"])

    def reports() -> dict[str, Any]:
        items = unguarded.get(f"{plural}.{group}", "--namespace=red")["items"]
        return {f"{each['scope']['kind']}/{each['scope']['name']}": each for each in items}

    unguarded.apply(pod("passing", "red", {}, nodeName="t4-shared"))
    unguarded.node_of("passing", "red")
    assert eventually(lambda: audit_with(auditor, "--write-reports", form).status == 1)
    found = reports()
    assert {"Pod/chosen", "Pod/spying", "Pod/passing"} <= found.keys()
    assert len(found) == 6  # a report a pod, two of them the Deployment's, which has one: no node fits its selection
    (owner,) = found["Pod/spying"]["metadata"]["ownerReferences"]
    assert owner["uid"] == unguarded.get("pod", "spying", "--namespace=red")["metadata"]["uid"]
    assert found["Pod/spying"]["results"][0]["rule"] == "visible-devices"
    assert [each["scope"]["name"] for each in unguarded.get(f"cluster{plural}.{group}")["items"]] == ["t4-shared"]
    # What says the same is not written again.
    assert audit_with(auditor, "--write-reports", form).status == 1
    versions = {name: each["metadata"]["resourceVersion"] for name, each in reports().items()}
    assert versions == {name: each["metadata"]["resourceVersion"] for name, each in found.items()}
    # A report goes with its object; what another tool wrote stays, and what nothing stands behind does not.
    unguarded.do("delete", "pod", "passing", "--namespace=red", "--force", "--grace-period=0")
    # The garbage collector looks for new kinds once in 30 s, and until then it knows of no report.
    assert eventually(lambda: "Pod/passing" not in reports())
    copy = {key: found["Pod/spying"][key] for key in ("apiVersion", "kind", "scope", "summary", "results")}
    labels = found["Pod/spying"]["metadata"]["labels"]
    stale = {**copy, "metadata": {"name": "stale", "namespace": "red", "labels": labels}}
    other = {**copy, "metadata": {"name": "other", "namespace": "red"}}
    assert unguarded.apply(stale, other).returncode == 0
    assert audit_with(auditor, "--write-reports", form).status == 1
    names = {each["metadata"]["name"] for each in unguarded.get(f"{plural}.{group}", "--namespace=red")["items"]}
    assert "other" in names
    assert "stale" not in names
