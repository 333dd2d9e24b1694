"""Large data does not stay in memory."""

import gc
import os
import tempfile
import tracemalloc
from pathlib import Path

import pytest

from webhook.cluster.packed import SMALL, Packed

MB = 1024 * 1024


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_random_text_of_many_pods_takes_hardly_any_memory() -> None:
    """250 pods of a node may each have 1.4 MB of it. The agent has 256 MiB."""
    texts = [os.urandom(64) * 10, *(os.urandom(MB) for _ in range(20))]
    Packed(texts[1])  # all that is imported once
    gc.collect()  # what other tests have left open
    before = descriptors()
    tracemalloc.start()
    try:
        kept = [Packed(text) for text in texts]
        gc.collect()
        most = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert most < MB
    assert [each.data() for each in kept] == texts
    assert descriptors() == before + 20
    del kept
    gc.collect()
    assert descriptors() == before


@pytest.mark.parametrize("size", [0, 1, SMALL, MB])
def test_without_a_disk_the_data_stays_in_memory(size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, before = os.urandom(size), descriptors()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    kept = Packed(data)
    assert (kept.data(), descriptors()) == (data, before)


def test_data_that_becomes_small_stays_in_memory() -> None:
    data, before = b"affinity" * (MB // 8), descriptors()
    kept = Packed(data)
    assert (kept.data() == data, descriptors()) == (True, before)
