"""The one way through: a request, facts and a policy in; a verdict out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

from webhook import patch, ratchet
from webhook.facts import Facts
from webhook.model import Action, Finding, Fix, Malformed, Object, Request, Result, Verdict, line
from webhook.placement import place
from webhook.pods import Pod
from webhook.policy import Policy
from webhook.rules import Rule
from webhook.targets import Labelled, Subject, subjects

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"

MAX_OPERATIONS = 128
"""A patch of more would make an answer of over 64 KiB, which the API server holds in memory."""


_REMAINS: Object = {}
"""What is left of an object that is deleted."""


class RuleBroke(RuntimeError):
    """A rule raised: nothing can be said of the request, and `failurePolicy` has to decide."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"rule {rule} broke")
        self.rule = rule


class TooLate(RuntimeError):
    """The time for a review was over before every rule had its turn."""


Late = Callable[[], bool]
"""Says whether the time for a review is over."""


def never() -> bool:
    """Be in no hurry."""
    return False


class Engine:
    """Judges requests by a policy, which is fixed for its life; facts come with each request."""

    def __init__(self, policy: Policy, rules: Sequence[Rule]) -> None:
        self.policy = policy
        self.rules = tuple(rules)
        self._rules_of = {each: [r for r in rules if issubclass(each, r.subject)] for each in get_args(Subject)}
        self._mending = [rule for rule in self._rules_of[Pod] if rule.mends]

    def mutate(self, request: Request, facts: Facts, late: Late = never) -> Verdict:
        """Answer `/mutate`: the fixes of what the policy denies, as a patch. Never denies.

        Only pods and debug containers that are being created are patched: later most of their fields are fixed, and
        a patched workload would differ from what is kept in Git. A mirror pod would differ from what the kubelet runs.
        Raises TooLate when `late` says so before a rule's turn, as `validate` does.
        """
        try:
            return Verdict(patch=self._patch(request, facts, late))
        except Malformed:  # the API server or /validate refuses it, with a better place to say why
            return Verdict()

    def validate(self, request: Request, facts: Facts, late: Late = never) -> Verdict:
        """Answer `/validate`: every finding on the object as it stands. Never patches.

        A workload's template is judged as its pods would be once they are mutated. On UPDATE only what the
        old object did not have counts.
        """
        item, old = request.object, request.old_object
        if request.operation == DELETE and old is not None:
            item = _REMAINS
        if item is None or request.operation == CONNECT:
            return Verdict()
        try:
            results = self._standing(request, item, facts, late, old)
            if request.operation == CREATE:  # a patch too long to be made is what its author has to hear of
                _built(
                    item, [fix for result in results if result.action is Action.DENY for fix in result.finding.fixes]
                )
        except Malformed as error:
            return Verdict(malformed=error)
        if results and old is not None and request.operation == UPDATE:
            try:
                before = self._standing(replace(request, requester=None), old, facts, late)  # nobody's doing any more
            except Malformed:
                before = []
            results = ratchet.news(results, item, before, old)
        return Verdict(tuple(results))

    def judge(self, request: Request, facts: Facts) -> Verdict:
        """Do what the API server does with both halves: mutate, apply the patch, validate the outcome."""
        try:
            operations = self._patch(request, facts, never)
        except Malformed as error:
            return Verdict(malformed=error)
        if operations and request.object is not None:
            request = replace(request, object=patch.apply(request.object, operations))
        return self.validate(request, facts)._replace(patch=operations)

    def _patch(self, request: Request, facts: Facts, late: Late) -> tuple[patch.Operation, ...]:
        item = request.object
        debug = (request.operation, request.subresource) == (UPDATE, "ephemeralcontainers")
        if item is None or not (debug or (request.operation == CREATE and not request.subresource)):
            return ()
        fixes = [
            fix
            for subject in subjects(request, item, workloads=self.policy.workloads)
            if isinstance(subject, Pod) and not subject.template and not subject.mirror
            for result in self._results(subject, facts, self._mending, late)
            if result.action is Action.DENY
            for fix in result.finding.fixes
            if not debug or _is_added(fix, request)
        ]
        operations, mutated = _built(item, fixes)
        if patch.apply(item, operations) != mutated:
            # An API server refuses the whole request for a patch that does not apply, even under Ignore.
            raise RuntimeError("the patch does not make of the object what its fixes do")
        return operations

    def _standing(
        self, request: Request, item: Object, facts: Facts, late: Late, old: Object | None = None
    ) -> list[Result]:
        return [
            result
            for subject in subjects(request, item, old, self.policy.workloads)
            for result in self._results(subject, facts, self._rules_of[type(subject)], late)
            if not _mended_later(subject, result)
        ]

    def _results(self, subject: Subject, facts: Facts, rules: Iterable[Rule], late: Late) -> Iterator[Result]:
        for rule in rules:
            if late():
                raise TooLate
            try:
                findings = list(rule.check(subject, self.policy, facts))
            except Malformed:
                raise
            except Exception as error:
                raise RuleBroke(rule.id) from error
            if not findings:
                continue
            action, exemption = self._action(rule.id, subject, facts)
            for finding in findings:
                if finding.fixes and not rule.mends:  # /mutate would never make them, and /validate count on them
                    raise RuleBroke(rule.id) from TypeError("a fix from a rule that does not say MENDS")
                if (message := line(finding.message)) != finding.message:
                    finding = finding._replace(message=message)
                yield Result(rule.id, _eased(action, finding), finding, exemption)

    def _action(self, rule: str, subject: Subject, facts: Facts) -> tuple[Action, str]:
        """What is done about a rule's findings on a subject, and the exemption if that is why."""
        policy = self.policy
        where = subject.namespace, facts.namespaces.get(subject.namespace), getattr(subject, "service_account", "")
        for exemption in policy.exemptions:
            named = exemption.rules or not isinstance(subject, Labelled)  # else it could be made to outlast its end
            if named and exemption.holds(rule, facts.today) and exemption.scope.covers(*where):
                return Action.AUDIT, exemption.name
        for override in policy.overrides:
            if rule in override.actions and (override.scope is None or override.scope.covers(*where)):
                pool = place(subject, policy, facts) if override.pools and isinstance(subject, Pod) else None
                if not override.pools or (pool and pool.pool and pool.pool.name in override.pools):
                    return override.actions[rule], ""
        return policy.action(rule), ""


def _built(item: Object, fixes: Sequence[Fix]) -> tuple[tuple[patch.Operation, ...], Object]:
    """The operations that make the fixes, and what they lead to. Raises Malformed when they are too many."""
    operations, mutated = patch.build(item, fixes)
    if len(operations) > MAX_OPERATIONS:
        raise Malformed(
            (),
            f"needs {len(operations)} changes, and at most {MAX_OPERATIONS} fit one answer; give it fewer containers, "
            "or write caps and selection into it",
        )
    return operations, mutated


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
