"""Makes certificates for clients that call the webhook."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

import certs


def write(folder: Path, name: str, pair: certs.Pair) -> None:
    """Write a pair as NAME.crt and NAME.key."""
    (folder / f"{name}.crt").write_bytes(pair.certificate_pem)
    (folder / f"{name}.key").write_bytes(pair.key_pem)


def caller(ca: certs.Pair, name: str, *dns: str) -> certs.Pair:
    """Return a client's certificate with these DNS names, if any. It is valid for an hour around now."""
    issuer, key = x509.load_pem_x509_certificate(ca.certificate_pem), ec.generate_private_key(ec.SECP256R1())
    signer = load_pem_private_key(ca.key_pem, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
    )
    if dns:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in dns]), False)
    certificate = builder.sign(signer, hashes.SHA256())
    return certs.Pair(
        certificate.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
