"""Reads defaults for `--policy` and `--facts` from a settings file in the working directory or a folder above it.

`slicewarden.toml` has the keys at its top level, `pyproject.toml` under `[tool.slicewarden]`. Paths in the file are
relative to its folder. The search ends at the root of a Git repository. `serve` never reads such a file: a server's
policy must not depend on the folder that it was started in.
"""

from collections.abc import Mapping
from os.path import relpath
from pathlib import Path
from typing import Any

from webhook.model import Problem, Unusable
from webhook.text.spelling import hint

FILES = ("slicewarden.toml", "pyproject.toml")
"""The file names that are searched for, in order of precedence within a folder."""

TABLE = b"[tool.slicewarden]"
KEYS = ("policy", "facts")


def policy() -> str | None:
    """Return the policy that the settings file names; None if there is no file, or no policy in it. Raises Unusable."""
    file, value = _read()
    given = value.get("policy")
    if given is None:
        return None
    if not isinstance(given, str) or not given:
        raise _wrong(file, "policy must be the name of a file or folder")
    return _beside(file, "policy", given)


def facts() -> tuple[str, ...]:
    """Return the paths of facts that the settings file names. Raises Unusable."""
    file, value = _read()
    given = value.get("facts", [])
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, list) or not all(isinstance(path, str) and path for path in given):
        raise _wrong(file, "facts must be the name of a file, or a list of names")
    return tuple(_beside(file, "facts", path) for path in given)


def _read() -> tuple[Path, Mapping[str, Any]]:
    file = _found()
    if file is None:
        return Path(), {}
    import tomllib  # 4 ms, which only a run with such a file needs

    try:
        value: Any = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise _wrong(file, error.strerror or str(error)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _wrong(file, f"not TOML: {error}") from error
    if file.name == "pyproject.toml":
        value = value.get("tool", {}).get("slicewarden", {})
    for key in value:
        if key not in KEYS:
            raise _wrong(file, f"unknown key {key!r}{hint(key, KEYS)}")
    return file, value


def _found() -> Path | None:
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in FILES:
            file = folder / name
            if file.is_file() and (name != "pyproject.toml" or TABLE in _bytes(file)):
                return file
        if (folder / ".git").exists():
            return None
    return None


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # another program's file
        return b""


def _beside(file: Path, key: str, path: str) -> str:
    """Return a path of the file relative to the working directory.

    A policy may be REV:PATH in Git, which is left as it is.
    """
    whole = file.parent / path
    if whole.exists():
        return relpath(whole)
    if key == "policy" and ":" in path:
        return path
    raise _wrong(file, f"{key}: no such file or folder: {path}")


def _wrong(file: Path, text: str) -> Unusable:
    return Unusable((Problem(relpath(file), 0, text),))
