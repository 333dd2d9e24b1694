"""Idle containers: reported before their pod is evicted, and nobody whose work is not known is idle."""

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.listening import Asked, listening
from tests.support.waiting import until
from webhook.agent.actions import NodeAction
from webhook.agent.limits.idle_watch import UNCOUNTED, UNTOLD, IdleWatch
from webhook.agent.observe.look import CardUse, ContainerUse, ProcessUse
from webhook.agent.observe.nvml import CardReading, NvmlProcess
from webhook.agent.observe.pods import ContainerName
from webhook.agent.observe.processes import Process
from webhook.agent.observe.view import NodeContainer, Observation, rows
from webhook.agent.recorder import UsageRecorder
from webhook.cgroups.places import ContainerCgroup
from webhook.cluster import client
from webhook.cluster.client import Api
from webhook.memory.admitted import UNKNOWN, Admitted
from webhook.policy.model import EVICT, REPORT, Idle, Over
from webhook.usage.account import AccountState, CardShare, HolderLook, NodeLook, QuietTime, advance, quiet
from webhook.usage.held import HeldSlices, NodeSlices
from webhook.usage.idle import IdleDecision, IdleState, decide
from webhook.usage.record import SlicedCard

RULES = Idle(600, EVICT, 300)


def container(pod: str = "p", name: str = "main", **more: Any) -> NodeContainer:
    return NodeContainer(ContainerName("team", pod, name), f"uid-{pod}", Admitted(True, 4000)._replace(**more))


def after(seconds: float, holds: bool = True) -> QuietTime:
    return QuietTime(round(seconds * 1000), holds)


ONE = frozenset({"uid-p/main"})
NOTHING = IdleDecision()


def test_a_container_is_reported_once_and_its_pod_evicted_after_the_notice() -> None:
    state, done = IdleState(), []
    for second in range(0, 2000, 50):
        state, decision = decide(state, second, {"uid-p/main": after(second)}, ONE, RULES)
        done += [(second, REPORT) for _ in decision.report] + [(second, EVICT) for _ in decision.evict]
    assert done == [(600, REPORT), *((second, EVICT) for second in range(900, 2000, 300))]


def test_work_after_the_report_begins_the_time_and_the_notice_again() -> None:
    state, _ = decide(IdleState(), 0, {"uid-p/main": after(600)}, ONE, RULES)
    state, decision = decide(state, 299, {"uid-p/main": after(0)}, ONE, RULES)
    assert decision == NOTHING
    state, decision = decide(state, 899, {"uid-p/main": after(600)}, ONE, RULES)
    assert decision == IdleDecision(("uid-p/main",))
    _, decision = decide(state, 1198, {"uid-p/main": after(899)}, ONE, RULES)
    assert decision == NOTHING


@pytest.mark.parametrize(
    "told", [RULES._replace(action=REPORT), RULES._replace(notice=3000), RULES._replace(after=300)]
)
def test_a_pod_that_was_told_of_other_rules_is_told_again_before_it_is_evicted(told: Idle) -> None:
    state, decision = decide(IdleState(), 0, {"uid-p/main": after(600)}, ONE, told)
    assert decision == IdleDecision(("uid-p/main",))
    done = []
    for second in range(1000, 1400, 50):
        state, decision = decide(state, second, {"uid-p/main": after(600 + second)}, ONE, RULES)
        done += [(second, REPORT) for _ in decision.report] + [(second, EVICT) for _ in decision.evict]
    assert done == [(1000, REPORT), (1300, EVICT)]


def test_a_restart_of_a_container_does_not_begin_the_notice_again() -> None:
    state, done = IdleState(), []
    for second in range(0, 1000, 50):
        runs = second % 200 != 0
        liable, waiting = (ONE, frozenset[str]()) if runs else (frozenset[str](), ONE)
        state, decision = decide(state, second, {"uid-p/main": after(second)}, liable, RULES, waiting)
        done += [(second, REPORT) for _ in decision.report] + [(second, EVICT) for _ in decision.evict]
    assert done == [(650, REPORT), (950, EVICT)]
    state, decision = decide(state, 2000, {"uid-p/main": after(2000)}, frozenset[str](), RULES)
    assert (state.reported, decision) == ({}, NOTHING)


def test_a_whole_card_is_nobody_elses() -> None:
    found = decide(IdleState(), 0, {"uid-p/main": after(10_000, holds=False)}, ONE, RULES)
    assert found == (IdleState(rules=RULES), NOTHING)


@pytest.mark.parametrize(
    ("other", "evicts"),
    [(after(10_000), True), (after(0), False), (after(10_000, False), True), (after(899, False), False)],
)
def test_a_pod_is_evicted_only_if_all_its_containers_are_idle(other: QuietTime, evicts: bool) -> None:
    liable, times = {"uid-p/main", "uid-p/side"}, {"uid-p/main": after(10_000), "uid-p/side": other}
    state, _ = decide(IdleState(), 0, times, liable, RULES)
    _, decision = decide(state, 300, times, liable, RULES)
    assert decision.evict == (("uid-p/main",) if evicts else ())
    _, decision = decide(state, 300, times, ONE, RULES)
    assert bool(decision.evict) == (evicts and not other.holds)


@pytest.mark.parametrize(("seconds", "evicts"), [(899, False), (900, True), (10_000, True)])
def test_a_container_that_has_ended_needs_no_report_of_its_own(seconds: int, evicts: bool) -> None:
    """It ended before it was idle for long, and holds its slice until its pod ends."""
    ended = {"uid-p/side"}
    times = {"uid-p/main": after(10_000), "uid-p/side": after(10)._replace(ended=True)}
    state, decision = decide(IdleState(), 0, times, ONE, RULES, ended)
    assert decision == IdleDecision(("uid-p/main",))
    times = {"uid-p/main": after(10_300), "uid-p/side": after(seconds)._replace(ended=True)}
    assert decide(state, 300, times, ONE, RULES, ended)[1].evict == (("uid-p/main",) if evicts else ())
    times["uid-p/side"] = after(10_000)  # it has never started
    assert decide(state, 300, times, ONE, RULES, ended)[1].evict == ()
    assert decide(state, 300, {"uid-p/side": after(10_000)._replace(ended=True)}, (), RULES, ended)[1] == NOTHING


times = st.builds(QuietTime, st.integers(0, 1_200_000), st.booleans() | st.just(True), st.booleans())
looks = st.lists(
    st.tuples(st.integers(1, 400), st.dictionaries(st.sampled_from(("uid-p/main", "uid-p/side", "uid-q/main")), times)),
    max_size=20,
)


@given(looks)
def test_no_pod_is_evicted_without_a_report_for_the_whole_notice(life: list[tuple[int, dict[str, QuietTime]]]) -> None:
    liable = {"uid-p/main", "uid-p/side", "uid-q/main"}
    state, now = IdleState(), 0
    since: dict[str, int] = {}
    for step, seen in life:
        now += step
        state, decision = decide(state, now, seen, liable, RULES)
        idle = {name for name, time in seen.items() if time.holds and time.ms >= 600_000}
        since = {name: since.get(name, now) for name in idle}
        for each in decision.evict:
            own = [name for name in seen if name.startswith(each.partition("/")[0])]
            held = {name for name in own if seen[name].holds and not seen[name].ended}
            assert all(now - since[name] >= 300 for name in held | {each})
            assert all(seen[name].ms >= 900_000 for name in own if name not in held)
        assert state.reported.keys() == idle


# What the record says


def test_unknown_work_is_never_idle() -> None:
    card = SlicedCard("GPU-0", 4)
    state = AccountState(0, 0)
    for second in range(101):
        holders = tuple(
            HolderLook(name, "n", "", "p", "c", (CardShare("GPU-0", 1, work),))
            for name, work in (("idle", False), ("unknown", None), ("works", True))
        )
        state = advance(state, NodeLook((card,), holders), second * 1000, second * 1000)
    assert quiet(state) == {
        "idle": QuietTime(100_000, True),
        "unknown": QuietTime(0, True),
        "works": QuietTime(0, True),
    }
    late = advance(state, state.last, 110_000, 110_000)
    assert quiet(late)["idle"] == QuietTime(0, True)
    assert quiet(advance(state, state.last._replace(seen=False), 101_000, 101_000)) == {}


@pytest.mark.parametrize(
    ("slices", "share", "holds"),
    [
        (4, CardShare("GPU-0", 1), True),
        (1, CardShare("GPU-0", 1), False),
        (4, CardShare("GPU-0", 0), False),
        (4, CardShare("", 1), True),
        (1, CardShare("", 1), False),
        (4, CardShare("GPU-0", 0, elsewhere=1), True),
    ],
)
def test_only_slices_of_a_shared_card_are_held(slices: int, share: CardShare, holds: bool) -> None:
    look = NodeLook((SlicedCard("GPU-0", slices),), (HolderLook("k", "n", "", "p", "c", (share,)),))
    assert quiet(advance(AccountState(0, 0), look, 0, 0))["k"].holds == holds


# The watcher


class Account:
    """A recorder whose account is set by the test."""

    def __init__(self) -> None:
        self.quiet = {"uid-p/main": after(0)}


def watch(account: Account, api: Api | None, rules: Idle | None = RULES, *, watch_only: bool = False) -> IdleWatch:
    return IdleWatch(lambda: account.quiet, lambda: rules, api, lambda _: None, watch_only=watch_only, tells=True)


def seen(own: NodeContainer | None = None) -> Observation:
    return Observation(None, (), {"id": own or container()}, (), (), Over())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rules", "end"),
    [
        (RULES, "; use the GPU, or end the pod; its pod is evicted unless it works within 5 minutes"),
        (RULES._replace(action=REPORT), "; use the GPU, or end the pod"),
    ],
)
def test_the_report_names_what_follows(rules: Idle, end: str) -> None:
    account = Account()
    account.quiet = {"uid-p/main": after(600)}
    (told,) = watch(account, None, rules).look(seen(), 0)
    assert told.why == f"has held a slice of a shared GPU without work for 10 minutes or longer{end}"
    assert (told.reason, told.container, told.target) == ("GPUIdle", "id", container())


@pytest.mark.parametrize(
    "own",
    [
        NodeContainer(ContainerName("team", "p", "main"), "uid-p", UNKNOWN),
        NodeContainer(ContainerName("team", "p", "main"), "", Admitted(True)),
        container(requests=False),
        container(requests=None),
        container(exempt="plugin"),
        container(alone=True),
        container(ending=True),
        container(init=True),
        container("q"),
    ],
)
def test_who_is_exempt_ends_begins_or_is_not_known_is_left_alone(own: NodeContainer) -> None:
    account = Account()
    account.quiet = {"uid-p/main": after(10_000), "/main": after(10_000)}
    one = watch(account, None)
    assert [*one.look(seen(own), 0), *one.look(seen(own), 10_000)] == []
    assert not one.reported


def test_a_container_that_waits_to_start_again_stays_reported() -> None:
    account = Account()
    account.quiet = {"uid-p/main": after(100_000)}
    one = watch(account, None)
    nobody = seen()._replace(containers={})
    assert [each.verb for now, look in enumerate((seen(), nobody, seen())) for each in one.look(look, now)] == [REPORT]


def connected(url: str, folder: Path) -> Api:
    file = folder / "kubeconfig"
    file.write_text(
        f'{{"clusters": [{{"name": "c", "cluster": {{"server": "{url}"}}}}], "users": [{{"name": "u", "user": {{}}}}],'
        '"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}'
    )
    return client.connect(str(file), None)


def test_an_eviction_is_asked_by_uid_and_again_while_a_budget_forbids_it(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: Asked) -> None:
        asked.append(f"{request.path} {request.body.decode()}")
        request.give(429 if len(asked) == 1 else 201, b"{}", Content_Type="application/json")

    with listening(answer) as url:
        account = Account()
        one = watch(account, connected(url, tmp_path))
        account.quiet = {"uid-p/main": after(600)}
        assert [(each.verb, each.outcome) for each in one.look(seen(), 0)] == [(REPORT, "done")]
        assert one.reported == {ContainerName("team", "p", "main")}
        outcomes = []
        for now in (300, 600):
            account.quiet = {"uid-p/main": after(600 + now)}
            outcomes += [*one.look(seen(), now)]
            until(lambda: not one.calls.pending, "the answer came")
        outcomes += [*one.look(seen(), 601)]
    assert [(each.verb, each.outcome) for each in outcomes] == [(EVICT, "waits"), (EVICT, "done")]
    assert [each.partition(" ")[0] for each in asked] == ["/api/v1/namespaces/team/pods/p/eviction"] * 2
    assert '"uid": "uid-p"' in asked[0] or '"uid":"uid-p"' in asked[0]


def test_a_pod_that_works_while_its_eviction_waits_is_not_evicted(tmp_path: Path) -> None:
    asked: list[str] = []

    def answer(request: Asked) -> None:
        asked.append(request.path)
        request.give(201, b"{}", Content_Type="application/json")

    with listening(answer) as url:
        account, waits = Account(), threading.Event()
        one = watch(account, connected(url, tmp_path))
        account.quiet = {"uid-p/main": after(600)}
        list(one.look(seen(), 0))
        one.calls.submit(NodeAction(EVICT, "other", ""), lambda: str(waits.wait(60)))
        account.quiet = {"uid-p/main": after(900)}
        list(one.look(seen(), 300))
        account.quiet = {"uid-p/main": after(0)}
        list(one.look(seen(), 301))
        waits.set()
        until(lambda: not one.calls.pending, "the call had its turn")
        (late,) = [each for each in one.look(seen(), 302) if each.container == "id"]
    assert (late.verb, late.outcome, asked) == (EVICT, "it is no longer idle", [])


def test_an_agent_that_only_watches_or_was_blind_evicts_nobody() -> None:
    account = Account()
    account.quiet = {"uid-p/main": after(100_000)}
    one = watch(account, None, watch_only=True)
    assert [each.verb for now in (0, 10_000) for each in one.look(seen(), now)] == [REPORT]
    assert not one.calls.pending
    list(one.blind(20_000))
    assert one.reported == frozenset()


def test_an_agent_that_writes_no_events_evicts_nobody(tmp_path: Path) -> None:
    account, lines = Account(), list[Any]()
    account.quiet = {"uid-p/main": after(100_000)}
    api = connected("http://127.0.0.1:1", tmp_path)
    one = IdleWatch(lambda: account.quiet, lambda: RULES, api, lines.append, watch_only=False, tells=False)
    assert [each.verb for now in (0, 10_000) for each in one.look(seen(), now)] == [REPORT]
    assert not one.calls.pending
    assert [line["message"] for line in lines] == [UNTOLD]


def test_a_policy_without_idle_and_an_agent_without_a_record_do_nothing() -> None:
    account, lines = Account(), list[Any]()
    account.quiet = {"uid-p/main": after(100_000)}
    assert list(watch(account, None, None).look(seen(), 0)) == []
    one = IdleWatch(None, lambda: RULES, None, lines.append, watch_only=False, tells=True)
    assert list(one.look(seen(), 0)) == []
    assert [line["message"] for line in lines] == [UNCOUNTED]


def test_the_account_of_an_agent_is_what_is_judged() -> None:
    """A container whose process stays on the card without work, then works for a second."""
    held = HeldSlices("uid-p", "team", "Job/j", "p", "main", 1)
    gone = held._replace(container="gone", ended=True)
    node = NodeSlices(4, "shared", "NVIDIA-A10", (held, gone), True)
    recorder = UsageRecorder("n", lambda: node, None, lambda _: None, clock=lambda: 0.0, wall=lambda: 0.0)
    one = IdleWatch(lambda: recorder.quiet, lambda: RULES, None, lambda _: None, watch_only=True, tells=True)

    def look(second: int, sm: int) -> list[str]:
        place = ContainerCgroup("uid-p", "id", "/kubepods/p", 2)
        process = ProcessUse(Process(1, 1, "jupyter", place), 300, sm)
        reading = CardReading("GPU-0", "0", "A10", 300, 24_000, sm, processes=(NvmlProcess(1, 300, sm),))
        card, containers = CardUse(reading, (ContainerUse(place, (process,)),)), {"id": container()}
        now = Observation(None, (card,), containers, rows((card,), containers), (), Over())  # type: ignore[arg-type]
        recorder.look(now, second)
        return [each.verb for each in one.look(now, second)]

    said = {second: verbs for second in range(1300) if (verbs := look(second, int(second == 650)))}
    assert said == {600: [REPORT], 1250: [REPORT]}
    assert recorder.quiet == {
        "uid-p/main": QuietTime(649_000, True),
        "uid-p/gone": QuietTime(1_299_000, True, ended=True),
    }
    recorder.close()
