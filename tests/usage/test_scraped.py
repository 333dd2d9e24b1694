"""An agent's metrics as `slicewarden top` reads them: the agent writes them here, and no other text is believed."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from webhook.agent.metrics import AgentMetrics, LastLook
from webhook.agent.observe.limited import LimitCounts, LimitFault
from webhook.agent.observe.look import CardUse, ContainerUse, ProcessUse
from webhook.agent.observe.nvml import CardReading
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Process
from webhook.agent.observe.view import NodeContainer, rows
from webhook.agent.turns.turns import FrozenTime
from webhook.cgroups.places import ContainerCgroup
from webhook.memory.admitted import Admitted
from webhook.memory.driver.start import StartNeed
from webhook.usage.scraped import CardNow, NodeScrape, UseNow, read
from webhook.usage.store import LONGEST_TEXT, DamagedRecord
from webhook.usage.totals import NodeTotals

HEAD = "# TYPE slicewarden_node_use_bytes gauge\n"


def written(seen: LastLook, **more: Any) -> bytes:
    metrics = AgentMetrics(clock=lambda: 12.0, **more)
    metrics.saw(seen)
    return metrics.text()


def look(name: ContainerName, mib: int | None, sm: int | None, allowance: int | None, **reading: Any) -> LastLook:
    place = ContainerCgroup("uid", "ab" * 32, "/kubepods/x", 2)
    use = ContainerUse(place, (ProcessUse(Process(7, 100, "python", place), mib, sm),))
    given = {"used": 9000, "total": 24_000, "busy": 50, **reading}
    card = CardUse(CardReading("GPU-0", "0", "NVIDIA A10", given["used"], given["total"], given["busy"], ()), (use,))
    known = NodeContainer(name, "uid", Admitted(requests=True, allowance=allowance))
    return LastLook((card,), rows([card], {place.container: known}), 10.0, 0.1, 64)


def test_what_the_agent_writes_is_read() -> None:
    name = ContainerName("team", "job", "main")
    seen = look(name, 8000, 75, 4000)
    given = written(
        seen,
        dead=lambda: ["GPU-9"],
        reported=lambda: [("ab" * 32, "GPU-0")],
        limits=lambda: LimitCounts(1, 0, {LimitFault.WIDER: 2}, {StartNeed.DRIVER: True, StartNeed.CGROUP: False}),
        pauses=lambda: {name: FrozenTime(frozen=True, seconds=3.0)},
        usage=lambda: NodeTotals("node-1", 0.0, {}, {}, (), unsaved=False),
    )
    assert read(given) == NodeScrape(
        (
            CardNow("GPU-0", "0", "NVIDIA A10", 9000, 24_000, 1000, 50),
            CardNow("GPU-9", dead=True),
        ),
        (UseNow("team", "job", "main", "GPU-0", 8000, 4000, 75, "over", reported=True, frozen=True),),
        2.0,
        (("wider", 2),),
        counts=True,
        needs={StartNeed.DRIVER: True, StartNeed.CGROUP: False},
    )


def test_a_need_that_is_not_an_agents_word_is_left_out() -> None:
    lines = (f'slicewarden_node_limit_needs{{need="{need}"}} 0\n' for need in ("cgroup v2", "a\x1b[31m", ""))
    assert read((HEAD + "".join(lines)).encode()).needs == {StartNeed.CGROUP: False}


def test_what_nvml_does_not_say_is_not_known() -> None:
    seen = look(ContainerName("team", "job", "main"), None, None, None, used=None, busy=None)
    (card,), (use,), *_ = read(written(seen))
    assert (card.used, card.busy, card.outside) == (None, None, None)
    assert (use.mib, use.cap, use.sm, use.state) == (None, None, None, "no allowance")


def test_an_agent_that_has_not_looked_yet_has_no_cards() -> None:
    assert read(AgentMetrics().text()) == NodeScrape()


names = st.text(st.characters(codec="utf-8"), max_size=60)


@given(names, names, st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 10**6))
@example('a"} 1', 'b\\",gpu="x\n', 1, 2, 3)
@example("\\n", "\\", 1, 2, 3)
def test_any_name_comes_back_as_it_was(namespace: str, pod: str, mib: int, sm: int, allowance: int) -> None:
    """No name can begin another sample or another label."""
    (use,) = read(written(look(ContainerName(namespace, pod, "main"), mib, sm, allowance))).uses
    assert (use.namespace, use.pod, use.container, use.card) == (namespace, pod, "main", "GPU-0")
    assert (use.mib, use.sm, use.cap) == (mib, sm, allowance)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slicewarden_webhook_requests_total 1\n",
        HEAD + "slicewarden_node_use_bytes",
        HEAD + "slicewarden_node_use_bytes{gpu=} 1",
        HEAD + 'slicewarden_node_use_bytes{gpu="a} 1',
        HEAD + 'slicewarden_node_use_bytes{gpu="a" pod="b"} 1',
        HEAD + "slicewarden_node_use_bytes nan",
        HEAD + "slicewarden_node_use_bytes +Inf",
        HEAD + "slicewarden_node_use_bytes 1e300",
        HEAD + "slicewarden_node_use_bytes 1_0",
        HEAD + "slicewarden_node_use_bytes ١٢",
        HEAD + "slicewarden_node_use_bytes 0x10",
        HEAD + "slicewarden_node_look_age_seconds -1",
        HEAD + "slicewarden_node_use_bytes 1 1700000000",
        HEAD + f'slicewarden_node_use_bytes{{gpu="{"a" * (LONGEST_TEXT + 1)}"}} 1',
        HEAD + "".join(f'slicewarden_node_use_bytes{{pod="{n}"}} 1\n' for n in range(2001)),
        HEAD + "".join(f'slicewarden_node_card_dead{{gpu="{n}"}} 1\n' for n in range(2001)),
        HEAD + "".join(f'slicewarden_node_limit_faults{{fault="{n}"}} 1\n' for n in range(2001)),
        HEAD + "#" * (8 * 2**20),
    ],
    ids=lambda text: text[-40:],
)
def test_an_answer_of_another_shape_is_refused(text: str) -> None:
    with pytest.raises(DamagedRecord):
        read(text.encode())


def test_an_answer_that_is_no_text_is_refused() -> None:
    with pytest.raises(DamagedRecord):
        read(HEAD.encode() + b"\xff")


@given(st.lists(st.text(st.sampled_from('slicewarden_node_use_bytes{}="\\, 1.e+-\n'), max_size=80)))
def test_garbage_is_refused_or_read_and_nothing_else_happens(lines: list[str]) -> None:
    text = HEAD + "\n".join(f"slicewarden_node_use_bytes{line}" for line in lines)
    with suppress(DamagedRecord):
        assert read(text.encode()).age is None
