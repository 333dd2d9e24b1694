"""Tests a client of MPS on a real card: the limit that the daemon sets, and the agent's report of the client."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.gpu.containers import Unwritable, containers
from bench.gpu.limits import fill
from bench.gpu.nvml import Card
from bench.gpu.tables import Measured
from webhook.agent.observe import look
from webhook.agent.observe.nvml import Cards
from webhook.agent.observe.processes import Processes
from webhook.policy.model import Over

CONTROL = "nvidia-cuda-mps-control"
HEAD = ("limit of the plugin (MiB)", "took", "reported by NVML", "as a client of MPS", "verdict")


def run(card: Card, slices: int) -> Measured:
    """Test, and return the table. The daemon gets the limit that NVIDIA's plugin would set.

    Raises Unwritable and Unavailable.
    """
    control = shutil.which(CONTROL)
    if control is None:
        raise Unwritable(f"no {CONTROL} on PATH")
    limit = card.total // slices
    with _daemon(control, limit) as environment, containers(environment, needed=False) as made:
        cards = Cards()
        try:
            program = made.run(made.make())
            took = fill((program,), card.total)
            (seen, *_) = look.look(cards, Processes())
            uses = [*seen.host, *(each for use in seen.uses for each in use.processes)]
            own = next((each for each in uses if each.process.pid == program.pid), None)
        finally:
            cards.close()
    client, mib = own is not None and own.mps, None if own is None else own.mib
    within = mib is not None and mib <= limit + Over().slack
    good = client and within and 0 < took <= limit
    verdict = "refused at its limit, and within its allowance" if good else "**wrong**"
    row = (str(limit), str(took), "" if mib is None else str(mib), "yes" if client else "no", verdict)
    return Measured(HEAD, [row], good)


@contextmanager
def _daemon(control: str, limit: int) -> Iterator[dict[str, str]]:
    """Run the daemon until the block ends. Yields the environment of its clients."""
    with tempfile.TemporaryDirectory() as folder:
        pipe, log = Path(folder) / "pipe", Path(folder) / "log"
        pipe.mkdir()
        log.mkdir()
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(log)}

        def ask(text: str) -> None:
            subprocess.run([control], env=environment, input=f"{text}\n", capture_output=True, text=True, check=True)

        subprocess.run([control, "-d"], env=environment, capture_output=True, check=True)
        try:
            ask(f"set_default_device_pinned_mem_limit 0 {limit}M")
            yield environment
        finally:
            ask("quit")
