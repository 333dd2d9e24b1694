"""Publishes a release: `make publish`, or `python -m manifests.publish`. docs/releases.md says how to verify it.

It makes the release's files (make_release.py), pushes the image and the Helm chart to a registry, and signs both by
their digests. The SBOMs and the provenance are attached as attestations. It pushes no image whose labels name another
commit, and leaves a tag that has other contents. It needs crane, Helm 4 and cosign 3.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from manifests.make_release import PROVENANCE, ROOT, SBOM, SPDX, Release, Unmade, digest, known, make, run, sign

HERE = Path()
"""Where the paths of layouts and keys begin that the user gives."""
OF_CHART = (("slsaprovenance1", PROVENANCE),)
OF_IMAGE = (("cyclonedx", SBOM), ("spdxjson", SPDX), *OF_CHART)
LABELS = "org.opencontainers.image."
INDEXES = {"application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PATH = r"(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
_REGISTRY = re.compile(r"(?:localhost|(?=[^/]*[.:])[a-z0-9][a-z0-9.-]*)(?::[0-9]{1,5})?" + _PATH)
"""A host and a path. Without a host, crane takes Docker Hub's."""


@dataclass(frozen=True)
class Artifact:
    """An image or a chart in a registry: its name without a tag, the digest of its manifest, and its attestations.

    `attested` has the attested files of the release by cosign's name for their type.
    """

    name: str
    digest: str
    attested: tuple[tuple[str, str], ...]

    @property
    def reference(self) -> str:
        """The reference by digest, which always names the same contents."""
        return f"{self.name}@{self.digest}"


def publish(
    root: Path, output: Path, layout: Path, registry: str, options: Sequence[str], *, rehearsal: bool = False
) -> Iterator[str]:
    """Publish the release of a checkout, and yield a line for each completed step.

    `layout` is the folder of an OCI layout with the image; `options` are the options with which cosign signs. Raises
    Unmade.
    """
    if not _REGISTRY.fullmatch(registry):
        raise Unmade(f"REGISTRY is {registry!r}; give a host and a path in lower case, such as registry.example/gpu")
    release = known(root, rehearsal=rehearsal)
    image = Artifact(f"{registry}/slicewarden", built(layout, release), OF_IMAGE)
    tagged = f"{image.name}:{release.version}"
    if _taken(image.name, release.version) not in {None, image.digest}:
        raise Unmade(f"{tagged} is another image already; a version is published once")
    release = replace(release, image=image.reference)
    yield from (f"made {file.name}" for file in make(root, output, release))
    yield f"signed {sign(output, options).name.removesuffix('.sigstore.json')}"
    pushed = _digest(run(HERE, "crane", "push", str(layout), tagged))
    if pushed != image.digest:
        raise Unmade(f"{tagged} was pushed as {pushed}, and the layout has {image.digest}")
    yield f"pushed {image.reference}"
    chart = _push_chart(output, registry, release)
    yield f"pushed {chart.reference}"
    for each in (image, chart):
        run(HERE, "cosign", "sign", "--yes", *options, each.reference)
        yield f"signed {each.reference}"
        for kind, name in each.attested:
            _attest(each, kind, output / name, options)
            yield f"attested {each.reference}: {name}"


def built(layout: Path, release: Release) -> str:
    """Return the digest of the image in a layout. Raises Unmade if it was not built from the release's commit."""
    try:
        (entry,) = json.loads((layout / "index.json").read_text("utf-8"))["manifests"]
        manifests = [_blob(layout, entry)]
        if entry["mediaType"] in INDEXES:
            manifests = [_blob(layout, each) for each in manifests[0]["manifests"] if not _is_attestation(each)]
        configs = [_blob(layout, each["config"]) for each in manifests]
        labels = [each["config"].get("Labels") or {} for each in configs]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unmade(f"{layout} is no OCI layout with one image: {error!r}") from error
    if not labels:
        raise Unmade(f"{layout} has no image for any platform")
    expected = {f"{LABELS}version": release.version, f"{LABELS}revision": release.commit}
    for found in labels:
        for label, value in expected.items():
            if found.get(label) != value:
                raise Unmade(
                    f"the image's label {label} is {found.get(label, '')!r}, and the release's is {value!r}; "
                    "build it from the release's commit, with --build-arg REVISION (docs/releases.md)"
                )
    return str(entry["digest"])


def _is_attestation(entry: dict[str, Any]) -> bool:
    """Return whether an entry of an index is what BuildKit says about an image of it: no machine has that platform."""
    return bool(entry.get("platform", {}).get("os") == "unknown")


def _blob(layout: Path, entry: dict[str, Any]) -> Any:
    """Read a JSON blob of a layout. Raises ValueError if its contents are not those of its digest."""
    if not _DIGEST.fullmatch(name := entry["digest"]):
        raise ValueError(f"{name!r} is no digest by SHA-256")
    file = layout / "blobs" / "sha256" / name.removeprefix("sha256:")
    if f"sha256:{digest(file)}" != name:
        raise ValueError(f"the contents of {name} are others")
    return json.loads(file.read_bytes())


def _push_chart(output: Path, registry: str, release: Release) -> Artifact:
    name = f"{registry}/charts/slicewarden"
    file = output / f"slicewarden-chart-{release.version}.tgz"
    ours = f"sha256:{digest(file)}"
    if (taken := _taken(name, release.version)) and _layer(f"{name}@{taken}") != ours:
        raise Unmade(f"{name}:{release.version} is another chart already; a version is published once")
    os.utime(file, (release.time, release.time))  # helm writes it into the manifest
    said = run(HERE, "helm", "push", str(file), f"oci://{registry}/charts", environment={**os.environ, "TZ": "UTC"})
    chart = Artifact(name, _digest(said), OF_CHART)
    if _layer(chart.reference) != ours:
        raise Unmade(f"{chart.reference} is another chart than {file.name}")
    return chart


def _layer(reference: str) -> str:
    """Return the digest of the one layer of a chart in the registry; crane compares its manifest with the reference."""
    (layer,) = json.loads(run(HERE, "crane", "manifest", reference))["layers"]
    return str(layer["digest"])


def _taken(name: str, tag: str) -> str | None:
    """Return the digest that a tag has in the registry already."""
    try:
        return _digest(run(HERE, "crane", "digest", f"{name}:{tag}"))
    except Unmade as reason:
        if re.search(r"(?m)^Error: .*(NAME|MANIFEST)_UNKNOWN", str(reason)):
            return None
        raise


def _digest(said: str) -> str:
    """Return the one digest in what a program printed. Raises Unmade."""
    found = {*_DIGEST.findall(said)}
    if len(found) != 1:
        raise Unmade(f"this names no digest, or several: {said!r}")
    return str(found.pop())


def _attest(to: Artifact, kind: str, file: Path, options: Sequence[str]) -> None:
    """Attach what a file says; of a statement only the predicate, since cosign writes another subject."""
    said = json.loads(file.read_text("utf-8"))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as predicate:
        json.dump(said.get("predicate", said), predicate)
        predicate.flush()
        run(HERE, "cosign", "attest", "--yes", "--type", kind, "--predicate", predicate.name, *options, to.reference)


def main() -> None:
    """Publish a release. Exits with status 1, and the reason, if it cannot be published."""
    parser = argparse.ArgumentParser(prog="python -m manifests.publish", description="Publish a release.")
    parser.add_argument("registry", help="where the image and the chart go, such as registry.example/gpu")
    parser.add_argument("layout", type=Path, help="the folder of an OCI layout with the image")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "release", help="an empty folder for the files")
    parser.add_argument("--rehearsal", action="store_true", help="publish a commit without the version's tag")
    parser.add_argument("--sign", nargs=argparse.REMAINDER, default=[], help="the rest is options of cosign")
    given = parser.parse_args()
    try:
        for line in publish(ROOT, given.output, given.layout, given.registry, given.sign, rehearsal=given.rehearsal):
            print(line, flush=True)
    except Unmade as reason:
        print(reason, file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
