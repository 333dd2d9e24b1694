"""The log: lines are collected for a turn of the loop, and none is lost, torn or out of order that can be written."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import LONG
from webhook.telemetry import log
from webhook.telemetry.log import MAX_LINE, MAX_WAITING, Lines

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read, write = os.pipe()
    yield read, write
    for each in (read, write):
        with suppress(OSError):  # a test may have closed it
            os.close(each)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What each system call was given."""
    seen: list[bytes] = []

    def write(descriptor: int, text: bytes) -> int:
        seen.append(text)
        return os_write(descriptor, text)

    os_write = os.write
    monkeypatch.setattr(os, "write", write)
    return seen


def read_all(read: int) -> list[dict[str, Any]]:
    """Read what is in a pipe now."""
    os.set_blocking(read, False)
    text = b""
    try:
        while part := os.read(read, 1 << 20):
            text += part
    except BlockingIOError:
        pass
    return [json.loads(line) for line in text.splitlines()]


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return [line["number"] for line in lines]


def test_without_a_loop_each_line_is_written_at_once(pipe: Pipe, writes: list[bytes]) -> None:
    read, write = pipe
    lines = Lines(write)
    for number in range(3):
        lines({"number": number})
        assert numbers(read_all(read)) == [number]
    assert len(writes) == 3


def test_the_lines_of_a_turn_are_one_write(pipe: Pipe, writes: list[bytes]) -> None:
    read, write = pipe
    lines = Lines(write)

    async def work() -> None:
        with lines.by_turns(asyncio.get_running_loop()):
            for turn in range(3):
                for number in range(5):
                    lines({"number": 5 * turn + number})
                assert len(writes) == turn
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                assert len(writes) == turn + 1

    asyncio.run(work())
    assert numbers(read_all(read)) == [*range(15)]
    lines({"number": 15})
    assert numbers(read_all(read)) == [15], "after the loop they are written at once again"


def test_no_write_is_more_than_a_pipe_takes_whole(pipe: Pipe, writes: list[bytes]) -> None:
    """So the lines of workers that share a pipe mix no worse than lines that are written one by one."""
    read, write = pipe
    lines = Lines(write)

    async def work() -> None:
        with lines.by_turns(asyncio.get_running_loop()):
            for number in range(60):
                lines({"number": number, "text": "x" * (100 + 13 * number)})

    asyncio.run(work())
    assert numbers(read_all(read)) == [*range(60)]
    assert all(text.endswith(b"\n") and len(text) <= MAX_LINE for text in writes)
    assert all(len(one) + len(other.split(b"\n")[0]) >= MAX_LINE for one, other in pairwise(writes)), "nor less"


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_what_waits_is_written_when_the_work_breaks(pipe: Pipe, error: type[BaseException]) -> None:
    read, write = pipe
    lines = Lines(write)

    async def work() -> None:
        with lines.by_turns(asyncio.get_running_loop()):
            lines({"number": 1})
            raise error

    with pytest.raises(error):
        asyncio.run(work())
    assert numbers(read_all(read)) == [1]


def test_threads_lose_no_line_and_keep_their_order(pipe: Pipe) -> None:
    read, write = pipe
    lines, each, names = Lines(write), 150, ("a", "b", "c")

    def log_all(name: str) -> None:
        for number in range(each):
            lines({"name": name, "number": number})

    async def work() -> None:
        loop = asyncio.get_running_loop()
        with lines.by_turns(loop):
            others = [loop.run_in_executor(None, log_all, name) for name in names]
            for number in range(each):
                lines({"name": "loop", "number": number})
                await asyncio.sleep(0)
            await asyncio.gather(*others)

    asyncio.run(work())
    written = read_all(read)  # a pipe has room for all
    for name in ("loop", *names):
        assert numbers([line for line in written if line["name"] == name]) == [*range(each)]


def test_lines_wait_for_a_slow_reader(pipe: Pipe) -> None:
    """More than a pipe has room for, and less than may wait."""
    read, write = pipe
    lines, number, got = Lines(write), 0, list[int]()

    async def work() -> None:
        nonlocal number
        with lines.by_turns(asyncio.get_running_loop()):
            while lines._size < MAX_WAITING // 2:
                lines({"number": number, "text": "x" * 300})
                number += 1
                await asyncio.sleep(0)
            while len(got) < number:
                got.extend(numbers(read_all(read)))
                await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(work(), LONG))
    assert got == [*range(number)]
    assert lines.dropped == 0


def test_what_nobody_reads_takes_no_memory_and_is_counted(pipe: Pipe) -> None:
    read, write = pipe
    lines = Lines(write)
    got: list[dict[str, Any]] = []

    async def work() -> None:
        with lines.by_turns(asyncio.get_running_loop()):
            for number in range(5_000):
                lines({"number": number, "text": "x" * 100})
                assert lines._size == sum(len(each.line) for each in lines._waiting) <= MAX_WAITING
                if number % 100 == 0:
                    await asyncio.sleep(0)
            assert lines.dropped > 0
            while lines._waiting:
                got.extend(read_all(read))
                await asyncio.sleep(0.001)
            lines({"number": 5_000})

    asyncio.run(asyncio.wait_for(work(), LONG))
    got += read_all(read)
    assert numbers(got) == [*range(5_000 - lines.dropped), 5_000], "the oldest are kept"
    assert got[-1]["dropped"] == lines.dropped
    assert not any("dropped" in line for line in got[:-1])


def test_a_pipe_without_a_reader_drops_lines_and_raises_nothing(pipe: Pipe) -> None:
    read, write = pipe
    lines = Lines(write)
    os.close(read)

    async def work() -> None:
        with lines.by_turns(asyncio.get_running_loop()):
            for number in range(1_000):
                lines({"number": number})
                if number % 10 == 0:
                    await asyncio.sleep(0)
            assert lines._size < MAX_LINE

    asyncio.run(work())
    assert lines.dropped == 1_000


Call = int | None
"""How many bytes a call to write takes: all by a large number, none for EAGAIN by -1, None for a broken pipe."""


@given(
    sizes=st.lists(st.integers(0, 5_000), max_size=60),
    calls=st.lists(st.one_of(st.none(), st.integers(-1, 6_000), st.just(10_000)), max_size=60),
    turns=st.lists(st.booleans(), max_size=60),
    looped=st.booleans(),
)
def test_every_line_is_written_whole_in_order_or_counted(
    sizes: list[int], calls: list[Call], turns: list[bool], looped: bool
) -> None:
    """Whatever a descriptor takes of each write: a pipe, a terminal, a socket, a disk that gets full."""
    written, left = bytearray(), iter(calls)

    def write(_: int, text: bytes) -> int:
        taken = next(left, 10_000)
        if taken is None:
            raise BrokenPipeError
        if taken < 0:
            raise BlockingIOError
        written.extend(text[:taken])
        return min(taken, len(text))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        patch.setattr(log, "AGAIN", 0.0)
        patch.setattr(log, "_without_waiting", lambda descriptor: descriptor)
        lines, now = Lines(1), iter(turns)

        async def work() -> None:
            with lines.by_turns(asyncio.get_running_loop()):
                for number, size in enumerate(sizes):
                    lines({"number": number, "text": "x" * size})
                    if next(now, False):
                        await asyncio.sleep(0)

        if looped:
            asyncio.run(work())
        else:
            for number, size in enumerate(sizes):
                lines({"number": number, "text": "x" * size})
        total, clean = len(sizes), False
        while not clean:
            before = lines.dropped
            lines({"number": total})
            total, clean = total + 1, lines.dropped == before and written.endswith(b"\n")
    whole = [json.loads(line) for line in bytes(written).split(b"\n") if line.endswith(b"}")]
    assert all(one < other for one, other in pairwise(numbers(whole)))
    assert len(whole) + lines.dropped == total
    assert sum(line.get("dropped", 0) for line in whole) == lines.dropped
