"""Reads the manifests of the repository."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests import ROOT
from tests.support.objects import Object

BASE, OVERLAYS, COMPONENTS = (ROOT / "manifests" / name for name in ("base", "overlays", "components"))

REGISTRATION = ROOT / "policies" / "registration.yaml"
"""The registration of the sample policy."""

NAMED = "registry.example.com/slicewarden@sha256:..."
"""The image as the commands of manifests/README.md name it."""


def read(file: Path) -> list[Object]:
    """Return the documents of a file."""
    return list(yaml.safe_load_all(file.read_text("utf-8")))


def powers(role: Mapping[str, Any]) -> set[tuple[str, str, str]]:
    """Return the rights of a role: group, resource and verb."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def commands(page: str = "manifests/README.md") -> dict[str, list[str]]:
    """Return the blocks of commands in a page, by the headings above them. A subsection belongs to its section."""
    sections = re.split(r"^## ", (ROOT / page).read_text("utf-8"), flags=re.MULTILINE)
    return {
        section.partition("\n")[0]: re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        for section in sections
    }
