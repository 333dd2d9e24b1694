"""Drives Chromium without a window through its DevTools protocol over two pipes (chromium --remote-debugging-pipe)."""

import base64
import fcntl
import itertools
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which needs namespaces that a container may not have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)

CONTRAST = """(() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour[3] !== 0) return colour;
    }
  };
  const texts = [...document.querySelectorAll('body *')].filter((element) => !element.closest('svg, script')
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  return texts.map((element) => {
    const pair = [light(numbers(getComputedStyle(element).color)), light(ground(element))].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), element.className || element.tagName];
  }).sort((a, b) => a[0] - b[0])[0];
})()"""
"""The least contrast of a text with its ground in a page, and where it is (WCAG 2.2, 1.4.3)."""


class Tab:
    """A tab of the browser. `events` has its console messages, its errors, and every request of the page."""

    def __init__(self, send: Any, receive: Iterator[dict[str, Any]]) -> None:
        self._send, self._receive = send, receive
        self._ids = itertools.count(1)
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method, and keep the events that come before its answer. Raises RuntimeError."""
        number = next(self._ids)
        session = {"sessionId": self._session} if self._session else {}
        self._send({"id": number, "method": method, "params": parameters, **session})
        for message in self._receive:
            if message.get("id") != number:
                self.events.append(message)
            elif "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            else:
                result: dict[str, Any] = message["result"]
                return result
        raise RuntimeError(f"{method}: the browser has ended")

    def open(self, file: Path) -> None:
        """Open a file, and wait until it is loaded."""
        self.visit(file.as_uri())

    def visit(self, address: str) -> None:
        """Open an address, and wait until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(next(self._receive))

    def evaluate(self, script: str) -> Any:
        """Evaluate an expression in the page, wait for its promise, and return its value."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def look(self, *, dark: bool = False, width: int = 1200, height: int = 900) -> None:
        """Choose the colour scheme for the page, and the size of the window."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self) -> bytes:
        """Return the whole page as a PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def printed(self) -> bytes:
        """Return the page as a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])

    def said(self) -> list[str]:
        """Return what the page wrote to the console, and its errors."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in kinds]

    def requested(self) -> list[str]:
        """The addresses that the page has requested."""
        sent = (event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [each["request"]["url"] for each in sent]


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    """Start a browser with its profile in a folder, and open a tab."""
    ours_in, theirs_out = map(_high, os.pipe())
    theirs_in, ours_out = map(_high, os.pipe())
    command = shlex.join([str(PROGRAM), *FLAGS, f"--user-data-dir={folder}", "about:blank"])
    script = f"exec {command} 3<&{theirs_in} 4>&{theirs_out}"
    process = subprocess.Popen(
        ["bash", "-c", script], pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    with open(ours_out, "wb", buffering=0) as out, open(ours_in, "rb", buffering=0) as into:  # noqa: PTH123 - pipes
        try:
            yield Tab(lambda message: out.write(json.dumps(message).encode() + b"\0"), _messages(into))
        finally:
            process.terminate()
            process.wait(20)


def _high(descriptor: int) -> int:
    """Move a descriptor above 3 and 4, which the browser reads and writes."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(descriptor)


def _messages(stream: Any) -> Iterator[dict[str, Any]]:
    rest = b""
    while chunk := stream.read(1 << 16):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from map(json.loads, whole)
