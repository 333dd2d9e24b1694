"""The command `slicewarden certs`: issue certificates into files or a Secret, and bundle CAs."""

import argparse
import json
import os
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from certs.issue import Pair, ca_bundle, issue_ca, issue_serving, secret_manifest, service_names

PROG = "slicewarden certs"
PUBLIC, PRIVATE = 0o644, 0o600


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)  # reported as every other error is, in one line


def main(argv: Sequence[str] | None = None) -> int:
    """Run `slicewarden certs` and return its exit status: 0, or 2 after one line of error on stderr."""
    try:
        arguments = _parser().parse_args(argv)
        if arguments.command == "bundle":
            print(ca_bundle(*map(_read_ca_certificates, arguments.files)))
        else:
            _issue(arguments)
    except OSError as error:
        name = error.filename2 or error.filename  # of a rename, the second is the one that the user knows
        return _fail(f"{name}: {error.strerror}" if name else str(error))
    except ValueError as error:
        return _fail(str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=PROG, description="Issue the certificates that the webhook serves with.")
    commands = parser.add_subparsers(dest="command", required=True)

    issue = commands.add_parser("issue", help="issue a CA and a serving certificate for a Service")
    issue.add_argument("--service", default="slicewarden", help="name of the Service (%(default)s)")
    issue.add_argument("--namespace", default="slicewarden-system", help="its namespace (%(default)s)")
    issue.add_argument("--dns", metavar="NAME", action="append", default=[], help="one more DNS name")
    issue.add_argument("--ip", metavar="ADDR", action="append", default=[], help="one more IP address")
    issue.add_argument("--days", type=int, default=365, help="validity, at most 365 (%(default)s)")
    issue.add_argument("--ca-cert", metavar="FILE", type=Path, help="issue from this CA, not from a new one")
    issue.add_argument("--ca-key", metavar="FILE", type=Path, help="the private key of --ca-cert")
    issue.add_argument("--out", metavar="DIR", type=Path, help="write {ca,tls}.{crt,key} here")
    issue.add_argument("--force", action="store_true", help="give up another CA whose key is in --out")
    issue.add_argument("--secret", action="store_true", help="print a Secret, for kubectl apply -f -")
    issue.add_argument("--secret-name", metavar="NAME", default="slicewarden-tls", help="(%(default)s)")

    bundle = commands.add_parser("bundle", help="print the caBundle of one or more CA certificates")
    bundle.add_argument("files", metavar="FILE", nargs="+", type=Path)
    return parser


def _issue(arguments: argparse.Namespace) -> None:
    if arguments.out is None and not arguments.secret:
        raise ValueError("issue needs --out, --secret or both")
    if (arguments.ca_cert is None) != (arguments.ca_key is None):
        raise ValueError("--ca-cert and --ca-key go together")
    now = datetime.now(UTC)
    names = [*service_names(arguments.service, arguments.namespace), *arguments.dns]
    is_new = arguments.ca_cert is None
    if is_new:
        ca = issue_ca("slicewarden CA", now)
    else:
        ca = Pair(_read_ca_certificates(arguments.ca_cert), arguments.ca_key.read_bytes())
    serving = issue_serving(ca, names, arguments.ip, now, arguments.days)
    manifest = secret_manifest(arguments.secret_name, arguments.namespace, ca, serving)

    if arguments.out is not None:
        _write_pairs(arguments.out, ca, serving, is_new=is_new, force=arguments.force)
    elif is_new:
        print(f"{PROG}: the new CA's key is not kept; to renew will take a new CA", file=sys.stderr)
    if arguments.secret:
        print(json.dumps(manifest, indent=2))


def _read_ca_certificates(path: Path) -> bytes:
    pem = path.read_bytes()
    try:
        ca_bundle(pem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return pem


def _write_pairs(directory: Path, ca: Pair, serving: Pair, *, is_new: bool, force: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    ca_key = directory / "ca.key"
    if not force and ca_key.exists() and ca_key.read_bytes() != ca.key_pem:
        raise ValueError(f"{ca_key} exists: issue from it (--ca-cert, --ca-key) or give it up (--force)")
    ca_crt = directory / "ca.crt"
    if not force and ca_crt.exists() and ca_crt.read_bytes() != ca.certificate_pem:
        raise ValueError(
            f"{ca_crt} is of another CA, which callers may trust: give it up (--force) or use another folder"
        )
    _write(directory / "ca.crt", ca.certificate_pem, PUBLIC)
    _write(directory / "tls.key", serving.key_pem, PRIVATE)
    _write(directory / "tls.crt", serving.certificate_pem, PUBLIC)
    if is_new:
        _write(ca_key, ca.key_pem, PRIVATE)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Put the file in place whole or not at all, never open to more readers than `mode` lets in."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def _fail(message: str) -> int:
    print(f"{PROG}: error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
