"""The charts of what users run beside us, out of the modules by which its programs are built."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.node import programs

VALUES = Path(__file__).resolve().parent / "values"


class Chart(NamedTuple):
    """The pins and the module of a chart, and its folder in there."""

    pins: str
    module: str
    folder: str


CHARTS = {
    "cert-manager": Chart("cert-manager", programs.CERT_MANAGER, "deploy/charts/cert-manager"),
    "nfd": Chart("labels", programs.NFD, "deployment/helm/node-feature-discovery"),
}


def find() -> dict[str, Path]:
    """Return where the charts are, by name. Raises go_programs.Unbuilt."""
    return {name: programs.source(chart.pins, chart.module) / chart.folder for name, chart in CHARTS.items()}


def install(sh: Callable[[str], str], name: str, namespace: str) -> None:
    """Install a chart with the values that lie here, and wait until its pods are ready."""
    sh(
        f"helm install {name} {find()[name]} --namespace {namespace} --create-namespace "
        f"--values {VALUES / name}.yaml --wait --timeout 120s"
    )
