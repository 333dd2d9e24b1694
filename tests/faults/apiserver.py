"""Let the webhook read an API server over a real socket: lists and watches, and all that may befall them."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.support.objects import Object
from tests.support.policies import FACTS

NAMESPACES, NODES, POLICIES = "/api/v1/namespaces", "/api/v1/nodes", "/apis/nvidia.com/v1/clusterpolicies"
PODS, CONFIG_MAPS = "/api/v1/pods", "/api/v1/namespaces/gpu-operator/configmaps"
DAEMON_SETS = "/apis/apps/v1/namespaces/gpu-operator/daemonsets"
DEVICES = "/apis/resource.k8s.io/v1"
PLACES = {
    "Namespace": NAMESPACES,
    "Node": NODES,
    "ClusterPolicy": POLICIES,
    "Pod": PODS,
    "ConfigMap": CONFIG_MAPS,
    "DaemonSet": DAEMON_SETS,
    "DeviceClass": f"{DEVICES}/deviceclasses",
    "ResourceClaim": f"{DEVICES}/resourceclaims",
    "ResourceClaimTemplate": f"{DEVICES}/resourceclaimtemplates",
}
"""Where each kind is that a webhook watches under every policy."""

BOOKMARK = 1.0
"""Seconds between the bookmarks of a watch in which nothing happens; a real one sends them once a minute."""

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


class ApiServer:
    """Holds objects by place and name, and the events that led to them for whoever watches."""

    def __init__(self, objects: list[Object]) -> None:
        self.lists = 0
        """How many lists were answered."""
        self.watches = 0
        """How many watches were begun."""
        self.muted = False
        """Whether watches say nothing, be it a bookmark, and lists are not answered."""
        self._objects: dict[str, dict[str, Object]] = {place: {} for place in PLACES.values()}
        self._events: list[tuple[int, str, Object]] = []
        self._version = self._oldest = 1
        self._news = threading.Condition()
        self._open: set[socket.socket] = set()
        self._httpd: ThreadingHTTPServer | None = None
        self._port = 0
        for each in objects:
            self.put(each)

    # What it holds

    def put(self, value: Object) -> None:
        """Create an object, or replace the one of its name."""
        place = PLACES[value["kind"]]
        name = value["metadata"]["name"]
        with self._news:
            known = name in self._objects[place]
            self._version += 1
            metadata = {**value["metadata"], "resourceVersion": str(self._version)}
            value = {**value, "metadata": metadata}
            self._objects[place][name] = value
            self._tell(place, {"type": "MODIFIED" if known else "ADDED", "object": value})

    def remove(self, kind: str, name: str) -> None:
        """Delete an object."""
        place = PLACES[kind]
        with self._news:
            value = self._objects[place].pop(name)
            self._version += 1
            value = {**value, "metadata": {**value["metadata"], "resourceVersion": str(self._version)}}
            self._tell(place, {"type": "DELETED", "object": value})

    def _tell(self, place: str, event: Object) -> None:
        self._events.append((self._version, place, event))
        if len(self._events) > 2_000:
            self._oldest = self._events[1_000][0]
            del self._events[:1_000]
        self._news.notify_all()

    # What befalls it

    def forget(self) -> None:
        """Compact: who watches from before this moment is told that its version is gone."""
        with self._news:
            self._version += 1
            self._oldest = self._version
            self._events.clear()

    def drop(self) -> int:
        """Reset every connection; return how many there were."""
        with self._news:
            dropped = list(self._open)
        for each in dropped:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(dropped)

    def start(self) -> None:
        """Listen, at the port that it had before."""
        self._httpd = ThreadingHTTPServer(("127.0.0.1", self._port), _asked(self))
        self._httpd.daemon_threads = True
        self._port = self._httpd.server_port
        threading.Thread(target=self._httpd.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections, and reset those that are open."""
        if self._httpd is not None:
            self._httpd.shutdown()
            self._httpd.server_close()
            self._httpd = None
        self.drop()

    def kubeconfig(self, folder: Path, host: str = "127.0.0.1") -> Path:
        """Write a file by which it is reached."""
        server = {"name": "it", "cluster": {"server": f"http://{host}:{self._port}"}}
        context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
        shown = {"clusters": [server], "users": [{"name": "it", "user": {}}], "contexts": [context]}
        file = folder / "kubeconfig"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "it", **shown}), "utf-8")
        return file

    # What it answers

    def listed(self, place: str) -> Object:
        """Every object of a place."""
        with self._news:
            self.lists += 1
            items = list(self._objects[place].values())
            return {"metadata": {"resourceVersion": str(self._version)}, "items": items}

    def watched(self, place: str, version: int, seconds: float) -> Iterator[Object]:
        """Every event of a place after a version, with bookmarks between them."""
        end = time.monotonic() + seconds
        with self._news:
            self.watches += 1
        while (now := time.monotonic()) < end:
            with self._news:
                if version < self._oldest:
                    found, latest = [{"type": "ERROR", "object": GONE}], version
                else:
                    found = [event for at, where, event in self._events if at > version and where == place]
                    latest = self._version
            if self.muted:
                time.sleep(0.1)
                continue
            yield from found
            if found and found[-1]["type"] == "ERROR":
                return
            version = latest
            with self._news:
                quiet = self._version == version and not self._news.wait(min(BOOKMARK, end - now))
            if quiet and not self.muted:
                yield {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}

    @contextmanager
    def connected(self, peer: socket.socket) -> Iterator[None]:
        """Know a connection while it lasts."""
        with self._news:
            self._open.add(peer)
        try:
            yield
        finally:
            with self._news:
                self._open.discard(peer)


def _asked(server: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Asked(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with server.connected(self.connection), suppress(OSError):
                super().handle()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            while server.muted:
                time.sleep(0.1)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if "watch" not in query:
                body = json.dumps(server.listed(url.path)).encode()
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            seconds = float(query["timeoutSeconds"])
            for event in server.watched(url.path, int(query["resourceVersion"]), seconds):
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    return Asked


def sample() -> list[Object]:
    """The objects of the sample's facts."""
    items: list[Object] = yaml.safe_load(FACTS.read_text("utf-8"))["items"]
    return [each for each in items if each["kind"] in PLACES]


@contextmanager
def serving(objects: list[Object]) -> Iterator[ApiServer]:
    """An API server that holds some objects, until the block ends."""
    server = ApiServer(objects)
    server.start()
    try:
        yield server
    finally:
        server.muted = False
        server.stop()
