"""Runs a webhook in processes of its own."""

import contextlib
import http.client
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import certs
from tests.support.objects import untrusted_pod
from tests.support.policies import FACTS, POLICY
from tests.support.waiting import LONG, until
from webhook.api import admission

BODY = admission.wrap(untrusted_pod())


CA = certs.issue_ca("ca", datetime.now(UTC), days=30)


def certify(folder: Path) -> bytes:
    """Write a new certificate and key of the CA. Returns the certificate."""
    pair = certs.issue_serving(CA, ["localhost"], [], datetime.now(UTC), days=20)
    for name, content in (("tls.key", pair.key_pem), ("tls.crt", pair.certificate_pem)):
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").rename(folder / name)
    return pair.certificate_pem


@dataclass
class Running:
    """A running webhook, in processes of its own."""

    process: subprocess.Popen[bytes]
    folder: Path
    port: int
    health: int

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.folder / "ca.crt")
        return http.client.HTTPSConnection("localhost", self.port, timeout=LONG, context=context)

    def review(self, connection: http.client.HTTPSConnection) -> int:
        connection.request("POST", "/mutate?timeout=10s", BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def ready(self) -> int:
        """Return the HTTP status of the readiness path; 0 if no answer comes."""
        plain = http.client.HTTPConnection("localhost", self.health, timeout=LONG)
        try:
            plain.request("GET", "/readyz")
            return plain.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            plain.close()

    def workers(self) -> set[int]:
        main = self.process.pid
        return {int(each) for each in Path(f"/proc/{main}/task/{main}/children").read_text().split()}


@contextlib.contextmanager
def running(folder: Path, *options: str, output: int | IO[Any] = subprocess.DEVNULL) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        port, health = a.getsockname()[1], b.getsockname()[1]
    (folder / "ca.crt").write_bytes(CA.certificate_pem)
    command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--policy", POLICY, "--facts", FACTS]
    command += ["--listen", f"127.0.0.1:{port}", "--health-listen", f"127.0.0.1:{health}"]
    command += ["--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key", *options]
    certify(folder)
    with subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE) as process:
        started = Running(process, folder, port, health)
        try:
            until(lambda: started.ready() == 200 or process.poll() is not None)
            yield started
        finally:
            process.terminate()
            try:
                status = process.wait(LONG)
            finally:
                process.kill()
            assert process.stderr is not None
            assert (status, process.stderr.read()) in ((0, b""), (-signal.SIGKILL, b""))
