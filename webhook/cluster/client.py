"""A client of the API server: connects, and sends single requests.

It does not import the Kubernetes client's classes for all kinds, which take 25 MiB.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode
from warnings import catch_warnings

import urllib3
from kubernetes import client, config

from webhook.cluster import responses
from webhook.cluster.decoding import decoded
from webhook.cluster.page_size import PageSize
from webhook.telemetry import release

PAGE = 500
"""Objects per page of a list, as in kubectl (`--chunk-size`): enough for a person's machine.

A pod has less memory: it lists what tenants create in `watch.SMALL_PAGE`s, and the audit's CronJob by `--page-size`.
"""

FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 403, 404, 409, 410

Api = client.ApiClient
"""A connection to an API server."""


class Unreachable(ValueError):
    """The cluster cannot be reached, or no configuration names one."""


def connect(
    kubeconfig: str | None = None, context: str | None = None, program: str = "slicewarden"
) -> client.ApiClient:
    """Make a client from the given kubeconfig, else from the pod's service account, else as kubectl does.

    The API server records `program` in its audit log, and as the field manager of what the client creates, updates or
    merges (apiserver pkg/endpoints/handlers/create.go, managerOrUserAgent). Server-side apply names a
    field manager in the query.

    Sends nothing. Raises Unreachable.
    """
    settings = client.Configuration()
    try:
        if kubeconfig:
            Path(kubeconfig).open("rb").close()  # an unreadable file raises OSError
        if not (kubeconfig or context):
            try:
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            except config.ConfigException:  # not in a pod
                config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(kubeconfig, context=context, client_configuration=settings)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise Unreachable(error.strerror or str(error)) from error
    except config.ConfigException as error:
        if not (kubeconfig or _kubeconfigs()):
            message = "no cluster is configured; name a kubeconfig with --kubeconfig, or in KUBECONFIG"
            raise Unreachable(message) from error
        raise Unreachable(" ".join(str(error).split())) from error
    except Exception as error:  # the loader does not validate, and fails on other files in many ways
        raise Unreachable(f"not a kubeconfig ({type(error).__name__})") from error
    api = _client(settings)
    api.user_agent = f"{program}/{release.known()}"
    return api


def server(api: client.ApiClient) -> str:
    """Return the address of a server as people may see it: without a user and password.

    All before the last @ may be a password. Dots stand for it if it has a `/`, `?` or `#`: it may name the server, too.
    """
    scheme, secret, rest = cast("re.Match[str]", _ADDRESS.fullmatch(api.configuration.host)).groups("")
    return f"{scheme}{'...@' if _ENDS.search(secret) else ''}{rest}"


_ADDRESS = re.compile(r"((?:[a-z][a-z0-9+.-]*:)?//)?(?:(.*)@)?(.*)", re.IGNORECASE | re.DOTALL)
"""A scheme, what is before the last @, and the rest."""

_ENDS = re.compile("[/?#]")
"""The characters that end the part of an address with a user, a host and a port."""


def _client(settings: client.Configuration) -> client.ApiClient:
    """Make a client, which reads the addresses of the server and of its proxy. Raises Unreachable."""
    try:
        with catch_warnings(action="ignore", category=urllib3.exceptions.DependencyWarning):
            return client.ApiClient(settings)
    except ImportError as error:  # SOCKS needs another package
        raise Unreachable("a SOCKS proxy is not supported; name an HTTP proxy, or none") from error
    except ValueError as error:  # its text may have a password
        raise Unreachable("the address of the server or of its proxy cannot be read") from error


def of_server(url: str, authorization: str, tls: Mapping[str, str | None], *, direct: bool = False) -> client.ApiClient:
    """Make a client of a server that is no API server. Its certificate is verified. Sends nothing. Raises Unreachable.

    `authorization` is the value of the HTTP header, and `tls` has values of the client's configuration by their names.
    `direct` is whether no proxy is used, whatever the environment says.
    """
    settings = client.Configuration()
    settings.host = url
    settings.api_key = {"authorization": authorization} if authorization else {}
    for name, value in tls.items():
        setattr(settings, name, value)
    if direct:
        settings.proxy = None
    return _client(settings)


def _kubeconfigs() -> list[Path]:
    """Return the files that kubectl would read."""
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for name in named.split(os.pathsep) if (path := Path(name).expanduser()).exists()]


class StatusError(Exception):
    """The API server answered with an error. `status` is the HTTP status, and the text is the server's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


CONNECT_SECONDS, READ_SECONDS = 5, 60
"""Seconds to connect, and seconds that the API server may be silent."""

APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
"""The content types of patches: server-side apply, as `kubectl apply --server-side` sends it; merge; by lists' keys."""


def ask(
    api: Api,
    path: str,
    query: Mapping[str, Any] | None = None,
    *,
    method: str = "GET",
    body: Any = None,
    patch: str = APPLY,
    connect: float = CONNECT_SECONDS,
    silence: float = READ_SECONDS,
) -> Any:
    """Send a request and return the decoded answer. With PATCH, the `body` is sent as a `patch`.

    Timeouts are as in `send`.

    Raises StatusError and Unreachable.
    """
    try:
        response = send(api, method, path, query or {}, body, patch=patch, connect=connect, silence=silence)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{server(api)} does not answer: {_why(error)}") from error
    return _decoded(response, response.data)


def page(api: Api, path: str, query: Mapping[str, Any], size: PageSize) -> Any:
    """Return the decoded page of a list, with at most as many objects as `size` says. Raises as `ask` does."""
    while True:
        try:
            response = send(api, "GET", path, {**query, "limit": size.now}, preload_content=False)
            try:
                data = size.read(response.read)
            finally:
                response.close()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"{server(api)} does not answer: {_why(error)}") from error
        if data is not None:
            return _decoded(response, data)


def _decoded(response: urllib3.BaseHTTPResponse, data: bytes) -> Any:
    try:
        answer = decoded(data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise StatusError(response.status, "not an answer of Kubernetes")
    if response.status >= 400:
        raise StatusError(response.status, " ".join(str(answer.get("message") or response.reason).split()))
    return answer


def text(api: Api, path: str) -> tuple[int, str]:
    """Read a path that answers with text: the HTTP status, and the text. Raises Unreachable."""
    try:
        response = send(api, "GET", path, {})
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{server(api)} does not answer: {_why(error)}") from error
    return response.status, response.data.decode("utf-8", "replace")


def beginning(
    api: Api, path: str, query: Mapping[str, Any], most: int, *, silence: float = READ_SECONDS, longest: float
) -> tuple[int, bytes]:
    """Read the first bytes of an answer: the HTTP status, and at most `most` bytes. Raises Unreachable.

    `longest` is in seconds, for the whole answer, because a server may send single bytes without an end.
    """
    end = time.monotonic() + longest
    data = bytearray()
    try:
        with responses.until(end):
            response = send(api, "GET", path, query, silence=silence, preload_content=False)
            try:
                while len(data) < most and (part := response.read1(most - len(data))):
                    data += part
                return response.status, bytes(data)
            finally:
                response.close()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        if time.monotonic() >= end:
            raise Unreachable(f"the answer takes longer than {longest:.0f} s") from error
        raise Unreachable(f"{server(api)} does not answer: {_why(error)}") from error


def send(
    api: Api,
    method: str,
    path: str,
    query: Mapping[str, Any],
    body: Any = None,
    *,
    patch: str = APPLY,
    silence: float = READ_SECONDS,
    connect: float = CONNECT_SECONDS,
    preload_content: bool = True,
) -> urllib3.BaseHTTPResponse:
    """Send a request and return the response, whatever its final status.

    `connect` and `silence` are timeouts in seconds, to connect and to wait for the next bytes.
    """
    headers = {**api.default_headers, "Accept": "application/json"}
    for setting in api.configuration.auth_settings().values():
        headers[setting["key"]] = setting["value"]
    if body is not None:
        headers["Content-Type"] = patch if method == "PATCH" else "application/json"
    words = {key: str(value) for key, value in query.items() if value not in ("", None)}
    url = f"{api.configuration.host}{path}?{urlencode(words)}" if words else f"{api.configuration.host}{path}"
    manager = api.rest_client.pool_manager
    responses.apply(manager)
    response: urllib3.BaseHTTPResponse = manager.request(
        method,
        url,
        headers=headers,
        body=None if body is None else json.dumps(body),
        timeout=urllib3.Timeout(connect=connect, read=silence),
        retries=False,
        preload_content=preload_content,
    )
    return response


def warnings(
    api: Api, path: str, body: Any, query: Mapping[str, Any], *, patience: float = CONNECT_SECONDS
) -> tuple[int, list[str]]:
    """Send a merge patch. Returns the HTTP status and the `Warning` headers of the response. Raises Unreachable.

    `patience` is the timeout in seconds, to connect and to read.
    """
    try:
        response = send(api, "PATCH", path, query, body, patch=MERGE, connect=patience, silence=patience)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{server(api)} does not answer: {_why(error)}") from error
    return response.status, response.headers.getlist("Warning")


def _why(error: BaseException) -> str:
    """Return why a connection failed: the system's message, if there is one. It shows no user and no password."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    if message := next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), None):
        return message
    if any(isinstance(cause, urllib3.exceptions.LocationValueError) for cause in causes):
        return "it is no URL of a server"  # the error's text may have a password
    if any(isinstance(cause, (urllib3.exceptions.TimeoutError, TimeoutError)) for cause in causes):
        return "timed out"
    return " ".join(str(error).split()) or type(error).__name__
