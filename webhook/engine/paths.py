"""The paths with which a registration names the policies that must answer.

`/mutate/NAME` patches by one policy. `/validate/NAME` judges by one policy, and `/validate/NAME.NAME` allows a request
if either of two policies allows it. A name is the digest of a policy. It ends in `-audit` if the policy only records,
or in `-lenient` if it allows pods that a replica of another release has not patched. So no other policy can answer, and
the registration is the only record of how far a change of policy has come.
"""

import re
from enum import StrEnum
from typing import NamedTuple, Self

MUTATE, VALIDATE = "mutate", "validate"
"""The two halves of a registration, as their paths name them."""


class Manner(StrEnum):
    """How a policy answers: it enforces, only records, or only warns of pods that lack the patch of `/mutate`."""

    ENFORCE = ""
    AUDIT = "audit"
    LENIENT = "lenient"


class Name(NamedTuple):
    """The name of a policy in a path: its digest, and the manner in which it answers."""

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
"""A release that a replica reports. It must be one word, for warnings and lists."""

_NAME = re.compile(rf"(?P<digest>{DIGEST.pattern})(-(?P<manner>audit|lenient))?", re.ASCII)

MOST = 2
"""The maximum number of policies in a path."""


class Path(NamedTuple):
    """A parsed path: `half` is `mutate` or `validate`; `names` are the policies that answer, the older one first."""

    half: str
    names: tuple[Name, ...]

    def __str__(self) -> str:
        return f"/{self.half}/{'.'.join(map(str, self.names))}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Read a path. Returns None if the path names no policies. A path of `/mutate` names exactly one policy."""
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
