"""Writes a PolicyTest for a generated policy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from webhook.catalog import device_variables
from webhook.documents import goyaml_writer
from webhook.model import Object
from webhook.starter.inventory import GPU, NodeGroup
from webhook.starter.plan import ANNOTATION, TRUST_LABEL
from webhook.starter.starter import Starter


def tests(starter: Starter, policy: str, facts: Iterable[str]) -> str:
    """Write a PolicyTest for a generated policy. `policy` and `facts` are paths relative to the test's folder."""
    cases = [_case(group, name, starter) for group, name in zip(starter.groups, starter.pools, strict=True)]
    cases += _slices(starter)
    cases.append(
        {
            "name": "a pod cannot see GPUs by a variable",
            "object": _a_pod("web", "default", {}, env=[{"name": device_variables.VISIBLE, "value": "all"}]),
            "expect": {"verdict": "denied", "rules": ["visible-devices"]},
        }
    )
    spec = {"policy": policy, "facts": [*facts], "cases": cases}
    if not spec["facts"]:
        del spec["facts"]
    value = {
        "apiVersion": "slicewarden.dev/v1alpha1",
        "kind": "PolicyTest",
        "metadata": {"name": starter.policy.name},
        "spec": spec,
    }
    head = "# Tests of the policy that `slicewarden policy init` made: `slicewarden test` runs them. Add your own.\n"
    return head + goyaml_writer.write(value)


def _case(group: NodeGroup, name: str, starter: Starter, count: int = 1) -> Object:
    """Write the case of a pod that selects a node of a pool, requests what it offers, and lands in the pool."""
    node = group.nodes[0]
    resource = next(iter(node.resources), GPU)
    pool = starter.policy.pools[starter.pools.index(name)]
    selector = dict(pool.nodes.labels)
    many = {r.key: node.node.labels.get(r.key, min(r.values)) for r in group.requirements if r.operator == "In"}
    trust = {ANNOTATION: "trusted" if group.shared else "untrusted"}
    namespace = "trusted-team" if group.shared else "default"
    pod = _a_pod("train", namespace, {resource: count}, annotations=trust, selector={**many, **selector})
    if others := [r for r in group.requirements if group.maker and r.operator == "NotIn"]:
        expressions = [{"key": r.key, "operator": r.operator, "values": sorted(r.values)} for r in others]
        required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        pod["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    if own := sorted({taint.key for taint in node.taints if not any(taint.key == t["key"] for t in pool.tolerations)}):
        pod["spec"]["tolerations"] = [{"key": key, "operator": "Exists"} for key in own]
    case: dict[str, Any] = {"name": f"a pod that selects pool {name} lands there", "object": pod}
    if group.shared:
        labelled = {"name": namespace, "labels": {TRUST_LABEL: "trusted"}}
        case["facts"] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": labelled}]
    return {**case, "expect": {"verdict": "warned" if group.uncapped else "allowed", "pool": name}}


def _slices(starter: Starter) -> Iterator[Object]:
    """Write a case with a pod that requests two slices of a resource that no pool of whole GPUs offers."""
    for group, name in zip(starter.groups, starter.pools, strict=True):
        resource = next(iter(group.resources), GPU)
        if group.shared and not any(resource in other.resources for other in starter.groups if not other.shared):
            expect = {"verdict": "denied", "rules": ["multiple-slices"]}
            title = f"two slices of pool {name} are refused"
            yield {**_case(group, name, starter, count=2), "name": title, "expect": expect}
            return


def _a_pod(
    name: str,
    namespace: str,
    limits: Mapping[str, int],
    *,
    annotations: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
    env: Sequence[Object] = (),
) -> Object:
    container: dict[str, Any] = {"name": "main", "image": "example.com/image"}
    if limits:
        container["resources"] = {"limits": dict(limits)}
    if env:
        container["env"] = [*env]
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = dict(annotations)
    spec: dict[str, Any] = {"containers": [container]}
    if selector:
        spec["nodeSelector"] = dict(selector)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
