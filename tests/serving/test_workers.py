"""The processes that serve: replaced when they die, ended in order, and never in the way of a review."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.support.asking import ask
from tests.support.policies import FACTS, POLICY
from tests.support.waiting import LONG, until
from tests.support.webhooks import BODY, Running, certify, running
from webhook.allowance import TooLate
from webhook.api import admission
from webhook.cli.inputs import load_engine
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.http.messages import Reply
from webhook.serving import app as serving
from webhook.serving import worker
from webhook.telemetry import log


class Load:
    """Reviews on kept connections, for as long as the block lasts; as the API server, it heeds `Connection: close`."""

    def __init__(self, webhook: Running, connections: int = 4) -> None:
        self.statuses: list[int] = []
        self.problems: list[str] = []
        self._webhook = webhook
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(connections)]

    def _ask(self) -> None:
        connection = self._webhook.connect()
        while not self._end.is_set():
            try:
                self.statuses.append(self._webhook.review(connection))
            except ConnectionRefusedError:  # as other replicas would be asked instead
                break
            except (OSError, http.client.HTTPException) as error:
                self.problems.append(repr(error))
                connection.close()
        connection.close()

    def __enter__(self) -> "Load":
        for each in self._threads:
            each.start()
        until(lambda: len(self.statuses) > 20)
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for each in self._threads:
            each.join(LONG)

    def more(self, number: int = 20) -> None:
        """Wait for so many more answers."""
        enough = len(self.statuses) + number
        until(lambda: len(self.statuses) >= enough)


def test_a_worker_that_is_killed_is_replaced_while_others_serve(tmp_path: Path) -> None:
    with running(tmp_path) as webhook, Load(webhook) as load:
        until(lambda: len(webhook.workers()) == 2)
        before = webhook.workers()
        os.kill(min(before), signal.SIGKILL)
        load.more()
        until(lambda: len(webhook.workers()) == 2 and webhook.workers() != before)
        load.more()
        assert set(load.statuses) == {200}
        assert len(load.problems) <= 4, "only what the killed worker had in hand"
        # What is shared lies in memory once: this is what a container is charged for.
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in (webhook.process.pid, *webhook.workers())]
        assert sum(int(text.partition("\nPss:")[2].split()[0]) for text in rollups) < 100 * 1024


def test_workers_end_when_the_main_process_is_killed(tmp_path: Path) -> None:
    with running(tmp_path) as webhook:
        workers = webhook.workers()
        assert workers
        webhook.process.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def test_told_to_end_it_is_unready_then_drains_and_no_review_fails(tmp_path: Path) -> None:
    with running(tmp_path, "--stop-delay", "2") as webhook, Load(webhook) as load:
        webhook.process.terminate()
        until(lambda: webhook.ready() == 503)
        connection = webhook.connect()
        assert webhook.review(connection) == 200, "it goes on accepting while endpoints move"
        connection.close()
        assert webhook.process.wait(LONG) == 0
        load.__exit__()
        assert (set(load.statuses), load.problems) == ({200}, [])


def test_a_certificate_is_replaced_under_load_without_a_failed_review(tmp_path: Path) -> None:
    def shown(webhook: Running, certificate: bytes) -> bool:
        return ssl.get_server_certificate(("localhost", webhook.port), timeout=LONG).encode() == certificate

    with running(tmp_path, "--workers", "1") as webhook, Load(webhook) as load:
        for _ in range(2):
            fresh = certify(tmp_path)
            until(partial(shown, webhook, fresh))
        load.more()
    assert (set(load.statuses), load.problems) == ({200}, [])


# Logs that cannot be written


def test_a_log_that_nobody_reads_stops_no_review(tmp_path: Path) -> None:
    read, write = os.pipe()
    with (
        os.fdopen(read, "rb") as reader,
        os.fdopen(write, "wb") as writer,
        running(tmp_path, "--workers", "1", output=writer) as webhook,
    ):
        connection = webhook.connect()
        # A pipe holds 64 KiB, and a line is about 300 bytes.
        assert {webhook.review(connection) for _ in range(400)} == {200}
        os.set_blocking(read, False)
        assert len(reader.read(1 << 20)) <= 1 << 16
        assert webhook.review(connection) == 200
        (line,) = reader.read(1 << 20).splitlines()
        assert json.loads(line)["dropped"] > 100
        reader.close()
        assert {webhook.review(connection) for _ in range(10)} == {200}
        connection.close()


def test_a_full_disk_stops_no_review(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full, running(tmp_path, "--workers", "1", output=full) as webhook:
        connection = webhook.connect()
        assert {webhook.review(connection) for _ in range(10)} == {200}
        connection.close()


def test_lines_are_dropped_whole_counted_and_told() -> None:
    read, write = os.pipe()
    lines = log.Lines(write)
    try:
        for number in range(5_000):
            lines({"number": number, "text": "x" * 100})
        assert lines.dropped > 0
        seen = os.read(read, 1 << 20)
        assert seen.endswith(b"}\n")
        last = [json.loads(line) for line in seen.splitlines()][-1]["number"]
        assert last + lines.dropped == 4_999
        lines({"number": 5_000})
        assert json.loads(os.read(read, 1 << 20))["dropped"] == lines.dropped
        lines({"number": 5_001})
        assert "dropped" not in json.loads(os.read(read, 1 << 20))
    finally:
        os.close(read)
    before = lines.dropped
    lines({"number": 5_002})
    assert lines.dropped == before + 1
    os.close(write)
    lines({"number": 5_003})
    assert lines.dropped == before + 2


def test_a_line_that_is_too_long_for_a_pipe_is_cut_not_torn(tmp_path: Path) -> None:
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    log.Lines(descriptor)(
        {f"key{n}": "\u2028" * 253 for n in range(9)} | {"findings": ["x" * 60] * 500, "allowed": True}
    )
    os.close(descriptor)
    (text,) = file.read_bytes().splitlines(keepends=True)
    assert len(text) <= log.MAX_LINE
    line = json.loads(text)
    assert line["allowed"] is True
    assert line["key0"] == "\u2028" * log.SHORT


# Deadlines


@pytest.fixture(scope="module")
def judged() -> tuple[Engine, Facts]:
    return load_engine(str(POLICY), str(FACTS))


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_request_that_waited_past_its_deadline_is_not_judged(judged: tuple[Engine, Facts], path: str) -> None:
    engine, facts = judged
    seen: list[Any] = []
    app = serving.ReviewApplication(engine, lambda: facts, seen.append)

    def asked(query: str, waited: float) -> Reply:
        return ask(app, f"{path}{query}", BODY, arrived=time.monotonic() - waited)

    for query, waited in (("?timeout=2s", 2), ("?timeout=1m1.5s", 62), ("", 10), ("?timeout=0s", 0)):
        late = asked(query, waited)
        assert (late.status, late.body) == (504, b"not judged in time\n")
        assert "Retry-After" not in dict(late.headers)
        assert seen[-1] == {"endpoint": path, "error": "too late"}
    assert asked("?timeout=20s", 2).status == 200
    assert asked("?timeout=soon", 0).status == 400


@pytest.mark.parametrize("half", ["mutate", "validate"])
@pytest.mark.parametrize("turns", [0, 1, 2])
def test_the_engine_stops_between_rules_when_time_is_over(judged: tuple[Engine, Facts], half: str, turns: int) -> None:
    engine, facts = judged
    left = iter([False] * turns)
    with pytest.raises(TooLate):
        getattr(engine, half)(admission.decode(BODY), facts, lambda: next(left, True))
    assert next(left, None) is None


def test_a_review_that_takes_too_long_is_a_504_and_is_logged(judged: tuple[Engine, Facts]) -> None:
    engine, facts = judged
    seen: list[Any] = []

    def slow(*_: Any) -> Iterator[Any]:
        time.sleep(0.1)
        return iter(())

    rules = [replace(rule, check=slow) for rule in engine.rules]
    app = serving.ReviewApplication(Engine(engine.policy, rules), lambda: facts, seen.append)
    assert ask(app, "/validate?timeout=50ms", BODY).status == 504
    assert seen[-1]["error"] == "too late"
    assert seen[-1]["uid"] == "offline"


HOLDER = """
import sys, time
from webhook.serving.worker import WorkerLock
with WorkerLock(int(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_one_worker_at_a_time_judges_what_is_large_and_one_that_dies_lets_go() -> None:
    file = os.memfd_create("lock")
    taken = threading.Event()

    def take() -> None:
        with worker.WorkerLock(file):
            taken.set()

    try:
        command = [sys.executable, "-c", HOLDER, str(file)]
        with subprocess.Popen(command, pass_fds=[file], stdout=subprocess.PIPE, cwd=ROOT) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            waiting = threading.Thread(target=take)
            waiting.start()
            assert not taken.wait(0.2)
            other.kill()
            assert taken.wait(LONG)
            waiting.join()
        take()
    finally:
        os.close(file)
