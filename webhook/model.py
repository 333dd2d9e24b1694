"""The types that every package shares: Request, Finding, Fix, Result, Verdict."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from webhook.text.words import one_line, shown

Path = tuple[str | int, ...]
"""The place of a value in an object: map keys and list indices, outermost first."""

Object = Mapping[str, Any]
"""A decoded JSON object. Nothing writes to it."""


T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def immutable(cls: type[T]) -> type[T]:
    """Make a dataclass whose fields are set once, and whose instances are equal only to themselves.

    mypy refuses writes to a field. A frozen dataclass would refuse them at run time too, but takes three times as long
    to define and to instantiate.
    """
    cls.__repr__ = _fields  # type: ignore[method-assign]
    return dataclass(eq=False, repr=False)(cls)


def _fields(self: object) -> str:
    return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class Action(StrEnum):
    """The action that a policy takes on a finding."""

    DENY = "Deny"
    WARN = "Warn"
    AUDIT = "Audit"


class Mode(StrEnum):
    """Whether the webhook acts on what it finds, or records it and lets everything through unchanged."""

    ENFORCE = "enforce"
    AUDIT = "audit"


class Would(StrEnum):
    """The effect that the policy would have had on a request that audit mode let through unchanged."""

    ALLOW = "allow"
    PATCH = "patch"
    DENY = "deny"


class Malformed(ValueError):
    """A value has a shape that the Kubernetes API would not have stored."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{dotted(path)}: {message}")
        self.path = path
        self.message = message


class Requester(NamedTuple):
    """The user who sent a request (k8s.io/api authentication/v1 UserInfo)."""

    username: str
    groups: frozenset[str]


@immutable
class Request:
    """An AdmissionRequest, under the API's own names (k8s.io/api admission/v1 types.go).

    `requester` is None for an object that was never sent, such as one from a file. `size` is the review's length in
    bytes, or None without a review.
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
    """A change that corrects one place in the object.

    The value is merged in: a map adds its keys, a list adds its items, anything else is set. Missing parents are
    created.
    """

    path: Path
    value: Any


class Finding(NamedTuple):
    """A rule's report about one place in an object.

    `fixes` correct the place; without any, the author has to correct the object. `advice` warns at most, whatever
    the policy's action is. `text_line` is a line (from 1) within the text at `path`, or 0 for the whole value.

    `parts` are the separate faults there; an update may correct them one by one. The default is one part, the message
    with the value at `path`, so that a different wrong value counts as new. Name the part if the value
    at `path` contains more than the fault.

    `left_out` says that the place lacks a value that `/mutate` writes. The engine adds the reason to the message; `why`
    is that reason.
    """

    path: Path
    message: str
    fixes: tuple[Fix, ...] = ()
    advice: bool = False
    text_line: int = 0
    parts: tuple[str, ...] = ()
    left_out: bool = False
    why: str = ""

    @property
    def text(self) -> str:
        """One line: the place, what is wrong and the way out."""
        return f"{dotted(self.path)}: {self.message}"


class Result(NamedTuple):
    """A finding with its rule and the action that the policy takes.

    `exemption` names the policy's exemption if one turned the finding into a mere record. A finding is `repaired` if
    `/mutate` would repair it on creation under the action Deny.
    """

    rule: str
    action: Action
    finding: Finding
    exemption: str = ""
    repaired: bool = False

    @property
    def remark(self) -> str:
        """The reason why the finding has less effect than its rule says; empty in most cases."""
        return f"exempted by {self.exemption}" if self.exemption else "would be repaired" if self.repaired else ""

    @property
    def text(self) -> str:
        """One line: the rule, the place, what is wrong and the way out."""
        return f"{self.rule}: {self.finding.text}"


class Verdict(NamedTuple):
    """All results for one request, and their JSON Patch (RFC 6902 operations).

    `malformed` is the reason why the object could not be judged; such an object is refused, except in audit mode.
    `would` is set only in audit mode, where everything is allowed.
    """

    results: tuple[Result, ...] = ()
    patch: tuple[Mapping[str, Any], ...] = ()
    malformed: Malformed | None = None
    would: Would | None = None

    @property
    def allowed(self) -> bool:
        """False if any result denies, or the object could not be judged. Always true in audit mode."""
        if self.would is not None:
            return True
        return self.malformed is None and Action.DENY not in [result.action for result in self.results]

    def having(self, action: Action) -> list[Result]:
        """The results with this action, in the order the rules gave them."""
        return [r for r in self.results if r.action is action]


class Problem(NamedTuple):
    """A fault in a file: an unreadable document, a wrong key in a policy.

    `line` counts from 1; 0 means the whole file.
    """

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return one_line(f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}")


class Unusable(Exception):
    """The input cannot be used. `problems` has the places and the reasons."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def dotted(path: Path) -> str:
    """Write a path as kubectl does: `spec.containers[0].resources.limits[nvidia.com/gpu]`."""
    written = ""
    for key in path:
        if isinstance(key, int):
            written += f"[{key}]"
        elif len(key) <= 80 and ((key.isascii() and key.isalnum()) or (key and _PLAIN.issuperset(key))):
            written += f".{key}" if written else key
        else:
            written += f"[{shown(key, quotes=False)}]"
    return written or "object"
