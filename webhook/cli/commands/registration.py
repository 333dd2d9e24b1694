"""`slicewarden registration`: print the webhook configurations that a policy needs, or check those that are there."""

import base64

import click

from webhook.cli import inputs, options, outputs, parser
from webhook.documents import goyaml_writer
from webhook.engine import registered, registration
from webhook.model import Problem, Unusable
from webhook.policy.model import Policy
from webhook.text.words import shown

HALVES = ("mutating", "validating")

STALE = 1
"""The exit status of a check that found differences."""


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
            "slicewarden registration --policy policies/ > registration.yaml",
            "slicewarden registration --policy policies/ --check policies/registration.yaml",
            "slicewarden registration --policy policies/ --check --live",
            'slicewarden registration --half validating --ca-bundle "$(slicewarden certs bundle tls/ca.crt)"',
        ),
        {**parser.SHOWN, "1": "with --check: the registration is not the one that the policy needs"},
        environment=parser.KUBECONFIG,
    ),
    help="Print the webhook configurations that a policy needs: what the API server asks about, with conditions made "
    "from the policy, so that a pod without a GPU never waits. They bear the policy's hash. Print them again for each "
    "policy and release; --check compares those of a file or a cluster.",
)
@click.argument(
    "file", required=False, type=options.PATH, metavar="[FILE]", help="manifests to compare; - is standard input"
)
@options.policy()
@click.option("--check", is_flag=True, help="compare FILE, or the cluster with --live, with what the policy needs")
@click.option("--live", is_flag=True, help="with --check: ask the cluster")
@options.cluster
@click.option(
    "--ca-bundle", type=_base64, metavar="BASE64", help="print only the caBundle of every webhook, for kubectl patch"
)
@click.option("--half", type=parser.Choice(HALVES), help="print only this configuration")
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
    """Print the configurations, or what a patch of them needs; or compare what is there with them."""
    if check and (file is None) is not live:
        raise click.UsageError("--check needs either FILE or --live")
    if not check and (file is not None or live):
        raise click.UsageError("FILE and --live need --check")
    if check and (ca_bundle or half):
        raise click.UsageError("--check compares both configurations, without --half and --ca-bundle")
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    inputs.note_sample(policy)
    loaded = inputs.load_policy(policy)
    if check:
        return _compared(loaded, policy, file, inputs.Target(kubeconfig, context, None))
    made = registration.bundles(loaded, ca_bundle) if ca_bundle else registration.configurations(loaded)
    if not (ca_bundle or half):
        outputs.show(
            f"# Made from policy {shown(loaded.name, quotes=False)} by `slicewarden registration`. What its\n"
            "# conditions leave out is never judged, so make it again with each policy and with each release.\n"
        )
    for name, configuration in zip(HALVES, made, strict=True):
        if half in (None, name):
            outputs.show("---\n" + goyaml_writer.write(configuration))
    return 0


def _compared(policy: Policy, source: str | None, file: str | None, target: inputs.Target) -> int:
    if file is None:
        from webhook.cluster import listing
        from webhook.cluster import registered as cluster  # brings the client, which only a live cluster needs

        found = cluster.configurations(listing.connect(target.kubeconfig, target.context), registration.NAME)
    else:
        found = registered.ours(item.value for item in inputs.load_objects(file))
        if not found:
            message = f"no webhook configuration named {registration.NAME} in it"
            raise Unusable((Problem(file, 0, message),))
    where = file or "the cluster"
    differing = registered.differences(policy, found)
    if not differing:
        outputs.show(f"{where}: the registration is current, made from policy {policy.digest}\n")
        return 0
    outputs.show("".join(f"{where}: {line}\n" for line in differing))
    write = f"slicewarden registration{f' --policy {source}' if source else ''} > "
    way = f"{write}registration.yaml, and apply it with your overlay" if file in (None, "-") else f"{write}{file}"
    outputs.say([f"the registration is stale; run: {way}"])
    return STALE
