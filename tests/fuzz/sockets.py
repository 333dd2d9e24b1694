"""The same streams as those of `wire`, over real sockets: to a port that is served as a worker serves it."""

import asyncio
import socket
import threading
from collections.abc import Hashable

import uvloop

from tests.fuzz import wire
from tests.fuzz.fault import Fault
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.http.limits import ServerLimits
from webhook.http.listening import Unwatched, accept, every
from webhook.http.port import Port

SOON = ServerLimits(head=0.1, body=0.1, idle=0.2, parting=0.1)
"""What ends a connection that is only waited on; a stream that says less than a request is one."""


class Sockets(wire.Wire):
    """Puts bytes to a port on the loopback."""

    name = "sockets"

    def __init__(self, engine: Engine, facts: Facts) -> None:
        super().__init__(engine, facts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._stop = threading.Event()
        self._serving = threading.Thread(target=lambda: uvloop.run(self._serve()))
        self._serving.start()

    async def _serve(self) -> None:
        port = Port(self.app, SOON, Unwatched())
        tasks = [
            asyncio.create_task(accept(self._listener, port, lambda: None)),
            asyncio.create_task(every(0.02, port.tick)),
        ]
        while not self._stop.is_set():
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()

    def judge(self, case: bytes, *, again: bool) -> Hashable:  # noqa: ARG002 - what a socket carries depends on time
        """Send a stream, and read until all is answered or the connection ends."""
        whole, unfinished = wire.asked(case)
        said = b""
        with socket.create_connection(self._listener.getsockname(), 10.0) as peer:
            try:
                peer.sendall(case)
                while unfinished or not _answered(said, whole):
                    data = peer.recv(1 << 16)
                    said += data
                    if not data:
                        break
            except ConnectionError:  # it had heard enough
                pass
        return wire.agree(case, said)

    def close(self) -> None:
        """Stop serving."""
        self._stop.set()
        self._serving.join()
        self._listener.close()
        super().close()


def _answered(said: bytes, whole: list[wire.Asked]) -> bool:
    try:
        return len(wire.answers(said, [each.method for each in whole])) >= len(whole) > 0
    except Fault:  # perhaps it is still under way
        return False
