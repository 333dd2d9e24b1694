"""Issue a certificate authority and the serving certificates under it. Pure: no files, no clock."""

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW = timedelta(hours=1)  # maximum time that a client's clock may be behind ours
MAX_SERVING_DAYS = 365
MAX_COMMON_NAME = 64  # X.520 ub-common-name

_DNS_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_DNS_1123_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NO_USAGE = {
    "digital_signature": False,
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "key_cert_sign": False,
    "crl_sign": False,
    "encipher_only": False,
    "decipher_only": False,
}


@dataclass(frozen=True, slots=True)
class Pair:
    """One PEM certificate and its private key (PEM, unencrypted; PKCS #8 when issued here)."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)  # a logged Pair must not reveal the key


def issue_ca(name: str, now: datetime, days: int = 3650) -> Pair:
    """Return a new self-signed CA (ECDSA P-256) that may sign leaves but no further CA.

    `name` is its common name, 1 to 64 characters. It is valid for `days` days, which start an hour before
    `now` to allow for clock skew. Raises ValueError for a bad name, a naive `now` or days below 1.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), *_validity(now, days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**_NO_USAGE | {"key_cert_sign": True, "crl_sign": True}), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_serving(
    ca: Pair, dns_names: Iterable[str], ip_addresses: Iterable[str], now: datetime, days: int = 365
) -> Pair:
    """Return a new serving certificate (ECDSA P-256) for the names and addresses, signed by `ca`.

    Returns the certificate without its chain. The first DNS name is also the common name if it is short enough. The
    certificate is valid for `days` days (1 to 365), from an hour before `now`. Raises ValueError if there is no name,
    for a bad name or address (wildcards are refused), a naive `now`, bad days, days after the end of `ca`, and a
    `ca` that is not one ECDSA or RSA CA certificate with its key.
    """
    ca_certificate, ca_key = _load_ca(ca)
    names = tuple(dict.fromkeys(dns_names))
    for name in names:
        if not _is_subdomain(name) or name.rpartition(".")[2].isdigit():
            raise ValueError(f"{name!r} is not a DNS name (lower case, no wildcard, not an IP address)")
    addresses = dict.fromkeys(ip_address(address) for address in ip_addresses)
    sans = [*map(x509.DNSName, names), *map(x509.IPAddress, addresses)]
    if not sans:
        raise ValueError("a serving certificate needs at least one DNS name or IP address")
    if days > MAX_SERVING_DAYS:
        raise ValueError(f"days must be at most {MAX_SERVING_DAYS}, not {days}")
    not_before, not_after = _validity(now, days)
    if not_after > ca_certificate.not_valid_after_utc:
        end = ca_certificate.not_valid_after_utc.isoformat()
        raise ValueError(f"a certificate of {days} days would outlive its CA, which ends at {end}")

    subject = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names[:1] if len(name) <= MAX_COMMON_NAME]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(subject, ca_certificate.subject, key.public_key(), not_before, not_after)
        .add_extension(_authority_key_identifier(ca_certificate), critical=False)
        # RFC 5280, 4.2.1.6: without a subject the names must be critical.
        .add_extension(x509.SubjectAlternativeName(sans), critical=not list(subject))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**_NO_USAGE | {"digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return _pair(certificate, key)


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service, the one the API server asks for (`<service>.<namespace>.svc`) first.

    Raises ValueError unless `service` is a DNS-1035 label and `namespace` a DNS-1123 label.
    """
    if not _DNS_1035_LABEL.fullmatch(service):
        raise ValueError(f"{service!r} is not a Service name (a DNS-1035 label)")
    _check_namespace(namespace)
    qualified = f"{service}.{namespace}"
    return (f"{qualified}.svc", f"{qualified}.svc.cluster.local", qualified, service)


def ca_bundle(*certificates_pem: bytes) -> str:
    """Return the CA certificates as a webhook's `caBundle`: base64 of their PEM, in order, each once.

    An argument may hold several certificates. Raises ValueError for none at all, a private key, or anything
    else that is not a CA certificate.
    """
    certificates = dict.fromkeys(certificate for pem in certificates_pem for certificate in _load_ca_certificates(pem))
    if not certificates:
        raise ValueError("a bundle needs at least one CA certificate")
    return _base64(b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates))


def secret_manifest(name: str, namespace: str, ca: Pair, serving: Pair) -> dict[str, object]:
    """Return a `kubernetes.io/tls` Secret of the serving pair and the CA's certificate, without the CA's key.

    Its `ca.crt` can be copied as the webhook's `caBundle`. Raises ValueError for a bad name or namespace, and as
    `ca_bundle` does.
    """
    if not _is_subdomain(name):
        raise ValueError(f"{name!r} is not a Secret name (a DNS-1123 subdomain)")
    _check_namespace(namespace)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": {
            "ca.crt": ca_bundle(ca.certificate_pem),
            "tls.crt": _base64(serving.certificate_pem),
            "tls.key": _base64(serving.key_pem),
        },
    }


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    not_before: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _validity(now: datetime, days: int) -> tuple[datetime, datetime]:
    if now.utcoffset() is None:
        raise ValueError("now must carry a time zone")
    if days < 1:
        raise ValueError(f"days must be at least 1, not {days}")
    # A certificate holds whole seconds; a fraction kept here would outlive a CA of the same moment.
    start = now.astimezone(UTC).replace(microsecond=0) - SKEW
    return start, start + timedelta(days=days)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def _load_ca(ca: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey]:
    certificates = _load_ca_certificates(ca.certificate_pem)
    if len(certificates) != 1:
        raise ValueError(f"expected one CA certificate, found {len(certificates)}")
    try:
        key = load_pem_private_key(ca.key_pem, password=None)
        certified = certificates[0].public_key()
    except (TypeError, ValueError):  # TypeError: it is encrypted
        raise ValueError("the CA key is not an unencrypted PEM private key") from None
    except UnsupportedAlgorithm:
        raise ValueError("the CA key is neither ECDSA nor RSA") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the CA key is neither ECDSA nor RSA")
    if key.public_key() != certified:
        raise ValueError("the CA key does not belong to the CA certificate")
    return certificates[0], key


def _load_ca_certificates(pem: bytes) -> list[x509.Certificate]:
    if b"PRIVATE KEY-----" in pem:
        raise ValueError("holds a private key, where only CA certificates may be")
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        raise ValueError("not a PEM certificate") from None
    if not all(map(_is_ca, certificates)):
        raise ValueError("not a CA certificate")
    return certificates


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return False


def _authority_key_identifier(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    # A CA issued elsewhere may have derived its identifier in its own way, so copy rather than compute.
    try:
        identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        identifier = x509.SubjectKeyIdentifier.from_public_key(ca.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _check_namespace(namespace: str) -> None:
    if not _DNS_1123_LABEL.fullmatch(namespace):
        raise ValueError(f"{namespace!r} is not a namespace name (a DNS-1123 label)")


def _is_subdomain(name: str) -> bool:
    return len(name) <= 253 and all(map(_DNS_1123_LABEL.fullmatch, name.split(".")))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
