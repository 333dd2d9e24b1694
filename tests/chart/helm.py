"""Helm, built from the pins in go.mod."""

from pathlib import Path

from tests.support.go_programs import built

HERE = Path(__file__).resolve().parent


def find() -> Path:
    """Return the program. Raises go_programs.Missing."""
    without = "the chart's tests need Go 1.26 (https://go.dev/dl)"
    folder = built(HERE, {"helm": "helm.sh/helm/v4/cmd/helm"}, without_go=without, patience="; two minutes or so")
    return folder / "helm"
