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

FOLDER = "/slicewarden"
"""The shim's folder in a container, the first one of its PYTHONPATH. No image and no other volume uses it."""

_OWN = "PYTHONPATH="
"""The beginning of an assignment of PYTHONPATH."""

_CONTAINERS_PATH = re.compile(r"\$\(PYTHONPATH\)")
"""What the kubelet replaces by the container's PYTHONPATH (kubernetes third_party/forked/golang/expansion)."""

_SHELLS_PATH = re.compile(r"\$(?:PYTHONPATH\b|\{PYTHONPATH\b|\(PYTHONPATH\))")
"""The same, or what a shell replaces by it. `env -S` replaces only what has braces."""

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

    These are Python's flags -I, -E and -S, and before it `env -i`, `env -u PYTHONPATH`, or an assignment that takes the
    shim's folder out of PYTHONPATH. If a script starts several commands of Python and one of them reads the shim, the
    others count as its helpers.
    """
    found = [_of_python(cleared, command) for cleared, command in _commands(words, _NESTED, "")]
    return found[0] if found and all(found) else ""


def _commands(words: Sequence[str], nested: int, cleared: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the commands of Python that a command starts, each with the words that clear PYTHONPATH for it, or empty.

    `cleared` are those words for the whole command.
    """
    before, at = cleared, 0  # a shell expands all words first
    while at < len(words):
        name = words[at].rpartition("/")[2]
        if name.startswith("python"):
            yield cleared, words[at:]
            return
        wrapper = _WRAPPERS.get(name)
        if wrapper is None:
            for command in _split(inline_script(words[at:]) if nested else ""):
                yield from _commands(command, nested - 1, cleared)
            return
        options = at + 1
        at = _after(words, options, wrapper)
        if name == "env":
            cleared = _clears(words[options:at]) or cleared
            packed = _packed(words[options:at])
            if packed and nested:
                inner = next(iter(_split(packed)), [])
                yield from _commands(["env", *inner, *words[at:]], nested - 1, cleared)
                return
            while at < len(words) and _ASSIGNMENT.fullmatch(words[at]):
                if words[at].startswith(_OWN):
                    kept = _keeps(words[at].removeprefix(_OWN), expanded=nested < _NESTED and not before)
                    cleared = "" if kept else f"python after {_OWN}"
                at += 1
        at += wrapper.arguments


def _after(words: Sequence[str], at: int, wrapper: _Wrapper) -> int:
    """Return the index of the first word after the options of a wrapper."""
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        if word.startswith("--"):
            at += word in wrapper.names
        else:
            at += len(_short(word, wrapper)[1]) == 1  # the option with a value is the last letter
    return at


def _short(word: str, wrapper: _Wrapper) -> tuple[str, str]:
    """Split short options in one word: those without a value, and the one with a value with what follows it."""
    plain = "".join(takewhile(lambda letter: letter not in wrapper.letters, word[1:]))
    return plain, word[1 + len(plain) :]


def _clears(options: Sequence[str]) -> str:
    """Return the words that clear PYTHONPATH among the options of `env`; empty if there are none."""
    for word, after in pairwise([*options, ""]):
        plain, valued = ("", "") if word.startswith("--") else _short(word, _WRAPPERS["env"])
        if "i" in plain or word in ("-", "--ignore-environment"):
            return f"env {word}"
        unset = valued[1:] or after if valued.startswith("u") else after if word == "--unset" else ""
        if unset == "PYTHONPATH" or word == "--unset=PYTHONPATH":
            return "env --unset=PYTHONPATH"
    return ""


def _keeps(value: str, *, expanded: bool) -> bool:
    """Return whether a PYTHONPATH has the shim's folder first, or has the container's own PYTHONPATH in it.

    `expanded` is whether a shell expands the value and knows that PYTHONPATH.
    """
    own = _SHELLS_PATH if expanded else _CONTAINERS_PATH
    return value.partition(":")[0] == FOLDER or own.search(value) is not None


def _packed(options: Sequence[str]) -> str:
    """Return the command line that `env -S` takes as one word."""
    for word, after in pairwise([*options, ""]):
        if word == "--split-string":
            return after
        if word.startswith("--"):
            if word.startswith("--split-string="):
                return word.removeprefix("--split-string=")
        elif (valued := _short(word, _WRAPPERS["env"])[1]).startswith("S"):
            return valued[1:] or after
    return ""


def _split(script: str) -> Iterator[list[str]]:
    """Yield the commands of a script, as words without quotes. A shell's expansions are left as they are.

    An assignment before a command is left out, except one of PYTHONPATH: it becomes a word of `env`.
    """
    words: list[str] = []
    for token in _TOKEN.finditer(script):
        if token["end"]:
            yield words
            words = []
            continue
        if not words and token[0].startswith(_OWN):
            words.append("env")
        if words or not (token[0] in _KEYWORDS or _ASSIGNMENT.fullmatch(token[0])):
            words.append(_QUOTED.sub(lambda match: match[1] or match[2] or match[3] or "", token[0]))
    yield words


def _of_python(cleared: str, words: Sequence[str]) -> str:
    """Return what clears PYTHONPATH for a Python command, or its flags that ignore PYTHONPATH or sitecustomize."""
    if cleared:
        return cleared
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
