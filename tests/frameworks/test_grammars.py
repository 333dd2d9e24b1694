"""The grammars of tests/support/grammars.py, against the parsers that they were written after.

A grammar may be stricter than its parser, never more lenient: then something would be let through that ends a process.
"""

import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.frameworks.conftest import Program
from tests.support import grammars

PARSE = str(Path(__file__).parent / "probes" / "parse.py")

CUDA_ALLOC, ALLOC = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
WORDS = (":", ",", "[", "]", " ", "=", "per_process_memory_fraction", "expandable_segments", "0.5", "1.5", "True", "x")
KEYS = ("per_process_memory_fraction", "max_split_size_mb", "expandable_segments", "x")
VALUES = ("0.5", "64", "19", "-1", "50%", "nan", "True", "true", "[", "0.5x", ".5", "")
NUMBERS = ("", "0", "1", "5", ".", "%", "-", "+", "e", "_", " ", "nan", "inf", "x", "GiB")


def settings() -> Iterator[str]:
    """Every text of up to four words, and every two settings."""
    for length in range(5):
        yield from map("".join, product(WORDS, repeat=length))
    for one, two in product(map(":".join, product(KEYS, VALUES)), repeat=2):
        yield f"{one},{two}"


def numbers() -> Iterator[str]:
    yield from dict.fromkeys(map("".join, product(NUMBERS, repeat=4)))


@pytest.mark.parametrize(
    ("name", "version", "variable"),
    [
        ("torch-2.9.1", (2, 9), CUDA_ALLOC),
        ("torch-2.10.0", (2, 10), ALLOC),
        ("torch-2.15.0", (2, 15), ALLOC),
    ],
)
def test_torch(on_card: Program, name: str, version: grammars.Version, variable: str) -> None:
    compare(on_card, name, "pytorch", variable, settings(), lambda env: grammars.torch(version, env))


def test_jax(on_card: Program) -> None:
    compare(on_card, "jax-0.10.2", "jax", "XLA_PYTHON_CLIENT_MEM_FRACTION", numbers(), grammars.jax)


def test_cupy(on_card: Program) -> None:
    compare(on_card, "cupy-14.2.0", "cupy", "CUPY_GPU_MEMORY_LIMIT", numbers(), lambda env: grammars.cupy(env, 2**34))


def compare(
    on_card: Program,
    name: str,
    framework: str,
    variable: str,
    texts: Iterator[str],
    grammar: Callable[[grammars.Env], object],
) -> None:
    """Find what a grammar takes and its parser does not. Both have to take something, or nothing is shown."""
    fine = [text for text in texts if _takes(grammar, {variable: text})]
    assert len(fine) > 10
    ran = on_card(name, {}, PARSE, framework, given=json.dumps([{variable: text} for text in fine]))
    assert ran.status == 0, ran.error[-2000:]
    answers = json.loads(ran.out.splitlines()[-1])
    assert not {text: answer for text, answer in zip(fine, answers, strict=True) if isinstance(answer, str)}


def _takes(grammar: Callable[[grammars.Env], object], env: grammars.Env) -> bool:
    try:
        grammar(env)
    except grammars.Fails:
        return False
    return True
