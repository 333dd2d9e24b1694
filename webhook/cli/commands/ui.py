"""`slicewarden ui`: serve a live page on this machine with the contents of `top`, `usage`, `idle` and `audit`."""

import os
import sys
import threading
import webbrowser
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click

from webhook.cli import counters, inputs, options, outputs, parser, usages
from webhook.cli.counters import UsageSource
from webhook.cli.live import PERIOD, ROUND_SECONDS, Rounds
from webhook.facts.snapshot import Facts
from webhook.model import Problem
from webhook.reports import usage_report
from webhook.scan import live
from webhook.usage.account import KEPT_HOURS

if TYPE_CHECKING:
    from webhook.cluster.client import Api
    from webhook.engine.engine import Engine
    from webhook.ui.board import LivePart

POOLS_PERIOD, EVENTS_PERIOD, USAGE_PERIOD, AUDIT_PERIOD = 15.0, 30.0, 300.0, 300.0
"""Seconds between two readings of the pools, of the Events, of past use, and of everything that is judged."""

_MORE = (
    "The page is served on 127.0.0.1 and asks the cluster with your kubeconfig, so you see what you may read there: "
    "the cards need the rights of slicewarden top, and the other parts the right to `list` what they show. A part "
    "names what you may not read; --namespace reads one namespace only. Its address has a secret, which is valid until "
    "the command ends. Nothing is read while no page is open. Without --policy, the pools and what enforcing would "
    "change are those of ./policies or the sample policy."
)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden ui --policy policy.yaml",
            "slicewarden ui --namespace team-a",
            "slicewarden ui --no-browser --port 8765",
            "slicewarden ui --from node-1.txt --facts cluster.json",
        ),
        parser.SHOWN | {"0": "the page was ended by Ctrl-C"},
        more=_MORE,
        environment=parser.KUBECONFIG,
    ),
    help="Show pools and cards, who shares them, their use, Slicewarden's Events, and what enforcing the policy would "
    "change, as a live page in the browser. The cluster gets no new port: the page is on this machine only.",
)
@options.policy()
@click.option(
    "--facts",
    multiple=True,
    type=options.PATH,
    help="the pools of what `slicewarden facts` wrote, and no cluster; repeatable",
)
@click.option(
    "--port", type=parser.Number(0, 65535), default=0, metavar="N", help="port on 127.0.0.1; default: a free one"
)
@click.option("--no-browser", is_flag=True, help="only print the address")
@usages.sources(
    "an answer of an agent's /metrics in a file named after its node, as node-1.txt, of its /usage, or a usage.sqlite"
)
@counters.source_and_cluster
def command(
    policy: str | None,
    facts: Sequence[str],
    port: int,
    no_browser: bool,
    namespace: str | None,
    source: UsageSource,
) -> int:
    """Serve the page until Ctrl-C."""
    from webhook.ui import peers, server
    from webhook.ui.board import Board

    if facts and (source.kubeconfig or source.context):
        raise click.UsageError("--facts needs no cluster: leave out --kubeconfig and --context")
    inputs.note_sample(policy)
    engine = inputs.engine(policy)
    api = None if facts else usages.connected(source.files, source.kubeconfig, source.context)
    known = Facts.of(item.value for item in inputs.load_facts(facts)) if facts else None
    board = Board(_parts(api, engine, source, known, namespace), lambda trace: outputs.say(trace.splitlines()))
    about = (
        ("cluster", _server(api) if api else "none: files"),
        ("namespace", namespace or "all"),
        ("policy", f"{engine.policy.name} {engine.policy.digest}"),
        *([("note", note)] if (note := inputs.by_sample(policy)) else []),
    )
    keys = server.Keys()
    with server.opened(port) as listening:
        port = listening.getsockname()[1]
        app = server.application(board, keys, port, about)
        serving = server.PageServer(listening, app, peers.ours(), _say_refused)
    board.start()
    outputs.show(f"http://{server.HOST}:{port}/{keys.token}/\n")
    outputs.say(["note: the page is on this machine only; Ctrl-C ends it"])
    if not no_browser and _graphical():
        _browse(f"http://{server.HOST}:{port}/open/{keys.once}")
    serving.serve_forever()  # which returns after Ctrl-C
    board.stop()
    return 0


def _server(api: "Api") -> str:
    from webhook.cluster import client

    return client.server(api)


def _browse(url: str) -> None:
    """Open a browser. The command of the variable BROWSER may end only with its window, so a thread waits for it."""
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True, name="browser").start()


def _say_refused(user: int) -> None:
    outputs.say([f"note: user {user} of this machine tried to open the page, and was refused"])


def _graphical() -> bool:
    """Whether there is a browser with a window. One for a terminal would take the place of this command."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _parts(
    api: "Api | None", engine: "Engine", source: UsageSource, known: Facts | None, namespace: str | None
) -> "list[LivePart]":
    """Return the parts that can be read: all of a cluster, or those of files."""
    from webhook.ui import parts
    from webhook.ui.board import LivePart

    by_label: dict[str, str] = {}
    answers, records = usages.sorted_copies(source.files)
    rounds = Rounds(api, source._replace(files=answers), "name", namespace or "", ROUND_SECONDS)

    def cards() -> str:
        found = rounds()
        lines = [line.removeprefix("note: ") for line in found.lines]
        return parts.cards(found.nodes, found.cards, lines, by_label, namespace or "")

    def pools() -> str:
        nonlocal by_label
        facts, problems = _facts(api, engine, namespace) if api else (known or Facts(), ())
        by_label = parts.pools_of_nodes(engine.policy, facts)
        return parts.pools(engine.policy, facts, problems)

    found = []
    if api or answers or source.prometheus:
        found.append(LivePart("cards", "Cards now", PERIOD, cards))
    if api or known:
        found.append(LivePart("pools", "Pools", POOLS_PERIOD, pools))
    if api or records or source.prometheus:
        used = partial(_usage, api, source._replace(files=records), namespace or "")
        found.append(LivePart("usage", "A day and a month of use", USAGE_PERIOD, used))
    if api:
        found += [
            LivePart("events", "Denials and warnings", EVENTS_PERIOD, partial(_events, api, namespace)),
            LivePart(
                "enforcing", "If the policy is enforced", AUDIT_PERIOD, partial(_enforcing, api, engine, namespace)
            ),
        ]
    return found


def _facts(api: "Api", engine: "Engine", namespace: str | None) -> tuple[Facts, Sequence[Problem]]:
    from webhook.cluster import listing

    objects, problems = listing.facts(api, [engine.policy], namespace)
    facts = Facts.of(objects)
    return facts, (*problems, *live.misnamed(namespace, facts))


def _usage(api: "Api | None", source: UsageSource, namespace: str) -> str:
    """Write the use of all hours that the agents keep, from Prometheus if one is named."""
    from webhook.reports import usage_page

    if api and not source.prometheus:
        nodes, unseen = usages.ask_all(api, lambda agent: agent.usage(KEPT_HOURS))
    else:
        nodes, unseen = counters.read(source, KEPT_HOURS, namespace, hourly=True)
    return usage_page.fragment(usage_report.sums(nodes, unseen, "namespace", {}, namespace))


def _events(api: "Api", namespace: str | None) -> str:
    from webhook.cluster import event_list
    from webhook.ui import parts

    return parts.events(*event_list.read(api, namespace))


def _enforcing(api: "Api", engine: "Engine", namespace: str | None) -> str:
    from webhook.reports.formats import html
    from webhook.scan import cluster

    found, problems, _ = cluster.audited(api, engine, namespace)
    return html.audit_fragment(found.report(problems, datetime.now(UTC)), found.count)
