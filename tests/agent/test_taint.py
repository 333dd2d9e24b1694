"""The taint of a node with a dead card: set and taken away by the policy, and nobody else's is ever touched."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.card.state import LOST, State
from tests.support.listening import Asked, listening
from tests.support.waiting import until
from webhook.agent.agent import build
from webhook.agent.limits import dead, taint
from webhook.agent.limits.taint import AGAIN, HOLD, KEY, NodeTaint, written
from webhook.agent.observe.node import DEAD_CARDS
from webhook.cluster import client
from webhook.model import Object
from webhook.policy.model import Over

CARD, OTHER = "GPU-0", "GPU-1"
FOREIGN = {"key": "team", "value": "red", "effect": "NoExecute", "timeAdded": "2026-11-22T00:00:00Z"}
OURS = {"key": KEY, "effect": "NoSchedule"}


class Server:
    """A node as an API server has it, which takes merge patches (RFC 7396) of the version that it has."""

    def __init__(self, *taints: Object) -> None:
        self.node: Any = {"kind": "Node", "metadata": {"resourceVersion": "1", "annotations": {"a": "b"}}, "spec": {}}
        self.node["spec"]["taints"] = [*taints]
        self.writes, self.away = 0, False

    def write(self, patch: Object) -> None:
        if self.away or patch["metadata"]["resourceVersion"] != self.node["metadata"]["resourceVersion"]:
            return
        self.writes += 1
        for name, value in patch["metadata"]["annotations"].items():
            if value is None:
                self.node["metadata"]["annotations"].pop(name, None)
            else:
                self.node["metadata"]["annotations"][name] = value
        self.change(patch["spec"]["taints"] or [])

    def change(self, taints: list[Object]) -> None:
        self.node["spec"]["taints"] = taints
        self.node["metadata"]["resourceVersion"] += "1"

    @property
    def taints(self) -> list[Object]:
        return list(self.node["spec"]["taints"])

    def keep(self, agent: NodeTaint, now: float, dead: Mapping[str, str]) -> None:
        """Send the patch that is due."""
        patch = agent.change(now, dead)
        if patch is not None:
            self.write(patch)

    def agent(self, boot: str = "boot", *, on: bool = True) -> NodeTaint:
        made = NodeTaint(lambda: json.loads(json.dumps(self.node)), lambda: on, boot)
        self.before = made.restored()
        return made


def test_a_dead_card_taints_the_node_beside_others_and_goes_a_minute_after_it_is_back() -> None:
    server = Server(FOREIGN)
    agent = server.agent()
    server.keep(agent, 0, {})
    assert (server.taints, server.writes) == ([FOREIGN], 0)
    server.keep(agent, 1, {CARD: "XID 79"})
    assert server.taints == [FOREIGN, OURS]
    assert written(server.node) == ({CARD: "XID 79"}, "boot", True)
    for now in range(20, 20 + int(HOLD)):
        server.keep(agent, now, {})
    assert server.taints == [FOREIGN, OURS]
    server.keep(agent, 20 + HOLD, {})
    assert server.taints == [FOREIGN]
    assert server.node["metadata"]["annotations"] == {"a": "b"}
    assert server.writes == 2


@pytest.mark.parametrize("taints", [[], [FOREIGN], [OURS], [FOREIGN, OURS]])
def test_without_a_dead_card_nothing_is_written_and_a_taint_without_a_note_is_somebody_elses(
    taints: list[Object],
) -> None:
    server = Server(*taints)
    agent = server.agent()
    for now in range(200):
        server.keep(agent, now, {})
    assert (server.taints, server.writes) == (taints, 0)
    if OURS in taints:
        server.keep(agent, 300, {CARD: "XID 79"})
        server.keep(agent, 400, {})
        assert (server.taints, server.writes) == (taints, 0)


def test_an_agent_that_is_started_anew_knows_the_dead_cards_of_the_one_before() -> None:
    server = Server()
    server.keep(server.agent(), 0, {CARD: "XID 48"})
    server.agent()
    assert server.before == {CARD: "XID 48"}
    server.agent("another boot")
    assert server.before == {CARD: dead.LOST}  # it is alive as soon as it answers


def test_a_taint_that_a_person_took_away_is_set_again_for_another_death_alone() -> None:
    server = Server()
    agent = server.agent()
    server.keep(agent, 0, {CARD: "XID 48"})
    server.change([])
    for now in range(20, 100, 10):
        server.keep(agent, now, {CARD: "XID 48"})
    assert (server.taints, written(server.node)) == ([], None)
    server.keep(agent, 100, {CARD: "XID 48", OTHER: "XID 79"})
    assert written(server.node) == ({OTHER: "XID 79"}, "boot", True)
    server.keep(agent, 110, {OTHER: "XID 79"})
    server.keep(agent, 120, {CARD: "XID 48", OTHER: "XID 79"})
    assert written(server.node) == ({CARD: "XID 48", OTHER: "XID 79"}, "boot", True)


def test_a_policy_that_wants_it_no_more_takes_it_away_at_once() -> None:
    server = Server(FOREIGN)
    server.keep(server.agent(), 0, {CARD: "XID 48"})
    server.keep(server.agent(on=False), 1, {CARD: "XID 48"})
    assert server.taints == [FOREIGN]


def test_a_card_that_dies_and_comes_back_all_the_time_is_written_a_few_times_a_minute() -> None:
    server = Server()
    agent = server.agent()
    for second in range(3600):
        server.keep(agent, second, {CARD: dead.LOST} if second % 5 == 0 else {})
    assert server.writes == 1
    server = Server()
    agent = server.agent()
    for second in range(3600):
        server.keep(agent, second, {CARD: f"XID {second}"})
    assert server.writes <= 3600 / AGAIN


def test_random_lives_leave_others_alone_and_end_without_a_taint() -> None:
    """Cards die and come back, others change taints, agents are killed, and the API server is away now and then."""
    rng = random.Random(5)  # noqa: S311 - the same each time
    for _ in range(300):
        server, now, cards, others = Server(), 0.0, dict[str, str](), list[Object]()
        agent = server.agent()
        for _ in range(40):
            now += rng.choice((1, 5, 20, 70))
            server.away = rng.random() < 0.2
            match rng.randrange(5):
                case 0:
                    cards = {**cards, rng.choice((CARD, OTHER)): rng.choice(("XID 48", dead.LOST))}
                case 1:
                    cards = {card: why for card, why in cards.items() if rng.random() < 0.5}
                case 2:
                    others = [{"key": f"k{number}", "effect": "NoSchedule"} for number in range(rng.randrange(3))]
                    server.change([*others, *(each for each in server.taints if taint.ours(each))])
                case 3:
                    agent = server.agent()
                    cards = {**server.before, **cards}
            server.keep(agent, now, cards)
            assert [each for each in server.taints if not taint.ours(each)] == others
            assert (written(server.node) is not None) == any(map(taint.ours, server.taints))
        server.away = False
        for dying in (cards, {CARD: "XID 48"}, {}, {}):
            now += HOLD + AGAIN
            server.keep(agent, now, dying)
            if dying:
                assert any(map(taint.ours, server.taints))
        assert server.taints == others


@given(st.text() | st.from_regex(r'\{"(cards|boot)": .{0,9}\}', fullmatch=True), st.booleans())
def test_a_note_of_any_text_is_read_and_goes_with_the_taint(note: str, tainted: bool) -> None:
    server = Server(*([OURS] if tainted else []))
    server.node["metadata"]["annotations"][DEAD_CARDS] = note
    agent = server.agent()
    server.keep(agent, 0, {})
    server.keep(agent, HOLD, {})
    assert (server.taints, written(server.node)) == ([], None)


def test_the_agent_sends_a_merge_patch_of_its_own_node_and_counts_it(card: State, tmp_path: Path) -> None:
    asked: list[tuple[str, str, str, Any]] = []
    answers = [409, 403, 200]

    def answer(request: Asked) -> None:
        asked.append((request.command, request.path, request.headers["Content-Type"], json.loads(request.body)))
        request.give(answers.pop(0), b'{"kind": "Node"}', Content_Type="application/json")

    now = [0.0]
    with listening(answer) as url:
        file = tmp_path / "kubeconfig"
        context = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
        config = {"clusters": [{"name": "c", "cluster": {"server": url}}], "contexts": context, "kind": "Config"}
        file.write_text(json.dumps({**config, "users": [{"name": "u", "user": {}}], "current-context": "c"}))
        server = Server(FOREIGN)
        taints = NodeTaint(lambda: server.node, lambda: True, "boot")
        api = client.connect(str(file))
        one = build(dict, Over, lambda _: None, api=api, node="node-1", node_taint=taints, clock=lambda: now[0])
        one.round()
        card.set(fault=LOST)

        def counted(outcome: str) -> bool:
            one.round()
            return f'action="Taint",outcome="{outcome}"}} 1.0' in one.metrics.text().decode()

        for tries, outcome in enumerate(("waits", "failed", "done")):
            one.round()
            until(lambda outcome=outcome: counted(outcome), f"it was counted: {outcome}")  # type: ignore[misc]
            assert len(asked) == tries + 1
            card.set(fault=0)
            card.set(xid=79 if not tries else 0)
            now[0] += AGAIN
        one.close()
    assert {each[:3] for each in asked} == {("PATCH", "/api/v1/nodes/node-1", client.MERGE)}
    assert asked[0][3]["spec"] == {"taints": [FOREIGN, OURS]}
    assert json.loads(asked[0][3]["metadata"]["annotations"][DEAD_CARDS])["cards"] == {CARD_0: dead.LOST}
    assert json.loads(asked[2][3]["metadata"]["annotations"][DEAD_CARDS])["cards"] == {CARD_0: "XID 79"}


CARD_0 = "GPU-00000000-0000-0000-0000-000000000000"
