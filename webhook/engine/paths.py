"""The paths by which a registration names the policies that answer.

`/mutate/NAME` patches as one policy. `/validate/NAME` judges as one, and `/validate/NAME.NAME` lets in what either lets
in. A name is the digest of a policy, with `-audit` where it only records, or `-lenient` where it lets in what a replica
of another release has not patched. So an answer is never that of another policy, and where a change of policy is, the
registration says and nothing else.
"""

import re
from enum import StrEnum
from typing import NamedTuple, Self

MUTATE, VALIDATE = "mutate", "validate"
"""The halves of a registration, as in the paths."""


class Manner(StrEnum):
    """How a policy answers: it acts, it only records, or it warns of what lacks the patch of `/mutate`."""

    ENFORCE = ""
    AUDIT = "audit"
    LENIENT = "lenient"


class Name(NamedTuple):
    """A policy in a path, by its digest, and the manner in which it answers."""

    digest: str
    manner: Manner = Manner.ENFORCE

    def __str__(self) -> str:
        return f"{self.digest}-{self.manner}" if self.manner else self.digest

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a name. Raises ValueError."""
        if (found := _NAME.fullmatch(text)) is None:
            raise ValueError(f"not the name of a policy: {text[:80]!r}")
        return cls(found["digest"], Manner(found["manner"] or ""))


DIGEST = re.compile(r"[0-9a-f]{16}", re.ASCII)
"""The digest of a policy."""

RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,62}", re.ASCII)
"""A release that a replica reports: it is a word in a warning and in a list."""

_NAME = re.compile(rf"(?P<digest>{DIGEST.pattern})(-(?P<manner>audit|lenient))?", re.ASCII)

MOST = 2
"""Policies that one path names at most."""


class Path(NamedTuple):
    """A path with names: the half, and the policies that answer, the older one first."""

    half: str
    names: tuple[Name, ...]

    def __str__(self) -> str:
        return f"/{self.half}/{'.'.join(map(str, self.names))}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a path; None if it is none that names policies. A patch is made by one policy."""
        half, _, names = text.removeprefix("/").partition("/")
        if not text.startswith("/") or half not in (MUTATE, VALIDATE):
            return None
        parts = names.split(".")
        if len(parts) > (MOST if half == VALIDATE else 1):
            return None
        try:
            return cls(half, tuple(map(Name.read, parts)))
        except ValueError:
            return None
