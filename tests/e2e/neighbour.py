"""A small admission webhook, such as others have in their clusters: what it answers is for a test to say."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import certs
from tests.support.objects import Object

Answer = Callable[[Object], Object]
"""Takes an AdmissionReview and gives the fields of its response, but for the uid."""


@contextmanager
def answering(folder: Path, answer: Answer, host: str = "localhost") -> Iterator[tuple[str, str]]:
    """Serve until the block ends: the address, under that host, and the bundle to trust it by."""

    class Reviews(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            response = {"uid": review["request"]["uid"], **answer(review)}
            body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is overridden
            pass

    certificate, key, bundle = identity(folder, "neighbour", host)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with _Server(listening_address(host), Reviews) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"https://{host}:{server.server_port}", bundle
        finally:
            server.shutdown()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # the API server keeps its connections

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a caller may have given up."""


def identity(folder: Path, name: str, host: str) -> tuple[Path, Path, str]:
    """Issue a certificate for a host: its file, that of its key, and the bundle to trust it by."""
    authority = certs.issue_ca(name, datetime.now(UTC), days=1)
    names, addresses = ([], [host]) if host.replace(".", "").isdigit() or ":" in host else ([host], [])
    serving = certs.issue_serving(authority, names, addresses, datetime.now(UTC), days=1)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(serving.certificate_pem)
    key.touch(mode=0o600)
    key.write_bytes(serving.key_pem)
    return certificate, key, certs.ca_bundle(authority.certificate_pem)


def listening_address(host: str) -> tuple[str, int]:
    """Where to listen to be reached under a host: on loopback alone if that does."""
    return ("127.0.0.1" if host in ("localhost", "127.0.0.1") else "0.0.0.0", 0)  # noqa: S104 - asked for
