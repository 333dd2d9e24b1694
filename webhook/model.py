"""The words everything speaks: Request, Finding, Fix, Result, Verdict."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.text.words import shown

Path = tuple[str | int, ...]
"""Where a value sits in an object: map keys and list indices, outermost first."""

Object = Mapping[str, Any]
"""A decoded JSON object, read and never written."""


class Action(StrEnum):
    """What a policy does about a finding."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


class Malformed(ValueError):
    """A value has a shape that the Kubernetes API would not have stored."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{dotted(path)}: {message}")
        self.path = path
        self.message = message


class Requester(NamedTuple):
    """Who sent a request (k8s.io/api authentication/v1 UserInfo)."""

    username: str
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Request:
    """An AdmissionRequest, under the API's own names (k8s.io/api admission/v1 types.go).

    `requester` is None for an object that nobody has sent yet, as one from a file. `size` counts the bytes of the
    review that it came in, None for one that came in none.
    """

    uid: str
    operation: str
    group: str
    version: str
    kind: str
    subresource: str
    namespace: str
    name: str
    requester: Requester | None
    dry_run: bool
    object: Object | None
    old_object: Object | None
    size: int | None = None


class Fix(NamedTuple):
    """How one place of the object would be right.

    The value is merged in: a map adds its keys, a list adds its items, anything else is set. Parents that
    are missing are created.
    """

    path: Path
    value: Any


class Finding(NamedTuple):
    """What a rule says of one place.

    `fixes` put the place right; a finding without any has to be mended by whoever wrote the object.
    `advice` warns at most, whatever the policy's action is. `text_line` counts lines (from 1) within the
    text that stands at `path`, 0 when the finding is about the whole value. `parts` are the things that are
    wrong there, each of which an update may put right on its own. Left out, the message and the value at `path`
    are the one part, so that another wrong value is news: where `path` holds more than what is wrong, name the part.
    """

    path: Path
    message: str
    fixes: tuple[Fix, ...] = ()
    advice: bool = False
    text_line: int = 0
    parts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line: place, what is wrong and the way out."""
        return f"{dotted(self.path)}: {self.message}"


class Result(NamedTuple):
    """A finding with the rule that made it and the action the policy takes.

    `exemption` names the policy's exemption by which the finding is only recorded.
    """

    rule: str
    action: Action
    finding: Finding
    exemption: str = ""

    @property
    def text(self) -> str:
        """One line: rule, place, what is wrong and the way out."""
        return f"{self.rule}: {self.finding.text}"


class Verdict(NamedTuple):
    """All results for one request, and the JSON Patch (RFC 6902 operations) that goes with them.

    `malformed` says why the object could not be judged at all; such an object is refused.
    """

    results: tuple[Result, ...] = ()
    patch: tuple[Mapping[str, Any], ...] = ()
    malformed: Malformed | None = None

    @property
    def allowed(self) -> bool:
        """False when any result denies, or nothing could be judged."""
        return self.malformed is None and not any(r.action is Action.DENY for r in self.results)

    def having(self, action: Action) -> list[Result]:
        """The results with this action, in the order the rules gave them."""
        return [r for r in self.results if r.action is action]


class Problem(NamedTuple):
    """Something in a file that cannot be used: an unreadable document, a wrong key in a policy.

    `line` counts from 1; 0 speaks of the file as a whole.
    """

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class Unusable(Exception):
    """Input with which nothing can be done; `problems` says where and why, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def dotted(path: Path) -> str:
    """Write a path as people do: `spec.containers[0].resources.limits[nvidia.com/gpu]`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif key and len(key) <= 80 and _PLAIN.issuperset(key):
            text += f".{key}" if text else key
        else:
            text += f"[{shown(key, quotes=False)}]"
    return text or "object"
