"""Sends the probes, and reads from each answer whether its way is shut."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from webhook.catalog.device_variables import VISIBLE, VOID
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.proving.probes import Probe, ProbeTarget, Untried, probes
from webhook.proving.ways import GPUWay

CREATED = 201

DOMAIN = r"\.slicewarden\.dev"
"""The end of the names of the webhooks (webhook/engine/registration.py)."""


class DryRun(NamedTuple):
    """The API server's answer to a dry run: the HTTP status, the message of a refusal, and the pod as admitted.

    The status is 0 if there was no answer.
    """

    status: int
    message: str = ""
    pod: Object | None = None


Ask = Callable[[Object], DryRun]
"""Creates a pod as a dry run."""


class Outcome(StrEnum):
    """What a probe showed. A way is shut, or open; or the probe showed neither."""

    SHUT = "shut"
    OPEN = "open"
    UNKNOWN = "not shown"


class Shown(NamedTuple):
    """The outcome of a probe. `by` names what shut the way, and `message` is the API server's, in one line."""

    way: GPUWay | None
    namespace: str
    outcome: Outcome
    by: str = ""
    message: str = ""


class Tried(NamedTuple):
    """All probes of a target, the honest one first. Without an admitted honest pod, a denial shows little."""

    target: ProbeTarget
    shown: tuple[Shown, ...]


@dataclass(frozen=True)
class ProofRun:
    """All that was tried on a cluster, and the release of Kubernetes that answered."""

    policy: Policy
    kubernetes: str
    at: datetime
    tried: tuple[Tried, ...]
    untried: tuple[Untried, ...]

    def count(self, outcome: Outcome) -> int:
        """Return how many probes had an outcome; a target that was not tried counts as one."""
        probed = sum(each.outcome is outcome for tried in self.tried for each in tried.shown)
        return probed + (len(self.untried) if outcome is Outcome.UNKNOWN else 0)


def prove(policy: Policy, target: ProbeTarget, ask: Ask, rules: Iterable[str]) -> Tried:
    """Send the probes of a target, one after another. `rules` are the ids of all rules."""
    refusal = re.compile(rf'^admission webhook "[a-z.-]*{DOMAIN}" denied the request: .*?\b({"|".join(rules)}): ')
    return Tried(target, tuple(_shown(each, ask(each.pod), refusal) for each in probes(policy, target)))


FALLBACK = re.compile(r"ValidatingAdmissionPolicy 'slicewarden-[^']*'")
"""How the API server begins a denial by the fallback (apiserver pkg/admission/plugin/policy/validating)."""

POD_SECURITY = "violates PodSecurity"
"""How the API server denies a pod by Pod Security (kubernetes staging/src/k8s.io/pod-security-admission)."""


def _shown(probe: Probe, answer: DryRun, refusal: re.Pattern[str]) -> Shown:
    outcome, by = _outcome(probe.way, answer, refusal)
    return Shown(probe.way, probe.pod["metadata"]["namespace"], outcome, by, " ".join(answer.message.split()))


def _outcome(way: GPUWay | None, answer: DryRun, refusal: re.Pattern[str]) -> tuple[Outcome, str]:
    if way is None:  # the honest pod
        return (Outcome.SHUT, "") if answer.status == CREATED else (Outcome.UNKNOWN, "")
    if answer.status == CREATED:
        guarded = way.patched and answer.pod is not None and blind(answer.pod)
        return (Outcome.SHUT, f"{VISIBLE}={VOID}") if guarded else (Outcome.OPEN, "")
    if found := refusal.search(answer.message):
        return Outcome.SHUT, found[1]
    if FALLBACK.search(answer.message):
        return Outcome.SHUT, "fallback"
    if POD_SECURITY in answer.message:
        return Outcome.SHUT, "Pod Security"
    return Outcome.UNKNOWN, ""


def blind(pod: Object) -> bool:
    """Return whether every container of an admitted pod is told to see no GPU, whatever its image or sources say."""
    spec = pod["spec"]
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    return all({"name": VISIBLE, "value": VOID} in (each.get("env") or ()) for each in containers)
