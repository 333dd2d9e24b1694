"""`slicewarden facts`: write what is read of a cluster to a file for Git."""

from collections.abc import Sequence

import click

from webhook.cli import inputs, options, outputs, parser
from webhook.model import Unusable
from webhook.policy.model import Policy
from webhook.scan import reduced
from webhook.telemetry import progress

_MORE = (
    "The file holds the labels of namespaces, the labels, taints and GPUs of nodes, sharing configurations, and of "
    "DaemonSets and pods what rules read: no images, no variables of tenants, no Secrets. The same cluster gives the "
    "same bytes. Every command takes it with --facts. Reading JSON is five times as fast as reading YAML."
)


def _policy(path: str | None) -> Policy:
    """Read the policy. Where none is named and ./policies has none that can be used, the sample takes its place."""
    try:
        return inputs.load_policy(path)
    except Unusable:
        if path is not None:
            raise
        return inputs.load_sample()


@click.command(
    cls=parser.Command,
    page=parser.Page(
        (
            "slicewarden facts --live > cluster.json",
            "kubectl get -A namespaces,nodes,configmaps,daemonsets,pods,clusterpolicies -o json | slicewarden facts -",
            "slicewarden facts dump.json --policy policies/ -o yaml > cluster.yaml",
        ),
        parser.SHOWN,
        more=_MORE,
        environment=parser.KUBECONFIG,
    ),
    help="Write the facts of a cluster to a file: only what the other commands read, small enough to keep in Git.",
)
@click.argument(
    "files",
    nargs=-1,
    type=options.PATH,
    metavar="[FILE]...",
    help="what kubectl get -o json prints, - for standard input; or --live",
)
@click.option("--live", is_flag=True, help="ask the cluster; it needs to list the same kinds")
@options.cluster
@options.policy("whose ConfigMaps and namespaces are kept; default: ./policies if it is there, else the sample")
@options.once(
    "--format",
    "-o",
    type=parser.Choice(tuple(reduced.FORMS)),
    metavar="json|yaml",
    help="default: json",
)
def command(
    files: Sequence[str],
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    format: str | None,  # noqa: A002 - the option's name
) -> int:
    """Read the objects, reduce them, and write them; the exit status tells whether something could not be read."""
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    if live == bool(files):
        raise click.UsageError("name a FILE, - for standard input, or --live; one of them")
    loaded = _policy(policy)
    if live:
        from webhook.cluster import listing  # brings the client, which only a live cluster needs

        api = listing.connect(kubeconfig, context)
        with progress.bar() as tell:
            objects, problems = listing.dump(api, loaded, lambda item: reduced.slim(item, loaded), tell=tell)
    else:
        objects, problems = [item.value for item in inputs.load_facts(files)], ()
    outputs.show(reduced.FORMS[format or "json"](reduced.reduced(objects, loaded)))
    outputs.say(map(str, problems))
    return options.UNUSABLE if problems else 0
