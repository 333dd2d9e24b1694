"""An HTTP request as the application gets it, and its answer."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple, Protocol


class HttpRequest(NamedTuple):
    """A request, of which the target is unescaped; the names of its headers are looked up in any case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    arrived: float
    """When its first byte came (`time.monotonic`)."""
    body: Sequence[bytes] = ()
    """In the parts in which it came. To put 7 MiB together takes some time."""

    @property
    def length(self) -> int:
        """Bytes that the body is to have."""
        return int(self.headers.get("Content-Length") or 0)


class Reply(NamedTuple):
    """An answer as it goes out."""

    status: HTTPStatus
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Application(Protocol):
    """Answers requests. It raises nothing, and waits for nothing."""

    def refusal(self, request: HttpRequest) -> Reply | None:
        """The answer to a request whose body need not be read; None if it has to be."""

    def __call__(self, request: HttpRequest) -> Reply:
        """The answer to a request that was not refused. It may be asked for in any thread."""
