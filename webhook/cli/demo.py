"""Runs a tour: starts the real webhook on loopback, and sends it one object after another as an API server would."""

import base64
import difflib
import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import certs
from webhook.api import admission, jsonpatch
from webhook.documents import files
from webhook.documents.goyaml_writer import write
from webhook.model import Object

START_TIMEOUT = 30
"""Seconds the webhook has to answer its first request."""


def run() -> int:
    """Show every object of the tour with its decision. Returns 0 if the webhook started, answered and stopped."""
    with resources.as_file(resources.files("webhook").joinpath("sample")) as sample:
        policy, facts = sample / "policy.yaml", sample / "facts.yaml"
        with (
            tempfile.TemporaryDirectory(prefix="slicewarden-") as folder,
            webhook(policy, facts, Path(folder)) as call,
        ):
            for file in sorted((sample / "tour").iterdir()):
                _show(file, call)
    print("The webhook has stopped. Judge manifests of your own: slicewarden check PATH")
    return 0


class Client:
    """A persistent connection to a webhook, like that of an API server."""

    def __init__(self, port: int, ca: Path) -> None:
        context = ssl.create_default_context(cafile=ca)
        self.port = port
        self._connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)

    def post(self, path: str, body: bytes) -> Object:
        """Send a review, and return the response in its answer."""
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        data = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}: {data.decode(errors='replace').strip()}")
        response: Object = json.loads(data)["response"]
        return response

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ready(self) -> bool:
        """Whether the webhook answers."""
        try:
            self._connection.request("GET", "/readyz")
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return False
        return answer.status == 200


@contextmanager
def webhook(policy: Path, facts: Path, folder: Path) -> Iterator[Client]:
    """Run the webhook, with certificates of its own, until the `with` block ends. Its log is the file `folder`/log."""
    ca, certificate, key, log = (folder / name for name in ("ca.crt", "tls.crt", "tls.key", "log"))
    now = datetime.now(UTC)  # the same for both: a certificate may not outlive its CA by a second
    authority = certs.issue_ca("Slicewarden demo", now, days=1)
    serving = certs.issue_serving(authority, ["localhost"], ["127.0.0.1"], now, days=1)
    ca.write_bytes(authority.certificate_pem)
    certificate.write_bytes(serving.certificate_pem)
    key.touch(mode=0o600)
    key.write_bytes(serving.key_pem)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--policy", policy, "--facts", facts]
    command += ["--listen", f"127.0.0.1:{port}", "--tls-cert", certificate, "--tls-key", key]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603 - our own command
    client = Client(port, ca)
    try:
        patience = time.monotonic() + START_TIMEOUT
        while not client.ready():
            if process.poll() is not None or time.monotonic() > patience:
                raise RuntimeError(f"the webhook did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield client
    finally:
        client.close()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        finally:
            process.kill()


def _show(file: Path, client: Client) -> None:
    documents, _ = files.load([str(file)])
    item = documents[0].value
    caption = file.read_text("utf-8").partition("\n")[0].removeprefix("# ")
    mutated = review_by(client, "/mutate", item)
    after = jsonpatch.apply(item, json.loads(base64.b64decode(mutated.get("patch", "W10="))))
    answer = review_by(client, "/validate", after)
    name = f"{item['kind']} {item['metadata']['namespace']}/{item['metadata']['name']}"
    print(f"── {name}\n   {caption}")
    for line in _diff(item, after) if answer["allowed"] else ():  # a refused object is not created
        print(f"     {line}")
    for warning in answer.get("warnings", ()):
        print(f"   warning: {warning}")
    print("   allowed\n" if answer["allowed"] else f"   DENIED  {answer['status']['message']}\n")


def review_by(client: Client, path: str, item: Object) -> Object:
    """Have the webhook review the creation of an object at one path, such as `/mutate`."""
    return client.post(path, admission.wrap(item))


def _diff(before: Object, after: Object) -> Iterator[str]:
    lines = difflib.unified_diff(write(before).splitlines(), write(after).splitlines(), lineterm="", n=1)
    return (line for line in lines if not line.startswith(("---", "+++", "@@")))
