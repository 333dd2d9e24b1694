"""Asks cosign whether a key or an identity has signed a bundle."""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from webhook.repository import programs
from webhook.text.words import line

SECONDS = 180
"""Maximum seconds of a verification, which may ask a key service and fetch Sigstore's roots."""

MAX_SAID = 64 * 2**10
"""Bytes of cosign's messages that are read."""


class Unverified(Exception):
    """A signature was not verified. The message is the reason, in one line."""


class Signer(NamedTuple):
    """The key or the identity that must have signed: a key is a file or the address of a key service.

    An identity comes with its issuer. `trusted_root` is a file with the roots of trust; empty for Sigstore's own. With
    `unlogged`, no entry in a transparency log is required.
    """

    key: str = ""
    identity: str = ""
    issuer: str = ""
    trusted_root: str = ""
    unlogged: bool = False

    @property
    def options(self) -> Iterable[str]:
        """The options of cosign. Each option and its value are one word, so no value can become another option."""
        named = {
            "key": self.key,
            "certificate-identity": self.identity,
            "certificate-oidc-issuer": self.issuer,
            "trusted-root": self.trusted_root,
        }
        yield from (f"--{name}={value}" for name, value in named.items() if value)
        if self.unlogged:
            yield "--insecure-ignore-tlog"


def verify(bundle: bytes, predicate: str, digest: str, signer: Signer) -> None:
    """Check the signature of a Sigstore bundle with an in-toto statement.

    Raises Unverified, also if there is no cosign.

    `digest` is the SHA-256 of one of the statement's subjects. cosign gets a copy of the bundle. So the verified bytes
    are the bytes that were read, even if somebody writes to the file meanwhile.
    """
    program = programs.found("cosign")
    if not program:
        raise Unverified("cosign is not installed; install release 3 or newer: https://docs.sigstore.dev")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        copy = Path(folder) / "bundle.json"
        copy.write_bytes(bundle)
        asked = [f"--bundle={copy}", f"--type={predicate}", f"--digest={digest}", "--digestAlg=sha256"]
        command = [program, "verify-blob-attestation", *asked, *signer.options]
        try:
            done = subprocess.run(  # noqa: S603 - a list, and nothing in it can become an option
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Unverified(f"cosign took more than {SECONDS} seconds") from error
        except (OSError, ValueError) as error:  # a null character in an option
            raise Unverified(f"cosign does not start: {line(str(error))}") from error
        if done.returncode:
            said.seek(0)
            raise Unverified(f"cosign: {_reason(said.read(MAX_SAID).decode('utf-8', 'replace'))}")


def _reason(said: str) -> str:
    rows = said.splitlines()
    found = next((row for row in rows if row.startswith("Error: ")), rows[-1] if rows else "it failed without a reason")
    return line(found.removeprefix("Error: "))
