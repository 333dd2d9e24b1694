"""Writes the admission policy that limits what the controller's token may do. `make chart` runs it.

It allows the controller to register only what some policy can need, by the tables of the registration and of the
workloads.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from webhook.catalog.workloads import WORKLOADS
from webhook.cel.write import array, text
from webhook.engine import conditions, filled, probe
from webhook.engine.paths import DIGEST, MOST, MUTATE, Manner
from webhook.engine.registration import CLUSTER_SCOPED, JUDGED, NAME, PATCHED, Asked
from webhook.policy.model import ALONE, NAMESPACE
from webhook.policy.scopes import NAME_LABEL

FILE = Path(__file__).resolve().parent / "controller" / "guard.yaml"
WIDTH = 126
LEASES = f"{probe.GROUP}/{probe.RESOURCE}"
ANY_RULE = "hook.?rules.orValue([])"

LITERAL = "'[A-Za-z0-9._/-]+'"
"""The pattern of a name in an expression: of a label, a namespace or an object."""


def _pattern(expression: str, *, literal: str = LITERAL) -> str:
    """Return the pattern of an expression, which has the literal '@' for any such ones."""
    return r"\s+".join(map(re.escape, expression.split())).replace("'@'", literal)


def _whole(condition: str) -> str:
    """Return the pattern of a whole expression: one such condition, or those of both policies of a change."""
    return rf"^({condition}|\({condition}\)\s+&&\s+\({condition}\))\s*$"


NAMED = _pattern(conditions.named([("@", "@")]))
NAMED_CONFIG_MAPS = _whole(rf"{NAMED}(\s+[|][|]\s+{NAMED})*")
LABELS_OF_NODES = _whole(_pattern(conditions.changed_labels(["@"]), literal=rf"{LITERAL}(,\s+{LITERAL})*"))
"""The forms of the conditions about ConfigMaps that a policy names, and about nodes."""

LABELS = """\
  # The command for an emergency deletes all of slicewarden, but not the guard.
  labels: {app.kubernetes.io/part-of: slicewarden-guard}
"""

HEAD = f"""\
# Written by `make chart`. All that the controller's account may write into the registration, whoever has its token:
# webhooks of our Service, with our paths, that ask about the kinds of the engine's tables. The controller cannot write
# this policy, and no webhook can be in its place: an API server asks none about webhook configurations.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: slicewarden-guard
{LABELS}spec:
  failurePolicy: Fail
  matchConstraints:
    matchPolicy: Equivalent
    resourceRules:
      - apiGroups: [admissionregistration.k8s.io]
        apiVersions: ["*"]
        operations: [CREATE, UPDATE]
        resources: [mutatingwebhookconfigurations, validatingwebhookconfigurations]
      # An owner that does not exist would have these collected. No policy is asked about policies (docs/operator.md).
      - {{apiGroups: [""], apiVersions: ["*"], operations: [UPDATE], resources: [secrets, configmaps]}}
      - {{apiGroups: [coordination.k8s.io], apiVersions: ["*"], operations: [UPDATE], resources: [leases]}}
  matchConditions:
    - name: by-the-controller
      expression: request.userInfo.username == 'system:serviceaccount:slicewarden-system:slicewarden-controller'
  variables:
    # GROUP/RESOURCE of each kind that `spec.workloads` of a policy of yours adds, such as ['example.com/trainings'].
    - name: added
      expression: "['']"
    - name: registration
      expression: request.resource.group == 'admissionregistration.k8s.io'
    - name: webhooks
      expression: object.?webhooks.orValue([])
    - name: mutating
      expression: request.resource.resource == 'mutatingwebhookconfigurations'
    - name: forPolicies
      expression: object.metadata.name == 'slicewarden-policies'
"""

TAIL = f"""\
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: slicewarden-guard
{LABELS}spec:
  policyName: slicewarden-guard
  validationActions: [Deny, Audit]
"""


def variables() -> dict[str, str]:
    """Return the variables that come from tables: the requests that may be registered, and the paths."""
    judged = sorted({*_pairs(each for rules in JUDGED.values() for each in rules), *_workloads()})
    patched = sorted(_pairs(PATCHED))
    manner = f"(-({'|'.join(each for each in Manner if each)}))?"
    name = f"{DIGEST.pattern}{manner}"
    more = f"([.]{name}){{0,{MOST - 1}}}"
    return {
        "asked": f"variables.forPolicies ? {array(['slicewarden.dev/gpusharingpolicies'])} "
        f": variables.mutating ? {array([LEASES, *patched])} : {array([LEASES, *judged])} + variables.added",
        "path": f"variables.forPolicies ? '^{filled.POLICY_PATH}$' "
        f": variables.mutating ? '^/{MUTATE}/{name}$' : '^/validate/{name}{more}$'",
    }


def validations() -> Iterator[tuple[str, str]]:
    """Yield each expression, with the message for a request that it refuses."""
    service = "hook.clientConfig.service"
    yield (
        "!variables.registration || (oldObject != null "
        "&& object.metadata.?labels.orValue({}) == oldObject.metadata.?labels.orValue({}))",
        "the controller may change no labels of the registration, and create none",
    )
    yield (
        "oldObject == null "
        "|| (object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([]) "
        "&& object.metadata.?ownerReferences.orValue([]) == oldObject.metadata.?ownerReferences.orValue([]))",
        "the controller may change no finalizers and no owners",
    )
    yield (
        f"variables.webhooks.all(hook, !has(hook.clientConfig.url) && has({service}) && {service}.namespace == "
        f"{text(NAMESPACE)} && {service}.name == {text(NAME)} && {service}.?port.orValue(443) == 443)",
        f"the controller may only register the Service {NAMESPACE}/{NAME} on port 443, and no URL",
    )
    yield (
        f"variables.webhooks.all(hook, {service}.?path.orValue('').matches(variables.path))",
        "the controller may only register paths that name policies",
    )
    yield (
        f"variables.webhooks.all(hook, {ANY_RULE}.all(rule, rule.apiGroups.all(group, "
        "rule.resources.all(resource, (group + '/' + resource) in variables.asked))))",
        "the controller may only register kinds of the engine's tables; a kind that spec.workloads adds has to be in "
        "the variable `added` of the ValidatingAdmissionPolicy slicewarden-guard",
    )
    yield (
        f"variables.webhooks.all(hook, {ANY_RULE}.all(rule, rule.operations.all(one, "
        "one in ['CREATE', 'UPDATE'] || (one == 'DELETE' && rule.resources == ['configmaps']))))",
        "the controller may only register creations and updates, and deletions of ConfigMaps",
    )
    form = probe.webhook(MUTATE, NAMESPACE, probe.account(NAMESPACE))
    (condition,) = form["matchConditions"]
    lease = f"{ANY_RULE}.exists(rule, {text(probe.RESOURCE)} in rule.resources)"
    yield (
        f"variables.webhooks.all(hook, !{lease} || ({ANY_RULE}.size() == 1 && hook.rules[0].resources == "
        f"[{text(probe.RESOURCE)}] && hook.rules[0].operations == ['UPDATE'] && hook.failurePolicy == 'Ignore' "
        f"&& hook.?namespaceSelector.?matchLabels.orValue({{}}) == {{{text(NAME_LABEL)}: {text(NAMESPACE)}}} "
        "&& hook.?matchConditions.orValue([]).size() == 1 "
        f"&& hook.matchConditions[0].expression == {text(condition['expression'])}))",
        "the controller may only register its own dry runs of one Lease, and never let them fail",
    )
    wide = array(sorted({resource for name in CLUSTER_SCOPED for _, some, _ in JUDGED[name] for resource in some}))
    selected = "hook.?namespaceSelector.?matchExpressions.orValue([])"
    values = f"{selected}[0].values"
    spared = " && ".join(f"{text(each)} in {values}" for each in ALONE)
    yield (
        f"variables.forPolicies || variables.webhooks.all(hook, {lease} "
        f"|| {ANY_RULE}.all(rule, rule.resources.all(one, one in {wide})) "
        f"|| (hook.?namespaceSelector.?matchLabels.orValue({{}}).size() == 0 && {selected}.size() == 1 "
        f"&& {selected}[0].key == {text(NAME_LABEL)} && (({selected}[0].operator == 'NotIn' && {spared}) "
        f"|| ({selected}[0].operator == 'In' && {values}.all(one, one in {array(ALONE)}) "
        f"&& {ANY_RULE}.all(rule, rule.resources == ['configmaps'])))))",
        f"the controller may only register webhooks that leave {' and '.join(ALONE)} alone",
    )
    nodes = array(sorted(resource for _, some, _ in JUDGED["nodes"] for resource in some))
    yield (
        f"variables.webhooks.all(hook, !{ANY_RULE}.exists(rule, rule.resources.exists(one, one in {nodes})) "
        f"|| hook.?matchConditions.orValue([]).all(each, each.expression.matches({text(LABELS_OF_NODES)})))",
        "the controller may only register changes of labels of nodes",
    )
    yield (
        f"variables.webhooks.all(hook, {selected}.size() == 0 || {selected}[0].operator != 'In' "
        f"|| hook.?matchConditions.orValue([]).all(each, each.expression.matches({text(NAMED_CONFIG_MAPS)})))",
        f"in {' and '.join(ALONE)} the controller may only register ConfigMaps by their names",
    )
    yield (
        "variables.webhooks.all(hook, hook.?objectSelector.?matchLabels.orValue({}).size() == 0 "
        "&& hook.?objectSelector.?matchExpressions.orValue([]).size() == 0)",
        "the controller may register no objectSelector",
    )
    yield (
        "variables.webhooks.all(hook, variables.forPolicies || hook.?matchConditions.orValue([]).size() == 1)",
        "the controller may only register webhooks with one condition",
    )
    yield (
        "!(variables.mutating || variables.forPolicies) "
        "|| variables.webhooks.all(hook, hook.failurePolicy == 'Ignore')",
        "the controller may not let patches, or policies that are applied, fail without the webhook",
    )
    yield (
        "variables.webhooks.all(hook, hook.timeoutSeconds <= 5)",
        "the controller may only register timeouts of 5 s at most",
    )


def _workloads() -> Iterator[str]:
    return (f"{each.group}/{each.resource}" for each in WORKLOADS.values())


def _pairs(asked: Iterable[Asked]) -> set[str]:
    return {f"{group}/{resource}" for group, resources, _ in asked for resource in resources}


def files() -> Iterator[tuple[Path, str]]:
    """Make the file, by its path."""
    written = HEAD
    for name, expression in variables().items():
        written += f"    - name: {name}\n      expression: >-\n{_folded(expression)}"
    written += "  validations:\n"
    for expression, message in validations():
        written += f"    - expression: >-\n{_folded(expression)}      message: >-\n{_folded(message)}"
    yield FILE, written + TAIL


def _folded(value: str) -> str:
    """Write a text as lines, which YAML joins by single spaces."""
    lines = textwrap.wrap(value, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    if " ".join(lines) != value:
        raise ValueError(f"no text of words with single spaces: {value!r}")
    return "".join(f"        {each}\n" for each in lines)
