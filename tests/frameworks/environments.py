"""One environment for each release of a framework that is tried: the wheels named in wheels/, and nothing else."""

import hashlib
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.frameworks.cache import Missing, made

WHEELS = Path(__file__).resolve().parent / "wheels"
NAMES = tuple(sorted(file.stem for file in WHEELS.glob("*.txt")))


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
