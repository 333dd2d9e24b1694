"""`slicewarden serve`: run the admission webhook."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from functools import partial
from pathlib import Path
from ssl import TLSVersion
from typing import TYPE_CHECKING

from webhook import inputs, manual, rules
from webhook import options as common
from webhook.engine import Engine
from webhook.facts import Fresh
from webhook.log import log_line
from webhook.model import Problem, Unusable
from webhook.serving import processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.metrics import Metrics
    from webhook.serving.app import Followed

    Follow = Callable[[Metrics], Followed]

LEAST_AGE = 360
"""Seconds for which a cluster where nothing happens may be silent (cluster.WATCH_SECONDS, and one bookmark)."""

TLS_VERSIONS = {"1.2": TLSVersion.TLSv1_2, "1.3": TLSVersion.TLSv1_3}


def options(parser: ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Run the admission webhook: POST /mutate and /validate over TLS, with facts from files or from the cluster "
        "that it watches. One JSON line a review goes to standard output. It runs until it is told to stop."
    )
    parser.epilog = manual.epilog(
        (
            "slicewarden serve --live --policy policies/ --tls-cert tls/tls.crt --tls-key tls/tls.key",
            "slicewarden serve --facts cluster.yaml --listen 127.0.0.1:8443 --health-listen 127.0.0.1:8080 "
            "--tls-cert tls/tls.crt --tls-key tls/tls.key",
        ),
        {**manual.PLAIN, "0": "it was told to stop, and answered what it had begun"},
        files={
            **manual.POLICIES,
            "--tls-cert": "and --tls-key: looked at every second; a renewed pair is taken up without a restart",
        },
        environment={"KUBECONFIG": "as --kubeconfig, where it runs outside of a cluster"},
    )
    common.policy(parser)
    facts = common.facts(parser, needed=True)
    facts.add_argument("--live", action="store_true", help="watch the cluster for facts")
    parser.add_argument(
        "--max-facts-age",
        type=_age,
        metavar="SECONDS",
        help="with --live: answer 503 while the API server was silent for longer; default: judge by what is known",
    )
    parser.add_argument(
        "--events", action="store_true", help="with --live: write Events for what is denied under a controller"
    )
    common.cluster(parser)
    parser.add_argument(
        "--listen", type=_address, default="0.0.0.0:8443", metavar="HOST:PORT", help="default: 0.0.0.0:8443"
    )
    parser.add_argument("--tls-cert", type=Path, required=True, metavar="FILE", help="serving certificate, PEM")
    parser.add_argument("--tls-key", type=Path, required=True, metavar="FILE", help="its key, PEM")
    parser.add_argument(
        "--tls-min", choices=sorted(TLS_VERSIONS), default="1.3", help="oldest version of TLS to speak; default: 1.3"
    )
    parser.add_argument("--client-ca", type=Path, metavar="FILE", help="only callers with a certificate of this CA")
    parser.add_argument(
        "--client-name",
        action="append",
        default=[],
        metavar="NAME",
        help="with --client-ca: only callers whose certificate has this common name or DNS name; may be repeated",
    )
    parser.add_argument(
        "--health-listen",
        type=_address,
        metavar="HOST:PORT",
        help="health and metrics over plain HTTP, on a port of its own",
    )
    parser.add_argument("--workers", type=_workers, default=2, metavar="N", help="processes; default: 2")
    parser.add_argument(
        "--stop-delay",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="when told to end: go on accepting for so long, though not ready, while endpoints move; default: 0",
    )


def run(chosen: Namespace) -> int:
    """Serve until told to end."""
    if chosen.client_name and not chosen.client_ca:
        raise Unusable((Problem("--client-name", 0, "needs --client-ca, which says whose certificates to believe"),))
    common.only_live(chosen, "--events", "--max-facts-age", "--kubeconfig", "--context")
    load = _live(chosen) if chosen.live else partial(_fixed, chosen.policy, *chosen.facts)
    listen = processes.Listen(
        host=chosen.listen[0],
        port=chosen.listen[1],
        certificate=chosen.tls_cert,
        key=chosen.tls_key,
        client_ca=chosen.client_ca,
        workers=chosen.workers,
        health=chosen.health_listen,
        client_names=frozenset(chosen.client_name),
        tls_min=TLS_VERSIONS[chosen.tls_min],
        delay=chosen.stop_delay,
    )
    if caution := inputs.by_sample(chosen.policy):
        log_line({"message": "sample policy", "caution": caution})
    try:
        processes.serve(listen, load)
    except OSError as error:
        raise Unusable((Problem(str(error.filename), 0, error.strerror or str(error)),)) from error
    return 0


def _fixed(policy_path: str | None, *facts_paths: str) -> "tuple[Engine, Follow]":
    engine, facts = inputs.load_engine(policy_path, *facts_paths)

    def follow(metrics: "Metrics") -> "Followed":
        metrics.loaded(whether=True)
        return inputs.cautious(engine.policy, lambda: facts, log_line), None

    return engine, follow


def _live(chosen: Namespace) -> processes.Load:
    from webhook import cluster  # 30 MiB, which only a live cluster needs

    try:
        cluster.connect(chosen.kubeconfig, chosen.context)
    except cluster.Unreachable as error:
        raise Unusable((Problem(chosen.kubeconfig or "kubeconfig", 0, str(error)),)) from error
    return partial(_watching, chosen)


def _watching(chosen: Namespace) -> "tuple[Engine, Follow]":
    from webhook import cluster, events

    engine = Engine(inputs.load_policy(chosen.policy), rules.walk())

    def follow(metrics: "Metrics") -> "Followed":
        connection = cluster.connect(chosen.kubeconfig, chosen.context)
        watched = cluster.Cluster(connection, log_line, cluster.namespaces(engine.policy), metrics)
        watched.start()
        source = Fresh(watched.facts, watched.age, chosen.max_facts_age) if chosen.max_facts_age else watched.facts
        told = events.Events(connection, log_line, metrics) if chosen.events else None
        if told is not None:
            told.start()
        return inputs.cautious(engine.policy, source, log_line), told

    return engine, follow


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - no host means all of them


def _workers(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 64):
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to 64")
    return int(text)


def _seconds(text: str) -> float:
    if not (text.isascii() and text.isdigit() and int(text) <= 600):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds up to 600")
    return float(text)


def _age(text: str) -> float:
    if not (text.isascii() and text.isdigit() and LEAST_AGE <= int(text) <= 86400):
        raise ArgumentTypeError(f"{text!r} is not a number of seconds from {LEAST_AGE} to 86400")
    return float(text)
