"""Writes CEL literals, and joins and compares expressions. Every function takes texts and returns a text."""

import re
from collections.abc import Iterable, Iterator, Mapping

from webhook.catalog.names import Names

NO_TEXTS = "[''].filter(x, false)"
"""An empty list of strings. `[]` has no element type, and the compiler does not join it with a list of strings."""


def text(value: str) -> str:
    """Write a string as a CEL literal.

    A literal has no line breaks, so control characters are written by their numbers.
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + "'"


def array(values: Iterable[str]) -> str:
    """Write a list of strings as a CEL literal."""
    return f"[{', '.join(map(text, values))}]"


def strings(values: Mapping[str, str]) -> str:
    """Write a map of strings to strings as a CEL literal."""
    return "{" + ", ".join(f"{text(key)}: {text(value)}" for key, value in values.items()) + "}"


def filled(optional: str, default: str = "[]") -> str:
    """Write the value of an optional, or an empty `default` if it is absent or null.

    `.?` finds nothing in a null value, but `orValue` returns a null that is present, and every macro and function fails
    on it.
    """
    return f"optional.ofNonZeroValue({optional}.orValue(null)).orValue({default})"


def any_of(expressions: Iterable[str]) -> str:
    """Join expressions by `||`. The result for no expressions is `false`."""
    some = [each for each in dict.fromkeys(expressions) if each != "false"]
    if "true" in some:
        return "true"
    return f"({' || '.join(some)})" if len(some) > 1 else some[0] if some else "false"


def all_of(expressions: Iterable[str]) -> str:
    """Join expressions by `&&`. The result for no expressions is `true`."""
    some = [each for each in dict.fromkeys(expressions) if each != "true"]
    if "false" in some:
        return "false"
    return f"({' && '.join(some)})" if len(some) > 1 else some[0] if some else "true"


def negated(expression: str) -> str:
    """Write the opposite of an expression."""
    return {"true": "false", "false": "true"}.get(expression, f"!({expression})")


def one_of(variable: str, values: Iterable[str]) -> str:
    """Write the comparison of a variable with several strings."""
    some = [*dict.fromkeys(values)]
    return f"{variable} in {array(some)}" if some else "false"


def matching(variable: str, patterns: Iterable[str]) -> Iterator[str]:
    """Yield expressions that compare a variable with patterns, which match as `Names` defines."""
    patterns = [*dict.fromkeys(patterns)]
    prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))
    prefixes = tuple(
        prefix for prefix in prefixes if not any(prefix != other and prefix.startswith(other) for other in prefixes)
    )
    exact = [pattern for pattern in patterns if not pattern.endswith("*") and not pattern.startswith(("*", *prefixes))]
    if exact:
        yield f"{variable} in {array(exact)}"
    if prefixes:
        yield begins(variable, prefixes)
    for pattern in patterns:
        if pattern.startswith("*") and not pattern.endswith("*"):
            yield f"{variable}.endsWith({text(pattern[1:])})"


def begins(variable: str, prefixes: Iterable[str]) -> str:
    """Return the CEL expression that is true if a variable, or a value, begins with one of some strings.

    The comparisons are written one by one. A macro would make a stack frame for each string, which costs more than a
    comparison.
    """
    some = [*dict.fromkeys(prefixes)]
    if re.fullmatch(r"\w+", variable):
        return any_of(f"{variable}.startsWith({text(each)})" for each in some)
    return f"{array(some)}.exists(start, {variable}.startsWith(start))"


def matches(variable: str, patterns: Iterable[str]) -> str:
    """Return the CEL expression that is true if a variable matches one of some patterns."""
    return any_of(matching(variable, patterns))


def named(variable: str, names: Names) -> str:
    """Return the CEL expression that is true if a variable is one of some names, as in `Names`."""
    others = named(variable, names.other_than) if names.other_than else "false"
    return all_of((matches(variable, names.patterns), negated(others)))
