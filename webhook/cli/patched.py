"""Writes the manifests of a run as `/mutate` would change them."""

import glob
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from webhook.api import jsonpatch
from webhook.api.fields import group_kind
from webhook.api.jsonpatch import Operation
from webhook.cli import outputs
from webhook.documents import files
from webhook.documents.documents import stream
from webhook.documents.files import Item
from webhook.documents.rewrite import rewrite
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Problem, Unusable
from webhook.scan import judge
from webhook.scan.batches import ReadRun
from webhook.scan.results import REVIEW, Judged

STANDARD = "-"


def hold_standard_input() -> None:
    """Keep the contents of standard input, so that it can be read a second time."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()))


def targets(paths: Sequence[str], out: str) -> dict[str, Path | None]:
    """Return the output file for each file of a run; None is standard output. Raises Unusable if two would coincide.

    `out` is a folder if it exists as one, if it ends with `/`, or if the run may have several files. Each file keeps
    its path below the folder that the command line names.
    """
    named = [(name, path) for path in paths for name in files.find([path]) if isinstance(name, str)]
    if out == STANDARD:
        return dict.fromkeys((name for name, _ in named), None)
    if not (out.endswith("/") or Path(out).is_dir() or len(named) > 1 or any(Path(path).is_dir() for path in paths)):
        return {name: Path(out) for name, _ in named}
    made: dict[str, Path | None] = {}
    for name, path in named:
        made.setdefault(name, Path(out, _below(name, path)))
    taken: dict[Path | None, str] = {}
    for name, target in made.items():
        if taken.setdefault(target, name) != name:
            raise Unusable((Problem("--patched", 0, f"{taken[target]} and {name} would both be written to {target}"),))
    return made


def _below(name: str, path: str) -> str:
    """Return the name of a file below the folder that a path names."""
    if name == STANDARD:
        return "standard-input.yaml"
    while glob.has_magic(path) and not os.path.lexists(path):
        path = str(Path(path).parent)
    return os.path.relpath(name, path) if Path(path).is_dir() else Path(name).name


class _Patch(NamedTuple):
    """The operations for an object, by their paths in a document of a file."""

    file: str
    document: int
    operations: tuple[Operation, ...]


def write(run: ReadRun, engine: Engine, facts: Facts, goals: Mapping[str, Path | None], *, system: bool) -> None:
    """Write every file of the run with an object in it, with the patches of its objects. Raises Unusable.

    Objects of a live cluster and saved AdmissionReviews are left as they are. Nothing is written before everything has
    been read.
    """
    patches: dict[str, dict[int, list[Operation]]] = {}
    for patch in run.each(partial(_patch, engine=engine, facts=facts, system=system)):
        patches.setdefault(patch.file, {}).setdefault(patch.document, []).extend(patch.operations)
    if patches:
        outputs.say(["note: comments within patched documents are not kept"])
    texts = [(goal, text) for name, goal in goals.items() if (text := _text(name, patches.get(name, {})))]
    streams = [text for goal, text in texts if goal is None]
    outputs.show("".join(_separated(streams)), commands=True)
    for goal, text in texts:
        if goal is not None:
            outputs.folder(str(goal.parent))
            outputs.save(str(goal), text)


def _patch(item: Item, engine: Engine, facts: Facts, *, system: bool) -> _Patch | None:
    if group_kind(item.value) == REVIEW:
        return None
    result = judge.judge(item, engine, facts, system=system)
    if not isinstance(result, Judged) or result.live or not result.verdict.patch:
        return None
    base = "".join(f"/{key}" for key in item.base)
    operations = tuple({**each, "path": f"{base}{each['path']}"} for each in result.verdict.patch)
    return _Patch(item.document.file, item.document.index, operations)


def _text(name: str, patches: Mapping[int, Iterable[Operation]]) -> str:
    """Return a file with patches; nothing for a file without an object, or one that cannot be read."""
    try:
        text = _bytes(name).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # a problem of the run, which is reported
        return ""
    if not all(word in text for word in ("apiVersion", "kind")):
        return ""
    if not patches:
        return text
    documents = [document for document in stream(text, name) if not isinstance(document, Problem)]
    values = {
        each.index: jsonpatch.apply(each.value, patches[each.index]) for each in documents if each.index in patches
    }
    return rewrite(text, name, values)


def _bytes(name: str) -> bytes:
    if name != STANDARD:
        return Path(name).read_bytes()
    sys.stdin.buffer.seek(0)
    return sys.stdin.buffer.read()


def _separated(texts: Sequence[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number and not text.startswith("---"):
            yield "---\n"
        yield text if text.endswith("\n") else f"{text}\n"
