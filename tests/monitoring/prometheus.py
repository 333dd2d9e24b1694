"""Prometheus, built from the pins in go.mod."""

import socket
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.go_programs import built
from tests.support.waiting import until

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


@contextmanager
def serving(folder: Path, series: Iterable[str]) -> Iterator[str]:
    """Run a Prometheus that has these series, lines in OpenMetrics with times, and scrapes nothing. Yields its URL."""
    text = folder / "series.txt"
    text.write_text("".join(f"{line}\n" for line in (*series, "# EOF")), "utf-8")
    filled = subprocess.run(
        [find("promtool"), "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert filled.returncode == 0, filled.stderr
    with running(folder, "{}") as url:
        yield url


@contextmanager
def running(folder: Path, settings: str) -> Iterator[str]:
    """Run a Prometheus with these settings and the series that the folder has. Yields its URL."""
    (folder / "prometheus.yaml").write_text(settings)
    with socket.create_server(("127.0.0.1", 0)) as free:
        at = f"127.0.0.1:{free.getsockname()[1]}"
    command: list[str | Path] = [
        find("prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={at}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or ready(f"http://{at}/-/ready"), "Prometheus is ready", pause=0.05)
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        yield f"http://{at}"
    finally:
        process.terminate()
        process.wait()


def ready(url: str) -> bool:
    """Return whether it answers."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
