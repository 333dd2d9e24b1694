"""Defines an HTTP request as an application sees it, and its answer."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, Protocol


class HttpRequest(NamedTuple):
    """A request. `path` is unescaped, and `headers` ignores the case of names."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    arrived: float
    """The time of its first byte (`time.monotonic`)."""
    body: Sequence[bytes] = ()
    """The body in the parts that were received; joining 7 MiB takes time."""
    final: bool = False
    """Whether it has been answered with Later before, and must be answered now."""

    @property
    def length(self) -> int:
        """The length of the body in bytes, as the head states it."""
        return length_in(self.headers)


def length_in(headers: Mapping[str, str]) -> int:
    """Return the length of the body that a head states; 0 if it states none.

    Python reads at most 4,300 digits, and all but 19 may be zeros.
    """
    return int(headers.get("Content-Length", "").lstrip("0") or 0)


class Reply(NamedTuple):
    """An answer: status, body and headers."""

    status: HTTPStatus
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Later(NamedTuple):
    """Says that the answer is not ready yet.

    `wait` is called in a separate thread, and returns when the answer is ready. Then the application gets the request
    once more, for the last time.
    """

    wait: Callable[[], None]


class Application(Protocol):
    """Answers requests. An application never raises and never waits."""

    def refusal(self, request: HttpRequest) -> Reply | None:
        """Return the answer to a request whose body need not be read; None if the body is needed."""

    def is_probe(self, request: HttpRequest) -> bool:
        """Return whether a request is a kubelet's probe, which is answered quickly, before all waiting requests."""

    def __call__(self, request: HttpRequest) -> Reply | Later:
        """Return the answer to a request that was not refused. Any thread may call it."""
