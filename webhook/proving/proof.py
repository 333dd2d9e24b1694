"""Sends the probes, and reads from each answer whether the way to a GPU is shut."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from webhook.catalog.device_variables import VISIBLE, VOID
from webhook.model import Object
from webhook.policy.model import Policy
from webhook.proving.evidence import PoolNodes, SoftwareImage
from webhook.proving.probes import PLAIN, ProbeTarget, Untried, probes
from webhook.proving.sighting import Sighting
from webhook.proving.ways import GPUWay
from webhook.telemetry.release import UNKNOWN

CREATED = 201

PATCH = f"{VISIBLE}={VOID}"
"""What shuts a way that is patched."""

DOMAIN = r"\.slicewarden\.dev"
"""The end of the names of the webhooks (webhook/engine/registration.py)."""


class DryRun(NamedTuple):
    """The API server's answer to a dry run: the HTTP status, the message of a refusal, and the pod as admitted.

    The status is 0 if there was no answer. The answer to a real creation has the same form.
    """

    status: int
    message: str = ""
    pod: Object | None = None


Ask = Callable[[Object], DryRun]
"""Creates a pod as a dry run."""


class Outcome(StrEnum):
    """The result of a probe: the honest pod was admitted, a way is shut, a way is open, or the probe shows nothing."""

    ADMITTED = "admitted"
    SHUT = "shut"
    OPEN = "open"
    UNKNOWN = "not shown"


class Shown(NamedTuple):
    """What a probe showed. `by` names the part that shut the way, and `message` is the API server's, in one line.

    If the pod was started, `seen` is what it saw, and `message` says it in words.
    """

    way: GPUWay | None
    namespace: str
    outcome: Outcome
    by: str = ""
    message: str = ""
    seen: Sighting | None = None


class Tried(NamedTuple):
    """A target with the results of all its probes, the honest pod's first."""

    target: ProbeTarget
    shown: tuple[Shown, ...]


@dataclass(frozen=True)
class ProofRun:
    """All results on a cluster, and the release of Kubernetes that answered.

    `installed` is the digest of the policy from which the registration was made; empty if unknown. `registration` is
    the SHA-256 of the registration itself, also empty if unknown. `nodes` are the counts of each pool's nodes,
    `software` are the images of other parts, and `release` is that of Slicewarden. `cluster` is the UID of the
    namespace kube-system, and `user` the sender of the pods, as the API server names them; both are empty if unknown.
    `image` is that of the pods that were started.
    """

    policy: Policy
    installed: str
    kubernetes: str
    at: datetime
    tried: tuple[Tried, ...]
    untried: tuple[Untried, ...]
    registration: str = ""
    nodes: tuple[PoolNodes, ...] = ()
    software: tuple[SoftwareImage, ...] = ()
    release: str = UNKNOWN
    ran: bool = False
    """Whether the pods that admission let in were started."""
    cluster: str = ""
    user: str = ""
    image: str = ""

    def count(self, outcome: Outcome) -> int:
        """Return how many probes had an outcome; a target that was not tried counts as one."""
        probed = sum(each.outcome is outcome for tried in self.tried for each in tried.shown)
        return probed + (len(self.untried) if outcome is Outcome.UNKNOWN else 0)


def prove(policy: Policy, target: ProbeTarget, ask: Ask, rules: Iterable[str]) -> Tried:
    """Send the probes of a target, one after another. `rules` are the ids of all rules."""
    named = naming(rules)
    shown: list[Shown] = []
    admitted: set[bool] = set()  # whether the pods without a way, with a request and without one, were admitted
    for way, pod in probes(policy, target):
        answer, requests = ask(pod), way is None or way.gpus > 0
        if way in (None, PLAIN) and answer.status == CREATED:
            admitted.add(requests)
        twin = requests in admitted and not (way and way.unearned)
        found, by = outcome(way, answer, named, twin=twin)
        shown.append(Shown(way, pod["metadata"]["namespace"], found, by, " ".join(answer.message.split())))
    return Tried(target, tuple(shown))


def naming(rules: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern that finds the names of rules in the message of a denial. `rules` are the ids of all rules."""
    return re.compile(rf"(?:^|^\d+ findings: - | - )({'|'.join(rules)}): ")


_REFUSED = re.compile(
    rf'(?:admission webhook "[a-z-]+{DOMAIN}" denied the request'
    '|pods "[^"]*" is forbidden: '
    "ValidatingAdmissionPolicy 'slicewarden-[^']*'(?: with binding '[^']*')? denied request"
    "): (.*)",
    re.DOTALL,
)
"""How the API server begins a denial by the webhook (apiserver pkg/admission/plugin/webhook/errors), or by the
fallback (pkg/admission/plugin/policy/validating).
"""

_POD_SECURITY = re.compile(r'pods "[^"]*" is forbidden: violates PodSecurity "')
"""How the API server denies a pod by Pod Security (kubernetes staging/src/k8s.io/pod-security-admission)."""


def outcome(way: GPUWay | None, answer: DryRun, naming: re.Pattern[str], *, twin: bool) -> tuple[Outcome, str]:
    """Return the outcome of a probe, and the name of the part that shut its way.

    A denial by the way's own rule shuts the way. Any other denial does so only if the same pod without the way (its
    `twin`) was admitted. Otherwise it may be about something that an author can correct, and not about the way.
    """
    if way is None:  # the honest pod
        return (Outcome.ADMITTED if answer.status == CREATED else Outcome.UNKNOWN), ""
    if answer.status == CREATED:
        guarded = way.patched and answer.pod is not None and blind(answer.pod)
        return (Outcome.SHUT, PATCH) if guarded else (Outcome.OPEN, "")
    refused = _REFUSED.match(answer.message)
    named = naming.findall(refused[1]) if refused else []
    if way.rule in named:
        return Outcome.SHUT, way.rule
    if twin and named:
        return Outcome.SHUT, named[0]
    if twin and _POD_SECURITY.match(answer.message):
        return Outcome.SHUT, "Pod Security"
    return Outcome.UNKNOWN, ""


def blind(pod: Object) -> bool:
    """Return whether variables hide all GPUs from every container of an admitted pod, whatever its image sets.

    If several variables have the same name, the last one counts.
    """
    spec = pod["spec"]
    lists = (spec.get(key) or () for key in ("initContainers", "containers", "ephemeralContainers"))
    return all(_visible(each) == [VOID] for each in chain.from_iterable(lists))


def _visible(container: Object) -> list[object]:
    return [each.get("value") for each in container.get("env") or () if each["name"] == VISIBLE][-1:]
