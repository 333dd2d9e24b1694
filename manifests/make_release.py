"""Builds the files of a release from a commit: `make release`, or `python -m manifests.make_release`.

Only committed files are read. The same commit gives the same bytes, because each time in them is that of the commit.
SHA256SUMS has the checksum of each file, and cosign signs it on request. docs/releases.md says how to verify a release.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SUMS, BUNDLE = "SHA256SUMS", "SHA256SUMS.sigstore.json"
PROVENANCE, SBOM, SPDX = "provenance.intoto.json", "sbom.cdx.json", "sbom.spdx.json"
IMAGE = "slicewarden:{version}"
SHELLS = {"bash": "slicewarden", "zsh": "_slicewarden", "fish": "slicewarden.fish"}
"""The name of the file with the completions of each shell, as the shell looks for it."""
KUSTOMIZE = ("manifests", "policies")
BUILD_TYPE = "https://slicewarden.dev/release/v1"
_BY_DIGEST = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")


class Unmade(Exception):
    """A release cannot be made. The message is the reason, and the way out."""


@dataclass(frozen=True)
class Release:
    """A version and its commit. `time` is that of the commit, in seconds since 1970; `tag` is empty for a rehearsal."""

    version: str
    commit: str
    time: int
    tag: str = ""
    image: str = ""

    @property
    def named(self) -> str:
        """The reference to the image in the manifests."""
        return self.image or IMAGE.format(version=self.version)


def known(root: Path, image: str = "", *, rehearsal: bool = False) -> Release:
    """Return the release that the commit of a checkout makes.

    Raises Unmade if a file was changed and not committed, if the commit has no tag of the version, or if an image is
    named without its digest. A rehearsal needs no tag.
    """
    if image and not _BY_DIGEST.fullmatch(image):
        raise Unmade(f"IMAGE is {image!r}, and others can change it; name it by its digest: NAME@sha256:DIGEST")
    if changed := _git(root, "status", "--porcelain").strip():
        raise Unmade(f"these files differ from the commit; commit them or put them back:\n{changed}")
    version = str(tomllib.loads(_git(root, "show", "HEAD:pyproject.toml"))["project"]["version"])
    tag = f"v{version}"
    tagged = tag in _git(root, "tag", "--points-at", "HEAD").split()
    if not tagged and not rehearsal:
        raise Unmade(f"the commit has no tag {tag}, the version of pyproject.toml; tag it, or add --rehearsal")
    commit, time = _git(root, "show", "--no-patch", "--format=%H %ct", "HEAD").split()
    return Release(version, commit, int(time), tag if tagged else "", image)


def make(root: Path, output: Path, release: Release) -> list[Path]:
    """Write each file of the release into a folder, which must be empty or new, and return them with SHA256SUMS last.

    Raises Unmade.
    """
    if output.exists() and any(output.iterdir()):
        raise Unmade(f"{output} is not empty; a release is made into an empty folder")
    output = output.absolute()  # programs run in other folders
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        unpack(root, release.commit, source)
        _distributions(source, output, release)
        for name, content in _files(source, release):
            (output / name).write_bytes(content)
    made = sorted(output.iterdir())
    (output / PROVENANCE).write_text(_provenance(made, root, release), "utf-8")
    made.append(output / PROVENANCE)
    (output / SUMS).write_text(sums(made), "utf-8")
    return [*made, output / SUMS]


def _files(source: Path, release: Release) -> Iterator[tuple[str, bytes]]:
    version = release.version
    chart = dict(_tree(source / "manifests" / "chart"))
    chart["values.yaml"] = pinned(release)(chart["values.yaml"].decode()).encode()
    yield f"slicewarden-chart-{version}.tgz", packed(chart, "slicewarden", release.time)
    install = (source / "manifests" / "install.yaml").read_text("utf-8")
    yield "install.yaml", pinned(release)(install).encode()
    kept = {name: data for top in KUSTOMIZE for name, data in _tree(source / top, top)}
    yield f"slicewarden-manifests-{version}.tar.gz", packed(kept, f"slicewarden-{version}", release.time)
    yield f"slicewarden-shell-{version}.tar.gz", packed(dict(_shell(source)), f"slicewarden-{version}", release.time)
    yield "images.yaml", yaml.safe_dump({"images": [release.named]}, sort_keys=False).encode()
    sbom = _sbom(source, release)
    yield SBOM, _json(sbom)
    yield SPDX, _json(spdx(sbom, release))
    yield "release-notes.md", notes((source / "CHANGELOG.md").read_text("utf-8"), version).encode()


def notes(changelog: str, version: str) -> str:
    """Return the section about a version from a changelog. Raises Unmade if there is none."""
    parts = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)[1:]
    for head, text in zip(parts[::2], parts[1::2], strict=True):
        if head.partition(",")[0].strip() == version:
            return f"# Slicewarden {version}\n{text}"
    raise Unmade(f"CHANGELOG.md has no heading `## {version}`")


def pinned(release: Release) -> Callable[[str], str]:
    """Return a function that puts the image of the release into the text of a manifest.

    The function raises Unmade if the manifest has another image.
    """
    name = re.compile(r"(?m)^(\s*image: )slicewarden:\S+(?:  # .*)?$")

    def put(text: str) -> str:
        written, count = name.subn(lambda found: found[1] + release.named, text)
        if not count:
            raise Unmade("the manifests no longer name the image as `image: slicewarden:VERSION`")
        return written

    return put


def packed(files: Mapping[str, bytes], top: str, time: int) -> bytes:
    """Pack files into a compressed archive whose bytes depend only on the files: fixed times, one owner, sorted."""
    written = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=written, mode="wb", mtime=time) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in sorted(files):
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size, info.mtime, info.mode = len(files[name]), time, 0o644
            tar.addfile(info, io.BytesIO(files[name]))
    return written.getvalue()


def _tree(folder: Path, top: str = "") -> Iterator[tuple[str, bytes]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix != ".py":
            yield str(Path(top) / file.relative_to(folder)), file.read_bytes()


def _shell(source: Path) -> Iterator[tuple[str, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        run(source, sys.executable, "-m", "webhook", "help", "--man", folder)
        for page in sorted(Path(folder).iterdir()):
            yield f"man1/{page.name}", page.read_bytes()
    for shell, name in SHELLS.items():
        yield f"completions/{shell}/{name}", run(source, sys.executable, "-m", "webhook", "completion", shell).encode()


def _distributions(source: Path, output: Path, release: Release) -> None:
    """Build the wheel and the source distribution with the tools that the image's wheel is built with."""
    pins = source / "manifests" / "image" / "build.txt"
    made = ("--build-constraints", str(pins), "--require-hashes", "--out-dir", str(output))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(release.time)}
    run(source, "uv", "build", "--quiet", "--no-create-gitignore", *made, environment=environment)


def _sbom(source: Path, release: Release) -> dict[str, Any]:
    """Return what the image is made of as CycloneDX, from the lock, with the commit's time and no random number."""
    asked = ("--frozen", "--no-default-groups", "--extra", "agent", "--preview-features", "sbom-export")
    found: dict[str, Any] = json.loads(run(source, "uv", "export", "--quiet", *asked, "--format", "cyclonedx1.5"))
    digest = hashlib.sha256(release.commit.encode()).hexdigest()
    found["serialNumber"] = f"urn:uuid:{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    found["metadata"]["timestamp"] = datetime.fromtimestamp(release.time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return found


def spdx(sbom: Mapping[str, Any], release: Release) -> dict[str, Any]:
    """Convert a CycloneDX document's packages and their dependencies to SPDX 2.3 (spdx.github.io/spdx-spec/v2.3).

    The result has no hashes: SPDX gives a package those of one file, and most packages have a wheel for each platform.
    """
    metadata = sbom["metadata"]
    root = metadata["component"]
    parts = [root, *sbom["components"]]
    names = {each["bom-ref"]: f"SPDXRef-Package-{number}" for number, each in enumerate(parts)}
    needs = [(each["ref"], other) for each in sbom["dependencies"] for other in each.get("dependsOn", ())]
    relationships = [("SPDXRef-DOCUMENT", "DESCRIBES", names[root["bom-ref"]])]
    relationships += [(names[one], "DEPENDS_ON", names[other]) for one, other in needs]
    return {
        "spdxVersion": "SPDX-2.3",
        "SPDXID": "SPDXRef-DOCUMENT",
        "dataLicense": "CC0-1.0",
        "name": f"slicewarden-{release.version}",
        "documentNamespace": f"https://slicewarden.dev/spdx/{release.version}/{release.commit}",
        "creationInfo": {
            "created": metadata["timestamp"],
            "creators": [f"Tool: {each['name']}-{each['version']}" for each in metadata["tools"]],
        },
        "packages": [
            {
                "SPDXID": names[each["bom-ref"]],
                "name": each["name"],
                "versionInfo": each["version"],
                "downloadLocation": "NOASSERTION",
                "filesAnalyzed": False,
                **({"externalRefs": [_purl(each["purl"])]} if "purl" in each else {}),
            }
            for each in parts
        ],
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relationships
        ],
    }


def _purl(name: str) -> dict[str, str]:
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": name}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True).encode() + b"\n"


def _provenance(made: Iterable[Path], root: Path, release: Release) -> str:
    """Say of which commit the files were made, as SLSA's provenance (slsa.dev/spec/v1.1/provenance)."""
    lock = hashlib.sha256(_git(root, "show", f"{release.commit}:uv.lock").encode()).hexdigest()
    return (
        json.dumps(
            {
                "_type": "https://in-toto.io/Statement/v1",
                "subject": [{"name": file.name, "digest": {"sha256": digest(file)}} for file in made],
                "predicateType": "https://slsa.dev/provenance/v1",
                "predicate": {
                    "buildDefinition": {
                        "buildType": BUILD_TYPE,
                        "externalParameters": {"tag": release.tag, "version": release.version, "image": release.named},
                        "resolvedDependencies": [
                            {"name": "source", "digest": {"gitCommit": release.commit}},
                            {"name": "uv.lock", "digest": {"sha256": lock}},
                        ],
                    },
                    "runDetails": {"builder": {"id": f"{BUILD_TYPE}#make-release"}},
                },
            },
            indent=2,
        )
        + "\n"
    )


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def sums(files: Iterable[Path]) -> str:
    """Return the checksums of files as `sha256sum --check` reads them."""
    return "".join(f"{digest(file)}  {file.name}\n" for file in files)


def sign(output: Path, options: Iterable[str], cosign: str = "cosign") -> Path:
    """Sign SHA256SUMS, and thereby every file, with cosign, and return the bundle. Raises Unmade."""
    run(Path(), cosign, "sign-blob", "--yes", "--bundle", str(output / BUNDLE), *options, str(output / SUMS))
    return output / BUNDLE


def unpack(root: Path, commit: str, folder: Path) -> None:
    """Write the files of a commit. Raises Unmade if a file would differ from the committed one.

    Attributes and settings of a checkout can leave files out of an archive, or change their ends of lines.
    """
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        _git(root, "archive", "--output", file.name, commit)
        with tarfile.open(file.name) as tar:
            if out := [each.name for each in tar if each.issym() and _leads_out(each)]:
                raise Unmade(f"a link of the commit leads out of it: {out[0]}")
            tar.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
            tar.extractall(folder)  # noqa: S202 - git made it, and the files are compared with the committed ones
    committed = dict(_blobs(_git(root, "ls-tree", "-r", "-z", commit)))
    found = {
        str(path.relative_to(folder)): path for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()
    }
    differ = committed.keys() ^ found.keys()
    differ |= {name for name, blob in committed.items() if name in found and not _is(found[name], blob)}
    if differ:
        raise Unmade(
            f"git archive changes these files of the commit; look at attributes and settings: {sorted(differ)}"
        )


def _leads_out(link: tarfile.TarInfo) -> bool:
    """Whether a link leads out of the archive's folder."""
    return Path(os.path.normpath(Path(link.name).parent / link.linkname)).parts[0] in ("/", "..")


def _blobs(tree: str) -> Iterator[tuple[str, str]]:
    for line in filter(None, tree.split("\0")):
        kind, _, name = line.partition("\t")
        yield name, kind.split()[2]


def _is(file: Path, blob: str) -> bool:
    """Return whether a file, or the target of a link, is the content of a blob, which Git names by its hash."""
    content = os.fsencode(file.readlink()) if file.is_symlink() else file.read_bytes()
    return (
        hashlib.new("sha1" if len(blob) == 40 else "sha256", b"blob %d\0" % len(content) + content).hexdigest() == blob
    )


def _git(root: Path, *arguments: str) -> str:
    return run(root, "git", "--no-replace-objects", *arguments)


def run(folder: Path, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program in a folder and return its output. Raises Unmade if it fails, or is not installed."""
    beside = Path(sys.executable).parent
    path = f"{beside}{os.pathsep}{os.environ['PATH']}"
    try:
        done = subprocess.run(  # noqa: S603 - programs of ours, with our options and the user's
            [program, *arguments],
            cwd=folder,
            env={**(environment or os.environ), "PATH": path},
            stdin=subprocess.DEVNULL,  # nobody sees a question, such as cosign's for a password
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise Unmade(f"{program} is not installed; docs/releases.md says which programs a release needs") from error
    if done.returncode:
        raise Unmade(f"{program} {' '.join(arguments[:2])}: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    """Make a release. Exits with status 1, and the reason, if it cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m manifests.make_release", description="Build what a release publishes."
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "release", help="an empty folder")
    parser.add_argument("--image", default="", help="the image's name with its digest, as the manifests shall name it")
    parser.add_argument("--rehearsal", action="store_true", help="make it of a commit without the version's tag")
    parser.add_argument(
        "--sign", nargs=argparse.REMAINDER, help="sign the checksums; the rest goes to cosign sign-blob"
    )
    given = parser.parse_args()
    try:
        release = known(ROOT, given.image, rehearsal=given.rehearsal)
        made = make(ROOT, given.output, release)
        if given.sign is not None:
            made.append(sign(given.output, given.sign))
    except Unmade as reason:
        print(reason, file=sys.stderr)
        sys.exit(1)
    for file in made:
        print(f"{file.stat().st_size:>10}  {file.name}")


if __name__ == "__main__":
    main()
