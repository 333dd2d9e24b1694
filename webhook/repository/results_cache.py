"""Caches the output of programs by a hash of their input, so that an unchanged root is not rendered again."""

import hashlib
import os
import stat
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from webhook.documents.files import MAX_FILE

LARGEST = 256 * 2**20
"""Maximum bytes of the cache. The least recently used entries are removed first."""


def folder() -> Path:
    """Return the folder of the cache: `slicewarden/render` below $XDG_CACHE_HOME, or below ~/.cache."""
    above = os.environ.get("XDG_CACHE_HOME", "")
    return Path(above if Path(above).is_absolute() else Path.home() / ".cache") / "slicewarden" / "render"


def key(*groups: Sequence[bytes]) -> str:
    """Return the name of a cache entry: a hash of its groups of parts. Other groups, or other parts, have another name.

    The number of a group's parts and the length of each part are hashed too, so that no part can stand for a boundary.
    """
    hashed = hashlib.sha256()
    for group in groups:
        hashed.update(len(group).to_bytes(8, "big"))
        for part in group:
            hashed.update(len(part).to_bytes(8, "big"))
            hashed.update(part)
    return hashed.hexdigest()


def pairs(contents: Mapping[str, bytes]) -> list[bytes]:
    """Return files as a group of a key: their paths, in order, each with the contents."""
    return [part for path, data in sorted(contents.items()) for part in (os.fsencode(path), data)]


def get(name: str) -> bytes | None:
    """Return a cache entry; None if there is no readable one."""
    path = folder() / name
    try:
        if not _is_ours(path.parent):
            return None
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(path.read_bytes(), MAX_FILE + 1)
        if len(data) > MAX_FILE or not unpacker.eof:
            return None
        os.utime(path)
    except (OSError, zlib.error, RuntimeError):
        return None
    return data


def _is_ours(path: Path) -> bool:
    """Whether only this user can write to the cache's folder. Other users could add false entries."""
    found = path.stat(follow_symlinks=False)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def put(name: str, data: bytes) -> None:
    """Write a cache entry, if the folder can be written to. No reader ever sees a half-written one."""
    try:
        at = folder()
        at.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(at):
            return
        with tempfile.NamedTemporaryFile(dir=at, prefix=".", delete=False) as file:
            file.write(zlib.compress(data, 1))
        Path(file.name).replace(at / name)
    except (OSError, RuntimeError):
        return


def trim() -> None:
    """Remove the entries that were used longest ago, until the rest is within the size limit."""
    try:
        found = [(entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in os.scandir(folder())]
    except (OSError, RuntimeError):
        return
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= LARGEST:
            return
        try:
            Path(path).unlink()
        except OSError:
            continue
        left -= size
