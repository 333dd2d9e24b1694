"""Serves the page on loopback with Flask, to whoever knows its secret address, and to nobody else.

A web page of a stranger in the same browser can send requests here. So the address has a random token, which no cookie
repeats; the Host header must name loopback, which stops DNS rebinding; and no answer may be framed, or read by another
origin. Other users of the machine can connect too, and can read the command line of a browser before it has asked. So
connections of their programs are closed, where the system says whose they are.
"""

import hmac
import json
import secrets
import select
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from http import HTTPStatus
from typing import Any, NamedTuple

from flask import Flask, Response, abort, redirect, request
from werkzeug.exceptions import HTTPException
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Response as AnyResponse

from webhook.http.listening import listener
from webhook.model import Problem, Unusable
from webhook.reports.formats import html
from webhook.ui import peers
from webhook.ui.board import Board, ShownPart

HOST = "127.0.0.1"

SCRIPTS = ("script.js", "live.js")

SELF = "'self'"

MOST_CONNECTIONS = 32
"""Maximum number of connections at the same time. Others are closed at once."""

SILENCE = 30.0
"""Seconds that a client may take to send a request, or to take a part of an answer."""

LOOK = 1.0
"""Seconds between two looks at whether a page was left, on a connection on which nothing changes."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class LivePage(NamedTuple):
    """The values that the template shows. `live` is the path that gives what changes, each with the text `proof`."""

    title: str
    about: tuple[tuple[str, str], ...]
    live: str
    proof: str
    parts: list[ShownPart]


class Keys:
    """The token of the page's address, a key that opens the page once, and the proof that a change is of this server.

    A browser is started with the address on its command line, which other users of the machine can read. So that
    address has the second one, and leads to the first. After this server has ended, a page that is still open asks
    whoever has the port by then. That program gets the token, but not the proof, which is only in the page.
    """

    def __init__(self) -> None:
        self.token, self.once, self.proof = (secrets.token_urlsafe(32) for _ in range(3))
        self._lock = threading.Lock()

    def right(self, given: str) -> bool:
        """Whether a text is the token."""
        return _same(given, self.token)

    def opens(self, given: str) -> bool:
        """Whether a text is the key that opens once, and was not given before."""
        with self._lock:
            if not self.once or not _same(given, self.once):
                return False
            self.once = ""
            return True


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())


def application(board: Board, keys: Keys, port: int, about: tuple[tuple[str, str], ...]) -> Flask:
    """Make the application that serves a board at a port."""
    app = Flask(__name__, static_folder=None)
    hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
    policy = f"{html.content_policy(SCRIPTS, SELF)}; frame-ancestors 'none'"

    @app.before_request
    def ours() -> None:
        if request.headers.get("Host", "").lower() not in hosts:
            abort(HTTPStatus.MISDIRECTED_REQUEST)

    @app.after_request
    def closed(response: Response) -> Response:
        response.headers.update(_HEADERS)
        response.headers["Content-Security-Policy"] = policy
        return response

    @app.errorhandler(HTTPException)
    def failed(error: HTTPException) -> tuple[str, int, dict[str, str]]:
        status = HTTPStatus(error.code or HTTPStatus.INTERNAL_SERVER_ERROR)
        return f"{_SAID.get(status, status.phrase)}\n", status, {"Content-Type": "text/plain; charset=utf-8"}

    @app.get("/open/<once>")
    def open_once(once: str) -> AnyResponse:
        if not keys.opens(once):
            abort(HTTPStatus.GONE)
        return redirect(f"/{keys.token}/", HTTPStatus.SEE_OTHER)

    @app.get("/<token>/")
    def page(token: str) -> str:
        _allowed(keys, token, "Sec-Fetch-Dest", "document")
        shown = LivePage("Slicewarden", about, f"/{keys.token}/live", keys.proof, board.look())
        return html.written("ui.html", scripts=SCRIPTS, connect=SELF, page=shown)

    @app.get("/<token>/live")
    def live(token: str) -> Response:
        _allowed(keys, token, "Sec-Fetch-Site", "same-origin")
        if not board.watch():
            abort(HTTPStatus.SERVICE_UNAVAILABLE)
        events = _events(board, keys.proof, request.environ.get("werkzeug.socket"))
        response = Response(events, content_type="text/event-stream; charset=utf-8")
        response.call_on_close(board.leave)
        return response

    return app


_SAID = {
    HTTPStatus.NOT_FOUND: "There is nothing here. Open the address that slicewarden ui has printed.",
    HTTPStatus.GONE: "This address has been used already. Open the one that slicewarden ui has printed.",
    HTTPStatus.MISDIRECTED_REQUEST: "The Host header does not name this machine. Open the address that slicewarden ui "
    "has printed.",
    HTTPStatus.FORBIDDEN: "Another page may not embed or read this one.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Too many pages are open. Close one of them.",
}


def _allowed(keys: Keys, token: str, header: str, value: str) -> None:
    """Refuse a wrong token, and a browser that says that it asks for another use than `value`."""
    if not keys.right(token):
        abort(HTTPStatus.NOT_FOUND)
    if request.headers.get(header, value) != value:
        abort(HTTPStatus.FORBIDDEN)


def _events(board: Board, proof: str, client: socket.socket | None) -> Iterator[str]:
    """Yield server-sent events until the client has left: each part as JSON.

    https://html.spec.whatwg.org/multipage/server-sent-events.html has the format.
    """
    seen: dict[str, int] = {}
    yield "retry: 3000\n\n"
    while not (board.stopped or (client and _left(client))):
        for part in board.changes(seen, LOOK):
            seen[part.name] = part.version
            value = {
                "part": part.name,
                "version": str(part.version),
                "at": part.at,
                "html": part.html,
                "proof": proof,
            }
            yield f"event: part\ndata: {json.dumps(value)}\n\n"


def _left(client: socket.socket) -> bool:
    """Whether the other end has closed a connection on which it has nothing more to say."""
    readable, _, _ = select.select([client], [], [], 0)
    try:
        return bool(readable) and not client.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


class _Requests(WSGIRequestHandler):
    """Answers one request of a connection, and writes no log: a request line has the token."""

    protocol_version = "HTTP/1.0"
    timeout = SILENCE

    def version_string(self) -> str:
        """Return the value of the Server header."""
        return "slicewarden"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - as werkzeug calls it
        """Write nothing."""


class PageServer(ThreadedWSGIServer):
    """A server on loopback with a thread for each of at most MOST_CONNECTIONS connections.

    Connections of other `users` of this machine than these are closed. `refused` gets each of them once.
    """

    def __init__(
        self, listening: socket.socket, app: Flask, users: Collection[int], refused: Callable[[int], None]
    ) -> None:
        port = listening.getsockname()[1]
        super().__init__(HOST, port, app, _Requests, fd=listening.fileno())
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._users, self._refused, self._known = users, refused, set[int]()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether a connection is not one of another user, as far as the system says."""
        user = peers.user(client_address, request.getsockname())
        if user is None or user in self._users:
            return True
        if user not in self._known and user != peers.CLOSED:
            self._known.add(user)
            self._refused(user)
        return False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, or close it if there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection, and make room for another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a client has left or is too slow."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def opened(port: int) -> socket.socket:
    """Listen on loopback at a port; 0 is any free one. Raises Unusable."""
    try:
        return listener(HOST, port)
    except OSError as error:
        raise Unusable((Problem(f"port {port}", 0, error.strerror or str(error)),)) from error
