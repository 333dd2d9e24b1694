"""Packs charts as Helm does, and reads packed ones."""

import gzip
import io
import json
import posixpath
import re
import tarfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from webhook.api.lenient import mapping, mappings, string
from webhook.documents import files
from webhook.documents.documents import Document
from webhook.documents.goyaml_writer import as_json
from webhook.repository.tree import Unseen
from webhook.text.words import shown

Files = Mapping[str, bytes]
"""The files of a chart by their paths in it."""

REQUIREMENTS = "requirements.yaml"

MOST_UNPACKED, DEEPEST = 100 * 2**20, 5
"""Maximum bytes of an archive that Helm unpacks (helm pkg/chart/loader/archive), and of archives within each other."""


def merged(own: Mapping[str, Any], over: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a chart says of itself, by the first documents of its file and of its requirements.

    Helm and Flux read both into the same fields, in charts of any version, and a dependency of the second into the one
    at the same place (helm pkg/chart/v2/loader/load.go, LoadFiles; encoding/json, Unmarshal).
    """
    if not over.get("dependencies"):
        return {**own, **over}
    before = [*mappings(own.get("dependencies")), *({} for _ in mappings(over["dependencies"]))]
    both = ({**one, **other} for one, other in zip(before, mappings(over["dependencies"]), strict=False))
    return {**own, **over, "dependencies": [*both]}


def said(chart: Files) -> Mapping[str, Any]:
    """Return what a chart says of itself, by its files."""
    return merged(*(_first(chart.get(name, b""), name) for name in (files.CHART, REQUIREMENTS)))


def _first(data: bytes, name: str) -> Mapping[str, Any]:
    one = next(files.parsed(data, name), None)
    return mapping(one.value) if isinstance(one, Document) else {}


def without(chart: Files, names: Collection[str]) -> dict[str, bytes]:
    """Return the files of a chart that say what it depends on, without the dependencies of some names."""
    result = dict[str, bytes]()
    for name in (files.CHART, REQUIREMENTS):
        value = _first(chart.get(name, b""), name)
        if listed := mappings(value.get("dependencies")):
            kept = [each for each in listed if each.get("name") not in names]
            result[name] = as_json({**value, "dependencies": kept})
    return result


def odd_key(chart: Files, depth: int = 0) -> str:
    """Return a key of a chart, or of one in it, that Go reads as another one; empty if there is none. Raises Unseen.

    Go ignores the case of keys, also of some letters that are not ASCII (encoding/json, foldName).
    """
    for value in (_first(chart.get(name, b""), name) for name in (files.CHART, REQUIREMENTS, *LOCKS)):
        for known, one in ((_SAID, value), *((_ASKED, each) for each in mappings(value.get("dependencies")))):
            if key := next((key for key in one if key not in known and key.casefold() in known.values()), ""):
                return key
    inner = subcharts(chart) if depth < DEEPEST else ()
    return next(filter(None, (odd_key(below, depth + 1) for _, below in inner)), "")


_SAID = {key: key.casefold() for key in ("apiVersion", "name", "version", "type", "dependencies")}

_ASKED = {key: key.casefold() for key in ("name", "version", "repository", "alias")}
"""Keys of a dependency that decide what is added."""

LOCKS = ("Chart.lock", "requirements.lock")
"""Files with the dependencies that were added last, from which they are added once more."""


def name_of(metadata: Mapping[str, Any]) -> str:
    """Return the name of a chart, by which Helm packs it. Raises Unseen if Helm refuses the name."""
    name = string(metadata.get("name"))
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise Unseen(f"a chart has the name {shown(name)}")
    return name


_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]+")


def _places(chart: Files) -> Iterator[tuple[str, Files]]:
    """Yield the names below the folder `charts` of a chart, with the files there; an archive is one without a path.

    Helm passes over names that begin with `_` or a dot.
    """
    found = defaultdict[str, dict[str, bytes]](dict)
    for path, data in chart.items():
        if path.startswith("charts/") and not path.endswith(".prov"):
            place, _, below = path.removeprefix("charts/").partition("/")
            if place[:1] not in ("_", "."):
                found[place][below] = data
    yield from found.items()


def _opened(place: str, below: Files) -> Files:
    return unpacked(below[""]) if _is_packed(place, below) else below


def _is_packed(place: str, below: Files) -> bool:
    return place.endswith(".tgz") and "" in below


def saved(chart: Files, depth: int = 0) -> dict[str, bytes]:
    """Return the files of a chart as Helm packs them: its subcharts are in folders of their own names.

    A chart of the first version loses the dependencies in its Chart.yaml (helm pkg/chart/v2/util/save.go). Raises
    Unseen.
    """
    if depth > DEEPEST:
        raise Unseen(f"a chart has more than {DEEPEST} charts within each other")
    refuse_backslashes(chart)
    result = {path: data for path, data in chart.items() if not path.startswith("charts/") or path.endswith(".prov")}
    metadata = _folded(said(chart))
    if metadata.get("dependencies") and string(metadata.get("apiversion")) in ("", "v1"):
        own = _first(chart.get(files.CHART, b""), files.CHART).items()
        result[files.CHART] = as_json({key: value for key, value in own if key.casefold() != "dependencies"})
    for below in (_opened(*each) for each in _places(chart)):
        name = name_of(said(below))
        result |= {f"charts/{name}/{path}": data for path, data in saved(below, depth + 1).items()}
    return result


def refuse_backslashes(chart: Files) -> None:
    """Raise Unseen if a file of a chart has a backslash in its name, which Helm reads as a slash in an archive."""
    if odd := next((path for path in chart if "\\" in path), ""):
        raise Unseen(f"it is packed, and Helm reads {shown(odd)} in an archive as a file in a folder")


def version(chart: Files, added: str) -> str:
    """Return the version of a chart with other metadata, as Flux writes it. Raises Unseen.

    Go's library adds the numbers that are missing (github.com/Masterminds/semver, version.go).
    """
    own = string(_folded(said(chart)).get("version"))
    if not (found := _VERSION.fullmatch(own)):
        raise Unseen(f"Flux adds to its version, and {shown(own)} is none")
    return f"{'.'.join(str(int(each or 0)) for each in found.group(1, 2, 3))}{found[4] or ''}+{added}"


_VERSION = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)


def _folded(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a chart says of itself, by keys as Go compares them."""
    return {key.casefold(): value for key, value in metadata.items()}


def archive(name: str, chart: Files) -> bytes:
    """Return the archive of a chart with some files, the same ones each time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as made:
        for path, data in sorted(chart.items()):
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return gzip.compress(packed.getvalue(), 1, mtime=0)


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the files in the archive of a chart, as Helm reads it. Raises Unseen."""
    found, size = dict[str, bytes](), 0
    try:
        with gzip.open(io.BytesIO(data)) as raw, tarfile.open(fileobj=raw, mode="r|") as packed:
            for member in packed:
                size += member.size
                if size > MOST_UNPACKED:
                    raise Unseen(f"an archive of a chart has more than {MOST_UNPACKED // 2**20} MiB")
                slash = "\\" if "\\" in member.name else "/"  # helm pkg/chart/loader/archive
                path = posixpath.normpath(member.name.partition(slash)[2].replace(slash, "/"))
                if member.isfile() and (file := packed.extractfile(member)) is not None:
                    found[path] = file.read()
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise Unseen(f"an archive of a chart cannot be read: {error}") from error
    return found


def subcharts(chart: Files) -> Iterator[tuple[str, Files]]:
    """Yield the names below the folder `charts` of a chart, with the files of each chart there. Raises Unseen.

    What is no archive, though its name says so, is left out: Helm refuses the chart.
    """
    for place, below in _places(chart):
        if not _is_packed(place, below) or below[""].startswith(_GZIP):
            yield place, _opened(place, below)


def names(chart: Files) -> list[str]:
    """Return the names of the charts below the folder `charts` of a chart. Raises Unseen."""
    return [name for _, below in subcharts(chart) if (name := string(said(below).get("name")))]


def is_unlike(chart: Files, name: str, built: Files | None) -> bool:
    """Whether a chart may have another dependency of a name than `helm dependency build` makes of some files.

    Helm replaces archives. It leaves unpacked charts, and takes any of the two. If it downloads the dependency, no
    files are known, and archives count as the same.
    """
    if built is None:
        return name in (said(below).get("name") for place, below in _places(chart) if not _is_packed(place, below))
    return bool(twins({**chart, "charts/\0.tgz": archive(name, built)}))


def has_version(metadata: Mapping[str, Any], wanted: str) -> bool:
    """Whether a chart may have the version that is wanted: an exact one, or any of one major version.

    Other ranges are not compared.
    """
    if not (found := _WANTED.fullmatch(wanted.strip())):
        return True
    own = string(metadata.get("version")).removeprefix("v").partition("+")[0]
    return own == found[1] if found[1] else own.partition(".")[0] == found[2]


_WANTED = re.compile(
    r"=?\s*v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)(?:[+_]\S*)?"
    r"|(?:=|\^|~>?)?\s*v?(\d+)(?:\.[\dxX*]+){0,2}(?:[-+]\S*)?",
)
"""An exact version, or a range within a major version (github.com/Masterminds/semver, constraints.go)."""


def twins(chart: Files, depth: int = 0, *, packed: bool = False) -> str:
    """Return the name of several charts next to each other of which Helm takes any; empty if there are none.

    Helm reads them in no order (helm pkg/chart/v2/loader/load.go, LoadFiles). Charts of one name are no twins if they
    have the same files, or if each dependency names the version of one of them. If the chart is `packed`, the second
    is not enough, since they get one folder. Raises Unseen.
    """
    if depth > DEEPEST:
        raise Unseen(f"a chart has more than {DEEPEST} charts within each other")
    groups, names = defaultdict[str, list[_Named]](list), list[str]()
    for place, below in _places(chart):
        if _is_packed(place, below):
            metadata, found = _summary(below[""], depth + 1, packed=packed)
        else:
            metadata, found = said(below), twins(below, depth + 1, packed=packed)
        if found:
            return found
        groups[string(metadata.get("name"))].append(_Named(metadata, place, below))
    needs = mappings(said(chart).get("dependencies"))
    for name, group in groups.items():
        wanted = [each for each in needs if each.get("name") == name]
        if name and len(group) > 1 and not _are_same(group):
            versions = [string(each.metadata.get("version")) for each in group]
            asked = {string(each.get("version")) for each in wanted}
            if packed or len({*versions}) < len(versions) or asked != {*versions}:
                return name
        names += [string(each.get("alias")) or name for each in wanted] or [name]
    return next((name for name, count in Counter(filter(None, names)).items() if count > 1), "")


class _Named(NamedTuple):
    metadata: Mapping[str, Any]
    place: str
    files: Files


@lru_cache(256)
def _summary(data: bytes, depth: int, *, packed: bool) -> tuple[Mapping[str, Any], str]:
    """Return what a packed chart says of itself, and the name of twins in it; nothing if Helm refuses the archive."""
    if not data.startswith(_GZIP):
        return {}, ""
    chart = unpacked(data)
    return said(chart), twins(chart, depth, packed=packed)


_GZIP = b"\x1f\x8b\x08"


def _are_same(group: list[_Named]) -> bool:
    """Whether charts have the same files, but for how Helm writes those about them."""
    texts = list[dict[str, bytes]]()
    for each in group:
        made = saved(_opened(each.place, each.files))
        about = {key: value for key, value in each.metadata.items() if value}
        kept = {path: data for path, data in made.items() if path not in _REWRITTEN}
        texts.append({**kept, files.CHART: json.dumps(about, sort_keys=True).encode()})
    return all(each == texts[0] for each in texts)


_REWRITTEN = (*LOCKS, ".helmignore")
