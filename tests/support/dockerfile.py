"""Reads the Dockerfile, and copies the files that it copies."""

import re
import shutil
from pathlib import Path

from tests import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def copy_sources(context: Path) -> None:
    """Fill a new folder with the files that the Dockerfile copies, and nothing else."""
    for words in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        *names, target = words.split()
        for name in names:
            place = context / target / name if target.endswith("/") else context / target
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place)
