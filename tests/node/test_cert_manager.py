"""cert-manager itself, by its own chart: it takes over from the controller, and renews, under a stream of pods."""

import base64
import json
import ssl
from datetime import UTC, datetime
from functools import partial

import pytest

from certs.read import blocks, certificate, signed
from tests.e2e.control_plane import Cluster, eventually
from tests.node import charts
from tests.node.conftest import Sh
from tests.node.replicas import SYSTEM, all_ready, replicas, stream
from tests.support.manifests import commands

PAGE = "docs/certificates.md"
PORT = 8443
SECRET, CA_SECRET = "slicewarden-tls", "slicewarden-ca-cert-manager"
KEPT = "slicewarden-ca"
"""The Secret of the controller's CA."""
CONFIGURATIONS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"


@pytest.fixture(scope="session")
def issued(enforced: Cluster, sh: Sh) -> Cluster:
    """The cluster with certificates by cert-manager, which took over while pods were created; it stays so."""
    charts.install(sh, "cert-manager", "cert-manager")
    (change,) = (block for block in commands(PAGE)["By the controller"] if "overlays/cert-manager" in block)
    with stream(enforced):
        sh(change)
        assert eventually(partial(all_ready, enforced))
    return enforced


def certificates(pem: bytes) -> set[bytes]:
    """The certificates of a text."""
    return {block.strip() for block in blocks(pem)}


def secret(cluster: Cluster, name: str, key: str) -> bytes:
    """A value of a Secret of ours."""
    return base64.b64decode(cluster.get("secret", name, SYSTEM)["data"][key])


def bundles(cluster: Cluster) -> list[set[bytes]]:
    """The CAs by which the API server trusts each of our webhooks."""
    found = cluster.get(CONFIGURATIONS, "--selector=app.kubernetes.io/part-of=slicewarden")["items"]
    found = [each for each in found if each["metadata"]["name"] == "slicewarden"]
    assert len(found) == 2
    hooks = [hook["clientConfig"]["caBundle"] for each in found for hook in each["webhooks"]]
    return [certificates(base64.b64decode(text)) for text in hooks]


def served(cluster: Cluster) -> set[bytes]:
    """The certificates that the replicas serve with."""
    found = {ssl.get_server_certificate((each.address, PORT)).encode() for each in replicas(cluster)}
    return set().union(*map(certificates, found))


def renew(cluster: Cluster, name: str, holder: str) -> bytes:
    """Have a certificate issued again, as `cmctl renew` does, and return the new one."""
    before = secret(cluster, holder, "tls.crt")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "lastTransitionTime": now}
    patch = [{"op": "add", "path": "/status/conditions/-", "value": condition}]
    cluster.do(
        "patch", "certificate", name, SYSTEM, "--subresource=status", "--type=json", f"--patch={json.dumps(patch)}"
    )
    assert eventually(lambda: secret(cluster, holder, "tls.crt") != before)
    return secret(cluster, holder, "tls.crt")


def test_it_issues_what_each_replica_serves_and_the_api_server_trusts_its_ca(issued: Cluster) -> None:
    """Beside the controller's, which signed what was served until then.

    cert-manager adds its CA to those that it finds, but for expired ones (v1.21.2,
    internal/cainjector/bundle/bundle.go: AppendCertificatesToBundle; the gate CAInjectorMerging is on since v1.19). It
    replaces a bundle that it cannot read, and applies by force what it has made of a cached one
    (pkg/controller/cainjector/reconciler.go: Reconcile), so nobody else may write one meanwhile. It finds none in a
    webhook that was just added: there its own CA would be alone.
    """
    ca, certificate_pem = secret(issued, CA_SECRET, "tls.crt"), secret(issued, SECRET, "tls.crt")
    assert signed(certificate_pem, ca)
    assert served(issued) == certificates(certificate_pem)
    both = certificates(ca) | certificates(secret(issued, KEPT, "ca.crt"))
    assert len(both) == 2
    assert [trusted for trusted in bundles(issued) if trusted != both] == []
    assert "slicewarden.slicewarden-system.svc" in certificate(certificate_pem).names


def test_a_certificate_it_renews_is_served_and_no_pod_is_refused(issued: Cluster) -> None:
    key = secret(issued, SECRET, "tls.key")
    with stream(issued):
        renewed = renew(issued, "slicewarden", SECRET)
        assert eventually(lambda: served(issued) == certificates(renewed), 120)
    assert secret(issued, SECRET, "tls.key") != key


def test_its_ca_is_renewed_with_the_same_key_and_no_pod_is_refused(issued: Cluster) -> None:
    key, before = secret(issued, CA_SECRET, "tls.key"), bundles(issued)
    with stream(issued):
        ca = renew(issued, "slicewarden-ca", CA_SECRET)
        assert signed(secret(issued, SECRET, "tls.crt"), ca)  # what it has signed before
        renewed = renew(issued, "slicewarden", SECRET)
        assert eventually(lambda: served(issued) == certificates(renewed), 120)
    assert eventually(lambda: bundles(issued) == [trusted | certificates(ca) for trusted in before])
    assert secret(issued, CA_SECRET, "tls.key") == key
