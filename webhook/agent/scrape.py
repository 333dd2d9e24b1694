"""Serves the agent's metrics and its health over plain HTTP."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from webhook.agent.metrics import CONTENT_TYPE, Metrics

SILENT = 60.0
"""Seconds without a look after which the agent counts as hung. NVML may block for some while a card is reset."""

READ_SECONDS = 10.0


def start(metrics: Metrics, host: str, port: int) -> ThreadingHTTPServer:
    """Serve /metrics and /healthz in threads. Raises OSError for an address that cannot be had."""

    class Scrape(BaseHTTPRequestHandler):
        timeout = READ_SECONDS

        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(HTTPStatus.OK, metrics.text(), CONTENT_TYPE)
            elif self.path == "/healthz":
                silent = metrics.age > SILENT
                status = HTTPStatus.SERVICE_UNAVAILABLE if silent else HTTPStatus.OK
                self._answer(status, b"no look for a minute\n" if silent else b"ok\n", "text/plain")
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"only /metrics and /healthz\n", "text/plain")

        def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Log no scrapes."""

    server = ThreadingHTTPServer((host, port), Scrape)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True, name="scrape").start()
    return server
