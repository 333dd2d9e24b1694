"""Decides whether an API server sends a request to a webhook: by its rules, its namespaces and its conditions.

It decides as kubernetes/apiserver does in pkg/admission/plugin/webhook: predicates/rules/rules.go,
predicates/namespace/matcher.go and matchconditions/matcher.go. The conditions are evaluated by Google's own CEL.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext.ext_optional import ExtOptional

from webhook.api import admission
from webhook.catalog.workloads import WORKLOADS

Object = dict[str, Any]

NAMES = dict.fromkeys(("object", "oldObject", "request"), cel.Type.DYN)
ENVIRONMENT = cel.NewEnv(variables=NAMES, extensions=[ExtOptional()])
NOBODY = {"username": "nobody", "groups": ["system:authenticated"]}


def request_of(document: Object) -> Object:
    """Return the request in a review, or a request that creates an object, without a particular user."""
    if document["kind"] != "AdmissionReview":
        document = json.loads(admission.wrap(document))
    given = {key: value for key, value in document["request"].items() if value is not None}
    kind = given["kind"]
    plural = {"resource": {**kind, "resource": _plural(kind["group"], kind["kind"])}}
    return {"namespace": "", "name": "", "subResource": "", "oldObject": None, "userInfo": NOBODY, **plural, **given}


def _plural(group: str, kind: str) -> str:
    if workload := WORKLOADS.get((group, kind)):
        return workload.resource
    name = kind.lower()
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("s") else f"{name}s"


def receivers(webhooks: Iterable[Object], request: Object) -> list[str]:
    """Return the webhooks that receive a request, or without which it fails because they are required."""
    return [
        hook["name"]
        for hook in webhooks
        if any(_is_asked(rule, request) for rule in hook["rules"])
        and _is_selected(hook.get("namespaceSelector", {}), request)
        and all(_holds(each["expression"], request, hook["failurePolicy"]) for each in hook["matchConditions"])
    ]


def _is_asked(rule: Object, request: Object) -> bool:
    """matchPolicy: Equivalent asks about other versions of a resource as well."""
    resource = "/".join(filter(None, (request["resource"]["resource"], request["subResource"])))
    return (
        request["operation"] in rule["operations"]
        and request["resource"]["group"] in rule["apiGroups"]
        and resource in rule["resources"]
    )


def _is_selected(selector: Object, request: Object) -> bool:
    """An object in no namespace is always selected; a Namespace is by its own labels, of which the name is one."""
    namespace = request["name" if request["kind"]["kind"] == "Namespace" else "namespace"]
    for requirement in selector.get("matchExpressions", ()):
        assert requirement["key"] == "kubernetes.io/metadata.name"
        if (namespace in requirement["values"]) is not {"In": True, "NotIn": False}[requirement["operator"]]:
            return False
    return True


@cache
def compiled(expression: str) -> cel.Expression:
    return ENVIRONMENT.compile(expression)


def _holds(expression: str, request: Object, failure_policy: str) -> bool:
    values = {"object": request.get("object"), "oldObject": request["oldObject"], "request": request}
    answer = compiled(expression).eval(data=values)
    if answer.type() == cel.Type.ERROR:
        return failure_policy == "Fail"
    return answer.plain_value() is True
