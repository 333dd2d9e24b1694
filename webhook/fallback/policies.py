"""Makes ValidatingAdmissionPolicies and their bindings from a policy and the rules' clauses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from webhook.cel.clauses import ANY_POD, Clause, RequestKind
from webhook.cel.policies import asks_of, covers, include
from webhook.cel.write import all_of, any_of, array, negated, text
from webhook.engine.registration import API_VERSION, LABELS, MADE_FROM, NAME, Webhook, webhooks
from webhook.fallback import variables
from webhook.fallback.answers import OF_BINDINGS, ValidationActions
from webhook.fallback.params import KIND, Params
from webhook.model import Action
from webhook.policy.actions import Exemption, Override
from webhook.policy.model import NAMESPACE, Policy
from webhook.policy.scopes import NAME_LABEL
from webhook.rules import Rule

Made = dict[str, Any]
"""A policy or a binding, as JSON for the API server."""


class MatchedWebhook(NamedTuple):
    """The webhook in the registration that receives the same requests, and the operations that are used here."""

    webhook: str
    operations: tuple[str, ...] = ("CREATE", "UPDATE")


SOURCES = {
    RequestKind.PODS: MatchedWebhook("pods", ("CREATE",)),
    RequestKind.UPDATES: MatchedWebhook("pods", ("UPDATE",)),
    RequestKind.STATUSES: MatchedWebhook("statuses"),
    RequestKind.BINDINGS: MatchedWebhook("bindings"),
    RequestKind.NAMESPACES: MatchedWebhook("namespaces"),
    RequestKind.NODES: MatchedWebhook("nodes"),
    RequestKind.NODE_FEATURES: MatchedWebhook("nodefeatures"),
    RequestKind.DEVICES: MatchedWebhook("devices"),
}

NEEDS = {
    "lifted-limit": ("unsteered-pod",),
    "multiple-slices": ("unsteered-pod",),
    "other-scheduler": ("unsteered-pod",),
    "uncapped-memory": ("unsteered-pod",),
    "unearned-priority": ("unsteered-pod",),
    "unqueued-pod": ("unsteered-pod",),
}
"""Rules whose clauses are right only if other rules keep pods in their pools."""


def fallback(
    policy: Policy,
    rules: Iterable[Rule],
    answer: ValidationActions = ValidationActions.DENY,
    params: Params | None = None,
) -> list[Made]:
    """Make the fallback of a policy: the ConfigMap that it reads, if any, the policies, and then their bindings.

    An API server compiles what changed once a second, and only policies that are bound (apiserver
    pkg/admission/plugin/policy/generic/policy_source.go). In this order all of them are compiled at once.

    A binding has one answer for all validations of a policy. So a fallback that answers by rule has two policies for a
    kind of requests: one that denies, and one whose name ends with AUDITED.
    """
    heard = {each.name: each for each in webhooks(policy)}
    some = [rule for rule in rules if rule.fallback is not None and policy.action(rule.id) is Action.DENY]
    made, bindings = [], []
    for (asked, source), each in product(SOURCES.items(), OF_BINDINGS):
        validations = [*_validations(asked, policy, (rule for rule in some if answer.to(rule.id) is each))]
        if validations:
            recorded = answer is ValidationActions.BY_RULE and each is ValidationActions.AUDIT
            name = f"{NAME}-{asked}{AUDITED if recorded else ''}"
            made.append(_policy(name, asked, policy, heard[source.webhook], validations, reads=params is not None))
            bindings.append(_binding(name, policy, each))
            if params and asked is RequestKind.PODS:
                reading(made[-1], bindings[-1], params, heard[source.webhook])
    read = [params.config_map(policy)] if params and made else []
    return read + _stamped(made + bindings, params)


def reading(made: Made, binding: Made, params: Params, webhook: Webhook) -> None:
    """Make a policy read settings from a ConfigMap. Changes `made` and `binding`.

    The API server looks for the ConfigMap before it evaluates conditions. So a selector excludes the namespaces that
    are left alone: if the ConfigMap is deleted, the system keeps working.
    """
    made["spec"]["paramKind"] = KIND
    binding["spec"]["paramRef"] = params.ref
    alone = {"key": NAME_LABEL, "operator": "NotIn", "values": [*(webhook.excluded or ())]}
    made["spec"]["matchConstraints"]["namespaceSelector"] = {"matchExpressions": [alone]}


def _stamped(made: list[Made], params: Params | None) -> list[Made]:
    """Move the policy's hash to the ConfigMap, so that a change of only the ConfigMap changes no other object."""
    if params is None:
        return made
    return [{**each, "metadata": {**each["metadata"], "annotations": {}}} for each in made]


AUDITED = "-audited"
"""The end of the names of policies that only record, where others deny."""


STATIC = ".static.k8s.io"
"""The end of the names of policies in files (k8s.io/apiserver pkg/admission/plugin/policy/manifest)."""

GUARD = f"{NAME}-guard"
"""The name, before STATIC, of the policy that protects our own objects, and of its binding. It always denies."""

OWN = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
"""The resources that the guard protects.

Only policies in files are evaluated for requests about policies (policy/generic/plugin.go).
"""


def static(made: Iterable[Made], policy: Policy) -> list[Made]:
    """Make the files of a fallback that an API server reads from a folder, and a policy that guards our objects."""
    files = []
    for each in (*made, *_guard(policy)):
        each = {**each, "metadata": {**each["metadata"], "name": each["metadata"]["name"] + STATIC}}
        if "policyName" in each["spec"]:
            each["spec"] = {**each["spec"], "policyName": each["spec"]["policyName"] + STATIC}
        files.append(each)
    return files


def _guard(policy: Policy) -> tuple[Made, Made]:
    """Let only administrators, and the webhook's own accounts, change what registers the webhook and its fallback."""
    ours = "request.userInfo.username.startsWith('system:serviceaccount:" + NAMESPACE + ":')"
    rule = {"apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"], "resources": [*OWN]}
    validation = {
        "expression": any_of((include(policy.administrators), ours)),
        "message": f"only administrators of policy {policy.name} may change what registers Slicewarden; ask one",
        "reason": "Forbidden",
    }
    definition = {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": GUARD, "labels": LABELS, "annotations": {MADE_FROM: policy.digest}},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "resourceRules": [{**rule, "operations": ["CREATE", "UPDATE", "DELETE"]}],
            },
            "matchConditions": [
                {"name": "ours", "expression": f"request.name == '{NAME}' || request.name.startsWith('{NAME}-')"}
            ],
            "validations": [validation],
        },
    }
    return definition, _binding(GUARD, policy, ValidationActions.DENY)


class Validation(NamedTuple):
    """A validation, with the rule and the clause that it comes from."""

    rule: str
    clause: Clause
    eased: str


def _validations(asked: RequestKind, policy: Policy, rules: Iterable[Rule]) -> Iterator[Validation]:
    for rule in rules:
        easing = any_of(eased(each, asked, policy) for each in (rule.id, *NEEDS.get(rule.id, ())))
        if rule.fallback is not None and easing != "true":
            for clause in rule.fallback(policy):
                if asked in clause.asked:
                    yield Validation(rule.id, clause, easing)


def matching(asked: RequestKind, webhook: Webhook) -> Made:
    """Write the match constraints of a policy: the requests that the webhook in the registration receives."""
    condition, expression = webhook.condition
    elsewhere = f"!({variables.namespace(asked)} in {array(webhook.excluded or ())})"
    conditions = [{"name": "not-left-alone", "expression": elsewhere}] if webhook.excluded else []
    return {
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "resourceRules": [
                {
                    "apiGroups": [group],
                    "apiVersions": [webhook.versions[0]],
                    "operations": [each for each in operations if each in SOURCES[asked].operations],
                    "resources": [*resources],
                }
                for group, resources, operations in webhook.rules
            ],
        },
        "matchConditions": [*conditions, {"name": condition, "expression": expression}],
    }


def _narrowed(made: Made, validations: Iterable[Validation]) -> Made:
    """Put the condition that all clauses need first, in one expression. The API server evaluates each condition."""
    needs = {each.clause.only for each in validations}
    if len(needs) != 1 or "" in needs:
        return made
    *others, last = made["matchConditions"]
    narrowed = {**last, "expression": f"{needs.pop()} && ({last['expression']})"}
    return {**made, "matchConditions": [*others, narrowed]}


def _policy(
    name: str,
    asked: RequestKind,
    policy: Policy,
    webhook: Webhook,
    validations: Sequence[Validation],
    *,
    reads: bool = False,
) -> Made:
    eased = _numbered({each.eased for each in validations} - {"false"})
    own = {name: value for each in validations for name, value in each.clause.variables}
    own |= {name: expression for expression, name in eased.items()}
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name, "labels": LABELS, "annotations": {MADE_FROM: policy.digest}},
        "spec": {
            "failurePolicy": "Fail",
            **_narrowed(matching(asked, webhook), validations),
            "variables": [
                {"name": each, "expression": value}
                for each, value in (*variables.of(asked, policy, reads=reads), *own.items())
            ],
            "validations": [_validation(each, eased, policy) for each in validations],
        },
    }


def _numbered(expressions: Iterable[str]) -> dict[str, str]:
    """Give names to the expressions that say where rules are eased: most rules share one."""
    return {each: f"eased_{number}" for number, each in enumerate(sorted(expressions), start=1)}


def _validation(validation: Validation, names: Mapping[str, str], policy: Policy) -> Made:
    rule, clause, eased = validation
    eased = f"variables.{names[eased]}" if eased in names else eased
    help_ = f" ({policy.support})" if policy.support else ""
    message = f"{rule}: {clause.message}{help_}"
    made: Made = {"expression": any_of((eased, f"({clause.expression})")), "message": message, "reason": "Forbidden"}
    if clause.places:
        made["messageExpression"] = f"{text(f'{rule}: ')} + {clause.places} + {text(f': {clause.message}{help_}')}"
    return made


def _binding(name: str, policy: Policy, answer: ValidationActions) -> Made:
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": LABELS, "annotations": {MADE_FROM: policy.digest}},
        "spec": {"policyName": name, "validationActions": [*dict.fromkeys((answer.value, "Audit"))]},
    }


def eased(rule: str, asked: RequestKind, policy: Policy, pools: str = "variables.willing") -> str:
    """Write the condition under which the policy does not deny a rule's findings, as Review.action decides it.

    CEL has no clock, so an exemption with an end holds until the fallback is made again. It is not certain whether an
    override for certain pools applies to a pod that asks for a GPU. So an override that eases a rule applies to every
    such pod that may be in these pools, and one that denies is ignored. It applies to no other pod and to no other
    object. `pools` is an expression for the pools that may be the pod's.
    """
    if policy.action(rule) is not Action.DENY:
        return "true"
    result = "false"
    for override in reversed(policy.overrides):
        action = policy.overriding(override, rule)
        if action is None or (override.pools and action is Action.DENY):
            continue
        if asked is RequestKind.NODE_FEATURES and override.scope is not None and rule not in override.actions:
            continue  # it acts on others' nodes too
        here = _overrides(override, asked, policy, pools)
        result = all_of((negated(here), result)) if action is Action.DENY else any_of((here, result))
    return any_of((*(_exempts(each, rule, asked) for each in policy.exemptions), result))


def _overrides(override: Override, asked: RequestKind, policy: Policy, pools: str) -> str:
    scope = covers(override.scope) if override.scope is not None else "true"
    if not override.pools:
        return scope
    if asked not in ANY_POD:
        return "false"  # only a pod belongs to a pool
    if asked is not RequestKind.PODS:
        return all_of((scope, asks_of((pool for pool in policy.pools if pool.name in override.pools), policy)))
    return all_of((scope, f"{pools}.exists(p, p in {array(sorted(override.pools))})"))


def _exempts(exemption: Exemption, rule: str, asked: RequestKind) -> str:
    if exemption.rules and rule not in exemption.rules:
        return "false"
    if not exemption.rules and asked in (RequestKind.NAMESPACES, RequestKind.NODES, RequestKind.NODE_FEATURES):
        return "false"  # otherwise a namespace could give itself labels that outlast the exemption
    return covers(exemption.scope)
