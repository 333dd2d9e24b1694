"""`slicewarden controller`: keep a cluster in step with its GPUSharingPolicy."""

import os
import signal
import socket
import threading
from contextlib import ExitStack

import click

from webhook.cli import options, parser
from webhook.model import Problem, Unusable
from webhook.telemetry.log import log_line

STATUS = {"0": "stopped by a signal", "2": "invalid arguments, or no cluster"}


@click.command(
    cls=parser.Command,
    page=parser.HelpEpilog(
        ("slicewarden controller", "slicewarden controller --drain 30 --ca-secret slicewarden-tls"),
        STATUS,
        environment={"POD_NAME": "the default for --identity"} | parser.KUBECONFIG,
    ),
    help="Keep a cluster in step with its GPUSharingPolicy: fill the installed webhook configurations, one write at a "
    "time, publish the policy to the webhook's replicas, issue and rotate certificates, keep the fallback and the "
    "agents' policy, and write the policy's status. It creates and deletes no webhook configuration. Of several, the "
    "one with the lease works.",
)
@click.option(
    "--namespace",
    default="slicewarden-system",
    metavar="NAME",
    help="the namespace of the webhook; default: slicewarden-system",
)
@click.option(
    "--identity",
    envvar="POD_NAME",
    metavar="NAME",
    help="this controller's name in the lease; default: the host's name and the process id",
)
@click.option(
    "--drain",
    type=click.FloatRange(min=1, max=300),
    default=15.0,
    metavar="SECONDS",
    help="how long a request may take that an API server sent before a change; default: 15",
)
@click.option(
    "--ca-secret",
    default="",
    metavar="NAME",
    help="trust the CA in ca.crt of this Secret, such as that of cert-manager, and issue nothing",
)
@click.option("--dns", multiple=True, metavar="NAME", help="one more DNS name of the webhook's certificate")
@click.option("--url", metavar="URL", help="where the API server reaches a webhook outside of the cluster")
@click.option(
    "--replica",
    "replicas",
    multiple=True,
    metavar="HOST:PORT",
    help="health port of a replica; default: those in the EndpointSlices of the Service",
)
@click.option(
    "--api-server",
    "servers",
    multiple=True,
    metavar="URL",
    help="an API server to ask; default: those in EndpointSlice default/kubernetes",
)
@click.option(
    "--health-port", type=int, default=8080, metavar="PORT", help="health port of the replicas; default: 8080"
)
@options.health
@options.cluster
def command(
    namespace: str,
    identity: str | None,
    drain: float,
    ca_secret: str,
    dns: tuple[str, ...],
    url: str | None,
    replicas: tuple[str, ...],
    servers: tuple[str, ...],
    health_port: int,
    listen: tuple[str, int],
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Work until a signal ends it."""
    from webhook.cluster import client
    from webhook.cluster.events import EventNote, Events, Owner
    from webhook.cluster.waking import Waking
    from webhook.controller import run
    from webhook.controller.controller import Controller
    from webhook.controller.health import ControllerMetrics
    from webhook.controller.preview import Preview, asking
    from webhook.controller.status import STALLED, Standing
    from webhook.controller.terms import MANAGER, Terms
    from webhook.http import scrape
    from webhook.model import Object

    try:
        api = client.connect(kubeconfig, context, MANAGER)
    except client.Unreachable as error:
        raise Unusable((Problem(kubeconfig or "kubeconfig", 0, str(error)),)) from error
    ended, changed = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        ended.set()
        changed.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    events = Events(api, log_line)

    def event(policy: Object, standing: Standing) -> None:
        about = policy["metadata"]
        owner = Owner(policy.get("apiVersion", ""), "GPUSharingPolicy", "", about["name"], about["uid"])
        kind = "Warning" if standing.reason in STALLED else "Normal"
        events.add(EventNote(owner, standing.message[:1000], standing.reason.value, "Reconcile", REPORTER, kind))

    terms = Terms(namespace, health_port, drain, servers, replicas, url, ca_secret, dns)
    metrics = ControllerMetrics()
    preview = Preview(asking(kubeconfig, context), changed.set)
    controller = Controller(api, terms, log_line, event=event, preview=preview.of)
    leads = run.leader(api, terms.lease, identity or f"{socket.gethostname()}-{os.getpid()}")
    with ExitStack() as stack:
        try:
            stack.enter_context(scrape.serving(metrics, *listen, log_line))
        except OSError as error:
            raise Unusable((Problem("--listen", 0, error.strerror or str(error)),)) from error
        events.start()
        stack.callback(events.stop)
        Waking(api, terms.watched, changed).start()
        run.run(controller, leads, changed, ended, metrics, log_line)


REPORTER = "slicewarden.dev/controller"
"""The reporter of its Events."""
