"""Builds the programs that tests need, once, from the pins in a folder's go.mod."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class Missing(Exception):
    """A tool is not installed. The message names it, in one line."""


class Unbuilt(Missing):
    """A program could not be built, although no needed tool was missing."""


def cache() -> Path:
    """Return the folder for programs that are built once for all trees."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slicewarden"


def lacking(folder: Path, names: Collection[str]) -> list[str]:
    """Return the names of the programs that a folder does not have."""
    return [name for name in names if not os.access(folder / name, os.X_OK)]


def built(
    pins: Path,
    packages: Mapping[str, str],
    *,
    without_go: str,
    patience: str = "",
    ldflags: str = "",
    tags: str = "",
    cgo: bool = False,
    module: Callable[[], Path] | None = None,
) -> Path:
    """Return the folder of some programs, and build those that are missing. The programs are Go packages by name.

    `module` returns the folder with the packages, whose `go.mod` is replaced by ours. The folder is in the cache, under
    a hash of `go.mod`, `go.sum` and the Go code next to and below them. Raises Missing, with the line `without_go` if
    Go is not installed.
    """
    sources = [pins / "go.mod", pins / "go.sum", *sorted(pins.rglob("*.go"))]
    hashed = hashlib.sha256(b"".join(source.read_bytes() for source in sources))
    folder = cache() / hashed.hexdigest()[:16]
    if not lacking(folder, packages):
        return folder
    if shutil.which("go") is None:
        raise Missing(without_go)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        for cut_off in folder.glob(".build-*"):
            shutil.rmtree(cut_off)
        names = lacking(folder, packages)  # another run may have built them meanwhile
        for number, name in enumerate(names, start=1):
            say(f"building {name} ({number} of {len(names)}{patience})")
            start = time.monotonic()
            _build(name, packages[name], pins, folder, ldflags, tags, cgo=cgo, module=module)
            say(f"built {name} in {time.monotonic() - start:.0f} s")
    return folder


def _build(
    name: str,
    package: str,
    pins: Path,
    folder: Path,
    ldflags: str,
    tags: str,
    *,
    cgo: bool,
    module: Callable[[], Path] | None,
) -> None:
    flags = f"-mod=readonly -modfile={pins / 'go.mod'}" if module else "-mod=readonly"
    environment = {**os.environ, "CGO_ENABLED": str(int(cgo)), "GOWORK": "off", "GOFLAGS": flags}
    environment["GOTOOLCHAIN"] = "auto"  # a go.mod may need a newer Go, which Go fetches
    # Built beside its place and then moved: a build that is cut off leaves nothing that looks whole.
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        output = Path(scratch) / name
        # cgo compiles in a folder of $TMPDIR, and takes a header of that name beside it for the package's own.
        environment["TMPDIR"] = scratch
        command = [
            "go",
            "build",
            "-trimpath",
            "-ldflags",
            f"-s -w {ldflags}",
            "-tags",
            tags,
            "-o",
            str(output),
            package,
        ]
        if subprocess.run(
            command, cwd=module() if module else pins, env=environment, stdout=sys.stderr, check=False
        ).returncode:
            raise Unbuilt(f"{name} could not be built")
        output.replace(folder / name)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let only one process build at a time; the lock ends with the process."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(message: str) -> None:
    """Print a line about the progress."""
    print(message, file=sys.stderr, flush=True)
