"""Certificates: what is in them, who accepts them, and what the command leaves on disk."""

import base64
import json
import os
import re
import socket
import ssl
import stat
import string
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import example, given
from hypothesis import strategies as st

from certs import Pair, ca_bundle, issue_ca, issue_serving, secret_manifest, service_names
from webhook.cli import main as cli

# Half a second in, because certificates hold whole seconds.
NOW = datetime(2026, 3, 1, 12, 0, 0, 500_000, tzinfo=UTC)
NAME = "slicewarden.slicewarden-system.svc"
NAMES = service_names("slicewarden", "slicewarden-system")
CA = issue_ca("test CA", NOW)
OTHER_CA = issue_ca("test CA", NOW)  # the same name, as after a rotation
SERVING = issue_serving(CA, NAMES, ["10.0.0.1", "fd00::1"], NOW)
FILES = {"ca.crt", "ca.key", "tls.crt", "tls.key"}


def certificate(pair: Pair) -> x509.Certificate:
    (found,) = x509.load_pem_x509_certificates(pair.certificate_pem)
    return found


def verify(leaf: Pair, ca: Pair, subject: x509.DNSName | x509.IPAddress, when: datetime = NOW) -> None:
    store = Store([certificate(ca)])
    PolicyBuilder().store(store).time(when).build_server_verifier(subject).verify(certificate(leaf), [])


def common_name(pair: Pair) -> list[str | bytes]:
    return [attribute.value for attribute in certificate(pair).subject]


def used(usage: x509.KeyUsage) -> set[str]:
    always = {"digital_signature", "content_commitment", "key_encipherment", "data_encipherment"}
    return {use for use in always | {"key_agreement", "key_cert_sign", "crl_sign"} if getattr(usage, use)}


def foreign_ca(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey, identifier: bytes | None
) -> Pair:
    """A CA as someone else may have issued it."""
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Elsewhere")])
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    if identifier is not None:
        builder = builder.add_extension(x509.SubjectKeyIdentifier(identifier), critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return Pair(
        builder.sign(key, algorithm).public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


# What is in them


@pytest.mark.parametrize("pair", [CA, SERVING], ids=["ca", "serving"])
def test_key_is_p256_and_signature_sha256(pair: Pair) -> None:
    key = load_pem_private_key(pair.key_pem, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert key.public_key() == certificate(pair).public_key()
    assert isinstance(certificate(pair).signature_hash_algorithm, hashes.SHA256)
    assert certificate(pair).version is x509.Version.v3


def test_ca_extensions() -> None:
    extensions = certificate(CA).extensions
    constraints = extensions.get_extension_for_class(x509.BasicConstraints)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)
    assert usage.critical
    assert used(usage.value) == {"key_cert_sign", "crl_sign"}
    own = extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert own.value == x509.SubjectKeyIdentifier.from_public_key(certificate(CA).public_key())
    assert common_name(CA) == ["test CA"]


def test_serving_extensions() -> None:
    extensions = certificate(SERVING).extensions
    sans = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    issuer = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    issuers = certificate(CA).extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    own = extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    assert sans.value.get_values_for_type(x509.DNSName) == list(NAMES)
    assert sans.value.get_values_for_type(x509.IPAddress) == [ip_address("10.0.0.1"), ip_address("fd00::1")]
    assert not sans.critical
    assert usage.critical
    assert used(usage.value) == {"digital_signature"}
    assert list(purposes.value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert issuer.value.key_identifier == issuers.value.digest
    assert own.value == x509.SubjectKeyIdentifier.from_public_key(certificate(SERVING).public_key())
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert common_name(SERVING) == [NAME]


def test_serial_numbers_and_keys_are_fresh() -> None:
    assert certificate(CA).serial_number != certificate(OTHER_CA).serial_number
    assert CA.key_pem != OTHER_CA.key_pem


@pytest.mark.parametrize(("pair", "days"), [(CA, 3650), (SERVING, 365)], ids=["ca", "serving"])
def test_validity_starts_an_hour_early(pair: Pair, days: int) -> None:
    start = certificate(pair).not_valid_before_utc
    assert start == NOW.replace(microsecond=0) - timedelta(hours=1)
    assert certificate(pair).not_valid_after_utc - start == timedelta(days=days)


class Zone(tzinfo):
    """One hour ahead of UTC, two from April on."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=2 if when and when.month >= 4 else 1)

    def dst(self, when: datetime | None) -> timedelta:
        return self.utcoffset(when) - timedelta(hours=1)

    def tzname(self, when: datetime | None) -> str:
        return f"+{self.utcoffset(when)}"


def test_now_may_be_in_any_zone() -> None:
    pair = certificate(issue_ca("x", NOW.replace(hour=13, tzinfo=Zone()), days=60))
    assert pair.not_valid_before_utc == certificate(CA).not_valid_before_utc
    assert pair.not_valid_after_utc - pair.not_valid_before_utc == timedelta(days=60)


@pytest.mark.parametrize(("length", "has_name"), [(64, True), (65, False)])
def test_common_name_only_where_it_fits(length: int, has_name: bool) -> None:
    name = f"{'a' * 60}.{'b' * (length - 61)}"
    pair = issue_serving(CA, [name, "short"], [], NOW)
    sans = certificate(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert common_name(pair) == ([name] if has_name else [])
    assert sans.critical is not has_name
    verify(pair, CA, x509.DNSName(name))


def test_names_given_twice_appear_once() -> None:
    pair = issue_serving(CA, ["a", "b", "a"], ["::1", "0:0::1"], NOW)
    sans = certificate(pair).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(sans) == [x509.DNSName("a"), x509.DNSName("b"), x509.IPAddress(ip_address("::1"))]


def test_pair_does_not_show_its_key() -> None:
    assert "PRIVATE" not in repr(CA)


# Who accepts them


@pytest.mark.parametrize("name", NAMES)
def test_chain_verifies_for_every_name(name: str) -> None:
    verify(SERVING, CA, x509.DNSName(name))


def test_chain_verifies_for_an_address_alone() -> None:
    pair = issue_serving(CA, [], ["10.0.0.1"], NOW)
    verify(pair, CA, x509.IPAddress(ip_address("10.0.0.1")))
    assert common_name(pair) == []


@pytest.mark.parametrize(
    ("ca", "name", "when"),
    [
        (CA, "other.slicewarden-system.svc", NOW),
        (OTHER_CA, NAME, NOW),
        (CA, NAME, NOW - timedelta(hours=2)),
        (CA, NAME, NOW + timedelta(days=365)),
    ],
    ids=["another name", "another CA", "too early", "expired"],
)
def test_chain_does_not_verify(ca: Pair, name: str, when: datetime) -> None:
    with pytest.raises(VerificationError):
        verify(SERVING, ca, x509.DNSName(name), when)


@pytest.mark.parametrize("identifier", [b"their own way", None])
@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())], ids=["rsa", "ec"]
)
def test_issues_from_a_foreign_ca(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, identifier: bytes | None
) -> None:
    ca = foreign_ca(key, identifier)
    leaf = certificate(issue_serving(ca, [NAME], [], NOW))
    leaf.verify_directly_issued_by(certificate(ca))
    issuer = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    computed = x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest
    assert issuer == (identifier or computed)


class Server:
    """One thread that accepts TLS 1.3 connections on loopback and greets each."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.load_cert_chain(certificate, key)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection:
                connection.settimeout(5)
                if connection.recv(1, socket.MSG_PEEK) == b"":
                    return
                try:
                    with self._context.wrap_socket(connection, server_side=True) as tls:
                        tls.sendall(b"hello")
                except OSError:
                    continue  # the client refused us

    def close(self) -> None:
        socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        self._thread.join(5)
        self._socket.close()


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("issued")
    assert main(["issue", "--ip", "127.0.0.1", "--out", str(directory)]) == 0
    return directory


@pytest.fixture(scope="module")
def port(issued: Path) -> Iterator[int]:
    server = Server(issued / "tls.crt", issued / "tls.key")
    yield server.port
    server.close()


def greet(port: int, name: str, ca_pem: bytes | None) -> tuple[bytes, str | None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if ca_pem is not None:
        context.load_verify_locations(cadata=ca_pem.decode())
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=name) as tls,
    ):
        return tls.recv(5), tls.version()


@pytest.mark.parametrize("name", [*NAMES, "127.0.0.1"])
def test_handshake(issued: Path, port: int, name: str) -> None:
    assert greet(port, name, (issued / "ca.crt").read_bytes()) == (b"hello", "TLSv1.3")


def test_handshake_with_a_bundle_of_two_cas(issued: Path, port: int) -> None:
    old = issue_ca("slicewarden CA", NOW).certificate_pem
    bundle = base64.b64decode(ca_bundle(old, (issued / "ca.crt").read_bytes()))
    assert greet(port, NAME, bundle) == (b"hello", "TLSv1.3")


def test_handshake_refused_for_another_name(issued: Path, port: int) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        greet(port, "kube-dns.kube-system.svc", (issued / "ca.crt").read_bytes())


@pytest.mark.parametrize("ca_pem", [None, OTHER_CA.certificate_pem], ids=["no CA", "another CA"])
def test_handshake_refused_without_the_ca(port: int, ca_pem: bytes | None) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        greet(port, NAME, ca_pem)


# What is refused


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: issue_ca("", NOW), "length must be"),
        (lambda: issue_ca("a" * 65, NOW), "length must be"),
        (lambda: issue_ca("x", NOW, days=0), "at least 1"),
        (lambda: issue_ca("x", NOW.replace(tzinfo=None)), "time zone"),
        (lambda: issue_serving(CA, [], [], NOW), "at least one DNS name"),
        (lambda: issue_serving(CA, ["a"], [], NOW, days=0), "at least 1"),
        (lambda: issue_serving(CA, ["a"], [], NOW, days=366), "at most 365"),
        (lambda: issue_serving(CA, ["a"], [], NOW.replace(tzinfo=None)), "time zone"),
        (lambda: issue_serving(CA, ["a"], ["10.0.0.256"], NOW), "does not appear to be"),
        (lambda: issue_serving(CA, ["a"], ["10.0.0.0/8"], NOW), "does not appear to be"),
        (lambda: secret_manifest("Tls", "ns", CA, SERVING), "'Tls' is not a Secret name"),
        (lambda: secret_manifest("tls", "a.b", CA, SERVING), "'a.b' is not a namespace"),
        (lambda: service_names("1service", "ns"), "'1service' is not a Service name"),
    ],
)
def test_bad_arguments(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "name",
    ["", ".", "a.", ".a", "a..b", "*.svc", "A.svc", "a_b", "-a", "a-", "10.0.0.1", "a\n", "é", "a" * 64],
)
def test_bad_dns_names(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name!r} is not a DNS name")):
        issue_serving(CA, ["good", name], [], NOW)


def test_dns_name_of_253_characters_and_no_more() -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    verify(issue_serving(CA, [longest], [], NOW), CA, x509.DNSName(longest))
    with pytest.raises(ValueError, match="is not a DNS name"):
        issue_serving(CA, [longest + "b"], [], NOW)


def test_serving_does_not_outlive_its_ca() -> None:
    ca = issue_ca("short", NOW, days=10)
    end = certificate(ca).not_valid_after_utc
    assert certificate(issue_serving(ca, ["a"], [], NOW, days=10)).not_valid_after_utc == end
    with pytest.raises(ValueError, match=re.escape(f"outlive its CA, which ends at {end.isoformat()}")):
        issue_serving(ca, ["a"], [], NOW, days=11)
    with pytest.raises(ValueError, match="outlive its CA"):
        issue_serving(ca, ["a"], [], NOW + timedelta(seconds=1), days=10)


def encrypted(pair: Pair) -> bytes:
    key = load_pem_private_key(pair.key_pem, password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


@pytest.mark.parametrize(
    ("ca", "message"),
    [
        (Pair(CA.certificate_pem, OTHER_CA.key_pem), "does not belong"),
        (Pair(CA.certificate_pem, b"x"), "not an unencrypted PEM private key"),
        (Pair(CA.certificate_pem, encrypted(CA)), "not an unencrypted PEM private key"),
        (Pair(CA.certificate_pem + OTHER_CA.certificate_pem, CA.key_pem), "found 2"),
        (Pair(CA.certificate_pem + CA.key_pem, CA.key_pem), "private key"),
        (SERVING, "not a CA certificate"),
        (Pair(b"", CA.key_pem), "not a PEM certificate"),
        (foreign_ca(ed25519.Ed25519PrivateKey.generate(), None), "neither ECDSA nor RSA"),
    ],
    ids=["mismatch", "no key", "encrypted", "two", "key inside", "leaf", "empty", "ed25519"],
)
def test_bad_cas(ca: Pair, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        issue_serving(ca, ["a"], [], NOW)


# Service names

ALPHANUMERIC = string.ascii_lowercase + string.digits
LABELS = st.text(ALPHANUMERIC + "-", max_size=65)


def is_label(text: str, first: str) -> bool:
    return (
        1 <= len(text) <= 63 and set(text) <= set(ALPHANUMERIC + "-") and text[0] in first and text[-1] in ALPHANUMERIC
    )


@given(st.text() | LABELS, st.text() | LABELS)
@example("a" * 63, "0" * 63)
@example("a" * 64, "a")
@example("a", "a" * 64)
@example("a-", "a")
@example("0a", "a")
@example("a", "a\n")
@example("a.b", "a")
@example("\u0131", "a")
def test_service_names_parse_or_are_refused(service: str, namespace: str) -> None:
    if is_label(service, string.ascii_lowercase) and is_label(namespace, ALPHANUMERIC):
        names = service_names(service, namespace)
        assert [name.split(".") for name in names] == [
            [service, namespace, "svc"],
            [service, namespace, "svc", "cluster", "local"],
            [service, namespace],
            [service],
        ]
    else:
        with pytest.raises(ValueError, match="is not a"):
            service_names(service, namespace)


# Forms for Kubernetes


def test_bundle_of_two_cas_keeps_order_and_drops_duplicates() -> None:
    both = CA.certificate_pem + OTHER_CA.certificate_pem
    assert base64.b64decode(ca_bundle(both, OTHER_CA.certificate_pem, CA.certificate_pem)) == both
    assert base64.b64decode(ca_bundle(OTHER_CA.certificate_pem)) == OTHER_CA.certificate_pem


def test_bundle_holds_nothing_but_certificates() -> None:
    assert ca_bundle(b"# a note\n" + CA.certificate_pem + b"another") == ca_bundle(CA.certificate_pem)


def test_bundle_of_nothing() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ca_bundle()


def test_secret_holds_the_pair_and_no_ca_key() -> None:
    data = {
        "ca.crt": CA.certificate_pem,
        "tls.crt": SERVING.certificate_pem,
        "tls.key": SERVING.key_pem,
    }
    assert secret_manifest("slicewarden-tls", "slicewarden-system", CA, SERVING) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "slicewarden-tls", "namespace": "slicewarden-system"},
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def test_secret_refuses_a_ca_key_beside_the_certificate() -> None:
    with pytest.raises(ValueError, match="private key"):
        secret_manifest("tls", "ns", Pair(CA.certificate_pem + CA.key_pem, CA.key_pem), SERVING)


# The command


def read(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def ca_arguments(directory: Path) -> list[str]:
    return ["--ca-cert", str(directory / "ca.crt"), "--ca-key", str(directory / "ca.key")]


def main(argv: Sequence[str]) -> int:
    return cli.main(["certs", *argv])


def failure(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    """Run a command that must fail; return its one line."""
    capsys.readouterr()
    assert main(list(map(str, argv))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err.removeprefix("error: ").rstrip("\n")


def test_issue_writes_both_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "tls"
    assert main(["issue", "--dns", "localhost", "--days", "30", "--out", str(out)]) == 0
    assert capsys.readouterr().err == ""
    files = read(out)
    assert set(files) == FILES
    ca, serving = (Pair(files[f"{name}.crt"], files[f"{name}.key"]) for name in ("ca", "tls"))
    for name in (*NAMES, "localhost"):
        verify(serving, ca, x509.DNSName(name), datetime.now(UTC))
    leaf = certificate(serving)
    assert leaf.not_valid_after_utc - leaf.not_valid_before_utc == timedelta(days=30)
    for pair in (ca, serving):
        assert load_pem_private_key(pair.key_pem, None).public_key() == certificate(pair).public_key()


def test_issue_names_the_service(tmp_path: Path) -> None:
    assert main(["issue", "--service", "gate", "--namespace", "gpu", "--out", str(tmp_path)]) == 0
    leaf = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
    sans = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sans.get_values_for_type(x509.DNSName) == list(service_names("gate", "gpu"))


def test_keys_are_private_from_the_moment_of_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    created: list[tuple[str, int]] = []
    os_open = os.open

    def spy(path: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = os_open(path, flags, mode)
        created.append((path.name, stat.S_IMODE(os.fstat(descriptor).st_mode)))
        return descriptor

    monkeypatch.setattr(os, "open", spy)
    mask = os.umask(0)
    try:
        assert main(["issue", "--out", str(tmp_path)]) == 0
    finally:
        os.umask(mask)
    assert {mode for name, mode in created if ".key" in name} == {0o600}
    assert len(created) == 4
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"ca.crt": 0o644, "ca.key": 0o600, "tls.crt": 0o644, "tls.key": 0o600}


def test_a_key_left_open_by_others_is_closed(tmp_path: Path) -> None:
    key = tmp_path / "tls.key"
    key.touch(0o666)
    assert main(["issue", "--out", str(tmp_path)]) == 0
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_ca_key_is_not_overwritten_without_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["issue", "--out", str(tmp_path)]
    assert main(argv) == 0
    before = read(tmp_path)
    assert "ca.key exists" in failure(capsys, *argv)
    assert read(tmp_path) == before
    assert main([*argv, "--force"]) == 0
    after = read(tmp_path)
    assert set(after) == FILES
    assert all(after[name] != before[name] for name in FILES)


def test_another_ca_does_not_take_the_place_of_one_whose_key_is_kept_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["issue", "--out", str(tmp_path)]
    assert main(argv) == 0
    (tmp_path / "ca.key").unlink()
    before = read(tmp_path)
    assert "ca.crt is of another CA" in failure(capsys, *argv)
    assert read(tmp_path) == before


def test_renewal_in_place_keeps_the_ca(tmp_path: Path) -> None:
    argv = ["issue", "--out", str(tmp_path)]
    assert main(argv) == 0
    before = read(tmp_path)
    assert main([*argv, *ca_arguments(tmp_path)]) == 0
    after = read(tmp_path)
    assert {name for name in FILES if after[name] != before[name]} == {"tls.crt", "tls.key"}
    renewed = Pair(after["tls.crt"], after["tls.key"])
    verify(renewed, Pair(after["ca.crt"], b""), x509.DNSName(NAME), datetime.now(UTC))


def test_given_ca_key_is_not_copied(issued: Path, tmp_path: Path) -> None:
    assert main(["issue", "--out", str(tmp_path), *ca_arguments(issued)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == FILES - {"ca.key"}


def test_given_ca_does_not_displace_another(issued: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["issue", "--out", str(tmp_path)]) == 0
    before = read(tmp_path)
    assert "ca.key exists" in failure(capsys, "issue", "--out", tmp_path, *ca_arguments(issued))
    assert read(tmp_path) == before


def test_failed_write_leaves_the_old_file_and_no_scrap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["issue", "--force", "--out", str(tmp_path)]
    assert main(argv) == 0
    before = read(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert failure(capsys, *argv) == "[Errno 28] No space left on device"
    assert read(tmp_path) == before


def test_failed_rename_leaves_no_scrap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tls.key").mkdir()
    assert failure(capsys, "issue", "--out", tmp_path) == f"{tmp_path / 'tls.key'}: Is a directory"
    assert {path.name for path in tmp_path.iterdir()} == {"ca.crt", "tls.key"}


def test_secret_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["issue", "--secret", "--secret-name", "gate-tls", "--namespace", "gpu"]) == 0
    out, err = capsys.readouterr()
    assert err == "note: the new CA's key is not kept; a renewal will need a new CA\n"
    manifest = json.loads(out)
    assert manifest["metadata"] == {"name": "gate-tls", "namespace": "gpu"}
    data = {name: base64.b64decode(value) for name, value in manifest["data"].items()}
    assert set(data) == FILES - {"ca.key"}
    serving = Pair(data["tls.crt"], data["tls.key"])
    verify(serving, Pair(data["ca.crt"], b""), x509.DNSName("slicewarden.gpu.svc"), datetime.now(UTC))
    assert load_pem_private_key(serving.key_pem, None).public_key() == certificate(serving).public_key()


def test_secret_beside_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["issue", "--secret", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    files = read(tmp_path)
    data = {name: base64.b64decode(value) for name, value in json.loads(out)["data"].items()}
    assert err.startswith(f"wrote ca.crt, ca.key, tls.crt, tls.key into {tmp_path}: ")
    assert data == {name: files[name] for name in FILES - {"ca.key"}}


def test_what_was_written_is_said_in_a_line_with_its_end(
    issued: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["issue", "--out", str(tmp_path), "--days", "30", *ca_arguments(issued)]) == 0
    out, err = capsys.readouterr()
    end = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes()).not_valid_after_utc
    assert out.startswith(
        f"wrote ca.crt, tls.crt, tls.key into {tmp_path}: CN=slicewarden.slicewarden-system.svc; for "
    )
    assert out.endswith(f"; signed by CN=slicewarden CA; ends {end:%Y-%m-%dT%H:%MZ}\n")
    assert (out.count("\n"), err) == (1, "")


def test_secret_from_a_given_ca_warns_of_nothing(issued: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["issue", "--secret", *ca_arguments(issued)]) == 0
    out, err = capsys.readouterr()
    assert base64.b64decode(json.loads(out)["data"]["ca.crt"]) == (issued / "ca.crt").read_bytes()
    assert err == ""


def test_bundle_on_stdout(issued: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(OTHER_CA.certificate_pem)
    ca = issued / "ca.crt"
    assert main(["bundle", str(ca), str(other), str(ca)]) == 0
    out, err = capsys.readouterr()
    assert base64.b64decode(out) == ca.read_bytes() + OTHER_CA.certificate_pem
    assert out.count("\n") == 1
    assert err == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CA.key_pem, "holds a private key, where only CA certificates may be"),
        (CA.certificate_pem + CA.key_pem, "holds a private key, where only CA certificates may be"),
        (SERVING.certificate_pem, "not a CA certificate"),
        (CA.certificate_pem + SERVING.certificate_pem, "not a CA certificate"),
        (b"", "not a PEM certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "not a PEM certificate"),
    ],
    ids=["key", "both", "leaf", "ca and leaf", "empty", "broken"],
)
def test_bundle_refuses(
    issued: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    path = tmp_path / "bad.pem"
    path.write_bytes(content)
    assert failure(capsys, "bundle", issued / "ca.crt", path) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["issue"], "issue needs --out, --secret or both"),
        (["issue", "--secret", "--days", "366"], "days must be at most 365, not 366"),
        (["issue", "--secret", "--ca-cert", "ca.crt"], "--ca-cert and --ca-key go together"),
        (["issue", "--secret", "--ca-key", "ca.key"], "--ca-cert and --ca-key go together"),
        (["issue", "--secret", "--service", "a.b"], "'a.b' is not a Service name (a DNS-1035 label)"),
        (["issue", "--secret", "--dns", "a\nb"], r"'a\nb' is not a DNS name"),
        (["issue", "--secret", "--ip", "localhost"], "'localhost' does not appear to be"),
        (["bundle", "/nonexistent/ca.crt"], "/nonexistent/ca.crt: No such file or directory"),
        (["issue", "--out", "/dev/null/tls"], "/dev/null/tls: Not a directory"),
    ],
)
def test_error_lines(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert message in failure(capsys, *argv)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["renew"], "No such command 'renew'."),
        (["issue", "--out", ""], "Invalid value for '--out': is empty, and names nothing; is a variable not set?"),
        (["issue", "--secret", "--days", "x"], "Invalid value for '--days': 'x' is not a valid integer."),
        (["bundle"], "Missing argument 'FILE...'."),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", f"error: {message[0].lower()}{message[1:]}".rstrip("."))


def test_nothing_is_written_when_issuing_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    failure(capsys, "issue", "--out", out, "--days", "0")
    assert not out.exists()
