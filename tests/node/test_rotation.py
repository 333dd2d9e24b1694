"""A new CA by the controller, from its beginning to the end of the old one, under a stream of pods."""

import ssl
from dataclasses import replace
from datetime import datetime, timedelta

import certs
from certs.read import blocks, certificates
from tests.e2e.control_plane import Cluster, eventually
from tests.node.conftest import Sh
from tests.node.replicas import replicas, stream
from webhook.cluster import client as connection
from webhook.cluster.cert_store import ClusterStore, ObjectNames

NAMES = ObjectNames("slicewarden-system", "slicewarden-ca", "slicewarden-serving", "slicewarden")
AGAIN = "kubectl rollout restart deployment/slicewarden-controller --namespace slicewarden-system"
"""A controller that has just started looks at once, and not after an hour."""
PORT = 8443


def test_a_new_ca_takes_over_in_two_days_and_no_pod_is_refused(enforced: Cluster, sh: Sh) -> None:
    store = ClusterStore(connection.connect(str(enforced.kubeconfig())), NAMES, print)
    (old,) = bundles(store)
    with stream(enforced):
        sh("slicewarden certs keep --rotate-ca")
        (both,) = bundles(store)
        assert len(blocks(both)) == 2
        a_day_passes(store)
        sh(AGAIN)
        assert eventually(lambda: store.read().authorities.replaced is not None)
        assert eventually(lambda: all_serve_what_is_stored(enforced, store), 120)
        a_day_passes(store)
        sh(AGAIN)
        assert eventually(lambda: {len(blocks(each)) for each in bundles(store)} == {1})
    (new,) = bundles(store)
    assert {*blocks(both)} == {*blocks(old), *blocks(new)}
    assert len(blocks(new)) == 1
    assert eventually(lambda: all_serve_what_is_stored(enforced, store), 120)


def bundles(store: ClusterStore) -> set[bytes]:
    """The caBundles by which API servers trust the webhook."""
    return set(store.read().bundles.values())


def a_day_passes(store: ClusterStore) -> None:
    """Write the times of a rotation into the store as they would stand there a day later."""

    def earlier(moment: datetime | None) -> datetime | None:
        return moment and moment - timedelta(days=1)

    kept = store.read()
    ours = kept.authorities
    before = replace(ours, published=earlier(ours.published), replaced=earlier(ours.replaced))
    store.write(replace(kept, authorities=before))


def all_serve_what_is_stored(cluster: Cluster, store: ClusterStore) -> bool:
    """Tell whether each replica serves with the certificate of the Secret, which its kubelet brought to it."""
    stored = store.read().serving
    assert isinstance(stored, certs.Pair)
    served = {ssl.get_server_certificate((each.address, PORT)).encode() for each in replicas(cluster)}
    return [certificates(each) for each in served] == [certificates(stored.certificate_pem)]
