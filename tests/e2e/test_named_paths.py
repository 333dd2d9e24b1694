"""Replicas that hold several policies, behind a real API server whose registration names them by its paths."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path as FilePath
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.e2e import control_plane, sending
from tests.e2e.access import established
from tests.e2e.control_plane import ADMIN, Cluster, eventually
from tests.e2e.guard import IDENTITY, MANIFESTS, rendered
from tests.e2e.neighbour import identity, listening_address
from tests.support.policies import RULES
from tests.support.unusable_policies import NULLS, SMALL, unusable
from webhook.controller.terms import POLICIES
from webhook.engine import filled, probe
from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name, Path
from webhook.engine.registration import API_VERSION, NAME
from webhook.policy import load, revisions
from webhook.policy.model import NAMESPACE, Policy

RELEASE = "0.1.0+test"
CONFIGURATIONS = {MUTATE: "MutatingWebhookConfiguration", VALIDATE: "ValidatingWebhookConfiguration"}
ROLE = [
    each
    for each in yaml.safe_load_all((MANIFESTS / "controller" / "rbac.yaml").read_text("utf-8"))
    if each["metadata"]["name"] in ("slicewarden-revisions", "slicewarden-registration")
]
"""What a replica may do besides, to read the revisions and the registration."""


def spelled(name: str, **spec: Any) -> Policy:
    value = yaml.safe_load(SMALL)
    return load.of_object({**value, "metadata": {"name": name}, "spec": {**value["spec"], **spec}}, RULES)


OLD, NEW = spelled("old"), spelled("new", rules={"unsteered-pod": "Audit"})
BOTH = {OLD.digest: OLD, NEW.digest: NEW}
P, Q = Name(OLD.digest), Name(NEW.digest)
FOREIGN: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "foreign", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "c", "resources": {"limits": {"amd.com/gpu": 1}}}]},
}
"""A pod that the old policy denies, and the new one lets in."""
OVERLAPPING = yaml.safe_load(SMALL)
OVERLAPPING["spec"]["pools"][1]["nodes"] = OVERLAPPING["spec"]["pools"][0]["nodes"]
PLAIN = {**FOREIGN, "spec": {"containers": [{"name": "c", "image": "c"}]}}


class Bed:
    """An API server, one replica of two workers beside it, and what stands in for the controller."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._certificate, self._key, self.bundle = identity(cluster.folder, "webhook", "localhost")
        with socket.create_server(listening_address("localhost")) as one, socket.create_server(("127.0.0.1", 0)) as two:
            self._listen, self._health = ("{}:{}".format(*free.getsockname()[:2]) for free in (one, two))
        self.url = f"https://localhost:{self._listen.rpartition(':')[2]}"

    def start(self) -> None:
        account = self.cluster.kubeconfig_of_account("slicewarden", NAMESPACE)
        command: list[str | FilePath] = [sys.executable, "-m", "webhook", "serve", "--live", "--kubeconfig", account]
        command += ["--revisions", NAMESPACE, "--release", RELEASE, "--workers", "2"]
        command += ["--listen", self._listen, "--health-listen", self._health]
        command += ["--tls-cert", self._certificate, "--tls-key", self._key]
        self.cluster.start("webhook", *command, orphaned=signal.SIGTERM)

    def asked(self, page: str) -> tuple[int, str]:
        return sending.page(self._health, page)

    def report(self) -> dict[str, Any]:
        status, text = self.asked("policies")
        found: dict[str, Any] = json.loads(text) if status == 200 else {}
        return found

    def holds(self, *digests: str) -> bool:
        return self.report().get("held") == sorted(digests)

    def put(self, *objects: Mapping[str, Any]) -> None:
        made = self.cluster.apply(*map(dict, objects))
        assert made.returncode == 0, made.stderr

    def fill(self, *paths: Path) -> None:
        """Write the halves of a registration, each as one object, and wait until the API server calls them."""
        for path in paths:
            hooks = filled.webhooks(path, BOTH, self.bundle, url=self.url, user=ADMIN.name)
            self.put(configuration(CONFIGURATIONS[path.half], NAME, hooks))
        wanted = {probe.Proof(path, RELEASE) for path in paths}
        assert eventually(lambda: wanted <= set(self.proofs())), (wanted, self.proofs())

    def patch(self, lease: str = probe.LEASE, *options: str) -> subprocess.CompletedProcess[str]:
        patch = json.dumps({"metadata": {"annotations": {"slicewarden.dev/asked": "now"}}})
        named = ["patch", "lease", lease, f"--namespace={NAMESPACE}", "--type=merge", f"--patch={patch}"]
        return self.cluster.kubectl(*named, *options)

    def proofs(self) -> list[probe.Proof]:
        return probe.heard([self.patch(probe.LEASE, "--dry-run=server").stderr])

    def create(self, item: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        return self.cluster.kubectl("create", "--dry-run=server", "--filename=-", stdin=json.dumps(item))


def configuration(kind: str, name: str, hooks: list[Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "webhooks": hooks}


def namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def lease(name: str) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": NAMESPACE}}


@pytest.fixture(scope="module")
def bed(programs: FilePath, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A replica that holds the old policy, as its registration says."""
    flags = ("--disable-admission-plugins=ServiceAccount",)
    with control_plane.serving(tmp_path_factory.mktemp("paths"), programs, flags=flags) as started:
        own = [each for each in rendered(started) if each["kind"] in IDENTITY]
        made = Bed(started)
        made.put(namespace(NAMESPACE), namespace("gpu-operator"), *own, *ROLE, lease(probe.LEASE), lease("other"))
        made.start()
        yield made


def test_it_is_not_ready_before_its_release_is_admitted_and_holds_what_was_there(bed: Bed) -> None:
    assert eventually(lambda: "is not admitted yet" in bed.asked("readyz")[1])
    assert bed.asked("readyz")[0] == 503
    bed.put(revisions.revision(OLD, NAMESPACE), revisions.releases([RELEASE], NAMESPACE))
    assert eventually(lambda: bed.asked("readyz")[0] == 200), bed.asked("readyz")
    assert eventually(lambda: bed.holds(OLD.digest)), bed.report()
    assert bed.report()["release"] == RELEASE


def test_the_policy_that_the_path_names_answers(bed: Bed) -> None:
    bed.fill(Path(VALIDATE, (P,)), Path(MUTATE, (P,)))
    denied = bed.create(FOREIGN)
    assert "unsteered-pod" in denied.stderr
    assert bed.create(PLAIN).returncode == 0


def test_a_second_policy_is_held_and_lets_in_while_both_are_named_and_then_by_itself(bed: Bed) -> None:
    bed.put(revisions.revision(NEW, NAMESPACE))
    assert eventually(lambda: bed.holds(OLD.digest, NEW.digest)), bed.report()
    assert "unsteered-pod" in bed.create(FOREIGN).stderr
    bed.fill(Path(VALIDATE, (P, Q)))
    assert bed.create(FOREIGN).returncode == 0
    bed.fill(Path(MUTATE, (Q,)))
    bed.fill(Path(VALIDATE, (Q,)))
    assert bed.create(FOREIGN).returncode == 0
    for path in (Path(VALIDATE, (Q, P)), Path(MUTATE, (P,)), Path(VALIDATE, (P,))):
        bed.fill(path)
    assert "unsteered-pod" in bed.create(FOREIGN).stderr


def test_audit_and_lenient_are_manners_of_the_same_policy(bed: Bed) -> None:
    bed.fill(Path(VALIDATE, (Name(OLD.digest, Manner.AUDIT),)))
    assert bed.create(FOREIGN).returncode == 0
    bed.fill(Path(VALIDATE, (Name(OLD.digest, Manner.LENIENT),)))
    assert "unsteered-pod" in bed.create(FOREIGN).stderr
    bed.fill(Path(VALIDATE, (P,)))


def test_the_probe_is_only_sent_for_the_lease_the_dry_run_and_the_account(bed: Bed) -> None:
    assert bed.proofs()
    assert probe.heard([bed.patch("other", "--dry-run=server").stderr]) == []
    assert probe.heard([bed.patch().stderr]) == []
    somebody = ("--as=somebody", "--as-group=system:masters")
    assert probe.heard([bed.patch(probe.LEASE, "--dry-run=server", *somebody).stderr]) == []


def test_a_policy_that_is_not_held_fails_closed_and_proves_nothing(bed: Bed) -> None:
    other = spelled("other")
    named = Path(VALIDATE, (Name(other.digest),))
    hooks = filled.webhooks(named, {other.digest: other}, bed.bundle, url=bed.url, user=ADMIN.name)
    bed.put(configuration(CONFIGURATIONS[VALIDATE], NAME, hooks))
    assert eventually(lambda: "unable to handle the request" in bed.create(FOREIGN).stderr), bed.create(FOREIGN).stderr
    assert not [proof for proof in bed.proofs() if proof.path.half == VALIDATE]
    assert bed.create(PLAIN).returncode == 0
    bed.fill(Path(VALIDATE, (P,)))


def test_a_policy_whose_facts_may_not_be_read_is_not_held_and_the_namespace_is_named(bed: Bed) -> None:
    elsewhere = spelled("elsewhere", sharing={"namespaces": ["team-x"]})
    bed.put(namespace("team-x"), revisions.revision(elsewhere, NAMESPACE))
    assert eventually(lambda: elsewhere.digest in bed.report().get("waiting", {})), bed.report()
    assert "of team-x" in bed.report()["waiting"][elsewhere.digest]
    assert elsewhere.digest not in bed.report()["held"]
    assert bed.asked("readyz")[0] == 200
    bed.cluster.do("delete", "configmap", revisions.name_of(elsewhere.digest), f"--namespace={NAMESPACE}")
    assert eventually(lambda: not bed.report().get("waiting"))
    assert "unsteered-pod" in bed.create(FOREIGN).stderr


@pytest.fixture(scope="module")
def checked(bed: Bed) -> Bed:
    """With the definition and the webhook for policies, which answers."""
    crd = ROOT / "manifests" / "crd" / "gpusharingpolicies.yaml"
    bed.cluster.do("apply", "--server-side", f"--filename={crd}")
    established(bed.cluster, "gpusharingpolicies.slicewarden.dev")
    hook = filled.policy_webhook(bed.bundle, url=bed.url)
    bed.put(configuration(CONFIGURATIONS[VALIDATE], filled.POLICIES, [hook]))
    assert eventually(lambda: "overlaps pool" in bed.create(OVERLAPPING).stderr), bed.create(OVERLAPPING).stderr
    return bed


def test_a_policy_that_cannot_be_used_is_refused_with_path_and_way_out(checked: Bed) -> None:
    refused = checked.create(OVERLAPPING).stderr
    assert "spec.pools[1].nodes: pool" in refused
    assert "give them different values of one label" in refused
    assert checked.create(yaml.safe_load(SMALL)).returncode == 0


STRICT, LOOSE, APPLIED = "strict", "not strict", "server-side apply"
UNTYPED = "failed to create typed patch object"
"""What a server-side apply is told whose fields the definition does not have."""

UNKNOWN_KEYS = {name for name, _, messages in unusable() if messages and all("unknown key" in m for m in messages)}
"""Policies that are usable without the keys that nothing knows. An API server drops such a key if it is not strict."""


def taken(sender: sending.Sender, name: str, value: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield what the API server makes of a policy in each way in which it takes it."""
    for way, method, path, query in (
        (STRICT, "POST", POLICIES, "fieldValidation=Strict"),
        (LOOSE, "POST", POLICIES, "fieldValidation=Ignore"),
        (APPLIED, "PATCH", f"{POLICIES}/small", "fieldValidation=Ignore&fieldManager=tests"),
    ):
        status, answer = sender.send(method, f"{path}?{sending.DRY}&{query}", value, patch=sending.APPLY)
        if status in (200, 201):
            yield (name, way), answer
        else:
            assert status < 500 or UNTYPED in answer["message"], (name, way, answer)


def test_no_client_brings_in_a_policy_that_cannot_be_used(checked: Bed) -> None:
    """Unless it is strict, the API server drops what nothing knows. Null always means that a key is not there."""
    wanted = {(name, LOOSE) for name in UNKNOWN_KEYS | NULLS} | {(name, STRICT) for name in NULLS}
    found: dict[tuple[str, str], Any] = {}

    def only_what_is_dropped(sender: sending.Sender) -> bool:
        found.clear()
        found.update(each for name, value, _ in unusable() for each in taken(sender, name, value))
        return found.keys() == wanted

    with closing(sending.Sender(checked.cluster)) as sender:  # a webhook that is too late lets a policy in
        assert eventually(partial(only_what_is_dropped, sender)), found.keys() ^ wanted
    for answer in found.values():
        load.of_object(answer, RULES)


def test_without_replicas_a_policy_is_applied_set_to_off_and_deleted_and_plain_pods_run(bed: Bed) -> None:
    bed.cluster.stop("webhook")
    bed.put(yaml.safe_load(SMALL))
    bed.cluster.do("patch", "gsp", "small", "--type=merge", '--patch={"spec": {"mode": "Off"}}')
    assert bed.cluster.get("gsp", "small")["spec"]["mode"] == "Off"
    bed.cluster.do("delete", "gsp", "small")
    assert bed.create(PLAIN).returncode == 0
    assert "failed calling webhook" in bed.create(FOREIGN).stderr
