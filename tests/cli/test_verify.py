"""`slicewarden prove --verify` with a cosign that is pretended: it notes its arguments, and answers as it is told."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proving.pretended import proven
from tests.support.policies import POLICY
from webhook.cli import main as cli
from webhook.reports import proof_report, statement

STATEMENT = json.loads(proof_report.render("in-toto", proven()))
OPEN = json.loads(proof_report.render("in-toto", proven(without="host-namespaces")))
DIGEST = STATEMENT["subject"][0]["digest"]["sha256"]
PREDICATE = "https://slicewarden.dev/attestation/gpu-isolation/v1"
TYPE = "application/vnd.in-toto+json"

Run = Callable[..., tuple[int, str, str]]


def bundle(of: Any, kind: str = TYPE) -> str:
    payload = of if isinstance(of, str) else base64.b64encode(json.dumps(of).encode()).decode()
    return json.dumps({"verificationMaterial": {}, "dsseEnvelope": {"payload": payload, "payloadType": kind}})


def but(**changes: Any) -> dict[str, Any]:
    """The statement with other values in its predicate."""
    return {**STATEMENT, "predicate": {**STATEMENT["predicate"], **changes}}


@pytest.fixture
def cosign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cosign that exits with the status in `status`, after the words in `said`; `asked` has its arguments."""
    programs = tmp_path / "programs"
    programs.mkdir()
    script = (
        '#!/bin/sh\nprintf "%s\\n" "$@" >"$0.asked"\nfor each; do case $each in --bundle=*) '
        'cat "${each#*=}" >"$0.read";; esac; done\n'
        'cat "$0.said" >&2\nexit "$(cat "$0.status")"\n'
    )
    program = programs / "cosign"
    program.write_text(script)
    program.chmod(0o755)
    Path(f"{program}.said").write_text("Verified OK\n")
    Path(f"{program}.status").write_text("0")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(text: str, *options: str) -> tuple[int, str, str]:
        file = tmp_path / "bundle.json"
        file.write_text(text)
        status = cli.main(["prove", "--verify", str(file), *(options or ("--key", "k.pub"))])
        return status, *capsys.readouterr()

    return run


def asked(cosign: Path) -> list[str]:
    return Path(f"{cosign}.asked").read_text("utf-8").splitlines()


def test_a_verified_statement_shows_its_proof(cosign: Path, verify: Run) -> None:
    status, out, err = verify(bundle(STATEMENT))
    assert (status, err) == (0, "")
    shut = STATEMENT["predicate"]["summary"]["shut"]
    digest = STATEMENT["predicate"]["policy"]["digest"]
    assert out.endswith(
        f"verified: policy sample {digest}, Kubernetes v1.37.1, cluster not known, 2026-01-01T00:00:00+00:00: "
        f"{shut} shut, 0 open, 0 not shown\n"
    )
    first, where, *rest = asked(cosign)
    assert (first, where.partition("=")[0]) == ("verify-blob-attestation", "--bundle")
    assert rest == [f"--type={PREDICATE}", f"--digest={DIGEST}", "--digestAlg=sha256", "--key=k.pub"]
    assert json.loads(Path(f"{cosign}.read").read_text("utf-8")) == json.loads(bundle(STATEMENT))


def test_an_identity_and_other_roots_reach_cosign_each_in_its_word(cosign: Path, verify: Run) -> None:
    options = (
        "--certificate-identity",
        "--key=x",
        "--certificate-oidc-issuer",
        "https://issuer",
        "--trusted-root",
        "r",
    )
    assert verify(bundle(STATEMENT), *options, "--insecure-ignore-tlog")[0] == 0
    assert asked(cosign)[5:] == [
        "--certificate-identity=--key=x",
        "--certificate-oidc-issuer=https://issuer",
        "--trusted-root=r",
        "--insecure-ignore-tlog",
    ]


@pytest.mark.usefixtures("cosign")
def test_a_statement_with_an_open_way_is_status_1(verify: Run) -> None:
    status, out, _ = verify(bundle(OPEN))
    assert status == 1
    assert "  open       processes: a pod with the node's processes" in out


@pytest.mark.usefixtures("cosign")
def test_a_statement_with_a_way_that_was_not_shown_or_with_none_is_status_2(verify: Run) -> None:
    untried = [{"pool": "x", "trust": "trusted", "why": "no\n::error::node"}]
    summary = {**STATEMENT["predicate"]["summary"], "not shown": 1}
    status, out, _ = verify(bundle(but(untried=untried, summary=summary)))
    assert status == 2
    assert "  not shown  all ways: no\\n::error::node\n" in out
    nothing = but(targets=[], summary=dict.fromkeys(("shut", "open", "not shown"), 0))
    assert verify(bundle(nothing))[0] == 2


def test_a_signature_that_cosign_refuses_shows_nothing(cosign: Path, verify: Run) -> None:
    Path(f"{cosign}.status").write_text("1")
    Path(f"{cosign}.said").write_text(
        "WARNING: x\nError: no signature\x1b[2J of it\nerror during command execution: y\n"
    )
    status, out, err = verify(bundle(STATEMENT))
    assert (status, out) == (2, "")
    assert "bundle.json: cosign: no signature" in err
    assert "\x1b" not in err
    Path(f"{cosign}.said").write_text("")
    assert "cosign: it failed without a reason" in verify(bundle(STATEMENT))[2]


def test_without_cosign_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: Run) -> None:
    """A program in a folder of a repository is not taken: the folder is relative."""
    (tmp_path / "cosign").write_text("#!/bin/sh\n")
    (tmp_path / "cosign").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    status, out, err = verify(bundle(STATEMENT))
    assert (status, out) == (2, "")
    assert "cosign is not installed; install release 3 or newer" in err


UNREAD = {
    "no JSON": "{",
    "no map": "[]",
    "deep": "[" * 100_000,
    "no envelope": "{}",
    "another kind of payload": bundle(STATEMENT, "text/plain"),
    "no base64": bundle("*"),
    "no JSON in it": bundle("eA=="),
    "two envelopes": bundle(STATEMENT).replace('"verificationMaterial"', '"dsseEnvelope"'),
    "an older bundle with an envelope of its own": bundle(STATEMENT).replace("{", '{"base64Signature": "e30=", ', 1),
    "a key in capital letters": bundle(STATEMENT).replace("{", '{"BASE64SIGNATURE": "e30=", ', 1),
    "another's statement": bundle({**STATEMENT, "predicateType": "https://slsa.dev/provenance/v1"}),
    "an older statement": bundle({**STATEMENT, "_type": "https://in-toto.io/Statement/v0.1"}),
    "no policy": bundle({**STATEMENT, "subject": []}),
    "an argument for a digest": bundle(
        {**STATEMENT, "subject": [{"name": "GPUSharingPolicy/x", "digest": {"sha256": "--key=x"}}]}
    ),
    "another policy": bundle(
        {**STATEMENT, "subject": [{"name": "GPUSharingPolicy/x", "digest": {"sha256": "0" * 64}}]}
    ),
    "no predicate": bundle({**STATEMENT, "predicate": None}),
    "another outcome": bundle(but(targets=[{**STATEMENT["predicate"]["targets"][0], "ways": [{"outcome": "well"}]}])),
    "another sum": bundle(but(summary={"shut": 999, "open": 0, "not shown": 0})),
    "a number in words": bundle(but(summary={"shut": "all", "open": 0, "not shown": 0})),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_is_no_proof_is_refused_before_cosign_is_asked(cosign: Path, verify: Run, name: str) -> None:
    status, out, err = verify(UNREAD[name])
    assert (status, out) == (2, "")
    assert "bundle.json: " in err
    assert len(err) < 5000
    assert not Path(f"{cosign}.asked").exists()


def test_a_file_that_is_too_large_or_absent_is_refused(cosign: Path, verify: Run, tmp_path: Path) -> None:
    assert "is larger than 16 MiB" in verify(" " * (statement.MAX_BUNDLE + 1))[2]
    assert cli.main(["prove", "--verify", str(tmp_path / "absent"), "--key", "k"]) == 2
    assert not Path(f"{cosign}.asked").exists()


@pytest.mark.usefixtures("cosign")
def test_a_policy_that_is_given_has_to_be_the_statements(verify: Run, tmp_path: Path) -> None:
    assert verify(bundle(STATEMENT), "--key", "k", "--policy", str(POLICY))[0] == 0
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.read_text("utf-8").replace("maxRequest: 8", "maxRequest: 4"))
    status, out, err = verify(bundle(STATEMENT), "--key", "k", "--policy", str(other))
    assert (status, out) == (2, "")
    assert "is on policy sample" in err
    assert "whose content is not that of" in err


@pytest.mark.usefixtures("cosign")
def test_a_policy_that_was_not_the_installed_one_is_noted(verify: Run) -> None:
    policy = {**STATEMENT["predicate"]["policy"], "installed": ""}
    status, _, err = verify(bundle(but(policy=policy)))
    assert (status, err) == (0, "note: the statement does not say that this policy was the installed one\n")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--verify", "b"), "name who signed"),
        (("--verify", "b", "--key", "k", "--certificate-identity", "i"), "name who signed"),
        (("--verify", "b", "--certificate-identity", "i"), "name who signed"),
        (("--verify", "b", "--key", "k", "--certificate-oidc-issuer", "i"), "name who signed"),
        (("--verify", "b", "--key", "k", "--format", "json"), "the format table only"),
        (("--verify", "b", "--key", "k", "--as", "ada"), "leave out --as"),
        (("--verify", "b", "--key", "k", "--namespace", "vision"), "leave out --namespace"),
        (("--key", "k"), "--key needs --verify"),
        (("--insecure-ignore-tlog",), "--insecure-ignore-tlog needs --verify"),
    ],
)
def test_options_that_do_not_fit_are_an_error(
    cosign: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str
) -> None:
    assert cli.main(["prove", *options]) == 2
    assert why in capsys.readouterr().err
    assert not Path(f"{cosign}.asked").exists()


@given(data=st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    for each in (data, bundle(base64.b64encode(data).decode()).encode()):
        with pytest.raises(statement.Unread) as caught:
            statement.read(each)
        assert str(caught.value).isprintable()
