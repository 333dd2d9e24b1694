"""The one way through: a request, facts and a policy in; a verdict out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from webhook.allowance import FINDING, Allowance, Late, TooLarge, TooLate, no_deadline
from webhook.api import jsonpatch
from webhook.api.objects import POD, Labelled, Subject, count, judged, subjects
from webhook.api.pods import Pod
from webhook.engine import ratcheting
from webhook.facts.snapshot import Facts
from webhook.gpu.review import PodReview
from webhook.model import Action, Finding, Fix, Malformed, Object, Request, Result, Verdict
from webhook.policy.model import Policy
from webhook.review import Review
from webhook.rules import Rule, review_of
from webhook.text.words import line

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"

_REMAINS: Object = {}
"""What is left of an object that is deleted."""


class RuleBroke(RuntimeError):
    """A rule raised: nothing can be said of the request, and `failurePolicy` has to decide."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"rule {rule} broke")
        self.rule = rule


class Engine:
    """Judges requests by a policy, which is fixed for its life; facts come with each request."""

    def __init__(self, policy: Policy, rules: Sequence[Rule]) -> None:
        self.policy = policy
        self.rules = tuple(rules)
        self._rules_of = {each: [r for r in rules if issubclass(each, r.subject)] for each in get_args(Subject)}
        self._mending = [rule for rule in self._rules_of[Pod] if rule.mends]

    def mutate(self, request: Request, facts: Facts, late: Late = no_deadline) -> Verdict:
        """Answer `/mutate`: the fixes of what the policy denies, as a patch. Never denies by a rule.

        Only pods and debug containers that are being created are patched: later most of their fields are fixed, and
        a patched workload would differ from what is kept in Git. A mirror pod would differ from what the kubelet runs.
        What is too large is refused here as it is by `validate`. Raises TooLate once `late` says so, wherever it is.
        """
        try:
            return Verdict(patch=self._patch(request, facts, Allowance(late)))
        except TooLarge as error:
            return Verdict(malformed=error)
        except Malformed:  # the API server or /validate refuses it, with a better place to say why
            return Verdict()

    def validate(self, request: Request, facts: Facts, late: Late = no_deadline) -> Verdict:
        """Answer `/validate`: every finding on the object as it stands. Never patches.

        A workload's template is judged as its pods would be once they are mutated. On UPDATE only what the
        old object did not have counts. Raises TooLate, as `mutate` does.
        """
        item, old = request.object, request.old_object
        if request.operation == DELETE and old is not None:
            item = _REMAINS
        if item is None or request.operation == CONNECT:
            return Verdict()
        allowance = Allowance(late)
        try:
            count(request, item, allowance, self.policy.workloads)
            return Verdict(tuple(self._judged(request, item, old, facts, allowance)))
        except TooLarge as error:
            # A stored object must lose finalizers and gain a status, or nobody could delete it.
            same = request.operation == UPDATE and old is not None and judged(item) == judged(old)
            return Verdict(malformed=None if same else error)
        except Malformed as error:
            return Verdict(malformed=error)

    def judge(self, request: Request, facts: Facts) -> Verdict:
        """Do what the API server does with both halves: mutate, apply the patch, validate the outcome."""
        try:
            operations = self._patch(request, facts, Allowance())
        except Malformed as error:
            return Verdict(malformed=error)
        if operations and request.object is not None:
            request = replace(request, object=jsonpatch.apply(request.object, operations))
        return self.validate(request, facts)._replace(patch=operations)

    def _judged(
        self, request: Request, item: Object, old: Object | None, facts: Facts, allowance: Allowance
    ) -> list[Result]:
        """Judge an object by the one that it replaces. Where that is too large, it is judged as if it were new."""
        others = allowance
        if request.operation == UPDATE and old is not None:
            others = allowance.again()
            try:
                count(request, old, others, self.policy.workloads)
            except Malformed:
                old = None
        results = self._standing(request, item, facts, allowance, old)
        if request.operation == CREATE:  # a patch too long to be made is what its author has to hear of
            fixes = (fix for result in results if result.action is Action.DENY for fix in result.finding.fixes)
            jsonpatch.build(item, fixes, allowance)
        if not results or old is None or request.operation != UPDATE:
            return results
        try:
            before = self._standing(replace(request, requester=None), old, facts, others)  # nobody's doing any more
        except TooLarge:
            raise
        except Malformed:
            before = []
        return ratcheting.news(results, item, before, old, allowance)

    def _patch(self, request: Request, facts: Facts, allowance: Allowance) -> tuple[jsonpatch.Operation, ...]:
        item = request.object
        debug = (request.operation, request.subresource) == (UPDATE, "ephemeralcontainers")
        if item is None or not (debug or (request.operation == CREATE and not request.subresource)):
            return ()
        count(request, item, allowance, self.policy.workloads)
        if (request.group, request.kind) != POD:
            return ()
        fixes = (
            fix
            for review in self._reviews(request, item, facts, allowance)
            if not review.subject.mirror  # it is a Pod, and no template
            for result in self._results(review, self._mending)
            if result.action is Action.DENY
            for fix in result.finding.fixes
            if not debug or _is_added(fix, request)
        )
        operations, mutated = jsonpatch.build(item, fixes, allowance)
        if jsonpatch.apply(item, operations) != mutated:
            # An API server refuses the whole request for a patch that does not apply, even under Ignore.
            raise RuntimeError("the patch does not make of the object what its fixes do")
        return operations

    def _standing(
        self, request: Request, item: Object, facts: Facts, allowance: Allowance, old: Object | None = None
    ) -> list[Result]:
        return [
            result
            for review in self._reviews(request, item, facts, allowance, old)
            for result in self._results(review, self._rules_of[type(review.subject)])
            if not _mended_later(review.subject, result)
        ]

    def _reviews(
        self, request: Request, item: Object, facts: Facts, allowance: Allowance, old: Object | None = None
    ) -> Iterator[Review[Any]]:
        """Make one review for each subject of an object: what its rules share is computed once."""
        for subject in subjects(request, item, old, self.policy.workloads, allowance):
            yield review_of(subject, self.policy, facts, allowance)

    def _results(self, review: Review[Any], rules: Iterable[Rule]) -> Iterator[Result]:
        allowance, late = review.allowance, review.allowance.late
        findings: list[Finding] = []
        for rule in rules:
            if late():
                raise TooLate
            try:
                for finding in rule.check(review):
                    allowance.spend("findings", 1, FINDING + len(finding.parts))
                    findings.append(finding)
            except (Malformed, TooLate):
                raise
            except Exception as error:
                raise RuleBroke(rule.id) from error
            if not findings:
                continue
            action, exemption = self._action(rule.id, review)
            for finding in findings:
                if finding.fixes and not rule.mends:  # /mutate would never make them, and /validate count on them
                    raise RuleBroke(rule.id) from TypeError("a fix from a rule that does not say MENDS")
                if (message := line(finding.message)) != finding.message:
                    finding = finding._replace(message=message)
                yield Result(rule.id, _eased(action, finding), finding, exemption)
            findings = []

    def _action(self, rule: str, review: Review[Any]) -> tuple[Action, str]:
        """What is done about a rule's findings on a subject, and the exemption if that is why."""
        policy, subject, facts = review.policy, review.subject, review.facts
        where = subject.namespace, facts.namespaces.get(subject.namespace), getattr(subject, "service_account", "")
        for exemption in policy.exemptions:
            named = exemption.rules or not isinstance(subject, Labelled)  # else it could be made to outlast its end
            if named and exemption.holds(rule, facts.today) and exemption.scope.covers(*where):
                return Action.AUDIT, exemption.name
        for override in policy.overrides:
            action = override.action(rule)
            if action is not None and (override.scope is None or override.scope.covers(*where)):
                pool = review.placement if override.pools and isinstance(review, PodReview) else None
                if not override.pools or (pool and pool.pool and pool.pool.name in override.pools):
                    return action, ""
        return policy.action(rule), ""


def _is_added(fix: Fix, request: Request) -> bool:
    """Tell whether a fix is of a debug container that the update adds; nothing else of a pod can change then."""
    if fix.path[:2] != ("spec", "ephemeralContainers"):
        return False
    before: Any = request.old_object or _REMAINS
    for key in fix.path[:2]:
        before = before.get(key) if isinstance(before, dict) else None
    index = fix.path[2]
    return isinstance(index, int) and index >= (len(before) if isinstance(before, list) else 0)


def _mended_later(subject: Subject, result: Result) -> bool:
    """A template's pods are mutated when they are created, so what that mends is no fault of the template."""
    template = isinstance(subject, Pod) and subject.template
    return template and result.action is Action.DENY and bool(result.finding.fixes)


def _eased(action: Action, finding: Finding) -> Action:
    return Action.WARN if finding.advice and action is Action.DENY else action
