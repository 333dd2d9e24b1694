"""Evaluates the selectors of device classes and claims: CEL over one device, with Google's own implementation.

Sources of the functions: k8s.io/dynamic-resource-allocation cel/compile.go, k8s.io/apiserver cel/library.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from webhook.api import quantity
from webhook.placing.scheduling.allocation import AllocationError
from webhook.placing.scheduling.devices import AllocatableDevice, Version

EXTRA = ".[claims]"
"""The package to install, in a clone, for the selectors to be read."""

_QUANTITY, _VERSION = "quantity", "version"
"""Keys of the maps that stand for values that CEL itself has no type for."""

_DOMAIN = re.compile(r"""\[\s*(?:"([^"]*)"|'([^']*)')\s*\]""")

_SEMVER = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


def reader() -> Callable[[str, AllocatableDevice], bool] | None:
    """Return a function that matches a selector with a device; None if the library for CEL is not installed.

    The function raises Unreadable for a selector that cannot be compiled or evaluated.
    """
    try:
        from cel_expr_python import cel
    except ImportError:
        return None
    environment = _environment(cel)

    @cache
    def compiled(expression: str) -> Any:
        try:
            return environment.compile(expression)
        except Exception as error:  # the library raises RuntimeError and ValueError, and promises neither
            raise AllocationError(f"a selector cannot be read: {str(error).splitlines()[0]}") from None

    def matches(expression: str, device: AllocatableDevice) -> bool:
        answer = compiled(expression).eval(data={"device": _value(expression, device)})
        if answer.type() == cel.Type.ERROR:
            raise AllocationError(
                f"a selector fails on device {device.id[2]}: {str(answer.plain_value()).splitlines()[0]}"
            )
        return answer.plain_value() is True

    return matches


def _value(expression: str, device: AllocatableDevice) -> Mapping[str, Any]:
    """Return a device as CEL sees it. A domain that is asked for and not there is empty (DeviceMatches)."""
    domains = [first or second for first, second in _DOMAIN.findall(expression)]
    attributes: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    capacity: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    for name, value in device.attributes.items():
        domain, _, last = name.rpartition("/")
        attributes.setdefault(domain or device.driver, {})[last] = (
            {_VERSION: str(value)} if isinstance(value, Version) else value
        )
    for name, amount in device.capacity.items():
        domain, _, last = name.rpartition("/")
        capacity.setdefault(domain or device.driver, {})[last] = {_QUANTITY: str(amount.value)}
    return {
        "driver": device.driver,
        "allowMultipleAllocations": device.shared,
        "attributes": attributes,
        "capacity": capacity,
    }


def _environment(cel: Any) -> Any:
    from cel_expr_python.ext.ext_bindings import ExtBindings
    from cel_expr_python.ext.ext_optional import ExtOptional
    from cel_expr_python.ext.ext_strings import ExtStrings

    kind = cel.Type

    def function(name: str, returned: Any, parameters: list[Any], implementation: Callable[..., Any]) -> Any:
        member = bool(parameters) and parameters[0] == kind.MAP
        signs = "_".join(each.name() for each in parameters)
        return cel.FunctionDecl(name, [cel.Overload(f"{name}_{signs}", returned, parameters, member, implementation)])

    both = [kind.MAP, kind.MAP]
    functions = [
        function("quantity", kind.MAP, [kind.STRING], lambda text: {_QUANTITY: str(quantity.parse(text))}),
        function("isQuantity", kind.BOOL, [kind.STRING], _is_quantity),
        function("semver", kind.MAP, [kind.STRING], lambda text: {_VERSION: text}),
        function("isSemver", kind.BOOL, [kind.STRING], lambda text: _SEMVER.fullmatch(text) is not None),
        function("compareTo", kind.INT, both, _compare),
        function("isGreaterThan", kind.BOOL, both, lambda one, other: _compare(one, other) > 0),
        function("isLessThan", kind.BOOL, both, lambda one, other: _compare(one, other) < 0),
        function("asInteger", kind.INT, [kind.MAP], lambda one: int(_key(one)[0])),
        function("isInteger", kind.BOOL, [kind.MAP], lambda one: Fraction(one[_QUANTITY]).denominator == 1),
        function("sign", kind.INT, [kind.MAP], lambda one: _compare(one, {_QUANTITY: "0"})),
        function("major", kind.INT, [kind.MAP], lambda one: int(_key(one)[0])),
        function("minor", kind.INT, [kind.MAP], lambda one: int(_key(one)[1])),
        function("patch", kind.INT, [kind.MAP], lambda one: int(_key(one)[2])),
    ]
    extensions = [ExtBindings(), ExtOptional(), ExtStrings()]
    return cel.NewEnv(variables={"device": kind.DYN}, extensions=extensions, functions=functions)


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except ValueError:
        return False
    return True


def _compare(one: Mapping[str, str], other: Mapping[str, str]) -> int:
    left, right = _key(one), _key(other)
    return (left > right) - (left < right)


def _key(value: Mapping[str, str]) -> tuple[Any, ...]:
    """Return a sort key for a quantity or a version (semver.org, 11): a release comes after its pre-releases."""
    if _QUANTITY in value:
        return (Fraction(value[_QUANTITY]),)
    match = _SEMVER.fullmatch(value[_VERSION])
    if match is None:
        raise ValueError(f"{value[_VERSION]} is no version")
    before = match[4]
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in (before or "").split(".")]
    return (*(int(number or 0) for number in match.groups()[:3]), (before is None, parts))
