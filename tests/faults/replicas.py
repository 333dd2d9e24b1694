"""Replicas of the webhook in processes of their own, and the Secret that they mount."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import certs
from bench import processes
from tests import ROOT
from tests.support.policies import FACTS, POLICY

LONG = 300.0
"""Seconds after which something that has to come to hold has not."""


def until(holds: Callable[[], bool], what: str, seconds: float = LONG) -> None:
    """Wait for something to hold."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not after {seconds:.0f} s: {what}"
        time.sleep(0.05)


@dataclass
class Secret:
    """A serving certificate as the kubelet mounts one: files that are links through `..data`, which is swapped."""

    folder: Path
    certificate: str = ""
    """What is served from it."""
    _authority: certs.Pair = field(default_factory=lambda: certs.issue_ca("faults", datetime.now(UTC), days=30))
    _swaps: int = 0

    def __post_init__(self) -> None:
        """Put the first certificate there."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "ca.crt").write_bytes(self._authority.certificate_pem)
        self.rotate()

    @property
    def authority(self) -> Path:
        """Return the certificate that callers trust."""
        return self.folder / "ca.crt"

    def rotate(self, lasting: timedelta = timedelta(days=20)) -> str:
        """Swap in a new pair; return its certificate."""
        days = max(1, -(-lasting // timedelta(days=1)))
        began = datetime.now(UTC) + lasting - timedelta(days=days)
        pair = certs.issue_serving(self._authority, ["localhost"], ["127.0.0.1"], began, days=days)
        self._swaps += 1
        version = self.folder / f"..{self._swaps}"
        version.mkdir()
        (version / "tls.crt").write_bytes(pair.certificate_pem)
        (version / "tls.key").write_bytes(pair.key_pem)
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        self.certificate = pair.certificate_pem.decode("ascii")
        return self.certificate


@dataclass
class Replica:
    """One pod of the webhook: its processes and its two ports."""

    process: subprocess.Popen[bytes]
    port: int
    health: int

    def ready(self) -> int:
        """The status of readiness; 0 when nobody answers."""
        return self.asked("/readyz")[0]

    def asked(self, path: str) -> tuple[int, str]:
        """Return what the health port says; 0 where no answer comes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.health, timeout=LONG)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8")
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def review(self, secret: Secret, path: str, body: bytes) -> dict[str, Any]:
        """Return what it answers to a review on a connection of its own. Raises OSError for another status than 200."""
        context = ssl.create_default_context(cafile=secret.authority)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=LONG, context=context)
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        except http.client.HTTPException as error:
            raise OSError(repr(error)) from error
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(f"{answer.status}: {said[:200]!r}")
        reply: dict[str, Any] = json.loads(said)
        return reply

    def workers(self) -> set[int]:
        """The processes that answer."""
        main = self.process.pid
        return {int(each) for each in Path(f"/proc/{main}/task/{main}/children").read_text().split()}

    def memory(self) -> float:
        """MiB that a container of it would be charged for."""
        return processes.charged(processes.tree(self.process.pid))

    def peak(self) -> float:
        """MiB that its processes have held at most, at their worst moments together; counted from the last call on."""
        total = 0
        for pid in processes.tree(self.process.pid):
            lines = Path(f"/proc/{pid}/status").read_text("ascii", "replace").splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
            Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")  # proc(5): from here on
        return total / 1024

    def stop(self) -> None:
        """Tell it to end, as the kubelet does."""
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)


@contextmanager
def replica(
    secret: Secret,
    *options: str | Path,
    policy: Path = POLICY,
    facts: Path | None = FACTS,
    output: int | IO[Any] = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    program: tuple[str, ...] = ("-m", "webhook"),
    ready: bool = True,
) -> Iterator[Replica]:
    """Run one until the block ends; it may not say a word on standard error."""
    with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
        port, health = a.getsockname()[1], b.getsockname()[1]
    command: list[str | Path] = [sys.executable, *program, "serve", "--policy", policy]
    command += ["--facts", facts] if facts else []
    command += ["--listen", f"127.0.0.1:{port}", "--health-listen", f"127.0.0.1:{health}"]
    command += ["--tls-cert", secret.folder / "tls.crt", "--tls-key", secret.folder / "tls.key", *options]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        ) as process,
    ):
        started = Replica(process, port, health)
        try:
            if ready:
                until(lambda: started.ready() == 200 or process.poll() is not None, "the webhook is ready")
                assert process.poll() is None, errors.seek(0) or errors.read().decode("utf-8", "replace")
            yield started
        finally:
            started.stop()
            try:
                process.wait(LONG)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
        assert (process.returncode, said) in ((0, ""), (-signal.SIGKILL, "")), f"{process.returncode}: {said}"


BROKEN = {"IncompleteReadError", "ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError", "SSLEOFError"}
"""How a connection ends whose other end was killed."""


def kill(webhook: Replica) -> None:
    """Kill one worker, and wait for the one in its stead."""
    before = webhook.workers()
    os.kill(min(before), signal.SIGKILL)
    until(lambda: len(webhook.workers()) == len(before) and webhook.workers() != before, "a worker is replaced")
