"""The facts of a live cluster: listed once, then watched. A review only ever reads the newest snapshot."""

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kubernetes import client, config

from webhook.facts import Facts
from webhook.model import Object

Log = Callable[[Mapping[str, Any]], None]

WATCH_SECONDS = 300
"""How long one watch lasts before the API server is asked to end it; a dead connection is noticed soon after."""

PAGE = 500
"""Objects per page of a list."""

SETTLE_SECONDS = 0.1
"""How long changes are gathered before a snapshot is made of them."""

FIRST_PAUSE, LAST_PAUSE = 1.0, 30.0
"""Seconds before a broken watch is taken up again: the first time, and at most."""

ABSENT_PAUSE = 60.0
"""Seconds between looks for a kind that is not installed."""

NOT_FOUND, GONE = 404, 410


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind that facts are made of, and the RBAC rule that reading it needs."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """Group and version as objects write them."""
        return f"{self.group}/{self.version}" if self.group else self.version


READ = (
    Resource("", "v1", "namespaces", "Namespace"),
    Resource("", "v1", "nodes", "Node"),
    Resource("nvidia.com", "v1", "clusterpolicies", "ClusterPolicy"),
)
"""All that is read from a cluster; the ClusterRole in manifests/ allows this and no more."""


class Cluster:
    """Follows a cluster in threads of its own.

    `facts` gives the newest snapshot, and None until every kind has been listed once. A watch that breaks is
    taken up again where it was; one that is too old starts over with a list. The last snapshot stands meanwhile.
    """

    def __init__(self, api: client.ApiClient, log: Log) -> None:
        core, custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._lists: Mapping[str, Callable[..., Any]] = {
            "Namespace": core.list_namespace,
            "Node": core.list_node,
            "ClusterPolicy": partial(custom.list_cluster_custom_object, "nvidia.com", "v1", "clusterpolicies"),
        }
        self._log = log
        self._objects: dict[Resource, dict[str, Object]] = {}
        self._random = random.Random()  # noqa: S311 - spreads the workers' retries, hides nothing
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._facts: Facts | None = None

    def facts(self) -> Facts | None:
        """Return the newest snapshot; never waits."""
        return self._facts

    def start(self) -> None:
        """Begin to follow the cluster."""
        for resource in READ:
            threading.Thread(target=self._follow, args=(resource,), daemon=True, name=resource.plural).start()
        threading.Thread(target=self._publish, daemon=True, name="facts").start()

    def stop(self) -> None:
        """End the threads: each at its next event, or when its watch ends."""
        self._stopped.set()
        self._changed.set()

    def _publish(self) -> None:
        while not self._stopped.is_set():
            self._changed.wait()
            time.sleep(SETTLE_SECONDS)
            self._changed.clear()
            with self._lock:
                known = [item for objects in self._objects.values() for item in objects.values()]
                complete = len(self._objects) == len(READ)
            if complete:
                self._facts = Facts.of(known)

    def _follow(self, resource: Resource) -> None:
        pause, version = FIRST_PAUSE, ""
        while not self._stopped.is_set():
            try:
                version = version or self._list(resource)
                for seen in self._watch(resource, version):
                    version, pause = seen, FIRST_PAUSE
                self._stopped.wait(SETTLE_SECONDS)  # what ends every watch at once is not asked without pause
            except client.ApiException as error:
                version = ""  # too old, or never good: start over
                if error.status == NOT_FOUND:
                    # The kind is not installed, so there is none of it; it may be installed yet.
                    self._replace(resource, {})
                    self._stopped.wait(ABSENT_PAUSE)
                elif error.status != GONE:
                    pause = self._wait(resource, error, pause)
            except Exception as error:  # whatever it is, the last snapshot stands and another try comes
                pause = self._wait(resource, error, pause)

    def _wait(self, resource: Resource, error: Exception, pause: float) -> float:
        """Say what broke, wait, and return how long to wait the next time."""
        why = f"{error.status} {error.reason}" if isinstance(error, client.ApiException) else type(error).__name__
        self._log({"message": "watch broke", "kind": resource.kind, "error": why, "seconds": pause})
        self._stopped.wait(pause * self._random.uniform(0.5, 1.0))
        return min(pause * 2, LAST_PAUSE)

    def _list(self, resource: Resource) -> str:
        """Read every object of a kind, page by page; return the version to watch from."""
        found: dict[str, Object] = {}
        token = ""
        while True:
            with self._get(resource, limit=PAGE, _continue=token) as response:
                page = json.loads(response.data)
            for item in page["items"]:
                found[item["metadata"]["name"]] = _trimmed(resource, item)
            token = page["metadata"].get("continue")
            if not token:
                break
        self._replace(resource, found)
        version: str = page["metadata"]["resourceVersion"]
        return version

    def _replace(self, resource: Resource, found: dict[str, Object]) -> None:
        with self._lock:
            changed = self._objects.get(resource) != found
            self._objects[resource] = found
        if changed:
            self._changed.set()

    def _watch(self, resource: Resource, version: str) -> Iterator[str]:
        """Take in events until the watch ends; yield the version after each."""
        options = {"allow_watch_bookmarks": True, "timeout_seconds": WATCH_SECONDS, "resource_version": version}
        with self._get(resource, watch=True, **options) as response:
            for line in response:
                event = json.loads(line)
                item = event["object"]
                if event["type"] == "ERROR":
                    raise client.ApiException(status=item.get("code"), reason=item.get("reason"))
                if event["type"] != "BOOKMARK":
                    self._take_in(resource, event["type"], item)
                yield item["metadata"]["resourceVersion"]

    def _take_in(self, resource: Resource, kind: str, item: Object) -> None:
        name, after = item["metadata"]["name"], None if kind == "DELETED" else _trimmed(resource, item)
        with self._lock:
            objects = self._objects[resource]
            if objects.get(name) == after:
                return  # most updates of a node are heartbeats, which say nothing that facts hold
            if after is None:
                objects.pop(name)
            else:
                objects[name] = after
        self._changed.set()

    @contextmanager
    def _get(self, resource: Resource, **options: Any) -> Iterator[Any]:
        """Ask for a kind's objects; yield the response, unread. Raises ApiException for another status than 200."""
        timeout = (5, WATCH_SECONDS + 30)
        response = self._lists[resource.kind](**options, _preload_content=False, _request_timeout=timeout)
        try:
            if response.status != 200:
                raise client.ApiException(http_resp=response)
            yield response
        finally:
            response.close()
            response.release_conn()


def _trimmed(resource: Resource, item: Object) -> Object:
    """Keep of an object what facts are made of, so that ten thousand nodes fit."""
    metadata = item["metadata"]
    kept: dict[str, Any] = {"name": metadata["name"], "labels": metadata.get("labels") or {}}
    trimmed: dict[str, Any] = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": kept}
    if resource.kind == "ClusterPolicy":
        trimmed["spec"] = {"devicePlugin": (item.get("spec") or {}).get("devicePlugin")}
    if resource.kind == "Node":
        trimmed["spec"] = {"taints": (item.get("spec") or {}).get("taints")}
    return trimmed


class Unreachable(ValueError):
    """No configuration tells how to reach a cluster."""


def connect(kubeconfig: str | None = None, context: str | None = None) -> client.ApiClient:
    """Make a client: from a kubeconfig if one is given, else from the pod's service account, else as kubectl does.

    Nothing is sent yet. Raises Unreachable.
    """
    settings = client.Configuration()
    try:
        if not (kubeconfig or context):
            try:
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            except config.ConfigException:  # not in a pod
                config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(kubeconfig, context=context, client_configuration=settings)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, TypeError, ValueError) as error:
        raise Unreachable(" ".join(str(error).split())) from error
    return client.ApiClient(settings)
