"""One environment for each release of a framework that is tried: the wheels named in wheels/, and nothing else."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.frameworks.cache import Missing, made

WHEELS = Path(__file__).resolve().parent / "wheels"
NAMES = tuple(sorted(file.stem for file in WHEELS.glob("*.txt")))

EAGER = {
    "torch-2.4.1": ("torch/lib/libtorch_cuda.so", "torch/lib/libtorch_python.so", "torch/lib/libtorch_cuda_linalg.so")
}
"""The libraries of older wheels that look up all of NVIDIA's functions as they are loaded."""


def python(name: str) -> Path:
    """Return the interpreter of an environment, made if it is not there. Raises Missing.

    Wheels are installed without what they ask for: NVIDIA's libraries would be another ten gigabytes, and the
    pretended card stands for them.
    """
    wheels = WHEELS / f"{name}.txt"
    digest = hashlib.sha256(wheels.read_bytes() + sys.version.encode()).hexdigest()
    return made(name, digest, lambda folder: _install(wheels, folder)) / "bin" / "python"


def _install(wheels: Path, folder: Path) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or not (3, 11) <= sys.version_info < (3, 13):
        raise Missing("the framework tests need Linux on x86-64 with Python 3.11 or 3.12, for which there are wheels")
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise Missing("the framework tests need uv: pip install uv")
    print(f"installing {wheels.stem}", file=sys.stderr, flush=True)
    start = time.monotonic()
    _run(uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder))
    _run(uv, "pip", "install", "--quiet", "--no-deps", "--python", str(folder), "--requirement", str(wheels))
    print(f"installed {wheels.stem} in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)


def _run(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        reason = " ".join(run.stderr.split())[:300]
        raise Missing(f"the framework tests need wheels from PyPI, the first time; uv stopped: {reason}")


def stubs(name: str, card: Path) -> Path | None:
    """Return a library with what an older wheel looks up in NVIDIA's libraries as it is loaded, and never calls.

    `card` is the pretended card's library, which has the rest. None for newer wheels, which look up at the first call.
    """
    if name not in EAGER:
        return None
    site = next((python(name).parents[1] / "lib").glob("python3*")) / "site-packages"
    libraries = [site / library for library in EAGER[name]]
    digest = hashlib.sha256((WHEELS / f"{name}.txt").read_bytes() + card.read_bytes()).hexdigest()
    return made(f"stubs-{name}", digest, lambda folder: _stubs(libraries, card, folder)) / "libstubs.so"


def _stubs(libraries: list[Path], card: Path, folder: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(card.parent)}
    names = set()
    for library in libraries:
        ran = subprocess.run(["ldd", "-r", str(library)], env=environment, capture_output=True, text=True, check=False)
        # Names of C++ begin with _Z; they belong to the interpreter or to the wheel itself.
        names |= set(re.findall(r"undefined symbol: ((?!_Z|Py|_Py)\w+)", ran.stdout + ran.stderr))
    source = folder / "stubs.c"
    source.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names)), "utf-8")
    _run("cc", "-w", "-fno-builtin", "-shared", "-fPIC", "-o", str(folder / "libstubs.so"), str(source))
