"""`slicewarden serve`: run the admission webhook."""

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from ssl import TLSVersion
from typing import TYPE_CHECKING, NamedTuple

import click

from webhook import rules
from webhook.cli import inputs, options, parser
from webhook.engine.audit_mode import AuditMode, Judge, in_manner
from webhook.engine.engine import Engine
from webhook.engine.paths import RELEASE, Manner
from webhook.facts.rights import UNREAD
from webhook.facts.sources import Fresh, Source
from webhook.fallback.answers import ValidationActions
from webhook.memory import frameworks
from webhook.model import Object, Problem, Unusable
from webhook.policy import load
from webhook.policy.model import Policy
from webhook.serving import processes
from webhook.telemetry.log import log_line
from webhook.telemetry.release import known

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.cluster import watch
    from webhook.cluster.client import Api
    from webhook.serving.app import WorkerParts
    from webhook.telemetry.metrics import Metrics

    Follow = Callable[[Metrics, int], WorkerParts]
    Load = Callable[[], tuple[Mapping[str, str], Follow]]

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
@click.option(
    "--lenient",
    is_flag=True,
    help="warn of what a replica of another release did not patch, and do not deny it; for the time of an upgrade",
)
@click.option("--events", is_flag=True, help="with --live: write an Event for each denied object of a controller")
@click.option(
    "--fallback",
    type=parser.WordChoice([each.value for each in ValidationActions]),
    help="with --live: watch the fallback, and report in metrics and log if it differs from the one that "
    "`slicewarden fallback` makes with these --actions, or if it denies anything in audit mode",
)
@click.option(
    "--revisions",
    metavar="NAMESPACE",
    help="with --live: load the policies that the controller writes into ConfigMaps of this namespace, and answer by "
    "the policy that a path names, such as /validate/DIGEST; replaces --policy",
)
@click.option(
    "--release", metavar="NAME", help="with --revisions: the release to report; default: the package's version"
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
    help="when stopped: accept connections for this many seconds, but report not ready, until endpoints are updated; "
    "default: 0",
)
def command(
    policy: str | None,
    facts: Sequence[str],
    live: bool,
    max_facts_age: int | None,
    audit_only: bool,
    lenient: bool,
    events: bool,
    fallback: str | None,
    revisions: str | None,
    release: str | None,
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
        raise Unusable((Problem("--client-name", 0, "needs --client-ca, the CA of the accepted certificates"),))
    options.only_live(
        live=live,
        events=events,
        fallback=fallback,
        revisions=revisions,
        max_facts_age=max_facts_age,
        kubeconfig=kubeconfig,
        context=context,
    )
    if release is not None and (revisions is None or not RELEASE.fullmatch(release)):
        raise Unusable((Problem("--release", 0, "needs --revisions, and is letters, digits, '.', '_', '+' and '-'"),))
    cluster = FactsFrom(kubeconfig, context, max_facts_age)
    manner = Manner.AUDIT if audit_only else Manner.LENIENT if lenient else Manner.ENFORCE
    beside = Beside(events, ValidationActions(fallback) if fallback else None)
    chosen: Load
    if revisions is not None:
        given = {"--policy": policy, "--audit-only": audit_only, "--lenient": lenient, "--fallback": fallback}
        for name, value in given.items():
            if value:
                text = "cannot be used with --revisions, because each policy has its own mode; remove one of them"
                raise Unusable((Problem(name, 0, text),))
        policy = None
        chosen = partial(following, cluster, revisions, release or known(), workers, events=events)
    elif live:
        chosen = partial(_watching, policy, cluster, beside, manner)
    else:
        chosen = partial(from_files, policy, *facts, manner=manner)
    if live:
        _connects(cluster)
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
    if revisions is None and (caution := inputs.by_sample(policy)):
        log_line({"message": "sample policy", "caution": caution})
    try:
        processes.serve(settings, chosen)
    except OSError as error:
        raise Unusable((Problem(str(error.filename), 0, error.strerror or str(error)),)) from error


def from_files(
    policy: str | None, *facts_paths: str, manner: Manner = Manner.ENFORCE
) -> "tuple[Mapping[str, str], Follow]":
    """Return the fields of the first log line, and the function that starts a worker. Raises Unusable."""
    engine, facts = inputs.load_engine(policy, *facts_paths)
    judge = _judge(engine, manner)

    def follow(metrics: "Metrics", _: int) -> "WorkerParts":
        from webhook.serving.app import WorkerParts

        metrics.loaded(whether=True)
        return WorkerParts(inputs.cautious(engine.policy, lambda: facts, log_line), None, judge)

    return _says(judge), follow


def _judge(engine: Engine, manner: Manner) -> Judge:
    """Return what answers in a manner, or in audit mode if the policy's own file says so."""
    return in_manner(engine, Manner.AUDIT if engine.policy.only_records else manner)


def _says(judge: Judge) -> dict[str, str]:
    return {"policy": judge.policy.digest, "mode": judge.mode}


class FactsFrom(NamedTuple):
    """The cluster whose facts are read, and how old they may be, in seconds."""

    kubeconfig: str | None
    context: str | None
    max_age: int | None

    def source(self, watched: "watch.Cluster") -> Source:
        """Return the source of facts."""
        return Fresh(watched.facts, watched.age, float(self.max_age)) if self.max_age else watched.facts


class Beside(NamedTuple):
    """The background work of a worker: it writes Events, and watches that the fallback only records in audit mode."""

    events: bool
    fallback: ValidationActions | None


def _connects(cluster: FactsFrom) -> None:
    from webhook.cluster import client  # 30 MiB, which only a live cluster needs

    try:
        client.connect(cluster.kubeconfig, cluster.context)
    except client.Unreachable as error:
        raise Unusable((Problem(cluster.kubeconfig or "kubeconfig", 0, str(error)),)) from error


def _watching(
    policy: str | None, cluster: FactsFrom, beside: Beside, manner: Manner
) -> "tuple[Mapping[str, str], Follow]":
    from webhook.cluster import client, watch
    from webhook.cluster.events import Events
    from webhook.cluster.rights import AskedRights

    engine = Engine(inputs.load_policy(policy), rules.walk())
    judge = _judge(engine, manner)

    def follow(metrics: "Metrics", _: int) -> "WorkerParts":
        from webhook.serving.app import WorkerParts

        connection = client.connect(cluster.kubeconfig, cluster.context)
        read, within = watch.resources(engine.policy), watch.namespaces(engine.policy)
        asked = AskedRights(connection, log_line, metrics) if engine.policy.asks_rbac else None
        if asked is not None:
            asked.start()
        watched = watch.Cluster(connection, log_line, within, metrics, read=read, rights=asked or UNREAD)
        watched.start()
        writer = Events(connection, log_line, metrics) if beside.events else None
        if writer is not None:
            writer.start()
        if beside.fallback is not None:
            _watch_fallback(connection, engine.policy, beside.fallback, metrics, audit=isinstance(judge, AuditMode))
        return WorkerParts(inputs.cautious(engine.policy, cluster.source(watched), log_line), writer, judge)

    return _says(judge), follow


def following(
    cluster: FactsFrom, namespace: str, release: str, workers: int, *, events: bool
) -> "tuple[Mapping[str, str], Follow]":
    """Return the parts that `serve` needs to follow the policy revisions of a namespace.

    These are the fields of the first log line, and the function with which a worker follows the revisions.
    """
    from webhook.cluster import client, watch
    from webhook.cluster.events import Events
    from webhook.cluster.needs import WatchedNeeds
    from webhook.cluster.rights import AskedRights
    from webhook.policy import revisions
    from webhook.serving import revisions as following_revisions
    from webhook.serving.replica_state import ReplicaState

    state, walked, releases, named = ReplicaState(workers), rules.walk(), rules.releases(), frameworks.names()
    reads = partial(revisions.read, rules=releases, frameworks=named)

    def wrong(item: Object) -> list[str]:
        try:
            load.of_object(item, releases, frameworks=named)
        except Unusable as error:
            return [problem.message for problem in error.problems]
        return []

    def follow(metrics: "Metrics", place: int) -> "WorkerParts":
        from webhook.serving.app import WorkerParts

        connection = client.connect(cluster.kubeconfig, cluster.context)
        asked = AskedRights(connection, log_line, metrics)
        changed = threading.Event()
        read = following_revisions.resources(namespace)
        listed = watch.Cluster(connection, log_line, read=read, keep=following_revisions.kept, changed=changed.set)
        watched = watch.Cluster(connection, log_line, metrics=metrics, rights=asked, changed=changed.set)
        judges = following_revisions.Revisions(
            release, (state, place), WatchedNeeds(watched), reads, partial(Engine, rules=walked), log_line, metrics
        )

        def found() -> "following_revisions.Found | None":
            if listed.facts() is None:
                return None
            halves = (item for each in following_revisions.REGISTRATION for item in listed.objects(each.kind))
            return listed.objects("ConfigMap"), following_revisions.named(halves)

        writer = Events(connection, log_line, metrics) if events else None
        for each in (asked, listed, watched, *((writer,) if writer else ())):
            each.start()
        following_revisions.follow(changed, found, judges.look, log_line)
        source = cluster.source(watched)
        return WorkerParts(
            lambda: source() if judges.complete else None,
            writer,
            judges,
            (judges.condition,),
            judges.report,
            wrong,
            release,
        )

    return {"revisions": namespace, "release": release}, follow


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
