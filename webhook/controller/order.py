"""Decides the next write of a change. Pure: no network, no clock, no state.

The registration itself says where a change is: which policies `/validate` names, and which one `/mutate` names. Each
step changes one of them, so a controller may stop after any step, and the next one continues.

A change from policy P to Q goes through three steps. First `/validate` allows a request if P or Q allows it. Then
`/mutate` patches by Q. When every request that P patched has ended, `/validate` judges only by Q. From nothing, the
first step is Q in audit mode. `/validate` never names more than two policies. If Q is no longer wanted, the change goes
back to P by the same steps, and then the next change begins. It can go back even if no replica can hold Q.

A new release may patch differently under the same policy. Its replicas become ready only when `/validate` tolerates
pods that the other release did not patch. The policy is strict again after the last replica of the other release has
ended.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import NamedTuple

from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name

Names = tuple[Name, ...]
"""The policies that a path names, the older one first; empty where a configuration has no webhooks."""

RELEASES = "releases"
"""What a step writes that is neither VALIDATE nor MUTATE: the releases whose replicas may become ready."""


class Place(NamedTuple):
    """The state of a change of policy: the policies in both configurations, and the releases that may become ready."""

    validate: Names
    mutate: Names
    admitted: frozenset[str] = frozenset()

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the policies that the configurations name."""
        return frozenset(name.digest for name in (*self.validate, *self.mutate))

    def after(self, write: "Write") -> "Place":
        """Return the state after this write."""
        if write.what == RELEASES:
            return self._replace(admitted=write.admitted)
        return self._replace(validate=write.names) if write.what == VALIDATE else self._replace(mutate=write.names)


class Seen(NamedTuple):
    """The observed state of the replicas and API servers.

    `held` are the digests that every replica has loaded; empty if a replica does not answer, or if there is none.
    `releases` are those of all replicas; None while one does not answer. `called` is true if every API server calls
    the paths that both webhook configurations name now, and no path of a configuration without webhooks. `drained` is
    true if none of this has changed for as long as a request may take.
    """

    held: frozenset[str]
    releases: frozenset[str] | None
    called: bool
    drained: bool


class Write(NamedTuple):
    """One write: the object to write, and the policies that it names after the write."""

    what: str
    names: Names = ()
    admitted: frozenset[str] = frozenset()

    def __str__(self) -> str:
        named = " ".join(sorted(self.admitted)) if self.what == RELEASES else ".".join(map(str, self.names))
        return f"{self.what} {named or 'nothing'}"


class Wait(StrEnum):
    """The condition that must be met before the next write, or before a change is complete."""

    REPLICAS = "replicas"
    SERVERS = "API servers"
    REQUESTS = "requests"


def strict(name: Name) -> Name:
    """Return the name of a policy for `/mutate`, without leniency, which concerns only `/validate`."""
    return name._replace(manner=Manner.ENFORCE) if name.manner is Manner.LENIENT else name


def upgrading(admitted: AbstractSet[str], releases: AbstractSet[str] | None) -> bool:
    """Whether replicas of two releases may get requests.

    While a replica does not answer, the admitted releases decide.
    """
    return len(admitted) > 1 or bool((releases or frozenset()) - admitted)


def aim(target: Name | None, place: Place, seen: Seen) -> Name | None:
    """Return the target of a change, made lenient if replicas of two releases may get requests.

    A target in audit mode stays as it is, because it denies nothing.
    """
    if target and target.manner is Manner.ENFORCE and upgrading(place.admitted, seen.releases):
        return target._replace(manner=Manner.LENIENT)
    return target


def step(place: Place, target: Name | None, releases: frozenset[str] | None) -> Write | None:
    """Return the next write towards a target, even if it must wait; None if the target is reached."""
    validate, mutate, admitted = place
    if target is None and (validate or mutate):
        return Write(VALIDATE if validate else MUTATE)
    if releases and releases - admitted and all(name.manner is not Manner.ENFORCE for name in validate):
        return Write(RELEASES, admitted=releases)  # only those that are there, so a liar cannot make the list longer
    if releases and admitted - releases:
        return Write(RELEASES, admitted=admitted & releases)
    if target is None:
        return None
    if not validate:
        return Write(VALIDATE, (Name(target.digest, Manner.AUDIT),))
    following = validate[-1] if _finishes(validate, target) else validate[0]
    if mutate != (strict(following),):
        return Write(MUTATE, (strict(following),))
    if len(validate) > 1:
        return Write(VALIDATE, (following,))
    if validate == (target,):
        return None
    if strict(validate[0]) == strict(target):
        return Write(VALIDATE, (target,))
    return Write(VALIDATE, (validate[0], target))


def _finishes(validate: Names, target: Name | None) -> bool:
    """Whether the change that has begun leads to the target. If not, it goes back."""
    return target is not None and strict(validate[-1]) == strict(target)


def ahead(place: Place, target: Name | None) -> Iterator[Write]:
    """Yield each write of the registration that is needed to reach a target, in order."""
    while (following := step(place, target, None)) is not None:
        yield following
        place = place.after(following)


def due(place: Place, target: Name | None, seen: Seen) -> Write | Wait | None:
    """Return the next write, or the condition for it; None if the target is reached and nothing is left to do."""
    target = aim(target, place, seen)
    following = step(place, target, seen.releases)
    if following is None and target is None:
        return None
    if following and following.what == RELEASES:
        grows = following.admitted - place.admitted
        return Wait.SERVERS if grows and place.validate and not seen.called else following
    if following and not following.names:  # else an old `/validate` refuses unpatched pods
        return Wait.SERVERS if following.what == MUTATE and not seen.called else following
    needed = frozenset(name.digest for name in (following.names if following else ()))
    if len(place.validate) < 2 or _finishes(place.validate, target):  # to go back, only the previous policy is needed
        needed |= place.digests
    if not needed <= seen.held:
        return Wait.REPLICAS
    if (place.validate or place.mutate) and not seen.called:
        return Wait.SERVERS
    if following and _ends_leniency(place, following) and not seen.drained:
        return Wait.REQUESTS
    return following


def _ends_leniency(place: Place, following: Write) -> bool:
    """Whether a request in flight would be judged more strictly than it was patched."""
    if following.what != VALIDATE:
        return False
    if len(place.validate) > 1:
        return True
    return bool(place.validate) and place.validate[0].manner is Manner.LENIENT and len(following.names) == 1
