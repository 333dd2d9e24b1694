"""Check what the image is made of, as far as can be told without making it."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests import ROOT
from webhook.cli.root import root

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
IMAGE = ROOT / "manifests" / "image"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PINS = {
    IMAGE / "runtime.txt": ("--extra", "agent"),
    IMAGE / "build.txt": ("--only-group", "build"),
    ROOT / ".github" / "uv.txt": ("--only-group", "lock"),
}
EXPORT = "export --quiet --frozen --no-default-groups --no-emit-project --no-header --no-annotate"


def uv(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Ask without a network, and without what a user has configured."""
    command = [
        str(Path(sys.executable).parent / "uv"),
        *arguments,
        "--offline",
        "--no-config",
        "--python",
        sys.executable,
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


# The lock


def test_the_lock_fits_the_project() -> None:
    """`make lock` has nothing to write."""
    checked = uv("lock", "--check")
    assert checked.returncode == 0, checked.stderr
    for file, only in PINS.items():
        assert uv(*EXPORT.split(), *only).stdout == file.read_text("utf-8"), file.name
    assert EXPORT in (ROOT / "Makefile").read_text("utf-8")


def test_a_lock_that_does_not_fit_is_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "uv.lock", tmp_path)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    (tmp_path / "pyproject.toml").write_text(text.replace('"flask>=3.1,<4"', '"flask>=9"'), "utf-8")
    assert uv("lock", "--check", folder=tmp_path).returncode != 0


@pytest.mark.parametrize("file", PINS, ids=lambda file: str(file.name))
def test_everything_has_a_hash(file: Path) -> None:
    text = file.read_text("utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[\w.-]+==\S+( ; [^-]+)?(\s+--hash=sha256:[0-9a-f]{64})+$", line), line[:80]


def test_the_wheel_is_built_by_the_backend_of_the_project() -> None:
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


def test_the_sbom_names_every_locked_package() -> None:
    """Return what `make sbom` prints."""
    options = (
        "export --quiet --frozen --no-default-groups --extra agent --preview-features sbom-export --format cyclonedx1.5"
    )
    assert options in (ROOT / "Makefile").read_text("utf-8")
    listed = {each["name"] for each in json.loads(uv(*options.split()).stdout)["components"]}
    assert listed == {*re.findall(r"^([\w.-]+)==", (IMAGE / "runtime.txt").read_text("utf-8"), re.MULTILINE)}


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_every_locked_package_has_a_wheel_for_both_architectures(architecture: str) -> None:
    """The image installs nothing else, and a package without a wheel would stop its build for that architecture."""
    (base,) = re.findall(r"^ARG BASE=.*python:3\.(\d+)-", DOCKERFILE, re.MULTILINE)
    needed = {*re.findall(r"^([\w.-]+)==", (IMAGE / "runtime.txt").read_text("utf-8"), re.MULTILINE)}
    locked = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))["package"]
    fits = re.compile(
        rf"-(?:(?:py2\.)?py3-none-any|cp3{base}-cp3{base}-manylinux\S*_{architecture}|cp3\d+-abi3-manylinux\S*_{architecture})\b"
    )
    without = {
        each["name"]
        for each in locked
        if each["name"] in needed and not any(fits.search(wheel["url"]) for wheel in each["wheels"])
    }
    assert without == set()


# The Dockerfile


STAGES = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)[1:]


def test_both_stages_start_from_one_image_pinned_by_digest() -> None:
    (base,) = re.findall(r"^ARG BASE=(.*)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base)
    assert [stage.splitlines()[0].split()[1] for stage in STAGES] == ["${BASE}", "${BASE}"]


def test_the_image_runs_the_command_without_root() -> None:
    lines = STAGES[-1].splitlines()
    assert "USER 65532:65532" in lines
    assert lines[-1] == f'ENTRYPOINT ["{root.name}"]'
    (path,) = [line for line in lines if line.startswith("ENV PATH=")]
    assert "COPY --from=build /opt/slicewarden /opt/slicewarden" in lines
    assert path.startswith("ENV PATH=/opt/slicewarden/bin:")


def test_the_last_stage_installs_nothing() -> None:
    runs = [line for line in STAGES[-1].splitlines() if line.startswith("RUN")]
    assert [run.split()[4] for run in runs] == ["uninstall"]


def test_the_image_has_a_label_with_its_release() -> None:
    assert f"ARG VERSION={PROJECT['project']['version']}" in STAGES[-1].splitlines()
    for label in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{label}=" in STAGES[-1]
    assert PROJECT["project"]["description"] in STAGES[-1]


def test_every_file_that_the_image_copies_exists_and_is_not_ignored() -> None:
    """.dockerignore lets in by name, so that no key and no cache of a working copy gets into a layer."""
    everything, *kept = [
        line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if not line.startswith("#")
    ]
    assert (everything, kept.pop()) == ("*", "**/__pycache__")
    names = [
        name for words in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for name in words.split()[:-1]
    ]
    assert sorted(f"!{name}" for name in names) == sorted(kept)
    assert all((ROOT / name).exists() for name in names)


def test_the_image_copies_every_file_of_the_wheel() -> None:
    made = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    read = [PROJECT["project"]["readme"], *PROJECT["project"]["license-files"], "pyproject.toml"]
    copied = " ".join(re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)).split()
    assert {*made, *read} <= {*copied}
    links = [each for package in made for each in (ROOT / package).rglob("*") if each.is_symlink()]
    for link in links:
        target = link.resolve().relative_to(ROOT).as_posix()
        assert any(fnmatch(target, f"{name}/*") for name in copied), f"{link} leads to {target}"
