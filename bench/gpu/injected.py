"""Makes the environment that the webhook gives to a container on a card, through the engine as in a cluster."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from webhook.api import admission, jsonpatch
from webhook.documents import documents
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.policy import load
from webhook.rules import walk

POLICY = Path(__file__).resolve().parents[2] / "policies" / "sample.yaml"
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "bench", "labels": {"slicewarden.dev/trust": "trusted"}},
}


class Denied(Exception):
    """The webhook denies the pod. The message is the reason."""


def injected(
    product: str,
    mib: int,
    replicas: int,
    written: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment that the webhook gives to a trusted pod's only container.

    Its author has set some variables. The pod lands on a node whose cards have the given MiB and are time-sliced into
    the given number of replicas. The policy is the sample, with every framework capped. Raises Denied.
    """
    (container,) = admitted(product, mib, replicas, written, annotations)["spec"]["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def admitted(
    product: str,
    mib: int,
    replicas: int,
    written: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    *,
    shim: bool = False,
) -> dict[str, Any]:
    """Return the pod of `injected` after the webhook, with the shim if the policy should turn it on. Raises Denied."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "greedy",
            "namespace": "bench",
            "annotations": {"slicewarden.dev/trust": "trusted", **(annotations or {})},
        },
        "spec": {
            "containers": [
                {
                    "name": "greedy",
                    "image": "greedy",
                    "resources": {"limits": {"nvidia.com/gpu": 1}},
                    "env": [{"name": name, "value": value} for name, value in (written or {}).items()],
                }
            ]
        },
    }
    request = admission.decode(admission.wrap(pod))
    verdict = _engine(shim).judge(request, _facts(product, mib, replicas))
    if not verdict.allowed:
        raise Denied(verdict.malformed or "; ".join(result.finding.message for result in verdict.results))
    return dict(jsonpatch.apply(request.object or {}, verdict.patch))


@cache
def _engine(shim: bool) -> Engine:
    (document, *_), _ = documents.read(POLICY.read_text("utf-8"), POLICY.name)
    document.value["spec"]["memory"] = {"shim": "Inject"} if shim else {}
    rules = walk()
    return Engine(load.load([document], [rule.id for rule in rules], POLICY.name), rules)


@cache
def _facts(product: str, mib: int, replicas: int) -> Facts:
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(mib),
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "card", "labels": labels}}
    return Facts.of([NAMESPACE, node])
