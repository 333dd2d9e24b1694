"""Simulates the scheduler's allocator: which devices the claims of a pod get on a node.

Source: k8s.io/dynamic-resource-allocation structured/internal/incubating/allocator_incubating.go. Like it, this takes
the first suitable devices, in the order of pools, slices and devices, and backtracks if a later request finds none.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from webhook.api import quantity
from webhook.api.devices import DeviceRequest
from webhook.api.quantity import Amount
from webhook.api.taints import tolerations_of
from webhook.placing.scheduling.devices import (
    AllocatableDevice,
    AllocatedDevice,
    DeviceID,
    DevicePool,
    ResourceClaim,
    Where,
)
from webhook.placing.scheduling.infos import NodeInfo

Reads = Callable[[str, AllocatableDevice], bool]
"""Returns whether a CEL selector matches a device. Raises Unreadable for a selector that cannot be evaluated."""

MOST = 32
"""The devices that a claim has at most (resource/v1 AllocationResultsMaxSize)."""

ALTERNATIVES = 8
"""The alternatives that a request has at most (resource/v1 FirstAvailableDeviceRequestMaxSize)."""

STEPS = 20_000
"""The devices that are tried for a pod on a node at most. The scheduler gives up after ten seconds."""


class AllocationError(Exception):
    """The allocator gave up a pod: a selector failed, a search did not end, or a device of "all" breaks a constraint.

    The scheduler then tries no other node for the pod (allocator_incubating.go, errors of Allocate).
    """


Allocation = tuple[tuple[AllocatedDevice, ...], ...]
"""The devices that each of some claims gets."""


@dataclass(eq=False)
class Stock:
    """The devices of a cluster, the selectors of its device classes, and the devices that are taken."""

    pools: tuple[DevicePool, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reads: Reads = lambda _, __: False
    taken: set[DeviceID] = field(default_factory=set)
    shares: dict[DeviceID, Counter[str]] = field(default_factory=dict)
    holders: dict[DeviceID, list[ResourceClaim]] = field(default_factory=dict)
    _read: dict[tuple[str, DeviceID], bool] = field(default_factory=dict)

    def take(self, claim: ResourceClaim, held: Sequence[AllocatedDevice], where: Where) -> None:
        """Give devices to a claim."""
        claim.held, claim.where = tuple(held), where
        for each in held:
            self.holders.setdefault(each.device.id, []).append(claim)
            if each.admin:
                continue  # takes nothing from others
            if each.device.shared:
                self.shares.setdefault(each.device.id, Counter()).update(each.taken or {})
            else:
                self.taken.add(each.device.id)

    def release(self, claim: ResourceClaim) -> None:
        """Take back the devices of a claim."""
        for each in claim.held or ():
            self.holders[each.device.id].remove(claim)
            if each.admin:
                continue
            self.taken.discard(each.device.id)
            if each.device.shared:
                self.shares[each.device.id].subtract(each.taken or {})
                if all(one.admin for of in self.holders[each.device.id] for one in of.held or ()):
                    del self.shares[each.device.id]
        claim.held, claim.where = None, Where(everywhere=True)

    def is_full(self, device: AllocatableDevice) -> bool:
        """Whether no part of a device is free."""
        beside = self.shares.get(device.id, Counter())
        return device.id in self.taken or any(
            capacity.value and beside[name] >= capacity.value for name, capacity in device.capacity.items()
        )

    def selects(self, request: DeviceRequest, device: AllocatableDevice) -> bool:
        """Whether a device fits the selectors of a request and of its class."""
        return all(self._matches(each, device) for each in (*self.classes[request.device_class], *request.selectors))

    def _matches(self, expression: str, device: AllocatableDevice) -> bool:
        key = expression, device.id
        if key not in self._read:
            self._read[key] = self.reads(expression, device)
        return self._read[key]

    def allocate(self, node: NodeInfo, claims: Sequence[ResourceClaim]) -> Allocation | None:
        """Return the devices that some claims would get together on a node; None if one of them cannot be met."""
        return _Search(self, node, claims).found()


def held_at(held: Sequence[AllocatedDevice], node: NodeInfo) -> Where:
    """Return the nodes that can use the devices which were allocated on this node."""
    choices = tuple(each for one in held for each in one.device.where.choices)
    if any(one.device.where.node or one.device.binds for one in held):
        return Where(node.name)
    return Where(everywhere=not choices, choices=choices)


def score(allocation: Allocation) -> int:
    """Return the score of an allocation. A request's first alternative gives the highest score (computeScore)."""
    ranks = {
        (number, one.request): one.rank for number, held in enumerate(allocation) for one in held if "/" in one.request
    }
    return sum(ALTERNATIVES - rank for rank in ranks.values())


class _Search:
    """One search: claim by claim, request by request, device by device."""

    def __init__(self, stock: Stock, node: NodeInfo, claims: Sequence[ResourceClaim]) -> None:
        self._stock, self._claims, self._steps = stock, claims, 0
        self._offered = [
            (pool, device)
            for pool in stock.pools
            if pool.whole
            for device in pool.devices
            if device.where.matches(node.name, node.labels)
        ]
        self._unfinished = any(
            not pool.whole and any(device.where.matches(node.name, node.labels) for device in pool.devices)
            for pool in stock.pools
        )
        self._held: list[list[AllocatedDevice]] = [[] for _ in claims]

    def found(self) -> Allocation | None:
        if any(
            one.device_class not in self._stock.classes
            for claim in self._claims
            for ones in claim.requests
            for one in ones
        ):
            return None
        return tuple(map(tuple, self._held)) if self._claim(0) else None

    def _claim(self, number: int) -> bool:
        return number == len(self._claims) or self._request(number, 0)

    def _request(self, number: int, place: int) -> bool:
        requests = self._claims[number].requests
        if place == len(requests):
            return self._claim(number + 1)
        return any(self._alternative(number, place, one, rank) for rank, one in enumerate(requests[place]))

    def _alternative(self, number: int, place: int, request: DeviceRequest, rank: int) -> bool:
        if not request.everything:
            return self._devices(number, place, request, rank, request.number, 0)
        if self._unfinished:
            return False
        all_ = [index for index, (_, device) in enumerate(self._offered) if self._stock.selects(request, device)]
        all_ = [index for index in all_ if self._fits(request, self._offered[index][1], empty=True) is not None]
        if not all_ or len(all_) + len(self._held[number]) > MOST:
            return False
        before = len(self._held[number])
        for index in all_:
            device = self._offered[index][1]
            held = self._usable(number, request, rank, *self._offered[index])
            if held is None and self._usable(number, request, rank, *self._offered[index], constrained=False):
                name = "/".join(device.id)
                raise AllocationError(f"cannot add device {name} because a claim constraint would not be satisfied")
            if held is None:
                del self._held[number][before:]
                return False
            self._held[number].append(held)
        if self._request(number, place + 1):
            return True
        del self._held[number][before:]
        return False

    def _devices(self, number: int, place: int, request: DeviceRequest, rank: int, left: int, start: int) -> bool:
        if not left:
            return self._request(number, place + 1)
        if len(self._held[number]) + left > MOST:
            return False
        for index in range(start, len(self._offered)):
            pool, device = self._offered[index]
            self._steps += 1
            if self._steps > STEPS:
                raise AllocationError("its claims have too many ways to be met")
            if self._in_use(number, request, device) or not self._stock.selects(request, device):
                continue
            held = self._usable(number, request, rank, pool, device)
            if held is None:
                continue
            self._held[number].append(held)
            if self._devices(number, place, request, rank, left - 1, index + 1):
                return True
            self._held[number].pop()
        return False

    def _in_use(self, number: int, request: DeviceRequest, device: AllocatableDevice) -> bool:
        if request.admin:
            return not device.shared and any(each.device is device for each in self._held[number])
        return device.id in self._stock.taken or any(
            each.device is device and not device.shared for each in self._all_held()
        )

    def _all_held(self) -> Iterator[AllocatedDevice]:
        for held in self._held:
            yield from held

    def _usable(
        self,
        number: int,
        request: DeviceRequest,
        rank: int,
        pool: DevicePool,
        device: AllocatableDevice,
        *,
        constrained: bool = True,
    ) -> AllocatedDevice | None:
        """Return a device as the request would have it; None if it is in use, too small, tainted or constrained."""
        amounts = self._fits(request, device)
        if amounts is None or self._in_use(number, request, device) or not self._counted(pool, device):
            return None
        tolerated = tolerations_of(each for _, each in request.tolerations)
        for taint in device.taints:
            if taint.repels and not any(each.tolerates(taint) for each in tolerated):
                return None
        if constrained and not self._allowed(number, request, device):
            return None
        return AllocatedDevice(device, request.name, amounts if device.shared else None, request.admin, rank)

    def _fits(
        self, request: DeviceRequest, device: AllocatableDevice, *, empty: bool = False
    ) -> Mapping[str, Amount] | None:
        """Return the amounts that a request takes of a device; None if the device has not that much left."""
        if any(name not in device.capacity for name in request.capacity):
            return None
        beside = self._stock.shares.get(device.id, Counter())
        amounts: dict[str, Amount] = {}
        for name, capacity in device.capacity.items():
            amount = capacity.taken(_asked(request, name))
            if amount is None:
                return None
            used: Amount = 0
            if not empty:
                mine = (each.taken.get(name, 0) for each in self._all_held() if each.device is device and each.taken)
                used = beside[name] + sum(mine)
            if used + amount > capacity.value:
                return None
            amounts[name] = amount
        return amounts

    def _counted(self, pool: DevicePool, device: AllocatableDevice) -> bool:
        """Whether the counters of a pool have enough left. Shares of one device take them once."""
        if (
            not device.uses
            or device.id in self._stock.shares
            or any(each.device is device for each in self._all_held())
        ):
            return True
        left = dict(pool.counters)
        before = self._stock.taken | set(self._stock.shares)
        now = [each.device for each in self._all_held() if not each.device.shared]
        now += {id(each.device): each.device for each in self._all_held() if each.device.shared}.values()
        # Access for an administrator counts a second time.
        for each in (*(one for one in pool.devices if one.id in before), *now, device):
            for counter, amount in each.uses.items():
                left[counter] = left.get(counter, 0) - amount
        return all(amount >= 0 for amount in left.values())

    def _allowed(self, number: int, request: DeviceRequest, device: AllocatableDevice) -> bool:
        """Whether a claim's constraints allow a device next to those that it has."""
        claim = self._claims[number]
        by_name = {one.name: one for ones in claim.requests for one in ones}
        for constraint in claim.constraints:
            if constraint.concerns(request):
                value = device.attribute(constraint.attribute)
                others = [
                    each.device.attribute(constraint.attribute)
                    for each in self._held[number]
                    if constraint.concerns(by_name[each.request])
                ]
                equal = [type(each) is type(value) and each == value for each in others]
                if value is None or (any(equal) if constraint.distinct else not all(equal)):
                    return False
        return True


def _asked(request: DeviceRequest, name: str) -> Amount | None:
    if name not in request.capacity:
        return None
    try:
        return quantity.parse(request.capacity[name])
    except ValueError:
        return None
