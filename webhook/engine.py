"""The one way through: a request, facts and a policy in; a verdict out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from webhook import patch
from webhook.facts import Facts
from webhook.model import Action, Finding, Malformed, Object, Request, Result, Verdict, line
from webhook.policy import Policy
from webhook.rules import Rule
from webhook.targets import Pod, Subject, subjects

CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"


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

    def mutate(self, request: Request, facts: Facts) -> Verdict:
        """Answer `/mutate`: the fixes of what the policy denies, as a patch. Never denies.

        Only pods being created are patched: later most of their fields are fixed, and a patched workload would
        differ from what is kept in Git.
        """
        if request.operation != CREATE or request.subresource or request.object is None:
            return Verdict()
        try:
            return Verdict(patch=self._fixed(request, request.object, facts)[0])
        except Malformed:  # the API server or /validate refuses it, with a better place to say why
            return Verdict()

    def validate(self, request: Request, facts: Facts) -> Verdict:
        """Answer `/validate`: every finding on the object as it stands. Never patches.

        A workload's template is judged as its pods would be once they are mutated. On UPDATE only what the
        old object did not have counts, so that a tightened policy blocks nothing that runs already.
        """
        if request.object is None or request.operation in (DELETE, CONNECT):
            return Verdict()
        try:
            results = self._standing(request, request.object, facts)
        except Malformed as error:
            return Verdict(malformed=error)
        if request.operation == UPDATE and results and request.old_object is not None:
            try:
                known = {result.text for result in self._standing(request, request.old_object, facts)}
            except Malformed:
                known = set()
            results = [result for result in results if result.text not in known]
        return Verdict(tuple(results))

    def judge(self, request: Request, facts: Facts) -> Verdict:
        """Do what the API server does with both halves: mutate, apply the patch, validate the outcome."""
        if request.operation != CREATE or request.subresource or request.object is None:
            return self.validate(request, facts)
        try:
            operations, mutated = self._fixed(request, request.object, facts)
        except Malformed as error:
            return Verdict(malformed=error)
        verdict = self.validate(replace(request, object=mutated), facts)
        return replace(verdict, patch=operations)

    def _fixed(self, request: Request, item: Object, facts: Facts) -> tuple[tuple[patch.Operation, ...], Object]:
        fixes = [
            fix
            for subject in subjects(request, item)
            if isinstance(subject, Pod) and not subject.template
            for result in self._results(subject, facts)
            if result.action is Action.DENY
            for fix in result.finding.fixes
        ]
        return patch.build(item, fixes)

    def _standing(self, request: Request, item: Object, facts: Facts) -> list[Result]:
        return [
            result
            for subject in subjects(request, item)
            for result in self._results(subject, facts)
            if not _mended_later(subject, result)
        ]

    def _results(self, subject: Subject, facts: Facts) -> Iterator[Result]:
        for rule in self.rules:
            if not isinstance(subject, rule.subject):
                continue
            action = self.policy.action(rule.id)
            try:
                findings = list(rule.check(subject, self.policy, facts))
            except Malformed:
                raise
            except Exception as error:
                raise RuleBroke(rule.id) from error
            for finding in findings:
                yield Result(rule.id, _eased(action, finding), finding._replace(message=line(finding.message)))


def _mended_later(subject: Subject, result: Result) -> bool:
    """A template's pods are mutated when they are created, so what that mends is no fault of the template."""
    template = isinstance(subject, Pod) and subject.template
    return template and result.action is Action.DENY and bool(result.finding.fixes)


def _eased(action: Action, finding: Finding) -> Action:
    return Action.WARN if finding.advice and action is Action.DENY else action
