"""Serves an API server in memory: objects with resourceVersions, patches, the probe, and replicas' health.

It has the parts that our controller needs. `lost` ends the connection after a write and before its answer, to a
controller that the test then kills. The clients in this process are answered without a connection, which would take
most of the time. Any other client, such as one for replicas' health, gets plain HTTP.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3
from kubernetes import client

from webhook.engine import filled, probe
from webhook.engine.paths import MUTATE, VALIDATE, Path
from webhook.engine.registration import MADE_FROM
from webhook.policy import revisions
from webhook.serving import replica_state
from webhook.serving.revisions import by_need

INSTALLED = ("matchConstraints", "failurePolicy", "auditAnnotations")
"""Fields of an admission policy that belong to whoever installs it."""
Object = dict[str, Any]
Query = Mapping[str, list[str]]
Answer = tuple[int, Object, list[str]]
"""The HTTP status (0: the connection is lost), the object, and the warnings."""
HOME = "slicewarden-system"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HALVES = {
    VALIDATE: f"{ADMISSION}/validatingwebhookconfigurations/slicewarden",
    MUTATE: f"{ADMISSION}/mutatingwebhookconfigurations/slicewarden",
}
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
CHECK = f"{ADMISSION}/validatingwebhookconfigurations/slicewarden-policies"
SECRETS = f"/api/v1/namespaces/{HOME}/secrets"
MAPS = f"/api/v1/namespaces/{HOME}/configmaps"
POLICIES = "/apis/slicewarden.dev/v1alpha1/gpusharingpolicies"


class ApiInMemory:
    """The objects by their paths, and a record of the requests."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[str] = []
        """Each write: its method and path, and what a configuration names after it."""
        self.lost = False
        self.stale = False
        """Whether API servers still call what they called when this was set."""
        self.called: dict[str, Path | None] = dict.fromkeys(HALVES)
        self.lacking: set[str] = set()
        """Digests that the replicas do not load."""
        self.unread: dict[str, str] = {}
        """By digest, the facts of a policy that replicas have not read."""
        self.forbidden: dict[str, str] = {}
        """By digest, those of them that they may not read."""
        self.unwritable: set[str] = set()
        """Paths whose status cannot be written."""
        self.refuses: Callable[[str, Object, bool], str] = lambda *_: ""
        """What is said against a patch of a path, which may be for show; empty for nothing."""
        self.refused = 422
        """The HTTP status with which it is said."""
        self.tried: list[str] = []
        """The patches for show, each with the digest that it was made from."""
        self.releases = ["1"]
        self.lies: dict[int, Callable[[], Object]] = {}
        """By a replica's number, what it reports instead of what is so."""
        self.frozen: set[int] = set()
        """The numbers of replicas that do not answer."""
        self.url = ""
        self._version = 0
        self._lock = threading.RLock()

    def api(self) -> client.ApiClient:
        settings = client.Configuration()
        settings.host = self.url
        return client.ApiClient(settings)

    def put(self, path: str, item: Object) -> None:
        """Store an object, as a user who installs it would."""
        with self._lock:
            self._version += 1
            metadata = {
                "uid": f"u{self._version}",
                "generation": 1,
                "creationTimestamp": _time(self._version),
                **item["metadata"],
                "resourceVersion": str(self._version),
            }
            self.objects[path] = {**deepcopy(item), "metadata": metadata}

    def named(self, half: str) -> str:
        return ".".join(map(str, filled.named(self.objects[HALVES[half]])))

    def warnings(self) -> list[str]:
        """The warnings in the answer to a probe, if replicas have loaded the named policies."""
        if not self.stale:
            for half, path in HALVES.items():
                names = filled.named(self.objects[path]) if path in self.objects else ()
                self.called[half] = Path(half, names) if names else None
        held = self.held()
        return [
            f'299 - "{probe.warning(path, release)}"'
            for path, release in ((path, self.releases[0]) for path in self.called.values() if path)
            if {name.digest for name in path.names} <= held
        ]

    def held(self) -> set[str]:
        """The digests that a replica has loaded just after its start."""
        found = revisions.by_label(item for path, item in self.objects.items() if path.startswith(f"{MAPS}/"))
        halves = (self.objects[path] for path in HALVES.values() if path in self.objects)
        names = {name.digest for half in halves for name in filled.named(half)}
        return {*by_need(found, names)[: replica_state.MOST]} - self.lacking

    def replica(self, number: int) -> Object:
        return {
            "release": self.releases[number % len(self.releases)],
            "workers": 1,
            "held": sorted(self.held() - self.unread.keys()),
            "waiting": self.unread,
            "forbidden": self.forbidden,
            "ready": True,
            **self.lies.get(number, dict)(),
        }

    def answer(self, method: str, path: str, query: Query, kind: str, body: Any) -> Answer:
        with self._lock:
            if path.startswith("/replica"):
                number = int(path.split("/")[1].removeprefix("replica"))
                return 0 if number in self.frozen else 200, self.replica(number), []
            if method == "GET":
                return self._get(path, query)
            if method == "POST":
                name = body["metadata"]["name"]
                if f"{path}/{name}" in self.objects:
                    return 409, _status("exists"), []
                self.put(f"{path}/{name}", body)
                return self._wrote("POST", f"{path}/{name}", 201)
            if method == "DELETE":
                if (item := self.objects.get(path)) is None:
                    return 404, _status("not found"), []
                if any(item["metadata"][key] != value for key, value in (body or {}).get("preconditions", {}).items()):
                    return 409, _status("the precondition failed"), []
                del self.objects[path]
                self.writes.append(f"DELETE {path}")
                return 200, {"status": "Success"}, []
            return self._patch(path, query, kind, body)

    def _get(self, path: str, query: Query) -> Answer:
        if path in self.objects:
            return 200, self.objects[path], []
        some = [item for key, item in self.objects.items() if key.rpartition("/")[0] == path]
        if not some and not path.endswith(("configmaps", "gpusharingpolicies", "endpointslices")):
            return 404, _status(f"{path} not found"), []
        key, _, value = query.get("labelSelector", [""])[0].partition("=")
        labels = [(item["metadata"].get("labels") or {}, item) for item in some]
        found = [item for label, item in labels if not key or (key in label and value in ("", label[key]))]
        return 200, {"items": found, "metadata": {"resourceVersion": str(self._version)}}, []

    def _patch(self, path: str, query: Query, kind: str, body: Any) -> Answer:
        path, _, subresource = path.partition("/status")
        item = self.objects.get(path)
        if item is None:
            return 404, _status(f"{path} not found"), []
        if subresource and path in self.unwritable:
            return 500, _status("etcdserver: request is too large"), []
        dry = bool(query.get("dryRun"))
        if message := self.refuses(path, body, dry):
            return self.refused, _status(message), []
        if dry and path.startswith(LEASE):
            return 200, item, self.warnings()
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version and version != item["metadata"]["resourceVersion"]:
            return 409, _status("the object has been modified"), []
        if dry:
            self.tried.append(f"{path} {body.get('metadata', {}).get('annotations', {}).get(MADE_FROM, '')}".strip())
            return 200, item, []
        if "apply-patch" in kind:
            metadata = {**item["metadata"], "annotations": (body["metadata"].get("annotations") or {})}
            kept = {key: value for key, value in item.items() if key != "webhooks"}
            made = {**kept, **deepcopy(body), "metadata": metadata}
            if "spec" in item:  # what the manager owned and leaves out is taken away
                installed = {key: item["spec"][key] for key in INSTALLED if key in item["spec"]}
                made["spec"] = installed | deepcopy(body.get("spec") or {})
        else:
            made = _merged(item, body, by_name="strategic" in kind)
        self.put(path, made)
        return self._wrote("PATCH", path + ("/status" if subresource else ""), 200)

    def _wrote(self, method: str, path: str, status: int) -> Answer:
        halves = {value: key for key, value in HALVES.items()}
        names = f" {self.named(halves[path])}" if path in halves else ""
        self.writes.append(f"{method} {path}{names}")
        return (0 if self.lost else status), self.objects[path.removesuffix("/status")], []


def _time(second: int) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status(message: str) -> Object:
    return {"kind": "Status", "message": message}


def _merged(old: Any, patch: Any, *, by_name: bool) -> Any:
    """Merge a patch: null deletes. A strategic patch merges webhooks by their names."""
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return deepcopy(patch)
    made = dict(old)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif by_name and key == "webhooks":
            given = {each["name"]: each for each in value}
            made[key] = [_merged(each, given.get(each["name"], {}), by_name=True) for each in old[key]]
        else:
            made[key] = _merged(old.get(key, {}), value, by_name=by_name)
    return made


def _asked(api: ApiInMemory, method: str, target: str, headers: Mapping[str, str], text: str | bytes | None) -> Answer:
    url = urlsplit(target)
    kind = headers.get("Content-Type") or ""
    return api.answer(method, url.path, parse_qs(url.query), kind, json.loads(text) if text else None)


@contextmanager
def serving() -> Iterator[ApiInMemory]:
    """Serve an API server in memory on loopback."""
    api = ApiInMemory()

    class Handler(BaseHTTPRequestHandler):
        protocol_version, wbufsize, disable_nagle_algorithm = "HTTP/1.1", 1 << 16, True  # one packet for an answer

        def _answer(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, item, warnings = _asked(api, self.command, self.path, dict(self.headers), text)
            if "watch=true" in self.path and status == HTTPStatus.OK:
                self._watched()
                return
            if not status:
                self.close_connection = True
                return
            data = json.dumps(item).encode()
            self.send_response(status)
            for warning in warnings:
                self.send_header("Warning", warning)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _watched(self) -> None:
            """Answer a watch of objects that do not change: nothing, until the client has gone."""
            self.send_response(HTTPStatus.OK)
            self.end_headers()
            self.wfile.flush()
            self.rfile.read(1)
            self.close_connection = True

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self._answer
            raise AttributeError(name)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_address[1]}"

    class Pool(urllib3.HTTPConnectionPool):
        def urlopen(  # type: ignore[override]
            self, method: str, url: str, body: str | None = None, headers: Mapping[str, str] | None = None, **more: Any
        ) -> urllib3.BaseHTTPResponse:
            if f"http://{self.host}:{self.port}" != api.url:
                return super().urlopen(method, url, body, headers, **more)
            status, item, warnings = _asked(api, method, url, headers or {}, body)
            if not status:
                raise urllib3.exceptions.ProtocolError("Connection aborted.")
            answered = urllib3.HTTPHeaderDict({"Content-Type": "application/json"})
            for warning in warnings:
                answered.add("Warning", warning)
            data = json.dumps(item).encode()
            return urllib3.HTTPResponse(data, answered, status, reason=HTTPStatus(status).phrase)

    pools = urllib3.poolmanager.pool_classes_by_scheme
    real = pools["http"]
    pools["http"] = Pool
    try:
        yield api
    finally:
        pools["http"] = real
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def installed() -> Iterator[ApiInMemory]:
    """Serve an API server with the objects of an installed release, without the fallback."""
    with serving() as started:
        for path in (*HALVES.values(), CHECK):
            kind = "Validating" if "validating" in path else "Mutating"
            own = {"name": path.rpartition("/")[2]}
            started.put(path, {"kind": f"{kind}WebhookConfiguration", "metadata": own})
        for name in ("slicewarden-probe", "slicewarden-controller"):
            started.put(f"{LEASE}/{name}", {"kind": "Lease", "metadata": {"name": name}})
        for name in ("slicewarden-ca", "slicewarden-serving"):
            started.put(f"{SECRETS}/{name}", {"kind": "Secret", "metadata": {"name": name}})
        yield started
