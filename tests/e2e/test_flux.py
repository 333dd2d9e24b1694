"""Flux keeps a cluster by a Git repository, as docs/gitops.md says, with the controller at work on the same objects."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests import ROOT
from tests.e2e.control_plane import eventually
from tests.e2e.flux import KUSTOMIZATION, NAMESPACE, Flux
from tests.e2e.flux import programs as flux_programs
from tests.e2e.flux.repository import Repository
from tests.e2e.release import (
    BOTH,
    HOME,
    MORE,
    TEAM,
    Load,
    Object,
    P,
    Q,
    Release,
    digest,
    forbidden,
    honest,
    one_write,
    policy,
    releasing,
)
from tests.support.go_programs import Missing

pytestmark = pytest.mark.thorough
"""It takes four minutes, and seven to build Flux: `make nightly` runs it."""

PAGE = (ROOT / "docs" / "gitops.md").read_text("utf-8")
POLICY, TEAMS = "gpu-policy/policy.yaml", "teams/map.yaml"
NAMES = ("slicewarden", "gpu-policy")
"""The Kustomizations of the page."""


def shown(file: str) -> str:
    """A file as the page shows it."""
    (found,) = re.findall(rf"^```yaml\n(# {re.escape(file)}\n.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def teams(word: str) -> str:
    """Something that has nothing to do with GPUs."""
    metadata = {"name": "teams", "namespace": TEAM}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"word": word}})


class Fleet(NamedTuple):
    """A cluster with Slicewarden, the repository that it is kept by, and Flux, which does that."""

    release: Release
    flux: Flux
    repository: Repository

    def push(self, files: Mapping[str, str | None]) -> str:
        """Commit files, and have Flux read the commit; return it."""
        revision = self.repository.commit(files)
        self.flux.read(revision, "fleet")
        return revision

    def apply(self, value: Object, files: Mapping[str, str] | None = None) -> None:
        """Commit a policy, and wait until Flux says that it is in force."""
        revision = self.push({POLICY: yaml.safe_dump(value), **(files or {})})
        for name in NAMES:
            assert self.flux.tried(name, revision)[0] == "True", self.flux.result(name)

    def in_force(self, value: Object) -> None:
        """Have a policy in force, and in Git, whatever was before."""
        if not self.release.controller:
            self.release.start_controller()
        if self.repository.read(POLICY) != yaml.safe_dump(value) or not self.release.ready(digest(value)):
            self.apply(value, {"count": str(len(self.flux.changed()))})

    def versions(self) -> dict[str, str]:
        """The versions of all that is installed, and of the policy; leases are renewed all the time."""
        listed = self.release.cluster.do("get", "--filename=-", "--output=json", stdin=INSTALLED)
        items = json.loads(listed)["items"] + self.release.cluster.get("gpusharingpolicies")["items"]
        return {
            f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"]
            for each in items
            if each["kind"] != "Lease"
        }


INSTALLED = (ROOT / "manifests" / "install.yaml").read_text("utf-8")


def service_here(release: Release) -> Object:
    """The patch by which API servers reach replicas next to the cluster: the Service has another host's name."""
    spec = {"type": "ExternalName", "externalName": release.host, "ports": [{"port": 443}]}
    operations = [{"op": "replace", "path": "/spec", "value": spec}]
    return {"target": {"kind": "Service", "name": "slicewarden"}, "patch": json.dumps(operations)}


def reasons(release: Release) -> set[str]:
    """The reasons of a policy's conditions so far: each change of the reason is an Event."""
    found = release.cluster.get("events.events.k8s.io", "--namespace=default")["items"]
    return {each["reason"] for each in found if each["regarding"]["kind"] == "GPUSharingPolicy"}


@pytest.fixture(scope="module")
def fleet(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Nothing was installed but Flux, which was given the page's objects; then the nodes start what Flux installed."""
    try:
        flux_programs()
    except Missing as missing:
        pytest.skip(str(missing))
    kustomization = yaml.safe_load(shown("slicewarden/kustomization.yaml"))
    with releasing(tmp_path_factory.mktemp("flux"), programs) as release:
        kustomization["patches"].append(service_here(release))
        repository = Repository(tmp_path_factory.mktemp("git") / "fleet")
        try:
            revision = repository.commit(
                {
                    "slicewarden/kustomization.yaml": yaml.safe_dump(kustomization),
                    "slicewarden/install.yaml": INSTALLED,
                    POLICY: yaml.safe_dump(Q),
                    TEAMS: teams("first"),
                }
            )
            made = Fleet(release, Flux(release.cluster), repository)
            objects = [*yaml.safe_load_all(shown("flux.yaml"))]
            objects[0]["spec"]["url"] = repository.url
            other = {"path": "./teams", "prune": True, "interval": "10m", "sourceRef": objects[1]["spec"]["sourceRef"]}
            objects.append({**objects[1], "metadata": {"name": "teams", "namespace": NAMESPACE}, "spec": other})
            release.apply({"apiVersion": "v1", "kind": "List", "items": objects})
            assert made.flux.tried("slicewarden", revision)[0] == "True", made.flux.result("slicewarden")
            assert eventually(lambda: release.cluster.kubectl("get", "gpusharingpolicy", "sample").returncode == 0)
            release.run()
            assert made.flux.tried("gpu-policy", revision)[0] == "True", made.flux.result("gpu-policy")
            # Flux did not take a policy without a status for one that is in force.
            assert release.ready(digest(Q))
            # Nor did it fail early: the policy was there before any replica, and was never Stalled.
            assert eventually(lambda: "InForce" in reasons(release))
            assert reasons(release) <= {"Changing", "InForce"}
            yield made
        finally:
            repository.close()


def test_the_first_sync_brings_a_policy_into_force(fleet: Fleet) -> None:
    release = fleet.release
    assert release.named() == (digest(Q), digest(Q))
    for server in (0, 1):
        assert release.create(honest(), server) == ""
        assert "NVIDIA_VISIBLE_DEVICES" in release.create(forbidden(), server)


def test_a_commit_changes_the_policy_and_refuses_and_admits_nothing_wrongly(fleet: Fleet) -> None:
    fleet.in_force(Q)
    with Load(fleet.release) as load:
        fleet.apply(P)
        assert fleet.release.ready(digest(P))
        assert eventually(lambda: load.enough)
    assert load.wrong == []
    assert fleet.release.named() == (digest(P), digest(P))


def overlapping() -> Object:
    value = policy()
    value["spec"]["pools"] = [*value["spec"]["pools"], {**value["spec"]["pools"][0], "name": "overlapping"}]
    return value


@pytest.mark.parametrize(
    ("broken", "why"),
    [(policy(mode="Enforced"), "spec.mode"), (policy(spelled="wrongly"), "spelled"), (overlapping(), "overlaps pool")],
    ids=["value", "field", "meaning"],
)
def test_a_broken_policy_is_refused_and_stops_nothing_else(fleet: Fleet, broken: Object, why: str) -> None:
    fleet.in_force(Q)
    before = fleet.release.policy()["metadata"]["resourceVersion"]
    revision = fleet.push({POLICY: yaml.safe_dump(broken), TEAMS: teams(why)})
    status, message = fleet.flux.tried("gpu-policy", revision)
    assert status == "False"
    assert why in message
    for name in ("slicewarden", "teams"):
        assert fleet.flux.tried(name, revision)[0] == "True"
    assert fleet.release.cluster.get("configmap", "teams", f"--namespace={TEAM}")["data"]["word"] == why
    assert fleet.release.policy()["metadata"]["resourceVersion"] == before
    assert fleet.release.named() == (digest(Q), digest(Q))
    fleet.apply(Q)
    assert fleet.release.ready(digest(Q))


def test_a_policy_that_cannot_come_into_force_is_never_ready_and_stops_nothing_else(fleet: Fleet) -> None:
    fleet.in_force(Q)
    elsewhere = policy(**MORE)
    elsewhere["spec"]["sharing"] = {**elsewhere["spec"]["sharing"], "namespaces": ["gpu-operator", "team-x"]}
    fleet.release.cluster.do("create", "namespace", "team-x")
    revision = fleet.push({POLICY: yaml.safe_dump(elsewhere), TEAMS: teams("second")})
    assert fleet.flux.tried("teams", revision)[0] == "True"
    status, message = fleet.flux.tried("gpu-policy", revision)
    assert status == "False"
    assert "GPUSharingPolicy/sample status: 'Failed'" in message
    found = fleet.release.condition("Stalled")
    assert (found["status"], found["reason"]) == ("True", "FactsUnreadable")
    assert fleet.release.named() == (digest(Q), digest(Q))
    fleet.apply(Q)
    assert fleet.release.ready(digest(Q))


def test_a_change_by_hand_is_put_back(fleet: Fleet) -> None:
    """Whoever has the rights may switch it off, or exempt a namespace; at its next interval Flux takes that back."""
    fleet.in_force(Q)
    exemption = {
        "name": "by-hand",
        "namespaces": [TEAM],
        "rules": ["device-path"],
        "reason": "none",
        "until": "2099-01-01",
    }
    patch = json.dumps({"spec": {"mode": "Off", "exemptions": [exemption]}})
    fleet.release.cluster.do("patch", "gpusharingpolicy", "sample", "--type=merge", f"--patch={patch}")
    assert eventually(lambda: fleet.release.named() == ("", ""))
    fleet.flux.reconcile("gpu-policy")
    assert fleet.release.ready(digest(Q))
    assert fleet.release.policy()["spec"] == Q["spec"]


def remove_registration(release: Release) -> None:
    release.cluster.do("delete", BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")


def test_a_registration_that_somebody_deletes_comes_back_through_audit(fleet: Fleet) -> None:
    fleet.in_force(Q)
    remove_registration(fleet.release)
    fleet.flux.reconcile("slicewarden")
    assert eventually(lambda: fleet.release.ready(digest(Q)))
    assert fleet.release.wrote()[-5] == f"validate {digest(Q)}-audit"


def test_in_an_emergency_a_suspended_kustomization_leaves_the_registration_deleted(fleet: Fleet) -> None:
    fleet.in_force(Q)

    def suspend(value: bool) -> None:
        patch = json.dumps({"spec": {"suspend": value}})
        words = ("patch", KUSTOMIZATION, "slicewarden", f"--namespace={NAMESPACE}", "--type=merge")
        fleet.release.cluster.do(*words, f"--patch={patch}")

    suspend(True)
    remove_registration(fleet.release)
    revision = fleet.push({TEAMS: teams("emergency")})
    assert fleet.flux.tried("teams", revision)[0] == "True"
    assert eventually(lambda: fleet.release.condition("Ready").get("reason") == "RegistrationGone")
    assert fleet.release.cluster.get(BOTH, "--selector=app.kubernetes.io/part-of=slicewarden")["items"] == []
    suspend(False)
    assert eventually(lambda: fleet.release.ready(digest(Q)))


def test_flux_and_the_controller_write_nothing_while_git_stays_as_it_is(fleet: Fleet) -> None:
    """They take turns on the same objects, and no version changes: neither undoes the other."""
    fleet.in_force(Q)
    fleet.flux.reconcile(*NAMES)
    running = fleet.versions()
    wrote, changed = fleet.release.wrote(), fleet.flux.changed()
    for _ in range(3):
        fleet.flux.reconcile(*NAMES)
    assert fleet.versions() == running
    fleet.release.cluster.stop(fleet.release.controller)
    for _ in range(3):
        assert one_write(fleet.release) == ""
        fleet.flux.reconcile(*NAMES)
    assert fleet.versions() == running
    assert (fleet.release.wrote(), fleet.flux.changed()) == (wrote, changed)


def leaves(fields: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the fields that a manager owns."""
    for key, below in fields.items():
        if key != ".":
            yield from leaves(below, (*path, key)) if below.keys() - {"."} else [(*path, key)]


def test_flux_owns_no_field_that_the_controller_owns(fleet: Fleet) -> None:
    fleet.in_force(Q)
    fleet.flux.reconcile("slicewarden")  # the test itself has replaced the Service
    words = ("--output=json", "--show-managed-fields")
    items = json.loads(fleet.release.cluster.do("get", "--filename=-", *words, stdin=INSTALLED))["items"]
    items.append(json.loads(fleet.release.cluster.do("get", "gpusharingpolicy", "sample", *words)))
    shared = set[str]()
    for item in items:
        owned: dict[str, set[tuple[str, ...]]] = {}
        for each in item["metadata"]["managedFields"]:
            owned.setdefault(each["manager"], set()).update(leaves(each["fieldsV1"]))
        of_flux = owned.pop("kustomize-controller")
        for manager, others in owned.items():
            assert not others & of_flux, (item["metadata"]["name"], manager)
            shared.add(item["kind"])
    assert {"GPUSharingPolicy", "MutatingWebhookConfiguration", "Secret", "ValidatingWebhookConfiguration"} <= shared


def test_a_renamed_policy_takes_over_when_flux_prunes_the_old_one(fleet: Fleet) -> None:
    fleet.in_force(Q)
    renamed = policy(**MORE, administrators={"users": ["alice"]})
    renamed["metadata"] = {"name": "renamed"}
    with Load(fleet.release, makes=(forbidden,)) as load:
        fleet.apply(renamed)
        assert fleet.release.ready(digest(renamed), "renamed")
    assert load.wrong == []
    assert load.forbidden > 0
    found = fleet.release.cluster.get("gpusharingpolicies")["items"]
    assert [each["metadata"]["name"] for each in found] == ["renamed"]


def test_a_policy_that_git_has_no_longer_is_pruned_and_nothing_is_judged(fleet: Fleet) -> None:
    fleet.in_force(Q)
    revision = fleet.push({POLICY: None, "gpu-policy/kustomization.yaml": shown("gpu-policy/kustomization.yaml")})
    assert fleet.flux.tried("gpu-policy", revision)[0] == "True"
    assert fleet.release.cluster.get("gpusharingpolicies")["items"] == []
    assert eventually(lambda: fleet.release.named() == ("", ""))
    assert eventually(lambda: {fleet.release.create(forbidden(), at, "--dry-run=server") for at in (0, 1)} == {""})
    revision = fleet.push({"gpu-policy/kustomization.yaml": None, POLICY: yaml.safe_dump(Q)})
    assert fleet.flux.tried("gpu-policy", revision)[0] == "True"
    assert fleet.release.ready(digest(Q))


def test_the_removal_by_flux_leaves_only_the_kind(fleet: Fleet) -> None:
    """It comes last. Nothing empties namespaces here, so only what has none can be seen to go."""
    fleet.in_force(Q)
    for name in reversed(NAMES):
        fleet.release.cluster.do("delete", KUSTOMIZATION, name, f"--namespace={NAMESPACE}", "--timeout=300s")
        if name == "gpu-policy":
            assert eventually(lambda: fleet.release.named() == ("", ""))

    def left() -> set[str]:
        words = ("get", "--filename=-", "--output=json", "--ignore-not-found")
        items = json.loads(fleet.release.cluster.do(*words, stdin=INSTALLED))["items"]
        return {each["kind"] for each in items if each["metadata"].get("namespace") != HOME}

    assert eventually(lambda: left() == {"CustomResourceDefinition", "Namespace"}), left()
