"""An update: what it makes worse is refused, what was there before is not."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import fixtures
from tests.support.conditions import receivers, request_of
from tests.support.later import may_see, updates
from tests.support.strategies import put
from tests.support.texts import Meter, Text
from webhook.allowance import Allowance
from webhook.api import admission
from webhook.engine.engine import CREATE, UPDATE, Engine
from webhook.engine.ratcheting import added
from webhook.engine.registration import configurations
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Request, Requester, Result, Verdict
from webhook.model import Path as Place
from webhook.rules import walk

TRUSTED = {"slicewarden.dev/trust": "trusted"}


def container(name: str, slices: int = 1, env: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    limits = {"nvidia.com/gpu.shared": slices} if slices else {}
    variables = [{"name": key, "value": value} for key, value in env]
    return {"name": name, "resources": {"limits": limits}, "env": variables}


def amd(name: str, count: int = 1) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {"amd.com/gpu": count}}}


def deployment(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"template": {"metadata": {"annotations": TRUSTED}, "spec": {"containers": [*containers]}}}}


def config_map(**data: str) -> dict[str, Any]:
    return {"metadata": {"labels": {}}, "data": data}


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {},
        "spec": {"containers": [{"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}], **spec},
    }


def sharing(name: str = "nvidia.com/gpu", replicas: int = 4, more: str = "") -> str:
    resources = f"resources: [{{name: {name}, replicas: {replicas}}}{more}]"
    return f"sharing: {{timeSlicing: {{failRequestsGreaterThanOne: false, {resources}}}}}"


def update(engine: Engine, facts: Facts, group: str, kind: str, old: dict[str, Any], new: dict[str, Any]) -> Verdict:
    request = Request("u", "UPDATE", group, "v1", kind, "", "vision", "x", None, False, new, old)
    assert not engine.validate(
        Request("u", "CREATE", group, "v1", kind, "", "vision", "x", None, False, old, None), facts
    ).allowed
    return engine.validate(request, facts)


CAP = "PYTORCH_ALLOC_CONF"
RAISED = (CAP, "per_process_memory_fraction:90%")

WORSE = {
    "more containers take slices": (
        deployment(container("a", 2)),
        deployment(container("a", 2), *(container(f"b{n}") for n in range(9))),
    ),
    "a slice more": (deployment(container("a", 2)), deployment(container("a", 3))),
    "the same wrong value twice": (
        deployment(container("a", 1, (RAISED,))),
        deployment(container("a", 1, (RAISED,)), container("b", 1, (RAISED,))),
    ),
    "a GPU more that no pool offers": (deployment(amd("a")), deployment(amd("a", 2))),
    "another container takes a GPU that no pool offers": (deployment(amd("a")), deployment(amd("a"), amd("b"))),
    "a slice comes to a GPU that no pool offers": (deployment(amd("a")), deployment(amd("a"), container("b"))),
    "another wrong value": (
        deployment(container("a", 1, (RAISED,))),
        deployment(container("a", 1, ((CAP, "per_process_memory_fraction:95%"),))),
    ),
}

NO_WORSE = {
    "a label": (deployment(container("a", 2)), {**deployment(container("a", 2)), "metadata": {"labels": {"a": "b"}}}),
    "a container before it goes": (
        deployment(container("side", 0), container("a", 2)),
        deployment(container("a", 2)),
    ),
    "a slice goes from a GPU that no pool offers": (deployment(amd("a"), container("b")), deployment(amd("a"))),
    "a variable comes before it": (
        deployment(container("a", 1, (RAISED,))),
        deployment(container("a", 1, (("OTHER", "1"), RAISED))),
    ),
    "one of two things is put right": (
        deployment(container("a", 1, (RAISED, ("XLA_PYTHON_CLIENT_MEM_FRACTION", "90%")))),
        deployment(container("a", 1, (RAISED,))),
    ),
}


@pytest.mark.parametrize(("old", "new"), WORSE.values(), ids=WORSE)
def test_an_update_that_makes_a_workload_worse_is_denied(
    engine: Engine, sample_facts: Facts, old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert not update(engine, sample_facts, "apps", "Deployment", old, new).allowed


@pytest.mark.parametrize(("old", "new"), NO_WORSE.values(), ids=NO_WORSE)
def test_an_update_that_makes_a_workload_no_worse_is_allowed(
    engine: Engine, sample_facts: Facts, old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert update(engine, sample_facts, "apps", "Deployment", old, new).allowed


@pytest.mark.parametrize(
    "new",
    [
        config_map(a=sharing(replicas=8)),
        config_map(a=sharing("nvidia.com/mig-1g.5gb")),
        config_map(a=sharing(more=", {name: nvidia.com/mig-1g.5gb, replicas: 2}")),
        config_map(**{"a": sharing(), "k" * 90 + "2": sharing()}),
    ],
    ids=["more replicas", "another resource", "one resource more", "one key more"],
)
def test_an_edit_cannot_add_a_fault_to_a_bad_configuration(
    engine: Engine, sample_facts: Facts, new: dict[str, Any]
) -> None:
    old = config_map(**{"a": sharing(), "k" * 90 + "1": sharing()})
    assert not update(engine, sample_facts, "", "ConfigMap", old, new).allowed


def test_a_bad_configuration_may_be_labelled_and_its_good_neighbour_edited(engine: Engine, sample_facts: Facts) -> None:
    old = config_map(a=sharing(), b="version: v1")
    new = {**config_map(a=sharing(), b="version: v1\n# edited"), "metadata": {"labels": {"a": "b"}}}
    assert update(engine, sample_facts, "", "ConfigMap", old, new).allowed


@pytest.mark.parametrize(
    "spec",
    [
        {"tolerations": [{"key": "slicewarden.dev/pool", "operator": "Exists"}]},
        {"nodeSelector": {"nvidia.com/gpu.present": "true"}},
        {"nodeSelector": {"other": "label"}},
    ],
)
def test_an_update_may_steer_a_pod_that_was_never_steered(
    engine: Engine, sample_facts: Facts, spec: dict[str, Any]
) -> None:
    assert update(engine, sample_facts, "", "Pod", pod(), pod(**spec)).allowed


def test_a_pod_that_was_never_steered_may_not_ask_for_another_pool(engine: Engine, sample_facts: Facts) -> None:
    assert not update(engine, sample_facts, "", "Pod", pod(), {**pod(), "metadata": {"annotations": TRUSTED}}).allowed


@pytest.mark.parametrize("levels", [10, 900, 1000])
def test_values_are_compared_at_any_depth(engine: Engine, sample_facts: Facts, levels: int) -> None:
    """A value that is too deep to be compared counts as another, and breaks nothing."""

    def claim(inner: Any) -> dict[str, Any]:
        deep: Any = inner
        for _ in range(levels):
            deep = [deep]
        parameters = {"apiVersion": deep}
        config = {"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}
        return {"metadata": {}, "spec": {"devices": {"config": [config]}}}

    assert not update(engine, sample_facts, "resource.k8s.io", "ResourceClaim", claim(1), claim(2)).allowed
    same = update(engine, sample_facts, "resource.k8s.io", "ResourceClaim", claim(1), claim(1)).allowed
    assert same or levels == 1000


# From bad to worse, for every rule


TENANT = Requester("dana", frozenset({"system:authenticated"}))


def at(value: Any, path: Iterable[Any]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else value[key] if isinstance(value, list) else None
    return value


def denied(engine: Engine, facts: Facts, request: Request) -> list[Finding]:
    verdict = engine.validate(request, facts)
    return [result.finding for result in verdict.having(Action.DENY)]


def others(value: Any, seen: list[Any]) -> Iterator[Any]:
    """Other values of a kind: those of other fixtures there, and ones like them; of a map, one entry at a time."""
    if isinstance(value, dict):
        for key in value.keys() - {"name"}:  # by its name it is another one
            for other in others(value[key], []):
                yield {**value, key: other}
    elif isinstance(value, str):
        yield from (each for each in seen if isinstance(each, str))
        yield from (f"{value}x", f"{value}0", f"{value}/x", f"{value}\n# x", f"./{value}", value.swapcase())
        yield f"/{'x/../' * 20}{value}"  # a message shows no more than the beginning
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value + 1


def worse(rule: str) -> Iterator[tuple[Path, Request, Place]]:
    """Updates of denied objects by which one denied value becomes another, with the place where it stands.

    What has parts of its own may be anything around them, and is left out where it is more than one value.
    """
    engine, facts = fixtures.engine_of(rule)
    bad: list[tuple[Path, Request, Place, Any]] = []
    seen: dict[Any, list[Any]] = defaultdict(list)
    for file in fixtures.files_of(rule):
        request = fixtures.fixture(file)[2]
        if request.object is None or request.operation not in (CREATE, UPDATE):
            continue
        request = replace(request, requester=request.requester or TENANT, operation=CREATE, old_object=None)
        for finding in denied(engine, facts, request):
            value = at(request.object, finding.path)
            if finding.path and not (finding.parts and isinstance(value, (dict, list))):
                bad.append((file, request, finding.path, value))
                seen[finding.path[-1]].append(value)
    for file, request, path, value in bad:
        for other in others(value, seen[path[-1]][:5]):
            made = replace(request, object=put(request.object, path, other))
            if other != value and path in [finding.path for finding in denied(engine, facts, made)]:
                yield file, replace(made, operation=UPDATE, old_object=request.object), path


NONE_WORSE = {
    "changed-shim": "looks at what changes, and at nothing else",
    "changed-trust": "looks at what changes, and at nothing else",
    "foreign-device-class": "looks at what changes, and at nothing else",
    "device-path": "speaks of all volumes of a pod at once: see below",
    "host-namespaces": "true is all that is denied",
    "overcommitted-slices": "only warns",
    "relabelled-node": "looks at what changes, and at nothing else",
    "sharing-config-in-use": "denies what is gone",
    "unapplied-sharing-config": "only warns",
    "unguarded-container": "denies what is missing",
    "unknown-annotation": "only warns",
    "untolerated-taint": "only warns",
    "unmet-spread": "only warns",
    "unread-text": "only warns",
}


@pytest.mark.parametrize("rule", [rule for rule in fixtures.FOLDERS if rule not in NONE_WORSE])
def test_a_different_wrong_value_counts_as_a_new_finding(rule: str) -> None:
    """No denied value excuses another, whatever a message shows of them. A rule that is added is tried too."""
    engine, facts = fixtures.engine_of(rule)
    updates = [*worse(rule)]
    assert updates
    for file, request, path in updates:
        news = [finding.path for finding in denied(engine, facts, request)]
        assert path in news, (file.stem, path, at(request.object, path))


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        (["/etc", "/dev"], ["/dev"], False),
        (["/etc", "/dev"], ["/etc"], False),
        (["/etc"], ["/etc", "/dev"], True),
        (["/etc"], ["/root"], True),
        (["/etc"], ["/etc", "/data"], False),
    ],
)
def test_the_paths_of_an_update_are_compared_one_by_one(before: list[str], after: list[str], news: bool) -> None:
    def deployment(paths: list[str]) -> Any:
        volumes = [{"name": path[1:], "hostPath": {"path": path}} for path in paths]
        container = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        template = {"spec": {"volumes": volumes, "containers": [container]}}
        return {"metadata": {"name": "a", "namespace": "lab"}, "spec": {"template": template}}

    engine, facts = fixtures.engine_of("device-path")
    asked = Request(
        *("u", "UPDATE", "apps", "v1", "Deployment", "", "lab", "a", TENANT, False),
        *(deployment(after), deployment(before)),
    )
    assert bool(denied(engine, facts, asked)) is news


@pytest.mark.parametrize("rule", fixtures.FOLDERS)
def test_a_finding_that_was_there_before_is_excused(rule: str) -> None:
    """A label on an object makes nothing worse, denied as it may be."""
    engine, facts = fixtures.engine_of(rule)
    for file in fixtures.files_of(rule):
        request = fixtures.fixture(file)[2]
        item = request.object
        if item is None or request.kind in ("Namespace", "Node", "Binding") or request.operation == "DELETE":
            continue
        metadata = item.get("metadata", {})
        labelled = {**item, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), "reviewed": "yes"}}}
        again = replace(request, requester=TENANT, operation=UPDATE, object=labelled, old_object=item)
        assert not denied(engine, facts, again), file.stem


@pytest.mark.parametrize("folder", fixtures.FOLDERS)
def test_a_pod_that_sees_gpus_by_an_update_is_judged_as_a_new_one(folder: str) -> None:
    policy, _ = fixtures.settings(folder)
    engine, facts = fixtures.engine_of(folder, alone=False)
    hooks = [hook for each in configurations(policy) if each["kind"].startswith("Valid") for hook in each["webhooks"]]
    for file in fixtures.files_of(folder):
        item = fixtures.fixture(file)[0].value
        if item["kind"] != "Pod" or fixtures.REFUSED.search(file.read_text("utf-8")) or "nodeName" in item["spec"]:
            continue
        for update in updates(item, policy):
            if may_see(update.old, policy, facts) or not may_see(update.new, policy, facts):
                continue
            found = {
                (result.rule, result.finding.path)
                for result in engine.validate(admission.decode(json.dumps(update.review).encode()), facts).results
            }
            before, now = (
                {
                    (result.rule, result.finding.path)
                    for result in engine.validate(admission.decode(admission.wrap(each)), facts).results
                }
                for each in (update.old, update.new)
            )
            assert found >= now - before, (file.stem, update.name)
            assert not found or receivers(hooks, request_of(update.review)), (file.stem, update.name)


def claim(device_class: str, namespace: str) -> dict[str, Any]:
    requests = [{"name": "device", "exactly": {"deviceClassName": device_class}}]
    metadata = {"name": "replaced", "namespace": namespace}
    spec = {"devices": {"requests": requests}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


CLAIMED = {"resourceClaims": [{"name": "device", "resourceClaimName": "replaced"}]}


@pytest.mark.parametrize("known", [None, "gpu.nvidia.com", "dra.net"])
@pytest.mark.parametrize("folder", fixtures.FOLDERS)
def test_no_claim_excuses_a_pod_that_sees_gpus_by_an_update(folder: str, known: str | None) -> None:
    """The author of a waiting pod may delete its claim, or replace it by one for a GPU, and then add the toleration."""
    policy, facts = fixtures.settings(folder)
    claims = [claim(known, "visitors")] if known else []
    facts = replace(facts, claimed={**facts.claimed, **Facts.of(claims).claimed})
    engine = Engine(policy, walk())
    for file in fixtures.files_of(folder):
        item = fixtures.fixture(file)[0].value
        if item["kind"] != "Pod" or fixtures.REFUSED.search(file.read_text("utf-8")) or "nodeName" in item["spec"]:
            continue
        claiming = {**item, "metadata": {**item["metadata"], "namespace": "visitors"}, "spec": item["spec"] | CLAIMED}
        for update in updates(claiming, policy):
            plain = without_claims(update.old)
            if may_see(plain, policy, facts):
                continue
            before, now, found = (
                {
                    (each.rule, each.finding.path)
                    for each in engine.validate(admission.decode(document), facts).having(Action.DENY)
                }
                for document in (admission.wrap(plain), admission.wrap(update.new), json.dumps(update.review).encode())
            )
            assert found >= now - before, (file.stem, update.name)


def without_claims(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "spec": {key: value for key, value in item["spec"].items() if key != "resourceClaims"}}


@pytest.mark.parametrize("known", [None, "gpu.nvidia.com"])
def test_a_fault_that_a_pod_with_a_claim_had_next_to_gpus_is_excused(known: str | None) -> None:
    """Such a pod tolerated the guard before, so another toleration makes nothing worse."""
    policy, facts = fixtures.settings("privileged-container")
    facts = replace(facts, claimed=Facts.of([claim(known, "vision")] if known else []).claimed)
    key = policy.guard.taint if policy.guard else ""
    tolerations = [{"key": key, "operator": "Exists"}, {"key": "example.com/other", "operator": "Exists"}]
    old, new = (
        {
            "metadata": {"name": "a", "namespace": "vision"},
            "spec": {
                **CLAIMED,
                "tolerations": some,
                "containers": [{"name": "a", "securityContext": {"privileged": True}}],
            },
        }
        for some in (tolerations[:1], tolerations)
    )
    assert update(Engine(policy, walk()), facts, "", "Pod", old, new).allowed


def test_a_long_name_is_not_compared_for_each_finding() -> None:
    """Each of thousands of findings in a container with a name of 1 MB would compare it with the name before."""
    meter = Meter()
    old, new = (
        {"spec": {"containers": [{"name": Text("a" * 1_000, meter, "name"), "env": [{}] * 100}]}} for _ in range(2)
    )
    places: list[Place] = [("spec", "containers", 0, "env", number) for number in range(100)]
    found = [Result("visible-devices", Action.DENY, Finding(place, "no")) for place in places]
    assert added(found, new, found, old, Allowance()) == []
    assert meter.count == 2 * 1_000  # each was hashed once
    other = {"spec": {"containers": [{"name": "b" * 1_000, "env": [{}] * 100}]}}
    assert added(found, other, found, old, Allowance()) == found
