"""Calls a WSGI application (PEP 3333), such as Flask, with a request that has no body."""

import io
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from webhook.http.messages import HttpRequest, Reply

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    App = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]


def called(app: "App", request: HttpRequest) -> Reply:
    """Call the application and return its complete answer. If it raises, the answer is an empty 500."""
    started: list[tuple[str, list[tuple[str, str]]]] = []
    chunks: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> Callable[[bytes], object]:
        started.append((status, headers))
        return chunks.append

    try:
        iterable = app(environment(request), start_response)
        chunks.extend(iterable)
        if (close := getattr(iterable, "close", None)) is not None:
            close()
        status, headers = started[-1]
        return Reply(HTTPStatus(int(status[:3])), b"".join(chunks), tuple(headers))
    except Exception:  # after any error the caller must get an answer
        return Reply(HTTPStatus.INTERNAL_SERVER_ERROR)


def environment(request: HttpRequest) -> "WSGIEnvironment":
    """Return the WSGI environment of a request."""
    return {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": request.path,
        "QUERY_STRING": request.query,
        "SERVER_NAME": "",
        "SERVER_PORT": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_HOST": request.headers.get("Host", ""),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
