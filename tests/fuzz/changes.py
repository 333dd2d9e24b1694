"""Changes that turn good input into hostile input: of JSON trees, of texts, and of bytes.

Each takes the source of chance as its first argument and nothing else from outside, so a seed gives the same
cases again.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import orjson

Spot = tuple[Any, Any]
"""A map or a list, and the key or index of one of its values."""

SCALARS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    2**64 - 1,
    -(2**63),
    -0.0,
    0.1,
    1e308,
    5e-324,
    "",
    " ",
    "0",
    "-1",
    "1",
    "1e9",
    "1e999999999",
    "1000m",
    "0x10",
    "9" * 5000,
    "null",
    "true",
    "~",
    "/",
    "~1",
    "../..",
    "\0",
    "\n",
    "\r\n\t",
    "\x1b[31m",
    "\u2028",
    "\ufeff",
    "\u202e",
    "\u0661",
    "nvidia\u2024com/gpu",
    "NVIDIA.com/gpu",
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.10gb",
    "all",
    "void",
    "$(NVIDIA_VISIBLE_DEVICES)",
    "a" * 254,
    "é" * 3000,
    "\U0001f600",
    [],
    {},
    [None],
    [[]],
    {"": None},
    {"a": {"b": []}},
)

RAW: tuple[bytes, ...] = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1e999",
    b"-1e-999",
    b"-0",
    b"01",
    b"+1",
    b".5",
    b"1.",
    b"0x10",
    b"9" * 5000,
    b"1" + b"0" * 400,
    b"0." + b"1" * 3000,
    b"18446744073709551616",
    b"-9223372036854775809",
    b"True",
    b"undefined",
    b"",
    b"'a'",
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\\u0000"',
    b'"\\uffff"',
    b'"\\x41"',
    b'"\xff\xfe"',
    b'"\xed\xa0\x80"',
    b'"\xc0\xaf"',
    b'"\n"',
    b'"\x00"',
    b'{"a":1,"a":2}',
    b"[1,]",
    b'{"a":1,}',
    b"{1:2}",
    b"[1]/**/",
    b"[" * 200 + b"]" * 200,
    b"[" * 1500 + b"]" * 1500,
    b"[" * 5000,
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b"[" + b"{}," * 300 + b"{}]",
)

ODD = "\0\t\n\r\x1b\x7f\x85\xa0\u2028\ufeff\ufffd{}[]:,&*!|>'\"%@`#?-~/\\$ \U0001f600\u0661"
"""Characters that some reader takes for more than themselves."""

MAX_NODES = 20_000
"""Of a tree's values so many are thought of as places for a change."""


def spots(tree: Any) -> list[Spot]:
    """Every place in a tree where a value stands."""
    found: list[Spot] = []
    left = [tree]
    while left and len(found) < MAX_NODES:
        value = left.pop()
        for key, each in list(value.items() if isinstance(value, dict) else enumerate(value)):
            found.append((value, key))
            if isinstance(each, (dict, list)):
                left.append(each)
    return found


class Words:
    """Collect what good input holds: the values that stand under each key, and the keys that stand side by side."""

    def __init__(self, trees: Sequence[Any]) -> None:
        values: dict[str, dict[str, Any]] = {}
        for tree in trees:
            for container, key in spots(tree):
                if isinstance(container, dict):
                    value = container[key]
                    values.setdefault(key, {})[json.dumps(value, sort_keys=True, default=str)] = value
        self.keys = sorted(values)
        self.values = {key: [json.dumps(value) for value in each.values()] for key, each in values.items()}
        self.beside: dict[str, list[str]] = {}
        for tree in trees:
            for container, _ in spots(tree):
                if isinstance(container, dict):
                    for key in container:
                        known = self.beside.setdefault(key, [])
                        known.extend(other for other in container if other not in known)

    def value(self, random: Random, key: Any) -> Any:
        """A value as it may stand under a key."""
        known = self.values.get(key) if isinstance(key, str) else None
        return json.loads(random.choice(known or self.values[random.choice(self.keys)]))


class _Raw:
    """Bytes that are to stand in the JSON as they are, held by a text in the tree until it is written."""

    def __init__(self) -> None:
        self.held: list[bytes] = []

    def hold(self, raw: bytes) -> str:
        self.held.append(raw)
        return f"@@{len(self.held) - 1}@@"

    def write(self, tree: Any) -> bytes:
        text = orjson.dumps(tree)
        for number, raw in enumerate(self.held):
            text = text.replace(b'"@@%d@@"' % number, raw)
        return text


def tree(random: Random, value: Any, words: Words) -> bytes:
    """Change a JSON value, in place, at one spot or a few, and write it; the outcome may be no JSON any more."""
    raw = _Raw()
    for _ in range(random.choice((1, 1, 1, 2, 2, 3, 5))):
        known = spots(value) if isinstance(value, (dict, list)) else []
        if not known:
            break
        random.choice(_TREE)(random, random.choice(known), words, raw)
    try:
        return raw.write(value)
    except TypeError:  # deeper than what writes it goes
        return b"[" * 300 + b"]" * 300


def _scalar(random: Random, spot: Spot, _: Words, __: _Raw) -> None:
    container, key = spot
    container[key] = copy.deepcopy(random.choice(SCALARS))  # for it may be changed further


def _known(random: Random, spot: Spot, words: Words, _: _Raw) -> None:
    container, key = spot
    container[key] = words.value(random, key)


def _beside(random: Random, spot: Spot, words: Words, _: _Raw) -> None:
    container, key = spot
    if isinstance(container, dict):
        added = random.choice(words.beside.get(key) or words.keys)
        container[added] = words.value(random, added)
    else:
        container.insert(key, words.value(random, key))


def _gone(_: Random, spot: Spot, __: Words, ___: _Raw) -> None:
    container, key = spot
    del container[key]


def _renamed(random: Random, spot: Spot, words: Words, raw: _Raw) -> None:
    container, key = spot
    if not isinstance(container, dict):
        return
    match random.randrange(4):
        case 0:
            container[random.choice(words.keys)] = container.pop(key)
        case 1:
            container[text(random, key)] = container.pop(key)
        case 2:  # stands twice
            container[raw.hold(json.dumps(key).encode())] = words.value(random, key)
        case _:
            container[key.swapcase()] = container.pop(key)


def _repeated(random: Random, spot: Spot, _: Words, __: _Raw) -> None:
    container, key = spot
    times = random.choice((1, 1, 2, 8, 70, 700))
    if isinstance(container, list):
        container[key:key] = [container[key]] * times
    else:
        container.update({f"{key}{number}": container[key] for number in range(times)})


def _elsewhere(random: Random, spot: Spot, words: Words, _: _Raw) -> None:
    container, key = spot
    container[key] = json.loads(random.choice(words.values[random.choice(words.keys)]))


def _wrapped(random: Random, spot: Spot, words: Words, __: _Raw) -> None:
    container, key = spot
    for _ in range(random.choice((1, 1, 2, 10, 60, 110))):
        container[key] = [container[key]] if random.random() < 0.5 else {random.choice(words.keys): container[key]}


def _unwrapped(random: Random, spot: Spot, _: Words, __: _Raw) -> None:
    container, key = spot
    value = container[key]
    if isinstance(value, (dict, list)) and value:
        container[key] = random.choice(list(value.values()) if isinstance(value, dict) else value)


def _spelt(random: Random, spot: Spot, _: Words, raw: _Raw) -> None:
    container, key = spot
    value = container[key]
    match value:
        case str():
            container[key] = text(random, value)
        case bool() | None:
            container[key] = random.choice(("yes", "no", "true", "null", 0, 1))
        case int() | float():
            container[key] = random.choice((value + 1, value - 1, -value, str(value), value * 1000, value / 3))
            if abs(container[key] if not isinstance(container[key], str) else 0) >= 2**63:
                container[key] = raw.hold(str(container[key]).encode())
        case _:
            container[key] = json.dumps(value)


def _raw(random: Random, spot: Spot, _: Words, raw: _Raw) -> None:
    container, key = spot
    container[key] = raw.hold(random.choice(RAW))


_TREE = (
    *(_scalar, _scalar, _known, _known, _known, _beside, _beside, _beside, _gone, _gone, _renamed),
    *(_repeated, _elsewhere, _wrapped, _unwrapped, _spelt, _spelt, _spelt, _raw),
)


def text(random: Random, value: str) -> str:
    """Change a text: a character, a line, a piece."""
    at = random.randrange(len(value) + 1)
    match random.randrange(9):
        case 0:
            return value[:at] + random.choice(ODD) + value[at:]
        case 1:
            return value[:at]
        case 2:
            return value[:at] + value[at + random.choice((1, 1, 2, 8)) :]
        case 3:
            return value[:at] + value[at:].swapcase()
        case 4:
            piece = value[at : at + random.choice((1, 4, 40))]
            return value[:at] + piece * random.choice((2, 3, 20, 300)) + value[at:]
        case 5:
            rows = value.split("\n")
            row = random.randrange(len(rows))
            return "\n".join(random.choice(((*rows[:row], *rows[row + 1 :]), (*rows[:row], rows[row], *rows[row:]))))
        case 6:
            rows = value.split("\n")
            row = random.randrange(len(rows))
            rows[row] = random.choice((" ", "  ", "\t", "- ", "? ", "& ", "<<: ", "--- ", "#", "%", "!")) + rows[row]
            return "\n".join(rows)
        case 7:
            scalar = random.choice(SCALARS)
            return value[:at] + (scalar if isinstance(scalar, str) else json.dumps(scalar)) + value[at:]
        case _:
            return random.choice((value.strip(), f" {value} ", value.upper(), value + "\n", f'"{value}"'))


def encoded(random: Random, value: bytes, other: bytes) -> bytes:
    """Change bytes: flipped, cut, doubled, put into another encoding, mixed with other bytes."""
    at = random.randrange(len(value) + 1)
    end = min(len(value), at + random.choice((1, 1, 2, 7, 60, 600)))
    match random.randrange(11):
        case 0:
            return value[:at]
        case 1:
            return value[:at] + value[end:]
        case 2:
            return value[:at] + value[at:end] * random.choice((2, 2, 3, 50)) + value[end:]
        case 3:
            return value[:at] + bytes((random.randrange(256),)) + value[at:]
        case 4 if value:
            at = min(at, len(value) - 1)
            return value[:at] + bytes((value[at] ^ (1 << random.randrange(8)),)) + value[at + 1 :]
        case 5:
            codec = random.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"))
            return value.decode("utf-8", "replace").encode(codec)
        case 6:
            return value[:at] + other[random.randrange(len(other) + 1) :][:4000]
        case 7:
            return random.choice((value + other, b"\n" + value, value + b"\0", value + b"  ", b"\xef\xbb\xbf" + value))
        case 8:
            return value[:at] + random.choice(RAW) + value[at:]
        case 9:
            return value[:at] + random.choice(RAW) + value[end:]
        case _:
            return value.replace(
                *random.choice(((b"{", b"["), (b":", b","), (b'"', b""), (b"\n", b"\r"), (b"-", b"?")))
            )


def smaller(case: bytes) -> Iterator[bytes]:
    """Variants of a case with something left out: a value of a tree, a piece of bytes, the largest first."""
    try:
        value = orjson.loads(case)
        orjson.dumps(value)
    except (orjson.JSONDecodeError, TypeError):
        value = None
    if not isinstance(value, (dict, list)):
        size = len(case) // 2
        while size:
            for start in range(0, len(case), size):
                yield case[:start] + case[start + size :]
            size //= 2
        return
    for container, key in spots(value):
        gone = container.pop(key)
        yield orjson.dumps(value)
        if isinstance(container, list):
            container.insert(key, gone)
        else:
            container[key] = gone
