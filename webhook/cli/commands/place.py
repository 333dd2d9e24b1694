"""`slicewarden place`: simulate how a folder of workloads would be scheduled on a cluster's nodes."""

from collections.abc import Sequence

import click

from webhook.api.fields import group_kind
from webhook.api.pods import POD
from webhook.cli import inputs, options, outputs, parser, usages
from webhook.model import Unusable
from webhook.placing import advice, placing
from webhook.placing.scheduling.scores import Strategy
from webhook.reports import placing_report, usage_report
from webhook.usage.advice import advise as sized

HOURS = 168
"""Hours of the usage record that are read, as `slicewarden advise` does by default."""

_MORE = (
    "Each pod is admitted as by the webhook, and then put on a node as by kube-scheduler with its default "
    "plugins: resources, node selection, taints, affinity between pods, topology spread, claims for devices, "
    "priorities and preemption, and the scores of all these. If several nodes are equally good, the scheduler takes "
    "a random one; here the first is taken, and the others are named. A workload counts as many pods as its replicas "
    "or its parallelism. Claims need the ResourceSlices and DeviceClasses of the cluster among the facts, and "
    "for their selectors the extra that .[claims] installs in a clone; a pod whose claims are not simulated says so. "
    "Volumes are not considered. With --advise, a pod without the annotation slicewarden.dev/gpu-memory needs what "
    "the usage record of its workload shows, if that is known as in slicewarden advise: of the copies that --usage "
    "names, or of the agents with --live."
)

_STATUS = {
    "0": "every pod lands",
    "1": "a pod is denied, or waits",
    "2": "invalid arguments, input or policy, or no pod, or no node",
}


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden place deploy/ --facts cluster.json --policy policy.yaml",
            "slicewarden place deploy/ --facts cluster.json --at-once --strategy pack",
            "slicewarden place deploy/ --facts cluster.json --advise",
            "slicewarden place deploy/ --facts cluster.json --advise --usage usage.sqlite",
        ),
        _STATUS,
        more=_MORE,
        environment=parser.KUBECONFIG | parser.LOOK,
    ),
    help="Simulate workloads on the nodes of a cluster: where each pod lands, with which pods it shares a GPU and "
    "how they can harm it, which pods wait and why, and which GPUs are left.",
)
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=options.PATH,
    metavar="PATH...",
    help="files or folders with workloads, in the order in which they arrive; - for standard input",
)
@options.policy()
@options.facts(live="take the nodes and the pods on them from the cluster", needed=True)
@options.cluster
@click.option("--at-once", is_flag=True, help="let all pods arrive at once: the scheduler takes them by priority")
@click.option(
    "--strategy",
    type=parser.WordChoice(tuple(each.value for each in Strategy)),
    default=Strategy.SPREAD.value,
    help="default: spread (as the scheduler does); or pack (MostAllocated for the GPUs that a pod asks for)",
)
@click.option(
    "--advise",
    is_flag=True,
    help="experimental: compare whole GPUs, time-slicing, MPS and MIG for these workloads on these GPUs",
)
@click.option(
    "--usage",
    "records",
    multiple=True,
    type=options.PATH,
    metavar="FILE",
    help=f"with --advise: {usages.COPIES}; repeatable; default with --live: ask all agents",
)
@click.option("--all", "everything", is_flag=True, help="list all pods, also those without a GPU that land")
@options.table_or_json
def command(
    paths: Sequence[str],
    policy: str | None,
    facts: Sequence[str],
    live: bool,
    kubeconfig: str | None,
    context: str | None,
    at_once: bool,
    strategy: str,
    advise: bool,
    records: Sequence[str],
    everything: bool,
    form: str,
) -> int:
    """Place every pod, and write where each lands or, with --advise, how kinds of sharing compare."""
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
    if records and not advise:
        raise click.UsageError("--usage needs --advise")
    inputs.note_sample(policy)
    engine = inputs.engine(policy)
    target = inputs.Target(kubeconfig, context, None) if live else None
    known, unknown = inputs.known(facts, target, [engine.policy], whole=True)
    items = [item for path in paths for item in inputs.load_objects(path)]
    cluster = [*known]
    if advise:  # it compares as if all GPUs were free, so what runs is played again
        items = [*advice.to_place(items)]
        cluster = [item for item in cluster if group_kind(item) != POD]
    played = placing.placing(items, cluster, engine, at_once=at_once, strategy=Strategy(strategy))
    outputs.say(map(str, (*unknown, *played.problems)))
    if not played.nodes:
        outputs.say(["error: the facts have no node to play with"])
    nothing = not played.places and not any(group_kind(item.value) == POD for item in items)  # some may run already
    if nothing and not played.problems:
        outputs.say([f"error: no pod and no template of one in {', '.join(paths)}"])
    if advise:
        needs = _needs(records, kubeconfig, context, live=live)
        compared = advice.compare(played, engine.policy, needs)
        used = advice.measured(played, needs)
        if compared and not any(player.gpus for player in played.players):
            outputs.say(["note: no pod asks for a GPU as a resource: those that have GPUs only by claims are left out"])
        outputs.show(advice.write(compared, used) if form == "json" else advice.table(compared, used))
    elif form == "json":
        outputs.show(placing_report.write(played))
    else:
        outputs.show(placing_report.table(played, outputs.look(), everything=everything))
    if unknown or played.problems or nothing or not played.nodes:
        return options.UNUSABLE
    return options.DENIED if played.waiting or played.refused else 0


def _needs(records: Sequence[str], kubeconfig: str | None, context: str | None, *, live: bool) -> advice.MemoryNeeds:
    """Return the needs that the usage record shows, and say if a cluster has none. Raises Unusable for a file."""
    if not records and not live:
        return {}
    try:
        nodes, unseen = usages.read(records, None if records else kubeconfig, None if records else context, HOURS)
    except Unusable as error:
        if records:
            raise
        outputs.say(f"note: the usage record is not known: {problem}" for problem in error.problems)
        return {}
    outputs.say(f"note: {line}" for line in usages.unseen_lines(unseen) if nodes)
    silent = None if any(each.node == usage_report.UNLISTED for each in unseen) else len(unseen)
    return advice.needs(sized(nodes, silent))
