"""`slicewarden serve`: run the admission webhook."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from ssl import TLSVersion
from typing import TYPE_CHECKING, NamedTuple

import click

from webhook import rules
from webhook.cli import inputs, options, parser
from webhook.engine.audit_mode import AuditMode
from webhook.engine.engine import Engine
from webhook.facts.rights import UNREAD
from webhook.facts.sources import Fresh
from webhook.fallback.answers import ValidationActions
from webhook.model import Object, Problem, Unusable
from webhook.policy.model import Policy
from webhook.serving import processes
from webhook.telemetry.log import log_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client import Api
    from webhook.serving.app import Followed
    from webhook.telemetry.metrics import Metrics

    Follow = Callable[[Metrics], Followed]
    Load = Callable[[], tuple[Engine, Follow]]

LEAST_AGE = 360
"""Seconds that an idle cluster may send nothing (cluster.WATCH_SECONDS, and one bookmark)."""

TLS_VERSIONS = {"1.2": TLSVersion.TLSv1_2, "1.3": TLSVersion.TLSv1_3}

_FILE = parser.NamedPath(path_type=Path)


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        (
            "slicewarden serve --live --policy policies/ --tls-cert tls/tls.crt --tls-key tls/tls.key",
            "slicewarden serve --facts cluster.json --listen 127.0.0.1:8443 --health-listen 127.0.0.1:8080 "
            "--tls-cert tls/tls.crt --tls-key tls/tls.key",
        ),
        {
            **parser.SHOWN,
            "0": "stopped by a signal, after the reviews that had begun were answered",
            "130": "interrupted by Ctrl-C before it served",
        },
        files={
            **parser.POLICIES,
            "slicewarden.toml": "is not read: a server's policy does not depend on the folder it was started in",
            "--tls-cert": "and --tls-key: read again every second, so that a renewed pair needs no restart",
        },
        environment={"KUBECONFIG": "as --kubeconfig, outside of a cluster"},
    ),
    help="Run the admission webhook: POST /mutate and /validate over TLS, with facts from files or from a cluster that "
    "it watches. It writes one JSON line for each review to standard output, and runs until it is stopped.",
)
@options.policy(file=False)
@options.facts(live="watch the cluster for facts", needed=True, file=False)
@click.option(
    "--max-facts-age",
    type=parser.Number(LEAST_AGE, 86400),
    metavar="SECONDS",
    help="with --live: answer 503 if the API server was silent for longer; default: judge by the facts at hand",
)
@click.option(
    "--audit-only",
    is_flag=True,
    help="let everything through unchanged, and record what the policy would do",
)
@click.option("--events", is_flag=True, help="with --live: write an Event for each denied object of a controller")
@click.option(
    "--fallback",
    type=parser.WordChoice([each.value for each in ValidationActions]),
    help="with --live: watch the fallback, and tell by metrics and log when it is not the one that `slicewarden "
    "fallback` makes with these --actions; in audit mode, when it denies anything",
)
@options.cluster
@click.option(
    "--listen", type=options.address, default="0.0.0.0:8443", metavar="HOST:PORT", help="default: 0.0.0.0:8443"
)
@click.option("--tls-cert", type=_FILE, required=True, metavar="FILE", help="serving certificate, PEM")
@click.option("--tls-key", type=_FILE, required=True, metavar="FILE", help="its key, PEM")
@click.option(
    "--tls-min",
    type=parser.WordChoice(sorted(TLS_VERSIONS)),
    default="1.3",
    help="oldest version of TLS to speak; default: 1.3",
)
@click.option("--client-ca", type=_FILE, metavar="FILE", help="accept only callers with a certificate of this CA")
@click.option(
    "--client-name",
    multiple=True,
    metavar="NAME",
    help="with --client-ca: accept only callers whose certificate has this common name or DNS name; repeatable",
)
@click.option(
    "--health-listen",
    type=options.address,
    metavar="HOST:PORT",
    help="serve health and metrics over plain HTTP on another port",
)
@click.option("--workers", type=parser.Number(1, 64), default=2, metavar="N", help="processes; default: 2")
@click.option(
    "--stop-delay",
    type=parser.Number(0, 600),
    default=0,
    metavar="SECONDS",
    help="when stopped: accept connections for so long, but not ready, while endpoints move; default: 0",
)
def command(
    policy: str | None,
    facts: Sequence[str],
    live: bool,
    max_facts_age: int | None,
    audit_only: bool,
    events: bool,
    fallback: str | None,
    kubeconfig: str | None,
    context: str | None,
    listen: tuple[str, int],
    tls_cert: Path,
    tls_key: Path,
    tls_min: str,
    client_ca: Path | None,
    client_name: Sequence[str],
    health_listen: tuple[str, int] | None,
    workers: int,
    stop_delay: int,
) -> None:
    """Serve until a signal ends it."""
    if client_name and not client_ca:
        raise Unusable((Problem("--client-name", 0, "needs --client-ca, which says whose certificates to believe"),))
    options.only_live(
        live=live, events=events, fallback=fallback, max_facts_age=max_facts_age, kubeconfig=kubeconfig, context=context
    )
    fixed = partial(_fixed, policy, *facts)
    beside = Beside(events, ValidationActions(fallback) if fallback else None, audit_only)
    load = _live(policy, kubeconfig, context, max_facts_age, beside) if live else fixed
    chosen: processes.Load = partial(_audited, load) if audit_only else load
    settings = processes.Listen(
        host=listen[0],
        port=listen[1],
        certificate=tls_cert,
        key=tls_key,
        client_ca=client_ca,
        workers=workers,
        health=health_listen,
        client_names=frozenset(client_name),
        tls_min=TLS_VERSIONS[tls_min],
        delay=float(stop_delay),
    )
    if caution := inputs.by_sample(policy):
        log_line({"message": "sample policy", "caution": caution})
    try:
        processes.serve(settings, chosen)
    except OSError as error:
        raise Unusable((Problem(str(error.filename), 0, error.strerror or str(error)),)) from error


def _audited(load: "Load") -> "tuple[AuditMode, Follow]":
    engine, follow = load()
    return AuditMode(engine), follow


def _fixed(policy: str | None, *facts_paths: str) -> "tuple[Engine, Follow]":
    engine, facts = inputs.load_engine(policy, *facts_paths)

    def follow(metrics: "Metrics") -> "Followed":
        metrics.loaded(whether=True)
        return inputs.cautious(engine.policy, lambda: facts, log_line), None

    return engine, follow


class Beside(NamedTuple):
    """The background work of a worker: it writes Events, and watches that the fallback only records in audit mode."""

    events: bool
    fallback: ValidationActions | None
    audit: bool


def _live(
    policy: str | None, kubeconfig: str | None, context: str | None, max_age: int | None, beside: Beside
) -> "Load":
    from webhook.cluster import client  # 30 MiB, which only a live cluster needs

    try:
        client.connect(kubeconfig, context)
    except client.Unreachable as error:
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, str(error)),)) from error
    return partial(_watching, policy, kubeconfig, context, max_age, beside)


def _watching(
    policy: str | None, kubeconfig: str | None, context: str | None, max_age: int | None, beside: Beside
) -> "tuple[Engine, Follow]":
    from webhook.cluster import client, watch
    from webhook.cluster.events import Events
    from webhook.cluster.rights import AskedRights

    engine = Engine(inputs.load_policy(policy), rules.walk())

    def follow(metrics: "Metrics") -> "Followed":
        connection = client.connect(kubeconfig, context)
        read, within = watch.resources(engine.policy), watch.namespaces(engine.policy)
        asked = AskedRights(connection, log_line, metrics) if engine.policy.asks_rbac else None
        if asked is not None:
            asked.start()
        watched = watch.Cluster(connection, log_line, within, metrics, read=read, rights=asked or UNREAD)
        watched.start()
        source = Fresh(watched.facts, watched.age, float(max_age)) if max_age else watched.facts
        writer = Events(connection, log_line, metrics, engine.policy.support) if beside.events else None
        if writer is not None:
            writer.start()
        if beside.fallback is not None:
            _watch_fallback(connection, engine.policy, beside.fallback, metrics, audit=beside.audit)
        return inputs.cautious(engine.policy, source, log_line), writer

    return engine, follow


def _watch_fallback(
    connection: "Api", policy: Policy, answer: ValidationActions, metrics: "Metrics", *, audit: bool
) -> None:
    from webhook.cluster import watch
    from webhook.fallback import comparison, current  # 1 MiB, which only --fallback needs
    from webhook.serving import fallback_watch

    compares = partial(comparison.compare, policy, rules.walk(), answer=answer, audit=audit)
    followed = watch.Cluster(connection, log_line, read=fallback_watch.READ, keep=fallback_watch.kept)
    followed.start()

    def heard() -> list[Object] | None:
        if followed.facts() is None or followed.age() > 2 * watch.WATCH_SECONDS:
            return None
        return [item for kind in current.KINDS for item in followed.objects(kind)]

    fallback_watch.FallbackWatch(heard, compares, log_line, metrics, audit=audit).start()
