"""A run that brings a Namespace with trust and its pods is told of; a namespace that is known to have it is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.policies import FACTS, OPTIONS, POLICY
from webhook.cli import main as cli

LABELS = "{slicewarden.dev/trust: trusted}"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: fresh}\nspec: {containers: [{name: c}]}\n"


def namespace(labels: str) -> str:
    return f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: fresh, labels: {labels}}}\n"


@pytest.mark.parametrize(
    ("there", "brought", "told"),
    [
        (None, LABELS, True),
        ("{}", LABELS, True),
        ("{slicewarden.dev/trust: no}", LABELS, True),
        (LABELS, LABELS, False),
        (LABELS, "{}", False),
        (None, "{team: a}", False),
        (None, None, False),
    ],
)
def test_trust_that_comes_with_its_pods_is_told_of(
    there: str | None, brought: str | None, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files: dict[str, Any] = {"pod.yaml": POD, "namespace.yaml": brought and namespace(brought)}
    for name, text in files.items():
        (tmp_path / name).write_text(text or "a: 1\n")
    options = [*OPTIONS]
    if there is not None:
        (tmp_path / "facts").mkdir()
        (tmp_path / "facts/known.yaml").write_text(namespace(there))
        options += ["--facts", str(tmp_path / "facts/known.yaml")]
    paths = [str(tmp_path / "pod.yaml"), *([str(tmp_path / "namespace.yaml")] if brought else [])]
    assert cli.main(["check", *paths, *options, "--format", "json"]) == 0
    said = [each["message"] for each in json.loads(capsys.readouterr().out)["warnings"]]
    assert [message for message in said if "grants trust there" in message] == said
    assert len(said) == told
    assert all("slicewarden.dev/trust=trusted" in each and "has to approve" in each for each in said)


ROLE = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: t, namespace: fresh}
rules: [{apiGroups: [slicewarden.dev], resources: [trustlevels], resourceNames: [trusted], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: t, namespace: fresh}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: t}
subjects: [{kind: ServiceAccount, name: default, namespace: fresh}]
"""


@pytest.mark.parametrize(
    ("there", "brought", "rbac", "told"),
    [
        (False, ROLE, True, 1),
        (True, ROLE, True, 0),
        (False, ROLE, False, 0),
        (False, ROLE.replace("[use]", "[get]"), True, 0),
        (False, ROLE.replace("name: default, namespace: fresh", "name: default, namespace: other"), True, 0),
        (True, ROLE.replace("name: default", "name: other"), True, 1),
    ],
)
def test_a_right_that_comes_with_its_pods_is_told_of(
    there: bool, brought: str, rbac: bool, told: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = POLICY.read_text("utf-8").replace("    grants:\n", f"    grants:\n{'      - rbac: true' * rbac}\n")
    for name, text in {"policy": policy, "pod": POD, "role": brought, "known": ROLE}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    facts = ["--facts", str(FACTS), *(["--facts", str(tmp_path / "known.yaml")] if there else [])]
    paths = [str(tmp_path / "pod.yaml"), str(tmp_path / "role.yaml")]
    assert cli.main(["check", *paths, "--policy", str(tmp_path / "policy.yaml"), *facts, "--format", "json"]) == 0
    said = [each["message"] for each in json.loads(capsys.readouterr().out)["warnings"]]
    assert [message for message in said if "trustlevels.slicewarden.dev/trusted in namespace fresh" in message] == said
    assert len(said) == told
