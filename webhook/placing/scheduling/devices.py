"""Reads the devices that drivers publish, and the claims for them, as kube-scheduler counts both.

Source: k8s.io/api resource/v1 types.go, and k8s.io/dynamic-resource-allocation structured/internal/incubating.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from webhook.api import quantity
from webhook.api.devices import DEVICES, GROUP, DeviceRequest, device_requests
from webhook.api.fields import group_kind
from webhook.api.lenient import mapping, mappings, sequence, string
from webhook.api.metadata import name_of
from webhook.api.quantity import Amount
from webhook.api.selectors import NodeSelectorTerm
from webhook.api.taints import Taint, taints_of
from webhook.model import Malformed, Object
from webhook.placing.scheduling.terms import choice

DeviceID = tuple[str, str, str]
"""The driver, the pool and the name of a device."""


class Version(str):
    """A semantic version, as the value of a device's attribute."""

    __slots__ = ()


class Capacity(NamedTuple):
    """A capacity of a device, and the amounts of it that claims may take of a shared device (CapacityRequestPolicy)."""

    value: Amount
    default: Amount | None = None
    least: Amount | None = None
    most: Amount | None = None
    step: Amount | None = None
    values: tuple[Amount, ...] = ()

    def taken(self, asked: Amount | None) -> Amount | None:
        """Return the amount that a request takes of the capacity; None if the policy does not allow such an amount.

        Source: consumable_capacity.go.
        """
        if asked is None:
            return self.value if self.default is None else self.default
        amount = asked
        if self.least is not None:
            amount = max(asked, self.least)
            if self.step:
                amount = self.least + ceil(Fraction(amount - self.least) / Fraction(self.step)) * self.step
        elif self.values:
            amount = next((each for each in self.values if asked <= each), asked)
        if amount == self.default:
            return amount
        refused = (self.most is not None and amount > self.most) or (self.values and amount not in self.values)
        return None if refused else amount


class Where(NamedTuple):
    """The nodes that can use some devices: one node by its name, all nodes, or those of a node selector."""

    node: str = ""
    everywhere: bool = False
    choices: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node can use the devices."""
        if self.node:
            return self.node == name
        return self.everywhere or any(each.matches(name, labels) for each in self.choices)


EVERYWHERE = Where(everywhere=True)


@dataclass(frozen=True, slots=True, eq=False)
class AllocatableDevice:
    """A device in a ResourceSlice. It is `shared` if several claims may have it at once.

    Attributes and capacities have their names as the driver writes them. `uses` are the counters of the pool that it
    takes, by set and name; a card and the MIG devices that can be cut from it take the same ones.
    """

    id: DeviceID
    where: Where
    attributes: Mapping[str, Any] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    shared: bool = False
    taints: tuple[Taint, ...] = ()
    uses: Mapping[tuple[str, str], Amount] = field(default_factory=dict)
    binds: bool = False
    """Whether its claim is bound to the node, even if other nodes could use the device."""

    @property
    def driver(self) -> str:
        """The name of the device's driver."""
        return self.id[0]

    def attribute(self, name: str) -> object:
        """Return the value of an attribute by its full name, `DOMAIN/NAME`; None if the device does not have it.

        A driver may leave out the domain if it is its own.
        """
        domain, _, last = name.rpartition("/")
        value = self.attributes.get(name)
        return self.attributes.get(last) if value is None and domain == self.driver else value


@dataclass(frozen=True, slots=True, eq=False)
class DevicePool:
    """The devices of one pool of a driver, in the order in which they are handed out, and its counters.

    `whole` is false while the driver is still writing the pool. Then no device of it is taken.
    """

    driver: str
    name: str
    devices: tuple[AllocatableDevice, ...]
    counters: Mapping[tuple[str, str], Amount] = field(default_factory=dict)
    whole: bool = True


class Constraint(NamedTuple):
    """A constraint of a claim on the devices of some requests: an attribute has the same value in all of them.

    If it is `distinct`, all values differ.
    """

    attribute: str
    distinct: bool
    requests: frozenset[str]

    def concerns(self, request: DeviceRequest) -> bool:
        """Whether the constraint applies to a request. A constraint that names no requests applies to all."""
        return not self.requests or not self.requests.isdisjoint((request.name, request.name.partition("/")[0]))


class AllocatedDevice(NamedTuple):
    """A device that a claim got: its request, the amount taken, and whether others may have it too (`adminAccess`)."""

    device: AllocatableDevice
    request: str = ""
    taken: Mapping[str, Amount] | None = None
    admin: bool = False
    rank: int = 0
    """The number of better alternatives in its request."""


@dataclass(slots=True, eq=False)
class ResourceClaim:
    """A claim: its requests with their alternatives and, once allocated, its devices and the nodes that can use them.

    `users` are the names of the pods that use the claim.
    """

    name: str
    requests: tuple[tuple[DeviceRequest, ...], ...]
    constraints: tuple[Constraint, ...] = ()
    held: tuple[AllocatedDevice, ...] | None = None
    where: Where = EVERYWHERE
    users: list[str] = field(default_factory=list)


# From objects


def pools_of(slices: Iterable[Object]) -> tuple[DevicePool, ...]:
    """Read the pools in ResourceSlices, in the scheduler's order. A field of a wrong type counts as missing."""
    found: dict[tuple[str, str], dict[int, list[Object]]] = {}
    for item in slices:
        spec = mapping(item.get("spec"))
        pool = mapping(spec.get("pool"))
        generation = pool.get("generation")
        of = found.setdefault((string(spec.get("driver")), string(pool.get("name"))), {})
        of.setdefault(generation if type(generation) is int else 0, []).append(item)
    return tuple(_pool(driver, name, of[max(of)]) for (driver, name), of in sorted(found.items()))


def _pool(driver: str, name: str, slices: Sequence[Object]) -> DevicePool:
    devices, counters = list[AllocatableDevice](), dict[tuple[str, str], Amount]()
    for item in sorted(slices, key=lambda item: name_of(item)):
        spec = mapping(item.get("spec"))
        for each in mappings(spec.get("sharedCounters")):
            counters |= _counters(each)
        devices += (_device(driver, name, spec, each) for each in mappings(spec.get("devices")))
    count = mapping(mapping(slices[0].get("spec")).get("pool")).get("resourceSliceCount", 1)
    distinct = len({device.id for device in devices}) == len(devices)
    return DevicePool(driver, name, tuple(devices), counters, whole=count == len(slices) and distinct)


def _device(driver: str, pool: str, spec: Mapping[str, Any], item: Mapping[str, Any]) -> AllocatableDevice:
    said = {**item, **mapping(item.get("basic"))}  # v1beta1
    uses: dict[tuple[str, str], Amount] = {}
    for each in mappings(said.get("consumesCounters")):
        uses |= _counters({**each, "name": each.get("counterSet")})
    return AllocatableDevice(
        (driver, pool, string(item.get("name"))),
        _where(said if spec.get("perDeviceNodeSelection") is True else spec),
        {name: _value(value) for name, value in mapping(said.get("attributes")).items()},
        {name: _capacity(mapping(value)) for name, value in mapping(said.get("capacity")).items()},
        said.get("allowMultipleAllocations") is True,
        taints_of(said),
        uses,
        said.get("bindsToNode") is True,
    )


def _where(said: Mapping[str, Any]) -> Where:
    terms = mappings(mapping(said.get("nodeSelector")).get("nodeSelectorTerms"))
    return Where(string(said.get("nodeName")), said.get("allNodes") is True, tuple(map(choice, terms)))


def _value(attribute: Any) -> Any:
    for key, value in mapping(attribute).items():
        return Version(value) if key == "version" and isinstance(value, str) else value
    return None


def _capacity(said: Mapping[str, Any]) -> Capacity:
    policy = mapping(said.get("requestPolicy"))
    range_ = mapping(policy.get("validRange"))
    return Capacity(
        _amount(said.get("value")) or 0,
        _amount(policy.get("default")),
        _amount(range_.get("min")),
        _amount(range_.get("max")),
        _amount(range_.get("step")),
        tuple(amount for each in sequence(policy.get("validValues")) if (amount := _amount(each)) is not None),
    )


def _amount(value: Any) -> Amount | None:
    try:
        return None if value is None else quantity.parse(value)
    except ValueError:
        return None


def _counters(said: Mapping[str, Any]) -> dict[tuple[str, str], Amount]:
    return {
        (string(said.get("name")), name): _amount(mapping(value).get("value")) or 0
        for name, value in mapping(said.get("counters")).items()
    }


def claim_of(item: Object, name: str) -> ResourceClaim | None:
    """Read what a ResourceClaim or a ResourceClaimTemplate requests; None if it has a wrong shape."""
    base = DEVICES[GROUP, group_kind(item)[1]]
    devices: Mapping[str, Any] = item
    for key in base:
        devices = mapping(devices.get(str(key)))
    try:
        asked = [one for one in device_requests(dict(devices), base) if one.device_class]
    except Malformed:
        return None
    places = sorted({one.place for one in asked})
    constraints = tuple(_constraints(devices))
    return ResourceClaim(
        name, tuple(tuple(one for one in asked if one.place == place) for place in places), constraints
    )


def _constraints(devices: Mapping[str, Any]) -> Iterator[Constraint]:
    for each in mappings(devices.get("constraints")):
        names = frozenset(name for name in sequence(each.get("requests")) if isinstance(name, str))
        distinct = each.get("distinctAttribute")
        yield Constraint(string(distinct or each.get("matchAttribute")), bool(distinct), names)


def allocated(
    item: Object, known: Mapping[DeviceID, AllocatableDevice]
) -> tuple[tuple[AllocatedDevice, ...], Where] | None:
    """Read the devices of a ResourceClaim from its status, and the nodes that can use them; None if not allocated.

    Devices that are not known are left out.
    """
    allocation = mapping(mapping(item.get("status")).get("allocation"))
    if not allocation:
        return None
    held = []
    for each in mappings(mapping(allocation.get("devices")).get("results")):
        device = known.get((string(each.get("driver")), string(each.get("pool")), string(each.get("device"))))
        if device is not None:
            amounts = mapping(each.get("consumedCapacity"))
            taken = {name: _amount(amount) or 0 for name, amount in amounts.items()} if device.shared else None
            held.append(AllocatedDevice(device, string(each.get("request")), taken, each.get("adminAccess") is True))
    terms = mappings(mapping(allocation.get("nodeSelector")).get("nodeSelectorTerms"))
    return tuple(held), Where(everywhere=not terms, choices=tuple(map(choice, terms)))
