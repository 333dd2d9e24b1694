"""Reads the webhook configurations of a cluster, and its admission policies."""

from collections.abc import Iterable
from urllib.parse import quote

from webhook.cluster import client
from webhook.cluster.client import NOT_FOUND, Api, StatusError
from webhook.model import Object, Problem, Unusable

PLURALS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
ROOT = "/apis/admissionregistration.k8s.io/v1"


def configurations(api: Api, name: str) -> list[Object]:
    """Read both webhook configurations with a name. One that does not exist is left out. Raises Unusable."""
    found = []
    for plural in PLURALS:
        try:
            item = client.ask(api, f"{ROOT}/{plural}/{name}")
        except StatusError as error:
            if error.status == NOT_FOUND:
                continue
            raise Unusable((Problem(plural, 0, str(error)),)) from error
        except client.Unreachable as error:
            raise Unusable((Problem("cluster", 0, str(error)),)) from error
        found.append(item)
    return found


POLICIES = {
    "validatingadmissionpolicies": "ValidatingAdmissionPolicy",
    "validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBinding",
    "mutatingadmissionpolicies": "MutatingAdmissionPolicy",
    "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding",
}
"""The resources of admission policies, with their kinds, which the items of a list do not name."""


def refused(api: Api, made: Iterable[Object]) -> dict[str, str]:
    """Apply the objects of a fallback as dry runs. Return the API server's messages about those that it refuses.

    The keys are the names of the objects. A server that does not serve a kind refuses its objects too. Raises Unusable
    if the server cannot be asked, or fails.
    """
    plurals = {kind: plural for plural, kind in POLICIES.items()}
    found: dict[str, str] = {}
    for each in made:
        kind, metadata = each["kind"], each["metadata"]
        folder = (
            f"{ROOT}/{plurals[kind]}" if kind in plurals else f"/api/v1/namespaces/{metadata['namespace']}/configmaps"
        )
        query = {"dryRun": "All", "fieldManager": "slicewarden", "force": "true"}
        try:
            client.ask(api, f"{folder}/{metadata['name']}", query, method="PATCH", body=each)
        except client.Unreachable as error:
            raise Unusable((Problem("cluster", 0, str(error)),)) from error
        except StatusError as error:
            unserved = kind in plurals and error.status == NOT_FOUND
            found[f"{kind} {metadata['name']}"] = "it does not serve this kind" if unserved else str(error)
    return found


def config_map(api: Api, namespace: str, name: str) -> list[Object]:
    """Read a ConfigMap; an empty result if it does not exist. Raises Unusable."""
    try:
        return [{**client.ask(api, f"/api/v1/namespaces/{namespace}/configmaps/{name}"), "kind": "ConfigMap"}]
    except (StatusError, client.Unreachable) as error:
        if isinstance(error, StatusError) and error.status == NOT_FOUND:
            return []
        raise Unusable((Problem(f"ConfigMap {namespace}/{name}", 0, str(error)),)) from error


def policies(api: Api, label: str) -> list[Object]:
    """Read the validating and mutating admission policies with a label, `key=value`, and their bindings.

    An API server without such a kind counts as having none of them: mutating ones are served from Kubernetes 1.36 on.
    Raises Unusable.
    """
    found: list[Object] = []
    for plural, kind in POLICIES.items():
        try:
            items = client.ask(api, f"{ROOT}/{plural}?labelSelector={quote(label)}").get("items") or ()
        except (StatusError, client.Unreachable) as error:
            if isinstance(error, StatusError) and error.status == NOT_FOUND:
                continue
            raise Unusable((Problem(plural, 0, str(error)),)) from error
        found += ({**item, "kind": kind} for item in items)
    return found
