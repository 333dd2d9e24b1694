"""The facts of a live cluster: listed once, then watched. A review only ever reads the newest snapshot."""

import json
import math
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import urllib3
from kubernetes import client, config

from webhook.facts.snapshot import Facts, kept
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.telemetry.log import Log

if TYPE_CHECKING:
    from webhook.telemetry.metrics import Metrics

WATCH_SECONDS = 300
"""How long one watch lasts before the API server is asked to end it; a dead connection is noticed soon after."""

PAGE = 500
"""Objects per page of a list."""

SETTLE_SECONDS = 0.1
"""How long changes are gathered before a snapshot is made of them."""

HOLDERS_SECONDS = 30.0
"""How long changes of pods alone may wait for a snapshot: what is derived from one would not live long otherwise."""

FIRST_PAUSE, LAST_PAUSE = 1.0, 30.0
"""Seconds before a broken watch is taken up again: the first time, and at most."""

ABSENT_PAUSE = 60.0
"""Seconds between looks for a kind that is not installed."""

MAX_REASON = 300
"""Characters of a reason that a log line repeats of an API server."""

FORBIDDEN, NOT_FOUND, GONE = 403, 404, 410


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind that facts are made of, everywhere or in one namespace, and the RBAC rule that reading it needs."""

    group: str
    version: str
    plural: str
    kind: str
    fields: str = ""
    namespace: str = ""

    @property
    def api_version(self) -> str:
        """Group and version as objects write them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def of(self) -> tuple[str, str]:
        """Group and kind."""
        return self.group, self.kind

    @property
    def path(self) -> str:
        """Where the API server lists it."""
        root = "/apis" if self.group else "/api"
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}/{self.api_version}{within}/{self.plural}"


READ = (
    Resource("", "v1", "namespaces", "Namespace"),
    Resource("", "v1", "nodes", "Node"),
    Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy"),
    Resource("", "v1", "pods", "Pod", fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"),
)
"""All that is read from a whole cluster; the ClusterRole in manifests/ allows this and no more."""

READ_WITHIN = (
    Resource("", "v1", "configmaps", "ConfigMap"),
    Resource("apps", "v1", "daemonsets", "DaemonSet"),
)
"""What is read from the namespaces of sharing configurations; a Role in each allows this and no more."""


Name = tuple[str, str]
"""Namespace, empty for what has none, and name."""


def namespaces(policy: Policy) -> tuple[str, ...]:
    """The namespaces that hold sharing configurations, or may."""
    return tuple(sorted({*policy.limits.namespaces, *(namespace for namespace, _ in policy.config_maps)}))


class Cluster:
    """Follows a cluster in threads of its own.

    `facts` gives the newest snapshot, and None until every kind has been listed once. A watch that breaks is
    taken up again where it was; one that is too old starts over with a list. The last snapshot stands meanwhile.
    A kind that is not installed, or a namespace that is not there, holds nothing.
    """

    def __init__(
        self, api: client.ApiClient, log: Log, within: Iterable[str] = (), metrics: "Metrics | None" = None
    ) -> None:
        self._api = api
        inside = [replace(each, namespace=namespace) for namespace in within for each in READ_WITHIN]
        self._read = (*READ, *inside)
        self._log = log
        self._host = urlsplit(api.configuration.host).netloc.rpartition("@")[2]  # no user and no password of it
        self._metrics = metrics
        self._heard: dict[Resource, float] = {}
        self._objects: dict[Resource, dict[Name, Object]] = {}
        self._random = random.Random()  # noqa: S311 - spreads the workers' retries, hides nothing
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._holders_changed = False
        self._facts: Facts | None = None

    def facts(self) -> Facts | None:
        """Return the newest snapshot; never waits."""
        return self._facts

    def age(self) -> float:
        """Return for how many seconds the API server has said nothing, of the kind for which that is longest.

        It says something at least every WATCH_SECONDS, be it that nothing changed; until every kind was listed once
        it is infinite. Never waits.
        """
        if len(self._heard) < len(self._read):
            return math.inf
        return time.monotonic() - min(self._heard.values())

    def start(self) -> None:
        """Begin to follow the cluster."""
        for resource in self._read:
            threading.Thread(target=self._follow, args=(resource,), daemon=True, name=resource.plural).start()
        threading.Thread(target=self._publish, daemon=True, name="facts").start()

    def stop(self) -> None:
        """End the threads: each at its next event, or when its watch ends."""
        self._stopped.set()
        self._changed.set()

    def _publish(self) -> None:
        while not self._stopped.is_set():
            if self._changed.wait(HOLDERS_SECONDS):
                time.sleep(SETTLE_SECONDS)
                self._changed.clear()
            elif not self._holders_changed:
                continue
            with self._lock:
                self._holders_changed = False
                known = [item for objects in self._objects.values() for item in objects.values()]
                complete = len(self._objects) == len(self._read)
            if complete:
                self._facts = Facts.of(known)
                if self._metrics is not None:
                    self._metrics.loaded(whether=True)

    def _follow(self, resource: Resource) -> None:
        pause, version = FIRST_PAUSE, ""
        while not self._stopped.is_set():
            try:
                version = version or self._list(resource)
                for seen in self._watch(resource, version):
                    version, pause = seen, FIRST_PAUSE
                    self._hear(resource)
                self._hear(resource)  # it ended the watch as it was asked to
                self._stopped.wait(SETTLE_SECONDS)  # what ends every watch at once is not asked without pause
            except client.ApiException as error:
                version = ""  # too old, or never good: start over
                if error.status == NOT_FOUND or (error.status == FORBIDDEN and self._absent(resource.namespace)):
                    # There is none of it where there is no such kind or place, for which no powers can be given;
                    # there may be yet.
                    self._replace(resource, {})
                    self._hear(resource)
                    self._stopped.wait(ABSENT_PAUSE)
                elif error.status != GONE:
                    pause = self._wait(resource, error, pause)
            except Exception as error:  # whatever it is, the last snapshot stands and another try comes
                pause = self._wait(resource, error, pause)

    def _absent(self, namespace: str) -> bool:
        with self._lock:
            known = next((found for each, found in self._objects.items() if each.kind == "Namespace"), None)
            return bool(namespace) and known is not None and ("", namespace) not in known

    def _hear(self, resource: Resource) -> None:
        """Take in that the API server spoke of a kind."""
        self._heard[resource] = time.monotonic()
        if self._metrics is not None:
            same = [at for each, at in tuple(self._heard.items()) if each.kind == resource.kind]
            self._metrics.heard(resource.kind, min(same))

    def _wait(self, resource: Resource, error: Exception, pause: float) -> float:
        """Say what broke, wait, and return how long to wait the next time."""
        if self._metrics is not None:
            self._metrics.broke(resource.kind)
        told = {"kind": resource.kind, "host": self._host, "error": _what(error), "reason": _reason(error)}
        self._log({"message": "watch broke", **told, "seconds": pause})
        self._stopped.wait(pause * self._random.uniform(0.5, 1.0))
        return min(pause * 2, LAST_PAUSE)

    def _list(self, resource: Resource) -> str:
        """Read every object of a kind, page by page; return the version to watch from."""
        found: dict[Name, Object] = {}
        token = ""
        while True:
            with self._get(resource, **{"limit": PAGE, "continue": token}) as response:
                page = json.loads(response.data)
            for item in page["items"]:
                if small := _trimmed(resource, item):
                    found[_name(item)] = small
            token = page["metadata"].get("continue")
            if not token:
                break
        self._replace(resource, found)
        self._hear(resource)
        version: str = page["metadata"]["resourceVersion"]
        return version

    def _replace(self, resource: Resource, found: dict[Name, Object]) -> None:
        with self._lock:
            changed = self._objects.get(resource) != found
            self._objects[resource] = found
        if changed:
            self._changed.set()

    def _watch(self, resource: Resource, version: str) -> Iterator[str]:
        """Take in events until the watch ends; yield the version after each."""
        options = {"allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS, "resourceVersion": version}
        with self._get(resource, watch="true", **options) as response:
            for line in response:
                event = json.loads(line)
                item = event["object"]
                if event["type"] == "ERROR":
                    raise client.ApiException(status=item.get("code"), reason=item.get("reason"))
                if event["type"] != "BOOKMARK":
                    self._take_in(resource, event["type"], item)
                yield item["metadata"]["resourceVersion"]

    def _take_in(self, resource: Resource, kind: str, item: Object) -> None:
        name, after = _name(item), None if kind == "DELETED" else _trimmed(resource, item)
        with self._lock:
            objects = self._objects[resource]
            if objects.get(name) == after:
                return  # most updates of a node are heartbeats, which say nothing that facts hold
            if after is None:
                objects.pop(name)
            else:
                objects[name] = after
            if resource.kind == "Pod":
                self._holders_changed = True
                return
        self._changed.set()

    @contextmanager
    def _get(self, resource: Resource, **options: Any) -> Iterator[Any]:
        """Ask for a kind's objects; yield the response, unread. Raises ApiException for another status than 200."""
        query = {**options, "fieldSelector": resource.fields}
        response = _send(self._api, "GET", resource.path, query, silence=WATCH_SECONDS + 30, preload_content=False)
        try:
            if response.status != 200:
                raise client.ApiException(http_resp=response)
            yield response
        finally:
            response.close()
            response.release_conn()


def _name(item: Object) -> Name:
    metadata = item["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _trimmed(resource: Resource, item: Object) -> Object | None:
    """Keep of an object what facts are made of; the items of a list do not say their kind."""
    return kept({**item, "apiVersion": resource.api_version, "kind": resource.kind})


def _what(error: Exception) -> str:
    if isinstance(error, client.ApiException):
        return f"{error.status} {error.reason}"
    return type(error).__name__


def _reason(error: BaseException) -> str:
    """Say why the API server could not be heard; of an exception only what holds no address with a secret in it."""
    if isinstance(error, client.ApiException):
        try:
            message = json.loads(error.body or "")["message"]
        except (KeyError, TypeError, ValueError):  # not a Status, as of a proxy
            return ""
        return str(message)[:MAX_REASON]
    while error.__cause__ is not None:
        error = error.__cause__
    said = getattr(error, "verify_message", None) or (error.strerror if isinstance(error, OSError) else None)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class Unreachable(ValueError):
    """No configuration tells how to reach a cluster."""


def connect(kubeconfig: str | None = None, context: str | None = None) -> client.ApiClient:
    """Make a client: from a kubeconfig if one is given, else from the pod's service account, else as kubectl does.

    Nothing is sent yet. Raises Unreachable.
    """
    settings = client.Configuration()
    try:
        if kubeconfig:
            Path(kubeconfig).open("rb").close()  # a file that cannot be read is told of as such
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
            said = "no cluster is configured; name a kubeconfig with --kubeconfig, or in KUBECONFIG"
            raise Unreachable(said) from error
        raise Unreachable(" ".join(str(error).split())) from error
    except Exception as error:  # the loader trusts a kubeconfig to be one, and breaks on other files in its own ways
        raise Unreachable(f"not a kubeconfig ({type(error).__name__})") from error
    return client.ApiClient(settings)


def _kubeconfigs() -> list[Path]:
    """The files that kubectl would read."""
    named = os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [path for each in named.split(os.pathsep) if (path := Path(each).expanduser()).exists()]


# One question at a time


Api = client.ApiClient
"""A connection to an API server."""


class Refused(Exception):
    """The API server answers a question with an error; `status` is that of HTTP, and the text is its message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


CONNECT_SECONDS, READ_SECONDS = 5, 60
"""How long a connection may take, and how long the API server may be silent."""

APPLY = "application/apply-patch+yaml"
"""A body that is applied by the server, as kubectl apply --server-side sends it."""


def ask(api: Api, path: str, query: Mapping[str, Any] | None = None, *, method: str = "GET", body: Any = None) -> Any:
    """Send one request and return the answer, decoded; a body is applied. Raises Refused and Unreachable."""
    try:
        response = _send(api, method, path, query or {}, body)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(f"{api.configuration.host} does not answer: {_why(error)}") from error
    try:
        answer = json.loads(response.data)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise Refused(response.status, "not an answer of Kubernetes")
    if response.status >= 400:
        raise Refused(response.status, " ".join(str(answer.get("message") or response.reason).split()))
    return answer


def _send(
    api: Api,
    method: str,
    path: str,
    query: Mapping[str, Any],
    body: Any = None,
    *,
    silence: float = READ_SECONDS,
    preload_content: bool = True,
) -> urllib3.BaseHTTPResponse:
    """Send one request, without the client's classes for every kind there is: they take 25 MiB."""
    headers = {**api.default_headers, "Accept": "application/json"}
    for each in api.configuration.auth_settings().values():
        headers[each["key"]] = each["value"]
    if body is not None:
        headers["Content-Type"] = APPLY
    words = {key: str(value) for key, value in query.items() if value not in ("", None)}
    url = f"{api.configuration.host}{path}?{urlencode(words)}" if words else f"{api.configuration.host}{path}"
    response: urllib3.BaseHTTPResponse = api.rest_client.pool_manager.request(
        method,
        url,
        headers=headers,
        body=None if body is None else json.dumps(body),
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=silence),
        retries=False,
        preload_content=preload_content,
    )
    return response


def _why(error: BaseException) -> str:
    """Say in a few words why a connection came to nothing: what the system said, where it said anything."""
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    if said := next((each.strerror for each in causes if isinstance(each, OSError) and each.strerror), None):
        return said
    if any(isinstance(each, (urllib3.exceptions.TimeoutError, TimeoutError)) for each in causes):
        return "timed out"
    return " ".join(str(error).split()) or type(error).__name__
