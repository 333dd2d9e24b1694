"""The controller of a GPUSharingPolicy: looks at the cluster, and makes the next write that is due.

Every look reads everything that its decision depends on. It makes at most one write, with the resourceVersion that it
read. So a look may end at any point, and if two controllers write, one of them is refused. It fills the installed
configurations, and creates and deletes none.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from webhook import rules
from webhook.cluster import client
from webhook.controller import agents, fallback, order, reach
from webhook.controller.certificates import CertificateKeeper
from webhook.controller.functions import Functions
from webhook.controller.order import RELEASES, Names, Place, Seen, Wait, Write
from webhook.controller.reach import Replica
from webhook.controller.reading import PolicyRead, PolicyReader
from webhook.controller.status import READY, Reason, Standing, changes, status
from webhook.controller.terms import ADMISSION, CONFIGURATIONS, MANAGER, POLICIES, Terms
from webhook.controller.trial import REFUSALS, Trial, Wanted
from webhook.engine import filled, probe
from webhook.engine.paths import MUTATE, VALIDATE, Manner, Name, Path
from webhook.engine.registration import API_VERSION, MADE_FROM, NAME, Made
from webhook.facts.kind import BIND
from webhook.fallback.needs import LACKING
from webhook.memory import frameworks
from webhook.model import Object
from webhook.policy import revisions
from webhook.policy.model import Policy, Switch
from webhook.telemetry.log import Log

FALLBACK_SECONDS = 3.0
"""Seconds after which every API server uses a change of the fallback.

It compiles policies once a second (apiserver pkg/admission/plugin/policy/generic/policy_source.go).
"""

ANSWERS = 7
"""Looks in which every API server has to answer after a change of the fallback.

All but the first are half a second apart. So a server that was frozen in the meantime has run for two seconds in all.
"""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a look: the write that was made, and the reason to wait. Each is empty if there is none."""

    wrote: str = ""
    waits: str = ""


@dataclass
class _Observed:
    """The objects that a look has read."""

    policies: list[Object]
    configurations: Mapping[str, Object]
    place: Place
    maps: Mapping[str, Object]
    held: dict[str, Policy] = field(default_factory=dict)


class Controller:
    """Looks at the cluster and makes the next write.

    Between looks it keeps only the time since which nothing has changed.

    It needs this time because some steps must wait until earlier requests have ended.
    """

    def __init__(
        self,
        api: client.Api,
        terms: Terms,
        log: Log,
        clock: Callable[[], float] = time.monotonic,
        event: Callable[[Object, Standing], None] = lambda *_: None,
        preview: Callable[[Policy, Policy], Mapping[str, Any]] = lambda *_: {},
    ) -> None:
        self._api, self._terms, self._log, self._clock = api, terms, log, clock
        self._event, self._preview = event, preview
        self._reader = PolicyReader()
        self._policies: dict[str, tuple[str, Policy]] = {}
        self._made: dict[tuple[str, Names], list[Object]] = {}
        self._fallbacks: dict[str, Mapping[str, Object]] = {}
        self._functions = Functions(partial(self._apply_fallback, dry=True), clock)
        self._without = ""
        self.begin()
        self._trial = Trial(partial(self._apply, dry=True), clock)
        self.replicas: list[Replica] = []
        """The replicas and API servers that the last look asked."""
        self.standing: Standing | None = None
        """The digest of the policy that is in force, or will be next."""
        self._certificates = CertificateKeeper(api, terms, log, clock)

    def begin(self) -> None:
        """Begin to lead. Another controller may have changed anything just before, so all waiting times start now."""
        self._constant: tuple[object, float] = (None, self._clock())
        self._fallback_at = self._clock()
        self._answers = 0

    def look(self) -> Round:
        """Look at the cluster, and make the write that is due.

        Raises StatusError, Unreachable, and the errors of the certificates' store.
        """
        policies = self._listed()
        self._reader.keep(policies)
        first = policies[0] if policies else None
        read = self._reader.read(first) if first else None
        try:
            world = self._read(policies)
        except client.StatusError as error:
            if error.status == client.NOT_FOUND and first and read:
                gone = f"{error}: the webhook is not called; apply the installation again"
                self._stand(first, Standing(Reason.REGISTRATION_GONE, gone, read.fields))
            raise
        except ValueError as error:
            if first and read:
                self._stand(first, Standing(Reason.REGISTRATION_FOREIGN, f"{error}; nothing is changed", read.fields))
            return Round(waits=str(error))
        look = self._act(world, first, read)
        for other in policies[1:]:  # last, so that no waiting policy can stop the one in force
            self._stand(other, self._waiting(other, world, read.policy if read else None))
        return look

    def _waiting(self, other: Object, world: _Observed, oldest: Policy | None) -> Standing:
        """Return the standing of a policy that waits because an older one is in force."""
        read = self._reader.read(other)
        if read.policy is None:
            return Standing(Reason.INVALID, f"{read.problems[0]} ({len(read.problems)} problems)", read.fields)
        before = oldest or (world.held.get(world.place.validate[-1].digest) if world.place.validate else None)
        preview = self._preview(before, read.policy) if before else {}
        message = f"{world.policies[0]['metadata']['name']} is older, and one policy is in force"
        return Standing(Reason.NOT_IN_FORCE, message, {**read.fields, **preview})

    def _act(self, world: _Observed, first: Object | None, read: PolicyRead | None) -> Round:
        if wrote := self._certificates.step():
            return Round(wrote)
        standing, target = self._tried(world, read, *self._target(read, world))
        wanted = read.policy if read and read.policy and target and target.digest == read.policy.digest else None
        if wanted and wanted.digest not in world.held:
            return self._publish(world, wanted)
        if wrote := self._check_policies(world):
            return Round(wrote)
        seen, waits = self._observe(world, target)
        decision = order.due(world.place, target, seen)
        following = order.step(world.place, order.aim(target, world.place, seen), seen.releases)
        try:
            look = self._change_fallback(world, decision if isinstance(decision, Write) else None)
            look = look or self._repair(world)
            if look is None:
                look = self._write(world, decision) if isinstance(decision, Write) else Round(waits=waits)
        except client.StatusError as error:
            if error.status not in REFUSALS:
                raise
            if wanted and target:
                self._trial.refused(target, error)
            look = Round(waits=str(error))
            standing = Standing(Reason.REFUSED, str(error), standing.fields)
        if standing.reason in READY and (decision is not None or look.wrote):
            message = look.waits or (f"next: {following}" if following else "one more look")
            reason, message = self._unreadable(target, decision) or (Reason.CHANGING, message)
            standing = Standing(reason, message, standing.fields)
        elif standing.reason is Reason.IN_FORCE and self._without:
            standing = Standing(standing.reason, f"{standing.message}; {self._without}", standing.fields)
        if first:
            ready = self._count(world, following)
            self._stand(first, Standing(standing.reason, standing.message, {**standing.fields, "replicas": ready}))
        if look.wrote:
            return look
        if decision is None and target and agents.update(self._api, world.held[target.digest]):
            return Round("the agents' policy")
        forgot = self._forget(world, target, seen)
        return forgot if forgot and (forgot.wrote or not look.waits) else look

    def _tried(
        self, world: _Observed, read: PolicyRead | None, standing: Standing, target: Name | None
    ) -> tuple[Standing, Name | None]:
        """Return the standing and the target; those of the previous policy if an API server refuses this one."""
        before = order.strict(world.place.validate[0]) if world.place.validate else None
        if target is None or target == before:
            self._trial.forget()
            return standing, target
        known = world.held | ({read.policy.digest: read.policy} if read and read.policy else {})
        why = self._trial.refusal(target, partial(self._ahead, world, target, known))
        if not why:
            return standing, target
        return Standing(Reason.REFUSED, f"{why} ({_stays(before)})", standing.fields), before

    def _ahead(self, world: _Observed, target: Name, known: Mapping[str, Policy]) -> Iterator[Wanted]:
        """Yield every object that must be applied until a policy is in force."""
        writes = [*order.ahead(world.place, target)]
        if not {name.digest for write in writes for name in write.names} <= known.keys():
            return  # a policy before is lost: nothing can be written, and the status says what is waited for
        for write in writes:
            yield self._filled(world, write.what, write.names, known)
        installed = self._installed_fallback() if target.manner is Manner.ENFORCE else []
        if installed and not self._functions.lacking(installed[0]):
            for body in fallback.changes(installed, self._fallback(known[target.digest])):
                yield f"{ADMISSION}/{fallback.PLURAL}/{body['metadata']['name']}", body

    def _unreadable(self, target: Name | None, decision: Write | Wait | None) -> tuple[Reason, str] | None:
        """Name the facts that the API server refuses to give replicas, if the change waits for that.

        Facts that have not been read for another reason may still come, as while a replica starts or an API server
        does not answer.
        """
        found = {each.forbidden[target.digest] for each in self.replicas if target and target.digest in each.forbidden}
        if decision is not Wait.REPLICAS or not found:
            return None
        what = ", ".join(sorted(found))
        way = BIND if " of " in what else "apply the installation again, which has the right"
        return Reason.FACTS_UNREADABLE, f"the webhook may not read {what}: {way}"

    def _listed(self) -> list[Object]:
        """List the policies, the oldest first. The oldest is the one in force."""
        found = client.ask(self._api, POLICIES)["items"]
        return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]))

    def _read(self, policies: list[Object]) -> _Observed:
        """Read all other objects. Raises ValueError for a configuration that names none of our paths."""
        configurations = {
            half: client.ask(self._api, f"{ADMISSION}/{plural}/{NAME}") for half, (_, plural) in CONFIGURATIONS.items()
        }
        found = client.ask(self._api, self._terms.config_maps, {"labelSelector": revisions.LABEL})["items"]
        maps = revisions.by_label(found)
        admitted = revisions.admitted(maps[revisions.RELEASES]) if revisions.RELEASES in maps else frozenset()
        validate, mutate = (filled.named(configurations[half]) for half in (VALIDATE, MUTATE))
        world = _Observed(policies, configurations, Place(validate, mutate, admitted), maps)
        self._policies = {digest: known for digest, known in self._policies.items() if digest in maps}
        for digest, each in maps.items():
            if digest != revisions.RELEASES and (policy := self._revision(digest, each)):
                world.held[digest] = policy
        return world

    def _revision(self, digest: str, item: Object) -> Policy | None:
        uid = item["metadata"]["uid"]
        known, policy = self._policies.get(digest, ("", None))
        if known == uid:
            return policy
        try:
            policy = revisions.read(item, rules.releases(), frameworks=frameworks.names())
        except Exception as error:  # whatever it is, a revision must not end a look
            self._log({"message": "a revision cannot be used", "revision": digest, "error": str(error)})
            return None
        self._policies[digest] = uid, policy
        return policy

    def _target(self, read: PolicyRead | None, world: _Observed) -> tuple[Standing, Name | None]:
        """Return the target: the standing once it is reached, and the name in the path of `/validate`."""
        if read is None:
            return Standing(Reason.OFF, "", {}), None
        if read.policy is None:
            before = order.strict(world.place.validate[-1]) if world.place.validate else None
            message = f"{read.problems[0]} ({len(read.problems)} problems; {_stays(before)})"
            return Standing(Reason.INVALID, message, read.fields), before
        if read.mode is Switch.OFF:
            return Standing(Reason.OFF, "mode is Off: nothing is judged", read.fields), None
        manner = Manner.AUDIT if read.mode is Switch.AUDIT else Manner.ENFORCE
        digest = read.policy.digest
        message = f"every replica has loaded policy {digest}, and every API server calls the webhook with it"
        return Standing(Reason.IN_FORCE, message, read.fields), Name(digest, manner)

    def _observe(self, world: _Observed, target: Name | None) -> tuple[Seen, str]:
        """Ask all replicas and API servers. Returns their state, and the missing ones in words."""
        place, now = world.place, self._clock()
        self.replicas = reach.replicas(self._terms.replicas or self._addresses())
        silent = [each for each in self.replicas if each.why]
        held = frozenset.intersection(*(each.held for each in self.replicas)) if self.replicas else frozenset()
        held &= frozenset(world.held)
        releases = None if silent else frozenset(each.release for each in self.replicas)
        constant = (place, frozenset(each.release for each in self.replicas), bool(silent))
        if self._constant[0] != constant:
            self._constant = (constant, now)
        drained = now - self._constant[1] >= self._terms.drain
        named = place.validate or place.mutate
        servers = self._terms.servers or (reach.servers(self._server_slice()) if named else ())
        lease = f"{self._terms.lease}/{probe.LEASE}"
        missing = [*reach.called(self._api, servers, lease, place)] if named else []
        if named and not servers:
            missing = ["no API server is known: EndpointSlice default/kubernetes has none"]
        if drained and (not place.validate or not place.digests <= held):
            missing = []  # a probe that no replica answers proves nothing, so only time helps
        self._answers = 0 if missing else self._answers + 1
        changed = now - self._fallback_at < FALLBACK_SECONDS or self._answers < ANSWERS
        if changed and not fallback.in_force(place, None):
            missing = [*missing, "the fallback was changed just now"]
        seen = Seen(held, releases, called=not missing, drained=drained)
        wanted = place.digests | ({target.digest} if target else set())
        lacking = [f"{each.address} {why}" for each in self.replicas if (why := each.lacks(wanted))]
        decision = order.due(place, target, seen)
        if decision is Wait.REPLICAS:
            return seen, "; ".join(lacking) or "there is no replica"
        if decision is Wait.SERVERS:
            return seen, "; ".join(missing)
        if decision is Wait.REQUESTS:
            return seen, f"requests in flight, for {self._terms.drain:.0f} s"
        return seen, ""

    def _addresses(self) -> tuple[str, ...]:
        query = {"labelSelector": f"kubernetes.io/service-name={NAME}"}
        return reach.addresses(client.ask(self._api, self._terms.slices, query)["items"], self._terms.health_port)

    def _server_slice(self) -> Object:
        found: Object = client.ask(self._api, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")
        return found

    def _count(self, world: _Observed, following: Write | None) -> str:
        needed = world.place.digests | {name.digest for name in (following.names if following else ())}
        holding = sum(not each.why and needed <= each.held for each in self.replicas)
        return f"{holding}/{len(self.replicas)}"

    def _write(self, world: _Observed, due: Write) -> Round:
        """Make the next write of a change."""
        if due.what == RELEASES:
            self._admit(world, due.admitted)
        else:
            self._fill(world, due.what, due.names)
        self._log({"message": "wrote", "what": due.what, "now": str(due)})
        return Round(str(due))

    def _admit(self, world: _Observed, releases: frozenset[str]) -> None:
        made = revisions.releases(releases, self._terms.namespace)
        known = world.maps.get(revisions.RELEASES)
        if known is None:
            self._ask("POST", self._terms.config_maps, made)
            return
        body = {"metadata": {"resourceVersion": known["metadata"]["resourceVersion"]}, "data": made["data"]}
        path = f"{self._terms.config_maps}/{revisions.RELEASES_NAME}"
        client.ask(self._api, path, method="PATCH", body=body, patch=client.MERGE)

    def _fill(self, world: _Observed, half: str, names: Names) -> None:
        """Apply a configuration whose paths name these policies, unless it has changed since it was read."""
        self._apply(*self._filled(world, half, names, world.held))

    def _filled(self, world: _Observed, half: str, names: Names, known: Mapping[str, Policy]) -> Wanted:
        kind, plural = CONFIGURATIONS[half]
        old = world.configurations[half]["metadata"]
        metadata: Made = {"name": NAME, "resourceVersion": old["resourceVersion"], "uid": old["uid"]}
        body: Made = {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata}
        if names:
            metadata["annotations"] = {MADE_FROM: names[-1].digest}
            user = probe.account(self._terms.namespace)
            path = Path(half, names)
            body["webhooks"] = filled.webhooks(path, known, self._certificates.bundle(), url=self._terms.url, user=user)
        return f"{ADMISSION}/{plural}/{NAME}", body

    def _repair(self, world: _Observed) -> Round | None:
        """Write a configuration again if it does not match its path, as after a manual change or an upgrade."""
        for half, names in ((VALIDATE, world.place.validate), (MUTATE, world.place.mutate)):
            if not names or not {name.digest for name in names} <= world.held.keys():
                continue
            wanted = self._wanted(world, half, names)
            found = {each["name"]: _unbundled(each) for each in world.configurations[half].get("webhooks") or ()}
            same = found.keys() == {each["name"] for each in wanted}
            if not same or not all(fallback.within(each, found[each["name"]]) for each in wanted):
                self._fill(world, half, names)
                self._log({"message": "repaired", "what": half})
                return Round(f"{half} again")
        return None

    def _wanted(self, world: _Observed, half: str, names: Names) -> list[Object]:
        """Return the webhooks for a path, without their caBundle. They are made only once."""
        key = half, names
        if key not in self._made:
            user = probe.account(self._terms.namespace)
            made = filled.webhooks(Path(half, names), world.held, "", url=self._terms.url, user=user)
            self._made = {one: hooks for one, hooks in self._made.items() if one[0] != half}
            self._made[key] = [_unbundled(each) for each in made]
        return self._made[key]

    def _change_fallback(self, world: _Observed, following: Write | None) -> Round | None:
        """Change one policy of the fallback, if one has to change.

        An API server that would accept only part of a fallback gets an empty one.
        """
        self._without = ""
        installed = self._installed_fallback()
        if not installed:
            return None
        digest = fallback.in_force(world.place, following)
        if digest and self._functions.lacking(installed[0]):
            digest, self._without = "", LACKING
        policy = world.held.get(digest)
        body = next(fallback.changes(installed, self._fallback(policy) if policy else {}), None)
        if body is None:
            return None
        self._apply_fallback(body)
        self._fallback_at, self._answers = self._clock(), 0
        return Round(f"fallback {body['metadata']['name']}")

    def _fallback(self, policy: Policy) -> Mapping[str, Object]:
        """Return the fallback of a policy. The last one is kept: it is tried before a change, and written after it."""
        if policy.digest not in self._fallbacks:
            self._fallbacks = {policy.digest: fallback.made(policy)}
        return self._fallbacks[policy.digest]

    def _apply_fallback(self, body: Object, *, dry: bool = False) -> None:
        self._apply(f"{ADMISSION}/{fallback.PLURAL}/{body['metadata']['name']}", body, dry=dry)

    def _installed_fallback(self) -> list[Object]:
        return [each for name in fallback.NAMES if (each := self._installed(f"{fallback.PLURAL}/{name}"))]

    def _installed(self, path: str) -> Object | None:
        try:
            found: Object = client.ask(self._api, f"{ADMISSION}/{path}")
        except client.StatusError as error:
            if error.status in (client.NOT_FOUND, client.FORBIDDEN):
                return None
            raise
        return found

    def _check_policies(self, world: _Observed) -> str:
        """Fill the configuration that checks policies when they are applied, if it is installed."""
        _, plural = CONFIGURATIONS[VALIDATE]
        found = self._installed(f"{plural}/{filled.POLICIES}")
        if found is None:
            return ""
        wanted = [filled.policy_webhook(self._certificates.bundle(), url=self._terms.url)]
        if fallback.within(wanted, found.get("webhooks") or []):
            return ""
        metadata = {key: found["metadata"][key] for key in ("name", "resourceVersion", "uid")}
        body = {"apiVersion": API_VERSION, "kind": found.get("kind") or CONFIGURATIONS[VALIDATE][0]}
        self._apply(f"{ADMISSION}/{plural}/{filled.POLICIES}", {**body, "metadata": metadata, "webhooks": wanted})
        return f"the check of policies, of {len(world.policies)}"

    def _publish(self, world: _Observed, policy: Policy) -> Round:
        """Create the revision of a policy. First delete a ConfigMap of that name with other content."""
        if (other := world.maps.get(policy.digest)) is not None:
            self._delete(other)
            return Round(f"forgot a ConfigMap that is not policy {policy.digest}")
        self._ask("POST", self._terms.config_maps, revisions.revision(policy, self._terms.namespace))
        return Round(f"revision {policy.digest}")

    def _delete(self, config_map: Object) -> None:
        """Delete a ConfigMap, if it is still the one that was read."""
        metadata = config_map["metadata"]
        body = {"preconditions": {key: metadata[key] for key in ("uid", "resourceVersion")}}
        self._ask("DELETE", f"{self._terms.config_maps}/{quote(metadata['name'])}", body)

    def _forget(self, world: _Observed, target: Name | None, seen: Seen) -> Round | None:
        """Delete one unused revision, as soon as no request for its path can be in flight.

        This does not wait for the end of a change, so there are few revisions even if the policy changes often.
        """
        keep = world.place.digests | {revisions.RELEASES} | ({target.digest} if target else set())
        digest = next((each for each in sorted(world.maps) if each not in keep), "")
        if not digest or not seen.called:
            return None
        if not seen.drained:
            return Round(waits=f"requests on their way, before revision {digest} is forgotten")
        self._delete(world.maps[digest])
        return Round(f"forgot revision {digest}")

    def _stand(self, policy: Object, standing: Standing) -> None:
        """Write the status of a policy, if it differs.

        A refusal, as for a policy that is too large, does not stop the look.
        """
        made = status(policy, standing, datetime.now(UTC))
        if self.standing is None or standing.reason is not Reason.NOT_IN_FORCE:
            self.standing = standing
        before = policy.get("status") or {}
        if not changes(before, made):
            return
        reasons = {each["reason"] for each in before.get("conditions") or ()}
        path = f"{POLICIES}/{quote(policy['metadata']['name'])}/status"
        try:
            client.ask(self._api, path, method="PATCH", body={"status": made}, patch=client.MERGE)
        except client.StatusError as error:
            name = policy["metadata"]["name"]
            self._log({"message": "the status of a policy cannot be written", "policy": name, "error": str(error)})
            return
        if standing.reason.value not in reasons:
            self._event(policy, standing)

    def _apply(self, path: str, body: Object, *, dry: bool = False) -> None:
        query = {"fieldManager": MANAGER, "force": "true", "dryRun": "All" if dry else ""}
        client.ask(self._api, path, query, method="PATCH", body=body)

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        client.ask(self._api, path, method=method, body=body)


def _stays(before: Name | None) -> str:
    return "the policy before stays in force" if before else "nothing is judged"


def _unbundled(hook: Object) -> Object:
    own = {key: value for key, value in hook["clientConfig"].items() if key != "caBundle"}
    return {**hook, "clientConfig": own}
