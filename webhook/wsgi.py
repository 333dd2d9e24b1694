"""What an HTTP request is for a WSGI application (PEP 3333), and what that answers. Pure: no sockets, no clock."""

import io
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    App = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]

ARRIVED = "slicewarden.arrived"
"""The key of a WSGI environment under which the time lies when the first byte of a request came (`monotonic`)."""


class Reply(NamedTuple):
    """An answer as it goes out."""

    status: HTTPStatus
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


_ENVIRON: "WSGIEnvironment" = {
    "SCRIPT_NAME": "",
    "SERVER_NAME": "",
    "SERVER_PORT": "",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "https",
    "wsgi.input": None,
    "wsgi.errors": None,
    "wsgi.multithread": False,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
}
"""What every request has in common."""


class Body:
    """A request's body, in the parts in which it came until it is read: to put 7 MiB together takes some time."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts
        self._whole: io.BytesIO | None = None

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, or all that is left."""
        if self._whole is None:
            self._whole = io.BytesIO(b"".join(self._parts))
            self._parts = ()
        return self._whole.read(size)


def environment(
    method: bytes, target: bytes, query: bytes, version: str, headers: Iterable[tuple[bytes, bytes]], arrived: float
) -> "WSGIEnvironment | None":
    """A request as WSGI has it, still without its body; None for one that cannot be meant well."""
    if b"%" in target:
        target = unquote_to_bytes(target)
    made: WSGIEnvironment = _ENVIRON.copy()
    made["REQUEST_METHOD"] = method.decode("latin-1")
    made["PATH_INFO"] = target.decode("latin-1")
    made["QUERY_STRING"] = query.decode("latin-1")
    made["SERVER_PROTOCOL"] = f"HTTP/{version}"
    made[ARRIVED] = arrived
    for name, value in headers:
        key, text = _key(name), value.decode("latin-1")
        made[key] = f"{made[key]},{text}" if key in made else text
    host = made.get("HTTP_HOST")
    if version not in ("1.0", "1.1") or (version == "1.1" and host is None) or "," in (host or ""):
        return None
    if "HTTP_TRANSFER_ENCODING" in made:
        return None  # the API server says how long its body is
    return made


@lru_cache(256)
def _key(name: bytes) -> str:
    """A header's name as WSGI has it. One with an underscore must not pass for that with a hyphen."""
    text = name.decode("latin-1").replace("_", "?").upper().replace("-", "_")
    return text if text in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{text}"


def called(app: "App", environ: "WSGIEnvironment") -> Reply:
    """What a WSGI application answers, whole; 500 without a word if it raises."""
    said: list[tuple[str, list[tuple[str, str]]]] = []

    # Its types are quoted, since a function within another has them made anew each time: a hundredth of a review.
    def start_response(status: str, headers: "list[tuple[str, str]]", _: object = None) -> "Callable[[bytes], object]":
        said.append((status, headers))
        return chunks.append

    chunks: list[bytes] = []
    try:
        iterable = app(environ, start_response)
        chunks.extend(iterable)
        if (close := getattr(iterable, "close", None)) is not None:
            close()
        status, headers = said[-1]
        return Reply(_status(status), b"".join(chunks), tuple(headers))
    except Exception:  # whatever it is, the caller must not wait for an answer that never comes
        return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)


@lru_cache(64)
def _status(line: str) -> HTTPStatus:
    """The status of a WSGI application's line. Raises ValueError for one that HTTP has not."""
    return HTTPStatus(int(line[:3]))
