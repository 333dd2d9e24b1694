"""`slicewarden registration`: print the webhook configurations that a policy needs."""

import base64

import click

from webhook.cli import inputs, options, outputs, parser
from webhook.documents import goyaml
from webhook.engine import registration

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
    page=parser.Page(
        (
            "slicewarden registration --policy policies/ > webhooks.yaml",
            'slicewarden registration --half validating --ca-bundle "$(slicewarden certs bundle tls/ca.crt)"',
        ),
        parser.SHOWN,
        environment={},
    ),
    help="Print the webhook configurations that a policy needs: what an API server is to ask about, with conditions "
    "made of the policy's own words, so that a plain pod never waits. Make them anew with each policy and release.",
)
@options.policy()
@click.option(
    "--ca-bundle", type=_base64, metavar="BASE64", help="print only the caBundle of every webhook, for kubectl patch"
)
@click.option("--half", type=parser.Choice(HALVES), help="print only this configuration")
def command(policy: str | None, ca_bundle: str | None, half: str | None) -> None:
    """Print the configurations, or what a patch of them needs."""
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    made = registration.bundles(loaded, ca_bundle) if ca_bundle else registration.configurations(loaded)
    for name, configuration in zip(HALVES, made, strict=True):
        if half in (None, name):
            outputs.show("---\n" + goyaml.write(configuration))
