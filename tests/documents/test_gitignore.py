"""A file that Flux leaves out is never taken for one that it fetches, however its patterns are written.

The other reading is a plain port of go-git's pattern.go and of Go's path/filepath/match.go, which work on bytes.
"""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.documents.gitignore import patterns

Path = tuple[str, ...]


class Bad(Exception):
    """Go's filepath.ErrBadPattern."""


def rune(text: bytes) -> tuple[int, int]:
    """Port utf8.DecodeRune: the first character and its width."""
    for width in range(1, 5):
        try:
            return ord(text[:width].decode()), width
        except (UnicodeDecodeError, TypeError):
            continue
    return 0xFFFD, 1


def escaped(chunk: bytes) -> tuple[int, bytes]:
    """Port getEsc: a character of a class."""
    if chunk[:1] in (b"", b"-", b"]"):
        raise Bad
    chunk = chunk[1:] if chunk[:1] == b"\\" else chunk
    if not chunk:
        raise Bad
    found, width = rune(chunk)
    rest = chunk[width:]
    if (found == 0xFFFD and width == 1) or not rest:
        raise Bad
    return found, rest


def scanned(pattern: bytes) -> tuple[bool, bytes, bytes]:
    """Port scanChunk: whether a chunk follows a star, the chunk, and the rest."""
    bare = pattern.lstrip(b"*")
    in_class, at = False, 0
    while at < len(bare):
        one = bare[at : at + 1]
        if one == b"\\":
            at += at + 1 < len(bare)
        elif one in b"[]":
            in_class = one == b"["
        elif one == b"*" and not in_class:
            break
        at += 1
    return bare != pattern, bare[:at], bare[at:]


def after(chunk: bytes, name: bytes) -> bytes | None:
    """Port matchChunk: what is left of a name behind a chunk that fits its start."""
    failed = False
    while chunk:
        failed = failed or not name
        if chunk[:1] == b"[":
            one, width = rune(name) if not failed else (0, 0)
            name, chunk = name[width:], chunk[1:]
            negated = chunk[:1] == b"^"
            chunk, fits, ranges = chunk[negated:], False, 0
            while not (chunk[:1] == b"]" and ranges):
                low, chunk = escaped(chunk)
                high, chunk = escaped(chunk[1:]) if chunk[:1] == b"-" else (low, chunk)
                fits, ranges = fits or low <= one <= high, ranges + 1
            chunk, failed = chunk[1:], failed or fits == negated
        elif chunk[:1] == b"?":
            name, chunk = (name if failed else name[rune(name)[1] :]), chunk[1:]
        else:
            chunk = chunk[1:] if chunk[:1] == b"\\" else chunk
            if not chunk:
                raise Bad
            if not failed:
                failed, name = chunk[0] != name[0], name[1:]
            chunk = chunk[1:]
    return None if failed else name


def match(part: str, name: str) -> bool:
    """Port filepath.Match for a name without a slash."""
    pattern, left = os.fsencode(part), os.fsencode(name)
    while pattern:
        star, chunk, pattern = scanned(pattern)
        if star and not chunk:
            return True
        rest = after(chunk, left)
        if rest is not None and (not rest or pattern):
            left = rest
            continue
        rests = (after(chunk, left[start:]) for start in range(1, len(left) + 1)) if star else iter(())
        rest = next((each for each in rests if each is not None and (pattern or not each)), None)
        if rest is None:
            while pattern:
                _, chunk, pattern = scanned(pattern)
                after(chunk, b"")
            return False
        left = rest
    return not left


def leads(parts: list[str], names: list[str], of_folders: bool) -> bool:
    """Port globMatch for a file."""
    matched = across = False
    for number, part in enumerate(parts):
        if part == "":
            across = False
            continue
        if part == "**":
            if number == len(parts) - 1:
                break
            across = True
            continue
        if "**" in part or not names:
            return False
        if across:
            across = False
            while names:
                if match(part, names.pop(0)):
                    matched = True
                    break
                matched = matched and bool(names)
        elif not match(part, names.pop(0)):
            return False
        else:
            matched = True
    return matched and not (of_folders and not names)


def goes(line: str, path: Path) -> bool:
    """Port ParsePattern and Match for a file and a line of a file with patterns."""
    text = line.removeprefix("!")
    text = text if text.endswith("\\ ") else text.rstrip(" ")
    bare = text.removesuffix("/")
    try:
        if "/" in bare:
            return leads(bare.split("/"), [*path], bare != text)
        first = next((number for number, name in enumerate(path) if match(bare, name)), None)
        return first is not None and not (bare != text and first == len(path) - 1)
    except Bad:
        return False


def left_out(lines: list[str], path: Path) -> bool:
    last = next((line for line in reversed(lines) if line and not line.startswith("#") and goes(line, path)), "!")
    return not last.startswith("!")


def found_left_out(lines: list[str], path: Path) -> bool:
    fitting = [each for each in patterns("\n".join(lines)) if each.fits(path)]
    return bool(fitting) and not fitting[-1].includes


PARTS = ["a", "b", "*", "**", "a*", "*b", "**b", "[ab]", "[a-b]", "[!a]", "[^a]", "?", "*??", "\\a", "\\*", "[", "[]a]"]
PLAIN = ["a", "b", "*", "**", "a*", "*b", "**b", "[ab]", "[a-b]", "[b-a]", "]", "-a", "é", "", "\udcff"]
PATHS = st.lists(st.sampled_from(["a", "b", "ab", "!", "]", "é", "€", "*", "\udcff"]), min_size=1, max_size=5)


def lines(parts: list[str]) -> st.SearchStrategy[list[str]]:
    names = st.lists(st.sampled_from(parts), min_size=1, max_size=2).map("".join)
    path = st.lists(names, min_size=1, max_size=4).map("/".join)
    affixes = st.tuples(st.sampled_from(["", "!"]), st.sampled_from(["", "/"]), st.sampled_from(["", "/", " ", "\\ "]))
    line = st.tuples(affixes, path).map(lambda each: f"{each[0][0]}{each[0][1]}{each[1]}{each[0][2]}")
    return st.lists(line, min_size=1, max_size=3)


@given(lines([*PARTS, *PLAIN]), PATHS.map(tuple))
@example(["a", "!/**"], ("a",))
@example(["a", "!/b/a**"], ("b", "a"))
@example(["[!a]b"], ("ab",))
@example(["[a\\]]b"], ("ab",))
@example(["a", "!\\*"], ("a",))
@example(["*??"], ("€",))
@example(["*", "!**/a/b"], ("a", "a", "b"))
@example(["a", "!" + "*" * 300], ("a",))
def test_no_file_that_go_leaves_out_is_taken_for_fetched(written: list[str], path: Path) -> None:
    if left_out(written, path):
        assert found_left_out(written, path)


@given(lines(PLAIN), PATHS.map(tuple))
def test_plain_patterns_fit_what_go_fits(written: list[str], path: Path) -> None:
    plain = [line for line in written if not line.endswith("\\ ")]
    assert found_left_out(plain, path) == left_out(plain, path)


@pytest.mark.parametrize(
    ("part", "name", "fits"),
    [
        ("a*b*c", "axbyc", True),
        ("a*b*c", "axbycd", False),
        ("[^x]st*", "ast", True),
        ("[!a]", "a", True),
        ("*??", "€", True),
        ("\\*", "*", True),
        ("[]a]", "a", None),
        ("[a", "a", None),
        ("a\\", "a", None),
    ],
)
def test_the_port_reads_go(part: str, name: str, fits: bool | None) -> None:
    """The results are those of Go 1.26."""
    try:
        assert match(part, name) is fits
    except Bad:
        assert fits is None
