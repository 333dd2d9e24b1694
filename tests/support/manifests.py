"""The manifests as they stand in Git."""

from pathlib import Path

import yaml

from tests import ROOT
from tests.support.objects import Object

BASE, OVERLAYS, COMPONENTS = (ROOT / "manifests" / name for name in ("base", "overlays", "components"))

REGISTRATION = ROOT / "policies" / "registration.yaml"
"""What is registered for the sample policy."""


def read(file: Path) -> list[Object]:
    """The documents of a file."""
    return list(yaml.safe_load_all(file.read_text("utf-8")))
