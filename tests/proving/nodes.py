"""An API server that stores the objects of a run, with nodes that end its pods at once."""

import json
from collections.abc import Callable
from typing import Any

from tests.proving.pretended import admitting, changing
from webhook.engine.engine import Engine
from webhook.facts.snapshot import Facts
from webhook.model import Object
from webhook.proving import running
from webhook.proving.proof import CREATED, DryRun
from webhook.proving.runner import PODS, CallFailed
from webhook.proving.running import HOSTNAME
from webhook.proving.ways import GPUWay

NAMESPACE = "vision"
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def report(cards: int | str, files: int = 0, unclear: int = 0, memory: Object | None = None) -> str:
    """What a probe writes that sees so many cards by NVML; or that could not look, and why."""
    uuids = [f"GPU-{number}" for number in range(cards if isinstance(cards, int) else 0)]
    nvml: object = {"error": cards}
    if isinstance(cards, int):
        devices = [{"uuid": uuid, "name": "A100", "mib": 40960} for uuid in uuids]
        nvml = {"count": cards, "mig": 0, "devices": devices, "why": "" if cards else "there is no libnvidia-ml.so.1"}
    value = {
        "probe": 1,
        "files": {"count": files + unclear, "usable": files, "unclear": unclear, "names": []},
        "nvml": nvml,
        "cuda": {"count": 0, "uuids": [], "context": None, "why": "there is no libcuda.so.1"},
        "memory": memory,
        "frameworks": {},
        "cut": False,
    }
    return json.dumps(value)


Kubelet = Callable[[Object], Object | None]
"""Returns the status of a pod; None if it never ends."""


def seen(pod: Object) -> int:
    """How many cards NVIDIA's runtime gives a pod: those of its request, or both of the node by its variables."""
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == "probe"]
    asked = sum(int(amount) for key, amount in container["resources"]["limits"].items() if "/" in key)
    values = [each.get("value") for each in container.get("env", ()) if each["name"] == VISIBLE]
    if asked:
        return asked
    return 0 if values[-1:] in (["void"], []) else 2


def ended(text: str, name: str = "probe") -> Object:
    """The status of a pod whose container has ended with a message."""
    state = {"terminated": {"exitCode": 0, "reason": "Completed", "message": text}}
    return {"phase": "Succeeded", "containerStatuses": [{"name": name, "state": state}]}


def kubelet(pod: Object) -> Object:
    """End a pod with what it saw."""
    before = [{**each, "name": "before"} for each in ended(report(2))["containerStatuses"]]
    return {**ended(report(seen(pod))), "initContainerStatuses": before}


class Interruption(BaseException):
    """Ends a run in the midst of a call, as Ctrl-C does."""


def ours(pod: Object) -> bool:
    """Whether a stored pod is one that was created here, and not one that somebody put in its place."""
    return str(pod["metadata"].get("uid")).startswith("uid-")


class PretendedNodes:
    """A ProbeApi. `calls` counts what was asked; `before` is called before each, with what it is about to do."""

    def __init__(self, engine: Engine, facts: Facts, kubelet: Kubelet = kubelet) -> None:
        self._admit, self._facts, self._kubelet = admitting(engine, facts), facts, kubelet
        self._change = changing(engine, facts)
        self.stored: dict[tuple[str, str], Any] = {}
        self.pods: list[Any] = []
        """Every pod that was ever created and may start."""
        self.held: list[Any] = []
        """Every other one."""
        self.calls = 0
        self.before: Callable[[str], None] = lambda _: None
        self.refusal: DryRun | None = None

    def _called(self, what: str, namespace: str = NAMESPACE) -> None:
        assert namespace == NAMESPACE
        self.calls += 1
        self.before(what)

    def create(self, plural: str, item: Object) -> DryRun:
        self._called("create")
        if (plural, item["metadata"]["name"]) in self.stored:
            return DryRun(409, "already exists")
        if plural == PODS:
            assert not any(kind == PODS and ours(pod) for (kind, _), pod in self.stored.items()), "one at a time"
            if self.refusal is not None:
                return self.refusal
            answer: DryRun = self._admit(item)
            if answer.status != CREATED:
                return answer
            item = answer.pod or {}
            (self.held if item["spec"].get("schedulingGates") else self.pods).append(item)
        made = {**item, "metadata": {**item["metadata"], "uid": f"uid-{self.calls}"}}
        self.stored[plural, made["metadata"]["name"]] = made
        self._called("created")
        return DryRun(CREATED, "", made)

    def read(self, plural: str, namespace: str, name: str) -> Object | None:
        self._called("read", namespace)
        found = self.stored.get((plural, name))
        if found is None:
            return None
        node = found["spec"].get("nodeSelector", {}).get(HOSTNAME, "")
        return {**found, "spec": {**found["spec"], "nodeName": node}, "status": self._kubelet(found) or {}}

    def listed(self, plural: str, namespace: str) -> list[Object]:
        self._called("list", namespace)
        return [
            item
            for (kind, _), item in self.stored.items()
            if kind == plural and item["metadata"]["labels"].get(running.MANAGED_BY) == running.MANAGER
        ]

    def annotate(self, plural: str, namespace: str, name: str, annotations: dict[str, str]) -> None:
        self._called("annotate", namespace)
        if (plural, name) not in self.stored:
            raise CallFailed(f"{name} is not found")
        self.stored[plural, name]["metadata"]["annotations"].update(annotations)

    def delete(self, plural: str, namespace: str, name: str, uid: str = "") -> None:
        self._called("delete", namespace)
        found = self.stored.get((plural, name))
        if found and uid in ("", found["metadata"].get("uid", "")):
            del self.stored[plural, name]

    def changed(self, way: GPUWay, namespace: str, name: str, body: Object) -> DryRun:
        self._called("change", namespace)
        answer: DryRun = self._change(way, self.stored[PODS, name], body)
        return answer

    def facts(self) -> Facts:
        self._called("facts")
        return self._facts
