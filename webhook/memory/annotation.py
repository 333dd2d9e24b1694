"""Writes and reads the annotation on a pod that records its memory cap, and which of its parts have no cap."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from webhook.memory import frameworks
from webhook.memory.budget import Budget
from webhook.memory.steps import Cap
from webhook.policy.model import Pool
from webhook.text.words import shown

KEY = "slicewarden.dev/memory-caps"

MAX_ENTRIES = 8
MAX_ENTRY = 160
"""Maximum number of entries in a list of a record, and of characters in an entry."""

LISTS = ("lowered", "uncapped", "driver", "hook", "hami", "shim", "argument")
"""The lists of a record, in their order."""

_MORE = "and more"


@dataclass(frozen=True)
class Record:
    """The record of one pod: its pool, and its cap as a fraction of the card and in MiB.

    `fraction` is empty if a fraction caps nothing. An entry of `lowered` is `container: NAME from value`. An entry of
    `uncapped` names a part without a cap, and the reason. An entry of `driver` is a container that the driver limits.
    An entry of `hook` is `container: N MiB`, the driver's limit that NVIDIA's hook sets before the container starts.
    An entry of `hami` is `container: SIGN`, the sign that HAMi-core limits it. An entry of `shim` is `container:
    FRAMEWORKS`, which the shim caps there. An entry of `argument` is `container: PROGRAM`, which an argument limits.
    Variables cap the rest. `claim` names the claim or the template that sizes the slice. It is empty if the pool sizes
    the slice.
    """

    pool: str
    fraction: str
    mib: int
    lowered: tuple[str, ...] = ()
    uncapped: tuple[str, ...] = ()
    driver: tuple[str, ...] = ()
    hook: tuple[str, ...] = ()
    hami: tuple[str, ...] = ()
    shim: tuple[str, ...] = ()
    argument: tuple[str, ...] = ()
    claim: str = ""

    @cached_property
    def text(self) -> str:
        """The record as one line of JSON, in printable ASCII."""
        value: dict[str, object] = {"pool": self.pool, "fraction": self.fraction, "mib": self.mib}
        value |= {"claim": self.claim} if self.claim else {}
        value |= {name: entries for name in LISTS if (entries := getattr(self, name))}
        return json.dumps(value, separators=(",", ":"))

    def history(self, container: str, env: Mapping[str, str | None], whole: int = 0) -> Iterator[tuple[str, str, str]]:
        """Yield the variables that were lowered and have not changed since.

        Each comes with its entry in the record, its name, and its value before. `whole` is the MiB of the whole slice,
        to which the driver's own limit is lowered.
        """
        spellings = (*self._spellings, str(whole)) if whole else self._spellings
        for entry in self.lowered:
            if entry.startswith(f"{container}: "):
                name, _, old = entry[len(container) + 2 :].partition(" from ")
                value = env.get(name)
                if value is not None and any(spelling in value for spelling in spellings):
                    yield entry, name, old

    def still(self, entries: Collection[str]) -> list[str]:
        """Return the entries of `lowered` that are among the given ones, in the order of the record."""
        return [entry for entry in self.lowered if entry in entries or (entry == _MORE and entries)]

    @property
    def _spellings(self) -> tuple[str, ...]:
        digits = self.fraction.removeprefix("0.")
        percent = f"{digits[:2].lstrip('0') or '0'}.{digits[2:]}%"
        return tuple(filter(None, (self.fraction, percent, str(self.mib), str(self.mib * 2**20), "true")))

    def stands_for(self, other: "Record") -> bool:
        """Return whether this record differs from another at most in its cap, which must not be larger."""
        return self is other or (
            self.pool == other.pool
            and self.claim == other.claim
            and all(getattr(self, name) == getattr(other, name) for name in LISTS)
            and (
                bool(self.fraction) == bool(other.fraction)
                and self.fraction <= other.fraction
                and self.mib <= other.mib
            )
        )


def lowered(container: str, name: str, old: str) -> str:
    """Return the record's entry for a variable that was lowered."""
    return f"{container}: {name} from {shown(old, quotes=False)[:40]}"


def of(pool: Pool, cap: Cap, **lists: Collection[str]) -> Record:
    """Make the record of a pod from its lists of entries (LISTS).

    `uncapped` begins with what no cap reaches in any pod.
    """
    if not any(lists.values()):
        return plain(pool, cap)
    lists["uncapped"] = (*_beyond_reach(cap), *lists.get("uncapped", ()))
    bounded = {name: _bounded(entries) for name, entries in lists.items()}
    return Record(pool.name, _fraction(cap.budget), cap.budget.mib, **bounded, claim=_claim(cap.budget))


@lru_cache(maxsize=64)
def plain(pool: Pool, cap: Cap) -> Record:
    """Make the record of a pod in which nothing was lowered, and every part that a cap can reach has one."""
    uncapped = tuple(_beyond_reach(cap))
    return Record(pool.name, _fraction(cap.budget), cap.budget.mib, (), uncapped, claim=_claim(cap.budget))


def _claim(budget: Budget) -> str:
    return shown(budget.wish.claimed.by, quotes=False)[:MAX_ENTRY] if budget.wish.claimed else ""


def _fraction(budget: Budget) -> str:
    return "" if budget.unified else budget.fraction


def _beyond_reach(cap: Cap) -> Iterator[str]:
    """Yield the parts of any pod that no cap can reach."""
    if cap.driver:
        return
    capped = [framework for framework in frameworks.walk() if cap.policy.caps(framework.name)]
    if cap.budget.unified:
        yield from (
            f"{framework.name}: the GPU's memory is the host's" for framework in capped if framework.fractions_only
        )
    for framework in capped:
        yield from framework.uncapped(cap)


def _bounded(entries: Iterable[str]) -> tuple[str, ...]:
    """Keep the first different entries, cut to length. A last entry says if there were more."""
    unique = dict.fromkeys(e if len(e) <= MAX_ENTRY else f"{e[: MAX_ENTRY - 3]}..." for e in entries)
    known = tuple(entry for entry in unique if entry != _MORE)
    return (*known[:MAX_ENTRIES], *((_MORE,) if _MORE in unique or len(known) > MAX_ENTRIES else ()))


def read(text: object) -> Record | None:
    """Read a record. Returns None for any other text, because anyone may have written the annotation."""
    if not isinstance(text, str) or len(text) > 8192:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    pool, fraction, mib = (value.get(key) for key in ("pool", "fraction", "mib"))
    claim = value.get("claim", "")
    lists = [value.get(key, []) for key in LISTS]
    if not isinstance(pool, str) or not isinstance(fraction, str) or not isinstance(claim, str) or type(mib) is not int:
        return None
    if not all(isinstance(entries, list) and all(isinstance(e, str) for e in entries) for entries in lists):
        return None
    bounded = {name: tuple(entries[: MAX_ENTRIES + 1]) for name, entries in zip(LISTS, lists, strict=True)}
    return Record(pool, fraction, mib, **bounded, claim=claim)
