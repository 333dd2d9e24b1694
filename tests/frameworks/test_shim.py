"""The shim in real wheels, delivered as the webhook's patch says: files, mounts and environment of the admitted pod."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.injected import admitted
from tests.frameworks import environments
from tests.frameworks.card import PRETEND
from tests.frameworks.conftest import Program
from tests.frameworks.running import T4, Ran, mounted
from webhook.memory.shim.delivery import FOLDER

PROBES = Path(__file__).parent / "probes"
BUDGET, CHUNK = 3251, 64
"""MiB: four slices of a T4, and what the probes take at once."""

OLDER = ("torch-2.4.1", "torch-2.9.1", "tensorflow-2.15.1", "tensorflow-2.21.0")
TORCH = ("torch-2.4.1", "torch-2.9.1")
TENSORFLOW = ("tensorflow-2.15.1", "tensorflow-2.21.0")

Delivered = Callable[..., dict[str, str]]


@pytest.fixture
def delivered(tmp_path: Path) -> Delivered:
    """Write the files that the admitted pod mounts below a folder, and return its environment."""

    def deliver(path: str = str(PRETEND), **written: str) -> dict[str, str]:
        pod = admitted("Tesla-T4", T4, 4, {"PYTHONPATH": path, **written}, shim=True)
        return mounted(pod, tmp_path)

    return deliver


def taken(ran: Ran) -> Any:
    assert ran.status == 0, ran.error[-2000:]
    return json.loads(ran.out.splitlines()[-1])


@pytest.mark.parametrize("name", OLDER)
def test_frameworks_without_a_variable_stop_at_the_slice(on_greed: Program, delivered: Delivered, name: str) -> None:
    ran = on_greed(name, delivered())
    assert ran.stopped
    assert not ran.card.refused
    assert 0.9 * BUDGET < ran.card.peak <= BUDGET


@pytest.mark.parametrize("name", ["torch-2.10.0", "torch-2.15.0"])
def test_newer_torch_keeps_the_cap_of_its_variable(on_greed: Program, delivered: Delivered, name: str) -> None:
    ran = on_greed(name, delivered())
    assert ran.stopped
    assert 0.9 * BUDGET < ran.card.peak <= BUDGET


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver", "threads", "program", "data loader", "larger fraction"])
def test_torch_is_capped_however_its_process_comes_to_be(
    on_card: Program, delivered: Delivered, name: str, way: str
) -> None:
    ran = on_card(name, delivered(), str(PROBES / "processes.py"), way)
    assert taken(ran) == BUDGET // CHUNK * CHUNK
    assert not ran.card.refused
    assert ("is lowered to 0.211" in ran.error) is (way == "larger fraction")


@pytest.mark.parametrize("name", TORCH)
def test_a_smaller_fraction_of_the_program_stands(on_card: Program, delivered: Delivered, name: str) -> None:
    assert (
        taken(on_card(name, delivered(), str(PROBES / "processes.py"), "smaller fraction")) == T4 // 10 // CHUNK * CHUNK
    )


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("setting", ["expandable_segments:True", "max_split_size_mb:128", "backend:cudaMallocAsync"])
def test_torch_is_capped_with_other_settings(on_greed: Program, delivered: Delivered, name: str, setting: str) -> None:
    ran = on_greed(name, delivered(PYTORCH_CUDA_ALLOC_CONF=setting))
    assert ran.stopped
    assert ran.card.peak <= BUDGET


@pytest.mark.parametrize("name", [*TORCH, *TENSORFLOW])
def test_an_import_initialises_no_gpu(on_card: Program, delivered: Delivered, name: str) -> None:
    probe = "processes.py" if name in TORCH else "tensorflow_devices.py"
    assert taken(on_card(name, delivered(), str(PROBES / probe), "import")) in (0, [0])


@pytest.mark.parametrize("name", TENSORFLOW)
@pytest.mark.parametrize(
    ("way", "most"),
    [
        ("growth", [3200]),
        ("one large device", [3200]),
        ("one small device", [960]),
        ("two devices", [2112, 1024]),
        ("session", [3240]),
    ],
)
def test_tensorflow_is_capped_however_it_is_configured(
    on_card: Program, delivered: Delivered, name: str, way: str, most: list[int]
) -> None:
    assert taken(on_card(name, delivered(), str(PROBES / "tensorflow_devices.py"), way)) == most


@pytest.mark.parametrize(("asked", "given"), [(None, BUDGET << 20), (9 << 30, BUDGET << 20), (1 << 30, 1 << 30)])
def test_a_session_of_onnxruntime_is_lowered(
    on_card: Program, delivered: Delivered, asked: int | None, given: int
) -> None:
    options = {} if asked is None else {"gpu_mem_limit": asked}
    program = (
        "import json; from onnxruntime.capi import onnxruntime_inference_collection as o;"
        f"print(json.dumps(o.check_and_normalize_provider_args(['CUDAExecutionProvider'], [{options}],"
        "['CUDAExecutionProvider'])[1][0]['gpu_mem_limit']))"
    )
    assert taken(on_card("onnxruntime-gpu-1.22.0", delivered(), "-c", program)) == str(given)


# What the shim does not hold


@pytest.mark.parametrize("way", ["private function", "program with a path of its own"])
def test_a_program_gets_past_it(on_card: Program, delivered: Delivered, way: str) -> None:
    ran = on_card("torch-2.9.1", delivered(), str(PROBES / "processes.py"), way)
    assert taken(ran) > 0.9 * T4


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_a_python_that_does_not_read_the_shim_gets_past_it(on_card: Program, delivered: Delivered, flag: str) -> None:
    name = "torch-2.9.1"
    (packages,) = (environments.python(name).parents[1] / "lib").glob("python3*/site-packages")
    env = delivered(f"{PRETEND}:{packages}")  # without -S, `site` finds the packages by itself
    assert taken(on_card(name, env, str(PROBES / "processes.py"), "take")) == BUDGET // CHUNK * CHUNK
    assert taken(on_card(name, env, flag, str(PROBES / "processes.py"), "take")) > 0.9 * T4


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("torch-2.9.1", "PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        ("tensorflow-2.21.0", "TF_GPU_ALLOCATOR", "cuda_malloc_async"),
    ],
)
def test_a_variable_that_takes_the_cap_away_gets_past_it(
    on_greed: Program, delivered: Delivered, name: str, variable: str, value: str
) -> None:
    assert on_greed(name, delivered(**{variable: value})).card.peak > 0.9 * T4


# Beside other tools, and in other Pythons


def test_wrapts_import_hooks_run_too(on_card: Program, delivered: Delivered) -> None:
    program = (
        "import wrapt, json\nseen = []\n"
        "for name in ('tensorflow', 'tensorflow.python.eager.context'):\n"
        "    wrapt.register_post_import_hook(lambda module: seen.append(module.__name__), name)\n"
        "import tensorflow\nprint(json.dumps(sorted(seen)))"
    )
    assert taken(on_card("tensorflow-2.21.0", delivered(), "-c", program)) == [
        "tensorflow",
        "tensorflow.python.eager.context",
    ]


BESIDE = "torch-2.9.1-beside"


def test_each_process_of_torchrun_is_capped(on_card: Program, delivered: Delivered) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    ran = on_card("torch-2.9.1", delivered(), *torchrun, str(PROBES / "processes.py"), "take")
    assert ran.status == 0, ran.error[-2000:]
    assert [json.loads(line) for line in ran.out.splitlines()] == [BUDGET // CHUNK * CHUNK] * 2


def test_a_kernel_of_jupyter_is_capped(on_card: Program, delivered: Delivered) -> None:
    assert taken(on_card(BESIDE, delivered(), str(PROBES / "kernel.py"))) == BUDGET // CHUNK * CHUNK


def test_a_task_and_an_actor_of_ray_are_capped(on_card: Program, delivered: Delivered) -> None:
    assert taken(on_card(BESIDE, delivered(), str(PROBES / "task.py"))) == [BUDGET // CHUNK * CHUNK] * 2


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
@pytest.mark.parametrize("way", ["take", "program"])
def test_opentelemetrys_own_sitecustomize_runs_beside_it(
    on_card: Program, delivered: Delivered, order: str, way: str
) -> None:
    (packages,) = (environments.python(BESIDE).parents[1] / "lib").glob("python3*/site-packages")
    theirs = packages / "opentelemetry" / "instrumentation" / "auto_instrumentation"
    assert (theirs / "sitecustomize.py").exists()
    env = delivered(f"{theirs}:{PRETEND}")
    if order == "theirs first":
        ours, _, rest = env["PYTHONPATH"].partition(":")
        env["PYTHONPATH"] = f"{theirs}:{ours}:{rest}"
    program = (
        f"import sys; sys.path.insert(0, {str(PROBES)!r}); import json, processes;"
        f"taken = processes.WAYS[{way!r}]();"
        "print(json.dumps([taken, 'opentelemetry.instrumentation.auto_instrumentation' in sys.modules]))"
    )
    got, instrumented = taken(on_card(BESIDE, env, "-c", program))
    assert instrumented
    # In a virtual environment Python reads no usercustomize, so the shim has to come first, as the webhook writes it.
    if order == "ours first":
        assert got == BUDGET // CHUNK * CHUNK
    else:
        assert got > 0.9 * T4


RELEASES = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def interpreter(release: str) -> str:
    """Find a Python of a release that uv or pyenv has installed; skip the test where there is none."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv") or "uv"
    command = [uv, "python", "find", "--no-python-downloads", "--system", release]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode == 0:
        return ran.stdout.strip()
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    found = sorted(versions.glob(f"{release}.*/bin/python"))
    if not found:
        pytest.skip(f"Python {release} is not installed")
    return str(found[-1])


@pytest.mark.parametrize("release", RELEASES)
def test_every_python_starts_with_it(delivered: Delivered, tmp_path: Path, release: str) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name in ("sitecustomize", "usercustomize"):
        (own / f"{name}.py").write_text(f"print('own {name}')\n", "ascii")
    program = "import sys; print(sys.version_info[:2], 'torch' in sys._slicewarden.wanted, sys.path)"
    env = {**delivered(str(own)), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run([interpreter(release), "-c", program], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert "own sitecustomize" in ran.stdout
    assert "True" in ran.stdout
    assert f"{tmp_path}{FOLDER}" not in ran.stdout
