"""Makes the webhook configurations for an API server from the policy and the rules' tables.

A request that fails the conditions (`engine/conditions.py`) never reaches the webhook, so it succeeds even while the
webhook is down.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from webhook.catalog.places import Workload
from webhook.catalog.workloads import BUILT_IN
from webhook.engine import conditions
from webhook.facts.kinds.node import CONFIG_LABEL
from webhook.memory.budget import CARD_LABELS
from webhook.model import immutable
from webhook.policy.model import ALONE, NAMESPACE, Policy, Switch
from webhook.policy.scopes import NAME_LABEL

NAME = "slicewarden"
"""The name of both configurations, and of the Service."""

API_VERSION = "admissionregistration.k8s.io/v1"

MADE_FROM = "slicewarden.dev/policy"
"""The annotation of a configuration with the digest of the policy that it was made from."""

LABELS = {"app.kubernetes.io/part-of": NAME}

Made = dict[str, Any]
"""A configuration, or one webhook in it, as JSON for the API server."""

Asked = tuple[str, tuple[str, ...], tuple[str, ...]]
"""An API group, its resources and the operations that go to the webhook."""

BOTH = ("CREATE", "UPDATE")

PATCHED: tuple[Asked, ...] = (("", ("pods",), ("CREATE",)), ("", ("pods/ephemeralcontainers",), ("UPDATE",)))
"""The mutating webhook's."""

JUDGED: Mapping[str, tuple[Asked, ...]] = {
    "pods": (("", ("pods", "pods/ephemeralcontainers", "pods/resize"), BOTH),),
    "revisions": (("apps", ("controllerrevisions",), ("CREATE",)),),  # the API server refuses any change of its data
    "bindings": (("", ("pods/binding", "bindings"), ("CREATE",)),),
    "statuses": (("", ("pods/status",), ("UPDATE",)),),
    "namespaces": (("", ("namespaces", "namespaces/status", "namespaces/finalize"), BOTH),),
    "nodes": (("", ("nodes", "nodes/status"), BOTH),),
    "nodefeatures": (("nfd.k8s-sigs.io", ("nodefeatures",), BOTH), ("nfd.openshift.io", ("nodefeatures",), BOTH)),
    "configmaps": (("", ("configmaps",), (*BOTH, "DELETE")),),
    "clusterpolicies": (("nvidia.com", ("clusterpolicies",), BOTH),),
    "groups": (("scheduling.k8s.io", ("podgroups", "compositepodgroups", "workloads"), BOTH),),
    "devices": (("resource.k8s.io", ("deviceclasses", "resourceclaims", "resourceclaimtemplates"), BOTH),),
}
"""The validating webhooks', by name, except for those of workloads."""

CLUSTER_SCOPED = ("nodes", "clusterpolicies")
"""The webhooks that receive only cluster-scoped objects."""


@immutable
class Webhook:
    """One webhook of a configuration: its rules, and its condition (a name and an expression).

    If it is `required`, a request fails while the webhook cannot be reached. `versions` are the API versions that the
    rules can read. `excluded` are the namespaces that it skips; None for cluster-scoped resources. With `only`, it
    receives only requests in these namespaces.
    """

    name: str
    rules: tuple[Asked, ...]
    condition: tuple[str, str]
    excluded: tuple[str, ...] | None
    required: bool = True
    half: str = "validate"
    only: tuple[str, ...] = ()
    versions: tuple[str, ...] = ("v1",)


def configurations(policy: Policy, ca_bundle: str = "") -> tuple[Made, Made]:
    """Make the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration.

    In mode Audit no request fails while the webhook is down; in mode Off no request is sent. `ca_bundle` is in base64;
    without it an API server does not trust the webhook yet.
    """
    made = (
        _configuration("Mutating", policy, [{**as_json(mutating(policy)), "reinvocationPolicy": "IfNeeded"}]),
        _configuration("Validating", policy, [*map(as_json, webhooks(policy))]),
    )
    for webhook in (webhook for configuration in made for webhook in configuration["webhooks"] if ca_bundle):
        webhook["clientConfig"]["caBundle"] = ca_bundle
    return made


def _configuration(half: str, policy: Policy, webhooks: list[Made]) -> Made:
    if policy.mode is Switch.OFF:
        webhooks = []
    elif policy.mode is Switch.AUDIT:
        webhooks = [{**webhook, "failurePolicy": "Ignore"} for webhook in webhooks]
    return {
        "apiVersion": API_VERSION,
        "kind": f"{half}WebhookConfiguration",
        "metadata": {"name": NAME, "labels": LABELS, "annotations": {MADE_FROM: policy.digest}},
        "webhooks": webhooks,
    }


def as_json(webhook: Webhook) -> Made:
    """Return one webhook of a configuration, without a caBundle."""
    name, expression = webhook.condition
    value: Made = {
        "name": f"{webhook.name}.slicewarden.dev",
        "clientConfig": {"service": {"namespace": NAMESPACE, "name": NAME, "path": f"/{webhook.half}", "port": 443}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "matchPolicy": "Equivalent",
        "failurePolicy": "Fail" if webhook.required else "Ignore",
        "timeoutSeconds": {"mutate": 3, "validate": 5}[webhook.half],
        "rules": [
            {
                "apiGroups": [group],
                "apiVersions": [*webhook.versions],
                "resources": [*resources],
                "operations": [*operations],
            }
            for group, resources, operations in webhook.rules
        ],
        "matchConditions": [{"name": name, "expression": expression}],
    }
    if webhook.only:
        here = {"key": NAME_LABEL, "operator": "In", "values": [*webhook.only]}
        value["namespaceSelector"] = {"matchExpressions": [here]}
    elif webhook.excluded is not None:
        elsewhere = {"key": NAME_LABEL, "operator": "NotIn", "values": [*webhook.excluded]}
        value["namespaceSelector"] = {"matchExpressions": [elsewhere]}
    return value


def left_alone(policy: Policy) -> tuple[str, ...]:
    """Return the namespaces whose pods are not sent to the webhook: those in ALONE, and the policy's `leaveAlone`.

    Components of the system in other namespaces are exempted by service account, which a namespace selector cannot see.
    """
    return (*ALONE, *(name for name in policy.leave_alone if name not in ALONE))


def mutating(policy: Policy) -> Webhook:
    """Return the webhook of the MutatingWebhookConfiguration."""
    condition = ("concerns-gpus", conditions.pods(policy))
    return Webhook("mutate", PATCHED, condition, left_alone(policy), required=False, half="mutate")


def webhooks(policy: Policy) -> Iterator[Webhook]:
    """Yield the webhooks of the ValidatingWebhookConfiguration."""
    system = left_alone(policy)
    yield Webhook("pods", JUDGED["pods"], ("concerns-gpus", conditions.pods(policy)), system)
    yield _workloads("workloads", BUILT_IN.values(), policy)
    # The pods of a custom workload are judged anyway, so its operator can go on without the webhook. But a controller
    # creates the pods, so a grant that names requesters sees the requester only here.
    by_requester = any(grant.requesters is not None for grant in policy.grants)
    others = [workload for key, workload in policy.workloads.items() if key not in BUILT_IN]
    if others:
        yield replace(_workloads("custom-workloads", others, policy), required=by_requester, versions=("*",))
    if by_requester:
        by_people = ("by-no-controller", conditions.others_than(policy.controllers))
        yield Webhook("revisions", JUDGED["revisions"], by_people, system)

    bindings = JUDGED["bindings"]
    yield Webhook("bindings", bindings, ("no-scheduler-or-annotations", conditions.binding(policy)), system)
    if any(pool.scheduler for pool in policy.pools):
        # Most bindings of a cluster go here, so an absent webhook must not stop its scheduler.
        one = ("scheduler-of-a-pool", conditions.scheduled_binding(policy))
        yield Webhook("scheduled-bindings", bindings, one, system, required=False)
    annotated = ("annotations-or-labels-that-are-judged", conditions.status(policy))
    yield Webhook("statuses", JUDGED["statuses"], annotated, system)

    grants = conditions.changed_labels(policy.namespace_keys)
    yield Webhook("namespaces", JUDGED["namespaces"], ("labels-that-grant", grants), ALONE)
    labels = ("labels-of-pools-and-cards", conditions.changed_labels(policy.pool_keys | {*CARD_LABELS, CONFIG_LABEL}))
    yield Webhook("nodes", JUDGED["nodes"], labels, None)
    if policy.labelling_namespaces:
        labelling = ("labels-nodes", conditions.node_feature(policy))
        yield Webhook("nodefeatures", JUDGED["nodefeatures"], labelling, system, versions=("*",))

    config_maps = JUDGED["configmaps"]
    yield Webhook("configmaps", config_maps, ("may-share-gpus", conditions.config_map(policy)), ALONE)
    if named := sorted((space, name) for space, name in policy.config_maps if space in ALONE):
        only = tuple(sorted({space for space, _ in named}))
        yield Webhook("named-configmaps", config_maps, ("named-by-the-policy", conditions.named(named)), (), only=only)
    another = ("names-another-configuration", conditions.CLUSTER_POLICY)
    yield Webhook("clusterpolicies", JUDGED["clusterpolicies"], another, None)
    if policy.priorities or not policy.untrusted_preempt:
        yield Webhook("groups", JUDGED["groups"], ("names-a-priority", conditions.GROUPS), system, versions=("*",))
    versions = ("v1", "v1beta2", "v1beta1")
    for_gpus = ("may-be-for-gpus", conditions.devices(policy))
    yield Webhook("devices", JUDGED["devices"], for_gpus, ALONE, versions=versions)


def _workloads(name: str, kinds: Collection[Workload], policy: Policy) -> Webhook:
    """Make one webhook for several kinds."""
    resources: dict[str, tuple[str, ...]] = {}
    for workload in kinds:
        resources[workload.group] = (*resources.get(workload.group, ()), workload.resource)
    rules = tuple((group, plurals, BOTH) for group, plurals in resources.items())
    return Webhook(name, rules, ("concerns-gpus", conditions.workloads(kinds, policy)), left_alone(policy))
