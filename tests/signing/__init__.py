"""Signed statements and a published release, with cosign and a registry. `make nightly` runs these tests."""

from pathlib import Path

from tests.chart import helm
from tests.signing import cosign, registry


def programs() -> tuple[Path, ...]:
    """Return the folders of the programs that publish a release. Raises go_programs.Missing."""
    return (registry.programs(), cosign.find().parent, helm.find().parent)
