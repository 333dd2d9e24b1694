"""What a peer sends below TLS: records and messages are found however the stream is cut."""

import ssl
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.http.meter import CHANGE_CIPHER, HANDSHAKE, RecordCount

DATA = 23
NEW, OLD = ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2
CHANGE = bytes([CHANGE_CIPHER, 3, 3, 0, 1, 1])
LARGEST = 16 * 1024


def record(kind: int, content: bytes) -> bytes:
    return bytes([kind, 3, 3]) + len(content).to_bytes(2) + content


def message(announced: int) -> bytes:
    """The start of a ClientHello."""
    return b"\x01" + announced.to_bytes(3)


def pieces(stream: bytes, cuts: list[int]) -> Iterator[memoryview]:
    at = 0
    for cut in [*sorted(cuts), len(stream)]:
        yield memoryview(stream)[at : max(at, cut)]
        at = max(at, cut)


def exceeds(stream: bytes, most: int = 10**6, oldest: ssl.TLSVersion = NEW) -> bool:
    """The same whether the stream comes at once or byte by byte."""
    whole, single = RecordCount(oldest), RecordCount(oldest)
    found = whole.exceed(memoryview(stream), most, LARGEST)
    assert found is any(single.exceed(each, most, LARGEST) for each in pieces(stream, [*range(len(stream))]))
    assert single.number == whole.number <= most + 1
    return found


@given(st.lists(st.binary(max_size=40), max_size=30), st.lists(st.integers(0, 1500)))
def test_records_are_counted_however_they_come(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(record(DATA, content) for content in contents)
    records = RecordCount(NEW)
    assert not any(records.exceed(each, len(contents), LARGEST) for each in pieces(stream, cuts))
    assert records.number == len(contents)
    assert exceeds(stream, len(contents) - 1) is (len(contents) > 0)


def test_records_beyond_the_limit_are_not_read_even_if_they_come_in_one_piece() -> None:
    records = RecordCount(NEW)
    assert records.exceed(memoryview(record(DATA, bytes(22)) * 2400), 100, LARGEST)
    assert records.number == 101


HELLO = record(HANDSHAKE, message(600) + bytes(600))


@pytest.mark.parametrize("announced", [LARGEST + 1, 131_396, 2**24 - 1])
@pytest.mark.parametrize("before", [b"", HELLO, HELLO + CHANGE], ids=["first", "second", "second after a change"])
@pytest.mark.parametrize("size", [1, 3, 4], ids=["in four records", "in two", "in one"])
def test_a_large_message_is_found_by_its_announcement(announced: int, before: bytes, size: int) -> None:
    begun = message(announced)
    split = b"".join(record(HANDSHAKE, begun[at : at + size]) for at in range(0, 4, size))
    assert exceeds(before + split)


@pytest.mark.parametrize("oldest", [NEW, OLD])
def test_messages_of_a_permitted_size_pass(oldest: ssl.TLSVersion) -> None:
    """Several may come in one record, and one in several."""
    both = message(300) + bytes(300) + message(LARGEST) + bytes(15_000)
    rest = record(HANDSHAKE, bytes(LARGEST - 15_000))
    assert not exceeds(HELLO + record(HANDSHAKE, both) + rest + HELLO, oldest=oldest)


def test_what_tls_1_2_encrypts_is_not_taken_for_a_message() -> None:
    stream = HELLO + CHANGE + record(HANDSHAKE, b"\xff" * 32)
    assert not exceeds(stream, oldest=OLD)
    assert exceeds(stream, oldest=NEW)
