"""The checksums of a release, signed by cosign itself and verified by the commands of docs/releases.md."""

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


def test_the_page_verifies_as_these_tests_do() -> None:
    page = (ROOT / "docs" / "releases.md").read_text("utf-8")
    assert f"cosign verify-blob --key cosign.pub --bundle {make_release.BUNDLE} {make_release.SUMS}" in page
    assert f"sha256sum --check --strict {make_release.SUMS}" in page
