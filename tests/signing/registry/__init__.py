"""A registry of OCI artifacts on this machine, served by TLS: CNCF Distribution, built from the pins in go.mod.

The same module has crane, which puts images into it.
"""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.go_programs import built
from tests.support.waiting import reached, until
from tests.support.webhooks import CA, certify

HERE = Path(__file__).resolve().parent
PACKAGES = {
    "registry": "github.com/distribution/distribution/v3/cmd/registry",
    "crane": "github.com/google/go-containerregistry/cmd/crane",
}
CONFIGURATION = """\
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {folder}/stored}}}}
http: {{addr: "127.0.0.1:{port}", tls: {{certificate: {folder}/tls.crt, key: {folder}/tls.key}}}}
"""


@dataclass(frozen=True)
class Registry:
    """A registry that runs: its host and port, the CA that signed its certificate, and the folder of its blobs."""

    host: str
    ca: Path
    blobs: Path

    def stored(self, digest: str) -> Path:
        """The file with the contents of a digest."""
        name = digest.removeprefix("sha256:")
        return self.blobs / name[:2] / name / "data"


def programs() -> Path:
    """Return the folder with the registry and crane. Raises go_programs.Missing."""
    return built(HERE, PACKAGES, without_go="the rehearsal of a release needs Go 1.26 (https://go.dev/dl)")


@contextmanager
def served(folder: Path) -> Iterator[Registry]:
    """Run a registry that stores its blobs in a folder. Raises go_programs.Missing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    certify(folder)
    ca, configuration = folder / "ca.crt", folder / "registry.yaml"
    ca.write_bytes(CA.certificate_pem)
    configuration.write_text(CONFIGURATION.format(folder=folder, port=port), "utf-8")
    context = ssl.create_default_context(cafile=ca)
    with (folder / "registry.log").open("w") as log:
        process = subprocess.Popen(
            [programs() / "registry", "serve", configuration],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={"OTEL_TRACES_EXPORTER": "none"},
        )

    def answers() -> bool:
        assert process.poll() is None, (folder / "registry.log").read_text("utf-8")
        return reached(f"https://localhost:{port}/v2/", context)

    try:
        until(answers)
        yield Registry(f"localhost:{port}", ca, folder / "stored/docker/registry/v2/blobs/sha256")
    finally:
        process.terminate()
        process.wait()
