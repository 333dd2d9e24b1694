"""Make what a control plane needs beside the project's `certs`: client certificates and the service accounts' key."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import certs


def client_pair(authority: certs.Pair, user: str, groups: tuple[str, ...]) -> certs.Pair:
    """A certificate by which the API server knows a user: common name and organisations."""
    ca = x509.load_pem_x509_certificate(authority.certificate_pem)
    ca_key = load_pem_private_key(authority.key_pem, password=None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    names = [(NameOID.ORGANIZATION_NAME, group) for group in groups] + [(NameOID.COMMON_NAME, user)]
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(kind, value) for kind, value in names]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(ca.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    return certs.Pair(certificate.public_bytes(Encoding.PEM), _private(key))


def named_authority(name: str) -> certs.Pair:
    """A CA whose certificate is for its own name too, with an RSA key, as OPA's cert-controller asks."""
    key, now = rsa.generate_private_key(65537, 2048), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=366))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return certs.Pair(certificate.public_bytes(Encoding.PEM), private)


def signing_keys() -> tuple[bytes, bytes]:
    """A private key and its public key, for the tokens of service accounts."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _private(key), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
