"""Reads Kubernetes quantities, such as `500m` and `4Gi`, as the API server does."""

import re
from fractions import Fraction
from math import ceil
from typing import Any

_GRAMMAR = re.compile(
    r"([+-]?)(?=\.?\d)(\d*+)(?:\.(\d*+))?(?:(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])|[eE]([+-]?)(\d++))?", re.ASCII
)
_DIGITS, _EXPONENT = 40, 3
"""Maximum digits before and after the point, and in an exponent, without leading and trailing zeros."""
_SUFFIX = {
    **{s: Fraction(10) ** e for s, e in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)},
    **{s: Fraction(1024) ** e for e, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}

_LARGEST = 2**63 - 1
"""Larger amounts count as this one, as they do for the API server."""
_FINEST = 10**9


Amount = int | Fraction
"""An amount: an int if it is whole, so that equal amounts have equal types."""


def parse(value: object) -> Amount:
    """Return the amount of a quantity: an int if it is whole, else a Fraction.

    `1`, `"1"`, `"1000m"`, `"1e0"` and `"1.0"` are all 1. A JSON number counts as its text does (apimachinery
    pkg/api/resource/quantity.go, ParseQuantity). Amounts are rounded up to a multiple of 10⁻⁹. Raises ValueError for
    any other value, for too many digits, and for a suffix without a number (`m`, which is 0 for Kubernetes).
    """
    if type(value) is int:
        return min(value, _LARGEST)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("not a quantity")
    match = _GRAMMAR.fullmatch(value if isinstance(value, str) else repr(value))
    if match is None:
        raise ValueError("not a quantity")
    sign, whole, part, suffix, negative, exponent = match.groups(default="")
    whole, part, exponent = whole.lstrip("0"), part.rstrip("0"), exponent.lstrip("0")
    if max(len(whole), len(part)) > _DIGITS or len(exponent) > _EXPONENT:
        raise ValueError("not a quantity")
    amount = Fraction(int(whole + part or "0"), 10 ** len(part))
    if suffix:
        amount *= _SUFFIX[suffix]
    elif exponent:
        amount *= Fraction(10) ** int(negative.strip("+") + exponent)
    amount = min(Fraction(ceil(amount * _FINEST), _FINEST), Fraction(_LARGEST))
    if sign == "-":
        amount = -amount
    return amount.numerator if amount.denominator == 1 else amount


def amount(value: Any) -> Amount:
    """Return the amount of a quantity; 0 for a value that is no quantity."""
    if type(value) is int:  # the usual case in facts: a shortcut pays off with tens of thousands of pods
        return value
    try:
        return parse(value)
    except ValueError:
        return 0
