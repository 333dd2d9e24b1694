"""Limits that NVIDIA's hook sets before a container starts: never wider than ours, and never where it cannot start."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tests.support.limit_hook import TEXTS, hooked, hooked_later
from tests.support.policies import POLICY, policy_of
from tests.support.reviews import reviews
from tests.support.strategies import request_for
from webhook.api.jsonpatch import apply
from webhook.engine.engine import Engine
from webhook.facts.images import LIST, ImageVariables, config_map, reference
from webhook.facts.snapshot import Facts
from webhook.memory import annotation, environment, explain
from webhook.memory.admitted import admitted
from webhook.memory.budget import budget
from webhook.memory.coverage import NOT_DRIVEN, By
from webhook.memory.driver.nodes import LABEL, READY
from webhook.memory.driver.variables import HARD, NAMES, merge
from webhook.memory.steps import WRITES, Environment, StepKind
from webhook.model import Action, Request
from webhook.policy.model import Card, Policy
from webhook.rules import walk

Item = dict[str, Any]

RULES = walk()
SELECTING = "{nvidia.com/gpu.sharing-strategy: time-slicing, slicewarden.dev/memory-limits: 'true'}"
TEXT = (
    POLICY.read_text("utf-8")
    .replace("sharing: time-slicing\n", "sharing: time-slicing\n      memoryLimit: Driver\n", 1)
    .replace("{nvidia.com/gpu.sharing-strategy: time-slicing}", SELECTING, 1)
)
HOOKED = policy_of(TEXT.replace("    # unread-variables: Warn\n", "    unread-variables: Warn\n", 1))
ENGINE = Engine(HOOKED, RULES)
T4 = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/cuda.driver-version.major": "615",
    LABEL: READY,
}
L4 = {**T4, "nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.memory": "23034"}
SLICE = budget(Card("Tesla-T4-SHARED", 15360, 4), HOOKED, driver=True).slice


def cluster(*nodes: Mapping[str, str]) -> Facts:
    items: list[Item] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{place}", "labels": dict(labels)}}
        for place, labels in enumerate(nodes)
    ]
    vision = {"name": "vision", "labels": {"slicewarden.dev/trust": "trusted"}}
    return Facts.of([*items, {"apiVersion": "v1", "kind": "Namespace", "metadata": vision}])


ASKS = {"resources": {"limits": {"nvidia.com/gpu": 1}}}


def pod(first: Item | None = None, side: Item | None = None, main: Item | None = None, **annotations: str) -> Item:
    """A pod whose one slice its sidecar has, or else its main container, and before it a container that ends."""
    own = {f"slicewarden.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    asks = ASKS if side is None else {}
    spec: Item = {"containers": [{"name": "main", "image": "torch:2.11", **asks, **(main or {})}]}
    init = [
        *([{"name": "first", "image": "i", **ASKS, **first}] if first is not None else []),
        *([{"name": "side", "image": "i", "restartPolicy": "Always", **ASKS, **side}] if side is not None else []),
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "vision", "annotations": {"slicewarden.dev/trust": "trusted", **own}},
        "spec": {**spec, **({"initContainers": init} if init else {})},
    }


def mutated(item: Item, facts: Facts, policy: Policy = HOOKED) -> Item:
    return dict(apply(item, Engine(policy, RULES).mutate(request_for(item), facts).patch))


def containers(item: Item) -> list[Item]:
    return [*item["spec"].get("initContainers", ()), *item["spec"]["containers"]]


def seen(container: Item, config: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables that kubelet gives to the runtime: the last of a name, and `env` over `envFrom`.

    `config` is what `envFrom` finds (kubernetes pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables).
    """
    found = dict(config or {}) if container.get("envFrom") else {}
    return {**found, **{entry["name"]: entry.get("value", "") for entry in container.get("env", ())}}


def own(item: Item) -> list[dict[str, str]]:
    return [{name: value for name, value in seen(each).items() if name in NAMES} for each in containers(item)]


OURS = dict.fromkeys(NAMES, str(SLICE))


@pytest.mark.parametrize(
    ("item", "names"),
    [(pod(), ["main"]), (pod(first={}), ["first", "main"]), (pod(first={}, side={}), ["first", "side"])],
)
def test_every_container_with_a_slice_gets_the_limit_before_its_start(item: Item, names: list[str]) -> None:
    item["spec"]["containers"].append({"name": "log", "image": "i"})
    after = mutated(item, cluster(T4))
    limited = {each["name"]: found for each, found in zip(containers(after), own(after), strict=True) if found}
    assert limited == dict.fromkeys(names, OURS)
    assert not ENGINE.mutate(request_for(after), cluster(T4)).patch
    assert ENGINE.validate(request_for(after), cluster(T4)).results == ()
    read = annotation.read(after["metadata"]["annotations"][annotation.KEY])
    assert read is not None
    assert sorted(read.hook) == sorted(f"{name}: {SLICE} MiB" for name in names)
    assert sorted(read.driver) == sorted(names)


@pytest.mark.parametrize("name", sorted(HARD))
def test_a_tenants_smaller_limit_stands_and_the_agent_keeps_it(name: str) -> None:
    after = mutated(pod(main={"env": [{"name": name, "value": "1000"}]}), cluster(T4))
    assert own(after) == [dict.fromkeys(NAMES, "1000")]
    assert ENGINE.validate(request_for(after), cluster(T4)).allowed
    assert admitted(after, HOOKED, cluster(T4), cluster(T4).nodes[0])["main"].allowance == 1000


@pytest.mark.parametrize("name", NAMES)
def test_validate_proves_each_variable_after_all_mutation(name: str) -> None:
    after = mutated(pod(), cluster(T4))
    entries = after["spec"]["containers"][0]["env"]
    entries[:] = [entry for entry in entries if entry["name"] != name]
    assert not ENGINE.validate(request_for(after), cluster(T4)).allowed
    entries.append({"name": name, "value": str(SLICE + 1)})
    assert not ENGINE.validate(request_for(after), cluster(T4)).allowed


def test_an_old_pod_without_the_variables_may_still_be_changed() -> None:
    item = mutated(pod(), cluster({**T4, "nvidia.com/cuda.driver-version.major": "580"}))
    assert own(item) == [{}]
    changed = {**item, "metadata": {**item["metadata"], "labels": {"a": "b"}}}
    update = request_for(changed, operation="UPDATE", old=item)
    assert ENGINE.validate(update, cluster(T4)).allowed
    assert not ENGINE.mutate(update, cluster(T4)).patch


def test_an_image_with_a_smaller_limit_starts_if_the_pod_sets_the_same_limit() -> None:
    """containerd puts the image's variables first, and the hook takes the first of a name (docs/memory-caps.md)."""
    image = {"NVIDIA_GPU_MEMORY_LIMIT": "2000"}
    (alone,) = own(mutated(pod(), cluster(T4)))
    assert hooked({**alone, **image}) == "above"
    same = {"env": [{"name": name, "value": value} for name, value in image.items()]}
    (after,) = own(mutated(pod(main=same), cluster(T4)))
    assert hooked({**after, **image}) == (2000, 2000)


MIB = st.integers(600, 3000)


@given(
    memory=st.none() | MIB,
    processes=st.none() | st.integers(1, 2),
    labels=st.lists(st.sampled_from((T4, L4)), min_size=1, max_size=3),
)
def test_the_limit_is_the_least_that_the_agent_allows_on_any_node(
    memory: int | None, processes: int | None, labels: list[Mapping[str, str]]
) -> None:
    said = {"gpu_memory": f"{memory}Mi"} if memory else {}
    said |= {"gpu_processes": str(processes)} if processes else {}
    facts, item = cluster(*labels), pod(None, None, None, **said)
    after = mutated(item, facts)
    known = [admitted(after, HOOKED, facts, node)["main"] for node in facts.nodes]
    allowed = [each.allowance for each in known]
    if not ENGINE.validate(request_for(after), facts).allowed:
        event("denied")
        return
    assert own(after) == [dict.fromkeys(NAMES, str(min(filter(None, allowed))))]
    assert {each.stated for each in known} == {min(filter(None, allowed))}
    assert {admitted(item, HOOKED, facts, node)["main"].stated for node in facts.nodes} == {None}


ENTRIES = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(NAMES)}).flatmap(
        lambda entry: st.one_of(
            TEXTS.map(lambda value: {**entry, "value": value}),
            *[st.integers(1, 2 * SLICE).map(lambda value: {**entry, "value": str(value)})] * 8,
            st.sampled_from(("configMapKeyRef", "secretKeyRef")).map(
                lambda ref: {**entry, "valueFrom": {ref: {"name": "mine", "key": "k"}}}
            ),
        )
    ),
    max_size=3,
)
FROM = st.sampled_from(([], [{"configMapRef": {"name": "mine"}}], [{"secretRef": {"name": "mine"}}]))
CONTAINER = st.builds(lambda env, source: {"env": env, "envFrom": source} if source else {"env": env}, ENTRIES, FROM)
CONFIG = st.dictionaries(st.sampled_from(NAMES), TEXTS)


@given(first=st.none() | CONTAINER, side=st.none() | CONTAINER, main=CONTAINER, config=CONFIG)
def test_no_tenant_widens_a_limit_and_no_admitted_container_fails_at_its_start(
    first: Item | None, side: Item | None, main: Item, config: Mapping[str, str]
) -> None:
    after = mutated(pod(first, side, main), cluster(T4))
    if not ENGINE.validate(request_for(after), cluster(T4)).allowed:
        event("denied")
        return
    event("admitted")
    asking = [each for each in containers(after) if "resources" in each]
    assert asking
    for container in asking:
        for reads in (hooked, hooked_later):
            limits = reads(seen(container, config))
            assert limits is not None
            assert not isinstance(limits, str)
            assert 0 <= limits[0] <= limits[1] <= SLICE
            assert limits[1] > 0
        event(f"envFrom: {bool(container.get('envFrom'))}")


@given(env=st.dictionaries(st.sampled_from(NAMES), TEXTS), limit=st.integers(1, SLICE))
def test_after_the_steps_both_hooks_read_a_limit_within_the_bound(env: Environment, limit: int) -> None:
    cap = budget(Card("Tesla-T4", 15360, 4), Policy("p", ()))
    after = environment.applied(env, merge(env, cap, limit))
    left = list(merge(after, cap, limit))
    assert not any(step.kind in WRITES for step in left)
    if any(step.kind is StepKind.REFUSE for step in left):
        event("refused")
        return
    for reads in (hooked, hooked_later):
        limits = reads(after)
        assert limits is not None
        assert not isinstance(limits, str)
        assert limits[0] <= limits[1] <= limit


# Where they are written

BROKEN = {
    "no label": {key: value for key, value in T4.items() if key != LABEL},
    "another value": {**T4, LABEL: "false"},
    "driver 570": {**T4, "nvidia.com/cuda.driver-version.major": "570"},
    "driver 580 by the old label": {
        **{key: value for key, value in T4.items() if "cuda" not in key},
        "nvidia.com/cuda.driver.major": "580",
    },
    "no number": {**T4, "nvidia.com/cuda.driver-version.major": "r615"},
    "MIG, strategy single": {**T4, "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED"},
    "MIG, strategy mixed": {**T4, "nvidia.com/mig-1g.5gb.count": "1"},
}
GOOD = (T4, L4, {**T4, "nvidia.com/cuda.driver-version.major": "620"})


def bears(labels: Mapping[str, str]) -> bool:
    """Play a node: does the hook set a limit there, for all that labels say?"""
    branch = labels.get("nvidia.com/cuda.driver-version.major", labels.get("nvidia.com/cuda.driver.major", ""))
    divided = "MIG" in labels["nvidia.com/gpu.product"] or any(key.startswith("nvidia.com/mig-") for key in labels)
    return labels.get(LABEL) == "true" and branch.isdigit() and int(branch) >= 615 and not divided


def lands(item: Item, labels: Mapping[str, str]) -> bool:
    """Return whether the scheduler may put a pod on a node: by its nodeSelector and its required affinity."""
    spec = item["spec"]
    required = (
        spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution", {})
    )
    terms = required.get("nodeSelectorTerms")
    selected = all(labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
    return selected and (terms is None or any(_matches(term, labels) for term in terms))


def _matches(term: Item, labels: Mapping[str, str]) -> bool:
    known = {"In": lambda value, values: value in values, "NotIn": lambda value, values: value not in values}
    return all(known[each["operator"]](labels.get(each["key"]), each["values"]) for each in term["matchExpressions"])


NODES = st.lists(st.sampled_from((*GOOD, *BROKEN.values())), max_size=4)


@given(known=NODES, later=NODES)
def test_a_pod_with_the_variables_lands_on_no_node_that_lacks_the_label_or_is_known_to_be_unfit(
    known: list[Mapping[str, str]], later: list[Mapping[str, str]]
) -> None:
    facts = cluster(*known)
    after = mutated(pod(), facts)
    if not ENGINE.validate(request_for(after), facts).allowed:
        event("denied")
        return
    (variables,) = own(after)
    written = bool(variables)
    event(f"written: {written}")
    assert not written or set(variables) == {*NAMES}
    if not written:
        assert any(not bears(labels) for labels in known if labels.get(LABEL) == "true")
        return
    assert all(bears(labels) for labels in known if lands(after, labels))
    assert all(labels.get(LABEL) == "true" for labels in later if lands(after, labels))


def test_a_node_that_joins_gets_such_pods_only_once_it_has_the_label() -> None:
    waiting = mutated(pod(), cluster())
    assert own(waiting) == [OURS]
    joined = BROKEN["no label"]
    assert not lands(waiting, joined)
    assert own(mutated(pod(), cluster(joined))) == [OURS]
    labelled = {**joined, LABEL: READY}
    assert lands(waiting, labelled)
    assert own(mutated(pod(), cluster(labelled))) == [OURS]
    assert ENGINE.validate(request_for(waiting), cluster(labelled)).allowed


def test_a_pool_that_does_not_select_its_nodes_by_the_label_gets_no_variables() -> None:
    policy = policy_of(
        POLICY.read_text("utf-8").replace(
            "sharing: time-slicing\n", "sharing: time-slicing\n      memoryLimit: Driver\n", 1
        )
    )
    assert own(mutated(pod(), cluster(T4), policy)) == [{}]
    frameworks = policy_of(TEXT.replace("      memoryLimit: Driver\n", "", 1))
    assert own(mutated(pod(), cluster(T4), frameworks)) == [{}]


EXEMPT = (
    "  exemptions:\n    - {name: ours, reason: r, system: true, namespaces: [vision], serviceAccounts: [default],"
    " rules: [unsteered-pod]}\n"
)
UNSTEERED = {
    "warned": TEXT.replace("  rules:\n", "  rules:\n    unsteered-pod: Warn\n", 1),
    "recorded": TEXT.replace("  rules:\n", "  rules:\n    unsteered-pod: Audit\n", 1),
    "exempt": TEXT.replace("  exemptions:\n", EXEMPT, 1),
}


@pytest.mark.parametrize("text", UNSTEERED.values(), ids=UNSTEERED)
def test_a_pod_that_may_land_outside_the_pool_gets_no_variables(text: str) -> None:
    policy, facts = policy_of(text), cluster(T4, {key: value for key, value in T4.items() if key != LABEL})
    after = mutated(pod(), facts, policy)
    assert "nodeSelector" not in after["spec"]
    assert own(after) == [{}]
    assert Engine(policy, RULES).validate(request_for(after), facts).allowed
    chosen = pod()
    chosen["spec"]["nodeSelector"] = mutated(pod(), facts)["spec"]["nodeSelector"]
    after = mutated(chosen, facts, policy)
    assert own(after) == [OURS]
    assert Engine(policy, RULES).validate(request_for(after), facts).allowed
    assert said(pod(), facts, policy) == [
        (
            By.DRIVER,
            "the agent limits it after its start: the policy lets the pod run outside pool shared (unsteered-pod)",
        )
    ]


def said(item: Item, facts: Facts, policy: Policy = HOOKED) -> list[tuple[By, str]]:
    request: Request = request_for(item)
    (landing,) = explain.landings(reviews(request, policy, facts), capped=True)
    return [(one.by, one.why) for one in landing.capped]


def test_what_holds_a_container_is_said_with_the_node_in_the_way() -> None:
    assert said(pod(), cluster(T4)) == [
        (By.HOOK, f"the driver allows {SLICE} MiB from its start on, unless its image sets another limit")
    ]
    old = {**T4, "nvidia.com/cuda.driver-version.major": "570"}
    assert said(pod(), cluster(T4, old)) == [
        (By.DRIVER, "the agent limits it after its start: node n1 has driver 570, not 615 or newer")
    ]


@pytest.mark.parametrize("product", ["NVIDIA-GB10", "NVIDIA-GB10-SHARED"])
def test_a_card_that_uses_the_hosts_memory_gets_none(product: str) -> None:
    facts = cluster({**T4, "nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "122880"})
    after = mutated(pod(), facts)
    assert own(after) == [{}]
    read = annotation.read(after["metadata"]["annotations"][annotation.KEY])
    assert read is None or not read.driver
    assert said(pod(), facts) == [(By.NONE, NOT_DRIVEN)]


# What images set

DIGEST = f"registry.example.com/torch@sha256:{'1' * 64}"
TAG = "registry.example.com/torch:2.11"
OPERATORS = "gpu-operator"


def acting(action: Action | None) -> Policy:
    """The policy with this `imageLimits` of its pool."""
    pools = [replace(each, image_limits=action) if each.driver_limits else each for each in HOOKED.pools]
    return replace(HOOKED, pools=tuple(pools))


def listing(image: str, env: Mapping[str, str] | None, namespace: str = OPERATORS) -> Facts:
    """The cluster with a list that has an image, with these limits in its ENV; without limits, if None."""
    limits = None if env is None else tuple((name, env[name]) for name in NAMES if name in env)
    item = config_map([(reference(image), ImageVariables("", limits))], namespace)
    return replace(cluster(T4), config_maps={(namespace, LIST): item["data"]})


def judged(image: str, action: Action | None, facts: Facts, **annotations: str) -> tuple[Item, str, list[str]]:
    """A pod after mutation, what it is denied for, and its warnings."""
    policy = acting(action)
    after = mutated(pod(None, None, {"image": image}, **annotations), facts, policy)
    verdict = Engine(policy, RULES).validate(request_for(after), facts)
    denied, warned = ([str(one.finding.message) for one in verdict.having(kind)] for kind in (Action.DENY, Action.WARN))
    return after, " ".join(denied), warned


WIDE = {"NVIDIA_GPU_MEMORY_LIMIT": "40000"}


@pytest.mark.parametrize(
    ("action", "denied", "warned"), [(None, False, True), (Action.WARN, False, True), (Action.DENY, True, False)]
)
@pytest.mark.parametrize("image", [DIGEST, TAG])
@pytest.mark.parametrize("env", [WIDE, {"NVIDIA_GPU_MEMORY_LIMITS": str(SLICE + 1)}, {"NVIDIA_GPU_MEMORY_LIMIT": "0"}])
def test_an_image_that_is_known_to_set_a_wider_limit(
    env: dict[str, str], image: str, action: Action | None, denied: bool, warned: bool
) -> None:
    after, refusal, warnings = judged(image, action, listing(image, env))
    ((name, value),) = env.items()
    said = f'its image sets {name} to "{value}", and the slice has {SLICE} MiB'
    assert (said in refusal, said in "".join(warnings)) == (denied, warned)
    assert "use an image without it" in refusal + "".join(warnings)
    read = annotation.read(after["metadata"]["annotations"][annotation.KEY])
    assert read is not None
    assert (read.hook, read.driver) == ((), ("main",))


@pytest.mark.parametrize("env", [{}, {"NVIDIA_GPU_MEMORY_LIMIT": str(SLICE)}, {"NVIDIA_GPU_MEMORY_REQUEST": "40000"}])
@pytest.mark.parametrize("action", [None, Action.WARN, Action.DENY])
def test_nothing_is_said_of_an_image_that_sets_nothing_wider(action: Action | None, env: dict[str, str]) -> None:
    facts = listing(DIGEST, env)
    assert judged(DIGEST, action, facts)[1:] == ("", [])
    assert said(pod(main={"image": DIGEST}), facts) == [(By.HOOK, f"the driver allows {SLICE} MiB from its start on")]


UNKNOWN = {
    "no list": (DIGEST, cluster(T4), "no list of images shows"),
    "another image": (DIGEST, listing(TAG, {}), "no list of images shows"),
    "an older list": (DIGEST, listing(DIGEST, None), "no list of images shows"),
    "a tenant's list": (DIGEST, listing(DIGEST, {}, "vision"), "no list of images shows"),
    "a tag": (TAG, listing(TAG, {}), "its image is named by a tag, which can move"),
    "no reference": ("A B", listing(DIGEST, {}), "no list of images shows"),
    "a broken list": (DIGEST, replace(cluster(T4), config_maps={(OPERATORS, LIST): {"a": "{"}}), "cannot be read as"),
}


@pytest.mark.parametrize(("image", "facts", "why"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_image_that_is_not_known_gets_what_the_policy_says(image: str, facts: Facts, why: str) -> None:
    assert judged(image, None, facts)[1:] == ("", [])
    _, refusal, (warning,) = judged(image, Action.WARN, facts)
    assert refusal == ""
    assert why in warning
    _, refusal, warnings = judged(image, Action.DENY, facts, python_path="")
    assert why in refusal
    assert warnings == []


def test_a_smaller_part_of_the_slice_is_the_bound_of_its_image_too() -> None:
    facts = listing(DIGEST, {"NVIDIA_GPU_MEMORY_LIMIT": "3000"})
    assert judged(DIGEST, Action.DENY, facts)[1] == ""
    assert "the slice has" in judged(DIGEST, Action.DENY, facts, gpu_memory="1000Mi")[1]


def test_an_image_is_judged_when_it_changes_and_not_when_only_the_list_does() -> None:
    clean, wide = listing(DIGEST, {}), listing(DIGEST, WIDE)
    engine = Engine(acting(Action.DENY), RULES)
    item = mutated(pod(main={"image": DIGEST}), clean, acting(Action.DENY))
    other = {**item, "spec": {**item["spec"], "containers": [{**item["spec"]["containers"][0], "image": TAG}]}}
    labelled = {**item, "metadata": {**item["metadata"], "labels": {"a": "b"}}}
    assert engine.validate(request_for(labelled, operation="UPDATE", old=item), wide).allowed
    assert not engine.validate(request_for(other, operation="UPDATE", old=item), clean).allowed


OTHER = f"registry.example.com/other@sha256:{'2' * 64}"


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [(OTHER, TAG, listing(DIGEST, {})), (TAG, f"{TAG}-1", listing(TAG, {})), (DIGEST, TAG, listing(DIGEST, WIDE))],
    ids=["no list has either", "both by a tag", "a wider one, then one that no list has"],
)
def test_an_image_that_is_refused_is_exchanged_for_no_other_one(old: str, new: str, facts: Facts) -> None:
    """An update that leaves it as it is passes."""
    engine = Engine(acting(Action.DENY), RULES)
    item = mutated(pod(main={"image": old}), facts, engine.policy)
    other = {**item, "spec": {**item["spec"], "containers": [{**item["spec"]["containers"][0], "image": new}]}}
    labelled = {**item, "metadata": {**item["metadata"], "labels": {"a": "b"}}}
    assert not engine.validate(request_for(item), facts).allowed
    assert engine.validate(request_for(labelled, operation="UPDATE", old=item), facts).allowed
    assert not engine.validate(request_for(other, operation="UPDATE", old=item), facts).allowed


def test_what_holds_a_container_whose_image_is_wider_is_said() -> None:
    ((by, why),) = said(pod(main={"image": DIGEST}), listing(DIGEST, WIDE))
    assert by == By.DRIVER
    assert why.startswith("the agent limits it after its start: its image sets NVIDIA_GPU_MEMORY_LIMIT")


@given(
    env=st.dictionaries(st.sampled_from(NAMES), TEXTS | st.just("0" * 20 + "40000")),
    text=st.sampled_from((None, *HARD)),
)
def test_no_admitted_image_widens_a_limit_where_the_policy_denies(env: Mapping[str, str], text: str | None) -> None:
    printable = {name: value for name, value in env.items() if value.isprintable()}
    facts, policy = listing(DIGEST, printable), acting(Action.DENY)
    main: Item = {"image": DIGEST, **({"env": [{"name": text, "value": "1000"}]} if text else {})}
    after = mutated(pod(main=main), facts, policy)
    if not Engine(policy, RULES).validate(request_for(after), facts).allowed:
        event("denied")
        return
    event("admitted")
    (container,) = containers(after)
    for reads in (hooked, hooked_later):
        limits = reads({**seen(container), **printable})
        assert limits is not None
        assert isinstance(limits, str) or 0 < limits[1] <= SLICE
