"""Certificates of a cluster, kept by the powers that the controller has: GPU pods are let in all the while."""

import base64
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

import certs
from certs.life import rotate
from certs.read import blocks, certificates
from tests.e2e import control_plane
from tests.e2e.access import established
from tests.e2e.control_plane import KUBECTL_TIMEOUT, Cluster, User, eventually
from tests.e2e.guard import IDENTITY, MANIFESTS, MUTATE, VALIDATE, Guard, rendered
from tests.e2e.objects import Object, pod
from tests.support.streams import Stream
from webhook.cluster import client as connection
from webhook.cluster.cert_store import ClusterStore, ObjectNames

HOME = "slicewarden-system"
NAMES = ObjectNames(HOME, "slicewarden-ca", "slicewarden-serving", "slicewarden")
ACCOUNT = User(f"system:serviceaccount:{HOME}:slicewarden-controller", ("system:serviceaccounts",))
CONFIGURATIONS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
OVERLAP = timedelta(seconds=6)
"""As long as our API server needs to see a changed configuration, and our webhook a changed file, many times over."""


class Kept(Guard):
    """A webhook whose certificate lies where a kubelet would put it."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.install(*(each for each in rendered(cluster, "controller") if each["kind"] in (*IDENTITY, "Secret")))
        self.tls = cluster.folder / "tls"
        self.tls.mkdir()
        self._certificate, self._key = self.tls / "tls.crt", self.tls / "tls.key"
        self.account = cluster.kubeconfig_of_account("slicewarden-controller", HOME)
        self.terms = certs.Terms((*certs.service_names("slicewarden", HOME), "localhost"), overlap=OVERLAP)
        self.hooks = sum(len(each["webhooks"]) for each in self.registration())
        self.store = ClusterStore(connection.connect(str(self.account)), NAMES, print)

    def keep(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the command with the powers of the controller."""
        named = () if "--kubeconfig" in options else ("--kubeconfig", str(self.account))
        command = [sys.executable, "-m", "webhook", "certs", "keep", *named]
        return subprocess.run(
            [*command, "--dns", "localhost", *options],
            cwd=MANIFESTS.parent,
            capture_output=True,
            text=True,
            timeout=KUBECTL_TIMEOUT,
            check=False,
        )

    def kept(self, *options: str) -> list[str]:
        """Run the command and return what it says it did."""
        done = self.keep(*options)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def mount(self) -> None:
        """Bring the Secret to the webhook as a kubelet does: into a new folder, and then in one step into place."""
        data = self.secret(NAMES.serving_secret)["data"]
        fresh = self.tls / f"..{token_hex(4)}"
        fresh.mkdir()
        for name in ("tls.crt", "tls.key"):
            (fresh / name).write_bytes(base64.b64decode(data[name]))
            if not (self.tls / name).is_symlink():
                (self.tls / name).symlink_to(f"..data/{name}")
        swap = self.tls / "..data_tmp"
        swap.symlink_to(fresh.name)
        swap.replace(self.tls / "..data")

    def secret(self, name: str) -> Any:
        return self.cluster.get("secret", name, f"--namespace={HOME}")

    def versions(self) -> list[str]:
        """The versions of all that is kept."""
        secrets = [self.secret(name) for name in (NAMES.ca_secret, NAMES.serving_secret)]
        kept = [*secrets, *self.cluster.get(CONFIGURATIONS)["items"]]
        return [each["metadata"]["resourceVersion"] for each in kept]

    @property
    def bundles(self) -> set[bytes]:
        """Return the bundle that the API server trusts the webhook by."""
        hooks = [hook for each in self.cluster.get(CONFIGURATIONS)["items"] for hook in each["webhooks"]]
        return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}

    def shaken(self, bundle: bytes) -> bytes:
        """Shake hands with the webhook as the API server does, anew, and return its certificate."""
        context = ssl.create_default_context(cadata=bundle.decode("ascii"))
        host, port = "localhost", int(self.url.rpartition(":")[2])
        with (
            socket.create_connection((host, port), 5) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            return ssl.DER_cert_to_PEM_cert(tls.getpeercert(binary_form=True) or b"").encode()

    def serves_what_is_stored(self) -> bool:
        """Whether new connections are served with what the Secret holds."""
        (bundle,) = self.bundles
        stored = base64.b64decode(self.secret(NAMES.serving_secret)["data"]["tls.crt"])
        return certificates(self.shaken(bundle)) == certificates(stored)

    def unbundled(self) -> list[Object]:
        """The registration as the manifests have it: it trusts nobody yet."""
        made = self.registration()
        for hook in (hook for each in made for hook in each["webhooks"]):
            del hook["clientConfig"]["caBundle"]
        return made

    def _ready(self) -> bool:
        try:
            (bundle,) = self.bundles
            self.shaken(bundle)
        except OSError:
            return False
        self._bundle = base64.b64encode(bundle).decode("ascii")
        return super()._ready()


@pytest.fixture(scope="module")
def kept(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A cluster of our own, with the manifests applied and no certificate yet, and a webhook that has not started."""
    with control_plane.running(tmp_path_factory.mktemp("certificates"), programs) as cluster:
        cluster.add_nodes()
        cluster.add_namespace("team")
        guard = Kept(cluster)
        guard.install(*empty(cluster), *guard.unbundled())
        yield guard


def empty(cluster: Cluster) -> list[Object]:
    return [each for each in rendered(cluster, "controller") if each["kind"] == "Secret"]


def asked(guard: Guard, name: str) -> subprocess.CompletedProcess[str]:
    made = json.dumps(pod(name, "team"))
    return guard.cluster.kubectl("create", "--filename=-", stdin=made)


# One after the other: from nothing, to a certificate, to another, to another CA


def test_before_the_first_run_the_api_server_trusts_no_webhook(kept: Kept) -> None:
    def refused() -> bool:
        return "failed calling webhook" in asked(kept, f"early-{token_hex(3)}").stderr

    assert eventually(refused)


def test_a_dry_run_changes_nothing(kept: Kept) -> None:
    before = kept.versions()
    lines = kept.kept("--dry-run")
    assert len(lines) == 4
    assert all(line.startswith("would be: ") for line in lines)
    assert kept.versions() == before


def test_the_first_run_makes_ca_certificate_and_bundles(kept: Kept) -> None:
    lines = kept.kept()
    assert [line.partition(" CN=")[0] for line in lines[1:2]] == [f"{kept.hooks} bundles are written with"]
    assert len(lines) == 4
    kept.mount()
    kept.start()
    kept.cluster.wait_until("the API server calls the webhook", kept.in_force)
    made = asked(kept, "first")
    assert made.returncode == 0, made.stderr
    assert kept.asked("team")[-2:] == [MUTATE, VALIDATE]
    assert kept.secret(NAMES.serving_secret)["data"].keys() == {"tls.crt", "tls.key", "ca.crt"}


def test_a_second_run_changes_nothing(kept: Kept) -> None:
    before = kept.versions()
    assert kept.kept() == []
    assert kept.versions() == before


def test_applying_the_manifests_again_keeps_the_certificates(kept: Kept) -> None:
    bundles, authorities = kept.bundles, kept.secret(NAMES.ca_secret)["data"]
    kept.install(*empty(kept.cluster), *kept.unbundled())
    assert (kept.bundles, kept.secret(NAMES.ca_secret)["data"]) == (bundles, authorities)
    forced = ["apply", "--server-side", "--force-conflicts", "--field-manager=somebody", "--filename=-"]
    items = {"apiVersion": "v1", "kind": "List", "items": [*empty(kept.cluster), *kept.unbundled()]}
    kept.cluster.do(*forced, stdin=json.dumps(items))
    assert (kept.bundles, kept.secret(NAMES.ca_secret)["data"]) == (bundles, authorities)
    assert kept.kept() == []


def test_a_renewed_certificate_is_served_without_a_restart(kept: Kept) -> None:
    (bundle,) = kept.bundles
    before = kept.shaken(bundle)
    (line,) = kept.kept("--renew")
    assert line.endswith(": as asked for")
    assert kept.shaken(bundle) == before
    kept.mount()
    assert eventually(kept.serves_what_is_stored)
    assert kept.shaken(bundle) != before
    assert asked(kept, "renewed").returncode == 0


class Tenants(Stream):
    """Make GPU pods, and shake hands anew, until the block ends; what went wrong is kept."""

    def __init__(self, guard: Kept) -> None:
        super().__init__(self._make, self._shake)
        self.guard = guard
        self.pods, self.handshakes = 0, 0
        self.failed: list[str] = []

    def _make(self) -> None:
        made = asked(self.guard, f"pod-{self.pods}")
        self.pods += 1
        if made.returncode:
            self.failed.append(made.stderr)

    def _shake(self) -> None:
        for bundle in self.guard.bundles:
            self.handshakes += 1
            try:
                self.guard.shaken(bundle)
            except OSError as error:
                self.failed.append(str(error))
        self.done.wait(0.05)


def test_a_ca_is_rotated_and_no_pod_is_refused(kept: Kept) -> None:
    (old,) = kept.bundles
    before = len(kept.asked("team"))
    sizes = []
    with Tenants(kept) as tenants:
        lines = list(certs.keep(kept.store, kept.terms, lambda: datetime.now(UTC), [rotate]))
        sizes.append({len(blocks(bundle)) for bundle in kept.bundles})
        while (found := kept.store.read().authorities).coming or found.retired:
            time.sleep(0.5)
            done = list(certs.keep(kept.store, kept.terms, lambda: datetime.now(UTC)))
            kept.mount()
            if done:
                lines += done
                sizes.append({len(blocks(bundle)) for bundle in kept.bundles})
        time.sleep(1)
    (new,) = kept.bundles
    print(f"{tenants.pods} GPU pods, {tenants.handshakes} handshakes, {len(tenants.failed)} failed")
    assert tenants.failed == []
    assert tenants.pods > 10
    assert kept.asked("team")[before:] == [MUTATE, VALIDATE] * tenants.pods
    assert new != old
    assert sizes == [{2}, {2}, {1}]
    assert [line.split("CN=")[0] for line in lines] == [
        "",
        f"{kept.hooks} bundles are written with ",
        "",
        "",
        "a serving certificate of ",
        "nothing new is served from ",
        f"{kept.hooks} bundles are written without ",
        "",
    ]
    assert kept.serves_what_is_stored()
    with pytest.raises(ssl.SSLCertVerificationError):
        kept.shaken(old)


def test_a_requested_rotation_begins_once(kept: Kept) -> None:
    assert len(kept.kept("--rotate-ca")) == 3
    (line,) = kept.kept("--rotate-ca")
    assert "is already being introduced" in line
    assert kept.kept() == []  # a day has to pass
    assert {len(blocks(bundle)) for bundle in kept.bundles} == {2}


# What is found and cannot be used


def test_a_concurrent_change_by_another_writer_is_kept(kept: Kept) -> None:
    seen = kept.store.read()
    assert seen.serving
    kept.cluster.do("label", "secret", NAMES.serving_secret, "example.com/seen=yes", f"--namespace={HOME}")
    kept.cluster.do("label", CONFIGURATIONS, NAMES.configuration, "example.com/seen=yes")
    other = certs.Pair(seen.serving.certificate_pem, b"another key")
    with pytest.raises(certs.Changed, match=rf"Secret {HOME}/slicewarden-serving: .*object has been modified"):
        kept.store.write(certs.Stored(seen.authorities, other, seen.bundles))
    emptied = dict.fromkeys(seen.bundles, b"")
    with pytest.raises(certs.Changed, match=r"WebhookConfiguration slicewarden: .*object has been modified"):
        kept.store.write(certs.Stored(seen.authorities, seen.serving, emptied))
    assert kept.store.read() == seen


def test_an_unreadable_ca_is_reported_and_nothing_is_changed(kept: Kept) -> None:
    whole = kept.secret(NAMES.ca_secret)["data"]["ca.key"]
    scribble(kept, base64.b64encode(b"scribbled over").decode())
    before = kept.versions()
    done = kept.keep("--rotate-ca", "--renew")
    said = f"Secret {HOME}/slicewarden-ca: ca.key: not the private key of ca.crt; nothing is changed\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {said}")
    assert kept.versions() == before
    scribble(kept, whole)
    assert kept.kept() == []


def scribble(kept: Kept, key: str) -> None:
    patch = json.dumps({"data": {"ca.key": key}})
    kept.cluster.do("patch", "secret", NAMES.ca_secret, f"--namespace={HOME}", f"--patch={patch}")


def test_a_secret_of_another_name_is_forbidden(kept: Kept) -> None:
    refused = kept.keep("--secret-name", "elsewhere")
    assert refused.returncode == 2
    assert 'cannot get resource "secrets"' in refused.stderr  # it may not even ask


def test_an_unreachable_api_server_ends_with_status_1(kept: Kept, tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(kept.account.read_text("utf-8").replace(kept.cluster.url, "https://127.0.0.1:9"), "utf-8")
    done = kept.keep("--kubeconfig", str(nowhere))
    assert done.returncode == 1
    assert done.stderr.startswith("error: try again later: MutatingWebhookConfiguration slicewarden: ")


# What it may do


def test_the_keeper_cannot_read_another_webhooks_configuration(kept: Kept) -> None:
    others = []
    for each in kept.unbundled():
        hooks = [{**each["webhooks"][0], "rules": [], "name": "other.example.com"}]
        others.append({**each, "metadata": {"name": "other"}, "webhooks": hooks})
    kept.install(*others)
    done = kept.keep("--configuration", "other")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'cannot get resource "mutatingwebhookconfigurations"' in done.stderr
    for kind in CONFIGURATIONS.split(","):
        patch = ["patch", kind, "other", "--type=merge", '--patch={"webhooks":[]}']
        assert "Forbidden" in kept.cluster.kubectl(*patch, user=ACCOUNT).stderr
        assert "Forbidden" in kept.cluster.kubectl("delete", kind, "slicewarden", user=ACCOUNT).stderr
    kept.cluster.do("delete", CONFIGURATIONS, "other")


@pytest.mark.parametrize(
    "command",
    [
        ["get", "secrets"],
        ["create", "secret", "generic", "one-more"],
        ["delete", "secret", "slicewarden-ca"],
        ["create", "token", "slicewarden"],
        ["create", "deployment", "one-more", "--image=i"],
    ],
    ids=" ".join,
)
def test_the_keeper_is_forbidden_everything_else(kept: Kept, command: list[str]) -> None:
    refused = kept.cluster.kubectl(*command, f"--namespace={HOME}", user=ACCOUNT)
    assert refused.returncode == 1
    assert "forbidden" in refused.stderr.lower()


def test_the_webhook_itself_reads_no_secret_of_the_cas(kept: Kept) -> None:
    serving = User(f"system:serviceaccount:{HOME}:slicewarden", ("system:serviceaccounts",))
    for name in (NAMES.ca_secret, NAMES.serving_secret):
        refused = kept.cluster.kubectl("get", "secret", name, f"--namespace={HOME}", user=serving)
        assert "Forbidden" in refused.stderr


# Without a registration, and with cert-manager


def test_the_served_certificate_is_renewed_without_a_registration(kept: Kept) -> None:
    kept.unregister()
    done = kept.keep("--renew")
    assert done.returncode == 0
    assert [line.partition(" is not there")[0] for line in done.stderr.splitlines()] == [
        "MutatingWebhookConfiguration slicewarden",
        "ValidatingWebhookConfiguration slicewarden",
    ]
    assert len(done.stdout.splitlines()) == 1
    kept.install(*kept.unbundled())
    assert [line.partition(" CN=")[0] for line in kept.kept()][:1] != []
    kept.mount()
    kept.cluster.wait_until("the API server calls the webhook", kept.in_force)


FIELDS: dict[str, Object] = {
    "Issuer": {"selfSigned": {}, "ca": {"secretName": "string"}},
    "Certificate": {
        **dict.fromkeys(("secretName", "commonName", "duration", "renewBefore"), "string"),
        "isCA": "boolean",
        "dnsNames": ["string"],
        "usages": ["string"],
        "privateKey": {**dict.fromkeys(("algorithm", "encoding", "rotationPolicy"), "string"), "size": "integer"},
        "issuerRef": dict.fromkeys(("group", "kind", "name"), "string"),
    },
}
"""Of the kinds of cert-manager, the fields that we may set (cert-manager, deploy/crds)."""


def schema(shape: Any) -> Object:
    """Return what a shape says as OpenAPI: a type by its name, a list by what is in it, an object by its fields."""
    if isinstance(shape, str):
        return {"type": shape}
    if isinstance(shape, list):
        return {"type": "array", "items": schema(shape[0])}
    return {"type": "object", "properties": {key: schema(each) for key, each in shape.items()}}


def definition(kind: str) -> Object:
    name = f"{kind.lower()}s"
    shape = {"openAPIV3Schema": schema({"spec": FIELDS[kind]})}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.cert-manager.io"},
        "spec": {
            "group": "cert-manager.io",
            "scope": "Namespaced",
            "names": {"plural": name, "kind": kind},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": shape}],
        },
    }


def test_the_api_server_accepts_the_overlay_with_cert_manager(kept: Kept) -> None:
    definitions = [definition(kind) for kind in FIELDS]
    kept.install(*definitions)
    names = [f"{kind.lower()}s.cert-manager.io" for kind in FIELDS]
    established(kept.cluster, *names)
    # The Secrets are there, and applied on the server's side by now, of which kubectl would warn.
    items = [each for each in rendered(kept.cluster, "overlays/cert-manager") if each["kind"] != "Secret"]
    built = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    def taken() -> bool:
        dry = ["apply", "--dry-run=server", "--validate=strict", "--filename=-"]
        applied = kept.cluster.kubectl(*dry, stdin=built)
        return (applied.returncode, applied.stderr) == (0, "") and "certificate.cert-manager.io" in applied.stdout

    assert eventually(taken)
    kept.cluster.do("delete", *(f"crd/{name}" for name in names))
