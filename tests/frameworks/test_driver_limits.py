"""The driver's limit of a cgroup stops each framework, without a variable, an argument or the shim.

Real wheels run on a pretended T4 that limits a real cgroup, as NVIDIA's driver does from R615 on by its documents
(nvml.h 13.5). No such driver was seen. CuPy's wheel is not here: NVIDIA's runtime is linked into it, looks up functions
that the pretended driver lacks, such as cuGraphAddNode, and refuses this driver as too old (14.2.0,
cudaErrorCallRequiresNewerDriver).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.card import Card
from tests.frameworks.conftest import GREEDY
from tests.frameworks.environments import python
from tests.frameworks.running import T4, Ran
from tests.support.card.state import State

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("CI")), reason="`make nightly` runs it: four frameworks have to start"
)

LIMIT = 3708
"""MiB: a slice of a T4 shared by four."""

SET = """
import ctypes, sys
class Limits(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("soft", ctypes.c_ulonglong), ("hard", ctypes.c_ulonglong)]
nvml, device, hard = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), int(sys.argv[2]) << 20
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
limits = Limits(sys.argv[1].encode(), hard, hard)
sys.exit(nvml.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(limits)))
"""
ENTER = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'


@pytest.fixture
def group() -> Iterator[Path]:
    """A cgroup of its own; skips where none can be made."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 ") and os.access(mount := Path(before.split()[4]), os.W_OK):
            folder = mount / f"slicewarden-limit-{os.getpid()}"
            folder.mkdir()
            yield folder
            folder.rmdir()
            return
    pytest.skip("no cgroup v2 that this user may write to")


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("torch-2.9.1", "pytorch"),
        ("torch-2.15.0", "pytorch"),
        ("tensorflow-2.21.0", "tensorflow"),
        ("jax-0.10.2", "jax"),
    ],
)
def test_the_limit_of_the_driver_stops_a_framework_that_nothing_else_caps(
    tmp_path: Path, group: Path, name: str, framework: str
) -> None:
    card, sh = Card(T4, tmp_path / "card"), str(shutil.which("sh"))
    State.opened(card.file).set(limits=1)
    surroundings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **card.environment()}
    subprocess.run([sys.executable, "-c", SET, str(group), str(LIMIT)], env=surroundings, check=True)
    entered = [sh, "-c", ENTER, "sh", str(group), str(python(name)), str(GREEDY), framework]
    done = subprocess.run(entered, env=surroundings, capture_output=True, text=True, timeout=300, check=False)
    ran = Ran(done.returncode, done.stdout, done.stderr, card)
    assert ran.stopped
    assert card.refused
    assert 0.8 * LIMIT < card.peak <= LIMIT
