"""Which devices claims get, by what drivers publish. tests/e2e/test_place.py asks the real scheduler as well."""

from typing import Any

import pytest

from webhook.placing.scheduling.allocation import AllocationError, Stock, held_at, score
from webhook.placing.scheduling.devices import AllocatableDevice, ResourceClaim, Version, Where, claim_of, pools_of
from webhook.placing.scheduling.infos import NodeInfo, PodInfo
from webhook.placing.scheduling.play import play
from webhook.placing.scheduling.selectors import reader
from webhook.placing.scheduling.stage import ClusterState

Object = dict[str, Any]

NODE = NodeInfo("n", {"zone": "a"}, (), {})
DRIVER = "gpu.example.com"
READS = reader()
assert READS is not None, "slicewarden[claims] is installed with slicewarden[test]"


def slices(*devices: Object, **more: Any) -> Object:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n", "devices": [*devices], **more}
    return {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}


def device(name: str, memory: str = "40Gi", **more: Any) -> Object:
    attributes = {"uuid": {"string": name}, **more.pop("attributes", {})}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}, **more}


def stock(*items: Object) -> Stock:
    assert READS is not None
    classes = {
        "any": (f'device.driver == "{DRIVER}"',),
        "large": (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("30Gi")) >= 0',),
    }
    return Stock(pools_of(items), classes, READS)


def claim(*requests: Object, **more: Any) -> ResourceClaim:
    named = [{"name": f"r{number}", **request} for number, request in enumerate(requests)]
    spec = {"devices": {"requests": named, **more}}
    made = claim_of({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": spec}, "c")
    assert made is not None
    return made


def exactly(name: str = "any", **more: Any) -> Object:
    return {"exactly": {"deviceClassName": name, **more}}


def got(of: Stock, *claims: ResourceClaim) -> list[list[str]] | None:
    allocation = of.allocate(NODE, claims)
    return None if allocation is None else [[each.device.id[2] for each in held] for held in allocation]


def test_a_request_gets_the_first_device_that_its_class_selects() -> None:
    assert got(stock(slices(device("small", "16Gi"), device("big"))), claim(exactly("large"))) == [["big"]]


def test_a_later_request_makes_an_earlier_one_take_another_device() -> None:
    devices = slices(device("big"), device("small", "16Gi"))
    assert got(stock(devices), claim(exactly(), exactly("large"))) == [["small", "big"]]


def test_the_second_alternative_is_taken_where_the_first_cannot_be_and_scores_less() -> None:
    first, second = ({"name": name, "deviceClassName": kind} for name, kind in (("a", "large"), ("b", "any")))
    of = stock(slices(device("small", "16Gi")))
    allocation = of.allocate(NODE, [claim({"firstAvailable": [first, second]})])
    assert allocation is not None
    assert (allocation[0][0].request, score(allocation)) == ("r0/b", 7)


def test_constraints_keep_devices_on_cards_of_their_own_or_of_one_model() -> None:
    models = [
        device(name, attributes={"model": {"string": model}}) for name, model in (("1", "a"), ("2", "b"), ("3", "a"))
    ]
    same = {"matchAttribute": f"{DRIVER}/model"}
    assert got(stock(slices(*models)), claim(exactly(), exactly(), constraints=[same])) == [["1", "3"]]
    apart = {"distinctAttribute": f"{DRIVER}/model"}
    assert got(stock(slices(*models)), claim(exactly(count=3), constraints=[apart])) is None
    assert got(stock(slices(*models)), claim(exactly(count=2), constraints=[apart])) == [["1", "2"]]


def test_requests_of_one_claim_share_a_device_unless_they_are_to_be_distinct() -> None:
    shared = device("gpu", "16Gi", allowMultipleAllocations=True)
    asks = [exactly(capacity={"requests": {"memory": "4Gi"}})] * 2
    assert got(stock(slices(shared)), claim(*asks)) == [["gpu", "gpu"]]
    assert got(stock(slices(shared)), claim(*asks, constraints=[{"distinctAttribute": f"{DRIVER}/uuid"}])) is None


@pytest.mark.parametrize(
    ("policy", "asked", "shares"),
    [
        ({}, "4Gi", 4),
        ({"default": "8Gi"}, None, 2),
        ({"validRange": {"min": "3Gi", "step": "2Gi"}}, "4Gi", 3),  # 5Gi
        ({"validValues": ["4Gi", "8Gi"]}, "5Gi", 2),
        ({"validRange": {"min": "1Gi", "max": "2Gi"}}, "4Gi", 0),
        ({"default": "0"}, None, 9),  # nothing is counted
    ],
)
def test_shares_of_a_device_take_what_its_policy_says(policy: Object, asked: str | None, shares: int) -> None:
    shared = device("gpu", allowMultipleAllocations=True)
    shared["capacity"] = {"memory": {"value": "16Gi", **({"requestPolicy": policy} if policy else {})}}
    of, ask = stock(slices(shared)), exactly("any", capacity={"requests": {"memory": asked} if asked else {}})
    for _ in range(shares):
        one = claim(ask)
        found = of.allocate(NODE, [one])
        assert found is not None
        of.take(one, found[0], held_at(found[0], NODE))
    assert (of.allocate(NODE, [claim(ask)]) is None) is (shares < 9)
    for holder in list(of.holders.get((DRIVER, "n", "gpu"), ())):
        of.release(holder)
    assert (of.shares, [*of.holders.values()]) == ({}, [[]] if shares else [])


def test_a_card_and_its_parts_take_the_same_counters() -> None:
    def part(name: str, memory: str) -> Object:
        uses = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
        return device(name, memory, consumesCounters=uses)

    counters = slices(sharedCounters=[{"name": "card", "counters": {"memory": {"value": "40Gi"}}}])
    parts = slices(part("half-0", "20Gi"), part("half-1", "20Gi"), part("card", "40Gi"))
    for number, item in enumerate((counters, parts)):
        item["metadata"]["name"] = str(number)
        item["spec"]["pool"]["resourceSliceCount"] = 2
    assert got(stock(counters, parts), claim(exactly(), exactly())) == [["half-0", "half-1"]]
    assert got(stock(counters, parts), claim(exactly(), exactly("large"))) is None
    of = stock(counters, parts)
    of.taken.add((DRIVER, "n", "card"))
    assert got(of, claim(exactly("large", adminAccess=True))) is None  # the scheduler counts it twice


def test_access_for_administrators_takes_nothing_from_others() -> None:
    of, look = stock(slices(device("gpu"))), claim(exactly(adminAccess=True))
    found = of.allocate(NODE, [look])
    assert found is not None
    of.take(look, found[0], held_at(found[0], NODE))
    assert got(of, claim(exactly())) == [["gpu"]]
    assert got(of, claim(exactly(adminAccess=True), exactly(adminAccess=True))) is None


def test_a_tainted_device_is_taken_by_what_tolerates_the_taint() -> None:
    worn = slices(device("gpu", taints=[{"key": "worn", "value": "yes", "effect": "NoSchedule"}]))
    assert got(stock(worn), claim(exactly())) is None
    assert got(stock(worn), claim(exactly(tolerations=[{"key": "worn", "value": "yes"}]))) == [["gpu"]]
    assert got(stock(worn), claim(exactly(tolerations=[{"key": "worn", "value": "no"}]))) is None


def test_all_devices_are_had_or_none() -> None:
    of = stock(slices(device("1"), device("2")))
    assert got(of, claim(exactly(allocationMode="All"))) == [["1", "2"]]
    of.taken.add((DRIVER, "n", "1"))
    assert got(of, claim(exactly(allocationMode="All"))) is None


def test_all_devices_that_a_constraint_refuses_end_the_search() -> None:
    """The scheduler takes such a claim for a mistake, and tries no other node."""
    models = [device(name, attributes={"model": {"string": name}}) for name in "12"]
    ask = claim(exactly(allocationMode="All"), constraints=[{"matchAttribute": f"{DRIVER}/model"}])
    with pytest.raises(
        AllocationError, match=r"gpu\.example\.com/n/2 because a claim constraint would not be satisfied"
    ):
        got(stock(slices(*models)), ask)


def test_nothing_is_taken_of_a_pool_that_is_not_whole() -> None:
    item = slices(device("gpu"))
    item["spec"]["pool"]["resourceSliceCount"] = 2
    assert got(stock(item), claim(exactly())) is None


def test_devices_are_used_from_the_nodes_that_reach_them() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    far = slices(device("gpu"), nodeName=None, nodeSelector={"nodeSelectorTerms": [term]})
    assert got(stock(far), claim(exactly())) is None
    term["matchExpressions"][0]["values"] = ["a"]
    assert got(stock(far), claim(exactly())) == [["gpu"]]


def test_a_search_without_an_end_is_given_up() -> None:
    """Each of 31 devices would do, and the last request asks for what none has."""
    of = stock(slices(*(device(f"{number:02}", "16Gi") for number in range(31))))
    with pytest.raises(AllocationError, match="too many ways"):
        of.allocate(NODE, [claim(*[exactly()] * 20, exactly("large"))])


# Selectors

CARD = AllocatableDevice(
    (DRIVER, "n", "gpu-0"),
    Where("n"),
    {"type": "gpu", "index": 3, "driverVersion": Version("580.95.5"), "resource.kubernetes.io/pcieRoot": "pci0"},
    pools_of([slices(device("gpu-0", "80Gi"))])[0].devices[0].capacity,
    shared=True,
)


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("81920Mi")) == 0', True),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("90Gi"))', False),
        (f'device.attributes["{DRIVER}"].driverVersion.isLessThan(semver("580.95.10"))', True),
        (f'device.attributes["{DRIVER}"].driverVersion.compareTo(semver("580.95.5-rc.1")) > 0', True),
        (f"device.attributes['{DRIVER}'].index in [1, 3]", True),
        ('device.attributes["resource.kubernetes.io"].pcieRoot == "pci0"', True),
        ('has(device.attributes["other.example.com"].model)', False),
        (f'device.attributes["{DRIVER}"].?model.orValue("none") == "none"', True),
        (f'cel.bind(gpu, device.attributes["{DRIVER}"], gpu.type.lowerAscii().startsWith("g"))', True),
        ("device.allowMultipleAllocations", True),
    ],
)
def test_a_selector_is_read_as_the_scheduler_reads_it(expression: str, matches: bool) -> None:
    assert READS is not None
    assert READS(expression, CARD) is matches


@pytest.mark.parametrize(
    ("expression", "begins"),
    [
        ("device.driver ==", "a selector cannot be read: "),
        (f'device.attributes["{DRIVER}"].model == "a"', "a selector fails on device gpu-0: "),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("much"))', "a selector fails on device gpu-0: "),
    ],
)
def test_a_selector_that_cannot_be_read_says_so(expression: str, begins: str) -> None:
    assert READS is not None
    with pytest.raises(AllocationError) as raised:
        READS(expression, CARD)
    assert str(raised.value).startswith(begins)
    assert "\n" not in str(raised.value)


def test_a_pod_whose_selector_cannot_be_read_waits_and_evicts_nobody() -> None:
    assert READS is not None
    node = NodeInfo("n", {}, (), {"cpu": 1000, "pods": 110})
    low = PodInfo("low", {"cpu": 1000}, {})
    high = PodInfo("high", {"cpu": 1000}, {}, priority=10, claims=(claim(exactly("broken")),))
    stage = ClusterState([node], Stock(pools_of([slices(device("gpu-0"))]), {"broken": ("device.driver ==",)}, READS))
    ran, waits = play([low, high], stage)
    assert (ran.node, waits.node, waits.evicted) == ("n", "", ())
    assert next(iter(waits.reasons)).startswith("a selector cannot be read: ")
    assert [each.name for each in node.pods] == ["low"]
