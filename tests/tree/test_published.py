"""Which commit a release is made of, and its parts that need no network; tests/release builds all of it."""

import gzip
import io
import json
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from manifests import make_release, publish
from manifests.make_release import Release, Unmade
from tests.support import oci_layouts

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "pyproject.toml").write_text('[project]\nversion = "0.3.0"\n', "utf-8")
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "a change", "--date", "2026-01-02T03:04:05Z")


def test_a_tagged_commit_is_the_release_of_its_version(checkout: Path) -> None:
    git(checkout, "tag", "v0.3.0")
    found = make_release.known(checkout)
    assert (found.version, found.tag, found.named) == ("0.3.0", "v0.3.0", "slicewarden:0.3.0")
    assert found.commit == git(checkout, "rev-parse", "HEAD").strip()
    assert found.time == int(git(checkout, "show", "--no-patch", "--format=%ct").strip())


@pytest.mark.parametrize("tag", ["", "v0.2.0", "0.3.0"])
def test_a_commit_without_the_tag_is_only_rehearsed(checkout: Path, tag: str) -> None:
    if tag:
        git(checkout, "tag", tag)
    with pytest.raises(Unmade, match=r"no tag v0\.3\.0.*--rehearsal"):
        make_release.known(checkout)
    assert make_release.known(checkout, rehearsal=True).tag == ""


def test_the_tag_of_an_older_commit_does_not_count(checkout: Path) -> None:
    git(checkout, "tag", "v0.3.0")
    (checkout / "more").write_text("more\n", "utf-8")
    commit(checkout)
    with pytest.raises(Unmade, match="no tag"):
        make_release.known(checkout)


@pytest.mark.parametrize("image", ["registry.example/gpu/slicewarden:0.3.0", "a@sha256:0", "a: b@sha256:" + "0" * 64])
def test_an_image_that_can_change_is_not_released(checkout: Path, image: str) -> None:
    with pytest.raises(Unmade, match="name it by its digest"):
        make_release.known(checkout, image, rehearsal=True)
    named = "registry.example:5000/gpu/slicewarden@sha256:" + "0" * 64
    assert make_release.known(checkout, named, rehearsal=True).named == named
    with pytest.raises(Unmade, match="name it by its digest"):
        make_release.known(checkout, f"{named}\n", rehearsal=True)


@pytest.mark.parametrize("name", ["pyproject.toml", "new.py"])
def test_what_is_not_committed_is_in_the_way(checkout: Path, name: str) -> None:
    (checkout / name).write_text('[project]\nversion = "0.3.1"\n', "utf-8")
    with pytest.raises(Unmade, match=rf"differ from the commit.*\n.*{name}"):
        make_release.known(checkout, rehearsal=True)


@pytest.mark.parametrize(
    "settings",
    [
        {".git/info/attributes": "policy.yaml export-ignore\n"},
        {".git/info/attributes": "policy.yaml text eol=crlf\n"},
        {".git/info/attributes": "policy.yaml export-subst\n"},
    ],
    ids=["left out", "other ends of lines", "expanded"],
)
def test_settings_of_a_checkout_change_no_file(checkout: Path, tmp_path: Path, settings: dict[str, str]) -> None:
    (checkout / "policy.yaml").write_text("kind: GPUSharingPolicy\n# $Format:%H$\n", "utf-8")
    commit(checkout)
    for name, text in settings.items():
        (checkout / name).write_text(text, "utf-8")
    with pytest.raises(Unmade, match=r"changes these files.*policy\.yaml"):
        make_release.make(checkout, tmp_path / "made", make_release.known(checkout, rehearsal=True))
    assert [*(tmp_path / "made").iterdir()] == []


def test_an_object_that_replaces_a_committed_one_does_not_count(checkout: Path, tmp_path: Path) -> None:
    (checkout / "policy.yaml").write_text("first\n", "utf-8")
    commit(checkout)
    (tmp_path / "other").write_text("other\n", "utf-8")
    other = git(checkout, "hash-object", "-w", str(tmp_path / "other")).strip()
    git(checkout, "replace", git(checkout, "rev-parse", "HEAD:policy.yaml").strip(), other)
    make_release.unpack(checkout, "HEAD", tmp_path / "source")
    assert (tmp_path / "source" / "policy.yaml").read_text("utf-8") == "first\n"


def test_a_link_stays_in_the_commit(checkout: Path, tmp_path: Path) -> None:
    (checkout / "inside").symlink_to("pyproject.toml")
    commit(checkout)
    make_release.unpack(checkout, "HEAD", tmp_path / "one")
    assert (tmp_path / "one" / "inside").read_text("utf-8") == (checkout / "pyproject.toml").read_text("utf-8")
    (checkout / "outside").symlink_to("/etc/passwd")
    commit(checkout)
    with pytest.raises(Unmade, match="leads out of it"):
        make_release.unpack(checkout, "HEAD", tmp_path / "two")


def test_a_folder_with_files_is_left_as_it_is(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept\n", "utf-8")
    with pytest.raises(Unmade, match="is not empty"):
        make_release.make(checkout, tmp_path, make_release.known(checkout, rehearsal=True))
    assert {each.name for each in tmp_path.iterdir()} == {"kept", "checkout"}


def test_the_notes_are_the_part_of_the_version() -> None:
    text = "# Changelog\n\n## 0.2.0, unreleased\n\nNew.\n\n### More\n\n## 0.1.0\n\nOld.\n"
    assert make_release.notes(text, "0.2.0") == "# Slicewarden 0.2.0\n\n\nNew.\n\n### More\n\n"
    assert make_release.notes(text, "0.1.0") == "# Slicewarden 0.1.0\n\n\nOld.\n"
    with pytest.raises(Unmade, match=r"no heading `## 0\.2`"):
        make_release.notes(text, "0.2")


def test_this_version_has_notes() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert "### Admit pods" in make_release.notes((ROOT / "CHANGELOG.md").read_text("utf-8"), version)


def test_the_same_files_are_packed_into_the_same_bytes() -> None:
    files = {"b/c": b"2", "a": b"1"}
    data = make_release.packed(files, "top", 1_700_000_000)
    assert data == make_release.packed(dict(reversed(files.items())), "top", 1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as tar:
        found = [(each.name, each.mtime, each.mode, each.uid, each.uname) for each in tar]
    assert found == [("top/a", 1_700_000_000, 0o644, 0, ""), ("top/b/c", 1_700_000_000, 0o644, 0, "")]


@pytest.mark.parametrize("name", ["install.yaml", "chart/values.yaml"])
def test_manifests_name_the_image_of_the_release(name: str) -> None:
    text = (ROOT / "manifests" / name).read_text("utf-8")
    image = "registry.example/gpu/slicewarden@sha256:" + "0" * 64
    put = make_release.pinned(Release("0.1.0", "c" * 40, 0, image=image))(text)
    assert "image: slicewarden:" in text
    assert "image: slicewarden:" not in put
    assert put.count(f"image: {image}\n") == text.count("image: slicewarden:")


def test_manifests_that_name_no_image_are_refused() -> None:
    with pytest.raises(Unmade, match="no longer name the image"):
        make_release.pinned(Release("0.1.0", "c" * 40, 0))("image: another:0.1.0\n")


def test_without_cosign_nothing_is_signed(tmp_path: Path) -> None:
    (tmp_path / make_release.SUMS).touch()
    with pytest.raises(Unmade, match="cosign is not installed"):
        make_release.sign(tmp_path, [], cosign=str(tmp_path / "cosign"))


def test_a_program_that_asks_gets_no_answer(tmp_path: Path) -> None:
    """Its question would not be shown, and it would wait for ever."""
    question = "import os; assert os.path.samestat(os.fstat(0), os.stat(os.devnull)); print(input())"
    with pytest.raises(Unmade, match="EOFError"):
        make_release.run(tmp_path, sys.executable, "-c", question)


# Where a release is published


@pytest.mark.parametrize(
    "registry",
    ["", "gpu", "/gpu", "registry.example/GPU", "registry.example/", "--x.y/z", "a.example/b:1", "a.example\n"],
)
def test_a_registry_is_named_with_its_host(checkout: Path, tmp_path: Path, registry: str) -> None:
    """Without one, crane takes Docker Hub, and Helm the first word."""
    with pytest.raises(Unmade, match=r"REGISTRY is .*give a host and a path"):
        list(publish.publish(checkout, tmp_path / "made", tmp_path / "layout", registry, [], rehearsal=True))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("registry", ["registry.example", "localhost:5000/gpu", "harbor:443/a-b/c_d", "ghcr.io/a/b.c"])
def test_a_host_may_have_a_port_and_a_path(checkout: Path, tmp_path: Path, registry: str) -> None:
    with pytest.raises(Unmade, match="is no OCI layout"):
        list(publish.publish(checkout, tmp_path / "made", tmp_path / "layout", registry, [], rehearsal=True))


# Which image is published


def test_the_page_builds_the_image_of_committed_files_only(checkout: Path) -> None:
    """Git knows nothing of a file that a user's settings have it ignore; an image of the checkout has it."""
    (checkout / ".git" / "info" / "exclude").write_text("/secret.env\n/build/\n", "utf-8")
    for name in ("secret.env", "build/source/old.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("KEY=1\n", "utf-8")
    assert git(checkout, "status", "--porcelain") == ""
    lines = [line.removeprefix("$ ") for line in (ROOT / "docs/releases.md").read_text("utf-8").splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("buildah build "))
    subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(lines[at - 2 : at])], cwd=checkout, check=True)
    folder = lines[at].split()[-1]
    assert {file.name for file in (checkout / folder).rglob("*")} == {"pyproject.toml"}


OURS = {"org.opencontainers.image.version": "0.1.0", "org.opencontainers.image.revision": "c" * 40}
RELEASE = Release("0.1.0", "c" * 40, 0)


def test_an_image_of_the_commit_is_published_by_its_digest(tmp_path: Path) -> None:
    entry = oci_layouts.of_image(tmp_path, OURS)
    oci_layouts.name(tmp_path, entry)
    assert publish.built(tmp_path, RELEASE) == entry["digest"]


def test_an_index_is_published_whose_images_are_all_of_the_commit(tmp_path: Path) -> None:
    """BuildKit adds an entry with the platform `unknown` for what it says about an image."""
    index = oci_layouts.of_platforms(tmp_path, {"linux": OURS, "unknown": {}})
    oci_layouts.name(tmp_path, index)
    assert publish.built(tmp_path, RELEASE) == index["digest"]
    oci_layouts.name(tmp_path, oci_layouts.of_platforms(tmp_path, {"linux": OURS, "windows": {}}))
    with pytest.raises(Unmade, match=r"label org\.opencontainers\.image\.version is ''"):
        publish.built(tmp_path, RELEASE)
    oci_layouts.name(tmp_path, oci_layouts.of_platforms(tmp_path, {"unknown": OURS}))
    with pytest.raises(Unmade, match="no image for any platform"):
        publish.built(tmp_path, RELEASE)


@pytest.mark.parametrize("label", OURS)
@pytest.mark.parametrize("value", ["", "0.2.0", "d" * 40])
def test_an_image_of_another_commit_is_not_published(tmp_path: Path, label: str, value: str) -> None:
    oci_layouts.name(tmp_path, oci_layouts.of_image(tmp_path, {**OURS, label: value}))
    with pytest.raises(Unmade, match=rf"label {label} is '{value}'.*build it from the release's commit"):
        publish.built(tmp_path, RELEASE)


def test_a_layout_with_other_contents_than_its_digests_is_refused(tmp_path: Path) -> None:
    entry = oci_layouts.of_image(tmp_path, {})
    oci_layouts.name(tmp_path, entry)
    blobs = tmp_path / "blobs" / "sha256"
    forged = (blobs / oci_layouts.of_image(tmp_path, OURS)["digest"].removeprefix("sha256:")).read_bytes()
    (blobs / entry["digest"].removeprefix("sha256:")).write_bytes(forged)
    with pytest.raises(Unmade, match=r"the contents of sha256:.* are others"):
        publish.built(tmp_path, RELEASE)


@pytest.mark.parametrize("index", ["", "{}", "[]", '{"manifests": []}', '{"manifests": [{}]}', '{"manifests": [7]}'])
def test_what_is_no_layout_is_refused(tmp_path: Path, index: str) -> None:
    (tmp_path / "index.json").write_text(index, "utf-8")
    with pytest.raises(Unmade, match="is no OCI layout with one image"):
        publish.built(tmp_path, RELEASE)


def test_a_layout_of_two_images_is_refused(tmp_path: Path) -> None:
    entry = oci_layouts.of_image(tmp_path, OURS)
    oci_layouts.name(tmp_path, entry, entry)
    with pytest.raises(Unmade, match="is no OCI layout with one image"):
        publish.built(tmp_path, RELEASE)


@pytest.mark.parametrize("digest", ["sha256:../../../index.json", "sha512:" + "0" * 128, "", 7])
def test_a_layout_names_no_file_but_a_blob(tmp_path: Path, digest: object) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"manifests": [{"digest": digest, "mediaType": "x"}]}), "utf-8")
    with pytest.raises(Unmade, match="is no OCI layout with one image"):
        publish.built(tmp_path, RELEASE)
