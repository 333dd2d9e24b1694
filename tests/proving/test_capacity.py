"""The memory that a run asks for, and what it shows of a cap: never a limit where none is seen."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proving.program import run
from tests.support.card.library import CannotCompile, library
from tests.support.card.state import State
from webhook.facts.kinds.node import Node
from webhook.memory.budget import budget, card_of
from webhook.policy.model import Policy, Pool
from webhook.proving.capacity import STEP, MemoryCap, cap, measured, options
from webhook.proving.sighting import SeenCards, SeenDevice, Sighting, TakenMemory

T4 = Node(
    "t4", {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.replicas": "4"}
)


def labelled(**labels: str) -> Node:
    return replace(T4, labels={**T4.labels, **{f"nvidia.com/gpu.{key}": value for key, value in labels.items()}})


@pytest.fixture
def pool(sample_policy: Policy) -> Pool:
    (found,) = [each for each in sample_policy.pools if each.name == "shared"]
    return found


def test_the_cap_is_the_slice_of_the_node_s_card(sample_policy: Policy, pool: Pool) -> None:
    known = card_of(T4)
    assert known is not None
    frameworks, driver = cap(sample_policy, pool, T4), cap(sample_policy, replace(pool, driver_limits=True), T4)
    assert frameworks == MemoryCap(budget(known, sample_policy).slice, "variables of frameworks")
    assert driver == MemoryCap(budget(known, sample_policy, driver=True).slice, "the driver")
    assert cap(sample_policy, replace(pool, sharing="mps"), T4) == MemoryCap(3840, "MPS")


@pytest.mark.parametrize(
    "node",
    [
        labelled(replicas="1"),
        labelled(memory="0"),
        labelled(product="NVIDIA-GB10"),
        labelled(product="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"),
    ],
)
def test_a_card_that_is_not_known_or_has_no_cap_has_none(sample_policy: Policy, pool: Pool, node: Node) -> None:
    assert cap(sample_policy, pool, node) is None


@pytest.mark.parametrize("sharing", ["none", "mig"])
def test_a_pool_that_does_not_share_has_no_cap(sample_policy: Policy, pool: Pool, sharing: str) -> None:
    assert cap(sample_policy, replace(pool, sharing=sharing), T4) is None


@pytest.mark.parametrize("node", [labelled(replicas="99999"), labelled(product="NVIDIA-A100-MIG-1g.5gb-SHARED")])
def test_a_part_of_a_card_or_of_nothing_has_no_cap_by_mps(sample_policy: Policy, pool: Pool, node: Node) -> None:
    assert cap(sample_policy, replace(pool, sharing="mps"), node) is None


# On a pretended card, by the program itself


def pretended(folder: Path, cards: int = 1) -> State:
    try:
        library()
    except CannotCompile as error:
        pytest.skip(str(error))
    return State(folder / "card", cards=cards)


def taken(state: State, own: MemoryCap, **env: str) -> Sighting:
    return run({**state.environment, **env}, *options(own, 120))[1]


def test_without_a_limit_it_gets_more_than_the_cap_by_a_step(tmp_path: Path) -> None:
    one = pretended(tmp_path)
    seen = taken(one, MemoryCap(1000, "the driver"))
    assert one.get("peak") == (1000 + STEP) * 2**20
    said = f"cap of 1000 MiB by the driver: cuMemAlloc got {1000 + STEP} MiB, more than the cap"
    assert measured(MemoryCap(1000, "the driver"), seen) == said


def test_a_limit_is_one_only_where_the_card_has_more(tmp_path: Path) -> None:
    one, own = pretended(tmp_path), MemoryCap(1000, "MPS")
    (tmp_path / "mps").mkdir()
    (tmp_path / "mps/limit").write_text("1000")
    free = taken(one, own, CUDA_MPS_PIPE_DIRECTORY=str(tmp_path / "mps"))
    assert free.memory is not None
    assert 0 < free.memory.got <= 1000
    assert measured(own, free).endswith(
        f"{free.memory.got} MiB and no more, with {free.memory.free} MiB free on the card"
    )


@pytest.mark.parametrize("cards", [1, 2])
def test_a_full_card_shows_no_limit(tmp_path: Path, cards: int) -> None:
    full = pretended(tmp_path, cards)
    full.hold(os.getpid(), 24576 - 700)
    seen = taken(full, MemoryCap(1000, "the driver"))
    assert measured(MemoryCap(1000, "the driver"), seen).endswith("then: cuMemAlloc_v2: out of memory")


# Whatever a report says


CARD = SeenCards(1, 0, (SeenDevice("GPU-0", "T4", 15360),), "")

TAKEN = st.builds(
    TakenMemory,
    st.just(1000 + STEP),
    st.integers(0, 1000 + STEP),
    st.sampled_from(["", "no time left", "cuMemAlloc_v2: out of memory", "ended by signal 9"]),
    st.sampled_from(["", "2.11.0"]),
    st.none() | st.integers(0, 2 * STEP),
)


@given(TAKEN, st.dictionaries(st.sampled_from(["pytorch", "jax", "cupy"]), TAKEN))
def test_no_refusal_counts_as_a_limit_unless_the_card_had_more(
    memory: TakenMemory, frameworks: dict[str, TakenMemory]
) -> None:
    seen = Sighting("none", CARD, "none", memory, frameworks, cut=False)
    said = measured(MemoryCap(1000, "MPS"), seen)
    every = [memory, *frameworks.values()]
    assert said.count("more than the cap") == sum(each.got > 1000 for each in every)
    limited = [each for each in every if 0 < each.got <= 1000 and each.free is not None and each.free >= STEP]
    assert said.count("free on the card") == len(limited)


def test_a_report_of_other_memory_than_was_to_be_asked_for_measures_nothing() -> None:
    own = MemoryCap(1000, "MPS")
    for asked in (1, own.asked - 1, own.asked + 1, 2**40):
        said = measured(own, Sighting("none", CARD, "none", TakenMemory(asked, asked, "", free=9000), {}, cut=False))
        assert said.startswith("cap of 1000 MiB: not measured: its report is not of the 1256 MiB")
    assert "not measured" in measured(own, Sighting("none", CARD, "none", None, {}, cut=False))
    small = SeenCards(2, 0, (*CARD.devices, SeenDevice("GPU-1", "P4", 1100)), "")
    taken = TakenMemory(own.asked, 1100, "the device has no more")
    assert measured(own, Sighting("none", small, "none", taken, {}, cut=False)).endswith(
        "not measured: no card that it saw has so much"
    )
