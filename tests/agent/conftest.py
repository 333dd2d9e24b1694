"""A pretended card for each test that asks for one."""

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.gpu.containers import Containers, Unwritable, containers
from tests.support.card import state
from tests.support.card.library import CannotCompile, library


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> state.State:
    try:
        built = library()
    except CannotCompile as error:
        pytest.skip(str(error))
    ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)  # by its soname, the binding then finds this one
    made = state.State(tmp_path / "card")
    monkeypatch.setenv("CARD_STATE", str(made.file))
    return made


@pytest.fixture
def made(card: state.State) -> Iterator[Containers]:
    try:
        with containers(card.environment) as ready:
            yield ready
    except Unwritable as error:
        pytest.skip(str(error))
