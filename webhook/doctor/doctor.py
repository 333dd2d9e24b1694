"""Checks an installation that has been read from a cluster. Each failed check says how to correct it."""

import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from certs.read import Certificate, blocks, certificates, signed
from webhook.doctor.installation import Installation, PolicyAnswers, ReadFailure, arguments
from webhook.engine import registered
from webhook.facts.kind import BIND
from webhook.facts.snapshot import Facts
from webhook.fallback import current
from webhook.fallback.answers import ValidationActions
from webhook.fallback.comparison import compare
from webhook.gpu import guard
from webhook.memory.driver import nodes, start
from webhook.model import Mode, Object
from webhook.policy.model import Policy, Switch
from webhook.rules import walk
from webhook.text.words import listed, several, shown
from webhook.usage.scraped import NodeScrape

SOON = timedelta(days=14)
"""The remaining life below which a certificate's renewal is overdue. It is due 30 days before the end."""

OLD = 600.0
"""Seconds after which facts are too old: the API server sends a message about each kind every five minutes."""

NAMES = ("slicewarden.slicewarden-system.svc",)
"""The names under which the API server calls the webhook."""

REGISTER = "write the registration again (`slicewarden registration`) and apply your overlay"
KEEP = "see the log of the controller or of cert-manager; `slicewarden certs keep` does it now"
LOGS = "see `kubectl logs --namespace slicewarden-system deployment/slicewarden`"


class CheckState(StrEnum):
    """The result of a check. It is UNKNOWN if an object that the check needs could not be read."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "not known"


class Check(NamedTuple):
    """The result of a check: its name, its state, one line about it, and the way out if it failed."""

    name: str
    state: CheckState
    says: str
    way: str = ""


@dataclass(frozen=True)
class Examined:
    """The input of the checks. `policy` is the installed one; None if it cannot be used, and then `why` is the reason.

    `findings` come from the policy's lints: whether each is an error, its lint and its message. `facts` is None if they
    could not be read. `hooked` has the answers of the agents, by node, for the nodes where NVIDIA's hook limits
    containers.
    """

    read: Installation
    asked: PolicyAnswers
    now: datetime
    policy: Policy | None
    why: str = ""
    own: Policy | None = None
    facts: Facts | None = None
    findings: Sequence[tuple[bool, str, str]] = ()
    hooked: Mapping[str, NodeScrape | ReadFailure] = field(default_factory=dict)


def examine(of: Examined, checks: "Sequence[Checker]" = ()) -> list[Check]:
    """Run these checks. By default they are those of an installation whose policy is a file."""
    return [check for each in checks or CHECKS for check in each(of)]


def mode(deployment: Object | ReadFailure) -> Mode | None:
    """Return the mode in which a Deployment runs the webhook; None if it could not be read."""
    if isinstance(deployment, ReadFailure):
        return None
    return Mode.AUDIT if "--audit-only" in arguments(deployment) else Mode.ENFORCE


def ready(pods: Object | ReadFailure) -> list[Object]:
    """Return the pods that are ready and are not being deleted."""
    if isinstance(pods, ReadFailure):
        return []
    return [each for each in pods.get("items") or () if _is_ready(each)]


# The checks


def replicas(of: Examined) -> Iterator[Check]:
    """Check that pods of the webhook are ready, and on several nodes."""
    name, deployment, pods = "replicas", of.read.deployment, of.read.pods
    if isinstance(deployment, ReadFailure):
        yield _unread(name, deployment, "the Deployment slicewarden does not exist", "apply an overlay of manifests/")
        return
    if isinstance(pods, ReadFailure):
        yield not_known(name, pods)
        return
    wanted, running = int(_spec(deployment).get("replicas", 1)), ready(pods)
    nodes = {str(_spec(each).get("nodeName")) for each in running}
    if not running:
        yield Check(name, CheckState.ERROR, f"no replica of {wanted} is ready", LOGS)
    elif len(running) < wanted:
        yield Check(name, CheckState.WARNING, f"{len(running)} of {wanted} replicas are ready", LOGS)
    elif len(nodes) == 1 and wanted > 1:
        says = f"all {wanted} replicas run on node {shown(*nodes, quotes=False)}, which one failure takes away"
        yield Check(name, CheckState.WARNING, says, "add nodes without GPUs, and restart the Deployment")
    else:
        yield Check(name, CheckState.OK, f"{several(wanted, 'replica')} ready on {several(len(nodes), 'node')}")


def in_mode(of: Examined) -> Iterator[Check]:
    """Check that the webhook and its registration have the same mode."""
    running, hooks = mode(of.read.deployment), [*_hooks(of.read)]
    if running is None or not hooks:
        return
    ignored = all(hook.get("failurePolicy") == "Ignore" for hook in hooks)
    if running is Mode.AUDIT and not ignored:
        says = "the webhook runs in audit mode, but its registration has failurePolicy Fail"
        yield Check("mode", CheckState.WARNING, says, "apply the component audit-mode, which sets both")
    elif running is Mode.ENFORCE and ignored:
        says = "the policy is enforced, but failurePolicy Ignore allows every request while the webhook is down"
        yield Check("mode", CheckState.WARNING, says, REGISTER)
    else:
        text = (
            "nothing is denied or patched" if running is Mode.AUDIT else "what the policy denies is patched or refused"
        )
        yield Check("mode", CheckState.OK, f"{running}: {text}")


def policy(of: Examined) -> Iterator[Check]:
    """Check that the installed policy is usable, equals the local one, and is the one that the replicas use."""
    if of.policy is None:
        if isinstance(of.read.policy, ReadFailure) and not of.read.policy.absent:
            yield not_known("policy", of.read.policy)
        else:
            yield Check("policy", CheckState.ERROR, of.why, "put your policy in, and apply your overlay")
        return
    if of.own is not None and of.own.digest != of.policy.digest:
        says = f"policy {of.policy.name} {of.policy.digest} is installed, not {of.own.name} {of.own.digest}"
        yield Check("policy", CheckState.ERROR, says, "apply your overlay with this policy")
        return
    judging = {digest for series in _series(of) for digest in _labels(series, "slicewarden_policy_info", "hash")}
    if others := sorted(judging - {of.policy.digest}):
        says = f"a replica judges by policy {listed(others, 3)}, but {of.policy.digest} is installed"
        yield Check("policy", CheckState.WARNING, says, "see `kubectl rollout status` of the Deployment")
        return
    yield Check("policy", CheckState.OK, f"{of.policy.name} {of.policy.digest}")


def lints(of: Examined) -> Iterator[Check]:
    """Run the policy's lints with the facts of the cluster. The guard has a separate check."""
    if of.policy is None:
        return
    found = [(wrong, lint, message) for wrong, lint, message in of.findings if lint != "unguarded-node"]
    for wrong, lint, message in found:
        state = CheckState.ERROR if wrong else CheckState.WARNING
        yield Check("lint", state, f"{lint}: {message}", f"see `slicewarden policy lints {lint}`")
    if not found:
        yield Check("lint", CheckState.OK, "the policy's lints find nothing")


def registration(of: Examined) -> Iterator[Check]:
    """Check that the webhook configurations exist, and are the ones that the policy needs."""
    found = [each for each in of.read.configurations if not isinstance(each, ReadFailure)]
    for each in of.read.configurations:
        if isinstance(each, ReadFailure) and not each.absent:
            yield not_known("registration", each)
            return
    if of.policy is None:
        return
    kinds = dict(zip(registered.KINDS, of.read.configurations, strict=True))
    found = [{**each, "kind": kind} for kind, each in kinds.items() if not isinstance(each, ReadFailure)]
    compared = registered.compare(of.policy, found)
    for line in compared.differences:
        yield Check("registration", CheckState.ERROR, line, REGISTER)
    if not compared.differences:
        yield Check("registration", CheckState.OK, f"made from policy {compared.digest}")


def fallback(of: Examined) -> Iterator[Check]:
    """Check that the fallback is installed, is the one that the policy needs, and is as strict as it should be."""
    name, lists = "fallback", of.read.fallback
    for each in lists:
        if isinstance(each, ReadFailure) and not each.absent:
            yield not_known(name, each)
            return
    if of.policy is None:
        return
    found = fallback_objects(lists)
    audits = mode(of.read.deployment) is Mode.AUDIT
    watched = _watched(of.read.deployment)
    answer = watched or current.answer_of(found)
    steers = " --mutate --facts FACTS" if current.steers(found) else ""
    way = f"`slicewarden fallback --policy POLICY --actions {answer}{steers} | kubectl apply -f -`"
    if not found:
        yield _without_fallback(of, answer, way, audits=audits)
        return
    if audits and not current.only_records(found):
        says = f"the webhook runs in audit mode, but the fallback denies: actions {current.told(found)}"
        yield Check(
            name, CheckState.WARNING, says, "list the component fallback before audit-mode, and apply your overlay"
        )
        return
    compared = compare(of.policy, walk(), found, watched, audit=audits, facts=of.facts)
    for line in compared.differences:
        yield Check(name, CheckState.ERROR, line, "delete it" if line.endswith("delete it") else way)
    if not compared.differences:
        yield Check(name, CheckState.OK, f"made from policy {compared.digest}, actions: {compared.actions}")


def fallback_objects(lists: Iterable[Object | ReadFailure]) -> list[Object]:
    """Return the policies and bindings of a fallback from the lists that were read, each with its kind."""
    return [
        {**item, "kind": kind}
        for kind, each in zip((*current.KINDS, *current.MUTATING), lists, strict=True)
        if not isinstance(each, ReadFailure)
        for item in each.get("items") or ()
    ]


def _without_fallback(of: Examined, answer: ValidationActions, way: str, *, audits: bool) -> Check:
    if of.asked.fallback:
        return Check("fallback", CheckState.OK, "it comes from the API server's own files, and denies the test pod")
    if _watched(of.read.deployment):
        return Check(
            "fallback", CheckState.ERROR, f"the webhook watches for a fallback {answer}, but none is installed", way
        )
    if audits:
        return Check("fallback", CheckState.OK, "none is needed, because audit mode denies nothing")
    if isinstance(of.read.fallback[0], ReadFailure):
        return Check("fallback", CheckState.OK, f"none: this API server has no {current.KINDS[0]}, which 1.30 brought")
    return Check(
        "fallback",
        CheckState.WARNING,
        f"it is not installed: {current.LOST}",
        way.replace(ValidationActions.DENY, ValidationActions.BY_RULE),
    )


def _watched(deployment: Object | ReadFailure) -> ValidationActions | None:
    """Return the configured answer of the fallback that the webhook watches."""
    for argument in arguments(deployment):
        option, _, value = argument.partition("=")
        if option == "--fallback" and value in set(ValidationActions):
            return ValidationActions(value)
    return None


def certificate(of: Examined) -> Iterator[Check]:
    """Check the serving certificate: its names, its dates, and that a CA of every caBundle signed it."""
    serving = of.read.serving
    if isinstance(serving, ReadFailure):
        if isinstance(of.read.deployment, ReadFailure):
            return
        yield _unread("certificate", serving, "the Secret of the serving certificate does not exist", KEEP)
        return
    pem = _decoded((serving.get("data") or {}).get("tls.crt"))
    try:
        leaf = certificates(pem)[0]
    except ValueError:
        yield Check("certificate", CheckState.ERROR, "the Secret has no certificate under tls.crt", KEEP)
        return
    yield _leaf(leaf, of.now)
    hooks = [*_hooks(of.read)]
    bundles = {str(hook.get("name")): _decoded((hook.get("clientConfig") or {}).get("caBundle")) for hook in hooks}
    wrong = [name for name, bundle in bundles.items() if not any(signed(pem, ca) for ca in blocks(bundle))]
    if wrong:
        empty = all(not bundles[name].strip() for name in wrong)
        what = "no caBundle" if empty else "a caBundle without the CA that signed the serving certificate"
        yield Check(
            "caBundle", CheckState.ERROR, f"{listed(wrong, 3)}: {what}, so the API server refuses to call", KEEP
        )
    elif bundles:
        yield Check(
            "caBundle", CheckState.OK, f"{several(len(bundles), 'webhook')} trust the CA of the serving certificate"
        )


def _leaf(leaf: Certificate, now: datetime) -> Check:
    if missing := [name for name in NAMES if name not in leaf.names]:
        return Check("certificate", CheckState.ERROR, f"the serving certificate lacks the name {missing[0]}", KEEP)
    if not leaf.holds(now):
        when = f"ended {leaf.end:%Y-%m-%d}" if leaf.end < now else f"begins {leaf.start:%Y-%m-%d}"
        return Check("certificate", CheckState.ERROR, f"the serving certificate {when}", KEEP)
    if leaf.end - now < SOON:
        return Check("certificate", CheckState.WARNING, f"the serving certificate ends {leaf.end:%Y-%m-%d}", KEEP)
    return Check("certificate", CheckState.OK, f"valid until {leaf.end:%Y-%m-%d}")


def endpoints(of: Examined) -> Iterator[Check]:
    """Check that the Service has endpoints that are ready."""
    name, slices = "endpoints", of.read.endpoints
    if isinstance(slices, ReadFailure):
        yield not_known(name, slices)
        return
    each = [one for item in slices.get("items") or () for one in item.get("endpoints") or ()]
    count = sum((one.get("conditions") or {}).get("ready") is not False for one in each)
    if count:
        yield Check(name, CheckState.OK, f"the Service has {several(count, 'ready endpoint')}")
    else:
        yield Check(name, CheckState.ERROR, "the Service slicewarden has no ready endpoint", LOGS)


def facts_age(of: Examined) -> Iterator[Check]:
    """Check that every replica has facts, and that they are not too old."""
    name = "facts"
    if isinstance(of.read.pods, ReadFailure) or not ready(of.read.pods):
        return
    for read in of.asked.metrics.values():
        if isinstance(read, ReadFailure):
            way = "allow `get` of pods/proxy in slicewarden-system, or look at slicewarden_facts_age_seconds"
            yield Check(name, CheckState.UNKNOWN, f"the age of facts could not be read: {read.why}", way)
            return
    way = "look for `watch broke` in the log, and check the permissions below"
    if any(series.get("slicewarden_facts_loaded") != 1 for series in _series(of)):
        yield Check(name, CheckState.ERROR, "a replica has no facts", way)
        return
    ages = [
        age for series in _series(of) for key, age in series.items() if key.startswith("slicewarden_facts_age_seconds")
    ]
    oldest = max(ages, default=0.0)
    if oldest > OLD:
        yield Check(name, CheckState.WARNING, f"a replica has heard nothing about a kind for {oldest:.0f} s", way)
    else:
        yield Check(name, CheckState.OK, f"the oldest are {oldest:.0f} s old")


def guarded(of: Examined) -> Iterator[Check]:
    """Check that all nodes with GPUs have the taint of the policy's guard."""
    if of.policy is None:
        return
    if of.facts is None:
        yield Check("guard", CheckState.UNKNOWN, "the nodes could not be listed", "ask as a user who may list nodes")
    elif caution := guard.unguarded(of.policy, of.facts):
        what, _, way = caution.rpartition("; ")
        yield Check("guard", CheckState.ERROR, what, way)
    else:
        yield Check("guard", CheckState.OK, f"{several(len(of.facts.nodes), 'node')} known; each with GPUs is guarded")


def older_pods(of: Examined) -> Iterator[Check]:
    """Check that no pod is older than the guard's taint on its node. Debug containers of such pods are not judged."""
    name, found = "older pods", of.asked.older
    if isinstance(found, ReadFailure):
        yield not_known(name, found)
    elif found:
        says = (
            f"{several(len(found), 'pod')} older than the guard's taint on the node, so debug containers there may be "
            f"judged by no webhook: {listed([shown(each, quotes=False) for each in found], 3)}"
        )
        yield Check(name, CheckState.WARNING, says, "delete or evict them, or taint the nodes NoExecute once")


def permissions(of: Examined) -> Iterator[Check]:
    """Check that the service account may read the objects that facts are made from."""
    name, powers = "permissions", of.asked.permissions
    if not powers:
        return
    if unread := next((each for each in powers.values() if isinstance(each, ReadFailure)), None):
        yield not_known(name, unread)
        return
    lacking = [power for power, held in powers.items() if held is False]
    if lacking:
        says = f"the service account slicewarden may not {listed(lacking, 3)}"
        yield Check(name, CheckState.ERROR, says, f"apply the roles of this release again; {BIND}")
    else:
        yield Check(name, CheckState.OK, f"the service account has all {len(powers)} permissions that facts need")


def limits(of: Examined) -> Iterator[Check]:
    """Check, by asking agents, that NVIDIA's hook can limit containers on the nodes where the policy needs that."""
    name, label = "limits", f"remove the label {nodes.LABEL} from such a node until it can"
    answers = {node: each for node, each in of.hooked.items() if not isinstance(each, ReadFailure) and each.needs}
    found = {
        what: [shown(node, quotes=False) for node, each in answers.items() if each.needs.get(need) is False]
        for need, what in start.UNMET.items()
    }
    uncalled = "NVIDIA's hook was not called before the start of a container"
    found[uncalled] = [
        shown(node, quotes=False) for node, each in answers.items() if start.NO_HOOK in dict(each.faults)
    ]
    for what, whom in found.items():
        if whom:
            state = CheckState.WARNING if what == uncalled else CheckState.ERROR
            yield Check(name, state, f"{what}: {listed(whom, 3)}", label)
    if silent := sorted(of.hooked.keys() - answers.keys()):
        first = of.hooked[silent[0]]
        why = first.why if isinstance(first, ReadFailure) else "its agent's policy has no such pool for it"
        which = f"{several(len(silent), 'node')} could not be asked, such as {shown(silent[0], quotes=False)}"
        says = f"{which}: {shown(why, quotes=False)}"
        yield Check(name, CheckState.UNKNOWN, says, "run the agent of this release on these nodes")
    unsure = {
        need: [shown(node, quotes=False) for node, each in answers.items() if need not in each.needs]
        for need in start.StartNeed
    }
    for need, whom in unsure.items():
        if whom:
            says = f"agents do not know whether their nodes meet the need `{need}` of NVIDIA's hook: {listed(whom, 3)}"
            yield Check(name, CheckState.UNKNOWN, says, "run `slicewarden agent --once --node NAME` on these nodes")
    if answers and not silent and not any(found.values()) and not any(unsure.values()):
        yield Check(
            name, CheckState.OK, f"the agents of {several(len(answers), 'node')} find nothing that NVIDIA's hook lacks"
        )


_CALLED = re.compile(r'admission webhook "[^"]*\.slicewarden\.dev" denied the request')
_COUNT = 'slicewarden_review_duration_seconds_count{endpoint="/validate"}'


def reached(of: Examined) -> Iterator[Check]:
    """Check that the API server calls the webhook, by a dry run that creates a pod which the policy denies."""
    name, answer = "calls", of.asked.probe
    if of.policy is None or isinstance(of.read.deployment, ReadFailure):
        return
    if answer is None:
        yield Check(name, CheckState.UNKNOWN, "the policy denies none of the test pods", "set a rule to Deny")
        return
    if isinstance(answer, ReadFailure):
        if _CALLED.search(answer.why):
            yield Check(name, CheckState.OK, "the API server calls the webhook, which denies the test pod")
        elif "slicewarden.dev" in answer.why:
            yield Check(name, CheckState.ERROR, f"the API server cannot call the webhook: {shown(answer.why)}", LOGS)
        else:
            way = "ask as a user who may create pods and Deployments in the namespace default"
            yield Check(name, CheckState.UNKNOWN, f"another component refused a dry run: {shown(answer.why)}", way)
        return
    if _denies(of):
        says = "a dry run of a pod that the policy denies was allowed: the API server does not call the webhook"
        yield Check(name, CheckState.ERROR, says, REGISTER)
        return
    counts = [_counted(each) for each in (of.asked.before, of.asked.metrics)]
    if counts[0] is None or counts[1] is None:
        says = "in audit mode nothing is denied, and the replicas' metrics could not be read"
        yield Check(name, CheckState.UNKNOWN, says, "allow `get` of pods/proxy in slicewarden-system")
    elif counts[1] > counts[0]:
        yield Check(name, CheckState.OK, "the API server calls the webhook, which counted the review of a dry run")
    else:
        yield Check(name, CheckState.ERROR, "no replica was called for a dry run of a pod", LOGS)


def _denies(of: Examined) -> bool:
    """Whether a request that the policy denies is refused."""
    if of.read.by_object is None:
        return mode(of.read.deployment) is Mode.ENFORCE
    return of.policy is not None and of.policy.mode is Switch.ENFORCE


Checker = Callable[[Examined], Iterable[Check]]
CHECKS: tuple[Checker, ...] = (
    replicas,
    in_mode,
    policy,
    lints,
    registration,
    fallback,
    certificate,
    endpoints,
    facts_age,
    guarded,
    older_pods,
    permissions,
    limits,
    reached,
)
"""All checks, in the order in which they are shown."""


def not_known(name: str, unread: ReadFailure) -> Check:
    """Return the result of a check that needs an object which could not be read."""
    return Check(
        name, CheckState.UNKNOWN, f"could not be asked: {shown(unread.why, quotes=False)}", "ask as an administrator"
    )


def _unread(name: str, unread: ReadFailure, absent: str, way: str) -> Check:
    return Check(name, CheckState.ERROR, absent, way) if unread.absent else not_known(name, unread)


def _spec(item: Object) -> Any:
    return item.get("spec") or {}


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    ends = "deletionTimestamp" in (pod.get("metadata") or {})
    return not ends and any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _hooks(read: Installation) -> Iterator[Object]:
    for each in read.configurations:
        if not isinstance(each, ReadFailure):
            yield from each.get("webhooks") or ()


def _decoded(text: Any) -> bytes:
    try:
        return b64decode(text or "", validate=True)
    except (ValueError, TypeError):
        return b""


def _series(of: Examined) -> Iterator[Mapping[str, float]]:
    return (each for each in of.asked.metrics.values() if not isinstance(each, ReadFailure))


def _labels(series: Mapping[str, float], metric: str, label: str) -> Iterator[str]:
    for key, value in series.items():
        if value and key.startswith(f"{metric}{{") and (match := re.search(rf'[{{,]{label}="([^"]*)"', key)):
            yield match[1]


def _counted(read: Mapping[str, Mapping[str, float] | ReadFailure]) -> float | None:
    """Return the number of reviews that all replicas have counted; None if one could not be read."""
    if not read or any(isinstance(each, ReadFailure) for each in read.values()):
        return None
    return sum(each.get(_COUNT, 0.0) for each in read.values() if not isinstance(each, ReadFailure))
