"""Prometheus, built from the pins in go.mod."""

from pathlib import Path

from tests.support.go_programs import built

HERE = Path(__file__).resolve().parent


def find(name: str) -> Path:
    """Return one of its programs, `promtool` or `prometheus`. Raises go_programs.Missing."""
    folder = built(
        HERE,
        {name: f"github.com/prometheus/prometheus/cmd/{name}"},
        without_go="the monitoring tests need Go 1.26 (https://go.dev/dl)",
        patience="; the first time, four minutes or so",
        tags="remove_all_sd,enable_kubernetes_sd",  # not the clients of clouds
    )
    return folder / name
