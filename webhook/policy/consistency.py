"""Finds the errors of a policy that a schema cannot express."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from functools import reduce
from operator import and_, or_

from webhook.api.selectors import NOTHING, Selector, Values, contradiction
from webhook.model import Object, Path
from webhook.policy.decode import DRIVER, guard, mib, selector
from webhook.policy.model import SHARED
from webhook.text.spelling import Guesses, hint
from webhook.text.words import shown


def inconsistencies(spec: Object) -> Iterator[tuple[Path, str]]:
    """Find errors that a schema cannot express: invalid quantities, duplicate names, overlapping pools."""
    pools = spec["pools"]
    for path, value in _quantities(spec):
        try:
            if mib(value) <= 0:
                yield path, f"must be at least 1Mi, found {shown(value)}, a quantity in bytes"
        except ValueError:
            yield path, f"must be a quantity of memory such as 512Mi, found {shown(value)}"
    for path, scope in _scopes(spec):
        if "namespaceSelector" in scope and not selector(scope["namespaceSelector"]).requirements:
            yield (*path, "namespaceSelector"), "is empty, and would cover every namespace; name labels"
    if isinstance(spec.get("guard"), dict) and len(spec["guard"]) > 1:
        yield ("spec", "guard"), "has a taint and everyPod; keep one of them"
    names = dict.fromkeys(pool["name"] for pool in pools)
    guesses = Guesses()
    for path, scope in _scopes(spec):
        for place, name in enumerate(scope.get("pools", ())):
            if name not in names:
                yield (*path, "pools", place), f"unknown pool{hint(name, names, guesses)}"
    for index, exemption in enumerate(spec.get("exemptions", ())):
        try:
            date.fromisoformat(exemption.get("until", "2000-01-01"))
        except ValueError:
            yield ("spec", "exemptions", index, "until"), f"is not a day of the calendar: {shown(exemption['until'])}"
    yield from _untolerated(spec)
    for path, name in _pools_named(spec):
        if name not in names:
            yield path, f"no pool named {shown(name)}"
    for index, pool in enumerate(pools):
        if len(pool.get("queue", {}).keys() - {"names"}) > 1:
            yield (
                ("spec", "pools", index, "queue"),
                "names a queue in two ways; keep one of kueue, label and annotation",
            )
        if "resources" in pool and "nodes" not in pool:
            yield (
                ("spec", "pools", index),
                "nodes is missing: pods that ask for resources are restricted to them by labels",
            )
        if "maxMemory" in pool and "deviceClasses" not in pool:
            yield ("spec", "pools", index, "maxMemory"), "is for claims; add deviceClasses, or remove it"
    selectors = [selector(pool["nodes"]) if "nodes" in pool else NOTHING for pool in pools]
    for index, pool in enumerate(pools):
        at, name = ("spec", "pools", index), shown(pool["name"])
        if pool.get("memoryLimit") == DRIVER and pool["sharing"] != "time-slicing":
            yield (*at, "memoryLimit"), "Driver is only for time-sliced GPUs; remove it from this pool"
        if "imageLimits" in pool and pool.get("memoryLimit") != DRIVER:
            yield (*at, "imageLimits"), "is for memoryLimit: Driver; set that, or remove it from this pool"
        if "over" in pool.get("node", {}) and pool["sharing"] not in SHARED:
            yield (*at, "node", "over"), "is for GPUs that pods share; remove it from this pool"
        if "idle" in pool.get("node", {}) and pool["sharing"] not in SHARED:
            yield (*at, "node", "idle"), "is for GPUs that pods share; remove it from this pool"
        if "dead" in pool.get("node", {}) and pool["sharing"] not in SHARED:
            way = "remove it from this pool: of a GPU that nobody shares, the device plugin hands out nothing more"
            yield (*at, "node", "dead"), f"is for GPUs that pods share; {way}"
        if "contention" in pool.get("node", {}) and pool["sharing"] != "time-slicing":
            yield (*at, "node", "contention"), "is only for time-sliced GPUs; remove it from this pool"
        slices = "resources" in pool and pool["sharing"] in SHARED
        if slices and "assume" in pool and "replicas" not in pool["assume"]:
            yield (*at, "assume"), "needs replicas: the slices of a card that pods request as a resource"
        if "nodes" in pool and not selectors[index].requirements:
            yield (*at, "nodes"), "is empty, and would match every node; name labels"
        if key := contradiction(selectors[index].requirements):
            yield (*at, "nodes"), f"no node can match: {key} contradicts itself"
    first = {pool["name"]: index for index, pool in reversed([*enumerate(pools)])}
    for index, pool in enumerate(pools):
        if first[pool["name"]] != index:
            yield ("spec", "pools", index, "name"), f"a second pool named {shown(pool['name'])}"
    for before, index in _overlapping(selectors):
        name, other = (shown(pools[place]["name"]) for place in (index, before))
        yield (
            ("spec", "pools", index, "nodes"),
            f"pool {name} overlaps pool {other}: a node could match both; give them "
            "different values of one label, or exclude one's label from the other with NotIn",
        )


class _Label:
    """The selectors that name one label. Each attribute is a set of them: an integer with a bit for each selector."""

    def __init__(self) -> None:
        self.named = self.absent = self.present = self.unlisted = 0
        self.listed: defaultdict[str, int] = defaultdict(int)
        """Those that list each value."""
        self.excluded: defaultdict[str, int] = defaultdict(int)
        """Those that list none, and exclude each value."""

    def add(self, bit: int, values: Values) -> None:
        """Add the values that a selector allows."""
        self.named |= bit
        self.absent |= bit if values.absent else 0
        self.present |= bit if values.present else 0
        if values.listed is None:
            self.unlisted |= bit if values.present else 0
        for value in values.excluded if values.listed is None else ():
            self.excluded[value] |= bit
        for value in values.listed or ():
            self.listed[value] |= bit

    def possible(self, values: Values) -> int:
        """Return the selectors that allow one of these values too.

        If these values are not listed, those are among the result whose listed values are all excluded here.
        """
        found = ~self.named | (self.absent if values.absent else 0)
        if values.listed is not None:
            found |= reduce(or_, (self.listed[value] for value in values.listed), 0)
            return found | self.unlisted & ~reduce(and_, (self.excluded[value] for value in values.listed), -1)
        return found | (self.present if values.present else 0)


def _overlapping(selectors: Sequence[Selector]) -> Iterator[tuple[int, int]]:
    """Yield the places of each two selectors that one node could match: the earlier one, then the later one.

    The selectors name labels without `Gt` and `Lt`. The cost grows with their size, and each pair costs one operation
    on bits.
    """
    labels: defaultdict[str, _Label] = defaultdict(_Label)
    known = 0
    for index, each in enumerate(selectors):
        if each is not NOTHING and all(values.possible for values in each.values.values()):
            known |= 1 << index
            for key, values in each.values.items():
                labels[key].add(1 << index, values)
    near = [
        reduce(and_, (labels[key].possible(values) for key, values in each.values.items()), known) for each in selectors
    ]
    for index in range(len(selectors)):
        for before in range(index):
            if known >> index & near[index] >> before & near[before] >> index & 1:
                yield before, index


def _untolerated(spec: Object) -> Iterator[tuple[Path, str]]:
    taint = guard(spec["guard"]).taint if "guard" in spec else None
    for index, pool in enumerate(spec["pools"] if taint else ()):
        if not any(toleration["key"] == taint for toleration in pool.get("tolerations", ())):
            yield (
                ("spec", "pools", index),
                f"pool {shown(pool['name'])} does not tolerate {taint}, the taint of the guard, so its nodes would "
                "take no pod; give it the toleration",
            )


def _scopes(spec: Object) -> Iterator[tuple[Path, Object]]:
    for index, grant in enumerate(spec.get("trust", {}).get("grants", ())):
        yield ("spec", "trust", "grants", index), grant
    for index, pool in enumerate(spec["pools"]):
        if "tenants" in pool:
            yield ("spec", "pools", index, "tenants"), pool["tenants"]
    for index, claims in enumerate(spec.get("gpus", {}).get("claims", ())):
        yield ("spec", "gpus", "claims", index), claims
    for key in ("overrides", "exemptions", "priorities"):
        for index, entry in enumerate(spec.get(key, ())):
            yield ("spec", key, index), entry


def _quantities(spec: Object) -> Iterator[tuple[Path, object]]:
    for setting in ("context", "reserve"):
        for product, value in spec.get("memory", {}).get(setting, {}).items():
            yield ("spec", "memory", setting, product), value
    if "minSliceMemory" in spec.get("sharing", {}):
        yield ("spec", "sharing", "minSliceMemory"), spec["sharing"]["minSliceMemory"]
    for index, pool in enumerate(spec["pools"]):
        if "assume" in pool:
            yield ("spec", "pools", index, "assume", "memory"), pool["assume"]["memory"]
        if "maxMemory" in pool:
            yield ("spec", "pools", index, "maxMemory"), pool["maxMemory"]
        if "slack" in (over := pool.get("node", {}).get("over", {})):
            yield ("spec", "pools", index, "node", "over", "slack"), over["slack"]


def _pools_named(spec: Object) -> Iterator[tuple[Path, str]]:
    memory = spec.get("memory", {})
    lists = (
        (("torch", "versions"), memory.get("torch", {}).get("versions", ())),
        (("pythonPath",), memory.get("pythonPath", ())),
    )
    for keys, entries in lists:
        for index, entry in enumerate(entries):
            for place, name in enumerate(entry.get("pools", ())):
                yield ("spec", "memory", *keys, index, "pools", place), name
