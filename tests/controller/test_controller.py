"""The controller against an API server in memory: what it writes, in which order, and wherever it is cut off."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from itertools import count
from typing import Any

import pytest
import yaml

import certs
from tests.support.api_in_memory import ADMISSION, CHECK, HALVES, LEASE, MAPS, POLICIES, SECRETS, ApiInMemory, installed
from tests.support.policies import POLICY
from webhook import rules
from webhook.cluster import client
from webhook.controller import fallback, lease, reach, reading, trial
from webhook.controller.agents import AGENTS
from webhook.controller.controller import Controller, Round
from webhook.controller.reading import PolicyRead, read_policy
from webhook.controller.run import WAITING
from webhook.controller.terms import Terms
from webhook.engine import filled
from webhook.engine.paths import MUTATE, VALIDATE
from webhook.fallback import policies as fallbacks
from webhook.fallback.needs import LACKING
from webhook.memory import frameworks
from webhook.policy import load, revisions
from webhook.policy.model import Policy
from webhook.serving import replica_state

Object = dict[str, Any]


def policy(name: str = "sample", mode: str = "Enforce", created: int = 1, **spec: Any) -> Object:
    value: Object = yaml.safe_load(POLICY.read_text("utf-8"))
    metadata: Object = {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{created}Z"}
    return {**value, "metadata": metadata, "spec": {**value["spec"], "mode": mode, **spec}}


def read(value: Object) -> Policy:
    return read_text(json.dumps(value))


@cache
def read_text(text: str) -> Policy:
    return load.of_object(json.loads(text), rules.releases(), frameworks=frameworks.names())


def digest(value: Object) -> str:
    return read(value).digest


READ = dict[str, PolicyRead]()
"""What is read of policies, by their texts without what an API server changes: it is read at each look."""


def by_digest(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make once what depends only on the digest of a policy, which is the last argument, and on the other arguments."""
    made = dict[tuple[Any, ...], Any]()

    def find(*given: Any) -> Any:
        key = (*given[:-1], given[-1].digest)
        if key not in made:
            made[key] = make(*given)
        return made[key]

    return find


ASKED, MADE = by_digest(filled._asked), by_digest(fallback.made)


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read and lint each policy once in all tests, and make its webhooks and its fallback once: half of a look."""

    def read(item: Object) -> PolicyRead:
        metadata = {**item["metadata"], "resourceVersion": "", "generation": 1}
        key = json.dumps([item.get("kind"), metadata, item.get("spec")])
        if key not in READ:
            READ[key] = read_policy(item)
        return READ[key]

    monkeypatch.setattr("webhook.controller.reading.read_policy", read)
    monkeypatch.setattr(filled, "_asked", ASKED)
    monkeypatch.setattr(fallback, "made", MADE)


@pytest.fixture
def api() -> Iterator[ApiInMemory]:
    with installed() as started:
        yield started


def install_fallback(api: ApiInMemory) -> None:
    made = fallbacks.fallback(read(policy()), rules.walk())
    constraints = {
        each["metadata"]["name"]: each["spec"]["matchConstraints"] for each in made if each["kind"] == fallback.KIND
    }
    for name in fallback.NAMES:
        spec = {"matchConstraints": constraints.get(name) or constraints["slicewarden-pods"]}
        api.put(
            f"{ADMISSION}/{fallback.PLURAL}/{name}", {"kind": fallback.KIND, "metadata": {"name": name}, "spec": spec}
        )


def terms_of(api: ApiInMemory) -> Terms:
    address = api.url.removeprefix("http://")
    return Terms(servers=(api.url,), replicas=(f"{address}/replica0", f"{address}/replica1"))


def controller(api: ApiInMemory, step: float = 5.0, **more: Any) -> Controller:
    """A controller whose clock goes on by so many seconds whenever it is read: few looks only wait."""
    ticks = count()
    return Controller(api.api(), terms_of(api), lambda _: None, clock=lambda: next(ticks) * step, **more)


def settle(one: Controller, most: int = 200) -> list[str]:
    """Round until nothing is written and nothing is waited for. Return what was written."""
    wrote: list[str] = []
    for _ in range(most):
        look = one.look()
        if look == Round():
            return wrote
        wrote += [look.wrote] if look.wrote else []
    raise AssertionError(f"not settled; wrote {wrote}; last {look}")


def put(api: ApiInMemory, value: Object) -> str:
    api.put(f"{POLICIES}/{value['metadata']['name']}", value)
    return digest(value)


def conditions(api: ApiInMemory, name: str = "sample") -> dict[str, Object]:
    found = api.objects[f"{POLICIES}/{name}"]["status"]["conditions"]
    return {each["type"]: each for each in found}


def halves(api: ApiInMemory) -> list[str]:
    """What was written to the two configurations, but for bundles."""
    named = {path: half for half, path in HALVES.items()}
    found: list[str] = []
    for write in api.writes:
        _, path, *names = write.split(" ")
        if path in named and (not found or found[-1] != f"{named[path]} {names[0]}"):
            found.append(f"{named[path]} {names[0]}")
    return found


def test_without_a_policy_only_certificates_are_issued_and_the_release_is_admitted(api: ApiInMemory) -> None:
    wrote = settle(controller(api))
    assert api.named(VALIDATE) == api.named(MUTATE) == ""
    assert api.objects[f"{MAPS}/slicewarden-releases"]["data"] == {"releases": "1"}
    (hook,) = api.objects[CHECK]["webhooks"]
    assert hook["failurePolicy"] == "Ignore"
    assert any("is issued" in each for each in wrote)


def test_a_policy_comes_into_force_step_by_step(api: ApiInMemory) -> None:
    p = put(api, policy())
    settle(controller(api))
    assert halves(api) == [
        f"validate {p}-audit",
        f"mutate {p}-audit",
        f"validate {p}-audit.{p}",
        f"mutate {p}",
        f"validate {p}",
    ]
    status = api.objects[f"{POLICIES}/sample"]["status"]
    assert {each: one["status"] for each, one in conditions(api).items()} == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
    }
    assert (status["digest"], status["mode"], status["replicas"]) == (p, "Enforce", "2/2")


def test_every_webhook_has_the_bundle_in_the_write_that_adds_it(api: ApiInMemory) -> None:
    put(api, policy())
    settle(controller(api))
    stored = api.objects[f"{SECRETS}/slicewarden-ca"]["data"]["ca.crt"]
    for path in HALVES.values():
        bundles = {hook["clientConfig"]["caBundle"] for hook in api.objects[path]["webhooks"]}
        assert bundles == {stored}


def test_killed_after_each_write_another_controller_finishes(api: ApiInMemory) -> None:
    install_fallback(api)
    api.put(AGENTS, {"kind": "ConfigMap", "metadata": {"name": "slicewarden-node-policy"}, "data": {"policy.yaml": ""}})
    api.lost = True
    p = put(api, policy())
    _die_and_go_on(api, f"validate {p}")
    q = put(api, policy(leaveAlone=["elsewhere"]))
    assert p != q
    _die_and_go_on(api, f"validate {q}")
    assert halves(api)[-3:] == [f"validate {p}.{q}", f"mutate {q}", f"validate {q}"]
    assert api.held() == {q}
    assert f'"{q}"' not in api.objects[AGENTS]["data"]["policy.yaml"]
    assert "elsewhere" in api.objects[AGENTS]["data"]["policy.yaml"]


def _die_and_go_on(api: ApiInMemory, last: str) -> None:
    """Let each controller live for one write."""
    deaths = 0
    for _ in range(400):
        one = controller(api, step=20.0)
        try:
            while one.look() != Round():
                pass
        except (client.Unreachable, certs.Unsettled):
            deaths += 1
            continue
        break
    assert deaths > 8
    assert halves(api)[-1] == last
    assert conditions(api)["Ready"]["status"] == "True"


def test_a_policy_whose_status_cannot_be_written_stops_nothing(api: ApiInMemory) -> None:
    put(api, policy())
    one = controller(api)
    settle(one)
    put(api, policy("too-large", created=2))
    api.unwritable = {f"{POLICIES}/too-large"}
    q = put(api, policy(leaveAlone=["elsewhere"]))
    settle(one)
    assert halves(api)[-1] == f"validate {q}"
    put(api, policy(mode="Off"))
    settle(one)
    assert api.named(VALIDATE) == api.named(MUTATE) == ""
    api.unwritable.clear()
    settle(one)
    assert conditions(api, "too-large")["Ready"]["reason"] == "NotInForce"


def test_a_late_write_of_another_controller_is_refused(api: ApiInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, policy())
    late, other = controller(api), controller(api)
    settle(other)
    q = put(api, policy(leaveAlone=["elsewhere"]))
    fill = late._fill
    written: list[list[str]] = []

    def fill_late(*given: Any) -> None:
        if not written:
            written.append(settle(other))
        fill(*given)

    monkeypatch.setattr(late, "_fill", fill_late)
    with pytest.raises(client.StatusError) as refused:
        settle(late)
    assert refused.value.status == client.CONFLICT
    assert api.named(VALIDATE) == api.named(MUTATE) == q


def test_the_fallback_is_empty_during_a_change_and_that_of_the_new_policy_afterwards(api: ApiInMemory) -> None:
    install_fallback(api)
    pods = f"{ADMISSION}/{fallback.PLURAL}/slicewarden-pods"
    put(api, policy())
    one = controller(api)
    settle(one)
    assert "elsewhere" not in str(api.objects[pods]["spec"]["matchConditions"])
    put(api, policy(leaveAlone=["elsewhere"]))
    while (look := one.look()) != Round():
        names = api.named(VALIDATE)
        if "." in names or "." in look.wrote:
            assert not any(
                each["spec"].get("validations") for path, each in api.objects.items() if f"/{fallback.PLURAL}/" in path
            )
    assert "elsewhere" in str(api.objects[pods]["spec"]["matchConditions"])


def test_a_server_that_was_frozen_has_a_second_to_forget_the_fallback_before_patches_change(
    api: ApiInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fallback(api)
    put(api, policy())
    settle(controller(api))
    put(api, policy(leaveAlone=["elsewhere"]))
    now, frozen, called = [100.0], [0.0], reach.called

    def late(*given: Any) -> Iterator[str]:
        now[0] += frozen.pop() if frozen else 0.0
        return called(*given)

    monkeypatch.setattr(reach, "called", late)
    one = Controller(api.api(), terms_of(api), lambda _: None, clock=lambda: now[0])
    while "just now" not in (look := one.look()).waits:
        assert look.wrote
    frozen.append(4.0)
    assert "just now" in one.look().waits
    assert (now, frozen) == ([104.0], [])
    while not (look := one.look()).wrote:
        now[0] += WAITING
    assert look.wrote.startswith(MUTATE)
    assert now[0] - 104.0 > 1  # API servers compile these policies once a second


def test_a_replica_that_lacks_a_policy_stops_a_change_and_is_named(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    q = policy(leaveAlone=["elsewhere"])
    api.lacking.add(digest(q))
    put(api, q)
    for _ in range(10):
        look = one.look()
    assert "lacks" in look.waits
    assert digest(q) in conditions(api)["Ready"]["message"]
    assert conditions(api)["Reconciling"]["status"] == "True"
    assert api.named(VALIDATE) == p


@pytest.mark.parametrize("begun", [False, True], ids=["before the change", "in the middle"])
def test_a_frozen_replica_stops_a_change_and_is_named_until_it_answers_again(api: ApiInMemory, *, begun: bool) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    q = put(api, policy(leaveAlone=["elsewhere"]))
    while begun and api.named(MUTATE) == p:
        one.look()
    place = api.named(VALIDATE), api.named(MUTATE)
    api.frozen.add(1)
    for _ in range(40):  # the clock of this controller goes on by more than the drain
        look = one.look()
    frozen = terms_of(api).replicas[1]
    assert look.waits.startswith(f"{frozen} does not answer")
    assert (api.named(VALIDATE), api.named(MUTATE)) == place
    found = conditions(api)
    assert (found["Ready"]["status"], found["Reconciling"]["status"]) == ("False", "True")
    assert frozen in found["Ready"]["message"]
    api.frozen.clear()
    settle(one)
    assert api.named(VALIDATE) == api.named(MUTATE) == q
    assert conditions(api)["Ready"]["status"] == "True"


def test_a_policy_whose_facts_may_not_be_read_is_not_ready_and_names_the_namespace(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    q = policy(leaveAlone=["elsewhere"])
    api.unread[digest(q)] = api.forbidden[digest(q)] = "configmaps of team-x"
    put(api, q)
    for _ in range(10):
        look = one.look()
    assert "may not read configmaps of team-x" in look.waits
    found = conditions(api)
    assert (found["Ready"]["status"], found["Stalled"]["status"]) == ("False", "True")
    assert found["Ready"]["reason"] == "FactsUnreadable"
    assert "configmaps of team-x: bind its right" in found["Ready"]["message"]
    assert api.named(VALIDATE) == p
    api.forbidden[digest(q)] = "nodes"
    one.look()
    assert "may not read nodes: apply the installation again" in conditions(api)["Ready"]["message"]
    api.unread.clear()
    api.forbidden.clear()
    settle(one)
    assert api.named(VALIDATE) == digest(q)
    assert conditions(api)["Ready"]["reason"] == "InForce"


def test_a_policy_whose_facts_are_still_being_read_is_reconciling_and_names_them(api: ApiInMemory) -> None:
    """So it is on a fresh installation while its replicas start, and while they do not reach an API server."""
    q = policy()
    api.unread[digest(q)] = "nodes, configmaps of team-x"
    put(api, q)
    one = controller(api)
    seen = set[tuple[str, str, str]]()
    while one.look().wrote:  # certificates come first
        pass
    for _ in range(60):
        look = one.look()
        found = conditions(api)
        seen.add((found["Reconciling"]["status"], found["Stalled"]["status"], found["Ready"]["reason"]))
    assert seen == {("True", "False", "Changing")}
    assert "has not read nodes, configmaps of team-x yet" in look.waits
    assert look.waits in found["Reconciling"]["message"]
    api.unread.clear()
    settle(one)
    assert api.named(VALIDATE) == digest(q)
    assert conditions(api)["Ready"]["status"] == "True"


def test_the_status_has_the_lints_of_the_policy(api: ApiInMemory) -> None:
    put(api, policy(exemptions=[{"name": "old", "namespaces": ["a"], "until": "2026-01-01", "reason": "old"}]))
    settle(controller(api))
    status = api.objects[f"{POLICIES}/sample"]["status"]
    assert status["lints"] == len(status["lintMessages"]) > 0
    assert any(each.startswith("ended-exemption: spec.exemptions[0]") for each in status["lintMessages"])


def test_a_policy_that_waits_says_what_it_would_deny_until_it_comes_into_force(api: ApiInMemory) -> None:
    asked: list[tuple[str, str]] = []
    said = {"wouldDeny": 2, "wouldDenySample": ["Pod team/one: multiple-slices"]}

    def preview(old: Policy, new: Policy) -> Object:
        asked.append((old.digest, new.digest))
        return said

    p, q = put(api, policy()), put(api, policy("another", created=2, leaveAlone=["elsewhere"]))
    one = controller(api, preview=preview)
    settle(one)
    status = api.objects[f"{POLICIES}/another"]["status"]
    assert {key: status[key] for key in said} == said
    assert (status["digest"], status["mode"]) == (q, "Enforce")
    assert {*asked} == {(p, q)}
    del api.objects[f"{POLICIES}/sample"]
    settle(one)
    assert "wouldDeny" not in api.objects[f"{POLICIES}/another"]["status"]


def test_a_policy_that_waits_and_cannot_be_used_says_why(api: ApiInMemory) -> None:
    put(api, policy())
    api.put(f"{POLICIES}/another", policy("another", created=2, guard="nonsense"))
    settle(controller(api))
    assert conditions(api, "another")["Ready"]["reason"] == "Invalid"
    assert api.objects[f"{POLICIES}/another"]["status"]["problems"]


def test_any_number_of_quick_changes_ends_in_the_newest_and_forgets_the_others(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    for number in range(3 * replica_state.MOST):  # each comes before the one before it is anywhere
        q = put(api, policy(leaveAlone=[f"elsewhere-{number}"]))
        one.look()
    assert api.named(VALIDATE) == p
    settle(one)
    assert api.named(VALIDATE) == api.named(MUTATE) == q
    assert api.held() == {q}


def test_revisions_stay_few_while_a_change_waits(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    for number in range(3 * replica_state.MOST):
        q = put(api, policy(leaveAlone=[f"elsewhere-{number}"]))
        api.lacking.add(q)
        for _ in range(6):
            one.look()
        assert len(api.held() | api.lacking & {revisions.label_of(each) for each in api.objects.values()}) <= 3
    api.lacking.clear()
    settle(one)
    assert api.named(VALIDATE) == q != p


def test_no_revision_is_forgotten_while_requests_may_name_it(api: ApiInMemory) -> None:
    put(api, policy())
    settle(controller(api))
    before = read(policy(leaveAlone=["elsewhere"]))
    path = f"{MAPS}/{revisions.name_of(before.digest)}"
    api.put(path, dict(revisions.revision(before, "slicewarden-system")))
    slow = controller(api, step=0.01)
    waits = [slow.look().waits for _ in range(20)]
    assert waits[-1] == f"requests on their way, before revision {before.digest} is forgotten"
    api.stale = True
    api.called = dict.fromkeys(HALVES)
    late = controller(api)
    for _ in range(20):
        late.look()
    assert path in api.objects
    api.stale = False
    assert settle(late) == [f"forgot revision {before.digest}"]
    assert path not in api.objects


def test_a_late_deletion_of_another_controller_is_refused(api: ApiInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    put(api, policy())
    late, other = controller(api), controller(api)
    settle(other)
    gone = read(policy(leaveAlone=["elsewhere"]))
    path = f"{MAPS}/{revisions.name_of(gone.digest)}"
    api.put(path, dict(revisions.revision(gone, "slicewarden-system")))
    delete = late._delete

    def delete_late(config_map: Object) -> None:
        settle(other)  # it forgets the revision, and then somebody wants it again
        put(api, policy(leaveAlone=["elsewhere"]))
        settle(other)
        delete(config_map)

    monkeypatch.setattr(late, "_delete", delete_late)
    with pytest.raises(client.StatusError) as refused:
        settle(late)
    assert refused.value.status == client.CONFLICT
    assert path in api.objects
    assert api.named(VALIDATE) == gone.digest


def test_a_controller_remembers_only_policies_that_are_there(api: ApiInMemory) -> None:
    one = controller(api)
    for number in range(4):
        p = put(api, policy(leaveAlone=[f"elsewhere-{number}"]))
        settle(one)
    one.look()
    assert one._policies.keys() == {p}


def test_a_second_config_map_of_one_label_is_neither_read_nor_deleted(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    twin = api.objects[f"{MAPS}/{revisions.name_of(p)}"]
    for name in ("a-twin", "slicewarden-policy-z-twin"):
        api.put(f"{MAPS}/{name}", {**twin, "metadata": {**twin["metadata"], "name": name}, "data": {}})
    assert settle(controller(api)) == []
    assert {f"{MAPS}/a-twin", f"{MAPS}/slicewarden-policy-z-twin"} < api.objects.keys()
    assert conditions(api)["Ready"]["reason"] == "InForce"


FALLBACK_OF_PODS = f"{ADMISSION}/{fallback.PLURAL}/slicewarden-pods"


@pytest.mark.parametrize("refused", [*HALVES.values(), FALLBACK_OF_PODS], ids=[*HALVES, "fallback"])
def test_a_write_that_would_be_refused_changes_nothing_and_is_the_status(api: ApiInMemory, refused: str) -> None:
    install_fallback(api)
    p = put(api, policy())
    one = controller(api)
    settle(one)
    q = put(api, policy(leaveAlone=["elsewhere"]))
    api.refuses = lambda path, body, _: "no such field" if path == refused and q in str(body) else ""
    before = len(api.writes)
    for _ in range(10):
        one.look()
    assert {each for each in api.writes[before:] if "gpusharingpolicies" not in each} == set()
    found = conditions(api)
    assert (found["Stalled"]["status"], found["Ready"]["status"], found["Ready"]["reason"]) == (
        "True",
        "False",
        "Refused",
    )
    assert found["Ready"]["message"] == "no such field (the policy before stays in force)"
    assert api.objects[f"{POLICIES}/sample"]["status"]["digest"] == q
    put(api, policy())
    settle(one)
    assert (api.named(VALIDATE), conditions(api)["Ready"]["reason"]) == (p, "InForce")
    tried = len(api.tried)
    put(api, policy(leaveAlone=["elsewhere"]))
    one.look()
    assert conditions(api)["Ready"]["reason"] == "Refused"
    one.look()
    assert len(api.tried) - tried <= 3  # what was refused is not asked at each look
    api.refuses = lambda *_: ""
    for _ in range(40):  # it is tried again after a while
        one.look()
    settle(one)
    assert api.named(VALIDATE) == api.named(MUTATE) == q


def test_every_write_of_a_change_is_tried_before_the_first_one(api: ApiInMemory) -> None:
    install_fallback(api)
    put(api, policy())
    one = controller(api)
    settle(one)

    def specs() -> dict[str, str]:
        return {path: str(each["spec"]) for path, each in api.objects.items() if f"/{fallback.PLURAL}/" in path}

    before = specs()
    api.tried.clear()
    q = put(api, policy(leaveAlone=["elsewhere"]))
    one.look()
    tried = sorted(api.tried)
    settle(one)
    differ = [path for path, spec in specs().items() if spec != before[path]]
    assert FALLBACK_OF_PODS in differ
    registration = [HALVES[VALIDATE], HALVES[MUTATE], HALVES[VALIDATE]]
    assert tried == sorted(f"{path} {q}" for path in (*registration, *differ))
    assert sorted(api.tried) == tried


def validations(api: ApiInMemory) -> list[int]:
    """How many validations each policy of the fallback has."""
    found = (each["spec"] for path, each in api.objects.items() if f"/{fallback.PLURAL}/" in path)
    return [len(spec.get("validations") or ()) for spec in found]


def test_a_server_that_would_accept_part_of_the_fallback_gets_none_until_it_is_a_newer_one(api: ApiInMemory) -> None:
    install_fallback(api)
    older = "undeclared reference to 'flatten'"
    api.refuses = lambda path, body, _: older if fallback.PLURAL in path and ".flatten()" in str(body) else ""
    p = put(api, policy())
    one = controller(api)
    settle(one)
    assert (api.named(VALIDATE), api.named(MUTATE), set(validations(api))) == (p, p, {0})
    ready = conditions(api)["Ready"]
    assert (ready["status"], ready["message"].endswith(f"; {LACKING}")) == ("True", True)
    put(api, policy(mode="Audit"))
    settle(one)
    assert LACKING not in conditions(api)["Ready"]["message"]
    put(api, policy())
    settle(one)
    api.refuses = lambda *_: ""
    while not any(validations(api)):
        one.look()
    settle(one)
    assert LACKING not in conditions(api)["Ready"]["message"]
    api.tried.clear()
    for _ in range(20):
        assert one.look() == Round()
    assert not [each for each in api.tried if fallback.PLURAL in each]  # a server that has them is not asked again


def test_a_refusal_of_another_kind_says_nothing_about_functions(api: ApiInMemory) -> None:
    install_fallback(api)
    api.refuses = lambda path, _, __: "no right" if fallback.PLURAL in path else ""
    api.refused = 403
    put(api, policy())
    one = controller(api)
    for _ in range(10):
        one.look()
    assert conditions(api)["Ready"]["reason"] == "Refused"
    assert conditions(api)["Ready"]["message"] == "no right (nothing is judged)"


@pytest.mark.parametrize("step", ["validate P.Q", "mutate Q", "validate Q"])
def test_a_write_that_is_refused_half_way_leads_back(api: ApiInMemory, step: str) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    q = put(api, policy(leaveAlone=["elsewhere"]))
    half, _, names = step.replace("P", p).replace("Q", q).partition(" ")

    def refuses(path: str, body: Object, dry: bool) -> str:
        return "" if dry or path != HALVES[half] or f"/{half}/{names}'" not in str(body) else "the disk is full"

    api.refuses = refuses
    for _ in range(60):
        one.look()
    assert api.named(VALIDATE) == api.named(MUTATE) == p
    found = conditions(api)["Stalled"]
    assert (found["status"], found["reason"]) == ("True", "Refused")
    assert "the disk is full" in found["message"]
    wrote = len(halves(api))
    for _ in range(20):
        one.look()
    assert len(halves(api)) == wrote
    r = put(api, policy(leaveAlone=["another"]))
    settle(one)
    assert api.named(VALIDATE) == api.named(MUTATE) == r


@pytest.mark.parametrize("way", ["reverted", "replaced", "deleted"])
@pytest.mark.parametrize("half", [VALIDATE, MUTATE])
def test_from_two_policies_it_goes_back_though_nobody_holds_the_new_one(api: ApiInMemory, half: str, way: str) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    q = put(api, policy(leaveAlone=["elsewhere"]))
    while q not in api.named(half):
        one.look()
    assert api.named(VALIDATE) == f"{p}.{q}"
    api.lacking.add(q)
    del api.objects[f"{MAPS}/{revisions.name_of(q)}"]
    wanted = p
    if way == "deleted":
        del api.objects[f"{POLICIES}/sample"]
        wanted = ""
    else:
        wanted = put(api, policy() if way == "reverted" else policy(leaveAlone=["another"]))
    settle(controller(api))
    assert api.named(VALIDATE) == api.named(MUTATE) == wanted
    assert api.held() == ({wanted} - {""})


def test_a_policy_that_no_api_server_could_store_is_refused(api: ApiInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    monkeypatch.setattr(trial, "MOST_BYTES", 1000)
    put(api, policy(leaveAlone=["elsewhere"]))
    for _ in range(10):
        one.look()
    assert api.named(VALIDATE) == p
    assert "and may have 1000: make the policy smaller" in conditions(api)["Stalled"]["message"]


def test_a_config_map_that_is_not_the_policy_of_its_name_is_made_again(api: ApiInMemory) -> None:
    p = put(api, policy())
    api.put(f"{MAPS}/{revisions.name_of(p)}", dict(revisions.revision(read(policy(leaveAlone=["x"])), "x")))
    item = api.objects[f"{MAPS}/{revisions.name_of(p)}"]
    item["metadata"]["labels"][revisions.LABEL] = p
    item["metadata"]["name"] = revisions.name_of(p)
    settle(controller(api))
    assert api.named(VALIDATE) == p


def test_an_event_is_written_when_the_reason_changes(api: ApiInMemory) -> None:
    said: list[str] = []
    put(api, policy())
    one = controller(api, event=lambda _, standing: said.append(standing.reason.value))
    settle(one)
    assert said == ["Changing", "InForce"]
    settle(one)
    assert said == ["Changing", "InForce"]


def test_an_api_server_that_is_late_stops_a_change_and_is_named(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    api.stale = True
    q = put(api, policy(leaveAlone=["elsewhere"]))
    for _ in range(40):
        look = one.look()
    assert api.named(VALIDATE) == f"{p}.{q}"
    assert api.named(MUTATE) == p
    assert api.url in look.waits
    assert "does not call" in look.waits
    api.stale = False
    settle(one)
    assert api.named(VALIDATE) == q


def test_nothing_fails_closed_before_a_probe_came_through(api: ApiInMemory) -> None:
    api.stale = True
    p = put(api, policy())
    one = controller(api)
    for _ in range(40):
        look = one.look()
    assert (api.named(VALIDATE), api.named(MUTATE)) == (f"{p}-audit", "")
    assert {hook["failurePolicy"] for hook in api.objects[HALVES[VALIDATE]]["webhooks"]} == {"Ignore"}
    assert f"{api.url} does not call" in look.waits
    api.stale = False
    settle(one)
    assert api.named(VALIDATE) == p
    assert "Fail" in {hook["failurePolicy"] for hook in api.objects[HALVES[VALIDATE]]["webhooks"]}


def test_the_last_step_waits_for_requests(api: ApiInMemory) -> None:
    put(api, policy())
    one = controller(api, step=0.02)
    assert any("requests in flight" in one.look().waits for _ in range(400))
    assert "." in api.named(VALIDATE)


@pytest.mark.parametrize("way", ["Off", "deleted"])
def test_off_empties_both_and_leaves_the_check_of_policies(api: ApiInMemory, way: str) -> None:
    put(api, policy())
    one = controller(api)
    settle(one)
    if way == "Off":
        put(api, policy(mode="Off"))
    else:
        del api.objects[f"{POLICIES}/sample"]
    settle(one)
    assert api.named(VALIDATE) == api.named(MUTATE) == ""
    assert halves(api)[-2:] == ["validate ", "mutate "]
    assert api.objects[CHECK]["webhooks"]
    if way == "Off":
        assert conditions(api)["Ready"]["reason"] == "Off"


def test_a_policy_that_cannot_be_used_leaves_the_one_before_in_force(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    api.put(f"{POLICIES}/sample", policy(guard="nonsense"))
    settle(one)
    assert api.named(VALIDATE) == p
    found = conditions(api)
    assert (found["Stalled"]["status"], found["Ready"]["status"], found["Ready"]["reason"]) == (
        "True",
        "False",
        "Invalid",
    )
    assert any("guard" in each for each in api.objects[f"{POLICIES}/sample"]["status"]["problems"])


def test_the_oldest_policy_is_in_force_and_another_takes_over_without_a_gap(api: ApiInMemory) -> None:
    p = put(api, policy())
    q = put(api, policy("another", created=2, leaveAlone=["elsewhere"]))
    one = controller(api)
    settle(one)
    assert api.named(VALIDATE) == p
    assert conditions(api, "another")["Stalled"]["reason"] == "NotInForce"
    del api.objects[f"{POLICIES}/sample"]
    settle(one)
    assert halves(api)[-3:] == [f"validate {p}.{q}", f"mutate {q}", f"validate {q}"]
    assert conditions(api, "another")["Ready"]["status"] == "True"


def test_a_registration_that_was_deleted_stays_away_until_an_install_and_comes_back_through_audit(
    api: ApiInMemory,
) -> None:
    """For as many looks as ten minutes have, half of them by another controller that was started meanwhile."""
    p, now = put(api, policy()), [0.0]
    settle(controller(api))
    removed = {path: api.objects.pop(path) for path in HALVES.values()}
    looks = int(600 / lease.RENEW)
    for number in range(looks):
        if number % (looks // 2) == 0:
            one = Controller(api.api(), terms_of(api), lambda _: None, clock=lambda: now[0])
        now[0] += lease.RENEW
        with pytest.raises(client.StatusError):
            one.look()
        assert not {*HALVES.values()} & api.objects.keys()
    assert conditions(api)["Ready"]["reason"] == "RegistrationGone"
    assert [conditions(api)[kind]["status"] for kind in ("Ready", "Stalled", "Reconciling")] == [
        "False",
        "True",
        "False",
    ]
    api.writes.clear()
    for path, item in removed.items():
        api.put(path, {"kind": item["kind"], "metadata": {"name": item["metadata"]["name"]}})
    settle(controller(api))
    steps = [f"validate {p}-audit", f"mutate {p}-audit", f"validate {p}-audit.{p}", f"mutate {p}", f"validate {p}"]
    assert halves(api) == steps
    assert conditions(api)["Ready"]["status"] == "True"


def test_a_change_by_hand_is_undone(api: ApiInMemory) -> None:
    put(api, policy())
    one = controller(api)
    settle(one)
    hooks = api.objects[HALVES[VALIDATE]]["webhooks"]
    hooks[0]["failurePolicy"] = "Ignore"
    assert settle(one) == ["validate again"]
    assert api.objects[HALVES[VALIDATE]]["webhooks"][0]["failurePolicy"] == "Fail"


def test_another_release_is_admitted_after_validate_forgives(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    api.releases = ["1", "2"]
    for _ in range(20):
        look = one.look()
    assert api.named(VALIDATE) == f"{p}-lenient"
    assert api.objects[f"{MAPS}/slicewarden-releases"]["data"]["releases"] == "1 2"
    assert look.wrote == ""
    api.releases = ["2"]
    settle(one)
    assert api.objects[f"{MAPS}/slicewarden-releases"]["data"]["releases"] == "2"
    assert halves(api)[-2:] == [f"validate {p}-lenient", f"validate {p}"]


def test_nothing_is_written_while_nothing_changes(api: ApiInMemory) -> None:
    put(api, policy())
    one = controller(api)
    settle(one)
    before = len(api.writes)
    api.objects[f"{POLICIES}/sample"]["metadata"]["labels"] = {"team": "vision"}
    for _ in range(5):
        assert one.look() == Round()
    assert len(api.writes) == before


def test_a_lease_is_taken_by_one_and_by_another_when_it_ends(api: ApiInMemory) -> None:
    """The clocks of the two differ by an hour, and only the time in which no renewal is seen counts."""
    path, now = f"{LEASE}/slicewarden-controller", [0.0]
    ours, later = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 1, tzinfo=UTC)
    one, other = (lease.Lease(api.api(), path, identity, lambda: now[0]) for identity in "ab")
    assert one.leads(later)
    assert not other.leads(ours)
    now[0] = 10
    assert one.leads(later)
    for now[0] in (14, 16, 28):
        assert not other.leads(ours)
    now[0] = 29
    assert other.leads(ours)
    assert not one.leads(later)


def test_a_renewal_is_one_request_and_a_lease_that_another_took_is_read(
    api: ApiInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = f"{LEASE}/slicewarden-controller", list[str]()
    ask = client.ask

    def counted(api: client.Api, path: str, *given: Any, method: str = "GET", **more: Any) -> Any:
        asked.append(method)
        return ask(api, path, *given, method=method, **more)

    monkeypatch.setattr(client, "ask", counted)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    one = lease.Lease(api.api(), path, "a", lambda: 0.0)
    assert [one.leads(now) for _ in range(3)] == [True] * 3
    assert asked == ["GET", "PATCH", "PATCH", "PATCH"]
    spec = api.objects[path]["spec"]
    api.put(path, {**api.objects[path], "spec": {**spec, "holderIdentity": "b"}})
    asked.clear()
    assert not one.leads(now)
    assert not one.leads(now)
    assert asked == ["PATCH", "GET", "GET"]
    assert api.objects[path]["spec"]["holderIdentity"] == "b"


def test_a_policy_is_read_again_only_when_it_changes_or_a_day_passes(
    api: ApiInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, read, today = list[str](), reading.read_policy, [datetime(2026, 1, 1, tzinfo=UTC)]

    def counted(item: Object) -> PolicyRead:
        times.append(item["metadata"]["name"])
        return read(item)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return today[0].astimezone(tz)

    monkeypatch.setattr(reading, "read_policy", counted)
    monkeypatch.setattr(reading, "datetime", Clock)
    put(api, policy())
    one = controller(api)
    settle(one)
    one.look()
    assert times == ["sample"]  # the status was written meanwhile
    put(api, policy(leaveAlone=["elsewhere"]))
    settle(one)
    assert times == ["sample"] * 2
    today[0] = datetime(2026, 1, 2, tzinfo=UTC)
    one.look()
    assert times == ["sample"] * 3
    api.objects[f"{POLICIES}/sample"]["metadata"]["labels"] = {"team": "vision"}
    one.look()
    assert times == ["sample"] * 4
    del api.objects[f"{POLICIES}/sample"]
    settle(one)
    assert not one._reader._known


def test_a_controller_that_leads_again_waits_as_if_another_had_changed_anything_just_before(api: ApiInMemory) -> None:
    install_fallback(api)
    put(api, policy())
    settle(controller(api))
    now = [100.0]
    one, other = (Controller(api.api(), terms_of(api), lambda _: None, clock=lambda: now[0]) for _ in range(2))
    for now[0] in range(100, 120):
        assert not one.look().wrote
    put(api, policy(leaveAlone=["elsewhere"]))
    while "just now" not in (look := other.look()).waits:
        assert look.wrote
    one.begin()
    assert "just now" in one.look().waits


LIAR, HONEST = 0, 1
"""A replica of somebody else's, which reports what it likes, and another one."""


def releases(api: ApiInMemory) -> list[str]:
    return str(api.objects[f"{MAPS}/{revisions.RELEASES_NAME}"]["data"]["releases"]).split()


def test_a_policy_that_only_a_liar_holds_is_not_registered(api: ApiInMemory) -> None:
    p, q = put(api, policy()), policy(leaveAlone=["elsewhere"])
    one = controller(api)
    settle(one)
    api.lacking.add(digest(q))
    api.lies[LIAR] = lambda: {"held": [p, digest(q), "f" * 16]}
    put(api, q)
    for _ in range(20):
        look = one.look()
    assert look.waits == f"{terms_of(api).replicas[HONEST]} lacks {digest(q)}"
    assert api.named(VALIDATE) == api.named(MUTATE) == p


def test_a_liar_that_lacks_what_is_in_force_takes_nothing_away(api: ApiInMemory) -> None:
    p = put(api, policy())
    one = controller(api)
    settle(one)
    api.writes.clear()
    api.lies[LIAR] = lambda: {"held": [], "refused": {p: "x"}, "waiting": {}}
    for _ in range(20):
        look = one.look()
    assert look.waits.startswith(f"{terms_of(api).replicas[LIAR]} cannot use {p}")
    assert api.named(VALIDATE) == api.named(MUTATE) == p
    assert {*api.writes} == {f"PATCH {POLICIES}/sample"}  # its status


def test_made_up_releases_stay_few_and_are_withdrawn_with_the_liar(api: ApiInMemory) -> None:
    """Meanwhile `/validate` tolerates unpatched pods, as during every upgrade, and denies everything else."""
    p, numbers = put(api, policy()), count()
    one = controller(api)
    settle(one)
    api.lies[LIAR] = lambda: {"release": f"made-up-{next(numbers)}"}
    maps = {path for path in api.objects if path.startswith(MAPS)}
    for _ in range(60):
        one.look()
        assert len(releases(api)) <= len(terms_of(api).replicas)
        assert api.named(VALIDATE) in (p, f"{p}-lenient")
        assert api.named(MUTATE) == p
    assert {path for path in api.objects if path.startswith(MAPS)} == maps
    api.lies.clear()
    settle(one)
    assert releases(api) == ["1"]
    assert (api.named(VALIDATE), conditions(api)["Ready"]["status"]) == (p, "True")
