"""The tests here run when they are asked for by path: `pytest tests/image`. They need PyPI, and Linux's namespaces."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dockerfile import copy_sources


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that another /tmp does not hide."""
    with tempfile.TemporaryDirectory(prefix="slicewarden-image-", dir="/var/tmp") as made:
        yield Path(made)
        subprocess.run(["chmod", "-R", "u+w", made], check=True)


@pytest.fixture(scope="session")
def source(folder: Path) -> Path:
    """Copy what the Dockerfile copies, and nothing else."""
    context = folder / "source"
    copy_sources(context)
    return context


def build(source: Path, prefix: Path) -> None:
    """Run the image's build steps."""
    command = [source / "manifests/image/build.sh", prefix]
    environment = {**os.environ, "PYTHON": sys.executable}
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


@pytest.fixture(scope="session")
def prefix(source: Path, folder: Path) -> Path:
    """Make what the image has under /opt."""
    build(source, folder / "built")
    return folder / "built"
