"""A release, published to a registry on this machine, and verified and installed from there as docs/releases.md says.

Its image is the one that `make node` runs. The tests change what the registry has, and expect that the page's commands
fail.
"""

import base64
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests import make_release
from tests import ROOT
from tests.e2e import binaries, control_plane
from tests.node import product
from tests.signing import programs, registry
from tests.signing.conftest import DONE, OFFLINE, Signing
from tests.support import oci_layouts
from tests.support.checkouts import committed
from tests.support.go_programs import Missing

PAGE = (ROOT / "docs" / "releases.md").read_text("utf-8")
NAME = "registry.example/gpu"
"""Where the page has the release."""
UNLOGGED = ("--signing-config", "none.json", "--trusted-root", "root.json")
SPDX_TOOLS = "spdx-tools==0.8.3"
SYSTEM = "--namespace=slicewarden-system"
UNSIGNED = "no matching attestations"


@dataclass(frozen=True)
class Published:
    """A release in a registry, with what its publication printed."""

    registry: registry.Registry
    signing: Signing
    checkout: Path
    layout: Path
    environment: dict[str, str]
    lines: list[str]

    @property
    def folder(self) -> Path:
        """The folder with the keys, where commands run."""
        return self.signing.folder

    @property
    def files(self) -> Path:
        return self.checkout / "build" / "release"

    def ended(self, *command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=cwd or self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def run(self, *command: str | Path) -> str:
        done = self.ended(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def publish(self, repository: str, output: str) -> subprocess.CompletedProcess[str]:
        options = ("--rehearsal", "--output", f"build/{output}", "--sign", "--key", self.folder / "ours.key")
        unlogged = (option if option.startswith("--") else self.folder / option for option in UNLOGGED)
        command = (sys.executable, "-m", "manifests.publish", f"{self.registry.host}/{repository}", self.layout)
        return self.ended(*command, *options, *unlogged, cwd=self.checkout)

    def install(self, repository: str = "gpu") -> subprocess.CompletedProcess[str]:
        """Run the page's commands, with the chart's objects printed instead of sent to a cluster."""
        shutil.rmtree(
            Path(self.environment["HOME"]) / ".cache" / "helm", ignore_errors=True
        )  # by which it asks only once
        script, count = re.subn(r"(?m)^helm install (.*) --wait$", r"helm template \1", self.commands(repository))
        assert count == 1
        return self.shell(script)

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        return self.ended("bash", "-euo", "pipefail", "-c", script)

    def commands(self, repository: str) -> str:
        _, _, section = PAGE.partition("## Verify and install it from a registry")
        (block,) = re.findall(r"```console\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
        lines = [line.removeprefix("$ ") for line in block.splitlines()]
        text = "\n".join(lines).replace(NAME, f"{self.registry.host}/{repository}").replace("cosign.pub", "ours.pub")
        return text.replace("cosign verify-attestation", f"cosign verify-attestation {OFFLINE}")

    def digest(self, name: str) -> str:
        return self.run("crane", "digest", f"{self.registry.host}/{name}:{self.version}").strip()

    @property
    def version(self) -> str:
        return make_release.known(self.checkout, rehearsal=True).version

    def another_chart(self, image: str, version: str = "") -> Path:
        """Return the release's chart with another image, or also another version."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            shutil.copytree(self.checkout / "manifests" / "chart", Path(folder) / "slicewarden")
            values = Path(folder) / "slicewarden" / "values.yaml"
            release = make_release.Release(self.version, "", 0, image=image)
            values.write_text(make_release.pinned(release)(values.read_text("utf-8")), "utf-8")
            version = version or self.version
            self.run("helm", "package", values.parent, "--version", version, "--destination", self.folder)
        return self.folder / f"slicewarden-{version}.tgz"

    def push(self, chart: Path, repository: str, *, signed: bool) -> None:
        """Push a chart, and sign it with the release's key."""
        said = self.run("helm", "push", chart, f"oci://{self.registry.host}/{repository}/charts")
        (digest,) = re.findall(r"sha256:\w+", said)
        if signed:
            reference = f"{self.registry.host}/{repository}/charts/slicewarden@{digest}"
            self.run("cosign", "sign", "--yes", "--key", "ours.key", *UNLOGGED, reference)


@pytest.fixture(scope="module")
def published(
    signing: Signing, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Published]:
    folder = tmp_path_factory.mktemp("published")
    try:
        image = product.image()
        places = programs()
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
    with registry.served(folder) as running:
        trusted = ssl.get_default_verify_paths().cafile  # by which uv reaches PyPI
        (folder / "trusted.crt").write_bytes((Path(trusted).read_bytes() if trusted else b"") + running.ca.read_bytes())
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, places), os.environ["PATH"]]),
            "HOME": str(folder),
            "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
            "SSL_CERT_FILE": str(folder / "trusted.crt"),
            "COSIGN_PASSWORD": "x",
        }
        found = Published(running, signing, committed(folder / "slicewarden"), folder / "layout", environment, [])
        request.config.stash[DONE] = found.lines
        with tarfile.open(image.archive) as tar:
            tar.extractall(found.layout, filter="data")
        commit = make_release.known(found.checkout, rehearsal=True).commit
        oci_layouts.relabel(found.layout, {"org.opencontainers.image.revision": commit})
        done = found.publish("gpu", "release")
        assert done.returncode == 0, done.stderr
        found.lines.extend(done.stdout.splitlines())
        yield found


def test_the_image_and_the_chart_are_verified_and_installed_by_digest(published: Published) -> None:
    done = published.install()
    assert done.returncode == 0, done.stderr
    chart = published.files / f"slicewarden-chart-{published.version}.tgz"
    version, mark, rendered = done.stdout.partition("---\n")
    assert version == f"version: {published.version}\n"
    assert objects(mark + rendered) == objects(published.run("helm", "template", "slicewarden", chart))
    images = yaml.safe_load((published.files / "images.yaml").read_text("utf-8"))["images"]
    assert images == [f"{published.registry.host}/gpu/slicewarden@{published.digest('gpu/slicewarden')}"]
    made = {line.removeprefix("made ") for line in published.lines if line.startswith("made ")}
    assert made == {each.name for each in published.files.iterdir()} - {make_release.BUNDLE}
    assert any(name.endswith(".whl") for name in made)
    chart_there = f"{published.registry.host}/gpu/charts/slicewarden@{published.digest('gpu/charts/slicewarden')}"
    published.lines.extend([f"verified {chart_there}", f"verified {images[0]}", f"rendered {chart_there}"])


def objects(text: str) -> list[object]:
    return [each for each in yaml.safe_load_all(text) if each]


def test_a_cluster_is_installed_from_the_files_and_from_the_registry(published: Published, tmp_path: Path) -> None:
    """The programs of the cluster are those of `make e2e`; KWOK says that pods are ready, and runs none."""
    try:
        programs_of_cluster = binaries.find(tuple(binaries.PACKAGES))
    except Missing as missing:
        pytest.exit(str(missing), returncode=2)
    image = f"{published.registry.host}/gpu/slicewarden@{published.digest('gpu/slicewarden')}"
    with control_plane.running(tmp_path, programs_of_cluster) as cluster:
        cluster.add_nodes()
        files = str(published.files / "install.yaml")
        cluster.do("apply", "-f", files)
        cluster.do("rollout", "status", "deployment", SYSTEM, "--timeout=300s")
        assert images_of(cluster) == {image}
        cluster.do("delete", "-f", files)
        done = published.shell(f"export KUBECONFIG='{cluster.kubeconfig()}'\n{published.commands('gpu')}")
        assert done.returncode == 0, done.stderr
        cluster.do("rollout", "status", "deployment", SYSTEM, "--timeout=300s")
        assert images_of(cluster) == {image}
    chart = f"{published.registry.host}/gpu/charts/slicewarden@{published.digest('gpu/charts/slicewarden')}"
    published.lines.extend(["installed install.yaml", f"installed {chart}"])


def images_of(cluster: control_plane.Cluster) -> set[str]:
    """The images of all containers of the product in a cluster."""
    pods = cluster.get("pods", SYSTEM)["items"]
    assert pods
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def test_attestations_say_what_the_files_say(published: Published) -> None:
    assert published.install().returncode == 0
    sbom = json.loads((published.files / make_release.SBOM).read_text("utf-8"))
    assert statement(published.folder / "sbom.json")["predicate"] == sbom
    image = f"{published.registry.host}/gpu/slicewarden@{published.digest('gpu/slicewarden')}"
    verify = ("cosign", "verify-attestation", "--key", "ours.pub", OFFLINE, "--type")
    (published.folder / "spdx.json").write_text(published.run(*verify, "spdxjson", image), "utf-8")
    spdx = json.loads((published.files / make_release.SPDX).read_text("utf-8"))
    assert statement(published.folder / "spdx.json")["predicate"] == spdx
    provenance = json.loads((published.files / make_release.PROVENANCE).read_text("utf-8"))
    for name in ("gpu/slicewarden", "gpu/charts/slicewarden"):
        digest = published.digest(name)
        reference = f"{published.registry.host}/{name}@{digest}"
        (published.folder / "provenance.json").write_text(published.run(*verify, "slsaprovenance1", reference), "utf-8")
        said = statement(published.folder / "provenance.json")
        assert said["predicate"] == provenance["predicate"]
        assert [each["digest"] for each in said["subject"]] == [{"sha256": digest.removeprefix("sha256:")}]


def test_spdx_own_tools_find_no_mistake(published: Published, tmp_path: Path) -> None:
    file = tmp_path / make_release.SPDX
    found = json.loads((published.files / make_release.SPDX).read_text("utf-8"))
    tools = (Path(sys.executable).parent / "uv", "tool", "run", "--python", sys.executable, "--from", SPDX_TOOLS)
    for said, mistake in ((found, ""), ({**found, "documentNamespace": "here"}, "document_namespace")):
        file.write_text(json.dumps(said), "utf-8")
        done = published.ended(*tools, "pyspdxtools", "--infile", file)
        assert (done.returncode == 0) == (mistake == ""), done.stdout + done.stderr
        assert mistake in done.stdout + done.stderr


def statement(file: Path) -> Any:
    return json.loads(base64.b64decode(json.loads(file.read_text("utf-8"))["payload"]))


def test_the_checksums_are_signed_and_a_changed_one_is_refused(published: Published, tmp_path: Path) -> None:
    shutil.copytree(published.files, tmp_path / "files")
    sums, bundle = (tmp_path / "files" / name for name in (make_release.SUMS, make_release.BUNDLE))
    verify = ("cosign", "verify-blob", "--key", "ours.pub", "--bundle", bundle, OFFLINE, sums)
    published.run(*verify)
    sums.write_text(sums.read_text("utf-8").replace("0", "1", 1), "utf-8")
    done = published.ended(*verify)
    assert done.returncode != 0
    assert "invalid signature" in done.stderr


def test_the_same_release_is_published_again_and_another_by_its_version_is_not(published: Published) -> None:
    before = [published.digest(name) for name in ("gpu/slicewarden", "gpu/charts/slicewarden")]
    done = published.publish("gpu", "again")
    assert done.returncode == 0, done.stderr
    assert before == [published.digest(name) for name in ("gpu/slicewarden", "gpu/charts/slicewarden")]
    published.run(
        "crane",
        "copy",
        f"{published.registry.host}/gpu/slicewarden@{before[0]}",
        other := f"{published.registry.host}/taken/slicewarden:{published.version}",
    )
    published.run("crane", "mutate", other, "--label", "a=b", "--tag", other)
    done = published.publish("taken", "taken")
    assert done.returncode == 1
    assert f"{other} is another image already; a version is published once" in done.stderr
    published.push(published.another_chart("slicewarden:0.1.0"), "taken-chart", signed=True)
    done = published.publish("taken-chart", "taken-chart")
    assert done.returncode == 1
    assert "is another chart already; a version is published once" in done.stderr


# What is refused


def test_an_unsigned_image_and_chart_are_refused(published: Published) -> None:
    """A copy of the release under another name has no signatures there."""
    for name in ("slicewarden", "charts/slicewarden"):
        there = f"{published.registry.host}/unsigned/{name}:{published.version}"
        published.run("crane", "copy", f"{published.registry.host}/gpu/{name}@{published.digest(f'gpu/{name}')}", there)
    done = published.install("unsigned")
    assert done.returncode != 0
    assert UNSIGNED in done.stderr
    assert done.stdout == ""


def test_a_tag_that_was_moved_is_refused(published: Published) -> None:
    """The signature is that of the digest, not of the tag."""
    name = f"{published.registry.host}/gpu/charts/slicewarden"
    ours = published.digest("gpu/charts/slicewarden")
    published.push(published.another_chart("slicewarden:0.1.0"), "gpu", signed=False)
    try:
        done = published.install()
    finally:
        published.run("crane", "tag", f"{name}@{ours}", published.version)
    assert done.returncode != 0
    assert UNSIGNED in done.stderr
    assert published.install().returncode == 0


def test_a_tag_that_was_moved_to_an_older_release_is_refused(published: Published) -> None:
    """That one is signed, too."""
    image = f"{published.registry.host}/gpu/slicewarden@{published.digest('gpu/slicewarden')}"
    published.push(published.another_chart(image, "0.0.9"), "older", signed=True)
    name = f"{published.registry.host}/older/charts/slicewarden"
    published.run("crane", "tag", f"{name}:0.0.9", published.version)
    done = published.install("older")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Verification for" in done.stderr
    published.push(published.another_chart(image), "newer", signed=True)
    assert published.install("newer").returncode == 0


def test_a_chart_with_another_image_is_refused_though_it_is_signed(published: Published) -> None:
    """An attestation by the same key does not make the image a signed one."""
    there = f"{published.registry.host}/another/slicewarden"
    published.run(
        "crane",
        "copy",
        f"{published.registry.host}/gpu/slicewarden@{published.digest('gpu/slicewarden')}",
        f"{there}:1",
    )
    published.run("crane", "mutate", f"{there}:1", "--label", "a=b", "--tag", f"{there}:{published.version}")
    image = f"{there}@{published.digest('another/slicewarden')}"
    published.push(published.another_chart(image), "another", signed=True)
    done = published.install("another")
    assert done.returncode != 0
    assert UNSIGNED in done.stderr
    attest = ("cosign", "attest", "--yes", "--key", "ours.key", *UNLOGGED, "--type", "cyclonedx")
    published.run(*attest, "--predicate", published.files / make_release.SBOM, image)
    done = published.install("another")
    assert done.returncode != 0
    assert "none of the attestations matched the predicate type: https://sigstore.dev/cosign/sign/v1" in done.stderr
    published.run("cosign", "verify", "--key", "ours.pub", OFFLINE, image)  # why the page has another command
    published.run("cosign", "sign", "--yes", "--key", "ours.key", *UNLOGGED, image)
    assert published.install("another").returncode == 0


@pytest.mark.parametrize("name", ["gpu/charts/slicewarden", "gpu/slicewarden"])
def test_a_changed_layer_is_refused(published: Published, name: str) -> None:
    """The signature covers the digest, and whoever fetches a layer compares it with its digest."""
    there = f"{published.registry.host}/{name}"
    (*_, layer) = json.loads(published.run("crane", "manifest", f"{there}@{published.digest(name)}"))["layers"]
    with changed(published.registry.stored(layer["digest"])):
        done = published.ended("bash", "-c", f"crane blob {there}@{layer['digest']} >/dev/null")
        assert done.returncode != 0
        assert "error verifying sha256 checksum" in done.stderr
        assert (published.install().returncode == 0) == (name == "gpu/slicewarden")  # no command fetches the image
    assert published.install().returncode == 0


@pytest.mark.parametrize("name", ["gpu/charts/slicewarden", "gpu/slicewarden"])
def test_a_changed_manifest_is_refused(published: Published, name: str) -> None:
    digest = published.digest(name)
    with changed(published.registry.stored(digest), rb"sha256:."):
        done = published.ended("crane", "manifest", f"{published.registry.host}/{name}@{digest}")
        assert done.returncode != 0
        assert f'does not match requested digest: "{digest}"' in done.stderr
        assert (published.install().returncode == 0) == (name == "gpu/slicewarden")
    assert published.install().returncode == 0


@contextmanager
def changed(file: Path, what: bytes = rb".") -> Iterator[None]:
    """Change the last byte of the first match in what the registry stores; of `sha256:.`, a digit to another."""
    data = file.read_bytes()
    found = re.search(what, data, re.DOTALL)
    assert found
    at = found.end() - 1
    file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    try:
        yield
    finally:
        file.write_bytes(data)


def test_another_key_verifies_nothing(published: Published) -> None:
    done = published.ended(
        "bash", "-euo", "pipefail", "-c", published.commands("gpu").replace("ours.pub", "others.pub")
    )
    assert done.returncode != 0
    assert "could not verify envelope" in done.stderr
    assert done.stdout == ""
