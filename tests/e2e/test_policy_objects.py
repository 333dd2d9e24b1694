"""Policies as objects of a real API server: what it takes, what it refuses, and what comes back."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.e2e import control_plane, sending
from tests.e2e.access import served
from tests.e2e.control_plane import Cluster
from tests.support.policies import RULES
from tests.support.unusable_policies import NULLS, SMALL, unusable
from webhook.cli.inputs import load_policy
from webhook.controller.terms import POLICIES as AT
from webhook.documents.documents import read
from webhook.memory import frameworks
from webhook.policy import load

CRD = ROOT / "manifests" / "crd" / "gpusharingpolicies.yaml"
POLICIES = sorted(
    file
    for folder in ("policies", "tests/fixtures")
    for file in (ROOT / folder).rglob("*.yaml")
    if "kind: GPUSharingPolicy\n" in file.read_text("utf-8")
)
ONLY_THE_WEBHOOK = frozenset({"overlaps pool", "contradicts itself", "does not tolerate", "no pool named"})
"""What no schema can say, by words of the messages: the webhook for policies says it, and so does the controller."""


@pytest.fixture(scope="module")
def api(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with the definition, and without a webhook."""
    with control_plane.serving(tmp_path_factory.mktemp("policies"), programs) as started:
        started.do("apply", "--server-side", f"--filename={CRD}")
        served(started, "gpusharingpolicies.slicewarden.dev")
        yield started


def policy(file: Path) -> dict[str, Any]:
    documents, _ = read(file.read_text("utf-8"), file.name)
    (found,) = [each.value for each in documents if each.value["kind"] == "GPUSharingPolicy"]
    return dict(found)


def digest(text: str) -> str:
    found, problems = read(text, "p.yaml")
    assert problems == []
    return load.load(found, RULES, "p.yaml", frameworks=frameworks.names()).digest


def create(api: Cluster, value: Any, *options: str) -> subprocess.CompletedProcess[str]:
    shown = value if isinstance(value, str) else json.dumps(value)
    return api.kubectl("create", "--dry-run=server", "--filename=-", *options, stdin=shown)


OBJECTS = [file for file in POLICIES if policy(file)["spec"].get("guard") != "every-pod"]
"""The policies that may be objects: that spelling is one of files, and an object says {everyPod: true}."""


@pytest.mark.parametrize("file", OBJECTS, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_policy_is_taken_and_comes_back_with_the_same_spec_and_digest(api: Cluster, file: Path) -> None:
    value = policy(file)
    made = create(api, value, "--output=json")
    assert made.returncode == 0, made.stderr
    returned = json.loads(made.stdout)
    assert returned["spec"] == value["spec"]
    assert digest(made.stdout) == digest(json.dumps(value))


def test_the_definition_leaves_room_in_the_annotation_of_kubectl() -> None:
    assert len(json.dumps(yaml.safe_load(CRD.read_text("utf-8")), separators=(",", ":"))) < 256 * 1024


def test_what_cannot_be_used_is_refused_but_for_what_only_the_webhook_can_say(api: Cluster) -> None:
    said = {
        name
        for name, _, messages in unusable()
        if messages and all(any(words in line for words in ONLY_THE_WEBHOOK) for line in messages)
    }
    at = f"{AT}?{sending.DRY}&fieldValidation=Strict"
    with closing(sending.Sender(api)) as sender:
        taken = {name for name, value, _ in unusable() if sender.send("POST", at, value)[0] == HTTPStatus.CREATED}
    assert taken == said | NULLS


def test_a_refusal_names_path_and_way_out(api: Cluster) -> None:
    value = yaml.safe_load(SMALL)
    value["spec"]["pools"][0].pop("nodes")
    value["spec"]["overrides"] = [{"pools": ["nowhere"], "rules": {"*": "Warn"}}]
    refused = create(api, value).stderr
    assert "spec.pools[0]: Invalid value" in refused
    assert "nodes and resources are needed, or deviceClasses" in refused
    assert "overrides names a pool that is not in pools; correct the name" in refused


def test_short_name_columns_mode_and_status(api: Cluster) -> None:
    value = {**yaml.safe_load(SMALL), "metadata": {"name": "shown", "labels": {"team": "gpu"}}}
    value["spec"]["mode"] = "Enforce"
    api.do("apply", "--filename=-", stdin=json.dumps(value))
    try:
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "InForce",
            "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
        status = {"digest": "0123456789abcdef", "mode": "Enforce", "replicas": "3/3", "conditions": [condition]}
        patch = json.dumps({"status": status})
        api.do("patch", "gsp", "shown", "--subresource=status", "--type=merge", f"--patch={patch}")
        head, row = api.do("get", "gsp").splitlines()
        assert head.split() == ["NAME", "MODE", "READY", "REASON", "DIGEST", "REPLICAS", "WOULD-DENY", "AGE"]
        assert row.split()[:6] == ["shown", "Enforce", "True", "InForce", "0123456789abcdef", "3/3"]
        api.do("wait", "--for=condition=Ready", "gsp/shown", "--timeout=300s")
        printed = api.do("get", "gsp", "--output=yaml")
        assert digest(printed) == digest(json.dumps({**value, "metadata": {"name": "shown"}}))
        lint = subprocess.run(
            [sys.executable, "-m", "webhook", "policy", "lint", "-"],
            input=printed,
            capture_output=True,
            text=True,
            check=False,
        )
        assert lint.returncode in (0, 1), lint.stderr
        assert "Traceback" not in lint.stderr
    finally:
        api.do("delete", "gsp", "shown")


def test_one_pool_is_changed_by_its_name(api: Cluster) -> None:
    value = {**yaml.safe_load(SMALL), "metadata": {"name": "merged"}}
    api.do("apply", "--server-side", "--field-manager=base", "--filename=-", stdin=json.dumps(value))
    try:
        pool = {key: value["spec"]["pools"][1][key] for key in ("name", "sharing", "trust", "nodes", "resources")}
        mine = {**value, "spec": {"pools": [{**pool, "maxReplicas": 3}]}}
        api.do("apply", "--server-side", "--field-manager=other", "--filename=-", stdin=json.dumps(mine))
        pools = api.get("gsp", "merged")["spec"]["pools"]
        assert [(each["name"], each.get("maxReplicas")) for each in pools] == [("shared", None), ("whole", 3)]
        twice = {**value, "spec": {**value["spec"], "pools": [pool, pool]}}
        assert "Duplicate value" in create(api, {**twice, "metadata": {"name": "twice"}}).stderr
    finally:
        api.do("delete", "gsp", "merged")


FLEET = ROOT / "manifests" / "examples" / "fleet" / "clusters"


def test_kustomize_changes_the_mode_and_one_pool_of_a_cluster_by_its_name(
    api: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = yaml.safe_load(api.do("kustomize", FLEET / "us-2"))
    changed = yaml.safe_load(api.do("kustomize", FLEET / "eu-1"))
    pools = [{each["name"]: each for each in value["spec"]["pools"]} for value in (base, changed)]
    assert pools[0].keys() == pools[1].keys() == {"shared", "whole"}
    assert pools[0]["shared"] == pools[1]["shared"]
    assert [*pools[1]] == [*pools[0]]  # the first pool that fits is used
    labels = pools[1]["whole"]["nodes"]["matchLabels"]
    assert labels == {**pools[0]["whole"]["nodes"]["matchLabels"], "pool": "whole"}
    assert {**pools[1]["whole"], "nodes": {}} == {**pools[0]["whole"], "nodes": {}}
    assert (base["spec"]["mode"], changed["spec"]["mode"]) == ("Audit", "Enforce")
    for value in (base, changed):
        assert create(api, value).returncode == 0
    monkeypatch.setenv("PATH", str(api.binaries))
    for name, value in {"us-2": base, "eu-1": changed}.items():
        assert load_policy(str(FLEET / name)).digest == load.of_object(value, RULES).digest


def test_kustomize_puts_the_pools_of_a_patch_first(api: Cluster, tmp_path: Path) -> None:
    """So a patch names all pools, in their order."""
    shutil.copytree(FLEET.parent, tmp_path / "fleet")
    file = tmp_path / "fleet" / "clusters" / "eu-1" / "kustomization.yaml"
    file.write_text(file.read_text("utf-8").replace("          - name: shared\n", ""), "utf-8")
    changed = yaml.safe_load(api.do("kustomize", file.parent))
    assert [each["name"] for each in changed["spec"]["pools"]] == ["whole", "shared"]
