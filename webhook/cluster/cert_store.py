"""Stores the webhook's certificates in a cluster: two Secrets, and the CA bundles of its webhook configurations.

Every write carries the resourceVersion that was read, so that no concurrent change is overwritten.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from json import loads
from urllib.parse import quote

import certs
from webhook.cluster import client
from webhook.model import Object

SILENCE = 30.0
"""Seconds to wait for an answer."""

HALVES = {
    f"{half}WebhookConfiguration": f"/apis/admissionregistration.k8s.io/v1/{half.lower()}webhookconfigurations"
    for half in ("Mutating", "Validating")
}

CLOCKS = timedelta(minutes=5)
"""The greatest difference between the API server's clock and ours. A wrong clock would issue invalid certificates."""

OK, NOT_FOUND, CONFLICT, TOO_MANY = 200, 404, 409, 429

_CRT, _KEY, _CA = "tls.crt", "tls.key", "ca.crt"


@dataclass(frozen=True, slots=True)
class ObjectNames:
    """The names of the objects: both Secrets and their namespace, and the two webhook configurations."""

    namespace: str
    ca_secret: str
    serving_secret: str
    configuration: str


class ClusterStore:
    """A store of certificates (`certs.Store`) in a cluster.

    Raises ValueError for errors that an administrator must correct.
    """

    def __init__(self, api: client.Api, names: ObjectNames, say: Callable[[str], None]) -> None:
        self._api, self._names, self._say = api, names, say
        self._versions: dict[str, str] = {}
        self._before = certs.Stored()
        self._missed: set[str] = set()

    def read(self) -> certs.Stored:
        """Read the CA bundles and then the Secrets, so that no bundle is compared with a Secret that is older."""
        bundles = {key: value for kind in HALVES for key, value in self._bundles(kind).items()}
        stored = self._secret(self._names.ca_secret)
        try:
            authorities = certs.authorities(stored)
        except ValueError as error:
            where = f"Secret {self._names.namespace}/{self._names.ca_secret}"
            raise ValueError(f"{where}: {error}; nothing is changed") from error
        data = self._secret(self._names.serving_secret)
        serving = certs.Pair(data.get(_CRT, b""), data.get(_KEY, b""))
        pair = serving if serving.certificate_pem or serving.key_pem else None
        self._before = certs.Stored(authorities, pair, bundles)
        return self._before

    def write(self, after: certs.Stored) -> None:
        """Write the objects that differ from those that were read, with one request per object.

        Raises `certs.Changed`.
        """
        before = self._before
        if after.authorities != before.authorities:
            self._change(self._names.ca_secret, certs.written(before.authorities), certs.written(after.authorities))
        if after.serving != before.serving and after.serving and after.authorities.signing:
            pair, ca = after.serving, after.authorities.signing.certificate_pem
            self._change(self._names.serving_secret, {}, {_CRT: pair.certificate_pem, _KEY: pair.key_pem, _CA: ca})
        for kind in HALVES:
            hooks = [
                {"name": name, "clientConfig": {"caBundle": b64encode(bundle).decode("ascii")}}
                for (half, _, name), bundle in ((key.partition("/"), bundle) for key, bundle in after.bundles.items())
                if half == kind and bundle != before.bundles[f"{kind}/{name}"]
            ]
            if hooks:
                body = {"metadata": {"resourceVersion": self._versions[kind]}, "webhooks": hooks}
                self._configuration(kind, body)

    def _bundles(self, kind: str) -> dict[str, bytes]:
        """Read the bundles of a configuration's webhooks, by its kind and the webhook's name."""
        try:
            configuration = self._configuration(kind)
        except _Absent as absent:
            if (
                kind not in self._missed
            ):  # certificates are renewed even after an administrator deleted the registration in an emergency
                self._missed.add(kind)
                self._say(f"{absent}: no API server learns which CA to trust")
            return {}
        self._versions[kind] = configuration["metadata"]["resourceVersion"]
        return {
            f"{kind}/{hook['name']}": b64decode(hook["clientConfig"].get("caBundle") or "")
            for hook in configuration.get("webhooks") or ()
        }

    def _secret(self, name: str) -> dict[str, bytes]:
        try:
            secret = self._ask_secret(name)
        except _Absent as absent:
            raise ValueError(f"{absent}: create it, empty, as the manifests do") from None
        self._versions[name] = secret["metadata"]["resourceVersion"]
        return {key: b64decode(value) for key, value in (secret.get("data") or {}).items()}

    def _change(self, name: str, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
        gone = dict.fromkeys(before.keys() - after.keys())
        data = {key: b64encode(value).decode("ascii") for key, value in after.items()}
        body = {"metadata": {"resourceVersion": self._versions[name]}, "data": gone | data}
        self._ask_secret(name, body)

    def _configuration(self, kind: str, body: Object | None = None) -> Object:
        name = self._names.configuration
        return _ask(self._api, f"{kind} {name}", f"{HALVES[kind]}/{quote(name)}", body)

    def _ask_secret(self, name: str, body: Object | None = None) -> Object:
        namespace = self._names.namespace
        path = f"/api/v1/namespaces/{quote(namespace)}/secrets/{quote(name)}"
        return _ask(self._api, f"Secret {namespace}/{name}", path, body)


class _Absent(ValueError):
    """There is no object with this name."""


def _ask(api: client.Api, what: str, path: str, body: Object | None) -> Object:
    """Read an object, or patch it with a body. Raises ValueError and `certs.Unsettled`, with `what`."""
    method = "GET" if body is None else "PATCH"
    try:
        response = client.send(api, method, path, {}, body, patch=client.STRATEGIC, silence=SILENCE)
        status, answer, date = response.status, response.data, response.headers.get("Date")
        item: Object = loads(answer) if status == OK else {}
    except Exception as error:  # the client passes on the errors of every library below it
        raise certs.Unsettled(f"{what}: {type(error).__name__}: {_line(error)}") from error
    if status == OK:
        _compare_clocks(date)
        return item
    reason = f"{what}: {_message(answer or response.reason)}"
    if status == NOT_FOUND:
        raise _Absent(f"{what} is not there")
    if status == CONFLICT:
        raise certs.Changed(reason)
    raise ValueError(reason) if 400 <= status < 500 and status != TOO_MANY else certs.Unsettled(reason)


def _compare_clocks(date: str | None) -> None:
    if date:
        ahead = datetime.now(UTC) - parsedate_to_datetime(date)
        if abs(ahead) > CLOCKS:
            raise certs.Unsettled(f"the clock here is {abs(ahead)} off the API server's, and issues nothing")


def _message(answer: bytes | str | None) -> str:
    """Return the message of the API server's Status, or its answer in one line."""
    try:
        return _line(loads(answer or "")["message"])
    except (ValueError, KeyError, TypeError):
        return _line(answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer)


def _line(what: object) -> str:
    return " ".join(str(what).split())[:300]
