"""The pods of `slicewarden prove --run`: what their reports show, and that nothing of a run is left behind."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.proving.nodes import Interruption, PretendedNodes, ended, kubelet, report, seen
from tests.proving.pretended import admitting, with_hostnames
from tests.support.policies import RULES
from webhook import rules
from webhook.engine.engine import Engine
from webhook.facts.kinds.pod import Holder
from webhook.facts.snapshot import Facts
from webhook.model import Action, Object
from webhook.policy.model import Policy
from webhook.proving import capacity, running
from webhook.proving.probes import ProbeTarget, targets
from webhook.proving.proof import PATCH, DryRun, Outcome, Shown, Tried, prove
from webhook.proving.runner import CONFIG_MAPS, PODS, CallFailed, ProbeRunner, RunInProgress, opened
from webhook.proving.running import ProbeRun
from webhook.proving.sighting import SeenCards
from webhook.proving.ways import CHANGES, WAYS, GPUWay

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN = ProbeRun("0a1b", "vision", "slicewarden:1", 3)
PATCHED = {way.name for way in WAYS if way.patched}


class World:
    """A cluster with one GPU node for each pool, and what `prove --run` shows there."""

    def __init__(self, policy: Policy, facts: Facts) -> None:
        self.policy, self.facts = policy, with_hostnames(facts)
        self.engine = Engine(policy, rules.walk())
        self.nodes = PretendedNodes(self.engine, self.facts)
        self.changed: dict[str, Shown] = {}
        """What the last run showed of the ways of a pod that exists; `run` returns the others."""

    def of(self, kubelet: Callable[[Object], Any]) -> PretendedNodes:
        self.nodes = PretendedNodes(self.engine, self.facts, kubelet)
        return self.nodes

    def eased(self) -> "World":
        """The same without enforcement."""
        return World(replace(self.policy, actions={"*": Action.AUDIT}), self.facts)

    def target(self) -> ProbeTarget:
        found = next(targets(Engine(replace(self.policy, actions={}), rules.walk()), self.facts, "vision"))
        assert isinstance(found, ProbeTarget)
        return found

    def dry(self) -> Tried:
        return prove(self.policy, self.target(), admitting(self.engine, self.facts), RULES)

    def run(self, run: ProbeRun = RUN, now: datetime = NOW, dry: Tried | None = None) -> dict[str, Shown]:
        with opened(self.nodes, run, lambda: now) as own:
            made = ProbeRunner(self.nodes, self.policy, own, RULES, lambda: now, lambda _: None).run(dry or self.dry())
        self.changed = {each.way.name: each for each in made.shown if each.way and each.way.change}
        return {each.way.name if each.way else "": each for each in made.shown if not (each.way and each.way.change)}


@pytest.fixture
def world(sample_policy: Policy, sample_facts: Facts) -> World:
    return World(sample_policy, sample_facts)


def names(shown: dict[str, Shown], outcome: Outcome) -> set[str]:
    return {name for name, each in shown.items() if each.outcome is outcome}


def test_what_is_patched_is_shut_by_what_its_pod_saw_next_to_the_honest_one(world: World) -> None:
    shown = world.run()
    assert shown[""].outcome is Outcome.ADMITTED
    assert shown[""].message == f"saw 1 card on node {world.target().node}"
    assert names(shown, Outcome.SHUT) == {way.name for way in WAYS if not way.unearned}
    assert {name for name, each in shown.items() if each.seen} == {"", *PATCHED}
    assert {shown[name].message for name in PATCHED} == {"saw 0 of 1 cards"}
    assert len(world.nodes.pods) == running.most([world.dry()]) == 1 + len(PATCHED)
    assert world.nodes.stored == {}


def test_a_patched_pod_that_sees_a_card_is_open(world: World) -> None:
    """Such as one that a runtime starts which does not know the value `void`."""
    world.of(lambda pod: ended(report(seen(pod) or 2)))
    shown = world.run()
    assert names(shown, Outcome.OPEN) == PATCHED
    assert {shown[name].message for name in PATCHED} == {"saw 2 cards; the honest pod saw 1 card"}
    assert {shown[name].by for name in PATCHED} == {""}


def test_a_pod_that_is_no_more_patched_when_it_is_really_created_is_open(world: World) -> None:
    dry, nodes = world.dry(), World(replace(world.policy, actions={"*": Action.AUDIT}), world.facts).nodes
    world.nodes = nodes
    shown = world.run(dry=dry)
    assert names(shown, Outcome.OPEN) == PATCHED


def test_what_admission_lets_in_stays_open_whatever_its_pod_saw(world: World) -> None:
    eased = world.eased()
    eased.nodes = PretendedNodes(eased.engine, eased.facts)
    shown = eased.run()
    assert names(shown, Outcome.SHUT) == set()
    assert names(shown, Outcome.OPEN) == set(shown) - {""}
    assert shown["variable"].message == "saw 2 cards; the honest pod saw 1 card"
    assert shown["variable-init"].message == "saw 2 cards; the honest pod saw 1 card"
    assert shown["variable-amd"].message == "saw 0 of 1 cards"
    assert shown["processes"].message == "saw 1 of 1 cards"
    assert shown["path-root"].message == "its pod was not started: its pod would mount files of the node"
    started = {name for name, each in shown.items() if each.seen}
    assert len(eased.nodes.pods) == len(started) == running.most([eased.dry()])
    assert not any("hostPath" in str(pod) for pod in eased.nodes.pods)


# A pod that shows nothing

BAD: dict[str, Callable[[Object], Any]] = {
    "saw 0 of 1 cards": lambda _: ended(report(0)),
    "could not look: it crashed": lambda _: ended(report("it crashed")),
    "could not look: files cannot be opened": lambda _: ended(report(0, unclear=1)),
    "its report cannot be read": lambda _: ended('{"probe": 1}'),
    "its pod did not report: Completed": lambda _: ended(""),
    "its pod did not report: it is unknown": lambda _: None,
}


@pytest.mark.parametrize("why", BAD)
def test_without_a_card_of_the_honest_pod_nothing_that_is_patched_is_shown(world: World, why: str) -> None:
    world.of(BAD[why])
    found = world.run()
    assert names(found, Outcome.UNKNOWN) == {"", *PATCHED}
    assert why in found["image"].message
    assert names(found, Outcome.SHUT) == {way.name for way in WAYS if not way.unearned and not way.patched}
    assert len(world.nodes.pods) == 1
    assert world.nodes.stored == {}


@pytest.mark.parametrize("why", [why for why in BAD if not why.startswith("saw")])
def test_a_pod_that_could_not_look_shows_nothing(world: World, why: str) -> None:
    world.of(lambda pod: kubelet(pod) if seen(pod) == 1 else BAD[why](pod))
    found = world.run()
    assert found[""].outcome is Outcome.ADMITTED
    assert names(found, Outcome.UNKNOWN) == PATCHED
    assert {found[name].message for name in PATCHED} == {why}


def test_a_device_file_that_can_be_opened_is_seen(world: World) -> None:
    world.of(lambda _: ended(report(0, files=2)))
    found = world.run()
    assert found[""].message.startswith("saw 2 device files on node ")
    assert names(found, Outcome.OPEN) == PATCHED


def test_a_pod_on_another_node_shows_nothing(world: World) -> None:
    read = world.nodes.read

    def moved(plural: str, namespace: str, name: str) -> Any:
        pod = read(plural, namespace, name)
        return pod and {**pod, "spec": {**pod["spec"], "nodeName": "another"}}

    world.nodes.read = moved  # type: ignore[method-assign]
    found = world.run()
    assert names(found, Outcome.UNKNOWN) == {"", *PATCHED}
    assert "its pod was on another node than " in found[""].message


def test_a_pod_is_not_started_where_all_slices_are_in_use(world: World) -> None:
    target = world.target()
    held = tuple(Holder("a", f"b{n}", node.name, {target.resource: 99}) for n, node in enumerate(world.facts.nodes))
    world.facts = replace(world.facts, holders=held)
    world.nodes = PretendedNodes(world.engine, world.facts)
    found = world.run()
    assert found[""].message == f"no node of the pool has a free {target.resource}"
    assert names(found, Outcome.UNKNOWN) == {"", *PATCHED}
    assert world.nodes.pods == []


def asks(pod: Object, resource: str) -> bool:
    return any(resource in each["resources"]["limits"] for each in pod["spec"]["containers"])


def test_a_slice_is_taken_only_where_one_is_free_whenever_neighbours_come(world: World) -> None:
    """Neighbours take all slices at any of the moments when the run looks at them."""
    eased = world.eased()
    dry, resource = eased.dry(), eased.target().resource
    full = tuple(Holder("a", f"b{n}", node.name, {resource: 99}) for n, node in enumerate(eased.facts.nodes))

    def started(free: int) -> tuple[int, int]:
        """How many pods took a slice, where one was free at so many looks, and how many looks there were."""
        nodes, looks = eased.of(kubelet), [0]

        def facts() -> Facts:
            looks[0] += 1
            return eased.facts if looks[0] <= free else replace(eased.facts, holders=full)

        nodes.facts = facts  # type: ignore[method-assign]
        eased.run(dry=dry)
        assert nodes.stored == {}
        return sum(asks(pod, resource) for pod in nodes.pods), looks[0]

    _, looks = started(99)
    assert looks > 4
    # The first look chooses the node, and each of the others comes before a pod that takes a slice.
    assert [started(free)[0] for free in range(looks + 1)] == [0, *range(looks)]


@pytest.mark.parametrize("answer", [DryRun(403, "exceeded quota"), DryRun(0, "timed out")])
def test_a_pod_that_is_not_created_shows_nothing(world: World, answer: DryRun) -> None:
    world.nodes.refusal = answer
    found = world.run()
    assert names(found, Outcome.UNKNOWN) == {"", *PATCHED}
    assert answer.message in found[""].message
    assert world.nodes.stored == {}


def test_a_pod_that_somebody_deletes_shows_nothing(world: World) -> None:
    def delete(what: str) -> None:
        if what == "read":
            for key in [key for key in world.nodes.stored if key[0] == PODS]:
                del world.nodes.stored[key]

    world.nodes.before = delete
    assert "somebody deleted its pod" in world.run()[""].message


def put(world: World, **changes: Any) -> None:
    """Change each stored pod that may start before it is read; those of its metadata and of its spec."""

    def change(what: str) -> None:
        for (plural, name), pod in [*world.nodes.stored.items()] if what == "read" else ():
            if plural == PODS and "schedulingGates" not in pod["spec"]:
                world.nodes.stored[plural, name] = {**pod, **{key: {**pod[key], **changes[key]} for key in changes}}

    world.nodes.before = change


MEDDLED: dict[str, dict[str, Any]] = {
    "somebody put another pod in the place of its own": {"metadata": {"uid": "of-a-tenant"}},
    "somebody added a container to its pod": {"spec": {"ephemeralContainers": [{"name": "debug"}]}},
    "somebody changed the image of its pod": {
        "spec": {"containers": [{"name": "probe", "image": "forger", "resources": {"limits": {"x/y": 1}}}]}
    },
}


@pytest.mark.parametrize("why", MEDDLED)
def test_a_pod_that_somebody_meddled_with_shows_nothing(world: World, why: str) -> None:
    """A tenant who may change pods in the namespace could write a report that sees no card, or one."""
    put(world, **MEDDLED[why])
    found = world.run()
    assert names(found, Outcome.UNKNOWN) == {"", *PATCHED}
    assert why in found[""].message


def test_a_pod_of_somebody_else_is_not_deleted(world: World) -> None:
    put(world, metadata={"uid": "of-a-tenant"})
    world.run()
    name = f"{RUN.name}-1"
    assert [*world.nodes.stored] == [(PODS, name)]
    world.nodes.before = lambda _: None
    taken = world.nodes.stored[PODS, name]
    taken["metadata"]["labels"] = {}
    assert "already exists" in world.run()[""].message
    assert world.nodes.stored == {(PODS, name): taken}


def test_a_pod_whose_containers_another_webhook_renames_shows_nothing(world: World) -> None:
    world.of(lambda _: ended(report(0), "other"))
    create = world.nodes.create

    def renamed(plural: str, item: Object) -> DryRun:
        if plural == PODS:
            item["spec"]["containers"][0]["name"] = "other"
        return create(plural, item)

    world.nodes.create = renamed  # type: ignore[method-assign]
    assert "the honest pod showed no card: its pod did not report: " in world.run()[""].message


def test_an_api_server_that_is_lost_shows_nothing(world: World) -> None:
    def lost(what: str) -> None:
        if what == "read":
            raise CallFailed("connection refused")

    world.nodes.before = lost
    found = world.run()
    assert names(found, Outcome.UNKNOWN) == {"", *PATCHED}
    assert found[""].message == "the honest pod showed no card: connection refused"
    assert world.nodes.stored == {}


def test_an_api_server_that_is_slow_does_not_lengthen_the_wait_for_a_pod(world: World) -> None:
    clock, looks = [NOW], [0]

    def slow(what: str) -> None:
        if what == "read":
            clock[0] += timedelta(seconds=15)
            looks[0] += 1
            raise CallFailed("timed out")

    world.nodes.before = slow
    with opened(world.nodes, RUN, lambda: NOW) as own:
        ProbeRunner(world.nodes, world.policy, own, RULES, lambda: clock[0], lambda _: None).run(world.dry())
    assert looks == [RUN.patience // 15 + 1 + 3]  # the last three are as the pod and those to change are deleted


# Ways of a pod that exists


def test_changes_are_tried_on_pods_that_never_start(world: World) -> None:
    world.run()
    assert names(world.changed, Outcome.SHUT) == {way.name for way in CHANGES}
    assert {each.by for each in world.changed.values()} == {PATCH, *(way.rule for way in CHANGES if not way.patched)}
    assert {each.seen for each in world.changed.values()} == {None}
    assert len(world.nodes.held) == running.most_held([world.dry()]) == 2
    for pod in world.nodes.held:
        assert pod["spec"]["schedulingGates"] == [{"name": "slicewarden.dev/prove"}]
        assert "nodeName" not in pod["spec"]
        assert running.is_of_a_run(pod)
        assert pod["metadata"]["ownerReferences"][0]["name"] == RUN.name
        assert all("/" not in key for each in pod["spec"]["containers"] for key in each["resources"]["limits"])
    assert world.nodes.stored == {}


def test_changes_are_tried_where_no_slice_is_free(world: World) -> None:
    full = replace(world.facts, nodes=())
    world.nodes.facts = lambda: full  # type: ignore[method-assign]
    assert "has a free" in world.run()[""].message
    assert names(world.changed, Outcome.SHUT) == {way.name for way in CHANGES}


def test_without_enforcement_changes_are_open(world: World) -> None:
    eased = world.eased()
    eased.run()
    assert names(eased.changed, Outcome.OPEN) == {way.name for way in CHANGES}


def test_a_run_whose_honest_pod_was_not_admitted_shows_no_change(world: World) -> None:
    dry = world.dry()
    honest = dry.shown[0]._replace(outcome=Outcome.UNKNOWN)
    world.run(dry=dry._replace(shown=(honest, *dry.shown[1:])))
    assert names(world.changed, Outcome.UNKNOWN) == {way.name for way in CHANGES}
    assert world.nodes.held == []
    assert running.most_held([dry._replace(shown=(honest,))]) == 0


@pytest.mark.parametrize("answer", [DryRun(403, "exceeded quota"), DryRun(0, "timed out")])
def test_a_pod_to_change_that_is_not_created_shows_nothing(world: World, answer: DryRun) -> None:
    world.nodes.refusal = answer
    world.run()
    assert names(world.changed, Outcome.UNKNOWN) == {way.name for way in CHANGES}
    assert {each.message for each in world.changed.values()} == {f"the pod to change was not created: {answer.message}"}


def test_a_pod_to_change_without_its_gate_shows_nothing(world: World) -> None:
    create = world.nodes.create

    def ungated(plural: str, item: Object) -> DryRun:
        made = create(plural, item)
        if made.pod is not None and made.pod.get("spec", {}).get("schedulingGates"):
            made = made._replace(pod={**made.pod, "spec": {**made.pod["spec"], "schedulingGates": None}})
        return made

    world.nodes.create = ungated  # type: ignore[method-assign]
    asked: list[str] = []
    world.nodes.before = asked.append
    world.run()
    assert names(world.changed, Outcome.UNKNOWN) == {way.name for way in CHANGES}
    assert "change" not in asked
    assert world.nodes.stored == {}


CHANGED: dict[str, tuple[DryRun, Outcome, str]] = {
    "may not": (
        DryRun(403, 'pods "p" is forbidden: User "ada" cannot patch resource "pods/ephemeralcontainers" in API group'),
        Outcome.SHUT,
        "RBAC",
    ),
    "says the same of more": (
        DryRun(403, 'admission webhook "x.dev" denied: pods "p" is forbidden: User "a" cannot patch resource "pods"'),
        Outcome.UNKNOWN,
        "",
    ),
    "may not make the pod": (DryRun(403, 'pods "p" is forbidden: exceeded quota: q'), Outcome.UNKNOWN, ""),
    "another pod": (
        DryRun(409, "Precondition failed: UID in precondition: a, UID in object meta: b"),
        Outcome.UNKNOWN,
        "",
    ),
    "gone": (DryRun(404, 'pods "p" not found'), Outcome.UNKNOWN, ""),
    "silence": (DryRun(0, "timed out"), Outcome.UNKNOWN, ""),
    "another rule": (
        DryRun(403, 'admission webhook "pods.slicewarden.dev" denied the request: multiple-slices: x'),
        Outcome.UNKNOWN,
        "",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_only_a_denial_of_its_rule_or_of_rbac_shuts_a_change(world: World, name: str) -> None:
    answer, outcome, by = CHANGED[name]
    world.nodes.changed = lambda *_: answer  # type: ignore[method-assign]
    world.run()
    assert {(each.outcome, each.by) for each in world.changed.values()} == {(outcome, by)}


def test_a_refusal_for_the_gate_means_that_admission_let_a_binding_in(world: World) -> None:
    gated = DryRun(500, "pod slicewarden-probe-0a1b-1 has non-empty .spec.schedulingGates")
    world.nodes.changed = lambda *_: gated  # type: ignore[method-assign]
    world.run()
    assert names(world.changed, Outcome.OPEN) == {"binding"}
    assert names(world.changed, Outcome.UNKNOWN) == {way.name for way in CHANGES} - {"binding"}


def test_a_denial_of_the_debug_container_without_a_way_shuts_no_other_by_another_rule(world: World) -> None:
    denied = DryRun(403, 'pods "p" is forbidden: violates PodSecurity "restricted:latest": privileged')
    change = world.nodes.changed

    for twin, outcome in ((True, Outcome.SHUT), (False, Outcome.UNKNOWN)):

        def answers(way: GPUWay, namespace: str, name: str, body: Object, twin: bool = twin) -> DryRun:
            refused = way.name == "debug-privileged" or not twin
            return denied if refused else change(way, namespace, name, body)

        world.nodes.changed = answers  # type: ignore[method-assign]
        world.run()
        assert world.changed["debug-privileged"].outcome is outcome


# Memory


def asked(pod: Object) -> int:
    """The MiB that a pod asks for; 0 for one that takes none."""
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == "probe"]
    words = container["command"]
    return int(words[words.index("--memory") + 1]) if "--memory" in words else 0


def taking(got: int) -> Callable[[Object], Object]:
    """A kubelet whose pods get so many MiB of those that they ask for."""

    def run(pod: Object) -> Object:
        if not (most := asked(pod)):
            return kubelet(pod)
        part = {"asked": most, "got": min(got, most), "stopped": "" if got >= most else "out of memory", "free": 9000}
        return ended(report(seen(pod), memory=part))

    return run


MEASURED = RUN._replace(memory=100_000)


def test_one_more_honest_pod_measures_the_cap_and_no_other_takes_memory(world: World) -> None:
    node = next(each for each in world.facts.nodes if each.name == world.target().node)
    cap = capacity.cap(world.policy, world.target().pool, node)
    assert cap is not None
    ways = set()
    for got, said in (
        (10**6, f"{cap.asked} MiB, more than the cap"),
        (cap.mib - 500, f"{cap.mib - 500} MiB and no more, with 9000 MiB free on the card"),
    ):
        world.of(taking(got))
        shown = world.run(MEASURED)
        assert shown[""].message == (
            f"saw 1 card on node {node.name}; cap of {cap.mib} MiB by variables of frameworks: cuMemAlloc got {said}"
        )
        assert shown[""].seen is not None
        assert shown[""].seen.memory is not None
        assert shown[""].seen.memory.asked == cap.asked
        assert [asked(pod) for pod in world.nodes.pods if asked(pod)] == [cap.asked]
        assert asks(world.nodes.pods[1], world.target().resource)
        assert len(world.nodes.pods) == running.most([world.dry()], 2)
        ways.add(tuple((name, each.outcome) for name, each in shown.items()))
    assert len(ways) == 1, "memory decides about no way"


def test_the_report_has_the_card_that_was_measured(world: World) -> None:
    """The cards of a node may differ, and the second pod may get another one."""
    run = taking(10**6)

    def unlike(pod: Object) -> Object:
        status = run(pod)
        if asked(pod):
            state = status["containerStatuses"][0]["state"]["terminated"]
            state["message"] = state["message"].replace("GPU-0", "GPU-9").replace("40960", "600")
        return status

    world.of(unlike)
    honest = world.run(MEASURED)[""]
    assert honest.outcome is Outcome.ADMITTED
    assert honest.message.endswith(" MiB: not measured: no card that it saw has so much")
    assert honest.seen is not None
    assert isinstance(honest.seen.nvml, SeenCards)
    assert honest.seen.nvml.devices == (("GPU-9", "A100", 600),)


def test_the_pod_that_measures_has_the_python_of_a_tenant_and_half_of_the_time(world: World) -> None:
    """With -I, Python would ignore the shim that the policy loads by PYTHONPATH."""
    world.run(MEASURED._replace(seconds=300))
    for pod in world.nodes.pods:
        (words,) = [each["command"] for each in pod["spec"]["containers"] if each["name"] == "probe"]
        assert ("-I" in words) == (asked(pod) == 0)
        assert asked(pod) == 0 or words[words.index("--seconds") + 1] == "150"


def test_without_memory_no_pod_takes_any(world: World) -> None:
    world.run()
    assert not any(map(asked, world.nodes.pods))


def test_no_pod_takes_more_memory_than_was_said_beforehand(world: World) -> None:
    shown = world.run(RUN._replace(memory=500))
    assert shown[""].message.endswith("; no cap of memory is known there")
    assert not any(map(asked, world.nodes.pods))


def test_no_pod_takes_more_memory_than_the_card_has_whatever_labels_say(world: World) -> None:
    labels = {"nvidia.com/gpu.memory": str(8 * 40960)}
    facts = replace(
        world.facts, nodes=tuple(replace(each, labels={**each.labels, **labels}) for each in world.facts.nodes)
    )
    shown = World(world.policy, facts).run(MEASURED)
    assert shown[""].message.endswith(" MiB: not measured: no card that it saw has so much")
    world.of(lambda _: ended(report(0, files=2)))
    assert world.run(MEASURED)[""].message.endswith(" MiB: not measured: no card that it saw has so much")


@pytest.mark.parametrize("why", [why for why in BAD if not why.startswith("saw") and "look" not in why])
def test_a_cap_that_could_not_be_measured_changes_no_way(world: World, why: str) -> None:
    world.of(lambda pod: BAD[why](pod) if asked(pod) else kubelet(pod))
    shown = world.run(MEASURED)
    assert shown[""].outcome is Outcome.ADMITTED
    assert shown[""].message.endswith(f" MiB: not measured: {why}")
    assert names(shown, Outcome.SHUT) == {way.name for way in WAYS if not way.unearned}


# What is left


def calls(world: World) -> int:
    world.run()
    return world.nodes.calls


def test_an_interruption_at_any_call_leaves_nothing(world: World) -> None:
    dry = world.dry()
    for last in range(calls(world)):
        nodes = world.of(kubelet)

        def interrupt(_: str, last: int = last, nodes: PretendedNodes = nodes) -> None:
            if nodes.calls == last + 1:
                raise Interruption

        nodes.before = interrupt
        with pytest.raises(Interruption):
            world.run(dry=dry)
        held = {plural for plural, _ in nodes.stored}
        if held:  # it was interrupted as it deleted: the next run does so
            world.run(RUN._replace(id="next"), NOW + timedelta(hours=1), dry)
        assert nodes.stored == {}, last


def killed_at(world: World, dry: Tried, last: int) -> PretendedNodes:
    """A cluster whose run was killed after so many calls: nothing was asked after that."""
    nodes = world.of(kubelet)

    def kill(_: str) -> None:
        if nodes.calls > last:
            raise Interruption

    nodes.before = kill
    with pytest.raises(Interruption):
        world.run(dry=dry)
    nodes.before = lambda _: None
    return nodes


def test_after_a_kill_at_any_call_the_next_run_leaves_nothing(world: World) -> None:
    dry, left = world.dry(), set[str]()
    for last in range(calls(world)):
        nodes = killed_at(world, dry, last)
        left |= {plural for plural, _ in nodes.stored}
        owned = [
            item["metadata"]["ownerReferences"][0]["uid"] for (kind, _), item in nodes.stored.items() if kind == PODS
        ]
        assert set(owned) <= {
            item["metadata"]["uid"] for (kind, _), item in nodes.stored.items() if kind == CONFIG_MAPS
        }
        world.run(RUN._replace(id="next"), NOW + timedelta(seconds=RUN.patience + running.MARGIN), dry)
        assert nodes.stored == {}, last
    assert left == {PODS, CONFIG_MAPS}


def test_a_run_that_may_be_in_progress_is_left_to_end(world: World) -> None:
    dry = world.dry()
    nodes = killed_at(world, dry, calls(world) // 2)
    before = {**nodes.stored}
    assert before
    with pytest.raises(RunInProgress, match="kubectl delete configmap slicewarden-probe-0a1b -n vision"):
        world.run(RUN._replace(id="next"), NOW, dry)
    assert nodes.stored == before


def test_of_two_that_start_at_the_same_time_none_goes_on_beside_the_other(world: World) -> None:
    other = running.run_object(RUN._replace(id="other"), NOW)

    def arrive(what: str) -> None:
        if what == "create":
            world.nodes.stored[CONFIG_MAPS, other["metadata"]["name"]] = other

    world.nodes.before = arrive
    dry = world.dry()
    with pytest.raises(RunInProgress):
        world.run(dry=dry)
    assert [*world.nodes.stored] == [(CONFIG_MAPS, "slicewarden-probe-other")]


def test_what_is_not_of_a_run_is_left_alone(world: World) -> None:
    mine = {"labels": {running.MANAGED_BY: running.MANAGER}}
    others: dict[tuple[str, str], Any] = {
        (PODS, "of-a-tenant"): {"metadata": {"name": "of-a-tenant", **mine}},
        (CONFIG_MAPS, "slicewarden-probe-x"): {"metadata": {"name": "slicewarden-probe-x", "labels": {}}},
    }
    dry = world.dry()
    world.nodes.stored.update(others)
    with opened(world.nodes, RUN, lambda: NOW):
        pass
    assert world.nodes.stored == others
    assert dry.shown[0].outcome is Outcome.ADMITTED


def test_a_run_without_its_object_starts_nothing(world: World) -> None:
    create = world.nodes.create

    def refuse(plural: str, item: Object) -> DryRun:
        return DryRun(403, "may not create configmaps") if plural == CONFIG_MAPS else create(plural, item)

    world.nodes.create = refuse  # type: ignore[method-assign]
    with pytest.raises(CallFailed, match="may not create configmaps"):
        world.run()
    assert world.nodes.pods == []
