"""A folder with keys, in which cosign signs without a network."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.signing import cosign
from tests.support.go_programs import Missing

PREDICATE = "https://slicewarden.dev/attestation/gpu-isolation/v1"
OFFLINE = "--insecure-ignore-tlog"
DONE = pytest.StashKey[list[str]]()
"""What was published, signed and verified, in lines that the run ends with."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(DONE, []):
        terminalreporter.line(line)


class Signing:
    """A folder with two keys, and what it takes to sign without a network."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        for name in ("ours", "others"):
            self.run("generate-key-pair", f"--output-key-prefix={name}")
        self.run("signing-config", "create", "--out", "none.json")
        self.run("trusted-root", "create", "--out", "root.json")

    def run(self, *arguments: str) -> None:
        done = self._ended(*arguments)
        assert done.returncode == 0, done.stderr

    def refusal(self, *arguments: str) -> str:
        """Return why cosign fails."""
        done = self._ended(*arguments)
        assert done.returncode != 0
        return done.stderr

    def _ended(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "COSIGN_PASSWORD": "x"}
        command = [str(self.program), *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def sign(self, statement: str, key: str = "ours") -> Path:
        (self.folder / "proof.json").write_text(statement)
        offline = ("--signing-config", "none.json", "--trusted-root", "root.json", "--yes")
        signed = ("--key", f"{key}.key", "--bundle", "proof.sigstore.json")
        self.run("attest-blob", "--statement", "proof.json", "--type", PREDICATE, *signed, *offline)
        return self.folder / "proof.sigstore.json"


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Signing:
    try:
        return Signing(cosign.find(), tmp_path_factory.mktemp("signing"))
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
