"""Kinds, who may do what with them in a cluster, and what those are told who may not."""

import json

from tests.e2e.control_plane import Cluster, User, eventually
from tests.e2e.objects import Object
from webhook.catalog.places import Workload


def role(name: str, *rules: Object) -> Object:
    """A ClusterRole."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


def bound(kind: str, name: str, to: str, user: str, **where: str) -> Object:
    """A binding of a kind, which gives a ClusterRole to a user."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, **where},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": to},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def refusal(cluster: Cluster, user: User | None, *arguments: str, item: Object | None = None) -> str:
    """Return what is said to a kubectl command that has to fail."""
    done = cluster.kubectl(*arguments, user=user, stdin=json.dumps(item) if item else None)
    assert done.returncode, done.stdout
    return done.stderr


def allowed(cluster: Cluster, user: User, verb: str, resource: str, namespace: str = "") -> None:
    """Wait until a user may do something: an API server reads a binding a moment after it is written.

    `kubectl auth can-i` would leave out the group of a resource that is not defined yet.
    """
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "resource": plural, "group": group, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    ask = ("create", "--validate=false", "--output=jsonpath={.status.allowed}", "--filename=-")
    text = json.dumps(review)
    assert eventually(lambda: cluster.do(*ask, stdin=text, user=user) == "true"), f"{user.name}: {verb} {resource}"


def definition(kind: Workload, versions: list[str], *, status: bool = False) -> Object:
    """The definition of a kind, whose objects may have any field; its `status` may be a subresource."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    more: Object = {"subresources": {"status": {}}} if status else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.resource}.{kind.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Cluster" if kind.cluster_scoped else "Namespaced",
            "names": {"plural": kind.resource, "kind": kind.kind},
            "versions": [
                {"name": name, "served": True, "storage": name == versions[0], "schema": anything, **more}
                for name in versions
            ],
        },
    }


def established(cluster: Cluster, *definitions: str) -> None:
    """Wait until kinds are defined. `kubectl wait` ends at once if a definition has no status yet."""
    ask = ("wait", "--for=condition=Established", *(f"crd/{name}" for name in definitions))
    assert eventually(lambda: cluster.kubectl(*ask).returncode == 0), definitions


def served(cluster: Cluster, *definitions: str) -> None:
    """Wait until objects can be made of defined kinds: kubectl finds a kind a moment after it is established."""
    established(cluster, *definitions)
    kinds = ",".join(definitions)
    assert eventually(lambda: cluster.kubectl("get", kinds, "--all-namespaces").returncode == 0), kinds
