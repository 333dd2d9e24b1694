"""The requirements of an API server on a registration, one check per line; `broken` returns those that are not met.

Sources: kubernetes/api admissionregistration/v1/types.go, kubernetes/kubernetes
pkg/apis/admissionregistration/validation/validation.go, kubernetes/apiserver pkg/endpoints/handlers/rest.go, and
kubernetes/website concepts/cluster-administration/admission-webhooks-good-practices.md.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from tests.support.objects import Object

Check = Callable[[Sequence[Object]], Iterable[str]]

WHOLE_REQUEST = 34
"""Seconds that an API server gives a request with all its webhooks."""

ALONE = {"kube-system", "slicewarden-system"}
IN_NO_NAMESPACE = {"nodes", "clusterpolicies"}
FORMS = {
    "containers": "pod.?spec.?containers",
    "init containers": "pod.?spec.?initContainers",
    "ephemeral containers": "pod.?spec.?ephemeralContainers",
    "claims": "pod.?spec.?resourceClaims",
    "the runtime class": "pod.?spec.?runtimeClassName",
    "the variable": "'NVIDIA_VISIBLE_DEVICES'",
    "nvidia.com/gpu, nvidia.com/mig-* and all others of NVIDIA's": "startsWith('nvidia.com/') ",
    "classes by a resource's name": "deviceclass.resource.kubernetes.io/",
}
MUTATED = {"pods", "pods/ephemeralcontainers"}
JUDGED = {
    "": {"pods", "pods/ephemeralcontainers", "pods/resize", "pods/binding", "bindings", "configmaps", "namespaces"},
    "apps": {"daemonsets", "deployments", "replicasets", "statefulsets"},
    "batch": {"cronjobs", "jobs"},
    "resource.k8s.io": {"deviceclasses", "resourceclaims", "resourceclaimtemplates"},
}
SUBJECTS_OF_OTHERS = {"authentication.k8s.io", "authorization.k8s.io"}


def webhooks(configurations: Iterable[Object], half: str = "") -> list[Object]:
    """Return every webhook, or only those of the configurations whose kind begins with a text."""
    return [hook for each in configurations if each["kind"].startswith(half) for hook in each["webhooks"]]


def rules(hook: Object) -> Iterable[tuple[str, str]]:
    """Return the groups and resources for which a webhook is called."""
    return ((group, name) for rule in hook["rules"] for group in rule["apiGroups"] for name in rule["resources"])


def asked(hooks: Iterable[Object], group: str) -> set[str]:
    """Return all resources of a group for which webhooks are called."""
    return {name for hook in hooks for each, name in rules(hook) if each == group}


def _each(holds: Callable[[Object], bool]) -> Check:
    return lambda found: (hook["name"] for hook in webhooks(found) if not holds(hook))


def _names(found: Sequence[Object]) -> Iterable[str]:
    for each in found:
        names = [hook["name"] for hook in each["webhooks"]]
        yield from (name for name in names if name.count(".") < 2 or names.count(name) > 1)


def _timeouts(found: Sequence[Object]) -> Iterable[str]:
    for half, seconds in (("Mutating", 3), ("Validating", 5)):
        yield from (hook["name"] for hook in webhooks(found, half) if hook.get("timeoutSeconds") != seconds)


def _sum(found: Sequence[Object]) -> Iterable[str]:
    """A webhook may be called twice, so each may take its timeout twice; half of the time is left for others."""
    twice = 2 * sum(hook.get("timeoutSeconds", 10) for hook in webhooks(found, "Mutating"))
    return [f"{twice} s"] if twice > WHOLE_REQUEST / 2 else []


def _conditions(hook: Object) -> bool:
    conditions = hook.get("matchConditions", [])
    return 1 <= len(conditions) <= 64 and not any("namespaceObject" in each["expression"] for each in conditions)


def _forms(found: Sequence[Object]) -> Iterable[str]:
    for hook in webhooks(found):
        if hook["name"].startswith(("mutate.", "pods.")):
            text = hook["matchConditions"][0]["expression"]
            yield from (f"{hook['name']}: {form}" for form, words in FORMS.items() if words not in text)


def _selector(hook: Object) -> bool:
    selector = hook.get("namespaceSelector", {})
    if selector.keys() - {"matchExpressions"}:
        return False
    excluded = {
        name
        for each in selector.get("matchExpressions", [])
        if (each["key"], each["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        for name in each["values"]
    }
    outside = {name.partition("/")[0] for _, name in rules(hook)} <= IN_NO_NAMESPACE
    return outside or excluded >= ALONE


def _subresources(found: Sequence[Object]) -> Iterable[str]:
    yield from (f"{hook['name']}: {name}" for hook in webhooks(found) for _, name in rules(hook) if "*" in name)
    yield from MUTATED ^ asked(webhooks(found, "Mutating"), "")


def _others(found: Sequence[Object]) -> Iterable[str]:
    for group, names in JUDGED.items():
        yield from names - asked(webhooks(found, "Validating"), group)


def _client(hook: Object) -> bool:
    client = hook["clientConfig"]
    service = client.get("service", {})
    placed = service.get("port") == 443 and service.get("path") in ("/mutate", "/validate")
    if "url" in client:  # beside a cluster, not in it
        return re.fullmatch(r"https://[^/?#@]+/(mutate|validate)", client["url"]) is not None
    return placed


LINES: dict[int, tuple[str, Check]] = {
    45: ("names have three parts or more, and are unique", _names),
    46: ("asking leaves no traces", _each(lambda hook: hook.get("sideEffects") == "None")),
    47: ("reviews are v1", _each(lambda hook: hook.get("admissionReviewVersions") == ["v1"])),
    48: ("3 s to mutate, 5 s to validate", _timeouts),
    49: ("mutating leaves time to others", _sum),
    50: ("what happens while it is away is said", _each(lambda hook: hook.get("failurePolicy") in ("Fail", "Ignore"))),
    51: ("other versions are asked about as well", _each(lambda hook: hook.get("matchPolicy") == "Equivalent")),
    52: ("conditions are few, and read only what there is", _each(_conditions)),
    53: ("every form of asking for a GPU is in the conditions", _forms),
    54: ("no label of a tenant's leads past", _each(lambda hook: not hook.get("objectSelector"))),
    55: ("kube-system and our own namespace are left out", _each(_selector)),
    56: ("resources and subresources are named one by one", _subresources),
    57: ("all that leads to a GPU is asked about", _others),
    58: (
        "no webhook is asked about webhooks",
        _each(lambda hook: "admissionregistration.k8s.io" not in {group for group, _ in rules(hook)}),
    ),
    59: (
        "nor about who may do what",
        _each(lambda hook: SUBJECTS_OF_OTHERS.isdisjoint(group for group, _ in rules(hook))),
    ),
    60: ("where it is has a path and a port", _each(_client)),
}
"""The lines by their numbers in part D of the contract."""


def broken(configurations: Iterable[Object]) -> list[str]:
    """Return the requirements that two webhook configurations do not meet, with the places."""
    found = [each for each in configurations if each["kind"].endswith("WebhookConfiguration")]
    if {each["kind"][: -len("WebhookConfiguration")] for each in found} != {"Mutating", "Validating"}:
        return ["there have to be a mutating and a validating configuration"]
    return [f"{line}: {says}: {where}" for line, (says, check) in LINES.items() for where in check(found)]
