"""A pretended card for each test that asks for one."""

import ctypes
from pathlib import Path

import pytest

from tests.agent.card import state


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> state.State:
    built = state.library()
    if built is None:
        pytest.skip("no C compiler, which the pretended NVML is built by")
    ctypes.CDLL(str(built), mode=ctypes.RTLD_GLOBAL)  # by its soname, the binding then finds this one
    made = state.State(tmp_path / "card")
    monkeypatch.setenv("CARD_STATE", str(made.file))
    return made
