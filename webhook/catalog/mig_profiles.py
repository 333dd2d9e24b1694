"""The MIG profiles that divide a whole GPU into equal devices."""

import re
from collections.abc import Mapping
from typing import NamedTuple


class MIGProfile(NamedTuple):
    """A profile, the number of its devices on one card, and the least MiB that each has."""

    name: str
    devices: int
    memory: int


_MIB = 900
"""Least MiB of a device for each GB in its profile's name: `nvidia-smi` shows 9728 MiB for a 1g.10gb of an A100."""


def _profiles(*sizes: tuple[str, int]) -> tuple[MIGProfile, ...]:
    return tuple(MIGProfile(name, devices, _MIB * _gb(name)) for name, devices in sizes)


def _gb(profile: str) -> int:
    """Return the GB in a profile's name, which may end with attributes; 0 for any other text."""
    named = re.fullmatch(r"(?:[0-9]{1,2}c\.)?[0-9]{1,2}g\.([0-9]{1,4})gb(?:[.+-].*)?", profile)
    return int(named[1]) if named else 0


def memory(profile: str) -> int | None:
    """Return the least MiB that a device of a profile has; None for a text that is no profile's name."""
    return _MIB * _gb(profile) or None


_PROFILES: Mapping[tuple[str, int], tuple[MIGProfile, ...]] = {
    # NVIDIA/mig-parted deployments/gpu-operator/config.yaml, `all-1g.5gb` and so on; the memory of the card in GB.
    ("A30", 24): _profiles(("1g.6gb", 4), ("2g.12gb", 2)),
    ("A100", 40): _profiles(("1g.5gb", 7), ("2g.10gb", 3), ("3g.20gb", 2)),
    ("A100", 80): _profiles(("1g.10gb", 7), ("1g.20gb", 4), ("2g.20gb", 3), ("3g.40gb", 2)),
    ("H100", 80): _profiles(("1g.10gb", 7), ("1g.20gb", 4), ("2g.20gb", 3), ("3g.40gb", 2)),
    ("H100", 96): _profiles(("1g.12gb", 7), ("1g.24gb", 4), ("2g.24gb", 3), ("3g.48gb", 2)),
    ("GH200", 96): _profiles(("1g.12gb", 7), ("1g.24gb", 4), ("2g.24gb", 3), ("3g.48gb", 2)),
    ("H200", 141): _profiles(("1g.18gb", 7), ("1g.35gb", 4), ("2g.35gb", 3), ("3g.71gb", 2)),
}


def named(product: str) -> tuple[MIGProfile, ...]:
    """Return the profiles of a product, smallest first, if its name shows how much memory the card has; else none."""
    words = _words(product)
    known = {size: profiles for (name, size), profiles in _PROFILES.items() if name in words}
    if sizes := [int(word.rstrip("GB")) for word in words if re.fullmatch("[0-9]{1,4}GB?", word)]:
        return known.get(sizes[0], ())
    return next(iter(known.values())) if len(known) == 1 else ()


def of(product: str, memory: int) -> tuple[MIGProfile, ...]:
    """Return the profiles of a product with this much memory (MiB), smallest first; none if the product is unknown."""
    words = _words(product)
    for (name, size), profiles in _PROFILES.items():
        # Labels give the usable memory of a card, which is up to a tenth less than in the product's name.
        if name in words and size * 0.9 <= memory / 1000 <= size * 1.1:
            return profiles
    return ()


def _words(product: str) -> list[str]:
    return product.upper().replace("_", "-").replace(" ", "-").split("-")
