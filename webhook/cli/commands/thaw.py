"""`slicewarden thaw`: let run what the agent of this node has frozen."""

import signal
import threading
from pathlib import Path

import click

from webhook.agent import cgroups, ledger, thawer
from webhook.agent.freezer import Freezer
from webhook.agent.ledger import Ledger
from webhook.agent.thawer import Thawer
from webhook.cli import options, outputs, parser
from webhook.model import Problem, Unusable
from webhook.telemetry.log import log_line

LEAVE_SECONDS = 20.0
"""Seconds that a thawer stays after it was told to end, while the agent still lives."""


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden thaw", "slicewarden thaw --watch"),
        {
            "0": "success, or told to end",
            "1": "a container could not be thawed, or no ledger was found, or not all of it could be read",
            "2": "invalid arguments, or no cgroup v2",
            "130": "interrupted by Ctrl-C, without --watch",
        },
        more="It asks no API server and no GPU. An agent that lives goes on: it freezes none of them for a while.",
        environment={},
        files={},
    ),
    help="Let every container run that the agent of this node has frozen, by the ledger that it keeps. With --watch, "
    "stay, and do so as soon as the agent is dead or silent.",
)
@click.option("--watch", is_flag=True, help="stay until told to end, and thaw for an agent that cannot")
@click.option(
    "--ledger",
    "folder",
    type=options.PATH,
    default=str(ledger.FOLDER),
    metavar="FOLDER",
    help=f"where the agent keeps its ledger; default: {ledger.FOLDER}",
)
@click.option(
    "--silence",
    type=click.FloatRange(min=0.5),
    default=ledger.SILENCE,
    metavar="SECONDS",
    help=f"with --watch: how long an agent may not look; default: {ledger.SILENCE:g}",
)
def command(watch: bool, folder: str, silence: float) -> int:
    """Thaw once, or for as long as nobody says otherwise."""
    mount = cgroups.mount()
    if mount is None:
        raise Unusable((Problem("cgroups", 0, "there is no whole mount of version 2, so nothing is frozen"),))
    book, freezer = Ledger(Path(folder)), Freezer(mount)
    if watch:
        _watch(book, freezer, silence)
        return 0
    if book.missing:
        outputs.say([f"no ledger in {folder}: has an agent run here? name its folder with --ledger"])
        return 1
    book.take(tries=1)
    try:
        strange = book.read().strange
        done = thawer.thaw(book, freezer)
    finally:
        book.leave()
    lines = [f"{path}: {why or 'thawed'}" for path, why in done.items()]
    if strange:
        outputs.say([f"the ledger cannot be read in whole: {strange} line{'s' * (strange > 1)} passed over"])
    elif not lines:
        lines = ["the ledger names no container"]
    outputs.show("".join(f"{line}\n" for line in lines))
    return int(bool(strange) or any(done.values()))


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
