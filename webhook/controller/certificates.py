"""Issues and rotates the webhook's certificates, one change at a time, and returns the CA bundle for new webhooks."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime

import certs
from certs import life
from webhook.cluster import client
from webhook.cluster.cert_store import ClusterStore, ObjectNames
from webhook.controller.terms import Terms
from webhook.engine.registration import NAME
from webhook.telemetry.log import Log

CERTIFICATES_SECONDS = 3600.0
"""Seconds between two looks at certificates of which none was due."""


class CertificateKeeper:
    """Keeps the certificates of a cluster valid. It looks at them when it starts, and once an hour."""

    def __init__(self, api: client.Api, terms: Terms, log: Log, clock: Callable[[], float]) -> None:
        self._api, self._terms, self._log, self._clock = api, terms, log, clock
        names = ObjectNames(terms.namespace, "slicewarden-ca", "slicewarden-serving", NAME)
        self._store = ClusterStore(api, names, lambda line: log({"message": line}))
        self._life = certs.Terms((*certs.service_names(NAME, terms.namespace), *terms.dns))
        self._at = -CERTIFICATES_SECONDS

    def step(self) -> str:
        """Make one change of the certificates that is due.

        Returns the change in words, or an empty text if none is due.
        """
        if self._terms.ca_secret or self._clock() - self._at < CERTIFICATES_SECONDS:
            return ""
        stored = self._store.read()
        change = life.step(stored, self._life, datetime.now(UTC))
        if change is None:
            self._at = self._clock()
            return ""
        self._store.write(change.after)
        self._log({"message": "certificates", "what": change.what})
        return change.what

    def bundle(self) -> str:
        """Return the caBundle of a new webhook, in base64."""
        name = self._terms.ca_secret or "slicewarden-ca"
        secret = client.ask(self._api, f"/api/v1/namespaces/{self._terms.namespace}/secrets/{name}")
        data = {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}
        if self._terms.ca_secret:
            return b64encode(data.get("ca.crt", b"")).decode("ascii")
        ours = life.bundle(certs.authorities(data), self._life, datetime.now(UTC))
        return b64encode(ours).decode("ascii")
