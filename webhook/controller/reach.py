"""Asks every replica which policies it has loaded, and every API server which paths it calls."""

import copy
import http.client
import io
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from webhook.cluster import client
from webhook.controller.order import Place
from webhook.engine import probe
from webhook.engine.paths import DIGEST, MUTATE, RELEASE, VALIDATE, Path
from webhook.model import Object
from webhook.text.words import shown

REPLICA_SECONDS, SERVER_SECONDS = 2.0, 5.0
"""Seconds that a replica or an API server may take to answer. For a replica, they include the whole exchange."""

MOST_BYTES = 64 << 10
"""Bytes that a replica's answer may have, with its head. One of eight policies has less than 2 KiB."""

SERVER_NAME = "kubernetes.default.svc"
"""The name in every API server's certificate (kubeadm, and every conformant installer: the Service `kubernetes`)."""


@dataclass(frozen=True, slots=True)
class Replica:
    """The answer of a replica, by the address of its health port: its release, and the digests that it has loaded.

    If the replica does not answer, `why` is the reason. `refused` are policies that its release cannot use. `waiting`
    has, by digest, the facts of a policy that the replica has not read yet, such as `configmaps of team-x`. `forbidden`
    has those among them that the API server refuses to give, because a right is missing.
    """

    address: str
    release: str = ""
    held: frozenset[str] = frozenset()
    refused: tuple[str, ...] = ()
    why: str = ""
    waiting: Mapping[str, str] = field(default_factory=dict)
    forbidden: Mapping[str, str] = field(default_factory=dict)

    def lacks(self, wanted: AbstractSet[str]) -> str:
        """Return the reason why the replica has not loaded all these policies; empty if it has."""
        if self.why:
            return self.why
        missing = sorted(wanted - self.held)
        if forbidden := sorted({self.forbidden[each] for each in missing if each in self.forbidden}):
            return f"may not read {', '.join(forbidden)}"
        if unread := sorted({self.waiting[each] for each in missing if each in self.waiting}):
            return f"has not read {', '.join(unread)} yet"
        if refused := [each for each in missing if each in self.refused]:
            return f"cannot use {', '.join(refused)}"
        return f"lacks {', '.join(missing)}" if missing else ""


def replicas(addresses: Iterable[str]) -> list[Replica]:
    """Ask the replica at each of these addresses (HOST:PORT) which policies it has loaded."""
    return [_replica(address) for address in addresses]


def _replica(address: str) -> Replica:
    try:
        status, body = _answer(address)
        if status != HTTPStatus.OK:
            return Replica(address, why=f"answers {status}")
        return _read(address, json.loads(body))
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException, RecursionError) as error:
        return Replica(address, why=f"does not answer ({type(error).__name__})")


class _Bounded(io.RawIOBase):
    """Reads a socket until a deadline, and at most MOST_BYTES. So a slow or endless answer is cut off."""

    def __init__(self, connection: socket.socket, end: float) -> None:
        self._connection, self._end, self._left = connection, end, MOST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            raise ValueError(f"an answer of more than {MOST_BYTES} bytes")
        self._connection.settimeout(_left(self._end))
        count = self._connection.recv_into(buffer, min(len(buffer), self._left))
        self._left -= count
        return count

    def makefile(self, *_: object) -> io.BufferedReader:
        """Return the file that HTTPResponse reads: it asks a socket for one."""
        return io.BufferedReader(self)


def _left(end: float) -> float:
    if (left := end - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def _answer(address: str) -> tuple[int, bytes]:
    """Return the status and the body of a replica's answer. A redirect is an answer like any other."""
    end = time.monotonic() + REPLICA_SECONDS
    url = urlsplit(f"http://{address}/policies")
    with socket.create_connection((url.hostname or "", url.port or 0), _left(end)) as connection:
        head = f"GET {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode("ascii"))
        with http.client.HTTPResponse(_Bounded(connection, end), method="GET") as answer:  # type: ignore[arg-type]
            answer.begin()
            return answer.status, answer.read()


def _read(address: str, said: Any) -> Replica:
    """Read the report of a replica. Raises KeyError, TypeError and ValueError for anything else."""
    if not isinstance(said, dict):
        raise TypeError("not a map")
    release, held = said["release"], said["held"]
    refused, waiting, forbidden = (said.get(key) or {} for key in ("refused", "waiting", "forbidden"))
    if not isinstance(held, list) or not all(isinstance(each, dict) for each in (refused, waiting, forbidden)):
        raise TypeError("not a list of digests, or not a map by digest")
    if not RELEASE.fullmatch(release) or not all(map(DIGEST.fullmatch, (*held, *refused, *waiting, *forbidden))):
        raise ValueError("not a release, or not a digest")
    unread, denied = ({key: shown(what, quotes=False) for key, what in each.items()} for each in (waiting, forbidden))
    return Replica(address, release, frozenset(held), tuple(sorted(refused)), waiting=unread, forbidden=denied)


def addresses(slices: Iterable[Object], port: int) -> tuple[str, ...]:
    """Return HOST:PORT of each pod in the EndpointSlices of a Service, including unready and terminating pods."""
    found = {
        address
        for each in slices
        for endpoint in each.get("endpoints") or ()
        for address in endpoint.get("addresses") or ()
    }
    return tuple(f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in sorted(found))


def servers(item: Object) -> tuple[str, ...]:
    """Return the URLs of the API servers in an EndpointSlice."""
    ports = [each["port"] for each in item.get("ports") or () if each.get("name") == "https"]
    hosts = sorted({host for each in item.get("endpoints") or () for host in each.get("addresses") or ()})
    return tuple(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}" for host in hosts for port in ports
    )


def connected(api: client.Api, url: str) -> client.Api:
    """Make a connection to one API server. It uses the same credentials, and verifies the Service's name."""
    api.configuration.auth_settings()  # reads a token again that was renewed
    settings = copy.copy(api.configuration)
    settings.host, settings.tls_server_name, settings.refresh_api_key_hook = url, SERVER_NAME, None
    one = client.Api(settings)
    one.user_agent = api.user_agent
    return one


def called(api: client.Api, urls: Sequence[str], lease: str, place: Place) -> Iterator[str]:
    """Yield each API server that does not call the registered paths, with the reason.

    Each server is asked over its own connection, so that no other one answers in its place.
    """
    for url in urls:
        one = connected(api, url)
        try:
            if why := _difference(one, lease, place):
                yield f"{url} {why}"
        finally:
            one.rest_client.pool_manager.clear()


def _difference(api: client.Api, lease: str, place: Place) -> str:
    body: dict[str, Any] = {"metadata": {"annotations": {"slicewarden.dev/asked": str(time.time())}}}
    try:
        status, headers = client.warnings(api, lease, body, {"dryRun": "All"}, patience=SERVER_SECONDS)
    except client.Unreachable:
        return "does not answer"
    if status != HTTPStatus.OK:
        return f"answers {status} to the probe"
    heard = {proof.path for proof in probe.heard(headers)}
    for half, names in ((VALIDATE, place.validate), (MUTATE, place.mutate)):
        if names and Path(half, names) not in heard:
            return f"does not call {Path(half, names)} yet, or gets no answer"
        if not names and any(path.half == half for path in heard):
            return f"still calls /{half}"
    return ""
