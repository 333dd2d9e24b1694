"""Processes that die, and replicas that come and go."""

import re
from contextlib import ExitStack
from pathlib import Path

from tests.faults.conftest import Under
from tests.faults.load import CONNECTIONS, Load
from tests.faults.replicas import BROKEN, LONG, Replica, Secret, kill, replica
from tests.support.policies import POLICY

POLICY_INFO = re.compile(r'^slicewarden_policy_info\{.*?hash="([^"]+)"', re.MULTILINE)
MOVING = 0.5
"""Seconds until the endpoints of a Service have moved, everywhere."""

DELAY = ("--stop-delay", "5")
"""How long a replica that is told to end goes on: ten times as long as they take here."""


def leave(load: Load, leaving: Replica, *others: Replica) -> None:
    """Delete a pod: it is told to end, and a moment later the Service knows."""
    leaving.stop()
    load.go_on(MOVING)
    load.move(*others)
    assert leaving.process.wait(LONG) == 0


def test_a_worker_is_killed(under: Under, webhook: Replica) -> None:
    """Only what it had in hand fails: at most one review of each connection, each time."""
    with under("kill -9 of a worker, 3 times", webhook, failed=3 * CONNECTIONS) as load:
        for _ in range(3):
            kill(webhook)
            load.go_on()
    assert set(load.failures) <= BROKEN


def test_a_replica_is_told_to_end(under: Under, secret: Secret, webhook: Replica) -> None:
    with replica(secret, *DELAY) as old, under("SIGTERM of one of two", old, webhook) as load:
        leave(load, old, webhook)


def test_all_replicas_are_replaced(under: Under, secret: Secret) -> None:
    with ExitStack() as stack:
        old = [stack.enter_context(replica(secret, *DELAY)) for _ in range(2)]
        serving, fresh = list(old), ExitStack()
        stack.enter_context(fresh)
        with under("rolling restart of two", *serving) as load:
            for each in old:  # as maxSurge: 1, maxUnavailable: 0 have it
                serving.append(fresh.enter_context(replica(secret)))
                load.move(*serving)
                serving.remove(each)
                leave(load, each, *serving)


def test_two_policies_are_in_force_side_by_side(under: Under, secret: Secret, tmp_path: Path, webhook: Replica) -> None:
    """Each replica answers by its own policy, and by nothing else, for as long as both are there."""
    looser = tmp_path / "policy.yaml"
    text = POLICY.read_text("utf-8")
    looser.write_text(text.replace('"*": Deny', '"*": Deny\n    uncapped-memory: Audit'), "utf-8")
    with (
        replica(secret, policy=looser) as new,
        under("policy rollout, two versions side by side", webhook) as load,
    ):
        load.move(webhook, new)
        load.go_on(2)
        load.move(new)
        load.go_on()
        load.move(webhook)  # and back
        load.go_on()
        by_policy = [load.answers[each.port] for each in (webhook, new)]
        hashes = [POLICY_INFO.findall(each.asked("/metrics")[1]) for each in (webhook, new)]
    assert by_policy[0] != by_policy[1], "the policies differ in what they answer"
    assert all(hashes)
    assert hashes[0] != hashes[1]
