"""Try what the webhook injects in the frameworks themselves: real wheels on a pretended T4 of 15,360 MiB.

The first word of an environment's name is its framework. Each program takes memory until it is stopped, and the card
counts it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.gpu.injected import Denied, injected
from tests.frameworks.conftest import Program
from tests.frameworks.running import T4, Ran
from webhook.proving import probe
from webhook.proving.sighting import sighting

PARSE = str(Path(__file__).parent / "probes" / "parse.py")
BUDGET = 3251
"""MiB that four slices of a T4 leave to an allocator: the README's own figure."""
PAGE = 2
"""MiB: JAX rounds its pool up to the card's pages."""

CAPPED = ("torch-2.10.0", "torch-2.15.0", "jax-0.4.30", "jax-0.10.2")
UNCAPPED = ("torch-2.9.1", "tensorflow-2.21.0")
NEW_TORCH = ("torch-2.10.0", "torch-2.15.0")

capped = pytest.mark.parametrize("name", CAPPED)
new_torch = pytest.mark.parametrize("name", NEW_TORCH)


def on_t4(annotation: str = "", **written: str) -> dict[str, str]:
    """The environment of a pod on a T4 of four slices, of which its author wrote some, and one annotation."""
    name, _, value = annotation.partition("=")
    return injected("Tesla-T4", T4, 4, written, {f"slicewarden.dev/{name}": value} if name else {})


def assert_capped(ran: Ran, mib: float = BUDGET) -> None:
    """The framework itself said no, at its cap and not far below, while the card had more to give."""
    assert ran.stopped
    assert not ran.card.refused
    assert 0.8 * mib < ran.card.peak <= mib + PAGE


def assert_uncapped(ran: Ran) -> None:
    """It had all but what the framework leaves to others."""
    assert ran.stopped
    assert ran.card.peak > 0.9 * T4


# What is injected where the author wrote nothing


@capped
def test_injected_environment_stops_it_at_the_cap(on_greed: Program, name: str) -> None:
    assert_capped(on_greed(name, on_t4()))


@capped
def test_without_it_the_card_is_taken(on_greed: Program, name: str) -> None:
    ran = on_greed(name, {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".99"})  # JAX stops at three quarters by itself
    assert_uncapped(ran)


@pytest.mark.parametrize("name", UNCAPPED)
def test_it_is_harmless_where_it_is_no_cap(on_greed: Program, name: str) -> None:
    assert_uncapped(on_greed(name, on_t4()))


@pytest.mark.parametrize("name", ["jax-0.10.2", "tensorflow-2.21.0"])
def test_injected_environment_keeps_a_start_small(on_greed: Program, name: str) -> None:
    assert on_greed(name, {}, "--chunks", "1").card.peak > 0.7 * T4
    assert on_greed(name, on_t4(), "--chunks", "1").card.peak < 64


@pytest.mark.parametrize("spelling", ["True", "1"])
def test_tensorflow_knows_no_other_true(on_greed: Program, spelling: str) -> None:
    ran = on_greed("tensorflow-2.21.0", {"TF_FORCE_GPU_ALLOW_GROWTH": spelling}, "--chunks", "1")
    assert ran.stopped is None
    assert ran.card.peak > 0.9 * T4


# What is injected beside what the author wrote


@new_torch
@pytest.mark.parametrize(
    "written",
    [
        "expandable_segments:True",
        "max_split_size_mb:128,garbage_collection_threshold:0.8,",
        "roundup_power2_divisions:[256:1,512:2,>:4]",
    ],
)
def test_torch_settings_are_kept_and_capped(on_greed: Program, name: str, written: str) -> None:
    env = on_t4(PYTORCH_ALLOC_CONF=written)
    assert env["PYTORCH_ALLOC_CONF"].startswith(written.rstrip(","))
    assert_capped(on_greed(name, env))


@new_torch
def test_smaller_fraction_of_the_author_stands(on_greed: Program, name: str) -> None:
    env = on_t4(PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.1")
    assert_capped(on_greed(name, env), mib=0.1 * T4)


def test_smaller_fraction_under_the_newer_name_stands(on_greed: Program) -> None:
    assert_capped(on_greed("jax-0.10.2", on_t4(XLA_CLIENT_MEM_FRACTION="0.1")), mib=0.1 * T4)


@capped
def test_larger_fraction_is_lowered(on_greed: Program, name: str) -> None:
    env = on_t4(PYTORCH_ALLOC_CONF="per_process_memory_fraction:0.9", XLA_PYTHON_CLIENT_MEM_FRACTION="0.9")
    assert_capped(on_greed(name, env))


@capped
def test_two_processes_have_half_each(on_greed: Program, name: str) -> None:
    assert_capped(on_greed(name, on_t4("gpu-processes=2")), mib=1369)  # as of eight slices


@new_torch
@pytest.mark.parametrize("written", ["", "max_split_size_mb:128"])
def test_older_name_is_completed_where_torch_is_known(on_greed: Program, name: str, written: str) -> None:
    env = on_t4("torch-version=2.10", PYTORCH_CUDA_ALLOC_CONF=written)
    assert_capped(on_greed(name, env))


@new_torch
def test_image_cannot_hide_the_cap_where_torch_is_known(on_greed: Program, name: str) -> None:
    image = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    assert_uncapped(on_greed(name, {**image, **on_t4()}))
    assert_capped(on_greed(name, {**image, **on_t4("torch-version=2.10")}))


def test_setting_of_its_own_time_tells_which_torch_it_is(on_greed: Program) -> None:
    env = on_t4(PYTORCH_CUDA_ALLOC_CONF="large_segment_size_mb:40")
    assert_capped(on_greed("torch-2.15.0", env))


# What would be fatal


def test_older_torch_fails_on_the_fraction_under_the_older_name(on_greed: Program) -> None:
    ran = on_greed("torch-2.9.1", {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.211"})
    assert ran.status == 1
    assert "Unrecognized CachingAllocator option: per_process_memory_fraction" in ran.error


def test_older_torch_never_gets_the_fraction_under_the_older_name(on_greed: Program) -> None:
    env = on_t4(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128")
    assert env["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:128"
    assert_uncapped(on_greed("torch-2.9.1", env))


@new_torch
@pytest.mark.parametrize(
    "written",
    [
        "per_process_memory_fraction",
        "per_process_memory_fraction=0.2",
        "max_split_size_mb:128;per_process_memory_fraction:0.2",
        "max_split_size_mb:128 per_process_memory_fraction:0.2",
        "per_process_memory_fraction:",
    ],
)
def test_malformed_settings_abort_the_import_and_are_denied(on_card: Program, name: str, written: str) -> None:
    ran = on_card(name, {"PYTORCH_ALLOC_CONF": written}, "-c", "import torch")
    assert ran.status == -6  # SIGABRT
    with pytest.raises(Denied):
        on_t4(PYTORCH_ALLOC_CONF=written)


@new_torch
def test_older_name_hides_the_newer_even_empty(on_greed: Program, name: str) -> None:
    assert_uncapped(on_greed(name, {**on_t4(), "PYTORCH_CUDA_ALLOC_CONF": ""}))
    with pytest.raises(Denied):
        on_t4(PYTORCH_CUDA_ALLOC_CONF="")


def test_jax_raises_on_both_names(on_greed: Program) -> None:
    image = {"XLA_CLIENT_MEM_FRACTION": "0.9"}
    ran = on_greed("jax-0.10.2", {**image, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.211"})
    assert ran.status == 1
    assert "ValueError" in ran.error
    # A container's environment replaces what its image sets.
    assert_capped(on_greed("jax-0.10.2", {**image, **on_t4()}))
    assert_capped(on_greed("jax-0.10.2", on_t4(**image)))


# What undoes a cap


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("torch-2.10.0", "PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.211,backend:cudaMallocAsync"),
        ("torch-2.15.0", "PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.211,backend:cudaMallocAsync"),
        ("torch-2.15.0", "PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
        ("torch-2.15.0", "PYTORCH_NO_HIP_MEMORY_CACHING", "1"),
        ("jax-0.10.2", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform"),
        ("jax-0.10.2", "XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"),
        ("jax-0.10.2", "JAX_PJRT_CLIENT_CREATE_OPTIONS", "allocator:platform"),
        ("jax-0.10.2", "TF_FORCE_UNIFIED_MEMORY", "true"),
    ],
)
def test_other_allocators_know_no_cap(on_greed: Program, name: str, variable: str, value: str) -> None:
    ran = on_greed(name, {**on_t4(), variable: value})
    assert ran.card.peak > 0.9 * T4


def test_jax_keeps_its_cap_with_options_that_name_its_own_allocator(on_greed: Program) -> None:
    assert_capped(on_greed("jax-0.10.2", on_t4(JAX_PJRT_CLIENT_CREATE_OPTIONS="allocator:bfc")))


def test_jax_does_not_start_with_a_fraction_in_its_options(on_greed: Program) -> None:
    ran = on_greed("jax-0.10.2", {**on_t4(), "JAX_PJRT_CLIENT_CREATE_OPTIONS": "memory_fraction:0.9"})
    assert ran.status == 1
    assert "memory_fraction" in ran.error


# Every value there can be

CARDS = {
    "Tesla-T4": 15360,
    "NVIDIA-A10": 23028,
    "NVIDIA-GeForce-RTX-4090": 24564,
    "NVIDIA-A100-PCIE-40GB": 40960,
    "NVIDIA-A100-SXM4-80GB": 81920,
    "NVIDIA-H100-80GB-HBM3": 81559,
}


def everything() -> Iterator[dict[str, str]]:
    for product, mib in CARDS.items():
        for replicas in range(2, 11):
            yield injected(product, mib, replicas)
            yield injected(product, mib, replicas, {"PYTORCH_ALLOC_CONF": "max_split_size_mb:128"})
            yield injected(product, mib, replicas, annotations={"slicewarden.dev/torch-version": "2.10"})


@pytest.mark.parametrize("name", [*CAPPED, "cupy-14.2.0"])
def test_every_value_is_read_as_it_is_meant(on_card: Program, name: str) -> None:
    sent = list(everything())
    meant = [float(each["XLA_PYTHON_CLIENT_MEM_FRACTION"]) for each in sent]
    got = parsed(on_card, name, sent)
    assert got == ([None] * len(sent) if name.startswith("torch") else pytest.approx(meant))


def test_cupy_reads_percent(on_card: Program) -> None:
    sent = [{"CUPY_GPU_MEMORY_LIMIT": f"{permille / 10:.1f}%"} for permille in range(1, 1000)]
    assert parsed(on_card, "cupy-14.2.0", sent) == pytest.approx([permille / 1000 for permille in range(1, 1000)])


def test_cupy_reads_nothing_else(on_card: Program) -> None:
    sent = [{"CUPY_GPU_MEMORY_LIMIT": text} for text in ("", "0.211", "1e9", "10GiB", "21,1%")]
    assert all("ValueError" in str(each) for each in parsed(on_card, "cupy-14.2.0", sent))


def parsed(on_card: Program, name: str, sent: list[dict[str, str]]) -> list[float | str | None]:
    framework = name.partition("-")[0].replace("torch", "pytorch")
    ran = on_card(name, {}, PARSE, framework, given=json.dumps(sent))
    assert ran.status == 0, ran.error[-2000:]
    got: list[float | str | None] = json.loads(ran.out.splitlines()[-1])
    return got


# The probe of `slicewarden prove`


@pytest.mark.parametrize("name", ["jax-0.10.2", "tensorflow-2.21.0"])
def test_the_probe_takes_no_more_than_it_was_allowed(on_card: Program, name: str) -> None:
    """JAX and TensorFlow would by themselves take most of the card at once."""
    ran = on_card(
        name, {}, probe.__file__, "--report", "", "--memory", "2000", "--framework", "all", "--seconds", "240"
    )
    seen = sighting(ran.out)
    assert seen is not None
    (taken,) = seen.frameworks.values()
    assert 1900 < taken.got <= 2000
    assert 2000 <= ran.card.peak <= 2000 + PAGE


@pytest.mark.parametrize("name", ["torch-2.15.0", "jax-0.4.30"])
def test_the_probe_measures_a_cap(on_card: Program, name: str) -> None:
    ran = on_card(
        name, on_t4(), probe.__file__, "--report", "", "--memory", "8000", "--framework", "all", "--seconds", "240"
    )
    seen = sighting(ran.out)
    assert seen is not None
    (taken,) = seen.frameworks.values()
    assert 0.8 * BUDGET < taken.got <= BUDGET + PAGE
    assert taken.stopped
    assert seen.memory is not None
    assert seen.memory.got == 8000  # variables cap frameworks, and not the driver
