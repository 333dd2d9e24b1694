"""How long, how much and how many a port takes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, bytes and numbers; those of connections and requests are for each worker.

    The API server keeps idle connections for 90 s, and does not send a POST again on one that closed under it
    (client-go transport/cache.go).
    """

    handshake: float = 5.0
    head: float = 5.0
    body: float = 10.0
    idle: float = 120.0
    parting: float = 2.0
    """How long a connection that is to end is still read from, so that its peer gets to read our answer."""
    line_bytes: int = 8 * 1024
    headers: int = 64
    head_bytes: int = 40 * 1024
    """Bytes of the request line and all headers, each of which may have `line_bytes`."""
    body_bytes: int = 7 * 1024 * 1024
    small_bytes: int = 64 * 1024
    """Bodies up to this size are always taken. Larger ones share `large_bytes`, and are answered beside the others."""
    large_bytes: int = 4 * 7 * 1024 * 1024
    large_waiting: int = 16
    """Large ones that may wait for their turn; at 0.25 s each, they take 4 s."""
    connections: int = 1024
    waiting: int = 256
    """Others that may wait for their turn; at 0.15 ms each, they take 40 ms."""
