"""JSON that an API server passes on as a tenant wrote it: no decoder reads it, and it is next to the objects of others.

kube-apiserver 1.37 stored each of these in a claim's `parameters`, and those with a byte or levels in `fieldsV1`.
"""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.decoding import DEEPEST, decoded, readable

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)
RAW = {
    "a byte that is no UTF-8": (b'"\xff"', "\ufffd"),
    "half a surrogate": (rb'"\ud800"', "\ufffd"),
    "the other half": (rb'"\uDFFFx"', "\ufffdx"),
    "half a surrogate before a whole one": (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
}


@pytest.mark.parametrize(("raw", "read"), RAW.values(), ids=RAW.keys())
@given(value=JSON)
def test_what_cannot_be_decoded_changes_nothing_next_to_it(raw: bytes, read: str, value: object) -> None:
    for ascii_only in (False, True):
        near = json.dumps(value, ensure_ascii=ascii_only).encode()
        assert decoded(b'{"a":%s,"b":%s,"c":%s}' % (near, raw, near)) == {"a": value, "b": read, "c": value}


@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"f:a":', b"}")])
@given(value=JSON)
def test_levels_that_no_decoder_reads_are_null(begin: bytes, end: bytes, value: object) -> None:
    near = json.dumps(value).encode()
    for levels in (1_100, 9_999):
        read = decoded(b'{"a":%s,"b":%s,"c":%s}' % (near, begin * levels + b"{}" + end * levels, near))
        assert (read["a"], read["c"]) == (value, value)
        deep, count = read["b"], 0
        while deep is not None:
            deep, count = deep[0] if isinstance(deep, list) else deep["f:a"], count + 1
        assert count == DEEPEST - 1


@pytest.mark.parametrize("levels", [1, 30, 900])
def test_levels_that_a_decoder_reads_are_kept(levels: int) -> None:
    assert str(decoded(b"[" * levels + b"]" * levels)) == "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"\xff",
        b'{"a":"\xff"',
        b'{"a":"' + rb"\"" * 100_000,
        b"[" * 2_000,
        b"]" * 2_000,
        b'"' + b"[" * 9,
        b"[]]",
    ],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"line 1|empty|without its end"):
        decoded(text)
    with pytest.raises(ValueError, match=r"JSON|truncated|recursion|line 1|without its end"):
        decoded(text, FIELDS)


FIELDS = ("kind", "a.b", "a.c[].d", "e[].f.g", "a.h")


def only(value: Any, fields: tuple[str, ...]) -> Any:
    """A value with only these fields, or a LookupError where one of them has another shape."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise LookupError
    kept: dict[str, Any] = {}
    for first in dict.fromkeys(field.partition(".")[0] for field in fields):
        name, inner = first.removesuffix("[]"), value.get(first.removesuffix("[]"))
        rest = tuple(field.partition(".")[2] for field in fields if field.partition(".")[0] == first)
        if name not in value:
            continue
        if rest == ("",) or inner is None:
            kept[name] = inner
        elif first == name:
            kept[name] = only(inner, rest)
        elif isinstance(inner, list):
            kept[name] = [only(each, rest) for each in inner]
        else:
            raise LookupError
    return kept


NAMED = st.recursive(
    st.none() | st.integers(0, 9) | st.text('a"\\é', max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", *"abcdefghx"]), inner),
    max_leaves=30,
)


@given(st.dictionaries(st.sampled_from(["kind", *"aexb"]), NAMED))
def test_only_fields_that_are_read_are_decoded(value: dict[str, Any]) -> None:
    try:
        expected = only(value, FIELDS)
    except LookupError:
        expected = value
    assert decoded(json.dumps(value).encode(), FIELDS) == expected


LARGE_FIELDS = {
    "maps": b"[" + b",".join([b'{"weight":1,"preference":{}}'] * 250_000) + b"]",
    "texts": b"[" + b",".join([b'"a"'] * 1_000_000) + b"]",
    "labels": b"{" + b",".join(b'"%d":""' % number for number in range(200_000)) + b"}",
}


@pytest.mark.parametrize("value", LARGE_FIELDS.values(), ids=LARGE_FIELDS.keys())
def test_fields_that_nobody_reads_take_no_memory(value: bytes) -> None:
    """A pod of 7 MB of small maps took 62 MB in each worker, and 0.16 s; now 0.01 s."""
    data = b'{"a":{"x":%s,"b":7},"x":%s,"e":[{"f":{"g":1},"x":%s}]}' % (value, value, value)
    decoded(b"{}", FIELDS)
    tracemalloc.start()
    try:
        read = decoded(data, FIELDS)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read == {"a": {"b": 7}, "e": [{"f": {"g": 1}}]}
    assert most < 100_000


@pytest.mark.parametrize(("raw", "read"), [*RAW.values(), (b"[" * 9_999 + b"]" * 9_999, None)], ids=[*RAW, "levels"])
def test_what_cannot_be_decoded_hides_no_field(raw: bytes, read: object) -> None:
    near = decoded(b'{"x":%s,"a":{"x":%s,"b":7}}' % (raw, raw), FIELDS)
    assert near == {"a": {"b": 7}}
    if read is not None:
        assert decoded(b'{"x":%s,"kind":%s}' % (raw, raw), FIELDS) == {"kind": read}


@pytest.mark.parametrize(
    "text",
    [rb"\u003c" * 500_000, rb"\ud800" * 500_000, rb"\n" * 1_500_000, b"\xff" * 3_000_000, b'"}, ' * 750_000],
    ids=["escaped", "halves", "short", "bytes", "tokens"],
)
def test_what_cannot_be_decoded_takes_memory_as_it_is_long(text: bytes) -> None:
    """Each escaped character took 224 bytes, so a pod of 1.4 MB ended all replicas of the webhook."""
    text = text if text.startswith((b"\\", b"\xff")) else text.replace(b'"', rb"\"")
    data = b'{"a":"%s","b":"\xff","c":"%s"}' % (text, "\N{GRINNING FACE}".encode())
    decoded(b'"\xff"')  # all that is imported once
    tracemalloc.start()
    try:
        readable(data)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 10 * len(data)
    assert decoded(data)["c"] == "\N{GRINNING FACE}"
