"""Whoever does what a denial says gets through: each concrete way out of a message is taken, and judged again."""

import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests import ROOT
from tests.support.fixtures import FOLDERS, engine_of, files_of, fixture, verb
from tests.support.policies import POLICY, policy_of
from webhook import rules
from webhook.api import admission
from webhook.cli import inputs
from webhook.documents.files import alone
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Action, Finding, Request, Result
from webhook.placing.placing import placing
from webhook.policy.model import Policy
from webhook.scan import reduced
from webhook.starter import starter

Object = dict[str, Any]

CLUSTERS = {file.stem: file for file in sorted((ROOT / "tests/clusters").glob("*.yaml"))}

STEPS = 60
"""The most changes that a pod of the fixtures needs."""


def parent(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        value = value[key]
    return value


def removed(value: Object, path: tuple[Any, ...]) -> bool:
    try:
        del parent(value, path)[path[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True


def annotated(value: Object, path: tuple[Any, ...], key: str, text: str) -> bool:
    """Annotate the pod of a place in an object."""
    above = path[: path.index("spec")] if "spec" in path else ()
    while True:  # the outermost metadata whose spec has containers
        holder = value
        for each in above:
            holder = holder[each]
        if "containers" in holder.get("spec", {}):
            metadata = holder.get("metadata") or {}
            holder["metadata"] = {**metadata, "annotations": {**(metadata.get("annotations") or {}), key: text}}
            return True
        deeper = path[: path.index("spec", len(above) + 1)] if "spec" in path[len(above) + 1 :] else None
        if deeper is None:
            return False
        above = deeper


def containers(value: Any) -> Iterator[Object]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key in ("containers", "initContainers") and isinstance(each, list):
                yield from (one for one in each if isinstance(one, dict))
            yield from containers(each)
    elif isinstance(value, list):
        for each in value:
            yield from containers(each)


def requested(value: Object, change: Any) -> bool:
    """Change what containers request; `change` returns the new name and amount of one that is to be another."""
    done = False
    for container in containers(value):
        for amounts in (container.get("resources") or {}).values():
            for name in [*amounts] if isinstance(amounts, dict) else ():
                if (new := change(name, amounts[name])) is not None:
                    del amounts[name]
                    amounts[new[0]] = new[1]
                    done = True
    return done


def leave(value: Object, policy: Policy, most: int) -> bool:
    """Leave an amount to the first container that requests GPUs, and none to the others."""
    first = next(
        (each for each in containers(value) if any(name in policy.gpu_resources for name in limits(each))), None
    )
    if first is None:
        return False
    for container in containers(value):
        for amounts in (container.get("resources") or {}).values():
            for name in [*amounts] if isinstance(amounts, dict) else ():
                if name in policy.gpu_resources:
                    amounts.pop(name) if container is not first else amounts.update({name: most})
    return True


def limits(container: Object) -> Object:
    return (container.get("resources") or {}).get("limits") or {}


def mounts(value: Object, path: tuple[Any, ...], host_path: str) -> Iterator[tuple[Object, Object, Object]]:
    """The volumes of a path of the host, below the pod's list of volumes, with each container and mount of them."""
    for volume in [*(parent(value, (*path, 0)) or ())]:
        if (volume.get("hostPath") or {}).get("path") == host_path:
            for container in containers(value):
                for each in [*(container.get("volumeMounts") or ())]:
                    if each.get("name") == volume["name"]:
                        yield volume, container, each


def without_volume(value: Object, path: tuple[Any, ...], host_path: str) -> bool:
    for _, container, mount in [*mounts(value, path, host_path)]:
        container["volumeMounts"].remove(mount)
    volumes = parent(value, (*path, 0))
    kept = [each for each in volumes if (each.get("hostPath") or {}).get("path") != host_path]
    done = len(kept) < len(volumes)
    volumes[:] = kept
    return done


def read_only(value: Object, path: tuple[Any, ...], host_path: str) -> bool:
    found = [mount for _, _, mount in mounts(value, path, host_path)]
    for mount in found:
        mount["readOnly"] = True
    return bool(found)


SELECTION = re.compile(r"node selection (.+) excludes its nodes")
PARENTHESES = re.compile(r" \([^()]*\)")


def ways(finding: Finding, policy: Policy) -> Iterator[Any]:
    """Yield a change for each concrete way out of a message; it returns whether it could be made."""
    path, tail = finding.path, PARENTHESES.sub("", finding.message.rpartition("; ")[2])
    found = re.match(r"request (\S+?)(?: or [^,]+?)? to stay on those nodes", tail)
    if found and not found[1].endswith("*"):
        yield lambda value, name=found[1]: requested(
            value, lambda old, n: (name, n) if old in policy.gpu_resources else None
        )
    for found in re.finditer(r"(?:annotate the pod with|set the annotation) (\S+): (trusted|untrusted)", tail):
        yield lambda value, found=found: annotated(value, path, found[1], found[2])
    if found := re.match(r"there are ([^,: ]+)", tail):
        key = re.split(r"=| in | not in ", SELECTION.search(finding.message)[1])[0]  # type: ignore[index]
        if path[-1] == "nodeSelector":
            yield lambda value, key=key, to=found[1]: bool(parent(value, (*path, key)).update({key: to}) or True)
    if found := re.match(r"request at most (\d+)( in all containers together)?(?:,|$)", tail):
        yield (
            lambda value, most=int(found[1]), whole=found[2]: (
                leave(value, policy, most)
                if whole
                else requested(value, lambda old, _: (old, most) if old == path[-1] else None)
            )
        )
    if (found := re.match(r"request ([^\s*]+)(?: or \S+)*$", tail)) and path[-2:-1] in (("limits",), ("requests",)):
        yield lambda value, name=found[1]: requested(value, lambda old, n: (name, n) if old == path[-1] else None)
    if tail.startswith("ask for 1 in all containers"):
        yield lambda value: leave(value, policy, 1)
    if path[-1] == "volumes" and (found := re.match(r"hostPath (\S+)", finding.message)):
        host = found[1]
        if tail.startswith("set readOnly: true on every mount of it"):
            yield lambda value: read_only(value, path, host)
        if re.match(r"(?:.*, or )?remove the volume$", tail):
            yield lambda value: without_volume(value, path, host)
    if re.match(r"(?:.*, or )?remove it(?:$|, and request|, or)", tail):
        if selection := SELECTION.search(finding.message):
            key = re.split(r"=| in | not in ", selection[1])[0]
            if path[-1] == "nodeSelector":
                yield lambda value, key=key: removed(value, (*path, key))
        else:
            whole = path[-1] in ("mountPath", "devicePath", "value")  # the entry of the list is the mount or variable
            yield lambda value: removed(value, path[:-1] if whole else path)


def denials(engine: Engine, facts: Facts, request: Request) -> list[Result]:
    verdict = engine.judge(request, facts)
    assert verdict.malformed is None
    return verdict.having(Action.DENY)


@cache
def concrete(rule: str) -> list[Any]:
    """The denied fixtures of a rule that an author creates, and of which a message has a concrete way out."""
    found = []
    for file in files_of(rule):
        request, (engine, facts) = fixture(file)[2], engine_of(rule)
        if verb(file) != "deny" or request.old_object is not None or request.operation != "CREATE":
            continue
        verdict = engine.judge(request, facts)
        if verdict.malformed is None and any(
            next(ways(each.finding, engine.policy), None) for each in verdict.having(Action.DENY)
        ):
            found.append(file)
    return found


def taken(engine: Engine, facts: Facts, request: Request, number: int) -> tuple[Request, list[Result]]:
    """Do what each message says, by its way of this number if it has so many; return what is still denied."""
    for _ in range(STEPS):
        denied = denials(engine, facts, request)
        for result in denied:
            value = copy.deepcopy(request.object)
            assert value is not None
            offered = [*ways(result.finding, engine.policy)]
            if offered and offered[min(number, len(offered) - 1)](value):
                changed = replace(request, object=value)
                left = denials(engine, facts, changed)
                assert (result.rule, result.finding) not in [(each.rule, each.finding) for each in left]
                request = changed
                break
        else:
            return request, denied
    raise AssertionError(f"no end: {denied[0].text}")


def test_most_denials_of_pods_have_a_concrete_way_out() -> None:
    assert sum(len(concrete(rule)) for rule in FOLDERS) > 100
    assert all(map(concrete, ("unsteered-pod", "visible-devices", "device-path")))


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("rule", FOLDERS)
def test_what_a_message_says_mends_it(rule: str, number: int) -> None:
    engine, facts = engine_of(rule)
    for file in concrete(rule):
        mended, left = taken(engine, facts, fixture(file)[2], number)
        for result in left:
            changes = ways(result.finding, engine.policy)
            assert not any(change(copy.deepcopy(mended.object)) for change in changes), file.stem


def pod(name: str, resource: str, trust: str | None, selector: Object) -> Object:
    annotations = {"slicewarden.dev/trust": trust} if trust else {}
    container = {"name": "c", "image": "i", "resources": {"limits": {resource: 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "annotations": annotations},
        "spec": {"containers": [container], "nodeSelector": selector},
    }


@cache
def cluster(name: str) -> tuple[Engine, Facts, list[Object]]:
    """A cluster with the policy that fits it, in which team is granted trust."""
    labels = {"slicewarden.dev/trust": "trusted"}
    team = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": labels}}
    items = [*(dict(item.value) for item in inputs.load_objects(str(CLUSTERS[name]))), team]
    policy = starter.make(reduced.reduced(items, policy_of(POLICY)), "cluster.json").policy
    return Engine(policy, rules.walk()), Facts.of(items), items


def uncordoned(item: Object) -> Object:
    if item["kind"] != "Node":
        return item
    spec = item.get("spec") or {}
    taints = [each for each in spec.get("taints") or () if each["key"] != "node.kubernetes.io/unschedulable"]
    return {**item, "spec": {**spec, "unschedulable": False, "taints": taints}}


@pytest.mark.parametrize("name", [name for name in CLUSTERS if name != "karpenter-zero"])  # it has no nodes with GPUs
def test_whoever_selects_nodes_gets_a_pod_that_runs(name: str) -> None:
    """For each label of a known node that a pool selects by, each resource and each trust: the ways out are taken."""
    engine, facts, items = cluster(name)
    keys = {requirement.key for pool in engine.policy.pools for requirement in pool.nodes.requirements}
    selectors = {(key, node.labels[key]) for node in facts.nodes for key in keys & node.labels.keys()}
    selectors |= {(key, "absent") for key, _ in selectors}
    offered = {
        resource for node in facts.nodes for resource in node.resources if resource in engine.policy.gpu_resources
    }
    runs = 0
    for key, label in sorted(selectors):
        for resource in sorted(offered):
            for trust in (None, "trusted"):
                value = pod("asking", resource, trust, {key: label})
                request = admission.decode(admission.wrap(value))
                for number in range(3):
                    mended, left = taken(engine, facts, request, number)
                    assert not left or not any(map(list, (ways(each.finding, engine.policy) for each in left)))
                    if mended is not request and not left:
                        free = [uncordoned(item) for item in items if item["kind"] in ("Node", "Namespace")]
                        (place,) = placing([alone(mended.object)], free, engine).places  # type: ignore[arg-type]
                        assert place.outcome
                        assert place.outcome.node, (value, mended.object, place.outcome)
                        runs += 1
    assert runs
