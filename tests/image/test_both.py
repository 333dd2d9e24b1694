"""The index of the images for amd64 and arm64, made by the commands of docs/releases.md.

The Dockerfile here has the labels of the real one, and runs no program: it needs no base image and no emulator.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from manifests import publish
from manifests.make_release import known
from tests import ROOT
from tests.support.dockerfile import DOCKERFILE

pytestmark = pytest.mark.skipif(shutil.which("buildah") is None, reason="needs buildah (apt-get install buildah)")
SETTINGS = re.sub(r"^(?:RUN|COPY) .*\n", "", DOCKERFILE.rpartition("FROM ${BASE}\n")[2], flags=re.MULTILINE)
SINGLE = "buildah build --tag slicewarden build/source"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (version,) = re.findall(r"^ARG VERSION=(.*)$", DOCKERFILE, re.MULTILINE)
    root = tmp_path / "checkout"
    root.mkdir()
    (root / ".gitignore").write_text("/build/\n", "utf-8")
    (root / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n', "utf-8")
    (root / "Dockerfile").write_text(f"FROM scratch\nCOPY pyproject.toml /\n{SETTINGS}", "utf-8")
    shell("git init --quiet", root)
    commit(root)
    return root


@pytest.fixture
def path() -> Iterator[str]:
    """A $PATH with a buildah that stores its images in a folder of the test."""
    with tempfile.TemporaryDirectory(prefix="slicewarden-both-", dir="/var/tmp") as folder:
        program = Path(folder) / "buildah"
        options = f"--root={folder}/storage --runroot={folder}/run --storage-driver=vfs"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("buildah")} {options} "$@"\n', "utf-8")
        program.chmod(0o755)
        yield f"{folder}{os.pathsep}{os.environ['PATH']}"


def shell(script: str, root: Path, path: str = os.environ["PATH"]) -> None:
    command = ("bash", "-euo", "pipefail", "-c", script)
    done = subprocess.run(command, cwd=root, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def commit(root: Path) -> None:
    who = "-c user.name=Ada -c user.email=ada@example.org -c commit.gpgsign=false"
    shell(f"git add --all && git {who} commit --quiet --allow-empty --message=all", root)


def commands() -> tuple[str, str]:
    """Return the page's commands that copy the committed files, and those that make the layout of both images."""
    page = (ROOT / "docs" / "releases.md").read_text("utf-8")
    publishing, _, both = page.partition("## Publish it\n")[2].partition("### For amd64 and arm64\n")
    lines = [
        [line.removeprefix("$ ") for line in re.findall(r"```console\n(.*?)```", section, re.DOTALL)[0].splitlines()]
        for section in (publishing, both)
    ]
    copied = lines[0][: next(number for number, line in enumerate(lines[0]) if line.startswith("buildah "))]
    return "\n".join(copied), "\n".join(lines[1])


def built(checkout: Path) -> str:
    """Return the digest of the index that `make publish` would push, which has to have one image for each."""
    layout = checkout / "build/image"
    digest = publish.built(layout, known(checkout, rehearsal=True))
    index = json.loads((layout / "blobs" / digest.replace(":", "/")).read_bytes())
    assert [each["platform"]["architecture"] for each in index["manifests"]] == ["amd64", "arm64"]
    return digest


def test_the_page_makes_the_same_index_of_both_images_each_time(checkout: Path, path: str) -> None:
    """An earlier build may have left images: of this commit, of another, and one of that name without an index."""
    copied, both = commands()
    shell(f"{copied}\n{both}", checkout, path)
    first = built(checkout)
    shell(f"{copied}\n{SINGLE}\n{both}", checkout, path)
    assert built(checkout) == first
    commit(checkout)
    shell(f"{copied}\n{both}", checkout, path)
    assert built(checkout) != first
