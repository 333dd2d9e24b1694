"""`slicewarden place`: simulate how a folder of workloads would be scheduled on a cluster's nodes."""

from collections.abc import Sequence

import click

from webhook.api.fields import group_kind
from webhook.api.pods import POD
from webhook.cli import inputs, options, outputs, parser
from webhook.placing import advice, placing
from webhook.placing.scheduling.scores import Strategy
from webhook.reports import placing_report

_MORE = (
    "Each pod is admitted as by the webhook, and then put on a node as by kube-scheduler with its default "
    "plugins: resources, node selection, taints, affinity between pods, topology spread, claims for devices, "
    "priorities and preemption, and the scores of all these. If several nodes are equally good, the scheduler takes "
    "a random one; here the first is taken, and the others are named. A workload counts as many pods as its replicas "
    "or its parallelism. Claims need the ResourceSlices and DeviceClasses of the cluster among the facts, and "
    "for their selectors the extra that .[claims] installs in a clone; a pod whose claims are not simulated says so. "
    "Volumes are not considered."
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
    everything: bool,
    form: str,
) -> int:
    """Place every pod, and write where each lands or, with --advise, how kinds of sharing compare."""
    options.only_live(live=live, kubeconfig=kubeconfig, context=context)
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
        compared = advice.compare(played, engine.policy)
        if compared and not any(player.gpus for player in played.players):
            outputs.say(["note: no pod asks for a GPU as a resource: those that have GPUs only by claims are left out"])
        outputs.show(advice.write(compared) if form == "json" else advice.table(compared))
    elif form == "json":
        outputs.show(placing_report.write(played))
    else:
        outputs.show(placing_report.table(played, outputs.look(), everything=everything))
    if unknown or played.problems or nothing or not played.nodes:
        return options.UNUSABLE
    return options.DENIED if played.waiting or played.refused else 0
