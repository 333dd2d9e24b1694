"""Sends requests to the application without a server, as a port does."""

import time

from webhook.http.messages import Application, HttpRequest, Later, Reply


def ask(
    app: Application, target: str, body: bytes = b"", method: str = "POST", arrived: float | None = None, **headers: str
) -> Reply:
    """Return the answer to a request. Header names have `_` for `-`, and empty headers are left out."""
    path, _, query = target.partition("?")
    known = {"Host": "a", "Content-Type": "application/json", "Content-Length": str(len(body)) if body else ""}
    named = {**known, **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = HttpRequest(
        method,
        path,
        query,
        {name: value for name, value in named.items() if value},
        time.monotonic() if arrived is None else arrived,
        (body,),
    )
    if refusal := app.refusal(request):
        return refusal
    answer = app(request)
    if isinstance(answer, Later):
        answer.wait()
        answer = app(request._replace(final=True))
    assert isinstance(answer, Reply)
    return answer
