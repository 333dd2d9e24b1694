"""Renders a chart by the program `helm`, without a cluster, a network or plugins."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path as FilePath
from threading import Event, Timer

from webhook.documents.files import MAX_FILE
from webhook.model import Problem
from webhook.text.words import shown

SECONDS = 60
"""The longest time that one chart may take."""

MAX_REASON = 400
"""The most characters of helm's error that are shown; it can have many lines."""

RELEASE = "release-name"
"""The name that `helm template` gives to a release without one."""


def template(chart: str, namespace: str | None = None, *, seconds: float = SECONDS) -> str | Problem:
    """Return the manifests of a chart's folder with its own values, or the problem with it.

    The helm that runs finds no kubeconfig, no plugins and no settings of its user. A local chart needs no network.
    """
    helm = shutil.which("helm")
    if helm is None:
        return Problem(chart, 0, "the chart is not rendered: there is no helm on PATH")
    if astray := _astray(chart):
        where = "out of the working directory, or into a hidden folder, and helm reads what is there"
        return Problem(chart, 0, f"the chart is not rendered: its link {shown(astray)} leads {where}; remove it")
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as errors:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "KUBE"))}
        places = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_PLUGINS"), home)
        try:
            process = subprocess.Popen(  # noqa: S603 - a list, and nothing in it can become an option
                [helm, "template", "--namespace", namespace or "default", "--", RELEASE, os.path.abspath(chart)],  # noqa: PTH100
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**inherited, **places, "KUBECONFIG": os.devnull},
                start_new_session=True,
            )
        except OSError as error:
            return Problem(chart, 0, f"the chart is not rendered: helm does not start: {error.strerror or error}")
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        late = Event()
        timer = Timer(seconds, _expire, (process, late))
        timer.start()
        try:
            with process.stdout as output:
                data = output.read(MAX_FILE + 1)
            if len(data) <= MAX_FILE:
                process.wait()
        finally:
            timer.cancel()
            _end(process)
            process.wait()
        errors.seek(0)
        lines = errors.read(MAX_FILE).decode("utf-8", "replace").splitlines()
    if late.is_set():
        return Problem(chart, 0, f"the chart is not rendered: helm took more than {seconds:g} seconds")
    if len(data) > MAX_FILE:
        return Problem(chart, 0, f"the chart is not rendered: it makes more than {MAX_FILE // 2**20} MiB")
    if process.returncode:
        start = next((index for index, line in enumerate(lines) if line.startswith("Error: ")), len(lines))
        reason = " ".join(" ".join(lines[start:]).split())[7 : 7 + MAX_REASON] or "helm failed"
        return Problem(chart, 0, f"the chart is not rendered: {reason}")
    return data.decode("utf-8", "replace")


def _astray(chart: str) -> str:
    """Return a link in a chart's folder that leads to files which the chart must not show; empty if there is none.

    Helm follows links (internal/sympath/walk.go), and a template may write any file of its chart into an object
    (`.Files.Get`). So no link may lead to secrets of the user who runs this, or to credentials of a checkout.
    """
    roots, seen, left = (os.path.realpath("."), os.path.realpath(chart)), set[str](), [os.path.realpath(chart)]
    while left:
        folder = left.pop()
        if folder in seen:
            continue
        seen.add(folder)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:  # helm says what is wrong with it
            continue
        for entry in entries:
            target = os.path.realpath(entry.path)
            if entry.is_symlink() and not any(_is_open(target, root) for root in roots):
                return os.path.relpath(entry.path, roots[1])
            if os.path.isdir(target):  # noqa: PTH112
                left.append(target)
    return ""


def _is_open(path: str, root: str) -> bool:
    """Return whether a path is inside a folder, but not in a hidden folder there."""
    below = os.path.relpath(path, root)
    return not any(part.startswith(".") for part in FilePath(below).parts)


def _expire(process: subprocess.Popen[bytes], late: Event) -> None:
    late.set()
    _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End helm and all that it started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
