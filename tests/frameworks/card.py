"""Compile the pretended card, and let programs run on it."""

import hashlib
import shutil
import struct
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.frameworks.cache import Missing, made

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "card"
PRETEND = HERE / "pretend"

MIB = 2**20

NAMES = (
    "libcuda.so.1",
    "libcudart.so.12",
    "libcudart.so.13",
    "libnvidia-ml.so.1",
    # What frameworks want to see beside them before they look at a card; nothing in these is ever called.
    "libcublas.so.12",
    "libcublas.so.13",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
    "libcudnn.so.8",
    "libcudnn.so.9",
    "libcufft.so.11",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcupti.so.12",
    "libcupti.so.13",
    "libcurand.so.10",
    "libcusolver.so.11",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvJitLink.so.12",
    "libnvrtc.so.12",
    "libnvrtc.so.13",
    "libnvToolsExt.so.1",
    "libnvshmem_host.so.3",
)
"""One library under the names of all: what several of them count is then counted once."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card of so many MiB, whose use is counted in a file while processes share it."""

    mib: int
    ledger: Path

    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to find this card and no other."""
        return {
            "LD_LIBRARY_PATH": str(library().parent),
            "PYTHONPATH": str(PRETEND),
            "CARD_MIB": str(self.mib),
            "CARD_LEDGER": str(self.ledger),
            # JAX compares the versions of NVIDIA's libraries, which are not there.
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
        }

    @property
    def used(self) -> float:
        """MiB that are taken now."""
        return self._read()[0] / MIB

    @property
    def peak(self) -> float:
        """The most MiB that were ever taken at once, by all processes together."""
        return self._read()[1] / MIB

    @property
    def refused(self) -> int:
        """How often the card itself, rather than a framework, had no more memory to give."""
        return self._read()[2]

    def _read(self) -> tuple[int, int, int]:
        used, peak, refused = struct.unpack("=QQQ", self.ledger.read_bytes())
        return used, peak, refused


@cache
def library() -> Path:
    """Return the card's library, compiled if it was not since its source last changed. Raises Missing."""
    sources = sorted(SOURCES.iterdir())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources) + "".join(NAMES).encode()).hexdigest()
    return made(f"card-{digest[:16]}", digest, _compile) / "libcard.so"


def _compile(folder: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise Missing("the framework tests need a C compiler: cc, gcc or clang")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    command = [compiler, *flags, "-o", str(folder / "libcard.so"), *map(str, SOURCES.glob("*.c")), "-ldl"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Missing(f"the framework tests need a C compiler for Linux; {compiler} stopped: {run.stderr[:200]!r}")
    for name in NAMES:
        (folder / name).symlink_to("libcard.so")
