"""bench/gpu on the pretended card, which has no contexts, and on none."""

import os
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.frameworks import environments
from tests.frameworks.card import Card
from tests.frameworks.running import T4


def bench(card: Card, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.gpu", *options],
        cwd=ROOT,
        env={**os.environ, **card.environment()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_programs_share_a_card(tmp_path: Path) -> None:
    card = Card(T4, tmp_path / "card")
    ran = bench(card, "--slices", "2", "--python", str(environments.python("torch-2.15.0")))
    assert ran.returncode == 0, ran.stderr
    assert "Pretended Card, 15,360 MiB (0 in use)" in ran.stdout
    assert "| each stopped at its cap, all fit |" in ran.stdout
    assert 0.8 * T4 < card.peak < T4
    assert not card.refused


def test_without_a_card_nothing_is_measured(tmp_path: Path) -> None:
    ran = bench(Card(0, tmp_path / "card"))
    assert ran.returncode == 0
    assert ran.stdout == "nothing measured: there is no NVIDIA GPU here (an NVIDIA driver, but no card)\n"
