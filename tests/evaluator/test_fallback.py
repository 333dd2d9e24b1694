"""The fallback never denies what the engine allows, and what it lets pass does not grow."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.evaluator import generated
from tests.evaluator.evaluator import Compared, Comparison, Evaluator, request_for
from tests.evaluator.generated import DRIVEN, POLICIES
from tests.support import shared_memory
from tests.support.fixtures import FILES, FOLDERS, REFUSED, files_of, fixture
from tests.support.fixtures import settings as of_folder
from tests.support.policies import FACTS, facts_of, policy_of
from tests.support.records import trying
from webhook.api import admission
from webhook.catalog import host_paths
from webhook.catalog.names import Names
from webhook.catalog.white_space import WHITE_SPACE
from webhook.cel.clauses import Clause
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.fallback.answers import ValidationActions
from webhook.fallback.params import Params
from webhook.fallback.policies import AUDITED, fallback
from webhook.model import Action
from webhook.policy.actions import Exemption, Override
from webhook.policy.model import KUEUE_LABEL, AllowedPath, Policy, PriorityScope, Queue
from webhook.policy.scopes import Grant, Requesters, Scope
from webhook.rules import walk

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "missed.json"
PODS, UPDATES = 1_200, 400
"""Of each policy."""


def said(into: Compared) -> None:
    costs = sorted(into.costs)
    counted = {rule: f"{len(into.missed.get(rule, ()))} of {number}" for rule, number in sorted(into.denied.items())}
    print(f"\n{into.judged} judged, {into.allowed} allowed, {len(into.refused)} refused by the API server itself")
    print(f"units: median {costs[len(costs) // 2][0]}, most {costs[-1]}; let pass, by rule: {counted}")


def test_no_fixture_is_denied_that_the_engine_allows(evaluator: Evaluator) -> None:
    into = Compared()
    for rule in FOLDERS:
        comparison = Comparison(evaluator, *of_folder(rule))
        for file in files_of(rule):
            comparison.add(f"{rule}/{file.stem}", request_for(fixture(file)[0].value), into)
    said(into)
    assert (into.wrong, into.differing) == ([], [])
    assert set(into.refused) == {
        f"{file.parent.name}/{file.stem}" for file in FILES if REFUSED.search(file.read_text())
    }
    assert into.judged + len(into.refused) == len(FILES)
    missed: dict[str, Any] = {rule: sorted(names) for rule, names in sorted(into.missed.items())}
    written = json.dumps({"let pass": sorted(into.through), "by rule": missed}, indent=1) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(written, "utf-8")
    assert written == GOLDEN.read_text("utf-8")


def test_no_recorded_request_is_denied_that_the_engine_allows(evaluator: Evaluator) -> None:
    into, comparison = Compared(), Comparison(evaluator, *of_folder("multiple-slices"))
    for file in sorted((ROOT / "tests" / "recorded").glob("*.json")):
        document = json.loads(file.read_text("utf-8"))
        if document["request"].get("object") is not None:
            comparison.add(file.stem, request_for(document), into)
    said(into)
    assert (into.wrong, into.differing) == ([], [])
    assert into.judged > 30


@pytest.mark.parametrize("name", POLICIES)
def test_no_generated_pod_is_denied_that_the_engine_allows(evaluator: Evaluator, name: str) -> None:
    file = ROOT / "policies" / name
    policy, facts = policy_of(file), facts_of(file.parent / "facts.yaml" if "/" in name else FACTS)
    into, comparison = Compared(), Comparison(evaluator, policy, facts)

    @trying(PODS)
    @given(generated.pods(policy, facts))
    def created(pod: Any) -> None:
        comparison.add("pod", request_for(pod), into)
        assert (into.wrong, into.differing) == ([], [])

    @trying(UPDATES)
    @given(generated.changes(policy, facts))
    def updated(change: Any) -> None:
        what, old, new = change
        more = {"operation": "UPDATE", "subResource": what, "oldObject": old}
        comparison.add(f"update {what}", request_for(new, **more), into)
        assert (into.wrong, into.differing) == ([], [])

    created()
    updated()
    said(into)
    assert into.judged >= 1_000
    assert into.allowed * 3 >= into.judged, "too few of them are allowed to prove anything"


def compared(evaluator: Evaluator, policy: Policy, facts: Facts, pods: st.SearchStrategy[Any]) -> Compared:
    """Judge pods by the fallback and by the engine, print the counts, and assert that the fallback is no stricter."""
    into, comparison = Compared(), Comparison(evaluator, policy, facts)

    @trying(PODS)
    @given(pods)
    def created(pod: Any) -> None:
        comparison.add("pod", request_for(pod), into)
        assert (into.wrong, into.differing) == ([], [])

    created()
    said(into)
    return into


def test_an_override_for_a_pool_eases_nothing_of_what_belongs_to_no_pool(evaluator: Evaluator) -> None:
    """With one line for one pool, no policy was made but for new pods, and new pods without a GPU passed."""
    policy, facts = policy_of(ROOT / "policies" / "sample.yaml"), facts_of(FACTS)
    override = Override(None, frozenset({"exclusive"}), {"*": Action.WARN})
    plain, eased = (Comparison(evaluator, each, facts) for each in (policy, replace(policy, overrides=(override,))))
    before, after = Compared(), Compared()
    guard = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}

    def pod(spec: dict[str, Any], container: dict[str, Any], **annotations: str) -> Any:
        metadata = {"name": "x", "namespace": "visitors", "annotations": annotations}
        spec = {"containers": [{"name": "c", "image": "x", **container}], **spec}
        return request_for({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    asked = {
        "privileged": pod(guard, {"securityContext": {"privileged": True}}),
        "the node": pod({**guard, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, {}),
        "a variable": pod({}, {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}),
        "a toleration": pod({"tolerations": [{"operator": "Exists"}]}, {}),
        "an annotation": pod({}, {}, **{"cdi.k8s.io/x": "nvidia.com/gpu=all"}),
        "trust": pod({}, {}, **{"slicewarden.dev/trust": "trusted"}),
    }
    for rule in ("relabelled-node", "self-granted-trust"):
        asked |= {f"{rule}/{file.stem}": request_for(fixture(file)[0].value) for file in files_of(rule)}
    for name, request in asked.items():
        plain.add(name, request, before)
        eased.add(name, request, after)
    assert sum(before.denied.values()) >= 12
    assert (after.denied, after.missed, after.wrong) == (before.denied, before.missed, [])


def test_a_pool_that_allows_host_ipc_allows_it_to_its_own_pods_only(evaluator: Evaluator) -> None:
    policy, facts = policy_of(ROOT / "policies" / "sample.yaml"), facts_of(FACTS)
    pools = tuple(replace(pool, host_ipc=pool.name == "shared") for pool in policy.pools)
    policy = replace(policy, pools=pools)
    warned = replace(policy, actions={**policy.actions, "unsteered-pod": Action.WARN})
    of_pool: dict[str, Any] = {"nodeSelector": dict(pools[0].nodes.labels)}
    tolerant = {"tolerations": [{"key": "slicewarden.dev/pool", "value": "shared", "effect": "NoSchedule"}]}
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}

    def pod(trust: str, container: dict[str, Any], **more: Any) -> dict[str, Any]:
        metadata = {"name": "x", "namespace": "vision", "annotations": {"slicewarden.dev/trust": trust}}
        spec = {"containers": [{"name": "c", "image": "x", **container}], "hostIPC": True, **more}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    waiting = {"operation": "UPDATE", "oldObject": pod("trusted", {}, **of_pool)}
    found = {}
    for name, some, made, how in (
        ("its own", policy, pod("trusted", gpu, **tolerant), {}),
        ("its own, not patched", warned, pod("trusted", gpu, **of_pool), {}),
        ("of another pool", policy, pod("untrusted", gpu, **tolerant), {}),
        ("with processes", policy, pod("trusted", gpu, hostPID=True, **tolerant), {}),
        ("without a GPU", policy, pod("trusted", {}, **of_pool, **tolerant), {}),
        ("without a GPU, later", policy, pod("trusted", {}, **of_pool, **tolerant), waiting),
    ):
        into = Compared()
        Comparison(evaluator, some, facts).add(name, request_for(made, **how), into)
        assert (into.judged, into.wrong, into.differing) == (1, [], [])
        assert into.missed.get("host-namespaces", []) == []
        found[name] = "host-namespaces" in into.denied
    assert [name for name, denied in found.items() if not denied] == ["its own", "its own, not patched"]


@pytest.mark.parametrize("trust", [["trusted"], ["trusted", "untrusted"]])
def test_a_pod_with_a_number_of_slices_that_is_only_recorded_keeps_to_the_other_rules(
    evaluator: Evaluator, trust: list[str]
) -> None:
    document = yaml.safe_load((ROOT / "policies" / "sample.yaml").read_text("utf-8"))
    shared = next(pool for pool in document["spec"]["pools"] if pool["name"] == "shared")
    shared |= {"trust": trust, "maxActiveDeadlineSeconds": 3600, "scheduler": "gangs"}
    policy, facts = policy_of(yaml.safe_dump(document)), facts_of(FACTS)
    made = fallback(policy, walk(), ValidationActions.BY_RULE)
    by = evaluator.compiled(each for each in made if not each["metadata"]["name"].endswith(AUDITED))
    lifts = {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/run/mine"}
    for level, number in (("trusted", 1), ("trusted", 2), *([("untrusted", 1)] if "untrusted" in trust else [])):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x", "namespace": "vision", "annotations": {"slicewarden.dev/trust": level}},
            "spec": {
                "nodeSelector": dict(shared["nodes"]["matchLabels"]),
                "tolerations": shared["tolerations"],
                "containers": [
                    {"name": "c", "env": [lifts], "resources": {"limits": {"nvidia.com/gpu": str(number)}}},
                ],
            },
        }
        found = evaluator.judge(by, request_for(pod), facts)
        assert {"lifted-limit", "long-stay", "other-scheduler", "uncapped-memory"} <= found.rules, (level, number)


PRELOAD = "/etc/ld.so.preload"


@pytest.mark.parametrize(
    ("change", "gpus", "path", "action"),
    [
        ({}, {}, PRELOAD, Action.WARN),
        ({"sharing": "mps"}, {}, PRELOAD, Action.DENY),
        ({"scheduler": "gangs"}, {}, PRELOAD, Action.DENY),
        ({"resources": ["nvidia.com/gpu", "volcano.sh/vgpu-number"]}, {}, PRELOAD, Action.DENY),
        ({"resources": ["nvidia.com/gpu", "nvidia.com/gpum*"]}, {}, PRELOAD, Action.DENY),
        ({}, {"otherDevices": ["nvidia.com/gpumem*"]}, PRELOAD, Action.DENY),
        ({}, {}, "/mps/nvidia.com/gpu/pipe", None),
        *(({"sharing": "mps"}, {}, f"{place}/a", Action.DENY) for place in host_paths.PLUGIN_MOUNTS),
        ({"sharing": "mps"}, {}, "/usr/local", None),
        ({"sharing": "mps"}, {}, "/tmp", None),  # noqa: S108 - a path in a container
    ],
)
def test_a_mount_over_what_sets_limits_is_denied_where_a_library_or_a_daemon_may_set_some(
    evaluator: Evaluator, change: dict[str, Any], gpus: dict[str, Any], path: str, action: Action | None
) -> None:
    document = yaml.safe_load((ROOT / "policies" / "sample.yaml").read_text("utf-8"))
    shared = next(pool for pool in document["spec"]["pools"] if pool["name"] == "shared")
    shared |= change
    document["spec"]["gpus"] = gpus
    policy, facts = policy_of(yaml.safe_dump(document)), facts_of(FACTS)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}},
        "spec": {
            "schedulerName": shared.get("scheduler", "default-scheduler"),
            "nodeSelector": dict(shared["nodes"]["matchLabels"]),
            "tolerations": shared["tolerations"],
            "volumes": [{"name": "etc", "emptyDir": {}}],
            "containers": [
                {
                    "name": "c",
                    "volumeMounts": [{"name": "etc", "mountPath": path, "subPath": "x"}],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                },
            ],
        },
    }
    found = evaluator.judge(evaluator.compiled(fallback(policy, walk())), request_for(pod), facts).rules
    verdict = Engine(policy, walk()).judge(admission.decode(admission.wrap(pod)), facts)
    actions = {each.action for each in verdict.results if each.rule == LIFTED}
    assert ((LIFTED in found), actions) == (action is Action.DENY, {action} - {None})


LIFTED = "lifted-limit"


def test_a_path_of_the_shared_memory_is_denied_as_the_engine_denies_it(evaluator: Evaluator) -> None:
    """New pods, and pods that wait until an update adds the toleration. The policy lists no path."""
    policy, facts = shared_memory.gke()
    into, comparison = Compared(), Comparison(evaluator, policy, facts)

    @trying(UPDATES // 2)
    @given(shared_memory.pods(shared_memory.PATHS))
    def judged(pod: Any) -> None:
        comparison.add("new", request_for(pod), into)
        if "tolerations" in pod["spec"]:
            spec = {key: value for key, value in pod["spec"].items() if key != "tolerations"}
            comparison.add("later", request_for(pod, operation="UPDATE", oldObject={**pod, "spec": spec}), into)
        assert (into.wrong, into.differing) == ([], [])

    judged()
    said(into)
    assert into.missed.get("host-namespaces", []) == []
    assert into.denied["host-namespaces"] > 30
    assert into.allowed > 30


def test_a_path_that_a_policy_lists_is_denied_by_neither(evaluator: Evaluator) -> None:
    policy, facts = shared_memory.gke()
    pod = shared_memory.mounting(f"{shared_memory.MEMORY}/a", {}, gpus=0, tolerations=shared_memory.TOLERANT)
    for listed in ((), (shared_memory.MEMORY,), ("/run/shm", "/data"), ("/dev",)):
        paths = tuple(AllowedPath(each, writable=True) for each in listed)
        into = Compared()
        Comparison(evaluator, replace(policy, forms=replace(policy.forms, host_paths=paths)), facts).add(
            "pod", request_for(pod), into
        )
        assert (into.judged, into.wrong, into.differing, into.through) == (1, [], [], [])
        assert ("host-namespaces" in into.denied) == (shared_memory.MEMORY not in listed and "/dev" not in listed)


def test_white_space_around_a_device_is_the_same_for_both(evaluator: Evaluator) -> None:
    policy, facts = policy_of((ROOT / "policies" / "sample.yaml").read_text("utf-8")), facts_of(FACTS)
    comparison, into = Comparison(evaluator, policy, facts), Compared()
    for space in (*WHITE_SPACE, *"\x1c\x1d\x1e\x1f\u180e\u200b\u2060\ufeff"):
        for device in (f"/dev/fuse{space}", f"{space}/dev/fuse:/dev/fuse"):
            metadata = {"name": "x", "namespace": "visitors", "annotations": {"devices.crio.io": device}}
            spec = {"containers": [{"name": "c", "image": "x"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            comparison.add(ascii(device), request_for(pod), into)
    assert (into.wrong, into.differing, into.through, into.refused) == ([], [], [], {})
    assert (into.allowed, into.denied["device-annotation"]) == (2 * len(WHITE_SPACE), 16)


@pytest.mark.parametrize(("volume", "driver"), [(DRIVEN[0], "smb.csi.k8s.io"), (DRIVEN[-1], "file.csi.azure.com")])
def test_a_driver_that_a_policy_lists_is_denied_by_neither(evaluator: Evaluator, volume: Any, driver: str) -> None:
    policy, facts = shared_memory.gke()
    pod = shared_memory.mounting("/data", {}, gpus=0, tolerations=shared_memory.TOLERANT)
    pod["spec"]["volumes"] = [{"name": "v", **volume}]
    for listed in ((), (driver,), ("csi.example.com",)):
        into = Compared()
        forms = replace(policy.forms, volume_drivers=listed)
        Comparison(evaluator, replace(policy, forms=forms), facts).add("pod", request_for(pod), into)
        assert (into.judged, into.wrong, into.differing, into.through) == (1, [], [], [])
        assert ("device-path" in into.denied) == (driver not in listed)


def test_a_message_names_only_what_is_refused(evaluator: Evaluator) -> None:
    """A container that asks for a GPU may set what another may not, and the pods of a pool may share IPC."""
    sample = policy_of(ROOT / "policies" / "sample.yaml")
    policy = replace(sample, pools=tuple(replace(pool, host_ipc=pool.name == "shared") for pool in sample.pools))
    tolerations = [{"key": "slicewarden.dev/pool", "value": "shared", "effect": "NoSchedule"}]
    containers = [
        {"name": "asking", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}, "env": [ASKING]},
        {"name": "other", "image": "x", "env": [ASKING]},
    ]
    spec = {
        "containers": containers,
        "tolerations": tolerations,
        "nodeSelector": dict(policy.pools[0].nodes.labels),
        "hostIPC": True,
        "hostPID": True,
    }
    metadata = {"name": "x", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted"}}
    request = request_for({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    denied = evaluator.judge(evaluator.compiled(fallback(policy, walk())), request, facts_of(FACTS)).denied
    (variable,) = (message for message in denied if message.startswith("visible-devices:"))
    (namespace,) = (message for message in denied if message.startswith("host-namespaces:"))
    assert f"container other: env {ASKING['name']}" in variable
    assert "asking" not in variable
    assert "spec.hostPID" in namespace
    assert "spec.hostIPC" not in namespace


ASKING = {"name": "NVIDIA_GDS", "value": "enabled"}
"""A variable that a container may set which asks for a GPU."""


def test_no_pod_is_denied_where_a_policy_eases_a_rule(evaluator: Evaluator) -> None:
    policy, facts = policy_of(ROOT / "policies" / "sample.yaml"), facts_of(FACTS)
    scope = Scope(frozenset({"vision"}), None, frozenset())
    eased = Override(scope, frozenset(), {"chosen-node": Action.WARN, "visible-devices": Action.AUDIT})
    by_pool = {"multiple-slices": Action.AUDIT, "host-namespaces": Action.WARN, "unsteered-pod": Action.WARN}
    overrides = (eased, Override(None, frozenset({"exclusive"}), by_pool))
    strict = Override(Scope(frozenset({"visitors"}), None, frozenset()), frozenset(), {"*": Action.DENY})
    exemption = Exemption("trainer", replace(scope, service_accounts=frozenset({"train*"})), frozenset(), None)
    policy = replace(policy, overrides=(strict, *overrides), exemptions=(*policy.exemptions, exemption))
    into = compared(evaluator, policy, facts, generated.pods(policy, facts))
    assert into.allowed * 3 >= into.judged


def test_no_pod_is_denied_where_pools_have_queues_and_schedulers(evaluator: Evaluator) -> None:
    policy, facts = policy_of(ROOT / "policies" / "sample.yaml"), facts_of(FACTS)
    shared, mig, exclusive = policy.pools
    queued = replace(exclusive, queue=Queue(KUEUE_LABEL, kueue=True, names=Names(("team-*",))))
    urgent = Names(("urgent",))
    policy = replace(
        policy,
        pools=(replace(shared, scheduler="kai-scheduler"), mig, queued),
        priorities=(
            PriorityScope(urgent, trust=frozenset({"trusted"}), pools=frozenset({"shared"})),
            PriorityScope(urgent, scope=Scope(frozenset({"vision"}), None, frozenset())),
        ),
        untrusted_preempt=False,
        forms=replace(policy.forms, claims=(Scope(frozenset({"vision", "visitors"}), None, frozenset()),)),
    )
    into = compared(evaluator, policy, facts, generated.pods(policy, facts, often=generated.turn))
    assert into.allowed * 4 >= into.judged
    for rule in ("other-scheduler", "unearned-priority", "unqueued-pod"):
        assert into.denied[rule] > len(into.missed.get(rule, ()))


def test_a_fallback_that_reads_a_config_map_answers_as_one_that_does_not(evaluator: Evaluator) -> None:
    policy, facts = policy_of(ROOT / "policies" / "sample.yaml"), facts_of(FACTS)
    (labelled,) = policy.grants
    assert labelled.scope.selector is not None
    here, there = (frozenset(some) for some in (("vision", "nowhere"), ("visitors", "nowhere")))
    trainers = frozenset({"trainer"})
    policy = replace(
        policy,
        grants=(
            Grant(Scope(here, None, trainers), frozenset({"shared", "mig"})),
            Grant(Scope(there, labelled.scope.selector, trainers), frozenset({"exclusive"})),
            Grant(Scope(frozenset({"visitors"}), None, frozenset()), requesters=Requesters(frozenset({"alice"}))),
        ),
        pools=tuple(pool if pool.shared else replace(pool, max_request=1) for pool in policy.pools),
    )
    data = Params.of("fallback").config_map(policy)["data"]
    assert data == {
        "maxRequest.exclusive": "1",
        "maxRequest.mig": "1",
        "trust.nowhere": "mig,shared trainer\nexclusive trainer\n",
        "trust.vision": "mig,shared trainer\n",
        "trust.visitors": "exclusive trainer\n",
    }
    into = compared(evaluator, policy, facts, generated.pods(policy, facts))
    assert into.allowed * 4 >= into.judged
    assert into.denied["unearned-trust"] > len(into.missed.get("unearned-trust", ())), "no grant is missing"
    made = evaluator.compiled(fallback(policy, walk(), params=Params.of("fallback"))[1:])
    pod = request_for(wide("variables", 1))
    assert not evaluator.judge(made, pod, facts).denied
    assert "no params found" in str(evaluator.judge(made, pod, facts).errors)


def wide(what: str, number: int) -> dict[str, Any]:
    """A pod that asks for a GPU and has very many of one thing."""
    container: dict[str, Any] = {"name": "a", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec: dict[str, Any] = {"containers": [container]}
    match what:
        case "volumes":
            spec["volumes"] = [{"name": f"v{i}", "hostPath": {"path": f"/data/{i}"}} for i in range(number)]
        case "mounts":
            spec["volumes"] = [{"name": f"v{i}", "hostPath": {"path": f"/etc/ssl/certs/{i}"}} for i in range(number)]
            mounts = [{"name": f"v{i}", "mountPath": f"/certs/{i}", "readOnly": True} for i in range(number)]
            container["volumeMounts"] = mounts
        case "variables":
            container["env"] = [{"name": f"NAME_{i}", "value": "value"} for i in range(number)]
        case "tolerations":
            spec["tolerations"] = [{"key": f"key-{i}", "operator": "Exists"} for i in range(number)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "visitors"}, "spec": spec}


@pytest.mark.parametrize("what", ["volumes", "mounts", "variables", "tolerations"])
@pytest.mark.parametrize("kilobytes", [100, 300, 900])
def test_no_pod_that_the_engine_allows_costs_too_much(evaluator: Evaluator, what: str, kilobytes: int) -> None:
    each = (len(json.dumps(wide(what, 200))) - len(json.dumps(wide(what, 100)))) / 100
    into = Compared()
    pod = request_for(wide(what, int(kilobytes * 1000 / each)))
    Comparison(evaluator, *of_folder("multiple-slices")).add(what, pod, into)
    said(into)
    assert into.judged == 1
    assert (into.wrong, into.differing) == ([], [])
    assert into.allowed or kilobytes > 100, "the engine refuses very long pods by itself"


@pytest.mark.parametrize("rule", [rule for rule in walk() if rule.fallback], ids=lambda rule: rule.id)
def test_a_clause_is_one_line_and_says_the_way_out(rule: Any) -> None:
    assert rule.fallback.__doc__.split(":")[0].split()[0].rstrip(".,") in ("Exact", "Weaker")
    for clause in rule.fallback(of_folder("multiple-slices")[0]):
        assert isinstance(clause, Clause)
        assert "\n" not in clause.message
        assert ";" in clause.message or ", and " in clause.message or ":" in clause.message, clause.message
