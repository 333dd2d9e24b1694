"""Defines the limits of a port: times, sizes and numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits in seconds, in bytes, or in connections and requests, which each worker counts for itself.

    The API server keeps an idle connection for 90 s. It does not repeat a POST if the connection closes under it
    (client-go transport/cache.go).
    """

    handshake: float = 5.0
    handshake_bytes: int = 16 * 1024
    """Bytes that a peer may send before its handshake has ended, and that one message of it may announce.

    A ClientHello takes 0.3 to 2 KiB, and a client's chain of three certificates at most 6 KiB. OpenSSL would reserve
    128 KiB for an announced message. What a client's certificates announce is encrypted: for them it reserves 100 KiB.
    """
    records: int = 100
    """TLS records that a peer may send in addition to those that its requests allow.

    One without a part of a request, such as a KeyUpdate, takes 15 microseconds, so 100 take about as long as a new
    connection with one review. Honest peers need fewer than 10: for the handshake and its end.
    """
    record_bytes: int = 512
    """Bytes of requests for which a peer may send one more record.

    Go's client begins with records of 1.2 kB and goes on with larger ones; others send 4 to 16 KiB in each. 7 MiB allow
    14,000 records, which take 0.2 s: no longer than such a review does.
    """
    answer_records: int = 4
    """Records that each answer allows in addition. A small request may come in two, with few bytes in each."""
    head: float = 5.0
    body: float = 10.0
    idle: float = 120.0
    age: float = 300.0
    """Seconds (plus or minus a quarter) after which a connection ends with its next answer.

    The client's next connection may go to another replica: otherwise a restarted replica would get no share of the
    calls. Go's client takes the answer and reconnects (net/http transport.go: a response with `Connection: close` does
    not go back to its pool).
    """
    parting: float = 2.0
    """Seconds for which an ending connection is still read from, so that the peer can read our answer."""
    line_bytes: int = 8 * 1024
    headers: int = 64
    head_bytes: int = 40 * 1024
    """Bytes of the request line and all headers together; each line may have `line_bytes`."""
    body_bytes: int = 7 * 1024 * 1024
    small_bytes: int = 64 * 1024
    """Bodies up to this size are always accepted. Larger ones share `large_bytes` and are judged in a thread."""
    large_bytes: int = 4 * 7 * 1024 * 1024
    """Bytes of all large bodies, as they have arrived."""
    large_waiting: int = 16
    """Large requests in the queue; at 0.25 s each, they take 4 s."""
    receiving_bytes: int = 16 * 1024 * 1024
    """Bytes of all requests that are not whole yet, without the large bodies."""
    buffered_bytes: int = 8 * 1024 * 1024
    """Bytes of the largest body of each connection, together, of those above 16 KiB. TLS keeps larger buffers."""
    unread_bytes: int = 0
    """Bytes of an answer that the kernel keeps for a peer that does not read; 0 for what the kernel chooses."""
    answer_bytes: int = 16 * 1024 * 1024
    """Bytes of all answers that peers are reading, beyond the newest one, without those of 64 KiB and less.

    An answer that several peers read counts once.
    """
    connections: int = 512
    waiting: int = 256
    """Small requests in the queue; at 0.15 ms each, they take 40 ms."""
    waiting_yield: bool = False
    """Whether the connection whose request has waited longest is closed first to make room for a new one."""


OPEN = ServerLimits(
    idle=10.0,
    age=0.0,
    line_bytes=4 * 1024,
    head_bytes=16 * 1024,
    body_bytes=0,
    large_bytes=0,
    unread_bytes=64 * 1024,
    connections=64,
    waiting=64,
    waiting_yield=True,
)
"""The limits of a port for health and metrics, which anyone may reach: one small request per connection.

So no connection stays open, all heads together take at most 1 MiB, and answers that nobody reads at most 8 MiB of the
kernel's memory. Metrics may have 12 MiB, and new ones are made each second: peers that read slowly keep `answer_bytes`
and one answer at most. A probe is answered at once and never waits, so whole requests cannot keep it out either.
"""
