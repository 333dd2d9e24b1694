"""Has the driver hold each container of a pool with `memoryLimit: Driver` to its allowance."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from webhook.agent.view import Known

AGAIN = 30.0
"""Seconds until a limit that could not be set is tried again."""

Key = tuple[str, str]
"""A card's UUID and the path of a container's cgroup."""

Set = Callable[[str, str, int | None], str]
"""Sets the limit of a cgroup on a card, in MiB or None for none. Returns why it failed, or an empty text."""


def wanted(known: Mapping[str, Known]) -> Mapping[str, int]:
    """Return the MiB of each container that the driver is to hold, by id.

    A container without an allowance has no limit: nobody knows what it was admitted with.
    """
    return {
        container: each.standing.allowance
        for container, each in known.items()
        if each.standing.driver and each.standing.allowance is not None and not each.standing.exempt
    }


class Limits:
    """Keeps the limits that are set in step with those that are wanted. `failed` has the reasons of the last step."""

    def __init__(self) -> None:
        self._set: dict[Key, int] = {}
        self._again: dict[Key, float] = {}
        self.failed: Mapping[Key, str] = {}

    def __len__(self) -> int:
        return len(self._set)

    def keep(
        self, now: float, wanted: Mapping[str, int], folders: Mapping[str, Path], cards: Collection[str], set_: Set
    ) -> int:
        """Set what is missing or has changed, and take away what is wanted no more. Returns how many were set.

        Every card of the node is limited: which one a container will use is not known before its first process does. A
        removed cgroup has no limits any more (nvml.h 13.5, nvmlSetMemoryLimits_v1_t).
        """
        want = {(card, str(folders[each])): mib for each, mib in wanted.items() if each in folders for card in cards}
        failed: dict[Key, str] = {}
        for key in [key for key in self._set if key not in want]:
            if Path(key[1]).is_dir() and (why := set_(*key, None)):
                failed[key] = why  # it is tried again at the next step
            else:
                del self._set[key]
        done = 0
        for key, mib in want.items():
            if self._set.get(key) == mib:
                continue
            if now < self._again.get(key, now):
                failed[key] = self.failed.get(key, "")
            elif why := set_(*key, mib):
                failed[key] = why
                self._again[key] = now + AGAIN
            else:
                self._set[key] = mib
                done += 1
        self._again = {key: at for key, at in self._again.items() if key in want}
        self.failed = failed
        return done

    def forget(self) -> None:
        """Forget what is set, so that it is set again: after NVML or the driver has started anew."""
        self._set.clear()
        self._again.clear()

    def remove(self, set_: Set) -> None:
        """Take every limit away."""
        for key in self._set:
            if Path(key[1]).is_dir():
                set_(*key, None)
        self._set.clear()
