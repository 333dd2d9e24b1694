"""Reads certificates: their names, dates and signatures, and the contents of bundles. Pure: no files, no clock."""

import re
from base64 import b64decode
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs.issue import Pair

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----[ \t\r]*\n?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields of a certificate: RFC 4514 names, DNS names and IP addresses, and its validity."""

    subject: str
    issuer: str
    names: tuple[str, ...]
    start: datetime
    end: datetime
    is_ca: bool

    def holds(self, now: datetime) -> bool:
        """Whether it is valid at a moment."""
        return self.start <= now <= self.end


def certificate(pem: bytes) -> Certificate:
    """Read the first certificate in PEM. Raises ValueError if there is none, or an unreadable one."""
    return certificates(pem)[0]


def certificates(pem: bytes) -> tuple[Certificate, ...]:
    """Read all certificates in PEM, in order. Raises ValueError as `certificate` does."""
    return tuple(map(_described, _loaded(pem)))


def fits(pair: Pair) -> bool:
    """Whether a pair is a certificate with its own private key, unencrypted."""
    try:
        key = load_pem_private_key(pair.key_pem, password=None)
        return key.public_key() == _loaded(pair.certificate_pem)[0].public_key()
    except (TypeError, ValueError, UnsupportedAlgorithm):  # TypeError: it is encrypted
        return False


def signed(leaf_pem: bytes, ca_pem: bytes) -> bool:
    """Whether a CA's key signed a certificate. False if either is no certificate, or the second no CA."""
    try:
        leaf, ca = _loaded(leaf_pem)[0], _loaded(ca_pem)[0]
        leaf.verify_directly_issued_by(ca)
    except (TypeError, ValueError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return _described(ca).is_ca


def blocks(bundle: bytes) -> tuple[bytes, ...]:
    """Return the PEM blocks of a bundle unchanged, without parsing them."""
    return tuple(match[0] for match in _BLOCK.finditer(bundle))


def contains(bundle: bytes, pem: bytes) -> bool:
    """Whether a bundle contains a certificate. Line breaks are ignored."""
    return _der(pem) in map(_der, blocks(bundle))


def added(bundle: bytes, pem: bytes) -> bytes:
    """Return a bundle with a certificate added at its end, unless the bundle already contains it."""
    if contains(bundle, pem):
        return bundle
    kept = bundle if bundle.strip() else b""  # some manifests use an empty line for an empty bundle
    return kept + (b"\n" if kept and not kept.endswith(b"\n") else b"") + pem


def removed(bundle: bytes, pem: bytes) -> bytes:
    """Return a bundle without a certificate. The rest stays as it was."""
    unwanted = _der(pem)
    return _BLOCK.sub(lambda match: b"" if _der(match[0]) == unwanted else match[0], bundle)


def _der(pem: bytes) -> bytes:
    match = _BLOCK.search(pem)
    try:
        return b64decode(b"".join(match[1].split()), validate=True) if match else pem
    except ValueError:
        return pem


def _loaded(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        raise ValueError("not a PEM certificate") from None


def _described(loaded: x509.Certificate) -> Certificate:
    try:
        values = [extension.value for extension in loaded.extensions]
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise ValueError("not a certificate whose extensions can be read") from None
    alternatives = [extension for extension in values if isinstance(extension, x509.SubjectAlternativeName)]
    kinds = (x509.DNSName, x509.IPAddress)
    return Certificate(
        loaded.subject.rfc4514_string(),
        loaded.issuer.rfc4514_string(),
        tuple(
            str(name) for extension in alternatives for kind in kinds for name in extension.get_values_for_type(kind)
        ),
        loaded.not_valid_before_utc,
        loaded.not_valid_after_utc,
        any(extension.ca for extension in values if isinstance(extension, x509.BasicConstraints)),
    )
