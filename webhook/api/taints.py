"""Reads and compares taints and tolerations, of nodes and pods as well as of devices and claims."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webhook.api.lenient import mappings, string

REPELLING = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods off a node unless they tolerate it; `PreferNoSchedule` is only a preference."""


class Taint(NamedTuple):
    """A taint of a node or a device."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        """Write it as kubectl accepts it: `key=value:effect`."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def repels(self) -> bool:
        """Whether the taint keeps off pods and claims that do not tolerate it."""
        return self.effect in REPELLING


class Toleration(NamedTuple):
    """A toleration of a pod or a claim; an empty `key` or `effect` stands for every one."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether the toleration tolerates a taint (k8s.io/api core/v1 toleration.go, ToleratesTaint).

        The function for claims differs only in having no `Lt` and `Gt` (dynamic-resource-allocation
        resourceclaim/devicetoleration.go), which the API server refuses in a claim.
        """
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
        return False


def taints_of(holder: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Read the taints of a node's spec or of a device. A field of a wrong type counts as missing."""
    return tuple(
        Taint(string(each.get("key")), string(each.get("value")), string(each.get("effect")))
        for each in mappings(holder.get("taints"))
    )


def tolerations_of(given: Iterable[Mapping[str, Any]]) -> tuple[Toleration, ...]:
    """Read tolerations of a pod or a claim. A field of a wrong type counts as missing."""
    return tuple(
        Toleration(
            string(each.get("key")), string(each.get("operator")), string(each.get("value")), string(each.get("effect"))
        )
        for each in given
    )
