"""Compiles the library of the simulated cards."""

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent

NAMES = (
    "libcuda.so.1",
    "libcudart.so.12",
    "libcudart.so.13",
    "libnvidia-ml.so.1",
    # Frameworks want to see these beside them before they look at a card; nothing in these is ever called.
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
"""One library under all names, so that things which several libraries count are counted once."""


class CannotCompile(Exception):
    """The library cannot be compiled. The text is the reason, in one line."""


@functools.cache
def library() -> Path:
    """Return the library, compiled again if its source has changed. Raises CannotCompile.

    It is in the cache outside the tree, in a folder that has it under each of its names.
    """
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources) + "".join(NAMES).encode()).hexdigest()
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slicewarden", "card")
    folder = root / digest[:16]
    if not folder.exists():
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as scratch:
            made = Path(scratch) / "made"
            made.mkdir()
            _compile(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():  # else another run has made the same meanwhile
                    raise
    return folder / "libnvidia-ml.so.1"


def _compile(folder: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotCompile("the pretended card needs a C compiler: cc, gcc or clang")
    # NVIDIA's binding loads NVML by this name, which a process that has it already then finds.
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    sources = map(str, sorted(SOURCES.glob("*.c")))
    command = [compiler, *flags, "-o", str(folder / "libnvidia-ml.so.1"), *sources, "-ldl", "-pthread"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise CannotCompile(f"the pretended card needs a C compiler for Linux; {compiler}: {run.stderr[:300]!r}")
    for name in NAMES:
        if name != "libnvidia-ml.so.1":
            (folder / name).symlink_to("libnvidia-ml.so.1")
