"""`slicewarden certs`: issue certificates into files or a Secret, show them, and renew those of a cluster."""

import json
import os
import re
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from certs.issue import Pair, ca_bundle, issue_ca, issue_serving, secret_manifest, service_names
from certs.life import Choice, Terms, Unsettled, renew, rotate
from certs.life import keep as keep_certificates
from certs.read import Certificate, certificates
from webhook.cli import inputs, options, outputs, parser
from webhook.text.words import one_line

PUBLIC, PRIVATE = 0o644, 0o600
UNSETTLED = 1
SHORTEST_OVERLAP = timedelta(minutes=10)  # a kubelet may take two to bring a changed Secret into a pod
UNITS = {"m": "minutes", "h": "hours", "d": "days"}

STATUS = {
    "0": "success: nothing more is due now",
    "2": "files, Secrets, options or the registration do not fit: a person has to act",
}
KEPT = {**STATUS, "1": "not possible now; a later run may succeed"}

_FILE = parser.NamedPath(path_type=Path)


def _failing(function: Callable[..., None]) -> Callable[..., int]:
    """Wrap a command so that it returns an exit status. A failure prints one line of error."""

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> int:
        try:
            function(*args, **kwargs)
        except Unsettled as error:
            outputs.say([f"error: try again later: {error}"])
            return UNSETTLED
        except BrokenPipeError:
            raise
        except OSError as error:
            name = error.filename2 or error.filename  # the user knows the second name of a failed rename
            return _fail(f"{name}: {error.strerror}" if name else str(error))
        except ValueError as error:
            return _fail(str(error))
        return 0

    return run


def _fail(message: str) -> int:
    outputs.say([f"error: {message}"])
    return options.UNUSABLE


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
"""Example command lines of each command; the first of each is also shown in the help of the group."""


def _page(name: str) -> parser.HelpEpilog:
    return parser.HelpEpilog(EXAMPLES[name], STATUS, files={}, environment={})


command = parser.CommandGroup(
    "certs",
    help="Issue the webhook's certificates, and keep those of a cluster valid.",
    no_args_is_help=True,
    page=parser.HelpEpilog(
        tuple(lines[0] for lines in EXAMPLES.values()), KEPT, files={}, environment=parser.KUBECONFIG
    ),
)


_SERVICE = options.all_of(
    click.option("--service", default="slicewarden", metavar="NAME", help="name of the Service (slicewarden)"),
    click.option(
        "--namespace", default="slicewarden-system", metavar="NAME", help="its namespace (slicewarden-system)"
    ),
    click.option("--dns", multiple=True, metavar="NAME", help="one more DNS name"),
)


@command.command(
    cls=parser.Command,
    page=_page("issue"),
    short_help="issue a CA and a serving certificate for a Service",
    help="Issue a serving certificate for a Service, and the CA that signs it unless one is given: into files, as a "
    "Secret, or both. Prints what was written, and when it ends.",
)
@_SERVICE
@click.option("--ip", multiple=True, metavar="ADDR", help="one more IP address")
@click.option("--days", type=int, default=365, metavar="DAYS", help="validity, at most 365 (365)")
@click.option("--ca-cert", type=_FILE, metavar="FILE", help="sign with this CA instead of a new one")
@click.option("--ca-key", type=_FILE, metavar="FILE", help="the private key of --ca-cert")
@click.option("--out", type=_FILE, metavar="DIR", help="write {ca,tls}.{crt,key} here")
@click.option("--force", is_flag=True, help="replace a different CA that is in --out")
@click.option("--secret", is_flag=True, help="print a Secret, for kubectl apply -f -")
@click.option("--secret-name", default="slicewarden-tls", metavar="NAME", help="name of the Secret (slicewarden-tls)")
@_failing
def issue(
    service: str,
    namespace: str,
    dns: Sequence[str],
    ip: Sequence[str],
    days: int,
    ca_cert: Path | None,
    ca_key: Path | None,
    out: Path | None,
    force: bool,
    secret: bool,
    secret_name: str,
) -> None:
    """Issue the certificates, write them, and print what was issued."""
    if out is None and not secret:
        raise ValueError("issue needs --out, --secret or both")
    now = datetime.now(UTC)
    if ca_cert and ca_key:
        ca = Pair(_read_ca_certificates(ca_cert), ca_key.read_bytes())
    elif ca_cert or ca_key:
        raise ValueError("--ca-cert and --ca-key go together")
    else:
        ca = issue_ca("slicewarden CA", now)
    is_new = ca_cert is None
    serving = issue_serving(ca, [*service_names(service, namespace), *dns], ip, now, days)
    manifest = secret_manifest(secret_name, namespace, ca, serving)
    if out is not None:
        files = _write_pairs(out, ca, serving, is_new=is_new, force=force)
        (issued,) = certificates(serving.certificate_pem)
        line = f"wrote {', '.join(files)} into {out}: {_line(issued)}"
        outputs.show(f"{line}\n", aside=secret)
    elif is_new:
        outputs.say(["note: the new CA's key is not kept; a renewal will need a new CA"])
    if secret:
        outputs.show(json.dumps(manifest, indent=2) + "\n")


@command.command(
    cls=parser.Command,
    page=_page("bundle"),
    short_help="print the caBundle of one or more CA certificates",
    help="Print the caBundle of one or more CA certificates, in base64: the CAs that the API server trusts, for a "
    "webhook configuration. During a rotation it holds the old CA and the new one.",
)
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...", help="PEM")
@_failing
def bundle(files: Sequence[Path]) -> None:
    """Print the bundle."""
    outputs.show(f"{ca_bundle(*map(_read_ca_certificates, files))}\n")


@command.command(
    cls=parser.Command,
    page=_page("show"),
    short_help="show the certificates in files: names, issuer, last day",
    help="Show every certificate in files: its subject, its names, who signed it, and when it ends.",
)
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...", help="PEM")
@_failing
def show(files: Sequence[Path]) -> None:
    """Print a line for each certificate."""
    for file in files:
        try:
            chain = certificates(file.read_bytes())
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        for certificate in chain:
            outputs.show(f"{one_line(f'{file}: {_line(certificate)}')}\n")


def _overlap(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    if not match:
        raise click.BadParameter(f"{text!r} is not a time such as 30m, 12h or 2d")
    overlap = timedelta(**{UNITS[match[2]]: int(match[1])})
    if overlap < SHORTEST_OVERLAP:
        raise click.BadParameter(f"{text!r} is too short for every replica to load a changed Secret: use 10m or more")
    return overlap


@command.command(
    cls=parser.Command,
    page=parser.HelpEpilog(EXAMPLES["keep"], KEPT, files={}, environment=parser.KUBECONFIG),
    short_help="issue, renew and rotate a cluster's certificates when due",
    help="Issue, renew and rotate the certificates of a cluster's webhook when they are due. The CAs and the serving "
    "certificate are kept in Secrets, and the caBundle of the webhook configurations is updated. The controller does "
    "the same each hour: a run with nothing due changes nothing. It updates only the caBundle, and does not check the "
    "fallback: `slicewarden fallback --check --live` compares that, and `serve --fallback` watches it.",
)
@_SERVICE
@click.option(
    "--secret-name", default="slicewarden-serving", metavar="NAME", help="the serving certificate (slicewarden-serving)"
)
@click.option("--ca-secret-name", default="slicewarden-ca", metavar="NAME", help="the CAs (slicewarden-ca)")
@click.option("--configuration", default="slicewarden", metavar="NAME", help="the webhook configurations (slicewarden)")
@click.option("--days", type=int, default=90, metavar="DAYS", help="validity of the serving certificate (90)")
@click.option("--ca-days", type=int, default=730, metavar="DAYS", help="validity of a CA (730)")
@click.option(
    "--overlap",
    type=_overlap,
    default="1d",
    metavar="TIME",
    help="how long two CAs are trusted together before the next change: 30m, 12h or 2d (1d)",
)
@click.option("--renew", "renews", is_flag=True, help="issue a new serving certificate now")
@click.option("--rotate-ca", is_flag=True, help="start to replace the CA now")
@click.option("--dry-run", is_flag=True, help="change nothing; print what would be done")
@options.once(
    "--check-registration",
    type=options.PATH,
    metavar="POLICY",
    help="then fail if the registration is not the one that this policy needs; the registration is not written",
)
@options.cluster
@_failing
def keep(
    service: str,
    namespace: str,
    dns: Sequence[str],
    secret_name: str,
    ca_secret_name: str,
    configuration: str,
    days: int,
    ca_days: int,
    overlap: timedelta,
    renews: bool,
    rotate_ca: bool,
    dry_run: bool,
    check_registration: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Make the changes that are due, and print a line for each. Then compare the registration with the policy."""
    from webhook.cluster import (
        cert_store,  # 30 MiB, which only a live cluster needs
        client,
    )

    terms = Terms((*service_names(service, namespace), *dns), days, ca_days, overlap)
    wishes: list[Choice] = [rotate] if rotate_ca else []
    if renews:
        wishes.append(renew)
    names = cert_store.ObjectNames(namespace, ca_secret_name, secret_name, configuration)
    api = client.connect(kubeconfig, context)
    store = cert_store.ClusterStore(api, names, lambda line: outputs.say([line]))
    for line in keep_certificates(store, terms, partial(datetime.now, UTC), wishes, dry_run=dry_run):
        outputs.show(f"would be: {line}\n" if dry_run else f"{line}\n")
    if check_registration is not None:
        from webhook.cluster import registered as cluster
        from webhook.engine import registered

        policy = inputs.load_policy(check_registration)
        compared = registered.compare(policy, cluster.configurations(api, configuration))
        if compared.differences:
            outputs.say(compared.differences)
            raise ValueError("the registration is stale: make it again with `slicewarden registration`, and apply it")


def _line(certificate: Certificate) -> str:
    kind = "CA" if certificate.is_ca else f"for {', '.join(certificate.names) or 'no name'}"
    by = "itself" if certificate.issuer == certificate.subject else certificate.issuer
    subject = certificate.subject or "no subject"
    return f"{subject}; {kind}; signed by {by}; ends {certificate.end:%Y-%m-%dT%H:%MZ}"


def _read_ca_certificates(path: Path) -> bytes:
    pem = path.read_bytes()
    try:
        ca_bundle(pem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return pem


def _write_pairs(directory: Path, ca: Pair, serving: Pair, *, is_new: bool, force: bool) -> list[str]:
    """Write what was issued, and return the file names. Raises ValueError if another CA would be overwritten."""
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
    """Write the file atomically; it is never readable by more users than `mode` allows."""
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
