"""Disturb the API server that facts are watched from: reviews go on by the last facts, which then catch up."""

import itertools
import time
from pathlib import Path

from bench import payloads
from tests.faults import apiserver
from tests.faults.apiserver import ApiServer
from tests.faults.conftest import Live, Under
from tests.faults.load import CONNECTIONS, RATE
from tests.faults.replicas import BROKEN, Replica, Secret, kill, replica, until
from tests.faults.world import WORLD, World

NUMBERS = itertools.count()
AGE = 4
"""Seconds of --max-facts-age."""


def catches_up(server: ApiServer, webhook: Replica, secret: Secret) -> None:
    """Grant trust to a new namespace, and wait until every worker judges by it, as far as many connections tell."""
    name = f"late-{next(NUMBERS)}"
    labels = {"slicewarden.dev/trust": "trusted"}
    body = payloads.small().body.replace(b'"namespace":"vision"', f'"namespace":"{name}"'.encode())

    def steered() -> object:
        return webhook.review(secret, "/mutate", body)["response"]["patch"]

    before = steered()
    server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    until(lambda: all(steered() != before for _ in range(8)), "the webhook knows of the new namespace")


def test_the_api_server_restarts(under: Under, secret: Secret, live: Live) -> None:
    with under("API server down for 2 s", live.webhook) as load:
        live.server.stop()
        load.go_on(2)
        live.server.start()
        catches_up(*live, secret)


def test_watches_are_dropped(under: Under, secret: Secret, live: Live) -> None:
    with under("all watches dropped, 5 times", live.webhook) as load:
        for _ in range(5):
            until(lambda: live.server.drop() > 0, "watches are there again")
            load.go_on(0.2)
        catches_up(*live, secret)


def test_versions_are_gone(under: Under, secret: Secret, live: Live) -> None:
    """The version to watch from is compacted away (410), so that everything is listed anew."""
    with under("410 for every watch", live.webhook):
        before = live.server.lists
        live.server.forget()
        live.server.drop()
        until(lambda: live.server.lists >= before + 2 * len(apiserver.PLACES), "both workers have listed all anew")
        catches_up(*live, secret)


def test_a_worker_is_killed_while_the_api_server_is_down(under: Under, live: Live) -> None:
    """The one in its stead has no facts, and leaves callers to the other."""
    with under("kill -9 of a worker, API server down", live.webhook, failed=CONNECTIONS, rate=30, fresh=True) as load:
        live.server.stop()
        kill(live.webhook)
        load.go_on(2)
        live.server.start()
    assert set(load.failures) <= BROKEN


def test_facts_are_older_than_allowed(under: Under, secret: Secret, tmp_path: Path) -> None:
    """By design reviews fail then, with a 503, from the moment the limit is reached until the API server is heard."""
    world = World(tmp_path / "world", age=1)
    with apiserver.serving(apiserver.sample()) as server:
        live = ("--live", "--kubeconfig", server.kubeconfig(tmp_path), "--max-facts-age", str(AGE))
        with (
            replica(secret, *live, facts=None, program=(WORLD, str(world.file))) as webhook,
            under("facts older than a limit, for 1 s (503 by design)", webhook, failed=int(20 * RATE)) as load,
        ):
            server.muted, silent = True, time.monotonic()
            until(lambda: webhook.ready() == 503, "the webhook is not ready")
            load.go_on()
            server.muted = False
            until(lambda: all(webhook.ready() == 200 for _ in range(8)), "every worker is ready")
            heard = time.monotonic()
            load.go_on()
            failed = [each for each in load.asked if each.failure]
            assert {each.failure for each in failed} == {"503"}
            assert all(silent + AGE / 2 < each.due < heard for each in failed)


def test_names_cannot_be_looked_up(under: Under, secret: Secret, tmp_path: Path) -> None:
    """No review needs a name; an API server that is known by one is found again when it can be."""
    world = World(tmp_path / "world")
    with apiserver.serving(apiserver.sample()) as server:
        live = ("--live", "--kubeconfig", server.kubeconfig(tmp_path, "localhost"))
        with (
            replica(secret, *live, facts=None, program=(WORLD, str(world.file))) as webhook,
            under("no DNS for 2 s, all watches dropped", webhook) as load,
        ):
            world.is_so(names=False)
            server.drop()
            load.go_on(2)
            world.is_so(names=True)
            catches_up(server, webhook, secret)
