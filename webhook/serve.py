"""Serves the application with granian: TLS, HTTP/1.1, several worker processes that share nothing."""

import gc
import os
import signal
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from webhook import server
from webhook.engine import Engine
from webhook.facts import Source

if TYPE_CHECKING:
    from webhook.metrics import Metrics

KEEP_ALIVE = 120_000
"""Milliseconds a connection may wait for its next request.

The API server keeps idle connections for 90 s, and does not send a POST again on one that closed under it.
granian's limit on reading headers counts from the end of the request before, so it is this limit too.
"""


@dataclass(frozen=True)
class Listen:
    """Where and how to listen; `host:port` pairs split."""

    host: str
    port: int
    certificate: Path
    key: Path
    client_ca: Path | None
    workers: int
    health: tuple[str, int] | None


Load = Callable[[], tuple[Engine, Source]]
"""Gives a worker all that it needs. It runs in every worker, and has to be picklable."""


def serve(listen: Listen, load: Load) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are answered first. A worker that dies is replaced.

    Raises OSError, naming the file or the place, for what cannot be served with or listened on.
    """
    _check_tls(listen)
    _check_ports(listen)
    granian = Granian(
        target="slicewarden",
        address=listen.host,
        port=listen.port,
        interface=Interfaces.WSGI,
        workers=listen.workers,
        blocking_threads=1,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=KEEP_ALIVE),
        websockets=False,
        log_level=LogLevels.warning,
        ssl_cert=listen.certificate,
        ssl_key=listen.key,
        ssl_ca=listen.client_ca,
        ssl_client_verify=listen.client_ca is not None,
        respawn_failed_workers=True,
        respawn_interval=0.5,
        workers_kill_timeout=30,
    )
    log = {"listen": f"https://{listen.host}:{listen.port}", "workers": listen.workers}
    caution = "anyone who reaches this port may call: no --client-ca" if listen.client_ca is None else None
    server.log_line({"message": "serving", **log, **({"caution": caution} if caution else {})})
    with tempfile.TemporaryDirectory(prefix="slicewarden-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # before a worker imports what reads it
        granian.serve(target_loader=partial(_worker, listen, load), wrap_loader=False)


def _check_tls(listen: Listen) -> None:
    """Load the TLS files as the listener will, which would only say that they do not fit."""
    for file in filter(None, (listen.certificate, listen.key, listen.client_ca)):
        file.read_bytes()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(listen.certificate, listen.key)
    except ssl.SSLError as error:
        files = f"{listen.certificate}, {listen.key}"
        raise OSError(error.errno, error.reason or "not a certificate and its key", files) from error
    if listen.client_ca is not None:
        try:
            context.load_verify_locations(listen.client_ca)
        except ssl.SSLError as error:
            raise OSError(error.errno, "no certificate in PEM in it", str(listen.client_ca)) from error


def _check_ports(listen: Listen) -> None:
    """Find out what else has a port: a listener shares it with whoever does the same, another webhook too."""
    for host, port in filter(None, ((listen.host, listen.port), listen.health)):
        try:
            socket.create_server((host, port)).close()
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), f"{host}:{port}") from error


def _worker(listen: Listen, load: Load) -> Callable[..., Any]:
    # A forked worker has its parent's handlers, which would swallow a signal that comes before granian sets its own.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from webhook.metrics import Metrics

    engine, facts = load()
    metrics = Metrics()
    settle()
    if listen.health is not None:
        _serve_health(*listen.health, facts, metrics)
    return server.application(engine, facts, server.log_line, metrics)


def settle() -> None:
    """Have garbage collected seldom, once all is loaded.

    Reviews leave no cycles behind, and what lives as long as the worker need not be walked by every collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


class _HealthServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    allow_reuse_port = True  # every worker answers for itself; the kernel chooses among them


class _Quiet(WSGIRequestHandler):
    timeout = 5

    def log_message(self, *args: object) -> None:
        pass


def _serve_health(host: str, port: int, facts: Source, metrics: "Metrics") -> None:
    app = server.health(facts, metrics)
    httpd = make_server(host, port, app, server_class=_HealthServer, handler_class=_Quiet)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
