"""`slicewarden agent`: what each container really takes of this node's cards."""

import os
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from webhook.agent import cgroups, thawer
from webhook.agent import ledger as ledgers
from webhook.agent.freezer import Freezer
from webhook.agent.ledger import Ledger
from webhook.cli import inputs, options, outputs, parser
from webhook.model import Problem, Unusable
from webhook.policy.model import Over
from webhook.telemetry.log import log_line

if TYPE_CHECKING:
    from webhook.agent.node import Node

NVML = "nvidia-ml-py"

NO_FREEZER = "there is no whole mount of cgroup v2 that the agent may write to"

STATUS = {
    "0": "success, or told to end",
    "2": "invalid arguments or policy, no cluster, or with --once no NVML",
    "130": "interrupted by Ctrl-C before it watched",
}

_MORE = (
    "It has to run on the node, in the node's PID namespace: NVML gives the PIDs of the host. Without --node it asks "
    "no API server: containers have the names of their log files in /var/log/containers, and no allowance."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden agent --once", "slicewarden agent --node node-1 --policy policies/ --watch-only"),
        STATUS,
        more=_MORE,
        environment={"NODE_NAME": "the default for --node"} | parser.KUBECONFIG,
    ),
    help="Watch the GPUs of this node: which container takes how much of each card, what it was admitted with, and who "
    "is there without having asked for a GPU. With --node it also sets limits of memory, evicts pods, kills processes "
    "and has containers take turns where the policy says so for the node's pool (memoryLimit, node), unless "
    "--watch-only is given.",
)
@click.option("--once", is_flag=True, help="look once, print what is on the cards, and end")
@click.option(
    "--format",
    "-o",
    "form",
    type=parser.WordChoice(("table", "json")),
    default=None,
    help="with --once: table (for people; the default) or json",
)
@click.option(
    "--node",
    envvar="NODE_NAME",
    metavar="NAME",
    help="this node's name in the cluster, whose pods the API server gives",
)
@options.policy("by which allowances are computed, with --node; default: ./policies if it is there, else the sample")
@click.option(
    "--listen",
    type=options.address,
    default="0.0.0.0:8080",
    metavar="HOST:PORT",
    help="where metrics and health are served; default: 0.0.0.0:8080",
)
@click.option(
    "--watch-only", is_flag=True, help="set no limit; evict, kill and freeze nothing, whatever the policy says"
)
@click.option(
    "--ledger",
    type=options.PATH,
    default=str(ledgers.FOLDER),
    metavar="FOLDER",
    help=f"where it writes down what it freezes, for `slicewarden thaw`; default: {ledgers.FOLDER}",
)
@click.option("--events", is_flag=True, help="with --node: write an Event for each pod that is told of")
@click.option("--taint", is_flag=True, help="with --node: taint the node while a GPU is dead, where the policy says so")
@options.cluster
def command(
    once: bool,
    form: str | None,
    node: str | None,
    policy: str | None,
    listen: tuple[str, int],
    watch_only: bool,
    ledger: str,
    events: bool,
    taint: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Look once, or until told to end."""
    for option, given, why in (
        ("--policy", policy, "by whose pool and card it computes allowances"),
        ("--events", events, "whose pods the Events are about"),
        ("--taint", taint, "which is tainted"),
    ):
        if given and not node:
            raise Unusable((Problem(option, 0, f"needs --node, {why}"),))
    if form and not once:
        raise Unusable((Problem("--format", 0, "needs --once; without it the agent writes metrics and a log"),))
    acts = not watch_only and not once and node is not None
    frozen = _thawed(Path(ledger)) if acts else None  # before NVML is imported, which may hang or fail
    try:
        from webhook.agent import nvml
    except ModuleNotFoundError as error:
        way = "the agent needs it to ask NVML; install it in a clone of the repository: pip install '.[agent]'"
        raise Unusable((Problem(NVML, 0, f"is not installed; {way}"),)) from error
    follow = _follow(node, policy, kubeconfig, context) if node else None
    try:
        if once:
            outputs.show(_looked(follow, as_json=form == "json"))
        else:
            _watch(follow, policy, listen, frozen, events=events, watch_only=watch_only, taint=taint)
    except nvml.Unavailable as error:
        raise Unusable((Problem("NVML", 0, f"{error}; is the NVIDIA driver loaded, and visible here?"),)) from error


def _thawed(folder: Path) -> tuple[Ledger, Freezer | None]:
    """Thaw what an agent before this one left frozen, and return what this one freezes by."""
    root, book = cgroups.mount(), Ledger(folder)
    if root is None or not os.access(root, os.W_OK):
        return book, None
    freezer = Freezer(root)
    book.take()
    done = thawer.thaw(book, freezer)  # whoever has the lock
    if done:
        failed = sum(map(bool, done.values()))
        log_line({"message": "thawed what the ledger names", "thawed": len(done) - failed, "failed": failed})
    return book, freezer


def _follow(node: str, policy: str | None, kubeconfig: str | None, context: str | None) -> "tuple[Node, Any]":
    from webhook.agent.node import Node
    from webhook.cluster import client

    try:
        api = client.connect(kubeconfig, context)
    except client.Unreachable as error:
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, str(error)),)) from error
    return Node(node, api, inputs.load_policy(policy), log_line), api


SETTLE_SECONDS = 10.0
"""Seconds that --once waits for the first answers of the API server."""


def _looked(follow: "tuple[Node, Any] | None", *, as_json: bool) -> str:
    from webhook.agent import agent, node, nvml, view
    from webhook.agent.processes import Processes

    write = view.write if as_json else view.table
    cards = nvml.Cards()
    try:
        seen = agent.look(cards, Processes())
    finally:
        cards.close()
    if follow is None:
        return write(seen, {container: view.Known(name) for container, name in node.by_logs().items()})
    follow[0].start()
    try:
        if not follow[0].settled(SETTLE_SECONDS):
            outputs.say(["note: the API server has not answered; names are those of log files"])
        return write(seen, follow[0].known())
    finally:
        follow[0].stop()


def _watch(
    follow: "tuple[Node, Any] | None",
    policy: str | None,
    listen: tuple[str, int],
    frozen: tuple[Ledger, Freezer | None] | None,
    *,
    events: bool,
    watch_only: bool,
    taint: bool,
) -> None:
    from webhook.agent import agent, node, processes, scrape, view
    from webhook.agent.taint import Taints
    from webhook.agent.turns import Turns
    from webhook.cluster.events import Events

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    if follow is None:
        watched = agent.Agent(lambda: {c: view.Known(n) for c, n in node.by_logs().items()}, Over, log_line)
    else:
        follow[0].start()
        writer = Events(follow[1], log_line) if events else None
        if writer is not None:
            writer.start()
        mount = cgroups.mount()
        watched = agent.Agent(
            follow[0].known,
            follow[0].over,
            log_line,
            events=writer,
            api=follow[1],
            folders=cgroups.Folders(mount) if mount else None,
            watch_only=watch_only,
            node=follow[0].name,
            taints=Taints(follow[0].seen, follow[0].taint_dead, processes.boot()) if taint else None,
            turns=Turns(frozen[1], frozen[0], log_line, lacks=NO_FREEZER) if frozen else None,
            contention=follow[0].contention,
        )
    with ExitStack() as stack:
        try:
            stack.enter_context(scrape.serving(watched.metrics, *listen, log_line))
        except OSError as error:
            raise Unusable((Problem("--listen", 0, error.strerror or str(error)),)) from error
        stack.callback(watched.close)
        stamp = _stamp(policy)
        while not ended.is_set():
            if follow is not None and stamp != (stamp := _stamp(policy)):
                _replace(follow[0], policy)
            ended.wait(watched.round())


def _stamp(policy: str | None) -> tuple[int, ...]:
    """Return what changes with the files of the policy: a ConfigMap is replaced below the agent."""
    files = map(Path, inputs.policy_files(policy))
    return tuple(file.stat().st_mtime_ns for file in files if file.exists())


def _replace(node: "Node", policy: str | None) -> None:
    """Go on by the changed policy; by the one before where it cannot be used."""
    try:
        node.use(inputs.load_policy(policy))
    except Unusable as error:
        log_line({"message": "policy not replaced", "error": str(error)})
        return
    log_line({"message": "policy replaced"})
