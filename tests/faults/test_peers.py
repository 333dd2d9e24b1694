"""Peers that are slow, silent, gone, or want too much at once."""

import contextlib
import itertools
import json
import multiprocessing
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from bench import payloads
from tests import ROOT
from tests.faults import apiserver
from tests.faults.conftest import Under
from tests.faults.replicas import LONG, Replica, Secret, replica, until
from webhook.api.admission import MAX_BODY, MAX_PARTS
from webhook.http.limits import ServerLimits
from webhook.http.listening import RECEIVED

LIMITS = ServerLimits()
SOON = 1.0
"""Seconds beside a limit within which it has to be kept."""

HEAD = b"POST /validate?timeout=10s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def raw(port: int) -> socket.socket:
    """A connection that is no more than that."""
    return socket.create_connection(("127.0.0.1", port), 30)


def shaken(port: int, authority: Path) -> ssl.SSLSocket:
    """A connection over TLS."""
    context = ssl.create_default_context(cafile=authority)
    return context.wrap_socket(raw(port), server_hostname="localhost")


@contextmanager
def peers(number: int, connect: Callable[[], socket.socket], first: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, each of which says something at first."""
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        found = [stack.enter_context(each) for each in pool.map(lambda _: connect(), range(number))]
        for each in found:
            each.sendall(first)
            each.setblocking(False)
        yield found


def trickle(each: socket.socket, data: bytes) -> None:
    """Send something, unless the other end has had enough."""
    with contextlib.suppress(OSError):
        each.send(data)


def cut(each: socket.socket) -> bool:
    """Whether the other end has ended a connection; what it said before is read."""
    try:
        while each.recv(1 << 16):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:  # it was reset
        return True
    return True


def test_peers_connect_and_say_nothing(under: Under, webhook: Replica) -> None:
    """Each is cut off when its time for a handshake is over."""
    began = time.monotonic()
    with under("100 silent TCP peers", webhook) as load, peers(100, lambda: raw(webhook.port)) as silent:
        load.connected()
        load.go_on(LIMITS.handshake / 2)
        early = any(map(cut, silent))
        assert not early or time.monotonic() - began > LIMITS.handshake
        until(lambda: all(map(cut, silent)), "they are cut off", LIMITS.handshake + LONG)


def test_peers_shake_hands_and_say_nothing(under: Under, secret: Secret, webhook: Replica) -> None:
    """They may: an API server keeps connections, too. They cost what an idle one does."""
    with (
        under("100 silent TLS peers", webhook) as load,
        peers(100, lambda: shaken(webhook.port, secret.authority)) as silent,
    ):
        load.connected()
        load.go_on(3)
        assert not any(map(cut, silent))


@pytest.mark.parametrize(
    ("fault", "number", "begun", "more", "limit"),
    [
        ("slow-loris: 200 heads, a byte a second", 200, HEAD + b"X: ", b"x", LIMITS.head),
        ("50 bodies, a byte a second", 50, HEAD + b"Content-Length: 1000\r\n\r\n{", b" ", LIMITS.body),
    ],
    ids=["heads", "bodies"],
)
def test_requests_come_a_byte_a_second(
    under: Under, secret: Secret, webhook: Replica, fault: str, number: int, begun: bytes, more: bytes, limit: float
) -> None:
    with (
        under(fault, webhook) as load,
        peers(number, lambda: shaken(webhook.port, secret.authority), begun) as slow,
    ):
        load.connected()
        for _ in range(int(limit + SOON)):
            load.go_on(0.9)
            for each in slow:
                trickle(each, more)
        until(lambda: all(map(cut, slow)), "they are cut off")


def test_peers_are_gone(under: Under, secret: Secret, webhook: Replica) -> None:
    """Half of them in the middle of a handshake, half in the middle of a review; nobody says that they are gone."""
    half = HEAD + f"Content-Length: {len(payloads.small().body)}\r\n\r\n".encode() + payloads.small().body[:2000]
    with (
        under("half-open: 100 peers gone without a word", webhook) as load,
        peers(50, lambda: raw(webhook.port), b"\x16\x03\x01") as early,
        peers(50, lambda: shaken(webhook.port, secret.authority), half) as late,
    ):
        load.connected()
        load.go_on(LIMITS.handshake)
        until(lambda: all(map(cut, early)), "those without a handshake are cut off")
        until(lambda: all(map(cut, late)), "those without a whole body are cut off")


def test_the_largest_bodies_come_at_once(under: Under, secret: Secret, webhook: Replica) -> None:
    """A review that does not fit is asked to come again."""
    bodies = [large(b'"' + b"x" * 1000 + b'",'), large(b"{},", MAX_PARTS // 2 - 500)]
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as elsewhere,
        under("50 bodies of 7 MiB at once", webhook, rate=20) as load,
    ):
        statuses = elsewhere.submit(at_once, webhook.port, secret.authority, bodies, 50).result()
        load.go_on()
        load.remarks.append(f"{statuses.count(429)} of them told to come again")
    assert set(statuses) <= {200, 429, 0}, statuses
    assert statuses.count(200) >= 1


METADATA = {"name": "large", "namespace": "visitors"}
MAPS: list[object] = [{}] * 490_000
"""Two bytes each in etcd, which takes 1.5 MB, and 64 each as a map of Python."""
TERMS: list[object] = [{"weight": 1, "preference": {}}] * 250_000
"""Six bytes each in etcd."""
CLAIMS: list[object] = [{"name": "a"}] * 140_000
VARIABLES: list[object] = [{"name": "A"}] * 250_000
DEVICES = {
    "requests": [{"name": "a", "exactly": {"deviceClassName": "net"}}],
    "config": [{"opaque": {"driver": "net", "parameters": {"a": MAPS}}}],
}
OF_TENANTS = (
    {"kind": "Pod", "spec": {"nodeName": "a", "affinity": {"nodeAffinity": {"preferred": TERMS}}}},
    {"kind": "Pod", "spec": {"nodeName": "a", "containers": [{"name": "a", "env": VARIABLES}]}},
    {"kind": "Pod", "spec": {"nodeName": "a", "containers": [{"name": "a", "resources": {"claims": CLAIMS}}]}},
    {"kind": "ResourceClaim", "spec": {"devices": DEVICES}},
    {"kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": DEVICES}}},
)
KERNEL = 16 + 2 * LIMITS.connections * 2 * RECEIVED // 2**20
"""MiB that a container of two workers is charged for besides: files in /tmp, and what came from peers and is unread."""


def unfinished(size: int) -> bytes:
    """A ClientHello of this size, whose last byte is missing."""
    hello = b"\1" + size.to_bytes(3) + bytes(size)
    parts = [hello[at : at + 8192] for at in range(0, len(hello), 8192)]
    return b"".join(b"\x16\3\1" + len(part).to_bytes(2) + part for part in parts)[:-1]


HELLOS = [unfinished(131_396), unfinished(LIMITS.handshake_bytes - 100)]
"""The largest that OpenSSL reads, and the largest that is not cut off at once."""


def test_all_that_takes_memory_comes_at_once(secret: Secret, tmp_path: Path) -> None:
    """Each part of a replica has its bounds; all of them together fit into the limit of the Deployment."""
    bodies = [large(b'"' + b"x" * 1000 + b'",'), large(b"{},", MAX_PARTS // 2 - 500)]
    half = HEAD + b"Content-Length: 7000000\r\n\r\n" + b" " * 500_000

    def stalled() -> socket.socket:
        peer = shaken(webhook.port, secret.authority)
        peer.settimeout(1)
        with contextlib.suppress(OSError):  # it may be answered before its end
            peer.sendall(half)
        return peer

    def greeting(hello: bytes) -> socket.socket:
        peer = raw(webhook.port)
        with contextlib.suppress(OSError):  # it may be cut off before its end
            peer.sendall(hello)
        return peer

    def change(times: int) -> None:
        for number, each in itertools.product(range(times), OF_TENANTS):
            server.put({**each, "metadata": {**METADATA, "labels": {"number": str(number)}}})

    with apiserver.serving(apiserver.sample()) as server, ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        kubeconfig = server.kubeconfig(tmp_path)
        webhook = stack.enter_context(replica(secret, "--live", "--kubeconfig", kubeconfig, facts=None))
        changes = beside.submit(change, 5)
        statuses = Counter(at_once(webhook.port, secret.authority, bodies, 50))
        stack.enter_context(peers(2 * LIMITS.connections - 50, stalled))
        changes.result()
        changes = beside.submit(change, 5)
        statuses += Counter(at_once(webhook.port, secret.authority, bodies, 50))
        changes.result()
        for hello in HELLOS:
            stack.enter_context(peers(2 * LIMITS.connections, partial(greeting, hello)))
            statuses += Counter(at_once(webhook.port, secret.authority, bodies, 50))
        before = server.watches
        server.forget()
        server.drop()
        until(lambda: server.watches >= before + 2 * len(apiserver.PLACES), "both workers have read all objects again")
        peak = webhook.peak()
    assert statuses[200] >= 1, statuses
    print(f"{peak:.0f} MiB at most, and {KERNEL} of the kernel; the limit is {memory_limit():.0f}")
    assert peak + KERNEL < memory_limit()


class Sent(NamedTuple):
    """A large review: what came back, and when it was sent and answered, by the monotonic clock of all processes."""

    status: int
    start: float
    end: float


def test_a_tenant_sends_the_largest_reviews_without_pause(under: Under, secret: Secret, webhook: Replica) -> None:
    """An ordinary review does not wait for them: most that come after a large one are answered before it."""
    most = MAX_PARTS - 1000
    bodies = [large(b'"{",', most), large(b"{},", most // 2), large(b'"{",'), large(b"{},")]
    bodies += [crowd(250), crowd(5), wide(100, 340)]
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as elsewhere,
        under("8 connections that send reviews of up to 7 MiB without pause", webhook) as load,
    ):
        sending = elsewhere.submit(without_pause, webhook.port, secret.authority, bodies, 8, 12)
        load.go_on(3)
        load.begun = len(load.asked)
        large_ones = sending.result()
        statuses = Counter(each.status for each in large_ones)
        load.remarks.append(", ".join(f"{number} × {status}" for status, number in sorted(statuses.items())))
    assert {200, 400} <= set(statuses) <= {0, 200, 400, 408, 422, 429, 504}, statuses
    judged = [each for each in large_ones if each.status == 200]
    met = [(one, each) for one in load.asked for each in judged if each.start < one.due < each.end]
    before = sum(one.due + one.took < each.end for one, each in met)
    print(f"{before} of {len(met)} ordinary reviews were answered before a large one that came earlier")
    assert before > len(met) / 2 > 0


def crowd(containers: int) -> bytes:
    """A review of a pod with so many containers that ask for a GPU, each with much in its environment."""
    review = json.loads(payloads.small().body)
    spec = review["request"]["object"]["spec"]
    (container,) = spec["containers"]
    setting = ",".join(f"garbage_collection_threshold:0.{number}" for number in range(100))
    container["env"] = [*container.get("env", []), {"name": "PYTORCH_CUDA_ALLOC_CONF", "value": setting}]
    spec["initContainers"] = [{**container, "name": f"init-{number}"} for number in range(containers)]
    return json.dumps(review).encode("ascii")


def wide(containers: int, variables: int) -> bytes:
    """A review of a pod that has so many containers with so many variables each: 100 with 340 are judged, not 400."""
    review = json.loads(payloads.small().body)
    spec = review["request"]["object"]["spec"]
    env = [{"name": f"V{number}", "value": "1"} for number in range(variables)]
    spec["initContainers"] = [{"name": f"i{number}", "image": "i", "env": env} for number in range(containers)]
    return json.dumps(review).encode("ascii")


def without_pause(port: int, authority: Path, bodies: list[bytes], number: int, times: int) -> list[Sent]:
    """Send so many reviews one after the other, on so many connections at once."""
    os.nice(19)

    def sending(first: int) -> list[Sent]:
        done: list[Sent] = []
        while len(done) < times:
            start = time.monotonic()
            status = sent(port, authority, bodies[(first + len(done)) % len(bodies)])
            done.append(Sent(status, start, time.monotonic()))
        return done

    with ThreadPoolExecutor(number) as pool:
        return [each for some in pool.map(sending, range(number)) for each in some]


def large(part: bytes, times: int = MAX_BODY) -> bytes:
    """A review as large as they may be, of a pod without GPUs with as many of these parts as fit."""
    start, middle, end = payloads.plain().body.partition(b'"managedFields":[')
    left = MAX_BODY - len(start) - len(middle) - len(end)
    parts = part * min(times, (left - 20) // len(part))
    filled = parts + b'"' + b"x" * (left - len(parts) - 3) + b'",'
    return start + middle + filled + end


def at_once(port: int, authority: Path, bodies: list[bytes], number: int) -> list[int]:
    """The statuses of so many reviews on connections of their own, by what the cores have left."""
    os.nice(19)
    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(lambda each: sent(port, authority, bodies[each % len(bodies)]), range(number)))


def sent(port: int, authority: Path, body: bytes) -> int:
    """The status of one of them; 0 if it is cut off while it is sent."""
    with shaken(port, authority) as peer:
        with contextlib.suppress(OSError):  # it may be answered before its end
            peer.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        with contextlib.suppress(OSError):
            if answer := peer.recv(1 << 16):
                return int(answer.split(b" ", 2)[1])
    return 0


def memory_limit() -> float:
    """MiB of memory that the Deployment may take."""
    documents = yaml.safe_load_all((ROOT / "manifests/base/deployment.yaml").read_text("utf-8"))
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return float(container["resources"]["limits"]["memory"].removesuffix("Mi"))
