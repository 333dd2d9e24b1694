"""The client sends a request and reads its answer, whoever is behind the API server."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes.client import ApiClient, Configuration

from tests.support.kubeconfigs import kubeconfig
from tests.support.listening import Asked, listening
from webhook.cluster import client, responses, watch
from webhook.cluster.client import Api, Unreachable
from webhook.controller import reach
from webhook.telemetry import release

FORGED = b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{"a": "x"}'


def connected(url: str) -> Api:
    return ApiClient(Configuration(host=url))


def begun(api: Api, path: str) -> Any:
    return client.beginning(api, path, {}, 100, silence=60, longest=300)


def unread(api: Api, path: str) -> Any:
    """Send a request as a watch does."""
    return client.send(api, "GET", path, {}, preload_content=False)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("https://api.example:6443/k8s/clusters/c-1?x=a", "https://api.example:6443/k8s/clusters/c-1?x=a"),
        ("https://user:p@ss@api.example:6443/k8s", "https://api.example:6443/k8s"),
        ("HTTP://user:secret@127.0.0.1:1", "HTTP://127.0.0.1:1"),
        ("user:secret@127.0.0.1:1", "127.0.0.1:1"),
        ("//user:secret@127.0.0.1:1", "//127.0.0.1:1"),
        ("https://user:se#cret@127.0.0.1:1", "https://...@127.0.0.1:1"),
        ("https://user:se/cret@127.0.0.1:1", "https://...@127.0.0.1:1"),
        ("https://user:se?cret@127.0.0.1:1", "https://...@127.0.0.1:1"),
        ("user:se//cret@127.0.0.1:1", "...@127.0.0.1:1"),
        ("https://user:secret@api.example/k8s/clusters/c@1", "https://...@1"),
    ],
)
def test_no_address_shows_a_password(given: str, seen: str) -> None:
    assert client.server(connected(given)) == seen
    cluster = watch.Cluster(connected(given), lambda *_, **__: None, frozenset())
    assert "se" not in cluster._host


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("http://user:secret@127.0.0.1:1", "http://127.0.0.1:1 does not answer: Connection refused"),
        ("https://secret:x#y@127.0.0.1:1", "https://...@127.0.0.1:1 does not answer: it is no URL of a server"),
        ("https://user:secret/y@127.0.0.1:1", "https://...@127.0.0.1:1 does not answer: it is no URL of a server"),
        ("secret://user@127.0.0.1:1", "secret://127.0.0.1:1 does not answer: it is no URL of a server"),
    ],
)
def test_no_failure_shows_a_password(given: str, message: str) -> None:
    with pytest.raises(Unreachable, match=f"^{re.escape(message)}$"):
        client.ask(connected(given), "/version")


@pytest.mark.parametrize(
    ("proxy", "message"),
    [
        ("socks5://user:secret@127.0.0.1:1", "a SOCKS proxy is not supported; name an HTTP proxy, or none"),
        ("http://user:se#cret@127.0.0.1:1", "the address of the server or of its proxy cannot be read"),
        ("gopher://user:secret@127.0.0.1:1", "the address of the server or of its proxy cannot be read"),
        ("http://[::1", "the address of the server or of its proxy cannot be read"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str, message: str
) -> None:
    for name in ("https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    file = kubeconfig(tmp_path, "https://api.example:6443")
    with pytest.raises(Unreachable, match=f"^{re.escape(message)}$"):
        client.connect(str(file))
    with pytest.raises(Unreachable, match=f"^{re.escape(message)}$"):
        client.of_server("https://api.example", "", {})


@pytest.mark.parametrize("status", [100, 101, 102, 103])
@pytest.mark.parametrize("read", [client.ask, client.text, begun, unread])
def test_only_a_final_response_is_an_answer(status: int, read: Callable[[Api, str], Any]) -> None:
    """The API server passes on a pod's 1xx. The next request would read the answer that is still owed."""

    def answer(asked: Asked) -> None:
        if asked.path == "/hostile":
            asked.wfile.write(f"HTTP/1.1 {status} Early\r\n\r\n".encode() + FORGED)
        else:
            asked.give(200, b'{"a": "honest"}')

    with listening(answer) as url:
        api = connected(url)
        assert client.text(api, "/honest") == (200, '{"a": "honest"}')
        with pytest.raises((Unreachable, urllib3.exceptions.ProtocolError), match=f"HTTP {status}, which is no answer"):
            read(api, "/hostile")
        assert client.text(api, "/honest") == (200, '{"a": "honest"}')


def test_requests_share_a_connection() -> None:
    peers = set()

    def answer(asked: Asked) -> None:
        peers.add(asked.client_address)
        asked.give(200, b"{}")

    with listening(answer) as url:
        api = connected(url)
        assert [client.ask(api, "/a"), client.ask(api, "/b"), begun(api, "/c")] == [{}, {}, (200, b"{}")]
    assert len(peers) == 1


@pytest.mark.parametrize("program", ["slicewarden", "slicewarden-controller"])
def test_a_client_names_its_program_which_becomes_the_field_manager(tmp_path: Path, program: str) -> None:
    """So does a connection to a single API server. An API server takes the text before the first slash."""
    agents = set[str]()

    def answer(asked: Asked) -> None:
        agents.add(asked.headers["User-Agent"])
        asked.give(200, b"{}")

    with listening(answer) as url:
        file = str(kubeconfig(tmp_path, url))
        api = client.connect(file) if program == "slicewarden" else client.connect(file, program=program)
        client.ask(api, "/", method="PATCH", body={}, patch=client.MERGE)
        client.ask(reach.connected(api, url), "/", method="PATCH", body={}, patch=client.MERGE)
    assert agents == {f"{program}/{release.known()}"}


DRIPS = {
    "a header": (b"HTTP/1.1 200 OK\r\nX: ", b"x", b"\r\nContent-Length: 0\r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: x\r\n", b"Content-Length: 0\r\n\r\n"),
    "the size of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0", b"\r\n\r\n"),
    "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n", b"\r\n"),
}


@pytest.mark.parametrize("drip", DRIPS.values(), ids=DRIPS)
def test_the_deadline_counts_from_the_first_byte_to_the_last(drip: tuple[bytes, bytes, bytes]) -> None:
    def answer(asked: Asked) -> None:
        first, part, last = drip
        asked.wfile.write(first)
        for _ in range(50):
            asked.wfile.write(part)
            time.sleep(0.02)
        asked.wfile.write(last)

    with listening(answer) as url, pytest.raises(Unreachable, match="the answer takes longer than 0 s"):
        client.beginning(connected(url), "/", {}, 100, silence=60, longest=0.1)


@pytest.mark.parametrize("manager", [urllib3.PoolManager(), urllib3.ProxyManager("http://127.0.0.1:9")])
@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "https://127.0.0.1:9"])
def test_every_connection_gives_final_responses(manager: urllib3.PoolManager, url: str) -> None:
    responses.apply(manager)
    kinds = dict(manager.pool_classes_by_scheme)
    responses.apply(manager)
    assert kinds == manager.pool_classes_by_scheme
    made: Any = manager.connection_from_url(url)._new_conn()
    assert isinstance(made, urllib3.connection.HTTPConnection)
    assert made.response_class is responses.FinalResponse
    assert urllib3.connection.HTTPConnection.response_class is not responses.FinalResponse, "others' are as they were"
