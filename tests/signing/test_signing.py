"""A statement that cosign itself signed is verified; one that was changed, or signed by another key, is not."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.proving.pretended import proven
from tests.signing.conftest import OFFLINE, Signing
from tests.support.policies import POLICY
from webhook.cli import main as cli
from webhook.reports import proof_report


@pytest.fixture
def verify(signing: Signing, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("PATH", f"{signing.program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(signing.folder))

    def run(bundle: Path, *options: str, key: str = "ours") -> tuple[int, str, str]:
        signer = ("--key", str(signing.folder / f"{key}.pub"))
        status = cli.main(["prove", "--verify", str(bundle), *signer, OFFLINE, *options])
        return status, *capsys.readouterr()

    return run


def test_a_signed_statement_is_verified_with_its_policy(signing: Signing, verify: Any) -> None:
    bundle = signing.sign(proof_report.render("in-toto", proven()))
    status, out, err = verify(bundle, "--policy", str(POLICY))
    assert (status, err) == (0, "")
    assert "verified: policy sample " in out
    status, out, _ = verify(signing.sign(proof_report.render("in-toto", proven(without="host-namespaces"))))
    assert status == 1
    assert "  open       processes: " in out


def test_another_key_and_a_changed_statement_are_refused(signing: Signing, verify: Any) -> None:
    bundle = signing.sign(proof_report.render("in-toto", proven(without="host-namespaces")))
    assert verify(bundle, key="others")[:2] == (2, "")
    value = json.loads(bundle.read_text("utf-8"))
    payload = proof_report.render("in-toto", proven()).encode()
    value["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    bundle.write_text(json.dumps(value))
    status, out, err = verify(bundle)
    assert (status, out) == (2, "")
    assert "cosign: failed to verify signature" in err


def test_an_older_bundle_that_is_signed_for_another_statement_is_refused(signing: Signing, verify: Any) -> None:
    """cosign falls back to its older format if a bundle is none of the new one, and then reads another envelope."""
    signed = json.loads(signing.sign(proof_report.render("in-toto", proven(without="host-namespaces"))).read_text())
    envelope = base64.b64encode(json.dumps(signed["dsseEnvelope"]).encode()).decode()
    payload = base64.b64encode(proof_report.render("in-toto", proven()).encode()).decode()
    signed["dsseEnvelope"]["payload"] = payload
    forged = signing.folder / "forged.json"
    forged.write_text(json.dumps({**signed, "base64Signature": envelope}))
    status, out, err = verify(forged)
    assert (status, out) == (2, "")
    assert "is no Sigstore bundle" in err


def test_a_signature_over_something_else_is_refused(signing: Signing, verify: Any) -> None:
    statement = json.loads(proof_report.render("in-toto", proven()))
    other = signing.sign(json.dumps({**statement, "predicateType": "https://slsa.dev/provenance/v1"}))
    assert verify(other)[:2] == (2, "")
    (signing.folder / "blob").write_text(json.dumps(statement))
    offline = ("--signing-config", "none.json", "--trusted-root", "root.json", "--yes")
    signing.run("sign-blob", "--key", "ours.key", "--bundle", "blob.sigstore.json", *offline, "blob")
    status, _, err = verify(signing.folder / "blob.sigstore.json")
    assert status == 2
    assert "no Sigstore bundle with an in-toto statement" in err
