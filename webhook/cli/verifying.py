"""Implements `slicewarden prove --verify`: checks a signed statement, and shows the proof in it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from webhook.cli import inputs, options, outputs
from webhook.cli.outputs import Wanted
from webhook.model import Problem, Unusable
from webhook.proving.proof import Outcome
from webhook.reports import proof_report, proof_rows
from webhook.text.words import line, sha256, shown

OPEN = 1
"""The exit status if a way is open."""


def status(rows: Iterable[proof_rows.ProofRow]) -> int:
    """Return the exit status for the outcomes of all ways. If no way is shut, the proof shows nothing and fails."""
    counts = proof_rows.counts(rows)
    if counts[Outcome.OPEN]:
        return OPEN
    return options.UNUSABLE if counts[Outcome.UNKNOWN] or not counts[Outcome.SHUT] else 0


_OPTIONS = (
    click.option(
        "--verify",
        type=options.PATH,
        metavar="FILE",
        help="try nothing: verify the signature of a statement by cosign, and show the proof in it. FILE is the bundle "
        "that `cosign attest-blob` wrote; with --policy, the statement has to be on that policy",
    ),
    click.option("--key", metavar="KEY", help="with --verify: the public key, as cosign's --key takes it"),
    click.option("--certificate-identity", metavar="WHO", help="with --verify: who signed without a key"),
    click.option("--certificate-oidc-issuer", metavar="URL", help="with --verify: who issued that identity"),
    click.option(
        "--trusted-root", type=options.PATH, metavar="FILE", help="with --verify: roots instead of Sigstore's"
    ),
    click.option(
        "--insecure-ignore-tlog",
        is_flag=True,
        help="with --verify: accept a signature that is in no transparency log, such as one that was made offline",
    ),
)
_NAMES = ("key", "certificate_identity", "certificate_oidc_issuer", "trusted_root", "insecure_ignore_tlog")
_ALSO = ("policy", "wanted")
"""Parameters that a verification has in common with a run."""


def verifiable(function: Callable[..., int]) -> Any:
    """Add `--verify` and its options. With `--verify` the command only verifies a proof."""

    @wraps(function)
    def either(*, verify: str | None, **values: Any) -> int:
        signing = {name: values.pop(name) for name in _NAMES}
        if verify is None:
            if given := [name for name, value in signing.items() if value]:
                raise click.UsageError(f"{_named(given[0])} needs --verify")
            return function(**values)
        if others := [name for name, value in values.items() if value and name not in _ALSO]:
            raise click.UsageError(f"--verify asks no cluster: leave out {_named(others[0])}")
        return _verified(verify, signing, values["policy"], values["wanted"])

    return options.all_of(*_OPTIONS)(either)


def _named(parameter: str) -> str:
    return f"--{parameter.strip('_').replace('_', '-')}"


def _verified(file: str, signing: Mapping[str, Any], policy: str | None, wanted: Sequence[Wanted]) -> int:
    """Verify a statement, and write its proof as a table. Raises Unusable for one that is not verified."""
    from webhook.proving import cosign
    from webhook.reports import statement

    if any(each.format != "table" for each in wanted):
        raise click.UsageError("--verify has the format table only")
    key, identity, issuer, *rest = signing.values()
    if bool(key) is bool(identity) or bool(identity) is not bool(issuer):
        raise click.UsageError("name who signed: --key, or --certificate-identity and --certificate-oidc-issuer")
    bundle = _bundle(file, statement.MAX_BUNDLE)
    try:
        found = statement.read(bundle)
        signer = cosign.Signer(key or "", identity or "", issuer or "", rest[0] or "", rest[1])
        cosign.verify(bundle, statement.PREDICATE, found.digest, signer)
    except (statement.Unread, cosign.Unverified) as error:
        raise Unusable((Problem(file, 0, str(error)),)) from error
    named = found.report["policy"]
    if policy and sha256(inputs.engine(policy).policy.written) != found.digest:
        why = f"is on policy {line(named['name'])} {named['digest']}, whose content is not that of {policy}"
        raise Unusable((Problem(file, 0, why),))
    if named["installed"] != named["digest"]:
        outputs.say(["note: the statement does not say that this policy was the installed one"])
    title = (
        f"verified: policy {line(named['name'])} {named['digest']}, Kubernetes "
        f"{shown(found.report['kubernetes'], quotes=False)}, "
        f"cluster {shown(found.report.get('cluster') or 'not known', quotes=False)}, "
        f"{shown(found.report['at'], quotes=False)}"
    )
    outputs.write(wanted, lambda _, look: proof_report.tabled(found.rows, found.report, title, look))
    return status(found.rows)


def _bundle(file: str, most: int) -> bytes:
    """Read a bundle, or one byte more than it may have. Raises Unusable."""
    try:
        with Path(file).open("rb") as stream:
            return stream.read(most + 1)
    except OSError as error:
        raise Unusable((Problem(file, 0, error.strerror or str(error)),)) from error
