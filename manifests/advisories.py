"""Compares the packages of an SBOM with known advisories: `make advisories`, or `python -m manifests.advisories SET`.

SET is a folder or a ZIP file of advisories in the format of OSV (ossf.github.io/osv-schema), such as a clone of PyPA's
advisory database, or the export for PyPI of osv.dev. No server is asked. docs/releases.md says where to get a set.
"""

import argparse
import json
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

Record = Mapping[str, Any]
SUFFIXES = (".json", ".yaml", ".yml")

MOST_BYTES = 2**26
"""Maximum length of one advisory. The longest ones list every version of a package, in less than 1 MiB."""


class Unusable(Exception):
    """The SBOM or the set of advisories cannot be used; the message is the reason."""


class Match(NamedTuple):
    """An advisory that affects a package: its ids, that of the set first, and the versions that have the fix."""

    package: str
    version: str
    ids: tuple[str, ...]
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        """Name the package, the advisory, and the way out."""
        fix = f"fixed in {', '.join(self.fixed)}" if self.fixed else "no release has a fix"
        return f"{self.package} {self.version}: {', '.join(self.ids)}: {fix}"


def packages(sbom: str) -> dict[str, str]:
    """Return the version of each package of PyPI in a CycloneDX document, by its normalized name. Raises Unusable."""
    try:
        named = [str(each["purl"]) for each in json.loads(sbom)["components"] if "purl" in each]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise Unusable(f"the SBOM is no CycloneDX document with components: {error!r}") from error
    found = {}
    for purl in named:
        kind, _, rest = purl.partition("#")[0].partition("?")[0].partition("/")
        name, _, version = rest.rpartition("@")
        if kind != "pkg:pypi":
            continue
        if not (name and version):
            raise Unusable(f"the SBOM does not say which version {purl} is")
        found[str(canonicalize_name(unquote(name)))] = unquote(version)
    if not found:
        raise Unusable("the SBOM names no package of PyPI")
    return found


def records(place: Path) -> Iterator[Record]:
    """Yield each advisory in a folder or a ZIP file. Files without the keys of an advisory are passed over.

    Raises Unusable if a file cannot be read: an advisory may be in it.
    """
    for name, content in _files(place):
        try:
            read = json.loads(content) if name.endswith(".json") else yaml.load(content, yaml.CSafeLoader)
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            raise Unusable(f"{place}: {name} cannot be read: {error}") from error
        if isinstance(read, dict) and "id" in read and "affected" in read:
            yield read


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    if place.is_dir():
        for file in sorted(place.rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                yield str(file.relative_to(place)), file.read_bytes()
        return
    try:
        with zipfile.ZipFile(place) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(SUFFIXES):
                    if archive.getinfo(name).file_size > MOST_BYTES:
                        raise Unusable(f"{place}: {name} has more than {MOST_BYTES // 2**20} MiB")
                    yield name, archive.read(name)
    except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:  # the last one: a password is needed
        raise Unusable(f"{place} is no folder and no ZIP file of advisories: {error}") from error


def matches(found: Mapping[str, str], known: Iterable[Record]) -> Iterator[Match]:
    """Yield each advisory that affects one of some packages, whose versions are given by their names.

    Raises Unusable for an advisory that is not in the format of OSV.
    """
    for record in known:
        try:
            yield from _matches(found, record)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise Unusable(f"the advisory {record['id']} is not in the format of OSV: {error!r}") from error


def _matches(found: Mapping[str, str], record: Record) -> Iterator[Match]:
    if record.get("withdrawn"):
        return
    for affected in record["affected"]:
        package = affected.get("package", {})
        name = str(canonicalize_name(package.get("name", "")))
        if package.get("ecosystem") == "PyPI" and name in found and affects(affected, found[name]):
            ids = (str(record["id"]), *sorted(record.get("aliases") or ()))
            fixed = (event["fixed"] for events in _events(affected) for event in events if "fixed" in event)
            yield Match(name, found[name], ids, tuple(map(str, fixed)))


def affects(affected: Mapping[str, Any], version: str) -> bool:
    """Return whether a version is among those that an advisory affects, as the OSV format evaluates it.

    A version that cannot be compared with those of the advisory counts as affected. So does each version if the
    advisory names none. A local version, such as 2.0+cpu, is also affected if the advisory lists its public one.
    """
    listed, ranges = affected.get("versions") or (), _events(affected)
    if not listed and not ranges:
        return True
    try:
        asked = Version(version)
        public = Version(asked.public)
        versions = {_version(each) for each in listed if not isinstance(each, str) or _is_version(each)}
        return not versions.isdisjoint((asked, public)) or any(_within(events, asked) for events in ranges)
    except InvalidVersion:
        return True


def _version(value: Any) -> Version:
    """Return a version of an advisory. Raises InvalidVersion, also for a number: YAML reads 1.10 as 1.1."""
    if isinstance(value, float):
        raise InvalidVersion(f"{value} is a number")
    return Version(str(value))


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _events(affected: Mapping[str, Any]) -> list[list[Mapping[str, Any]]]:
    """Return the events of each range of versions; those of commits are of no use here."""
    return [each["events"] for each in affected.get("ranges") or () if each["type"] != "GIT"]


def _within(events: Iterable[Mapping[str, Any]], version: Version) -> bool:
    """Play the events up to a version, in the order of theirs. Raises InvalidVersion.

    The version 0 is before all others, also before 0.dev1.
    """
    public, inside = Version(version.public), False
    for at, kind in sorted((_version(at), kind) for event in events for kind, at in event.items()):
        if kind == "introduced" and (version >= at or at == _FIRST):
            inside = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and public > at):
            inside = False
    return inside


_FIRST = Version("0")


def main(arguments: list[str] | None = None) -> int:
    """Compare the SBOM of standard input. Returns 1 if an advisory affects a package, 2 if it cannot be compared."""
    parser = argparse.ArgumentParser(prog="python -m manifests.advisories", description=__doc__)
    parser.add_argument("set", help="a folder or a ZIP file of advisories")
    place = parser.parse_args(arguments).set
    try:
        if not place:
            raise Unusable("no set of advisories is named; docs/releases.md says where to get one")
        found = packages(sys.stdin.read())
        known = list(records(Path(place)))
        if not known:
            raise Unusable(f"{place} has no advisory")
        affected = sorted(set(matches(found, known)))
    except Unusable as unusable:
        print(unusable, file=sys.stderr)
        return 2
    for match in affected:
        print(match)
    newest = max(str(record.get("modified", ""))[:10] for record in known)
    print(f"{len(found)} packages, {len(known)} advisories, the newest of {newest}: {len(affected)} affect a package")
    return int(bool(affected))


if __name__ == "__main__":
    sys.exit(main())
