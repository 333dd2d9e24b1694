"""`slicewarden thaw`: thaw the containers that this node's agent has frozen."""

import signal
import threading
from pathlib import Path

import click

from webhook.agent.observe import cgroups
from webhook.agent.turns import ledger, thawer
from webhook.agent.turns.freezer import Freezer
from webhook.agent.turns.ledger import Ledger
from webhook.agent.turns.thawer import Thawer
from webhook.cli import options, outputs, parser
from webhook.model import Problem, Unusable
from webhook.telemetry.log import log_line

LEAVE_SECONDS = 20.0
"""Seconds that a thawer keeps running after a signal to end, if the agent still runs."""


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden thaw", "slicewarden thaw --watch"),
        {
            "0": "success, or stopped by a signal",
            "1": "a container could not be thawed, no ledger was found, or part of the ledger is invalid",
            "2": "invalid arguments, or no cgroup v2",
            "130": "interrupted by Ctrl-C, without --watch",
        },
        more="It uses neither the API server nor a GPU. A running agent continues, and does not freeze these "
        "containers for a while.\n\nExperimental, as the agent's turns are.",
        environment={},
        files={},
    ),
    help="Thaw every container that this node's agent has frozen, as listed in its ledger. With --watch, keep running, "
    "and thaw them as soon as the agent is dead or silent.",
)
@click.option("--watch", is_flag=True, help="run until a signal ends it, and thaw in place of a dead or silent agent")
@click.option(
    "--ledger",
    "folder",
    type=options.PATH,
    default=str(ledger.FOLDER),
    metavar="FOLDER",
    help=f"folder of the agent's ledger; default: {ledger.FOLDER}",
)
@click.option(
    "--silence",
    type=click.FloatRange(min=0.5),
    default=ledger.SILENCE,
    metavar="SECONDS",
    help=f"with --watch: seconds without a look after which the agent counts as silent; default: {ledger.SILENCE:g}",
)
def command(watch: bool, folder: str, silence: float) -> int:
    """Thaw once, or until a signal ends it."""
    mount = cgroups.mount()
    if mount is None:
        raise Unusable((Problem("cgroups", 0, "the root of cgroup v2 is not mounted, so nothing is frozen"),))
    book, freezer = Ledger(Path(folder)), Freezer(mount)
    if watch:
        _watch(book, freezer, silence)
        return 0
    if book.missing:
        outputs.say([f"no ledger in {folder}: has an agent run here? Give its folder with --ledger"])
        return 1
    book.take(tries=1)
    try:
        invalid = book.read().invalid
        done = thawer.thaw(book, freezer)
    finally:
        book.leave()
    lines = [f"{path}: {why or 'thawed'}" for path, why in done.items()]
    if invalid:
        outputs.say([f"part of the ledger is invalid: skipped {invalid} line{'s' * (invalid > 1)}"])
    elif not lines:
        lines = ["the ledger names no container"]
    outputs.show("".join(f"{line}\n" for line in lines))
    return int(bool(invalid) or any(done.values()))


def _watch(book: Ledger, freezer: Freezer, silence: float) -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    one, said, stays = Thawer(book, freezer, silence), "", int(LEAVE_SECONDS / thawer.PERIOD)
    log_line({"message": "thawer started", "ledger": str(book.folder), "silence": silence})
    while stays and not (ended.is_set() and one.dead):
        done, why = one.look()
        for path, trouble in done.items():
            if (text := f"{path} {trouble}") != said:
                said = text
                log_line({"message": "thawed", "path": path, "why": why, "outcome": trouble or "done"})
        stays -= ended.is_set()
        if ended.is_set():
            threading.Event().wait(thawer.PERIOD)
        else:
            ended.wait(thawer.PERIOD)
