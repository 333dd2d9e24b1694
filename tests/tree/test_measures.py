"""What the benchmarks measure with: the cost of a command, and the layers of a worker."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench import layers
from bench.decision import ROOT
from bench.generator import Wrong
from bench.https import certificates
from bench.processes import PROC, cost

MIB = 2**20


def test_the_memory_of_a_command_is_its_own_and_not_that_of_the_process_that_measures() -> None:
    ours = bytearray(96 * MIB)
    ours[::4096] = b"." * (len(ours) // 4096)  # every page is held

    small = cost([sys.executable, "-S", "-c", "pass"], {})
    large = cost([sys.executable, "-S", "-c", f"len(b'.' * {64 * MIB})"], {})

    assert small.memory < 32
    assert 64 < large.memory < 96
    assert small.cpu > 0


def test_the_output_of_a_command_is_kept_and_its_status_is_looked_at(tmp_path: Path) -> None:
    output = tmp_path / "output"
    cost([sys.executable, "-S", "-c", "print('said')"], {}, output=str(output))
    assert output.read_text("utf-8") == "said\n"
    with pytest.raises(Wrong, match="exit status 3"):
        cost([sys.executable, "-S", "-c", "raise SystemExit(3)"], {})


@pytest.mark.thorough
@pytest.mark.skipif(not (PROC / "self" / "schedstat").exists(), reason="the profile reads /proc/PID/schedstat")
def test_each_layer_of_a_worker_answers_and_is_measured(tmp_path: Path) -> None:
    certificates(tmp_path)
    few = "layers.ROUNDS = layers.ASKED = layers.WARM_UP = layers.CONNECTIONS = layers.OPENED = 1"
    program = f"import sys; from bench import layers; {few}; layers.main(*sys.argv[1:])"
    environment = {"PYTHONPATH": str(ROOT), "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program, "times", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert {layer for _, layer, _ in rows} == {*layers.LAYERS, ""}
    assert len(rows) == 3 * (len(layers.LAYERS) + 1)
    spent = {(review, layer): float(figure) for review, layer, figure in rows}
    for review in {review for review, _ in spent}:
        assert spent[review, "decision"] > spent[review, "socket"] > 0
