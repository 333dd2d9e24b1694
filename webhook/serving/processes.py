"""Runs the server: the main process loads everything, forks workers, and replaces those that die.

Everything loaded before a fork is in memory once, for any number of workers. The main process only waits for signals,
so a worker that is forked later starts from the same state as the first one.
"""

import gc
import mmap
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from ssl import TLSVersion
from typing import TYPE_CHECKING

from webhook.http.limits import ServerLimits
from webhook.serving import tls
from webhook.telemetry.log import log_line

if TYPE_CHECKING:
    from webhook.serving.app import WorkerParts
    from webhook.telemetry.metrics import Metrics

PAUSE = 0.5
"""Seconds before a worker that ended is replaced."""

TO_END = 35.0
"""Seconds that workers have to end after they were asked to stop and accept no more connections."""


@dataclass(frozen=True)
class Listen:
    """The address and the options of the server. Times are in seconds."""

    host: str
    port: int
    certificate: Path
    key: Path
    client_ca: Path | None
    workers: int
    health: tuple[str, int] | None
    client_names: frozenset[str] = frozenset()
    """The callers that may call, by the common or DNS name of their certificate under `client_ca`; empty for all."""
    tls_min: TLSVersion = TLSVersion.TLSv1_3
    delay: float = 0.0
    """How long to accept connections after SIGTERM, while the endpoints of the Service change."""
    limits: ServerLimits = field(default_factory=ServerLimits)


Load = Callable[[], tuple[Mapping[str, str], "Callable[[Metrics, int], WorkerParts]"]]
"""Returns the log's fields about the policy, and a function that starts the parts of a worker, given its number.

It runs once; its result is used in every worker.
"""


def serve(listen: Listen, load: Load) -> None:
    """Serve until SIGTERM or SIGINT. Requests in flight are answered first. A worker that dies is replaced.

    Raises OSError, which names the file that cannot be used or the address that is not available.
    """
    files = tls.Files(listen.certificate, listen.key, listen.client_ca, listen.tls_min)
    certificates = tls.Certificates(files, log_line)
    says, follow = load()
    from webhook.http import listening

    with ExitStack() as stack:
        listener = stack.enter_context(listening.listener(listen.host, listen.port))
        health = stack.enter_context(listening.listener(*listen.health)) if listen.health else None
        # The folder must be set before the module that writes there is imported.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="slicewarden-metrics-")
        )
        from webhook.serving import worker

        lock = os.memfd_create("slicewarden-lock")
        # All workers share both.
        numbers = memoryview(mmap.mmap(-1, 4 * listen.workers)).cast("I")
        states = memoryview(mmap.mmap(-1, listen.workers))

        def work(place: int, lifeline: int) -> None:
            worker.run(
                worker.Duty(
                    listener=listener,
                    health=health,
                    certificates=certificates,
                    names=listen.client_names,
                    limits=listen.limits,
                    delay=listen.delay,
                    follow=follow,
                    share=worker.ConnectionShare(numbers, place),
                    loaded=worker.Loaded(states, place),
                    lock=worker.WorkerLock(lock),
                    lifeline=lifeline,
                )
            )

        _say(listen, says)
        settle()
        _keep(listen.workers, work, TO_END + listen.delay)


def _say(listen: Listen, says: Mapping[str, str]) -> None:
    cautions = []
    if listen.client_ca is None:
        cautions.append("anyone who reaches this port may call: no --client-ca")
    elif not listen.client_names:
        cautions.append("anyone with a certificate of --client-ca may call: no --client-name")
    where = {"listen": f"https://{listen.host}:{listen.port}", "workers": listen.workers}
    line = {"message": "serving", **where, **says}
    log_line({**line, **({"caution": "; ".join(cautions)} if cautions else {})})


def settle() -> None:
    """Make garbage collection rare. Called once everything is loaded.

    Reviews make no reference cycles. A collection would only walk objects that live as long as the process, and copy
    the memory that workers share.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def _keep(number: int, work: Callable[[int, int], None], patience: float) -> None:
    """Keep a number of processes running until SIGTERM or SIGINT, then wait for their end.

    Each process gets a number, counted from 0; the process that replaces it gets the same one. It also gets a
    descriptor that becomes readable when it must end, or when the main process has ended.
    """
    ends, awaited = {signal.SIGTERM, signal.SIGINT}, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    lifeline, held = os.pipe()

    def fork(place: int) -> int:
        if pid := os.fork():
            return pid
        status = 1
        try:
            os.close(held)
            for number in ends:  # these signals are for the main process, even if a terminal sends them to all
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, awaited)
            work(place, lifeline)
            status = 0
        except BaseException:  # the child process starts here, and must never return into the parent's code
            traceback.print_exc()
        finally:
            os._exit(status)

    workers = {fork(place): place for place in range(number)}
    while signal.sigwait(awaited) not in ends:
        for pid in _ended(workers):
            log_line({"message": "worker ended", "worker": pid})
        if missing := set(range(number)).difference(workers.values()):
            stop = signal.sigtimedwait(ends, PAUSE)
            if stop is not None:
                break
            workers |= {fork(place): place for place in missing}
    os.close(held)
    end = time.monotonic() + patience
    while workers and (left := end - time.monotonic()) > 0:
        signal.sigtimedwait({signal.SIGCHLD}, min(left, 1.0))
        _ended(workers)
    for pid in workers:  # none of them has been reaped, so no other process can have their ids
        os.kill(pid, signal.SIGKILL)


def _ended(workers: dict[int, int]) -> list[int]:
    """Remove and return the processes that have ended."""
    gone = [pid for pid in workers if os.waitpid(pid, os.WNOHANG)[0]]
    for pid in gone:
        del workers[pid]
    return gone
