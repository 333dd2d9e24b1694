"""Runs an HTTP server on loopback whose answers a test defines."""

import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

POLL = 0.02
"""Seconds in which it notices that it should end; http.server's own half a second is paid by every test."""


class Asked(BaseHTTPRequestHandler):
    """One request: `command`, `path`, `headers` and `body`. `give` answers it; a test may also write to `wfile`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the peer to acknowledge the head

    def __init__(self, answer: Callable[["Asked"], None], *connection: Any) -> None:
        self.answer = answer
        self.body = b""
        super().__init__(*connection)

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.answer(self)

    do_POST = do_PATCH = do_DELETE = do_GET  # noqa: N815 - as http.server calls them

    def give(self, status: int, body: bytes, **headers: str) -> None:
        """Answer with a body. The name of a header has `_` in place of `-`."""
        self.begin(status, Content_Length=str(len(body)), **headers)
        self.wfile.write(body)

    def begin(self, status: int, **headers: str) -> None:
        """Answer with only the status and the headers, one of which says where the body ends."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report what went wrong, but not a client that has left before the end of an answer."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)


@contextmanager
def listening(answer: Callable[[Asked], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answer each request with this function, each connection in its own thread. Yields http://127.0.0.1:PORT.

    With `tls` it is https, and the handshake is part of a connection's first read.
    """
    httpd = _Server(("127.0.0.1", 0), partial(Asked, answer))
    if tls:
        httpd.socket = tls.wrap_socket(httpd.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=httpd.serve_forever, args=(POLL,))
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
