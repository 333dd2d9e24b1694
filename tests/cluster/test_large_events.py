"""Large objects of tenants take the memory of one of them, not of one for each thread."""

import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from webhook.api.resources import Resource
from webhook.cluster import decoding, watch
from webhook.cluster.watch import Cluster
from webhook.facts.kind import Fields

PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
PLACE = b'{"affinity":{"nodeAffinity":{"terms":[' + b",".join([b"{}"] * 50_000) + b"]}}}"
EVENT = (
    b'{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"b","resourceVersion":"7"},"spec":'
    + PLACE
    + b"}}"
)


def follower(monkeypatch: pytest.MonkeyPatch, lines: Iterator[bytes]) -> Cluster:
    @contextmanager
    def get(*_: Any, **__: Any) -> Iterator[Iterator[bytes]]:
        yield lines

    monkeypatch.setattr(watch, "server", lambda _: "http://here")
    cluster = Cluster(object(), lambda _: None, read=(PODS,))  # type: ignore[arg-type]  # it asks nobody
    monkeypatch.setattr(cluster, "_get", get)
    return cluster


def test_a_watch_forgets_an_event_before_it_waits_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread kept the last object of its kind, and the next one was decoded beside it."""
    kept = list[int]()

    def lines() -> Iterator[bytes]:
        for _ in range(3):
            yield EVENT
            kept.append(tracemalloc.get_traced_memory()[0])

    cluster = follower(monkeypatch, lines())
    tracemalloc.start()
    try:
        assert list(cluster._watch(PODS, "1")) == ["7"] * 3
    finally:
        tracemalloc.stop()
    assert max(kept) < 1_000_000


def test_threads_decode_large_objects_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, lock, both = [0], [0], threading.Lock(), threading.Barrier(2, timeout=600)

    def decoded(data: bytes, fields: Fields) -> Any:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.01)  # another thread comes here meanwhile, if it may
        with lock:
            at_once[0] -= 1
        return decoding.decoded(data, fields)

    monkeypatch.setattr(watch, "decoded", decoded)

    def follow() -> None:
        cluster = follower(monkeypatch, iter([EVENT] * 20))
        both.wait()
        list(cluster._watch(PODS, "1"))

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
