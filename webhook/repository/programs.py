"""Runs kustomize, kubectl and helm within limits, without plugins, settings or a network."""

import os
import resource
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from threading import Event, Timer

from webhook.documents.files import MAX_FILE

SECONDS = 60
"""Maximum seconds of one rendering."""

MEMORY = 2 * 2**30
"""Bytes of data that a program may have (setrlimit(2), RLIMIT_DATA)."""

MAX_REASON = 400
"""Maximum characters of a program's error that are shown; it can have many lines."""


class Failed(Exception):
    """A program failed. The message is the reason, in one line."""


def kustomize() -> tuple[str, ...]:
    """Return the command that builds a kustomization, without the folder; empty if there is no program for it."""
    if program := found("kustomize"):
        return (program, "build")
    program = found("kubectl")
    return (program, "kustomize") if program else ()


def helm() -> str:
    """Return the path of helm; empty if it is not installed."""
    return found("helm")


def found(name: str) -> str:
    """Return the path of a program. Relative folders of PATH are skipped, because a repository could provide them."""
    folders = (each for each in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(each))
    return shutil.which(name, path=os.pathsep.join(folders)) or ""


def identity(program: str) -> str:
    """Return a text that changes when a program is replaced: its real path, its size and its modification time."""
    try:
        found = os.stat(program)
    except OSError:
        return program
    return f"{os.path.realpath(program)}:{found.st_size}:{found.st_mtime_ns}"


def output(command: Sequence[str], folder: str, *, network: bool = False, seconds: float | None = None) -> bytes:
    """Run a command in a folder and return its output. Raises Failed.

    The program sees no kubeconfig, no plugins and no settings of its user. Without `network` it sees no other program
    either, and it runs in an empty network namespace if the kernel allows that.
    """
    name, longest = os.path.basename(command[0]), SECONDS if seconds is None else seconds
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as errors:
        if any("\0" in word for word in command):
            raise Failed(f"{name} takes no text with a null character")
        try:
            process = subprocess.Popen(  # noqa: S603 - a list, and nothing in it can become an option
                [*(() if network else _apart()), *command],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(home, network=network),
                start_new_session=True,
            )
        except (OSError, UnicodeError) as error:
            raise Failed(f"{name} does not start: {getattr(error, 'strerror', '') or error}") from error
        with suppress(AttributeError, OSError, ValueError):  # it has ended, or the kernel has no such limit
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (MAX_FILE, MAX_FILE))
        late = Event()
        timer = Timer(longest, _expire, (process, late))
        timer.start()
        try:
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            with process.stdout as stream:
                data = stream.read(MAX_FILE + 1)
            if len(data) <= MAX_FILE:
                process.wait()
        finally:
            timer.cancel()
            _end(process)
            process.wait()
        errors.seek(0)
        lines = errors.read(MAX_FILE).decode("utf-8", "replace").splitlines()
    if late.is_set():
        raise Failed(f"{name} took more than {longest:g} seconds")
    if len(data) > MAX_FILE:
        raise Failed(f"it makes more than {MAX_FILE // 2**20} MiB")
    if process.returncode:
        raise Failed(_reason([line.replace(f"{folder}/", "") for line in lines]) or f"{name} failed")
    return data


def _environment(home: str, *, network: bool) -> Mapping[str, str]:
    """Return a program's environment.

    It is small, because kustomize writes variables that a file names into objects (api/kv).
    """
    names = (*_PASSED, *_OF_NETWORK) if network else _PASSED
    kept = {key: value for key, value in os.environ.items() if key in names}
    places = dict.fromkeys(("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HELM_PLUGINS"), home)
    own = {**kept, **places, **_GO, **_GIT, "HOME": home, "KUBECONFIG": os.devnull}
    return own if network else {**own, "PATH": home}


_GO = {"GOGC": "off", "GOMEMLIMIT": "1GiB"}
"""Go's collector waits for the limit: most renderings end before, in two thirds of the CPU time."""

_GIT = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git", "GIT_CONFIG_NOSYSTEM": "1"}
"""Git prompts for nothing, and reads no local repository that a `file://` address names."""

_PASSED = ("PATH", "LANG", "TMPDIR", "TZ")
"""Variables that programs get."""

_OF_NETWORK = (
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)
"""Variables that programs get if they may download."""


@cache
def _apart() -> tuple[str, ...]:
    """Return the prefix of a command that gives it an empty network; empty if the kernel refuses that."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    words = (unshare, "--user", "--net", "--")
    true = shutil.which("true") or "/bin/true"
    done = subprocess.run(  # noqa: S603 - a list of ours
        [*words, true], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return () if done.returncode else words


def _reason(lines: Sequence[str]) -> str:
    start = next((index for index, line in enumerate(lines) if line.lower().startswith("error: ")), None)
    if start is None:  # kubectl logs it
        told = " ".join(" ".join(line for line in lines if not line.startswith("# Warning")).split())
        return told.partition('"command failed" err=')[2].strip('<> "')[:MAX_REASON]
    told = " ".join(" ".join(lines[start:]).split())[7:]
    return told if len(told) <= MAX_REASON else f"… {told[-MAX_REASON:]}"  # kustomize ends with the cause


def _expire(process: subprocess.Popen[bytes], late: Event) -> None:
    late.set()
    _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
