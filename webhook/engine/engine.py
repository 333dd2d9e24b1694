"""Judges a request by the policy and the facts. The webhook and the command line use the same code."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from typing import Any, get_args

from webhook.allowance import FINDING, WRITTEN, Allowance, Late, TooLarge, TooLate, no_deadline
from webhook.api import jsonpatch
from webhook.api.fields import MAX_NAME
from webhook.api.objects import Counted, Subject, count, judged, subjects
from webhook.api.pods import POD, Pod
from webhook.engine import ratcheting
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.model import Action, Finding, Fix, Malformed, Mode, Object, Request, Result, Verdict, dotted, immutable
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.rules import Rule, asked, review_of
from webhook.text.words import MOST, line

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"

_REMAINS: Object = {}
"""The new object of a DELETE request: an empty one."""


_WRITTEN_LATER = "nothing to do: Slicewarden writes it once the rule's action is Deny"
_LEFT_OUT = {
    Action.DENY: "Slicewarden's mutating webhook did not run, or another webhook undid its changes; ask an "
    "administrator "
    "to check it",
    Action.WARN: _WRITTEN_LATER,
    Action.AUDIT: _WRITTEN_LATER,
}
"""A message: why an object lacks what /mutate writes, and what to do."""

_TOO_LATE = "Slicewarden writes it only into new pods; delete this pod, and create it again"
"""The same for an update of a pod, about its old containers."""


Seen = Callable[[Review[Any]], None]
"""Receives each review of an object before its rules run."""


class RuleBroke(RuntimeError):
    """A rule raised an exception. There is no verdict, so the registration's `failurePolicy` decides."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"rule {rule} broke")
        self.rule = rule


class Engine:
    """Judges requests. The policy is fixed for an engine's life; the facts come with each request."""

    mode = Mode.ENFORCE

    def __init__(self, policy: Policy, rules: Sequence[Rule], *, lenient: bool = False) -> None:
        """`lenient`: warn of what a replica of another release did not patch, and do not deny it."""
        self.policy, self._lenient = policy, lenient
        self.rules = tuple(rules)
        applied = [rule for rule in rules if rule.applies is None or rule.applies(policy)]
        self._rules_of = {each: tuple(r for r in applied if issubclass(each, r.subject)) for each in get_args(Subject)}
        self._mending = tuple(rule for rule in self._rules_of[Pod] if rule.mends)
        # Nearly all pods have one of a few sets of traits.
        self._looking = {kind: lru_cache(maxsize=256)(partial(asked, own)) for kind, own in self._rules_of.items()}

    def mutate(self, request: Request, facts: Facts, late: Late = no_deadline) -> Verdict:
        """Answer `/mutate`: a patch with the fixes of all findings that the policy denies. No rule denies here.

        Only pods that are created and debug containers that are added are patched. Most fields of a running pod cannot
        change, a patched workload would differ from its source in Git, and the kubelet runs a mirror pod's file. An
        object that is too large is refused, as by `validate`. Raises TooLate as soon as `late` returns true.
        """
        try:
            return Verdict(patch=self._patched(request, facts, Allowance(late))[0])
        except TooLarge as error:
            return Verdict(malformed=error)
        except Malformed:  # the API server or /validate refuses it, and can say why
            return Verdict()

    def validate(self, request: Request, facts: Facts, late: Late = no_deadline, seen: Seen | None = None) -> Verdict:
        """Answer `/validate`: every finding on the object as it is. Never patches.

        A workload's template is judged as its pods will be after `mutate`. On UPDATE a finding counts only if the old
        object does not have it. Raises TooLate as soon as `late` returns true.
        """
        item, old = request.object, request.old_object
        if request.operation == DELETE and old is not None:
            item = _REMAINS
        if item is None or request.operation == CONNECT:
            return Verdict()
        allowance = Allowance(late)
        try:
            counted = count(request, item, allowance, self.policy.workloads)
            before = None if old is None else self._before(request, old, facts, allowance)
            case = _Case(request, counted, facts, allowance, before.counted if before else None, seen)
            return Verdict(tuple(self._judged(case, before)))
        except TooLarge as error:
            # These updates are always allowed: otherwise a stored object could never be deleted.
            read = partial(judged, request, workloads=self.policy.workloads)
            same = request.operation == UPDATE and old is not None and read(item) == read(old)
            return Verdict(malformed=None if same else error)
        except Malformed as error:
            return Verdict(malformed=error)

    def judge(self, request: Request, facts: Facts, late: Late = no_deadline, seen: Seen | None = None) -> Verdict:
        """Do what the API server does with both calls: mutate, apply the patch, validate the result.

        `seen` receives the reviews of a new object as it was sent, and those of others as they were judged.
        """
        if (request.group, request.kind) != POD or not _is_first(request):
            return self.validate(request, facts, late, seen)
        first = seen if request.operation == CREATE else None
        try:
            operations, patched = self._patched(request, facts, Allowance(late), first)
        except Malformed as error:
            return Verdict(malformed=error)
        if operations:
            request = replace(request, object=patched)
        return self.validate(request, facts, late, None if first else seen)._replace(patch=operations)

    def marked(self, request: Request, facts: Facts, verdict: Verdict, late: Late = no_deadline) -> Verdict:
        """Mark those results of a verdict that `/mutate` would repair if the policy denied every finding.

        Raises TooLate.

        They are the findings that disappear when the patch is applied. Under `Warn` and `Audit` nothing is patched, and
        running pods may never have been patched, so most such findings are not the author's fault.
        """
        if not any(map(_may_be_repaired, verdict.results)):
            return verdict
        strict = self._strict.judge(request, facts, late)
        if strict.malformed is not None:
            return verdict
        left = {(result.rule, result.finding.path) for result in strict.having(Action.DENY)}
        return verdict._replace(
            results=tuple(
                result._replace(repaired=not result.exemption and (result.rule, result.finding.path) not in left)
                for result in verdict.results
            )
        )

    @cached_property
    def _strict(self) -> "Engine":
        return Engine(replace(self.policy, actions={}, overrides=()), self.rules)

    def lenient(self) -> "Engine":
        """Return an engine with the same policy that only warns of a pod which lacks the patch of `/mutate`.

        It is used while replicas of two releases answer: a replica of the other release may not write the same patch.
        """
        return Engine(self.policy, self.rules, lenient=True)

    def _before(self, request: Request, old: Object, facts: Facts, allowance: Allowance) -> "_Case | None":
        """Return the object that a request replaces, as a case to judge; None if that object is too large.

        Without it, every finding on the new object counts as new.
        """
        if request.operation != UPDATE:
            return _Case(request, Counted(old), facts, allowance)
        own = allowance.again()
        try:
            return _Case(request, count(request, old, own, self.policy.workloads), facts, own)
        except Malformed:
            return None

    def _judged(self, case: "_Case", before: "_Case | None") -> list[Result]:
        """Judge an object, taking into account the one that it replaces."""
        request, item, allowance = case.request, case.counted.item, case.allowance
        results = self._standing(case)
        # Raises TooLarge for a patch that is too long, so that the author sees why.
        if results and request.operation == CREATE:
            fixes = (fix for result in results if result.action is Action.DENY for fix in result.finding.fixes)
            jsonpatch.build(item, fixes, allowance)
        if not results or before is None or request.operation != UPDATE:
            return results
        try:
            if self._opens(case, before):
                before = replace(before, counted=before.counted._replace(item=_without_claims(before.counted.item)))
            known = self._standing(replace(before, request=replace(request, requester=None)))  # whoever sent that one
        except TooLarge:
            raise
        except Malformed:
            known = []
        return ratcheting.added(results, item, known, before.counted.item, allowance)

    def _opens(self, case: "_Case", before: "_Case") -> bool:
        """Return whether an update lets a waiting pod see GPUs, whatever its claims hold.

        The old pod is then judged without claims. By today's facts it would look as if it could see GPUs before, if its
        claim was deleted or replaced by one for a GPU, and its faults would excuse those of the new pod.
        """
        spec = before.counted.item.get("spec")
        if (case.request.group, case.request.kind) != POD or not (
            isinstance(spec, dict) and spec.get("resourceClaims")
        ):
            return False
        new, old = (next(self._reviews(replace(each, seen=None)), None) for each in (case, before))
        if not (isinstance(new, PodReview) and isinstance(old, PodReview)) or new.subject.spec.get("nodeName"):
            return False
        return new.exposed_itself and not old.exposed_itself

    def _patched(
        self, request: Request, facts: Facts, allowance: Allowance, seen: Seen | None = None
    ) -> tuple[tuple[jsonpatch.Operation, ...], Object | None]:
        """Return the operations of a request's patch, and the patched object."""
        item = request.object
        if item is None or not _is_first(request):
            return (), item
        counted = count(request, item, allowance, self.policy.workloads)
        if (request.group, request.kind) != POD:
            return (), item
        fixes = self._fixes(_Case(request, counted, facts, allowance, seen=seen))
        if request.operation == UPDATE:
            fixes = (fix for fix in fixes if _is_added(fix, request))
        return jsonpatch.build(item, fixes, allowance)

    def _fixes(self, case: "_Case") -> Iterator[Fix]:
        """Yield the fixes of a pod for all findings that the policy denies."""
        for review in self._reviews(case):
            if review.subject.mirror:  # the object is a Pod, so its subject is no template
                continue
            for rule, findings in self._findings(review, self._menders):
                if review.action(rule.id)[0] is Action.DENY:
                    for finding in findings:
                        if not finding.advice:
                            yield from finding.fixes

    def _standing(self, case: "_Case") -> list[Result]:
        return [result for review in self._reviews(case) for result in self._results(review, case.request.operation)]

    def _reviews(self, case: "_Case") -> Iterator[Review[Any]]:
        """Yield one review for each subject of an object. The rules share what it computes."""
        for subject in subjects(case.request, case.counted, case.old, self.policy.workloads, case.allowance):
            review = review_of(subject, self.policy, case.facts, case.allowance)
            if case.seen is not None:
                case.seen(review)
            yield review

    def _results(self, review: Review[Any], operation: str) -> Iterator[Result]:
        """Yield the results of a review. What `mutate` will fix in the pods of a template is no fault of the template.

        A lenient engine warns of a patch that another replica did not make.
        """
        template = isinstance(review.subject, Pod) and review.subject.template
        for rule, findings in self._findings(review, self._askable):
            ruled, exemption = review.action(rule.id)
            for finding in findings:
                action = Action.WARN if finding.advice and ruled is Action.DENY else ruled
                if template and action is Action.DENY and finding.fixes:
                    continue
                message = finding.message
                if finding.left_out:
                    why = _why(ruled, finding, review.subject, operation)
                    message, finding = f"{message}; {why}", finding._replace(why=why)
                    action = Action.WARN if self._lenient and action is Action.DENY else action
                if (message := line(message)) != finding.message:
                    finding = finding._replace(message=message)
                yield Result(rule.id, action, finding, exemption)

    def _findings(
        self, review: Review[Any], rules: Callable[[Review[Any]], Iterable[Rule]]
    ) -> Iterator[tuple[Rule, list[Finding]]]:
        """Yield each rule that has findings, with the findings at their places in the object."""
        allowance, late, rule = review.allowance, review.allowance.late, None
        elsewhere = review.subject if isinstance(review.subject, Pod) and review.subject.elsewhere else None
        findings: list[Finding] = []
        try:
            for rule in rules(review):
                if late():
                    raise TooLate
                for finding in rule.check(review):
                    parts = finding.parts
                    named = len("".join(parts))
                    written = (len(finding.message) + named) // WRITTEN
                    allowance.spend("findings", 1, FINDING + len(parts) + written)
                    if written or named > MAX_NAME * len(parts):
                        finding = _kept(finding)
                    if finding.fixes and rule not in self._menders(review):
                        # `/mutate` would not apply this fix, but `/validate` would rely on it.
                        raise TypeError("a fix from a rule without MENDS, or for a pod that cannot see a GPU")
                    findings.append(_located(finding, elsewhere) if elsewhere else finding)
                if findings:
                    yield rule, findings
                    findings = []
        except TooLate:
            raise
        except Malformed as error:
            if isinstance(error, TooLarge) or not isinstance(review.subject, Pod):
                raise
            raise review.subject.malformed(error) from error
        except Exception as error:
            raise RuleBroke(rule.id if rule else "traits") from error

    def _askable(self, review: Review[Any]) -> Iterable[Rule]:
        """Return the rules that may find something."""
        return self._looking[type(review.subject)](review.traits)

    def _menders(self, review: Review[Any]) -> Iterable[Rule]:
        """Return the rules that may fix a pod; none for a pod that cannot see a GPU."""
        return self._mending if isinstance(review, PodReview) and review.exposed else ()


@immutable
class _Case:
    """An object to judge, and the one that it replaces. Their entries have been counted. `seen` gets its reviews."""

    request: Request
    counted: Counted
    facts: Facts
    allowance: Allowance
    old: Counted | None = None
    seen: Seen | None = None


def _is_first(request: Request) -> bool:
    """Return whether a request creates an object, or a debug container in a pod. Only such requests are patched."""
    asked = request.operation, request.subresource
    return asked in ((CREATE, ""), (UPDATE, "ephemeralcontainers"))


def _without_claims(pod: Object) -> Object:
    """Return a pod without its claims."""
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key != "resourceClaims"}}


def _kept(finding: Finding) -> Finding:
    """Return a finding without its long texts. Thousands of findings may have a copy each of one text of a tenant."""
    return finding._replace(message=finding.message[: MOST + 1], parts=tuple(map(ratcheting.short, finding.parts)))


def _located(finding: Finding, pod: Pod) -> Finding:
    """Return a finding with its path in the object. A finding inside a text also says where in the text it is."""
    path, within = pod.located(finding.path)
    return finding._replace(path=path, message=f"{dotted(within)}: {finding.message}" if within else finding.message)


def _is_added(fix: Fix, request: Request) -> bool:
    """Return whether a fix is for a debug container that the update adds. Such an update can change nothing else."""
    if fix.path[:2] != ("spec", "ephemeralContainers"):
        return False
    before: Any = request.old_object or _REMAINS
    for key in fix.path[:2]:
        before = before.get(key) if isinstance(before, dict) else None
    index = fix.path[2]
    return isinstance(index, int) and index >= (len(before) if isinstance(before, list) else 0)


def _why(action: Action, finding: Finding, subject: Subject, operation: str) -> str:
    """Say why an object lacks what /mutate writes, and what to do."""
    changed = operation == UPDATE and isinstance(subject, Pod) and not subject.template and subject.old is not None
    if action is Action.DENY and changed and finding.path[:2] != ("spec", "ephemeralContainers"):
        return _TOO_LATE
    return _LEFT_OUT[action]


def _may_be_repaired(result: Result) -> bool:
    return not (result.exemption or result.finding.advice) and (
        result.action is not Action.DENY or bool(result.finding.fixes)
    )
