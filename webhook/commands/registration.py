"""`slicewarden registration`: print the webhook configurations that a policy needs."""

import base64
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from webhook import dialect, inputs, manual, outputs, registration
from webhook import options as common


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Print the webhook configurations that a policy needs: what an API server is to ask about, with conditions "
        "made of the policy's own words, so that a plain pod never waits. Make them anew with each policy and release."
    )
    parser.epilog = manual.epilog(
        (
            "slicewarden registration --policy policies/ > webhooks.yaml",
            'slicewarden registration --half validating --ca-bundle "$(slicewarden certs bundle tls/ca.crt)"',
        ),
        manual.PLAIN,
        environment={},
    )
    common.policy(parser)
    parser.add_argument(
        "--ca-bundle",
        type=_base64,
        metavar="BASE64",
        help="print only the caBundle of every webhook, for kubectl patch",
    )
    parser.add_argument("--half", choices=("mutating", "validating"), help="print only this configuration")


def run(chosen: Namespace) -> int:
    """Print the configurations, or what a patch of them needs."""
    inputs.tell_of_sample(chosen.policy)
    policy, bundle = inputs.load_policy(chosen.policy), chosen.ca_bundle
    made = registration.bundles(policy, bundle) if bundle else registration.configurations(policy)
    for half, configuration in zip(("mutating", "validating"), made, strict=True):
        if chosen.half in (None, half):
            outputs.show("---\n" + dialect.write(configuration))
    return 0


def _base64(text: str) -> str:
    try:
        if base64.b64decode(text, validate=True):
            return text
    except ValueError:
        pass
    raise ArgumentTypeError("must be what `slicewarden certs bundle` prints")
