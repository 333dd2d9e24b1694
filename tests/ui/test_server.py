"""The page is served on loopback, to whoever knows its address, and to no other web page."""

import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from flask.testing import FlaskClient

from webhook.model import Unusable
from webhook.reports.formats import html
from webhook.ui import server
from webhook.ui.board import MOST_WATCHERS, Board, LivePart
from webhook.ui.server import MOST_CONNECTIONS, Keys, PageServer

PORT = 4321
OURS = {"Host": f"127.0.0.1:{PORT}"}
ABOUT = (("cluster", "https://c.example"),)


def board(*parts: LivePart) -> Board:
    return Board(parts or [LivePart("cards", "Cards now", 5.0, lambda: "<b>x</b>")], print)


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def client(keys: Keys) -> FlaskClient:
    return server.application(board(), keys, PORT, ABOUT).test_client()


def test_the_page_needs_the_secret_of_its_address(client: FlaskClient, keys: Keys) -> None:
    found = client.get(f"/{keys.token}/", headers=OURS)
    assert (found.status_code, "Cards now" in found.text, "https://c.example" in found.text) == (200, True, True)
    assert f'data-live="/{keys.token}/live"' in found.text
    for path in ("/", "/live", f"/{keys.token[:-1]}/", f"/{keys.token}x/live", f"/{Keys().token}/", "/%ff%00/", "//x/"):
        refused = client.get(path, headers=OURS)
        assert (refused.status_code, keys.token in refused.text) in [(404, False), (308, False)], path
    assert client.post(f"/{keys.token}/", headers=OURS).status_code == 405


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"[::1]:{PORT}"])
def test_a_name_that_was_bound_again_is_refused(client: FlaskClient, keys: Keys, host: str) -> None:
    """DNS rebinding: a stranger's name now leads to loopback, so that its page has the same origin as an answer."""
    for path in (f"/{keys.token}/", f"/{keys.token}/live", f"/open/{keys.once}", "/"):
        assert client.get(path, headers={"Host": host}).status_code == 421
    assert client.get(f"/{keys.token}/", headers={"Host": f"LOCALHOST:{PORT}"}).status_code == 200


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("", {"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "none"}, 200),
        ("", {"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}, 200),
        ("", {"Sec-Fetch-Dest": "iframe"}, 403),
        ("", {"Sec-Fetch-Dest": "script"}, 403),
        ("", {"Sec-Fetch-Dest": "empty"}, 403),
        ("live", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("live", {"Sec-Fetch-Site": "same-site"}, 403),
        ("live", {"Sec-Fetch-Site": "none"}, 403),
    ],
)
def test_another_page_may_not_use_it_even_with_the_secret(
    client: FlaskClient, keys: Keys, path: str, headers: Mapping[str, str], status: int
) -> None:
    assert client.get(f"/{keys.token}/{path}", headers={**OURS, **headers}).status_code == status


def test_no_answer_may_be_framed_cached_or_read_elsewhere(client: FlaskClient, keys: Keys) -> None:
    for path in (f"/{keys.token}/", "/nothing", f"/open/{keys.once}"):
        headers = client.get(path, headers=OURS).headers
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert "Set-Cookie" not in headers
        assert not [name for name, _ in headers if name.startswith("Access-Control")]


def test_the_key_for_the_browser_opens_once(client: FlaskClient, keys: Keys) -> None:
    once = keys.once
    assert client.get("/open/guessed", headers=OURS).status_code == 410
    found = client.get(f"/open/{once}", headers=OURS)
    assert (found.status_code, found.headers["Location"]) == (303, f"/{keys.token}/")
    again = client.get(f"/open/{once}", headers=OURS)
    assert (again.status_code, keys.token in again.text) == (410, False)
    assert client.get("/open/", headers=OURS).status_code == 404


# Over a connection


OTHERS = list[int]()
"""Other users who were refused."""


@contextmanager
def serving(shown: Board, keys: Keys, users: Collection[int] = (os.getuid(),)) -> Iterator[int]:
    with server.opened(0) as listening:
        port = listening.getsockname()[1]
        running = PageServer(listening, server.application(shown, keys, port, ABOUT), users, OTHERS.append)
    thread = threading.Thread(target=running.serve_forever, args=(0.02,))
    thread.start()
    shown.start()
    try:
        yield port
    finally:
        shown.stop()
        running.shutdown()
        thread.join()


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


def asked(port: int, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("GET", path)
    return connection, connection.getresponse()


def test_changes_are_sent_as_they_come(keys: Keys) -> None:
    texts = iter(["one", "<script>two\n\nevent: x</script>", "three"])
    go = threading.Semaphore()

    def read() -> str:
        go.acquire()
        return next(texts, "")

    with serving(board(LivePart("cards", "Cards", 0.0, read)), keys) as port:
        connection, answer = asked(port, f"/{keys.token}/live")
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Server"] == "slicewarden"
        found = []
        for each in events(answer):
            found.append((each["part"], each["version"], each["html"]))
            go.release()
            if len(found) == 3:
                break
        assert found == [
            ("cards", "1", "one"),
            ("cards", "2", "<script>two\n\nevent: x</script>"),
            ("cards", "3", "three"),
        ]
        connection.close()
        for _ in range(9):
            go.release()


def test_a_change_has_a_proof_that_only_the_page_has(client: FlaskClient, keys: Keys) -> None:
    """A program that gets the port after the command has ended knows the token: the page asks it again and again."""
    assert f'data-proof="{keys.proof}"' in client.get(f"/{keys.token}/", headers=OURS).text
    with serving(board(), keys) as port:
        connection, answer = asked(port, f"/{keys.token}/live")
        assert next(events(answer))["proof"] == keys.proof
        connection.close()


def test_only_some_pages_are_renewed_at_the_same_time(keys: Keys) -> None:
    with serving(board(), keys) as port:
        opened = [asked(port, f"/{keys.token}/live") for _ in range(MOST_WATCHERS)]
        assert [answer.status for _, answer in opened] == [200] * MOST_WATCHERS
        connection, refused = asked(port, f"/{keys.token}/live")
        assert (refused.status, refused.read()) == (503, b"Too many pages are open. Close one of them.\n")
        connection.close()


def test_a_page_that_was_left_makes_room_although_nothing_changes(keys: Keys) -> None:
    with serving(board(), keys) as port:
        for _ in range(2 * MOST_WATCHERS):
            connection, answer = asked(port, f"/{keys.token}/live")
            while answer.status == 503:  # the server looks once a second
                connection.close()
                connection, answer = asked(port, f"/{keys.token}/live")
            assert next(events(answer))["html"] == "<b>x</b>"
            answer.close()
            connection.close()


def test_too_many_connections_are_closed(keys: Keys) -> None:
    with serving(board(), keys) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(MOST_CONNECTIONS)]
        more = socket.create_connection(("127.0.0.1", port), timeout=300)
        with _closed():
            more.sendall(f"GET /{keys.token}/ HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert more.recv(1) == b""
        for each in (*silent, more):
            each.close()


def test_another_user_of_the_machine_is_refused_even_with_the_secret(keys: Keys) -> None:
    """Else a program that reads the command line of a browser may use the key in it before the browser does."""
    OTHERS.clear()
    once = keys.once
    with serving(board(), keys, {os.getuid() + 1}) as port:
        for path in (f"/{keys.token}/", f"/open/{once}"):
            with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
                asked(port, path)
    assert (OTHERS, keys.once) == ([os.getuid()], once)


@contextmanager
def _closed() -> Iterator[None]:
    """A connection that the other end has closed: either nothing comes, or it is reset."""
    try:
        yield
    except ConnectionError:
        return


def test_a_port_in_use_is_one_error() -> None:
    with server.opened(0) as taken, pytest.raises(Unusable, match="port") as caught:
        server.opened(taken.getsockname()[1])
    assert "in use" in str(caught.value.problems[0])


def test_nothing_listens_beyond_loopback() -> None:
    with server.opened(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


def test_the_page_has_one_script_whose_hash_its_policy_names(client: FlaskClient, keys: Keys) -> None:
    found = client.get(f"/{keys.token}/", headers=OURS)
    assert len(re.findall("<script", found.text)) == 1
    policy = found.headers["Content-Security-Policy"]
    assert policy.startswith(html.content_policy(server.SCRIPTS, "'self'"))
