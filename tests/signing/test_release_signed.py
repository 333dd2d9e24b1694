"""The checksums of a release, signed by cosign itself and verified by the commands of docs/releases.md."""

import os
import subprocess
from pathlib import Path

import pytest

from manifests import make_release
from tests import ROOT
from tests.signing.conftest import OFFLINE, Signing

UNLOGGED = ("--signing-config", "none.json", "--trusted-root", "root.json")


@pytest.fixture
def release(signing: Signing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(signing.folder))
    monkeypatch.setenv("COSIGN_PASSWORD", "x")
    monkeypatch.chdir(signing.folder)
    (tmp_path / "install.yaml").write_text("kind: List\n", "utf-8")
    (tmp_path / make_release.SUMS).write_text(make_release.sums([tmp_path / "install.yaml"]), "utf-8")
    make_release.sign(tmp_path, ["--key", "ours.key", *UNLOGGED], str(signing.program))
    return tmp_path


def verify(release: Path, key: str = "ours") -> tuple[str, ...]:
    bundle, sums = release / make_release.BUNDLE, release / make_release.SUMS
    return ("verify-blob", "--key", f"{key}.pub", "--bundle", str(bundle), OFFLINE, str(sums))


def test_signed_checksums_are_verified(signing: Signing, release: Path) -> None:
    signing.run(*verify(release))


def test_changed_checksums_and_another_key_are_refused(signing: Signing, release: Path) -> None:
    assert "signature" in signing.refusal(*verify(release, key="others"))
    (release / make_release.SUMS).write_text(make_release.sums([release / make_release.BUNDLE]), "utf-8")
    assert "signature" in signing.refusal(*verify(release))


def commands() -> str:
    """The page's commands, as a script."""
    _, _, section = (ROOT / "docs" / "releases.md").read_text("utf-8").partition("## Verify it\n")
    block = section.split("```")[1].removeprefix("console\n")
    return block.replace("$ ", "").replace("--key cosign.pub", f"--key ours.pub {OFFLINE}")


@pytest.mark.parametrize(("version", "status"), [("0.1.0", 0), ("0.0.9", 1), ("0.1.0.1", 1), ("0.11.0", 1)])
def test_the_page_accepts_the_files_of_one_version(
    signing: Signing, release: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: int
) -> None:
    """The files of an older version are signed, too."""
    source = release / f"slicewarden-{version}.tar.gz"
    source.write_bytes(b"source")
    (release / make_release.SUMS).write_text(make_release.sums([release / "install.yaml", source]), "utf-8")
    make_release.sign(release, ["--key", "ours.key", *UNLOGGED], str(signing.program))
    (release / "ours.pub").write_bytes((signing.folder / "ours.pub").read_bytes())
    monkeypatch.setenv("PATH", str(signing.program.parent), prepend=os.pathsep)

    def verified() -> subprocess.CompletedProcess[str]:
        script = ["bash", "-euo", "pipefail", "-c", commands()]
        return subprocess.run(script, cwd=release, capture_output=True, text=True, check=False)

    done = verified()
    assert done.returncode == status, done.stderr
    assert "Verified OK" in done.stderr
    assert (f"{source.name}: OK" in done.stdout) == (status == 0)
    source.write_bytes(b"changed")
    assert verified().returncode != 0
