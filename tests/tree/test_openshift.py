"""The manifests under OpenShift's `restricted-v2`, by the rules of that constraint. OpenShift itself is not asked.

The module of its admission cannot be had from Go's proxy, so no test here runs it. Once, by hand, these rules were
compared with its code (openshift/apiserver-library-go a8019f39, AssignSecurityContext, under the constraint of
openshift/cluster-kube-apiserver-operator c813e820): on every pod and change below, and on 25,000 random pods, both
refused the same ones, but for sysctls, of which it lets the safe ones through.

Source: openshift/cluster-kube-apiserver-operator bindata/bootkube/scc-manifests/
0000_20_kube-apiserver-operator_00_scc-restricted-v2.yaml, and openshift/apiserver-library-go
pkg/securitycontextconstraints for what each field of it refuses.
"""

import copy
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.support.policies import POLICY
from webhook import lints, rules
from webhook.api import admission
from webhook.documents.documents import read
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.memory import frameworks
from webhook.model import Action
from webhook.policy import load

Object = dict[str, Any]

VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
RANGE = range(1_000_620_000, 1_000_630_000)
"""The users of a namespace, as its annotation openshift.io/sa.scc.uid-range gives them. The first is its group."""


def refusals(spec: Object) -> Iterator[str]:
    """Yield what restricted-v2 refuses of a pod."""
    pod = spec.get("securityContext") or {}
    yield from (key for key in ("hostPID", "hostIPC", "hostNetwork") if spec.get(key))
    yield from (f"volume {kind}" for each in spec.get("volumes", ()) for kind in each.keys() - {"name"} - VOLUMES)
    yield from (f"fsGroup {each}" for each in [pod.get("fsGroup")] if each not in (None, RANGE[0]))
    yield from ("sysctls" for _ in pod.get("sysctls", ()))
    containers = (*spec["containers"], *spec.get("initContainers", ()))
    for each in (pod, *(container.get("securityContext") or {} for container in containers)):
        yield from ("seLinuxOptions" for _ in [0] if "seLinuxOptions" in each)
        yield from ("seccompProfile" for _ in [0] if each.get("seccompProfile", {}).get("type") not in (None, DEFAULT))
    for container in containers:
        own = {"runAsUser": pod.get("runAsUser"), **(container.get("securityContext") or {})}
        yield from ("privileged" for _ in [0] if own.get("privileged"))
        yield from ("allowPrivilegeEscalation" for _ in [0] if own.get("allowPrivilegeEscalation"))
        yield from (f"runAsUser {each}" for each in [own.get("runAsUser")] if not (each is None or each in RANGE))
        capabilities = own.get("capabilities") or {}
        yield from (f"capability {each}" for each in capabilities.get("add", ()) if each != "NET_BIND_SERVICE")
        yield from ("hostPort" for port in container.get("ports", ()) if port.get("hostPort"))


DEFAULT = "RuntimeDefault"


def pods() -> Iterator[tuple[str, Object]]:
    """Every pod of the manifests, by the file and the name of what makes it."""
    for file in sorted((ROOT / "manifests").rglob("*.yaml")):
        if "{{" in (text := file.read_text("utf-8")):
            continue  # a template of the chart, which tests/chart compares with these
        for each in yaml.safe_load_all(text):
            spec = (each or {}).get("spec") or {}
            spec = spec.get("jobTemplate", {}).get("spec") or spec
            template = spec.get("template") if isinstance(spec, dict) else None
            if isinstance(template, dict) and "containers" in template.get("spec", {}):
                yield f"{file.relative_to(ROOT / 'manifests')} {each['metadata']['name']}", template["spec"]


PODS = dict(pods())
AGENT = "components/agent/daemonset.yaml slicewarden-node"


def test_the_manifests_have_these_pods() -> None:
    names = {name.partition(" ")[2] for name in PODS}
    assert names >= {"slicewarden", "slicewarden-controller", "slicewarden-node"}
    assert len(PODS) > len(names), "install.yaml has them too"


@pytest.mark.parametrize("name", PODS)
def test_all_but_the_agent_run_under_restricted_v2(name: str) -> None:
    if name == AGENT:
        assert {"hostPID", "volume hostPath"} <= {*refusals(PODS[name])}, "docs/openshift.md says what it needs"
    else:
        assert [*refusals(PODS[name])] == []


CHANGES: dict[str, Callable[[Object], Any]] = {
    "fsGroup 65532": lambda spec: spec["securityContext"].update(fsGroup=65532),
    f"fsGroup {RANGE[1]}": lambda spec: spec["securityContext"].update(fsGroup=RANGE[1]),
    "runAsUser 65532": lambda spec: spec["securityContext"].update(runAsUser=65532),
    "runAsUser 0": lambda spec: spec["containers"][0]["securityContext"].update(runAsUser=0),
    "privileged": lambda spec: spec["containers"][0]["securityContext"].update(privileged=True),
    "volume hostPath": lambda spec: spec.setdefault("volumes", []).append({"name": "x", "hostPath": {"path": "/"}}),
    "seLinuxOptions": lambda spec: spec["securityContext"].update(seLinuxOptions={"level": "s0"}),
    "seccompProfile": lambda spec: spec["securityContext"].update(seccompProfile={"type": "Unconfined"}),
    "capability SYS_ADMIN": lambda spec: spec["containers"][0]["securityContext"].update(
        capabilities={"add": ["SYS_ADMIN"]}
    ),
    "hostPort": lambda spec: spec["containers"][0]["ports"].append({"containerPort": 1, "hostPort": 1}),
    "hostPID": lambda spec: spec.update(hostPID=True),
}


@pytest.mark.parametrize("refused", CHANGES)
def test_what_the_constraint_refuses_is_seen(refused: str) -> None:
    spec = copy.deepcopy(PODS["base/deployment.yaml slicewarden"])
    CHANGES[refused](spec)
    assert [*refusals(spec)] == [refused]


def test_a_user_that_is_chosen_reads_the_key_and_one_that_the_image_names_too() -> None:
    """No group of the pod owns the volume, so its files are for everybody in it; and it is in one container alone."""
    spec = PODS["base/deployment.yaml slicewarden"]
    (secret,) = (each["secret"] for each in spec["volumes"] if "secret" in each)
    assert secret["defaultMode"] & 0o004
    assert not secret["defaultMode"] & 0o222
    assert len(spec["containers"]) == 1
    assert spec["securityContext"]["runAsNonRoot"]


def blocks() -> list[Object]:
    """The policies' parts that docs/openshift.md shows."""
    parts = (ROOT / "docs" / "openshift.md").read_text("utf-8").split("```yaml\n")[1:]
    return [yaml.safe_load(part.partition("```")[0]) for part in parts]


def test_the_overrides_of_the_page_let_a_workbench_through_and_nobody_else() -> None:
    (override,) = [block["spec"]["overrides"] for block in blocks() if "overrides" in block["spec"]]
    value = yaml.safe_load(POLICY.read_text("utf-8"))
    value["spec"]["overrides"] = override
    (document,), _ = read(yaml.safe_dump(value), "policy.yaml")
    policy, _ = load.load_with_document([document], rules.releases(), "policy.yaml", frameworks=frameworks.names())
    linted = lints.lint(policy, document, Facts.of([]), date(2026, 1, 1), timedelta(30))
    assert "idle-override" not in {result.rule for result in linted.judged[0].verdict.results}
    labels = {"opendatahub.io/dashboard": "true"}
    known = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": own}}
        for name, own in (("workbench", labels), ("other", {}))
    ]
    facts = Facts.of(known)
    for namespace, allowed in (("workbench", True), ("other", False)):
        for more, passes in (({}, allowed), ({"hostPID": True}, False)):
            container: Object = {"name": "notebook", "image": "i", "envFrom": [{"secretRef": {"name": "s3"}}]}
            container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "wb-0", "namespace": namespace},
                "spec": {"containers": [container], **more},
            }
            verdict = Engine(policy, rules.walk()).judge(admission.decode(admission.wrap(pod)), facts)
            assert verdict.allowed is passes, [result.text for result in verdict.results]
            assert "unread-variables" in {each.rule for each in verdict.having(Action.WARN if allowed else Action.DENY)}
