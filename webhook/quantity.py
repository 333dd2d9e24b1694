"""Kubernetes quantities, parsed as the API server parses them."""

import re
from fractions import Fraction

_GRAMMAR = re.compile(
    r"([+-]?)(\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])|[eE]([+-]?\d{1,3}))?",
    re.ASCII,
)
_SUFFIX = {
    **{s: Fraction(10) ** e for s, e in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)},
    **{s: Fraction(1024) ** e for e, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}

_LARGEST = 2**63 - 1
"""Larger amounts count as this one, as they do for the API server."""


def parse(value: object) -> int | Fraction:
    """Return what a quantity amounts to: an int when it is whole, else a Fraction.

    `1`, `"1"`, `"1000m"`, `"1e0"` and `"1.0"` are all 1; a JSON number counts as its text does
    (apimachinery pkg/api/resource/quantity.go, ParseQuantity). Raises ValueError for anything else.
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
    sign, number, suffix, exponent = match.groups()
    amount = Fraction(number) if number[-1] != "." else Fraction(number[:-1])
    if suffix:
        amount *= _SUFFIX[suffix]
    elif exponent:
        amount *= Fraction(10) ** int(exponent)
    amount = min(amount, Fraction(_LARGEST))
    if sign == "-":
        amount = -amount
    return amount.numerator if amount.denominator == 1 else amount
