"""The command `slicewarden certs`: issue certificates into files or a Secret, show them, and keep a cluster's."""

import argparse
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from certs.issue import Pair, ca_bundle, issue_ca, issue_serving, secret_manifest, service_names
from certs.life import Choice, Store, Terms, Unsettled, keep, renew, rotate
from certs.read import Certificate, certificates

PROG = "slicewarden certs"
PUBLIC, PRIVATE = 0o644, 0o600
UNSETTLED, UNUSABLE = 1, 2
SHORTEST_OVERLAP = timedelta(minutes=10)  # a kubelet may take two to bring a changed Secret into a pod
UNITS = {"m": "minutes", "h": "hours", "d": "days"}

Reach = Callable[[argparse.Namespace], Store]
"""Finds the cluster whose certificates are to be kept, by the options of `keep`. Raises ValueError."""

Form = type[argparse.ArgumentParser]
"""The parser that the options are given to: whoever makes this a part of another command has pages of one form."""


class _Parser(argparse.ArgumentParser):
    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **given})

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)  # reported as every other error is, in one line


def main(argv: Sequence[str] | None = None, reach: Reach | None = None, form: Form = _Parser) -> int:
    """Run `slicewarden certs` and return its exit status: 0, or 2 after one line of error on stderr.

    With `reach` there is `keep` too, whose status is 1 where another run may do what this one could not. `form` makes
    the parsers.
    """
    try:
        arguments = parser(reach, form).parse_args(argv)
        arguments.run(arguments)
    except Unsettled as error:
        print(f"{PROG}: not now: {error}", file=sys.stderr)
        return UNSETTLED
    except OSError as error:
        name = error.filename2 or error.filename  # of a rename, the second is the one that the user knows
        return _fail(f"{name}: {error.strerror}" if name else str(error))
    except ValueError as error:
        return _fail(str(error))
    return 0


EXAMPLES = {
    "issue": (
        "slicewarden certs issue --out tls/",
        "slicewarden certs issue --out tls/ --ca-cert tls/ca.crt --ca-key tls/ca.key --dns webhook.example.com",
        "slicewarden certs issue --secret | kubectl apply -f -",
    ),
    "bundle": ("slicewarden certs bundle tls/ca.crt",),
    "show": ("slicewarden certs show tls/ca.crt tls/tls.crt",),
    "keep": ("slicewarden certs keep --dry-run", "slicewarden certs keep --rotate-ca --overlap 2d"),
}
"""Command lines of each command, as they are typed; the first of each stand on the page of all."""

DONE = "  0  it is done, and nothing is left to do now"
NOT_NOW = "  1  not now; another run may do what this one could not"
UNFIT = "  2  a person has to see to it: files, Secrets or options do not fit"
CLUSTER = """
environment:
  KUBECONFIG  the cluster, where --kubeconfig is not given
"""


def _epilog(*commands: str) -> str:
    """What stands below the options of a command, or of all."""
    shown = EXAMPLES[commands[0]] if len(commands) == 1 else [EXAMPLES[each][0] for each in commands]
    keeps = "keep" in commands
    status = (DONE, NOT_NOW, UNFIT) if keeps else (DONE, UNFIT)
    lines = ("", "examples:", *(f"  $ {each}" for each in shown), "", "exit status:", *status)
    return "\n".join(lines) + "\n" + (CLUSTER if keeps else "")


def parser(reach: Reach | None, form: Form = _Parser) -> argparse.ArgumentParser:
    """Make the parser; with `reach` it knows `keep` too."""
    known = [each for each in EXAMPLES if reach or each != "keep"]
    parser = form(
        prog=PROG,
        description="Issue the webhook's certificates, and keep those of a cluster.",
        epilog=_epilog(*known),
    )
    commands = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")

    issue = commands.add_parser(
        "issue",
        help="issue a CA and a serving certificate for a Service",
        description="Issue a serving certificate for a Service, and the CA that signs it unless one is given: into "
        "files, as a Secret, or both. Says what was written, and until when it holds.",
        epilog=_epilog("issue"),
    )
    issue.set_defaults(run=_issue)
    _names(issue)
    issue.add_argument("--ip", metavar="ADDR", action="append", default=[], help="one more IP address")
    issue.add_argument("--days", type=int, default=365, help="validity, at most 365 (%(default)s)")
    issue.add_argument("--ca-cert", metavar="FILE", type=_path, help="issue from this CA, not from a new one")
    issue.add_argument("--ca-key", metavar="FILE", type=_path, help="the private key of --ca-cert")
    issue.add_argument("--out", metavar="DIR", type=_path, help="write {ca,tls}.{crt,key} here")
    issue.add_argument("--force", action="store_true", help="give up another CA whose key is in --out")
    issue.add_argument("--secret", action="store_true", help="print a Secret, for kubectl apply -f -")
    issue.add_argument("--secret-name", metavar="NAME", default="slicewarden-tls", help="(%(default)s)")

    bundle = commands.add_parser(
        "bundle",
        help="print the caBundle of one or more CA certificates",
        description="Print the caBundle of one or more CA certificates: what a webhook configuration has the API "
        "server believe, in base64. During a rotation it holds the old CA and the new one.",
        epilog=_epilog("bundle"),
    )
    bundle.set_defaults(run=_bundle)
    bundle.add_argument("files", metavar="FILE", nargs="+", type=_path)

    show = commands.add_parser(
        "show",
        help="say whose certificates are in files, of whom, and when they end",
        description="Say of every certificate in files whose it is, for which names, who signed it, and when it ends.",
        epilog=_epilog("show"),
    )
    show.set_defaults(run=_show)
    show.add_argument("files", metavar="FILE", nargs="+", type=_path)

    if reach:
        keep = commands.add_parser(
            "keep",
            help="issue, renew and rotate what a cluster has, as it is due",
            description="Issue, renew and rotate the certificates of a cluster's webhook, as it is due: the CAs and "
            "what is served lie in Secrets, and the caBundle of the webhook configurations follows. Run it by a "
            "CronJob; a run that finds nothing due changes nothing.",
            epilog=_epilog("keep"),
        )
        _keep_options(keep, reach)
    return parser


def _path(text: str) -> Path:
    if not text:  # as a shell's unset variable is; to Path it would be this folder
        raise argparse.ArgumentTypeError("is empty, and names nothing; is a variable not set?")
    return Path(text)


def _names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--service", default="slicewarden", help="name of the Service (%(default)s)")
    parser.add_argument("--namespace", default="slicewarden-system", help="its namespace (%(default)s)")
    parser.add_argument("--dns", metavar="NAME", action="append", default=[], help="one more DNS name")


def _keep_options(parser: argparse.ArgumentParser, reach: Reach) -> None:
    parser.set_defaults(run=partial(_keep, reach))
    _names(parser)
    parser.add_argument(
        "--secret-name", metavar="NAME", default="slicewarden-serving", help="what is served (%(default)s)"
    )
    parser.add_argument("--ca-secret-name", metavar="NAME", default="slicewarden-ca", help="the CAs (%(default)s)")
    parser.add_argument(
        "--configuration", metavar="NAME", default="slicewarden", help="the webhook configurations (%(default)s)"
    )
    parser.add_argument("--days", type=int, default=90, help="validity of what is served (%(default)s)")
    parser.add_argument("--ca-days", type=int, default=730, help="validity of a CA (%(default)s)")
    parser.add_argument(
        "--overlap",
        type=_overlap,
        default=timedelta(days=1),
        metavar="TIME",
        help="how long two CAs are trusted side by side before the next change: 30m, 12h or 2d (1d)",
    )
    parser.add_argument("--renew", action="store_true", help="issue a new serving certificate now")
    parser.add_argument("--rotate-ca", action="store_true", help="begin to replace the CA now")
    parser.add_argument("--dry-run", action="store_true", help="write nothing, and say what would be done now")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=_path, help="default: the pod's service account, else kubectl's"
    )
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig")


def _overlap(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30m, 12h or 2d")
    overlap = timedelta(**{UNITS[match[2]]: int(match[1])})
    if overlap < SHORTEST_OVERLAP:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too short for every replica to load a changed Secret: 10m is not"
        )
    return overlap


def _keep(reach: Reach, arguments: argparse.Namespace) -> None:
    names = (*service_names(arguments.service, arguments.namespace), *arguments.dns)
    terms = Terms(names, arguments.days, arguments.ca_days, arguments.overlap)
    wishes: list[Choice] = [rotate] if arguments.rotate_ca else []
    if arguments.renew:
        wishes.append(renew)
    done = keep(reach(arguments), terms, partial(datetime.now, UTC), wishes, dry_run=arguments.dry_run)
    for line in done:
        print(f"would be: {line}" if arguments.dry_run else line, flush=True)


def _bundle(arguments: argparse.Namespace) -> None:
    print(ca_bundle(*map(_read_ca_certificates, arguments.files)))


def _show(arguments: argparse.Namespace) -> None:
    for file in arguments.files:
        try:
            found = certificates(file.read_bytes())
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        for each in found:
            print(f"{file}: {_line(each)}")


def _line(each: Certificate) -> str:
    kind = "CA" if each.is_ca else f"for {', '.join(each.names) or 'no name'}"
    by = "itself" if each.issuer == each.subject else each.issuer
    return f"{each.subject or 'no subject'}; {kind}; signed by {by}; ends {each.end:%Y-%m-%dT%H:%MZ}"


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
        written = _write_pairs(arguments.out, ca, serving, is_new=is_new, force=arguments.force)
        (issued,) = certificates(serving.certificate_pem)
        said = f"wrote {', '.join(written)} into {arguments.out}: {_line(issued)}"
        print(said, file=sys.stderr if arguments.secret else sys.stdout)
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


def _write_pairs(directory: Path, ca: Pair, serving: Pair, *, is_new: bool, force: bool) -> list[str]:
    """Write what was issued, and return the names of the files. Raises ValueError where another CA would be lost."""
    directory.mkdir(parents=True, exist_ok=True)
    ca_key = directory / "ca.key"
    if not force and ca_key.exists() and ca_key.read_bytes() != ca.key_pem:
        raise ValueError(f"{ca_key} exists: issue from it (--ca-cert, --ca-key) or give it up (--force)")
    ca_crt = directory / "ca.crt"
    if not force and ca_crt.exists() and ca_crt.read_bytes() != ca.certificate_pem:
        raise ValueError(
            f"{ca_crt} is of another CA, which callers may trust: give it up (--force) or use another folder"
        )
    files = [
        (ca_crt, ca.certificate_pem, PUBLIC),
        (directory / "tls.key", serving.key_pem, PRIVATE),
        (directory / "tls.crt", serving.certificate_pem, PUBLIC),
        *([(ca_key, ca.key_pem, PRIVATE)] if is_new else []),
    ]
    for path, data, mode in files:
        _write(path, data, mode)
    return sorted(path.name for path, _, _ in files)


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
    return UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
