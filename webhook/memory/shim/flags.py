"""Finds flags in a container's command line that prevent its Python from reading the shim.

The usual wrappers are skipped: a wrapper that is not in the table hides the rest of the command line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from webhook.memory.command_line import inline_script


class _Wrapper(NamedTuple):
    """A command that starts the command after it.

    `letters` are its short options with a value, `names` its long ones, and `arguments` the number of words that stand
    before the command.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    arguments: int = 0


_WRAPPERS: Mapping[str, _Wrapper] = {
    "catatonit": _Wrapper(),
    "chrt": _Wrapper("TPD", (), 1),
    "command": _Wrapper(),
    "dumb-init": _Wrapper("r", ("--rewrite",)),
    "env": _Wrapper("uCS", ("--unset", "--chdir", "--split-string")),
    "exec": _Wrapper("a"),
    "gosu": _Wrapper("", (), 1),
    "ionice": _Wrapper("cnpPu", ("--class", "--classdata")),
    "nice": _Wrapper("n", ("--adjustment",)),
    "nohup": _Wrapper(),
    "numactl": _Wrapper("NCmipP"),
    "setsid": _Wrapper(),
    "stdbuf": _Wrapper("ioe", ("--input", "--output", "--error")),
    "su-exec": _Wrapper("", (), 1),
    "taskset": _Wrapper("", (), 1),
    "time": _Wrapper("fo", ("--format", "--output")),
    "timeout": _Wrapper("ks", ("--kill-after", "--signal"), 1),
    "tini": _Wrapper("pe"),
    "tini-static": _Wrapper("pe"),
}
"""Sources: the manual pages of coreutils, util-linux, bash and numactl, and the READMEs of tini and the others."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_KEYWORDS = frozenset({"!", "{", "do", "else", "elif", "if", "then", "until", "while"})
"""The words of a shell after which a command follows."""

_TOKEN = re.compile(r"""(?P<end>[;&|()\n`]+)|(?:'[^']*+'|"(?:\\.|[^"\\])*+"|\\.|[^\s;&|()`'"\\])++""", re.DOTALL)
"""A word of a script, or what ends a command. It is linear: no part can match what another one matches."""

_QUOTED = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*+)"|\\(.)""", re.DOTALL)

_NESTED = 4
"""Scripts within scripts that are read."""


def unread(words: Sequence[str]) -> str:
    """Return the flag that prevents the Python of a command from reading the shim, such as `python -I`; else empty.

    These are Python's flags -I, -E and -S, and `env -i` or `env -u PYTHONPATH` before it. If a script starts several
    commands of Python and one of them reads the shim, the others count as its helpers.
    """
    found = [_of_python(command) for command in _commands(words, _NESTED)]
    return found[0] if found and all(found) else ""


def _commands(words: Sequence[str], nested: int) -> Iterator[Sequence[str]]:
    """Yield the commands of Python that a command starts, with the word `env -i` first if `env` clears PYTHONPATH."""
    cleared: list[str] = []
    at = 0
    while at < len(words):
        name = words[at].rpartition("/")[2]
        if name.startswith("python"):
            yield [*cleared, *words[at:]]
            return
        wrapper = _WRAPPERS.get(name)
        if wrapper is None:
            script = inline_script(words[at:]) if nested else ""
            for command in _split(script):
                for each in _commands(command, nested - 1):
                    yield [*cleared, *each]
            return
        options = at + 1
        at = _after(words, options, wrapper)
        if name == "env":
            cleared = cleared or _clears(words[options:at])
            packed = _packed(words[options:at])
            if packed and nested:
                inner = next(iter(_split(packed)), [])
                for each in _commands(["env", *inner, *words[at:]], nested - 1):
                    yield [*cleared, *each]
                return


def _after(words: Sequence[str], at: int, wrapper: _Wrapper) -> int:
    """Return the index of the command that a wrapper starts."""
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            at += word in wrapper.names
        else:
            before = [*takewhile(lambda letter: letter not in wrapper.letters, word[1:])]
            at += len(before) == len(word) - 2  # the option with a value is the last letter
    if wrapper is _WRAPPERS["env"]:
        while at < len(words) and _ASSIGNMENT.fullmatch(words[at]):
            at += 1
    return at + wrapper.arguments


def _clears(options: Sequence[str]) -> list[str]:
    """Return the words that clear PYTHONPATH among the options of `env`, unless it is set again."""
    if any(word.startswith("PYTHONPATH=") for word in options):
        return []
    for word, after in pairwise([*options, ""]):
        if word in ("-", "-i", "--ignore-environment"):
            return [f"env {word}"]
        if word in ("--unset=PYTHONPATH", "-uPYTHONPATH") or (word in ("-u", "--unset") and after == "PYTHONPATH"):
            return ["env --unset=PYTHONPATH"]
    return []


def _packed(options: Sequence[str]) -> str:
    """Return the command line that `env -S` takes as one word."""
    for word, after in pairwise([*options, ""]):
        if word in ("-S", "--split-string", "-vS"):
            return after
        if word.startswith(("-S", "--split-string=")):
            return word.removeprefix("--split-string=").removeprefix("-S")
    return ""


def _split(script: str) -> Iterator[list[str]]:
    """Yield the commands of a script, as words without quotes. A shell's expansions are left as they are."""
    words: list[str] = []
    for token in _TOKEN.finditer(script):
        if token["end"]:
            yield words
            words = []
        elif words or not (token[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(token[0])):
            words.append(_QUOTED.sub(lambda match: match[1] or match[2] or match[3] or "", token[0]))
    yield words


def _of_python(words: Sequence[str]) -> str:
    """Return the flags of a Python command with which it ignores PYTHONPATH or sitecustomize."""
    if words[0].startswith("env "):
        return words[0]
    value = False  # whether the word is the value of -W or -X
    for word in words[1:]:
        if value:
            value = False
        elif not word.startswith("-") or word in ("-", "--"):
            return ""
        elif not word.startswith("--"):
            letters = "".join(takewhile(lambda letter: letter not in "cmWX", word[1:]))
            if set(letters) & set("IES"):
                return f"python {word}"
            last = word[len(letters) + 1 : len(letters) + 2]
            if last in ("c", "m"):  # all later words belong to the program
                return ""
            value = bool(last) and len(word) == len(letters) + 2
    return ""
