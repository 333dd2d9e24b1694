"""Keeps the serving certificate: reads it from files, tests it before use, and reads it again when the files change."""

import contextlib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from webhook.telemetry.log import Log

WARNING = timedelta(days=14)
"""How long before its end a certificate causes a warning."""

TLS_1_2_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Ciphers with forward secrecy and authenticated encryption. TLS 1.3 has no others."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of the certificate, its key and the CA of callers (if any), and the oldest version of TLS to accept."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3


class Certificates:
    """The certificate for new connections.

    Raises OSError with the files if the first certificate and key cannot be used. If later ones cannot be used, or have
    expired, that is logged once, and the previous ones stay in use.
    """

    def __init__(self, files: Files, log: Log) -> None:
        self._files = files
        self._log = log
        self._seen = _contents(files)
        self.context = _context(files)
        """For the handshake of the next connection."""
        self.not_after = _validity(self.context, self._seen[0], files)[1]
        """When the certificate that is served ends."""

    def reload_if_changed(self) -> None:
        """Reload the certificate and key if their files have changed and can be used."""
        try:
            contents = _contents(self._files)
            if contents == self._seen:
                return
            context = _context(self._files)
            if contents != _contents(self._files):
                return  # the files are being replaced right now, and the next call reads all of them
            not_before, not_after = _validity(context, contents[0], self._files)
            if not not_before <= datetime.now(UTC) < not_after:
                raise OSError(0, "not valid now", str(self._files.certificate))
        except OSError as error:
            self._refuse(error)
            return
        self._seen, self.context, self.not_after = contents, context, not_after
        self._refused = ""
        self._log({"message": "certificate replaced", "worker": os.getpid(), "notAfter": not_after.isoformat()})

    _refused = ""

    def _refuse(self, error: OSError) -> None:
        problem = f"{error.filename}: {error.strerror}"
        if problem != self._refused:
            self._refused = problem
            self._log({"message": "certificate not replaced", "worker": os.getpid(), "problem": problem})

    def condition(self) -> tuple[bool, str]:
        """Return whether the certificate in use is still valid, and a line that says so."""
        left = self.not_after - datetime.now(UTC)
        day = f"{self.not_after:%Y-%m-%d %H:%M} UTC"
        if left <= timedelta(0):
            return False, f"the serving certificate ended at {day}"
        return True, f"the serving certificate ends at {day}" if left < WARNING else ""


def _contents(files: Files) -> tuple[bytes, ...]:
    """Return the contents of the files, the certificate first. Raises OSError."""
    return tuple(file.read_bytes() for file in (files.certificate, files.key, files.client_ca) if file is not None)


def _context(files: Files) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = files.oldest
    context.set_ciphers(TLS_1_2_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # no caller resumes sessions, and a resumed session would not ask for the certificate again
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise _unusable(files, getattr(error, "reason", None)) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except ssl.SSLError as error:
            raise OSError(0, "no certificate in PEM in it", str(files.client_ca)) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _unusable(files: Files, reason: str | None) -> OSError:
    """Return why OpenSSL refuses a pair, and in which file; OpenSSL's own message if the reason is unknown."""
    from cryptography import x509  # takes 9 MiB in every process, and only a faulty pair needs it
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    both = f"{files.certificate}, {files.key}"
    try:
        leaf = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    except ValueError:
        return OSError(0, "no certificate in PEM in it", str(files.certificate))
    try:
        key = load_pem_private_key(files.key.read_bytes(), None)
    except TypeError:
        return OSError(0, "the key is encrypted", str(files.key))
    except (ValueError, UnsupportedAlgorithm):
        return OSError(0, "no key in PEM in it", str(files.key))
    if key.public_key() != leaf.public_key():
        return OSError(0, "the key belongs to another certificate", both)
    return OSError(0, reason or "not a certificate and its key", both)


def _no_password() -> str:
    """Keep OpenSSL from asking for a password on a terminal."""
    raise ValueError("the key is encrypted")


NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h), for which `ssl` has no name."""


def _validity(context: ssl.SSLContext, certificate: bytes, files: Files) -> tuple[datetime, datetime]:
    """Return the times between which a certificate is valid, as seen by a client that trusts only this certificate.

    Raises OSError for a certificate that no client accepts from a server.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | NO_CHECK_TIME
    client.load_verify_locations(cadata=certificate.decode("ascii", "ignore"))
    sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = client.wrap_bio(received, sent), context.wrap_bio(sent, received, server_side=True)
    try:
        for each in (asking, answering, asking):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", error.reason)
        raise OSError(0, f"no client accepts this certificate: {reason}", str(files.certificate)) from error
    seen: Mapping[str, Any] = asking.getpeercert() or {}
    return _time(seen["notBefore"]), _time(seen["notAfter"])


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
