"""`slicewarden agent`: report each container's real use of this node's GPUs, and act on it as the policy says."""

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.agent.observe import cgroups
from webhook.agent.turns import ledger as ledgers
from webhook.agent.turns import thawer
from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import Ledger
from webhook.cli import inputs, options, outputs, parser
from webhook.model import Problem, Unusable
from webhook.policy.model import Over
from webhook.telemetry.log import log_line
from webhook.usage.store import UsageStore

if TYPE_CHECKING:
    from webhook.agent.observe.node import NodeWatch

NVML = "nvidia-ml-py"

NO_FREEZER = "the root of cgroup v2 is not mounted, or not writable"

STATUS = {
    "0": "success, or stopped by a signal",
    "2": "invalid arguments or policy, no cluster, or with --once no NVML",
    "130": "interrupted by Ctrl-C before it began to watch",
}

_MORE = (
    "The agent must run on the node, in the node's PID namespace, because NVML reports the PIDs of the host. Without "
    "--node it does not use the API server: containers are named by their log files in /var/log/containers, and no "
    "allowance is known.\n\n"
    "Experimental: turns on a contended GPU, where the policy sets `contention.mode`. They are off by default and have "
    "never run in a cluster with real GPUs."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden agent --once", "slicewarden agent --node node-1 --policy policies/ --watch-only"),
        STATUS,
        more=_MORE,
        environment={"NODE_NAME": "the default for --node"} | parser.KUBECONFIG,
    ),
    help="Watch the GPUs of this node: how much of each GPU every container uses, what it was admitted with, and which "
    "containers use a GPU without a request. With --node, the agent also sets memory limits, evicts pods, kills "
    "processes and lets containers take turns (experimental), as the policy says for the node's pool (memoryLimit, "
    "node). With --watch-only it only reports.",
)
@click.option(
    "--once",
    is_flag=True,
    help="look once, print the use of the GPUs and the driver's limits, and exit; changes nothing",
)
@click.option(
    "--format",
    "-o",
    "form",
    type=parser.WordChoice(("table", "json")),
    default=None,
    help="with --once: table (the default, for people) or json",
)
@click.option(
    "--node",
    envvar="NODE_NAME",
    metavar="NAME",
    help="this node's name in the cluster; its pods are read from the API server",
)
@options.policy("with --node: the policy of allowances and actions; default: ./policies if it exists, else the sample")
@options.health
@click.option(
    "--watch-only",
    is_flag=True,
    help="only report: set no limit, and evict, kill and freeze nothing, whatever the policy says",
)
@click.option(
    "--ledger",
    type=options.PATH,
    default=str(ledgers.FOLDER),
    metavar="FOLDER",
    help=f"folder for the list of frozen containers, read by `slicewarden thaw`; default: {ledgers.FOLDER}",
)
@click.option("--usage", is_flag=True, help="with --node: count what containers hold and use, and answer at /usage")
@click.option(
    "--usage-folder",
    type=options.PATH,
    metavar="FOLDER",
    help="with --usage: keep the counts for 35 days in a file there; default: in memory, until the agent ends",
)
@click.option("--events", is_flag=True, help="with --node: write an Event to each pod that is reported")
@click.option("--taint", is_flag=True, help="with --node: taint the node while a GPU is dead, if the policy says so")
@options.cluster
def command(
    once: bool,
    form: str | None,
    node: str | None,
    policy: str | None,
    listen: tuple[str, int],
    watch_only: bool,
    ledger: str,
    usage: bool,
    usage_folder: str | None,
    events: bool,
    taint: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Look once, or until a signal ends it."""
    for option, given, why in (
        ("--policy", policy, "whose pool and card decide the allowances"),
        ("--events", events, "whose pods get the Events"),
        ("--taint", taint, "which is tainted"),
        ("--usage", usage, "whose pods hold the slices"),
    ):
        if given and not node:
            raise Unusable((Problem(option, 0, f"needs --node, {why}"),))
    if form and not once:
        raise Unusable((Problem("--format", 0, "needs --once; otherwise the agent serves metrics and writes a log"),))
    if usage_folder and not usage:
        raise Unusable((Problem("--usage-folder", 0, "needs --usage"),))
    if usage and once:
        raise Unusable((Problem("--usage", 0, "counts over time, so it cannot go with --once"),))
    acts = not watch_only and not once and node is not None
    frozen = _thawed(Path(ledger)) if acts else None  # before NVML is imported, which may hang or fail
    try:
        from webhook.agent.observe import nvml
    except ModuleNotFoundError as error:
        way = "the agent needs it to use NVML; install it in a clone of the repository: pip install '.[agent]'"
        raise Unusable((Problem(NVML, 0, f"is not installed; {way}"),)) from error
    follow = _follow(node, policy, kubeconfig, context) if node else None
    try:
        if once:
            outputs.show(_looked(follow, as_json=form == "json"))
        else:
            store = UsageStore(Path(usage_folder)) if usage_folder else None
            counted = (store,) if usage else None
            _watch(follow, policy, listen, frozen, counted, events=events, watch_only=watch_only, taint=taint)
    except nvml.Unavailable as error:
        raise Unusable((Problem("NVML", 0, f"{error}; is the NVIDIA driver loaded, and visible here?"),)) from error


def _thawed(folder: Path) -> tuple[Ledger, Freezer | None]:
    """Thaw what a previous agent left frozen. Returns this agent's ledger and freezer."""
    root, book = cgroups.mount(), Ledger(folder)
    if root is None or not os.access(root, os.W_OK):
        return book, None
    freezer = Freezer(root)
    book.take()
    done = thawer.thaw(book, freezer)  # even if another process has the lock
    if done:
        failed = sum(map(bool, done.values()))
        log_line({"message": "thawed the containers in the ledger", "thawed": len(done) - failed, "failed": failed})
    return book, freezer


def _follow(node: str, policy: str | None, kubeconfig: str | None, context: str | None) -> "tuple[NodeWatch, Any]":
    from webhook.agent.observe.node import NodeWatch
    from webhook.cluster import client

    try:
        api = client.connect(kubeconfig, context)
    except client.Unreachable as error:
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, str(error)),)) from error
    return NodeWatch(node, api, inputs.load_policy(policy), log_line), api


SETTLE_SECONDS = 10.0
"""Seconds that --once waits for the API server's first answers."""


def _looked(follow: "tuple[NodeWatch, Any] | None", *, as_json: bool) -> str:
    """Look once. Only reads: nothing on the node or in the cluster is changed."""
    from webhook.agent.limits import compare
    from webhook.agent.observe import look, node, nvml
    from webhook.agent.observe.processes import Processes
    from webhook.memory.driver import start
    from webhook.reports import use_report

    write = use_report.write if as_json else use_report.table
    with ExitStack() as stack:
        cards = nvml.Cards()
        stack.callback(cards.close)
        if follow is None:
            seen, here = look.look(cards, Processes()), node.named_by_logs()
        else:
            follow[0].start()
            stack.callback(follow[0].stop)
            if not follow[0].settled(SETTLE_SECONDS):
                outputs.say(["note: the API server has not answered; containers are named by their log files"])
            seen, here = look.look(cards, Processes()), follow[0].containers()
        mount = cgroups.mount()
        pods = {each: here[each].uid for each in compare.wanted(here)}
        folders = cgroups.CgroupFolders(mount).find(pods) if mount else {}
        limits = compare.compare(cards, seen, here, folders)
        outputs.say([f"driver {cards.driver} has no {name}" for name in sorted(cards.missing)])
        if follow is not None and follow[0].driver_limits():
            outputs.say(start.lines(start.needs(cards.has_limits, mig=cards.mig)))
        return write(seen, here, limits=limits)


def _watch(
    follow: "tuple[NodeWatch, Any] | None",
    policy: str | None,
    listen: tuple[str, int],
    frozen: tuple[Ledger, Freezer | None] | None,
    counted: tuple[UsageStore | None] | None,
    *,
    events: bool,
    watch_only: bool,
    taint: bool,
) -> None:
    from webhook.agent.agent import build
    from webhook.agent.limits.taint import NodeTaint
    from webhook.agent.observe import node, processes
    from webhook.agent.recorder import UsageRecorder
    from webhook.agent.turns.turns import CardTurns
    from webhook.cluster.events import Events
    from webhook.http import scrape

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    recorder: UsageRecorder | None = None
    if follow is None:
        watched = build(node.named_by_logs, Over, log_line)
    else:
        here, api = follow
        here.start()
        writer = Events(api, log_line)
        if events:
            writer.start()
        mount = cgroups.mount()
        turns = CardTurns(frozen[1], frozen[0], log_line, here.contention, NO_FREEZER) if frozen else None
        if counted is not None:
            recorder = UsageRecorder(
                here.name,
                here.slices,
                counted[0],
                log_line,
                boot=processes.boot(),
                frozen=(lambda: {name for name, pause in turns.pauses.items() if pause.frozen}) if turns else tuple,
            )
        watched = build(
            here.containers,
            here.over,
            log_line,
            pods=here.pods,
            node=here.name,
            api=api,
            folders=cgroups.CgroupFolders(mount) if mount else None,
            node_taint=NodeTaint(here.seen, here.taint_dead, processes.boot()) if taint else None,
            turns=turns,
            recorder=recorder,
            idle=here.idle,
            by_hook=here.by_hook,
            watch_only=watch_only,
            tells=events,
            write_event=writer.add if events else lambda _: None,
        )
    with ExitStack() as stack:
        try:
            stack.enter_context(scrape.serving(watched.metrics, *listen, log_line, recorder))
        except OSError as error:
            raise Unusable((Problem("--listen", 0, error.strerror or str(error)),)) from error
        stack.callback(watched.close)
        stamp = _stamp(policy)
        while not ended.is_set():
            if follow is not None and stamp != (stamp := _stamp(policy)):
                _replace(follow[0], policy)
            ended.wait(watched.round())


def _stamp(policy: str | None) -> tuple[int, ...]:
    """Return a value that changes when the kubelet replaces the policy's ConfigMap."""
    files = map(Path, inputs.policy_files(policy))
    return tuple(file.stat().st_mtime_ns for file in files if file.exists())


def _replace(node: "NodeWatch", policy: str | None) -> None:
    """Replace the policy, unless the new one is invalid."""
    try:
        node.use(inputs.load_policy(policy))
    except Unusable as error:
        log_line({"message": "policy not replaced", "error": str(error)})
        return
    log_line({"message": "policy replaced"})
