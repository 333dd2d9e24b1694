"""A policy as an object of a cluster: its mode, its digest, and the text that `kubectl get -o yaml` prints."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.support.policies import POLICY, RULES
from webhook.cli import root
from webhook.cli.commands import serve
from webhook.documents.documents import read
from webhook.engine import registration
from webhook.memory import frameworks
from webhook.model import Unusable
from webhook.policy import load
from webhook.policy.model import Guard, Policy, Switch

SAMPLE: dict[str, Any] = yaml.safe_load(POLICY.read_text("utf-8"))


def policy_of(value: Any) -> Policy:
    documents, problems = read(json.dumps(value), "policy.yaml")
    assert not problems
    return load.load(documents, RULES, "policy.yaml", frameworks=frameworks.names())


def with_spec(**more: Any) -> dict[str, Any]:
    return {**SAMPLE, "spec": {**SAMPLE["spec"], **more}}


def stored(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object as an API server gives it back."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    server = {
        "uid": "4e0e1b9f-8f0f-4f5c-9d06-b3f6c5d6c3a1",
        "resourceVersion": "12",
        "generation": 3,
        "creationTimestamp": at,
        "managedFields": [{"manager": "kubectl", "operation": "Apply"}],
        "annotations": {"argocd.argoproj.io/tracking-id": "gpus:slicewarden.dev/GPUSharingPolicy:/sample"},
        "labels": {"team": "gpu"},
    }
    status = {"observedGeneration": 3, "conditions": [{"type": "Ready", "status": "True"}]}
    return {**value, "metadata": {**value["metadata"], **server}, "status": status}


@pytest.mark.parametrize("mode", [None, *Switch])
def test_no_mode_no_label_and_no_field_of_the_server_changes_the_digest(mode: Switch | None) -> None:
    changed = policy_of(stored(with_spec(mode=str(mode)) if mode else SAMPLE))
    assert changed.digest == policy_of(SAMPLE).digest
    assert changed.mode is mode


def test_another_spec_or_another_name_has_another_digest() -> None:
    renamed = {**SAMPLE, "metadata": {**SAMPLE["metadata"], "name": "other"}}
    digests = {policy_of(each).digest for each in (SAMPLE, renamed, with_spec(leaveAlone=["a"]))}
    assert len(digests) == 3


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Unusable, match=r"spec\.mode: must be one of Audit, Enforce, Off, found "):
        policy_of(with_spec(mode="enforce"))


def test_the_list_that_kubectl_prints_is_read_as_its_item_with_its_own_lines() -> None:
    item = stored(with_spec(mode="Audit"))
    printed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [item], "metadata": {"resourceVersion": ""}})
    documents, _ = read(printed, "-")
    assert load.load(documents, RULES, "-", frameworks=frameworks.names()).digest == policy_of(SAMPLE).digest
    wrong = printed.replace("mode: Audit", "mode: Adit")
    documents, _ = read(wrong, "-")
    with pytest.raises(Unusable) as caught:
        load.load(documents, RULES, "-", frameworks=frameworks.names())
    (problem,) = caught.value.problems
    assert "mode: Adit" in wrong.splitlines()[problem.line - 1]


def test_a_list_of_two_policies_is_refused() -> None:
    other = {**SAMPLE, "metadata": {"name": "other"}}
    with pytest.raises(Unusable, match="a second policy"):
        policy_of({"apiVersion": "v1", "kind": "List", "items": [SAMPLE, other]})


def test_the_commands_read_from_a_pipe_what_kubectl_prints() -> None:
    printed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [stored(with_spec(mode="Enforce"))]})
    result = CliRunner().invoke(root.root, ["policy", "lint", "-"], input=printed)
    assert result.exit_code == 0, result.output


def test_an_object_is_read_without_a_file_and_its_problems_have_path_and_way_out() -> None:
    policy = load.of_object(stored(with_spec(mode="Off")), RULES, frameworks=frameworks.names())
    assert (policy.digest, policy.mode) == (policy_of(SAMPLE).digest, Switch.OFF)
    wrong = with_spec(rules={"multiple-slice": "Deny"})
    with pytest.raises(Unusable) as caught:
        load.of_object(wrong, RULES)
    (problem,) = caught.value.problems
    assert problem.message == "spec.rules.multiple-slice: unknown rule, did you mean multiple-slices?"


def test_the_guard_of_every_pod_may_be_a_map_and_the_old_spelling_is_the_same() -> None:
    old, new = policy_of(with_spec(guard="every-pod")), policy_of(with_spec(guard={"everyPod": True}))
    assert old.guard == new.guard == Guard(None)
    with pytest.raises(Unusable, match=r"spec\.guard: has a taint and everyPod; keep one of them"):
        policy_of(with_spec(guard={"everyPod": True, "taint": {"key": "example.com/gpus"}}))
    with pytest.raises(Unusable, match=r"spec\.guard: one of taint, everyPod is needed"):
        policy_of(with_spec(guard={}))


def test_the_registration_of_a_file_fails_nothing_in_audit_and_asks_nothing_where_it_is_off() -> None:
    def hooks(mode: str) -> list[Any]:
        made = registration.configurations(policy_of(with_spec(mode=mode)))
        return [hook for configuration in made for hook in configuration["webhooks"]]

    assert {hook["failurePolicy"] for hook in hooks("Audit")} == {"Ignore"}
    assert "Fail" in {hook["failurePolicy"] for hook in hooks("Enforce")}
    assert hooks("Off") == []


@pytest.mark.parametrize(
    ("mode", "served"), [(None, "enforce"), ("Enforce", "enforce"), ("Audit", "audit"), ("Off", "audit")]
)
def test_a_file_is_served_in_the_mode_that_it_names(tmp_path: Path, mode: str | None, served: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(with_spec(mode=mode) if mode else SAMPLE), "utf-8")
    says, _ = serve.from_files(str(file))
    assert says["mode"] == served
