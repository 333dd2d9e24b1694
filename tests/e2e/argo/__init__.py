"""The kind of Argo CD's applications, from its module. Argo CD itself is not built."""

import subprocess
from pathlib import Path

from tests.support.go_programs import Missing

MODULE = "github.com/argoproj/argo-cd/v3@v3.6.1"
DEFINITION = "applications.argoproj.io"


def definition() -> Path:
    """The file with the definition of the kind; raise Missing where its module cannot be had.

    The command fails where Go is older than the module asks for, and unpacks the module anyway.
    """
    try:
        command = ["go", "mod", "download", "-json", MODULE]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        asked = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise Missing("the tests of GitOps need Go 1.26 (https://go.dev/dl), which fetches Argo CD's module") from None
    file = Path(asked.stdout.strip()) / MODULE / "manifests" / "crds" / "application-crd.yaml"
    if not file.is_file():
        raise Missing(f"Argo CD's module cannot be had: {said.stdout} {said.stderr}")
    return file
