"""Large data does not stay in memory."""

import gc
import os
import tempfile
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from webhook.cluster.packed import SMALL, Packed

MB = 1024 * 1024


def files(folder: Path) -> set[str]:
    """The files of a folder that this process has open, also those without a name. Other tests have some elsewhere."""
    found = set[str]()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.add(str(descriptor.readlink()))
    return {each for each in found if each.startswith(f"{folder}/")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_random_text_of_many_pods_takes_hardly_any_memory(folder: Path) -> None:
    """250 pods of a node may each have 1.4 MB of it."""
    texts = [os.urandom(64) * 10, *(os.urandom(MB) for _ in range(20))]
    Packed(texts[1])  # all that is imported once
    tracemalloc.start()
    try:
        kept = [Packed(text) for text in texts]
        gc.collect()
        most = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert most < MB
    assert [each.data() for each in kept] == texts
    assert len(files(folder)) == 20
    del kept
    gc.collect()
    assert files(folder) == set()


@pytest.mark.parametrize("size", [0, 1, SMALL, MB])
def test_without_a_disk_the_data_stays_in_memory(size: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    data = os.urandom(size)
    kept = Packed(data)
    assert (kept.data(), files(folder)) == (data, set())


def test_data_that_becomes_small_stays_in_memory(folder: Path) -> None:
    data = b"affinity" * (MB // 8)
    kept = Packed(data)
    assert (kept.data() == data, files(folder)) == (True, set())
