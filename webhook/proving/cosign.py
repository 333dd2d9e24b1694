"""Asks cosign whether the signature of a bundle is that of a key or of an identity."""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from webhook.rendering import programs
from webhook.text.words import line

SECONDS = 180
"""Maximum seconds of a verification, which may ask a key service and fetch Sigstore's roots."""

MAX_SAID = 64 * 2**10
"""Bytes of cosign's messages that are read."""


class Unverified(Exception):
    """A signature was not verified. The message is the reason, in one line."""


class Signer(NamedTuple):
    """Who has to have signed: a key (a file or the address of a key service), or an identity with its issuer.

    `trusted_root` is a file with the roots of trust; empty for Sigstore's own. With `unlogged`, no entry in a
    transparency log is asked for.
    """

    key: str = ""
    identity: str = ""
    issuer: str = ""
    trusted_root: str = ""
    unlogged: bool = False

    @property
    def options(self) -> Iterable[str]:
        """The options of cosign. Each value stands in one word with its option, so none can become another option."""
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
    """Check the signature of a Sigstore bundle with an in-toto statement. Raises Unverified, also without cosign.

    `digest` is the SHA-256 of a subject of it. cosign gets a copy of the bundle, so that what was verified is what was
    read, whoever may write to the file.
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
