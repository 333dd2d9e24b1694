"""Requests of the API as a fixture has them: by whom, what of the object, and on which subresource."""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.e2e.control_plane import Cluster
from tests.e2e.objects import Object

DRY = "dryRun=All"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class Sender:
    """A connection to an API server, of an administrator who may act for everybody."""

    def __init__(self, cluster: Cluster, url: str = "") -> None:
        """Connect to the API server of the kubeconfig, or to another one at a URL."""
        config = yaml.safe_load(cluster.kubeconfig().read_text("utf-8"))
        server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(server["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        pair = cluster.folder / "sender.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(b"".join(base64.b64decode(user[f"client-{each}-data"]) for each in ("certificate", "key")))
        context.load_cert_chain(pair)
        self._connection = http.client.HTTPSConnection(
            urlsplit(url or server["server"]).netloc, context=context, timeout=30
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send(
        self, method: str, path: str, body: Any = None, user: Object | None = None, patch: str = MERGE
    ) -> tuple[int, Any]:
        """Send a request, as a user of an AdmissionReview; return the status and the answer.

        `patch` is the content type of a PATCH.
        """
        headers = {"Content-Type": patch if method == "PATCH" else "application/json"}
        self._connection.putrequest(method, path)
        data = b"" if body is None else json.dumps(body).encode()
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self._connection.putheader(name, value)
        if user is not None:
            self._connection.putheader("Impersonate-User", user.get("username") or "nobody")
            for group in user.get("groups") or ():
                self._connection.putheader("Impersonate-Group", group)
        self._connection.endheaders(data)
        with self._connection.getresponse() as response:
            text = response.read().decode()
            served = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(text) if served else {"message": text.strip()}

    def sent(self, request: Object, *, store: bool = False) -> tuple[int, Any]:
        """Send what an AdmissionReview's request has, for show unless it is to be stored."""
        kind, subresource = request["kind"], request.get("subResource") or ""
        root = f"/apis/{kind['group']}/{kind['version']}" if kind["group"] else f"/api/{kind['version']}"
        plural, item = request["resource"]["resource"], request["object"]
        space = (
            f"/namespaces/{request['namespace']}" if request.get("namespace") and kind["kind"] != "Namespace" else ""
        )
        home, query = f"{root}{space}/{plural}", "" if store else f"?{DRY}"
        name = item["metadata"]["name"]
        if request["operation"] == "CREATE":
            path = f"{home}/{name}/{subresource}" if subresource else home
            return self.send("POST", path + query, item, request.get("userInfo"))
        change = merge_patch(request["oldObject"], item)
        path = f"{home}/{name}/{subresource}".rstrip("/")
        if subresource == "finalize":  # it takes no patch
            _, stored = self.send("GET", f"{home}/{name}")
            return self.send("PUT", path + query, merged(stored, change), request.get("userInfo"))
        return self.send("PATCH", path + query, change, request.get("userInfo"))


def merge_patch(old: Any, new: Any) -> Any:
    """Return the JSON merge patch (RFC 7386) that makes one value of another."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {key: merge_patch(old.get(key), value) for key, value in new.items() if old.get(key) != value}
    return changed | {key: None for key in old if key not in new}


def merged(value: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return patch
    made = {**value, **{key: merged(value.get(key), each) for key, each in patch.items()}}
    return {key: each for key, each in made.items() if each is not None}


def page(address: str, name: str) -> tuple[int, str]:
    """Ask for a page of a replica's health port. Return the status, 0 for no answer, and the text."""
    try:
        with urllib.request.urlopen(f"http://{address}/{name}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)
