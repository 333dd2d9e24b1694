"""Checks an installation whose policy is a Kubernetes object, and whose controller applies changes of the policy."""

from collections.abc import Iterator
from datetime import datetime

from webhook.cluster.client import NOT_FOUND
from webhook.doctor import doctor
from webhook.doctor.doctor import LOGS, Check, Checker, CheckState, Examined, not_known
from webhook.doctor.installation import ByObject, ReadFailure
from webhook.engine import filled
from webhook.engine.paths import Name
from webhook.fallback import current
from webhook.fallback.comparison import compare
from webhook.fallback.needs import LACKING
from webhook.model import Object
from webhook.policy.model import Switch
from webhook.rules import walk
from webhook.text.words import listed, several

AWAY = 60.0
"""Seconds without a renewal of the lease after which the controller counts as down. It renews every five seconds."""

INSTALL = "apply the installation again; it restores everything, through audit mode"
CONTROLLER_LOGS = "see `kubectl logs --namespace slicewarden-system deployment/slicewarden-controller`"


def controller(of: Examined) -> Iterator[Check]:
    """Check that a controller runs, by its lease."""
    name, read = "controller", _read(of)
    for each in (read.controller, read.lease):
        if isinstance(each, ReadFailure):
            yield _missing(name, each, "the controller is not installed")
            return
    spec = {} if isinstance(read.lease, ReadFailure) else read.lease.get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    stays = "the policy in force stays, but no change takes effect"
    if not (holder and renewed):
        yield Check(name, CheckState.ERROR, f"no controller has run yet: {stays}", CONTROLLER_LOGS)
        return
    age = (of.now - datetime.fromisoformat(renewed)).total_seconds()
    if age > AWAY:
        says = f"no controller runs: {holder} renewed its lease {age:.0f} s ago; {stays}"
        yield Check(name, CheckState.ERROR, says, CONTROLLER_LOGS)
    else:
        yield Check(name, CheckState.OK, f"{holder} runs")


def guard(of: Examined) -> Iterator[Check]:
    """Check that an admission policy limits what the controller's account may register."""
    name = "rights"
    for each in _read(of).guard:
        if isinstance(each, ReadFailure):
            says = "the guard is missing: anyone with the controller's token may register any webhook, even for Secrets"
            yield _missing(name, each, says)
            return
    *_, binding = _read(of).guard
    actions = [] if isinstance(binding, ReadFailure) else (binding.get("spec") or {}).get("validationActions") or []
    if "Deny" in actions:
        yield Check(name, CheckState.OK, "a guard limits what the controller may register")
    else:
        yield Check(name, CheckState.ERROR, "the guard of the controller denies nothing", INSTALL)


def policy(of: Examined) -> Iterator[Check]:
    """Check that the oldest policy is in force, by its status, and equals the local one."""
    name, read = "policy", _read(of)
    if isinstance(read.policies, ReadFailure):
        yield _missing(name, read.policies, "the definition of GPUSharingPolicy is not installed")
        return
    if not read.items:
        says = "there is no policy, so nothing is judged"
        way = "apply one: `kubectl apply -f policy.yaml`"
        yield Check(name, CheckState.ERROR if of.own else CheckState.OK, says, way if of.own else "")
        return
    first, *others = read.items
    status = first.get("status") or {}
    about = f"{first['metadata']['name']} {status.get('digest') or ''}".strip()
    if of.own is not None and of.policy is not None and of.own.digest != of.policy.digest:
        says = f"policy {of.policy.name} {of.policy.digest} is in the cluster, not {of.own.name} {of.own.digest}"
        yield Check(name, CheckState.ERROR, says, "apply this policy")
    else:
        yield _standing(first, about)
    for other in others:
        would = (other.get("status") or {}).get("wouldDeny")
        more = "" if would is None else f"; it would newly deny {several(would, 'object')}"
        says = f"{other['metadata']['name']} waits, because {first['metadata']['name']} is older{more}"
        yield Check(name, CheckState.OK, says)


def _standing(item: Object, about: str) -> Check:
    """Check the status of a policy."""
    status, name = item.get("status") or {}, "policy"
    found = {each["type"]: each for each in status.get("conditions") or ()}
    ready = found.get("Ready") or {}
    if not ready:
        return Check(name, CheckState.WARNING, f"{about}: no controller has seen it", CONTROLLER_LOGS)
    reason, message = ready.get("reason"), ready.get("message")
    if found.get("Stalled", {}).get("status") == "True":
        way = "docs/operator.md says what to do about each reason"
        return Check(name, CheckState.ERROR, f"{about}: {reason}: {message}", way)
    if ready.get("observedGeneration") != item["metadata"].get("generation"):
        return Check(name, CheckState.WARNING, f"{about}: no controller has seen its last change yet", CONTROLLER_LOGS)
    if ready.get("status") != "True":
        return Check(name, CheckState.WARNING, f"{about}: {reason}: {message}", "wait, or do what the message asks for")
    held = f", held by {status['replicas']} replicas" if status.get("replicas") else ""
    return Check(name, CheckState.OK, f"{about} is in force, mode {status.get('mode')}{held}")


def registration(of: Examined) -> Iterator[Check]:
    """Check that the webhook configurations exist, and name the policy that is in force."""
    name, named = "registration", dict[str, tuple[Name, ...]]()
    for half, each in zip(("mutating", "validating"), of.read.configurations, strict=True):
        if isinstance(each, ReadFailure):
            gone = f"RegistrationGone: the {half} webhook configuration is missing, so nothing is judged"
            yield _missing(name, each, gone)
            return
        try:
            named[half] = filled.named(each)
        except ValueError as error:
            yield Check(name, CheckState.ERROR, f"RegistrationForeign: {error}", "delete both, and apply them again")
            return
    wanted = of.policy.digest if of.policy and of.policy.mode is not Switch.OFF else ""
    digests = {one.digest for names in named.values() for one in names}
    if not (wanted or digests) or digests == {wanted}:
        words = ".".join(map(str, named["validating"]))
        yield Check(
            name,
            CheckState.OK,
            f"API servers call the webhook with policy {words}" if words else "nothing is registered",
        )
    else:
        found = listed(sorted(digests), 3) if digests else "none"
        says = f"API servers call the webhook with policy {found}, and {wanted or 'nothing'} is to be in force"
        yield Check(
            name, CheckState.WARNING, says, "wait for the controller; the status of the policy shows its progress"
        )


def replicas_hold(of: Examined) -> Iterator[Check]:
    """Check that all replicas have loaded the policy, by its status."""
    items = _read(of).items
    status = items[0].get("status") or {} if items else {}
    have, _, wanted = (status.get("replicas") or "").partition("/")
    if have == wanted:
        return
    says = f"{have} of {wanted} replicas hold the policy; a change waits for the others"
    yield Check("replicas", CheckState.WARNING, says, LOGS)


def fallback(of: Examined) -> Iterator[Check]:
    """Check that the fallback is installed, and enforces a policy in mode Enforce.

    The controller writes the fallback.
    """
    name = "fallback"
    for each in of.read.fallback:
        if isinstance(each, ReadFailure) and not each.absent:
            yield not_known(name, each)
            return
    found, items = doctor.fallback_objects(of.read.fallback), _read(of).items
    enforces = bool(items) and (items[0].get("status") or {}).get("mode") == Switch.ENFORCE
    if not found:
        yield Check(name, CheckState.WARNING, "it is not installed", INSTALL)
    elif enforces and current.empty(found) and LACKING in str(items[0]["status"].get("conditions")):
        yield Check(name, CheckState.WARNING, LACKING, "upgrade the API server")
    elif current.empty(found):
        state, way = (CheckState.WARNING, CONTROLLER_LOGS) if enforces else (CheckState.OK, "")
        yield Check(name, state, "it is empty: the controller fills it while a policy in mode Enforce is in force", way)
    elif of.policy is not None:
        compared = compare(of.policy, walk(), found)
        for line in compared.differences:
            yield Check(name, CheckState.ERROR, line, CONTROLLER_LOGS)
        if not compared.differences:
            yield Check(name, CheckState.OK, f"made from policy {compared.digest}, actions: {compared.actions}")


def _read(of: Examined) -> ByObject:
    gone = ReadFailure(NOT_FOUND, "not read")
    return of.read.by_object or ByObject(gone, gone, gone, (gone,))


def _missing(name: str, unread: ReadFailure, absent: str) -> Check:
    return Check(name, CheckState.ERROR, absent, INSTALL) if unread.absent else not_known(name, unread)


CHECKS: tuple[Checker, ...] = (
    doctor.replicas,
    replicas_hold,
    controller,
    policy,
    doctor.lints,
    registration,
    guard,
    fallback,
    doctor.certificate,
    doctor.endpoints,
    doctor.facts_age,
    doctor.guarded,
    doctor.older_pods,
    doctor.permissions,
    doctor.limits,
    doctor.reached,
)
"""All checks, in the order in which they are shown."""
