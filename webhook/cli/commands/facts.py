"""`slicewarden facts`: write the facts of a cluster to a file for Git."""

from collections.abc import Iterable, Sequence

import click

from webhook.api.fields import group_kind
from webhook.cli import inputs, options, outputs, parser
from webhook.facts import kinds, rights
from webhook.model import Object, Unusable
from webhook.policy.model import Policy
from webhook.scan import reduced
from webhook.telemetry import progress
from webhook.text.words import several

_MORE = (
    "The file has the labels of namespaces, the labels, taints and GPUs of nodes, sharing configurations, and those "
    "parts of DaemonSets, pods, device classes, claims and queues that rules read. It has no images of pods, no "
    "variables of tenants and no Secrets. The same cluster gives the same bytes. Every command takes it with --facts. "
    "Reading JSON is five times as fast as reading YAML. "
    "--images writes a list of images as a ConfigMap: --facts takes it, and kubectl apply gives it to a webhook that "
    "runs with --live. skopeo inspect and docker image inspect name the image. crane config and skopeo inspect "
    "--config do not: name it by REFERENCE=FILE."
)


def _policy(path: str | None) -> Policy:
    """Read the named policy, or that in ./policies; the sample if ./policies has no usable one."""
    try:
        return inputs.load_policy(path)
    except Unusable:
        if path is not None:
            raise
        return inputs.load_sample()


def _note_unread_rights(objects: Iterable[Object], policy: Policy) -> None:
    """Note that Roles and bindings are left out if the policy does not use RBAC rights."""
    count = 0 if policy.asks_rbac else sum(group_kind(item) in rights.KINDS for item in objects)
    if count:
        left = f"{several(count, 'object')} of RBAC left out"
        outputs.say([f"note: {left}: no grant of policy {policy.name} has rbac: true; --policy names another"])


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden facts --live > cluster.json",
            "kubectl get -A namespaces,nodes,configmaps,daemonsets,pods,clusterpolicies -o json | slicewarden facts -",
            "slicewarden facts dump.json --policy policies/ -o yaml > cluster.yaml",
            "slicewarden facts --images registry.example.com/vision/train:3=config.json > images.json",
        ),
        parser.SHOWN,
        more=_MORE,
        environment=parser.KUBECONFIG,
    ),
    help="Write the facts of a cluster to a file that is small enough for Git: only the parts that other commands "
    "read.",
)
@click.argument(
    "files",
    nargs=-1,
    type=options.PATH,
    metavar="[FILE]...",
    help="what kubectl get -o json prints, - for standard input; or --live, or only --images",
)
@click.option("--live", is_flag=True, help="ask the cluster; it needs to list the same kinds")
@click.option(
    "--images",
    multiple=True,
    type=options.PATH,
    metavar="[REFERENCE=]FILE",
    help="also write which PYTHONPATH an image sets, for the memory shim, and which limits of NVIDIA's driver: what "
    "skopeo inspect, crane config or docker image inspect printed of it; repeatable",
)
@options.cluster
@options.policy("whose ConfigMaps and namespaces are kept; default: ./policies if it is there, else the sample")
@options.once(
    "--format",
    "-o",
    type=parser.WordChoice(tuple(reduced.FORMS)),
    metavar="json|yaml",
    help="default: json",
)
def command(
    files: Sequence[str],
    live: bool,
    images: Sequence[str],
    kubeconfig: str | None,
    context: str | None,
    policy: str | None,
    format: str | None,  # noqa: A002 - the option's name
) -> int:
    """Read the objects, reduce them, and write them. The exit status shows whether anything could not be read."""
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    if (live and files) or not (live or files or images):
        raise click.UsageError("name a FILE, - for standard input, or --live")
    loaded = _policy(policy)
    if live:
        from webhook.cluster import listing  # brings the client, which only a live cluster needs

        api = listing.connect(kubeconfig, context)
        with progress.bar() as tell:
            objects, problems = listing.dump(api, loaded, lambda item: kinds.slim(item, loaded), tell=tell)
    else:
        objects, problems = [item.value for item in inputs.load_facts(files)], ()
        _note_unread_rights(objects, loaded)
    if images:
        if not loaded.limits.namespaces:
            raise click.UsageError("--images writes into the first of the policy's sharing.namespaces, and it has none")
        objects = [*objects, inputs.load_images(images, loaded.limits.namespaces[0])]
    text = reduced.FORMS[format or "json"](reduced.reduced(objects, loaded))
    outputs.show(text)
    outputs.say(map(str, problems))
    return options.UNUSABLE if problems else 0
