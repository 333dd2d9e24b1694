"""Logs that cannot be written."""

import json
import os
from pathlib import Path

from tests.faults.conftest import Under
from tests.faults.replicas import Secret, replica, until


def test_the_disk_is_full(under: Under, secret: Secret) -> None:
    with (
        Path("/dev/full").open("wb") as full,
        replica(secret, output=full) as webhook,
        under("full disk for logs", webhook) as load,
    ):
        load.go_on(2)


def test_nobody_reads_the_log_for_a_while(under: Under, secret: Secret) -> None:
    """Lost lines are counted in the next line that is written."""
    read, write = os.pipe()
    with (
        os.fdopen(read, "rb") as reader,
        os.fdopen(write, "wb") as writer,
        replica(secret, output=writer) as webhook,
        under("nobody reads the log, then somebody does", webhook) as load,
    ):
        writer.close()
        # A pipe holds 64 KiB, and a line is about 300 bytes.
        until(lambda: len(load.asked) > 500, "the pipe is full")
        os.set_blocking(read, False)
        # One read: none of what comes as soon as there is room.
        assert len(os.read(read, 1 << 20)) <= 1 << 16
        load.go_on()
        lines = [json.loads(line) for line in reader.read(1 << 20).splitlines()]
        assert sum(line.get("dropped", 0) for line in lines) > 0
        assert len(lines) > 10
