"""Certificates that are replaced, and clocks that are wrong."""

import json
import ssl
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from bench import payloads
from tests.faults.conftest import Under
from tests.faults.replicas import LONG, Replica, Secret, replica, until
from tests.faults.world import WORLD, World
from tests.support.policies import POLICY

DAY = 24 * 3600
EXEMPTION = """
    - name: tried
      reason: it ends
      until: "{day}"
      namespaces: [visitors]
"""


def shows(webhook: Replica, certificate: str) -> bool:
    """Whether every worker shows new connections this certificate, as far as many of them tell."""
    address = ("127.0.0.1", webhook.port)
    return all(ssl.get_server_certificate(address, timeout=LONG) == certificate for _ in range(8))


def test_certificates_are_rotated(under: Under, secret: Secret, webhook: Replica) -> None:
    """Each review has a connection of its own, and so sees whatever is served at that moment."""
    with under("10 certificate rotations, fresh connections", webhook, rate=30, fresh=True) as load:
        for _ in range(10):
            until(partial(shows, webhook, secret.rotate()), "the new certificate is served")
        load.remarks.append(f"{load.handshakes} handshakes")
    assert load.handshakes >= len(load.asked)


def test_the_clock_jumps(under: Under, secret: Secret, tmp_path: Path) -> None:
    """The day counts for exemptions and for the certificate's end; no deadline and no age is reckoned by it."""
    world, policy, log = World(tmp_path / "world"), tmp_path / "policy.yaml", tmp_path / "log"
    last = f"{datetime.now(UTC) + timedelta(days=10):%Y-%m-%d}"
    exemption = "  exemptions:" + EXEMPTION.format(day=last)
    policy.write_text(POLICY.read_text("utf-8").replace("  exemptions:\n", exemption, 1), "utf-8")
    exempt = payloads.small().body.replace(b'"namespace":"vision"', b'"namespace":"visitors"')

    def allowed() -> object:
        return webhook.review(secret, "/validate", exempt)["response"]["allowed"]

    with (
        log.open("wb") as output,
        replica(secret, policy=policy, output=output, program=(WORLD, str(world.file))) as webhook,
        under("the clock jumps 60 days ahead and 60 back, twice", webhook) as load,
    ):
        assert allowed() is True
        for _ in range(2):
            world.is_so(seconds=60 * DAY)
            assert allowed() is False, "the exemption has ended"
            status, said = webhook.asked("/readyz")
            assert (status, said[:33]) == (503, "the serving certificate ended at ")
            load.go_on()
            world.is_so(seconds=-60 * DAY)
            assert allowed() is True
            load.go_on()
            world.is_so(seconds=0)
            assert webhook.ready() == 200
    days = {json.loads(line)["time"][:10] for line in log.read_text("utf-8").splitlines()}
    assert len(days) >= 3, "the log is dated by the same clock"
