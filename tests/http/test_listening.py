"""What a connection may send ahead of its worker is little."""

import socket
from contextlib import closing

from webhook.http.listening import RECEIVED, listener


def test_each_connection_has_the_small_buffer_of_the_port() -> None:
    """450 peers that sent half a megabyte each took 270 MiB of a worker, because TLS keeps what it has read at once."""
    with closing(listener("127.0.0.1", 0)) as port, socket.create_connection(port.getsockname()):
        port.setblocking(True)
        taken, _ = port.accept()
        with closing(taken):
            assert taken.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * RECEIVED
