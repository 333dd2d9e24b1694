"""`slicewarden registration`: print the webhook configurations that a policy needs, or check the installed ones."""

import base64

import click

from webhook.cli import checks, inputs, options, outputs, parser
from webhook.documents import goyaml_writer
from webhook.engine import registration
from webhook.text.words import shown

HALVES = ("mutating", "validating")


def _base64(text: str) -> str:
    try:
        if base64.b64decode(text, validate=True):
            return text
    except ValueError:
        pass
    raise click.BadParameter("must be what `slicewarden certs bundle` prints")


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden registration --policy policies/ > registration.yaml",
            "slicewarden registration --policy policies/ --check policies/registration.yaml",
            "slicewarden registration --policy policies/ --check --live",
            'slicewarden registration --policy policies/ --ca-bundle "$(slicewarden certs bundle tls/ca.crt)"',
        ),
        {**parser.SHOWN, "1": "with --check: the registration is not the one that the policy needs"},
        environment=parser.KUBECONFIG,
    ),
    help="Print the webhook configurations that a policy needs: the requests that the API server sends, with "
    "conditions made from the policy, so that pods without a GPU never wait for the webhook. They contain the "
    "policy's hash. Print them again for each policy and release. --check compares those of a file or a cluster, and "
    "the fallback if there is one.",
)
@checks.shared()
@options.policy()
@options.cluster
@click.option("--ca-bundle", type=_base64, metavar="BASE64", help="the CAs with which API servers verify the webhook")
@click.option("--half", type=parser.WordChoice(HALVES), help="print only this configuration")
def command(
    file: str | None,
    policy: str | None,
    check: bool,
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    ca_bundle: str | None,
    half: str | None,
) -> int:
    """Print the configurations, or compare the installed ones with them."""
    checks.given(file, check=check, live=live)
    if check and (ca_bundle or half):
        raise click.UsageError("--check compares both configurations, without --half and --ca-bundle")
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    if check:
        target = inputs.Target(kubeconfig, context, None)
        return checks.run(checks.Registration(loaded), file, policy, target, checks.Fallback(loaded))
    made = registration.configurations(loaded, ca_bundle or "")
    if not half:
        outputs.show(
            f"# Made from policy {shown(loaded.name, quotes=False)} by `slicewarden registration`. An object that its\n"
            "# conditions leave out is never judged, so make it again with each policy and with each release.\n"
        )
    for name, configuration in zip(HALVES, made, strict=True):
        if half in (None, name):
            outputs.show("---\n" + goyaml_writer.write(configuration))
    return 0
